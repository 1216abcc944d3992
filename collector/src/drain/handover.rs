//! Who connects, and the memory file that they hand over. Nothing that a peer sends is trusted: its first word and
//! version are checked before anything else, and a foreign version is refused by name.

use super::ProcessDrain;
use super::mapping::{MappingError, open_segment};
use super::message::{Datagram, Received, receive, send};
use shared_abi::handover::{Hello, ImageFile, MessageKind, Verdict, Welcome};
use shared_abi::segment::SegmentError;
use shared_abi::version::{ABI_VERSION, MAGIC};
use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::PathBuf;
use zerocopy::{FromBytes, IntoBytes};

/// A connection that has not said hello by then is closed.
const HELLO_TIMEOUT_NS: u64 = 5_000_000_000;
/// Connections that may be without a hello at once.
const MAX_UNGREETED: usize = 64;
/// Bytes of a token.
pub const TOKEN_BYTES: usize = 64;

/// Why listening failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ListenError {
    /// The address does not fit.
    #[error("socket address `{address}` is empty or too long (at most 107 bytes); choose a shorter one")]
    Address {
        /// As given.
        address: String,
    },
    /// Another collector listens there.
    #[error("socket `{address}` is already served by another collector; stop it or choose another --socket")]
    InUse {
        /// As given.
        address: String,
    },
    /// Something else lies at that path.
    #[error("`{address}` exists and is not a socket; remove it or choose another --socket")]
    NotASocket {
        /// As given.
        address: String,
    },
    /// The operating system refused.
    #[error("listening on socket `{address}` failed while trying to {attempt}")]
    System {
        /// As given.
        address: String,
        /// What was tried.
        attempt: &'static str,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
}

/// Why a process was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// It speaks another version.
    #[error(
        "process {process} runs launchscope library ABI version {found}, this collector reads version {ABI_VERSION}: \
         install the same launchscope version on both sides and restart the process"
    )]
    ForeignVersion {
        /// Its id, or a word for a process of another pid namespace.
        process: String,
        /// Its version.
        found: u32,
    },
    /// Its token is not ours.
    #[error(
        "process {process} was refused: its LAUNCHSCOPE_TOKEN is not the one this collector was started with"
    )]
    WrongToken {
        /// Its id.
        process: String,
    },
    /// Its hello makes no sense.
    #[error("process {process} was refused: {reason}")]
    BadHello {
        /// Its id.
        process: String,
        /// What was wrong.
        reason: &'static str,
    },
    /// Reading it met an internal error.
    #[error(
        "process {process} is no longer read: its segment led to an internal error of launchscope, please report it"
    )]
    Internal {
        /// Its id.
        process: String,
    },
    /// Its segment is refused.
    #[error("process {process} was refused: {source}")]
    BadSegment {
        /// Its id.
        process: String,
        /// What was wrong.
        source: MappingError,
    },
}

/// A process that was accepted.
#[derive(Debug)]
pub struct Accepted {
    /// Its connection.
    pub connection: Connection,
    /// Its segment.
    pub drain: ProcessDrain,
    /// Its id: as this side sees it, or, from another pid namespace, as it sees itself.
    pub process_id: u32,
}

/// An image's file, for the image with this dictionary id.
#[derive(Debug)]
pub struct ReceivedImage {
    /// Dictionary id.
    pub image_id: u32,
    /// The file.
    pub file: OwnedFd,
}

/// What an accepted process sent.
#[derive(Debug)]
pub enum FromProcess {
    /// An image's file.
    Image(ReceivedImage),
    /// Something that makes no sense, or nothing of interest.
    Ignored,
    /// Nothing now.
    Nothing,
    /// It has ended, or closed.
    Closed,
}

/// The socket of one process.
#[derive(Debug)]
pub struct Connection {
    socket: OwnedFd,
    /// Process id as this side sees it; zero for one of another pid namespace.
    pub peer_process_id: u32,
}

impl Connection {
    /// Takes one message.
    pub fn receive(&self) -> FromProcess {
        let datagram = match receive(&self.socket) {
            Received::Datagram(datagram) => datagram,
            Received::Nothing => return FromProcess::Nothing,
            Received::Closed => return FromProcess::Closed,
        };
        let Ok(message) = ImageFile::read_from_bytes(&datagram.bytes) else { return FromProcess::Ignored };
        let mut descriptors = datagram.descriptors;
        match (message.kind == MessageKind::ImageFile as u32, descriptors.pop()) {
            (true, Some(file)) if descriptors.is_empty() => {
                FromProcess::Image(ReceivedImage { image_id: message.image_id, file })
            }
            _ => FromProcess::Ignored,
        }
    }

