//! The queue, and the other state that a port has once.

use std::sync::Arc;

use super::entries::{PendingWake, WorkerEntries};
use crate::backend::thread::Thread;
use crate::engine::context::{Name, PortPhase};
use crate::engine::nodes::Nodes;
use crate::engine::worker::Worker;
use crate::memory::trace::traces_changes;
use crate::state::free_list::FreeList;
use crate::state::queue::{Links, Node, NodeList, OP, POSTED};
use crate::state::schedule::{Wake, WorkerNumber};
use crate::state::stale_events::StaleEvents;
use crate::state::timers::Timers;
use crate::types::error::Fault;

/// Rare conditions of a port, in one word.
///
/// A wait, and a thread that queues a node, tests all of them with one comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) struct Flags(u8);

impl Flags {
    const NOTHING: Self = Self(0);
    /// The phase is not [`PortPhase::Open`].
    const ENDING: u8 = 1;
    /// A thread sleeps in `remove_and_wait`.
    const COLLECTED: u8 = 2;
    /// The queueing delay of packets is measured.
    pub(in crate::engine) const MEASURED: u8 = 4;
    /// A thread was found asleep and not reported by an event yet.
    const FOUND: u8 = 8;
    /// Tasks were deferred.
    pub(in crate::engine) const DEFERRED: u8 = 16;
    /// The program has a hook for when no thread waits.
    const HOOKED: u8 = 32;
    /// The port is finishing, and registrations may have become idle, or its time has passed.
    pub(in crate::engine) const FINISHING: u8 = 64;

    #[inline]
    pub(in crate::engine) fn is_any(self) -> bool {
        self != Self::NOTHING
    }

    /// Whether a flag concerns what is queued.
    #[inline]
    pub(in crate::engine) fn is_any_of_queue(self) -> bool {
        self.0 & !(Self::HOOKED | Self::DEFERRED) != 0
    }

    #[inline]
    pub(in crate::engine) fn has(self, what: u8) -> bool {
        self.0 & what != 0
    }

    #[inline]
    fn set(&mut self, what: u8, holds: bool) {
        self.0 = if holds { self.0 | what } else { self.0 & !what };
    }
}

/// See the module's documentation.
pub(in crate::engine) struct Lists {
    ready: NodeList,
    /// Tasks that are due or have ended. They make no packets. See
    /// [`Queue::defer`](super::Queue::defer).
    deferred: NodeList,
    /// Registrations to check with the kernel before they can be queued.
    recheck: NodeList,
    entries: WorkerEntries,
    phase: PortPhase,
    flags: Flags,
    slots: FreeList,
    posts: FreeList,
    /// How many messages report operations and are queued, or taken but not yet subtracted by their
    /// thread.
    tells: usize,
    /// The op indexes.
    ops: FreeList,
    /// The timers of posted messages and of deadlines.
    timers: Timers,
    stale_events: StaleEvents,
    /// How many threads poll or check without the lock and without taking packets. What they have
    /// found, or have taken off `recheck`, is in no list meanwhile. Also counts a thread that
    /// cancels operations while it closes the port, and the operations that were being tried at
    /// that time: their packets are yet to be queued.
    peeks: usize,
    /// Threads that sleep in `remove_and_wait`. They are woken whenever a key returns to its cell,
    /// since it may be theirs.
    collectors: Vec<Arc<dyn Thread>>,
    polls: u64,
    /// The polls that found nothing.
    empty_polls: u64,
    /// Why the kernel last refused to report what is ready.
    fault: Option<Fault>,
    /// The port is finishing: shared registrations with no operation in flight.
    idle: Vec<Name>,
    /// The time of the finishing port is over.
    is_overdue: bool,
}

