//! Layouts of the activity records of CUDA 13.0, and making one from a piece of work.

use crate::tools_abi::{Work, WorkKind};
use core::ffi::{c_char, c_void};
use core::ptr;

pub const MEMCPY: i32 = 1;
pub const MEMSET: i32 = 2;
/// The older, serializing kernel kind; has the same record.
pub const KERNEL: i32 = 3;
pub const CONCURRENT_KERNEL: i32 = 10;

const MEMORY_PAGEABLE: u8 = 1;
const MEMORY_DEVICE: u8 = 3;

/// CUpti_ActivityKernel10.
#[repr(C)]
#[derive(Clone, Copy)]
struct KernelRecord {
    kind: i32,
    cache_config: u8,
    shared_memory_config: u8,
    registers_per_thread: u16,
    partitioned_cache: [i32; 2],
    start: u64,
    end: u64,
    completed: u64,
    device_id: u32,
    context_id: u32,
    stream_id: u32,
    grid: [u32; 3],
    block: [u32; 3],
    static_shared: i32,
    dynamic_shared: i32,
    local_per_thread: u32,
    local_total: u32,
    correlation_id: u32,
    grid_id: i64,
    name: *const c_char,
    reserved: *const c_void,
    queued: u64,
    submitted: u64,
    launch_type: u8,
    carveout: [u8; 2],
    padding: u8,
    shared_executed: u32,
    graph_node_id: u64,
    shared_limit_config: i32,
    graph_id: u32,
    access_policy_window: *const c_void,
    channel_id: u32,
    channel_type: i32,
    cluster: [u32; 3],
    cluster_policy: u32,
    local_total_v2: u64,
    max_potential_cluster: u32,
    max_active_clusters: u32,
    is_device_launched: u8,
    padding_2: [u8; 7],
}
const _: () = {
    assert!(size_of::<KernelRecord>() == 216);
    assert!(core::mem::offset_of!(KernelRecord, start) == 16);
    assert!(core::mem::offset_of!(KernelRecord, correlation_id) == 92);
    assert!(core::mem::offset_of!(KernelRecord, name) == 104);
    assert!(core::mem::offset_of!(KernelRecord, graph_node_id) == 144);
    assert!(core::mem::offset_of!(KernelRecord, graph_id) == 156);
    assert!(core::mem::offset_of!(KernelRecord, is_device_launched) == 208);
};

/// CUpti_ActivityMemset4, and CUpti_ActivityMemcpy6 up to its last field.
#[repr(C)]
#[derive(Clone, Copy)]
struct MemoryRecord {
    kind: i32,
    /// copyKind, srcKind, dstKind, flags of a copy; the value of a memset.
    detail: [u8; 4],
    bytes: u64,
    start: u64,
    end: u64,
    device_id: u32,
    context_id: u32,
    stream_id: u32,
    correlation_id: u32,
    /// runtimeCorrelationId of a copy; flags and memoryKind of a memset.
    detail_2: u32,
    padding: u32,
    reserved: *const c_void,
    graph_node_id: u64,
    graph_id: u32,
    channel_id: u32,
    channel_type: i32,
    is_device_launched: u8,
    padding_2: [u8; 3],
}
const _: () = {
    assert!(size_of::<MemoryRecord>() == 88);
    assert!(core::mem::offset_of!(MemoryRecord, correlation_id) == 44);
    assert!(core::mem::offset_of!(MemoryRecord, graph_node_id) == 64);
    assert!(core::mem::offset_of!(MemoryRecord, is_device_launched) == 84);
};

/// CUpti_ActivityMemcpy6.
#[repr(C)]
#[derive(Clone, Copy)]
struct CopyRecord {
    first: MemoryRecord,
    copy_count: u64,
}
const _: () = assert!(size_of::<CopyRecord>() == 96);

