//! Packets of what a thread was handed: those of the common kinds, without the turns that need a check.

use super::Queue;
use crate::engine::context::{Name, name_of};
use crate::engine::worker::{PacketKind, Worker};
use crate::state::queue::{Links, NIL, Node, POSTED};
use crate::state::slot::Slot;
use crate::types::interest::Events;

/// A packet whose turn has come. The caller owns what it names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken<'e> {
    /// The key is the caller's, in its cell, until it is put back.
    Ready(&'e Slot, Name, Events),
    /// The key is to be cloned, then `Registry::cloned` called.
    Notified(Name, Events),
    /// The message is to be moved out, then [`Queue::free_post`] called.
    Posted(u32),
    /// The operation of this record has its turn: `Operations::turn` is to be called.
    Operation(u32),
    /// The key is to be moved out, then `Engine::free` called.
    Removed(Name),
    /// The key is to be dropped, then `Engine::free` called.
    Gone(Name),
}

impl Queue {
    /// The next packet of those that `worker` has been handed, if it is of the common kind: the number of
    /// its slot, whose key is the caller's in its cell. Otherwise a node whose turn has not come, or `NIL`
    /// if none was taken: `Registry::next` goes on with it.
    #[allow(clippy::inline_always, reason = "what it returns passes through memory otherwise")]
    #[inline(always)]
    pub(crate) fn next_ready(&self, worker: &Worker) -> Result<(u32, &Slot, Events), Node> {
        let node = worker.first();
        if node & POSTED != 0 {
            // A message, or none.
            return Err(NIL);
        }
        let slot = self.slot(node);
        if !worker.takes(node, &slot.link) {
            return Err(NIL);
        }
        let events = slot.hand().ok_or(node)?;
        worker.count(PacketKind::Ready);
        Ok((node, slot, events))
    }

    /// The same as [`Queue::next_ready`], of a registration that keeps its key: `clone` clones the key of the slot, whose
    /// node is the calling thread's meanwhile. Otherwise a node whose turn has not come, and the clone if there is one:
    /// `Registry::next_by` goes on with it.
    #[inline]
    pub(crate) fn next_ready_cloned<K>(
        &self,
        worker: &Worker,
        clone: impl FnOnce(u32) -> K,
    ) -> Result<(Name, Events, K), (Node, Option<K>)> {
        let node = worker.first();
        if node & POSTED != 0 {
            // A message, or none.
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
        match slot.hand_and_park() {
            Some((generation, events)) => {
                worker.count(PacketKind::Ready);
                Ok((name_of(node, generation), events, key))
            }
            None => Err((node, Some(key))),
        }
    }

    /// The thread of `worker`, which calls this, has come to the packet of an operation; or the operation goes on,
    /// and there is none.
    #[inline]
    pub(crate) fn count_operation(&self, worker: &Worker, is_done: bool) {
        if is_done {
            worker.count(PacketKind::Done);
        } else {
            self.uncount_delay(worker);
        }
    }

    /// Takes the first node off what `worker` has been handed.
    #[inline]
    pub(in crate::engine) fn next_node(&self, worker: &Worker) -> Option<Node> {
        if worker.has_attention() {
            return self.next_node_attentively(worker);
        }
        self.take_first(worker)
    }

    /// The same, for a thread that has something to see to.
    #[cold]
    #[inline(never)]
    fn next_node_attentively(&self, worker: &Worker) -> Option<Node> {
        let is_measured = worker.is_measured();
        if worker.is_presumed_blocked() {
            self.awake(worker);
        }
        let node = self.take_first(worker)?;
        if is_measured {
            self.count_delay(worker, node);
        }
        Some(node)
    }

    #[inline]
    fn take_first(&self, worker: &Worker) -> Option<Node> {
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

    /// The thread of `worker` was thought to be blocked, and is not.
    #[cold]
    pub(in crate::engine) fn awake(&self, worker: &Worker) {
        if self.forked() {
            return;
        }
        let mut hub = self.lock();
        worker.presume_blocked(false);
        if !worker.has_left() {
            hub.schedule().unblock(worker.number());
        }
    }

    /// The message of `cell` has been moved out by the thread of `worker`, which calls this. The cell
    /// is given back when that thread next has the lock.
    #[inline]
    pub(crate) fn free_post(&self, worker: &Worker, cell: u32) {
        worker.emptied().push(cell, self.nodes().post(cell));
    }
}
