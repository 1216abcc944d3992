//! The segment: one sealed memfd per engine process.
//!
//! ```text
//! offset            bytes
//! 0                 4096                       header: identity (written once), then live words
//! lanes_offset      lane_count * 1024          one lane of launch counters a thread
//! ring_offset       slot_count * 512           ring slots
//! dictionary_offset dictionary_bytes           append-only definitions
//! ```
//!
//! Header bytes 0..256 are [`Identity`]; its `abi_version` is stored last. From byte 256 on each live word has
//! 128 bytes of its own, so that no two writers share a cache line; counters fill bytes 2048..4096.

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::version::{ABI_VERSION, MAGIC};
use core::fmt;
use core::ptr::NonNull;
use zerocopy::{FromBytes, FromZeros as _, Immutable, IntoBytes, KnownLayout};

/// Bytes of the segment header.
pub const HEADER_BYTES: u64 = 4096;
/// Bytes of one ring slot.
pub const SLOT_BYTES: u32 = 512;
/// Bytes of one lane: 16 launch counters, then one counter a hook.
pub const LANE_BYTES: u32 = 1024;
/// No segment is larger; a header that claims more is refused.
pub const MAX_SEGMENT_BYTES: u64 = 1 << 30;
/// The smallest and largest ring a reader accepts, in slots (a power of two).
pub const SLOT_COUNT_RANGE: core::ops::RangeInclusive<u32> = 2..=(1 << 20);

/// Who wrote the segment and where its parts lie. 256 bytes, written once before `abi_version` is published.
#[repr(C)]
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Identity {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`ABI_VERSION`]; zero while the writer is still filling the header.
    pub abi_version: u32,
    /// [`HEADER_BYTES`].
    pub header_bytes: u32,
    /// Bytes of the whole segment.
    pub segment_bytes: u64,
    /// Offset of the first lane.
    pub lanes_offset: u64,
    /// Number of lanes.
    pub lane_count: u32,
    /// [`LANE_BYTES`].
    pub lane_bytes: u32,
    /// Offset of the first ring slot.
    pub ring_offset: u64,
    /// Number of ring slots, a power of two.
    pub slot_count: u32,
    /// [`SLOT_BYTES`].
    pub slot_bytes: u32,
    /// Offset of the dictionary.
    pub dictionary_offset: u64,
    /// Bytes of the dictionary.
    pub dictionary_bytes: u64,
    /// Process id as the engine sees it (its own pid namespace).
    pub process_id: u32,
    /// Zero.
    pub reserved_0: u32,
    /// CLOCK_MONOTONIC when the interposer armed.
    pub armed_host_ns: u64,
    /// CLOCK_REALTIME at the same moment.
    pub armed_wall_ns: u64,
    /// /proc/sys/kernel/random/boot_id as 16 bytes; zero where it cannot be read.
    pub boot_id: [u8; 16],
    /// Version of the interposer, NUL-padded text.
    pub library_version: [u8; 32],
    /// Zero.
    pub reserved_1: [u8; 112],
}

const _: () = {
    assert!(size_of::<Identity>() == 256);
    assert!(core::mem::offset_of!(Identity, abi_version) == 8);
    assert!(core::mem::offset_of!(Identity, segment_bytes) == 16);
    assert!(core::mem::offset_of!(Identity, ring_offset) == 40);
    assert!(core::mem::offset_of!(Identity, dictionary_offset) == 56);
    assert!(core::mem::offset_of!(Identity, process_id) == 72);
    assert!(core::mem::offset_of!(Identity, boot_id) == 96);
    assert!(core::mem::offset_of!(Identity, library_version) == 112);
};

/// A live 64-bit word of the header, by its byte offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum LiveWord {
    /// Next position that a ring producer reserves.
    RingHead = 256,
    /// Next position that the collector reads.
    RingTail = 384,
    /// Bytes of the dictionary that are reserved.
    DictionaryHead = 512,
    /// CLOCK_MONOTONIC of the interposer's helper thread, about every 100 ms.
    AgentHeartbeatNs = 640,
    /// CLOCK_MONOTONIC of the collector, at every drain.
    CollectorHeartbeatNs = 768,
    /// Bit `n` is set while status code `n` holds (see [`crate::status`]).
    StatusBits = 896,
}

/// Byte offset of process counter 0 in the header.
pub const COUNTERS_OFFSET: u64 = 2048;
/// Number of process counters that fit.
pub const COUNTER_CAPACITY: usize = 256;

/// Sizes that the interposer chooses when it creates a segment.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    /// Number of lanes.
    pub lane_count: u32,
    /// Number of ring slots, a power of two.
    pub slot_count: u32,
    /// Bytes of the dictionary, a multiple of 4096.
    pub dictionary_bytes: u64,
}

