//! The operations of one registration, by direction, and the order in which they are tried.
//!
//! In each direction of a registration, operations are tried one at a time, in the order of their
//! starts. So two receives never swap bytes, and sends do not interleave. An operation that cannot
//! continue waits at the head of its operation queue until an edge indicates that another attempt
//! is worthwhile.
//!
//! Operations on files have no operation queue: each one specifies its position in the file, and
//! they do not wait for each other. An operation that cannot be done immediately is *submitted* to
//! the back end until it completes.
//!
//! An operation started by a token is the only one of its registration. While it waits only for
//! edges, it has no place in an operation queue: it is *lone*, and its state is in the slot's word.
//! If it must wait for something else as well, it moves to its operation queue.
//!
//! The caller knows the work of an operation and its result. An [`Op`] holds the operation's state,
//! and is the node by which it is queued, first for an attempt and again when it has ended.
//! docs/design/OPERATIONS.md has the table of its phases.
//!
//! | file | contents |
//! |---|---|
//! | `op` | one operation: its phase and its end reason |
//! | `alone` | the steps of a lone operation |
//! | `list` | operations in the order of their starts |
//! | `edge_notes` | what an idle task and its program tell each other about edges |
//! | `queue` | one direction of a registration |
//! | `queues` | all operations of a registration: in queues, on files, or done by the system |
//! | `entry` | the state of a registration's operations besides its slot |

mod alone;
mod edge_notes;
mod entry;
mod list;
mod op;
mod queue;
mod queues;
#[cfg(test)]
mod tests;

pub use edge_notes::EdgeNotes;
pub(crate) use entry::{ConnectPermission, OpEntries, OpEntry};
pub(crate) use op::{EndReason, Op, OpTable};
pub(crate) use queues::{FollowUp, OpQueues, Step, Tried};
