//! Windows: sockets, handles and operations with an OVERLAPPED are the system's. This library has
//! ports that also take notifications of sockets, which older systems lack.
//!
//! ```text
//!  the C functions         blocking  closing  names
//!  ports and changes       associations  changes  waiting
//!  a process's handles     object
//!  a port                  port
//!  system operations       relay              forwards their packets to a port
//!  a process's sockets     sockets            registrations by number; the key of a port
//!  types                   last  message  status
//! ```
//!
//! - A port is not a kernel object. So files are associated with a completion port of the kernel
//!   that each port has only for this purpose: [`relay`] takes its packets and posts them.

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
