//! Symbol tables of ELF files. Results are cached by image and address; the tables themselves live no longer than
//! their memory budget allows.

use super::names::name_of;
use crate::model::Name;
use crate::model::images::{ImageFiles, ImageKey};
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Addresses whose result is kept (about 100 bytes each).
const MAX_CACHED: usize = 1 << 19;
/// Anonymous memory that symbol tables may add before they are dropped: libtorch_cuda.so takes 4 MiB, all of a torch
/// process about 40.
const MEMORY_BUDGET_BYTES: u64 = 256 << 20;
/// Addresses handed to blazesym at once.
const BATCH: usize = 4096;

/// Addresses of one image that are to be looked up.
#[derive(Debug)]
pub struct Wanted {
    /// Path as its process sees it.
    pub path: Arc<str>,
    /// Addresses in the file.
    pub addresses_svma: BTreeSet<u64>,
}

impl Wanted {
    /// None yet.
    pub fn new(path: Arc<str>) -> Self {
        Self { path, addresses_svma: BTreeSet::new() }
    }
}

/// Cached results.
#[derive(Debug, Default)]
pub struct Symbols {
    known: HashMap<ImageKey, HashMap<u64, Option<Arc<Name>>>>,
    count: usize,
}

impl Symbols {
    /// The symbol at an address; `None` when there is none, or it was not looked up.
    pub fn get(&self, key: &ImageKey, svma: u64) -> Option<&Arc<Name>> {
        self.known.get(key)?.get(&svma)?.as_ref()
    }

    /// Looks up what is not known yet.
    pub fn look_up(&mut self, wanted: HashMap<ImageKey, Wanted>, files: &ImageFiles) {
        if self.count > MAX_CACHED {
            self.known.clear();
            self.count = 0;
        }
        let mut symbolizer = None;
        let floor_bytes = anonymous_bytes();
        for (key, wanted) in wanted {
            let known = self.known.entry(key.clone()).or_default();
            let missing: Vec<u64> =
                wanted.addresses_svma.into_iter().filter(|svma| !known.contains_key(svma)).collect();
            if missing.is_empty() {
                continue;
            }
            self.count += missing.len();
            let Some(path) = readable_file(&key, &wanted.path, files) else {
                known.extend(missing.into_iter().map(|svma| (svma, None)));
                continue;
            };
            let tables = symbolizer.get_or_insert_with(new_symbolizer);
            for batch in missing.chunks(BATCH) {
                // A panic over a hostile file costs its names, not the collector.
                let found = catch_unwind(AssertUnwindSafe(|| look_up_batch(tables, &path, batch)));
                let found = found.unwrap_or_else(|_| vec![None; batch.len()]);
                known.extend(batch.iter().copied().zip(found));
            }
            if anonymous_bytes().saturating_sub(floor_bytes) > MEMORY_BUDGET_BYTES {
                symbolizer = None;
            }
        }
    }
}

fn new_symbolizer() -> Symbolizer {
    Symbolizer::builder()
        .enable_code_info(false)
        .enable_inlined_fns(false)
        .enable_demangling(false)
        .enable_auto_reload(false)
        .build()
}

fn look_up_batch(symbolizer: &Symbolizer, path: &Path, batch: &[u64]) -> Vec<Option<Arc<Name>>> {
    let mut elf = Elf::new(path);
    elf.debug_syms = false;
    let Ok(found) = symbolizer.symbolize(&Source::Elf(elf), Input::VirtOffset(batch)) else {
        return vec![None; batch.len()];
    };
    let mut names = HashMap::new();
    let mut found: Vec<Option<Arc<Name>>> = found
        .into_iter()
        .map(|symbolized| match symbolized {
            Symbolized::Sym(symbol) if !symbol.name.is_empty() => {
                let name = names.entry(symbol.addr).or_insert_with(|| Arc::new(name_of(&symbol.name)));
                Some(name.clone())
            }
            _ => None,
        })
        .collect();
    found.resize(batch.len(), None);
    found
}

/// The file that was sent, or the one at the image's path; its build id must be the image's.
fn readable_file(key: &ImageKey, path: &str, files: &ImageFiles) -> Option<PathBuf> {
    let sent = files.get(key).filter(|file| is_regular(file)).map(|file| descriptor_path(file));
    let candidates = sent.into_iter().chain(path.starts_with('/').then(|| PathBuf::from(path)));
    candidates.into_iter().find(|candidate| {
        let is_file = std::fs::metadata(candidate).is_ok_and(|metadata| metadata.is_file());
        is_file && build_id_matches(key, candidate, files)
    })
}

fn build_id_matches(key: &ImageKey, candidate: &Path, files: &ImageFiles) -> bool {
    let ImageKey::BuildId(expected) = key else {
        // Without a build id only the very file that was sent is known to be the right one.
        return files.get(key).is_some_and(|file| descriptor_path(file) == candidate);
    };
    let found = catch_unwind(|| blazesym::helper::read_elf_build_id(&candidate));
    matches!(found, Ok(Ok(Some(found))) if *found == **expected)
}

fn descriptor_path(file: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}

/// Opening a FIFO again would wait for its other end.
fn is_regular(file: &OwnedFd) -> bool {
    let copy = file.try_clone().map(File::from);
    copy.and_then(|file| file.metadata()).is_ok_and(|metadata| metadata.is_file())
}

/// Resident memory that is not backed by files, in bytes; zero where /proc cannot be read.
fn anonymous_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let mut pages = text.split(' ').skip(1).map_while(|word| word.parse::<u64>().ok());
    let (resident, shared) = (pages.next().unwrap_or(0), pages.next().unwrap_or(0));
    resident.saturating_sub(shared) * 4096
}
