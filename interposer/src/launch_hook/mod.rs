//! The launch hook (stub of the hooks branch, replaced at the merge: replacements that only forward).

pub mod table; // what a hook is
pub mod names; // the exported driver names
pub mod entry_patch; // hooks installed by patching a function's entry
pub mod refusal; // why a function was not patched
#[cfg_attr(target_arch = "x86_64", path = "moved_code_x86_64.rs")]
#[cfg_attr(not(target_arch = "x86_64"), path = "moved_code_other.rs")]
mod moved_code; // which instructions give way, and what they look like elsewhere
pub mod trampoline; // pages within reach
pub mod memory_map; // what lies where
mod text_write; // the jump itself
pub mod preload; // hooks handed out by dlsym and cuGetProcAddress
pub mod real_dlsym; // the C library's own

use core::ffi::c_void;
use core::mem::{offset_of, size_of};
use names::with_exported_names;
use table::Hook;

macro_rules! hooks {
    (cuGetProcAddress cuGetProcAddress_v2 $($name:ident)*) => {
        #[allow(non_camel_case_types)]
        enum Index { $($name,)* End }
        /// All hooked functions.
        pub static HOOKS: [Hook; Index::End as usize] = [$(
            Hook::new(
                bindings::dl::c_name(concat!(stringify!($name), "\0")),
                { fn address() -> *const c_void { replacement::$name as *const c_void } address },
            ),
        )*];
        mod replacement {
            use super::*;
            $(
                #[unsafe(naked)]
                #[allow(non_snake_case)]
                pub(super) unsafe extern "C" fn $name() {
                    core::arch::naked_asm!(
                        "mov rax, [rip + {hooks} + {offset}]", "jmp rax",
                        hooks = sym HOOKS,
                        offset = const Index::$name as usize * size_of::<Hook>() + offset_of!(Hook, original),
                    )
                }
            )*
        }
    };
}
with_exported_names!(hooks);
