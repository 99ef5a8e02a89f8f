//! Rule 80: a graceful shutdown.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, ErrorKind, Interest, OneShot, Operation, Outcome, Packet, Persistent, Port,
    Registration, Started,
};
use testkit::{Socket, System, on_every_system};
#[cfg(target_os = "linux")]
use testkit::{await_readers, in_forked_child};

use crate::kit::files::{read, synced, written};
use crate::kit::operations::{
    HOUR, MILLISECOND, Shared, all, bytes, connected, done, finished, much, next, received, room,
    sent, shared_on, silent, sockets_on, sort, why,
};
use crate::kit::packets::{
    assert_closed, each_packet, given_back, one_shot, queue, ready, refused, the_removed, the_token,
};
use crate::kit::sockets::STREAMS;
use crate::kit::threads::{End, hear, now, settle, stays};

/// Checks that the next packet returns the only key, and that the waits end then.
#[track_caller]
fn assert_last<K>(port: &Port<K, u32>, on: &System) -> K {
    let Packet::Removed(_, key) = next(port, on) else { panic!("no removal") };
    assert_closed(port, on);
    assert_eq!(port.stats().registered, 0);
    key
}

/// Begins a shutdown before a message is due, and checks what is handed out and what is refused.
/// False if the shutdown began too late.
fn queued_work_is_handed_out(system: &System, time: Duration) -> bool {
    let port = system.port::<Shared, u32>(1);
    let (near, _far) = system.unix_pair();
    let near = Shared::new(near);
    let token = port.associate(near.clone()).unwrap();
    port.post(1).unwrap();
    let later = port.post_at(HOUR, 2).unwrap();
    port.post_at(Duration::ZERO, 3).unwrap();
    let begun = now(system);
    port.post_at(time, 4).unwrap();
    port.shutdown_gracefully(HOUR).unwrap();
    if now(system) - begun >= time {
        return false;
    }
    assert_eq!(given_back(port.associate(near.clone())).0, ErrorKind::Closed);
    let again = Registration::owned(near.clone(), Interest::IN, OneShot::Level);
    assert_eq!(given_back(port.register(again)).0, ErrorKind::Closed);
    assert_eq!(given_back(port.associate_shared(near)).0, ErrorKind::Closed);
    assert_eq!(given_back(port.post(5)), (ErrorKind::Closed, 5));
    assert_eq!(given_back(port.post_at(HOUR, 6)), (ErrorKind::Closed, 6));
    let mut messages = Vec::new();
    for packet in all(&port, system, 2) {
        let Packet::Posted(message) = packet else { panic!("{}", sort(&packet)) };
        messages.push(message);
    }
    messages.sort_unstable();
    assert_eq!(messages, [1, 3]);
    // Also once its time has come.
    assert_eq!(port.wait(&mut Batch::new(), time + MILLISECOND).unwrap().count(), 0);
    assert_eq!(port.cancel_post(later), Some(2));
    token.park().unwrap();
    drop(assert_last(&port, system));
    true
}

/// Reads from `far` until the port has a packet.
#[track_caller]
fn drain_until_done(port: &Port<Socket, u32>, far: &Socket, on: &System) -> (usize, Outcome) {
    let (mut drained, mut batch, begun) = (0, Batch::new(), Instant::now());
    loop {
        drained += far.drain();
        let packet = port.wait(&mut batch, MILLISECOND).unwrap().next();
        if let Some(packet) = packet {
            let Packet::Completed(done) = packet else { panic!("{}", sort(&packet)) };
            let (token, outcome) = done.into_parts();
            token.park().unwrap();
            return (drained + far.drain(), outcome);
        }
        assert!(begun.elapsed() < on.soon(), "it is not sent");
    }
}

/// Returns how many bytes there are to read. The stream may be reset after them.
fn read_all(far: &Socket) -> usize {
    let (mut buffer, mut all) = ([0; 4096], 0);
    while let Ok(count @ 1..) = far.read(&mut buffer) {
        all += count;
    }
    all
}

