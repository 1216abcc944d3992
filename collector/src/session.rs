//! One engine process: its segment's way through drain, correlation and aggregation. Part of the pipeline.

use crate::aggregate::Aggregator;
use crate::aggregate::build::ProcessSums;
use crate::aggregate::profile::StatusLine;
use crate::correlate::Correlator;
use crate::drain::handover::{Accepted, Connection, FromProcess, ReceivedImage};
use crate::drain::{Pass, ProcessDrain, Writer};
use crate::model::counts::{EngineCounts, OwnCounts};
use crate::model::definitions::Definitions;
use crate::model::images::{ImageFiles, ImageKey, Kept};
use crate::model::sample::{RawSample, RawStatus};
use shared_abi::status::Status;
use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

/// A busy process is read this often; 10 ms drop nothing at 100,000 samples a second with 4,096 slots.
const BUSY_INTERVAL_NS: u64 = 5_000_000;
/// An idle one this often.
const IDLE_INTERVAL_NS: u64 = 20_000_000;
/// Passes without anything after which a process counts as idle.
const IDLE_AFTER: u32 = 20;
/// How often the existence of the peer is checked: its socket may be held open by a forked child.
const PEER_CHECK_NS: u64 = 1_000_000_000;
/// Messages taken from one process in one pass.
const MESSAGES_PER_PASS: usize = 64;
/// Image files that may come before their definitions.
const MAX_EARLY_IMAGES: usize = 64;
/// Passes after the end of a process, two laps of its ring each; a hostile one could go on for ever.
const FINAL_PASSES: usize = 64;

/// Whether a process still runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It does.
    Running,
    /// It has ended, and everything it left has been read.
    Ended,
}

#[derive(Clone, Debug, Default)]
struct StatusState {
    detail: String,
    holds: bool,
}

/// One engine process.
#[derive(Debug)]
pub struct Session {
    number: u64,
    process_id: u32,
    connection: Option<Connection>,
    drain: Option<ProcessDrain>,
    status_bits: u64,
    definitions: Arc<Definitions>,
    correlator: Correlator,
    aggregator: Aggregator,
    own: OwnCounts,
    engine: EngineCounts,
    engine_before: EngineCounts,
    statuses: BTreeMap<u32, StatusState>,
    early_images: Vec<ReceivedImage>,
    life: Life,
    idle_passes: u32,
    next_pass_ns: u64,
    next_peer_check_ns: u64,
}

impl Session {
    /// A process that was accepted over the socket.
    pub fn new(number: u64, accepted: Accepted) -> Self {
        Self::with_drain(number, accepted.process_id, accepted.drain, Some(accepted.connection))
    }

    /// A segment without a connection (tests): it ends when told so.
    pub fn with_drain(
        number: u64,
        process_id: u32,
        drain: ProcessDrain,
        connection: Option<Connection>,
    ) -> Self {
        // What an earlier collector has read, and counted, is not counted again.
        let engine_before =
            if drain.was_read_before() { drain.engine_counts() } else { EngineCounts::default() };
        Self {
            number,
            process_id,
            connection,
            drain: Some(drain),
            status_bits: 0,
            definitions: Arc::default(),
            correlator: Correlator::default(),
            aggregator: Aggregator::default(),
            own: OwnCounts::default(),
            engine: engine_before.clone(),
            engine_before,
            statuses: BTreeMap::new(),
            early_images: Vec::new(),
            life: Life::Running,
            idle_passes: 0,
            next_pass_ns: 0,
            next_peer_check_ns: 0,
        }
    }

    /// Its process id.
    pub fn process_id(&self) -> u32 {
        self.process_id
    }

    /// Whether it still runs.
    pub fn life(&self) -> Life {
        self.life
    }

    /// Its counters as last read, over the time covered.
    pub fn engine_counts(&self) -> EngineCounts {
        self.engine.since(&self.engine_before)
    }

    /// What this side counted over the time covered.
    pub fn own_counts(&self) -> OwnCounts {
        self.own
    }

    /// Reads what there is, if it is time to.
    pub fn poll(&mut self, now_ns: u64, files: &mut ImageFiles) -> Life {
        if self.life == Life::Ended || now_ns < self.next_pass_ns {
            return self.life;
        }
        let is_closed = self.take_messages();
        let is_gone = now_ns >= self.next_peer_check_ns && {
            self.next_peer_check_ns = now_ns + PEER_CHECK_NS;
            self.connection.as_ref().is_some_and(Connection::peer_is_gone)
        };
        if is_closed || is_gone {
            self.finish(now_ns, files);
            return self.life;
        }
        let pass = self.pass(now_ns, Writer::Alive);
        self.keep_images(files);
        self.idle_passes = if pass == Pass::Busy { 0 } else { self.idle_passes.saturating_add(1) };
        let is_idle = self.idle_passes > IDLE_AFTER;
        self.next_pass_ns = now_ns + if is_idle { IDLE_INTERVAL_NS } else { BUSY_INTERVAL_NS };
        self.life
    }

