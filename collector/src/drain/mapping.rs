//! A memory file that is safe to read: its size is what its sender says and it is sealed against shrinking, so that
//! no access can end in SIGBUS.

use memmap2::{MmapOptions, MmapRaw};
use shared_abi::segment::{HEADER_BYTES, MAX_SEGMENT_BYTES, Segment, SegmentError};
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::NonNull;

/// Why a memory file is refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MappingError {
    /// It is not a file whose size can be read.
    #[error("the size of the segment's file cannot be read")]
    Stat(#[source] std::io::Error),
    /// Its size is not what the hello says, or out of range.
    #[error(
        "the segment's file has {actual_bytes} bytes, its sender says {said_bytes} (at most {MAX_SEGMENT_BYTES})"
    )]
    Size {
        /// Bytes of the file.
        actual_bytes: u64,
        /// Bytes by the hello.
        said_bytes: u64,
    },
    /// It can shrink while it is read.
    #[error("the segment's file is not sealed against shrinking (seals {seals:#x})")]
    NotSealed {
        /// F_GET_SEALS, or -1 for a file that cannot be sealed.
        seals: i32,
    },
    /// mmap failed.
    #[error("mapping the segment of {segment_bytes} bytes failed")]
    Map {
        /// Bytes of the segment.
        segment_bytes: u64,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// Its header is refused.
    #[error("{0}")]
    Segment(SegmentError),
}

/// Keeps a segment's memory mapped.
#[derive(Debug)]
pub struct Mapping {
    _map: MmapRaw,
}

/// Checks, maps and opens the segment behind `file`.
pub fn open_segment(file: OwnedFd, said_bytes: u64) -> Result<(Segment, Mapping), MappingError> {
    let file = File::from(file);
    let actual_bytes = file.metadata().map_err(MappingError::Stat)?.len();
    if actual_bytes != said_bytes || !(HEADER_BYTES..=MAX_SEGMENT_BYTES).contains(&actual_bytes) {
        return Err(MappingError::Size { actual_bytes, said_bytes });
    }
    // SAFETY: F_GET_SEALS takes no argument and only reads.
    let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
    if seals < 0 || seals & libc::F_SEAL_SHRINK == 0 {
        return Err(MappingError::NotSealed { seals });
    }
    let map = MmapOptions::new()
        .len(actual_bytes as usize)
        .map_raw(&file)
        .map_err(|source| MappingError::Map { segment_bytes: actual_bytes, source })?;
    open_mapped(map)
}

/// Opens a segment in memory of this process, as the tests and the fuzz entry do.
pub fn open_mapped(map: MmapRaw) -> Result<(Segment, Mapping), MappingError> {
    let base = NonNull::new(map.as_mut_ptr()).ok_or(MappingError::Segment(SegmentError::BadGeometry))?;
    // SAFETY: the map is page-aligned, readable and writable for its whole length and cannot shrink (sealed, or
    // anonymous); the Mapping that keeps it is stored beside the Segment in `ProcessDrain`, its only holder.
    let segment = unsafe { Segment::open(base, map.len() as u64) }.map_err(MappingError::Segment)?;
    Ok((segment, Mapping { _map: map }))
}
