//! The fourth scenario: a server based on operations.
//!
//! Accepts are in flight on two listeners. Each connection receives, and sends back what it has
//! received, with a deadline for each operation. The clients of one listener talk. Those of the
//! other one are silent, and are disconnected at their deadline. Meanwhile a timer rings
//! repeatedly.
//!
//! In the end the accepts are cancelled, and the last packets of the listeners return their keys.

use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, BorrowedSource, ErrorKind as PortErrorKind, Operation, Outcome as Of, Packet, Port,
    Ready, SharedId, Source, Started,
};

use super::client::{stay_silent, talk};
use super::pattern::Pattern;
use super::progress::Progress;
use super::{Check, Outcome, Share, Title};
use crate::connection::{Traffic, stream_of};
use crate::failure::Failure;
use crate::gauge::Gauge;

pub(crate) const TITLE: Title = Title {
    name: "operations",
    title: "A server by operations",
    about: "4 threads, 32 accepts in flight, receives and sends that complete; 64 clients that \
            talk, and 8 that stay silent until their deadline",
};

const THREADS: usize = 4;
const CLIENTS: u64 = 64;
const SILENT: u64 = 8;
/// Number and maximum length of each client's messages.
const ROUNDS: u64 = 300;
const MOST: usize = 8 * 1024;
/// In flight on each of the two listeners.
const ACCEPTS: u64 = 16;
const BUFFER: usize = 16 * 1024;
/// How long a client of the first listener may be silent: longer than any scenario takes.
const LONG: Duration = Duration::from_secs(3600);
/// The same at the second one.
const SHORT: Duration = Duration::from_millis(100);
/// Interval of the timer.
const TICK: Duration = Duration::from_millis(5);

/// The key: the subject of a packet. Each connection comes with a clone of its listener's.
#[derive(Clone)]
enum Peer {
    Listener(Arc<Listener>),
    Client(Arc<TcpStream>, Duration),
}

struct Listener {
    socket: TcpListener,
    /// The deadline of each operation of its connections.
    patience: Duration,
}

impl Source for Peer {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Listener(listener) => listener.socket.as_source(),
            Self::Client(stream, _) => stream.as_source(),
        }
    }
}

enum Message {
    /// The timer due at this time has rung.
    Tick(Instant),
    /// It was cancelled, so it never arrives.
    TakenBack,
    Shutdown,
}

/// What the threads share.
struct Server<'p> {
    port: &'p Port<Peer, Message>,
    gauge: Gauge,
    traffic: Traffic,
    accepted: AtomicU64,
    /// Connections whose deadline passed.
    timed_out: AtomicU64,
    /// Accepts that were cancelled.
    cancelled: AtomicU64,
    /// Listeners that have ended.
    removed: AtomicU64,
    ticks: AtomicU64,
    /// Ticks that arrived early, and cancelled messages that arrived.
    wrong_ticks: AtomicU64,
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
    let listeners = [LONG, SHORT].map(|patience| listen(&port, patience));
    let [(talking, address), (silent, quiet_address)] = match listeners {
        [Ok(talking), Ok(silent)] => [talking, silent],
        [Err(error), _] | [_, Err(error)] => return Err(refused(error)),
    };
    let timers = || -> completion_port::Result<bool> {
        port.post_at(TICK, Message::Tick(Instant::now() + TICK))?;
        let soon = port.post_at(TICK, Message::TakenBack)?;
        Ok(matches!(port.cancel_post(soon), Some(Message::TakenBack)))
    };
    let was_taken_back = timers().map_err(|error| refused(error.into()))?;

    let server = Server {
        port: &port,
        gauge: Gauge::default(),
        traffic: Traffic::default(),
        accepted: AtomicU64::new(0),
        timed_out: AtomicU64::new(0),
        cancelled: AtomicU64::new(0),
        removed: AtomicU64::new(0),
        ticks: AtomicU64::new(0),
        wrong_ticks: AtomicU64::new(u64::from(!was_taken_back)),
    };
    let mut faults = Vec::new();
    let mut by_thread = Vec::with_capacity(THREADS);
    let mut patient = 0;
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
        let silent_ones = (0..SILENT)
            .map(|_| scope.spawn(move || stay_silent(quiet_address, progress)))
            .collect::<Vec<_>>();
        let clients = patterns
            .iter()
            .map(|pattern| scope.spawn(move || talk(address, *pattern, rounds, MOST, progress)))
            .collect::<Vec<_>>();
        for (number, client) in clients.into_iter().enumerate() {
            let told = client.join().unwrap_or_else(|_| Err("panicked".into()));
            faults.extend(told.err().map(|fault| format!("client {number}: {fault}")));
        }
        for client in silent_ones {
            match client.join().unwrap_or_else(|_| Err("panicked".into())) {
                Ok(waited) => patient += u64::from(waited >= SHORT),
                Err(fault) => faults.push(format!("a silent client: {fault}")),
            }
        }
        progress.touch();
        // Every client has seen the end of its stream. Only accepts are in flight.
        for listener in [talking, silent] {
            if let Err(error) = port.remove(listener.id()) {
                // A thread failed, and has closed the port.
                faults.push(error.to_string());
                port.close();
            }
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
    let (accepted, ticks) = (server.accepted.load(Relaxed), server.ticks.load(Relaxed));
    let wrong = server.wrong_ticks.load(Relaxed);
    let error = faults.into_iter().next().or_else(|| {
        (ticks == 0 || wrong > 0).then(|| format!("{ticks} ticks of the timer, {wrong} wrong"))
    });
    Ok(Outcome {
        connections: accepted,
        received,
        sent,
        by_thread,
        peak: server.gauge.peak(),
        stats: port.stats(),
        elapsed,
        more: vec![("timed_out", server.timed_out.load(Relaxed)), ("ticks", ticks)],
        checks: vec![
            Check::count("connections were accepted", accepted, CLIENTS + SILENT),
            Check::count("bytes of the clients arrived", received, total),
            Check::count("bytes came back", sent, total),
            Check::count(
                "silent clients were disconnected at their deadline",
                server.timed_out.load(Relaxed),
                SILENT,
            ),
            Check::count("and none of them before it", patient, SILENT),
            Check::count(
                "accepts were in flight in the end, and cancelled",
                server.cancelled.load(Relaxed),
                2 * ACCEPTS,
            ),
            Check::no_error(
                "errors, wrong bytes, timers that rang early or after they were taken back",
                error,
            ),
            Check::count("listeners gave their key back", server.removed.load(Relaxed), 2),
        ],
    })
}

