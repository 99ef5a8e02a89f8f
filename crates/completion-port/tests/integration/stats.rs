//! The port's statistics: those of each thread, and how long packets wait in the queue.

use std::sync::{Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::sim::Kernel;
use completion_port::{
    Batch, BlockDetection, Interest, OneShot, Operation, Packet, Persistent, Port, QueueDelays,
    Registration, SharedSource, Started, Stats, ThreadStatus,
};
use testkit::{Dice, SOON, System, on_every_system};

/// Checks the number of delays in the bucket of `delay`. The other buckets hold `elsewhere` in
/// total.
#[track_caller]
fn assert_in_bucket(delays: &QueueDelays, delay: Duration, count: u64, elsewhere: u64) {
    let (limit, found) = delays.buckets().find(|(limit, _)| *limit > delay).unwrap();
    assert_eq!((found, delays.count()), (count, count + elsewhere), "below {limit:?}: {delays:?}");
}

/// Waits until the statistics satisfy `is_so`.
#[track_caller]
fn until<K, M>(port: &Port<K, M>, is_so: impl Fn(&Stats) -> bool) {
    let deadline = Instant::now() + SOON;
    while !is_so(&port.stats()) {
        assert!(Instant::now() < deadline, "{port:#?}");
        thread::yield_now();
    }
}

#[test]
fn a_delay_is_in_the_bucket_of_its_power_of_two() {
    let kernel = Kernel::new();
    kernel.manual_clock();
    let port: Port<(), u32> = Port::builder().queue_delays(true).build_simulated(&kernel).unwrap();
    let mut batch = Batch::new();
    let mut total = Duration::ZERO;
    for (number, delay) in [0, 1, 2, 3, 1024, 1_000_000, 7_000_000_000].into_iter().enumerate() {
        let delay = Duration::from_nanos(delay);
        port.post(7).unwrap();
        kernel.advance(delay);
        assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 1);
        let delays = port.queue_delays();
        total += delay;
        assert_eq!(delays.total(), total);
        let shared = u64::from(delay == Duration::from_nanos(3));
        assert_in_bucket(&delays, delay, 1 + shared, number as u64 - shared);
    }
    // Beyond the last limit.
    port.post(7).unwrap();
    kernel.advance(Duration::from_secs(10_000));
    assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 1);
    assert_eq!(port.queue_delays().buckets().last(), Some((Duration::MAX, 1)));
    let limits: Vec<_> = port.queue_delays().buckets().map(|(limit, _)| limit).collect();
    assert_eq!(limits.len(), QueueDelays::BUCKETS);
    assert_eq!(limits[20], Duration::from_nanos(1 << 20));
}

/// A packet in a thread's batch counts as waiting until the thread reaches it.
#[test]
fn a_packet_stands_until_its_thread_comes_to_it() {
    let kernel = Kernel::new();
    kernel.manual_clock();
    let port: Port<(), u32> =
        Port::builder().concurrency(1).queue_delays(true).build_simulated(&kernel).unwrap();
    port.post(1).unwrap();
    port.post(2).unwrap();
    let mut batch = Batch::new();
    let mut packets = port.wait(&mut batch, Duration::ZERO).unwrap();
    assert!(packets.next().is_some());
    // The handler of the first packet takes this long.
    kernel.advance(Duration::from_millis(3));
    assert!(packets.next().is_some());
    drop(packets);
    assert_in_bucket(&port.queue_delays(), Duration::ZERO, 1, 1);
    assert_in_bucket(&port.queue_delays(), Duration::from_millis(3), 1, 1);
    // The unread packets return to the queue. They have been waiting all along.
    port.post(3).unwrap();
    port.post(4).unwrap();
    drop(port.wait(&mut batch, Duration::ZERO).unwrap());
    kernel.advance(Duration::from_secs(1));
    assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 2);
    assert_in_bucket(&port.queue_delays(), Duration::from_secs(1), 2, 2);
}

