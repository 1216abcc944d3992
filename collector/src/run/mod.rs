//! `launchscope run`: a command, from its start to the profile of it and all its children.

pub mod child; // the command: its environment, start and end

use crate::aggregate::profile::{Profile, ProfileMeta};
use crate::config::{OutputConfig, RunConfig, Talk, token_bytes};
use crate::drain::handover::ListenError;
use crate::export::{ExportError, write_all};
use crate::model::{monotonic_ns, wall_ns};
use crate::moment::host_name;
use crate::pipeline::{Pipeline, ProfileBuilder};
use crate::signals::{Arrived, Sender, Signals};
use crate::summary::{self, say};
use child::{Child, ChildError, Ending};
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How long the main loop sleeps between two looks at the sessions.
const TICK: Duration = Duration::from_millis(5);
/// How long descendants may outlive the command and still be read.
const GRACE: Duration = Duration::from_secs(2);
/// A process that has just connected is waited for even when none was connected before.
const SETTLE: Duration = Duration::from_millis(30);
/// Signals that are passed on to the command.
const FORWARDED: &[i32] = &[
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGTSTP,
    libc::SIGCONT,
];

/// Why `launchscope run` failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// No directory for the files.
    #[error("creating the output directory `{path}` failed; choose another one with -o")]
    Output {
        /// The directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Signals cannot be read.
    #[error("setting up signal handling failed")]
    Signals(#[source] std::io::Error),
    /// No socket.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// No command.
    #[error(transparent)]
    Child(#[from] ChildError),
    /// No random numbers for the token.
    #[error("reading random numbers for the socket's name and token failed")]
    Random(#[source] std::io::Error),
    /// The files could not be written; the command itself ended as it says.
    #[error("writing the profile failed")]
    Export {
        /// How the command ended.
        ending: Ending,
        /// Why.
        #[source]
        source: ExportError,
    },
}

/// Runs the command, writes its profile and says how it ended.
pub fn run(config: &RunConfig) -> Result<Ending, RunError> {
    let directory = &config.output.directory;
    std::fs::create_dir_all(directory)
        .map_err(|source| RunError::Output { path: directory.clone(), source })?;
    let mut watched = FORWARDED.to_vec();
    watched.push(libc::SIGCHLD);
    let signals = Signals::block(&watched).map_err(RunError::Signals)?;
    let secrets = Secrets::new().map_err(RunError::Random)?;
    // 32 characters fit.
    let token = token_bytes(&secrets.token).ok();
    let mut pipeline = Pipeline::listen(&secrets.socket, token)?;
    let (start_wall_ms, started) = (wall_ns() / 1_000_000, Instant::now());
    let spawned = Child::start(config, &secrets.socket, &secrets.token, signals.mask_before());
    let mut child = match spawned {
        Ok(child) => child,
        Err(error) => {
            // An empty directory helps nobody; one with files in it stays.
            let _kept = std::fs::remove_dir(directory);
            return Err(error.into());
        }
    };
    let ending = follow(&mut child, &mut pipeline, &signals, &config.output);
    outlive(&mut pipeline, &signals);
    pipeline.finish();
    let duration_ns = started.elapsed().as_nanos() as u64;
    let connected = pipeline.progress().connected;
    let snapshot = pipeline.take_sums();
    warn_refusals(&mut pipeline, &config.output);
    let meta = ProfileMeta {
        title: config.output.title.clone(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        start_wall_ms,
        duration_ns,
        labels: [("host".to_owned(), host_name())].into(),
        ..ProfileMeta::default()
    };
    let profile = ProfileBuilder::default().build(&snapshot.processes, &snapshot.files, meta);
    let written = write_all(&profile, directory, &config.output.formats);
    let files = written.map_err(|source| RunError::Export { ending, source })?;
    report(config, &profile, connected, &files, ending);
    Ok(ending)
}

struct Secrets {
    socket: String,
    token: String,
}

impl Secrets {
    fn new() -> std::io::Result<Self> {
        let mut bytes = [0u8; 24];
        // SAFETY: pointer and length of a live buffer; so few bytes come whole.
        if unsafe { libc::getrandom(bytes.as_mut_ptr().cast(), bytes.len(), 0) } != bytes.len() as isize {
            return Err(std::io::Error::last_os_error());
        }
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let (name, token) = bytes.split_at(8);
        let socket = format!("@launchscope-{}-{}", std::process::id(), hex(name));
        Ok(Self { socket, token: hex(token) })
    }
}

/// Reads the processes until the command has ended.
fn follow(child: &mut Child, pipeline: &mut Pipeline, signals: &Signals, output: &OutputConfig) -> Ending {
    let shows_progress = output.talk == Talk::Normal && std::io::stderr().is_terminal();
    let (started, mut next_progress) = (monotonic_ns(), Duration::from_secs(1));
    let ending = loop {
        for arrived in signals.wait(TICK) {
            pass_on(child, arrived);
        }
        pipeline.poll();
        if let Some(ending) = child.ended() {
            break ending;
        }
        let elapsed = Duration::from_nanos(monotonic_ns().saturating_sub(started));
        if elapsed >= next_progress {
            next_progress = elapsed + Duration::from_secs(1);
            warn_refusals(pipeline, output);
            if shows_progress {
                summary::show_progress(&pipeline.progress(), elapsed);
            }
        }
    };
    if shows_progress {
        summary::clear_progress();
    }
    ending
}

/// The command gets every signal once: what a terminal key sent has reached it already.
fn pass_on(child: &Child, arrived: Arrived) {
    if arrived.number == libc::SIGCHLD {
        return;
    }
    if arrived.sender == Sender::Process {
        child.signal(arrived.number);
    }
    if arrived.number == libc::SIGTSTP {
        // The shell waits for us to stop, too; SIGCONT goes on here and is passed on.
        // SAFETY: plain system call.
        unsafe { libc::raise(libc::SIGSTOP) };
    }
}

/// Reads on until all sockets are closed, for a while at most; a signal to end cuts it short.
fn outlive(pipeline: &mut Pipeline, signals: &Signals) {
    let ended = Instant::now();
    while ended.elapsed() < SETTLE || (pipeline.progress().running > 0 && ended.elapsed() < GRACE) {
        let stop = [libc::SIGINT, libc::SIGTERM, libc::SIGQUIT, libc::SIGHUP];
        if signals.wait(TICK).iter().any(|arrived| stop.contains(&arrived.number)) {
            return;
        }
        pipeline.poll();
    }
}

fn warn_refusals(pipeline: &mut Pipeline, output: &OutputConfig) {
    for refusal in pipeline.take_refusals() {
        say(output.talk, &format!("launchscope: warning: {refusal}"));
    }
}

fn report(config: &RunConfig, profile: &Profile, connected: u64, files: &[PathBuf], ending: Ending) {
    say(config.output.talk, &summary::text(profile, connected, files));
    if let Ending::Signal(number) = ending {
        let name = crate::signals::name(number);
        say(
            config.output.talk,
            &format!("launchscope: the command was killed by {name}; ending by the same signal"),
        );
    }
    if config.json_summary {
        summary::print_json(profile, connected, files, ending);
    }
}
