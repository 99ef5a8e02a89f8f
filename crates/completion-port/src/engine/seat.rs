//! A thread at the port: how it comes and goes, is woken and relieved.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed};

use super::{BEGIN, Engine, Member, State, Stock};
use crate::detection::BlockDetection;
use crate::state::queue::{NIL, Node};
use crate::state::schedule::{SeatNumber, Wake};
use crate::sync::{AtomicBool, AtomicU32, AtomicU64};
use crate::sys::thread::Thread;

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
    thread: Arc<dyn Thread>,
    /// In the kernel's wait rather than parked.
    polling: bool,
}

impl Engine {
    /// The calling thread takes a seat.
    pub(crate) fn join(&self) -> Arc<Seat> {
        let thread: Arc<dyn Thread> = self.backend.this_thread().into();
        let is_observed = self.observes_all && thread.observe();
        if self.detection != BlockDetection::Announced {
            thread.prepare();
        }
        let mut state = self.lock();
        // It does whatever it does first after this.
        let number = state.schedule.join(is_observed, BEGIN.wrapping_sub(1));
        let seat = Arc::new(Seat {
            number,
            chain: AtomicU32::new(NIL),
            begun: AtomicU64::new(0),
            share: AtomicU32::new(0),
            shares: AtomicU32::new(BEGIN),
            emptied: AtomicU32::new(NIL),
            progress: AtomicU32::new(BEGIN),
            presumed_blocked: AtomicBool::new(false),
            left: AtomicBool::new(false),
            counts: Counts::default(),
        });
        let members = &mut state.stock.members;
        if members.len() <= number {
            members.resize_with(number + 1, || None);
        }
        members[number] = Some(Member { seat: Arc::clone(&seat), thread });
        seat
    }

    /// The thread of `seat` leaves the port: it exits, or waits on another one. Packets that it had
    /// not looked at go back to the front of the queue.
    pub(crate) fn leave(&self, seat: &Seat) {
        let mut state = self.lock();
        if seat.left.swap(true, Relaxed) {
            return;
        }
        let State { schedule, stock } = &mut *state;
        self.take_chain_back(stock, seat);
        self.give_back_emptied(stock, seat);
        stock.members[seat.number] = None;
        stock.former.add(&seat.counts);
        let wake = schedule.leave(seat.number, &self.stage(stock, seat));
        let notice = wake.map(|wake| stock.notice(wake));
        drop(self.end_if_over(state));
        self.notify(notice);
    }

    /// The thread of `seat` says that it is about to block; false if it is not counted anyway.
    pub(crate) fn begin_blocking(&self, seat: &Seat) -> bool {
        let mut state = self.lock();
        if seat.left.load(Relaxed) {
            return false;
        }
        let State { schedule, stock } = &mut *state;
        let Some(wake) = schedule.block(seat.number, &mut self.stage(stock, seat)) else {
            return false;
        };
        let notice = wake.map(|wake| stock.notice(wake));
        drop(state);
        self.notify(notice);
        true
    }

    /// The thread of `seat` blocks no longer. Nothing happens in a child that was forked meanwhile.
    pub(crate) fn end_blocking(&self, seat: &Seat) {
        if self.forked() {
            return;
        }
        seat.advance();
        let mut state = self.lock();
        if !seat.left.load(Relaxed) {
            state.schedule.unblock(seat.number);
        }
    }

    /// The thread of `seat` was thought to be blocked, and is not.
    #[cold]
    pub(super) fn awake(&self, seat: &Seat) {
        if self.forked() {
            return;
        }
        let mut state = self.lock();
        seat.presumed_blocked.store(false, Relaxed);
        if !seat.left.load(Relaxed) {
            state.schedule.unblock(seat.number);
        }
    }

    /// The calling thread goes off to user code: another one is called if it leaves too much
    /// behind, or looks after the port from now on.
    pub(super) fn depart(&self, state: &mut State) -> Option<Notice> {
        let State { schedule, stock } = state;
        let wake = schedule.depart(&mut self.stage(stock, None));
        wake.map(|wake| stock.notice(wake))
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

    /// The thread of `seat` does not want the packets that it has not looked at: they go back to
    /// the front of the queue.
    #[inline]
    pub(crate) fn give_back(&self, seat: &Seat) {
        if seat.chain.load(Relaxed) == NIL || self.forked() {
            return;
        }
        let mut state = self.lock();
        let State { schedule, stock } = &mut *state;
        let gave_back = schedule.take_back(seat.number, &mut self.stage(stock, seat));
        let notice = if gave_back { self.depart(&mut state) } else { None };
        drop(state);
        self.notify(notice);
    }

    /// What any thread was handed and has not looked at goes back to the front of the queue, except for
    /// packets that are on their way.
    pub(super) fn take_back_all(&self, state: &mut State) {
        let State { schedule, stock } = state;
        for number in 0..stock.members.len() {
            if stock.members[number].is_some() && !schedule.is_given(number) {
                schedule.take_back(number, &mut self.stage(stock, None));
            }
        }
    }
}

impl Stock {
    /// What it takes to wake a thread.
    #[inline]
    pub(super) fn notice(&self, wake: Wake) -> Notice {
        let member = self.members[wake.seat].as_ref().expect("an idle seat has a member");
        Notice { thread: Arc::clone(&member.thread), polling: wake.polling }
    }
}
