//! Pages for trampolines within 2 GiB of the functions they belong to, found in the gaps of the memory map on either
//! side: a crowded engine process had none below libcuda (engines-on-h200.md).

use core::ops::Range;
use core::ptr;

/// Room for one function: its trampoline and its relay.
pub const SLOT_BYTES: usize = 64;
const PAGE_BYTES: usize = 4096;
/// `jmp rel32` reaches 2 GiB; a page and a little less keeps every slot of a page within it.
const REACH_BYTES: usize = (1 << 31) - (1 << 20);
/// The kernel does not map below this address for ordinary processes.
const LOWEST: usize = 0x1_0000;
const HIGHEST: usize = 0x7fff_ffff_f000;

/// Address ranges that are in use, in order.
#[derive(Clone, Debug)]
pub struct MemoryMap(Vec<Range<usize>>);

impl MemoryMap {
    /// Of this process, as it is now.
    pub fn of_this_process() -> Self {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        Self::from_ranges(maps.lines().filter_map(parse_range).collect())
    }

    /// Of ranges in any order.
    pub fn from_ranges(mut used: Vec<Range<usize>>) -> Self {
        used.sort_by_key(|range| range.start);
        Self(used)
    }

    /// Free pages within reach of `target`, the nearest of each gap, nearest gap first.
    fn free_pages_near(&self, target: usize) -> Vec<usize> {
        let reach =
            target.saturating_sub(REACH_BYTES).max(LOWEST)..target.saturating_add(REACH_BYTES).min(HIGHEST);
        let ends = core::iter::once(0).chain(self.0.iter().map(|used| used.end));
        let starts = self.0.iter().map(|used| used.start).chain(core::iter::once(HIGHEST));
        let mut pages: Vec<usize> = ends
            .zip(starts)
            .filter_map(|(gap_start, gap_end)| {
                let first = gap_start.max(reach.start).next_multiple_of(PAGE_BYTES);
                let last = gap_end.min(reach.end).checked_sub(PAGE_BYTES)? & !(PAGE_BYTES - 1);
                (first <= last).then(|| target.clamp(first, last) & !(PAGE_BYTES - 1))
            })
            .collect();
        pages.sort_by_key(|page| page.abs_diff(target));
        pages
    }
}

fn parse_range(line: &str) -> Option<Range<usize>> {
    let (start, end) = line.split_whitespace().next()?.split_once('-')?;
    Some(usize::from_str_radix(start, 16).ok()?..usize::from_str_radix(end, 16).ok()?)
}

/// Hands out slots; pages stay for ever.
#[derive(Debug)]
pub struct TrampolineArena {
    map: MemoryMap,
    pages: Vec<Page>,
}

#[derive(Debug)]
struct Page {
    base: usize,
    used_bytes: usize,
    is_sealed: bool,
}

impl TrampolineArena {
    /// Without pages yet.
    pub fn new(map: MemoryMap) -> Self {
        Self { map, pages: Vec::new() }
    }

    /// A writable slot within reach of `target`; `None` when no page is free there.
    pub fn slot_near(&mut self, target: usize) -> Option<*mut u8> {
        let has_room = |page: &Page| {
            !page.is_sealed
                && page.base.abs_diff(target) < REACH_BYTES
                && page.used_bytes + SLOT_BYTES <= PAGE_BYTES
        };
        if !self.pages.iter().any(has_room) {
            let base = self.map.free_pages_near(target).into_iter().find(|page| map_page(*page))?;
            self.pages.push(Page { base, used_bytes: 0, is_sealed: false });
            self.map = MemoryMap::from_ranges({
                let mut used = self.map.0.clone();
                used.push(base..base + PAGE_BYTES);
                used
            });
        }
        let page = self.pages.iter_mut().find(|page| has_room(page))?;
        let slot = page.base + page.used_bytes;
        page.used_bytes += SLOT_BYTES;
        Some(slot as *mut u8)
    }

    /// Makes all pages executable and no longer writable; `false` when the kernel refuses.
    pub fn seal(&mut self) -> bool {
        self.pages.iter_mut().filter(|page| !page.is_sealed).all(|page| {
            page.is_sealed = true;
            let protection = libc::PROT_READ | libc::PROT_EXEC;
            // SAFETY: a page of ours that nothing runs in yet.
            unsafe { libc::mprotect(page.base as *mut libc::c_void, PAGE_BYTES, protection) == 0 }
        })
    }
}

fn map_page(base: usize) -> bool {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
    // SAFETY: a new mapping at an address that is free, or none: NOREPLACE never takes another's place.
    let page = unsafe {
        libc::mmap(base as *mut libc::c_void, PAGE_BYTES, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
    };
    if page == libc::MAP_FAILED {
        return false;
    }
    if page as usize != base {
        // A kernel older than 4.17 takes the address for a hint.
        // SAFETY: the page was just mapped and belongs to nobody.
        unsafe { libc::munmap(page, PAGE_BYTES) };
        return false;
    }
    // SAFETY: one writable page; int3 everywhere, so that a stray jump traps instead of sliding.
    unsafe { ptr::write_bytes(page.cast::<u8>(), 0xcc, PAGE_BYTES) };
    true
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init)] // A map with one range is meant.
mod tests {
    use super::*;

    /// Pages are sought on both sides, nearest first, and never inside something mapped.
    #[test]
    fn nearest_free_page_may_lie_on_either_side() {
        let target = 0x7000_0000_0000;
        let below_taken = MemoryMap::from_ranges(vec![LOWEST..target + 0x10_0000]);
        assert_eq!(below_taken.free_pages_near(target).first(), Some(&(target + 0x10_0000)));
        let above_taken = MemoryMap::from_ranges(vec![target - 0x3000..HIGHEST]);
        assert_eq!(above_taken.free_pages_near(target).first(), Some(&(target - 0x4000)));
    }

    /// A process without a gap within 2 GiB gets no page.
    #[test]
    fn crowded_process_has_no_page_within_reach() {
        let target = 0x7000_0000_0000;
        let map = MemoryMap::from_ranges(vec![target - (3 << 30)..target + (3 << 30)]);
        assert!(map.free_pages_near(target).is_empty());
        assert!(TrampolineArena::new(map).slot_near(target).is_none());
    }
}