on_every_system! {
    /// Rule 80: a send in flight finishes, and then its key is returned.
    fn what_is_being_sent_is_sent(system: &System) {
        for pair in STREAMS {
            let port = sockets_on(system);
            let (near, far) = pair(system);
            let size = much(system);
            port.associate(near).unwrap().send_all(vec![7; size]).unwrap();
            port.shutdown_gracefully(HOUR).unwrap();
            silent(&port, system);
            let (mut drained, outcome) = drain_until_done(&port, &far, system);
            assert_eq!(sent(&outcome), Ok(size));
            drop(assert_last(&port, system));
            while drained < size {
                drained += far.read_within(system.soon(), size - drained).len();
            }
        }
    }

    /// Rule 80: what waits for a peer is cancelled, and the handler may still answer.
    fn what_waits_for_a_peer_is_cancelled_and_an_answer_is_sent(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        port.associate(near).unwrap().recv(room(4)).unwrap();
        port.shutdown_gracefully(HOUR).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(why(outcome.error()), ErrorKind::Cancelled);
        token.send_all(b"bye".to_vec()).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(sent(&outcome), Ok(3));
        let Started::Completed((token, outcome)) =
            token.start_now(Operation::send(b"!".to_vec())).unwrap() else { panic!("there is room") };
        assert_eq!(sent(&outcome), Ok(1));
        silent(&port, system);
        token.rearm().unwrap();
        drop(assert_last(&port, system));
        assert_eq!(far.read_within(system.soon(), 4), b"bye!");
    }

    /// Rule 80: accepts and connects wait for a peer too.
    fn accepts_and_connects_are_cancelled(system: &System) {
        let port = sockets_on(system);
        let listener = system.tcp_listener(1);
        let address = listener.address().for_port();
        port.associate(listener).unwrap().accept().unwrap();
        port.shutdown_gracefully(HOUR).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(why(outcome.error()), ErrorKind::Cancelled);
        // They are also cancelled if they start now.
        token.accept().unwrap();
        let (token, outcome) = done(&port, system);
        assert!(matches!(outcome, Outcome::Accepted(Err(_))));
        token.park().unwrap();
        drop(assert_last(&port, system));

        let port = sockets_on(system);
        let token = port.associate(system.tcp_fresh()).unwrap();
        port.shutdown_gracefully(HOUR).unwrap();
        token.connect(address).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(connected(&outcome).unwrap_err().kind(), ErrorKind::Cancelled);
        token.park().unwrap();
        drop(assert_last(&port, system));
    }

    /// Rule 80: a receive that starts now takes nothing, although there is something.
    fn a_receive_that_starts_now_takes_nothing(system: &System) {
        let port = shared_on(system);
        let ((near, far), (shared, shared_far)) = (system.unix_pair(), system.unix_pair());
        let near = Shared::new(near);
        let token = port.associate(near.clone()).unwrap();
        let shared = Shared::new(shared);
        let id = port.associate_shared(shared.clone()).unwrap();
        far.write(b"near").unwrap();
        shared_far.write(b"shared").unwrap();
        // The calling thread runs with a packet, so the shared key is not returned.
        port.post(0).unwrap();
        assert_eq!(sort(&next(&port, system)), "posted");
        port.shutdown_gracefully(HOUR).unwrap();

        port.start(id, Operation::recv(room(4))).unwrap();
        let clone = finished(&port, system);
        assert_eq!(why(clone.error()), ErrorKind::Cancelled);
        assert!(clone.into_parts().1.into_buffer().is_some());
        let now = port.start_now(id, Operation::recv(room(4))).unwrap();
        assert!(matches!(now, Started::InFlight(_)));
        assert_eq!(why(finished(&port, system).error()), ErrorKind::Cancelled);

        token.recv(room(4)).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(received(outcome).0, Err(ErrorKind::Cancelled));
        let Started::Completed((token, outcome)) =
            token.start_now(Operation::recv(room(4))).unwrap() else { panic!("it is cancelled") };
        assert_eq!(received(outcome).0, Err(ErrorKind::Cancelled));
        assert_eq!((near.unread().unwrap(), shared.unread().unwrap()), (4, 6));
        token.park().unwrap();
        let sorts: Vec<_> = all(&port, system, 2).iter().map(sort).collect();
        assert_eq!(sorts, ["removed", "removed"]);
        assert_closed(&port, system);
    }

    /// Rule 80: the keys of readiness, whose sockets the program itself reads and writes.
    fn keys_without_operations_are_returned_as_by_a_shutdown(system: &System) {
        let port = system.port::<&str, usize>(1);
        let sockets: Vec<_> = (0..4).map(|_| system.unix_pair()).collect();
        let held = port.register(one_shot(&sockets[0].0, "held")).unwrap();
        sockets[0].1.write(b"x").unwrap();
        let token = the_token(&port, system);
        let armed = port.register(one_shot(&sockets[1].0, "armed")).unwrap();
        let always = Registration::new(&sockets[2].0, "always", Interest::IN, Persistent::Level);
        let always = port.register(always).unwrap();
        let write = || assert_eq!(sockets[3].1.write(b"x").unwrap(), 1);
        let _other = queue(&port, system, &sockets[3].0, write, "queued", "other");
        port.shutdown_gracefully(HOUR).unwrap();
        let mut batch = Batch::new();
        let mut removed: Vec<_> = port
            .wait(&mut batch, system.soon())
            .unwrap()
            .map(|packet| match packet {
                Packet::Removed(_, key) => key,
                _ => panic!("nothing else is reported"),
            })
            .collect();
        removed.sort_unstable();
        assert_eq!(removed, ["always", "armed", "queued"]);
        assert_eq!(refused(port.disable(armed)), ErrorKind::NotRegistered);
        assert_eq!(refused(port.remove_now(always)), ErrorKind::NotRegistered);
        // The last one is returned by its handler.
        assert_eq!(refused(port.enable_also(held, Interest::OUT)), ErrorKind::Closed);
        token.rearm().unwrap();
        assert_eq!(the_removed(&port, system), (held, "held"));
        assert_closed(&port, system);
    }

    /// Rule 80: nothing new is accepted. What was queued or due is handed out.
    fn new_work_is_refused_and_what_was_queued_is_handed_out(system: &System) {
        // On a busy machine the timed message may be due before the shutdown: again, with more time.
        let mut times = (0..10).map(|doublings| 5 * MILLISECOND * (1 << doublings));
        assert!(times.any(|time| queued_work_is_handed_out(system, time)), "the shutdown takes seconds");
    }

    /// Rule 80: the key of a shared association is returned when no handler can be about to start
    /// an operation.
    fn a_shared_key_is_returned_when_no_handler_may_use_it(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        port.start(id, Operation::recv(room(4))).unwrap();
        far.write(b"ask").unwrap();
        let request = finished(&port, system).into_parts().1;
        // Nothing is in flight, but the handler has not answered yet.
        port.shutdown_gracefully(HOUR).unwrap();
        assert_eq!(bytes(request), b"ask");
        port.start(id, Operation::send_all(b"answer".to_vec())).unwrap();
        port.start(id, Operation::recv(room(4))).unwrap();
        for packet in all(&port, system, 2) {
            let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
            match finished.into_parts().1 {
                Outcome::Sent(result, _) => assert_eq!(result, Ok(6)),
                outcome => assert_eq!(why(outcome.error()), ErrorKind::Cancelled),
            }
        }
        drop(assert_last(&port, system));
        assert_eq!(far.read_within(system.soon(), 6), b"answer");
    }

    /// Rule 80: so it is for a thread that only looks in from time to time.
    fn a_shared_key_is_returned_to_a_thread_that_never_sleeps(system: &System) {
        let port = shared_on(system);
        let (near, _far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        port.start(id, Operation::recv(room(4))).unwrap();
        port.shutdown_gracefully(HOUR).unwrap();
        let (mut batch, mut sorts, begun) = (Batch::new(), Vec::new(), Instant::now());
        while let Ok(packets) = port.wait(&mut batch, Duration::ZERO) {
            sorts.extend(packets.map(|packet| sort(&packet)));
            assert!(begun.elapsed() < system.soon(), "{sorts:?}");
        }
        assert_eq!(sorts, ["finished", "removed"]);
    }

    /// Rule 80: another thread's handler may start an operation as well, and its end is noticed,
    /// even if it exits.
    fn a_shared_key_waits_for_the_handlers_of_all_threads(system: &System) {
        system.several_threads_wait();
        for exits in [false, true] {
            let port: Port<Shared, u32> = system.port(2);
            let (near, far) = system.unix_pair();
            let id = port.associate_shared(Shared::new(near)).unwrap();
            let (say, heard) = mpsc::channel();
            let (go, gone) = mpsc::channel::<()>();
            thread::scope(|scope| {
                let _end = End::of(&port, []);
                let port = &port;
                let other = say.clone();
                scope.spawn(move || {
                    each_packet(port, Batch::new(), |packet| other.send(sort(&packet)).unwrap());
                });
                settle(system, port, 1);
                scope.spawn(move || {
                    let mut batch = Batch::with_capacity(1);
                    let packet = port.wait(&mut batch, None).unwrap().next();
                    assert_eq!(packet.as_ref().map(sort), Some("posted"));
                    say.send("handles").unwrap();
                    gone.recv().unwrap();
                    port.start(id, Operation::send(b"x".to_vec())).unwrap();
                    if !exits {
                        each_packet(port, batch, |packet| say.send(sort(&packet)).unwrap());
                    }
                });
                settle(system, port, 2);
                port.post(0).unwrap();
                assert_eq!(hear(system, &heard, "a handler runs"), "handles");
                port.shutdown_gracefully(HOUR).unwrap();
                stays(system, 1, "the key is not returned", || heard.try_recv().is_err());
                go.send(()).unwrap();
                assert_eq!(hear(system, &heard, "it is sent"), "finished");
                assert_eq!(hear(system, &heard, "the key is returned"), "removed");
            });
            assert_eq!(far.read_within(system.soon(), 1), b"x");
        }
    }

    /// Rule 80: what is not sent by the deadline is cancelled, and says how much was sent.
    fn at_the_deadline_the_rest_is_cancelled(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        port.associate(near).unwrap().send_all(vec![7; much(system)]).unwrap();
        let begun = now(system);
        port.shutdown_gracefully(30 * MILLISECOND).unwrap();
        let (token, outcome) = done(&port, system);
        assert!(now(system) - begun >= 30 * MILLISECOND);
        let error = sent(&outcome).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert_eq!(far.drain(), error.transferred());
        // From then on the port is shut down.
        let (error, (key, _)) = given_back(token.send(b"x".to_vec()));
        assert_eq!(error, ErrorKind::Closed);
        drop(key);
        assert_closed(&port, system);
    }

    /// Rule 80: at the deadline all keys that are at the port are returned.
    fn at_the_deadline_every_key_is_returned(system: &System) {
        let port = shared_on(system);
        let ((near, _far), (held, _peer)) = (system.unix_pair(), system.unix_pair());
        let id = port.associate_shared(Shared::new(near)).unwrap();
        port.start(id, Operation::send_all(vec![7; much(system)])).unwrap();
        let token = port.associate(Shared::new(held)).unwrap();
        port.shutdown_gracefully(10 * MILLISECOND).unwrap();
        port.shutdown_gracefully(HOUR).unwrap();
        assert_eq!(why(finished(&port, system).error()), ErrorKind::Cancelled);
        assert_eq!(sort(&next(&port, system)), "removed");
        silent(&port, system);
        token.park().unwrap();
        drop(assert_last(&port, system));
    }

    /// Rule 80: of several deadlines the earliest counts, and a shutdown or a close comes first.
    fn a_second_call_makes_it_end_sooner(system: &System) {
        for way in 0..4 {
            let port = sockets_on(system);
            let (near, _far) = system.unix_pair();
            port.associate(near).unwrap().send_all(vec![7; much(system)]).unwrap();
            port.shutdown_gracefully(HOUR).unwrap();
            silent(&port, system);
            match way {
                0 => port.shutdown_gracefully(5 * MILLISECOND).unwrap(),
                1 => port.shutdown_gracefully(Duration::ZERO).unwrap(),
                2 => port.shutdown().unwrap(),
                _ => port.close(),
            }
            port.shutdown_gracefully(HOUR).unwrap();
            let (token, outcome) = done(&port, system);
            assert_eq!(sent(&outcome).unwrap_err().kind(), ErrorKind::Cancelled);
            drop(token);
            assert_closed(&port, system);
        }
    }

    /// Rule 80: a deadline that has passed is a shutdown.
    fn without_time_it_is_a_shutdown(system: &System) {
        for instant in [false, true] {
            let port = sockets_on(system);
            let (near, _far) = system.unix_pair();
            port.associate(near).unwrap().send_all(vec![7; much(system)]).unwrap();
            if instant {
                port.shutdown_gracefully(Instant::now()).unwrap();
            } else {
                port.shutdown_gracefully(Duration::ZERO).unwrap();
            }
            let (token, outcome) = done(&port, system);
            assert_eq!(sent(&outcome).unwrap_err().kind(), ErrorKind::Cancelled);
            token.park().unwrap();
            drop(assert_last(&port, system));
        }
    }

    /// Rule 80: operations on files finish, and more of them may be started.
    fn operations_on_files_finish(system: &System) {
        let port = shared_on(system);
        let file = Shared::new(system.file(b""));
        let id = port.associate_shared(file).unwrap();
        let other = port.associate(Shared::new(system.file(b""))).unwrap();
        port.start(id, Operation::write_at(b"written".to_vec(), 0)).unwrap();
        port.start(id, Operation::sync_all()).unwrap();
        port.shutdown_gracefully(HOUR).unwrap();
        for packet in all(&port, system, 2) {
            let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
            match finished.into_parts().1 {
                outcome @ Outcome::Written(..) => assert_eq!(written(&outcome), Ok(7)),
                outcome => synced(&outcome).unwrap(),
            }
        }
        other.write_at(b"other".to_vec(), 0).unwrap();
        let mut token = None;
        let mut sorts: Vec<_> = all(&port, system, 2)
            .into_iter()
            .map(|packet| {
                let sort = sort(&packet);
                if let Packet::Completed(done) = packet {
                    let (own, outcome) = done.into_parts();
                    assert_eq!(written(&outcome), Ok(5));
                    token = Some(own);
                }
                sort
            })
            .collect();
        sorts.sort_unstable();
        assert_eq!(sorts, ["done", "removed"]);
        token.unwrap().read_at(room(5), 0).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(read(outcome), Ok(b"other".to_vec()));
        token.park().unwrap();
        drop(assert_last(&port, system));
    }

    /// Rule 80: a port with nothing to return is closed immediately, for waiting threads too.
    fn a_port_without_registrations_is_closed(system: &System) {
        system.several_threads_wait();
        let port: Port<Socket, u32> = system.port(1);
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(|| say.send(port.wait(&mut Batch::new(), None).is_err()).unwrap());
            settle(system, &port, 1);
            port.shutdown_gracefully(HOUR).unwrap();
            assert!(hear(system, &heard, "the wait ends"));
        });
        assert_closed(&port, system);
    }

    /// Rule 80: a registration that reports and has operations reports no more.
    fn readiness_beside_operations_is_not_reported(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        port.enable(id.id(), Interest::IN, Persistent::Level).unwrap();
        port.start(id, Operation::send_all(vec![7; much(system)])).unwrap();
        port.shutdown_gracefully(HOUR).unwrap();
        far.write(b"x").unwrap();
        silent(&port, system);
        port.remove(id.id()).unwrap();
        assert_eq!(why(finished(&port, system).error()), ErrorKind::Cancelled);
        drop(assert_last(&port, system));
    }

    /// Rule 80: every answer that a handler has begun arrives, with several threads.
    fn every_request_that_was_taken_is_answered(system: &System) {
        const CLIENTS: usize = 40;
        const ANSWER: usize = 3000;
        system.several_threads_wait();
        for shared in [false, true] {
            let port: Port<Shared, u32> = system.port(2);
            let (near, far): (Vec<_>, Vec<_>) = (0..CLIENTS).map(|_| system.unix_pair()).unzip();
            let taken = std::sync::atomic::AtomicUsize::new(0);
            let count = || taken.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
            thread::scope(|scope| {
                let _end = End::of(&port, []);
                for near in near {
                    let near = Shared::new(near);
                    if shared {
                        let id = port.associate_shared(near).unwrap();
                        port.start(id, Operation::recv(room(4))).unwrap();
                    } else {
                        port.associate(near).unwrap().recv(room(4)).unwrap();
                    }
                }
                for _ in 0..3 {
                    scope.spawn(|| {
                        each_packet(&port, Batch::with_capacity(4), |packet| match packet {
                            Packet::Completed(done) => match done.into_parts() {
                                (token, Outcome::Received(Ok(1), _)) => {
                                    count();
                                    token.send_all(vec![7; ANSWER]).unwrap();
                                }
                                (token, Outcome::Sent(Ok(ANSWER), _)) => {
                                    token.recv(room(4)).unwrap();
                                }
                                (token, outcome) => {
                                    assert_eq!(why(outcome.error()), ErrorKind::Cancelled);
                                    token.park().unwrap();
                                }
                            },
                            Packet::SharedCompleted(finished) => {
                                let id = finished.id();
                                match finished.into_parts().1 {
                                    Outcome::Received(Ok(1), _) => {
                                        count();
                                        let answer = Operation::send_all(vec![7; ANSWER]);
                                        port.start(id, answer).unwrap();
                                    }
                                    Outcome::Sent(result, _) => assert_eq!(result, Ok(ANSWER)),
                                    outcome => {
                                        assert_eq!(why(outcome.error()), ErrorKind::Cancelled);
                                    }
                                }
                            }
                            _ => {}
                        });
                    });
                }
                for far in &far {
                    far.write(b"?").unwrap();
                }
                port.shutdown_gracefully(HOUR).unwrap();
                let begun = Instant::now();
                while port.stats().registered > 0 {
                    assert!(begun.elapsed() < system.soon(), "{port:#?}");
                    thread::yield_now();
                }
            });
            let received: usize = far.iter().map(read_all).sum();
            assert_eq!(received, taken.into_inner() * ANSWER);
        }
    }
}

