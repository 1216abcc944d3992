//! Native stacks against glibc's `backtrace()`, through recursion, C callbacks, realigned frames, foreign stacks
//! and libraries that come and go.

mod support;

use interposer::stack_capture::{CaptureOptions, MAX_MISSES, MAX_NATIVE_FRAMES, Scratch, StackCapture};
use shared_abi::counters::Counter;
use shared_abi::dictionary::STACK_NATIVE_TRUNCATED;
use shared_abi::segment::Segment;
use shared_abi::sync::Ordering;
use std::cell::RefCell;
use std::ffi::c_void;
use std::hint::black_box;
use support::{CLibrary, SegmentContents, Stack, new_segment};

/// Takes stacks on the thread that made it, and keeps the last of ours and of glibc's.
struct Taker {
    segment: Segment,
    capture: StackCapture,
    scratch: Box<Scratch>,
    samples: u32,
    ids: Vec<u32>,
    glibc: Vec<u64>,
}

impl Taker {
    fn new(options: CaptureOptions) -> Self {
        let segment = new_segment(1 << 20);
        let capture = StackCapture::with_options(segment, options);
        Self {
            segment,
            capture,
            scratch: Box::new(Scratch::new()),
            samples: 40,
            ids: Vec::new(),
            glibc: Vec::new(),
        }
    }

    #[inline(never)]
    fn take(&mut self) {
        self.ids = (0..self.samples).map(|_| self.capture.capture(&mut self.scratch)).collect();
        let mut addresses = [std::ptr::null_mut::<c_void>(); 512];
        // SAFETY: room for as many addresses as are said.
        let count = unsafe { libc::backtrace(addresses.as_mut_ptr(), addresses.len() as i32) };
        self.glibc = addresses[..count as usize].iter().map(|address| *address as u64).collect();
    }

    fn stack(&self, id: u32) -> Stack {
        SegmentContents::read(&self.segment).stack(id).unwrap()
    }

    /// All of glibc's frames from the caller of `take` on are the outermost of ours; our own innermost ones differ.
    fn assert_equals_glibc(&self) {
        let stack = self.stack(*self.ids.last().unwrap());
        assert_eq!(stack.flags, 0);
        assert!(
            stack.native.ends_with(&self.glibc[1..]),
            "ours {:x?}\nglibc {:x?}",
            stack.native,
            self.glibc
        );
    }
}

thread_local! {
    static TAKER: RefCell<Option<Taker>> = const { RefCell::new(None) };
}

fn take_here() {
    TAKER.with_borrow_mut(|taker| taker.as_mut().unwrap().take());
}

fn with_taker(options: CaptureOptions, run: impl FnOnce()) -> Taker {
    TAKER.set(Some(Taker::new(options)));
    run();
    TAKER.take().unwrap()
}

#[inline(never)]
fn recurse(depth: u32) -> u32 {
    if depth == 0 {
        take_here();
        return 0;
    }
    black_box(recurse(black_box(depth - 1)) + 1)
}

thread_local! {
    static DEPTH: RefCell<u32> = const { RefCell::new(0) };
}

/// Recursion through C: each level sorts two numbers, and the comparison goes one level deeper.
#[inline(never)]
fn recurse_through_qsort(depth: u32) {
    extern "C" fn compare(_: *const c_void, _: *const c_void) -> i32 {
        let depth = DEPTH.with_borrow(|depth| *depth);
        if depth == 0 {
            take_here()
        } else {
            recurse_through_qsort(depth)
        }
        0
    }
    DEPTH.set(depth - 1);
    let mut numbers = [2u64, 1];
    // SAFETY: two numbers of eight bytes.
    unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 2, 8, Some(compare)) };
    black_box(numbers);
}

/// Check plain Rust recursion.
#[test]
fn recursion_equals_glibc() {
    with_taker(CaptureOptions::DEFAULT, || assert_eq!(recurse(40), 40)).assert_equals_glibc();
}

/// Check recursion through C's qsort, in a thread of its own.
#[test]
fn recursion_through_c_callbacks_equals_glibc() {
    let run = || with_taker(CaptureOptions::DEFAULT, || recurse_through_qsort(12)).assert_equals_glibc();
    run();
    std::thread::spawn(run).join().unwrap();
}

/// Check that the list of images that serves older glibc gives the same stacks.
#[test]
fn own_image_list_equals_glibc() {
    let options = CaptureOptions { without_dl_find_object: true, ..CaptureOptions::DEFAULT };
    with_taker(options, || recurse_through_qsort(12)).assert_equals_glibc();
}

