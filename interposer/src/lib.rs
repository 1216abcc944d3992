//! In the engine.
