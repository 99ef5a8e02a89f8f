//! Rules 60 and 61: deadlines of operations and of readiness.

use std::collections::BTreeMap;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, ErrorKind, Events, Interest, OneShot, Operation, Outcome, Packet, Persistent, Port,
    Registration,
};
use testkit::{Socket, System, late, on_every_system};

use crate::kit::descriptors::with_many_descriptors;
use crate::kit::operations::{
    HOUR, MILLISECOND, Shared, accepted, all, bytes, connected, done, finished, much, next, room,
    sent, shared_on, silent, sockets_on, sort, why,
};
use crate::kit::packets::{each_packet, given_back, notified, one_shot, ready};
use crate::kit::sockets::{STREAMS, await_unread};
use crate::kit::threads::{End, hear, now, settle};

/// Checks that `took` is not shorter than `time`, and not longer either if only the test moves the
/// clock.
#[track_caller]
fn assert_in_time(on: &System, took: Duration, time: Duration) {
    assert!(took >= time, "{took:?} instead of {time:?}");
    let late = if on.kernel().is_some() { MILLISECOND } else { on.soon() };
    assert!(took <= time + late, "{took:?} instead of {time:?}");
}

/// Returns the outcome. Reports a timeout as the fault of a busy machine.
fn in_time<B>(outcome: Outcome<B>) -> Outcome<B> {
    if outcome.error().is_some_and(|error| error.kind() == ErrorKind::TimedOut) {
        late();
    }
    outcome
}

/// Returns the next packet, which must report readiness unless the machine was too busy.
#[track_caller]
fn ready_in_time<'p>(
    port: &'p Port<Socket, u32>,
    on: &System,
) -> completion_port::Ready<'p, Socket> {
    let token = ready(port, on);
    if token.events() == Events::TIMED_OUT {
        late();
    }
    token
}

/// Lets `time` pass while no thread uses the port.
#[allow(clippy::disallowed_methods, reason = "that nothing happens for so long is the event")]
fn pass(on: &System, time: Duration) {
    match on.kernel() {
        Some(kernel) => kernel.advance(time),
        None => thread::sleep(time),
    }
}

/// Associates a socket. Returns its token and its peer.
fn associated<'p>(
    on: &System,
    port: &'p Port<Socket, u32>,
) -> (completion_port::Ready<'p, Socket>, Socket) {
    let (near, far) = on.unix_pair();
    (port.associate(near).unwrap(), far)
}

/// Returns the next packet, which must report the deadline in time.
#[track_caller]
fn timed_out<'p>(
    on: &System,
    port: &'p Port<Socket, u32>,
    begun: Duration,
    time: Duration,
) -> completion_port::Ready<'p, Socket> {
    let token = ready(port, on);
    assert_eq!(token.events(), Events::TIMED_OUT);
    assert_in_time(on, now(on) - begun, time);
    token
}

