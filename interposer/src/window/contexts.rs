//! Contexts that have launched: those that must be idle before CUPTI leaves.
//!
//! Allocates: no. Locks: no. Syscalls: none. Cost: one comparison for the usual single context.

use bindings::cuda_driver::sys::CUcontext;
use core::ptr;
use shared_abi::sync::{AtomicPtr, Ordering};

/// A process with more contexts keeps CUPTI attached rather than leave one unsynchronized.
const CAPACITY: usize = 64;

/// A small set of contexts. Contexts are not removed when they are destroyed: synchronizing one that is gone is an
/// error that counts as idle.
#[derive(Debug)]
pub struct Contexts([AtomicPtr<core::ffi::c_void>; CAPACITY]);

impl Contexts {
    /// Empty.
    pub fn new() -> Self {
        Self([const { AtomicPtr::new(ptr::null_mut()) }; CAPACITY])
    }

    /// Adds a context; `false` when there is no room.
    #[inline]
    pub fn insert(&self, context: CUcontext) -> bool {
        if context.is_null() {
            return true;
        }
        // Relaxed: a handle is all there is, and the driver orders what lies behind it.
        self.0.iter().any(|entry| {
            match entry.compare_exchange(ptr::null_mut(), context, Ordering::Relaxed, Ordering::Relaxed) {
                Ok(_) => true,
                Err(found) => found == context,
            }
        })
    }

    /// All contexts, in order of first sight.
    pub fn all(&self) -> Vec<CUcontext> {
        self.0
            .iter()
            .map(|entry| entry.load(Ordering::Relaxed))
            .take_while(|context| !context.is_null())
            .collect()
    }
}

impl Default for Contexts {
    fn default() -> Self {
        Self::new()
    }
}
