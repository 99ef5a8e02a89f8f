//! The threads at the port: how they come and go, block, and are relieved.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::seat::{Counts, Emptied, PRESUMED_BLOCKED, Seat};
use super::sleep::Notice;
use super::{BEGIN, Engine, Member, State};
use crate::backend::thread::Thread;
use crate::state::queue::NIL;
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use crate::types::config::BlockDetection;

impl Engine {
    /// The calling thread takes a seat.
    pub(crate) fn join(&self) -> Arc<Seat> {
        let thread: Arc<dyn Thread> = self.backend.this_thread().into();
        let is_observed = self.observes_all && thread.observe();
        if self.detection != BlockDetection::Announced {
            thread.prepare();
        }
        let mut state = self.lock();
        // The thread's progress moves on with its first action after this.
        let number = state.schedule.join(is_observed, BEGIN.wrapping_sub(1));
        let seat = Arc::new(Seat {
            number,
            chain: AtomicU32::new(NIL),
            begun: AtomicU64::new(0),
            quota: AtomicU32::new(0),
            shares: AtomicU32::new(BEGIN),
            put_next: AtomicU32::new(0),
            own: AtomicU32::new(0),
            own_at: AtomicU32::new(BEGIN),
            emptied: Emptied::new(),
            landed: Emptied::new(),
            goes_on: AtomicBool::new(false),
            progress: AtomicU32::new(BEGIN),
            attention: AtomicU8::new(0),
            left: AtomicBool::new(false),
            counts: Counts::default(),
            delay: AtomicU64::new(0),
        });
        let members = &mut state.stock.members;
        if members.len() <= number {
            members.resize_with(number + 1, || None);
        }
        members[number] =
            Some(Member { seat: Arc::clone(&seat), thread, wakes: 0, blocks_found: 0 });
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
        seat.advance_with_own(seat.own_left());
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
        seat.attention.fetch_and(!PRESUMED_BLOCKED, Relaxed);
        if !seat.left.load(Relaxed) {
            state.schedule.unblock(seat.number);
        }
    }

    /// The calling thread goes off to user code. If it leaves too much behind, this calls another
    /// thread, or appoints one watchdog.
    pub(super) fn depart(&self, state: &mut State) -> Option<Notice> {
        let State { schedule, stock } = state;
        let wake = schedule.depart(&mut self.stage(stock, None));
        wake.map(|wake| stock.notice(wake))
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
