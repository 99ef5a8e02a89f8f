//! One edge-triggered set of watched descriptors, the counterpart of an epoll set, and its back
//! end.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::ThreadId;
use std::time::Duration;

use super::objects::{Code, FileId, Objects};
use super::reach::OnKernel;
use super::{Conditions, Kernel, KernelState};
use crate::backend::host::Origin;
use crate::backend::reactor::{Reactor, Until, Watch};
use crate::state::facts::{AtEnd, DescriptorKind, Edge, Facts, Probe};
use crate::state::moment::Moment;
use crate::sys::codes;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// A file and a number of it. The entry of a closed number stays while a duplicate keeps the file.
type FileNumber = (FileId, Descriptor);

#[derive(Debug)]
struct SetEntry {
    name: u64,
    /// The conditions it is watched for: IN, OUT or both.
    wanted: Conditions,
    /// How long it is watched; `None` if it is not watched.
    until: Option<Until>,
    /// Whether it is in the list of entries to test.
    listed: bool,
}

/// The watched files, and a list of those that may have something to report.
#[derive(Debug, Default)]
pub(super) struct Set {
    entries: BTreeMap<FileNumber, SetEntry>,
    /// The entries to test, oldest first. A place without a listed entry is skipped.
    listed: VecDeque<FileNumber>,
    /// [`Reactor::wake`] was called, and no poll has returned because of it yet.
    pub(super) woken: bool,
}

impl SetEntry {
    /// Returns the conditions in `now` that an edge reports.
    fn told(&self, now: Conditions) -> Conditions {
        let told = now & (self.wanted | Conditions::HUP | Conditions::ERR);
        if self.until == Some(Until::Room) { told } else { told | now & Conditions::RDHUP }
    }
}

impl Set {
    fn list(&mut self, place: FileNumber) {
        if let Some(entry) = self.entries.get_mut(&place)
            && !entry.listed
        {
            entry.listed = true;
            self.listed.push_back(place);
        }
    }

    /// Lists the entries that watch `file` for `what`.
    ///
    /// With [`Conditions::NONE`] it lists all of them.
    pub(super) fn notice(&mut self, file: FileId, what: Conditions) {
        let concerned = |entry: &SetEntry| {
            let is_wanted = what == Conditions::NONE || entry.wanted & what != Conditions::NONE;
            entry.until.is_some() && is_wanted
        };
        let places: Vec<FileNumber> = self
            .entries
            .range((file, Descriptor::MIN)..=(file, Descriptor::MAX))
            .filter(|(_, entry)| concerned(entry))
            .map(|(place, _)| *place)
            .collect();
        for place in places {
            self.list(place);
        }
    }

    /// Removes all entries of `file`, whose last descriptor was closed.
    pub(super) fn forget(&mut self, file: FileId) {
        let first = |entries: &BTreeMap<FileNumber, SetEntry>| {
            let mut places = entries.range((file, Descriptor::MIN)..=(file, Descriptor::MAX));
            places.next().map(|(place, _)| *place)
        };
        while let Some(place) = first(&self.entries) {
            self.entries.remove(&place);
        }
    }

    pub(super) fn has(&self, place: FileNumber) -> bool {
        self.entries.contains_key(&place)
    }

    /// Watches `place` under this name for the `wanted` conditions (IN and OUT).
    ///
    /// With `until` `None` it only adds the entry.
    pub(super) fn add(
        &mut self,
        place: FileNumber,
        name: u64,
        wanted: Conditions,
        until: Option<Until>,
        objects: &mut Objects,
    ) {
        let entry = SetEntry { name, wanted, until, listed: false };
        let holds = entry.told(objects.conditions(place.0)) != Conditions::NONE;
        self.entries.insert(place, entry);
        if holds && until.is_some() {
            self.list(place);
        }
    }

    pub(super) fn remove(&mut self, place: FileNumber) {
        self.entries.remove(&place);
    }

    pub(super) fn is_idle(&self) -> bool {
        !self.woken && self.listed.is_empty()
    }

    /// Takes the entries that have something to report, each with all conditions that hold now.
    ///
    /// Skips an entry whose conditions no longer hold.
    pub(super) fn take(
        &mut self,
        room: usize,
        objects: &mut Objects,
        mut found: impl FnMut(u64, Conditions),
    ) -> usize {
        let mut count = 0;
        while count < room {
            let Some(place) = self.listed.pop_front() else { break };
            let Some(entry) = self.entries.get_mut(&place) else { continue };
            if !std::mem::replace(&mut entry.listed, false) {
                continue;
            }
            let now = entry.told(objects.conditions(place.0));
            if now != Conditions::NONE && entry.until.is_some() {
                entry.until = entry.until.filter(|until| *until == Until::Detached);
                found(entry.name, now);
                count += 1;
            }
        }
        count
    }
}

