//! The activity functions, and the worker thread that fills buffers while any activity is enabled.

use crate::buffers::{self, Callbacks, Completed, KERNEL_KIND, Requested};
use crate::driver::driver;
use crate::results::*;
use crate::subscriber::attach_quietly;
use crate::tools_abi::{RECORD_KERNELS, RECORD_MEMCPY, RECORD_MEMSET};
use crate::{pending, records};
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// CUPTI_ACTIVITY_KIND_MEM_DECOMPRESS, the last of CUDA 13.0.
const LAST_KIND: i32 = 54;
const ATTRIBUTES: usize = 10;
/// How often the worker looks for ended work.
const TICK: Duration = Duration::from_millis(2);

static ENABLED: AtomicU32 = AtomicU32::new(0);
static WORKER: AtomicBool = AtomicBool::new(false);
static ATTRIBUTE: [AtomicU64; ATTRIBUTES] = [const { AtomicU64::new(0) }; ATTRIBUTES];

fn bit(kind: i32) -> u32 {
    match kind {
        records::MEMCPY => RECORD_MEMCPY,
        records::MEMSET => RECORD_MEMSET,
        records::KERNEL | records::CONCURRENT_KERNEL => RECORD_KERNELS,
        // Accepted, and nothing is ever recorded.
        _ => 0,
    }
}

fn set_enabled(kinds: u32) -> CuptiResult {
    ENABLED.store(kinds, Ordering::Relaxed);
    pending::set_wanted(kinds);
    driver().map_or_else(
        |code| code,
        |driver| {
            (driver.record)(kinds);
            SUCCESS
        },
    )
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityEnable(kind: i32) -> CuptiResult {
    if !(1..=LAST_KIND).contains(&kind) {
        return INVALID_KIND;
    }
    let attached = attach_quietly();
    if attached != SUCCESS {
        return attached;
    }
    if bit(kind) == RECORD_KERNELS {
        KERNEL_KIND.store(kind, Ordering::Relaxed);
    }
    if bit(kind) != 0 && !WORKER.swap(true, Ordering::AcqRel) {
        std::thread::spawn(work);
    }
    set_enabled(ENABLED.load(Ordering::Relaxed) | bit(kind))
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityDisable(kind: i32) -> CuptiResult {
    if !(1..=LAST_KIND).contains(&kind) {
        return INVALID_KIND;
    }
    set_enabled(ENABLED.load(Ordering::Relaxed) & !bit(kind))
}

/// The worker: lives until cuptiFinalize.
fn work() {
    while WORKER.load(Ordering::Acquire) {
        buffers::fill();
        std::thread::sleep(TICK);
    }
}

/// Everything off, for cuptiFinalize. What is in the current buffer is delivered; unfinished work is forgotten.
pub fn stop() {
    WORKER.store(false, Ordering::Release);
    let _ = set_enabled(0);
    buffers::fill();
    buffers::deliver();
    buffers::set_callbacks(None);
    pending::clear();
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityRegisterCallbacks(
    requested: Option<Requested>,
    completed: Option<Completed>,
) -> CuptiResult {
    let (Some(requested), Some(completed)) = (requested, completed) else { return INVALID_PARAMETER };
    buffers::set_callbacks(Some(Callbacks { requested, completed }));
    attach_quietly()
}

/// With any flag: a record is written only when its work has ended, so there are no incomplete ones to hold back.
#[unsafe(no_mangle)]
extern "C" fn cuptiActivityFlushAll(_flag: u32) -> CuptiResult {
    if !buffers::have_callbacks() {
        return INVALID_OPERATION;
    }
    buffers::fill();
    buffers::deliver();
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityGetNextRecord(
    buffer: *mut u8,
    valid_bytes: usize,
    record: *mut *mut c_void,
) -> CuptiResult {
    if buffer.is_null() || record.is_null() {
        return INVALID_PARAMETER;
    }
    // SAFETY: the caller passes a pointer to null or to the record that the last call returned.
    let previous = unsafe { *record };
    let offset = if previous.is_null() {
        0
    } else {
        // SAFETY: a record of ours, which begins with its kind.
        let Some(size) = records::size(unsafe { previous.cast::<i32>().read_unaligned() }) else {
            return INVALID_KIND;
        };
        (previous as usize).saturating_sub(buffer as usize) + size
    };
    if offset >= valid_bytes {
        return MAX_LIMIT_REACHED;
    }
    // SAFETY: the offset lies within the valid bytes of the caller's buffer.
    let next = unsafe { buffer.add(offset) };
    // SAFETY: a whole record was written there, and it begins with its kind.
    if records::size(unsafe { next.cast::<i32>().read_unaligned() }).is_none() {
        return INVALID_KIND;
    }
    put(record, next.cast())
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityGetNumDroppedRecords(
    _context: *mut c_void,
    _stream_id: u32,
    dropped: *mut usize,
) -> CuptiResult {
    if dropped.is_null() { INVALID_PARAMETER } else { put(dropped, buffers::take_dropped() as usize) }
}

fn attribute(attribute: i32) -> Option<&'static AtomicU64> {
    usize::try_from(attribute).ok().and_then(|index| ATTRIBUTE.get(index))
}

/// Checks what both attribute functions get; the place of the attribute and its size, which is one of two.
fn checked(
    name: i32,
    size: *mut usize,
    value: *mut c_void,
) -> Result<(&'static AtomicU64, usize), CuptiResult> {
    if size.is_null() || value.is_null() {
        return Err(INVALID_PARAMETER);
    }
    let place = attribute(name).ok_or(INVALID_PARAMETER)?;
    // SAFETY: checked not to be null; the caller passes a pointer to a size.
    match unsafe { *size } {
        bytes @ (1 | 8) => Ok((place, bytes)),
        _ => Err(PARAMETER_SIZE_NOT_SUFFICIENT),
    }
}

/// Remembers the value and has no other effect.
#[unsafe(no_mangle)]
extern "C" fn cuptiActivitySetAttribute(name: i32, size: *mut usize, value: *mut c_void) -> CuptiResult {
    let (place, bytes) = match checked(name, size, value) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let mut new = [0u8; 8];
    // SAFETY: the caller's value has `bytes` bytes, at most eight.
    unsafe { ptr::copy_nonoverlapping(value.cast::<u8>(), new.as_mut_ptr(), bytes) };
    place.store(u64::from_ne_bytes(new), Ordering::Relaxed);
    SUCCESS
}

#[unsafe(no_mangle)]
extern "C" fn cuptiActivityGetAttribute(name: i32, size: *mut usize, value: *mut c_void) -> CuptiResult {
    let (place, bytes) = match checked(name, size, value) {
        Ok(found) => found,
        Err(code) => return code,
    };
    let now = place.load(Ordering::Relaxed).to_ne_bytes();
    // SAFETY: the caller has room for `bytes` bytes, at most eight.
    unsafe { ptr::copy_nonoverlapping(now.as_ptr(), value.cast::<u8>(), bytes) };
    SUCCESS
}
