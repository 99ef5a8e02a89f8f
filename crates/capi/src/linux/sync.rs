//! Atomics of the files that the model checker compiles again, so that it can replace them.

pub(crate) use std::sync::atomic::AtomicBool;
