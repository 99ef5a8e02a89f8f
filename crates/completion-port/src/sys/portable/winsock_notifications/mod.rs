//! The reactor of Windows from build 20348 on: *Winsock socket state notifications*, documented
//! under ProcessSocketNotifications.
//!
//! The reactor enables a registration of the system by level and for one report: the engine's
//! arming is the request, and the report is its answer. The system call that takes reports also
//! makes changes, so a request goes along with the next poll's call, unless a thread sleeps in a
//! poll. A descriptor that is watched until it is detached is enabled by edge instead. The system
//! then does not report conditions that already hold, so the reactor queries them once.
//!
//! A registration keeps its first key until its removal has been taken from the queue. The key is
//! therefore the number of a [`Record`], and each attachment has its own. If a socket is attached
//! again while its removal is in the queue, the reactor takes the removal out of the queue. If
//! another thread has already taken it, the socket is registered once that thread has processed it.
//!
//! Until then no other port can register the socket either. The reactors of one kernel therefore
//! share a table of which of them [has](Holders) a socket. If the system refuses a registration of
//! a number that the engine has assigned to this reactor, this reactor makes the other one give the
//! socket up.
//!
//! The reactor never disables a registration: the documentation forbids enabling it again before
//! the disabling has been reported. A removal shows whether a number still names the attached
//! socket: it finds a registration or none. When the engine needs to know, which happens only for
//! borrowed sockets, the reactor removes the registration and makes a new one.
//!
//! The reactor requests the end of a stream together with data. The system then reports the end
//! separately, and IN means data only. The reactor converts both to the facts of epoll.
//!
//! Operations that the system carries out end with packets in the same queue. They have their own
//! key, because the documentation does not say what other fields the packet of a notification has.
//!
//! The reactor makes its calls through [`NotificationCalls`], to the system or to the simulated
//! kernel.

mod calls;
mod holders;
mod reactor;

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub(crate) use self::calls::{
    CARRIED, ChangeKind, INVALID_PARAMETER, NO_SYSTEM_RESOURCES, NOT_ENOUGH_MEMORY, NOT_SOCKET,
    NotificationCalls, NotificationChange, NotificationPacket, NotificationTrigger, event,
};
pub(crate) use self::holders::Holders;
use self::holders::KernelReactor;
use crate::backend::reactor::Until;
use crate::state::facts::{DescriptorKind, Edge, Facts};
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// The longest sleep of a poll while a change failed for lack of memory and must be retried.
const RETRY: Duration = Duration::from_millis(16);

/// How many times the reactor asks another one to give up a socket whose removal a thread has
/// already taken, and the pause between two attempts. That thread is about to process the removal.
pub(crate) const PATIENCE: u32 = 1_000;
const MOMENT: Duration = Duration::from_millis(1);

/// How many packets one call takes.
const ROOM: usize = 64;

/// Keys of packets that the reactor posts. No [`Record`] has them. `LOOK` makes a poll query
/// `unseen`.
const WAKE: u64 = 0;
const LOOK: u64 = 1;

/// The results of a poll other than edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PolledRest {
    is_woken: bool,
    /// Some registration must be queried.
    looks: bool,
}

/// The events other than readiness.
const RARE: u32 = event::HANGUP | event::ERR;

/// See the module's documentation.
pub(crate) struct WinsockNotifications<C: NotificationCalls>(pub(crate) Arc<SharedReactor<C>>);

/// The part of the reactor that other reactors of its kernel can reach.
pub(crate) struct SharedReactor<C> {
    pub(crate) calls: C,
    state: Mutex<NotificationState>,
}

impl<C: NotificationCalls> Deref for WinsockNotifications<C> {
    type Target = SharedReactor<C>;
    fn deref(&self) -> &SharedReactor<C> {
        &self.0
    }
}

impl<C: NotificationCalls> Drop for WinsockNotifications<C> {
    fn drop(&mut self) {
        // All sockets have been detached. The removals in the queue are completed first, since no
        // other reactor can get these sockets before. From now on none finds this reactor.
        self.drain(&mut self.state());
        self.calls.holders().forget_all(Arc::as_ptr(&self.0));
    }
}

