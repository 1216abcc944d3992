//! Off for good: set when we can no longer trust ourselves; nothing turns it back.
//!
//! Allocates: no. Locks: no. Syscalls: no. Cost: one relaxed load.

use shared_abi::sync::{AtomicBool, Ordering};

static IS_OFF: AtomicBool = AtomicBool::new(false);

/// Whether the profiler is off for good.
#[inline(always)]
pub fn is_off() -> bool {
    // Relaxed: a thread that sees it late looks at a few more launches; nothing else is published through it.
    IS_OFF.load(Ordering::Relaxed)
}

/// Turns the profiler off for good.
pub fn turn_off() {
    // Relaxed: see `is_off`.
    IS_OFF.store(true, Ordering::Relaxed);
}
