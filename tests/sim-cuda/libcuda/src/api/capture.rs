//! Stream capture.

use crate::abi::*;
use crate::call::{run, twin};
use crate::entry::Api;
use crate::thread;
use crate::world::{Capture, Graph, World, lock};
use core::ffi::c_void;
use core::ptr;

struct Begin {
    mode: i32,
    /// The caller's graph and what the first node shall depend on.
    into: Option<(Handle, Vec<Handle>)>,
}

fn begin_capture(stream: Handle, per_thread: bool, begin: Begin) -> Driver<()> {
    let mut world = lock();
    let found = world.resolve_stream(stream, per_thread)?;
    if !(CAPTURE_MODE_GLOBAL..=CAPTURE_MODE_RELAXED).contains(&begin.mode) {
        return Err(INVALID_VALUE);
    }
    if world.is_legacy(found) {
        return Err(STREAM_CAPTURE_UNSUPPORTED);
    }
    if world.streams.get(found)?.capture.is_some() {
        return Err(ILLEGAL_STATE);
    }
    let to_graph = begin.into.is_some();
    let (graph, dependencies) = match begin.into {
        Some((graph, dependencies)) => {
            world.graphs.get(graph)?;
            if dependencies.iter().any(|node| world.nodes.get(*node).copied() != Ok(graph)) {
                return Err(INVALID_VALUE);
            }
            (graph, dependencies)
        }
        None => (world.graphs.insert(Graph { nodes: Vec::new() }), Vec::new()),
    };
    let id = world.new_capture_id();
    world.streams.get_mut(found)?.capture = Some(Capture {
        id,
        graph,
        to_graph,
        mode: begin.mode,
        thread: thread::number(),
        invalidated: false,
        dependencies: dependencies.into_boxed_slice(),
    });
    Ok(())
}

pub extern "C" fn begin<const PER_THREAD: bool>(stream: Handle) -> CUresult {
    let api = twin::<PER_THREAD>(Api::cuStreamBeginCapture, Api::cuStreamBeginCapture_ptsz);
    run(api, || begin_capture(stream, PER_THREAD, Begin { mode: CAPTURE_MODE_GLOBAL, into: None }))
}

pub extern "C" fn begin_v2<const PER_THREAD: bool>(stream: Handle, mode: i32) -> CUresult {
    let api = twin::<PER_THREAD>(Api::cuStreamBeginCapture_v2, Api::cuStreamBeginCapture_v2_ptsz);
    run(api, || begin_capture(stream, PER_THREAD, Begin { mode, into: None }))
}

pub extern "C" fn begin_to_graph<const PER_THREAD: bool>(
    stream: Handle,
    graph: Handle,
    dependencies: In<Handle>,
    _edges: usize,
    count: usize,
    mode: i32,
) -> CUresult {
    let api = twin::<PER_THREAD>(Api::cuStreamBeginCaptureToGraph, Api::cuStreamBeginCaptureToGraph_ptsz);
    run(api, || {
        let into = Some((graph, dependencies.list(count)?));
        begin_capture(stream, PER_THREAD, Begin { mode, into })
    })
}

pub extern "C" fn end<const PER_THREAD: bool>(stream: Handle, graph: Out<Handle>) -> CUresult {
    let api = twin::<PER_THREAD>(Api::cuStreamEndCapture, Api::cuStreamEndCapture_ptsz);
    run(api, || {
        let mut world = lock();
        let found = world.resolve_stream(stream, PER_THREAD)?;
        let capture = world.streams.get(found)?.capture.as_ref().ok_or(ILLEGAL_STATE)?;
        if capture.mode != CAPTURE_MODE_RELAXED && capture.thread != thread::number() {
            return Err(STREAM_CAPTURE_WRONG_THREAD);
        }
        let Some(capture) = world.streams.get_mut(found)?.capture.take() else { return Err(ILLEGAL_STATE) };
        if !capture.invalidated {
            return graph.set(capture.graph);
        }
        if !capture.to_graph {
            destroy_graph(&mut world, capture.graph)?;
        }
        graph.set(0)?;
        Err(STREAM_CAPTURE_INVALIDATED)
    })
}

