//! Rules 29 to 32: removal, closing, and who owns a key when.

use std::collections::BTreeSet;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, Changes, Error, ErrorKind, Events, Id, Interest, OneShot, Packet, Persistent, Port,
    Ready, Refused, Registration, sim,
};
use testkit::{Socket, System, exit, fork, in_a_process_of_its_own, on_every_system};

use crate::delivery::{PERSISTENT_LEVEL, TRIGGERS, Trigger};
use crate::posting::kind;
use crate::threads::{End, Gate, eventually, hear, make_packets_long, settle};

/// Keeps account of values that must be dropped once, and not be forgotten.
#[derive(Clone, Default)]
pub(crate) struct Ledger(Arc<Book>);

#[derive(Default)]
struct Book {
    last: AtomicU64,
    alive: Mutex<BTreeSet<u64>>,
    /// Entries that were dropped though they were not alive.
    faults: AtomicUsize,
    /// The next drop, or the next clone, panics.
    drop_panics: AtomicBool,
    clone_panics: AtomicBool,
}

impl Ledger {
    /// A new value, alive until it is dropped.
    pub(crate) fn entry(&self) -> Entry {
        let number = self.0.last.fetch_add(1, SeqCst);
        self.0.alive.lock().unwrap().insert(number);
        Entry { number, ledger: self.clone() }
    }

    /// How many values are alive.
    #[track_caller]
    pub(crate) fn alive(&self) -> usize {
        assert_eq!(self.0.faults.load(SeqCst), 0, "a value was dropped twice");
        self.0.alive.lock().unwrap().len()
    }

    pub(crate) fn panic_at_next_drop(&self) {
        self.0.drop_panics.store(true, SeqCst);
    }

    fn panic_at_next_clone(&self) {
        self.0.clone_panics.store(true, SeqCst);
    }
}

/// A value that its ledger knows. Any two are equal only if they are the same.
pub(crate) struct Entry {
    number: u64,
    ledger: Ledger,
}

impl Clone for Entry {
    fn clone(&self) -> Self {
        if self.ledger.0.clone_panics.swap(false, SeqCst) {
            resume_unwind(Box::new("clone"));
        }
        self.ledger.entry()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if !self.ledger.0.alive.lock().unwrap().remove(&self.number) {
            self.ledger.0.faults.fetch_add(1, SeqCst);
        }
        if self.ledger.0.drop_panics.swap(false, SeqCst) {
            resume_unwind(Box::new("drop"));
        }
    }
}

/// A key that owns its socket, and is known to a ledger.
struct Owner {
    socket: Socket,
    _entry: Entry,
}

impl AsFd for Owner {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// The packet of a wait that must bring just one.
#[track_caller]
fn the_one<'p, K, M>(port: &'p Port<K, M>, on: &System) -> Packet<'p, K, M> {
    let mut batch = Batch::new();
    let mut packets = port.wait(&mut batch, on.soon()).unwrap();
    let packet = packets.next().expect("no packet came");
    if let Some(more) = packets.next() {
        panic!("{} and then {}", kind(&packet), kind(&more));
    }
    packet
}

#[track_caller]
fn the_token<'p, K>(port: &'p Port<K, usize>, on: &System) -> Ready<'p, K> {
    match the_one(port, on) {
        Packet::Ready(token) => token,
        other => panic!("no one-shot packet, but {}", kind(&other)),
    }
}

#[track_caller]
fn the_removed<K>(port: &Port<K, usize>, on: &System) -> (Id, K) {
    match the_one(port, on) {
        Packet::Removed(id, key) => (id, key),
        other => panic!("no removal, but {}", kind(&other)),
    }
}

/// Nothing more comes.
#[track_caller]
fn assert_quiet<K, M>(port: &Port<K, M>, on: &System) {
    let mut batch = Batch::new();
    if let Some(packet) = port.wait(&mut batch, on.quiet()).unwrap().next() {
        panic!("nothing should come, but {} did", kind(&packet));
    }
}

#[track_caller]
fn assert_closed<K, M>(port: &Port<K, M>, on: &System) {
    match port.wait(&mut Batch::new(), on.soon()).map(Iterator::count) {
        Err(error) => assert_eq!(error.kind(), ErrorKind::Closed),
        Ok(count) => panic!("{count} packets, and not closed"),
    }
}

#[track_caller]
fn refused<T>(outcome: Result<T, Error>) -> ErrorKind {
    outcome.map(drop).expect_err("it should be refused").kind()
}

/// The reason, and the key that came back with it.
#[track_caller]
fn given_back<T, K>(outcome: Result<T, Refused<K>>) -> (ErrorKind, K) {
    let (error, key) = outcome.map(drop).expect_err("it should be refused").into_parts();
    (error.kind(), key)
}

fn one_shot<'s, K>(socket: &'s Socket, key: K) -> Registration<'s, K> {
    Registration::new(socket, key, Interest::IN, OneShot::Level)
}

fn repeated<'s, K: Clone>(socket: &'s Socket, key: K) -> Registration<'s, K> {
    Registration::new(socket, key, Interest::IN, Persistent::Level)
}

/// Registers `socket` and makes it ready, so that its packet stands in the queue, taken by nobody:
/// the one of another socket, with the key `other`, is taken first.
#[track_caller]
fn queue<K>(
    port: &Port<K, usize>,
    on: &System,
    socket: &Socket,
    make_ready: impl FnOnce(),
    key: K,
    other: K,
) -> Id {
    let (first, first_peer) = on.unix_pair_beside(socket);
    let before = port.register(one_shot(&first, other)).unwrap();
    let id = port.register(one_shot(socket, key)).unwrap();
    first_peer.write(b"x").unwrap();
    make_ready();
    let mut batch = Batch::with_capacity(1);
    let packet = port.wait(&mut batch, on.soon()).unwrap().next();
    match packet {
        Some(Packet::Ready(token)) if token.id() == before => drop(token.into_key()),
        other => panic!("the first packet is wrong: {}", other.is_some()),
    }
    assert_eq!(port.stats().queued, 1);
    id
}

/// Runs a scenario in which a descriptor's number must be given out again at once, until no other
/// thread of the process was quicker.
fn until_undisturbed(mut scenario: impl FnMut() -> Option<()>) {
    for _ in 0..1000 {
        if scenario().is_some() {
            return;
        }
    }
    panic!("somebody else always took the number");
}

/// Held by a test that opens hundreds of descriptors at once, or that closes one whose number is to stay
/// unused.
pub(crate) fn with_many_descriptors() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pair whose numbers are beyond those that other threads of the process are given, so that they
/// stay unused once they are closed. As long as the third value is kept: the next such pair might get the
/// same numbers.
fn pair_out_of_the_way(on: &System) -> (Socket, Socket, MutexGuard<'static, ()>) {
    let alone = with_many_descriptors();
    let _below: Vec<_> = (0..200).map(|_| on.event()).collect();
    let (ours, theirs) = on.unix_pair();
    (ours, theirs, alone)
}

/// Closes `old` and opens a counter under its number.
fn reopen(on: &System, old: Socket) -> Option<Socket> {
    let number = old.as_raw_fd();
    drop(old);
    let new = on.event();
    (new.as_raw_fd() == number).then_some(new)
}

