//! Threads beyond the concurrency value, while every running thread computes.
//!
//! A thread that computes keeps its seat, so packets may wait for long although threads are idle.
//! If the port *overcommits*, a worker that has run for too long while packets waited becomes an
//! *excess* worker. It no longer counts, and another one may run in its place. When it next waits,
//! it searches like any other, and rests if all seats are taken.

use std::time::Duration;

use super::workers::WorkerNumber;
use super::{Schedule, SchedulePort};
use crate::state::moment::Moment;

/// When the port lets more workers run than the concurrency value allows.
#[derive(Debug, Default)]
pub(super) struct Overcommit {
    /// For how long packets wait before another worker may run; `None`: forever.
    after: Option<Duration>,
    /// Since when packets have waited while no worker came to wait, and how often workers had come
    /// to wait by then.
    waiting: Option<(Moment, u64)>,
}

impl Schedule {
    /// Lets another worker run whenever packets have waited this long and no running worker has
    /// come to wait meanwhile.
    pub(crate) fn overcommit_after(&mut self, time: Duration) {
        self.overcommit.after = Some(time);
    }

    /// At the end of a look that has found no seat free: stops counting a running worker, if
    /// packets have waited for too long.
    pub(super) fn overcommit(&mut self, now: Moment, port: &mut impl SchedulePort) {
        let Some(after) = self.overcommit.after else { return };
        if port.ready() == 0 && port.unchecked() == 0 {
            self.overcommit.waiting = None;
            return;
        }
        let arrivals = self.workers.arrivals();
        match self.overcommit.waiting {
            Some((since, seen)) if seen == arrivals => {
                if now < since + after {
                    return;
                }
            }
            _ => {
                self.overcommit.waiting = Some((now, arrivals));
                return;
            }
        }
        // The next one follows after the same time at the earliest.
        self.overcommit.waiting = Some((now, arrivals));
        if let Some(worker) = self.workers.longest_running() {
            self.exceed(worker, port);
        }
    }

    /// Stops counting `worker`, which runs, until it comes to wait.
    fn exceed(&mut self, worker: WorkerNumber, port: &mut impl SchedulePort) {
        self.workers.exceed(worker);
        self.controller.rest(worker);
        self.take_back(worker, port);
    }
}
