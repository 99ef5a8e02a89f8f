//! How the key of a registration passes from tokens to operations that share it, and back.
//!
//! The [`OpEntry`](crate::state::operations::OpEntry) has whether operations are started by the
//! registration's name, and the slot's word whether packets are one-shot. Both change together,
//! under the entry's mutex, while a token has the key. So no token exists while operations share the
//! key.

use std::sync::Arc;

use super::Engine;
use super::context::{Name, PortPhase, kind_of, name_parts};
use super::worker::Worker;
use crate::state::slot::{Drained, Refusal, Slot, SlotStep};
use crate::sync::barrier;
use crate::types::error::{Call, Error, ErrorKind};

impl Engine {
    /// Takes the key back from the token of a held registration. From now on operations share it,
    /// and are started by the registration's name.
    ///
    /// The registration is disabled. On failure the caller still has the key.
    pub(crate) fn share_key(
        &self,
        slot: &Slot,
        name: Name,
        drained: Drained,
        worker: impl FnOnce() -> Option<Arc<Worker>>,
    ) -> Result<(), Error> {
        let failed = |kind| Error::new(Call::Share, kind);
        if self.phase() == PortPhase::ShuttingDown && !self.forked() {
            // As in `put_back`.
            let _ = self.remove(name);
        }
        self.may_put_back(Call::Share, slot)?;
        let (index, _) = name_parts(name);
        if !self.reserve_entry(index) {
            return Err(failed(ErrorKind::OutOfMemory));
        }
        // As in `Registry::rearm`.
        barrier(&slot.link);
        let poll = self.current_poll();
        // `Port::enable` makes a persistent registration one-shot under the port's lock, and only if
        // it is not shared. So it does so before this, and the slot is held now, or it sees that the
        // registration is shared.
        let hub = self.lock();
        let mut queues = self.entry_of_operation(index).lock();
        let next = slot.open(drained, poll);
        queues.is_shared = next != SlotStep::Gone;
        drop(queues);
        drop(hub);
        match next {
            SlotStep::Nothing => Ok(()),
            SlotStep::Gone => Err(failed(ErrorKind::NotRegistered)),
            next => {
                self.follow(next, index, worker().as_deref());
                Ok(())
            }
        }
    }

    /// Gives the caller the key of a registration whose operations shared it. The caller makes its
    /// token.
    ///
    /// Refused while an operation is in flight, or a thread has the registration's node.
    pub(crate) fn unshare_key(&self, name: Name) -> Result<(), Error> {
        self.check_open(Call::Share)?;
        let refused = |refusal| Error::new(Call::Share, kind_of(refusal));
        let (index, generation) = name_parts(name);
        let (slot, _) = self.known(name).ok_or(refused(Refusal::NotRegistered))?;
        let not_shared = || refused(slot.refuse_to_share(generation));
        let mut queues = self.entry(index).ok_or_else(not_shared)?.lock();
        if !queues.is_shared {
            return Err(not_shared());
        }
        // While operations are in flight, the slot refuses.
        slot.reclaim(generation).map_err(refused)?;
        debug_assert_eq!(queues.in_flight(), 0, "each has a share in the key");
        queues.is_shared = false;
        Ok(())
    }
}
