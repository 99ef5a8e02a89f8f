//! Simulated completion ports with socket notifications, on the objects of the simulated kernel.
//!
//! They follow the documentation of Windows. Where it is silent they follow the rules of
//! SEMANTICS.md, with one exception: enabling by edge does not report conditions that already hold.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::kqueue::FilterEnds;
use super::objects::{FileId, Objects};
use super::reach::OnKernel;
use super::set::{WakeCause, code_of};
use super::{Conditions, Kernel, KernelState, ObjectKind, stream};
use crate::backend::host::Origin;
use crate::state::facts::{AtEnd, DescriptorKind};
use crate::sys::codes;
use crate::sys::portable::winsock_notifications::{
    ChangeKind, Holders, INVALID_PARAMETER, NO_SYSTEM_RESOURCES, NOT_ENOUGH_MEMORY, NOT_SOCKET,
    NotificationCalls, NotificationChange, NotificationPacket, NotificationTrigger,
    WinsockNotifications, event,
};
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// ERROR_NOT_FOUND: the socket has no registration.
const NOT_FOUND: u32 = 1168;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SimulatedStage {
    Enabled,
    /// A packet has reported the requested events.
    Spent,
    /// Its last packet is in the queue.
    Leaving,
}

#[derive(Debug)]
struct SimulatedRegistration {
    file: FileId,
    key: u64,
    filter: u32,
    trigger: NotificationTrigger,
    stage: SimulatedStage,
    /// Matches the packets in the queue that belong to the current state of this registration.
    ticket: u64,
    is_queued: bool,
    /// By edge: the events since the last packet.
    happened: u32,
}

#[derive(Debug)]
enum Queued {
    Posted(u64),
    Report(Descriptor, u64),
    /// The last packet of a registration, with its key. Its number may already be free again.
    Last(Descriptor, u64),
    /// The end of an operation. Only tests queue it: the simulated kernel carries out no
    /// operations.
    #[cfg(test)]
    Ended(usize),
}

/// A simulated completion port.
#[derive(Debug, Default)]
pub(super) struct SimulatedCompletionPort {
    registrations: BTreeMap<Descriptor, SimulatedRegistration>,
    of_files: BTreeMap<FileId, BTreeSet<Descriptor>>,
    packets: VecDeque<Queued>,
    last_ticket: u64,
    /// The errors with which the next changes of existing registrations fail.
    #[cfg(test)]
    refusals: VecDeque<u32>,
    /// Each call takes at most one packet.
    #[cfg(test)]
    brings_one: bool,
    /// Operations of the tests by their place: the socket of each, and its name once it has ended.
    #[cfg(test)]
    ends: BTreeMap<usize, (Descriptor, Option<u64>)>,
}

/// Returns the events of an object that a registration with this filter reports.
fn events(
    filter: u32,
    ends: &FilterEnds,
    kind: ObjectKind,
    tcp_state: Option<u8>,
    lived: bool,
) -> u32 {
    let is_own = tcp_state.is_some_and(|state| !stream::PEER_ENDED.contains(&state));
    let is_over = ends.read_over && kind != ObjectKind::Datagram && !is_own;
    let is_refused = ends.error.is_some() && kind == ObjectKind::Stream && !lived;
    let mut now = 0;
    if ends.readable || (is_over && filter & event::HANGUP == 0) {
        now |= event::IN;
    }
    if kind == ObjectKind::Datagram && ends.read_over {
        now |= event::IN;
    }
    if (ends.writable || ends.write_over) && !is_refused {
        now |= event::OUT;
    }
    if is_over {
        now |= event::HANGUP;
    }
    let failed = if ends.error.is_some() { event::ERR } else { 0 };
    now & filter | failed
}

impl Objects {
    fn events(&mut self, file: FileId, filter: u32) -> u32 {
        let (ends, kind) = (self.ends(file), self.kind(file));
        let (tcp_state, lived) = (self.tcp_state(file), self.was_connected(file));
        let told = events(filter, &ends, kind, tcp_state, lived);
        if kind == ObjectKind::NoSocket && ends.write_over {
            // A pipe without a reader.
            return told & !(event::IN | event::HANGUP) | event::ERR;
        }
        told
    }
}

impl SimulatedCompletionPort {
    /// Returns how many packets a call takes at most.
    ///
    /// The documentation does not promise that it takes all.
    fn at_a_time(&self) -> usize {
        #[cfg(test)]
        if self.brings_one {
            return 1;
        }
        usize::MAX
    }

    fn enqueue(&mut self, descriptor: Descriptor) {
        let Some(registration) = self.registrations.get_mut(&descriptor) else { return };
        if !std::mem::replace(&mut registration.is_queued, true) {
            self.packets.push_back(Queued::Report(descriptor, registration.ticket));
        }
    }

    /// Invalidates the queued packets of a registration.
    fn void(registration: &mut SimulatedRegistration, last_ticket: &mut u64) {
        *last_ticket += 1;
        registration.ticket = *last_ticket;
        registration.is_queued = false;
        registration.happened = 0;
    }

