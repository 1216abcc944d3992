//! Writes the finished profile to files that people and other tools open.
//!
//! In: a [`Profile`].
//! Out: files in one directory.
//! Drops when: never; the page folds frames too small to see and says so.
//! Runs on: the caller's thread, once per profile.
//!
//! | format | files | opens in |
//! | --- | --- | --- |
//! | `pprof` | `profile.pb.gz` (launch view), `profile.capture.pb.gz` (capture view) | `go tool pprof`, Pyroscope, Parca |
//! | `collapsed` | `profile.launch.collapsed.txt`, `profile.capture.collapsed.txt` | flamegraph.pl, inferno, grep |
//! | `speedscope` | `profile.speedscope.json`, both views inside | speedscope |
//! | `html` | `profile.html` | any browser, from disk, with no network |
//! | `json` | `profile.json` | scripts; the schema is documented in [`json`] |
//!
//! Each file is written under a temporary name, synced and renamed: under its own name a file is whole or
//! absent.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::aggregate::profile::{FrameId, Profile, WeightedStack};

pub mod json; // the machine-readable profile, also what the page reads
pub mod html; // the page with the profile inside
pub mod pprof; // profile.proto, gzipped
pub mod collapsed; // one line per stack
pub mod speedscope; // both views in one file
mod fold; // folds what is too small to see, for the page
mod rounding; // fractions to integers without changing the sum

/// A file format to export to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Format {
    /// Gzipped profile.proto.
    Pprof,
    /// One line per stack, for flamegraph.pl and grep.
    Collapsed,
    /// The file format of speedscope.
    Speedscope,
    /// The flame graph page.
    Html,
    /// The machine-readable profile.
    Json,
}

impl Format {
    /// Every format, in the order in which help texts list them.
    pub const ALL: [Format; 5] =
        [Format::Pprof, Format::Collapsed, Format::Speedscope, Format::Html, Format::Json];

    /// The name people type.
    pub fn name(self) -> &'static str {
        match self {
            Format::Pprof => "pprof",
            Format::Collapsed => "collapsed",
            Format::Speedscope => "speedscope",
            Format::Html => "html",
            Format::Json => "json",
        }
    }

    /// Names of the files that this format writes.
    pub fn file_names(self) -> &'static [&'static str] {
        match self {
            Format::Pprof => &["profile.pb.gz", "profile.capture.pb.gz"],
            Format::Collapsed => &["profile.launch.collapsed.txt", "profile.capture.collapsed.txt"],
            Format::Speedscope => &["profile.speedscope.json"],
            Format::Html => &["profile.html"],
            Format::Json => &["profile.json"],
        }
    }

    /// The contents of this format's files, in the order of [`Format::file_names`].
    fn contents(self, profile: &Profile) -> io::Result<Vec<Vec<u8>>> {
        Ok(match self {
            Format::Pprof => {
                vec![pprof::encode(profile, View::Launch)?, pprof::encode(profile, View::Capture)?]
            }
            Format::Collapsed => {
                vec![collapsed::encode(profile, View::Launch), collapsed::encode(profile, View::Capture)]
            }
            Format::Speedscope => vec![speedscope::encode(profile)?],
            Format::Html => vec![html::encode(profile)?],
            Format::Json => vec![json::encode(profile)?],
        })
    }
}

impl fmt::Display for Format {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.name())
    }
}

/// A format name that is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown export format `{0}`: expected pprof, collapsed, speedscope, html or json")]
pub struct UnknownFormat(pub String);

impl FromStr for Format {
    type Err = UnknownFormat;

    fn from_str(typed: &str) -> Result<Self, Self::Err> {
        let name = typed.trim();
        Format::ALL
            .into_iter()
            .find(|format| format.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| UnknownFormat(name.to_owned()))
    }
}

/// Which of a stack's two frame lists is exported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    /// Who launched the work, or replayed its graph.
    Launch,
    /// Which code captured the work into its graph.
    Capture,
}

