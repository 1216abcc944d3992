//! Atomics of this workspace: core's, or loom's model under `cfg(loom)`.

#[cfg(not(loom))]
pub use core::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, compiler_fence, fence};

#[cfg(loom)]
pub use core::sync::atomic::compiler_fence;
#[cfg(loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
