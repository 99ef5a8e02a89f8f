//! The reactor of Windows from build 20348 on: *Winsock socket state notifications*, which its documentation calls
//! ProcessSocketNotifications.
//!
//! A registration of the system is enabled by level and for one report, so that arming is the question and the report
//! its answer. The call that takes reports makes changes, too: so what is asked for goes with the next poll's own call,
//! unless a thread sleeps in one. What is watched until it is detached is enabled by edge instead; the system tells
//! nothing then of what holds already, and so the reactor looks once.
//!
//! A registration keeps the key that it was made with until its removal was taken from the queue. So the key is the
//! number of a record here, and each attachment has a record of its own. If a socket is attached again while its
//! removal is on its way, the queue is looked through for that; if another thread has taken it already, the socket is
//! registered when that thread has come to it.
//!
//! Until then no other port can register the socket either. So the reactors of one kernel know which of them
//! [has](Holders) a socket. One that is refused, though the engine has given it the number, has the other one give it up.
//!
//! Nothing is ever disabled: the documentation forbids to enable again before a notification of that has come. Whether a
//! number still names what was attached, a removal tells: it finds a registration or none. So where the engine wants to
//! know it, which it does of borrowed sockets only, the socket is registered anew.
//!
//! The end of a stream is asked for together with data: the system tells of the end by itself then, and IN is data
//! alone. Both are folded back into what epoll says.
//!
//! Operations that the system carries out end by packets in the same queue. Those have a key of their own: what else a
//! packet of a notification brings is not documented.
//!
//! The reactor makes its calls by [`NotificationCalls`]: those of the system, or of the simulated kernel.

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

/// For how long a poll sleeps at most while the system owes something that it was short of memory for.
const RETRY: Duration = Duration::from_millis(16);

/// How often another reactor is asked to give a socket up whose removal one of its threads has taken, and how long that thread
/// is given each time. It is about to come to it.
pub(crate) const PATIENCE: u32 = 1_000;
const MOMENT: Duration = Duration::from_millis(1);

/// How many packets are taken at once.
const ROOM: usize = 64;

/// The keys of what the reactor posts, which no record has: a wake, and a call to look at what is unseen.
const WAKE: u64 = 0;
const LOOK: u64 = 1;

/// What a poll has taken beside edges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct PolledRest {
    is_woken: bool,
    /// There is something unseen.
    looks: bool,
}

/// What is more than readiness.
const RARE: u32 = event::HANGUP | event::ERR;

/// See the module's documentation.
pub(crate) struct WinsockNotifications<C: NotificationCalls>(pub(crate) Arc<SharedReactor<C>>);

/// The reactor, as others of its kernel know it.
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
        // All has been detached. No other reactor gets a socket whose removal is on its way, nor finds this one from now on.
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
    /// The records of what is attached.
    attached: HashMap<Descriptor, u64>,
    /// The last key that was given to a record.
    last: u64,
    /// Records that are to be enabled by the next call.
    pub(crate) waiting: Vec<u64>,
    /// Records that were to be enabled, or registered, when the system was short of memory. The next call tries again.
    pub(crate) owed: Vec<u64>,
    /// Of those whose change is being made, the ones that are not registered yet.
    unmade: Vec<u64>,
    /// Polls that may sleep.
    sleepers: usize,
    /// Those among them that sleep no longer than [`RETRY`], since something is owed.
    retriers: usize,
    /// How many polls have begun.
    polls: u64,
    /// Records of sockets that are watched until they are detached, and are to be looked at.
    unseen: Vec<u64>,
    /// What packets of operations have brought that no poll has come to.
    ended: Vec<usize>,
}