/// Check that a cold stack is cut after so many new rules, still has an id, and becomes whole with later samples.
#[test]
fn cold_stack_warms_up_over_samples() {
    // 60 functions, each with a return address of its own.
    let function =
        |n: u32| format!("void f{n}(void (*call)(void)) {{ f{}(call); __asm__ volatile(\"\"); }}\n", n - 1);
    let source = format!(
        "void f0(void (*call)(void)) {{ call(); __asm__ volatile(\"\"); }}\n{}",
        (1..60).map(function).collect::<String>()
    );
    let options = ["-fno-inline", "-fno-ipa-icf", "-fno-optimize-sibling-calls"];
    let Some(path) = CLibrary::build("chain", &source, &options) else { return };
    let library = CLibrary::load(path);
    // SAFETY: the function has this signature.
    let outermost =
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(extern "C" fn())>(library.symbol(c"f59")) };
    extern "C" fn call() {
        take_here();
    }
    let taker = with_taker(CaptureOptions::DEFAULT, || outermost(call));
    taker.assert_equals_glibc();
    let first = taker.stack(taker.ids[0]);
    assert_eq!(first.flags, STACK_NATIVE_TRUNCATED);
    assert!(first.native.len() >= MAX_MISSES as usize);
    let whole = taker.ids.iter().position(|id| taker.stack(*id).flags == 0).unwrap();
    assert!((3..10).contains(&whole), "{whole} samples");
    assert!(taker.ids[whole..].windows(2).all(|pair| pair[0] == pair[1]));
    let truncated = taker.segment.counter(Counter::NativeTruncated as usize).load(Ordering::Relaxed);
    assert_eq!(truncated, whole as u64);
}

/// Check that a stack that is too deep is cut at its outer end and says so.
#[test]
fn deep_stack_is_cut_and_says_so() {
    let taker = with_taker(CaptureOptions::DEFAULT, || assert_eq!(recurse(300), 300));
    let stack = taker.stack(*taker.ids.last().unwrap());
    assert_eq!(stack.native.len(), MAX_NATIVE_FRAMES);
    assert_eq!(stack.flags, STACK_NATIVE_TRUNCATED);
    assert!(
        taker.glibc[1..].starts_with(&stack.native[stack.native.len() - 90..])
            || taker.glibc.windows(90).any(|part| part == &stack.native[38..])
    );
}

