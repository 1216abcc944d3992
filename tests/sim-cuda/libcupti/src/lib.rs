//! The simulated CUPTI.
