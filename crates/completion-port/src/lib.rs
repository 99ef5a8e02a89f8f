//! An I/O completion port for any number of threads: socket notifications, completed operations and
//! posted messages in one queue, with a concurrency value.
//!
//! A [`Port`] is what Windows calls an *I/O completion port*, with overlapped operations and
//! *socket state notifications*, built natively on Linux. Any number of threads wait on it, and
//! each packet goes to one of them:
//!
//! - **Registrations.** You register a [`Source`], which is a socket or another descriptor, with a
//!   *key*, an event filter ([`Interest`]) and a [`Trigger`]: one-shot or persistent, level or edge
//!   ([`OneShot`], [`Persistent`]).
//! - **Owned keys.** While a descriptor is registered, the port owns its key. A one-shot packet
//!   moves the key out to the handler, as a [`Ready`] token, which gives `&mut` access without a
//!   lock. Rearming moves the key back. Removals and refusals return it, and dropping the port
//!   drops it.
//! - **Operations.** A token, or the name of a shared association, starts an [`Operation`]: accept,
//!   connect, receive, send, or work on a file. Its packet carries the result and returns the
//!   [`Buffer`]. You can [combine readiness and operations](guide#readiness-or-operations).
//! - **Deadlines.** Operations ([`Operation::deadline`]) and armings ([`Ready::rearm_until`]) can
//!   have one. Moving the deadline of an arming costs a store.
//! - **Connections that write to each other.** [`Port::enable_also`] calls another connection's
//!   handler as soon as there is room, whatever that connection is doing.
//! - **Removal with a last packet.** [`Port::remove`] makes one last packet, [`Packet::Removed`],
//!   which returns the key.
//! - **Messages.** [`Port::post`] puts a value of any type into the same queue and wakes at most
//!   one thread: the one that waited last. [`Port::post_at`] posts at a future time,
//!   [`Port::cancel_post`] cancels that, and [`Port::post_after`] posts to the handler's own
//!   thread.
//! - **A concurrency value.** It limits how many threads run with packets simultaneously. A thread
//!   that sleeps in the kernel gives its place to another one; see [`Port::blocking`].
//! - **One call.** [`Port::process`] applies a batch of [`Changes`] and takes a batch of packets.
//! - **Figures.** [`Port::stats`], [`Port::thread_stats`] and [`Port::queue_delays`] report what
//!   the port is doing.
//! - **Other languages.** [`raw`] has the calls that bindings need: registrations by number, and
//!   packets with cloned keys.
//!
//! # Examples
//!
//! An echo server for any number of threads, whose state needs no lock. A client that resets its
//! connection ends only that connection, and a client that does not read blocks no thread:
//!
//! ```
//! use completion_port::{
//!     Batch, BorrowedSource, Interest, OneShot, Packet, Port, Registration, Source,
//! };
//! use std::error::Error;
//! use std::io::{self, ErrorKind::WouldBlock, Read, Write};
//! use std::net::{SocketAddr, TcpListener, TcpStream};
//! use std::thread;
//! use std::time::Duration;
//!
//! enum Peer {
//!     Listener(TcpListener),
//!     Client { stream: TcpStream, unsent: Vec<u8> },
//! }
//!
//! impl Source for Peer {
//!     fn as_source(&self) -> BorrowedSource<'_> {
//!         match self {
//!             Peer::Listener(listener) => listener.as_source(),
//!             Peer::Client { stream, .. } => stream.as_source(),
//!         }
//!     }
//! }
//!
//! /// Every thread does this.
//! fn serve(port: &Port<Peer>) {
//!     let mut batch = Batch::new();
//!     // A wait fails once the port has shut down.
//!     while let Ok(packets) = port.wait(&mut batch, None) {
//!         for packet in packets {
//!             let Packet::Ready(mut ready) = packet else { continue };
//!             // `&mut Peer`: this thread's alone until it is rearmed.
//!             let next = match ready.key_mut() {
//!                 Peer::Listener(listener) => accept(port, listener),
//!                 Peer::Client { stream, unsent } => echo(stream, unsent),
//!             };
//!             match next {
//!                 Ok(interest) => drop(ready.rearm_as(interest, OneShot::Level)),
//!                 // The client is gone. This closes its socket, and concerns no other one.
//!                 Err(_) => drop(ready),
//!             }
//!         }
//!     }
//! }
//!
//! fn accept(port: &Port<Peer>, listener: &TcpListener) -> io::Result<Interest> {
//!     match listener.accept() {
//!         Ok((stream, _)) => {
//!             stream.set_nonblocking(true)?;
//!             let client = Peer::Client { stream, unsent: Vec::new() };
//!             // If it is refused, the client is closed.
//!             drop(port.register(Registration::owned(client, Interest::IN, OneShot::Level)));
//!         }
//!         // The client has gone again, or no descriptor is left: not at once again.
//!         Err(_) => thread::park_timeout(Duration::from_millis(1)),
//!     }
//!     Ok(Interest::IN)
//! }
//!
//! /// Sends back what comes. What the handler says is what it waits for next.
//! fn echo(stream: &mut TcpStream, unsent: &mut Vec<u8>) -> io::Result<Interest> {
//!     let mut buffer = [0; 4096];
//!     // Then the other clients have their turn.
//!     for _ in 0..16 {
//!         while !unsent.is_empty() {
//!             match stream.write(unsent) {
//!                 Ok(sent) => drop(unsent.drain(..sent)),
//!                 // It reads too slowly: until there is room, nothing is read of it either.
//!                 Err(error) if error.kind() == WouldBlock => return Ok(Interest::OUT),
//!                 Err(error) => return Err(error),
//!             }
//!         }
//!         match stream.read(&mut buffer) {
//!             Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
//!             Ok(read) => unsent.extend_from_slice(&buffer[..read]),
//!             Err(error) if error.kind() == WouldBlock => return Ok(Interest::IN),
//!             Err(error) => return Err(error),
//!         }
//!     }
//!     Ok(Interest::OUT)
//! }
//!
//! fn main() -> Result<(), Box<dyn Error>> {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let address = listener.local_addr()?;
//!     listener.set_nonblocking(true)?;
//!     let port = Port::new()?; // as many threads may run at once as there are processors
//!     port.register(Registration::owned(Peer::Listener(listener), Interest::IN, OneShot::Level))?;
//!
//!     thread::scope(|scope| {
//!         for _ in 0..4 {
//!             scope.spawn(|| serve(&port));
//!         }
//!         let answered = talk(address);
//!         port.shutdown()?; // each key comes back in a packet, then every wait ends
//!         answered?;
//!         Ok(())
//!     })
//! }
//!
//! /// A client.
//! fn talk(server: SocketAddr) -> io::Result<()> {
//!     let mut stream = TcpStream::connect(server)?;
//!     stream.write_all(b"hello")?;
//!     let mut answer = [0; 5];
//!     stream.read_exact(&mut answer)?;
//!     assert_eq!(&answer, b"hello");
//!     Ok(())
//! }
//! ```
//!
//! The [guide] builds this server step by step, and covers connections that write to each other,
//! queues, deadlines and shutdown. `examples/` contains servers to start from.
//!
//! # Compile-time checks
//!
//! The compiler enforces the rules of deregistration. A token is rearmed only once:
//!
//! ```compile_fail,E0382
//! # fn f(ready: completion_port::Ready<'_, u32>) {
//! ready.rearm().unwrap();
//! ready.rearm().unwrap();
//! # }
//! ```
//!
//! Once a key is rearmed you can't use it, because another thread may already have it:
//!
//! ```compile_fail,E0505
//! # fn f(mut ready: completion_port::Ready<'_, String>) {
//! let key = ready.key_mut();
//! ready.rearm().unwrap();
//! key.push('x');
//! # }
//! ```
//!
//! While an operation has a buffer you can't use it, and an operation consumes the token:
//!
//! ```compile_fail,E0382
//! # fn f(token: completion_port::Ready<'_, std::net::TcpStream>) {
//! let mut buffer = Vec::with_capacity(16);
//! token.recv(buffer).unwrap();
//! buffer.push(1);
//! # }
//! ```
//! ```compile_fail,E0382
//! # fn f(token: completion_port::Ready<'_, std::net::TcpStream>) {
//! token.recv(Vec::with_capacity(16)).unwrap();
//! token.rearm().unwrap();
//! # }
//! ```
//!
//! If several operations of a key may be in flight simultaneously, the key must be cloneable and
//! `Sync`:
//!
//! ```compile_fail,E0277
//! # fn f(port: &completion_port::Port<std::net::TcpStream>, stream: std::net::TcpStream) {
//! port.associate_shared(stream).unwrap();
//! # }
//! ```
//!
//! A key that can't be cloned can't be registered persistently, and there are no other triggers:
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
//! - `tracing`: events with target `completion_port` about registrations and threads. Debug level:
//!   registered, enabled, removed, ended, refused, a thread found asleep, a replaced kernel set.
//!   Trace level, with each packet: reported, enabled by its token, a thread woken. Without the
//!   feature, the events are compiled out. A subscriber may call the port, but must not wait on it.
//! - `bytes`: `Bytes` and `BytesMut` of the crate `bytes` can be buffers of operations
//!   ([`Buffer`]).
//! - `sim`: the module `sim`, with a simulated kernel and virtual time, to test a server without
//!   sockets.
//!
//! # Further reading
//!
//! The [guide] explains how to write a server. The modules below show pages from `docs/` in the
//! sources: SEMANTICS is the contract rule by rule, PLATFORM the differences between systems,
//! COMPARE the alternatives, and STALLS how to investigate a stalled server.

