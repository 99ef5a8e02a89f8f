//! The rows of the table in docs/design/THREADS.md.

use super::*;

#[test]
fn a_thread_that_waits_searches_and_returns_what_it_has_not_looked_at() {
    let mut rig = rig(2, 1, SHORT);
    rig.put(3);
    rig.run_wait(0);
    assert_eq!(hand(&rig, 0), [1, 2, 3]);
    rig.take_packet(0);
    rig.put(1);
    rig.wait(0, 64, None);
    assert_eq!(rig.status(0), Status::Searching);
    assert_eq!(queue(&rig), [2, 3, 4], "at the front");
    rig.run(0);
    while rig.take_packet(0).is_some() {}
    assert!(rig.block(0));
    rig.wait(0, 64, None);
    assert_eq!(rig.status(0), Status::Searching, "a thread that waits does not block");
}

#[test]
fn a_thread_takes_packets_while_fewer_than_the_limit_run() {
    let mut rig = rig(1, 2, SHORT);
    take_one(&mut rig, 0);
    rig.put(1);
    rig.run_wait(1);
    assert_eq!(rig.status(1), Status::Idle);
    assert_eq!(queue(&rig), [2]);
    rig.wait(0, 64, None);
    rig.run(0);
    assert_eq!((rig.status(0), hand(&rig, 0)), (Status::Running, vec![2]));
}

#[test]
fn a_thread_takes_no_more_than_it_has_room_for() {
    let mut rig = rig(2, 1, SHORT);
    rig.put(3);
    rig.wait(0, 2, None);
    rig.run(0);
    assert_eq!((hand(&rig, 0), queue(&rig)), (vec![1, 2], vec![3]));
}

/// Worker 1 has taken a packet while worker 0 runs. It returns `after` that time and waits for 200
/// µs. Worker 2 searches, and a packet is queued.
fn comes_back_to_a_full_crew(after: Duration, posted: bool) -> Rig {
    let mut rig = rig(2, 3, SHORT);
    take_one(&mut rig, 0);
    take_one(&mut rig, 1);
    if posted {
        rig.put_message();
    } else {
        rig.put(1);
    }
    rig.wait(2, 64, None);
    rig.port.now += after;
    rig.wait(1, 64, Some(200 * MICROSECOND));
    rig.run(1);
    rig
}

#[test]
fn a_thread_that_soon_comes_back_leaves_the_port_to_a_full_crew() {
    let mut rig = comes_back_to_a_full_crew(50 * MICROSECOND, false);
    assert_eq!(rig.status(1), Status::Idle);
    assert_eq!(queue(&rig).len(), 1);
    assert!(watches(&rig, 1), "the kernel's wait is left alone, too");
    rig.run(2);
    assert!(is_out(&rig, 2));
    let rig = comes_back_to_a_full_crew(201 * MICROSECOND, false);
    assert_eq!(rig.status(1), Status::Running, "it does not come back that soon");
    let rig = comes_back_to_a_full_crew(50 * MICROSECOND, true);
    assert_eq!(rig.status(1), Status::Running, "a message waits for no thread");
}

#[test]
fn a_thread_that_leaves_the_port_to_others_takes_what_is_left_when_its_time_is_over() {
    let mut rig = comes_back_to_a_full_crew(50 * MICROSECOND, false);
    rig.port.now += 200 * MICROSECOND;
    rig.run(1);
    assert_eq!((rig.port.threads[1].waited, hand(&rig, 1)), (Some(Waited::Packets), vec![3]));
}

#[test]
fn the_kernel_is_asked_once_in_each_wait_also_if_packets_are_left() {
    let mut rig = rig(1, 1, SHORT);
    rig.put(1);
    rig.edge(1);
    rig.run_wait(0);
    assert_eq!(hand(&rig, 0), [1, 2]);
}

#[test]
fn a_thread_that_is_alone_asks_again_for_what_there_was_no_room_for() {
    for (limit, handed) in [(1, 4), (2, 2)] {
        let mut rig = rig(limit, 2, SHORT);
        rig.port.edges = 2;
        rig.run_wait(0);
        rig.edge(5);
        rig.run(0);
        assert_eq!(hand(&rig, 0).len(), handed, "limit {limit}");
    }
}

