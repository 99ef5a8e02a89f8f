//! The programs in `tests` check models with loom: `cargo test --release -p models`.
//!
//! `tests/port_seeds.rs` and `tests/runtime_seeds.rs` run random programs on the port and on the
//! runtime, and only if they are named.
//!
//! They are a separate crate so that `cargo test` builds neither loom nor its dependencies. They take a
//! release build to be worth their time.
