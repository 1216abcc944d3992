//! Runs programs on the simulated GPU, with and without us, and reads the profiles that come out.

use crate::built;
use serde_json::Value;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A directory that is removed when it goes out of scope.
#[derive(Debug)]
pub struct Scratch(PathBuf);

impl Scratch {
    /// A fresh one.
    pub fn new(name: &str) -> Self {
        let directory = std::env::temp_dir().join(format!("suite-{name}-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir_all(&directory).expect("a scratch directory");
        Self(directory)
    }

    /// Its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// `command` finds the simulated GPU of this kind, and nothing of ours from the surrounding environment.
pub fn on_simulator<'a>(command: &'a mut Command, kind: &str) -> &'a mut Command {
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("LAUNCHSCOPE_")) {
        command.env_remove(name);
    }
    command.env_remove("LD_PRELOAD").env_remove("CUDA_INJECTION64_PATH");
    command.env("LD_LIBRARY_PATH", built::simulator(kind)).env("PYTHONUNBUFFERED", "1")
}

/// Settings that give a run of seconds many windows.
pub const MANY_WINDOWS: [(&str, &str); 2] =
    [("LAUNCHSCOPE_WINDOW_PERIOD", "250ms"), ("LAUNCHSCOPE_WINDOW_LENGTH", "60ms")];

/// A run of a program under `launchscope run`.
#[derive(Debug)]
pub struct Profiled {
    /// What the command printed, and how it ended.
    pub output: Output,
    /// profile.json.
    pub profile: Value,
    /// The directory of the profile's files.
    pub scratch: Scratch,
}

/// Runs `launchscope run OPTIONS -- python3 PROGRAM ARGUMENTS` on the simulator.
#[derive(Debug)]
pub struct Run<'a> {
    /// Names the scratch directory.
    pub name: &'a str,
    /// Entry kind of the simulated driver.
    pub kind: &'a str,
    /// Options of `launchscope run`.
    pub options: &'a [&'a str],
    /// The program and its arguments.
    pub command: Vec<String>,
    /// More variables.
    pub variables: Vec<(&'a str, String)>,
}

impl Run<'_> {
    /// To the end, with the profile.
    pub fn profiled(self) -> Profiled {
        let scratch = Scratch::new(self.name);
        let mut command = Command::new(built::launchscope());
        command.arg("run").args(self.options).args(["--format", "json,html,collapsed", "-o"]);
        command.arg(scratch.path()).arg("--").args(&self.command);
        on_simulator(&mut command, self.kind).envs(MANY_WINDOWS).envs(self.variables);
        let output = command.output().expect("launchscope can be started");
        let text = std::fs::read(scratch.path().join("profile.json")).unwrap_or_else(|error| {
            panic!("no profile.json ({error}); stderr:\n{}", String::from_utf8_lossy(&output.stderr))
        });
        let profile = serde_json::from_slice(&text).expect("profile.json is JSON");
        Profiled { output, profile, scratch }
    }
}

/// The simulator's program as a command.
pub fn python(program: &str, arguments: &[&str]) -> Vec<String> {
    let path = built::program(program).display().to_string();
    ["python3".to_owned(), path].into_iter().chain(arguments.iter().map(|text| (*text).to_owned())).collect()
}

impl Profiled {
    /// A line of the ledger.
    pub fn ledger(&self, key: &str) -> u64 {
        let lines = self.profile["ledger"].as_array().expect("a ledger");
        let line = lines.iter().find(|line| line["key"] == key);
        line.unwrap_or_else(|| panic!("the ledger has no {key}"))["count"].as_u64().expect("a count")
    }

    /// Names of the statuses that hold at the end.
    pub fn statuses(&self) -> Vec<&str> {
        let lines = self.profile["statuses"].as_array().expect("statuses");
        lines.iter().filter(|line| line["holds"] == true).filter_map(|line| line["name"].as_str()).collect()
    }

    /// Recorded GPU time of all stacks, in nanoseconds.
    pub fn recorded_ns(&self) -> f64 {
        self.recorded_where(|_| true)
    }

    /// Recorded GPU time of the stacks that `keep` keeps.
    pub fn recorded_where(&self, keep: impl Fn(&Stack) -> bool) -> f64 {
        self.stacks().iter().filter(|stack| keep(stack)).map(|stack| stack.recorded_ns).sum()
    }

    /// All stacks with the names of their frames.
    pub fn stacks(&self) -> Vec<Stack> {
        let frames = self.profile["frames"].as_array().expect("frames");
        let resolve = |ids: &Value| -> Vec<Frame> {
            let ids = ids.as_array().expect("frame ids");
            ids.iter().map(|id| Frame::read(&frames[id.as_u64().expect("an id") as usize])).collect()
        };
        let stacks = self.profile["stacks"].as_array().expect("stacks");
        let read = |stack: &Value| Stack {
            launch: resolve(&stack["launch"]),
            capture: resolve(stack.get("capture").unwrap_or(&stack["launch"])),
            recorded_ns: stack["recorded_gpu_time_ns"].as_f64().expect("a time"),
            estimated_ns: stack["gpu_time_ns"].as_f64().expect("a time"),
            launches: stack["launches"].as_f64().expect("launches"),
        };
        stacks.iter().map(read).collect()
    }

    /// What the collector printed.
    pub fn stderr(&self) -> String {
        String::from_utf8_lossy(&self.output.stderr).into_owned()
    }
}

/// One frame of a stack.
#[derive(Clone, Debug, PartialEq)]
pub struct Frame {
    /// Its layer, as profile.json spells it.
    pub layer: String,
    /// Its short name.
    pub name: String,
    /// Its file.
    pub file: String,
    /// Its line.
    pub line: u64,
}

impl Frame {
    fn read(frame: &Value) -> Self {
        let text = |key: &str| frame[key].as_str().unwrap_or_default().to_owned();
        Self {
            layer: text("layer"),
            name: text("name"),
            file: text("file"),
            line: frame["line"].as_u64().unwrap_or(0),
        }
    }
}

/// One weighted stack, root first.
#[derive(Clone, Debug, PartialEq)]
pub struct Stack {
    /// Launch view.
    pub launch: Vec<Frame>,
    /// Capture view.
    pub capture: Vec<Frame>,
    /// GPU time recorded in windows.
    pub recorded_ns: f64,
    /// GPU time estimated for the run.
    pub estimated_ns: f64,
    /// Launches estimated.
    pub launches: f64,
}

impl Stack {
    /// The capture view has a Python frame of this name.
    pub fn captured_by(&self, name: &str) -> bool {
        self.capture.iter().any(|frame| frame.layer == "python" && frame.name == name)
    }

    /// The work was replayed from a graph.
    pub fn is_replayed(&self) -> bool {
        self.launch.iter().any(|frame| frame.layer == "graph")
    }
}
