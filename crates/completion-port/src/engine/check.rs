//! Asking the kernel about what is only remembered.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::Relaxed;

use super::harvest::Scratch;
use super::seat::Seat;
use super::{Engine, State, Stock, Token, token, token_parts};
use crate::interest::Interest;
use crate::state::facts::{Descriptor, Facts, Probe};
use crate::state::queue::{Fifo, Node};
use crate::state::slot::{
    Answer, Checked, Mode, Removal, Slot, Word, depends_on_kind, depends_on_unread,
};
use crate::sync::MutexGuard;
use crate::sys::reactor::Until;

/// How long a one-shot reactor watches for what a slot asks for: an edge-triggered registration is told of each
/// change.
pub(super) fn until(word: Word) -> Until {
    let Mode { edge, one_shot, .. } = word.mode();
    if word.is_lasting() || (edge && !one_shot) { Until::Detached } else { Until::Edge }
}

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
        // A one-shot reactor has the answers.
        if !hot.is_empty() || self.is_one_shot {
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
        if self.is_one_shot {
            return (self.want_some(part, scratch), Fifo::new());
        }
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

    /// Asks about each slot by a one-shot reactor. Those that need no answer are returned.
    fn want_some(&self, mut part: Fifo, scratch: &mut Scratch) -> Fifo {
        let mut hot = Fifo::new();
        while let Some(node) = part.pop(&self.nodes) {
            scratch.nodes.push(node);
            if self.want_one(node) {
                hot.push(&self.nodes, node);
            }
        }
        hot
    }

    /// Asks about a slot by a one-shot reactor, and gives its node back: the answer comes as an edge. True if
    /// the caller still owns the node and it is to be handed out.
    fn want_one(&self, node: Node) -> bool {
        let slot = self.slot(node);
        // Read before: the node may be another registration's afterwards.
        let name = token(node, slot.word().generation());
        !slot.await_edge() || !self.want(slot, name)
    }

    /// Has a one-shot reactor watch for what a registration asks for. False if its descriptor turned out to be
    /// closed, and the caller owns the node.
    fn want(&self, slot: &Slot, name: Token) -> bool {
        let _watching = self.set.read().unwrap_or_else(PoisonError::into_inner);
        let descriptor = slot.descriptor();
        // Under the number's lock: whichever thread wants last wants what the slot asks for then.
        let want = || {
            let word = slot.word();
            self.backend.want(descriptor, name, word.wanted_directions(), until(word)).is_ok()
        };
        let is_there = self.backend.descriptors().holds(descriptor, self.number, name, want);
        is_there || slot.retire(token_parts(name).1) != Removal::Owned
    }

    /// A one-shot reactor has reported what is more than readiness, or what may be older than the arming. The
    /// caller owns the node. The edge is the answer to the question, unless it is that old.
    #[cold]
    pub(super) fn answer_by_edge(
        &self,
        node: Node,
        facts: Facts,
        harvest: u32,
        newest: u32,
    ) -> Checked {
        let slot = self.slot(node);
        let word = slot.word();
        if word.may_predate(harvest, || newest) {
            return Checked::Again;
        }
        slot.begin_check();
        let checked = self.answer(node, facts);
        // What holds is nothing to report. It would be reported again at once; so only changes are asked for.
        if checked == Checked::Nothing && slot.last(word.generation()) {
            let name = token(node, word.generation());
            if !self.want(slot, name) {
                return Checked::Hot;
            }
        }
        checked
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
        // A reset looks like a refused connect to a port that has not seen the connection.
        let failed = facts.has(Facts::ERR | Facts::HUP) && interest.contains(Interest::OUT);
        let was_connected = failed && !word.is_alive() && self.backend.was_connected(descriptor);
        Answer { facts, kind, unread, is_own_end, was_connected }
    }

    /// Checks a single slot. True if the caller still owns the node and it is to be handed out.
    #[inline(never)]
    pub(super) fn check_one(&self, node: Node) -> bool {
        if self.is_one_shot {
            return self.want_one(node);
        }
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
