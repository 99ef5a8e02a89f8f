//! All operations of one registration, and what each event does to them.
//!
//! A step may require more than a change of this state: a node that must be queued, or a slot that
//! needs attention. It returns that, and the caller does it after it has released the lock.

mod direct;
mod end;
mod files;
mod system;

use std::fmt;
use std::sync::Arc;

use super::edge_notes::EdgeNotes;
use super::list::OpList;
use super::op::{EndReason, Op, OpTable, Phase};
use super::queue::{CALLER, OpQueue};
use crate::state::facts::Facts;
use crate::state::moment::Moment;
use crate::state::queue::{NIL, Node, NodeList, OP};
use crate::state::slot::{Slot, SlotStep};
use crate::types::interest::Direction;

/// The result of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    /// The operation is done. `dry`: it has drained its direction.
    Done { dry: bool },
    /// It would have to wait for an edge.
    Blocked,
    /// It waits for an edge, although its direction may be ready.
    Idle,
    /// It must be tried again at this moment, or at an earlier edge.
    OutOfResources(Moment),
}

/// What happens to an operation next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The caller tries it.
    Try,
    /// It waits.
    Waits,
    /// It has ended: the caller takes its packet or queues its node.
    Ends(EndReason),
}

/// What the caller must do after a change.
#[derive(Clone, Copy, Debug)]
#[must_use]
pub(crate) struct FollowUp {
    /// The operation to be tried next, whose node the caller queues. `NIL` if there is none.
    pub(crate) due: Node,
    /// The slot's next step.
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
    /// How many operations have packets that are not taken yet.
    in_flight: u32,
    /// The registration is shared: any number of operations may be outstanding, and they are
    /// started by its name.
    pub(crate) is_shared: bool,
}

impl fmt::Debug for OpQueues {
    /// Shows, for each direction, how many operations wait and which one is active, and then how
    /// many packets are not taken yet.
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
        write!(f, "{} in flight", self.in_flight)
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

    /// Returns the directions in which operations wait for an edge. An operation that waits for a
    /// moment is not included: an edge would have it tried for nothing, and a one-shot reactor
    /// would report edges again and again.
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

    /// Ends and completes, in one step of the slot, the active operation of this direction, if it is
    /// the registration's only one. `dry`: its attempt has drained the direction. Returns false and
    /// changes nothing if there are others, or if the registration is enabled or ends.
    #[inline]
    fn complete_only(&mut self, slot: &Slot, direction: Direction, dry: bool) -> bool {
        let is_only = self.in_flight == 1;
        let queue = self.queue(direction);
        let is_dry = dry && queue.is_newest();
        // An edge that the slot has noted, and that has not reached this queue yet, finds it empty
        // and is noted again.
        let is_completed = is_only && slot.complete_only(direction.facts(), is_dry);
        if is_completed {
            queue.clear();
            self.in_flight = 0;
        }
        is_completed
    }

    /// Does what [`OpQueues::tried`] and [`OpQueues::complete`] do for a task that is done, if it is
    /// the registration's only operation. Returns false and changes nothing otherwise.
    #[inline]
    pub(crate) fn complete_only_task(&mut self, op: &Op, slot: &Slot, dry: bool) -> bool {
        let is_completed = self.complete_only(slot, op.direction(), dry);
        if is_completed {
            op.complete();
        }
        is_completed
    }

    /// Counts another operation whose packet is not taken yet.
    pub(super) fn count_one_more(&mut self) {
        self.in_flight += 1;
    }

    /// Resets the state for a new registration.
    pub(crate) fn begin(&mut self, is_shared: bool) {
        debug_assert!(self.in_flight == 0, "a slot is given up when nothing is in flight");
        *self = Self { is_shared, ..Self::default() };
    }

    /// Starts the operation `node`. The caller must try it if it is the only one of its direction,
    /// and that is believed ready or the operation need not wait for an edge.
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

    /// Applies an edge to the operations of the directions in `in_flight`, which the slot returned
    /// when it noted the edge. Returns the operations to try, and whether one of these directions
    /// no longer has any operations. In that case, the caller must note the edge in the slot again,
    /// because an attempt may have ended in between.
    pub(crate) fn notify_ready(
        &mut self,
        ops: &impl OpTable,
        slot: &Slot,
        in_flight: Facts,
    ) -> ([Node; 2], bool) {
        let (mut due, mut is_missed) = ([NIL; 2], false);
        for direction in Direction::BOTH {
            if !in_flight.has(direction.facts()) {
                continue;
            }
            let queue = self.queue(direction);
            if queue.is_empty() {
                is_missed = true;
                continue;
            }
            queue.note_edge();
            if !slot.word().is_known_ready(direction.facts()) {
                // An attempt that ended after the slot noted the edge has cleared this, although
                // what it found is older than the edge.
                slot.know(direction.facts(), true);
            }
            // An end or an error is always for the operation to see.
            if !slot.word().is_plain() || queue.is_tried_at_edge(ops) {
                due[direction as usize] = queue.next_due(ops);
            }
        }
        (due, is_missed)
    }

