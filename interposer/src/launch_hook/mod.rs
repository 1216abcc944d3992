//! The launch hook: what happens around every launch, on one screen.
//!
//! In: a driver call that launches, copies or sets. Out: `LaunchSample`s; counts in the thread's lane.
//! Drops when: the thread is inside a hook already, or the ring is full (both counted).
//! Runs on: the launching thread.
//!
//! Allocates: a thread's state at its first launch, and while a stream captures. Locks: while a stream captures.
//! Syscalls: none, but for those of `ThreadState`, of a closed gate, and of `StackCapture` for its first 64 Python stacks.
//! Cost: see `benches/benches/launch_hook.rs`.

pub mod table; // what a hook is
pub mod hooks; // the hooked functions
pub mod capture; // captured operations and graph life
pub mod install; // hooks of a process that arms
pub mod names; // the exported driver names
pub mod entry_patch; // hooks installed by patching a function's entry
pub mod refusal; // why a function was not patched
#[cfg_attr(target_arch = "x86_64", path = "moved_code_x86_64.rs")]
#[cfg_attr(not(target_arch = "x86_64"), path = "moved_code_other.rs")]
mod moved_code; // which instructions give way, and what they look like elsewhere
pub mod trampoline; // pages within reach
pub mod memory_map; // what lies where
mod text_write; // the jump itself
pub mod preload; // hooks handed out by dlsym and cuGetProcAddress
pub mod real_dlsym; // the C library's own

use crate::clock::host_ns;
use crate::guard::panic_fence;
use crate::lifecycle;
use crate::profiler::{ATTENTION_CAPTURE, ATTENTION_WINDOW, Profiler};
use crate::thread_state::{InHook, ThreadState, correlation_id, set_correlation_id};
use bindings::cuda_driver::DefaultStream;
use bindings::cuda_driver::sys::*;
use bindings::cupti::sys::CUpti_CallbackData;
use core::ffi::c_void;
use core::ptr;
pub use hooks::HOOKS;
use shared_abi::counters::LaneCounter;
use shared_abi::record::{LAUNCH_CHOSEN, LAUNCH_IN_WINDOW, LaunchKind, LaunchSample, RecordKind};
use shared_abi::sync::Ordering;
use table::{Role, Way};
use zerocopy::IntoBytes as _;

/// What is being launched.
#[derive(Clone, Copy, Debug)]
pub struct LaunchInfo {
    /// Index in [`HOOKS`].
    pub hook: usize,
    /// What kind.
    pub kind: LaunchKind,
    /// On which stream.
    pub stream: CUstream,
    /// What stream 0 means.
    pub default_stream: DefaultStream,
    /// CUfunction or CUgraphExec; null for copies and memsets.
    pub handle: *mut c_void,
}

/// Around every launch: pass the gate, count, perhaps look, forward.
#[inline(always)]
pub fn on_launch(info: LaunchInfo, real_launch: impl FnOnce() -> CUresult) -> CUresult {
    let Some(profiler) = lifecycle::active_or_arm() else { return real_launch() };
    let Some(mut thread) = InHook::enter(profiler) else { return real_launch() };
    thread.hit(info.hook);
    let chosen = thread.choose(info.kind, profiler.epoch.current());
    // Relaxed: changed only while the gate is closed, which this thread has passed.
    let attention = profiler.attention.load(Ordering::Relaxed);
    if chosen.is_none() && attention == 0 {
        thread.add(seen(info.kind), 1);
        return real_launch();
    }
    look(profiler, thread, info, chosen, attention, real_launch)
}

/// A launch that is sampled, captured or inside a window.
#[cold]
#[inline(never)]
fn look(
    profiler: &'static Profiler,
    mut thread: InHook,
    info: LaunchInfo,
    chosen: Option<f64>,
    attention: u32,
    real_launch: impl FnOnce() -> CUresult,
) -> CUresult {
    if attention & ATTENTION_CAPTURE != 0 && profiler.driver.is_capturing(info.stream, info.default_stream) {
        return capture::on_captured(profiler, thread, info, real_launch);
    }
    thread.add(seen(info.kind), 1);
    let in_window = attention & ATTENTION_WINDOW != 0;
    let before = panic_fence(None, || Some(Before::take(profiler, &mut thread, info, in_window)));
    let result = real_launch();
    if let (Some(before), CUDA_SUCCESS) = (before, result) {
        panic_fence((), || before.send(profiler, &thread, info, chosen));
    }
    result
}

/// What is known before the driver is called.
struct Before {
    host_ns: u64,
    context: CUcontext,
    stack_id: u32,
    name_id: u32,
    graph_id: u32,
    in_window: bool,
}

impl Before {
    fn take(
        profiler: &'static Profiler,
        thread: &mut ThreadState,
        info: LaunchInfo,
        in_window: bool,
    ) -> Self {
        let errno = Errno::save();
        let context = profiler.driver.current_context();
        profiler.contexts.insert(context);
        // Relaxed: a hint to the helper thread.
        profiler.has_launched.store(true, Ordering::Relaxed);
        let before = Self {
            stack_id: profiler.stacks.capture(&mut thread.scratch),
            name_id: if in_window { 0 } else { name_id(profiler, info) },
            graph_id: if info.kind == LaunchKind::Graph {
                profiler.graphs.definition_of(info.handle)
            } else {
                0
            },
            context,
            in_window,
            host_ns: host_ns(),
        };
        set_correlation_id(0);
        drop(errno);
        before
    }

