//! Reads the calling thread's Python frames from its own thread state, without the GIL: only the thread itself
//! pushes and pops that chain, it stands still in our hook, and each frame keeps its code object alive.
//!
//! The first [`CHECKED_SAMPLES`] stacks of a process are read through `safe_read`, where a wrong layout is an error
//! and not a crash; later ones by plain loads that still check each code object's type. One mismatch turns Python
//! stacks off for good, with a reason; native stacks go on.
//!
//! Allocates: no. Locks: no. Syscalls: process_vm_readv for the first [`CHECKED_SAMPLES`] stacks only.
//! Cost: about 10 ns a frame, 0.3 to 1 µs for a site that was never seen, at most [`MAX_NEW_SITES`] of those a sample.

use super::python_find::{Found, Runtime, find_python};
use super::python_layout::{EntryFrame, Instruction, OBJECT_TYPE, PythonVersion, TEXT_HASH, TEXT_LENGTH};
use super::python_lines::{LineQuery, line_of};
use super::python_refusal::{PythonRefusal, SanityCheck};
use super::python_text::Text;
use super::safe_read::{CheckedMemory, Memory, PlainMemory};
use crate::fold::Fold;
use crate::intern_table::Search;
use crate::site_table::{SiteKey, SiteTable, SiteText};
use shared_abi::counters::Counter;
use shared_abi::dictionary::PYTHON_ENTRY_FRAME;
use shared_abi::segment::Segment;
use shared_abi::sync::{AtomicU32, Ordering};
use std::sync::OnceLock;

/// Stacks read through `safe_read`: enough to meet every kind of frame that an engine's start-up has.
pub const CHECKED_SAMPLES: u32 = 64;
/// Frames kept of one stack.
pub const MAX_PYTHON_FRAMES: usize = 128;
/// New sites told in one sample: 16 at up to 1 µs. The next sample goes on from there.
pub const MAX_NEW_SITES: u32 = 16;
/// Frames and shims visited in one stack.
const MAX_STEPS: u32 = 512;
/// No code object is larger; 16 MiB are two million instructions in one function.
const MAX_CODE_BYTES: i64 = 16 << 20;
const NAME_BYTES: usize = 512;
const FILE_BYTES: usize = 1024;

/// Python frames of the process.
#[derive(Debug)]
pub struct Python {
    found: OnceLock<Found>,
    /// Stacks still to be read through `safe_read`.
    checked_left: AtomicU32,
    /// A [`SanityCheck`], or zero.
    failed: AtomicU32,
}

/// Site words, innermost first, and the buffers that a new site needs.
#[derive(Debug)]
pub struct PythonFrames {
    words: [u32; MAX_PYTHON_FRAMES],
    count: usize,
    is_truncated: bool,
    new_sites_left: u32,
    name: Text<NAME_BYTES>,
    file: Text<FILE_BYTES>,
}

impl PythonFrames {
    /// None.
    pub fn new() -> Self {
        Self {
            words: [0; MAX_PYTHON_FRAMES],
            count: 0,
            is_truncated: false,
            new_sites_left: 0,
            name: Text::new(),
            file: Text::new(),
        }
    }

    /// The frames of the last walk: site ids with [`PYTHON_ENTRY_FRAME`].
    #[inline]
    pub fn words(&self) -> &[u32] {
        self.words.get(..self.count).unwrap_or(&[])
    }

    /// Whether frames or sites are missing.
    #[inline]
    pub fn is_truncated(&self) -> bool {
        self.is_truncated
    }

    fn clear(&mut self) {
        (self.count, self.is_truncated, self.new_sites_left) = (0, false, MAX_NEW_SITES);
    }

    #[inline(always)]
    fn push(&mut self, word: u32) -> bool {
        let Some(slot) = self.words.get_mut(self.count) else { return false };
        *slot = word;
        self.count += 1;
        true
    }

    fn mark_last_as_entry(&mut self) {
        let last = self.count.checked_sub(1).and_then(|at| self.words.get_mut(at));
        if let Some(last) = last {
            *last |= PYTHON_ENTRY_FRAME;
        }
    }
}

/// Where frames go.
#[derive(Clone, Copy, Debug)]
pub struct Sink<'a> {
    /// Sites of the process.
    pub sites: &'a SiteTable,
    /// Where they are defined.
    pub segment: &'a Segment,
}

impl Python {
    /// Nothing found yet.
    pub fn new() -> Self {
        Self {
            found: OnceLock::new(),
            checked_left: AtomicU32::new(CHECKED_SAMPLES),
            failed: AtomicU32::new(0),
        }
    }

    /// Looks for CPython until it is there. Helper thread, or arming; takes the loader's lock.
    pub fn look_for_python(&self) {
        if self.found.get().is_none()
            && let Some(found) = find_python()
        {
            // Only one thread looks; if two did, the first answer stands.
            let _ = self.found.set(found);
        }
    }

