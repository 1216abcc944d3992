//! Vendor FFI: the only crate that spells a vendor type or function beyond the names in the interposer's hook table.
//! Nothing is linked; everything is looked up in the copy of the library that the engine has loaded.
//!
//! Each vendor has three layers: `sys` (types and constants as the vendor's headers lay them out, prefixes only),
//! `dispatch` (function pointers found by name) and typed views over both. A missing symbol is an error value.
// Handles are opaque: nothing here dereferences one, and the vendor's library validates them.
#![allow(clippy::not_unsafe_ptr_arg_deref)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod dl; // finding loaded libraries and their symbols
pub mod cuda_driver; // libcuda.so.1
pub mod cupti; // libcupti.so.12 and .13