    /// Whether the process is known to be gone although its socket is open (a forked child may hold it).
    pub fn peer_is_gone(&self) -> bool {
        let Ok(pid) = i32::try_from(self.peer_process_id) else { return false };
        // SAFETY: signal 0 only asks whether the process exists.
        pid > 0
            && unsafe { libc::kill(pid, 0) } < 0
            && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH)
    }

    fn answer(&self, verdict: Verdict) {
        let welcome =
            Welcome { magic: MAGIC, abi_version: ABI_VERSION, verdict: verdict as u32, reserved: 0 };
        // A peer that has already gone needs no answer, but its segment is read all the same.
        let _gone = send(&self.socket, welcome.as_bytes());
    }
}

struct Ungreeted {
    connection: Connection,
    since_ns: u64,
}

/// Listens for engine processes.
pub struct Listener {
    socket: OwnedFd,
    path: Option<PathBuf>,
    token: Option<[u8; TOKEN_BYTES]>,
    ungreeted: Vec<Ungreeted>,
}

impl Listener {
    /// Listens on `address`: `@name` is abstract, anything else a path. A path socket may be connected to by every
    /// user, as an abstract one may: the token is what keeps strangers out.
    pub fn bind(address: &str, token: Option<[u8; TOKEN_BYTES]>) -> Result<Self, ListenError> {
        let (socket_address, length) = unix_address(address)?;
        let fail = |attempt| {
            let source = io::Error::last_os_error();
            ListenError::System { address: address.to_owned(), attempt, source }
        };
        let path = (!address.starts_with('@')).then(|| PathBuf::from(address));
        if let Some(path) = &path {
            remove_stale(address, path, &socket_address, length)?;
        }
        let socket = new_socket().map_err(|_| fail("create it"))?;
        // SAFETY: the address is initialized for `length` bytes.
        if unsafe { libc::bind(socket.as_raw_fd(), (&raw const socket_address).cast(), length) } < 0 {
            return Err(match io::Error::last_os_error().raw_os_error() {
                Some(libc::EADDRINUSE) => ListenError::InUse { address: address.to_owned() },
                _ => fail("bind it"),
            });
        }
        if let Some(path) = &path {
            let everyone = std::fs::Permissions::from_mode(0o666);
            std::fs::set_permissions(path, everyone).map_err(|_| fail("let every user connect"))?;
        }
        // SAFETY: a socket of ours.
        if unsafe { libc::listen(socket.as_raw_fd(), 128) } < 0 {
            return Err(fail("listen"));
        }
        Ok(Self { socket, path, token, ungreeted: Vec::new() })
    }

    /// Accepts who is waiting and answers hellos.
    pub fn poll(&mut self, now_ns: u64, mut on_hello: impl FnMut(Result<Accepted, Refusal>)) {
        while self.ungreeted.len() < MAX_UNGREETED
            && let Some(connection) = self.accept()
        {
            self.ungreeted.push(Ungreeted { connection, since_ns: now_ns });
        }
        for waiting in std::mem::take(&mut self.ungreeted) {
            match receive(&waiting.connection.socket) {
                Received::Datagram(datagram) => on_hello(self.greet(waiting.connection, datagram)),
                Received::Nothing if now_ns.saturating_sub(waiting.since_ns) < HELLO_TIMEOUT_NS => {
                    self.ungreeted.push(waiting);
                }
                Received::Nothing | Received::Closed => {}
            }
        }
    }

    fn accept(&self) -> Option<Connection> {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: null address pointers are allowed.
        let raw = unsafe {
            libc::accept4(self.socket.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut(), flags)
        };
        if raw < 0 {
            return None;
        }
        // SAFETY: freshly made by accept4, owned by nobody else.
        let socket = unsafe { OwnedFd::from_raw_fd(raw) };
        let peer_process_id = peer_process_id(&socket);
        Some(Connection { socket, peer_process_id })
    }

    fn greet(&self, connection: Connection, datagram: Datagram) -> Result<Accepted, Refusal> {
        let checked = self.check_hello(connection.peer_process_id, datagram);
        connection.answer(match &checked {
            Ok(_) => Verdict::Accepted,
            Err(Refusal::ForeignVersion { .. }) => Verdict::ForeignVersion,
            Err(Refusal::WrongToken { .. }) => Verdict::WrongToken,
            Err(_) => Verdict::BadSegment,
        });
        let (drain, process_id) = checked?;
        Ok(Accepted { connection, drain, process_id })
    }

