//! The connections of a server, and which of them are quiet while it ends.

use std::collections::HashMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use completion_port::{BorrowedSource, Id, Interest, Source};

use crate::connection::{Connection, Next, Traffic};
use crate::system::left_in_system;

/// All open connections.
#[derive(Debug, Default)]
pub(crate) struct Clients {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Entry>>,
}

#[derive(Debug)]
struct Entry {
    /// None until it is registered.
    id: Option<Id>,
    account: Arc<Account>,
    /// The turns at the last check, and the number of checks without a new one.
    turns: u64,
    quiet: u32,
}

/// The visible state of a connection that another thread is handling.
#[derive(Debug, Default)]
struct Account {
    turns: AtomicU64,
    pending: AtomicU64,
}

/// An entry among the connections of a server, until it is dropped.
#[derive(Debug)]
pub(crate) struct Member {
    number: u64,
    account: Arc<Account>,
    all: Arc<Clients>,
}

/// A connection that is listed among those of the server until it is dropped.
#[derive(Debug)]
pub(crate) struct Client {
    // Dropped first: once a peer sees the close, the connection is no longer counted.
    member: Member,
    connection: Connection,
}

impl Clients {
    pub(crate) fn count(&self) -> usize {
        self.lock().len()
    }

    /// Notes the ID of a client's registration.
    pub(crate) fn registered(&self, number: u64, id: Id) {
        // It may be gone already.
        if let Some(entry) = self.lock().get_mut(&number) {
            entry.id = Some(id);
        }
    }

    /// Connections that had no turn for this many checks, including this one, and have no data to
    /// send.
    pub(crate) fn quiet(&self, looks: u32) -> Vec<Id> {
        let mut quiet = Vec::new();
        for entry in self.lock().values_mut() {
            let turns = entry.account.turns.load(Relaxed);
            if turns != entry.turns || entry.account.pending.load(Relaxed) > 0 {
                (entry.turns, entry.quiet) = (turns, 0);
                continue;
            }
            entry.quiet += 1;
            if entry.quiet >= looks {
                entry.quiet = 0;
                quiet.extend(entry.id);
            }
        }
        quiet
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<u64, Entry>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Member {
    pub(crate) fn new(all: &Arc<Clients>) -> Self {
        let number = all.next.fetch_add(1, Relaxed);
        let account = Arc::<Account>::default();
        let entry = Entry { id: None, account: Arc::clone(&account), turns: 0, quiet: 0 };
        all.lock().insert(number, entry);
        Self { number, account, all: Arc::clone(all) }
    }

    /// Notes the ID of the connection's registration.
    pub(crate) fn registered(&self, id: Id) {
        self.all.registered(self.number, id);
    }

    /// Notes a turn of the connection, with this many bytes still to send.
    pub(crate) fn had_a_turn(&self, pending: usize) {
        self.account.pending.store(pending as u64, Relaxed);
        self.account.turns.fetch_add(1, Relaxed);
    }

    /// Number of bytes that were still to be sent.
    pub(crate) fn pending(&self) -> u64 {
        self.account.pending.load(Relaxed)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.all.lock().remove(&self.number);
    }
}

impl Client {
    pub(crate) fn new(connection: Connection, all: &Arc<Clients>) -> Self {
        Self { member: Member::new(all), connection }
    }

    pub(crate) fn number(&self) -> u64 {
        self.member.number
    }

    /// The connection's turn. A broken connection counts as finished.
    pub(crate) fn turn(&mut self, buffer: &mut [u8], traffic: &Traffic) -> Next {
        let next = self.connection.turn(buffer, traffic).unwrap_or(Next::End);
        self.member.had_a_turn(self.connection.pending());
        next
    }

    /// The last turn, unless there is something to do after all. Then it returns the event to wait
    /// for.
    pub(crate) fn last_turn(&mut self, buffer: &mut [u8], traffic: &Traffic) -> Option<Interest> {
        let received = self.connection.received();
        match self.turn(buffer, traffic) {
            Next::End => None,
            Next::Write => Some(Interest::OUT),
            // Data that the peer's system has not accepted yet would be lost if the peer sent
            // something.
            Next::Read { drained: true }
                if self.connection.received() == received && self.cut_off() == 0 =>
            {
                None
            }
            Next::Read { .. } => Some(Interest::IN),
        }
    }

    /// Number of bytes that the peer would not get back if the connection were closed now: received
    /// but not read, read but not sent, or sent but not accepted by the peer's system.
    pub(crate) fn cut_off(&self) -> u64 {
        self.connection.pending() as u64 + left_in_system(self.connection.stream())
    }
}

impl Source for Client {
    fn as_source(&self) -> BorrowedSource<'_> {
        self.connection.as_source()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::thread;
    use std::time::{Duration, Instant};

    use completion_port::{OneShot, Port, Registration};

    use super::*;

    #[test]
    fn what_was_received_and_not_sent_back_would_be_cut_off() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let all = Arc::<Clients>::default();
        let connection = Connection::new(listener.accept().unwrap().0).unwrap();
        let mut client = Client::new(connection, &all);
        assert_eq!((all.count(), client.cut_off()), (1, 0));
        peer.write_all(&[7; 1000]).unwrap();
        let until = |client: &Client, bytes| {
            let begun = Instant::now();
            while client.cut_off() != bytes {
                assert!(begun.elapsed() < Duration::from_secs(300), "{}", client.cut_off());
                thread::yield_now();
            }
        };
        until(&client, 1000);
        let next = client.turn(&mut [0; 4096], &Traffic::default());
        assert_eq!(next, Next::Read { drained: true });
        peer.read_exact(&mut [0; 1000]).unwrap();
        until(&client, 0);
        drop(client);
        assert_eq!(all.count(), 0);
    }

    #[test]
    fn a_client_is_quiet_after_so_many_looks_without_a_turn() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = Port::<()>::new().unwrap();
        let other = Registration::new(&listener, (), Interest::IN, OneShot::Level);
        let id = port.register(other).unwrap();
        let _peer = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let all = Arc::<Clients>::default();
        let mut client = Client::new(Connection::new(listener.accept().unwrap().0).unwrap(), &all);
        all.registered(client.number(), id);
        assert_eq!(all.quiet(2), []);
        client.turn(&mut [0; 10], &Traffic::default());
        assert_eq!(all.quiet(2), []);
        assert_eq!(all.quiet(2), []);
        assert_eq!(all.quiet(2), [id]);
        assert_eq!(all.quiet(2), []);
        client.member.had_a_turn(1);
        assert_eq!(all.quiet(1), []);
    }
}
