//! Environment variables of the simulation, read once.

use std::sync::LazyLock;

/// What calls cost and how fast the simulated GPU is.
pub struct Settings {
    /// A kernel launch, copy or memset call.
    pub launch_ns: u64,
    /// A graph launch call, without CUPTI.
    pub graph_launch_ns: u64,
    /// From the end of the call to the start of the work on an idle stream.
    pub latency_ns: u64,
    /// More for each piece of work once CUPTI was touched, until it is finalized.
    pub subscribed_node_ns: u64,
    /// The same while kernel activity is recorded (instead of the above).
    pub activity_node_ns: u64,
    /// cuptiSubscribe.
    pub attach_us: u64,
    /// cuptiFinalize.
    pub detach_us: u64,
}

/// The settings of this process. Defaults follow shared/facts/h200-cupti.md, section 1.
pub static SETTINGS: LazyLock<Settings> = LazyLock::new(|| Settings {
    launch_ns: number("SIM_CUDA_LAUNCH_NS", 2000),
    graph_launch_ns: number("SIM_CUDA_GRAPH_LAUNCH_NS", 2000),
    latency_ns: number("SIM_CUDA_LATENCY_NS", 3000),
    subscribed_node_ns: number("SIM_CUPTI_SUBSCRIBED_NODE_NS", 200),
    activity_node_ns: number("SIM_CUPTI_ACTIVITY_NODE_NS", 400),
    attach_us: number("SIM_CUPTI_ATTACH_US", 2000),
    detach_us: number("SIM_CUPTI_DETACH_US", 2000),
});

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(default)
}
