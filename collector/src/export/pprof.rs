//! pprof: profile.proto, gzipped, for `go tool pprof`, Pyroscope and Parca.
//!
//! A pprof sample has one stack, so there is one file per view. `profile.pb.gz` is the launch view,
//! `profile.capture.pb.gz` the capture view; the weights are the same in both. Four sample types, the first
//! is the default: `gpu_time` (estimated for the whole run), `recorded_gpu_time` (in CUPTI windows),
//! `recorded` (kernels, copies and memsets), `launches` (estimated). Labels: `process_id` and `device`, as
//! strings because filters (`-tagfocus=device=0`) are simplest on those. Ledger and statuses are comments
//! (`go tool pprof -comments`). Messages are written by hand after
//! github.com/google/pprof/proto/profile.proto; fields that we never set are left out.

use std::collections::HashMap;
use std::io::{self, Write};

use flate2::Compression;
use flate2::write::GzEncoder;
use prost::Message;

use super::View;
use super::rounding::CarryRounder;
use crate::aggregate::profile::{FrameId, Profile};

/// `perftools.profiles.Profile`.
#[derive(Clone, PartialEq, Message)]
pub struct PprofProfile {
    /// What each value of a sample means.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// The stacks.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// Loaded images; one, so that tools do not try to symbolize.
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    /// Places in functions.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// Functions.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// Strings; the first is empty.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// Start, CLOCK_REALTIME in nanoseconds.
    #[prost(int64, tag = "9")]
    pub time_nanos: i64,
    /// Time covered, in nanoseconds.
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    /// Indices of free text.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    /// Index of the name of the default sample type.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// `perftools.profiles.ValueType`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct ValueType {
    /// Index of the name.
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    /// Index of the unit.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// `perftools.profiles.Sample`.
#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    /// Location ids, leaf first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// One value per sample type.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    /// Labels.
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<Label>,
}

/// `perftools.profiles.Label`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Label {
    /// Index of the key.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// Index of the value.
    #[prost(int64, tag = "2")]
    pub str: i64,
}

/// `perftools.profiles.Mapping`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Mapping {
    /// Id, not zero.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Index of the name.
    #[prost(int64, tag = "5")]
    pub filename: i64,
    /// Functions are known.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    /// Source files are known.
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    /// Lines are known.
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    /// Inlined frames are known.
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

/// `perftools.profiles.Location`.
#[derive(Clone, PartialEq, Message)]
pub struct Location {
    /// Id, not zero.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Id of the mapping.
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    /// The function and line, one entry.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

/// `perftools.profiles.Line`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Line {
    /// Id of the function.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// Line in its file.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// `perftools.profiles.Function`.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct Function {
    /// Id, not zero.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Index of the short name.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// Index of the full name.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    /// Index of the file.
    #[prost(int64, tag = "4")]
    pub filename: i64,
}

/// The gzipped bytes of `profile` in one view.
pub fn encode(profile: &Profile, view: View) -> io::Result<Vec<u8>> {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(&to_pprof(profile, view).encode_to_vec())?;
    gzip.finish()
}

