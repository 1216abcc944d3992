//! A producer for tests: a real sealed memfd written with shared-abi's own functions, handed over on a real socket.
#![allow(dead_code, reason = "each test binary uses its part")]

use launchscope::aggregate::profile::{Profile, ProfileMeta, WeightedStack};
use launchscope::pipeline::{Pipeline, ProfileBuilder};
use memmap2::{MmapOptions, MmapRaw};
use shared_abi::counters::{Counter, LaneCounter};
use shared_abi::dictionary::{
    DefinitionKind, GraphHead, GraphNode, ImageHead, PYTHON_ENTRY_FRAME, SiteHead, StackHead, define,
};
use shared_abi::handover::{Hello, ImageFile, MessageKind, Welcome};
use shared_abi::record::{
    Activity, ActivityHeader, ActivityKind, LAUNCH_CHOSEN, LAUNCH_IN_WINDOW, LaunchKind, LaunchSample,
    NO_GRAPH_NODE, RecordKind, StatusChanged, WindowClosed, WindowOutcome,
};
use shared_abi::ring::push;
use shared_abi::segment::{Identity, LiveWord, Segment, Sizes};
use shared_abi::sync::AtomicU32;
use shared_abi::sync::Ordering;
use std::fs::File;
use std::mem::{size_of, size_of_val};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::time::Duration;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

pub const SIZES: Sizes = Sizes { lane_count: 4, slot_count: 4096, dictionary_bytes: 1 << 20 };

/// A socket name that no other test uses.
pub fn fresh_socket() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!("@launchscope-test-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Whether the memfd is sealed as it must be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Sealing {
    Sealed,
    Unsealed,
}

pub struct Producer {
    pub segment: Segment,
    pub memory_file: OwnedFd,
    pub socket: OwnedFd,
    _map: MmapRaw,
}

impl Producer {
    /// Connects and says hello as the interposer does.
    pub fn connect(address: &str) -> Self {
        let producer = Self::without_hello(address, Sealing::Sealed);
        producer.say(producer.hello("").as_bytes(), &[producer.memory_file.as_raw_fd()]);
        producer
    }