#[test]
fn delays_are_measured_only_while_that_is_asked_for() {
    let kernel = Kernel::new();
    kernel.manual_clock();
    let port: Port<(), u32> = Port::builder().build_simulated(&kernel).unwrap();
    let mut batch = Batch::new();
    let mut pass = |is_on_before: bool, is_on_after: bool| {
        port.measure_queue_delays(is_on_before);
        port.post(7).unwrap();
        port.measure_queue_delays(is_on_after);
        kernel.advance(Duration::from_millis(1));
        assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 1);
        port.queue_delays().count()
    };
    assert_eq!(pass(false, false), 0);
    assert_eq!(pass(false, true), 0, "queued before it began");
    assert_eq!(pass(true, true), 1);
    assert_eq!(pass(true, false), 1, "taken after it ended");
    assert_eq!(pass(false, false), 1, "the figures stay");
    // The message's cell has an old timestamp, which must not count.
    assert_eq!(pass(false, true), 1);
    assert_eq!(pass(true, true), 2);
}

/// The thread's wait ended before measuring began. What it then posts without the lock takes the
/// cell of a message that was queued since.
#[test]
fn no_delay_is_counted_from_the_stamp_of_an_earlier_message() {
    let kernel = Kernel::new();
    kernel.manual_clock();
    let port: Port<(), u32> = Port::builder().build_simulated(&kernel).unwrap();
    port.post(0).unwrap();
    let mut batch = Batch::new();
    let mut packets = port.wait(&mut batch, Duration::ZERO).unwrap();
    assert!(packets.next().is_some());
    port.measure_queue_delays(true);
    port.post_after(1).unwrap();
    assert!(packets.next().is_some());
    port.post_behind(2).unwrap();
    kernel.advance(Duration::from_secs(1));
    port.post_behind(3).unwrap();
    drop(packets);
    assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 2);
    assert_in_bucket(&port.queue_delays(), Duration::from_secs(1), 1, 2);
}

