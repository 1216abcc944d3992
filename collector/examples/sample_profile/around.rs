//! What stands beside the stacks of the sample profile: totals per kernel, ledger, statuses, hooks.

use std::collections::{BTreeMap, HashMap};

use launchscope::aggregate::profile::{
    Frame, FrameId, HookLine, KernelTotal, Layer, LedgerLine, ProfileMeta, StatusLine, WeightedStack, Weights,
};

use crate::PROCESS_ID;

pub fn meta(title: &str) -> ProfileMeta {
    let labels = [
        ("host", "gpu-node-7"),
        ("GPU", "NVIDIA H200"),
        ("driver", "580.95.05"),
        ("Python", "3.12.11"),
        ("CUPTI", "13.0, windows of 20 ms"),
        ("budget", "1 % (0.62 % used)"),
    ];
    ProfileMeta {
        title: title.to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        start_wall_ms: 1_796_000_000_000,
        duration_ns: 61_840_000_000,
        window_open_ns: 438_900_000,
        window_count: 22,
        labels: labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
    }
}

pub fn kernel_totals(frames: &[Frame], stacks: &[WeightedStack]) -> Vec<KernelTotal> {
    let mut totals: HashMap<FrameId, (Weights, f64)> = HashMap::new();
    for stack in stacks {
        let leaf = *stack.launch_view.last().expect("a stack has frames");
        if frames[leaf.0 as usize].layer != Layer::Kernel {
            continue;
        }
        let (sum, graph_ns) = totals.entry(leaf).or_default();
        sum.gpu_time_ns += stack.weights.gpu_time_ns;
        sum.recorded_gpu_time_ns += stack.weights.recorded_gpu_time_ns;
        sum.recorded_count += stack.weights.recorded_count;
        if stack.capture_view != stack.launch_view {
            *graph_ns += stack.weights.recorded_gpu_time_ns;
        }
    }
    let all: f64 = totals.values().map(|(weights, _)| weights.gpu_time_ns).sum();
    let totals: BTreeMap<FrameId, (Weights, f64)> = totals.into_iter().collect();
    let mut kernels: Vec<KernelTotal> = totals
        .into_iter()
        .map(|(id, (weights, graph_ns))| {
            let frame = &frames[id.0 as usize];
            KernelTotal {
                name: frame.name.clone(),
                full_name: if frame.full_name.is_empty() { &frame.name } else { &frame.full_name }.clone(),
                share: weights.gpu_time_ns / all,
                mean_ns: weights.recorded_gpu_time_ns / weights.recorded_count.max(1.0),
                joined_share: 1.0,
                captured_share: (graph_ns > 0.0).then_some(if frame.name.contains("Combine") {
                    0.871
                } else {
                    1.0
                }),
                weights,
            }
        })
        .collect();
    kernels.sort_by(|a, b| b.weights.gpu_time_ns.total_cmp(&a.weights.gpu_time_ns));
    kernels
}

pub fn ledger() -> Vec<LedgerLine> {
    [
        ("launches_seen", "launches seen by the hooks", 159_613, false),
        ("launches_sampled", "launches sampled with a stack", 21_904, false),
        ("launches_skipped", "launches skipped by the sampling rate", 137_709, false),
        ("records_joined", "kernel records joined to their launch", 25_118, false),
        ("records_orphaned", "kernel records whose launch was not seen", 0, true),
        ("records_invalid_time", "kernel records with an impossible time", 0, true),
        ("records_dropped_by_cupti", "kernel records dropped by CUPTI for lack of buffers", 12, true),
        ("ring_full", "records lost because the ring was full", 0, true),
        ("stacks_truncated", "stacks cut at the depth limit", 3, true),
        ("nodes_without_capture", "graph nodes replayed without a capture stack", 0, true),
    ]
    .into_iter()
    .map(|(key, text, count, is_loss)| LedgerLine {
        key: key.to_owned(),
        text: text.to_owned(),
        count,
        is_loss,
    })
    .collect()
}

pub fn statuses() -> Vec<StatusLine> {
    [
        (
            "cupti-taken",
            "another tool holds CUPTI (torch.profiler, Nsight or a peer): windows are skipped until it has gone",
            "cuptiSubscribe: CUPTI_ERROR_MULTIPLE_SUBSCRIBERS_NOT_SUPPORTED, 3 tries",
            false,
        ),
        ("armed", "hooks are installed", "", true),
    ]
    .into_iter()
    .map(|(name, text, detail, holds)| StatusLine {
        process_id: PROCESS_ID,
        name: name.to_owned(),
        text: text.to_owned(),
        detail: detail.to_owned(),
        holds,
        needs_attention: name != "armed",
    })
    .collect()
}

pub fn hooks() -> Vec<HookLine> {
    [
        ("cuLaunchKernel", "patched"),
        ("cuLaunchKernelEx", "patched"),
        ("cuLaunchCooperativeKernel", "patched"),
        ("cuGraphLaunch", "patched"),
        ("cuGraphInstantiateWithFlags", "patched"),
        ("cuStreamBeginCapture_v2", "patched"),
        ("cuStreamEndCapture", "patched"),
        ("cuMemcpyHtoDAsync_v2", "patched"),
        ("cuMemcpyDtoHAsync_v2", "callback: the entry has a jump that cannot be moved"),
    ]
    .into_iter()
    .map(|(name, way)| HookLine {
        process_id: PROCESS_ID,
        name: name.to_owned(),
        way: way.to_owned(),
        hits: 12_345,
    })
    .collect()
}
