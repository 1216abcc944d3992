//! The contract between the two halves of launchscope: what the interposer writes into shared memory
//! and what the collector may read there. `ABI.md` beside this crate is the same thing in words and pictures.
//!
//! | part | written by | read by |
//! | --- | --- | --- |
//! | segment header | interposer, once | collector |
//! | lanes (launch counters of one thread each) | the launching thread | collector |
//! | ring (samples, activity, status) | any engine thread | collector |
//! | dictionary (texts, stacks, images, graphs; append-only) | any engine thread | collector, from its start |
#![cfg_attr(not(any(test, loom)), no_std)]
#![deny(missing_docs)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod version; // magic and version: read before anything else
pub mod sync; // the only door to atomics; loom's under cfg(loom)
pub mod words; // bytes in and out of atomic words
pub mod segment; // where each part lies
pub mod counters; // what is counted, in lanes and for the process
pub mod record; // what a ring slot carries
pub mod ring; // many producers, one consumer, drop-newest
pub mod dictionary; // append-only definitions that records refer to by id
pub mod status; // named states of the interposer, in words for people
pub mod handover; // messages over the unix socket
