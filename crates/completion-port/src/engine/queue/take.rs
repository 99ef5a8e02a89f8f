//! Taking packets from a worker's chain: the common kinds, whose turn needs no check.

use super::Queue;
use crate::engine::context::{Name, name_of};
use crate::engine::worker::{PacketKind, Worker};
use crate::state::queue::{Links, NIL, Node, OP, POSTED, cell_of, is_op};
use crate::state::slot::Slot;
use crate::types::interest::Events;

/// A packet whose turn has come. The caller owns what it names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken<'e> {
    /// The caller owns the key, in its cell, until the token is returned.
    Ready(&'e Slot, Name, Events),
    /// The caller clones the key, then calls `Registry::cloned`.
    Notified(Name, Events),
    /// The caller moves the message out, then calls [`Queue::free_post`].
    Posted(u32),
    /// The operation of this op index has its turn: the caller calls `Operations::turn`.
    Operation(u32),
    /// The caller moves the key out, then calls `Engine::free`.
    Removed(Name),
    /// The caller drops the key, then calls `Engine::free`.
    Gone(Name),
}

impl Queue {
    /// Takes the next packet of `worker`, if it is of the common kind.
    ///
    /// Returns the slot's index; the caller owns the key, in its cell. Otherwise returns a node
    /// whose turn has not come, or `NIL` if none was taken: `Registry::next` continues with it.
    #[allow(clippy::inline_always, reason = "what it returns passes through memory otherwise")]
    #[inline(always)]
    pub(crate) fn next_ready(&self, worker: &Worker) -> Result<(u32, &Slot, Events), Node> {
        let node = worker.first();
        if node & POSTED != 0 {
            // It is a message, or there is none.
            return Err(NIL);
        }
        let slot = self.slot(node);
        if !worker.takes(node, &slot.link) {
            return Err(NIL);
        }
        let events = slot.take_plainly().ok_or(node)?;
        worker.count(PacketKind::Ready);
        Ok((node, slot, events))
    }

    /// Like [`Queue::next_ready`], for a registration that keeps its key.
    ///
    /// `clone` clones the key of the slot; the calling thread owns the node meanwhile. Otherwise
    /// returns a node whose turn has not come, and the clone if there is one: `Registry::next_by`
    /// continues with it.
    #[inline]
    pub(crate) fn next_ready_cloned<K>(
        &self,
        worker: &Worker,
        clone: impl FnOnce(u32) -> K,
    ) -> Result<(Name, Events, K), (Node, Option<K>)> {
        let node = worker.first();
        if node & POSTED != 0 {
            // It is a message, or there is none.
            return Err((NIL, None));
        }
        let slot = self.slot(node);
        if !worker.takes(node, &slot.link) {
            return Err((NIL, None));
        }
        let key = clone(node);
        if self.forked() {
            // The clone has forked, and this is the child.
            return Err((node, Some(key)));
        }
        match slot.take_and_park_plainly() {
            Some((generation, events)) => {
                worker.count(PacketKind::Ready);
                Ok((name_of(node, generation), events, key))
            }
            None => Err((node, Some(key))),
        }
    }

    /// Takes the next packet in the worker's list if it is a message or an operation. These need no turn of a slot.
    ///
    /// `None`: it is another packet, or the thread has something else to see to, and `Registry::next` takes it.
    #[inline]
    pub(crate) fn next_without_turn(&self, worker: &Worker) -> Option<Taken<'_>> {
        let node = worker.first();
        if is_op(node) {
            let op_index = node & !OP;
            let is_taken = worker.takes(node, &self.nodes().op_at(op_index).link);
            return is_taken.then_some(Taken::Operation(op_index));
        }
        if node & OP != POSTED {
            // It is a slot, or there is none.
            return None;
        }
        let cell = cell_of(node);
        if !worker.takes(node, self.nodes().post(cell)) {
            return None;
        }
        worker.count_message(node);
        Some(Taken::Posted(cell))
    }

    /// Counts the turn of an operation: it `is_done` and makes a packet, or it continues.
    ///
    /// The thread of `worker` calls this.
    #[inline]
    pub(crate) fn count_operation(&self, worker: &Worker, is_done: bool) {
        if is_done {
            worker.count(PacketKind::Done);
        } else {
            self.uncount_delay(worker);
        }
    }

    /// Takes the first node of the worker's chain.
    #[inline]
    pub(in crate::engine) fn next_node(&self, worker: &Worker) -> Option<Node> {
        if worker.has_attention() {
            return self.next_node_attentively(worker);
        }
        self.take_first(worker)
    }

    /// Like [`Queue::next_node`], for a thread that has something to handle first.
    #[cold]
    #[inline(never)]
    fn next_node_attentively(&self, worker: &Worker) -> Option<Node> {
        let is_measured = worker.is_measured();
        if worker.is_presumed_blocked() {
            self.mark_awake(worker);
        }
        let node = self.take_first(worker)?;
        if is_measured {
            self.count_delay(worker, node);
        }
        Some(node)
    }

    #[inline]
    pub(super) fn take_first(&self, worker: &Worker) -> Option<Node> {
        loop {
            let node = match worker.chain() {
                NIL => return None,
                node => node,
            };
            if worker.takes(node, self.nodes().link(node)) {
                return Some(node);
            }
        }
    }

    /// Notes that the thread of `worker`, which was presumed blocked, is awake.
    #[cold]
    pub(in crate::engine) fn mark_awake(&self, worker: &Worker) {
        if self.forked() {
            return;
        }
        let mut hub = self.lock();
        worker.presume_blocked(false);
        if !worker.has_left() {
            hub.schedule().unblock(worker.number());
        }
    }

    /// Frees the cell of a message that the thread of `worker` has moved out.
    ///
    /// That thread calls this. The cell is freed when the thread next holds the lock.
    #[inline]
    pub(crate) fn free_post(&self, worker: &Worker, cell: u32) {
        worker.freed_cells().push(cell, self.nodes().post(cell));
    }
}
