//! Rules of this repository that neither the compiler nor clippy can hold.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the workspace's root")
}

/// All Rust files of ours as (path relative to the root, text).
fn rust_files() -> Vec<(String, String)> {
    let mut files = Vec::new();
    let root = root();
    for part in ["shared-abi", "bindings", "interposer", "collector", "tests", "benches"] {
        collect(&root, &root.join(part), &mut files);
    }
    assert!(files.len() > 20, "too few files found to be right: {}", files.len());
    files
}

fn collect(root: &Path, directory: &Path, files: &mut Vec<(String, String)>) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = entry.file_name().to_string_lossy().into_owned();
        let kind = entry.file_type().expect("a file type");
        if kind.is_dir() && !["target", "node_modules", ".git"].contains(&name.as_str()) {
            collect(root, &path, files);
        } else if kind.is_file() && name.ends_with(".rs") {
            let relative = path.strip_prefix(root).expect("below the root").to_string_lossy().into_owned();
            files.push((relative, fs::read_to_string(&path).expect("a readable source file")));
        }
    }
}

fn assert_none(what: &str, found: Vec<String>) {
    assert!(found.is_empty(), "{what}:\n  {}", found.join("\n  "));
}

/// Lines of code, each with its number, without what follows `//`.
fn code_lines(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(index, line)| (index + 1, line.split("//").next().unwrap_or_default()))
}

fn lines_with(files: &[(String, String)], applies: impl Fn(&str) -> bool, words: &[String]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in files.iter().filter(|(path, _)| applies(path)) {
        for (number, code) in code_lines(text) {
            if words.iter().any(|word| code.contains(word.as_str())) {
                found.push(format!("{path}:{number}: {}", code.trim()));
            }
        }
    }
    found
}

/// The dependency names of one table of a manifest, as cargo reads it: `[table]` and `[table.name]`.
fn dependencies(manifest: &str, table: &str) -> BTreeSet<String> {
    let text = fs::read_to_string(root().join(manifest)).expect("a manifest");
    let mut names = BTreeSet::new();
    let mut inside = false;
    for line in text.lines().map(str::trim) {
        if let Some(header) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            inside = header == table;
            names.extend(header.strip_prefix(&format!("{table}.")).map(str::to_owned));
        } else if inside && !line.is_empty() && !line.starts_with('#') {
            let name = line.split(['=', '.', ' ']).next().unwrap_or_default();
            // A value that goes on over several lines has no name of its own.
            if name.chars().all(|letter| letter.is_alphanumeric() || "-_".contains(letter))
                && line.contains('=')
            {
                names.insert(name.to_owned());
            }
        }
    }
    names
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// A reader who opens any file is told first what it is for.
#[test]
fn every_file_says_what_it_is() {
    let files = rust_files();
    let silent = files.iter().filter(|(_, text)| !text.starts_with("//!")).map(|(path, _)| path.clone());
    assert_none("files that do not open with `//!`", silent.collect());
}

/// A drawer for everything soon holds everything.
#[test]
fn no_file_is_a_drawer() {
    let drawers = ["utils", "util", "common", "helpers", "helper", "misc"];
    let files = rust_files();
    let found = files.iter().map(|(path, _)| path).filter(|path| {
        Path::new(path)
            .with_extension("")
            .components()
            .any(|part| drawers.iter().any(|name| part.as_os_str() == *name))
    });
    assert_none("files named for nothing in particular", found.cloned().collect());
}

/// Whoever fears for the engine reads the interposer; files there stay short or say why they are not.
#[test]
fn interposer_files_stay_short_or_say_why() {
    let files = rust_files();
    let long = files.iter().filter(|(path, text)| {
        path.starts_with("interposer/src/")
            && text.lines().count() > 400
            && !text.lines().take(20).any(|line| line.starts_with("//! Over 400 lines because"))
    });
    let report = long.map(|(path, text)| format!("{path}: {} lines", text.lines().count()));
    assert_none("files over 400 lines without a line `//! Over 400 lines because ...`", report.collect());
}

