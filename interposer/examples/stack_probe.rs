//! Loaded into Python by tests and benches: takes stacks into a segment of its own and tells what they hold, as JSON.
//! Errors end in a panic: this is a test's half inside the interpreter.

use interposer::stack_capture::{CaptureOptions, Scratch, StackCapture};
use shared_abi::counters::Counter;
use shared_abi::dictionary::PYTHON_ENTRY_FRAME;
use shared_abi::segment::Segment;
use std::cell::RefCell;
use std::ffi::{CString, c_char};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;

#[path = "../tests/support/mod.rs"]
mod support;
use support::{SegmentContents, new_segment};

struct Probe {
    segment: Segment,
    capture: StackCapture,
}

static PROBE: OnceLock<Probe> = OnceLock::new();
static TEXT: Mutex<Option<CString>> = Mutex::new(None);

thread_local! {
    static SCRATCH: RefCell<Box<Scratch>> = RefCell::new(Box::new(Scratch::new()));
}

fn probe() -> &'static Probe {
    PROBE.get_or_init(|| {
        let segment = new_segment(16 << 20);
        Probe { segment, capture: StackCapture::new(segment) }
    })
}

/// Begins; zero sizes mean the usual ones.
#[unsafe(no_mangle)]
pub extern "C" fn probe_arm(site_slots: usize, stack_slots: usize) {
    let mut options = CaptureOptions::DEFAULT;
    if site_slots > 0 {
        (options.site_slots, options.stack_slots) = (site_slots, stack_slots);
    }
    let segment = new_segment(16 << 20);
    let probe = Probe { segment, capture: StackCapture::with_options(segment, options) };
    assert!(PROBE.set(probe).is_ok());
}

/// Takes the calling thread's stack.
#[unsafe(no_mangle)]
pub extern "C" fn probe_capture() -> u32 {
    SCRATCH.with_borrow_mut(|scratch| probe().capture.capture(scratch))
}

/// Takes it several times, and returns the last.
#[unsafe(no_mangle)]
pub extern "C" fn probe_capture_often(times: u32) -> u32 {
    (0..times).fold(0, |_, _| probe_capture())
}

/// In a forked child: takes stacks where every system call but read, write and exit kills the process.
#[unsafe(no_mangle)]
pub extern "C" fn probe_capture_without_syscalls(times: u32) {
    SCRATCH.with_borrow_mut(|scratch| {
        // SAFETY: the filter ends with the process, which ends here.
        unsafe { libc::prctl(libc::PR_SET_SECCOMP, 1) };
        let taken = (0..times).filter(|_| probe().capture.capture(scratch) != 0).count();
        // SAFETY: exit of this thread, the only one: _exit would call exit_group, which is not allowed.
        unsafe { libc::syscall(libc::SYS_exit, if taken == times as usize { 0 } else { 1 }) };
    });
}

/// Takes it again and again, and returns the smallest mean in nanoseconds of `rounds` rounds.
#[unsafe(no_mangle)]
pub extern "C" fn probe_time(rounds: u32, each: u32) -> f64 {
    SCRATCH.with_borrow_mut(|scratch| {
        let round = || {
            let start = Instant::now();
            for _ in 0..each {
                std::hint::black_box(probe().capture.capture(scratch));
            }
            start.elapsed().as_nanos() as f64 / f64::from(each)
        };
        std::iter::repeat_with(round).take(rounds as usize).fold(f64::INFINITY, f64::min)
    })
}

/// As the helper thread does.
#[unsafe(no_mangle)]
pub extern "C" fn probe_refresh() {
    probe().capture.refresh();
}

/// Value of a process counter.
///
/// # Safety
/// `name` is a C string.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn probe_counter(name: *const c_char) -> u64 {
    // SAFETY: the caller passes a C string.
    let name = unsafe { std::ffi::CStr::from_ptr(name) }.to_str().unwrap();
    let counter = Counter::ALL.iter().find(|counter| counter.name() == name).unwrap();
    probe().segment.counter(*counter as usize).load(shared_abi::sync::Ordering::Relaxed)
}

/// Why Python is refused, or an empty text; valid until the next call.
#[unsafe(no_mangle)]
pub extern "C" fn probe_refusal() -> *const c_char {
    keep(probe().capture.python_refusal().map_or_else(String::new, |refusal| refusal.to_string()))
}

/// What a stack holds, as JSON: `{"flags", "native": [..], "python": [[site, entry, line, first, name, file]..]}`.
#[unsafe(no_mangle)]
pub extern "C" fn probe_stack(id: u32) -> *const c_char {
    let contents = SegmentContents::read(&probe().segment);
    let Some(stack) = contents.stack(id) else { return keep(String::from("null")) };
    let native: Vec<String> = stack.native.iter().map(u64::to_string).collect();
    let python: Vec<String> = stack.python.iter().map(|word| python_frame(*word, &contents)).collect();
    keep(format!(
        "{{\"flags\": {}, \"native\": [{}], \"python\": [{}]}}",
        stack.flags,
        native.join(","),
        python.join(",")
    ))
}

fn python_frame(word: u32, contents: &SegmentContents) -> String {
    let (site, entry) = (word & !PYTHON_ENTRY_FRAME, word >> 31);
    let Some(text) = contents.site(site) else { return format!("[{site},{entry},0,0,\"\",\"\"]") };
    format!("[{site},{entry},{},{},{:?},{:?}]", text.line, text.first_line, text.name, text.file)
}

fn keep(text: String) -> *const c_char {
    let text = CString::new(text).unwrap();
    let mut kept = TEXT.lock().unwrap();
    kept.insert(text).as_ptr()
}
