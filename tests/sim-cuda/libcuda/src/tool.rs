//! The simulated CUPTI's way in: what it turned on, and what attaching and detaching do to the process.

use crate::clock::{RECORD_CLOCK_OFFSET_NS, now_ns};
use crate::settings::SETTINGS;
use crate::tools_abi::{ATTACH_SUBSCRIBER, Hooks, RECORD_KERNELS, Tools, VERSION, Work};
use crate::{thread, truth, world};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::time::Duration;

static HOOKS: AtomicPtr<Hooks> = AtomicPtr::new(ptr::null_mut());
static RECORDED: AtomicU32 = AtomicU32::new(0);
static LISTENING: AtomicU32 = AtomicU32::new(0);
static NEXT_CORRELATION: AtomicU32 = AtomicU32::new(1);

static TOOLS: Tools = Tools { version: VERSION, attach, record, listen, detach, now_ns: record_now, dropped };

/// The private export table, null for a caller of another version.
#[unsafe(no_mangle)]
pub extern "C" fn simcuda_tools(version: u32) -> *const Tools {
    if version == VERSION { &TOOLS } else { ptr::null() }
}

/// CUPTI's hooks, from its first use to its finalization.
pub fn hooks() -> Option<&'static Hooks> {
    // SAFETY: null or the static that `attach` was given; its library is never unloaded.
    unsafe { HOOKS.load(Ordering::Acquire).as_ref() }
}

/// The hooks, when a callback may have to be delivered.
pub fn listener() -> Option<&'static Hooks> {
    if LISTENING.load(Ordering::Relaxed) == 0 { None } else { hooks() }
}

pub fn recording() -> bool {
    RECORDED.load(Ordering::Relaxed) != 0
}

pub fn on_work(work: &Work) {
    if let Some(hooks) = hooks() {
        (hooks.on_work)(work);
    }
}

/// A number for an API call; 0 while no tool is there.
pub fn correlation_id() -> u32 {
    if hooks().is_some() { NEXT_CORRELATION.fetch_add(1, Ordering::Relaxed) } else { 0 }
}

/// What a launch call takes longer, for each piece of work.
pub fn node_cost_ns() -> u64 {
    match (hooks().is_some(), RECORDED.load(Ordering::Relaxed) & RECORD_KERNELS != 0) {
        (true, true) => SETTINGS.activity_node_ns,
        (true, false) => SETTINGS.subscribed_node_ns,
        (false, _) => 0,
    }
}

/// A monotonic time on the clock of the records.
pub fn record_time(monotonic_ns: u64) -> u64 {
    monotonic_ns + *RECORD_CLOCK_OFFSET_NS
}

extern "C" fn record_now() -> u64 {
    record_time(now_ns())
}

extern "C" fn attach(new_hooks: &'static Hooks, how: u32) {
    world::lock().invalidate_captures();
    if how == ATTACH_SUBSCRIBER {
        truth::count(&truth::SUBSCRIBES);
        std::thread::sleep(Duration::from_micros(SETTINGS.attach_us));
        world::lock().invalidate_captures();
    }
    HOOKS.store(ptr::from_ref(new_hooks).cast_mut(), Ordering::Release);
}

extern "C" fn record(kinds: u32) {
    RECORDED.store(kinds, Ordering::Relaxed);
}

extern "C" fn listen(any: u32) {
    LISTENING.store(any, Ordering::Relaxed);
}

extern "C" fn dropped(records: u64) {
    truth::RECORDS_DROPPED.fetch_add(records, Ordering::Relaxed);
}

/// Only a quiet GPU survives it: see shared/facts/h200-cupti.md, section 3.
extern "C" fn detach() {
    disturb(true);
    std::thread::sleep(Duration::from_micros(SETTINGS.detach_us));
    RECORDED.store(0, Ordering::Relaxed);
    LISTENING.store(0, Ordering::Relaxed);
    HOOKS.store(ptr::null_mut(), Ordering::Release);
    NEXT_CORRELATION.store(1, Ordering::Relaxed);
    disturb(false);
    truth::count(&truth::FINALIZES);
}

fn disturb(detaching: bool) {
    let mut world = world::lock();
    world.detaching = detaching;
    world.invalidate_captures();
    let mut victims = world.busy_contexts();
    if thread::others_launch() {
        victims.extend(world.contexts.iter().map(|(handle, _)| handle));
    }
    for context in victims {
        world.lose(context);
    }
}