/// Removes a graph and its nodes.
pub fn destroy_graph(world: &mut World, graph: Handle) -> Driver<()> {
    for node in world.graphs.remove(graph)?.nodes {
        let _ = world.nodes.remove(node.handle);
    }
    Ok(())
}

fn status(world: &World, stream: Handle) -> Driver<i32> {
    Ok(match &world.streams.get(stream)?.capture {
        None => CAPTURE_STATUS_NONE,
        Some(capture) if capture.invalidated => CAPTURE_STATUS_INVALIDATED,
        Some(_) => CAPTURE_STATUS_ACTIVE,
    })
}

/// Resolves the stream of a question, which the legacy stream cannot answer while a blocking one captures.
fn asked(world: &mut World, stream: Handle, per_thread: bool) -> Driver<Handle> {
    let found = world.resolve_stream(stream, per_thread)?;
    world.check_legacy_question(found)?;
    Ok(found)
}

pub extern "C" fn is_capturing<const PER_THREAD: bool>(stream: Handle, answer: Out<i32>) -> CUresult {
    run(twin::<PER_THREAD>(Api::cuStreamIsCapturing, Api::cuStreamIsCapturing_ptsz), || {
        let mut world = lock();
        let found = asked(&mut world, stream, PER_THREAD)?;
        answer.set(status(&world, found)?)
    })
}

/// Where the parts of an answer go.
struct Info {
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<Handle>,
    dependencies: Out<*const Handle>,
    count: Out<usize>,
}

fn capture_info(stream: Handle, per_thread: bool, info: Info) -> Driver<()> {
    let mut world = lock();
    let found = asked(&mut world, stream, per_thread)?;
    let status = status(&world, found)?;
    info.status.set(status)?;
    if let Some(capture) = &world.streams.get(found)?.capture
        && status == CAPTURE_STATUS_ACTIVE
    {
        info.id.set_if_wanted(capture.id);
        info.graph.set_if_wanted(capture.graph);
        info.dependencies.set_if_wanted(capture.dependencies.as_ptr());
        info.count.set_if_wanted(capture.dependencies.len());
    }
    Ok(())
}

pub extern "C" fn info<const PER_THREAD: bool>(stream: Handle, status: Out<i32>, id: Out<u64>) -> CUresult {
    run(twin::<PER_THREAD>(Api::cuStreamGetCaptureInfo, Api::cuStreamGetCaptureInfo_ptsz), || {
        let nothing = Info { status, id, graph: Out::null(), dependencies: Out::null(), count: Out::null() };
        capture_info(stream, PER_THREAD, nothing)
    })
}

pub extern "C" fn info_v2<const PER_THREAD: bool>(
    stream: Handle,
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<Handle>,
    dependencies: Out<*const Handle>,
    count: Out<usize>,
) -> CUresult {
    run(twin::<PER_THREAD>(Api::cuStreamGetCaptureInfo_v2, Api::cuStreamGetCaptureInfo_v2_ptsz), || {
        capture_info(stream, PER_THREAD, Info { status, id, graph, dependencies, count })
    })
}

pub extern "C" fn info_v3<const PER_THREAD: bool>(
    stream: Handle,
    status: Out<i32>,
    id: Out<u64>,
    graph: Out<Handle>,
    dependencies: Out<*const Handle>,
    edges: Out<*const c_void>,
    count: Out<usize>,
) -> CUresult {
    run(twin::<PER_THREAD>(Api::cuStreamGetCaptureInfo_v3, Api::cuStreamGetCaptureInfo_v3_ptsz), || {
        capture_info(stream, PER_THREAD, Info { status, id, graph, dependencies, count })?;
        // All edges are plain ones, which have no data.
        edges.set_if_wanted(ptr::null());
        Ok(())
    })
}

pub extern "C" fn exchange_mode(mode: Out<i32>) -> CUresult {
    run(Api::cuThreadExchangeStreamCaptureMode, || {
        let new = mode.get()?;
        if !(CAPTURE_MODE_GLOBAL..=CAPTURE_MODE_RELAXED).contains(&new) {
            return Err(INVALID_VALUE);
        }
        mode.set(thread::exchange_capture_mode(new))
    })
}