on_every_system! {
    /// Rule 29.
    fn removal_gives_the_key_back_with_the_last_packet(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let key = ledger.entry();
        let number = key.number;
        let id = port.register(one_shot(&ours, key)).unwrap();
        port.remove(id).unwrap();
        theirs.write(b"x").unwrap();
        let (removed, key) = the_removed(&port, system);
        assert_eq!((removed, key.number), (id, number));
        assert_eq!(ledger.alive(), 1);
        theirs.write(b"x").unwrap();
        assert_quiet(&port, system);
        assert_eq!(port.stats().packets.removed, 1);
        assert_eq!(port.stats().registered, 0);
        drop(key);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: one that is enabled, disabled, a spent one-shot, or persistent.
    fn removal_works_in_every_state(system: &System) {
        let port = system.port::<&str, usize>(1);
        let sockets: Vec<_> = (0..6).map(|_| system.unix_pair()).collect();
        let register = |place: usize, key| port.register(one_shot(&sockets[place].0, key)).unwrap();
        let enabled = register(0, "enabled");
        let disabled = register(1, "disabled");
        port.disable(disabled).unwrap();
        sockets[1].1.write(b"x").unwrap();
        let nothing = Registration::new(&sockets[2].0, "nothing", Interest::NONE, OneShot::Level);
        let nothing = port.register(nothing).unwrap();
        let persistent = port.register(repeated(&sockets[3].0, "persistent")).unwrap();
        let edge =
            Registration::new(&sockets[4].0, "edge", Interest::ALL, Persistent::Edge);
        let edge = port.register(edge).unwrap();
        let Packet::Notified(notified) = the_one(&port, system) else { panic!() };
        assert_eq!((notified.id(), notified.events()), (edge, Events::OUT));
        let spent = register(5, "spent");
        sockets[5].1.write(b"x").unwrap();
        assert_eq!(the_token(&port, system).park().unwrap(), spent);

        let all = [enabled, disabled, nothing, persistent, edge, spent];
        for id in all {
            port.remove(id).unwrap();
        }
        let mut batch = Batch::new();
        let removed: Vec<_> = port
            .wait(&mut batch, system.soon())
            .unwrap()
            .map(|packet| match packet {
                Packet::Removed(id, key) => (id, key),
                other => panic!("{}", kind(&other)),
            })
            .collect();
        let keys = ["enabled", "disabled", "nothing", "persistent", "edge", "spent"];
        assert!(removed.into_iter().eq(all.into_iter().zip(keys)));
        for (_, theirs) in &sockets {
            theirs.write(b"x").unwrap();
        }
        assert_quiet(&port, system);
        assert_eq!(port.stats().registered, 0);
    }

    /// Rule 29: nothing of a registration is dequeued after its removal, and what is queued becomes
    /// the removal.
    fn removal_of_a_queued_registration_replaces_its_packet(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let write = || assert_eq!(theirs.write(b"x").unwrap(), 1);
        let id = queue(&port, system, &ours, write, "key", "other");
        port.remove(id).unwrap();
        assert_eq!(the_removed(&port, system), (id, "key"));
        assert_quiet(&port, system);
    }

    /// Rule 29: whatever several threads do with clones of the key meanwhile.
    fn removal_is_the_last_packet_of_a_persistent_key(system: &System) {
        system.several_threads_wait();
        let ledger = Ledger::default();
        let port = system.port::<Entry, ()>(4);
        let (ours, theirs) = system.unix_pair();
        let (reported, late) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let over = Gate::default();
        let gone = AtomicBool::new(false);
        let id = port.register(repeated(&ours, ledger.entry())).unwrap();
        thread::scope(|scope| {
            let _end = End::of(&port, [&over]);
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut batch = Batch::with_capacity(2);
                    while let Ok(packets) = port.wait(&mut batch, None) {
                        for packet in packets {
                            match packet {
                                Packet::Notified(_) => {
                                    reported.fetch_add(1, SeqCst);
                                }
                                Packet::Removed(..) => gone.store(true, SeqCst),
                                other => panic!("{}", kind(&other)),
                            }
                        }
                    }
                });
            }
            // The byte is never read: packet after packet, to all of them.
            theirs.write(b"x").unwrap();
            eventually(system, "packets come", || reported.load(SeqCst) > 200);
            port.remove(id).unwrap();
            eventually(system, "the removal comes", || gone.load(SeqCst));
            settle(system, &port, 4);
            let before = reported.load(SeqCst);
            theirs.write(b"x").unwrap();
            settle(system, &port, 4);
            late.store(reported.load(SeqCst) - before, SeqCst);
        });
        assert_eq!(late.load(SeqCst), 0, "a packet came after the removal");
        assert_eq!(port.stats().packets.removed, 1);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: to remove again while the packet is on its way changes nothing; to enable then is
    /// refused.
    fn removing_twice_makes_one_packet(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, _theirs) = system.unix_pair();
        let id = port.register(one_shot(&ours, "key")).unwrap();
        port.remove(id).unwrap();
        port.remove(id).unwrap();
        assert_eq!(refused(port.rearm(id, Interest::IN, OneShot::Level)), ErrorKind::Removing);
        assert_eq!(refused(port.disable(id)), ErrorKind::Removing);
        assert_eq!(refused(port.remove_and_wait(id, system.soon())), ErrorKind::Removing);
        port.remove(id).unwrap();
        assert_eq!(the_removed(&port, system), (id, "key"));
        assert_quiet(&port, system);
    }

    /// Rule 29: once the last packet has been taken there is no such registration.
    fn removing_what_has_ended_is_refused_and_makes_no_packet(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let id = port.register(one_shot(&ours, "key")).unwrap();
        port.remove(id).unwrap();
        the_removed(&port, system);
        let gone = ErrorKind::NotRegistered;
        for _ in 0..2 {
            assert_eq!(refused(port.remove(id)), gone);
            assert_eq!(refused(port.remove_and_wait(id, system.soon())), gone);
            assert_eq!(refused(port.disable(id)), gone);
            assert_eq!(refused(port.rearm(id, Interest::IN, OneShot::Level)), gone);
            // Nor does the old name become that of the next registration, which gets its place.
            let again = port.register(one_shot(&ours, "again")).unwrap();
            assert_ne!(again, id);
            assert_eq!(refused(port.remove(id)), gone);
            theirs.write(b"x").unwrap();
            let token = the_token(&port, system);
            assert_eq!((token.id(), *token.key()), (again, "again"));
            ours.drain();
            assert_eq!(token.into_key(), "again");
        }
        assert_quiet(&port, system);
    }

    /// Rule 29: the number may be registered again before the old key has come back.
    fn a_descriptor_may_be_registered_again_before_its_removal_was_taken(system: &System) {
        let (here, there) = (system.port::<&str, usize>(1), system.port::<&str, usize>(1));
        let (ours, theirs) = system.unix_pair();
        let first = here.register(one_shot(&ours, "first")).unwrap();
        here.remove(first).unwrap();
        let second = there.register(one_shot(&ours, "second")).unwrap();
        there.remove(second).unwrap();
        let third = here.register(one_shot(&ours, "third")).unwrap();
        assert_ne!(first, third);
        assert_eq!(the_removed(&here, system), (first, "first"));
        assert_eq!(the_removed(&there, system), (second, "second"));
        theirs.write(b"x").unwrap();
        let token = the_token(&here, system);
        assert_eq!((token.id(), *token.key()), (third, "third"));
        assert_quiet(&here, system);
        assert_quiet(&there, system);
        drop(token);
    }

    /// Rule 29: while the key is out, removal takes effect when it comes back.
    fn removal_while_the_key_is_out_takes_effect_when_it_comes_back(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        for way in ["rearm", "rearm_as", "park", "process"] {
            let id = port.register(one_shot(&ours, way)).unwrap();
            theirs.write(b"x").unwrap();
            let token = the_token(&port, system);
            ours.drain();
            port.remove(id).unwrap();
            port.remove(id).unwrap();
            assert_quiet(&port, system);
            assert_eq!(*token.key(), way, "the handler still has it");
            match way {
                "rearm" => token.rearm().unwrap(),
                "rearm_as" => token.rearm_as(Interest::ALL, OneShot::Edge).unwrap(),
                "park" => assert_eq!(token.park().unwrap(), id),
                _ => {
                    let mut changes = Changes::new();
                    changes.rearm(token);
                    let mut none = Batch::with_capacity(0);
                    let packets = port.process(&mut changes, &mut none, Duration::ZERO).unwrap();
                    assert_eq!(packets.count(), 0);
                    assert_eq!(changes.results(), [Ok(id)]);
                }
            }
            assert_eq!(the_removed(&port, system), (id, way));
            assert_quiet(&port, system);
        }
    }

    /// Rule 29: if it does not come back there is no packet.
    fn removal_of_a_key_that_the_handler_keeps_or_drops_makes_no_packet(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        theirs.write(b"x").unwrap();
        for keep in [false, true] {
            let id = port.register(one_shot(&ours, ledger.entry())).unwrap();
            let token = the_token(&port, system);
            port.remove(id).unwrap();
            if keep {
                let key = token.into_key();
                assert_eq!(ledger.alive(), 1);
                drop(key);
            } else {
                drop(token);
            }
            assert_eq!(ledger.alive(), 0);
            assert_quiet(&port, system);
            assert_eq!(refused(port.remove(id)), ErrorKind::NotRegistered);
        }
        assert_eq!(port.stats().registered, 0);
    }

    /// Rule 29: a token that is dropped or gives its key away ends the registration.
    fn a_token_that_is_not_armed_again_ends_the_registration(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        theirs.write(b"x").unwrap();
        let dropped = port.register(one_shot(&ours, ledger.entry())).unwrap();
        drop(the_token(&port, system));
        assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
        assert_eq!(refused(port.remove(dropped)), ErrorKind::NotRegistered);
        let kept = port.register(one_shot(&ours, ledger.entry())).unwrap();
        let key = the_token(&port, system).into_key();
        assert_eq!((ledger.alive(), port.stats().registered), (1, 0));
        assert_eq!(refused(port.remove(kept)), ErrorKind::NotRegistered);
        assert_quiet(&port, system);
        drop(key);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: an owned socket is closed with its key, and not before.
    fn an_owned_socket_is_closed_with_its_key(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Owner, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let owner = Owner { socket: ours, _entry: ledger.entry() };
        let owned = Registration::owned(owner, Interest::IN, OneShot::Level);
        port.register(owned).unwrap();
        theirs.write(b"x").unwrap();
        let token = the_token(&port, system);
        assert_eq!(token.key().socket.drain(), 1);
        assert_eq!(system.open_sockets(), 2);
        drop(token);
        assert_eq!((system.open_sockets(), ledger.alive()), (1, 0));
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "the connection is not closed");
        assert_quiet(&port, system);
    }

    /// Rule 29: a packet of a one-shot registration moves the key, the same one, out and in.
    fn a_one_shot_key_is_moved_and_never_copied(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<(Entry, usize), usize>(1);
        let (ours, theirs) = system.unix_pair();
        let id = port.register(one_shot(&ours, (ledger.entry(), 0))).unwrap();
        for round in 0..5 {
            theirs.write(b"x").unwrap();
            let mut token = the_token(&port, system);
            ours.drain();
            assert_eq!((token.id(), token.key().0.number, token.key().1), (id, 0, round));
            token.key_mut().1 += 1;
            token.rearm().unwrap();
            assert_eq!(ledger.alive(), 1);
        }
        let key = port.remove_and_wait(id, system.soon()).unwrap();
        assert_eq!((key.0.number, key.1), (0, 5));
        assert_quiet(&port, system);
        drop(key);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: a packet of a persistent one has a clone, which is the handler's.
    fn a_persistent_key_is_cloned_for_each_packet(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let id = port.register(repeated(&ours, ledger.entry())).unwrap();
        theirs.write(b"x").unwrap();
        let mut kept = Vec::new();
        for count in 1..=3 {
            match the_one(&port, system) {
                Packet::Notified(notified) => kept.push(notified.into_key()),
                other => panic!("{}", kind(&other)),
            }
            assert_eq!(ledger.alive(), 1 + count);
        }
        ours.drain();
        let key = port.remove_and_wait(id, system.soon()).unwrap();
        assert_eq!(key.number, 0, "the key given at registration comes back");
        assert_quiet(&port, system);
        drop((kept, key));
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: every refusal gives the key back, and leaves nothing behind.
    fn a_refused_registration_gives_its_key_back(system: &System) {
        let ledger = Ledger::default();
        let (here, there) = (system.port::<Entry, usize>(1), system.port::<Entry, usize>(1));
        let (ours, _theirs) = system.unix_pair();
        let file = system.regular_file();
        let id = here.register(one_shot(&ours, ledger.entry())).unwrap();
        for (port, socket, reason) in [
            (&here, &ours, ErrorKind::AlreadyRegistered),
            (&there, &ours, ErrorKind::AlreadyRegistered),
            (&here, &file, ErrorKind::NotPollable),
        ] {
            let key = ledger.entry();
            let number = key.number;
            let (why, key) = given_back(port.register(one_shot(socket, key)));
            assert_eq!((why, key.number), (reason, number));
            assert_eq!(ledger.alive(), 2);
        }
        // Nobody asked for it back: it is dropped with the error.
        drop(here.register(one_shot(&ours, ledger.entry())));
        assert_eq!(ledger.alive(), 1);
        // And in a batch of changes.
        let mut changes = Changes::new();
        changes.register(one_shot(&ours, ledger.entry()));
        changes.register(one_shot(&file, ledger.entry()));
        let mut batch = Batch::new();
        assert_eq!(here.process(&mut changes, &mut batch, Duration::ZERO).unwrap().count(), 0);
        assert_eq!(ledger.alive(), 3);
        let first = changes.refused().next().unwrap();
        assert!(first.into_parts().1.is_some());
        assert_eq!(ledger.alive(), 1, "what is not taken out is dropped");
        // Changes that were never applied have their keys.
        changes.register(one_shot(&ours, ledger.entry()));
        drop(changes);
        drop(one_shot(&ours, ledger.entry()));
        assert_eq!(one_shot(&ours, ledger.entry()).into_key().number, 9);
        assert_eq!((ledger.alive(), here.stats().registered), (1, 1));
        drop(here.remove_and_wait(id, system.soon()).unwrap());
        assert_eq!((ledger.alive(), here.stats().registered), (0, 0));
    }

    /// Rule 29: the key itself comes back, and no packet, in every state in which the port has it.
    fn remove_and_wait_gives_the_key_back_at_once(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let collect = |id, number| {
            let key = port.remove_and_wait(id, None).unwrap();
            assert_eq!(key.number, number);
            drop(key);
            assert_eq!(refused(port.remove(id)), ErrorKind::NotRegistered);
            assert_quiet(&port, system);
            assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
        };
        let (ours, theirs) = system.unix_pair();
        let new = || {
            let key = ledger.entry();
            let number = key.number;
            (port.register(one_shot(&ours, key)).unwrap(), number)
        };

        // Armed.
        let (id, number) = new();
        collect(id, number);
        // Armed, with an edge that the kernel has not reported yet.
        let (id, number) = new();
        theirs.write(b"x").unwrap();
        collect(id, number);
        // Disabled.
        let (id, number) = new();
        port.disable(id).unwrap();
        collect(id, number);
        // Parked.
        let (id, number) = new();
        assert_eq!(the_token(&port, system).park().unwrap(), id);
        collect(id, number);
        // Armed again, and queued for a check.
        let (id, number) = new();
        the_token(&port, system).rearm().unwrap();
        assert_eq!(port.stats().queued, 1);
        collect(id, number);
        assert_eq!(port.stats().queued, 0);
        ours.drain();
        // Queued.
        let (key, other) = (ledger.entry(), ledger.entry());
        let number = key.number;
        let write = || assert_eq!(theirs.write(b"x").unwrap(), 1);
        let id = queue(&port, system, &ours, write, key, other);
        collect(id, number);
        assert_eq!(port.stats().queued, 0);
        // Persistent, queued for a check by its last packet.
        let key = ledger.entry();
        let number = key.number;
        let id = port.register(repeated(&ours, key)).unwrap();
        drop(the_one(&port, system));
        collect(id, number);
    }

    /// Rule 29: a packet that was handed to a thread which has not come to it is not delivered.
    fn remove_and_wait_takes_the_key_out_of_a_batch_that_is_out(system: &System) {
        let port = system.port::<usize, usize>(1);
        let sockets: Vec<_> = (0..3).map(|_| system.unix_pair()).collect();
        let ids: Vec<_> = sockets
            .iter()
            .enumerate()
            .map(|(key, (ours, theirs))| {
                theirs.write(b"x").unwrap();
                port.register(one_shot(ours, key)).unwrap()
            })
            .collect();
        let mut batch = Batch::new();
        let mut packets = port.wait(&mut batch, system.soon()).unwrap();
        let Some(Packet::Ready(first)) = packets.next() else { panic!("no packet") };
        let other = (*first.key() + 1) % 3;
        let last = (other + 1) % 3;
        let (port, id, soon) = (&port, ids[last], system.soon());
        // By another thread, while this one is in its batch; and by the thread itself, which gives
        // its batch back first.
        thread::scope(|scope| {
            let removed = scope.spawn(move || port.remove_and_wait(id, soon).unwrap());
            assert_eq!(removed.join().unwrap(), last);
        });
        assert_eq!(port.remove_and_wait(ids[other], soon).unwrap(), other);
        assert_eq!(packets.count(), 0);
        assert_eq!(port.stats().registered, 1);
        drop(first);
        assert_quiet(port, system);
    }

    /// Rule 29: while the key is out it waits for it.
    fn remove_and_wait_waits_for_a_key_that_is_out(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        theirs.write(b"x").unwrap();
        for way in ["rearm", "park", "drop", "into_key"] {
            let id = port.register(one_shot(&ours, way)).unwrap();
            let token = the_token(&port, system);
            let port = &port;
            thread::scope(|scope| {
                let remover = scope.spawn(move || port.remove_and_wait(id, None));
                // It has begun once nobody else may change the registration.
                eventually(system, "the removal begins", || {
                    refused_or_ok(port.disable(id)) == Some(ErrorKind::Removing)
                });
                assert!(!remover.is_finished(), "it does not wait");
                let outcome = match way {
                    "rearm" => token.rearm().map_err(Error::from),
                    "park" => token.park().map(drop).map_err(Error::from),
                    "into_key" => {
                        assert_eq!(token.into_key(), way);
                        Ok(())
                    }
                    _ => {
                        drop(token);
                        Ok(())
                    }
                };
                outcome.unwrap();
                match remover.join().unwrap() {
                    Ok(key) => assert!(["rearm", "park"].contains(&way) && key == way),
                    Err(error) => {
                        assert!(["drop", "into_key"].contains(&way), "{error}");
                        assert_eq!(error.kind(), ErrorKind::NotRegistered);
                    }
                }
            });
            assert_quiet(port, system);
            assert_eq!(port.stats().registered, 0);
        }
    }

    /// Rule 29: after its time is over it is a removal like any other.
    fn remove_and_wait_whose_time_is_over_is_an_ordinary_removal(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        theirs.write(b"x").unwrap();
        let id = port.register(one_shot(&ours, "key")).unwrap();
        let token = the_token(&port, system);
        let begun = Instant::now();
        let now = || system.kernel().map_or_else(|| begun.elapsed(), sim::Kernel::now);
        let limit = Duration::from_millis(5);
        let since = now();
        assert_eq!(refused(port.remove_and_wait(id, limit)), ErrorKind::TimedOut);
        assert!(now() - since >= limit);
        assert_eq!(refused(port.remove_and_wait(id, Duration::ZERO)), ErrorKind::Removing);
        assert_quiet(&port, system);
        token.rearm().unwrap();
        assert_eq!(the_removed(&port, system), (id, "key"));
        assert_quiet(&port, system);
    }

    /// Rule 29: the remover's seat is free while it waits.
    fn remove_and_wait_frees_the_seat_of_its_thread(system: &System) {
        system.several_threads_wait();
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let id = port.register(one_shot(&ours, "key")).unwrap();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            let port = &port;
            theirs.write(b"x").unwrap();
            let mut batch = Batch::new();
            let packet = port.wait(&mut batch, None).unwrap().next();
            let Some(Packet::Ready(token)) = packet else { panic!("no packet") };
            // Another thread has the key, and gives it back after it got a message: for that it
            // needs this thread's seat.
            scope.spawn(move || {
                let mut batch = Batch::new();
                let packet = port.wait(&mut batch, None).unwrap().next();
                assert!(matches!(packet, Some(Packet::Posted(7))));
                token.rearm().unwrap();
            });
            settle(system, port, 1);
            assert_eq!(port.stats().running, 1);
            port.post(7).unwrap();
            assert_eq!(port.remove_and_wait(id, system.soon()).unwrap(), "key");
        });
    }

    /// Rule 29: dropping the port drops what it has, once, in whatever state it is.
    fn a_port_drops_every_key_that_it_still_has(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, Entry>(1);
        let sockets: Vec<_> = (0..8).map(|_| system.unix_pair()).collect();
        let mut batch = Batch::with_capacity(1);
        let register =
            |place: usize| port.register(one_shot(&sockets[place].0, ledger.entry())).unwrap();
        let write = |place: usize| assert_eq!(sockets[place].1.write(b"x").unwrap(), 1);
        let _armed = register(0);
        port.disable(register(1)).unwrap();
        for place in [2, 3] {
            // Parked, and armed again with something left: to be checked.
            register(place);
            write(place);
            let packet = port.wait(&mut batch, system.soon()).unwrap().next();
            let Some(Packet::Ready(token)) = packet else { panic!("no packet") };
            let id = token.park().unwrap();
            if place == 3 {
                port.rearm(id, Interest::IN, OneShot::Level).unwrap();
            }
        }
        // Persistent, with a packet out.
        port.register(repeated(&sockets[4].0, ledger.entry())).unwrap();
        // Removed, and not taken; messages; and packets that are queued.
        port.remove(register(5)).unwrap();
        port.post(ledger.entry()).unwrap();
        port.post(ledger.entry()).unwrap();
        register(6);
        register(7);
        (6..8).for_each(write);
        let taken = port.wait(&mut batch, system.soon()).unwrap().next();
        assert!(taken.is_some());
        assert!(port.stats().queued >= 3, "{port:?}");
        // One key or message was taken.
        assert_eq!(ledger.alive(), 10);
        drop(taken);
        assert_eq!(ledger.alive(), 9);
        // Handed to a thread that forgets about it.
        std::mem::forget(port.wait(&mut Batch::with_capacity(2), Duration::ZERO).unwrap());
        drop(port);
        assert_eq!(ledger.alive(), 0);
        // The sockets are free again.
        let other = system.port::<Entry, Entry>(1);
        for (ours, _) in &sockets {
            other.register(one_shot(ours, ledger.entry())).unwrap();
        }
        drop(other);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: a token that is forgotten takes its key with it and harms nothing else.
    fn a_forgotten_token_leaks_its_key_and_nothing_more(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let (more, more_theirs) = system.unix_pair();
        let id = port.register(one_shot(&ours, ledger.entry())).unwrap();
        theirs.write(b"x").unwrap();
        std::mem::forget(the_token(&port, system));
        theirs.write(b"x").unwrap();
        assert_quiet(&port, system);
        assert_eq!(refused(port.rearm(id, Interest::IN, OneShot::Level)), ErrorKind::KeyHeld);
        port.register(one_shot(&more, ledger.entry())).unwrap();
        more_theirs.write(b"x").unwrap();
        drop(the_token(&port, system));
        port.remove(id).unwrap();
        assert_quiet(&port, system);
        // Removed as far as the kernel is concerned, so it may be registered again.
        let other = system.port::<Entry, usize>(1);
        other.register(one_shot(&ours, ledger.entry())).unwrap();
        drop(the_token(&other, system));
        drop((port, other));
        assert_eq!(ledger.alive(), 1);
    }

    /// Rule 29: an iterator that is forgotten loses nothing; its packets are there for the thread's
    /// next wait.
    fn a_forgotten_iterator_loses_nothing(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let sockets: Vec<_> = (0..5).map(|_| system.unix_pair()).collect();
        for (ours, theirs) in &sockets {
            port.register(one_shot(ours, ledger.entry())).unwrap();
            theirs.write(b"x").unwrap();
        }
        let mut batch = Batch::new();
        let mut packets = port.wait(&mut batch, system.soon()).unwrap();
        let first = packets.next();
        std::mem::forget(packets);
        let mut batch = Batch::new();
        let rest: Vec<_> = port.wait(&mut batch, system.soon()).unwrap().collect();
        assert_eq!(rest.len(), 4);
        assert_eq!(ledger.alive(), 5);
        drop((first, rest));
        assert_eq!(ledger.alive(), 0);
        assert_quiet(&port, system);
    }

    /// Rule 29: a panic in user code that the port calls does no harm to the port: cloning a key.
    fn a_panic_while_a_key_is_cloned_leaves_the_port_usable(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let id = port.register(repeated(&ours, ledger.entry())).unwrap();
        theirs.write(b"x").unwrap();
        for _ in 0..3 {
            ledger.panic_at_next_clone();
            let panicked = catch_unwind(AssertUnwindSafe(|| drop(the_one(&port, system))));
            assert!(panicked.is_err());
            assert_eq!(ledger.alive(), 1);
            // The condition holds still, and is reported still.
            assert!(matches!(the_one(&port, system), Packet::Notified(it) if it.id() == id));
        }
        ours.drain();
        assert_quiet(&port, system);
        port.remove(id).unwrap();
        drop(the_removed(&port, system));
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: and an edge that could not be told for a panic is told later.
    fn a_panic_while_a_key_is_cloned_loses_no_edge(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let edge =
            Registration::new(&ours, ledger.entry(), Interest::IN, Persistent::Edge);
        let id = port.register(edge).unwrap();
        theirs.write(b"x").unwrap();
        ledger.panic_at_next_clone();
        let panicked = catch_unwind(AssertUnwindSafe(|| drop(the_one(&port, system))));
        assert!(panicked.is_err());
        match the_one(&port, system) {
            Packet::Notified(notified) => {
                assert_eq!((notified.id(), notified.events()), (id, Events::IN));
            }
            other => panic!("{}", kind(&other)),
        }
        ours.drain();
        assert_quiet(&port, system);
        drop(port);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: dropping a key.
    fn a_panic_while_a_key_is_dropped_leaves_the_port_usable(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let sockets: Vec<_> = (0..3).map(|_| system.unix_pair()).collect();
        for (ours, theirs) in &sockets {
            port.register(one_shot(ours, ledger.entry())).unwrap();
            theirs.write(b"x").unwrap();
        }
        ledger.panic_at_next_drop();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut batch = Batch::new();
            port.wait(&mut batch, system.soon()).unwrap().for_each(drop);
        }));
        assert!(panicked.is_err());
        // The first one was dropped, the others are there still.
        assert_eq!((ledger.alive(), port.stats().registered), (2, 2));
        let mut batch = Batch::new();
        assert_eq!(port.wait(&mut batch, system.soon()).unwrap().count(), 2);
        assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
        // Its socket as well is free again.
        for (ours, _) in &sockets {
            port.register(one_shot(ours, ledger.entry())).unwrap();
        }
        assert_eq!(port.wait(&mut batch, system.soon()).unwrap().count(), 3);
        assert_quiet(&port, system);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 29: dropping a message.
    fn a_panic_while_a_message_is_dropped_leaves_the_port_usable(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<(), Entry>(1);
        (0..3).for_each(|_| port.post(ledger.entry()).unwrap());
        ledger.panic_at_next_drop();
        let mut batch = Batch::new();
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            port.wait(&mut batch, system.soon()).unwrap().for_each(drop);
        }));
        assert!(panicked.is_err());
        assert_eq!((ledger.alive(), port.stats().queued), (2, 2));
        port.post(ledger.entry()).unwrap();
        assert_eq!(port.wait(&mut batch, system.soon()).unwrap().count(), 3);
        assert_eq!(ledger.alive(), 0);
        assert_quiet(&port, system);
    }

    /// Rule 29: if the port itself is dropped, the panic goes on, and nothing is leaked or dropped
    /// twice.
    fn a_panic_while_a_port_is_dropped_leaks_nothing(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, Entry>(1);
        let sockets: Vec<_> = (0..3).map(|_| system.unix_pair()).collect();
        for (ours, _) in &sockets {
            port.register(one_shot(ours, ledger.entry())).unwrap();
        }
        (0..3).for_each(|_| port.post(ledger.entry()).unwrap());
        ledger.panic_at_next_drop();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(port))).is_err());
        assert_eq!(ledger.alive(), 0, "keys or messages were leaked");
        let other = system.port::<Entry, Entry>(1);
        for (ours, _) in &sockets {
            other.register(one_shot(ours, ledger.entry())).unwrap();
        }
    }

    /// Rule 30: closing is not removing.
    fn closing_a_borrowed_socket_makes_no_packet(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        for persistent in [false, true] {
            let (ours, theirs, _alone) = pair_out_of_the_way(system);
            let key = ledger.entry();
            let registration = if persistent { repeated(&ours, key) } else { one_shot(&ours, key) };
            port.register(registration).unwrap();
            drop(ours);
            assert_quiet(&port, system);
            assert!(theirs.write(b"x").is_err(), "the port keeps it open");
            assert_quiet(&port, system);
        }
        assert_eq!(port.stats().packets.total(), 0);
        drop(port);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 30: a registration whose socket turns out to be closed ends; its key is dropped.
    fn arming_a_socket_that_was_closed_ends_its_registration(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        for way in ["token", "name", "persistent"] {
            let (ours, theirs, _alone) = pair_out_of_the_way(system);
            let key = ledger.entry();
            let registration =
                if way == "persistent" { repeated(&ours, key) } else { one_shot(&ours, key) };
            let id = port.register(registration).unwrap();
            theirs.write(b"x").unwrap();
            match the_one(&port, system) {
                Packet::Ready(token) if way == "token" => {
                    drop(ours);
                    token.rearm().unwrap();
                }
                Packet::Ready(token) => {
                    token.park().unwrap();
                    drop(ours);
                    port.rearm(id, Interest::IN, OneShot::Level).unwrap();
                }
                Packet::Notified(_) => drop(ours),
                other => panic!("{}", kind(&other)),
            }
            assert_quiet(&port, system);
            assert_eq!((ledger.alive(), port.stats().registered), (0, 0), "{way}");
            assert_eq!(refused(port.remove(id)), ErrorKind::NotRegistered);
        }
    }

    /// Rule 30: a number that was closed and given out again, and is not registered.
    fn a_reused_number_gets_no_packet_of_the_former_registration(system: &System) {
        until_undisturbed(|| {
            let ledger = Ledger::default();
            let port = system.port::<Entry, usize>(1);
            let old = system.event();
            let id = port.register(one_shot(&old, ledger.entry())).unwrap();
            let new = reopen(system, old)?;
            new.signal(1).unwrap();
            assert_quiet(&port, system);
            // Nor if the old one is enabled again.
            port.rearm(id, Interest::ALL, OneShot::Level).unwrap();
            assert_quiet(&port, system);
            // The old key comes back, and the new counter is not touched by that.
            port.remove(id).unwrap();
            assert_eq!(the_removed(&port, system).0, id);
            port.register(one_shot(&new, ledger.entry())).unwrap();
            assert!(the_token(&port, system).events().is_in());
            assert_quiet(&port, system);
            Some(())
        });
    }

    /// Rule 30: a token of the closed descriptor is armed again.
    fn a_stale_token_armed_again_gets_nothing_of_the_reused_number(system: &System) {
        until_undisturbed(|| {
            let ledger = Ledger::default();
            let port = system.port::<Entry, usize>(1);
            let old = system.event();
            old.signal(1).unwrap();
            port.register(one_shot(&old, ledger.entry())).unwrap();
            let token = the_token(&port, system);
            let new = reopen(system, old)?;
            new.signal(1).unwrap();
            token.rearm().unwrap();
            assert_quiet(&port, system);
            assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
            // The number is free for its new owner.
            port.register(one_shot(&new, ledger.entry())).unwrap();
            assert!(the_token(&port, system).events().is_in());
            Some(())
        });
    }

    /// Rule 30: a persistent registration of the closed descriptor.
    fn a_stale_persistent_registration_gets_nothing_of_the_reused_number(system: &System) {
        until_undisturbed(|| {
            let ledger = Ledger::default();
            let port = system.port::<Entry, usize>(1);
            let old = system.event();
            old.signal(1).unwrap();
            port.register(repeated(&old, ledger.entry())).unwrap();
            assert!(matches!(the_one(&port, system), Packet::Notified(_)));
            let new = reopen(system, old)?;
            new.signal(1).unwrap();
            assert_quiet(&port, system);
            assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
            Some(())
        });
    }

    /// Rule 30: the number is registered again, on the same port, with the old key in any state.
    fn a_reused_number_registered_on_the_same_port_gets_its_own_packets(system: &System) {
        for state in ["armed", "disabled", "parked", "held", "queued"] {
            until_undisturbed(|| {
                let ledger = Ledger::default();
                let port = system.port::<(Entry, &str), usize>(1);
                let old = system.event();
                let old_key = (ledger.entry(), "old");
                let mut held = None;
                let id = if state == "queued" {
                    let (signal, other) = (|| old.signal(1).unwrap(), (ledger.entry(), ""));
                    queue(&port, system, &old, signal, old_key, other)
                } else {
                    port.register(one_shot(&old, old_key)).unwrap()
                };
                match state {
                    "disabled" => port.disable(id).unwrap(),
                    "parked" | "held" => {
                        old.signal(1).unwrap();
                        let token = the_token(&port, system);
                        if state == "parked" {
                            token.park().unwrap();
                        } else {
                            held = Some(token);
                        }
                    }
                    _ => {}
                }
                let new = reopen(system, old)?;
                let again = port.register(one_shot(&new, (ledger.entry(), "new"))).unwrap();
                assert_ne!(id, again);
                new.signal(1).unwrap();
                // What was queued already may come; nothing of the old one after that.
                let token = the_token(&port, system);
                assert_eq!((token.id(), token.key().1), (again, "new"));
                assert_eq!(new.drain(), 8);
                token.rearm().unwrap();
                assert_quiet(&port, system);
                assert_eq!(refused(port.remove(id)), ErrorKind::NotRegistered);
                let armed = port.rearm(id, Interest::IN, OneShot::Level);
                assert_eq!(refused(armed), ErrorKind::NotRegistered);
                if let Some(token) = held {
                    assert_eq!(token.key().1, "old");
                    let (why, key) = given_back(token.rearm());
                    assert_eq!((why, key.1), (ErrorKind::NotRegistered, "old"));
                }
                assert_eq!((ledger.alive(), port.stats().registered), (1, 1), "{state}");
                // The end of the old one did not touch the new one.
                new.signal(1).unwrap();
                assert_eq!(the_token(&port, system).id(), again);
                assert_quiet(&port, system);
                Some(())
            });
        }
    }

    /// Rule 30: or on another port.
    fn a_reused_number_registered_on_another_port_gets_its_own_packets(system: &System) {
        for state in ["armed", "held", "parked"] {
            until_undisturbed(|| {
                let ledger = Ledger::default();
                let port = || system.port::<Entry, usize>(1);
                let (here, there) = (port(), port());
                let old = system.event();
                old.signal(1).unwrap();
                let id = here.register(one_shot(&old, ledger.entry())).unwrap();
                let token = (state != "armed").then(|| the_token(&here, system));
                let parked = state == "parked";
                let token = token.and_then(|token| {
                    if parked { token.park().map(|_| None).unwrap() } else { Some(token) }
                });
                let new = reopen(system, old)?;
                let again = there.register(one_shot(&new, ledger.entry())).unwrap();
                new.signal(1).unwrap();
                assert_quiet(&here, system);
                // Whatever becomes of the old one, it does not touch the new one.
                match token {
                    Some(token) => drop(token),
                    None => assert_eq!(refused(here.remove(id)), ErrorKind::NotRegistered),
                }
                assert_quiet(&here, system);
                assert_eq!((ledger.alive(), here.stats().registered), (1, 0), "{state}");
                for _ in 0..2 {
                    let token = the_token(&there, system);
                    assert_eq!(token.id(), again);
                    token.rearm().unwrap();
                }
                assert_eq!(new.drain(), 8);
                assert_quiet(&there, system);
                new.signal(1).unwrap();
                assert_eq!(the_token(&there, system).id(), again);
                Some(())
            });
        }
    }

    /// Rule 30: nor does the end of a port touch what has become another one's.
    fn dropping_a_port_does_not_touch_a_reused_number(system: &System) {
        until_undisturbed(|| {
            let (here, there) = (system.port::<&str, usize>(1), system.port::<&str, usize>(1));
            let old = system.event();
            here.register(one_shot(&old, "old")).unwrap();
            let new = reopen(system, old)?;
            let id = there.register(one_shot(&new, "new")).unwrap();
            drop(here);
            new.signal(1).unwrap();
            assert_eq!(the_token(&there, system).id(), id);
            assert_quiet(&there, system);
            Some(())
        });
    }

    /// Rule 30: the number names the same socket again, whose entry in the kernel is still there.
    fn a_number_that_names_the_same_socket_again_may_be_registered(system: &System) {
        for was in ["dropped", "removed", "armed"] {
            until_undisturbed(|| {
                let port = system.port::<&str, usize>(1);
                // A thread's first wait opens a descriptor.
                assert_eq!(port.wait(&mut Batch::new(), Duration::ZERO).unwrap().count(), 0);
                let old = system.event();
                let keeps_it = old.dup().unwrap();
                let number = old.as_raw_fd();
                keeps_it.signal(1).unwrap();
                let id = port.register(one_shot(&old, "old")).unwrap();
                let token = (was != "armed").then(|| the_token(&port, system));
                drop(old);
                match token {
                    // Too late for the kernel, which has no such number any more.
                    Some(token) if was == "dropped" => drop(token),
                    Some(token) => {
                        port.remove(id).unwrap();
                        token.rearm().unwrap();
                        the_removed(&port, system);
                    }
                    None => drop(the_token(&port, system)),
                }
                let again = keeps_it.dup().unwrap();
                if again.as_raw_fd() != number {
                    return None;
                }
                let id = port.register(one_shot(&again, "again")).expect(was);
                let token = the_token(&port, system);
                assert_eq!((token.id(), *token.key()), (id, "again"));
                assert_eq!(again.drain(), 8);
                token.rearm().unwrap();
                assert_quiet(&port, system);
                keeps_it.signal(1).unwrap();
                assert_eq!(the_token(&port, system).id(), id);
                Some(())
            });
        }
    }

    /// Rule 30: what lives on through a duplicate costs a look at most, and never spins.
    fn a_duplicate_of_a_closed_descriptor_does_not_spin(system: &System) {
        let port = system.port::<&str, usize>(1);
        let lives_on = leave_stale_entry(&port, system);
        let mut batch = Batch::new();
        // A level-triggered entry would be reported again and again.
        lives_on.signal(1).unwrap();
        let before = port.stats().harvests;
        assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
        let looks = port.stats().harvests - before;
        // At the end of its time it may look into each of four sets.
        let most = if system.spreads() { 6 } else { 3 };
        assert!(looks <= most, "{looks} looks at the kernel for one stale edge");
        let before = port.stats().harvests;
        for _ in 0..10 {
            assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
        }
        let looks = port.stats().harvests - before;
        assert!(looks <= 20, "{looks} looks at the kernel for nothing");
        assert_eq!(port.stats().rebuilds, 0);
    }

    /// Rule 30: the kernel reports what a duplicate keeps alive under the registration of the closed
    /// descriptor, until the port looks at that.
    fn a_duplicate_keeps_a_registration_going_until_the_port_looks(system: &System) {
        const WRITES: usize = 200;
        for trigger in TRIGGERS {
            let port = system.port::<Entry, usize>(1);
            let ledger = Ledger::default();
            let (ours, theirs, _alone) = pair_out_of_the_way(system);
            let key = ledger.entry();
            let id = match trigger {
                Trigger::Once(trigger) => {
                    port.register(Registration::new(&ours, key, Interest::IN, trigger))
                }
                Trigger::Always(trigger) => {
                    port.register(Registration::new(&ours, key, Interest::IN, trigger))
                }
            }
            .unwrap();
            assert_quiet(&port, system);
            let lives_on = ours.dup().unwrap();
            drop(ours);
            let mut packets = 0;
            let mut batch = Batch::new();
            for _ in 0..WRITES {
                theirs.write(b"x").unwrap();
                for packet in port.wait(&mut batch, Duration::ZERO).unwrap() {
                    packets += 1;
                    lives_on.drain();
                    match packet {
                        Packet::Ready(mut ready) => {
                            assert_eq!((ready.id(), ready.events()), (id, Events::IN));
                            ready.read_drained();
                            ready.rearm().unwrap();
                        }
                        Packet::Notified(notified) => {
                            assert_eq!((notified.id(), notified.events()), (id, Events::IN));
                        }
                        other => panic!("{}", kind(&other)),
                    }
                }
            }
            // A level packet that would be repeated is checked first, so the port has looked.
            let looked = trigger == PERSISTENT_LEVEL;
            assert_eq!(packets, if looked { 1 } else { WRITES }, "{trigger:?}");
            if !looked {
                // Enabling looks as well, if something is known to hold and no hint denies it.
                port.disable(id).unwrap();
                theirs.write(b"x").unwrap();
                assert_quiet(&port, system);
                assert_eq!(port.stats().registered, 1);
                port.rearm(id, Interest::IN, OneShot::Level).unwrap();
            }
            assert_quiet(&port, system);
            assert_eq!(port.stats().registered, 0, "{trigger:?}");
            assert_eq!(ledger.alive(), 0, "the key is dropped");
        }
    }

    /// Rule 30: if there are too many of them, the kernel's set is replaced; nothing else is lost.
    fn past_a_limit_the_kernels_set_is_rebuilt_and_nothing_is_lost(system: &System) {
        let port = system.port::<&str, usize>(1);
        let lives_on = leave_stale_entry(&port, system);
        let sockets: Vec<_> = (0..6).map(|_| system.unix_pair()).collect();
        let key = ["armed", "parked", "persistent", "disabled", "edge", "held"];
        let register =
            |place: usize| port.register(one_shot(&sockets[place].0, key[place])).unwrap();
        let write = |place: usize| assert_eq!(sockets[place].1.write(b"x").unwrap(), 1);
        let armed = register(0);
        let parked = register(1);
        write(1);
        the_token(&port, system).park().unwrap();
        let persistent = port.register(repeated(&sockets[2].0, key[2])).unwrap();
        let disabled = register(3);
        port.disable(disabled).unwrap();
        let edge = Registration::new(&sockets[4].0, key[4], Interest::IN, OneShot::Edge);
        let edge = port.register(edge).unwrap();
        register(5);
        write(5);
        let held = the_token(&port, system);
        assert_quiet(&port, system);

        let mut batch = Batch::new();
        let mut signals = 0;
        while port.stats().rebuilds == 0 {
            lives_on.signal(1).unwrap();
            signals += 1;
            assert!(signals < 5_000, "the kernel's set is never rebuilt");
            if signals == 1024 {
                // On its way when it happens.
                write(3);
                write(4);
            }
            for packet in port.wait(&mut batch, Duration::ZERO).unwrap() {
                match packet {
                    Packet::Ready(token) if token.id() == edge => {
                        sockets[4].0.drain();
                        token.rearm().unwrap();
                    }
                    other => panic!("{}", kind(&other)),
                }
            }
        }
        assert!(signals > 1024, "{signals} stale edges are no reason");
        // The stale entry is gone for good: the thread does not get up for it. On a busy machine a wait
        // may be over before the thread sleeps, and then it has asked for whatever there is.
        let sleeps_on = (0..20).any(|_| {
            lives_on.signal(1).unwrap();
            let before = port.stats().harvests;
            assert_quiet(&port, system);
            // The sleep itself counts as a look, except where it is for several sets at once.
            port.stats().harvests - before == u64::from(!system.spreads())
        });
        assert!(sleeps_on);

        // Everything else is as it was.
        write(0);
        assert_eq!(the_token(&port, system).id(), armed);
        port.rearm(parked, Interest::IN, OneShot::Level).unwrap();
        assert_eq!(the_token(&port, system).id(), parked);
        write(2);
        match the_one(&port, system) {
            Packet::Notified(notified) => assert_eq!(notified.id(), persistent),
            other => panic!("{}", kind(&other)),
        }
        port.remove(persistent).unwrap();
        assert_eq!(the_removed(&port, system), (persistent, key[2]));
        port.rearm(disabled, Interest::IN, OneShot::Level).unwrap();
        assert_eq!(the_token(&port, system).id(), disabled);
        write(4);
        assert_eq!(the_token(&port, system).id(), edge);
        held.rearm().unwrap();
        let held = the_token(&port, system);
        assert_eq!(*held.key(), "held");
        sockets[5].0.drain();
        held.rearm().unwrap();
        assert_quiet(&port, system);
        write(5);
        assert_eq!(*the_token(&port, system).key(), "held");
        assert_quiet(&port, system);
        assert_eq!(port.stats().rebuilds, 1);
    }

    /// Rule 29: a key that has come to own another descriptor is refused, and ends the registration.
    fn a_key_that_owns_another_descriptor_is_given_back(system: &System) {
        for park in [false, true] {
            let port = system.port::<Socket, usize>(1);
            let (ours, theirs) = system.unix_pair();
            let (other, _other_peer) = system.unix_pair();
            theirs.write(b"x").unwrap();
            port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
            let mut token = the_token(&port, system);
            let number = other.as_raw_fd();
            let ours = std::mem::replace(token.key_mut(), other);
            let (why, key) =
                if park { given_back(token.park()) } else { given_back(token.rearm()) };
            assert_eq!((why, key.as_raw_fd()), (ErrorKind::BadDescriptor, number));
            assert_eq!(port.stats().registered, 0);
            assert_quiet(&port, system);
            // Both may be registered, each as itself.
            port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
            port.register(Registration::owned(key, Interest::IN, OneShot::Level)).unwrap();
        }
    }

    /// Rule 30: nor does the new set take a number for what it named before.
    fn a_rebuilt_set_leaves_a_reused_number_alone(system: &System) {
        until_undisturbed(|| {
            let port = system.port::<&str, usize>(1);
            let lives_on = leave_stale_entry(&port, system);
            let old = system.event();
            port.register(one_shot(&old, "old")).unwrap();
            let new = reopen(system, old)?;
            for signals in 0.. {
                if port.stats().rebuilds > 0 {
                    break;
                }
                assert!(signals < 5_000, "the kernel's set is never rebuilt");
                lives_on.signal(1).unwrap();
                assert_eq!(port.wait(&mut Batch::new(), Duration::ZERO).unwrap().count(), 0);
            }
            new.signal(1).unwrap();
            assert_quiet(&port, system);
            Some(())
        });
    }

    /// Rule 30: nor does a thread go on sleeping in the set that was replaced, where it hears of nothing.
    fn a_set_is_not_replaced_while_another_thread_sleeps_in_it(system: &System) {
        system.several_threads_wait();
        let port = system.port::<&str, usize>(2);
        make_packets_long(system, &port);
        // By a thread that does not count any more when it has.
        let lives_on = thread::scope(|scope| {
            scope.spawn(|| leave_stale_entry(&port, system)).join().unwrap()
        });
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..2).map(|_| system.unix_pair()).unzip();
        let (gate, (say, heard)) = (Gate::default(), mpsc::channel());
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            for count in 1..=2 {
                let (say, port, gate) = (say.clone(), &port, &gate);
                scope.spawn(move || {
                    let mut batch = Batch::with_capacity(1);
                    while let Ok(packets) = port.wait(&mut batch, None) {
                        for packet in packets {
                            let Packet::Ready(ready) = packet else { panic!("{}", kind(&packet)) };
                            say.send(*ready.key()).unwrap();
                            gate.pass();
                        }
                    }
                });
                settle(system, port, count);
            }
            let rebuilt = || port.stats().rebuilds > 0;
            for signals in 0.. {
                assert!(signals < 5_000, "the kernel's set is never rebuilt");
                let before = port.stats().harvests;
                lives_on.signal(1).unwrap();
                // Two signals may be one edge to the kernel, and while the newest thread is on its way the
                // other one hears. It may not come back to the kernel's wait.
                let begun = Instant::now();
                while port.stats().harvests == before && begun.elapsed() < system.quiet() {
                    thread::yield_now();
                }
                settle(system, &port, 2);
                if rebuilt() {
                    break;
                }
            }
            // Not in a set that was there before.
            for (socket, key) in ours.iter().zip(["first", "second"]) {
                port.register(one_shot(socket, key)).unwrap();
            }
            // Whoever hears of the first one stays in its handler.
            for (socket, key) in theirs.iter().zip(["first", "second"]) {
                socket.write(b"x").unwrap();
                assert_eq!(hear(system, &heard, "a socket is taken"), key);
            }
        });
    }

    /// Rule 31: a condition that goes on holding does not keep a closed port going.
    fn a_closed_port_ends_although_a_persistent_condition_holds(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        theirs.write(b"x").unwrap();
        port.register(repeated(&ours, "key")).unwrap();
        assert!(matches!(the_one(&port, system), Packet::Notified(_)));
        port.close();
        // The one that was due when it was closed.
        assert!(matches!(the_one(&port, system), Packet::Notified(_)));
        assert_closed(&port, system);
    }

    /// Rule 31: what becomes true of a closed port is not queued any more, or it might never end.
    fn a_closed_port_finds_nothing_new(system: &System) {
        let port = system.port::<&str, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let (later, later_peer) = system.unix_pair();
        port.register(one_shot(&ours, "before")).unwrap();
        port.register(one_shot(&later, "after")).unwrap();
        theirs.write(b"x").unwrap();
        drop(port.wait(&mut Batch::new(), system.soon()).unwrap());
        assert_eq!(port.stats().queued, 1);
        port.close();
        later_peer.write(b"x").unwrap();
        assert_eq!(the_token(&port, system).into_key(), "before");
        assert_closed(&port, system);
    }

    /// Rule 31: what was armed, and is still to be checked, counts as queued.
    fn a_closed_port_drains_what_is_to_be_checked_too(system: &System) {
        for remove in [false, true] {
            let port = system.port::<&str, usize>(1);
            let (ours, theirs) = system.unix_pair();
            theirs.write(b"x").unwrap();
            let id = port.register(one_shot(&ours, "key")).unwrap();
            the_token(&port, system).rearm().unwrap();
            if remove {
                port.remove(id).unwrap();
            }
            port.close();
            if remove {
                assert_eq!(the_removed(&port, system), (id, "key"));
            } else {
                assert_eq!(the_token(&port, system).into_key(), "key");
            }
            assert_closed(&port, system);
        }
    }

    /// Rule 31: a closed port takes no more, gives out what it has, and then says so.
    fn a_closed_port_drains_its_queue_and_then_says_so(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<Entry, usize>(1);
        let (ours, theirs) = system.unix_pair();
        let (more, more_theirs) = system.unix_pair();
        let id = port.register(one_shot(&ours, ledger.entry())).unwrap();
        theirs.write(b"x").unwrap();
        let token = the_token(&port, system);
        let other = port.register(one_shot(&more, ledger.entry())).unwrap();
        (0..3).for_each(|message| port.post(message).unwrap());
        port.close();
        port.close();
        assert_eq!(refused(port.post(3).map_err(Error::from)), ErrorKind::Closed);
        let (third, _third_theirs) = system.unix_pair();
        let (why, key) = given_back(port.register(one_shot(&third, ledger.entry())));
        assert_eq!(why, ErrorKind::Closed);
        drop(key);
        assert_eq!(refused(port.rearm(other, Interest::IN, OneShot::Level)), ErrorKind::Closed);
        let (why, key) = given_back(token.rearm());
        assert_eq!((why, ledger.alive()), (ErrorKind::Closed, 2));
        drop(key);
        let _ = id;
        let mut batch = Batch::with_capacity(2);
        let mut next = 0;
        while next < 3 {
            for packet in port.wait(&mut batch, None).unwrap() {
                assert!(matches!(packet, Packet::Posted(message) if message == next));
                next += 1;
            }
        }
        // No further notification, and no removal.
        more_theirs.write(b"x").unwrap();
        assert_closed(&port, system);
        assert_closed(&port, system);
        let mut changes = Changes::new();
        changes.disable(other);
        assert_eq!(refused(port.process(&mut changes, &mut batch, None)), ErrorKind::Closed);
        assert_eq!(changes.len(), 1);
        assert_eq!(ledger.alive(), 1);
        drop(port);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 31: every thread that waits is told.
    fn every_thread_that_waits_is_told_that_the_port_is_closed(system: &System) {
        system.several_threads_wait();
        for limit in [1, 4] {
            let port = system.port::<(), usize>(limit);
            thread::scope(|scope| {
                let waiters: Vec<_> = (1..=4)
                    .map(|count| {
                        let port = &port;
                        let waiter = scope.spawn(move || {
                            port.wait(&mut Batch::new(), None).map(Iterator::count)
                        });
                        settle(system, port, count);
                        waiter
                    })
                    .collect();
                port.close();
                for waiter in waiters {
                    assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
                }
            });
            assert_closed(&port, system);
        }
    }

    /// Rule 31: with every seat taken those that wait are told as well.
    fn those_who_wait_for_a_seat_are_told_that_the_port_is_closed(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(1);
        let gate = Gate::default();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            scope.spawn(|| {
                let mut batch = Batch::new();
                assert_eq!(port.wait(&mut batch, None).unwrap().count(), 1);
                gate.pass();
            });
            settle(system, &port, 1);
            port.post(1).unwrap();
            eventually(system, "it runs", || port.stats().packets.posted == 1);
            let waiter = scope.spawn(|| port.wait(&mut Batch::new(), None).map(Iterator::count));
            settle(system, &port, 1);
            port.close();
            assert_eq!(waiter.join().unwrap().unwrap_err().kind(), ErrorKind::Closed);
        });
    }

    /// Rule 31: a shutdown brings every key back, in whatever state it was, and then says so.
    fn a_shutdown_brings_every_key_back(system: &System) {
        let ledger = Ledger::default();
        let port = system.port::<(Entry, usize), usize>(1);
        let sockets: Vec<_> = (0..8).map(|_| system.unix_pair()).collect();
        let register = |place: usize| {
            port.register(one_shot(&sockets[place].0, (ledger.entry(), place))).unwrap()
        };
        let held = |place: usize| {
            register(place);
            sockets[place].1.write(b"x").unwrap();
            the_token(&port, system)
        };
        let (armed_later, dropped_later, parked_later) = (held(0), held(1), held(2));
        register(3);
        port.disable(register(4)).unwrap();
        held(5).park().unwrap();
        let persistent = repeated(&sockets[6].0, (ledger.entry(), 6));
        port.register(persistent).unwrap();
        port.remove(register(7)).unwrap();
        port.post(1).unwrap();
        port.shutdown().unwrap();
        port.shutdown().unwrap();

        assert_eq!(refused(port.post(2).map_err(Error::from)), ErrorKind::Closed);
        let (new, _new_theirs) = system.unix_pair();
        let (why, key) = given_back(port.register(one_shot(&new, (ledger.entry(), 9))));
        assert_eq!((why, key.1), (ErrorKind::Closed, 9));
        drop(key);
        for (_, theirs) in &sockets {
            theirs.write(b"x").unwrap();
        }
        let mut batch = Batch::with_capacity(2);
        let (mut back, mut posted) = (Vec::new(), 0);
        loop {
            let packets = port.wait(&mut batch, system.quiet()).unwrap();
            let before = back.len() + posted;
            for packet in packets {
                match packet {
                    Packet::Removed(_, (_, place)) => back.push(place),
                    Packet::Posted(1) => posted += 1,
                    other => panic!("{}", kind(&other)),
                }
            }
            if back.len() + posted == before {
                break;
            }
        }
        back.sort_unstable();
        assert_eq!((back, posted), (vec![3, 4, 5, 6, 7], 1));
        // Not over as long as handlers have keys.
        assert_quiet(&port, system);
        assert_eq!(ledger.alive(), 3);
        armed_later.rearm().unwrap();
        assert_eq!(the_removed(&port, system).1.1, 0);
        drop(dropped_later);
        assert_quiet(&port, system);
        parked_later.park().unwrap();
        assert_eq!(the_removed(&port, system).1.1, 2);
        assert_closed(&port, system);
        assert_closed(&port, system);
        assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
    }

    /// Rule 31: the last key that comes back ends it for all who wait.
    fn every_thread_that_waits_is_told_that_the_port_has_shut_down(system: &System) {
        system.several_threads_wait();
        let port = system.port::<Socket, ()>(2);
        let (mut peers, keys) = (Vec::new(), AtomicUsize::new(0));
        for _ in 0..20 {
            let (ours, theirs) = system.unix_pair();
            port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
            peers.push(theirs);
        }
        thread::scope(|scope| {
            for count in 1..=4 {
                scope.spawn(|| {
                    let mut batch = Batch::with_capacity(3);
                    loop {
                        match port.wait(&mut batch, None) {
                            Ok(packets) => {
                                for packet in packets {
                                    let Packet::Removed(..) = packet else {
                                        panic!("{}", kind(&packet))
                                    };
                                    keys.fetch_add(1, SeqCst);
                                }
                            }
                            Err(error) => {
                                assert_eq!(error.kind(), ErrorKind::Closed);
                                break;
                            }
                        }
                    }
                });
                settle(system, &port, count);
            }
            port.shutdown().unwrap();
        });
        assert_eq!(keys.load(SeqCst), 20);
        assert_eq!(system.open_sockets(), 20);
    }

    /// Rule 31: a port may be dropped whatever its threads did before.
    fn a_port_may_be_dropped_before_its_threads_end(system: &System) {
        let ledger = Ledger::default();
        let port = Arc::new(system.port::<(), Entry>(1));
        (0..4).for_each(|_| port.post(ledger.entry()).unwrap());
        let (dropped, over) = mpsc::channel::<()>();
        let worker = thread::spawn({
            let port = Arc::clone(&port);
            move || {
                let mut batch = Batch::new();
                // Two are handed out and left in an iterator that is forgotten.
                let mut packets = port.wait(&mut batch, None).unwrap();
                drop(packets.next());
                std::mem::forget(packets);
                drop(port);
                let _ = over.recv();
            }
        });
        eventually(system, "the worker has what it wants", || {
            ledger.alive() == 3 && Arc::strong_count(&port) == 1
        });
        drop(Arc::into_inner(port).unwrap());
        assert_eq!(ledger.alive(), 0);
        drop(dropped);
        worker.join().unwrap();
    }
}

