//! Runs the runtime on the simulated kernel: random tasks that block, panic, time out, abort and
//! drop each other. A seed determines a program and the interleaving of its threads, so it replays
//! a run.
//!
//! This crate compiles the runtime's own sources again, with the threads and locks of
//! `seeds/sync.rs`, at the port of the crate `port-in-turns`. A failure prints the reduced program
//! and the command that replays it. `docs/design/SEEDS.md` describes the search, which is that of the
//! port:
//!
//! ```sh
//! SEEDS=0..10000 cargo test --release -p completion-port-runtime --test seeds
//! ```

#![allow(dead_code, unused_imports, reason = "the runtime's sources are used in part")]
#![allow(missing_docs, unreachable_pub, unnameable_types, clippy::unwrap_used, reason = "a test")]
#![allow(missing_debug_implementations, reason = "a test")]

extern crate port_in_turns as completion_port;

#[path = "../src/activity.rs"]
mod activity;
#[path = "../src/block_on.rs"]
mod block_on;
#[cfg(feature = "tokio-compat")]
#[path = "../src/compat.rs"]
mod compat;
#[path = "../src/context.rs"]
mod context;
#[path = "../src/dump.rs"]
mod dump;
#[path = "../src/file_stream.rs"]
mod file_stream;
#[path = "../src/fork.rs"]
mod fork;
#[path = "../src/fs.rs"]
pub mod fs;
#[path = "../src/pool.rs"]
mod pool;
#[path = "../src/readiness.rs"]
mod readiness;
#[path = "../src/runtime.rs"]
mod runtime;
#[path = "../src/shared.rs"]
mod shared;
#[path = "../src/state/mod.rs"]
mod state;
#[path = "../src/task.rs"]
mod task;
#[path = "../src/time.rs"]
pub mod time;

#[path = "seeds/known.rs"]
mod known;
#[path = "seeds/program.rs"]
mod program;
#[path = "seeds/records.rs"]
mod records;
#[path = "../../completion-port/tests/seeds/search.rs"]
mod search;
#[path = "seeds/steps.rs"]
mod steps;
#[path = "seeds/sync.rs"]
mod sync;
#[path = "seeds/world.rs"]
mod world;

/// Replaces the module of this name that `search` and the primitives of the port's seeds expect.
mod turns {
    pub(crate) use completion_port::threads::*;
}

pub use context::Entered;
pub use dump::{Dump, Metrics};
pub use runtime::{Builder, Handle, Runtime, Shutdown, spawn, spawn_blocking};
pub use task::{AbortHandle, JoinError, JoinHandle, yield_now};
pub use time::{interval, sleep, sleep_until, timeout, timeout_at};

/// Runs the requested seeds in child processes. Reduces the program of the first seed that fails.
#[test]
fn every_seed_keeps_the_rules() {
    search::search();
}

/// Runs programs that show one thing each, under many schedules.
#[test]
fn known_programs_keep_the_rules() {
    search::replay_what_is_known();
}

/// Started by `every_seed_keeps_the_rules` in a child process.
#[test]
#[ignore = "runs seeds in a process of its own"]
fn one_process() {
    turns::say_where_with(search::say_where);
    search::run_as_told();
}
