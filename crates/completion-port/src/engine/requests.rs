//! The requests of operations: makes sure that they can be performed, cancels them, and keeps
//! completed ones until their packets are taken.

use std::ops::Deref;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};

use super::registry::Registry;
use crate::backend::files::{FileRef, FileTarget};
use crate::backend::request::{FileRequest, Request, SocketRequest, Target};
use crate::backend::sockets::SocketTarget;
use crate::memory::arena::Arena;
use crate::state::moment::Moment;
use crate::state::operations::{EndReason, OpQueues, OpTable};
use crate::state::queue::{NIL, Node, NodeList, OP};
use crate::state::slot::{Slot, SlotStep};
use crate::sync::{Mutex, MutexGuard};
use crate::types::error::{ErrorKind, Fault};

/// A place where one thread leaves a value for another.
#[derive(Default)]
struct Mailbox<T>(Mutex<T>);

impl<T> Mailbox<T> {
    fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Completed requests whose packets have not been taken, by op index.
struct CompletedRequests<T: Target>(Arena<Mailbox<Option<Request<T>>>>);

impl<T: Target> CompletedRequests<T> {
    /// Makes room for the request of this op index. False if there is no memory.
    fn reserve(&self, op_index: u32) -> bool {
        self.0.reserve(op_index)
    }

    fn keep(&self, op_index: u32, request: Request<T>) {
        *self.0.at(op_index).lock() = Some(request);
    }

    fn take(&self, op_index: u32) -> Option<Request<T>> {
        self.0.find(op_index).and_then(|place| place.lock().take())
    }
}

/// See the module's documentation. Allocates nothing until an operation needs it.
#[repr(C)]
pub(crate) struct Requests {
    registry: Registry,
    files: CompletedRequests<FileTarget>,
    sockets: CompletedRequests<SocketTarget>,
    /// The files of registrations for which requests were made, by slot index.
    file_refs: Arena<Mailbox<Option<Arc<dyn FileRef>>>>,
}

impl Deref for Requests {
    type Target = Registry;

    #[inline]
    fn deref(&self) -> &Registry {
        &self.registry
    }
}

impl Requests {
    pub(super) const fn new(registry: Registry) -> Self {
        Self {
            registry,
            files: CompletedRequests(Arena::new()),
            sockets: CompletedRequests(Arena::new()),
            file_refs: Arena::new(),
        }
    }

    /// Keeps a completed file request. The caller ends its operation afterwards.
    pub(super) fn keep_file(&self, op_index: u32, request: FileRequest) {
        self.files.keep(op_index, request);
    }

    /// Keeps a completed socket request. The caller ends its operation afterwards.
    pub(super) fn keep_socket(&self, op_index: u32, request: SocketRequest) {
        self.sockets.keep(op_index, request);
    }

    /// Whether the slot's descriptor is a file, which no reactor watches.
    pub(crate) fn is_file(&self, index: u32) -> bool {
        self.entry(index).is_some_and(|entry| entry.is_file.load(SeqCst))
    }

    /// Makes sure that the file request of this op index can be performed, and kept on completion.
    pub(crate) fn prepare_file_request(&self, op_index: u32) -> Result<(), Fault> {
        if !self.files.reserve(op_index) {
            return Err(Fault { kind: ErrorKind::OutOfMemory, code: None });
        }
        self.backend().file_requests().prepare()
    }

    /// Returns a reference to the file of a slot, for the operation of `op_index`.
    ///
    /// The operation may become a request. Makes sure that the request can be performed, and kept
    /// when it completes. The caller has a share in the key.
    pub(crate) fn file_ref(&self, index: u32, op_index: u32) -> Result<Arc<dyn FileRef>, Fault> {
        self.prepare_file_request(op_index)?;
        if !self.file_refs.reserve(index) {
            return Err(Fault { kind: ErrorKind::OutOfMemory, code: None });
        }
        let mut kept = self.file_refs.at(index).lock();
        if let Some(file) = &*kept {
            return Ok(Arc::clone(file));
        }
        // Under the lock, so that each registration has a single reference.
        let file = self.backend().file_ref(self.slot(index).descriptor())?;
        *kept = Some(Arc::clone(&file));
        Ok(file)
    }

    /// Drops the file reference of a slot whose registration has ended.
    pub(super) fn drop_file_ref(&self, index: u32) {
        if let Some(place) = self.file_refs.find(index) {
            let file = place.lock().take();
            drop(file);
        }
    }

    /// Takes the completed file request of an operation that has ended.
    ///
    /// `None` if there was none, or if another thread has taken it.
    pub(crate) fn take_completed_file(&self, op_index: u32) -> Option<FileRequest> {
        self.files.take(op_index)
    }

