//! The cache of unwind rules: for each return address, how to get from a frame to its caller.
//!
//! 4,096 sets of four entries of 16 bytes; a set is one cache line. An entry is two words, `key ^ data * odd` and
//! `data`, written without a lock: a pair torn between two writers does not match any key and is a miss. The key
//! holds a generation, which [`RuleCache::forget_all`] changes when an image was unloaded.
//!
//! A direct-mapped table of the same size would do with the 873 addresses of a real training step, but for about 24
//! pairs that push each other out for ever at 0.3 µs a time; four ways make that none.
//!
//! Allocates: in `new` only. Locks: no. Syscalls: no. Cost: 1 to 2 ns a look-up.

use shared_abi::sync::{AtomicU64, Ordering};

const SETS: usize = 4096;
const WAYS: usize = 4;
const GENERATION_SHIFT: u32 = 48;
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

/// How the canonical frame address (the caller's stack pointer) is found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cfa {
    /// rsp + offset.
    Sp = 0,
    /// rbp + offset.
    Bp = 1,
    /// *(rbp + offset): functions that realign their stack.
    AtBp = 2,
}

/// Where the caller's rbp is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum CallerBp {
    /// Still in rbp.
    Same = 0,
    /// At CFA + offset.
    AtCfa = 1,
    /// At rbp + offset: functions that realign their stack.
    AtBp = 2,
}

/// How to get from one frame to its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The return address is at CFA - 8.
    Step {
        /// Base of the canonical frame address.
        cfa: Cfa,
        /// Offset to that base.
        cfa_offset: i32,
        /// Where the caller's rbp is.
        bp: CallerBp,
        /// Offset to that place.
        bp_offset: i16,
    },
    /// The outermost frame.
    Outermost,
    /// A frame that the cache cannot describe (signal frames, hand-written code without rules).
    Odd,
}

/// A [`Rule`] in one word, as the cache keeps it and the walk uses it.
///
/// ```text
/// bits 0..32 cfa_offset | 32..48 bp_offset | 48..52 Cfa, or 8 outermost, 9 odd | 52..56 CallerBp | 63 set
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PackedRule(u64);

const VALID: u64 = 1 << 63;
const CFA_SHIFT: u32 = 48;
const BP_SHIFT: u32 = 52;
const OUTERMOST: u64 = 8;
const ODD: u64 = 9;

impl PackedRule {
    /// Of a rule.
    #[inline]
    pub const fn new(rule: Rule) -> Self {
        Self(
            VALID
                | match rule {
                    Rule::Step { cfa, cfa_offset, bp, bp_offset } => {
                        (cfa_offset as u32 as u64)
                            | ((bp_offset as u16 as u64) << 32)
                            | ((cfa as u64) << CFA_SHIFT)
                            | ((bp as u64) << BP_SHIFT)
                    }
                    Rule::Outermost => OUTERMOST << CFA_SHIFT,
                    Rule::Odd => ODD << CFA_SHIFT,
                },
        )
    }

    /// Whether the canonical frame address is rsp + offset.
    #[inline(always)]
    pub const fn cfa_is_sp(self) -> bool {
        self.0 >> CFA_SHIFT & 15 == Cfa::Sp as u64
    }

    /// Whether it is rbp + offset.
    #[inline(always)]
    pub const fn cfa_is_bp(self) -> bool {
        self.0 >> CFA_SHIFT & 15 == Cfa::Bp as u64
    }

    /// Whether it is *(rbp + offset).
    #[inline(always)]
    pub const fn cfa_is_at_bp(self) -> bool {
        self.0 >> CFA_SHIFT & 15 == Cfa::AtBp as u64
    }

    /// Whether there is no caller.
    #[inline(always)]
    pub const fn is_outermost(self) -> bool {
        self.0 >> CFA_SHIFT & 15 == OUTERMOST
    }

    /// The offset to the base of the canonical frame address, to be added.
    #[inline(always)]
    pub const fn cfa_offset(self) -> u64 {
        self.0 as u32 as i32 as i64 as u64
    }

    /// Whether rbp is the caller's.
    #[inline(always)]
    pub const fn bp_is_same(self) -> bool {
        self.0 >> BP_SHIFT & 15 == CallerBp::Same as u64
    }

    /// Whether the caller's rbp is at CFA + offset.
    #[inline(always)]
    pub const fn bp_is_at_cfa(self) -> bool {
        self.0 >> BP_SHIFT & 15 == CallerBp::AtCfa as u64
    }

    /// The offset to the caller's rbp, to be added.
    #[inline(always)]
    pub const fn bp_offset(self) -> u64 {
        (self.0 >> 32) as u16 as i16 as i64 as u64
    }
}

