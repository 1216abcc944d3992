//! Over 400 lines because it is one table: the hooked driver functions, their signatures and CUPTI's numbers for them.
//!
//! Each replacement has the driver's signature, forwards to its hook's original and is reached only once that is set.
//! Safety of all of them: as for the driver's function of the same name.
//!
//! Integer arguments are passed on as whole registers, so that one macro serves all copies and memsets.

#![allow(clippy::missing_safety_doc)]

use super::capture::{on_begin, on_destroy_executable, on_destroy_graph, on_end, on_instantiate, on_update};
use super::table::{Hook, Role};
use super::{LaunchInfo, on_launch};
use bindings::cuda_driver::sys::*;
use bindings::cuda_driver::{DefaultStream, launch_config_stream};
use core::ffi::{c_int, c_uint, c_void};
use core::ptr;
use shared_abi::record::LaunchKind;

/// The original of hook `$index` as a function of the replacement's own type; without one, the driver is not there.
macro_rules! original {
    ($index:expr, fn($($argument:ty),*)) => {{
        let Some(hook) = HOOKS.get($index) else { return CUDA_ERROR_NOT_INITIALIZED };
        let original = hook.original();
        if original.is_null() {
            return CUDA_ERROR_NOT_INITIALIZED;
        }
        // SAFETY: a hook's original is the driver's function of its name, or a trampoline into it, which has this signature.
        unsafe { core::mem::transmute::<*mut c_void, unsafe extern "C" fn($($argument),*) -> CUresult>(original) }
    }};
}

macro_rules! hooks {
    ($($name:ident = $function:expr, $role:expr, $cbid:literal;)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy)]
        #[repr(usize)]
        enum Index { $($name,)* End }

        /// All hooked functions. Their order is the `hook` of a launch sample.
        pub static HOOKS: [Hook; Index::End as usize] = [$(
            Hook::with_role(
                bindings::dl::c_name(concat!(stringify!($name), "\0")),
                { fn address() -> *const c_void { $function as *const c_void } address },
                $role,
                $cbid,
            ),
        )*];
    };
}

const _: () = assert!(HOOKS.len() <= shared_abi::counters::HOOK_HITS_CAPACITY);

const KERNEL: Role = Role::Launch(LaunchKind::Kernel);
const COOPERATIVE: Role = Role::Launch(LaunchKind::CooperativeKernel);
const GRAPH: Role = Role::Launch(LaunchKind::Graph);

macro_rules! launch_kernel {
    ($($name:ident: $kind:ident, $default:ident, ($($extra:ident: $extra_type:ty),*);)*) => {$(
        #[allow(non_snake_case, clippy::too_many_arguments)]
        pub unsafe extern "C" fn $name(
            function: CUfunction,
            grid_x: c_uint, grid_y: c_uint, grid_z: c_uint,
            block_x: c_uint, block_y: c_uint, block_z: c_uint,
            shared_bytes: c_uint, stream: CUstream, parameters: *mut *mut c_void $(, $extra: $extra_type)*
        ) -> CUresult {
            let real = original!(Index::$name as usize, fn(CUfunction, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, CUstream, *mut *mut c_void $(, $extra_type)*));
            let info = LaunchInfo {
                hook: Index::$name as usize, kind: LaunchKind::$kind, stream,
                default_stream: DefaultStream::$default, handle: function,
            };
            // SAFETY: the caller's own arguments.
            on_launch(info, || unsafe {
                real(function, grid_x, grid_y, grid_z, block_x, block_y, block_z, shared_bytes, stream, parameters $(, $extra)*)
            })
        }
    )*};
}

launch_kernel! {
    cuLaunchKernel: Kernel, Legacy, (extra: *mut *mut c_void);
    cuLaunchKernel_ptsz: Kernel, PerThread, (extra: *mut *mut c_void);
    cuLaunchCooperativeKernel: CooperativeKernel, Legacy, ();
    cuLaunchCooperativeKernel_ptsz: CooperativeKernel, PerThread, ();
}

macro_rules! launch_kernel_ex {
    ($($name:ident: $default:ident;)*) => {$(
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name(
            config: *const c_void, function: CUfunction, parameters: *mut *mut c_void, extra: *mut *mut c_void,
        ) -> CUresult {
            let real = original!(Index::$name as usize, fn(*const c_void, CUfunction, *mut *mut c_void, *mut *mut c_void));
            let info = LaunchInfo {
                hook: Index::$name as usize, kind: LaunchKind::Kernel,
                // SAFETY: the caller passes null or a configuration.
                stream: unsafe { launch_config_stream(config) },
                default_stream: DefaultStream::$default, handle: function,
            };
            // SAFETY: the caller's own arguments.
            on_launch(info, || unsafe { real(config, function, parameters, extra) })
        }
    )*};
}