#[test]
fn one_thread_sleeps_in_the_kernels_wait_and_the_others_are_parked() {
    let mut rig = rig(4, 3, SHORT);
    (0..3).for_each(|worker| rig.run_wait(worker));
    assert!(polls(&rig, 0) && parks(&rig, 1) && parks(&rig, 2));
}

#[test]
fn no_thread_enters_the_kernels_wait_while_all_seats_are_taken() {
    let mut rig = rig(1, 3, SHORT);
    take_one(&mut rig, 0);
    rig.run_wait(1);
    rig.run_wait(2);
    assert!(watches(&rig, 1), "it is the watchdog");
    assert!(parks(&rig, 2));
}

#[test]
fn several_threads_sleep_in_the_kernels_wait_while_packets_are_long() {
    let mut rig = rig(2, 3, LONG);
    (0..3).for_each(|worker| rig.run_wait(worker));
    assert!(polls(&rig, 0) && polls(&rig, 1) && parks(&rig, 2));
}

#[test]
fn one_thread_sleeps_in_the_kernels_wait_if_all_edges_come_from_one_descriptor() {
    let longer = 80 * MICROSECOND;
    for (last, packet, joins) in [(7, LONG, false), (8, LONG, true), (7, longer, true)] {
        let mut rig = rig(2, 3, packet);
        (0..100).for_each(|_| rig.schedule.polled(2, Found::Of(7), &rig.port));
        rig.schedule.polled(2, Found::Of(last), &rig.port);
        (0..3).for_each(|worker| rig.run_wait(worker));
        assert!(polls(&rig, 0) && polls(&rig, 1) == joins && parks(&rig, 2), "{last} {packet:?}");
    }
}

#[test]
fn the_edges_of_one_descriptor_are_left_to_a_thread_that_runs_and_what_is_queued_is_not() {
    for (queued, leaves) in [(0, true), (1, false)] {
        let mut rig = rig(2, 2, LONG);
        (0..100).for_each(|_| rig.schedule.polled(1, Found::Of(0), &rig.port));
        (0..2).for_each(|worker| rig.run_wait(worker));
        assert!(polls(&rig, 0) && parks(&rig, 1));
        rig.edge(1);
        rig.run(0);
        rig.put(queued);
        rig.settle();
        assert_eq!((is_out(&rig, 0), watches(&rig, 1)), (true, leaves));
        assert_eq!(hand(&rig, 1).len(), queued);
    }
}

#[test]
fn no_thread_enters_the_kernels_wait_while_its_set_is_replaced() {
    let mut rig = rig(2, 2, LONG);
    rig.port.replacing = true;
    rig.run_wait(0);
    rig.run_wait(1);
    assert!(watches(&rig, 0) && parks(&rig, 1));
    rig.port.replacing = false;
    rig.pass(TICK);
    assert!(polls(&rig, 0));
}

#[test]
fn several_threads_sleep_in_the_kernels_wait_where_several_have_lately_not_sufficed() {
    for (after, joins) in [(149, true), (150, false)] {
        let mut rig = rig(2, 2, SHORT);
        take_one(&mut rig, 0);
        rig.put(2);
        rig.run_wait(1);
        while rig.take_packet(1).is_some() {}
        rig.port.now += after * MICROSECOND;
        rig.run_wait(1);
        rig.run_wait(0);
        // The last packet was left to a worker that has returned for it.
        (0..2).for_each(|worker| {
            if is_out(&rig, worker) {
                while rig.take_packet(worker).is_some() {}
                rig.run_wait(worker);
            }
        });
        assert_eq!(
            rig.schedule.workers().in_kernel(),
            if joins { 2 } else { 1 },
            "{after}: {rig:#?}"
        );
    }
}

#[test]
fn a_post_gives_the_newest_idle_thread_its_packet() {
    let mut rig = rig(2, 3, SHORT);
    (0..3).for_each(|worker| rig.run_wait(worker));
    assert_eq!(rig.post().map(|wake| wake.worker), Some(2));
    assert_eq!(rig.post().map(|wake| wake.worker), Some(1));
    // Only two may run.
    rig.post();
    assert_eq!(rig.statuses(), [Status::Idle, Status::Given, Status::Given]);
    assert_eq!((hand(&rig, 1), hand(&rig, 2), queue(&rig)), (vec![2], vec![1], vec![3]));
    rig.run(2);
    assert_eq!((rig.status(2), hand(&rig, 2)), (Status::Running, vec![1]));
    assert_eq!(rig.port.threads[2].waited, Some(Waited::Packets));
}

