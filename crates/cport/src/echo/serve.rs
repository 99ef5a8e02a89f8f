//! The threads of the echo server.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use completion_port::{
    Batch, ErrorKind as PortErrorKind, Id, Interest, OneShot, Packet, Port, Ready, Refused,
    Registration, Result, Stats,
};

use super::Peer;
use super::clients::Client;
use super::datagrams::{Datagram, Datagrams};
use super::state::{CUTTING, ENDING, Ending, QUIET_LOOKS, Served, Service, State, is_end};
use crate::connection::{Connection, Next};
use crate::system::{Waker, is_shortage};

/// Room for the largest datagram, and for a good part of a stream.
const BUFFER: usize = 64 * 1024;
/// This many connections are accepted before the others have their turn.
const ACCEPTED_AT_ONCE: usize = 64;
/// How long a listener rests that could not accept because descriptors have run out.
const REST: Duration = Duration::from_millis(50);
/// What the threads share.
pub(crate) struct Server<'p> {
    port: &'p Port<Peer>,
    state: State,
    datagrams: Datagram,
    /// The listener, or the socket for datagrams, until it is closed.
    entrance: Mutex<Option<Id>>,
}

/// A parked listener, and when its thread arms it again.
struct Resting {
    listener: Id,
    until: Instant,
}

impl Service for Server<'_> {
    fn state(&self) -> &State {
        &self.state
    }

    fn stats(&self) -> Stats {
        self.port.stats()
    }

    fn served(&self) -> Served {
        Served {
            datagrams: self.datagrams.received.load(Relaxed),
            lost: self.datagrams.lost.load(Relaxed),
            ..self.state.served()
        }
    }

    fn close(&self) {
        self.port.close();
    }

    fn look(&self) -> Result<()> {
        // Removes it again if datagrams arrived meanwhile; a removal in progress is left alone.
        let entrance = *self.entrance();
        if let Some(id) = entrance {
            return self.remove(id);
        }
        let clients = &self.state.clients;
        if clients.count() == 0 {
            return self.port.shutdown();
        }
        clients.quiet(QUIET_LOOKS).into_iter().try_for_each(|id| self.remove(id))
    }

    fn cut_off(&self) -> Result<()> {
        self.state.begin_to_cut();
        self.port.shutdown()
    }

    fn serve(&self) -> Result<u64> {
        let _ending = Ending(self.port, &self.state);
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
            let _at_work = self.state.gauge.enter();
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
}

impl<'p> Server<'p> {
    /// `entrance` is the registration of the listener or datagram socket.
    pub(crate) fn new(port: &'p Port<Peer>, entrance: Id, waker: Waker) -> Self {
        let datagrams = Datagram::default();
        Self { port, state: State::new(waker), datagrams, entrance: Mutex::new(Some(entrance)) }
    }

    /// Registrations that have ended need not be removed.
    fn remove(&self, id: Id) -> Result<()> {
        match self.port.remove(id) {
            Err(error) if !is_end(error.kind()) => Err(error),
            _ => Ok(()),
        }
    }

    fn entrance(&self) -> MutexGuard<'_, Option<Id>> {
        self.entrance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Handles one packet and arms the registration again right away. Returns the listener if it
    /// had to be parked instead.
    fn handle(&self, mut ready: Ready<'_, Peer>, buffer: &mut [u8]) -> Result<Option<Resting>> {
        let next = match ready.key_mut() {
            Peer::Client(client) => client.turn(buffer, &self.state.traffic),
            Peer::Datagrams(datagrams) => {
                datagrams.turn(buffer, &self.state.traffic, &self.datagrams)
            }
            Peer::Listener(listener) => match accept(listener, |stream| self.welcome(stream)) {
                Ok(next) => next,
                Err(error) => {
                    self.state.complain_if_one_waits(listener, &error);
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
        // A connection that is already broken is ignored.
        let Ok(connection) = Connection::new(stream) else { return };
        self.state.has_accepted();
        let client = Client::new(connection, &self.state.clients);
        if let Err(refused) = self.register(client, Interest::IN) {
            let kind = refused.kind();
            let (error, peer) = refused.into_parts();
            if let (PortErrorKind::Closed, Peer::Client(client)) = (kind, peer) {
                self.state.count_cut(client.cut_off());
            } else {
                // The connection was dropped, and so closed.
                self.state.complain(&error.into());
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
        self.state.clients.registered(number, id);
        Ok(())
    }

    /// Parks the listener: if armed immediately, it would report the same connection forever.
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

    /// Takes back the key of a registration that cannot be armed because the server is ending.
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

    /// A key was returned: the server is ending, or is checking whether this client is done.
    fn take_back(&self, peer: Peer, buffer: &mut [u8]) -> Result<()> {
        match (self.state.phase(), peer) {
            (ENDING, Peer::Client(mut client)) => {
                // If there is nothing to read or send, closing it resets nothing.
                let Some(interest) = client.last_turn(buffer, &self.state.traffic) else {
                    return Ok(());
                };
                let Err(refused) = self.register(client, interest) else { return Ok(()) };
                let kind = refused.kind();
                match refused.into_parts() {
                    // All clients are being cut off meanwhile.
                    (_, Peer::Client(client)) if is_end(kind) => {
                        self.state.count_cut(client.cut_off())
                    }
                    (error, _) => return Err(error),
                }
                Ok(())
            }
            (ENDING, Peer::Datagrams(datagrams)) => self.last_datagrams(datagrams, buffer),
            (ENDING, Peer::Listener(listener)) => {
                // Connections in its queue are already established.
                loop {
                    match accept(&listener, |stream| self.welcome(stream)) {
                        Ok(Next::Read { drained: false }) => {}
                        Ok(_) => break,
                        Err(error) => {
                            self.state.complain_if_one_waits(&listener, &error);
                            break;
                        }
                    }
                }
                *self.entrance() = None;
                Ok(())
            }
            (phase, Peer::Client(client)) => {
                if phase == CUTTING {
                    self.state.count_cut(client.cut_off());
                }
                Ok(())
            }
            (_, Peer::Listener(_) | Peer::Datagrams(_)) => {
                *self.entrance() = None;
                Ok(())
            }
        }
    }

    /// Answers the available datagrams, and closes the socket if none remain.
    fn last_datagrams(&self, mut datagrams: Datagrams, buffer: &mut [u8]) -> Result<()> {
        let interest = match datagrams.turn(buffer, &self.state.traffic, &self.datagrams) {
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
}

/// Accepts queued connections, up to a limit. An error means that none can be accepted now,
/// although some are queued.
fn accept(listener: &TcpListener, mut welcome: impl FnMut(TcpStream)) -> io::Result<Next> {
    for _ in 0..ACCEPTED_AT_ONCE {
        match listener.accept() {
            Ok((stream, _)) => welcome(stream),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Ok(Next::Read { drained: true });
            }
            Err(error) if is_shortage(&error) => return Err(error),
            // An interruption, or an error of the connection that it took off the queue.
            Err(_) => {}
        }
    }
    Ok(Next::Read { drained: false })
}
