//! The life of a registration.

use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use super::seat::Seat;
use super::{Engine, Name, Notable, Phase, name_of, name_parts};
use crate::backend::reactor::Until;
use crate::backend::thread::Thread;
use crate::memory::trace::{trace, trace_aside};
use crate::state::facts::Facts;
use crate::state::operations::Verdict;
use crate::state::slot::{Drained, GENERATIONS, Next, Refusal, Removal, Slot};
use crate::state::table::{Claim, Holder};
use crate::sync::{AtomicU32, barrier, fence};
use crate::types::error::Fault;
use crate::types::error::{Call, Error, ErrorKind};
use crate::types::interest::Mode;
use crate::types::interest::{Events, Interest};
use crate::types::source::Descriptor;

/// A descriptor that is to be registered, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) descriptor: Descriptor,
    pub(crate) mode: Mode,
    /// The key does not own the descriptor.
    pub(crate) borrowed: bool,
    /// It is associated, and not armed: watched for this from the first.
    pub(crate) associated: Option<Interest>,
    /// Its operations share the key.
    pub(crate) shared: bool,
}

/// What a token says as it gives its key back.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Return {
    /// How the registration is to be armed; `None`: it is parked.
    pub(crate) mode: Option<Mode>,
    /// The arming has a deadline.
    pub(crate) timed: bool,
    pub(crate) drained: Drained,
}

impl Engine {
    /// A free slot, for [`Engine::register`] or [`Engine::cancel`].
    pub(crate) fn reserve_slot(
        &self,
        call: Call,
        also: impl FnOnce(u32) -> bool,
    ) -> Result<u32, Error> {
        self.check_open(call)?;
        let reserve = |number| {
            let reserved = self.nodes.slots.reserve(number) && also(number);
            if reserved {
                self.slot(number).begin_with(self.first_generation());
            }
            reserved
        };
        let mut state = self.lock();
        if state.stock.phase != Phase::Open {
            return Err(Error::new(call, ErrorKind::Closed));
        }
        let index = state.stock.slots.take(&self.nodes, 0, reserve);
        let index = index.ok_or(Error::new(call, ErrorKind::OutOfMemory))?;
        Ok(index)
    }

    /// The generation that slots begin with.
    pub(crate) fn first_generation(&self) -> u32 {
        self.of_this_port() % GENERATIONS
    }

    /// Gives back a slot whose registration was refused.
    pub(crate) fn cancel(&self, index: u32) {
        self.give_back_slot(index);
    }

    /// Gives back a slot that has been given up, unless it has no name left to give.
    fn give_back_slot(&self, index: u32) {
        // The slot was given up at least once, so it has its first generation again only if every
        // generation was used.
        let is_used_up = self.slot(index).word().generation() == self.first_generation();
        let mut state = self.lock();
        let stock = &mut state.stock;
        if is_used_up {
            // Names are never given out again, so neither is the slot.
            stock.slots.retire();
        } else {
            stock.slots.give_back(&self.nodes, 0, index);
        }
        stock.tell_collectors();
        drop(self.end_if_over(state));
    }

    /// Makes the reserved slot `index` a registration. Its key must be in its cell: the first packet
    /// may be taken before this returns. If it is associated by a token, the slot is held, and the key the
    /// caller's.
    ///
    /// If it is refused, the key is the caller's again, and the slot has been given back.
    pub(crate) fn register(
        &self,
        call: Call,
        index: u32,
        entry: Entry,
        seat: impl FnOnce() -> Option<Arc<Seat>>,
    ) -> Result<Name, Error> {
        let name = self.enter(call, index, entry)?;
        let Entry { mode, associated, shared, .. } = entry;
        let armed = if associated.is_some() { None } else { Some(mode) };
        if armed.is_some() || shared {
            let slot = self.slot(index);
            match slot.put_back(armed, false, Drained::NONE, self.current_poll()) {
                Next::Gone => {
                    // The descriptor was closed, and its number registered anew, before this call was
                    // over.
                    self.release_number(name);
                    slot.free();
                    return Err(Error::new(call, ErrorKind::BadDescriptor));
                }
                next => self.follow(next, index, seat().as_deref()),
            }
        }
        trace!(
            DEBUG,
            port = self.number,
            registration = ?super::Shown(name),
            descriptor = entry.descriptor,
            ?mode,
            "registered"
        );
        Ok(name)
    }

