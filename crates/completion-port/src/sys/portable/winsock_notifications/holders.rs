//! Maps each socket to the reactor of the kernel that has it.

use std::collections::BTreeMap;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::SharedReactor;
use crate::types::source::Descriptor;

/// A reactor, as other reactors of its kernel see it.
pub(super) trait KernelReactor: Send + Sync {
    /// Ends its registration of a socket and takes all packets, so that removals complete.
    ///
    /// No effect on the registration if it no longer has one.
    ///
    /// Returns whether the removal of this socket is still pending: another thread has taken its
    /// packet and will process it.
    fn give_up(&self, descriptor: Descriptor) -> bool;
}

/// Maps each socket to the reactor with its registration, until the last packet of the registration
/// was taken from the reactor's queue.
#[derive(Default)]
pub(crate) struct Holders(Mutex<BTreeMap<Descriptor, Weak<dyn KernelReactor>>>);

impl fmt::Debug for Holders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.lock().keys()).finish()
    }
}

impl Holders {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<Descriptor, Weak<dyn KernelReactor>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn note(&self, descriptor: Descriptor, holder: Weak<dyn KernelReactor>) {
        self.lock().insert(descriptor, holder);
    }

    pub(super) fn find(&self, descriptor: Descriptor) -> Option<Arc<dyn KernelReactor>> {
        self.lock().get(&descriptor)?.upgrade()
    }

    /// Removes a socket of which this reactor no longer has a registration.
    pub(super) fn forget<C>(&self, descriptor: Descriptor, holder: *const SharedReactor<C>) {
        let mut held = self.lock();
        if held.get(&descriptor).is_some_and(|noted| ptr::addr_eq(noted.as_ptr(), holder)) {
            held.remove(&descriptor);
        }
    }

    /// Removes all sockets of a reactor that is gone.
    pub(super) fn forget_all<C>(&self, holder: *const SharedReactor<C>) {
        self.lock().retain(|_, noted| !ptr::addr_eq(noted.as_ptr(), holder));
    }
}
