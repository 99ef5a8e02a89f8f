//! The reactor of macOS and the BSDs: a kqueue, with one entry for each descriptor and filter.
//!
//! The entries of the set are edge-triggered (`EV_CLEAR`). The read entry is always there, since it
//! also reports the end of a stream and errors. While reads are not wanted, its low-water mark is
//! too high for data to reach. The write entry is added when writes are wanted.
//!
//! A second kqueue, on which no thread waits, answers queries. It has one disabled entry for each
//! watched descriptor. The kernel drops the entries of a number when the number is closed, even if
//! there are duplicates, so this entry shows whether the number still names the attached object. A
//! query for what holds now briefly enables this entry, together with a temporary write entry.
//!
//! The reactor makes its calls through [`KqueueCalls`]: to the system if it has kqueues, otherwise
//! to the simulated kernel.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::backend::reactor::{Reactor, Until, Watch};
use crate::state::facts::{AtEnd, DescriptorKind, Edge, Facts, Probe};
use crate::sys::codes;
use crate::sys::portable::errors;
use crate::sys::portable::errors::{Code, Errors, Retries};
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// The name of the entry that ends a wait. No slot has it.
const WAKE: u64 = u64::MAX;

/// How many descriptors one query covers, and how many events one call takes.
const ROOM: usize = 32;

/// A low-water mark that no amount of data reaches.
const OUT_OF_REACH: i64 = i64::MAX;

/// The bits of an [`Event`]. Their values are the same on all systems.
pub(crate) mod flag {
    /// Adds the entry, or changes it.
    pub(crate) const ADD: u16 = 0x1;
    /// Deletes the entry.
    pub(crate) const DELETE: u16 = 0x2;
    /// Enables the entry. Earlier events count.
    pub(crate) const ENABLE: u16 = 0x4;
    /// Disables the entry.
    pub(crate) const DISABLE: u16 = 0x8;
    /// Deletes the entry when it is reported.
    pub(crate) const ONCE: u16 = 0x10;
    /// Reports the entry again only after a change.
    pub(crate) const CLEAR: u16 = 0x20;
    /// In a report: a change was refused, and `data` is the error code.
    pub(crate) const ERROR: u16 = 0x4000;
    /// In a report: this direction has ended.
    pub(crate) const EOF: u16 = 0x8000;
}

/// The bits of `notes` in a change. Their values are the same on all systems.
pub(crate) mod note {
    /// `data` is the low-water mark.
    pub(crate) const LOWEST: u32 = 0x1;
    /// Triggers an entry of [`Filter::User`](super::Filter::User).
    pub(crate) const TRIGGER: u32 = 0x0100_0000;
}

/// What an entry reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Filter {
    /// Data or connections are available; `data` is their number.
    Read,
    /// Something can be written.
    Write,
    /// Urgent data has arrived.
    Except,
    /// The program has triggered the entry.
    User,
}

/// A change or a report of an entry, for kevent(2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) descriptor: Descriptor,
    pub(crate) filter: Filter,
    pub(crate) flags: u16,
    /// In a change: the bits of [`note`]. In a report with [`flag::EOF`]: the pending error.
    pub(crate) notes: u32,
    pub(crate) data: i64,
    /// The reports of an entry repeat the value of its last change.
    pub(crate) name: u64,
}

impl Event {
    pub(crate) const NONE: Self = Self::of(0, Filter::User, 0);

    pub(crate) const fn of(descriptor: Descriptor, filter: Filter, flags: u16) -> Self {
        Self { descriptor, filter, flags, notes: 0, data: 0, name: 0 }
    }

    fn is(&self, flags: u16) -> bool {
        self.flags & flags != 0
    }

    /// Returns whether this report of an end has the code of a pending error.
    fn is_failed(&self) -> bool {
        self.is(flag::EOF) && self.notes != 0
    }
}

/// The directions of an end of a pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PipeEndUse {
    Reads,
    Writes,
    /// Both, or the system does not report it.
    Both,
}

