//! Rule 66: accepts with first data.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use completion_port::{
    Batch, Buffer, Call, Error, ErrorKind, Finished, Interest, OneShot, OpId, Operation, Outcome,
    Packet, Persistent, Port, Registration, SharedId, Started,
};
use testkit::{Socket, System, late, on_every_system};
#[cfg(target_os = "linux")]
use testkit::{in_a_process_of_its_own, in_forked_child};

use crate::kit::codes;
use crate::kit::ledger::Ledger;
use crate::kit::operations::{
    HOUR, MILLISECOND, Noted, Shared, accepted, accepted_with_data, all, assert_connected, bytes,
    done, finished, next, outcome, room, shared_on, silent, sockets_on, sort, why,
};
use crate::kit::packets::{each_packet, notified, refused};
use crate::kit::sockets::{POLLIN, POLLOUT, assert_end_seen, await_facts, await_unread, facts};
use crate::kit::threads::{End, eventually, hear, now};

/// An accept with first data.
fn accept() -> Operation {
    Operation::accept_and_recv(room(100))
}

/// A listener with so many accepts with first data in flight.
fn listening(
    port: &Port<Shared, u32>,
    on: &System,
    accepts: usize,
) -> (Shared, SharedId, Vec<OpId>) {
    let listener = Shared::new(on.tcp_listener(64));
    let id = port.associate_shared(listener.clone()).unwrap();
    let accepts = (0..accepts).map(|_| port.start(id, accept()).unwrap()).collect();
    (listener, id, accepts)
}

/// The operation of a packet, its connection, and what came with it.
#[track_caller]
fn parts<K>(finished: Finished<'_, K>, on: &System) -> (OpId, Socket, Vec<u8>) {
    let name = finished.operation();
    let (accepted, buffer) = accepted_with_data(finished.into_parts().1, on);
    let (socket, len) = accepted.unwrap();
    assert_eq!(len, buffer.len());
    (name, socket, buffer)
}

/// The peer finds its connection open, and nothing to read.
#[track_caller]
fn assert_open(peer: &Socket) {
    assert_eq!(peer.read(&mut [0; 4]).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

/// A buffer whose code panics when told to.
struct Failing {
    bytes: Vec<u8>,
    panics: Arc<AtomicBool>,
}

// SAFETY: the room is that of what it is made of, which promises the same.
unsafe impl Buffer for Failing {
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        self.bytes.filled(part);
    }

    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [std::mem::MaybeUninit<u8>])) {
        assert!(!self.panics.swap(false, SeqCst), "as it was told");
        // SAFETY: the room is that of the vector, and the caller's promise holds for it.
        unsafe { self.bytes.room(part) };
    }

    unsafe fn set_filled(&mut self, len: usize) {
        // SAFETY: `set_filled` demands that the first bytes of the room are initialized.
        // - the room is that of these bytes, and the caller says so.
        unsafe { self.bytes.set_filled(len) };
    }
}

