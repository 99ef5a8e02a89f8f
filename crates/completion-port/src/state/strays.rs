//! Edges of registrations that have ended, and which thread replaces the kernel's sets for them.

/// So many of them, and more than there are registrations, are no longer worth looking at.
const MANY: usize = 1024;

/// What the kernel's sets report of registrations that have ended.
#[derive(Debug)]
pub(crate) struct Strays {
    /// How many there were since the sets were replaced, or could not be.
    count: usize,
    /// A thread replaces the sets.
    is_replacing: bool,
    replacements: u64,
}

impl Strays {
    pub(crate) const fn new() -> Self {
        Self { count: 0, is_replacing: false, replacements: 0 }
    }

    /// A poll has brought so many.
    #[inline]
    pub(crate) fn add(&mut self, count: usize) {
        self.count += count;
    }

    /// Whether most of what the sets report is strays, beside `registrations`.
    #[inline]
    pub(crate) fn are_many(&self, registrations: usize) -> bool {
        self.count > MANY.max(registrations)
    }

    /// Whether a thread replaces the sets. Until it has, no other one sleeps there.
    #[inline]
    pub(crate) fn is_replacing(&self) -> bool {
        self.is_replacing
    }

    /// Whether the thread that asks is to replace the sets: one does, and says when it has.
    #[inline]
    pub(crate) fn begin_replacing(&mut self, registrations: usize) -> bool {
        let begins = !self.is_replacing && self.are_many(registrations);
        self.is_replacing |= begins;
        begins
    }

    /// The thread that replaces the sets has done so, or could not: then that is tried after as many more.
    pub(crate) fn end_replacing(&mut self, is_done: bool) {
        (self.count, self.is_replacing) = (0, false);
        self.replacements += u64::from(is_done);
    }

    /// How often the sets were replaced.
    pub(crate) fn replacements(&self) -> u64 {
        self.replacements
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thread_replaces_the_sets_until_it_has() {
        let mut strays = Strays::new();
        strays.add(MANY);
        assert!(!strays.begin_replacing(0), "they are not many yet");
        strays.add(1);
        assert!(strays.are_many(MANY) && !strays.are_many(MANY + 1));
        assert!(!strays.is_replacing() && strays.begin_replacing(0));
        assert!(strays.is_replacing() && !strays.begin_replacing(0), "another thread does");
        strays.add(MANY + 1);
        assert!(!strays.begin_replacing(0), "it has not ended");

        strays.end_replacing(true);
        assert!(!strays.is_replacing() && !strays.begin_replacing(0), "there are none now");
        strays.add(MANY + 1);
        assert!(strays.begin_replacing(0));
        strays.end_replacing(false);
        assert!(!strays.begin_replacing(0), "it is tried after as many more");
        assert_eq!(strays.replacements(), 1);
    }
}
