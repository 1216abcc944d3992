//! Atomics of this workspace: core's, or loom's model under `cfg(loom)`. A tidy test refuses the originals
//! everywhere else, so that whatever uses them can be put under loom.

#[cfg(not(loom))]
pub use core::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering,
    compiler_fence, fence,
};

#[cfg(loom)]
pub use core::sync::atomic::compiler_fence;
#[cfg(loom)]
pub use loom::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU8, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
