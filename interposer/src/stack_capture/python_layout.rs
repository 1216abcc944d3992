//! Where CPython keeps what we read: a table for 3.8 to 3.12, `_Py_DebugOffsets` from 3.13 to 3.15. Nothing is
//! guessed: another version is refused by name.
//!
//! Allocates: no. Locks: no. Syscalls: no. Cost: once a process.

use super::python_refusal::PythonRefusal;
use super::safe_read::Memory;

/// How a frame tells its instruction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Instruction {
    /// `f_lasti`, in units of so many bytes.
    Index {
        /// 1 to 3.9, 2 in 3.10.
        unit_bytes: i64,
    },
    /// A pointer into the code object.
    Pointer,
}

/// How lines are told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// `co_lnotab`, to 3.9.
    Lnotab,
    /// `co_linetable` of 3.10.
    Deltas,
    /// `co_linetable` since 3.11.
    Locations,
}

/// What marks the frame for which an interpreter loop was entered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryFrame {
    /// Each frame (to 3.10).
    Each,
    /// A flag in it, at this offset (3.11).
    Flag(u64),
    /// The frame below it is a shim, with an owner of at least 3 (since 3.12).
    AboveShim,
}

/// Offsets in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Thread state: the frame, or what leads to it.
    pub thread_frame: u64,
    /// `cframe`: where in it the frame is (3.11, 3.12).
    pub cframe_frame: Option<u64>,
    /// Frame: the code object.
    pub frame_code: u64,
    /// Frame: its caller.
    pub frame_previous: u64,
    /// Frame: the instruction.
    pub frame_instruction: u64,
    /// How to read it.
    pub instruction: Instruction,
    /// Frame: who owns it (since 3.11).
    pub frame_owner: Option<u64>,
    /// What marks entry frames.
    pub entry_frame: EntryFrame,
    /// Code: file name.
    pub code_file: u64,
    /// Code: name.
    pub code_name: u64,
    /// Code: qualified name (the name, to 3.10).
    pub code_qualified_name: u64,
    /// Code: first line.
    pub code_first_line: u64,
    /// Code: line table.
    pub code_lines: u64,
    /// How to read that.
    pub line_format: LineFormat,
    /// Code: first instruction (since 3.11).
    pub code_bytes: u64,
    /// Code: number of the first instruction of the function's own (since 3.11).
    pub code_first_traceable: u64,
    /// str: characters of an ASCII string; a compact one has them [`Layout::text_compact`] bytes from its start.
    pub text_ascii: u64,
    /// str: characters of a compact string that is not ASCII.
    pub text_compact: u64,
}

/// `ob_type` of every object.
pub const OBJECT_TYPE: u64 = 8;
/// `ob_size` of bytes.
pub const BYTES_SIZE: u64 = 16;
/// First byte of bytes.
pub const BYTES_DATA: u64 = 32;
/// Length of a str.
pub const TEXT_LENGTH: u64 = 16;
/// Cached hash of a str.
pub const TEXT_HASH: u64 = 24;
/// Kind and flags of a str.
pub const TEXT_STATE: u64 = 32;

/// Release levels in `Py_Version`: 0xA alpha, 0xB beta, 0xC candidate, 0xF final.
const FIRST_STABLE_LEVEL: u32 = 0xC;

/// A CPython version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PythonVersion {
    /// 3.
    pub major: u8,
    /// 8 to 15.
    pub minor: u8,
    /// Bug-fix release.
    pub micro: u8,
    level: u8,
}

impl PythonVersion {
    /// From `Py_Version` (0xMMmmpplv).
    pub fn from_hex(hex: u32) -> Self {
        let [level, micro, minor, major] = hex.to_le_bytes();
        Self { major, minor, micro, level: level >> 4 }
    }

    /// From the text of `Py_GetVersion`, `3.8.18 (default, ...`; releases before 3.11 are all final by now.
    pub fn from_text(text: &[u8]) -> Option<Self> {
        let mut numbers = text
            .split(|byte| !byte.is_ascii_digit())
            .map(|digits| core::str::from_utf8(digits).ok().and_then(|digits| digits.parse::<u8>().ok()));
        let (major, minor) = (numbers.next()??, numbers.next()??);
        let micro = numbers.next().flatten().unwrap_or(0);
        Some(Self { major, minor, micro, level: 0xF })
    }
}

