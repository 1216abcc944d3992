//! What the ring promises to producers and to its consumer, and that no value in the segment breaks the promise.
#![cfg(not(loom))]

mod segment_in_memory;

use segment_in_memory::{SegmentInMemory, open_untouched_memory};
use shared_abi::ring::{
    Consumer, PAYLOAD_BYTES, Popped, PushError, Record, RingStore, SLOT_HEADER_WORDS, push,
};
use shared_abi::segment::{LiveWord, SegmentError};
use shared_abi::sync::Ordering;
use shared_abi::version::ABI_VERSION;
use std::thread;

/// A record of which everything can be computed from `number`.
fn push_number(segment: &SegmentInMemory, number: u64) -> Result<(), PushError> {
    push(&**segment, 7, number, &[&number.to_le_bytes()])
}

fn number_in(record: &Record) -> u64 {
    u64::from_le_bytes(record.payload().try_into().expect("a payload of eight bytes"))
}

fn pop_number<Store: RingStore>(consumer: &mut Consumer<'_, Store>) -> Option<u64> {
    match consumer.pop() {
        Popped::Record(record) => Some(number_in(&record)),
        Popped::Torn { .. } | Popped::Empty { .. } => None,
    }
}

/// What a producer does that dies, or is stopped, between reserving a slot and publishing it.
fn reserve_and_stall(segment: &SegmentInMemory) -> u64 {
    segment.live(LiveWord::RingHead).fetch_add(1, Ordering::Relaxed)
}

fn publish_late(segment: &SegmentInMemory, position: u64) -> bool {
    RingStore::slot_word(&**segment, position, 0)
        .compare_exchange(position, position + 1, Ordering::Release, Ordering::Relaxed)
        .is_ok()
}

/// Full means that the newest record is refused and the older ones stay as they are.
#[test]
fn push_until_full_drops_the_newest() {
    let segment = SegmentInMemory::with_slots(4);
    for number in 0..4 {
        assert_eq!(push_number(&segment, number), Ok(()));
    }
    assert_eq!(push_number(&segment, 4), Err(PushError::Full));
    let mut consumer = Consumer::new(&*segment);
    assert_eq!(pop_number(&mut consumer), Some(0));
    assert_eq!(push_number(&segment, 5), Ok(()), "one slot was freed");
    assert_eq!(push_number(&segment, 6), Err(PushError::Full));
    let rest: Vec<_> = std::iter::from_fn(|| pop_number(&mut consumer)).collect();
    assert_eq!(rest, [1, 2, 3, 5]);
}

/// Records of one thread come out in the order of their writing, over many laps.
#[test]
fn records_come_out_in_order_over_many_laps() {
    let segment = SegmentInMemory::with_slots(2);
    let mut consumer = Consumer::new(&*segment);
    for number in 0..100 {
        assert_eq!(push_number(&segment, number), Ok(()));
        let Popped::Record(record) = consumer.pop() else { panic!("record {number} is missing") };
        assert_eq!((record.position, record.kind, record.host_ns), (number, 7, number));
        assert_eq!(number_in(&record), number);
    }
    assert!(matches!(consumer.pop(), Popped::Empty { reserved: false }));
}

/// Parts of any length arrive as one payload, padded with zeros to a whole word.
#[test]
fn parts_arrive_concatenated_and_padded_with_zeros() {
    let segment = SegmentInMemory::with_slots(2);
    let mut consumer = Consumer::new(&*segment);
    for (parts, expected) in [
        (&[][..], &b""[..]),
        (&[&b""[..], b"", b""], b""),
        (&[&b"abc"[..], b"", b"defgh"], b"abcdefgh"),
        (&[&b"abc"[..], b"defghijklmnopqrstu", b"v"], b"abcdefghijklmnopqrstuv\0\0"),
        (&[&b"12345678"[..], b"9"], b"123456789\0\0\0\0\0\0\0"),
    ] {
        assert_eq!(push(&*segment, 1, 0, parts), Ok(()));
        let Popped::Record(record) = consumer.pop() else { panic!("no record for {parts:?}") };
        assert_eq!(record.payload(), expected);
    }
}

