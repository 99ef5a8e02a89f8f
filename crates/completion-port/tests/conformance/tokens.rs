//! Rule 47: a token that keeps its port alive.

use std::sync::{Arc, Mutex, Weak};
use std::thread;

use completion_port::{
    Batch, BorrowedSource, Call, ErrorKind, Events, Id, Interest, OneShot, OwnedReady, Persistent,
    Port, Registration, SharedSource, Source,
};
use testkit::{Socket, System, on_every_system};

use crate::kit::ledger::{Entry, Ledger};
use crate::kit::packets::{assert_closed, notified, ready, removed};

fn port_on<K>(on: &System) -> Arc<Port<K>> {
    Arc::new(on.port(1))
}

/// Returns the token of the first report, after writing to `theirs`.
#[track_caller]
fn token_of<K>(port: &Arc<Port<K>>, on: &System, theirs: &Socket) -> OwnedReady<K> {
    theirs.write(b"x").unwrap();
    let Ok(token) = ready(port, on).with_port(port) else { panic!("it is the token's port") };
    token
}

fn owned<K: Source>(key: K) -> Registration<'static, K> {
    Registration::owned(key, Interest::IN, OneShot::Level)
}

/// Checks that nothing is queued and nothing comes.
#[track_caller]
fn assert_quiet<K>(port: &Port<K>, on: &System) {
    assert_eq!(port.wait(&mut Batch::new(), on.quiet()).unwrap().count(), 0);
}

/// A key that records, when it is dropped, how many owners its port has.
struct Watching {
    socket: Socket,
    port: Weak<Port<Watching>>,
    owners: Arc<Mutex<Vec<usize>>>,
}

impl Source for Watching {
    fn as_source(&self) -> BorrowedSource<'_> {
        self.socket.as_source()
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.owners.lock().unwrap().push(self.port.strong_count());
    }
}

/// Uses up a token. Returns the key if the token does.
type End = fn(OwnedReady<(Socket, Entry)>) -> Option<(Socket, Entry)>;

const ENDS: [(&str, End); 5] = [
    ("rearmed", |token| {
        token.rearm().unwrap();
        None
    }),
    ("rearmed otherwise", |token| {
        token.rearm_as(Interest::OUT, OneShot::Edge).unwrap();
        None
    }),
    ("parked", |token| {
        token.park().unwrap();
        None
    }),
    ("dropped", |token| {
        drop(token);
        None
    }),
    ("taken apart", |token| Some(token.into_key())),
];

