//! From a launch in an unmodified Python program to the profile: on the simulated GPU, whose truth is known.

use launchscope_tests::built;
use launchscope_tests::engine::{Profiled, Run, on_simulator, python};
use serde_json::Value;
use std::process::Command;

fn decode<'a>(
    name: &'a str,
    kind: &'a str,
    options: &'a [&'a str],
    variables: Vec<(&'a str, String)>,
) -> Run<'a> {
    Run { name, kind, options, command: python("decode.py", &[]), variables }
}

fn assert_whole(profiled: &Profiled) {
    assert!(profiled.output.status.success(), "{}", profiled.stderr());
    assert!(profiled.ledger("windows_opened") >= 2, "{}", profiled.stderr());
    assert_eq!(profiled.ledger("orphaned"), 0, "{}", profiled.stderr());
    assert_eq!(profiled.ledger("panics_caught"), 0);
    assert_eq!(profiled.ledger("ring_dropped"), 0);
    assert!(profiled.recorded_ns() > 0.0);
}

/// Share of the recorded GPU time in graphs that carries a capture stack through the model's own lines.
fn captured_share(profiled: &Profiled) -> f64 {
    let right = profiled.recorded_where(|stack| stack.is_replayed() && stack.captured_by("M.forward"));
    right / profiled.recorded_where(|stack| stack.is_replayed())
}

/// A replayed kernel is under `run` in the launch view and under the model's lines in the capture view, and the shares
/// of kernels are those of the simulator's truth.
#[test]
fn decode_loop_becomes_a_profile_that_is_true() {
    let truth = std::env::temp_dir().join(format!("truth-{}.json", std::process::id()));
    let run = decode(
        "decode",
        "",
        &[],
        vec![("SIM_CUDA_TRUTH", truth.display().to_string()), ("SECS", "4".into())],
    );
    let profiled = run.profiled();
    assert_whole(&profiled);
    assert!(captured_share(&profiled) > 0.95, "{}", captured_share(&profiled));
    let in_layer = profiled.recorded_where(|stack| stack.captured_by("Layer.forward"));
    assert!(in_layer / profiled.recorded_ns() > 0.5);
    let under_run = profiled.recorded_where(|stack| stack.launch.iter().any(|frame| frame.name == "run"));
    assert!(under_run / profiled.recorded_ns() > 0.9);
    let text = std::fs::read(&truth).expect("the simulator's truth");
    let _ = std::fs::remove_file(&truth);
    assert_shares(&profiled, &serde_json::from_slice(&text).expect("the truth is JSON"));
}

/// The kernels of decode.py, each by the part of its name that no demangler spells differently.
const KERNELS: [&str; 8] = [
    "indexSelectLargeIndex",
    "rms_norm_kernel",
    "device_kernel",
    "rotary_embedding_kernel",
    "flash_fwd_splitkv_kernel",
    "splitKreduceK",
    "act_and_mul_kernel",
    "gemv2T_kernel",
];

/// Shares of kernels above 1 %, against the simulator's own account of the whole run.
fn assert_shares(profiled: &Profiled, truth: &Value) {
    let kernels = profiled.profile["kernels"].as_array().expect("kernels");
    let of = |name: &str| -> f64 {
        let named = kernels
            .iter()
            .filter(|kernel| kernel["full_name"].as_str().is_some_and(|full| full.contains(name)));
        named.filter_map(|kernel| kernel["gpu_time_ns"].as_f64()).sum()
    };
    let truth = truth["kernels"].as_object().expect("the truth has kernels");
    let truth_of = |name: &str| -> f64 {
        truth
            .iter()
            .filter(|(full, _)| full.contains(name))
            .filter_map(|(_, kernel)| kernel["gpu_ns"].as_f64())
            .sum()
    };
    let total: f64 = KERNELS.iter().map(|name| of(name)).sum();
    let truth_total: f64 = KERNELS.iter().map(|name| truth_of(name)).sum();
    for name in KERNELS {
        let (found, share) = (of(name) / total, truth_of(name) / truth_total);
        assert!(share > 0.01, "{name} has a share of {share}");
        assert!((found / share - 1.0).abs() < 0.05, "{name}: share {found}, truth {share}");
    }
}

/// Both doors alone, and both together, give the same kernels with the same capture stacks.
#[test]
fn every_door_gives_the_same_profile() {
    for (door, way) in [("injection", "patched"), ("preload", "preloaded"), ("both", "patched")] {
        let profiled = decode(door, "", &["--door", door], vec![("SECS", "2".into())]).profiled();
        assert_whole(&profiled);
        assert!(captured_share(&profiled) > 0.95, "{door}: {}", captured_share(&profiled));
        let hooks = profiled.profile["hooks"].as_array().expect("hooks");
        let graph = hooks.iter().find(|hook| hook["name"] == "cuGraphLaunch").expect("a hook");
        assert!(graph["way"].as_str().is_some_and(|text| text.starts_with(way)), "{door}: {graph}");
    }
}

