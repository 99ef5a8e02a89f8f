//! Asking the kernel about what is only remembered.

use std::sync::atomic::Ordering::Relaxed;

use super::poll::Scratch;
use super::seat::Seat;
use super::{Engine, State, Stock, name_of};
use crate::state::facts::{Facts, Probe};
use crate::state::queue::{Fifo, Node};
use crate::state::slot::{Checked, Next};
use crate::sync::MutexGuard;
use crate::types::error::Fault;

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
            if schedule.asks(&self.stage(stock, seat)) {
                state = self.ask(state, seat, scratch);
            }
        }
        self.end_check(&mut state.stock, hot, again);
        state
    }

    /// Asks about as many slots as there is room for, and gives up the lock for that. Returns those
    /// that are ready, and those that are to be asked about again.
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
        let mut hot = Fifo::new();
        let mut again = Fifo::new();
        if let Err(fault) = self.backend.probe(&mut scratch.probes) {
            self.refused(scratch, fault);
            for node in &scratch.nodes {
                again.push(&self.nodes, *node);
            }
            return (hot, again);
        }
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
        // The name is read first: afterwards the node may belong to another registration.
        let name = name_of(node, slot.word().generation());
        if !slot.await_edge() || !self.want(slot, name) {
            return true;
        }
        self.mind_given_back(node);
        false
    }

    /// Queues what was checked.
    #[inline]
    pub(super) fn end_check(&self, stock: &mut Stock, hot: Fifo, again: Fifo) {
        if stock.notable.is_any() {
            self.note_queued(stock, &hot);
        }
        stock.ready.append(&self.nodes, hot);
        stock.recheck.append(&self.nodes, again);
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
            if let Err(fault) = self.backend.probe(&mut probe) {
                self.put_off(node, fault);
                return false;
            }
            match self.answer(node, probe[0].facts) {
                Checked::Nothing => return false,
                Checked::Hot => return true,
                Checked::Again => {}
            }
        }
    }

    /// The kernel has refused to report what is ready of a slot. Its node, which the caller owns, waits for the next wait, and
    /// that reports the refusal.
    #[cold]
    fn put_off(&self, node: Node, fault: Fault) {
        self.keep_fault(fault);
        let mut state = self.lock();
        let State { schedule, stock } = &mut *state;
        stock.recheck.push(&self.nodes, node);
        stock.tell_collectors();
        let wake = schedule.look_after(&self.stage(stock, None));
        let notice = wake.map(|wake| stock.notice(wake));
        drop(state);
        self.notify(notice);
    }

    /// Does what a change of the slot asks for. The caller owns the node, if it is to be queued.
    #[inline]
    pub(super) fn follow(&self, next: Next, node: Node, seat: Option<&Seat>) {
        match next {
            Next::Nothing => {}
            // User code that this call has called, a clone of a key or a hint, has forked.
            _ if self.forked() => {}
            Next::Queue => self.submit(node),
            Next::Recheck => self.queue_check(node, seat),
            Next::Collect => self.announce_collected(),
            Next::Gone => unreachable!("only a token's return can find this, and sees to it"),
        }
    }

    /// Queues a slot for a check. A thread that runs on the port leaves the check to the next wait.
    /// Any other thread makes it at once.
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