    /// Handles a change of `file`: more to read, more room, or an unspecific change.
    pub(super) fn notice(&mut self, file: FileId, what: Conditions, objects: &mut Objects) {
        let Some(numbers) = self.of_files.get(&file) else { return };
        let concerned = match what {
            Conditions::IN => event::IN | event::HANGUP | event::ERR,
            Conditions::OUT => event::OUT | event::ERR,
            _ => u32::MAX,
        };
        for descriptor in numbers.clone() {
            let Some(registration) = self.registrations.get_mut(&descriptor) else { continue };
            let now = objects.events(file, registration.filter) & concerned;
            if registration.stage == SimulatedStage::Enabled && now != 0 {
                registration.happened |= now;
                self.enqueue(descriptor);
            }
        }
    }

    /// Removes the registration of a number that was closed. It queues no packet.
    pub(super) fn forget(&mut self, descriptor: Descriptor) {
        let Some(gone) = self.registrations.remove(&descriptor) else { return };
        if let Some(numbers) = self.of_files.get_mut(&gone.file) {
            numbers.remove(&descriptor);
            if numbers.is_empty() {
                self.of_files.remove(&gone.file);
            }
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.packets.is_empty()
    }

    fn enable(&mut self, change: &NotificationChange, file: FileId, objects: &mut Objects) -> u32 {
        self.last_ticket += 1;
        let ticket = self.last_ticket;
        let registration =
            self.registrations.entry(change.descriptor).or_insert(SimulatedRegistration {
                file,
                key: change.key,
                filter: 0,
                trigger: change.trigger,
                stage: SimulatedStage::Spent,
                ticket,
                is_queued: false,
                happened: 0,
            });
        if registration.stage == SimulatedStage::Leaving {
            return INVALID_PARAMETER;
        }
        self.of_files.entry(file).or_default().insert(change.descriptor);
        // The registration keeps the key of its first change.
        registration.filter = change.filter;
        registration.trigger = change.trigger;
        registration.stage = SimulatedStage::Enabled;
        if change.trigger == NotificationTrigger::LevelOnce
            && objects.events(file, change.filter) != 0
        {
            self.enqueue(change.descriptor);
        }
        0
    }

    fn change(&mut self, change: &NotificationChange, file: FileId, objects: &mut Objects) -> u32 {
        if change.operation == ChangeKind::Enable {
            return self.enable(change, file, objects);
        }
        let Some(registration) = self.registrations.get_mut(&change.descriptor) else {
            return NOT_FOUND;
        };
        if registration.stage == SimulatedStage::Leaving {
            return 0;
        }
        Self::void(registration, &mut self.last_ticket);
        registration.stage = SimulatedStage::Leaving;
        self.packets.push_back(Queued::Last(change.descriptor, registration.key));
        0
    }

    /// Takes the next packet whose registration and events still hold.
    fn next(&mut self, objects: &mut Objects) -> Option<NotificationPacket> {
        loop {
            let (descriptor, ticket) = match self.packets.pop_front()? {
                Queued::Posted(key) => {
                    return Some(NotificationPacket { key, ..NotificationPacket::default() });
                }
                #[cfg(test)]
                Queued::Ended(place) => {
                    return Some(NotificationPacket {
                        key: crate::sys::portable::winsock_notifications::CARRIED,
                        events: 0,
                        place,
                    });
                }
                Queued::Last(descriptor, key) => {
                    let is_its = |it: &&SimulatedRegistration| {
                        it.key == key && it.stage == SimulatedStage::Leaving
                    };
                    if self.registrations.get(&descriptor).filter(is_its).is_some() {
                        self.forget(descriptor);
                    }
                    return Some(NotificationPacket { key, events: event::REMOVE, place: 0 });
                }
                Queued::Report(descriptor, ticket) => (descriptor, ticket),
            };
            let Some(registration) = self.registrations.get_mut(&descriptor) else { continue };
            if registration.ticket != ticket {
                continue;
            }
            registration.is_queued = false;
            let happened = std::mem::take(&mut registration.happened);
            let mut events = objects.events(registration.file, registration.filter);
            match registration.trigger {
                NotificationTrigger::EdgeAlways => events &= happened,
                NotificationTrigger::LevelOnce if events != 0 => {
                    registration.stage = SimulatedStage::Spent
                }
                NotificationTrigger::LevelOnce => {}
            }
            if events != 0 {
                return Some(NotificationPacket { key: registration.key, events, place: 0 });
            }
        }
    }
}

/// The kernel's calls for the reactor of one port.
#[derive(Debug)]
pub(super) struct SimulatedPort {
    kernel: Kernel,
    /// The number of the completion port, and of an empty set that identifies this port.
    port: u64,
    origin: Origin,
    holders: Arc<Holders>,
}

impl SimulatedPort {
    pub(super) fn new(kernel: Kernel) -> Self {
        let mut state = kernel.lock();
        let port = state.add_set();
        state.notifiers.insert(port, SimulatedCompletionPort::default());
        let holders = Arc::clone(&state.holders);
        drop(state);
        Self { kernel, port, origin: Origin::by_number(), holders }
    }
}

impl Drop for SimulatedPort {
    fn drop(&mut self) {
        let mut state = self.kernel.lock();
        state.notifiers.remove(&self.port);
        let requests = state.end_port(self.port);
        drop(state);
        // Dropped without the lock: requests own buffers and descriptors of this kernel.
        drop(requests);
    }
}

impl KernelState {
    fn apply(&mut self, port: u64, change: &NotificationChange) -> u32 {
        let file = self.file(change.descriptor);
        let Some(file) = file.filter(|file| self.objects.can_be_watched(*file)) else {
            return NOT_SOCKET;
        };
        let is_new = change.operation == ChangeKind::Enable && {
            let queue = self.notifiers.entry(port).or_default();
            !queue.registrations.contains_key(&change.descriptor)
        };
        if is_new {
            let has_it = |(other, queue): (&u64, &SimulatedCompletionPort)| {
                let known = queue.registrations.get(&change.descriptor);
                *other != port && known.is_some_and(|known| known.file == file)
            };
            if self.notifiers.iter().any(has_it) {
                // Another port has it, even if only its last packet is left.
                return INVALID_PARAMETER;
            }
            self.calls.attach += 1;
            match self.attach_failures.pop_front() {
                None => {}
                Some(ErrorKind::OutOfMemory) => return NOT_ENOUGH_MEMORY,
                Some(_) => return NO_SYSTEM_RESOURCES,
            }
        }
        let queue = self.notifiers.entry(port).or_default();
        #[cfg(test)]
        if !is_new && let Some(refusal) = queue.refusals.pop_front() {
            return refusal;
        }
        queue.change(change, file, &mut self.objects)
    }
}

impl NotificationCalls for SimulatedPort {
    fn name(&self) -> &'static str {
        "sim, notifications"
    }