/// Entries that begin with endbr64 or refer to their own address are patched; entries that cannot be are seen through
/// callbacks, with a status that says so, and nothing is lost.
#[test]
fn unpatchable_entries_fall_back_to_callbacks_by_name() {
    for kind in ["endbr64", "rip_relative"] {
        let patched = decode(kind, kind, &["--door", "injection"], vec![("SECS", "2".into())]).profiled();
        assert_whole(&patched);
        assert!(!patched.statuses().contains(&"hook-fallback"), "{kind}: {:?}", patched.statuses());
    }
    for kind in ["patched", "short"] {
        let profiled = decode(kind, kind, &["--door", "injection"], vec![("SECS", "2".into())]).profiled();
        assert!(profiled.output.status.success(), "{kind}: {}", profiled.stderr());
        assert!(profiled.statuses().contains(&"hook-fallback"), "{kind}: {:?}", profiled.statuses());
        assert!(profiled.statuses().contains(&"cupti-resident"), "{kind}: {:?}", profiled.statuses());
        assert!(profiled.recorded_ns() > 0.0, "{kind}: {}", profiled.stderr());
        assert_eq!(profiled.ledger("orphaned"), 0, "{kind}");
    }
}

/// With preloading beside it, an unpatchable driver is hooked all the same, in windows.
#[test]
fn preloading_covers_for_entries_that_cannot_be_patched() {
    let profiled = decode("covered", "short", &["--door", "both"], vec![("SECS", "2".into())]).profiled();
    assert_whole(&profiled);
    assert!(!profiled.statuses().contains(&"hook-fallback"), "{:?}", profiled.statuses());
    assert!(captured_share(&profiled) > 0.95);
}

/// Without CUPTI there are launches and stacks, and the profile says why there are no GPU times.
#[test]
fn cupti_off_gives_launches_and_says_so() {
    let profiled = decode("off", "", &["--cupti", "off"], vec![("SECS", "1".into())]).profiled();
    assert!(profiled.output.status.success());
    assert_eq!(profiled.recorded_ns(), 0.0);
    assert!(profiled.statuses().contains(&"cupti-off"));
    let counted: f64 = profiled.stacks().iter().map(|stack| stack.launches).sum();
    let seen = profiled.ledger("launches_seen") as f64;
    assert!((counted / seen - 1.0).abs() < 0.5, "{counted} estimated of {seen}");
}

/// A CUPTI that cannot be found, or is held by another tool, is a status and never a failure.
#[test]
fn missing_cupti_is_a_status() {
    let variables =
        vec![("SECS", "2".into()), ("LAUNCHSCOPE_CUPTI_LIBRARY", "/nonexistent/libcupti.so.13".into())];
    let profiled = decode("missing", "", &[], variables).profiled();
    assert!(profiled.output.status.success());
    assert!(profiled.statuses().contains(&"cupti-not-found"), "{:?}", profiled.statuses());
    assert!(profiled.ledger("launches_seen") > 0);
}

/// While another tool holds CUPTI windows are skipped, by name; the engine and the other tool do not notice.
#[test]
fn taken_cupti_is_a_status_and_windows_are_skipped() {
    let program = built::root().join("tests/suite/programs/with_tool.py").display().to_string();
    let command = vec!["python3".to_owned(), program];
    let profiled = Run { name: "taken", kind: "", options: &[], command, variables: vec![] }.profiled();
    assert!(profiled.output.status.success(), "{}", profiled.stderr());
    assert_eq!(String::from_utf8_lossy(&profiled.output.stdout), "tool: subscribed\ntool: worked\n");
    assert!(profiled.statuses().contains(&"cupti-taken"), "{:?}", profiled.statuses());
    assert!(profiled.ledger("windows_skipped_taken") > 0);
    assert_eq!(profiled.recorded_ns(), 0.0);
}

/// Every hook counts its calls, exactly.
#[test]
fn hooks_count_their_calls() {
    let truth = std::env::temp_dir().join(format!("truth-hits-{}.json", std::process::id()));
    let variables =
        vec![("SECS", "1".into()), ("EAGER", "1".into()), ("SIM_CUDA_TRUTH", truth.display().to_string())];
    let profiled = decode("hits", "", &[], variables).profiled();
    let truth: Value = serde_json::from_slice(&std::fs::read(&truth).expect("the truth")).expect("JSON");
    let hooks = profiled.profile["hooks"].as_array().expect("hooks");
    for name in [
        "cuLaunchKernel",
        "cuGraphLaunch",
        "cuMemcpyDtoDAsync_v2",
        "cuStreamBeginCapture_v2",
        "cuStreamEndCapture",
    ] {
        let hook = hooks.iter().find(|hook| hook["name"] == name).expect("a hook");
        assert_eq!(hook["hits"], truth["calls"][name], "{name}");
    }
}

