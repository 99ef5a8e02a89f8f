//! One operation: where it stands, and why it has ended.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use crate::state::moment::Moment;
use crate::state::queue::{Links, Node};
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};
use crate::types::interest::Direction;

/// Where an operation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// It is none.
    Free = 0,
    /// It stands in its operation queue.
    Waiting = 1,
    /// Its node is on its way to the thread that is to try it.
    Due = 2,
    /// A thread tries it.
    Tried = 3,
    /// It is over; its node is on its way to the thread that takes the packet.
    Ended = 4,
    /// The back end has it.
    Submitted = 5,
    /// The word of its slot says whether it waits, or its node is with a thread.
    Lone = 6,
}

/// Why an operation has ended, or is to end at the next opportunity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EndReason {
    /// The operation has come to an end of its own.
    Done = 0,
    Cancelled = 1,
    TimedOut = 2,
    /// Its descriptor turned out to be closed.
    Gone = 3,
}

/// One operation. It is changed under the lock of its registration's [`OpEntry`], with these exceptions:
/// - the link and the step from due to tried belong to the thread that has its node;
/// - the thread that starts it says beforehand whether it is a task;
/// - a lone one is started and completed without the lock, by the thread that owns its node; it is cancelled with the
///   lock, by one exchange of its claim;
/// - the thread that closes the port has it awaited, under the lock, and the thread that has its node ends that
///   without it.
#[derive(Debug, Default)]
pub(crate) struct Op {
    /// The next node of the list that it stands in.
    pub(crate) link: AtomicU32,
    /// The operation before it in the [`OpList`] that it stands in.
    back: AtomicU32,
    /// The slot of its registration.
    slot: AtomicU32,
    /// How often the record was used, which is part of the operation's name, and the end reason: see [`claim`].
    claim: AtomicU64,
    phase: AtomicU8,
    direction: AtomicU8,
    /// The waits of a port that was closed meanwhile go on until its packet is taken.
    is_awaited: AtomicBool,
    /// It is a task, which no packet tells of. Said before each start.
    is_task: AtomicBool,
    /// Its first attempt waits for nothing but its turn in its operation queue: a connect, or a task that says so. Said before each start by name.
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

    /// How often the record was used. What the caller reads of it afterwards is of this use, or of a later one.
    pub(super) fn uses_before(&self) -> u32 {
        (self.claim.load(Acquire) >> u32::BITS) as u32
    }

    /// It has not been used yet; `first` stands for its first use.
    pub(crate) fn begin_uses(&self, first: u32) {
        self.claim.store(claim(first, EndReason::Done), Relaxed);
    }

    /// Where an operation of the next use stands, and when it has to end.
    #[inline]
    pub(super) fn place(&self, slot: u32, deadline: Moment) {
        self.slot.store(slot, Relaxed);
        self.deadline.store(deadline.nanoseconds(), Relaxed);
    }

    #[inline]
    pub(super) fn set_direction(&self, direction: Direction) {
        self.direction.store(direction as u8, Relaxed);
    }

    /// Its node has come to the calling thread, which is to try it. False if that is not all there is to it: then
    /// [`OpQueues::turn`](super::OpQueues::turn) tells.
    #[inline]
    pub(crate) fn begin(&self) -> bool {
        // What is due is changed by no other thread but for the end reason, which is looked at again after the attempt.
        let is_due = self.phase() == Phase::Due && self.reason() == EndReason::Done;
        if is_due {
            self.set(Phase::Tried);
        }
        is_due
    }

    /// Its node has come to the calling thread. How it has ended, if it has: that is settled, and nothing else is left
    /// to do in its operation queue.
    #[inline]
    pub(crate) fn end(&self) -> Option<EndReason> {
        (self.phase() == Phase::Ended).then(|| self.reason())
    }

    /// The next operation of this record is a task, or is none.
    pub(crate) fn mark_task(&self, is_task: bool) {
        self.is_task.store(is_task, Relaxed);
    }

    /// Whether the first attempt at the next operation of this record waits for its turn alone, and for no edge.
    pub(crate) fn mark_unasked(&self, begins_unasked: bool) {
        self.begins_unasked.store(begins_unasked, Relaxed);
    }

    pub(super) fn begins_unasked(&self) -> bool {
        self.begins_unasked.load(Relaxed)
    }

    /// Whether it is a task.
    #[inline]
    pub(crate) fn is_task(&self) -> bool {
        self.is_task.load(Relaxed)
    }

    /// Whether it is an operation now.
    pub(crate) fn is_in_flight(&self) -> bool {
        self.phase() != Phase::Free
    }

    /// Whether the back end has it.
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
        // What was stored before is seen by a thread that sees this, without the operation entry's lock too.
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

    /// Says why the operation of this use is to end, if nothing has before. False if the record is used for another one.
    pub(super) fn set_reason_if_none(&self, uses: u32, reason: EndReason) -> bool {
        let (expected, wanted) = (claim(uses, EndReason::Done), claim(uses, reason));
        match self.claim.compare_exchange(expected, wanted, AcqRel, Acquire) {
            Ok(_) => true,
            Err(now) => now >> u32::BITS == u64::from(uses),
        }
    }

    /// The operation was done by its token, and its packet is about to be queued.
    #[inline]
    pub(crate) fn begin_ended(&self, slot: u32) {
        self.slot.store(slot, Relaxed);
        self.set(Phase::Ended);
    }

    /// Its packet is taken. Of a lone one the slot is told afterwards.
    #[inline]
    pub(crate) fn complete(&self) {
        // In this order: a thread that sees the next claim sees this phase, or that of the next operation.
        self.set(Phase::Free);
        self.claim.store(claim(self.uses().wrapping_add(1), EndReason::Done), Release);
    }

    #[inline]
    pub(crate) fn direction(&self) -> Direction {
        Direction::BOTH[usize::from(self.direction.load(Relaxed))]
    }

    pub(crate) fn deadline(&self) -> Moment {
        Moment::from_nanoseconds(self.deadline.load(Relaxed))
    }

    /// Whether it is to end, unless it comes to an end of its own. It becomes so under the operation entry's lock.
    pub(crate) fn is_cancelled(&self) -> bool {
        self.reason() != EndReason::Done
    }

    /// Its packet is taken. Whether it was awaited.
    #[inline]
    pub(crate) fn stop_awaiting(&self) -> bool {
        self.is_awaited.load(Relaxed) && self.is_awaited.swap(false, Relaxed)
    }

    /// Its packet is awaited from here on. False if it was before.
    pub(crate) fn start_awaiting(&self) -> bool {
        !self.is_awaited.swap(true, AcqRel)
    }

    /// The same where no other thread may complete it meanwhile.
    pub(super) fn start_awaiting_in_place(&self) -> bool {
        !self.is_awaited.swap(true, Relaxed)
    }

    pub(super) fn is_over(&self, now: Moment) -> bool {
        self.deadline() <= now && self.deadline() != Moment::NEVER
    }

    /// The operation before it in the list that it stands in.
    pub(super) fn back(&self) -> Node {
        self.back.load(Relaxed)
    }

    pub(super) fn set_back(&self, back: Node) {
        self.back.store(back, Relaxed);
    }
}

/// The bits of a claim that are the end reason; the uses stand in the upper half.
const REASON: u64 = 0b11;

/// What an operation's claim says.
fn claim(uses: u32, reason: EndReason) -> u64 {
    u64::from(uses) << u32::BITS | reason as u64
}

/// Where operations lie, and their links.
pub(crate) trait OpTable: Links {
    fn op(&self, node: Node) -> &Op;
}
