//! Associations made while operations that began without one are in flight.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A port's handle, and a key.
type Association = (u64, usize);

/// Where operations that began without an association look for one when they end. All operations of a socket or file that
/// begin before its first association share one cell.
#[derive(Debug, Default)]
pub(crate) struct Later(Mutex<Option<Association>>);

impl Later {
    fn lock(&self) -> MutexGuard<'_, Option<Association>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the association. Operations that are still pending after this make a packet. An operation whose end a thread has
    /// already observed makes none.
    pub(crate) fn set(&self, port: u64, key: usize) {
        self.lock().get_or_insert((port, key));
    }

    /// Calls `end`, which writes an operation's status, and returns the association if there is one. No association can be
    /// set in between.
    pub(crate) fn get(&self, end: impl FnOnce()) -> Option<Association> {
        let association = self.lock();
        end();
        *association
    }
}
