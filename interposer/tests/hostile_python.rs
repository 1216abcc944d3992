//! A process that exports CPython's names but whose objects are not CPython's: stacks are refused by name, nothing
//! crashes, and native frames go on. One test, because the names are global to the process.

mod support;

use interposer::stack_capture::{PythonRefusal, SanityCheck, Scratch, StackCapture};
use shared_abi::counters::Counter;
use shared_abi::sync::Ordering;
use std::ffi::c_void;
use support::{CLibrary, SegmentContents, new_segment};

/// A thread state whose frame pointer is what the test sets, under the name and version of 3.12.
const SOURCE: &str = "
    unsigned Py_Version = 0x030c01f0;
    unsigned long PyCode_Type[64], PyUnicode_Type[64], PyBytes_Type[64];
    static void *cframe[1], *state[32];
    static unsigned long frame[16], code[64];
    void *PyGILState_GetThisThreadState(void) { return state; }
    void set_frame(unsigned long at) { state[7] = cframe; cframe[0] = (void *) at; }
    void set_code(int good_type) {
        frame[0] = (unsigned long) code; frame[7] = (unsigned long) code + 192;
        code[1] = good_type ? (unsigned long) PyCode_Type : 7;
        code[14] = code[15] = code[16] = code[17] = (unsigned long) code;
        set_frame((unsigned long) frame);
    }";

/// Check that a wild pointer, a frame without code, and code without a str are each refused by their name.
#[test]
fn what_is_not_cpython_is_refused_by_name() {
    let Some(path) = CLibrary::build("hostile", SOURCE, &[]) else { return };
    let library = CLibrary::load_globally(path);
    // SAFETY: the functions have these signatures.
    let (set_frame, set_code) = unsafe {
        (
            std::mem::transmute::<*mut c_void, extern "C" fn(u64)>(library.symbol(c"set_frame")),
            std::mem::transmute::<*mut c_void, extern "C" fn(i32)>(library.symbol(c"set_code")),
        )
    };
    let cases: [(SanityCheck, &dyn Fn()); 5] = [
        (SanityCheck::Unreadable, &|| set_frame(0x10)),
        (SanityCheck::Unreadable, &|| set_frame(0x7fff_dead_0000_0000)),
        (SanityCheck::Unreadable, &|| set_frame(u64::MAX - 15)),
        (SanityCheck::NotCode, &|| set_code(0)),
        (SanityCheck::NotAStr, &|| set_code(1)),
    ];
    for (check, prepare) in cases {
        prepare();
        let segment = new_segment(1 << 20);
        let capture = StackCapture::new(segment);
        assert_eq!(capture.python_version(), Some((3, 12, 1)));
        let mut scratch = Box::new(Scratch::new());
        let id = (0..100).map(|_| capture.capture(&mut scratch)).last().unwrap();
        assert_eq!(capture.python_refusal(), Some(PythonRefusal::SanityCheckFailed(check)));
        assert_eq!(segment.counter(Counter::PythonRefused as usize).load(Ordering::Relaxed), 1);
        let stack = SegmentContents::read(&segment).stack(id).unwrap();
        assert!(stack.native.len() > 5 && stack.python.is_empty());
    }
}
