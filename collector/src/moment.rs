//! Local time, in file names.

use std::mem::MaybeUninit;

/// `yyyymmdd-hhmmss` now.
pub fn file_time() -> String {
    let now = (crate::model::wall_ns() / 1_000_000_000) as libc::time_t;
    // SAFETY: tm is plain data for which all zeros is a valid value.
    let mut parts: libc::tm = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: both pointers are valid for the duration of the call.
    unsafe { libc::localtime_r(&now, &mut parts) };
    format!(
        "{:04}{:02}{:02}-{:02}{:02}{:02}",
        parts.tm_year + 1900,
        parts.tm_mon + 1,
        parts.tm_mday,
        parts.tm_hour,
        parts.tm_min,
        parts.tm_sec
    )
}

/// Name of this host; empty where it cannot be read.
pub fn host_name() -> String {
    let mut buffer = [0u8; 256];
    // SAFETY: pointer and length of a live buffer.
    unsafe { libc::gethostname(buffer.as_mut_ptr().cast(), buffer.len() - 1) };
    let name = buffer.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}
