//! CUPTI, libcupti.so.12 and .13: the callback and activity interfaces.

pub mod sys; // result codes, callback data, record prefixes
pub mod locate; // which copy to use

use crate::dl::dispatch;
use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use sys::*;

/// Called by CUPTI around an API function on the calling thread.
pub type Callback = unsafe extern "C" fn(*mut c_void, i32, u32, *const CUpti_CallbackData);
/// Called by CUPTI for an empty activity buffer.
pub type BufferRequested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
/// Called by CUPTI with a buffer of activity records.
pub type BufferCompleted = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

dispatch! {
    /// CUPTI functions that we call.
    CuptiApi, MissingCuptiFunction {
        required {
            cuptiGetVersion: fn(*mut u32) -> CUptiResult;
            cuptiSubscribe: fn(*mut CUpti_SubscriberHandle, Callback, *mut c_void) -> CUptiResult;
            cuptiEnableCallback: fn(u32, CUpti_SubscriberHandle, i32, u32) -> CUptiResult;
            cuptiActivityRegisterCallbacks: fn(BufferRequested, BufferCompleted) -> CUptiResult;
            cuptiActivityEnable: fn(i32) -> CUptiResult;
            cuptiActivityDisable: fn(i32) -> CUptiResult;
            cuptiActivityFlushAll: fn(u32) -> CUptiResult;
            cuptiActivityGetNextRecord: fn(*mut u8, usize, *mut *mut c_void) -> CUptiResult;
            cuptiActivityGetNumDroppedRecords: fn(*mut c_void, u32, *mut usize) -> CUptiResult;
            cuptiFinalize: fn() -> CUptiResult;
        }
        optional {
            cuptiActivitySetAttribute: fn(i32, *mut usize, *mut c_void) -> CUptiResult;
            cuptiGetResultString: fn(CUptiResult, *mut *const c_char) -> CUptiResult;
        }
    }
}

/// A CUPTI call that failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CuptiError {
    /// Which function.
    pub function: &'static str,
    /// Its result.
    pub result: CUptiResult,
}

impl CuptiError {
    /// Another tool holds the only subscription.
    pub fn is_taken(&self) -> bool {
        self.result == CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED
    }
    /// The process lacks the right to profile.
    pub fn is_permission(&self) -> bool {
        matches!(
            self.result,
            CUPTI_ERROR_INSUFFICIENT_PRIVILEGES | CUPTI_ERROR_VIRTUALIZED_DEVICE_INSUFFICIENT_PRIVILEGES
        )
    }
}

/// One activity record, as far as we read it.
#[derive(Clone, Copy, Debug)]
pub enum ActivityRecord {
    /// A kernel.
    Kernel(KernelRecordPrefix),
    /// A copy or memset.
    Memory(MemoryRecordPrefix),
    /// Any other kind.
    Other(i32),
}

impl CuptiApi {
    /// CUPTI's API version, for example 130000.
    pub fn version(&self) -> Option<u32> {
        let mut version = 0;
        // SAFETY: the pointer is valid for the call.
        let result = unsafe { (self.cuptiGetVersion)(&mut version) };
        (result == CUPTI_SUCCESS).then_some(version)
    }

    /// Becomes the subscriber.
    pub fn subscribe(&self, callback: Callback) -> Result<CUpti_SubscriberHandle, CuptiError> {
        let mut subscriber = ptr::null_mut();
        // SAFETY: the pointer is valid for the call; the callback is a function of this library, which stays loaded.
        check("cuptiSubscribe", unsafe {
            (self.cuptiSubscribe)(&mut subscriber, callback, ptr::null_mut())
        })?;
        Ok(subscriber)
    }

    /// Enables the callback of one driver function.
    pub fn enable_driver_callback(
        &self,
        subscriber: CUpti_SubscriberHandle,
        cbid: u32,
    ) -> Result<(), CuptiError> {
        // SAFETY: the subscriber is the one that `subscribe` returned.
        let result = unsafe { (self.cuptiEnableCallback)(1, subscriber, CUPTI_CB_DOMAIN_DRIVER_API, cbid) };
        check("cuptiEnableCallback", result)
    }

    /// Names the functions that hand out and take back activity buffers.
    pub fn register_buffers(
        &self,
        requested: BufferRequested,
        completed: BufferCompleted,
    ) -> Result<(), CuptiError> {
        // SAFETY: both are functions of this library, which stays loaded.
        let result = unsafe { (self.cuptiActivityRegisterCallbacks)(requested, completed) };
        check("cuptiActivityRegisterCallbacks", result)
    }

