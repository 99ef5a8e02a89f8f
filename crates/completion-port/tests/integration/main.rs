//! Tests that prove no single rule of the contract and can share a process. One program saves link
//! time.

#![allow(clippy::unwrap_used, reason = "a test")]

mod attendance;
mod blocking_stress;
mod boundaries;
mod buffers;
mod datagrams;
mod fairness;
mod file_tasks;
mod many;
mod model;
mod readiness;
mod regressions;
mod stalls;
mod stats;
mod tasks;
mod tracing;
