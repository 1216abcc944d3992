//! What keeps the engine safe from us.

pub mod kill_switch; // off for good
pub mod panic_fence; // no panic crosses into the engine

pub use panic_fence::panic_fence;
