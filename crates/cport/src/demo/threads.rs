//! The third scenario: a server with many threads.
//!
//! Sixteen threads wait on one port. Keys distinguish the listener and the connections. The port
//! owns them while they are registered; a packet moves the key to one thread, so that no connection
//! needs a lock. Registrations are one-shot: the thread that has handled a packet arms again.
//!
//! In the end each connection is removed in order: a last packet returns its key, on any thread.
//! Then the threads pass on a message that makes them end.

use std::io::{self, ErrorKind};
use std::net::{SocketAddr, TcpListener};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Instant;

use completion_port::{
    Batch, BorrowedSource, ErrorKind as PortErrorKind, Interest, OneShot, Packet, Port, Ready,
    Registration, Source,
};

use super::client::talk;
use super::pattern::Pattern;
use super::progress::Progress;
use super::{Check, Outcome, Share, Title};
use crate::connection::{Connection, Next, Traffic};
use crate::failure::Failure;
use crate::gauge::Gauge;
use crate::retry::uninterrupted;

pub(crate) const TITLE: Title = Title {
    name: "threads",
    title: "A multi-threaded server",
    about: "16 threads on one port, one-shot level registrations; 100 clients on as many threads",
};

const THREADS: usize = 16;
const CLIENTS: u64 = 100;
/// Number and maximum length of each client's messages.
const ROUNDS: u64 = 1000;
const MOST: usize = 8 * 1024;
/// The sockets of both sides, the listener, and a file for each thread.
pub(crate) const DESCRIPTORS: u64 = 2 * CLIENTS + 1 + THREADS as u64;

/// The key: the subject of a packet, with all its state.
enum Peer {
    Listener(TcpListener),
    Client(Connection),
}

impl Source for Peer {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Listener(listener) => listener.as_source(),
            Self::Client(connection) => connection.as_source(),
        }
    }
}

/// Messages between the threads.
enum Message {
    Shutdown,
}

/// What the threads share.
struct Server<'p> {
    port: &'p Port<Peer, Message>,
    gauge: Gauge,
    traffic: Traffic,
    accepted: AtomicU64,
    removed: AtomicU64,
}

pub(crate) fn run(
    concurrency: usize,
    share: Share,
    progress: &Progress,
) -> Result<Outcome, Failure> {
    let rounds = share.of(ROUNDS);
    let patterns = (0..CLIENTS).map(Pattern::of_client).collect::<Vec<_>>();
    let lengths =
        |pattern: Pattern| (0..rounds).map(move |round| pattern.length(round, MOST) as u64);
    let total = patterns.iter().copied().flat_map(lengths).sum();
    progress.set_goal(total);
    let begin = Instant::now();
    let refused = |error: io::Error| Failure::midway("setting up the server", &error);
    let port: Port<Peer, Message> =
        Port::builder().concurrency(concurrency).build().map_err(|error| refused(error.into()))?;
    let (listener, address) = listen().map_err(refused)?;
    let listening = port
        .register(Registration::owned(Peer::Listener(listener), Interest::IN, OneShot::Level))
        .map_err(|error| refused(error.into()))?;

    let server = Server {
        port: &port,
        gauge: Gauge::default(),
        traffic: Traffic::default(),
        accepted: AtomicU64::new(0),
        removed: AtomicU64::new(0),
    };
    let mut faults = Vec::new();
    let mut by_thread = Vec::with_capacity(THREADS);
    thread::scope(|scope| {
        let (working, over) = channel::<()>();
        let threads = [(); THREADS].map(|()| {
            let working = working.clone();
            let server = &server;
            scope.spawn(move || {
                let served = server.serve();
                drop(working);
                served
            })
        });
        drop(working);
        let clients = patterns
            .iter()
            .map(|pattern| scope.spawn(move || talk(address, *pattern, rounds, MOST, progress)))
            .collect::<Vec<_>>();
        for (number, client) in clients.into_iter().enumerate() {
            let told = client.join().unwrap_or_else(|_| Err("panicked".into()));
            faults.extend(told.err().map(|fault| format!("client {number}: {fault}")));
        }
        progress.touch();
        // Every client has seen the end of its stream; the listener's registration is the last one.
        if let Err(error) = port.remove(listening) {
            // A thread failed, and has closed the listener with the rest of its state.
            faults.push(error.to_string());
            port.close();
        }
        if over.recv_timeout(progress.time_left()) == Err(RecvTimeoutError::Timeout) {
            faults.push("the threads did not end in time".into());
            port.close();
        }
        for thread in threads {
            match thread.join() {
                Ok(Ok(handled)) => by_thread.push(handled),
                Ok(Err(error)) => faults.push(error.to_string()),
                Err(_) => faults.push("a thread of the server panicked".into()),
            }
        }
    });
    let elapsed = begin.elapsed();
    let (received, sent) = (server.traffic.received(), server.traffic.sent());
    let accepted = server.accepted.load(Relaxed);
    let stats = port.stats();
    Ok(Outcome {
        connections: accepted,
        received,
        sent,
        by_thread,
        peak: server.gauge.peak(),
        stats,
        elapsed,
        more: Vec::new(),
        checks: vec![
            Check::count("clients were served", accepted, CLIENTS),
            Check::count("bytes of the clients arrived", received, total),
            Check::count("bytes came back", sent, total),
            Check::no_error("errors, or wrong bytes", faults.into_iter().next()),
            Check::count(
                "registrations gave their key back",
                server.removed.load(Relaxed),
                CLIENTS + 1,
            ),
            Check::count("threads handed the message on", stats.packets.posted, THREADS as u64),
        ],
    })
}

