//! Datagrams over a SOCK_SEQPACKET unix socket, with the file descriptors that travel with them.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// File descriptors that one datagram may carry before the kernel closes the surplus.
const MAX_DESCRIPTORS: usize = 8;
/// Bytes of the largest datagram that is looked at; a hello has 128.
const MAX_DATAGRAM_BYTES: usize = 256;
/// Room for the control message, in words so that it is aligned.
const CONTROL_WORDS: usize = 8 + MAX_DESCRIPTORS;

/// A received datagram.
#[derive(Debug)]
pub struct Datagram {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Its file descriptors, close-on-exec; dropped ones are closed.
    pub descriptors: Vec<OwnedFd>,
}

/// What a socket holds for us.
#[derive(Debug)]
pub enum Received {
    /// A datagram.
    Datagram(Datagram),
    /// Nothing now.
    Nothing,
    /// The other side has closed.
    Closed,
}

/// Takes one datagram from a socket that does not block.
pub fn receive(socket: &OwnedFd) -> Received {
    let mut bytes = [0u8; MAX_DATAGRAM_BYTES];
    let mut control = [0u64; CONTROL_WORDS];
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: msghdr is plain data for which all zeros is a valid value.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    header.msg_iov = &mut vector;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of::<[u64; CONTROL_WORDS]>() as _;
    let flags = libc::MSG_CMSG_CLOEXEC | libc::MSG_DONTWAIT;
    // SAFETY: `header` points to buffers of this frame with their true lengths.
    let length = unsafe { libc::recvmsg(socket.as_raw_fd(), &mut header, flags) };
    if length < 0 {
        return match io::Error::last_os_error().kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Received::Nothing,
            _ => Received::Closed,
        };
    }
    let descriptors = take_descriptors(&header);
    if length == 0 && descriptors.is_empty() {
        return Received::Closed;
    }
    let bytes = bytes.get(..length as usize).unwrap_or(&bytes).to_vec();
    Received::Datagram(Datagram { bytes, descriptors })
}

fn take_descriptors(header: &libc::msghdr) -> Vec<OwnedFd> {
    let mut descriptors = Vec::new();
    // SAFETY: the kernel has filled msg_control and msg_controllen; the CMSG macros stay inside them.
    let mut message = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !message.is_null() {
        // SAFETY: `message` is a whole control message inside the buffer, by the macros' contract.
        let (level, kind, length) =
            unsafe { ((*message).cmsg_level, (*message).cmsg_type, (*message).cmsg_len) };
        if level == libc::SOL_SOCKET && kind == libc::SCM_RIGHTS {
            // SAFETY: CMSG_LEN only computes.
            let head_bytes = unsafe { libc::CMSG_LEN(0) } as usize;
            let count = length.saturating_sub(head_bytes) / size_of::<RawFd>();
            for index in 0..count {
                // SAFETY: the message holds `count` descriptors behind its head.
                let raw = unsafe { libc::CMSG_DATA(message).cast::<RawFd>().add(index).read_unaligned() };
                // SAFETY: the kernel has just installed it for us and nobody else owns it.
                descriptors.push(unsafe { OwnedFd::from_raw_fd(raw) });
            }
        }
        // SAFETY: as for CMSG_FIRSTHDR.
        message = unsafe { libc::CMSG_NXTHDR(header, message) };
    }
    descriptors
}

/// Sends a small datagram without waiting; an error only means that the other side has gone or does not read.
pub fn send(socket: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
    // SAFETY: pointer and length of a live slice.
    let sent = unsafe { libc::send(socket.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), flags) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}
