//! The reactor of macOS and the BSDs: a kqueue, in which each descriptor has one entry for each filter.
//!
//! The entries of the set are edge-triggered (`EV_CLEAR`). The one for reads is always there, since it tells of the
//! end of a stream and of errors, too; as long as reads are not wanted, it has a mark so high that data alone does not
//! reach it. The one for writes comes when it is wanted.
//!
//! A second kqueue, on which no thread ever waits, answers questions. It has one entry for each descriptor that is
//! watched, which is disabled. The kernel drops the entries of a number when that is closed, whatever duplicates
//! there are: so this entry tells whether the number still names what was attached. What holds now, the same entry
//! tells if it is enabled for a moment, together with one for writes that is made for that moment.
//!
//! The reactor makes its calls by [`KqueueCalls`]: on a system that has kqueues these are system calls, and elsewhere those
//! of the simulated kernel.

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

/// The name of the entry that ends a wait, which no slot has.
const WAKE: u64 = u64::MAX;

/// How many descriptors are asked about at once, and how many events are taken at once.
const ROOM: usize = 32;

/// How much data there would have to be for an entry that is to tell of no data.
const OUT_OF_REACH: i64 = i64::MAX;

/// The bits of an [`Event`], which have the same values on all systems.
pub(crate) mod flag {
    /// Makes the entry, or gives it other values.
    pub(crate) const ADD: u16 = 0x1;
    /// Takes the entry out.
    pub(crate) const DELETE: u16 = 0x2;
    /// The entry is reported from now on. What has happened meanwhile counts.
    pub(crate) const ENABLE: u16 = 0x4;
    /// The entry is not reported.
    pub(crate) const DISABLE: u16 = 0x8;
    /// The entry is taken out when it is reported.
    pub(crate) const ONCE: u16 = 0x10;
    /// The entry is reported again when something has changed.
    pub(crate) const CLEAR: u16 = 0x20;
    /// Of a report: a change was refused, and `data` has the code.
    pub(crate) const ERROR: u16 = 0x4000;
    /// Of a report: the end of this direction.
    pub(crate) const EOF: u16 = 0x8000;
}

/// The bits of `notes` in a change, which have the same values on all systems.
pub(crate) mod note {
    /// `data` says how much has to be there.
    pub(crate) const LOWEST: u32 = 0x1;
    /// An entry of [`Filter::User`](super::Filter::User) is reported.
    pub(crate) const TRIGGER: u32 = 0x0100_0000;
}

/// What an entry tells of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Filter {
    /// Something can be read or accepted; `data` is how much.
    Read,
    /// Something can be written.
    Write,
    /// Urgent data has come.
    Except,
    /// The program says so.
    User,
}

/// A change of an entry, or the report of one: kevent(2).
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) descriptor: Descriptor,
    pub(crate) filter: Filter,
    pub(crate) flags: u16,
    /// Of a change: the bits of [`note`]. Of a report with [`flag::EOF`]: the code of the error that is pending.
    pub(crate) notes: u32,
    pub(crate) data: i64,
    /// What a change has here its reports have, too.
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

    /// A report of the end of a direction has the code of an error, if one is pending.
    fn is_failed(&self) -> bool {
        self.is(flag::EOF) && self.notes != 0
    }
}

/// What an end of a pipe can be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Use {
    Reads,
    Writes,
    /// Both, or the system does not tell.
    Both,
}

/// The few calls of a kernel that the reactor makes.
pub(crate) trait KqueueCalls: Send + Sync {
    /// An open kqueue.
    type Queue: Send + Sync;
    /// An open pipe that does not wait.
    type Pipe: Send + Sync;

    /// Whether there is [`Filter::Except`].
    const HAS_EXCEPT: bool;

    /// The name of the reactor.
    fn name(&self) -> &'static str;

    /// kqueue(2).
    fn queue(&self) -> Result<Self::Queue, Code>;

