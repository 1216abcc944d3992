//! Stack capture, warm: what a sampled launch pays for its stack. The mixed case (Python) is `python_stack.py`.

use criterion::{Criterion, criterion_group, criterion_main};
use interposer::stack_capture::{Scratch, StackCapture};
use shared_abi::segment::{Identity, Segment, Sizes};
use std::hint::black_box;
use zerocopy::FromZeros as _;

fn new_segment() -> Segment {
    let sizes = Sizes { lane_count: 1, slot_count: 2, dictionary_bytes: 16 << 20 };
    let layout = std::alloc::Layout::from_size_align(sizes.segment_bytes() as usize, 4096);
    // SAFETY: fresh zeroed memory of the right size and alignment, never freed.
    unsafe {
        let base = std::ptr::NonNull::new(std::alloc::alloc_zeroed(
            layout.unwrap_or_else(|error| panic!("{error}")),
        ));
        Segment::create(base.unwrap_or_else(|| panic!("out of memory")), sizes, Identity::new_zeroed())
    }
}

#[inline(never)]
fn at_depth(depth: u32, run: &mut dyn FnMut()) -> u32 {
    if depth == 0 {
        run();
        return 0;
    }
    black_box(at_depth(black_box(depth - 1), run)) + 1
}

/// 40 frames in all: 10 of the bench harness up to the recursion, 26 of recursion, 4 of criterion's loop and ours.
const DEPTH: u32 = 26;

/// What most sampled launches pay.
fn native_40_frames_warm(criterion: &mut Criterion) {
    let capture = StackCapture::new(new_segment());
    let mut scratch = Box::new(Scratch::new());
    at_depth(DEPTH, &mut || {
        criterion.bench_function("native_40_frames_warm", |bencher| {
            bencher.iter(|| black_box(capture.capture(&mut scratch)));
        });
    });
}

/// The first sample of a process, or after a dlclose: 16 rules read anew, then cut.
fn native_cold(criterion: &mut Criterion) {
    let mut scratch = Box::new(Scratch::new());
    let segment = new_segment();
    at_depth(DEPTH, &mut || {
        criterion.bench_function("native_cold", |bencher| {
            bencher.iter_batched_ref(
                || StackCapture::new(segment),
                |capture| black_box(capture.capture(&mut scratch)),
                criterion::BatchSize::PerIteration,
            );
        });
    });
}

criterion_group!(benches, native_40_frames_warm, native_cold);
criterion_main!(benches);
