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
//! They are a crate of their own, so that tests and benches, which link the interposer, do not interpose on themselves.

#[cfg_attr(target_arch = "x86_64", path = "stubs_x86_64.rs")]
#[cfg_attr(target_arch = "aarch64", path = "stubs_aarch64.rs")]
mod stubs; // the instructions of the exports

use core::ffi::{c_char, c_int, c_void};
use interposer::launch_hook::preload;
use interposer::launch_hook::real_dlsym::REAL_DLSYM;
use interposer::{guard, lifecycle, with_exported_names};
use stubs::{dlsym_stub, plain_slow_stub, plain_stub};

/// Called by the driver inside cuInit. 1 is success; the driver goes on either way.
#[allow(non_snake_case)]
#[unsafe(no_mangle)]
pub extern "C" fn InitializeInjection() -> c_int {
    guard::panic_fence(1, lifecycle::on_injection)
}

/// The C library's dlsym, but for names of the driver.
///
/// # Safety
///
/// As the C library's.
#[unsafe(naked)]
#[unsafe(no_mangle)]
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
            #[unsafe(no_mangle)]
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
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = on_load;

extern "C" fn on_load() {
    guard::panic_fence((), preload::note_way_in);
}
