//! Caches which threads of the process sleep, on systems that report all threads at once.
//!
//! The report's cost grows with the number of threads. The system is queried at most once in a
//! millisecond, and one result serves all threads that are checked in one pass.

use std::time::{Duration, Instant};

/// How long a result is used. Not longer than the time between two checks of one thread, so a
/// result is never older than the previous check.
const FRESH: Duration = Duration::from_micros(50);

/// The shortest time between two queries of the system.
const REST: Duration = Duration::from_millis(1);

/// The last result of the system.
pub(in crate::sys) struct SystemSleepers {
    told: Option<Instant>,
    /// The number of each thread, and whether it sleeps.
    threads: Vec<(u64, bool)>,
}

impl SystemSleepers {
    pub(in crate::sys) const fn new() -> Self {
        Self { told: None, threads: Vec::new() }
    }

    /// Returns whether a thread sleeps or has ended.
    ///
    /// `ask` fills an empty list with all threads. If it returns false, the system does not report
    /// them and the result is `None`.
    ///
    /// While the last result is too old to use and too new to be replaced, the thread counts as
    /// running. It is checked again later.
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
        // The result is too old to use and too new to be replaced.
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
        // The system is queried again immediately, since it reported nothing.
        let told = |threads: &mut Vec<_>| {
            threads.push((2, false));
            true
        };
        assert_eq!(sleepers.asleep(1, begin, told), Some(true));
        assert_eq!(sleepers.asleep(2, begin, |_| unreachable!()), Some(false));
    }
}