on_every_system! {
    /// Each packet taken is counted, and nothing else, whatever happens to queued packets.
    fn as_many_delays_are_counted_as_packets_are_taken(system: &System) {
        let port: Port<u32, u32> = system.port(2);
        port.measure_queue_delays(true);
        let mut dice = Dice::new();
        let events: Vec<_> = (0..8).map(|_| system.event()).collect();
        let register = |number: usize, lasting: bool| {
            let (event, interest) = (&events[number], Interest::IN);
            if lasting {
                port.register(Registration::new(event, 1, interest, Persistent::Edge))
            } else {
                port.register(Registration::new(event, 1, interest, OneShot::Level))
            }
        };
        let mut ids: Vec<_> = (0..8).map(|number| register(number, false).unwrap()).collect();
        let mut batch = Batch::new();
        let mut handled = 0;
        for _ in 0..400 {
            let number = usize::try_from(dice.roll(8)).unwrap();
            match dice.roll(8) {
                0 | 1 => events[number].signal(1).unwrap(),
                2 => port.post(1).unwrap(),
                3 => drop(port.disable(ids[number])),
                4 => drop(port.enable(ids[number], Interest::IN, OneShot::Level)),
                5 => {
                    let _ = port.remove_and_wait(ids[number], Duration::ZERO);
                    if let Ok(id) = register(number, dice.roll(2) == 0) {
                        ids[number] = id;
                    }
                }
                _ => {
                    let some = usize::try_from(dice.roll(4)).unwrap();
                    for packet in port.wait(&mut batch, Duration::ZERO).unwrap().take(some) {
                        handled += 1;
                        if let Packet::Ready(ready) = packet {
                            ready.rearm().unwrap();
                        }
                    }
                }
            }
        }
        assert!(handled > 50, "{handled}");
        assert_eq!(port.stats().packets.total(), handled);
        assert_eq!(port.queue_delays().count(), handled);
    }

    /// Completed operations are counted and measured like all other packets. An operation that
    /// completes immediately makes no packet.
    fn operations_are_counted_where_they_make_packets(system: &System) {
        type Key = SharedSource<testkit::Socket>;
        let port: Port<Key, u32> = system.port(1);
        port.measure_queue_delays(true);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Key::new(near)).unwrap();
        let receive = || Operation::recv(Vec::with_capacity(4));
        let send = || Operation::send(b"x".to_vec());
        let mut batch = Batch::new();
        let mut handled = 0;
        for round in 1..=20 {
            port.start(id, receive()).unwrap();
            let cancelled = port.start(id, receive()).unwrap();
            port.start(id, send()).unwrap();
            let now = port.start_now(id, send()).unwrap();
            assert!(matches!(now, Started::Completed(_)));
            port.post(1).unwrap();
            assert!(port.cancel(cancelled).unwrap());
            far.write(b"y").unwrap();
            while handled < 4 * round {
                let before = handled;
                for packet in port.wait(&mut batch, SOON).unwrap() {
                    assert!(matches!(packet, Packet::SharedCompleted(_) | Packet::Posted(1)));
                    handled += 1;
                }
                assert!(handled > before, "{port:#?}");
            }
            // No further packet comes.
            far.drain();
            assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
        }
        let stats = port.stats();
        assert_eq!((stats.packets.completed, stats.packets.posted), (60, 20));
        assert_eq!((stats.packets.total(), stats.queued), (handled, 0));
        assert_eq!(port.thread_stats()[0].packets, stats.packets);
        assert_eq!(port.queue_delays().count(), handled);
    }

    /// The threads' packets add up to the port's, even after a thread has exited.
    fn each_thread_has_its_part_in_the_statistics(system: &System) {
        system.several_threads_wait();
        let port: Port<(), u32> = system.port(1);
        assert!(port.thread_stats().is_empty());
        thread::scope(|scope| {
            let (run_deferred, wait) = mpsc::channel::<()>();
            let served = &port;
            let waiter = scope.spawn(move || {
                let mut batch = Batch::new();
                assert_eq!(served.wait(&mut batch, None).unwrap().count(), 1);
                let _ = wait.recv();
            });
            until(&port, |stats| stats.parked == 1);
            let idle = port.thread_stats();
            assert_eq!(idle.len(), 1);
            assert_eq!((idle[0].status, idle[0].wakes), (ThreadStatus::Idle, 0));
            port.post(1).unwrap();
            until(&port, |stats| stats.packets.posted == 1);
            let threads = port.thread_stats();
            assert_eq!(threads[0].wakes, 1);
            assert_eq!(threads[0].packets, port.stats().packets);
            assert_eq!(threads[0].worker, idle[0].worker);
            drop(run_deferred);
            waiter.join().unwrap();
        });
        port.post(2).unwrap();
        assert_eq!(port.wait(&mut Batch::new(), None).unwrap().count(), 1);
        let threads = port.thread_stats();
        assert_eq!(threads.len(), 1, "the other one has ended");
        assert_eq!((threads[0].status, threads[0].packets.posted), (ThreadStatus::Running, 1));
        assert_eq!(port.stats().packets.posted, 2);
    }
}

