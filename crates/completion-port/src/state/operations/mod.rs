//! Operations in flight: those of one registration, by direction, and the order in which they are tried.
//!
//! In one direction of one registration operations are tried one at a time, in the order in which they were
//! started. So bytes are never swapped between two receives, and sends do not interleave. An operation that
//! cannot go on waits at the head of its operation queue until an edge says that it is worth trying again.
//!
//! Operations on files have no operation queue: they say where in the file they begin, and do not wait for each other. What
//! cannot be done at once is *handed* to the back end, until it comes back.
//!
//! An operation that a token starts is the only one of its registration. As long as it only waits for edges it has no
//! place in an operation queue: it is *lone*, and the slot's word says how it stands. What waits for something else besides goes on
//! in its operation queue.
//!
//! What an operation is, and what becomes of it, its caller knows. A [`Op`] says where it stands, and is the
//! node by which it is queued: when it is to be tried, and again when it has ended. docs/design/OPERATIONS.md has
//! the table of its phases.
//!
//! | file | what it has |
//! |---|---|
//! | `op` | one operation: its phase, and why it has ended |
//! | `alone` | the steps of a lone operation |
//! | `list` | operations in the order of their starts |
//! | `queue` | one direction of a registration |
//! | `queues` | all operations of a registration: the steps of those in operation queues, of those on files, and of those that the system carries out |
//! | `entry` | what a registration has beside its slot |

mod alone;
mod entry;
mod list;
mod op;
mod queue;
mod queues;
#[cfg(test)]
mod tests;

pub(crate) use entry::{Clearance, OpEntries, OpEntry};
pub(crate) use op::{EndReason, Op, OpTable};
pub(crate) use queues::{FollowUp, OpQueues, Step, Tried};
