//! Tests of the formats: weights survive, names cannot break out, failures are clear and leave nothing
//! behind.

use std::collections::BTreeMap;
use std::io::Read;

use prost::Message;

use super::fold::fold;
use super::pprof::PprofProfile;
use super::*;
use crate::aggregate::profile::{Frame, KernelTotal, Layer, LedgerLine, StatusLine, Weights};

const ATTACKS: [&str; 9] = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "@@LAUNCHSCOPE_SCRIPT@@",
    "a;b;c 12",
    "two\nlines\r\nand\ttab\u{0}\u{2028}\u{85}",
    "back\\slash \\n \\x3b",
    "カーネル ядро 🦀 \u{202e}esrever",
    "\"}],\"version\":2,\"x\":[{\"",
    "",
];

fn attacks() -> Vec<String> {
    ATTACKS.iter().map(|name| (*name).to_owned()).chain([format!("long_{}", "x".repeat(70_000))]).collect()
}

fn frame(layer: Layer, name: &str, file: &str, line: u32) -> Frame {
    let full_name = if layer == Layer::Kernel { format!("void {name}<int>()") } else { String::new() };
    Frame { layer, name: name.to_owned(), full_name, file: file.to_owned(), line }
}

fn stack(launch: &[u32], capture: &[u32], gpu_time_ns: f64, launches: f64) -> WeightedStack {
    WeightedStack {
        launch_view: launch.iter().copied().map(FrameId).collect(),
        capture_view: capture.iter().copied().map(FrameId).collect(),
        weights: Weights {
            gpu_time_ns,
            recorded_gpu_time_ns: (gpu_time_ns / 100.0).round(),
            recorded_count: 2.0,
            launches,
        },
        process_id: 7,
        device: (gpu_time_ns > 0.0).then_some(1),
    }
}

/// A process whose Python replays a graph with one kernel per name; each kernel was captured by a function of
/// that name.
fn profile_with(names: &[String]) -> Profile {
    let mut profile = Profile::default();
    profile.meta.title = "python serve.py".to_owned();
    profile.meta.start_wall_ms = 1_700_000_000_000;
    profile.meta.duration_ns = 5_000_000_000;
    profile.frames = vec![
        frame(Layer::Process, "python (7)", "", 0),
        frame(Layer::Python, "step", "engine/core.py", 42),
        frame(Layer::CudaApi, "cuGraphLaunch", "", 0),
        frame(Layer::Graph, "graph of 9 nodes", "", 0),
    ];
    for (index, name) in names.iter().enumerate() {
        let first = profile.frames.len() as u32;
        profile.frames.push(frame(Layer::Python, name, name, 3));
        profile.frames.push(frame(Layer::Kernel, name, "", 0));
        let gpu_time_ns = 1000.4 + index as f64;
        profile.stacks.push(stack(&[0, 1, 2, 3, first + 1], &[0, first, 2, first + 1], gpu_time_ns, 0.0));
        profile.kernels.push(KernelTotal {
            name: name.clone(),
            full_name: format!("void {name}<int>()"),
            weights: profile.stacks[index].weights,
            share: 0.1,
            mean_ns: 10.0,
            joined_share: 1.0,
            captured_share: None,
        });
        profile.ledger.push(LedgerLine {
            key: "ring_full".to_owned(),
            text: name.clone(),
            count: 3,
            is_loss: true,
        });
        profile.statuses.push(StatusLine {
            process_id: 7,
            name: "armed".to_owned(),
            text: name.clone(),
            detail: name.clone(),
            holds: true,
            needs_attention: true,
        });
    }
    profile.stacks.push(stack(&[0, 1, 2], &[0, 1, 2], 0.0, 12.0));
    profile
}

fn plain() -> Profile {
    profile_with(&["matmul".to_owned(), "norm".to_owned(), "attention".to_owned()])
}

/// The sum of a weight over all stacks, rounded.
fn sum(profile: &Profile, weight: impl Fn(&Weights) -> f64) -> i64 {
    profile.stacks.iter().map(|stack| weight(&stack.weights)).sum::<f64>().round() as i64
}

fn decode_pprof(bytes: &[u8]) -> PprofProfile {
    let mut raw = Vec::new();
    flate2::read::GzDecoder::new(bytes).read_to_end(&mut raw).expect("gzip");
    PprofProfile::decode(raw.as_slice()).expect("profile.proto")
}

