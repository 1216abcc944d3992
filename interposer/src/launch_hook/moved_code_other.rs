//! Architectures whose entries are not patched: every function is refused, and the other ways in are used.
//!
//! On aarch64 a branch reaches 128 MiB only, so that an entry would need 16 bytes; nobody has shown yet that the driver's
//! entries leave that room.

use super::refusal::Why;
use super::trampoline::SLOT_BYTES;

/// Bytes of the jump that replaces the entry.
pub const JUMP_BYTES: usize = 4;
/// Never written here.
pub const WAIT_HERE: [u8; 2] = [0, 0];

/// The part of a function's entry that gives way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Bytes before the jump.
    pub patch_offset: usize,
    /// Bytes of the moved instructions.
    pub moved_bytes: usize,
}

/// How many bytes of a function [`inspect`] wants to see.
pub fn bytes_to_read(symbol_bytes: Option<usize>) -> usize {
    symbol_bytes.unwrap_or(16).min(16)
}

/// Refuses.
pub fn inspect(_code: &[u8], _address: usize) -> Result<Entry, Why> {
    Err(Why::Architecture)
}

/// Refuses.
pub fn slot_content(
    _code: &[u8],
    _address: usize,
    _entry: Entry,
    _slot_address: usize,
    _replacement: usize,
) -> Result<[u8; SLOT_BYTES], Why> {
    Err(Why::Architecture)
}

/// There is none.
pub fn jump(_from: usize, _to: usize) -> Option<[u8; JUMP_BYTES]> {
    None
}
