//! Out of the engine: drains rings, correlates, symbolizes, aggregates and writes profiles.

pub mod aggregate; // weighted stacks
