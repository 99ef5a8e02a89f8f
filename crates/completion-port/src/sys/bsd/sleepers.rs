//! Which threads of the process sleep, where the system tells of all of them at once and not of one.
//!
//! To be told costs the more the more threads there are. So it is asked once in a millisecond, and for as long as one
//! look at several threads takes the answer is good for all of them.

use std::time::{Duration, Instant};

/// No longer than between two looks at the same thread, so that an answer is never older than the look before.
const FRESH: Duration = Duration::from_micros(50);

/// The system is not asked again sooner.
const REST: Duration = Duration::from_millis(1);

/// What the system has told last.
pub(in crate::sys) struct SystemSleepers {
    told: Option<Instant>,
    /// Each thread by its number, and whether it sleeps.
    threads: Vec<(u64, bool)>,
}

impl SystemSleepers {
    pub(in crate::sys) const fn new() -> Self {
        Self { told: None, threads: Vec::new() }
    }

    /// Whether a thread sleeps, or has ended. `ask` puts all threads into an empty list; it is false if the system
    /// does not tell, and then nothing is known.
    ///
    /// A thread of which nothing can be known so soon is said to run: it is looked at again.
    pub(in crate::sys) fn asleep(
        &mut self,
        thread: u64,
        now: Instant,
        ask: impl FnOnce(&mut Vec<(u64, bool)>) -> bool,
    ) -> Option<bool> {
        match self.told.map(|told| now.saturating_duration_since(told)) {
            Some(age) if age <= FRESH => {}
            Some(age) if age < REST => return Some(false),
            _ => {
                self.threads.clear();
                self.told = None;
                if !ask(&mut self.threads) {
                    return None;
                }
                self.told = Some(now);
            }
        }
        let found = self.threads.iter().find(|(number, _)| *number == thread);
        Some(found.is_none_or(|(_, asleep)| *asleep))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_asked_once_in_a_millisecond_and_its_answer_is_good_for_one_look() {
        let mut sleepers = SystemSleepers::new();
        let begin = Instant::now();
        let at = |micros| begin + Duration::from_micros(micros);
        let mut asked = 0;
        let mut look = |thread, micros, is_asleep: bool| {
            sleepers.asleep(thread, at(micros), |threads| {
                assert!(threads.is_empty());
                asked += 1;
                threads.extend([(1, is_asleep), (2, !is_asleep)]);
                true
            })
        };
        assert_eq!(look(1, 0, true), Some(true));
        assert_eq!(look(2, 20, false), Some(false));
        // The answer is too old to be believed, and too new to be asked for again.
        assert_eq!(look(1, 75, false), Some(false));
        assert_eq!(look(1, 999, true), Some(false));
        assert_eq!(look(1, 1000, true), Some(true));
        assert_eq!(look(2, 2000, false), Some(true));
        assert_eq!(asked, 3);
    }

    #[test]
    fn a_thread_that_has_ended_sleeps_and_of_one_that_the_system_hides_nothing_is_known() {
        let mut sleepers = SystemSleepers::new();
        let begin = Instant::now();
        assert_eq!(sleepers.asleep(1, begin, |_| false), None);
        // It is asked again at once, since nothing was told.
        let told = |threads: &mut Vec<_>| {
            threads.push((2, false));
            true
        };
        assert_eq!(sleepers.asleep(1, begin, told), Some(true));
        assert_eq!(sleepers.asleep(2, begin, |_| unreachable!()), Some(false));
    }
}
