//! What one launching thread owns: its slot at the gate, its lane of counters, its samplers, its room for stacks.
//!
//! Allocates: once, when a thread is first seen. Locks: no. Syscalls: gettid and pthread_setspecific then.
//! Cost: one read of thread-local storage for a thread that is known.

use crate::profiler::Profiler;
use crate::sampler::Sampler;
use crate::stack_capture::Scratch;
use core::cell::Cell;
use core::ffi::c_void;
use core::ops::{Deref, DerefMut};
use core::ptr::{self, NonNull};
use shared_abi::counters::{Counter, HOOK_HITS_INDEX, LaneCounter};
use shared_abi::record::LaunchKind;
use shared_abi::segment::Segment;
use shared_abi::sync::{AtomicU32, Ordering};

/// Threads that can have a slot of their own; the last slot is shared by all others.
pub const SLOT_COUNT: usize = 1024;

/// One thread's place at the gate. A cache line pair of its own, because its owner writes it at every launch.
#[derive(Debug)]
#[repr(align(128))]
pub struct Slot {
    /// Driver calls that the owner is in; more than one only in the shared slot.
    pub in_call: AtomicU32,
    /// Thread id of the owner; zero when the slot is free.
    pub owner: AtomicU32,
}

/// All slots.
#[derive(Debug)]
pub struct Slots(Box<[Slot]>);

impl Slots {
    /// All free.
    pub fn new() -> Self {
        Self((0..SLOT_COUNT).map(|_| Slot { in_call: AtomicU32::new(0), owner: AtomicU32::new(0) }).collect())
    }

    /// No thread is inside a driver call that passed the gate.
    pub fn all_idle(&self) -> bool {
        // Acquire pairs with the Release in `ThreadState::leave`: what the call enqueued is visible to us.
        self.0.iter().all(|slot| slot.in_call.load(Ordering::Acquire) == 0)
    }

