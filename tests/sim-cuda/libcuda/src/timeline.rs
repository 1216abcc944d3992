//! Scheduling on the simulated GPU: when a piece of work begins and ends, who waits for it, and how it is lost.

use crate::abi::*;
use crate::clock::{now_ns, wait_until};
use crate::settings::SETTINGS;
use crate::tools_abi::{Work, WorkKind};
use crate::world::{Operation, World, lock};
use crate::{host_function, tool, truth};
use core::ptr;
use std::sync::atomic::Ordering;

/// Bytes per nanosecond of a copy between host and device.
const COPY_BYTES_PER_NS: u64 = 20;
/// Bytes per nanosecond of a copy or memset within the device.
const DEVICE_BYTES_PER_NS: u64 = 1000;
/// The least that a copy, memset or host function takes.
const SHORTEST_NS: u64 = 2000;
/// How often a waiting thread looks whether its context was lost.
const LOOK_NS: u64 = 1_000_000;

/// Where a piece of work comes from.
#[derive(Clone, Copy, Default)]
pub struct Origin {
    pub correlation_id: u32,
    pub graph_id: u32,
    pub graph_node_id: u64,
}

fn duration_ns(operation: &Operation) -> u64 {
    match operation {
        Operation::Kernel { duration_ns, .. } => *duration_ns,
        Operation::Copy { kind: 8, bytes } | Operation::Set { bytes, .. } => {
            SHORTEST_NS + bytes / DEVICE_BYTES_PER_NS
        }
        Operation::Copy { bytes, .. } => SHORTEST_NS + bytes / COPY_BYTES_PER_NS,
        Operation::Host { .. } => SHORTEST_NS,
    }
}

impl World {
    /// Puts work at the end of a stream. Whoever enqueues while a tool finalizes loses the context.
    pub fn enqueue(&mut self, stream: Handle, operation: &Operation, origin: Origin) -> Driver<u64> {
        let context = self.streams.get(stream)?.context;
        if self.detaching {
            self.lose(context);
            return Err(LAUNCH_FAILED);
        }
        let start_ns = (now_ns() + SETTINGS.latency_ns).max(self.free_from(stream)?);
        let end_ns = start_ns + duration_ns(operation);
        let context_uid = self.contexts.get(context)?.uid;
        let found = self.streams.get_mut(stream)?;
        found.last_end_ns = end_ns;
        if let Operation::Host { function, data } = operation {
            host_function::schedule(*function, *data, start_ns, &found.host_functions);
        }
        if let Operation::Kernel { name, duration_ns, .. } = operation {
            truth::kernel(name, *duration_ns);
        }
        if tool::recording() {
            let stream_id = found.id;
            report(operation, origin, Placement { start_ns, end_ns, context_uid, stream_id });
        }
        Ok(end_ns)
    }

    /// When the stream has done all that comes before. The legacy stream and the blocking ones wait for each other.
    fn free_from(&self, stream: Handle) -> Driver<u64> {
        let found = self.streams.get(stream)?;
        let legacy = self.contexts.get(found.context)?.legacy_stream;
        let other = if stream == legacy {
            self.streams_of(found.context).filter(|(_, s)| s.blocking).map(|(_, s)| s.last_end_ns).max()
        } else if found.blocking {
            Some(self.streams.get(legacy)?.last_end_ns)
        } else {
            None
        };
        Ok(found.last_end_ns.max(other.unwrap_or(0)))
    }

    /// Contexts with unfinished work.
    pub fn busy_contexts(&self) -> Vec<Handle> {
        let now = now_ns();
        let busy = self.streams.iter().filter(|(_, stream)| {
            stream.last_end_ns > now || stream.host_functions.load(Ordering::Acquire) > 0
        });
        busy.map(|(_, stream)| stream.context).collect()
    }

    /// From now on every call answers LAUNCH_FAILED; unfinished work is gone.
    pub fn lose(&mut self, context: Handle) {
        if let Ok(found) = self.contexts.get_mut(context)
            && !found.lost
        {
            found.lost = true;
            truth::count(&truth::CONTEXTS_LOST);
        }
    }

    /// Whether a stream has nothing left to do.
    pub fn is_idle(&self, stream: Handle) -> Driver<bool> {
        let hosts = self.streams.get(stream)?.host_functions.load(Ordering::Acquire);
        Ok(hosts == 0 && self.free_from(stream)? <= now_ns())
    }
}

/// Waits until these streams have done what they had at the time of the call. Without the lock, of course.
pub fn wait_for(context: Handle, streams: &[Handle]) -> Driver<()> {
    let mut target_ns = 0;
    let mut hosts = Vec::new();
    {
        let world = lock();
        for stream in streams {
            target_ns = target_ns.max(world.free_from(*stream)?);
            hosts.push(world.streams.get(*stream)?.host_functions.clone());
        }
    }
    loop {
        let now = now_ns();
        let running = hosts.iter().any(|functions| functions.load(Ordering::Acquire) > 0);
        if now >= target_ns && !running {
            return lock().usable(context).map(|_| ());
        }
        let next = if now < target_ns { target_ns.min(now + LOOK_NS) } else { now + LOOK_NS / 10 };
        wait_until(next);
        lock().usable(context)?;
    }
}

struct Placement {
    start_ns: u64,
    end_ns: u64,
    context_uid: u32,
    stream_id: u32,
}

fn report(operation: &Operation, origin: Origin, placement: Placement) {
    let mut work = Work {
        kind: WorkKind::Kernel,
        correlation_id: origin.correlation_id,
        start_ns: tool::record_time(placement.start_ns),
        end_ns: tool::record_time(placement.end_ns),
        name: ptr::null(),
        context_uid: placement.context_uid,
        stream_id: placement.stream_id,
        graph_node_id: origin.graph_node_id,
        graph_id: origin.graph_id,
        value: 0,
        bytes: 0,
        copy_kind: 0,
        shared_bytes: 0,
        grid: [0; 3],
        block: [0; 3],
    };
    match operation {
        Operation::Kernel { name, grid, block, shared_bytes, .. } => {
            (work.name, work.grid, work.block) = (name.as_ptr(), *grid, *block);
            work.shared_bytes = *shared_bytes;
        }
        Operation::Copy { kind, bytes } => {
            (work.kind, work.copy_kind, work.bytes) = (WorkKind::Memcpy, *kind, *bytes);
        }
        Operation::Set { value, bytes } => {
            (work.kind, work.value, work.bytes) = (WorkKind::Memset, *value, *bytes);
        }
        Operation::Host { .. } => return,
    }
    tool::on_work(&work);
}
