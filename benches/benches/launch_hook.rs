//! What a launch that is not sampled costs more than without us [hook-added-ns]: the same call of the same function,
//! before and after its entry is patched.

use bindings::dl::Library;
use core::hint::black_box;
use criterion::{Criterion, criterion_group, criterion_main};
use launchscope_benches::fake_driver::{GraphLaunch, arm, graph, graph_launch, load};
use std::time::Instant;

/// CUPTI off and hardly a sample: the hook alone.
const UNSAMPLED: [(&str, &str); 3] = [
    ("LAUNCHSCOPE_CUPTI", "off"),
    ("LAUNCHSCOPE_GRAPH_SAMPLING_TARGET", "0.001"),
    ("LAUNCHSCOPE_SOCKET", "@launchscope-nobody-listens"),
];

fn launches(criterion: &mut Criterion) {
    let driver = load();
    let launch = graph_launch(&driver);
    let mut group = criterion.benchmark_group("launch_hook");
    group.bench_function("launch_without_us", |bencher| bencher.iter(|| call(launch)));
    let bare_ns = nanoseconds_a_launch(&driver);
    arm(&UNSAMPLED);
    // The first launches are sampled and teach the sampler the rate.
    nanoseconds_a_launch(&driver);
    group.bench_function("launch_unsampled", |bencher| bencher.iter(|| call(launch)));
    group.finish();
    let hooked_ns = nanoseconds_a_launch(&driver);
    println!("hook-added-ns {:.1} (bare {bare_ns:.1}, hooked {hooked_ns:.1})", hooked_ns - bare_ns);
}

fn call(launch: GraphLaunch) -> i32 {
    // SAFETY: the fake driver takes any arguments.
    unsafe { launch(black_box(graph()), black_box(core::ptr::null_mut())) }
}

/// Median over rounds of a million launches.
fn nanoseconds_a_launch(driver: &Library) -> f64 {
    const LAUNCHES: u32 = 1_000_000;
    let launch = graph_launch(driver);
    let mut rounds: Vec<f64> = (0..9)
        .map(|_| {
            let began = Instant::now();
            for _ in 0..LAUNCHES {
                call(launch);
            }
            began.elapsed().as_nanos() as f64 / f64::from(LAUNCHES)
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

criterion_group!(benches, launches);
criterion_main!(benches);
