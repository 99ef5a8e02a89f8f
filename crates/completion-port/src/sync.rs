//! The primitives that the engine synchronises with, in one place so that the model checker can put
//! its own in their stead.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, fence};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
