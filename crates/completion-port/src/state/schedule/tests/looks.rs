//! The watchdog: a port always notices events, and finds packets held by workers that do not
//! return.

use super::*;
use crate::state::schedule::workers::WorkerTable;

#[test]
fn a_thread_that_leaves_the_kernels_wait_empty_appoints_the_newest_parked_thread() {
    let mut rig = rig(2, 3, SHORT);
    (0..3).for_each(|worker| rig.run_wait(worker));
    rig.edge(1);
    rig.run(0);
    assert!(is_out(&rig, 0));
    assert_eq!(rig.schedule.workers.watching(), Some(2));
    rig.settle();
    assert!(watches(&rig, 2) && parks(&rig, 1));
    rig.take_packet(0);
    rig.edge(1);
    let ticks = (1..5).find(|_| {
        rig.pass(TICK);
        is_out(&rig, 2)
    });
    assert_eq!(ticks, Some(1), "thread 0 does not come back for it");
    assert_eq!(hand(&rig, 2).len(), 1);
}

#[test]
fn the_watchdog_asks_the_kernel_while_all_seats_are_taken_and_hands_nothing_out() {
    let mut rig = rig(1, 2, SHORT);
    take_one(&mut rig, 0);
    rig.run_wait(1);
    rig.port.detects = false;
    rig.edge(2);
    (0..3).for_each(|_| rig.pass(TICK));
    assert_eq!((rig.port.kernel.len(), queue(&rig).len()), (0, 2));
    assert!(watches(&rig, 1));
}

#[test]
fn no_thread_wakes_at_a_port_where_nothing_happens() {
    let mut rig = rig(2, 3, SHORT);
    take_one(&mut rig, 0);
    rig.run_wait(0);
    rig.run_wait(1);
    rig.run_wait(2);
    (0..5).for_each(|_| rig.pass(TICK));
    let ends = (0..3).filter_map(|worker| rig.port.threads[worker].does.until()).count();
    assert_eq!(ends, 0, "{rig:#?}");
}

#[test]
fn what_a_stuck_thread_holds_goes_to_an_idle_one() {
    let mut rig = rig(2, 2, SHORT);
    rig.put(3);
    rig.run_wait(0);
    rig.run_wait(1);
    rig.take_packet(0);
    (0..4).for_each(|_| rig.pass(TICK));
    assert_eq!((hand(&rig, 0), hand(&rig, 1), queue(&rig)), (vec![], vec![2], vec![3]));
    assert_eq!(rig.schedule.figures().running, 2, "it is not asleep");
}

#[test]
fn what_a_stuck_thread_holds_goes_to_one_that_comes_to_wait() {
    let mut rig = rig(2, 2, SHORT);
    rig.put(3);
    rig.run_wait(0);
    rig.take_packet(0);
    let look = |rig: &mut Rig| {
        rig.wait(1, 64, Some(Duration::ZERO));
        rig.run(1);
        rig.port.threads[1].waited
    };
    assert_eq!(look(&mut rig), Some(Waited::TimedOut));
    rig.port.now += STUCK - MICROSECOND;
    assert_eq!(look(&mut rig), Some(Waited::TimedOut), "it is too soon");
    rig.port.now += STUCK;
    assert_eq!(look(&mut rig), Some(Waited::Packets));
    assert_eq!((hand(&rig, 0), hand(&rig, 1), queue(&rig)), (vec![], vec![2], vec![3]));
}

#[test]
fn a_thread_that_moves_keeps_what_it_holds_until_it_is_overdue() {
    let mut rig = rig(2, 2, SHORT);
    rig.put(12);
    rig.run_wait(0);
    rig.wait(1, 64, None);
    let mut kept = 0;
    for time in 1..10 {
        rig.take_packet(0);
        rig.pass(100 * MICROSECOND);
        if !hand(&rig, 0).is_empty() {
            kept = time;
        }
    }
    assert_eq!(kept, 8, "it goes to the idle thread after 0.9 ms");
    assert!(!hand(&rig, 1).is_empty());
}

