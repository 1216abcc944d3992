//! The process's memory map: what lies where, with which protection, and which pages are free.
//!
//! Allocates: yes. Locks: no. Syscalls: reads /proc/self/maps. Cost: a few ms in a large process; used while arming only.

/// One line of the map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: usize,
    /// First address behind it.
    pub end: usize,
    /// PROT_ bits.
    pub protection: i32,
    /// Whether what is written to it stays in this process.
    pub is_private: bool,
    /// Where the kernel lets it grow.
    pub growth: Growth,
}

/// Whether a region grows into the free pages next to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// It does not.
    None,
    /// The heap.
    Up,
    /// The main thread's stack.
    Down,
}

/// The map, in order of addresses.
#[derive(Clone, Debug, Default)]
pub struct MemoryMap {
    regions: Vec<Region>,
}

impl MemoryMap {
    /// The map of this process, now. None when it cannot be read.
    pub fn of_this_process() -> Option<Self> {
        Self::parse(&std::fs::read("/proc/self/maps").ok()?)
    }

    /// Reads the text of a map. None when a line is not understood: half a map is worse than none.
    pub fn parse(text: &[u8]) -> Option<Self> {
        let mut regions = Vec::new();
        for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            regions.push(parse_line(line)?);
        }
        // The kernel writes them in order; a map read while others change it may repeat a line.
        regions.sort_by_key(|region: &Region| region.start);
        Some(Self { regions })
    }

    /// The region that an address lies in.
    pub fn region_of(&self, address: usize) -> Option<Region> {
        self.regions.iter().copied().find(|region| (region.start..region.end).contains(&address))
    }

    /// Free pages whose distance from `near` is at most `reach`: the nearest of each gap, nearest first.
    pub fn free_pages(&self, near: usize, reach: usize, page_bytes: usize) -> Vec<usize> {
        let mut pages = Vec::new();
        let mut gap_start = LOWEST_MAPPABLE;
        let top =
            Region { start: USER_TOP, end: USER_TOP, protection: 0, is_private: true, growth: Growth::None };
        for region in self.regions.iter().copied().chain([top]) {
            let headroom = if region.growth == Growth::Down { HEADROOM } else { 0 };
            let gap_end = region.start.min(USER_TOP).saturating_sub(headroom);
            pages.extend(nearest_page(gap_start, gap_end, near, page_bytes));
            let headroom = if region.growth == Growth::Up { HEADROOM } else { 0 };
            gap_start = gap_start.max(region.end.saturating_add(headroom));
        }
        pages.retain(|page| page.abs_diff(near) <= reach);
        pages.sort_by_key(|page| page.abs_diff(near));
        pages
    }
}

/// Below it the kernel maps nothing (vm.mmap_min_addr is 64 KiB by default).
const LOWEST_MAPPABLE: usize = 0x1_0000;
/// Above it is the kernel's half, by the layout that every x86-64 and aarch64 process gets unless it asks for more.
const USER_TOP: usize = 0x7fff_ffff_0000;

/// So much is left free where heap and stack grow. In a small process the gap between heap and libraries is the only one.
const HEADROOM: usize = 256 << 20;

/// The page in `start..end` that is nearest to `near`.
fn nearest_page(start: usize, end: usize, near: usize, page_bytes: usize) -> Option<usize> {
    let first = start.checked_next_multiple_of(page_bytes)?;
    let last = end.checked_sub(page_bytes)? & !(page_bytes - 1);
    (first <= last).then(|| (near & !(page_bytes - 1)).clamp(first, last))
}

/// `start-end rwxp offset device inode path`
fn parse_line(line: &[u8]) -> Option<Region> {
    let mut fields = line.split(|byte| *byte == b' ').filter(|field| !field.is_empty());
    let (range, flags) = (fields.next()?, fields.next()?);
    let mut bounds = range.split(|byte| *byte == b'-');
    let (start, end) = (parse_hex(bounds.next()?)?, parse_hex(bounds.next()?)?);
    let flag = |index: usize, letter: u8, bit: i32| if flags.get(index) == Some(&letter) { bit } else { 0 };
    let path = fields.nth(3).unwrap_or_default();
    (start <= end && flags.len() >= 4).then_some(Region {
        start,
        end,
        protection: flag(0, b'r', libc::PROT_READ)
            | flag(1, b'w', libc::PROT_WRITE)
            | flag(2, b'x', libc::PROT_EXEC),
        is_private: flags.get(3) == Some(&b'p'),
        growth: match path {
            b"[heap]" => Growth::Up,
            b"[stack]" => Growth::Down,
            _ => Growth::None,
        },
    })
}

fn parse_hex(digits: &[u8]) -> Option<usize> {
    usize::from_str_radix(core::str::from_utf8(digits).ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAP: &[u8] = b"\
00400000-00401000 r-xp 00000000 08:01 1 /usr/bin/python with spaces (deleted)
00401000-00402000 rw-p 00000000 00:00 0 [heap]
7f0000000000-7f0000002000 r-xp 00000000 08:01 2                          /usr/lib/libcuda.so.1
7f0000004000-7f0000005000 rw-s 00000000 08:01 2
7ffffffde000-7fffffff0000 rw-p 00000000 00:00 0                          [stack]
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0                  [vsyscall]
";

    /// Every line is read: protection, sharing, names with spaces, the line above the user's half.
    #[test]
    fn map_is_read_line_by_line() {
        let map = MemoryMap::parse(MAP).unwrap();
        let code = map.region_of(0x7f00_0000_1fff).unwrap();
        assert_eq!(code.protection, libc::PROT_READ | libc::PROT_EXEC);
        assert!(code.is_private && code.growth == Growth::None);
        assert!(!map.region_of(0x7f00_0000_4000).unwrap().is_private);
        assert!(map.region_of(0x7f00_0000_2000).is_none());
        assert!(MemoryMap::parse(b"not a map\n").is_none());
    }

    /// Free pages come nearest first, from both sides, and leave room for what grows.
    #[test]
    fn free_pages_come_nearest_first_from_both_sides() {
        let map = MemoryMap::parse(MAP).unwrap();
        let pages = map.free_pages(0x7f00_0000_0800, 1 << 31, 4096);
        assert_eq!(pages, [0x7eff_ffff_f000, 0x7f00_0000_2000, 0x7f00_0000_5000]);
        assert_eq!(map.free_pages(0x40_0800, 1 << 31, 4096), [0x3f_f000, 0x40_2000 + HEADROOM]);
        let below_stack = map.free_pages(0x7fff_fffe_0000, 1 << 31, 4096);
        assert_eq!(below_stack, [0x7fff_fffd_e000 - HEADROOM - 4096]);
    }

    /// The map of this very process is understood and knows where this test lies.
    #[test]
    fn own_map_is_understood() {
        let here = own_map_is_understood as fn() as usize;
        let region = MemoryMap::of_this_process().unwrap().region_of(here).unwrap();
        assert!(region.protection & libc::PROT_EXEC != 0);
    }
}