/// The phase, and whether the port has ended.
impl Lists {
    /// Creates the lists of the port with this number.
    pub(super) fn new(number: u64) -> Self {
        Self {
            ready: NodeList::new(),
            deferred: NodeList::new(),
            recheck: NodeList::new(),
            entries: WorkerEntries::default(),
            phase: PortPhase::Open,
            flags: Flags::NOTHING,
            slots: FreeList::new(),
            posts: FreeList::new(),
            tells: 0,
            ops: FreeList::new(),
            timers: Timers::new(number << 32),
            stale_events: StaleEvents::new(),
            peeks: 0,
            collectors: Vec::new(),
            polls: 0,
            empty_polls: 0,
            fault: None,
            idle: Vec::new(),
            is_overdue: false,
        }
    }

    /// Whether no wait will return another packet.
    #[inline]
    pub(in crate::engine) fn is_over(&self) -> bool {
        self.phase != PortPhase::Open && self.is_over_at_last()
    }

    #[cold]
    fn is_over_at_last(&self) -> bool {
        match self.phase {
            PortPhase::Open => false,
            PortPhase::Finishing | PortPhase::ShuttingDown => {
                self.slots.in_use() == 0 && self.ready.is_empty()
            }
            PortPhase::Closed => {
                self.ready.is_empty()
                    && self.recheck.is_empty()
                    && self.deferred.is_empty()
                    && self.peeks == 0
            }
            PortPhase::Abandoned => true,
        }
    }

    #[inline]
    pub(in crate::engine) fn phase(&self) -> PortPhase {
        self.phase
    }

    pub(in crate::engine) fn set_phase(&mut self, phase: PortPhase) {
        self.phase = phase;
        self.flags.set(Flags::ENDING, phase != PortPhase::Open);
        if phase != PortPhase::Finishing {
            (self.is_overdue, self.idle) = (false, Vec::new());
            self.flags.set(Flags::FINISHING, false);
        }
    }

    #[inline]
    pub(in crate::engine) fn flags(&self) -> Flags {
        self.flags
    }

    /// Sets whether the queueing delay of packets is measured.
    pub(super) fn set_measured(&mut self, on: bool) {
        self.flags.set(Flags::MEASURED, on);
    }

    /// Sets whether the program has a hook for when no thread waits.
    pub(in crate::engine) fn set_hooked(&mut self, on: bool) {
        self.flags.set(Flags::HOOKED, on);
    }

    /// Keeps waits from ending for lack of packets until [`Lists::end_await`].
    ///
    /// Until then, packets that are in no list may still be queued.
    pub(in crate::engine) fn begin_await(&mut self) {
        self.peeks += 1;
    }

    pub(in crate::engine) fn end_await(&mut self) {
        self.peeks -= 1;
    }

    pub(super) fn set_fault(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    pub(super) fn fault(&self) -> Option<Fault> {
        self.fault
    }
}

/// A finishing port.
impl Lists {
    /// Notes that no operation of this shared registration is in flight. See
    /// [`Registry::finish_idle`](crate::engine::registry::Registry::finish_idle).
    ///
    /// Without memory, it is removed when the time of the port is over.
    pub(in crate::engine) fn note_idle(&mut self, name: Name) {
        if self.phase == PortPhase::Finishing && self.idle.try_reserve(1).is_ok() {
            self.idle.push(name);
            self.flags.set(Flags::FINISHING, true);
        }
    }

    /// Takes the names that [`Lists::note_idle`] has noted.
    pub(in crate::engine) fn take_idle(&mut self) -> Vec<Name> {
        self.flags.set(Flags::FINISHING, self.is_overdue);
        std::mem::take(&mut self.idle)
    }

    /// Notes that the time of the finishing port is over.
    pub(in crate::engine) fn note_overdue(&mut self) {
        if self.phase == PortPhase::Finishing {
            self.is_overdue = true;
            self.flags.set(Flags::FINISHING, true);
        }
    }

    /// Whether the time of the port is over. True once: the caller shuts the port down.
    pub(in crate::engine) fn take_overdue(&mut self) -> bool {
        std::mem::take(&mut self.is_overdue)
    }
}

/// The queue, and the registrations to check with the kernel.
impl Lists {
    #[inline]
    pub(in crate::engine) fn ready(&self) -> &NodeList {
        &self.ready
    }

