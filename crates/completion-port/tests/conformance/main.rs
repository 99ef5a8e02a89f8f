//! The contract, rule by rule, on every back end that the machine has.
//!
//! `docs/SEMANTICS.md` has a section for each rule. The documentation of each claim here begins with its rule,
//! and `cargo xtask semantics` lists the claims in `docs/TESTS.txt`; `table` checks that the list is up to date.
//!
//! The claims stand in files by rule; the first line of a file says which. What several of them need is in
//! `kit`. A file of claims imports nothing from another one.
//!
//! Files and claims with `cfg(target_os = "linux")` make calls that only such a system has.

#![allow(clippy::unwrap_used, reason = "a test")]
#![cfg_attr(
    not(target_os = "linux"),
    allow(dead_code, unused_imports, reason = "what only claims for such a system use")
)]

mod again;
mod besides;
mod by_number;
mod call;
#[cfg(target_os = "linux")]
mod children;
mod closed_descriptors;
mod closing;
mod conditions;
#[cfg(target_os = "linux")]
mod detection;
mod edge;
mod enabling;
mod errors;
mod files;
mod files_apart;
mod files_ending;
mod files_posted;
#[cfg(target_os = "linux")]
mod forks;
mod graceful;
mod hangup;
mod idle_threads;
mod kinds;
#[cfg(target_os = "linux")]
mod kinds_of_linux;
mod kit;
mod kqueue;
mod level;
mod one_packet;
mod one_shot_reactor;
mod operations_cancelling;
mod operations_datagrams;
mod operations_deadlines;
mod operations_ending;
mod operations_in_a_row;
mod operations_order;
mod operations_sharing;
mod operations_sockets;
mod operations_start;
mod overcommit;
mod owned;
mod ownership;
mod panics;
mod posting;
mod posting_after;
mod posting_at;
mod reached;
mod refusals;
mod registration;
mod release;
mod removal;
mod removing_now;
mod seats;
mod switching;
mod table;
mod taking_back;
mod time_limits;
mod tokens;
mod unannounced;
mod waiting;
mod watchdog;
mod watched;
