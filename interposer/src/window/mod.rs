//! CUPTI windows: attach, record, detach, at random moments, on a quiet GPU.
//!
//! In: the clock, and whether anything was launched or captures. Out: a window's activities and its `WindowClosed`.
//! Drops when: a window would disturb (capture, busy GPU, another tool): skipped and counted.
//! Runs on: the helper thread.
//!
//! The protocol is that of h200-cupti.md, section 3. Detach: close the gate, wait until no launch call is inside,
//! synchronize every context with a deadline, disable, flush, `cuptiFinalize`, open the gate. If the deadline passes,
//! the gate opens and CUPTI stays attached until a later try. While any stream captures, nothing is done.

pub mod gate; // holds launches
pub mod contexts; // what must be idle
pub mod quiesce; // waits for it, with a deadline
pub mod schedule; // when
pub mod activity; // CUPTI's callbacks
pub mod client; // attach and detach

use crate::clock::host_ns;
use crate::config::{CuptiMode, LogLevel};
use crate::profiler::{ATTENTION_WINDOW, Profiler};
use crate::thread_state::lane_total;
use activity::TOTALS;
use client::{AttachError, Client};
use core::time::Duration;
use quiesce::{Quiescer, Quiet};
use schedule::Schedule;
use shared_abi::counters::{Counter, LaneCounter};
use shared_abi::record::{RecordKind, WindowClosed, WindowOutcome};
use shared_abi::status::Status;
use shared_abi::sync::Ordering;
use zerocopy::IntoBytes as _;

/// Resident mode reports what it has recorded this often.
const SLICE: Duration = Duration::from_secs(1);
/// After a try that failed, the next one waits this long.
const RETRY: Duration = Duration::from_millis(100);
/// A detach that is this late is a status.
const OVERDUE: Duration = Duration::from_secs(2);

/// Opens and closes windows.
#[derive(Debug)]
pub struct Windows {
    profiler: &'static Profiler,
    schedule: Schedule,
    mode: CuptiMode,
    client: Option<Client>,
    quiescer: Option<Quiescer>,
    phase: Phase,
}

#[derive(Clone, Copy, Debug)]
enum Phase {
    /// Waits for the first launch.
    BeforeFirstLaunch,
    /// Detached; the next window is due at this time.
    Detached { due_ns: u64 },
    /// Attached and recording.
    Recording(Recording),
    /// Nothing more will be done.
    Over,
}

#[derive(Clone, Copy, Debug)]
struct Recording {
    opened_ns: u64,
    close_due_ns: u64,
    attach_gate_ns: u64,
    launches_before: u64,
    graph_launches_before: u64,
    outcome: WindowOutcome,
}

impl Windows {
    /// For an armed process.
    pub fn new(profiler: &'static Profiler) -> Self {
        let config = &profiler.config;
        let needs_callbacks = profiler.needs_callbacks.load(Ordering::Relaxed);
        let mode = match config.cupti {
            CuptiMode::Window if needs_callbacks => CuptiMode::Resident,
            mode => mode,
        };
        let phase = if mode == CuptiMode::Off {
            profiler.statuses.begin(Status::CuptiOff, "");
            Phase::Over
        } else {
            Phase::BeforeFirstLaunch
        };
        let seed = profiler.segment.identity().armed_host_ns ^ u64::from(std::process::id());
        let schedule = Schedule::new(config.window_period, seed);
        Self { profiler, schedule, mode, client: None, quiescer: None, phase }
    }

    /// Attaches at once and for good, where functions are seen through callbacks only: in cuInit, where no stream can be
    /// capturing yet. Later nobody would tell us of a capture, and attaching during one breaks it; so if it fails now, it
    /// is not tried again.
    pub fn attach_for_callbacks(&mut self) {
        if self.mode == CuptiMode::Off || !self.profiler.needs_callbacks.load(Ordering::Relaxed) {
            return;
        }
        self.open();
        if let Phase::Detached { .. } | Phase::BeforeFirstLaunch = self.phase {
            self.phase = Phase::Over;
        }
    }

    /// Does what is due and returns for how long nothing will be.
    pub fn tick(&mut self) -> Duration {
        let now_ns = host_ns();
        // Relaxed: set once; a tick that misses it is seen by `inside_cupti`.
        if self.profiler.exiting.load(Ordering::Relaxed) {
            self.phase = Phase::Over;
        }
        match self.phase {
            Phase::Over => return Duration::from_millis(100),
            Phase::BeforeFirstLaunch => {
                if self.profiler.has_launched.load(Ordering::Relaxed) {
                    let wait =
                        if self.mode == CuptiMode::Resident { RETRY } else { self.schedule.first_wait() };
                    self.phase = Phase::Detached { due_ns: now_ns + nanos(wait) };
                }
            }
            Phase::Detached { due_ns } if due_ns <= now_ns => self.open(),
            Phase::Recording(recording) if recording.close_due_ns <= now_ns => match self.mode {
                CuptiMode::Resident => self.slice(recording),
                _ => self.close(recording),
            },
            Phase::Detached { .. } | Phase::Recording(_) => {}
        }
        let due_ns = match self.phase {
            Phase::Detached { due_ns } => due_ns,
            Phase::Recording(recording) => recording.close_due_ns,
            Phase::BeforeFirstLaunch | Phase::Over => return Duration::from_millis(20),
        };
        Duration::from_nanos(due_ns.saturating_sub(host_ns()))
    }

