//! The loop in which threads wait, and what they take from it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};
use std::time::Duration;

use super::seat::{Notice, Seat};
use super::share::nanoseconds;
use super::watch::{STALE_EDGES, STUCK};
use super::{Engine, Phase, Shared, Token, token, token_parts};
use crate::interest::Events;
use crate::state::crew::{Portion, View};
use crate::state::facts::{Edge, Probe};
use crate::state::queue::{Fifo, Links, NIL, Node, POSTED, Row};
use crate::state::seats::{SeatNumber, Status};
use crate::state::slot::{Delivery, Next, Slot, Turn};
use crate::sync::{AtomicU64, MutexGuard, barrier_behind_exchange};
use crate::sys::backend::ThreadHandle;
use crate::trace::trace;

/// What a thread brings to a wait: room to work in.
#[derive(Debug)]
pub(crate) struct Scratch {
    pub(crate) edges: Vec<Edge>,
    pub(crate) probes: Vec<Probe>,
    pub(crate) nodes: Vec<Node>,
    /// The kernel had as many edges as there was room for when it was last asked: it may have more.
    pub(crate) is_filled: bool,
}

/// Edges that the kernel is asked for at once, unless a thread is alone and wants more: others would wait
/// until they are all noted.
const USUAL: usize = 64;

/// Edges that the kernel is asked for at once, at most.
const MOST: usize = 1024;

impl Scratch {
    /// The usual room.
    pub(crate) fn new() -> Self {
        Self {
            edges: Vec::with_capacity(USUAL),
            probes: Vec::with_capacity(USUAL),
            nodes: Vec::with_capacity(USUAL),
            is_filled: false,
        }
    }

    /// Makes room for twice as many edges, if that is not too many.
    fn grow(&mut self) {
        let wanted = (2 * self.edges.capacity()).min(MOST);
        self.edges.clear();
        self.edges.reserve_exact(wanted);
    }

    /// Makes the room for edges the usual one.
    #[cold]
    fn shrink(&mut self) {
        self.edges.clear();
        self.edges.shrink_to(USUAL);
    }
}

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The seat has been handed packets.
    Packets,
    /// The time is over.
    TimedOut,
    /// The port is closed and nothing is left in it.
    Closed,
}

/// A packet whose turn has come. The caller owns what it names.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Taken<'e> {
    /// The key is the caller's, in its cell, until it is put back.
    Ready(&'e Slot, Token, Events),
    /// The key is to be cloned, then [`Engine::cloned`] called.
    Notified(Token, Events),
    /// The message is to be moved out, then [`Engine::free_post`] called.
    Posted(u32),
    /// The key is to be moved out, then [`Engine::free`] called.
    Removed(Token),
    /// The key is to be dropped, then [`Engine::free`] called.
    Gone(Token),
}

/// What the kernel has reported: the nodes that the calling thread owns by that, how many edges were of
/// registrations that have ended, and whether a wake has been used up.
pub(super) struct Harvest {
    pub(super) ready: Fifo,
    pub(super) recheck: Fifo,
    pub(super) strays: usize,
    pub(super) woken: bool,
}

/// What it takes to harvest a set, more or less.
const MOMENT: Duration = Duration::from_micros(50);

