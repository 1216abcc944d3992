//! The table of hooked driver functions: name, our replacement, the forwarded original and how it was installed.

use core::ffi::{CStr, c_void};
use core::ptr;
use shared_abi::record::LaunchKind;
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

impl Way {
    /// Its name in the profile's list of hooks.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Patched => "patched",
            Self::Preloaded => "preloaded",
            Self::Callback => "callback",
        }
    }
}

/// What a hooked function does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Launches, copies or sets.
    Launch(LaunchKind),
    /// Begins or ends a stream capture.
    Capture,
    /// Makes, updates or destroys graphs.
    GraphLife,
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
    /// What the function does.
    pub role: Role,
    /// CUPTI's number of the function in the driver domain; zero where we do not enable its callback.
    pub cbid: u32,
}

impl Hook {
    /// A hook that is not installed.
    pub const fn new(name: &'static CStr, replacement: fn() -> *const c_void) -> Self {
        Self::with_role(name, replacement, Role::GraphLife, 0)
    }

    /// A hook that is not installed, of a function with this role and CUPTI number.
    pub const fn with_role(
        name: &'static CStr,
        replacement: fn() -> *const c_void,
        role: Role,
        cbid: u32,
    ) -> Self {
        Self {
            name,
            replacement,
            original: AtomicPtr::new(ptr::null_mut()),
            way: AtomicU32::new(Way::None as u32),
            role,
            cbid,
        }
    }

    /// What to forward to; null when the hook is not installed.
    #[inline(always)]
    pub fn original(&self) -> *mut c_void {
        // Relaxed: the address was stored before our replacement could be reached through it.
        self.original.load(Ordering::Relaxed)
    }

    /// How the hook was installed.
    pub fn way(&self) -> Way {
        // Relaxed: it is written at most twice and only reported.
        match self.way.load(Ordering::Relaxed) {
            1 => Way::Patched,
            2 => Way::Preloaded,
            3 => Way::Callback,
            _ => Way::None,
        }
    }
}
