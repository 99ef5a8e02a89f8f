//! The life of an operation on a file, from its start to its end.
//!
//! The caller does whatever does not block. Everything else is submitted to the back end as a
//! request that contains the buffer. The back end owns the buffer until the request completes. The
//! packet is like that of any other operation.

use super::OpRef;
use super::{Operations, Plan};
use crate::backend::files::Issuer;
use crate::backend::request::FileRequest;
use crate::engine::Engine;
use crate::engine::context::{Name, PortPhase, kind_of, name_parts};
use crate::state::facts::Facts;
use crate::state::moment::Moment;
use crate::state::operations::{EndReason, OpEntry, OpQueues, Step};
use crate::state::queue::{Node, OP};
use crate::state::slot::{Drained, Slot};
use crate::state::timers::SlotTimer;
use crate::types::error::{Error, ErrorKind};
use crate::types::source::Descriptor;

impl Operations {
    /// Whether reads from the file of this entry are tried directly.
    #[inline]
    pub(crate) fn reads_now(&self, entry: &OpEntry, descriptor: Descriptor) -> bool {
        entry.reads_now(|| self.backend().reads_now(descriptor))
    }

    /// Lends the key of a held slot to the operation of `op_index`, and submits it to the back end.
    ///
    /// If this fails, the slot is still held, and the caller gets the request back.
    #[allow(clippy::too_many_arguments, reason = "what its caller has looked up")]
    #[allow(clippy::result_large_err, reason = "a refusal gives the request back")]
    pub(crate) fn lend_file(
        &self,
        slot: &Slot,
        index: u32,
        entry: &OpEntry,
        op_index: u32,
        &plan: &Plan,
        drained: Drained,
        request: FileRequest,
    ) -> Result<(), (Error, FileRequest)> {
        let Plan { call, deadline, .. } = plan;
        let mut queues = entry.lock();
        // The same race as in `start`.
        if !self.phase().allows_starts() {
            return Err((Error::new(call, ErrorKind::Closed), request));
        }
        // It concerns neither direction: a file is never ready or not ready.
        if let Err(refusal) = slot.lend(Facts::NONE, drained) {
            return Err((Error::new(call, kind_of(refusal)), request));
        }
        let node = op_index | OP;
        queues.start_file(self.nodes(), node, index, plan.is_own_read(), deadline);
        let step = queues.submit(self.nodes(), node);
        debug_assert_eq!(step, Step::Waits, "nothing has called it off yet");
        entry.timer().move_deadline(deadline);
        // Under the lock, so that a thread that cancels the operation finds the request at the back
        // end.
        self.backend().file_requests().submit(request);
        drop(queues);
        self.revalidate_timer(SlotTimer::Operations, index, entry.timer());
        self.backend().file_requests().flush();
        Ok(())
    }

    /// Gives the operation of `op_index` a share in the key of a registration.
    ///
    /// The caller tries it next, or ends it.
    pub(crate) fn share_file(&self, name: Name, op_index: u32, plan: &Plan) -> Result<Step, Error> {
        let call = plan.call;
        let refused = |refusal| Error::new(call, kind_of(refusal));
        let (index, generation) = name_parts(name);
        let mut queues = self.entry_of_operation(index).lock();
        let phase = self.phase();
        if !phase.allows_starts() {
            return Err(Error::new(call, ErrorKind::Closed));
        }
        // See `share`.
        let slot = self.slot(index);
        if !queues.is_shared {
            return Err(refused(slot.refuse_to_share(generation)));
        }
        slot.share(generation, Facts::NONE).map_err(refused)?;
        let node = op_index | OP;
        queues.start_file(self.nodes(), node, index, plan.is_own_read(), plan.deadline);
        if phase == PortPhase::Finishing && plan.is_inbound(self.is_file(index)) {
            queues.end_file(self.nodes(), node, EndReason::Cancelled);
            return Ok(Step::Ends(EndReason::Cancelled));
        }
        Ok(Step::Try)
    }

    /// Ends a file operation that the caller has performed. The caller takes the packet.
    pub(crate) fn file_done(&self, op_ref: &OpRef<'_>) {
        let mut queues = op_ref.entry.lock();
        queues.end_file(self.nodes(), op_ref.op_index | OP, EndReason::Done);
    }

    /// Ends a file operation with `end` and queues its packet.
    ///
    /// The caller or the back end has performed the operation. Both steps happen while the port is
    /// locked: the thread that closes the port looks for pending operations under that lock, so it
    /// finds either the operation or its queued packet.
    fn end_and_queue(&self, entry: &OpEntry, op_index: u32, end: impl FnOnce(&mut OpQueues, Node)) {
        let node = op_index | OP;
        let mut hub = self.lock();
        end(&mut entry.lock(), node);
        let notice = self.submit_locked(&mut hub, node);
        drop(hub);
        self.notify(notice);
    }

    /// Ends a file operation that the caller has performed, and queues its packet.
    pub(crate) fn queue_file_done(&self, op_ref: &OpRef<'_>) {
        self.end_and_queue(op_ref.entry, op_ref.op_index, |queues, node| {
            queues.end_file(self.nodes(), node, EndReason::Done);
        });
    }

    /// Submits to the back end a file operation that the caller has tried.
    ///
    /// If it was cancelled meanwhile, it has ended, and the caller gets the request back.
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
        // Before the operation ends: a thread that sees the end takes the request.
        self.keep_file(op_index, request);
        self.end_and_queue(self.op_ref(op_index).entry, op_index, |queues, node| {
            queues.complete_file(self.nodes(), node, was_cancelled);
        });
    }
}
