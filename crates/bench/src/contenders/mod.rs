//! The servers that are compared: all echo the same messages in the same way, or are the same sink.

use std::io;
use std::net::{TcpStream, UdpSocket};

pub(crate) use self::listening::Listening;
pub(crate) use self::ours_by_operations::{AT_ONCE, AT_ONCE as ACCEPTING, BY_PACKETS};
pub(crate) use self::reading::{BESIDE_POOL, WITH_READS, all as reading};
use crate::scenario::{ACCEPTS, OFTEN, OPERATIONS};
use crate::sink::Service;

// The file of each contender has `pub(crate) fn contender() -> Contender`.
mod compio;
mod edge;
mod epoll_edge;
mod epoll_one_shot;
mod listening;
mod mio;
mod monoio;
mod nonblocking;
mod ours;
mod ours_by_operations;
mod ours_in_c;
mod polling;
mod reading;
#[cfg(test)]
pub(crate) mod tests;
mod threads;
mod tokio;
mod uring;
mod version;

/// A way to write the server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Contender {
    /// How it is called in tables and options.
    pub(crate) name: &'static str,
    /// What it is, in a line.
    pub(crate) about: &'static str,
    /// The version of the crate, or of the kernel's interface.
    pub(crate) version: fn() -> String,
    /// Starts a server with so many threads that does this with its connections.
    pub(crate) start: fn(threads: usize, service: Service) -> io::Result<Box<dyn Server>>,
}

impl Contender {
    /// Whether it is of interest in a scenario where no contender was asked for by name. How the port finds out
    /// which threads block concerns those in which they do. Where operations are compared, only those take part with
    /// which they are.
    pub(crate) fn belongs_to(&self, scenario: &str) -> bool {
        let (own, among): (&[&str], &[&str]) = match self.name {
            ours::BY_TICK => (&["S4", OFTEN, "S5"], &[]),
            ours_by_operations::AT_ONCE => (&[ACCEPTS, OPERATIONS], &[]),
            ours_by_operations::BY_PACKETS => (&[OPERATIONS], &[]),
            ours_by_operations::SHARED => (&[ACCEPTS], &[]),
            "ours" | "uring" => (&[], &[ACCEPTS, OPERATIONS]),
            "compio" | "monoio" => (&[], &[OPERATIONS]),
            "epoll_one_shot" | "epoll_edge" | "mio" | "tokio" => (&[], &[ACCEPTS]),
            _ => (&[], &[]),
        };
        match scenario {
            ACCEPTS | OPERATIONS => own.contains(&scenario) || among.contains(&scenario),
            _ => own.is_empty() || own.contains(&scenario),
        }
    }
}

/// A server: contender by contender, the same behaviour.
///
/// Where it echoes, a handler reads what is there into a buffer of [`BUFFER`](crate::work::BUFFER)
/// bytes, does what each message that is complete now asks for ([`process`](crate::work::process)),
/// and writes the same bytes back.
///
/// Where it is a sink, a handler reads into a buffer of the length it was told, and has each read
/// that brings something handled ([`Sink::handle`](crate::sink::Sink::handle)). A contender that is
/// told of readiness reads as often as it was told ([`Sink::reads`](crate::sink::Sink::reads)) before
/// it arms the connection or turns to another one. One whose tasks or requests wait for the bytes
/// themselves has no such choice: each read that is completed is a packet of its own.
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

    /// Begins with the reads from its file, so many in a second, or as many as it can. Only those of
    /// [`reading`](reading()) have a file.
    fn begin_reads(&self, _rate: Option<f64>) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    /// Ends the reads; returns when the last one has come.
    fn end_reads(&self) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

/// All contenders; the first is the one to which the others are compared.
pub(crate) fn all() -> Vec<Contender> {
    vec![
        ours::contender(),
        ours_in_c::contender(),
        ours::by_tick(),
        ours_by_operations::contender(),
        ours_by_operations::by_packets(),
        ours_by_operations::by_shared_accepts(),
        epoll_one_shot::contender(),
        epoll_one_shot::late_contender(),
        epoll_edge::contender(),
        uring::contender(),
        mio::contender(),
        polling::contender(),
        tokio::contender(),
        compio::contender(),
        monoio::contender(),
    ]
}
