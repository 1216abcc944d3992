//! Installs the hooks of a process that arms, and tells the collector how each was installed.
//!
//! Runs on: the thread that arms, before the first launch of an injected process.

use super::HOOKS;
use super::entry_patch;
use super::preload;
use super::refusal::Why;
use super::table::{Role, Way};
use crate::profiler::Profiler;
use bindings::dl::Library;
use shared_abi::counters::Counter;
use shared_abi::dictionary::{DefinitionKind, define};
use shared_abi::status::Status;
use shared_abi::sync::Ordering;
use std::collections::HashMap;

/// Ways by which the library came into this process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Doors {
    /// The driver loaded it (CUDA_INJECTION64_PATH).
    pub is_injected: bool,
    /// The dynamic linker loaded it (LD_PRELOAD).
    pub is_preloaded: bool,
    /// LD_PRELOAD names it.
    pub preload_was_asked_for: bool,
}

impl Doors {
    /// What the environment says.
    pub fn of_this_process(is_injected: bool) -> Self {
        let asked_for = std::env::var_os("LD_PRELOAD").unwrap_or_default();
        let preload_was_asked_for = asked_for.to_string_lossy().contains("liblaunchscope");
        Self { is_injected, is_preloaded: preload::is_preloaded(), preload_was_asked_for }
    }
}

/// Patches what can be patched, when the driver injected us; a preloaded process gets its hooks as functions are asked for.
pub fn install(profiler: &Profiler, libcuda: &Library, doors: Doors) {
    let mut refusals: HashMap<&'static core::ffi::CStr, String> = HashMap::new();
    if doors.is_injected {
        entry_patch::install_all(&HOOKS, libcuda, &mut |hook, result| {
            if let Err(refusal) = result {
                refusals.insert(hook.name, refusal.to_string());
                let function_exists = refusal.why != Why::NoSuchFunction;
                let is_needed = matches!(hook.role, Role::Launch(_) | Role::Capture);
                // A preloaded process hands our address out instead.
                if function_exists && is_needed && !doors.is_preloaded {
                    hook.way.store(Way::Callback as u32, Ordering::Relaxed);
                }
            }
        });
    }
    if HOOKS.iter().any(|hook| hook.way() == Way::Callback) {
        profiler.needs_callbacks.store(true, Ordering::Relaxed);
        let names: Vec<_> =
            refusals.iter().map(|(name, why)| format!("{}: {why}", name.to_string_lossy())).collect();
        profiler.statuses.begin(Status::HookFallback, &names.join("; "));
    }
    describe(profiler, &refusals);
}

/// Defines each hook and its way in the dictionary.
fn describe(profiler: &Profiler, refusals: &HashMap<&'static core::ffi::CStr, String>) {
    for (index, hook) in HOOKS.iter().enumerate() {
        let detail = refusals.get(hook.name).map_or("", String::as_str);
        let text = format!("{}\t{}\t{detail}", hook.name.to_string_lossy(), hook.way().name());
        let defined = define(&profiler.segment, DefinitionKind::Hook, index as u32 + 1, &[text.as_bytes()]);
        if defined.is_err() {
            profiler.count(Counter::DictionaryDropped, 1);
        }
    }
}

/// Describes again what has changed since: the hooks that a preloaded process has got meanwhile.
pub fn describe_changes(profiler: &Profiler, known: &mut Vec<Way>) {
    let now: Vec<Way> = HOOKS.iter().map(|hook| hook.way()).collect();
    if !known.is_empty() && *known != now {
        describe(profiler, &HashMap::new());
    }
    *known = now;
}
