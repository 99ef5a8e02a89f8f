//! One wait of one thread: what it remembers, and what it is told to do.

use std::time::Duration;

use super::WorkerNumber;
use crate::state::moment::Moment;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The thread has been handed packets.
    Packets,
    /// The time is over.
    TimedOut,
    /// The port is closed and nothing is left in it.
    Closed,
    /// The system refuses to report what is ready, and nothing was queued. The engine alone returns it, and has the fault.
    Failed,
}

/// What a thread in a wait does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It returns to its caller, and wakes another thread if there is one for it to wake.
    Return(Waited, Option<Wake>),
    /// It asks the kernel about registrations that are only remembered.
    Check,
    /// It asks the kernel for edges without waiting. With `grow` it first makes room for more edges.
    Ask { grow: bool },
    /// It asks the system about another thread, and passes the answer to [`Schedule::answer`].
    Query(Query),
    /// It sleeps in the kernel's wait for edges, for at most so long.
    Poll(Option<Duration>),
    /// It sleeps until another thread wakes it, for at most so long.
    Park(Option<Duration>),
}

/// Another thread to be woken once the lock is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Wake {
    pub(crate) worker: WorkerNumber,
    /// It sleeps in the kernel's wait; otherwise it is parked.
    pub(crate) in_kernel: bool,
}

/// A question to the system about the thread of `worker`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) worker: WorkerNumber,
    /// It runs and has not moved on from this; otherwise it was found asleep.
    pub(crate) stuck_at: Option<u32>,
    /// How long processors had run it when the system was last asked about it, if its progress was
    /// the same then.
    pub(crate) ran: Option<Duration>,
}

impl Query {
    /// Whether the thread sleeps, if the time tells for which processors `ran` it so far.
    ///
    /// One that was found asleep and has not run since sleeps, or has been woken and does not run
    /// yet. One that has not moved on and has run since the last question was awake then; whether it
    /// is now the next look tells.
    #[must_use]
    pub(crate) fn is_settled_by(self, ran: Option<Duration>) -> Option<bool> {
        let has_run = ran? > self.ran?;
        (has_run == self.stuck_at.is_some()).then_some(!has_run)
    }
}

/// What a thread remembers during a wait.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(super) me: WorkerNumber,
    pub(super) room: usize,
    pub(super) deadline: Option<Moment>,
    /// It has just come, and may look after the port first.
    pub(super) is_new: bool,
    /// It was called to search, and has found nothing so far.
    pub(super) called: bool,
    /// It leaves the port to the threads at work.
    pub(super) rests: bool,
    /// Its time has ended, and it has looked for threads that sleep.
    pub(super) has_looked: bool,
    /// How often the kernel had been asked when the thread came, or last began anew.
    pub(super) asked: u32,
    /// How often it asked once more for what there was no room for.
    pub(super) further: usize,
    pub(super) looking: Looking,
    /// It has not asked yet whether a timer is due, since it came or last slept.
    pub(super) asks_time: bool,
    /// The system refuses to report what is ready: the thread takes what is queued, and returns.
    pub(super) is_refused: bool,
}

impl Turn {
    /// Whether the system has refused to report what is ready.
    #[inline]
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// The thread of `me` comes to wait for at most `room` packets, until `deadline` (`None`: no limit).
    #[inline]
    pub(crate) fn new(me: WorkerNumber, room: usize, deadline: Option<Moment>) -> Self {
        Self {
            me,
            room,
            deadline,
            is_new: false,
            called: false,
            rests: false,
            has_looked: false,
            asked: 0,
            further: 0,
            looking: Looking::No,
            asks_time: true,
            is_refused: false,
        }
    }
}

/// How far a thread has come in looking after the port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looking {
    No,
    /// It asks about threads that do not move, then goes on with what follows a look.
    Stuck {
        now: Moment,
        is_first: bool,
        asks: bool,
    },
    /// It asks about threads that were found asleep, then ends the look.
    Asleep {
        now: Moment,
        is_first: bool,
    },
    /// The same, but before packets are handed out: no look ends with it.
    BeforeTaking,
}