/// The names of a pprof sample, root first.
fn pprof_names(pprof: &PprofProfile, sample: usize) -> Vec<&str> {
    let names = pprof.sample[sample].location_id.iter().rev().map(|id| {
        let location = pprof.location.iter().find(|location| location.id == *id).expect("location");
        let function = pprof.function.iter().find(|function| function.id == location.line[0].function_id);
        pprof.string_table[function.expect("function").name as usize].as_str()
    });
    names.collect()
}

/// What was escaped in a collapsed frame, taken back.
fn unescape(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, escaped)) = rest.split_once('\\') {
        plain.push_str(before);
        let (character, length) = match escaped.as_bytes()[0] {
            b'n' => ('\n', 1),
            b'r' => ('\r', 1),
            b't' => ('\t', 1),
            b'x' => (u8::from_str_radix(&escaped[1..3], 16).expect("hex") as char, 3),
            b'u' => {
                let digits = &escaped[2..escaped.find('}').expect("end")];
                let code = u32::from_str_radix(digits, 16).expect("hex");
                (char::from_u32(code).expect("character"), digits.len() + 3)
            }
            _ => ('\\', 1),
        };
        plain.push(character);
        rest = &escaped[length..];
    }
    plain + rest
}

fn collapsed_lines(bytes: Vec<u8>) -> Vec<(Vec<String>, i64)> {
    let text = String::from_utf8(bytes).expect("UTF-8");
    let lines = text.split_terminator('\n').map(|line| {
        let (stack, weight) = line.rsplit_once(' ').expect("a weight");
        (stack.split(';').map(str::to_owned).collect(), weight.parse().expect("an integer"))
    });
    lines.collect()
}

/// The data of the page, as the browser sees it.
fn page_data(page: &str) -> serde_json::Value {
    let start = "<script type=\"application/json\" id=\"profile-data\">";
    let (_, after) = page.split_once(start).expect("the data element");
    let (data, _) = after.split_once("</script").expect("its end");
    serde_json::from_str(data).expect("JSON")
}

