//! What the dictionary promises: whole definitions in order, or a word for what is wrong.
#![cfg(not(loom))]

mod segment_in_memory;

use segment_in_memory::SegmentInMemory;
use shared_abi::dictionary::{Definition, DefinitionKind, DictionaryFull, Read, Reader, define};
use shared_abi::segment::{LiveWord, Segment, Sizes};
use shared_abi::sync::Ordering;
use std::thread;

fn next_with_bytes(reader: &mut Reader, segment: &Segment) -> (Read, Vec<u8>) {
    let mut bytes = Vec::new();
    let read = reader.next(segment, |word| bytes.extend(word.to_le_bytes()));
    (read, bytes)
}

fn definition(kind: DefinitionKind, id: u32, words: usize) -> Read {
    Read::Definition(Definition { kind: kind as u16, id, words: 0..words })
}

/// A definition comes back as it was written: kind, id and the concatenated, padded parts.
#[test]
fn defined_entry_is_read_back_whole() {
    let segment = SegmentInMemory::with_slots(2);
    assert_eq!(define(&segment, DefinitionKind::Name, 3, &[b"_Z6gemm", b"Pf"]), Ok(()));
    assert_eq!(define(&segment, DefinitionKind::Process, 1, &[]), Ok(()));
    let mut reader = Reader::default();
    let (read, bytes) = next_with_bytes(&mut reader, &segment);
    assert_eq!(read, definition(DefinitionKind::Name, 3, 2));
    assert_eq!(bytes, b"_Z6gemmPf\0\0\0\0\0\0\0");
    assert_eq!(next_with_bytes(&mut reader, &segment), (definition(DefinitionKind::Process, 1, 0), vec![]));
    assert_eq!(next_with_bytes(&mut reader, &segment).0, Read::End);
}

/// Every kind and the extremes of ids survive the way through the entry's head.
#[test]
fn kinds_and_ids_survive() {
    let segment = SegmentInMemory::with_slots(2);
    let mut reader = Reader::default();
    for number in 1..=7 {
        let kind = DefinitionKind::from_u16(number).expect("a known kind");
        for id in [1, u32::MAX] {
            assert_eq!(define(&segment, kind, id, &[b"x"]), Ok(()));
            assert_eq!(next_with_bytes(&mut reader, &segment).0, definition(kind, id, 1));
        }
    }
    assert_eq!(DefinitionKind::from_u16(0), None);
    assert_eq!(DefinitionKind::from_u16(8), None);
}

/// A definition that does not fit is refused and takes no room; a smaller one still fits.
#[test]
fn full_dictionary_refuses_and_keeps_what_it_has() {
    let segment = SegmentInMemory::with_slots(2);
    assert_eq!(define(&segment, DefinitionKind::Name, 1, &[&[b'a'; 4000]]), Ok(()));
    assert_eq!(define(&segment, DefinitionKind::Name, 2, &[&[b'b'; 80]]), Err(DictionaryFull));
    assert_eq!(define(&segment, DefinitionKind::Name, 3, &[&[b'c'; 64]]), Ok(()), "exactly to the end");
    assert_eq!(define(&segment, DefinitionKind::Name, 4, &[]), Err(DictionaryFull));
    let mut reader = Reader::default();
    assert_eq!(next_with_bytes(&mut reader, &segment).0, definition(DefinitionKind::Name, 1, 500));
    assert_eq!(next_with_bytes(&mut reader, &segment).0, definition(DefinitionKind::Name, 3, 8));
    assert_eq!(next_with_bytes(&mut reader, &segment).0, Read::End);
}

/// A damaged payload or id is reported, and the definitions behind it are read.
#[test]
fn torn_entry_is_reported_and_the_next_is_read() {
    for offset in [8, 16] {
        let segment = SegmentInMemory::with_slots(2);
        assert_eq!(define(&segment, DefinitionKind::Name, 1, &[b"first"]), Ok(()));
        assert_eq!(define(&segment, DefinitionKind::Name, 2, &[b"second"]), Ok(()));
        segment.dictionary_word(offset).expect("a word of the first entry").fetch_xor(1, Ordering::Relaxed);
        let mut reader = Reader::default();
        assert_eq!(next_with_bytes(&mut reader, &segment).0, Read::Torn);
        assert_eq!(next_with_bytes(&mut reader, &segment).0, definition(DefinitionKind::Name, 2, 1));
    }
}