/// Check functions that realign their stack, whose frame address is stored in the frame.
#[test]
fn realigned_frames_equal_glibc() {
    let source = "
        #include <immintrin.h>
        #include <alloca.h>
        #include <string.h>
        __attribute__((noinline, target(\"avx2\"))) void realigned(void (*call)(void), int n, __m256i *out) {
            __m256i local[4];
            char *more = alloca(n);
            memset(more, n, n);
            memset(local, more[0], sizeof local);
            call();
            *out = local[n & 3];
        }
        void outer(void (*call)(void), int n) { __m256i out[1]; realigned(call, n, out); __asm__ volatile(\"\" :: \"r\"(out)); }";
    let Some(path) = CLibrary::build("realigned", source, &["-mavx2", "-fomit-frame-pointer"]) else {
        return;
    };
    if !std::is_x86_feature_detected!("avx2") {
        return println!("skipped: no AVX2");
    }
    let library = CLibrary::load(path);
    // SAFETY: the function has this signature.
    let outer = unsafe {
        std::mem::transmute::<*mut c_void, extern "C" fn(extern "C" fn(), i32)>(library.symbol(c"outer"))
    };
    extern "C" fn call() {
        take_here();
    }
    with_taker(CaptureOptions::DEFAULT, || outer(call, 33)).assert_equals_glibc();
}

/// Check that rules of an unloaded library are forgotten: another one at its addresses unwinds by its own rules.
#[test]
fn unloaded_library_leaves_no_rules() {
    let source = |bytes: u32| {
        format!(
            "void outer(void (*call)(void)) {{ volatile char room[{bytes}]; room[0] = 1; call(); room[1] = room[0]; }}"
        )
    };
    extern "C" fn call() {
        take_here();
    }
    TAKER.set(Some(Taker::new(CaptureOptions::DEFAULT)));
    let mut addresses = Vec::new();
    for (name, bytes) in [("small", 40), ("large", 400)] {
        let Some(path) = CLibrary::build(name, &source(bytes), &[]) else { return };
        let library = CLibrary::load(path);
        let outer = library.symbol(c"outer");
        addresses.push(outer);
        // SAFETY: the function has this signature.
        unsafe { std::mem::transmute::<*mut c_void, extern "C" fn(extern "C" fn())>(outer)(call) };
        TAKER.with_borrow(|taker| taker.as_ref().unwrap().assert_equals_glibc());
        library.unload();
        TAKER.with_borrow(|taker| taker.as_ref().unwrap().capture.refresh());
    }
    println!("loaded at the same address: {}", addresses[0] == addresses[1]);
}

/// Check that a stack that is not the thread's own (a coroutine's) is read from a copy, to its outermost frame.
#[test]
fn coroutine_stack_is_walked() {
    extern "C" fn body() {
        recurse(5);
    }
    let mut stack = vec![0u8; 256 * 1024];
    let taker = with_taker(CaptureOptions::DEFAULT, || {
        // SAFETY: the contexts are initialized by getcontext before use, and `stack` outlives the coroutine.
        unsafe {
            let (mut main, mut coroutine) = (std::mem::zeroed::<libc::ucontext_t>(), std::mem::zeroed());
            assert_eq!(libc::getcontext(&mut coroutine), 0);
            coroutine.uc_stack.ss_sp = stack.as_mut_ptr().cast();
            coroutine.uc_stack.ss_size = stack.len();
            coroutine.uc_link = &mut main;
            libc::makecontext(&mut coroutine, body, 0);
            assert_eq!(libc::swapcontext(&mut main, &coroutine), 0);
        }
    });
    let stack = taker.stack(*taker.ids.last().unwrap());
    let common = taker.glibc[1..].iter().filter(|address| stack.native.contains(address)).count();
    assert!(common >= 7, "ours {:x?}\nglibc {:x?}", stack.native, taker.glibc);
}

/// Check that a launch from a signal handler, on the thread's stack or an alternate one, is survived.
#[test]
fn signal_handler_is_survived() {
    extern "C" fn handler(_: i32) {
        recurse(3);
    }
    for on_alternate_stack in [false, true] {
        let mut alternate = vec![0u8; 256 * 1024];
        let taker = with_taker(CaptureOptions::DEFAULT, || {
            // SAFETY: the alternate stack outlives its use; SIGUSR1 is sent to this thread only.
            unsafe {
                let stack = libc::stack_t {
                    ss_sp: alternate.as_mut_ptr().cast(),
                    ss_flags: if on_alternate_stack { 0 } else { libc::SS_DISABLE },
                    ss_size: alternate.len(),
                };
                assert_eq!(libc::sigaltstack(&stack, std::ptr::null_mut()), 0);
                let mut action: libc::sigaction = std::mem::zeroed();
                action.sa_sigaction = handler as *const () as usize;
                action.sa_flags = libc::SA_ONSTACK;
                assert_eq!(libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()), 0);
                libc::raise(libc::SIGUSR1);
                let off = libc::stack_t { ss_flags: libc::SS_DISABLE, ..stack };
                libc::sigaltstack(&off, std::ptr::null_mut());
            }
        });
        let stack = taker.stack(*taker.ids.last().unwrap());
        assert!(stack.native.len() >= 5, "{:x?}", stack.native);
    }
}

/// Check that a full dictionary is counted and gives no id.
#[test]
fn full_dictionary_gives_no_id() {
    let segment = new_segment(4096);
    let capture = StackCapture::new(segment);
    let mut scratch = Box::new(Scratch::new());
    fn at_depth(depth: u32, capture: &StackCapture, scratch: &mut Scratch) -> u32 {
        if depth == 0 {
            capture.capture(scratch)
        } else {
            black_box(at_depth(black_box(depth - 1), capture, scratch))
        }
    }
    let last = (0..60).map(|depth| at_depth(depth, &capture, &mut scratch)).last();
    assert_eq!(last, Some(0));
    assert!(segment.counter(Counter::DictionaryDropped as usize).load(Ordering::Relaxed) > 0);
}

/// Check that threads that take the same stacks at once agree, and that ids stay few.
#[test]
fn threads_share_ids() {
    let segment = new_segment(1 << 20);
    let capture = StackCapture::new(segment);
    let run = || {
        let mut scratch = Box::new(Scratch::new());
        (0..200).map(|_| capture.capture(&mut scratch)).last().unwrap()
    };
    let ids: Vec<u32> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert!(ids.windows(2).all(|pair| pair[0] == pair[1]), "{ids:?}");
    assert_eq!(SegmentContents::read(&segment).stack(ids[0]).unwrap().flags, 0);
    assert_eq!(capture.python_refusal(), None);
    assert_eq!(capture.python_version(), None);
}
