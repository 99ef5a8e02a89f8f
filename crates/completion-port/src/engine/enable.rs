//! Arming that may find a registration at its end: its operations end with it.

use std::sync::Arc;

use super::Engine;
use super::context::{Name, PortPhase};
use super::registry::{Registry, Return};
use super::worker::Worker;
use crate::state::slot::{Drained, Slot};
use crate::state::table::Holder;
use crate::types::error::{Call, Error};
use crate::types::interest::{Interest, Mode};

impl Engine {
    /// The token of a held registration gives its key back, to be armed with `mode` or parked (`None`).
    ///
    /// If it is refused, the key is the caller's again, and the registration has ended.
    pub(crate) fn put_back(
        &self,
        call: Call,
        slot: &Slot,
        name: Name,
        terms: Return,
        worker: impl FnOnce() -> Option<Arc<Worker>>,
    ) -> Result<(), Error> {
        if self.phase() == PortPhase::ShuttingDown && !self.forked() {
            // The sweep has not come to this registration yet, so it is removed here.
            let _ = self.remove(name);
        }
        Registry::put_back(self, call, slot, name, terms, worker)
    }

    /// Enables a registration by its name.
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

    /// Has a registration report more than its filter says, once, whatever state it is in.
    pub(crate) fn enable_also(
        &self,
        name: Name,
        interest: Interest,
        worker: impl FnOnce() -> Option<Arc<Worker>>,
    ) -> Result<(), Error> {
        let slot = self.may_enable_also(name)?;
        // Also for a token that is out: its return may be the short way to the handler's own filter, and asks
        // the kernel for nothing else.
        if !self.watch(slot, name, interest) {
            self.retire(name);
        }
        self.enable_watched_also(slot, name, interest, worker)
    }
}