/// Rule 29: virtual time is over when its clock says so, however long that takes.
#[test]
fn remove_and_wait_waits_by_the_clock_of_its_kernel_sim() {
    const HOUR: Duration = Duration::from_secs(3600);
    testkit::run(System::simulated, |on| {
        let kernel = on.kernel().unwrap();
        let port = on.port::<&str, usize>(1);
        let (ours, theirs) = on.unix_pair();
        let held = || {
            theirs.write(b"x").unwrap();
            let id = port.register(one_shot(&ours, "key")).unwrap();
            (id, the_token(&port, on))
        };
        // The automatic clock: an hour passes at once.
        let (id, token) = held();
        assert_eq!(refused(port.remove_and_wait(id, HOUR)), ErrorKind::TimedOut);
        assert_eq!(kernel.now(), HOUR);
        drop(token);

        kernel.manual_clock();
        for returns in [false, true] {
            let (id, token) = held();
            let begun = kernel.now();
            thread::scope(|scope| {
                let remover = scope.spawn(|| (port.remove_and_wait(id, HOUR), kernel.now()));
                assert!(kernel.wait_for_sleepers(1, on.soon()));
                kernel.advance(HOUR - Duration::from_nanos(1));
                if returns {
                    token.rearm().unwrap();
                    assert_eq!(remover.join().unwrap().0, Ok("key"));
                } else {
                    assert!(kernel.wait_for_sleepers(1, on.soon()));
                    kernel.advance(Duration::from_nanos(1));
                    let (outcome, ended) = remover.join().unwrap();
                    assert_eq!((refused(outcome), ended - begun), (ErrorKind::TimedOut, HOUR));
                    drop(token);
                }
            });
        }
    });
}

