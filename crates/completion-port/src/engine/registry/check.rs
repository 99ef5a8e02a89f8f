//! Checks: asking the kernel whether readiness that a slot only remembers still holds.

use super::Registry;
use crate::engine::context::name_of;
use crate::engine::queue::{Hub, Lists};
use crate::engine::worker::Worker;
use crate::state::facts::{Facts, Probe};
use crate::state::queue::{Node, NodeList};
use crate::state::schedule::Status;
use crate::state::slot::{Checked, SlotStep};
use crate::sync::MutexGuard;
use crate::types::error::Fault;

/// The buffers that a check needs.
#[derive(Debug)]
pub(in crate::engine) struct CheckBuffers {
    probes: Vec<Probe>,
    nodes: Vec<Node>,
}

impl CheckBuffers {
    /// Makes room for this many slots at a time.
    pub(in crate::engine) fn with_room(slots: usize) -> Self {
        Self { probes: Vec::with_capacity(slots), nodes: Vec::with_capacity(slots) }
    }

    /// Returns how many slots the last check was about.
    pub(in crate::engine) fn checked(&self) -> usize {
        self.nodes.len()
    }
}

/// The results of checks: slots that are ready, and slots that must be checked again.
pub(in crate::engine) struct Checks {
    hot: NodeList,
    again: NodeList,
    is_refused: bool,
}

impl Checks {
    #[inline]
    pub(in crate::engine) fn hot(&self) -> &NodeList {
        &self.hot
    }

    /// Whether the kernel refused to report what is ready. The fault was kept.
    #[inline]
    pub(in crate::engine) fn is_refused(&self) -> bool {
        self.is_refused
    }
}

impl Registry {
    /// Checks as many slots as there is room for. Releases the lock meanwhile.
    #[inline]
    pub(in crate::engine) fn check_some(
        &self,
        mut hub: MutexGuard<'_, Hub>,
        buffers: &mut CheckBuffers,
    ) -> Checks {
        let room = buffers.probes.capacity().max(1);
        let mut part = hub.lists_mut().split_recheck(self.nodes(), room);
        drop(hub);
        buffers.nodes.clear();
        buffers.probes.clear();
        if self.is_one_shot() {
            let hot = self.want_some(part, buffers);
            return Checks { hot, again: NodeList::new(), is_refused: false };
        }
        while let Some(node) = part.pop(self.nodes()) {
            let slot = self.slot(node);
            slot.begin_check();
            buffers.nodes.push(node);
            buffers.probes.push(Probe { descriptor: slot.descriptor(), facts: Facts::NONE });
        }
        let mut hot = NodeList::new();
        let mut again = NodeList::new();
        if let Err(fault) = self.backend().probe(&mut buffers.probes) {
            self.keep_fault(fault);
            for node in &buffers.nodes {
                again.push(self.nodes(), *node);
            }
            return Checks { hot, again, is_refused: true };
        }
        for (node, probe) in buffers.nodes.iter().zip(&buffers.probes) {
            match self.answer(*node, probe.facts) {
                Checked::Nothing => {}
                Checked::Hot => hot.push(self.nodes(), *node),
                Checked::Again => again.push(self.nodes(), *node),
            }
        }
        Checks { hot, again, is_refused: false }
    }

    /// Asks a one-shot reactor about each slot. Returns those that need no answer.
    fn want_some(&self, mut part: NodeList, buffers: &mut CheckBuffers) -> NodeList {
        let mut hot = NodeList::new();
        while let Some(node) = part.pop(self.nodes()) {
            buffers.nodes.push(node);
            if self.want_one(node) {
                hot.push(self.nodes(), node);
            }
        }
        hot
    }

    /// Asks a one-shot reactor about a slot and releases its node: the answer is an edge.
    ///
    /// True if the caller still owns the node, which is ready for its turn.
    fn want_one(&self, node: Node) -> bool {
        let slot = self.slot(node);
        // Read the name first: once the node is released, the slot may belong to another
        // registration.
        let name = name_of(node, slot.word().generation());
        if !slot.await_edge() || !self.want(slot, name) {
            return true;
        }
        self.revalidate_returned(node);
        false
    }

    /// Queues the results of a check.
    #[inline]
    pub(in crate::engine) fn end_check(&self, lists: &mut Lists, checks: Checks) {
        let Checks { hot, again, .. } = checks;
        if lists.flags().is_any_of_queue() {
            self.note_queued(lists, &hot);
        }
        lists.append(self.nodes(), hot);
        lists.append_recheck(self.nodes(), again);
    }

    /// Checks a single slot.
    ///
    /// True if the caller still owns the node, which is ready for its turn.
    #[inline(never)]
    pub(in crate::engine) fn check_one(&self, node: Node) -> bool {
        if self.is_one_shot() {
            return self.want_one(node);
        }
        loop {
            let slot = self.slot(node);
            slot.begin_check();
            let mut probe = [Probe { descriptor: slot.descriptor(), facts: Facts::NONE }];
            if let Err(fault) = self.backend().probe(&mut probe) {
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

    /// Postpones the check of a slot about which the kernel refused to answer.
    ///
    /// The caller owns the node. The slot is checked in a later wait; the next wait reports the
    /// fault.
    #[cold]
    fn put_off(&self, node: Node, fault: Fault) {
        self.keep_fault(fault);
        let mut hub = self.lock();
        let (schedule, lists) = hub.parts_mut();
        lists.push_recheck(self.nodes(), node);
        lists.tell_collectors();
        let wake = schedule.look_after(&self.view(lists, None));
        let notice = wake.map(|wake| lists.notice(wake));
        drop(hub);
        self.notify(notice);
    }

    /// Does what a change of the slot requires. The caller owns the node if it must be queued.
    #[inline]
    pub(in crate::engine) fn follow(&self, next: SlotStep, node: Node, worker: Option<&Worker>) {
        match next {
            SlotStep::Nothing => {}
            // User code of this call, such as a key's clone or a hint, has forked, and this is the
            // child.
            _ if self.forked() => {}
            SlotStep::Queue => self.submit(node),
            SlotStep::Recheck => self.queue_check(node, worker),
            SlotStep::Collect => self.announce_collected(),
            SlotStep::Idle => self.note_idle(node),
            SlotStep::Gone => unreachable!("only the return of a token finds this, and handles it"),
        }
    }

    /// Queues a slot for a check.
    ///
    /// A thread that runs at the port leaves the check to the next wait. Any other thread checks
    /// immediately.
    pub(in crate::engine) fn queue_check(&self, node: Node, worker: Option<&Worker>) {
        if let Some(worker) = worker {
            let mut hub = self.lock();
            let (schedule, lists) = hub.parts_mut();
            if schedule.workers().status(worker.number()) == Status::Running && !worker.has_left() {
                lists.push_recheck(self.nodes(), node);
                lists.tell_collectors();
                let wake = schedule.look_after(&self.view(lists, worker));
                let notice = wake.map(|wake| lists.notice(wake));
                drop(hub);
                self.notify(notice);
                return;
            }
        }
        if self.check_one(node) {
            self.submit(node);
        }
    }
}
