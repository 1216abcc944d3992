//! Hands the segment and the files of mapped images to the collector, and comes back for ever when there is none.
//!
//! In: new images. Out: `Hello` with the memfd, then an `ImageFile` with a descriptor for each image.
//! Drops when: an image's file cannot be opened (its addresses stay unsymbolized, not lost).
//! Runs on: the helper thread. Syscalls: socket, connect, sendmsg, recv, open; none blocks.

use crate::config::LogLevel;
use crate::image_events::NewImage;
use crate::lifecycle::SOCKET_FD;
use crate::profiler::{Profiler, library_version, segment_descriptor};
use core::mem;
use core::ptr;
use core::time::Duration;
use shared_abi::handover::{Hello, ImageFile, MessageKind, Verdict, Welcome};
use shared_abi::sync::Ordering;
use std::collections::VecDeque;
use std::fs::File;
use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::time::Instant;
use zerocopy::{FromBytes as _, IntoBytes as _};

const RECONNECT: Duration = Duration::from_millis(500);
/// After a refusal there is little hope: another collector may come.
const AFTER_REFUSAL: Duration = Duration::from_secs(10);
/// Images sent in one turn, so that a turn stays short.
const IMAGES_PER_TURN: usize = 64;

/// The connection to the collector.
#[derive(Debug)]
pub struct Handover {
    profiler: &'static Profiler,
    /// All images so far: a new collector gets them again.
    images: Vec<NewImage>,
    phase: Phase,
}

#[derive(Debug)]
enum Phase {
    Disconnected { retry_at: Instant },
    HelloSent { socket: OwnedFd },
    Accepted { socket: OwnedFd, unsent: VecDeque<usize> },
}

impl Handover {
    /// Not connected yet.
    pub fn new(profiler: &'static Profiler) -> Self {
        Self { profiler, images: Vec::new(), phase: Phase::Disconnected { retry_at: Instant::now() } }
    }

    /// Does what can be done without waiting.
    pub fn turn(&mut self, new_images: Vec<NewImage>) {
        let first_new = self.images.len();
        self.images.extend(new_images);
        if let Phase::Accepted { unsent, .. } = &mut self.phase {
            unsent.extend(first_new..self.images.len());
        }
        let phase = mem::replace(&mut self.phase, Phase::Disconnected { retry_at: Instant::now() });
        self.phase = match phase {
            Phase::Disconnected { retry_at } if retry_at > Instant::now() => Phase::Disconnected { retry_at },
            Phase::Disconnected { .. } => self.connect(),
            Phase::HelloSent { socket } => self.await_welcome(socket),
            Phase::Accepted { socket, unsent } => self.send_images(socket, unsent),
        };
        if let Phase::Disconnected { .. } = self.phase {
            SOCKET_FD.store(-1, Ordering::Relaxed);
        }
    }

    fn connect(&self) -> Phase {
        match self.say_hello() {
            Ok(socket) => {
                SOCKET_FD.store(socket.as_raw_fd(), Ordering::Relaxed);
                self.await_welcome(socket)
            }
            Err(_) => Phase::Disconnected { retry_at: Instant::now() + RECONNECT },
        }
    }

    fn say_hello(&self) -> Result<OwnedFd, Error> {
        let flags = libc::SOCK_SEQPACKET | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: plain numbers.
        let raw = unsafe { libc::socket(libc::AF_UNIX, flags, 0) };
        if raw < 0 {
            return Err(Error::last_os_error());
        }
        // SAFETY: just made, and nobody else's.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        let (address, bytes) =
            address(self.profiler.config.socket.as_bytes()).ok_or(ErrorKind::InvalidInput)?;
        // SAFETY: an initialized address and the number of its bytes in use.
        if unsafe { libc::connect(raw, (&raw const address).cast(), bytes) } != 0 {
            return Err(Error::last_os_error());
        }
        let identity = self.profiler.segment.identity();
        let hello = Hello::new(
            identity.segment_bytes,
            identity.process_id,
            self.profiler.config.token,
            library_version(),
        );
        send(&socket, hello.as_bytes(), segment_descriptor(self.profiler))?;
        Ok(socket)
    }

    fn await_welcome(&self, socket: OwnedFd) -> Phase {
        let mut bytes = [0u8; mem::size_of::<Welcome>()];
        match receive(&socket, &mut bytes) {
            Ok(count) if count == bytes.len() => self.welcomed(socket, &bytes),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Phase::HelloSent { socket },
            _ => Phase::Disconnected { retry_at: Instant::now() + RECONNECT },
        }
    }

