//! Simulated kqueues on the objects of the simulated kernel, following the manual pages of macOS
//! and the BSDs.
//!
//! The objects themselves behave as those of Linux do. For example, a stream whose connect was
//! refused may connect again, and shutting a TCP listener returns it to its initial state. Only the
//! reports of the filters are simulated here.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use super::objects::{Code, FileId, Objects};
use super::reach::OnKernel;
use super::set::WakeCause;
use super::{Conditions, Kernel, KernelState, Object};
use crate::backend::host::Origin;
use crate::state::facts::{AtEnd, DescriptorKind};
use crate::sys::codes;
use crate::sys::portable::kqueue::{Event, Filter, Kqueue, KqueueCalls, PipeEndUse, flag, note};
use crate::types::source::Descriptor;

/// The conditions that a filter tests.
#[derive(Clone, Copy, Debug, Default)]
#[allow(clippy::struct_excessive_bools, reason = "what can be said of an object")]
pub(super) struct FilterEnds {
    /// There are bytes to read or a connection to accept. `unread` is their number.
    pub(super) readable: bool,
    pub(super) unread: usize,
    /// No more data will arrive.
    pub(super) read_over: bool,
    pub(super) writable: bool,
    /// No more data can be sent.
    pub(super) write_over: bool,
    pub(super) error: Option<Code>,
    /// A queue of connections. One connection is enough to report it.
    pub(super) is_listener: bool,
}

/// An entry of a kqueue.
#[derive(Debug)]
struct Knote {
    /// `None` if the entry belongs to the program and not to a file.
    file: Option<FileId>,
    name: u64,
    is_once: bool,
    is_clear: bool,
    is_enabled: bool,
    /// The entry may have something to report. It is in the list if it is also enabled.
    is_active: bool,
    /// The number of readable bytes from which on it reports.
    lowest: i64,
}

type Key = (Descriptor, Filter);

/// A simulated kqueue.
#[derive(Debug, Default)]
pub(super) struct SimulatedKqueue {
    knotes: BTreeMap<Key, Knote>,
    /// The entries of each file.
    of_files: BTreeMap<FileId, BTreeSet<Key>>,
    /// The entries to test, oldest first. A key without an active and enabled entry is skipped.
    active: VecDeque<Key>,
}

/// Returns the data, flags and notes that an entry reports now, or `None` if nothing.
fn report(key: Key, knote: &Knote, objects: &mut Objects) -> Option<(i64, u16, u32)> {
    let Some(file) = knote.file else { return Some((0, 0, 0)) };
    let ends = objects.ends(file);
    let notes = ends.error.map_or(0, i32::cast_unsigned);
    let holds = match key.1 {
        Filter::Read => {
            let unread = i64::try_from(ends.unread).unwrap_or(i64::MAX);
            let is_enough = ends.readable && (ends.is_listener || unread >= knote.lowest);
            (is_enough, ends.read_over, unread)
        }
        Filter::Write => (ends.writable, ends.write_over, i64::from(ends.writable)),
        Filter::Except | Filter::User => (false, false, 0),
    };
    let (is_ready, is_over, data) = holds;
    if key.1 == Filter::Except {
        return None;
    }
    if is_over {
        Some((data, flag::EOF, notes))
    } else if is_ready || ends.error.is_some() {
        Some((data, 0, 0))
    } else {
        None
    }
}

impl SimulatedKqueue {
    fn list(&mut self, key: Key) {
        if !self.active.contains(&key) {
            self.active.push_back(key);
        }
    }

    /// Lists an entry if it has something to report.
    fn activate(&mut self, key: Key, objects: &mut Objects) {
        let Some(knote) = self.knotes.get_mut(&key) else { return };
        // Only a trigger makes an entry of the program active.
        knote.is_active |= knote.file.is_some() && report(key, knote, objects).is_some();
        if knote.is_active && knote.is_enabled {
            self.list(key);
        }
    }

    /// Handles a change of `file`: more to read, more room, or an unspecific change.
    pub(super) fn notice(&mut self, file: FileId, what: Conditions, objects: &mut Objects) {
        let Some(keys) = self.of_files.get(&file) else { return };
        let concerned = |filter| match filter {
            Filter::Read => what != Conditions::OUT,
            Filter::Write => what != Conditions::IN,
            Filter::Except | Filter::User => false,
        };
        let keys: Vec<Key> = keys.iter().copied().filter(|key| concerned(key.1)).collect();
        for key in keys {
            self.activate(key, objects);
        }
    }

