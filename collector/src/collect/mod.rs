//! `launchscope collect`: many processes at once, until stopped. One thread reads the rings, another one makes
//! profiles and writes them, so that a slow disk or a large symbol table never holds up the reading.

mod writer; // from intervals to files

use crate::config::CollectConfig;
use crate::drain::handover::ListenError;
use crate::model::wall_ns;
use crate::pipeline::{Pipeline, Snapshot};
use crate::signals::Signals;
use crate::summary::say;
use std::io;
use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::time::{Duration, Instant};

const TICK: Duration = Duration::from_millis(5);

/// Why `launchscope collect` failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CollectError {
    /// No directory for the files.
    #[error("creating the output directory `{path}` failed; choose another one with -o")]
    Output {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Signals cannot be read.
    #[error("setting up signal handling failed")]
    Signals(#[source] io::Error),
    /// No thread.
    #[error("starting the writing thread failed")]
    Thread(#[source] io::Error),
    /// No socket.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// One interval, on its way to the files.
struct Interval {
    snapshot: Snapshot,
    start_wall_ms: u64,
    duration_ns: u64,
}

/// Collects until a signal or the given time ends it.
pub fn collect(config: &CollectConfig) -> Result<(), CollectError> {
    let directory = &config.output.directory;
    std::fs::create_dir_all(directory)
        .map_err(|source| CollectError::Output { path: directory.clone(), source })?;
    let stops = [libc::SIGTERM, libc::SIGINT, libc::SIGHUP, libc::SIGUSR1];
    let signals = Signals::block(&stops).map_err(CollectError::Signals)?;
    raise_descriptor_limit();
    let mut pipeline = Pipeline::listen(&config.socket, config.token)?;
    say(
        config.output.talk,
        &format!("launchscope: listening on {}, writing to {}", config.socket, directory.display()),
    );
    // One interval may wait while one is written; a third is not taken but goes on growing, bounded as it is.
    let (sender, receiver) = sync_channel(1);
    let writer = writer::start(config.clone(), receiver).map_err(CollectError::Thread)?;
    let started = Instant::now();
    let mut clock = IntervalClock::new();
    loop {
        let arrived = signals.wait(TICK);
        pipeline.poll();
        for refusal in pipeline.take_refusals() {
            say(config.output.talk, &format!("launchscope: warning: {refusal}"));
        }
        let is_over = config.duration.is_some_and(|duration| started.elapsed() >= duration);
        if is_over || arrived.iter().any(|signal| signal.number != libc::SIGUSR1) {
            break;
        }
        let is_asked = arrived.iter().any(|signal| signal.number == libc::SIGUSR1);
        if is_asked || clock.started.elapsed() >= config.interval {
            hand_over(&mut pipeline, &mut clock, &sender);
        }
    }
    pipeline.finish();
    let last = clock.next(pipeline.take_sums());
    for interval in clock.left_over.take().into_iter().chain([last]) {
        // The writer ends when the channel does, and never before.
        let _ended = sender.send(interval);
    }
    drop(sender);
    let _reported = writer.join();
    Ok(())
}

struct IntervalClock {
    started: Instant,
    start_wall_ms: u64,
    left_over: Option<Interval>,
}

impl IntervalClock {
    fn new() -> Self {
        Self { started: Instant::now(), start_wall_ms: wall_ns() / 1_000_000, left_over: None }
    }

    fn next(&mut self, snapshot: Snapshot) -> Interval {
        let (start_wall_ms, duration_ns) = (self.start_wall_ms, self.started.elapsed().as_nanos() as u64);
        *self = Self { left_over: self.left_over.take(), ..Self::new() };
        Interval { snapshot, start_wall_ms, duration_ns }
    }
}

fn hand_over(pipeline: &mut Pipeline, clock: &mut IntervalClock, sender: &SyncSender<Interval>) {
    if let Some(left_over) = clock.left_over.take()
        && let Err(TrySendError::Full(interval)) = sender.try_send(left_over)
    {
        clock.left_over = Some(interval);
        return;
    }
    let interval = clock.next(pipeline.take_sums());
    if let Err(TrySendError::Full(interval)) = sender.try_send(interval) {
        clock.left_over = Some(interval);
    }
}

/// Each process needs a socket, and each image a file.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit for the duration of both calls.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) == 0 {
            limit.rlim_cur = limit.rlim_max.min(65_536).max(limit.rlim_cur);
            libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
        }
    }
}