    /// Connects and says nothing yet.
    pub fn without_hello(address: &str, sealing: Sealing) -> Self {
        let bytes = SIZES.segment_bytes();
        let (memory_file, map, segment) = new_segment(bytes);
        if sealing == Sealing::Sealed {
            let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;
            // SAFETY: a memfd of ours.
            assert_eq!(unsafe { libc::fcntl(memory_file.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
        }
        Self { segment, memory_file, socket: connect(address), _map: map }
    }

    /// The same process with a new connection, to another collector.
    pub fn reconnect(self, address: &str) -> Self {
        Self { socket: connect(address), ..self }
    }

    pub fn hello(&self, token: &str) -> Hello {
        let mut token_bytes = [0; 64];
        token_bytes[..token.len()].copy_from_slice(token.as_bytes());
        Hello::new(SIZES.segment_bytes(), std::process::id(), token_bytes, [0; 32])
    }

    /// Sends one message with these descriptors.
    pub fn say(&self, bytes: &[u8], descriptors: &[RawFd]) {
        send(&self.socket, bytes, descriptors);
    }

    /// The collector's answer, if it came.
    pub fn welcome(&self) -> Option<Welcome> {
        let mut bytes = [0u8; size_of::<Welcome>()];
        // SAFETY: pointer and length of a live buffer.
        let read = unsafe {
            libc::recv(self.socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), libc::MSG_DONTWAIT)
        };
        (read == bytes.len() as isize).then(|| Welcome::read_from_bytes(&bytes).expect("its size"))
    }

    pub fn define(&self, kind: DefinitionKind, id: u32, parts: &[&[u8]]) {
        define(&self.segment, kind, id, parts).expect("room in the dictionary");
    }

    pub fn site(&self, id: u32, name: &str, file: &str, line: u32) {
        let head =
            SiteHead { line, first_line: 1, name_bytes: name.len() as u32, file_bytes: file.len() as u32 };
        self.define(DefinitionKind::Site, id, &[head.as_bytes(), name.as_bytes(), file.as_bytes()]);
    }

    /// `python`: site ids, innermost first, all of them entry frames.
    pub fn stack(&self, id: u32, native: &[u64], python: &[u32]) {
        let head =
            StackHead { native_count: native.len() as u16, python_count: python.len() as u16, flags: 0 };
        let python: Vec<u32> = python.iter().map(|site| site | PYTHON_ENTRY_FRAME).collect();
        self.define(DefinitionKind::Stack, id, &[head.as_bytes(), native.as_bytes(), python.as_bytes()]);
    }

    pub fn name(&self, id: u32, mangled: &str) {
        self.define(DefinitionKind::Name, id, &[mangled.as_bytes()]);
    }

    pub fn graph(&self, id: u32, nodes: &[GraphNode]) {
        let head = GraphHead { node_count: nodes.len() as u32, unknown_count: 0 };
        self.define(DefinitionKind::Graph, id, &[head.as_bytes(), nodes.as_bytes()]);
    }

    pub fn image(&self, id: u32, head: ImageHead, path: &str) {
        let head = ImageHead { path_bytes: path.len() as u32, ..head };
        self.define(DefinitionKind::Image, id, &[head.as_bytes(), path.as_bytes()]);
    }

    pub fn send_image_file(&self, image_id: u32, file: &File) {
        let message = ImageFile { kind: MessageKind::ImageFile as u32, image_id, reserved: 0 };
        self.say(message.as_bytes(), &[file.as_raw_fd()]);
    }

    pub fn push(&self, kind: RecordKind, parts: &[&[u8]]) {
        push(&self.segment, kind as u16, 1, parts).expect("room in the ring");
    }

    pub fn launch(&self, launch: LaunchSample) {
        self.push(RecordKind::LaunchSample, &[launch.as_bytes()]);
    }

    pub fn activities(&self, window_id: u32, activities: &[Activity]) {
        let header = ActivityHeader { window_id, count: activities.len() as u32, reserved: 0 };
        self.push(RecordKind::ActivityBatch, &[header.as_bytes(), activities.as_bytes()]);
    }

    pub fn window_closed(&self, window_id: u32, outcome: WindowOutcome) {
        let window = WindowClosed { window_id, outcome: outcome as u32, ..WindowClosed::new_zeroed() };
        self.push(RecordKind::WindowClosed, &[window.as_bytes()]);
    }

    pub fn status(&self, code: u32, holds: bool, detail: &str) {
        let mut status = StatusChanged { code, holds: holds.into(), ..StatusChanged::new_zeroed() };
        status.text_bytes = detail.len() as u16;
        status.text[..detail.len()].copy_from_slice(detail.as_bytes());
        self.push(RecordKind::StatusChanged, &[status.as_bytes()]);
        let bits = self.segment.live(LiveWord::StatusBits);
        let bit = 1u64 << code;
        if holds {
            bits.fetch_or(bit, Ordering::Relaxed)
        } else {
            bits.fetch_and(!bit, Ordering::Relaxed)
        };
    }

    pub fn count(&self, counter: Counter, value: u64) {
        self.segment.counter(counter as usize).store(value, Ordering::Relaxed);
    }

    pub fn count_lane(&self, lane: u32, counter: LaneCounter, value: u64) {
        self.segment.lane_counter(lane, counter as usize).store(value, Ordering::Relaxed);
    }
}

/// A chosen launch inside window 1.
pub fn launch_in_window(kind: LaunchKind, stack_id: u32, correlation_id: u32) -> LaunchSample {
    LaunchSample {
        inclusion_probability_bits: 0.5f64.to_bits(),
        launch_kind: kind as u32,
        flags: LAUNCH_CHOSEN | LAUNCH_IN_WINDOW,
        stack_id,
        window_id: 1,
        correlation_id,
        ..LaunchSample::new_zeroed()
    }
}

/// A kernel that ran for `duration_ns`, by itself.
pub fn kernel(correlation_id: u32, name_id: u32, duration_ns: u64) -> Activity {
    Activity {
        start_device_ns: 1000,
        end_device_ns: 1000 + duration_ns,
        activity_kind: ActivityKind::Kernel as u32,
        correlation_id,
        name_id,
        graph_node: NO_GRAPH_NODE,
        ..Activity::new_zeroed()
    }
}

/// Lets the pipeline read until nothing more can be new.
pub fn settle(pipeline: &mut Pipeline) {
    for _ in 0..4 {
        pipeline.poll();
        std::thread::sleep(Duration::from_millis(6));
    }
    pipeline.poll();
}

/// The profile of everything until now.
pub fn profile_of(pipeline: &mut Pipeline) -> Profile {
    let snapshot = pipeline.take_sums();
    ProfileBuilder::default().build(&snapshot.processes, &snapshot.files, ProfileMeta::default())
}

/// Names of a stack's frames, root first, without the process.
pub fn launch_view(profile: &Profile, stack: &WeightedStack) -> Vec<String> {
    stack.launch_view.iter().skip(1).map(|id| profile.frame(*id).name.clone()).collect()
}

/// The same of the capture view.
pub fn capture_view(profile: &Profile, stack: &WeightedStack) -> Vec<String> {
    stack.capture_view.iter().skip(1).map(|id| profile.frame(*id).name.clone()).collect()
}

/// A line of the ledger.
pub fn ledger(profile: &Profile, key: &str) -> u64 {
    profile.ledger.iter().find(|line| line.key == key).unwrap_or_else(|| panic!("no ledger line {key}")).count
}

fn new_segment(bytes: u64) -> (OwnedFd, MmapRaw, Segment) {
    // SAFETY: plain system call with a constant name.
    let raw = unsafe {
        libc::memfd_create(c"launchscope-test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    };
    assert!(raw >= 0);
    // SAFETY: freshly made, owned by nobody else.
    let file = File::from(unsafe { OwnedFd::from_raw_fd(raw) });
    file.set_len(bytes).expect("memfd grows");
    let map = MmapOptions::new().len(bytes as usize).map_raw(&file).expect("memfd maps");
    let base = NonNull::new(map.as_mut_ptr()).expect("mapped");
    let who = Identity { process_id: std::process::id(), ..Identity::new_zeroed() };
    // SAFETY: a fresh map of SIZES.segment_bytes() zero bytes, kept beside the segment.
    let segment = unsafe { Segment::create(base, SIZES, who) };
    (file.into(), map, segment)
}

fn connect(address: &str) -> OwnedFd {
    // SAFETY: sockaddr_un is plain data.
    let mut target: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    target.sun_family = libc::AF_UNIX as libc::sa_family_t;
    for (place, byte) in target.sun_path.iter_mut().zip(address.bytes()) {
        *place = if byte == b'@' { 0 } else { byte as libc::c_char };
    }
    let is_path = !address.starts_with('@');
    let length = size_of::<libc::sa_family_t>() + address.len() + usize::from(is_path);
    // SAFETY: plain system calls with a live address.
    unsafe {
        let raw = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        assert!(raw >= 0);
        let connected = libc::connect(raw, (&raw const target).cast(), length as libc::socklen_t);
        assert_eq!(connected, 0, "connect: {}", std::io::Error::last_os_error());
        OwnedFd::from_raw_fd(raw)
    }
}

fn send(socket: &OwnedFd, bytes: &[u8], descriptors: &[RawFd]) {
    let mut control = [0u64; 64];
    let mut vector = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    // SAFETY: msghdr is plain data, and all its pointers are to live buffers; the control buffer has room for 100
    // descriptors.
    unsafe {
        let mut header: libc::msghdr = std::mem::zeroed();
        header.msg_iov = &mut vector;
        header.msg_iovlen = 1;
        if !descriptors.is_empty() {
            let payload = size_of_val(descriptors);
            header.msg_control = control.as_mut_ptr().cast();
            header.msg_controllen = libc::CMSG_SPACE(payload as u32) as _;
            let message = libc::CMSG_FIRSTHDR(&header);
            (*message).cmsg_level = libc::SOL_SOCKET;
            (*message).cmsg_type = libc::SCM_RIGHTS;
            (*message).cmsg_len = libc::CMSG_LEN(payload as u32) as _;
            std::ptr::copy_nonoverlapping(
                descriptors.as_ptr().cast::<u8>(),
                libc::CMSG_DATA(message),
                payload,
            );
        }
        let sent = libc::sendmsg(socket.as_raw_fd(), &header, libc::MSG_NOSIGNAL);
        assert_eq!(sent, bytes.len() as isize, "send: {}", std::io::Error::last_os_error());
    }
}
