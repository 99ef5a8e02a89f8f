//! Asking the kernel about what is only remembered.

use std::sync::atomic::Ordering::Relaxed;

use super::seat::Seat;
use super::wait::Scratch;
use super::{Engine, Shared, token};
use crate::state::facts::{Descriptor, Facts, Probe};
use crate::state::queue::{Fifo, Node};
use crate::state::seats::Status;
use crate::state::slot::{Answer, Checked, Word, depends_on_kind, depends_on_unread};
use crate::sync::MutexGuard;

impl Engine {
    /// Asks the kernel, in one call and without the lock, about the slots whose readiness is only
    /// remembered. What is ready goes to the end of the queue, behind what the kernel has to report.
    #[inline(never)]
    pub(super) fn recheck<'e>(
        &'e self,
        shared: MutexGuard<'e, Shared>,
        seat: &Seat,
        scratch: &mut Scratch,
    ) -> MutexGuard<'e, Shared> {
        let (hot, again) = self.check_some(shared, scratch);
        let mut shared = self.lock();
        if !hot.is_empty() && Self::may_ask(&shared) {
            let all = shared.seats.running() == 0;
            shared = self.ask(shared, seat, scratch, all);
        }
        self.end_check(&mut shared, hot, again);
        shared
    }

    /// Asks about as many slots as there is room for, and gives up the lock for that: those that are ready,
    /// and those that are to be asked about again.
    #[inline]
    pub(super) fn check_some(
        &self,
        mut shared: MutexGuard<'_, Shared>,
        scratch: &mut Scratch,
    ) -> (Fifo, Fifo) {
        let room = scratch.probes.capacity().max(1);
        let mut part = shared.recheck.split(&self.nodes, room);
        drop(shared);
        scratch.nodes.clear();
        scratch.probes.clear();
        while let Some(node) = part.pop(&self.nodes) {
            let slot = self.slot(node);
            slot.begin_check();
            scratch.nodes.push(node);
            scratch.probes.push(Probe { descriptor: slot.descriptor(), facts: Facts::NONE });
        }
        self.backend.probe(&mut scratch.probes);
        let mut hot = Fifo::new();
        let mut again = Fifo::new();
        for (node, probe) in scratch.nodes.iter().zip(&scratch.probes) {
            match self.answer(*node, probe.facts) {
                Checked::Nothing => {}
                Checked::Hot => hot.push(&self.nodes, *node),
                Checked::Again => again.push(&self.nodes, *node),
            }
        }
        (hot, again)
    }

    /// Queues what was checked.
    #[inline]
    pub(super) fn end_check(&self, shared: &mut Shared, hot: Fifo, again: Fifo) {
        shared.ready.append(&self.nodes, hot);
        shared.recheck.append(&self.nodes, again);
        Self::tell_collectors(shared);
    }

    /// Notes the kernel's answer about a slot. The caller owns the node.
    pub(super) fn answer(&self, node: Node, facts: Facts) -> Checked {
        let slot = self.slot(node);
        let word = slot.word();
        let name = token(node, word.generation());
        if facts.has(Facts::CLOSED) {
            // Removal may have been quicker; the turn tells.
            slot.retire(word.generation());
            return Checked::Hot;
        }
        let descriptor = slot.descriptor();
        let answer = if facts.any(Facts::RARE) {
            self.ask_more(descriptor, word, facts)
        } else {
            facts.into()
        };
        let checked = slot.check(answer);
        if checked == Checked::Hot && word.is_borrowed() && !word.is_removing() {
            let watches = || self.backend.watches(descriptor);
            if !self.backend.descriptors().holds(descriptor, self.number, name, watches) {
                // The number was closed and given out again: the answer is somebody else's.
                slot.retire(word.generation());
            }
        }
        checked
    }

    /// What holds of `descriptor` is more than readiness, and means one thing or another.
    #[cold]
    fn ask_more(&self, descriptor: Descriptor, word: Word, facts: Facts) -> Answer {
        let interest = word.interest();
        // Once the peer is known to have ended the stream, that stays so.
        let may_be_own = facts.has(Facts::RDHUP) && !word.is_half_closed();
        let is_own_end = may_be_own && self.backend.is_own_end(descriptor);
        let kind = depends_on_kind(interest, facts).then(|| self.backend.kind(descriptor));
        let asks_unread = is_own_end || depends_on_unread(interest, facts);
        let unread = asks_unread.then(|| self.backend.unread(descriptor)).flatten();
        Answer { facts, kind, unread, is_own_end }
    }

    /// Checks a single slot. True if the caller still owns the node and it is to be handed out.
    #[inline(never)]
    pub(super) fn check_one(&self, node: Node) -> bool {
        loop {
            let slot = self.slot(node);
            slot.begin_check();
            let mut probe = [Probe { descriptor: slot.descriptor(), facts: Facts::NONE }];
            self.backend.probe(&mut probe);
            match self.answer(node, probe[0].facts) {
                Checked::Nothing => return false,
                Checked::Hot => return true,
                Checked::Again => {}
            }
        }
    }

    /// Queues a slot for a check. A thread that runs on the port leaves it to the next wait; anybody
    /// else checks at once.
    pub(super) fn queue_check(&self, node: Node, seat: Option<&Seat>) {
        if let Some(seat) = seat {
            let mut shared = self.lock();
            let is_running = shared.seats.status(seat.number) == Status::Running;
            if is_running && !seat.left.load(Relaxed) {
                shared.recheck.push(&self.nodes, node);
                Self::tell_collectors(&shared);
                let notice = Self::look_after(&mut shared);
                drop(shared);
                self.notify(notice);
                return;
            }
        }
        if self.check_one(node) {
            self.submit(node);
        }
    }
}
