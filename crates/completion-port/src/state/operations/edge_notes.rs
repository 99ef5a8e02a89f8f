//! What an idle task and its program tell each other about edges, without a lock.

use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use crate::sync::AtomicBool;

/// What a task that stays in flight and its program tell each other about edges, without a lock.
///
/// Such a task carries out one piece of work after the other, and has nothing to do between them. An
/// edge that comes then is only noted. A thread that lets work wait looks for such a note afterwards,
/// and a thread that notes an edge looks for waiting work afterwards. So one of them sees the other.
///
/// With [`Raw::keep_edge_notes`](crate::raw::Raw::keep_edge_notes), the port notes such edges itself
/// and does not try the task. No edge is lost if the program does the following:
///
/// - Each [attempt](crate::raw::Task::attempt) begins with [`edge`](Self::edge). If no work waits, it
///   returns [`Idle`](crate::raw::Attempt::Idle).
/// - [`begin_attempt`](Self::begin_attempt) comes before each system call that takes something from the
///   descriptor. [`note_ready`](Self::note_ready) follows, unless the call has shown that nothing is
///   left.
/// - When work is taken to be ended, [`end_wait`](Self::end_wait) is called.
/// - Work that [`wait`](Self::wait)s although an attempt may succeed has the port
///   [retry](crate::raw::Raw::retry) the task.
///
/// # Threads
///
/// Any thread may call these at any time, except that one thread at a time lets work wait, or ends that.
/// A lock of the program ensures it.
///
/// # Examples
///
/// ```
/// use completion_port::raw::EdgeNotes;
///
/// let notes = EdgeNotes::new();
/// assert!(notes.edge(), "work waits: an attempt is worthwhile");
/// notes.begin_attempt();
/// notes.end_wait(); // it is done, and nothing is left
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
    /// Creates the notes of a task whose first work waits.
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

    /// Returns whether an edge has the task tried, which then notes the edge. Otherwise this call has
    /// noted it.
    #[inline]
    pub(crate) fn is_tried_at_edge(&self) -> bool {
        self.waits.load(Relaxed) || self.edge()
    }

    /// Work waits for the next edge. Returns whether an attempt may succeed already: an edge has come
    /// since the last attempt began, or the last attempt has left something. Then the caller has the
    /// port [retry](crate::raw::Raw::retry) the task.
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
