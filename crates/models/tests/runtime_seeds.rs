//! Runs the runtime on the simulated kernel: random tasks that block, panic, time out, abort and
//! drop each other. A seed determines a program and the interleaving of its threads, so it replays
//! a run.
//!
//! This crate compiles the runtime's own sources again, with the threads and locks of
//! `runtime_seeds/sync.rs`, at the port of the crate `port-in-turns`. A failure prints the reduced program
//! and the command that replays it. `docs/design/SEEDS.md` describes the search, which is that of the
//! port:
//!
//! ```sh
//! SEEDS=0..10000 cargo test --release -p models --test runtime_seeds
//! ```

#![allow(dead_code, unused_imports, reason = "the runtime's sources are used in part")]
#![allow(missing_docs, unreachable_pub, unnameable_types, clippy::unwrap_used, reason = "a test")]
#![allow(missing_debug_implementations, reason = "a test")]
#![allow(unexpected_cfgs, reason = "features of the runtime that its random programs do not use")]

extern crate port_in_turns as completion_port;

#[path = "../../runtime/src/activity.rs"]
mod activity;
#[path = "../../runtime/src/block_on.rs"]
mod block_on;
#[cfg(feature = "tokio-compat")]
#[path = "../../runtime/src/compat/mod.rs"]
mod compat;
#[path = "../../runtime/src/context.rs"]
mod context;
#[path = "../../runtime/src/dump.rs"]
mod dump;
#[path = "../../runtime/src/file_stream.rs"]
mod file_stream;
#[path = "../../runtime/src/fork.rs"]
mod fork;
#[path = "../../runtime/src/fs.rs"]
pub mod fs;
#[path = "../../runtime/src/pool.rs"]
mod pool;
#[path = "../../runtime/src/readiness.rs"]
mod readiness;
#[path = "../../runtime/src/runtime.rs"]
mod runtime;
#[path = "../../runtime/src/shared.rs"]
mod shared;
#[path = "../../runtime/src/state/mod.rs"]
mod state;
#[path = "../../runtime/src/task.rs"]
mod task;
#[path = "../../runtime/src/time.rs"]
pub mod time;

#[path = "runtime_seeds/known.rs"]
mod known;
#[path = "runtime_seeds/program.rs"]
mod program;
#[path = "runtime_seeds/records.rs"]
mod records;
#[path = "port_seeds/search.rs"]
mod search;
#[path = "runtime_seeds/steps.rs"]
mod steps;
#[path = "runtime_seeds/sync.rs"]
mod sync;
#[path = "runtime_seeds/world.rs"]
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
