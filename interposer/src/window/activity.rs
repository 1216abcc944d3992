//! CUPTI's side of a window: buffers for its records, records into the ring, correlation ids to their threads.
//!
//! Runs on: CUPTI's worker thread or the helper thread (buffers), the launching thread (callbacks).
//! Allocates: a buffer when the pool is empty. Locks: one of our own while a buffer is read; never on the launch path.

use crate::guard::panic_fence;
use crate::launch_hook;
use crate::lifecycle;
use crate::profiler::Profiler;
use crate::thread_state::set_correlation_id;
use bindings::cupti::sys::*;
use bindings::cupti::{ActivityRecord, CuptiApi};
use core::ffi::{CStr, c_char, c_void};
use core::ptr;
use shared_abi::counters::Counter;
use shared_abi::record::*;
use shared_abi::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use zerocopy::{FromZeros as _, IntoBytes as _};

/// CUPTI fills one with about 4,800 kernel records; a decode step of 930 kernels takes a fifth.
const BUFFER_BYTES: usize = 1 << 20;
const POOL_BUFFERS: usize = 8;
/// A kernel that seems to run longer than this has a broken timestamp.
const ABSURD_DURATION_NS: u64 = 3_600_000_000_000;

/// What the current window has delivered so far; read and cleared by the helper thread.
#[derive(Debug)]
pub struct WindowTotals {
    /// Records.
    pub activities: AtomicU64,
    /// Records with broken times.
    pub invalid_times: AtomicU64,
    /// Records that CUPTI dropped.
    pub dropped: AtomicU64,
}

/// See [`WindowTotals`].
pub static TOTALS: WindowTotals = WindowTotals {
    activities: AtomicU64::new(0),
    invalid_times: AtomicU64::new(0),
    dropped: AtomicU64::new(0),
};

static API: AtomicPtr<CuptiApi> = AtomicPtr::new(ptr::null_mut());
static POOL: [AtomicPtr<u8>; POOL_BUFFERS] = [const { AtomicPtr::new(ptr::null_mut()) }; POOL_BUFFERS];
static POOL_TAKEN: AtomicU32 = AtomicU32::new(0);
static NAMES: Mutex<NameCache> = Mutex::new(NameCache([(0, 0); 256]));

/// Makes the functions of this file ready for a CUPTI that was found; it is never given back.
pub fn set_api(api: &'static CuptiApi) {
    // Release pairs with the Acquire in `buffer_completed`.
    API.store(ptr::from_ref(api).cast_mut(), Ordering::Release);
}

/// Forgets names by address: they belong to one attachment of CUPTI.
pub fn forget_names() {
    NAMES.lock().unwrap_or_else(PoisonError::into_inner).0 = [(0, 0); 256];
}

/// CUPTI's callback around the driver functions that launch.
///
/// # Safety
/// Called by CUPTI, with data of its own.
pub unsafe extern "C" fn on_driver_call(
    _user: *mut c_void,
    domain: i32,
    cbid: u32,
    data: *const CUpti_CallbackData,
) {
    panic_fence((), || {
        if domain != CUPTI_CB_DOMAIN_DRIVER_API || data.is_null() {
            return;
        }
        // SAFETY: CUPTI passes callback data of this layout for this domain, valid during the callback.
        let data = unsafe { &*data };
        if data.callbackSite != CUPTI_API_ENTER {
            return;
        }
        set_correlation_id(data.correlationId);
        launch_hook::on_callback(cbid, data);
    });
}

/// CUPTI asks for an empty buffer.
///
/// # Safety
/// Called by CUPTI, with three valid pointers.
pub unsafe extern "C" fn buffer_requested(buffer: *mut *mut u8, bytes: *mut usize, max_records: *mut usize) {
    let block = panic_fence(ptr::null_mut(), take_buffer);
    if let (true, Some(profiler)) = (block.is_null(), lifecycle::active()) {
        profiler.count(Counter::ActivityBufferRefused, 1);
    }
    // SAFETY: CUPTI passes three valid pointers. Zero records means as many as fit.
    unsafe {
        *buffer = block;
        *bytes = if block.is_null() { 0 } else { BUFFER_BYTES };
        *max_records = 0;
    }
}

/// CUPTI hands a buffer back.
///
/// # Safety
/// Called by CUPTI, with a buffer from `buffer_requested`.
pub unsafe extern "C" fn buffer_completed(
    context: *mut c_void,
    stream_id: u32,
    buffer: *mut u8,
    _bytes: usize,
    valid_bytes: usize,
) {
    panic_fence((), || {
        // SAFETY: the pointer is null or came from a &'static in `set_api`.
        let api = unsafe { API.load(Ordering::Acquire).as_ref() };
        if let (Some(api), Some(profiler)) = (api, lifecycle::active()) {
            let mut batch = Batch::new(profiler);
            // SAFETY: buffer and length are CUPTI's own, and this is its callback.
            unsafe { api.for_each_record(buffer, valid_bytes, |record| batch.add(record)) };
            batch.send();
            let dropped = api.dropped_records(context, stream_id);
            TOTALS.dropped.fetch_add(dropped, Ordering::Relaxed);
            profiler.count(Counter::ActivityDroppedByCupti, dropped);
        }
        give_buffer_back(buffer);
    });
}

fn take_buffer() -> *mut u8 {
    for (index, slot) in POOL.iter().enumerate() {
        let bit = 1u32 << index;
        // Acquire pairs with the Release in `give_buffer_back`.
        if POOL_TAKEN.fetch_or(bit, Ordering::Acquire) & bit != 0 {
            continue;
        }
        let known = slot.load(Ordering::Relaxed);
        if !known.is_null() {
            return known;
        }
        let fresh = allocate_buffer();
        slot.store(fresh, Ordering::Relaxed);
        if fresh.is_null() {
            POOL_TAKEN.fetch_and(!bit, Ordering::Release);
        }
        return fresh;
    }
    allocate_buffer()
}

