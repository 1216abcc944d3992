//! Graphs, their nodes and executables.

use crate::abi::*;
use crate::api::capture::destroy_graph;
use crate::api::launch::kernel_operation;
use crate::call::{run, twin};
use crate::entry::Api;
use crate::world::{Executable, Graph, Node, Operation, World, lock};

const UPDATE_SUCCESS: i32 = 0;
const UPDATE_TOPOLOGY_CHANGED: i32 = 2;
const UPDATE_NODE_TYPE_CHANGED: i32 = 3;

fn type_of(operation: &Operation) -> i32 {
    match operation {
        Operation::Kernel { .. } => 0,
        Operation::Copy { .. } => 1,
        Operation::Set { .. } => 2,
        Operation::Host { .. } => 3,
    }
}

pub extern "C" fn create(graph: Out<Handle>, flags: u32) -> CUresult {
    run(Api::cuGraphCreate, || {
        if flags != 0 || graph.is_null() {
            return Err(INVALID_VALUE);
        }
        graph.set(lock().graphs.insert(Graph { nodes: Vec::new() }))
    })
}

pub extern "C" fn destroy(graph: Handle) -> CUresult {
    run(Api::cuGraphDestroy, || destroy_graph(&mut lock(), graph))
}

fn add_kernel(
    node: Out<Handle>,
    graph: Handle,
    dependencies: Driver<Vec<Handle>>,
    function: Handle,
    params: KernelNodeParams,
) -> Driver<()> {
    let mut world = lock();
    if dependencies?.iter().any(|other| world.nodes.get(*other).copied() != Ok(graph)) {
        return Err(INVALID_VALUE);
    }
    let KernelNodeParams { grid, block, shared_bytes, .. } = params;
    let operation = kernel_operation(&world, function, grid, block, shared_bytes)?;
    node.set(world.add_node(graph, operation)?)
}

pub extern "C" fn add_kernel_node(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    params: In<KernelNodeParams>,
) -> CUresult {
    run(Api::cuGraphAddKernelNode, || {
        let params = params.get()?;
        add_kernel(node, graph, dependencies.list(count), params.function, params)
    })
}

pub extern "C" fn add_kernel_node_v2(
    node: Out<Handle>,
    graph: Handle,
    dependencies: In<Handle>,
    count: usize,
    params: In<KernelNodeParamsV2>,
) -> CUresult {
    run(Api::cuGraphAddKernelNode_v2, || {
        let params = params.get()?;
        let function = if params.first.function == 0 { params.kernel } else { params.first.function };
        add_kernel(node, graph, dependencies.list(count), function, params.first)
    })
}

pub extern "C" fn get_nodes(graph: Handle, nodes: Out<Handle>, count: Out<usize>) -> CUresult {
    run(Api::cuGraphGetNodes, || {
        let world = lock();
        let all: Vec<Handle> = world.graphs.get(graph)?.nodes.iter().map(|node| node.handle).collect();
        if nodes.is_null() {
            return count.set(all.len());
        }
        let room = count.get()?;
        // As documented: what is left of the caller's array becomes null, and the count is that of the nodes stored.
        let mut filled: Vec<Handle> = all.iter().copied().take(room).collect();
        count.set(filled.len())?;
        filled.resize(room, 0);
        nodes.set_all(&filled);
        Ok(())
    })
}

pub extern "C" fn node_type(node: Handle, kind: Out<i32>) -> CUresult {
    run(Api::cuGraphNodeGetType, || {
        let world = lock();
        let graph = *world.nodes.get(node)?;
        let found = world.graphs.get(graph)?.nodes.iter().find(|other| other.handle == node);
        kind.set(type_of(&found.ok_or(INVALID_HANDLE)?.operation))
    })
}

fn instantiate_graph(executable: Out<Handle>, graph: Handle) -> Driver<()> {
    if executable.is_null() {
        return Err(INVALID_VALUE);
    }
    let mut world = lock();
    let nodes = world.graphs.get(graph)?.nodes.clone();
    world.current()?;
    world.check_unsafe_call()?;
    let id = world.new_graph_id();
    executable.set(world.executables.insert(Executable { id, nodes, last_end_ns: 0 }))
}

