//! `launchscope run` around `/bin/sh`: what the command says and how it ends passes through untouched.

use std::io::{BufRead, BufReader};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Place {
    directory: PathBuf,
}

impl Place {
    fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("launchscope-run-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a temporary directory");
        std::fs::write(directory.join("liblaunchscope.so"), "").expect("writable");
        Self { directory }
    }

    /// `launchscope run` with injection only: an empty file cannot be preloaded.
    fn run(&self, options: &[&str], command: &[&str]) -> Command {
        let mut run = Command::new(env!("CARGO_BIN_EXE_launchscope"));
        run.arg("run").arg("-o").arg(self.directory.join("out"));
        run.args(["--format", "json", "--door", "injection"]).args(options).arg("--").args(command);
        run.env("LAUNCHSCOPE_LIBRARY", self.directory.join("liblaunchscope.so"));
        run.env_remove("CUDA_INJECTION64_PATH").env_remove("LD_PRELOAD");
        run
    }

    fn sh(&self, script: &str) -> Output {
        self.run(&[], &["/bin/sh", "-c", script]).output().expect("launchscope starts")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _gone = std::fs::remove_dir_all(&self.directory);
    }
}

fn words(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The exit code is the command's, and stdout holds its bytes and nothing else.
#[test]
fn exit_code_and_stdout_pass_through() {
    let place = Place::new("exit");
    let output = place.sh(r"printf 'a\0b\377'; echo err >&2; exit 37");
    assert_eq!(output.status.code(), Some(37));
    assert_eq!(output.stdout, b"a\0b\xff");
    let said = words(&output.stderr);
    assert!(said.starts_with("err\n") && said.contains("no process loaded launchscope"), "{said}");
}

/// The profile is written when the command has ended, also when it failed.
#[test]
fn profile_is_written_at_the_end() {
    let place = Place::new("files");
    place.sh("exit 1");
    let files = std::fs::read_dir(place.directory.join("out")).expect("the directory").count();
    assert!(files > 0);
}

/// Killed by a signal, launchscope ends by the same one.
#[test]
fn killed_command_ends_launchscope_by_the_same_signal() {
    let place = Place::new("killed");
    for (name, number) in [("KILL", libc::SIGKILL), ("TERM", libc::SIGTERM), ("SEGV", libc::SIGSEGV)] {
        let output = place.sh(&format!("kill -{name} $$"));
        assert_eq!(output.status.signal(), Some(number), "{name}: {}", words(&output.stderr));
    }
}

/// A signal sent to launchscope reaches the command, whose own handler decides.
#[test]
fn signals_are_passed_on_once() {
    let place = Place::new("signals");
    let script = "n=0; trap 'n=$((n+1)); echo got' USR1; trap 'echo bye $n; exit 5' TERM; echo ready; \
                  while :; do sleep 0.05; done";
    let mut run = place.run(&["--quiet"], &["/bin/sh", "-c", script]);
    let mut child = run.stdout(Stdio::piped()).spawn().expect("launchscope starts");
    let mut lines = BufReader::new(child.stdout.take().expect("piped")).lines();
    let mut next = || lines.next().expect("a line").expect("text");
    // SAFETY: our own child, not yet waited for.
    let signal = |number| unsafe { libc::kill(child.id() as i32, number) };
    assert_eq!(next(), "ready");
    signal(libc::SIGUSR1);
    assert_eq!(next(), "got");
    signal(libc::SIGTERM);
    assert_eq!(next(), "bye 1");
    assert_eq!(child.wait().expect("it ends").code(), Some(5));
}

/// The command finds the collector by its environment, and nothing of what it had is lost.
#[test]
fn environment_leads_to_the_collector() {
    let place = Place::new("environment");
    let output = place.run(&["--cupti", "resident", "-q"], &["/usr/bin/env"]).env("MINE", "kept").output();
    let said = words(&output.expect("launchscope starts").stdout);
    for expected in
        ["LAUNCHSCOPE_SOCKET=@launchscope-", "LAUNCHSCOPE_TOKEN=", "LAUNCHSCOPE_CUPTI=resident", "MINE=kept"]
    {
        assert!(said.contains(expected), "{expected} in {said}");
    }
    let library = place.directory.join("liblaunchscope.so");
    assert!(said.contains(&format!("CUDA_INJECTION64_PATH={}", library.display())), "{said}");
}

/// What another tool has put there stays, and people are told.
#[test]
fn existing_injection_is_kept_and_told() {
    let place = Place::new("existing");
    let script = "echo $CUDA_INJECTION64_PATH";
    let mut run = place.run(&[], &["/bin/sh", "-c", script]);
    let output = run.env("CUDA_INJECTION64_PATH", "/opt/other.so").output().expect("launchscope starts");
    assert_eq!(output.stdout, b"/opt/other.so\n");
    assert!(words(&output.stderr).contains("CUDA_INJECTION64_PATH is already /opt/other.so"));
}

/// Failures of our own are told apart from the command's.
#[test]
fn own_failures_have_their_own_exit_codes() {
    let place = Place::new("failures");
    let code =
        |command: &[&str]| place.run(&["-q"], command).output().expect("launchscope starts").status.code();
    assert_eq!(code(&["/does/not/exist"]), Some(127));
    assert_eq!(code(&["/etc/passwd"]), Some(126));
    let mut without_library = place.run(&[], &["/bin/true"]);
    let output = without_library.env("LAUNCHSCOPE_LIBRARY", "/does/not/exist.so").output().expect("starts");
    assert_eq!(output.status.code(), Some(125));
    let said = words(&output.stderr);
    assert!(said.contains("/does/not/exist.so") && said.contains("LAUNCHSCOPE_LIBRARY"), "{said}");
}

/// The summary for scripts is one line, after the command's own output.
#[test]
fn json_summary_is_the_last_line() {
    let place = Place::new("json");
    let output =
        place.run(&["--json", "-q"], &["/bin/sh", "-c", "echo first; exit 4"]).output().expect("starts");
    let said = words(&output.stdout);
    let lines: Vec<&str> = said.lines().collect();
    assert_eq!((lines.len(), lines[0]), (2, "first"));
    assert!(lines[1].starts_with('{') && lines[1].contains(r#""exit_code":4"#), "{said}");
}

/// A child that outlives the command is not waited for.
#[test]
fn descendants_do_not_hold_it_up() {
    let place = Place::new("descendants");
    let started = Instant::now();
    let output = place.sh("sleep 20 >/dev/null 2>&1 & exit 0");
    assert_eq!(output.status.code(), Some(0));
    assert!(started.elapsed() < Duration::from_secs(10));
}
