//! Driver handles to ids: a fixed open-addressing table, written under its owner's lock, read without one.
//!
//! A removed entry leaves a tombstone that the next insertion near it takes: handles are addresses, which the driver
//! reuses, so a program that captures for ever does not fill the table.

use shared_abi::sync::{AtomicU32, AtomicU64, Ordering};

const SLOTS: usize = 32 * 1024;
/// An entry lies at most this far from its place; beyond it the table counts as full.
const MAX_PROBES: usize = 64;
const EMPTY: u64 = 0;
const TOMBSTONE: u64 = 1;

#[derive(Debug)]
struct Entry {
    handle: AtomicU64,
    id: AtomicU32,
}

/// Handles to ids.
#[derive(Debug)]
pub struct HandleMap(Box<[Entry]>);

impl HandleMap {
    /// Empty; 512 KiB, of which untouched pages cost nothing.
    pub fn new() -> Self {
        Self((0..SLOTS).map(|_| Entry { handle: AtomicU64::new(EMPTY), id: AtomicU32::new(0) }).collect())
    }

    /// The id of a handle; zero when there is none.
    pub fn get(&self, handle: usize) -> u32 {
        for entry in self.probes(handle) {
            // Acquire pairs with the Release in `insert`: the id is visible before the handle is.
            match entry.handle.load(Ordering::Acquire) {
                EMPTY => return 0,
                found if found == handle as u64 => return entry.id.load(Ordering::Relaxed),
                _ => {}
            }
        }
        0
    }

    /// Sets the id of a handle; `false` when there is no room. Callers hold their owner's lock.
    pub fn insert(&self, handle: usize, id: u32) -> bool {
        if handle as u64 <= TOMBSTONE {
            return true;
        }
        let mut free: Option<&Entry> = None;
        for entry in self.probes(handle) {
            match entry.handle.load(Ordering::Relaxed) {
                found if found == handle as u64 => {
                    entry.id.store(id, Ordering::Relaxed);
                    return true;
                }
                EMPTY => {
                    free = free.or(Some(entry));
                    break;
                }
                TOMBSTONE => free = free.or(Some(entry)),
                _ => {}
            }
        }
        let Some(entry) = free else { return false };
        entry.id.store(id, Ordering::Relaxed);
        entry.handle.store(handle as u64, Ordering::Release);
        true
    }

    /// Forgets a handle. Callers hold their owner's lock.
    pub fn remove(&self, handle: usize) {
        for entry in self.probes(handle) {
            match entry.handle.load(Ordering::Relaxed) {
                EMPTY => return,
                found if found == handle as u64 => {
                    entry.handle.store(TOMBSTONE, Ordering::Release);
                    return;
                }
                _ => {}
            }
        }
    }

    fn probes(&self, handle: usize) -> impl Iterator<Item = &Entry> {
        let start = (handle as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        (0..MAX_PROBES).filter_map(move |step| self.0.get((start as usize + step) % SLOTS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Handles that come and go for ever find room and keep their ids apart.
    #[test]
    fn churning_handles_never_fill_the_table() {
        let map = HandleMap::new();
        for round in 0..200_000usize {
            let handle = 0x7f00_0000_0000 + (round % 5000) * 64;
            assert!(map.insert(handle, round as u32 + 1));
            assert_eq!(map.get(handle), round as u32 + 1);
            if round >= 100 {
                map.remove(0x7f00_0000_0000 + ((round - 100) % 5000) * 64);
            }
        }
    }

    /// More handles than fit are refused, not mixed up.
    #[test]
    fn full_table_refuses_new_handles() {
        let map = HandleMap::new();
        let kept: Vec<usize> =
            (0..SLOTS * 2).map(|n| 4096 + n * 16).filter(|h| map.insert(*h, *h as u32)).collect();
        assert!(kept.len() <= SLOTS && kept.len() > SLOTS / 2);
        assert!(kept.iter().all(|handle| map.get(*handle) == *handle as u32));
    }
}
