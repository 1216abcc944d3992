//! The table of hooked driver functions: name, our replacement, the forwarded original and how it was installed.

use core::ffi::{CStr, c_void};
use core::ptr;
use shared_abi::sync::{AtomicPtr, AtomicU32, Ordering};

/// How a hook came to see its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Way {
    /// Not installed (the driver has no such function, or nobody asked for it yet).
    None = 0,
    /// The function's entry was patched.
    Patched = 1,
    /// Callers get our address from dlsym, cuGetProcAddress or the dynamic linker.
    Preloaded = 2,
    /// Seen through CUPTI callbacks while CUPTI is attached.
    Callback = 3,
}

/// One hooked driver function.
#[derive(Debug)]
pub struct Hook {
    /// Symbol in libcuda.
    pub name: &'static CStr,
    /// Address of our replacement, which has the driver function's signature.
    pub replacement: fn() -> *const c_void,
    /// What the replacement forwards to: the driver's function or a trampoline into it. Null until installed.
    pub original: AtomicPtr<c_void>,
    /// A [`Way`].
    pub way: AtomicU32,
}

impl Hook {
    /// A hook that is not installed.
    pub const fn new(name: &'static CStr, replacement: fn() -> *const c_void) -> Self {
        Self {
            name,
            replacement,
            original: AtomicPtr::new(ptr::null_mut()),
            way: AtomicU32::new(Way::None as u32),
        }
    }

    /// What to forward to; null when the hook is not installed.
    #[inline(always)]
    pub fn original(&self) -> *mut c_void {
        // Relaxed: the address was stored before our replacement could be reached through it.
        self.original.load(Ordering::Relaxed)
    }
}
