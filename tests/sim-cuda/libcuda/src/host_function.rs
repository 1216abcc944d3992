//! Host functions on a stream (cuLaunchHostFunc), each on a thread of its own.

use crate::clock::wait_until;
use core::ffi::c_void;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Calls `function(data)` at a time; `running` is raised until it has returned.
pub fn schedule(function: usize, data: usize, start_ns: u64, running: &Arc<AtomicU32>) {
    running.fetch_add(1, Ordering::AcqRel);
    let done = Arc::clone(running);
    std::thread::spawn(move || {
        wait_until(start_ns);
        // SAFETY: the API's caller passed a CUhostFn, which takes this pointer; null was refused.
        let call = unsafe { core::mem::transmute::<usize, extern "C" fn(*mut c_void)>(function) };
        call(data as *mut c_void);
        // Release, paired with the Acquire of whoever waits: what the function did is seen after a synchronization.
        done.fetch_sub(1, Ordering::Release);
    });
}
