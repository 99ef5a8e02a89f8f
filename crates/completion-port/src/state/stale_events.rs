//! Edges of ended registrations, and which thread replaces the kernel's set because of them.

/// If there are more stale events than this, and more than registrations, the set is replaced.
const MANY: usize = 1024;

/// Counts the edges that the kernel's set reports for ended registrations.
#[derive(Debug)]
pub(crate) struct StaleEvents {
    /// Stale events since the set was last replaced, or a replacement last failed.
    count: usize,
    /// A thread is replacing the set.
    is_replacing: bool,
    replacements: u64,
}

impl StaleEvents {
    pub(crate) const fn new() -> Self {
        Self { count: 0, is_replacing: false, replacements: 0 }
    }

    /// Adds the stale events of a poll.
    #[inline]
    pub(crate) fn add(&mut self, count: usize) {
        self.count += count;
    }

    /// Returns whether the set should be replaced: most of its edges are stale, given this many
    /// `registrations`.
    #[inline]
    pub(crate) fn are_many(&self, registrations: usize) -> bool {
        self.count > MANY.max(registrations)
    }

    /// Returns whether a thread is replacing the set. Until it is done, no other thread sleeps
    /// there.
    #[inline]
    pub(crate) fn is_replacing(&self) -> bool {
        self.is_replacing
    }

    /// Returns whether the calling thread must replace the set. It is the only one, and calls
    /// [`StaleEvents::end_replacing`] afterwards.
    #[inline]
    pub(crate) fn begin_replacing(&mut self, registrations: usize) -> bool {
        let begins = !self.is_replacing && self.are_many(registrations);
        self.is_replacing |= begins;
        begins
    }

    /// Ends a replacement of the set. If it failed, a thread tries again after as many further
    /// stale events.
    pub(crate) fn end_replacing(&mut self, is_done: bool) {
        (self.count, self.is_replacing) = (0, false);
        self.replacements += u64::from(is_done);
    }

    /// Returns how often the set was replaced.
    pub(crate) fn replacements(&self) -> u64 {
        self.replacements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_replaces_the_set_until_it_has() {
        let mut stale_events = StaleEvents::new();
        stale_events.add(MANY);
        assert!(!stale_events.begin_replacing(0), "they are not many yet");
        stale_events.add(1);
        assert!(stale_events.are_many(MANY) && !stale_events.are_many(MANY + 1));
        assert!(!stale_events.is_replacing() && stale_events.begin_replacing(0));
        assert!(
            stale_events.is_replacing() && !stale_events.begin_replacing(0),
            "another thread does"
        );
        stale_events.add(MANY + 1);
        assert!(!stale_events.begin_replacing(0), "it has not ended");

        stale_events.end_replacing(true);
        assert!(
            !stale_events.is_replacing() && !stale_events.begin_replacing(0),
            "there are none now"
        );
        stale_events.add(MANY + 1);
        assert!(stale_events.begin_replacing(0));
        stale_events.end_replacing(false);
        assert!(!stale_events.begin_replacing(0), "it is tried after as many more");
        assert_eq!(stale_events.replacements(), 1);
    }
}
