//! Rule 49: messages that are posted for a later time.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, ErrorKind, Interest, OneShot, Packet, Port, Registration, TimerId};
use testkit::{System, effort, late, on_every_system};

use crate::kit::takers::{Takers, with_takers};
use crate::kit::threads::{End, now, settle, stays, take};

const MILLISECOND: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

on_every_system! {
    /// Rule 49.
    fn a_message_for_later_never_comes_early(system: &System) {
        let port = system.port::<(), u64>(1);
        let mut batch = Batch::new();
        for microseconds in [0, 1, 300, 999, 1000, 1001, 5_000, 30_300] {
            let time = Duration::from_micros(microseconds);
            let before = now(system);
            port.post_at(time, microseconds).unwrap();
            let packets = port.wait(&mut batch, None).unwrap();
            assert_eq!(messages(packets), [microseconds]);
            let took = now(system) - before;
            assert!(took >= time, "{took:?} instead of {time:?}");
            assert!(took < time + system.soon(), "{took:?} instead of {time:?}");
        }
        assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
        assert_eq!(port.stats().packets.posted, 8);
    }

    /// Rule 49: an instant belongs to the system's clock.
    fn a_deadline_may_be_an_instant(system: &System) {
        let port = system.port::<(), u8>(1);
        port.post_at(Instant::now() + HOUR, 3).unwrap();
        port.post_at(Instant::now() + 30 * MILLISECOND, 2).unwrap();
        // A past instant is due immediately.
        port.post_at(Instant::now(), 1).unwrap();
        assert_eq!([take(&port), take(&port)], [Some(1), Some(2)]);
    }

    /// Rule 49: by time, and for equal times in the order of the posts.
    fn messages_for_later_come_in_the_order_of_their_times(system: &System) {
        let port = system.port::<(), usize>(1);
        let times = [7, 3, 3, 9, 1, 7, 3, 0, 9, 1];
        let base = Instant::now() + 20 * MILLISECOND;
        for (number, time) in times.iter().enumerate() {
            if system.kernel().is_some() {
                // The clock stands still meanwhile.
                port.post_at(MILLISECOND * *time, number).unwrap();
            } else {
                port.post_at(base + MILLISECOND * *time, number).unwrap();
            }
        }
        let taken: Vec<_> = times.iter().map(|_| take(&port).unwrap()).collect();
        assert!(taken.is_sorted_by_key(|number| times[*number]), "{taken:?}");
        if system.kernel().is_some() {
            assert_eq!(taken, [7, 4, 9, 1, 2, 6, 0, 5, 3, 8]);
        }
    }

    /// Rule 49: a message that was cancelled before its time never comes, and its id names no other
    /// message.
    fn a_message_for_later_can_be_taken_back_once(system: &System) {
        let port = system.port::<(), String>(1);
        let post = |text: &str, time| port.post_at(time, text.to_owned()).unwrap();
        let first = post("first", HOUR);
        let second = post("second", MILLISECOND);
        let third = post("third", 2 * HOUR);
        assert_eq!(port.cancel_post(first).as_deref(), Some("first"));
        assert_eq!(port.cancel_post(first), None);
        // It gets the same cell.
        let fourth = post("fourth", HOUR);
        assert!(fourth != first);
        assert_eq!(port.cancel_post(first), None);
        assert_eq!(take(&port).as_deref(), Some("second"));
        assert_eq!(port.cancel_post(second), None);
        assert_eq!(port.cancel_post(third).as_deref(), Some("third"));
        assert_eq!(port.cancel_post(fourth).as_deref(), Some("fourth"));
        let mut batch = Batch::new();
        assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
    }

    /// Rule 49: one thread whose sleep would be too long is woken. Nothing else happens until a
    /// time has come.
    fn an_earlier_time_shortens_a_sleep_and_a_later_one_does_not(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(2);
        let takers = Takers::of(system, &port);
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            takers.start(scope, 2, |_| {});
            let far = port.post_at(HOUR, 0).unwrap();
            settle(system, &port, 2);
            let before = port.stats();
            let farther = port.post_at(2 * HOUR, 1).unwrap();
            let after = port.stats();
            assert_eq!(after.wakes, before.wakes, "a later one wakes nobody");
            stays(system, 2, "the port is at rest", || port.stats().polls <= after.polls + 1);
            let (begun, time) = (now(system), 20 * MILLISECOND);
            port.post_at(time, 2).unwrap();
            let (wakes, is_silent) = (port.stats().wakes, takers.are_silent());
            if now(system) - begun >= time {
                late();
            }
            assert!(wakes <= after.wakes + 1);
            assert!(is_silent);
            assert_eq!(takers.hear("the message comes").0, 2);
            assert_eq!(port.cancel_post(far), Some(0));
            assert_eq!(port.cancel_post(farther), Some(1));
        });
    }

    /// Rule 49: whichever thread leaves the port's wait, another idle one takes its message in
    /// time.
    fn a_long_handler_delays_no_message_for_later_while_another_thread_idles(system: &System) {
        with_takers(system, 3, |scope, port, takers, gate| {
            takers.start(scope, 3, |message| {
                if message < 2 {
                    gate.pass();
                }
            });
            let begun = now(system);
            port.post_at(30 * MILLISECOND, 2).unwrap();
            port.post(0).unwrap();
            port.post(1).unwrap();
            let mut busy = [(); 2].map(|()| takers.hear("two are busy").0);
            busy.sort_unstable();
            if busy.contains(&2) {
                // The two were not busy in time.
                assert!(now(system) - begun >= 30 * MILLISECOND);
                late();
            }
            assert_eq!(busy, [0, 1]);
            assert_eq!(takers.hear("the third comes in time").0, 2);
            assert!(now(system) - begun >= 30 * MILLISECOND);
            gate.open();
            settle(system, port, 3);
        });
    }

    /// Rule 49: while every seat is taken, the first thread that returns takes it.
    fn with_every_seat_taken_the_next_thread_finds_what_is_due(system: &System) {
        with_takers(system, 1, |scope, port, takers, gate| {
            takers.start(scope, 2, |message| {
                if message == 0 {
                    gate.pass();
                }
            });
            port.post(0).unwrap();
            assert_eq!(takers.hear("the first is busy").0, 0);
            port.post_at(5 * MILLISECOND, 1).unwrap();
            if system.kernel().is_some() {
                // On a real system, another thread replaces the one that sleeps at the gate.
                stays(system, 1, "no thread may take it", || takers.are_silent());
            }
            gate.open();
            assert_eq!(takers.hear("it comes then").0, 1);
            settle(system, port, 2);
        });
    }

    /// Rule 49: it comes among the reports of sockets that are always ready.
    fn a_busy_port_finds_what_is_due(system: &System) {
        let port = system.port::<(), usize>(1);
        let (ours, theirs) = system.unix_pair();
        port.register(Registration::new(&ours, (), Interest::IN, OneShot::Level)).unwrap();
        theirs.write(b"x").unwrap();
        port.post_at(MILLISECOND, 7).unwrap();
        let mut batch = Batch::with_capacity(1);
        let begun = Instant::now();
        loop {
            match port.wait(&mut batch, None).unwrap().next() {
                Some(Packet::Ready(ready)) => ready.rearm().unwrap(),
                Some(Packet::Posted(7)) => break,
                other => panic!("{other:?}"),
            }
            if let Some(kernel) = system.kernel() {
                kernel.advance(MILLISECOND / 10);
            }
            assert!(begun.elapsed() < system.soon(), "it does not come");
        }
    }

    /// Rule 49: `has_packets` reports it.
    fn who_asks_for_packets_is_told_of_what_is_due(system: &System) {
        let port = system.port::<(), usize>(1);
        let begun = now(system);
        port.post_at(2 * MILLISECOND, 1).unwrap();
        let mut batch = Batch::new();
        if port.raw().has_packets(&mut batch).unwrap() {
            assert!(now(system) - begun >= 2 * MILLISECOND);
            late();
        }
        crate::kit::threads::eventually(system, "it is due", || {
            port.raw().has_packets(&mut batch).unwrap()
        });
        assert_eq!(take(&port), Some(1));
    }

    /// Rule 49: a closed port does not wait for the time. The remaining messages can be cancelled,
    /// or are dropped with the port, once.
    fn a_closed_port_hands_out_nothing_that_is_not_due(system: &System) {
        let port: Port<(), Arc<str>> = system.port(1);
        let message: Arc<str> = "message".into();
        let timers: Vec<TimerId> =
            (0..3).map(|_| port.post_at(HOUR, Arc::clone(&message)).unwrap()).collect();
        port.post(Arc::clone(&message)).unwrap();
        port.close();
        assert_eq!(take(&port), Some(Arc::clone(&message)));
        assert_eq!(take(&port), None);
        let refused = port.post_at(MILLISECOND, Arc::clone(&message)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Closed);
        drop(refused);
        if let Some(kernel) = system.kernel() {
            kernel.advance(2 * HOUR);
        }
        assert_eq!(take(&port), None);
        assert_eq!(port.cancel_post(timers[1]), Some(Arc::clone(&message)));
        assert_eq!(Arc::strong_count(&message), 1 + 2);
        drop(port);
        assert_eq!(Arc::strong_count(&message), 1);
    }

    /// Rule 49: a message that is due when a port is closed is delivered, even if no thread has
    /// polled since.
    fn what_is_due_is_handed_out_by_a_closed_port(system: &System) {
        for shuts_down in [false, true] {
            let port = system.port::<(), u8>(1);
            port.post_at(Duration::ZERO, 1).unwrap();
            port.post_at(HOUR, 2).unwrap();
            if shuts_down {
                port.shutdown().unwrap();
            } else {
                port.close();
            }
            assert_eq!(take(&port), Some(1));
            assert_eq!(take(&port), None);
        }
    }

    /// Rule 49: another port does not accept a timer's id.
    fn a_timer_of_another_port_is_not_cancelled(system: &System) {
        let ports = [system.port::<(), u8>(1), system.port::<(), u8>(1)];
        let timers = [0, 1].map(|which| ports[which].post_at(HOUR, 7).unwrap());
        assert!(timers[0] != timers[1]);
        assert_eq!(ports[0].cancel_post(timers[1]), None);
        assert_eq!(ports[1].cancel_post(timers[0]), None);
        assert_eq!(ports[0].cancel_post(timers[0]), Some(7));
        assert_eq!(ports[1].cancel_post(timers[1]), Some(7));
    }

    /// Rule 49: a cancelled message does not end a sleep.
    fn a_message_that_was_taken_back_ends_no_sleep(system: &System) {
        let port = system.port::<(), u8>(1);
        let mut batch = Batch::new();
        let mut polls = || {
            let before = port.stats().polls;
            assert_eq!(port.wait(&mut batch, 20 * MILLISECOND).unwrap().count(), 0);
            port.stats().polls - before
        };
        // On a busy machine a wait may end before the thread sleeps, which is one poll less.
        let sleeps_on = (0..20).any(|_| {
            let usually = polls();
            let timer = port.post_at(5 * MILLISECOND, 1).unwrap();
            assert_eq!(port.cancel_post(timer), Some(1));
            polls() == usually
        });
        assert!(sleeps_on);
    }

    /// Rule 49: tens of thousands of messages, half of which are cancelled.
    fn many_messages_for_later_come_each_once(system: &System) {
        let many = 25_000 * effort();
        let port = system.port::<(), usize>(1);
        let timers: Vec<_> = (0..many)
            .map(|number| {
                let time = Duration::from_micros((number * 7_919 % 20_000) as u64);
                port.post_at(time, number).unwrap()
            })
            .collect();
        let mut seen = vec![false; many];
        for (number, timer) in timers.iter().enumerate().filter(|(number, _)| number % 2 == 0) {
            // On a busy machine some are due by now.
            if let Some(message) = port.cancel_post(*timer) {
                assert_eq!(message, number);
                seen[number] = true;
            }
        }
        let mut left = seen.iter().filter(|seen| !**seen).count();
        let mut batch = Batch::new();
        while left > 0 {
            for message in messages(port.wait(&mut batch, None).unwrap()) {
                assert!(!std::mem::replace(&mut seen[message], true), "{message} came twice");
                left -= 1;
            }
        }
        assert_eq!(port.wait(&mut batch, system.quiet()).unwrap().count(), 0);
    }
}

