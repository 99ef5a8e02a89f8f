//! The C library. What it offers is documented in `include/completion_port.h`; `compat/include` has the
//! same under the names of the reference.
//!
//! A port of this library is a [`Port`](completion_port::Port) whose keys and messages are plain words. The
//! library adds checked handles, a registration for each descriptor's number, error codes, socket calls that
//! report in those codes, and calls that close any descriptor.
//!
//! # Layers
//!
//! A file imports only from lines below its own. `tests/boundaries.rs` lists which file imports which, and fails
//! if the sources say otherwise or if there is a circle.
//!
//! ```text
//!  look-up by name         modules
//!  called at their ends    callbacks
//!  extensions by number    extensions
//!  files over sockets       transmit
//!  overlapped operations   transfers  connections  results  files
//!  any of them             operations         how one is started, ends and is cancelled
//!  several buffers         buffers
//!  what stops a program    controls
//!  the C functions         closing  queue  notifications  sockets  opening
//!  operations on files     flights            how they go on, end and are cancelled
//!  without an event        waits              threads that wait for ends
//!  objects of headers      objects
//!  both tables             registrations      what ends a number's registration at its port
//!  a process's handles     handles            from a handle to a port or a foreign object
//!  who sees to operations  driver             a thread for those to which no other thread sees
//!  an open file            file
//!  a port                  port               packets become entries in the caller's array
//!  a process's numbers     numbers            what a descriptor's number stands for; the key of a port
//!  the system              descriptors        what sort of socket a descriptor is
//!  words                   abi  errors  foreign  messages  process  status
//! ```
//!
//! - [`numbers`] knows a port by the number of its handle only, so that a port's key can point into it. To reach
//!   that port takes [`handles`]; [`registrations`] has both.
//! - [`process`] knows no table. Each table brings the function by which a forked child sets it aside.
//! - [`closing`] imports nothing but [`numbers`], of which it changes atomic words only: a signal handler may call
//!   it, so it takes no lock.
//!
//! Each exported function is called in [`errors::guarded`], so that no panic reaches the caller; but for those
//! of [`closing`].

pub mod abi;
pub mod buffers;
pub mod callbacks;
pub mod closing;
pub mod connections;
pub mod controls;
mod descriptors;
mod driver;
pub mod errors;
pub mod extensions;
mod file;
pub mod files;
mod flights;
mod foreign;
mod handles;
pub mod messages;
pub mod modules;
pub mod notifications;
mod numbers;
pub mod objects;
pub mod opening;
pub mod operations;
mod port;
mod process;
pub mod queue;
pub mod registrations;
pub mod results;
pub mod sockets;
mod status;
pub mod transfers;
pub mod transmit;
mod waits;