impl View {
    /// The frames of `stack` in this view, root first.
    pub fn frames(self, stack: &WeightedStack) -> &[FrameId] {
        match self {
            View::Launch => &stack.launch_view,
            View::Capture => &stack.capture_view,
        }
    }

    /// The view's name for people.
    pub fn title(self) -> &'static str {
        match self {
            View::Launch => "launch view",
            View::Capture => "capture view",
        }
    }
}

/// Why a profile could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExportError {
    /// The output directory is not there and cannot be made.
    #[error("failed to create the output directory `{}` ({})", path.display(), advice(source))]
    CreateDirectory {
        /// The directory.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The profile could not be put into a format.
    #[error("failed to encode the profile as {format}")]
    Encode {
        /// The format.
        format: Format,
        /// What went wrong.
        source: io::Error,
    },
    /// A file could not be written. Nothing is left under its name, and an older file of that name is
    /// untouched.
    #[error("failed to write `{}` ({})", path.display(), advice(source))]
    WriteFile {
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

/// What the user can do about an I/O error.
fn advice(error: &io::Error) -> &'static str {
    use io::ErrorKind;
    match error.kind() {
        ErrorKind::StorageFull => "the disk is full: free space there or choose another output directory",
        ErrorKind::QuotaExceeded => {
            "the disk quota is used up: free space or choose another output directory"
        }
        ErrorKind::FileTooLarge => "the file size limit is reached: raise it with `ulimit -f` or export less",
        ErrorKind::PermissionDenied => "permission denied: choose an output directory that you may write to",
        ErrorKind::ReadOnlyFilesystem => "the file system is read-only: choose another output directory",
        ErrorKind::NotADirectory | ErrorKind::AlreadyExists => {
            "part of the path is a file, not a directory: choose another output directory"
        }
        ErrorKind::IsADirectory => "a directory has this name: remove it or choose another output directory",
        _ => "choose another output directory if this one cannot be written",
    }
}

/// Writes `profile` into `directory`, which is created if missing, and returns the files written, in order.
///
/// Stops at the first file that cannot be written; the files before it stay.
pub fn write_all(
    profile: &Profile,
    directory: &Path,
    formats: &[Format],
) -> Result<Vec<PathBuf>, ExportError> {
    fs::create_dir_all(directory)
        .map_err(|source| ExportError::CreateDirectory { path: directory.to_owned(), source })?;
    let mut written = Vec::new();
    for &format in formats {
        let contents = format.contents(profile).map_err(|source| ExportError::Encode { format, source })?;
        for (name, bytes) in format.file_names().iter().zip(contents) {
            let path = directory.join(name);
            write_whole(&path, &bytes)
                .map_err(|source| ExportError::WriteFile { path: path.clone(), source })?;
            written.push(path);
        }
    }
    Ok(written)
}

/// Puts `bytes` under `path`, or leaves `path` as it was.
fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let temporary = path.with_file_name(format!(".{name}.{}.tmp", std::process::id()));
    // A leftover of a killed process with the same id; whatever is wrong with it shows when the file is
    // opened.
    let _ = fs::remove_file(&temporary);
    let file = OpenOptions::new().write(true).create_new(true).open(&temporary)?;
    write_and_rename(file, &temporary, path, bytes)
}

/// Fills `file`, which is `temporary`, and renames it to `path`; removes it when that fails.
fn write_and_rename(mut file: File, temporary: &Path, path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Some file systems report a full disk only when asked to sync.
    let outcome = file
        .write_all(bytes)
        .and_then(|()| match file.sync_all() {
            // Pipes and some network file systems cannot sync.
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok(()),
            other => other,
        })
        .and_then(|()| fs::rename(temporary, path));
    if outcome.is_err() {
        let _ = fs::remove_file(temporary);
    }
    outcome
}

#[cfg(test)]
mod tests;
