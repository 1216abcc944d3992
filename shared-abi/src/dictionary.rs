//! The dictionary: append-only definitions in the segment, which records refer to by id. A collector that starts
//! late, or again, reads it from the start; nothing is sent twice and nothing is lost when the engine is killed.
//!
//! ```text
//! entry   word 0   words of the entry (32 bits) | kind << 32 | 1 << 63 when published
//!         word 1   id | check << 32
//!         words 2.. payload: a fixed head, then text or arrays, padded with zeros
//! ```
//!
//! Ids start at 1 and are unique within a kind; an id that is defined again replaces the earlier meaning from then on
//! (an address reused after dlclose, a site of a freed code object).

use crate::segment::{LiveWord, Segment};
use crate::sync::Ordering;
use crate::words::{CHECK_SEED, for_each_word, mix, words_for};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// Kind of a definition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum DefinitionKind {
    /// [`SiteHead`], then qualified name, then file name (UTF-8).
    Site = 1,
    /// [`StackHead`], then native addresses (u64), then Python frames (u32), innermost first.
    Stack = 2,
    /// Mangled name of a kernel (UTF-8), NUL-padded.
    Name = 3,
    /// [`ImageHead`], then path.
    Image = 4,
    /// [`GraphHead`], then [`GraphNode`]s in the order of cuGraphGetNodes.
    Graph = 5,
    /// Text: what the engine process is, one `key=value` a line.
    Process = 6,
    /// Text: a hook and how it was installed, `name\tway\tdetail`; id = index of the hook + 1.
    Hook = 7,
}

impl DefinitionKind {
    /// The kind with this number, if this version knows it.
    pub const fn from_u16(value: u16) -> Option<Self> {
        Some(match value {
            1 => Self::Site,
            2 => Self::Stack,
            3 => Self::Name,
            4 => Self::Image,
            5 => Self::Graph,
            6 => Self::Process,
            7 => Self::Hook,
            _ => return None,
        })
    }
}

/// Set in a stack's Python frame word beside the site id: an interpreter loop was entered for this frame.
pub const PYTHON_ENTRY_FRAME: u32 = 1 << 31;

/// One place in Python code. 16 bytes, then the texts.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct SiteHead {
    /// Line in the file; zero when the code has no line numbers.
    pub line: u32,
    /// First line of the function.
    pub first_line: u32,
    /// Bytes of the qualified name.
    pub name_bytes: u32,
    /// Bytes of the file name, which follows it.
    pub file_bytes: u32,
}
const _: () = assert!(size_of::<SiteHead>() == 16);

/// Set in [`StackHead::flags`].
pub const STACK_NATIVE_TRUNCATED: u32 = 1;
/// Set in [`StackHead::flags`].
pub const STACK_PYTHON_TRUNCATED: u32 = 2;

/// One distinct stack. 8 bytes, then its frames.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct StackHead {
    /// Native addresses (avma; return addresses except the first).
    pub native_count: u16,
    /// Python frames.
    pub python_count: u16,
    /// [`STACK_NATIVE_TRUNCATED`] and [`STACK_PYTHON_TRUNCATED`].
    pub flags: u32,
}
const _: () = assert!(size_of::<StackHead>() == 8);

/// One mapped ELF image. 64 bytes, then its path.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct ImageHead {
    /// What must be subtracted from an address to get the file's own (load bias).
    pub bias_avma: u64,
    /// Lowest mapped address.
    pub start_avma: u64,
    /// One past the highest mapped address.
    pub end_avma: u64,
    /// Build id, NUL-padded.
    pub build_id: [u8; 32],
    /// Bytes of `build_id` in use.
    pub build_id_bytes: u32,
    /// Bytes of the path.
    pub path_bytes: u32,
}
const _: () = assert!(size_of::<ImageHead>() == 64);

/// One captured graph: which stack captured each node. 8 bytes, then the nodes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct GraphHead {
    /// Nodes that follow.
    pub node_count: u32,
    /// Nodes without a stack.
    pub unknown_count: u32,
}
const _: () = assert!(size_of::<GraphHead>() == 8);

/// One node of a captured graph. 8 bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, FromBytes, IntoBytes, Immutable, KnownLayout)]
pub struct GraphNode {
    /// Dictionary id of the stack that captured it; zero when it is not known.
    pub stack_id: u32,
    /// Dictionary id of its kernel's name; zero when it is not a kernel, or not known.
    pub name_id: u32,
}
const _: () = assert!(size_of::<GraphNode>() == 8);

/// The dictionary has no room for the definition; the caller counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DictionaryFull;

