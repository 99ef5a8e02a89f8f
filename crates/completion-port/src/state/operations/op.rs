//! One operation: its phase and its end reason.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::state::moment::Moment;
use crate::state::queue::{Links, Node};
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use crate::types::interest::Direction;

/// The phase of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Not in use.
    Free = 0,
    /// In its operation queue.
    Waiting = 1,
    /// Its node is on its way to the thread that will try it.
    Due = 2,
    /// A thread is trying it.
    Tried = 3,
    /// Ended: its node is on its way to the thread that takes the packet.
    Ended = 4,
    /// The back end has it.
    Submitted = 5,
    /// It waits, or a thread has its node: see the word of its slot.
    Lone = 6,
}

/// Why an operation has ended, or must end at the next opportunity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The operation has ended on its own.
    Done = 0,
    Cancelled = 1,
    TimedOut = 2,
    /// Its descriptor turned out to be closed.
    Gone = 3,
}

/// One operation. Changes require the lock of its registration's [`OpEntry`](super::OpEntry), with
/// these exceptions:
/// - The link and the step from due to tried belong to the thread that has the node.
/// - The thread that starts it sets beforehand whether it is a task.
/// - A lone operation is started and completed without the lock, by the thread that owns its node.
///   It is cancelled with the lock, by one exchange of its claim.
/// - The thread that closes the port marks it as awaited, with the lock. The thread that has the
///   node clears that mark without the lock.
#[derive(Debug, Default)]
pub(crate) struct Op {
    /// The next node of the list that it is in.
    pub(crate) link: AtomicU32,
    /// The previous operation in the [`OpList`](super::list::OpList) that it is in.
    back: AtomicU32,
    /// The slot of its registration.
    slot: AtomicU32,
    /// The number of previous uses of this `Op`, which is part of the operation's name, and the end
    /// reason: see [`claim`].
    claim: AtomicU64,
    phase: AtomicU8,
    direction: AtomicU8,
    /// The waits of a closed port continue until its packet is taken.
    is_awaited: AtomicBool,
    /// It is a task, which makes no packet. Set before each start.
    is_task: AtomicBool,
    /// Its first attempt waits only for its turn in the operation queue, because it is a connect or
    /// a task that requests this. Set before each start by the registration's name.
    begins_unasked: AtomicBool,
    deadline: AtomicU64,
}

impl Op {
    #[inline]
    pub(crate) fn slot(&self) -> u32 {
        self.slot.load(Relaxed)
    }

    #[inline]
    pub(crate) fn uses(&self) -> u32 {
        let claim = self.claim.load(Relaxed);
        (claim >> u32::BITS) as u32
    }

    /// Returns the name of the operation at `op_index`: that, and how often it was used before.
    #[inline]
    pub(crate) fn name(&self, op_index: u32) -> u64 {
        u64::from(self.uses()) << 32 | u64::from(op_index)
    }

    /// Returns the number of previous uses. Whatever the caller reads afterwards belongs to this
    /// use or to a later one.
    pub(super) fn uses_before(&self) -> u32 {
        (self.claim.load(Acquire) >> u32::BITS) as u32
    }

    /// Sets the use count, before the first use.
    pub(crate) fn begin_uses(&self, first: u32) {
        self.claim.store(claim(first, EndReason::Done), Relaxed);
    }

    /// Sets the slot and the deadline of the next use.
    #[inline]
    pub(super) fn place(&self, slot: u32, deadline: Moment) {
        self.slot.store(slot, Relaxed);
        self.deadline.store(deadline.nanoseconds(), Relaxed);
    }

    #[inline]
    pub(super) fn set_direction(&self, direction: Direction) {
        self.direction.store(direction as u8, Relaxed);
    }

    /// Notes that it is an operation on a file, which has no direction. `is_own_read`: it reads from
    /// the descriptor of its registration.
    pub(super) fn set_on_file(&self, is_own_read: bool) {
        self.direction.store(if is_own_read { OWN_READ } else { ON_FILE }, Relaxed);
    }

    /// Returns whether it reads, as from a file, from the descriptor of its registration.
    pub(super) fn is_own_read(&self) -> bool {
        self.direction.load(Relaxed) == OWN_READ
    }

    /// Returns whether it is an operation on a file, or was the last time that it was in flight.
    pub(crate) fn is_on_file(&self) -> bool {
        matches!(self.direction.load(Relaxed), ON_FILE | OWN_READ)
    }

    /// Begins an attempt in the calling thread, which has taken its node. Returns false if more is
    /// needed than that: then [`OpQueues::turn`](super::OpQueues::turn) decides.
    #[inline]
    pub(crate) fn begin(&self) -> bool {
        // While it is due, no other thread changes anything except the end reason, which is read
        // again after the attempt.
        let is_due = self.phase() == Phase::Due && self.reason() == EndReason::Done;
        if is_due {
            self.set(Phase::Tried);
        }
        is_due
    }

    /// Returns the end reason if it has ended, to the thread that has taken its node. The reason is
    /// final, and nothing remains to do in the operation queue.
    #[inline]
    pub(crate) fn end(&self) -> Option<EndReason> {
        (self.phase() == Phase::Ended).then(|| self.reason())
    }