/// The largest payload fits, one byte more is refused and reserves nothing.
#[test]
fn payload_over_the_limit_is_refused_without_reserving() {
    let segment = SegmentInMemory::with_slots(2);
    assert_eq!(push(&*segment, 1, 0, &[&[1; PAYLOAD_BYTES], &[2]]), Err(PushError::TooLarge));
    assert_eq!(segment.live(LiveWord::RingHead).load(Ordering::Relaxed), 0);
    assert_eq!(push(&*segment, 1, 0, &[&[1; PAYLOAD_BYTES]]), Ok(()));
    let mut consumer = Consumer::new(&*segment);
    assert!(matches!(consumer.pop(), Popped::Record(record) if record.payload() == [1; PAYLOAD_BYTES]));
}

/// A producer that never comes back holds up the consumer only until it skips the slot.
#[test]
fn skip_of_a_stuck_slot_lets_the_others_through() {
    let segment = SegmentInMemory::with_slots(4);
    reserve_and_stall(&segment);
    assert_eq!(push_number(&segment, 1), Ok(()));
    let mut consumer = Consumer::new(&*segment);
    assert!(matches!(consumer.pop(), Popped::Empty { reserved: true }));
    assert!(consumer.skip());
    assert_eq!(pop_number(&mut consumer), Some(1));
    let refilled: Vec<_> = (2..7).map(|number| push_number(&segment, number)).collect();
    assert_eq!(
        refilled,
        [Ok(()), Ok(()), Ok(()), Ok(()), Err(PushError::Full)],
        "the skipped slot is in use again"
    );
}

/// A writer that comes back after its slot was skipped is told so, and its record does not appear.
#[test]
fn late_writer_fails_after_its_slot_was_skipped() {
    let segment = SegmentInMemory::with_slots(2);
    let position = reserve_and_stall(&segment);
    let mut consumer = Consumer::new(&*segment);
    assert!(consumer.skip());
    assert!(!publish_late(&segment, position));
    assert!(matches!(consumer.pop(), Popped::Empty { reserved: false }));
}

/// Skipping loses the race against a writer that published in time: the record is delivered.
#[test]
fn skip_of_a_published_slot_is_refused() {
    let segment = SegmentInMemory::with_slots(2);
    let position = reserve_and_stall(&segment);
    let mut consumer = Consumer::new(&*segment);
    assert!(publish_late(&segment, position));
    assert!(!consumer.skip());
}

/// A slot that nobody reserved is not skipped: freed a lap early, it would stop every producer.
#[test]
fn skip_of_an_unreserved_slot_is_refused_and_producers_go_on() {
    let segment = SegmentInMemory::with_slots(2);
    let mut consumer = Consumer::new(&*segment);
    assert!(!consumer.skip());
    assert_eq!(push_number(&segment, 1), Ok(()));
    assert_eq!(pop_number(&mut consumer), Some(1));
}

/// A late writer that scribbles over the next lap's record is seen by the checksum, and the ring goes on.
#[test]
fn torn_slot_is_reported_and_skipped() {
    let segment = SegmentInMemory::with_slots(2);
    assert_eq!(push_number(&segment, 1), Ok(()));
    assert_eq!(push_number(&segment, 2), Ok(()));
    RingStore::slot_word(&*segment, 0, SLOT_HEADER_WORDS).store(99, Ordering::Relaxed);
    let mut consumer = Consumer::new(&*segment);
    assert!(matches!(consumer.pop(), Popped::Torn { position: 0 }));
    assert_eq!(pop_number(&mut consumer), Some(2));
}

/// Each word of a slot is covered: kind, length, time, check and payload.
#[test]
fn damage_to_any_word_of_a_slot_is_reported_as_torn() {
    for word in 1..=SLOT_HEADER_WORDS {
        for bit in [0, 17, 32, 63] {
            let segment = SegmentInMemory::with_slots(2);
            assert_eq!(push_number(&segment, 1), Ok(()));
            RingStore::slot_word(&*segment, 0, word).fetch_xor(1 << bit, Ordering::Relaxed);
            let popped = Consumer::new(&*segment).pop();
            assert!(matches!(popped, Popped::Torn { position: 0 }), "word {word} bit {bit}: {popped:?}");
        }
    }
}

/// A collector that takes over reads on where the last one ended.
#[test]
fn tail_survives_a_new_consumer() {
    let segment = SegmentInMemory::with_slots(4);
    for number in 0..3 {
        assert_eq!(push_number(&segment, number), Ok(()));
    }
    assert_eq!(pop_number(&mut Consumer::new(&*segment)), Some(0));
    assert_eq!(pop_number(&mut Consumer::new(&*segment)), Some(1));
    let reopened = segment.reopen().expect("a valid segment");
    assert_eq!(pop_number(&mut Consumer::new(&reopened)), Some(2));
}

