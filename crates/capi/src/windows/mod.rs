//! Windows: sockets, handles and everything that is done with an OVERLAPPED are the system's. This library has ports
//! that also take notifications of sockets, which older systems lack.
//!
//! ```text
//!  the C functions         blocking  closing  names
//!  ports and changes       associations  changes  waiting
//!  a process's handles     object
//!  a port                  port
//!  what the system ends    relay              packets of the system's own operations come to a port
//!  a process's sockets     sockets            what a socket's number stands for; the key of a port
//!  words                   last  message  status
//! ```
//!
//! - A port is no object of the kernel. So a file is associated with a kernel's completion port that the port has for
//!   this alone: [`relay`] takes what comes there, and posts it.

pub(crate) mod associations;
pub mod blocking;
mod changes;
pub mod closing;
pub(crate) mod last;
mod message;
pub mod names;
pub(crate) mod object;
pub(crate) mod port;
mod relay;
mod sockets;
pub(crate) mod status;
pub(crate) mod waiting;
