//! Whether there is a packet to take, for a thread that takes none and needs no worker.

use std::time::Duration;

use super::Scratch;
use crate::engine::Engine;
use crate::engine::context::PortPhase;
use crate::engine::queue::{Hub, Lists};
use crate::engine::worker::Worker;
use crate::state::queue::{Node, NodeList, POSTED};
use crate::state::schedule::most_further;
use crate::sync::MutexGuard;
use crate::types::error::{Call, Error, ErrorKind};

/// How many nodes of the queue one call examines.
const LEAVES: usize = 256;

impl Engine {
    /// Whether a packet is queued, or assigned to `own`, the calling thread's worker here.
    ///
    /// If not, queues what the kernel reports, unless another thread is in the kernel's wait, and
    /// checks readiness that is only remembered.
    pub(crate) fn has_packets(
        &self,
        own: Option<&Worker>,
        scratch: &mut Scratch,
    ) -> Result<bool, Error> {
        self.check_usable(Call::Wait)?;
        let mut hub = self.lock();
        if hub.lists().phase() != PortPhase::Abandoned
            && own.is_some_and(|own| self.is_one_left(own))
        {
            return Ok(true);
        }
        if hub.lists().is_over() {
            return Err(Error::new(Call::Wait, ErrorKind::Closed));
        }
        scratch.take_refusal();
        self.queue_due_for_others(&mut hub);
        if self.is_one_queued(hub.lists_mut()) {
            return Ok(true);
        }
        let mut found = false;
        hub = self.ask_for_others(hub, scratch, &mut found);
        if !found {
            hub = self.recheck_for_others(hub, scratch, &mut found);
            if self.is_one_shot() && !found {
                // Get the answers of the one-shot reactor.
                hub = self.ask_for_others(hub, scratch, &mut found);
            }
        }
        self.leave_to_others(hub, found, own);
        if scratch.take_refusal() && !found {
            return Err(self.take_fault());
        }
        Ok(found)
    }

    /// Queues what the kernel reports, unless a thread is in the kernel's wait.
    ///
    /// It does so even if packets are queued already.
    pub(crate) fn drive(&self, scratch: &mut Scratch) -> Result<(), Error> {
        self.check_usable(Call::Wait)?;
        let mut hub = self.lock();
        if hub.lists().is_over() {
            return Err(Error::new(Call::Wait, ErrorKind::Closed));
        }
        scratch.take_refusal();
        self.queue_due_for_others(&mut hub);
        let mut found = false;
        hub = self.ask_for_others(hub, scratch, &mut found);
        self.leave_to_others(hub, found, None);
        if scratch.take_refusal() {
            return Err(self.take_fault());
        }
        Ok(())
    }

    /// Queues what is due. If a thread is idle, the schedule wakes one in time for the next timer.
    fn queue_due_for_others(&self, hub: &mut Hub) {
        if hub.schedule().has_timers() {
            let (schedule, lists) = hub.parts_mut();
            schedule.next_timer(self.queue_due(lists, self.backend().now()));
        }
    }

