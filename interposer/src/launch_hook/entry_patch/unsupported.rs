//! Processors whose entries are not patched: every function is refused by name.

use super::{PatchRefusal, Plan};
use core::ffi::c_void;

/// Refuses.
pub unsafe fn plan(_function: *const u8, _symbol_bytes: Option<usize>) -> Result<Plan, PatchRefusal> {
    Err(PatchRefusal::UnsupportedProcessor)
}

/// Never reached: no plan is made.
pub unsafe fn write_slot(
    slot: *mut u8,
    _function: *const u8,
    _plan: Plan,
    _replacement: *const c_void,
) -> (*const u8, *const u8) {
    (slot, slot)
}

/// Never reached.
pub fn jump(_from: usize, _to: usize) -> [u8; 5] {
    [0; 5]
}

/// Never reached.
pub unsafe fn write_jump(_at: *mut u8, _jump: [u8; 5], _moved_bytes: usize) {}
