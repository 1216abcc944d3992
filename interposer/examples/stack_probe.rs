//! Loaded into Python by tests and benches: takes stacks into a segment of its own and tells what they hold, as JSON.
//! Errors end in a panic: this is a test's half inside the interpreter.

use interposer::stack_capture::{CaptureOptions, Scratch, StackCapture};
use shared_abi::counters::Counter;
use shared_abi::dictionary::{DefinitionKind, Read, Reader, StackHead};
use shared_abi::segment::{Identity, Segment, Sizes};
use std::cell::RefCell;
use std::collections::HashMap;
use std::ffi::{CString, c_char};
use std::sync::{Mutex, OnceLock};
use std::time::Instant;
use zerocopy::{FromBytes as _, FromZeros as _};

struct Probe {
    segment: Segment,
    capture: StackCapture,
}

static PROBE: OnceLock<Probe> = OnceLock::new();
static TEXT: Mutex<Option<CString>> = Mutex::new(None);

thread_local! {
    static SCRATCH: RefCell<Box<Scratch>> = RefCell::new(Box::new(Scratch::new()));
}

fn new_segment() -> Segment {
    let sizes = Sizes { lane_count: 1, slot_count: 2, dictionary_bytes: 16 << 20 };
    let layout = std::alloc::Layout::from_size_align(sizes.segment_bytes() as usize, 4096).unwrap();
    // SAFETY: fresh zeroed memory of the right size, never freed.
    unsafe {
        let base = std::ptr::NonNull::new(std::alloc::alloc_zeroed(layout)).unwrap();
        Segment::create(base, sizes, Identity::new_zeroed())
    }
}

fn probe() -> &'static Probe {
    PROBE.get_or_init(|| {
        let segment = new_segment();
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
    let segment = new_segment();
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
    (0..times).map(|_| probe_capture()).last().unwrap_or(0)
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
    let mut reader = Reader::default();
    let (mut sites, mut stack) = (HashMap::new(), None);
    loop {
        let mut words = Vec::new();
        match reader.next(&probe().segment, |word| words.push(word)) {
            Read::Definition(definition) => {
                let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
                if definition.kind == DefinitionKind::Site as u16 {
                    sites.insert(definition.id, bytes);
                } else if definition.kind == DefinitionKind::Stack as u16 && definition.id == id {
                    stack = Some(bytes);
                }
            }
            Read::End => break,
            other => panic!("{other:?}"),
        }
    }
    let Some(stack) = stack else { return keep(String::from("null")) };
    let (head, rest) = StackHead::read_from_prefix(&stack).unwrap();
    let native_bytes = usize::from(head.native_count) * 8;
    let native: Vec<String> = rest[..native_bytes]
        .chunks(8)
        .map(|word| u64::from_le_bytes(word.try_into().unwrap()).to_string())
        .collect();
    let python: Vec<String> = rest[native_bytes..]
        .chunks(4)
        .take(head.python_count.into())
        .map(|word| python_frame(u32::from_le_bytes(word.try_into().unwrap()), &sites))
        .collect();
    keep(format!(
        "{{\"flags\": {}, \"native\": [{}], \"python\": [{}]}}",
        head.flags,
        native.join(","),
        python.join(",")
    ))
}

fn python_frame(word: u32, sites: &HashMap<u32, Vec<u8>>) -> String {
    let (site, entry) = (word & !(1 << 31), word >> 31);
    let Some(bytes) = sites.get(&site) else { return format!("[{site},{entry},0,0,\"\",\"\"]") };
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let (name_end, file_end) = (16 + number(8) as usize, 16 + number(8) as usize + number(12) as usize);
    let text = |part: &[u8]| format!("{:?}", std::str::from_utf8(part).unwrap());
    format!(
        "[{site},{entry},{},{},{},{}]",
        number(0),
        number(4),
        text(&bytes[16..name_end]),
        text(&bytes[name_end..file_end])
    )
}

fn keep(text: String) -> *const c_char {
    let text = CString::new(text).unwrap();
    let mut kept = TEXT.lock().unwrap();
    kept.insert(text).as_ptr()
}