/// Rule 49: a hundred thousand messages, a third of which are cancelled, with a clock that only the
/// test advances. They are never early, come as soon as a thread polls, and are in the order of
/// their times, and of the posts for equal times.
#[test]
fn a_hundred_thousand_messages_for_later_come_in_order_sim() {
    const MANY: usize = 100_000;
    const SPAN: usize = 20_000;
    testkit::run(System::simulated, |on| {
        on.several_threads_wait();
        let kernel = on.kernel().unwrap();
        let port = on.port::<(), usize>(1);
        let time = |number: usize| Duration::from_micros((number * 7_919 % SPAN) as u64);
        let begun = kernel.now();
        let timers: Vec<_> =
            (0..MANY).map(|number| port.post_at(time(number), number).unwrap()).collect();
        let mut wanted = Vec::new();
        for (number, timer) in timers.into_iter().enumerate() {
            if number % 3 == 0 {
                assert_eq!(port.cancel_post(timer), Some(number));
            } else {
                wanted.push(number);
            }
        }
        // A stable sort keeps the order of equal times.
        wanted.sort_by_key(|number| time(*number));
        let mut taken = Vec::new();
        let mut batch = Batch::with_capacity(1_000);
        while taken.len() < wanted.len() {
            let passed = kernel.now() - begun;
            assert!(passed < Duration::from_millis(21), "{} are left", wanted.len() - taken.len());
            let due = wanted.partition_point(|number| time(*number) <= passed);
            loop {
                let before = taken.len();
                taken.extend(messages(port.wait(&mut batch, Duration::ZERO).unwrap()));
                if taken.len() == before {
                    break;
                }
            }
            assert_eq!(taken.len(), due, "after {passed:?}");
            kernel.advance(Duration::from_micros(137));
        }
        assert!(taken == wanted, "they come in another order");
    });
}

fn messages<M>(packets: completion_port::Packets<'_, '_, (), M>) -> Vec<M> {
    let message = |packet| match packet {
        Packet::Posted(message) => message,
        _ => panic!("no message, but something else"),
    };
    packets.map(message).collect()
}
