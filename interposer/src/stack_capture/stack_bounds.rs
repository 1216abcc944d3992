//! Where the calling thread's stack lies, and the only door through which stack memory is read.
//!
//! Allocates: glibc does in `of_this_thread`, nothing else. Locks: no.
//! Syscalls: reads /proc/self/maps once for the main thread; process_vm_readv once a sample on a foreign stack.
//! Cost: a comparison a read.

use super::safe_read::read_own_memory;
use core::mem::MaybeUninit;

/// Bytes copied from a stack that is not the thread's own: 8 pages hold about 100 frames of C++.
pub const FOREIGN_STACK_BYTES: usize = 32 * 1024;

/// The stack that the thread was created with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackBounds {
    /// Lowest address.
    pub low_avma: u64,
    /// One past the highest address.
    pub high_avma: u64,
}

impl StackBounds {
    /// Of the calling thread; empty where they cannot be had (every stack is then a foreign one).
    pub fn of_this_thread() -> Self {
        let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
        let (mut low, mut bytes) = (core::ptr::null_mut(), 0);
        // SAFETY: the attributes are initialized by a successful pthread_getattr_np before they are read, and
        // destroyed once.
        unsafe {
            if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
                return Self { low_avma: 0, high_avma: 0 };
            }
            libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut bytes);
            libc::pthread_attr_destroy(attributes.as_mut_ptr());
        }
        Self { low_avma: low as u64, high_avma: (low as u64).saturating_add(bytes as u64) }
    }
}

/// Readable stack memory from the stack pointer up.
#[derive(Clone, Copy, Debug)]
pub struct StackMemory<'a> {
    low_avma: u64,
    high_avma: u64,
    /// What must be added to an address to get where its bytes are: zero unless they were copied.
    displacement: u64,
    copied: core::marker::PhantomData<&'a [u8]>,
}

impl<'a> StackMemory<'a> {
    /// The stack in use: the thread's own, or, when `sp` lies elsewhere (a coroutine's stack, a signal's alternate
    /// stack, a stack that was switched by hand), a copy of up to [`FOREIGN_STACK_BYTES`] of what can be read there.
    ///
    /// # Safety
    /// `sp` is the calling thread's stack pointer, or below it; frames above it stay while the value is used.
    #[inline]
    pub unsafe fn in_use(bounds: StackBounds, sp: u64, copy: &'a mut [u8; FOREIGN_STACK_BYTES]) -> Self {
        let displacement = 0;
        if sp >= bounds.low_avma && sp < bounds.high_avma {
            return Self {
                low_avma: sp,
                high_avma: bounds.high_avma,
                displacement,
                copied: Default::default(),
            };
        }
        let low_avma = sp & !7;
        let read = read_own_memory(low_avma, copy) as u64;
        Self {
            low_avma,
            high_avma: low_avma.saturating_add(read),
            displacement: (copy.as_ptr() as u64).wrapping_sub(low_avma),
            copied: Default::default(),
        }
    }

    /// The word at `avma`; `None` outside the stack.
    #[inline(always)]
    pub fn word(&self, avma: u64) -> Option<u64> {
        let inside = avma >= self.low_avma && avma <= self.high_avma.saturating_sub(8);
        // SAFETY: inside the live part of the thread's own stack by the contract of `in_use`, or inside the copy,
        // which is borrowed for 'a.
        inside.then(|| unsafe { (avma.wrapping_add(self.displacement) as *const u64).read_unaligned() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that a local variable lies inside the bounds, in a thread of its own.
    #[test]
    fn bounds_hold_the_current_frame() {
        let check = || {
            let local = 1u8;
            let bounds = StackBounds::of_this_thread();
            let at = &raw const local as u64;
            assert!(bounds.low_avma < at && at < bounds.high_avma);
        };
        check();
        std::thread::spawn(check).join().unwrap();
    }

    /// Check that memory outside the thread's stack is read from a copy, and not past its end.
    #[test]
    fn foreign_stack_is_copied() {
        let foreign: Vec<u64> = (0..16_384).collect();
        let at = foreign.as_ptr() as u64;
        let mut copy = Box::new([0; FOREIGN_STACK_BYTES]);
        // SAFETY: the vector outlives the value.
        let memory = unsafe { StackMemory::in_use(StackBounds::of_this_thread(), at, &mut copy) };
        assert_eq!(memory.word(at + 80), Some(10));
        assert_eq!(
            memory.word(at + FOREIGN_STACK_BYTES as u64 - 8),
            Some(FOREIGN_STACK_BYTES as u64 / 8 - 1)
        );
        assert_eq!(memory.word(at + FOREIGN_STACK_BYTES as u64), None);
        assert_eq!(memory.word(at.wrapping_sub(8)), None);
    }
}
