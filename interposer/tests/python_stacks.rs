//! Python stacks in real interpreters, against `traceback.extract_stack()`. Each interpreter runs
//! `python_stacks.py`, which loads the example `stack_probe`. An interpreter that is absent is skipped, with a note;
//! that none is there at all is a failure. `LAUNCHSCOPE_TEST_PYTHONS` adds interpreters (paths, separated by `:`).

use std::path::{Path, PathBuf};
use std::process::Command;

const PYENV_VERSIONS: [&str; 6] = ["3.8.18", "3.9.18", "3.10.13", "3.11.7", "3.12.1", "3.13.0"];

fn interpreters() -> Vec<PathBuf> {
    let pyenv = std::env::var_os("PYENV_ROOT").map_or_else(|| PathBuf::from("/root/.pyenv"), PathBuf::from);
    let listed = std::env::var("LAUNCHSCOPE_TEST_PYTHONS").unwrap_or_default();
    let of_pyenv =
        PYENV_VERSIONS.iter().map(|version| pyenv.join("versions").join(version).join("bin/python3"));
    let (there, absent): (Vec<_>, Vec<_>) = of_pyenv
        .chain(listed.split(':').filter(|path| !path.is_empty()).map(PathBuf::from))
        .partition(|path| path.exists());
    absent.iter().for_each(|path| println!("skipped: there is no {}", path.display()));
    assert!(!there.is_empty(), "no interpreter to test with");
    there
}

/// Builds the probe beside this test and returns its path.
fn probe() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(Path::parent).unwrap();
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["build", "--quiet", "--package", "interposer", "--example", "stack_probe"]);
    cargo.arg("--target-dir").arg(profile.parent().unwrap());
    if profile.ends_with("release") {
        cargo.arg("--release");
    }
    assert!(cargo.status().unwrap().success());
    profile.join("examples/libstack_probe.so")
}

fn run(interpreter: &Path, mode: &str) -> Result<String, String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python_stacks.py");
    let output = Command::new(interpreter)
        .arg("-B")
        .arg(script)
        .arg(probe())
        .arg(mode)
        .env("PYTHONIOENCODING", "utf-8")
        .output()
        .unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match output.status.success() {
        true => Ok(text(&output.stdout)),
        false => Err(format!("{}: {}\n{}", interpreter.display(), output.status, text(&output.stderr))),
    }
}

fn run_in_all(mode: &str) {
    let failures: Vec<_> =
        interpreters().iter().filter_map(|interpreter| run(interpreter, mode).err()).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}

/// Check that names, lines and files equal Python's own traceback in ten situations, and that each native frame of
/// the interpreter loop has its entry frame.
#[test]
fn stacks_equal_the_traceback() {
    run_in_all("all");
}

/// Check that a code object at the address of one that was freed gets its own name.
#[test]
fn freed_code_objects_never_lend_their_names() {
    run_in_all("reuse");
}

/// Check that full tables are counted and give no wrong name.
#[test]
fn full_tables_count_and_stay_right() {
    run_in_all("full");
}

/// Check that a warm capture of a mixed stack makes no system call.
#[test]
fn warm_capture_makes_no_system_call() {
    run_in_all("syscalls");
}

/// Check that an interpreter whose layout is not known gives native frames and a named reason.
#[test]
fn unknown_version_is_refused_by_name() {
    for (version, name) in [("3.7.16", "3.7"), ("3.6.15", "3.6")] {
        let interpreter = PathBuf::from(format!("/root/.pyenv/versions/{version}/bin/python3"));
        if !interpreter.exists() {
            println!("skipped: there is no {}", interpreter.display());
            continue;
        }
        let output = run(&interpreter, "refused").unwrap();
        assert!(output.contains(&format!("the layout of Python {name} is not known")), "{output}");
    }
}
