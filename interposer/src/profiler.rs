//! Everything that one armed process has, in one place that is never freed. The stages get what they need from here.

use crate::clock::{host_ns, wall_ns};
use crate::config::Config;
use crate::graph::Graphs;
use crate::log::Log;
use crate::name_once::{NAME_SLOTS, NameTable};
use crate::ring_writer::RingWriter;
use crate::sampler::Epoch;
use crate::stack_capture::StackCapture;
use crate::status_board::StatusBoard;
use crate::thread_state::{Slots, thread_ends};
use crate::window::contexts::Contexts;
use crate::window::gate::Gate;
use bindings::cuda_driver::DriverApi;
use core::fmt;
use core::ptr::{self, NonNull};
use shared_abi::counters::Counter;
use shared_abi::segment::{Identity, Segment, Sizes};
use shared_abi::sync::{AtomicBool, AtomicU32, Ordering};
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd, RawFd};
use zerocopy::FromZeros as _;

/// Set in [`Profiler::attention`] while a CUPTI window is open.
pub const ATTENTION_WINDOW: u32 = 1;
/// Set in [`Profiler::attention`] while a stream captures.
pub const ATTENTION_CAPTURE: u32 = 2;

/// Everything that one armed process has.
pub struct Profiler {
    /// The shared memory.
    pub segment: Segment,
    /// Its memfd, for the hand-over.
    pub segment_fd: OwnedFd,
    /// The settings.
    pub config: Config,
    /// Messages for people.
    pub log: Log,
    /// The driver.
    pub driver: DriverApi,
    /// Holds launches while CUPTI comes and goes.
    pub gate: Gate,
    /// Threads at the gate.
    pub slots: Slots,
    /// Sampling windows.
    pub epoch: Epoch,
    /// Why a launch must be looked at even if no sampler chose it.
    pub attention: AtomicU32,
    /// Number of the open CUPTI window, or of the last one.
    pub window_id: AtomicU32,
    /// Something was launched.
    pub has_launched: AtomicBool,
    /// The process is exiting: CUPTI is left alone.
    pub exiting: AtomicBool,
    /// The helper thread is inside a CUPTI call that must not be cut short by the process's exit.
    pub inside_cupti: AtomicBool,
    /// Some launch function is seen only through CUPTI callbacks.
    pub needs_callbacks: AtomicBool,
    /// Contexts that have launched.
    pub contexts: Contexts,
    /// Takes stacks.
    pub stacks: StackCapture,
    /// Kernel names.
    pub names: NameTable,
    /// Captured graphs.
    pub graphs: Graphs,
    /// Statuses.
    pub statuses: StatusBoard,
    /// Frees a thread's state when it ends.
    pub thread_key: libc::pthread_key_t,
}

impl fmt::Debug for Profiler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profiler").field("config", &self.config).finish_non_exhaustive()
    }
}

/// Why a process could not be armed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArmError {
    /// memfd_create, ftruncate, sealing or mmap failed with this errno.
    SharedMemory {
        /// Which call.
        call: &'static str,
        /// Its errno.
        errno: i32,
    },
    /// No key for thread-local clean-up was left.
    NoThreadKey,
}

impl fmt::Display for ArmError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::SharedMemory { call, errno } => {
                write!(f, "no shared memory for the ring: {call} failed, errno {errno}")
            }
            Self::NoThreadKey => f.write_str("pthread_key_create failed: no thread keys are left"),
        }
    }
}