    /// Reads everything that is left: the process has ended, or is not waited for any longer.
    pub fn finish(&mut self, now_ns: u64, files: &mut ImageFiles) {
        if self.life == Life::Ended {
            return;
        }
        for _ in 0..FINAL_PASSES {
            let _more = self.take_messages();
            let pass = self.pass(now_ns, Writer::Ended);
            self.keep_images(files);
            if pass == Pass::Idle {
                break;
            }
        }
        let Self { correlator, aggregator, definitions, own, .. } = self;
        let mut late = OwnCounts::default();
        correlator.finish(own, &mut |sample| aggregator.add(&sample, definitions, &mut late));
        own.add(&late);
        self.early_images.clear();
        self.connection = None;
        // Its memory goes with the last mapping.
        self.drain = None;
        self.life = Life::Ended;
    }

    /// Reads no more of it: reading it has failed in a way that was not foreseen.
    pub fn abandon(&mut self) {
        self.early_images.clear();
        self.connection = None;
        self.drain = None;
        self.life = Life::Ended;
    }

    /// Hands out what was added up since the last call and starts anew; definitions stay.
    pub fn take_sums(&mut self) -> ProcessSums {
        let engine = self.engine_counts();
        self.engine_before = self.engine.clone();
        let statuses = self.status_lines();
        self.statuses.retain(|_, status| status.holds);
        ProcessSums {
            session: self.number,
            process_id: self.process_id,
            definitions: self.definitions.clone(),
            rows: self.aggregator.take_rows(),
            engine,
            own: std::mem::take(&mut self.own),
            statuses,
        }
    }

    /// Keys of its images: their files are still needed.
    pub fn image_keys(&self, into: &mut HashSet<ImageKey>) {
        into.extend(self.definitions.images().iter().map(|image| ImageKey::of(image, self.number)));
    }

    fn pass(&mut self, now_ns: u64, writer: Writer) -> Pass {
        let Self { drain: Some(drain), definitions, correlator, aggregator, own, statuses, .. } = self else {
            return Pass::Idle;
        };
        // Copies the definitions only while a profile is being built from the earlier ones.
        let mut samples = Vec::new();
        let known = Arc::make_mut(definitions);
        let pass = drain.pass(now_ns, writer, known, own, &mut |sample| samples.push(sample));
        let mut aggregate_counts = OwnCounts::default();
        for sample in samples {
            if let RawSample::Status(status) = &sample {
                note_status(statuses, status);
            }
            correlator.take(&sample, own, &mut |correlated| {
                aggregator.add(&correlated, known, &mut aggregate_counts);
            });
        }
        own.add(&aggregate_counts);
        self.engine = drain.engine_counts();
        self.status_bits = drain.status_bits();
        pass
    }

    /// `true` when the process has closed its socket.
    fn take_messages(&mut self) -> bool {
        let Some(connection) = &self.connection else { return false };
        for _ in 0..MESSAGES_PER_PASS {
            match connection.receive() {
                FromProcess::Image(image) if self.early_images.len() < MAX_EARLY_IMAGES => {
                    self.early_images.push(image);
                }
                FromProcess::Image(_) => self.own.images_not_kept += 1,
                FromProcess::Ignored => {}
                FromProcess::Nothing => return false,
                FromProcess::Closed => return true,
            }
        }
        false
    }

    /// Files whose image is defined are kept by build id, the others wait.
    fn keep_images(&mut self, files: &mut ImageFiles) {
        for received in std::mem::take(&mut self.early_images) {
            let image = self.definitions.images().iter().rev().find(|image| image.id == received.image_id);
            match image.map(|image| ImageKey::of(image, self.number)) {
                Some(key) => {
                    self.own.images_not_kept += u64::from(files.keep(key, received.file) == Kept::No)
                }
                None => self.early_images.push(received),
            }
        }
    }

    fn status_lines(&mut self) -> Vec<StatusLine> {
        let bits = self.status_bits;
        for status in Status::ALL {
            let holds = bits >> (*status as u32) & 1 == 1;
            if holds || self.statuses.contains_key(&(*status as u32)) {
                self.statuses.entry(*status as u32).or_default().holds = holds;
            }
        }
        let line = |(code, state): (&u32, &StatusState)| {
            let known = Status::from_u32(*code);
            StatusLine {
                process_id: self.process_id,
                name: known.map_or_else(|| format!("status-{code}"), |status| status.name().to_owned()),
                text: known.map_or("a status that this version does not know", Status::text).to_owned(),
                detail: state.detail.clone(),
                holds: state.holds,
                needs_attention: match known {
                    Some(Status::NoGpuWork) => state.holds,
                    Some(status) => !status.is_good_news(),
                    None => true,
                },
            }
        };
        self.statuses.iter().map(line).collect()
    }
}

/// Statuses of one process, known or not.
const MAX_STATUSES: usize = 128;

fn note_status(statuses: &mut BTreeMap<u32, StatusState>, status: &RawStatus) {
    if statuses.len() < MAX_STATUSES || statuses.contains_key(&status.code) {
        let state = statuses.entry(status.code).or_default();
        state.holds = status.holds;
        if !status.detail.is_empty() {
            state.detail.clone_from(&status.detail);
        }
    }
}
