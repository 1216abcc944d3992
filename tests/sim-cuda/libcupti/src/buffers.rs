//! The tool's buffers: asked for when a record needs one, given back full or on a flush. One thread fills at a time;
//! the tool's functions are called with only that lock held, so they may call CUPTI's reading functions.

use crate::driver::driver;
use crate::pending::take_ended;
use crate::records;
use crate::tools_abi::Work;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::Mutex;

pub type Requested = unsafe extern "C" fn(*mut *mut u8, *mut usize, *mut usize);
pub type Completed = unsafe extern "C" fn(*mut c_void, u32, *mut u8, usize, usize);

/// The tool's two functions.
#[derive(Clone, Copy)]
pub struct Callbacks {
    pub requested: Requested,
    pub completed: Completed,
}

struct Buffer {
    address: usize,
    bytes: usize,
    /// Zero for no limit.
    most_records: usize,
    used: usize,
    records: usize,
}

struct Filling {
    callbacks: Option<Callbacks>,
    buffer: Option<Buffer>,
    scratch: Vec<u8>,
}

static FILLING: Mutex<Filling> = Mutex::new(Filling { callbacks: None, buffer: None, scratch: Vec::new() });
static DROPPED: AtomicU64 = AtomicU64::new(0);
/// Which of the two kernel kinds records carry.
pub static KERNEL_KIND: AtomicI32 = AtomicI32::new(records::CONCURRENT_KERNEL);

fn filling() -> std::sync::MutexGuard<'static, Filling> {
    FILLING.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Names the tool's functions; null ones when it has gone.
pub fn set_callbacks(callbacks: Option<Callbacks>) {
    filling().callbacks = callbacks;
}

pub fn have_callbacks() -> bool {
    filling().callbacks.is_some()
}

/// Records that found no buffer since the last question.
pub fn take_dropped() -> u64 {
    DROPPED.swap(0, Ordering::Relaxed)
}

/// Writes the records of all work that has ended; buffers that become full are delivered.
pub fn fill() {
    let Ok(driver) = driver() else { return };
    let mut filling = filling();
    let mut dropped = 0;
    for work in take_ended((driver.now_ns)()) {
        if !filling.add(&work) {
            dropped += 1;
        }
    }
    if dropped > 0 {
        DROPPED.fetch_add(dropped, Ordering::Relaxed);
        (driver.dropped)(dropped);
    }
}

/// Delivers the current buffer, however full.
pub fn deliver() {
    filling().deliver();
}

impl Filling {
    /// False when the tool had no buffer.
    fn add(&mut self, work: &Work) -> bool {
        let mut record = core::mem::take(&mut self.scratch);
        records::write(work, KERNEL_KIND.load(Ordering::Relaxed), &mut record);
        if self.buffer.as_ref().is_some_and(|buffer| !buffer.has_room(record.len())) {
            self.deliver();
        }
        if self.buffer.is_none() {
            self.buffer = self.callbacks.and_then(request);
        }
        let written = self.buffer.as_mut().is_some_and(|buffer| buffer.write(&record));
        self.scratch = record;
        written
    }

    fn deliver(&mut self) {
        let (Some(callbacks), Some(buffer)) = (self.callbacks, self.buffer.take()) else { return };
        // SAFETY: the tool's function takes back its own buffer, of which `used` bytes hold records.
        unsafe {
            (callbacks.completed)(ptr::null_mut(), 0, buffer.address as *mut u8, buffer.bytes, buffer.used)
        };
    }
}

fn request(callbacks: Callbacks) -> Option<Buffer> {
    let (mut address, mut bytes, mut most_records) = (ptr::null_mut(), 0usize, 0usize);
    // SAFETY: all pointers are valid for the call.
    unsafe { (callbacks.requested)(&mut address, &mut bytes, &mut most_records) };
    if address.is_null() || bytes == 0 {
        return None;
    }
    Some(Buffer { address: address as usize, bytes, most_records, used: 0, records: 0 })
}

impl Buffer {
    fn has_room(&self, bytes: usize) -> bool {
        self.used + bytes <= self.bytes && (self.most_records == 0 || self.records < self.most_records)
    }

    fn write(&mut self, record: &[u8]) -> bool {
        if !self.has_room(record.len()) {
            return false;
        }
        // SAFETY: the tool gave `bytes` bytes at `address`, and the record fits behind the `used` ones.
        unsafe {
            let to = (self.address as *mut u8).add(self.used);
            ptr::copy_nonoverlapping(record.as_ptr(), to, record.len());
        }
        self.used += record.len();
        self.records += 1;
        true
    }
}