impl<C: NotificationCalls> KernelReactor for SharedReactor<C> {
    fn give_up(&self, descriptor: Descriptor) -> bool {
        let mut state = self.state();
        self.end_registration(&mut state, descriptor);
        self.drain(&mut state);
        state.is_leaving(descriptor)
    }
}

#[derive(Default)]
pub(crate) struct NotificationState {
    pub(crate) records: HashMap<u64, Record>,
    /// The keys of the records of attached sockets.
    attached: HashMap<Descriptor, u64>,
    /// The last key given to a record.
    last: u64,
    /// Keys of the records that the next call enables.
    pub(crate) waiting: Vec<u64>,
    /// Keys of the records that could not be enabled or registered for lack of memory. The next
    /// call retries.
    pub(crate) owed: Vec<u64>,
    /// Keys of the records in the current changes that are not registered yet.
    unmade: Vec<u64>,
    /// The number of polls that may be asleep.
    sleepers: usize,
    /// How many of them sleep at most [`RETRY`], because a change must be retried.
    retriers: usize,
    /// How many polls have begun.
    polls: u64,
    /// Keys of the records to query. Their sockets are watched until they are detached.
    unseen: Vec<u64>,
    /// Places from packets of operations that no poll has processed yet.
    ended: Vec<usize>,
}

pub(crate) struct Record {
    descriptor: Descriptor,
    name: u64,
    stage: NotificationStage,
    /// The last request, unless it was certainly reported.
    asked: Option<Asked>,
    /// The events that the engine got from an earlier registration of the socket, which was removed
    /// to check the number. The new registration reports an end or an error once more. The engine
    /// checks the number after each such report and would repeat that forever, so the first
    /// repeated report is dropped.
    echo: u32,
    /// The number was just found to name the attached socket. It may be closed at any time, so the
    /// next request takes effect immediately.
    is_checked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NotificationStage {
    Registered,
    /// Detached, but its removal has not been taken from the queue.
    Leaving,
    /// Attached while an earlier registration of the socket is being removed, or after that while
    /// its own must be retried.
    PutOff,
}

#[derive(Clone, Copy)]
struct Asked {
    wanted: Facts,
    until: Until,
    /// The first poll after the request was enabled. Reports that earlier polls take may be older.
    sent: u64,
    /// The events reported to the engine since the request.
    told: u32,
}

impl Asked {
    fn filter(&self) -> u32 {
        let mut filter = if self.until == Until::Room { 0 } else { event::HANGUP };
        if self.wanted.has(Facts::IN) {
            filter |= event::IN;
        }
        if self.wanted.has(Facts::OUT) {
            filter |= event::OUT;
        }
        filter
    }

    fn trigger(&self) -> NotificationTrigger {
        match self.until {
            Until::Detached => NotificationTrigger::EdgeAlways,
            Until::Edge | Until::Room => NotificationTrigger::LevelOnce,
        }
    }
}

impl Record {
    /// Returns whether a report only repeats the events of an earlier registration.
    ///
    /// True at most once.
    fn is_echo(&mut self, events: u32) -> bool {
        events & RARE != 0 && events & !std::mem::take(&mut self.echo) == 0
    }

    fn change(&self, key: u64, operation: ChangeKind) -> NotificationChange {
        let filter = self.asked.map_or(0, |asked| asked.filter());
        let trigger = self.asked.map_or(NotificationTrigger::LevelOnce, |asked| asked.trigger());
        NotificationChange {
            descriptor: self.descriptor,
            key,
            filter,
            operation,
            trigger,
            result: 0,
        }
    }
}

/// Returns whether a change with this result is worth retrying.
fn is_passing(result: u32) -> bool {
    matches!(result, NOT_ENOUGH_MEMORY | NO_SYSTEM_RESOURCES)
}

/// The fault for a socket that is not attached, or no longer the one that was attached.
const NOT_ATTACHED: Fault =
    Fault { kind: ErrorKind::BadDescriptor, code: Some(NOT_SOCKET.cast_signed()) };

impl<C: NotificationCalls> WinsockNotifications<C> {
    pub(crate) fn new(calls: C) -> Self {
        let state = NotificationState { last: CARRIED, ..NotificationState::default() };
        Self(Arc::new(SharedReactor { calls, state: Mutex::new(state) }))
    }
}

impl<C: NotificationCalls> SharedReactor<C> {
    pub(crate) fn state(&self) -> MutexGuard<'_, NotificationState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn fault(&self, descriptor: Descriptor, result: u32) -> Fault {
        let kind = match result {
            NOT_SOCKET if self.calls.is_open(descriptor) => ErrorKind::NotPollable,
            NOT_SOCKET => ErrorKind::BadDescriptor,
            // The process's own table does not have it, so another part of the program has
            // registered it.
            INVALID_PARAMETER => ErrorKind::AlreadyRegistered,
            NOT_ENOUGH_MEMORY => ErrorKind::OutOfMemory,
            NO_SYSTEM_RESOURCES => ErrorKind::WatchLimit,
            _ => ErrorKind::Other,
        };
        Fault { kind, code: Some(self.calls.code(kind, result)) }
    }

