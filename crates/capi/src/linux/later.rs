//! An association that comes while operations are in flight, which began without one.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// The handle of a port, and a key.
type Association = (u64, usize);

/// Where operations that began without an association look for one when they end. All of a socket or a file that begin
/// before the first association share one of these.
#[derive(Debug, Default)]
pub(crate) struct Later(Mutex<Option<Association>>);

impl Later {
    fn lock(&self) -> MutexGuard<'_, Option<Association>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The association is there. An operation that a thread finds pending behind this makes a packet; one that a thread
    /// has found ended before makes none.
    pub(crate) fn set(&self, port: u64, key: usize) {
        self.lock().get_or_insert((port, key));
    }

    /// Calls `end`, which writes the status of an operation, and returns the association if there is one. None comes
    /// between the two.
    pub(crate) fn get(&self, end: impl FnOnce()) -> Option<Association> {
        let association = self.lock();
        end();
        *association
    }
}