/// A collector that died between freeing a slot and storing its tail costs its successor no record of the next lap.
#[test]
fn slot_freed_before_the_tail_was_stored_costs_no_record() {
    let segment = SegmentInMemory::with_slots(2);
    for number in 0..2 {
        assert_eq!(push_number(&segment, number), Ok(()));
    }
    let mut first = Consumer::new(&*segment);
    assert_eq!(pop_number(&mut first), Some(0));
    segment.live(LiveWord::RingTail).store(0, Ordering::Relaxed);
    assert_eq!(push_number(&segment, 2), Ok(()), "into the freed slot");
    let mut second = Consumer::new(&*segment);
    // Clamped or skipped, the position of the lost tail yields nothing; all else is delivered.
    if let Popped::Empty { reserved: true } = second.pop() {
        assert!(second.skip());
        assert_eq!(pop_number(&mut second), Some(1));
    }
    assert_eq!(pop_number(&mut second), Some(2));
}

/// No head, tail or sequence hangs or panics either side, and nothing invented is delivered.
#[test]
fn hostile_head_tail_and_sequences_never_hang_or_panic() {
    let values =
        [0, 1, 2, 3, 4, 5, 7, 8, 1 << 32, i64::MAX as u64, 1 << 63, u64::MAX - 4, u64::MAX - 1, u64::MAX];
    for head in values {
        for tail in values {
            for sequence in values {
                let segment = SegmentInMemory::with_slots(4);
                segment.live(LiveWord::RingHead).store(head, Ordering::Relaxed);
                segment.live(LiveWord::RingTail).store(tail, Ordering::Relaxed);
                for slot in 0..4 {
                    segment.slot_word(slot, 0).store(sequence, Ordering::Relaxed);
                }
                let mut consumer = Consumer::new(&*segment);
                for number in 0..10 {
                    let _ = push_number(&segment, number);
                    if let Popped::Empty { reserved: true } = consumer.pop() {
                        consumer.skip();
                    }
                }
            }
        }
    }
}

/// A length beyond the slot is not read, whatever its checksum.
#[test]
fn payload_length_beyond_the_slot_is_torn() {
    for words in [61, 64, u32::MAX] {
        let segment = SegmentInMemory::with_slots(2);
        assert_eq!(push_number(&segment, 1), Ok(()));
        segment.slot_word(0, 1).store(7 | (u64::from(words) << 32), Ordering::Relaxed);
        assert!(matches!(Consumer::new(&*segment).pop(), Popped::Torn { position: 0 }));
    }
}

/// Two threads write against a draining consumer: every record is delivered once, in its thread's order, or counted.
#[test]
fn two_threads_and_a_consumer_account_for_every_record() {
    let per_thread: u64 = if cfg!(miri) { 60 } else { 50_000 };
    let segment = SegmentInMemory::with_slots(64);
    let store = *segment;
    let (mut delivered, mut dropped) = ([0u64; 2], [0u64; 2]);
    thread::scope(|scope| {
        let producers = [0u64, 1].map(|producer| {
            scope.spawn(move || {
                let results = (0..per_thread).map(|number| {
                    let record = [producer, number, number ^ 0x5a5a];
                    push(&store, producer as u16, number, &[zerocopy::IntoBytes::as_bytes(&record)])
                });
                results.filter(|result| *result == Err(PushError::Full)).count() as u64
            })
        });
        let mut consumer = Consumer::new(&store);
        let mut last = [None; 2];
        // `false` when nothing is there to be read.
        let mut drain_one = || match consumer.pop() {
            Popped::Record(record) => {
                let words = record.payload().chunks_exact(8);
                let words: Vec<_> =
                    words.map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes"))).collect();
                let producer = usize::from(record.kind);
                assert_eq!(words, [producer as u64, record.host_ns, record.host_ns ^ 0x5a5a]);
                assert!(last[producer] < Some(record.host_ns), "order of producer {producer}");
                last[producer] = Some(record.host_ns);
                delivered[producer] += 1;
                true
            }
            Popped::Torn { position } => panic!("torn at {position}"),
            Popped::Empty { .. } => false,
        };
        while !producers.iter().all(|producer| producer.is_finished()) {
            if !drain_one() {
                thread::yield_now();
            }
        }
        // Only the join makes the last records visible for certain; `is_finished` orders nothing.
        dropped = producers.map(|producer| producer.join().expect("a producer"));
        while drain_one() {}
    });
    for producer in 0..2 {
        assert_eq!(delivered[producer] + dropped[producer], per_thread);
        assert!(delivered[producer] > 0);
    }
    let head = segment.live(LiveWord::RingHead).load(Ordering::Relaxed);
    assert_eq!(head, delivered.iter().sum::<u64>(), "a dropped record reserves nothing");
}

