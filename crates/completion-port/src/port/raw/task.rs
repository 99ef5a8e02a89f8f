//! Operations that the program carries out itself.

use crate::types::buffer::Buffer;
use crate::types::fd::RawFd;

/// The direction of a task. Operations of one direction run one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a socket has no third direction")]
pub enum Side {
    /// Accepts and receives.
    In,
    /// Connects and sends.
    Out,
}

/// The result of an attempt at a [`Task`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the port has to know what to do")]
pub enum Attempt {
    /// The task is finished, successfully or not.
    Done,
    /// The task is finished, and the direction has nothing more at this moment, except perhaps an
    /// end or an error.
    Drained,
    /// The task must wait until the descriptor is ready in its direction.
    Blocked,
    /// The task has nothing to do at this moment, although the descriptor may be ready. It is tried
    /// again when the descriptor becomes ready again, or by
    /// [`Raw::retry`](crate::port::raw::Raw::retry).
    ///
    /// So a task may stay in flight and carry out one piece of work after the other. The tasks
    /// that follow wait until it ends. If it is cancelled, the next one is tried, unless the
    /// descriptor is known not to be ready. On Windows, the port tries an idle task every ten
    /// milliseconds. [`Raw::keep_edge_notes`](crate::port::raw::Raw::keep_edge_notes) saves attempts
    /// that would find nothing to do.
    Idle,
    /// The task lacks something that readiness does not report, such as a descriptor or memory. It
    /// is tried again after some milliseconds.
    OutOfResources,
}

/// How a [`Task`] has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "there is no other way")]
pub enum Ending {
    /// Its last attempt completed it.
    Done,
    /// It was cancelled, its registration was removed, or the port was closed.
    Cancelled,
    /// Its registration was forgotten, or its descriptor turned out to be closed.
    Closed,
    /// Its attempt panicked.
    Failed,
}

/// An operation that the program carries out with its own system calls.
///
/// The port tries it until it reports that it is done, in turn with the other operations of its
/// direction. It makes no packet. [`Raw::start_task`](crate::port::raw::Raw::start_task) starts
/// one.
///
/// It runs in whichever thread finds that it can make progress: one that waits on the port, or one
/// that calls [`Raw::has_packets`](crate::port::raw::Raw::has_packets) or
/// [`Raw::run_deferred`](crate::port::raw::Raw::run_deferred).
pub trait Task: Buffer {
    /// Tries the operation, with calls that do not block. The port holds no lock meanwhile.
    fn attempt(&mut self, descriptor: RawFd) -> Attempt;

    /// Returns whether to try the task without waiting for readiness, once it is first in its
    /// direction.
    ///
    /// A connect needs this: its socket becomes ready only after the connect has begun. The default
    /// is `false`. The port asks once, when the task starts.
    fn begins_unasked(&self) -> bool {
        false
    }

    /// Called when the task has ended, after the call that started it has returned. The port holds
    /// no lock meanwhile.
    fn end(self, ending: Ending);
}
