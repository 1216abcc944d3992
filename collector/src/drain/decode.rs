//! From payload bytes to checked records: no count, id or probability leaves here unchecked.

use crate::model::counts::OwnCounts;
use crate::model::sample::{
    LaunchOrigin, RawActivity, RawLaunch, RawSample, RawStatus, WindowEnd, WindowKey,
};
use shared_abi::record::{
    ACTIVITIES_PER_RECORD, Activity, ActivityHeader, ActivityKind, LAUNCH_CHOSEN, LAUNCH_IN_WINDOW,
    LaunchKind, LaunchSample, NO_GRAPH_NODE, RecordKind, StatusChanged, WindowClosed, WindowOutcome,
};
use shared_abi::ring::Record;
use zerocopy::FromBytes;

/// A single kernel that ran longer than this did not: one hour.
const MAX_DURATION_NS: u64 = 3_600_000_000_000;
/// A sample never stands for more launches than this.
const MIN_PROBABILITY: f64 = 1e-9;

/// Hands the samples of one record to `sink`; counts those that make no sense.
pub fn decode(record: &Record, counts: &mut OwnCounts, sink: &mut dyn FnMut(RawSample)) {
    let payload = record.payload();
    let whole = match RecordKind::from_u16(record.kind) {
        Some(RecordKind::LaunchSample) => decode_launch(payload, counts, sink),
        Some(RecordKind::ActivityBatch) => decode_activities(payload, counts, sink),
        Some(RecordKind::WindowClosed) => decode_window(payload, sink),
        Some(RecordKind::StatusChanged) => decode_status(payload, sink),
        None => None,
    };
    if whole.is_none() {
        counts.invalid_records += 1;
    }
}

fn decode_launch(payload: &[u8], counts: &mut OwnCounts, sink: &mut dyn FnMut(RawSample)) -> Option<()> {
    let launch = LaunchSample::read_from_bytes(payload).ok()?;
    let kind = LaunchKind::from_u32(launch.launch_kind)?;
    counts.launch_samples += 1;
    let probability = f64::from_bits(launch.inclusion_probability_bits);
    let chosen = launch.flags & LAUNCH_CHOSEN != 0;
    // A NaN is in no range.
    let possible = (MIN_PROBABILITY..=1.0).contains(&probability);
    if chosen && !possible {
        counts.invalid_probability += 1;
    }
    let window = WindowKey { window_id: launch.window_id, correlation_id: launch.correlation_id };
    sink(RawSample::Launch(RawLaunch {
        origin: LaunchOrigin {
            stack_id: launch.stack_id,
            kind,
            hook: launch.hook,
            graph_id: launch.graph_id,
        },
        weight: (chosen && possible).then(|| 1.0 / probability),
        window: (launch.flags & LAUNCH_IN_WINDOW != 0).then_some(window),
    }));
    Some(())
}

fn decode_activities(payload: &[u8], counts: &mut OwnCounts, sink: &mut dyn FnMut(RawSample)) -> Option<()> {
    let (header, rest) = ActivityHeader::read_from_prefix(payload).ok()?;
    let count = header.count as usize;
    if !(1..=ACTIVITIES_PER_RECORD).contains(&count) {
        return None;
    }
    let rest = rest.get(..count * size_of::<Activity>())?;
    for bytes in rest.chunks_exact(size_of::<Activity>()) {
        let activity = Activity::read_from_bytes(bytes).ok()?;
        let Some(kind) = ActivityKind::from_u32(activity.activity_kind) else {
            counts.invalid_records += 1;
            continue;
        };
        counts.activities += 1;
        let duration_ns = activity.end_device_ns.checked_sub(activity.start_device_ns);
        let possible = activity.start_device_ns > 0;
        let Some(duration_ns) = duration_ns.filter(|duration| possible && *duration <= MAX_DURATION_NS)
        else {
            counts.invalid_time += 1;
            continue;
        };
        sink(RawSample::Activity(RawActivity {
            window: WindowKey { window_id: header.window_id, correlation_id: activity.correlation_id },
            kind,
            duration_ns,
            name_id: activity.name_id,
            graph_node: (activity.graph_node != NO_GRAPH_NODE).then_some(activity.graph_node),
            device: activity.device,
            detail: activity.detail,
        }));
    }
    Some(())
}

fn decode_window(payload: &[u8], sink: &mut dyn FnMut(RawSample)) -> Option<()> {
    let window = WindowClosed::read_from_bytes(payload).ok()?;
    let is_slice = window.outcome == WindowOutcome::Slice as u32;
    let end = if is_slice { WindowEnd::Slice } else { WindowEnd::Whole };
    sink(RawSample::WindowClosed { window_id: window.window_id, end });
    Some(())
}

fn decode_status(payload: &[u8], sink: &mut dyn FnMut(RawSample)) -> Option<()> {
    let status = StatusChanged::read_from_bytes(payload).ok()?;
    let text = status.text.get(..usize::from(status.text_bytes))?;
    let detail = String::from_utf8_lossy(text).into_owned();
    sink(RawSample::Status(RawStatus { code: status.code, holds: status.holds != 0, detail }));
    Some(())
}
