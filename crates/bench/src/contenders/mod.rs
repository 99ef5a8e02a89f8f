//! The servers that are compared: all echo the same messages in the same way.

use std::io;
use std::net::TcpStream;

// The file of each contender has `pub(crate) fn contender() -> Contender`.
mod compio;
mod epoll_edge;
mod epoll_one_shot;
mod mio;
mod monoio;
mod nonblocking;
mod ours;
mod ours_in_c;
mod polling;
#[cfg(test)]
mod tests;
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
    /// Starts a server with so many threads.
    pub(crate) start: fn(threads: usize) -> io::Result<Box<dyn Server>>,
}

/// A server that echoes: contender by contender, the same behaviour.
///
/// A handler reads what is there into a buffer of [`BUFFER`](crate::work::BUFFER) bytes, does what
/// each message that is complete now asks for ([`process`](crate::work::process)), and writes the
/// same bytes back. At the end of a stream it closes the connection.
pub(crate) trait Server: Send + Sync {
    /// Takes over a connected stream (it has `TCP_NODELAY`, and is in blocking mode as it was
    /// accepted); any thread may call it.
    fn add(&self, stream: TcpStream) -> io::Result<()>;

    /// Threads woken so far by the contender's own count, where it has one.
    fn wakes(&self) -> Option<u64> {
        None
    }
}

/// All contenders; the first is the one to which the others are compared.
pub(crate) fn all() -> Vec<Contender> {
    vec![
        ours::contender(),
        ours_in_c::contender(),
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
