//! In the engine: `liblaunchscope.so`.
//!
//! | # | stage | start reading at | hands on |
//! | --- | --- | --- | --- |
//! | 1 | launch hook | [`launch_hook`] (`on_launch`) | `LaunchInfo` |
//! | 2 | sampler | [`sampler`] | a choice with its probability |
//! | 3 | stack capture | [`stack_capture`] | a stack's dictionary id |
//! | 4 | window | [`window`] | GPU activity of the launches in it |
//! | 5 | ring | [`ring_writer`] | records in slots |
//!
//! Installation is permanent: once hooked, a function stays hooked while the process lives, and "off" is a branch.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod lifecycle; // dormant, arming, on, off for ever
pub mod config; // the table of environment variables
pub mod profiler; // what an armed process has
pub mod launch_hook; // around every launch
pub mod thread_state; // what one launching thread owns
pub mod sampler; // which launches are looked at, and with which probability
pub mod stack_capture; // the calling thread's native and Python stack
pub mod site_table; // places in Python code, each sent once
pub mod stack_table; // whole stacks, each sent once
pub mod name_once; // kernel names, each sent once
pub mod fold; // one hash for all tables
pub mod intern_table; // fixed, lock-free: hash -> id
pub mod loader_counts; // whether images came or went
pub mod graph; // captured graphs
pub mod window; // CUPTI, for a moment
pub mod ring_writer; // records out
pub mod agent; // the helper thread
pub mod image_events; // mapped ELF images, each sent once
pub mod handover; // to the collector
pub mod status_board; // named statuses
pub mod log; // messages for people
pub mod clock; // one clock for all host times
pub mod guard; // no panic crosses
