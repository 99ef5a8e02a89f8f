//! Rules 50 and 51: associations, and starting operations.

use completion_port::{
    Call, Error, ErrorKind, Interest, OneShot, Operation, Outcome, Packet, Registration,
    SharedSource, Started,
};
use testkit::on_every_system;

use crate::kit::descriptors::{Numbered, closed};
use crate::kit::ledger::{Ledger, Owner};
use crate::kit::operations::{
    HOUR, Noted, Shared, accepted, all, assert_connected, bytes, connected, done, finished, next,
    room, sent, shared_on, silent, sockets_on, sort, why,
};
use crate::kit::packets::{given_back, ready, refused};
use crate::kit::sockets::{assert_end_seen, await_unread};

on_every_system! {
    /// Rule 50: its interest is empty, and nothing is reported.
    fn an_association_asks_for_nothing(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        let token = port.associate(near).unwrap();
        assert!(token.events().is_empty());
        far.write(b"x").unwrap();
        silent(&port, system);
        let id = token.park().unwrap();
        silent(&port, system);
        port.enable(id, Interest::IN, OneShot::Level).unwrap();
        assert!(ready(&port, system).events().is_in());
    }

    /// Rule 50: the token starts an operation, arms for readiness, or ends the registration.
    fn a_token_says_what_comes_next(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        let number = near.number();
        port.associate(near).unwrap().recv(room(4)).unwrap();
        far.write(b"one").unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(bytes(outcome), b"one");
        token.rearm_as(Interest::IN, OneShot::Level).unwrap();
        silent(&port, system);
        far.write(b"two").unwrap();
        let token = ready(&port, system);
        assert!(token.events().is_in());
        token.send_all(b"three".to_vec()).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(sent(&outcome), Ok(5));
        let id = token.id();
        // It reports the condition it was armed for, whatever happened in between.
        token.rearm().unwrap();
        let token = ready(&port, system);
        assert!(token.events().is_in() && token.id() == id);
        let near = token.into_key();
        assert_eq!(near.number(), number);
        assert_eq!(far.read_within(system.soon(), 5), b"three");
        assert_eq!(port.stats().registered, 0);
        silent(&port, system);
        // Dropping the token closes its key.
        drop(port.associate(near).unwrap());
        assert_end_seen(&far, system);
    }

    /// Rule 50: a descriptor registered for readiness is an association too.
    fn the_token_of_a_report_starts_operations(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.tcp_pair();
        let registration = Registration::owned(near, Interest::IN, OneShot::Level);
        let id = port.register(registration).unwrap();
        far.write(b"hello").unwrap();
        ready(&port, system).recv(room(16)).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!((bytes(outcome), token.id()), (b"hello".to_vec(), id));
        token.rearm().unwrap();
        silent(&port, system);
        far.write(b"x").unwrap();
        assert!(ready(&port, system).events().is_in());
    }

    /// Rule 50: the error returns the key.
    fn what_cannot_be_associated_is_given_back(system: &System) {
        let port = system.port::<Owner, u32>(1);
        let ledger = Ledger::default();
        let owner = |socket| Owner { socket, _entry: ledger.entry() };
        let (near, _far) = system.unix_pair();
        let again = near.number();
        let token = port.associate(owner(near)).unwrap();
        let other = system.port::<SharedSource<Numbered>, u32>(1);
        let gone = SharedSource::new(closed(system));
        let error = other.associate(gone).map(drop).unwrap_err();
        assert_eq!(
            (error.kind(), error.error().call()),
            (ErrorKind::BadDescriptor, Call::Associate)
        );
        let (why, gone) = given_back(other.associate_shared(error.into_parts().1));
        assert_eq!(why, ErrorKind::BadDescriptor);
        assert!(SharedSource::into_inner(gone).is_some());
        assert_eq!(token.key().socket.number(), again);
        port.close();
        let (near, _far) = system.unix_pair();
        assert_eq!(given_back(port.associate(owner(near))).0, ErrorKind::Closed);
        assert_eq!(ledger.alive(), 1);
        drop(token);
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 50: a second association of a socket is refused, and leaves the first untouched.
    fn a_socket_is_associated_once(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let near = Shared::new(near);
        let id = port.associate_shared(near.clone()).unwrap();
        let refused = port.associate_shared(near.clone()).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::AlreadyRegistered);
        assert_eq!(refused.error().registration(), Some(id.id()));
        assert_eq!(given_back(port.associate(near)).0, ErrorKind::AlreadyRegistered);
        port.start(id, Operation::recv(room(4))).unwrap();
        far.write(b"x").unwrap();
        assert_eq!(bytes(finished(&port, system).into_parts().1), b"x");
    }

    /// Rule 50: a borrowed descriptor may be closed and reused before an operation uses it.
    fn an_operation_needs_a_key_that_owns_its_descriptor(system: &System) {
        let port = system.port::<usize, u32>(1);
        let (near, far) = system.unix_pair();
        port.register(Registration::new(&near, 7, Interest::IN, OneShot::Level)).unwrap();
        far.write(b"x").unwrap();
        let refused = ready(&port, system).recv(b"kept".to_vec()).unwrap_err();
        let error: Error = refused.error();
        assert_eq!((error.kind(), error.call()), (ErrorKind::NotOwned, Call::Receive));
        let (_, (key, operation)) = refused.into_parts();
        assert_eq!((key, operation.into_buffer()), (7, Some(b"kept".to_vec())));
        assert_eq!(port.stats().registered, 0);
        silent(&port, system);
        assert_eq!(near.unread().unwrap(), 1);
    }

    /// Rule 50: no operation uses a socket other than the associated one.
    fn an_operation_of_a_key_that_owns_another_socket_is_refused(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        let (other, other_far) = system.unix_pair();
        other_far.write(b"x").unwrap();
        let mut token = port.associate(near).unwrap();
        let near = std::mem::replace(token.key_mut(), other);
        let (why, (other, operation)) = given_back(token.start(Operation::recv(room(4))));
        assert_eq!(why, ErrorKind::BadDescriptor);
        assert!(operation.into_buffer().is_some());
        await_unread(&other, system, 1);
        assert_connected(&near, &far, system);
        silent(&port, system);
    }

    /// Rule 51: this holds for every kind of operation.
    fn each_operation_makes_one_packet(system: &System) {
        let port = sockets_on(system);
        let listener = system.tcp_listener(4);
        let address = listener.address().for_port();
        let listening = port.associate(listener).unwrap().accept().unwrap();
        silent(&port, system);
        let connecting = port.associate(system.tcp_fresh()).unwrap().connect(address).unwrap();
        assert!(listening != connecting);
        let (mut server, mut client) = (None, None);
        for packet in all(&port, system, 2) {
            let Packet::Completed(done) = packet else { panic!("{}", sort(&packet)) };
            match done.into_parts() {
                (_, outcome @ Outcome::Accepted(_)) => {
                    server = Some(accepted(outcome, system).unwrap());
                }
                (token, outcome) => {
                    connected(&outcome).unwrap();
                    client = Some(token);
                }
            }
        }
        let (server, client) = (server.unwrap(), client.unwrap());
        client.send(b"abc".to_vec()).unwrap();
        let (client, outcome) = done(&port, system);
        assert!(matches!(outcome, Outcome::Sent(Ok(3), ref buffer) if buffer == b"abc"));
        client.send_all(b"def".to_vec()).unwrap();
        let (client, outcome) = done(&port, system);
        assert!(matches!(outcome, Outcome::Sent(Ok(3), _)));
        assert_eq!(server.read_within(system.soon(), 6), b"abcdef");
        client.recv(room(8)).unwrap();
        silent(&port, system);
        server.write(b"gh").unwrap();
        assert_eq!(bytes(done(&port, system).1), b"gh");
        silent(&port, system);
        let packets = port.stats().packets;
        assert_eq!((packets.completed, packets.total()), (5, 5));
    }

    /// Rule 51: its packet is queued like all others.
    fn what_is_done_at_once_makes_a_packet_all_the_same(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        far.write(b"x").unwrap();
        await_unread(&near, system, 1);
        port.associate(near).unwrap().recv(room(4)).unwrap();
        assert_eq!(port.stats().packets.total(), 0);
        let (token, outcome) = done(&port, system);
        assert_eq!(bytes(outcome), b"x");
        token.send(b"y".to_vec()).unwrap();
        // It has been sent when the start returns.
        assert_eq!(far.read_within(system.soon(), 1), b"y");
        assert_eq!(port.stats().queued, 1);
        assert_eq!(sent(&done(&port, system).1), Ok(1));
        silent(&port, system);
    }

    /// Rule 51: no packet if it completes immediately, and one otherwise.
    fn what_is_started_now_makes_a_packet_only_if_it_has_to_wait(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        let token = port.associate(near).unwrap();
        let Started::Completed((token, outcome)) =
            token.start_now(Operation::send_all(b"now".to_vec())).unwrap()
        else {
            panic!("there is room for it")
        };
        assert_eq!(sent(&outcome), Ok(3));
        assert_eq!(far.read_within(system.soon(), 3), b"now");
        silent(&port, system);
        let started = token.start_now(Operation::recv(room(4))).unwrap();
        assert!(matches!(started, Started::InFlight(_)));
        far.write(b"x").unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(bytes(outcome), b"x");
        // The returned token can be used in every way.
        let started = token.start_now(Operation::send(b"y".to_vec())).unwrap();
        let Started::Completed((token, _)) = started else { panic!("there is room for it") };
        token.rearm_as(Interest::IN, OneShot::Level).unwrap();
        far.write(b"z").unwrap();
        assert!(ready(&port, system).events().is_in());
        assert_eq!(port.stats().packets.completed, 1);
    }

    /// Rule 51: the same through a `SharedId`.
    fn what_is_started_now_by_name_makes_a_packet_only_if_it_has_to_wait(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        for _ in 0..3 {
            let started = port.start_now(id, Operation::send_all(b"now".to_vec())).unwrap();
            assert!(matches!(started, Started::Completed(Outcome::Sent(Ok(3), _))));
        }
        let started = port.start_now(id, Operation::recv(room(4))).unwrap();
        let Started::InFlight(operation) = started else { panic!("there is nothing") };
        silent(&port, system);
        far.write(b"x").unwrap();
        let packet = finished(&port, system);
        assert_eq!((packet.operation(), packet.id()), (operation, id));
        assert_eq!(bytes(packet.into_parts().1), b"x");
        // An operation that completes without a packet delays no removal.
        port.remove(id.id()).unwrap();
        assert!(matches!(next(&port, system), Packet::Removed(..)));
    }

    /// Rule 51: key and operation are returned, and there is no packet.
    fn what_a_token_may_not_start_comes_back(system: &System) {
        let ledger = Ledger::default();
        let buffer = || Noted::new(room(4), &ledger);
        for ends in ["removed", "closed", "shut down"] {
            let port = system.port_with_buffers::<Owner, u32, Noted>(1);
            let (near, _far) = system.unix_pair();
            let key = Owner { socket: near, _entry: ledger.entry() };
            let token = port.associate(key).unwrap();
            let wanted = match ends {
                "removed" => port.remove(token.id()).map(|()| ErrorKind::Removing).unwrap(),
                "closed" => {
                    port.close();
                    ErrorKind::Closed
                }
                _ => port.shutdown().map(|()| ErrorKind::Closed).unwrap(),
            };
            let (why, (key, operation)) = given_back(token.recv(buffer()));
            assert_eq!(why, wanted, "{ends}");
            assert_eq!(ledger.alive(), 2);
            assert!(operation.into_buffer().is_some());
            drop(key);
            assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
            if ends == "removed" {
                silent(&port, system);
            } else {
                let mut batch = completion_port::Batch::new();
                assert_eq!(refused(port.wait(&mut batch, HOUR)), ErrorKind::Closed);
            }
        }
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 51: the operation is returned, and there is no packet.
    fn what_may_not_be_started_by_name_comes_back(system: &System) {
        let port = shared_on(system);
        let kept = || Operation::send(b"kept".to_vec());
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let in_flight = port.start(id, Operation::recv(room(4))).unwrap();
        port.remove(id.id()).unwrap();
        let (reason, operation) = given_back(port.start(id, kept()));
        assert_eq!((reason, operation.into_buffer()), (ErrorKind::Removing, Some(b"kept".to_vec())));
        let packet = finished(&port, system);
        assert_eq!((packet.operation(), why(packet.error())), (in_flight, ErrorKind::Cancelled));
        assert_eq!(given_back(port.start(id, kept())).0, ErrorKind::Removing);
        assert!(matches!(next(&port, system), Packet::Removed(..)));
        assert_eq!(given_back(port.start(id, kept())).0, ErrorKind::NotRegistered);
        assert_eq!(given_back(port.start_now(id, kept())).0, ErrorKind::NotRegistered);
        let (near, _far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        port.close();
        assert_eq!(given_back(port.start(id, kept())).0, ErrorKind::Closed);
        assert_eq!(far.unread().unwrap(), 0);
    }

    /// Rule 51: each id names only one operation.
    fn each_operation_has_a_name_of_its_own(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        let mut names = Vec::new();
        let mut token = port.associate(near).unwrap();
        for _ in 0..5 {
            names.push(token.recv(room(4)).unwrap());
            far.write(b"x").unwrap();
            token = done(&port, system).0;
        }
        let last = token.recv(room(4)).unwrap();
        // None of the former ids names the operation in flight.
        for name in &names {
            assert!(!port.cancel(*name).unwrap());
        }
        silent(&port, system);
        names.push(last);
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 6);
        assert!(port.cancel(last).unwrap());
        assert_eq!(why(done(&port, system).1.error()), ErrorKind::Cancelled);
    }
}
