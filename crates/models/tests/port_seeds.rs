//! Runs the whole port on the simulated kernel. A seed drives its threads and its clock, so a seed
//! replays a run, including the interleaving of its threads.
//!
//! This crate compiles the library's own sources again, with the primitives of `port_seeds/turns.rs`
//! instead of the standard library's. docs/design/SEEDS.md describes a run and how to replay one.

#![allow(dead_code, unused_imports, reason = "the library's sources are used in part")]
#![allow(missing_docs, unreachable_pub, unnameable_types, clippy::unwrap_used, reason = "a test")]
#![allow(clippy::result_large_err, reason = "a refused post returns its message")]

#[path = "../../completion-port/src/backend/mod.rs"]
mod backend;
#[path = "../../completion-port/src/engine/mod.rs"]
mod engine;
#[path = "../../completion-port/src/memory/mod.rs"]
mod memory;
#[path = "../../completion-port/src/port/mod.rs"]
mod port;
#[path = "../../completion-port/src/sim/mod.rs"]
pub mod sim;
#[path = "../../completion-port/src/state/mod.rs"]
mod state;
#[path = "../../completion-port/src/types/mod.rs"]
mod types;

#[path = "port_seeds/batches.rs"]
mod batches;
#[path = "port_seeds/ledger.rs"]
mod ledger;
#[path = "port_seeds/operations.rs"]
mod operations;
#[path = "port_seeds/program.rs"]
mod program;
#[path = "port_seeds/search.rs"]
mod search;
#[path = "port_seeds/sync.rs"]
mod sync;
#[path = "port_seeds/turns.rs"]
mod turns;
#[path = "port_seeds/world.rs"]
mod world;

/// The parts of `sys` that the simulated kernel has.
#[path = "../../completion-port/src/sys"]
mod sys {
    #[cfg_attr(unix, path = "unix/codes.rs")]
    #[cfg_attr(windows, path = "windows/codes.rs")]
    pub(crate) mod codes;
    #[path = "../../../models/tests/port_seeds/no_datagrams.rs"]
    pub(crate) mod datagrams;
    pub(crate) mod portable;
    #[cfg_attr(unix, path = "unix/source.rs")]
    #[cfg_attr(windows, path = "windows/source.rs")]
    mod source;

    use crate::types::error::{ErrorKind, Fault};

    pub(crate) fn native(
        _is_one_shot: bool,
        _files: crate::types::config::FileEngine,
        _readiness: crate::types::config::Readiness,
    ) -> Result<Box<dyn crate::backend::Backend>, Fault> {
        Err(Fault { kind: ErrorKind::Unsupported, code: None })
    }
}

pub use port::batch::Batch;
pub use port::changes::{Changes, RefusedChange};
pub use port::deadline::{Deadline, TimerId};
pub use port::operation::{
    Completed, OpId, Operation, Outcome, SharedCompleted, SharedFile, SharedId, Started,
};
pub use port::packets::{Notified, Packet, Packets};
pub use port::raw;
pub use port::registration::{Id, Registration};
pub use port::removal::Removal;
pub use port::token::{OwnedReady, Ready};
pub use port::{Port, PortBuilder, ThreadStats};
pub use types::address::Address;
pub use types::buffer::{Buffer, Span};
pub use types::config::{BlockDetection, FileEngine, Readiness};
pub use types::datagrams::{Datagram, DatagramMut, Datagrams};
pub use types::error::{Call, Error, ErrorKind, Refused, Result};
pub use types::interest::{Events, Interest, OneShot, Persistent};
pub use types::source::{BorrowedSource, FileSource, OwnedSource, SharedSource, Source};
pub use types::stats::{PacketCounts, QueueDelays, Stats, ThreadStatus};
pub use types::trigger::Trigger;

/// Runs the requested seeds in child processes. Reduces the program of the first seed that fails.
#[test]
fn every_seed_keeps_the_rules() {
    search::search();
}

/// Replays programs that once found a fault.
#[test]
fn programs_that_found_a_fault_keep_the_rules() {
    search::replay_what_is_known();
}

/// Started by `every_seed_keeps_the_rules` in a child process.
#[test]
#[ignore = "runs seeds in a process of its own"]
fn one_process() {
    search::run_as_told();
}
