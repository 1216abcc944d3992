//! What the simulated driver and the simulated CUPTI know of each other: the table that `simcuda_tools` returns.
//! Both crates include this file. Change `VERSION` with any layout.

#![allow(dead_code, reason = "each side uses its part")]

use core::ffi::{c_char, c_void};

/// Version of everything below.
pub const VERSION: u32 = 1;

/// Name of the driver's export: `extern "C" fn(version: u32) -> *const Tools`, null for another version.
pub const EXPORT: &core::ffi::CStr = c"simcuda_tools";

/// Activity bits of `Tools::record`.
pub const RECORD_KERNELS: u32 = 1;
/// As above, copies.
pub const RECORD_MEMCPY: u32 = 2;
/// As above, memsets.
pub const RECORD_MEMSET: u32 = 4;

/// Attaching as a subscriber, which takes its time and is counted.
pub const ATTACH_SUBSCRIBER: u32 = 0;
/// Attaching by a first activity call; slows launches down as well, but takes no time itself.
pub const ATTACH_QUIETLY: u32 = 1;

/// What the driver offers.
#[repr(C)]
pub struct Tools {
    /// `VERSION`.
    pub version: u32,
    /// Attaches; captures in progress are invalidated.
    pub attach: extern "C" fn(hooks: &'static Hooks, how: u32),
    /// Which activity is wanted: `RECORD_*`.
    pub record: extern "C" fn(kinds: u32),
    /// Whether any API callback is enabled.
    pub listen: extern "C" fn(any: u32),
    /// Finalizes: the context is lost when the GPU is not quiet. Correlation ids start again.
    pub detach: extern "C" fn(),
    /// The clock of the records.
    pub now_ns: extern "C" fn() -> u64,
    /// Counts records that found no buffer.
    pub dropped: extern "C" fn(records: u64),
}

/// What CUPTI wants to hear.
#[repr(C)]
pub struct Hooks {
    /// Around an API function, on its thread. Returns 1 when a callback was delivered.
    pub on_api: extern "C" fn(&ApiEvent) -> u32,
    /// A piece of GPU work was scheduled; its times may lie in the future. Called with the driver's lock held.
    pub on_work: extern "C" fn(&Work),
}

/// One side of an API call.
#[repr(C)]
pub struct ApiEvent {
    /// 0 enter, 1 exit.
    pub site: i32,
    /// CUPTI's number of the function.
    pub cbid: u32,
    /// Its name.
    pub name: *const c_char,
    /// Its arguments in a struct, or null.
    pub params: *const c_void,
    /// Its result, at the exit.
    pub result: *mut i32,
    /// Name of the kernel of a launch.
    pub symbol: *const c_char,
    /// Current context.
    pub context: *mut c_void,
    /// Number of the current context.
    pub context_uid: u32,
    /// Of this call.
    pub correlation_id: u32,
    /// Room between enter and exit.
    pub correlation_data: *mut u64,
}

/// Kinds of GPU work.
#[repr(u32)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WorkKind {
    /// A kernel.
    Kernel,
    /// A copy.
    Memcpy,
    /// A memset.
    Memset,
}

/// A piece of GPU work.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Work {
    /// What it is.
    pub kind: WorkKind,
    /// Of the launching call.
    pub correlation_id: u32,
    /// On the clock of `now_ns`.
    pub start_ns: u64,
    /// As above.
    pub end_ns: u64,
    /// Mangled name of a kernel; never freed.
    pub name: *const c_char,
    /// Context number.
    pub context_uid: u32,
    /// Stream number.
    pub stream_id: u32,
    /// `(graph id << 32) | node index`, zero outside graphs.
    pub graph_node_id: u64,
    /// Zero outside graphs.
    pub graph_id: u32,
    /// Value of a memset.
    pub value: u32,
    /// Bytes of a copy or memset.
    pub bytes: u64,
    /// CUPTI's copy kind.
    pub copy_kind: u32,
    /// Dynamic shared memory of a kernel.
    pub shared_bytes: u32,
    /// Grid of a kernel.
    pub grid: [u32; 3],
    /// Block of a kernel.
    pub block: [u32; 3],
}
// SAFETY: the name is a leaked constant string.
unsafe impl Send for Work {}