    fn send(self, profiler: &Profiler, thread: &ThreadState, info: LaunchInfo, chosen: Option<f64>) {
        let ended_ns = host_ns();
        if self.in_window {
            thread.add(in_window(info.kind), 1);
        }
        if chosen.is_some() {
            thread.add(sampled(info.kind), 1);
        }
        let sample = LaunchSample {
            host_ns: self.host_ns,
            inclusion_probability_bits: chosen.unwrap_or(0.0).to_bits(),
            stream: info.stream as u64,
            context: self.context as u64,
            handle: info.handle as u64,
            thread_id: thread.thread_id,
            launch_kind: info.kind as u32,
            flags: if chosen.is_some() { LAUNCH_CHOSEN } else { 0 }
                | if self.in_window { LAUNCH_IN_WINDOW } else { 0 },
            stack_id: self.stack_id,
            name_id: self.name_id,
            graph_id: self.graph_id,
            window_id: if self.in_window { profiler.window_id.load(Ordering::Relaxed) } else { 0 },
            correlation_id: if self.in_window { correlation_id() } else { 0 },
            hook: info.hook as u32,
            call_ns: ended_ns.saturating_sub(self.host_ns).min(u64::from(u32::MAX)) as u32,
            lane: thread.lane(),
            reserved: 0,
        };
        profiler.ring().write(RecordKind::LaunchSample, self.host_ns, &[sample.as_bytes()]);
    }
}

/// A launch function that could not be hooked is seen here, while CUPTI is attached.
pub fn on_callback(cbid: u32, data: &CUpti_CallbackData) {
    let Some((index, hook)) = HOOKS.iter().enumerate().find(|(_, hook)| hook.cbid == cbid) else { return };
    let (Way::Callback, Role::Launch(kind)) = (hook.way(), hook.role) else { return };
    let Some(profiler) = lifecycle::active() else { return };
    let handle = if kind == LaunchKind::Memory { ptr::null_mut() } else { launch_handle(hook.name, data) };
    let info = LaunchInfo {
        hook: index,
        kind,
        stream: ptr::null_mut(),
        default_stream: DefaultStream::Legacy,
        handle,
    };
    let Some(mut thread) = InHook::enter(profiler) else { return };
    let chosen = thread.choose(kind, profiler.epoch.current());
    let correlation = data.correlationId;
    thread.hit(index);
    thread.add(seen(kind), 1);
    let before = Before::take(profiler, &mut thread, info, true);
    set_correlation_id(correlation);
    before.send(profiler, &thread, info, chosen);
}

/// The function or executable graph among a launch's parameters.
fn launch_handle(name: &core::ffi::CStr, data: &CUpti_CallbackData) -> *mut c_void {
    if data.functionParams.is_null() {
        return ptr::null_mut();
    }
    // cuLaunchKernelEx has its configuration first; all others begin with the handle.
    let index = usize::from(name.to_bytes().starts_with(b"cuLaunchKernelEx"));
    // SAFETY: CUPTI's parameter structs hold the arguments in order; both are pointers in all launch functions.
    unsafe { *data.functionParams.cast::<*mut c_void>().add(index) }
}

fn name_id(profiler: &Profiler, info: LaunchInfo) -> u32 {
    match info.kind {
        LaunchKind::Kernel | LaunchKind::CooperativeKernel => profiler
            .driver
            .function_name(info.handle)
            .map_or(0, |name| profiler.names.intern_c(&profiler.segment, name)),
        LaunchKind::Graph | LaunchKind::Memory => 0,
    }
}

/// Puts errno back when it goes out of scope: the driver's callers may look at it.
struct Errno(i32);

impl Errno {
    fn save() -> Self {
        // SAFETY: errno of this thread.
        Self(unsafe { *libc::__errno_location() })
    }
}

impl Drop for Errno {
    fn drop(&mut self) {
        // SAFETY: errno of this thread.
        unsafe { *libc::__errno_location() = self.0 };
    }
}

#[inline(always)]
fn seen(kind: LaunchKind) -> LaneCounter {
    match kind {
        LaunchKind::Kernel | LaunchKind::CooperativeKernel => LaneCounter::KernelLaunches,
        LaunchKind::Graph => LaneCounter::GraphLaunches,
        LaunchKind::Memory => LaneCounter::MemoryOperations,
    }
}

fn sampled(kind: LaunchKind) -> LaneCounter {
    match kind {
        LaunchKind::Kernel | LaunchKind::CooperativeKernel => LaneCounter::KernelLaunchesSampled,
        LaunchKind::Graph => LaneCounter::GraphLaunchesSampled,
        LaunchKind::Memory => LaneCounter::MemoryOperationsSampled,
    }
}

fn in_window(kind: LaunchKind) -> LaneCounter {
    match kind {
        LaunchKind::Kernel | LaunchKind::CooperativeKernel => LaneCounter::KernelLaunchesInWindow,
        LaunchKind::Graph => LaneCounter::GraphLaunchesInWindow,
        LaunchKind::Memory => LaneCounter::MemoryOperationsInWindow,
    }
}