    /// Why Python stacks are not taken; `None` when they are, or when there is no Python.
    pub fn refusal(&self) -> Option<PythonRefusal> {
        // Relaxed: a number of its own.
        let failed = self.failed.load(Ordering::Relaxed);
        let failed = SanityCheck::ALL.into_iter().find(|check| *check as u32 == failed);
        failed.map(PythonRefusal::SanityCheckFailed).or(self.found.get()?.runtime.err())
    }

    /// Its version, once it was found.
    pub fn version(&self) -> Option<PythonVersion> {
        self.found.get()?.version
    }

    /// Takes the calling thread's frames; none when it runs no Python.
    #[inline]
    pub fn walk(&self, sink: Sink<'_>, frames: &mut PythonFrames) {
        frames.clear();
        let Some(Found { runtime: Ok(runtime), .. }) = self.found.get() else { return };
        // Relaxed: another thread that refuses a moment later only takes one more stack.
        if self.failed.load(Ordering::Relaxed) != 0 {
            return;
        }
        // SAFETY: PyGILState_GetThisThreadState may be called from any thread, without the GIL, at any time.
        let thread_state_avma = unsafe { (runtime.thread_state)() } as u64;
        if thread_state_avma == 0 {
            return;
        }
        let walked = if self.checked_left.load(Ordering::Relaxed) > 0 {
            self.walk_checked(runtime, thread_state_avma, sink, frames)
        } else {
            // SAFETY: what is read is the calling thread's own state, its frames, and code objects that those keep
            // alive, by a layout under which CHECKED_SAMPLES stacks were read without one mismatch.
            let memory = unsafe { PlainMemory::new() };
            runtime.walk(&memory, thread_state_avma, sink, frames)
        };
        if let Err(check) = walked {
            frames.clear();
            self.failed.store(check as u32, Ordering::Relaxed);
            sink.segment.counter(Counter::PythonRefused as usize).fetch_add(1, Ordering::Relaxed);
        }
    }

    #[cold]
    fn walk_checked(
        &self,
        runtime: &Runtime,
        thread_state_avma: u64,
        sink: Sink<'_>,
        frames: &mut PythonFrames,
    ) -> Result<(), SanityCheck> {
        runtime.walk(&CheckedMemory::new(), thread_state_avma, sink, frames)?;
        if frames.count > 0 {
            let one_less = |left: u32| left.checked_sub(1);
            // Relaxed: a count; a stack more or less through `safe_read` does not matter. Failure: already zero.
            let _ = self.checked_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        }
        Ok(())
    }
}

/// One frame, as read.
struct Frame {
    avma: u64,
    code_avma: u64,
    owner: u8,
}

/// Owners of frames since 3.11. From [`OWNED_BY_C_STACK`] on they are shims (in 3.14 there are two kinds).
const OWNED_BY_GENERATOR: u8 = 1;
const OWNED_BY_C_STACK: u8 = 3;
/// `f_executable` carries tags in its low bits since 3.14; objects are aligned to 8 everywhere.
const TAG_BITS: u64 = 7;

impl Runtime {
    fn walk<M: Memory>(
        &self,
        memory: &M,
        thread_state_avma: u64,
        sink: Sink<'_>,
        frames: &mut PythonFrames,
    ) -> Result<(), SanityCheck> {
        let layout = &self.layout;
        let word = |avma: u64| memory.word(avma).ok_or(SanityCheck::Unreadable);
        let mut avma = word(thread_state_avma.wrapping_add(layout.thread_frame))?;
        if let (Some(offset), 1..) = (layout.cframe_frame, avma) {
            avma = word(avma.wrapping_add(offset))?;
        }
        for _ in 0..MAX_STEPS {
            if avma == 0 {
                return Ok(());
            }
            let owner = match layout.frame_owner {
                Some(offset) => memory.byte(avma.wrapping_add(offset)).ok_or(SanityCheck::Unreadable)?,
                None => 0,
            };
            if owner >= OWNED_BY_C_STACK {
                // A shim: the frame above it was entered from C.
                frames.mark_last_as_entry();
            } else {
                let code_avma = word(avma.wrapping_add(layout.frame_code))? & !TAG_BITS;
                if !self.take_frame(memory, Frame { avma, code_avma, owner }, sink, frames)? {
                    break;
                }
            }
            avma = word(avma.wrapping_add(layout.frame_previous))?;
        }
        frames.is_truncated = true;
        Ok(())
    }

