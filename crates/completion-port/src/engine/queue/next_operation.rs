//! The next operation of a direction, after a thread has ended the one before it.

use super::Queue;
use crate::engine::worker::Worker;
use crate::state::queue::Node;

/// The longest chain to whose end a thread adds an operation. The thread walks along the chain.
const LONGEST: usize = 8;

/// The thread that handles an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OpThread<'w> {
    /// The thread's worker, if it has one at the port.
    worker: Option<&'w Worker>,
    /// The room of the wait whose packets the thread is taking, and how many nodes it has taken.
    /// Both are 0 in a thread that handles an operation for another reason.
    room: usize,
    taken: usize,
}

impl<'w> From<Option<&'w Worker>> for OpThread<'w> {
    /// A thread that takes no packets, for example because it starts the operation.
    #[inline]
    fn from(worker: Option<&'w Worker>) -> Self {
        Self { worker, room: 0, taken: 0 }
    }
}

impl<'w> OpThread<'w> {
    /// A thread that need not have a worker, and takes no packets.
    pub(crate) const ANY: OpThread<'static> = OpThread { worker: None, room: 0, taken: 0 };

    /// The thread of `worker` takes the packets of a wait with this `room`. It has taken `taken`
    /// nodes, the operation's included.
    #[inline]
    pub(crate) fn in_wait(worker: &'w Worker, room: usize, taken: usize) -> Self {
        Self { worker: Some(worker), room, taken }
    }

    #[inline]
    pub(crate) fn worker(self) -> Option<&'w Worker> {
        self.worker
    }
}

impl Queue {
    /// Queues an operation that is due because `thread` has ended the one before it.
    ///
    /// If the thread takes the packets of a wait, and would be the next to take this one from the
    /// queue, it takes the operation in this wait. So a direction with many operations in flight
    /// costs no wake and no poll per packet.
    pub(in crate::engine) fn queue_next(&self, node: Node, thread: OpThread<'_>) {
        let OpThread { worker: Some(worker), room: 1.., .. } = thread else {
            return self.submit(node);
        };
        if self.defer(node) {
            return;
        }
        let mut hub = self.lock();
        let (schedule, lists) = hub.parts_mut();
        let notice = if worker.runs(schedule) {
            if lists.flags().is_any_of_queue() {
                self.note_queued_one(lists, node);
            }
            let most = schedule.most_in_wait(thread.room, &self.view(lists, worker));
            let further = most.saturating_sub(thread.taken).min(LONGEST);
            let wake = if further > 0 && worker.append(node, further, self.nodes()) {
                schedule.keep(worker.number(), true);
                schedule.look_after(&self.view(lists, worker))
            } else {
                lists.push(self.nodes(), node);
                schedule.depart(&mut self.view(lists, None))
            };
            wake.map(|wake| lists.notice(wake))
        } else {
            // It was found asleep, or has left the port.
            self.submit_locked(&mut hub, node)
        };
        drop(hub);
        self.notify(notice);
    }
}