#[test]
fn what_was_overdue_at_one_thread_is_not_held_as_long_by_the_next() {
    let mut rig = rig(4, 4, SHORT);
    rig.run_wait(1);
    rig.put(16);
    rig.run_wait(0);
    rig.settle();
    assert_eq!((rig.schedule.workers.watching(), hand(&rig, 0).len()), (Some(1), 16));
    rig.take_packet(0);
    rig.port.now += 900 * MICROSECOND;
    // A third thread has polled lately, so nothing seems to have waited for long.
    rig.schedule.polled(2, Found::Nothing, &rig.port);
    rig.wait(3, 64, None);
    rig.run(3);
    assert_eq!((hand(&rig, 0).len(), hand(&rig, 3).len(), queue(&rig).len()), (0, 2, 13));
}

#[test]
fn a_thread_that_cannot_return_what_it_took_takes_less() {
    let mut rig = rig(2, 2, SHORT);
    rig.put(3);
    rig.run_wait(0);
    while rig.take_packet(0).is_some() {}
    rig.run_wait(1);
    assert_eq!(rig.port.advised, None);
    (0..4).for_each(|_| rig.pass(TICK));
    assert_eq!(rig.port.advised, Some(64));
    assert_eq!(rig.advise(), 64);
    rig.pass(7 * TICK);
    assert_eq!(rig.advise(), 1, "it is away");
}

#[test]
fn the_watchdog_leaves_the_port_to_a_thread_that_has_lately_been_in_the_kernels_wait() {
    let mut rig = rig(2, 2, SHORT);
    rig.run_wait(0);
    rig.run_wait(1);
    rig.edge(1);
    rig.settle();
    assert!(is_out(&rig, 0) && watches(&rig, 1));
    rig.take_packet(0);
    rig.pass(600 * MICROSECOND);
    rig.edge(1);
    rig.run_wait(0);
    assert_eq!(hand(&rig, 0).len(), 1);
    let until = |rig: &Rig| rig.port.threads[1].does.until().unwrap().since(rig.port.now);
    assert_eq!(until(&rig), 400 * MICROSECOND, "the look comes all the same");
    rig.take_packet(0);
    rig.edge(1);
    rig.pass(400 * MICROSECOND);
    assert!(watches(&rig, 1) && rig.port.kernel.len() == 1, "thread 0 soon comes back for it");
    assert_eq!(until(&rig), 600 * MICROSECOND, "a tick after thread 0 was there");
    rig.pass(600 * MICROSECOND);
    assert_eq!(hand(&rig, 1).len(), 1);
}

/// Thread 0 has returned after 600 µs and handled a packet again, while thread 1 is the watchdog.
fn with_a_watchdog() -> Rig {
    let mut rig = rig(2, 2, SHORT);
    rig.run_wait(0);
    rig.run_wait(1);
    rig.edge(1);
    rig.settle();
    rig.take_packet(0);
    rig.pass(600 * MICROSECOND);
    rig.edge(1);
    rig.run_wait(0);
    rig.take_packet(0);
    rig
}

/// A thread that carries out deferred tasks in its wait takes what there is when it is done with them.
#[test]
fn the_watchdog_leaves_the_port_to_a_thread_that_is_busy_in_its_wait() {
    let mut rig = with_a_watchdog();
    rig.wait(0, 64, None);
    rig.edge(1);
    rig.port.now += 400 * MICROSECOND;
    rig.run(1);
    assert_eq!(rig.status(0), Status::Searching);
    assert!(watches(&rig, 1) && rig.port.kernel.len() == 1);
    rig.run(0);
    assert_eq!(hand(&rig, 0).len(), 1);
}

/// Otherwise two threads could leave the port to each other.
#[test]
fn the_port_is_left_neither_to_the_watchdog_nor_to_a_thread_that_is_not_awake() {
    let mut workers = WorkerTable::new(3);
    (0..3).for_each(|worker| assert_eq!(workers.join(), worker));
    assert!(!workers.is_another_busy(0), "they have never waited");
    workers.arrive(0);
    workers.arrive(1);
    assert!(workers.is_another_busy(0) && workers.is_another_busy(1));
    workers.watch(1);
    assert!(!workers.is_another_busy(0) && workers.is_another_busy(1));
    workers.rest(0);
    assert!(!workers.is_another_busy(1));
    assert_eq!(workers.call(), Some(0));
    assert!(!workers.is_another_busy(1), "it is not awake yet");
    workers.arrive(2);
    workers.run(2);
    assert!(workers.is_another_busy(1));
}

