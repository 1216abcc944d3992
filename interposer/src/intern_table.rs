//! A fixed, lock-free table from a 64-bit hash to an id, for things that are defined once in the dictionary.
//!
//! One 64-bit word a slot: the upper 44 bits of the hash over 20 bits of id; zero is free. The id is made and its
//! definition written *before* the slot is filled by one compare-and-swap, so no slot is ever half done: a thread
//! that dies or a process that forks in between leaves nothing behind, and nobody waits for anybody. Two threads that meet the
//! same new thing at once both define it; one id wins the slot and both return it (the loser's definition stays
//! in the dictionary, unused). Nothing is ever removed.
//!
//! A wrong id needs two hashes that agree in 44 bits and lie in the same 64 slots of each other: about 1e-8 for a
//! full table of 65,536.
//!
//! Allocates: in `new` only. Locks: no. Syscalls: no. Cost: 1 to 2 ns when the slot is in cache.

use shared_abi::sync::{AtomicU32, AtomicU64, Ordering};

const ID_BITS: u32 = 20;
const ID_MASK: u64 = (1 << ID_BITS) - 1;
/// Slots that one look-up visits at most. With linear probing a table is 90 % full before runs get this long.
const MAX_PROBES: usize = 64;

/// The table.
#[derive(Debug)]
pub struct InternTable {
    slots: Box<[AtomicU64]>,
    next_id: AtomicU32,
}

/// Result of [`InternTable::find`].
#[derive(Debug)]
pub enum Search {
    /// It has this id.
    Known(u32),
    /// It is not there, and would go here.
    Vacant(Vacancy),
    /// It is not there, and there is no room for it.
    Full,
}

/// A place for a hash that was not found.
#[derive(Debug)]
pub struct Vacancy {
    hash: u64,
    probe: usize,
}

impl InternTable {
    /// A table of `slots` slots (rounded up to a power of two), every page of it touched, so that the launch path
    /// meets no page fault.
    pub fn new(slots: usize) -> Self {
        let slots = slots.next_power_of_two();
        Self { slots: (0..slots).map(|_| AtomicU64::new(0)).collect(), next_id: AtomicU32::new(1) }
    }

    /// Looks a hash up.
    #[inline]
    pub fn find(&self, hash: u64) -> Search {
        self.probe(hash, 0)
    }

    /// Makes an id, has it defined and puts it into the table. `Ok(None)`: the ids are used up.
    pub fn fill<E>(
        &self,
        vacancy: Vacancy,
        define: impl FnOnce(u32) -> Result<(), E>,
    ) -> Result<Option<u32>, E> {
        let Some(id) = self.make_id() else { return Ok(None) };
        define(id)?;
        Ok(Some(self.publish(vacancy, id)))
    }

    fn make_id(&self) -> Option<u32> {
        // Relaxed: the counter only hands out numbers. It stops short of the mask instead of wrapping.
        self.next_id
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |id| {
                (u64::from(id) < ID_MASK).then_some(id + 1)
            })
            .ok()
    }

    fn publish(&self, mut vacancy: Vacancy, id: u32) -> u32 {
        let word = tag(vacancy.hash) | u64::from(id);
        loop {
            let Some(slot) = self.slot(vacancy.hash, vacancy.probe) else { return id };
            // Release pairs with the Acquire in `probe`: whoever sees the id also sees its definition published,
            // and so does the collector when it sees that thread's record. Failure needs nothing: `probe` reads again.
            match slot.compare_exchange(0, word, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return id,
                Err(_) => match self.probe(vacancy.hash, vacancy.probe) {
                    Search::Known(winner) => return winner,
                    Search::Vacant(next) => vacancy = next,
                    // Ours is defined and good, only nobody will find it again.
                    Search::Full => return id,
                },
            }
        }
    }

    #[inline]
    fn probe(&self, hash: u64, from: usize) -> Search {
        for probe in from..MAX_PROBES {
            let Some(slot) = self.slot(hash, probe) else { return Search::Full };
            // Acquire pairs with the Release in `publish`.
            let word = slot.load(Ordering::Acquire);
            if word == 0 {
                return Search::Vacant(Vacancy { hash, probe });
            }
            if word & !ID_MASK == tag(hash) {
                return Search::Known((word & ID_MASK) as u32);
            }
        }
        Search::Full
    }

    /// The home slot comes from the low bits, which are not part of the tag.
    #[inline(always)]
    fn slot(&self, hash: u64, probe: usize) -> Option<&AtomicU64> {
        self.slots.get((hash as usize).wrapping_add(probe) & (self.slots.len() - 1))
    }
}

#[inline(always)]
fn tag(hash: u64) -> u64 {
    hash & !ID_MASK
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::convert::Infallible;

    fn intern(table: &InternTable, hash: u64) -> Option<u32> {
        match table.find(hash) {
            Search::Known(id) => Some(id),
            Search::Vacant(vacancy) => match table.fill(vacancy, |_| Ok::<(), Infallible>(())) {
                Ok(id) => id,
                Err(never) => match never {},
            },
            Search::Full => None,
        }
    }

    /// Check that each hash keeps its own id.
    #[test]
    fn same_hash_keeps_its_id() {
        let table = InternTable::new(1024);
        let hash = |i: u64| crate::fold::Fold::new(1).word(i).finish();
        let first: Vec<_> = (0..500).map(|i| intern(&table, hash(i)).unwrap()).collect();
        let second: Vec<_> = (0..500).map(|i| intern(&table, hash(i)).unwrap()).collect();
        assert_eq!(first, second);
        let distinct: std::collections::HashSet<_> = first.iter().collect();
        assert_eq!(distinct.len(), 500);
    }

    /// Check that a full table says so, and still finds what it holds.
    #[test]
    fn full_table_refuses_and_keeps() {
        let table = InternTable::new(64);
        let hash = |i: u64| crate::fold::Fold::new(1).word(i).finish();
        let kept: Vec<_> = (0..64).map(|i| intern(&table, hash(i)).unwrap()).collect();
        assert!(intern(&table, hash(64)).is_none());
        let again: Vec<_> = (0..64).map(|i| intern(&table, hash(i)).unwrap()).collect();
        assert_eq!(kept, again);
    }

    /// Check that a definition that fails leaves the slot free.
    #[test]
    fn failed_definition_leaves_no_trace() {
        let table = InternTable::new(64);
        let Search::Vacant(vacancy) = table.find(7 << 40) else { panic!("fresh table") };
        assert_eq!(table.fill(vacancy, |_| Err("full")), Err("full"));
        assert!(matches!(table.find(7 << 40), Search::Vacant(_)));
    }

    /// Check that threads that intern the same hashes at once agree on every id.
    #[test]
    fn racing_threads_agree() {
        let table = InternTable::new(16_384);
        let run = || {
            (0..8_000u64)
                .map(|i| intern(&table, crate::fold::Fold::new(3).word(i).finish()).unwrap())
                .collect::<Vec<_>>()
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(results.windows(2).all(|pair| pair[0] == pair[1]));
        let distinct: std::collections::HashSet<_> = results[0].iter().collect();
        assert_eq!(distinct.len(), 8_000);
    }
}