on_every_system! {
    /// Rule 66: one packet brings both, with the peer's address, and the token goes on to the next
    /// connection.
    fn an_accept_brings_the_first_data(system: &System) {
        let port = sockets_on(system);
        let listener = system.tcp_listener(4);
        let same = listener.dup().unwrap();
        let mut token = port.associate(listener).unwrap();
        for _ in 0..3 {
            token.accept_and_recv(room(100)).unwrap();
            let client = system.tcp_connect(&same);
            silent(&port, system);
            client.write(b"hello").unwrap();
            let (listening, outcome) = done(&port, system);
            let Outcome::AcceptedAndReceived(Ok((source, peer, 5)), buffer) = outcome else {
                panic!("{outcome:?}")
            };
            assert_eq!(buffer, b"hello");
            assert_eq!(peer, Some(client.address().for_port()));
            let server = system.adopt(source);
            // It does not wait.
            assert_open(&server);
            assert_connected(&client, &server, system);
            assert_connected(&server, &client, system);
            token = listening;
        }
    }

    /// Rule 66: what has come before the accept is received at once, as much as there is room for.
    fn data_that_is_there_is_received_with_the_connection(system: &System) {
        let port = shared_on(system);
        let (listener, id, _) = listening(&port, system, 0);
        let clients = [b"first", b"other"].map(|data| {
            let client = system.tcp_connect(&listener);
            client.write(data).unwrap();
            client
        });
        await_facts(&listener, system, POLLIN);
        let started = port.start_now(id, Operation::accept_and_recv(room(2))).unwrap();
        let Started::Finished(outcome) = started else { panic!("data is there") };
        let (accepted, buffer) = accepted_with_data(outcome, system);
        let (server, len) = accepted.unwrap();
        assert_eq!((len, buffer.as_slice()), (2, b"fi".as_slice()));
        assert_eq!(server.read_within(system.soon(), 3), b"rst");
        assert_connected(&server, &clients[0], system);
        // By a packet.
        port.start(id, accept()).unwrap();
        let (_, server, buffer) = parts(finished(&port, system), system);
        assert_eq!(buffer, b"other");
        assert_connected(&server, &clients[1], system);
        // And by a token.
        let port = sockets_on(system);
        let listener = system.tcp_listener(4);
        let client = system.tcp_connect(&listener);
        client.write(b"third").unwrap();
        await_facts(&listener, system, POLLIN);
        let started = port.associate(listener).unwrap().start_now(accept()).unwrap();
        let Started::Finished((token, outcome)) = started else { panic!("data is there") };
        assert_eq!(accepted_with_data(outcome, system).1, b"third");
        let started = token.start_now(accept()).unwrap();
        assert!(matches!(started, Started::InFlight(_)), "nobody connects");
    }

    /// Rule 66: a client that connects and says nothing holds one operation, and no other one waits for it.
    fn a_silent_client_holds_one_operation_only(system: &System) {
        let port = shared_on(system);
        let (listener, _, accepts) = listening(&port, system, 4);
        let quiet = system.tcp_connect(&listener);
        silent(&port, system);
        let clients: Vec<_> = (0..3).map(|_| system.tcp_connect(&listener)).collect();
        silent(&port, system);
        // In the order in which they speak.
        for number in [2_usize, 0, 1] {
            clients[number].write(b"hello").unwrap();
            let (name, server, buffer) = parts(finished(&port, system), system);
            assert_eq!((name, buffer.as_slice()), (accepts[1 + number], b"hello".as_slice()));
            assert_connected(&server, &clients[number], system);
        }
        assert_open(&quiet);
        quiet.write(b"at last").unwrap();
        let (name, server, buffer) = parts(finished(&port, system), system);
        assert_eq!((name, buffer.as_slice()), (accepts[0], b"at last".as_slice()));
        assert_connected(&server, &quiet, system);
    }

    /// Rule 66: connections go to the operations in order, with first data or without.
    fn accepts_of_both_kinds_get_connections_in_order(system: &System) {
        let port = shared_on(system);
        let (listener, id, first) = listening(&port, system, 1);
        let plain = port.start(id, Operation::accept()).unwrap();
        let clients = [system.tcp_connect(&listener), system.tcp_connect(&listener)];
        let packet = finished(&port, system);
        assert_eq!(packet.operation(), plain);
        let server = accepted(packet.into_parts().1, system).unwrap();
        assert_connected(&server, &clients[1], system);
        clients[0].write(b"x").unwrap();
        let (name, server, _) = parts(finished(&port, system), system);
        assert_eq!(name, first[0]);
        assert_connected(&server, &clients[0], system);
    }

    /// Rule 66: the end of the stream is 0 bytes, and the connection is there.
    fn a_peer_that_ends_before_it_has_sent_anything_is_accepted(system: &System) {
        for connects_first in [false, true] {
            let port = shared_on(system);
            let (listener, id, _) = listening(&port, system, 0);
            let begin = || port.start(id, accept()).unwrap();
            if !connects_first {
                begin();
            }
            let client = system.tcp_connect(&listener);
            if !connects_first {
                silent(&port, system);
            }
            await_facts(&client, system, POLLOUT);
            client.shutdown(std::net::Shutdown::Write).unwrap();
            if connects_first {
                await_facts(&listener, system, POLLIN);
                begin();
            }
            let (_, server, buffer) = parts(finished(&port, system), system);
            assert!(buffer.is_empty());
            assert_connected(&server, &client, system);
        }
    }

    /// Rule 66: as an error with the system's code. The buffer comes back, and the listener goes on.
    fn a_reset_fails_the_operation(system: &System) {
        system.not_on_wine("error left to fetch once its driver has looked at the socket");
        for connects_first in [false, true] {
            let port = shared_on(system);
            let (listener, id, _) = listening(&port, system, 0);
            let begin = || port.start(id, accept()).unwrap();
            if !connects_first {
                begin();
            }
            let client = system.tcp_connect(&listener);
            if connects_first {
                await_facts(&listener, system, POLLIN);
            } else {
                silent(&port, system);
            }
            client.reset();
            if connects_first {
                begin();
            }
            let (_, outcome) = finished(&port, system).into_parts();
            let error = outcome.error().unwrap();
            assert_eq!((error.call(), error.os_code()), (Call::Accept, Some(codes::ECONNRESET)));
            assert!(outcome.into_buffer().unwrap().capacity() >= 100);
            assert_eq!(port.stats().registered, 1);
            begin();
            let client = system.tcp_connect(&listener);
            client.write(b"x").unwrap();
            let (_, server, _) = parts(finished(&port, system), system);
            assert_connected(&server, &client, system);
        }
    }

    /// Rule 66: without room there is nothing to wait for.
    fn without_room_the_connection_is_enough(system: &System) {
        let port = shared_on(system);
        let (listener, id, _) = listening(&port, system, 0);
        port.start(id, Operation::accept_and_recv(Vec::new())).unwrap();
        silent(&port, system);
        let client = system.tcp_connect(&listener);
        let (_, server, buffer) = parts(finished(&port, system), system);
        assert!(buffer.is_empty());
        assert_connected(&server, &client, system);
    }

    /// Rules 59 and 66: before the connection or behind it; what was won is closed, and others go on.
    fn a_cancelled_accept_closes_the_connection_that_it_has(system: &System) {
        let port = shared_on(system);
        let (listener, id, accepts) = listening(&port, system, 3);
        let clients = [system.tcp_connect(&listener), system.tcp_connect(&listener)];
        silent(&port, system);
        await_accepted(&port, &listener, &clients.each_ref(), system);
        for (accept, client) in [(accepts[2], None), (accepts[0], Some(&clients[0]))] {
            assert!(port.cancel(accept).unwrap());
            let packet = finished(&port, system);
            assert_eq!((packet.id(), packet.operation()), (id, accept));
            let (accepted, buffer) = accepted_with_data(packet.into_parts().1, system);
            assert_eq!(accepted.unwrap_err(), ErrorKind::Cancelled);
            assert!(buffer.capacity() >= 100);
            assert!(!port.cancel(accept).unwrap());
            if let Some(client) = client {
                assert_end_seen(client, system);
            }
        }
        assert_open(&clients[1]);
        clients[1].write(b"x").unwrap();
        assert_eq!(parts(finished(&port, system), system).0, accepts[1]);
        // That of a token: it comes back.
        let port = sockets_on(system);
        let accept = port.associate(listener.dup().unwrap()).unwrap().accept_and_recv(room(4));
        let client = system.tcp_connect(&listener);
        silent(&port, system);
        await_accepted(&port, &listener, &[&client], system);
        assert!(port.cancel(accept.unwrap()).unwrap());
        let (token, outcome) = done(&port, system);
        assert_eq!(why(outcome.error()), ErrorKind::Cancelled);
        drop(outcome);
        assert_end_seen(&client, system);
        token.accept_and_recv(room(4)).unwrap();
        let client = system.tcp_connect(&listener);
        client.write(b"x").unwrap();
        assert_eq!(accepted_with_data(done(&port, system).1, system).1, b"x");
    }

    /// Rules 60 and 66: the remedy for a client that says nothing. It is one deadline, from the start on.
    fn a_deadline_lets_a_silent_client_go(system: &System) {
        let time = 30 * MILLISECOND;
        for is_shared in [false, true] {
            let port = shared_on(system);
            let listener = Shared::new(system.tcp_listener(4));
            let accept = accept().deadline(time);
            let begun = now(system);
            if is_shared {
                let id = port.associate_shared(listener.clone()).unwrap();
                port.start(id, accept).unwrap();
            } else {
                port.associate(listener.clone()).unwrap().start(accept).unwrap();
            }
            if port.wait(&mut Batch::new(), 10 * MILLISECOND).unwrap().count() > 0 {
                assert!(now(system) - begun >= time);
                late();
            }
            let client = system.tcp_connect(&listener);
            let (accepted, buffer) = accepted_with_data(outcome(&port, system), system);
            assert_eq!(accepted.unwrap_err(), ErrorKind::TimedOut);
            assert!(now(system) - begun >= time);
            assert!(buffer.capacity() >= 100);
            if listener.accept().is_ok() {
                // It was over before the client had come.
                late();
            }
            assert_end_seen(&client, system);
        }
    }

    /// Rules 60 and 66: each has its own, and one that spoke in time is not told of it.
    fn deadlines_of_silent_clients_are_their_own(system: &System) {
        let port = shared_on(system);
        let (listener, id, _) = listening(&port, system, 0);
        let times = [60, 20, 40].map(|time| time * MILLISECOND);
        let begun = now(system);
        let accepts = times.map(|time| port.start(id, accept().deadline(time)).unwrap());
        let last = port.start(id, accept().deadline(HOUR)).unwrap();
        let clients: Vec<_> = (0..4).map(|_| system.tcp_connect(&listener)).collect();
        if port.wait(&mut Batch::new(), 5 * MILLISECOND).unwrap().count() > 0 {
            assert!(now(system) - begun >= times[1]);
            late();
        }
        clients[2].write(b"in time").unwrap();
        let mut order = Vec::new();
        while order.len() < 3 {
            for packet in port.wait(&mut Batch::new(), system.soon()).unwrap() {
                let Packet::Finished(packet) = packet else { panic!("{}", sort(&packet)) };
                let number = accepts.iter().position(|name| *name == packet.operation()).unwrap();
                order.push(number);
                if packet.error().is_some() {
                    assert_eq!(why(packet.error()), ErrorKind::TimedOut);
                    assert!(now(system) - begun >= times[number]);
                    drop(packet);
                    if number == 2 || clients[number].read(&mut [0; 4]).is_err() && listener.accept().is_ok() {
                        // It was over before the client had come, or had spoken.
                        late();
                    }
                    assert_end_seen(&clients[number], system);
                } else {
                    assert_eq!((number, parts(packet, system).0), (2, accepts[2]));
                }
            }
            assert!(!order.is_empty(), "a deadline was lost");
        }
        assert!(order == [2, 1, 0] || system.kernel().is_none(), "{order:?}");
        clients[3].write(b"x").unwrap();
        assert_eq!(parts(finished(&port, system), system).0, last);
    }

    /// Rules 62 and 66: whatever ends the listener ends them, wherever they wait, and its packet is the last.
    fn a_removal_ends_what_waits_for_data(system: &System) {
        for shuts_down in [false, true] {
            let port = shared_on(system);
            let (listener, id, accepts) = listening(&port, system, 5);
            let clients: Vec<_> = (0..3).map(|_| system.tcp_connect(&listener)).collect();
            silent(&port, system);
            await_accepted(&port, &listener, &clients.iter().collect::<Vec<_>>(), system);
            clients[1].write(b"x").unwrap();
            // It is due, or has ended.
            drop(port.wait(&mut Batch::new(), system.soon()).unwrap());
            if shuts_down { port.shutdown().unwrap() } else { port.remove(id.id()).unwrap() }
            let mut ended = Vec::new();
            for packet in all(&port, system, 5) {
                let Packet::Finished(finished) = packet else { panic!("{}", sort(&packet)) };
                let name = finished.operation();
                let (accepted, buffer) = accepted_with_data(finished.into_parts().1, system);
                assert!(buffer.capacity() >= 100);
                match accepted {
                    Ok((server, 1)) => {
                        assert_eq!(name, accepts[1]);
                        assert_connected(&server, &clients[1], system);
                    }
                    Ok(_) => panic!("it has sent one byte"),
                    Err(kind) => assert_eq!(kind, ErrorKind::Cancelled),
                }
                ended.push(name);
            }
            ended.sort_unstable();
            let mut wanted = accepts;
            wanted.sort_unstable();
            assert_eq!(ended, wanted);
            assert!(matches!(next(&port, system), Packet::Removed(..)));
            assert_end_seen(&clients[0], system);
            assert_end_seen(&clients[2], system);
            assert_eq!(port.stats().registered, 0);
        }
    }

    /// Rules 62 and 66: a token's comes back with its operation, and completes the removal.
    fn a_removal_waits_for_an_accept_of_a_token(system: &System) {
        let port = sockets_on(system);
        let listener = system.tcp_listener(4);
        let client = system.tcp_connect(&listener);
        let token = port.associate(listener).unwrap();
        let id = token.id();
        token.accept_and_recv(room(4)).unwrap();
        silent(&port, system);
        assert_eq!(
            refused(port.remove_and_wait(id, Duration::ZERO)),
            ErrorKind::TimedOut
        );
        let (token, outcome) = done(&port, system);
        assert_eq!(why(outcome.error()), ErrorKind::Cancelled);
        drop(outcome);
        assert_end_seen(&client, system);
        token.park().unwrap();
        assert!(matches!(next(&port, system), Packet::Removed(..)));
    }

    /// Rules 62 and 66: a closed port hands out each of them.
    fn a_closed_port_hands_out_what_waits_for_data(system: &System) {
        for abandons in [false, true] {
            let port = shared_on(system);
            let (listener, _, accepts) = listening(&port, system, 4);
            let clients: Vec<_> = (0..3).map(|_| system.tcp_connect(&listener)).collect();
            silent(&port, system);
            await_accepted(&port, &listener, &clients.iter().collect::<Vec<_>>(), system);
            if abandons { port.raw().abandon() } else { port.close() }
            if !abandons {
                for packet in all(&port, system, accepts.len()) {
                    let Packet::Finished(finished) = packet else { panic!("{}", sort(&packet)) };
                    assert_eq!(why(finished.error()), ErrorKind::Cancelled);
                }
                clients.iter().for_each(|client| assert_end_seen(client, system));
            }
            let over = port.wait(&mut Batch::new(), system.soon()).map(Iterator::count);
            assert_eq!(refused(over), ErrorKind::Closed);
            drop(port);
            clients.iter().for_each(|client| assert_end_seen(client, system));
        }
    }

    /// Rules 63 and 66: keys, buffers and connections, wherever their operations stand.
    fn a_dropped_port_leaves_nothing_of_them(system: &System) {
        let ledger = Ledger::default();
        let port: Port<Shared, u32, Noted> = system.port_with_buffers(1);
        let buffer = || Noted::new(room(4), &ledger);
        let listener = Shared::new(system.tcp_listener(64));
        let id = port.associate_shared(listener.clone()).unwrap();
        for deadline in [HOUR, MILLISECOND] {
            for _ in 0..4 {
                let accept = Operation::accept_and_recv(buffer()).deadline(deadline);
                port.start(id, accept).unwrap();
            }
        }
        let clients: Vec<_> = (0..6).map(|_| system.tcp_connect(&listener)).collect();
        // Four are silent for an hour, two for a millisecond, two have no client.
        drop(port.wait(&mut Batch::new(), Duration::ZERO).unwrap());
        let ended = |port: &Port<_, _, _>| port.stats().queued;
        eventually(system, "four have ended", || {
            drop(port.wait(&mut Batch::new(), Duration::ZERO).unwrap());
            ended(&port) >= 4
        });
        clients[0].write(b"x").unwrap();
        let other = system.tcp_listener(4);
        let silent_one = system.tcp_connect(&other);
        let token = port.associate(Shared::new(other)).unwrap();
        token.accept_and_recv(buffer()).unwrap();
        drop(port.wait(&mut Batch::new(), Duration::ZERO).unwrap());
        assert_eq!(ledger.alive(), 9);
        drop(port);
        assert_eq!(ledger.alive(), 0);
        drop(listener);
        for client in clients.iter().skip(1) {
            assert_end_seen(client, system);
        }
        assert_end_seen(&silent_one, system);
        assert_eq!(system.open_sockets(), clients.len() + 1);
    }

    /// Rule 66: the program has one registration, and a silent client makes no packet.
    fn a_silent_client_is_no_registration(system: &System) {
        let port = shared_on(system);
        let (listener, id, _) = listening(&port, system, 3);
        let clients: Vec<_> = (0..3).map(|_| system.tcp_connect(&listener)).collect();
        silent(&port, system);
        let stats = port.stats();
        assert_eq!((stats.registered, stats.queued, stats.packets.done), (1, 0, 0));
        clients[0].write(b"x").unwrap();
        drop(parts(finished(&port, system), system));
        let stats = port.stats();
        assert_eq!((stats.registered, stats.queued, stats.packets.done), (1, 0, 1));
        port.remove(id.id()).unwrap();
        drop(all(&port, system, 2));
        assert_eq!(port.stats().registered, 1);
        assert!(matches!(next(&port, system), Packet::Removed(..)));
        assert_eq!(port.stats().registered, 0);
    }

    /// Rule 66: whatever the program then does with the connection, it is the first that does so.
    fn the_connection_has_left_the_port_before_it_is_handed_out(system: &System) {
        for other_port in [false, true] {
            let port = shared_on(system);
            let (listener, _, _) = listening(&port, system, 1);
            let client = system.tcp_connect(&listener);
            silent(&port, system);
            client.write(b"x").unwrap();
            let (_, server, _) = parts(finished(&port, system), system);
            assert_eq!(port.id_of(&server), None);
            client.write(b"y").unwrap();
            await_unread(&server, system, 1);
            silent(&port, system);
            let other = shared_on(system);
            let port = if other_port { &other } else { &port };
            let server = Shared::new(server);
            port.register(Registration::owned(server, Interest::IN, OneShot::Level)).unwrap();
            let Packet::Ready(token) = next(port, system) else { panic!("no readiness") };
            token.recv(room(4)).unwrap();
            assert_eq!(bytes(done(port, system).1), b"y");
        }
    }

    /// Rule 66: what internal slots were used for before is no hindrance, nor the other way round.
    fn many_come_and_go(system: &System) {
        let ledger = Ledger::default();
        let port: Port<Shared, u32, Noted> = system.port_with_buffers(1);
        let listener = Shared::new(system.tcp_listener(64));
        let id = port.associate_shared(listener.clone()).unwrap();
        for round in 0..60 {
            let accept = Operation::accept_and_recv(Noted::new(room(4), &ledger)).deadline(HOUR);
            let name = port.start(id, accept).unwrap();
            let client = system.tcp_connect(&listener);
            silent_for(&port, MILLISECOND);
            await_accepted(&port, &listener, &[&client], system);
            if round % 3 == 0 {
                port.cancel(name).unwrap();
            } else {
                client.write(b"x").unwrap();
            }
            let (accepted, _) = accepted_with_data(outcome(&port, system), system);
            assert_eq!((accepted.is_err(), port.stats().registered), (round % 3 == 0, 1));
            if let Ok((server, _)) = accepted {
                let receive = Operation::recv(Noted::new(room(4), &ledger)).deadline(HOUR);
                port.associate(Shared::new(server)).unwrap().start(receive).unwrap();
                client.write(b"y").unwrap();
                drop(done(&port, system));
            }
            assert_eq!(ledger.alive(), 0);
        }
    }

    /// Rules 53 and 66: an accept that has its connection leaves the next one to whatever comes first.
    fn readiness_of_the_listener_is_reported_beside_a_silent_client(system: &System) {
        let port = shared_on(system);
        let (listener, id, _) = listening(&port, system, 1);
        let quiet = system.tcp_connect(&listener);
        silent(&port, system);
        await_accepted(&port, &listener, &[&quiet], system);
        port.enable(id.id(), Interest::IN, Persistent::Edge).unwrap();
        silent(&port, system);
        let next_one = system.tcp_connect(&listener);
        assert!(notified(&port, system).events().is_in());
        let server = listener.accept_within(system.soon());
        assert_connected(&server, &next_one, system);
        quiet.write(b"x").unwrap();
        let (_, server, _) = parts(finished(&port, system), system);
        assert_connected(&server, &quiet, system);
    }

    /// Rules 51 and 66: a refused one gives its buffer back.
    fn a_refused_accept_gives_its_buffer_back(system: &System) {
        let port = shared_on(system);
        let (listener, id, _) = listening(&port, system, 0);
        port.close();
        let (error, operation) = port.start(id, accept()).unwrap_err().into_parts();
        assert_eq!((error.kind(), error.call()), (ErrorKind::Closed, Call::Accept));
        assert!(operation.into_buffer().unwrap().capacity() >= 100);
        drop(listener);
    }

    /// Rules 56 and 66: what is no listener accepts nothing, and that is the outcome.
    fn what_is_no_listener_gives_the_buffer_back_too(system: &System) {
        let port = sockets_on(system);
        let (near, _far) = system.tcp_pair();
        port.associate(near).unwrap().accept_and_recv(room(100)).unwrap();
        let (_token, outcome) = done(&port, system);
        assert_eq!(outcome.error().unwrap().os_code(), Some(codes::EINVAL));
        assert!(outcome.into_buffer().unwrap().capacity() >= 100);
    }

    /// Rules 63 and 66: with the connection at once, and when the data comes.
    fn a_panic_in_a_buffer_fails_its_accept(system: &System) {
        let port: Port<Shared, u32, Failing> = system.port_with_buffers(1);
        let listener = Shared::new(system.tcp_listener(4));
        let id = port.associate_shared(listener.clone()).unwrap();
        let panics = Arc::new(AtomicBool::new(false));
        for at_once in [true, false] {
            let buffer = Failing { bytes: room(4), panics: Arc::clone(&panics) };
            port.start(id, Operation::accept_and_recv(buffer)).unwrap();
            panics.store(at_once, SeqCst);
            let client = system.tcp_connect(&listener);
            if !at_once {
                assert_eq!(port.wait(&mut Batch::new(), system.quiet()).unwrap().count(), 0);
                client.write(b"x").unwrap();
                panics.store(true, SeqCst);
            }
            let taken = catch_unwind(AssertUnwindSafe(|| {
                port.wait(&mut Batch::new(), system.soon()).unwrap().count()
            }));
            assert!(taken.is_err());
            let packet = finished(&port, system);
            assert_eq!(why(packet.error()), ErrorKind::Other);
            drop(packet);
            assert_end_seen(&client, system);
            assert_eq!(port.stats().registered, 1);
        }
    }

    /// Rule 66: several threads, clients that speak at once, later, or never, and deadlines.
    fn each_connection_comes_with_its_own_data(system: &System) {
        const CLIENTS: u8 = 60;
        system.several_threads_wait();
        let port: Port<Shared, u32> = system.port(0);
        let (listener, id, _) = listening(&port, system, 8);
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            for _ in 0..3 {
                let (port, say) = (&port, say.clone());
                scope.spawn(move || {
                    each_packet(port, Batch::with_capacity(3), |packet| {
                            let Packet::Finished(finished) = packet else { panic!() };
                            // Closed, or being so.
                            let _ = port.start(id, accept());
                            if why_not_cancelled(finished.error()) {
                                let (_, server, data) = parts(finished, system);
                                say.send((server, data)).unwrap();
                            }
                    });
                });
            }
            let mut clients = Vec::new();
            for number in 0..CLIENTS {
                let client = system.tcp_connect(&listener);
                if number % 3 != 0 {
                    client.write(&[number]).unwrap();
                }
                clients.push(client);
                if number % 3 == 2 {
                    clients[usize::from(number) - 2].write(&[number - 2]).unwrap();
                }
            }
            for _ in 0..CLIENTS {
                let (server, data) = hear(system, &heard, "each connection is accepted");
                let client = &clients[usize::from(data[0])];
                assert_connected(&server, client, system);
                assert_eq!(data.len(), 1);
            }
        });
    }
}

