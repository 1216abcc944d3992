//! Out of the engine: drains rings, correlates, symbolizes, aggregates and writes profiles.
//!
//! Start reading at [`pipeline`]; each stage's `mod.rs` says what goes in and out.

pub mod model; // words that several stages use
pub mod drain; // from shared memory to checked samples
pub mod correlate; // activities to their launches
pub mod symbolize; // addresses and ids to frames
pub mod aggregate; // weighted stacks
pub mod session; // one engine process: its way through drain, correlate and aggregate
pub mod pipeline; // all processes: the only place that joins the stages
pub mod export; // profile files and the flame graph page
pub mod cli; // what was typed
pub mod config; // what it means
pub mod run; // `launchscope run`: a command, from start to profile
pub mod collect; // `launchscope collect`: many processes, until stopped
pub mod environment; // `launchscope env`: how a process finds the collector
pub mod summary; // what people read at the end
pub mod moment; // local time, in file names
pub mod signals; // signals as data
