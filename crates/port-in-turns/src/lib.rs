//! The port on the simulated kernel, with threads that take turns as a seed says.
//!
//! This crate compiles the sources of `completion-port` again, with the primitives of
//! `crates/models/tests/port_seeds` instead of the standard library's. The runtime's random programs
//! use it in place of `completion-port`, so that a seed replays their interleaving too. `docs/design/SEEDS.md` describes
//! such programs.

// The unit tests in the sources are those of `completion-port`.
#![cfg(not(test))]
#![allow(dead_code, unused_imports, reason = "the sources are used in part")]
#![allow(missing_docs, unreachable_pub, unnameable_types, reason = "for tests")]
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "for tests")]
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
#[path = "../../models/tests/port_seeds/sync.rs"]
mod sync;
#[path = "../../models/tests/port_seeds/turns.rs"]
mod turns;
#[path = "../../completion-port/src/types/mod.rs"]
mod types;

pub mod threads;

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

/// What `turns` calls to name the run of a failure.
mod search {
    use std::sync::{Mutex, PoisonError};

    pub(crate) static SAY_WHERE: Mutex<fn()> = Mutex::new(|| {});

    pub(crate) fn say_where() {
        let say = *SAY_WHERE.lock().unwrap_or_else(PoisonError::into_inner);
        say();
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
pub use types::either::EitherBuffer;
pub use types::error::{Call, Error, ErrorKind, Refused, Result};
pub use types::interest::{Events, Interest, OneShot, Persistent};
pub use types::source::{BorrowedSource, FileSource, OwnedSource, SharedSource, Source};
pub use types::stats::{PacketCounts, QueueDelays, Stats, ThreadStatus};
pub use types::trigger::Trigger;
