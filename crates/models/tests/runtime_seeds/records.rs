//! The plain model: what happened to each task, and what may happen to it.

use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::turns::fail;

/// How a task ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Completed,
    Panicked,
    /// Its future was dropped before.
    Dropped,
}

/// How the thread of a task sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asleep {
    Announced,
    Unannounced,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Record {
    pub(crate) is_spawned: bool,
    /// Before the end of the runtime began.
    pub(crate) is_early: bool,
    pub(crate) is_polled: bool,
    pub(crate) outcome: Option<Outcome>,
    pub(crate) is_dropped: bool,
    /// A call that aborts it has begun, or has returned.
    pub(crate) abort_begun: bool,
    pub(crate) abort_returned: bool,
    /// It is about to panic.
    pub(crate) panics: bool,
    /// It was spawned or woken, and was not polled since.
    pub(crate) is_woken: bool,
    /// When its timer expires.
    pub(crate) timer: Option<Duration>,
    pub(crate) asleep: Option<Asleep>,
    /// The socket it reads from.
    pub(crate) reads: Option<usize>,
}

/// The records of all tasks. Nothing here is a point, so a thread sees all or nothing of a change.
pub(crate) struct Records {
    list: Mutex<Vec<Record>>,
    notes: Option<Mutex<Vec<String>>>,
}

impl Records {
    pub(crate) fn new(tasks: usize, writes_notes: bool) -> Self {
        Self {
            list: Mutex::new(vec![Record::default(); tasks]),
            notes: writes_notes.then(Mutex::default),
        }
    }

    pub(crate) fn with<T>(&self, task: usize, act: impl FnOnce(&mut Record) -> T) -> T {
        act(&mut self.list.lock().unwrap_or_else(PoisonError::into_inner)[task])
    }

    pub(crate) fn all(&self) -> Vec<Record> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(crate) fn note(&self, text: impl FnOnce() -> String) {
        if let Some(notes) = &self.notes {
            notes.lock().unwrap_or_else(PoisonError::into_inner).push(text());
        }
    }

    pub(crate) fn report(&self) -> String {
        let mut text = String::new();
        if let Some(notes) = &self.notes {
            for note in &*notes.lock().unwrap_or_else(PoisonError::into_inner) {
                let _ = writeln!(text, "  {note}");
            }
        }
        for (task, record) in self.all().iter().enumerate().filter(|(_, record)| record.is_spawned)
        {
            let _ = writeln!(text, "task {task}: {record:?}");
        }
        text
    }

    /// A task's future is about to be polled.
    pub(crate) fn begin_poll(&self, task: usize, is_over: bool) {
        self.note(|| format!("task {task} is polled"));
        let broken = self.with(task, |record| {
            let broken = [
                (record.is_polled, "two threads poll it"),
                (record.outcome.is_some(), "it is polled after its end"),
                (record.abort_returned, "it is polled after an abort has returned"),
                (is_over, "it is polled after the end of its runtime"),
            ];
            record.is_polled = true;
            record.is_woken = false;
            broken.iter().find(|(is_so, _)| *is_so).map(|(_, why)| *why)
        });
        if let Some(why) = broken {
            fail(&format!("task {task}: {why}"));
        }
    }

    /// A task's future has ended.
    pub(crate) fn end(&self, task: usize, outcome: Outcome, may_be_dropped: bool) {
        self.note(|| format!("task {task} ends: {outcome:?}"));
        let broken = self.with(task, |record| {
            let is_allowed = match outcome {
                Outcome::Completed => true,
                Outcome::Panicked => record.panics,
                Outcome::Dropped => record.abort_begun || may_be_dropped,
            };
            let broken = [
                (record.outcome.is_some(), "it ends twice"),
                (record.is_polled != (outcome != Outcome::Dropped), "it is dropped in a poll"),
                (!is_allowed, "it may not end so"),
            ];
            record.outcome = Some(outcome);
            (record.is_polled, record.is_woken) = (false, false);
            (record.timer, record.asleep, record.reads) = (None, None, None);
            broken.iter().find(|(is_so, _)| *is_so).map(|(_, why)| *why)
        });
        if let Some(why) = broken {
            fail(&format!("task {task}: {why}: {outcome:?}"));
        }
    }

    /// The handle of a task has reported its end.
    pub(crate) fn check_reported(&self, task: usize, reported: Outcome) {
        let record = self.with(task, |record| record.clone());
        if record.outcome != Some(reported) || !record.is_dropped {
            fail(&format!("the handle of task {task} reports {reported:?}: {record:?}"));
        }
    }

    /// All tasks have ended.
    pub(crate) fn check_all_ended(&self) {
        for (task, record) in self.all().iter().enumerate() {
            if record.is_spawned && !(record.outcome.is_some() && record.is_dropped) {
                fail(&format!("task {task} has not ended: {record:?}"));
            }
        }
    }
}
