//! What the benches share; the benches themselves live in `benches/` beside this directory.

pub mod heap_segment;
pub mod fake_driver; // a libcuda without a GPU behind it
