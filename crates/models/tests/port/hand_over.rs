//! Models how a seat passes from one thread to another: by a post, when a joining thread or the
//! watchdog looks for sleeping threads, and when the port is closed.

use std::sync::Arc;

use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use loom::thread;

use crate::engine::{Engine, Taken, Waited, Worker};
use crate::fake::Fake;
use crate::kit::{
    LOOKS, NoTasks, engine, explore, explore_within, looking_engine, next, post, scratch, serve,
    spawn, try_to_post,
};
use crate::state::moment::Moment;
use crate::types::config::BlockDetection;
use crate::types::error::Error;

/// Joins, takes one message, and leaves. Returns the number of the message's cell.
fn take_one(engine: &Engine) -> u32 {
    let worker = engine.join();
    let cell = take_with(engine, &worker);
    engine.leave(&worker);
    cell
}

fn take_with(engine: &Engine, worker: &Worker) -> u32 {
    // Another thread may take a packet back before this thread reaches it.
    loop {
        assert_eq!(engine.wait(worker, &mut scratch(), 1, None, &NoTasks), Waited::Packets);
        if let Some(taken) = next(engine, worker) {
            let Taken::Posted(cell) = taken else { panic!("{taken:?}") };
            return cell;
        }
    }
}

/// Waits until `threads` threads are on the idle list.
fn until_idle(engine: &Engine, threads: usize) {
    while engine.snapshot().threads.idle != threads {
        thread::yield_now();
    }
}

#[track_caller]
fn assert_nobody_counted(engine: &Engine) {
    let left = engine.snapshot();
    assert_eq!(
        (left.threads.running, left.threads.blocked, left.threads.idle, left.queued),
        (0, 0, 0, 0)
    );
}

/// The calling thread joins and takes a message. It is the one that may fall asleep.
fn runs(engine: &Engine, fake: &Fake) -> Arc<Worker> {
    fake.is_me();
    let worker = engine.join();
    post(engine);
    take_with(engine, &worker);
    worker
}

/// Explores `model`, which returns how many threads were found asleep. At least one execution must
/// find a sleeper, and at least one must find none. `model` receives the number of times that its
/// sleeper yields. The other threads then run one after the other until each of them lets time
/// pass.
#[track_caller]
fn explore_both(preemptions: usize, model: impl Fn(usize) -> u64 + Copy + Sync + Send + 'static) {
    use std::sync::atomic::AtomicUsize;
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    for turns in 0..4 {
        let counted = Arc::clone(&counts);
        explore_within(preemptions, move || {
            let found = usize::from(model(turns) > 0);
            counted[found].fetch_add(1, SeqCst);
        });
    }
    let [missed, found] = [0, 1].map(|found: usize| counts[found].load(SeqCst));
    println!("one is found asleep in {found} executions, none in {missed}");
    assert!(missed > 0 && found > 0, "found in {found} executions, not in {missed}");
}

/// Sleeps on the thread that may do so, while it yields `turns` times.
fn sleeps(fake: &Fake, turns: usize) {
    fake.asleep.store(true, SeqCst);
    (0..turns).for_each(|_| thread::yield_now());
    fake.asleep.store(false, SeqCst);
}

#[test]
fn a_post_gets_the_seat_of_a_thread_that_sleeps() {
    for detection in LOOKS {
        explore(move || {
            let (engine, fake) = looking_engine(1, detection);
            let worker = runs(&engine, &fake);
            let other = spawn(&engine, take_one);
            fake.asleep.store(true, SeqCst);
            let poster = spawn(&engine, post);
            // It sleeps until the other thread has received the message.
            other.join().unwrap();
            poster.join().unwrap();
            fake.asleep.store(false, SeqCst);
            assert!(next(&engine, &worker).is_none());
            let now = engine.snapshot();
            assert_eq!((now.threads.running, now.threads.blocked, now.queued), (1, 0, 0));
            assert!(now.threads.blocks_found > 0);
            engine.leave(&worker);
            assert_nobody_counted(&engine);
        });
    }
}

