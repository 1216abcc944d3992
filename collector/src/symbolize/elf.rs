//! Symbol tables of ELF files. Results are cached by image and address; the tables themselves are dropped after each
//! image, so that they never take more memory than the largest one.

use super::names::name_of;
use super::skeleton::skeleton;
use crate::model::Name;
use crate::model::images::{ImageFiles, ImageKey};
use blazesym::symbolize::source::{Elf, Source};
use blazesym::symbolize::{Input, Symbolized, Symbolizer};
use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Addresses whose result is kept (about 100 bytes each).
const MAX_CACHED: usize = 1 << 19;
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
        for (key, wanted) in wanted {
            let known = self.known.entry(key.clone()).or_default();
            let missing: Vec<u64> =
                wanted.addresses_svma.into_iter().filter(|svma| !known.contains_key(svma)).collect();
            if missing.is_empty() {
                continue;
            }
            self.count += missing.len();
            // A panic over a hostile file costs its names, not the collector.
            let found = catch_unwind(AssertUnwindSafe(|| look_up_image(&key, &wanted.path, files, &missing)));
            let found = found.ok().flatten().unwrap_or_else(|| vec![None; missing.len()]);
            known.extend(missing.into_iter().zip(found));
        }
    }
}

/// The names of these addresses; `None` when the image's file cannot be had.
fn look_up_image(
    key: &ImageKey,
    path: &str,
    files: &ImageFiles,
    addresses: &[u64],
) -> Option<Vec<Option<Arc<Name>>>> {
    let tables = symbol_file(key, path, files)?;
    let path = descriptor_path(&tables);
    let symbolizer = new_symbolizer();
    Some(addresses.chunks(BATCH).flat_map(|batch| look_up_batch(&symbolizer, &path, batch)).collect())
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

/// Symbol tables of the file that was sent, or of the one at the image's path; its build id must be the image's.
fn symbol_file(key: &ImageKey, path: &str, files: &ImageFiles) -> Option<File> {
    let sent = files.get(key).and_then(|file| file.try_clone().ok()).map(File::from);
    let at_path = || {
        // Without a build id only the very file that was sent is known to be the right one.
        let may_look = path.starts_with('/') && matches!(key, ImageKey::BuildId(_));
        let is_file = || std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
        (may_look && is_file()).then(|| File::open(path).ok()).flatten()
    };
    let candidates = std::iter::once_with(|| sent).chain(std::iter::once_with(at_path)).flatten();
    // A FIFO would wait for its other end.
    let regular = candidates.filter(|file| file.metadata().is_ok_and(|metadata| metadata.is_file()));
    regular.filter_map(|file| skeleton(&file).ok()).find(|tables| build_id_matches(key, tables))
}

fn build_id_matches(key: &ImageKey, tables: &File) -> bool {
    let ImageKey::BuildId(expected) = key else { return true };
    let found = blazesym::helper::read_elf_build_id(&descriptor_path(tables));
    matches!(found, Ok(Some(found)) if *found == **expected)
}

fn descriptor_path(file: &File) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()))
}
