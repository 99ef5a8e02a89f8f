//! The whole port on the simulated kernel, with threads and a clock that a seed drives: a seed replays a run,
//! the interleaving of its threads included.
//!
//! The sources are the library's own, compiled here once more with primitives of `seeds/turns.rs` in the
//! place of the standard library's. docs/design/SEEDS.md says what a run is made of, and how to replay one.

#![allow(dead_code, unused_imports, reason = "the library's sources are used in part")]
#![allow(missing_docs, unreachable_pub, unnameable_types, clippy::unwrap_used, reason = "a test")]

#[path = "../src/address.rs"]
mod address;
#[path = "../src/arena.rs"]
mod arena;
#[path = "../src/batch.rs"]
mod batch;
#[path = "../src/buffer.rs"]
mod buffer;
#[path = "../src/cells.rs"]
mod cells;
#[path = "../src/changes.rs"]
mod changes;
#[path = "../src/deadline.rs"]
mod deadline;
#[path = "../src/detection.rs"]
mod detection;
#[path = "../src/engine/mod.rs"]
mod engine;
#[path = "../src/error.rs"]
mod error;
#[path = "../src/file_engine.rs"]
mod file_engine;
#[path = "../src/file_task.rs"]
mod file_task;
#[path = "../src/interest.rs"]
mod interest;
#[path = "../src/loan.rs"]
mod loan;
#[path = "../src/membership.rs"]
mod membership;
#[path = "../src/operation.rs"]
mod operation;
#[path = "../src/packet.rs"]
mod packet;
#[path = "../src/port.rs"]
mod port;
#[path = "../src/raw.rs"]
pub mod raw;
#[path = "../src/readiness.rs"]
mod readiness;
#[path = "../src/registration.rs"]
mod registration;
#[path = "../src/source.rs"]
mod source;
#[path = "../src/state/mod.rs"]
mod state;
#[path = "../src/stats.rs"]
mod stats;
#[path = "../src/task.rs"]
mod task;
#[path = "../src/trace.rs"]
mod trace;
#[path = "../src/trigger.rs"]
mod trigger;

#[path = "seeds/ledger.rs"]
mod ledger;
#[path = "seeds/operations.rs"]
mod operations;
#[path = "seeds/program.rs"]
mod program;
#[path = "seeds/search.rs"]
mod search;
#[path = "seeds/sync.rs"]
mod sync;
#[path = "seeds/turns.rs"]
mod turns;
#[path = "seeds/world.rs"]
mod world;

/// The seam, with the simulated kernel as the one back end.
#[path = "../src/sys"]
mod sys {
    pub(crate) mod backend;
    #[cfg_attr(unix, path = "unix/codes.rs")]
    #[cfg_attr(windows, path = "windows/codes.rs")]
    pub(crate) mod codes;
    #[allow(dead_code, reason = "what is for sockets of a system")]
    pub(crate) mod errors;
    pub(crate) mod files;
    pub(crate) mod host;
    pub(crate) mod kqueue;
    pub(crate) mod psn;
    pub(crate) mod reactor;
    pub mod sim;
    pub(crate) mod sockets;
    #[cfg_attr(unix, path = "unix/source.rs")]
    #[cfg_attr(windows, path = "windows/source.rs")]
    mod source;
    pub(crate) mod thread;

    #[cfg(unix)]
    pub(crate) use std::os::fd;

    #[cfg(windows)]
    pub(crate) mod fd {
        pub(crate) use std::os::windows::io::OwnedSocket as OwnedFd;
        pub(crate) type RawFd = i32;
    }

    use crate::error::ErrorKind;
    use crate::state::facts::Fault;

    pub(crate) fn native(
        _is_one_shot: bool,
        _files: crate::file_engine::FileEngine,
        _readiness: crate::readiness::Readiness,
    ) -> Result<Box<dyn backend::Backend>, Fault> {
        Err(Fault { kind: ErrorKind::Unsupported, code: None })
    }
}

pub use address::Address;
pub use batch::Batch;
pub use buffer::{Buffer, Span};
pub use changes::{Changes, RefusedChange};
pub use deadline::{Deadline, TimerId};
pub use detection::BlockDetection;
pub use error::{Call, Error, ErrorKind, Refused, Result};
pub use file_engine::FileEngine;
pub use interest::{Events, Interest, OneShot, Persistent};
pub use operation::{OpId, Operation, Outcome, SharedId, Started};
pub use packet::{Done, Finished, Notified, OwnedReady, Packet, Packets, Ready};
pub use port::{Port, PortBuilder};
pub use readiness::Readiness;
pub use registration::{Id, Registration};
pub use source::{BorrowedSource, FileSource, OwnedSource, SharedSource, Source};
pub use stats::{PacketCounts, Stats};
pub use sys::sim;
pub use trigger::Trigger;

/// Runs the seeds that were asked for, each in the midst of others in a process of its own, and reduces the
/// program of the first one that fails.
#[test]
fn every_seed_keeps_the_rules() {
    search::search();
}

/// Rules that a program has found broken before.
#[test]
fn programs_that_found_a_fault_keep_the_rules() {
    search::replay_what_is_known();
}

/// What `every_seed_keeps_the_rules` starts.
#[test]
#[ignore = "runs seeds in a process of its own"]
fn one_process() {
    search::run_as_told();
}