/// Converts wanted facts into conditions.
fn conditions(wanted: Facts) -> Conditions {
    let mut conditions = Conditions::NONE;
    for (fact, condition) in [(Facts::IN, Conditions::IN), (Facts::OUT, Conditions::OUT)] {
        if wanted.has(fact) {
            conditions |= condition;
        }
    }
    conditions
}

fn facts(conditions: Conditions) -> Facts {
    let known = [
        (Conditions::IN, Facts::IN),
        (Conditions::OUT, Facts::OUT),
        (Conditions::RDHUP, Facts::RDHUP),
        (Conditions::HUP, Facts::HUP),
        (Conditions::ERR, Facts::ERR),
    ];
    let mut facts = Facts::NONE;
    for (condition, fact) in known {
        if conditions.contains(condition) {
            facts |= fact;
        }
    }
    facts
}

/// Returns the error code with which a kernel refuses to watch a descriptor.
pub(super) fn code_of(kind: ErrorKind) -> Option<Code> {
    match kind {
        ErrorKind::AlreadyRegistered => Some(codes::EEXIST),
        ErrorKind::BadDescriptor => Some(codes::EBADF),
        ErrorKind::DescriptorLimit => Some(codes::EMFILE),
        ErrorKind::NotPollable => Some(codes::EPERM),
        ErrorKind::OutOfMemory => Some(codes::ENOMEM),
        ErrorKind::WatchLimit => Some(codes::ENOSPC),
        _ => None,
    }
}

/// A thread that sleeps in the simulated kernel, and what ends its sleep.
#[derive(Debug)]
pub(super) struct Sleeper {
    pub(super) thread: ThreadId,
    pub(super) until: Option<Moment>,
    pub(super) cause: WakeCause,
}

#[derive(Debug)]
pub(super) enum WakeCause {
    /// An edge in this set, or its wake-up.
    Polled(u64),
    /// An event of this kqueue.
    Queued(u64),
    /// A packet of this completion port.
    Notified(u64),
    /// The unpark of this parked thread. The flag is true once it was unparked.
    Park(Arc<AtomicBool>),
}

/// The back end of one port on a simulated kernel.
#[derive(Debug)]
pub(super) struct Simulated {
    kernel: Kernel,
    is_one_shot: bool,
    set: u64,
    origin: Origin,
}

impl Simulated {
    pub(super) fn new(kernel: Kernel, is_one_shot: bool) -> Self {
        let set = kernel.lock().add_set();
        Self { kernel, is_one_shot, set, origin: Origin::by_number() }
    }

    fn refused(kind: ErrorKind) -> Fault {
        Fault { kind, code: code_of(kind) }
    }

    fn with_set<R>(
        &self,
        state: &mut KernelState,
        act: impl FnOnce(&mut Set, &mut Objects) -> R,
    ) -> R {
        act(state.sets.entry(self.set).or_default(), &mut state.objects)
    }
    /// Returns how long a descriptor that is new in the set is watched.
    fn first_until(&self) -> Option<Until> {
        if self.is_one_shot { None } else { Some(Until::Detached) }
    }

    /// Gives a watched descriptor another name and other wanted conditions.
    fn watch_anew(
        &self,
        descriptor: Descriptor,
        name: u64,
        wanted: Facts,
        until: Option<Until>,
    ) -> Result<(), Fault> {
        let mut state = self.kernel.lock();
        let Some(file) = state.file(descriptor) else {
            return Err(Self::refused(ErrorKind::BadDescriptor));
        };
        if !self.with_set(&mut state, |set, _| set.has((file, descriptor))) {
            return Err(Fault { kind: ErrorKind::Other, code: Some(codes::ENOENT) });
        }
        self.with_set(&mut state, |set, objects| {
            set.add((file, descriptor), name, conditions(wanted), until, objects);
        });
        self.kernel.publish(state);
        Ok(())
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        let mut state = self.kernel.lock();
        let requests = state.end_port(self.set);
        drop(state);
        // Dropped without the lock: requests own buffers and descriptors of this kernel.
        drop(requests);
    }
}

