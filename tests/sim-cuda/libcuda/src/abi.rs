//! Result codes, handle and argument types of the driver API, as its header has them.
#![allow(dead_code, reason = "the list of codes is the header's, not ours")]

use core::ffi::c_char;

/// Result code.
pub type CUresult = i32;
/// Any handle. A number that is looked up, never an address that is followed.
pub type Handle = usize;
/// Outcome of an inner function.
pub type Driver<T> = Result<T, CUresult>;

pub const SUCCESS: CUresult = 0;
pub const INVALID_VALUE: CUresult = 1;
pub const NOT_INITIALIZED: CUresult = 3;
pub const INVALID_DEVICE: CUresult = 101;
pub const INVALID_IMAGE: CUresult = 200;
pub const INVALID_CONTEXT: CUresult = 201;
pub const INVALID_HANDLE: CUresult = 400;
pub const ILLEGAL_STATE: CUresult = 401;
pub const NOT_FOUND: CUresult = 500;
pub const NOT_READY: CUresult = 600;
pub const CONTEXT_IS_DESTROYED: CUresult = 709;
pub const LAUNCH_FAILED: CUresult = 719;
pub const STREAM_CAPTURE_UNSUPPORTED: CUresult = 900;
pub const STREAM_CAPTURE_INVALIDATED: CUresult = 901;
pub const STREAM_CAPTURE_IMPLICIT: CUresult = 906;
pub const STREAM_CAPTURE_WRONG_THREAD: CUresult = 908;
pub const GRAPH_EXEC_UPDATE_FAILURE: CUresult = 910;

pub const CAPTURE_MODE_GLOBAL: i32 = 0;
pub const CAPTURE_MODE_THREAD_LOCAL: i32 = 1;
pub const CAPTURE_MODE_RELAXED: i32 = 2;
pub const CAPTURE_STATUS_NONE: i32 = 0;
pub const CAPTURE_STATUS_ACTIVE: i32 = 1;
pub const CAPTURE_STATUS_INVALIDATED: i32 = 2;
pub const STREAM_NON_BLOCKING: u32 = 1;
pub const STREAM_LEGACY: Handle = 1;
pub const STREAM_PER_THREAD: Handle = 2;

/// A pointer through which a C caller gets a result.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// Stores; a null pointer is an invalid value.
    pub fn set(self, value: T) -> Driver<()> {
        if self.is_null() {
            return Err(INVALID_VALUE);
        }
        self.set_if_wanted(value);
        Ok(())
    }
    /// Stores unless the caller passed null.
    pub fn set_if_wanted(self, value: T) {
        if !self.is_null() {
            // SAFETY: the caller of the C function passed a pointer to room for a `T`, as its declaration demands.
            unsafe { self.0.write_unaligned(value) }
        }
    }
    /// What is there now.
    pub fn get(self) -> Driver<T> {
        if self.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller of the C function passed a pointer to a `T`, as its declaration demands.
        Ok(unsafe { self.0.read_unaligned() })
    }
    /// Stores into an array of the caller's.
    pub fn set_all(self, values: &[T]) {
        for (index, value) in values.iter().enumerate() {
            // SAFETY: the caller of the C function passed room for this many, as its declaration demands.
            unsafe { self.0.add(index).write_unaligned(*value) }
        }
    }
    pub fn is_null(self) -> bool {
        self.0.is_null()
    }
    /// Where nobody wants the result.
    pub fn null() -> Self {
        Self(core::ptr::null_mut())
    }
}

/// A pointer to an argument of a C caller.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// The argument; a null pointer is an invalid value.
    pub fn get(self) -> Driver<T> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller of the C function passed a pointer to a `T`, as its declaration demands.
        Ok(unsafe { self.0.read_unaligned() })
    }
    /// The first `count` of an array.
    pub fn list(self, count: usize) -> Driver<Vec<T>> {
        if self.0.is_null() && count > 0 {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller of the C function passed this many, as its declaration demands.
        Ok((0..count).map(|index| unsafe { self.0.add(index).read_unaligned() }).collect())
    }
}

/// A text of a C caller.
#[repr(transparent)]
#[derive(Clone, Copy)]
pub struct Text(*const c_char);

impl Text {
    pub fn get(self) -> Driver<String> {
        if self.0.is_null() {
            return Err(INVALID_VALUE);
        }
        // SAFETY: the caller of the C function passed a C string, as its declaration demands.
        Ok(unsafe { core::ffi::CStr::from_ptr(self.0) }.to_string_lossy().into_owned())
    }
}

/// CUlaunchConfig, without the attributes at its end.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct LaunchConfig {
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub stream: Handle,
}

/// CUDA_KERNEL_NODE_PARAMS, as far as both versions agree.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelNodeParams {
    pub function: Handle,
    pub grid: [u32; 3],
    pub block: [u32; 3],
    pub shared_bytes: u32,
    pub parameters: usize,
    pub extra: usize,
}

/// The two last fields of the second version of CUDA_KERNEL_NODE_PARAMS.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct KernelNodeParamsV2 {
    pub first: KernelNodeParams,
    pub kernel: Handle,
    pub context: Handle,
}

/// CUDA_GRAPH_INSTANTIATE_PARAMS.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct InstantiateParams {
    pub flags: u64,
    pub upload_stream: Handle,
    pub error_node: Handle,
    pub result: i32,
}

/// CUgraphExecUpdateResultInfo.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct UpdateResult {
    pub result: i32,
    pub error_node: Handle,
    pub error_from_node: Handle,
}

const _: () = {
    assert!(core::mem::offset_of!(LaunchConfig, stream) == 32);
    assert!(size_of::<KernelNodeParams>() == 56);
    assert!(size_of::<KernelNodeParamsV2>() == 72);
    assert!(size_of::<InstantiateParams>() == 32);
    assert!(size_of::<UpdateResult>() == 24);
};