#[test]
fn a_thread_that_wakes_while_its_seat_is_given_away_loses_nothing() {
    for detection in LOOKS {
        explore_both(1, move |turns| {
            let (engine, fake) = looking_engine(1, detection);
            let worker = runs(&engine, &fake);
            let other = spawn(&engine, |engine| serve(engine, 1));
            let poster = spawn(&engine, |engine| {
                post(engine);
                engine.close();
            });
            // This may coincide with any point of a tick, of the post, or of the other thread's
            // arrival.
            sleeps(&fake, turns);
            assert!(next(&engine, &worker).is_none());
            let mut mine = 0;
            while engine.wait(&worker, &mut scratch(), 1, None, &NoTasks) != Waited::Closed {
                while next(&engine, &worker).is_some() {
                    mine += 1;
                }
            }
            engine.leave(&worker);
            poster.join().unwrap();
            assert_eq!(mine + other.join().unwrap(), 1);
            assert_nobody_counted(&engine);
            engine.snapshot().threads.blocks_found
        });
    }
}

#[test]
fn what_a_sleeping_thread_has_not_looked_at_is_taken_once() {
    for detection in LOOKS {
        explore_both(3, move |turns| {
            let (engine, fake) = looking_engine(1, detection);
            fake.is_me();
            let worker = engine.join();
            post(&engine);
            post(&engine);
            assert_eq!(engine.wait(&worker, &mut scratch(), 2, None, &NoTasks), Waited::Packets);
            assert!(matches!(next(&engine, &worker), Some(Taken::Posted(_))));
            let other = spawn(&engine, |engine| serve(engine, 1));
            sleeps(&fake, turns);
            let mut mine = 1;
            while next(&engine, &worker).is_some() {
                mine += 1;
            }
            engine.leave(&worker);
            engine.close();
            assert_eq!(mine + other.join().unwrap(), 2);
            assert_nobody_counted(&engine);
            engine.snapshot().threads.blocks_found
        });
    }
}

/// Puts a message in front of the packets of the thread, as `Port::post_after` does. Returns whether
/// that took no lock.
fn post_after(engine: &Engine, worker: &Worker) -> bool {
    if let Some(cell) = engine.cell_in_front(worker, false) {
        if engine.put_in_front(worker, cell) {
            return true;
        }
        engine.free_post(worker, cell);
    }
    let posting = engine.begin_post(|_| true).unwrap();
    posting.put_next(Some(worker), false);
    false
}

/// Joins, takes one of two messages, and returns its cell, which it can use again.
#[inline(never)]
fn has_one_left(engine: &Engine) -> (Arc<Worker>, u32) {
    let worker = engine.join();
    post(engine);
    post(engine);
    assert_eq!(engine.wait(&worker, &mut scratch(), 2, None, &NoTasks), Waited::Packets);
    let Some(Taken::Posted(cell)) = next(engine, &worker) else { panic!("a message") };
    engine.free_post(&worker, cell);
    (worker, cell)
}

/// Takes the messages that the thread has left. Returns how many there were.
fn rest(engine: &Engine, worker: &Worker) -> usize {
    std::iter::from_fn(|| next(engine, worker)).count()
}

/// Another thread takes the packets away while the sleeper, which is awake after all, adds one.
#[test]
fn what_a_sleeping_thread_puts_in_front_of_its_packets_is_taken_once() {
    for detection in LOOKS {
        explore_both(2, move |turns| {
            let (engine, fake) = looking_engine(1, detection);
            fake.is_me();
            let (worker, _) = has_one_left(&engine);
            let other = spawn(&engine, |engine| serve(engine, 1));
            sleeps(&fake, turns);
            post_after(&engine, &worker);
            let mine = 1 + rest(&engine, &worker);
            engine.leave(&worker);
            engine.close();
            assert_eq!(mine + other.join().unwrap(), 3);
            assert_nobody_counted(&engine);
            engine.snapshot().threads.blocks_found
        });
    }
}

/// While a thread has packets left, it puts a message in front of them without the lock.
#[test]
fn a_message_goes_in_front_of_packets_without_the_lock() {
    explore(|| {
        let (engine, _fake) = engine(1);
        let (worker, cell) = has_one_left(&engine);
        assert!(post_after(&engine, &worker));
        assert!(matches!(next(&engine, &worker), Some(Taken::Posted(taken)) if taken == cell));
        assert!(matches!(next(&engine, &worker), Some(Taken::Posted(taken)) if taken != cell));
        assert!(next(&engine, &worker).is_none());
        // There is none left, so other threads need not know that it has packets.
        engine.free_post(&worker, cell);
        assert!(!post_after(&engine, &worker));
    });
}