launch_kernel_ex! {
    cuLaunchKernelEx: Legacy;
    cuLaunchKernelEx_ptsz: PerThread;
}

macro_rules! launch_graph {
    ($($name:ident: $default:ident;)*) => {$(
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name(executable: CUgraphExec, stream: CUstream) -> CUresult {
            let real = original!(Index::$name as usize, fn(CUgraphExec, CUstream));
            let info = LaunchInfo {
                hook: Index::$name as usize, kind: LaunchKind::Graph, stream,
                default_stream: DefaultStream::$default, handle: executable,
            };
            // SAFETY: the caller's own arguments.
            on_launch(info, || unsafe { real(executable, stream) })
        }
    )*};
}

launch_graph! {
    cuGraphLaunch: Legacy;
    cuGraphLaunch_ptsz: PerThread;
}

macro_rules! begin_capture {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name($($argument: $type),*) -> CUresult {
            let real = original!(Index::$name as usize, fn($($type),*));
            // SAFETY: the caller's own arguments.
            on_begin(Index::$name as usize, || unsafe { real($($argument),*) })
        }
    )*};
}

begin_capture! {
    cuStreamBeginCapture(stream: CUstream);
    cuStreamBeginCapture_ptsz(stream: CUstream);
    cuStreamBeginCapture_v2(stream: CUstream, mode: c_int);
    cuStreamBeginCapture_v2_ptsz(stream: CUstream, mode: c_int);
    cuStreamBeginCaptureToGraph(stream: CUstream, graph: CUgraph, dependencies: *const c_void, edges: *const c_void, count: usize, mode: c_int);
    cuStreamBeginCaptureToGraph_ptsz(stream: CUstream, graph: CUgraph, dependencies: *const c_void, edges: *const c_void, count: usize, mode: c_int);
}

macro_rules! end_capture {
    ($($name:ident: $default:ident;)*) => {$(
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name(stream: CUstream, graph: *mut CUgraph) -> CUresult {
            let real = original!(Index::$name as usize, fn(CUstream, *mut CUgraph));
            // SAFETY: the caller's own arguments; the driver has checked `graph` when it returns success.
            unsafe { on_end(Index::$name as usize, stream, DefaultStream::$default, graph, || real(stream, graph)) }
        }
    )*};
}

end_capture! {
    cuStreamEndCapture: Legacy;
    cuStreamEndCapture_ptsz: PerThread;
}

macro_rules! instantiate {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {$(
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name(executable: *mut CUgraphExec, graph: CUgraph, $($argument: $type),*) -> CUresult {
            let real = original!(Index::$name as usize, fn(*mut CUgraphExec, CUgraph, $($type),*));
            // SAFETY: the caller's own arguments; the driver has checked `executable` when it returns success.
            unsafe { on_instantiate(Index::$name as usize, executable, graph, || real(executable, graph, $($argument),*)) }
        }
    )*};
}

instantiate! {
    cuGraphInstantiate(error_node: *mut CUgraphNode, log: *mut c_void, log_bytes: usize);
    cuGraphInstantiate_v2(error_node: *mut CUgraphNode, log: *mut c_void, log_bytes: usize);
    cuGraphInstantiateWithFlags(flags: u64);
    cuGraphInstantiateWithParams(parameters: *mut c_void);
    cuGraphInstantiateWithParams_ptsz(parameters: *mut c_void);
}

#[allow(non_snake_case)]
pub unsafe extern "C" fn cuGraphExecUpdate(
    executable: CUgraphExec,
    graph: CUgraph,
    error_node: *mut CUgraphNode,
    update_result: *mut c_int,
) -> CUresult {
    let real =
        original!(Index::cuGraphExecUpdate as usize, fn(CUgraphExec, CUgraph, *mut CUgraphNode, *mut c_int));
    // SAFETY: the caller's own arguments.
    on_update(Index::cuGraphExecUpdate as usize, executable, graph, || unsafe {
        real(executable, graph, error_node, update_result)
    })
}

