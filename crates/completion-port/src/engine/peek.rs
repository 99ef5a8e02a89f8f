//! Whether there is a packet to take, for a thread that takes none and has no seat.

use std::time::Duration;

use super::wait::{Harvest, Scratch};
use super::{Engine, Shared};
use crate::error::{Error, ErrorKind, Operation};
use crate::state::queue::{Fifo, Node, POSTED};
use crate::sync::MutexGuard;

impl Engine {
    /// Whether a packet is queued. What the kernel has to report is queued before, if no thread sits in the
    /// kernel's wait, and what is only remembered is checked.
    pub(crate) fn has_packets(&self, scratch: &mut Scratch) -> Result<bool, Error> {
        self.check_usable(Operation::Wait)?;
        let mut shared = self.lock();
        if Self::is_over(&shared) {
            return Err(Error::new(Operation::Wait, ErrorKind::Closed));
        }
        let mut has_packets = self.is_one_due(&shared);
        if !has_packets {
            let queued = shared.ready.len();
            if Self::may_ask(&shared) {
                shared = self.ask_for_others(shared, scratch);
            }
            shared = self.recheck_for_others(shared, scratch);
            has_packets = self.is_one_due(&shared);
            // What this thread has found it does not take.
            let found = has_packets && shared.ready.len() > queued;
            let notice = self.depart_calling(&mut shared, found);
            drop(shared);
            self.notify(notice);
        }
        Ok(has_packets)
    }

    /// Whether some node of the queue brings a packet without another look.
    fn is_one_due(&self, shared: &Shared) -> bool {
        shared.ready.any(&self.nodes, |node| self.is_due(node))
    }

    fn is_due(&self, node: Node) -> bool {
        node & POSTED != 0 || self.slot(node).word().is_due()
    }

    /// Asks the kernel for edges without waiting, and without the lock.
    fn ask_for_others<'e>(
        &'e self,
        mut shared: MutexGuard<'e, Shared>,
        scratch: &mut Scratch,
    ) -> MutexGuard<'e, Shared> {
        for set in 0..self.harvests.len() {
            // Of a single set each edge goes to one of those that ask.
            if self.harvests.len() > 1 && shared.harvesting[set] {
                continue;
            }
            shared.harvesting[set] = true;
            shared.harvests += 1;
            drop(shared);
            let Harvest { ready, recheck, strays, woken } =
                self.harvest(set, scratch, Some(Duration::ZERO));
            shared = self.lock();
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
        }
        shared
    }

    /// Checks what is only remembered until a packet is due.
    fn recheck_for_others<'e>(
        &'e self,
        mut shared: MutexGuard<'e, Shared>,
        scratch: &mut Scratch,
    ) -> MutexGuard<'e, Shared> {
        if !self.is_one_due(&shared) {
            // It is in the queue and has become unclear: else its turn would check it.
            let mut queued = std::mem::replace(&mut shared.ready, Fifo::new());
            let (mut clear, mut unclear) = (Fifo::new(), Fifo::new());
            while let Some(node) = queued.pop(&self.nodes) {
                let is_unclear = self.slot(node).word().is_unclear();
                let list = if is_unclear { &mut unclear } else { &mut clear };
                list.push(&self.nodes, node);
            }
            shared.ready = clear;
            shared.recheck.prepend(&self.nodes, unclear);
        }
        let mut left = shared.recheck.len();
        while left > 0 && !self.is_one_due(&shared) {
            let (hot, again) = self.check_some(shared, scratch);
            shared = self.lock();
            self.end_check(&mut shared, hot, again);
            if scratch.nodes.is_empty() {
                // Another thread checks the rest.
                break;
            }
            left = left.saturating_sub(scratch.nodes.len());
        }
        shared
    }
}