/// The kernel calls that the reactor makes.
pub(crate) trait KqueueCalls: Send + Sync {
    /// An open kqueue.
    type Queue: Send + Sync;
    /// An open non-blocking pipe.
    type Pipe: Send + Sync;

    /// Whether the kernel has [`Filter::Except`].
    const HAS_EXCEPT: bool;

    /// Returns the name of the reactor.
    fn name(&self) -> &'static str;

    /// kqueue(2).
    fn queue(&self) -> Result<Self::Queue, Code>;

    /// kevent(2): makes the changes, waits for events, and writes them to `room`.
    ///
    /// Returns the number of events. It waits at most `timeout` (`None`: no limit).
    ///
    /// A refused change becomes an event with [`flag::ERROR`] in `room`, and the other changes are
    /// still made. If there is no room for it, the call fails with its code and skips the changes
    /// after it. If any change was refused, the call takes no other events. Without room it does
    /// not wait.
    fn event(
        &self,
        queue: &Self::Queue,
        changes: &[Event],
        room: &mut [Event],
        timeout: Option<Duration>,
    ) -> Result<usize, Code>;

    /// Returns the number of a queue, if it has one that a program could register.
    fn number(&self, queue: &Self::Queue) -> Option<Descriptor>;

    /// Makes a pipe, for kernels without [`Filter::User`].
    fn pipe(&self) -> Result<Self::Pipe, Code>;

    /// Returns the numbers of its two ends, the reading end first.
    fn ends(&self, pipe: &Self::Pipe) -> [Descriptor; 2];

    /// Writes a byte to the pipe.
    fn fill(&self, pipe: &Self::Pipe);

    /// Reads all data from the pipe.
    fn drain(&self, pipe: &Self::Pipe);

    /// Returns whether the number names a file or directory.
    ///
    /// A kqueue accepts those, but its reports about them are of no use to a port.
    fn is_file(&self, descriptor: Descriptor) -> bool;

    /// Called after a descriptor was added.
    fn prepare(&self, descriptor: Descriptor);

    /// Returns the error that the next read would take from a socket, without taking it.
    fn pending_error(&self, descriptor: Descriptor) -> Option<Code>;

    /// Returns which end of a pipe this is.
    fn pipe_end(&self, descriptor: Descriptor) -> PipeEndUse;

    /// See [`Reactor::unread`].
    fn unread(&self, descriptor: Descriptor, end: AtEnd) -> Option<usize>;

    /// See [`Reactor::is_own_end`].
    fn is_own_end(&self, descriptor: Descriptor) -> bool;

    /// See [`Reactor::was_connected`].
    fn was_connected(&self, descriptor: Descriptor) -> bool;

    /// See [`Reactor::kind`].
    fn kind(&self, descriptor: Descriptor) -> DescriptorKind;
}

/// Wakes a thread from its wait.
enum Waker<P> {
    User,
    Pipe(P),
}

/// See the module's documentation.
pub(crate) struct Kqueue<C: KqueueCalls> {
    pub(crate) calls: C,
    set: C::Queue,
    questions: C::Queue,
    /// Serializes queries, which enable entries and disable them again.
    asking: Mutex<()>,
    waker: Waker<C::Pipe>,
}

/// The results of the queries for one descriptor.
#[derive(Clone, Copy, Default)]
struct QueryResult {
    read: Option<Event>,
    write: Option<Event>,
    is_urgent: bool,
    /// The number names nothing, or not the attached object.
    is_closed: bool,
    /// No write entry can be added, because the other end of the pipe is closed.
    is_alone: bool,
}

/// kevent(2) on the set, on which threads wait. The retry does not wait, so no signal interrupts
/// it. PLATFORM.md has a summary of this table, of [`QUESTIONS`] and of `sys/unix/errors.rs`.
const WAIT: Errors = Errors { again: &[codes::EINTR], ..Errors::NONE };

/// kevent(2) on the queue for queries.
const QUESTIONS: Errors = Errors { again: &[codes::EINTR, codes::ENOMEM], ..Errors::NONE };