pub(crate) struct Record {
    descriptor: Descriptor,
    name: u64,
    stage: NotificationStage,
    /// What was asked for last, and has not been reported for certain.
    asked: Option<Asked>,
    /// What the engine was told by an earlier registration of the socket, which was taken back to see whether it is there.
    /// The next report of an end or an error tells of it once more: the engine asks whether a number is still the same each
    /// time when it is told of one, and would go on asking.
    echo: u32,
    /// The number was just found to name what was attached. It may be closed at any time, so that what is asked for now
    /// does not wait.
    is_checked: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NotificationStage {
    Registered,
    /// Detached; its removal has not been taken from the queue.
    Leaving,
    /// Attached while an earlier registration of the socket is leaving; or that has left, and this one is owed.
    PutOff,
}

#[derive(Clone, Copy)]
struct Asked {
    wanted: Facts,
    until: Until,
    /// Since which poll it is enabled. What an earlier one brings may be older.
    sent: u64,
    /// What the engine was told since.
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
    /// Whether a report tells nothing but what was reported of an earlier registration. It does so once.
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

/// Whether what has come to this is worth another try.
fn is_passing(result: u32) -> bool {
    matches!(result, NOT_ENOUGH_MEMORY | NO_SYSTEM_RESOURCES)
}

/// What refuses a call about a socket that is not attached, or is no longer what was attached.
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
            // The process's own table knows nothing of it: another part of the program has registered it.
            INVALID_PARAMETER => ErrorKind::AlreadyRegistered,
            NOT_ENOUGH_MEMORY => ErrorKind::OutOfMemory,
            NO_SYSTEM_RESOURCES => ErrorKind::WatchLimit,
            _ => ErrorKind::Other,
        };
        Fault { kind, code: Some(self.calls.code(kind, result)) }
    }

    /// Makes one change at once.
    fn change(&self, mut change: NotificationChange) -> u32 {
        // It has the result.
        let _ =
            self.calls.process(std::slice::from_mut(&mut change), &mut [], Some(Duration::ZERO));
        change.result
    }

    /// Makes a registration that is asked for nothing. Whatever it reports is no answer to a question.
    fn register(&self, record: &Record, key: u64) -> u32 {
        let asked_for_nothing = Record { asked: None, ..*record };
        self.change(asked_for_nothing.change(key, ChangeKind::Enable))
    }

    /// Has a registration report what is asked of it: at once if a thread sleeps in a poll, or by the next poll.
    fn ask(&self, state: &mut NotificationState, key: u64) -> Result<(), Fault> {
        let Some(record) = state.records.get(&key) else { return Err(NOT_ATTACHED) };
        let descriptor = record.descriptor;
        match self.try_to_ask(state, key) {
            0 => Ok(()),
            result => Err(self.fault(descriptor, result)),
        }
    }

    /// The same where nobody is told of a failure. If the system is short of memory it is asked later.
    fn ask_or_owe(&self, state: &mut NotificationState, key: u64) {
        match self.try_to_ask(state, key) {
            0 => {}
            result if is_passing(result) => state.owe(key),
            _ => state.forget(key),
        }
    }

    /// Gets a sleeper up, if something is owed and none gets up by itself. The caller is in no poll, or leaves it: otherwise
    /// it would get itself up again and again.
    fn call_retrier(&self, state: &NotificationState) {
        if !state.owed.is_empty() && state.sleepers > 0 && state.retriers == 0 {
            self.calls.post(LOOK);
        }
    }

    /// What a change that could not wait has come to; 0 if there was none, or if it was done.
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

    /// A registration has been enabled by edge. What has begun to hold before is told by no edge, unless the system says so.
    /// Where nothing holds an edge is to come, and no thread is woken.
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

    /// What has become of changes that enable what was asked for, with the lock.
    fn note_results(&self, state: &mut NotificationState, changes: &[NotificationChange]) {
        for change in changes {
            match change.result {
                // Which is done at once, unless it was owed.
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
                // It was closed.
                _ => state.forget(change.key),
            }
        }
        state.unmade.clear();
    }

    /// Whether the number names what was attached as `key`. If so it is registered anew, and asked what it was asked.
    fn has(&self, state: &mut NotificationState, key: u64) -> bool {
        let Some(record) = state.records.get(&key) else { return false };
        if record.stage == NotificationStage::PutOff {
            return self.calls.is_open(record.descriptor);
        }
        let descriptor = record.descriptor;
        let is_lasting = |asked: &Asked| asked.until == Until::Detached;
        let told = record.asked.filter(|asked| is_lasting(asked) && asked.told & RARE != 0);
        // What a stream has come to stays so. An error of a datagram socket may have been fetched since.
        let holds = |asked: Asked| match self.calls.kind(descriptor) {
            DescriptorKind::Stream | DescriptorKind::Records => u32::MAX,
            _ => self.calls.look(descriptor, asked.filter()),
        };
        let echo = told.map_or(0, |asked| asked.told & holds(asked));
        // What the queue has of it is lost by the removal.
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

    /// Takes what is in the queue, so that removals come to their end. Reports are asked for anew: as answers they
    /// would be older than the poll that hands them out.
    fn drain(&self, state: &mut NotificationState) {
        let (mut wakes, mut looks) = (false, false);
        let (mut again, mut ended) = (Vec::new(), Vec::new());
        loop {
            let mut room = [NotificationPacket::default(); ROOM];
            // A wait finds out as well that the system does not tell.
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
            // No page says that a call brings all that there is.
            if count == 0 {
                break;
            }
        }
        // At once, so that they stay before what is asked for later, what is registered below included; and all by one call,
        // since many may be ready.
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

    /// Begins to remove the registration of a socket, if it is attached.
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

    /// A registration is gone for good.
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

    /// What a report says, in the words of epoll.
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
                // A read and a write return at once.
                facts |= Facts::IN | Facts::OUT | Facts::RDHUP | Facts::HUP;
            }
        }
        facts
    }

    /// A report has come by the poll of this number.
    fn edge(
        &self,
        state: &mut NotificationState,
        packet: &NotificationPacket,
        poll: u64,
    ) -> Option<Edge> {
        let record = state.records.get_mut(&packet.key)?;
        if record.stage != NotificationStage::Registered {
            // It was registered anew since this thread has taken the packet: by edge it would not be told again.
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

    /// Makes changes, and takes what is in the queue, as far as there is room for edges.
    ///
    /// With the lock: what is registered anew meanwhile would otherwise be given a key, or a filter, of before.
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

    /// Does what packets say.
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

    /// Tells of the operations that have ended, as far as there is room for edges. That calls the system, and this reactor
    /// as well, and so is done without the lock.
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

    /// Looks at what is unseen, as far as there is room for edges.
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
    /// The record of what has this number, if it is attached.
    fn find(&self, descriptor: Descriptor) -> Option<u64> {
        self.attached.get(&descriptor).copied()
    }

    /// For how many more packets there is room, each of which may become an edge, as what has ended may.
    fn room_for_edges(&self, edges: &Vec<Edge>) -> usize {
        edges.capacity().saturating_sub(edges.len() + self.ended.len())
    }

    /// Whether an earlier registration of this number is being removed.
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

    /// Has the next call try once more what there was no memory for.
    fn owe(&mut self, key: u64) {
        let Some(record) = self.records.get_mut(&key) else { return };
        if let Some(asked) = &mut record.asked {
            asked.sent = u64::MAX;
        }
        self.owed.push(key);
    }

    /// What was asked of a record is not to be asked any more.
    fn unqueue(&mut self, key: u64) {
        self.waiting.retain(|waiting| *waiting != key);
        self.owed.retain(|owed| *owed != key);
    }

    /// The changes that enable what waits for it, or register it as well.
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