#[test]
fn a_post_gives_nothing_while_a_called_thread_will_find_it() {
    let mut rig = rig(3, 3, LONG);
    rig.run_wait(0);
    rig.run_wait(1);
    rig.put(2);
    rig.run_wait(2);
    assert_eq!(rig.statuses(), [Status::Idle, Status::Called, Status::Running]);
    rig.post();
    assert_eq!(rig.status(0), Status::Idle, "it may watch, and takes nothing");
    assert_eq!(queue(&rig), [2, 3]);
}

#[test]
fn packets_left_behind_that_are_worth_a_wake_call_a_thread() {
    for (packet, called) in [(SHORT, false), (LONG, true)] {
        let mut rig = rig(4, 2, packet);
        rig.run_wait(0);
        rig.put(2);
        rig.wait(1, 1, None);
        rig.run(1);
        let status = if called { Status::Called } else { Status::Idle };
        assert_eq!((rig.status(0), queue(&rig)), (status, vec![2]), "{packet:?}");
        rig.run(0);
        assert_eq!(is_out(&rig, 0), called);
    }
}

#[test]
fn a_thread_that_goes_off_with_what_it_was_given_calls_one_for_what_it_leaves() {
    for (packet, posted, called) in
        [(SHORT, false, false), (SHORT, true, true), (LONG, false, true), (LONG, true, true)]
    {
        let mut rig = rig(2, 2, packet);
        rig.run_wait(0);
        rig.run_wait(1);
        rig.post();
        if posted {
            rig.put_message();
        } else {
            rig.put(1);
        }
        rig.run(1);
        assert_eq!(hand(&rig, 1), [1]);
        let status = if called { Status::Called } else { Status::Idle };
        assert_eq!(rig.status(0), status, "{packet:?}, {posted}");
    }
}

#[test]
fn a_thread_that_returns_what_it_has_calls_one_for_it() {
    let mut rig = rig(2, 2, SHORT);
    rig.put(2);
    rig.run_wait(0);
    assert_eq!(rig.take_packet(0), Some(1));
    rig.run_wait(1);
    rig.schedule.expect(LONG);
    rig.release(0);
    assert_eq!((rig.status(1), queue(&rig)), (Status::Called, vec![2]));
    rig.run(1);
    assert_eq!(hand(&rig, 1), [2]);
    let wakes = rig.schedule.figures().wakes;
    rig.release(0);
    assert_eq!(rig.schedule.figures().wakes, wakes, "it has nothing");
}

#[test]
fn a_post_that_is_left_behind_calls_a_thread() {
    for posted in [true, false] {
        let mut rig = rig(4, 2, SHORT);
        rig.run_wait(0);
        rig.put(1);
        if posted {
            rig.put_message();
        } else {
            rig.put(1);
        }
        rig.wait(1, 1, None);
        rig.run(1);
        let status = if posted { Status::Called } else { Status::Idle };
        assert_eq!((hand(&rig, 1), queue(&rig)), (vec![1], vec![2]));
        assert_eq!(rig.status(0), status);
    }
}

#[test]
fn a_seat_that_becomes_free_calls_a_thread_if_there_may_be_something_to_find() {
    type Free = fn(&mut Rig);
    let block: Free = |rig| assert!(rig.block(0));
    let leave: Free = |rig| rig.leave(0);
    for free in [block, leave] {
        for (queued, remembered) in [(1, 0), (0, 1), (0, 0)] {
            let mut rig = rig(1, 3, SHORT);
            take_one(&mut rig, 0);
            rig.run_wait(1);
            rig.run_wait(2);
            rig.put(queued);
            (0..remembered).for_each(|_| rig.remember());
            free(&mut rig);
            // Even if nothing is queued yet, because no worker is in the kernel's wait.
            assert_eq!(rig.status(2), Status::Called, "the newest");
            rig.run(2);
            assert_eq!(is_out(&rig, 2), queued + remembered > 0);
            assert_eq!(polls(&rig, 2), queued + remembered == 0);
        }
    }
    let mut rig = rig(2, 3, SHORT);
    take_one(&mut rig, 0);
    rig.run_wait(1);
    rig.run_wait(2);
    assert!(polls(&rig, 1));
    assert!(rig.block(0));
    assert_eq!(rig.status(2), Status::Idle, "nothing is left to find");
}

