//! The engine runs the same with and without us: output, exit code and resources, however it ends and whatever happens
//! to the collector. What real programs do is in engines.md: vLLM's engine core is ended by a signal, workers leave by
//! os._exit, collectors are restarted under them.

use launchscope_tests::built;
use launchscope_tests::engine::{Run, Scratch, on_simulator};
use serde_json::Value;
use std::io::Read as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

fn program(name: &str) -> String {
    built::root().join("tests/suite/programs").join(name).display().to_string()
}

fn ending(mode: &str, seconds: &str) -> Vec<String> {
    ["python3", &program("ending.py"), mode, seconds].map(str::to_owned).to_vec()
}

/// Runs a command bare on the simulator.
fn bare(command: &[String]) -> (ExitStatus, String, String) {
    let output =
        on_simulator(Command::new(&command[0]).args(&command[1..]), "").output().expect("the engine starts");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (output.status, text(output.stdout), text(output.stderr))
}

/// An engine with our variables, which has printed "ready".
fn injected(mode: &str, seconds: &str, socket: &str) -> Child {
    let command = ending(mode, seconds);
    let mut engine = Command::new(&command[0]);
    on_simulator(engine.args(&command[1..]), "")
        .env("CUDA_INJECTION64_PATH", built::library())
        .env("LD_PRELOAD", built::library())
        .env("LAUNCHSCOPE_SOCKET", socket)
        .envs(launchscope_tests::engine::MANY_WINDOWS)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut engine = engine.spawn().expect("the engine starts");
    let mut ready = [0u8; 6];
    engine.stdout.as_mut().expect("its output").read_exact(&mut ready).expect("its first line");
    assert_eq!(&ready, b"ready\n");
    engine
}

fn signal(process: &Child, number: i32) {
    // SAFETY: a signal to a child of ours that has not been waited for.
    unsafe { libc::kill(process.id() as i32, number) };
}

fn collector(socket: &str, directory: &std::path::Path) -> Child {
    Command::new(built::launchscope())
        .args(["collect", "--socket", socket, "--format", "json", "--interval", "60s", "-o"])
        .arg(directory)
        .stderr(Stdio::null())
        .spawn()
        .expect("the collector starts")
}

fn fresh_socket(name: &str) -> String {
    format!("@launchscope-{name}-{}", std::process::id())
}

/// A normal end, an exception, os._exit and abort give the same output and the same exit status.
#[test]
fn every_ending_looks_the_same_with_and_without_us() {
    for mode in ["normal", "exception", "os_exit", "abort"] {
        let (status, stdout, stderr) = bare(&ending(mode, "0.6"));
        let run = Run {
            name: mode,
            kind: "",
            options: &["--quiet"],
            command: ending(mode, "0.6"),
            variables: vec![],
        };
        let profiled = run.profiled();
        assert_eq!(profiled.output.status.code(), status.code(), "{mode}");
        assert_eq!(profiled.output.status.signal(), status.signal(), "{mode}");
        assert_eq!(String::from_utf8_lossy(&profiled.output.stdout), stdout, "{mode}");
        assert_eq!(profiled.stderr(), stderr, "{mode}");
        assert!(profiled.ledger("launches_seen") > 0, "{mode}");
    }
}

/// SIGTERM and SIGKILL at any moment end the engine as they would without us, and its launches are still accounted for.
#[test]
fn signals_end_the_engine_and_the_profile_survives() {
    for number in [libc::SIGTERM, libc::SIGKILL] {
        let scratch = Scratch::new(&format!("signal-{number}"));
        let socket = fresh_socket(&format!("signal-{number}"));
        let mut collector = collector(&socket, scratch.path());
        let mut engine = injected("wait", "0.1", &socket);
        std::thread::sleep(Duration::from_millis(1500));
        signal(&engine, number);
        assert_eq!(engine.wait().expect("its end").signal(), Some(number));
        signal(&collector, libc::SIGTERM);
        assert!(collector.wait().expect("its end").success());
        let profile = only_profile(scratch.path());
        let seen = profile["ledger"]
            .as_array()
            .expect("a ledger")
            .iter()
            .find(|line| line["key"] == "launches_seen");
        assert!(seen.expect("launches")["count"].as_u64() > Some(100), "{seen:?}");
    }
}