fn allocate_buffer() -> *mut u8 {
    // SAFETY: an alignment of 8, as CUPTI wants, and a multiple of it.
    unsafe { libc::aligned_alloc(8, BUFFER_BYTES).cast() }
}

fn give_buffer_back(buffer: *mut u8) {
    if buffer.is_null() {
        return;
    }
    match POOL.iter().position(|slot| slot.load(Ordering::Relaxed) == buffer) {
        Some(index) => {
            POOL_TAKEN.fetch_and(!(1 << index), Ordering::Release);
        }
        // SAFETY: every buffer outside the pool came from aligned_alloc in `take_buffer`.
        None => unsafe { libc::free(buffer.cast()) },
    }
}

/// Name ids by the address of CUPTI's text, so that a name is hashed once a window and not once a record.
struct NameCache([(usize, u32); 256]);

impl NameCache {
    fn id(&mut self, profiler: &Profiler, name: *const c_char) -> u32 {
        if name.is_null() {
            return 0;
        }
        let place = (name as usize >> 4) % self.0.len();
        let Some(entry) = self.0.get_mut(place) else { return 0 };
        if entry.0 != name as usize {
            // SAFETY: CUPTI's names are C strings that live as long as its attachment.
            let text = unsafe { CStr::from_ptr(name) };
            *entry = (name as usize, profiler.names.intern_c(&profiler.segment, text));
        }
        entry.1
    }
}

/// Activities on their way into one ring record.
struct Batch<'a> {
    profiler: &'a Profiler,
    window_id: u32,
    entries: [Activity; ACTIVITIES_PER_RECORD],
    count: usize,
}

impl<'a> Batch<'a> {
    fn new(profiler: &'a Profiler) -> Self {
        let window_id = profiler.window_id.load(Ordering::Relaxed);
        Self { profiler, window_id, entries: [Activity::new_zeroed(); ACTIVITIES_PER_RECORD], count: 0 }
    }

    fn add(&mut self, record: ActivityRecord) {
        self.profiler.count(Counter::ActivityReceived, 1);
        let activity = match record {
            ActivityRecord::Kernel(kernel) => self.kernel(&kernel),
            ActivityRecord::Memory(memory) => memory_activity(&memory),
            ActivityRecord::Other(_) => return self.profiler.count(Counter::ActivityUnknown, 1),
        };
        TOTALS.activities.fetch_add(1, Ordering::Relaxed);
        let duration_ns = activity.end_device_ns.checked_sub(activity.start_device_ns);
        let is_valid = activity.start_device_ns != 0 && duration_ns.is_some_and(|ns| ns < ABSURD_DURATION_NS);
        if !is_valid {
            TOTALS.invalid_times.fetch_add(1, Ordering::Relaxed);
            return self.profiler.count(Counter::ActivityInvalidTime, 1);
        }
        if let Some(entry) = self.entries.get_mut(self.count) {
            *entry = activity;
            self.count += 1;
        }
        if self.count == ACTIVITIES_PER_RECORD {
            self.send();
        }
    }

    fn kernel(&self, kernel: &KernelRecordPrefix) -> Activity {
        let name_id = NAMES.lock().unwrap_or_else(PoisonError::into_inner).id(self.profiler, kernel.name);
        Activity {
            start_device_ns: kernel.start,
            end_device_ns: kernel.end,
            bytes: 0,
            activity_kind: ActivityKind::Kernel as u32,
            correlation_id: kernel.correlationId,
            name_id,
            graph_node: graph_node(kernel.graphNodeId, kernel.graphId),
            cupti_graph_id: kernel.graphId,
            device: kernel.deviceId,
            context_id: kernel.contextId,
            stream_id: kernel.streamId,
            detail: 0,
            reserved: 0,
        }
    }

    fn send(&mut self) {
        let Some(entries) = self.entries.get(..self.count).filter(|entries| !entries.is_empty()) else {
            return;
        };
        let header = ActivityHeader { window_id: self.window_id, count: self.count as u32, reserved: 0 };
        let parts: [&[u8]; 2] = [header.as_bytes(), entries.as_bytes()];
        self.profiler.ring().write(RecordKind::ActivityBatch, crate::clock::host_ns(), &parts);
        self.count = 0;
    }
}

fn memory_activity(memory: &MemoryRecordPrefix) -> Activity {
    let is_copy = memory.kind == CUPTI_ACTIVITY_KIND_MEMCPY;
    let [copy_kind, ..] = memory.detail;
    Activity {
        start_device_ns: memory.start,
        end_device_ns: memory.end,
        bytes: memory.bytes,
        activity_kind: if is_copy { ActivityKind::Memcpy } else { ActivityKind::Memset } as u32,
        correlation_id: memory.correlationId,
        name_id: 0,
        graph_node: graph_node(memory.graphNodeId, memory.graphId),
        cupti_graph_id: memory.graphId,
        device: memory.deviceId,
        context_id: memory.contextId,
        stream_id: memory.streamId,
        detail: if is_copy { u32::from(copy_kind) } else { 0 },
        reserved: 0,
    }
}

/// `graphNodeId` is `(graph id << 32) | position in cuGraphGetNodes` (h200-cupti.md, section 4).
fn graph_node(node_id: u64, graph_id: u32) -> u32 {
    if node_id == 0 && graph_id == 0 { NO_GRAPH_NODE } else { node_id as u32 }
}