/// Puts a message behind the packets of the thread, as `Port::post_behind` does. The error says that
/// the port was closed first.
fn try_to_post_behind(engine: &Engine, worker: &Worker) -> Result<(), Error> {
    if let Some(cell) = engine.cell_behind(worker) {
        if engine.put_behind(worker, cell) {
            return Ok(());
        }
        engine.free_post(worker, cell);
    }
    engine.begin_post(|_| true).map(|posting| posting.put_behind(Some(worker)))
}

fn post_behind(engine: &Engine, worker: &Worker) {
    try_to_post_behind(engine, worker).unwrap();
}

/// Waits until the port is closed. Returns how many messages the thread has taken.
fn take_all(engine: &Engine, worker: &Worker) -> usize {
    let mut taken = 0;
    while engine.wait(worker, &mut scratch(), 2, None, &NoTasks) != Waited::Closed {
        while next(engine, worker).is_some() {
            taken += 1;
        }
    }
    taken
}

/// Another thread takes the messages away while the sleeper, which is awake after all, adds more.
#[test]
fn what_a_sleeping_thread_puts_behind_its_packets_is_taken_once() {
    for detection in LOOKS {
        explore_both(2, move |turns| {
            let (engine, fake) = looking_engine(1, detection);
            let worker = runs(&engine, &fake);
            engine.free_post(&worker, 0);
            post_behind(&engine, &worker);
            let other = spawn(&engine, |engine| serve(engine, 2));
            sleeps(&fake, turns);
            post_behind(&engine, &worker);
            engine.leave(&worker);
            engine.close();
            assert_eq!(other.join().unwrap(), 2);
            assert_nobody_counted(&engine);
            engine.snapshot().threads.blocks_found
        });
    }
}

/// The port is closed while a thread puts a message behind its packets: it comes, or is refused.
#[test]
fn what_is_put_behind_against_a_close_comes_to_its_thread() {
    explore(|| {
        let (engine, fake) = engine(1);
        let worker = runs(&engine, &fake);
        engine.free_post(&worker, 0);
        post_behind(&engine, &worker);
        let closes = spawn(&engine, Engine::close);
        let posted = 1 + usize::from(try_to_post_behind(&engine, &worker).is_ok());
        assert_eq!(take_all(&engine, &worker), posted);
        closes.join().unwrap();
        engine.leave(&worker);
        assert_nobody_counted(&engine);
    });
}

#[test]
fn who_wakes_and_takes_its_next_packet_is_counted() {
    // It may take the packet at the very moment at which it is found asleep.
    for detection in LOOKS {
        explore_both(2, move |turns| {
            let (engine, fake) = looking_engine(1, detection);
            fake.is_me();
            let worker = engine.join();
            (0..3).for_each(|_| post(&engine));
            assert_eq!(engine.wait(&worker, &mut scratch(), 2, None, &NoTasks), Waited::Packets);
            assert!(matches!(next(&engine, &worker), Some(Taken::Posted(_))));
            let running = Arc::new(AtomicUsize::new(0));
            let runs_alone = |running: &AtomicUsize| {
                assert_eq!(running.fetch_add(1, SeqCst), 0, "two run, and the limit is one");
                running.fetch_sub(1, SeqCst);
            };
            let others = Arc::clone(&running);
            let other = spawn(&engine, move |engine| {
                let worker = engine.join();
                while engine.wait(&worker, &mut scratch(), 1, None, &NoTasks) != Waited::Closed {
                    while next(engine, &worker).is_some() {
                        runs_alone(&others);
                    }
                }
                engine.leave(&worker);
            });
            sleeps(&fake, turns);
            while next(&engine, &worker).is_some() {
                runs_alone(&running);
            }
            engine.leave(&worker);
            engine.close();
            other.join().unwrap();
            assert_nobody_counted(&engine);
            engine.snapshot().threads.blocks_found
        });
    }
}

#[test]
fn what_was_found_out_about_a_thread_is_not_counted_for_the_next_one_in_its_seat() {
    // While the other thread asks about the sleeper, the sleeper leaves and its seat is taken
    // again. The new thread is awake and has made as much progress as the sleeper had.
    for detection in LOOKS {
        explore_both(2, move |turns| {
            let (engine, fake) = looking_engine(1, detection);
            let worker = runs(&engine, &fake);
            let other = spawn(&engine, |engine| serve(engine, 1));
            sleeps(&fake, turns);
            engine.leave(&worker);
            let found = engine.snapshot().threads.blocks_found;
            let worker = engine.join();
            post(&engine);
            post(&engine);
            let mut mine = 0;
            if engine.wait(&worker, &mut scratch(), 1, Some(Moment::ZERO), &NoTasks)
                == Waited::Packets
            {
                while next(&engine, &worker).is_some() {
                    thread::yield_now();
                    mine += 1;
                }
            }
            engine.leave(&worker);
            engine.close();
            assert_eq!(mine + other.join().unwrap(), 2);
            assert_nobody_counted(&engine);
            assert_eq!(engine.snapshot().threads.blocks_found, found, "it did not sleep");
            found
        });
    }
}