#[test]
fn a_thread_that_sleeps_after_the_port_was_left_to_it_is_found_a_tick_after_it_came_back() {
    let mut rig = with_a_watchdog();
    rig.nod(0, true);
    rig.pass(400 * MICROSECOND);
    rig.pass(599 * MICROSECOND);
    assert_eq!(rig.status(0), Status::Running);
    rig.pass(MICROSECOND);
    assert_eq!(rig.status(0), Status::FoundAsleep);
}

#[test]
fn a_watch_ends_when_a_tick_has_brought_nothing() {
    let mut rig = rig(2, 2, SHORT);
    rig.run_wait(0);
    rig.run_wait(1);
    rig.edge(1);
    rig.settle();
    rig.take_packet(0);
    rig.pass(TICK);
    // A packet was handed out since the last look.
    assert!(polls(&rig, 1));
    assert_eq!(rig.schedule.workers.watching(), Some(1));
    assert_eq!(rig.port.threads[1].does.until(), Some(rig.port.now + TICK));
    rig.pass(TICK);
    assert!(polls(&rig, 1));
    assert_eq!(rig.schedule.workers.watching(), None);
    assert_eq!(rig.port.threads[1].does.until(), None);
}

#[test]
fn a_watchdog_that_is_called_leaves_nothing_to_others() {
    let mut rig = rig(2, 2, SHORT);
    rig.run_wait(0);
    rig.run_wait(1);
    rig.edge(1);
    rig.settle();
    assert!(is_out(&rig, 0) && watches(&rig, 1));
    rig.take_packet(0);
    rig.put(1);
    rig.put_message();
    rig.wait(0, 1, None);
    rig.run(0);
    assert_eq!(rig.status(1), Status::Called);
    rig.run(1);
    assert_eq!(hand(&rig, 1), [3]);
}

#[test]
fn what_a_thread_has_not_looked_at_since_the_watch_began_is_taken_back_at_its_first_tick() {
    let mut rig = rig(1, 2, SHORT);
    rig.put(1);
    rig.run_wait(0);
    rig.run_wait(1);
    rig.pass(TICK - MICROSECOND);
    assert_eq!(hand(&rig, 0), [1]);
    rig.pass(MICROSECOND);
    assert!(hand(&rig, 0).is_empty());
}

#[test]
fn the_watchdog_looks_more_often_where_an_observed_thread_was_lately_found_asleep() {
    for (leaves, after, tick) in [(false, 80, TICK / 4), (false, 100, TICK), (true, 80, TICK)] {
        let mut rig = found_asleep(true);
        if leaves {
            rig.nod(0, false);
            rig.leave(0);
        }
        rig.port.now += after * TICK;
        rig.run_wait(2);
        assert_eq!(rig.port.threads[2].does.until(), Some(rig.port.now + tick), "{leaves} {after}");
    }
}

#[test]
fn the_watchdog_looks_no_more_often_where_the_last_sleep_was_brief() {
    for (slept, tick) in [(TICK / 2, TICK), (2 * TICK, TICK / 4)] {
        let mut rig = found_asleep(true);
        rig.observe(1);
        rig.run_wait(2);
        rig.nod(1, true);
        (0..10).for_each(|_| rig.pass(slept / 10));
        assert_eq!(rig.status(1), Status::FoundAsleep);
        rig.schedule.sleepers.unrecorded_at = None;
        for is_asleep in [true, false] {
            rig.nod(1, is_asleep);
            rig.schedule.recount(&mut rig.port);
        }
        assert_eq!(rig.status(1), Status::Running);
        assert_eq!(rig.schedule.until_next_look(rig.port.now), tick, "{slept:?}");
    }
}