    fn open(&mut self) {
        let profiler = self.profiler;
        let Some(client) = self.client() else { return };
        if profiler.contexts.all().is_none() {
            profiler.statuses.begin(Status::CuptiFailed, "more contexts than can be waited for");
            return self.phase = Phase::Over;
        }
        if let Err(counter) = close_gate(profiler) {
            profiler.count(counter, 1);
            return self.retry();
        }
        let inside = InsideCupti::enter(profiler);
        let attached = client.attach(profiler);
        if attached.is_ok() {
            profiler.window_id.fetch_add(1, Ordering::Relaxed);
            // Relaxed: the gate's opening publishes it, and no launch is inside.
            profiler.attention.fetch_or(ATTENTION_WINDOW, Ordering::Relaxed);
        }
        let gate_ns = open_gate(profiler);
        drop(inside);
        match attached {
            Ok(()) => self.opened(gate_ns),
            Err(error) => self.not_attached(error),
        }
    }

    fn opened(&mut self, attach_gate_ns: u64) {
        let profiler = self.profiler;
        profiler.count(Counter::WindowsOpened, 1);
        profiler.statuses.end(Status::CuptiTaken);
        profiler.statuses.end(Status::CuptiFailed);
        let resident = self.mode == CuptiMode::Resident;
        profiler.statuses.begin(if resident { Status::CuptiResident } else { Status::WindowsRunning }, "");
        profiler
            .log
            .line(LogLevel::Debug, format_args!("window opened, gate closed for {attach_gate_ns} ns"));
        self.record_from(host_ns(), attach_gate_ns);
    }

    fn record_from(&mut self, opened_ns: u64, attach_gate_ns: u64) {
        let length =
            if self.mode == CuptiMode::Resident { SLICE } else { self.profiler.config.window_length };
        let (launches_before, graph_launches_before) = launches_in_windows(self.profiler);
        self.phase = Phase::Recording(Recording {
            opened_ns,
            close_due_ns: opened_ns + nanos(length),
            attach_gate_ns,
            launches_before,
            graph_launches_before,
            outcome: WindowOutcome::Detached,
        });
    }

    fn not_attached(&mut self, error: AttachError) {
        let statuses = &self.profiler.statuses;
        match error {
            AttachError::Taken => {
                self.profiler.count(Counter::WindowsSkippedTaken, 1);
                statuses.begin(Status::CuptiTaken, "cuptiSubscribe says that there is a subscriber");
            }
            AttachError::Permission(text) => statuses.begin(Status::NoPermission, &text),
            AttachError::Failed(text) => statuses.begin(Status::CuptiFailed, &text),
        }
        statuses.end(Status::WindowsRunning);
        self.phase = Phase::Detached { due_ns: host_ns() + nanos(self.schedule.next_wait()) };
    }

    fn close(&mut self, recording: Recording) {
        let profiler = self.profiler;
        if let Some(client) = self.client.as_mut() {
            // What is complete already need not be delivered while launches wait.
            client.flush();
        }
        if self.quiescer.is_none() {
            self.quiescer = Quiescer::start(profiler.driver);
        }
        if close_gate(profiler).is_err() {
            return self.defer(recording);
        }
        let patience = profiler.config.gate_max.saturating_sub(profiler.gate.closed_for());
        let contexts = profiler.contexts.all();
        let quiet =
            self.quiescer.as_ref().zip(contexts).map(|(quiescer, all)| quiescer.wait_idle(&all, patience));
        let (Some(Quiet::Idle), Some(client)) = (quiet, self.client.as_mut()) else {
            open_gate(profiler);
            return self.defer(recording);
        };
        let inside = InsideCupti::enter(profiler);
        let closed_ns = host_ns();
        // Relaxed: as in `open`.
        profiler.attention.fetch_and(!ATTENTION_WINDOW, Ordering::Relaxed);
        // SAFETY: the gate is closed and no launch is inside, nothing captures, and every context has just become idle.
        let detached = unsafe { client.detach() };
        let gate_ns = open_gate(profiler);
        drop(inside);
        self.report(recording, closed_ns, gate_ns);
        profiler.count(Counter::WindowsClosed, 1);
        profiler.statuses.end(Status::DetachOverdue);
        profiler.log.line(LogLevel::Debug, format_args!("window closed, gate closed for {gate_ns} ns"));
        self.phase = match detached {
            Ok(()) => Phase::Detached { due_ns: host_ns() + nanos(self.schedule.next_wait()) },
            Err(text) => {
                profiler.statuses.begin(Status::CuptiFailed, &text);
                Phase::Over
            }
        };
    }

