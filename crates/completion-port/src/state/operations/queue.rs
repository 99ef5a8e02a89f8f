//! The operations of one direction of a registration: the waiting ones, and the active one.

use std::sync::Arc;

use super::edge_notes::EdgeNotes;
use super::list::OpList;
use super::op::{OpTable, Phase};
use crate::state::moment::Moment;
use crate::state::queue::{MOST_OPS, NIL, Node, OP};

/// Takes the place of the active operation while a thread makes a direct attempt, see
/// [`OpQueues::begin_direct`](super::OpQueues::begin_direct).
pub(super) const CALLER: Node = MOST_OPS | OP;

/// The operations of one direction.
#[derive(Debug)]
pub(super) struct OpQueue {
    waiting: OpList,
    /// The operation that is due, being tried or submitted, or [`CALLER`]; `NIL` if there is none.
    active: Node,
    /// How many edges have concerned the queue, in total and before the current attempt began.
    edges: u32,
    begun: u32,
    /// When to try the first operation again, if it needs something that no edge announces.
    retry: Moment,
    /// A resource that no edge announces became available during the current attempt.
    is_pulled_in: bool,
    /// The name of a task and what it tells about edges. Without effect once the task has ended.
    notes: Option<(u64, Arc<EdgeNotes>)>,
}

impl OpQueue {
    pub(super) const fn new() -> Self {
        Self {
            waiting: OpList::EMPTY,
            active: NIL,
            edges: 0,
            begun: 0,
            retry: Moment::NEVER,
            is_pulled_in: false,
            notes: None,
        }
    }

    /// Returns the active operation, or [`CALLER`]; `NIL` if there is none.
    pub(super) fn active(&self) -> Node {
        self.active
    }

    pub(super) fn waiting(&self) -> &OpList {
        &self.waiting
    }

    pub(super) fn is_empty(&self) -> bool {
        self.active == NIL && self.waiting.is_empty()
    }

    /// Returns the active operation, if there is one.
    pub(super) fn active_op(&self) -> Option<Node> {
        if self.active == NIL || self.active == CALLER { None } else { Some(self.active) }
    }

    /// Returns whether the next operation must be tried although the direction is not known ready.
    /// It may have been tried before, and then finds that it must wait again.
    pub(super) fn begins_unasked(&self, ops: &impl OpTable) -> bool {
        let first = self.waiting.first();
        self.active == NIL && first.is_some_and(|first| ops.op(first).begins_unasked())
    }

    /// Returns whether the first operation waits for an edge rather than for a moment.
    pub(super) fn waits_for_edge(&self) -> bool {
        self.active == NIL && !self.waiting.is_empty() && self.retry == Moment::NEVER
    }

    /// Makes the first waiting operation due, unless another one is active. The caller queues the
    /// node that this returns.
    pub(super) fn next_due(&mut self, ops: &impl OpTable) -> Node {
        if self.active != NIL {
            return NIL;
        }
        let Some(first) = self.waiting.pop(ops) else { return NIL };
        self.begin(first);
        ops.op(first).set(Phase::Due);
        first
    }

    /// Keeps what the task with this name tells about edges.
    pub(super) fn keep_notes(&mut self, task: u64, notes: Arc<EdgeNotes>) {
        self.notes = Some((task, notes));
    }

    /// Returns whether an edge makes the first waiting operation due. Otherwise that is an idle task
    /// with nothing to do, and its notes have the edge.
    pub(super) fn is_tried_at_edge(&self, ops: &impl OpTable) -> bool {
        let Some((task, notes)) = &self.notes else { return true };
        let first = self.waiting.first();
        // Nothing is noted during an attempt: the active task notes the edge itself.
        let is_idle = self.active == NIL
            && first.is_some_and(|first| ops.op(first).name(first & !OP) == *task);
        !is_idle || notes.is_tried_at_edge()
    }

    /// Makes `node`, an operation or [`CALLER`], the active one.
    pub(super) fn begin(&mut self, node: Node) {
        self.active = node;
        self.begun = self.edges;
        self.retry = Moment::NEVER;
        self.is_pulled_in = false;
    }

    /// Makes the lone operation `node`, which was tried, the active one.
    pub(super) fn adopt(&mut self, node: Node, has_new_edge: bool) {
        (self.active, self.retry) = (node, Moment::NEVER);
        self.begun = self.edges.wrapping_sub(u32::from(has_new_edge));
    }

    /// Begins another attempt: edges so far are no longer new.
    pub(super) fn begin_again(&mut self) {
        self.begun = self.edges;
    }

    /// Returns whether no edge has arrived since the attempt began.
    pub(super) fn is_newest(&self) -> bool {
        self.edges == self.begun
    }

    /// Counts an edge that concerns the queue.
    pub(super) fn note_edge(&mut self) {
        self.edges = self.edges.wrapping_add(1);
    }

    /// Removes the active operation from the queue.
    pub(super) fn clear(&mut self) {
        self.active = NIL;
    }

    /// Appends an operation.
    pub(super) fn enter(&mut self, ops: &impl OpTable, node: Node) {
        if self.is_empty() {
            // A previous operation, which was cancelled, may have left this.
            self.retry = Moment::NEVER;
        }
        self.waiting.enter(ops, node);
    }

    /// Moves the active operation, `node`, to the front of the waiting ones. It waits for an edge,
    /// but at most until `retry`.
    pub(super) fn wait_first(&mut self, ops: &impl OpTable, node: Node, retry: Moment) {
        self.clear();
        self.retry = retry;
        ops.op(node).set(Phase::Waiting);
        self.waiting.enter_first(ops, node);
    }

    /// Removes a waiting operation.
    pub(super) fn leave(&mut self, ops: &impl OpTable, node: Node) {
        self.waiting.leave(ops, node);
    }

    /// Notes that a resource that no edge announces is available at `now`. Returns true if the
    /// first waiting operation should be tried then. An attempt in progress is repeated if it finds
    /// that the resource is missing.
    pub(super) fn pull_in(&mut self, now: Moment) -> bool {
        self.is_pulled_in = self.active != NIL;
        if self.is_pulled_in || self.waiting.is_empty() {
            return false;
        }
        self.retry = now;
        true
    }

    pub(super) fn is_pulled_in(&self) -> bool {
        self.is_pulled_in
    }

    pub(super) fn forget_pulling_in(&mut self) {
        self.is_pulled_in = false;
    }

    /// Makes the first waiting operation due if its retry is at `now` or earlier, or if it waits
    /// only for its turn. Returns its node or `NIL`, and the time of a later retry. The caller
    /// queues the node.
    pub(super) fn ring(&mut self, ops: &impl OpTable, now: Moment) -> (Node, Moment) {
        let mut due = NIL;
        if self.retry <= now || self.begins_unasked(ops) {
            due = self.next_due(ops);
            self.retry = Moment::NEVER;
        }
        (due, self.retry)
    }
}
