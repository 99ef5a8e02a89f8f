//! Models the pool's counts with the manager, and `block_on`.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use loom::sync::atomic::AtomicBool;
use loom::thread;

use crate::kit::{explore, spawn, unpark};
use crate::parking::{current, park};
use crate::state::ending::Ending;
use crate::state::threads::Threads;

/// Counts of a pool with some threads, of which the calling thread is the manager.
fn pool(least: usize, threads: usize) -> Arc<Threads> {
    let pool = Arc::new(Threads::new(4, least));
    pool.set_manager(current());
    for _ in 0..threads {
        assert!(pool.reserve());
    }
    pool
}

/// As the manager does it: sleeps while a thread waits.
fn manage(pool: &Threads) {
    while pool.idle() > 0 {
        park();
    }
}

#[test]
fn the_last_waiting_thread_that_leaves_wakes_the_manager() {
    explore(|| {
        let pool = pool(1, 2);
        let leave = [spawn(&pool, Threads::leave_wait), spawn(&pool, Threads::leave_wait)];
        manage(&pool);
        for leave in leave {
            leave.join().unwrap();
        }
    });
}

/// One thread waits again while another one leaves.
#[test]
fn a_thread_that_comes_back_loses_no_wake() {
    explore(|| {
        let pool = pool(1, 1);
        let visits = spawn(&pool, |pool| {
            pool.leave_wait();
            pool.come_to_wait();
            pool.leave_wait();
        });
        visits.join().unwrap();
        manage(&pool);
    });
}

/// Two threads without packets exit, each of which takes the other for the one that stays.
#[test]
fn the_last_threads_that_exit_wake_the_manager() {
    explore(|| {
        let pool = pool(0, 2);
        let exits = [(); 2].map(|()| {
            spawn(&pool, |pool| {
                if !pool.may_exit() {
                    // It gets packets later.
                    pool.leave_wait();
                }
            })
        });
        manage(&pool);
        for exits in exits {
            exits.join().unwrap();
        }
        assert!(pool.existing() <= 2);
    });
}

/// The system refuses a thread when the runtime starts, while the first one gets packets.
#[test]
fn a_thread_that_cannot_be_started_hides_no_thread_that_leaves() {
    explore(|| {
        let pool = pool(2, 1);
        let starts = spawn(&pool, |pool| {
            assert!(pool.reserve());
            pool.not_started(&Ending::new());
            pool.wake_manager();
        });
        let leaves = spawn(&pool, Threads::leave_wait);
        manage(&pool);
        starts.join().unwrap();
        leaves.join().unwrap();
    });
}

/// The manager is about to start a thread when the runtime ends, and the system refuses the thread.
#[test]
fn a_shutdown_does_not_wait_for_a_thread_that_cannot_be_started() {
    explore(|| {
        let counts = Arc::new((Threads::new(4, 1), Ending::new()));
        assert!(counts.0.reserve());
        let starts = spawn(&counts, |(pool, ending)| pool.not_started(ending));
        assert!(counts.1.wait_until(None, || counts.0.existing() == 0));
        starts.join().unwrap();
    });
}

#[test]
fn the_end_wakes_the_manager() {
    explore(|| {
        let pool = pool(1, 1);
        let ends = spawn(&pool, Threads::end);
        while !pool.is_ending() {
            park();
        }
        ends.join().unwrap();
    });
}

#[test]
fn a_wake_against_the_park_of_block_on_is_not_lost() {
    explore(|| {
        let (unpark, waker) = unpark();
        let is_ready = Arc::new(AtomicBool::new(false));
        let wakes = [waker.clone(), waker].map(|waker| {
            spawn(&is_ready, move |is_ready| {
                is_ready.store(true, Relaxed);
                waker.wake();
            })
        });
        while !is_ready.load(Relaxed) {
            unpark.wait();
        }
        for wakes in wakes {
            wakes.join().unwrap();
        }
    });
}

/// The future takes the thread's token: the wake counts nevertheless.
#[test]
fn a_future_that_parks_its_thread_takes_no_wake() {
    explore(|| {
        let (unpark, waker) = unpark();
        let this = current();
        let wakes = thread::spawn(move || {
            waker.wake();
            this.unpark();
        });
        park();
        unpark.wait();
        wakes.join().unwrap();
    });
}