    /// Stays attached, and tries again soon.
    fn defer(&mut self, recording: Recording) {
        let profiler = self.profiler;
        profiler.count(Counter::DetachDeferred, 1);
        let now_ns = host_ns();
        let late_ns = now_ns.saturating_sub(recording.opened_ns + nanos(profiler.config.window_length));
        if late_ns > nanos(OVERDUE) {
            profiler.statuses.begin(Status::DetachOverdue, "");
        }
        // The later it is, the rarer the tries: each one may hold launches for GATE_MAX.
        let wait_ns = (late_ns / 4).clamp(nanos(RETRY) / 10, nanos(SLICE));
        let outcome = WindowOutcome::DetachedLate;
        self.phase = Phase::Recording(Recording { close_due_ns: now_ns + wait_ns, outcome, ..recording });
    }

    fn slice(&mut self, recording: Recording) {
        if let Some(client) = self.client.as_mut() {
            client.flush();
        }
        let now_ns = host_ns();
        self.report(Recording { outcome: WindowOutcome::Slice, ..recording }, now_ns, 0);
        self.record_from(now_ns, 0);
    }

    fn report(&self, recording: Recording, closed_ns: u64, detach_gate_ns: u64) {
        let profiler = self.profiler;
        let (launches, graph_launches) = launches_in_windows(profiler);
        let record = WindowClosed {
            opened_host_ns: recording.opened_ns,
            closed_host_ns: closed_ns,
            mean_period_ns: nanos(self.schedule.mean()),
            attach_gate_ns: recording.attach_gate_ns,
            detach_gate_ns,
            activities: TOTALS.activities.swap(0, Ordering::Relaxed),
            dropped_by_cupti: TOTALS.dropped.swap(0, Ordering::Relaxed),
            invalid_times: TOTALS.invalid_times.swap(0, Ordering::Relaxed),
            reserved: 0,
            window_id: profiler.window_id.load(Ordering::Relaxed),
            outcome: recording.outcome as u32,
            launches: launches.saturating_sub(recording.launches_before) as u32,
            graph_launches: graph_launches.saturating_sub(recording.graph_launches_before) as u32,
        };
        profiler.count(Counter::WindowOpenNs, closed_ns.saturating_sub(recording.opened_ns));
        profiler.ring().write(RecordKind::WindowClosed, host_ns(), &[record.as_bytes()]);
    }

    fn client(&mut self) -> Option<&mut Client> {
        if self.client.is_none() {
            let statuses = &self.profiler.statuses;
            match Client::find(self.profiler) {
                Ok(client) => {
                    statuses.end(Status::CuptiNotFound);
                    self.client = Some(client);
                }
                Err(text) => {
                    statuses.begin(Status::CuptiNotFound, &text);
                    self.phase = Phase::Detached { due_ns: host_ns() + nanos(self.schedule.next_wait()) };
                }
            }
        }
        self.client.as_mut()
    }

    fn retry(&mut self) {
        self.phase = Phase::Detached { due_ns: host_ns() + nanos(RETRY) };
    }
}

/// Closes the gate with nothing inside and nothing capturing, or leaves it open and says which counter to raise.
fn close_gate(profiler: &Profiler) -> Result<(), Counter> {
    if profiler.graphs.open_captures() > 0 {
        return Err(Counter::WindowsSkippedCapture);
    }
    if !profiler.gate.close(profiler.config.gate_max, || profiler.slots.all_idle()) {
        return Err(Counter::WindowsSkippedBusy);
    }
    if profiler.graphs.open_captures() > 0 || profiler.exiting.load(Ordering::Relaxed) {
        open_gate(profiler);
        return Err(Counter::WindowsSkippedCapture);
    }
    Ok(())
}

fn open_gate(profiler: &Profiler) -> u64 {
    let closed_ns = nanos(profiler.gate.open());
    profiler.count(Counter::GateClosedNs, closed_ns);
    profiler.count_max(Counter::GateClosedMaxNs, closed_ns);
    closed_ns
}

fn launches_in_windows(profiler: &Profiler) -> (u64, u64) {
    let total = |counter| lane_total(&profiler.segment, counter);
    let launches = total(LaneCounter::KernelLaunchesInWindow) + total(LaneCounter::MemoryOperationsInWindow);
    (launches, total(LaneCounter::GraphLaunchesInWindow))
}

/// Keeps the process's exit waiting while a CUPTI call is being made.
struct InsideCupti<'a>(&'a Profiler);

impl<'a> InsideCupti<'a> {
    fn enter(profiler: &'a Profiler) -> Self {
        profiler.inside_cupti.store(true, Ordering::SeqCst);
        Self(profiler)
    }
}

impl Drop for InsideCupti<'_> {
    fn drop(&mut self) {
        self.0.inside_cupti.store(false, Ordering::SeqCst);
    }
}

fn nanos(duration: Duration) -> u64 {
    duration.as_nanos() as u64
}
