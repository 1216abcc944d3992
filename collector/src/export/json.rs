//! The machine-readable profile: one JSON object, UTF-8, also what the page reads.
//!
//! Version 1. New keys may be added in a version; a key that changes or goes raises it. All times are
//! nanoseconds, all shares 0 to 1.
//!
//! ```text
//! {
//!   "format": "launchscope-profile", "version": 1,
//!   "meta":   { "title", "launchscope_version", "start_wall_ms", "duration_ns", "window_open_ns", "window_count", "labels": {..} },
//!   "totals": { "gpu_time_ns", "recorded_gpu_time_ns", "recorded_count", "launches", "joined_share" },
//!   "frames": [ { "layer": "process|python|native|cuda_api|graph|kernel", "name", "full_name"?, "file"?, "line"? } ],
//!   "stacks": [ { "launch": [frame index, root first], "capture"?: [..], "gpu_time_ns", "recorded_gpu_time_ns",
//!                 "recorded_count", "launches", "process_id", "device": number or null } ],
//!   "kernels":  [ { "name", "full_name", "gpu_time_ns", "recorded_gpu_time_ns", "recorded_count", "launches", "share", "mean_ns",
//!                   "joined_share", "captured_share": number or null } ],
//!   "ledger":   [ { "key", "text", "count", "is_loss" } ],
//!   "statuses": [ { "process_id", "name", "text", "detail", "holds", "needs_attention" } ],
//!   "hooks":    [ { "process_id", "name", "way", "hits" } ],
//!   "folded"?:  { "below_share", "frames" }
//! }
//! ```
//!
//! `gpu_time_ns` and `launches` are estimates for the whole run, `recorded_*` is what CUPTI saw in its
//! windows. `capture` is absent where it equals `launch`. Keys with `?` are absent when empty or not known.
//! `folded` is only in the page: so many frames under that share were folded into one frame per caller, so
//! that the sums stay what they are.

use std::collections::BTreeMap;
use std::io;

use serde::Serialize;

use super::fold::Folded;
use super::rounding::sane;
use crate::aggregate::profile::{Frame, FrameId, KernelTotal, Layer, Profile, WeightedStack, Weights};

/// The value of `format`.
pub const FORMAT: &str = "launchscope-profile";
/// The value of `version`.
pub const VERSION: u32 = 1;

#[derive(Serialize)]
struct JsonProfile<'a> {
    format: &'static str,
    version: u32,
    meta: JsonMeta<'a>,
    totals: JsonTotals,
    frames: Vec<JsonFrame<'a>>,
    stacks: Vec<JsonStack<'a>>,
    kernels: Vec<JsonKernel<'a>>,
    ledger: Vec<JsonLedgerLine<'a>>,
    statuses: Vec<JsonStatus<'a>>,
    hooks: Vec<JsonHook<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    folded: Option<JsonFolded>,
}

#[derive(Serialize)]
struct JsonMeta<'a> {
    title: &'a str,
    launchscope_version: &'a str,
    start_wall_ms: u64,
    duration_ns: u64,
    window_open_ns: u64,
    window_count: u64,
    labels: &'a BTreeMap<String, String>,
}

#[derive(Serialize)]
struct JsonWeights {
    gpu_time_ns: f64,
    recorded_gpu_time_ns: f64,
    recorded_count: f64,
    launches: f64,
}

#[derive(Serialize)]
struct JsonTotals {
    #[serde(flatten)]
    weights: JsonWeights,
    joined_share: f64,
}

#[derive(Serialize)]
struct JsonFrame<'a> {
    layer: &'static str,
    name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    full_name: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    file: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

#[derive(Serialize)]
struct JsonStack<'a> {
    launch: JsonIds<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capture: Option<JsonIds<'a>>,
    #[serde(flatten)]
    weights: JsonWeights,
    process_id: u32,
    device: Option<u32>,
}

/// Frame ids as plain numbers.
struct JsonIds<'a>(&'a [FrameId]);

impl Serialize for JsonIds<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|id| id.0))
    }
}

#[derive(Serialize)]
struct JsonKernel<'a> {
    name: &'a str,
    full_name: &'a str,
    #[serde(flatten)]
    weights: JsonWeights,
    share: f64,
    mean_ns: f64,
    joined_share: f64,
    captured_share: Option<f64>,
}

#[derive(Serialize)]
struct JsonLedgerLine<'a> {
    key: &'a str,
    text: &'a str,
    count: u64,
    is_loss: bool,
}

#[derive(Serialize)]
struct JsonStatus<'a> {
    process_id: u32,
    name: &'a str,
    text: &'a str,
    detail: &'a str,
    holds: bool,
    needs_attention: bool,
}