impl Profiler {
    /// Makes the profiler of this process: shared memory and tables, no thread and no hook yet. Allocates.
    pub fn new(config: Config, driver: DriverApi, sizes: Sizes) -> Result<&'static Self, ArmError> {
        let (segment, segment_fd) = create_segment(sizes)?;
        let mut thread_key = 0;
        // SAFETY: the pointer is valid; the destructor is a function of this library, which stays loaded.
        if unsafe { libc::pthread_key_create(&mut thread_key, Some(thread_ends)) } != 0 {
            return Err(ArmError::NoThreadKey);
        }
        let log = Log::new(&config);
        Ok(Box::leak(Box::new(Self {
            segment,
            segment_fd,
            log,
            driver,
            gate: Gate::new(),
            slots: Slots::new(),
            epoch: Epoch::default(),
            attention: AtomicU32::new(0),
            window_id: AtomicU32::new(0),
            has_launched: AtomicBool::new(false),
            exiting: AtomicBool::new(false),
            inside_cupti: AtomicBool::new(false),
            needs_callbacks: AtomicBool::new(false),
            contexts: Contexts::new(),
            stacks: StackCapture::new(segment),
            names: NameTable::new(NAME_SLOTS),
            graphs: Graphs::new(segment),
            statuses: StatusBoard::new(segment, log),
            thread_key,
            config,
        })))
    }

    /// Adds to a counter of the process.
    pub fn count(&self, counter: Counter, amount: u64) {
        // Relaxed: a count.
        self.segment.counter(counter as usize).fetch_add(amount, Ordering::Relaxed);
    }

    /// Raises a counter that keeps a maximum.
    pub fn count_max(&self, counter: Counter, value: u64) {
        self.segment.counter(counter as usize).fetch_max(value, Ordering::Relaxed);
    }

    /// Writes records.
    pub fn ring(&self) -> RingWriter {
        RingWriter::new(self.segment)
    }
}

fn create_segment(sizes: Sizes) -> Result<(Segment, OwnedFd), ArmError> {
    let failed = |call| ArmError::SharedMemory {
        call,
        errno: std::io::Error::last_os_error().raw_os_error().unwrap_or(0),
    };
    // SAFETY: a C string and flags.
    let raw =
        unsafe { libc::memfd_create(c"launchscope".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) };
    if raw < 0 {
        return Err(failed("memfd_create"));
    }
    // SAFETY: the descriptor was just made and belongs to nobody else.
    let fd = unsafe { OwnedFd::from_raw_fd(raw) };
    let bytes = sizes.segment_bytes();
    // SAFETY: a descriptor of ours and a size.
    if unsafe { libc::ftruncate(raw, bytes as libc::off_t) } != 0 {
        return Err(failed("ftruncate"));
    }
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;
    // SAFETY: a descriptor of ours; the collector checks the seals, so that it cannot be hit by SIGBUS.
    if unsafe { libc::fcntl(raw, libc::F_ADD_SEALS, seals) } != 0 {
        return Err(failed("fcntl(F_ADD_SEALS)"));
    }
    let base = map(&fd, bytes).ok_or_else(|| failed("mmap"))?;
    // SAFETY: freshly mapped, zero, page-aligned, of the size that `sizes` asks for, and never unmapped here.
    let segment = unsafe { Segment::create(base, sizes, identity()) };
    Ok((segment, fd))
}

fn map(fd: &OwnedFd, bytes: u64) -> Option<NonNull<u8>> {
    // SAFETY: a new shared mapping of our own memfd.
    let base = unsafe {
        libc::mmap(
            ptr::null_mut(),
            bytes as usize,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_SHARED,
            fd.as_raw_fd(),
            0,
        )
    };
    if base == libc::MAP_FAILED {
        return None;
    }
    // SAFETY: the range was just mapped. A forked child must not write into its parent's ring.
    unsafe { libc::madvise(base, bytes as usize, libc::MADV_DONTFORK) };
    NonNull::new(base.cast())
}

fn identity() -> Identity {
    let mut identity = Identity::new_zeroed();
    identity.process_id = std::process::id();
    identity.armed_host_ns = host_ns();
    identity.armed_wall_ns = wall_ns();
    identity.library_version = library_version();
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    let digits: Vec<u8> =
        boot.bytes().filter_map(|digit| (digit as char).to_digit(16).map(|value| value as u8)).collect();
    for (byte, pair) in identity.boot_id.iter_mut().zip(digits.chunks_exact(2)) {
        *byte = pair.iter().fold(0, |value, digit| value << 4 | digit);
    }
    identity
}

/// Version of this library, NUL-padded.
pub fn library_version() -> [u8; 32] {
    let mut version = [0u8; 32];
    for (to, from) in version.iter_mut().zip(env!("CARGO_PKG_VERSION").bytes()) {
        *to = from;
    }
    version
}

/// The raw descriptor of a profiler's segment.
pub fn segment_descriptor(profiler: &Profiler) -> RawFd {
    profiler.segment_fd.as_raw_fd()
}
