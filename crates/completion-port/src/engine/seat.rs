//! A thread at the port: how it comes and goes, is woken and relieved.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::{BEGIN, Engine, Member, Shared};
use crate::state::queue::{Fifo, NIL, Node};
use crate::state::seats::{SeatNumber, Status};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64};
use crate::sys::backend::ThreadHandle;

/// Packets that a seat has taken, by kind.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) ready: AtomicU64,
    pub(super) notified: AtomicU64,
    pub(super) posted: AtomicU64,
    pub(super) removed: AtomicU64,
}

/// The same as plain numbers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) ready: u64,
    pub(crate) notified: u64,
    pub(crate) posted: u64,
    pub(crate) removed: u64,
}

impl Tally {
    pub(super) fn add(&mut self, counts: &Counts) {
        self.ready += counts.ready.load(Relaxed);
        self.notified += counts.notified.load(Relaxed);
        self.posted += counts.posted.load(Relaxed);
        self.removed += counts.removed.load(Relaxed);
    }
}

/// A thread's place at the port, shared between the thread and whoever wakes or relieves it. What every
/// packet touches comes first, in a line of the cache that is the thread's alone.
#[repr(C, align(64))]
pub(crate) struct Seat {
    /// The packets that the thread has been handed and has not looked at yet. Only the thread puts
    /// a chain here (or, while it waits, whoever hands it a packet); it takes from the front by
    /// compare-and-swap, so that the chain as a whole can be taken away from a thread that is stuck.
    pub(super) chain: AtomicU32,
    /// Moves on whenever the thread does something with the port.
    pub(super) progress: AtomicU32,
    /// Cells of posted messages that the thread has emptied. Only the thread touches it.
    pub(super) emptied: AtomicU32,
    /// The thread was seen asleep and is not counted; it says so itself when it is awake again.
    /// Set under the lock only.
    pub(super) presumed_blocked: AtomicBool,
    /// The thread was handed more than it can look at at once, and may still have some of it.
    /// Changed under the lock only.
    pub(super) loaded: AtomicBool,
    /// The thread's switches are recorded. Changed under the lock only.
    pub(super) observed: AtomicBool,
    /// The seat was given up. Changed under the lock only.
    pub(super) left: AtomicBool,
    pub(super) counts: Counts,
    pub(super) number: SeatNumber,
    /// When the thread was handed what it has now, if that is measured, how much it was, and how often
    /// it was handed something. Only the thread touches these.
    pub(super) begun: AtomicU64,
    pub(super) share: AtomicU32,
    pub(super) shares: AtomicU32,
}

