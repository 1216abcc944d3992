//! What a write to the ring costs the thread that launches. Nothing is ever full: the consumer drains between batches, outside
//! the time taken, as a collector on another core would. Bar: `ring-write-ns` (100 ns, then 50).

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use launchscope_benches::heap_segment::HeapSegment;
use shared_abi::record::{
    ACTIVITIES_PER_RECORD, Activity, ActivityHeader, LaunchSample, NO_GRAPH_NODE, RecordKind,
};
use shared_abi::ring::{Consumer, Popped, push};
use shared_abi::segment::{Segment, Sizes};
use std::hint::black_box;
use std::time::{Duration, Instant};
use zerocopy::{FromZeros, IntoBytes};

/// Writes between two drains; far fewer than there are slots.
const BURST: u64 = 1024;

fn sizes() -> Sizes {
    Sizes { lane_count: 2, dictionary_bytes: 4096, ..Sizes::DEFAULT }
}

fn launch_sample(number: u64) -> LaunchSample {
    LaunchSample { host_ns: number, stream: 7, stack_id: number as u32, ..LaunchSample::new_zeroed() }
}

fn activities() -> [Activity; ACTIVITIES_PER_RECORD] {
    std::array::from_fn(|index| Activity {
        start_device_ns: index as u64,
        graph_node: NO_GRAPH_NODE,
        ..Activity::new_zeroed()
    })
}

/// Time of `iterations` writes, without the drains in between.
fn time_writes(segment: &Segment, iterations: u64, mut write: impl FnMut(u64)) -> Duration {
    let mut spent = Duration::ZERO;
    let mut consumer = Consumer::new(segment);
    let mut done = 0;
    while done < iterations {
        let burst = BURST.min(iterations - done);
        let began = Instant::now();
        for number in done..done + burst {
            write(number);
        }
        spent += began.elapsed();
        for _ in 0..burst {
            assert!(matches!(consumer.pop(), Popped::Record(_)), "every write arrives");
        }
        done += burst;
    }
    spent
}

fn write_launch_sample(criterion: &mut Criterion) {
    let segment = HeapSegment::new(sizes());
    criterion.bench_function("ring_write_launch_sample_88_bytes_never_full", |bencher| {
        bencher.iter_custom(|iterations| {
            time_writes(&segment, iterations, |number| {
                let sample = black_box(launch_sample(number));
                let written = push(&*segment, RecordKind::LaunchSample as u16, number, &[sample.as_bytes()]);
                assert_eq!(black_box(written), Ok(()));
            })
        });
    });
}

fn write_activity_batch(criterion: &mut Criterion) {
    let segment = HeapSegment::new(sizes());
    let header =
        ActivityHeader { window_id: 1, count: ACTIVITIES_PER_RECORD as u32, ..ActivityHeader::new_zeroed() };
    let batch = activities();
    criterion.bench_function("ring_write_activity_batch_464_bytes_never_full", |bencher| {
        bencher.iter_custom(|iterations| {
            time_writes(&segment, iterations, |number| {
                let parts = [header.as_bytes(), black_box(&batch).as_bytes()];
                let written = push(&*segment, RecordKind::ActivityBatch as u16, number, &parts);
                assert_eq!(black_box(written), Ok(()));
            })
        });
    });
}

/// What the collector pays, for comparison: one record written and copied out.
fn write_and_read_launch_sample(criterion: &mut Criterion) {
    let segment = HeapSegment::new(sizes());
    let mut consumer = Consumer::new(&*segment);
    criterion.bench_function("ring_write_and_read_launch_sample_88_bytes", |bencher| {
        bencher.iter_batched(
            || launch_sample(1),
            |sample| {
                let written = push(&*segment, RecordKind::LaunchSample as u16, 1, &[sample.as_bytes()]);
                assert_eq!(written, Ok(()));
                consumer.pop()
            },
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(ring, write_launch_sample, write_activity_batch, write_and_read_launch_sample);
criterion_main!(ring);
