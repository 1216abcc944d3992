//! The CUDA driver, libcuda.so.1, 12.0 to 13.x.

pub mod sys; // handles, result codes, parameter structs

use crate::dl::dispatch;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::ptr;
use sys::*;

dispatch! {
    /// Driver functions that we call ourselves (the hooked ones are forwarded by the hook table).
    DriverApi, MissingDriverFunction {
        required {
            cuDriverGetVersion: fn(*mut c_int) -> CUresult;
            cuCtxGetCurrent: fn(*mut CUcontext) -> CUresult;
            cuCtxSetCurrent: fn(CUcontext) -> CUresult;
            cuCtxSynchronize: fn() -> CUresult;
            cuThreadExchangeStreamCaptureMode: fn(*mut c_int) -> CUresult;
            cuStreamGetCaptureInfo_v2: fn(CUstream, *mut c_int, *mut u64, *mut CUgraph, *mut *const CUgraphNode, *mut usize) -> CUresult;
            cuGraphGetNodes: fn(CUgraph, *mut CUgraphNode, *mut usize) -> CUresult;
        }
        optional {
            cuStreamGetCaptureInfo_v2_ptsz: fn(CUstream, *mut c_int, *mut u64, *mut CUgraph, *mut *const CUgraphNode, *mut usize) -> CUresult;
            cuFuncGetName: fn(*mut *const c_char, CUfunction) -> CUresult;
            cuKernelGetName: fn(*mut *const c_char, CUkernel) -> CUresult;
            cuGetErrorName: fn(CUresult, *mut *const c_char) -> CUresult;
        }
    }
}

/// Which default stream a launch function means by stream 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultStream {
    /// The legacy one, shared by the context.
    Legacy,
    /// One for each thread (the `_ptsz` and `_ptds` twins).
    PerThread,
}

/// A stream that is being captured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaptureState {
    /// The graph under construction.
    pub graph: CUgraph,
    /// The last node that the stream depends on: after a captured launch, the node it made. Null before the first.
    pub last_node: CUgraphNode,
}

impl DriverApi {
    /// The driver's version, for example 13000.
    pub fn version(&self) -> Option<i32> {
        let mut version = 0;
        // SAFETY: the pointer is valid for the call.
        let result = unsafe { (self.cuDriverGetVersion)(&mut version) };
        (result == CUDA_SUCCESS).then_some(version)
    }

    /// The context that is current on this thread; null when there is none.
    pub fn current_context(&self) -> CUcontext {
        let mut context = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        let result = unsafe { (self.cuCtxGetCurrent)(&mut context) };
        if result == CUDA_SUCCESS { context } else { ptr::null_mut() }
    }

    /// Whether a capture on this stream has begun and not been ended, be it valid or not.
    pub fn is_capturing(&self, stream: CUstream, default_stream: DefaultStream) -> bool {
        self.capture_info(stream, default_stream)
            .is_some_and(|(status, _)| status != CU_STREAM_CAPTURE_STATUS_NONE)
    }

    /// The valid capture that a stream takes part in, if any. About 0.1 us; does not synchronize.
    pub fn capture_state(&self, stream: CUstream, default_stream: DefaultStream) -> Option<CaptureState> {
        let (status, state) = self.capture_info(stream, default_stream)?;
        (status == CU_STREAM_CAPTURE_STATUS_ACTIVE).then_some(state)
    }

    fn capture_info(&self, stream: CUstream, default_stream: DefaultStream) -> Option<(c_int, CaptureState)> {
        let query = match (default_stream, self.cuStreamGetCaptureInfo_v2_ptsz) {
            (DefaultStream::PerThread, Some(per_thread)) => per_thread,
            _ => self.cuStreamGetCaptureInfo_v2,
        };
        let (mut status, mut id, mut graph, mut nodes, mut count) =
            (0, 0u64, ptr::null_mut(), ptr::null(), 0usize);
        // SAFETY: all pointers are valid for the call; the driver validates the stream.
        let result = unsafe { query(stream, &mut status, &mut id, &mut graph, &mut nodes, &mut count) };
        if result != CUDA_SUCCESS {
            return None;
        }
        let last_node = if count == 0 || nodes.is_null() {
            ptr::null_mut()
        } else {
            // SAFETY: the driver returned `count` nodes that stay valid until the next call on the stream.
            unsafe { *nodes.add(count - 1) }
        };
        Some((status, CaptureState { graph, last_node }))
    }

    /// Nodes of a graph in order of creation, at most `limit`.
    pub fn graph_nodes(&self, graph: CUgraph, limit: usize) -> Option<Vec<CUgraphNode>> {
        let mut count = 0usize;
        // SAFETY: a null node array asks for the count.
        let result = unsafe { (self.cuGraphGetNodes)(graph, ptr::null_mut(), &mut count) };
        if result != CUDA_SUCCESS || count > limit {
            return None;
        }
        let mut nodes = vec![ptr::null_mut(); count];
        // SAFETY: `nodes` has room for `count` nodes.
        let result = unsafe { (self.cuGraphGetNodes)(graph, nodes.as_mut_ptr(), &mut count) };
        nodes.truncate(count);
        (result == CUDA_SUCCESS).then_some(nodes)
    }

    /// Mangled name of a function or kernel. cudart passes a CUkernel where a CUfunction is declared, and for those
    /// cuFuncGetName gives no name, so both are asked.
    pub fn function_name(&self, function: CUfunction) -> Option<&'static CStr> {
        let mut name: *const c_char = ptr::null();
        let asked = [self.cuFuncGetName, self.cuKernelGetName];
        for ask in asked.into_iter().flatten() {
            // SAFETY: the pointer is valid for the call; the driver validates the handle.
            let result = unsafe { ask(&mut name, function) };
            if result == CUDA_SUCCESS && !name.is_null() {
                // SAFETY: the driver owns the name for as long as its module is loaded; callers copy it at once.
                return Some(unsafe { CStr::from_ptr(name) });
            }
        }
        None
    }

    /// Lets this thread make calls that a capture in progress on another thread would forbid (or be broken by).
    pub fn relax_capture_mode_of_this_thread(&self) {
        let mut mode = CU_STREAM_CAPTURE_MODE_RELAXED;
        // SAFETY: the pointer is valid for the call. A failure leaves the mode as it is, which is the stricter one.
        unsafe { (self.cuThreadExchangeStreamCaptureMode)(&mut mode) };
    }

    /// Name of a result code, or "unknown error".
    pub fn error_name(&self, result: CUresult) -> &'static str {
        let mut name: *const c_char = ptr::null();
        if let Some(ask) = self.cuGetErrorName {
            // SAFETY: the pointer is valid for the call.
            unsafe { ask(result, &mut name) };
        }
        if name.is_null() {
            return "unknown error";
        }
        // SAFETY: the driver returns static text.
        unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("unknown error")
    }
}

/// Stream of a cuLaunchKernelEx configuration.
///
/// # Safety
/// `config` is null or points to a CUlaunchConfig.
pub unsafe fn launch_config_stream(config: *const c_void) -> CUstream {
    if config.is_null() {
        return ptr::null_mut();
    }
    // SAFETY: the caller passes a CUlaunchConfig.
    unsafe { (*config.cast::<LaunchConfigPrefix>()).stream }
}
