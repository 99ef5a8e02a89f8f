//! An association that comes while operations are in flight, which began without one.

use std::sync::OnceLock;
use std::sync::atomic::{Ordering::SeqCst, fence};

/// Where operations that began without an association look for one when they end. All of a socket or a file that begin
/// before the first association share one of these.
#[derive(Debug, Default)]
pub(crate) struct Later(OnceLock<(u64, usize)>);

impl Later {
    /// The association is there: the handle of its port, and its key. An operation that a thread still finds pending
    /// behind this makes a packet.
    pub(crate) fn set(&self, port: u64, key: usize) {
        let _ = self.0.set((port, key));
        // The end of an operation stores the status first, and looks here then.
        fence(SeqCst);
    }

    /// The association, if there is one. The caller has stored the status of its operation, and a fence stands behind that.
    pub(crate) fn get(&self) -> Option<(u64, usize)> {
        self.0.get().copied()
    }
}
