//! In the engine: `liblaunchscope.so`.

#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)
)]

pub mod entry; // every symbol that is exported
pub mod lifecycle; // off, arming, on, draining, off for ever
pub mod guard; // what keeps the engine safe from us
pub mod launch_hook; // what happens around every launch
pub mod config; // the table of environment variables
pub mod sampler; // which launches are looked at, and with which probability
pub mod fold; // one hash for all tables
pub mod intern_table; // fixed, lock-free: hash -> id
pub mod stack_capture; // the calling thread's native and Python stack
pub mod site_table; // places in Python code, each sent once
pub mod stack_table; // whole stacks, each sent once
pub mod name_once; // kernel names, each sent once
pub mod image_events; // mapped ELF images, each sent once
