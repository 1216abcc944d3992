//! A segment in this process's own memory.

use shared_abi::segment::{Identity, Segment, Sizes};
use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ops::Deref;
use std::ptr::NonNull;
use zerocopy::FromZeros;

/// Owns zeroed, page-aligned memory and the segment that was created in it.
#[derive(Debug)]
pub struct HeapSegment {
    segment: Segment,
    base: NonNull<u8>,
    layout: Layout,
}

impl HeapSegment {
    /// A segment of these sizes.
    ///
    /// # Panics
    /// When the sizes ask for more than half the address space.
    pub fn new(sizes: Sizes) -> Self {
        let layout = Layout::from_size_align(sizes.segment_bytes() as usize, 4096).expect("a sane size");
        // SAFETY: a segment has at least its header, hence the size is not zero.
        let Some(base) = NonNull::new(unsafe { alloc_zeroed(layout) }) else { handle_alloc_error(layout) };
        // SAFETY: that many zero bytes, aligned to 4096, live until `drop`.
        let segment = unsafe { Segment::create(base, sizes, Identity::new_zeroed()) };
        Self { segment, base, layout }
    }
}

impl Deref for HeapSegment {
    type Target = Segment;
    fn deref(&self) -> &Segment {
        &self.segment
    }
}

impl Drop for HeapSegment {
    fn drop(&mut self) {
        // SAFETY: allocated in `new` with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}
