//! Helpers of the cross-process tests.
