//! In:         `CorrelatedSample`s of one process
//! Out:        rows: sums per (launch stack, graph, capture stack, kernel, device), all still ids; later the `Profile`
//! Drops when: there are too many distinct rows; the rest is folded into one named row, counted
//! Runs on:    the collector's main thread; the profile is built where it is written

pub mod profile; // what the files, the page and the summary show
pub mod weights; // from recorded to estimated GPU time
pub mod build; // from rows and symbols to the profile
pub mod ledger; // what was seen, sampled, joined and lost, in words

use crate::model::counts::OwnCounts;
use crate::model::definitions::{Definitions, Graph};
use crate::model::sample::{CorrelatedSample, LaunchOrigin, RawActivity};
use shared_abi::record::ActivityKind;
use std::collections::HashMap;

/// Rows of one process. A decode loop of 930 graph nodes and 40 eager launches has about 2,000.
pub const MAX_ROWS: usize = 1 << 17;

/// What ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Nothing that was recorded: the launch was only counted.
    Counted,
    /// A kernel, by the dictionary id of its name.
    Kernel {
        /// Dictionary id.
        name_id: u32,
    },
    /// A copy, by CUpti_ActivityMemcpyKind.
    Memcpy {
        /// CUpti_ActivityMemcpyKind.
        direction: u32,
    },
    /// A memset.
    Memset,
    /// Too many distinct rows.
    Folded,
}

/// Which code captured it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Capture {
    /// It was launched by itself.
    NotReplayed,
    /// The stack with this dictionary id.
    Stack(u32),
    /// The node has no stack, or its graph is not known.
    Unknown,
    /// The node's kernel has another name.
    NameMismatch,
    /// The graph's definition had not come yet.
    Open {
        /// Position in the graph.
        node: u32,
    },
}

/// What is added up separately.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowKey {
    /// Who launched; `None` for orphans.
    pub origin: Option<LaunchOrigin>,
    /// Which code captured it.
    pub capture: Capture,
    /// What ran.
    pub work: Work,
    /// Device ordinal; `None` for launches that were only counted.
    pub device: Option<u32>,
}

/// Sums of one row.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sums {
    /// Recorded GPU time in nanoseconds.
    pub recorded_ns: u64,
    /// Recorded activities.
    pub recorded_count: u64,
    /// Estimated launches.
    pub launches: f64,
}

/// Rows of one process.
pub type Rows = HashMap<RowKey, Sums>;

/// Adds up the samples of one process.
#[derive(Debug, Default)]
pub struct Aggregator {
    rows: Rows,
}

impl Aggregator {
    /// Adds one sample.
    pub fn add(&mut self, sample: &CorrelatedSample, definitions: &Definitions, counts: &mut OwnCounts) {
        match sample {
            CorrelatedSample::Launched { origin, weight } => {
                let key = RowKey {
                    origin: Some(*origin),
                    capture: Capture::NotReplayed,
                    work: Work::Counted,
                    device: None,
                };
                self.row(key, counts).launches += weight;
            }
            CorrelatedSample::Ran { activity, origin } => {
                let capture = capture_of(activity, origin.as_ref(), definitions);
                let key = RowKey {
                    origin: *origin,
                    capture,
                    work: work_of(activity),
                    device: Some(activity.device),
                };
                let row = self.row(key, counts);
                row.recorded_ns = row.recorded_ns.saturating_add(activity.duration_ns);
                row.recorded_count += 1;
            }
        }
    }

    /// Hands out the rows and starts anew.
    pub fn take_rows(&mut self) -> Rows {
        std::mem::take(&mut self.rows)
    }

    fn row(&mut self, key: RowKey, counts: &mut OwnCounts) -> &mut Sums {
        let has_room = self.rows.len() < MAX_ROWS || self.rows.contains_key(&key);
        let key = if has_room {
            key
        } else {
            counts.rows_folded += 1;
            folded(key)
        };
        self.rows.entry(key).or_default()
    }
}

/// What is left of a key when there is no room: the kind of launch, so that its factor still holds.
fn folded(key: RowKey) -> RowKey {
    let origin = key.origin.map(|origin| LaunchOrigin { stack_id: 0, hook: 0, graph_id: 0, ..origin });
    let work = if key.work == Work::Counted { Work::Counted } else { Work::Folded };
    let capture = if key.capture == Capture::NotReplayed { Capture::NotReplayed } else { Capture::Unknown };
    RowKey { origin, capture, work, device: key.device.map(|_| 0) }
}

fn work_of(activity: &RawActivity) -> Work {
    match activity.kind {
        ActivityKind::Kernel => Work::Kernel { name_id: activity.name_id },
        ActivityKind::Memcpy => Work::Memcpy { direction: activity.detail },
        ActivityKind::Memset => Work::Memset,
    }
}

fn capture_of(activity: &RawActivity, origin: Option<&LaunchOrigin>, definitions: &Definitions) -> Capture {
    let Some(node) = activity.graph_node else { return Capture::NotReplayed };
    let Some(origin) = origin.filter(|origin| origin.graph_id != 0) else { return Capture::Unknown };
    match definitions.graph(origin.graph_id) {
        Some(graph) => capture_in(graph, node, activity.name_id, definitions),
        None => Capture::Open { node },
    }
}

/// The capture of node `node`, if what ran can be what was captured there.
pub fn capture_in(graph: &Graph, node: u32, name_id: u32, definitions: &Definitions) -> Capture {
    let Some(captured) = graph.nodes.get(node as usize) else { return Capture::Unknown };
    // Two ids may carry the same text: one from the launch hook, one from CUPTI.
    let is_same = captured.name_id == 0
        || captured.name_id == name_id
        || definitions.name(captured.name_id).is_some_and(|name| Some(name) == definitions.name(name_id));
    match captured.stack_id {
        _ if !is_same => Capture::NameMismatch,
        0 => Capture::Unknown,
        stack_id => Capture::Stack(stack_id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::sample::WindowKey;

    /// Distinct rows are bounded; what is folded keeps its weight.
    #[test]
    fn surplus_rows_are_folded_and_counted() {
        let (mut aggregator, mut counts) = (Aggregator::default(), OwnCounts::default());
        let definitions = Definitions::default();
        for name_id in 0..MAX_ROWS as u32 + 10 {
            let activity = RawActivity {
                window: WindowKey { window_id: 1, correlation_id: 1 },
                kind: ActivityKind::Kernel,
                duration_ns: 1,
                name_id,
                graph_node: None,
                device: 3,
                detail: 0,
            };
            aggregator.add(&CorrelatedSample::Ran { activity, origin: None }, &definitions, &mut counts);
        }
        let rows = aggregator.take_rows();
        assert_eq!((rows.len(), counts.rows_folded), (MAX_ROWS + 1, 10));
        assert_eq!(rows.values().map(|sums| sums.recorded_ns).sum::<u64>(), MAX_ROWS as u64 + 10);
    }
}
