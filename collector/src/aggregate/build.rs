//! From rows and symbols to the profile: the only place where ids become frames.

use super::profile::{
    Frame, FrameId, HookLine, KernelTotal, Layer, Profile, ProfileMeta, StatusLine, WeightedStack, Weights,
};
use super::weights::Factors;
use super::{Capture, RowKey, Rows, Sums, Work, capture_in, ledger};
use crate::model::Name;
use crate::model::counts::{EngineCounts, OwnCounts};
use crate::model::definitions::Definitions;
use crate::model::sample::LaunchOrigin;
use shared_abi::counters::Counter;
use shared_abi::record::LaunchKind;
use shared_abi::status::Status;
use std::collections::HashMap;
use std::sync::Arc;

/// Everything that one process adds to a profile.
#[derive(Clone, Debug)]
pub struct ProcessSums {
    /// Number of its session in this collector.
    pub session: u64,
    /// Process id.
    pub process_id: u32,
    /// Its definitions.
    pub definitions: Arc<Definitions>,
    /// Its rows.
    pub rows: Rows,
    /// Its own counters over the time covered.
    pub engine: EngineCounts,
    /// What the collector counted for it over the time covered.
    pub own: OwnCounts,
    /// Statuses that held.
    pub statuses: Vec<StatusLine>,
}

/// Frames and names by id, from the symbols.
pub trait FrameSource {
    /// The frames of a stack, outermost first; empty when it is not known.
    fn stack_frames(&self, session: u64, definitions: &Definitions, stack_id: u32) -> Vec<Frame>;
    /// A kernel's name for people.
    fn kernel_name(&mut self, mangled: &str) -> Arc<Name>;
}

/// Dictionary ids of all stacks that these sums refer to.
pub fn stacks_of(sums: &ProcessSums) -> impl Iterator<Item = u32> {
    sums.rows.keys().flat_map(|key| {
        let captured = match resolve_capture(key, &sums.definitions) {
            Capture::Stack(stack_id) => Some(stack_id),
            _ => None,
        };
        key.origin.map(|origin| origin.stack_id).into_iter().chain(captured)
    })
}

/// Builds the profile of these processes. `meta` says what it is about; windows, labels and processes are added here.
pub fn build(processes: &[ProcessSums], mut meta: ProfileMeta, frames: &mut dyn FrameSource) -> Profile {
    let mut builder = Builder {
        frames,
        ids: HashMap::new(),
        stacks: HashMap::new(),
        kernels: HashMap::new(),
        profile: Profile::default(),
    };
    let (mut engine, mut own) = (EngineCounts::default(), OwnCounts::default());
    for process in processes {
        let own_now = builder.add_process(process);
        engine.add(&process.engine);
        own.add(&own_now);
        add_labels(&mut meta, &process.definitions);
    }
    meta.window_open_ns = engine.process(Counter::WindowOpenNs);
    meta.window_count = engine.process(Counter::WindowsOpened);
    let mut profile = builder.finish();
    profile.meta = meta;
    profile.ledger = ledger::lines(&engine, &own);
    profile
}

#[derive(PartialEq, Eq, Hash)]
struct StackKey {
    launch_view: Vec<FrameId>,
    capture_view: Vec<FrameId>,
    process_id: u32,
    device: Option<u32>,
}

#[derive(Default)]
struct KernelSums {
    weights: Weights,
    joined_ns: f64,
    in_graphs_ns: f64,
    captured_ns: f64,
}

struct Builder<'a> {
    frames: &'a mut dyn FrameSource,
    ids: HashMap<Frame, FrameId>,
    stacks: HashMap<StackKey, Weights>,
    kernels: HashMap<Arc<Name>, KernelSums>,
    profile: Profile,
}

/// GPU work of which no launch was seen, although nothing on the way from the hook was lost: a path that no hook covers.
fn missed_hook(process: &ProcessSums) -> Option<StatusLine> {
    let lost = process.engine.process(Counter::RingDropped) + process.own.launches_evicted + process.own.torn;
    (process.own.orphaned > 0 && lost == 0).then(|| StatusLine {
        process_id: process.process_id,
        name: Status::HookMissed.name().to_owned(),
        text: Status::HookMissed.text().to_owned(),
        detail: format!("{} GPU activities without a launch", process.own.orphaned),
        holds: true,
        needs_attention: true,
    })
}

