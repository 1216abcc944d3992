//! Messages over the unix socket (SOCK_SEQPACKET), each one datagram. The engine's helper thread connects, sends
//! [`Hello`] with the segment's memfd, then an [`ImageFile`] with a file descriptor for every mapped ELF image. The
//! collector answers the hello with a [`Welcome`], or with a refusal that names both versions.
//!
//! The protocol's own first word never changes, so that versions can refuse each other by name.

use crate::version::{ABI_VERSION, MAGIC};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// First message of the engine. 128 bytes; carries the memfd. `magic` and `abi_version` never move.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Hello {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`ABI_VERSION`] of the sender.
    pub abi_version: u32,
    /// [`MessageKind::Hello`].
    pub kind: u32,
    /// Bytes of the segment.
    pub segment_bytes: u64,
    /// Process id as the engine sees it.
    pub process_id: u32,
    /// Zero.
    pub reserved: u32,
    /// LAUNCHSCOPE_TOKEN of the engine, NUL-padded; the collector compares it where it was given one.
    pub token: [u8; 64],
    /// Version of the library, NUL-padded text.
    pub library_version: [u8; 32],
}
const _: () = assert!(size_of::<Hello>() == 128);

impl Hello {
    /// A hello of this version.
    pub const fn new(
        segment_bytes: u64,
        process_id: u32,
        token: [u8; 64],
        library_version: [u8; 32],
    ) -> Self {
        let kind = MessageKind::Hello as u32;
        Self {
            magic: MAGIC,
            abi_version: ABI_VERSION,
            kind,
            segment_bytes,
            process_id,
            reserved: 0,
            token,
            library_version,
        }
    }
}

/// Says which image the file descriptor that travels with it belongs to. 16 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ImageFile {
    /// [`MessageKind::ImageFile`].
    pub kind: u32,
    /// Dictionary id of the image.
    pub image_id: u32,
    /// Zero.
    pub reserved: u64,
}
const _: () = assert!(size_of::<ImageFile>() == 16);

/// The collector's answer. 24 bytes. `magic`, `abi_version` and `verdict` never move.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct Welcome {
    /// [`MAGIC`].
    pub magic: u64,
    /// [`ABI_VERSION`] of the collector.
    pub abi_version: u32,
    /// [`Verdict`].
    pub verdict: u32,
    /// Zero.
    pub reserved: u64,
}
const _: () = assert!(size_of::<Welcome>() == 24);

/// Kind of a message from the engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum MessageKind {
    /// [`Hello`].
    Hello = 1,
    /// [`ImageFile`].
    ImageFile = 2,
}

/// How the collector answers a hello.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Verdict {
    /// The segment is read from now on.
    Accepted = 1,
    /// Another ABI version.
    ForeignVersion = 2,
    /// The token does not match.
    WrongToken = 3,
    /// The segment contradicts itself.
    BadSegment = 4,
}

/// The socket that both sides use when LAUNCHSCOPE_SOCKET is not set; a leading `@` means the abstract namespace.
pub const DEFAULT_SOCKET: &str = "@launchscope";
