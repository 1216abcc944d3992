//! How often the loader has loaded and unloaded images: whoever keeps a list of images compares these first.
//!
//! Allocates: no. Locks: the loader's. Syscalls: no. Cost: 20 ns.

use core::ffi::{c_int, c_void};

/// Images loaded and unloaded since the process began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LoaderCounts {
    /// Loaded.
    pub loads: u64,
    /// Unloaded.
    pub unloads: u64,
}

impl LoaderCounts {
    /// As of now.
    pub fn now() -> Self {
        let mut counts = Self::default();
        // SAFETY: the callback gets back the pointer to `counts`, which outlives the call.
        unsafe { libc::dl_iterate_phdr(Some(take_counts), (&raw mut counts).cast::<c_void>()) };
        counts
    }
}

/// Each image comes with the counts; the first is enough.
unsafe extern "C" fn take_counts(info: *mut libc::dl_phdr_info, _bytes: usize, counts: *mut c_void) -> c_int {
    // SAFETY: the loader passes a valid description, and the pointer that `now` gave it.
    unsafe {
        *counts.cast::<LoaderCounts>() =
            LoaderCounts { loads: (*info).dlpi_adds, unloads: (*info).dlpi_subs };
    }
    1
}