fn fault_of_wait(code: Code) -> Fault {
    errors::fault_of_wait(code, &[codes::EACCES, codes::ENOSYS, codes::EPERM], &[codes::ENOMEM])
}

fn fault(code: Code) -> Fault {
    let kind = match code {
        codes::EBADF | codes::ENOENT => ErrorKind::BadDescriptor,
        codes::EINVAL | codes::ENODEV | codes::EOPNOTSUPP | codes::EPERM => ErrorKind::NotPollable,
        codes::EMFILE | codes::ENFILE => ErrorKind::DescriptorLimit,
        codes::ENOMEM => ErrorKind::OutOfMemory,
        codes::ENOSPC => ErrorKind::WatchLimit,
        _ => ErrorKind::Other,
    };
    Fault { kind, code: Some(code) }
}

/// Converts an event to facts.
///
/// Facts other than readiness only cause a probe, so this may overstate them: an end counts as a
/// hang-up, whether or not the socket was ever connected, and a read of no bytes counts as an
/// error.
fn edge(event: &Event) -> Facts {
    let mut facts = match event.filter {
        Filter::Read if event.is(flag::EOF) => Facts::IN | Facts::RDHUP | Facts::HUP,
        Filter::Read if event.data == 0 => Facts::IN | Facts::ERR,
        Filter::Read => Facts::IN,
        Filter::Write if event.is(flag::EOF) => Facts::OUT | Facts::HUP,
        Filter::Write => Facts::OUT,
        Filter::Except | Filter::User => Facts::URGENT,
    };
    if event.is_failed() {
        facts |= Facts::ERR;
    }
    facts
}

impl<C: KqueueCalls> Kqueue<C> {
    pub(crate) fn new(calls: C) -> Result<Self, Fault> {
        let set = calls.queue().map_err(fault)?;
        let questions = calls.queue().map_err(fault)?;
        let wake = Event { name: WAKE, ..Event::of(0, Filter::User, flag::ADD | flag::CLEAR) };
        let waker = if calls.event(&set, &[wake], &mut [], None).is_ok() {
            Waker::User
        } else {
            let pipe = calls.pipe().map_err(fault)?;
            let [reader, _] = calls.ends(&pipe);
            let wake = Event { descriptor: reader, filter: Filter::Read, ..wake };
            calls.event(&set, &[wake], &mut [], None).map_err(fault)?;
            Waker::Pipe(pipe)
        };
        Ok(Self { calls, set, questions, asking: Mutex::new(()), waker })
    }

