//! Copies a Python str as UTF-8 into a bounded buffer.
//!
//! Allocates: no. Locks: no. Syscalls: no (or those of `safe_read`). Cost: 20 to 60 ns for a name; once a site.

use super::python_layout::{Layout, OBJECT_TYPE, TEXT_LENGTH, TEXT_STATE};
use super::python_refusal::SanityCheck;
use super::safe_read::Memory;

/// Bytes read at once.
const CHUNK_BYTES: usize = 64;

/// Text in a buffer of `N` bytes; longer ones are cut between two characters.
#[derive(Debug)]
pub struct Text<const N: usize> {
    bytes: [u8; N],
    count: usize,
}

impl<const N: usize> Text<N> {
    /// Empty.
    pub fn new() -> Self {
        Self { bytes: [0; N], count: 0 }
    }

    /// The UTF-8 bytes.
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.count).unwrap_or(&[])
    }

    /// Appends a character; false when it does not fit.
    fn push(&mut self, character: char) -> bool {
        let end = self.count + character.len_utf8();
        let Some(space) = self.bytes.get_mut(self.count..end) else { return false };
        character.encode_utf8(space);
        self.count = end;
        true
    }

    /// Takes the str at `text_avma`; what is not a character becomes U+FFFD.
    pub fn copy(
        &mut self,
        memory: &impl Memory,
        layout: &Layout,
        str_type_avma: u64,
        text_avma: u64,
    ) -> Result<(), SanityCheck> {
        self.count = 0;
        if memory.word(text_avma.wrapping_add(OBJECT_TYPE)) != Some(str_type_avma) {
            return Err(SanityCheck::NotAStr);
        }
        let length = memory.word(text_avma.wrapping_add(TEXT_LENGTH)).ok_or(SanityCheck::Unreadable)?;
        let state = memory.int(text_avma.wrapping_add(TEXT_STATE)).ok_or(SanityCheck::Unreadable)?;
        // interned: 2 bits, kind: 3, compact: 1, ascii: 1.
        let (width, compact, ascii) = (state as u64 >> 2 & 7, state >> 5 & 1, state >> 6 & 1);
        if compact == 0 || !matches!(width, 1 | 2 | 4) {
            return Err(SanityCheck::NotAStr);
        }
        let data_avma = text_avma + if ascii == 1 { layout.text_ascii } else { layout.text_compact };
        let bytes = length.checked_mul(width).ok_or(SanityCheck::NotAStr)?;
        self.encode(memory, data_avma, bytes, width as usize).ok_or(SanityCheck::Unreadable)
    }

    fn encode(&mut self, memory: &impl Memory, data_avma: u64, bytes: u64, width: usize) -> Option<()> {
        let mut chunk = [0; CHUNK_BYTES];
        for at in (0..bytes).step_by(CHUNK_BYTES) {
            let part = chunk.get_mut(..(bytes - at).min(CHUNK_BYTES as u64) as usize)?;
            memory.copy(data_avma.wrapping_add(at), part).then_some(())?;
            for unit in part.chunks_exact(width) {
                let code = unit.iter().rev().fold(0u32, |code, byte| code << 8 | u32::from(*byte));
                if !self.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)) {
                    return Some(());
                }
            }
        }
        Some(())
    }
}
