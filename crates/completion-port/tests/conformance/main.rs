//! The contract, rule by rule, on every back end that the machine has.
//!
//! `docs/SEMANTICS.md` has a row for each rule. The documentation of each claim here begins with its rule,
//! and `cargo xtask semantics` writes the claims into the row; `table` checks that it has been done.
//!
//! The claims stand in files by rule; the first line of a file says which. What several of them need is in
//! `kit`. A file of claims imports nothing from another one.

#![allow(clippy::unwrap_used, reason = "a test")]

mod besides;
mod by_number;
mod call;
mod children;
mod closed_descriptors;
mod closing;
mod conditions;
mod detection;
mod edge;
mod enabling;
mod errors;
mod files;
mod files_ending;
mod forks;
mod hangup;
mod kinds;
mod kit;
mod level;
mod one_packet;
mod one_shot_reactor;
mod operations_cancelling;
mod operations_deadlines;
mod operations_ending;
mod operations_first_data;
mod operations_order;
mod operations_sharing;
mod operations_sockets;
mod operations_start;
mod owned;
mod ownership;
mod posting;
mod posting_after;
mod posting_at;
mod reached;
mod registration;
mod release;
mod removal;
mod seats;
mod table;
mod taking_back;
mod time_limits;
mod tokens;
mod unannounced;
mod waiting;
mod watchdog;
mod watched;
