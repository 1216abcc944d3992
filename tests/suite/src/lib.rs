//! Helpers of the cross-process tests.

pub mod built; // the programs and libraries under test
pub mod engine; // programs on the simulated GPU, and their profiles
