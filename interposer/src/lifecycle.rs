//! The life of the library in one process: dormant, arming, on, off for ever. One enum, one place that changes it.
//!
//! ```text
//! Dormant --(cuInit injects us, or the first hooked call)--> Arming --> On
//!    ^                                                          |        |
//!    |                                                          v        v  a panic was caught
//!    +---------------- fork, in the child -----------------  Off for ever
//! ```
//!
//! A forked child begins anew at its first launch: vLLM's `LLM()` forks its engine core, whose constructors do not run.
//! At exit nothing is joined, flushed or finalized; the exit only waits for a CUPTI call that is being made.

use crate::agent;
use crate::config::{Complaint, Config, LogLevel};
use crate::guard::{kill_switch, panic_fence};
use crate::launch_hook::HOOKS;
use crate::launch_hook::install::{self, Doors};
use crate::profiler::{Profiler, segment_descriptor};
use bindings::cuda_driver::DriverApi;
use bindings::dl::Library;
use core::ffi::c_int;
use core::ptr;
use core::time::Duration;
use shared_abi::counters::Counter;
use shared_abi::segment::Sizes;
use shared_abi::status::Status;
use shared_abi::sync::{AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::sync::Once;

/// Where the process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum State {
    /// Nothing has happened; nothing is allocated.
    Dormant = 0,
    /// One thread is making the profiler.
    Arming = 1,
    /// Hooks look at launches.
    On = 2,
    /// Hooks only forward.
    OffForEver = 3,
}

static STATE: AtomicU32 = AtomicU32::new(State::Dormant as u32);
static ACTIVE: AtomicPtr<Profiler> = AtomicPtr::new(ptr::null_mut());
/// Descriptors that a forked child must close: its parent's collector waits for their end.
static SEGMENT_FD: AtomicI32 = AtomicI32::new(-1);
/// As [`SEGMENT_FD`].
pub static SOCKET_FD: AtomicI32 = AtomicI32::new(-1);

/// The armed profiler, if there is one and nothing has switched it off.
#[inline(always)]
pub fn active() -> Option<&'static Profiler> {
    // Acquire pairs with the Release in `arm`.
    let profiler = ACTIVE.load(Ordering::Acquire);
    // SAFETY: null or a leaked Profiler.
    unsafe { profiler.as_ref() }
}

/// As [`active`], but the first call of a dormant process arms it.
#[inline(always)]
pub fn active_or_arm() -> Option<&'static Profiler> {
    active().or_else(arm_if_dormant)
}

#[cold]
fn arm_if_dormant() -> Option<&'static Profiler> {
    if STATE.load(Ordering::Relaxed) == State::Dormant as u32 {
        panic_fence::panic_fence((), || arm(Door::Preload));
    }
    active()
}

/// How the library learned of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Door {
    Injection,
    Preload,
}

/// The driver has loaded us during cuInit (CUDA_INJECTION64_PATH). Returns 1, which means success.
pub fn on_injection() -> c_int {
    arm(Door::Injection);
    1
}

/// Switches off for good after a panic: hooks go on forwarding, the gate is open, CUPTI stays as it is.
fn switch_off() {
    STATE.store(State::OffForEver as u32, Ordering::Relaxed);
    let profiler = active();
    ACTIVE.store(ptr::null_mut(), Ordering::Release);
    if let Some(profiler) = profiler {
        profiler.count(Counter::PanicsCaught, 1);
        profiler.gate.open();
        profiler.statuses.begin(Status::OffAfterPanic, "");
    }
}

fn arm(door: Door) {
    let begun = STATE.compare_exchange(
        State::Dormant as u32,
        State::Arming as u32,
        Ordering::Acquire,
        Ordering::Relaxed,
    );
    if begun.is_err() || kill_switch::is_off() {
        return;
    }
    let after = match try_arm(door) {
        Some(profiler) => {
            SEGMENT_FD.store(segment_descriptor(profiler), Ordering::Relaxed);
            // Release pairs with the Acquire in `active`.
            ACTIVE.store(ptr::from_ref(profiler).cast_mut(), Ordering::Release);
            agent::start(profiler);
            State::On
        }
        None => State::OffForEver,
    };
    STATE.store(after as u32, Ordering::Release);
}