/// No packet comes for so long.
#[track_caller]
fn silent_for<B: Buffer>(port: &Port<Shared, u32, B>, time: Duration) {
    assert_eq!(port.wait(&mut Batch::new(), time).unwrap().count(), 0);
}

/// The port has accepted these connections, for which there are accepts enough. Some systems do that a little later.
fn await_accepted<K, B: Buffer>(
    port: &Port<K, u32, B>,
    listener: &Socket,
    clients: &[&Socket],
    on: &System,
) {
    if on.tells_at_once() {
        return;
    }
    for client in clients {
        await_facts(client, on, POLLOUT);
    }
    eventually(on, "they are accepted", || {
        assert_eq!(port.wait(&mut Batch::new(), MILLISECOND).unwrap().count(), 0);
        facts(listener) & POLLIN == 0
    });
}

/// Whether an operation was done, or else cancelled.
fn why_not_cancelled(error: Option<Error>) -> bool {
    assert!(error.is_none_or(|error| error.kind() == ErrorKind::Cancelled), "{error:?}");
    error.is_none()
}

/// Rule 66: a connection that cannot be watched is closed, and the outcome says why. One that need not be is
/// not watched.
#[test]
fn a_connection_that_cannot_be_watched_fails_its_accept_sim() {
    for system in [System::simulated(), System::simulated().one_shot()] {
        let kernel = system.kernel().unwrap();
        {
            let port = shared_on(&system);
            let (listener, id, _) = listening(&port, &system, 2);
            for kind in [ErrorKind::WatchLimit, ErrorKind::OutOfMemory] {
                kernel.fail_next_attach(kind);
                let client = system.tcp_connect(&listener);
                let (accepted, buffer) = accepted_with_data(outcome(&port, &system), &system);
                assert_eq!(accepted.unwrap_err(), kind);
                assert!(buffer.capacity() >= 100);
                assert_end_seen(&client, &system);
                assert_eq!(port.stats().registered, 1);
            }
            let client = system.tcp_connect(&listener);
            client.write(b"x").unwrap();
            await_facts(&listener, &system, POLLIN);
            kernel.fail_next_attach(ErrorKind::WatchLimit);
            let Started::Finished(outcome) = port.start_now(id, accept()).unwrap() else {
                panic!("data is there")
            };
            assert!(outcome.error().is_none());
        }
        system.assert_nothing_left();
    }
}

