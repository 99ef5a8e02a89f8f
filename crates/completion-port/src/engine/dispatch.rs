//! From what a thread was handed to the packets that its caller sees.

use std::sync::atomic::Ordering::{Acquire, Relaxed};

use super::seat::{MEASURED, PRESUMED_BLOCKED, Seat};
use super::{Engine, Name, name_of, name_parts};
use crate::state::queue::{FLIGHT, Links, NIL, Node, POSTED, cell_of, is_flight};
use crate::state::slot::{Slot, Turn};
use crate::sync::AtomicU64;
use crate::types::interest::Events;

/// A packet whose turn has come. The caller owns what it names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken<'e> {
    /// The key is the caller's, in its cell, until it is put back.
    Ready(&'e Slot, Name, Events),
    /// The key is to be cloned, then [`Engine::cloned`] called.
    Notified(Name, Events),
    /// The message is to be moved out, then [`Engine::free_post`] called.
    Posted(u32),
    /// The operation of this record has its turn: [`Engine::turn`] is to be called.
    Operation(u32),
    /// The key is to be moved out, then [`Engine::free`] called.
    Removed(Name),
    /// The key is to be dropped, then [`Engine::free`] called.
    Gone(Name),
}

impl Engine {
    /// The next packet of those that `seat` has been handed, if it is of the common kind: the number of
    /// its slot, whose key is the caller's in its cell. Otherwise a node whose turn has not come, or `NIL`
    /// if none was taken: [`Engine::next`] goes on with it.
    #[allow(clippy::inline_always, reason = "what it returns passes through memory otherwise")]
    #[inline(always)]
    pub(crate) fn next_ready(&self, seat: &Seat) -> Result<(u32, &Slot, Events), Node> {
        let node = seat.first();
        if node & POSTED != 0 {
            // A message, or none.
            return Err(NIL);
        }
        let slot = self.slot(node);
        if !seat.takes(node, &slot.link) {
            return Err(NIL);
        }
        let events = slot.hand().ok_or(node)?;
        count(&seat.counts.ready);
        Ok((node, slot, events))
    }

    /// The same as [`Engine::next_ready`], of a registration that keeps its key: `clone` clones the key of the slot, whose
    /// node is the calling thread's meanwhile. Otherwise a node whose turn has not come, and the clone if there is one:
    /// [`Engine::next_by`] goes on with it.
    #[inline]
    pub(crate) fn next_ready_cloned<K>(
        &self,
        seat: &Seat,
        clone: impl FnOnce(u32) -> K,
    ) -> Result<(Name, Events, K), (Node, Option<K>)> {
        let node = seat.first();
        if node & POSTED != 0 {
            // A message, or none.
            return Err((NIL, None));
        }
        let slot = self.slot(node);
        if !seat.takes(node, &slot.link) {
            return Err((NIL, None));
        }
        let key = clone(node);
        if self.forked() {
            // The clone has forked, and this is the child.
            return Err((node, Some(key)));
        }
        match slot.hand_and_park() {
            Some((generation, events)) => {
                count(&seat.counts.ready);
                Ok((name_of(node, generation), events, key))
            }
            None => Err((node, Some(key))),
        }
    }

    /// The next packet of those that `seat` has been handed, of any kind. `first` is the first node,
    /// if it was taken already; `NIL` otherwise.
    pub(crate) fn next(&self, seat: &Seat, first: Node) -> Option<Taken<'_>> {
        self.next_by(seat, first, |_, slot| slot.take())
    }

    /// The same, but `turn` gives each slot its turn. It gets the slot and its number; the calling
    /// thread owns the node then.
    pub(crate) fn next_by(
        &self,
        seat: &Seat,
        mut first: Node,
        mut turn: impl FnMut(u32, &Slot) -> Turn,
    ) -> Option<Taken<'_>> {
        loop {
            let node = match std::mem::replace(&mut first, NIL) {
                NIL => self.next_node(seat)?,
                first => first,
            };
            if is_flight(node) {
                return Some(Taken::Operation(node & !FLIGHT));
            }
            if node & POSTED != 0 {
                count(&seat.counts.posted);
                return Some(Taken::Posted(cell_of(node)));
            }
            let slot = self.slot(node);
            // Read before the turn: after it the slot may be given up at any time.
            let name = name_of(node, slot.word().generation());
            loop {
                match turn(node, slot) {
                    Turn::Held(events) => {
                        count(&seat.counts.ready);
                        return Some(Taken::Ready(slot, name, events));
                    }
                    Turn::Cloned(events) => {
                        count(&seat.counts.notified);
                        return Some(Taken::Notified(name, events));
                    }
                    Turn::Check if self.check_one(node) => {}
                    last => match self.end_turn(seat, name, last) {
                        // The turn has called user code that forked, and this is the child: what is behind
                        // the node is the parent's.
                        None if self.forked() => return None,
                        None => break,
                        taken => return taken,
                    },
                }
            }
        }
    }

    /// What the caller gets from a turn that reports no events.
    #[cold]
    fn end_turn(&self, seat: &Seat, name: Name, turn: Turn) -> Option<Taken<'_>> {
        match turn {
            Turn::Removed => {
                count(&seat.counts.removed);
                Some(Taken::Removed(name))
            }
            Turn::Gone => {
                self.uncount_delay(seat);
                Some(Taken::Gone(name))
            }
            Turn::Collect => {
                self.uncount_delay(seat);
                self.announce_collected();
                None
            }
            // The turn or the check has given the node back.
            _ => {
                self.uncount_delay(seat);
                self.mind_given_back(name_parts(name).0);
                None
            }
        }
    }

    /// The thread of `seat`, which calls this, has come to the packet of an operation; or the operation goes on,
    /// and there is none.
    #[inline]
    pub(crate) fn count_operation(&self, seat: &Seat, is_done: bool) {
        if is_done {
            count(&seat.counts.done);
        } else {
            self.uncount_delay(seat);
        }
    }

    /// Takes the first node off what `seat` has been handed.
    #[inline]
    fn next_node(&self, seat: &Seat) -> Option<Node> {
        if seat.attention.load(Relaxed) != 0 {
            return self.next_node_attentively(seat);
        }
        self.take_first(seat)
    }

    /// The same, for a thread that has something to see to.
    #[cold]
    #[inline(never)]
    fn next_node_attentively(&self, seat: &Seat) -> Option<Node> {
        let attention = seat.attention.load(Relaxed);
        if attention & PRESUMED_BLOCKED != 0 {
            self.awake(seat);
        }
        let node = self.take_first(seat)?;
        if attention & MEASURED != 0 {
            self.count_delay(seat, node);
        }
        Some(node)
    }

    #[inline]
    fn take_first(&self, seat: &Seat) -> Option<Node> {
        loop {
            let node = match seat.chain.load(Acquire) {
                NIL => return None,
                node => node,
            };
            if seat.takes(node, self.nodes.link(node)) {
                return Some(node);
            }
        }
    }
}

#[inline]
fn count(counter: &AtomicU64) {
    // Only the seat's own thread writes it.
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}
