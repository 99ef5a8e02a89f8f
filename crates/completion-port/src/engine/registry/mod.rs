//! The registrations: how they begin and are armed, and the data beside their slots.

mod answer;
mod check;
mod deadline;
mod enable;
mod finishing;
mod turn;

use std::ops::Deref;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};

use super::context::{BEGIN, Name, PortPhase, kind_of, name_of, name_parts};
use super::worker::Worker;
use super::workers::Workers;
use crate::backend::reactor::{Until, Watch};
use crate::memory::trace::trace;
use crate::state::deadline::DeadlineTimers;
use crate::state::facts::Facts;
use crate::state::operations::{OpEntries, OpEntry};
use crate::state::queue::Node;
use crate::state::slot::{Drained, Refusal, Removal, SlotStep};
use crate::state::table::Claim;
use crate::sync::{AtomicU32, RwLock, fence};
use crate::types::error::{Call, Error, ErrorKind, Fault};
use crate::types::interest::{Interest, Mode};
use crate::types::source::Descriptor;

use answer::until;
pub(super) use check::CheckBuffers;

/// The number of a slot without a descriptor. It is never open.
pub(super) const NO_DESCRIPTOR: Descriptor = -1;

/// A descriptor to register, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRegistration {
    pub(crate) descriptor: Descriptor,
    pub(crate) mode: Mode,
    /// The key does not own the descriptor.
    pub(crate) borrowed: bool,
    /// It is associated rather than armed, and watched for this from the start.
    pub(crate) associated: Option<Interest>,
    /// Its operations share the key.
    pub(crate) shared: bool,
}

/// What a token passes when it is returned.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyReturn {
    /// How to arm the registration; `None`: it is parked.
    pub(crate) mode: Option<Mode>,
    /// The arming has a deadline.
    pub(crate) timed: bool,
    pub(crate) drained: Drained,
}

/// See the module's documentation.
#[repr(C)]
pub(crate) struct Registry {
    workers: Workers,
    /// The number of the current poll, or of the last one.
    poll: AtomicU32,
    /// Held for reading while a descriptor is attached or detached, for writing while the kernel's
    /// set is replaced.
    set: RwLock<()>,
    /// The operation data of slots, by slot index.
    entries: OpEntries,
    /// The deadlines of armings, by slot index.
    deadline_timers: DeadlineTimers,
}

impl Deref for Registry {
    type Target = Workers;

    #[inline]
    fn deref(&self) -> &Workers {
        &self.workers
    }
}

/// How a registration begins.
impl Registry {
    pub(super) fn new(workers: Workers) -> Self {
        Self {
            workers,
            poll: AtomicU32::new(BEGIN),
            set: RwLock::new(()),
            entries: OpEntries::new(),
            deadline_timers: DeadlineTimers::new(),
        }
    }

    /// Frees a slot whose registration was refused.
    pub(crate) fn cancel(&self, index: u32) {
        self.release_slot(index);
    }

    /// Makes the reserved slot `index` a registration.
    ///
    /// The key must be in its cell: the first packet may be taken before this returns. If a token
    /// associates it, the slot is held and the caller owns the key.
    ///
    /// On failure the caller owns the key again, and the slot has been freed.
    pub(crate) fn register(
        &self,
        call: Call,
        index: u32,
        entry: NewRegistration,
        worker: impl FnOnce() -> Option<Arc<Worker>>,
    ) -> Result<Name, Error> {
        let name = self.enter(call, index, entry)?;
        let NewRegistration { mode, associated, shared, .. } = entry;
        let armed = if associated.is_some() { None } else { Some(mode) };
        if armed.is_some() || shared {
            self.arm_entered(call, name, armed, false, worker)?;
        }
        self.trace_registered(name, entry);
        Ok(name)
    }

    /// Takes the key of a slot that the caller has just [entered](Self::enter), and arms the slot.
    ///
    /// With `mode` of `None`, the slot stays idle. On failure the slot has been freed.
    #[inline]
    fn arm_entered(
        &self,
        call: Call,
        name: Name,
        mode: Option<Mode>,
        timed: bool,
        worker: impl FnOnce() -> Option<Arc<Worker>>,
    ) -> Result<(), Error> {
        let (index, _) = name_parts(name);
        let slot = self.slot(index);
        match slot.put_back(mode, timed, Drained::NONE, self.current_poll()) {
            SlotStep::Gone => {
                // The descriptor was closed, and its number registered again, before this call
                // finished.
                self.release_number(name);
                slot.free();
                return Err(Error::new(call, ErrorKind::BadDescriptor));
            }
            next => self.follow(next, index, worker().as_deref()),
        }
        Ok(())
    }

