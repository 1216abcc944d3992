//! Every symbol that this library exports. Nothing else in it is visible to the process.
//!
//! | export | called by |
//! | --- | --- |
//! | `InitializeInjection` | the driver, inside cuInit, when CUDA_INJECTION64_PATH names this library |
//! | `dlsym` | everybody, when LD_PRELOAD names this library |
//! | `cuGetProcAddress`, `cuGetProcAddress_v2`, the hooked functions | programs that are linked against libcuda, likewise |
//! | the ELF constructor (not a symbol) | the dynamic linker; it notes by which way we came and does nothing else |
//!
//! The stubs run before any Rust code: they keep all registers and the stack, so that whoever they jump to sees the caller.
//! In unit tests nothing is exported; a test or bench program that links this crate has the exports in itself, where they
//! pass everything on.

#[cfg_attr(target_arch = "x86_64", path = "entry/stubs_x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "entry/stubs_aarch64.rs")]
mod stubs; // the instructions of the exports

use crate::launch_hook::names::with_exported_names;
use crate::launch_hook::preload;
use crate::launch_hook::real_dlsym::REAL_DLSYM;
use crate::{guard, lifecycle};
use core::ffi::{c_char, c_int, c_void};
use stubs::{dlsym_stub, plain_slow_stub, plain_stub};

/// Called by the driver inside cuInit. 1 is success; the driver goes on either way.
#[allow(non_snake_case)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub extern "C" fn InitializeInjection() -> c_int {
    guard::panic_fence(1, lifecycle::on_injection)
}

/// The C library's dlsym, but for names of the driver.
///
/// # Safety
///
/// As the C library's.
#[unsafe(naked)]
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C" fn dlsym(handle: *mut c_void, name: *const c_char) -> *mut c_void {
    dlsym_stub!(REAL_DLSYM, preload::on_dlsym, preload::find_real_dlsym)
}

macro_rules! plain_exports {
    ($($name:ident)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms)]
        #[derive(Clone, Copy)]
        #[repr(usize)]
        enum Index { $($name),* }

        $(
            /// The driver's function of this name.
            ///
            /// # Safety
            ///
            /// As the driver's.
            #[unsafe(naked)]
            #[allow(non_snake_case)]
            #[cfg_attr(not(test), unsafe(no_mangle))]
            pub unsafe extern "C" fn $name() {
                plain_stub!(preload::PLAIN_TARGETS, Index::$name as usize, plain_slow)
            }
        )*
    };
}
with_exported_names!(plain_exports);

/// Where an exported driver function goes on when it is called for the first time.
#[unsafe(naked)]
unsafe extern "C" fn plain_slow() {
    plain_slow_stub!(preload::plain_target)
}

#[used]
#[cfg_attr(not(test), unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = on_load;

extern "C" fn on_load() {
    guard::panic_fence((), preload::note_way_in);
}
