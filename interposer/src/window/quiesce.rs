//! Waiting, with a deadline, until the GPU has nothing left to do.
//!
//! cuCtxSynchronize has no time-out, and a kernel may wait for a launch that our gate holds back (a collective, another
//! thread). So a thread of its own makes the call: when it is not back in time the gate opens, and the call comes back
//! when it does.

use bindings::cuda_driver::DriverApi;
use bindings::cuda_driver::sys::{CUDA_SUCCESS, CUcontext};
use core::time::Duration;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Instant;

/// What a wait for quiet ended with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quiet {
    /// All contexts are idle.
    Idle,
    /// At least one is still busy.
    Busy,
}

#[derive(Debug, Default)]
struct Request {
    contexts: Vec<usize>,
    /// Requests made and finished; they differ while the thread is at work.
    asked: u64,
    done: u64,
}

/// The thread that synchronizes.
#[derive(Debug)]
pub struct Quiescer {
    shared: Arc<(Mutex<Request>, Condvar)>,
}

impl Quiescer {
    /// Starts the thread; `None` when the process may not have one.
    pub fn start(driver: DriverApi) -> Option<Self> {
        let shared = Arc::new((Mutex::new(Request::default()), Condvar::new()));
        let theirs = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("launchscope-syn".into())
            .stack_size(256 * 1024)
            .spawn(move || serve(&driver, &theirs))
            .ok()?;
        Some(Self { shared })
    }

    /// Waits until all contexts are idle, at most for `patience`.
    pub fn wait_idle(&self, contexts: &[CUcontext], patience: Duration) -> Quiet {
        let deadline = Instant::now() + patience;
        let (request, changed) = &*self.shared;
        let mut request = request.lock().unwrap_or_else(PoisonError::into_inner);
        // A call that missed an earlier deadline must come back first.
        while request.asked != request.done {
            let Some(rest) = deadline.checked_duration_since(Instant::now()) else { return Quiet::Busy };
            request = changed.wait_timeout(request, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        request.contexts = contexts.iter().map(|context| *context as usize).collect();
        request.asked += 1;
        changed.notify_all();
        while request.asked != request.done {
            let Some(rest) = deadline.checked_duration_since(Instant::now()) else { return Quiet::Busy };
            request = changed.wait_timeout(request, rest).unwrap_or_else(PoisonError::into_inner).0;
        }
        Quiet::Idle
    }
}

fn serve(driver: &DriverApi, shared: &(Mutex<Request>, Condvar)) {
    driver.relax_capture_mode_of_this_thread();
    let (request, changed) = shared;
    loop {
        let mut waiting = request.lock().unwrap_or_else(PoisonError::into_inner);
        while waiting.asked == waiting.done {
            waiting = changed.wait(waiting).unwrap_or_else(PoisonError::into_inner);
        }
        let (contexts, asked) = (waiting.contexts.clone(), waiting.asked);
        drop(waiting);
        for context in contexts {
            let context = context as CUcontext;
            // SAFETY: the driver validates the context; one that is gone has no work in flight.
            if unsafe { (driver.cuCtxSetCurrent)(context) } == CUDA_SUCCESS {
                // SAFETY: waits for the current context's work; an error (a lost context) means that none will come.
                unsafe { (driver.cuCtxSynchronize)() };
            }
        }
        request.lock().unwrap_or_else(PoisonError::into_inner).done = asked;
        changed.notify_all();
    }
}
