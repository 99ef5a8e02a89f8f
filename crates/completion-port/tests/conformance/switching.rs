//! Rule 78: switching between a token and a shared association, and replacing a key.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread;

use completion_port::{
    BorrowedSource, Call, ErrorKind, Events, Interest, OneShot, Operation, Packet, Persistent,
    Port, Ready, Registration, SharedId, Source,
};
use testkit::{Socket, System, on_every_system};

use crate::kit::files::read;
use crate::kit::operations::{
    Shared, all, bytes, done, finished, next, outcome, room, shared_on, silent, sort, why,
};
use crate::kit::packets::{assert_closed, given_back, notified, one_shot, ready, refused};

/// A key whose kind says how far its connection is.
#[derive(Debug)]
enum Peer {
    New(Socket),
    Known(Socket, u32),
    Gone(Socket),
}

impl Source for Peer {
    fn as_source(&self) -> BorrowedSource<'_> {
        let (Self::New(socket) | Self::Known(socket, _) | Self::Gone(socket)) = self;
        socket.as_source()
    }
}

impl Peer {
    fn known(self, number: u32) -> Self {
        let (Self::New(socket) | Self::Known(socket, _) | Self::Gone(socket)) = self;
        Self::Known(socket, number)
    }
}

/// A token of one end of a pair, and the other end.
fn token_of<'p>(port: &'p Port<Shared, u32>, on: &System) -> (Ready<'p, Shared>, Socket) {
    let (near, far) = on.unix_pair();
    (port.associate(Shared::new(near)).unwrap(), far)
}

fn unshare_fails(port: &Port<Shared, u32>, id: SharedId) -> ErrorKind {
    let error = port.unshare(id).unwrap_err();
    assert_eq!(error.call(), Call::Share);
    error.kind()
}