    /// Appends a frame; false when there is no room for it.
    #[inline(always)]
    fn take_frame<M: Memory>(
        &self,
        memory: &M,
        frame: Frame,
        sink: Sink<'_>,
        frames: &mut PythonFrames,
    ) -> Result<bool, SanityCheck> {
        if memory.word(frame.code_avma.wrapping_add(OBJECT_TYPE)) != Some(self.code_type_avma) {
            return Err(SanityCheck::NotCode);
        }
        let Some(instruction_offset) = self.instruction_offset(memory, &frame)? else { return Ok(true) };
        let key = SiteKey {
            code_avma: frame.code_avma,
            instruction_offset,
            fingerprint: self.fingerprint(memory, frame.code_avma).ok_or(SanityCheck::Unreadable)?,
        };
        let site = match sink.sites.find(key) {
            Search::Known(id) => id,
            Search::Vacant(vacancy) if frames.new_sites_left > 0 => {
                let (line, first_line) = self.read_site(memory, key, frames)?;
                let text =
                    SiteText { line, first_line, name: frames.name.as_bytes(), file: frames.file.as_bytes() };
                frames.new_sites_left -= 1;
                sink.sites.define(sink.segment, vacancy, text)
            }
            Search::Vacant(_) => 0,
            Search::Full => {
                sink.segment.counter(Counter::SiteTableFull as usize).fetch_add(1, Ordering::Relaxed);
                0
            }
        };
        frames.is_truncated |= site == 0;
        let is_entry = match self.layout.entry_frame {
            EntryFrame::Each => true,
            EntryFrame::Flag(offset) => {
                memory.byte(frame.avma.wrapping_add(offset)).ok_or(SanityCheck::Unreadable)? != 0
            }
            EntryFrame::AboveShim => false,
        };
        Ok(frames.push(site | if is_entry { PYTHON_ENTRY_FRAME } else { 0 }))
    }

    /// Byte offset of the frame's instruction; `None` for a frame that is still being set up, as CPython's own
    /// `_PyFrame_IsIncomplete` has it. Among those is the shim that 3.12+ pushes to call `__init__`.
    #[inline(always)]
    fn instruction_offset<M: Memory>(&self, memory: &M, frame: &Frame) -> Result<Option<i64>, SanityCheck> {
        let layout = &self.layout;
        let at = frame.avma.wrapping_add(layout.frame_instruction);
        let offset = match layout.instruction {
            Instruction::Index { unit_bytes } => {
                i64::from(memory.int(at).ok_or(SanityCheck::Unreadable)?) * unit_bytes
            }
            Instruction::Pointer => {
                let first = memory.int(frame.code_avma.wrapping_add(layout.code_first_traceable));
                let (Some(pointer), Some(first)) = (memory.word(at), first) else {
                    return Err(SanityCheck::Unreadable);
                };
                let offset = pointer.wrapping_sub(frame.code_avma.wrapping_add(layout.code_bytes)) as i64;
                if frame.owner != OWNED_BY_GENERATOR && offset < i64::from(first) * 2 {
                    return Ok(None);
                }
                offset
            }
        };
        // Before the first instruction an index is -1 and a pointer one instruction (2 bytes) short.
        let is_inside = (-2..MAX_CODE_BYTES).contains(&offset);
        if is_inside { Ok(Some(offset)) } else { Err(SanityCheck::BadInstruction) }
    }

    /// Tells a code object from the one that had its address before: what it points to, the hash of its name (names
    /// are interned, so it is there and stands for the text) and the end of its file's name (compiled modules have a
    /// fresh file each, with names of one length that reuse one address).
    #[inline(always)]
    fn fingerprint<M: Memory>(&self, memory: &M, code_avma: u64) -> Option<u64> {
        let layout = &self.layout;
        let name_avma = memory.word(code_avma.wrapping_add(layout.code_name))?;
        let file_avma = memory.word(code_avma.wrapping_add(layout.code_file))?;
        let lines_avma = memory.word(code_avma.wrapping_add(layout.code_lines))?;
        let first_line = memory.int(code_avma.wrapping_add(layout.code_first_line))?;
        let name_hash = memory.word(name_avma.wrapping_add(TEXT_HASH))?;
        let file_length = memory.word(file_avma.wrapping_add(TEXT_LENGTH))?;
        // Inside the object for other strings than ASCII ones too: those are longer.
        let file_end = match file_length.checked_sub(8) {
            Some(at) => memory.word((file_avma.wrapping_add(layout.text_ascii)).wrapping_add(at))?,
            None => file_length,
        };
        let pointers = name_avma ^ file_avma.rotate_left(21) ^ lines_avma.rotate_left(42);
        Some(Fold::new(pointers).word(name_hash ^ u64::from(first_line as u32) << 32).word(file_end).finish())
    }

    /// Reads name and file into `frames`, and returns the line and the first line.
    #[cold]
    fn read_site<M: Memory>(
        &self,
        memory: &M,
        key: SiteKey,
        frames: &mut PythonFrames,
    ) -> Result<(u32, u32), SanityCheck> {
        let layout = &self.layout;
        let word =
            |offset: u64| memory.word(key.code_avma.wrapping_add(offset)).ok_or(SanityCheck::Unreadable);
        frames.name.copy(memory, layout, self.str_type_avma, word(layout.code_qualified_name)?)?;
        frames.file.copy(memory, layout, self.str_type_avma, word(layout.code_file)?)?;
        let first_line =
            memory.int(key.code_avma.wrapping_add(layout.code_first_line)).ok_or(SanityCheck::Unreadable)?;
        let query = LineQuery {
            table_avma: word(layout.code_lines)?,
            format: layout.line_format,
            first_line,
            instruction_offset: key.instruction_offset,
        };
        Ok((line_of(memory, self.bytes_type_avma, query)?, first_line.max(0) as u32))
    }
}
