//! Result codes and their names.

use core::ffi::{CStr, c_char};

pub type CuptiResult = i32;
pub const SUCCESS: CuptiResult = 0;
pub const INVALID_PARAMETER: CuptiResult = 1;
pub const INVALID_OPERATION: CuptiResult = 7;
pub const PARAMETER_SIZE_NOT_SUFFICIENT: CuptiResult = 10;
pub const MAX_LIMIT_REACHED: CuptiResult = 12;
pub const NOT_INITIALIZED: CuptiResult = 15;
pub const INVALID_KIND: CuptiResult = 21;
pub const MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: CuptiResult = 39;

const NAMES: &[(CuptiResult, &CStr)] = &[
    (SUCCESS, c"CUPTI_SUCCESS"),
    (INVALID_PARAMETER, c"CUPTI_ERROR_INVALID_PARAMETER"),
    (INVALID_OPERATION, c"CUPTI_ERROR_INVALID_OPERATION"),
    (PARAMETER_SIZE_NOT_SUFFICIENT, c"CUPTI_ERROR_PARAMETER_SIZE_NOT_SUFFICIENT"),
    (MAX_LIMIT_REACHED, c"CUPTI_ERROR_MAX_LIMIT_REACHED"),
    (NOT_INITIALIZED, c"CUPTI_ERROR_NOT_INITIALIZED"),
    (INVALID_KIND, c"CUPTI_ERROR_INVALID_KIND"),
    (MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, c"CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED"),
];

#[unsafe(no_mangle)]
extern "C" fn cuptiGetResultString(result: CuptiResult, text: *mut *const c_char) -> CuptiResult {
    match NAMES.iter().find(|(code, _)| *code == result) {
        Some((_, name)) => put(text, name.as_ptr()),
        None => INVALID_PARAMETER,
    }
}

/// Stores a result of a C function.
pub fn put<T>(to: *mut T, value: T) -> CuptiResult {
    if to.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: the caller of the C function passed a pointer to room for a `T`, as its declaration demands.
    unsafe { to.write_unaligned(value) };
    SUCCESS
}
