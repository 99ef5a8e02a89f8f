//! Handlers that take virtual time, on several threads at the same time.
//!
//! The threads of a [`Crew`] wait on one port of a simulated kernel. A handler that takes some
//! microseconds computes nothing. [`Crew::work`] records until when it works, and blocks its thread
//! until the kernel's clock shows that time. The test's own thread advances the clock:
//!
//! 1. [`Crew::settle`] waits until each thread either works, or sleeps in the simulated kernel with
//!    nothing to wake it. Nothing changes then until the clock does.
//! 2. [`Crew::pass`] advances the clock to the first end of a handler, or by a small step if that
//!    is earlier, and releases the threads whose handlers have ended.
//!
//! So as many handlers run at the same time as the port allows, however few processors there are.
//! The library itself takes no virtual time. Runs are alike, except for the order of threads that
//! continue at the same moment.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, Packet, Port, sim};
use testkit::SOON;

/// Threads that wait on a port and handle packets in virtual time.
pub(crate) struct Crew<'k> {
    kernel: &'k sim::Kernel,
    state: Mutex<State>,
    /// Notified when every thread that has a packet works.
    at_work: Condvar,
    /// Notifies each thread when its work has ended.
    done: Vec<Condvar>,
}

#[derive(Debug)]
struct State {
    /// Until when each thread works, if it does.
    until: Vec<Option<Duration>>,
    /// The number of working threads, and of threads that have a packet, which include the working
    /// ones.
    working: usize,
    outside: usize,
    /// The test has ended, so no thread works any more.
    over: bool,
}

impl<'k> Crew<'k> {
    /// Creates `size` threads, each of which must call [`Crew::serve`]. The kernel must use the
    /// manual clock.
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

    /// Returns the number of threads.
    pub(crate) fn size(&self) -> usize {
        self.done.len()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs thread `me`: passes each packet of `port` to `handle`, with at most `room` packets in a
    /// batch, until the port is closed. For the port, the thread runs whenever it is not in a wait.
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
            // Asking for the next packet counts as a wait too, since all the others may be gone.
            for packet in packets {
                self.state().outside += 1;
                handle(me, packet);
                self.go_to_wait();
            }
        }
    }

    /// The thread has no packet, and asks the port for more.
    fn go_to_wait(&self) {
        let mut state = self.state();
        state.outside -= 1;
        self.tell(&state);
    }

    /// Wakes the thread that advances the clock, if it may continue.
    fn tell(&self, state: &State) {
        if state.working == state.outside {
            self.at_work.notify_all();
        }
    }

    /// The handler of thread `me` takes `time`. Returns when that virtual time has passed, or
    /// immediately when the test has ended.
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

    /// Waits until every thread works, or sleeps in a wait with nothing to wake it. Returns the
    /// number of working threads.
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
            // Only `pass` ends the work of a thread. So a thread in transit is in neither number,
            // and no thread is in both.
            if working + self.kernel.sleeping() == self.size() {
                return working;
            }
            assert!(begun.elapsed() < SOON, "a wait does not end: {:?}", self.kernel);
            thread::yield_now();
        }
    }

    /// Advances the clock to the next end of a handler, at most by `most`, and releases the threads
    /// whose handlers have ended. Returns the time that has passed.
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

    /// Ends the work of all threads for good, because the test has ended.
    pub(crate) fn end(&self) {
        let mut state = self.state();
        state.over = true;
        state.working = 0;
        state.until.fill(None);
        self.done.iter().for_each(Condvar::notify_one);
    }
}