    /// Makes one change immediately.
    fn change(&self, mut change: NotificationChange) -> u32 {
        // The change itself holds the result.
        let _ =
            self.calls.process(std::slice::from_mut(&mut change), &mut [], Some(Duration::ZERO));
        change.result
    }

    /// Makes a registration without a request. Its reports answer no request.
    fn register(&self, record: &Record, key: u64) -> u32 {
        let asked_for_nothing = Record { asked: None, ..*record };
        self.change(asked_for_nothing.change(key, ChangeKind::Enable))
    }

    /// Enables a request: immediately if a thread sleeps in a poll, otherwise in the next poll.
    fn ask(&self, state: &mut NotificationState, key: u64) -> Result<(), Fault> {
        let Some(record) = state.records.get(&key) else { return Err(NOT_ATTACHED) };
        let descriptor = record.descriptor;
        match self.try_to_ask(state, key) {
            0 => Ok(()),
            result => Err(self.fault(descriptor, result)),
        }
    }

    /// Like [`Self::ask`], where no caller can get the error. A shortage of memory causes a retry.
    fn ask_or_owe(&self, state: &mut NotificationState, key: u64) {
        match self.try_to_ask(state, key) {
            0 => {}
            result if is_passing(result) => state.owe(key),
            _ => state.forget(key),
        }
    }

    /// Wakes a sleeper if a change must be retried and no sleeper wakes by itself for that.
    ///
    /// The caller is in no poll or is leaving it: otherwise it would wake itself again and again.
    fn call_retrier(&self, state: &NotificationState) {
        if !state.owed.is_empty() && state.sleepers > 0 && state.retriers == 0 {
            self.calls.post(LOOK);
        }
    }

    /// Returns the result of a change that could not wait, or 0 if there was none.
    fn try_to_ask(&self, state: &mut NotificationState, key: u64) -> u32 {
        let Some(record) = state.records.get_mut(&key) else { return NOT_SOCKET };
        if record.stage == NotificationStage::PutOff {
            return 0;
        }
        let Some(asked) = record.asked else { return 0 };
        let is_lasting = asked.until == Until::Detached;
        if is_lasting || std::mem::take(&mut record.is_checked) {
            let enable = record.change(key, ChangeKind::Enable);
            state.unqueue(key);
            let result = self.change(enable);
            if result == 0 && is_lasting {
                self.look_later(state, key);
            }
            return result;
        }
        state.owed.retain(|owed| *owed != key);
        if !state.waiting.contains(&key) {
            state.waiting.push(key);
        }
        if state.sleepers > 0 {
            let mut changes = state.take_changes();
            let _ = self.calls.process(&mut changes, &mut [], Some(Duration::ZERO));
            self.note_results(state, &changes);
            self.call_retrier(state);
        }
        0
    }

    /// Queries a registration after it was enabled by edge.
    ///
    /// Edges do not report conditions that already hold, unless the system says that they do. If
    /// none holds, an edge will come, and this wakes no thread.
    fn look_later(&self, state: &mut NotificationState, key: u64) {
        if self.calls.tells_when_enabled() {
            return;
        }
        let Some(record) = state.records.get_mut(&key) else { return };
        let filter = record.asked.map_or(0, |asked| asked.filter());
        let now = self.calls.look(record.descriptor, filter);
        if now != 0 && !record.is_echo(now) {
            state.unseen.push(key);
            self.calls.post(LOOK);
        }
    }

