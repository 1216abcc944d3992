//! Pages for trampolines, within reach of a near jump from the function they serve.
//!
//! ```text
//! slot (64 bytes)   +0  relay:     jmp [rip]; address of the replacement     <- the patched entry jumps here
//!                  +16  original:  moved instructions; jmp function + moved  <- the replacement calls this
//! ```
//!
//! A page is either being written (RW) or being run (RX), never both: all slots of a round are written, then the page is
//! sealed, and only then does an entry lead to it. A sealed page is not opened again, because threads may run in it.
//!
//! Allocates: yes. Locks: no. Syscalls: mmap, mprotect, reading the memory map. Used while arming only.

use super::memory_map::MemoryMap;
use super::refusal::Why;
use core::ptr::{self, NonNull};

/// Bytes of a slot.
pub const SLOT_BYTES: usize = 64;
/// Where in its slot the way to the original begins.
pub const ORIGINAL_OFFSET: usize = 16;
/// A near jump reaches 2 GiB; less what lies between the function's address and the last byte of slot and entry.
const REACH: usize = (1 << 31) - (1 << 16);
/// Tries when others take the pages that we found free.
const ROUNDS: usize = 3;

/// Space for one function's trampoline, in a page that is not sealed yet.
#[derive(Clone, Copy, Debug)]
pub struct Slot {
    page: usize,
    address: usize,
}

impl Slot {
    /// Its address.
    pub fn address(self) -> usize {
        self.address
    }
}

#[derive(Debug)]
struct Page {
    start: NonNull<u8>,
    used: usize,
    is_sealed: bool,
}

/// The pages of one process. They are never unmapped: a function that was patched stays patched.
#[derive(Debug)]
pub struct TrampolineArena {
    map: Option<MemoryMap>,
    page_bytes: usize,
    pages: Vec<Page>,
}

impl Default for TrampolineArena {
    fn default() -> Self {
        Self::new()
    }
}

impl TrampolineArena {
    /// An arena that goes by the process's own map.
    pub fn new() -> Self {
        Self { map: MemoryMap::of_this_process(), page_bytes: page_bytes(), pages: Vec::new() }
    }

    /// An arena that goes by this map until it proves wrong.
    pub fn with_map(map: MemoryMap) -> Self {
        Self { map: Some(map), page_bytes: page_bytes(), pages: Vec::new() }
    }

    /// The memory map as last read.
    pub fn map(&self) -> Result<&MemoryMap, Why> {
        self.map.as_ref().ok_or(Why::NoMemoryMap)
    }

    /// The addresses of its pages.
    pub fn pages(&self) -> impl Iterator<Item = usize> + '_ {
        self.pages.iter().map(|page| page.start.as_ptr() as usize)
    }

    /// A free slot within reach of `function`.
    pub fn slot_near(&mut self, function: usize) -> Result<Slot, Why> {
        let page_bytes = self.page_bytes;
        let fits = |page: &Page| {
            let start = page.start.as_ptr() as usize;
            !page.is_sealed && page.used + SLOT_BYTES <= page_bytes && start.abs_diff(function) <= REACH
        };
        let index = match self.pages.iter().position(fits) {
            Some(index) => index,
            None => self.map_page_near(function)?,
        };
        let page = self.pages.get_mut(index).ok_or(Why::NoPageInReach)?;
        let address = page.start.as_ptr() as usize + page.used;
        page.used += SLOT_BYTES;
        Ok(Slot { page: index, address })
    }

    /// Fills a slot. Nothing happens when its page is sealed.
    pub fn write(&mut self, slot: Slot, content: &[u8; SLOT_BYTES]) {
        let Some(page) = self.pages.get(slot.page).filter(|page| !page.is_sealed) else { return };
        let offset = slot.address - page.start.as_ptr() as usize;
        // SAFETY: `slot_near` gave out these bytes of a page that is ours, writable until sealed and never unmapped.
        unsafe { ptr::copy_nonoverlapping(content.as_ptr(), page.start.as_ptr().add(offset), SLOT_BYTES) };
    }

    /// Makes all open pages executable and no longer writable.
    pub fn seal(&mut self) -> Result<(), Why> {
        for page in self.pages.iter_mut().filter(|page| !page.is_sealed) {
            // SAFETY: a page of ours; nobody runs or writes in it now.
            let result = unsafe {
                libc::mprotect(page.start.as_ptr().cast(), self.page_bytes, libc::PROT_READ | libc::PROT_EXEC)
            };
            if result != 0 {
                return Err(Why::PageNotExecutable { errno: errno() });
            }
            page.is_sealed = true;
        }
        Ok(())
    }

    fn map_page_near(&mut self, function: usize) -> Result<usize, Why> {
        for _ in 0..ROUNDS {
            let candidates = self.map()?.free_pages(function, REACH, self.page_bytes);
            if let Some(start) = candidates.iter().find_map(|page| map_page_at(*page, self.page_bytes)) {
                self.pages.push(Page { start, used: 0, is_sealed: false });
                return Ok(self.pages.len() - 1);
            }
            if candidates.is_empty() {
                break;
            }
            // Another thread has mapped something there since, or the map was torn: look again.
            self.map = MemoryMap::of_this_process();
        }
        Err(Why::NoPageInReach)
    }
}

/// Maps a page at exactly this address, unless something is there.
fn map_page_at(address: usize, page_bytes: usize) -> Option<NonNull<u8>> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: MAP_FIXED_NOREPLACE replaces no mapping.
    let mapped = unsafe { libc::mmap(address as *mut _, page_bytes, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED {
        return None;
    }
    if mapped as usize != address {
        // A kernel before 4.17 takes the address as a wish.
        // SAFETY: the page that this function has just mapped.
        unsafe { libc::munmap(mapped, page_bytes) };
        return None;
    }
    NonNull::new(mapped.cast())
}

pub(super) fn page_bytes() -> usize {
    // SAFETY: sysconf reads a constant of the system.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

pub(super) fn errno() -> i32 {
    // SAFETY: errno of this thread.
    unsafe { *libc::__errno_location() }
}
