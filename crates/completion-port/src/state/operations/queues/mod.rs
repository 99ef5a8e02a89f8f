//! All operations of one registration, and what each event does to them.
//!
//! A step that needs more than its own state returns what that is: a node to be queued, a slot to be looked after. The
//! caller does it after it has given up the lock.

mod direct;
mod end;
mod files;
mod system;

use std::fmt;

use super::list::OpList;
use super::op::{EndReason, Op, OpTable, Phase};
use super::queue::{CALLER, OpQueue};
use crate::state::facts::Facts;
use crate::state::moment::Moment;
use crate::state::queue::{NIL, Node, NodeList, OP};
use crate::state::slot::{Slot, SlotStep};
use crate::types::interest::Direction;

/// What an attempt has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// The operation has come to its end. `dry`: it has taken what was there.
    Done { dry: bool },
    /// It would have to wait for an edge.
    Blocked,
    /// It is to be tried again at this moment, or at an edge before.
    OutOfResources(Moment),
}

/// What becomes of an operation that was to be tried, or was tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// It is to be tried, by the caller.
    Try,
    /// It waits.
    Waits,
    /// It has ended; the caller takes its packet, or queues its node.
    Ends(EndReason),
}

/// What a change leaves to be done besides.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct FollowUp {
    /// This operation is to be tried next: its node is to be queued. `NIL`: none.
    pub(crate) due: Node,
    /// What the slot asks for.
    pub(crate) next: SlotStep,
}

impl FollowUp {
    const NONE: Self = Self { due: NIL, next: SlotStep::Nothing };
}

/// The operations of one registration.
pub(crate) struct OpQueues {
    queues: [OpQueue; 2],
    /// Operations on files that have not ended.
    files: OpList,
    /// Flights whose packets have not been taken.
    in_flight: u32,
    /// The registration is shared: operations are started by its name, and any number of them are in flight.
    pub(crate) is_shared: bool,
}

impl fmt::Debug for OpQueues {
    /// For each direction how many wait, and the node of the one that is due or being tried; and how many have packets
    /// to come in all.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (queue, name) in self.queues.iter().zip(["in", "out"]) {
            write!(f, "{name} {} waiting", queue.waiting().len())?;
            match queue.active() {
                NIL => {}
                CALLER => f.write_str(" a call active")?,
                active => write!(f, " {} active", active & !OP)?,
            }
            f.write_str(", ")?;
        }
        if !self.files.is_empty() {
            write!(f, "{} on files, ", self.files.len())?;
        }
        write!(f, "{} aloft", self.in_flight)
    }
}

impl Default for OpQueues {
    fn default() -> Self {
        let queues = [OpQueue::new(), OpQueue::new()];
        Self { queues, files: OpList::EMPTY, in_flight: 0, is_shared: false }
    }
}

impl OpQueues {
    pub(super) fn queue(&mut self, direction: Direction) -> &mut OpQueue {
        &mut self.queues[direction as usize]
    }

    /// The directions in which operations wait for an edge. Where the first one waits for some time to pass, an edge
    /// would have it tried for nothing, and a one-shot reactor would bring one at once, again and again.
    pub(crate) fn blocked(&self) -> Facts {
        let mut blocked = Facts::NONE;
        for direction in Direction::BOTH {
            if self.queues[direction as usize].waits_for_edge() {
                blocked |= direction.facts();
            }
        }
        blocked
    }

    pub(crate) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// The packet of one more operation is to be taken.
    pub(super) fn count_one_more(&mut self) {
        self.in_flight += 1;
    }

    /// The slot is a new registration.
    pub(crate) fn begin(&mut self, is_shared: bool) {
        debug_assert!(self.in_flight == 0, "a slot is given up when nothing is in flight");
        *self = Self { is_shared, ..Self::default() };
    }

    /// The operation `node` is in flight. True if the caller is to try it: nothing else of its direction is in
    /// operation, and that is ready as far as is known.
    pub(crate) fn start(
        &mut self,
        ops: &impl OpTable,
        node: Node,
        slot: u32,
        direction: Direction,
        deadline: Moment,
        is_ready: bool,
    ) -> Step {
        let op = ops.op(node);
        op.set_direction(direction);
        self.begin_op(op, slot, deadline);
        let queue = self.queue(direction);
        if queue.is_empty() && (is_ready || op.begins_unasked()) {
            queue.begin(node);
            op.set(Phase::Tried);
            Step::Try
        } else {
            queue.enter(ops, node);
            op.set(Phase::Waiting);
            Step::Waits
        }
    }

    fn begin_op(&mut self, op: &Op, slot: u32, deadline: Moment) {
        op.place(slot, deadline);
        op.set_reason(EndReason::Done);
        self.in_flight += 1;
    }

    /// An edge concerns the operations of these directions, as the slot has said when it noted the edge. Returns
    /// the operations that are to be tried, and whether no operation of one of these is in flight any more: the
    /// slot is to note the edge again then, which an attempt may have overtaken.
    pub(crate) fn notify_ready(
        &mut self,
        ops: &impl OpTable,
        slot: &Slot,
        flying: Facts,
    ) -> ([Node; 2], bool) {
        let (mut due, mut is_missed) = ([NIL; 2], false);
        for direction in Direction::BOTH {
            if !flying.has(direction.facts()) {
                continue;
            }
            let queue = self.queue(direction);
            if queue.is_empty() {
                is_missed = true;
                continue;
            }
            queue.note_edge();
            if !slot.word().is_known_ready(direction.facts()) {
                // An attempt that ended since the slot noted the edge has found otherwise before.
                slot.know(direction.facts(), true);
            }
            due[direction as usize] = queue.next_due(ops);
        }
        (due, is_missed)
    }

