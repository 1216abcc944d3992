//! Invariant: after arming, taking a stack allocates nothing, the first time included.

mod support;

use interposer::name_once::{NAME_SLOTS, NameTable};
use interposer::stack_capture::{Scratch, StackCapture};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: passes everything on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }
    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Check that neither cold nor warm captures allocate, nor does a kernel name.
#[test]
fn capture_allocates_nothing() {
    let segment = support::new_segment(1 << 20);
    let capture = StackCapture::new(segment);
    let names = NameTable::new(NAME_SLOTS);
    let mut scratch = Box::new(Scratch::new());
    let before = ALLOCATIONS.get();
    let first = capture.capture(&mut scratch);
    let last = (0..100).map(|_| capture.capture(&mut scratch)).last();
    let name = names.intern(&segment, b"_Z6kernelPf");
    let after = ALLOCATIONS.get();
    assert!(first != 0 && last != Some(0) && name == 1);
    assert_eq!(after - before, 0);
}