    /// Makes the reserved slot `index` a registration that is watched, and held. If it is refused the slot
    /// has been given up.
    #[inline]
    pub(super) fn enter(
        &self,
        call: Call,
        index: u32,
        Entry { descriptor, mode, borrowed, associated, shared }: Entry,
    ) -> Result<Name, Error> {
        let failed = |kind| Error::new(call, kind);
        let slot = self.slot(index);
        if !self.begin_desk(index, shared) {
            // As any slot that is given back, it has been given up.
            slot.free();
            return Err(failed(ErrorKind::OutOfMemory));
        }
        let attaching = self.set.read().unwrap_or_else(PoisonError::into_inner);
        let generation = slot.register(descriptor, mode, borrowed);
        let name = name_of(index, generation);
        // Either this thread sees that the port shuts down, or the thread that shuts it down sees
        // this slot.
        fence(SeqCst);
        let claimed = if self.phase() != Phase::Open {
            Err(failed(ErrorKind::Closed))
        } else {
            let expected = associated.map_or(Facts::NONE, Facts::asked_by);
            let wanted = slot.word().wanted_directions() | expected;
            if self.is_one_shot {
                slot.suspect();
            } else {
                slot.watch(wanted);
            }
            let is_file = std::cell::Cell::new(false);
            let attach = || {
                let attached = self.backend.attach(descriptor, name, wanted);
                match attached {
                    Err(fault) if associated.is_some() && fault.kind == ErrorKind::NotPollable => {
                        self.take_in_file(index, descriptor)
                            .map_err(|refused| refused.unwrap_or(fault))?;
                        is_file.set(true);
                        // There is nothing to watch. Whether the number is taken, the table alone knows.
                        Err(Fault { kind: ErrorKind::AlreadyRegistered, code: None })
                    }
                    attached => attached,
                }
            };
            let adopt = || match is_file.get() {
                true => Ok(()),
                false => self.backend.adopt(descriptor, name, wanted),
            };
            let detach = || self.backend.detach(descriptor);
            let table = self.backend.descriptors();
            let claimed = table.claim(descriptor, self.number, name, attach, adopt, detach);
            claimed.map_err(|claim| match claim {
                Claim::Refused(fault) => failed(fault.kind).with_code(fault.code),
                Claim::Here(existing, fault) => {
                    failed(fault.kind).with_code(fault.code).of_existing(existing)
                }
                Claim::Elsewhere => failed(ErrorKind::AlreadyRegistered).on_another_port(),
            })
        };
        drop(attaching);
        if let Err(error) = claimed {
            // Only the holder of a slot touches its key, whatever other threads have asked for
            // meanwhile.
            slot.free();
            return Err(error);
        }
        if associated.is_some() {
            // Nothing is known of the socket: the first operation of each direction is tried at once.
            slot.know(Facts::IN | Facts::OUT, true);
        }
        Ok(name)
    }

    /// The slot is to be the association of a descriptor that cannot be watched. `Err(None)`: it is no file.
    #[cold]
    fn take_in_file(&self, index: u32, descriptor: Descriptor) -> Result<(), Option<Fault>> {
        if !self.backend.is_file(descriptor) {
            return Err(None);
        }
        if !self.desks.reserve(index) {
            return Err(Some(Fault { kind: ErrorKind::OutOfMemory, code: None }));
        }
        self.desks.at(index).is_file.store(true, SeqCst);
        // Each arming takes the long way, where it is refused.
        self.slot(index).suspect();
        Ok(())
    }

    /// Whether it is a file's, and can neither be armed nor enabled.
    #[inline]
    fn has_no_readiness(&self, slot: &Slot, name: Name) -> bool {
        // Of most registrations the word tells that they are none: see `take_in_file`.
        !slot.word().is_plain() && self.is_file(name_parts(name).0)
    }

    /// The token of a held registration gives its key back, to be armed with `mode`, or as it was.
    /// False, and nothing has changed, in all but the common case.
    #[inline]
    pub(crate) fn rearm(
        &self,
        slot: &Slot,
        mode: Option<Mode>,
        timed: bool,
        drained: Drained,
    ) -> bool {
        if self.phase() != Phase::Open || self.forked() {
            return false;
        }
        // See `poll`: the handler has read from the descriptor, and only then takes the number.
        barrier(&slot.link);
        slot.rearm(mode, timed, drained, self.current_poll())
    }

