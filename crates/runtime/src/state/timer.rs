//! A timer, and the task that waits for it.

use std::task::Waker;
use std::time::Instant;

use crate::state::{lock, replace_waker, wake_each};
use crate::sync::Mutex;

/// A timer of the port, which names it `I`, and the task that waits for it.
pub(crate) struct Timer<I>(Mutex<State<I>>);

struct State<I> {
    /// When the future completes. The port's timer may be set for an earlier time.
    deadline: Instant,
    /// The port's timer, unless it has expired.
    set: Option<I>,
    /// Which timer of the port is the current one. The message of any other has no effect.
    generation: u32,
    waker: Option<Waker>,
    /// The runtime has ended.
    is_over: bool,
}

impl<I> State<I> {
    /// Sets a timer of the port for the deadline.
    fn arm(&mut self, set: impl FnOnce(Instant, u32) -> Option<I>) {
        self.generation = self.generation.wrapping_add(1);
        // The timer may expire before its name is stored: its handler waits for the lock.
        self.set = set(self.deadline, self.generation);
    }

    /// Gives the port's timer up. The caller cancels it; it may have expired already.
    fn disarm(&mut self) -> Option<I> {
        self.generation = self.generation.wrapping_add(1);
        self.set.take()
    }
}

impl<I> Timer<I> {
    pub(crate) fn new(deadline: Instant) -> Self {
        let (set, waker) = (None, None);
        Self(Mutex::new(State { deadline, set, generation: 0, waker, is_over: false }))
    }

    /// Handles the message of the timer that was set as the one of this generation.
    pub(crate) fn expire(
        &self,
        generation: u32,
        now: Instant,
        set: impl FnOnce(Instant, u32) -> Option<I>,
    ) {
        let waker = {
            let mut state = lock(&self.0);
            if state.generation != generation {
                return;
            }
            state.set = None;
            if now < state.deadline {
                // The deadline was moved to a later time.
                state.arm(set);
            }
            if state.set.is_some() { None } else { state.waker.take() }
        };
        wake_each(waker);
    }

    /// Waits for the deadline. Returns false if no timer can be set, or the runtime has ended.
    pub(crate) fn wait(&self, waker: &Waker, set: impl FnOnce(Instant, u32) -> Option<I>) -> bool {
        let mut state = lock(&self.0);
        if state.is_over {
            return false;
        }
        let old = replace_waker(&mut state.waker, waker);
        if state.set.is_none() {
            state.arm(set);
        }
        let is_set = state.set.is_some();
        drop(state);
        drop(old);
        is_set
    }

    /// Moves the deadline. The task that waits is woken at the new one.
    pub(crate) fn reset(
        &self,
        deadline: Instant,
        cancel: impl FnOnce(I),
        set: impl FnOnce(Instant, u32) -> Option<I>,
    ) {
        let waker = {
            let mut state = lock(&self.0);
            let is_earlier = deadline < state.deadline;
            state.deadline = deadline;
            if !is_earlier || state.set.is_none() {
                return;
            }
            if let Some(set) = state.disarm() {
                cancel(set);
            }
            if state.waker.is_some() {
                state.arm(set);
            }
            if state.set.is_some() { None } else { state.waker.take() }
        };
        // No timer could be set: the task polls again and finds that out.
        wake_each(waker);
    }

    /// Nobody waits any more. Returns what the caller cancels, and drops, without a lock.
    pub(crate) fn abandon(&self) -> (Option<I>, Option<Waker>) {
        let mut state = lock(&self.0);
        (state.disarm(), state.waker.take())
    }

    /// The runtime has ended: wakes the task that waits, whose next poll finds that out.
    pub(crate) fn close(&self) {
        let waker = {
            let mut state = lock(&self.0);
            state.is_over = true;
            state.waker.take()
        };
        wake_each(waker);
    }
}
