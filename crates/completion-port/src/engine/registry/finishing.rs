//! Idle registrations of a finishing port.

use super::Registry;
use crate::engine::context::{Name, name_of, name_parts};
use crate::engine::queue::{Flags, Hub};
use crate::state::queue::Node;
use crate::state::schedule::WorkerNumber;
use crate::state::slot::Removal;
use crate::sync::MutexGuard;

impl Registry {
    /// Notes that no operation of a shared registration of a finishing port is in flight.
    #[cold]
    pub(super) fn note_idle(&self, index: Node) {
        // If another thread has ended the registration, the name finds nothing that is idle.
        let name = name_of(index, self.slot(index).word().generation());
        let mut hub = self.lock();
        hub.lists_mut().note_idle(name);
        drop(self.finish_idle(hub, None));
    }

    /// Removes the idle registrations of a finishing port, unless a handler may be about to start
    /// an operation on one of them: a packet is queued, or a thread runs with packets.
    ///
    /// Returns whether it did. The thread of the worker `own` runs no handler.
    pub(in crate::engine) fn finish_idle<'e>(
        &'e self,
        mut hub: MutexGuard<'e, Hub>,
        own: Option<WorkerNumber>,
    ) -> (MutexGuard<'e, Hub>, bool) {
        let is_due = hub.lists().flags().has(Flags::FINISHING)
            && hub.lists().ready().is_empty()
            && !hub.schedule().is_any_in_handler(own);
        if !is_due {
            return (hub, false);
        }
        let idle = hub.lists_mut().take_idle();
        drop(hub);
        for name in idle {
            self.remove_idle(name);
        }
        (self.lock(), true)
    }

    /// Removes a registration of a finishing port, unless something has its key by now.
    fn remove_idle(&self, name: Name) {
        let Some((slot, generation)) = self.known(name) else { return };
        // Read first: once the slot is marked, another thread may free it.
        let descriptor = slot.descriptor();
        let Some(removal) = slot.finish_idle(generation) else { return };
        self.detach(descriptor, name);
        if removal == Removal::Owned {
            self.submit(name_parts(name).0);
        }
        self.trace_removed(name, descriptor);
    }
}