/// Rule 80: a read of what is no file waits for a peer, as a receive does.
#[cfg(target_os = "linux")]
#[test]
fn a_read_of_a_pipe_is_cancelled_epoll() {
    for system in crate::kit::files::native() {
        let port = shared_on(&system);
        let (ours, theirs) = system.pipe();
        let ours = Shared::new(ours);
        port.associate(ours.clone()).unwrap().read_at(room(4), 0).unwrap();
        if system.has_file_threads() {
            await_readers(theirs.number(), 1);
        }
        silent(&port, &system);
        port.shutdown_gracefully(HOUR).unwrap();
        if system.has_file_threads() {
            // A thread completes what it has begun.
            silent(&port, &system);
            theirs.write(b"read").unwrap();
        }
        let (token, outcome) = done(&port, &system);
        assert_eq!(outcome.error().is_none(), system.has_file_threads());
        theirs.write(b"x").unwrap();
        token.read_at(room(4), 0).unwrap();
        let (token, outcome) = done(&port, &system);
        assert_eq!(why(outcome.error()), ErrorKind::Cancelled);
        assert_eq!(ours.unread().unwrap(), 1);
        token.park().unwrap();
        drop(assert_last(&port, &system));
    }
}

/// Rules 32 and 80: a forked child changes nothing of its parent's port.
#[cfg(target_os = "linux")]
#[test]
fn a_forked_child_shuts_nothing_down_epoll() {
    let system = System::native();
    let port = sockets_on(&system);
    let (near, far) = system.unix_pair();
    port.register(Registration::owned(near, Interest::IN, OneShot::Level)).unwrap();
    let in_child = || u8::from(refused(port.shutdown_gracefully(HOUR)) != ErrorKind::Forked);
    assert_eq!(in_forked_child(in_child), 0);
    far.write(b"x").unwrap();
    drop(ready(&port, &system));
    silent(&port, &system);
}