    /// Starts recording one kind of activity.
    pub fn enable_activity(&self, kind: i32) -> Result<(), CuptiError> {
        // SAFETY: takes a plain number.
        check("cuptiActivityEnable", unsafe { (self.cuptiActivityEnable)(kind) })
    }

    /// Stops recording one kind of activity.
    pub fn disable_activity(&self, kind: i32) -> Result<(), CuptiError> {
        // SAFETY: takes a plain number.
        check("cuptiActivityDisable", unsafe { (self.cuptiActivityDisable)(kind) })
    }

    /// Delivers buffers: the full ones (`flags` 0) or all (CUPTI_ACTIVITY_FLAG_FLUSH_FORCED).
    pub fn flush(&self, flags: u32) -> Result<(), CuptiError> {
        // SAFETY: takes a plain number.
        check("cuptiActivityFlushAll", unsafe { (self.cuptiActivityFlushAll)(flags) })
    }

    /// Caps CUPTI's device memory to this many buffers (about 3 MiB each) a context; ignored where unsupported.
    pub fn limit_device_buffers(&self, buffers: usize) {
        let (mut size, mut value) = (size_of::<usize>(), buffers);
        if let Some(set) = self.cuptiActivitySetAttribute {
            // SAFETY: both pointers are valid for the call and the attribute is a size_t.
            unsafe { set(CUPTI_ACTIVITY_ATTR_DEVICE_BUFFER_POOL_LIMIT, &mut size, (&raw mut value).cast()) };
        }
    }

    /// Leaves the process: frees everything and gives the fast launch path back.
    ///
    /// # Safety
    /// No work is in flight on any stream, no launch call is being made, and no stream captures
    /// (h200-cupti.md, section 3): otherwise the context is lost.
    pub unsafe fn finalize(&self) -> Result<(), CuptiError> {
        // SAFETY: by the contract of this function.
        check("cuptiFinalize", unsafe { (self.cuptiFinalize)() })
    }

    /// Calls `each` for every record of a completed buffer.
    ///
    /// # Safety
    /// `buffer` and `valid_bytes` are what CUPTI passed to the BufferCompleted callback, which has not returned.
    pub unsafe fn for_each_record(
        &self,
        buffer: *mut u8,
        valid_bytes: usize,
        mut each: impl FnMut(ActivityRecord),
    ) {
        let mut record: *mut c_void = ptr::null_mut();
        // SAFETY: by the contract of this function.
        while unsafe { (self.cuptiActivityGetNextRecord)(buffer, valid_bytes, &mut record) } == CUPTI_SUCCESS
        {
            // SAFETY: CUPTI returned a record; every record begins with its kind.
            let kind = unsafe { record.cast::<i32>().read_unaligned() };
            each(match kind {
                CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL => {
                    // SAFETY: every version of this kind from 12.0 on begins with the prefix.
                    ActivityRecord::Kernel(unsafe { record.cast::<KernelRecordPrefix>().read_unaligned() })
                }
                CUPTI_ACTIVITY_KIND_MEMCPY | CUPTI_ACTIVITY_KIND_MEMSET => {
                    // SAFETY: as above.
                    ActivityRecord::Memory(unsafe { record.cast::<MemoryRecordPrefix>().read_unaligned() })
                }
                other => ActivityRecord::Other(other),
            });
        }
    }

    /// Records that CUPTI dropped since the last question.
    pub fn dropped_records(&self, context: *mut c_void, stream_id: u32) -> u64 {
        let mut dropped = 0usize;
        // SAFETY: the pointer is valid for the call; context and stream are those of the BufferCompleted callback.
        unsafe { (self.cuptiActivityGetNumDroppedRecords)(context, stream_id, &mut dropped) };
        dropped as u64
    }

    /// Name of a result code.
    pub fn result_name(&self, result: CUptiResult) -> &'static str {
        let mut name: *const c_char = ptr::null();
        if let Some(ask) = self.cuptiGetResultString {
            // SAFETY: the pointer is valid for the call.
            unsafe { ask(result, &mut name) };
        }
        if name.is_null() {
            return "unknown CUPTI error";
        }
        // SAFETY: CUPTI returns static text.
        unsafe { CStr::from_ptr(name) }.to_str().unwrap_or("unknown CUPTI error")
    }
}

fn check(function: &'static str, result: CUptiResult) -> Result<(), CuptiError> {
    if result == CUPTI_SUCCESS { Ok(()) } else { Err(CuptiError { function, result }) }
}
