//! Off for good: thrown by the first caught panic, never reset while the process lives.

use shared_abi::sync::{AtomicBool, Ordering};

static OFF: AtomicBool = AtomicBool::new(false);

/// Throws the switch.
pub fn switch_off() {
    // Relaxed: nothing is published with it.
    OFF.store(true, Ordering::Relaxed);
}

/// Whether it was thrown.
pub fn is_off() -> bool {
    OFF.load(Ordering::Relaxed)
}