impl Sizes {
    /// 256 lanes (32 KiB), 16,384 slots (8 MiB), a dictionary of 32 MiB of which only touched pages cost memory.
    pub const DEFAULT: Self = Self { lane_count: 256, slot_count: 16_384, dictionary_bytes: 32 << 20 };

    /// Bytes of the whole segment.
    pub const fn segment_bytes(&self) -> u64 {
        self.dictionary_offset() + self.dictionary_bytes
    }
    const fn ring_offset(&self) -> u64 {
        HEADER_BYTES + self.lane_count as u64 * LANE_BYTES as u64
    }
    const fn dictionary_offset(&self) -> u64 {
        self.ring_offset() + self.slot_count as u64 * SLOT_BYTES as u64
    }
}

/// Why a segment is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SegmentError {
    /// Fewer bytes than a header.
    TooSmall {
        /// Bytes that were mapped.
        mapped_bytes: u64,
    },
    /// The first eight bytes are not [`MAGIC`].
    NotASegment {
        /// What stands there.
        found: u64,
    },
    /// `abi_version` is still zero.
    NotReady,
    /// Written by another version.
    ForeignVersion {
        /// The writer's version.
        found: u32,
        /// Ours.
        expected: u32,
    },
    /// A size or offset contradicts the layout.
    BadGeometry,
}

impl fmt::Display for SegmentError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooSmall { mapped_bytes } => {
                write!(f, "segment has {mapped_bytes} bytes, fewer than its header of {HEADER_BYTES}")
            }
            Self::NotASegment { found } => {
                write!(f, "not a launchscope segment: magic is {found:#018x}, expected {MAGIC:#018x}")
            }
            Self::NotReady => write!(f, "segment is not ready: its writer has not published a version"),
            Self::ForeignVersion { found, expected } => write!(
                f,
                "segment has ABI version {found}, this launchscope reads version {expected}: \
                 use the library and the collector of one release"
            ),
            Self::BadGeometry => write!(f, "segment header contradicts its own sizes"),
        }
    }
}

impl core::error::Error for SegmentError {}

/// A mapped segment. Both sides hold one; neither ever hands out a plain reference into it.
#[derive(Clone, Copy, Debug)]
pub struct Segment {
    base: NonNull<u8>,
    identity: Identity,
}

// SAFETY: all access through a Segment is atomic, and the mapping outlives it by the contract of its constructors.
unsafe impl Send for Segment {}
// SAFETY: as above.
unsafe impl Sync for Segment {}

impl Segment {
    /// Writes the header of a fresh segment and publishes it.
    ///
    /// # Safety
    /// `base` points to `sizes.segment_bytes()` writable zero bytes, aligned to 4096, mapped for as long as the
    /// returned value or a copy of it is used. `sizes` has at least one lane, a number of slots that is a power of
    /// two in [`SLOT_COUNT_RANGE`], and a dictionary that is a multiple of 4096 bytes.
    pub unsafe fn create(base: NonNull<u8>, sizes: Sizes, who: Identity) -> Self {
        let identity = Identity {
            magic: MAGIC,
            abi_version: 0,
            header_bytes: HEADER_BYTES as u32,
            segment_bytes: sizes.segment_bytes(),
            lanes_offset: HEADER_BYTES,
            lane_count: sizes.lane_count,
            lane_bytes: LANE_BYTES,
            ring_offset: sizes.ring_offset(),
            slot_count: sizes.slot_count,
            slot_bytes: SLOT_BYTES,
            dictionary_offset: sizes.dictionary_offset(),
            dictionary_bytes: sizes.dictionary_bytes,
            reserved_0: 0,
            reserved_1: [0; 112],
            ..who
        };
        // SAFETY: the caller gives at least HEADER_BYTES writable, aligned bytes that nobody else reads yet.
        unsafe { base.cast::<Identity>().write(identity) };
        let segment = Self { base, identity: Identity { abi_version: ABI_VERSION, ..identity } };
        for index in 0..sizes.slot_count {
            segment.slot_word(index, 0).store(u64::from(index), Ordering::Relaxed);
        }
        // Pairs with the Acquire load in `open`: whoever sees the version sees the whole header and slot sequences.
        segment.abi_version_word().store(ABI_VERSION, Ordering::Release);
        segment
    }

