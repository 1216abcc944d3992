//! All objects of the simulated driver, under one lock.

use crate::abi::*;
use crate::handle_table::HandleTable;
use crate::thread;
use core::ffi::CStr;
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::AtomicU32;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

pub struct Context {
    pub uid: u32,
    pub primary: bool,
    pub retained: u32,
    /// Sticky: a lost context answers every call with LAUNCH_FAILED.
    pub lost: bool,
    pub legacy_stream: Handle,
    /// By thread.
    pub thread_streams: HashMap<u64, Handle>,
}

pub struct Stream {
    pub context: Handle,
    pub id: u32,
    /// Takes turns with the legacy stream.
    pub blocking: bool,
    pub last_end_ns: u64,
    pub capture: Option<Capture>,
    /// Host functions that have not returned.
    pub host_functions: Arc<AtomicU32>,
}

pub struct Capture {
    pub id: u64,
    pub graph: Handle,
    /// The graph was the caller's before (cuStreamBeginCaptureToGraph).
    pub to_graph: bool,
    pub mode: i32,
    pub thread: u64,
    pub invalidated: bool,
    /// Boxed, because cuStreamGetCaptureInfo hands its address out until the next call on the stream.
    pub dependencies: Box<[Handle]>,
}

/// A kernel or a function; both are made from an image.
pub struct Function {
    pub name: &'static CStr,
    pub duration_ns: u64,
}

/// A module or a library.
pub struct Image {
    pub context: Handle,
    pub functions: BTreeMap<String, u64>,
    pub made: BTreeMap<String, Handle>,
}

/// Something that a stream can do.
#[derive(Clone)]
pub enum Operation {
    Kernel { name: &'static CStr, duration_ns: u64, grid: [u32; 3], block: [u32; 3], shared_bytes: u32 },
    Copy { kind: u32, bytes: u64 },
    Set { value: u32, bytes: u64 },
    Host { function: usize, data: usize },
}

#[derive(Clone)]
pub struct Node {
    pub handle: Handle,
    pub operation: Operation,
}

pub struct Graph {
    /// In order of creation.
    pub nodes: Vec<Node>,
}

pub struct Executable {
    pub id: u32,
    pub nodes: Vec<Node>,
    pub last_end_ns: u64,
}

pub struct World {
    pub contexts: HandleTable<Context>,
    pub streams: HandleTable<Stream>,
    pub modules: HandleTable<Image>,
    pub libraries: HandleTable<Image>,
    pub functions: HandleTable<Function>,
    pub kernels: HandleTable<Function>,
    pub graphs: HandleTable<Graph>,
    /// Node to graph.
    pub nodes: HandleTable<Handle>,
    pub executables: HandleTable<Executable>,
    /// Device memory, start to bytes.
    pub memory: BTreeMap<u64, u64>,
    pub next_address: u64,
    /// Between the first and the last step of cuptiFinalize.
    pub detaching: bool,
    next_context_uid: u32,
    next_stream_id: u32,
    next_graph_id: u32,
    next_capture_id: u64,
}

static WORLD: LazyLock<Mutex<World>> = LazyLock::new(|| {
    Mutex::new(World {
        contexts: HandleTable::new(1),
        streams: HandleTable::new(2),
        modules: HandleTable::new(3),
        libraries: HandleTable::new(4),
        functions: HandleTable::new(5),
        kernels: HandleTable::new(6),
        graphs: HandleTable::new(7),
        nodes: HandleTable::new(8),
        executables: HandleTable::new(9),
        memory: BTreeMap::new(),
        next_address: 0x7_0000_0000,
        detaching: false,
        next_context_uid: 1,
        next_stream_id: 7,
        next_graph_id: 1,
        next_capture_id: 1,
    })
});

/// The world. A panic elsewhere does not make it unusable.
pub fn lock() -> MutexGuard<'static, World> {
    WORLD.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn count(counter: &mut u32) -> u32 {
    let value = *counter;
    *counter += 1;
    value
}

impl World {
    /// The context of this thread, alive and well.
    pub fn current(&self) -> Driver<Handle> {
        self.usable(match thread::context() {
            0 => return Err(INVALID_CONTEXT),
            context => context,
        })
    }

