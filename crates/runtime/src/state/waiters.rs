//! The tasks that wait for one direction of a socket.
//!
//! A call reads the state of the edges, tries the system call, and waits only if the state is
//! unchanged, under the lock that an edge takes. If a read has taken everything since the last edge,
//! the next call waits without a system call.

use std::sync::atomic::Ordering::SeqCst;
use std::task::Waker;

use crate::state::{lock, replace_waker, wake_each};
use crate::sync::{AtomicU32, Mutex};

/// The tasks that wait for one direction of a socket.
pub(crate) struct Waiters {
    /// Twice the number of edges, plus 1 once a task has taken everything since the last one. A task
    /// that has seen another value tries again instead of waiting, so no edge is lost between its
    /// attempt and its wait.
    edges: AtomicU32,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// The task that waits by polling: the last one wins, as for any `poll` function.
    polling: Option<Waker>,
    /// A future that waits, with its number. Usually there is one, which needs no memory.
    future: Option<(u64, Waker)>,
    /// The others.
    futures: Vec<(u64, Waker)>,
    next: u64,
}

impl Waiting {
    /// Stores the waker of the future with this number. Returns one to drop without the lock.
    fn enter(&mut self, number: u64, waker: &Waker) -> Option<Waker> {
        match self.future.iter_mut().chain(&mut self.futures).find(|(it, _)| *it == number) {
            Some((_, old)) if old.will_wake(waker) => return None,
            Some((_, old)) => return Some(std::mem::replace(old, waker.clone())),
            None => {}
        }
        let entry = (number, waker.clone());
        match &mut self.future {
            None => self.future = Some(entry),
            Some(_) => self.futures.push(entry),
        }
        None
    }

    /// Takes out the future with this number, if it still waits.
    fn take(&mut self, number: u64) -> Option<(u64, Waker)> {
        if let Some(found) = self.future.take_if(|(it, _)| *it == number) {
            return Some(found);
        }
        let place = self.futures.iter().position(|(it, _)| *it == number)?;
        Some(self.futures.swap_remove(place))
    }
}

impl Default for Waiters {
    fn default() -> Self {
        Self { edges: AtomicU32::new(0), waiting: Mutex::new(Waiting::default()) }
    }
}

impl Waiters {
    /// Returns the state of the edges. A caller reads this before its attempt.
    pub(crate) fn edges(&self) -> u32 {
        self.edges.load(SeqCst)
    }

    /// Whether a task has taken everything since the last edge, so that an attempt would fail.
    pub(crate) fn is_drained(seen: u32) -> bool {
        seen & 1 != 0
    }

    /// Notes that an attempt has taken everything. `seen` is the state of the edges before it; if
    /// there was an edge since, this changes nothing.
    pub(crate) fn note_drained(&self, seen: u32) {
        let _ = self.edges.compare_exchange(seen, seen | 1, SeqCst, SeqCst);
    }

    /// Counts an edge, and wakes all tasks.
    pub(crate) fn wake(&self) {
        let (polling, future, futures) = {
            let mut waiting = lock(&self.waiting);
            // In one step: a task must not see the edge counted and the direction still drained.
            let mut edges = self.edges.load(SeqCst);
            while let Err(others) =
                self.edges.compare_exchange(edges, (edges | 1).wrapping_add(1), SeqCst, SeqCst)
            {
                edges = others;
            }
            let futures = std::mem::take(&mut waiting.futures);
            (waiting.polling.take(), waiting.future.take(), futures)
        };
        wake_each(polling);
        wake_each(future.into_iter().chain(futures).map(|(_, waker)| waker));
    }

    /// Waits by polling for the next edge after the state `seen`. Returns false if there was one
    /// already.
    pub(crate) fn poll(&self, seen: u32, waker: &Waker) -> bool {
        let mut waiting = lock(&self.waiting);
        if self.edges.load(SeqCst) != seen {
            return false;
        }
        let old = replace_waker(&mut waiting.polling, waker);
        drop(waiting);
        drop(old);
        true
    }

    /// Returns a place for a future that may wait.
    pub(crate) fn place(&self) -> Place<'_> {
        Place { waiters: self, number: None }
    }
}

/// A future's place among those that wait for a direction. Dropped, it waits no more.
pub(crate) struct Place<'s> {
    waiters: &'s Waiters,
    number: Option<u64>,
}

impl Place<'_> {
    /// Waits for the next edge after the state `seen`. Returns false if there was one already.
    pub(crate) fn wait(&mut self, seen: u32, waker: &Waker) -> bool {
        let mut waiting = lock(&self.waiters.waiting);
        if self.waiters.edges.load(SeqCst) != seen {
            return false;
        }
        let number = *self.number.get_or_insert_with(|| {
            waiting.next += 1;
            waiting.next
        });
        let old = waiting.enter(number, waker);
        drop(waiting);
        drop(old);
        true
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        if let Some(number) = self.number {
            let waker = lock(&self.waiters.waiting).take(number);
            drop(waker);
        }
    }
}
