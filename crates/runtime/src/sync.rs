//! The synchronization primitives of `state`, in one place, so that the model checker can replace
//! them.

pub(crate) use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicUsize};
pub(crate) use std::sync::{Condvar, Mutex, MutexGuard};
pub(crate) use std::thread::{Thread, current, park};