    /// Makes sure that this op index's socket request can be performed, and kept on completion.
    pub(crate) fn prepare_socket_request(&self, op_index: u32) -> bool {
        self.sockets.reserve(op_index)
            && self.backend().socket_requests().is_some_and(|requests| requests.prepare().is_ok())
    }

    /// Returns the id of the socket request of this op index.
    pub(crate) fn socket_request_of(&self, op_index: u32) -> u64 {
        self.operation_of(op_index) | u64::from(OP)
    }

    /// Takes the completed socket request of an operation that has ended.
    ///
    /// `None` if there was none, or if another thread has taken it.
    pub(crate) fn take_completed_socket(&self, op_index: u32) -> Option<SocketRequest> {
        self.sockets.take(op_index)
    }

    /// Cancels the file request of an operation that is being cancelled.
    ///
    /// True if the request has ended: the caller ends the operation.
    fn cancel_file(&self, node: Node) -> bool {
        let op_index = node & !OP;
        let id = self.operation_of(op_index);
        let Some(mut request) = self.backend().file_requests().cancel(id) else { return false };
        request.is_cancelled = true;
        self.keep_file(op_index, request);
        true
    }

    /// Cancels the request of an operation queue's active operation, which is being cancelled.
    fn cancel_socket(
        &self,
        queues: &mut OpQueues,
        slot: &Slot,
        node: Node,
        ended: &mut NodeList,
    ) -> SlotStep {
        let op_index = node & !OP;
        let Some(mut request) = self.cancel_socket_request(op_index) else {
            return SlotStep::Nothing;
        };
        request.is_cancelled = true;
        self.keep_socket(op_index, request);
        let poll = self.current_poll();
        let follow_up = queues.end_cancelled(self.nodes(), slot, node, poll);
        ended.push(self.nodes(), node);
        if follow_up.due != NIL {
            ended.push(self.nodes(), follow_up.due);
        }
        follow_up.next
    }

    /// Cancels the socket request of this op index, if the back end has one.
    pub(super) fn cancel_socket_request(&self, op_index: u32) -> Option<SocketRequest> {
        self.backend().socket_requests()?.cancel(self.socket_request_of(op_index))
    }

    /// Cancels the request, if any, of an operation that is being cancelled.
    ///
    /// Returns what the slot requires. If that ends the operation, appends its node to `ended`, and
    /// the node of the next operation if that is due now.
    pub(super) fn cancel_request(
        &self,
        queues: &mut OpQueues,
        slot: &Slot,
        node: Node,
        reason: EndReason,
        ended: &mut NodeList,
    ) -> SlotStep {
        if !self.nodes().op(node).is_submitted() {
            return SlotStep::Nothing;
        }
        if queues.is_active(self.nodes(), node) {
            return self.cancel_socket(queues, slot, node, ended);
        }
        if self.cancel_file(node) {
            queues.end_file(self.nodes(), node, reason);
            ended.push(self.nodes(), node);
        }
        SlotStep::Nothing
    }

    /// Cancels the socket requests of those operations that were cancelled.
    pub(super) fn cancel_sockets(
        &self,
        queues: &mut OpQueues,
        slot: &Slot,
        ended: &mut NodeList,
    ) -> SlotStep {
        let mut outcome = SlotStep::Nothing;
        for node in queues.cancelled_at_back_end(self.nodes()) {
            if node == NIL {
                continue;
            }
            let next = self.cancel_socket(queues, slot, node, ended);
            if next != SlotStep::Nothing {
                outcome = next;
            }
        }
        outcome
    }

    /// Cancels all file operations of a registration.
    ///
    /// Appends the nodes of those that have ended to `ended`.
    pub(super) fn cancel_files(
        &self,
        queues: &mut OpQueues,
        reason: EndReason,
        ended: &mut NodeList,
    ) {
        queues.cancel_files(self.nodes(), reason, None, |node| self.cancel_file(node), ended);
    }

    /// Cancels the reads of a registration whose descriptor is no file.
    pub(super) fn cancel_reads(&self, queues: &mut OpQueues, ended: &mut NodeList) {
        queues.cancel_reads(self.nodes(), |node| self.cancel_file(node), ended);
    }

    /// Cancels the file operations of a registration whose deadlines have passed at `now`.
    ///
    /// Returns the earliest deadline of the others.
    pub(super) fn cancel_late_files(
        &self,
        queues: &mut OpQueues,
        now: Moment,
        ended: &mut NodeList,
    ) -> Moment {
        let cancel = |node| self.cancel_file(node);
        queues.cancel_files(self.nodes(), EndReason::TimedOut, Some(now), cancel, ended)
    }
}
