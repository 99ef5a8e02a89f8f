//! Rules 36 and 37: how many threads run, and which one is released for a packet.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Mutex, mpsc};
use std::thread;

use crate::kit::packets::each_packet;
use completion_port::{Batch, Packet, Port};
#[cfg(target_os = "linux")]
use testkit::scheduler::ThreadNumber;
use testkit::{System, on_every_system};

#[cfg(target_os = "linux")]
use crate::kit::signals::{catch_signals, interrupt_sleep};
use crate::kit::takers::{Takers, with_takers};
use crate::kit::threads::{End, Gate, eventually, hear, make_packets_long, settle, stays, take};

on_every_system! {
    /// Rule 36.
    fn the_usual_concurrency_is_the_number_of_processors(system: &System) {
        let processors = thread::available_parallelism().unwrap().get();
        assert_eq!(system.port::<(), ()>(0).concurrency(), processors);
        assert_eq!(system.port::<(), ()>(0).stats().concurrency, processors);
        assert_eq!(system.port::<(), ()>(3).concurrency(), 3);
    }

    /// Rule 36: the limit is one.
    fn at_most_one_of_eight_threads_runs(system: &System) {
        at_most(system, 1);
    }

    /// Rule 36: the limit is two.
    fn at_most_two_of_eight_threads_run(system: &System) {
        at_most(system, 2);
    }

    /// Rule 36: the limit is four.
    fn at_most_four_of_eight_threads_run(system: &System) {
        at_most(system, 4);
    }

    /// Rule 36: the limit is not only kept but reached, whatever the number of processors.
    fn as_many_threads_run_as_the_limit_says(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(4);
        let together = AtomicUsize::new(0);
        let gate = Gate::default();
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            for count in 1..=8 {
                scope.spawn(|| {
                    while take(&port).is_some() {
                        together.fetch_add(1, SeqCst);
                        gate.pass();
                        together.fetch_sub(1, SeqCst);
                    }
                });
                settle(system, &port, count);
            }
            (0..8).for_each(|message| port.post(message).unwrap());
            eventually(system, "four run", || together.load(SeqCst) == 4);
            assert_eq!(port.stats().running, 4);
            stays(system, 4, "four run", || together.load(SeqCst) == 4);
        });
    }

    /// Rule 37: the thread that arrived last is released first, for the packet that arrived first.
    fn the_thread_that_came_last_is_released_first(system: &System) {
        with_takers(system, 8, |scope, port, takers, gate| {
            takers.start(scope, 4, |_| gate.pass());
            (0..4).for_each(|message| port.post(message).unwrap());
            let mut released: Vec<_> = (0..4).map(|_| takers.hear("a message is taken")).collect();
            released.sort_unstable();
            assert_eq!(released, [(0, 3), (1, 2), (2, 1), (3, 0)]);
            assert_eq!(port.stats().queued, 0);
        });
    }

    /// Rule 37: the same where packets take long, so that several threads sleep in the kernel's
    /// wait.
    fn a_crowd_in_the_kernels_wait_is_released_newest_first(system: &System) {
        system.not_on_wine("completion port that releases the newest thread first");
        system.several_threads_wait();
        let port = system.port::<(), usize>(8);
        make_packets_long(system, &port);
        let gate = Gate::default();
        let takers = Takers::of(system, &port);
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            takers.start(scope, 4, |_| gate.pass());
            for message in 0..4 {
                port.post(message).unwrap();
                assert_eq!(takers.hear("a message is taken"), (message, 3 - message));
                // The others sleep, including the one that is the watchdog from now on.
                settle(system, &port, 3 - message);
            }
        });
    }

    /// Rule 37: a thread that returns while packets are queued is served before waiting threads.
    fn a_thread_that_comes_back_takes_the_next_packet_itself(system: &System) {
        system.several_threads_wait();
        let port = system.port_without_detection::<(), usize>(1);
        let gate = Gate::default();
        let takers = Takers::of(system, &port);
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            takers.start(scope, 3, |_| gate.pass());
            (0..6).for_each(|message| port.post(message).unwrap());
            eventually(system, "the newest runs", || port.stats().running == 1);
            stays(system, 2, "five wait", || port.stats().queued == 5);
            gate.open();
            for message in 0..6 {
                assert_eq!(takers.hear("a message is taken"), (message, 2));
            }
            settle(system, &port, 3);
            assert!(takers.are_silent(), "a message came twice");
        });
    }
}

/// Rule 37: a signal interrupts the oldest of several threads in the kernel's wait. Restarting its
/// wait would make it the newest there.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_changes_nothing_in_the_order_of_a_crowd_epoll() {
    testkit::run(System::native, |on| {
        catch_signals();
        let port: Port<(), usize> = on.port(4);
        make_packets_long(on, &port);
        let (say, heard) = mpsc::channel();
        let threads = Mutex::new(Vec::new());
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            for name in 0..2 {
                let (say, port, threads) = (say.clone(), &port, &threads);
                scope.spawn(move || {
                    threads.lock().unwrap().push(ThreadNumber::current());
                    if take(port).is_some() {
                        say.send(name).unwrap();
                    }
                });
                settle(on, port, name + 1);
                let newest = threads.lock().unwrap()[name];
                eventually(on, "it is in the kernel's wait", || newest.sleeps());
            }
            interrupt_sleep(on, threads.lock().unwrap()[0]);
            assert!(heard.try_recv().is_err());
            port.post(1).unwrap();
            if hear(on, &heard, "the message is taken") != 1 {
                // A thread that wakes at that moment for another reason takes the message. A wrong
                // order fails each time.
                testkit::late();
            }
        });
    });
}

/// Eight threads run with messages, some of which their handlers post, and never more than `limit`
/// at the same time. The handlers sleep only on the port's own lock. On a busy machine a thread may
/// be found asleep there, and then be one too many when it continues (rule 39).
fn at_most(on: &System, limit: usize) {
    const FROM_OUTSIDE: usize = 200;
    const ALL: usize = 2 * FROM_OUTSIDE;
    on.several_threads_wait();
    let port = on.port::<(), usize>(limit);
    let (inside, peak, done) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    thread::scope(|scope| {
        let _end = End::of(&port, []);
        for _ in 0..8 {
            scope.spawn(|| {
                each_packet(&port, Batch::with_capacity(3), |packet| {
                    let Packet::Posted(message) = packet else { panic!("{packet:?}") };
                    peak.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
                    (0..2_000).for_each(|_| std::hint::spin_loop());
                    inside.fetch_sub(1, SeqCst);
                    if message < FROM_OUTSIDE {
                        port.post(message + FROM_OUTSIDE).unwrap();
                    }
                    done.fetch_add(1, SeqCst);
                });
            });
        }
        (0..FROM_OUTSIDE).for_each(|message| port.post(message).unwrap());
        eventually(on, "all messages are taken", || done.load(SeqCst) == ALL);
        settle(on, &port, 8);
        assert_eq!(done.load(SeqCst), ALL);
        assert_eq!(port.stats().packets.posted, ALL as u64);
    });
    let (peak, found) = (peak.load(SeqCst), port.stats().blocks_found);
    let most = limit + usize::try_from(found).unwrap();
    assert!((1..=most).contains(&peak), "{peak} ran at once, the limit is {limit}, {found} slept");
}
