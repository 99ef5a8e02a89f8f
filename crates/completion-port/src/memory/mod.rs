//! Where objects live: tables that grow and never move what is in them, and keys that one thread at a time may
//! touch; and the events for the crate `tracing`.

pub(crate) mod arena;
pub(crate) mod cells;
pub(crate) mod trace;