    #[inline]
    pub(in crate::engine) fn push(&mut self, links: &impl Links, node: Node) {
        self.ready.push(links, node);
    }

    #[inline]
    pub(in crate::engine) fn append(&mut self, links: &impl Links, nodes: NodeList) {
        self.ready.append(links, nodes);
    }

    #[inline]
    pub(in crate::engine) fn prepend(&mut self, links: &impl Links, nodes: NodeList) {
        self.ready.prepend(links, nodes);
    }

    /// Takes the first `count` nodes of the queue.
    #[inline]
    pub(in crate::engine) fn split(&mut self, links: &impl Links, count: usize) -> NodeList {
        self.ready.split(links, count)
    }

    #[inline]
    pub(super) fn pop(&mut self, links: &impl Links) -> Option<Node> {
        self.ready.pop(links)
    }

    /// Takes the whole queue.
    pub(in crate::engine) fn take_ready(&mut self) -> NodeList {
        std::mem::replace(&mut self.ready, NodeList::new())
    }

    #[inline]
    pub(in crate::engine) fn recheck(&self) -> &NodeList {
        &self.recheck
    }

    #[inline]
    pub(in crate::engine) fn push_recheck(&mut self, links: &impl Links, node: Node) {
        self.recheck.push(links, node);
    }

    #[inline]
    pub(in crate::engine) fn append_recheck(&mut self, links: &impl Links, nodes: NodeList) {
        self.recheck.append(links, nodes);
    }

    pub(in crate::engine) fn prepend_recheck(&mut self, links: &impl Links, nodes: NodeList) {
        self.recheck.prepend(links, nodes);
    }

    #[inline]
    pub(in crate::engine) fn split_recheck(
        &mut self,
        links: &impl Links,
        count: usize,
    ) -> NodeList {
        self.recheck.split(links, count)
    }

    /// Takes a node out of its list. False if it is in none.
    pub(in crate::engine) fn unlink(&mut self, links: &impl Links, node: Node) -> bool {
        self.ready.unlink(links, node) || self.recheck.unlink(links, node)
    }

    pub(super) fn defer(&mut self, nodes: &Nodes, node: Node) {
        self.deferred.push(nodes, node);
        self.flags.set(Flags::DEFERRED, true);
    }

    pub(super) fn defer_all(&mut self, nodes: &Nodes, tasks: NodeList) {
        self.deferred.append(nodes, tasks);
        self.flags.set(Flags::DEFERRED, true);
    }

    pub(super) fn take_deferred(&mut self, nodes: &Nodes) -> Option<Node> {
        let node = self.deferred.pop(nodes);
        self.flags.set(Flags::DEFERRED, !self.deferred.is_empty());
        node
    }
}

/// Free lists of slots, message cells and op indexes, and the timers.
impl Lists {
    /// Takes a free slot. `None` without memory, which `reserve` allocates.
    pub(super) fn take_slot(
        &mut self,
        nodes: &Nodes,
        reserve: impl FnOnce(u32) -> bool,
    ) -> Option<u32> {
        self.slots.take(nodes, 0, reserve)
    }

    /// Frees a slot, unless its names are used up.
    pub(super) fn release_slot(&mut self, nodes: &Nodes, index: u32, is_used_up: bool) {
        if is_used_up {
            // Names are never reused, so the slot is not either.
            self.slots.retire();
        } else {
            self.slots.release(nodes, 0, index);
        }
    }

    /// Returns how many slots are in use.
    #[inline]
    pub(in crate::engine) fn registered(&self) -> usize {
        self.slots.in_use()
    }

    /// Returns a bound: no slot with this index or a higher one was ever used.
    pub(in crate::engine) fn highest_slot(&self) -> u32 {
        self.slots.highest()
    }