/// The contract between the processes depends on nothing but zerocopy, and on loom where it is modelled.
#[test]
fn shared_abi_depends_on_zerocopy_alone() {
    assert_eq!(dependencies("shared-abi/Cargo.toml", "dependencies"), set(&["zerocopy"]));
    assert_eq!(dependencies("shared-abi/Cargo.toml", "target.'cfg(loom)'.dependencies"), set(&["loom"]));
}

/// What is loaded into the engine is named here; a new crate in it is a decision, not an accident.
#[test]
fn interposer_depends_on_little() {
    let allowed = set(&["bindings", "gimli", "iced-x86", "libc", "shared-abi", "zerocopy"]);
    let found = dependencies("interposer/Cargo.toml", "dependencies");
    assert_none("crates in the engine that nobody argued for", found.difference(&allowed).cloned().collect());
}

/// The two sides of the process boundary know each other through shared-abi only.
#[test]
fn interposer_and_collector_do_not_depend_on_each_other() {
    for (manifest, others) in [
        ("interposer/Cargo.toml", &["launchscope", "collector"][..]),
        ("collector/Cargo.toml", &["interposer", "bindings"][..]),
        ("bindings/Cargo.toml", &["interposer", "launchscope", "collector"][..]),
    ] {
        let found = dependencies(manifest, "dependencies");
        let forbidden = others.iter().filter(|other| found.contains(**other));
        assert_none(manifest, forbidden.map(|other| format!("depends on {other}")).collect());
    }
}

/// Functions of the vendor are declared in `bindings` and replaced in the interposer's hooks; nowhere else.
#[test]
fn vendor_functions_are_declared_in_bindings_and_hooks_only() {
    let allowed =
        ["bindings/", "interposer/src/launch_hook/", "interposer/src/entry.rs", "tests/", "benches/"];
    let words =
        ["extern \"C\" fn cu", "extern \"C\" fn hip", "extern \"C\" fn rocprofiler"].map(str::to_owned);
    let elsewhere = |path: &str| !allowed.iter().any(|start| path.starts_with(start));
    assert_none("vendor functions outside bindings and hooks", lines_with(&rust_files(), elsewhere, &words));
}

/// The engine's environment belongs to the engine: a change breaks process titles and races with its getenv.
#[test]
fn interposer_never_changes_the_environment() {
    let words = ["setenv", "putenv", "set_var", "remove_var", "clearenv"].map(str::to_owned);
    let inside = |path: &str| path.starts_with("interposer/src/") || path.starts_with("bindings/src/");
    assert_none("changes of the environment", lines_with(&rust_files(), inside, &words));
}

/// Atomics come through shared_abi::sync, so that whatever uses them can be put under loom. (Clippy cannot tell a
/// re-export from the original.) The simulated vendor libraries are not ours to model, hence exempt.
#[test]
fn atomics_come_through_shared_abi_sync() {
    let words = ["core::sync::atomic", "std::sync::atomic", "loom::sync::atomic"].map(str::to_owned);
    let applies = |path: &str| {
        path != "shared-abi/src/sync.rs"
            && path != "tests/suite/tests/tidy.rs"
            && !path.starts_with("tests/sim-")
    };
    assert_none(
        "atomics that do not come through shared_abi::sync",
        lines_with(&rust_files(), applies, &words),
    );
}

/// A setting that nobody can read about does not exist.
#[test]
fn every_setting_is_in_the_readme() {
    let Ok(settings) = fs::read_to_string(root().join("interposer/src/config.rs")) else {
        println!("skipped: interposer/src/config.rs does not exist yet");
        return;
    };
    let Ok(readme) = fs::read_to_string(root().join("README.md")) else {
        println!("skipped: README.md does not exist yet");
        return;
    };
    // Each row of the table begins `setting("NAME",`, on one line or two.
    let names: BTreeSet<String> = settings
        .split("setting(")
        .filter_map(|row| row.trim_start().strip_prefix('"')?.split_once('"'))
        .map(|(name, _)| format!("LAUNCHSCOPE_{name}"))
        .collect();
    assert!(!names.is_empty(), "no row of the settings table was found");
    let missing = names.into_iter().filter(|name| !readme.contains(name));
    assert_none("settings that README.md does not mention", missing.collect());
}
