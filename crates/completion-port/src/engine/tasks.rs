//! What the back end has of the operations on files, and what it has given back.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};

use super::Engine;
use crate::arena::Arena;
use crate::state::facts::Fault;
use crate::state::flights::{Lanes, Records, Verdict};
use crate::state::moment::Moment;
use crate::state::queue::{FLIGHT, Fifo, Node};
use crate::sync::{Mutex, MutexGuard};
use crate::sys::files::{Hold, Task};

/// A place for what one thread leaves for another.
#[derive(Default)]
struct Place<T>(Mutex<T>);

impl<T> Place<T> {
    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module's documentation. Nothing is allocated as long as no operation needs it.
pub(super) struct Tasks {
    /// By the numbers of records: tasks that have come back, and whose packets have not been taken.
    returned: Arena<Place<Option<Task>>>,
    /// By the numbers of slots: the files of registrations whose operations the back end has, or has had.
    holds: Arena<Place<Option<Arc<dyn Hold>>>>,
}

impl Tasks {
    pub(super) const fn new() -> Self {
        Self { returned: Arena::new(), holds: Arena::new() }
    }

    /// A task has come back, whose flight ends by that.
    pub(super) fn keep(&self, record: u32, task: Task) {
        *self.returned.at(record).lock() = Some(task);
    }
}

impl Engine {
    /// Whether the slot's descriptor is a file's, which no reactor watches.
    pub(super) fn is_file(&self, index: u32) -> bool {
        self.desks.find(index).is_some_and(|desk| desk.is_file.load(SeqCst))
    }

    /// Takes hold of the file of a slot for the operation of `record`, which may have to wait; the caller has a share
    /// in the key. Makes sure that the operation can be done, and can come back.
    pub(crate) fn hold_file(&self, index: u32, record: u32) -> Result<Arc<dyn Hold>, Fault> {
        let no_memory = Fault { kind: crate::error::ErrorKind::OutOfMemory, code: None };
        if !self.tasks.returned.reserve(record) || !self.tasks.holds.reserve(index) {
            return Err(no_memory);
        }
        self.backend.prepare()?;
        let mut held = self.tasks.holds.at(index).lock();
        if let Some(held) = &*held {
            return Ok(Arc::clone(held));
        }
        // Under the lock, so that there is one of them for each registration.
        let hold = self.backend.hold(self.slot(index).descriptor())?;
        *held = Some(Arc::clone(&hold));
        Ok(hold)
    }

    /// The registration of a slot has ended: the port has its file no more.
    pub(super) fn let_go(&self, index: u32) {
        if let Some(place) = self.tasks.holds.find(index) {
            let held = place.lock().take();
            drop(held);
        }
    }

    /// The task of an operation that has ended, if the back end has had it, and no thread has taken it yet.
    pub(crate) fn take_task(&self, record: u32) -> Option<Task> {
        self.tasks.returned.find(record).and_then(|place| place.lock().take())
    }

    /// Asks the back end for an operation that is called off. True if it was given back: the flight is to be ended.
    fn recall(&self, node: Node) -> bool {
        let record = node & !FLIGHT;
        let Some(mut task) = self.backend.take_back(self.operation_of(record)) else {
            return false;
        };
        task.is_called_off = true;
        self.tasks.keep(record, task);
        true
    }

    /// An operation on a file was called off. True if it has ended by that, and its node is the caller's.
    pub(super) fn recall_one(&self, lanes: &mut Lanes, node: Node, verdict: Verdict) -> bool {
        let has_ended = self.nodes.flight(node).is_handed() && self.recall(node);
        if has_ended {
            lanes.end_file(&self.nodes, node, verdict);
        }
        has_ended
    }

    /// Calls off all operations on files of a registration. The nodes of those that have ended by that are put at
    /// the end of `ended`.
    pub(super) fn recall_all(&self, lanes: &mut Lanes, verdict: Verdict, ended: &mut Fifo) {
        lanes.call_off_files(&self.nodes, verdict, None, |node| self.recall(node), ended);
    }

    /// Calls off those operations on files of a registration whose deadlines are over at `now`. Returns the first
    /// deadline of the others.
    pub(super) fn recall_late(&self, lanes: &mut Lanes, now: Moment, ended: &mut Fifo) -> Moment {
        let recall = |node| self.recall(node);
        lanes.call_off_files(&self.nodes, Verdict::TimedOut, Some(now), recall, ended)
    }
}
