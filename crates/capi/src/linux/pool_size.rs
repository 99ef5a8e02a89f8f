//! The size of a pool: one thread always waits for work, unless the pool has reached its limit.
//!
//! The port releases as many threads as there are processors, and one more for each thread that blocks. The pool only has to
//! keep a thread waiting. So when the last idle thread takes work, it starts another thread before doing the work. A call
//! that blocks costs a new thread only if no thread is idle. A call that keeps running costs none, because the port releases
//! no other thread meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// Thread counts of a pool.
#[derive(Debug)]
pub(crate) struct PoolSize {
    /// All threads, including those being started.
    threads: AtomicUsize,
    /// Threads waiting for work.
    idle: AtomicUsize,
    /// The maximum.
    most: AtomicUsize,
    /// The number of threads that stay, however long they are idle.
    least: AtomicUsize,
}

impl PoolSize {
    pub(crate) fn new(most: usize) -> Self {
        let (threads, idle) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { threads, idle, most: AtomicUsize::new(most), least: AtomicUsize::new(0) }
    }

    /// Changes the maximum.
    pub(crate) fn limit(&self, most: usize) {
        self.most.store(most, SeqCst);
    }

    /// Makes all current threads stay.
    pub(crate) fn keep(&self) {
        self.least.store(self.threads.load(SeqCst), SeqCst);
    }

    /// Counts a thread that is about to be started, and that is going to wait for work. Returns false if there are enough.
    pub(crate) fn add(&self) -> bool {
        let most = self.most.load(SeqCst);
        let more = |threads| (threads < most).then_some(threads + 1);
        let is_added = self.threads.fetch_update(SeqCst, SeqCst, more).is_ok();
        if is_added {
            self.rest();
        }
        is_added
    }

    /// Whether no thread waits for work or is about to.
    pub(crate) fn is_at_work(&self) -> bool {
        self.idle.load(SeqCst) == 0
    }

    /// Uncounts a thread that has stopped waiting and leaves, or that could not be started.
    pub(crate) fn remove(&self) {
        self.threads.fetch_sub(1, SeqCst);
    }

    /// Records that a thread begins to wait for work.
    pub(crate) fn rest(&self) {
        self.idle.fetch_add(1, SeqCst);
    }

    /// Records that a thread has found work. Returns true if no other thread is waiting.
    pub(crate) fn work(&self) -> bool {
        self.idle.fetch_sub(1, SeqCst) == 1
    }

    /// Called by a thread that has been idle for a long time. Returns whether it must leave. If so, it is no longer counted.
    pub(crate) fn leave(&self) -> bool {
        // The last waiting thread stays: all others may be blocked.
        let is_last = self.idle.fetch_sub(1, SeqCst) == 1;
        let least = self.least.load(SeqCst);
        let fewer = |threads| (!is_last && threads > least).then(|| threads - 1);
        self.threads.fetch_update(SeqCst, SeqCst, fewer).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A pool of `threads` threads waiting for work. `least` of them stay.
    fn pool_size(least: usize, threads: usize, most: usize) -> PoolSize {
        let pool_size = PoolSize::new(most);
        (0..least).for_each(|_| assert!(pool_size.add()));
        pool_size.keep();
        (least..threads).for_each(|_| assert!(pool_size.add()));
        pool_size
    }

    #[test]
    fn the_last_one_to_find_work_starts_another_one_until_there_are_enough() {
        let pool_size = pool_size(2, 2, 4);
        assert!(!pool_size.work());
        for _ in 0..2 {
            assert!(pool_size.work() && pool_size.is_at_work() && pool_size.add());
        }
        assert!(pool_size.work() && !pool_size.add());
        pool_size.limit(5);
        assert!(pool_size.add() && !pool_size.add());
        // The system has refused to start it.
        assert!(pool_size.work());
        pool_size.remove();
        assert!(pool_size.is_at_work() && pool_size.add());
    }

    #[test]
    fn one_that_is_idle_leaves_unless_it_is_the_last_or_one_of_those_that_stay() {
        let pool_size = pool_size(2, 5, 500);
        assert!(pool_size.leave() && pool_size.leave());
        // The two others are blocked, so this is the last waiting thread.
        assert!(!pool_size.work() && !pool_size.work());
        assert!(!pool_size.leave());
        pool_size.rest();
        // The calls of the other two have returned.
        pool_size.rest();
        pool_size.rest();
        assert!(pool_size.leave());
        assert!(!pool_size.leave());
    }
}
