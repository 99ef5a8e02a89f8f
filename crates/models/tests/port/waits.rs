//! Models threads that wait for messages: no thread sleeps while a message is queued for it.

use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::engine::{Engine, Taken, Waited};
use crate::fake::Fake;
use crate::kit::{
    NoTasks, engine, explore, explore_within, hooked_engine, next, post, scratch, serve, spawn,
    take_one,
};
use crate::state::moment::Moment;

#[test]
fn a_post_against_a_thread_that_goes_to_sleep_is_not_missed() {
    explore(|| {
        let (engine, _) = engine(1);
        let waiter = spawn(&engine, |engine| serve(engine, 2));
        post(&engine);
        engine.close();
        assert_eq!(waiter.join().unwrap(), 1);
    });
}

#[test]
fn a_post_reaches_a_thread_even_if_nothing_else_ever_happens() {
    explore(|| {
        let (engine, _) = engine(1);
        let waiter = spawn(&engine, |engine| {
            let worker = engine.join();
            let waited = engine.wait(&worker, &mut scratch(), 1, None, &NoTasks);
            assert_eq!(waited, Waited::Packets);
            assert!(matches!(next(engine, &worker), Some(Taken::Posted(_))));
        });
        post(&engine);
        // The model doesn't close the port: a lost wake-up would leave the waiter asleep, which
        // loom reports.
        waiter.join().unwrap();
    });
}