impl Reactor for Simulated {
    fn name(&self) -> &'static str {
        if self.is_one_shot { "sim, one-shot" } else { "sim" }
    }

    fn is_one_shot(&self) -> bool {
        self.is_one_shot
    }

    fn attach(&self, descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Fault> {
        let mut state = self.kernel.lock();
        state.calls.attach += 1;
        let Some(file) = state.file(descriptor) else {
            return Err(Self::refused(ErrorKind::BadDescriptor));
        };
        if !state.objects.can_be_watched(file) {
            return Err(Self::refused(ErrorKind::NotPollable));
        }
        if self.with_set(&mut state, |set, _| set.has((file, descriptor))) {
            return Err(Self::refused(ErrorKind::AlreadyRegistered));
        }
        if let Some(kind) = state.attach_failures.pop_front() {
            return Err(Self::refused(kind));
        }
        let until = self.first_until();
        self.with_set(&mut state, |set, objects| {
            set.add((file, descriptor), name, conditions(wanted), until, objects);
        });
        self.kernel.publish(state);
        Ok(())
    }

    fn adopt(&self, descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Fault> {
        self.kernel.lock().calls.adopt += 1;
        self.watch_anew(descriptor, name, wanted, self.first_until())
    }

    fn want(
        &self,
        descriptor: Descriptor,
        name: u64,
        wanted: Facts,
        until: Until,
    ) -> Result<(), Fault> {
        self.kernel.lock().calls.want += 1;
        let until = if self.is_one_shot { until } else { Until::Detached };
        self.watch_anew(descriptor, name, wanted, Some(until))
    }

    fn detach(&self, descriptor: Descriptor) {
        let mut state = self.kernel.lock();
        state.calls.detach += 1;
        if let Some(file) = state.file(descriptor) {
            self.with_set(&mut state, |set, _| set.remove((file, descriptor)));
        }
    }

    fn watches(&self, descriptor: Descriptor) -> bool {
        let mut state = self.kernel.lock();
        state.calls.watches += 1;
        match state.file(descriptor) {
            Some(file) => self.with_set(&mut state, |set, _| set.has((file, descriptor))),
            None => false,
        }
    }

    fn poll(&self, edges: &mut Vec<Edge>, timeout: Option<Duration>) -> Result<bool, Fault> {
        edges.clear();
        let room = edges.capacity();
        let mut state = self.kernel.lock();
        state.check_wait()?;
        state.calls.poll += 1;
        if timeout != Some(Duration::ZERO) {
            state.calls.sleeping_poll += 1;
        }
        let until = state.deadline(timeout);
        let mut woken = false;
        self.kernel.sleep(state, until, WakeCause::Polled(self.set), |state| {
            let count = self.with_set(state, |set, objects| {
                woken = std::mem::replace(&mut set.woken, false);
                set.take(room, objects, |name, now| {
                    edges.push(Edge { name, facts: facts(now) });
                })
            });
            count > 0 || woken
        });
        Ok(woken)
    }

    fn wake(&self) {
        let mut state = self.kernel.lock();
        state.calls.wake += 1;
        self.with_set(&mut state, |set, _| set.woken = true);
        self.kernel.publish(state);
    }

    fn probe(&self, probes: &mut [Probe]) -> Result<(), Fault> {
        let mut state = self.kernel.lock();
        state.check_question()?;
        state.calls.probe += 1;
        state.calls.probed += u64::try_from(probes.len()).unwrap_or(u64::MAX);
        for probe in probes {
            probe.facts = match state.file(probe.descriptor) {
                Some(file) => facts(state.objects.conditions(file)),
                None => Facts::CLOSED,
            };
        }
        Ok(())
    }

    fn unread(&self, descriptor: Descriptor, _end: AtEnd) -> Option<usize> {
        self.kernel.ask_unread(descriptor)
    }

    fn is_own_end(&self, descriptor: Descriptor) -> bool {
        self.kernel.ask_own_end(descriptor)
    }

    fn was_connected(&self, descriptor: Descriptor) -> bool {
        self.kernel.ask_was_connected(descriptor)
    }

    fn kind(&self, descriptor: Descriptor) -> DescriptorKind {
        self.kernel.ask_kind(descriptor)
    }

    fn rebuild(&self, live: &mut dyn Iterator<Item = Watch>) -> Result<(), Fault> {
        // Collected before locking: the iterator runs the engine's code, and this lock must be a
        // leaf.
        let live: Vec<Watch> = live.collect();
        let mut state = self.kernel.lock();
        state.calls.rebuild += 1;
        if let Some(kind) = state.rebuild_failures.pop_front() {
            return Err(Self::refused(kind));
        }
        let mut new = Set::default();
        for Watch { descriptor, name, wanted, until } in live {
            if let Some(file) = state.file(descriptor) {
                let wanted = conditions(wanted);
                new.add((file, descriptor), name, wanted, Some(until), &mut state.objects);
            }
        }
        self.with_set(&mut state, |set, _| {
            new.woken = set.woken;
            *set = new;
        });
        self.kernel.publish(state);
        Ok(())
    }
}

impl OnKernel for Simulated {
    fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    fn port(&self) -> u64 {
        self.set
    }

    fn origin_of(&self) -> Origin {
        self.origin
    }
}