const ENTRY_HEADER_BYTES: u64 = 16;
const PUBLISHED: u64 = 1 << 63;

/// Appends a definition: `parts` are concatenated and padded with zeros to a whole word.
///
/// Allocates: no. Locks: no. Waits: no.
pub fn define(
    segment: &Segment,
    kind: DefinitionKind,
    id: u32,
    parts: &[&[u8]],
) -> Result<(), DictionaryFull> {
    let payload_words = words_for(parts.iter().map(|part| part.len()).sum());
    let entry_bytes = ENTRY_HEADER_BYTES + payload_words as u64 * 8;
    let offset = reserve(segment, entry_bytes)?;
    let word = |at: u64| segment.dictionary_word(offset + at).ok_or(DictionaryFull);
    let mut check = mix(CHECK_SEED, u64::from(id));
    for_each_word(parts, |index, value| {
        check = mix(check, value);
        if let Ok(target) = word(ENTRY_HEADER_BYTES + index as u64 * 8) {
            // Relaxed: published by the store below.
            target.store(value, Ordering::Relaxed);
        }
    });
    word(8)?.store(u64::from(id) | (check >> 32) << 32, Ordering::Relaxed);
    // Release pairs with the Acquire in `Reader::next`.
    word(0)?.store((entry_bytes / 8) | ((kind as u64) << 32) | PUBLISHED, Ordering::Release);
    Ok(())
}

fn reserve(segment: &Segment, entry_bytes: u64) -> Result<u64, DictionaryFull> {
    let head = segment.live(LiveWord::DictionaryHead);
    let limit = segment.identity().dictionary_bytes;
    // Relaxed: the head only hands out room; each entry publishes itself.
    head.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |at| {
        at.checked_add(entry_bytes).filter(|end| *end <= limit)
    })
    .map_err(|_| DictionaryFull)
}

/// A definition copied out of the dictionary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Definition {
    /// Its kind, unchecked.
    pub kind: u16,
    /// Its id.
    pub id: u32,
    /// Its payload in words; the last one may be padded with zero bytes.
    pub words: Words,
}

/// Payload of a definition, copied into memory that the reader's caller provides.
pub type Words = core::ops::Range<usize>;

/// What a reader found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// A whole definition; its payload is in the caller's buffer.
    Definition(Definition),
    /// An entry whose checksum is wrong; it was skipped.
    Torn,
    /// Nothing more is published yet.
    End,
    /// The length of the next entry makes no sense: nothing behind it can be read.
    Broken {
        /// Its offset in the dictionary.
        offset: u64,
    },
}

/// Reads definitions in order, each once.
#[derive(Clone, Debug, Default)]
pub struct Reader {
    offset: u64,
}

impl Reader {
    /// Copies the next definition's payload behind what `buffer` holds by calling `append` for each word.
    /// `words` of the result counts from zero for this definition. `append` has been called for a torn entry as well:
    /// the caller drops those words. The collector bounds what it keeps; an entry may claim the whole dictionary.
    pub fn next(&mut self, segment: &Segment, mut append: impl FnMut(u64)) -> Read {
        let offset = self.offset;
        let limit = segment.identity().dictionary_bytes;
        let Some(first) = segment.dictionary_word(offset) else { return Read::End };
        // Acquire pairs with the Release in `define`.
        let first = first.load(Ordering::Acquire);
        if first & PUBLISHED == 0 {
            return Read::End;
        }
        let entry_bytes = u64::from(first as u32) * 8;
        if entry_bytes < ENTRY_HEADER_BYTES || offset.saturating_add(entry_bytes) > limit {
            return Read::Broken { offset };
        }
        let load = |at: u64| segment.dictionary_word(at).map_or(0, |word| word.load(Ordering::Relaxed));
        let second = load(offset + 8);
        let id = second as u32;
        let mut check = mix(CHECK_SEED, u64::from(id));
        let mut count = 0;
        for at in (offset + ENTRY_HEADER_BYTES..offset + entry_bytes).step_by(8) {
            let word = load(at);
            check = mix(check, word);
            append(word);
            count += 1;
        }
        self.offset = offset + entry_bytes;
        if second >> 32 != check >> 32 {
            return Read::Torn;
        }
        let kind = ((first & !PUBLISHED) >> 32) as u16;
        Read::Definition(Definition { kind, id, words: 0..count })
    }

    /// Bytes that are reserved behind the reader's position: definitions lost if their writer is dead.
    pub fn unread_bytes(&self, segment: &Segment) -> u64 {
        segment.live(LiveWord::DictionaryHead).load(Ordering::Relaxed).saturating_sub(self.offset)
    }
}
