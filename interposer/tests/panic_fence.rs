//! The panic fence, in a process of its own: it turns the profiler off for good.

use interposer::guard::kill_switch;
use interposer::guard::panic_fence::{panic_fence, panics, set_counter, silence};
use shared_abi::sync::{AtomicU32, Ordering};

static TOLD: AtomicU32 = AtomicU32::new(0);

/// A panic ends at the fence: neutral value, counted, told, and the profiler is off.
#[test]
fn panic_gives_the_neutral_value_and_turns_off() {
    silence();
    set_counter(|| {
        TOLD.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(panic_fence(1, || 2), 2);
    assert!(!kill_switch::is_off());
    assert_eq!(panic_fence(7, || panic!("on purpose")), 7);
    assert!(kill_switch::is_off());
    assert_eq!((panics(), TOLD.load(Ordering::Relaxed)), (1, 1));
}
