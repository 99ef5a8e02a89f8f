//! What the port knows, without a system call, a clock or a type of any system.
//!
//! Facts and times come in as arguments; what is to be done comes back as a value. The tables in
//! docs/design/SLOT.md and THREADS.md specify [`slot`] and [`schedule`]; the model checker runs both.

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
