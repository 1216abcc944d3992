//! What the tests run: the collector, the library and the simulated GPU, built once for each test process.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The repository's root.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the root of the repository")
}

/// The `launchscope` program.
pub fn launchscope() -> PathBuf {
    output_directory().join("launchscope")
}

/// liblaunchscope.so.
pub fn library() -> PathBuf {
    output_directory().join("liblaunchscope.so")
}

/// Directory of the simulated libcuda.so.1 and libcupti.so.13 whose entries begin as `kind` says; "" is driver 580's.
pub fn simulator(kind: &str) -> PathBuf {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let base = BUILT.get_or_init(|| {
        let target = target_directory();
        // Tests are processes that run side by side: one builds, the others wait and find it built.
        let mut build = Command::new("flock");
        build.arg(target.join("sim.lock")).args(["bash", "scripts/build-sim.sh"]);
        run(build.env("CARGO_TARGET_DIR", &target).stdout(std::process::Stdio::null()));
        target.join("sim")
    });
    base.join(if kind.is_empty() { "lib".to_owned() } else { format!("lib-{kind}") })
}

/// A Python program of the simulator.
pub fn program(name: &str) -> PathBuf {
    root().join("tests/sim-cuda/programs").join(name)
}

/// `target/debug` of this build, with the collector and the library in it.
fn output_directory() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let mut build = Command::new(env!("CARGO"));
        build.args(["build", "--quiet", "-p", "launchscope", "-p", "launchscope-entry"]);
        run(build.env("CARGO_TARGET_DIR", target_directory()));
        target_directory().join("debug")
    })
}

/// The target directory that this very test was built in.
fn target_directory() -> PathBuf {
    let test = std::env::current_exe().expect("the path of this test");
    // target/debug/deps/test-hash
    test.ancestors().nth(3).expect("a target directory").to_owned()
}

fn run(command: &mut Command) {
    let status = command.current_dir(root()).status().expect("the build can be started");
    assert!(status.success(), "{command:?} ended with {status}");
}