    /// The same context, if it is alive and well.
    pub fn usable(&self, context: Handle) -> Driver<Handle> {
        let found = self.contexts.get(context).map_err(|_| CONTEXT_IS_DESTROYED)?;
        if found.lost { Err(LAUNCH_FAILED) } else { Ok(context) }
    }

    pub fn create_context(&mut self, primary: bool) -> Handle {
        let uid = count(&mut self.next_context_uid);
        let context = self.contexts.insert(Context {
            uid,
            primary,
            retained: 0,
            lost: false,
            legacy_stream: 0,
            thread_streams: HashMap::new(),
        });
        let stream = self.create_stream(context, true);
        if let Ok(made) = self.contexts.get_mut(context) {
            made.legacy_stream = stream;
        }
        context
    }

    pub fn destroy_context(&mut self, context: Handle) {
        let streams: Vec<Handle> = self.streams_of(context).map(|(handle, _)| handle).collect();
        for stream in streams {
            let _ = self.streams.remove(stream);
        }
        let _ = self.contexts.remove(context);
    }

    pub fn create_stream(&mut self, context: Handle, blocking: bool) -> Handle {
        let id = count(&mut self.next_stream_id);
        self.streams.insert(Stream {
            context,
            id,
            blocking,
            last_end_ns: 0,
            capture: None,
            host_functions: Arc::default(),
        })
    }

    pub fn streams_of(&self, context: Handle) -> impl Iterator<Item = (Handle, &Stream)> {
        self.streams.iter().filter(move |(_, stream)| stream.context == context)
    }

    /// The stream that an argument means, and its context is usable.
    pub fn resolve_stream(&mut self, stream: Handle, per_thread: bool) -> Driver<Handle> {
        let context = self.current()?;
        let found = match stream {
            0 if per_thread => self.thread_stream(context)?,
            0 | STREAM_LEGACY => self.contexts.get(context)?.legacy_stream,
            STREAM_PER_THREAD => self.thread_stream(context)?,
            other => other,
        };
        let owner = self.streams.get(found)?.context;
        self.usable(owner)?;
        Ok(found)
    }

    fn thread_stream(&mut self, context: Handle) -> Driver<Handle> {
        let thread = thread::number();
        if let Some(stream) = self.contexts.get(context)?.thread_streams.get(&thread) {
            return Ok(*stream);
        }
        let stream = self.create_stream(context, true);
        self.contexts.get_mut(context)?.thread_streams.insert(thread, stream);
        Ok(stream)
    }

    pub fn is_legacy(&self, stream: Handle) -> bool {
        self.contexts.iter().any(|(_, context)| context.legacy_stream == stream)
    }

    pub fn new_graph_id(&mut self) -> u32 {
        count(&mut self.next_graph_id)
    }

    pub fn new_capture_id(&mut self) -> u64 {
        self.next_capture_id += 1;
        self.next_capture_id
    }

    /// A function, or a kernel passed as one.
    pub fn function(&self, handle: Handle) -> Driver<&Function> {
        self.functions.get(handle).or_else(|_| self.kernels.get(handle))
    }

    pub fn add_node(&mut self, graph: Handle, operation: Operation) -> Driver<Handle> {
        self.graphs.get(graph)?;
        let handle = self.nodes.insert(graph);
        self.graphs.get_mut(graph)?.nodes.push(Node { handle, operation });
        Ok(handle)
    }

    /// Whether a device address lies in an allocation.
    pub fn is_device_memory(&self, address: u64) -> bool {
        self.memory.range(..=address).next_back().is_some_and(|(start, bytes)| address < start + bytes)
    }
}