/// The message of `profile` in one view.
pub fn to_pprof(profile: &Profile, view: View) -> PprofProfile {
    let mut strings = StringTable::new();
    let sample_type: Vec<ValueType> = [
        ("gpu_time", "nanoseconds"),
        ("recorded_gpu_time", "nanoseconds"),
        ("recorded", "count"),
        ("launches", "count"),
    ]
    .into_iter()
    .map(|(name, unit)| ValueType { r#type: strings.id(name), unit: strings.id(unit) })
    .collect();
    let mut places = Places::default();
    let sample = samples(profile, view, &mut strings, &mut places);
    let mapping = Mapping {
        id: 1,
        // Tools show what is after the last slash, so a command would be cut; it is in the comments.
        filename: strings.id("launchscope"),
        has_functions: true,
        has_filenames: true,
        has_line_numbers: true,
        has_inline_frames: true,
    };
    let comment = comments(profile, view).iter().map(|text| strings.id(text)).collect();
    PprofProfile {
        default_sample_type: sample_type[0].r#type,
        sample_type,
        sample,
        mapping: vec![mapping],
        location: places.locations,
        function: places.functions,
        comment,
        time_nanos: i64::try_from(profile.meta.start_wall_ms).unwrap_or(i64::MAX).saturating_mul(1_000_000),
        duration_nanos: i64::try_from(profile.meta.duration_ns).unwrap_or(i64::MAX),
        string_table: strings.strings,
    }
}

/// One sample per stack that weighs anything.
fn samples(profile: &Profile, view: View, strings: &mut StringTable, places: &mut Places) -> Vec<Sample> {
    let (process_key, device_key) = (strings.id("process_id"), strings.id("device"));
    let mut rounders: [CarryRounder; 4] = Default::default();
    let mut samples = Vec::with_capacity(profile.stacks.len());
    for stack in &profile.stacks {
        let weights = &stack.weights;
        let value = vec![
            rounders[0].round(weights.gpu_time_ns),
            rounders[1].round(weights.recorded_gpu_time_ns),
            rounders[2].round(weights.recorded_count),
            rounders[3].round(weights.launches),
        ];
        if value.iter().all(|value| *value == 0) {
            continue;
        }
        let mut label = vec![Label { key: process_key, str: strings.id(&stack.process_id.to_string()) }];
        if let Some(device) = stack.device {
            label.push(Label { key: device_key, str: strings.id(&device.to_string()) });
        }
        let location_id =
            view.frames(stack).iter().rev().map(|frame| places.location(profile, *frame, strings)).collect();
        samples.push(Sample { location_id, value, label });
    }
    samples
}

/// What people should read beside the numbers, in few lines because `go tool pprof` prints them above every
/// report.
fn comments(profile: &Profile, view: View) -> Vec<String> {
    let meta = &profile.meta;
    let mut comments = vec![
        format!("launchscope {}: {} of {}", meta.version, view.title(), meta.title),
        format!(
            "{} CUPTI windows, open for {:.3} s of {:.3} s",
            meta.window_count,
            meta.window_open_ns as f64 / 1e9,
            meta.duration_ns as f64 / 1e9
        ),
    ];
    let labels: Vec<String> = meta.labels.iter().map(|(key, value)| format!("{key}: {value}")).collect();
    let in_words = |losses: bool| {
        let lines = profile.ledger.iter().filter(|line| (line.is_loss && line.count > 0) == losses);
        lines.map(|line| format!("{} {}", line.count, line.text)).collect::<Vec<_>>().join("; ")
    };
    let lines = [("", labels.join("; ")), ("ledger: ", in_words(false)), ("LOSSES: ", in_words(true))];
    comments.extend(
        lines.into_iter().filter(|(_, text)| !text.is_empty()).map(|(head, text)| format!("{head}{text}")),
    );
    comments.extend(profile.statuses.iter().filter(|status| status.needs_attention).map(|status| {
        let when = if status.holds { "holds" } else { "held" };
        let detail = if status.detail.is_empty() { String::new() } else { format!(" [{}]", status.detail) };
        format!("status {} {when} in process {}: {}{detail}", status.name, status.process_id, status.text)
    }));
    comments
}

/// The string table while it is filled.
struct StringTable {
    strings: Vec<String>,
    ids: HashMap<String, i64>,
}

impl StringTable {
    fn new() -> Self {
        Self { strings: vec![String::new()], ids: HashMap::from([(String::new(), 0)]) }
    }

    fn id(&mut self, text: &str) -> i64 {
        if let Some(id) = self.ids.get(text) {
            return *id;
        }
        let id = self.strings.len() as i64;
        self.strings.push(text.to_owned());
        self.ids.insert(text.to_owned(), id);
        id
    }
}

/// Locations and functions while they are filled: a location per frame, a function per name and file.
#[derive(Default)]
struct Places {
    locations: Vec<Location>,
    functions: Vec<Function>,
    location_ids: HashMap<FrameId, u64>,
    function_ids: HashMap<[i64; 3], u64>,
}

impl Places {
    fn location(&mut self, profile: &Profile, id: FrameId, strings: &mut StringTable) -> u64 {
        if let Some(location) = self.location_ids.get(&id) {
            return *location;
        }
        let frame = profile.frame(id);
        let name = strings.id(&frame.name);
        let full = if frame.full_name.is_empty() { name } else { strings.id(&frame.full_name) };
        let key = [name, full, strings.id(&frame.file)];
        let functions = &mut self.functions;
        let function_id = *self.function_ids.entry(key).or_insert_with(|| {
            let id = functions.len() as u64 + 1;
            functions.push(Function { id, name: key[0], system_name: key[1], filename: key[2] });
            id
        });
        let location = self.locations.len() as u64 + 1;
        let line = vec![Line { function_id, line: i64::from(frame.line) }];
        self.locations.push(Location { id: location, mapping_id: 1, line });
        self.location_ids.insert(id, location);
        location
    }
}