    /// Like [`Lists::take_slot`], for the cell of a message.
    pub(super) fn take_post(
        &mut self,
        nodes: &Nodes,
        reserve: impl FnOnce(u32) -> bool,
    ) -> Option<u32> {
        self.posts.take(nodes, POSTED, reserve)
    }

    pub(super) fn release_post(&mut self, nodes: &Nodes, cell: u32) {
        self.posts.release(nodes, POSTED, cell);
    }

    /// Counts a message that reports an operation.
    pub(super) fn count_tell(&mut self) {
        self.tells += 1;
    }

    /// Returns how many cells hold a message that is due, or have not been freed since. Those that
    /// report operations don't count.
    #[inline]
    pub(super) fn posts(&self) -> usize {
        // Too few for a moment if a thread has reused the cell of a message that it has not
        // subtracted yet. Another thread may even have freed it since.
        (self.posts.in_use() - self.timers.messages()).saturating_sub(self.tells)
    }

    /// Like [`Lists::take_slot`], for an op index.
    #[inline]
    pub(super) fn take_op(
        &mut self,
        nodes: &Nodes,
        reserve: impl FnOnce(u32) -> bool,
    ) -> Option<u32> {
        self.ops.take(nodes, OP, reserve)
    }

    pub(super) fn release_op(&mut self, nodes: &Nodes, op_index: u32) {
        self.ops.release(nodes, OP, op_index);
    }

    /// Returns a bound: no op index this high or higher was ever used.
    pub(in crate::engine) fn highest_op(&self) -> u32 {
        self.ops.highest()
    }

    /// Frees the cells and op indexes that the thread of `worker` has emptied, and subtracts the
    /// messages that it has taken.
    ///
    /// That thread calls this.
    // Part of each wait: a call would cost as much as the body.
    #[inline(always)]
    pub(in crate::engine) fn free_cells(&mut self, nodes: &Nodes, worker: &Worker) {
        // A single test for all: each wait makes it, and usually there is none.
        if worker.freed_cells().len() | worker.completed().len() | worker.told() == 0 {
            return;
        }
        self.tells -= worker.take_told();
        if let Some(cells) = worker.freed_cells().take() {
            self.posts.release_all(nodes, POSTED, cells);
        }
        if let Some(ops) = worker.completed().take() {
            self.ops.release_all(nodes, OP, ops);
        }
    }

    #[inline]
    pub(in crate::engine) fn timers(&self) -> &Timers {
        &self.timers
    }

    #[inline]
    pub(in crate::engine) fn timers_mut(&mut self) -> &mut Timers {
        &mut self.timers
    }
}

/// Polls, and edges of registrations that have ended.
impl Lists {
    /// Counts a poll that is about to start.
    #[inline]
    pub(in crate::engine) fn begin_poll(&mut self) {
        self.polls += 1;
    }

    /// Counts the result of a poll: edges of ended registrations, and whether that was all.
    #[inline]
    pub(in crate::engine) fn end_poll(&mut self, stale_events: usize, is_empty: bool) {
        self.empty_polls += u64::from(is_empty);
        self.stale_events.add(stale_events);
    }

    /// Returns how many polls there were, and how many of them found nothing.
    pub(in crate::engine) fn polls(&self) -> (u64, u64) {
        (self.polls, self.empty_polls)
    }

    /// Whether the calling thread must replace the kernel's set, which is full of stale events.
    #[inline]
    pub(in crate::engine) fn begin_replacing(&mut self) -> bool {
        self.stale_events.begin_replacing(self.slots.in_use())
    }

    pub(in crate::engine) fn end_replacing(&mut self, is_done: bool) {
        self.stale_events.end_replacing(is_done);
    }

    #[inline]
    pub(super) fn is_replacing(&self) -> bool {
        self.stale_events.is_replacing()
    }

    /// Returns how often the kernel's set was replaced.
    pub(in crate::engine) fn replacements(&self) -> u64 {
        self.stale_events.replacements()
    }

