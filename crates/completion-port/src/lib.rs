//! One I/O completion port for any number of threads: socket notifications, posted messages and a
//! concurrency value, in one queue.
//!
//! A [`Port`] is what Windows calls an *I/O completion port* with *socket state notifications*,
//! built natively on Linux. Any number of threads wait on it; each packet goes to one of them:
//!
//! - **Registrations.** A [`Source`], which is a socket or another descriptor, is registered with a *key*,
//!   an event filter ([`Interest`]) and a [`Trigger`]: one-shot or persistent, level or edge ([`OneShot`],
//!   [`Persistent`]).
//! - **Owned keys.** While a descriptor is registered the port owns its key. A one-shot packet
//!   moves the key out to the handler, as a [`Ready`] token: the handler has `&mut` access without
//!   a lock. Rearming moves it back. Removal and refusal give it back, dropping the port drops it.
//! - **Removal that says when it is over.** [`Port::remove`] makes one last packet,
//!   [`Packet::Removed`].
//! - **Messages.** [`Port::post`] puts a value of any type into the same queue, and wakes at most one
//!   thread: the one that waited last.
//! - **A concurrency value.** It limits how many threads run with packets at once. A thread that
//!   sleeps in the kernel gives its place to another one; see [`Port::blocking`].
//! - **One call.** [`Port::process`] applies a batch of [`Changes`] and takes a batch of packets.
//! - **Other languages.** [`raw`] has what bindings need: registrations by number, packets by clone.
//!
//! # Examples
//!
//! A server whose state needs no lock, on as many threads as one likes:
//!
//! ```
//! use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
//! use std::io::{ErrorKind::WouldBlock, Read, Write};
//! use std::net::{TcpListener, TcpStream};
//! use std::os::fd::{AsFd, BorrowedFd};
//! use std::thread;
//!
//! enum Peer {
//!     Listener(TcpListener),
//!     Client { stream: TcpStream, seen: usize },
//! }
//! impl AsFd for Peer {
//!     fn as_fd(&self) -> BorrowedFd<'_> {
//!         match self {
//!             Peer::Listener(listener) => listener.as_fd(),
//!             Peer::Client { stream, .. } => stream.as_fd(),
//!         }
//!     }
//! }
//! struct Shutdown;
//!
//! let port: Port<Peer, Shutdown> = Port::builder().build()?;
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! listener.set_nonblocking(true)?;
//! port.register(Registration::owned(Peer::Listener(listener), Interest::IN, OneShot::Level))?;
//!
//! let serve = || -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//!     let mut batch = Batch::new();
//!     let mut buffer = [0; 4096];
//!     loop {
//!         for packet in port.wait(&mut batch, None)? {
//!             match packet {
//!                 Packet::Ready(mut ready) => match ready.key_mut() {
//!                     Peer::Listener(listener) => {
//!                         let (stream, _) = listener.accept()?;
//!                         stream.set_nonblocking(true)?;
//!                         let client = Peer::Client { stream, seen: 0 };
//!                         port.register(Registration::owned(client, Interest::IN, OneShot::Level))?;
//!                         ready.rearm()?;
//!                     }
//!                     Peer::Client { stream, seen } => match stream.read(&mut buffer) {
//!                         Ok(0) => drop(ready), // deregisters the socket and closes it
//!                         Ok(read) => {
//!                             *seen += read; // `&mut Peer`: ours alone until it is rearmed
//!                             stream.write_all(&buffer[..read])?;
//!                             if read < buffer.len() {
//!                                 ready.read_drained(); // rearming then costs no system call
//!                             }
//!                             ready.rearm()?;
//!                         }
//!                         Err(error) if error.kind() == WouldBlock => ready.rearm()?,
//!                         Err(error) => return Err(error.into()),
//!                     },
//!                 },
//!                 Packet::Posted(Shutdown) => {
//!                     port.post(Shutdown)?; // the next thread
//!                     return Ok(());
//!                 }
//!                 _ => {}
//!             }
//!         }
//!     }
//! };
//!
//! thread::scope(|scope| {
//!     let threads: Vec<_> = (0..4).map(|_| scope.spawn(serve)).collect();
//!     let mut client = TcpStream::connect(address)?;
//!     client.write_all(b"hello")?;
//!     let mut answer = [0; 5];
//!     client.read_exact(&mut answer)?;
//!     assert_eq!(&answer, b"hello");
//!     port.post(Shutdown)?;
//!     threads.into_iter().try_for_each(|thread| thread.join().expect("no panic"))
//! })?;
//! # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
//! ```
//!
//! # What must not be written
//!
//! The compiler enforces the rules of deregistration. A token is rearmed once:
//!
//! ```compile_fail,E0382
//! # fn f(ready: completion_port::Ready<'_, u32>) {
//! ready.rearm().unwrap();
//! ready.rearm().unwrap();
//! # }
//! ```
//!
//! A key is out of reach once it is rearmed, since another thread may have it already:
//!
//! ```compile_fail,E0505
//! # fn f(mut ready: completion_port::Ready<'_, String>) {
//! let key = ready.key_mut();
//! ready.rearm().unwrap();
//! key.push('x');
//! # }
//! ```
//!
//! A key that cannot be cloned cannot be registered persistently, and there are no other triggers:
//!
//! ```compile_fail,E0277
//! # use completion_port::{Interest, Persistent, Registration};
//! # struct Key;
//! # fn f(socket: &std::net::UdpSocket) {
//! let _ = Registration::new(socket, Key, Interest::IN, Persistent::Level);
//! # }
//! ```
//! ```compile_fail,E0277
//! struct Sometimes;
//! impl completion_port::Trigger<u32> for Sometimes {}
//! ```
//!
//! # Features
//!
//! - `tracing`: events with target `completion_port` for what happens to registrations and threads. At
//!   debug level: registered, enabled, removed, ended, refused, a thread found asleep, a replaced kernel
//!   set. At trace level, with each packet: reported, enabled by its token, a thread woken. They are
//!   compiled out when it is off. A subscriber may call the port, but not wait on it.
//! - `sim`: [`sim::Kernel`], a simulated kernel with virtual time, to test a server without sockets.
//!
//! # Further reading
//!
//! `docs/SEMANTICS.md`, `docs/PLATFORM.md` and `docs/COMPARE.md` in the sources are shown below as
//! modules. They give the contract rule by rule, say what holds on which system, and compare the
//! port with what else there is. `docs/STALLS.md` says what to look at when a server stalls, and
//! what each line of a port's dump means.

