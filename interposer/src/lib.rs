//! In the engine: `liblaunchscope.so`.

pub mod config; // the table of environment variables
pub mod sampler; // which launches are looked at, and with which probability
