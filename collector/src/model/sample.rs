//! Records as they leave the drain (`RawSample`) and the correlation (`CorrelatedSample`).

use shared_abi::record::{ActivityKind, LaunchKind};

/// Who launched: what is known of a launch without looking anything up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LaunchOrigin {
    /// Dictionary id of the stack; zero when none could be taken.
    pub stack_id: u32,
    /// What was launched.
    pub kind: LaunchKind,
    /// Index in the interposer's table of hooks.
    pub hook: u32,
    /// Dictionary id of the graph; zero for kernels and unknown graphs.
    pub graph_id: u32,
}

/// A launch inside a CUPTI window, by which its activities find it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WindowKey {
    /// Number of the window.
    pub window_id: u32,
    /// CUPTI's correlation id, unique inside one window.
    pub correlation_id: u32,
}

/// One launch, checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RawLaunch {
    /// Who launched.
    pub origin: LaunchOrigin,
    /// How many launches the sample stands for (1 / probability); `None` when the sampler did not choose it.
    pub weight: Option<f64>,
    /// Set when it was made inside a window.
    pub window: Option<WindowKey>,
}

/// One thing that ran on the GPU, checked.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RawActivity {
    /// The launch it belongs to.
    pub window: WindowKey,
    /// What ran.
    pub kind: ActivityKind,
    /// How long, in nanoseconds.
    pub duration_ns: u64,
    /// Dictionary id of the kernel's name.
    pub name_id: u32,
    /// Position in its graph; `None` when it was launched by itself.
    pub graph_node: Option<u32>,
    /// Device ordinal.
    pub device: u32,
    /// CUpti_ActivityMemcpyKind for copies.
    pub detail: u32,
}

/// A status that began or ceased to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawStatus {
    /// Its number.
    pub code: u32,
    /// Whether it holds from now on.
    pub holds: bool,
    /// What was tried, what failed.
    pub detail: String,
}

/// How much of a window has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowEnd {
    /// All of it: no more activities come.
    Whole,
    /// A slice of a window that stays open.
    Slice,
}

/// What the drain hands on.
#[derive(Clone, Debug, PartialEq)]
pub enum RawSample {
    /// A launch.
    Launch(RawLaunch),
    /// Something that ran.
    Activity(RawActivity),
    /// A window, or a slice of one, has ended.
    WindowClosed {
        /// Its number.
        window_id: u32,
        /// How much of it.
        end: WindowEnd,
    },
    /// A status changed.
    Status(RawStatus),
}

/// What the correlation hands on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CorrelatedSample {
    /// A sampled launch stands for this many.
    Launched {
        /// Who launched.
        origin: LaunchOrigin,
        /// How many.
        weight: f64,
    },
    /// Something ran, for the launch if it was found.
    Ran {
        /// What ran.
        activity: RawActivity,
        /// Who launched it; `None` for an orphan.
        origin: Option<LaunchOrigin>,
    },
}
