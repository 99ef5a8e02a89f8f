//! One I/O completion port for any number of threads: socket notifications, posted messages and a
//! concurrency value, in one queue.
//!
//! A [`Port`] is what Windows calls an *I/O completion port*, with overlapped operations on sockets and
//! *socket state notifications*, built natively on Linux. Any number of threads wait on it; each packet goes to one of
//! them:
//!
//! - **Registrations.** A [`Source`], which is a socket or another descriptor, is registered with a *key*,
//!   an event filter ([`Interest`]) and a [`Trigger`]: one-shot or persistent, level or edge ([`OneShot`],
//!   [`Persistent`]).
//! - **Owned keys.** While a descriptor is registered the port owns its key. A one-shot packet
//!   moves the key out to the handler, as a [`Ready`] token: the handler has `&mut` access without
//!   a lock. Rearming moves it back. Removal and refusal give it back, dropping the port drops it.
//! - **Operations.** A token, or the name of a shared association, starts an [`Operation`]: to accept, connect,
//!   receive or send. Its packet brings what has become of it, and the [`Buffer`] that was lent. Readiness and operations
//!   [go together](guide#readiness-or-operations).
//! - **Deadlines.** Of operations ([`Operation::deadline`]) and of armings ([`Ready::rearm_until`]). To move one
//!   costs a store.
//! - **Connections that write to each other.** [`Port::enable_also`] has another connection's handler
//!   called as soon as there is room, whatever that connection is doing.
//! - **Removal that says when it is over.** [`Port::remove`] makes one last packet,
//!   [`Packet::Removed`].
//! - **Messages.** [`Port::post`] puts a value of any type into the same queue, and wakes at most one
//!   thread: the one that waited last. [`Port::post_at`] posts at a time to come, [`Port::cancel_post`]
//!   takes that back, [`Port::post_after`] posts to the handler's own thread.
//! - **A concurrency value.** It limits how many threads run with packets at once. A thread that
//!   sleeps in the kernel gives its place to another one; see [`Port::blocking`].
//! - **One call.** [`Port::process`] applies a batch of [`Changes`] and takes a batch of packets.
//! - **Figures.** [`Port::stats`], [`Port::thread_stats`] and [`Port::queue_delays`] tell what happens.
//! - **Other languages.** [`raw`] has what bindings need: registrations by number, packets by clone.
//!
//! # Examples
//!
//! An echo server whose state needs no lock, on as many threads as one likes. A client that resets its
//! connection ends that connection only, and one that does not read keeps no thread:
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
//! The [guide] leads there step by step, and further: connections that write to each other, queues,
//! time-outs, the end. `examples/` has servers to begin with.
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
//! A buffer is out of reach while an operation has it, and an operation uses the token up:
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
//! A key of which several operations are in flight at once can be cloned, and is `Sync`:
//!
//! ```compile_fail,E0277
//! # fn f(port: &completion_port::Port<std::net::TcpStream>, stream: std::net::TcpStream) {
//! port.associate_shared(stream).unwrap();
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
//! - `bytes`: `Bytes` and `BytesMut` of the crate `bytes` are buffers of operations ([`Buffer`]).
//! - `sim`: the module `sim` with a simulated kernel and virtual time, to test a server without sockets.
//!
//! # Further reading
//!
//! The [guide] says how to write a server. Below are shown as modules, from `docs/` in the sources: SEMANTICS,
//! the contract rule by rule; PLATFORM, what holds on which system; COMPARE, what else there is; STALLS, what to
//! look at when a server stalls.

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

/// There may be millions, and a packet is to touch one line of the cache.
const _: () = assert!(size_of::<state::slot::Slot>() == 16);

pub use port::batch::Batch;
pub use port::changes::{Changes, RefusedChange};
pub use port::deadline::{Deadline, TimerId};
pub use port::operation::{
    Completed, OpId, Operation, Outcome, SharedCompleted, SharedId, Started,
};
pub use port::packets::{Notified, Packet, Packets};
pub use port::raw;
pub use port::registration::{Id, Registration};
pub use port::token::{OwnedReady, Ready};
pub use port::{Port, PortBuilder};
pub use types::address::Address;
pub use types::buffer::{Buffer, Span};
pub use types::config::{BlockDetection, FileEngine, Readiness};
pub use types::error::{Call, Error, ErrorKind, Refused, Result};
pub use types::interest::{Events, Interest, OneShot, Persistent};
pub use types::source::{BorrowedSource, FileSource, OwnedSource, SharedSource, Source};
pub use types::stats::{PacketCounts, QueueDelays, Stats, ThreadStats, ThreadStatus};
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

/// The README's examples, compiled and run with the other documentation tests.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
