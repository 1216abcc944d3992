//! Version, time and finalization.

use crate::driver::driver;
use crate::results::*;
use crate::{activity, subscriber};

#[unsafe(no_mangle)]
extern "C" fn cuptiGetVersion(version: *mut u32) -> CuptiResult {
    put(version, 130_000)
}

#[unsafe(no_mangle)]
extern "C" fn cuptiGetTimestamp(timestamp: *mut u64) -> CuptiResult {
    driver().map_or_else(|code| code, |driver| put(timestamp, (driver.now_ns)()))
}

/// Succeeds even where it loses the context; the next driver call tells.
#[unsafe(no_mangle)]
extern "C" fn cuptiFinalize() -> CuptiResult {
    let driver = match driver() {
        Ok(driver) => driver,
        Err(code) => return code,
    };
    activity::stop();
    subscriber::forget();
    (driver.detach)();
    SUCCESS
}
