//! Kernel names, each with an id that is defined once in the dictionary. The key is the text, not the function
//! handle: handles are reused when a module is unloaded.
//!
//! Allocates: in `new` only. Locks: no. Syscalls: no. Cost: about 0.2 ns a byte (names reach 6.7 KB).

use crate::fold::Fold;
use crate::intern_table::{InternTable, Search};
use core::ffi::CStr;
use shared_abi::counters::Counter;
use shared_abi::dictionary::{DefinitionKind, DictionaryFull, define};
use shared_abi::segment::Segment;
use shared_abi::sync::Ordering;

/// Slots: 128 KiB.
pub const NAME_SLOTS: usize = 16 * 1024;

/// All kernel names of the process.
#[derive(Debug)]
pub struct NameTable {
    table: InternTable,
}

impl NameTable {
    /// An empty table with room for `slots` names.
    pub fn new(slots: usize) -> Self {
        Self { table: InternTable::new(slots) }
    }

    /// The id of a C string.
    pub fn intern_c(&self, segment: &Segment, name: &CStr) -> u32 {
        self.intern(segment, name.to_bytes())
    }

    /// The id of a mangled name, defined at first sight; zero when there is no room, which is counted.
    pub fn intern(&self, segment: &Segment, name: &[u8]) -> u32 {
        let lost = match self.table.find(Fold::new(4).bytes(name).finish()) {
            Search::Known(id) => return id,
            Search::Full => Counter::NameTableFull,
            Search::Vacant(vacancy) => {
                match self.table.fill(vacancy, |id| define(segment, DefinitionKind::Name, id, &[name])) {
                    Ok(Some(id)) => return id,
                    Ok(None) => Counter::NameTableFull,
                    Err(DictionaryFull) => Counter::DictionaryDropped,
                }
            }
        };
        segment.counter(lost as usize).fetch_add(1, Ordering::Relaxed);
        0
    }
}
