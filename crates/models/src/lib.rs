//! The programs in `tests` check models with loom: `cargo test --release -p models`.
//!
//! `tests/runtime_seeds.rs` runs random programs on the runtime, and only if it is named.
//!
//! They are a separate crate so that `cargo test` builds neither loom nor its dependencies. They take a
//! release build to be worth their time.
