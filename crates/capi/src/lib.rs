//! The C library. `include/completion_port.h` documents its interface; `compat/include` has the
//! same interface under the names of the reference, the Windows API.
//!
//! A port of this library is a [`Port`](completion_port::Port) whose keys and messages are plain
//! numbers. The library adds checked handles, a registration for each socket's number, and error
//! codes. On Linux it also has socket calls that report in those codes, operations with an
//! OVERLAPPED, and calls that close any descriptor. On Windows the system has all of these.
//!
//! # Layers
//!
//! A file imports only from lines below its own. `tests/boundaries.rs` lists which file imports
//! which, and fails if the sources differ or if there is a cycle.
//!
//! ```text
//!  the C functions         notifications  queue
//!  handles                 handles            from a handle to a port or another object
//!  a system                linux/  windows/   a port on this system: its creation and its changes
//!  packets                 taking             packets become entries in the caller's array
//!  errors                  errors             codes, the last error, and a stop for panics
//!  types                   abi  requests  table
//! ```
//!
//! The files above the folders know either as `system`, and only this file names the systems. Both
//! folders have six files of the same names for them: `last` (the last error), `object` (the
//! objects behind handles), `port`, `status` (how operations end), `associations` (creating and
//! closing a port) and `waiting`.
//!
//! Each exported function except those of `linux/closing` runs in [`errors::guarded`], so that no
//! panic reaches the caller.

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
