//! Names and texts of result codes. Work before cuInit, as in the real driver.

use crate::abi::*;
use core::ffi::{CStr, c_char};
use core::ptr;

/// Texts are our own words.
const CODES: &[(CUresult, &CStr, &CStr)] = &[
    (SUCCESS, c"CUDA_SUCCESS", c"no error"),
    (INVALID_VALUE, c"CUDA_ERROR_INVALID_VALUE", c"invalid argument"),
    (NOT_INITIALIZED, c"CUDA_ERROR_NOT_INITIALIZED", c"initialization error"),
    (INVALID_DEVICE, c"CUDA_ERROR_INVALID_DEVICE", c"invalid device ordinal"),
    (INVALID_IMAGE, c"CUDA_ERROR_INVALID_IMAGE", c"device kernel image is invalid"),
    (INVALID_CONTEXT, c"CUDA_ERROR_INVALID_CONTEXT", c"invalid device context"),
    (INVALID_HANDLE, c"CUDA_ERROR_INVALID_HANDLE", c"invalid resource handle"),
    (ILLEGAL_STATE, c"CUDA_ERROR_ILLEGAL_STATE", c"the operation cannot be performed in the present state"),
    (NOT_FOUND, c"CUDA_ERROR_NOT_FOUND", c"named symbol not found"),
    (NOT_READY, c"CUDA_ERROR_NOT_READY", c"device not ready"),
    (CONTEXT_IS_DESTROYED, c"CUDA_ERROR_CONTEXT_IS_DESTROYED", c"context is destroyed"),
    (LAUNCH_FAILED, c"CUDA_ERROR_LAUNCH_FAILED", c"unspecified launch failure"),
    (
        STREAM_CAPTURE_UNSUPPORTED,
        c"CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED",
        c"operation not permitted when stream is capturing",
    ),
    (
        STREAM_CAPTURE_INVALIDATED,
        c"CUDA_ERROR_STREAM_CAPTURE_INVALIDATED",
        c"operation failed due to a previous error during capture",
    ),
    (
        STREAM_CAPTURE_IMPLICIT,
        c"CUDA_ERROR_STREAM_CAPTURE_IMPLICIT",
        c"operation would make the legacy stream depend on a capturing blocking stream",
    ),
    (
        STREAM_CAPTURE_WRONG_THREAD,
        c"CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD",
        c"attempt to terminate a thread-local capture sequence from another thread",
    ),
    (
        GRAPH_EXEC_UPDATE_FAILURE,
        c"CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE",
        c"the graph update was not performed",
    ),
];

fn answer(
    code: CUresult,
    to: Out<*const c_char>,
    part: impl Fn(&(CUresult, &CStr, &CStr)) -> *const c_char,
) -> CUresult {
    let row = CODES.iter().find(|row| row.0 == code);
    let outcome = to.set(row.map_or(ptr::null(), part));
    if row.is_none() { INVALID_VALUE } else { outcome.err().unwrap_or(SUCCESS) }
}

pub extern "C" fn name(code: CUresult, name: Out<*const c_char>) -> CUresult {
    answer(code, name, |row| row.1.as_ptr())
}

pub extern "C" fn text(code: CUresult, text: Out<*const c_char>) -> CUresult {
    answer(code, text, |row| row.2.as_ptr())
}