    #[inline]
    fn trace_registered(&self, name: Name, entry: NewRegistration) {
        let _ = (name, entry);
        trace!(
            DEBUG,
            port = self.number(),
            registration = ?super::DisplayedName(name),
            descriptor = entry.descriptor,
            mode = ?entry.mode,
            "registered"
        );
    }

    /// Makes the reserved slot `index` a registration without a descriptor and without a key, for
    /// an operation that needs neither. The caller holds it.
    ///
    /// On failure the slot has been freed.
    pub(crate) fn register_nothing(&self, call: Call, index: u32) -> Result<Name, Error> {
        let slot = self.slot(index);
        self.begin_entry(index, false);
        let mode = Mode { interest: Interest::NONE, edge: false, one_shot: true };
        let name = name_of(index, slot.register(NO_DESCRIPTOR, mode, false));
        // As in `enter`.
        fence(SeqCst);
        if self.phase() == PortPhase::Open {
            return Ok(name);
        }
        slot.free();
        self.release_slot(index);
        Err(Error::new(call, ErrorKind::Closed))
    }

    /// Makes the reserved slot `index` a registration that is watched and held.
    ///
    /// On failure the slot has been freed.
    #[inline]
    pub(super) fn enter(
        &self,
        call: Call,
        index: u32,
        NewRegistration { descriptor, mode, borrowed, associated, shared }: NewRegistration,
    ) -> Result<Name, Error> {
        let failed = |kind| Error::new(call, kind);
        let slot = self.slot(index);
        if !self.begin_entry(index, shared) {
            // `release_slot` expects a slot that was freed at least once.
            slot.free();
            return Err(failed(ErrorKind::OutOfMemory));
        }
        let attaching = self.set.read().unwrap_or_else(PoisonError::into_inner);
        let generation = slot.register(descriptor, mode, borrowed);
        let name = name_of(index, generation);
        // Either this thread sees that the port is shutting down, or the thread that shuts it down
        // sees this slot.
        fence(SeqCst);
        let claimed = if self.phase() != PortPhase::Open {
            Err(failed(ErrorKind::Closed))
        } else {
            self.claim(call, index, name, descriptor, associated)
        };
        drop(attaching);
        if let Err(error) = claimed {
            // The slot is held, so no other thread has touched the key, whatever it has requested
            // meanwhile.
            slot.free();
            return Err(error);
        }
        if associated.is_some() {
            // Nothing is known about the socket, so the first operation of each direction is tried
            // immediately.
            slot.know(Facts::IN | Facts::OUT, true);
        }
        Ok(name)
    }

    /// Has the kernel watch the descriptor of a slot that is being registered.
    ///
    /// Fails if the number belongs to another registration.
    #[inline]
    fn claim(
        &self,
        call: Call,
        index: u32,
        name: Name,
        descriptor: Descriptor,
        associated: Option<Interest>,
    ) -> Result<(), Error> {
        let failed = |kind| Error::new(call, kind);
        let slot = self.slot(index);
        let expected = associated.map_or(Facts::NONE, Facts::asked_by);
        let wanted = slot.word().wanted_directions() | expected;
        if self.is_one_shot() {
            slot.suspect();
        } else {
            slot.watch(wanted);
        }
        let is_file = std::cell::Cell::new(false);
        let attach = || {
            let attached = self.backend().attach(descriptor, name, wanted);
            match attached {
                Err(fault) if associated.is_some() && fault.kind == ErrorKind::NotPollable => {
                    self.take_in_file(index, descriptor)
                        .map_err(|refused| refused.unwrap_or(fault))?;
                    is_file.set(true);
                    // There is nothing to watch, and only the table knows whether the number is
                    // taken. This fault makes the table look.
                    Err(Fault { kind: ErrorKind::AlreadyRegistered, code: None })
                }
                attached => attached,
            }
        };
        let adopt = || match is_file.get() {
            true => Ok(()),
            false => self.backend().adopt(descriptor, name, wanted),
        };
        let detach = || self.backend().detach(descriptor);
        let table = self.backend().descriptors();
        let claimed = table.claim(descriptor, self.number(), name, attach, adopt, detach);
        claimed.map_err(|claim| match claim {
            Claim::Refused(fault) => failed(fault.kind).with_code(fault.code),
            Claim::Here(existing, fault) => {
                failed(fault.kind).with_code(fault.code).of_existing(existing)
            }
            Claim::Elsewhere => failed(ErrorKind::AlreadyRegistered).on_another_port(),
        })
    }