fn scratch(name: &str) -> PathBuf {
    let directory = std::env::temp_dir().join(format!("launchscope-export-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&directory);
    directory
}

/// Proves that pprof keeps every sum, also of stacks that weigh less than one half each.
#[test]
fn pprof_decodes_back_with_the_same_sums() {
    let mut profile = plain();
    for _ in 0..1000 {
        profile.stacks.push(stack(&[0, 1, 2], &[0, 1, 2], 0.3, 0.3));
    }
    for view in [View::Launch, View::Capture] {
        let pprof = decode_pprof(&pprof::encode(&profile, view).expect("encode"));
        let total = |column: usize| pprof.sample.iter().map(|sample| sample.value[column]).sum::<i64>();
        assert_eq!(total(0), sum(&profile, |weights| weights.gpu_time_ns));
        assert_eq!(total(1), sum(&profile, |weights| weights.recorded_gpu_time_ns));
        assert_eq!(total(2), sum(&profile, |weights| weights.recorded_count));
        assert_eq!(total(3), sum(&profile, |weights| weights.launches));
        assert_eq!(pprof.string_table[0], "");
        assert_eq!(pprof.string_table[pprof.default_sample_type as usize], "gpu_time");
        assert_eq!(pprof.time_nanos, 1_700_000_000_000_000_000);
    }
}

/// Proves that pprof stacks, labels, full names and lines arrive as they were.
#[test]
fn pprof_keeps_frames_labels_and_full_names() {
    let pprof = pprof::to_pprof(&plain(), View::Launch);
    assert_eq!(pprof_names(&pprof, 0), ["python (7)", "step", "cuGraphLaunch", "graph of 9 nodes", "matmul"]);
    let capture = pprof::to_pprof(&plain(), View::Capture);
    assert_eq!(pprof_names(&capture, 0), ["python (7)", "matmul", "cuGraphLaunch", "matmul"]);
    let text = |id: i64| pprof.string_table[id as usize].as_str();
    let labels: Vec<_> =
        pprof.sample[0].label.iter().map(|label| (text(label.key), text(label.str))).collect();
    assert_eq!(labels, [("process_id", "7"), ("device", "1")]);
    assert!(
        pprof.function.iter().any(|f| text(f.name) == "norm" && text(f.system_name) == "void norm<int>()")
    );
    assert!(pprof.function.iter().any(|f| text(f.name) == "step" && text(f.filename) == "engine/core.py"));
    assert!(pprof.location.iter().any(|location| location.line[0].line == 42));
}

/// Proves that collapsed lines split into the frames that went in, whatever their names, and that weights sum
/// up.
#[test]
fn collapsed_round_trips_hostile_names() {
    let profile = profile_with(&attacks());
    let lines = collapsed_lines(collapsed::encode(&profile, View::Launch));
    assert_eq!(lines.len(), attacks().len());
    assert_eq!(lines.iter().map(|(_, weight)| weight).sum::<i64>(), sum(&profile, |w| w.gpu_time_ns));
    let kernels: Vec<String> = lines.iter().map(|(frames, _)| unescape(&frames[4])).collect();
    for name in attacks() {
        assert!(kernels.contains(&name), "{name:?} is missing");
    }
    assert!(lines.iter().all(|(frames, _)| frames[1] == "step (engine/core.py:42)"));
}

/// Proves that speedscope has both views over one frame table, with weights that sum up.
#[test]
fn speedscope_round_trips_hostile_names() {
    let profile = profile_with(&attacks());
    let file: serde_json::Value =
        serde_json::from_slice(&speedscope::encode(&profile).expect("encode")).expect("JSON");
    let frames = file["shared"]["frames"].as_array().expect("frames");
    assert_eq!(frames.len(), profile.frames.len());
    for (frame, expected) in frames.iter().zip(&profile.frames) {
        assert_eq!(frame["name"], expected.name);
    }
    for sampled in file["profiles"].as_array().expect("two profiles") {
        let weights: f64 =
            sampled["weights"].as_array().expect("weights").iter().filter_map(|w| w.as_f64()).sum();
        assert_eq!(weights.round() as i64, sum(&profile, |w| w.gpu_time_ns));
        assert_eq!(sampled["unit"], "nanoseconds");
        assert_eq!(sampled["samples"].as_array().map(Vec::len), sampled["weights"].as_array().map(Vec::len));
    }
}

/// Proves that the machine-readable profile has its version, its totals and every name as it was.
#[test]
fn json_round_trips_hostile_names() {
    let profile = profile_with(&attacks());
    let json: serde_json::Value =
        serde_json::from_slice(&json::encode(&profile).expect("encode")).expect("JSON");
    assert_eq!((&json["format"], &json["version"]), (&"launchscope-profile".into(), &1.into()));
    assert_eq!(json["totals"]["launches"], 12.0);
    assert_eq!(json["kernels"][4]["name"], ATTACKS[4]);
    assert_eq!(json["stacks"][0]["launch"], serde_json::json!([0, 1, 2, 3, 5]));
    assert_eq!(json["stacks"][0]["capture"], serde_json::json!([0, 4, 2, 5]));
    assert!(json["stacks"][attacks().len()].get("capture").is_none());
}

/// Proves that no name, title or label leaves its element in the page, and that the data reads back.
#[test]
fn html_keeps_hostile_names_inside_their_element() {
    let mut profile = profile_with(&attacks());
    profile.meta.title = ATTACKS[0].to_owned();
    profile.meta.labels = BTreeMap::from([(ATTACKS[1].to_owned(), ATTACKS[0].to_owned())]);
    let page = String::from_utf8(html::encode(&profile).expect("encode")).expect("UTF-8");
    let harmless = String::from_utf8(html::encode(&plain()).expect("encode")).expect("UTF-8");
    for markup in ["<script", "</script", "<!--", "<img", "alert(1)<"] {
        assert_eq!(page.matches(markup).count(), harmless.matches(markup).count(), "{markup}");
    }
    let data = page_data(&page);
    assert_eq!(data["meta"]["title"], ATTACKS[0]);
    assert_eq!(data["frames"][5]["name"], ATTACKS[0]);
    assert_eq!(data["frames"][9]["name"], ATTACKS[2]);
}

/// Proves that the page refers to nothing outside itself.
#[test]
fn html_has_no_external_reference() {
    let page = String::from_utf8(html::encode(&plain()).expect("encode")).expect("UTF-8");
    let outside = page.replace("http://www.w3.org/2000/svg", "");
    for reference in ["http://", "https://", "src=\"", "@import", "url(", "fetch(", "XMLHttpRequest"] {
        assert!(!outside.contains(reference), "{reference}");
    }
}

/// Proves that folding keeps every sum, says what it did, and leaves small profiles alone.
#[test]
fn folding_keeps_sums_and_drops_small_frames() {
    let names: Vec<String> = (0..500).map(|index| format!("kernel_{index}")).collect();
    let mut profile = profile_with(&names);
    for stack in &mut profile.stacks[10..500] {
        stack.weights.gpu_time_ns = 0.001;
        stack.weights.recorded_gpu_time_ns = 0.0;
    }
    assert!(fold(&profile, 20_000, 0.0001).is_none());
    let folded = fold(&profile, 100, 0.0001).expect("folded");
    assert!(folded.profile.frames.len() < 40, "{} frames are left", folded.profile.frames.len());
    // In the capture view each small kernel goes with its cuGraphLaunch and its function.
    assert_eq!(folded.frames, 490 * 3);
    for weight in [|w: &Weights| w.gpu_time_ns, |w: &Weights| w.recorded_count, |w: &Weights| w.launches] {
        assert_eq!(sum(&folded.profile, weight), sum(&profile, weight));
    }
    let small = folded.profile.frames.iter().filter(|frame| frame.name == "(frames under 0.01 %)").count();
    assert_eq!(small, 2);
}

/// Proves that weights that are no numbers do not spoil any file.
#[test]
fn weights_that_are_no_numbers_count_as_zero() {
    let mut profile = plain();
    profile.stacks.push(stack(&[0], &[0], f64::NAN, -5.0));
    profile.stacks.push(stack(&[0], &[0], f64::INFINITY, f64::NEG_INFINITY));
    let json: serde_json::Value =
        serde_json::from_slice(&json::encode(&profile).expect("encode")).expect("JSON");
    assert_eq!(json["totals"]["gpu_time_ns"].as_f64().map(f64::round), Some(3004.0));
    let pprof = pprof::to_pprof(&profile, View::Launch);
    assert_eq!(pprof.sample.iter().map(|sample| sample.value[0]).sum::<i64>(), 3004);
}

/// Proves that every format writes its files under their names, also for an empty profile, and leaves no
/// other file.
#[test]
fn write_all_writes_exactly_the_named_files() {
    for profile in [plain(), Profile::default()] {
        let directory = scratch("all").join("deep/er");
        let written = write_all(&profile, &directory, &Format::ALL).expect("written");
        let mut names: Vec<String> = fs::read_dir(&directory)
            .expect("directory")
            .map(|entry| entry.expect("entry").file_name().to_string_lossy().into_owned())
            .collect();
        let mut expected: Vec<&str> =
            Format::ALL.iter().flat_map(|format| format.file_names()).copied().collect();
        names.sort();
        expected.sort();
        assert_eq!(names, expected);
        assert_eq!(written.len(), names.len());
        let _ = fs::remove_dir_all(scratch("all"));
    }
}

/// Proves that format names read back and that an unknown one lists what is known.
#[test]
fn format_names_round_trip() {
    for format in Format::ALL {
        assert_eq!(format.to_string().parse(), Ok(format));
    }
    assert_eq!(" HTML ".parse(), Ok(Format::Html));
    let error = "svg".parse::<Format>().expect_err("unknown");
    assert!(error.to_string().contains("`svg`") && error.to_string().contains("speedscope"));
}

/// Proves that a directory that cannot be made is named, with what to do.
#[test]
fn directory_under_a_file_gives_a_clear_error() {
    let file = scratch("file");
    fs::write(&file, "not a directory").expect("write");
    let error = write_all(&plain(), &file.join("out"), &[Format::Json]).expect_err("cannot be made");
    let message = error.to_string();
    assert!(message.contains(&*file.join("out").to_string_lossy()), "{message}");
    assert!(message.contains("choose another output directory"), "{message}");
    let _ = fs::remove_file(file);
}

/// Proves that a full disk leaves the old file as it was, nothing else, and an error that says so.
#[test]
fn full_disk_leaves_the_old_file_and_no_other() {
    let directory = scratch("full");
    fs::create_dir_all(&directory).expect("create");
    let (path, temporary) = (directory.join("profile.json"), directory.join(".profile.json.tmp"));
    fs::write(&path, "old").expect("write");
    fs::write(&temporary, "half").expect("write");
    let full = OpenOptions::new().write(true).open("/dev/full").expect("/dev/full");
    let source = write_and_rename(full, &temporary, &path, b"new").expect_err("full");
    assert_eq!(fs::read_to_string(&path).expect("read"), "old");
    assert!(!temporary.exists());
    let message = ExportError::WriteFile { path: path.clone(), source }.to_string();
    assert!(message.contains("the disk is full") && message.contains("profile.json"), "{message}");
    let _ = fs::remove_dir_all(directory);
}

/// Proves that a file that cannot be replaced is named and that no temporary file stays behind.
#[test]
fn name_taken_by_a_directory_gives_a_clear_error() {
    let directory = scratch("taken");
    fs::create_dir_all(directory.join("profile.html/inside")).expect("create");
    let error = write_all(&plain(), &directory, &[Format::Html]).expect_err("taken");
    assert!(error.to_string().contains("profile.html"), "{error}");
    assert_eq!(fs::read_dir(&directory).expect("directory").count(), 1);
    let _ = fs::remove_dir_all(directory);
}
