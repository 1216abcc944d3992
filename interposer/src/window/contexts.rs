//! Contexts that have launched: those that must be idle before CUPTI leaves.
//!
//! Allocates: no. Locks: no. Syscalls: none. Cost: one comparison for the usual single context.

use bindings::cuda_driver::sys::CUcontext;
use core::ffi::c_void;
use core::ptr;
use shared_abi::sync::{AtomicBool, AtomicPtr, Ordering};

/// A process with more contexts gets no windows: one that is not known cannot be waited for.
const CAPACITY: usize = 64;

/// A small set of contexts. Contexts are not removed when they are destroyed: synchronizing one that is gone is an
/// error that counts as idle.
#[derive(Debug)]
pub struct Contexts {
    entries: [AtomicPtr<c_void>; CAPACITY],
    overflowed: AtomicBool,
}

impl Contexts {
    /// Empty.
    pub fn new() -> Self {
        Self {
            entries: [const { AtomicPtr::new(ptr::null_mut()) }; CAPACITY],
            overflowed: AtomicBool::new(false),
        }
    }

    /// Adds a context.
    #[inline]
    pub fn insert(&self, context: CUcontext) {
        if context.is_null() {
            return;
        }
        // Relaxed: a handle is all there is, and the driver orders what lies behind it.
        let is_there = self.entries.iter().any(|entry| match entry.load(Ordering::Relaxed) {
            known if known == context => true,
            known if !known.is_null() => false,
            empty => {
                let taken = entry.compare_exchange(empty, context, Ordering::Relaxed, Ordering::Relaxed);
                taken.is_ok() || taken == Err(context)
            }
        });
        if !is_there {
            self.overflowed.store(true, Ordering::Relaxed);
        }
    }

    /// All contexts, in order of first sight; `None` when there were more than fit.
    pub fn all(&self) -> Option<Vec<CUcontext>> {
        if self.overflowed.load(Ordering::Relaxed) {
            return None;
        }
        let entries = self.entries.iter().map(|entry| entry.load(Ordering::Relaxed));
        Some(entries.take_while(|context| !context.is_null()).collect())
    }
}

impl Default for Contexts {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A context is kept once; one too many makes the whole set unusable, never incomplete.
    #[test]
    fn overflowing_set_is_no_set() {
        let contexts = Contexts::new();
        for handle in (1..=CAPACITY).chain(1..=CAPACITY) {
            contexts.insert((handle * 16) as CUcontext);
        }
        assert_eq!(contexts.all().map(|all| all.len()), Some(CAPACITY));
        contexts.insert(8 as CUcontext);
        assert_eq!(contexts.all(), None);
    }
}