/// What fork does to the kernel's entry of a closed descriptor, done by a duplicate here.
/// Registers a counter, takes its packet, closes it and drops the token, too late for the kernel;
/// what is returned keeps the counter alive.
fn leave_stale_entry<K: Default>(port: &Port<K, usize>, on: &System) -> Socket {
    let closed = on.event();
    let lives_on = closed.dup().unwrap();
    lives_on.signal(1).unwrap();
    port.register(one_shot(&closed, K::default())).unwrap();
    let token = the_token(port, on);
    drop(closed);
    drop(token);
    lives_on
}

fn refused_or_ok(outcome: Result<(), Error>) -> Option<ErrorKind> {
    outcome.err().map(|error| error.kind())
}

/// Rule 31: a dropped port leaves no descriptor behind, also if its threads live on and were looked
/// at. Ports on a simulated kernel have none of their own. In a process of its own, in which no
/// other test opens any.
#[test]
fn a_dropped_port_leaves_no_descriptor_with_its_threads_epoll() {
    if !in_a_process_of_its_own(
        "removal::a_dropped_port_leaves_no_descriptor_with_its_threads_epoll",
    ) {
        return;
    }
    testkit::run(System::native, |on| {
        let before = testkit::descriptors::open();
        let port = Arc::new(on.port::<(), usize>(1));
        let (say, heard) = mpsc::channel();
        // Each takes a message and sleeps, unannounced, which the next one has to notice.
        let workers: Vec<_> = (0..3)
            .map(|message| {
                port.post(message).unwrap();
                let (port, say) = (Arc::clone(&port), say.clone());
                let (go_on, over) = mpsc::channel::<()>();
                let worker = thread::spawn(move || {
                    let packets = port.wait(&mut Batch::new(), None).map(Iterator::count);
                    drop(port);
                    say.send(packets.unwrap()).unwrap();
                    let _ = over.recv();
                });
                assert_eq!(heard.recv_timeout(on.soon()).expect("it is not noticed"), 1);
                (go_on, worker)
            })
            .collect();
        eventually(on, "they let go of it", || Arc::strong_count(&port) == 1);
        drop(Arc::into_inner(port).unwrap());
        testkit::descriptors::assert_same(&before, &testkit::descriptors::open());
        for (go_on, worker) in workers {
            drop(go_on);
            worker.join().unwrap();
        }
    });
}