on_every_system! {
    /// Rule 47.
    fn a_token_with_its_port_goes_to_a_thread_that_outlives_the_borrow(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = port.register(owned(ours)).unwrap();
        for _ in 0..3 {
            let token = token_of(&port, system, &theirs);
            let handler = thread::spawn(move || {
                let mut token = token;
                let seen = (token.id(), token.events(), token.key_mut().drain());
                token.read_drained();
                token.rearm().map(|()| seen).map_err(|refused| refused.kind())
            });
            assert_eq!(handler.join().unwrap(), Ok((id, Events::IN, 1)));
            assert_quiet(&port, system);
        }
        assert_eq!(Arc::strong_count(&port), 1, "a token that is used up has let go");
    }

    /// Rule 47.
    fn a_token_comes_back_from_a_port_that_is_not_its_own(system: &System) {
        let (port, other) = (port_on(system), port_on::<Socket>(system));
        let other_messages: Arc<Port<Socket, String>> = Arc::new(system.port(1));
        let (ours, theirs) = system.tcp_pair();
        let id = port.register(owned(ours)).unwrap();
        theirs.write(b"x").unwrap();
        let token = ready(&port, system);
        let Err(token) = token.with_port(&other) else { panic!("it is another port") };
        let Err(token) = token.with_port(&other_messages) else { panic!("it is another port") };
        assert_eq!((token.id(), token.events()), (id, Events::IN));
        assert_eq!((Arc::strong_count(&other), Arc::strong_count(&port)), (1, 1));
        let Ok(token) = token.with_port(&port) else { panic!("it is the token's port") };
        assert!(Arc::ptr_eq(token.port(), &port));
        token.key().drain();
        token.rearm().unwrap();
        theirs.write(b"x").unwrap();
        assert_eq!(ready(&port, system).id(), id);
    }

    /// Rule 47.
    fn a_token_ends_its_registration_before_it_lets_go_of_its_port(system: &System) {
        let port = port_on(system);
        let owners = Arc::default();
        let register = |socket| {
            let port_of_key = Arc::downgrade(&port);
            let key = Watching { socket, port: port_of_key, owners: Arc::clone(&owners) };
            port.register(owned(key)).unwrap()
        };
        let ((ours, theirs), (idle, idle_peer)) = (system.tcp_pair(), system.tcp_pair());
        register(ours);
        let token = token_of(&port, system, &theirs);
        token.key().socket.drain();
        register(idle);
        drop(port);
        assert_eq!(token.port().stats().registered, 2, "the port is there");
        assert!(owners.lock().unwrap().is_empty());
        drop(token);
        // The token's own key is dropped while the port exists, and then the port drops the other
        // key.
        assert_eq!(*owners.lock().unwrap(), [1, 0]);
        for peer in [theirs, idle_peer] {
            assert!(peer.read_within(system.soon(), 1).is_empty(), "the socket is closed");
        }
    }

    /// Rules 29 and 47.
    fn the_last_token_of_a_port_loses_no_key_however_it_is_used_up(system: &System) {
        for (how, end) in ENDS {
            for is_last in [false, true] {
                let ledger = Ledger::default();
                let port = port_on(system);
                let (ours, theirs) = system.tcp_pair();
                let new = |key| Registration::new(&ours, key, Interest::IN, OneShot::Level);
                // The key has a separate socket in addition to the registered one.
                port.register(new((system.event(), ledger.entry()))).unwrap();
                let token = token_of(&port, system, &theirs);
                let last = if is_last { drop(port); None } else { Some(port) };
                let key = end(token);
                if let Some(port) = &last {
                    let is_registered = !matches!(how, "dropped" | "taken apart");
                    assert_eq!(port.stats().registered, usize::from(is_registered), "{how}");
                    assert_eq!(Arc::strong_count(port), 1, "{how}");
                }
                drop(last);
                assert_eq!(ledger.alive(), usize::from(key.is_some()), "{how}, {is_last}");
                drop(key);
                assert_eq!(ledger.alive(), 0, "{how}, {is_last}");
            }
        }
    }

    /// Rule 47.
    fn what_refuses_a_token_refuses_one_that_keeps_its_port(system: &System) {
        let port = port_on(system);
        let ((ours, theirs), (second, second_peer)) = (system.tcp_pair(), system.tcp_pair());
        port.register(owned(ours)).unwrap();
        let mut token = token_of(&port, system, &theirs);
        // The key owns another descriptor than the registered one.
        *token.key_mut() = second;
        let (error, second) = token.rearm().unwrap_err().into_parts();
        assert_eq!((error.call(), error.kind()), (Call::Rearm, ErrorKind::BadDescriptor));
        port.register(owned(second)).unwrap();
        let token = token_of(&port, system, &second_peer);
        port.close();
        let (error, key) = token.park().unwrap_err().into_parts();
        assert_eq!((error.call(), error.kind()), (Call::Park, ErrorKind::Closed));
        assert_eq!(key.drain(), 1);
        assert_closed(&port, system);
    }

    /// Rules 29 and 47.
    fn a_removal_waits_for_a_token_that_keeps_its_port(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id: Id = port.register(owned(ours)).unwrap();
        let token = token_of(&port, system, &theirs);
        port.shutdown().unwrap();
        assert_eq!(port.wait(&mut Batch::new(), system.quiet()).unwrap().count(), 0);
        token.rearm().unwrap();
        assert_eq!(removed(&port, system).0, id);
        assert_closed(&port, system);
    }

    /// Rules 9 and 47.
    fn a_token_that_keeps_its_port_may_be_rearmed_persistently(system: &System) {
        let port = port_on(system);
        let (ours, theirs) = system.tcp_pair();
        let id = port.register(owned(SharedSource::new(ours))).unwrap();
        let token = token_of(&port, system, &theirs);
        token.rearm_as(Interest::IN, Persistent::Edge).unwrap();
        let packet = notified(&port, system);
        assert_eq!((packet.id(), packet.key().drain()), (id, 1));
        drop(port.remove_and_wait(id, None).unwrap());
        assert!(SharedSource::into_inner(packet.into_key()).is_some());
    }
}
