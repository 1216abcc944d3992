//! What a ring slot carries. Every record is a multiple of eight bytes without padding; times are
//! CLOCK_MONOTONIC of the host unless their name says otherwise.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Kind of a ring record, as stored in the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub enum RecordKind {
    /// [`LaunchSample`].
    LaunchSample = 1,
    /// [`ActivityHeader`] and up to [`ACTIVITIES_PER_RECORD`] [`Activity`].
    ActivityBatch = 2,
    /// [`WindowClosed`].
    WindowClosed = 3,
    /// [`StatusChanged`].
    StatusChanged = 4,
}

impl RecordKind {
    /// The kind with this number, if this version knows it.
    pub const fn from_u16(value: u16) -> Option<Self> {
        Some(match value {
            1 => Self::LaunchSample,
            2 => Self::ActivityBatch,
            3 => Self::WindowClosed,
            4 => Self::StatusChanged,
            _ => return None,
        })
    }
}

/// What was launched.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum LaunchKind {
    /// cuLaunchKernel, cuLaunchKernelEx.
    Kernel = 1,
    /// cuLaunchCooperativeKernel.
    CooperativeKernel = 2,
    /// cuGraphLaunch.
    Graph = 3,
    /// cuMemcpy*, cuMemset*.
    Memory = 4,
}

impl LaunchKind {
    /// The kind with this number, if this version knows it.
    pub const fn from_u32(value: u32) -> Option<Self> {
        Some(match value {
            1 => Self::Kernel,
            2 => Self::CooperativeKernel,
            3 => Self::Graph,
            4 => Self::Memory,
            _ => return None,
        })
    }
}

/// Set in [`LaunchSample::flags`]: the sampler chose this launch; [`LaunchSample::inclusion_probability_bits`] holds.
pub const LAUNCH_CHOSEN: u32 = 1;
/// Set in [`LaunchSample::flags`]: the launch was made inside a CUPTI window; window and correlation id hold.
pub const LAUNCH_IN_WINDOW: u32 = 2;

/// One launch of which the stack was taken. 88 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct LaunchSample {
    /// CLOCK_MONOTONIC at the entry of the hook.
    pub host_ns: u64,
    /// Probability with which the sampler chose this launch, as bits of an f64 in (0, 1].
    pub inclusion_probability_bits: u64,
    /// CUstream.
    pub stream: u64,
    /// CUcontext current on the thread.
    pub context: u64,
    /// CUfunction, CUgraphExec or, for memory operations, zero.
    pub handle: u64,
    /// Kernel thread id as the engine sees it.
    pub thread_id: u32,
    /// [`LaunchKind`].
    pub launch_kind: u32,
    /// [`LAUNCH_CHOSEN`] and [`LAUNCH_IN_WINDOW`].
    pub flags: u32,
    /// Dictionary id of the stack; zero when none could be taken.
    pub stack_id: u32,
    /// Dictionary id of the kernel's name; zero for graphs, and where it is not known.
    pub name_id: u32,
    /// Dictionary id of the graph's definition; zero for kernels, and for graphs captured before we were loaded.
    pub graph_id: u32,
    /// Number of the CUPTI window.
    pub window_id: u32,
    /// CUPTI's correlation id, unique inside one window.
    pub correlation_id: u32,
    /// Index of the function in the interposer's table of hooks.
    pub hook: u32,
    /// Nanoseconds that the driver's own function took, saturated.
    pub call_ns: u32,
    /// Lane of the thread's counters.
    pub lane: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = {
    assert!(size_of::<LaunchSample>() == 88);
    assert!(core::mem::offset_of!(LaunchSample, thread_id) == 40);
    assert!(core::mem::offset_of!(LaunchSample, correlation_id) == 68);
};

/// Precedes the activities of one [`RecordKind::ActivityBatch`]. 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ActivityHeader {
    /// Number of the CUPTI window.
    pub window_id: u32,
    /// Activities that follow, 1 to [`ACTIVITIES_PER_RECORD`].
    pub count: u32,
    /// Zero.
    pub reserved: u64,
}
const _: () = assert!(size_of::<ActivityHeader>() == 16);

/// What ran on the GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u32)]
pub enum ActivityKind {
    /// A kernel.
    Kernel = 1,
    /// A copy; [`Activity::detail`] is CUpti_ActivityMemcpyKind.
    Memcpy = 2,
    /// A memset.
    Memset = 3,
}