/// Rule 32: the child may make a port for itself, which has nothing to do with its parent's. A
/// simulated kernel has no processes, so only the real one is asked.
#[test]
fn a_forked_child_may_make_a_port_of_its_own_epoll() {
    if !in_a_process_of_its_own("removal::a_forked_child_may_make_a_port_of_its_own_epoll") {
        return;
    }
    testkit::run(System::native, |on| {
        let port = on.port::<&str, usize>(1);
        let (ours, theirs) = on.unix_pair();
        port.register(one_shot(&ours, "parent's")).unwrap();
        let Some(child) = fork() else {
            // The same number, on another port: in this process nobody has it.
            let own = on.port::<&str, usize>(1);
            let mut batch = Batch::new();
            let mut packets = || own.wait(&mut batch, on.soon()).map_or(0, Iterator::count);
            let done = own.register(one_shot(&ours, "child's")).is_ok()
                && theirs.write(b"x").is_ok()
                && packets() == 1
                && own.post(1).is_ok()
                && packets() == 1
                && ours.drain() == 1;
            drop(own);
            exit(u8::from(!done));
        };
        assert_eq!(child.status(), 0, "the child's own port does not work");
        assert_quiet(&port, on);
        theirs.write(b"x").unwrap();
        assert_eq!(*the_token(&port, on).key(), "parent's");
        assert_quiet(&port, on);
    });
}