/// Rules 56 and 66: short of memory it is tried again, and holds no other one meanwhile.
#[test]
fn what_lacks_memory_for_its_data_holds_no_other_sim() {
    for system in System::simulated_in_each_way() {
        let kernel = system.kernel().unwrap();
        {
            let port = shared_on(&system);
            let (listener, id, _) = listening(&port, &system, 0);
            let clients = [b"a", b"b"].map(|data| {
                let client = system.tcp_connect(&listener);
                client.write(data).unwrap();
                client
            });
            await_facts(&listener, &system, POLLIN);
            (0..3).for_each(|_| kernel.fail_next_receive(codes::ENOMEM));
            let first = port.start(id, accept()).unwrap();
            let second = port.start(id, accept()).unwrap();
            let begun = kernel.now();
            let mut names: Vec<_> = Vec::new();
            while names.len() < 2 {
                names.push(parts(finished(&port, &system), &system).0);
            }
            names.sort_unstable();
            let mut wanted = [first, second];
            wanted.sort_unstable();
            assert_eq!(names, wanted);
            let time = kernel.now() - begun;
            assert!(time <= 25 * MILLISECOND, "{time:?}");
            drop(clients);
        }
        system.assert_nothing_left();
    }
}

/// Rules 58 and 66: without a descriptor left it waits for one, as any accept.
#[test]
fn an_accept_with_data_waits_for_a_descriptor_sim() {
    for system in System::simulated_in_each_way() {
        let kernel = system.kernel().unwrap();
        {
            let port = sockets_on(&system);
            let listener = system.tcp_listener(4);
            let client = system.tcp_connect(&listener);
            client.write(b"x").unwrap();
            (0..5).for_each(|_| kernel.fail_next_descriptor());
            let begun = kernel.now();
            port.associate(listener).unwrap().accept_and_recv(room(4)).unwrap();
            let (accepted, buffer) = accepted_with_data(done(&port, &system).1, &system);
            assert_eq!((accepted.unwrap().1, buffer), (1, b"x".to_vec()));
            assert!(kernel.now() - begun >= 40 * MILLISECOND);
        }
        system.assert_nothing_left();
    }
}

