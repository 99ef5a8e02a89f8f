//! Operations that the program carries out itself.

use crate::types::buffer::Buffer;
use crate::types::fd::RawFd;

/// Which operations of a socket stand in one line: those of one direction are done one after the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a socket has no third direction")]
pub enum Side {
    /// Accepts, receives.
    In,
    /// Connects, sends.
    Out,
}

/// What an attempt at a [`Task`] has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "the port has to know what to do")]
pub enum Attempt {
    /// The task is done, well or badly.
    Done,
    /// The same, and the direction is known to have nothing more at this moment, but perhaps an end or an error.
    Drained,
    /// It would have to wait until the descriptor is ready in its direction.
    Blocked,
    /// It would have to wait for what readiness does not tell of, a descriptor or memory. It is tried again after
    /// some milliseconds.
    OutOfResources,
}

/// How a [`Task`] has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "there is no other way")]
pub enum Ending {
    /// Its last attempt has said so.
    Done,
    /// It was cancelled, or its registration removed, or the port closed.
    Cancelled,
    /// Its registration was forgotten, or its descriptor turned out to be closed.
    Closed,
    /// Its attempt has panicked.
    Failed,
}

/// An operation that the program carries out itself, by system calls of its own: it is tried until it says that it is
/// done, in one line with the others of its direction, and makes no packet.
/// [`Raw::start_task`](crate::port::raw::Raw::start_task) starts one.
///
/// It goes on in whichever thread finds that it can: one that waits on the port, or one that calls
/// [`Raw::has_packets`](crate::port::raw::Raw::has_packets) or [`Raw::run_deferred`](crate::port::raw::Raw::run_deferred).
pub trait Task: Buffer {
    /// Tries it, by calls that do not wait. Nothing is locked meanwhile.
    fn attempt(&mut self, descriptor: RawFd) -> Attempt;

    /// Whether its first attempt is made as soon as it is the first of its line, without waiting for readiness. A connect
    /// needs this: its socket becomes ready only once the connect has begun. The default is `false`. The port asks once,
    /// when the task starts.
    fn begins_unasked(&self) -> bool {
        false
    }

    /// It has ended, behind the return of the call that has started it. Nothing is locked meanwhile.
    fn end(self, ending: Ending);
}
