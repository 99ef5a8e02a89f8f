//! The contract between the engine and a system, in six traits: [`Reactor`] watches descriptors,
//! [`Sockets`] tries operations on them, [`Files`] reads cached bytes, [`Submit`] performs what
//! would block, [`Thread`] parks threads and reports whether they sleep, and [`Host`] has the clock
//! and the process. Each item states its requirements.
//!
//! A back end only translates: requests to system calls, results to facts. It decides nothing about
//! packets, keys or threads. The traits name no type of any system, so that the engine can run on
//! the simulated kernel and under a model checker.
//!
//! [`Submit`]: request::Submit
//! [`Thread`]: thread::Thread

pub(crate) mod files;
pub(crate) mod host;
pub(crate) mod reactor;
pub(crate) mod request;
pub(crate) mod sockets;
pub(crate) mod thread;

use files::Files;
use host::Host;
use reactor::Reactor;
use sockets::Sockets;

/// A system as the engine sees it: one object, behind one pointer, that implements all of these.
pub(crate) trait Backend: Reactor + Sockets + Files + Host {}

impl<S: Reactor + Sockets + Files + Host> Backend for S {}
