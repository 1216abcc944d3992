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
        self.check_legacy_use(stream)?;
        self.refuse(|other, _| other == stream)
    }

    /// Using the legacy stream while a blocking stream of its context captures breaks that capture.
    pub fn check_legacy_use(&mut self, stream: Handle) -> Driver<()> {
        let blocking = self.captures_in_the_way_of(stream)?;
        match self.refuse(|other, _| blocking.contains(&other)) {
            Ok(()) => Ok(()),
            Err(_) => Err(STREAM_CAPTURE_IMPLICIT),
        }
    }

    /// Asking about the legacy stream then is refused as well, but breaks nothing.
    pub fn check_legacy_question(&self, stream: Handle) -> Driver<()> {
        if self.captures_in_the_way_of(stream)?.is_empty() { Ok(()) } else { Err(STREAM_CAPTURE_IMPLICIT) }
    }

    fn captures_in_the_way_of(&self, stream: Handle) -> Driver<Vec<Handle>> {
        if !self.is_legacy(stream) {
            return Ok(Vec::new());
        }
        let context = self.streams.get(stream)?.context;
        let blocking =
            self.streams_of(context).filter(|(_, other)| other.blocking && other.capture.is_some());
        Ok(blocking.map(|(handle, _)| handle).collect())
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
