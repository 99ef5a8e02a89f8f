//! The simulated kernel of the models.

use std::mem::MaybeUninit;
use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::{AtomicBool, Ordering::SeqCst};
use loom::thread;

use crate::backend::files::{FileRef, FileTarget, Files, Now};
use crate::backend::host::{Host, Origin};
use crate::backend::reactor::{Reactor, Until, Watch};
use crate::backend::request::{FileRequest, SocketRequest, Submit};
use crate::backend::sockets::{Received, SocketAttempt, SocketTarget, Sockets, Transport};
use crate::backend::thread::Thread;
use crate::state::facts::{AtEnd, DescriptorKind, Edge, Facts, Presence, Probe};
use crate::state::moment::Moment;
use crate::state::queue::is_op;
use crate::state::table::Descriptors;
use crate::types::address::Address;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;
use crate::types::source::OwnedSource;

/// A kernel that consists of a few booleans. A wait ignores its timeout, since models don't depend
/// on time. If the kernel reports who sleeps (`tells`), a wait with a timeout instead advances time
/// and lets the other threads continue.
pub(crate) struct Fake {
    state: loom::sync::Mutex<FakeState>,
    changed: loom::sync::Condvar,
    descriptors: Descriptors,
    /// Whether the kernel reports that `sleeper` sleeps. `asleep` says whether it does.
    tells: bool,
    is_one_shot: bool,
    sleeper: std::sync::OnceLock<thread::ThreadId>,
    /// Whether `sleeper` sleeps. If so, it has slept for a long time.
    pub(crate) asleep: AtomicBool,
    /// A std atomic, so that loom doesn't explore accesses to it.
    microseconds: std::sync::atomic::AtomicU64,
}

#[derive(Default)]
struct FakeState {
    edges: Vec<Edge>,
    woken: bool,
    readable: bool,
    name: u64,
    /// What the descriptor is watched for, and until when. `None` if it isn't watched.
    wanted: Facts,
    until: Option<Until>,
    /// Submitted but not started.
    file_requests: Vec<FileRequest>,
    /// Pending requests, and completed ones that were not taken.
    socket_requests: Vec<SocketRequest>,
    completed: Vec<SocketRequest>,
}

/// Returns whether the edge reports the end of an operation.
fn is_of_operation(edge: &Edge) -> bool {
    let name = edge.name;
    #[allow(clippy::cast_possible_truncation, reason = "the lower half is the node")]
    is_op(name as u32)
}

impl FakeState {
    /// Adds an edge for the current readiness, if the descriptor is watched for it.
    fn look(&mut self) {
        if self.readable && self.until.is_some() && self.wanted.has(Facts::IN) {
            let name = self.name;
            self.edges.push(Edge { name, facts: Facts::IN });
        }
    }

    fn watch(&mut self, name: u64, wanted: Facts, until: Option<Until>) {
        (self.name, self.wanted, self.until) = (name, wanted, until);
        self.edges.retain(is_of_operation);
        self.look();
    }
}

pub(crate) struct Handle(pub(crate) Arc<Fake>);

/// Parks as the real thread does, with a lock and a condition variable. loom's own `park` forgets
/// an `unpark` that comes while the thread waits for a lock or yields.
struct LoomThread {
    thread: thread::ThreadId,
    unparked: loom::sync::Mutex<bool>,
    given: loom::sync::Condvar,
    fake: Arc<Fake>,
    /// A std atomic, as for the clock.
    observed: std::sync::atomic::AtomicBool,
}

impl LoomThread {
    fn is_asleep(&self) -> bool {
        self.fake.sleeper.get() == Some(&self.thread) && self.fake.asleep.load(SeqCst)
    }
}

