//! Exported functions. Each is machine code that begins as the real driver's, because a profiler replaces the first
//! bytes; then it restores what it pushed, counts the call and jumps to the function in `api`, all arguments in place.
//! Nothing in this library calls an exported function: a call means that a caller outside made one.

use crate::api::{capture, context, device, errors, graph, launch, memory, module, proc_address, stream};
use core::arch::naked_asm;
use core::ffi::CStr;
use core::sync::atomic::{AtomicU32, AtomicU64};

#[cfg_attr(feature = "entry-endbr64", path = "prologue/endbr64.rs")]
#[cfg_attr(feature = "entry-rip-relative", path = "prologue/rip_relative.rs")]
#[cfg_attr(feature = "entry-patched", path = "prologue/patched.rs")]
#[cfg_attr(feature = "entry-short", path = "prologue/short.rs")]
#[cfg_attr(
    not(any(
        feature = "entry-endbr64",
        feature = "entry-rip-relative",
        feature = "entry-patched",
        feature = "entry-short"
    )),
    path = "prologue/driver580.rs"
)]
mod prologue;
use prologue::prologue;

/// Compared by every entry, as the real driver compares a flag for tools. Its value makes no entry trap; an entry that
/// was moved without its RIP-relative operand reads something else here and may.
static FLAG: AtomicU32 = AtomicU32::new(0);
/// Calls that went through the thunks of the `patched` kind.
pub static THUNK_HITS: AtomicU64 = AtomicU64::new(0);

macro_rules! entries {
    ($($name:ident = $cbid:literal => $function:path;)*) => {
        /// The exported functions.
        #[allow(non_camel_case_types)]
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(usize)]
        pub enum Api { $($name,)* Count }

        /// Their names.
        pub static NAMES: [&CStr; Api::Count as usize] = [$(
            match CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                Ok(name) => name,
                Err(_) => c"",
            },
        )*];
        /// CUPTI's numbers for them.
        pub static CBIDS: [u32; Api::Count as usize] = [$($cbid,)*];
        /// How often each was called.
        pub static CALLS: [AtomicU64; Api::Count as usize] = [const { AtomicU64::new(0) }; Api::Count as usize];
        /// Their addresses, which dlsym returns as well.
        pub static ENTRIES: [unsafe extern "C" fn(); Api::Count as usize] = [$($name,)*];

        $(
            #[allow(non_snake_case)]
            #[unsafe(no_mangle)]
            #[unsafe(naked)]
            unsafe extern "C" fn $name() {
                naked_asm!(
                    prologue!($name),
                    flag = sym FLAG,
                    calls = sym CALLS,
                    hits = sym THUNK_HITS,
                    slot = const Api::$name as usize * 8,
                    function = sym $function,
                )
            }
        )*
    };
}