    /// Makes the slot the association of a descriptor that cannot be watched.
    ///
    /// `Err(None)`: it is not a file.
    #[cold]
    fn take_in_file(&self, index: u32, descriptor: Descriptor) -> Result<(), Option<Fault>> {
        if !self.backend().is_file(descriptor) {
            return Err(None);
        }
        if !self.entries.reserve(index) {
            return Err(Some(Fault { kind: ErrorKind::OutOfMemory, code: None }));
        }
        self.entries.at(index).is_file.store(true, SeqCst);
        // Every arming then takes the long way, which refuses it.
        self.slot(index).suspect();
        Ok(())
    }
}

/// How a registration's descriptor is forgotten.
impl Registry {
    /// Forgets the descriptor of a registration, in the table and in the kernel.
    ///
    /// Does nothing if that has been done, or if the number belongs to another registration by now.
    pub(super) fn detach(&self, descriptor: Descriptor, name: Name) {
        let _detaching = self.set.read().unwrap_or_else(PoisonError::into_inner);
        let detach = || self.backend().detach(descriptor);
        self.backend().descriptors().release(descriptor, self.number(), name, detach);
    }

    /// Releases the number of a registration whose descriptor turned out to be closed.
    pub(crate) fn release_number(&self, name: Name) {
        let (index, _) = name_parts(name);
        let descriptor = self.slot(index).descriptor();
        self.backend().descriptors().release(descriptor, self.number(), name, || {});
    }

    /// Returns the registration of what `descriptor` names now, if it has one.
    pub(crate) fn find(&self, descriptor: Descriptor) -> Option<Name> {
        if self.forked() {
            return None;
        }
        let name = self.backend().descriptors().find(descriptor, self.number())?;
        self.is_current(name).then_some(name)
    }

    /// Whether a registration is live and its number still names what was registered.
    pub(crate) fn is_current(&self, name: Name) -> bool {
        if self.forked() || !self.is_live(name) {
            return false;
        }
        let descriptor = self.slot(name_parts(name).0).descriptor();
        let watches = || self.has(descriptor, name);
        self.backend().descriptors().holds(descriptor, self.number(), name, watches)
    }

    /// Whether the kernel has the descriptor for this registration: in its set, or as a file.
    pub(super) fn has(&self, descriptor: Descriptor, name: Name) -> bool {
        if self.is_live(name) && self.is_file(name_parts(name).0) {
            // The key owns the descriptor, so it is open.
            self.backend().is_file(descriptor)
        } else {
            self.backend().watches(descriptor)
        }
    }

    /// Whether the registration with this name is live.
    pub(super) fn is_live(&self, name: Name) -> bool {
        self.known(name).is_some_and(|(slot, generation)| {
            let word = slot.word();
            word.is_live() && word.generation() == generation && !word.is_removing()
        })
    }

    /// Marks a registration as removed and forgets its descriptor, which is returned.
    ///
    /// If the caller [owns](Removal::Owned) the node, it queues it; otherwise it cancels the
    /// operations. With `collects`, the key will be the caller's own, and no packet is made.
    pub(super) fn mark_removed(
        &self,
        name: Name,
        collects: bool,
    ) -> Result<(Removal, Descriptor), Error> {
        self.check_usable(Call::Remove)?;
        let refused = |refusal| Error::new(Call::Remove, kind_of(refusal));
        let (slot, generation) = self.known(name).ok_or(refused(Refusal::NotRegistered))?;
        // Read first: once the slot is marked, another thread may free it.
        let descriptor = slot.descriptor();
        let removal = slot.remove(generation, collects).map_err(refused)?;
        if removal != Removal::Already {
            self.detach(descriptor, name);
        }
        Ok((removal, descriptor))
    }

