//! Every interleaving of threads that intern at once: `RUSTFLAGS="--cfg loom" cargo test --test intern_table_loom`.
#![cfg(loom)]

use interposer::intern_table::{InternTable, Search};
use loom::sync::Arc;
use shared_abi::sync::{AtomicU64, Ordering};

/// Interns `hash`; its definition is a plain store, which whoever gets the id must see.
fn intern(table: &InternTable, defined: &[AtomicU64; 4], hash: u64) -> u32 {
    let id = match table.find(hash) {
        Search::Known(id) => id,
        Search::Vacant(vacancy) => {
            let define = |id: u32| {
                defined[id as usize].store(hash, Ordering::Relaxed);
                Ok::<(), ()>(())
            };
            table.fill(vacancy, define).unwrap().unwrap()
        }
        Search::Full => panic!("two hashes in four slots"),
    };
    assert_eq!(defined[id as usize].load(Ordering::Relaxed), hash);
    id
}

/// Check that two threads with one hash agree on an id whose definition both see.
#[test]
fn one_hash_gets_one_id() {
    loom::model(|| {
        let shared = Arc::new((InternTable::new(4), std::array::from_fn(|_| AtomicU64::new(0))));
        let other = shared.clone();
        let thread = loom::thread::spawn(move || intern(&other.0, &other.1, 5 << 40));
        let here = intern(&shared.0, &shared.1, 5 << 40);
        assert_eq!(here, thread.join().unwrap());
    });
}

/// Check that two hashes with one home slot keep apart.
#[test]
fn colliding_hashes_keep_apart() {
    loom::model(|| {
        let shared = Arc::new((InternTable::new(4), std::array::from_fn(|_| AtomicU64::new(0))));
        let other = shared.clone();
        let thread = loom::thread::spawn(move || intern(&other.0, &other.1, 5 << 40));
        let here = intern(&shared.0, &shared.1, 6 << 40);
        assert_ne!(here, thread.join().unwrap());
        assert_eq!(here, intern(&shared.0, &shared.1, 6 << 40));
    });
}