/// A length of nothing, or past the end, stops the reader for good without a hang.
#[test]
fn broken_length_stops_the_reader_where_it_is() {
    for words in [0u64, 1, 513, u64::from(u32::MAX)] {
        let segment = SegmentInMemory::with_slots(2);
        assert_eq!(define(&segment, DefinitionKind::Name, 1, &[b"first"]), Ok(()));
        segment.dictionary_word(24).expect("the second entry").store(1 << 63 | words, Ordering::Relaxed);
        let mut reader = Reader::default();
        assert_eq!(next_with_bytes(&mut reader, &segment).0, definition(DefinitionKind::Name, 1, 1));
        assert_eq!(next_with_bytes(&mut reader, &segment).0, Read::Broken { offset: 24 });
        assert_eq!(next_with_bytes(&mut reader, &segment).0, Read::Broken { offset: 24 });
    }
}

/// An entry that is reserved and not yet published ends the reading, and is read once it is published.
#[test]
fn reserved_entry_ends_the_reading_until_it_is_published() {
    let segment = SegmentInMemory::with_slots(2);
    segment.live(LiveWord::DictionaryHead).fetch_add(16, Ordering::Relaxed);
    assert_eq!(define(&segment, DefinitionKind::Name, 2, &[b"behind"]), Ok(()));
    let mut reader = Reader::default();
    assert_eq!(next_with_bytes(&mut reader, &segment).0, Read::End);
    assert_eq!(reader.unread_bytes(&segment), 40);
    segment.dictionary_word(0).expect("the first entry").store(1 << 63 | 2, Ordering::Release);
    assert_eq!(next_with_bytes(&mut reader, &segment).0, Read::Torn, "published without its check");
    assert_eq!(next_with_bytes(&mut reader, &segment).0, definition(DefinitionKind::Name, 2, 1));
    assert_eq!(reader.unread_bytes(&segment), 0);
}

/// A collector that starts late, or again, gets every definition from the start.
#[test]
fn late_reader_gets_everything() {
    let segment = SegmentInMemory::with_slots(2);
    for id in 1..=20 {
        assert_eq!(define(&segment, DefinitionKind::Site, id, &[&id.to_le_bytes()]), Ok(()));
    }
    for _collector in 0..2 {
        let opened = segment.reopen().expect("a valid segment");
        let mut reader = Reader::default();
        for id in 1..=20 {
            assert_eq!(next_with_bytes(&mut reader, &opened).0, definition(DefinitionKind::Site, id, 1));
        }
        assert_eq!(next_with_bytes(&mut reader, &opened).0, Read::End);
    }
}

/// No head that a peer can write makes a writer reach outside, hang or panic.
#[test]
fn hostile_head_never_hangs_or_panics() {
    for head in [1, 7, 8, 4080, 4088, 4089, 4096, 1 << 32, 1 << 63, u64::MAX - 15, u64::MAX] {
        let segment = SegmentInMemory::with_slots(2);
        segment.live(LiveWord::DictionaryHead).store(head, Ordering::Relaxed);
        let _ = define(&segment, DefinitionKind::Name, 1, &[b"some name"]);
        let mut reader = Reader::default();
        assert_eq!(next_with_bytes(&mut reader, &segment).0, Read::End);
        let _ = reader.unread_bytes(&segment);
    }
}

/// Writers in several threads and a reader that follows them: each definition arrives once and whole.
#[test]
fn concurrent_writers_lose_nothing() {
    let per_thread: u32 = if cfg!(miri) { 20 } else { 2_000 };
    let segment = SegmentInMemory::new(Sizes { lane_count: 1, slot_count: 2, dictionary_bytes: 1 << 20 });
    let store = *segment;
    let mut seen = [0u32; 3];
    thread::scope(|scope| {
        for writer in 0..3u32 {
            scope.spawn(move || {
                for number in 0..per_thread {
                    let id = number * 3 + writer + 1;
                    let text = vec![id as u8; 1 + (id % 40) as usize];
                    assert_eq!(define(&store, DefinitionKind::Name, id, &[&text]), Ok(()));
                }
            });
        }
        let mut reader = Reader::default();
        while seen.iter().sum::<u32>() < 3 * per_thread {
            match next_with_bytes(&mut reader, &store) {
                (Read::Definition(found), bytes) => {
                    let writer = (found.id - 1) % 3;
                    assert_eq!((found.id - 1) / 3, seen[writer as usize], "order of writer {writer}");
                    seen[writer as usize] += 1;
                    let length = 1 + (found.id % 40) as usize;
                    assert!(bytes[..length].iter().all(|byte| *byte == found.id as u8));
                    assert!(bytes[length..].iter().all(|byte| *byte == 0));
                }
                (Read::End, _) => thread::yield_now(),
                (wrong, _) => panic!("{wrong:?}"),
            }
        }
    });
    assert_eq!(seen, [per_thread; 3]);
}
