//! What the schedule asks of a port.

use super::WorkerNumber;
use crate::state::facts::Presence;
use crate::state::moment::Moment;

/// The port, as the schedule sees it, and its queue. No method makes a system call, except that
/// `now` may read the clock.
pub(crate) trait SchedulePort {
    /// Returns the time on the back end's clock.
    fn now(&self) -> Moment;

    /// Returns how many packets are queued.
    fn ready(&self) -> usize;

    /// Returns whether the first queued packet is a posted message.
    fn begins_with_post(&self) -> bool;

    /// Returns how many registrations need a check with the kernel before they can be queued.
    fn unchecked(&self) -> usize;

    /// Returns how many cells hold a posted message that is due or whose cell is not free again
    /// yet. A message that reports an operation doesn't count.
    fn posts(&self) -> usize;

    /// Returns how many registrations there are.
    fn registered(&self) -> usize;

    /// Returns whether the port has ended, so that no wait returns packets any more.
    fn is_over(&self) -> bool;

    /// Returns whether the port still accepts edges from the kernel.
    fn takes_edges(&self) -> bool;

    /// Returns whether the kernel's set is being replaced.
    fn is_replacing(&self) -> bool;

    /// Returns whether the set should be replaced, because most of its edges are for ended
    /// registrations.
    fn is_full_of_stale_events(&self) -> bool;

    /// Returns whether the port detects workers that sleep without an announcement.
    fn detects(&self) -> bool;

    /// Returns a number that changes with every packet and every wait of `worker`.
    fn progress(&self, worker: WorkerNumber) -> u32;

    /// Notes that a look at `now` finds the present progress of `worker`.
    fn notice_progress(&mut self, _worker: WorkerNumber, _now: Moment) {}

    /// Returns whether `worker` sleeps, if that is known without a system call.
    fn presence(&self, worker: WorkerNumber) -> Option<Presence>;

    /// Notes whether `worker` is presumed asleep.
    fn presume_asleep(&mut self, worker: WorkerNumber, asleep: bool);

    /// Hands this many queued packets to the worker in whose wait this is called.
    fn take(&mut self, packets: usize);

    /// Hands the first queued packet to the idle `worker`.
    fn give(&mut self, worker: WorkerNumber);

    /// Moves the remaining packets of `worker` back to the front of the queue. Returns false if
    /// there were none.
    fn take_back(&mut self, worker: WorkerNumber) -> bool;

    /// Limits how many packets a thread takes at a time from now on if it cannot return them to the
    /// queue.
    fn advise(&mut self, room: u32);

    /// Moves the packets that `from` was handed while it slept to the worker in whose wait this is
    /// called.
    fn adopt(&mut self, from: WorkerNumber);
}
