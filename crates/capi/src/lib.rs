//! The C library. What it offers is documented in `include/completion_port.h`; `compat/include` has the
//! same under the names of the reference.
//!
//! A port of this library is a [`Port`](completion_port::Port) whose keys and messages are plain words. The
//! library adds checked handles, a registration for each socket's number, and error codes. On Linux it also has
//! socket calls that report in those codes, operations with an OVERLAPPED, and calls that close any descriptor. On
//! Windows the system has all of these.
//!
//! # Layers
//!
//! A file imports only from lines below its own. `tests/boundaries.rs` lists which file imports which, and fails
//! if the sources say otherwise or if there is a circle.
//!
//! ```text
//!  the C functions         notifications  queue
//!  handles                 handles            from a handle to a port or another object
//!  a system                linux/  windows/   what a port is there: how it is made, and what a change does
//!  packets                 taking             packets become entries in the caller's array
//!  errors                  errors             codes, the last one, and where a panic stops
//!  words                   abi  requests  table
//! ```
//!
//! The files above the folders know either as `system`, and only this file names the systems. Both folders have six
//! files of the same names for them: `last` (where the last error is kept), `object` (what a handle may stand for),
//! `port`, `status` (how operations end), `associations` (how a port is made and closed) and `waiting`.
//!
//! Each exported function is called in [`errors::guarded`], so that no panic reaches the caller; but for those
//! of `linux/closing`.

pub mod abi;
pub mod errors;
mod handles;
#[cfg(target_os = "linux")]
pub mod linux;
pub mod notifications;
pub mod queue;
mod requests;
mod table;
mod taking;
#[cfg(target_os = "windows")]
pub mod windows;

#[cfg(target_os = "linux")]
use linux as system;
#[cfg(target_os = "windows")]
use windows as system;
