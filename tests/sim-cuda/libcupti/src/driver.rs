//! Finds the simulated driver in the process. A real driver, or a simulated one of another version, is no driver here.

use crate::results::{CuptiResult, NOT_INITIALIZED};
use crate::tools_abi::{EXPORT, Tools, VERSION};
use std::sync::OnceLock;

static DRIVER: OnceLock<&'static Tools> = OnceLock::new();

/// The driver's side, once it is loaded.
pub fn driver() -> Result<&'static Tools, CuptiResult> {
    if let Some(tools) = DRIVER.get() {
        return Ok(tools);
    }
    let tools = find().ok_or(NOT_INITIALIZED)?;
    Ok(DRIVER.get_or_init(|| tools))
}

fn find() -> Option<&'static Tools> {
    // SAFETY: the name is a C string; RTLD_NOLOAD runs no code.
    let library = unsafe { libc::dlopen(c"libcuda.so.1".as_ptr(), libc::RTLD_NOW | libc::RTLD_NOLOAD) };
    if library.is_null() {
        return None;
    }
    // SAFETY: the handle is a loaded library and the name a C string.
    let symbol = unsafe { libc::dlsym(library, EXPORT.as_ptr()) };
    if symbol.is_null() {
        return None;
    }
    // SAFETY: only the simulated driver exports this name, and its signature never changes.
    let ask =
        unsafe { core::mem::transmute::<*mut libc::c_void, extern "C" fn(u32) -> *const Tools>(symbol) };
    // SAFETY: null, or a static of this version's layout in a library that is never unloaded.
    unsafe { ask(VERSION).as_ref() }.filter(|tools| tools.version == VERSION)
}