#[test]
fn an_idle_thread_that_wakes_for_no_reason_keeps_its_place() {
    let mut rig = rig(4, 4, SHORT);
    (0..4).for_each(|worker| rig.run_wait(worker));
    rig.wake_spuriously(1);
    rig.run(1);
    rig.wake_spuriously(2);
    let wakes = [(); 4].map(|()| rig.post().map(|wake| wake.worker));
    assert_eq!(wakes, [3, 2, 1, 0].map(Some));
    rig.settle();
    assert!((0..4).all(|worker| hand(&rig, worker).len() == 1));
}

#[test]
fn a_called_thread_that_finds_nothing_was_woken_in_vain() {
    let mut rig = rig(4, 2, LONG);
    rig.run_wait(0);
    rig.put(2);
    rig.wait(1, 1, None);
    rig.run(1);
    assert_eq!(rig.status(0), Status::Called);
    rig.take_packet(1);
    rig.wait(1, 64, None);
    rig.run(1);
    rig.run(0);
    assert_eq!(rig.status(0), Status::Idle);
    assert!(polls(&rig, 0));
    let figures = rig.schedule.figures();
    assert_eq!((figures.wakes, figures.spurious), (1, 1));
}

#[test]
fn a_wake_that_brings_another_thread_out_is_adopted_with_its_packet() {
    let mut rig = rig(2, 2, LONG);
    rig.run_wait(0);
    rig.run_wait(1);
    let wake = rig.post().unwrap();
    assert_eq!((wake.worker, wake.in_kernel), (1, true));
    rig.run(0);
    assert_eq!((hand(&rig, 0), rig.status(0)), (vec![1], Status::Running));
    assert_eq!(rig.status(1), Status::Idle);
    assert_eq!(rig.post().map(|wake| wake.worker), Some(1), "in its place");
    rig.run(1);
    assert_eq!(hand(&rig, 1), [2]);
}

#[test]
fn a_thread_whose_wake_was_adopted_is_the_newest_again() {
    let mut rig = rig(3, 3, LONG);
    (0..3).for_each(|worker| rig.run_wait(worker));
    assert_eq!(rig.post().map(|wake| wake.worker), Some(2));
    rig.run(0);
    assert_eq!(hand(&rig, 0), [1]);
    let wakes = [rig.post(), rig.post()].map(|wake| wake.map(|wake| wake.worker));
    assert_eq!(wakes, [Some(2), Some(1)]);
    rig.settle();
    assert_eq!((hand(&rig, 2), hand(&rig, 1)), (vec![2], vec![3]));
}

#[test]
fn a_call_that_brings_another_thread_out_is_adopted() {
    let mut rig = rig(3, 3, LONG);
    rig.run_wait(0);
    rig.run_wait(1);
    rig.put(2);
    rig.run_wait(2);
    assert_eq!(rig.status(1), Status::Called);
    rig.step(0);
    rig.step(0);
    assert_eq!((rig.status(0), rig.status(1)), (Status::Called, Status::Idle));
    rig.run(0);
    assert_eq!(hand(&rig, 0), [2]);
}

#[test]
fn of_two_wakes_that_are_one_to_the_kernel_the_second_is_made_again() {
    for first in [0, 1] {
        let mut rig = rig(2, 2, LONG);
        rig.run_wait(0);
        rig.run_wait(1);
        let both = [rig.post(), rig.post()].map(|wake| wake.map(|wake| wake.in_kernel));
        assert_eq!(both, [Some(true); 2]);
        rig.run(first);
        assert!(rig.port.eventfd, "{first}");
        rig.run(1 - first);
        assert!(!rig.port.eventfd);
        let hands = [hand(&rig, first), hand(&rig, 1 - first)];
        assert_eq!(hands, if first == 0 { [[2], [1]] } else { [[1], [2]] });
    }
}