#[test]
fn two_waiters_get_two_posts() {
    explore(|| {
        let (engine, _) = engine(2);
        let waiters = [spawn(&engine, take_one), spawn(&engine, take_one)];
        post(&engine);
        post(&engine);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn with_one_seat_a_packet_waits_for_it_and_is_not_forgotten() {
    explore(|| {
        let (engine, _) = engine(1);
        let running = Arc::new(AtomicUsize::new(0));
        let waiters = [Arc::clone(&running), running].map(|running| {
            spawn(&engine, move |engine| {
                let worker = engine.join();
                assert_eq!(
                    engine.wait(&worker, &mut scratch(), 1, None, &NoTasks),
                    Waited::Packets
                );
                assert!(matches!(next(engine, &worker), Some(Taken::Posted(_))));
                assert_eq!(running.fetch_add(1, SeqCst), 0, "one thread runs at a time");
                running.fetch_sub(1, SeqCst);
                engine.leave(&worker);
            })
        });
        post(&engine);
        post(&engine);
        for waiter in waiters {
            waiter.join().unwrap();
        }
    });
}

#[test]
fn a_thread_that_says_it_blocks_hands_its_seat_over() {
    explore(|| {
        let (engine, _) = engine(1);
        let other = spawn(&engine, take_one);
        let worker = engine.join();
        post(&engine);
        post(&engine);
        assert_eq!(engine.wait(&worker, &mut scratch(), 1, None, &NoTasks), Waited::Packets);
        assert!(matches!(next(&engine, &worker), Some(Taken::Posted(_))));
        // The other thread must get the second message while this one sleeps.
        assert!(engine.begin_blocking(&worker));
        other.join().unwrap();
        engine.end_blocking(&worker);
        engine.leave(&worker);
    });
}

#[test]
fn the_last_of_the_threads_that_leave_says_that_none_waits() {
    explore(|| {
        let calls = Arc::new(AtomicUsize::new(0));
        let engine = {
            let calls = Arc::clone(&calls);
            hooked_engine(2, move || {
                calls.fetch_add(1, SeqCst);
            })
        };
        // They keep their message, and neither wait nor leave the port.
        let takers = [(); 2].map(|()| {
            spawn(&engine, |engine| {
                let worker = engine.join();
                let waited = engine.wait(&worker, &mut scratch(), 1, None, &NoTasks);
                assert_eq!(waited, Waited::Packets);
                worker
            })
        });
        post(&engine);
        post(&engine);
        for taker in takers {
            taker.join().unwrap();
        }
        assert_eq!(engine.idle_threads(), 0);
        assert!((1..=2).contains(&calls.load(SeqCst)), "{calls:?}");
    });
}

/// A thread waits until another one has said something.
struct Signal(loom::sync::Mutex<bool>, loom::sync::Condvar);

impl Signal {
    fn new() -> Arc<Self> {
        Arc::new(Self(loom::sync::Mutex::new(false), loom::sync::Condvar::new()))
    }

    fn say(&self) {
        *self.0.lock().unwrap() = true;
        self.1.notify_one();
    }

    fn wait(&self) {
        let mut is_said = self.0.lock().unwrap();
        while !*is_said {
            is_said = self.1.wait(is_said).unwrap();
        }
    }
}

/// The handler of the first message waits for the second one, which only a thread that the hook
/// starts can take. A lost call would leave all threads asleep, which loom reports.
#[test]
fn a_pool_that_grows_when_no_thread_waits_is_not_stuck() {
    for announces in [false, true] {
        explore(move || {
            let (needed, answered) = (Signal::new(), Signal::new());
            let engine = {
                let needed = Arc::clone(&needed);
                // With one seat, the handler has to announce that it blocks.
                hooked_engine(if announces { 1 } else { 2 }, move || needed.say())
            };
            let first = {
                let answered = Arc::clone(&answered);
                spawn(&engine, move |engine| {
                    let worker = engine.join();
                    let waited = engine.wait(&worker, &mut scratch(), 1, None, &NoTasks);
                    assert_eq!(waited, Waited::Packets);
                    assert!(matches!(next(engine, &worker), Some(Taken::Posted(_))));
                    if announces {
                        assert!(engine.begin_blocking(&worker));
                        engine.blocks_with_none_idle();
                    }
                    answered.wait();
                    if announces {
                        engine.end_blocking(&worker);
                    }
                })
            };
            let second = spawn(&engine, move |engine| {
                needed.wait();
                take_one(engine);
                answered.say();
            });
            post(&engine);
            post(&engine);
            first.join().unwrap();
            second.join().unwrap();
        });
    }
}

#[test]
fn closing_ends_every_wait() {
    explore(|| {
        let (engine, _) = engine(2);
        let waiter = spawn(&engine, |engine| serve(engine, 1));
        let other = spawn(&engine, |engine| serve(engine, 1));
        engine.close();
        assert_eq!(waiter.join().unwrap() + other.join().unwrap(), 0);
    });
}

/// Two threads wait, possibly in the kernel's wait, and take messages until the port is closed.
fn crowd(meanwhile: impl FnOnce(&Engine, &Fake)) -> usize {
    let (engine, fake) = engine(3);
    engine.expect(Duration::from_millis(1));
    let waiters = [(); 2].map(|()| spawn(&engine, |engine| serve(engine, 1)));
    meanwhile(&engine, &fake);
    engine.close();
    waiters.map(|waiter| waiter.join().unwrap()).iter().sum()
}

#[test]
fn closing_ends_every_wait_of_a_crowd() {
    explore(|| assert_eq!(crowd(|_, _| ()), 0));
}

#[test]
fn a_crowd_gets_two_posts() {
    explore_within(2, || {
        let posts = |engine: &Engine, _: &Fake| {
            post(engine);
            post(engine);
        };
        assert_eq!(crowd(posts), 2);
    });
}

#[test]
fn a_post_reaches_one_of_a_crowd_even_if_nothing_else_ever_happens() {
    explore_within(2, || {
        let (engine, _) = engine(3);
        engine.expect(Duration::from_millis(1));
        let poster = spawn(&engine, |engine| {
            post(engine);
            post(engine);
        });
        let other = spawn(&engine, take_one);
        take_one(&engine);
        other.join().unwrap();
        poster.join().unwrap();
    });
}

#[test]
fn packets_taken_back_from_a_thread_are_taken_once() {
    explore(|| {
        let (engine, _) = engine(2);
        post(&engine);
        post(&engine);
        let worker = engine.join();
        assert_eq!(engine.wait(&worker, &mut scratch(), 2, None, &NoTasks), Waited::Packets);
        let thief = {
            let worker = Arc::clone(&worker);
            spawn(&engine, move |engine| {
                engine.return_packets(&worker);
                let mine = engine.join();
                let mut taken = 0;
                // A running thread takes only its share and leaves the rest to the other one, so
                // one wait may not take everything.
                while engine.wait(&mine, &mut scratch(), 2, Some(Moment::ZERO), &NoTasks)
                    == Waited::Packets
                {
                    while next(engine, &mine).is_some() {
                        taken += 1;
                    }
                }
                engine.leave(&mine);
                taken
            })
        };
        let mut taken = 0;
        while next(&engine, &worker).is_some() {
            taken += 1;
        }
        let stolen = thief.join().unwrap();
        engine.leave(&worker);
        assert_eq!(taken + stolen, 2);
    });
}