/// Without a collector the engine works and ends as usual.
#[test]
fn absent_collector_changes_nothing() {
    let mut engine = injected("normal", "1", &fresh_socket("absent"));
    assert!(engine.wait().expect("its end").success());
    let mut stderr = String::new();
    engine.stderr.take().expect("stderr").read_to_string(&mut stderr).expect("text");
    assert_eq!(stderr, "");
}

/// A collector that is killed half-way is replaced by another, which gets all definitions.
#[test]
fn killed_collector_is_replaced_half_way() {
    let (first, second) = (Scratch::new("killed"), Scratch::new("replacement"));
    let socket = fresh_socket("killed");
    let mut killed = collector(&socket, first.path());
    let mut engine = injected("normal", "5", &socket);
    std::thread::sleep(Duration::from_millis(1200));
    signal(&killed, libc::SIGKILL);
    killed.wait().expect("its end");
    let mut replacement = collector(&socket, second.path());
    assert!(engine.wait().expect("its end").success());
    std::thread::sleep(Duration::from_millis(300));
    signal(&replacement, libc::SIGTERM);
    assert!(replacement.wait().expect("its end").success());
    assert_has_capture_stacks(&only_profile(second.path()));
}

/// A collector that starts late gets the stacks of graphs that were captured long before.
#[test]
fn late_collector_gets_earlier_captures() {
    let scratch = Scratch::new("late");
    let socket = fresh_socket("late");
    let mut engine = injected("normal", "4", &socket);
    std::thread::sleep(Duration::from_millis(1000));
    let mut collector = collector(&socket, scratch.path());
    assert!(engine.wait().expect("its end").success());
    std::thread::sleep(Duration::from_millis(300));
    signal(&collector, libc::SIGTERM);
    assert!(collector.wait().expect("its end").success());
    assert_has_capture_stacks(&only_profile(scratch.path()));
}

/// A collector in pid, mount, ipc and uts namespaces of its own, as in a sidecar container, gets everything, symbols too.
#[test]
fn collector_in_other_namespaces_gets_everything() {
    let scratch = Scratch::new("sidecar");
    let socket = fresh_socket("sidecar");
    let unshare = ["--pid", "--fork", "--kill-child", "--mount", "--mount-proc", "--ipc", "--uts"];
    if !Command::new("unshare")
        .args(unshare)
        .arg("true")
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
    {
        println!("skipped: this machine does not let us make namespaces");
        return;
    }
    let mut sidecar = Command::new("unshare");
    sidecar.args(unshare).arg(built::launchscope()).args([
        "collect",
        "--socket",
        &socket,
        "--format",
        "json",
        "--duration",
        "4s",
        "-o",
    ]);
    let mut sidecar = sidecar.arg(scratch.path()).stderr(Stdio::null()).spawn().expect("unshare starts");
    std::thread::sleep(Duration::from_millis(300));
    let mut engine = injected("normal", "2.5", &socket);
    assert!(engine.wait().expect("its end").success());
    assert!(sidecar.wait().expect("its end").success());
    let profile = only_profile(scratch.path());
    assert_has_capture_stacks(&profile);
    let frames = profile["frames"].as_array().expect("frames");
    // Without the interpreter's symbols its frames could not have given way to the Python frames.
    let has_no_symbol = |frame: &&Value| {
        frame["layer"] == "native" && frame["name"].as_str().is_some_and(|name| name.contains("+0x"))
    };
    assert_eq!(frames.iter().filter(has_no_symbol).collect::<Vec<_>>(), Vec::<&Value>::new());
}