/// On a busy machine, a thread that waits for a lock of the library sleeps until its holder has a
/// processor.
#[test]
fn only_several_long_sleeps_limit_the_packets_that_cannot_be_taken_back() {
    for (slept, wakes, advised) in
        [(999, false, None), (999, true, None), (1000, true, None), (1000, false, Some(64))]
    {
        let mut rig = with_sleepers(1, Duration::ZERO);
        assert_eq!(rig.port.advised, None, "it may be brief");
        rig.port.now += slept * MICROSECOND - 100 * MICROSECOND;
        rig.nod(0, !wakes);
        (0..2).for_each(|_| rig.schedule.recount(&mut rig.port));
        assert_eq!(rig.port.advised, advised, "{slept} µs");
    }
    for (apart, advised) in [([99, 99, 99], 1), ([99, 99, 100], 64), ([100, 99, 99], 64)] {
        let mut rig = rig(4, 4, SHORT);
        for worker in 0..4 {
            take_one(&mut rig, worker);
            rig.observe(worker);
            rig.nod(worker, true);
            rig.port.now += 1000 * MICROSECOND;
            rig.schedule.scan(&mut rig.port);
            assert_eq!(rig.status(worker), Status::FoundAsleep, "it is long when it is found");
            assert_eq!(rig.port.advised, Some(if worker < 3 { 64 } else { advised }), "{apart:?}");
            rig.port.now += (apart.get(worker).unwrap_or(&1) - 1) * 1000 * MICROSECOND;
        }
    }
    // All have the same cause.
    let mut rig = rig(4, 4, SHORT);
    for worker in 0..4 {
        take_one(&mut rig, worker);
        rig.observe(worker);
        rig.nod(worker, true);
    }
    rig.port.now += 1000 * MICROSECOND;
    rig.schedule.scan(&mut rig.port);
    assert_eq!(rig.schedule.figures().blocks_found, 4);
    assert_eq!(rig.port.advised, Some(64));
    // The system is asked about them, one after the other.
    let mut rig = self::rig(4, 5, SHORT);
    for worker in 0..4 {
        take_one(&mut rig, worker);
        rig.nod(worker, true);
    }
    rig.run_wait(4);
    for _ in 0..300 {
        rig.port.now += 10 * MICROSECOND;
        rig.step(4);
    }
    assert_eq!(rig.schedule.figures().blocks_found, 4);
    assert_eq!(rig.port.advised, Some(64));
    assert_eq!(found_asleep(false).port.advised, Some(64), "nobody knows for how long");
}

/// A port whose concurrency value is 1, and which has found this many workers asleep by their sleep
/// records, the last one this long ago. One more worker is away.
fn with_sleepers(sleepers: usize, slept: Duration) -> Rig {
    let mut rig = rig(1, sleepers + 1, SHORT);
    for worker in 0..sleepers {
        take_one(&mut rig, worker);
        rig.observe(worker);
        rig.nod(worker, true);
        rig.port.now += 100 * MICROSECOND;
        rig.schedule.scan(&mut rig.port);
        assert_eq!(rig.status(worker), Status::FoundAsleep);
    }
    rig.port.now += slept;
    rig
}

/// Whether the worker is counted once its record was read, if that is due.
fn is_counted(rig: &mut Rig, worker: WorkerNumber) -> bool {
    rig.schedule.recount(&mut rig.port);
    rig.status(worker) == Status::Running
}

#[test]
fn the_records_of_many_threads_that_were_found_asleep_are_read_once_in_a_tick() {
    for (sleepers, each_time) in [(4, true), (5, false)] {
        let mut rig = with_sleepers(sleepers, TICK);
        assert!(!is_counted(&mut rig, 0));
        rig.nod(0, false);
        assert_eq!(is_counted(&mut rig, 0), each_time);
        rig.port.now += TICK - MICROSECOND;
        assert_eq!(is_counted(&mut rig, 0), each_time);
        rig.port.now += MICROSECOND;
        assert!(is_counted(&mut rig, 0));
    }
}

#[test]
fn the_records_of_few_threads_are_read_each_time_also_after_those_of_many() {
    let mut rig = with_sleepers(5, TICK);
    assert!(!is_counted(&mut rig, 0));
    rig.nod(0, false);
    rig.take_packet(0);
    assert_eq!(rig.status(0), Status::Running, "it counts immediately");
    rig.nod(1, false);
    assert!(is_counted(&mut rig, 1));
}

