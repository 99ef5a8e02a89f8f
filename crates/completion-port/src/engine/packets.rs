//! How a packet gets into the queue.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::seat::Seat;
use super::sleep::Notice;
use super::{Engine, Phase, State, Stock, TimerName};
use crate::state::moment::Moment;
use crate::state::queue::{FLIGHT, Links, MOST_MESSAGES, Node, POSTED, TELLS};
use crate::sync::MutexGuard;
use crate::types::error::{Call, Error, ErrorKind};

impl Engine {
    /// The key of a removed registration is in its cell, and a thread waits for it.
    pub(crate) fn announce_collected(&self) {
        if self.forked() {
            return;
        }
        // The lock orders this after the waiting thread's last look at the slot.
        self.lock().stock.tell_collectors();
    }

    /// Queues a packet and releases the newest waiting thread for it, if one may run.
    pub(super) fn submit(&self, node: Node) {
        if self.put_aside(node) {
            return;
        }
        let mut state = self.lock();
        let notice = self.submit_locked(&mut state, node);
        drop(state);
        self.notify(notice);
    }

    /// The next operation that was put aside: its record, which is the caller's to go on with.
    pub(crate) fn take_aside(&self) -> Option<u32> {
        let mut state = self.lock();
        let node = state.stock.take_aside(&self.nodes)?;
        if state.stock.aside.is_empty() && state.stock.phase != Phase::Open {
            drop(self.end_if_over(state));
        }
        Some(node & !FLIGHT)
    }

    /// Queues a packet that is the doing of the calling thread, which has the lock. If that thread runs at the port it soon
    /// comes for its next packets: then another one is woken for this as it is for a check that is left to the next
    /// wait.
    pub(super) fn submit_own_locked(
        &self,
        state: &mut State,
        node: Node,
        seat: Option<&Seat>,
    ) -> Option<Notice> {
        let State { schedule, stock } = &mut *state;
        let Some(seat) = seat.filter(|seat| seat.runs(schedule)) else {
            return self.submit_locked(state, node);
        };
        stock.ready.push(&self.nodes, node);
        if stock.notable.is_any() {
            self.note_queued_one(stock, node);
        }
        let wake = schedule.look_after(&self.stage(stock, seat));
        wake.map(|wake| stock.notice(wake))
    }

    /// The same as [`Engine::submit`], for a thread that has the lock.
    pub(super) fn submit_locked(&self, state: &mut State, node: Node) -> Option<Notice> {
        let State { schedule, stock } = state;
        stock.ready.push(&self.nodes, node);
        if stock.notable.is_any() {
            self.note_queued_one(stock, node);
        }
        let wake = schedule.queued(&mut self.stage(stock, None));
        wake.map(|wake| stock.notice(wake))
    }

    /// Queues a slot whose turn did not come. The caller owns the node.
    pub(crate) fn queue_again(&self, index: u32) {
        if !self.forked() {
            self.submit(index);
        }
    }

    /// A free cell for a posted message. The port is locked until the message is in it and
    /// [`Posting::queue`] is called, which must follow.
    pub(crate) fn begin_post(&self, also: impl FnOnce(u32) -> bool) -> Result<Posting<'_>, Error> {
        self.check_usable(Call::Post)?;
        let mut state = self.lock();
        if state.stock.phase != Phase::Open {
            return Err(Error::new(Call::Post, ErrorKind::Closed));
        }
        let reserve =
            |number| number < MOST_MESSAGES && self.nodes.posts.reserve(number) && also(number);
        match state.stock.posts.take(&self.nodes, POSTED, reserve) {
            Some(cell) => Ok(Posting { engine: self, state, cell }),
            None => Err(Error::new(Call::Post, ErrorKind::OutOfMemory)),
        }
    }

    /// The message of a timer, moved out by `take` from its cell, which is free then. `None` if a thread
    /// has queued the message, or cancelled it before.
    pub(crate) fn cancel_post<M>(
        &self,
        timer: TimerName,
        take: impl FnOnce(u32) -> M,
    ) -> Option<M> {
        if self.forked() {
            return None;
        }
        let mut state = self.lock();
        let State { schedule, stock } = &mut *state;
        let cell = stock.timers.cancel(timer)?;
        let message = take(cell);
        stock.posts.give_back(&self.nodes, POSTED, cell);
        if stock.phase == Phase::Open {
            schedule.next_timer(stock.timers.next());
        }
        Some(message)
    }

    /// The message of `cell` has been moved out by the thread of `seat`, which calls this. The cell
    /// is given back when that thread next has the lock.
    #[inline]
    pub(crate) fn free_post(&self, seat: &Seat, cell: u32) {
        seat.emptied.push(cell, self.nodes.posts.at(cell));
    }

    /// Gives back the cells and the records that the thread of `seat`, which calls this, has emptied.
    // Each wait does this: a call would cost as much as what is called.
    #[inline(always)]
    pub(super) fn give_back_emptied(&self, stock: &mut Stock, seat: &Seat) {
        // One question for both: each wait asks it, and seldom is there anything.
        if seat.emptied.len() | seat.landed.len() == 0 {
            return;
        }
        if let Some(cells) = seat.emptied.take() {
            stock.posts.give_back_all(&self.nodes, POSTED, cells);
        }
        if let Some(records) = seat.landed.take() {
            stock.flights.give_back_all(&self.nodes, FLIGHT, records);
        }
    }
}