mod backend;
mod engine;
mod memory;
mod port;
#[cfg(feature = "sim")]
pub mod sim;
mod state;
mod sync;
mod sys;
mod types;

/// There may be millions of slots, and a packet should touch only one cache line.
const _: () = assert!(size_of::<state::slot::Slot>() == 16);

pub use port::batch::Batch;
pub use port::changes::{Changes, RefusedChange};
pub use port::deadline::{Deadline, TimerId};
pub use port::operation::{
    Completed, OpId, Operation, Outcome, SharedCompleted, SharedFile, SharedId, Started,
};
pub use port::packets::{Notified, Packet, Packets};
pub use port::raw;
pub use port::registration::{Id, Registration};
pub use port::removal::Removal;
pub use port::token::{OwnedReady, Ready};
pub use port::{Port, PortBuilder, ThreadStats};
pub use types::address::Address;
pub use types::buffer::{Buffer, Span};
pub use types::config::{BlockDetection, FileEngine, Readiness};
pub use types::datagrams::{Datagram, DatagramMut, Datagrams};
pub use types::either::EitherBuffer;
pub use types::error::{Call, Error, ErrorKind, Refused, Result};
pub use types::interest::{Events, Interest, OneShot, Persistent};
pub use types::source::{BorrowedSource, FileSource, OwnedSource, SharedSource, Source};
pub use types::stats::{PacketCounts, QueueDelays, Stats, ThreadStatus};
pub use types::trigger::Trigger;

pub mod guide {
    #![doc = include_str!("../docs/GUIDE.md")]
}

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

/// Compiles and runs the README's examples with the other documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
