//! Why Python stacks are not taken, by name.

use core::fmt;

/// What did not look like CPython.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum SanityCheck {
    /// A pointer led to memory that cannot be read.
    Unreadable = 1,
    /// What should be a code object is not.
    NotCode = 2,
    /// What should be a str is not.
    NotAStr = 3,
    /// What should be bytes are not.
    NotBytes = 4,
    /// An instruction lies outside its code object.
    BadInstruction = 5,
}

impl SanityCheck {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::Unreadable, Self::NotCode, Self::NotAStr, Self::NotBytes, Self::BadInstruction];
}

/// Why Python stacks are not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PythonRefusal {
    /// A version whose layout is not known.
    UnknownVersion {
        /// Major.
        major: u8,
        /// Minor.
        minor: u8,
    },
    /// A version that does not tell which it is.
    UnreadableVersion,
    /// Built without the GIL: another layout.
    FreeThreaded,
    /// A symbol that CPython exports is missing.
    MissingSymbol,
    /// `_Py_DebugOffsets` make no sense.
    BadOffsets,
    /// A stack did not look as it must.
    SanityCheckFailed(SanityCheck),
}

impl fmt::Display for PythonRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownVersion { major, minor } => {
                write!(f, "the layout of Python {major}.{minor} is not known (3.8 to 3.15 are)")
            }
            Self::UnreadableVersion => write!(f, "Python does not tell its version"),
            Self::FreeThreaded => write!(f, "free-threaded Python is not supported"),
            Self::MissingSymbol => write!(f, "a symbol that CPython exports is missing"),
            Self::BadOffsets => write!(f, "Python's table of debug offsets makes no sense"),
            Self::SanityCheckFailed(check) => write!(f, "a Python stack failed a sanity check ({check:?})"),
        }
    }
}
