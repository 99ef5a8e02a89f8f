//! The state of a port, without system calls, clocks or types of any system.
//!
//! Facts and times are arguments, and the next step for the caller is a return value. The tables in
//! docs/design/SLOT.md and docs/design/THREADS.md specify [`slot`] and [`schedule`]. The model
//! checker runs both.

pub(crate) mod deadline;
pub(crate) mod facts;
pub(crate) mod free_list;
pub(crate) mod moment;
pub(crate) mod operations;
pub(crate) mod queue;
pub(crate) mod schedule;
pub(crate) mod slot;
pub(crate) mod stale_events;
pub(crate) mod table;
pub(crate) mod timers;
