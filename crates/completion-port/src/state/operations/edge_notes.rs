//! What an idle task and its program tell each other about edges, without a lock.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::sync::AtomicBool;

/// What an [idle](crate::raw::Attempt::Idle) task and its program tell each other about edges, without
/// a lock. [`Raw::keep_edge_notes`](crate::raw::Raw::keep_edge_notes) has the port take part.
///
/// A task that carries out one piece of work after the other has nothing to do between them. An edge
/// that comes then need not be more than noted. Work that begins to wait looks for that note
/// afterwards, and whoever notes an edge looks for waiting work afterwards. So one of them sees the
/// other.
///
/// # Examples
///
/// ```
/// use completion_port::raw::EdgeNotes;
///
/// let notes = EdgeNotes::new();
/// assert!(notes.edge(), "work waits: an attempt is worthwhile");
/// notes.begin_attempt();
/// notes.end_wait();
/// assert!(!notes.edge(), "nothing waits");
/// assert!(notes.may_be_ready());
/// assert!(notes.wait(), "an edge has come");
/// ```
#[derive(Debug)]
pub struct EdgeNotes {
    /// Nothing has shown that an attempt would block. Cleared before each attempt.
    may_be_ready: AtomicBool,
    /// Work of the task waits.
    waits: AtomicBool,
}

impl Default for EdgeNotes {
    fn default() -> Self {
        Self::new()
    }
}

impl EdgeNotes {
    /// Work waits for the first edge.
    #[must_use]
    pub fn new() -> Self {
        Self { may_be_ready: AtomicBool::new(false), waits: AtomicBool::new(true) }
    }

    /// Notes an edge. Returns whether work waits.
    #[inline]
    pub fn edge(&self) -> bool {
        self.may_be_ready.store(true, SeqCst);
        self.waits.load(SeqCst)
    }

    /// Returns whether the task is to be tried because of an edge, which notes an edge itself.
    /// Otherwise the edge is noted.
    #[inline]
    pub(crate) fn is_tried_at_edge(&self) -> bool {
        self.waits.load(Relaxed) || self.edge()
    }

    /// Work waits for the next edge. Returns whether an attempt may succeed already: an edge has come
    /// since the last one began, or that has left something. Then the caller has the port
    /// [retry](crate::raw::Raw::retry) the task.
    ///
    /// One thread at a time lets work wait, or ends that.
    #[inline]
    #[must_use]
    pub fn wait(&self) -> bool {
        self.waits.store(true, SeqCst);
        self.may_be_ready.load(SeqCst)
    }

    /// No work waits any more.
    #[inline]
    pub fn end_wait(&self) {
        self.waits.store(false, Relaxed);
    }

    /// Whether an attempt may succeed.
    #[inline]
    #[must_use]
    pub fn may_be_ready(&self) -> bool {
        self.may_be_ready.load(SeqCst)
    }

    /// An attempt is about to be made. An edge that comes from now on is noted for the next one.
    #[inline]
    pub fn begin_attempt(&self) {
        self.may_be_ready.store(false, SeqCst);
    }

    /// The attempt has left something, or has failed because a resource was lacking.
    #[inline]
    pub fn note_ready(&self) {
        self.may_be_ready.store(true, SeqCst);
    }
}
