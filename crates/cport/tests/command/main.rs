//! The command `cport`, run as a user runs it. All in one program, since each program costs a link.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

mod common;

mod bench;
mod completions;
#[cfg(windows)]
mod consoles;
mod demo;
mod echo;
mod ending;
mod errors;
#[cfg(target_os = "linux")]
mod limits;
mod numbers;
mod probe;
#[cfg(target_os = "linux")]
mod probe_refused;
#[cfg(target_os = "linux")]
mod signals;
#[cfg(target_os = "linux")]
mod terminal;
