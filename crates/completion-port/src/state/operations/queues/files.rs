//! Operations on files, which wait neither for edges nor for other operations.

use super::{OpQueues, Step};
use crate::state::moment::Moment;
use crate::state::operations::list::OpList;
use crate::state::operations::op::{EndReason, OpTable, Phase};
use crate::state::queue::{Node, NodeList};

impl OpQueues {
    /// Starts the operation `node` on a file. The caller tries it. `is_own_read`: it reads from the
    /// descriptor of its registration.
    pub(crate) fn start_file(
        &mut self,
        ops: &impl OpTable,
        node: Node,
        slot: u32,
        is_own_read: bool,
        deadline: Moment,
    ) {
        let op = ops.op(node);
        op.set_on_file(is_own_read);
        self.begin_op(op, slot, deadline);
        op.set(Phase::Tried);
        self.files.enter(ops, node);
    }

    /// Marks the operation on a file, which the caller has tried but could not finish, as
    /// submitted, unless it was cancelled in the meantime.
    pub(crate) fn submit(&mut self, ops: &impl OpTable, node: Node) -> Step {
        let op = ops.op(node);
        match op.reason() {
            EndReason::Done => {
                op.set(Phase::Submitted);
                Step::Waits
            }
            reason => {
                self.end_file(ops, node, reason);
                Step::Ends(reason)
            }
        }
    }

    /// Ends an operation on a file that is done or cancelled. The caller has its node.
    pub(crate) fn end_file(&mut self, ops: &impl OpTable, node: Node, reason: EndReason) {
        self.files.leave(ops, node);
        let op = ops.op(node);
        op.set_reason(reason);
        op.set(Phase::Ended);
    }

    /// Ends an operation on a file that the back end has completed. `was_cancelled`: the back end
    /// has not done it. The caller has its node.
    pub(crate) fn complete_file(&mut self, ops: &impl OpTable, node: Node, was_cancelled: bool) {
        let reason = match (was_cancelled, ops.op(node).reason()) {
            (false, _) => EndReason::Done,
            // The back end itself has shut down.
            (true, EndReason::Done) => EndReason::Cancelled,
            (true, reason) => reason,
        };
        self.end_file(ops, node, reason);
    }

    /// Cancels the reads on a descriptor that the system watches, as `cancel_files` does.
    pub(crate) fn cancel_reads(
        &mut self,
        ops: &impl OpTable,
        mut cancel: impl FnMut(Node) -> bool,
        ended: &mut NodeList,
    ) {
        let mut next = self.files.first();
        while let Some(node) = next {
            let op = ops.op(node);
            // Read this before the node can move to another list.
            next = OpList::next(ops, node);
            if !op.is_own_read() || op.reason() != EndReason::Done {
                continue;
            }
            op.set_reason(EndReason::Cancelled);
            if op.is_submitted() && cancel(node) {
                self.end_file(ops, node, EndReason::Cancelled);
                ended.push(ops, node);
            }
        }
    }

    /// Cancels all operations on files, or only those whose deadlines have expired at `now`. Calls
    /// `cancel` once for each operation that the back end has. If that returns true, the back end
    /// no longer has the operation, which ends, and its node is appended to `ended`. Returns the
    /// earliest deadline of the others if `now` is given.
    pub(crate) fn cancel_files(
        &mut self,
        ops: &impl OpTable,
        reason: EndReason,
        now: Option<Moment>,
        mut cancel: impl FnMut(Node) -> bool,
        ended: &mut NodeList,
    ) -> Moment {
        let mut first = Moment::NEVER;
        let mut next = self.files.first();
        while let Some(node) = next {
            let op = ops.op(node);
            // Read this before the node can move to another list.
            next = OpList::next(ops, node);
            if op.reason() != EndReason::Done {
                continue;
            }
            if now.is_some_and(|now| !op.is_over(now)) {
                first = first.min(op.deadline());
                continue;
            }
            op.set_reason(reason);
            if op.is_submitted() && cancel(node) {
                self.end_file(ops, node, reason);
                ended.push(ops, node);
            }
        }
        first
    }
}