/// Bytes of a record of this kind; `None` for what this library never writes.
pub fn size(kind: i32) -> Option<usize> {
    match kind {
        MEMCPY => Some(size_of::<CopyRecord>()),
        MEMSET => Some(size_of::<MemoryRecord>()),
        KERNEL | CONCURRENT_KERNEL => Some(size_of::<KernelRecord>()),
        _ => None,
    }
}

/// The record of a piece of work, as bytes of a buffer.
pub fn write(work: &Work, kernel_kind: i32, to: &mut Vec<u8>) {
    to.clear();
    match work.kind {
        WorkKind::Kernel => append(&kernel(work, kernel_kind), to),
        WorkKind::Memcpy => append(&CopyRecord { first: memory(work), copy_count: 1 }, to),
        WorkKind::Memset => append(&memory(work), to),
    }
}

/// Only for the records above, which have no padding of the compiler's.
fn append<T: Copy>(record: &T, to: &mut Vec<u8>) {
    // SAFETY: all bytes of a record are fields.
    to.extend_from_slice(unsafe {
        core::slice::from_raw_parts(ptr::from_ref(record).cast::<u8>(), size_of::<T>())
    });
}

fn kernel(work: &Work, kind: i32) -> KernelRecord {
    KernelRecord {
        kind,
        cache_config: 0,
        shared_memory_config: 0,
        registers_per_thread: 32,
        partitioned_cache: [0; 2],
        start: work.start_ns,
        end: work.end_ns,
        completed: 0,
        device_id: 0,
        context_id: work.context_uid,
        stream_id: work.stream_id,
        grid: work.grid,
        block: work.block,
        static_shared: 0,
        dynamic_shared: work.shared_bytes.cast_signed(),
        local_per_thread: 0,
        local_total: 0,
        correlation_id: work.correlation_id,
        grid_id: i64::from(work.correlation_id),
        name: work.name,
        reserved: ptr::null(),
        queued: 0,
        submitted: 0,
        launch_type: 0,
        carveout: [0; 2],
        padding: 0,
        shared_executed: work.shared_bytes,
        graph_node_id: work.graph_node_id,
        shared_limit_config: 0,
        graph_id: work.graph_id,
        access_policy_window: ptr::null(),
        channel_id: 0,
        channel_type: 0,
        cluster: [0; 3],
        cluster_policy: 0,
        local_total_v2: 0,
        max_potential_cluster: 0,
        max_active_clusters: 0,
        is_device_launched: 0,
        padding_2: [0; 7],
    }
}

/// Source and destination of CUPTI's copy kinds 1, 2, 8 and 9.
fn ends(copy_kind: u32) -> (u8, u8) {
    match copy_kind {
        1 => (MEMORY_PAGEABLE, MEMORY_DEVICE),
        2 => (MEMORY_DEVICE, MEMORY_PAGEABLE),
        8 => (MEMORY_DEVICE, MEMORY_DEVICE),
        _ => (MEMORY_PAGEABLE, MEMORY_PAGEABLE),
    }
}

fn memory(work: &Work) -> MemoryRecord {
    let is_copy = work.kind == WorkKind::Memcpy;
    let (from, to) = ends(work.copy_kind);
    let detail = if is_copy { [work.copy_kind as u8, from, to, 0] } else { work.value.to_ne_bytes() };
    MemoryRecord {
        kind: if is_copy { MEMCPY } else { MEMSET },
        detail,
        bytes: work.bytes,
        start: work.start_ns,
        end: work.end_ns,
        device_id: 0,
        context_id: work.context_uid,
        stream_id: work.stream_id,
        correlation_id: work.correlation_id,
        detail_2: if is_copy { 0 } else { u32::from(MEMORY_DEVICE) << 16 },
        padding: 0,
        reserved: ptr::null(),
        graph_node_id: work.graph_node_id,
        graph_id: work.graph_id,
        channel_id: 0,
        channel_type: 0,
        is_device_launched: 0,
        padding_2: [0; 3],
    }
}
