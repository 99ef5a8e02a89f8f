//! Tests of the runtime that can share a process. One program saves link time.

#![allow(clippy::unwrap_used, reason = "a test")]

mod attribute;
mod chat;
#[cfg(feature = "tokio-compat")]
mod compat;
mod dump;
mod ending;
mod examples;
mod file_stream;
mod fs;
mod net;
#[cfg(feature = "tokio-compat")]
mod polling_tokio;
mod redis;
mod short_reads;
mod streams;
mod taking_back;
mod tasks;
