//! A segment in this process's own memory, for tests that need no memfd.
#![allow(dead_code, reason = "each test binary uses its own part")]

use shared_abi::segment::{HEADER_BYTES, Identity, Segment, SegmentError, Sizes};
use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ops::Deref;
use std::ptr::NonNull;
use zerocopy::FromZeros;

/// Owns zeroed, page-aligned memory and the segment that was created in it.
pub struct SegmentInMemory {
    segment: Segment,
    base: NonNull<u8>,
    layout: Layout,
}

impl SegmentInMemory {
    /// A segment with `slot_count` ring slots, two lanes and a dictionary of one page.
    pub fn with_slots(slot_count: u32) -> Self {
        Self::new(Sizes { lane_count: 2, slot_count, dictionary_bytes: 4096 })
    }

    /// A segment of these sizes.
    pub fn new(sizes: Sizes) -> Self {
        let (base, layout) = zeroed(sizes.segment_bytes());
        // SAFETY: `zeroed` gives that many zero bytes, aligned to 4096, which live until `drop`.
        let segment = unsafe { Segment::create(base, sizes, Identity::new_zeroed()) };
        Self { segment, base, layout }
    }

    /// Overwrites bytes of the segment, as a hostile or broken peer would.
    pub fn poke(&self, offset: usize, bytes: &[u8]) {
        assert!(offset + bytes.len() <= self.layout.size());
        // SAFETY: inside the allocation by the line above; the tests poke only while no other thread runs.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.base.as_ptr().add(offset), bytes.len()) }
    }

    /// Opens it as the other side would.
    pub fn reopen(&self) -> Result<Segment, SegmentError> {
        self.reopen_as(self.layout.size() as u64)
    }

    /// Opens it as if only `mapped_bytes` were mapped.
    pub fn reopen_as(&self, mapped_bytes: u64) -> Result<Segment, SegmentError> {
        assert!(mapped_bytes <= self.layout.size() as u64);
        // SAFETY: at least that many bytes are allocated, aligned to 4096, until `drop`.
        unsafe { Segment::open(self.base, mapped_bytes) }
    }
}

impl Deref for SegmentInMemory {
    type Target = Segment;
    fn deref(&self) -> &Segment {
        &self.segment
    }
}

impl Drop for SegmentInMemory {
    fn drop(&mut self) {
        // SAFETY: allocated by `zeroed` with this layout.
        unsafe { dealloc(self.base.as_ptr(), self.layout) }
    }
}

/// What a reader says of memory that nobody has written to.
pub fn open_untouched_memory() -> Result<Segment, SegmentError> {
    let (base, layout) = zeroed(HEADER_BYTES);
    // SAFETY: HEADER_BYTES bytes are allocated; the result is not used for access afterwards.
    let opened = unsafe { Segment::open(base, HEADER_BYTES) };
    // SAFETY: allocated by `zeroed` with this layout.
    unsafe { dealloc(base.as_ptr(), layout) };
    opened
}

fn zeroed(bytes: u64) -> (NonNull<u8>, Layout) {
    let layout = Layout::from_size_align(bytes as usize, 4096).expect("a page-aligned layout");
    // SAFETY: no segment has zero bytes.
    let base = unsafe { alloc_zeroed(layout) };
    (NonNull::new(base).expect("memory for a segment"), layout)
}
