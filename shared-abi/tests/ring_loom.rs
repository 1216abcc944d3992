//! Every interleaving (up to a bound of preemptions) of two producers and a consumer that skips, under loom's memory
//! model. Run: `RUSTFLAGS="--cfg loom" cargo test -p shared-abi --test ring_loom --release`
#![cfg(loom)]

use loom::sync::Arc;
use loom::thread;
use shared_abi::ring::{Consumer, Popped, PushError, RingStore, SLOT_HEADER_WORDS, push};
use shared_abi::sync::{AtomicU64, Ordering};

const SLOTS: u64 = 2;
/// Records here carry one word each; loom's cost grows with every atomic there is.
const WORDS: usize = SLOT_HEADER_WORDS + 1;

struct ModelRing {
    /// Makes loom try every order of what touches the head and the sequences. Loom 0.7 remembers only the last access
    /// to an atomic, so that a thread's load hides another thread's earlier load from its own CAS, and with it nearly
    /// every interleaving of this algorithm (1 instead of thousands). Relaxed read-modify-writes order nothing else.
    turn: AtomicU64,
    head: AtomicU64,
    tail: AtomicU64,
    words: Vec<AtomicU64>,
}

impl ModelRing {
    fn new() -> Self {
        let first = |at: usize| if at % WORDS == 0 { (at / WORDS) as u64 } else { 0 };
        let words = (0..SLOTS as usize * WORDS).map(|at| AtomicU64::new(first(at))).collect();
        Self { turn: AtomicU64::new(0), head: AtomicU64::new(0), tail: AtomicU64::new(0), words }
    }
}

impl RingStore for ModelRing {
    fn slot_count(&self) -> u64 {
        SLOTS
    }
    fn head(&self) -> &AtomicU64 {
        self.turn.fetch_add(1, Ordering::Relaxed);
        &self.head
    }
    fn tail(&self) -> &AtomicU64 {
        &self.tail
    }
    fn slot_word(&self, position: u64, word: usize) -> &AtomicU64 {
        if word == 0 {
            self.turn.fetch_add(1, Ordering::Relaxed);
        }
        &self.words[(position % SLOTS) as usize * WORDS + word]
    }
}

fn push_number(ring: &ModelRing, number: u64) -> Result<(), PushError> {
    push(ring, number as u16, number, &[&(number * 1000).to_le_bytes()])
}

/// The number in a popped record, after checking that all its words belong together.
fn whole(popped: Popped) -> Option<u64> {
    match popped {
        Popped::Record(record) => {
            assert_eq!(record.payload(), (record.host_ns * 1000).to_le_bytes());
            assert_eq!(u64::from(record.kind), record.host_ns);
            Some(record.host_ns)
        }
        Popped::Torn { position } => panic!("torn at {position} though nobody was late"),
        Popped::Empty { .. } => None,
    }
}

fn explore(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(preemptions);
    // Counted outside the model, hence not loom's own: a check that explores next to nothing proves nothing.
    let explored = std::sync::Arc::new(std::sync::Mutex::new(0u64));
    let counter = explored.clone();
    builder.check(move || {
        *counter.lock().unwrap() += 1;
        model();
    });
    let explored = *explored.lock().unwrap();
    println!("explored {explored} interleavings");
    assert!(explored > 100, "only {explored} interleavings");
}

/// Two producers and a reading consumer: whatever is accepted is delivered whole and once.
#[test]
fn accepted_records_are_delivered_whole_and_once() {
    explore(3, || {
        let ring = Arc::new(ModelRing::new());
        let producers = [1, 2].map(|number| {
            let ring = ring.clone();
            thread::spawn(move || push_number(&ring, number))
        });
        let mut consumer = Consumer::new(&*ring);
        let mut seen: Vec<u64> = (0..2).filter_map(|_| whole(consumer.pop())).collect();
        for producer in producers {
            assert_eq!(producer.join().unwrap(), Ok(()), "two records fit into two slots");
        }
        seen.extend(std::iter::from_fn(|| whole(consumer.pop())));
        seen.sort_unstable();
        assert_eq!(seen, [1, 2]);
    });
}

/// A producer that laps the ring while it is read: nothing is overwritten, and a refusal costs exactly that record.
#[test]
fn lapping_producer_overwrites_nothing() {
    explore(3, || {
        let ring = Arc::new(ModelRing::new());
        assert_eq!(push_number(&ring, 1), Ok(()));
        assert_eq!(push_number(&ring, 2), Ok(()));
        let producer = {
            let ring = ring.clone();
            thread::spawn(move || [3, 4].map(|number| push_number(&ring, number).map(|()| number)))
        };
        let mut consumer = Consumer::new(&*ring);
        let mut seen: Vec<u64> = (0..2).filter_map(|_| whole(consumer.pop())).collect();
        let accepted = producer.join().unwrap();
        seen.extend(std::iter::from_fn(|| whole(consumer.pop())));
        let expected: Vec<u64> = [1, 2].into_iter().chain(accepted.into_iter().flatten()).collect();
        assert_eq!(seen, expected);
    });
}

/// Two producers and a consumer that gives up on slots at once. A slot is either delivered or skipped, never both; a
/// producer is told that it was too late exactly as often as a slot was skipped under it.
#[test]
fn skipped_writers_learn_of_it_and_nothing_is_counted_twice() {
    explore(3, || {
        let ring = Arc::new(ModelRing::new());
        let producers = [1, 2].map(|number| {
            let ring = ring.clone();
            thread::spawn(move || push_number(&ring, number))
        });
        let mut consumer = Consumer::new(&*ring);
        let (mut seen, mut skipped) = (Vec::new(), 0);
        for _ in 0..2 {
            match consumer.pop() {
                Popped::Empty { reserved: true } if consumer.skip() => skipped += 1,
                Popped::Empty { .. } => {}
                popped => seen.extend(whole(popped)),
            }
        }
        let results = producers.map(|producer| producer.join().unwrap());
        seen.extend(std::iter::from_fn(|| whole(consumer.pop())));
        let too_late = results.iter().filter(|result| **result == Err(PushError::TooLate)).count();
        assert_eq!(too_late, skipped);
        assert_eq!(seen.len() + skipped, 2);
        for (result, number) in results.into_iter().zip([1, 2]) {
            assert_eq!(seen.contains(&number), result.is_ok());
        }
    });
}

/// A late writer that scribbles over a slot of the next lap: its record, the other's, or "torn", never a mixture.
#[test]
fn late_scribbler_never_yields_a_mixture() {
    explore(3, || {
        let ring = Arc::new(ModelRing::new());
        let late = {
            let ring = ring.clone();
            thread::spawn(move || push_number(&ring, 1))
        };
        let mut consumer = Consumer::new(&*ring);
        if matches!(consumer.pop(), Popped::Empty { reserved: true }) && consumer.skip() {
            // Slot 1, then slot 0 again, in which the late writer may still be writing.
            assert_eq!(push_number(&ring, 2), Ok(()));
            assert_eq!(push_number(&ring, 3), Ok(()));
            assert_eq!(whole(consumer.pop()), Some(2));
            match consumer.pop() {
                Popped::Torn { position } => assert_eq!(position, 2),
                popped => assert!(matches!(whole(popped), Some(1 | 3))),
            }
            assert_eq!(late.join().unwrap(), Err(PushError::TooLate));
        } else {
            assert_eq!(late.join().unwrap(), Ok(()));
        }
        assert!(ring.tail.load(Ordering::Relaxed) <= ring.head.load(Ordering::Relaxed));
    });
}
