//! The statuses that hold now: a bit in the segment's header, a record at each change, a line on stderr for people.
//!
//! Runs on: the thread that arms, then the helper thread; never on the launch path.

use crate::clock::host_ns;
use crate::config::LogLevel;
use crate::log::Log;
use crate::ring_writer::RingWriter;
use shared_abi::record::{RecordKind, STATUS_TEXT_BYTES, StatusChanged};
use shared_abi::segment::{LiveWord, Segment};
use shared_abi::status::Status;
use shared_abi::sync::Ordering;
use zerocopy::IntoBytes as _;

/// The statuses of this process.
#[derive(Clone, Copy, Debug)]
pub struct StatusBoard {
    segment: Segment,
    log: Log,
}

impl StatusBoard {
    /// Nothing holds yet.
    pub fn new(segment: Segment, log: Log) -> Self {
        Self { segment, log }
    }

    /// Whether a status holds.
    pub fn holds(&self, status: Status) -> bool {
        self.segment.live(LiveWord::StatusBits).load(Ordering::Relaxed) & bit(status) != 0
    }

    /// A status holds from now on; nothing happens if it did already.
    pub fn begin(&self, status: Status, detail: &str) {
        let before = self.segment.live(LiveWord::StatusBits).fetch_or(bit(status), Ordering::Relaxed);
        if before & bit(status) == 0 {
            self.report(status, 1, detail);
        }
    }

    /// A status no longer holds; nothing happens if it did not.
    pub fn end(&self, status: Status) {
        let before = self.segment.live(LiveWord::StatusBits).fetch_and(!bit(status), Ordering::Relaxed);
        if before & bit(status) != 0 {
            self.report(status, 0, "");
        }
    }

    /// Reports a detail under a status that may hold already (each unknown setting, say).
    pub fn add_detail(&self, status: Status, detail: &str) {
        self.segment.live(LiveWord::StatusBits).fetch_or(bit(status), Ordering::Relaxed);
        self.report(status, 1, detail);
    }

    fn report(&self, status: Status, holds: u16, detail: &str) {
        let level = if holds == 0 || status.is_good_news() { LogLevel::Info } else { LogLevel::Warn };
        let end = if holds == 0 { " no longer" } else { "" };
        let colon = if detail.is_empty() { "" } else { ": " };
        self.log.line(
            level,
            format_args!("status {}{end} holds: {}{colon}{detail}", status.name(), status.text()),
        );
        let mut text = [0u8; STATUS_TEXT_BYTES];
        let bytes = detail.len().min(STATUS_TEXT_BYTES);
        for (to, from) in text.iter_mut().zip(detail.bytes()) {
            *to = from;
        }
        let host_ns = host_ns();
        let record = StatusChanged { host_ns, code: status as u32, holds, text_bytes: bytes as u16, text };
        RingWriter::new(self.segment).write(RecordKind::StatusChanged, host_ns, &[record.as_bytes()]);
    }
}

fn bit(status: Status) -> u64 {
    1 << status as u32
}
