//! Types and constants of cupti.h that we use. Prefixes only: record layouts are append-only from 12.0 to 13.5
//! (checked against the headers of 12.4, 12.9, 13.0, 13.2 and 13.5).
#![allow(non_camel_case_types, non_snake_case, non_upper_case_globals)]

use core::ffi::{c_char, c_void};

/// Result code.
pub type CUptiResult = i32;
/// Subscriber handle.
pub type CUpti_SubscriberHandle = *mut c_void;

/// Success.
pub const CUPTI_SUCCESS: CUptiResult = 0;
/// The end of a buffer.
pub const CUPTI_ERROR_MAX_LIMIT_REACHED: CUptiResult = 12;
/// No rights to profile.
pub const CUPTI_ERROR_INSUFFICIENT_PRIVILEGES: CUptiResult = 35;
/// Another subscriber is there.
pub const CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED: CUptiResult = 39;
/// As 35, under a hypervisor.
pub const CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES: CUptiResult = 40;

/// CUPTI_CB_DOMAIN_DRIVER_API.
pub const CUPTI_CB_DOMAIN_DRIVER_API: i32 = 1;
/// CUPTI_API_ENTER.
pub const CUPTI_API_ENTER: i32 = 0;

/// CUPTI_ACTIVITY_KIND_MEMCPY.
pub const CUPTI_ACTIVITY_KIND_MEMCPY: i32 = 1;
/// CUPTI_ACTIVITY_KIND_MEMSET.
pub const CUPTI_ACTIVITY_KIND_MEMSET: i32 = 2;
/// CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL.
pub const CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL: i32 = 10;
/// CUPTI_ACTIVITY_FLAG_FLUSH_FORCED.
pub const CUPTI_ACTIVITY_FLAG_FLUSH_FORCED: u32 = 1;
/// CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT (a size_t, number of device buffers a context).
pub const CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT: i32 = 2;

/// CUpti_CallbackData; 72 bytes.
#[repr(C)]
#[derive(Debug)]
pub struct CUpti_CallbackData {
    /// CUPTI_API_ENTER or CUPTI_API_EXIT.
    pub callbackSite: i32,
    /// Function name.
    pub functionName: *const c_char,
    /// Parameters.
    pub functionParams: *const c_void,
    /// Return value, at the exit.
    pub functionReturnValue: *mut c_void,
    /// Kernel name of a launch, where CUPTI knows it.
    pub symbolName: *const c_char,
    /// Context.
    pub context: *mut c_void,
    /// CUPTI's id of the context.
    pub contextUid: u32,
    /// Room for the tool between enter and exit.
    pub correlationData: *mut u64,
    /// Correlation id.
    pub correlationId: u32,
}
const _: () = {
    assert!(size_of::<CUpti_CallbackData>() == 72);
    assert!(core::mem::offset_of!(CUpti_CallbackData, correlationId) == 64);
};

/// Prefix of CUpti_ActivityKernel9 and later (CUDA 12.0 to 13.5); 160 of 208 to 248 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct KernelRecordPrefix {
    /// CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL.
    pub kind: i32,
    reserved_0: [u8; 12],
    /// Start in nanoseconds.
    pub start: u64,
    /// End in nanoseconds.
    pub end: u64,
    reserved_1: u64,
    /// Device ordinal.
    pub deviceId: u32,
    /// Context id.
    pub contextId: u32,
    /// Stream id.
    pub streamId: u32,
    reserved_2: [u8; 40],
    /// Correlation id.
    pub correlationId: u32,
    reserved_3: u64,
    /// Mangled name, owned by CUPTI.
    pub name: *const c_char,
    reserved_4: [u8; 32],
    /// `(graph id << 32) | node index`, zero outside graphs.
    pub graphNodeId: u64,
    reserved_5: u32,
    /// Graph id, zero outside graphs.
    pub graphId: u32,
}
const _: () = {
    assert!(size_of::<KernelRecordPrefix>() == 160);
    assert!(core::mem::offset_of!(KernelRecordPrefix, start) == 16);
    assert!(core::mem::offset_of!(KernelRecordPrefix, deviceId) == 40);
    assert!(core::mem::offset_of!(KernelRecordPrefix, correlationId) == 92);
    assert!(core::mem::offset_of!(KernelRecordPrefix, name) == 104);
    assert!(core::mem::offset_of!(KernelRecordPrefix, graphNodeId) == 144);
    assert!(core::mem::offset_of!(KernelRecordPrefix, graphId) == 156);
};

/// Prefix of CUpti_ActivityMemcpy5 and 6, and of CUpti_ActivityMemset4, which agree in these fields; 80 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct MemoryRecordPrefix {
    /// CUPTI_ACTIVITY_KIND_MEMCPY or _MEMSET.
    pub kind: i32,
    /// copyKind, srcKind, dstKind, flags of a copy; the value of a memset.
    pub detail: [u8; 4],
    /// Bytes.
    pub bytes: u64,
    /// Start in nanoseconds.
    pub start: u64,
    /// End in nanoseconds.
    pub end: u64,
    /// Device ordinal.
    pub deviceId: u32,
    /// Context id.
    pub contextId: u32,
    /// Stream id.
    pub streamId: u32,
    /// Correlation id.
    pub correlationId: u32,
    reserved_0: [u8; 16],
    /// `(graph id << 32) | node index`, zero outside graphs.
    pub graphNodeId: u64,
    /// Graph id, zero outside graphs.
    pub graphId: u32,
    reserved_1: u32,
}
const _: () = {
    assert!(size_of::<MemoryRecordPrefix>() == 80);
    assert!(core::mem::offset_of!(MemoryRecordPrefix, start) == 16);
    assert!(core::mem::offset_of!(MemoryRecordPrefix, correlationId) == 44);
    assert!(core::mem::offset_of!(MemoryRecordPrefix, graphNodeId) == 64);
    assert!(core::mem::offset_of!(MemoryRecordPrefix, graphId) == 72);
};
