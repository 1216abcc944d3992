//! `launchscope collect`: many processes at once, until stopped. One thread reads the rings, another one makes
//! profiles and writes them, so that a slow disk or a large symbol table never holds up the reading.

use crate::aggregate::build::ProcessSums;
use crate::aggregate::profile::{Profile, ProfileMeta};
use crate::config::{CollectConfig, Grouping, OutputConfig};
use crate::drain::handover::ListenError;
use crate::export::{Format, write_all};
use crate::model::wall_ns;
use crate::moment::{file_time, host_name};
use crate::pipeline::{Pipeline, ProfileBuilder, Snapshot};
use crate::signals::Signals;
use crate::summary::say;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::JoinHandle;
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
    let writer = start_writer(config.clone(), receiver).map_err(CollectError::Thread)?;
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
    // The writer ends when the channel does; an error means that it has ended already, by a panic that it reported.
    let _ended = sender.send(last);
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

fn start_writer(config: CollectConfig, receiver: Receiver<Interval>) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("launchscope-write".to_owned()).spawn(move || {
        let mut builder = ProfileBuilder::default();
        for interval in receiver {
            write_interval(&config, &mut builder, interval);
        }
    })
}

fn write_interval(config: &CollectConfig, builder: &mut ProfileBuilder, interval: Interval) {
    let time = file_time();
    let has_content = |process: &ProcessSums| !process.rows.is_empty() || !process.statuses.is_empty();
    let processes: Vec<ProcessSums> = interval.snapshot.processes.into_iter().filter(has_content).collect();
    let groups: Vec<&[ProcessSums]> = match config.grouping {
        Grouping::Merged if processes.is_empty() => Vec::new(),
        Grouping::Merged => vec![&processes],
        Grouping::PerProcess => processes.chunks(1).collect(),
    };
    for group in groups {
        let name = match (config.grouping, group.first()) {
            (Grouping::PerProcess, Some(process)) => {
                format!("{time}-{}-{}", process.process_id, process.session)
            }
            _ => time.clone(),
        };
        let title = if config.output.title.is_empty() {
            format!("launchscope {name}")
        } else {
            config.output.title.clone()
        };
        let meta = ProfileMeta {
            title,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            start_wall_ms: interval.start_wall_ms,
            duration_ns: interval.duration_ns,
            labels: [("host".to_owned(), host_name())].into(),
            ..ProfileMeta::default()
        };
        let profile = builder.build(group, &interval.snapshot.files, meta);
        match write_rotated(&profile, &config.output, &name) {
            Ok(path) => say(config.output.talk, &format!("launchscope: wrote {}", path.display())),
            // The next interval may fare better: a full disk does not stop the reading.
            Err(error) => eprintln!(
                "launchscope: writing a profile into `{}` failed: {error}",
                config.output.directory.display()
            ),
        }
    }
}

/// Files appear whole or not at all: they are written into a directory of another name, which is renamed.
fn write_rotated(profile: &Profile, output: &OutputConfig, name: &str) -> Result<PathBuf, String> {
    let temporary = output.directory.join(format!(".{name}.partial"));
    let written = write_into(profile, &temporary, &output.formats, &free_path(&output.directory, name));
    if written.is_err() {
        // Nothing else can be done about the remains.
        let _remains = std::fs::remove_dir_all(&temporary);
    }
    written
}

fn write_into(
    profile: &Profile,
    temporary: &Path,
    formats: &[Format],
    place: &Path,
) -> Result<PathBuf, String> {
    std::fs::create_dir_all(temporary).map_err(|error| error.to_string())?;
    write_all(profile, temporary, formats).map_err(|error| with_causes(&error))?;
    std::fs::rename(temporary, place).map_err(|error| error.to_string())?;
    Ok(place.to_owned())
}

/// An error with its causes, in one line.
fn with_causes(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

/// Two intervals may end in one second.
fn free_path(directory: &Path, name: &str) -> PathBuf {
    let numbered = (1u32..).map(|number| directory.join(format!("{name}.{number}")));
    let mut candidates = std::iter::once(directory.join(name)).chain(numbered);
    candidates.find(|path| !path.exists()).unwrap_or_else(|| directory.join(name))
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
