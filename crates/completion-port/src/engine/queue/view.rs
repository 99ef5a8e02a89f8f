//! What the schedule sees of a port.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::Queue;
use super::lists::Lists;
use crate::engine::context::PortPhase;
use crate::engine::worker::Seat;
use crate::state::facts::Presence;
use crate::state::moment::Moment;
use crate::state::queue::{Links, NIL};
use crate::state::schedule::{Scene, SeatNumber};
use crate::types::config::BlockDetection;

/// The port, as a thread that has the lock sees it.
pub(in crate::engine) struct PortView<'a> {
    queue: &'a Queue,
    lists: &'a mut Lists,
    /// The thread's own seat. One that has none takes nothing.
    own: Option<&'a Seat>,
}

impl<'a> PortView<'a> {
    #[inline]
    pub(super) fn new(queue: &'a Queue, lists: &'a mut Lists, own: Option<&'a Seat>) -> Self {
        Self { queue, lists, own }
    }

    #[inline]
    pub(in crate::engine) fn lists_mut(&mut self) -> &mut Lists {
        self.lists
    }

    fn seat(&self, seat: SeatNumber) -> &Seat {
        self.lists.members().seat(seat)
    }
}

impl Scene for PortView<'_> {
    #[inline]
    fn now(&self) -> Moment {
        self.queue.backend().now()
    }

    #[inline]
    fn ready(&self) -> usize {
        self.lists.ready().len()
    }

    #[inline]
    fn begins_with_post(&self) -> bool {
        self.lists.ready().begins_with_post()
    }

    #[inline]
    fn unchecked(&self) -> usize {
        self.lists.recheck().len()
    }

    #[inline]
    fn posts(&self) -> usize {
        self.lists.posts()
    }

    #[inline]
    fn registered(&self) -> usize {
        self.lists.registered()
    }

    #[inline]
    fn is_over(&self) -> bool {
        self.lists.is_over()
    }

    #[inline]
    fn takes_edges(&self) -> bool {
        matches!(self.lists.phase(), PortPhase::Open | PortPhase::ShuttingDown)
    }

    #[inline]
    fn is_replacing(&self) -> bool {
        self.lists.is_replacing()
    }

    fn is_full_of_strays(&self) -> bool {
        self.lists.is_full_of_strays()
    }

    fn detects(&self) -> bool {
        self.queue.detection() != BlockDetection::Announced
    }

    fn progress(&self, seat: SeatNumber) -> u32 {
        self.seat(seat).progress()
    }

    fn presence(&self, seat: SeatNumber) -> Option<Presence> {
        self.lists.members().get(seat).and_then(|member| member.thread().read_record())
    }

    fn presume_asleep(&mut self, seat: SeatNumber, asleep: bool) {
        self.seat(seat).presume_blocked(asleep);
        if asleep {
            self.lists.note_found(seat);
        }
    }

    #[inline]
    fn take(&mut self, packets: usize) {
        let Some(own) = self.own else { return };
        let chain = self.lists.split(self.queue.nodes(), packets);
        own.begin_quota(chain.len(), || self.queue.backend().now());
        own.hand(chain.into_chain());
    }

    #[inline]
    fn give(&mut self, seat: SeatNumber) {
        let nodes = self.queue.nodes();
        let first = self.lists.pop(nodes).expect("the queue is not empty");
        nodes.link(first).store(NIL, Relaxed);
        self.seat(seat).hand(first);
    }

    fn take_back(&mut self, seat: SeatNumber) -> bool {
        let Some(member) = self.lists.members().get(seat) else { return false };
        let seat = Arc::clone(member.seat());
        self.queue.take_chain_back(self.lists, &seat)
    }

    fn adopt(&mut self, from: SeatNumber) {
        let Some(own) = self.own else { return };
        // Nothing, unless the thread was handed a packet.
        own.hand(self.seat(from).take_chain());
    }

    fn advise(&mut self, room: u32) {
        self.queue.set_advised(room);
    }
}
