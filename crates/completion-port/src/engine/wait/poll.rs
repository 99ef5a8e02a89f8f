//! Polling: how a thread asks the kernel for edges, asleep or not, and how the kernel's set is
//! replaced when it is full of stale events.

use std::time::Duration;

use crate::engine::Engine;
use crate::engine::context::name_parts;
use crate::engine::queue::{Hub, Lists};
use crate::engine::registry::CheckBuffers;
use crate::engine::worker::Worker;
use crate::memory::trace::trace_caught;
use crate::state::facts::{Edge, Facts};
use crate::state::queue::{Links, NIL, Node, NodeList, NodeListBuilder, is_op};
use crate::state::schedule::{Found, Query, USUAL_EDGES};
use crate::state::slot::{Checked, Delivery, Slot, SlotStep};
use crate::sync::{MutexGuard, barrier_behind_exchange};
use crate::types::error::Fault;

/// The buffers that a thread brings to a wait.
#[derive(Debug)]
pub(crate) struct Scratch {
    edges: Vec<Edge>,
    checks: CheckBuffers,
    queries: Vec<Query>,
    /// The last poll filled the room for edges: the kernel may have more.
    is_filled: bool,
    /// The kernel has refused to report what is ready. The fault is kept, and this thread has not
    /// handled it yet.
    is_refused: bool,
}

/// The most edges that a thread requests in one call when it is alone at its port.
const MOST_EDGES: usize = 1024;

impl Scratch {
    /// Makes the usual room.
    pub(crate) fn new() -> Self {
        Self::with_room(USUAL_EDGES)
    }

    /// Makes room for this many edges at a time.
    pub(crate) fn with_room(edges: usize) -> Self {
        Self {
            edges: Vec::with_capacity(edges),
            checks: CheckBuffers::with_room(edges),
            queries: Vec::new(),
            is_filled: false,
            is_refused: false,
        }
    }

    /// Returns the buffer for queries, empty at first, and whether the kernel may have more edges.
    #[inline]
    pub(super) fn for_schedule(&mut self) -> (&mut Vec<Query>, bool) {
        (&mut self.queries, self.is_filled)
    }

    #[inline]
    pub(super) fn checks(&mut self) -> &mut CheckBuffers {
        &mut self.checks
    }

    /// Assumes that the kernel has more edges, or none.
    #[inline]
    pub(super) fn set_filled(&mut self, is_filled: bool) {
        self.is_filled = is_filled;
    }

    #[inline]
    pub(super) fn is_filled(&self) -> bool {
        self.is_filled
    }

    /// Notes that the kernel has refused to report what is ready.
    #[inline]
    pub(super) fn refuse(&mut self) {
        self.is_refused = true;
    }

    #[inline]
    pub(super) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Takes the note that the kernel has refused to report what is ready. The caller handles it.
    #[inline]
    pub(super) fn take_refusal(&mut self) -> bool {
        std::mem::take(&mut self.is_refused)
    }

    /// Doubles the room for edges, up to a limit.
    pub(super) fn grow(&mut self) {
        let wanted = (2 * self.edges.capacity()).min(MOST_EDGES);
        self.edges.clear();
        self.edges.reserve_exact(wanted);
    }

    /// Reduces the room for edges to the usual one.
    #[cold]
    fn shrink(&mut self) {
        self.edges.clear();
        self.edges.shrink_to(USUAL_EDGES);
    }
}

/// The result of a poll: the nodes that the calling thread now owns, how many edges were of ended
/// registrations, and whether the poll consumed a wake.
pub(super) struct Polled {
    ready: NodeList,
    recheck: NodeList,
    /// Tasks, which make no packets.
    tasks: NodeList,
    stale_events: usize,
    woken: bool,
}

impl Polled {
    #[inline]
    pub(super) fn ready(&self) -> &NodeList {
        &self.ready
    }

    #[inline]
    pub(super) fn woken(&self) -> bool {
        self.woken
    }
}

/// The nodes that a poll has found so far, and how many edges belonged to no registration.
struct FoundNodes<'e> {
    ready: NodeListBuilder<'e>,
    recheck: NodeListBuilder<'e>,
    tasks: NodeListBuilder<'e>,
    stale_events: usize,
}

/// A sleep in the kernel's wait, limited to this time (`None`: no limit).
#[derive(Clone, Copy)]
struct Sleep(Option<Duration>);

