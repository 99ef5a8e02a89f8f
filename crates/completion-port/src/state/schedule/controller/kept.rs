//! How many packets a worker keeps of those that it has returned to the queue itself. Their data is
//! in its processor's cache.

use super::Controller;

/// After this many waits a worker divides what it has returned to the queue itself with the others,
/// if one of them has fewer such packets.
const EVERY: u8 = 16;

impl Controller {
    /// Returns how many of its `own` packets the worker keeps.
    pub(super) fn kept(&mut self, worker: usize, own: usize) -> usize {
        let kept = &mut self.loads[worker].kept;
        if own == 0 {
            *kept = 0;
            return 0;
        }
        *kept = (*kept + 1) % EVERY;
        if *kept == 0 && self.has_more(worker, own) { 0 } else { own }
    }

    /// Returns whether the worker has more packets than another one that is active took last, by
    /// more than a quarter. Otherwise dividing them would only move them to another processor.
    fn has_more(&self, worker: usize, own: usize) -> bool {
        let others = self.loads.iter().enumerate().filter(|(it, _)| *it != worker);
        let took = others.filter(|(_, load)| load.took_at.is_some()).map(|(_, load)| load.took);
        took.min().is_none_or(|took| own > took + took / 4)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::moment::Moment;

    /// Returns how many of `own` packets worker 0 keeps in each of [`EVERY`] waits, while worker 1
    /// took `other` packets last.
    fn kept(own: usize, other: usize) -> Vec<usize> {
        let mut controller = Controller::new(2);
        (0..2).for_each(|worker| controller.worker(worker));
        controller.loads[1].took_at = Some(Moment::ZERO);
        controller.loads[1].took = other;
        (0..EVERY).map(|_| controller.kept(0, own)).collect()
    }

    #[test]
    fn packets_stay_with_a_thread_unless_another_one_has_fewer() {
        assert!(kept(30, 30).iter().chain(&kept(30, 24)).all(|kept| *kept == 30));
        let kept = kept(31, 24);
        assert_eq!(kept.iter().filter(|kept| **kept == 0).count(), 1);
        assert!(kept.iter().all(|kept| [0, 31].contains(kept)));
    }

    #[test]
    fn packets_are_divided_if_no_other_thread_is_active() {
        let mut controller = Controller::new(2);
        (0..2).for_each(|worker| controller.worker(worker));
        assert!((0..EVERY).any(|_| controller.kept(0, 5) == 0));
    }
}