    /// Removes the entries of a number that was closed.
    pub(super) fn forget(&mut self, descriptor: Descriptor) {
        for filter in [Filter::Read, Filter::Write, Filter::Except] {
            self.remove((descriptor, filter));
        }
    }

    fn remove(&mut self, key: Key) -> Option<Knote> {
        let knote = self.knotes.remove(&key)?;
        if let Some(file) = knote.file
            && let Some(keys) = self.of_files.get_mut(&file)
        {
            keys.remove(&key);
            if keys.is_empty() {
                self.of_files.remove(&file);
            }
        }
        self.active.retain(|other| *other != key);
        Some(knote)
    }

    pub(super) fn is_idle(&self) -> bool {
        self.active.is_empty()
    }

    /// Applies one change.
    fn change(
        &mut self,
        change: &Event,
        file: Option<FileId>,
        objects: &mut Objects,
    ) -> Result<(), Code> {
        let key = (change.descriptor, change.filter);
        if change.filter != Filter::User {
            let file = file.ok_or(codes::EBADF)?;
            if change.flags & flag::ADD != 0 && !self.knotes.contains_key(&key) {
                objects.check_filter(file, change.filter)?;
            }
        }
        if change.flags & flag::DELETE != 0 {
            return self.remove(key).map(drop).ok_or(codes::ENOENT);
        }
        if change.flags & flag::ADD != 0 && !self.knotes.contains_key(&key) {
            let knote = Knote {
                file: file.filter(|_| change.filter != Filter::User),
                name: change.name,
                is_once: change.flags & flag::ONCE != 0,
                is_clear: change.flags & flag::CLEAR != 0,
                is_enabled: change.flags & flag::DISABLE == 0,
                is_active: false,
                lowest: 1,
            };
            if let Some(file) = knote.file {
                self.of_files.entry(file).or_default().insert(key);
            }
            self.knotes.insert(key, knote);
        }
        let knote = self.knotes.get_mut(&key).ok_or(codes::ENOENT)?;
        // Every change to an entry replaces these values.
        knote.name = change.name;
        knote.lowest = if change.notes & note::LOWEST != 0 { change.data } else { 0 };
        if change.flags & flag::ENABLE != 0 {
            knote.is_enabled = true;
        }
        if change.flags & flag::DISABLE != 0 {
            knote.is_enabled = false;
            self.active.retain(|other| *other != key);
            return Ok(());
        }
        if change.filter == Filter::User && change.notes & note::TRIGGER != 0 {
            knote.is_active = true;
        }
        self.activate(key, objects);
        Ok(())
    }

    /// Takes events of the entries that still have something to report.
    fn take(&mut self, room: &mut [Event], objects: &mut Objects) -> usize {
        let mut count = 0;
        // Each entry is reported at most once, although an entry without EV_CLEAR is listed again.
        for _ in 0..self.active.len() {
            if count == room.len() {
                break;
            }
            let Some(key) = self.active.pop_front() else { break };
            let Some(knote) = self.knotes.get_mut(&key) else { continue };
            let Some((data, flags, notes)) = report(key, knote, objects) else {
                knote.is_active = false;
                continue;
            };
            let (descriptor, filter) = key;
            room[count] = Event { descriptor, filter, flags, notes, data, name: knote.name };
            count += 1;
            if knote.is_once {
                self.remove(key);
            } else if knote.is_clear {
                knote.is_active = false;
            } else {
                self.active.push_back(key);
            }
        }
        count
    }
}

impl Objects {
    /// Returns the conditions that the filters of a kqueue test.
    pub(super) fn ends(&mut self, id: FileId) -> FilterEnds {
        let unread = self.unread(id).unwrap_or(0);
        let now = self.conditions(id);
        let plain = FilterEnds {
            readable: now.contains(Conditions::IN),
            unread,
            writable: now.contains(Conditions::OUT),
            ..FilterEnds::default()
        };
        match self.get(id) {
            Some(Object::Stream(stream)) => stream.ends(plain),
            Some(Object::Datagrams(socket)) => socket.ends(plain),
            Some(Object::Reader(_)) => {
                FilterEnds { read_over: now.contains(Conditions::HUP), writable: false, ..plain }
            }
            Some(Object::Writer(_)) => {
                let is_alone = now.contains(Conditions::ERR);
                FilterEnds { readable: false, read_over: is_alone, write_over: is_alone, ..plain }
            }
            Some(Object::Counter(_)) => FilterEnds { unread: usize::from(plain.readable), ..plain },
            Some(Object::File(_)) | None => FilterEnds::default(),
        }
    }