fn try_arm(door: Door) -> Option<&'static Profiler> {
    let config = Config::from_variables(std::env::vars_os());
    let log = crate::log::Log::new(&config);
    if !config.enabled {
        log.line(LogLevel::Info, format_args!("{}", Status::SwitchedOff.text()));
        return None;
    }
    let libcuda = Library::already_loaded(c"libcuda.so.1")?;
    let driver = DriverApi::find(&libcuda)
        .inspect_err(|missing| {
            log.line(LogLevel::Error, format_args!("libcuda has no function {}", missing.0))
        })
        .ok()?;
    let profiler = Profiler::new(config, driver, Sizes::DEFAULT)
        .inspect_err(|error| log.line(LogLevel::Error, format_args!("not armed: {error}")))
        .ok()?;
    panic_fence::silence();
    panic_fence::set_counter(switch_off);
    watch_process();
    let doors = Doors::of_this_process(door == Door::Injection);
    install::install(profiler, &libcuda, doors);
    announce(profiler, doors);
    Some(profiler)
}

fn announce(profiler: &Profiler, doors: Doors) {
    let way = match (doors.is_injected, doors.is_preloaded) {
        (true, true) => "injected and preloaded",
        (true, false) => "injected",
        _ => "preloaded",
    };
    profiler.log.line(
        LogLevel::Info,
        format_args!("loaded launchscope CUDA profiler version {} ({way})", env!("CARGO_PKG_VERSION")),
    );
    let statuses = &profiler.statuses;
    statuses.begin(Status::Armed, way);
    statuses.begin(Status::NoGpuWork, "");
    if !doors.is_injected {
        statuses.begin(Status::NotInjected, "");
    } else if !doors.is_preloaded && doors.preload_was_asked_for {
        statuses.begin(Status::NotPreloaded, "");
    }
    for complaint in &profiler.config.complaints {
        match complaint {
            Complaint::BadValue(text) => statuses.add_detail(Status::BadSetting, text),
            Complaint::UnknownName(name) => statuses.add_detail(Status::UnknownSetting, name),
        }
    }
    let hooked = HOOKS.iter().filter(|hook| !hook.original().is_null()).count();
    profiler.log.line(LogLevel::Debug, format_args!("{hooked} of {} driver functions hooked", HOOKS.len()));
}

/// Registers for fork and exit, once in a process and its forked children.
fn watch_process() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: functions of this library, which stays loaded.
        unsafe {
            libc::pthread_atfork(None, None, Some(in_forked_child));
            libc::atexit(at_exit);
        }
    });
}

/// In a forked child: its parent's ring, threads and identity are not its own. Async-signal-safe calls only.
unsafe extern "C" fn in_forked_child() {
    ACTIVE.store(ptr::null_mut(), Ordering::Release);
    if STATE.load(Ordering::Relaxed) != State::OffForEver as u32 {
        STATE.store(State::Dormant as u32, Ordering::Relaxed);
    }
    for descriptor in [&SEGMENT_FD, &SOCKET_FD] {
        let open = descriptor.swap(-1, Ordering::Relaxed);
        if open >= 0 {
            // SAFETY: our own descriptor; the child's copy of its owner is never used or dropped.
            unsafe { libc::close(open) };
        }
    }
}

/// At exit: no window begins any more, and a CUPTI call that is being made is waited for, at most 100 ms.
extern "C" fn at_exit() {
    let Some(profiler) = active() else { return };
    profiler.exiting.store(true, Ordering::SeqCst);
    for _ in 0..100 {
        if !profiler.inside_cupti.load(Ordering::SeqCst) {
            return;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