on_every_system! {
    /// Rule 78: the registration continues, in both directions and any number of times.
    fn a_token_is_shared_and_comes_back(system: &System) {
        let port = shared_on(system);
        let (mut token, far) = token_of(&port, system);
        let name = token.id();
        for round in 0..3 {
            let id = token.share().unwrap();
            assert_eq!(id.id(), name);
            let receive = port.start(id, Operation::recv(room(4))).unwrap();
            let send = port.start(id, Operation::send(b"x".to_vec())).unwrap();
            far.write(b"y").unwrap();
            let mut ended = Vec::new();
            for packet in all(&port, system, 2) {
                let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
                ended.push(finished.operation());
            }
            assert!(ended.contains(&receive) && ended.contains(&send), "round {round}");
            assert_eq!(far.read_within(system.soon(), 1), b"x");
            token = port.unshare(id).unwrap();
            assert_eq!((token.id(), token.events()), (name, Events::NONE));
            token.recv(room(4)).unwrap();
            far.write(b"z").unwrap();
            let (back, outcome) = done(&port, system);
            assert_eq!(bytes(outcome), b"z");
            token = back;
        }
        assert_eq!(port.id_of(&**token.key()), Some(name));
        token.rearm_as(Interest::OUT, OneShot::Level).unwrap();
        assert_eq!(ready(&port, system).id(), name);
        assert_eq!(port.stats().registered, 0, "the token was dropped");
    }

    /// Rule 78: an association that was shared from the beginning gets a token too.
    fn any_shared_association_comes_back(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let token = port.unshare(id).unwrap();
        assert_eq!(refused(port.enable(id.id(), Interest::IN, OneShot::Level)), ErrorKind::KeyHeld);
        token.rearm_as(Interest::IN, OneShot::Level).unwrap();
        far.write(b"x").unwrap();
        let token = ready(&port, system);
        assert_eq!(token.events(), Events::IN);
        // The descriptor is the key's own again.
        let near = Shared::into_inner(token.into_key()).expect("nothing else has the key");
        assert_eq!(near.read_within(system.soon(), 1), b"x");
    }

    /// Rule 78: an operation is in flight until its packet was taken.
    fn a_key_does_not_come_back_while_operations_share_it(system: &System) {
        let port = shared_on(system);
        let (token, far) = token_of(&port, system);
        let id = token.share().unwrap();
        let receives: Vec<_> =
            (0..2).map(|_| port.start(id, Operation::recv(room(1))).unwrap()).collect();
        assert_eq!(unshare_fails(&port, id), ErrorKind::KeyShared);
        far.write(b"x").unwrap();
        assert_eq!(bytes(finished(&port, system).into_parts().1), b"x");
        assert_eq!(unshare_fails(&port, id), ErrorKind::KeyShared);
        assert!(port.cancel(receives[1]).unwrap());
        assert_eq!(unshare_fails(&port, id), ErrorKind::KeyShared);
        assert_eq!(why(finished(&port, system).error()), ErrorKind::Cancelled);
        drop(port.unshare(id).unwrap());
        assert_eq!(unshare_fails(&port, id), ErrorKind::NotRegistered);
    }

    /// Rule 78: by the name nothing is started while a token, or its operation, has the key.
    fn what_is_not_shared_starts_nothing_by_its_name(system: &System) {
        let port = shared_on(system);
        let (token, far) = token_of(&port, system);
        let id = token.share().unwrap();
        let token = port.unshare(id).unwrap();
        let start = |bytes: &[u8]| {
            let (error, operation) =
                port.start(id, Operation::send(bytes.to_vec())).unwrap_err().into_parts();
            assert_eq!(operation.into_buffer().as_deref(), Some(bytes));
            error.kind()
        };
        assert_eq!(start(b"1"), ErrorKind::NotShared);
        assert_eq!(unshare_fails(&port, id), ErrorKind::NotShared);
        token.recv(room(1)).unwrap();
        assert_eq!(start(b"2"), ErrorKind::NotShared);
        assert_eq!(unshare_fails(&port, id), ErrorKind::NotShared);
        far.write(b"x").unwrap();
        let (token, _) = done(&port, system);
        token.park().unwrap();
        assert_eq!(start(b"3"), ErrorKind::NotShared);
        assert_eq!(unshare_fails(&port, id), ErrorKind::NotShared);
        port.remove(id.id()).unwrap();
        assert_eq!(start(b"4"), ErrorKind::Removing);
        assert_eq!(unshare_fails(&port, id), ErrorKind::Removing);
        drop(next(&port, system));
        assert_eq!(start(b"5"), ErrorKind::NotRegistered);
    }

    /// Rule 78: triggers are as rule 65 says, from the switch on.
    fn a_switch_changes_which_triggers_are_possible(system: &System) {
        let port = shared_on(system);
        let (token, far) = token_of(&port, system);
        let id = token.share().unwrap();
        for trigger in [OneShot::Level, OneShot::Edge] {
            assert_eq!(refused(port.enable(id.id(), Interest::OUT, trigger)), ErrorKind::KeyShared);
        }
        silent(&port, system);
        port.enable(id.id(), Interest::IN, Persistent::Edge).unwrap();
        far.write(b"x").unwrap();
        assert!(notified(&port, system).events().is_in());
        port.disable(id.id()).unwrap();
        silent(&port, system);
        let token = port.unshare(id).unwrap();
        token.park().unwrap();
        // It need not be parked by its token to become persistent, and one-shot again.
        port.enable(id.id(), Interest::NONE, Persistent::Level).unwrap();
        port.enable(id.id(), Interest::IN, OneShot::Level).unwrap();
        let token = ready(&port, system);
        assert_eq!(token.events(), Events::IN);
        token.share().unwrap();
        assert_eq!(
            refused(port.enable(id.id(), Interest::OUT, OneShot::Level)),
            ErrorKind::KeyShared
        );
    }

    /// Rule 78: an enabled association is disabled, and what arrived meanwhile is reported.
    fn a_token_reports_what_came_while_the_key_was_shared(system: &System) {
        let port = shared_on(system);
        let (token, far) = token_of(&port, system);
        let id = token.share().unwrap();
        port.enable(id.id(), Interest::IN, Persistent::Level).unwrap();
        silent(&port, system);
        let token = port.unshare(id).unwrap();
        far.write(b"x").unwrap();
        silent(&port, system);
        token.rearm_as(Interest::IN, OneShot::Level).unwrap();
        let token = ready(&port, system);
        assert_eq!(token.events(), Events::IN);
        // It came while an operation of the other direction was in flight.
        let id = token.share().unwrap();
        port.start(id, Operation::send(b"y".to_vec())).unwrap();
        far.write(b"z").unwrap();
        drop(finished(&port, system));
        let token = port.unshare(id).unwrap();
        token.rearm_as(Interest::IN, OneShot::Edge).unwrap();
        assert_eq!(ready(&port, system).events(), Events::IN);
    }

    /// Rule 78: a report that another thread requested waits for the next report of either kind.
    fn an_extra_report_outlasts_a_switch(system: &System) {
        let port = shared_on(system);
        let (token, _far) = token_of(&port, system);
        let name = token.id();
        port.enable_also(name, Interest::OUT).unwrap();
        let id = token.share().unwrap();
        let packet = notified(&port, system);
        assert_eq!((packet.id(), packet.events()), (name, Events::OUT));
        port.disable(name).unwrap();
        silent(&port, system);
        let token = port.unshare(id).unwrap();
        port.enable_also(name, Interest::OUT).unwrap();
        silent(&port, system);
        token.park().unwrap();
        assert_eq!(ready(&port, system).events(), Events::OUT);
    }

    /// Rule 78: a queued packet of readiness brings a clone, so the key stays.
    fn a_key_does_not_come_back_while_a_packet_is_queued(system: &System) {
        let port = shared_on(system);
        let (token, far) = token_of(&port, system);
        let id = token.share().unwrap();
        port.enable(id.id(), Interest::IN, Persistent::Level).unwrap();
        far.write(b"x").unwrap();
        assert!(notified(&port, system).events().is_in());
        // The condition holds, so another packet is queued for a check.
        assert_eq!(unshare_fails(&port, id), ErrorKind::KeyShared);
        port.disable(id.id()).unwrap();
        assert_eq!(unshare_fails(&port, id), ErrorKind::KeyShared);
        silent(&port, system);
        drop(port.unshare(id).unwrap());
    }

    /// Rule 78: a removal waits for the key as it does when a token is parked.
    fn a_removal_takes_the_key_that_is_shared(system: &System) {
        let port = shared_on(system);
        let (token, _far) = token_of(&port, system);
        let name = token.id();
        port.remove(name).unwrap();
        let id = token.share().unwrap();
        assert_eq!(unshare_fails(&port, id), ErrorKind::Removing);
        let started = port.start(id, Operation::recv(room(1))).unwrap_err();
        assert_eq!(started.kind(), ErrorKind::Removing);
        let Packet::Removed(removed, key) = next(&port, system) else { panic!("no removal") };
        assert_eq!(removed, name);
        assert!(Shared::into_inner(key).is_some());
        // A token that was shared before the removal returns it in the same way.
        let (token, _far) = token_of(&port, system);
        let id = token.share().unwrap();
        let token = port.unshare(id).unwrap();
        thread::scope(|scope| {
            let remover = scope.spawn(|| port.remove_and_wait(id.id(), None).map(drop));
            while port.id_of(&**token.key()).is_some() {
                thread::yield_now();
            }
            token.share().unwrap();
            remover.join().unwrap().unwrap();
        });
        silent(&port, system);
    }

    /// Rule 78: the end of the port refuses a switch as it refuses other calls.
    fn a_port_that_ends_takes_part_in_no_switch(system: &System) {
        let port = shared_on(system);
        let (token, _far) = token_of(&port, system);
        let (other, _far) = token_of(&port, system);
        let id = other.share().unwrap();
        port.close();
        let (kind, key) = given_back(token.share());
        assert_eq!(kind, ErrorKind::Closed);
        assert!(Shared::into_inner(key).is_some());
        assert_eq!(unshare_fails(&port, id), ErrorKind::Closed);

        let port = shared_on(system);
        let (token, _far) = token_of(&port, system);
        port.shutdown().unwrap();
        token.share().unwrap();
        assert!(matches!(next(&port, system), Packet::Removed(..)));
        assert_closed(&port, system);
    }

    /// Rule 78: only a key that owns its descriptor is shared, and only its own.
    fn a_key_without_its_descriptor_is_not_shared(system: &System) {
        let port = shared_on(system);
        let (near, _far) = system.unix_pair();
        let (other, _far) = system.unix_pair();
        port.register(Registration::new(
            &near,
            Shared::new(other),
            Interest::OUT,
            OneShot::Level,
        ))
        .unwrap();
        let (kind, other) = given_back(ready(&port, system).share());
        assert_eq!(kind, ErrorKind::NotOwned);
        let mut token = port.associate(Shared::new(near)).unwrap();
        *token.key_mut() = other;
        assert_eq!(given_back(token.share()).0, ErrorKind::BadDescriptor);
        assert_eq!(port.stats().registered, 0);
    }

    /// Rule 78: threads that start operations and one that takes the key back agree.
    fn a_key_is_a_tokens_or_is_shared_whatever_threads_do(system: &System) {
        system.several_threads_wait();
        const ROUNDS: usize = 200;
        let port = shared_on(system);
        let (token, _far) = token_of(&port, system);
        let id = token.share().unwrap();
        thread::scope(|scope| {
            let starters: Vec<_> = (0..2)
                .map(|_| {
                    scope.spawn(|| {
                        let mut in_flight = 0;
                        for _ in 0..ROUNDS {
                            match port.start(id, Operation::recv_from(room(1))) {
                                Ok(name) => {
                                    in_flight += 1;
                                    port.cancel(name).unwrap();
                                }
                                Err(refused) => assert_eq!(refused.kind(), ErrorKind::NotShared),
                            }
                            let enabled = port.enable(id.id(), Interest::HANGUP, OneShot::Level);
                            assert!(matches!(
                                enabled.unwrap_err().kind(),
                                ErrorKind::KeyShared | ErrorKind::KeyHeld
                            ));
                        }
                        in_flight
                    })
                })
                .collect();
            let (mut taken, mut switched) = (0, 0);
            while switched < ROUNDS {
                match port.unshare(id) {
                    Ok(mut token) => {
                        switched += 1;
                        let clones = token.key_mut().clone();
                        drop(clones);
                        token.share().unwrap();
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::KeyShared);
                        let mut batch = completion_port::Batch::new();
                        taken += port.wait(&mut batch, std::time::Duration::ZERO).unwrap().count();
                    }
                }
            }
            let started: usize = starters.into_iter().map(|it| it.join().unwrap()).sum();
            let mut batch = completion_port::Batch::new();
            while taken < started {
                taken += port.wait(&mut batch, system.soon()).unwrap().count();
            }
            assert_eq!(taken, started);
        });
        drop(port.unshare(id).unwrap());
    }

    /// Rule 78: a key is replaced by value and keeps its descriptor.
    fn a_key_is_replaced_by_another_of_its_kind(system: &System) {
        let port: Port<Peer, u32> = system.port(1);
        let (near, far) = system.unix_pair();
        let token = port.associate(Peer::New(near)).unwrap();
        let name = token.id();
        let token = token.map_key(|peer| peer.known(7)).unwrap();
        assert_eq!(token.id(), name);
        assert!(matches!(token.key(), Peer::Known(_, 7)));
        token.recv(room(4)).unwrap();
        far.write(b"x").unwrap();
        let (token, received) = done(&port, system);
        assert_eq!(bytes(received), b"x");
        token.rearm_as(Interest::OUT, OneShot::Level).unwrap();
        let mut token = ready(&port, system);
        token.write_full();
        let token = token.map_key(|peer| peer.known(8)).unwrap();
        assert_eq!(token.events(), Events::OUT, "it is the same token");
        port.remove(name).unwrap();
        let token = token.map_key(|peer| peer.known(9)).unwrap();
        token.park().unwrap();
        let packet = next(&port, system);
        assert!(matches!(packet, Packet::Removed(_, Peer::Known(_, 9))), "{}", sort(&packet));
    }

    /// Rule 78: a key of another descriptor is returned, and the registration has ended.
    fn a_key_is_not_replaced_by_one_of_another_descriptor(system: &System) {
        let port: Port<Peer, u32> = system.port(1);
        let (near, far) = system.unix_pair();
        let token = port.associate(Peer::New(near)).unwrap();
        let mut old = None;
        let mapped = token.map_key(|peer| {
            old = Some(peer);
            Peer::Gone(far)
        });
        let (error, key) = mapped.map(drop).unwrap_err().into_parts();
        assert_eq!((error.call(), error.kind()), (Call::MapKey, ErrorKind::BadDescriptor));
        assert!(matches!(key, Peer::Gone(_)));
        assert_eq!(port.stats().registered, 0);
        // Both sockets are open, and may be registered again.
        drop(port.associate(old.unwrap()).unwrap());
        drop(port.associate(key).unwrap());
    }

    /// Rule 78: a panic ends the registration, as if the token had been dropped.
    fn a_panic_while_a_key_is_replaced_ends_its_registration(system: &System) {
        let port: Port<Peer, u32> = system.port(1);
        let (near, _far) = system.unix_pair();
        let token = port.associate(Peer::New(near)).unwrap();
        let name = token.id();
        let mut kept = None;
        let mapped = catch_unwind(AssertUnwindSafe(|| {
            token.map_key(|peer| {
                kept = Some(peer);
                std::panic::resume_unwind(Box::new("on purpose"))
            })
        }));
        assert!(mapped.is_err());
        assert_eq!((port.stats().registered, port.id_of(kept.as_ref().unwrap())), (0, None));
        assert_eq!(refused(port.remove(name)), ErrorKind::NotRegistered);
        drop(port.associate(kept.unwrap()).unwrap());
        silent(&port, system);
    }

    /// Rule 78: a key that does not own its descriptor may be any other.
    fn a_key_of_a_borrowed_descriptor_is_replaced_by_any(system: &System) {
        let port: Port<String, u32> = system.port(1);
        let (near, far) = system.unix_pair();
        port.register(one_shot(&near, "first".to_owned())).unwrap();
        far.write(b"x").unwrap();
        let token = ready(&port, system).map_key(|key| key + " and last").unwrap();
        assert_eq!(token.key(), "first and last");
        token.rearm().unwrap();
        assert_eq!(ready(&port, system).into_key(), "first and last");
    }

    /// Rules 47 and 78: a token that owns its port is shared and changed too.
    fn a_token_that_owns_its_port_switches_too(system: &System) {
        let port = Arc::new(shared_on(system));
        let (token, _far) = token_of(&port, system);
        let token = token.with_port(&port).unwrap_or_else(|_| unreachable!("it is this port's"));
        let token = token.map_key(|key| key).unwrap();
        let id = token.share().unwrap();
        drop(port.unshare(id).unwrap());
        let port: Arc<Port<Peer, u32>> = Arc::new(system.port(1));
        let (near, far) = system.unix_pair();
        let token = port.associate(Peer::New(near)).unwrap();
        let token = token.with_port(&port).unwrap_or_else(|_| unreachable!("it is this port's"));
        let mapped = token.map_key(|_| Peer::Gone(far));
        assert_eq!(given_back(mapped.map(drop)).0, ErrorKind::BadDescriptor);
        assert_eq!((port.stats().registered, Arc::strong_count(&port)), (0, 1));
    }
}

/// Rule 78: a file is shared and returns to a token.
#[test]
fn a_file_is_shared_and_comes_back() {
    let system = System::simulated();
    let port = shared_on(&system);
    let token = port.associate(Shared::new(system.file(b"bytes"))).unwrap();
    let id = token.share().unwrap();
    port.start(id, Operation::read_at(room(5), 0)).unwrap();
    assert_eq!(read(outcome(&port, &system)), Ok(b"bytes".to_vec()));
    let token = port.unshare(id).unwrap();
    token.read_at(room(2), 0).unwrap();
    assert_eq!(read(outcome(&port, &system)), Ok(b"by".to_vec()));
}
