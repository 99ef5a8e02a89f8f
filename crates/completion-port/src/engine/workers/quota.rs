//! How many packets a thread should take.

use std::sync::atomic::Ordering::Relaxed;

use super::Workers;
use crate::state::moment::Moment;
use crate::state::schedule::{Absence, Advice, LOOK};
use crate::types::config::BlockDetection;

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
        let mut absences = Vec::new();
        let mut advised = hub.schedule().advise(now, &mut absences);
        if !absences.is_empty() {
            let entry = |absence: &Absence| hub.lists().entries().get(absence.worker).cloned();
            let entries: Vec<_> = absences.iter().map(entry).collect();
            drop(hub);
            let detects = self.detection() != BlockDetection::Announced;
            for (absence, entry) in absences.iter_mut().zip(entries) {
                // Otherwise the thread has just left the port.
                if let Some(entry) = entry {
                    let thread = entry.thread();
                    let asleep = || if detects { thread.asleep() } else { None };
                    absence.judge(now, thread.processor_time(), asleep);
                }
            }
            hub = self.lock();
            advised = hub.schedule().advise(now, &mut absences);
        }
        self.set_advised(advised);
        advised as usize
    }
}
