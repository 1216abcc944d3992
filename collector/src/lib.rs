//! Out of the engine.