    /// Processes the results of changes that enable requests. The caller holds the lock.
    fn note_results(&self, state: &mut NotificationState, changes: &[NotificationChange]) {
        for change in changes {
            match change.result {
                // Queried immediately, unless the change was retried.
                0 if change.trigger == NotificationTrigger::EdgeAlways => {
                    self.look_later(state, change.key)
                }
                0 => {}
                result if is_passing(result) => {
                    if state.unmade.contains(&change.key)
                        && let Some(record) = state.records.get_mut(&change.key)
                    {
                        record.stage = NotificationStage::PutOff;
                    }
                    state.owe(change.key);
                }
                // The socket was closed.
                _ => state.forget(change.key),
            }
        }
        state.unmade.clear();
    }

    /// Checks whether the number still names the socket attached as `key`.
    ///
    /// If so, it registers the socket again with the same request.
    fn has(&self, state: &mut NotificationState, key: u64) -> bool {
        let Some(record) = state.records.get(&key) else { return false };
        if record.stage == NotificationStage::PutOff {
            return self.calls.is_open(record.descriptor);
        }
        let descriptor = record.descriptor;
        let is_lasting = |asked: &Asked| asked.until == Until::Detached;
        let told = record.asked.filter(|asked| is_lasting(asked) && asked.told & RARE != 0);
        // A stream's end or error stays. An error of a datagram socket may have been taken since.
        let holds = |asked: Asked| match self.calls.kind(descriptor) {
            DescriptorKind::Stream | DescriptorKind::Records => u32::MAX,
            _ => self.calls.look(descriptor, asked.filter()),
        };
        let echo = told.map_or(0, |asked| asked.told & holds(asked));
        // The removal loses its queued packets, so they are taken first.
        self.drain(state);
        let echo = if state.unseen.contains(&key) { 0 } else { echo };
        let Some(record) = state.records.get_mut(&key) else { return false };
        let remove = record.change(key, ChangeKind::Remove);
        if self.change(remove) != 0 {
            return false;
        }
        record.stage = NotificationStage::Leaving;
        let (name, asked) = (record.name, record.asked.take());
        state.unqueue(key);
        state.last += 1;
        let key = state.last;
        let stage = NotificationStage::PutOff;
        let record = Record { descriptor, name, stage, asked, echo, is_checked: true };
        state.records.insert(key, record);
        state.attached.insert(descriptor, key);
        self.drain(state);
        state.find(descriptor) == Some(key)
    }

    /// Takes all packets from the queue, so that removals complete.
    ///
    /// The reports among them are requested again: delivered by a later poll, they would be older
    /// than that poll.
    fn drain(&self, state: &mut NotificationState) {
        let (mut wakes, mut looks) = (false, false);
        let (mut again, mut ended) = (Vec::new(), Vec::new());
        loop {
            let mut room = [NotificationPacket::default(); ROOM];
            // If the system refuses the call, the next wait fails too and reports it.
            let told = self.calls.process(&mut [], &mut room, Some(Duration::ZERO));
            let count = told.unwrap_or(0);
            for packet in &room[..count] {
                match packet.key {
                    WAKE => wakes = true,
                    LOOK => looks = true,
                    CARRIED => {
                        state.ended.push(packet.place);
                        looks = true;
                    }
                    key if packet.events & event::REMOVE != 0 => ended.push(key),
                    key => {
                        let record = state.records.get_mut(&key);
                        if !record.is_some_and(|record| record.is_echo(packet.events)) {
                            again.push(key);
                        }
                    }
                }
            }
            // The documentation does not promise that one call takes all packets.
            if count == 0 {
                break;
            }
        }
        // Enabled immediately, so that they precede later requests, including those of the
        // registrations below; and with one call, since many may be ready.
        let mut changes = Vec::new();
        for key in again {
            let Some(record) = state.records.get(&key) else { continue };
            match record.asked {
                Some(asked) if asked.until == Until::Detached => {
                    state.unseen.push(key);
                    looks = true;
                }
                Some(_) => changes.push(record.change(key, ChangeKind::Enable)),
                None => {}
            }
        }
        if !changes.is_empty() {
            changes.iter().for_each(|change| state.unqueue(change.key));
            let _ = self.calls.process(&mut changes, &mut [], Some(Duration::ZERO));
            self.note_results(state, &changes);
        }
        for key in ended {
            self.end(state, key);
        }
        for (is_due, key) in [(wakes, WAKE), (looks, LOOK)] {
            if is_due {
                self.calls.post(key);
            }
        }
        self.call_retrier(state);
    }

