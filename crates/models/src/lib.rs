//! The programs in `tests` check models with loom: `cargo test --release -p models`.
//!
//! They are a separate crate so that `cargo test` builds neither loom nor its dependencies. Models take a
//! release build to be worth their time.
