//! Types and constants of cuda.h that we use. Prefixes only: layouts are append-only from 12.0 to 13.x.
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]

use core::ffi::{c_int, c_uint, c_void};

/// Result code.
pub type CUresult = c_int;
/// Context handle.
pub type CUcontext = *mut c_void;
/// Stream handle; 0, 1 and 2 are the default, legacy and per-thread streams.
pub type CUstream = *mut c_void;
/// Function handle, or a CUkernel cast to one.
pub type CUfunction = *mut c_void;
/// Kernel handle.
pub type CUkernel = *mut c_void;
/// Graph handle.
pub type CUgraph = *mut c_void;
/// Graph node handle.
pub type CUgraphNode = *mut c_void;
/// Executable graph handle.
pub type CUgraphExec = *mut c_void;

/// Success.
pub const CUDA_SUCCESS: CUresult = 0;
/// The neutral error of a hook that cannot find its original: the driver is not initialized.
pub const CUDA_ERROR_NOT_INITIALIZED: CUresult = 3;
/// CU_STREAM_CAPTURE_STATUS_NONE.
pub const CU_STREAM_CAPTURE_STATUS_NONE: c_int = 0;
/// CU_STREAM_CAPTURE_STATUS_ACTIVE.
pub const CU_STREAM_CAPTURE_STATUS_ACTIVE: c_int = 1;
/// CU_STREAM_CAPTURE_MODE_RELAXED.
pub const CU_STREAM_CAPTURE_MODE_RELAXED: c_int = 2;

/// First fields of CUlaunchConfig.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct LaunchConfigPrefix {
    /// Grid in blocks.
    pub grid: [c_uint; 3],
    /// Block in threads.
    pub block: [c_uint; 3],
    /// Dynamic shared memory.
    pub shared_bytes: c_uint,
    /// Stream.
    pub stream: CUstream,
}
const _: () = assert!(core::mem::offset_of!(LaunchConfigPrefix, stream) == 32);
