//! The file format of speedscope: both views as sampled profiles over one frame table.
//!
//! Weights are estimated GPU time in nanoseconds; stacks without GPU time are left out. There is no time
//! axis, so samples are sorted by stack, which lets speedscope merge neighbours in its time order view too.
//! Native frames give their image or source as `file`.

use std::io;

use serde::Serialize;

use super::View;
use super::rounding::sane;
use crate::aggregate::profile::{Frame, FrameId, Profile};

/// The schema that the file names; an identifier, nothing is fetched.
const SCHEMA: &str = "https://www.speedscope.app/file-format-schema.json";

/// The whole file.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SpeedscopeFile<'a> {
    #[serde(rename = "$schema")]
    schema: &'static str,
    exporter: String,
    name: &'a str,
    active_profile_index: u32,
    shared: Shared<'a>,
    profiles: [SampledProfile; 2],
}

/// What the profiles share.
#[derive(Serialize)]
struct Shared<'a> {
    frames: Vec<SpeedscopeFrame<'a>>,
}

/// One frame.
#[derive(Serialize)]
struct SpeedscopeFrame<'a> {
    name: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<u32>,
}

/// One view.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SampledProfile {
    r#type: &'static str,
    name: String,
    unit: &'static str,
    start_value: f64,
    end_value: f64,
    samples: Vec<Vec<u32>>,
    weights: Vec<f64>,
}

/// The bytes of `profile`.
pub fn encode(profile: &Profile) -> io::Result<Vec<u8>> {
    let file = SpeedscopeFile {
        schema: SCHEMA,
        exporter: format!("launchscope {}", profile.meta.version),
        name: &profile.meta.title,
        active_profile_index: 0,
        shared: Shared { frames: profile.frames.iter().map(frame).collect() },
        profiles: [sampled(profile, View::Launch), sampled(profile, View::Capture)],
    };
    Ok(serde_json::to_vec(&file)?)
}

/// A frame of the table.
fn frame(frame: &Frame) -> SpeedscopeFrame<'_> {
    SpeedscopeFrame {
        name: &frame.name,
        file: (!frame.file.is_empty()).then_some(frame.file.as_str()),
        line: (frame.line > 0).then_some(frame.line),
    }
}

/// One view of the stacks.
fn sampled(profile: &Profile, view: View) -> SampledProfile {
    let mut stacks: Vec<(&[FrameId], f64)> = profile
        .stacks
        .iter()
        .map(|stack| (view.frames(stack), sane(stack.weights.gpu_time_ns)))
        .filter(|(_, weight)| *weight > 0.0)
        .collect();
    stacks.sort_by_key(|(frames, _)| *frames);
    SampledProfile {
        r#type: "sampled",
        name: format!("{}: estimated GPU time", view.title()),
        unit: "nanoseconds",
        start_value: 0.0,
        end_value: stacks.iter().map(|(_, weight)| weight).sum(),
        samples: stacks.iter().map(|(frames, _)| frames.iter().map(|id| id.0).collect()).collect(),
        weights: stacks.iter().map(|(_, weight)| *weight).collect(),
    }
}