    /// Starts to remove the registration of a socket, if the socket is attached.
    fn end_registration(&self, state: &mut NotificationState, descriptor: Descriptor) {
        let Some(key) = state.attached.remove(&descriptor) else { return };
        state.unqueue(key);
        let Some(record) = state.records.get_mut(&key) else { return };
        record.asked = None;
        let is_registered = record.stage == NotificationStage::Registered;
        record.stage = NotificationStage::Leaving;
        if !is_registered || self.change(record.change(key, ChangeKind::Remove)) != 0 {
            state.forget(key);
            self.calls.holders().forget(descriptor, self);
        }
    }

    /// Processes the end of a registration, and registers the socket again if that had to wait.
    fn end(&self, state: &mut NotificationState, key: u64) {
        let Some(ended) = state.records.get(&key).map(|record| record.descriptor) else { return };
        state.forget(key);
        let Some(next) = state.attached.get(&ended).copied() else {
            self.calls.holders().forget(ended, self);
            return;
        };
        let Some(record) = state.records.get_mut(&next) else { return };
        if record.stage != NotificationStage::PutOff {
            return;
        }
        match self.register(record, next) {
            0 => {
                record.stage = NotificationStage::Registered;
                self.ask_or_owe(state, next);
            }
            result if is_passing(result) => state.owe(next),
            _ => state.forget(next),
        }
    }

    /// Converts the events of a report to the facts of epoll.
    fn facts(&self, descriptor: Descriptor, events: u32) -> Facts {
        let mut facts = Facts::NONE;
        for (event, fact) in [
            (event::IN, Facts::IN),
            (event::OUT, Facts::OUT),
            (event::HANGUP, Facts::IN | Facts::RDHUP),
        ] {
            if events & event != 0 {
                facts |= fact;
            }
        }
        if events & event::ERR != 0 {
            facts |= Facts::ERR;
            if self.calls.kind(descriptor).is_connected() {
                // A read and a write return immediately.
                facts |= Facts::IN | Facts::OUT | Facts::RDHUP | Facts::HUP;
            }
        }
        facts
    }

    /// Processes a report that the poll with this number has taken.
    fn edge(
        &self,
        state: &mut NotificationState,
        packet: &NotificationPacket,
        poll: u64,
    ) -> Option<Edge> {
        let record = state.records.get_mut(&packet.key)?;
        if record.stage != NotificationStage::Registered {
            // It was registered again after this thread took the packet. By edge, the new
            // registration would not report this again.
            let heir = state.attached.get(&record.descriptor).copied()?;
            state.unseen.push(heir);
            self.calls.post(LOOK);
            return None;
        }
        if record.is_echo(packet.events) {
            return None;
        }
        let asked = record.asked.as_mut()?;
        asked.told |= packet.events;
        if asked.until != Until::Detached && poll >= asked.sent {
            record.asked = None;
        }
        let facts = self.facts(record.descriptor, packet.events);
        Some(Edge { facts, name: record.name })
    }

    /// Makes changes and takes packets from the queue, as long as there is room for edges.
    ///
    /// It holds the lock meanwhile. Otherwise a socket that is registered again could get the key
    /// or filter of its former registration.
    fn take(
        &self,
        state: &mut NotificationState,
        mut changes: Vec<NotificationChange>,
        edges: &mut Vec<Edge>,
        poll: u64,
        taken: &mut PolledRest,
    ) -> Result<(), Fault> {
        loop {
            let mut room = [NotificationPacket::default(); ROOM];
            let places = state.room_for_edges(edges).min(ROOM);
            let told = self.calls.process(&mut changes, &mut room[..places], Some(Duration::ZERO));
            self.note_results(state, &changes);
            let count = told?;
            self.sort(state, &room[..count], edges, poll, taken);
            if count < ROOM || state.room_for_edges(edges) == 0 {
                return Ok(());
            }
            changes.clear();
        }
    }

    /// Processes packets.
    fn sort(
        &self,
        state: &mut NotificationState,
        packets: &[NotificationPacket],
        edges: &mut Vec<Edge>,
        poll: u64,
        taken: &mut PolledRest,
    ) {
        for packet in packets {
            match packet.key {
                WAKE => taken.is_woken = true,
                LOOK => taken.looks = true,
                CARRIED => state.ended.push(packet.place),
                key if packet.events & event::REMOVE != 0 => self.end(state, key),
                _ => edges.extend(self.edge(state, packet, poll)),
            }
        }
    }

