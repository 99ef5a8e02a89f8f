//! What the schedule asks of a port.

use super::WorkerNumber;
use crate::state::facts::Presence;
use crate::state::moment::Moment;

/// What the schedule sees of a port, and does to its queue. No method calls the system, except that the clock
/// may be read.
pub(crate) trait SchedulePort {
    /// The time by the clock of the back end.
    fn now(&self) -> Moment;

    /// Packets in the queue.
    fn ready(&self) -> usize;

    /// Whether the first of them was posted.
    fn begins_with_post(&self) -> bool;

    /// Registrations that the kernel has to be asked about before they can be queued.
    fn unchecked(&self) -> usize;

    /// Cells that hold a posted message whose time has come, or have not been given back yet.
    fn posts(&self) -> usize;

    /// Registrations.
    fn registered(&self) -> usize;

    /// Whether the port has ended: no wait brings anything any more.
    fn is_over(&self) -> bool;

    /// Whether the port still takes what the kernel reports.
    fn takes_edges(&self) -> bool;

    /// Whether the kernel's set is being replaced.
    fn is_replacing(&self) -> bool;

    /// Whether the set should be replaced, because most of its reports are about ended registrations.
    fn is_full_of_stale_events(&self) -> bool;

    /// Whether threads that sleep without saying so are to be found.
    fn detects(&self) -> bool;

    /// A number that moves on with each packet and each wait of the thread of `worker`.
    fn progress(&self, worker: WorkerNumber) -> u32;

    /// Whether the thread of `worker` sleeps, as far as that is known without a system call.
    fn presence(&self, worker: WorkerNumber) -> Option<Presence>;

    /// The thread of `worker` is thought to be asleep from now on, or awake.
    fn presume_asleep(&mut self, worker: WorkerNumber, asleep: bool);

    /// Hands so many packets of the queue to the thread in whose wait this is called.
    fn take(&mut self, packets: usize);

    /// Hands the first packet of the queue to the idle thread of `worker`.
    fn give(&mut self, worker: WorkerNumber);

    /// What the thread of `worker` was handed and has not come to goes back to the front of the queue. False
    /// if there was nothing.
    fn take_back(&mut self, worker: WorkerNumber) -> bool;

    /// A thread that cannot give packets back takes at most so many at a time from now on.
    fn advise(&mut self, room: u32);

    /// What the thread of `from` was handed while it slept goes to the thread in whose wait this is
    /// called.
    fn adopt(&mut self, from: WorkerNumber);
}