/// Silent by default; with QUIET=false and RUST_LOG the documented line and each status change come on stderr.
#[test]
fn messages_come_only_when_asked_for() {
    let quiet = decode("quiet", "", &["--quiet"], vec![("SECS", "0.5".into())]).profiled();
    assert_eq!(quiet.stderr(), "");
    let variables = vec![
        ("SECS", "1.5".into()),
        ("ZYMTRACE_CUDAPROFILER__QUIET", "false".into()),
        ("RUST_LOG", "launchscope=info".into()),
        ("LAUNCHSCOPE_NO_SUCH_SETTING", "1".into()),
    ];
    let loud = decode("loud", "", &["--quiet"], variables).profiled().stderr();
    assert!(loud.starts_with("INFO launchscope: loaded launchscope CUDA profiler version "), "{loud}");
    for status in ["armed", "unknown-setting", "windows-running"] {
        assert!(loud.contains(&format!("status {status} holds")), "{status}: {loud}");
    }
    assert_eq!(loud.matches("LAUNCHSCOPE_NO_SUCH_SETTING").count(), 1, "{loud}");
}

/// Resident mode records every kernel that the simulator ran after the attachment.
#[test]
fn resident_mode_records_every_kernel() {
    let profiled = decode("resident", "", &["--cupti", "resident"], vec![("SECS", "3".into())]).profiled();
    assert!(profiled.output.status.success(), "{}", profiled.stderr());
    assert!(profiled.statuses().contains(&"cupti-resident"));
    let replays = profiled.ledger("graph_launches") as f64;
    let stacks = profiled.stacks();
    let in_windows = profiled.ledger("launches_in_windows") as f64;
    assert!(in_windows / replays > 0.5, "{in_windows} of {replays}");
    assert!(stacks.iter().any(|stack| stack.is_replayed() && stack.recorded_ns > 0.0));
}

/// Four threads on four streams, one of them capturing now and then, outlive many windows.
#[test]
fn windows_survive_threads_streams_and_captures() {
    let truth = std::env::temp_dir().join(format!("truth-mt-{}.json", std::process::id()));
    let run = Run {
        name: "mt",
        kind: "",
        options: &[],
        command: python("mt.py", &[]),
        variables: vec![
            ("SECS", "5".into()),
            ("SIM_CUDA_TRUTH", truth.display().to_string()),
            ("LAUNCHSCOPE_WINDOW_PERIOD", "60ms".into()),
            ("LAUNCHSCOPE_WINDOW_LENGTH", "20ms".into()),
        ],
    };
    let profiled = run.profiled();
    assert!(profiled.output.status.success(), "{}", profiled.stderr());
    assert!(profiled.ledger("windows_closed") >= 10, "{}", profiled.stderr());
    assert_eq!(profiled.ledger("orphaned"), 0);
    let truth: Value = serde_json::from_slice(&std::fs::read(&truth).expect("the truth")).expect("JSON");
    assert_eq!(truth["contexts_lost"], 0, "{truth}");
    assert_eq!(truth["captures_invalidated"], 0, "{truth}");
}

/// The engine's own CUPTI client finds CUPTI free between windows: we leave nothing behind.
#[test]
fn simulator_sees_a_finalize_for_every_subscription() {
    let truth = std::env::temp_dir().join(format!("truth-fin-{}.json", std::process::id()));
    let run = decode(
        "finalized",
        "",
        &[],
        vec![("SIM_CUDA_TRUTH", truth.display().to_string()), ("SECS", "3".into())],
    );
    let profiled = run.profiled();
    assert_whole(&profiled);
    let truth: Value = serde_json::from_slice(&std::fs::read(&truth).expect("the truth")).expect("JSON");
    let (subscribes, finalizes) = (truth["subscribes"].as_u64(), truth["finalizes"].as_u64());
    assert!(subscribes >= Some(2) && subscribes <= finalizes.map(|count| count + 1), "{truth}");
    assert_eq!(truth["contexts_lost"], 0);
}

/// A daemon that serves several engines at once writes a profile for each of them.
#[test]
fn collect_serves_several_engines_at_once() {
    let scratch = launchscope_tests::engine::Scratch::new("collect");
    let socket = format!("@launchscope-test-{}", std::process::id());
    let mut collector = Command::new(built::launchscope())
        .args(["collect", "--socket", &socket, "--interval", "60s", "--format", "json", "-o"])
        .arg(scratch.path())
        .spawn()
        .expect("the daemon starts");
    let mut engines: Vec<_> = (0..3)
        .map(|_| {
            let mut command = Command::new("python3");
            command.arg(built::program("decode.py"));
            on_simulator(&mut command, "")
                .env("CUDA_INJECTION64_PATH", built::library())
                .env("LAUNCHSCOPE_SOCKET", &socket)
                .env("SECS", "3")
                .spawn()
                .expect("an engine starts")
        })
        .collect();
    for engine in &mut engines {
        assert!(engine.wait().expect("its end").success());
    }
    // SAFETY: a signal to a child of ours.
    unsafe { libc::kill(collector.id() as i32, libc::SIGTERM) };
    assert!(collector.wait().expect("its end").success());
    let mut profiles = Vec::new();
    find_profiles(scratch.path(), &mut profiles);
    assert_eq!(profiles.len(), 3, "{profiles:?}");
}

fn find_profiles(directory: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        if path.is_dir() {
            find_profiles(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "json") {
            found.push(path);
        }
    }
}
