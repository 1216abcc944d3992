//! Counters of a process at one moment, and what this side counts.

use shared_abi::counters::{Counter, HOOK_HITS_CAPACITY, HOOK_HITS_INDEX, LaneCounter};
use shared_abi::segment::Segment;
use shared_abi::sync::Ordering;

/// Counters of which one is not zero in every lane that a thread has used.
const USED_LANE: [LaneCounter; 4] = [
    LaneCounter::KernelLaunches,
    LaneCounter::GraphLaunches,
    LaneCounter::MemoryOperations,
    LaneCounter::CapturedOperations,
];

/// The process's own counters, as last read. A killed process keeps its last values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EngineCounts {
    process: Vec<u64>,
    lanes: Vec<u64>,
    hook_hits: Vec<u64>,
}

impl Default for EngineCounts {
    fn default() -> Self {
        Self {
            process: vec![0; Counter::ALL.len()],
            lanes: vec![0; LaneCounter::ALL.len()],
            hook_hits: vec![0; HOOK_HITS_CAPACITY],
        }
    }
}

impl EngineCounts {
    /// Reads all counters; lanes are summed.
    pub fn read(segment: &Segment) -> Self {
        // Relaxed: counters only grow and order nothing.
        let process =
            (0..Counter::ALL.len()).map(|index| segment.counter(index).load(Ordering::Relaxed)).collect();
        let mut lanes = vec![0u64; LaneCounter::ALL.len()];
        let mut hook_hits = vec![0u64; HOOK_HITS_CAPACITY];
        for lane in 0..segment.identity().lane_count {
            let load = |index: usize| segment.lane_counter(lane, index).load(Ordering::Relaxed);
            // Most lanes have never had a thread: they are not looked at any further.
            if USED_LANE.iter().all(|counter| load(*counter as usize) == 0) {
                continue;
            }
            for (index, sum) in lanes.iter_mut().enumerate() {
                *sum = sum.saturating_add(load(index));
            }
            for (hook, sum) in hook_hits.iter_mut().enumerate() {
                *sum = sum.saturating_add(load(HOOK_HITS_INDEX + hook));
            }
        }
        Self { process, lanes, hook_hits }
    }

    /// One counter of the process.
    pub fn process(&self, counter: Counter) -> u64 {
        self.process.get(counter as usize).copied().unwrap_or(0)
    }

    /// One counter summed over all threads.
    pub fn lanes(&self, counter: LaneCounter) -> u64 {
        self.lanes.get(counter as usize).copied().unwrap_or(0)
    }

    /// Calls of the function of this hook, over all threads.
    pub fn hook_hits(&self, hook: u32) -> u64 {
        self.hook_hits.get(hook as usize).copied().unwrap_or(0)
    }

    /// What was added since `earlier`. Maxima are kept as they are.
    pub fn since(&self, earlier: &Self) -> Self {
        let difference = |now: &[u64], then: &[u64]| -> Vec<u64> {
            now.iter().zip(then).map(|(now, then)| now.saturating_sub(*then)).collect()
        };
        let mut process = difference(&self.process, &earlier.process);
        process[Counter::GateClosedMaxNs as usize] = self.process(Counter::GateClosedMaxNs);
        Self {
            process,
            lanes: difference(&self.lanes, &earlier.lanes),
            hook_hits: difference(&self.hook_hits, &earlier.hook_hits),
        }
    }

    /// Adds another process's counters. Maxima stay maxima.
    pub fn add(&mut self, other: &Self) {
        let longest = self.process(Counter::GateClosedMaxNs).max(other.process(Counter::GateClosedMaxNs));
        for (sum, value) in self.process.iter_mut().zip(&other.process) {
            *sum = sum.saturating_add(*value);
        }
        for (sum, value) in self.lanes.iter_mut().zip(&other.lanes) {
            *sum = sum.saturating_add(*value);
        }
        for (sum, value) in self.hook_hits.iter_mut().zip(&other.hook_hits) {
            *sum = sum.saturating_add(*value);
        }
        self.process[Counter::GateClosedMaxNs as usize] = longest;
    }
}

macro_rules! own_counts {
    ($($(#[$doc:meta])* $field:ident: $text:literal, $loss:ident;)*) => {
        /// What the collector counts for one process.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct OwnCounts { $($(#[$doc])* pub $field: u64,)* }

        impl OwnCounts {
            /// Name, words, value and whether it is a loss, for the ledger.
            pub fn lines(&self) -> Vec<(&'static str, &'static str, u64, bool)> {
                vec![$((stringify!($field), $text, self.$field, own_counts!(@ $loss)),)*]
            }
            /// Adds another process's counts.
            pub fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.saturating_add(other.$field);)*
            }
        }
    };
    (@ loss) => { true };
    (@ info) => { false };
}

own_counts! {
    /// Records that the drain copied out.
    records_drained: "records read from the rings", info;
    /// Launch samples among them.
    launch_samples: "launch samples received", info;
    /// Activities among them.
    activities: "GPU activities that reached the collector", info;
    /// Activities joined to their launch.
    joined: "GPU activities joined to their launch", info;
    /// Activities whose launch was not found.
    orphaned: "GPU activities without a launch (orphans)", loss;
    /// Activities with impossible times.
    invalid_time: "GPU activities with impossible times, found by the collector", loss;
    /// Graph activities that carry the stack of their capture.
    captured: "graph activities with the stack that captured them", info;
    /// Graph activities of nodes without a stack.
    capture_unknown: "graph activities whose capture was not seen", loss;
    /// Graph activities whose kernel is not the node's.
    name_mismatch: "graph activities whose node has another kernel name (node name mismatch)", loss;
    /// Published slots whose checksum is wrong.
    torn: "torn ring records", loss;
    /// Reserved slots that were never published.
    never_published: "ring slots reserved and never written", loss;
    /// Records of kinds or sizes that this version does not read.
    invalid_records: "ring records that make no sense", loss;
    /// Sampled launches whose probability is not in (0, 1].
    invalid_probability: "launch samples with an impossible probability", loss;
    /// Definitions whose checksum is wrong.
    definitions_torn: "torn definitions", loss;
    /// Definitions that contradict themselves or of unknown kind.
    definitions_invalid: "definitions that make no sense", loss;
    /// Definitions beyond the memory budget.
    definitions_over_budget: "definitions beyond the collector's memory budget", loss;
    /// Bytes of the dictionary that could not be read at the end.
    dictionary_unread_bytes: "bytes of definitions that were never completed", loss;
    /// Launches evicted before their activities came.
    launches_evicted: "launches forgotten before their activities came", loss;
    /// Samples that found no row of their own.
    rows_folded: "samples folded into one bucket because there were too many distinct stacks", loss;
    /// File descriptors of images that were not kept.
    images_not_kept: "image files beyond the collector's limit", loss;
}
