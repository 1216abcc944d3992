//! What really happened, for tests to compare with: written as JSON to the file that SIM_CUDA_TRUTH names (`%p` in the
//! name becomes the process id) at exit and on `simcuda_write_truth()`. A forked child writes nothing.

use crate::call;
use crate::entry::{CALLS, NAMES};
use core::ffi::{CStr, c_int};
use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::fmt::Write;
use std::sync::Mutex;

pub static SUBSCRIBES: AtomicU64 = AtomicU64::new(0);
pub static FINALIZES: AtomicU64 = AtomicU64::new(0);
pub static CONTEXTS_LOST: AtomicU64 = AtomicU64::new(0);
pub static CAPTURES_INVALIDATED: AtomicU64 = AtomicU64::new(0);
pub static CALLBACKS_DELIVERED: AtomicU64 = AtomicU64::new(0);
pub static RECORDS_DROPPED: AtomicU64 = AtomicU64::new(0);

#[derive(Clone, Copy, Default)]
struct KernelTruth {
    launches: u64,
    gpu_ns: u64,
}

/// By the address of the name, of which there is one copy for the life of the process.
static KERNELS: Mutex<BTreeMap<usize, (&'static CStr, KernelTruth)>> = Mutex::new(BTreeMap::new());

pub fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

/// A kernel was scheduled, alone or in a graph.
pub fn kernel(name: &'static CStr, gpu_ns: u64) {
    let mut kernels = KERNELS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (_, truth) = kernels.entry(name.as_ptr() as usize).or_insert((name, KernelTruth::default()));
    truth.launches += 1;
    truth.gpu_ns += gpu_ns;
}

/// Writes the file now. 0 on success, 1 without SIM_CUDA_TRUTH or when it cannot be written.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_write_truth() -> c_int {
    if call::is_forked_child() {
        return 1;
    }
    let Some(path) = std::env::var("SIM_CUDA_TRUTH").ok().filter(|path| !path.is_empty()) else { return 1 };
    let path = path.replace("%p", &std::process::id().to_string());
    c_int::from(std::fs::write(path, json()).is_err())
}

extern "C" fn at_exit() {
    simcuda_write_truth();
}

// A function without arguments is what the section holds; the loader calls it at the end of `exit`.
#[unsafe(link_section = ".fini_array")]
#[used]
static AT_EXIT: extern "C" fn() = at_exit;

fn json() -> String {
    let mut text = String::from("{\n");
    for (name, counter) in [
        ("subscribes", &SUBSCRIBES),
        ("finalizes", &FINALIZES),
        ("contexts_lost", &CONTEXTS_LOST),
        ("captures_invalidated", &CAPTURES_INVALIDATED),
        ("callbacks_delivered", &CALLBACKS_DELIVERED),
        ("records_dropped", &RECORDS_DROPPED),
        ("entry_thunk_hits", &crate::entry::THUNK_HITS),
    ] {
        let _ = writeln!(text, "  \"{name}\": {},", counter.load(Ordering::Relaxed));
    }
    let kernels = KERNELS.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let rows = kernels.values().map(|(name, truth)| {
        let (name, KernelTruth { launches, gpu_ns }) = (quoted(name), truth);
        format!("    {name}: {{\"launches\": {launches}, \"gpu_ns\": {gpu_ns}}}")
    });
    let _ = writeln!(text, "  \"kernels\": {{\n{}\n  }},", rows.collect::<Vec<_>>().join(",\n"));
    let calls = NAMES.iter().zip(&CALLS).filter_map(|(name, calls)| {
        let calls = calls.load(Ordering::Relaxed);
        (calls > 0).then(|| format!("    {}: {calls}", quoted(name)))
    });
    let _ = writeln!(text, "  \"calls\": {{\n{}\n  }}\n}}", calls.collect::<Vec<_>>().join(",\n"));
    text
}

fn quoted(name: &CStr) -> String {
    let text = name.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{text}\"")
}
