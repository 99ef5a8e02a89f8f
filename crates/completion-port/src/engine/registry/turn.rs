//! The turn of any node: from a worker's chain to the packets that the caller sees.

use super::Registry;
use crate::engine::context::Name;
use crate::engine::context::{name_of, name_parts};
use crate::engine::queue::Taken;
use crate::engine::worker::{PacketKind, Worker};
use crate::state::queue::{NIL, Node, OP, POSTED, cell_of, is_op};
use crate::state::slot::{NodeTurn, Slot};

impl Registry {
    /// Returns the next packet of `worker`, of any kind.
    ///
    /// `first` is the first node if it was taken already, or `NIL`.
    pub(crate) fn next(&self, worker: &Worker, first: Node) -> Option<Taken<'_>> {
        self.next_by(worker, first, |_, slot| slot.take())
    }

    /// Like [`Registry::next`], but `turn` gives each slot its turn.
    ///
    /// `turn` gets the slot's index and the slot; the calling thread owns the node then.
    pub(crate) fn next_by(
        &self,
        worker: &Worker,
        mut first: Node,
        mut turn: impl FnMut(u32, &Slot) -> NodeTurn,
    ) -> Option<Taken<'_>> {
        loop {
            let node = match std::mem::replace(&mut first, NIL) {
                NIL => self.next_node(worker)?,
                first => first,
            };
            if is_op(node) {
                return Some(Taken::Operation(node & !OP));
            }
            if node & POSTED != 0 {
                worker.count_message(node);
                return Some(Taken::Posted(cell_of(node)));
            }
            let slot = self.slot(node);
            // Read before the turn: after it the slot may be freed at any time.
            let name = name_of(node, slot.word().generation());
            loop {
                match turn(node, slot) {
                    NodeTurn::Held(events) => {
                        worker.count(PacketKind::Ready);
                        return Some(Taken::Ready(slot, name, events));
                    }
                    NodeTurn::Cloned(events) => {
                        worker.count(PacketKind::Notified);
                        return Some(Taken::Notified(name, events));
                    }
                    NodeTurn::Check if self.check_one(node) => {}
                    last => match self.end_turn(worker, name, last) {
                        // The turn has run user code that forked, and this is the child: the nodes
                        // after this one belong to the parent.
                        None if self.forked() => return None,
                        None => break,
                        taken => return taken,
                    },
                }
            }
        }
    }

    /// Ends a turn that reports no events. Returns the caller's packet, if any.
    #[cold]
    fn end_turn(&self, worker: &Worker, name: Name, turn: NodeTurn) -> Option<Taken<'_>> {
        worker.stops_handling(name_parts(name).0);
        match turn {
            NodeTurn::Removed => {
                worker.count(PacketKind::Removed);
                Some(Taken::Removed(name))
            }
            NodeTurn::Gone => {
                self.uncount_delay(worker);
                Some(Taken::Gone(name))
            }
            NodeTurn::Collect => {
                self.uncount_delay(worker);
                self.announce_collected();
                None
            }
            // The turn or the check has released the node.
            _ => {
                self.uncount_delay(worker);
                self.revalidate_returned(name_parts(name).0);
                None
            }
        }
    }
}
