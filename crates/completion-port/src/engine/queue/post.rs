//! Messages: how they are posted, and how the timer of a message is cancelled.

use super::Queue;
use super::hub::Hub;
use crate::engine::TimerName;
use crate::engine::context::PortPhase;
use crate::engine::worker::Worker;
use crate::state::moment::Moment;
use crate::state::queue::{Links, MOST_MESSAGES, POSTED, TELLS};
use crate::sync::MutexGuard;
use crate::types::error::{Call, Error, ErrorKind};

impl Queue {
    /// Reserves a free cell for a posted message. The port stays locked.
    ///
    /// The caller puts the message into the cell and then calls one of the methods of [`Posting`]
    /// that queue it.
    pub(crate) fn begin_post(&self, also: impl FnOnce(u32) -> bool) -> Result<Posting<'_>, Error> {
        self.check_usable(Call::Post)?;
        let mut hub = self.lock();
        if hub.lists().phase() != PortPhase::Open {
            return Err(Error::new(Call::Post, ErrorKind::Closed));
        }
        let reserve =
            |number| number < MOST_MESSAGES && self.nodes().reserve_post(number) && also(number);
        match hub.lists_mut().take_post(self.nodes(), reserve) {
            Some(cell) => Ok(Posting { queue: self, hub, cell }),
            None => Err(Error::new(Call::Post, ErrorKind::OutOfMemory)),
        }
    }

    /// Takes a cell for a message that the thread of `worker` puts behind its packets, without the
    /// lock. That thread calls this.
    ///
    /// `None` if it has put none there yet, if it has something to handle, or if it has emptied no
    /// cell. The thread that ends the open phase takes away what is there.
    #[inline]
    pub(crate) fn cell_behind(&self, worker: &Worker) -> Option<u32> {
        if !worker.has_behind() || worker.has_attention() || self.forked() {
            return None;
        }
        worker.freed_cells().pop(|cell| self.nodes().post(cell))
    }

    /// Puts the message in this cell, which [`Queue::cell_behind`] has returned, behind the packets
    /// of the thread of `worker`. That thread calls this.
    ///
    /// Returns false if another thread has taken the others away, perhaps because it has closed the
    /// port. The cell, with the message, still belongs to the caller then.
    #[inline]
    pub(crate) fn put_behind(&self, worker: &Worker, cell: u32) -> bool {
        let node = cell | POSTED;
        worker.also_put_behind(node, self.nodes().link(node))
    }

    /// Like [`Queue::cell_behind`], for a message that goes in front of the packets of the thread.
    /// `displaces`: only if it displaces none.
    ///
    /// `None` if the thread has no packet left, has taken none yet, has something to handle, is
    /// carrying out deferred tasks, has put too many messages in front, or has emptied no cell.
    /// Also if the port takes no more.
    #[inline]
    pub(crate) fn cell_in_front(&self, worker: &Worker, displaces: bool) -> Option<u32> {
        if !worker.may_put_alone(displaces) || self.check_open(Call::Post).is_err() {
            return None;
        }
        worker.freed_cells().pop(|cell| self.nodes().post(cell))
    }

    /// Like [`Queue::put_behind`], for a cell that [`Queue::cell_in_front`] has returned.
    #[inline]
    pub(crate) fn put_in_front(&self, worker: &Worker, cell: u32) -> bool {
        let node = cell | POSTED;
        worker.put_alone(node, self.nodes().link(node))
    }

    /// Cancels a timer. Returns its message, which `take` moves out of the cell.
    ///
    /// The cell is free afterwards. `None` if the message was queued or the timer cancelled before.
    pub(crate) fn cancel_post<M>(
        &self,
        timer: TimerName,
        take: impl FnOnce(u32) -> M,
    ) -> Option<M> {
        if self.forked() {
            return None;
        }
        let mut hub = self.lock();
        let (schedule, lists) = hub.parts_mut();
        let cell = lists.timers_mut().cancel(timer)?;
        let message = take(cell);
        lists.release_post(self.nodes(), cell);
        if lists.phase().allows_starts() {
            schedule.next_timer(lists.timers().next());
        }
        Some(message)
    }
}

/// A message that is being posted.
#[must_use]
pub(crate) struct Posting<'e> {
    queue: &'e Queue,
    hub: MutexGuard<'e, Hub>,
    cell: u32,
}