    /// Sets whether the next operation that uses this `Op` is a task.
    #[inline]
    pub(crate) fn mark_task(&self, is_task: bool) {
        self.is_task.store(is_task, Relaxed);
    }

    /// Sets whether the first attempt at the next operation waits only for its turn, and not for an
    /// edge.
    #[inline]
    pub(crate) fn mark_unasked(&self, begins_unasked: bool) {
        self.begins_unasked.store(begins_unasked, Relaxed);
    }

    pub(super) fn begins_unasked(&self) -> bool {
        self.begins_unasked.load(Relaxed)
    }

    /// Returns whether it is a connect that was started by the registration's name.
    pub(crate) fn is_connect(&self) -> bool {
        self.begins_unasked() && !self.is_task()
    }

    /// Returns whether it is a task.
    #[inline]
    pub(crate) fn is_task(&self) -> bool {
        self.is_task.load(Relaxed)
    }

    /// Returns whether it is in use.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.phase() != Phase::Free
    }

    /// Returns whether the back end has it.
    pub(crate) fn is_submitted(&self) -> bool {
        self.phase() == Phase::Submitted
    }

    #[inline]
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Acquire) {
            0 => Phase::Free,
            1 => Phase::Waiting,
            2 => Phase::Due,
            3 => Phase::Tried,
            4 => Phase::Ended,
            5 => Phase::Submitted,
            _ => Phase::Lone,
        }
    }

    #[inline]
    pub(super) fn set(&self, phase: Phase) {
        // A thread that sees this phase also sees everything stored before it, even without the
        // lock of the `OpEntry`.
        self.phase.store(phase as u8, Release);
    }

    #[inline]
    pub(super) fn reason(&self) -> EndReason {
        match self.claim.load(Relaxed) & REASON {
            0 => EndReason::Done,
            1 => EndReason::Cancelled,
            2 => EndReason::TimedOut,
            _ => EndReason::Gone,
        }
    }

    pub(super) fn set_reason(&self, reason: EndReason) {
        self.claim.store(claim(self.uses(), reason), Relaxed);
    }

    /// Sets the end reason of this use, unless one is set already. Returns false if this use has
    /// ended.
    pub(super) fn set_reason_if_none(&self, uses: u32, reason: EndReason) -> bool {
        let (expected, wanted) = (claim(uses, EndReason::Done), claim(uses, reason));
        match self.claim.compare_exchange(expected, wanted, AcqRel, Acquire) {
            Ok(_) => true,
            Err(now) => now >> u32::BITS == u64::from(uses),
        }
    }

    /// Marks an operation as ended that its token has done itself. Its packet is about to be
    /// queued.
    #[inline]
    pub(crate) fn begin_ended(&self, slot: u32) {
        self.slot.store(slot, Relaxed);
        self.set(Phase::Ended);
    }

    /// Ends this use, because its packet is taken. For a lone operation, this happens before the
    /// slot's word changes.
    #[inline]
    pub(crate) fn complete(&self) {
        // The order matters: a thread that sees the next claim also sees this phase, or that of the
        // next use.
        self.set(Phase::Free);
        self.claim.store(claim(self.uses().wrapping_add(1), EndReason::Done), Release);
    }

    #[inline]
    pub(crate) fn direction(&self) -> Direction {
        Direction::BOTH[usize::from(self.direction.load(Relaxed) & 1)]
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanoseconds(self.deadline.load(Relaxed))
    }

    /// Returns whether it must end unless it ends on its own first. This becomes true with the lock
    /// of the `OpEntry` held.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.reason() != EndReason::Done
    }

    /// Clears the awaited mark, because its packet is taken. Returns whether it was set.
    #[inline]
    pub(crate) fn stop_awaiting(&self) -> bool {
        self.is_awaited.load(Relaxed) && self.is_awaited.swap(false, Relaxed)
    }

    /// Marks its packet as awaited. Returns false if it was already.
    pub(crate) fn start_awaiting(&self) -> bool {
        !self.is_awaited.swap(true, AcqRel)
    }

    /// Marks its packet as awaited, if no other thread can complete it at the same time. Returns
    /// false if it was already.
    pub(super) fn start_awaiting_in_place(&self) -> bool {
        !self.is_awaited.swap(true, Relaxed)
    }

    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.deadline() <= now && self.deadline() != Moment::NEVER
    }

    /// Returns the previous operation in the list that it is in.
    pub(super) fn back(&self) -> Node {
        self.back.load(Relaxed)
    }

    pub(super) fn set_back(&self, back: Node) {
        self.back.store(back, Relaxed);
    }
}

/// Instead of a direction: an operation on a file.
const ON_FILE: u8 = 2;

/// The same, if it reads from the descriptor of its registration.
const OWN_READ: u8 = 4;

/// The bits of a claim that hold the end reason. The upper half holds the uses.
const REASON: u64 = 0b11;

/// Makes a claim of a use and its end reason.
fn claim(uses: u32, reason: EndReason) -> u64 {
    u64::from(uses) << u32::BITS | reason as u64
}

/// Access to operations and their links.
pub(crate) trait OpTable: Links {
    fn op(&self, node: Node) -> &Op;
}