    /// Leaves what was `found` to other threads, since the calling thread takes no packets.
    fn leave_to_others<'e>(
        &'e self,
        mut hub: MutexGuard<'e, Hub>,
        found: bool,
        own: Option<&Worker>,
    ) {
        let (schedule, lists) = hub.parts_mut();
        let wake = schedule.depart_calling(found, &self.view(lists, own));
        let notice = wake.map(|wake| lists.notice(wake));
        drop(self.end_if_over(hub));
        self.notify(notice);
        self.continue_finishing();
    }

    /// Whether the thread of `own` has an untaken node that brings a packet, or has put a message
    /// behind its packets.
    ///
    /// That thread calls this, with the lock.
    fn is_one_left(&self, own: &Worker) -> bool {
        // The thread takes no node meanwhile, and other threads take a chain away only under the
        // lock.
        own.has_behind() || NodeList::any_from(self.nodes(), own.chain(), |node| self.is_due(node))
    }

    /// Whether one of the first nodes of the queue brings a packet without a check.
    ///
    /// If none does, they move to the end, so that a later call examines the nodes that follow.
    fn is_one_queued(&self, lists: &mut Lists) -> bool {
        let mut first = lists.split(self.nodes(), LEAVES);
        if self.is_one_due(&first) {
            lists.prepend(self.nodes(), first);
            return true;
        }
        let mut unclear = NodeList::new();
        while let Some(node) = first.pop(self.nodes()) {
            // The node became unclear while it was queued. Left there, it would be checked at its
            // turn.
            let is_unclear = self.slot(node).word().is_unclear();
            if is_unclear {
                unclear.push(self.nodes(), node);
            } else {
                lists.push(self.nodes(), node);
            }
        }
        lists.prepend_recheck(self.nodes(), unclear);
        false
    }

    /// Whether some node of `list` brings a packet without a check.
    fn is_one_due(&self, list: &NodeList) -> bool {
        list.any(self.nodes(), |node| self.is_due(node))
    }

    fn is_due(&self, node: Node) -> bool {
        // An operation that must be tried counts as one that has ended. It usually has by its turn.
        node & POSTED != 0 || self.slot(node).word().is_due()
    }

    /// Polls without sleeping and without the lock, until it has `found` a packet.
    ///
    /// Also stops when the kernel has no more edges.
    fn ask_for_others<'e>(
        &'e self,
        mut hub: MutexGuard<'e, Hub>,
        scratch: &mut Scratch,
        found: &mut bool,
    ) -> MutexGuard<'e, Hub> {
        let mut left = 1 + most_further(&self.view(hub.lists_mut(), None));
        scratch.set_filled(true);
        while scratch.is_filled() && !*found && left > 0 {
            let (schedule, lists) = hub.parts_mut();
            if !schedule.may_ask(&self.view(lists, None)) {
                break;
            }
            left -= 1;
            scratch.set_filled(false);
            hub = self.poll_for_others(hub, scratch, found);
        }
        hub
    }

    fn poll_for_others<'e>(
        &'e self,
        mut hub: MutexGuard<'e, Hub>,
        scratch: &mut Scratch,
        found: &mut bool,
    ) -> MutexGuard<'e, Hub> {
        hub.lists_mut().begin_poll();
        hub.lists_mut().begin_await();
        drop(hub);
        let poll = self.poll(scratch, Some(Duration::ZERO));
        *found |= self.is_one_due(poll.ready());
        hub = self.lock();
        hub.lists_mut().end_await();
        let woken = poll.woken();
        self.end_poll(hub.lists_mut(), poll);
        if woken && hub.schedule().workers().in_kernel() > 0 {
            // The wake was meant for a thread that has entered the kernel's wait meanwhile, and
            // that leaves it only after a wake.
            drop(hub);
            self.backend().wake();
            hub = self.lock();
        }
        hub
    }

    /// Checks readiness that is only remembered, until a check has `found` a packet.
    fn recheck_for_others<'e>(
        &'e self,
        mut hub: MutexGuard<'e, Hub>,
        scratch: &mut Scratch,
        found: &mut bool,
    ) -> MutexGuard<'e, Hub> {
        let mut left = hub.lists().recheck().len();
        while left > 0 && !*found && !hub.lists().recheck().is_empty() {
            hub.lists_mut().begin_await();
            let checks = self.check_some(hub, scratch.checks());
            if checks.is_refused() {
                scratch.refuse();
            }
            *found = self.is_one_due(checks.hot());
            hub = self.lock();
            hub.lists_mut().end_await();
            self.end_check(hub.lists_mut(), checks);
            left = left.saturating_sub(scratch.checks().checked());
            if scratch.is_refused() {
                break;
            }
        }
        hub
    }
}
