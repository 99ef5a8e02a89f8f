//! How many threads a pool has: one always waits for work, unless there are as many as there may be.
//!
//! The port releases as many threads as there are processors, and one more for each that blocks. The pool only has to keep a
//! thread waiting. The last idle thread that takes work therefore starts another one before it does the work. A call that
//! blocks costs a new thread only if no thread is idle. A call that runs costs none: the port releases no other thread
//! meanwhile.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

/// The counts of a pool's threads.
#[derive(Debug)]
pub(crate) struct Crew {
    /// All, those that are just being started among them.
    threads: AtomicUsize,
    /// Those that wait for work.
    idle: AtomicUsize,
    /// How many there may be.
    most: AtomicUsize,
    /// How many stay, however long they are idle.
    least: AtomicUsize,
}

impl Crew {
    pub(crate) fn new(most: usize) -> Self {
        let (threads, idle) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { threads, idle, most: AtomicUsize::new(most), least: AtomicUsize::new(0) }
    }

    /// Changes how many there may be.
    pub(crate) fn limit(&self, most: usize) {
        self.most.store(most, SeqCst);
    }

    /// Those that there are stay.
    pub(crate) fn keep(&self) {
        self.least.store(self.threads.load(SeqCst), SeqCst);
    }

    /// A thread is about to be started. False if there are enough.
    pub(crate) fn add(&self) -> bool {
        let most = self.most.load(SeqCst);
        let more = |threads| (threads < most).then_some(threads + 1);
        self.threads.fetch_update(SeqCst, SeqCst, more).is_ok()
    }

    /// It was not started, or has left.
    pub(crate) fn remove(&self) {
        self.threads.fetch_sub(1, SeqCst);
    }

    /// A thread begins to wait for work.
    pub(crate) fn rest(&self) {
        self.idle.fetch_add(1, SeqCst);
    }

    /// It has found work. True if none waits any more.
    pub(crate) fn work(&self) -> bool {
        self.idle.fetch_sub(1, SeqCst) == 1
    }

    /// It has found none for a long time. Whether it leaves: then it is not counted any more.
    pub(crate) fn leave(&self) -> bool {
        // The last one that waits stays: the others may all be blocked.
        let is_last = self.idle.fetch_sub(1, SeqCst) == 1;
        let least = self.least.load(SeqCst);
        let fewer = |threads| (!is_last && threads > least).then(|| threads - 1);
        self.threads.fetch_update(SeqCst, SeqCst, fewer).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A crew of `threads` that wait for work, of which `least` stay.
    fn crew(least: usize, threads: usize, most: usize) -> Crew {
        let crew = Crew::new(most);
        (0..least).for_each(|_| assert!(crew.add()));
        crew.keep();
        (least..threads).for_each(|_| assert!(crew.add()));
        (0..threads).for_each(|_| crew.rest());
        crew
    }

    #[test]
    fn the_last_one_to_find_work_starts_another_one_until_there_are_enough() {
        let crew = crew(2, 2, 4);
        assert!(!crew.work());
        for _ in 0..2 {
            assert!(crew.work() && crew.add());
            crew.rest();
        }
        assert!(crew.work() && !crew.add());
        crew.limit(5);
        assert!(crew.add() && !crew.add());
        // The system has refused it.
        crew.remove();
        assert!(crew.add());
    }

    #[test]
    fn one_that_is_idle_leaves_unless_it_is_the_last_or_one_of_those_that_stay() {
        let crew = crew(2, 5, 500);
        assert!(crew.leave() && crew.leave());
        // Two others are blocked: this one is the last that waits.
        assert!(!crew.work() && !crew.work());
        assert!(!crew.leave());
        crew.rest();
        // The calls of the other two have returned.
        crew.rest();
        crew.rest();
        assert!(crew.leave());
        assert!(!crew.leave());
    }
}
