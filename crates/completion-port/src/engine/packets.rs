//! How a packet gets into the queue.

use super::seat::Seat;
use super::sleep::Notice;
use super::{Engine, Phase, State, Stock};
use crate::error::{Call, Error, ErrorKind};
use crate::state::queue::{Node, POSTED};
use crate::sync::MutexGuard;

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
        let mut state = self.lock();
        let notice = self.submit_locked(&mut state, node);
        drop(state);
        self.notify(notice);
    }

    /// The same, for a thread that has the lock.
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
        let reserve = |number| self.nodes.posts.reserve(number) && also(number);
        match state.stock.posts.take(&self.nodes, POSTED, reserve) {
            Some(cell) => Ok(Posting { engine: self, state, cell }),
            None => Err(Error::new(Call::Post, ErrorKind::OutOfMemory)),
        }
    }

    /// The message of `cell` has been moved out by the thread of `seat`, which calls this. The cell
    /// is given back when that thread next has the lock.
    #[inline]
    pub(crate) fn free_post(&self, seat: &Seat, cell: u32) {
        seat.emptied.push(cell, self.nodes.posts.at(cell));
    }

    /// Gives back the cells that the thread of `seat`, which calls this, has emptied.
    #[inline]
    pub(super) fn give_back_emptied(&self, stock: &mut Stock, seat: &Seat) {
        if let Some(cells) = seat.emptied.take() {
            stock.posts.give_back_all(&self.nodes, POSTED, cells);
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

    /// Queues the message, which is in its cell.
    pub(crate) fn queue(mut self) {
        let notice = self.engine.submit_locked(&mut self.state, self.cell | POSTED);
        drop(self.state);
        self.engine.notify(notice);
    }
}