    /// Checks whether a file accepts an entry with this filter now.
    fn check_filter(&mut self, id: FileId, filter: Filter) -> Result<(), Code> {
        let is_alone = self.conditions(id).contains(Conditions::HUP);
        match (self.get(id), filter) {
            // The pipe has no writer.
            (Some(Object::Reader(_)), Filter::Write) if is_alone => Err(codes::EPIPE),
            (Some(Object::Stream(_) | Object::Datagrams(_)), _) => Ok(()),
            (_, Filter::Except) => Err(codes::EINVAL),
            _ => Ok(()),
        }
    }
}

/// The kernel's calls for the reactor of one port.
#[derive(Debug)]
pub(super) struct SimulatedCalls {
    kernel: Kernel,
    /// The number of an empty set. It identifies this port.
    port: u64,
    origin: Origin,
    /// Whether the kernel lacks [`Filter::User`].
    lacks_triggers: bool,
}

impl SimulatedCalls {
    pub(super) fn new(kernel: Kernel, lacks_triggers: bool) -> Self {
        let port = kernel.lock().add_set();
        Self { kernel, port, origin: Origin::by_number(), lacks_triggers }
    }
}

impl Drop for SimulatedCalls {
    fn drop(&mut self) {
        let mut state = self.kernel.lock();
        let requests = state.end_port(self.port);
        drop(state);
        // Dropped without the lock: requests own buffers and descriptors of this kernel.
        drop(requests);
    }
}

/// An open kqueue. Dropping it closes it.
#[derive(Debug)]
pub(super) struct OpenDescriptor {
    kernel: Kernel,
    number: u64,
}

impl Drop for OpenDescriptor {
    fn drop(&mut self) {
        self.kernel.lock().queues.remove(&self.number);
    }
}

impl KernelState {
    fn change(&mut self, queue: u64, change: &Event) -> Result<(), Code> {
        let is_new = change.flags == flag::ADD | flag::DISABLE;
        let file = self.file(change.descriptor);
        if is_new
            && file.is_some()
            && let Some(code) = self.next_attach_failure()
        {
            return Err(code);
        }
        self.queues.entry(queue).or_default().change(change, file, &mut self.objects)
    }
}

impl KqueueCalls for SimulatedCalls {
    type Queue = OpenDescriptor;
    type Pipe = (super::Socket, super::Socket);

    const HAS_EXCEPT: bool = true;

    fn name(&self) -> &'static str {
        "sim, kqueue"
    }

    fn queue(&self) -> Result<OpenDescriptor, Code> {
        let mut state = self.kernel.lock();
        state.last_set += 1;
        let number = state.last_set;
        state.queues.insert(number, SimulatedKqueue::default());
        drop(state);
        Ok(OpenDescriptor { kernel: self.kernel.clone(), number })
    }

    fn event(
        &self,
        queue: &OpenDescriptor,
        changes: &[Event],
        room: &mut [Event],
        timeout: Option<Duration>,
    ) -> Result<usize, Code> {
        let mut state = self.kernel.lock();
        if !room.is_empty() {
            let refusal =
                if changes.is_empty() { state.wait_refusal } else { state.question_refusal };
            refusal.map_or(Ok(()), Err)?;
        }
        let mut refused = 0;
        for change in changes {
            let done = match change.filter {
                Filter::User if self.lacks_triggers => Err(codes::EINVAL),
                _ => state.change(queue.number, change),
            };
            let Err(code) = done else { continue };
            let Some(place) = room.get_mut(refused) else {
                self.kernel.publish(state);
                return Err(code);
            };
            *place = Event { flags: flag::ERROR, data: code.into(), ..*change };
            refused += 1;
        }
        if refused > 0 || room.is_empty() {
            self.kernel.publish(state);
            return Ok(refused);
        }
        if changes.is_empty() {
            state.calls.poll += 1;
            if timeout != Some(Duration::ZERO) {
                state.calls.sleeping_poll += 1;
            }
        }
        let until = state.deadline(timeout);
        let mut count = 0;
        self.kernel.sleep(state, until, WakeCause::Queued(queue.number), |state| {
            let KernelState { queues, objects, .. } = state;
            count = queues.entry(queue.number).or_default().take(room, objects);
            count > 0
        });
        Ok(count)
    }

    fn number(&self, _queue: &OpenDescriptor) -> Option<Descriptor> {
        None
    }

    fn pipe(&self) -> Result<Self::Pipe, Code> {
        let refused = |error: std::io::Error| error.raw_os_error().unwrap_or(codes::EMFILE);
        self.kernel.pipe().map_err(refused)
    }

    fn ends(&self, (reader, writer): &Self::Pipe) -> [Descriptor; 2] {
        [reader.number(), writer.number()]
    }

    fn fill(&self, (_, writer): &Self::Pipe) {
        // If the pipe is full, it already has an event that was not taken.
        let _ = writer.write(b"x");
    }

    fn drain(&self, (reader, _): &Self::Pipe) {
        while reader.read(&mut [0; 64]).is_ok_and(|taken| taken > 0) {}
    }

    fn is_file(&self, descriptor: Descriptor) -> bool {
        let mut state = self.kernel.lock();
        state.calls.attach += 1;
        state.file(descriptor).is_some_and(|file| !state.objects.can_be_watched(file))
    }

    fn prepare(&self, _descriptor: Descriptor) {}

    fn pending_error(&self, descriptor: Descriptor) -> Option<Code> {
        let mut state = self.kernel.lock();
        let file = state.file(descriptor)?;
        state.objects.ends(file).error
    }

    fn pipe_end(&self, descriptor: Descriptor) -> PipeEndUse {
        let mut state = self.kernel.lock();
        match state.file(descriptor).and_then(|file| state.objects.get(file)) {
            Some(Object::Reader(_)) => PipeEndUse::Reads,
            Some(Object::Writer(_)) => PipeEndUse::Writes,
            _ => PipeEndUse::Both,
        }
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
}