/// Rule 32: what was handed to the parent is the parent's alone, also if a batch was half taken. A
/// simulated kernel has no processes, so only the real one is asked.
#[test]
fn a_forked_child_takes_nothing_of_its_parents_batch_epoll() {
    if !in_a_process_of_its_own("removal::a_forked_child_takes_nothing_of_its_parents_batch_epoll")
    {
        return;
    }
    testkit::run(System::native, |on| {
        let port = on.port::<(), usize>(1);
        (0..3).for_each(|message| port.post(message).unwrap());
        let mut batch = Batch::new();
        let mut packets = port.wait(&mut batch, on.soon()).unwrap();
        assert!(matches!(packets.next(), Some(Packet::Posted(0))));
        let Some(child) = fork() else {
            let nothing = packets.next().is_none() && port.stats().packets.total() == 0;
            drop(packets);
            exit(u8::from(!nothing));
        };
        assert_eq!(child.status(), 0, "the child has a packet of its parent's");
        assert!(matches!(packets.next(), Some(Packet::Posted(1))));
        assert!(matches!(packets.next(), Some(Packet::Posted(2))));
    });
}

/// Rule 32. A simulated kernel has no processes, so only the real one is asked; in a process of its
/// own, since a fork would keep the sockets of other tests open.
#[test]
fn a_forked_child_is_told_so_and_the_parent_goes_on_epoll() {
    if !in_a_process_of_its_own("removal::a_forked_child_is_told_so_and_the_parent_goes_on_epoll") {
        return;
    }
    testkit::run(System::native, |on| {
        let port = on.port::<Socket, usize>(1);
        let (ours, theirs) = on.unix_pair();
        let (more, more_theirs) = on.unix_pair();
        let (held, held_theirs) = on.unix_pair();
        let owned = |socket| Registration::owned(socket, Interest::IN, OneShot::Level);
        let first = port.register(owned(held)).unwrap();
        held_theirs.write(b"x").unwrap();
        let token = the_token(&port, on);
        let id = port.register(owned(ours)).unwrap();
        port.post(1).unwrap();

        let Some(child) = fork() else {
            let code = in_the_child(&port, token, id, more, [&more_theirs, &held_theirs]);
            drop(port);
            exit(code);
        };
        assert_eq!(child.status(), 0, "the child failed at the step with that number");

        // Everything is as it was: the set, the wake-up, the queue, the keys.
        assert!(matches!(the_one(&port, on), Packet::Posted(1)));
        theirs.write(b"x").unwrap();
        assert_eq!(the_token(&port, on).id(), id);
        assert_eq!(token.key().drain(), 1);
        token.rearm().unwrap();
        assert_quiet(&port, on);
        held_theirs.write(b"x").unwrap();
        assert_eq!(the_token(&port, on).id(), first);
        port.register(owned(more)).unwrap();
        more_theirs.write(b"x").unwrap();
        drop(the_token(&port, on));
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            let waiter = scope.spawn(|| port.wait(&mut Batch::new(), None).unwrap().count());
            settle(on, &port, 1);
            port.post(2).unwrap();
            assert_eq!(waiter.join().unwrap(), 1);
        });
    });
}

