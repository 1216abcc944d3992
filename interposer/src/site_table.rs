//! Places in Python code (code object and instruction), each with an id that is defined once in the dictionary.
//!
//! The key holds a fingerprint of the code object's contents: a freed code object whose address is reused is
//! another key and gets another id, so a name can never belong to code that is gone.
//!
//! Allocates: in `new` only. Locks: no. Syscalls: no.
//! Cost: 1 to 2 ns for a site that is known; 0.3 to 1 µs, once, for a new one.

use crate::fold::Fold;
use crate::intern_table::{InternTable, Search, Vacancy};
use shared_abi::counters::Counter;
use shared_abi::dictionary::{DefinitionKind, DictionaryFull, SiteHead, define};
use shared_abi::segment::Segment;
use shared_abi::sync::Ordering;
use zerocopy::IntoBytes as _;

/// Slots: 256 KiB. A vLLM engine with torch.compile shows a few thousand sites.
pub const SITE_SLOTS: usize = 32 * 1024;

/// What tells one site from another.
#[derive(Clone, Copy, Debug)]
pub struct SiteKey {
    /// Address of the code object.
    pub code_avma: u64,
    /// Byte offset of the instruction.
    pub instruction_offset: i64,
    /// Hash of what the code object points to.
    pub fingerprint: u64,
}

impl SiteKey {
    #[inline(always)]
    fn hash(self) -> u64 {
        Fold::new(1)
            .word(self.code_avma ^ (self.instruction_offset as u64) << 40)
            .word(self.fingerprint)
            .finish()
    }
}

/// What is told of a site.
#[derive(Clone, Copy, Debug)]
pub struct SiteText<'a> {
    /// Line in the file; zero when it is not known.
    pub line: u32,
    /// First line of the function.
    pub first_line: u32,
    /// Qualified name, UTF-8.
    pub name: &'a [u8],
    /// File name, UTF-8.
    pub file: &'a [u8],
}

/// All sites of the process.
#[derive(Debug)]
pub struct SiteTable {
    table: InternTable,
}

impl SiteTable {
    /// An empty table with room for `slots` sites.
    pub fn new(slots: usize) -> Self {
        Self { table: InternTable::new(slots) }
    }

    /// Looks a site up.
    #[inline(always)]
    pub fn find(&self, key: SiteKey) -> Search {
        self.table.find(key.hash())
    }

    /// Defines a site that was not found; zero when there is no room.
    pub fn define(&self, segment: &Segment, vacancy: Vacancy, text: SiteText<'_>) -> u32 {
        let head = SiteHead {
            line: text.line,
            first_line: text.first_line,
            name_bytes: text.name.len() as u32,
            file_bytes: text.file.len() as u32,
        };
        let parts = [head.as_bytes(), text.name, text.file];
        let lost = match self.table.fill(vacancy, |id| define(segment, DefinitionKind::Site, id, &parts)) {
            Ok(Some(id)) => return id,
            Ok(None) => Counter::SiteTableFull,
            Err(DictionaryFull) => Counter::DictionaryDropped,
        };
        segment.counter(lost as usize).fetch_add(1, Ordering::Relaxed);
        0
    }
}
