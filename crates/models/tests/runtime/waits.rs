//! Models waits for sockets, operations and timers.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::task::{Poll, Waker};
use std::time::Instant;

use loom::sync::atomic::{AtomicBool, AtomicU32};

use crate::kit::{Clock, Wakes, explore, spawn, unpark};
use crate::state::pending::Pending;
use crate::state::timer::Timers;
use crate::state::waiters::Waiters;

/// A socket: whether it is ready, and who waits for that.
#[derive(Default)]
struct Socket {
    waiters: Waiters,
    is_ready: AtomicBool,
}

impl Socket {
    fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Becomes ready, and reports an edge.
    fn edge(&self) {
        self.is_ready.store(true, Relaxed);
        self.waiters.wake();
    }

    /// As `Io::poll` does it.
    fn poll(&self) {
        let (unpark, waker) = unpark();
        loop {
            let seen = self.waiters.edges();
            if self.is_ready.load(Relaxed) {
                return;
            }
            if self.waiters.poll(seen, &waker) {
                unpark.wait();
            }
        }
    }

    /// As `Io::wait` does it.
    fn wait(&self) {
        let (unpark, waker) = unpark();
        let mut place = self.waiters.place();
        loop {
            let seen = self.waiters.edges();
            if self.is_ready.load(Relaxed) {
                return;
            }
            if place.wait(seen, &waker) {
                unpark.wait();
            }
        }
    }
}

/// A stream: bytes that are not read yet, and who waits for them.
#[derive(Default)]
struct Stream {
    waiters: Waiters,
    unread: AtomicU32,
}

impl Stream {
    /// A byte arrives, and the port reports an edge.
    fn arrive(&self) {
        self.unread.fetch_add(1, SeqCst);
        self.waiters.wake();
    }

    /// Reads a number of bytes as `Io::wait` and `Io::receive` do. Each read is short.
    fn read(&self, mut wanted: u32) {
        let (unpark, waker) = unpark();
        let mut place = self.waiters.place();
        while wanted > 0 {
            let seen = self.waiters.edges();
            if !Waiters::is_drained(seen) {
                let seen = self.waiters.edges();
                let read = self.unread.swap(0, SeqCst);
                if read > 0 {
                    self.waiters.note_drained(seen);
                    wanted -= read;
                    continue;
                }
            }
            if place.wait(seen, &waker) {
                unpark.wait();
            }
        }
    }
}

#[test]
fn a_byte_against_a_short_read_is_not_lost() {
    explore(|| {
        let stream = Arc::new(Stream::default());
        let reads = spawn(&stream, |stream| stream.read(2));
        stream.arrive();
        stream.arrive();
        reads.join().unwrap();
    });
}

#[test]
fn an_edge_against_a_wait_is_not_lost() {
    for polls in [false, true] {
        explore(move || {
            let socket = Socket::new();
            let waits =
                spawn(&socket, move |socket| if polls { socket.poll() } else { socket.wait() });
            socket.edge();
            waits.join().unwrap();
        });
    }
}

#[test]
fn an_edge_wakes_all_who_wait() {
    explore(|| {
        let socket = Socket::new();
        let waits = [spawn(&socket, Socket::wait), spawn(&socket, Socket::poll)];
        socket.edge();
        for waits in waits {
            waits.join().unwrap();
        }
    });
}

/// A future that is dropped while the edge comes leaves no waker behind, and takes no one's.
#[test]
fn a_wait_that_is_dropped_against_an_edge_takes_no_one_with_it() {
    explore(|| {
        let socket = Socket::new();
        let (wakes, waker) = Wakes::new();
        let waits = spawn(&socket, Socket::wait);
        let edge = spawn(&socket, Socket::edge);
        let mut place = socket.waiters.place();
        let _ = place.wait(socket.waiters.edges(), &waker);
        drop(place);
        drop(waker);
        edge.join().unwrap();
        waits.join().unwrap();
        assert!(wakes.count() <= 1);
        assert_eq!(Arc::strong_count(&wakes), 1, "a waker was left");
    });
}

#[test]
fn an_outcome_against_a_wait_is_not_lost() {
    explore(|| {
        let pending = Arc::new(Pending::default());
        let completes = spawn(&pending, |pending| pending.complete(7));
        let (unpark, waker) = unpark();
        while pending.poll(&waker) != Poll::Ready(7) {
            unpark.wait();
        }
        completes.join().unwrap();
    });
}

