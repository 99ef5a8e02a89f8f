//! Operations on files, which wait for no edge and for no other operation.

use super::{OpQueues, Step};
use crate::state::moment::Moment;
use crate::state::operations::list::OpList;
use crate::state::operations::op::{EndReason, OpTable, Phase};
use crate::state::queue::{Node, NodeList};

impl OpQueues {
    /// The operation `node` on a file is in flight, and the caller tries it.
    pub(crate) fn start_file(
        &mut self,
        ops: &impl OpTable,
        node: Node,
        slot: u32,
        deadline: Moment,
    ) {
        let op = ops.op(node);
        self.begin_op(op, slot, deadline);
        op.set(Phase::Tried);
        self.files.enter(ops, node);
    }

    /// The operation on a file that the caller has tried is not done, and goes to the back end; unless it has been
    /// cancelled meanwhile.
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

    /// An operation on a file has ended: as it says itself, or cancelled. Its node is the caller's.
    pub(crate) fn end_file(&mut self, ops: &impl OpTable, node: Node, reason: EndReason) {
        self.files.leave(ops, node);
        let op = ops.op(node);
        op.set_reason(reason);
        op.set(Phase::Ended);
    }

    /// The back end has let go of an operation on a file, which was done, or was cancelled before that. Its node is
    /// the caller's.
    pub(crate) fn complete_file(&mut self, ops: &impl OpTable, node: Node, was_cancelled: bool) {
        let reason = match (was_cancelled, ops.op(node).reason()) {
            (false, _) => EndReason::Done,
            // The back end has ended by itself.
            (true, EndReason::Done) => EndReason::Cancelled,
            (true, reason) => reason,
        };
        self.end_file(ops, node, reason);
    }

    /// Cancels all operations on files, or those whose deadlines are over at `now`. Each one that the back end
    /// has is passed to `cancel`, once: true if the back end has given it back, so that it ends. Its node is put at
    /// the end of `ended` then. Returns the first deadline of the others, if those count.
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
            // Before the node may be put elsewhere.
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
