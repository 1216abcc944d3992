//! What every API function does around its own work: refuse before cuInit and after fork, tell CUPTI at both ends.

use crate::abi::*;
use crate::entry::{Api, CBIDS, NAMES};
use crate::tools_abi::{ApiEvent, Hooks};
use crate::{thread, tool, truth, world};
use core::ffi::{c_char, c_void};
use core::ptr;
use core::sync::atomic::{AtomicBool, Ordering};

static INITIALIZED: AtomicBool = AtomicBool::new(false);
static FORKED: AtomicBool = AtomicBool::new(false);

/// Number and arguments of a call, as CUPTI reports them.
pub struct Call {
    api: Api,
    params: *const c_void,
    symbol: *const c_char,
    /// Zero while no tool is attached.
    pub correlation_id: u32,
}

impl Call {
    pub fn new(api: Api) -> Self {
        Self { api, params: ptr::null(), symbol: ptr::null(), correlation_id: tool::correlation_id() }
    }

    /// Adds what a launch shows to a callback.
    pub fn launching<T>(mut self, params: &T, function: Handle) -> Self {
        // Not in a forked child, where another thread may have held the lock.
        if tool::listener().is_some() && !is_forked_child() {
            self.params = ptr::from_ref(params).cast();
            self.symbol = world::lock().function(function).map_or(ptr::null(), |found| found.name.as_ptr());
        }
        self
    }

    /// Runs the function's own work.
    pub fn run(self, body: impl FnOnce(u32) -> Driver<()>) -> CUresult {
        if is_forked_child() || !INITIALIZED.load(Ordering::Acquire) {
            return NOT_INITIALIZED;
        }
        let mut result = SUCCESS;
        let mut room = 0u64;
        if let Some(hooks) = tool::listener() {
            self.tell(hooks, 0, &mut result, &mut room);
        }
        result = body(self.correlation_id).err().unwrap_or(SUCCESS);
        if let Some(hooks) = tool::listener() {
            self.tell(hooks, 1, &mut result, &mut room);
        }
        result
    }

    fn tell(&self, hooks: &Hooks, site: i32, result: &mut i32, room: &mut u64) {
        let context = thread::context();
        let context_uid = world::lock().contexts.get(context).map_or(0, |found| found.uid);
        let event = ApiEvent {
            site,
            cbid: CBIDS[self.api as usize],
            name: NAMES[self.api as usize].as_ptr(),
            params: self.params,
            result,
            symbol: self.symbol,
            context: context as *mut c_void,
            context_uid,
            correlation_id: self.correlation_id,
            correlation_data: room,
        };
        if (hooks.on_api)(&event) != 0 {
            truth::count(&truth::CALLBACKS_DELIVERED);
        }
    }
}

/// Shorthand for a function that has nothing to show.
pub fn run(api: Api, body: impl FnOnce() -> Driver<()>) -> CUresult {
    Call::new(api).run(|_| body())
}

/// A function or its twin with another default stream.
pub fn twin<const PER_THREAD: bool>(legacy: Api, per_thread: Api) -> Api {
    if PER_THREAD { per_thread } else { legacy }
}

/// As the real driver: nothing works in a child of a process that had called cuInit.
pub fn is_forked_child() -> bool {
    FORKED.load(Ordering::Relaxed)
}

fn in_child() {
    FORKED.store(true, Ordering::Relaxed);
}

/// cuInit has done its work.
pub fn set_initialized() {
    if !INITIALIZED.swap(true, Ordering::AcqRel) {
        // SAFETY: registers a function of this library, which is never unloaded.
        unsafe { libc::pthread_atfork(None, None, Some(in_child_handler)) };
    }
}

unsafe extern "C" fn in_child_handler() {
    in_child();
}
