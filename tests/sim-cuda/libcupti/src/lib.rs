//! The simulated CUPTI. What is simulated and what is simplified: ../../README.md.

#[path = "../../tools_abi.rs"]
mod tools_abi; // what the driver and CUPTI know of each other
mod driver; // finding the simulated driver
mod subscriber; // subscription and API callbacks
mod pending; // GPU work whose records are not written yet
mod records; // layouts of the records
mod buffers; // the tool's buffers, filled and delivered
mod activity; // activity functions
mod lifecycle; // version, time, finalization
mod results; // result codes and their names