on_every_system! {
    /// Rule 60: never early, and key and buffer are returned.
    fn an_operation_ends_at_its_deadline(system: &System) {
        let port = sockets_on(system);
        let (mut token, far) = associated(system, &port);
        for microseconds in [0, 1, 300, 999, 1000, 1001, 5_000, 30_300] {
            let time = Duration::from_micros(microseconds);
            let begun = now(system);
            let receive = token.start(Operation::recv(room(4)).deadline(time)).unwrap();
            let (again, outcome) = done(&port, system);
            assert_in_time(system, now(system) - begun, time);
            let error = outcome.error().unwrap();
            assert_eq!((error.kind(), error.os_code()), (ErrorKind::TimedOut, None));
            assert_eq!(outcome.into_buffer().unwrap().capacity(), 4);
            assert!(!port.cancel(receive).unwrap());
            token = again;
        }
        silent(&port, system);
        assert_eq!(port.stats().packets.completed, 8);
        far.write(b"x").unwrap();
        token.recv(room(4)).unwrap();
        assert_eq!(bytes(done(&port, system).1), b"x");
    }

    /// Rules 49, 60 and 61: a waiting thread is at most a millisecond late, unless the machine is
    /// busy. It must be in time at least once in many attempts. (On Windows, waits in the kernel
    /// end with the system's tick.)
    fn a_thread_that_waits_is_in_time(system: &System) {
        let allowed = if cfg!(windows) { 17 * MILLISECOND } else { MILLISECOND };
        let time = 2 * MILLISECOND;
        let port = sockets_on(system);
        let late = |wait: &mut dyn FnMut()| {
            let times = (0..20).map(|_| {
                let begun = now(system);
                wait();
                now(system) - begun - time
            });
            times.min().unwrap()
        };
        let (token, _far) = associated(system, &port);
        let mut token = Some(token);
        let of_operations = late(&mut || {
            let receive = Operation::recv(room(4)).deadline(time);
            token.take().unwrap().start(receive).unwrap();
            token = Some(done(&port, system).0);
        });
        let of_armings = late(&mut || {
            token.take().unwrap().rearm_as_until(Interest::IN, OneShot::Level, time).unwrap();
            token = Some(ready(&port, system));
        });
        let of_messages = late(&mut || {
            port.post_at(time, 1).unwrap();
            assert_eq!(port.wait(&mut Batch::new(), None).unwrap().count(), 1);
        });
        if [of_operations, of_armings, of_messages].iter().any(|late| *late > allowed) {
            if system.kernel().is_some() {
                panic!("late by {of_operations:?}, {of_armings:?} and {of_messages:?}");
            }
            testkit::late();
        }
    }

    /// Rule 60: operations of every kind can have a deadline.
    fn every_operation_has_a_deadline(system: &System) {
        let port = sockets_on(system);
        let time = 10 * MILLISECOND;
        let begun = now(system);
        let listener = system.tcp_listener(0);
        let address = listener.address().for_port();
        let listening = port.associate(listener).unwrap();
        listening.start(Operation::accept().deadline(time)).unwrap();
        let (token, outcome) = done(&port, system);
        assert_in_time(system, now(system) - begun, time);
        assert_eq!(accepted(outcome, system).unwrap_err(), ErrorKind::TimedOut);
        // This fills its queue.
        let _client = system.tcp_connect(token.key());
        let begun = now(system);
        let connect = Operation::connect(address).deadline(time);
        port.associate(system.tcp_fresh()).unwrap().start(connect).unwrap();
        let (_token, outcome) = done(&port, system);
        assert_in_time(system, now(system) - begun, time);
        assert_eq!(connected(&outcome).unwrap_err().kind(), ErrorKind::TimedOut);
        let datagrams = port.associate(system.udp_bound()).unwrap();
        let begun = now(system);
        datagrams.start(Operation::recv_from(room(4)).deadline(time)).unwrap();
        let (_token, outcome) = done(&port, system);
        assert_in_time(system, now(system) - begun, time);
        assert_eq!(why(outcome.error()), ErrorKind::TimedOut);
    }

    /// Rule 60: the outcome reports how much was sent, and the peer gets exactly that.
    fn a_send_that_times_out_tells_how_much_was_sent(system: &System) {
        for pair in STREAMS {
            let much = much(system);
            let port = sockets_on(system);
            let (near, far) = pair(system);
            let send = Operation::send_all(vec![b'a'; much]).deadline(10 * MILLISECOND);
            port.associate(near).unwrap().start(send).unwrap();
            let (token, outcome) = done(&port, system);
            let error = sent(&outcome).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::TimedOut);
            let part = error.transferred();
            assert!(0 < part && part < much);
            drop(token);
            let begun = Instant::now();
            let mut read = 0;
            while read < part {
                read += far.drain();
                assert!(begun.elapsed() < system.soon(), "{read} of {part}");
            }
            assert_eq!((read, far.drain()), (part, 0));
        }
    }

    /// Rule 60: an operation that can complete at its start does, although its deadline has passed.
    fn a_deadline_in_the_past_ends_only_what_has_to_wait(system: &System) {
        let port = sockets_on(system);
        let (token, far) = associated(system, &port);
        token.start(Operation::recv(room(4)).deadline(Instant::now())).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(why(outcome.error()), ErrorKind::TimedOut);
        token.start(Operation::send(b"x".to_vec()).deadline(Duration::ZERO)).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(sent(&outcome), Ok(1));
        far.write(b"y").unwrap();
        await_unread(token.key(), system, 1);
        token.start(Operation::recv(room(4)).deadline(Duration::ZERO)).unwrap();
        // It is not known whether it is ready, so it may end either way, in one packet.
        let (token, outcome) = done(&port, system);
        if outcome.error().is_some() {
            assert_eq!(why(outcome.error()), ErrorKind::TimedOut);
            token.recv(room(4)).unwrap();
            assert_eq!(bytes(done(&port, system).1), b"y");
        }
        silent(&port, system);
    }

    /// Rule 60: the deadline is later than the clock can represent.
    fn a_deadline_beyond_the_clock_is_none(system: &System) {
        let port = sockets_on(system);
        let (token, far) = associated(system, &port);
        token.start(Operation::recv(room(4)).deadline(Duration::MAX)).unwrap();
        silent(&port, system);
        far.write(b"x").unwrap();
        assert_eq!(bytes(done(&port, system).1), b"x");
    }

    /// Rule 60: an operation that ends in time does not time out, nor does the next one before its
    /// own deadline.
    fn the_deadline_of_what_is_done_means_nothing_to_the_next(system: &System) {
        let port = sockets_on(system);
        let (token, far) = associated(system, &port);
        token.start(Operation::recv(room(4)).deadline(20 * MILLISECOND)).unwrap();
        far.write(b"x").unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(bytes(in_time(outcome)), b"x");
        // Without a deadline.
        token.recv(room(4)).unwrap();
        silent(&port, system);
        silent(&port, system);
        far.write(b"y").unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(bytes(outcome), b"y");
        // With a later deadline: the timer that is set expires, finds nothing due, and is set
        // again.
        let mut token = token;
        for _ in 0..6 {
            let begun = now(system);
            token.start(Operation::recv(room(4)).deadline(HOUR)).unwrap();
            far.write(b"z").unwrap();
            token = done(&port, system).0;
            let time = 15 * MILLISECOND;
            token.start(Operation::recv(room(4)).deadline(time)).unwrap();
            let (again, outcome) = done(&port, system);
            assert_eq!(why(outcome.error()), ErrorKind::TimedOut);
            assert_in_time(system, now(system) - begun, time);
            token = again;
        }
    }

    /// Rule 60: the deadline is moved again and again, and nothing times out.
    fn a_deadline_that_is_moved_in_time_is_never_over(system: &System) {
        let port = sockets_on(system);
        let (mut token, far) = associated(system, &port);
        let time = if system.kernel().is_some() { 5 * MILLISECOND } else { 1000 * MILLISECOND };
        for _ in 0..40 {
            let begun = now(system);
            token.start(Operation::recv(room(4)).deadline(time)).unwrap();
            let mut batch = Batch::new();
            let packets = port.wait(&mut batch, 3 * MILLISECOND).unwrap().count();
            if now(system) - begun >= time {
                late();
            }
            assert_eq!(packets, 0);
            far.write(b"x").unwrap();
            let (again, outcome) = done(&port, system);
            assert_eq!(bytes(in_time(outcome)), b"x");
            token = again;
        }
        let begun = now(system);
        token.start(Operation::recv(room(4)).deadline(time)).unwrap();
        assert_eq!(why(done(&port, system).1.error()), ErrorKind::TimedOut);
        assert_in_time(system, now(system) - begun, time);
    }

    /// Rule 60: each of several operations has its own deadline. The others stay, in their order.
    fn each_operation_has_its_own_deadline(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let times = [30, 10, 3_600_000, 20, 40, 10].map(|time| MILLISECOND * time);
        let begun = now(system);
        let names = times.map(|time| {
            port.start(id, Operation::recv(room(1)).deadline(time)).unwrap()
        });
        let last = port.start(id, Operation::recv(room(1))).unwrap();
        let mut order = Vec::new();
        while order.len() < 5 {
            for packet in port.wait(&mut Batch::new(), system.soon()).unwrap() {
                let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
                let place = names.iter().position(|name| *name == finished.operation()).unwrap();
                assert_eq!(why(finished.error()), ErrorKind::TimedOut);
                assert_in_time(system, now(system) - begun, times[place]);
                order.push(place);
            }
        }
        if system.kernel().is_some() {
            assert_eq!(order, [1, 5, 3, 0, 4]);
        }
        silent(&port, system);
        far.write(b"ab").unwrap();
        let left: Vec<_> = all(&port, system, 2)
            .into_iter()
            .map(|packet| match packet {
                Packet::SharedCompleted(finished) => finished.operation(),
                _ => panic!("no operation"),
            })
            .collect();
        assert_eq!(left, [names[2], last]);
    }

    /// Rule 60: the operations after it keep their order.
    fn a_deadline_leaves_the_order_of_the_others(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let first = Operation::recv(room(1)).deadline(5 * MILLISECOND);
        port.start(id, first).unwrap();
        let left: Vec<_> =
            (0..3).map(|_| port.start(id, Operation::recv(room(1))).unwrap()).collect();
        assert_eq!(why(finished(&port, system).error()), ErrorKind::TimedOut);
        far.write(b"abc").unwrap();
        for (packet, name) in all(&port, system, 3).into_iter().zip(left) {
            let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
            assert_eq!(finished.operation(), name);
        }
    }

    /// Rule 60: the deadline of an operation is kept if it passes while the one before it is due.
    fn a_deadline_outlives_an_attempt_in_vain(system: &System) {
        system.not_where_operations_are_carried_out("attempt in vain at what waits");
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let same = near.dup().unwrap();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let begun = now(system);
        let time = 60 * MILLISECOND;
        let long = port.start(id, Operation::recv(room(1)).deadline(time)).unwrap();
        let short = Operation::recv(room(1)).deadline(5 * MILLISECOND);
        let short = port.start(id, short).unwrap();
        far.write(b"x").unwrap();
        drop(port.wait(&mut Batch::new(), system.soon()).unwrap());
        assert_eq!(same.read(&mut [0; 4]).unwrap(), 1);
        pass(system, 6 * MILLISECOND);
        // The timer expires while the first operation is queued for an attempt that finds nothing.
        drop(port.wait(&mut Batch::new(), Duration::ZERO).unwrap());
        if now(system) - begun >= time {
            late();
        }
        let mut order = Vec::new();
        while order.len() < 2 {
            for packet in port.wait(&mut Batch::new(), system.soon()).unwrap() {
                let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
                assert_eq!(why(finished.error()), ErrorKind::TimedOut);
                order.push(finished.operation());
            }
            assert!(!order.is_empty(), "a deadline was lost");
        }
        assert_eq!(order, [short, long]);
        assert_in_time(system, now(system) - begun, time);
    }

    /// Rule 60: in both directions of one association.
    fn each_direction_has_its_own_deadlines(system: &System) {
        for times in [[10, 30], [30, 10]] {
            let port = shared_on(system);
            let (near, _far) = system.unix_pair();
            let id = port.associate_shared(Shared::new(near)).unwrap();
            let [receive, send] = times.map(|time| MILLISECOND * time);
            let begun = now(system);
            let receiving = Operation::recv(room(1)).deadline(receive);
            let receiving = port.start(id, receiving).unwrap();
            let sending = Operation::send_all(vec![0; much(system)]).deadline(send);
            let sending = port.start(id, sending).unwrap();
            let mut first = None;
            let mut count = 0;
            while count < 2 {
                let before = count;
                for packet in port.wait(&mut Batch::new(), system.soon()).unwrap() {
                    let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
                    let name = finished.operation();
                    first.get_or_insert(name);
                    let time = if name == sending { send } else { receive };
                    assert_in_time(system, now(system) - begun, time);
                    assert_eq!(why(finished.error()), ErrorKind::TimedOut);
                    count += 1;
                }
                assert!(count > before, "a deadline was lost");
            }
            if system.kernel().is_some() {
                assert_eq!(first, Some(if receive < send { receiving } else { sending }));
            }
        }
    }

    /// Rule 60: an earlier deadline shortens the sleep of a waiting thread, and a later one wakes
    /// no thread.
    fn an_earlier_deadline_shortens_a_sleep(system: &System) {
        system.several_threads_wait();
        let port = shared_on(system);
        let (near, _far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let far = port.start(id, Operation::recv(room(4)).deadline(HOUR)).unwrap();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            scope.spawn(|| {
                let say = say;
                each_packet(&port, Batch::new(), |packet| {
                        let Packet::SharedCompleted(finished) = packet else { panic!("no operation") };
                        let _ = say.send((finished.operation(), why(finished.error())));
                });
            });
            settle(system, &port, 1);
            let before = port.stats().wakes;
            let farther = Operation::recv(room(4)).deadline(2 * HOUR);
            let farther = port.start(id, farther).unwrap();
            assert_eq!(port.stats().wakes, before, "a later one wakes no thread");
            let begun = now(system);
            let near = Operation::recv(room(4)).deadline(20 * MILLISECOND);
            let near = port.start(id, near).unwrap();
            let ended = hear(system, &heard, "the deadline is over");
            assert_eq!(ended, (near, ErrorKind::TimedOut));
            // The test advances the clock while the thread returns.
            assert!(now(system) - begun >= 20 * MILLISECOND);
            for name in [far, farther] {
                assert!(port.cancel(name).unwrap());
                assert_eq!(hear(system, &heard, "it ends").0, name);
            }
        });
    }

    /// Rules 60 and 61: moving a deadline to a later time wakes no sleeping thread.
    fn a_deadline_that_moves_wakes_no_thread(system: &System) {
        system.several_threads_wait();
        let port = Arc::new(sockets_on(system));
        let (token, far) = associated(system, &port);
        let mut token = token.with_port(&port).unwrap_or_else(|_| panic!("it is of this port"));
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            // The sleeping thread passes each token on. The thread that moves the deadline never
            // waits on the port.
            scope.spawn(|| {
                let say = say;
                each_packet(&port, Batch::new(), |packet| {
                    let token = match packet {
                        Packet::Ready(mut token) => {
                            assert_eq!(token.key().read(&mut [0; 4]).unwrap(), 1);
                            token.read_drained();
                            token
                        }
                        Packet::Completed(done) => done.into_parts().0,
                        other => panic!("{}", sort(&other)),
                    };
                    let Ok(token) = token.with_port(&port) else { panic!("it is of this port") };
                    let _ = say.send(token);
                });
            });
            settle(system, &port, 1);
            let mut before = None;
            for round in 1..=20 {
                let later = HOUR * round;
                if round % 2 == 0 {
                    token.rearm_as_until(Interest::IN, OneShot::Level, later).unwrap();
                } else {
                    token.start(Operation::recv(room(4)).deadline(later)).unwrap();
                }
                // Only the very first deadline shortens the sleep.
                if let Some(before) = before {
                    assert_eq!(port.stats().wakes, before, "round {round}");
                }
                settle(system, &port, 1);
                before = Some(port.stats().wakes);
                far.write(b"x").unwrap();
                token = hear(system, &heard, "something has come");
                settle(system, &port, 1);
            }
            drop(token);
        });
    }

    /// Rule 60: whichever is found first, there is one packet.
    fn data_and_a_deadline_at_once_make_one_packet(system: &System) {
        let port = sockets_on(system);
        let (mut token, far) = associated(system, &port);
        for _ in 0..5 {
            token.start(Operation::recv(room(4)).deadline(2 * MILLISECOND)).unwrap();
            far.write(b"x").unwrap();
            pass(system, 3 * MILLISECOND);
            let (again, outcome) = done(&port, system);
            token = again;
            if outcome.error().is_some() {
                assert_eq!(why(outcome.error()), ErrorKind::TimedOut);
                token.recv(room(4)).unwrap();
                let (again, outcome) = done(&port, system);
                assert_eq!(bytes(outcome), b"x");
                token = again;
            }
            silent(&port, system);
        }
    }

    /// Rule 61: the packet reports nothing else, and never comes early.
    fn readiness_has_a_deadline(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        far.write(b"x").unwrap();
        port.register(Registration::owned(near, Interest::IN, OneShot::Level)).unwrap();
        let mut token = ready(&port, system);
        assert_eq!(token.key().read(&mut [0; 4]).unwrap(), 1);
        for microseconds in [0, 1, 300, 999, 1000, 1001, 5_000, 30_300] {
            let time = Duration::from_micros(microseconds);
            let begun = now(system);
            token.rearm_until(time).unwrap();
            token = timed_out(system, &port, begun, time);
        }
        // An earlier event is reported, and the deadline is not.
        token.rearm_until(30 * MILLISECOND).unwrap();
        far.write(b"x").unwrap();
        token = ready_in_time(&port, system);
        assert_eq!(token.events(), Events::IN);
        assert_eq!(token.key().read(&mut [0; 4]).unwrap(), 1);
        token.rearm().unwrap();
        // An arming without a deadline has none.
        silent(&port, system);
        silent(&port, system);
        far.write(b"x").unwrap();
        assert_eq!(ready(&port, system).events(), Events::IN);
        let packets = port.stats().packets;
        assert_eq!((packets.ready, packets.total()), (11, 11));
    }

    /// Rule 61: an instant in the past takes effect immediately.
    fn a_deadline_of_readiness_may_be_over(system: &System) {
        let port = sockets_on(system);
        let (near, _far) = system.unix_pair();
        let token = port.associate(near).unwrap();
        let id = token.id();
        token.park().unwrap();
        port.enable(id, Interest::OUT, OneShot::Level).unwrap();
        let token = ready(&port, system);
        token.rearm_as(Interest::IN, OneShot::Level).unwrap();
        port.enable_also(id, Interest::OUT).unwrap();
        let token = ready(&port, system);
        token.rearm_until(Instant::now()).unwrap();
        assert_eq!(ready(&port, system).events(), Events::TIMED_OUT);
        silent(&port, system);
    }

    /// Rule 61: the first packet of a registration has a deadline, whatever the trigger.
    fn a_registration_has_a_deadline(system: &System) {
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let near = Shared::new(near);
        let once = || Registration::owned(near.clone(), Interest::IN, OneShot::Level);
        for microseconds in [0, 999, 5_300] {
            let time = Duration::from_micros(microseconds);
            let begun = now(system);
            port.register(once().deadline(time)).unwrap();
            let token = ready(&port, system);
            assert_eq!(token.events(), Events::TIMED_OUT);
            assert_in_time(system, now(system) - begun, time);
            drop(token.into_key());
        }
        // An earlier event is reported, and then there is no deadline.
        port.register(once().deadline(30 * MILLISECOND)).unwrap();
        far.write(b"x").unwrap();
        let token = ready(&port, system);
        if token.events() == Events::TIMED_OUT {
            late();
        }
        assert_eq!(near.read(&mut [0; 4]).unwrap(), 1);
        token.rearm().unwrap();
        silent(&port, system);
        silent(&port, system);
        assert!(port.remove_and_wait(port.id_of(&near).unwrap(), None).is_ok());
        // A persistent registration reports the deadline once, and stays enabled.
        let always = Registration::owned(near.clone(), Interest::IN, Persistent::Edge);
        let begun = now(system);
        port.register(always.deadline(Instant::now())).unwrap();
        assert_eq!(notified(&port, system).events(), Events::TIMED_OUT);
        assert_in_time(system, now(system) - begun, Duration::ZERO);
        silent(&port, system);
        far.write(b"x").unwrap();
        assert_eq!(notified(&port, system).events(), Events::IN);
    }

    /// Rule 61: a refused registration returns its key, and its deadline concerns no later one.
    fn a_refused_registration_has_no_deadline(system: &System) {
        let port: Port<&str, u32> = system.port(1);
        let ((near, far), (other, _peer)) = (system.unix_pair(), system.unix_pair());
        port.register(one_shot(&near, "first")).unwrap();
        let refused = port.register(one_shot(&near, "second").deadline(5 * MILLISECOND));
        assert_eq!(given_back(refused), (ErrorKind::AlreadyRegistered, "second"));
        // It reuses the memory of the refused one.
        port.register(one_shot(&other, "third")).unwrap();
        silent(&port, system);
        far.write(b"x").unwrap();
        assert_eq!(*ready(&port, system).key(), "first");
        silent(&port, system);
    }

    /// Rule 61: there is one packet, which reports the condition.
    fn an_event_and_a_deadline_at_once_make_one_packet(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        port.register(Registration::owned(near, Interest::IN, OneShot::Level)).unwrap();
        far.write(b"x").unwrap();
        let mut token = ready(&port, system);
        assert_eq!(token.key().read(&mut [0; 4]).unwrap(), 1);
        for _ in 0..5 {
            token.rearm_until(2 * MILLISECOND).unwrap();
            far.write(b"x").unwrap();
            pass(system, 3 * MILLISECOND);
            token = ready(&port, system);
            let events = token.events();
            if !events.is_in() {
                assert_eq!(events, Events::TIMED_OUT);
                token.rearm().unwrap();
                token = ready(&port, system);
                assert_eq!(token.events(), Events::IN);
            }
            assert_eq!(token.key().read(&mut [0; 4]).unwrap(), 1);
            silent(&port, system);
        }
    }

    /// Rule 61: an event's packet is queued when the deadline passes. The deadline need not be
    /// handled again while that packet is queued.
    fn a_deadline_that_is_over_behind_an_event_is_left_alone(system: &System) {
        let port = sockets_on(system);
        let (token, far) = associated(system, &port);
        let (mut batch, time) = (Batch::new(), 20 * MILLISECOND);
        let begun = now(system);
        token.rearm_as_until(Interest::IN, OneShot::Level, time).unwrap();
        far.write(b"x").unwrap();
        // This takes no packet. Some systems report the event a little later.
        while port.stats().queued == 0 {
            port.raw().drive(&mut batch).unwrap();
            if now(system) - begun >= time {
                late();
            }
        }
        pass(system, time + MILLISECOND);
        for round in 0..3 {
            let before = system.kernel().map(|kernel| kernel.calls());
            port.raw().drive(&mut batch).unwrap();
            // The first call finds that the deadline has passed. The port reads the clock only
            // while a timer is set.
            if let Some((kernel, before)) = system.kernel().zip(before).filter(|_| round > 0) {
                assert_eq!((kernel.calls() - before).now, 0);
            }
        }
        assert_eq!(ready_in_time(&port, system).events(), Events::IN);
    }

    /// Rule 61: a queued node must be checked and makes no packet. The deadline that passes
    /// meanwhile is still reported.
    fn a_deadline_that_is_over_before_a_check_in_vain_is_told(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        port.register(Registration::owned(near, Interest::IN, OneShot::Level)).unwrap();
        let mut batch = Batch::new();
        for _ in 0..3 {
            far.write(b"x").unwrap();
            let token = ready(&port, system);
            assert_eq!(token.events(), Events::IN);
            assert_eq!(token.key().read(&mut [0; 4]).unwrap(), 1);
            let begun = now(system);
            let time = 5 * MILLISECOND;
            // Without a hint, so that the next wait checks.
            token.rearm_until(time).unwrap();
            pass(system, time);
            // The timer expires before the check.
            port.raw().drive(&mut batch).unwrap();
            timed_out(system, &port, begun, time).rearm().unwrap();
        }
        silent(&port, system);
    }

    /// Rule 61: each packet moves the deadline, so it passes only when no more packets come.
    fn a_deadline_of_readiness_is_moved_by_each_arming(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        port.register(Registration::owned(near, Interest::IN, OneShot::Level)).unwrap();
        far.write(b"x").unwrap();
        let time = if system.kernel().is_some() { 5 * MILLISECOND } else { 1000 * MILLISECOND };
        for _ in 0..40 {
            let mut token = ready(&port, system);
            assert_eq!(token.events(), Events::IN);
            assert_eq!(token.key().read(&mut [0; 4]).unwrap(), 1);
            token.read_drained();
            token.rearm_until(time).unwrap();
            let mut batch = Batch::new();
            assert_eq!(port.wait(&mut batch, 3 * MILLISECOND).unwrap().count(), 0);
            far.write(b"x").unwrap();
        }
        let token = ready(&port, system);
        assert_eq!(token.key().read(&mut [0; 4]).unwrap(), 1);
        let begun = now(system);
        token.rearm_until(time).unwrap();
        drop(timed_out(system, &port, begun, time));
    }

    /// Rule 61: a registration that is enabled, disabled, parked or removed has no deadline any
    /// more.
    fn what_is_enabled_or_disabled_has_no_deadline(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        let id = port.register(Registration::owned(near, Interest::IN, OneShot::Level)).unwrap();
        let arm = || {
            far.write(b"x").unwrap();
            let token = ready(&port, system);
            assert_eq!(token.events(), Events::IN);
            assert_eq!(token.key().read(&mut [0; 4]).unwrap(), 1);
            token.rearm_until(5 * MILLISECOND).unwrap();
        };
        arm();
        port.enable(id, Interest::IN, OneShot::Level).unwrap();
        silent(&port, system);
        arm();
        port.disable(id).unwrap();
        silent(&port, system);
        port.enable(id, Interest::IN, OneShot::Level).unwrap();
        silent(&port, system);
        arm();
        let token = ready(&port, system);
        assert_eq!(token.events(), Events::TIMED_OUT);
        token.rearm().unwrap();
        arm();
        port.remove(id).unwrap();
        assert!(matches!(next(&port, system), Packet::Removed(..)));
        silent(&port, system);
    }

    /// Rule 61: the deadline of an arming does not apply to an operation that the token starts, and
    /// the other way round.
    fn armings_and_operations_share_no_deadline(system: &System) {
        let port = sockets_on(system);
        let (near, far) = system.unix_pair();
        port.register(Registration::owned(near, Interest::IN, OneShot::Level)).unwrap();
        far.write(b"x").unwrap();
        let token = ready(&port, system);
        assert_eq!(token.key().read(&mut [0; 4]).unwrap(), 1);
        token.rearm_until(10 * MILLISECOND).unwrap();
        far.write(b"x").unwrap();
        ready_in_time(&port, system).recv(room(4)).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(bytes(outcome), b"x");
        token.recv(room(4)).unwrap();
        silent(&port, system);
        far.write(b"y").unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(bytes(outcome), b"y");
        token.start(Operation::recv(room(4)).deadline(10 * MILLISECOND)).unwrap();
        far.write(b"z").unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(bytes(in_time(outcome)), b"z");
        token.rearm().unwrap();
        silent(&port, system);
        far.write(b"x").unwrap();
        let token = ready(&port, system);
        assert_eq!(token.key().read(&mut [0; 4]).unwrap(), 1);
        let begun = now(system);
        token.rearm_until(10 * MILLISECOND).unwrap();
        let token = timed_out(system, &port, begun, 10 * MILLISECOND);
        let begun = now(system);
        token.start(Operation::recv(room(4)).deadline(10 * MILLISECOND)).unwrap();
        assert_eq!(why(done(&port, system).1.error()), ErrorKind::TimedOut);
        assert_in_time(system, now(system) - begun, 10 * MILLISECOND);
    }

    /// Rules 60 and 61: some hundred of both, each in its own time, and once.
    fn many_deadlines_are_each_over_once(system: &System) {
        const MANY: u32 = 200;
        let _alone = with_many_descriptors();
        let port = sockets_on(system);
        let mut fars = Vec::new();
        let mut wanted = BTreeMap::new();
        for number in 0..MANY {
            let (token, far) = associated(system, &port);
            let time = MILLISECOND * (number * 7 % 60);
            wanted.insert(token.id(), (now(system) + time, number));
            fars.push(far);
            if number % 2 == 0 {
                token.start(Operation::recv(room(4)).deadline(time)).unwrap();
            } else {
                // The association's interest is empty, so only the deadline can be reported.
                token.rearm_until(time).unwrap();
            }
        }
        let mut batch = Batch::new();
        while !wanted.is_empty() {
            let mut count = 0;
            for packet in port.wait(&mut batch, system.soon()).unwrap() {
                let (token, is_even) = match packet {
                    Packet::Completed(done) => {
                        assert_eq!(why(done.error()), ErrorKind::TimedOut);
                        (done.into_parts().0, true)
                    }
                    Packet::Ready(token) => {
                        assert_eq!(token.events(), Events::TIMED_OUT);
                        (token, false)
                    }
                    other => panic!("{}", sort(&other)),
                };
                let (time, number) = wanted.remove(&token.id()).expect("it is over twice");
                assert_eq!(is_even, number % 2 == 0);
                assert!(now(system) >= time);
                count += 1;
            }
            assert!(count > 0, "{} are never over", wanted.len());
        }
        silent(&port, system);
    }

    /// Rule 60: ten thousand operations of one association, each in its own time, and once.
    fn many_deadlines_of_one_association_are_each_over_once(system: &System) {
        const MANY: u32 = 10_000;
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        let mut wanted = BTreeMap::new();
        for number in 0..MANY {
            let time = MILLISECOND * (1 + number * 7_919 % 50);
            let receive = Operation::recv(room(1)).deadline(time);
            let at = now(system) + time;
            wanted.insert(port.start(id, receive).unwrap(), at);
        }
        let last = port.start(id, Operation::recv(room(1))).unwrap();
        let mut batch = Batch::new();
        let begun = Instant::now();
        while !wanted.is_empty() {
            assert!(begun.elapsed() < system.soon(), "{} are never over", wanted.len());
            for packet in port.wait(&mut batch, system.soon()).unwrap() {
                let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
                assert_eq!(why(finished.error()), ErrorKind::TimedOut);
                let at = wanted.remove(&finished.operation()).expect("it is over twice");
                assert!(now(system) >= at);
            }
        }
        // The operation without a deadline is still waiting.
        far.write(b"x").unwrap();
        let packet = finished(&port, system);
        assert_eq!(packet.operation(), last);
        assert_eq!(bytes(packet.into_parts().1), b"x");
    }
}