    fn welcomed(&self, socket: OwnedFd, bytes: &[u8]) -> Phase {
        let Ok(welcome) = Welcome::read_from_bytes(bytes) else {
            return Phase::Disconnected { retry_at: Instant::now() + AFTER_REFUSAL };
        };
        if welcome.verdict == Verdict::Accepted as u32 {
            self.profiler.log.line(LogLevel::Info, format_args!("a collector reads the ring"));
            return self.send_images(socket, (0..self.images.len()).collect());
        }
        self.profiler.log.line(
            LogLevel::Warn,
            format_args!(
                "the collector refused us: verdict {}, its ABI version is {}, ours {}",
                welcome.verdict,
                welcome.abi_version,
                shared_abi::version::ABI_VERSION
            ),
        );
        Phase::Disconnected { retry_at: Instant::now() + AFTER_REFUSAL }
    }

    fn send_images(&self, socket: OwnedFd, mut unsent: VecDeque<usize>) -> Phase {
        for _ in 0..IMAGES_PER_TURN {
            let Some(image) = unsent.front().and_then(|index| self.images.get(*index)) else { break };
            match send_image(&socket, image) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Phase::Disconnected { retry_at: Instant::now() + RECONNECT },
                Ok(()) => {
                    unsent.pop_front();
                }
            }
        }
        // The collector never speaks again; an end of file means that it has gone.
        match receive(&socket, &mut [0u8; 8]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => Phase::Accepted { socket, unsent },
            _ => Phase::Disconnected { retry_at: Instant::now() + RECONNECT },
        }
    }
}

fn send_image(socket: &OwnedFd, image: &NewImage) -> Result<(), Error> {
    // A file that is gone or may not be read is no reason to stop.
    let Some(file) = image.open_path.as_ref().and_then(|path| File::open(path).ok()) else { return Ok(()) };
    let message = ImageFile { kind: MessageKind::ImageFile as u32, image_id: image.image_id, reserved: 0 };
    send(socket, message.as_bytes(), file.as_raw_fd())
}

/// `@name` is an abstract address, anything else a path.
fn address(socket: &[u8]) -> Option<(libc::sockaddr_un, libc::socklen_t)> {
    // SAFETY: all zeros is a valid address of no family.
    let mut address: libc::sockaddr_un = unsafe { mem::zeroed() };
    address.sun_family = libc::AF_UNIX as libc::sa_family_t;
    if socket.is_empty() || socket.len() >= address.sun_path.len() {
        return None;
    }
    for (to, from) in address.sun_path.iter_mut().zip(socket) {
        *to = *from as libc::c_char;
    }
    let is_abstract = socket.first() == Some(&b'@');
    if let (true, Some(first)) = (is_abstract, address.sun_path.first_mut()) {
        *first = 0;
    }
    let terminator = usize::from(!is_abstract);
    let bytes = mem::offset_of!(libc::sockaddr_un, sun_path) + socket.len() + terminator;
    Some((address, bytes as libc::socklen_t))
}

/// One datagram with one descriptor.
fn send(socket: &OwnedFd, bytes: &[u8], descriptor: RawFd) -> Result<(), Error> {
    #[repr(C, align(8))]
    struct Control([u8; 24]);
    const _: () = assert!(mem::size_of::<libc::cmsghdr>() + mem::size_of::<RawFd>() <= 24);
    let mut control = Control([0; 24]);
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: all zeros is a valid empty message header.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    message.msg_iov = &mut part;
    message.msg_iovlen = 1;
    message.msg_control = control.0.as_mut_ptr().cast();
    message.msg_controllen = control.0.len();
    // SAFETY: the control buffer is aligned and has room for one header with one descriptor, which is what is written.
    unsafe {
        let header = libc::CMSG_FIRSTHDR(&message);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(mem::size_of::<RawFd>() as u32) as _;
        ptr::write_unaligned(libc::CMSG_DATA(header).cast::<RawFd>(), descriptor);
    }
    // SAFETY: the message refers to live buffers; nothing is kept after the call.
    let sent =
        unsafe { libc::sendmsg(socket.as_raw_fd(), &message, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT) };
    if sent < 0 { Err(Error::last_os_error()) } else { Ok(()) }
}

fn receive(socket: &OwnedFd, bytes: &mut [u8]) -> Result<usize, Error> {
    // SAFETY: a live buffer and its length.
    let count =
        unsafe { libc::recv(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT) };
    usize::try_from(count).map_err(|_| Error::last_os_error())
}
