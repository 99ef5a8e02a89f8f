//! How many packets a thread should take.

use std::sync::atomic::Ordering::Relaxed;

use super::Workers;
use crate::state::moment::Moment;
use crate::state::schedule::{Advice, LOOK};

impl Workers {
    /// Returns how many packets a thread takes at a time if it cannot return any.
    pub(crate) fn advised_room(&self) -> usize {
        let advised = self.advised();
        if advised == Advice::ALL { usize::MAX } else { self.advise_anew(advised) }
    }

    #[cold]
    fn advise_anew(&self, advised: u32) -> usize {
        if self.forked() {
            return usize::MAX;
        }
        let now = self.backend().now();
        if now < Moment::from_nanoseconds(self.advise_at.load(Relaxed)) {
            return advised as usize;
        }
        self.advise_at.store((now + LOOK).nanoseconds(), Relaxed);
        let mut hub = self.lock();
        let advised = hub.schedule().advise(now);
        self.set_advised(advised);
        advised as usize
    }
}
