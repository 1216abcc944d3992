//! Every symbol that liblaunchscope.so exports, and nothing else. A test reads the linked file and compares.
//!
//! The driver's names are there for programs that are linked to libcuda; `dlsym` and `cuGetProcAddress` for those that
//! ask. A preloaded library also lands in shells and compilers: nothing here does anything before a driver function is
//! called or asked for.

#![allow(clippy::missing_safety_doc)] // Each is as safe to call as the function whose name it bears.

use core::ffi::{c_int, c_void};
use interposer::launch_hook::{hooks, preload};
use interposer::{guard, lifecycle};

/// The driver calls this during cuInit, from the library that CUDA_INJECTION64_PATH names. 1 means success.
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    guard::panic_fence(1, lifecycle::on_injection)
}

/// dlsym: the C library's own, but for names of the driver.
///
/// The C library finds out from the return address who asks (RTLD_NEXT, RTLD_DEFAULT), so that every other name is a
/// tail jump with all registers intact. So are the driver's names without a library's handle.
#[cfg(target_arch = "x86_64")]
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const core::ffi::c_char) -> *mut c_void {
    core::arch::naked_asm!(
        "test rsi, rsi",
        "jz 2f",
        "cmp byte ptr [rsi], 0x63", // 'c'
        "jne 2f",
        "cmp byte ptr [rsi + 1], 0x75", // 'u'
        "jne 2f",
        "lea rax, [rdi + 1]", // RTLD_NEXT is -1, RTLD_DEFAULT 0
        "cmp rax, 1",
        "jbe 2f",
        "jmp {of_driver}",
        "2:",
        "mov rax, qword ptr [rip + {real}]",
        "test rax, rax",
        "jz 3f",
        "jmp rax",
        "3:",
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {find}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "jmp rax",
        of_driver = sym preload::dlsym_of_driver,
        real = sym preload::REAL_DLSYM,
        find = sym preload::find_real_dlsym,
    )
}

macro_rules! export {
    ($($name:ident = $target:path;)*) => {$(
        /// See the driver's function of this name.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        #[allow(non_snake_case)]
        pub unsafe extern "C" fn $name() {
            core::arch::naked_asm!("jmp {target}", target = sym $target)
        }
    )*};
}

