//! Arming: by a token, and through the name of a registration.

use std::sync::{Arc, PoisonError};

use super::Registry;
use crate::backend::reactor::Until;
use crate::engine::context::{Name, PortPhase, kind_of, name_parts};
use crate::engine::worker::Worker;
use crate::memory::trace::trace;
use crate::state::facts::Facts;
use crate::state::slot::{Drained, Refusal, Slot, SlotStep};
use crate::sync::{AtomicU32, barrier};
use crate::types::error::{Call, Error, ErrorKind};
use crate::types::interest::{Events, Interest, Mode};

impl Registry {
    /// Whether the slot's descriptor is a file, which can be neither armed nor enabled.
    #[inline]
    fn has_no_readiness(&self, slot: &Slot, name: Name) -> bool {
        // The word rules this out for most registrations: see `take_in_file`.
        !slot.word().is_plain() && self.is_file(name_parts(name).0)
    }

    /// Takes the key back from the token of a held registration, and arms it with `mode` or as
    /// before.
    ///
    /// The short way: false, with nothing changed, in all but the common case.
    #[inline]
    pub(crate) fn rearm(
        &self,
        slot: &Slot,
        mode: Option<Mode>,
        timed: bool,
        drained: Drained,
    ) -> bool {
        if self.phase() != PortPhase::Open || self.forked() {
            return false;
        }
        // The handler has read from the descriptor. Only after that may this thread read the number
        // of the poll: see `poll`.
        barrier(&slot.link);
        slot.rearm(mode, timed, drained, self.current_poll())
    }

    /// Takes the key back from the token of a held registration by `put_back`, which gets the
    /// number of the current poll, and returns what the slot requires.
    ///
    /// It is armed with `mode`, or parked if that is `None`. On failure the caller gets the key
    /// back, and the registration has ended.
    #[inline]
    pub(in crate::engine) fn put_back(
        &self,
        call: Call,
        slot: &Slot,
        name: Name,
        mode: Option<Mode>,
        put_back: impl FnOnce(u32) -> SlotStep,
    ) -> Result<SlotStep, Error> {
        self.may_put_back(call, slot)?;
        if let Some(mode) = mode {
            if self.has_no_readiness(slot, name) {
                return Err(Error::new(call, ErrorKind::NotPollable));
            }
            if !self.watch(slot, name, mode.interest) {
                slot.retire(name_parts(name).1);
            }
        }
        // As in `rearm`.
        barrier(&slot.link);
        match put_back(self.current_poll()) {
            SlotStep::Gone => Err(Error::new(call, ErrorKind::NotRegistered)),
            next => Ok(next),
        }
    }

    /// Checks whether the port takes the key of a held slot back.
    #[inline]
    pub(in crate::engine) fn may_put_back(&self, call: Call, slot: &Slot) -> Result<(), Error> {
        self.check_usable(call)?;
        match self.phase() {
            // While the port returns its keys, the caller has removed the registration, or the
            // sweep will.
            PortPhase::Open | PortPhase::Finishing | PortPhase::ShuttingDown => Ok(()),
            PortPhase::Closed if slot.word().is_removing() => Ok(()),
            PortPhase::Closed | PortPhase::Abandoned => Err(Error::new(call, ErrorKind::Closed)),
        }
    }

    /// Finishes a persistent packet whose key has been cloned.
    ///
    /// If some events are `unreported`, the clone has panicked.
    pub(crate) fn cloned(&self, name: Name, unreported: Events, worker: Option<&Worker>) {
        let (index, generation) = name_parts(name);
        let slot = self.slot(index);
        if self.phase() != PortPhase::Open {
            // A condition that stays true must not keep a closed port going.
            let _ = slot.disable(generation);
        }
        match slot.cloned(unreported) {
            SlotStep::Nothing if slot.word().is_timed() => self.revalidate_returned(index),
            next => self.follow(next, index, worker),
        }
    }

    /// Makes sure that the kernel watches what a registration is about to be armed for.
    ///
    /// Must precede the arming, which cannot be refused afterwards. False if the registration has
    /// ended, or if its number names something that the kernel does not watch for it.
    #[inline]
    pub(in crate::engine) fn watch(&self, slot: &Slot, name: Name, interest: Interest) -> bool {
        // A one-shot reactor is asked after the arming, since its answer may come immediately.
        self.is_one_shot()
            || slot.word().unwatched(Facts::asked_by(interest)).is_none()
            || self.widen(slot, name, interest)
    }

    /// Extends what the kernel watches to everything that a registration is about to be armed for.
    #[inline(never)]
    fn widen(&self, slot: &Slot, name: Name, interest: Interest) -> bool {
        let _watching = self.set.read().unwrap_or_else(PoisonError::into_inner);
        let descriptor = slot.descriptor();
        // Under the number's lock, so that the later of two threads adds to what the other has
        // asked for.
        let widen = || {
            let Some(wanted) = slot.word().unwatched(Facts::asked_by(interest)) else {
                return true;
            };
            let wants = self.backend().want(descriptor, name, wanted, Until::Detached);
            let is_watched = wants.is_ok();
            if is_watched {
                slot.watch(wanted);
            }
            is_watched
        };
        self.backend().descriptors().holds(descriptor, self.number(), name, widen)
    }