/// Frame ids of the stacks of one process, so that each is symbolized and merged once.
type StackCache = HashMap<u32, Vec<FrameId>>;

impl Builder<'_> {
    /// Adds one process; returns its counts with the captures that could be told only now.
    fn add_process(&mut self, process: &ProcessSums) -> OwnCounts {
        let factors = Factors::of(&process.engine);
        let root = self.id(frame(Layer::Process, process_name(process)));
        let mut cache = StackCache::new();
        let mut own = process.own;
        for (key, sums) in &process.rows {
            let key = RowKey { capture: resolve_capture(key, &process.definitions), ..*key };
            count_capture(&mut own, &key, sums);
            self.add_row(process, root, &key, sums, &factors, &mut cache);
        }
        for (index, hook) in process.definitions.hooks() {
            let (name, way, hits) = (hook.name.clone(), hook.way.clone(), process.engine.hook_hits(index));
            self.profile.hooks.push(HookLine { process_id: process.process_id, name, way, hits });
        }
        self.profile.statuses.extend(process.statuses.iter().cloned());
        self.profile.statuses.extend(missed_hook(process));
        own
    }

    fn add_row(
        &mut self,
        process: &ProcessSums,
        root: FrameId,
        key: &RowKey,
        sums: &Sums,
        factors: &Factors,
        cache: &mut StackCache,
    ) {
        let recorded = sums.recorded_ns as f64;
        let weights = Weights {
            gpu_time_ns: recorded * factors.factor(key.origin.map(|origin| origin.kind)),
            recorded_gpu_time_ns: recorded,
            recorded_count: sums.recorded_count as f64,
            launches: sums.launches,
        };
        let name = self.work_name(process, key.work);
        let mut launch_view = vec![root];
        self.extend_with_launch(&mut launch_view, process, key, cache);
        let kernel = name.as_ref().map(|name| {
            self.id(Frame { full_name: name.full.clone(), ..frame(Layer::Kernel, name.short.clone()) })
        });
        let mut capture_view = match key.capture {
            Capture::NotReplayed => launch_view.clone(),
            _ => vec![root],
        };
        self.extend_with_capture(&mut capture_view, process, key, cache);
        launch_view.extend(kernel);
        capture_view.extend(kernel);
        let stack =
            StackKey { launch_view, capture_view, process_id: process.process_id, device: key.device };
        add_weights(self.stacks.entry(stack).or_default(), &weights);
        if let Some(name) = name {
            add_kernel(self.kernels.entry(name).or_default(), key, &weights);
        }
    }

    fn work_name(&mut self, process: &ProcessSums, work: Work) -> Option<Arc<Name>> {
        let plain = |text: &str| Some(Arc::new(Name { short: text.to_owned(), full: String::new() }));
        match work {
            Work::Counted => None,
            Work::Kernel { name_id } => match process.definitions.name(name_id) {
                Some(mangled) => Some(self.frames.kernel_name(mangled)),
                None => plain("(kernel name not known)"),
            },
            Work::Memcpy { direction } => plain(copy_name(direction)),
            Work::Memset => plain("Memset"),
            Work::Folded => plain("(folded: too many distinct stacks)"),
        }
    }

    fn extend_with_launch(
        &mut self,
        view: &mut Vec<FrameId>,
        process: &ProcessSums,
        key: &RowKey,
        cache: &mut StackCache,
    ) {
        let Some(origin) = key.origin else {
            view.push(self.id(frame(Layer::CudaApi, "(launch not seen)".to_owned())));
            return;
        };
        view.extend(self.stack(process, origin.stack_id, cache));
        view.push(self.id(frame(Layer::CudaApi, api_name(process, &origin))));
        if origin.kind == LaunchKind::Graph {
            view.push(self.id(frame(Layer::Graph, graph_name(process, origin.graph_id))));
        }
    }

    fn extend_with_capture(
        &mut self,
        view: &mut Vec<FrameId>,
        process: &ProcessSums,
        key: &RowKey,
        cache: &mut StackCache,
    ) {
        let unknown = match key.capture {
            Capture::NotReplayed => return,
            Capture::Stack(stack_id) => {
                view.extend(self.stack(process, stack_id, cache));
                return;
            }
            Capture::NameMismatch => "(capture not known: node name mismatch)",
            Capture::Unknown | Capture::Open { .. } => "(capture not seen)",
        };
        view.push(self.id(frame(Layer::Graph, unknown.to_owned())));
    }

    fn stack(&mut self, process: &ProcessSums, stack_id: u32, cache: &mut StackCache) -> Vec<FrameId> {
        if let Some(known) = cache.get(&stack_id) {
            return known.clone();
        }
        let mut frames = match stack_id {
            0 => Vec::new(),
            _ => self.frames.stack_frames(process.session, &process.definitions, stack_id),
        };
        if frames.is_empty() {
            let text = if stack_id == 0 { "(no stack taken)" } else { "(stack not known)" };
            frames.push(frame(Layer::Native, text.to_owned()));
        }
        let ids: Vec<FrameId> = frames.into_iter().map(|frame| self.id(frame)).collect();
        cache.insert(stack_id, ids.clone());
        ids
    }

    fn id(&mut self, frame: Frame) -> FrameId {
        if let Some(id) = self.ids.get(&frame) {
            return *id;
        }
        let id = FrameId(self.profile.frames.len() as u32);
        self.profile.frames.push(frame.clone());
        self.ids.insert(frame, id);
        id
    }

    fn finish(mut self) -> Profile {
        let total_ns = self.kernels.values().fold(0.0, |sum: f64, kernel| sum + kernel.weights.gpu_time_ns);
        let kernels = self.kernels.into_iter().map(|(name, sums)| kernel_total(&name, &sums, total_ns));
        self.profile.kernels = kernels.collect();
        self.profile.kernels.sort_by(|left, right| {
            let by_time = right.weights.gpu_time_ns.total_cmp(&left.weights.gpu_time_ns);
            by_time
                .then_with(|| left.name.cmp(&right.name))
                .then_with(|| left.full_name.cmp(&right.full_name))
        });
        let stacks = self.stacks.into_iter().map(|(key, weights)| WeightedStack {
            launch_view: key.launch_view,
            capture_view: key.capture_view,
            weights,
            process_id: key.process_id,
            device: key.device,
        });
        self.profile.stacks = stacks.collect();
        self.profile.stacks.sort_by(|left, right| {
            let by_time = right.weights.gpu_time_ns.total_cmp(&left.weights.gpu_time_ns);
            let by_launches = right.weights.launches.total_cmp(&left.weights.launches);
            by_time.then(by_launches).then_with(|| left.launch_view.cmp(&right.launch_view))
        });
        self.profile
    }
}

