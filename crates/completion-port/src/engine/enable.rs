//! Arming that may find that a registration has ended, and then ends its operations too.

use std::sync::Arc;

use super::Engine;
use super::context::Name;
use super::registry::{KeyReturn, Registry};
use super::worker::Worker;
use crate::state::slot::{Drained, Slot};
use crate::state::table::Holder;
use crate::types::error::{Call, Error};
use crate::types::interest::{Interest, Mode};

impl Engine {
    /// Takes the key back from the token of a held registration, and arms it with `mode` or parks
    /// it.
    ///
    /// It is parked if `mode` is `None`. On failure the caller gets the key back, and the
    /// registration has ended.
    pub(crate) fn put_back(
        &self,
        call: Call,
        slot: &Slot,
        name: Name,
        terms: KeyReturn,
        worker: impl FnOnce() -> Option<Arc<Worker>>,
    ) -> Result<(), Error> {
        if self.phase().returns_keys() && !self.forked() {
            // The sweep has not reached this registration yet, or has left it to the return of its
            // key.
            let _ = self.remove(name);
        }
        Registry::put_back(self, call, slot, name, terms, worker)
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
