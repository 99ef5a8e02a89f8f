//! What each thread of the echo server does.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::time::{Duration, Instant};

use completion_port::{
    Batch, ErrorKind as PortErrorKind, Id, Interest, OneShot, Packet, Port, Ready, Refused,
    Registration, Result,
};
use rustix::io::Errno;

use super::Peer;
use super::datagrams::Datagram;
use crate::connection::{Connection, Next, Traffic};
use crate::gauge::Gauge;

/// Room for the largest datagram, and for a good part of a stream.
const BUFFER: usize = 64 * 1024;
/// So many connections are accepted before the others have their turn.
const ACCEPTED_AT_ONCE: usize = 64;
/// How long a listener rests that could not accept for lack of descriptors.
const REST: Duration = Duration::from_millis(50);

/// What the threads share.
pub(crate) struct Server<'p> {
    port: &'p Port<Peer>,
    gauge: Gauge,
    traffic: Traffic,
    datagrams: Datagram,
    accepted: AtomicU64,
    open_at_end: AtomicU64,
    complained: AtomicBool,
}

/// What a server has done.
pub(crate) struct Clients {
    pub(crate) accepted: u64,
    /// Connections that the end of the server cut off.
    pub(crate) open_at_end: u64,
    pub(crate) datagrams: u64,
    pub(crate) lost: u64,
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

/// A listener that is parked, and when the thread that parked it arms it again.
struct Resting {
    listener: Id,
    until: Instant,
}

/// The end of a thread is the end of the server: usually the port is closed by then, but an error or
/// a panic must not leave the others serving without it.
struct Ending<'p>(&'p Port<Peer>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl<'p> Server<'p> {
    pub(crate) fn new(port: &'p Port<Peer>) -> Self {
        Self {
            port,
            gauge: Gauge::default(),
            traffic: Traffic::default(),
            datagrams: Datagram::default(),
            accepted: AtomicU64::new(0),
            open_at_end: AtomicU64::new(0),
            complained: AtomicBool::new(false),
        }
    }

    pub(crate) fn port(&self) -> &'p Port<Peer> {
        self.port
    }

    pub(crate) fn peak(&self) -> usize {
        self.gauge.peak()
    }

    pub(crate) fn clients(&self) -> Clients {
        Clients {
            accepted: self.accepted.load(Relaxed),
            open_at_end: self.open_at_end.load(Relaxed),
            datagrams: self.datagrams.received.load(Relaxed),
            lost: self.datagrams.lost.load(Relaxed),
            received: self.traffic.received(),
            sent: self.traffic.sent(),
        }
    }

    /// Handles packets until the port is closed; returns how many.
    pub(crate) fn serve(&self) -> Result<u64> {
        let _ending = Ending(self.port);
        let mut batch = Batch::new();
        let mut buffer = vec![0; BUFFER];
        let mut resting: Option<Resting> = None;
        let mut taken = 0;
        loop {
            let timeout = resting
                .as_ref()
                .map(|resting| resting.until.saturating_duration_since(Instant::now()));
            let packets = match self.port.wait(&mut batch, timeout) {
                Ok(packets) => packets,
                Err(error) if error.kind() == PortErrorKind::Closed => return Ok(taken),
                Err(error) => return Err(error),
            };
            let _at_work = self.gauge.enter();
            for packet in packets {
                taken += 1;
                match packet {
                    Packet::Ready(ready) => {
                        if let Some(parked) = self.handle(ready, &mut buffer)? {
                            resting = Some(parked);
                        }
                    }
                    // The server ends: each key comes back once more, and is dropped.
                    Packet::Removed(_, Peer::Connection(_)) => {
                        self.open_at_end.fetch_add(1, Relaxed);
                    }
                    _ => {}
                }
            }
            if let Some(over) = resting.take_if(|resting| resting.until <= Instant::now()) {
                self.wake_listener(over.listener)?;
            }
        }
    }