#[test]
fn a_sleep_that_is_found_after_many_others_is_long_after_a_millisecond() {
    let mut rig = with_sleepers(5, 2 * TICK);
    take_one(&mut rig, 5);
    rig.observe(5);
    rig.port.now += TICK - 100 * MICROSECOND;
    rig.nod(5, true);
    rig.port.now += 100 * MICROSECOND;
    assert!(!is_counted(&mut rig, 0));
    rig.schedule.scan(&mut rig.port);
    assert_eq!(rig.status(5), Status::FoundAsleep);
    rig.port.now += TICK - 100 * MICROSECOND;
    assert!(!is_counted(&mut rig, 5));
    rig.nod(5, false);
    rig.take_packet(5);
    assert!(rig.schedule.sleepers.replaces_at_once(), "no sleep was brief");
}

#[test]
fn a_sleep_that_is_long_when_it_is_found_has_no_records_read_before_the_tick() {
    let mut rig = with_sleepers(5, 2 * TICK);
    take_one(&mut rig, 5);
    rig.observe(5);
    rig.nod(5, true);
    rig.port.now += 2 * TICK;
    assert!(!is_counted(&mut rig, 0));
    rig.nod(0, false);
    rig.schedule.scan(&mut rig.port);
    assert_eq!(rig.status(5), Status::FoundAsleep);
    assert!(!is_counted(&mut rig, 0), "the records were read a moment ago");
    rig.port.now += TICK;
    assert!(is_counted(&mut rig, 0));
}

#[test]
fn many_sleeps_are_long_after_a_millisecond_as_few_are() {
    for sleepers in [4, 8] {
        let mut rig = with_sleepers(sleepers, Duration::ZERO);
        // Each has slept for 1.2 ms when it wakes up, and is looked at each 50 µs.
        for _ in 0..40 {
            rig.schedule.recount(&mut rig.port);
            for worker in 0..sleepers {
                if let Some(since) = rig.port.threads[worker].asleep
                    && rig.port.now.since(since) >= TICK + TICK / 5
                {
                    rig.nod(worker, false);
                }
            }
            rig.port.now += 50 * MICROSECOND;
        }
        assert!(rig.schedule.sleepers.replaces_at_once(), "{sleepers} long sleeps");
    }
}

#[test]
fn the_watchdog_looks_again_when_an_observed_thread_has_slept_for_long_enough() {
    const SLEPT: Duration = Duration::from_micros(40);
    let mut rig = found_asleep(true);
    rig.observe(1);
    rig.run_wait(2);
    let look = rig.port.threads[2].does.until().unwrap().since(rig.port.now);
    rig.pass(look - SLEPT);
    rig.nod(1, true);
    rig.pass(SLEPT);
    assert_eq!(rig.status(1), Status::Running, "it has slept for a moment only");
    let rest = 100 * MICROSECOND - SLEPT;
    assert_eq!(rig.port.threads[2].does.until(), Some(rig.port.now + rest));
    rig.pass(rest);
    assert_eq!(rig.status(1), Status::FoundAsleep);
}

/// Advances the clock in small steps until `happened`. In each step, every worker of `busy` handles
/// a packet and waits for the next one. Returns how long it took.
fn time_until(rig: &mut Rig, busy: &[WorkerNumber], happened: impl Fn(&Rig) -> bool) -> Duration {
    const STEP: Duration = Duration::from_micros(20);
    let begun = rig.port.now;
    while !happened(rig) {
        assert!(rig.port.now < begun + 200 * TICK, "it does not happen: {rig:#?}");
        for &worker in busy {
            if is_out(rig, worker) {
                while rig.take_packet(worker).is_some() {}
                rig.put(1);
                rig.run_wait(worker);
            }
        }
        rig.pass(STEP);
    }
    rig.port.now.since(begun)
}

