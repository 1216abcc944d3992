//! Stand-in until the exporters are merged: same interface, writes nothing but a note.

use crate::aggregate::profile::Profile;
use std::path::{Path, PathBuf};

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// pprof.
    Pprof,
    /// Collapsed stacks.
    Collapsed,
    /// speedscope.
    Speedscope,
    /// One HTML page.
    Html,
    /// JSON.
    Json,
}

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("writing `{path}` failed")]
pub struct ExportError {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

/// Writes the profile into `dir`.
pub fn write_all(profile: &Profile, dir: &Path, _formats: &[Format]) -> Result<Vec<PathBuf>, ExportError> {
    let path = dir.join("profile.txt");
    let text = format!("{profile:#?}\n");
    std::fs::write(&path, text).map_err(|source| ExportError { path: path.clone(), source })?;
    Ok(vec![path])
}
