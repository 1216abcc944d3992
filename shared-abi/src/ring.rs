//! The ring: many producers, one consumer, fixed slots, drop-newest.
//!
//! ```text
//! slot (64 words)   0 sequence   1 kind | flags << 16 | payload words << 32   2 host_ns   3 check   4.. payload
//!
//! sequence of slot i at lap n (N slots, p = n*N + i):
//!   p        free: a producer that moves head from p to p+1 owns it
//!   p        being written (head > p)
//!   p + 1    published by CAS p -> p+1: the consumer may copy it out, then stores p + N
//!   p + N    free for the next lap; also after the consumer gave up on it by CAS p -> p+N
//! ```
//!
//! The bounded queue is D. Vyukov's MPMC queue with one consumer (1024cores.net), except that a slot is published by a
//! compare-and-swap, so that the consumer can skip one whose writer died or was stopped. A writer that comes too late
//! fails its CAS; had it scribbled on a slot that another writer owns by then, the checksum tells.
//!
//! Full means drop: nobody waits, nothing is overwritten, and the caller counts it.

use crate::segment::{LiveWord, Segment};
use crate::sync::{AtomicU64, Ordering};
use crate::words::{CHECK_SEED, for_each_word, mix};

/// Words of one slot.
pub const SLOT_WORDS: usize = crate::segment::SLOT_BYTES as usize / 8;
/// Words before the payload.
pub const SLOT_HEADER_WORDS: usize = 4;
/// Bytes of the largest payload.
pub const PAYLOAD_BYTES: usize = (SLOT_WORDS - SLOT_HEADER_WORDS) * 8;

/// Where the words of a ring live: a segment, or a model of one under loom.
pub trait RingStore {
    /// Number of slots, a power of two.
    fn slot_count(&self) -> u64;
    /// Next position that a producer reserves.
    fn head(&self) -> &AtomicU64;
    /// Next position that the consumer reads.
    fn tail(&self) -> &AtomicU64;
    /// Word `word` of the slot of position `position`.
    fn slot_word(&self, position: u64, word: usize) -> &AtomicU64;
}

impl RingStore for Segment {
    #[inline(always)]
    fn slot_count(&self) -> u64 {
        u64::from(self.identity().slot_count)
    }
    #[inline(always)]
    fn head(&self) -> &AtomicU64 {
        self.live(LiveWord::RingHead)
    }
    #[inline(always)]
    fn tail(&self) -> &AtomicU64 {
        self.live(LiveWord::RingTail)
    }
    #[inline(always)]
    fn slot_word(&self, position: u64, word: usize) -> &AtomicU64 {
        Segment::slot_word(self, position as u32, word)
    }
}

/// Why a record did not enter the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PushError {
    /// The consumer is a whole lap behind, or the slot's sequence is damaged.
    Full,
    /// The consumer gave up on the slot while it was being written.
    TooLate,
    /// More than [`PAYLOAD_BYTES`].
    TooLarge,
}

/// Writes one record: `parts` are concatenated and padded with zeros to a whole word.
///
/// Allocates: no. Locks: no. Waits: no; a producer that loses the race for a slot takes the next one.
#[inline]
pub fn push(store: &impl RingStore, kind: u16, host_ns: u64, parts: &[&[u8]]) -> Result<(), PushError> {
    if parts.iter().map(|part| part.len()).sum::<usize>() > PAYLOAD_BYTES {
        return Err(PushError::TooLarge);
    }
    let position = reserve(store)?;
    let mut check = mix(CHECK_SEED, host_ns);
    let payload_words = for_each_word(parts, |index, word| {
        check = mix(check, word);
        // Relaxed: published by the CAS below.
        store.slot_word(position, SLOT_HEADER_WORDS + index).store(word, Ordering::Relaxed);
    });
    let head_word = u64::from(kind) | (payload_words as u64) << 32;
    store.slot_word(position, 1).store(head_word, Ordering::Relaxed);
    store.slot_word(position, 2).store(host_ns, Ordering::Relaxed);
    store.slot_word(position, 3).store(mix(check, head_word), Ordering::Relaxed);
    // Release pairs with the Acquire load of the sequence in `pop`: the payload is visible before the slot is.
    store
        .slot_word(position, 0)
        .compare_exchange(position, position.wrapping_add(1), Ordering::Release, Ordering::Relaxed)
        .map(drop)
        .map_err(|_| PushError::TooLate)
}

#[inline]
fn reserve(store: &impl RingStore) -> Result<u64, PushError> {
    // Relaxed: the head only hands out positions; the slot's sequence carries the ordering.
    let mut position = store.head().load(Ordering::Relaxed);
    loop {
        // Acquire pairs with the consumer's Release in `pop`: its reads of the slot are done before we overwrite it.
        let sequence = store.slot_word(position, 0).load(Ordering::Acquire);
        match sequence.wrapping_sub(position) as i64 {
            0 => match store.head().compare_exchange_weak(
                position,
                position.wrapping_add(1),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Ok(position),
                Err(now) => position = now,
            },
            behind if behind < 0 => return Err(PushError::Full),
            _ => {
                let now = store.head().load(Ordering::Relaxed);
                // A sequence ahead of its position means that others used the slot, and the Acquire above makes the
                // head that they moved visible. A head that stands still was written by no producer: were we to
                // try again, a damaged segment would hang the engine.
                if now == position {
                    return Err(PushError::Full);
                }
                position = now;
            }
        }
    }
}

