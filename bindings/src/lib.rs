//! Vendor FFI.