#[test]
fn a_watch_that_another_thread_is_woken_for_ends() {
    let mut rig = rig(3, 3, LONG);
    rig.run_wait(0);
    rig.run_wait(1);
    rig.remember();
    // Both are in the kernel's wait, and the newer one is meant.
    assert_eq!(rig.schedule.workers.watching(), Some(1));
    rig.step(0);
    rig.step(0);
    assert_eq!(rig.schedule.workers.watching(), None);
    rig.run(0);
    assert_eq!(hand(&rig, 0).len(), 1);
    rig.settle();
}

/// The look of a thread that arrives is none of the watchdog's, which still sleeps without a limit.
#[test]
fn a_watch_that_another_thread_is_woken_for_ends_also_after_a_look_of_a_third_one() {
    let mut rig = rig(4, 4, LONG);
    rig.delays = true;
    rig.run_wait(0);
    rig.run_wait(1);
    take_one(&mut rig, 3);
    rig.pass(TICK);
    let wake = rig.keep(3).unwrap();
    assert_eq!((wake.worker, wake.in_kernel), (1, true));
    rig.port.now += TICK;
    rig.run_wait(2);
    // The kernel wakes the older one.
    rig.deliver();
    rig.run(0);
    assert_eq!(rig.schedule.workers.watching(), Some(0));
    rig.nod(3, true);
    (0..3).for_each(|_| rig.pass(TICK));
    assert_eq!(rig.status(3), Status::FoundAsleep);
}

#[test]
fn a_thread_whose_time_is_over_runs_with_nothing() {
    let mut rig = rig(2, 2, SHORT);
    for (worker, time) in [(0, 500), (1, 300)] {
        rig.wait(worker, 64, Some(time * MICROSECOND));
        rig.run(worker);
    }
    assert!(polls(&rig, 0) && parks(&rig, 1));
    rig.pass(300 * MICROSECOND);
    assert_eq!(rig.statuses(), [Status::Idle, Status::Running]);
    rig.pass(200 * MICROSECOND);
    for worker in 0..2 {
        assert_eq!(rig.port.threads[worker].waited, Some(Waited::TimedOut));
    }
    // A worker that only searches asks the kernel once and does not sleep.
    rig.wait(0, 64, Some(Duration::ZERO));
    rig.edge(1);
    rig.run(0);
    assert_eq!((rig.port.threads[0].waited, hand(&rig, 0).len()), (Some(Waited::Packets), 1));
    rig.wait(1, 64, Some(Duration::ZERO));
    rig.run(1);
    assert_eq!(rig.port.threads[1].waited, Some(Waited::TimedOut));
}

#[test]
fn a_wait_that_is_over_at_once_asks_the_kernel_and_leaves_it() {
    let mut rig = rig(1, 1, SHORT);
    rig.wait(0, 64, Some(Duration::ZERO));
    rig.step(0);
    assert!(matches!(rig.port.threads[0].does, Does::Asks(..)));
    rig.run(0);
    assert_eq!(
        (rig.port.threads[0].waited, rig.status(0)),
        (Some(Waited::TimedOut), Status::Running)
    );
}

#[test]
fn a_woken_thread_whose_time_is_over_has_what_it_was_handed() {
    let mut rig = rig(4, 2, LONG);
    for worker in 0..2 {
        rig.wait(worker, 64, Some(300 * MICROSECOND));
        rig.run(worker);
    }
    rig.post();
    rig.port.now += TICK;
    rig.run(1);
    assert_eq!((rig.port.threads[1].waited, hand(&rig, 1)), (Some(Waited::Packets), vec![1]));
    rig.run(0);
    assert_eq!(
        (rig.port.threads[0].waited, rig.status(0)),
        (Some(Waited::TimedOut), Status::Running)
    );
}