    fn process(
        &self,
        changes: &mut [NotificationChange],
        room: &mut [NotificationPacket],
        timeout: Option<Duration>,
    ) -> Result<usize, Fault> {
        let mut state = self.kernel.lock();
        let mut is_refused = false;
        for change in changes {
            change.result = state.apply(self.port, change);
            is_refused |= change.result != 0;
        }
        if room.is_empty() {
            self.kernel.publish(state);
            return Ok(0);
        }
        state.check_wait()?;
        state.calls.poll += 1;
        let limit = if is_refused { Some(Duration::ZERO) } else { timeout };
        if limit != Some(Duration::ZERO) {
            state.calls.sleeping_poll += 1;
        }
        let until = state.deadline(limit);
        let mut count = 0;
        self.kernel.sleep(state, until, WakeCause::Notified(self.port), |state| {
            let KernelState { notifiers, objects, .. } = state;
            let queue = notifiers.entry(self.port).or_default();
            while count < room.len().min(queue.at_a_time())
                && let Some(packet) = queue.next(objects)
            {
                room[count] = packet;
                count += 1;
            }
            count > 0
        });
        Ok(count)
    }

    fn post(&self, key: u64) {
        let mut state = self.kernel.lock();
        state.calls.wake += 1;
        let queue = state.notifiers.entry(self.port).or_default();
        queue.packets.push_back(Queued::Posted(key));
        self.kernel.publish(state);
    }

    #[cfg(test)]
    fn ended(&self, place: usize, is_there: &dyn Fn(Descriptor) -> bool) -> Option<u64> {
        let mut state = self.kernel.lock();
        let (descriptor, name) = state.notifiers.get_mut(&self.port)?.ends.remove(&place)?;
        drop(state);
        is_there(descriptor).then_some(name)?
    }

    #[cfg(not(test))]
    fn ended(&self, _place: usize, _is_there: &dyn Fn(Descriptor) -> bool) -> Option<u64> {
        // The simulated kernel carries out no operations.
        None
    }

    fn look(&self, descriptor: Descriptor, filter: u32) -> u32 {
        let mut state = self.kernel.lock();
        state.calls.probe += 1;
        state.calls.probed += 1;
        state.file(descriptor).map_or(0, |file| state.objects.events(file, filter))
    }

    fn is_open(&self, descriptor: Descriptor) -> bool {
        self.kernel.lock().file(descriptor).is_some()
    }

    fn code(&self, kind: ErrorKind, _result: u32) -> i32 {
        code_of(kind).unwrap_or(codes::EINVAL)
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

    fn tells_when_enabled(&self) -> bool {
        false
    }

    fn holders(&self) -> &Holders {
        &self.holders
    }
}

impl OnKernel for WinsockNotifications<SimulatedPort> {
    fn kernel(&self) -> &Kernel {
        &self.calls.kernel
    }

    fn port(&self) -> u64 {
        self.calls.port
    }

    fn origin_of(&self) -> Origin {
        self.calls.origin
    }
}
