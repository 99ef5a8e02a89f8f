//! Whether there is a packet to take, for a thread that takes none and needs no seat.

use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use super::poll::Scratch;
use super::seat::Seat;
use super::{Engine, Phase, State, Stock};
use crate::state::queue::{Fifo, Node, POSTED};
use crate::state::schedule::most_further;
use crate::sync::MutexGuard;
use crate::types::error::{Call, Error, ErrorKind};

/// How many nodes of the queue a call looks at.
const LEAVES: usize = 256;

impl Engine {
    /// Whether a packet is queued, or left at `own`, the calling thread's seat if it has one here.
    /// The call first queues what the kernel has to report, unless a thread is in the kernel's
    /// wait, and checks what is only remembered.
    pub(crate) fn has_packets(
        &self,
        own: Option<&Seat>,
        scratch: &mut Scratch,
    ) -> Result<bool, Error> {
        self.check_usable(Call::Wait)?;
        let mut state = self.lock();
        if state.stock.phase != Phase::Abandoned && own.is_some_and(|own| self.is_one_left(own)) {
            return Ok(true);
        }
        if state.stock.is_over() {
            return Err(Error::new(Call::Wait, ErrorKind::Closed));
        }
        scratch.is_refused = false;
        self.queue_due_for_others(&mut state);
        if self.is_one_queued(&mut state.stock) {
            return Ok(true);
        }
        let mut found = false;
        state = self.ask_for_others(state, scratch, &mut found);
        if !found {
            state = self.recheck_for_others(state, scratch, &mut found);
            if self.is_one_shot && !found {
                // The answers of a one-shot reactor.
                state = self.ask_for_others(state, scratch, &mut found);
            }
        }
        self.leave_to_others(state, found, own);
        if std::mem::take(&mut scratch.is_refused) && !found {
            return Err(self.take_fault());
        }
        Ok(found)
    }

    /// Queues what the kernel has to report, unless a thread is in the kernel's wait, whatever is queued already.
    pub(crate) fn drive(&self, scratch: &mut Scratch) -> Result<(), Error> {
        self.check_usable(Call::Wait)?;
        let mut state = self.lock();
        if state.stock.is_over() {
            return Err(Error::new(Call::Wait, ErrorKind::Closed));
        }
        scratch.is_refused = false;
        self.queue_due_for_others(&mut state);
        let mut found = false;
        state = self.ask_for_others(state, scratch, &mut found);
        self.leave_to_others(state, found, None);
        if std::mem::take(&mut scratch.is_refused) {
            return Err(self.take_fault());
        }
        Ok(())
    }

    /// Queues what timers tell is due. If a thread is idle, one wakes in time for that.
    fn queue_due_for_others(&self, state: &mut State) {
        if state.schedule.has_timers() {
            let State { schedule, stock } = &mut *state;
            schedule.next_timer(self.queue_due(stock, self.backend.now()));
        }
    }

    /// The calling thread does not take what it has `found`.
    fn leave_to_others<'e>(
        &'e self,
        mut state: MutexGuard<'e, State>,
        found: bool,
        own: Option<&Seat>,
    ) {
        let State { schedule, stock } = &mut *state;
        let wake = schedule.depart_calling(found, &self.stage(stock, own));
        let notice = wake.map(|wake| stock.notice(wake));
        drop(self.end_if_over(state));
        self.notify(notice);
    }

    /// Whether the thread of `own` was handed a node that brings a packet and that it has not
    /// looked at. That thread calls this, with the lock held.
    fn is_one_left(&self, own: &Seat) -> bool {
        // The thread takes nothing meanwhile, and other threads take a chain away under the lock
        // only.
        Fifo::any_in_chain(&self.nodes, own.chain.load(Acquire), |node| self.is_due(node))
    }

    /// Whether one of the first nodes of the queue brings a packet without a check. If none does,
    /// they move to the end, so that a later call looks at the nodes behind them.
    fn is_one_queued(&self, stock: &mut Stock) -> bool {
        let mut first = stock.ready.split(&self.nodes, LEAVES);
        if self.is_one_due(&first) {
            stock.ready.prepend(&self.nodes, first);
            return true;
        }
        let mut unclear = Fifo::new();
        while let Some(node) = first.pop(&self.nodes) {
            // The node became unclear in the queue. Left there, it would be checked at its turn.
            let is_unclear = self.slot(node).word().is_unclear();
            let list = if is_unclear { &mut unclear } else { &mut stock.ready };
            list.push(&self.nodes, node);
        }
        stock.recheck.prepend(&self.nodes, unclear);
        false
    }

    /// Whether some node of `list` brings a packet without a check.
    fn is_one_due(&self, list: &Fifo) -> bool {
        list.any(&self.nodes, |node| self.is_due(node))
    }

    fn is_due(&self, node: Node) -> bool {
        // An operation that is to be tried counts as one that has ended: as a rule it has by its turn.
        node & POSTED != 0 || self.slot(node).word().is_due()
    }

    /// Asks the kernel for edges without waiting, and without the lock, until an edge that brings a
    /// packet is `found`, or the kernel has no more.
    fn ask_for_others<'e>(
        &'e self,
        mut state: MutexGuard<'e, State>,
        scratch: &mut Scratch,
        found: &mut bool,
    ) -> MutexGuard<'e, State> {
        let mut left = 1 + most_further(&self.stage(&mut state.stock, None));
        scratch.is_filled = true;
        while scratch.is_filled && !*found && left > 0 {
            let State { schedule, stock } = &mut *state;
            if !schedule.may_ask(&self.stage(stock, None)) {
                break;
            }
            left -= 1;
            scratch.is_filled = false;
            state = self.poll_for_others(state, scratch, found);
        }
        state
    }

    fn poll_for_others<'e>(
        &'e self,
        mut state: MutexGuard<'e, State>,
        scratch: &mut Scratch,
        found: &mut bool,
    ) -> MutexGuard<'e, State> {
        state.stock.polls += 1;
        state.stock.peeks += 1;
        drop(state);
        let poll = self.poll(scratch, Some(Duration::ZERO));
        *found |= self.is_one_due(&poll.ready);
        state = self.lock();
        state.stock.peeks -= 1;
        let woken = poll.woken;
        state.stock.end_poll(self, poll);
        if woken && state.schedule.in_kernel() > 0 {
            // The wake was meant for a thread that has entered the kernel's wait meanwhile, and
            // does not come out of it without one.
            drop(state);
            self.backend.wake();
            state = self.lock();
        }
        state
    }

    /// Checks registrations that are only remembered, until one that brings a packet is `found`.
    fn recheck_for_others<'e>(
        &'e self,
        mut state: MutexGuard<'e, State>,
        scratch: &mut Scratch,
        found: &mut bool,
    ) -> MutexGuard<'e, State> {
        let mut left = state.stock.recheck.len();
        while left > 0 && !*found && !state.stock.recheck.is_empty() {
            state.stock.peeks += 1;
            let (hot, again) = self.check_some(state, scratch);
            *found = self.is_one_due(&hot);
            state = self.lock();
            state.stock.peeks -= 1;
            self.end_check(&mut state.stock, hot, again);
            left = left.saturating_sub(scratch.nodes.len());
            if scratch.is_refused {
                break;
            }
        }
        state
    }
}