    fn asking(&self) -> MutexGuard<'_, ()> {
        self.asking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, queue: &C::Queue, change: Event) -> Result<(), Code> {
        self.calls.event(queue, &[change], &mut [], None).map(drop)
    }

    /// Returns whether a descriptor belongs to the reactor.
    fn consists_of(&self, descriptor: Descriptor) -> bool {
        let queues = [&self.set, &self.questions].map(|queue| self.calls.number(queue));
        queues.contains(&Some(descriptor))
            || match &self.waker {
                Waker::User => false,
                Waker::Pipe(pipe) => self.calls.ends(pipe).contains(&descriptor),
            }
    }

    /// Checks whether the number names the attached object. The caller holds `asking`.
    fn has(&self, descriptor: Descriptor) -> Result<(), Code> {
        // The entry is already disabled, so this changes nothing.
        self.change(&self.questions, Event::of(descriptor, Filter::Read, flag::DISABLE))
    }

    /// Adds or changes the entries of the set. Conditions that already hold make an edge.
    fn watch(&self, descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Code> {
        let entry =
            |filter| Event { name, ..Event::of(descriptor, filter, flag::ADD | flag::CLEAR) };
        let read = match wanted.has(Facts::IN) {
            true => entry(Filter::Read),
            false => Event { notes: note::LOWEST, data: OUT_OF_REACH, ..entry(Filter::Read) },
        };
        self.change(&self.set, read)?;
        if wanted.has(Facts::OUT) {
            match self.change(&self.set, entry(Filter::Write)) {
                // A pipe whose other end is closed. The read entry reports that.
                Ok(()) | Err(codes::EPIPE | codes::EBADF) => {}
                Err(code) => return Err(code),
            }
        }
        if C::HAS_EXCEPT && wanted.has(Facts::IN) {
            // Refused for objects that are not sockets.
            let _ = self.change(&self.set, entry(Filter::Except));
        }
        Ok(())
    }

    /// Removes the entries of a number from the set.
    fn leave(&self, descriptor: Descriptor) {
        for filter in [Filter::Read, Filter::Write, Filter::Except] {
            if C::HAS_EXCEPT || filter != Filter::Except {
                let _ = self.change(&self.set, Event::of(descriptor, filter, flag::DELETE));
            }
        }
    }

    /// Takes events from the set and waits for them for at most `limit`. A signal may end it early.
    fn take(&self, room: &mut [Event], limit: Option<Duration>) -> Result<usize, Code> {
        let mut taken = self.calls.event(&self.set, &[], room, limit);
        let mut retries = Retries::default();
        while let Err(code) = taken
            && retries.pass(&WAIT, code)
        {
            taken = self.calls.event(&self.set, &[], room, Some(Duration::ZERO));
        }
        taken
    }

    /// Queries what holds of at most [`ROOM`] descriptors.
    fn ask(&self, probes: &[Probe], seen: &mut [QueryResult]) -> Result<(), Code> {
        let mut changes = [Event::NONE; 3 * ROOM];
        let mut count = 0;
        let mut add = |change| {
            changes[count] = change;
            count += 1;
        };
        for Probe { descriptor, .. } in probes {
            add(Event::of(*descriptor, Filter::Read, flag::ENABLE));
            add(Event::of(*descriptor, Filter::Write, flag::ADD | flag::ONCE));
            if C::HAS_EXCEPT {
                add(Event::of(*descriptor, Filter::Except, flag::ADD | flag::ONCE));
            }
        }
        let mut room = [Event::NONE; 3 * ROOM];
        let now = Some(Duration::ZERO);
        let mut events = self.calls.event(&self.questions, &changes[..count], &mut room, now)?;
        let mut is_refused = false;
        for event in room[..events].iter().filter(|event| event.is(flag::ERROR)) {
            is_refused = true;
            note_refusal(event, probes, seen);
        }
        if is_refused {
            events = self.calls.event(&self.questions, &[], &mut room, now)?;
        }
        for event in room[..events].iter().filter(|event| !event.is(flag::ERROR)) {
            for (_, seen) in about(event, probes, seen) {
                match event.filter {
                    Filter::Read => seen.read = Some(*event),
                    Filter::Write => seen.write = Some(*event),
                    // On macOS this filter also reports the end of the stream.
                    Filter::Except => seen.is_urgent |= !event.is(flag::EOF),
                    Filter::User => {}
                }
            }
        }
        Ok(())
    }

    /// Removes or disables the entries that the query enabled.
    fn end_questions(&self, probes: &[Probe], seen: &[QueryResult]) {
        let mut changes = [Event::NONE; 3 * ROOM];
        let mut count = 0;
        let mut add = |change| {
            changes[count] = change;
            count += 1;
        };
        for (Probe { descriptor, .. }, seen) in probes.iter().zip(seen) {
            add(Event::of(*descriptor, Filter::Read, flag::DISABLE));
            if seen.write.is_none() && !seen.is_alone {
                add(Event::of(*descriptor, Filter::Write, flag::DELETE));
            }
            if C::HAS_EXCEPT && !seen.is_urgent {
                add(Event::of(*descriptor, Filter::Except, flag::DELETE));
            }
        }
        // Room for the refused changes, for example if a number was closed meanwhile.
        let mut room = [Event::NONE; 3 * ROOM];
        let now = Some(Duration::ZERO);
        let _ = self.calls.event(&self.questions, &changes[..count], &mut room, now);
    }

    /// Converts the results of a query to the facts of epoll.
    fn facts(&self, descriptor: Descriptor, seen: &QueryResult) -> Facts {
        if seen.is_closed {
            return Facts::CLOSED;
        }
        let QueryResult { read, write, is_urgent, is_alone, .. } = *seen;
        let ends = |event: Option<Event>| event.is_some_and(|event| event.is(flag::EOF));
        let fails = |event: Option<Event>| event.is_some_and(|event| event.is_failed());
        let (read_over, write_over) = (ends(read), ends(write) || is_alone);
        let mut facts = Facts::NONE;
        if fails(read) || fails(write) {
            facts |= Facts::ERR;
        }
        if is_urgent {
            facts |= Facts::URGENT;
        }
        if write_over && self.calls.kind(descriptor) == DescriptorKind::NoSocket {
            let has_data = read.is_some_and(|read| read.data > 0);
            return facts | self.facts_of_pipe(descriptor, has_data);
        }
        match read {
            // Either only an error, or a datagram of zero bytes.
            Some(read) if read.data == 0 && !read_over => {
                match self.calls.pending_error(descriptor) {
                    Some(_) => facts |= Facts::ERR,
                    None => facts |= Facts::IN,
                }
            }
            Some(_) => facts |= Facts::IN,
            None => {}
        }
        if write.is_some() {
            facts |= Facts::OUT;
        }
        if read_over {
            facts |= Facts::RDHUP;
            if write_over {
                facts |= Facts::HUP;
            }
        }
        facts
    }

    /// Returns what holds of a pipe or a terminal whose other end is closed.
    fn facts_of_pipe(&self, descriptor: Descriptor, has_data: bool) -> Facts {
        match self.calls.pipe_end(descriptor) {
            PipeEndUse::Writes => Facts::OUT | Facts::ERR,
            PipeEndUse::Reads if has_data => Facts::IN | Facts::HUP,
            PipeEndUse::Reads => Facts::HUP,
            PipeEndUse::Both => Facts::IN | Facts::OUT | Facts::RDHUP | Facts::HUP,
        }
    }
}

