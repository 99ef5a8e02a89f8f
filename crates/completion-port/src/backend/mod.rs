//! What the engine asks of a system, in five traits: [`Reactor`] is about watching descriptors,
//! [`Sockets`] about operations on them, [`Files`] about those on files, [`Thread`] about threads, and [`Host`]
//! about the clock and the process.
//! Each trait says item by item what must hold.
//!
//! A back end only translates: requests to system calls, results to facts. It takes no decision about
//! packets, keys or threads. The traits name no type of any system, so that the engine can be run on the
//! simulated kernel and under a model checker.
//!
//! [`Thread`]: thread::Thread

pub(crate) mod files;
pub(crate) mod host;
pub(crate) mod reactor;
pub(crate) mod sockets;
pub(crate) mod thread;

use files::Files;
use host::Host;
use reactor::Reactor;
use sockets::Sockets;

/// A system, as the engine holds it: one object, behind one pointer, that is all of these.
pub(crate) trait Backend: Reactor + Sockets + Files + Host {}

impl<S: Reactor + Sockets + Files + Host> Backend for S {}