#[allow(non_snake_case)]
pub unsafe extern "C" fn cuGraphExecUpdate_v2(
    executable: CUgraphExec,
    graph: CUgraph,
    result: *mut c_void,
) -> CUresult {
    let real = original!(Index::cuGraphExecUpdate_v2 as usize, fn(CUgraphExec, CUgraph, *mut c_void));
    // SAFETY: the caller's own arguments.
    on_update(Index::cuGraphExecUpdate_v2 as usize, executable, graph, || unsafe {
        real(executable, graph, result)
    })
}

#[allow(non_snake_case)]
pub unsafe extern "C" fn cuGraphExecDestroy(executable: CUgraphExec) -> CUresult {
    let real = original!(Index::cuGraphExecDestroy as usize, fn(CUgraphExec));
    // SAFETY: the caller's own argument.
    on_destroy_executable(Index::cuGraphExecDestroy as usize, executable, || unsafe { real(executable) })
}

#[allow(non_snake_case)]
pub unsafe extern "C" fn cuGraphDestroy(graph: CUgraph) -> CUresult {
    let real = original!(Index::cuGraphDestroy as usize, fn(CUgraph));
    // SAFETY: the caller's own argument.
    on_destroy_graph(Index::cuGraphDestroy as usize, graph, || unsafe { real(graph) })
}

/// Copies and memsets, and the whole table: `name(arguments) on stream argument, default stream, cbid`.
macro_rules! memory_and_table {
    (
        memory { $($name:ident($($argument:ident),*) on $stream:ident, $default:ident, $cbid:literal;)* }
        others { $($others:tt)* }
    ) => {
        $(
            #[allow(non_snake_case, clippy::too_many_arguments)]
            pub unsafe extern "C" fn $name($($argument: usize),*) -> CUresult {
                let real = original!(Index::$name as usize, fn($(whole_register!($argument)),*));
                #[allow(non_upper_case_globals, dead_code)]
                const none: usize = 0;
                let info = LaunchInfo {
                    hook: Index::$name as usize, kind: LaunchKind::Memory, stream: $stream as CUstream,
                    default_stream: DefaultStream::$default, handle: ptr::null_mut(),
                };
                // SAFETY: the caller's own arguments.
                on_launch(info, || unsafe { real($($argument),*) })
            }
        )*
        hooks! { $($others)* $($name = $name, Role::Launch(LaunchKind::Memory), $cbid;)* }
    };
}

macro_rules! whole_register {
    ($argument:ident) => {
        usize
    };
}

