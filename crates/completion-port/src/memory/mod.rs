//! Where objects are stored: arenas, whose entries never move, and cells, which only one thread at
//! a time may access. Also the events for the crate `tracing`.

pub(crate) mod arena;
pub(crate) mod cells;
pub(crate) mod trace;