/// A segment of another version is refused with words that name both.
#[test]
fn foreign_version_is_refused_naming_both_versions() {
    let segment = SegmentInMemory::with_slots(2);
    segment.poke(8, &4711u32.to_le_bytes());
    let error = segment.reopen().expect_err("a foreign version");
    assert_eq!(error, SegmentError::ForeignVersion { found: 4711, expected: ABI_VERSION });
    let text = error.to_string();
    assert!(text.contains("4711") && text.contains(&format!("version {ABI_VERSION}")), "{text}");
}

/// A foreign version is named even where the rest of its header means nothing to us.
#[test]
fn foreign_version_is_named_before_its_geometry_is_judged() {
    let segment = SegmentInMemory::with_slots(2);
    segment.poke(8, &(ABI_VERSION + 1).to_le_bytes());
    segment.poke(12, &[0xff; 244]);
    assert!(matches!(segment.reopen(), Err(SegmentError::ForeignVersion { .. })));
}

/// A writer that has not finished the header, or not begun it, is waited for.
#[test]
fn unpublished_header_is_not_ready() {
    let segment = SegmentInMemory::with_slots(2);
    segment.poke(8, &0u32.to_le_bytes());
    assert_eq!(segment.reopen().map(drop), Err(SegmentError::NotReady));
    assert_eq!(open_untouched_memory().map(drop), Err(SegmentError::NotReady));
}

/// Something else in the file is told apart from a segment.
#[test]
fn foreign_magic_is_refused() {
    let segment = SegmentInMemory::with_slots(2);
    segment.poke(0, b"\x7fELF\x02\x01\x01\0");
    assert!(matches!(segment.reopen(), Err(SegmentError::NotASegment { .. })));
}

/// A mapping shorter than the header, or than what the header claims, is refused.
#[test]
fn short_mapping_is_refused() {
    let segment = SegmentInMemory::with_slots(2);
    let all = segment.identity().segment_bytes;
    assert_eq!(segment.reopen_as(4095).map(drop), Err(SegmentError::TooSmall { mapped_bytes: 4095 }));
    assert_eq!(segment.reopen_as(all - 1).map(drop), Err(SegmentError::BadGeometry));
    assert!(segment.reopen_as(all).is_ok());
}

/// Every field of the geometry is checked: whatever one claims instead is refused.
#[test]
fn bad_geometry_is_refused_field_by_field() {
    let fields = [(12, 4), (16, 8), (24, 8), (32, 4), (36, 4), (40, 8), (48, 4), (52, 4), (56, 8), (64, 8)];
    let hostile = [0u64, 1, 3, 127, 4095, 1 << 20, 1 << 31, u64::from(u32::MAX), 1 << 40, 1 << 63, u64::MAX];
    for (offset, bytes) in fields {
        for value in hostile {
            let segment = SegmentInMemory::with_slots(2);
            segment.poke(offset, &value.to_le_bytes()[..bytes]);
            let opened = segment.reopen().map(drop);
            assert_eq!(opened, Err(SegmentError::BadGeometry), "byte {offset} = {value:#x}");
        }
    }
}

/// Lanes, counters and slots out of range wrap into it instead of reaching memory outside.
#[test]
fn indexes_out_of_range_stay_inside_the_segment() {
    let segment = SegmentInMemory::with_slots(2);
    segment.lane_counter(u32::MAX, usize::MAX).fetch_add(1, Ordering::Relaxed);
    segment.counter(usize::MAX).fetch_add(1, Ordering::Relaxed);
    segment.slot_word(u32::MAX, usize::MAX).fetch_add(0, Ordering::Relaxed);
    assert!(segment.dictionary_word(4096).is_none());
    assert!(segment.dictionary_word(4).is_none());
    assert!(segment.dictionary_word(u64::MAX).is_none());
    assert_eq!(segment.counter(255).load(Ordering::Relaxed), 1);
}