const OLD: Layout = Layout {
    thread_frame: 24,
    cframe_frame: None,
    frame_code: 32,
    frame_previous: 24,
    frame_instruction: 104,
    instruction: Instruction::Index { unit_bytes: 1 },
    frame_owner: None,
    entry_frame: EntryFrame::Each,
    code_file: 104,
    code_name: 112,
    code_qualified_name: 112,
    code_first_line: 40,
    code_lines: 120,
    line_format: LineFormat::Lnotab,
    code_bytes: 0,
    code_first_traceable: 0,
    text_ascii: 48,
    text_compact: 72,
};

const V3_10: Layout = Layout {
    frame_instruction: 96,
    instruction: Instruction::Index { unit_bytes: 2 },
    line_format: LineFormat::Deltas,
    ..OLD
};

const V3_11: Layout = Layout {
    thread_frame: 56,
    cframe_frame: Some(8),
    frame_code: 32,
    frame_previous: 48,
    frame_instruction: 56,
    instruction: Instruction::Pointer,
    frame_owner: Some(69),
    entry_frame: EntryFrame::Flag(68),
    code_file: 112,
    code_name: 120,
    code_qualified_name: 128,
    code_first_line: 72,
    code_lines: 136,
    line_format: LineFormat::Locations,
    code_bytes: 184,
    code_first_traceable: 168,
    text_ascii: 48,
    text_compact: 72,
};

const V3_12: Layout = Layout {
    cframe_frame: Some(0),
    frame_code: 0,
    frame_previous: 8,
    frame_owner: Some(70),
    entry_frame: EntryFrame::AboveShim,
    code_first_line: 68,
    code_bytes: 192,
    code_first_traceable: 176,
    text_ascii: 40,
    text_compact: 56,
    ..V3_11
};

/// The layout of `version`; from 3.13 on read from `runtime_avma`, the address of `_PyRuntime`.
pub fn layout_of(
    version: PythonVersion,
    runtime_avma: Option<u64>,
    memory: &impl Memory,
) -> Result<Layout, PythonRefusal> {
    let unknown = PythonRefusal::UnknownVersion { major: version.major, minor: version.minor };
    if version.major != 3 || u32::from(version.level) < FIRST_STABLE_LEVEL {
        return Err(unknown);
    }
    let indexes = match version.minor {
        8 | 9 => return Ok(OLD),
        10 => return Ok(V3_10),
        11 => return Ok(V3_11),
        12 => return Ok(V3_12),
        13 => &INDEXES_3_13,
        14 => &INDEXES_3_14,
        15 => &INDEXES_3_15,
        _ => return Err(unknown),
    };
    let runtime_avma = runtime_avma.ok_or(PythonRefusal::MissingSymbol)?;
    read_debug_offsets(runtime_avma, indexes, version, memory)
}

/// Positions of u64 fields in `_Py_DebugOffsets`, counted from the cookie; their order differs from version to version.
struct Indexes {
    current_frame: u64,
    previous: u64,
    executable: u64,
    instr_ptr: u64,
    owner: u64,
    filename: u64,
    name: u64,
    qualname: u64,
    linetable: u64,
    firstlineno: u64,
    co_code_adaptive: u64,
    asciiobject_size: u64,
    /// Not in the table: `_co_firsttraceable` itself.
    first_traceable: u64,
}

const INDEXES_3_13: Indexes = Indexes {
    current_frame: 23,
    previous: 29,
    executable: 30,
    instr_ptr: 31,
    owner: 33,
    filename: 35,
    name: 36,
    qualname: 37,
    linetable: 38,
    firstlineno: 39,
    co_code_adaptive: 43,
    asciiobject_size: 70,
    first_traceable: 184,
};

const INDEXES_3_14: Indexes = Indexes {
    current_frame: 26,
    previous: 32,
    executable: 33,
    instr_ptr: 34,
    owner: 36,
    filename: 40,
    name: 41,
    qualname: 42,
    linetable: 43,
    firstlineno: 44,
    co_code_adaptive: 48,
    asciiobject_size: 80,
    first_traceable: 192,
};

const INDEXES_3_15: Indexes = Indexes {
    current_frame: 26,
    previous: 40,
    executable: 41,
    instr_ptr: 42,
    owner: 44,
    filename: 48,
    name: 49,
    qualname: 50,
    linetable: 51,
    firstlineno: 52,
    co_code_adaptive: 56,
    asciiobject_size: 92,
    first_traceable: 192,
};

const COOKIE: u64 = u64::from_le_bytes(*b"xdebugpy");
/// No offset in a thread state, frame or code object is larger; 3.13's largest is 200.
const MAX_OFFSET: u64 = 1024;

