//! Operations of a finishing port: those that wait for something new of a peer are cancelled, the
//! others end by themselves.

use super::Operations;
use crate::engine::context::{Name, name_parts};
use crate::engine::queue::OpThread;
use crate::state::operations::{EndReason, Op, OpEntry, OpQueues, OpTable};
use crate::state::queue::{Node, NodeList, OP};
use crate::state::slot::Slot;
use crate::sync::MutexGuard;
use crate::types::error::{Call, Error};
use crate::types::interest::Direction;

impl Operations {
    /// Cancels the accepts, connects and receives of a registration, and the reads of what is no
    /// file.
    pub(in crate::engine) fn cancel_inbound(&self, name: Name) {
        let (index, generation) = name_parts(name);
        let Some(entry) = self.entry(index) else { return };
        self.until_queued(|| {
            let (slot, mut ended) = (self.slot(index), NodeList::new());
            let poll = self.current_poll();
            let mut queues = entry.lock();
            let word = slot.word();
            if word.generation() != generation || !word.is_lent() {
                // The registration has ended meanwhile, and the slot may have been reused. Or no
                // operation has the key: a start that lends it from now on sees the phase.
                return;
            }
            if let Some((node, uses)) = self.lone_of(entry)
                && self.waits_inbound(entry, node)
                && self.cancel_alone(slot, node, uses, EndReason::Cancelled)
            {
                ended.push(self.nodes(), node);
            }
            if !self.is_file(index) {
                self.cancel_reads(&mut queues, &mut ended);
            }
            let is_meant = |node| self.waits_inbound(entry, node);
            let reason = EndReason::Cancelled;
            let next = queues.cancel_some(self.nodes(), slot, reason, poll, is_meant, &mut ended);
            let next_of_cancelled = self.cancel_sockets(&mut queues, slot, &mut ended);
            queues.begin_next(self.nodes(), slot, &mut ended);
            drop(queues);
            self.submit_all(ended);
            self.follow(next, index, None);
            self.follow(next_of_cancelled, index, None);
        });
    }

    /// Whether the pending operation of `node` is an accept, a connect or a receive.
    fn waits_inbound(&self, entry: &OpEntry, node: Node) -> bool {
        let op = self.nodes().op(node);
        // A send waits for an edge, unless it is a task.
        let is_connect = entry.has_connect(node & !OP) || op.is_connect();
        op.direction() == Direction::In || is_connect
    }

    /// Whether a lone operation whose start has just found that the port is not open may continue.
    ///
    /// So it does if the port is finishing. If it would wait for something new of a peer, it is
    /// cancelled first: the port began to finish during the start.
    #[cold]
    #[inline(never)]
    pub(super) fn is_lent_finishing(
        &self,
        index: u32,
        op: &Op,
        op_index: u32,
        entry: &OpEntry,
    ) -> bool {
        if !self.is_finishing() {
            return false;
        }
        let node = op_index | OP;
        if self.waits_inbound(entry, node) {
            let queues = entry.lock();
            // The caller has the node, and sees this before it releases it.
            self.cancel_alone(self.slot(index), node, op.uses(), EndReason::Cancelled);
            drop(queues);
        }
        true
    }

    /// Cancels an operation of a finishing port that was started and waits, and queues its packet.
    #[cold]
    #[inline(never)]
    pub(super) fn cancel_started(
        &self,
        mut queues: MutexGuard<'_, OpQueues>,
        slot: &Slot,
        index: u32,
        node: Node,
    ) {
        let (nodes, poll) = (self.nodes(), self.current_poll());
        let follow_up = queues.cancel(nodes, slot, node, EndReason::Cancelled, poll);
        drop(queues);
        if let Some(follow_up) = follow_up {
            self.see_to(follow_up, index, OpThread::ANY);
        }
    }

    /// Returns what [`Operations::own_op`] returns, if the port is finishing.
    #[cold]
    pub(crate) fn own_op_finishing(
        &self,
        index: u32,
        call: Call,
        also: impl FnOnce(u32) -> bool,
    ) -> Result<(u32, &OpEntry), Error> {
        self.check_starts(call)?;
        self.own_op_of(index, call, also)
    }
}