    /// The short way of [`Engine::enable`](crate::engine::Engine::enable).
    ///
    /// False, with nothing changed, in all but the common case.
    #[inline]
    pub(crate) fn enable_plainly(
        &self,
        name: Name,
        mode: Mode,
        drained: impl Fn() -> Drained,
    ) -> bool {
        if self.phase() != PortPhase::Open || self.forked() {
            return false;
        }
        let Some((slot, generation)) = self.known(name) else { return false };
        // The caller may have read from the descriptor. Only after that may this thread read the
        // number of the poll: see `poll`. The slot may be queued, so its link cannot serve for the
        // barrier.
        barrier(std::hint::black_box(&AtomicU32::new(0)));
        let is_enabled = slot.enable_plainly(generation, mode, drained, self.current_poll());
        if is_enabled {
            trace!(DEBUG, port = self.number(), registration = ?crate::engine::DisplayedName(name), ?mode, "enabled");
        }
        is_enabled
    }

    /// Returns the slot of the registration with this name, if that may be enabled.
    ///
    /// The caller makes the kernel [watch](Self::watch) it and then calls
    /// [`Registry::enable_watched`].
    pub(in crate::engine) fn may_enable(&self, name: Name, mode: Mode) -> Result<&Slot, Error> {
        self.check_open(Call::Enable)?;
        let refused = |refusal| Error::new(Call::Enable, kind_of(refusal));
        let (slot, generation) = self.known(name).ok_or(refused(Refusal::NotRegistered))?;
        // Refused if a token holds it now, even if the token is returned right away. The kernel
        // must not watch for anything that no registration is armed with.
        slot.may_enable(generation).map_err(refused)?;
        if self.has_no_readiness(slot, name) {
            return Err(Error::new(Call::Enable, ErrorKind::NotPollable));
        }
        if mode.one_shot && self.is_shared(name_parts(name).0) {
            return Err(Error::new(Call::Enable, ErrorKind::KeyShared));
        }
        Ok(slot)
    }

    /// Enables the registration with this name, after [`Registry::may_enable`].
    pub(in crate::engine) fn enable_watched(
        &self,
        slot: &Slot,
        name: Name,
        mode: Mode,
        drained: impl Fn() -> Drained,
        worker: impl FnOnce() -> Option<Arc<Worker>>,
    ) -> Result<(), Error> {
        let (index, generation) = name_parts(name);
        let refused = |refusal| Error::new(Call::Enable, kind_of(refusal));
        // As in `enable_plainly`.
        barrier(std::hint::black_box(&AtomicU32::new(0)));
        let poll = self.current_poll();
        let enabled = match slot.enable(generation, mode, &drained, poll) {
            // Under the port's lock: see `Engine::share_key`.
            Err(Refusal::Shared) => {
                let _hub = self.lock();
                if self.is_shared(index) {
                    Err(slot.admits(generation).err().unwrap_or(Refusal::Shared))
                } else {
                    slot.enable_unshared(generation, mode, drained, poll)
                }
            }
            enabled => enabled,
        };
        match enabled.map_err(refused)? {
            SlotStep::Nothing => {}
            next => self.follow(next, index, worker().as_deref()),
        }
        trace!(DEBUG, port = self.number(), registration = ?crate::engine::DisplayedName(name), ?mode, "enabled");
        Ok(())
    }

    /// Returns the slot of a registration for which [`Registry::enable_watched_also`] may follow.
    pub(in crate::engine) fn may_enable_also(&self, name: Name) -> Result<&Slot, Error> {
        self.check_open(Call::Enable)?;
        let refused = |refusal| Error::new(Call::Enable, kind_of(refusal));
        let (slot, generation) = self.known(name).ok_or(refused(Refusal::NotRegistered))?;
        slot.admits(generation).map_err(refused)?;
        if self.has_no_readiness(slot, name) {
            return Err(Error::new(Call::Enable, ErrorKind::NotPollable));
        }
        Ok(slot)
    }

    /// Requests one extra report from a registration, whatever state it is in.
    pub(in crate::engine) fn enable_watched_also(
        &self,
        slot: &Slot,
        name: Name,
        interest: Interest,
        worker: impl FnOnce() -> Option<Arc<Worker>>,
    ) -> Result<(), Error> {
        let (index, generation) = name_parts(name);
        let refused = |refusal| Error::new(Call::Enable, kind_of(refusal));
        // As in `enable_plainly`.
        barrier(std::hint::black_box(&AtomicU32::new(0)));
        let poll = self.current_poll();
        match slot.enable_also(generation, interest, poll).map_err(refused)? {
            SlotStep::Nothing => {}
            next => self.follow(next, index, worker().as_deref()),
        }
        trace!(
            DEBUG,
            port = self.number(),
            registration = ?crate::engine::DisplayedName(name),
            ?interest,
            "enabled also"
        );
        Ok(())
    }

    /// Disables the registration with this name.
    pub(crate) fn disable(&self, name: Name) -> Result<(), Error> {
        self.check_usable(Call::Disable)?;
        let refused = |refusal| Error::new(Call::Disable, kind_of(refusal));
        let (slot, generation) = self.known(name).ok_or(refused(Refusal::NotRegistered))?;
        slot.disable(generation).map_err(refused)
    }
}