/// A connection waits for its data under a number that was closed while it was registered.
fn wait_under_a_former_number(on: &System) {
    let port = shared_on(on);
    let (listener, _, _) = listening(&port, on, 1);
    // Whatever the port opens when a thread first waits.
    silent(&port, on);
    let (client, old) = (on.tcp_fresh(), on.event());
    let number = old.number();
    let key = listener.clone();
    port.register(Registration::new(&old, key, Interest::IN, OneShot::Level)).unwrap();
    drop(old);
    client.connect(&listener.address()).unwrap();
    silent(&port, on);
    client.write(b"x").unwrap();
    let (_, server, data) = parts(finished(&port, on), on);
    assert_eq!((server.number(), data), (number, b"x".to_vec()));
    // The former one has ended.
    assert_eq!(port.stats().registered, 1);
}

/// Rules 30 and 66: the number of a connection may be that of a socket that was closed while it was
/// registered.
#[test]
fn a_connection_may_get_the_number_of_a_registration_sim() {
    for system in [System::simulated(), System::simulated().one_shot()] {
        wait_under_a_former_number(&system);
        system.assert_nothing_left();
    }
}

/// Rules 30 and 66: the same, where no other thread opens anything.
#[cfg(target_os = "linux")]
#[test]
fn a_connection_may_get_the_number_of_a_registration_epoll() {
    let name = "operations_first_data::a_connection_may_get_the_number_of_a_registration_epoll";
    if in_a_process_of_its_own(name) {
        for system in [System::native(), System::spread(), System::native().one_shot()] {
            wait_under_a_former_number(&system);
        }
    }
}

