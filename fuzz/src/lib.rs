//! What the fuzz targets do with a string of bytes. Both panic if a rule is broken.
//!
//! The sources are the library's own, compiled here once more, since nothing of `state` is public.

#[path = "../../crates/completion-port/src/memory/mod.rs"]
#[allow(
    dead_code,
    unexpected_cfgs,
    unused_imports,
    unused_macros,
    unreachable_pub,
    reason = "the library's sources are used in part"
)]
mod memory;
mod reader;
mod schedule;
mod slot;
#[path = "../../crates/completion-port/src/state/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the library's sources are used in part")]
mod state;
#[path = "../../crates/completion-port/src/sync/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the library's sources are used in part")]
mod sync;
#[path = "../../crates/completion-port/src/types/mod.rs"]
#[allow(
    dead_code,
    unexpected_cfgs,
    unused_imports,
    unused_macros,
    unreachable_pub,
    reason = "the library's sources are used in part"
)]
mod types;

pub use schedule::run as schedule;
pub use slot::run as slot;
