//! All processes: who connects, their way through drain, correlation and aggregation, and the profile at the end.
//! With `session.rs` the only place that names two stages.
//!
//! ```text
//! socket -> drain::handover -> session per process: drain -> correlate -> aggregate (rows of ids)
//!                                       rows + definitions + image files -> symbolize -> aggregate::build -> Profile
//! ```

use crate::aggregate::build::{FrameSource, ProcessSums, build, stacks_of};
use crate::aggregate::profile::{Profile, ProfileMeta};
use crate::drain::handover::{ListenError, Listener, Refusal, TOKEN_BYTES};
use crate::model::counts::{EngineCounts, OwnCounts};
use crate::model::definitions::Definitions;
use crate::model::images::ImageFiles;
use crate::model::{Frame, Name, monotonic_ns};
use crate::session::{Life, Session};
use crate::symbolize::Symbolizer;
use std::collections::HashSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

/// Processes that are read at once; the next one is refused by not being accepted until one has ended.
const MAX_SESSIONS: usize = 1024;
/// Refusals whose words are kept.
const MAX_REFUSALS: usize = 64;

/// What people want to see while it runs.
#[derive(Clone, Debug, Default)]
pub struct Progress {
    /// Processes that are connected.
    pub running: usize,
    /// Processes that have ever connected.
    pub connected: u64,
    /// Counters of the processes since their sums were last taken.
    pub engine: EngineCounts,
    /// What this side counted over the same time.
    pub own: OwnCounts,
}

/// All processes.
pub struct Pipeline {
    listener: Listener,
    sessions: Vec<Session>,
    connected: u64,
    files: ImageFiles,
    refusals: Vec<Refusal>,
}

impl Pipeline {
    /// Listens on `address` (`@name` or a path).
    pub fn listen(address: &str, token: Option<[u8; TOKEN_BYTES]>) -> Result<Self, ListenError> {
        let listener = Listener::bind(address, token)?;
        let files = ImageFiles::default();
        Ok(Self { listener, sessions: Vec::new(), connected: 0, files, refusals: Vec::new() })
    }

    /// Takes in who connects and reads every process whose turn it is. Call it every 5 ms or so.
    pub fn poll(&mut self) {
        let now_ns = monotonic_ns();
        let Self { listener, sessions, connected, refusals, .. } = self;
        if sessions.len() < MAX_SESSIONS {
            listener.poll(now_ns, |hello| match hello {
                Ok(accepted) => {
                    *connected += 1;
                    sessions.push(Session::new(*connected, accepted));
                }
                Err(refusal) if refusals.len() < MAX_REFUSALS => refusals.push(refusal),
                Err(_) => {}
            });
        }
        for session in sessions {
            // A panic over one hostile process costs its data, not the others'.
            let files = &mut self.files;
            if catch_unwind(AssertUnwindSafe(|| session.poll(now_ns, files))).is_err() {
                session.abandon();
                refusals.push(Refusal::Internal { process: session.process_id().to_string() });
            }
        }
    }

    /// Processes that were refused since the last call.
    pub fn take_refusals(&mut self) -> Vec<Refusal> {
        std::mem::take(&mut self.refusals)
    }

    /// What people want to see while it runs.
    pub fn progress(&self) -> Progress {
        let mut progress = Progress { connected: self.connected, ..Progress::default() };
        for session in &self.sessions {
            progress.running += usize::from(session.life() == Life::Running);
            progress.engine.add(&session.engine_counts());
            progress.own.add(&session.own_counts());
        }
        progress
    }

    /// Reads everything that is left of all processes, running or not.
    pub fn finish(&mut self) {
        let now_ns = monotonic_ns();
        for session in &mut self.sessions {
            session.finish(now_ns, &mut self.files);
        }
    }

    /// Hands out what all processes have added up since the last call. Ended ones are forgotten.
    pub fn take_sums(&mut self) -> Snapshot {
        let processes = self.sessions.iter_mut().map(Session::take_sums).collect();
        let files = self.files.clone();
        self.sessions.retain(|session| session.life() == Life::Running);
        let mut needed = HashSet::new();
        self.sessions.iter().for_each(|session| session.image_keys(&mut needed));
        self.files.retain(&needed);
        Snapshot { processes, files }
    }
}

/// What was added up, with everything that is needed to make a profile of it.
#[derive(Debug)]
pub struct Snapshot {
    /// Per process.
    pub processes: Vec<ProcessSums>,
    /// Files of their images.
    pub files: ImageFiles,
}

/// Makes profiles of what was added up. Keeps symbols from one to the next.
#[derive(Debug, Default)]
pub struct ProfileBuilder {
    symbolizer: Symbolizer,
}

impl ProfileBuilder {
    /// One profile of these processes of a snapshot.
    pub fn build(&mut self, processes: &[ProcessSums], files: &ImageFiles, meta: ProfileMeta) -> Profile {
        let stacks = processes.iter().flat_map(|process| {
            let stacks: HashSet<u32> = stacks_of(process).collect();
            stacks.into_iter().map(|stack_id| (process.session, &*process.definitions, stack_id))
        });
        self.symbolizer.prepare(stacks, files);
        build(processes, meta, self)
    }
}

impl FrameSource for ProfileBuilder {
    fn stack_frames(&self, session: u64, definitions: &Definitions, stack_id: u32) -> Vec<Frame> {
        self.symbolizer.frames(session, definitions, stack_id)
    }
    fn kernel_name(&mut self, mangled: &str) -> Arc<Name> {
        self.symbolizer.kernel_name(mangled)
    }
}