/// Makes the period of looks as short as possible, as if queries had found sleepers.
fn hurry(rig: &mut Rig) {
    let pace = &mut rig.schedule.sleepers.pace;
    while pace.period() > SHORTEST {
        pace.found();
        pace.looked(Duration::ZERO);
    }
}

/// A port with a concurrency value of two and a short period of looks. Worker 0 runs, worker 1 does
/// what the test says, and the others wait. One of these is the watchdog.
fn hurried() -> Rig {
    let mut rig = rig(2, 4, SHORT);
    take_one(&mut rig, 0);
    take_one(&mut rig, 1);
    (2..4).for_each(|worker| rig.run_wait(worker));
    hurry(&mut rig);
    rig.edge(1);
    rig.put(1);
    // The old watchdog's period lasts until its next look.
    rig.pass(TICK);
    hurry(&mut rig);
    rig
}

#[test]
fn looks_come_sooner_after_one_that_has_found_a_sleeper_by_asking() {
    for observes in [false, true] {
        let rig = found_asleep(observes);
        let pace = &rig.schedule.sleepers.pace;
        assert_eq!(pace.hurries(), !observes, "records need no asking: {pace:?}");
        assert!(pace.period() < TICK / 2 || observes);
    }
    let mut rig = found_asleep(false);
    rig.nod(1, true);
    rig.put(1);
    rig.run_wait(2);
    let found = |rig: &Rig| rig.status(1) == Status::FoundAsleep;
    assert!(time_until(&mut rig, &[], found) <= TICK * 2 / 3);
    assert!(is_out(&rig, 2), "and another one takes its place: {rig:#?}");
}

#[test]
fn where_threads_sleep_often_the_watchdog_finds_each_at_its_second_look() {
    let mut rig = hurried();
    rig.nod(0, true);
    rig.nod(1, true);
    let found = |rig: &Rig| [0, 1].iter().all(|it| rig.status(*it) == Status::FoundAsleep);
    let time = time_until(&mut rig, &[], found);
    assert!((SHORTEST..=3 * SHORTEST).contains(&time), "{time:?}");
}

#[test]
fn where_threads_sleep_often_one_that_comes_to_wait_finds_them() {
    for hurries in [true, false] {
        let mut rig = rig(2, 2, SHORT);
        take_one(&mut rig, 0);
        if hurries {
            hurry(&mut rig);
        }
        rig.nod(0, true);
        // No worker is idle in between, so there is no watchdog.
        let mut looks = (1..4).map(|_| {
            rig.port.now += SHORTEST;
            rig.wait(1, 64, Some(Duration::ZERO));
            rig.run(1);
            rig.status(0)
        });
        assert_eq!(looks.any(|status| status == Status::FoundAsleep), hurries);
    }
}

/// Worker 0 sleeps while it uses up the concurrency value. No other worker waits for as long as a
/// watchdog would have to.
#[test]
fn threads_that_wait_for_a_short_time_only_find_those_asleep() {
    for (time, pause) in [(0, 100), (0, 1_000), (300, 10), (1_000, 0), (1_000, 2_000)] {
        for (observes, is_queued) in [(false, true), (true, true), (false, false)] {
            let mut rig = rig(1, 2, SHORT);
            rig.port.observes = observes;
            take_one(&mut rig, 0);
            rig.nod(0, true);
            if is_queued {
                rig.put(1);
            } else {
                rig.edge(1);
            }
            let begun = rig.port.now;
            while hand(&rig, 1).is_empty() {
                let took = rig.port.now.since(begun);
                assert!(took <= 3 * TICK + pause * MICROSECOND, "{time} {pause} {rig:#?}");
                rig.port.now += pause * MICROSECOND;
                rig.wait(1, 64, Some(time * MICROSECOND));
                rig.run(1);
                if !is_out(&rig, 1) {
                    rig.pass(time * MICROSECOND);
                }
                assert!(is_out(&rig, 1), "its time is over: {rig:#?}");
            }
        }
    }
}