#[test]
fn a_thread_that_says_it_blocks_is_not_counted_until_it_says_that_it_is_over() {
    let mut rig = rig(1, 2, SHORT);
    assert!(!rig.block(0), "a thread that has taken nothing yet is not counted");
    rig.put(3);
    rig.run_wait(0);
    rig.take_packet(0);
    rig.run_wait(1);
    assert!(rig.block(0));
    assert_eq!(rig.status(0), Status::Blocked);
    assert!(!rig.block(0), "it does already");
    rig.run(1);
    assert_eq!((rig.status(1), hand(&rig, 1)), (Status::Running, vec![2, 3]));
    rig.unblock(0);
    assert_eq!(rig.schedule.figures().running, 2, "the limit is exceeded by that");
    rig.put(1);
    rig.take_packet(1);
    rig.take_packet(1);
    rig.run_wait(1);
    assert_eq!(queue(&rig).len(), 1, "and keeps others waiting");
}

#[test]
fn a_thread_whose_records_say_that_it_sleeps_loses_its_seat_to_a_post() {
    for (since, found) in [(99, false), (100, true)] {
        let mut rig = rig(1, 2, SHORT);
        take_one(&mut rig, 0);
        rig.run_wait(1);
        rig.observe(0);
        rig.nod(0, true);
        rig.port.now += since * MICROSECOND;
        let wake = rig.post();
        assert_eq!(wake.is_some(), found, "after {since} µs");
        assert_eq!(rig.status(0), if found { Status::FoundAsleep } else { Status::Running });
        assert_eq!(rig.port.advised, None, "it may be brief");
        assert_eq!(rig.schedule.figures().blocks_found, u64::from(found));
    }
}

#[test]
fn what_a_thread_holds_that_is_found_asleep_goes_to_the_one_in_its_place() {
    let mut rig = rig(1, 2, SHORT);
    rig.put(3);
    rig.run_wait(0);
    rig.take_packet(0);
    rig.run_wait(1);
    rig.observe(0);
    rig.nod(0, true);
    rig.port.now += 100 * MICROSECOND;
    rig.post();
    rig.run(1);
    assert!(hand(&rig, 0).is_empty());
    assert_eq!([hand(&rig, 1), queue(&rig)].concat(), [2, 3, 4], "it goes before what came later");
}

/// Worker 1 waits. Worker 0 has taken a packet, has another one left and falls asleep.
fn fall_asleep(rig: &mut Rig) {
    rig.put(2);
    rig.run_wait(0);
    rig.take_packet(0);
    rig.nod(0, true);
}

/// Worker 0, which was found asleep, wakes up, and worker 1 waits again.
fn wake_up(rig: &mut Rig) {
    assert_eq!(rig.status(0), Status::FoundAsleep);
    while rig.take_packet(1).is_some() {}
    rig.run_wait(1);
    rig.nod(0, false);
    assert_eq!(rig.take_packet(0), None);
}

/// A port of two workers. The first one has its sleep records, and has slept for long this often.
fn with_long_sleeps(limit: usize, sleeps: usize) -> Rig {
    let mut rig = rig(limit, 2, SHORT);
    rig.observe(0);
    rig.run_wait(1);
    for _ in 0..sleeps {
        fall_asleep(&mut rig);
        (0..2).for_each(|_| rig.pass(TICK));
        wake_up(&mut rig);
    }
    rig
}

#[test]
fn where_most_sleeps_are_long_a_post_takes_the_seat_of_a_sleeper_at_once() {
    let is_replaced = |rig: &mut Rig| {
        fall_asleep(rig);
        rig.post();
        rig.run(1);
        is_out(rig, 1)
    };
    assert!(!is_replaced(&mut with_long_sleeps(1, 3)));
    let mut rig = with_long_sleeps(1, 4);
    assert!(is_replaced(&mut rig));
    rig.port.now += 200 * MICROSECOND;
    wake_up(&mut rig);
    assert!(!is_replaced(&mut rig), "the last time it was in vain");
}

#[test]
fn where_most_sleeps_are_long_a_thread_that_finds_nothing_takes_what_a_sleeper_has() {
    for sleeps in [3, 4] {
        let mut rig = with_long_sleeps(2, sleeps);
        fall_asleep(&mut rig);
        rig.nod(0, false);
        // At its first return it makes a look, since there was none for a while.
        for sleeps in [false, true] {
            assert!(!is_out(&rig, 1));
            rig.nod(0, sleeps);
            rig.post();
            rig.run(1);
            assert!(rig.take_packet(1).is_some());
            rig.run_wait(1);
        }
        assert_eq!(is_out(&rig, 1), sleeps == 4, "{rig:#?}");
    }
}