/// Rules 60 and 61: more than ten thousand deadlines, half of operations and half of readiness,
/// with a clock that only the test advances. None is early, and none is later than the next call.
#[test]
fn ten_thousand_deadlines_are_kept_in_time_sim() {
    for make in [System::simulated, || System::simulated().one_shot()] {
        testkit::run(make, |on| {
            const MANY: u32 = 12_000;
            on.several_threads_wait();
            let kernel = on.kernel().unwrap();
            let port = sockets_on(on);
            let begun = kernel.now();
            let mut fars = Vec::new();
            let mut wanted = BTreeMap::new();
            for number in 0..MANY {
                let (token, far) = associated(on, &port);
                fars.push(far);
                let time = Duration::from_micros(u64::from(number * 7_919 % 50_000));
                assert!(wanted.insert(token.id(), (time, number)).is_none());
                if number % 2 == 0 {
                    token.start(Operation::recv(room(4)).deadline(time)).unwrap();
                } else {
                    token.rearm_until(time).unwrap();
                }
            }
            let mut batch = Batch::with_capacity(1_000);
            let mut looked = Duration::ZERO;
            while !wanted.is_empty() {
                let passed = kernel.now() - begun;
                assert!(passed < 60 * MILLISECOND, "{} are never over", wanted.len());
                loop {
                    let left = wanted.len();
                    for packet in port.wait(&mut batch, Duration::ZERO).unwrap() {
                        let (token, is_even) = match packet {
                            Packet::Completed(done) => {
                                assert_eq!(why(done.error()), ErrorKind::TimedOut);
                                (done.into_parts().0, true)
                            }
                            Packet::Ready(token) => {
                                assert_eq!(token.events(), Events::TIMED_OUT);
                                (token, false)
                            }
                            other => panic!("{}", sort(&other)),
                        };
                        let (time, number) = wanted.remove(&token.id()).expect("it is over twice");
                        assert_eq!(is_even, number % 2 == 0);
                        assert!(time <= passed, "{time:?} at {passed:?}");
                        assert!(
                            time >= looked.saturating_sub(MILLISECOND),
                            "{time:?} at {passed:?}"
                        );
                    }
                    if wanted.len() == left {
                        break;
                    }
                }
                looked = passed;
                kernel.advance(Duration::from_micros(730));
            }
        });
    }
}
