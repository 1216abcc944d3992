//! What the benches share; the benches themselves live in `benches/` beside this directory.

pub mod heap_segment;