pub extern "C" fn instantiate(
    executable: Out<Handle>,
    graph: Handle,
    error_node: Out<Handle>,
    _log: usize,
    _log_bytes: usize,
) -> CUresult {
    run(Api::cuGraphInstantiate, || {
        error_node.set_if_wanted(0);
        instantiate_graph(executable, graph)
    })
}

pub extern "C" fn instantiate_v2(
    executable: Out<Handle>,
    graph: Handle,
    error_node: Out<Handle>,
    _log: usize,
    _log_bytes: usize,
) -> CUresult {
    run(Api::cuGraphInstantiate_v2, || {
        error_node.set_if_wanted(0);
        instantiate_graph(executable, graph)
    })
}

pub extern "C" fn instantiate_with_flags(executable: Out<Handle>, graph: Handle, _flags: u64) -> CUresult {
    run(Api::cuGraphInstantiateWithFlags, || instantiate_graph(executable, graph))
}

pub extern "C" fn instantiate_with_params<const PER_THREAD: bool>(
    executable: Out<Handle>,
    graph: Handle,
    params: Out<InstantiateParams>,
) -> CUresult {
    let api = twin::<PER_THREAD>(Api::cuGraphInstantiateWithParams, Api::cuGraphInstantiateWithParams_ptsz);
    run(api, || {
        let given = params.get()?;
        instantiate_graph(executable, graph)?;
        params.set(InstantiateParams { error_node: 0, result: 0, ..given })
    })
}

/// Takes over the nodes of a graph of the same shape. `Err` is an update result and the node at fault.
fn take_over(world: &mut World, executable: Handle, graph: Handle) -> Driver<Result<(), (i32, Handle)>> {
    let nodes: Vec<Node> = world.graphs.get(graph)?.nodes.clone();
    let found = world.executables.get_mut(executable)?;
    if found.nodes.len() != nodes.len() {
        return Ok(Err((UPDATE_TOPOLOGY_CHANGED, 0)));
    }
    let mut pairs = found.nodes.iter().zip(&nodes);
    if let Some((_, node)) = pairs.find(|(old, new)| type_of(&old.operation) != type_of(&new.operation)) {
        return Ok(Err((UPDATE_NODE_TYPE_CHANGED, node.handle)));
    }
    found.nodes = nodes;
    Ok(Ok(()))
}

pub extern "C" fn update(
    executable: Handle,
    graph: Handle,
    error_node: Out<Handle>,
    result: Out<i32>,
) -> CUresult {
    run(Api::cuGraphExecUpdate, || {
        let outcome = take_over(&mut lock(), executable, graph)?;
        let (code, node) = outcome.err().unwrap_or((UPDATE_SUCCESS, 0));
        error_node.set_if_wanted(node);
        result.set_if_wanted(code);
        outcome.map_err(|_| GRAPH_EXEC_UPDATE_FAILURE)
    })
}

pub extern "C" fn update_v2(executable: Handle, graph: Handle, info: Out<UpdateResult>) -> CUresult {
    run(Api::cuGraphExecUpdate_v2, || {
        let outcome = take_over(&mut lock(), executable, graph)?;
        let (result, error_node) = outcome.err().unwrap_or((UPDATE_SUCCESS, 0));
        info.set(UpdateResult { result, error_node, error_from_node: 0 })?;
        outcome.map_err(|_| GRAPH_EXEC_UPDATE_FAILURE)
    })
}

pub extern "C" fn destroy_executable(executable: Handle) -> CUresult {
    run(Api::cuGraphExecDestroy, || lock().executables.remove(executable).map(|_| ()))
}

pub extern "C" fn upload<const PER_THREAD: bool>(executable: Handle, stream: Handle) -> CUresult {
    run(twin::<PER_THREAD>(Api::cuGraphUpload, Api::cuGraphUpload_ptsz), || {
        let mut world = lock();
        world.executables.get(executable)?;
        world.resolve_stream(stream, PER_THREAD).map(|_| ())
    })
}
