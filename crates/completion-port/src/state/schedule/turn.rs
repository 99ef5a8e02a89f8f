//! One wait of one worker: its state and its next action.

use std::time::Duration;

use super::WorkerNumber;
use crate::state::moment::Moment;

/// How a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waited {
    /// The worker was handed packets.
    Packets,
    /// The time ran out.
    TimedOut,
    /// The port is closed and empty.
    Closed,
    /// The system refuses to report what is ready, and nothing was queued. Only the engine returns
    /// this, and it has the error.
    Failed,
}

/// What a worker in a wait does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Return to the caller, and wake another worker if given.
    Return(Waited, Option<Wake>),
    /// Ask the kernel about registrations that need a check.
    Check,
    /// Ask the kernel for edges without waiting. With `grow`, make room for more edges first.
    Ask { grow: bool },
    /// Ask the system about another worker, and pass the answer to
    /// [`Schedule::answer`](super::Schedule::answer).
    Query(Query),
    /// Sleep in the kernel's wait for edges, for at most this long.
    Poll(Option<Duration>),
    /// Sleep until another worker wakes this one, for at most this long.
    Park(Option<Duration>),
}

/// Another worker, which must be woken after the lock is released.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) struct Wake {
    pub(crate) worker: WorkerNumber,
    /// The worker sleeps in the kernel's wait. Otherwise it is parked.
    pub(crate) in_kernel: bool,
}

/// A question to the system about `worker`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Query {
    pub(crate) worker: WorkerNumber,
    /// The progress at which the worker, which counts as running, seems stuck. `None` if it was
    /// found asleep before.
    pub(crate) stuck_at: Option<u32>,
    /// The worker's processor time when the system was last asked about it, if its progress was the
    /// same then.
    pub(crate) ran: Option<Duration>,
}

impl Query {
    /// Returns whether the worker sleeps, if its processor time so far, `ran`, settles that.
    ///
    /// A worker that was found asleep and has not run since is still asleep, or has been woken but
    /// not scheduled yet. A worker that made no progress but has run since the last question was
    /// awake then. The next look shows whether it still is.
    #[must_use]
    pub(crate) fn is_settled_by(self, ran: Option<Duration>) -> Option<bool> {
        let has_run = ran? > self.ran?;
        (has_run == self.stuck_at.is_some()).then_some(!has_run)
    }
}

/// The state of a worker during a wait.
#[derive(Debug)]
pub(crate) struct Turn {
    pub(super) me: WorkerNumber,
    pub(super) room: usize,
    /// How many packets the worker has returned to the queue when it arrived.
    pub(super) own: usize,
    /// How many messages the worker has added to its packets without the lock since its last wait.
    pub(super) put: u32,
    pub(super) deadline: Option<Moment>,
    /// The worker has just arrived, and may make a look first.
    pub(super) is_new: bool,
    /// The worker was called to search and has found nothing so far.
    pub(super) called: bool,
    /// The worker leaves the port to the active workers.
    pub(super) rests: bool,
    /// The worker's time has run out, and it has looked for sleepers.
    pub(super) has_looked: bool,
    /// The value of `Schedule::asked` when the worker arrived or last started over.
    pub(super) asked: u32,
    /// How often the worker asked again for edges that there was no room for.
    pub(super) further: usize,
    pub(super) looking: Looking,
    /// The worker has not checked for due timers since it arrived or last slept.
    pub(super) asks_time: bool,
    /// The worker has read the sleep records since it arrived or last slept.
    pub(super) has_scanned: bool,
    /// The system refuses to report what is ready: the worker takes what is queued and returns.
    pub(super) is_refused: bool,
}

impl Turn {
    /// Returns whether the system has refused to report what is ready.
    #[inline]
    pub(crate) fn is_refused(&self) -> bool {
        self.is_refused
    }

    /// Notes that the worker has just returned this many packets to the queue.
    #[inline]
    pub(crate) fn bring_back(&mut self, packets: usize) {
        self.own = packets;
    }

    /// Notes that the worker has added this many messages to its packets without the lock.
    #[inline]
    pub(crate) fn count_put(&mut self, messages: u32) {
        self.put = messages;
    }

    /// Begins a wait of `me` for at most `room` packets, until `deadline` if there is one.
    #[inline]
    pub(crate) fn new(me: WorkerNumber, room: usize, deadline: Option<Moment>) -> Self {
        Self {
            me,
            room,
            own: 0,
            put: 0,
            deadline,
            is_new: false,
            called: false,
            rests: false,
            has_looked: false,
            asked: 0,
            further: 0,
            looking: Looking::No,
            asks_time: true,
            has_scanned: false,
            is_refused: false,
        }
    }
}

/// The stage of a look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Looking {
    No,
    /// The worker asks about workers without progress. Sleepers come next.
    Stuck {
        now: Moment,
        is_first: bool,
        asks: bool,
    },
    /// The worker asks about workers that were found asleep, then ends the look.
    Asleep {
        now: Moment,
        is_first: bool,
    },
    /// The worker asks about workers that were found asleep, before it takes packets. This is not a
    /// look.
    BeforeTaking,
}