/// Rules 64 and 66: a child touches nothing of what waits for data, and ends nothing of it.
#[cfg(target_os = "linux")]
#[test]
fn a_forked_child_leaves_what_waits_for_data_epoll() {
    let name = "operations_first_data::a_forked_child_leaves_what_waits_for_data_epoll";
    if !in_a_process_of_its_own(name) {
        return;
    }
    for system in [System::native(), System::spread(), System::native().one_shot()] {
        let parent = shared_on(&system);
        let (listener, id, accepts) = listening(&parent, &system, 3);
        let clients: Vec<_> = (0..2).map(|_| system.tcp_connect(&listener)).collect();
        silent(&parent, &system);
        let mut port = Some(parent);
        let status = in_forked_child(|| {
            let port = port.take().unwrap();
            let mut failed = 0;
            let mut check = |bit: u8, holds: bool| failed |= u8::from(!holds) << bit;
            check(0, refused(port.cancel(accepts[0])) == ErrorKind::Forked);
            let refused_start = port.start(id, accept()).unwrap_err();
            check(1, refused_start.kind() == ErrorKind::Forked);
            check(2, refused_start.into_parts().1.into_buffer().is_some());
            port.close();
            drop(port);
            failed
        });
        assert_eq!(status, 0);
        let port = port.unwrap();
        clients.iter().for_each(assert_open);
        clients[1].write(b"x").unwrap();
        let (name, server, _) = parts(finished(&port, &system), &system);
        assert_eq!(name, accepts[1]);
        assert_connected(&server, &clients[1], &system);
        assert!(port.cancel(accepts[0]).unwrap());
        assert_eq!(why(finished(&port, &system).error()), ErrorKind::Cancelled);
        assert_end_seen(&clients[0], &system);
    }
}
