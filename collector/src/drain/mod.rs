//! In:         a process's segment: ring, dictionary, counters, status word
//! Out:        `RawSample`s, checked, and the process's `Definitions`
//! Drops when: a record or definition is torn, makes no sense, or its writer never came back; each is counted
//! Runs on:    the collector's main thread, every 5 to 20 ms per process

pub mod handover; // the socket: who connects, and the memory file that they hand over
pub mod message; // datagrams with file descriptors in and out
pub mod mapping; // a memory file that is safe to read
pub mod decode; // from payload bytes to checked records
mod fuzz; // random bytes through all of the above

pub use fuzz::{Fuzzed, fuzz_entry};

use crate::model::counts::{EngineCounts, OwnCounts};
use crate::model::definitions::{Defined, Definitions};
use crate::model::sample::RawSample;
use mapping::Mapping;
use shared_abi::dictionary::{Read, Reader};
use shared_abi::ring::{Consumer, Popped};
use shared_abi::segment::{LiveWord, Segment};
use shared_abi::sync::Ordering;
use zerocopy::IntoBytes;

/// A slot that stays reserved for this long belongs to a dead or stopped writer.
const STUCK_SLOT_NS: u64 = 1_000_000_000;
/// Words that are kept of one definition (8 MiB: a graph of a million nodes). What is longer is cut, and so invalid.
const MAX_DEFINITION_WORDS: usize = 1 << 20;
/// Records that are read in one pass (two laps of the default ring): the caller may hold their samples in memory.
const MAX_RECORDS_PER_PASS: usize = 32_768;
/// Definitions that are read in one pass; more are read in the next.
const DEFINITIONS_PER_PASS: usize = 65_536;

/// Whether the process can still write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// It runs: what is not yet published may be soon.
    Alive,
    /// It has ended: what is not published is lost.
    Ended,
}

/// What one pass found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// Records or definitions.
    Busy,
    /// Nothing.
    Idle,
}

/// Reads one process's segment.
#[derive(Debug)]
pub struct ProcessDrain {
    segment: Segment,
    _mapping: Mapping,
    reader: Reader,
    dictionary_broken: bool,
    stuck: Option<StuckSlot>,
    words: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
struct StuckSlot {
    position: u64,
    since_ns: u64,
}

impl ProcessDrain {
    /// Starts on an opened segment; `mapping` keeps its memory.
    pub fn new(segment: Segment, mapping: Mapping) -> Self {
        Self {
            segment,
            _mapping: mapping,
            reader: Reader::default(),
            dictionary_broken: false,
            stuck: None,
            words: Vec::new(),
        }
    }

    /// The segment's identity, as read once when it was opened.
    pub fn identity(&self) -> &shared_abi::segment::Identity {
        self.segment.identity()
    }

    /// Whether another collector has taken records out of the ring already.
    pub fn was_read_before(&self) -> bool {
        self.segment.live(LiveWord::RingTail).load(Ordering::Relaxed) > 0
    }

    /// The process's counters now.
    pub fn engine_counts(&self) -> EngineCounts {
        EngineCounts::read(&self.segment)
    }

    /// Bit `n` is set while status `n` holds.
    pub fn status_bits(&self) -> u64 {
        self.segment.live(LiveWord::StatusBits).load(Ordering::Relaxed)
    }

    /// Copies out everything that is published and hands it to `sink`, definitions first and last: a record's
    /// definitions are published before the record, except those that were dropped.
    pub fn pass(
        &mut self,
        now_ns: u64,
        writer: Writer,
        definitions: &mut Definitions,
        counts: &mut OwnCounts,
        sink: &mut dyn FnMut(RawSample),
    ) -> Pass {
        // Relaxed: a life sign, which orders nothing.
        self.segment.live(LiveWord::CollectorHeartbeatNs).store(now_ns, Ordering::Relaxed);
        let before = self.read_dictionary(definitions, counts);
        let records = self.read_ring(now_ns, writer, counts, sink);
        let after = self.read_dictionary(definitions, counts);
        if writer == Writer::Ended {
            while self.read_dictionary(definitions, counts) > 0 {}
            let limit = self.segment.identity().dictionary_bytes;
            counts.dictionary_unread_bytes = self.reader.unread_bytes(&self.segment).min(limit);
        }
        if before + records + after > 0 { Pass::Busy } else { Pass::Idle }
    }

    fn read_dictionary(&mut self, definitions: &mut Definitions, counts: &mut OwnCounts) -> usize {
        for read in 0..DEFINITIONS_PER_PASS {
            if self.dictionary_broken {
                return read;
            }
            self.words.clear();
            let words = &mut self.words;
            let append = |word| {
                if words.len() < MAX_DEFINITION_WORDS {
                    words.push(word);
                }
            };
            match self.reader.next(&self.segment, append) {
                Read::Definition(definition) => {
                    match definitions.apply(definition.kind, definition.id, self.words.as_bytes()) {
                        Defined::Kept => {}
                        Defined::Invalid | Defined::UnknownKind => counts.definitions_invalid += 1,
                        Defined::OverBudget => counts.definitions_over_budget += 1,
                    }
                }
                Read::Torn => counts.definitions_torn += 1,
                Read::End => return read,
                Read::Broken { .. } => {
                    self.dictionary_broken = true;
                    counts.definitions_invalid += 1;
                }
            }
        }
        DEFINITIONS_PER_PASS
    }

    /// One pass ends after two laps at most, so that a fast writer does not keep the others waiting.
    fn read_ring(
        &mut self,
        now_ns: u64,
        writer: Writer,
        counts: &mut OwnCounts,
        sink: &mut dyn FnMut(RawSample),
    ) -> usize {
        let segment = self.segment;
        let mut consumer = Consumer::new(&segment);
        let limit = (segment.identity().slot_count as usize * 2).min(MAX_RECORDS_PER_PASS);
        for read in 0..limit {
            match consumer.pop() {
                Popped::Record(record) => {
                    counts.records_drained += 1;
                    decode::decode(&record, counts, sink);
                }
                Popped::Torn { .. } => counts.torn += 1,
                Popped::Empty { reserved: false } => {
                    self.stuck = None;
                    return read;
                }
                Popped::Empty { reserved: true } => {
                    if !self.give_up_on_slot(now_ns, writer) {
                        return read;
                    }
                    if consumer.skip() {
                        counts.never_published += 1;
                    }
                }
            }
        }
        limit
    }

    fn give_up_on_slot(&mut self, now_ns: u64, writer: Writer) -> bool {
        // Relaxed: our own consumer wrote it last; a hostile writer only harms its own records.
        let position = self.segment.live(LiveWord::RingTail).load(Ordering::Relaxed);
        let stuck = self.stuck.filter(|stuck| stuck.position == position);
        let since_ns = stuck.map_or(now_ns, |stuck| stuck.since_ns);
        self.stuck = Some(StuckSlot { position, since_ns });
        writer == Writer::Ended || now_ns.saturating_sub(since_ns) >= STUCK_SLOT_NS
    }
}