    /// The token of a held registration gives its key back, to be armed with `mode` or parked (`None`).
    ///
    /// If it is refused, the key is the caller's again, and the registration has ended.
    pub(crate) fn put_back(
        &self,
        call: Call,
        slot: &Slot,
        name: Name,
        Return { mode, timed, drained }: Return,
        seat: impl FnOnce() -> Option<Arc<Seat>>,
    ) -> Result<(), Error> {
        if self.forked() {
            return Err(Error::new(call, ErrorKind::Forked));
        }
        match self.phase() {
            Phase::Open => {}
            // The sweep has not come to this registration yet, so it is removed here.
            Phase::ShuttingDown => {
                let _ = self.remove(name);
            }
            Phase::Closed if slot.word().is_removing() => {}
            Phase::Closed | Phase::Abandoned => {
                return Err(Error::new(call, ErrorKind::Closed));
            }
        }
        if let Some(mode) = mode {
            if self.has_no_readiness(slot, name) {
                return Err(Error::new(call, ErrorKind::NotPollable));
            }
            if !self.watch(slot, name, mode.interest) {
                slot.retire(name_parts(name).1);
            }
        }
        // See `poll`: the handler has read from the descriptor, and only then takes the number.
        barrier(&slot.link);
        let poll = self.current_poll();
        match slot.put_back(mode, timed, drained, poll) {
            Next::Nothing => Ok(()),
            Next::Gone => Err(Error::new(call, ErrorKind::NotRegistered)),
            next => {
                self.follow(next, name_parts(name).0, seat().as_deref());
                Ok(())
            }
        }
    }

    /// Makes sure that the kernel watches what a registration is about to be armed for. This comes
    /// before the arming, which cannot be refused afterwards. False if the registration has ended,
    /// or its number names what the kernel does not watch for it.
    #[inline]
    fn watch(&self, slot: &Slot, name: Name, interest: Interest) -> bool {
        // A one-shot reactor is asked after the arming, since its answer may come at once.
        self.is_one_shot
            || slot.word().unwatched(Facts::asked_by(interest)).is_none()
            || self.widen(slot, name, interest)
    }

    /// The kernel does not watch yet all that a registration is about to be armed for.
    #[inline(never)]
    fn widen(&self, slot: &Slot, name: Name, interest: Interest) -> bool {
        let _watching = self.set.read().unwrap_or_else(PoisonError::into_inner);
        let descriptor = slot.descriptor();
        // Called under the number's lock, so that of two threads the later one adds to what the
        // other has asked for.
        let widen = || {
            let Some(wanted) = slot.word().unwatched(Facts::asked_by(interest)) else {
                return true;
            };
            let wants = self.backend.want(descriptor, name, wanted, Until::Detached);
            let is_watched = wants.is_ok();
            if is_watched {
                slot.watch(wanted);
            }
            is_watched
        };
        self.backend.descriptors().holds(descriptor, self.number, name, widen)
    }

    /// The key of a persistent packet has been cloned. If something is `unreported`, the clone has
    /// panicked.
    pub(crate) fn cloned(&self, name: Name, unreported: Events, seat: Option<&Seat>) {
        let (index, generation) = name_parts(name);
        let slot = self.slot(index);
        if self.phase() != Phase::Open {
            // A condition that holds must not keep a closed port going.
            let _ = slot.disable(generation);
        }
        match slot.cloned(unreported) {
            Next::Nothing if slot.word().is_timed() => self.mind_given_back(index),
            next => self.follow(next, index, seat),
        }
    }

    /// Ends a registration whose key the caller holds (by its token), and gives its slot up.
    pub(crate) fn end(&self, name: Name) {
        if self.forked() {
            // In a forked child everything but the descriptors belongs to the parent, the locks
            // too.
            return;
        }
        self.free(name);
    }

    /// Gives up a slot whose node or key the caller owns. The registration has ended.
    pub(crate) fn free(&self, name: Name) {
        let (index, _) = name_parts(name);
        let slot = self.slot(index);
        let descriptor = slot.descriptor();
        self.detach(descriptor, name);
        self.drop_file_ref(index);
        slot.free();
        self.give_back_slot(index);
        trace!(DEBUG, port = self.number, registration = ?super::Shown(name), descriptor, "ended");
    }

    /// Forgets the descriptor of a registration, in the table and in the kernel, unless that has
    /// been done already, or the number belongs to another registration by now.
    pub(super) fn detach(&self, descriptor: Descriptor, name: Name) {
        let _detaching = self.set.read().unwrap_or_else(PoisonError::into_inner);
        let detach = || self.backend.detach(descriptor);
        self.backend.descriptors().release(descriptor, self.number, name, detach);
    }

