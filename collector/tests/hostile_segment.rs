//! A hostile process writes what it likes: no panic, no hang, no growth without bound. LAUNCHSCOPE_FUZZ_SECONDS
//! (default 5) says for how long each test tries.

mod support;

use launchscope::aggregate::Aggregator;
use launchscope::aggregate::build::ProcessSums;
use launchscope::aggregate::profile::ProfileMeta;
use launchscope::correlate::Correlator;
use launchscope::drain::{Fuzzed, fuzz_entry};
use launchscope::model::counts::EngineCounts;
use launchscope::model::images::ImageFiles;
use launchscope::pipeline::{Pipeline, ProfileBuilder};
use proptest::prelude::*;
use shared_abi::segment::LiveWord;
use shared_abi::sync::Ordering;
use std::time::{Duration, Instant};
use support::{Producer, fresh_socket, ledger, profile_of, settle};

/// The whole way: drain, correlation, aggregation, symbols, profile.
fn whole_way(bytes: &[u8]) -> usize {
    let Fuzzed { definitions, samples, mut counts } = fuzz_entry(bytes);
    let (mut correlator, mut aggregator) = (Correlator::default(), Aggregator::default());
    let mut correlated = Vec::new();
    for sample in &samples {
        correlator.take(sample, &mut counts, &mut |sample| correlated.push(sample));
    }
    correlator.finish(&mut counts, &mut |sample| correlated.push(sample));
    for sample in &correlated {
        aggregator.add(sample, &definitions, &mut counts);
    }
    let sums = ProcessSums {
        session: 1,
        process_id: 1,
        definitions: definitions.into(),
        rows: aggregator.take_rows(),
        engine: EngineCounts::default(),
        own: counts,
        statuses: Vec::new(),
    };
    let profile = ProfileBuilder::default().build(&[sums], &ImageFiles::default(), ProfileMeta::default());
    assert!(profile.stacks.iter().all(|stack| stack.weights.gpu_time_ns.is_finite()));
    let joined = ledger(&profile, "joined") + ledger(&profile, "orphaned") + ledger(&profile, "invalid_time");
    assert_eq!(joined, ledger(&profile, "activities"), "every activity is joined, orphaned or invalid");
    samples.len()
}

/// A small generator: the tests are repeatable by their seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.next() as u8).collect()
    }
}

fn time_to_try() -> Duration {
    let seconds = std::env::var("LAUNCHSCOPE_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    Duration::from_secs(seconds.unwrap_or(5))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes are survived.
    #[test]
    fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..20_000)) {
        whole_way(&bytes);
    }

    /// Records and definitions with sound checksums and the sizes that decoders expect, but random contents.
    #[test]
    fn well_formed_nonsense_is_survived(
        items in proptest::collection::vec((any::<u8>(), 0u8..4, proptest::sample::select(vec![8u8, 16, 80, 88, 144, 255])), 0..40),
        seed in 1u64..u64::MAX,
    ) {
        let mut random = Random(seed);
        let mut bytes = vec![2];
        for (kind, id, length) in items {
            bytes.extend([kind, id, length]);
            // Small numbers: ids meet, counts fit.
            bytes.extend((0..length).map(|_| if random.next().is_multiple_of(3) { random.next() as u8 % 4 } else { 0 }));
        }
        whole_way(&bytes);
    }
}

/// Random inputs for as long as there is time.
#[test]
fn random_segments_are_survived() {
    let (started, mut random, mut samples) = (Instant::now(), Random(0x5eed), 0);
    let mut slowest = Duration::ZERO;
    while started.elapsed() < time_to_try() {
        let length = (random.next() % 30_000) as usize;
        let mut bytes = random.bytes(length.max(1));
        bytes[0] = random.next() as u8 % 3;
        if bytes[0] == 2 {
            // Thin out: mostly zeros makes more records whole.
            bytes[1..]
                .iter_mut()
                .for_each(|byte| *byte = if random.next().is_multiple_of(4) { *byte % 100 } else { 0 });
        }
        let one = Instant::now();
        samples += whole_way(&bytes);
        slowest = slowest.max(one.elapsed());
    }
    assert!(samples > 0, "the inputs reach the decoders");
    assert!(slowest < Duration::from_secs(5), "the slowest took {slowest:?}");
}

/// A living process that scribbles over its own segment while it is read neither stops the collector nor disturbs
/// another process.
#[test]
fn scribbling_process_disturbs_nobody() {
    let socket = fresh_socket();
    let mut pipeline = Pipeline::listen(&socket, None).expect("a fresh socket");
    let (hostile, good) = (Producer::connect(&socket), Producer::connect(&socket));
    settle(&mut pipeline);
    let (started, mut random) = (Instant::now(), Random(0xbad));
    while started.elapsed() < time_to_try().min(Duration::from_secs(5)) {
        for _ in 0..2_000 {
            let (slot, word, value) = (random.next() as u32, random.next() as usize % 8, random.next());
            let value = if value.is_multiple_of(2) { value % 2048 } else { value };
            hostile.segment.slot_word(slot, word).store(value, Ordering::Relaxed);
            let offset = (random.next() % (1 << 20)) & !7;
            if let Some(word) = hostile.segment.dictionary_word(offset) {
                word.store(value, Ordering::Relaxed);
            }
            hostile.segment.counter((value % 256) as usize).store(u64::MAX - value, Ordering::Relaxed);
            hostile.segment.lane_counter(slot, word).store(u64::MAX, Ordering::Relaxed);
        }
        let live = [LiveWord::RingHead, LiveWord::RingTail, LiveWord::DictionaryHead, LiveWord::StatusBits];
        hostile.segment.live(live[random.next() as usize % 4]).store(random.next(), Ordering::Relaxed);
        let one = Instant::now();
        pipeline.poll();
        assert!(one.elapsed() < Duration::from_secs(2), "one look took {:?}", one.elapsed());
    }
    good.launch(support::launch_in_window(shared_abi::record::LaunchKind::Kernel, 0, 1));
    good.activities(1, &[support::kernel(1, 0, 100)]);
    drop((good, hostile));
    settle(&mut pipeline);
    let profile = profile_of(&mut pipeline);
    assert!(ledger(&profile, "joined") >= 1);
}
