//! Which reactor of a kernel has a socket.

use std::collections::BTreeMap;
use std::fmt;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use super::SharedReactor;
use crate::types::source::Descriptor;

/// A reactor, to another one of its kernel.
pub(super) trait KernelReactor: Send + Sync {
    /// Ends its registration of a socket, if it has one still, and takes what is in its queue, so that removals come to
    /// their end. Whether that of the socket has not: another thread has taken its packet, and will come to it.
    fn give_up(&self, descriptor: Descriptor) -> bool;
}

/// Which reactor of a kernel has the registration of a socket, until the last packet of that was taken from its queue.
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

    /// This reactor has no registration of the socket any more.
    pub(super) fn forget<C>(&self, descriptor: Descriptor, holder: *const SharedReactor<C>) {
        let mut held = self.lock();
        if held.get(&descriptor).is_some_and(|noted| ptr::addr_eq(noted.as_ptr(), holder)) {
            held.remove(&descriptor);
        }
    }

    /// This reactor is gone.
    pub(super) fn forget_all<C>(&self, holder: *const SharedReactor<C>) {
        self.lock().retain(|_, noted| !ptr::addr_eq(noted.as_ptr(), holder));
    }
}
