//! Payloads travel as 64-bit words that are read and written atomically, so that a reader that races with a
//! writer sees stale or mixed data but never undefined behaviour. The checksum tells it which.

/// Bytes of one word.
pub const WORD_BYTES: usize = 8;

/// Start value of [`mix`]; not zero, so that an all-zero slot does not check out.
pub const CHECK_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// Folds one word into a running checksum. Detects torn and overlapping writes, not malice.
#[inline(always)]
pub const fn mix(check: u64, word: u64) -> u64 {
    (check.rotate_left(5) ^ word).wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// Number of words that hold `bytes` bytes, the last one padded with zeros.
pub const fn words_for(bytes: usize) -> usize {
    bytes.div_ceil(WORD_BYTES)
}

/// Calls `sink(index, word)` for the concatenation of `parts`, padded with zeros to a whole word, and returns
/// the number of words.
#[inline]
pub fn for_each_word(parts: &[&[u8]], mut sink: impl FnMut(usize, u64)) -> usize {
    let (mut word, mut filled, mut index) = (0u64, 0usize, 0usize);
    for part in parts {
        let mut rest = *part;
        if filled == 0 {
            while let Some((chunk, tail)) = rest.split_first_chunk::<WORD_BYTES>() {
                sink(index, u64::from_le_bytes(*chunk));
                index += 1;
                rest = tail;
            }
        }
        for byte in rest {
            word |= u64::from(*byte) << (8 * filled);
            filled += 1;
            if filled == WORD_BYTES {
                sink(index, word);
                index += 1;
                (word, filled) = (0, 0);
            }
        }
    }
    if filled > 0 {
        sink(index, word);
        index += 1;
    }
    index
}