/// A record copied out of the ring.
#[derive(Clone, Debug)]
pub struct Record {
    /// Its position, which counts all records ever reserved.
    pub position: u64,
    /// Its kind, unchecked.
    pub kind: u16,
    /// CLOCK_MONOTONIC of the writer.
    pub host_ns: u64,
    words: [u64; SLOT_WORDS - SLOT_HEADER_WORDS],
    payload_words: usize,
}

impl Record {
    /// The payload, a multiple of eight bytes.
    pub fn payload(&self) -> &[u8] {
        zerocopy::IntoBytes::as_bytes(self.words.get(..self.payload_words).unwrap_or(&self.words))
    }
}

/// What the consumer found at its position.
#[derive(Clone, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "returned by value and looked at once; this crate has no allocator"
)]
pub enum Popped {
    /// A whole record.
    Record(Record),
    /// A published slot whose checksum or length is wrong; it was skipped.
    Torn {
        /// Its position.
        position: u64,
    },
    /// Nothing published here; `reserved` tells whether a producer owns the slot.
    Empty {
        /// A producer has reserved the slot and not yet published it.
        reserved: bool,
    },
}

/// The single consumer. Its position lives in the segment, so that a new collector goes on where the last one ended.
#[derive(Debug)]
pub struct Consumer<'a, Store: RingStore> {
    store: &'a Store,
    position: u64,
}

impl<'a, Store: RingStore> Consumer<'a, Store> {
    /// Starts at the stored tail; one that contradicts the head is clamped, never trusted.
    pub fn new(store: &'a Store) -> Self {
        let head = store.head().load(Ordering::Relaxed);
        let tail = store.tail().load(Ordering::Relaxed);
        let position = if tail <= head { tail.max(head.saturating_sub(store.slot_count())) } else { head };
        Self { store, position }
    }

    /// Copies out the next record, if it is published, and frees its slot.
    pub fn pop(&mut self) -> Popped {
        let position = self.position;
        // Acquire pairs with the Release CAS in `push`.
        let sequence = self.store.slot_word(position, 0).load(Ordering::Acquire);
        if sequence != position.wrapping_add(1) {
            let reserved = self.store.head().load(Ordering::Relaxed) > position;
            return Popped::Empty { reserved };
        }
        let record = self.copy_out(position);
        self.free(position);
        record.map_or(Popped::Torn { position }, Popped::Record)
    }

    /// Gives up on a reserved slot whose writer does not come back. `false` if it was published meanwhile, or if no
    /// producer has reserved it (a slot freed a lap early would stop every producer).
    pub fn skip(&mut self) -> bool {
        let position = self.position;
        if self.store.head().load(Ordering::Relaxed) <= position {
            return false;
        }
        let free = position.wrapping_add(self.store.slot_count());
        let sequence = self.store.slot_word(position, 0);
        // Release: as in `free`. A late writer's CAS position -> position+1 fails from here on.
        match sequence.compare_exchange(position, free, Ordering::Release, Ordering::Relaxed) {
            Err(current) if current == position.wrapping_add(1) => return false,
            // Skipped; or the slot is in a later lap already, because a collector died between freeing it and storing
            // its tail. It then belongs to that lap and is left alone.
            Ok(_) | Err(_) => {}
        }
        self.position = position.wrapping_add(1);
        self.store.tail().store(self.position, Ordering::Relaxed);
        true
    }

    fn copy_out(&self, position: u64) -> Option<Record> {
        let load = |word| self.store.slot_word(position, word).load(Ordering::Relaxed);
        let (head_word, host_ns, expected) = (load(1), load(2), load(3));
        let payload_words = (head_word >> 32) as usize;
        let mut words = [0u64; SLOT_WORDS - SLOT_HEADER_WORDS];
        let mut check = mix(CHECK_SEED, host_ns);
        for (index, word) in words.get_mut(..payload_words)?.iter_mut().enumerate() {
            *word = load(SLOT_HEADER_WORDS + index);
            check = mix(check, *word);
        }
        let whole = mix(check, head_word) == expected;
        whole.then_some(Record { position, kind: head_word as u16, host_ns, words, payload_words })
    }

    fn free(&mut self, position: u64) {
        // Release pairs with the Acquire in `reserve`: our reads are done before a producer overwrites the slot.
        self.store
            .slot_word(position, 0)
            .store(position.wrapping_add(self.store.slot_count()), Ordering::Release);
        self.position = position.wrapping_add(1);
        // Relaxed: only a later collector reads it, after the socket has told it of our end.
        self.store.tail().store(self.position, Ordering::Relaxed);
    }
}
