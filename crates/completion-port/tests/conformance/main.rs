//! The contract, rule by rule, on every back end that the machine has.
//!
//! `docs/SEMANTICS.md` has a row for each rule, which names its claims here; `table` checks that the
//! table and the claims agree.

#![allow(clippy::unwrap_used, reason = "a test")]

mod by_number;
mod call;
mod delivery;
mod detection;
mod forks;
mod kinds;
mod posting;
mod reached;
mod registration;
mod removal;
mod table;
mod threads;
mod virtual_time;
