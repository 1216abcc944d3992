//! Magic and version of the segment. The live segment is read by exactly the version that wrote it:
//! both halves ship together.

/// First eight bytes of every segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"LNCHSCP\0");

/// Bumped with every change of a layout in this crate; `ABI.md` records why.
pub const ABI_VERSION: u32 = 1;
