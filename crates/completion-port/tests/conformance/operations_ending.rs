//! Rules 62 to 64: how operations end with their registration, their port and their process.

use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use completion_port::{
    Batch, BorrowedSource, Buffer, ErrorKind, Interest, Operation, Outcome, Packet, Persistent,
    Port, SharedSource, Source, Started,
};
use testkit::{Socket, System, on_every_system};
#[cfg(target_os = "linux")]
use testkit::{in_a_process_of_its_own, in_forked_child};

use crate::kit::ledger::{Entry, Ledger, Owner};
use crate::kit::operations::{
    HOUR, MILLISECOND, Noted, Shared, accepted, all, assert_connected, bytes, done, finished, much,
    next, outcome, received, room, sent, shared_on, silent, sockets_on, sort, why,
};
use crate::kit::packets::{assert_closed, each_packet, given_back, refused};
use crate::kit::sockets::{POLLIN, STREAMS, assert_end_seen, await_facts, await_unread, fill};
use crate::kit::threads::{End, eventually, hear, settle};

/// A shared key that the ledger counts.
#[derive(Clone)]
struct Clonable {
    socket: SharedSource<Socket>,
    _entry: Entry,
}

impl Source for Clonable {
    fn as_source(&self) -> BorrowedSource<'_> {
        self.socket.as_source()
    }
}

/// A buffer whose code panics at the next attempt.
struct Failing {
    bytes: Vec<u8>,
    panics: Arc<AtomicBool>,
}

// SAFETY: `Buffer` requires stable memory and truthful lengths.
// - the memory is that of `bytes`, whose own implementation promises the same.
unsafe impl Buffer for Failing {
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        if self.panics.swap(false, SeqCst) {
            resume_unwind(Box::new("filled"));
        }
        self.bytes.filled(part);
    }

    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        if self.panics.swap(false, SeqCst) {
            resume_unwind(Box::new("room"));
        }
        // SAFETY: the caller must write only initialized bytes.
        // - the memory is the vector's, so the caller's promise to `room` holds for it.
        unsafe { self.bytes.room(part) };
    }

    unsafe fn set_filled(&mut self, len: usize) {
        // SAFETY: `set_filled` requires that the first `len` bytes are initialized.
        // - the memory is the vector's, so the caller's promise to `set_filled` holds for it.
        unsafe { self.bytes.set_filled(len) };
    }
}