    /// A token was rearmed.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_enabled(&self, name: Name, mode: Mode) {
        let _ = (name, mode);
        // The timer of an arming with a deadline may still have to be set.
        trace_aside!(
            TRACE,
            port = self.number,
            registration = ?super::Shown(name),
            ?mode,
            "enabled"
        );
    }

    /// A thread has come to a packet of the slot with this number, which it holds.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_reported(&self, index: u32, events: Events) {
        self.tell_named(name_of(index, self.slot(index).word().generation()), events);
    }

    /// A thread has come to a packet of this registration. Whatever a subscriber does, the packet goes to
    /// the caller.
    #[cold]
    #[inline(never)]
    pub(crate) fn tell_named(&self, name: Name, events: Events) {
        let _ = (name, events);
        trace_aside!(
            TRACE,
            port = self.number,
            registration = ?super::Shown(name),
            descriptor = self.slot(name_parts(name).0).descriptor(),
            ?events,
            "reported"
        );
    }

    /// A call was refused, and what it was given is its caller's again.
    #[cfg_attr(feature = "tracing", cold, inline(never))]
    #[cfg_attr(not(feature = "tracing"), inline)]
    pub(crate) fn tell_refused(
        &self,
        error: &Error,
        registration: Option<Name>,
        descriptor: Option<Descriptor>,
    ) {
        let _ = (error, registration, descriptor);
        // In a forked child a subscriber may wait for a thread that is not there.
        #[cfg(feature = "tracing")]
        if !self.forked() {
            trace_aside!(
                DEBUG,
                port = self.number,
                call = ?error.call(),
                kind = ?error.kind(),
                registration = registration.map(super::Shown).map(tracing::field::debug),
                descriptor,
                "refused"
            );
        }
    }

    /// Releases the number of a registration whose descriptor turned out to be closed.
    pub(crate) fn release_number(&self, name: Name) {
        let (index, _) = name_parts(name);
        let descriptor = self.slot(index).descriptor();
        self.backend.descriptors().release(descriptor, self.number, name, || {});
    }

    /// The registration of what `descriptor` names now, if it has one.
    pub(crate) fn find(&self, descriptor: Descriptor) -> Option<Name> {
        if self.forked() {
            return None;
        }
        let name = self.backend.descriptors().find(descriptor, self.number)?;
        self.is_current(name).then_some(name)
    }

    /// Whether a registration goes on and its number names what was registered.
    pub(crate) fn is_current(&self, name: Name) -> bool {
        if self.forked() || !self.is_live(name) {
            return false;
        }
        let descriptor = self.slot(name_parts(name).0).descriptor();
        let watches = || self.has(descriptor, name);
        self.backend.descriptors().holds(descriptor, self.number, name, watches)
    }

    /// Whether the kernel has what the number names for this registration: its set has it, or it is a file still.
    fn has(&self, descriptor: Descriptor, name: Name) -> bool {
        if self.is_live(name) && self.is_file(name_parts(name).0) {
            // The key owns it, so that it is open.
            self.backend.is_file(descriptor)
        } else {
            self.backend.watches(descriptor)
        }
    }

    /// The short way of [`Engine::enable`]. False, and nothing has changed, in all but the common case.
    #[inline]
    pub(crate) fn enable_plainly(
        &self,
        name: Name,
        mode: Mode,
        drained: impl Fn() -> Drained,
    ) -> bool {
        if self.phase() != Phase::Open || self.forked() {
            return false;
        }
        let Some((slot, generation)) = self.known(name) else { return false };
        if mode.one_shot && self.is_shared(name_parts(name).0) {
            return false;
        }
        // See `poll`: the caller may have read from the descriptor, and only then takes the number.
        // The slot may stand in a queue, so its link is not free for this.
        barrier(std::hint::black_box(&AtomicU32::new(0)));
        let is_enabled = slot.enable_plainly(generation, mode, drained, self.current_poll());
        if is_enabled {
            trace!(DEBUG, port = self.number, registration = ?super::Shown(name), ?mode, "enabled");
        }
        is_enabled
    }

    /// Enables a registration by its name.
    pub(crate) fn enable(
        &self,
        name: Name,
        mode: Mode,
        drained: impl Fn() -> Drained,
        seat: impl FnOnce() -> Option<Arc<Seat>>,
    ) -> Result<(), Error> {
        self.check_open(Call::Enable)?;
        let refused = |refusal| Error::new(Call::Enable, super::kind_of(refusal));
        let (slot, generation) = self.known(name).ok_or(refused(Refusal::NotRegistered))?;
        // Refused if it is held now, even if the token comes back at once: the kernel is not asked to watch for
        // what no registration is armed with.
        slot.may_enable(generation).map_err(refused)?;
        if self.has_no_readiness(slot, name) {
            return Err(Error::new(Call::Enable, ErrorKind::NotPollable));
        }
        if mode.one_shot && self.is_shared(name_parts(name).0) {
            return Err(Error::new(Call::Enable, ErrorKind::KeyShared));
        }
        if !self.watch(slot, name, mode.interest) {
            self.retire(name);
        }
        // See `enable_plainly`.
        barrier(std::hint::black_box(&AtomicU32::new(0)));
        let poll = self.current_poll();
        match slot.enable(generation, mode, drained, poll).map_err(refused)? {
            Next::Nothing => {}
            next => self.follow(next, name_parts(name).0, seat().as_deref()),
        }
        trace!(DEBUG, port = self.number, registration = ?super::Shown(name), ?mode, "enabled");
        Ok(())
    }

    /// Has a registration report more than its filter says, once, whatever state it is in.
    pub(crate) fn enable_also(
        &self,
        name: Name,
        interest: Interest,
        seat: impl FnOnce() -> Option<Arc<Seat>>,
    ) -> Result<(), Error> {
        self.check_open(Call::Enable)?;
        let refused = |refusal| Error::new(Call::Enable, super::kind_of(refusal));
        let (slot, generation) = self.known(name).ok_or(refused(Refusal::NotRegistered))?;
        slot.admits(generation).map_err(refused)?;
        if self.has_no_readiness(slot, name) {
            return Err(Error::new(Call::Enable, ErrorKind::NotPollable));
        }
        // Also for a token that is out: its return may be the short way to the handler's own filter, and asks
        // the kernel for nothing else.
        if !self.watch(slot, name, interest) {
            self.retire(name);
        }
        // See `enable_plainly`.
        barrier(std::hint::black_box(&AtomicU32::new(0)));
        let poll = self.current_poll();
        match slot.enable_also(generation, interest, poll).map_err(refused)? {
            Next::Nothing => {}
            next => self.follow(next, name_parts(name).0, seat().as_deref()),
        }
        trace!(
            DEBUG,
            port = self.number,
            registration = ?super::Shown(name),
            ?interest,
            "enabled also"
        );
        Ok(())
    }

    /// Disables a registration by its name.
    pub(crate) fn disable(&self, name: Name) -> Result<(), Error> {
        self.check_usable(Call::Disable)?;
        let refused = |refusal| Error::new(Call::Disable, super::kind_of(refusal));
        let (slot, generation) = self.known(name).ok_or(refused(Refusal::NotRegistered))?;
        slot.disable(generation).map_err(refused)
    }

    /// Removes a registration by its name: its last packet is on the way.
    pub(crate) fn remove(&self, name: Name) -> Result<(), Error> {
        self.check_usable(Call::Remove)?;
        let refused = |refusal| Error::new(Call::Remove, super::kind_of(refusal));
        let (slot, generation) = self.known(name).ok_or(refused(Refusal::NotRegistered))?;
        // Read first: the slot may be given up as soon as it is marked.
        let descriptor = slot.descriptor();
        match slot.remove(generation, false).map_err(refused)? {
            Removal::Owned => {
                self.detach(descriptor, name);
                self.submit(name_parts(name).0);
            }
            Removal::Marked => {
                self.detach(descriptor, name);
                self.call_off(slot, name, Verdict::Cancelled);
            }
            Removal::Already => return Ok(()),
        }
        self.tell_removed(name, descriptor);
        Ok(())
    }

    /// A registration ends by a call. Whatever a subscriber does, the call goes on: its caller may have
    /// been made the owner of a key.
    #[cfg_attr(feature = "tracing", cold, inline(never))]
    #[cfg_attr(not(feature = "tracing"), inline)]
    fn tell_removed(&self, name: Name, descriptor: Descriptor) {
        let _ = (name, descriptor);
        trace_aside!(
            DEBUG,
            port = self.number,
            registration = ?super::Shown(name),
            descriptor,
            "removed"
        );
    }

    /// Ends a registration by its name, without a packet. True if the key is in its cell and
    /// belongs to the caller alone, which moves it out and calls [`Engine::free`]. Otherwise the
    /// thread or token that owns the key or the node does so.
    pub(crate) fn forget(&self, name: Name) -> Result<bool, Error> {
        self.check_usable(Call::Remove)?;
        let failed = |kind| Error::new(Call::Remove, kind);
        let (slot, generation) = self.known(name).ok_or(failed(ErrorKind::NotRegistered))?;
        // Read first: the slot may be given up as soon as it is marked.
        let descriptor = slot.descriptor();
        match slot.retire(generation) {
            Removal::Owned => {
                self.tell_removed(name, descriptor);
                Ok(true)
            }
            Removal::Marked => {
                self.detach(descriptor, name);
                self.call_off(slot, name, Verdict::Gone);
                self.tell_removed(name, descriptor);
                Ok(false)
            }
            Removal::Already => Err(failed(ErrorKind::NotRegistered)),
        }
    }

    /// Removes a registration by its name and waits until its key is in its cell and the caller's
    /// alone, at most until `timeout` is over. The caller then moves the key out and calls
    /// [`Engine::free`].
    pub(crate) fn collect(&self, name: Name, timeout: Option<Duration>) -> Result<(), Error> {
        self.check_usable(Call::Remove)?;
        let failed = |kind| Error::new(Call::Remove, kind);
        let refused = |refusal| failed(super::kind_of(refusal));
        let (slot, generation) = self.known(name).ok_or(refused(Refusal::NotRegistered))?;
        let descriptor = slot.descriptor();
        match slot.remove(generation, true).map_err(refused)? {
            Removal::Owned => {
                self.detach(descriptor, name);
                self.tell_removed(name, descriptor);
                return Ok(());
            }
            Removal::Already => return Err(failed(ErrorKind::Removing)),
            Removal::Marked => {
                self.detach(descriptor, name);
                self.call_off(slot, name, Verdict::Cancelled);
            }
        }
        self.tell_removed(name, descriptor);
        let (index, _) = name_parts(name);
        let deadline = timeout.and_then(|timeout| self.backend.now().checked_add(timeout));
        let thread: Arc<dyn Thread> = self.backend.this_thread().into();
        let mut state = self.lock();
        state.stock.collectors.push(Arc::clone(&thread));
        state.stock.notable.set(Notable::COLLECTED, true);
        let mut unsent = None;
        let outcome = loop {
            if let Some(outcome) = slot.collect(generation) {
                break outcome.map_err(refused);
            }
            // Perhaps no thread will ever take a queued packet, so it is taken out of the queue
            // here. The slot cannot be used anew under the lock, so the node is this
            // registration's.
            self.take_back_all(&mut state);
            let stock = &mut state.stock;
            // While operations have a share in the key, the last of them goes on with the removal.
            let found = !slot.word().is_lent()
                && (stock.ready.unlink(&self.nodes, index)
                    || stock.recheck.unlink(&self.nodes, index));
            if found {
                break Ok(());
            }
            // Any thread may take what was taken back, and perhaps none is looking: `depart` calls
            // one.
            let notice = self.depart(&mut state);
            let left = deadline.map(|deadline| deadline.since(self.backend.now()));
            if left == Some(Duration::ZERO) {
                unsent = notice;
                break Err(failed(ErrorKind::TimedOut));
            }
            drop(state);
            self.notify(notice);
            // If it was unparked meanwhile, it does not sleep.
            thread.park(left);
            state = self.lock();
        };
        let collectors = &mut state.stock.collectors;
        collectors.retain(|it| !std::ptr::addr_eq(Arc::as_ptr(it), Arc::as_ptr(&thread)));
        let are_left = !collectors.is_empty();
        state.stock.notable.set(Notable::COLLECTED, are_left);
        let notice = self.depart(&mut state);
        drop(self.end_if_over(state));
        self.notify(unsent);
        self.notify(notice);
        if outcome.is_err() && slot.stop_collecting(generation) {
            self.submit(index);
        }
        outcome
    }
}

impl Holder for Engine {
    fn watches(&self, descriptor: Descriptor, name: Name) -> bool {
        self.phase() != Phase::Abandoned && self.has(descriptor, name)
    }

    fn is_live(&self, name: Name) -> bool {
        self.known(name).is_some_and(|(slot, generation)| {
            let word = slot.word();
            word.is_live() && word.generation() == generation && !word.is_removing()
        })
    }

    fn retire(&self, name: Name) {
        let Some((slot, generation)) = self.known(name) else { return };
        match slot.retire(generation) {
            Removal::Owned => self.submit(name_parts(name).0),
            Removal::Marked => self.call_off(slot, name, Verdict::Gone),
            Removal::Already => {}
        }
    }
}