/// Every call says so, and nothing acts on the parent's kernel objects. Returns 0, or the number of
/// the step that failed.
fn in_the_child(
    port: &Port<Socket, usize>,
    token: Ready<'_, Socket>,
    id: Id,
    more: Socket,
    peers: [&Socket; 2],
) -> u8 {
    fn is_forked<T>(outcome: Result<T, Error>) -> bool {
        outcome.is_err_and(|error| error.kind() == ErrorKind::Forked)
    }
    let mut batch = Batch::new();
    let mut changes = Changes::new();
    changes.remove(id);
    let registered = port.register(Registration::owned(more, Interest::IN, OneShot::Level));
    let more = registered.map_err(Refused::into_parts);
    let armed = token.rearm().map_err(Refused::into_parts);
    let steps = [
        is_forked(port.wait(&mut batch, None)),
        is_forked(port.process(&mut changes, &mut batch, None)),
        changes.len() == 1,
        port.post(2)
            .is_err_and(|refused| refused.kind() == ErrorKind::Forked && *refused.value() == 2),
        // The keys are given back, and the sockets can be used.
        more.is_err_and(|(error, socket)| {
            error.kind() == ErrorKind::Forked && peers[0].write(b"y").is_ok() && socket.drain() == 1
        }),
        armed.is_err_and(|(error, socket)| {
            error.kind() == ErrorKind::Forked && socket.write(b"y").is_ok() && peers[1].drain() == 1
        }),
        is_forked(port.rearm(id, Interest::IN, OneShot::Level)),
        is_forked(port.disable(id)),
        is_forked(port.remove(id)),
        is_forked(port.remove_and_wait(id, None)),
        is_forked(port.shutdown()),
        port.blocking(|| 7) == 7,
    ];
    port.close();
    steps.iter().position(|done| !done).map_or(0, |step| u8::try_from(step + 1).unwrap_or(99))
}