fn listen() -> io::Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    listener.set_nonblocking(true)?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

impl Server<'_> {
    /// The main function of each thread; returns the number of packets it has handled. If one
    /// fails, all end.
    fn serve(&self) -> io::Result<u64> {
        let served = self.handle_packets();
        if served.is_err() {
            self.port.close();
        }
        served
    }

    /// Handles packets until the message arrives.
    fn handle_packets(&self) -> io::Result<u64> {
        let mut batch = Batch::new();
        let mut buffer = vec![0; 16 * 1024];
        let mut handled = 0;
        loop {
            let packets = match self.port.wait(&mut batch, None) {
                Ok(packets) => packets,
                Err(error) if error.kind() == PortErrorKind::Closed => return Ok(handled),
                Err(error) => return Err(error.into()),
            };
            let _at_work = self.gauge.enter();
            for packet in packets {
                handled += 1;
                match packet {
                    Packet::Ready(ready) => self.handle(ready, &mut buffer)?,
                    Packet::Removed(_, peer) => {
                        self.removed.fetch_add(1, Relaxed);
                        // The listener is removed after the last client: this is the end.
                        if let Peer::Listener(_) = peer {
                            self.port.post(Message::Shutdown)?;
                        }
                    }
                    Packet::Posted(Message::Shutdown) => {
                        self.port.post(Message::Shutdown)?;
                        return Ok(handled);
                    }
                    _ => {}
                }
            }
        }
    }

    fn handle(&self, mut ready: Ready<'_, Peer>, buffer: &mut [u8]) -> io::Result<()> {
        match ready.key_mut() {
            Peer::Listener(listener) => {
                self.accept(listener)?;
                ready.read_drained();
                ready.rearm()?;
            }
            Peer::Client(connection) => {
                // A broken connection is removed like a finished one; its client reports the error.
                match connection.turn(buffer, &self.traffic).unwrap_or(Next::End) {
                    Next::End => {
                        // The removal takes effect when the key is returned, armed or parked.
                        self.port.remove(ready.id())?;
                        ready.park()?;
                    }
                    next => next.arm(ready)?,
                }
            }
        }
        Ok(())
    }

    /// Accepts all queued connections.
    fn accept(&self, listener: &TcpListener) -> io::Result<()> {
        loop {
            let stream = match uninterrupted(|| listener.accept()) {
                Ok((stream, _)) => stream,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            };
            self.accepted.fetch_add(1, Relaxed);
            let key = Peer::Client(Connection::new(stream)?);
            self.port.register(Registration::owned(key, Interest::IN, OneShot::Level))?;
        }
    }
}
