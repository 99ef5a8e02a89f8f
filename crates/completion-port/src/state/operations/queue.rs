//! The operations of one direction of a registration: those that wait, and the one that is active.

use super::list::OpList;
use super::op::{OpTable, Phase};
use crate::state::moment::Moment;
use crate::state::queue::{MOST_OPS, NIL, Node, OP};

/// In place of the node of an active operation: a thread tries work without a record, see [`OpQueues::begin_direct`](super::OpQueues::begin_direct).
pub(super) const CALLER: Node = MOST_OPS | OP;

/// The operations of one direction.
#[derive(Debug)]
pub(super) struct OpQueue {
    waiting: OpList,
    /// The operation that is due or being tried, or [`CALLER`]; `NIL` if there is none.
    active: Node,
    /// How many edges concerned the operation queue, and how many had before the attempt began.
    edges: u32,
    begun: u32,
    /// When the first one is to be tried again, for want of what no edge tells of.
    retry: Moment,
    /// What no edge tells of has come while the active one is tried.
    is_pulled_in: bool,
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
        }
    }

    /// The operation that is due or being tried, or [`CALLER`]; `NIL` if there is none.
    pub(super) fn active(&self) -> Node {
        self.active
    }

    pub(super) fn waiting(&self) -> &OpList {
        &self.waiting
    }

    pub(super) fn is_empty(&self) -> bool {
        self.active == NIL && self.waiting.is_empty()
    }

    /// The operation that is due or being tried, if there is one.
    pub(super) fn active_op(&self) -> Option<Node> {
        if self.active == NIL || self.active == CALLER { None } else { Some(self.active) }
    }

    /// Whether the operation that is to be tried next is to be tried though the direction is not known to be ready. It may
    /// have been tried before: then it finds that it has to wait once more.
    pub(super) fn begins_unasked(&self, ops: &impl OpTable) -> bool {
        let first = self.waiting.first();
        self.active == NIL && first.is_some_and(|first| ops.op(first).begins_unasked())
    }

    /// Whether its first operation waits for an edge, and not for some time to pass.
    pub(super) fn waits_for_edge(&self) -> bool {
        self.active == NIL && !self.waiting.is_empty() && self.retry == Moment::NEVER
    }

    /// The operation that is to be tried next, if none is: its node is to be queued.
    pub(super) fn next_due(&mut self, ops: &impl OpTable) -> Node {
        if self.active != NIL {
            return NIL;
        }
        let Some(first) = self.waiting.pop(ops) else { return NIL };
        self.begin(first);
        ops.op(first).set(Phase::Due);
        first
    }

    /// `node` is to be tried: an operation, or [`CALLER`].
    pub(super) fn begin(&mut self, node: Node) {
        self.active = node;
        self.begun = self.edges;
        self.retry = Moment::NEVER;
        self.is_pulled_in = false;
    }

    /// The lone operation `node`, which was tried, goes on as the active one.
    pub(super) fn adopt(&mut self, node: Node, has_new_edge: bool) {
        (self.active, self.retry) = (node, Moment::NEVER);
        self.begun = self.edges.wrapping_sub(u32::from(has_new_edge));
    }

    /// The active one is tried again: edges so far are no news to it.
    pub(super) fn begin_again(&mut self) {
        self.begun = self.edges;
    }

    /// Whether no edge came since the attempt at the active one began.
    pub(super) fn is_newest(&self) -> bool {
        self.edges == self.begun
    }

    /// An edge concerns the operation queue.
    pub(super) fn note_edge(&mut self) {
        self.edges = self.edges.wrapping_add(1);
    }

    /// The active one has left the operation queue.
    pub(super) fn clear(&mut self) {
        self.active = NIL;
    }

    /// An operation waits behind the others.
    pub(super) fn enter(&mut self, ops: &impl OpTable, node: Node) {
        if self.is_empty() {
            // Of one that has been cancelled.
            self.retry = Moment::NEVER;
        }
        self.waiting.enter(ops, node);
    }

    /// The active one, `node`, waits before the others: for an edge, and no longer than until `retry`.
    pub(super) fn wait_first(&mut self, ops: &impl OpTable, node: Node, retry: Moment) {
        self.clear();
        self.retry = retry;
        ops.op(node).set(Phase::Waiting);
        self.waiting.enter_first(ops, node);
    }

    /// An operation that waits leaves the operation queue.
    pub(super) fn leave(&mut self, ops: &impl OpTable, node: Node) {
        self.waiting.leave(ops, node);
    }

    /// The first one that waits leaves the operation queue.
    pub(super) fn pop(&mut self, ops: &impl OpTable) -> Option<Node> {
        self.waiting.pop(ops)
    }

    /// What no edge tells of is there at `now`. True if the first one that waits is to be tried then. One that is being
    /// tried just now is tried once more, should it have to wait for that.
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

    /// The first one that waits, if its time has come by `now` or it waits for its turn alone: its node is to be queued.
    /// Returns when it is to be tried otherwise as well.
    pub(super) fn ring(&mut self, ops: &impl OpTable, now: Moment) -> (Node, Moment) {
        let mut due = NIL;
        if self.retry <= now || self.begins_unasked(ops) {
            due = self.next_due(ops);
            self.retry = Moment::NEVER;
        }
        (due, self.retry)
    }
}