impl Posting<'_> {
    /// Returns the cell for the message.
    pub(crate) fn cell(&self) -> u32 {
        self.cell
    }

    /// Makes room for a timer. Without memory, undoes the posting.
    pub(crate) fn for_timer(mut self) -> Result<Self, Error> {
        if self.hub.lists_mut().timers_mut().reserve(self.cell) {
            return Ok(self);
        }
        self.hub.lists_mut().release_post(self.queue.nodes(), self.cell);
        Err(Error::new(Call::Post, ErrorKind::OutOfMemory))
    }

    /// Sets a timer that queues the message at `at`.
    ///
    /// The message is in its cell, and there is room for the timer.
    pub(crate) fn queue_at(mut self, at: Moment) -> TimerName {
        let (schedule, lists) = self.hub.parts_mut();
        let before = lists.timers().next();
        let timer = lists.timers_mut().set(self.cell, at);
        let wake = if at < before { schedule.timer_set(at) } else { None };
        let notice = wake.map(|wake| lists.notice(wake));
        drop(self.hub);
        self.queue.notify(notice);
        timer
    }

    /// Queues the message, which is in its cell.
    pub(crate) fn queue(mut self) {
        let notice = self.queue.submit_locked(&mut self.hub, self.cell | POSTED);
        drop(self.hub);
        self.queue.notify(notice);
    }

    /// Queues the message, which is in its cell and reports an operation.
    ///
    /// `worker` is the calling thread's. If the thread found the end of the operation within its
    /// wait, the message is treated like a kernel event: the thread takes the packet itself, or
    /// wakes another thread if too many are queued.
    pub(crate) fn queue_found(mut self, worker: Option<&Worker>) {
        let Self { queue, ref mut hub, cell } = self;
        let node = cell | POSTED | TELLS;
        hub.lists_mut().count_tell();
        let notice = if worker.is_some_and(Worker::runs_deferred) {
            let lists = hub.lists_mut();
            lists.push(queue.nodes(), node);
            if lists.flags().is_any_of_queue() {
                queue.note_queued_one(lists, node);
            }
            None
        } else {
            queue.submit_own_locked(hub, node, worker)
        };
        drop(self.hub);
        queue.notify(notice);
    }

    /// Puts the message, which is in its cell, behind the calling thread's packets.
    ///
    /// Queues it instead if the thread does not count as running. `worker` is the calling thread's.
    pub(crate) fn put_behind(mut self, worker: Option<&Worker>) {
        let Some(worker) = worker.filter(|worker| worker.runs(self.hub.schedule())) else {
            return self.queue();
        };
        let Self { queue, cell, .. } = self;
        let (schedule, lists) = self.hub.parts_mut();
        let node = cell | POSTED;
        if lists.flags().is_any_of_queue() {
            queue.note_queued_own(lists, worker, node);
        }
        worker.put_behind(node, queue.nodes().link(node));
        schedule.keep(worker.number(), false);
        let wake = schedule.look_after(&queue.view(lists, worker));
        let notice = wake.map(|wake| lists.notice(wake));
        drop(self.hub);
        queue.notify(notice);
    }

    /// Puts the message, which is in its cell, in front of the calling thread's chain.
    ///
    /// Queues it instead if the thread does not count as running. `worker` is the calling thread's.
    /// With `displaces`, queues the message that was put there before it and is still in front.
    pub(crate) fn put_next(mut self, worker: Option<&Worker>, displaces: bool) {
        let Some(worker) = worker.filter(|worker| worker.runs(self.hub.schedule())) else {
            return self.queue();
        };
        let Self { queue, cell, .. } = self;
        let (schedule, lists) = self.hub.parts_mut();
        let node = cell | POSTED;
        if lists.flags().is_any_of_queue() {
            queue.note_queued_own(lists, worker, node);
        }
        let goes_next = worker.may_put_next();
        let displaced = if goes_next && displaces && worker.own_left() > 0 {
            queue.take_first(worker)
        } else {
            None
        };
        let own = worker.own_left() + u32::from(goes_next);
        let wake = if goes_next {
            worker.put_in_front(node, queue.nodes().link(node));
            schedule.keep(worker.number(), true);
            let called = displaced.and_then(|displaced| {
                lists.push(queue.nodes(), displaced);
                schedule.queued(&mut queue.view(lists, None))
            });
            called.or_else(|| schedule.look_after(&queue.view(lists, worker)))
        } else {
            // The thread soon returns to wait, and then finds this message and the other packets.
            lists.push(queue.nodes(), node);
            schedule.look_after(&queue.view(lists, worker))
        };
        worker.advance_with_own(own);
        let notice = wake.map(|wake| lists.notice(wake));
        drop(self.hub);
        queue.notify(notice);
    }
}