    fn check_hello(&self, peer: u32, datagram: Datagram) -> Result<(ProcessDrain, u32), Refusal> {
        let process = || if peer == 0 { "of another pid namespace".to_owned() } else { peer.to_string() };
        let bad = |reason| Refusal::BadHello { process: process(), reason };
        let word = |from: usize| datagram.bytes.get(from..from + 4).and_then(|bytes| bytes.try_into().ok());
        if datagram.bytes.get(..8) != Some(&MAGIC.to_le_bytes()) {
            return Err(bad("it does not speak launchscope's protocol"));
        }
        let found = word(8).map(u32::from_le_bytes).ok_or_else(|| bad("its hello is cut short"))?;
        if found != ABI_VERSION {
            return Err(Refusal::ForeignVersion { process: process(), found });
        }
        let hello =
            Hello::read_from_bytes(&datagram.bytes).map_err(|_| bad("its hello has the wrong size"))?;
        if hello.kind != MessageKind::Hello as u32 {
            return Err(bad("its first message is not a hello"));
        }
        if self.token.is_some_and(|token| !tokens_are_equal(&token, &hello.token)) {
            return Err(Refusal::WrongToken { process: process() });
        }
        let mut descriptors = datagram.descriptors;
        let file = descriptors.pop().filter(|_| descriptors.is_empty());
        let file = file.ok_or_else(|| bad("its hello does not carry exactly one file descriptor"))?;
        match open_segment(file, hello.segment_bytes) {
            Ok((segment, mapping)) => {
                let process_id = if peer == 0 { hello.process_id } else { peer };
                Ok((ProcessDrain::new(segment, mapping), process_id))
            }
            Err(MappingError::Segment(SegmentError::ForeignVersion { found, .. })) => {
                Err(Refusal::ForeignVersion { process: process(), found })
            }
            Err(source) => Err(Refusal::BadSegment { process: process(), source }),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Some(path) = &self.path {
            // Someone else may have removed it already.
            let _gone = std::fs::remove_file(path);
        }
    }
}

/// Compares all bytes, so that the time does not tell how many were right.
fn tokens_are_equal(left: &[u8; TOKEN_BYTES], right: &[u8; TOKEN_BYTES]) -> bool {
    left.iter().zip(right).fold(0, |difference, (left, right)| difference | (left ^ right)) == 0
}

fn peer_process_id(socket: &OwnedFd) -> u32 {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut length = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: `who` has room for `length` bytes.
    let result = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            (&raw mut who).cast(),
            &mut length,
        )
    };
    if result < 0 { 0 } else { u32::try_from(who.pid).unwrap_or(0) }
}

fn new_socket() -> io::Result<OwnedFd> {
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // SAFETY: plain system call.
    let raw = unsafe { libc::socket(libc::AF_UNIX, kind, 0) };
    if raw < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: freshly made, owned by nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

fn unix_address(address: &str) -> Result<(libc::sockaddr_un, libc::socklen_t), ListenError> {
    // SAFETY: sockaddr_un is plain data for which all zeros is a valid value.
    let mut result: libc::sockaddr_un = unsafe { MaybeUninit::zeroed().assume_init() };
    result.sun_family = libc::AF_UNIX as libc::sa_family_t;
    let mut bytes = std::ffi::OsStr::new(address).as_bytes().to_vec();
    let is_abstract = bytes.first() == Some(&b'@');
    if is_abstract {
        bytes[0] = 0;
    }
    if bytes.len() < 2 || bytes.len() >= result.sun_path.len() {
        return Err(ListenError::Address { address: address.to_owned() });
    }
    for (target, byte) in result.sun_path.iter_mut().zip(&bytes) {
        *target = *byte as libc::c_char;
    }
    let head_bytes = std::mem::offset_of!(libc::sockaddr_un, sun_path);
    // An abstract name has no terminator: every byte of the length counts.
    let length = head_bytes + bytes.len() + usize::from(!is_abstract);
    Ok((result, length as libc::socklen_t))
}

/// Removes the socket that a dead collector left behind; one that answers is left alone.
fn remove_stale(
    address: &str,
    path: &PathBuf,
    socket_address: &libc::sockaddr_un,
    length: libc::socklen_t,
) -> Result<(), ListenError> {
    let Ok(metadata) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !metadata.file_type().is_socket() {
        return Err(ListenError::NotASocket { address: address.to_owned() });
    }
    let fail = |attempt, source| ListenError::System { address: address.to_owned(), attempt, source };
    let probe = new_socket().map_err(|source| fail("create a socket to probe it", source))?;
    // SAFETY: the address is initialized for `length` bytes.
    let connected =
        unsafe { libc::connect(probe.as_raw_fd(), std::ptr::from_ref(socket_address).cast(), length) };
    if connected == 0 || io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN) {
        return Err(ListenError::InUse { address: address.to_owned() });
    }
    std::fs::remove_file(path).map_err(|source| fail("remove the one a dead collector left", source))
}
