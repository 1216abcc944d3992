//! The clock of the simulated GPU, which is the host's, and waiting on it.

use std::sync::LazyLock;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The scheduler wakes a sleeper late by about this much; the rest of a wait is spun.
const SPIN_NS: u64 = 50_000;

/// Monotonic nanoseconds.
pub fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CUPTI's timestamps are nanoseconds since 1970; this is added to monotonic ones. Taken once, so that it never steps.
pub static RECORD_CLOCK_OFFSET_NS: LazyLock<u64> = LazyLock::new(|| {
    let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since_1970.as_nanos() as u64).saturating_sub(now_ns())
});

/// Waits until a time: sleeps, then spins.
pub fn wait_until(deadline_ns: u64) {
    loop {
        let left = deadline_ns.saturating_sub(now_ns());
        if left == 0 {
            return;
        }
        if left > SPIN_NS {
            std::thread::sleep(Duration::from_nanos(left - SPIN_NS));
        } else {
            core::hint::spin_loop();
        }
    }
}