impl Thread for LoomThread {
    fn park(&self, timeout: Option<Duration>) {
        let mut unparked = self.unparked.lock().unwrap();
        if !*unparked {
            unparked = match timeout {
                Some(timeout) if self.fake.tells => {
                    drop(unparked);
                    self.fake.pass(timeout);
                    self.unparked.lock().unwrap()
                }
                _ => self.given.wait(unparked).unwrap(),
            };
        }
        *unparked = false;
    }
    fn unpark(&self) {
        *self.unparked.lock().unwrap() = true;
        self.given.notify_one();
    }
    fn asleep(&self) -> Option<bool> {
        self.fake.tells.then(|| self.is_asleep())
    }
    fn observe(&self) -> bool {
        self.observed.store(self.fake.tells, SeqCst);
        self.fake.tells
    }
    fn read_record(&self) -> Option<Presence> {
        if !self.observed.load(SeqCst) {
            return None;
        }
        let asleep = Presence::Asleep { since: Moment::ZERO };
        Some(if self.is_asleep() { asleep } else { Presence::Awake })
    }
}

impl Fake {
    pub(crate) fn new(tells: bool) -> Arc<Self> {
        Arc::new(Self::of(tells, false))
    }

    pub(crate) fn one_shot(tells: bool) -> Arc<Self> {
        Arc::new(Self::of(tells, true))
    }

    fn of(tells: bool, is_one_shot: bool) -> Self {
        Self {
            state: loom::sync::Mutex::new(FakeState::default()),
            changed: loom::sync::Condvar::new(),
            descriptors: Descriptors::new(),
            tells,
            is_one_shot,
            sleeper: std::sync::OnceLock::new(),
            asleep: AtomicBool::new(false),
            microseconds: std::sync::atomic::AtomicU64::new(if tells { 1_000_000 } else { 0 }),
        }
    }

    /// Makes the calling thread the one that may sleep. Call it before the thread joins.
    pub(crate) fn is_me(&self) {
        self.sleeper.set(thread::current().id()).unwrap();
    }

    /// Advances time by the timeout of a wait while the other threads continue.
    fn pass(&self, timeout: Duration) {
        let time = u64::try_from(timeout.as_micros()).unwrap();
        self.microseconds.fetch_add(time, SeqCst);
        thread::yield_now();
    }

    pub(crate) fn time(&self) -> Moment {
        Moment::ZERO + Duration::from_micros(self.microseconds.load(SeqCst))
    }

    pub(crate) fn arrive(&self) {
        let mut state = self.state.lock().unwrap();
        state.readable = true;
        state.look();
        self.changed.notify_all();
    }

    /// Returns what the descriptor is watched for.
    pub(crate) fn wanted(&self) -> Facts {
        self.state.lock().unwrap().wanted
    }

    pub(crate) fn read(&self) {
        self.take();
    }

    /// Reads all data. Returns false if there is none.
    pub(crate) fn take(&self) -> bool {
        std::mem::take(&mut self.state.lock().unwrap().readable)
    }
}

