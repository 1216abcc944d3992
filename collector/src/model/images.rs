//! Files of ELF images, kept open once per build id, for symbolization without access to the engine's file system.

use super::definitions::{BuildId, Image};
use std::collections::{HashMap, HashSet};
use std::os::fd::OwnedFd;
use std::sync::Arc;

/// Files that are kept open at once, at most; also never more than half of what the process may open.
const MAX_FILES: usize = 1024;

/// Which image, over all processes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum ImageKey {
    /// By its build id.
    BuildId(BuildId),
    /// One without a build id belongs to its process alone.
    Unidentified {
        /// Number of the process's session.
        session: u64,
        /// Dictionary id.
        image_id: u32,
    },
}

impl ImageKey {
    /// The key of an image of session `session`.
    pub fn of(image: &Image, session: u64) -> Self {
        if image.build_id.is_empty() {
            Self::Unidentified { session, image_id: image.id }
        } else {
            Self::BuildId(image.build_id.clone())
        }
    }
}

/// What became of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is kept, or another one of the same build id is.
    Yes,
    /// There are too many.
    No,
}

/// Open files by image. Clones share the files.
#[derive(Clone, Debug)]
pub struct ImageFiles {
    files: HashMap<ImageKey, Arc<OwnedFd>>,
    limit: usize,
}

impl Default for ImageFiles {
    fn default() -> Self {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: `limit` is a valid rlimit for the duration of the call.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
        let half = usize::try_from(limit.rlim_cur / 2).unwrap_or(MAX_FILES);
        Self { files: HashMap::new(), limit: half.min(MAX_FILES) }
    }
}

impl ImageFiles {
    /// Keeps `file` unless there is one for this image already.
    pub fn keep(&mut self, key: ImageKey, file: OwnedFd) -> Kept {
        if self.files.contains_key(&key) {
            return Kept::Yes;
        }
        if self.files.len() >= self.limit {
            return Kept::No;
        }
        self.files.insert(key, Arc::new(file));
        Kept::Yes
    }

    /// The file of an image.
    pub fn get(&self, key: &ImageKey) -> Option<&Arc<OwnedFd>> {
        self.files.get(key)
    }

    /// Closes all files but those of `needed`.
    pub fn retain(&mut self, needed: &HashSet<ImageKey>) {
        self.files.retain(|key, _| needed.contains(key));
    }
}