    /// What operations of this direction may have waited for, and no edge tells of, is there at `now`. True if the first
    /// one that waits is to be tried when the operation entry's timer rings. One that is being tried just now is tried once more,
    /// should it have to wait for that.
    pub(crate) fn pull_in(&mut self, direction: Direction, now: Moment) -> bool {
        self.queue(direction).pull_in(now)
    }

    /// The node of an operation has come to a thread.
    pub(crate) fn turn(
        &mut self,
        ops: &impl OpTable,
        slot: &Slot,
        node: Node,
        poll: u32,
    ) -> (Step, FollowUp) {
        let op = ops.op(node);
        match (op.phase(), op.reason()) {
            (Phase::Due, EndReason::Done) => {
                op.set(Phase::Tried);
                (Step::Try, FollowUp::NONE)
            }
            (Phase::Due, reason) => (Step::Ends(reason), self.end_active(ops, slot, node, poll)),
            (_, reason) => (Step::Ends(reason), FollowUp::NONE),
        }
    }

    /// The caller has tried an operation that was started by a token, and takes its packet: it has ended. `dry`: it has
    /// taken what was there.
    pub(crate) fn tried_and_completed(&mut self, op: &Op, slot: &Slot, dry: bool) {
        let direction = op.direction();
        let queue = self.queue(direction);
        queue.clear();
        let is_dry = dry && queue.is_newest();
        self.complete(op);
        slot.complete(if is_dry { direction.facts() } else { Facts::NONE });
    }

    /// The caller has tried an operation.
    pub(crate) fn tried(
        &mut self,
        ops: &impl OpTable,
        slot: &Slot,
        node: Node,
        tried: Tried,
        poll: u32,
    ) -> (Step, FollowUp) {
        let op = ops.op(node);
        let direction = op.direction();
        let queue = self.queue(direction);
        let is_newest = queue.is_newest();
        let reason = op.reason();
        match tried {
            Tried::Done { dry } => {
                if dry && is_newest {
                    slot.know(direction.facts(), false);
                }
                op.set_reason(EndReason::Done);
                (Step::Ends(EndReason::Done), self.end_active(ops, slot, node, poll))
            }
            Tried::Blocked if !is_newest && reason == EndReason::Done => {
                queue.begin_again();
                (Step::Try, FollowUp::NONE)
            }
            Tried::OutOfResources(_) if queue.is_pulled_in() && reason == EndReason::Done => {
                queue.forget_pulling_in();
                (Step::Try, FollowUp::NONE)
            }
            Tried::Blocked | Tried::OutOfResources(_) => {
                if tried == Tried::Blocked && is_newest {
                    slot.know(direction.facts(), false);
                }
                if reason != EndReason::Done {
                    return (Step::Ends(reason), self.end_active(ops, slot, node, poll));
                }
                let retry = if let Tried::OutOfResources(at) = tried { at } else { Moment::NEVER };
                queue.wait_first(ops, node, retry);
                (Step::Waits, FollowUp::NONE)
            }
        }
    }

    /// The operation that was due or tried has ended.
    fn end_active(&mut self, ops: &impl OpTable, slot: &Slot, node: Node, poll: u32) -> FollowUp {
        let op = ops.op(node);
        op.set(Phase::Ended);
        self.clear_active(ops, slot, op.direction(), poll)
    }

    /// The operation that was due or tried has left its operation queue.
    fn clear_active(
        &mut self,
        ops: &impl OpTable,
        slot: &Slot,
        direction: Direction,
        poll: u32,
    ) -> FollowUp {
        self.queue(direction).clear();
        let next = self.drop_ref_if_empty(slot, direction, poll);
        // As at a start: after an end or an error there may be no further edge.
        let is_ready = slot.word().may_be_ready(direction.facts());
        let queue = self.queue(direction);
        let is_due = is_ready || queue.begins_unasked(ops);
        FollowUp { due: if is_due { queue.next_due(ops) } else { NIL }, next }
    }

    /// Flights that have waited were cancelled: those behind them that wait for their turn alone are due. Their nodes are
    /// put at the end of `due`.
    pub(crate) fn begin_unasked(&mut self, ops: &impl OpTable, due: &mut NodeList) {
        for queue in &mut self.queues {
            if queue.begins_unasked(ops) {
                due.push(ops, queue.next_due(ops));
            }
        }
    }

    fn drop_ref_if_empty(&mut self, slot: &Slot, direction: Direction, poll: u32) -> SlotStep {
        if self.queue(direction).is_empty() {
            slot.drop_ref(direction.facts(), poll)
        } else {
            SlotStep::Nothing
        }
    }

    /// The packet of an operation that is being tried, was handed over, or has just ended need not stand in a queue yet: it is
    /// awaited. False if it is none of these, or is awaited already.
    pub(crate) fn await_packet(&mut self, op: &Op) -> bool {
        let is_under_way = matches!(op.phase(), Phase::Tried | Phase::Submitted | Phase::Ended);
        is_under_way && op.start_awaiting_in_place()
    }

    /// The packet of an operation is taken. True if it was the last one.
    pub(crate) fn complete(&mut self, op: &Op) -> bool {
        op.complete();
        self.in_flight -= 1;
        self.in_flight == 0
    }
}
