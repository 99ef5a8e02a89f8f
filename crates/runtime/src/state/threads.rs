//! How many threads a pool has, how many of them wait, and waking the manager.

use std::sync::OnceLock;
use std::sync::atomic::Ordering::SeqCst;

use crate::state::ending::Ending;
use crate::sync::{AtomicBool, AtomicUsize, Thread};

/// The counts of a pool's threads.
pub(crate) struct Threads {
    /// The most threads that exist at a time.
    limit: usize,
    /// How many threads stay, however long they have no packets.
    least: usize,
    /// The threads that exist, including those being started.
    existing: AtomicUsize,
    /// The threads that wait at the port or are on their way there.
    idle: AtomicUsize,
    /// The pool starts no more threads.
    is_ending: AtomicBool,
    manager: OnceLock<Thread>,
}

impl Threads {
    pub(crate) fn new(limit: usize, least: usize) -> Self {
        Self {
            limit,
            least,
            existing: AtomicUsize::new(0),
            idle: AtomicUsize::new(0),
            is_ending: AtomicBool::new(false),
            manager: OnceLock::new(),
        }
    }

    pub(crate) fn existing(&self) -> usize {
        self.existing.load(SeqCst)
    }

    pub(crate) fn idle(&self) -> usize {
        self.idle.load(SeqCst)
    }

    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(SeqCst)
    }

    pub(crate) fn is_full(&self) -> bool {
        self.existing() >= self.limit
    }

    /// Names the manager, before any other thread exists.
    pub(crate) fn set_manager(&self, thread: Thread) {
        let _ = self.manager.set(thread);
    }

    /// Notes that a waiting thread leaves with packets. The last one wakes the manager.
    #[inline]
    pub(crate) fn leave_wait(&self) {
        if self.idle.fetch_sub(1, SeqCst) == 1 {
            self.wake_manager();
        }
    }

    /// Notes that a thread waits again.
    #[inline]
    pub(crate) fn come_to_wait(&self) {
        self.idle.fetch_add(1, SeqCst);
    }

    /// Makes the manager look again. If it is about to park, it does not sleep.
    #[cold]
    pub(crate) fn wake_manager(&self) {
        if let Some(thread) = self.manager.get() {
            thread.unpark();
        }
    }

    /// Starts no more threads, and tells the manager.
    pub(crate) fn end(&self) {
        self.is_ending.store(true, SeqCst);
        self.wake_manager();
    }

    /// Counts a thread that is about to be started. Returns false at the limit.
    pub(crate) fn reserve(&self) -> bool {
        let more = |threads| (threads < self.limit).then_some(threads + 1);
        let is_reserved = self.existing.fetch_update(SeqCst, SeqCst, more).is_ok();
        if is_reserved {
            self.come_to_wait();
        }
        is_reserved
    }

    /// Stops counting a thread that could not be started, and wakes a shutdown, which may be waiting
    /// for it. A caller that isn't the manager also wakes the manager.
    pub(crate) fn not_started(&self, ending: &Ending) {
        self.existing.fetch_sub(1, SeqCst);
        self.idle.fetch_sub(1, SeqCst);
        ending.signal();
    }

    /// Stops counting a thread that leaves because the port is closed.
    pub(crate) fn leave(&self) {
        self.existing.fetch_sub(1, SeqCst);
        self.idle.fetch_sub(1, SeqCst);
    }

    /// Returns whether a thread that has had no packets for long may exit. If so, it is no longer
    /// counted.
    pub(crate) fn may_exit(&self) -> bool {
        let fewer = |threads| (threads > self.least).then(|| threads - 1);
        // Another thread keeps waiting: if this was the last one, the manager starts a thread.
        let is_spare = self.idle() > 1;
        let exits = is_spare && self.existing.fetch_update(SeqCst, SeqCst, fewer).is_ok();
        if exits {
            self.leave_wait();
        }
        exits
    }
}