    /// Checks a mapped segment of another process, trusting nothing in it.
    ///
    /// # Safety
    /// `base` points to `mapped_bytes` readable and writable bytes, aligned to 4096, that stay mapped (and cannot
    /// shrink: sealed) for as long as the returned value or a copy of it is used.
    pub unsafe fn open(base: NonNull<u8>, mapped_bytes: u64) -> Result<Self, SegmentError> {
        if mapped_bytes < HEADER_BYTES {
            return Err(SegmentError::TooSmall { mapped_bytes });
        }
        let probe = Self { base, identity: Identity::new_zeroed() };
        // Pairs with the Release store in `create`.
        let version = probe.abi_version_word().load(Ordering::Acquire);
        let mut bytes = [0u8; size_of::<Identity>()];
        for (index, chunk) in bytes.chunks_exact_mut(8).enumerate() {
            chunk.copy_from_slice(&probe.word(index as u64 * 8).load(Ordering::Relaxed).to_le_bytes());
        }
        let Ok(identity) = Identity::read_from_bytes(&bytes) else {
            return Err(SegmentError::BadGeometry);
        };
        // A fresh memfd is all zeros until `create` has begun: not ready, rather than not ours.
        if identity.magic == 0 && version == 0 {
            return Err(SegmentError::NotReady);
        }
        if identity.magic != MAGIC {
            return Err(SegmentError::NotASegment { found: identity.magic });
        }
        match version {
            0 => Err(SegmentError::NotReady),
            ABI_VERSION if geometry_holds(&identity, mapped_bytes) => Ok(Self { base, identity }),
            ABI_VERSION => Err(SegmentError::BadGeometry),
            found => Err(SegmentError::ForeignVersion { found, expected: ABI_VERSION }),
        }
    }

    /// Identity as read once at [`Segment::open`] or written at [`Segment::create`].
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// A live word of the header.
    #[inline(always)]
    pub fn live(&self, word: LiveWord) -> &AtomicU64 {
        self.word(word as u64)
    }

    /// Process counter `index`; indexes past [`COUNTER_CAPACITY`] share the last one.
    #[inline(always)]
    pub fn counter(&self, index: usize) -> &AtomicU64 {
        self.word(COUNTERS_OFFSET + index.min(COUNTER_CAPACITY - 1) as u64 * 8)
    }

    /// Counter `index` of lane `lane`, both wrapped into range.
    #[inline(always)]
    pub fn lane_counter(&self, lane: u32, index: usize) -> &AtomicU64 {
        let lane = u64::from(lane % self.identity.lane_count);
        let index = index as u64 % (u64::from(LANE_BYTES) / 8);
        self.word(self.identity.lanes_offset + lane * u64::from(LANE_BYTES) + index * 8)
    }

    /// Word `word` of ring slot `slot`, both wrapped into range.
    #[inline(always)]
    pub fn slot_word(&self, slot: u32, word: usize) -> &AtomicU64 {
        let slot = u64::from(slot & (self.identity.slot_count - 1));
        let word = word as u64 % (u64::from(SLOT_BYTES) / 8);
        self.word(self.identity.ring_offset + slot * u64::from(SLOT_BYTES) + word * 8)
    }

    /// The dictionary's word at byte `offset` from its start; `None` past its end or unaligned.
    #[inline]
    pub fn dictionary_word(&self, offset: u64) -> Option<&AtomicU64> {
        let inside = offset.is_multiple_of(8) && offset < self.identity.dictionary_bytes;
        inside.then(|| self.word(self.identity.dictionary_offset + offset))
    }

    #[inline(always)]
    fn word(&self, offset: u64) -> &AtomicU64 {
        debug_assert!(offset.is_multiple_of(8));
        // SAFETY: callers pass offsets inside the geometry that `create` laid out or `open` checked (bytes 0..4096
        // before the check), aligned to 8; the mapping outlives self by the contract of both constructors, and
        // every access to it is atomic.
        unsafe { &*self.base.as_ptr().add(offset as usize).cast::<AtomicU64>() }
    }

    fn abi_version_word(&self) -> &AtomicU32 {
        // SAFETY: as in `word`; offset 8 is aligned to 4 and inside every header.
        unsafe { &*self.base.as_ptr().add(8).cast::<AtomicU32>() }
    }
}

fn geometry_holds(identity: &Identity, mapped_bytes: u64) -> bool {
    let sizes = Sizes {
        lane_count: identity.lane_count,
        slot_count: identity.slot_count,
        dictionary_bytes: identity.dictionary_bytes,
    };
    let small_enough = identity.dictionary_bytes <= MAX_SEGMENT_BYTES
        && SLOT_COUNT_RANGE.contains(&identity.slot_count)
        && (1..=65_536).contains(&identity.lane_count);
    small_enough
        && identity.slot_count.is_power_of_two()
        && identity.dictionary_bytes.is_multiple_of(4096)
        && identity.header_bytes as u64 == HEADER_BYTES
        && identity.lane_bytes == LANE_BYTES
        && identity.slot_bytes == SLOT_BYTES
        && identity.lanes_offset == HEADER_BYTES
        && identity.ring_offset == sizes.ring_offset()
        && identity.dictionary_offset == sizes.dictionary_offset()
        && identity.segment_bytes == sizes.segment_bytes()
        && identity.segment_bytes <= mapped_bytes
        && identity.segment_bytes <= MAX_SEGMENT_BYTES
}
