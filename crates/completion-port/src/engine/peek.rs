//! Whether there is a packet to take, for a thread that takes none and needs no seat.

use std::sync::atomic::Ordering::Acquire;
use std::time::Duration;

use super::seat::Seat;
use super::wait::{Harvest, Scratch};
use super::{Engine, Phase, Shared};
use crate::error::{Error, ErrorKind, Operation};
use crate::state::queue::{Fifo, Node, POSTED};
use crate::sync::MutexGuard;

/// Nodes of the queue that a call looks at.
const LEAVES: usize = 256;

impl Engine {
    /// Whether a packet is queued, or `own` has one left: the calling thread's seat, if it has one here.
    /// What the kernel has to report is queued before, if no thread sits in the kernel's wait, and what is
    /// only remembered is checked.
    pub(crate) fn has_packets(
        &self,
        own: Option<&Seat>,
        scratch: &mut Scratch,
    ) -> Result<bool, Error> {
        self.check_usable(Operation::Wait)?;
        let mut shared = self.lock();
        if shared.phase != Phase::Abandoned && own.is_some_and(|own| self.is_one_left(own)) {
            return Ok(true);
        }
        if Self::is_over(&shared) {
            return Err(Error::new(Operation::Wait, ErrorKind::Closed));
        }
        if self.is_one_queued(&mut shared) {
            return Ok(true);
        }
        let mut found = false;
        shared = self.ask_for_others(shared, scratch, &mut found);
        if !found {
            shared = self.recheck_for_others(shared, scratch, &mut found);
        }
        // What this thread has found it does not take.
        let notice = self.depart_calling(&mut shared, found);
        let ended =
            if shared.phase == Phase::Open { Vec::new() } else { self.end_if_over(&mut shared) };
        drop(shared);
        self.notify(notice);
        self.notify_all(ended);
        Ok(found)
    }

    /// Whether the thread of `own`, which calls this and has the lock, was handed a node that brings a
    /// packet and that it has not looked at.
    fn is_one_left(&self, own: &Seat) -> bool {
        // It takes nothing meanwhile, and a chain is taken away under the lock only.
        Fifo::any_in_chain(&self.nodes, own.chain.load(Acquire), |node| self.is_due(node))
    }

    /// Whether one of the first nodes of the queue brings a packet without another look. If none does they
    /// make way for those behind them: a later call looks at these.
    fn is_one_queued(&self, shared: &mut Shared) -> bool {
        let mut first = shared.ready.split(&self.nodes, LEAVES);
        if self.is_one_due(&first) {
            shared.ready.prepend(&self.nodes, first);
            return true;
        }
        let mut unclear = Fifo::new();
        while let Some(node) = first.pop(&self.nodes) {
            // It has become unclear in the queue: else its turn would check it.
            let is_unclear = self.slot(node).word().is_unclear();
            let list = if is_unclear { &mut unclear } else { &mut shared.ready };
            list.push(&self.nodes, node);
        }
        shared.recheck.prepend(&self.nodes, unclear);
        false
    }

    /// Whether some node of `list` brings a packet without another look.
    fn is_one_due(&self, list: &Fifo) -> bool {
        list.any(&self.nodes, |node| self.is_due(node))
    }

    fn is_due(&self, node: Node) -> bool {
        node & POSTED != 0 || self.slot(node).word().is_due()
    }

    /// Asks the kernel for edges without waiting, and without the lock, until one that brings a packet is
    /// `found` or the kernel has no more.
    fn ask_for_others<'e>(
        &'e self,
        mut shared: MutexGuard<'e, Shared>,
        scratch: &mut Scratch,
        found: &mut bool,
    ) -> MutexGuard<'e, Shared> {
        let mut left = 1 + self.most_further(&shared);
        scratch.is_filled = true;
        while scratch.is_filled && !*found && left > 0 && Self::may_ask(&shared) {
            left -= 1;
            scratch.is_filled = false;
            for set in 0..self.harvests.len() {
                // Of a single set each edge goes to one of those that ask.
                if self.harvests.len() == 1 || !shared.harvesting[set] {
                    shared = self.harvest_for_others(shared, scratch, set, found);
                }
            }
        }
        shared
    }

    fn harvest_for_others<'e>(
        &'e self,
        mut shared: MutexGuard<'e, Shared>,
        scratch: &mut Scratch,
        set: usize,
        found: &mut bool,
    ) -> MutexGuard<'e, Shared> {
        shared.harvesting[set] = true;
        shared.harvests += 1;
        shared.peeks += 1;
        drop(shared);
        let Harvest { ready, recheck, strays, woken } =
            self.harvest(set, scratch, Some(Duration::ZERO));
        *found |= self.is_one_due(&ready);
        shared = self.lock();
        shared.peeks -= 1;
        shared.harvesting[set] = false;
        shared.stale += strays;
        shared.ready.append(&self.nodes, ready);
        shared.recheck.append(&self.nodes, recheck);
        Self::tell_collectors(&shared);
        if woken && shared.seats.polling() > 0 {
            // Meant for a thread that has gone to the kernel's wait meanwhile, and will not come out of
            // it without.
            drop(shared);
            self.backend.wake();
            shared = self.lock();
        }
        shared
    }

    /// Checks what is only remembered until one that brings a packet is `found`.
    fn recheck_for_others<'e>(
        &'e self,
        mut shared: MutexGuard<'e, Shared>,
        scratch: &mut Scratch,
        found: &mut bool,
    ) -> MutexGuard<'e, Shared> {
        let mut left = shared.recheck.len();
        while left > 0 && !*found && !shared.recheck.is_empty() {
            shared.peeks += 1;
            let (hot, again) = self.check_some(shared, scratch);
            *found = self.is_one_due(&hot);
            shared = self.lock();
            shared.peeks -= 1;
            self.end_check(&mut shared, hot, again);
            left = left.saturating_sub(scratch.nodes.len());
        }
        shared
    }
}