    /// Keeps what the task with this name tells about edges of its direction.
    pub(crate) fn keep_notes(&mut self, direction: Direction, task: u64, notes: Arc<EdgeNotes>) {
        self.queue(direction).keep_notes(task, notes);
    }

    /// Notes that a resource that no edge announces is available at `now`. Returns true if the
    /// first waiting operation of this direction should be tried when the entry's timer expires. An
    /// attempt in progress is repeated if it finds that the resource is missing.
    pub(crate) fn pull_in(&mut self, direction: Direction, now: Moment) -> bool {
        self.queue(direction).pull_in(now)
    }

    /// Decides what the calling thread does with an operation whose node it has taken.
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

    /// Ends an operation started by a token that the caller has tried and whose packet it takes.
    /// `dry`: the operation has drained its direction.
    pub(crate) fn tried_and_completed(&mut self, op: &Op, slot: &Slot, dry: bool) {
        let direction = op.direction();
        let queue = self.queue(direction);
        queue.clear();
        let is_dry = dry && queue.is_newest();
        self.complete(op);
        slot.complete(if is_dry { direction.facts() } else { Facts::NONE });
    }

    /// Short path of [`OpQueues::tried`] if the operation waits for the next edge. Returns false and
    /// changes nothing in any other case.
    #[inline]
    pub(crate) fn waits_again(
        &mut self,
        ops: &impl OpTable,
        slot: &Slot,
        node: Node,
        tried: Tried,
    ) -> bool {
        let op = ops.op(node);
        let direction = op.direction();
        let queue = self.queue(direction);
        let waits = matches!(tried, Tried::Blocked | Tried::Idle)
            && queue.is_newest()
            && !queue.is_pulled_in()
            && op.reason() == EndReason::Done;
        if waits {
            if tried == Tried::Blocked {
                slot.know(direction.facts(), false);
            }
            queue.wait_first(ops, node, Moment::NEVER);
        }
        waits
    }

    /// Applies the result of the caller's attempt.
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
            Tried::Blocked | Tried::Idle if !is_newest && reason == EndReason::Done => {
                queue.begin_again();
                (Step::Try, FollowUp::NONE)
            }
            Tried::Idle | Tried::OutOfResources(_)
                if queue.is_pulled_in() && reason == EndReason::Done =>
            {
                queue.forget_pulling_in();
                (Step::Try, FollowUp::NONE)
            }
            Tried::Blocked | Tried::Idle | Tried::OutOfResources(_) => {
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

    /// Ends the active operation.
    fn end_active(&mut self, ops: &impl OpTable, slot: &Slot, node: Node, poll: u32) -> FollowUp {
        let op = ops.op(node);
        op.set(Phase::Ended);
        self.clear_active(ops, slot, op.direction(), poll)
    }

    /// Removes the active operation, which has ended, from its queue.
    fn clear_active(
        &mut self,
        ops: &impl OpTable,
        slot: &Slot,
        direction: Direction,
        poll: u32,
    ) -> FollowUp {
        self.queue(direction).clear();
        let next = self.drop_ref_if_empty(slot, direction, poll);
        // As at a start, an end or an error counts as ready: there may be no further edge.
        let is_ready = slot.word().may_be_ready(direction.facts());
        let queue = self.queue(direction);
        let is_due = is_ready || queue.begins_unasked(ops);
        FollowUp { due: if is_due { queue.next_due(ops) } else { NIL }, next }
    }

    /// Makes operations due that wait only for their turn, or whose direction is ready, after those
    /// before them were cancelled. Appends their nodes to `due`.
    pub(crate) fn begin_next(&mut self, ops: &impl OpTable, slot: &Slot, due: &mut NodeList) {
        for direction in Direction::BOTH {
            // As in `clear_active`. The cancelled operation may have been idle.
            let is_ready = slot.word().may_be_ready(direction.facts());
            let queue = self.queue(direction);
            let is_due = is_ready || queue.begins_unasked(ops);
            let next = if is_due { queue.next_due(ops) } else { NIL };
            if next != NIL {
                due.push(ops, next);
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

    /// Marks the packet of an operation as awaited if it may not be in a queue yet, because the
    /// operation is being tried, is submitted or has just ended. Returns false if it is none of
    /// these, or is already awaited.
    pub(crate) fn await_packet(&mut self, op: &Op) -> bool {
        let is_under_way = matches!(op.phase(), Phase::Tried | Phase::Submitted | Phase::Ended);
        is_under_way && op.start_awaiting_in_place()
    }

    /// Completes an operation whose packet is taken. Returns true if it was the last one.
    pub(crate) fn complete(&mut self, op: &Op) -> bool {
        op.complete();
        self.in_flight -= 1;
        self.in_flight == 0
    }
}
