//! What the driver keeps for each thread: its contexts, its capture mode, the launch calls it is in.

use crate::abi::{CAPTURE_MODE_GLOBAL, Handle};
use core::cell::{Cell, RefCell};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(1);
static LAUNCH_CALLS: AtomicU32 = AtomicU32::new(0);

thread_local! {
    static CONTEXTS: RefCell<Vec<Handle>> = const { RefCell::new(Vec::new()) };
    static CAPTURE_MODE: Cell<i32> = const { Cell::new(CAPTURE_MODE_GLOBAL) };
    static OWN_LAUNCH_CALLS: Cell<u32> = const { Cell::new(0) };
    static NUMBER: u64 = NEXT.fetch_add(1, Ordering::Relaxed);
}

/// This thread, never used again for another.
pub fn number() -> u64 {
    NUMBER.with(|number| *number)
}

/// The current context, 0 for none.
pub fn context() -> Handle {
    CONTEXTS.with(|contexts| contexts.borrow().last().copied().unwrap_or(0))
}

/// Replaces the current context; 0 removes it.
pub fn set_context(context: Handle) {
    CONTEXTS.with(|contexts| {
        contexts.borrow_mut().pop();
    });
    if context != 0 {
        push_context(context);
    }
}

pub fn push_context(context: Handle) {
    CONTEXTS.with(|contexts| contexts.borrow_mut().push(context));
}

pub fn pop_context() -> Option<Handle> {
    CONTEXTS.with(|contexts| contexts.borrow_mut().pop())
}

pub fn capture_mode() -> i32 {
    CAPTURE_MODE.get()
}

pub fn exchange_capture_mode(mode: i32) -> i32 {
    CAPTURE_MODE.replace(mode)
}

/// A launch call of this thread, for as long as it lives.
pub struct LaunchCall;

impl LaunchCall {
    pub fn begin() -> Self {
        // Sequentially consistent, as in `others_launch`: who finalizes must see the call or the call must see him.
        LAUNCH_CALLS.fetch_add(1, Ordering::SeqCst);
        OWN_LAUNCH_CALLS.set(OWN_LAUNCH_CALLS.get() + 1);
        Self
    }
}

impl Drop for LaunchCall {
    fn drop(&mut self) {
        OWN_LAUNCH_CALLS.set(OWN_LAUNCH_CALLS.get() - 1);
        LAUNCH_CALLS.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Whether another thread is inside a launch call.
pub fn others_launch() -> bool {
    LAUNCH_CALLS.load(Ordering::SeqCst) > OWN_LAUNCH_CALLS.get()
}
