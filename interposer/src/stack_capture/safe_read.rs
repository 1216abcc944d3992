//! Reads of our own memory that cannot crash: process_vm_readv on ourselves, which needs no privilege, and where a
//! sandbox forbids that call, a read of /proc/self/mem.
//!
//! Allocates: no. Locks: no. Syscalls: process_vm_readv, or open, pread and close.
//! Cost: about 0.4 µs for 128 bytes.

use core::cell::Cell;
use core::ffi::c_void;

/// Source of bytes for the Python reader.
pub trait Memory {
    /// Copies bytes at `avma`; false where they cannot be read.
    fn copy(&self, avma: u64, into: &mut [u8]) -> bool;

    /// A 64-bit word.
    #[inline(always)]
    fn word(&self, avma: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.copy(avma, &mut bytes).then(|| u64::from_ne_bytes(bytes))
    }

    /// A 32-bit word.
    #[inline(always)]
    fn int(&self, avma: u64) -> Option<i32> {
        let mut bytes = [0; 4];
        self.copy(avma, &mut bytes).then(|| i32::from_ne_bytes(bytes))
    }

    /// A byte.
    #[inline(always)]
    fn byte(&self, avma: u64) -> Option<u8> {
        let mut bytes = [0; 1];
        self.copy(avma, &mut bytes).then_some(bytes[0])
    }
}

/// No object lies below this address (mmap_min_addr).
const LOWEST_AVMA: u64 = 4096;

/// Plain loads.
#[derive(Clone, Copy, Debug)]
pub struct PlainMemory(());

impl PlainMemory {
    /// # Safety
    /// Every address above [`LOWEST_AVMA`] that is read through the value is mapped and readable.
    pub unsafe fn new() -> Self {
        Self(())
    }
}

impl Memory for PlainMemory {
    #[inline(always)]
    fn copy(&self, avma: u64, into: &mut [u8]) -> bool {
        if avma < LOWEST_AVMA {
            return false;
        }
        // SAFETY: readable by the contract of `new`; `into` is ours alone. Another thread may at most change a
        // string's cached hash meanwhile, an aligned word.
        unsafe { core::ptr::copy_nonoverlapping(avma as *const u8, into.as_mut_ptr(), into.len()) };
        true
    }
}

/// Bytes that [`CheckedMemory`] fetches at once: a frame or a code object.
const WINDOW_BYTES: usize = 256;
/// Windows kept: a frame, its code object and that one's name, file name and line table, and some of the last frame's.
/// One window made a stack of 20 frames cost 95 µs.
const WINDOWS: usize = 8;

/// Reads that fail instead of crashing. The last windows are kept, so that the fields of one object cost one call;
/// nothing that is read through one value may change meanwhile.
#[derive(Debug)]
pub struct CheckedMemory {
    windows: [Window; WINDOWS],
    next: Cell<usize>,
}

#[derive(Debug)]
struct Window {
    start_avma: Cell<Option<u64>>,
    bytes: [Cell<u8>; WINDOW_BYTES],
}

impl Window {
    fn copy(&self, avma: u64, into: &mut [u8]) -> bool {
        let offset = self.start_avma.get().and_then(|start_avma| avma.checked_sub(start_avma));
        let part = offset
            .and_then(|offset| usize::try_from(offset).ok())
            .and_then(|at| self.bytes.get(at..at.checked_add(into.len())?));
        part.map(|part| into.iter_mut().zip(part).for_each(|(to, from)| *to = from.get())).is_some()
    }
}

impl CheckedMemory {
    /// Nothing fetched yet.
    pub fn new() -> Self {
        let window = || Window { start_avma: Cell::new(None), bytes: [const { Cell::new(0) }; WINDOW_BYTES] };
        Self { windows: core::array::from_fn(|_| window()), next: Cell::new(0) }
    }

