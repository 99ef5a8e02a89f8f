//! `cport echo`: a server that sends back what it receives, until it is told to end.

use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use completion_port::{Interest, OneShot, Port, Registration};

use crate::connection::Connection;
use crate::failure::Failure;
use crate::signals;
use crate::text::{bytes, counted, grouped, list, packets, say};

mod datagrams;
mod serve;

use datagrams::Datagrams;
use serve::Server;

/// What `cport echo` can be told.
#[derive(Args)]
pub(crate) struct Options {
    /// Where to listen, such as 127.0.0.1:7000
    ///
    /// An address or a name, and a port. Port 0 lets the system choose one.
    #[arg(long, value_name = "ADDR")]
    listen: String,
    /// UDP instead of TCP
    ///
    /// One thread at a time serves the socket, so that what a peer sends comes back in order.
    #[arg(long)]
    udp: bool,
    /// Threads that wait on the port [default: twice the concurrency value]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=4096))]
    threads: Option<u16>,
    /// Threads that may run with packets at once (0: as many as processors)
    #[arg(long, value_name = "N", default_value_t = 0)]
    concurrency: u16,
}

/// What the port watches: each packet comes with one of these, which says what it is about.
pub(crate) enum Peer {
    Listener(TcpListener),
    Connection(Connection),
    Datagrams(Datagrams),
    /// Readable once the process is asked to end.
    Termination(UnixStream),
}

impl AsFd for Peer {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Listener(listener) => listener.as_fd(),
            Self::Connection(connection) => connection.as_fd(),
            Self::Datagrams(datagrams) => datagrams.as_fd(),
            Self::Termination(pipe) => pipe.as_fd(),
        }
    }
}

/// Serves until SIGINT or SIGTERM.
pub(crate) fn run(options: &Options) -> Result<(), Failure> {
    let protocol = if options.udp { "udp" } else { "tcp" };
    let (peer, address) = listen(&options.listen, options.udp).map_err(|error| {
        Failure::to_begin(&format!("cannot listen on {} ({protocol})", options.listen), &error)
    })?;
    let refused = |error: io::Error| Failure::to_begin("cannot set up the server", &error);
    let port: Port<Peer> = Port::builder()
        .concurrency(options.concurrency.into())
        .build()
        .map_err(|error| refused(error.into()))?;
    let termination = Peer::Termination(signals::termination().map_err(refused)?);
    for key in [termination, peer] {
        let registration = Registration::owned(key, Interest::IN, OneShot::Level);
        port.register(registration).map_err(|error| refused(error.into()))?;
    }

    let threads = options.threads.map_or(2 * port.concurrency(), usize::from);
    let server = Server::new(&port);
    let begin = Instant::now();
    let by_thread = thread::scope(|scope| {
        let workers = (0..threads)
            .map(|_| thread::Builder::new().spawn_scoped(scope, || server.serve()))
            .collect::<io::Result<Vec<_>>>();
        let greeting = match &workers {
            Ok(_) => say(format_args!(
                "{protocol} echo listening on {address}\n\
                 {}, {} may run at once; Ctrl-C ends it\n",
                counted(threads as u64, "thread"),
                port.concurrency(),
            )),
            Err(error) => Err(Failure::to_begin("cannot start the threads", error)),
        };
        if greeting.is_err() {
            // Those that run are sent home before the scope waits for them.
            port.close();
        }
        greeting?;
        let mut by_thread = Vec::with_capacity(threads);
        for worker in workers.into_iter().flatten() {
            let served = worker.join().map_err(|_| Failure::Wrong("a thread panicked".into()))?;
            by_thread.push(served.map_err(|error| Failure::Wrong(error.to_string()))?);
        }
        Ok(by_thread)
    })?;
    report(&server, options.udp, &by_thread, begin.elapsed())
}

/// The socket that the clients find, and the address it has got.
fn listen(address: &str, udp: bool) -> io::Result<(Peer, SocketAddr)> {
    let addresses = address.to_socket_addrs()?.collect::<Vec<_>>();
    if udp {
        let socket = UdpSocket::bind(&addresses[..])?;
        socket.set_nonblocking(true)?;
        let bound = socket.local_addr()?;
        Ok((Peer::Datagrams(Datagrams::new(socket)), bound))
    } else {
        let listener = TcpListener::bind(&addresses[..])?;
        listener.set_nonblocking(true)?;
        let bound = listener.local_addr()?;
        Ok((Peer::Listener(listener), bound))
    }
}

fn report(
    server: &Server<'_>,
    udp: bool,
    by_thread: &[u64],
    elapsed: Duration,
) -> Result<(), Failure> {
    let stats = server.port().stats();
    let clients = server.clients();
    let served = if udp {
        let lost = grouped(clients.lost);
        format!("{} ({lost} lost)", counted(clients.datagrams, "datagram"))
    } else {
        let open = grouped(clients.open_at_end);
        format!("{} ({open} still open)", counted(clients.accepted, "connection"))
    };
    say(format_args!(
        "\nended after {:.1} s: {served}, {} received, {} sent\n\
         packets: {}\n\
         packets by thread: {}\n\
         threads at work at once: {} at most, concurrency value {}\n\
         threads woken: {}, {} of them in vain; the kernel was asked for events {}\n",
        elapsed.as_secs_f64(),
        bytes(clients.received),
        bytes(clients.sent),
        packets(stats.packets),
        list(by_thread),
        server.peak(),
        stats.concurrency,
        grouped(stats.wakes),
        grouped(stats.spurious_wakes),
        counted(stats.polls, "time"),
    ))
}
