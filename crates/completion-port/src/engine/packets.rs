//! How a packet gets into the queue.

use std::sync::atomic::Ordering::{Relaxed, Release};

use super::seat::{Notice, Seat};
use super::{Engine, Phase, Shared};
use crate::error::{Error, ErrorKind, Operation};
use crate::state::queue::{Links, NIL, Node, POSTED};
use crate::state::slot::Next;

impl Engine {
    pub(super) fn announce_collected(&self) {
        // The lock orders this after the waiting thread's last look at the slot.
        drop(self.lock());
        self.collected.notify_all();
    }

    /// Nodes were queued: one of them may be what a thread in `remove_and_wait` looks for.
    pub(super) fn tell_collectors(&self, shared: &Shared) {
        if shared.collectors > 0 {
            self.collected.notify_all();
        }
    }

    /// Queues a packet and releases the newest waiting thread for it, if one may run.
    pub(super) fn submit(&self, node: Node) {
        let mut shared = self.lock();
        let notice = self.submit_locked(&mut shared, node);
        drop(shared);
        self.notify(notice);
    }

    /// The same, for one who has the lock.
    pub(super) fn submit_locked(&self, shared: &mut Shared, node: Node) -> Option<Notice> {
        shared.ready.push(&self.nodes, node);
        self.tell_collectors(shared);
        if !shared.seats.has_room() && shared.seats.idle() > 0 {
            self.glance(shared);
        }
        if shared.seats.presumed_blocked() > 0 {
            // A thread that was found asleep may run again. Whoever comes for the packet looks first.
            let called = shared.seats.call().map(|number| Self::notice(shared, number));
            return called.or_else(|| Self::look_after(shared));
        }
        match shared.seats.give() {
            Some(number) => {
                let first = shared.ready.pop(&self.nodes).expect("one was pushed just now");
                self.nodes.link(first).store(NIL, Relaxed);
                shared.handed += 1;
                let notice = Self::notice(shared, number);
                notice.seat.chain.store(first, Release);
                Some(notice)
            }
            None => Self::look_after(shared),
        }
    }

    pub(super) fn follow(&self, next: Next, node: Node, seat: Option<&Seat>) {
        match next {
            Next::Nothing => {}
            Next::Queue => self.submit(node),
            Next::Recheck => self.queue_check(node, seat),
            Next::Collect => self.announce_collected(),
            Next::Gone => unreachable!("only a token's return can find this, and sees to it"),
        }
    }

    /// A free cell for a posted message.
    pub(crate) fn reserve_post(&self, also: impl FnOnce(u32) -> bool) -> Result<u32, Error> {
        self.check_open(Operation::Post)?;
        let reserve = |number| self.nodes.posts.reserve(number) && also(number);
        let cell = self.lock().posts.take(&self.nodes, POSTED, reserve);
        cell.ok_or(Error::new(Operation::Post, ErrorKind::OutOfMemory))
    }

    /// Queues the message that the caller has put into `cell`. Refused if the port was closed
    /// meanwhile; the message is the caller's again then.
    pub(crate) fn post(&self, cell: u32) -> Result<(), Error> {
        let mut shared = self.lock();
        if shared.phase != Phase::Open {
            return Err(Error::new(Operation::Post, ErrorKind::Closed));
        }
        let notice = self.submit_locked(&mut shared, cell | POSTED);
        drop(shared);
        self.notify(notice);
        Ok(())
    }

    /// Gives back the cell of a message that has been moved out.
    pub(crate) fn free_post(&self, cell: u32) {
        self.lock().posts.give_back(&self.nodes, POSTED, cell);
    }
}
