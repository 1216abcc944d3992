//! Stub of the hooks branch, replaced at the merge: patches every hook when the driver injects us.

use crate::launch_hook::{HOOKS, entry_patch};

/// The driver has loaded us.
pub fn on_injection() -> core::ffi::c_int {
    if let Some(libcuda) = bindings::dl::Library::already_loaded(c"libcuda.so.1") {
        entry_patch::install_all(&HOOKS, &libcuda, &mut |_, _| {});
    }
    1
}
