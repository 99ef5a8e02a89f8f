//! Arming that may find that a registration has ended, and then ends its operations too.

use std::sync::Arc;

use super::Engine;
use super::context::{Name, name_parts};
use super::registry::{KeyReturn, Registry};
use super::worker::Worker;
use crate::state::slot::{Drained, Slot, SlotStep};
use crate::state::table::Holder;
use crate::types::error::{Call, Error};
use crate::types::interest::{Interest, Mode};

impl Engine {
    /// Takes the key back from the token of a held registration, and arms it with `mode` or parks
    /// it.
    ///
    /// It is parked if `mode` is `None`. On failure the caller gets the key back, and the
    /// registration has ended.
    #[inline(never)]
    pub(crate) fn put_back(
        &self,
        call: Call,
        slot: &Slot,
        name: Name,
        KeyReturn { mode, timed, drained }: KeyReturn,
        worker: impl FnOnce() -> Option<Arc<Worker>>,
    ) -> Result<(), Error> {
        self.remove_if_ending(name);
        let next = Registry::put_back(self, call, slot, name, mode, |poll| {
            slot.put_back(mode, timed, drained, poll)
        })?;
        if next != SlotStep::Nothing {
            self.follow(next, name_parts(name).0, worker().as_deref());
        }
        Ok(())
    }

    /// Takes the key back like [`Engine::put_back`], arms the registration as before, in `mode`,
    /// and makes a packet whatever the kernel reports.
    pub(crate) fn put_back_again(
        &self,
        call: Call,
        slot: &Slot,
        name: Name,
        (mode, drained): (Mode, Drained),
        worker: impl FnOnce() -> Option<Arc<Worker>>,
    ) -> Result<(), Error> {
        self.remove_if_ending(name);
        let next = Registry::put_back(self, call, slot, name, Some(mode), |poll| {
            slot.put_back_again(drained, poll)
        })?;
        match next {
            SlotStep::Nothing => {}
            SlotStep::Queue => self.submit_own(name_parts(name).0, worker().as_deref()),
            next => self.follow(next, name_parts(name).0, worker().as_deref()),
        }
        Ok(())
    }

    /// Removes a registration whose key is about to be returned to a port that returns its keys.
    #[inline]
    fn remove_if_ending(&self, name: Name) {
        if self.phase().returns_keys() && !self.forked() {
            // The sweep has not reached this registration yet, or has left it to the return of its
            // key.
            let _ = self.remove(name);
        }
    }

    /// Enables the registration with this name.
    pub(crate) fn enable(
        &self,
        name: Name,
        mode: Mode,
        drained: impl Fn() -> Drained,
        worker: impl FnOnce() -> Option<Arc<Worker>>,
    ) -> Result<(), Error> {
        let slot = self.may_enable(name, mode)?;
        if !self.watch(slot, name, mode.interest) {
            self.retire(name);
        }
        self.enable_watched(slot, name, mode, drained, worker)
    }

    /// Requests one extra report from a registration, whatever state it is in.
    pub(crate) fn enable_also(
        &self,
        name: Name,
        interest: Interest,
        worker: impl FnOnce() -> Option<Arc<Worker>>,
    ) -> Result<(), Error> {
        let slot = self.may_enable_also(name)?;
        // Needed even while a handler has the token: the token may be returned the short way, with
        // the handler's own filter, which does not ask the kernel for anything else.
        if !self.watch(slot, name, interest) {
            self.retire(name);
        }
        self.enable_watched_also(slot, name, interest, worker)
    }
}
