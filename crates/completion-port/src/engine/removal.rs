//! How a registration ends: by a call, by the descriptor table, and when its key leaves the port.

use std::sync::Arc;
use std::time::Duration;

use super::Engine;
use super::context::{Name, PortPhase, kind_of, name_parts};
use super::registry::Registry;
use crate::backend::thread::Thread;
use crate::memory::trace::trace;
use crate::state::operations::EndReason;
use crate::state::slot::Removal;
use crate::state::table::Holder;
use crate::types::error::{Call, Error, ErrorKind};
use crate::types::source::Descriptor;

impl Engine {
    /// Ends a registration whose key the caller holds through its token, and frees the slot.
    pub(crate) fn end(&self, name: Name) {
        if self.forked() {
            // In a forked child everything except the descriptors belongs to the parent, including
            // the locks.
            return;
        }
        self.free(name);
    }

    /// Frees a slot whose node or key the caller owns. The registration has ended.
    pub(crate) fn free(&self, name: Name) {
        let (index, _) = name_parts(name);
        let slot = self.slot(index);
        let descriptor = slot.descriptor();
        self.detach(descriptor, name);
        self.drop_file_ref(index);
        slot.free();
        self.release_slot(index);
        trace!(DEBUG, port = self.number(), registration = ?super::DisplayedName(name), descriptor, "ended");
    }

    /// Removes the registration with this name. Its last packet follows.
    pub(crate) fn remove(&self, name: Name) -> Result<(), Error> {
        let (removal, descriptor) = self.mark_removed(name, false)?;
        let (index, _) = name_parts(name);
        match removal {
            Removal::Owned => self.submit(index),
            Removal::Marked => self.cancel_op(self.slot(index), name, EndReason::Cancelled),
            Removal::Already => return Ok(()),
        }
        self.trace_removed(name, descriptor);
        Ok(())
    }

    /// Removes the registration with this name.
    ///
    /// True if the key is in its cell and the caller's alone: the caller moves it out and calls
    /// [`Engine::free`]. Otherwise the last packet follows.
    pub(crate) fn remove_now(&self, name: Name) -> Result<bool, Error> {
        let (removal, descriptor) = self.mark_removed(name, false)?;
        match removal {
            Removal::Owned => {}
            Removal::Marked => {
                self.cancel_op(self.slot(name_parts(name).0), name, EndReason::Cancelled);
            }
            Removal::Already => return Err(Error::new(Call::Remove, ErrorKind::Removing)),
        }
        self.trace_removed(name, descriptor);
        Ok(removal == Removal::Owned)
    }

    /// Ends the registration with this name, without a packet.
    ///
    /// True if the key is in its cell and belongs to the caller alone, which moves it out and calls
    /// [`Engine::free`]. Otherwise the thread or token that owns the key or the node does so.
    pub(crate) fn forget(&self, name: Name) -> Result<bool, Error> {
        let (removal, descriptor) = self.mark_ended(name)?;
        if removal == Removal::Marked {
            self.cancel_op(self.slot(name_parts(name).0), name, EndReason::Gone);
        }
        self.trace_removed(name, descriptor);
        Ok(removal == Removal::Owned)
    }

    /// Removes the registration with this name, and waits at most `timeout` for its key.
    ///
    /// On success the key is in its cell and the caller's alone: the caller moves it out and calls
    /// [`Engine::free`].
    pub(crate) fn collect(&self, name: Name, timeout: Option<Duration>) -> Result<(), Error> {
        let (removal, descriptor) = self.mark_removed(name, true)?;
        let (index, generation) = name_parts(name);
        let slot = self.slot(index);
        match removal {
            Removal::Owned => {}
            Removal::Marked => self.cancel_op(slot, name, EndReason::Cancelled),
            Removal::Already => return Err(Error::new(Call::Remove, ErrorKind::Removing)),
        }
        self.trace_removed(name, descriptor);
        if removal == Removal::Owned {
            return Ok(());
        }
        let collected = self.wait_for_key(name, timeout);
        if collected.is_err() && slot.stop_collecting(generation) {
            self.submit(index);
        }
        collected
    }

    /// Waits until the key of a removed registration is in its cell and the caller's alone.
    fn wait_for_key(&self, name: Name, timeout: Option<Duration>) -> Result<(), Error> {
        let failed = |kind| Error::new(Call::Remove, kind);
        let (index, generation) = name_parts(name);
        let slot = self.slot(index);
        let deadline = timeout.and_then(|timeout| self.backend().now().checked_add(timeout));
        let thread: Arc<dyn Thread> = self.backend().this_thread().into();
        let mut hub = self.lock();
        hub.lists_mut().add_collector(Arc::clone(&thread));
        let mut unsent = None;
        let outcome = loop {
            if let Some(outcome) = slot.collect(generation) {
                break outcome.map_err(|refusal| failed(kind_of(refusal)));
            }
            // Perhaps no thread will ever take a queued packet, so the node is taken out of the
            // queue here. The slot cannot be reused while the port is locked, so the node is this
            // registration's.
            self.take_back_all(&mut hub);
            // While operations have a share in the key, the last of them completes the removal.
            if !slot.word().is_lent() && hub.lists_mut().unlink(self.nodes(), index) {
                break Ok(());
            }
            // Any thread may take the packets that were taken back, and perhaps none is looking:
            // `depart` wakes one.
            let notice = self.depart(&mut hub);
            let left = deadline.map(|deadline| deadline.since(self.backend().now()));
            if left == Some(Duration::ZERO) {
                unsent = notice;
                break Err(failed(ErrorKind::TimedOut));
            }
            drop(hub);
            self.notify(notice);
            // Returns immediately if another thread has unparked this one meanwhile.
            thread.park(left);
            hub = self.lock();
        };
        hub.lists_mut().remove_collector(&thread);
        let notice = self.depart(&mut hub);
        drop(self.end_if_over(hub));
        self.notify(unsent);
        self.notify(notice);
        outcome
    }
}

impl Holder for Engine {
    fn watches(&self, descriptor: Descriptor, name: Name) -> bool {
        self.phase() != PortPhase::Abandoned && self.has(descriptor, name)
    }

    fn is_live(&self, name: Name) -> bool {
        Registry::is_live(self, name)
    }

    fn retire(&self, name: Name) {
        let Some((slot, generation)) = self.known(name) else { return };
        match slot.retire(generation) {
            Removal::Owned => self.submit(name_parts(name).0),
            Removal::Marked => self.cancel_op(slot, name, EndReason::Gone),
            Removal::Already => {}
        }
    }
}
