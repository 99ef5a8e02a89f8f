//! The same server based on operations: packets bring accepted connections, and the results of
//! receives and sends.
//!
//! A connection has one operation at a time: it receives, or it sends back what it has received. A
//! send that finishes immediately makes no packet.

use std::io::{self, ErrorKind};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use completion_port::{
    Batch, BorrowedSource, ErrorKind as PortErrorKind, Id, Operation, Outcome, Packet, Port, Ready,
    Result, Source, Started, Stats,
};

use super::clients::Member;
use super::state::{CUTTING, ENDING, Ending, QUIET_LOOKS, Service, State, is_end};
use crate::connection::stream_of;
use crate::system::{Waker, is_shortage, left_in_system};

/// Each connection has its own buffer.
const BUFFER: usize = 32 * 1024;
/// This many connections can arrive before a thread has handled the first of them.
const ACCEPTS: usize = 16;

/// The key of an operation. Each connection comes with a clone of the listener.
#[derive(Clone)]
pub(crate) enum Key {
    Listener(Arc<TcpListener>),
    Client(Arc<Client>),
}

pub(crate) struct Client {
    // Dropped first: once a peer sees the close, the connection is no longer counted.
    member: Member,
    stream: TcpStream,
}

impl Source for Key {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Listener(listener) => listener.as_source(),
            Self::Client(client) => client.stream.as_source(),
        }
    }
}

impl Client {
    /// Number of bytes that the peer would not get back if it were closed now.
    fn cut_off(&self) -> u64 {
        self.member.pending() + left_in_system(&self.stream)
    }
}

/// What the threads share.
pub(crate) struct Server<'p> {
    port: &'p Port<Key>,
    state: State,
    entrance: Mutex<Entrance>,
}

/// The listener.
enum Entrance {
    Open(Id),
    /// It has ended, but a thread may be handling a connection that is not listed among the clients
    /// yet. Then it has a clone of the key that came with it.
    Closed(Weak<TcpListener>),
}

impl Service for Server<'_> {
    fn state(&self) -> &State {
        &self.state
    }

    fn stats(&self) -> Stats {
        self.port.stats()
    }

    fn serve(&self) -> Result<u64> {
        let _ending = Ending(self.port, &self.state);
        let mut batch = Batch::new();
        let mut taken = 0;
        loop {
            let packets = match self.port.wait(&mut batch, None) {
                Ok(packets) => packets,
                Err(error) if error.kind() == PortErrorKind::Closed => return Ok(taken),
                Err(error) => return Err(error),
            };
            let _at_work = self.state.gauge.enter();
            for packet in packets {
                taken += 1;
                match packet {
                    Packet::SharedCompleted(accept) => {
                        let listener = accept.id();
                        // Kept until the connection is listed among the clients.
                        let (_key, outcome) = accept.into_parts();
                        match outcome {
                            Outcome::Accepted(Ok((socket, _))) => {
                                match self.port.start(listener, Operation::accept()) {
                                    Err(refused) if !is_end(refused.kind()) => {
                                        return Err(refused.into());
                                    }
                                    _ => self.welcome(stream_of(socket))?,
                                }
                            }
                            // The port does not report errors of a single connection, or temporary
                            // ones.
                            outcome => match outcome.error() {
                                Some(error) if error.kind() != PortErrorKind::Cancelled => {
                                    return Err(error);
                                }
                                _ => {}
                            },
                        }
                    }
                    Packet::Completed(done) => {
                        let (token, outcome) = done.into_parts();
                        self.go_on(token, outcome)?;
                    }
                    Packet::Removed(_, Key::Listener(listener)) => {
                        self.close_entrance(&listener)?
                    }
                    _ => {}
                }
            }
        }
    }

    fn close(&self) {
        self.port.close();
    }

    fn look(&self) -> Result<()> {
        let entrance = match &*self.entrance() {
            Entrance::Open(id) => Some(*id),
            Entrance::Closed(listener) if listener.strong_count() > 0 => return Ok(()),
            Entrance::Closed(_) => None,
        };
        if let Some(id) = entrance {
            return self.remove(id);
        }
        let clients = &self.state.clients;
        if clients.count() == 0 {
            return self.port.shutdown();
        }
        // Their receives are cancelled, and their handlers check whether anything has arrived
        // meanwhile.
        clients.quiet(QUIET_LOOKS).into_iter().try_for_each(|id| self.remove(id))
    }

    fn cut_off(&self) -> Result<()> {
        self.state.begin_to_cut();
        self.port.shutdown()
    }
}

impl<'p> Server<'p> {
    /// Starts accepting.
    pub(crate) fn new(port: &'p Port<Key>, listener: TcpListener, waker: Waker) -> Result<Self> {
        let listener = port.associate_shared(Key::Listener(Arc::new(listener)))?;
        for _ in 0..ACCEPTS {
            port.start(listener, Operation::accept())?;
        }
        let entrance = Mutex::new(Entrance::Open(listener.id()));
        Ok(Self { port, state: State::new(waker), entrance })
    }

