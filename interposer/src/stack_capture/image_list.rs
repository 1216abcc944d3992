//! A list of images for glibc older than 2.35, which has no `_dl_find_object`: rebuilt by the helper thread, read
//! by launching threads under a sequence lock. A reader that meets a rebuild reports no image, and its stack is
//! cut short that once.
//!
//! Allocates: in `new` and `rebuild`. Locks: no (readers never wait). Syscalls: no. Cost: about 20 ns a look-up.

use super::eh_frame::FoundImage;
use core::ffi::{c_int, c_void};
use shared_abi::sync::{AtomicU64, Ordering, fence};

/// Images that fit. vLLM with torch maps about 400, and each Triton kernel's launcher adds one.
const CAPACITY: usize = 4096;
const FIELDS: usize = 6;

/// The list.
#[derive(Debug)]
pub struct ImageList {
    /// Odd while a rebuild is going on.
    sequence: AtomicU64,
    count: AtomicU64,
    images: Box<[[AtomicU64; FIELDS]]>,
}

impl ImageList {
    /// An empty list.
    pub fn new() -> Self {
        let images = (0..CAPACITY).map(|_| core::array::from_fn(|_| AtomicU64::new(0))).collect();
        Self { sequence: AtomicU64::new(0), count: AtomicU64::new(0), images }
    }

    /// Lists all images anew. One thread only.
    pub fn rebuild(&self) {
        let mut found: Vec<[u64; FIELDS]> = Vec::with_capacity(512);
        // SAFETY: the callback gets back the pointer to `found`, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(collect_image), (&raw mut found).cast::<c_void>()) };
        found.sort_unstable();
        // Release fence: whoever sees a word written below also sees the odd sequence. Pairs with the fence in `find`.
        self.sequence.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (image, fields) in self.images.iter().zip(&found) {
            for (word, value) in image.iter().zip(fields) {
                word.store(*value, Ordering::Relaxed);
            }
        }
        self.count.store(found.len().min(CAPACITY) as u64, Ordering::Relaxed);
        // Release: whoever sees the even sequence sees the words. Pairs with the Acquire load in `find`.
        self.sequence.fetch_add(1, Ordering::Release);
    }

    /// The image that covers `pc`.
    pub fn find(&self, pc: u64) -> Option<FoundImage> {
        // Acquire pairs with the Release at the end of `rebuild`.
        let sequence = self.sequence.load(Ordering::Acquire);
        if sequence % 2 == 1 {
            return None;
        }
        let images = self.images.get(..self.count.load(Ordering::Relaxed) as usize)?;
        let behind = images.partition_point(|[start, ..]| start.load(Ordering::Relaxed) <= pc);
        let image = images.get(behind.checked_sub(1)?)?;
        let [_, end, bias_avma, program_headers_avma, program_header_count, eh_frame_hdr_avma] =
            image.each_ref().map(|word| word.load(Ordering::Relaxed));
        // Acquire fence: the words above were read before the sequence is read again.
        fence(Ordering::Acquire);
        let unchanged = self.sequence.load(Ordering::Relaxed) == sequence;
        (unchanged && pc < end && eh_frame_hdr_avma != 0).then_some(FoundImage {
            bias_avma,
            program_headers_avma,
            program_header_count,
            eh_frame_hdr_avma,
        })
    }
}

unsafe extern "C" fn collect_image(
    info: *mut libc::dl_phdr_info,
    _bytes: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes a valid description, and the pointer that `rebuild` gave it.
    let (info, found) = unsafe { (&*info, &mut *found.cast::<Vec<[u64; FIELDS]>>()) };
    let (mut start, mut end, mut eh_frame_hdr) = (u64::MAX, 0, 0);
    for index in 0..usize::from(info.dlpi_phnum) {
        // SAFETY: the loader says that there are so many.
        let header = unsafe { &*info.dlpi_phdr.add(index) };
        let at = info.dlpi_addr.wrapping_add(header.p_vaddr);
        match header.p_type {
            libc::PT_LOAD => {
                start = start.min(at);
                end = end.max(at.wrapping_add(header.p_memsz));
            }
            libc::PT_GNU_EH_FRAME => eh_frame_hdr = at,
            _ => {}
        }
    }
    if start < end {
        let headers = info.dlpi_phdr as u64;
        found.push([start, end, info.dlpi_addr, headers, u64::from(info.dlpi_phnum), eh_frame_hdr]);
    }
    0
}