impl Engine {
    /// Waits until `seat` has been handed packets, at most `room` of them, or `deadline` is over
    /// (`None`: no limit).
    pub(crate) fn wait(
        &self,
        seat: &Seat,
        scratch: &mut Scratch,
        room: usize,
        deadline: Option<Duration>,
    ) -> Waited {
        seat.advance();
        seat.presumed_blocked.store(false, Relaxed);
        let me = seat.number;
        let mut called = false;
        let measured = self.end_share(seat);
        let mut shared = self.lock();
        if let Some(measured) = measured {
            shared.crew.note(measured);
        }
        // Left over if the iterator of an earlier wait was forgotten, or is still about.
        self.take_back(&mut shared, seat);
        self.give_back_emptied(&mut shared, seat);
        let others_came = shared.seats.arrive(me);
        if shared.loaded > 0 {
            // Somebody has a share that he may be stuck with, and perhaps nobody is idle to watch. Most
            // likely he was preempted, which would last for a millisecond or more.
            let now = self.backend.now();
            if now >= shared.ticked + STUCK {
                shared = self.tick(shared, seat, scratch, now);
            }
        }
        let mut rests = others_came && shared.posts.in_use() == 0 && {
            let queued = shared.ready.len() + shared.recheck.len();
            let others = shared.seats.others_at_work(me);
            shared.crew.leaves(me, queued, others, || nanoseconds(self.backend.now()))
        };
        let mut asked = shared.asked;
        let mut further = 0;
        loop {
            if shared.seats.status(me) == Status::Given {
                shared.seats.run(me);
                let notice = self.depart(&mut shared);
                drop(shared);
                self.notify(notice);
                return Waited::Packets;
            }
            if shared.seats.status(me) == Status::Called {
                shared.seats.answer(me);
                called = true;
                rests = false;
                if shared.seats.watching() == Some(me) {
                    shared.patient = false;
                }
            }
            if Self::is_over(&shared) {
                shared.seats.dismiss(me);
                let ended = self.end_if_over(&mut shared);
                drop(shared);
                self.notify_all(ended);
                return Waited::Closed;
            }
            // What there is to find, here and with the kernel, is left to those who run.
            let leaves = rests
                || shared.patient
                    && shared.seats.watching() == Some(me)
                    && shared.seats.running() > 0
                    && !shared.crew.is_long();
            let takes = shared.seats.has_room() && !leaves;
            if !shared.recheck.is_empty() && takes {
                shared = self.recheck(shared, seat, scratch);
                continue;
            }
            if !shared.ready.is_empty() && takes {
                Self::recount(&mut shared);
                if !shared.seats.has_room() {
                    continue;
                }
                if self.may_inspect(&mut shared) {
                    shared = self.inspect(shared);
                    continue;
                }
                // Packets that were left over must neither hide what is true by now nor go before it
                // for ever: the kernel is asked once in each wait.
                if shared.asked == asked && Self::may_ask(&shared) {
                    let all = shared.seats.running() == 0;
                    shared = self.ask(shared, seat, scratch, all);
                    continue;
                }
                // Where others may run, what the kernel has left is found by the next one that comes.
                if scratch.is_filled
                    && shared.seats.may_run() == 1
                    && self.may_ask_further(&shared, room, &mut further)
                {
                    scratch.grow();
                    shared = self.ask(shared, seat, scratch, true);
                    continue;
                }
                let notice = self.claim(&mut shared, seat, room);
                if shared.phase != Phase::Open {
                    let ended = self.end_if_over(&mut shared);
                    drop(shared);
                    self.notify_all(ended);
                } else {
                    drop(shared);
                }
                self.notify(notice);
                return Waited::Packets;
            }
            if std::mem::take(&mut called) {
                shared.needless += 1;
            }
            let can_poll = self.may_poll(&shared, me);
            let attended = if can_poll && !leaves {
                Self::is_quiet(&shared)
            } else {
                Self::is_attended(&shared)
            };
            if !attended && shared.seats.watching().is_none() {
                shared.seats.watch(me);
                shared.due = None;
                shared.patient = rests || !can_poll;
            }
            let now = if deadline.is_some() || shared.seats.watching() == Some(me) {
                self.backend.now()
            } else {
                Duration::ZERO
            };
            let left = deadline.map(|deadline| deadline.saturating_sub(now));
            if left == Some(Duration::ZERO) {
                if leaves {
                    // It is this thread's last chance to find something, here or with the kernel.
                    shared.patient = false;
                    rests = false;
                    asked = shared.asked;
                    continue;
                }
                let asks = shared.asked == asked
                    || scratch.is_filled && self.may_ask_further(&shared, 1, &mut further);
                if can_poll && shared.seats.polling() == 0 && asks {
                    shared = self.ask(shared, seat, scratch, true);
                    continue;
                }
                shared.seats.run(me);
                let notice = self.depart(&mut shared);
                drop(shared);
                self.notify(notice);
                return Waited::TimedOut;
            }
            let mut due = None;
            if shared.seats.watching() == Some(me) {
                if shared.due.is_some_and(|due| due <= now) {
                    shared = self.tick(shared, seat, scratch, now);
                    rests = false;
                    continue;
                }
                due = shared.due.or_else(|| Some(Self::begin_watch(&mut shared, now)));
            }
            shared.seats.rest(me);
            shared.crew.rest(me);
            if can_poll && !leaves {
                let mut timeout = left;
                if let Some(due) = due {
                    // What it finds there it takes itself.
                    shared.patient = false;
                    timeout = Some(timeout.unwrap_or(Duration::MAX).min(due.saturating_sub(now)));
                }
                shared = self.doze(shared, seat, scratch, timeout);
            } else {
                shared = self.sleep(shared, me, |thread| match due {
                    None => thread.park(left),
                    Some(due) => thread.nap(due, deadline),
                });
                rests = false;
            }
        }
    }