/// Worker 0 works, so it stays counted, and a worker that only makes looks makes no more of them
/// than a watchdog.
#[test]
fn threads_that_wait_for_a_short_time_only_leave_one_that_works_its_seat() {
    let mut rig = rig(1, 2, SHORT);
    take_one(&mut rig, 0);
    rig.put(1);
    let mut looks = 0;
    for _ in 0..200 {
        rig.port.now += TICK / 20;
        rig.wait(1, 64, Some(Duration::ZERO));
        rig.run(1);
        looks += u32::from(!rig.schedule.watchdog.is_stale(rig.port.now, MICROSECOND));
        assert_eq!((rig.status(0), hand(&rig, 1).len()), (Status::Running, 0));
    }
    assert!((9..=11).contains(&looks), "{looks}");
}

#[test]
fn no_thread_wakes_at_an_idle_port_where_threads_slept_often() {
    let mut rig = hurried();
    for _ in 0..100 {
        for worker in 0..4 {
            if is_out(&rig, worker) {
                while rig.take_packet(worker).is_some() {}
                rig.run_wait(worker);
            }
        }
        rig.pass(SHORTEST);
    }
    assert!(rig.port.queue.is_empty() && rig.port.kernel.is_empty());
    let ends = (0..4).filter_map(|worker| rig.port.threads[worker].does.until()).count();
    assert_eq!(ends, 0, "{rig:#?}");
}

#[test]
fn looks_are_a_tick_apart_again_when_no_thread_has_slept_for_a_while() {
    let mut rig = hurried();
    let time = time_until(&mut rig, &[0, 1], |rig| !rig.schedule.sleepers.pace.hurries());
    assert!((10 * TICK..40 * TICK).contains(&time), "{time:?}");
}

#[test]
fn a_thread_that_was_found_asleep_is_asked_about_once_in_a_tick_however_often_threads_look() {
    let mut rig = found_asleep(false);
    rig.run_wait(2);
    rig.put(1);
    rig.port.queries.clear();
    let begun = rig.port.now;
    for _ in 0..200 {
        hurry(&mut rig);
        rig.pass(SHORTEST / 5);
    }
    let ticks = rig.port.now.since(begun).as_secs_f64() / TICK.as_secs_f64();
    let about: Vec<_> = rig.port.queries.iter().filter(|(it, _)| it.worker == 0).collect();
    assert!((2..=4).contains(&about.len()), "in {ticks} ticks: {about:?}");
    let asked = about.iter().filter(|(_, asked)| *asked).count();
    assert!(asked <= 1, "its processor time tells: {about:?}");
}

#[test]
fn where_threads_sleep_often_the_system_is_not_asked_about_one_that_runs_for_long() {
    let mut rig = hurried();
    rig.port.queries.clear();
    for _ in 0..200 {
        hurry(&mut rig);
        rig.pass(SHORTEST / 5);
    }
    let asked = |rig: &Rig| {
        let about = rig.port.queries.iter().filter(|(it, _)| it.worker == 0);
        let about: Vec<bool> = about.map(|(_, asked)| *asked).collect();
        let asked = about.iter().filter(|asked| **asked).count();
        (asked, about.len() - asked)
    };
    let (asked_before, settled) = asked(&rig);
    assert!(asked_before <= 1 && settled > 20, "{asked_before} {settled}");
    rig.nod(0, true);
    let time = time_until(&mut rig, &[], |rig| rig.status(0) == Status::FoundAsleep);
    assert!(time <= 3 * SHORTEST, "{time:?}");
    assert!(asked(&rig).0 <= asked_before + 2);
}

#[test]
fn the_processor_time_of_a_thread_tells_that_it_still_sleeps_or_was_awake_since() {
    let time = Duration::from_micros;
    for (stuck_at, before, now, expected) in [
        (None, Some(5), Some(5), Some(true)),
        (None, Some(5), Some(6), None),
        (Some(1), Some(5), Some(6), Some(false)),
        (Some(1), Some(5), Some(5), None),
        (Some(1), None, Some(5), None),
        (None, None, Some(5), None),
        (None, Some(5), None, None),
        (Some(1), Some(5), None, None),
    ] {
        let query = Query { worker: 0, stuck_at, ran: before.map(time) };
        assert_eq!(query.is_settled_by(now.map(time)), expected, "{query:?} {now:?}");
    }
}

