//! Operations that are captured into a graph, and the life of graphs. Everything here passes the gate too: CUPTI
//! neither comes nor goes during it.
//!
//! Allocates and locks: yes; a capture happens when an engine starts, not when it serves.

use super::LaunchInfo;
use crate::guard::panic_fence;
use crate::lifecycle;
use crate::profiler::{ATTENTION_CAPTURE, Profiler};
use crate::thread_state::InHook;
use bindings::cuda_driver::DefaultStream;
use bindings::cuda_driver::sys::*;
use shared_abi::counters::LaneCounter;
use shared_abi::dictionary::GraphNode;
use shared_abi::sync::Ordering;

/// An operation on a capturing stream: it becomes a node, whose stack is taken.
pub fn on_captured(
    profiler: &'static Profiler,
    mut thread: InHook,
    info: LaunchInfo,
    real_launch: impl FnOnce() -> CUresult,
) -> CUresult {
    thread.add(LaneCounter::CapturedOperations, 1);
    let stack_id = panic_fence(0, || profiler.stacks.capture(&mut thread.scratch));
    let result = real_launch();
    if result == CUDA_SUCCESS {
        panic_fence((), || {
            if let Some(state) = profiler.driver.capture_state(info.stream, info.default_stream) {
                let name_id = super::name_id(profiler, info);
                profiler.graphs.node_captured(state, GraphNode { stack_id, name_id });
            }
        });
    }
    result
}

/// A stream begins to capture.
pub fn on_begin(hook: usize, real_begin: impl FnOnce() -> CUresult) -> CUresult {
    through_gate(hook, real_begin, |profiler, result| {
        if result == CUDA_SUCCESS {
            profiler.graphs.capture_began();
            profiler.attention.fetch_or(ATTENTION_CAPTURE, Ordering::Relaxed);
        }
    })
}

/// A stream ends its capture; `graph` is where the driver puts the result.
///
/// # Safety
/// `graph` is null or valid for a read after the call.
pub unsafe fn on_end(
    hook: usize,
    stream: CUstream,
    default_stream: DefaultStream,
    graph: *const CUgraph,
    real_end: impl FnOnce() -> CUresult,
) -> CUresult {
    let was_capturing = lifecycle::active()
        .is_some_and(|profiler| panic_fence(false, || profiler.driver.is_capturing(stream, default_stream)));
    through_gate(hook, real_end, |profiler, result| {
        if !was_capturing {
            return;
        }
        let made = if result == CUDA_SUCCESS && !graph.is_null() {
            // SAFETY: by the contract of this function; the driver has just written it.
            unsafe { *graph }
        } else {
            core::ptr::null_mut()
        };
        profiler.graphs.capture_ended(&profiler.driver, made);
        if profiler.graphs.open_captures() == 0 {
            profiler.attention.fetch_and(!ATTENTION_CAPTURE, Ordering::Relaxed);
        }
    })
}

/// A graph becomes executable (or an executable graph is updated from it).
///
/// # Safety
/// `executable` is null or valid for a read after the call.
pub unsafe fn on_instantiate(
    hook: usize,
    executable: *const CUgraphExec,
    graph: CUgraph,
    real_instantiate: impl FnOnce() -> CUresult,
) -> CUresult {
    through_gate(hook, real_instantiate, |profiler, result| {
        if result == CUDA_SUCCESS && !executable.is_null() {
            // SAFETY: by the contract of this function; the driver has just written it.
            profiler.graphs.instantiated(unsafe { *executable }, graph);
        }
    })
}

/// An executable graph takes over another graph's nodes.
pub fn on_update(
    hook: usize,
    executable: CUgraphExec,
    graph: CUgraph,
    real_update: impl FnOnce() -> CUresult,
) -> CUresult {
    through_gate(hook, real_update, |profiler, result| {
        if result == CUDA_SUCCESS {
            profiler.graphs.instantiated(executable, graph);
        }
    })
}

/// An executable graph goes. Forgotten first: its address may be handed out again the moment it is gone.
pub fn on_destroy_executable(
    hook: usize,
    executable: CUgraphExec,
    real_destroy: impl FnOnce() -> CUresult,
) -> CUresult {
    if let Some(profiler) = lifecycle::active() {
        panic_fence((), || profiler.graphs.executable_destroyed(executable));
    }
    through_gate(hook, real_destroy, |_, _| {})
}

/// A graph goes.
pub fn on_destroy_graph(hook: usize, graph: CUgraph, real_destroy: impl FnOnce() -> CUresult) -> CUresult {
    if let Some(profiler) = lifecycle::active() {
        panic_fence((), || profiler.graphs.graph_destroyed(graph));
    }
    through_gate(hook, real_destroy, |_, _| {})
}

fn through_gate(
    hook: usize,
    real: impl FnOnce() -> CUresult,
    after: impl FnOnce(&'static Profiler, CUresult),
) -> CUresult {
    let Some(profiler) = lifecycle::active_or_arm() else { return real() };
    let Some(thread) = InHook::enter(profiler) else { return real() };
    thread.hit(hook);
    let result = real();
    panic_fence((), || after(profiler, result));
    result
}
