//! Our one CUPTI subscription: found once, taken and given back with each window.

use super::activity;
use crate::launch_hook::HOOKS;
use crate::profiler::Profiler;
use bindings::cupti::sys::*;
use bindings::cupti::{CuptiApi, CuptiError, locate};

/// Device buffers (about 3 MiB each) that CUPTI may keep in one context. A pool of 8 ran dry with always-on tracing
/// (parcagpu#23); windows of 50 ms need two or three.
const DEVICE_BUFFER_LIMIT: usize = 16;

const KINDS: [i32; 3] =
    [CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY, CUPTI_ACTIVITY_KIND_MEMSET];

/// CUPTI, found and fit for the driver.
#[derive(Debug)]
pub struct Client {
    api: &'static CuptiApi,
}

/// Why CUPTI could not be attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AttachError {
    /// Another tool is the subscriber.
    Taken,
    /// This process may not profile.
    Permission(String),
    /// Anything else, in words.
    Failed(String),
}

impl Client {
    /// Finds CUPTI. `Err` says what was tried.
    pub fn find(profiler: &Profiler) -> Result<Self, String> {
        let driver_version = profiler.driver.version().ok_or("cuDriverGetVersion failed")?;
        let located = locate::locate(driver_version, profiler.config.cupti_library.as_deref())?;
        let api = CuptiApi::find(&located.library)
            .map_err(|missing| format!("{} has no function {}", located.place, missing.0))?;
        let version = api.version().unwrap_or(0);
        profiler.log.line(
            crate::config::LogLevel::Info,
            format_args!("using CUPTI {version} ({}) with driver {driver_version}", located.place),
        );
        let api: &'static CuptiApi = Box::leak(Box::new(api));
        activity::set_api(api);
        Ok(Self { api })
    }

    /// Subscribes and starts to record. The caller holds the gate closed.
    pub fn attach(&mut self, profiler: &Profiler) -> Result<(), AttachError> {
        activity::forget_names();
        let contexts = profiler.contexts.all().unwrap_or_default();
        if let Some(context) = contexts.first() {
            // SAFETY: the driver validates the context; this is our own thread.
            unsafe { (profiler.driver.cuCtxSetCurrent)(*context) };
        }
        self.api.limit_device_buffers(DEVICE_BUFFER_LIMIT);
        let subscriber =
            self.api.subscribe(activity::on_driver_call).map_err(|error| self.attach_error(error))?;
        let started = self.start(subscriber);
        if let Err(error) = started {
            // Nothing is recorded and no launch is inside; what is still in flight was launched before we came, so
            // finalizing could lose the context (h200-cupti.md, section 3): stop recording and stay.
            for kind in KINDS {
                // A kind that was never enabled refuses, which is as good.
                let _ = self.api.disable_activity(kind);
            }
            return Err(self.attach_error(error));
        }
        Ok(())
    }

    fn start(&self, subscriber: CUpti_SubscriberHandle) -> Result<(), CuptiError> {
        for hook in HOOKS.iter().filter(|hook| hook.cbid != 0) {
            // A CUPTI older than the function does not know its number: that function is not in its driver either.
            let _ = self.api.enable_driver_callback(subscriber, hook.cbid);
        }
        self.api.register_buffers(activity::buffer_requested, activity::buffer_completed)?;
        KINDS.iter().try_for_each(|kind| self.api.enable_activity(*kind))
    }

    /// Delivers the buffers that are complete.
    pub fn flush(&mut self) {
        // A failure shows as missing records, which are counted.
        let _ = self.api.flush(0);
    }

    /// Stops recording, delivers everything and leaves.
    ///
    /// # Safety
    /// As for [`CuptiApi::finalize`]: no launch call is being made, nothing is in flight, nothing captures.
    pub unsafe fn detach(&mut self) -> Result<(), String> {
        for kind in KINDS {
            let _ = self.api.disable_activity(kind);
        }
        let _ = self.api.flush(CUPTI_ACTIVITY_FLAG_FLUSH_FORCED);
        // SAFETY: by the contract of this function.
        unsafe { self.api.finalize() }.map_err(|error| self.words(error))
    }

    fn attach_error(&self, error: CuptiError) -> AttachError {
        if error.is_taken() {
            AttachError::Taken
        } else if error.is_permission() {
            AttachError::Permission(self.words(error))
        } else {
            AttachError::Failed(self.words(error))
        }
    }

    fn words(&self, error: CuptiError) -> String {
        format!("{} failed: {} ({})", error.function, self.api.result_name(error.result), error.result)
    }
}
