//! Both ways in, on C programs and a tiny driver of their own: with and without the profiler they print the same, and what
//! they are given leads to us where it should.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use launchscope_tests::built;

const CALLS: &str = "-calls";
const WHERE: &str = "where";

/// What was built, once for all tests of this file.
struct Built {
    directory: PathBuf,
}

impl Built {
    fn get() -> &'static Self {
        static BUILT: OnceLock<Built> = OnceLock::new();
        BUILT.get_or_init(|| {
            let parent = Path::new(env!("CARGO_TARGET_TMPDIR"));
            remove_leftovers(parent);
            let directory = parent.join(format!("preload-{}", std::process::id()));
            let driver = [
                "-O0",
                "-falign-functions=16",
                "-shared",
                "-fPIC",
                "-Wl,-Bsymbolic",
                "-Wl,-soname,libcuda.so.1",
            ];
            for (name, protection) in [("plain", "none"), ("endbr", "branch")] {
                let at = directory.join(name);
                std::fs::create_dir_all(&at).unwrap();
                let flag = format!("-fcf-protection={protection}");
                let driver = [&driver[..], &[&flag]].concat();
                compile(&at, "libcuda.c", "libcuda.so.1", &driver);
                let links = ["-L.", "-l:libcuda.so.1"];
                compile(&at, "plugin.c", "plugin.so", &[&["-O2", "-shared", "-fPIC"][..], &links].concat());
                compile(&at, "shim.c", "shim.so", &["-O2", "-shared", "-fPIC"]);
                compile(&at, "program.c", "program", &["-O1", "-w"]);
                compile(&at, "program.c", "linked", &[&["-O1", "-w", "-DLINKED"][..], &links].concat());
            }
            Built { directory }
        })
    }

    fn run(&self, case: Case, program: &str, what: &str) -> String {
        let at = self.directory.join(case.driver);
        let binary = at.join(if program == "linked" { "linked" } else { "program" });
        let mut command = Command::new(binary);
        command.arg(program).arg(at.join("plugin.so")).env("LD_LIBRARY_PATH", &at).env_remove("LD_PRELOAD");
        if what == WHERE {
            command.arg(WHERE);
        }
        let library = built::library();
        let preloaded: Vec<_> = case
            .preload
            .iter()
            .map(|name| if *name == "us" { library.clone() } else { at.join(name) })
            .map(|path| path.to_string_lossy().into_owned())
            .collect();
        if !preloaded.is_empty() {
            command.env("LD_PRELOAD", preloaded.join(":"));
        }
        if case.is_injected {
            command.env("CUDA_INJECTION64_PATH", &library);
        }
        let output = command.output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{program} {what} {case:?}: {:?}\n{errors}", output.status);
        assert!(errors.is_empty(), "{program} {what} {case:?} says on stderr: {errors}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Whose address each look-up gave: the last one where a look-up is made twice.
    fn whose(&self, case: Case, program: &str) -> BTreeMap<String, String> {
        let text = self.run(case, program, WHERE);
        let own_name = built::library().file_name().unwrap().to_string_lossy().into_owned();
        let lines = text.lines().filter_map(|line| {
            let line = line.replace(&own_name, "us");
            let patched = line.ends_with(" patched");
            let line = line.trim_end_matches(" patched").to_owned();
            let (what, object) = line.rsplit_once(' ')?;
            Some((what.to_owned(), format!("{object}{}", if patched { " patched" } else { "" })))
        });
        lines.collect()
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    driver: &'static str,
    preload: &'static [&'static str],
    is_injected: bool,
}

const NONE: Case = Case { driver: "plain", preload: &[], is_injected: false };
const PRELOADED: Case = Case { preload: &["us"], ..NONE };
const INJECTED: Case = Case { is_injected: true, ..NONE };
const BOTH: Case = Case { is_injected: true, ..PRELOADED };

/// Removes what test processes that have ended left here.
fn remove_leftovers(parent: &Path) {
    for entry in std::fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let process = name.strip_prefix("preload-").map(|number| Path::new("/proc").join(number));
        if process.is_some_and(|process| !process.exists()) {
            // Another process of this test may have been faster.
            let _ = std::fs::remove_dir_all(entry.path());
        }
    }
}

fn compile(at: &Path, source: &str, result: &str, flags: &[&str]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/preload").join(source);
    let output = Command::new("gcc")
        .current_dir(at)
        .arg("-o")
        .arg(result)
        .arg(source)
        .args(flags)
        .args(["-ldl"])
        .output()
        .unwrap();
    assert!(output.status.success(), "gcc: {}", String::from_utf8_lossy(&output.stderr));
}