    /// Registrations that have ended need not be removed.
    fn remove(&self, id: Id) -> Result<()> {
        match self.port.remove(id) {
            Err(error) if !is_end(error.kind()) => Err(error),
            _ => Ok(()),
        }
    }

    fn entrance(&self) -> MutexGuard<'_, Entrance> {
        self.entrance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last packet of the listener: its accepts have ended.
    fn close_entrance(&self, listener: &Arc<TcpListener>) -> Result<()> {
        // Connections in its queue are already established.
        while self.state.phase() == ENDING {
            match listener.accept() {
                Ok((stream, _)) => self.welcome(stream)?,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if is_shortage(&error) => {
                    self.state.complain_if_one_waits(listener, &error);
                    break;
                }
                // An interruption, or an error of the connection that it took off the queue.
                Err(_) => {}
            }
        }
        *self.entrance() = Entrance::Closed(Arc::downgrade(listener));
        Ok(())
    }

    /// A new connection.
    fn welcome(&self, stream: TcpStream) -> Result<()> {
        // Sends each echo immediately, even if the last segment has not been acknowledged yet. A
        // connection that is already broken is ignored.
        if stream.set_nodelay(true).is_err() {
            return Ok(());
        }
        self.state.has_accepted();
        let client = Client { member: Member::new(&self.state.clients), stream };
        self.admit(Key::Client(Arc::new(client)), Operation::recv(Vec::with_capacity(BUFFER)))
    }

    /// Associates a connection, and starts its operation.
    fn admit(&self, key: Key, operation: Operation) -> Result<()> {
        match self.port.associate(key) {
            Ok(token) => {
                if let Key::Client(client) = token.key() {
                    client.member.registered(token.id());
                }
                self.start(token, operation)
            }
            Err(refused) => {
                let kind = refused.kind();
                let (error, key) = refused.into_parts();
                if kind == PortErrorKind::Closed {
                    self.count_cut(&key);
                } else {
                    // The connection was dropped, and so closed.
                    self.state.complain(&io::Error::from(error));
                }
                Ok(())
            }
        }
    }

    /// Continues after an operation of a connection.
    fn go_on(&self, token: Ready<'_, Key>, outcome: Outcome) -> Result<()> {
        let Key::Client(client) = token.key() else { return Ok(()) };
        let state = &self.state;
        let cancelled = |error: completion_port::Error| error.kind() == PortErrorKind::Cancelled;
        let next = match outcome {
            Outcome::Received(Ok(received @ 1..), bytes) => {
                state.traffic.add_received(received);
                client.member.had_a_turn(received);
                return match token.start_now(Operation::send_all(bytes)) {
                    Ok(Started::Completed((token, outcome))) => self.go_on(token, outcome),
                    Ok(Started::InFlight(_)) => Ok(()),
                    Err(refused) => self.settle(refused),
                };
            }
            Outcome::Sent(Ok(sent), buffer) => {
                state.traffic.add_sent(sent);
                client.member.had_a_turn(0);
                Operation::recv(buffer)
            }
            // It was quiet, or all are being cut off.
            Outcome::Received(Err(error), buffer) if cancelled(error) => {
                if state.phase() == CUTTING {
                    self.count_cut(token.key());
                    return Ok(());
                }
                // Data that the peer's system has not accepted yet would be lost if the peer sent
                // something.
                if client.cut_off() == 0 {
                    return Ok(());
                }
                return self.admit(token.into_key(), Operation::recv(buffer));
            }
            Outcome::Sent(Err(error), mut buffer) => {
                let sent = error.transferred();
                state.traffic.add_sent(sent);
                client.member.had_a_turn(buffer.len() - sent);
                if !cancelled(error) {
                    return Ok(());
                }
                if state.phase() == CUTTING {
                    self.count_cut(token.key());
                    return Ok(());
                }
                // It was quiet until just now.
                buffer.drain(..sent);
                return self.admit(token.into_key(), Operation::send_all(buffer));
            }
            // The end of the stream, or a reset: the token is dropped, which closes the connection.
            _ => return Ok(()),
        };
        self.start(token, next)
    }

    fn start(&self, token: Ready<'_, Key>, operation: Operation) -> Result<()> {
        token.start(operation).map(drop).or_else(|refused| self.settle(refused))
    }

    /// Handles an operation that cannot be started because the server is ending, or because its
    /// connection was quiet until just now.
    fn settle(&self, refused: completion_port::Refused<(Key, Operation)>) -> Result<()> {
        let kind = refused.kind();
        match refused.into_parts() {
            (_, (key, operation)) if is_end(kind) => {
                if self.state.phase() == ENDING && kind != PortErrorKind::Closed {
                    return self.admit(key, operation);
                }
                self.count_cut(&key);
                Ok(())
            }
            (error, _) => Err(error),
        }
    }

    fn count_cut(&self, key: &Key) {
        if let Key::Client(client) = key {
            self.state.count_cut(client.cut_off());
        }
    }
}