export! {
    cuGetProcAddress = preload::get_proc_address;
    cuGetProcAddress_v2 = preload::get_proc_address_v2;
    cuLaunchKernel = hooks::cuLaunchKernel;
    cuLaunchKernel_ptsz = hooks::cuLaunchKernel_ptsz;
    cuLaunchKernelEx = hooks::cuLaunchKernelEx;
    cuLaunchKernelEx_ptsz = hooks::cuLaunchKernelEx_ptsz;
    cuLaunchCooperativeKernel = hooks::cuLaunchCooperativeKernel;
    cuLaunchCooperativeKernel_ptsz = hooks::cuLaunchCooperativeKernel_ptsz;
    cuGraphLaunch = hooks::cuGraphLaunch;
    cuGraphLaunch_ptsz = hooks::cuGraphLaunch_ptsz;
    cuStreamBeginCapture = hooks::cuStreamBeginCapture;
    cuStreamBeginCapture_ptsz = hooks::cuStreamBeginCapture_ptsz;
    cuStreamBeginCapture_v2 = hooks::cuStreamBeginCapture_v2;
    cuStreamBeginCapture_v2_ptsz = hooks::cuStreamBeginCapture_v2_ptsz;
    cuStreamBeginCaptureToGraph = hooks::cuStreamBeginCaptureToGraph;
    cuStreamBeginCaptureToGraph_ptsz = hooks::cuStreamBeginCaptureToGraph_ptsz;
    cuStreamEndCapture = hooks::cuStreamEndCapture;
    cuStreamEndCapture_ptsz = hooks::cuStreamEndCapture_ptsz;
    cuGraphInstantiate = hooks::cuGraphInstantiate;
    cuGraphInstantiate_v2 = hooks::cuGraphInstantiate_v2;
    cuGraphInstantiateWithFlags = hooks::cuGraphInstantiateWithFlags;
    cuGraphInstantiateWithParams = hooks::cuGraphInstantiateWithParams;
    cuGraphInstantiateWithParams_ptsz = hooks::cuGraphInstantiateWithParams_ptsz;
    cuGraphExecUpdate = hooks::cuGraphExecUpdate;
    cuGraphExecUpdate_v2 = hooks::cuGraphExecUpdate_v2;
    cuGraphExecDestroy = hooks::cuGraphExecDestroy;
    cuGraphDestroy = hooks::cuGraphDestroy;
    cuMemcpy = hooks::cuMemcpy;
    cuMemcpy_ptds = hooks::cuMemcpy_ptds;
    cuMemcpyAsync = hooks::cuMemcpyAsync;
    cuMemcpyAsync_ptsz = hooks::cuMemcpyAsync_ptsz;
    cuMemcpyPeer = hooks::cuMemcpyPeer;
    cuMemcpyPeer_ptds = hooks::cuMemcpyPeer_ptds;
    cuMemcpyPeerAsync = hooks::cuMemcpyPeerAsync;
    cuMemcpyPeerAsync_ptsz = hooks::cuMemcpyPeerAsync_ptsz;
    cuMemcpyHtoD_v2 = hooks::cuMemcpyHtoD_v2;
    cuMemcpyHtoD_v2_ptds = hooks::cuMemcpyHtoD_v2_ptds;
    cuMemcpyHtoDAsync_v2 = hooks::cuMemcpyHtoDAsync_v2;
    cuMemcpyHtoDAsync_v2_ptsz = hooks::cuMemcpyHtoDAsync_v2_ptsz;
    cuMemcpyDtoH_v2 = hooks::cuMemcpyDtoH_v2;
    cuMemcpyDtoH_v2_ptds = hooks::cuMemcpyDtoH_v2_ptds;
    cuMemcpyDtoHAsync_v2 = hooks::cuMemcpyDtoHAsync_v2;
    cuMemcpyDtoHAsync_v2_ptsz = hooks::cuMemcpyDtoHAsync_v2_ptsz;
    cuMemcpyDtoD_v2 = hooks::cuMemcpyDtoD_v2;
    cuMemcpyDtoD_v2_ptds = hooks::cuMemcpyDtoD_v2_ptds;
    cuMemcpyDtoDAsync_v2 = hooks::cuMemcpyDtoDAsync_v2;
    cuMemcpyDtoDAsync_v2_ptsz = hooks::cuMemcpyDtoDAsync_v2_ptsz;
    cuMemcpyAtoH_v2 = hooks::cuMemcpyAtoH_v2;
    cuMemcpyAtoH_v2_ptds = hooks::cuMemcpyAtoH_v2_ptds;
    cuMemcpyAtoHAsync_v2 = hooks::cuMemcpyAtoHAsync_v2;
    cuMemcpyAtoHAsync_v2_ptsz = hooks::cuMemcpyAtoHAsync_v2_ptsz;
    cuMemcpyHtoA_v2 = hooks::cuMemcpyHtoA_v2;
    cuMemcpyHtoA_v2_ptds = hooks::cuMemcpyHtoA_v2_ptds;
    cuMemcpyHtoAAsync_v2 = hooks::cuMemcpyHtoAAsync_v2;
    cuMemcpyHtoAAsync_v2_ptsz = hooks::cuMemcpyHtoAAsync_v2_ptsz;
    cuMemcpyAtoD_v2 = hooks::cuMemcpyAtoD_v2;
    cuMemcpyAtoD_v2_ptds = hooks::cuMemcpyAtoD_v2_ptds;
    cuMemcpyDtoA_v2 = hooks::cuMemcpyDtoA_v2;
    cuMemcpyDtoA_v2_ptds = hooks::cuMemcpyDtoA_v2_ptds;
    cuMemcpyAtoA_v2 = hooks::cuMemcpyAtoA_v2;
    cuMemcpyAtoA_v2_ptds = hooks::cuMemcpyAtoA_v2_ptds;
    cuMemcpy2D_v2 = hooks::cuMemcpy2D_v2;
    cuMemcpy2D_v2_ptds = hooks::cuMemcpy2D_v2_ptds;
    cuMemcpy2DUnaligned_v2 = hooks::cuMemcpy2DUnaligned_v2;
    cuMemcpy2DUnaligned_v2_ptds = hooks::cuMemcpy2DUnaligned_v2_ptds;
    cuMemcpy2DAsync_v2 = hooks::cuMemcpy2DAsync_v2;
    cuMemcpy2DAsync_v2_ptsz = hooks::cuMemcpy2DAsync_v2_ptsz;
    cuMemcpy3D_v2 = hooks::cuMemcpy3D_v2;
    cuMemcpy3D_v2_ptds = hooks::cuMemcpy3D_v2_ptds;
    cuMemcpy3DAsync_v2 = hooks::cuMemcpy3DAsync_v2;
    cuMemcpy3DAsync_v2_ptsz = hooks::cuMemcpy3DAsync_v2_ptsz;
    cuMemcpy3DPeer = hooks::cuMemcpy3DPeer;
    cuMemcpy3DPeer_ptds = hooks::cuMemcpy3DPeer_ptds;
    cuMemcpy3DPeerAsync = hooks::cuMemcpy3DPeerAsync;
    cuMemcpy3DPeerAsync_ptsz = hooks::cuMemcpy3DPeerAsync_ptsz;
    cuMemsetD8_v2 = hooks::cuMemsetD8_v2;
    cuMemsetD8_v2_ptds = hooks::cuMemsetD8_v2_ptds;
    cuMemsetD16_v2 = hooks::cuMemsetD16_v2;
    cuMemsetD16_v2_ptds = hooks::cuMemsetD16_v2_ptds;
    cuMemsetD32_v2 = hooks::cuMemsetD32_v2;
    cuMemsetD32_v2_ptds = hooks::cuMemsetD32_v2_ptds;
    cuMemsetD2D8_v2 = hooks::cuMemsetD2D8_v2;
    cuMemsetD2D8_v2_ptds = hooks::cuMemsetD2D8_v2_ptds;
    cuMemsetD2D16_v2 = hooks::cuMemsetD2D16_v2;
    cuMemsetD2D16_v2_ptds = hooks::cuMemsetD2D16_v2_ptds;
    cuMemsetD2D32_v2 = hooks::cuMemsetD2D32_v2;
    cuMemsetD2D32_v2_ptds = hooks::cuMemsetD2D32_v2_ptds;
    cuMemsetD8Async = hooks::cuMemsetD8Async;
    cuMemsetD8Async_ptsz = hooks::cuMemsetD8Async_ptsz;
    cuMemsetD16Async = hooks::cuMemsetD16Async;
    cuMemsetD16Async_ptsz = hooks::cuMemsetD16Async_ptsz;
    cuMemsetD32Async = hooks::cuMemsetD32Async;
    cuMemsetD32Async_ptsz = hooks::cuMemsetD32Async_ptsz;
    cuMemsetD2D8Async = hooks::cuMemsetD2D8Async;
    cuMemsetD2D8Async_ptsz = hooks::cuMemsetD2D8Async_ptsz;
    cuMemsetD2D16Async = hooks::cuMemsetD2D16Async;
    cuMemsetD2D16Async_ptsz = hooks::cuMemsetD2D16Async_ptsz;
    cuMemsetD2D32Async = hooks::cuMemsetD2D32Async;
    cuMemsetD2D32Async_ptsz = hooks::cuMemsetD2D32Async_ptsz;
    cuMemcpyBatchAsync = hooks::cuMemcpyBatchAsync;
    cuMemcpyBatchAsync_ptsz = hooks::cuMemcpyBatchAsync_ptsz;
    cuMemcpy3DBatchAsync = hooks::cuMemcpy3DBatchAsync;
    cuMemcpy3DBatchAsync_ptsz = hooks::cuMemcpy3DBatchAsync_ptsz;
    cuMemcpyBatchAsync_v2 = hooks::cuMemcpyBatchAsync_v2;
    cuMemcpyBatchAsync_v2_ptsz = hooks::cuMemcpyBatchAsync_v2_ptsz;
    cuMemcpy3DBatchAsync_v2 = hooks::cuMemcpy3DBatchAsync_v2;
    cuMemcpy3DBatchAsync_v2_ptsz = hooks::cuMemcpy3DBatchAsync_v2_ptsz;
}
