//! No panic crosses into the engine: it is caught and counted, the profiler goes dark, and the host gets its neutral value.
//!
//! The driver's own function is called outside the fence wherever that is possible, so that what unwinds through it
//! (a cancelled thread) is not ours to stop.
//!
//! Allocates: no. Locks: no. Syscalls: no. Cost: none unless it panics (a landing pad).

use super::kill_switch;
use shared_abi::sync::{AtomicPtr, AtomicU64, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

static PANICS: AtomicU64 = AtomicU64::new(0);
static ON_PANIC: AtomicPtr<()> = AtomicPtr::new(ptr::null_mut());

/// Runs `body`; if it panics, turns the profiler off for good and returns `neutral`.
#[inline(always)]
pub fn panic_fence<R>(neutral: R, body: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(body)) {
        Ok(value) => value,
        Err(payload) => {
            // A payload may panic when it is dropped; what little memory it holds is lost once.
            std::mem::forget(payload);
            on_panic();
            neutral
        }
    }
}

/// Names the function that is told of each panic: it must not panic, allocate or lock.
pub fn set_counter(count: fn()) {
    // Release, with the Acquire in `on_panic`: what the function uses was made before it was named.
    ON_PANIC.store(count as *mut (), Ordering::Release);
}

/// Keeps panics of ours from printing into the engine's standard error. Only our own copy of std is concerned: a cdylib
/// brings its own. Allocates; to be called while arming.
pub fn silence() {
    std::panic::set_hook(Box::new(|_| {}));
}

/// Panics caught so far.
pub fn panics() -> u64 {
    // Relaxed: a count.
    PANICS.load(Ordering::Relaxed)
}

#[cold]
fn on_panic() {
    kill_switch::turn_off();
    // Relaxed: a count.
    PANICS.fetch_add(1, Ordering::Relaxed);
    let count = ON_PANIC.load(Ordering::Acquire);
    if !count.is_null() {
        // SAFETY: only `set_counter` writes it, from a `fn()`.
        let count: fn() = unsafe { std::mem::transmute::<*mut (), fn()>(count) };
        count();
    }
}