    /// Whether most edges of the kernel's set are about ended registrations.
    #[inline]
    pub(super) fn is_full_of_stale_events(&self) -> bool {
        self.stale_events.are_many(self.slots.in_use())
    }
}

/// The threads at the port, and those that wait for a key.
impl Lists {
    #[inline]
    pub(in crate::engine) fn entries(&self) -> &WorkerEntries {
        &self.entries
    }

    pub(in crate::engine) fn members_mut(&mut self) -> &mut WorkerEntries {
        &mut self.entries
    }

    /// Prepares the notice that wakes a thread, and counts it.
    #[inline]
    pub(in crate::engine) fn notice(&mut self, wake: Wake) -> PendingWake {
        self.entries.notice(wake)
    }

    /// Notes that the thread of `worker` was found asleep.
    pub(super) fn note_found(&mut self, worker: WorkerNumber) {
        self.entries.count_block(worker);
        if traces_changes() {
            self.entries.note_found(worker);
            self.flags.set(Flags::FOUND, true);
        }
    }

    /// Takes the threads that were found asleep since the last call.
    pub(in crate::engine) fn take_found(&mut self) -> Vec<WorkerNumber> {
        self.flags.set(Flags::FOUND, false);
        self.entries.take_found()
    }

    /// Wakes the threads in `remove_and_wait`.
    ///
    /// Nodes were queued or a slot was freed, which may be what one of them waits for.
    #[inline]
    pub(in crate::engine) fn tell_collectors(&self) {
        if self.flags.has(Flags::COLLECTED) {
            self.unpark_collectors();
        }
    }

    #[cold]
    fn unpark_collectors(&self) {
        for collector in &self.collectors {
            collector.unpark();
        }
    }

    /// Adds the calling thread, which is about to sleep until its key is in its cell.
    pub(in crate::engine) fn add_collector(&mut self, thread: Arc<dyn Thread>) {
        self.collectors.push(thread);
        self.flags.set(Flags::COLLECTED, true);
    }

    /// Removes a thread that no longer sleeps for its key.
    pub(in crate::engine) fn remove_collector(&mut self, thread: &Arc<dyn Thread>) {
        self.collectors.retain(|it| !std::ptr::addr_eq(Arc::as_ptr(it), Arc::as_ptr(thread)));
        self.flags.set(Flags::COLLECTED, !self.collectors.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::queue::{TELLS, cell_of};
    use crate::sync::tests::tested;

    #[test]
    fn messages_that_report_operations_do_not_count_as_posted() {
        tested(|| {
            let (nodes, worker) = (Nodes::new(), Worker::new(0));
            let mut lists = Lists::new(0);
            let begin = |lists: &mut Lists, tells: bool| {
                let cell = lists.take_post(&nodes, |cell| nodes.reserve_post(cell)).unwrap();
                if tells {
                    lists.count_tell();
                }
                cell | POSTED | if tells { TELLS } else { 0 }
            };
            let take = |node| {
                worker.count_message(node);
                worker.freed_cells().push(cell_of(node), nodes.post(cell_of(node)));
            };
            let told = begin(&mut lists, true);
            assert_eq!(lists.posts(), 0);
            let posted = begin(&mut lists, false);
            assert_eq!(lists.posts(), 1);
            take(told);
            take(posted);
            assert_eq!(lists.posts(), 1, "no cell is free yet");
            lists.free_cells(&nodes, &worker);
            assert_eq!((lists.posts(), lists.tells), (0, 0));
            // The thread reuses the cell before it is counted off. Another thread frees it.
            let told = begin(&mut lists, true);
            take(told);
            let reused = worker.freed_cells().pop(|cell| nodes.post(cell)).unwrap();
            lists.release_post(&nodes, reused);
            assert_eq!(lists.posts(), 0);
            lists.free_cells(&nodes, &worker);
            assert_eq!((lists.posts(), lists.tells), (0, 0));
        });
    }
}