#[derive(Serialize)]
struct JsonHook<'a> {
    process_id: u32,
    name: &'a str,
    way: &'a str,
    hits: u64,
}

#[derive(Serialize)]
struct JsonFolded {
    below_share: f64,
    frames: usize,
}

/// The bytes of `profile`.
pub fn encode(profile: &Profile) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec(&json_profile(profile))?)
}

/// The bytes of a profile that was folded for the page. Totals are those before folding.
pub(super) fn encode_folded(folded: &Folded) -> io::Result<Vec<u8>> {
    let note = JsonFolded { below_share: folded.below_share, frames: folded.frames };
    Ok(serde_json::to_vec(&JsonProfile { folded: Some(note), ..json_profile(&folded.profile) })?)
}

/// The whole object.
fn json_profile(profile: &Profile) -> JsonProfile<'_> {
    let meta = &profile.meta;
    JsonProfile {
        format: FORMAT,
        version: VERSION,
        meta: JsonMeta {
            title: &meta.title,
            launchscope_version: &meta.version,
            start_wall_ms: meta.start_wall_ms,
            duration_ns: meta.duration_ns,
            window_open_ns: meta.window_open_ns,
            window_count: meta.window_count,
            labels: &meta.labels,
        },
        totals: JsonTotals {
            weights: json_weights(&total(profile)),
            joined_share: sane(profile.joined_share()),
        },
        frames: profile.frames.iter().map(json_frame).collect(),
        stacks: profile.stacks.iter().map(json_stack).collect(),
        kernels: profile.kernels.iter().map(json_kernel).collect(),
        ledger: profile
            .ledger
            .iter()
            .map(|line| JsonLedgerLine {
                key: &line.key,
                text: &line.text,
                count: line.count,
                is_loss: line.is_loss,
            })
            .collect(),
        statuses: profile
            .statuses
            .iter()
            .map(|status| JsonStatus {
                process_id: status.process_id,
                name: &status.name,
                text: &status.text,
                detail: &status.detail,
                holds: status.holds,
                needs_attention: status.needs_attention,
            })
            .collect(),
        hooks: profile
            .hooks
            .iter()
            .map(|hook| JsonHook {
                process_id: hook.process_id,
                name: &hook.name,
                way: &hook.way,
                hits: hook.hits,
            })
            .collect(),
        folded: None,
    }
}

/// The name of a layer.
fn layer_name(layer: Layer) -> &'static str {
    match layer {
        Layer::Process => "process",
        Layer::Python => "python",
        Layer::Native => "native",
        Layer::CudaApi => "cuda_api",
        Layer::Graph => "graph",
        Layer::Kernel => "kernel",
    }
}

fn json_frame(frame: &Frame) -> JsonFrame<'_> {
    JsonFrame {
        layer: layer_name(frame.layer),
        name: &frame.name,
        full_name: &frame.full_name,
        file: &frame.file,
        line: (frame.line > 0).then_some(frame.line),
    }
}

fn json_stack(stack: &WeightedStack) -> JsonStack<'_> {
    JsonStack {
        launch: JsonIds(&stack.launch_view),
        capture: (stack.capture_view != stack.launch_view).then_some(JsonIds(&stack.capture_view)),
        weights: json_weights(&stack.weights),
        process_id: stack.process_id,
        device: stack.device,
    }
}

fn json_kernel(kernel: &KernelTotal) -> JsonKernel<'_> {
    JsonKernel {
        name: &kernel.name,
        full_name: &kernel.full_name,
        weights: json_weights(&kernel.weights),
        share: sane(kernel.share),
        mean_ns: sane(kernel.mean_ns),
        joined_share: sane(kernel.joined_share),
        captured_share: kernel.captured_share.map(sane),
    }
}

fn json_weights(weights: &Weights) -> JsonWeights {
    JsonWeights {
        gpu_time_ns: sane(weights.gpu_time_ns),
        recorded_gpu_time_ns: sane(weights.recorded_gpu_time_ns),
        recorded_count: sane(weights.recorded_count),
        launches: sane(weights.launches),
    }
}

/// The weights of all stacks.
fn total(profile: &Profile) -> Weights {
    profile.stacks.iter().fold(Weights::default(), |sum, stack| Weights {
        gpu_time_ns: sum.gpu_time_ns + sane(stack.weights.gpu_time_ns),
        recorded_gpu_time_ns: sum.recorded_gpu_time_ns + sane(stack.weights.recorded_gpu_time_ns),
        recorded_count: sum.recorded_count + sane(stack.weights.recorded_count),
        launches: sum.launches + sane(stack.weights.launches),
    })
}
