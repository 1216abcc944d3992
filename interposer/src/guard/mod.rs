//! Keeps our faults ours: no panic crosses an `extern "C"` edge, and after one the profiler is off for good.

pub mod kill_switch; // off for good

use crate::lifecycle;
use core::panic::AssertUnwindSafe;
use shared_abi::counters::Counter;

/// Runs `work`; a panic is caught and counted, switches the profiler off, and gives `neutral`.
///
/// Cost: nothing when `work` returns.
#[inline]
pub fn panic_fence<T>(neutral: T, work: impl FnOnce() -> T) -> T {
    std::panic::catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|payload| {
        // Dropping a payload may panic too; it is the last one that we will ever see.
        core::mem::forget(payload);
        caught();
        neutral
    })
}

#[cold]
fn caught() {
    kill_switch::switch_off();
    // The clean-up itself is fenced: whatever it hits, the host goes on.
    let _ = std::panic::catch_unwind(|| {
        if let Some(profiler) = lifecycle::active() {
            profiler.count(Counter::PanicsCaught, 1);
        }
        lifecycle::switch_off();
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A panic becomes the neutral value and throws the switch.
    #[test]
    fn panic_becomes_neutral_value_and_switches_off() {
        assert_eq!(panic_fence(7, || 1), 1);
        assert_eq!(panic_fence(7, || panic!("on purpose")), 7);
        assert!(kill_switch::is_off());
    }
}