/// Rule 30: a descriptor that is sent over a socket and closed lives on while it is under way, and so does what
/// the kernel has of it. Received again under its old number it is what was registered, or free if that has
/// ended. Descriptors cannot be sent over simulated sockets; in a process of its own, in which no other test
/// takes the number.
#[test]
fn a_descriptor_that_was_sent_away_may_come_back_epoll() {
    if !in_a_process_of_its_own("removal::a_descriptor_that_was_sent_away_may_come_back_epoll") {
        return;
    }
    for system in [System::native, System::spread] {
        testkit::run(system, |on| {
            for was in ["armed", "held", "removed"] {
                let port = on.port::<&str, usize>(1);
                assert_quiet(&port, on);
                let (here, there) = on.unix_pair();
                let event = on.event();
                let number = event.as_raw_fd();
                let keeps_it = event.dup().unwrap();
                let id = port.register(one_shot(&event, "sent")).unwrap();
                let token = (was == "held").then(|| {
                    keeps_it.signal(1).unwrap();
                    the_token(&port, on)
                });
                testkit::rights::send(&here, &event);
                drop(event);
                if was == "removed" {
                    // Too late for the kernel, which has no such number any more.
                    port.remove(id).unwrap();
                    assert_eq!(the_removed(&port, on), (id, "sent"));
                }
                if was != "armed" {
                    // Nothing is reported of what is under way.
                    keeps_it.signal(1).unwrap();
                    assert_quiet(&port, on);
                }
                let back = testkit::rights::receive(&there);
                assert_eq!(back.as_raw_fd(), number);
                let new = Registration::new(&back, "back", Interest::IN, OneShot::Level);
                let current = match port.register(new) {
                    Ok(new) => {
                        assert_eq!(was, "removed");
                        assert_eq!(*the_token(&port, on).key(), "back");
                        new
                    }
                    Err(refused) => {
                        assert_ne!(was, "removed");
                        assert_eq!(refused.kind(), ErrorKind::AlreadyRegistered);
                        token.map_or(Ok(()), Ready::rearm).unwrap();
                        keeps_it.signal(1).unwrap();
                        let token = the_token(&port, on);
                        assert_eq!((token.id(), *token.key()), (id, "sent"));
                        assert!(keeps_it.drain() > 0);
                        token.rearm().unwrap();
                        assert_quiet(&port, on);
                        id
                    }
                };
                keeps_it.signal(1).unwrap();
                let live = was != "removed";
                assert_eq!(port.is_current(current), live);
                assert_eq!(port.stats().registered, usize::from(live));
            }
        });
    }
}
