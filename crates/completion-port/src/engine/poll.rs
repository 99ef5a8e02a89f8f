//! Polling: how a thread asks the kernel for edges, with and without sleeping there, and how the kernel's
//! set is replaced when it is full of ended registrations.

use std::sync::PoisonError;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::answer::until;
use super::desks::Brought;
use super::seat::Seat;
use super::{Engine, State, Stock, name_of, name_parts};
use crate::backend::reactor::{Until, Watch};
use crate::memory::trace::trace_aside;
use crate::state::facts::{Edge, Facts, Probe};
use crate::state::queue::{Fifo, Links, NIL, Node, Row, is_flight};
use crate::state::schedule::{Query, USUAL_EDGES};
use crate::state::slot::{Checked, Delivery, Next};
use crate::sync::{MutexGuard, barrier_behind_exchange};
use crate::types::error::Fault;

/// The buffers that a thread brings to a wait.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(super) edges: Vec<Edge>,
    pub(super) probes: Vec<Probe>,
    pub(super) nodes: Vec<Node>,
    pub(super) queries: Vec<Query>,
    /// The kernel had as many edges as there was room for when it was last asked: it may have more.
    pub(super) is_filled: bool,
    /// The kernel has refused to report what is ready. The refusal is kept, and the thread has not dealt with it yet.
    pub(super) is_refused: bool,
}

/// The most edges that a thread which is alone at its port asks the kernel for at once.
const MOST_EDGES: usize = 1024;

impl Scratch {
    /// The usual room.
    pub(crate) fn new() -> Self {
        Self::with_room(USUAL_EDGES)
    }

    /// Room for this many edges at once.
    pub(crate) fn with_room(edges: usize) -> Self {
        Self {
            edges: Vec::with_capacity(edges),
            probes: Vec::with_capacity(edges),
            nodes: Vec::with_capacity(edges),
            queries: Vec::new(),
            is_filled: false,
            is_refused: false,
        }
    }

    /// Makes room for twice as many edges, if that is not too many.
    pub(super) fn grow(&mut self) {
        let wanted = (2 * self.edges.capacity()).min(MOST_EDGES);
        self.edges.clear();
        self.edges.reserve_exact(wanted);
    }

    /// Makes the room for edges the usual one.
    #[cold]
    fn shrink(&mut self) {
        self.edges.clear();
        self.edges.shrink_to(USUAL_EDGES);
    }
}

/// What a poll has brought: the nodes that the calling thread owns now, how many edges were of
/// registrations that have ended, and whether the poll has used up a wake.
pub(super) struct Polled {
    pub(super) ready: Fifo,
    pub(super) recheck: Fifo,
    pub(super) strays: usize,
    pub(super) woken: bool,
}

/// A thread sleeps in the kernel's wait, for at most so long (`None`: no limit).
#[derive(Clone, Copy)]
struct Sleep(Option<Duration>);

impl Stock {
    /// Queues what a poll has brought.
    // Each wait that polls does this: a call would cost as much as what is called.
    #[inline(always)]
    pub(super) fn end_poll(&mut self, engine: &Engine, poll: Polled) {
        let Polled { ready, recheck, strays, woken } = poll;
        self.empty_polls += u64::from(ready.is_empty() && recheck.is_empty() && !woken);
        self.strays.add(strays);
        if self.notable.is_any() {
            engine.note_queued(self, &ready);
        }
        self.ready.append(&engine.nodes, ready);
        self.recheck.append(&engine.nodes, recheck);
    }
}