fn read_debug_offsets(
    runtime_avma: u64,
    indexes: &Indexes,
    version: PythonVersion,
    memory: &impl Memory,
) -> Result<Layout, PythonRefusal> {
    let word = |index: u64| memory.word(runtime_avma + index * 8).ok_or(PythonRefusal::BadOffsets);
    let offset =
        |index| word(index).and_then(|at| (at < MAX_OFFSET).then_some(at).ok_or(PythonRefusal::BadOffsets));
    let told = PythonVersion::from_hex(word(1)? as u32);
    if word(0)? != COOKIE || (told.major, told.minor) != (version.major, version.minor) {
        return Err(PythonRefusal::BadOffsets);
    }
    if word(2)? != 0 {
        return Err(PythonRefusal::FreeThreaded);
    }
    let text_ascii = offset(indexes.asciiobject_size)?;
    Ok(Layout {
        thread_frame: offset(indexes.current_frame)?,
        cframe_frame: None,
        frame_code: offset(indexes.executable)?,
        frame_previous: offset(indexes.previous)?,
        frame_instruction: offset(indexes.instr_ptr)?,
        frame_owner: Some(offset(indexes.owner)?),
        code_file: offset(indexes.filename)?,
        code_name: offset(indexes.name)?,
        code_qualified_name: offset(indexes.qualname)?,
        code_first_line: offset(indexes.firstlineno)?,
        code_lines: offset(indexes.linetable)?,
        code_bytes: offset(indexes.co_code_adaptive)?,
        code_first_traceable: indexes.first_traceable,
        text_ascii,
        text_compact: text_ascii + 16,
        ..V3_12
    })
}

#[cfg(test)]
mod tests {
    use super::super::safe_read::CheckedMemory;
    use super::*;

    fn layout(hex: u32, runtime: Option<&[u64]>) -> Result<Layout, PythonRefusal> {
        let runtime_avma = runtime.map(|words| words.as_ptr() as u64);
        layout_of(PythonVersion::from_hex(hex), runtime_avma, &CheckedMemory::new())
    }

    /// Check that versions outside the table are refused by name, and alphas too.
    #[test]
    fn unknown_versions_are_refused() {
        for (hex, minor) in [(0x0307_11f0, 7), (0x0310_00f0, 16), (0x030d_00a1, 13)] {
            assert_eq!(layout(hex, None), Err(PythonRefusal::UnknownVersion { major: 3, minor }));
        }
        assert_eq!(layout(0x0207_12f0, None), Err(PythonRefusal::UnknownVersion { major: 2, minor: 7 }));
        assert_eq!(layout(0x030d_00f0, None), Err(PythonRefusal::MissingSymbol));
        assert!(layout(0x030c_01f0, None).is_ok());
    }

    /// Check that debug offsets are believed only with cookie, version and sane offsets, and that a free-threaded
    /// interpreter is refused by name.
    #[test]
    fn debug_offsets_are_checked() {
        let mut words = [16u64; 100];
        (words[0], words[1], words[2]) = (COOKIE, 0x030d_00f0, 0);
        assert!(layout(0x030d_00f0, Some(&words)).is_ok());
        assert_eq!(layout(0x030e_00f0, Some(&words)), Err(PythonRefusal::BadOffsets));
        words[2] = 1;
        assert_eq!(layout(0x030d_00f0, Some(&words)), Err(PythonRefusal::FreeThreaded));
        (words[2], words[23]) = (0, 1 << 20);
        assert_eq!(layout(0x030d_00f0, Some(&words)), Err(PythonRefusal::BadOffsets));
        (words[23], words[0]) = (16, 0);
        assert_eq!(layout(0x030d_00f0, Some(&words)), Err(PythonRefusal::BadOffsets));
    }

    /// Check that the version is read from both of its forms.
    #[test]
    fn version_is_read_from_hex_and_text() {
        let version = PythonVersion::from_text(b"3.8.18 (default, Feb  1 2024)").unwrap();
        assert_eq!((version.major, version.minor, version.micro), (3, 8, 18));
        let version = PythonVersion::from_text(b"3.10.13+ (main)").unwrap();
        assert_eq!((version.major, version.minor, version.micro), (3, 10, 13));
        let version = PythonVersion::from_hex(0x030c_01f0);
        assert_eq!((version.major, version.minor, version.micro), (3, 12, 1));
        assert_eq!(PythonVersion::from_text(b"PyPy"), None);
    }
}
