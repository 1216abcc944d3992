//! What the exported functions do, by subject.

pub mod device; // cuInit and devices
pub mod context; // contexts
pub mod stream; // streams
pub mod memory; // allocations, copies, memsets
pub mod module; // images, functions, kernels
pub mod launch; // kernels, graphs, host functions
pub mod capture; // stream capture
pub mod graph; // graphs and executables
pub mod errors; // names of codes
pub mod proc_address; // look-up by name and version
