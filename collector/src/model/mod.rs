//! Words that several stages use for what travels between them. Names no stage.

pub mod definitions; // what a process has defined in its dictionary
pub mod sample; // records as they leave the drain and the correlation
pub mod counts; // counters of a process at one moment, and losses of this side
pub mod images; // files of ELF images, one per build id

/// What the profile shows per frame; the symbols are filled in by the symbolize stage.
pub use crate::aggregate::profile::{Frame, Layer};

/// CLOCK_MONOTONIC now, in nanoseconds: the clock of every record.
pub fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// CLOCK_REALTIME now, in nanoseconds.
pub fn wall_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec for the duration of the call.
    unsafe { libc::clock_gettime(clock, &mut time) };
    (time.tv_sec.max(0) as u64).saturating_mul(1_000_000_000).saturating_add(time.tv_nsec.max(0) as u64)
}

/// A name in full and in short.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Name {
    /// Short form.
    pub short: String,
    /// Full form where it differs, otherwise empty.
    pub full: String,
}
