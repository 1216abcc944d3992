//! Why a driver function was not patched. A refusal leaves the function as it was, byte for byte.

use core::ffi::CStr;
use core::fmt;

/// What became of a hook that was not refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// The function's entry leads to the hook's replacement.
    Patched,
    /// The driver has one function for both names, and the hook of this name has it.
    SameAs(&'static CStr),
}

/// A function that was not patched: why, and what its entry looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PatchRefusal {
    /// Why.
    pub why: Why,
    /// The first bytes of the function.
    pub entry: EntryBytes,
}

/// Why a function was not patched.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// The driver has no function of this name.
    NoSuchFunction,
    /// Entries of this processor architecture are not patched.
    Architecture,
    /// The first instruction is a jump or a call: another tool has been here.
    AlreadyPatched,
    /// The instruction at this offset does not decode.
    Undecodable {
        /// From the function's address.
        offset: u8,
    },
    /// The instruction at this offset leaves the function before there is room for a jump.
    TooShort {
        /// From the function's address.
        offset: u8,
    },
    /// The function, by its symbol or because another symbol begins, ends before there is room for a jump.
    SymbolTooShort {
        /// Length by the symbol table.
        bytes: u8,
    },
    /// The instruction at this offset is relative to its own address and cannot be moved.
    Unmovable {
        /// From the function's address.
        offset: u8,
    },
    /// The branch at this offset leads into the bytes that would be replaced.
    BranchIntoEntry {
        /// From the function's address.
        offset: u32,
    },
    /// The jump cannot be written so that no thread ever sees half of it.
    Straddles,
    /// The memory map could not be read.
    NoMemoryMap,
    /// The function does not lie in private, executable memory.
    NotCode,
    /// No page is free within reach of a near jump.
    NoPageInReach,
    /// The kernel did not make the trampoline's page executable.
    PageNotExecutable {
        /// The error number.
        errno: i32,
    },
    /// The kernel did not make the function's page writable.
    TextNotWritable {
        /// The error number.
        errno: i32,
    },
}

/// The first bytes of a function, as many as could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct EntryBytes {
    bytes: [u8; 16],
    length: u8,
}

impl EntryBytes {
    /// The first bytes of `code`.
    pub fn of(code: &[u8]) -> Self {
        let mut entry = Self::default();
        for (to, from) in entry.bytes.iter_mut().zip(code) {
            *to = *from;
            entry.length += 1;
        }
        entry
    }
}

impl fmt::Display for PatchRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.why)?;
        let shown = self.entry.bytes.get(..usize::from(self.entry.length)).unwrap_or_default();
        if !shown.is_empty() {
            f.write_str(" (entry")?;
            for byte in shown {
                write!(f, " {byte:02x}")?;
            }
            f.write_str(")")?;
        }
        Ok(())
    }
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoSuchFunction => f.write_str("the driver has no such function"),
            Self::Architecture => f.write_str("entries are not patched on this processor architecture"),
            Self::AlreadyPatched => f.write_str("begins with a jump or call, so another tool has patched it"),
            Self::Undecodable { offset } => write!(f, "the instruction at +{offset} does not decode"),
            Self::TooShort { offset } => write!(f, "the instruction at +{offset} leaves it too early"),
            Self::SymbolTooShort { bytes } => write!(f, "has only {bytes} bytes"),
            Self::Unmovable { offset } => write!(f, "the instruction at +{offset} cannot be moved"),
            Self::BranchIntoEntry { offset } => write!(f, "a branch at +{offset} leads back into its entry"),
            Self::Straddles => {
                f.write_str("its entry lies across two words so that no jump can be written at once")
            }
            Self::NoMemoryMap => f.write_str("the memory map could not be read"),
            Self::NotCode => f.write_str("does not lie in private executable memory"),
            Self::NoPageInReach => f.write_str("no free page lies within reach of a near jump"),
            Self::PageNotExecutable { errno } => {
                write!(f, "its trampoline could not be made executable (errno {errno})")
            }
            Self::TextNotWritable { errno } => {
                write!(f, "its page could not be made writable (errno {errno})")
            }
        }
    }
}