    /// kevent(2): makes the changes, waits for at most `timeout` (`None`: no limit) until there is an event, and
    /// puts events into `room`. Returns how many.
    ///
    /// A change that is refused is put there as an event with [`flag::ERROR`], and the others go on; if there is no
    /// room, the call fails with the code, and the changes behind it are not made. If any was refused, the call
    /// does not look for events. Without room it does not wait.
    fn event(
        &self,
        queue: &Self::Queue,
        changes: &[Event],
        room: &mut [Event],
        timeout: Option<Duration>,
    ) -> Result<usize, Code>;

    /// The number of a queue, if it has one that a program could register.
    fn number(&self, queue: &Self::Queue) -> Option<Descriptor>;

    /// A pipe, for a kernel without [`Filter::User`].
    fn pipe(&self) -> Result<Self::Pipe, Code>;

    /// The numbers of its two ends. The first is for reads.
    fn ends(&self, pipe: &Self::Pipe) -> [Descriptor; 2];

    /// Writes something into the pipe.
    fn fill(&self, pipe: &Self::Pipe);

    /// Reads all that is in the pipe.
    fn drain(&self, pipe: &Self::Pipe);

    /// Whether the number names a file or a directory: a kqueue takes those, and tells nothing of them that a port
    /// could use.
    fn is_file(&self, descriptor: Descriptor) -> bool;

    /// Called once a descriptor is watched.
    fn prepare(&self, descriptor: Descriptor);

    /// The error that the next read would take from a socket, which keeps it.
    fn pending_error(&self, descriptor: Descriptor) -> Option<Code>;

    /// Which end of a pipe this is.
    fn pipe_end(&self, descriptor: Descriptor) -> Use;

    /// See [`Reactor::unread`].
    fn unread(&self, descriptor: Descriptor, end: AtEnd) -> Option<usize>;

    /// See [`Reactor::is_own_end`].
    fn is_own_end(&self, descriptor: Descriptor) -> bool;

    /// See [`Reactor::was_connected`].
    fn was_connected(&self, descriptor: Descriptor) -> bool;

    /// See [`Reactor::kind`].
    fn kind(&self, descriptor: Descriptor) -> DescriptorKind;
}

/// What brings a thread out of its wait.
enum Waker<P> {
    User,
    Pipe(P),
}

/// See the module's documentation.
pub(crate) struct Kqueue<C: KqueueCalls> {
    pub(crate) calls: C,
    set: C::Queue,
    questions: C::Queue,
    /// One thread at a time asks: to ask is to enable entries, and to disable them again.
    asking: Mutex<()>,
    waker: Waker<C::Pipe>,
}

/// What the questions about a descriptor have brought.
#[derive(Clone, Copy, Default)]
struct Seen {
    read: Option<Event>,
    write: Option<Event>,
    is_urgent: bool,
    /// The number names nothing, or not what was attached.
    is_closed: bool,
    /// There is no entry for writes to be had, since the other end of the pipe is gone.
    is_alone: bool,
}

/// kevent(2) on the set, by which a thread waits. The repetition does not wait, so no signal
/// ends it. Here, for [`QUESTIONS`] and for `sys/unix/errors.rs`, PLATFORM.md has a summary.
const WAIT: Errors = Errors { again: &[codes::EINTR], ..Errors::NONE };

/// kevent(2) on the questions.
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

