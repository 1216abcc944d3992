//! Captured graphs: which stack captured each node, and which executable graph replays them.
//!
//! In: capture began and ended, node captured, graph instantiated, updated, destroyed (from the hooks).
//! Out: for a graph launch, the dictionary id of the graph's definition.
//! Drops when: a table is full, or a graph has more than `MAX_NODES` nodes (counted).
//! Runs on: the capturing or launching thread.
//!
//! Allocates and locks: while a graph is captured or made; `definition_of` does neither.

mod handle_map; // handles to definitions, read without a lock

use bindings::cuda_driver::{CaptureState, DriverApi, sys::*};
use handle_map::HandleMap;
use shared_abi::counters::Counter;
use shared_abi::dictionary::{DefinitionKind, GraphHead, GraphNode, define};
use shared_abi::segment::Segment;
use shared_abi::sync::{AtomicU32, Ordering};
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use zerocopy::IntoBytes as _;

/// A larger graph is replayed without capture stacks. The largest one known has 2,876 nodes (engines.md, section 3).
pub const MAX_NODES: usize = 64 * 1024;
/// Distinct definitions; vLLM makes about 1,900 executable graphs of 70 shapes.
const MAX_DEFINITIONS: usize = 16 * 1024;
/// Captures that never end (their stream was destroyed) are forgotten beyond this many.
const MAX_OPEN_CAPTURES: usize = 256;

/// All graphs of the process.
#[derive(Debug)]
pub struct Graphs {
    segment: Segment,
    open_captures: AtomicU32,
    writing: Mutex<Writing>,
    graphs: HandleMap,
    executables: HandleMap,
}

#[derive(Debug, Default)]
struct Writing {
    /// Nodes of graphs under capture, by graph handle.
    captures: HashMap<usize, Vec<(usize, GraphNode)>>,
    /// Hash of a definition's nodes to its id: a graph that is captured again has the definition it had before.
    definitions: HashMap<u64, u32>,
}

impl Graphs {
    /// None yet.
    pub fn new(segment: Segment) -> Self {
        Self {
            segment,
            open_captures: AtomicU32::new(0),
            writing: Mutex::default(),
            graphs: HandleMap::new(),
            executables: HandleMap::new(),
        }
    }

    /// Streams that are capturing.
    pub fn open_captures(&self) -> u32 {
        // Relaxed: captures begin and end only inside the gate, which orders them before a window looks.
        self.open_captures.load(Ordering::Relaxed)
    }

    /// A stream has begun to capture.
    pub fn capture_began(&self) {
        self.open_captures.fetch_add(1, Ordering::Relaxed);
    }

    /// A captured operation has become the last node that its stream depends on.
    pub fn node_captured(&self, state: CaptureState, node: GraphNode) {
        if state.last_node.is_null() {
            return;
        }
        let mut writing = self.lock();
        if writing.captures.len() >= MAX_OPEN_CAPTURES
            && !writing.captures.contains_key(&(state.graph as usize))
        {
            writing.captures.clear();
        }
        let nodes = writing.captures.entry(state.graph as usize).or_default();
        if nodes.len() < MAX_NODES {
            nodes.push((state.last_node as usize, node));
        }
    }

    /// A stream has stopped capturing; `graph` is null when the capture failed.
    pub fn capture_ended(&self, driver: &DriverApi, graph: CUgraph) {
        // Relaxed, saturating: as in `open_captures`.
        let _ = self
            .open_captures
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |count| count.checked_sub(1));
        if graph.is_null() {
            return;
        }
        let mut writing = self.lock();
        let captured = writing.captures.remove(&(graph as usize)).unwrap_or_default();
        let Some(order) = driver.graph_nodes(graph, MAX_NODES) else { return };
        let captured: HashMap<usize, GraphNode> = captured.into_iter().collect();
        let unknown = GraphNode { stack_id: 0, name_id: 0 };
        let nodes: Vec<GraphNode> =
            order.iter().map(|node| captured.get(&(*node as usize)).copied().unwrap_or(unknown)).collect();
        let definition = self.define(&mut writing, &nodes);
        self.insert(&self.graphs, graph as usize, definition);
    }

    /// A graph has become executable, or an executable graph was updated from it.
    pub fn instantiated(&self, executable: CUgraphExec, graph: CUgraph) {
        let _writing = self.lock();
        let definition = self.graphs.get(graph as usize);
        self.insert(&self.executables, executable as usize, definition);
    }

    /// A graph is gone; its executable graphs go on.
    pub fn graph_destroyed(&self, graph: CUgraph) {
        let mut writing = self.lock();
        writing.captures.remove(&(graph as usize));
        self.graphs.remove(graph as usize);
    }

    /// An executable graph is gone.
    pub fn executable_destroyed(&self, executable: CUgraphExec) {
        let _writing = self.lock();
        self.executables.remove(executable as usize);
    }

    /// Dictionary id of the definition behind an executable graph; zero when it is not known.
    #[inline]
    pub fn definition_of(&self, executable: CUgraphExec) -> u32 {
        self.executables.get(executable as usize)
    }

    fn insert(&self, map: &HandleMap, handle: usize, definition: u32) {
        if !map.insert(handle, definition) {
            self.segment.counter(Counter::GraphTableFull as usize).fetch_add(1, Ordering::Relaxed);
        }
    }

    fn define(&self, writing: &mut Writing, nodes: &[GraphNode]) -> u32 {
        let unknown_count = nodes.iter().filter(|node| node.stack_id == 0).count();
        let count = |counter: Counter, amount: usize| {
            self.segment.counter(counter as usize).fetch_add(amount as u64, Ordering::Relaxed);
        };
        count(Counter::GraphNodesCaptured, nodes.len() - unknown_count);
        count(Counter::GraphNodesUnknown, unknown_count);
        let hash = crate::fold::Fold::new(5).bytes(nodes.as_bytes()).finish();
        if let Some(id) = writing.definitions.get(&hash) {
            return *id;
        }
        if writing.definitions.len() >= MAX_DEFINITIONS {
            count(Counter::GraphTableFull, 1);
            return 0;
        }
        let id = writing.definitions.len() as u32 + 1;
        let head = GraphHead { node_count: nodes.len() as u32, unknown_count: unknown_count as u32 };
        if define(&self.segment, DefinitionKind::Graph, id, &[head.as_bytes(), nodes.as_bytes()]).is_err() {
            count(Counter::DictionaryDropped, 1);
            return 0;
        }
        writing.definitions.insert(hash, id);
        id
    }

    fn lock(&self) -> MutexGuard<'_, Writing> {
        self.writing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