fn resolve_capture(key: &RowKey, definitions: &Definitions) -> Capture {
    let (Capture::Open { node }, Some(origin)) = (key.capture, key.origin) else { return key.capture };
    let name_id = if let Work::Kernel { name_id } = key.work { name_id } else { 0 };
    let graph = definitions.graph(origin.graph_id);
    graph.map_or(Capture::Unknown, |graph| capture_in(graph, node, name_id, definitions))
}

fn count_capture(own: &mut OwnCounts, key: &RowKey, sums: &Sums) {
    match key.capture {
        Capture::NotReplayed => {}
        Capture::Stack(_) => own.captured += sums.recorded_count,
        Capture::Unknown | Capture::Open { .. } => own.capture_unknown += sums.recorded_count,
        Capture::NameMismatch => own.name_mismatch += sums.recorded_count,
    }
}

fn add_weights(sum: &mut Weights, more: &Weights) {
    sum.gpu_time_ns += more.gpu_time_ns;
    sum.recorded_gpu_time_ns += more.recorded_gpu_time_ns;
    sum.recorded_count += more.recorded_count;
    sum.launches += more.launches;
}

fn add_kernel(sums: &mut KernelSums, key: &RowKey, weights: &Weights) {
    add_weights(&mut sums.weights, weights);
    if key.origin.is_some() {
        sums.joined_ns += weights.recorded_gpu_time_ns;
    }
    if key.capture != Capture::NotReplayed {
        sums.in_graphs_ns += weights.recorded_gpu_time_ns;
    }
    if matches!(key.capture, Capture::Stack(_)) {
        sums.captured_ns += weights.recorded_gpu_time_ns;
    }
}

