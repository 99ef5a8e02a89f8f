//! Model checks the slot's word, the queue, the concurrency value and waits: every interleaving of
//! a few threads, within a bound on preemptions, under the C11 memory model.
//!
//! This crate compiles the library's own sources again, with loom's primitives instead of the
//! standard library's. The models follow the tables in docs/design/. The bound is three
//! preemptions, or `LOOM_MAX_PREEMPTIONS`.
//!
//! `port/` has one module per topic. `kit` and `fake` are shared.

// loom doesn't build elsewhere.
#![cfg(target_pointer_width = "64")]
#![allow(dead_code, unused_imports, reason = "the library's sources are used in part")]
#![allow(missing_docs, unreachable_pub, unnameable_types, clippy::unwrap_used, reason = "a test")]
#![allow(
    clippy::arc_with_non_send_sync,
    reason = "what threads share unsoundly is what the model checker reports"
)]

#[path = "../../completion-port/src/backend/mod.rs"]
mod backend;
#[path = "../../completion-port/src/engine/mod.rs"]
mod engine;
#[path = "../../completion-port/src/memory/mod.rs"]
mod memory;
#[path = "../../completion-port/src/state/mod.rs"]
mod state;
#[path = "../../completion-port/src/types/mod.rs"]
mod types;

#[path = "port/fake.rs"]
mod fake;
#[path = "port/files.rs"]
mod files;
#[path = "port/hand_over.rs"]
mod hand_over;
#[path = "port/kit.rs"]
mod kit;
#[path = "port/operations.rs"]
mod operations;
#[path = "port/ops.rs"]
mod ops;
#[path = "port/readiness.rs"]
mod readiness;
#[path = "port/removal.rs"]
mod removal;
#[path = "port/slot.rs"]
mod slot;
#[path = "port/sockets.rs"]
mod sockets;
#[path = "port/waits.rs"]
mod waits;

/// Replaces the simulated kernel's sockets, which no model uses.
mod sim {
    use crate::types::source::{BorrowedSource, Source};

    #[derive(Debug)]
    pub struct Socket;

    impl Source for Socket {
        fn as_source(&self) -> BorrowedSource<'_> {
            unreachable!("no model has a socket")
        }
    }
}

/// Replaces the library's `src/sync`.
mod sync {
    use std::sync::atomic::Ordering;

    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
    pub(crate) use loom::sync::{Mutex, MutexGuard};
    // Locked for writing only while a set is replaced, which no model does.
    pub(crate) use std::sync::RwLock;

    pub(crate) fn barrier(_own: &AtomicU32) {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn barrier_behind_exchange() {
        fence(Ordering::SeqCst);
    }

    pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) mod tests {
        pub(crate) fn tested(test: impl Fn() + Send + Sync + 'static) {
            loom::model(test);
        }
    }
}