impl Engine {
    /// Checks slots whose readiness is only remembered, in one call and without the lock.
    ///
    /// Those that are ready go to the end of the queue, after what the kernel reports.
    #[inline(never)]
    pub(super) fn recheck<'e>(
        &'e self,
        hub: MutexGuard<'e, Hub>,
        worker: &Worker,
        scratch: &mut Scratch,
    ) -> MutexGuard<'e, Hub> {
        let checks = self.check_some(hub, scratch.checks());
        if checks.is_refused() {
            scratch.refuse();
        }
        let mut hub = self.lock();
        // Get the answers of the one-shot reactor.
        if !checks.hot().is_empty() || self.is_one_shot() {
            let (schedule, lists) = hub.parts_mut();
            if schedule.asks(&self.view(lists, worker)) {
                hub = self.ask(hub, worker, scratch);
            }
        }
        self.end_check(hub.lists_mut(), checks);
        hub
    }

    /// Polls without sleeping and without the lock.
    pub(super) fn ask<'e>(
        &'e self,
        hub: MutexGuard<'e, Hub>,
        worker: &Worker,
        scratch: &mut Scratch,
    ) -> MutexGuard<'e, Hub> {
        self.look(hub, worker, scratch, None)
    }

    /// Enters the kernel's wait, for at most `timeout`, without the lock.
    pub(super) fn sleep_in_kernel<'e>(
        &'e self,
        hub: MutexGuard<'e, Hub>,
        worker: &Worker,
        scratch: &mut Scratch,
        timeout: Option<Duration>,
    ) -> MutexGuard<'e, Hub> {
        self.look(hub, worker, scratch, Some(Sleep(timeout)))
    }

    /// Polls without the lock; the thread may `sleep` in the kernel.
    ///
    /// Several threads may poll simultaneously; each edge goes to one of them.
    fn look<'e>(
        &'e self,
        mut hub: MutexGuard<'e, Hub>,
        worker: &Worker,
        scratch: &mut Scratch,
        sleep: Option<Sleep>,
    ) -> MutexGuard<'e, Hub> {
        scratch.is_filled = false;
        let (schedule, lists) = hub.parts_mut();
        lists.begin_poll();
        // One thread replaces the set. Until it has finished, no other thread sleeps there.
        let is_full = lists.begin_replacing();
        if scratch.edges.capacity() > USUAL_EDGES && schedule.workers().may_run() > 1 {
            scratch.shrink();
        }
        drop(hub);
        if is_full {
            self.replace_set();
        }
        let timeout = sleep.map_or(Some(Duration::ZERO), |Sleep(timeout)| timeout);
        let poll = self.poll(scratch, timeout);
        let mut hub = self.lock();
        let (schedule, lists) = hub.parts_mut();
        if sleep.is_some() {
            schedule.end_in_kernel(worker.number());
        }
        let found = Found::of(scratch.edges.iter().map(|edge| edge.name));
        schedule.polled(worker.number(), found, &self.view(lists, worker));
        let woken = poll.woken;
        self.end_poll(lists, poll);
        if woken { self.answer_wake(hub, worker) } else { hub }
    }

    /// Handles a wake that has brought the thread of `worker` out of the kernel's wait.
    #[inline(never)]
    fn answer_wake<'e>(
        &'e self,
        mut hub: MutexGuard<'e, Hub>,
        worker: &Worker,
    ) -> MutexGuard<'e, Hub> {
        let (schedule, lists) = hub.parts_mut();
        let is_another_due = schedule.woken(worker.number(), &mut self.view(lists, worker));
        if !is_another_due {
            return hub;
        }
        drop(hub);
        self.backend().wake();
        self.lock()
    }

    /// Polls without the lock, and notes each edge in its slot.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    pub(super) fn poll(&self, scratch: &mut Scratch, timeout: Option<Duration>) -> Polled {
        // A thread that reads from a descriptor and then arms its slot must either see this number,
        // or have read before the kernel looks.
        let poll = self.begin_poll();
        barrier_behind_exchange();
        let woken = self.ask_kernel(scratch, timeout);
        let mut found = FoundNodes {
            ready: NodeListBuilder::new(),
            recheck: NodeListBuilder::new(),
            tasks: NodeListBuilder::new(),
            stale_events: 0,
        };
        for edge in &scratch.edges {
            let (index, generation) = name_parts(edge.name);
            let Some(slot) = self.nodes().find_slot(index) else {
                // The edge may also report a request: see `bring_back_all`.
                found.stale_events += 1;
                continue;
            };
            if slot.queue(generation, edge.facts, poll, || self.current_poll()) {
                found.ready.push(index, &slot.link);
                continue;
            }
            if !self.is_one_shot() && slot.queue_alone(generation, edge.facts) {
                self.push_ready(self.own_node(index), &mut found.ready);
                continue;
            }
            self.note(edge, slot, poll, &mut found);
        }
        if found.stale_events > 0 {
            self.bring_back_all(&scratch.edges, &mut found);
        }
        let FoundNodes { ready, recheck, tasks, stale_events } = found;
        let (ready, recheck, tasks) = (ready.into_list(), recheck.into_list(), tasks.into_list());
        Polled { ready, recheck, tasks, stale_events, woken }
    }

    /// Polls. Returns whether that consumed a wake.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    fn ask_kernel(&self, scratch: &mut Scratch, timeout: Option<Duration>) -> bool {
        let woken = match self.backend().poll(&mut scratch.edges, timeout) {
            Ok(woken) => woken,
            Err(fault) => {
                self.refused(scratch, fault);
                false
            }
        };
        let found = scratch.edges.len() + usize::from(woken);
        scratch.is_filled |= found >= scratch.edges.capacity();
        woken
    }

    /// Notes an edge that does not simply queue its slot.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    fn note<'e>(&'e self, edge: &Edge, slot: &'e Slot, poll: u32, found: &mut FoundNodes<'e>) {
        let (index, generation) = name_parts(edge.name);
        if self.is_one_shot()
            && edge.facts.any(Facts::RARE)
            && slot.word().is_lent()
            && let Some(entry) = self.entry(index)
        {
            entry.note_rare();
        }
        let is_news = !self.is_one_shot() && edge.facts.any(Facts::ERR | Facts::HUP);
        let facts = if is_news { edge.facts | Facts::NEWS } else { edge.facts };
        let mut is_noted = false;
        while !is_noted {
            let delivery = slot.deliver(generation, facts, poll, || self.current_poll());
            let next = match delivery {
                Delivery::Noted(next) | Delivery::NotifyOps(next, _) => next,
                Delivery::Due => {
                    self.push_ready(self.own_node(index), &mut found.ready);
                    SlotStep::Nothing
                }
                Delivery::Stale => {
                    found.stale_events += 1;
                    break;
                }
            };
            is_noted = match delivery {
                Delivery::NotifyOps(_, in_flight) => {
                    let queue = |node| self.push(node, found);
                    !self.notify_ready(index, slot, in_flight, queue)
                }
                _ => true,
            };
            self.follow_edge(next, edge, slot, poll, found);
            if self.is_one_shot() && slot.word().is_lent() {
                // The edge has used up what the reactor was asked for.
                let mut ended = self.watch_or_end(edge.name, slot);
                while let Some(node) = ended.pop(self.nodes()) {
                    self.push(node, found);
                }
            }
        }
    }

    /// Does what a noted edge requires. The calling thread owns the node if it must be queued.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    fn follow_edge<'e>(
        &'e self,
        next: SlotStep,
        edge: &Edge,
        slot: &'e Slot,
        poll: u32,
        found: &mut FoundNodes<'e>,
    ) {
        let (index, _) = name_parts(edge.name);
        let checked = match next {
            SlotStep::Queue => Checked::Hot,
            SlotStep::Recheck if self.is_one_shot() => {
                self.answer_by_edge(index, edge.facts, poll, self.current_poll())
            }
            SlotStep::Recheck if self.is_change(slot, edge.facts) => {
                self.answer_change(index, edge.facts)
            }
            SlotStep::Recheck => Checked::Again,
            _ => Checked::Nothing,
        };
        match checked {
            Checked::Nothing => {}
            Checked::Hot => found.ready.push(index, &slot.link),
            Checked::Again => found.recheck.push(index, &slot.link),
        }
    }

    /// Takes the completed requests that are reported by edges of no registration.
    #[inline]
    fn bring_back_all<'e>(&'e self, edges: &[Edge], found: &mut FoundNodes<'e>) {
        for name in edges.iter().map(|edge| edge.name) {
            if is_op(name_parts(name).0) {
                found.stale_events -= 1;
                let (nodes, to_check) = self.bring_back(name).into_parts();
                for node in nodes.into_iter().filter(|node| *node != NIL) {
                    self.push_ready(node, &mut found.ready);
                }
                if to_check != NIL {
                    found.recheck.push(to_check, self.nodes().link(to_check));
                }
            }
        }
    }

    #[inline]
    fn push_ready<'e>(&'e self, node: Node, ready: &mut NodeListBuilder<'e>) {
        ready.push(node, self.nodes().link(node));
    }

    /// Queues the node of an operation, or defers that of a task.
    #[inline]
    fn push<'e>(&'e self, node: Node, found: &mut FoundNodes<'e>) {
        let list = if self.is_deferrable(node) { &mut found.tasks } else { &mut found.ready };
        self.push_ready(node, list);
    }

    /// Queues what a poll has found.
    // Part of each wait that polls: a call would cost as much as the body.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    pub(super) fn end_poll(&self, lists: &mut Lists, poll: Polled) {
        let Polled { ready, recheck, tasks, stale_events, woken } = poll;
        lists.end_poll(stale_events, ready.is_empty() && recheck.is_empty() && !woken);
        if lists.flags().is_any_of_queue() {
            self.note_queued(lists, &ready);
        }
        lists.append(self.nodes(), ready);
        lists.append_recheck(self.nodes(), recheck);
        if !tasks.is_empty() {
            self.defer_all_locked(lists, tasks);
        }
    }

    /// Keeps the kernel's refusal to report what is ready. The caller does not hold the lock.
    #[cold]
    pub(super) fn refused(&self, scratch: &mut Scratch, fault: Fault) {
        scratch.refuse();
        self.keep_fault(fault);
    }

    /// Replaces the kernel's set, which is full of stale events.
    #[cold]
    fn replace_set(&self) {
        let rebuilt = self.rebuild();
        let mut hub = self.lock();
        hub.lists_mut().end_replacing(rebuilt);
        drop(hub);
        // A panic of the subscriber stops here: this thread already counts as one that polls.
        trace_caught!(
            DEBUG,
            port = self.number(),
            replaced = rebuilt,
            "the kernel's set was full of stale entries"
        );
    }
}
