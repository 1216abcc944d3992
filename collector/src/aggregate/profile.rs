//! The finished profile: what the files, the page and the summary show. Symbolized, in tables, in no file format.

use std::collections::BTreeMap;

/// What a frame is, and so how it is coloured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Layer {
    /// The engine process.
    Process,
    /// Python code.
    Python,
    /// C, C++ or Rust code.
    Native,
    /// The CUDA API function that launched.
    CudaApi,
    /// A replayed graph.
    Graph,
    /// A kernel, copy or memset.
    Kernel,
}

/// One frame of a symbolized stack.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Frame {
    /// What it is.
    pub layer: Layer,
    /// Function, kernel or process, short form for people.
    pub name: String,
    /// Full form where it differs from `name` (demangled kernel, native symbol with arguments), otherwise empty.
    pub full_name: String,
    /// Source file or image; empty when not known.
    pub file: String,
    /// Line in `file`; zero when not known.
    pub line: u32,
}

/// Index into [`Profile::frames`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(pub u32);

/// What is added up per stack.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Weights {
    /// GPU time as estimated for the whole run, in nanoseconds.
    pub gpu_time_ns: f64,
    /// GPU time that CUPTI recorded in windows, in nanoseconds.
    pub recorded_gpu_time_ns: f64,
    /// Kernels, copies and memsets that CUPTI recorded.
    pub recorded_count: f64,
    /// Launches as estimated from samples by their inclusion probability.
    pub launches: f64,
}

/// One stack with its weights, root first.
#[derive(Clone, Debug, PartialEq)]
pub struct WeightedStack {
    /// Who launched: process, Python and native frames, CUDA API, for replays the graph, then the kernel.
    /// A stack that was only counted (no GPU time) ends at the CUDA API or graph frame.
    pub launch_view: Vec<FrameId>,
    /// Which code captured the kernel: process, then the frames at capture, then the kernel. Equal to `launch_view`
    /// for work that was not replayed from a graph.
    pub capture_view: Vec<FrameId>,
    /// What it weighs.
    pub weights: Weights,
    /// Process id of the engine process.
    pub process_id: u32,
    /// Device ordinal; `None` for stacks that were only counted.
    pub device: Option<u32>,
}

/// Totals of one kernel name.
#[derive(Clone, Debug, PartialEq)]
pub struct KernelTotal {
    /// Short form.
    pub name: String,
    /// Demangled in full.
    pub full_name: String,
    /// Its weights over all stacks.
    pub weights: Weights,
    /// Share of all estimated GPU time, 0 to 1.
    pub share: f64,
    /// Mean duration of one run, in nanoseconds.
    pub mean_ns: f64,
    /// Share of its recorded GPU time that was joined to a launch stack, 0 to 1.
    pub joined_share: f64,
    /// Share of its recorded GPU time inside graphs that carries a capture stack, 0 to 1; `None` outside graphs.
    pub captured_share: Option<f64>,
}

/// One line of the ledger, in words.
#[derive(Clone, Debug, PartialEq)]
pub struct LedgerLine {
    /// Machine-readable name.
    pub key: String,
    /// Words for people.
    pub text: String,
    /// How many.
    pub count: u64,
    /// Whether this is a loss (to be marked when it is not zero).
    pub is_loss: bool,
}

/// A status that held at some time.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusLine {
    /// Process id of the engine process.
    pub process_id: u32,
    /// Machine-readable name.
    pub name: String,
    /// What it means and what to do.
    pub text: String,
    /// What was tried and failed, from the interposer.
    pub detail: String,
    /// Whether it holds at the end.
    pub holds: bool,
    /// Whether it is news for a person: not what was asked for, and not a passing state of every start.
    pub needs_attention: bool,
}

/// One hooked driver function in one process.
#[derive(Clone, Debug, PartialEq)]
pub struct HookLine {
    /// Process id of the engine process.
    pub process_id: u32,
    /// Driver function.
    pub name: String,
    /// `patched`, `preloaded`, `callback` or `none`, and why.
    pub way: String,
    /// Calls that came by.
    pub hits: u64,
}

/// What the profile is about.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileMeta {
    /// Title for people, usually the command.
    pub title: String,
    /// Version of launchscope.
    pub version: String,
    /// CLOCK_REALTIME at the start, in milliseconds.
    pub start_wall_ms: u64,
    /// Time covered, in nanoseconds.
    pub duration_ns: u64,
    /// Time during which CUPTI windows were open, in nanoseconds, over all processes.
    pub window_open_ns: u64,
    /// CUPTI windows.
    pub window_count: u64,
    /// Free pairs for people (host, command, Python version, CUPTI mode).
    pub labels: BTreeMap<String, String>,
}

/// The finished profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// What it is about.
    pub meta: ProfileMeta,
    /// All distinct frames.
    pub frames: Vec<Frame>,
    /// All distinct stacks.
    pub stacks: Vec<WeightedStack>,
    /// Kernels by estimated GPU time, largest first.
    pub kernels: Vec<KernelTotal>,
    /// What was seen, sampled, joined and lost.
    pub ledger: Vec<LedgerLine>,
    /// Statuses that held.
    pub statuses: Vec<StatusLine>,
    /// Hooks and how they were installed.
    pub hooks: Vec<HookLine>,
}

impl Profile {
    /// The frame behind an id of this profile.
    pub fn frame(&self, id: FrameId) -> &Frame {
        &self.frames[id.0 as usize]
    }

    /// Share of recorded GPU time that was joined to a launch stack, weighted over kernels; 1 when there is none.
    pub fn joined_share(&self) -> f64 {
        let total: f64 = self.kernels.iter().map(|kernel| kernel.weights.recorded_gpu_time_ns).sum();
        let joined: f64 =
            self.kernels.iter().map(|kernel| kernel.weights.recorded_gpu_time_ns * kernel.joined_share).sum();
        if total > 0.0 { joined / total } else { 1.0 }
    }
}
