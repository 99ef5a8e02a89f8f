//! What each thread of the echo server does.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use completion_port::{
    Batch, ErrorKind as PortErrorKind, Id, Interest, OneShot, Packet, Port, Ready, Refused,
    Registration, Result,
};
use rustix::io::Errno;

use super::Peer;
use super::clients::{Client, Clients};
use super::datagrams::{Datagram, Datagrams};
use crate::connection::{Connection, Next, Traffic};
use crate::gauge::Gauge;
use crate::signals::Waker;

/// Room for the largest datagram, and for a good part of a stream.
const BUFFER: usize = 64 * 1024;
/// So many connections are accepted before the others have their turn.
const ACCEPTED_AT_ONCE: usize = 64;
/// How long a listener rests that could not accept for lack of descriptors.
const REST: Duration = Duration::from_millis(50);
/// A client that had no turn for so many looks in succession has sent all that it wanted to send.
const QUIET_LOOKS: u32 = 4;

/// The phases of a server; it never goes back to a former one.
const SERVING: u8 = 0;
/// No new clients; the others get back what was received.
const ENDING: u8 = 1;
/// All clients are cut off.
const CUTTING: u8 = 2;

/// What the threads share.
pub(crate) struct Server<'p> {
    port: &'p Port<Peer>,
    waker: Waker,
    gauge: Gauge,
    traffic: Traffic,
    datagrams: Datagram,
    clients: Arc<Clients>,
    accepted: AtomicU64,
    /// Clients that were there when the end began.
    open_at_end: AtomicU64,
    cut_clients: AtomicU64,
    cut_bytes: AtomicU64,
    complained: AtomicBool,
    phase: AtomicU8,
    /// The listener, or the socket for datagrams, until it is closed.
    entrance: Mutex<Option<Id>>,
    over: AtomicBool,
}

/// What a server has done.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Served {
    pub(crate) accepted: u64,
    pub(crate) open: u64,
    pub(crate) requests: u64,
    pub(crate) received: u64,
    pub(crate) sent: u64,
    pub(crate) datagrams: u64,
    pub(crate) lost: u64,
    /// Clients that were cut off before they had all of it back, and how much they did not get.
    pub(crate) cut_clients: u64,
    pub(crate) cut_bytes: u64,
}

/// A listener that is parked, and when the thread that parked it arms it again.
struct Resting {
    listener: Id,
    until: Instant,
}

/// The end of a thread is the end of the server: usually the port is closed by then, but an error or
/// a panic must not leave the others serving without it.
struct Ending<'s>(&'s Server<'s>);

impl Drop for Ending<'_> {
    fn drop(&mut self) {
        self.0.port.close();
        self.0.over.store(true, Release);
        self.0.waker.wake();
    }
}

impl<'p> Server<'p> {
    /// `entrance` is the registration of what the clients come to.
    pub(crate) fn new(port: &'p Port<Peer>, entrance: Id, waker: Waker) -> Self {
        Self {
            port,
            waker,
            gauge: Gauge::default(),
            traffic: Traffic::default(),
            datagrams: Datagram::default(),
            clients: Arc::default(),
            accepted: AtomicU64::new(0),
            open_at_end: AtomicU64::new(0),
            cut_clients: AtomicU64::new(0),
            cut_bytes: AtomicU64::new(0),
            complained: AtomicBool::new(false),
            phase: AtomicU8::new(SERVING),
            entrance: Mutex::new(Some(entrance)),
            over: AtomicBool::new(false),
        }
    }