/// A message that is being posted.
#[must_use]
pub(crate) struct Posting<'e> {
    engine: &'e Engine,
    state: MutexGuard<'e, State>,
    cell: u32,
}

impl Posting<'_> {
    /// Where the message is to be put.
    pub(crate) fn cell(&self) -> u32 {
        self.cell
    }

    /// Makes sure that there is room for a timer. If there is no memory, nothing is left of the posting.
    pub(crate) fn for_timer(mut self) -> Result<Self, Error> {
        if self.state.stock.timers.reserve(self.cell) {
            return Ok(self);
        }
        self.state.stock.posts.give_back(&self.engine.nodes, POSTED, self.cell);
        Err(Error::new(Call::Post, ErrorKind::OutOfMemory))
    }

    /// The message, which is in its cell, is to be queued at the moment `at`. There is room for the timer.
    pub(crate) fn queue_at(mut self, at: Moment) -> TimerName {
        let State { schedule, stock } = &mut *self.state;
        let before = stock.timers.next();
        let timer = stock.timers.set(self.cell, at);
        let wake = if at < before { schedule.timer_set(at) } else { None };
        let notice = wake.map(|wake| stock.notice(wake));
        drop(self.state);
        self.engine.notify(notice);
        timer
    }

    /// Queues the message, which is in its cell.
    pub(crate) fn queue(mut self) {
        let notice = self.engine.submit_locked(&mut self.state, self.cell | POSTED);
        drop(self.state);
        self.engine.notify(notice);
    }

    /// Queues the message, which is in its cell and tells of an operation. `seat` is the calling thread's. If the thread has found
    /// the end of the operation within its wait, that is to it as what the kernel has reported: it takes the packet itself, or
    /// wakes another thread if it leaves much behind.
    pub(crate) fn queue_found(mut self, seat: Option<&Seat>) {
        let Self { engine, ref mut state, cell } = self;
        let node = cell | POSTED | TELLS;
        let notice = if seat.is_some_and(Seat::goes_on) {
            let State { stock, .. } = &mut **state;
            stock.ready.push(&engine.nodes, node);
            if stock.notable.is_any() {
                engine.note_queued_one(stock, node);
            }
            None
        } else {
            engine.submit_own_locked(state, node, seat)
        };
        drop(self.state);
        engine.notify(notice);
    }

    /// Puts the message, which is in its cell, in front of what the calling thread has left, if `seat` is
    /// that thread's and counts as running; queues it otherwise.
    pub(crate) fn put_next(mut self, seat: Option<&Seat>) {
        let Some(seat) = seat.filter(|seat| seat.runs(&self.state.schedule)) else {
            return self.queue();
        };
        let Self { engine, cell, .. } = self;
        let State { schedule, stock } = &mut *self.state;
        let node = cell | POSTED;
        if stock.notable.is_any() {
            engine.note_queued_one(stock, node);
        }
        let goes_next = seat.may_put_next();
        let own = seat.own_left() + u32::from(goes_next);
        let wake = if goes_next {
            // Other threads take the chain away under the lock only, and this thread takes nothing from
            // it meanwhile.
            engine.nodes.link(node).store(seat.chain.load(Relaxed), Relaxed);
            seat.chain.store(node, Release);
            if seat.begun.load(Relaxed) != 0 {
                // It takes its part of the time that is measured.
                seat.quota.store(seat.quota.load(Relaxed).saturating_add(1), Relaxed);
            }
            schedule.kept(seat.number, &engine.stage(stock, seat))
        } else {
            // The thread soon comes back for it, and finds the other packets as well.
            stock.ready.push(&engine.nodes, node);
            schedule.look_after(&engine.stage(stock, seat))
        };
        seat.advance_with_own(own);
        let notice = wake.map(|wake| stock.notice(wake));
        drop(self.state);
        engine.notify(notice);
    }
}
