//! The slot's word, the queue, the seats and the wait, model-checked: every interleaving of a few
//! threads, within a bound on preemptions, under the C11 memory model.
//!
//! The sources are the library's own, compiled here once more with the model checker's primitives in
//! the place of the standard library's. The models follow the tables of docs/design/. The bound is
//! three preemptions, or `LOOM_MAX_PREEMPTIONS`.
//!
//! The models stand in `loom/`, by what is modelled; `kit` and `fake` are what they share.

// The model checker does not build elsewhere.
#![cfg(target_pointer_width = "64")]
#![allow(dead_code, unused_imports, reason = "the library's sources are used in part")]
#![allow(missing_docs, unreachable_pub, unnameable_types, clippy::unwrap_used, reason = "a test")]
#![allow(
    clippy::arc_with_non_send_sync,
    reason = "what threads share unsoundly is what the model checker reports"
)]

#[path = "../src/arena.rs"]
mod arena;
#[path = "../src/deadline.rs"]
mod deadline;
#[path = "../src/detection.rs"]
mod detection;
#[path = "../src/engine/mod.rs"]
mod engine;
#[path = "../src/error.rs"]
mod error;
#[path = "../src/interest.rs"]
mod interest;
#[path = "../src/loan.rs"]
mod loan;
#[path = "../src/state/mod.rs"]
mod state;
#[path = "../src/trace.rs"]
mod trace;

#[path = "loom/fake.rs"]
mod fake;
#[path = "loom/files.rs"]
mod files;
#[path = "loom/flights.rs"]
mod flights;
#[path = "loom/hand_over.rs"]
mod hand_over;
#[path = "loom/kit.rs"]
mod kit;
#[path = "loom/operations.rs"]
mod operations;
#[path = "loom/readiness.rs"]
mod readiness;
#[path = "loom/removal.rs"]
mod removal;
#[path = "loom/slot.rs"]
mod slot;
#[path = "loom/transfers.rs"]
mod transfers;
#[path = "loom/waits.rs"]
mod waits;

/// The seam; the back end is [`fake::Handle`].
#[path = "../src/sys"]
mod sys {
    pub(crate) mod backend;
    pub(crate) mod files;
    pub(crate) mod host;
    pub(crate) mod reactor;
    pub(crate) mod sockets;
    pub(crate) mod thread;
}

/// Where a socket is reached: no model looks at one.
mod address {
    #[derive(Clone, Debug, PartialEq, Eq, Hash)]
    pub(crate) struct Address;
}

/// Sockets that a port makes: no model has one.
mod source {
    #[derive(Debug)]
    pub(crate) struct OwnedSource;
}

/// What `src/sync.rs` is to the library.
mod sync {
    use std::sync::atomic::Ordering;

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    // Held for writing only while a set is replaced, which no model does.
    pub(crate) use std::sync::RwLock;

    pub(crate) fn barrier(_own: &AtomicU32) {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn barrier_behind_exchange() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn tested(test: impl Fn() + Send + Sync + 'static) {
        loom::model(test);
    }
}
