//! Launches: kernels, graphs, host functions. The call costs its time before the work reaches the stream.

use crate::abi::*;
use crate::call::{Call, twin};
use crate::clock::{now_ns, wait_until};
use crate::entry::Api;
use crate::settings::SETTINGS;
use crate::thread::LaunchCall;
use crate::timeline::Origin;
use crate::tool;
use crate::world::{Operation, World, lock};

/// Puts one operation on a stream, or adds it to the graph that the stream captures. Returns the stream it went to.
pub fn submit(
    stream: Handle,
    per_thread: bool,
    correlation_id: u32,
    operation: impl FnOnce(&World) -> Driver<Operation>,
) -> Driver<Handle> {
    let call = LaunchCall::begin();
    let began_ns = now_ns();
    let found = lock().resolve_stream(stream, per_thread)?;
    wait_until(began_ns + SETTINGS.launch_ns + tool::node_cost_ns());
    let mut world = lock();
    let context = world.streams.get(found)?.context;
    world.usable(context)?;
    let operation = operation(&world)?;
    world.check_legacy_use(found)?;
    if world.streams.get(found)?.capture.is_some() {
        capture_node(&mut world, found, operation)?;
    } else {
        world.enqueue(found, &operation, Origin { correlation_id, ..Origin::default() })?;
    }
    // The call ends with the lock held, so that whoever finalizes sees either the call or its work.
    drop(call);
    Ok(found)
}

fn capture_node(world: &mut World, stream: Handle, operation: Operation) -> Driver<()> {
    let capture = world.streams.get(stream)?.capture.as_ref().ok_or(INVALID_HANDLE)?;
    if capture.invalidated {
        return Err(STREAM_CAPTURE_INVALIDATED);
    }
    let node = world.add_node(capture.graph, operation)?;
    if let Some(capture) = &mut world.streams.get_mut(stream)?.capture {
        capture.dependencies = Box::new([node]);
    }
    Ok(())
}

#[derive(Clone, Copy)]
#[repr(C)]
struct KernelParams {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
    stream: Handle,
    parameters: usize,
    extra: usize,
}

/// A kernel as an operation; used by graphs as well.
pub fn kernel_operation(
    world: &World,
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared_bytes: u32,
) -> Driver<Operation> {
    let found = world.function(function)?;
    if grid.contains(&0) || block.contains(&0) || block.iter().map(|n| u64::from(*n)).product::<u64>() > 1024
    {
        return Err(INVALID_VALUE);
    }
    Ok(Operation::Kernel { name: found.name, duration_ns: found.duration_ns, grid, block, shared_bytes })
}

fn launch(api: Api, per_thread: bool, params: KernelParams) -> CUresult {
    Call::new(api).launching(&params, params.function).run(|correlation_id| {
        let KernelParams { function, grid, block, shared_bytes, stream, .. } = params;
        submit(stream, per_thread, correlation_id, |world| {
            kernel_operation(world, function, grid, block, shared_bytes)
        })
        .map(|_| ())
    })
}

#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
pub extern "C" fn kernel<const PER_THREAD: bool>(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: Handle,
    parameters: usize,
    extra: usize,
) -> CUresult {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let params = KernelParams { function, grid, block, shared_bytes, stream, parameters, extra };
    launch(twin::<PER_THREAD>(Api::cuLaunchKernel, Api::cuLaunchKernel_ptsz), PER_THREAD, params)
}

#[allow(clippy::too_many_arguments, reason = "the driver's signature")]
pub extern "C" fn cooperative<const PER_THREAD: bool>(
    function: Handle,
    grid_x: u32,
    grid_y: u32,
    grid_z: u32,
    block_x: u32,
    block_y: u32,
    block_z: u32,
    shared_bytes: u32,
    stream: Handle,
    parameters: usize,
) -> CUresult {
    let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
    let params = KernelParams { function, grid, block, shared_bytes, stream, parameters, extra: 0 };
    let api = twin::<PER_THREAD>(Api::cuLaunchCooperativeKernel, Api::cuLaunchCooperativeKernel_ptsz);
    launch(api, PER_THREAD, params)
}

pub extern "C" fn kernel_ex<const PER_THREAD: bool>(
    config: In<LaunchConfig>,
    function: Handle,
    parameters: usize,
    extra: usize,
) -> CUresult {
    let api = twin::<PER_THREAD>(Api::cuLaunchKernelEx, Api::cuLaunchKernelEx_ptsz);
    let params = (config, function, parameters, extra);
    Call::new(api).launching(&params, function).run(|correlation_id| {
        let LaunchConfig { grid, block, shared_bytes, stream } = config.get()?;
        submit(stream, PER_THREAD, correlation_id, |world| {
            kernel_operation(world, function, grid, block, shared_bytes)
        })
        .map(|_| ())
    })
}

pub extern "C" fn host_function<const PER_THREAD: bool>(
    stream: Handle,
    function: usize,
    data: usize,
) -> CUresult {
    let api = twin::<PER_THREAD>(Api::cuLaunchHostFunc, Api::cuLaunchHostFunc_ptsz);
    Call::new(api).run(|correlation_id| {
        if function == 0 {
            return Err(INVALID_VALUE);
        }
        submit(stream, PER_THREAD, correlation_id, |_| Ok(Operation::Host { function, data })).map(|_| ())
    })
}

pub extern "C" fn graph<const PER_THREAD: bool>(executable: Handle, stream: Handle) -> CUresult {
    let api = twin::<PER_THREAD>(Api::cuGraphLaunch, Api::cuGraphLaunch_ptsz);
    let params = (executable, stream);
    Call::new(api).launching(&params, 0).run(|correlation_id| {
        let call = LaunchCall::begin();
        let began_ns = now_ns();
        let (found, nodes) = {
            let mut world = lock();
            let found = world.resolve_stream(stream, PER_THREAD)?;
            (found, world.executables.get(executable)?.nodes.len() as u64)
        };
        wait_until(began_ns + SETTINGS.graph_launch_ns + nodes * tool::node_cost_ns());
        let mut world = lock();
        world.check_legacy_use(found)?;
        // A launch into a capture would become a child graph; not simulated.
        world.check_stream_query(found)?;
        replay(&mut world, executable, found, correlation_id)?;
        drop(call);
        Ok(())
    })
}

/// One node after the other. An executable does not overlap with itself.
fn replay(world: &mut World, executable: Handle, stream: Handle, correlation_id: u32) -> Driver<()> {
    let found = world.executables.get_mut(executable)?;
    let (graph_id, not_before) = (found.id, found.last_end_ns);
    let nodes = core::mem::take(&mut found.nodes);
    let first = world.streams.get_mut(stream)?;
    first.last_end_ns = first.last_end_ns.max(not_before);
    let mut outcome = Ok(not_before);
    for (index, node) in nodes.iter().enumerate() {
        let graph_node_id = (u64::from(graph_id) << 32) | index as u64;
        outcome = world.enqueue(stream, &node.operation, Origin { correlation_id, graph_id, graph_node_id });
        if outcome.is_err() {
            break;
        }
    }
    let found = world.executables.get_mut(executable)?;
    found.nodes = nodes;
    found.last_end_ns = outcome?;
    Ok(())
}
