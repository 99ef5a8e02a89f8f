//! The contract, rule by rule, on every back end that the machine has.
//!
//! `docs/SEMANTICS.md` has a row for each rule. The documentation of each claim here begins with its rule,
//! and `cargo xtask semantics` writes the claims into the row; `table` checks that it has been done.

#![allow(clippy::unwrap_used, reason = "a test")]

mod by_number;
mod call;
mod delivery;
mod detection;
mod forks;
mod kinds;
mod owned;
mod posting;
mod reached;
mod registration;
mod removal;
mod table;
mod threads;
mod virtual_time;