#[test]
fn a_look_at_a_thread_that_leaves_gives_its_seat_away_once() {
    // There are two seats, one of which a sleeper has. One of the two other threads takes a
    // message, posts two more, and takes one of these. It must look for sleepers when it leaves,
    // because the last message stays queued.
    explore_both(1, |turns| {
        let (engine, fake) = looking_engine(2, BlockDetection::Switches);
        let worker = runs(&engine, &fake);
        let taken = Arc::new(AtomicUsize::new(0));
        let others = [Arc::clone(&taken), Arc::clone(&taken)].map(|taken| {
            spawn(&engine, move |engine| {
                let worker = engine.join();
                while engine.wait(&worker, &mut scratch(), 1, None, &NoTasks) != Waited::Closed {
                    while next(engine, &worker).is_some() {
                        match taken.fetch_add(1, SeqCst) {
                            0 => (0..2).for_each(|_| post(engine)),
                            2 => engine.close(),
                            _ => {}
                        }
                    }
                }
                engine.leave(&worker);
            })
        });
        post(&engine);
        sleeps(&fake, turns);
        engine.leave(&worker);
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(taken.load(SeqCst), 3);
        assert_nobody_counted(&engine);
        engine.snapshot().threads.blocks_found
    });
}

#[test]
fn the_one_that_came_last_gets_the_first_post() {
    for limit in [1, 2] {
        explore(move || {
            let (engine, _) = engine(limit);
            let first = spawn(&engine, take_one);
            until_idle(&engine, 1);
            let second = spawn(&engine, take_one);
            until_idle(&engine, 2);
            post(&engine);
            post(&engine);
            let (first, second) = (first.join().unwrap(), second.join().unwrap());
            assert_eq!((second, first), (0, 1), "cells are given out in their order");
            assert_nobody_counted(&engine);
        });
    }
}

#[test]
fn two_posters_and_two_who_wait_meet() {
    for limit in [1, 2] {
        explore_within(2, move || {
            let (engine, _) = engine(limit);
            let waiters = [spawn(&engine, take_one), spawn(&engine, take_one)];
            until_idle(&engine, 2);
            let poster = spawn(&engine, post);
            post(&engine);
            poster.join().unwrap();
            let [first, second] = waiters.map(|waiter| waiter.join().unwrap());
            assert_ne!(first, second, "each message is taken once");
            assert_nobody_counted(&engine);
        });
    }
}

#[test]
fn a_message_on_its_way_to_a_thread_survives_the_close() {
    for limit in [1, 2] {
        explore_within(2, move || {
            let (engine, _) = engine(limit);
            let waiters = [
                spawn(&engine, |engine| serve(engine, 1)),
                spawn(&engine, |engine| serve(engine, 1)),
            ];
            let poster = spawn(&engine, try_to_post);
            engine.close();
            let posted = usize::from(poster.join().unwrap());
            let taken: usize = waiters.into_iter().map(|waiter| waiter.join().unwrap()).sum();
            assert_eq!(taken, posted);
            assert_nobody_counted(&engine);
        });
    }
}

#[test]
fn a_port_is_closed_while_the_seat_of_a_sleeper_is_given_away() {
    for detection in LOOKS {
        explore(move || {
            let (engine, fake) = looking_engine(1, detection);
            let worker = runs(&engine, &fake);
            let other = spawn(&engine, |engine| serve(engine, 1));
            fake.asleep.store(true, SeqCst);
            let poster = spawn(&engine, |engine| {
                post(engine);
                engine.close();
            });
            // It sleeps until the other thread's waits have ended.
            let taken = other.join().unwrap();
            poster.join().unwrap();
            fake.asleep.store(false, SeqCst);
            assert_eq!(engine.wait(&worker, &mut scratch(), 1, None, &NoTasks), Waited::Closed);
            engine.leave(&worker);
            assert_eq!(taken, 1);
            assert_nobody_counted(&engine);
        });
    }
}