#[derive(Debug, Default)]
struct Entry {
    key_and_data: AtomicU64,
    data: AtomicU64,
}

#[derive(Debug, Default)]
#[repr(align(64))]
struct Set([Entry; WAYS]);

/// A generation of rules, as it stands in keys.
#[derive(Clone, Copy, Debug)]
pub struct Generation(u64);

/// The cache, shared by all threads.
#[derive(Debug)]
pub struct RuleCache {
    sets: Box<[Set]>,
    generation: AtomicU64,
}

impl RuleCache {
    /// An empty cache of 256 KiB, every page of it touched.
    pub fn new() -> Self {
        Self { sets: (0..SETS).map(|_| Set::default()).collect(), generation: AtomicU64::new(1) }
    }

    /// The generation to look up in; taken once a sample.
    #[inline(always)]
    pub fn generation(&self) -> Generation {
        // Relaxed: a thread that sees the old one a moment longer unwinds by an old rule, inside its own stack.
        Generation(self.generation.load(Ordering::Relaxed) << GENERATION_SHIFT)
    }

    /// Makes every rule stale: an image was unloaded, and its addresses may come to mean something else.
    pub fn forget_all(&self) {
        // Relaxed: see `generation`. After 65,536 times a rule of as many unloads ago could match again.
        self.generation.fetch_add(1, Ordering::Relaxed);
    }

    /// The rule for a return address.
    #[inline(always)]
    pub fn get(&self, generation: Generation, pc: u64) -> Option<PackedRule> {
        let key = pc ^ generation.0;
        for entry in &self.set(pc)?.0 {
            // Relaxed: the two words check each other.
            let data = entry.data.load(Ordering::Relaxed);
            let key_and_data = entry.key_and_data.load(Ordering::Relaxed);
            if key_and_data ^ data.wrapping_mul(SPREAD) == key {
                return Some(PackedRule(data));
            }
        }
        None
    }

    /// Keeps a rule, in place of a stale or unlucky one when its set is full.
    pub fn put(&self, generation: Generation, pc: u64, rule: PackedRule) {
        let Some(set) = self.set(pc) else { return };
        let stale = |entry: &&Entry| {
            let data = entry.data.load(Ordering::Relaxed);
            let key = entry.key_and_data.load(Ordering::Relaxed) ^ data.wrapping_mul(SPREAD);
            data == 0 || key >> GENERATION_SHIFT != generation.0 >> GENERATION_SHIFT
        };
        let unlucky = || set.0.get((pc.wrapping_mul(SPREAD) >> 40) as usize % WAYS);
        let Some(entry) = set.0.iter().find(stale).or_else(unlucky) else { return };
        let data = rule.0;
        entry.key_and_data.store(pc ^ generation.0 ^ data.wrapping_mul(SPREAD), Ordering::Relaxed);
        entry.data.store(data, Ordering::Relaxed);
    }

    #[inline(always)]
    fn set(&self, pc: u64) -> Option<&Set> {
        self.sets.get((pc.wrapping_mul(SPREAD) >> 52) as usize)
    }
}

const _: () = assert!(SETS == 1 << (64 - 52));

#[cfg(test)]
mod tests {
    use super::*;

    /// Check that every rule comes back as it was put, and not in another generation.
    #[test]
    fn rules_come_back_until_forgotten() {
        let cache = RuleCache::new();
        let step = |cfa, bp| Rule::Step { cfa, cfa_offset: -72_000, bp, bp_offset: -16 };
        let rules = [
            step(Cfa::Sp, CallerBp::Same),
            step(Cfa::Bp, CallerBp::AtCfa),
            step(Cfa::AtBp, CallerBp::AtBp),
            Rule::Outermost,
            Rule::Odd,
        ];
        let generation = cache.generation();
        let pc = |i: usize| 0x7f00_0000_1000 + i as u64 * 13;
        for (i, rule) in rules.iter().enumerate() {
            cache.put(generation, pc(i), PackedRule::new(*rule));
        }
        for (i, rule) in rules.iter().enumerate() {
            assert_eq!(cache.get(generation, pc(i)), Some(PackedRule::new(*rule)));
        }
        cache.forget_all();
        assert_eq!(cache.get(cache.generation(), pc(0)), None);
    }

    /// Check that a set that is full gives up one rule and keeps the others.
    #[test]
    fn two_thousand_rules_nearly_all_stay() {
        let cache = RuleCache::new();
        let generation = cache.generation();
        let pcs = (0..2000u64).map(|i| 0x5555_0000_0000 + i * i * 37);
        for pc in pcs.clone() {
            cache.put(generation, pc, PackedRule::new(Rule::Outermost));
        }
        assert!(pcs.filter(|pc| cache.get(generation, *pc).is_some()).count() > 1980);
    }
}
