//! A fast process loses nothing. LAUNCHSCOPE_TEST_RATE (default 20,000) is the number of records a second; the design
//! asks for 100,000 in a release build.

mod support;

use launchscope::pipeline::Pipeline;
use shared_abi::record::{LaunchKind, RecordKind};
use shared_abi::ring::push;
use std::time::{Duration, Instant};
use support::{Producer, fresh_socket, kernel, launch_in_window, ledger, profile_of, settle};
use zerocopy::IntoBytes;

fn thread_cpu() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the duration of the call.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Launches and activities at a steady rate, read every 5 ms out of a ring of 4,096 slots.
#[test]
fn steady_rate_loses_nothing() {
    let rate: u32 =
        std::env::var("LAUNCHSCOPE_TEST_RATE").ok().and_then(|text| text.parse().ok()).unwrap_or(20_000);
    let socket = fresh_socket();
    let mut pipeline = Pipeline::listen(&socket, None).expect("a fresh socket");
    let producer = Producer::connect(&socket);
    settle(&mut pipeline);
    let segment = producer.segment;
    let seconds = 2;
    let writer = std::thread::spawn(move || {
        let (started, mut dropped) = (Instant::now(), 0u32);
        for index in 0..rate * seconds {
            let due = started + Duration::from_secs(1) * index / rate;
            while Instant::now() < due {
                std::thread::sleep(Duration::from_micros(100));
            }
            let pair = index / 2 + 1;
            let pushed = if index % 2 == 0 {
                let launch = launch_in_window(LaunchKind::Kernel, pair % 50, pair);
                push(&segment, RecordKind::LaunchSample as u16, 1, &[launch.as_bytes()])
            } else {
                let header = shared_abi::record::ActivityHeader { window_id: 1, count: 1, reserved: 0 };
                let activity = kernel(pair, pair % 20, 1000);
                push(&segment, RecordKind::ActivityBatch as u16, 1, &[header.as_bytes(), activity.as_bytes()])
            };
            dropped += u32::from(pushed.is_err());
        }
        dropped
    });
    let before = thread_cpu();
    while !writer.is_finished() {
        pipeline.poll();
        std::thread::sleep(Duration::from_millis(5));
    }
    let cpu = thread_cpu() - before;
    let dropped = writer.join().expect("the writer ends");
    drop(producer);
    settle(&mut pipeline);
    let profile = profile_of(&mut pipeline);
    let share = cpu.as_secs_f64() / f64::from(seconds) * 100.0;
    eprintln!("{rate} records a second: {dropped} dropped, collector {share:.2} % of a core");
    assert_eq!(ledger(&profile, "records_drained") + u64::from(dropped), u64::from(rate * seconds));
    assert_eq!(ledger(&profile, "orphaned"), 0);
    assert!(dropped < rate / 20, "{dropped} dropped");
}
