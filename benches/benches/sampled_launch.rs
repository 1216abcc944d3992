//! What a sampled launch costs, warm, under a stack of 20 Python and about as many native frames [sampled-launch-us].
//!
//! Python is loaded as a library; a function of 20 levels calls back into this bench through ctypes, so that every launch
//! is made where an engine makes it: below the interpreter.

use bindings::dl::Library;
use core::ffi::{CStr, c_char, c_int, c_void};
use core::hint::black_box;
use criterion::Criterion;
use launchscope_benches::fake_driver::{GraphLaunch, arm, graph, graph_launch, load};
use shared_abi::ring::{Consumer, Popped};
use std::cell::RefCell;
use std::ffi::CString;
use std::process::Command;
use std::time::{Duration, Instant};

/// Every launch is sampled.
const SAMPLED: [(&str, &str); 3] = [
    ("LAUNCHSCOPE_CUPTI", "off"),
    ("LAUNCHSCOPE_GRAPH_SAMPLING_TARGET", "1000000000"),
    ("LAUNCHSCOPE_SOCKET", "@launchscope-nobody-listens"),
];
/// Launches between two drains of the ring, which are not timed.
const BATCH: u64 = 4096;

thread_local! {
    static BENCH: RefCell<Option<(Criterion, GraphLaunch)>> = const { RefCell::new(None) };
}

fn main() {
    let Some(python) = python_library() else {
        println!("skipped: no python3 with a shared libpython on this machine");
        return;
    };
    let launch = graph_launch(&load());
    arm(&SAMPLED);
    // The library finds Python within 100 ms of its loading.
    std::thread::sleep(Duration::from_millis(300));
    BENCH.set(Some((Criterion::default().configure_from_args(), launch)));
    let program = format!(
        "import ctypes\n\
         call = ctypes.CFUNCTYPE(None)({})\n\
         def level(n):\n    call() if n == 1 else level(n - 1)\n\
         level(19)\n",
        measure as *const () as usize
    );
    run_python(&python, &program);
}

/// Called from Python, 20 frames deep.
extern "C" fn measure() {
    let Some((mut criterion, launch)) = BENCH.take() else { return };
    // Warm: rules, sites, and the first stacks, which are read with care.
    timed(launch, 4096);
    let mut group = criterion.benchmark_group("sampled_launch");
    group.bench_function("mixed_stack_warm", |bencher| {
        bencher.iter_custom(|launches| timed(launch, launches))
    });
    group.finish();
    let mut rounds: Vec<f64> =
        (0..21).map(|_| timed(launch, BATCH).as_nanos() as f64 / BATCH as f64 / 1000.0).collect();
    rounds.sort_by(f64::total_cmp);
    println!("sampled-launch-us {:.3}", rounds[rounds.len() / 2]);
    let profiler = interposer::lifecycle::active().expect("still armed");
    println!("python {:?} {:?}", profiler.stacks.python_version(), profiler.stacks.python_refusal());
    criterion.final_summary();
}

fn timed(launch: GraphLaunch, launches: u64) -> Duration {
    let profiler = interposer::lifecycle::active().expect("armed");
    let mut total = Duration::ZERO;
    let mut left = launches;
    while left > 0 {
        let batch = left.min(BATCH);
        let began = Instant::now();
        for _ in 0..batch {
            // SAFETY: the fake driver takes any arguments.
            unsafe { launch(black_box(graph()), black_box(core::ptr::null_mut())) };
        }
        total += began.elapsed();
        left -= batch;
        let mut consumer = Consumer::new(&profiler.segment);
        while !matches!(consumer.pop(), Popped::Empty { .. }) {}
    }
    total
}

/// libpython of the `python3` on the PATH, into the global scope, as the interpreter itself would have it.
fn python_library() -> Option<Library> {
    let script = "import sysconfig,os;print(os.path.join(sysconfig.get_config_var('LIBDIR'),sysconfig.get_config_var('INSTSONAME')))";
    let output = Command::new("python3").args(["-c", script]).output().ok()?;
    let path = CString::new(String::from_utf8(output.stdout).ok()?.trim()).ok()?;
    // SAFETY: loads the interpreter, whose constructors do nothing.
    unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_GLOBAL) };
    Library::already_loaded(&path)
}

fn run_python(python: &Library, program: &str) {
    let find = |name: &CStr| python.symbol(name).expect("a function of CPython").as_ptr();
    // SAFETY: CPython's functions, with the signatures of its headers.
    unsafe {
        let initialize = core::mem::transmute::<*mut c_void, unsafe extern "C" fn()>(find(c"Py_Initialize"));
        let run = core::mem::transmute::<
            *mut c_void,
            unsafe extern "C" fn(*const c_char, *mut c_void) -> c_int,
        >(find(c"PyRun_SimpleStringFlags"));
        initialize();
        let program = CString::new(program).expect("a program without NUL");
        assert_eq!(run(program.as_ptr(), core::ptr::null_mut()), 0, "the Python program failed");
    }
}
