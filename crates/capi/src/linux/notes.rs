//! What a receiver and its task tell each other without the lock of the number.
//!
//! An edge may come while a thread that has the lock sends, since a peer answers soon. The task then
//! only notes it. A receive that begins to wait looks for that note afterwards, and the task looks
//! for a receive after its note: so one of them sees the other.
//!
//! `crates/models/tests/receivers.rs` checks this file.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::linux::sync::AtomicBool;

#[derive(Debug)]
pub(crate) struct Notes {
    /// Nothing has shown that a read would block. The port then knows the socket as ready, or has
    /// yet to report an edge to the task. Cleared before each read.
    may_have_data: AtomicBool,
    /// A receive waits. Changed with the number locked.
    waits: AtomicBool,
}

impl Notes {
    /// A receive waits for the first edge.
    pub(crate) fn new() -> Self {
        Self { may_have_data: AtomicBool::new(false), waits: AtomicBool::new(true) }
    }

    /// Notes an edge. Returns whether a receive waits.
    #[inline]
    pub(crate) fn edge(&self) -> bool {
        self.may_have_data.store(true, SeqCst);
        self.waits.load(SeqCst)
    }

    /// A receive waits for the next edge. Returns whether there may be data: an edge has come since
    /// the last read, or that read has left data or lacked memory.
    #[inline]
    pub(crate) fn wait(&self) -> bool {
        self.waits.store(true, SeqCst);
        self.may_have_data.load(SeqCst)
    }

    /// No receive waits any more.
    #[inline]
    pub(crate) fn end_wait(&self) {
        self.waits.store(false, Relaxed);
    }

    /// Whether a read may find data.
    #[inline]
    pub(crate) fn may_have_data(&self) -> bool {
        self.may_have_data.load(SeqCst)
    }

    /// A read is about to be tried. An edge that comes from now on is noted for the next one.
    #[inline]
    pub(crate) fn begin_read(&self) {
        self.may_have_data.store(false, SeqCst);
    }

    /// The read has left data, or has failed because memory was lacking.
    #[inline]
    pub(crate) fn note_data(&self) {
        self.may_have_data.store(true, SeqCst);
    }
}
