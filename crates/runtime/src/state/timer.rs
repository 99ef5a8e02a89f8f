//! Timers, and the tasks that wait for them.

use std::task::Waker;
use std::time::Instant;

use crate::state::{lock, reserve_free, wake_each};
use crate::sync::Mutex;

/// Timers that have been polled, in numbered places, and the tasks that wait for them. Each has a
/// timer of the port, which names it `I`.
///
/// One lock guards them. At the end of the runtime the tasks are woken: no timer expires any more.
pub(crate) struct Timers<I>(Mutex<State<I>>);

struct State<I> {
    timers: Vec<Timer<I>>,
    /// The places that nobody uses. A timer of the port that is still set for one is about to be
    /// cancelled, and has a former generation.
    free: Vec<usize>,
    /// The place that was given up last, if its timer of the port was still set. It stays set: a
    /// program that sets timeouts and cancels them, one after the other, calls the port only once.
    spare: Option<usize>,
    /// The runtime has ended.
    is_over: bool,
}

struct Timer<I> {
    /// When the future completes.
    deadline: Instant,
    /// The port's timer, unless it has expired, and when it does: at the deadline or before.
    set: Option<(Instant, I)>,
    /// Which timer of the port is the current one of this place. The message of any other has no
    /// effect.
    generation: u32,
    waker: Option<Waker>,
}

impl<I> Default for Timers<I> {
    fn default() -> Self {
        let (timers, free) = (Vec::new(), Vec::new());
        Self(Mutex::new(State { timers, free, spare: None, is_over: false }))
    }
}

impl<I> State<I> {
    /// Takes a place for a timer with this deadline. The spare one will do if it expires before that,
    /// and after `now`: otherwise its message is under way.
    fn reserve(&mut self, deadline: Instant, now: Instant) -> usize {
        if let Some(spare) = self.spare
            && self.timers[spare].expires_until(deadline)
            && !self.timers[spare].expires_until(now)
        {
            self.spare = None;
            self.timers[spare].deadline = deadline;
            return spare;
        }
        if let Some(place) = self.free.pop() {
            self.timers[place].deadline = deadline;
            return place;
        }
        self.timers.push(Timer { deadline, set: None, generation: 0, waker: None });
        reserve_free(&mut self.free, self.timers.capacity());
        self.timers.len() - 1
    }
}

impl<I> Timer<I> {
    /// Returns whether its timer of the port is set, and expires at this time or before.
    fn expires_until(&self, time: Instant) -> bool {
        self.set.as_ref().is_some_and(|(at, _)| *at <= time)
    }

    /// Sets a timer of the port for the deadline.
    fn arm(&mut self, set: impl FnOnce(Instant, u32) -> Option<I>) {
        self.generation = self.generation.wrapping_add(1);
        // The timer may expire before its name is stored: its handler waits for the lock.
        self.set = set(self.deadline, self.generation).map(|name| (self.deadline, name));
    }

    /// Gives the port's timer up. The caller cancels it; it may have expired already.
    fn disarm(&mut self) -> Option<I> {
        self.generation = self.generation.wrapping_add(1);
        self.set.take().map(|(_, name)| name)
    }
}

impl<I> Timers<I> {
    /// Takes a place for a timer, and waits for its deadline. `None` if no timer can be set, or the
    /// runtime has ended.
    ///
    /// `set` sets a timer of the port for this place and generation.
    pub(crate) fn start(
        &self,
        deadline: Instant,
        now: Instant,
        waker: Waker,
        set: impl FnOnce(Instant, usize, u32) -> Option<I>,
    ) -> Option<usize> {
        // Dropped before the waker, if that is not stored.
        let mut state = lock(&self.0);
        if state.is_over {
            return None;
        }
        let place = state.reserve(deadline, now);
        let timer = &mut state.timers[place];
        if timer.set.is_none() {
            timer.arm(|at, generation| set(at, place, generation));
        }
        if timer.set.is_none() {
            state.free.push(place);
            return None;
        }
        timer.waker = Some(waker);
        Some(place)
    }

    /// Waits for the deadline again. Returns false if no timer can be set, or the runtime has ended.
    pub(crate) fn wait(
        &self,
        place: usize,
        waker: &Waker,
        set: impl FnOnce(Instant, u32) -> Option<I>,
    ) -> bool {
        let mut old = None;
        let mut state = lock(&self.0);
        if state.is_over {
            return false;
        }
        if !state.timers[place].waker.as_ref().is_some_and(|old| old.will_wake(waker)) {
            // Cloning it may run the program's code.
            drop(state);
            let waker = waker.clone();
            state = lock(&self.0);
            old = state.timers[place].waker.replace(waker);
        }
        let timer = &mut state.timers[place];
        if timer.set.is_none() {
            timer.arm(set);
        }
        let is_waiting = timer.set.is_some() && !state.is_over;
        drop(state);
        drop(old);
        is_waiting
    }

    /// Handles the message of the timer that was set as the one of this generation.
    pub(crate) fn expire(
        &self,
        place: usize,
        generation: u32,
        now: Instant,
        set: impl FnOnce(Instant, u32) -> Option<I>,
    ) {
        let waker = {
            let mut state = lock(&self.0);
            let State { timers, free, spare, .. } = &mut *state;
            let timer = &mut timers[place];
            if timer.generation != generation {
                return;
            }
            timer.set = None;
            if *spare == Some(place) {
                *spare = None;
                free.push(place);
                return;
            }
            if now < timer.deadline {
                // The deadline was moved to a later time.
                timer.arm(set);
            }
            if timer.set.is_some() { None } else { timer.waker.take() }
        };
        wake_each(waker);
    }

    /// Moves a deadline. The task that waits is woken at the new one.
    pub(crate) fn reset(
        &self,
        place: usize,
        deadline: Instant,
        cancel: impl FnOnce(I),
        set: impl FnOnce(Instant, u32) -> Option<I>,
    ) {
        let waker = {
            let mut state = lock(&self.0);
            let timer = &mut state.timers[place];
            timer.deadline = deadline;
            if timer.set.is_none() || timer.expires_until(deadline) {
                return;
            }
            if let Some(set) = timer.disarm() {
                cancel(set);
            }
            if timer.waker.is_some() {
                timer.arm(set);
            }
            if timer.set.is_some() { None } else { timer.waker.take() }
        };
        // No timer could be set: the task polls again and finds that out.
        wake_each(waker);
    }

    /// Gives a place up, because nobody waits any more. Returns what the caller cancels, and drops,
    /// without a lock.
    pub(crate) fn abandon(&self, place: usize) -> (Option<I>, Option<Waker>) {
        let mut state = lock(&self.0);
        let timer = &mut state.timers[place];
        let waker = timer.waker.take();
        let given_up = if timer.set.is_some() { state.spare.replace(place) } else { Some(place) };
        let Some(given_up) = given_up else { return (None, waker) };
        state.free.push(given_up);
        (state.timers[given_up].disarm(), waker)
    }

    /// The runtime has ended: wakes the tasks that wait, whose next poll finds that out.
    pub(crate) fn close(&self) {
        let wakers: Vec<Waker> = {
            let mut state = lock(&self.0);
            state.is_over = true;
            state.timers.iter_mut().filter_map(|timer| timer.waker.take()).collect()
        };
        wake_each(wakers);
    }
}