    /// Adds edges for the operations that have ended, as long as there is room.
    ///
    /// It releases the lock meanwhile, since it calls the system and this reactor.
    fn bring_ends<'s>(
        &'s self,
        mut state: MutexGuard<'s, NotificationState>,
        edges: &mut Vec<Edge>,
    ) -> MutexGuard<'s, NotificationState> {
        let count = state.ended.len().min(edges.capacity() - edges.len());
        let ended: Vec<_> = state.ended.drain(..count).collect();
        if !state.ended.is_empty() {
            self.calls.post(LOOK);
        }
        if ended.is_empty() {
            return state;
        }
        drop(state);
        let is_there = |descriptor| self.watches(descriptor);
        for place in ended {
            let name = self.calls.ended(place, &is_there);
            edges.extend(name.map(|name| Edge { facts: Facts::NONE, name }));
        }
        self.state()
    }

    /// See [`Reactor::watches`].
    fn watches(&self, descriptor: Descriptor) -> bool {
        let mut state = self.state();
        state.find(descriptor).is_some_and(|key| self.has(&mut state, key))
    }

    /// Queries the records in `unseen`, as long as there is room for edges.
    fn look(&self, state: &mut NotificationState, edges: &mut Vec<Edge>) {
        while edges.len() < edges.capacity()
            && let Some(key) = state.unseen.pop()
        {
            let Some(record) = state.records.get_mut(&key) else { continue };
            let Some(asked) = &mut record.asked else { continue };
            let events = self.calls.look(record.descriptor, asked.filter());
            if events != 0 {
                asked.told |= events;
                let facts = self.facts(record.descriptor, events);
                edges.push(Edge { facts, name: record.name });
            }
        }
        if !state.unseen.is_empty() {
            self.calls.post(LOOK);
        }
    }
}

impl NotificationState {
    /// Returns the key of the record with this number, if it is attached.
    fn find(&self, descriptor: Descriptor) -> Option<u64> {
        self.attached.get(&descriptor).copied()
    }

    /// Returns how many more packets there is room for.
    ///
    /// Each packet, and each entry of `ended`, may become an edge.
    fn room_for_edges(&self, edges: &Vec<Edge>) -> usize {
        edges.capacity().saturating_sub(edges.len() + self.ended.len())
    }

    /// Returns whether an earlier registration of this number is being removed.
    fn is_leaving(&self, descriptor: Descriptor) -> bool {
        let is_it = |record: &Record| record.descriptor == descriptor;
        self.records
            .values()
            .any(|record| is_it(record) && record.stage == NotificationStage::Leaving)
    }

    fn forget(&mut self, key: u64) {
        let Some(record) = self.records.remove(&key) else { return };
        if self.find(record.descriptor) == Some(key) {
            self.attached.remove(&record.descriptor);
        }
        self.unqueue(key);
    }

    /// Makes the next call retry a change that failed for lack of memory.
    fn owe(&mut self, key: u64) {
        let Some(record) = self.records.get_mut(&key) else { return };
        if let Some(asked) = &mut record.asked {
            asked.sent = u64::MAX;
        }
        self.owed.push(key);
    }

    /// Drops the pending requests of a record.
    fn unqueue(&mut self, key: u64) {
        self.waiting.retain(|waiting| *waiting != key);
        self.owed.retain(|owed| *owed != key);
    }

    /// Takes the pending changes, which enable requests and make missing registrations.
    fn take_changes(&mut self) -> Vec<NotificationChange> {
        self.polls += 1;
        let mut changes = Vec::with_capacity(self.waiting.len() + self.owed.len());
        let owed = std::mem::take(&mut self.owed);
        for key in std::mem::take(&mut self.waiting).into_iter().chain(owed) {
            let Some(record) = self.records.get_mut(&key) else { continue };
            if record.stage == NotificationStage::PutOff {
                record.stage = NotificationStage::Registered;
                self.unmade.push(key);
            }
            if let Some(asked) = &mut record.asked {
                asked.sent = self.polls;
            }
            changes.push(record.change(key, ChangeKind::Enable));
        }
        changes
    }
}
