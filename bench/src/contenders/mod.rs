//! The servers that are compared: all echo the same messages in the same way, or are the same sink.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};

pub(crate) use self::here::all;
#[cfg(target_os = "linux")]
pub(crate) use self::here::reading;
use crate::names::{
    AT_ONCE, BY_PACKETS, BY_TICK, CHECKED, IN_C_AT_ONCE, IN_C_BY_PACKETS, OWN_BUFFERS, PLACED,
    SHARED,
};
use crate::scenario::{ACCEPTS, OFTEN, OPERATIONS};
use crate::sink::Service;
pub(crate) use crate::system::Listening;
use crate::system::Switches;

// Which contenders there are depends on the system. The file of each has `pub(crate) fn contender() -> Contender`.
#[cfg_attr(target_os = "linux", path = "linux/mod.rs")]
#[cfg_attr(windows, path = "windows.rs")]
mod here;
pub(crate) mod nonblocking;
mod ours;
mod runtime;
#[cfg(test)]
pub(crate) mod tests;
pub(crate) mod threads;
mod tokio;
mod version;

/// A way to write the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender {
    /// How it is called in tables and options.
    pub(crate) name: &'static str,
    /// A one-line description.
    pub(crate) about: &'static str,
    /// The version of the crate, or of the kernel's interface.
    pub(crate) version: fn() -> String,
    /// Starts a server with that many threads and this service for its connections.
    pub(crate) start: fn(threads: usize, service: Service) -> io::Result<Box<dyn Server>>,
}

impl Contender {
    /// Whether it is of interest in a scenario if no contender was requested. Variants that detect
    /// blocked threads in different ways take part where threads block. Where operations are
    /// compared, only their variants and rivals take part.
    pub(crate) fn belongs_to(&self, scenario: &str) -> bool {
        let (own, among): (&[&str], &[&str]) = match self.name {
            BY_TICK => (&["S4", OFTEN, "S5"], &[]),
            AT_ONCE | IN_C_AT_ONCE => (&[ACCEPTS, OPERATIONS], &[]),
            BY_PACKETS | IN_C_BY_PACKETS | OWN_BUFFERS => (&[OPERATIONS], &[]),
            SHARED | PLACED | CHECKED => (&[ACCEPTS], &[]),
            "ours" | "uring" | "compio" | "monoio" => (&[], &[ACCEPTS, OPERATIONS]),
            "epoll_one_shot" | "epoll_edge" | "mio" | "tokio" => (&[], &[ACCEPTS]),
            _ => (&[], &[]),
        };
        match scenario {
            ACCEPTS | OPERATIONS => own.contains(&scenario) || among.contains(&scenario),
            _ => own.is_empty() || own.contains(&scenario),
        }
    }
}

/// What a server has used up so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Usage {
    /// In nanoseconds.
    pub(crate) processor_time: u64,
    pub(crate) switches: Option<Switches>,
    /// Memory, in bytes.
    pub(crate) resident: u64,
    pub(crate) threads: Option<u64>,
}

/// A server. All contenders behave in the same way.
///
/// In an echo, a handler reads available data into a buffer of [`BUFFER`](crate::work::BUFFER)
/// bytes, processes each complete message ([`process`](crate::work::process)), and writes the same
/// bytes back.
///
/// In a sink, a handler reads into a buffer of the given length, and passes each read with data to
/// [`Sink::handle`](crate::sink::Sink::handle). A readiness-based contender reads as often as
/// [`Sink::reads`](crate::sink::Sink::reads) before it arms the connection or turns to another one.
/// If tasks or requests wait for the bytes themselves, there is no such choice: each completed read
/// is a separate packet.
///
/// At the end of a stream the connection is closed.
pub(crate) trait Server: Send + Sync {
    /// Takes over a connected stream (it has `TCP_NODELAY`, and is in blocking mode as it was
    /// accepted); any thread may call it.
    fn add(&self, stream: TcpStream) -> io::Result<()>;

    /// Accepts by its own means what connects there, and serves these connections like those it takes over.
    fn listen(&self, at: &Listening) -> io::Result<()>;

    /// Takes over a socket, in non-blocking mode, and from now on does what each datagram that comes asks for
    /// ([`process_datagram`](crate::work::process_datagram)) and sends it back to where it came from.
    fn answer(&self, socket: UdpSocket) -> io::Result<()>;

    /// Threads woken so far by the contender's own count, where it has one.
    fn wakes(&self) -> Option<u64> {
        None
    }

    /// Threads that run its tasks, where it counts them.
    fn workers(&self) -> Option<usize> {
        None
    }

    /// How it detects blocked threads, and carries out operations on files, where it reports that.
    fn detected(&self) -> Option<String> {
        None
    }

    /// Where it listens, if it is a separate process.
    fn address(&self) -> Option<SocketAddr> {
        None
    }

    /// What it has used up, if it is a separate process.
    fn usage(&self) -> Option<io::Result<Usage>> {
        None
    }

    /// Starts the reads from its file, at this rate per second, or as many as possible. Only those
    /// of [`Reading`](crate::system::Aside) have a file.
    fn begin_reads(&self, _rate: Option<f64>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Ends the reads; returns when the last one has come.
    fn end_reads(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}