fn kernel_total(name: &Name, sums: &KernelSums, total_ns: f64) -> KernelTotal {
    let share_of =
        |part: f64, whole: f64, of_nothing: f64| if whole > 0.0 { part / whole } else { of_nothing };
    let recorded_ns = sums.weights.recorded_gpu_time_ns;
    KernelTotal {
        name: name.short.clone(),
        full_name: if name.full.is_empty() { name.short.clone() } else { name.full.clone() },
        weights: sums.weights,
        share: share_of(sums.weights.gpu_time_ns, total_ns, 0.0),
        mean_ns: share_of(recorded_ns, sums.weights.recorded_count, 0.0),
        joined_share: share_of(sums.joined_ns, recorded_ns, 1.0),
        captured_share: (sums.in_graphs_ns > 0.0).then(|| sums.captured_ns / sums.in_graphs_ns),
    }
}

fn frame(layer: Layer, name: String) -> Frame {
    Frame { layer, name, full_name: String::new(), file: String::new(), line: 0 }
}

fn api_name(process: &ProcessSums, origin: &LaunchOrigin) -> String {
    let fallback = match origin.kind {
        LaunchKind::Kernel => "cuLaunchKernel",
        LaunchKind::CooperativeKernel => "cuLaunchCooperativeKernel",
        LaunchKind::Graph => "cuGraphLaunch",
        LaunchKind::Memory => "(copy or memset)",
    };
    process.definitions.hook(origin.hook).map_or(fallback, |hook| &hook.name).to_owned()
}

fn graph_name(process: &ProcessSums, graph_id: u32) -> String {
    match process.definitions.graph(graph_id) {
        _ if graph_id == 0 => "graph (captured before launchscope was loaded)".to_owned(),
        Some(graph) => format!("graph #{graph_id}, {} nodes", graph.nodes.len()),
        None => format!("graph #{graph_id}"),
    }
}

/// Names of CUpti_ActivityMemcpyKind.
fn copy_name(direction: u32) -> &'static str {
    match direction {
        1 => "Memcpy HtoD",
        2 => "Memcpy DtoH",
        3 => "Memcpy HtoA",
        4 => "Memcpy AtoH",
        5 => "Memcpy AtoA",
        6 => "Memcpy AtoD",
        7 => "Memcpy DtoA",
        8 => "Memcpy DtoD",
        9 => "Memcpy HtoH",
        10 => "Memcpy PtoP",
        _ => "Memcpy",
    }
}

fn process_name(process: &ProcessSums) -> String {
    let said = |key| {
        process.definitions.process().get(key).map(|value| value.trim()).filter(|value| !value.is_empty())
    };
    let base = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let name = said("title").map(str::to_owned).or_else(|| said("command").map(short_command));
    let name = name.or_else(|| said("exe").map(base)).unwrap_or_else(|| "process".to_owned());
    format!("{name} [{}]", process.process_id)
}

/// The program and, for an interpreter, its script: `python3 serve.py`, `python3 -m vllm`.
fn short_command(command: &str) -> String {
    let mut words = command.split_whitespace();
    let base = |word: &str| word.rsplit('/').next().unwrap_or(word).to_owned();
    let program = words.next().map(base).unwrap_or_default();
    if !program.starts_with("python") {
        return program;
    }
    let mut rest = words.skip_while(|word| word.starts_with('-') && *word != "-m" && *word != "-c");
    match rest.next() {
        Some("-m") => rest.next().map_or(program.clone(), |module| format!("{program} -m {module}")),
        Some("-c") | None => program,
        Some(script) => format!("{program} {}", base(script)),
    }
}

/// What all processes say alike is a label of the profile; what differs is listed.
fn add_labels(meta: &mut ProfileMeta, definitions: &Definitions) {
    for (key, value) in definitions.process() {
        let label = meta.labels.entry(key.clone()).or_default();
        let is_new = !value.is_empty() && !label.split(" | ").any(|known| known == value);
        if is_new && label.len() < 2048 {
            if !label.is_empty() {
                label.push_str(" | ");
            }
            label.push_str(value);
        }
    }
}
