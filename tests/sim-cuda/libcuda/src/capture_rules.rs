//! What a capture in progress forbids, after the header's text at cuThreadExchangeStreamCaptureMode and the programming
//! guide's "prohibited operations": what is refused also invalidates the capture that forbade it.

use crate::abi::*;
use crate::thread;
use crate::truth;
use crate::world::{Capture, World};

/// Whether potentially unsafe calls of this thread break a capture.
fn forbids_unsafe_calls(capture: &Capture) -> bool {
    let own = capture.thread == thread::number();
    match thread::capture_mode() {
        CAPTURE_MODE_RELAXED => false,
        CAPTURE_MODE_THREAD_LOCAL => own && capture.mode != CAPTURE_MODE_RELAXED,
        _ => capture.mode == CAPTURE_MODE_GLOBAL || (own && capture.mode != CAPTURE_MODE_RELAXED),
    }
}

impl World {
    /// A potentially unsafe call, such as an allocation or a synchronous copy.
    pub fn check_unsafe_call(&mut self) -> Driver<()> {
        self.refuse(|_, capture| forbids_unsafe_calls(capture))
    }

    /// Synchronizing or querying a whole context conflicts with any capture in it, whatever the thread's mode.
    pub fn check_context_query(&mut self, context: Handle) -> Driver<()> {
        let streams: Vec<Handle> = self.streams_of(context).map(|(handle, _)| handle).collect();
        self.refuse(|stream, _| streams.contains(&stream))
    }

    /// Synchronizing or querying a capturing stream conflicts with its capture, whatever the thread's mode.
    pub fn check_stream_query(&mut self, stream: Handle) -> Driver<()> {
        self.check_legacy(stream, true)?;
        self.refuse(|other, _| other == stream)
    }

    /// The legacy stream is unusable while a blocking stream of its context captures.
    pub fn check_legacy(&mut self, stream: Handle, invalidates: bool) -> Driver<()> {
        if !self.is_legacy(stream) {
            return Ok(());
        }
        let context = self.streams.get(stream)?.context;
        let blocking: Vec<Handle> = self
            .streams_of(context)
            .filter(|(_, other)| other.blocking && other.capture.is_some())
            .map(|(handle, _)| handle)
            .collect();
        if blocking.is_empty() {
            return Ok(());
        }
        if invalidates {
            let _ = self.refuse(|other, _| blocking.contains(&other));
        }
        Err(STREAM_CAPTURE_IMPLICIT)
    }

    /// Invalidates every capture, as attaching or detaching a tool does.
    pub fn invalidate_captures(&mut self) {
        let _ = self.refuse(|_, _| true);
    }

    fn refuse(&mut self, broken: impl Fn(Handle, &Capture) -> bool) -> Driver<()> {
        let mut refused = false;
        for (handle, stream) in self.streams.iter_mut() {
            let Some(capture) = &mut stream.capture else { continue };
            if broken(handle, capture) {
                refused = true;
                if !capture.invalidated {
                    capture.invalidated = true;
                    truth::count(&truth::CAPTURES_INVALIDATED);
                }
            }
        }
        if refused { Err(STREAM_CAPTURE_UNSUPPORTED) } else { Ok(()) }
    }
}