    /// Marks a registration as ended without a packet.
    ///
    /// If the caller owns the key, it frees the slot, which forgets the descriptor. Otherwise the
    /// descriptor is forgotten here, and the caller cancels the operations.
    pub(super) fn mark_ended(&self, name: Name) -> Result<(Removal, Descriptor), Error> {
        self.check_usable(Call::Remove)?;
        let unknown = || Error::new(Call::Remove, ErrorKind::NotRegistered);
        let (slot, generation) = self.known(name).ok_or_else(unknown)?;
        // Read first: once the slot is marked, another thread may free it.
        let descriptor = slot.descriptor();
        let removal = slot.retire(generation);
        match removal {
            Removal::Already => return Err(unknown()),
            Removal::Marked => self.detach(descriptor, name),
            Removal::Owned => {}
        }
        Ok((removal, descriptor))
    }
}

/// The number of the poll, and the kernel's set.
impl Registry {
    /// Returns the number of the current poll, or of the last one.
    #[inline]
    pub(super) fn current_poll(&self) -> u32 {
        self.poll.load(SeqCst)
    }

    /// Starts a poll. Returns its number.
    #[inline]
    pub(super) fn begin_poll(&self) -> u32 {
        self.poll.fetch_add(1, SeqCst).wrapping_add(1)
    }

    /// Replaces the kernel's set with one that has only the live registrations.
    ///
    /// Returns whether it did.
    #[cold]
    pub(super) fn rebuild(&self) -> bool {
        let highest = self.lock().lists().highest_slot();
        let _alone = self.set.write().unwrap_or_else(PoisonError::into_inner);
        let mut live = (0..highest).filter_map(|index| {
            let slot = self.nodes().find_slot(index)?;
            let word = slot.word();
            let wanted = word.is_live() && !word.is_removing();
            // If the number was closed and reused, it no longer belongs to this registration.
            let wanted =
                wanted && (!word.is_borrowed() || self.backend().watches(slot.descriptor()));
            if wanted && let Some(entry) = self.entry(index) {
                entry.watch_briefly();
            }
            wanted.then(|| Watch {
                descriptor: slot.descriptor(),
                name: name_of(index, word.generation()),
                wanted: if self.is_one_shot() { word.wanted_directions() } else { word.watched() },
                until: if self.is_one_shot() { until(word) } else { Until::Detached },
            })
        });
        // Without a descriptor or memory for the new set, the port keeps the old one with its stale
        // edges.
        self.backend().rebuild(&mut live).is_ok()
    }
}

/// The operation data of slots.
impl Registry {
    /// Returns the [`OpEntry`] of a slot that has had operations.
    ///
    /// Later registrations of the slot reuse it.
    #[inline]
    pub(super) fn entry(&self, index: u32) -> Option<&OpEntry> {
        self.entries.find(index)
    }

    /// Returns the [`OpEntry`] of a slot whose operations have been started.
    #[inline]
    pub(crate) fn entry_of_operation(&self, index: u32) -> &OpEntry {
        self.entries.at(index)
    }

    /// Whether operations of this registration are started through its name.
    #[inline]
    pub(super) fn is_shared(&self, index: u32) -> bool {
        self.entry(index).is_some_and(|entry| entry.lock().is_shared)
    }

    /// Prepares the operation data of the reserved slot `index`, which becomes a registration.
    ///
    /// If it is `shared`, operations are started through its name. False if there is no memory.
    pub(crate) fn begin_entry(&self, index: u32, shared: bool) -> bool {
        if shared && !self.entries.reserve(index) {
            return false;
        }
        if let Some(entry) = self.entry(index) {
            entry.begin();
            entry.lock().begin(shared);
        }
        true
    }

    /// Whether the slot's descriptor is a file, which no reactor watches.
    pub(super) fn is_file(&self, index: u32) -> bool {
        self.entries.find(index).is_some_and(|entry| entry.is_file.load(SeqCst))
    }

    /// Returns the node of a slot's lone operation.
    #[inline]
    pub(super) fn own_node(&self, index: u32) -> Node {
        let own = self.entry(index).and_then(|entry| entry.own());
        own.expect("a lone operation uses the op index of its entry")
    }

    /// Makes sure that the slot has an [`OpEntry`]. False if there is no memory.
    pub(super) fn reserve_entry(&self, index: u32) -> bool {
        self.entries.reserve(index)
    }
}
