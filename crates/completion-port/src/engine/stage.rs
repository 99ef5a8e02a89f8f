//! What the schedule sees of this port.

use std::sync::atomic::Ordering::{AcqRel, Relaxed, Release};

use super::seat::{PRESUMED_BLOCKED, Seat};
use super::{Engine, Phase, Stock};
use crate::state::facts::Presence;
use crate::state::moment::Moment;
use crate::state::queue::{Fifo, Links, NIL, POSTED};
use crate::state::schedule::{Scene, SeatNumber};
use crate::state::timers::{Alarm, Due};
use crate::types::config::BlockDetection;

/// How many timers that are due are seen to at once.
const MOST_DUE: usize = 1024;

/// The port, as a thread that has the lock sees it.
pub(super) struct Stage<'a> {
    engine: &'a Engine,
    stock: &'a mut Stock,
    /// The thread's own seat. One that has none takes nothing.
    own: Option<&'a Seat>,
}

impl Engine {
    #[inline]
    pub(super) fn stage<'a>(
        &'a self,
        stock: &'a mut Stock,
        own: impl Into<Option<&'a Seat>>,
    ) -> Stage<'a> {
        Stage { engine: self, stock, own: own.into() }
    }

    /// What `seat` was handed and its thread has not looked at goes back to the front of the queue. False if
    /// there was nothing.
    #[inline]
    pub(super) fn take_chain_back(&self, stock: &mut Stock, seat: &Seat) -> bool {
        // Only under the lock is anything put there.
        seat.chain.load(Relaxed) != NIL && self.take_links_back(stock, seat)
    }

    /// Queues what is due at `now`, messages and what deadlines tell of, or a good part of it: the port is locked
    /// meanwhile. Returns when the next timer is due.
    pub(super) fn queue_due(&self, stock: &mut Stock, now: Moment) -> Moment {
        let mut due = Fifo::new();
        for _ in 0..MOST_DUE {
            match stock.timers.take_due(now) {
                None => break,
                Some(Due::Message(cell)) => due.push(&self.nodes, cell | POSTED),
                Some(Due::Alarm(Alarm::Arming, slot)) => {
                    self.ring_arming(stock, slot, now, &mut due);
                }
                Some(Due::Alarm(Alarm::Operations, slot)) => self.ring(stock, slot, now, &mut due),
            }
        }
        let due = self.put_due_aside(stock, due);
        if stock.notable.is_any() {
            self.note_queued(stock, &due);
        }
        stock.ready.append(&self.nodes, due);
        stock.timers.next()
    }

    #[inline(never)]
    fn take_links_back(&self, stock: &mut Stock, seat: &Seat) -> bool {
        let head = seat.chain.swap(NIL, AcqRel);
        if head == NIL {
            return false;
        }
        let rest = Fifo::from_chain(&self.nodes, head);
        stock.ready.prepend(&self.nodes, rest);
        stock.tell_collectors();
        true
    }
}

impl Stage<'_> {
    fn seat(&self, seat: SeatNumber) -> &Seat {
        &self.stock.members[seat].as_ref().expect("a thread at the port is a member").seat
    }
}

impl Scene for Stage<'_> {
    #[inline]
    fn now(&self) -> Moment {
        self.engine.backend.now()
    }

    #[inline]
    fn ready(&self) -> usize {
        self.stock.ready.len()
    }

    #[inline]
    fn begins_with_post(&self) -> bool {
        self.stock.ready.begins_with_post()
    }

    #[inline]
    fn unchecked(&self) -> usize {
        self.stock.recheck.len()
    }

    #[inline]
    fn posts(&self) -> usize {
        self.stock.posts.in_use() - self.stock.timers.messages()
    }

    fn queue_due(&mut self, now: Moment) -> Moment {
        self.engine.queue_due(self.stock, now)
    }

    #[inline]
    fn registered(&self) -> usize {
        self.stock.slots.in_use()
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.stock.is_over()
    }

    #[inline]
    fn takes_edges(&self) -> bool {
        matches!(self.stock.phase, Phase::Open | Phase::ShuttingDown)
    }

    #[inline]
    fn is_replacing(&self) -> bool {
        self.stock.strays.is_replacing()
    }

    fn is_full_of_strays(&self) -> bool {
        self.stock.is_full_of_strays()
    }

    fn detects(&self) -> bool {
        self.engine.detection != BlockDetection::Announced
    }

    fn progress(&self, seat: SeatNumber) -> u32 {
        self.seat(seat).progress()
    }

    fn presence(&self, seat: SeatNumber) -> Option<Presence> {
        self.stock.members[seat].as_ref().and_then(|member| member.thread.read_record())
    }

    fn presume_asleep(&mut self, seat: SeatNumber, asleep: bool) {
        let attention = &self.seat(seat).attention;
        if asleep {
            attention.fetch_or(PRESUMED_BLOCKED, Relaxed);
            self.stock.note_found(seat);
        } else {
            attention.fetch_and(!PRESUMED_BLOCKED, Relaxed);
        }
    }

    #[inline]
    fn take(&mut self, packets: usize) {
        let Some(own) = self.own else { return };
        let chain = self.stock.ready.split(&self.engine.nodes, packets);
        self.engine.begin_quota(own, chain.len());
        own.chain.store(chain.into_chain(), Release);
    }

    #[inline]
    fn give(&mut self, seat: SeatNumber) {
        let nodes = &self.engine.nodes;
        let first = self.stock.ready.pop(nodes).expect("the queue is not empty");
        nodes.link(first).store(NIL, Relaxed);
        self.seat(seat).chain.store(first, Release);
    }

    fn take_back(&mut self, seat: SeatNumber) -> bool {
        let Some(member) = &self.stock.members[seat] else { return false };
        let seat = std::sync::Arc::clone(&member.seat);
        self.engine.take_chain_back(self.stock, &seat)
    }

    fn adopt(&mut self, from: SeatNumber) {
        let Some(own) = self.own else { return };
        // Nothing, unless the thread was handed a packet.
        own.chain.store(self.seat(from).chain.swap(NIL, AcqRel), Release);
    }

    fn advise(&mut self, room: u32) {
        self.engine.advised.store(room, Relaxed);
    }
}