/// An arriving worker makes a look and polls at its end if the concurrency value is used up. It
/// takes what it finds then, even if another worker has arrived and was parked in the meantime.
#[test]
fn what_a_thread_finds_in_the_look_with_which_it_comes_it_takes() {
    let mut rig = rig(1, 2, SHORT);
    rig.put(2);
    rig.run_wait(0);
    assert_eq!(hand(&rig, 0).len(), 2);
    rig.pass(2 * TICK);
    rig.wait(1, 64, None);
    assert!(rig.step(1));
    assert!(matches!(rig.port.threads[1].does, Does::Asks(..)), "{rig:#?}");
    while rig.take_packet(0).is_some() {}
    rig.run_wait(0);
    assert!(rig.port.threads[0].does.sleeps(), "{rig:#?}");
    rig.put(1);
    rig.run(1);
    assert_eq!(rig.port.threads[1].waited, Some(Waited::Packets), "{rig:#?}");
}

/// Worker 0 computes, and holds the only seat of a port that overcommits.
fn computes(threads: usize, after: Duration) -> Rig {
    let mut rig = rig(1, threads, SHORT);
    rig.schedule.overcommit_after(after);
    take_one(&mut rig, 0);
    (1..threads).for_each(|worker| rig.run_wait(worker));
    rig
}

#[test]
fn a_port_that_overcommits_lets_another_thread_run_while_all_compute() {
    let mut rig = computes(3, 10 * TICK);
    rig.post();
    let mut ticks = 0;
    while rig.status(0) == Status::Running {
        ticks += 1;
        rig.pass(TICK);
    }
    // A look at most a tick later sees that something waits, and another one that it has waited.
    assert!((10..=12).contains(&ticks), "{ticks}");
    assert_eq!(rig.status(0), Status::Excess);
    let (other, idle) = if is_out(&rig, 1) { (1, 2) } else { (2, 1) };
    assert_eq!(rig.take_packet(other), Some(2));
    assert_eq!((rig.schedule.figures().running, rig.schedule.figures().excess), (1, 1));
    // At most twice the concurrency value.
    rig.post();
    (0..40).for_each(|_| rig.pass(TICK));
    assert_eq!((rig.status(idle), queue(&rig)), (Status::Idle, vec![3]));
    // An excess thread stops at its next wait, because the seat is taken.
    rig.run_wait(0);
    assert_eq!((rig.status(0), rig.schedule.figures().excess), (Status::Idle, 0));
    assert_eq!(queue(&rig), [3]);
    rig.run_wait(other);
    assert_eq!(hand(&rig, other), [3]);
}

#[test]
fn edges_and_timers_that_wait_let_another_thread_run_as_well() {
    for timer in [false, true] {
        let mut rig = computes(2, 5 * TICK);
        if timer {
            rig.post_in(2 * TICK);
        } else {
            rig.edge(1);
        }
        (0..12).for_each(|_| rig.pass(TICK));
        assert_eq!((rig.status(0), hand(&rig, 1).len()), (Status::Excess, 1), "timer: {timer}");
    }
}

#[test]
fn no_other_thread_runs_while_nothing_waits_or_threads_come_to_wait() {
    let mut rig = computes(2, 5 * TICK);
    (0..30).for_each(|_| rig.pass(TICK));
    assert_eq!(rig.status(0), Status::Running, "nothing waits");
    for _ in 0..30 {
        // The thread takes one packet at a time, and more remain.
        rig.post();
        rig.post();
        rig.pass(2 * TICK);
        rig.take_packet(0);
        rig.wait(0, 1, None);
        rig.run(0);
        rig.settle();
        assert_eq!(rig.schedule.figures().excess, 0, "it comes to wait in time");
    }
}

#[test]
fn without_the_option_packets_wait_however_long_all_compute() {
    let mut rig = rig(1, 2, SHORT);
    take_one(&mut rig, 0);
    rig.run_wait(1);
    rig.post();
    (0..100).for_each(|_| rig.pass(TICK));
    assert_eq!(
        (rig.status(0), rig.status(1), queue(&rig)),
        (Status::Running, Status::Idle, vec![2])
    );
}
