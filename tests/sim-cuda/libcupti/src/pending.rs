//! GPU work that was scheduled and whose record is not written yet, because it may not have ended.

use crate::tools_abi::{RECORD_KERNELS, RECORD_MEMCPY, RECORD_MEMSET, Work, WorkKind};
use core::sync::atomic::{AtomicU32, Ordering};
use std::sync::Mutex;

static PENDING: Mutex<Vec<Work>> = Mutex::new(Vec::new());
static WANTED: AtomicU32 = AtomicU32::new(0);

/// Which kinds of work are recorded from now on.
pub fn set_wanted(kinds: u32) {
    WANTED.store(kinds, Ordering::Relaxed);
}

/// Called by the driver with its lock held, hence nothing but the push.
pub extern "C" fn on_work(work: &Work) {
    let kind = match work.kind {
        WorkKind::Kernel => RECORD_KERNELS,
        WorkKind::Memcpy => RECORD_MEMCPY,
        WorkKind::Memset => RECORD_MEMSET,
    };
    if WANTED.load(Ordering::Relaxed) & kind != 0 {
        PENDING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(*work);
    }
}

/// Takes what has ended, oldest end first.
pub fn take_ended(now_ns: u64) -> Vec<Work> {
    let mut pending = PENDING.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (mut ended, running): (Vec<Work>, Vec<Work>) =
        pending.drain(..).partition(|work| work.end_ns <= now_ns);
    *pending = running;
    ended.sort_by_key(|work| work.end_ns);
    ended
}

/// Forgets all; cuptiFinalize does not wait for work to end.
pub fn clear() {
    PENDING.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clear();
}