    /// Sleeps without the lock, `how` it is told, until somebody wants the calling thread, whose seat is
    /// `me`, or the time for it is over, or for no reason.
    #[inline(never)]
    fn sleep<'e>(
        &'e self,
        shared: MutexGuard<'e, Shared>,
        me: SeatNumber,
        how: impl FnOnce(&dyn ThreadHandle),
    ) -> MutexGuard<'e, Shared> {
        let member = shared.members[me].as_ref().expect("who waits has a seat");
        let thread = Arc::clone(&member.thread);
        drop(shared);
        how(&*thread);
        self.lock()
    }

    /// Whether waits return at once because the port is closed and nothing is left in it.
    pub(crate) fn is_closed(&self) -> bool {
        self.phase() != Phase::Open && Self::is_over(&self.lock())
    }

    /// Whether somebody should ask the kernel for edges who is not to sleep there.
    #[inline]
    pub(super) fn may_ask(shared: &Shared) -> bool {
        let any = shared.slots.in_use() > 0;
        let takes_edges = matches!(shared.phase, Phase::Open | Phase::ShuttingDown);
        any && shared.seats.polling() == 0 && takes_edges
    }

    /// Whether the kernel, which may have had more to tell than there was room for, is asked once more, to
    /// have so many packets. `further` counts how often it is.
    #[cold]
    fn may_ask_further(&self, shared: &Shared, packets: usize, further: &mut usize) -> bool {
        let is_short = shared.ready.len() + shared.recheck.len() < packets;
        *further += 1;
        is_short && *further <= self.most_further(shared) && Self::may_ask(shared)
    }

    /// How often the kernel is asked once more at most, by which all it has is found: each descriptor is
    /// found once, unless something happens to it meanwhile.
    pub(super) fn most_further(&self, shared: &Shared) -> usize {
        shared.slots.in_use() / USUAL + self.harvests.len()
    }

    /// Whether one more thread may enter the kernel's wait, beside others.
    ///
    /// A set that is about to be replaced takes no more threads, since one that sleeps in the old set hears
    /// nothing of the new one. The kernel releases the thread that came to it last; so only the newest comes
    /// to it.
    fn may_poll(&self, shared: &Shared, me: SeatNumber) -> bool {
        let others = shared.seats.polling();
        if others == 0 {
            return shared.seats.has_room() && !shared.rebuilding;
        }
        let running = shared.seats.running();
        let searching = shared.seats.others_at_work(me) - running;
        let now = || nanoseconds(self.backend.now());
        self.harvests.len() == 1
            && shared.crew.may_join(others, running, searching, now)
            && shared.seats.is_newest_poller(me)
            && !shared.rebuilding
            && !Self::is_full_of_strays(shared)
    }

    /// Whether most of what the kernel's sets report is of registrations that have ended.
    fn is_full_of_strays(shared: &Shared) -> bool {
        shared.stale > STALE_EDGES.max(shared.slots.in_use())
    }

    /// The seat takes its share of what is queued.
    pub(super) fn claim(&self, shared: &mut Shared, seat: &Seat, room: usize) -> Option<Notice> {
        let view = View {
            queued: shared.ready.len(),
            room,
            others: shared.seats.others_at_work(seat.number),
            helpers: shared.seats.helpers(seat.number),
            threads: shared.seats.may_run(),
            handed: shared.handed,
        };
        let now = || nanoseconds(self.backend.now());
        let Portion { packets, call } = shared.crew.divide(seat.number, view, now);
        let chain = shared.ready.split(&self.nodes, packets);
        shared.handed += chain.len() as u64;
        self.begin_share(seat, chain.len());
        if chain.len() > 1 {
            seat.loaded.store(true, Relaxed);
            shared.loaded += 1;
        }
        seat.chain.store(chain.into_chain(), Release);
        shared.seats.run(seat.number);
        if !shared.ready.is_empty() && shared.seats.idle() > 0 && !shared.seats.has_room() {
            self.glance(shared);
        }
        self.depart_calling(shared, call || shared.ready.begins_with_post())
    }

    /// Asks the kernel for edges without waiting, and without the lock. Of several sets that nobody
    /// harvests, `all` of them or the next one: where many threads run, each asks in its turn.
    pub(super) fn ask<'e>(
        &'e self,
        mut shared: MutexGuard<'e, Shared>,
        seat: &Seat,
        scratch: &mut Scratch,
        all: bool,
    ) -> MutexGuard<'e, Shared> {
        shared.asked = shared.asked.wrapping_add(1);
        scratch.is_filled = false;
        let sets = self.harvests.len();
        let first = shared.next_set;
        for set in (first..first + sets).map(|set| set % sets) {
            // Of a single set each edge goes to one of those that ask.
            if sets > 1 && shared.harvesting[set] {
                continue;
            }
            shared.next_set = (set + 1) % sets;
            shared = self.look(shared, seat, scratch, set, Some(Duration::ZERO));
            if !all {
                break;
            }
        }
        shared
    }

    /// Enters the kernel's wait, for at most `timeout`, without the lock.
    fn doze<'e>(
        &'e self,
        mut shared: MutexGuard<'e, Shared>,
        seat: &Seat,
        scratch: &mut Scratch,
        timeout: Option<Duration>,
    ) -> MutexGuard<'e, Shared> {
        shared.asked = shared.asked.wrapping_add(1);
        scratch.is_filled = false;
        if self.harvests.len() == 1 {
            return self.look(shared, seat, scratch, 0, timeout);
        }
        self.doze_by_several_sets(shared, seat, scratch, timeout)
    }

    #[inline(never)]
    fn doze_by_several_sets<'e>(
        &'e self,
        mut shared: MutexGuard<'e, Shared>,
        seat: &Seat,
        scratch: &mut Scratch,
        timeout: Option<Duration>,
    ) -> MutexGuard<'e, Shared> {
        let sets = self.harvests.len();
        shared.seats.begin_polling(seat.number);
        drop(shared);
        let ready = self.backend.doze(timeout);
        let mut shared = self.lock();
        shared.seats.end_polling(seat.number);
        self.note_visit(&mut shared, seat);
        let mut in_vain = ready != 0;
        for set in (0..sets).filter(|set| ready & 1 << set != 0) {
            if !shared.harvesting[set] {
                in_vain = false;
                shared = self.look(shared, seat, scratch, set, Some(Duration::ZERO));
            }
        }
        if in_vain {
            // What is there is being harvested, and is found again until that is done.
            shared = self.sleep(shared, seat.number, |thread| thread.park(Some(MOMENT)));
        }
        shared
    }

    /// Asks the kernel for the edges of one set, without the lock; if there is only that one, for at
    /// most `timeout`. Of several sets each is asked by one thread at a time, which the caller has made
    /// sure of.
    fn look<'e>(
        &'e self,
        mut shared: MutexGuard<'e, Shared>,
        seat: &Seat,
        scratch: &mut Scratch,
        set: usize,
        timeout: Option<Duration>,
    ) -> MutexGuard<'e, Shared> {
        let sleeps = self.harvests.len() == 1 && timeout != Some(Duration::ZERO);
        if sleeps {
            shared.seats.begin_polling(seat.number);
        }
        shared.harvesting[set] = true;
        shared.harvests += 1;
        // One thread replaces the sets; until it has, no other one sleeps there.
        let is_full = !shared.rebuilding && Self::is_full_of_strays(&shared);
        shared.rebuilding |= is_full;
        if scratch.edges.capacity() > USUAL && shared.seats.may_run() > 1 {
            scratch.shrink();
        }
        drop(shared);
        if is_full {
            self.replace_sets();
        }
        let Harvest { ready, recheck, strays, woken } = self.harvest(set, scratch, timeout);
        let mut shared = self.lock();
        shared.harvesting[set] = false;
        if sleeps {
            shared.seats.end_polling(seat.number);
        }
        if self.harvests.len() == 1 {
            self.note_visit(&mut shared, seat);
        }
        shared.stale += strays;
        shared.ready.append(&self.nodes, ready);
        shared.recheck.append(&self.nodes, recheck);
        Self::tell_collectors(&shared);
        if woken { self.answer_wake(shared, seat) } else { shared }
    }

    /// Asks the kernel for the edges of one set, without the lock, and notes each in its slot.
    #[allow(clippy::inline_always, reason = "part of each wait")]
    #[inline(always)]
    pub(super) fn harvest(
        &self,
        set: usize,
        scratch: &mut Scratch,
        timeout: Option<Duration>,
    ) -> Harvest {
        // Whoever arms a slot after having read from its descriptor must either see this number, or
        // have read before the kernel looks.
        let number = &self.harvests[set];
        let harvest = number.fetch_add(1, SeqCst).wrapping_add(1);
        barrier_behind_exchange();
        let woken = self.backend.harvest(set, &mut scratch.edges, timeout);
        let found = scratch.edges.len() + usize::from(woken);
        scratch.is_filled |= found >= scratch.edges.capacity();
        let mut ready = Row::new();
        let mut recheck = Row::new();
        let mut strays = 0;
        for edge in &scratch.edges {
            let (index, generation) = token_parts(edge.token);
            let Some(slot) = self.nodes.slots.find(index) else {
                strays += 1;
                continue;
            };
            let newest = || number.load(SeqCst);
            if slot.queue(generation, edge.facts, harvest, newest) {
                ready.push(index, &slot.link);
                continue;
            }
            match slot.deliver(generation, edge.facts, harvest, newest) {
                Delivery::Noted(Next::Queue) => ready.push(index, &slot.link),
                Delivery::Noted(Next::Recheck) => recheck.push(index, &slot.link),
                Delivery::Noted(_) => {}
                Delivery::Stale => strays += 1,
            }
        }
        Harvest { ready: ready.into_list(), recheck: recheck.into_list(), strays, woken }
    }

    /// The kernel's sets are full of strays.
    #[cold]
    fn replace_sets(&self) {
        let rebuilt = self.rebuild();
        let mut shared = self.lock();
        shared.rebuilding = false;
        // Also if the sets could not be replaced: tried again after as many more.
        shared.stale = 0;
        shared.rebuilds += u64::from(rebuilt);
        drop(shared);
        // The calling thread is about to harvest, and counts as doing so: a subscriber's panic must not
        // get in between.
        let _ = catch_unwind(AssertUnwindSafe(|| {
            trace!(
                port = self.number,
                replaced = rebuilt,
                "the kernel's set was full of stale entries"
            );
        }));
    }

    /// A wake has brought the thread of `seat` out of the kernel's wait. Of several threads that sleep
    /// there the kernel chooses: if this one was not meant it stands in for one that was.
    #[inline(never)]
    fn answer_wake<'e>(
        &'e self,
        mut shared: MutexGuard<'e, Shared>,
        seat: &Seat,
    ) -> MutexGuard<'e, Shared> {
        if !shared.seats.is_awaited(seat.number)
            && let Some(absent) = shared.seats.awaited()
        {
            shared.seats.stand_in(seat.number, absent);
            let given = shared.members[absent].as_ref().map_or(NIL, |absent| {
                // Nothing, unless the thread was handed a packet.
                absent.seat.chain.swap(NIL, AcqRel)
            });
            seat.chain.store(given, Release);
        }
        if let Some(watching) = shared.seats.watching()
            && watching != seat.number
            && shared.due.is_none()
            && shared.seats.is_polling(watching)
        {
            // The wake was meant for one who was to look after the port. That is for this thread to do,
            // or to see to when it goes off.
            shared.seats.resign();
        }
        if shared.seats.awaited().is_none() {
            return shared;
        }
        // Two wakes may be one to the kernel.
        drop(shared);
        self.backend.wake();
        self.lock()
    }

    /// The next packet of those that `seat` has been handed, if it is of the common kind: the number of
    /// its slot, whose key is the caller's in its cell. Otherwise a node whose turn has not come, or `NIL`
    /// if none was taken: [`Engine::next`] goes on with it.
    #[allow(clippy::inline_always, reason = "what it returns passes through memory otherwise")]
    #[inline(always)]
    pub(crate) fn next_ready(&self, seat: &Seat) -> Result<(u32, &Slot, Events), Node> {
        let node = seat.first();
        if node & POSTED != 0 {
            // A message, or none.
            return Err(NIL);
        }
        let slot = self.slot(node);
        if !seat.takes(node, &slot.link) {
            return Err(NIL);
        }
        let events = slot.hand().ok_or(node)?;
        count(&seat.counts.ready);
        Ok((node, slot, events))
    }

    /// The next packet of those that `seat` has been handed, if it is a posted message: its cell. The
    /// message is to be moved out, then [`Engine::free_post`] called.
    #[inline]
    pub(crate) fn next_posted(&self, seat: &Seat) -> Option<u32> {
        let node = seat.first();
        if node & POSTED == 0 || node == NIL {
            return None;
        }
        let cell = node & !POSTED;
        if !seat.takes(node, self.nodes.posts.at(cell)) {
            return None;
        }
        count(&seat.counts.posted);
        Some(cell)
    }

    /// The next packet of those that `seat` has been handed, of any kind. `first` is the first node,
    /// if it was taken already; `NIL` otherwise.
    pub(crate) fn next(&self, seat: &Seat, first: Node) -> Option<Taken<'_>> {
        self.next_by(seat, first, |_, slot| slot.take())
    }

    /// The same. `turn` lets a slot have its turn, of which it is told the number; the node is the
    /// calling thread's then.
    pub(crate) fn next_by(
        &self,
        seat: &Seat,
        mut first: Node,
        mut turn: impl FnMut(u32, &Slot) -> Turn,
    ) -> Option<Taken<'_>> {
        loop {
            let node = match std::mem::replace(&mut first, NIL) {
                NIL => self.next_node(seat)?,
                first => first,
            };
            if node & POSTED != 0 {
                count(&seat.counts.posted);
                return Some(Taken::Posted(node & !POSTED));
            }
            let slot = self.slot(node);
            // Before its turn, behind which the slot may be given up at any time.
            let name = token(node, slot.word().generation());
            loop {
                match turn(node, slot) {
                    Turn::Held(events) => {
                        count(&seat.counts.ready);
                        return Some(Taken::Ready(slot, name, events));
                    }
                    Turn::Cloned(events) => {
                        count(&seat.counts.notified);
                        return Some(Taken::Notified(name, events));
                    }
                    Turn::Check if self.check_one(node) => {}
                    last => match self.end_turn(seat, name, last) {
                        // The turn has called user code that forked, and this is the child: what is behind
                        // the node is the parent's.
                        None if self.forked() => return None,
                        None => break,
                        taken => return taken,
                    },
                }
            }
        }
    }

    /// What there is for the caller in a turn that is not about what is ready.
    #[cold]
    fn end_turn(&self, seat: &Seat, name: Token, turn: Turn) -> Option<Taken<'_>> {
        match turn {
            Turn::Removed => {
                count(&seat.counts.removed);
                Some(Taken::Removed(name))
            }
            Turn::Gone => Some(Taken::Gone(name)),
            Turn::Collect => {
                self.announce_collected();
                None
            }
            // Given back, by the turn or by the check.
            _ => None,
        }
    }

    /// Takes the first node off what `seat` has been handed.
    fn next_node(&self, seat: &Seat) -> Option<Node> {
        if seat.presumed_blocked.load(Relaxed) {
            self.awake(seat);
        }
        loop {
            let node = match seat.chain.load(Acquire) {
                NIL => return None,
                node => node,
            };
            if seat.takes(node, self.nodes.link(node)) {
                return Some(node);
            }
        }
    }
}

#[inline]
fn count(counter: &AtomicU64) {
    // Only the seat's own thread writes it.
    counter.store(counter.load(Relaxed) + 1, Relaxed);
}
