//! Model checks the runtime's own synchronization: every interleaving of a few threads, within a
//! bound on preemptions, under the C11 memory model.
//!
//! This crate compiles its `src/state` again, with loom's primitives instead of the standard library's.
//! `async-task` and the port are not compiled for loom: `runtime/kit.rs` has stand-ins for them, with
//! the same orders of events. The bound is three preemptions, or `LOOM_MAX_PREEMPTIONS`.

// loom doesn't build elsewhere.
#![cfg(target_pointer_width = "64")]
#![allow(dead_code, unused_imports, reason = "the sources are used in part")]
#![allow(missing_docs, unreachable_pub, clippy::unwrap_used, reason = "a test")]

#[path = "../../runtime/src/state/mod.rs"]
mod state;

#[path = "runtime/kit.rs"]
mod kit;
#[path = "runtime/parking.rs"]
mod parking;
#[path = "runtime/tasks.rs"]
mod tasks;
#[path = "runtime/threads.rs"]
mod threads;
#[path = "runtime/waits.rs"]
mod waits;

/// Replaces the runtime's `src/sync.rs`.
mod sync {
    pub(crate) use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize};
    pub(crate) use loom::sync::{Condvar, Mutex, MutexGuard};

    pub(crate) use crate::parking::{Thread, current, park};

    pub(crate) fn now() -> std::time::Instant {
        std::time::Instant::now()
    }
}