#[test]
fn a_thread_that_moves_while_the_system_is_asked_keeps_its_seat() {
    for moves in [true, false] {
        let mut rig = rig(1, 2, SHORT);
        rig.run_wait(0);
        rig.put(2);
        rig.edge(1);
        rig.run(0);
        rig.take_packet(0);
        rig.run_wait(1);
        rig.nod(0, true);
        let asked = (0..10).any(|_| {
            rig.port.now += TICK / 4;
            (0..4).any(|_| {
                rig.step(1);
                matches!(rig.port.threads[1].does, Does::Answers(..))
            })
        });
        assert!(asked);
        if moves {
            rig.nod(0, false);
            assert!(rig.block(0));
            rig.unblock(0);
        }
        rig.step(1);
        assert_eq!(rig.status(0), if moves { Status::Running } else { Status::FoundAsleep });
    }
}

#[test]
fn a_thread_that_leaves_something_finds_those_asleep() {
    let mut rig = rig(2, 3, LONG);
    take_one(&mut rig, 0);
    rig.observe(0);
    rig.run_wait(1);
    rig.nod(0, true);
    rig.port.now += 100 * MICROSECOND;
    rig.put(1);
    rig.put_message();
    rig.run_wait(2);
    assert_eq!(rig.status(0), Status::FoundAsleep);
    assert_eq!(rig.status(1), Status::Called);
}

#[test]
fn the_watchdog_asks_about_threads_that_do_not_move() {
    for detects in [true, false] {
        let mut rig = rig(1, 2, SHORT);
        rig.port.detects = detects;
        rig.put(3);
        rig.run_wait(0);
        rig.take_packet(0);
        rig.run_wait(1);
        rig.nod(0, true);
        (0..3).for_each(|_| rig.pass(TICK));
        let status = if detects { Status::FoundAsleep } else { Status::Running };
        assert_eq!(rig.status(0), status);
        assert!(hand(&rig, 0).is_empty(), "it gives back what it has in any case");
        assert_eq!(hand(&rig, 1).len(), if detects { 2 } else { 0 });
    }
}

#[test]
fn a_thread_that_was_found_asleep_counts_again_when_it_comes_to_its_next_packet() {
    let mut rig = found_asleep(false);
    rig.nod(0, false);
    assert_eq!(rig.take_packet(0), None, "it was taken away");
    assert_eq!(rig.status(0), Status::Running);
    assert_eq!(rig.schedule.figures().running, 2);
}

#[test]
fn a_thread_that_was_found_asleep_counts_again_before_packets_are_handed_out() {
    for observes in [false, true] {
        let mut rig = found_asleep(observes);
        rig.nod(0, false);
        rig.port.now += TICK;
        rig.put(1);
        rig.run_wait(1);
        assert_eq!(rig.status(0), Status::Running, "records: {observes}");
        assert_eq!((rig.status(1), queue(&rig).len()), (Status::Idle, 1));
    }
}

#[test]
fn records_are_read_each_time_and_the_system_is_asked_once_in_a_tick() {
    for observes in [false, true] {
        let mut rig = found_asleep(observes);
        take_one(&mut rig, 1);
        rig.nod(0, false);
        rig.put(1);
        rig.run_wait(1);
        let (first, second) = (rig.status(0), rig.status(1));
        if observes {
            assert_eq!((first, second), (Status::Running, Status::Idle));
        } else {
            assert_eq!((first, second), (Status::FoundAsleep, Status::Running));
        }
    }
}

#[test]
fn a_thread_that_only_looks_calls_one_for_what_it_has_found() {
    for found in [true, false] {
        let mut rig = rig(2, 2, SHORT);
        rig.run_wait(0);
        rig.run_wait(1);
        rig.edge(1);
        rig.settle();
        assert!(is_out(&rig, 0) && watches(&rig, 1));
        rig.edge(usize::from(found));
        rig.begin_peek();
        rig.end_peek();
        assert_eq!(rig.status(1), if found { Status::Called } else { Status::Idle });
    }
}

