//! Asking the kernel about what is only remembered.

use std::sync::atomic::Ordering::Relaxed;

use super::harvest::Scratch;
use super::seat::Seat;
use super::{Engine, State, Stock, token};
use crate::state::facts::{Descriptor, Facts, Probe};
use crate::state::queue::{Fifo, Node};
use crate::state::slot::{Answer, Checked, Word, depends_on_kind, depends_on_unread};
use crate::sync::MutexGuard;

impl Engine {
    /// Asks the kernel, in one call and without the lock, about the slots whose readiness is only
    /// remembered. What is ready goes to the end of the queue, behind what the kernel has to report.
    #[inline(never)]
    pub(super) fn recheck<'e>(
        &'e self,
        state: MutexGuard<'e, State>,
        seat: &Seat,
        scratch: &mut Scratch,
    ) -> MutexGuard<'e, State> {
        let (hot, again) = self.check_some(state, scratch);
        let mut state = self.lock();
        if !hot.is_empty() {
            let State { schedule, stock } = &mut *state;
            if let Some(all) = schedule.asks(&self.stage(stock, seat)) {
                state = self.ask(state, seat, scratch, all);
            }
        }
        self.end_check(&mut state.stock, hot, again);
        state
    }

    /// Asks about as many slots as there is room for, and gives up the lock for that: those that are ready,
    /// and those that are to be asked about again.
    #[inline]
    pub(super) fn check_some(
        &self,
        mut state: MutexGuard<'_, State>,
        scratch: &mut Scratch,
    ) -> (Fifo, Fifo) {
        let room = scratch.probes.capacity().max(1);
        let mut part = state.stock.recheck.split(&self.nodes, room);
        drop(state);
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
    pub(super) fn end_check(&self, stock: &mut Stock, hot: Fifo, again: Fifo) {
        stock.ready.append(&self.nodes, hot);
        stock.recheck.append(&self.nodes, again);
        stock.tell_collectors();
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
            let mut state = self.lock();
            let State { schedule, stock } = &mut *state;
            if schedule.is_running(seat.number) && !seat.left.load(Relaxed) {
                stock.recheck.push(&self.nodes, node);
                stock.tell_collectors();
                let wake = schedule.look_after(&self.stage(stock, seat));
                let notice = wake.map(|wake| stock.notice(wake));
                drop(state);
                self.notify(notice);
                return;
            }
        }
        if self.check_one(node) {
            self.submit(node);
        }
    }
}
