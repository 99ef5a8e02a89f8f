//! The request to abort a task, and the list in which a task is found that is to be aborted.

use std::sync::atomic::Ordering::Relaxed;
use std::task::Waker;

use crate::state::places::Places;
use crate::sync::AtomicBool;

/// Whether a task is to be aborted.
pub(crate) struct Abort(AtomicBool);

impl Abort {
    pub(crate) fn new() -> Self {
        Self(AtomicBool::new(false))
    }

    /// Makes a later poll of the task end it. The list is locked.
    ///
    /// The caller wakes the task, if its waker is in the list, and the poll that follows sees the
    /// flag, because the wake orders the two. Before the waker is there, the two need not be
    /// ordered: the first poll may miss the flag where it begins, and sees it when it stores the
    /// waker, under the lock. If that poll completes instead, the request has no effect.
    fn request(&self) {
        self.0.store(true, Relaxed);
    }

    /// Returns whether the poll that begins now ends the task.
    pub(crate) fn is_requested(&self) -> bool {
        self.0.load(Relaxed)
    }
}

/// A task in the list.
pub(crate) struct Listed<T> {
    pub(crate) task: T,
    /// Wakes the task. Stored at the end of its first poll: many tasks have only one.
    waker: Option<Waker>,
}

impl<T: AsRef<Abort>> Listed<T> {
    pub(crate) fn new(task: T) -> Self {
        Self { task, waker: None }
    }

    /// Makes a later poll of the task end it. Returns what wakes the task, for the caller to do so
    /// without the lock.
    fn request_abort(&self) -> Option<Waker> {
        self.task.as_ref().request();
        self.waker.clone()
    }
}

impl<T: AsRef<Abort>> Places<Listed<T>> {
    /// Stores what wakes the task in this place, at the end of its first poll. If it was aborted
    /// meanwhile, wakes it.
    pub(crate) fn list_waker(&self, place: usize, waker: &Waker) {
        let is_requested = self.get(place, |listed| {
            listed.waker = Some(waker.clone());
            listed.task.as_ref().is_requested()
        });
        if is_requested == Some(true) {
            waker.wake_by_ref();
        }
    }

    /// Aborts the task in this place, if it is the one that is meant: another may have the place of
    /// one that has ended.
    pub(crate) fn abort(&self, place: usize, is_meant: impl FnOnce(&T) -> bool) {
        let request = |listed: &mut Listed<T>| {
            if is_meant(&listed.task) { listed.request_abort() } else { None }
        };
        if let Some(waker) = self.get(place, request).flatten() {
            waker.wake();
        }
    }

    /// Aborts all tasks.
    pub(crate) fn abort_all(&self) {
        self.map(Listed::request_abort).into_iter().flatten().for_each(Waker::wake);
    }
}