on_every_system! {
    /// Rule 62: the operation's packet brings the key, and the removal then waits for it.
    fn a_removal_cancels_the_operation_of_a_token(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        let token = port.associate(near).unwrap();
        let id = token.id();
        let receive = token.recv(room(4)).unwrap();
        port.remove(id).unwrap();
        port.remove(id).unwrap();
        // A submitted operation ends when the system no longer uses its buffer.
        assert!(system.carries_operations() || !port.cancel(receive).unwrap());
        let (token, outcome) = done(&port, system);
        assert_eq!(why(outcome.error()), ErrorKind::Cancelled);
        silent(&port, system);
        token.park().unwrap();
        let Packet::Removed(removed, near) = next(&port, system) else { panic!("no removal") };
        assert_eq!(removed, id);
        silent(&port, system);
        assert_connected(&near, &far, system);
        assert_eq!(port.stats().registered, 0);
    }

    /// Rule 62: the removal is the last packet, however many operations there are, and no operation
    /// is lost.
    fn a_removal_is_the_last_packet_of_a_shared_association(system: &System) {
        for pair in STREAMS {
            let port = shared_on(system);
            let (near, far) = pair(system);
            let near = Shared::new(near);
            let id = port.associate_shared(near.clone()).unwrap();
            port.enable(id.id(), Interest::HANGUP, Persistent::Level).unwrap();
            fill(&near);
            for _ in 0..3 {
                port.start(id, Operation::recv(room(4))).unwrap();
                port.start(id, Operation::send(b"x".to_vec()).deadline(HOUR)).unwrap();
            }
            port.remove(id.id()).unwrap();
            // Take one packet at a time: there is no removal while an operation remains.
            let mut batch = Batch::with_capacity(1);
            for _ in 0..6 {
                let packet = port.wait(&mut batch, system.soon()).unwrap().next().unwrap();
                let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
                assert_eq!(why(finished.error()), ErrorKind::Cancelled);
            }
            let Packet::Removed(removed, _) = next(&port, system) else { panic!("no removal") };
            assert_eq!(removed, id.id());
            silent(&port, system);
            drop(far);
        }
    }

    /// Rule 62: this also holds if another operation has completed before.
    fn a_removal_waits_for_what_is_left_of_several_operations(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        port.start(id, Operation::recv(room(1))).unwrap();
        let left = port.start(id, Operation::recv(room(1))).unwrap();
        far.write(b"x").unwrap();
        assert_eq!(bytes(finished(&port, system).into_parts().1), b"x");
        port.remove(id.id()).unwrap();
        let mut batch = Batch::with_capacity(1);
        let packet = port.wait(&mut batch, system.soon()).unwrap().next().unwrap();
        let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
        assert_eq!((finished.operation(), why(finished.error())), (left, ErrorKind::Cancelled));
        drop(finished);
        assert!(matches!(next(&port, system), Packet::Removed(..)));
        silent(&port, system);
    }

    /// Rule 62: an operation that completed immediately, without a packet, delays no removal.
    fn a_removal_waits_for_nothing_that_has_finished_at_once(system: &System) {
        let port = shared_on(system);
        let (near, _far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let started = port.start_now(id, Operation::send(b"x".to_vec())).unwrap();
        assert!(matches!(started, Started::Completed(_)));
        port.remove(id.id()).unwrap();
        assert!(matches!(next(&port, system), Packet::Removed(..)));
    }

    /// Rule 62: an operation that has ended by then keeps its outcome.
    fn a_removal_leaves_what_has_ended_as_it_is(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let send = port.start(id, Operation::send(b"x".to_vec())).unwrap();
        port.start(id, Operation::recv(room(4))).unwrap();
        port.remove(id.id()).unwrap();
        let mut sorts = Vec::new();
        for packet in all(&port, system, 2) {
            let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
            let is_send = finished.operation() == send;
            sorts.push((is_send, finished.error().map(|error| error.kind())));
        }
        assert_eq!(sorts, [(true, None), (false, Some(ErrorKind::Cancelled))]);
        assert!(matches!(next(&port, system), Packet::Removed(..)));
        assert_eq!(far.read_within(system.soon(), 1), b"x");
    }

    /// Rule 62: the removal replaces a queued report, but not the operations' packets.
    fn a_removal_replaces_the_report_beside_operations(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        port.enable(id.id(), Interest::OUT, Persistent::Level).unwrap();
        port.start(id, Operation::recv(room(4))).unwrap();
        drop(port.wait(&mut Batch::new(), system.soon()).unwrap());
        assert_eq!(port.stats().queued, 1);
        port.remove(id.id()).unwrap();
        let sorts: Vec<_> = all(&port, system, 1).iter().map(sort).collect();
        assert_eq!(sorts, ["finished"]);
        assert!(matches!(next(&port, system), Packet::Removed(..)));
        silent(&port, system);
        drop(far);
    }

    /// Rule 62: it waits until the last operation's packet was taken.
    fn remove_and_wait_waits_for_the_operations(system: &System) {
        system.several_threads_wait();
        let port: Port<Shared, u32> = system.port(2);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        for _ in 0..3 {
            port.start(id, Operation::recv(room(4))).unwrap();
        }
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            scope.spawn(|| {
                let say = say;
                each_packet(&port, Batch::with_capacity(1), |packet| {
                        let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
                        say.send(why(finished.error())).unwrap();
                });
            });
            settle(system, &port, 1);
            let near = port.remove_and_wait(id.id(), None).unwrap();
            for _ in 0..3 {
                assert_eq!(hear(system, &heard, "it ends"), ErrorKind::Cancelled);
            }
            eventually(system, "the clones are dropped", || port.stats().parked == 1);
            let near = Shared::into_inner(near).expect("nothing else has the key");
            assert_connected(&near, &far, system);
        });
        assert_eq!(port.stats().packets.removed, 0);
    }

    /// Rule 62: after its timeout, the removal continues.
    fn remove_and_wait_whose_time_is_over_leaves_the_removal(system: &System) {
        let port = shared_on(system);
        let (near, _far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        port.start(id, Operation::recv(room(4))).unwrap();
        let over = refused(port.remove_and_wait(id.id(), MILLISECOND));
        assert_eq!(over, ErrorKind::TimedOut);
        assert_eq!(why(finished(&port, system).error()), ErrorKind::Cancelled);
        assert!(matches!(next(&port, system), Packet::Removed(..)));
        silent(&port, system);
    }

    /// Rule 62: with nothing in flight any more, there is nothing to wait for.
    fn remove_and_wait_behind_the_last_operation_returns_at_once(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        port.start(id, Operation::recv(room(4))).unwrap();
        far.write(b"x").unwrap();
        assert_eq!(bytes(finished(&port, system).into_parts().1), b"x");
        assert!(port.remove_and_wait(id.id(), Duration::ZERO).is_ok());
        silent(&port, system);
    }

    /// Rule 62: every key is returned after its operations.
    fn a_shutdown_cancels_every_operation(system: &System) {
        let port = shared_on(system);
        let (near, near_far) = system.unix_pair();
        let (shared, shared_far) = system.unix_pair();
        port.associate(Shared::new(near)).unwrap().recv(room(4)).unwrap();
        let id = port.associate_shared(Shared::new(shared)).unwrap();
        for _ in 0..2 {
            port.start(id, Operation::recv(room(4))).unwrap();
        }
        port.shutdown().unwrap();
        let mut sorts = Vec::new();
        let mut batch = Batch::new();
        while let Ok(packets) = port.wait(&mut batch, system.soon()) {
            for packet in packets {
                sorts.push(sort(&packet));
                match packet {
                    Packet::Completed(done) => {
                        assert_eq!(why(done.error()), ErrorKind::Cancelled);
                        done.into_parts().0.park().unwrap();
                    }
                    Packet::SharedCompleted(finished) => {
                        assert_eq!(why(finished.error()), ErrorKind::Cancelled);
                    }
                    _ => {}
                }
            }
        }
        assert!(sorts.len() == 5, "{sorts:?}");
        let last = sorts.iter().rposition(|sort| *sort == "finished").unwrap();
        assert!(sorts[..=last].iter().filter(|sort| **sort == "removed").count() <= 1, "{sorts:?}");
        assert_eq!(sorts.last(), Some(&"removed"));
        assert_eq!(sorts.iter().filter(|sort| **sort == "removed").count(), 2);
        assert_closed(&port, system);
        drop((near_far, shared_far));
    }

    /// Rule 62: operations that have ended are delivered, waiting ones are cancelled, and then the
    /// port is closed.
    fn a_closed_port_hands_out_what_has_ended_and_cancels_the_rest(system: &System) {
        let port = shared_on(system);
        let (near, near_far) = system.unix_pair();
        let (shared, shared_far) = system.unix_pair();
        let token = port.associate(Shared::new(near)).unwrap();
        token.start(Operation::recv(room(4)).deadline(HOUR)).unwrap();
        let id = port.associate_shared(Shared::new(shared)).unwrap();
        let send = port.start(id, Operation::send(b"x".to_vec())).unwrap();
        let receive = port.start(id, Operation::recv(room(4))).unwrap();
        port.close();
        port.close();
        let (mut packets, mut batch) = (Vec::new(), Batch::new());
        while let Ok(some) = port.wait(&mut batch, system.soon()) {
            packets.extend(some);
        }
        assert_eq!(packets.len(), 3);
        for packet in packets {
            match packet {
                Packet::Completed(done) => {
                    assert_eq!(why(done.error()), ErrorKind::Cancelled);
                    let token = done.into_parts().0;
                    let (why, (_, operation)) = given_back(token.start(Operation::recv(room(4))));
                    assert_eq!(why, ErrorKind::Closed);
                    drop(operation);
                }
                Packet::SharedCompleted(finished) if finished.operation() == send => {
                    assert_eq!(sent(&finished.into_parts().1), Ok(1));
                }
                Packet::SharedCompleted(finished) => {
                    assert_eq!(finished.operation(), receive);
                    assert_eq!(why(finished.error()), ErrorKind::Cancelled);
                }
                other => panic!("{}", sort(&other)),
            }
        }
        assert_closed(&port, system);
        assert_eq!(port.stats().packets.removed, 0);
        drop((near_far, shared_far));
    }

    /// Rule 62: a waiting thread gets the packets, and then the error that the port is closed.
    fn a_closed_port_waits_for_no_peer(system: &System) {
        system.several_threads_wait();
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        port.associate(near).unwrap().recv(room(4)).unwrap();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            scope.spawn(|| {
                let say = say;
                let mut count = 0;
                each_packet(&port, Batch::new(), |packet| {
                        assert_eq!(sort(&packet), "done");
                        count += 1;
                });
                say.send(count).unwrap();
            });
            settle(system, &port, 1);
            port.close();
            assert_eq!(heard.recv_timeout(system.soon()), Ok(1));
        });
        drop(far);
    }

    /// Rule 62: threads start operations while the port is being closed. Each makes its packet or
    /// is refused, and the waits end.
    fn starting_and_closing_at_once_loses_nothing(system: &System) {
        system.several_threads_wait();
        for _ in 0..20 {
            let port = shared_on(system);
            let (near, far) = system.unix_pair();
            let id = port.associate_shared(Shared::new(near)).unwrap();
            let (started, taken) = thread::scope(|scope| {
                let _end = End::of(&port, []);
                let starter = scope.spawn(|| {
                    (0..1000)
                        .take_while(|_| port.start(id, Operation::recv(room(1))).is_ok())
                        .count()
                });
                let taker = scope.spawn(|| {
                    let mut count = 0;
                    each_packet(&port, Batch::new(), |_| count += 1);
                    count
                });
                thread::yield_now();
                port.close();
                (starter.join().unwrap(), taker.join().unwrap())
            });
            assert_eq!(taken, started);
            drop(far);
        }
    }

    /// Rule 62: waits end immediately, and operations in flight are dropped with the port.
    fn an_abandoned_port_hands_out_no_operation(system: &System) {
        let ledger = Ledger::default();
        let port: Port<Owner, u32, Noted> = system.port_with_buffers(1);
        let buffer = |bytes: Vec<u8>| Noted::new(bytes, &ledger);
        let (near, far) = system.unix_pair();
        let (other, other_far) = system.unix_pair();
        let owner = |socket| Owner { socket, _entry: ledger.entry() };
        port.associate(owner(near)).unwrap().recv(buffer(room(4))).unwrap();
        port.associate(owner(other)).unwrap().send(buffer(b"x".to_vec())).unwrap();
        port.raw().abandon();
        let mut batch = Batch::new();
        assert_eq!(refused(port.wait(&mut batch, system.soon())), ErrorKind::Closed);
        assert_eq!(ledger.alive(), 4);
        drop(port);
        assert_eq!(ledger.alive(), 0);
        drop((far, other_far));
    }

    /// Rule 63: keys, buffers and descriptors are released, whatever state the operations are in.
    fn a_dropped_port_drops_all_that_is_in_flight(system: &System) {
        let ledger = Ledger::default();
        let port: Port<Clonable, u32, Noted> = system.port_with_buffers(1);
        let buffer = |bytes: Vec<u8>| Noted::new(bytes, &ledger);
        let key = |socket| Clonable { socket: Shared::new(socket), _entry: ledger.entry() };
        let mut peers = Vec::new();
        // Waiting, in both directions, some with a deadline.
        for _ in 0..3 {
            let (near, far) = system.unix_pair();
            let id = port.associate_shared(key(near)).unwrap();
            port.start(id, Operation::recv(buffer(room(4)))).unwrap();
            port.start(id, Operation::recv(buffer(room(4))).deadline(HOUR)).unwrap();
            port.start(id, Operation::send_all(buffer(vec![0; much(system)]))).unwrap();
            peers.push(far);
        }
        let (near, far) = system.unix_pair();
        port.associate(key(near)).unwrap().recv(buffer(room(4))).unwrap();
        peers.push(far);
        // Due: a thread has found them and has not processed them. Others have ended.
        let (near, far) = system.unix_pair();
        port.associate(key(near)).unwrap().recv(buffer(room(4))).unwrap();
        far.write(b"x").unwrap();
        let (sends, far_sends) = system.unix_pair();
        port.associate(key(sends)).unwrap().send(buffer(b"x".to_vec())).unwrap();
        let (cancelled, far_cancelled) = system.unix_pair();
        let operation = port.associate(key(cancelled)).unwrap().recv(buffer(room(4))).unwrap();
        port.cancel(operation).unwrap();
        eventually(system, "two are queued", || {
            drop(port.wait(&mut Batch::new(), system.soon()).unwrap());
            port.stats().queued >= 2
        });
        peers.extend([far, far_sends, far_cancelled]);
        assert_eq!(ledger.alive(), 9 + 4 + 7);
        drop(port);
        assert_eq!(ledger.alive(), 0);
        assert_eq!(system.open_sockets(), peers.len());
    }

    /// Rule 63: a connection that no handler received is closed.
    fn a_dropped_port_closes_what_it_has_accepted(system: &System) {
        let port = shared_on(system);
        let listener = Shared::new(system.tcp_listener(4));
        let id = port.associate_shared(listener.clone()).unwrap();
        let client = system.tcp_connect(&listener);
        await_facts(&listener, system, POLLIN);
        port.start(id, Operation::accept()).unwrap();
        eventually(system, "it is accepted, and queued", || {
            drop(port.wait(&mut Batch::new(), Duration::ZERO).unwrap());
            port.stats().queued == 1
        });
        assert_eq!(client.read(&mut [0; 4]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        drop(port);
        drop(listener);
        eventually(system, "the client finds its end", || {
            !matches!(client.read(&mut [0; 4]), Err(error) if error.kind() == std::io::ErrorKind::WouldBlock)
        });
    }

    /// Rule 63: the peer sees the end when the token is dropped, and no earlier.
    fn a_key_is_closed_with_the_token_that_an_operation_brings(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        port.associate(near).unwrap().send(b"x".to_vec()).unwrap();
        let (token, outcome) = done(&port, system);
        drop(outcome);
        assert_eq!(far.read_within(system.soon(), 1), b"x");
        assert_eq!(far.read(&mut [0; 4]).unwrap_err().kind(), std::io::ErrorKind::WouldBlock);
        drop(token);
        assert_end_seen(&far, system);
        assert_eq!(port.stats().registered, 0);
        silent(&port, system);
    }

    /// Rule 63: a buffer whose code panics fails its operation, with one packet, and the port stays
    /// usable.
    fn a_panic_in_a_buffer_fails_its_operation(system: &System) {
        let port: Port<Shared, u32, Failing> = system.port_with_buffers(1);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let panics = Arc::new(AtomicBool::new(false));
        let buffer = |bytes: Vec<u8>| Failing { bytes, panics: Arc::clone(&panics) };
        // In the call that starts it.
        panics.store(true, SeqCst);
        let started = catch_unwind(AssertUnwindSafe(|| {
            let _ = port.start(id, Operation::send(buffer(b"x".to_vec())));
        }));
        assert!(started.is_err());
        let packet = finished(&port, system);
        assert_eq!(why(packet.error()), ErrorKind::Other);
        assert_eq!(packet.into_parts().1.into_buffer().unwrap().bytes, b"x");
        // In the thread that takes its packet.
        port.start(id, Operation::recv(buffer(room(4)))).unwrap();
        port.start(id, Operation::recv(buffer(room(4)))).unwrap();
        silent(&port, system);
        far.write(b"y").unwrap();
        panics.store(true, SeqCst);
        let taken = catch_unwind(AssertUnwindSafe(|| {
            port.wait(&mut Batch::new(), system.soon()).unwrap().count()
        }));
        assert!(taken.is_err());
        let mut next = b"y";
        if system.carries_operations() {
            // The received data was in the buffer that failed.
            next = b"z";
            far.write(next).unwrap();
        }
        let mut outcomes = Vec::new();
        for packet in all(&port, system, 2) {
            let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
            let (result, buffer) = received(finished.into_parts().1);
            outcomes.push((result, buffer.bytes));
        }
        assert!(outcomes.contains(&(Err(ErrorKind::Other), Vec::new())), "{outcomes:?}");
        assert!(outcomes.contains(&(Ok(1), next.to_vec())), "{outcomes:?}");
        silent(&port, system);
    }

    /// Rule 63: another wait brings the packet, with the same outcome.
    fn a_panic_while_a_shared_key_is_cloned_loses_no_outcome(system: &System) {
        let ledger = Ledger::default();
        let port: Port<Clonable, u32> = system.port(1);
        let (near, far) = system.unix_pair();
        let key = Clonable { socket: Shared::new(near), _entry: ledger.entry() };
        let id = port.associate_shared(key).unwrap();
        port.start(id, Operation::recv(room(4))).unwrap();
        far.write(b"x").unwrap();
        ledger.panic_at_next_clone();
        let taken = catch_unwind(AssertUnwindSafe(|| {
            port.wait(&mut Batch::new(), system.soon()).unwrap().count()
        }));
        assert!(taken.is_err());
        let (key, outcome) = finished(&port, system).into_parts();
        assert_eq!(bytes(outcome), b"x");
        assert_eq!(ledger.alive(), 2);
        drop(key);
        port.remove(id.id()).unwrap();
        assert!(matches!(next(&port, system), Packet::Removed(..)));
        assert_eq!(ledger.alive(), 0);
    }

    /// Rule 63: repeated use doesn't increase the memory for operations, and no key or buffer is
    /// lost.
    fn registrations_that_end_with_operations_leave_nothing(system: &System) {
        let ledger = Ledger::default();
        let port: Port<Clonable, u32, Noted> = system.port_with_buffers(1);
        let buffer = |bytes: Vec<u8>| Noted::new(bytes, &ledger);
        for number in 0..60 {
            let (near, far) = system.unix_pair();
            let key = Clonable { socket: Shared::new(near), _entry: ledger.entry() };
            if number % 2 == 0 {
                let token = port.associate(key).unwrap();
                token.start(Operation::recv(buffer(room(4))).deadline(HOUR)).unwrap();
                if number % 3 == 0 {
                    far.write(b"x").unwrap();
                } else {
                    drop(far);
                }
                let (token, outcome) = done(&port, system);
                assert_eq!(received(outcome).0, Ok(usize::from(number % 3 == 0)));
                drop(token);
            } else {
                let id = port.associate_shared(key).unwrap();
                port.start(id, Operation::recv(buffer(room(4))).deadline(HOUR)).unwrap();
                port.start(id, Operation::send(buffer(b"x".to_vec()))).unwrap();
                port.remove(id.id()).unwrap();
                drop(all(&port, system, 2));
                assert!(matches!(next(&port, system), Packet::Removed(..)));
            }
            assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
        }
        silent(&port, system);
    }
}

/// Rule 64: every call fails and returns its arguments, and the parent's operations continue.
#[cfg(target_os = "linux")]
#[test]
fn a_forked_child_starts_and_cancels_nothing_epoll() {
    if !in_a_process_of_its_own(
        "operations_ending::a_forked_child_starts_and_cancels_nothing_epoll",
    ) {
        return;
    }
    for system in [System::native(), System::native().one_shot()] {
        let port = shared_on(&system);
        let (near, far) = system.tcp_pair();
        let (shared, shared_far) = system.tcp_pair();
        let (held, _held_far) = system.tcp_pair();
        let receive = port.associate(Shared::new(near)).unwrap().recv(room(4)).unwrap();
        let id = port.associate_shared(Shared::new(shared)).unwrap();
        port.start(id, Operation::recv(room(4))).unwrap();
        let mut token = Some(port.associate(Shared::new(held)).unwrap());
        silent(&port, &system);
        let status = in_forked_child(|| {
            let mut failed = 0;
            let mut check = |bit: u8, holds: bool| failed |= u8::from(!holds) << bit;
            let token = token.take().unwrap();
            let (why, (_key, operation)) = given_back(token.recv(b"kept".to_vec()));
            check(0, why == ErrorKind::Forked);
            check(1, operation.into_buffer() == Some(b"kept".to_vec()));
            let (why, operation) = given_back(port.start(id, Operation::send(b"kept".to_vec())));
            check(2, why == ErrorKind::Forked);
            check(3, operation.into_buffer() == Some(b"kept".to_vec()));
            check(4, refused(port.cancel(receive)) == ErrorKind::Forked);
            let mut batch = Batch::new();
            check(5, refused(port.wait(&mut batch, Duration::ZERO)) == ErrorKind::Forked);
            check(6, refused(port.remove_and_wait(id.id(), None)) == ErrorKind::Forked);
            port.close();
            failed
        });
        assert_eq!(status, 0);
        // Nothing was taken from them, and nothing has ended.
        silent(&port, &system);
        far.write(b"x").unwrap();
        shared_far.write(b"y").unwrap();
        let packets = all(&port, &system, 2);
        let mut sorts: Vec<_> = packets.iter().map(sort).collect();
        sorts.sort_unstable();
        assert_eq!(sorts, ["done", "finished"]);
        drop(packets);
        // The parent's token is unchanged.
        token.take().unwrap().send(b"z".to_vec()).unwrap();
        assert_eq!(sent(&outcome(&port, &system)), Ok(1));
    }
}

/// Rule 64: when a child drops its share of the port, none of the parent's operations ends.
#[cfg(target_os = "linux")]
#[test]
fn a_port_that_a_forked_child_drops_leaves_the_flights_epoll() {
    if !in_a_process_of_its_own(
        "operations_ending::a_port_that_a_forked_child_drops_leaves_the_flights_epoll",
    ) {
        return;
    }
    for system in [System::native(), System::native().one_shot()] {
        let mut port = Some(shared_on(&system));
        let (near, far) = system.tcp_pair();
        let parent = port.as_ref().unwrap();
        let id = parent.associate_shared(Shared::new(near)).unwrap();
        for _ in 0..3 {
            parent.start(id, Operation::recv(room(1)).deadline(HOUR)).unwrap();
        }
        // One is due, and one has ended.
        far.write(b"a").unwrap();
        drop(parent.wait(&mut Batch::new(), system.soon()).unwrap());
        parent.start(id, Operation::send(b"sent".to_vec())).unwrap();
        let status = in_forked_child(|| {
            drop(port.take());
            0
        });
        assert_eq!(status, 0);
        let port = port.unwrap();
        let mut sums = (0, 0);
        for packet in all(&port, &system, 2) {
            let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
            match finished.into_parts().1 {
                Outcome::Received(Ok(1), bytes) => {
                    assert_eq!(bytes, b"a");
                    sums.0 += 1;
                }
                Outcome::Sent(Ok(4), _) => sums.1 += 1,
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(sums, (1, 1));
        assert_eq!(far.read_within(system.soon(), 4), b"sent");
        far.write(b"bc").unwrap();
        drop(all(&port, &system, 2));
    }
}

/// Rule 63: a simulated kernel shows whether an accepted socket remains.
#[test]
fn a_cancelled_accept_leaves_no_socket_sim() {
    let system = System::simulated();
    let kernel = system.kernel().unwrap();
    {
        let port = shared_on(&system);
        let listener = Shared::new(system.tcp_listener(4));
        let id = port.associate_shared(listener.clone()).unwrap();
        let clients: Vec<_> = (0..3).map(|_| system.tcp_connect(&listener)).collect();
        for _ in 0..3 {
            port.start(id, Operation::accept()).unwrap();
        }
        drop(port.wait(&mut Batch::new(), system.soon()).unwrap());
        port.remove(id.id()).unwrap();
        for packet in all(&port, &system, 3) {
            let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
            // Accepted or cancelled. This closes an accepted connection.
            let _ = accepted(finished.into_parts().1, &system);
        }
        assert!(matches!(next(&port, &system), Packet::Removed(..)));
        drop(listener);
        assert_eq!(kernel.open_descriptors(), clients.len());
        await_unread(&clients[0], &system, 0);
    }
    system.assert_nothing_left();
}