impl ActivityKind {
    /// The kind with this number, if this version knows it.
    pub const fn from_u32(value: u32) -> Option<Self> {
        Some(match value {
            1 => Self::Kernel,
            2 => Self::Memcpy,
            3 => Self::Memset,
            _ => return None,
        })
    }
}

/// [`Activity::graph_node`] of an activity that was launched by itself.
pub const NO_GRAPH_NODE: u32 = u32::MAX;

/// One thing that ran on the GPU. 64 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Activity {
    /// CUPTI timestamp at its start, in nanoseconds of CUPTI's clock.
    pub start_device_ns: u64,
    /// CUPTI timestamp at its end.
    pub end_device_ns: u64,
    /// Bytes copied or set; zero for kernels.
    pub bytes: u64,
    /// [`ActivityKind`].
    pub activity_kind: u32,
    /// CUPTI's correlation id, shared by all nodes of one graph launch.
    pub correlation_id: u32,
    /// Dictionary id of the kernel's mangled name; zero for copies and memsets.
    pub name_id: u32,
    /// Position of the node in cuGraphGetNodes of its graph, or [`NO_GRAPH_NODE`].
    pub graph_node: u32,
    /// CUPTI's id of the graph that the record belongs to; zero outside graphs.
    pub cupti_graph_id: u32,
    /// Device ordinal.
    pub device: u32,
    /// CUPTI's context id.
    pub context_id: u32,
    /// CUPTI's stream id.
    pub stream_id: u32,
    /// For copies CUpti_ActivityMemcpyKind, otherwise zero.
    pub detail: u32,
    /// Zero.
    pub reserved: u32,
}
const _: () = {
    assert!(size_of::<Activity>() == 64);
    assert!(core::mem::offset_of!(Activity, correlation_id) == 28);
};

/// Activities that fit in one record.
pub const ACTIVITIES_PER_RECORD: usize =
    (crate::ring::PAYLOAD_BYTES - size_of::<ActivityHeader>()) / size_of::<Activity>();

/// How a CUPTI window ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum WindowOutcome {
    /// Detached behind the gate; its records are complete.
    Detached = 1,
    /// Resident mode: one slice of a window that stays open.
    Slice = 2,
    /// The GPU did not become quiet before the deadline; CUPTI stayed attached and was detached later.
    DetachedLate = 3,
}

/// A CUPTI window, written when it has ended and after the last of its activities. 88 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct WindowClosed {
    /// From when on every launch was recorded.
    pub opened_host_ns: u64,
    /// Until when.
    pub closed_host_ns: u64,
    /// Mean time between the starts of windows that the schedule aimed at when this one was drawn.
    pub mean_period_ns: u64,
    /// How long the gate was closed to attach.
    pub attach_gate_ns: u64,
    /// How long the gate was closed to detach.
    pub detach_gate_ns: u64,
    /// Activity records that CUPTI delivered for it.
    pub activities: u64,
    /// Activity records that CUPTI dropped.
    pub dropped_by_cupti: u64,
    /// Activity records with zero, reversed or absurd times.
    pub invalid_times: u64,
    /// GPU nanoseconds that those records would have covered; zero where it cannot be known.
    pub reserved: u64,
    /// Number of the window, from 1.
    pub window_id: u32,
    /// [`WindowOutcome`].
    pub outcome: u32,
    /// Kernel and memory launches made inside it.
    pub launches: u32,
    /// Graph launches made inside it.
    pub graph_launches: u32,
}
const _: () = assert!(size_of::<WindowClosed>() == 88);

/// Bytes of text that a status carries.
pub const STATUS_TEXT_BYTES: usize = 240;

/// A named status of the interposer began or ended. 256 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct StatusChanged {
    /// When.
    pub host_ns: u64,
    /// [`crate::status::Status`] as its number.
    pub code: u32,
    /// 1 when it began to hold, 0 when it ceased.
    pub holds: u16,
    /// Bytes of `text` in use.
    pub text_bytes: u16,
    /// UTF-8 detail (what was tried, what failed).
    pub text: [u8; STATUS_TEXT_BYTES],
}
const _: () = assert!(size_of::<StatusChanged>() == 256);
