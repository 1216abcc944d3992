//! In the engine.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod fold; // one hash for all tables
pub mod intern_table; // fixed, lock-free: hash -> id
pub mod loader_counts; // whether images came or went
pub mod stack_capture; // the calling thread's native and Python stack
pub mod site_table; // places in Python code, each sent once
pub mod stack_table; // whole stacks, each sent once
pub mod name_once; // kernel names, each sent once
pub mod image_events; // mapped ELF images, each sent once
