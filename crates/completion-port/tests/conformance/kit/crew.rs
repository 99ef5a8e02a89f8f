//! Handlers that take virtual time, in several threads at once.
//!
//! The threads of a [`Crew`] wait on one port of a simulated kernel. A handler that takes some
//! microseconds computes nothing: [`Crew::work`] notes until when it works, and keeps its thread from
//! going on until the kernel's clock shows that. The test's own thread moves the clock:
//!
//! 1. [`Crew::settle`] waits until each thread of the crew either sleeps in the simulated kernel, with
//!    nothing to get up for, or works. Nothing changes then until the clock does.
//! 2. [`Crew::pass`] moves the clock to the moment at which the first of the handlers is done, or by a
//!    small step if that is sooner, and lets those threads go on whose time is over.
//!
//! So as many handlers run at the same time as the port lets, on however few processors; what the
//! library itself does takes no time; and one run is like the other, except for which of several threads
//! that go on at the same moment is the faster one.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, Packet, Port, sim};
use testkit::SOON;

/// Threads that wait on a port and handle packets in virtual time.
pub(crate) struct Crew<'k> {
    kernel: &'k sim::Kernel,
    state: Mutex<State>,
    /// Told when every thread that has a packet in its hands works.
    at_work: Condvar,
    /// Told, for each thread, when its work is over.
    done: Vec<Condvar>,
}

#[derive(Debug)]
struct State {
    /// Until when each thread works, if it does.
    until: Vec<Option<Duration>>,
    /// Threads that work, and those that have a packet in their hands, which the former are among.
    working: usize,
    outside: usize,
    /// The test is over: no thread works any more.
    over: bool,
}

impl<'k> Crew<'k> {
    /// A crew of `size` threads, each of which is to [`Crew::serve`]. The clock must be the manual one.
    pub(crate) fn new(kernel: &'k sim::Kernel, size: usize) -> Self {
        Self {
            kernel,
            state: Mutex::new(State {
                until: vec![None; size],
                working: 0,
                outside: size,
                over: false,
            }),
            at_work: Condvar::new(),
            done: (0..size).map(|_| Condvar::new()).collect(),
        }
    }

    /// How many threads the crew has.
    pub(crate) fn size(&self) -> usize {
        self.done.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What thread `me` of the crew does: it hands each packet of `port` to `handle`, at most `room` of
    /// them in a batch, until the port is closed. To the port it runs whenever it is not in a wait.
    pub(crate) fn serve<K, M>(
        &self,
        me: usize,
        port: &Port<K, M>,
        room: usize,
        mut handle: impl FnMut(usize, Packet<'_, K, M>),
    ) {
        self.kernel.set_thread_asleep(thread::current().id(), false);
        let mut batch = Batch::with_capacity(room);
        self.go_to_wait();
        while let Ok(packets) = port.wait(&mut batch, None) {
            // To ask for the next packet is to wait as well, if all that there were are gone.
            for packet in packets {
                self.state().outside += 1;
                handle(me, packet);
                self.go_to_wait();
            }
        }
    }

    /// A thread of the crew has nothing in its hands, and asks the port for more.
    fn go_to_wait(&self) {
        let mut state = self.state();
        state.outside -= 1;
        self.tell(&state);
    }

    /// Wakes the thread that moves the clock, if it may be its turn.
    fn tell(&self, state: &State) {
        if state.working == state.outside {
            self.at_work.notify_all();
        }
    }

    /// The handler of thread `me` takes so much virtual time. Returns when that has passed, or at once
    /// when the test is over.
    pub(crate) fn work(&self, me: usize, time: Duration) {
        let mut state = self.state();
        if state.over {
            return;
        }
        state.until[me] = Some(self.kernel.now() + time);
        state.working += 1;
        self.tell(&state);
        while state.until[me].is_some() {
            state = self.done[me].wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Waits until every thread of the crew works, or sleeps in a wait with nothing to get up for. How
    /// many of them work.
    #[track_caller]
    pub(crate) fn settle(&self) -> usize {
        let begun = Instant::now();
        loop {
            let mut state = self.state();
            while state.working < state.outside {
                let left = SOON.saturating_sub(begun.elapsed());
                assert!(
                    !left.is_zero(),
                    "a thread neither waits nor works: {state:?} of {:?}",
                    self.kernel
                );
                let woken = self.at_work.wait_timeout(state, left);
                state = woken.unwrap_or_else(PoisonError::into_inner).0;
            }
            let working = state.working;
            drop(state);
            // A thread that works goes on working, since only `pass` ends that. So a thread that is on
            // its way is in neither number, and no thread is in both.
            if working + self.kernel.sleeping() == self.size() {
                return working;
            }
            assert!(begun.elapsed() < SOON, "a wait does not end: {:?}", self.kernel);
            thread::yield_now();
        }
    }

    /// Moves the clock to the next end of a thread's work, but not further than by `most`, and lets
    /// those threads go on whose work is over. How much time has passed.
    pub(crate) fn pass(&self, most: Duration) -> Duration {
        let mut guard = self.state();
        let state = &mut *guard;
        let now = self.kernel.now();
        let next = state.until.iter().flatten().min().map_or(most, |next| *next - now);
        let time = next.min(most);
        self.kernel.advance(time);
        for (until, done) in state.until.iter_mut().zip(&self.done) {
            if until.is_some_and(|until| until <= now + time) {
                *until = None;
                state.working -= 1;
                done.notify_one();
            }
        }
        time
    }

    /// Ends the work of all threads, now and for ever: the test is over.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.over = true;
        state.working = 0;
        state.until.fill(None);
        self.done.iter().for_each(Condvar::notify_one);
    }
}