    fn take(&self, thread_id: u32) -> (usize, Sharing) {
        let last = self.0.len().saturating_sub(1);
        let free = self.0.iter().take(last).position(|slot| {
            // Relaxed: only the owner uses the slot's counter, and a previous owner left it at zero.
            slot.owner.compare_exchange(0, thread_id, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        });
        free.map_or((last, Sharing::Shared), |index| (index, Sharing::Own))
    }
}

impl Default for Slots {
    fn default() -> Self {
        Self::new()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sharing {
    Own,
    Shared,
}

/// What one launching thread owns.
#[derive(Debug)]
pub struct ThreadState {
    profiler: &'static Profiler,
    slot: &'static Slot,
    slot_sharing: Sharing,
    lane: u32,
    lane_sharing: Sharing,
    /// Thread id as the engine sees it.
    pub thread_id: u32,
    /// A hook is running on this thread: calls that the driver makes into itself are not launches of the engine.
    in_hook: bool,
    kernels: Sampler,
    graphs: Sampler,
    memory: Sampler,
    /// Room for taking stacks.
    pub scratch: Scratch,
}

thread_local! {
    static CURRENT: Cell<*mut ThreadState> = const { Cell::new(ptr::null_mut()) };
    static CORRELATION_ID: Cell<u32> = const { Cell::new(0) };
}

/// Notes CUPTI's id of the launch that this thread is making; zero before each launch.
#[inline]
pub fn set_correlation_id(id: u32) {
    // A thread that is ending launches nothing more.
    let _ = CORRELATION_ID.try_with(|current| current.set(id));
}

/// CUPTI's id of the launch that this thread has just made; zero when no callback came.
#[inline]
pub fn correlation_id() -> u32 {
    CORRELATION_ID.try_with(Cell::get).unwrap_or(0)
}

/// The calling thread inside a hook: it has passed the gate, and leaves when this is dropped.
#[derive(Debug)]
pub struct InHook(NonNull<ThreadState>);

impl InHook {
    /// Passes the gate with the calling thread's state, which is made at its first launch; `None` inside another hook
    /// (a call that the driver makes into itself), or when the thread is ending.
    #[inline(always)]
    pub fn enter(profiler: &'static Profiler) -> Option<Self> {
        let known = NonNull::new(CURRENT.try_with(Cell::get).ok()?);
        // SAFETY: the pointer was stored by this thread, and the state lives until the thread's key destructor clears
        // it; only this thread looks at it.
        let is_ours = known.is_some_and(|state| ptr::eq(unsafe { state.as_ref() }.profiler, profiler));
        let mut state = if is_ours { known? } else { ThreadState::first_seen(profiler)? };
        // SAFETY: as above; `in_hook` makes sure that one InHook at a time leads to it.
        let thread = unsafe { state.as_mut() };
        if thread.in_hook {
            thread.add(LaneCounter::Reentered, 1);
            return None;
        }
        thread.in_hook = true;
        thread.pass_gate();
        Some(Self(state))
    }
}

impl Drop for InHook {
    #[inline(always)]
    fn drop(&mut self) {
        match self.slot_sharing {
            // Release pairs with the Acquire in `Slots::all_idle`.
            Sharing::Own => self.slot.in_call.store(0, Ordering::Release),
            Sharing::Shared => {
                self.slot.in_call.fetch_sub(1, Ordering::Release);
            }
        }
        self.in_hook = false;
    }
}

impl Deref for InHook {
    type Target = ThreadState;
    #[inline(always)]
    fn deref(&self) -> &ThreadState {
        // SAFETY: the state outlives the hook call, and this is the only way to it (see `enter`).
        unsafe { self.0.as_ref() }
    }
}

impl DerefMut for InHook {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut ThreadState {
        // SAFETY: as in `deref`.
        unsafe { self.0.as_mut() }
    }
}

impl ThreadState {
    /// The launch is chosen by its class's sampler: with which probability.
    #[inline(always)]
    pub fn choose(&mut self, kind: LaunchKind, epoch: u32) -> Option<f64> {
        match kind {
            LaunchKind::Kernel | LaunchKind::CooperativeKernel => self.kernels.choose(epoch),
            LaunchKind::Graph => self.graphs.choose(epoch),
            LaunchKind::Memory => self.memory.choose(epoch),
        }
    }

    /// Adds to a counter of this thread's lane.
    #[inline(always)]
    pub fn add(&self, counter: LaneCounter, amount: u64) {
        self.add_at(counter as usize, amount);
    }

    #[inline(always)]
    fn add_at(&self, index: usize, amount: u64) {
        let word = self.profiler.segment.lane_counter(self.lane, index);
        match self.lane_sharing {
            // Relaxed: a count, and this thread is the only writer.
            Sharing::Own => word.store(word.load(Ordering::Relaxed) + amount, Ordering::Relaxed),
            Sharing::Shared => {
                word.fetch_add(amount, Ordering::Relaxed);
            }
        }
    }

    /// Counts a call of a hooked function.
    #[inline(always)]
    pub fn hit(&self, hook: usize) {
        self.add_at(HOOK_HITS_INDEX + hook, 1);
    }

    /// Lane of the thread's counters.
    pub fn lane(&self) -> u32 {
        self.lane
    }

    #[inline(always)]
    fn pass_gate(&self) {
        loop {
            match self.slot_sharing {
                // Relaxed: ordered before the gate's load by `Gate::announce`.
                Sharing::Own => self.slot.in_call.store(1, Ordering::Relaxed),
                Sharing::Shared => {
                    self.slot.in_call.fetch_add(1, Ordering::Relaxed);
                }
            }
            self.profiler.gate.announce();
            if !self.profiler.gate.is_closed() {
                return;
            }
            self.wait_at_gate();
        }
    }

    #[cold]
    fn wait_at_gate(&self) {
        match self.slot_sharing {
            Sharing::Own => self.slot.in_call.store(0, Ordering::Release),
            Sharing::Shared => {
                self.slot.in_call.fetch_sub(1, Ordering::Release);
            }
        }
        let waited_ns = self.profiler.gate.wait_until_open();
        self.add(LaneCounter::HeldAtGate, 1);
        self.add(LaneCounter::HeldAtGateNs, waited_ns);
    }

    #[cold]
    fn first_seen(profiler: &'static Profiler) -> Option<NonNull<Self>> {
        // SAFETY: gettid has no preconditions.
        let thread_id = unsafe { libc::gettid() } as u32;
        let (index, slot_sharing) = profiler.slots.take(thread_id);
        let slot = profiler.slots.0.get(index)?;
        let last_lane = profiler.segment.identity().lane_count.saturating_sub(1);
        let (lane, lane_sharing) = if (index as u32) < last_lane {
            (index as u32, Sharing::Own)
        } else {
            (last_lane, Sharing::Shared)
        };
        if lane_sharing == Sharing::Shared {
            profiler.count(Counter::LaneShared, 1);
        }
        let epoch = profiler.epoch.current();
        let seed = u64::from(thread_id) ^ profiler.segment.identity().armed_host_ns;
        let config = &profiler.config;
        let graph_target = config.graph_target_per_s.map(|rate| rate * config.sampling_window.as_secs_f64());
        let state = Box::into_raw(Box::new(Self {
            profiler,
            slot,
            slot_sharing,
            lane,
            lane_sharing,
            thread_id,
            in_hook: false,
            kernels: Sampler::new(config.kernel_target, seed, epoch),
            graphs: Sampler::new(graph_target, seed ^ 1, epoch),
            memory: Sampler::new(config.kernel_target, seed ^ 2, epoch),
            scratch: Scratch::new(),
        }));
        if CURRENT.try_with(|current| current.set(state)).is_err() {
            // SAFETY: just made by Box::into_raw and seen by nobody else.
            drop(unsafe { Box::from_raw(state) });
            return None;
        }
        // SAFETY: the key was made when the profiler armed; the value is the state that the destructor expects.
        unsafe { libc::pthread_setspecific(profiler.thread_key, state.cast::<c_void>()) };
        NonNull::new(state)
    }
}

/// Destructor of the profiler's thread key: frees the slot and the state of a thread that ends. A launch that the
/// thread makes after this is a first launch again.
///
/// # Safety
/// `state` is the key's value, which only `first_seen` sets.
pub unsafe extern "C" fn thread_ends(state: *mut c_void) {
    if CURRENT.try_with(|current| current.replace(ptr::null_mut())).is_err() {
        return;
    }
    // SAFETY: the value of the key is the state that `first_seen` leaked, and CURRENT no longer leads to it.
    let state = unsafe { Box::from_raw(state.cast::<ThreadState>()) };
    if state.slot_sharing == Sharing::Own {
        state.slot.in_call.store(0, Ordering::Release);
        state.slot.owner.store(0, Ordering::Release);
    }
}

/// The segment's lanes summed up, for messages.
pub fn lane_total(segment: &Segment, counter: LaneCounter) -> u64 {
    (0..segment.identity().lane_count)
        .map(|lane| segment.lane_counter(lane, counter as usize).load(Ordering::Relaxed))
        .sum()
}
