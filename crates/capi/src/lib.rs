//! The C library. What it offers is documented in `include/completion_port.h`; `compat/include` has the
//! same under the names of the reference.
//!
//! A port of this library is a [`Port`](completion_port::Port) whose keys and messages are plain words.
//! What it adds: handles that are checked ([`handles`]), which registration a descriptor's number stands
//! for ([`numbers`]), the codes of errors ([`errors`]), socket calls that report in those codes
//! ([`sockets`]), and calls that close any descriptor ([`closing`]). What it knows it knows for one process;
//! a forked child begins anew ([`process`]).
//!
//! Each exported function is called in [`errors::guarded`], so that no panic reaches the caller; but for those
//! of [`closing`], which a signal handler may call.

pub mod abi;
pub mod closing;
pub mod errors;
pub mod handles;
pub mod modules;
pub mod notifications;
pub mod numbers;
pub mod objects;
mod process;
pub mod queue;
pub mod sockets;