/// A listener with accepts in flight.
fn listen(port: &Port<Peer, Message>, patience: Duration) -> io::Result<(SharedId, SocketAddr)> {
    let socket = TcpListener::bind("127.0.0.1:0")?;
    let address = socket.local_addr()?;
    let listener = Arc::new(Listener { socket, patience });
    let id = port.associate_shared(Peer::Listener(Arc::clone(&listener)))?;
    for _ in 0..ACCEPTS {
        port.start(id, Operation::accept())?;
    }
    Ok((id, address))
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
                    Packet::SharedCompleted(accept) => {
                        let id = accept.id();
                        if let (Peer::Listener(listener), outcome) = accept.into_parts() {
                            self.welcome(id, &listener, outcome)?;
                        }
                    }
                    Packet::Completed(done) => {
                        let (token, outcome) = done.into_parts();
                        self.go_on(token, outcome)?;
                    }
                    Packet::Removed(..) => {
                        let before = self.removed.fetch_add(1, Relaxed);
                        // After the second listener, the scenario has ended.
                        if before == 1 {
                            self.port.post(Message::Shutdown)?;
                        }
                    }
                    Packet::Posted(Message::Tick(due)) => self.tick(due)?,
                    Packet::Posted(Message::TakenBack) => {
                        self.wrong_ticks.fetch_add(1, Relaxed);
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

    /// A connection, or the end of an accept.
    fn welcome(&self, id: SharedId, listener: &Listener, outcome: Of) -> io::Result<()> {
        let socket = match outcome {
            Of::Accepted(Ok((socket, _))) => socket,
            outcome => match outcome.error() {
                Some(error) if error.kind() != PortErrorKind::Cancelled => return Err(error.into()),
                _ => {
                    self.cancelled.fetch_add(1, Relaxed);
                    return Ok(());
                }
            },
        };
        self.accepted.fetch_add(1, Relaxed);
        // Starts another one to replace it.
        self.port.start(id, Operation::accept())?;
        let stream = stream_of(socket);
        stream.set_nodelay(true)?;
        let token = self.port.associate(Peer::Client(Arc::new(stream), listener.patience))?;
        let receive = Operation::recv(Vec::with_capacity(BUFFER));
        token.start(receive.deadline(listener.patience))?;
        Ok(())
    }

    /// Continues after an operation of a client.
    fn go_on(&self, token: Ready<'_, Peer>, outcome: Of) -> io::Result<()> {
        let Peer::Client(_, patience) = token.key() else { return Ok(()) };
        let patience = *patience;
        match outcome {
            Of::Received(Ok(received @ 1..), bytes) => {
                self.traffic.add_received(received);
                // Usually everything is sent immediately, without a packet.
                match token.start_now(Operation::send_all(bytes).deadline(patience))? {
                    Started::Completed((token, outcome)) => self.go_on(token, outcome)?,
                    Started::InFlight(_) => {}
                }
            }
            Of::Sent(Ok(sent), buffer) => {
                self.traffic.add_sent(sent);
                token.start(Operation::recv(buffer).deadline(patience))?;
            }
            outcome => {
                // The end of the stream, an error that its client also reports, or a timeout. The
                // token is dropped, which closes the connection.
                if outcome.error().is_some_and(|error| error.kind() == PortErrorKind::TimedOut) {
                    self.timed_out.fetch_add(1, Relaxed);
                }
            }
        }
        Ok(())
    }

    /// The timer has rung.
    fn tick(&self, due: Instant) -> io::Result<()> {
        let now = Instant::now();
        self.ticks.fetch_add(1, Relaxed);
        if now < due {
            self.wrong_ticks.fetch_add(1, Relaxed);
        }
        self.port.post_at(TICK, Message::Tick(now + TICK))?;
        Ok(())
    }
}