impl Seat {
    #[inline]
    pub(super) fn advance(&self) {
        // Only the thread itself writes it.
        self.progress.store(self.progress.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// A number that moves on with each wait and each packet of the thread, which asks.
    pub(crate) fn progress(&self) -> u32 {
        self.progress.load(Relaxed)
    }

    /// The first node of the thread, which asks; `NIL` if it has none left, or is thought to be asleep.
    #[inline]
    pub(super) fn first(&self) -> Node {
        let node = self.chain.load(Acquire);
        if self.presumed_blocked.load(Relaxed) { NIL } else { node }
    }

    /// The thread takes `node`, which has this link, if it is still the first one.
    #[inline]
    pub(super) fn takes(&self, node: Node, link: &AtomicU32) -> bool {
        self.advance();
        // If the chain was taken away since, its head is no longer this node, and cannot become it
        // again: only this thread puts a new chain here.
        let next = link.load(Relaxed);
        self.chain.compare_exchange(node, next, AcqRel, Relaxed).is_ok()
    }

    /// Whether the thread, which asks, has nothing left to look at, and is thought to be awake.
    #[inline]
    pub(crate) fn is_empty_handed(&self) -> bool {
        self.chain.load(Relaxed) == NIL && !self.presumed_blocked.load(Relaxed)
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Seat").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Somebody to be woken, once the lock is given up.
#[must_use]
pub(super) struct Notice {
    thread: Arc<dyn ThreadHandle>,
    /// In the kernel's wait rather than parked.
    polling: bool,
}

impl Engine {
    /// The calling thread takes a seat.
    pub(crate) fn join(&self) -> Arc<Seat> {
        let thread: Arc<dyn ThreadHandle> = self.backend.this_thread().into();
        let observed = self.observes_all && thread.observe();
        if self.detects() {
            thread.prepare();
        }
        let mut shared = self.lock();
        let number = shared.seats.join();
        let seat = Arc::new(Seat {
            number,
            chain: AtomicU32::new(NIL),
            begun: AtomicU64::new(0),
            share: AtomicU32::new(0),
            shares: AtomicU32::new(BEGIN),
            emptied: AtomicU32::new(NIL),
            progress: AtomicU32::new(BEGIN),
            loaded: AtomicBool::new(false),
            presumed_blocked: AtomicBool::new(false),
            observed: AtomicBool::new(false),
            left: AtomicBool::new(false),
            counts: Counts::default(),
        });
        if shared.members.len() <= number {
            shared.members.resize_with(number + 1, || None);
            shared.seen.resize(number + 1, 0);
        }
        shared.crew.seat(number);
        if observed {
            Self::count_observed(&mut shared, &seat);
        }
        shared.seen[number] = BEGIN.wrapping_sub(1);
        shared.members[number] = Some(Member { seat: Arc::clone(&seat), thread });
        seat
    }

    /// The thread of `seat` leaves the port: it exits, or waits on another one. Packets that it had
    /// not looked at go back to the front of the queue.
    pub(crate) fn leave(&self, seat: &Seat) {
        let mut shared = self.lock();
        if seat.left.swap(true, Relaxed) {
            return;
        }
        self.take_back(&mut shared, seat);
        self.give_back_emptied(&mut shared, seat);
        if seat.observed.swap(false, Relaxed) {
            shared.sleepers.observed -= 1;
        }
        shared.seats.leave(seat.number);
        shared.crew.rest(seat.number);
        shared.members[seat.number] = None;
        let mut former = shared.former;
        former.add(&seat.counts);
        shared.former = former;
        let notice = self.relieve(&mut shared);
        let ended = self.end_if_over(&mut shared);
        drop(shared);
        self.notify(notice);
        self.notify_all(ended);
    }

    /// The thread of `seat` says that it is about to block; false if it is not counted anyway.
    pub(crate) fn begin_blocking(&self, seat: &Seat) -> bool {
        let mut shared = self.lock();
        if seat.left.load(Relaxed) {
            return false;
        }
        if shared.seats.status(seat.number) == Status::FoundAsleep {
            // It was, and is not: from here on it is the thread that says so.
            seat.presumed_blocked.store(false, Relaxed);
            shared.seats.unblock(seat.number);
        }
        if !shared.seats.block(seat.number, true) {
            return false;
        }
        shared.crew.rest(seat.number);
        self.take_back(&mut shared, seat);
        let notice = self.relieve(&mut shared);
        drop(shared);
        self.notify(notice);
        true
    }

    /// The thread of `seat` blocks no longer. Nothing happens in a child that was forked meanwhile.
    pub(crate) fn end_blocking(&self, seat: &Seat) {
        if self.forked() {
            return;
        }
        seat.advance();
        let mut shared = self.lock();
        if !seat.left.load(Relaxed) {
            shared.seats.unblock(seat.number);
        }
    }

    /// The thread of `seat` was thought to be blocked, and is not.
    #[cold]
    pub(super) fn awake(&self, seat: &Seat) {
        if self.forked() {
            return;
        }
        let mut shared = self.lock();
        seat.presumed_blocked.store(false, Relaxed);
        if !seat.left.load(Relaxed) {
            shared.seats.unblock(seat.number);
        }
    }

    /// A seat has become free: another thread searches, if there may be something to find.
    pub(super) fn relieve(&self, shared: &mut Shared) -> Option<Notice> {
        let quiet = shared.ready.is_empty() && shared.recheck.is_empty();
        if quiet && shared.seats.polling() > 0 {
            return None;
        }
        match shared.seats.call() {
            Some(seat) => Some(Self::notice(shared, seat)),
            None => Self::look_after(shared),
        }
    }

    /// The calling thread goes off to user code: another one is called if it leaves too much
    /// behind, or looks after the port from now on.
    pub(super) fn depart(&self, shared: &mut Shared) -> Option<Notice> {
        let left = shared.ready.len();
        if left > 0 && shared.seats.idle() > 0 && !shared.seats.has_room() {
            self.glance(shared);
        }
        let many = shared.crew.is_worth_a_wake(left, shared.seats.at_work())
            || (left > 0 && shared.ready.begins_with_post());
        self.depart_calling(shared, many)
    }

    /// The calling thread goes off to user code, and calls another one if that is `wanted`.
    #[inline]
    pub(super) fn depart_calling(&self, shared: &mut Shared, wanted: bool) -> Option<Notice> {
        if wanted && let Some(seat) = shared.seats.call() {
            return Some(Self::notice(shared, seat));
        }
        Self::look_after(shared)
    }

    /// Makes sure that an idle thread looks after what running threads leave undone.
    #[inline]
    pub(super) fn look_after(shared: &mut Shared) -> Option<Notice> {
        if shared.seats.idle() == 0
            || Self::is_attended(shared)
            || shared.seats.watching().is_some()
        {
            return None;
        }
        let seat = shared.seats.appoint()?;
        shared.due = None;
        shared.patient = true;
        Some(Self::notice(shared, seat))
    }

    /// Whether somebody is in the kernel's wait, and nothing else is left to be done.
    #[inline]
    pub(super) fn is_attended(shared: &Shared) -> bool {
        shared.seats.polling() > 0 && Self::is_quiet(shared)
    }

    /// Whether every packet found so far is being handled.
    #[inline]
    pub(super) fn is_quiet(shared: &Shared) -> bool {
        shared.ready.is_empty() && shared.recheck.is_empty() && shared.loaded == 0
    }

    pub(super) fn notice(shared: &mut Shared, seat: SeatNumber) -> Notice {
        shared.wakes += 1;
        let polling = shared.seats.is_polling(seat);
        let member = shared.members[seat].as_ref().expect("an idle seat has a member");
        Notice { thread: Arc::clone(&member.thread), polling }
    }

    pub(super) fn notify_all(&self, notices: Vec<Notice>) {
        for notice in notices {
            self.notify(Some(notice));
        }
    }

    #[inline]
    pub(super) fn notify(&self, notice: Option<Notice>) {
        if let Some(notice) = notice {
            self.release(notice);
        }
    }

    #[inline(never)]
    fn release(&self, Notice { thread, polling }: Notice) {
        if polling {
            self.backend.wake();
        } else {
            thread.unpark();
        }
    }

    /// Takes back what a seat was handed and has not looked at.
    #[inline]
    pub(super) fn take_back(&self, shared: &mut Shared, seat: &Seat) -> bool {
        if seat.loaded.load(Relaxed) {
            seat.loaded.store(false, Relaxed);
            shared.loaded -= 1;
        }
        // Only under the lock is anything put there.
        seat.chain.load(Relaxed) != NIL && self.take_chain_back(shared, seat)
    }

    #[inline(never)]
    fn take_chain_back(&self, shared: &mut Shared, seat: &Seat) -> bool {
        let head = seat.chain.swap(NIL, AcqRel);
        if head == NIL {
            return false;
        }
        let rest = Fifo::from_chain(&self.nodes, head);
        shared.ready.prepend(&self.nodes, rest);
        Self::tell_collectors(shared);
        true
    }

    /// The thread of `seat` does not want the packets that it has not looked at: they go back to
    /// the front of the queue.
    #[inline]
    pub(crate) fn give_back(&self, seat: &Seat) {
        if seat.chain.load(Relaxed) == NIL || self.forked() {
            return;
        }
        let mut shared = self.lock();
        let notice =
            if self.take_back(&mut shared, seat) { self.depart(&mut shared) } else { None };
        drop(shared);
        self.notify(notice);
    }

    pub(super) fn take_back_all(&self, shared: &mut Shared) {
        for number in 0..shared.members.len() {
            let Some(member) = &shared.members[number] else { continue };
            if shared.seats.status(number) != Status::Given {
                let seat = Arc::clone(&member.seat);
                self.take_back(shared, &seat);
            }
        }
    }
}