mod batch;
mod cells;
mod changes;
mod detection;
mod engine;
mod error;
mod interest;
mod membership;
mod packet;
mod port;
pub mod raw;
mod registration;
mod source;
mod state;
mod stats;
mod sync;
mod sys;
mod trace;
mod trigger;

pub use batch::Batch;
pub use changes::{Changes, RefusedChange};
pub use detection::BlockDetection;
pub use error::{Call, Error, ErrorKind, Refused, Result};
pub use interest::{Events, Interest, OneShot, Persistent};
pub use packet::{Notified, OwnedReady, Packet, Packets, Ready};
pub use port::{Port, PortBuilder};
pub use registration::{Id, Registration};
pub use source::{BorrowedSource, SharedSource, Source};
pub use stats::{PacketCounts, QueueDelays, Stats, ThreadStats, ThreadStatus};
#[cfg(feature = "sim")]
pub use sys::sim;
pub use trigger::Trigger;

#[cfg(doc)]
pub mod _semantics {
    #![doc = include_str!("../docs/SEMANTICS.md")]
}

#[cfg(doc)]
pub mod _platform {
    #![doc = include_str!("../docs/PLATFORM.md")]
}

#[cfg(doc)]
pub mod _compare {
    #![doc = include_str!("../docs/COMPARE.md")]
}

#[cfg(doc)]
pub mod _stalls {
    #![doc = include_str!("../docs/STALLS.md")]
}

/// The README's examples, compiled and run with the other documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