/// Whatever way in is open, programs get the same results, errors and errno as without us.
#[test]
fn programs_print_the_same_with_and_without_us() {
    let built = Built::get();
    for program in ["late", "deepbind", "linked"] {
        for driver in ["plain", "endbr"] {
            let expected = built.run(Case { driver, ..NONE }, program, CALLS);
            assert!(expected.contains("100506"), "{program}: {expected}");
            for case in [PRELOADED, INJECTED, BOTH] {
                let found = built.run(Case { driver, ..case }, program, CALLS);
                assert_eq!(found, expected, "{program} {case:?} {driver}");
            }
        }
    }
}

/// Preloaded, every look-up that finds the driver's function is given ours, and nothing else is.
#[test]
fn preloaded_lookups_lead_to_us() {
    let whose = Built::get().whose(PRELOADED, "late");
    for ours in [
        "handle",
        "handle, per thread",
        "handle, graph",
        "handle, alias",
        "handle, short",
        "cuLaunchKernel",
        "cuGraphLaunch",
        "cuGraphInstantiate",
        "through the first form",
        "plugin linked",
        "plugin asked",
        "plugin default",
        "plugin's handle",
        "default, global",
        "next, global",
        "main, global",
        "found before cuInit",
    ] {
        assert_eq!(whose.get(ours).map(String::as_str), Some("us"), "{ours}: {whose:#?}");
    }
    for nobody in
        ["default, before", "next, before", "main, before", "handle, missing", "handle, missing hook"]
    {
        assert_eq!(whose.get(nobody).map(String::as_str), Some("null"), "{nobody}: {whose:#?}");
    }
    // A caller behind us asks for what comes behind itself: that is not us.
    assert_eq!(whose["plugin next"], "libcuda.so.1");
    let linked = Built::get().whose(PRELOADED, "linked");
    assert!(linked.values().all(|object| object == "us"), "{linked:#?}");
}

/// Injected, every look-up gives the driver's own address, and its entry leads to us.
#[test]
fn injected_functions_are_patched_whoever_asks() {
    for driver in ["plain", "endbr"] {
        let whose = Built::get().whose(Case { driver, ..INJECTED }, "late");
        for patched in [
            "handle",
            "handle, per thread",
            "handle, graph",
            "handle, alias",
            "cuLaunchKernel",
            "default, global",
            "found before cuInit",
        ] {
            assert_eq!(whose[patched], "libcuda.so.1 patched", "{driver} {patched}: {whose:#?}");
        }
        // Its three bytes leave no room for a jump.
        assert_eq!(whose["handle, short"], "libcuda.so.1");
    }
}

/// Both ways in are one library: what is patched is handed out as it is, what could not be patched is exchanged.
#[test]
fn patched_functions_are_not_hooked_twice() {
    let whose = Built::get().whose(BOTH, "late");
    assert_eq!(whose["found before cuInit"], "us");
    for patched in ["handle", "handle, graph", "cuLaunchKernel", "default, global"] {
        assert_eq!(whose[patched], "libcuda.so.1 patched", "{patched}: {whose:#?}");
    }
    assert_eq!(whose["handle, short"], "us");
}

/// Libraries opened with RTLD_DEEPBIND bypass preloading; they work, and injection sees them.
#[test]
fn deepbind_bypasses_preloading_and_not_injection() {
    let preloaded = Built::get().whose(PRELOADED, "deepbind");
    assert_eq!(preloaded["plugin linked"], "libcuda.so.1");
    assert_eq!(Built::get().whose(BOTH, "linked")["default, after cuInit"], "libcuda.so.1 patched");
}

/// Another preloaded tool keeps its place in the chain, before us and behind us.
#[test]
fn other_preloaded_tools_keep_working() {
    let built = Built::get();
    for program in ["late", "linked"] {
        let expected = built.run(Case { preload: &["shim.so"], ..NONE }, program, CALLS);
        for preload in [&["us", "shim.so"][..], &["shim.so", "us"]] {
            for case in [PRELOADED, BOTH] {
                let case = Case { preload, ..case };
                assert_eq!(built.run(case, program, CALLS), expected, "{program} {case:?}");
            }
        }
    }
}

/// In a process without the driver nothing happens: same output, no thread, no library loaded.
#[test]
fn processes_without_the_driver_are_left_alone() {
    let library = built::library();
    let script =
        "echo threads $(ls /proc/self/task | wc -l); cat /proc/self/maps | grep -c -e libcuda -e libcupti";
    let run = |preload: Option<&Path>| {
        let mut command = Command::new("sh");
        command.args(["-c", script]).env_remove("LD_PRELOAD");
        command.envs(preload.map(|path| ("LD_PRELOAD", path)));
        let output = command.output().unwrap();
        (output.stdout, output.stderr)
    };
    let (with, without) = (run(Some(&library)), run(None));
    assert_eq!(with, without);
    assert!(with.1.is_empty());
}
