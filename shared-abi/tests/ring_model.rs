//! The ring against a model: any sequence of writes, stalls, late publications, reads, skips and changes of collector
//! does what a queue with holes does.
// Not under Miri, where a few cases take minutes and the contract tests make the same accesses.
#![cfg(not(any(loom, miri)))]

mod segment_in_memory;

use proptest::prelude::*;
use segment_in_memory::SegmentInMemory;
use shared_abi::ring::{Consumer, Popped, PushError, RingStore, push};
use shared_abi::segment::LiveWord;
use shared_abi::sync::Ordering;
use std::collections::VecDeque;

const SLOTS: u32 = 4;

#[derive(Clone, Debug)]
enum Step {
    Push(Vec<u8>),
    /// A producer reserves a slot and is stopped before it publishes.
    Stall,
    /// The stalled producer at this place among the stalled ones tries to publish.
    ComeBack(usize),
    Pop,
    Skip,
    NewCollector,
}

#[derive(Clone, Debug, PartialEq)]
enum Slot {
    Record(Vec<u8>),
    Reserved,
    /// Published by a producer that came back; it wrote no payload, so the checksum is wrong.
    Torn,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => prop::collection::vec(any::<u8>(), 0..=480).prop_map(Step::Push),
        1 => Just(Step::Stall),
        1 => (0..4usize).prop_map(Step::ComeBack),
        5 => Just(Step::Pop),
        1 => Just(Step::Skip),
        1 => Just(Step::NewCollector),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 512,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Order, drops, holes and late writers agree with the model at every step.
    #[test]
    fn ring_does_what_a_queue_with_holes_does(steps in prop::collection::vec(step(), 1..200)) {
        let segment = SegmentInMemory::with_slots(SLOTS);
        let mut consumer = Consumer::new(&*segment);
        let mut model: VecDeque<Slot> = VecDeque::new();
        let mut stalled: Vec<u64> = Vec::new();
        let (mut tail, mut pushed) = (0u64, 0u64);
        for step in steps {
            match step {
                Step::Push(bytes) => {
                    let result = push(&*segment, 1, pushed, &[&bytes]);
                    let full = model.len() == SLOTS as usize;
                    prop_assert_eq!(result, if full { Err(PushError::Full) } else { Ok(()) });
                    if !full {
                        model.push_back(Slot::Record(bytes));
                    }
                    pushed += 1;
                }
                Step::Stall if model.len() < SLOTS as usize => {
                    let position = segment.live(LiveWord::RingHead).fetch_add(1, Ordering::Relaxed);
                    // An impossible length: what the slot held before no longer checks out.
                    RingStore::slot_word(&*segment, position, 1).store(u64::MAX, Ordering::Relaxed);
                    stalled.push(position);
                    model.push_back(Slot::Reserved);
                }
                Step::Stall => {}
                Step::ComeBack(which) => {
                    if which < stalled.len() {
                        let position = stalled.remove(which);
                        let published = RingStore::slot_word(&*segment, position, 0)
                            .compare_exchange(position, position + 1, Ordering::Release, Ordering::Relaxed)
                            .is_ok();
                        prop_assert_eq!(published, position >= tail, "late writers fail, others do not");
                        if published {
                            model[(position - tail) as usize] = Slot::Torn;
                        }
                    }
                }
                Step::Pop => match (consumer.pop(), model.front().cloned()) {
                    (Popped::Record(record), Some(Slot::Record(bytes))) => {
                        prop_assert_eq!(record.position, tail);
                        prop_assert_eq!(&record.payload()[..bytes.len()], &bytes[..]);
                        prop_assert!(record.payload().len() - bytes.len() < 8);
                        model.pop_front();
                        tail += 1;
                    }
                    (Popped::Torn { position }, Some(Slot::Torn)) => {
                        prop_assert_eq!(position, tail);
                        model.pop_front();
                        tail += 1;
                    }
                    (Popped::Empty { reserved: true }, Some(Slot::Reserved)) => {}
                    (Popped::Empty { reserved: false }, None) => {}
                    (popped, expected) => prop_assert!(false, "{popped:?} instead of {expected:?}"),
                },
                Step::Skip => {
                    let stuck = model.front() == Some(&Slot::Reserved);
                    prop_assert_eq!(consumer.skip(), stuck);
                    if stuck {
                        model.pop_front();
                        tail += 1;
                    }
                }
                Step::NewCollector => consumer = Consumer::new(&*segment),
            }
        }
    }
}
