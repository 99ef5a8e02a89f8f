//! The life of an operation on a file, from its start to its end.
//!
//! What can be done at once its caller does. What cannot is submitted to the back end, as a request with the
//! buffer in it; from then on the buffer is the back end's, until the request comes back. The packet is one
//! like any other.

use super::OpRef;
use super::Operations;
use crate::backend::files::Issuer;
use crate::backend::request::FileRequest;
use crate::engine::Engine;
use crate::engine::context::{Name, PortPhase, kind_of, name_parts};
use crate::state::facts::Facts;
use crate::state::moment::Moment;
use crate::state::operations::{EndReason, OpEntry, OpQueues, Step};
use crate::state::queue::{Node, OP};
use crate::state::slot::{Drained, Refusal, Slot};
use crate::state::timers::SlotTimer;
use crate::types::error::{Call, Error, ErrorKind};
use crate::types::source::Descriptor;

impl Operations {
    /// Whether reads from the file of this operation entry are tried at once.
    #[inline]
    pub(crate) fn reads_now(&self, entry: &OpEntry, descriptor: Descriptor) -> bool {
        entry.reads_now(|| self.backend().reads_now(descriptor))
    }

    /// The token of the held slot gives the key to the operation of `op_index`, which goes to the back end. If it is
    /// refused the slot is still held, and the request is the caller's again.
    #[allow(clippy::too_many_arguments, reason = "what its caller has looked up")]
    #[allow(clippy::result_large_err, reason = "a refusal gives the request back")]
    pub(crate) fn lend_file(
        &self,
        slot: &Slot,
        index: u32,
        entry: &OpEntry,
        op_index: u32,
        (call, deadline): (Call, Moment),
        drained: Drained,
        request: FileRequest,
    ) -> Result<(), (Error, FileRequest)> {
        let mut queues = entry.lock();
        // As in `start`: either the thread that closes the port sees this operation, or this one sees that.
        if self.phase() != PortPhase::Open {
            return Err((Error::new(call, ErrorKind::Closed), request));
        }
        // It concerns neither direction: nothing of the descriptor is ever ready or not.
        if let Err(refusal) = slot.lend(Facts::NONE, drained) {
            return Err((Error::new(call, kind_of(refusal)), request));
        }
        let node = op_index | OP;
        queues.start_file(self.nodes(), node, index, deadline);
        let step = queues.submit(self.nodes(), node);
        debug_assert_eq!(step, Step::Waits, "nothing has called it off yet");
        entry.timer().move_deadline(deadline);
        // With the lock: a thread that cancels the operation finds it at the back end.
        self.backend().file_requests().submit(request);
        drop(queues);
        self.revalidate_timer(SlotTimer::Operations, index, entry.timer());
        self.backend().file_requests().flush();
        Ok(())
    }

    /// The operation of `op_index` has a share in the key of a registration, and is tried by the caller.
    pub(crate) fn share_file(
        &self,
        name: Name,
        op_index: u32,
        (call, deadline): (Call, Moment),
    ) -> Result<(), Error> {
        let refused = |refusal| Error::new(call, kind_of(refusal));
        let (index, generation) = name_parts(name);
        let mut queues = self.entry_of_operation(index).lock();
        if self.phase() != PortPhase::Open {
            return Err(Error::new(call, ErrorKind::Closed));
        }
        // See `share`.
        if !queues.is_shared {
            return Err(refused(Refusal::NotRegistered));
        }
        self.slot(index).share(generation, Facts::NONE).map_err(refused)?;
        queues.start_file(self.nodes(), op_index | OP, index, deadline);
        Ok(())
    }

    /// The operation on a file that the caller has tried is done. The caller takes the packet.
    pub(crate) fn file_done(&self, op_ref: &OpRef<'_>) {
        let mut queues = op_ref.entry.lock();
        queues.end_file(self.nodes(), op_ref.op_index | OP, EndReason::Done);
    }

    /// An operation on a file, which the caller has tried or the back end has had, ends as `end` says, and its packet is
    /// queued. Both in one hold of the port's lock, with which the thread that closes the port looks for what is in
    /// operation: it finds it there, or its packet in the queue.
    fn end_and_queue(&self, entry: &OpEntry, op_index: u32, end: impl FnOnce(&mut OpQueues, Node)) {
        let node = op_index | OP;
        let mut hub = self.lock();
        end(&mut entry.lock(), node);
        let notice = self.submit_locked(&mut hub, node);
        drop(hub);
        self.notify(notice);
    }

    /// The operation on a file that the caller has tried is done, and its packet is queued.
    pub(crate) fn queue_file_done(&self, op_ref: &OpRef<'_>) {
        self.end_and_queue(op_ref.entry, op_ref.op_index, |queues, node| {
            queues.end_file(self.nodes(), node, EndReason::Done);
        });
    }

    /// The operation on a file that the caller has tried goes to the back end. If it was cancelled meanwhile it has
    /// ended, and the request is the caller's again.
    #[allow(clippy::result_large_err, reason = "a refusal gives the request back")]
    pub(crate) fn submit_file(
        &self,
        op_ref: &OpRef<'_>,
        deadline: Moment,
        request: FileRequest,
    ) -> Result<(), (EndReason, FileRequest)> {
        let mut queues = op_ref.entry.lock();
        if let Step::Ends(reason) = queues.submit(self.nodes(), op_ref.op_index | OP) {
            return Err((reason, request));
        }
        op_ref.entry.timer().pull_in(deadline);
        // See `lend_file`.
        self.backend().file_requests().submit(request);
        drop(queues);
        self.revalidate_timer(SlotTimer::Operations, op_ref.index, op_ref.entry.timer());
        self.backend().file_requests().flush();
        Ok(())
    }
}

impl Issuer for Engine {
    fn complete(&self, request: FileRequest) {
        #[allow(clippy::cast_possible_truncation, reason = "the lower half is the record")]
        let op_index = request.id as u32;
        let was_cancelled = request.is_cancelled;
        // Before the operation ends: the thread that sees that takes it.
        self.outstanding.keep_file(op_index, request);
        self.end_and_queue(self.op_ref(op_index).entry, op_index, |queues, node| {
            queues.complete_file(self.nodes(), node, was_cancelled);
        });
    }
}
