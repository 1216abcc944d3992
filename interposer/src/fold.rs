//! The hash of every table here: a folded 128-bit multiplication, one a word. Not against malice (the engine is
//! trusted with its own profile), only against chance: each output bit depends on each input bit after two words.
//!
//! Allocates: no. Locks: no. Syscalls: no. Cost: about 1.5 ns a word when it waits for itself, less when the
//! processor has other work between two words.

/// A running hash of 64-bit words.
#[derive(Clone, Copy, Debug)]
pub struct Fold(u64);

/// Any odd number with about half of its bits set; two different ones, so that no word cancels the state.
const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
const INCREMENT: u64 = 0xd1b5_4a32_d192_ed03;

impl Fold {
    /// Starts a hash; `seed` tells tables apart.
    #[inline(always)]
    pub const fn new(seed: u64) -> Self {
        Self(seed ^ INCREMENT)
    }

    /// Adds a word.
    #[inline(always)]
    pub const fn word(self, word: u64) -> Self {
        let product = (self.0 ^ word) as u128 * MULTIPLIER as u128;
        Self((product as u64 ^ (product >> 64) as u64).wrapping_add(INCREMENT))
    }

    /// Adds bytes and their number.
    #[inline]
    pub fn bytes(self, bytes: &[u8]) -> Self {
        let mut hash = self.word(bytes.len() as u64);
        shared_abi::words::for_each_word(&[bytes], |_, word| hash = hash.word(word));
        hash
    }

    /// The hash so far.
    #[inline(always)]
    pub const fn finish(self) -> u64 {
        let product = (self.0 ^ INCREMENT) as u128 * MULTIPLIER as u128;
        product as u64 ^ (product >> 64) as u64
    }
}
