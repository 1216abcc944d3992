//! Finds the line of an instruction in a code object's line table: all three formats that 3.8 to 3.15 use.
//!
//! Allocates: no. Locks: no. Syscalls: no (or those of `safe_read`). Cost: about 1 ns a byte; once a site.

use super::python_layout::{BYTES_DATA, BYTES_SIZE, LineFormat, OBJECT_TYPE};
use super::python_refusal::SanityCheck;
use super::safe_read::Memory;

/// Bytes of a line table that are read at most: 64 KiB hold about 10,000 lines in one function.
const MAX_TABLE_BYTES: u64 = 64 * 1024;
/// Bytes read at once.
const CHUNK_BYTES: usize = 64;

/// Bytes of a Python `bytes`, in order.
struct Bytes<'a, M> {
    memory: &'a M,
    data_avma: u64,
    at: u64,
    count: u64,
    chunk: [u8; CHUNK_BYTES],
}

impl<'a, M: Memory> Bytes<'a, M> {
    fn open(memory: &'a M, bytes_type_avma: u64, object_avma: u64) -> Result<Self, SanityCheck> {
        if memory.word(object_avma.wrapping_add(OBJECT_TYPE)) != Some(bytes_type_avma) {
            return Err(SanityCheck::NotBytes);
        }
        let count = memory.word(object_avma.wrapping_add(BYTES_SIZE)).ok_or(SanityCheck::Unreadable)?;
        let data_avma = object_avma.wrapping_add(BYTES_DATA);
        Ok(Self { memory, data_avma, at: 0, count: count.min(MAX_TABLE_BYTES), chunk: [0; CHUNK_BYTES] })
    }
}

impl<M: Memory> Iterator for Bytes<'_, M> {
    type Item = u8;

    fn next(&mut self) -> Option<u8> {
        if self.at >= self.count {
            return None;
        }
        let in_chunk = (self.at % CHUNK_BYTES as u64) as usize;
        if in_chunk == 0 {
            let wanted = (self.count - self.at).min(CHUNK_BYTES as u64) as usize;
            if !self.memory.copy(self.data_avma + self.at, self.chunk.get_mut(..wanted)?) {
                self.count = 0;
                return None;
            }
        }
        self.at += 1;
        self.chunk.get(in_chunk).copied()
    }
}

/// Where to look.
#[derive(Clone, Copy, Debug)]
pub struct LineQuery {
    /// The table, a Python `bytes`.
    pub table_avma: u64,
    /// Its format.
    pub format: LineFormat,
    /// First line of the code object.
    pub first_line: i32,
    /// Byte offset of the instruction; negative before the first.
    pub instruction_offset: i64,
}

/// The line of an instruction; zero for code without one.
pub fn line_of(memory: &impl Memory, bytes_type_avma: u64, query: LineQuery) -> Result<u32, SanityCheck> {
    let table = Bytes::open(memory, bytes_type_avma, query.table_avma)?;
    if query.instruction_offset < 0 {
        return Ok(query.first_line.max(0) as u32);
    }
    let line = match query.format {
        LineFormat::Lnotab => Some(line_by_lnotab(table, query)),
        LineFormat::Deltas => line_by_deltas(table, query),
        LineFormat::Locations => line_by_locations(table, query),
    };
    Ok(line.unwrap_or(0).max(0) as u32)
}

/// To 3.9: pairs of (bytes, lines); a pair takes effect after its bytes.
fn line_by_lnotab(mut table: impl Iterator<Item = u8>, query: LineQuery) -> i32 {
    let (mut line, mut address) = (query.first_line, 0);
    while let (Some(bytes), Some(lines)) = (table.next(), table.next()) {
        address += i64::from(bytes);
        if address > query.instruction_offset {
            break;
        }
        line = line.wrapping_add(i32::from(lines as i8));
    }
    line
}

/// 3.10: pairs of (bytes, lines) that describe the bytes that follow; -128 lines: none.
fn line_by_deltas(mut table: impl Iterator<Item = u8>, query: LineQuery) -> Option<i32> {
    let (mut line, mut end) = (query.first_line, 0);
    while let (Some(bytes), Some(lines)) = (table.next(), table.next()) {
        end += i64::from(bytes);
        let has_line = lines as i8 != -128;
        if has_line {
            line = line.wrapping_add(i32::from(lines as i8));
        }
        if end > query.instruction_offset {
            return has_line.then_some(line);
        }
    }
    None
}

/// Since 3.11: entries that begin with a byte whose top bit is set, of a code (4 bits) and a length (3 bits).
fn line_by_locations(table: impl Iterator<Item = u8>, query: LineQuery) -> Option<i32> {
    let mut table = table.peekable();
    let (mut line, mut end) = (query.first_line, 0);
    while let Some(first) = table.next() {
        let code = first >> 3 & 15;
        end += (i64::from(first & 7) + 1) * 2;
        line = line.wrapping_add(match code {
            // 13: no columns, 14: long; both begin with the lines.
            13 | 14 => signed_varint(&mut table),
            // One line with columns: 0, 1 or 2 lines further on.
            10..=12 => i32::from(code) - 10,
            _ => 0,
        });
        if end > query.instruction_offset {
            return (code != 15).then_some(line);
        }
        while table.next_if(|byte| byte & 0x80 == 0).is_some() {}
    }
    None
}

/// Six bits a byte, the lowest first; bit 6: more follow. The lowest bit of the value is its sign.
fn signed_varint(table: &mut impl Iterator<Item = u8>) -> i32 {
    let (mut value, mut shift) = (0u32, 0);
    for byte in table.by_ref() {
        value |= u32::from(byte & 63).checked_shl(shift).unwrap_or(0);
        shift += 6;
        if byte & 64 == 0 {
            break;
        }
    }
    let magnitude = (value >> 1) as i32;
    if value & 1 == 1 { -magnitude } else { magnitude }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(format: LineFormat, instruction_offset: i64) -> LineQuery {
        LineQuery { table_avma: 0, format, first_line: 10, instruction_offset }
    }

    /// Check the format to 3.9, with a step back.
    #[test]
    fn lnotab_lines() {
        let lines = |at| line_by_lnotab([4, 1, 6, 254, 2, 5].into_iter(), query(LineFormat::Lnotab, at));
        assert_eq!([0, 2, 4, 8, 10, 12, 40].map(lines), [10, 10, 11, 11, 9, 14, 14]);
    }

    /// Check the format of 3.10, with a stretch that has no line.
    #[test]
    fn delta_lines() {
        let lines = |at| line_by_deltas([4, 1, 2, 128, 4, 3].into_iter(), query(LineFormat::Deltas, at));
        assert_eq!([0, 2, 4, 6, 8, 10].map(lines), [Some(11), Some(11), None, Some(14), Some(14), None]);
    }

    /// Check the format since 3.11: each kind of entry.
    #[test]
    fn location_lines() {
        let entry = |code: u8, units: u8| 0x80 | code << 3 | (units - 1);
        let table = [
            entry(11, 2),
            1,
            2, // +1 line, 2 units
            entry(3, 1),
            9,            // same line, short form
            entry(15, 1), // no line
            entry(13, 1),
            5, // -2 lines
            entry(14, 1),
            64 | 2,
            1,
            0,
            1,
            1, // +33 lines, long form
        ];
        let lines = |at| line_by_locations(table.into_iter(), query(LineFormat::Locations, at));
        assert_eq!(
            [0, 2, 4, 6, 8, 10, 12].map(lines),
            [Some(11), Some(11), Some(11), None, Some(9), Some(42), None]
        );
    }
}
