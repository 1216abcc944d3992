//! The simulated driver. What is simulated and what is simplified: ../../README.md.
//!
//! A call comes in at `entry`, whose code looks like the real driver's, goes to `api`, which does what `call` asks of
//! every function, changes the `world` and puts work on its `timeline`.

#[path = "../../tools_abi.rs"]
mod tools_abi; // what the driver and CUPTI know of each other
mod abi; // types and codes of the header
mod entry; // exported functions: their machine code and their table
mod api; // what they do
mod call; // what they all do first and last
mod thread; // state of each thread
mod world; // all objects
mod handle_table; // handles
mod capture_rules; // what a capture forbids
mod timeline; // when work runs
mod host_function; // work that runs on the host
mod clock; // time
mod settings; // environment
mod tool; // CUPTI's way in
mod truth; // what really happened
