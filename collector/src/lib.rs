//! Out of the engine: drains rings, correlates, symbolizes, aggregates and writes profiles.

pub mod aggregate; // weighted stacks
pub mod export; // profile files and the flame graph page