on_every_system! {
    /// Each kind of packet, and what the handler does with it.
    fn a_thread_is_shown_with_the_registration_that_it_handles(system: &System) {
        type Key = SharedSource<testkit::Socket>;
        let port: Port<Key, u32> = system.port(1);
        let shown = || {
            let threads = port.thread_stats();
            assert_eq!(threads.len(), 1);
            threads[0].handling
        };
        let (ours, theirs) = system.tcp_pair();
        let (others, theirs_too) = system.tcp_pair();
        let once = Registration::owned(Key::new(ours), Interest::IN, OneShot::Level);
        let once = port.register(once).unwrap();
        let others = Key::new(others);
        let always = Registration::owned(others.clone(), Interest::IN, Persistent::Edge);
        let always = port.register(always).unwrap();
        let mut batch = Batch::with_capacity(1);
        theirs.write(b"x").unwrap();
        let Some(Packet::Ready(token)) = port.wait(&mut batch, None).unwrap().next() else {
            panic!("the first one was to report")
        };
        assert_eq!(shown(), Some(once));
        port.blocking(|| assert_eq!(shown(), Some(once)));
        token.key().drain();
        // The thread is still in the handler.
        token.rearm().unwrap();
        assert_eq!(shown(), Some(once));
        theirs_too.write(b"x").unwrap();
        assert!(matches!(
            port.wait(&mut batch, None).unwrap().next(),
            Some(Packet::Notified(notified)) if notified.id() == always
        ));
        assert_eq!(shown(), Some(always));
        // Some systems repeat an edge that was not drained.
        assert_eq!(others.drain(), 1);
        port.post(1).unwrap();
        assert!(matches!(port.wait(&mut batch, None).unwrap().next(), Some(Packet::Posted(1))));
        assert_eq!(shown(), None);
        // After a wait without a packet, there is none.
        theirs.write(b"x").unwrap();
        let Some(Packet::Ready(token)) = port.wait(&mut batch, None).unwrap().next() else {
            panic!("the first one was to report")
        };
        token.recv(Vec::with_capacity(4)).map_err(|refused| refused.error()).unwrap();
        let mut packets = port.wait(&mut batch, None).unwrap();
        let Some(Packet::Completed(done)) = packets.next() else { panic!("it was to receive") };
        assert_eq!(shown(), Some(once));
        let (token, _) = done.into_parts();
        // The registration ends, and so does what is shown of it.
        drop(token);
        assert_eq!(shown(), None);
        drop(packets);
        port.remove(always).unwrap();
        let packet = port.wait(&mut batch, None).unwrap().next();
        assert!(matches!(packet, Some(Packet::Removed(id, _)) if id == always));
        assert_eq!(shown(), None);
        assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
        assert_eq!(shown(), None);
    }
}

#[test]
fn a_handler_is_timed_from_the_first_look_on() {
    let kernel = Kernel::new();
    kernel.manual_clock();
    let port: Port<(), u32> = Port::builder().concurrency(1).build_simulated(&kernel).unwrap();
    let mut batch = Batch::new();
    port.post(1).unwrap();
    port.post(2).unwrap();
    let mut packets = port.wait(&mut batch, Duration::ZERO).unwrap();
    let taken_for = || port.thread_stats()[0].handling_for;
    for _ in 0..2 {
        assert!(packets.next().is_some());
        // Nobody has looked meanwhile.
        kernel.advance(Duration::from_secs(1));
        assert_eq!(taken_for(), Duration::ZERO);
        kernel.advance(Duration::from_secs(2));
        assert_eq!(taken_for(), Duration::from_secs(2));
        kernel.advance(Duration::from_secs(3));
        assert_eq!(taken_for(), Duration::from_secs(5));
    }
    drop(packets);
    assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
    assert_eq!(taken_for(), Duration::ZERO);
}

#[cfg(target_os = "linux")]
#[test]
fn a_thread_is_named_as_the_system_names_it() {
    let port: Port<(), u32> = Port::builder().build().unwrap();
    port.post(1).unwrap();
    assert_eq!(port.wait(&mut Batch::new(), None).unwrap().count(), 1);
    let link = std::fs::read_link("/proc/thread-self").unwrap();
    let number = link.file_name().unwrap().to_str().unwrap().parse().unwrap();
    assert_eq!(port.thread_stats()[0].system_number, Some(number));
}

#[test]
fn a_thread_that_is_found_asleep_is_counted_as_such() {
    testkit::run(System::native, counts_a_thread_that_is_found_asleep);
}

