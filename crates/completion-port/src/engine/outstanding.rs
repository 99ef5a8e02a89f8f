//! What the back end has of operations, and what it has given back: jobs of those on files, transfers of those on sockets.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};

use super::Engine;
use crate::backend::files::{Hold, Job};
use crate::backend::sockets::Transfer;
use crate::memory::arena::Arena;
use crate::state::moment::Moment;
use crate::state::operations::{Lanes, Records, Verdict};
use crate::state::queue::{FLIGHT, Fifo, NIL, Node};
use crate::state::slot::{Next, Slot};
use crate::sync::{Mutex, MutexGuard};
use crate::types::error::Fault;

/// A place for what one thread leaves for another.
#[derive(Default)]
struct Place<T>(Mutex<T>);

impl<T> Place<T> {
    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// See the module's documentation. Nothing is allocated as long as no operation needs it.
pub(super) struct Outstanding {
    /// By the numbers of records: jobs that have come back, and whose packets have not been taken.
    returned: Arena<Place<Option<Job>>>,
    /// The same of transfers.
    brought_back: Arena<Place<Option<Transfer>>>,
    /// By the numbers of slots: the files of registrations whose operations the back end has, or has had.
    holds: Arena<Place<Option<Arc<dyn Hold>>>>,
}

impl Outstanding {
    pub(super) const fn new() -> Self {
        Self { returned: Arena::new(), brought_back: Arena::new(), holds: Arena::new() }
    }

    /// A job has come back, whose flight ends by that.
    pub(super) fn keep(&self, record: u32, job: Job) {
        *self.returned.at(record).lock() = Some(job);
    }

    /// The same for a transfer.
    pub(super) fn keep_transfer(&self, record: u32, transfer: Transfer) {
        *self.brought_back.at(record).lock() = Some(transfer);
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
        let no_memory = Fault { kind: crate::types::error::ErrorKind::OutOfMemory, code: None };
        if !self.outstanding.returned.reserve(record) || !self.outstanding.holds.reserve(index) {
            return Err(no_memory);
        }
        self.backend.prepare()?;
        let mut held = self.outstanding.holds.at(index).lock();
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
        if let Some(place) = self.outstanding.holds.find(index) {
            let held = place.lock().take();
            drop(held);
        }
    }

    /// The job of an operation that has ended, if the back end has had it, and no thread has taken it yet.
    pub(crate) fn take_job(&self, record: u32) -> Option<Job> {
        self.outstanding.returned.find(record).and_then(|place| place.lock().take())
    }

    /// Asks the back end for an operation that is called off. True if it was given back: the flight is to be ended.
    fn recall(&self, node: Node) -> bool {
        let record = node & !FLIGHT;
        let Some(mut job) = self.backend.take_back(self.operation_of(record)) else {
            return false;
        };
        job.is_called_off = true;
        self.outstanding.keep(record, job);
        true
    }

    /// An operation was called off. If the back end has had it, and it has ended by this call, its node is put at the end
    /// of `ended`, and that of the next operation, if it is due by that. Returns what the slot asks for.
    pub(super) fn recall_one(
        &self,
        lanes: &mut Lanes,
        slot: &Slot,
        node: Node,
        verdict: Verdict,
        ended: &mut Fifo,
    ) -> Next {
        if !self.nodes.flight(node).is_handed() {
            return Next::Nothing;
        }
        if lanes.is_active(&self.nodes, node) {
            return self.recall_transfer(lanes, slot, node, ended);
        }
        if self.recall(node) {
            lanes.end_file(&self.nodes, node, verdict);
            ended.push(&self.nodes, node);
        }
        Next::Nothing
    }

    /// There is room for the transfer of this record when it comes back. False if there is no memory.
    pub(crate) fn reserve_transfer(&self, record: u32) -> bool {
        self.outstanding.brought_back.reserve(record)
    }

    /// The name that the operation of this record has as a transfer.
    pub(crate) fn transfer_of(&self, record: u32) -> u64 {
        self.operation_of(record) | u64::from(FLIGHT)
    }

    /// The transfer of an operation that has come back, if the back end has had it, and no thread has taken it yet.
    pub(crate) fn take_transfer(&self, record: u32) -> Option<Transfer> {
        self.outstanding.brought_back.find(record).and_then(|place| place.lock().take())
    }

    /// Asks the back end for the active flight of a lane, which is called off.
    fn recall_transfer(
        &self,
        lanes: &mut Lanes,
        slot: &Slot,
        node: Node,
        ended: &mut Fifo,
    ) -> Next {
        let record = node & !FLIGHT;
        let Some(transfer) = self.backend.recall(self.transfer_of(record)) else {
            return Next::Nothing;
        };
        self.outstanding.keep_transfer(record, Transfer { is_called_off: true, ..transfer });
        let poll = self.current_poll();
        let effects = lanes.end_recalled(&self.nodes, slot, node, poll);
        ended.push(&self.nodes, node);
        if effects.due != NIL {
            ended.push(&self.nodes, effects.due);
        }
        effects.next
    }

    /// The same for those of the lanes that are called off.
    pub(super) fn recall_transfers(
        &self,
        lanes: &mut Lanes,
        slot: &Slot,
        ended: &mut Fifo,
    ) -> Next {
        let mut outcome = Next::Nothing;
        for node in lanes.called_off_at_back_end(&self.nodes) {
            if node == NIL {
                continue;
            }
            let next = self.recall_transfer(lanes, slot, node, ended);
            if next != Next::Nothing {
                outcome = next;
            }
        }
        outcome
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