/// The outcome has a buffer and a file: the last one drops them.
#[test]
fn an_outcome_against_a_dropped_future_is_released() {
    explore(|| {
        let pending = Arc::new(Pending::default());
        let outcome = Arc::new(());
        let (wakes, waker) = Wakes::new();
        let completes = {
            let outcome = Arc::clone(&outcome);
            spawn(&pending, move |pending| pending.complete(outcome))
        };
        let is_ready = pending.poll(&waker).is_ready();
        if !is_ready {
            pending.abandon();
        }
        completes.join().unwrap();
        drop(waker);
        assert_eq!(Arc::strong_count(&outcome), 1, "the outcome was left");
        assert_eq!(Arc::strong_count(&wakes), 1, "a waker was left");
    });
}

/// The deadline moves while its timer expires. The task is woken, and no timer is left.
#[test]
fn a_timer_that_expires_while_its_deadline_moves_wakes_its_task() {
    for deadline in [1, 3] {
        explore(move || {
            let clock = Clock::new();
            let (wakes, waker) = Wakes::new();
            clock.wait_until(2, &waker);
            let fires = spawn(&clock, Clock::fire);
            clock.reset(deadline);
            fires.join().unwrap();
            while clock.fire().is_some() {}
            assert_eq!(wakes.count(), 1);
        });
    }
}

/// The deadline moves twice, to a later time and then to an earlier one.
#[test]
fn a_deadline_that_moves_twice_leaves_one_timer() {
    explore(|| {
        let clock = Clock::new();
        let (wakes, waker) = Wakes::new();
        clock.wait_until(2, &waker);
        let fires = spawn(&clock, Clock::fire);
        clock.reset(4);
        clock.reset(3);
        fires.join().unwrap();
        assert!(clock.alarms() <= 1);
        while clock.fire().is_some() {}
        assert_eq!(wakes.count(), 1);
    });
}

/// A future that is dropped while its timer expires, after its deadline has moved, leaves no waker
/// behind, and no timer that is set again.
#[test]
fn a_timer_that_expires_against_a_drop_is_not_set_again() {
    explore(|| {
        let clock = Clock::new();
        let (wakes, waker) = Wakes::new();
        clock.wait_until(2, &waker);
        clock.reset(3);
        let fires = spawn(&clock, Clock::fire);
        clock.abandon();
        fires.join().unwrap();
        drop(waker);
        assert_eq!(Arc::strong_count(&wakes), 1, "a waker was left");
        assert!(clock.alarms() <= 1);
        clock.fire();
        assert_eq!((clock.alarms(), wakes.count()), (0, 0));
    });
}

/// A timer follows one that was dropped, whose timer of the port expires meanwhile. Its task is
/// woken at its own deadline.
#[test]
fn a_timer_that_follows_a_dropped_one_expires_at_its_own_deadline() {
    explore(|| {
        let clock = Clock::new();
        let (first, waker) = Wakes::new();
        clock.wait_until(2, &waker);
        let fires = spawn(&clock, Clock::fire);
        clock.abandon();
        let (wakes, waker) = Wakes::new();
        clock.wait_until(3, &waker);
        fires.join().unwrap();
        assert!(first.count() <= 1 && wakes.count() == 0);
        let last = std::iter::from_fn(|| clock.fire()).last();
        assert_eq!((last, wakes.count()), (Some(3), 1));
    });
}

/// A timer that is first polled while its runtime ends: it is refused, or woken.
#[test]
fn a_timer_against_the_end_of_the_runtime_does_not_wait_forever() {
    explore(|| {
        let timers: Arc<Timers<u32>> = Arc::default();
        let ends = spawn(&timers, Timers::close);
        let (unpark, waker) = unpark();
        // The port takes the timer, and then drops it without a message.
        let set = |_, _, generation| Some(generation);
        let now = Instant::now();
        if let Some(place) = timers.start(now, now, waker.clone(), set) {
            loop {
                unpark.wait();
                if !timers.wait(place, &waker, |_, generation| Some(generation)) {
                    break;
                }
            }
        }
        ends.join().unwrap();
    });
}
