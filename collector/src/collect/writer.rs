//! From intervals to files, in a thread of its own.

use super::Interval;
use crate::aggregate::build::ProcessSums;
use crate::aggregate::profile::{Profile, ProfileMeta};
use crate::config::{CollectConfig, Grouping, OutputConfig};
use crate::export::{ExportError, write_all};
use crate::moment::{file_time, host_name};
use crate::pipeline::ProfileBuilder;
use crate::summary::say;
use std::collections::{HashSet, VecDeque};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::mpsc::Receiver;
use std::thread::JoinHandle;

/// Processes of which it is remembered that people know they have no GPU data.
const MAX_SAID: usize = 4096;

#[derive(Debug, thiserror::Error)]
enum WriteError {
    #[error("creating `{path}` failed: {source}")]
    Create { path: PathBuf, source: io::Error },
    #[error("renaming `{path}` failed: {source}")]
    Rename { path: PathBuf, source: io::Error },
    #[error("{0}")]
    Export(#[from] ExportError),
}

/// Starts the thread; it ends when the channel does.
pub(super) fn start(config: CollectConfig, receiver: Receiver<Interval>) -> io::Result<JoinHandle<()>> {
    std::thread::Builder::new().name("launchscope-write".to_owned()).spawn(move || {
        let mut writer = Writer {
            config,
            builder: ProfileBuilder::default(),
            said: HashSet::new(),
            written: VecDeque::new(),
        };
        for interval in receiver {
            writer.write_interval(interval);
        }
    })
}

struct Writer {
    config: CollectConfig,
    builder: ProfileBuilder,
    said: HashSet<u64>,
    written: VecDeque<PathBuf>,
}

impl Writer {
    fn write_interval(&mut self, interval: Interval) {
        let Interval { snapshot, start_wall_ms, duration_ns } = interval;
        let time = file_time();
        let (with_data, without): (Vec<_>, Vec<_>) =
            snapshot.processes.into_iter().partition(|process| !process.rows.is_empty());
        without.iter().for_each(|process| self.say_why_there_is_nothing(process));
        let groups: Vec<&[ProcessSums]> = match self.config.grouping {
            Grouping::Merged if with_data.is_empty() => Vec::new(),
            Grouping::Merged => vec![&with_data],
            Grouping::PerProcess => with_data.chunks(1).collect(),
        };
        for group in groups {
            let name = match (self.config.grouping, group.first()) {
                (Grouping::PerProcess, Some(process)) => {
                    format!("{time}-{}-{}", process.process_id, process.session)
                }
                _ => time.clone(),
            };
            let said = &self.config.output.title;
            let meta = ProfileMeta {
                title: if said.is_empty() { format!("launchscope {name}") } else { said.clone() },
                version: env!("CARGO_PKG_VERSION").to_owned(),
                start_wall_ms,
                duration_ns,
                labels: [("host".to_owned(), host_name())].into(),
                ..ProfileMeta::default()
            };
            // A panic over one hostile process costs its profile, not the others'.
            let builder = &mut self.builder;
            let built = catch_unwind(AssertUnwindSafe(|| builder.build(group, &snapshot.files, meta)));
            match built {
                Ok(profile) => self.write(&profile, &name),
                Err(_) => self.builder = ProfileBuilder::default(),
            }
        }
    }

    fn write(&mut self, profile: &Profile, name: &str) {
        let output = &self.config.output;
        match catch_unwind(|| write_rotated(profile, output, name)) {
            Ok(Ok(path)) => {
                say(output.talk, &format!("launchscope: wrote {}", path.display()));
                self.written.push_back(path);
            }
            // The next interval may fare better: a full disk does not stop the reading.
            Ok(Err(error)) => eprintln!("launchscope: writing profile {name} failed: {error}"),
            Err(_) => eprintln!("launchscope: writing profile {name} failed by an internal error"),
        }
        while self.config.keep.is_some_and(|keep| self.written.len() > keep) {
            let Some(oldest) = self.written.pop_front() else { return };
            // Someone may have moved it away already.
            let _gone = std::fs::remove_dir_all(oldest);
        }
    }

    /// Once per process: never no data without a reason.
    fn say_why_there_is_nothing(&mut self, process: &ProcessSums) {
        if self.said.len() >= MAX_SAID || !self.said.insert(process.session) {
            return;
        }
        let reasons = process.statuses.iter().filter(|status| status.holds);
        let reasons: Vec<String> =
            reasons.map(|status| format!("{} ({})", status.name, status.text)).collect();
        let reasons =
            if reasons.is_empty() { "it reported no status".to_owned() } else { reasons.join("; ") };
        let words = format!("launchscope: process {} has no GPU data yet: {reasons}", process.process_id);
        say(self.config.output.talk, &words);
    }
}

/// Files appear whole or not at all: they are written into a directory of another name, which is renamed.
fn write_rotated(profile: &Profile, output: &OutputConfig, name: &str) -> Result<PathBuf, WriteError> {
    let temporary = output.directory.join(format!(".{name}.partial"));
    let place = free_path(&output.directory, name);
    let written = write_into(profile, output, &temporary, &place);
    if written.is_err() {
        // Nothing else can be done about the remains.
        let _remains = std::fs::remove_dir_all(&temporary);
    }
    written.map(|()| place)
}

fn write_into(
    profile: &Profile,
    output: &OutputConfig,
    temporary: &Path,
    place: &Path,
) -> Result<(), WriteError> {
    let create_error = |source| WriteError::Create { path: temporary.to_owned(), source };
    std::fs::create_dir_all(temporary).map_err(create_error)?;
    write_all(profile, temporary, &output.formats)?;
    std::fs::rename(temporary, place).map_err(|source| WriteError::Rename { path: place.to_owned(), source })
}

/// Two intervals may end in one second.
fn free_path(directory: &Path, name: &str) -> PathBuf {
    let numbered = (1u32..).map(|number| directory.join(format!("{name}.{number}")));
    let mut candidates = std::iter::once(directory.join(name)).chain(numbered);
    candidates.find(|path| !path.exists()).unwrap_or_else(|| directory.join(name))
}
