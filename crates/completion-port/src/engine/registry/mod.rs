//! The registrations: how they begin, are armed, and what stands beside their slots.

mod answer;
mod check;
mod deadline;
mod enable;
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

/// A descriptor that is to be registered, and how.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewRegistration {
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

/// See the module's documentation.
#[repr(C)]
pub(crate) struct Registry {
    workers: Workers,
    /// The number of the poll that is under way, or of the last one.
    poll: AtomicU32,
    /// Held for reading while a descriptor is attached or detached, for writing while the kernel's
    /// set is replaced.
    set: RwLock<()>,
    /// What slots have beside their words, by the numbers of slots.
    entries: OpEntries,
    /// The deadlines of their armings, in the same way.
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

    /// Gives back a slot whose registration was refused.
    pub(crate) fn cancel(&self, index: u32) {
        self.give_back_slot(index);
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
        entry: NewRegistration,
        worker: impl FnOnce() -> Option<Arc<Worker>>,
    ) -> Result<Name, Error> {
        let name = self.enter(call, index, entry)?;
        let NewRegistration { mode, associated, shared, .. } = entry;
        let armed = if associated.is_some() { None } else { Some(mode) };
        if armed.is_some() || shared {
            let slot = self.slot(index);
            match slot.put_back(armed, false, Drained::NONE, self.current_poll()) {
                SlotStep::Gone => {
                    // The descriptor was closed, and its number registered anew, before this call was
                    // over.
                    self.release_number(name);
                    slot.free();
                    return Err(Error::new(call, ErrorKind::BadDescriptor));
                }
                next => self.follow(next, index, worker().as_deref()),
            }
        }
        trace!(
            DEBUG,
            port = self.number(),
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
        NewRegistration { descriptor, mode, borrowed, associated, shared }: NewRegistration,
    ) -> Result<Name, Error> {
        let failed = |kind| Error::new(call, kind);
        let slot = self.slot(index);
        if !self.begin_entry(index, shared) {
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
        let claimed = if self.phase() != PortPhase::Open {
            Err(failed(ErrorKind::Closed))
        } else {
            self.claim(call, index, name, descriptor, associated)
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

    /// Has the kernel watch the descriptor of a slot that is being registered, unless its number is another
    /// registration's.
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
                    // There is nothing to watch. Whether the number is taken, the table alone knows.
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

    /// The slot is to be the association of a descriptor that cannot be watched. `Err(None)`: it is no file.
    #[cold]
    fn take_in_file(&self, index: u32, descriptor: Descriptor) -> Result<(), Option<Fault>> {
        if !self.backend().is_file(descriptor) {
            return Err(None);
        }
        if !self.entries.reserve(index) {
            return Err(Some(Fault { kind: ErrorKind::OutOfMemory, code: None }));
        }
        self.entries.at(index).is_file.store(true, SeqCst);
        // Each arming takes the long way, where it is refused.
        self.slot(index).suspect();
        Ok(())
    }
}

/// How its descriptor is forgotten.
impl Registry {
    /// Forgets the descriptor of a registration, in the table and in the kernel, unless that has
    /// been done already, or the number belongs to another registration by now.
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

    /// The registration of what `descriptor` names now, if it has one.
    pub(crate) fn find(&self, descriptor: Descriptor) -> Option<Name> {
        if self.forked() {
            return None;
        }
        let name = self.backend().descriptors().find(descriptor, self.number())?;
        self.is_current(name).then_some(name)
    }

    /// Whether a registration goes on and its number names what was registered.
    pub(crate) fn is_current(&self, name: Name) -> bool {
        if self.forked() || !self.is_live(name) {
            return false;
        }
        let descriptor = self.slot(name_parts(name).0).descriptor();
        let watches = || self.has(descriptor, name);
        self.backend().descriptors().holds(descriptor, self.number(), name, watches)
    }

    /// Whether the kernel has what the number names for this registration: its set has it, or it is a file still.
    pub(super) fn has(&self, descriptor: Descriptor, name: Name) -> bool {
        if self.is_live(name) && self.is_file(name_parts(name).0) {
            // The key owns it, so that it is open.
            self.backend().is_file(descriptor)
        } else {
            self.backend().watches(descriptor)
        }
    }

    /// Whether the registration with this name goes on.
    pub(super) fn is_live(&self, name: Name) -> bool {
        self.known(name).is_some_and(|(slot, generation)| {
            let word = slot.word();
            word.is_live() && word.generation() == generation && !word.is_removing()
        })
    }

    /// Marks a registration as removed, and forgets its descriptor, which is returned. The caller queues its node if it
    /// [owns](Removal::Owned) it, and cancels the operations otherwise. If it `collects`, the key is to be its own.
    pub(super) fn mark_removed(
        &self,
        name: Name,
        collects: bool,
    ) -> Result<(Removal, Descriptor), Error> {
        self.check_usable(Call::Remove)?;
        let refused = |refusal| Error::new(Call::Remove, kind_of(refusal));
        let (slot, generation) = self.known(name).ok_or(refused(Refusal::NotRegistered))?;
        // Read first: the slot may be given up as soon as it is marked.
        let descriptor = slot.descriptor();
        let removal = slot.remove(generation, collects).map_err(refused)?;
        if removal != Removal::Already {
            self.detach(descriptor, name);
        }
        Ok((removal, descriptor))
    }

    /// Marks a registration as ended without a packet. If the caller owns the key it gives the slot up, which forgets the
    /// descriptor. Otherwise that is done, and the caller cancels the operations.
    pub(super) fn mark_ended(&self, name: Name) -> Result<(Removal, Descriptor), Error> {
        self.check_usable(Call::Remove)?;
        let unknown = || Error::new(Call::Remove, ErrorKind::NotRegistered);
        let (slot, generation) = self.known(name).ok_or_else(unknown)?;
        // Read first: the slot may be given up as soon as it is marked.
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
    /// The number of the poll that is under way, or of the last one.
    #[inline]
    pub(super) fn current_poll(&self) -> u32 {
        self.poll.load(SeqCst)
    }

    /// A thread is about to poll. Returns the number of that poll.
    #[inline]
    pub(super) fn begin_poll(&self) -> u32 {
        self.poll.fetch_add(1, SeqCst).wrapping_add(1)
    }

    /// Replaces the kernel's set by one that has only the live registrations.
    #[cold]
    pub(super) fn rebuild(&self) -> bool {
        let highest = self.lock().lists().highest_slot();
        let _alone = self.set.write().unwrap_or_else(PoisonError::into_inner);
        let mut live = (0..highest).filter_map(|index| {
            let slot = self.nodes().find_slot(index)?;
            let word = slot.word();
            let wanted = word.is_live() && !word.is_removing();
            // If the number was closed and given out again, it is no longer this registration's.
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
        // If it is refused for want of a descriptor or of memory, the port goes on with the old set
        // and its stale edges.
        self.backend().rebuild(&mut live).is_ok()
    }
}

/// What stands beside a slot once an operation needs it.
impl Registry {
    /// The operation entry of a slot that has had one. A slot keeps it for the registrations to come.
    #[inline]
    pub(super) fn entry(&self, index: u32) -> Option<&OpEntry> {
        self.entries.find(index)
    }

    /// The operation entry of a slot of which operations were started.
    pub(crate) fn entry_of_operation(&self, index: u32) -> &OpEntry {
        self.entries.at(index)
    }

    /// Whether operations of this registration are started by its name.
    #[inline]
    pub(super) fn is_shared(&self, index: u32) -> bool {
        self.entry(index).is_some_and(|entry| entry.lock().is_shared)
    }

    /// The reserved slot `index` becomes a registration; whose operations are started by its name if it is
    /// `shared`. False if there is no memory.
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

    /// Whether the slot's descriptor is a file's, which no reactor watches.
    pub(super) fn is_file(&self, index: u32) -> bool {
        self.entries.find(index).is_some_and(|entry| entry.is_file.load(SeqCst))
    }

    /// The node of the lone operation of a slot.
    #[inline]
    pub(super) fn own_node(&self, index: u32) -> Node {
        let own = self.entry(index).and_then(|entry| entry.own());
        own.expect("a lone operation has the record of its desk")
    }

    /// Makes sure that the slot has an operation entry. False if there is no memory.
    pub(super) fn reserve_entry(&self, index: u32) -> bool {
        self.entries.reserve(index)
    }
}