#[test]
fn a_thread_that_was_found_asleep_and_says_that_it_blocks_is_its_own_witness() {
    let mut rig = found_asleep(true);
    rig.nod(0, false);
    assert!(rig.block(0));
    assert_eq!(rig.status(0), Status::Blocked);
    rig.put(1);
    rig.run_wait(1);
    assert_eq!((rig.status(0), rig.status(1)), (Status::Blocked, Status::Running));
}

#[test]
fn a_post_while_a_thread_is_thought_asleep_calls_one_that_looks_first() {
    let mut rig = found_asleep(true);
    rig.run_wait(1);
    rig.run_wait(2);
    rig.nod(0, false);
    rig.post();
    assert_eq!(rig.statuses(), [Status::FoundAsleep, Status::Idle, Status::Called]);
    rig.run(2);
    assert_eq!(rig.statuses(), [Status::Running, Status::Idle, Status::Idle]);
}

#[test]
fn a_thread_that_leaves_gives_its_seat_and_its_packets_up() {
    let mut rig = rig(1, 2, SHORT);
    rig.put(3);
    rig.run_wait(0);
    rig.take_packet(0);
    rig.run_wait(1);
    rig.leave(0);
    assert_eq!((rig.status(0), rig.status(1)), (Status::Vacant, Status::Called));
    assert_eq!(queue(&rig), [2, 3]);
    assert_eq!(rig.join(), 0, "the first vacant seat");
    assert_eq!(rig.status(0), Status::Away);
    assert!(!rig.block(0), "the seat of another thread");
}

#[test]
fn each_thread_of_a_port_that_ends_is_dismissed() {
    for packet in [SHORT, LONG] {
        let mut rig = rig(2, 5, packet);
        (0..3).for_each(|worker| rig.run_wait(worker));
        rig.wait(3, 64, None);
        rig.delays = true;
        rig.close();
        assert_eq!(rig.notices.len(), 3);
        assert!((0..3).all(|worker| rig.status(worker) == Status::Called));
        rig.settle();
        for worker in 0..4 {
            assert_eq!(rig.port.threads[worker].waited, Some(Waited::Closed));
            assert_eq!(rig.status(worker), Status::Away);
        }
        rig.run_wait(4);
        assert_eq!(rig.port.threads[4].waited, Some(Waited::Closed));
    }
}

#[test]
fn a_closed_port_hands_out_what_is_left_first() {
    let mut rig = rig(1, 3, SHORT);
    rig.put(2);
    rig.wait(0, 1, None);
    rig.run(0);
    rig.run_wait(1);
    rig.close();
    assert_eq!(rig.status(1), Status::Idle, "a packet is left");
    rig.take_packet(0);
    rig.wait(0, 1, None);
    rig.run(0);
    assert_eq!(rig.take_packet(0), Some(2));
    rig.settle();
    assert_eq!(rig.port.threads[1].waited, Some(Waited::Closed));
    let mut rig = self::rig(1, 2, SHORT);
    rig.put(2);
    rig.wait(0, 1, None);
    rig.run(0);
    rig.run_wait(1);
    rig.abandon();
    rig.settle();
    assert_eq!(rig.port.threads[1].waited, Some(Waited::Closed), "not if it is abandoned");
}

#[test]
fn a_direction_goes_on_in_its_wait_unless_other_packets_are_queued_or_packets_are_long() {
    for (limit, threads, packet, most) in
        [(4, 1, SHORT, 64), (1, 4, LONG, 64), (4, 4, SHORT, 16), (4, 4, LONG, 0)]
    {
        let mut rig = rig(limit, threads, packet);
        take_one(&mut rig, 0);
        let further = |rig: &Rig, room| rig.schedule.most_in_wait(room, &rig.port);
        let mosts = [5, 1000].map(|room| further(&rig, room));
        assert_eq!(mosts, [most.min(5), most], "{limit} {threads} {packet:?}");
        rig.remember();
        assert_eq!(further(&rig, 1000), 0, "a check comes first");
        rig.port.unchecked.clear();
        rig.put(1);
        assert_eq!(further(&rig, 1000), 0, "the queue comes first");
    }
}
