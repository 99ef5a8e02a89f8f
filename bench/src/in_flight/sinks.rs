//! What is fed and taken: datagrams, the bytes of a stream, and connections.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, Interest, OneShot, Operation, Outcome, Packet, Port, Refused, Registration, SharedId,
    SharedSource, Source, Started,
};

use crate::system;

/// Bytes of a datagram, and of a receive from a stream.
const BYTES: usize = 64;
/// How much a handler takes before other packets have their turn.
const BUDGET: usize = 16;
/// Packets that are not taken yet when the feeder waits.
const WINDOW: usize = 128;
/// Nothing takes longer, unless something is lost.
const LIMIT: Duration = Duration::from_secs(20);

/// How a port takes from a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// By readiness: the handler reads until it would block, or its budget is used up.
    Readiness,
    /// By one operation in flight, which the handler continues with `start_now`.
    OneNow,
    /// By that many operations in flight, each started again by its handler.
    InFlight(usize),
}

/// A socket from which a port takes.
pub(super) trait Kind: Source + Send + Sync + Sized + 'static {
    type Feeder: Send;

    fn pair() -> io::Result<(Self, Self::Feeder)>;

    /// Makes it possible to take so often.
    fn feed(feeder: &mut Self::Feeder, times: usize) -> io::Result<()>;

    /// Takes once; the error indicates whether it would block.
    fn take(&self) -> io::Result<()>;

    /// Takes once, into a buffer that was used before.
    fn operation(buffer: Option<Vec<u8>>) -> Operation;
}

fn room(buffer: Option<Vec<u8>>) -> Vec<u8> {
    let mut buffer = buffer.unwrap_or_else(|| Vec::with_capacity(BYTES));
    buffer.clear();
    buffer
}

impl Kind for UdpSocket {
    type Feeder = UdpSocket;

    fn pair() -> io::Result<(Self, UdpSocket)> {
        let [near, far] = [(); 2].map(|()| UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)));
        let (near, far) = (near?, far?);
        far.connect(near.local_addr()?)?;
        near.set_nonblocking(true)?;
        Ok((near, far))
    }

    fn feed(feeder: &mut UdpSocket, times: usize) -> io::Result<()> {
        (0..times).try_for_each(|_| feeder.send(&[7; BYTES]).map(|_| ()))
    }

    fn take(&self) -> io::Result<()> {
        self.recv_from(&mut [0; BYTES]).map(|_| ())
    }

    fn operation(buffer: Option<Vec<u8>>) -> Operation {
        Operation::recv_from(room(buffer))
    }
}

impl Kind for TcpStream {
    type Feeder = TcpStream;

    fn pair() -> io::Result<(Self, TcpStream)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let far = TcpStream::connect(listener.local_addr()?)?;
        let (near, _) = listener.accept()?;
        far.set_nodelay(true)?;
        near.set_nonblocking(true)?;
        Ok((near, far))
    }

    fn feed(feeder: &mut TcpStream, times: usize) -> io::Result<()> {
        feeder.write_all(&vec![7; times * BYTES])
    }

    fn take(&self) -> io::Result<()> {
        match (&*self).read(&mut [0; BYTES])? {
            BYTES => Ok(()),
            _ => Err(io::Error::other("bytes are missing")),
        }
    }

    fn operation(buffer: Option<Vec<u8>>) -> Operation {
        Operation::recv(room(buffer))
    }
}

impl Kind for TcpListener {
    type Feeder = SocketAddr;

    fn pair() -> io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    fn feed(feeder: &mut SocketAddr, times: usize) -> io::Result<()> {
        (0..times).try_for_each(|_| {
            // Reset, so that no port number stays in use.
            system::reset_when_closed(&TcpStream::connect(*feeder)?)
        })
    }

    fn take(&self) -> io::Result<()> {
        self.accept().map(|_| ())
    }

    fn operation(_: Option<Vec<u8>>) -> Operation {
        Operation::accept()
    }
}

/// What a port has counted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counted {
    pub(super) wakes: u64,
    pub(super) polls: u64,
}

/// A port that takes from one socket.
struct Sink<S: Kind> {
    port: Port<SharedSource<S>>,
    by: By,
    taken: AtomicUsize,
}

fn failed<T>(refused: Refused<T>) -> io::Error {
    refused.error().into()
}

impl<S: Kind> Sink<S> {
    fn new(threads: usize, by: By, socket: S) -> io::Result<Self> {
        let port = Port::builder().concurrency(threads).build()?;
        let key = SharedSource::new(socket);
        let in_flight = match by {
            By::Readiness => {
                let registration = Registration::owned(key, Interest::IN, OneShot::Level);
                port.register(registration).map_err(failed)?;
                return Ok(Self { port, by, taken: AtomicUsize::new(0) });
            }
            By::OneNow => 1,
            By::InFlight(count) => count,
        };
        let id = port.associate_shared(key).map_err(failed)?;
        for _ in 0..in_flight {
            port.start(id, S::operation(None)).map_err(failed)?;
        }
        Ok(Self { port, by, taken: AtomicUsize::new(0) })
    }