impl Engine {
    /// Asks the kernel for edges without waiting, and without the lock.
    pub(super) fn ask<'e>(
        &'e self,
        state: MutexGuard<'e, State>,
        seat: &Seat,
        scratch: &mut Scratch,
    ) -> MutexGuard<'e, State> {
        self.look(state, seat, scratch, None)
    }

    /// Enters the kernel's wait, for at most `timeout`, without the lock.
    pub(super) fn sleep_in_kernel<'e>(
        &'e self,
        state: MutexGuard<'e, State>,
        seat: &Seat,
        scratch: &mut Scratch,
        timeout: Option<Duration>,
    ) -> MutexGuard<'e, State> {
        self.look(state, seat, scratch, Some(Sleep(timeout)))
    }

    /// Asks the kernel for edges, without the lock. The thread may `sleep` there. Several threads may ask
    /// simultaneously; each edge goes to one of them.
    fn look<'e>(
        &'e self,
        mut state: MutexGuard<'e, State>,
        seat: &Seat,
        scratch: &mut Scratch,
        sleep: Option<Sleep>,
    ) -> MutexGuard<'e, State> {
        scratch.is_filled = false;
        let State { schedule, stock } = &mut *state;
        stock.polls += 1;
        // One thread replaces the set; until it has, no other one sleeps there.
        let is_full = stock.strays.begin_replacing(stock.slots.in_use());
        if scratch.edges.capacity() > USUAL_EDGES && schedule.may_run() > 1 {
            scratch.shrink();
        }
        drop(state);
        if is_full {
            self.replace_set();
        }
        let timeout = sleep.map_or(Some(Duration::ZERO), |Sleep(timeout)| timeout);
        let poll = self.poll(scratch, timeout);
        let mut state = self.lock();
        let State { schedule, stock } = &mut *state;
        if sleep.is_some() {
            schedule.end_in_kernel(seat.number);
        }
        schedule.polled(seat.number, &self.stage(stock, seat));
        let woken = poll.woken;
        stock.end_poll(self, poll);
        if woken { self.answer_wake(state, seat) } else { state }
    }

    /// A wake has brought the thread of `seat` out of the kernel's wait.
    #[inline(never)]
    fn answer_wake<'e>(
        &'e self,
        mut state: MutexGuard<'e, State>,
        seat: &Seat,
    ) -> MutexGuard<'e, State> {
        let State { schedule, stock } = &mut *state;
        let is_another_due = schedule.woken(seat.number, &mut self.stage(stock, seat));
        if !is_another_due {
            return state;
        }
        drop(state);
        self.backend.wake();
        self.lock()
    }

    /// The node of the lone operation of a slot.
    #[inline]
    fn own_node(&self, index: u32) -> Node {
        let own = self.desk(index).and_then(|desk| desk.own());
        own.expect("a lone operation has the record of its desk")
    }

    /// Asks the kernel for edges, without the lock, and notes each in its slot.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    pub(super) fn poll(&self, scratch: &mut Scratch, timeout: Option<Duration>) -> Polled {
        // A thread that reads from a descriptor and then arms its slot must either see this number,
        // or have read before the kernel looks.
        let poll = self.poll.fetch_add(1, SeqCst).wrapping_add(1);
        barrier_behind_exchange();
        let woken = match self.backend.poll(&mut scratch.edges, timeout) {
            Ok(woken) => woken,
            Err(fault) => {
                self.refused(scratch, fault);
                false
            }
        };
        let found = scratch.edges.len() + usize::from(woken);
        scratch.is_filled |= found >= scratch.edges.capacity();
        let mut ready = Row::new();
        let mut recheck = Row::new();
        let mut strays = 0;
        for edge in &scratch.edges {
            let (index, generation) = name_parts(edge.name);
            let Some(slot) = self.nodes.slots.find(index) else {
                // Or it tells of an operation: see below.
                strays += 1;
                continue;
            };
            let newest = || self.current_poll();
            if slot.queue(generation, edge.facts, poll, newest) {
                ready.push(index, &slot.link);
                continue;
            }
            if !self.is_one_shot && slot.queue_alone(generation, edge.facts) {
                let node = self.own_node(index);
                ready.push(node, self.nodes.link(node));
                continue;
            }
            if self.is_one_shot
                && edge.facts.any(Facts::RARE)
                && slot.word().is_lent()
                && let Some(desk) = self.desk(index)
            {
                desk.note_rare();
            }
            let is_news = !self.is_one_shot && edge.facts.any(Facts::ERR | Facts::HUP);
            let facts = if is_news { edge.facts | Facts::NEWS } else { edge.facts };
            let mut is_noted = false;
            while !is_noted {
                let delivery = slot.deliver(generation, facts, poll, newest);
                let next = match delivery {
                    Delivery::Noted(next) | Delivery::Stirred(next, _) => next,
                    Delivery::Due => {
                        let node = self.own_node(index);
                        ready.push(node, self.nodes.link(node));
                        Next::Nothing
                    }
                    Delivery::Stale => {
                        strays += 1;
                        break;
                    }
                };
                is_noted = match delivery {
                    Delivery::Stirred(_, flying) => {
                        let queue = |node| {
                            if !self.put_aside(node) {
                                ready.push(node, self.nodes.link(node));
                            }
                        };
                        !self.stir(index, slot, flying, queue)
                    }
                    _ => true,
                };
                match next {
                    Next::Queue => ready.push(index, &slot.link),
                    Next::Recheck if self.is_one_shot => {
                        match self.answer_by_edge(index, edge.facts, poll, newest()) {
                            Checked::Nothing => {}
                            Checked::Hot => ready.push(index, &slot.link),
                            Checked::Again => recheck.push(index, &slot.link),
                        }
                    }
                    Next::Recheck if self.is_change(slot, edge.facts) => {
                        match self.answer_change(index, edge.facts) {
                            Checked::Nothing => {}
                            Checked::Hot => ready.push(index, &slot.link),
                            Checked::Again => recheck.push(index, &slot.link),
                        }
                    }
                    Next::Recheck => recheck.push(index, &slot.link),
                    _ => {}
                }
                if self.is_one_shot && slot.word().is_lent() {
                    // The edge has used up what the reactor was asked for.
                    let mut ended = self.watch_lanes(edge.name, slot);
                    while let Some(node) = ended.pop(&self.nodes) {
                        if !self.put_aside(node) {
                            ready.push(node, self.nodes.link(node));
                        }
                    }
                }
            }
        }
        if strays > 0 {
            // Of those of no registration some may tell of operations that have come back.
            for name in scratch.edges.iter().map(|edge| edge.name) {
                if is_flight(name_parts(name).0) {
                    strays -= 1;
                    let Brought { nodes, to_check } = self.bring_back(name);
                    for node in nodes.into_iter().filter(|node| *node != NIL) {
                        ready.push(node, self.nodes.link(node));
                    }
                    if to_check != NIL {
                        recheck.push(to_check, self.nodes.link(to_check));
                    }
                }
            }
        }
        Polled { ready: ready.into_list(), recheck: recheck.into_list(), strays, woken }
    }

    /// The kernel has refused to report what is ready. The caller does not have the lock.
    #[cold]
    pub(super) fn refused(&self, scratch: &mut Scratch, fault: Fault) {
        scratch.is_refused = true;
        self.keep_fault(fault);
    }

    /// Replaces the kernel's set, which is full of strays.
    #[cold]
    fn replace_set(&self) {
        let rebuilt = self.rebuild();
        let mut state = self.lock();
        state.stock.strays.end_replacing(rebuilt);
        drop(state);
        // The calling thread is counted as one that polls already.
        trace_aside!(
            DEBUG,
            port = self.number,
            replaced = rebuilt,
            "the kernel's set was full of stale entries"
        );
    }

    /// Replaces the kernel's set by one that has only the live registrations.
    #[cold]
    fn rebuild(&self) -> bool {
        let highest = self.lock().stock.slots.highest();
        let _alone = self.set.write().unwrap_or_else(PoisonError::into_inner);
        let mut live = (0..highest).filter_map(|index| {
            let slot = self.nodes.slots.find(index)?;
            let word = slot.word();
            let wanted = word.is_live() && !word.is_removing();
            // If the number was closed and given out again, it is no longer this registration's.
            let wanted = wanted && (!word.is_borrowed() || self.backend.watches(slot.descriptor()));
            if wanted && let Some(desk) = self.desk(index) {
                desk.watch_briefly();
            }
            wanted.then(|| Watch {
                descriptor: slot.descriptor(),
                name: name_of(index, word.generation()),
                wanted: if self.is_one_shot { word.wanted_directions() } else { word.watched() },
                until: if self.is_one_shot { until(word) } else { Until::Detached },
            })
        });
        // If it is refused for want of a descriptor or of memory, the port goes on with the old set
        // and its stale edges.
        self.backend.rebuild(&mut live).is_ok()
    }
}