    /// Fetches the window that begins at or before `avma`; `None` where it reaches into memory that cannot be read.
    fn fetch(&self, avma: u64) -> Option<&Window> {
        let mut bytes = [0; WINDOW_BYTES];
        let start_avma = avma & !63;
        let window = self.windows.get(self.next.get() % WINDOWS)?;
        if read_own_memory(start_avma, &mut bytes) != WINDOW_BYTES {
            return None;
        }
        self.next.set(self.next.get().wrapping_add(1));
        window.start_avma.set(Some(start_avma));
        window.bytes.iter().zip(bytes).for_each(|(to, from)| to.set(from));
        Some(window)
    }
}

impl Memory for CheckedMemory {
    fn copy(&self, avma: u64, into: &mut [u8]) -> bool {
        if self.windows.iter().any(|window| window.copy(avma, into)) {
            return true;
        }
        if self.fetch(avma).is_some_and(|window| window.copy(avma, into)) {
            return true;
        }
        // The window reaches into an unmapped page, or the request is larger than a window.
        read_own_memory(avma, into) == into.len()
    }
}

const PAGE_BYTES: u64 = 4096;
/// Pages of one [`read_own_memory`].
const MAX_PAGES: usize = 17;

/// Copies as many leading bytes at `avma` as can be read, and returns their number.
pub fn read_own_memory(avma: u64, into: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: into.as_mut_ptr().cast::<c_void>(), iov_len: into.len() };
    // The kernel never splits one element: an element a page makes the readable pages arrive.
    let mut remote = [libc::iovec { iov_base: core::ptr::null_mut(), iov_len: 0 }; MAX_PAGES];
    let (mut at, mut left, mut pages) = (avma, into.len() as u64, 0);
    for element in &mut remote {
        if left == 0 {
            break;
        }
        let bytes = left.min(PAGE_BYTES - at % PAGE_BYTES);
        *element = libc::iovec { iov_base: at as *mut c_void, iov_len: bytes as usize };
        (at, left, pages) = (at.wrapping_add(bytes), left - bytes, pages + 1);
    }
    // SAFETY: `local` covers `into`, which is ours alone; bad remote addresses are reported, not followed.
    let read = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, remote.as_ptr(), pages, 0) };
    match usize::try_from(read) {
        Ok(read) => read,
        Err(_) if call_is_forbidden() => read_through_proc(avma, into),
        Err(_) => 0,
    }
}

fn call_is_forbidden() -> bool {
    // SAFETY: always valid to call.
    let error = unsafe { *libc::__errno_location() };
    error == libc::EPERM || error == libc::ENOSYS
}

fn read_through_proc(avma: u64, into: &mut [u8]) -> usize {
    // SAFETY: a C string; the descriptor is closed below.
    let file = unsafe { libc::open(c"/proc/self/mem".as_ptr(), libc::O_RDONLY | libc::O_CLOEXEC) };
    if file < 0 {
        return 0;
    }
    // SAFETY: `into` is ours alone; the kernel reports bad offsets.
    let read = unsafe {
        let read = libc::pread(file, into.as_mut_ptr().cast::<c_void>(), into.len(), avma as libc::off_t);
        libc::close(file);
        read
    };
    usize::try_from(read).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that an unmapped address is refused and a mapped one is read, also just before the end of a mapping.
    #[test]
    fn unmapped_memory_is_refused() {
        // SAFETY: a fresh anonymous mapping, whose second page is then removed again.
        let page = unsafe {
            let page =
                libc::mmap(core::ptr::null_mut(), 8192, 3, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0);
            libc::munmap(page.add(4096), 4096);
            page as u64
        };
        let memory = CheckedMemory::new();
        // A window that was never fetched covers nothing.
        assert_eq!([0, 0x10, u64::MAX - 16, u64::MAX].map(|avma| memory.word(avma)), [None; 4]);
        assert_eq!(memory.word(page + 4088), Some(0));
        assert_eq!(memory.word(page + 4092), None);
        assert_eq!(memory.word(page + 4096), None);
        let mut long = [1; 8192];
        assert_eq!(read_own_memory(page, &mut long), 4096);
        assert_eq!(read_through_proc(page, &mut long), 4096);
        assert_eq!(read_through_proc(page + 4096, &mut long), 0);
        let value = 77u64;
        assert_eq!(memory.word(&raw const value as u64), Some(77));
    }
}
