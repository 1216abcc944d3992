//! Weighted stacks.

pub mod profile; // what the files, the page and the summary show