entries! {
    cuInit = 1 => device::init;
    cuDriverGetVersion = 2 => device::driver_version;
    cuDeviceGet = 3 => device::get;
    cuDeviceGetCount = 4 => device::count;
    cuDeviceGetName = 5 => device::name;
    cuDeviceGetAttribute = 9 => device::attribute;
    cuDeviceTotalMem_v2 = 259 => device::total_memory;
    cuDevicePrimaryCtxRetain = 386 => context::retain_primary;
    cuDevicePrimaryCtxRelease = 387 => context::release_primary;
    cuDevicePrimaryCtxRelease_v2 = 544 => context::release_primary;
    cuCtxCreate_v2 = 235 => context::create;
    cuCtxCreate_v4 = 757 => context::create_v4;
    cuCtxDestroy_v2 = 322 => context::destroy;
    cuCtxGetCurrent = 304 => context::get_current;
    cuCtxSetCurrent = 303 => context::set_current;
    cuCtxPushCurrent_v2 = 323 => context::push;
    cuCtxPopCurrent_v2 = 324 => context::pop;
    cuCtxGetDevice = 16 => context::get_device;
    cuCtxSynchronize = 17 => context::synchronize;
    cuStreamCreate = 124 => stream::create;
    cuStreamCreateWithPriority = 367 => stream::create_with_priority;
    cuStreamDestroy_v2 = 326 => stream::destroy;
    cuStreamSynchronize = 126 => stream::synchronize::<false>;
    cuStreamSynchronize_ptsz = 440 => stream::synchronize::<true>;
    cuStreamQuery = 125 => stream::query::<false>;
    cuStreamQuery_ptsz = 439 => stream::query::<true>;
    cuMemAlloc_v2 = 243 => memory::allocate;
    cuMemFree_v2 = 245 => memory::free;
    cuMemcpyAsync = 306 => memory::copy_async::<false>;
    cuMemcpyAsync_ptsz = 418 => memory::copy_async::<true>;
    cuMemcpyHtoDAsync_v2 = 277 => memory::host_to_device_async::<false>;
    cuMemcpyHtoDAsync_v2_ptsz = 421 => memory::host_to_device_async::<true>;
    cuMemcpyDtoHAsync_v2 = 279 => memory::device_to_host_async::<false>;
    cuMemcpyDtoHAsync_v2_ptsz = 422 => memory::device_to_host_async::<true>;
    cuMemcpyDtoDAsync_v2 = 281 => memory::device_to_device_async::<false>;
    cuMemcpyDtoDAsync_v2_ptsz = 423 => memory::device_to_device_async::<true>;
    cuMemsetD8Async = 216 => memory::set_8_async::<false>;
    cuMemsetD8Async_ptsz = 428 => memory::set_8_async::<true>;
    cuMemsetD32Async = 220 => memory::set_32_async::<false>;
    cuMemsetD32Async_ptsz = 430 => memory::set_32_async::<true>;
    cuMemcpy = 305 => memory::copy::<false>;
    cuMemcpy_ptds = 408 => memory::copy::<true>;
    cuMemcpyHtoD_v2 = 276 => memory::host_to_device::<false>;
    cuMemcpyHtoD_v2_ptds = 397 => memory::host_to_device::<true>;
    cuMemcpyDtoH_v2 = 278 => memory::device_to_host::<false>;
    cuMemcpyDtoH_v2_ptds = 398 => memory::device_to_host::<true>;
    cuMemcpyDtoD_v2 = 280 => memory::device_to_device::<false>;
    cuMemcpyDtoD_v2_ptds = 399 => memory::device_to_device::<true>;
    cuMemsetD8_v2 = 249 => memory::set_8::<false>;
    cuMemsetD8_v2_ptds = 411 => memory::set_8::<true>;
    cuMemsetD32_v2 = 251 => memory::set_32::<false>;
    cuMemsetD32_v2_ptds = 413 => memory::set_32::<true>;
    cuModuleLoadData = 19 => module::load;
    cuModuleUnload = 22 => module::unload;
    cuModuleGetFunction = 23 => module::get_function;
    cuLibraryLoadData = 678 => module::load_library;
    cuLibraryUnload = 680 => module::unload_library;
    cuLibraryGetKernel = 681 => module::get_kernel;
    cuFuncGetName = 718 => module::function_name;
    cuKernelGetName = 719 => module::kernel_name;
    cuLaunchKernel = 307 => launch::kernel::<false>;
    cuLaunchKernel_ptsz = 442 => launch::kernel::<true>;
    cuLaunchKernelEx = 652 => launch::kernel_ex::<false>;
    cuLaunchKernelEx_ptsz = 653 => launch::kernel_ex::<true>;
    cuLaunchCooperativeKernel = 477 => launch::cooperative::<false>;
    cuLaunchCooperativeKernel_ptsz = 478 => launch::cooperative::<true>;
    cuGraphLaunch = 514 => launch::graph::<false>;
    cuGraphLaunch_ptsz = 515 => launch::graph::<true>;
    cuLaunchHostFunc = 527 => launch::host_function::<false>;
    cuLaunchHostFunc_ptsz = 528 => launch::host_function::<true>;
    cuStreamBeginCapture = 495 => capture::begin::<false>;
    cuStreamBeginCapture_ptsz = 496 => capture::begin::<true>;
    cuStreamBeginCapture_v2 = 539 => capture::begin_v2::<false>;
    cuStreamBeginCapture_v2_ptsz = 540 => capture::begin_v2::<true>;
    cuStreamBeginCaptureToGraph = 720 => capture::begin_to_graph::<false>;
    cuStreamBeginCaptureToGraph_ptsz = 721 => capture::begin_to_graph::<true>;
    cuStreamEndCapture = 497 => capture::end::<false>;
    cuStreamEndCapture_ptsz = 498 => capture::end::<true>;
    cuStreamIsCapturing = 499 => capture::is_capturing::<false>;
    cuStreamIsCapturing_ptsz = 500 => capture::is_capturing::<true>;
    cuStreamGetCaptureInfo = 536 => capture::info::<false>;
    cuStreamGetCaptureInfo_ptsz = 537 => capture::info::<true>;
    cuStreamGetCaptureInfo_v2 = 629 => capture::info_v2::<false>;
    cuStreamGetCaptureInfo_v2_ptsz = 630 => capture::info_v2::<true>;
    cuStreamGetCaptureInfo_v3 = 729 => capture::info_v3::<false>;
    cuStreamGetCaptureInfo_v3_ptsz = 730 => capture::info_v3::<true>;
    cuThreadExchangeStreamCaptureMode = 541 => capture::exchange_mode;
    cuGraphCreate = 501 => graph::create;
    cuGraphAddKernelNode = 502 => graph::add_kernel_node;
    cuGraphAddKernelNode_v2 = 689 => graph::add_kernel_node_v2;
    cuGraphGetNodes = 534 => graph::get_nodes;
    cuGraphNodeGetType = 509 => graph::node_type;
    cuGraphInstantiate = 513 => graph::instantiate;
    cuGraphInstantiate_v2 = 578 => graph::instantiate_v2;
    cuGraphInstantiateWithFlags = 643 => graph::instantiate_with_flags;
    cuGraphInstantiateWithParams = 656 => graph::instantiate_with_params::<false>;
    cuGraphInstantiateWithParams_ptsz = 657 => graph::instantiate_with_params::<true>;
    cuGraphExecUpdate = 561 => graph::update;
    cuGraphExecUpdate_v2 = 696 => graph::update_v2;
    cuGraphExecDestroy = 516 => graph::destroy_executable;
    cuGraphDestroy = 517 => graph::destroy;
    cuGraphUpload = 580 => graph::upload::<false>;
    cuGraphUpload_ptsz = 581 => graph::upload::<true>;
    cuGetErrorName = 373 => errors::name;
    cuGetErrorString = 372 => errors::text;
    cuGetProcAddress = 626 => proc_address::find;
    cuGetProcAddress_v2 = 677 => proc_address::find_v2;
}
