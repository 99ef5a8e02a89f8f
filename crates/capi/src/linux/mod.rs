//! Linux: sockets are descriptors, and this folder also has everything else that the reference
//! offers besides ports.
//!
//! ```text
//!  look-up by name         modules
//!  called when asked for   pool_work
//!  called at their ends    callbacks          and the threads that call
//!  extensions by number    extensions
//!  names of hosts          resolving
//!  files over sockets      transmit
//!  overlapped operations   transfers  datagrams  connections  disconnects  results  files
//!  finished by the call    instants
//!  their cancels           cancelling
//!  their starts            starting
//!  any of them             operations         how one is tried and ends
//!  the end of a stream     shutting           behind its sends
//!  receives one by one     receiving          with one task of the port for all of them
//!  several buffers         buffers
//!  former connections      lingering          connections whose socket is used again
//!  requests to stop        controls
//!  the C functions         closing  sockets  options  ioctls  opening  facts  views  numbered
//!  ports and changes       associations  changes  waiting
//!  operations on files     file_operations    how they continue, end and are cancelled
//!  parts of files          fetches            that go over sockets when they have been read
//!  several sockets         selecting          a wait until one of them is ready
//!  objects and waits       objects            events, threads, …, as the headers have them
//!  names of objects        named
//!  both tables             registrations      what ends a number's registration at its port
//!  a process's handles     object             the object behind a handle: a port, a file, an event, …
//!  that call a function    registered         waits with a thread each
//!  other operations        driver             a thread for those that no other thread performs
//!  an open file            file
//!  a mapping of one        mapping
//!  what threads wait for   waitable           events, threads, …; the queues of waits
//!  a port                  port
//!  a process's numbers     numbers            the state of a descriptor's number; the key of a port
//!  ports of TCP            sharing            which sockets may share one
//!  a program's choices     choices            settings of a socket that the system does not get
//!  descriptions            protocols
//!  the system              descriptors        what sort of socket a descriptor is
//!  memory                  addresses  spare_memory  a map by OVERLAPPEDs; boxes that are used again
//!  associations to come    later
//!  a stream's receiver     receiver
//!  pointers of programs    memory             whether there is memory
//!  waits for a word        waits  words       also for that of an OVERLAPPED
//!  objects of headers      foreign
//!  types                   pool_size  errno  last  messages  process  status
//! ```
//!
//! - [`numbers`] knows a port only by the number of its handle, so that a port's key can point into
//!   it. [`handles`](crate::handles) finds the port; [`registrations`] uses both.
//! - [`process`] knows no table. Each table passes the function with which a forked child discards
//!   it.
//! - [`closing`] imports only [`numbers`], and changes only atomics there: a signal handler may
//!   call it, so it takes no lock.

mod addresses;
pub(crate) mod associations;
pub mod buffers;
pub mod callbacks;
pub mod cancelling;
mod changes;
mod choices;
pub mod closing;
pub mod connections;
pub mod controls;
pub mod datagrams;
mod descriptors;
pub mod disconnects;
mod driver;
pub mod errno;
pub mod extensions;
pub mod facts;
mod fetches;
mod file;
mod file_operations;
pub mod files;
mod foreign;
pub mod instants;
pub mod ioctls;
pub(crate) mod last;
mod later;
mod lingering;
mod mapping;
pub mod memory;
pub mod messages;
pub mod modules;
pub mod named;
pub mod numbered;
mod numbers;
pub(crate) mod object;
pub mod objects;
pub mod opening;
pub mod operations;
pub mod options;
mod pool_size;
pub mod pool_work;
pub(crate) mod port;
mod process;
pub mod protocols;
mod receiver;
mod receiving;
#[cfg(test)]
mod receiving_tests;
mod registered;
pub mod registrations;
pub mod resolving;
pub mod results;
pub mod selecting;
mod sharing;
pub mod shutting;
pub mod sockets;
mod spare_memory;
mod starting;
#[cfg(test)]
mod starting_tests;
pub(crate) mod status;
pub mod transfers;
pub mod transmit;
pub mod views;
mod waitable;
pub(crate) mod waiting;
mod waiting_calls;
mod waits;
pub mod words;
