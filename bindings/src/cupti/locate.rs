//! Which copy of CUPTI to use. The engine's own, if it has one mapped: two copies in one process are two tools. Its
//! major version must be the driver's, and a second major is never loaded beside a first.
//!
//! Order: mapped; LAUNCHSCOPE_CUPTI_LIBRARY; beside the mapped libcudart (CUDA 13 wheels: same directory; CUDA 12
//! wheels: `../../cuda_cupti/lib`); the toolkit under /usr/local; the plain name.

use crate::dl::Library;
use std::ffi::CString;
use std::path::{Path, PathBuf};

/// A CUPTI that was found, and where.
#[derive(Clone, Debug)]
pub struct Located {
    /// The library, loaded.
    pub library: Library,
    /// How it was found, in words.
    pub place: String,
}

/// Finds CUPTI for a driver of `driver_version` (for example 13000). `Err` lists what was tried.
pub fn locate(driver_version: i32, configured: Option<&Path>) -> Result<Located, String> {
    let major = driver_version / 1000;
    if let Some(path) = configured {
        return load(path)
            .ok_or_else(|| format!("LAUNCHSCOPE_CUPTI_LIBRARY={} could not be loaded", path.display()));
    }
    for candidate_major in majors(major) {
        let name = format!("libcupti.so.{candidate_major}");
        if let Some(library) = CString::new(name.clone()).ok().and_then(|name| Library::already_loaded(&name))
        {
            return Ok(Located { library, place: format!("{name}, already mapped by the process") });
        }
    }
    let mapped = mapped_files();
    let mut tried = vec!["a copy that the process has mapped".to_owned()];
    for candidate_major in majors(major) {
        for path in candidates(candidate_major, &mapped) {
            if path.components().count() > 1 && !path.exists() {
                continue;
            }
            if let Some(located) = load(&path) {
                return Ok(located);
            }
            tried.push(path.display().to_string());
        }
    }
    tried.push("beside libcudart, /usr/local/cuda*/extras/CUPTI/lib64 and the linker's own path".to_owned());
    Err(format!("tried {} for driver {driver_version}", tried.join(", ")))
}

/// A driver runs tools of its own major and of older ones.
fn majors(driver_major: i32) -> impl Iterator<Item = i32> {
    (12..=driver_major.clamp(12, 13)).rev()
}

fn load(path: &Path) -> Option<Located> {
    let name = CString::new(path.as_os_str().as_encoded_bytes()).ok()?;
    Library::load(&name).map(|library| Located { library, place: path.display().to_string() })
}

fn candidates(major: i32, mapped: &[PathBuf]) -> Vec<PathBuf> {
    let name = format!("libcupti.so.{major}");
    let mut paths = Vec::new();
    let cudart = mapped.iter().filter(|path| file_name_starts_with(path, "libcudart"));
    for directory in cudart.filter_map(|path| path.parent()) {
        paths.push(directory.join(&name));
        paths.push(directory.join("../../cuda_cupti/lib").join(&name));
        paths.push(directory.join("../extras/CUPTI/lib64").join(&name));
    }
    // A driver-only process: the simulated or vendor libcuda may lie beside its CUPTI.
    let libcuda = mapped.iter().filter(|path| file_name_starts_with(path, "libcuda.so"));
    paths.extend(libcuda.filter_map(|path| path.parent()).map(|directory| directory.join(&name)));
    paths.push(PathBuf::from("/usr/local/cuda/extras/CUPTI/lib64").join(&name));
    paths.push(PathBuf::from(format!("/usr/local/cuda-{major}/extras/CUPTI/lib64")).join(&name));
    paths.push(PathBuf::from("/usr/local/cuda/lib64").join(&name));
    paths.push(PathBuf::from(name));
    paths
}

fn file_name_starts_with(path: &Path, prefix: &str) -> bool {
    path.file_name().is_some_and(|name| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
}

/// Files of /proc/self/maps, each once.
fn mapped_files() -> Vec<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let mut files: Vec<PathBuf> = maps
        .lines()
        .filter_map(|line| line.find('/').and_then(|at| line.get(at..)))
        .map(PathBuf::from)
        .collect();
    files.dedup();
    files
}
