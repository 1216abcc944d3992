//! cuGetProcAddress: base name and version to one of the exported functions. Works before cuInit.

use crate::abi::*;
use crate::entry::{ENTRIES, NAMES};
use core::ffi::c_void;

const PER_THREAD_DEFAULT_STREAM: u64 = 2;
const FOUND: i32 = 0;
const SYMBOL_NOT_FOUND: i32 = 1;
const VERSION_NOT_SUFFICIENT: i32 = 2;

/// Base names that mean different functions in different versions, newest first.
const VERSIONED: &[(&str, &[(i32, &str)])] = &[
    ("cuCtxCreate", &[(13000, "cuCtxCreate_v4"), (3020, "cuCtxCreate_v2")]),
    ("cuCtxDestroy", &[(4000, "cuCtxDestroy_v2")]),
    ("cuCtxPushCurrent", &[(4000, "cuCtxPushCurrent_v2")]),
    ("cuCtxPopCurrent", &[(4000, "cuCtxPopCurrent_v2")]),
    (
        "cuDevicePrimaryCtxRelease",
        &[(11000, "cuDevicePrimaryCtxRelease_v2"), (7000, "cuDevicePrimaryCtxRelease")],
    ),
    ("cuDeviceTotalMem", &[(3020, "cuDeviceTotalMem_v2")]),
    ("cuStreamDestroy", &[(4000, "cuStreamDestroy_v2")]),
    ("cuMemAlloc", &[(3020, "cuMemAlloc_v2")]),
    ("cuMemFree", &[(3020, "cuMemFree_v2")]),
    ("cuMemcpyHtoD", &[(3020, "cuMemcpyHtoD_v2")]),
    ("cuMemcpyDtoH", &[(3020, "cuMemcpyDtoH_v2")]),
    ("cuMemcpyDtoD", &[(3020, "cuMemcpyDtoD_v2")]),
    ("cuMemcpyHtoDAsync", &[(3020, "cuMemcpyHtoDAsync_v2")]),
    ("cuMemcpyDtoHAsync", &[(3020, "cuMemcpyDtoHAsync_v2")]),
    ("cuMemcpyDtoDAsync", &[(3020, "cuMemcpyDtoDAsync_v2")]),
    ("cuMemsetD8", &[(3020, "cuMemsetD8_v2")]),
    ("cuMemsetD32", &[(3020, "cuMemsetD32_v2")]),
    ("cuStreamBeginCapture", &[(10010, "cuStreamBeginCapture_v2"), (10000, "cuStreamBeginCapture")]),
    (
        "cuStreamGetCaptureInfo",
        &[
            (12030, "cuStreamGetCaptureInfo_v3"),
            (11030, "cuStreamGetCaptureInfo_v2"),
            (10010, "cuStreamGetCaptureInfo"),
        ],
    ),
    (
        "cuGraphInstantiate",
        &[
            (12000, "cuGraphInstantiateWithFlags"),
            (11000, "cuGraphInstantiate_v2"),
            (10000, "cuGraphInstantiate"),
        ],
    ),
    ("cuGraphExecUpdate", &[(12000, "cuGraphExecUpdate_v2"), (10020, "cuGraphExecUpdate")]),
    ("cuGraphAddKernelNode", &[(12000, "cuGraphAddKernelNode_v2"), (10000, "cuGraphAddKernelNode")]),
    ("cuGetProcAddress", &[(12000, "cuGetProcAddress_v2"), (11030, "cuGetProcAddress")]),
];

/// What a base name means in a version; names that never changed mean themselves in all.
fn versioned(base: &str, version: i32) -> Result<&str, i32> {
    let Some((_, versions)) = VERSIONED.iter().find(|(name, _)| *name == base) else { return Ok(base) };
    let fitting = versions.iter().find(|(since, _)| version >= *since);
    fitting.map(|(_, name)| *name).ok_or(VERSION_NOT_SUFFICIENT)
}

fn exported(name: &str) -> Option<*const c_void> {
    let index = NAMES.iter().position(|known| known.to_bytes() == name.as_bytes())?;
    Some(ENTRIES[index] as *const c_void)
}

fn address(base: &str, version: i32, flags: u64) -> Result<*const c_void, i32> {
    let name = versioned(base, version)?;
    let twins = ["_ptsz", "_ptds"].map(|suffix| exported(&format!("{name}{suffix}")));
    let twin = twins.into_iter().flatten().next().filter(|_| flags & PER_THREAD_DEFAULT_STREAM != 0);
    twin.or_else(|| exported(name)).ok_or(SYMBOL_NOT_FOUND)
}

fn answer(
    symbol: Text,
    function: Out<*const c_void>,
    version: i32,
    flags: u64,
    status: Out<i32>,
) -> Driver<()> {
    let name = symbol.get()?;
    if flags > 3 || function.is_null() {
        return Err(INVALID_VALUE);
    }
    let found = address(&name, version, flags);
    status.set_if_wanted(found.err().unwrap_or(FOUND));
    function.set(found.unwrap_or(core::ptr::null()))?;
    // With a place for the status, an absent function is no error.
    if found.is_err() && status.is_null() { Err(NOT_FOUND) } else { Ok(()) }
}

pub extern "C" fn find(symbol: Text, function: Out<*const c_void>, version: i32, flags: u64) -> CUresult {
    answer(symbol, function, version, flags, Out::null()).err().unwrap_or(SUCCESS)
}

pub extern "C" fn find_v2(
    symbol: Text,
    function: Out<*const c_void>,
    version: i32,
    flags: u64,
    status: Out<i32>,
) -> CUresult {
    answer(symbol, function, version, flags, status).err().unwrap_or(SUCCESS)
}