impl OnKernel for Kqueue<SimulatedCalls> {
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

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;
    use crate::backend::reactor::Reactor;
    use crate::sim::Socket;
    use crate::state::facts::{Edge, Facts, Probe};
    use crate::types::error::ErrorKind;

    const BOTH: Facts = Facts::of_directions(0b11);

    fn edges(reactor: &dyn Reactor, room: usize) -> Vec<(u64, Facts)> {
        let mut edges: Vec<Edge> = Vec::with_capacity(room);
        reactor.poll(&mut edges, Some(Duration::ZERO)).unwrap();
        edges.iter().map(|edge| (edge.name, edge.facts)).collect()
    }

    fn holds(reactor: &dyn Reactor, sockets: &[&Socket]) -> Vec<Facts> {
        let probe = |socket: &&Socket| Probe { descriptor: socket.number(), facts: Facts::NONE };
        let mut probes: Vec<Probe> = sockets.iter().map(probe).collect();
        reactor.probe(&mut probes).unwrap();
        probes.iter().map(|probe| probe.facts).collect()
    }

    fn refusal(reactor: &dyn Reactor, descriptor: Descriptor) -> Option<ErrorKind> {
        reactor.attach(descriptor, 9, BOTH).err().map(|fault| fault.kind)
    }

    #[test]
    fn what_cannot_be_attached_is_refused_by_kind() {
        let kernel = Kernel::new();
        let reactor = kernel.kqueue(false);
        let event = kernel.event().unwrap();
        let file = kernel.regular_file().unwrap();
        assert_eq!(refusal(&reactor, file.number()), Some(ErrorKind::NotPollable));
        drop(file);
        for closed in [1, -1, Descriptor::MAX] {
            assert_eq!(refusal(&reactor, closed), Some(ErrorKind::BadDescriptor));
        }
        kernel.fail_next_attach(ErrorKind::OutOfMemory);
        assert_eq!(refusal(&reactor, event.number()), Some(ErrorKind::OutOfMemory));
        assert!(!reactor.watches(event.number()), "a refused call has changed nothing");
        assert_eq!(refusal(&reactor, event.number()), None);
        assert_eq!(refusal(&reactor, event.number()), Some(ErrorKind::AlreadyRegistered));
        reactor.detach(event.number());
        assert!(!reactor.watches(event.number()));
        assert!(
            reactor
                .want(event.number(), 9, BOTH, crate::backend::reactor::Until::Detached)
                .is_err()
        );
        assert_eq!(edges(&reactor, 8), []);
    }

    #[test]
    fn a_number_is_forgotten_when_it_is_closed() {
        let kernel = Kernel::new();
        let reactor = kernel.kqueue(false);
        let (ours, theirs) = kernel.unix_pair().unwrap();
        let number = ours.number();
        reactor.attach(number, 1, Facts::IN).unwrap();
        let lives_on = ours.dup().unwrap();
        drop(ours);
        theirs.write(b"x").unwrap();
        let again = lives_on.dup().unwrap();
        assert_eq!(again.number(), number);
        assert!(!reactor.watches(number));
        assert_eq!(holds(&reactor, &[&again]), [Facts::CLOSED]);
        assert_eq!(edges(&reactor, 8), []);
        reactor.attach(number, 2, Facts::IN).unwrap();
        assert_eq!(edges(&reactor, 8), [(2, Facts::IN)]);
    }