impl Reactor for Handle {
    fn name(&self) -> &'static str {
        "fake"
    }
    fn is_one_shot(&self) -> bool {
        self.0.is_one_shot
    }
    fn attach(&self, _descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Fault> {
        let until = if self.0.is_one_shot { None } else { Some(Until::Detached) };
        self.0.state.lock().unwrap().watch(name, wanted, until);
        self.0.changed.notify_all();
        Ok(())
    }
    fn adopt(&self, descriptor: Descriptor, name: u64, wanted: Facts) -> Result<(), Fault> {
        self.attach(descriptor, name, wanted)
    }
    fn want(
        &self,
        _descriptor: Descriptor,
        name: u64,
        wanted: Facts,
        until: Until,
    ) -> Result<(), Fault> {
        let until = if self.0.is_one_shot { until } else { Until::Detached };
        self.0.state.lock().unwrap().watch(name, wanted, Some(until));
        self.0.changed.notify_all();
        Ok(())
    }
    fn detach(&self, _descriptor: Descriptor) {}
    fn watches(&self, _descriptor: Descriptor) -> bool {
        true
    }
    fn poll(&self, edges: &mut Vec<Edge>, timeout: Option<Duration>) -> Result<bool, Fault> {
        edges.clear();
        let mut state = self.0.state.lock().unwrap();
        while timeout != Some(Duration::ZERO) && state.edges.is_empty() && !state.woken {
            if let Some(timeout) = timeout
                && self.0.tells
            {
                drop(state);
                self.0.pass(timeout);
                state = self.0.state.lock().unwrap();
                break;
            }
            state = self.0.changed.wait(state).unwrap();
        }
        let woken = std::mem::take(&mut state.woken);
        // Like the real kernel, it rechecks the recorded edges and reports what holds now.
        let readable = state.readable;
        state.edges.retain(|edge| readable || is_of_operation(edge));
        if state.edges.iter().any(|edge| !is_of_operation(edge)) {
            state.until = state.until.filter(|until| *until == Until::Detached);
        }
        edges.append(&mut state.edges);
        Ok(woken)
    }
    fn wake(&self) {
        self.0.state.lock().unwrap().woken = true;
        self.0.changed.notify_all();
    }
    fn probe(&self, probes: &mut [Probe]) -> Result<(), Fault> {
        let state = self.0.state.lock().unwrap();
        for probe in probes {
            probe.facts = if state.readable { Facts::IN } else { Facts::NONE };
        }
        Ok(())
    }
    fn unread(&self, _descriptor: Descriptor, _end: AtEnd) -> Option<usize> {
        None
    }
    fn is_own_end(&self, _descriptor: Descriptor) -> bool {
        false
    }
    fn was_connected(&self, _descriptor: Descriptor) -> bool {
        false
    }
    fn kind(&self, _descriptor: Descriptor) -> DescriptorKind {
        DescriptorKind::Stream
    }
    fn rebuild(&self, _live: &mut dyn Iterator<Item = Watch>) -> Result<(), Fault> {
        Ok(())
    }
}

/// The one descriptor carries no data, so every operation waits forever.
impl Sockets for Handle {
    fn make_nonblocking(&self, _descriptor: Descriptor) -> Result<(), Fault> {
        Ok(())
    }
    fn transport(&self, _descriptor: Descriptor) -> Transport {
        Transport::Messages
    }
    fn open_stream(&self, _address: &Address) -> Result<OwnedSource, Fault> {
        Err(Fault { kind: ErrorKind::Unsupported, code: None })
    }
    fn accept(&self, _descriptor: Descriptor) -> SocketAttempt<(OwnedSource, Option<Address>)> {
        SocketAttempt::Blocked
    }
    fn begin_connect(&self, _descriptor: Descriptor, _address: &Address) -> SocketAttempt<()> {
        SocketAttempt::Blocked
    }
    fn has_shut_reading(&self, _descriptor: Descriptor) -> bool {
        false
    }
    fn abandon_connect(&self, _descriptor: Descriptor) -> bool {
        true
    }
    fn end_connect(&self, _descriptor: Descriptor) -> SocketAttempt<()> {
        SocketAttempt::Blocked
    }
    fn receive(
        &self,
        _descriptor: Descriptor,
        _transport: Transport,
        _room: &mut [&mut [MaybeUninit<u8>]],
    ) -> SocketAttempt<Received> {
        SocketAttempt::Blocked
    }
    fn receive_from(
        &self,
        _descriptor: Descriptor,
        _transport: Transport,
        _room: &mut [&mut [MaybeUninit<u8>]],
    ) -> SocketAttempt<(Received, Option<Address>)> {
        SocketAttempt::Blocked
    }
    fn send(
        &self,
        _descriptor: Descriptor,
        _parts: &[&[u8]],
        _address: Option<&Address>,
    ) -> SocketAttempt<usize> {
        SocketAttempt::Blocked
    }
    fn socket_requests(&self) -> Option<&dyn Submit<SocketTarget>> {
        Some(self)
    }
}

