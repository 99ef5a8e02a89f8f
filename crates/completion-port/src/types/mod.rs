//! The types of the public interface that every part of the crate uses.
//!
//! They make no system call and import no other module, with two exceptions: [`fd`] chooses the
//! descriptor types of this system, and an [`OwnedSource`](source::OwnedSource) may be a simulated
//! socket.

pub(crate) mod address;
pub(crate) mod buffer;
pub(crate) mod config;
pub(crate) mod datagrams;
pub(crate) mod either;
pub(crate) mod error;
pub(crate) mod fd;
pub(crate) mod interest;
pub(crate) mod io_buffer;
pub(crate) mod source;
pub(crate) mod stats;
pub(crate) mod trigger;