/// Iterates over the probes of the event's descriptor and their results.
fn about<'a>(
    event: &Event,
    probes: &'a [Probe],
    seen: &'a mut [QueryResult],
) -> impl Iterator<Item = (&'a Probe, &'a mut QueryResult)> {
    let descriptor = event.descriptor;
    probes.iter().zip(seen).filter(move |(probe, _)| probe.descriptor == descriptor)
}

/// Notes a refused query.
fn note_refusal(event: &Event, probes: &[Probe], seen: &mut [QueryResult]) {
    for (_, seen) in about(event, probes, seen) {
        match event.filter {
            Filter::Read => seen.is_closed = true,
            Filter::Write => seen.is_alone = true,
            Filter::Except | Filter::User => {}
        }
    }
}

impl<C: KqueueCalls> Reactor for Kqueue<C> {
    fn name(&self) -> &'static str {
        self.calls.name()
    }

    fn is_one_shot(&self) -> bool {
        false
    }

    fn attach(&self, descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Fault> {
        if self.consists_of(descriptor) || self.calls.is_file(descriptor) {
            return Err(Fault { kind: ErrorKind::NotPollable, code: Some(codes::EPERM) });
        }
        {
            let _asking = self.asking();
            if self.has(descriptor).is_ok() {
                let kind = ErrorKind::AlreadyRegistered;
                return Err(Fault { kind, code: Some(codes::EEXIST) });
            }
            let entry = Event::of(descriptor, Filter::Read, flag::ADD | flag::DISABLE);
            self.change(&self.questions, entry).map_err(fault)?;
        }
        self.watch(descriptor, name, wanted).map_err(|code| {
            self.detach(descriptor);
            fault(code)
        })?;
        self.calls.prepare(descriptor);
        Ok(())
    }

    fn adopt(&self, descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Fault> {
        if !wanted.has(Facts::OUT) {
            let _ = self.change(&self.set, Event::of(descriptor, Filter::Write, flag::DELETE));
        }
        self.want(descriptor, name, wanted, Until::Detached)
    }

    fn want(
        &self,
        descriptor: Descriptor,
        name: u64,
        wanted: Facts,
        _until: Until,
    ) -> Result<(), Fault> {
        {
            let _asking = self.asking();
            self.has(descriptor).map_err(fault)?;
        }
        self.watch(descriptor, name, wanted).map_err(fault)
    }

    fn detach(&self, descriptor: Descriptor) {
        self.leave(descriptor);
        let _asking = self.asking();
        let _ = self.change(&self.questions, Event::of(descriptor, Filter::Read, flag::DELETE));
    }

    fn watches(&self, descriptor: Descriptor) -> bool {
        let _asking = self.asking();
        self.has(descriptor).is_ok()
    }

    fn poll(&self, edges: &mut Vec<Edge>, timeout: Option<Duration>) -> Result<bool, Fault> {
        edges.clear();
        let mut limit = timeout;
        let mut is_woken = false;
        loop {
            let mut room = [Event::NONE; ROOM];
            let places = (edges.capacity() - edges.len()).min(ROOM);
            let count = match self.take(&mut room[..places], limit) {
                Ok(count) => count,
                Err(code) if edges.is_empty() && !is_woken => return Err(fault_of_wait(code)),
                // Return the events that were taken first. A later poll will report the error.
                Err(_) => 0,
            };
            for event in &room[..count] {
                if event.name == WAKE {
                    is_woken = true;
                    if let Waker::Pipe(pipe) = &self.waker {
                        self.calls.drain(pipe);
                    }
                } else {
                    edges.push(Edge { facts: edge(event), name: event.name });
                }
            }
            if count < ROOM || edges.len() == edges.capacity() {
                return Ok(is_woken);
            }
            limit = Some(Duration::ZERO);
        }
    }

    fn wake(&self) {
        match &self.waker {
            Waker::User => {
                let trigger = Event { notes: note::TRIGGER, name: WAKE, ..Event::NONE };
                // Triggering needs no resource that a kernel could lack.
                let _ = self.change(&self.set, trigger);
            }
            Waker::Pipe(pipe) => self.calls.fill(pipe),
        }
    }

    fn probe(&self, probes: &mut [Probe]) -> Result<(), Fault> {
        for part in probes.chunks_mut(ROOM) {
            let mut retries = Retries::default();
            let seen = loop {
                let mut seen = [QueryResult::default(); ROOM];
                let asking = self.asking();
                let asked = self.ask(part, &mut seen[..part.len()]);
                self.end_questions(part, &seen[..part.len()]);
                drop(asking);
                match asked {
                    Ok(()) => break seen,
                    Err(code) if retries.pass(&QUESTIONS, code) => {}
                    Err(code) => return Err(fault_of_wait(code)),
                }
            };
            for (probe, seen) in part.iter_mut().zip(&seen) {
                probe.facts = self.facts(probe.descriptor, seen);
            }
        }
        Ok(())
    }

    fn unread(&self, descriptor: Descriptor, end: AtEnd) -> Option<usize> {
        self.calls.unread(descriptor, end)
    }

    fn is_own_end(&self, descriptor: Descriptor) -> bool {
        self.calls.is_own_end(descriptor)
    }

    fn was_connected(&self, descriptor: Descriptor) -> bool {
        self.calls.was_connected(descriptor)
    }

    fn kind(&self, descriptor: Descriptor) -> DescriptorKind {
        self.calls.kind(descriptor)
    }

    fn rebuild(&self, live: &mut dyn Iterator<Item = Watch>) -> Result<(), Fault> {
        // No entry outlives the number it was made for, so nothing has to be removed. Live
        // registrations report again what holds.
        for Watch { descriptor, name, wanted, .. } in live {
            let _ = self.want(descriptor, name, wanted, Until::Detached);
        }
        Ok(())
    }
}
