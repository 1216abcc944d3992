//! Signals as data: blocked, and read from a file descriptor, so that no handler ever runs.

use std::io;
use std::mem::{MaybeUninit, size_of};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

/// Who sent a signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sender {
    /// The kernel: a terminal key, which reaches every process of the foreground group.
    Kernel,
    /// A process, to us alone.
    Process,
}

/// A signal that arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrived {
    /// Its number.
    pub number: i32,
    /// Who sent it.
    pub sender: Sender,
}

/// A set of signals that arrive here instead of interrupting.
#[derive(Debug)]
pub struct Signals {
    descriptor: OwnedFd,
    before: libc::sigset_t,
}

impl Signals {
    /// Blocks these signals in this thread and those it starts. Call it before there are others.
    pub fn block(numbers: &[i32]) -> io::Result<Self> {
        // SAFETY: sigset_t is plain data; sigemptyset initializes it.
        let (mut set, mut before): (libc::sigset_t, libc::sigset_t) =
            unsafe { (MaybeUninit::zeroed().assume_init(), MaybeUninit::zeroed().assume_init()) };
        // SAFETY: all pointers are to live sets.
        let descriptor = unsafe {
            libc::sigemptyset(&mut set);
            for number in numbers {
                libc::sigaddset(&mut set, *number);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, &mut before);
            libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK)
        };
        if descriptor < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: freshly made, owned by nobody else.
        let descriptor = unsafe { OwnedFd::from_raw_fd(descriptor) };
        Ok(Self { descriptor, before })
    }

    /// What was blocked before, for a child.
    pub fn mask_before(&self) -> libc::sigset_t {
        self.before
    }

    /// Waits until a signal arrives or the time is over; returns all that have arrived.
    pub fn wait(&self, at_most: Duration) -> Vec<Arrived> {
        let mut poll = libc::pollfd { fd: self.descriptor.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let milliseconds = i32::try_from(at_most.as_millis()).unwrap_or(i32::MAX);
        // SAFETY: one live pollfd.
        unsafe { libc::poll(&mut poll, 1, milliseconds) };
        std::iter::from_fn(|| self.next()).collect()
    }

    fn next(&self) -> Option<Arrived> {
        // SAFETY: signalfd_siginfo is plain data.
        let mut info: libc::signalfd_siginfo = unsafe { MaybeUninit::zeroed().assume_init() };
        let bytes = size_of::<libc::signalfd_siginfo>();
        // SAFETY: `info` has room for `bytes` bytes.
        let read = unsafe { libc::read(self.descriptor.as_raw_fd(), (&raw mut info).cast(), bytes) };
        (read == bytes as isize).then_some(Arrived {
            number: info.ssi_signo as i32,
            sender: if info.ssi_code > 0 { Sender::Kernel } else { Sender::Process },
        })
    }
}

/// Ends this process by signal `number`, as the command was, without a core file of our own.
pub fn end_by(number: i32) {
    let no_core = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: plain system calls with live arguments; the default action of a fatal signal ends the process.
    unsafe {
        libc::setrlimit(libc::RLIMIT_CORE, &no_core);
        libc::signal(number, libc::SIG_DFL);
        let mut set: libc::sigset_t = MaybeUninit::zeroed().assume_init();
        libc::sigemptyset(&mut set);
        libc::sigaddset(&mut set, number);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, &set, std::ptr::null_mut());
        libc::raise(number);
    }
}

/// `SIGSEGV` and the like.
pub fn name(number: i32) -> String {
    let known = match number {
        libc::SIGHUP => "SIGHUP",
        libc::SIGINT => "SIGINT",
        libc::SIGQUIT => "SIGQUIT",
        libc::SIGILL => "SIGILL",
        libc::SIGTRAP => "SIGTRAP",
        libc::SIGABRT => "SIGABRT",
        libc::SIGBUS => "SIGBUS",
        libc::SIGFPE => "SIGFPE",
        libc::SIGKILL => "SIGKILL",
        libc::SIGUSR1 => "SIGUSR1",
        libc::SIGSEGV => "SIGSEGV",
        libc::SIGUSR2 => "SIGUSR2",
        libc::SIGPIPE => "SIGPIPE",
        libc::SIGALRM => "SIGALRM",
        libc::SIGTERM => "SIGTERM",
        _ => return format!("signal {number}"),
    };
    known.to_owned()
}
