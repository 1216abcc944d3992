//! Finds CPython in the process: its version, its layout and the few symbols that reading its stacks needs.
//!
//! Runs on: the helper thread, or arming. Allocates: yes. Locks: the loader's. Syscalls: those of `safe_read`.
//! Cost: about 30 µs a look while there is no Python, nothing afterwards.

use super::python_layout::{Layout, PythonVersion, layout_of};
use super::python_refusal::PythonRefusal;
use super::safe_read::{CheckedMemory, Memory as _};
use core::ffi::{CStr, c_char, c_void};

/// `PyGILState_GetThisThreadState`.
pub type GetThreadState = unsafe extern "C" fn() -> *const c_void;

/// A CPython that was found in the process.
#[derive(Clone, Copy, Debug)]
pub struct Runtime {
    /// Where it keeps what.
    pub layout: Layout,
    /// `PyGILState_GetThisThreadState`.
    pub thread_state: GetThreadState,
    /// `PyCode_Type`.
    pub code_type_avma: u64,
    /// `PyUnicode_Type`.
    pub str_type_avma: u64,
    /// `PyBytes_Type`.
    pub bytes_type_avma: u64,
}

/// What was found, once something was.
#[derive(Clone, Copy, Debug)]
pub struct Found {
    /// Its version, where it tells one.
    pub version: Option<PythonVersion>,
    /// How to read it, or why not.
    pub runtime: Result<Runtime, PythonRefusal>,
}

/// Looks for CPython; `None` while it is not there.
pub fn find_python() -> Option<Found> {
    let symbols = SymbolSource::find()?;
    let version = read_version(symbols);
    let runtime = match version {
        Some(version) => find_runtime(symbols, version),
        None => Err(PythonRefusal::UnreadableVersion),
    };
    Some(Found { version, runtime })
}

fn find_runtime(symbols: SymbolSource, version: PythonVersion) -> Result<Runtime, PythonRefusal> {
    let symbol = |name: &CStr| symbols.symbol(name).ok_or(PythonRefusal::MissingSymbol);
    let runtime_avma = symbols.symbol(c"_PyRuntime").map(|at| at as u64);
    let layout = layout_of(version, runtime_avma, &CheckedMemory::new())?;
    let thread_state = symbol(c"PyGILState_GetThisThreadState")?;
    Ok(Runtime {
        layout,
        // SAFETY: CPython's function of that name has this signature in every version that has a layout.
        thread_state: unsafe { core::mem::transmute::<*mut c_void, GetThreadState>(thread_state) },
        code_type_avma: symbol(c"PyCode_Type")? as u64,
        str_type_avma: symbol(c"PyUnicode_Type")? as u64,
        bytes_type_avma: symbol(c"PyBytes_Type")? as u64,
    })
}

/// `Py_Version` since 3.11; before, the text of `Py_GetVersion`.
fn read_version(symbols: SymbolSource) -> Option<PythonVersion> {
    if let Some(version) = symbols.symbol(c"Py_Version") {
        let hex = CheckedMemory::new().int(version as u64)?;
        return Some(PythonVersion::from_hex(hex as u32));
    }
    let get_version = symbols.symbol(c"Py_GetVersion")?;
    // SAFETY: the function takes nothing, may be called without the GIL and before initialization, and returns a
    // static text. Each call writes the same text again.
    let text = unsafe {
        let get_version =
            core::mem::transmute::<*mut c_void, unsafe extern "C" fn() -> *const c_char>(get_version);
        get_version()
    };
    if text.is_null() {
        return None;
    }
    // SAFETY: see above; the text ends in NUL.
    PythonVersion::from_text(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Where CPython's symbols come from.
#[derive(Clone, Copy, Debug)]
enum SymbolSource {
    /// The global scope: the python program, or a libpython that it links.
    Global,
    /// A libpython that was loaded privately (an embedding program).
    Library(*mut c_void),
}

impl SymbolSource {
    fn find() -> Option<Self> {
        let has_python = |source: &Self| source.symbol(c"PyGILState_GetThisThreadState").is_some();
        Some(Self::Global).filter(has_python).or_else(|| private_libpython().filter(has_python))
    }

    fn symbol(self, name: &CStr) -> Option<*mut c_void> {
        match self {
            Self::Global => super::find_symbol(name),
            Self::Library(handle) => super::find_symbol_in(handle, name),
        }
    }
}

/// The handle of a mapped libpython3; it is never given back, so that its addresses stay.
fn private_libpython() -> Option<SymbolSource> {
    let mut path: Option<std::ffi::CString> = None;
    // SAFETY: the callback gets back the pointer to `path`, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(note_libpython), (&raw mut path).cast::<c_void>()) };
    // SAFETY: a C string; RTLD_NOLOAD loads nothing and runs no constructor.
    let handle = unsafe { libc::dlopen(path?.as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
    (!handle.is_null()).then_some(SymbolSource::Library(handle))
}

unsafe extern "C" fn note_libpython(info: *mut libc::dl_phdr_info, _bytes: usize, path: *mut c_void) -> i32 {
    // SAFETY: the loader passes a valid description with a C string, and the pointer that was given to it.
    let (name, path) = unsafe { ((*info).dlpi_name, &mut *path.cast::<Option<std::ffi::CString>>()) };
    if name.is_null() {
        return 0;
    }
    // SAFETY: see above.
    let name = unsafe { CStr::from_ptr(name) };
    let file = name.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or(&[]);
    if !file.starts_with(b"libpython3.") {
        return 0;
    }
    *path = Some(name.to_owned());
    1
}