/// Memory of the engine that is not our own, and its descriptors, stay flat over hundreds of windows, captures and
/// re-captures.
#[test]
fn memory_and_descriptors_stay_flat() {
    let command = ["python3", &program("steady.py"), "12"].map(str::to_owned).to_vec();
    let variables = vec![
        ("LAUNCHSCOPE_WINDOW_PERIOD", "40ms".to_owned()),
        ("LAUNCHSCOPE_WINDOW_LENGTH", "10ms".to_owned()),
    ];
    let profiled = Run { name: "steady", kind: "", options: &[], command, variables }.profiled();
    assert!(profiled.output.status.success(), "{}", profiled.stderr());
    assert!(profiled.ledger("windows_closed") > 50, "{}", profiled.stderr());
    let stdout = String::from_utf8_lossy(&profiled.output.stdout).into_owned();
    let reports: Vec<Value> = stdout.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    // The first quarter warms tables, buffers and the dictionary up.
    let (early, last) = (&reports[reports.len() / 4], reports.last().expect("reports"));
    let growth = |key: &str| last[key].as_i64().expect("a number") - early[key].as_i64().expect("a number");
    assert!(growth("anonymous_kib") < 512, "{early} to {last}");
    assert!(growth("shared_kib") < 1024, "{early} to {last}");
    assert_eq!(growth("fds"), 0, "{early} to {last}");
}

/// A child that is forked after CUDA work runs as it would without us, and the parent's profile is not disturbed.
#[test]
fn forked_child_runs_as_without_us() {
    let command = launchscope_tests::engine::python("fork.py", &[]);
    let (status, stdout, _) = bare(&command);
    let run = Run { name: "fork", kind: "", options: &["--quiet"], command, variables: vec![] };
    let profiled = run.profiled();
    assert_eq!(profiled.output.status.code(), status.code());
    assert_eq!(String::from_utf8_lossy(&profiled.output.stdout), stdout);
    assert!(profiled.ledger("launches_seen") >= 51);
}

/// A program without libcuda is left alone: no thread, no descriptor, no output.
#[test]
fn process_without_libcuda_is_left_alone() {
    let script = "import os; print(len(os.listdir('/proc/self/task')), len(os.listdir('/proc/self/fd')))";
    let run = |preload: bool| {
        let mut command = Command::new("python3");
        on_simulator(command.args(["-c", script]), "");
        if preload {
            command.env("LD_PRELOAD", built::library());
        }
        let output = command.output().expect("python starts");
        (output.status.code(), output.stdout, output.stderr)
    };
    assert_eq!(run(true), run(false));
}

fn only_profile(directory: &std::path::Path) -> Value {
    let deadline = Instant::now() + Duration::from_secs(5);
    loop {
        let mut found = Vec::new();
        find(directory, &mut found);
        if let Some(path) = found.first() {
            assert_eq!(found.len(), 1, "{found:?}");
            return serde_json::from_slice(&std::fs::read(path).expect("a profile")).expect("JSON");
        }
        assert!(Instant::now() < deadline, "no profile in {}", directory.display());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn find(directory: &std::path::Path, found: &mut Vec<std::path::PathBuf>) {
    for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
        let path = entry.path();
        match path.is_dir() {
            true => find(&path, found),
            false if path.extension().is_some_and(|extension| extension == "json") => found.push(path),
            false => {}
        }
    }
}

/// Recorded time in graphs carries capture stacks through `step`.
fn assert_has_capture_stacks(profile: &Value) {
    let frames = profile["frames"].as_array().expect("frames");
    let named = |ids: &Value, name: &str| {
        ids.as_array()
            .is_some_and(|ids| ids.iter().any(|id| frames[id.as_u64().unwrap_or(0) as usize]["name"] == name))
    };
    let recorded = |stack: &Value| stack["recorded_gpu_time_ns"].as_f64().unwrap_or(0.0);
    let stacks = profile["stacks"].as_array().expect("stacks");
    let all: f64 = stacks.iter().map(recorded).sum();
    let right: f64 = stacks
        .iter()
        .filter(|stack| named(&stack["capture"], "main.<locals>.step") || named(&stack["capture"], "step"))
        .map(recorded)
        .sum();
    assert!(all > 0.0, "nothing was recorded");
    assert!(right / all > 0.9, "{right} of {all}");
}