/// What an edge says. Whatever is more than readiness is only a reason to ask: so an end counts as a hang-up, which
/// is no sign that the socket was ever connected, and a read that brings nothing as an error.
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

    /// Whether a descriptor is a part of the reactor.
    fn consists_of(&self, descriptor: Descriptor) -> bool {
        let queues = [&self.set, &self.questions].map(|queue| self.calls.number(queue));
        queues.contains(&Some(descriptor))
            || match &self.waker {
                Waker::User => false,
                Waker::Pipe(pipe) => self.calls.ends(pipe).contains(&descriptor),
            }
    }

    /// Whether the number names what was attached. The caller is the one that asks.
    fn has(&self, descriptor: Descriptor) -> Result<(), Code> {
        // It is disabled already, and so this has no effect.
        self.change(&self.questions, Event::of(descriptor, Filter::Read, flag::DISABLE))
    }

    /// Makes the entries of the set, or gives them other values. There is an edge for what holds.
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
                // A pipe whose other end is gone. The entry for reads tells that.
                Ok(()) | Err(codes::EPIPE | codes::EBADF) => {}
                Err(code) => return Err(code),
            }
        }
        if C::HAS_EXCEPT && wanted.has(Facts::IN) {
            // Refused of what is no socket.
            let _ = self.change(&self.set, entry(Filter::Except));
        }
        Ok(())
    }

    /// Takes the entries of a number out of the set.
    fn leave(&self, descriptor: Descriptor) {
        for filter in [Filter::Read, Filter::Write, Filter::Except] {
            if C::HAS_EXCEPT || filter != Filter::Except {
                let _ = self.change(&self.set, Event::of(descriptor, filter, flag::DELETE));
            }
        }
    }

    /// Takes events from the set, for which it waits for at most so long. A signal may end it early.
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

    /// Asks what holds of at most [`ROOM`] descriptors.
    fn ask(&self, probes: &[Probe], seen: &mut [Seen]) -> Result<(), Code> {
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
                    // The end of the stream comes by this filter, too (macOS).
                    Filter::Except => seen.is_urgent |= !event.is(flag::EOF),
                    Filter::User => {}
                }
            }
        }
        Ok(())
    }

    /// Ends the questions about these descriptors.
    fn end_questions(&self, probes: &[Probe], seen: &[Seen]) {
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
        // Room for those that are refused: the number was closed meanwhile, for instance.
        let mut room = [Event::NONE; 3 * ROOM];
        let now = Some(Duration::ZERO);
        let _ = self.calls.event(&self.questions, &changes[..count], &mut room, now);
    }

    /// What the answers say, in the words of epoll.
    fn facts(&self, descriptor: Descriptor, seen: &Seen) -> Facts {
        if seen.is_closed {
            return Facts::CLOSED;
        }
        let Seen { read, write, is_urgent, is_alone, .. } = *seen;
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
            // Nothing but an error, or a datagram without any byte.
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

    /// What holds of a pipe, or a terminal, whose other end is gone.
    fn facts_of_pipe(&self, descriptor: Descriptor, has_data: bool) -> Facts {
        match self.calls.pipe_end(descriptor) {
            Use::Writes => Facts::OUT | Facts::ERR,
            Use::Reads if has_data => Facts::IN | Facts::HUP,
            Use::Reads => Facts::HUP,
            Use::Both => Facts::IN | Facts::OUT | Facts::RDHUP | Facts::HUP,
        }
    }
}

/// The places of the descriptor that an event is about.
fn about<'a>(
    event: &Event,
    probes: &'a [Probe],
    seen: &'a mut [Seen],
) -> impl Iterator<Item = (&'a Probe, &'a mut Seen)> {
    let descriptor = event.descriptor;
    probes.iter().zip(seen).filter(move |(probe, _)| probe.descriptor == descriptor)
}

/// A question was refused.
fn note_refusal(event: &Event, probes: &[Probe], seen: &mut [Seen]) {
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
                // The events that were taken go first.
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
                // Nothing is needed for this that a kernel could lack.
                let _ = self.change(&self.set, trigger);
            }
            Waker::Pipe(pipe) => self.calls.fill(pipe),
        }
    }

    fn probe(&self, probes: &mut [Probe]) -> Result<(), Fault> {
        for part in probes.chunks_mut(ROOM) {
            let mut retries = Retries::default();
            let seen = loop {
                let mut seen = [Seen::default(); ROOM];
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
        // No entry outlives the number that it was made for. So there is nothing to get rid of, and those that are
        // live report again what holds.
        for Watch { descriptor, name, wanted, .. } in live {
            let _ = self.want(descriptor, name, wanted, Until::Detached);
        }
        Ok(())
    }
}
