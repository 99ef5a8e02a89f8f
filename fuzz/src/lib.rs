//! What the fuzz targets do with a string of bytes. Both panic if a rule is broken.
//!
//! The sources are the library's own, compiled here once more, since nothing of `state` is public.

#[path = "../../crates/completion-port/src/arena.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library's sources are used in part")]
mod arena;
#[path = "../../crates/completion-port/src/error.rs"]
#[allow(dead_code, unreachable_pub, reason = "the library's sources are used in part")]
mod error;
#[path = "../../crates/completion-port/src/interest.rs"]
#[allow(dead_code, reason = "the library's sources are used in part")]
mod interest;
mod reader;
mod schedule;
mod slot;
#[path = "../../crates/completion-port/src/state/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the library's sources are used in part")]
mod state;
#[path = "../../crates/completion-port/src/sync.rs"]
#[allow(dead_code, unused_imports, reason = "the library's sources are used in part")]
mod sync;

pub use schedule::run as schedule;
pub use slot::run as slot;