    /// Handles a packet.
    fn handle(&self, packet: Packet<'_, SharedSource<S>, ()>) -> io::Result<()> {
        match packet {
            Packet::Ready(mut token) => {
                for _ in 0..BUDGET {
                    match token.key().take() {
                        Ok(()) => self.count(),
                        Err(error) if error.kind() == ErrorKind::WouldBlock => {
                            token.read_drained();
                            break;
                        }
                        Err(error) => return Err(error),
                    }
                }
                token.rearm()?;
            }
            Packet::SharedCompleted(done) => {
                let id = done.id();
                let (_, outcome) = done.into_parts();
                self.go_on(id, outcome)?;
            }
            _ => return Err(io::Error::other("another packet")),
        }
        Ok(())
    }

    /// Counts what an operation has taken, and takes more.
    fn go_on(&self, id: SharedId, mut outcome: Outcome) -> io::Result<()> {
        for _ in 1..BUDGET {
            let operation = self.again(outcome)?;
            if self.by != By::OneNow {
                return self.port.start(id, operation).map(|_| ()).map_err(failed);
            }
            match self.port.start_now(id, operation).map_err(failed)? {
                Started::Completed(next) => outcome = next,
                Started::InFlight(_) => return Ok(()),
            }
        }
        let operation = self.again(outcome)?;
        self.port.start(id, operation).map(|_| ()).map_err(failed)
    }

    /// Counts what an operation has taken, and returns the next one.
    fn again(&self, outcome: Outcome) -> io::Result<Operation> {
        if let Some(error) = outcome.error() {
            return Err(error.into());
        }
        self.count();
        Ok(S::operation(outcome.into_buffer()))
    }

    fn count(&self) {
        self.taken.fetch_add(1, Ordering::Relaxed);
    }

    fn taken(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// What the port has counted so far.
    fn counted(&self) -> Counted {
        let stats = self.port.stats();
        Counted { wakes: stats.wakes, polls: stats.polls }
    }
}

/// One thread feeds and takes, `burst` times at a time.
pub(super) fn alone<S: Kind>(by: By, burst: usize, times: usize) -> io::Result<Counted> {
    let (socket, mut feeder) = S::pair()?;
    let sink = Sink::new(1, by, socket)?;
    let mut batch = Batch::new();
    let mut wanted = 0;
    while wanted < times {
        S::feed(&mut feeder, burst)?;
        wanted += burst;
        while sink.taken() < wanted {
            let before = sink.taken();
            sink.port.wait(&mut batch, LIMIT)?.try_for_each(|packet| sink.handle(packet))?;
            if sink.taken() == before && sink.by != By::Readiness {
                return Err(io::Error::other("something was lost"));
            }
        }
    }
    Ok(sink.counted())
}

/// A thread feeds, and `threads` threads take.
pub(super) fn together<S: Kind>(by: By, threads: usize, times: usize) -> io::Result<Counted> {
    let (socket, mut feeder) = S::pair()?;
    let sink = Sink::new(threads, by, socket)?;
    thread::scope(|scope| {
        let sink = &sink;
        let takers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(move || -> io::Result<()> {
                    let mut batch = Batch::new();
                    while let Ok(mut packets) = sink.port.wait(&mut batch, None) {
                        let handled = packets.try_for_each(|packet| sink.handle(packet));
                        // Afterwards the end of the port cancels what is in flight.
                        if sink.taken() < times {
                            handled?;
                        }
                    }
                    Ok(())
                })
            })
            .collect();
        let fed = feed(sink, &mut feeder, times);
        let counted = sink.counted();
        sink.port.raw().abandon();
        for taker in takers {
            taker.join().map_err(|_| io::Error::other("a thread panicked"))??;
        }
        fed.map(|()| counted)
    })
}

/// Feeds, never more than a window ahead, until everything is taken.
fn feed<S: Kind>(sink: &Sink<S>, feeder: &mut S::Feeder, times: usize) -> io::Result<()> {
    const AT_A_TIME: usize = 8;
    let end = Instant::now() + LIMIT;
    let mut fed = 0;
    while sink.taken() < times {
        if fed < times && fed + AT_A_TIME <= sink.taken() + WINDOW {
            S::feed(feeder, AT_A_TIME)?;
            fed += AT_A_TIME;
            continue;
        }
        if Instant::now() > end {
            return Err(io::Error::other("not everything was taken"));
        }
        thread::yield_now();
    }
    Ok(())
}