    pub(crate) fn port(&self) -> &'p Port<Peer> {
        self.port
    }

    pub(crate) fn peak(&self) -> usize {
        self.gauge.peak()
    }

    pub(crate) fn served(&self) -> Served {
        Served {
            accepted: self.accepted.load(Relaxed),
            open: self.clients.count() as u64,
            requests: self.traffic.requests(),
            received: self.traffic.received(),
            sent: self.traffic.sent(),
            datagrams: self.datagrams.received.load(Relaxed),
            lost: self.datagrams.lost.load(Relaxed),
            cut_clients: self.cut_clients.load(Relaxed),
            cut_bytes: self.cut_bytes.load(Relaxed),
        }
    }

    /// How many clients were there when the end began.
    pub(crate) fn open_at_end(&self) -> u64 {
        self.open_at_end.load(Relaxed)
    }

    /// Whether a thread has ended, which ends all of them.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Acquire)
    }

    /// Begins the end: clients get back what was received, but new ones are not let in.
    pub(crate) fn begin_to_end(&self) {
        self.open_at_end.store(self.clients.count() as u64, Relaxed);
        self.phase.fetch_max(ENDING, Release);
    }

    /// Looks for what has nothing left to do, and closes it; in the end that is the port. To be called again and
    /// again, once the end has begun.
    pub(crate) fn look(&self) -> Result<()> {
        // It is removed again where datagrams came meanwhile; a removal that is under way stays as it is.
        let entrance = *self.entrance();
        if let Some(id) = entrance {
            return self.remove(id);
        }
        if self.clients.count() == 0 {
            return self.port.shutdown();
        }
        self.clients.quiet(QUIET_LOOKS).into_iter().try_for_each(|id| self.remove(id))
    }

    /// Ends at once. All keys come back.
    pub(crate) fn cut_off(&self) -> Result<()> {
        self.phase.fetch_max(CUTTING, Release);
        self.port.shutdown()
    }

    /// What is gone already need not be removed.
    fn remove(&self, id: Id) -> Result<()> {
        match self.port.remove(id) {
            Err(error) if !is_end(error.kind()) => Err(error),
            _ => Ok(()),
        }
    }

    fn entrance(&self) -> MutexGuard<'_, Option<Id>> {
        self.entrance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn phase(&self) -> u8 {
        self.phase.load(Acquire)
    }

    /// Handles packets until the port is closed; returns how many.
    pub(crate) fn serve(&self) -> Result<u64> {
        let _ending = Ending(self);
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
                    Packet::Removed(_, peer) => self.take_back(peer, &mut buffer)?,
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
            Peer::Client(client) => client.turn(buffer, &self.traffic),
            Peer::Datagrams(datagrams) => datagrams.turn(buffer, &self.traffic, &self.datagrams),
            Peer::Listener(listener) => match accept(listener, |stream| self.welcome(stream)) {
                Ok(next) => next,
                Err(error) => {
                    self.complain(&error);
                    return self.rest(ready, buffer);
                }
            },
        };
        let armed = next.arm(ready);
        self.settle(armed, buffer)?;
        Ok(None)
    }

    /// Registers a new connection.
    fn welcome(&self, stream: TcpStream) {
        // One that is broken before it is served is none.
        let Ok(connection) = Connection::new(stream) else { return };
        self.accepted.fetch_add(1, Relaxed);
        let client = Client::new(connection, &self.clients);
        if let Err(refused) = self.register(client, Interest::IN) {
            let kind = refused.kind();
            let (error, peer) = refused.into_parts();
            if let (PortErrorKind::Closed, Peer::Client(client)) = (kind, peer) {
                self.count_cut(&client);
            } else {
                // The connection is closed, since it was dropped.
                self.complain(&error.into());
            }
        }
    }

    fn register(
        &self,
        client: Client,
        interest: Interest,
    ) -> std::result::Result<(), Refused<Peer>> {
        let number = client.number();
        let key = Peer::Client(client);
        let id = self.port.register(Registration::owned(key, interest, OneShot::Level))?;
        self.clients.registered(number, id);
        Ok(())
    }

    /// Parks the listener: armed again at once, it would report the same connection for ever.
    fn rest(&self, ready: Ready<'_, Peer>, buffer: &mut [u8]) -> Result<Option<Resting>> {
        let until = Instant::now() + REST;
        match ready.park() {
            Ok(listener) => Ok(Some(Resting { listener, until })),
            Err(refused) => self.settle(Err(refused), buffer).map(|()| None),
        }
    }

    fn wake_listener(&self, listener: Id) -> Result<()> {
        match self.port.enable(listener, Interest::IN, OneShot::Level) {
            Err(error) if !is_end(error.kind()) => Err(error),
            _ => Ok(()),
        }
    }

    /// A registration that cannot be armed because the server ends gives its key back here.
    fn settle(
        &self,
        armed: std::result::Result<(), Refused<Peer>>,
        buffer: &mut [u8],
    ) -> Result<()> {
        match armed {
            Ok(()) => Ok(()),
            Err(refused) if is_end(refused.kind()) => {
                self.take_back(refused.into_parts().1, buffer)
            }
            Err(refused) => Err(refused.into()),
        }
    }

    /// A key has come back: the server ends, or looks whether this client is done.
    fn take_back(&self, peer: Peer, buffer: &mut [u8]) -> Result<()> {
        match (self.phase(), peer) {
            (ENDING, Peer::Client(mut client)) => {
                // If nothing is left to be read or sent, closing it resets nothing.
                let Some(interest) = client.last_turn(buffer, &self.traffic) else { return Ok(()) };
                let Err(refused) = self.register(client, interest) else { return Ok(()) };
                let kind = refused.kind();
                match refused.into_parts() {
                    // Meanwhile all clients are cut off.
                    (_, Peer::Client(client)) if is_end(kind) => self.count_cut(&client),
                    (error, _) => return Err(error),
                }
                Ok(())
            }
            (ENDING, Peer::Datagrams(datagrams)) => self.last_datagrams(datagrams, buffer),
            (ENDING, Peer::Listener(listener)) => {
                // Those that are in its queue have connected already.
                loop {
                    match accept(&listener, |stream| self.welcome(stream)) {
                        Ok(Next::Read { drained: false }) => {}
                        Ok(_) => break,
                        Err(error) => {
                            self.complain(&error);
                            break;
                        }
                    }
                }
                *self.entrance() = None;
                Ok(())
            }
            (phase, Peer::Client(client)) => {
                if phase == CUTTING {
                    self.count_cut(&client);
                }
                Ok(())
            }
            (_, Peer::Listener(_) | Peer::Datagrams(_)) => {
                *self.entrance() = None;
                Ok(())
            }
        }
    }

    /// Answers what has come, and closes the socket if nothing is left.
    fn last_datagrams(&self, mut datagrams: Datagrams, buffer: &mut [u8]) -> Result<()> {
        let interest = match datagrams.turn(buffer, &self.traffic, &self.datagrams) {
            Next::Read { drained: true } | Next::End => {
                *self.entrance() = None;
                return Ok(());
            }
            Next::Read { drained: false } => Interest::IN,
            Next::Write => Interest::OUT,
        };
        let key = Peer::Datagrams(datagrams);
        match self.port.register(Registration::owned(key, interest, OneShot::Level)) {
            Ok(id) => *self.entrance() = Some(id),
            Err(refused) if is_end(refused.kind()) => *self.entrance() = None,
            Err(refused) => return Err(refused.into()),
        }
        Ok(())
    }

    fn count_cut(&self, client: &Client) {
        let bytes = client.cut_off();
        if bytes > 0 {
            self.cut_clients.fetch_add(1, Relaxed);
            self.cut_bytes.fetch_add(bytes, Relaxed);
        }
    }

    /// Says once that connections could not be served.
    fn complain(&self, error: &io::Error) {
        if !self.complained.swap(true, Relaxed) {
            let remedy = if crate::failure::is_descriptor_limit(error) {
                "; `ulimit -n` shows the limit, and raises it before the next start"
            } else {
                ""
            };
            eprintln!(
                "cport: cannot accept connections: {error}: new ones wait until that has passed{remedy} \
                 (this is said once)"
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