    #[test]
    fn a_question_is_answered_for_each_direction_and_leaves_nothing_behind() {
        let kernel = Kernel::new();
        let reactor = kernel.kqueue(false);
        let (ours, theirs) = kernel.tcp_pair().unwrap();
        let fresh = kernel.tcp_fresh().unwrap();
        for socket in [&ours, &fresh] {
            reactor.attach(socket.number(), 1, Facts::NONE).unwrap();
        }
        assert_eq!(holds(&reactor, &[&ours, &fresh]), [Facts::OUT, Facts::NONE]);
        theirs.write(b"x").unwrap();
        assert_eq!(holds(&reactor, &[&fresh, &ours]), [Facts::NONE, BOTH]);
        ours.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(holds(&reactor, &[&ours]), [BOTH], "the own end is no hang-up");
        theirs.reset();
        let over = BOTH | Facts::RDHUP | Facts::HUP | Facts::ERR;
        assert_eq!(holds(&reactor, &[&ours, &ours]), [over; 2], "it may be asked about twice");
        ours.take_error().unwrap();
        assert_eq!(holds(&reactor, &[&ours]), [BOTH | Facts::RDHUP | Facts::HUP]);
        let state = kernel.lock();
        let questions = state.queues.values().nth(1).unwrap();
        assert!(questions.is_idle());
        assert!(questions.knotes.values().all(|knote| !knote.is_enabled));
        assert_eq!(questions.knotes.len(), 2);
    }

    #[test]
    fn an_error_of_a_datagram_socket_is_told_from_an_empty_datagram() {
        let kernel = Kernel::new();
        let reactor = kernel.kqueue(false);
        let (ours, theirs) = kernel.udp_pair().unwrap();
        reactor.attach(ours.number(), 1, Facts::IN).unwrap();
        theirs.write(b"").unwrap();
        assert_eq!(holds(&reactor, &[&ours]), [BOTH]);
        assert_eq!(edges(&reactor, 8), [(1, Facts::IN | Facts::ERR)], "a reason to ask");
        assert_eq!(ours.read(&mut [0]).unwrap(), 0);
        drop(theirs);
        ours.write(b"x").unwrap();
        assert_eq!(holds(&reactor, &[&ours]), [Facts::OUT | Facts::ERR]);
        assert_eq!(edges(&reactor, 8), [(1, Facts::IN | Facts::ERR)]);
    }

    #[test]
    fn as_many_events_are_taken_as_there_is_room_for() {
        let kernel = Kernel::new();
        let reactor = kernel.kqueue(false);
        let pairs: Vec<_> = (0..100).map(|_| kernel.unix_pair().unwrap()).collect();
        for ((ours, theirs), name) in pairs.iter().zip(0..) {
            theirs.write(b"x").unwrap();
            reactor.attach(ours.number(), name, Facts::IN).unwrap();
        }
        let names = |room| edges(&reactor, room).into_iter().map(|(name, _)| name);
        assert!(names(50).eq(0..50));
        assert!(names(64).eq(50..100));
        assert!(names(64).eq(0..0));
    }

    #[test]
    fn a_wake_ends_a_wait_with_a_trigger_and_by_a_pipe() {
        for lacks_triggers in [false, true] {
            let kernel = Kernel::new();
            kernel.manual_clock();
            let reactor = kernel.kqueue(lacks_triggers);
            let wait = |timeout| {
                let mut edges = Vec::with_capacity(4);
                let woken = reactor.poll(&mut edges, timeout).unwrap();
                assert!(edges.is_empty());
                woken
            };
            for _ in 0..3 {
                reactor.wake();
            }
            assert!(wait(None), "it is remembered");
            assert!(!wait(Some(Duration::ZERO)), "and used up");
            thread::scope(|scope| {
                let sleeper = scope.spawn(|| wait(None));
                assert!(kernel.wait_for_sleepers(1, Duration::from_secs(10)));
                reactor.wake();
                assert!(sleeper.join().unwrap());
            });
            let own = if lacks_triggers { 2 } else { 0 };
            assert_eq!(kernel.open_descriptors(), own);
            for descriptor in 0..own {
                let descriptor = Descriptor::try_from(descriptor).unwrap();
                assert_eq!(refusal(&reactor, descriptor), Some(ErrorKind::NotPollable));
            }
            drop(reactor);
            assert_eq!((kernel.open_descriptors(), kernel.ports()), (0, 0));
        }
    }
}
