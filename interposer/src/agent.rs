//! The helper thread: windows when they are due; every 100 ms heartbeat, images, hand-over, statuses.
//!
//! All signals are blocked on it, so that the engine's handlers never run here. It is never joined.

use crate::clock::host_ns;
use crate::config::LogLevel;
use crate::guard::panic_fence;
use crate::handover::Handover;
use crate::image_events::ImageTable;
use crate::launch_hook::install::describe_changes;
use crate::launch_hook::table::Way;
use crate::lifecycle;
use crate::profiler::Profiler;
use crate::thread_state::lane_total;
use crate::window::Windows;
use core::mem::MaybeUninit;
use core::ptr;
use core::time::Duration;
use shared_abi::counters::{Counter, LaneCounter};
use shared_abi::dictionary::{DefinitionKind, define};
use shared_abi::segment::LiveWord;
use shared_abi::status::Status;
use shared_abi::sync::Ordering;

const CHORES: Duration = Duration::from_millis(100);
const STATISTICS: Duration = Duration::from_secs(10);

/// Starts the helper thread. Without one (a process that may have no more threads) launches are counted and sampled all
/// the same, but nobody fetches them.
pub fn start(profiler: &'static Profiler) {
    let mut windows = Windows::new(profiler);
    windows.attach_for_callbacks();
    let mut old = MaybeUninit::uninit();
    let mut all = MaybeUninit::uninit();
    // SAFETY: both sets are written by the calls before they are read; the thread inherits the full mask.
    unsafe {
        libc::sigfillset(all.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), old.as_mut_ptr());
    }
    let started = std::thread::Builder::new()
        .name("launchscope".into())
        .stack_size(1 << 20)
        .spawn(move || Agent::new(profiler, windows).run());
    // SAFETY: `old` was written above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), ptr::null_mut()) };
    if let Err(error) = started {
        profiler.log.line(LogLevel::Error, format_args!("no helper thread: {error}"));
    }
}

struct Agent {
    profiler: &'static Profiler,
    windows: Windows,
    images: ImageTable,
    handover: Handover,
    hooks: Vec<Way>,
    python: Option<(u8, u8, u8)>,
    chores_due_ns: u64,
    epoch_due_ns: u64,
    statistics_due_ns: u64,
}

impl Agent {
    fn new(profiler: &'static Profiler, windows: Windows) -> Self {
        Self {
            profiler,
            windows,
            images: ImageTable::new(),
            handover: Handover::new(profiler),
            hooks: Vec::new(),
            python: None,
            chores_due_ns: 0,
            epoch_due_ns: 0,
            statistics_due_ns: host_ns() + STATISTICS.as_nanos() as u64,
        }
    }

    fn run(mut self) {
        self.profiler.driver.relax_capture_mode_of_this_thread();
        self.describe_process();
        // A panic switches everything off; the thread then has nothing left to do.
        while lifecycle::active().is_some_and(|profiler| ptr::eq(profiler, self.profiler)) {
            let wait = panic_fence(Duration::from_millis(100), || self.turn());
            std::thread::sleep(wait);
        }
    }

    fn turn(&mut self) -> Duration {
        let quiet = self.windows.tick();
        let now_ns = host_ns();
        if now_ns >= self.epoch_due_ns {
            self.epoch_due_ns = now_ns + self.profiler.config.sampling_window.as_nanos() as u64;
            self.profiler.epoch.advance();
        }
        if now_ns >= self.chores_due_ns {
            self.chores_due_ns = now_ns + CHORES.as_nanos() as u64;
            self.chores(now_ns);
        }
        let next_ns = self.chores_due_ns.min(self.epoch_due_ns).saturating_sub(host_ns());
        quiet.min(Duration::from_nanos(next_ns)).max(Duration::from_micros(100))
    }

    fn chores(&mut self, now_ns: u64) {
        let profiler = self.profiler;
        profiler.segment.live(LiveWord::AgentHeartbeatNs).store(now_ns, Ordering::Relaxed);
        profiler.stacks.refresh();
        let new_images = self.images.refresh(&profiler.segment);
        self.handover.turn(new_images);
        describe_changes(profiler, &mut self.hooks);
        self.statuses();
        if profiler.config.print_stats && now_ns >= self.statistics_due_ns {
            self.statistics_due_ns = now_ns + STATISTICS.as_nanos() as u64;
            print_statistics(profiler);
        }
    }

    fn statuses(&mut self) {
        let profiler = self.profiler;
        let statuses = &profiler.statuses;
        if profiler.has_launched.load(Ordering::Relaxed) {
            statuses.end(Status::NoGpuWork);
        }
        if let Some(refusal) = profiler.stacks.python_refusal() {
            statuses.begin(Status::PythonUnsupported, &refusal.to_string());
        }
        let dictionary_dropped = profiler.segment.counter(Counter::DictionaryDropped as usize);
        if dictionary_dropped.load(Ordering::Relaxed) > 0 {
            statuses.begin(Status::DictionaryFull, "");
        }
        if self.python != profiler.stacks.python_version() {
            self.python = profiler.stacks.python_version();
            self.describe_process();
        }
    }

    /// What this process is, for the profile's labels.
    fn describe_process(&self) {
        let read = |path: &str| std::fs::read(path).unwrap_or_default();
        let command = read("/proc/self/cmdline");
        let command = String::from_utf8_lossy(command.get(..command.len().min(4096)).unwrap_or_default())
            .trim_end_matches('\0')
            .replace(['\0', '\n'], " ");
        let exe = std::fs::read_link("/proc/self/exe").unwrap_or_default();
        let mut text = format!("command={command}\nexe={}\n", exe.display());
        if let Some((major, minor, micro)) = self.python {
            text += &format!("python={major}.{minor}.{micro}\n");
        }
        if let Some(version) = self.profiler.driver.version() {
            text += &format!("driver={version}\n");
        }
        text += &format!("library={}\n", env!("CARGO_PKG_VERSION"));
        if define(&self.profiler.segment, DefinitionKind::Process, 1, &[text.as_bytes()]).is_err() {
            self.profiler.count(Counter::DictionaryDropped, 1);
        }
    }
}

fn print_statistics(profiler: &Profiler) {
    let lanes =
        LaneCounter::ALL.iter().map(|counter| (counter.name(), lane_total(&profiler.segment, *counter)));
    let counters = Counter::ALL
        .iter()
        .map(|counter| (counter.name(), profiler.segment.counter(*counter as usize).load(Ordering::Relaxed)));
    let pairs: Vec<String> = lanes
        .chain(counters)
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name}={count}"))
        .collect();
    profiler.log.statistics(format_args!("statistics: {}", pairs.join(" ")));
}