    /// Handles one packet and arms the registration again right away. Returns the listener if it
    /// had to be parked instead.
    fn handle(&self, mut ready: Ready<'_, Peer>, buffer: &mut [u8]) -> Result<Option<Resting>> {
        let next = match ready.key_mut() {
            Peer::Connection(connection) => {
                // A connection that broke is as good as one that ended: it is dropped.
                connection.turn(buffer, &self.traffic).unwrap_or(Next::End)
            }
            Peer::Datagrams(datagrams) => datagrams.turn(buffer, &self.traffic, &self.datagrams),
            Peer::Listener(listener) => match accept(listener, |stream| self.welcome(stream)) {
                Ok(next) => next,
                Err(error) => {
                    self.complain(&error);
                    return self.rest(ready);
                }
            },
            Peer::Termination(_) => {
                drop(ready);
                self.port.shutdown()?;
                return Ok(None);
            }
        };
        self.settled(next.arm(ready))?;
        Ok(None)
    }

    /// Registers a new connection.
    fn welcome(&self, stream: TcpStream) {
        // One that is broken before it is served is none.
        let Ok(connection) = Connection::new(stream) else { return };
        self.accepted.fetch_add(1, Relaxed);
        let key = Peer::Connection(connection);
        match self.port.register(Registration::owned(key, Interest::IN, OneShot::Level)) {
            Ok(_) => {}
            Err(refused) if refused.kind() == PortErrorKind::Closed => {
                self.open_at_end.fetch_add(1, Relaxed);
            }
            // The connection is closed by dropping it.
            Err(refused) => self.complain(&refused.into()),
        }
    }

    /// Parks the listener: armed again at once, it would report the same connection for ever.
    fn rest(&self, ready: Ready<'_, Peer>) -> Result<Option<Resting>> {
        let until = Instant::now() + REST;
        match ready.park() {
            Ok(listener) => Ok(Some(Resting { listener, until })),
            Err(refused) => self.settled(Err(refused)).map(|()| None),
        }
    }

    fn wake_listener(&self, listener: Id) -> Result<()> {
        match self.port.enable(listener, Interest::IN, OneShot::Level) {
            Err(error) if !is_end(error.kind()) => Err(error),
            _ => Ok(()),
        }
    }

    /// A registration that cannot be armed because the server ends gives its key back here.
    fn settled(&self, armed: std::result::Result<(), Refused<Peer>>) -> Result<()> {
        match armed {
            Ok(()) => Ok(()),
            Err(refused) if is_end(refused.kind()) => {
                if matches!(refused.value(), Peer::Connection(_)) {
                    self.open_at_end.fetch_add(1, Relaxed);
                }
                Ok(())
            }
            Err(refused) => Err(refused.into()),
        }
    }

    /// Says once that connections could not be served.
    fn complain(&self, error: &io::Error) {
        if !self.complained.swap(true, Relaxed) {
            eprintln!(
                "cport: {error}: new connections wait until that has passed (this is said once)"
            );
        }
    }
}

fn is_end(kind: PortErrorKind) -> bool {
    matches!(kind, PortErrorKind::Closed | PortErrorKind::Removing | PortErrorKind::NotRegistered)
}

/// Accepts what is there, up to a limit. An error means that nothing can be accepted for now,
/// though connections wait.
fn accept(listener: &TcpListener, mut welcome: impl FnMut(TcpStream)) -> io::Result<Next> {
    for _ in 0..ACCEPTED_AT_ONCE {
        match listener.accept() {
            Ok((stream, _)) => welcome(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Ok(Next::Read { drained: true });
            }
            Err(error) if is_shortage(&error) => return Err(error),
            // An interruption, or an error of the one connection that it took off the queue.
            Err(_) => {}
        }
    }
    Ok(Next::Read { drained: false })
}

/// Whether the connection is still there to be accepted, once descriptors or memory are.
fn is_shortage(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
    )
}