impl Submit<SocketTarget> for Handle {
    fn prepare(&self) -> Result<(), Fault> {
        Ok(())
    }
    fn submit(&self, request: SocketRequest) {
        self.0.state.lock().unwrap().socket_requests.push(request);
    }
    fn flush(&self) {}
    /// Ends a pending request as cancelled. An edge reports it.
    fn cancel(&self, id: u64) -> Option<SocketRequest> {
        self.0.end_socket_request(|request| {
            let is_this = request.id == id;
            request.is_cancelled |= is_this;
            is_this
        });
        None
    }
    fn take_completed(&self, id: u64) -> Option<SocketRequest> {
        let mut state = self.0.state.lock().unwrap();
        let place = state.completed.iter().position(|request| request.id == id)?;
        Some(state.completed.remove(place))
    }
}

/// No model has a file, except those that act as the back end themselves.
impl Files for Handle {
    fn is_file(&self, _descriptor: Descriptor) -> bool {
        false
    }
    fn reads_now(&self, _descriptor: Descriptor) -> bool {
        false
    }
    fn read_now(
        &self,
        _descriptor: Descriptor,
        _position: u64,
        _room: &mut [&mut [MaybeUninit<u8>]],
    ) -> Now {
        Now::Never
    }
    fn file_ref(&self, descriptor: Descriptor) -> Result<Arc<dyn FileRef>, Fault> {
        Ok(Arc::new(File(descriptor)))
    }
    fn file_requests(&self) -> &dyn Submit<FileTarget> {
        self
    }
    fn files_name(&self) -> Option<&'static str> {
        None
    }
}

impl Submit<FileTarget> for Handle {
    fn prepare(&self) -> Result<(), Fault> {
        Ok(())
    }
    fn submit(&self, request: FileRequest) {
        self.0.state.lock().unwrap().file_requests.push(request);
    }
    fn flush(&self) {}
    fn cancel(&self, id: u64) -> Option<FileRequest> {
        let mut state = self.0.state.lock().unwrap();
        let place = state.file_requests.iter().position(|request| request.id == id)?;
        Some(state.file_requests.remove(place))
    }
}

struct File(Descriptor);

impl FileRef for File {
    fn descriptor(&self) -> Descriptor {
        self.0
    }
    fn has_positions(&self) -> bool {
        true
    }
}

impl Fake {
    /// Ends the first request for which `is_it` returns true. Returns false if there is none.
    pub(crate) fn end_socket_request(&self, is_it: impl FnMut(&mut SocketRequest) -> bool) -> bool {
        let mut state = self.state.lock().unwrap();
        let Some(place) = state.socket_requests.iter_mut().position(is_it) else { return false };
        let request = state.socket_requests.remove(place);
        state.edges.push(Edge { name: request.id, facts: Facts::NONE });
        state.completed.push(request);
        self.changed.notify_all();
        true
    }

    /// Returns the number of socket requests that the back end holds.
    pub(crate) fn socket_requests(&self) -> usize {
        let state = self.state.lock().unwrap();
        state.socket_requests.len() + state.completed.len()
    }

    /// Starts a submitted request that was not cancelled, and returns it.
    pub(crate) fn start_file_request(&self) -> Option<FileRequest> {
        self.state.lock().unwrap().file_requests.pop()
    }
}

impl Host for Handle {
    fn now(&self) -> Moment {
        self.0.time()
    }
    fn this_thread(&self) -> Box<dyn Thread> {
        Box::new(LoomThread {
            thread: thread::current().id(),
            unparked: loom::sync::Mutex::new(false),
            given: loom::sync::Condvar::new(),
            fake: Arc::clone(&self.0),
            observed: false.into(),
        })
    }
    fn can_observe(&self) -> Result<(), Fault> {
        if self.0.tells {
            return Ok(());
        }
        Err(Fault { kind: ErrorKind::Unsupported, code: None })
    }
    fn origin(&self) -> Origin {
        Origin::by_number()
    }
    fn descriptors(&self) -> &Descriptors {
        &self.0.descriptors
    }
}