fn counts_a_thread_that_is_found_asleep(system: &System) {
    system.not_on_windows("call that reports a sleeping thread");
    let port: Port<(), u32> =
        Port::builder().concurrency(1).block_detection(BlockDetection::Tick).build().unwrap();
    let (run_deferred, wait) = mpsc::channel::<()>();
    let (port, wait) = (&port, &Mutex::new(wait));
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(move || {
                let mut batch = Batch::new();
                for packet in port.wait(&mut batch, None).unwrap() {
                    if let Packet::Posted(1) = packet {
                        let _ = wait.lock().unwrap().recv();
                    }
                }
            });
        }
        until(port, |stats| stats.parked == 2);
        port.post(1).unwrap();
        until(port, |stats| stats.packets.posted == 1);
        port.post(2).unwrap();
        until(port, |stats| stats.packets.posted == 2);
        // An idle thread has looked before.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(2) {
            thread::yield_now();
        }
        let threads = port.thread_stats();
        let found: u64 = threads.iter().map(|thread| thread.blocks_found).sum();
        assert!(found >= 1);
        let longest = threads.iter().map(|thread| thread.handling_for).max();
        assert!(longest >= Some(Duration::from_millis(2)), "{threads:?}");
        drop(run_deferred);
    });
}

/// Sixty-four receives are in flight on one socket, and 32 of them can be done. The threads neither
/// poll nor wake each other for each of them.
#[test]
fn many_operations_on_one_socket_cost_no_poll_and_no_wake_each() {
    type Key = SharedSource<completion_port::sim::Socket>;
    for (threads, most_polls, most_wakes) in [(1, 3, 0), (4, 12, 4)] {
        let kernel = Kernel::new();
        kernel.manual_clock();
        let port: Port<Key, u32> = Port::builder().concurrency(4).build_simulated(&kernel).unwrap();
        let (near, far) = kernel.unix_pair().unwrap();
        let id = port.associate_shared(Key::new(near)).unwrap();
        for _ in 0..64 {
            port.start(id, Operation::recv(Vec::with_capacity(1))).unwrap();
        }
        thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    let mut batch = Batch::new();
                    while let Ok(packets) = port.wait(&mut batch, None) {
                        assert!(packets.count() > 0);
                    }
                });
            }
            until(&port, |stats| stats.parked == threads);
            assert!(kernel.wait_for_sleepers(threads, SOON));
            let before = port.stats();
            assert_eq!(far.write(&[7; 32]).unwrap(), 32);
            until(&port, |stats| stats.packets.completed == 32 && stats.parked == threads);
            let after = port.stats();
            port.close();
            let (polls, wakes) = (after.polls - before.polls, after.wakes - before.wakes);
            assert!(polls <= most_polls, "{polls} polls by {threads} threads");
            assert!(wakes <= most_wakes, "{wakes} wakes of {threads} threads");
        });
    }
}

/// A handler starts sends that are done immediately. Its thread soon takes their packets, so it
/// wakes no other thread for each of them.
#[test]
fn what_a_handler_starts_and_does_wakes_no_thread_each() {
    type Key = SharedSource<completion_port::sim::Socket>;
    const SENDS: u64 = 3;
    let kernel = Kernel::new();
    kernel.manual_clock();
    let port: Port<Key, u32> = Port::builder().concurrency(4).build_simulated(&kernel).unwrap();
    let (near, _far) = kernel.unix_pair().unwrap();
    let id = port.associate_shared(Key::new(near)).unwrap();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut batch = Batch::new();
                while let Ok(packets) = port.wait(&mut batch, None) {
                    for packet in packets {
                        let Packet::Posted(_) = packet else { continue };
                        for _ in 0..SENDS {
                            port.start(id, Operation::send(b"x".to_vec())).unwrap();
                        }
                    }
                }
            });
        }
        until(&port, |stats| stats.parked == 4);
        assert!(kernel.wait_for_sleepers(4, SOON));
        let before = port.stats().wakes;
        port.post(1).unwrap();
        until(&port, |stats| stats.packets.completed == SENDS && stats.parked == 4);
        let wakes = port.stats().wakes - before;
        port.close();
        // One for the message, and one for the thread that keeps watch.
        assert!(wakes < 1 + SENDS, "{wakes} wakes");
    });
}