memory_and_table! {
    memory {
        cuMemcpy(a0, a1, a2) on none, Legacy, 305;
        cuMemcpy_ptds(a0, a1, a2) on none, PerThread, 408;
        cuMemcpyAsync(a0, a1, a2, a3) on a3, Legacy, 306;
        cuMemcpyAsync_ptsz(a0, a1, a2, a3) on a3, PerThread, 418;
        cuMemcpyPeer(a0, a1, a2, a3, a4) on none, Legacy, 318;
        cuMemcpyPeer_ptds(a0, a1, a2, a3, a4) on none, PerThread, 409;
        cuMemcpyPeerAsync(a0, a1, a2, a3, a4, a5) on a5, Legacy, 319;
        cuMemcpyPeerAsync_ptsz(a0, a1, a2, a3, a4, a5) on a5, PerThread, 426;
        cuMemcpyHtoD_v2(a0, a1, a2) on none, Legacy, 276;
        cuMemcpyHtoD_v2_ptds(a0, a1, a2) on none, PerThread, 397;
        cuMemcpyHtoDAsync_v2(a0, a1, a2, a3) on a3, Legacy, 277;
        cuMemcpyHtoDAsync_v2_ptsz(a0, a1, a2, a3) on a3, PerThread, 421;
        cuMemcpyDtoH_v2(a0, a1, a2) on none, Legacy, 278;
        cuMemcpyDtoH_v2_ptds(a0, a1, a2) on none, PerThread, 398;
        cuMemcpyDtoHAsync_v2(a0, a1, a2, a3) on a3, Legacy, 279;
        cuMemcpyDtoHAsync_v2_ptsz(a0, a1, a2, a3) on a3, PerThread, 422;
        cuMemcpyDtoD_v2(a0, a1, a2) on none, Legacy, 280;
        cuMemcpyDtoD_v2_ptds(a0, a1, a2) on none, PerThread, 399;
        cuMemcpyDtoDAsync_v2(a0, a1, a2, a3) on a3, Legacy, 281;
        cuMemcpyDtoDAsync_v2_ptsz(a0, a1, a2, a3) on a3, PerThread, 423;
        cuMemcpyAtoH_v2(a0, a1, a2, a3) on none, Legacy, 282;
        cuMemcpyAtoH_v2_ptds(a0, a1, a2, a3) on none, PerThread, 403;
        cuMemcpyAtoHAsync_v2(a0, a1, a2, a3, a4) on a4, Legacy, 283;
        cuMemcpyAtoHAsync_v2_ptsz(a0, a1, a2, a3, a4) on a4, PerThread, 420;
        cuMemcpyHtoA_v2(a0, a1, a2, a3) on none, Legacy, 292;
        cuMemcpyHtoA_v2_ptds(a0, a1, a2, a3) on none, PerThread, 402;
        cuMemcpyHtoAAsync_v2(a0, a1, a2, a3, a4) on a4, Legacy, 293;
        cuMemcpyHtoAAsync_v2_ptsz(a0, a1, a2, a3, a4) on a4, PerThread, 419;
        cuMemcpyAtoD_v2(a0, a1, a2, a3) on none, Legacy, 284;
        cuMemcpyAtoD_v2_ptds(a0, a1, a2, a3) on none, PerThread, 401;
        cuMemcpyDtoA_v2(a0, a1, a2, a3) on none, Legacy, 285;
        cuMemcpyDtoA_v2_ptds(a0, a1, a2, a3) on none, PerThread, 400;
        cuMemcpyAtoA_v2(a0, a1, a2, a3, a4) on none, Legacy, 286;
        cuMemcpyAtoA_v2_ptds(a0, a1, a2, a3, a4) on none, PerThread, 404;
        cuMemcpy2D_v2(a0) on none, Legacy, 287;
        cuMemcpy2D_v2_ptds(a0) on none, PerThread, 405;
        cuMemcpy2DUnaligned_v2(a0) on none, Legacy, 288;
        cuMemcpy2DUnaligned_v2_ptds(a0) on none, PerThread, 406;
        cuMemcpy2DAsync_v2(a0, a1) on a1, Legacy, 289;
        cuMemcpy2DAsync_v2_ptsz(a0, a1) on a1, PerThread, 424;
        cuMemcpy3D_v2(a0) on none, Legacy, 290;
        cuMemcpy3D_v2_ptds(a0) on none, PerThread, 407;
        cuMemcpy3DAsync_v2(a0, a1) on a1, Legacy, 291;
        cuMemcpy3DAsync_v2_ptsz(a0, a1) on a1, PerThread, 425;
        cuMemcpy3DPeer(a0) on none, Legacy, 320;
        cuMemcpy3DPeer_ptds(a0) on none, PerThread, 410;
        cuMemcpy3DPeerAsync(a0, a1) on a1, Legacy, 321;
        cuMemcpy3DPeerAsync_ptsz(a0, a1) on a1, PerThread, 427;
        cuMemsetD8_v2(a0, a1, a2) on none, Legacy, 249;
        cuMemsetD8_v2_ptds(a0, a1, a2) on none, PerThread, 411;
        cuMemsetD16_v2(a0, a1, a2) on none, Legacy, 250;
        cuMemsetD16_v2_ptds(a0, a1, a2) on none, PerThread, 412;
        cuMemsetD32_v2(a0, a1, a2) on none, Legacy, 251;
        cuMemsetD32_v2_ptds(a0, a1, a2) on none, PerThread, 413;
        cuMemsetD2D8_v2(a0, a1, a2, a3, a4) on none, Legacy, 252;
        cuMemsetD2D8_v2_ptds(a0, a1, a2, a3, a4) on none, PerThread, 414;
        cuMemsetD2D16_v2(a0, a1, a2, a3, a4) on none, Legacy, 253;
        cuMemsetD2D16_v2_ptds(a0, a1, a2, a3, a4) on none, PerThread, 415;
        cuMemsetD2D32_v2(a0, a1, a2, a3, a4) on none, Legacy, 254;
        cuMemsetD2D32_v2_ptds(a0, a1, a2, a3, a4) on none, PerThread, 416;
        cuMemsetD8Async(a0, a1, a2, a3) on a3, Legacy, 216;
        cuMemsetD8Async_ptsz(a0, a1, a2, a3) on a3, PerThread, 428;
        cuMemsetD16Async(a0, a1, a2, a3) on a3, Legacy, 218;
        cuMemsetD16Async_ptsz(a0, a1, a2, a3) on a3, PerThread, 429;
        cuMemsetD32Async(a0, a1, a2, a3) on a3, Legacy, 220;
        cuMemsetD32Async_ptsz(a0, a1, a2, a3) on a3, PerThread, 430;
        cuMemsetD2D8Async(a0, a1, a2, a3, a4, a5) on a5, Legacy, 222;
        cuMemsetD2D8Async_ptsz(a0, a1, a2, a3, a4, a5) on a5, PerThread, 431;
        cuMemsetD2D16Async(a0, a1, a2, a3, a4, a5) on a5, Legacy, 224;
        cuMemsetD2D16Async_ptsz(a0, a1, a2, a3, a4, a5) on a5, PerThread, 432;
        cuMemsetD2D32Async(a0, a1, a2, a3, a4, a5) on a5, Legacy, 226;
        cuMemsetD2D32Async_ptsz(a0, a1, a2, a3, a4, a5) on a5, PerThread, 433;
        cuMemcpyBatchAsync(a0, a1, a2, a3, a4, a5, a6, a7, a8) on a8, Legacy, 776;
        cuMemcpyBatchAsync_ptsz(a0, a1, a2, a3, a4, a5, a6, a7, a8) on a8, PerThread, 777;
        cuMemcpy3DBatchAsync(a0, a1, a2, a3, a4) on a4, Legacy, 778;
        cuMemcpy3DBatchAsync_ptsz(a0, a1, a2, a3, a4) on a4, PerThread, 779;
        cuMemcpyBatchAsync_v2(a0, a1, a2, a3, a4, a5, a6, a7) on a7, Legacy, 796;
        cuMemcpyBatchAsync_v2_ptsz(a0, a1, a2, a3, a4, a5, a6, a7) on a7, PerThread, 797;
        cuMemcpy3DBatchAsync_v2(a0, a1, a2, a3) on a3, Legacy, 798;
        cuMemcpy3DBatchAsync_v2_ptsz(a0, a1, a2, a3) on a3, PerThread, 799;
    }
    others {
        cuLaunchKernel = cuLaunchKernel, KERNEL, 307;
        cuLaunchKernel_ptsz = cuLaunchKernel_ptsz, KERNEL, 442;
        cuLaunchKernelEx = cuLaunchKernelEx, KERNEL, 652;
        cuLaunchKernelEx_ptsz = cuLaunchKernelEx_ptsz, KERNEL, 653;
        cuLaunchCooperativeKernel = cuLaunchCooperativeKernel, COOPERATIVE, 477;
        cuLaunchCooperativeKernel_ptsz = cuLaunchCooperativeKernel_ptsz, COOPERATIVE, 478;
        cuGraphLaunch = cuGraphLaunch, GRAPH, 514;
        cuGraphLaunch_ptsz = cuGraphLaunch_ptsz, GRAPH, 515;
        cuStreamBeginCapture = cuStreamBeginCapture, Role::Capture, 0;
        cuStreamBeginCapture_ptsz = cuStreamBeginCapture_ptsz, Role::Capture, 0;
        cuStreamBeginCapture_v2 = cuStreamBeginCapture_v2, Role::Capture, 0;
        cuStreamBeginCapture_v2_ptsz = cuStreamBeginCapture_v2_ptsz, Role::Capture, 0;
        cuStreamBeginCaptureToGraph = cuStreamBeginCaptureToGraph, Role::Capture, 0;
        cuStreamBeginCaptureToGraph_ptsz = cuStreamBeginCaptureToGraph_ptsz, Role::Capture, 0;
        cuStreamEndCapture = cuStreamEndCapture, Role::Capture, 0;
        cuStreamEndCapture_ptsz = cuStreamEndCapture_ptsz, Role::Capture, 0;
        cuGraphInstantiate = cuGraphInstantiate, Role::GraphLife, 0;
        cuGraphInstantiate_v2 = cuGraphInstantiate_v2, Role::GraphLife, 0;
        cuGraphInstantiateWithFlags = cuGraphInstantiateWithFlags, Role::GraphLife, 0;
        cuGraphInstantiateWithParams = cuGraphInstantiateWithParams, Role::GraphLife, 0;
        cuGraphInstantiateWithParams_ptsz = cuGraphInstantiateWithParams_ptsz, Role::GraphLife, 0;
        cuGraphExecUpdate = cuGraphExecUpdate, Role::GraphLife, 0;
        cuGraphExecUpdate_v2 = cuGraphExecUpdate_v2, Role::GraphLife, 0;
        cuGraphExecDestroy = cuGraphExecDestroy, Role::GraphLife, 0;
        cuGraphDestroy = cuGraphDestroy, Role::GraphLife, 0;
    }
}
