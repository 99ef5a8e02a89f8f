//! A simulated kernel with virtual time, for testing servers without sockets or clocks.
//!
//! A [`Kernel`] has streams, datagram sockets, listeners, pipes and counters. Towards each other,
//! and towards a port made by [`PortBuilder::build_simulated`], they behave like those of Linux:
//! when each is ready, what makes an edge, and what state an error leaves. The table
//! `tests/facts/linux.txt` records the behaviour of the real kernel, and the tests compare both
//! kernels with it.
//!
//! * A [`Socket`] is a [`Source`](crate::Source) for the ports of its kernel, and not a descriptor
//!   of the process. The kernel gives it the lowest free number, as Linux does, so numbers of
//!   closed sockets are reused. Only memory limits the number of sockets. All sockets are
//!   non-blocking. A stream or pipe holds at most [`SEND_BUFFER`] bytes that its peer has not read.
//! * Time is virtual. With the automatic clock, a wait that finds nothing moves the clock to its
//!   deadline and returns immediately. With the [manual clock](Kernel::manual_clock) it sleeps
//!   until an event arrives or [`Kernel::advance`] reaches its deadline. A wait without a limit
//!   always blocks in real time. Use the manual clock when several threads wait.
//! * A test scripts the failures: [`Kernel::fail_next_attach`], [`Kernel::fail_next_descriptor`],
//!   [`Kernel::fail_next_connect`], [`Kernel::fail_next_receive`], [`Kernel::fail_next_send`],
//!   [`Kernel::abort_next_accept`], [`Kernel::fail_next_file`], [`Kernel::set_thread_asleep`].
//! * A [file](Kernel::file) has bytes, and the test decides how many of them are in memory.
//!   [`Kernel::script_files`] decides when a file operation that cannot be done immediately ends:
//!   in the call that submits it, or when the test [releases it](Kernel::release_files).
//! * [`Kernel::calls`] counts the calls that ports make to the kernel.
//!
//! The simulation does not cover urgent data, descriptors sent over AF_UNIX sockets, and partly
//! filled kernel pages: a stream takes any number of bytes up to its buffer's size. Transmission
//! takes no time: data arrives as soon as it is sent.
//!
//! This module contains no unsafe code. It uses only memory, locks, the time and the process id of
//! the real system.
//!
//! [`PortBuilder::build_simulated`]: crate::PortBuilder::build_simulated
//!
//! # Examples
//!
//! ```
//! use std::time::Duration;
//! use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration, sim};
//!
//! let kernel = sim::Kernel::new();
//! let port: Port<&str> = Port::builder().build_simulated(&kernel)?;
//! let (ours, theirs) = kernel.tcp_pair()?;
//! port.register(Registration::new(&ours, "ours", Interest::IN, OneShot::Level))?;
//!
//! let mut batch = Batch::new();
//! // Nothing to read: an hour passes at once.
//! assert_eq!(port.wait(&mut batch, Duration::from_secs(3600))?.count(), 0);
//! assert_eq!(kernel.now(), Duration::from_secs(3600));
//!
//! theirs.write(b"hello")?;
//! let packet = port.wait(&mut batch, None)?.next();
//! assert!(matches!(packet, Some(Packet::Ready(ready)) if ready.events().is_in()));
//! # Ok::<(), std::io::Error>(())
//! ```

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::io;
use std::sync::{Arc, PoisonError};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::backend::Backend;
use crate::backend::request::FileRequest;
use crate::state::moment::Moment;
use crate::state::table::Descriptors;
use crate::sync::{Condvar, Mutex, MutexGuard};
use crate::sys::codes;
use crate::sys::portable::errors::fault_of_wait;
use crate::sys::portable::kqueue::Kqueue;
use crate::sys::portable::winsock_notifications::{Holders, WinsockNotifications};
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::fd::RawFd;
use crate::types::source::Descriptor;
use crate::types::source::{BorrowedSource, KernelId};

mod calls;
mod conditions;
mod datagram;
mod files;
mod kqueue;
mod numbers;
mod objects;
mod pipe;
mod reach;
mod set;
mod socket;
mod sockets;
mod stream;
#[cfg(test)]
mod tests;
mod watcher;
mod winsock_notifications;

pub use calls::Calls;
pub use conditions::Conditions;
pub use files::FileScript;
use files::FileState;
use kqueue::{SimulatedCalls, SimulatedKqueue};
use numbers::Numbers;
use objects::{Code, FileId, Object, Objects};
use set::{Set, Simulated, Sleeper, WakeCause};
pub use socket::{Address, Socket};
use stream::{Family, Stream};
pub use watcher::Watcher;
use winsock_notifications::SimulatedPort;

/// The number of bytes that a stream, or a datagram socket, can send before its peer reads.
pub const SEND_BUFFER: usize = 64 * 1024;

/// The kind of object that a descriptor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ObjectKind {
    /// A socket that carries a stream.
    Stream,
    /// A socket that carries datagrams.
    Datagram,
    /// Not a socket: a pipe or a counter.
    NoSocket,
}

/// The system interface by which ports watch the sockets of a simulated kernel.
///
/// With each of them, the sockets themselves behave as on Linux.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Mechanism {
    /// As on Linux.
    #[default]
    Epoll,
    /// As on macOS and the BSDs.
    Kqueue,
    /// As on Windows from build 20348 on.
    Notifications,
}

/// A simulated kernel. Clones refer to the same kernel.
///
/// Ports on different kernels share nothing, so tests can run in parallel.
///
/// # Threads
///
/// Every method may be called by any thread at any time.
#[derive(Clone)]
pub struct Kernel {
    shared: Arc<SharedKernel>,
}

struct SharedKernel {
    id: KernelId,
    state: Mutex<KernelState>,
    /// Signalled after an event that may end a sleep.
    changed: Condvar,
    /// Signalled when the number of sleeping threads may have changed.
    settled: Condvar,
    descriptors: Descriptors,
}

/// The state behind the kernel's only lock. The lock is a leaf: nothing calls the engine while
/// holding it.
#[derive(Default)]
struct KernelState {
    objects: Objects,
    numbers: Numbers,
    sets: BTreeMap<u64, Set>,
    queues: BTreeMap<u64, SimulatedKqueue>,
    notifiers: BTreeMap<u64, winsock_notifications::SimulatedCompletionPort>,
    holders: Arc<Holders>,
    /// The last number given to a set, a queue or a completion port.
    last_set: u64,
    mechanism: Mechanism,
    clock: Moment,
    manual: bool,
    calls: Calls,
    attach_failures: VecDeque<ErrorKind>,
    rebuild_failures: VecDeque<ErrorKind>,
    wait_refusal: Option<i32>,
    question_refusal: Option<i32>,
    descriptor_failures: usize,
    accept_aborts: usize,
    /// Failures scripted for the operations of ports.
    receive_failures: VecDeque<Code>,
    send_failures: VecDeque<Code>,
    connect_failures: VecDeque<Code>,
    /// The scripted answers, each with the time of the script.
    scripted_sleep: HashMap<ThreadId, (Option<bool>, Moment)>,
    /// Whether the system hides the threads' context switches.
    hides_switches: bool,
    sleepers: BTreeMap<u64, Sleeper>,
    last_sleeper: u64,
    files: FileState,
}

/// Converts the error code of a refused call into a fault.
fn refusal(code: Code) -> Fault {
    fault_of_wait(code, &[codes::EPERM], &[codes::ENOMEM])
}

impl KernelState {
    /// Returns the file that `descriptor` names now.
    fn file(&self, descriptor: Descriptor) -> Option<FileId> {
        self.numbers.file(descriptor)
    }

    fn add_set(&mut self) -> u64 {
        self.last_set += 1;
        self.sets.insert(self.last_set, Set::default());
        self.last_set
    }

    /// Removes a port and returns its requests.
    fn end_port(&mut self, port: u64) -> Vec<FileRequest> {
        self.sets.remove(&port);
        self.abandon_requests(port)
    }

    /// Takes the error with which the next registration must fail, if the script has one.
    fn next_attach_failure(&mut self) -> Option<Code> {
        self.attach_failures.pop_front().and_then(set::code_of)
    }

    /// Fails if the script refuses waits.
    fn check_wait(&self) -> Result<(), Fault> {
        self.wait_refusal.map_or(Ok(()), |code| Err(refusal(code)))
    }

    /// Fails if the script refuses queries for readiness.
    fn check_question(&self) -> Result<(), Fault> {
        self.question_refusal.map_or(Ok(()), |code| Err(refusal(code)))
    }

    /// Returns the end of a wait, or `None` if it has no limit or ends beyond the clock's range.
    fn deadline(&self, timeout: Option<Duration>) -> Option<Moment> {
        self.clock.checked_add(timeout?)
    }

    /// Reports pending changes to the sets that watch the objects.
    fn deliver(&mut self) {
        for file in self.objects.changes.take_joined() {
            for queue in self.queues.values_mut() {
                queue.notice(file, Conditions::OUT, &mut self.objects);
            }
            for port in self.notifiers.values_mut() {
                port.notice(file, Conditions::OUT, &mut self.objects);
            }
        }
        for (file, what) in self.objects.changes.take_woken() {
            for set in self.sets.values_mut() {
                set.notice(file, what);
            }
            for queue in self.queues.values_mut() {
                queue.notice(file, what, &mut self.objects);
            }
            for port in self.notifiers.values_mut() {
                port.notice(file, what, &mut self.objects);
            }
        }
    }

    /// Returns whether nothing would wake `sleeper`.
    fn is_sound(&self, sleeper: &Sleeper) -> bool {
        let due = self.manual && sleeper.until.is_some_and(|until| self.clock >= until);
        let called = match &sleeper.cause {
            WakeCause::Polled(set) => !self.sets.get(set).is_some_and(Set::is_idle),
            WakeCause::Queued(queue) => {
                !self.queues.get(queue).is_some_and(SimulatedKqueue::is_idle)
            }
            WakeCause::Notified(port) => !self
                .notifiers
                .get(port)
                .is_some_and(winsock_notifications::SimulatedCompletionPort::is_idle),
            WakeCause::Park(unparked) => unparked.load(std::sync::atomic::Ordering::Relaxed),
        };
        !due && !called
    }

    /// Returns whether `number` is the most recent sleeper on its set.
    ///
    /// True for a thread that does not sleep yet.
    fn is_next(&self, number: Option<u64>) -> bool {
        let Some(number) = number else { return true };
        let set_of = |sleeper: &Sleeper| match sleeper.cause {
            WakeCause::Polled(number) | WakeCause::Queued(number) | WakeCause::Notified(number) => {
                Some(number)
            }
            WakeCause::Park(_) => None,
        };
        let Some(set) = self.sleepers.get(&number).and_then(set_of) else { return true };
        self.sleepers.range(number + 1..).all(|(_, later)| set_of(later) != Some(set))
    }

    fn sleeping(&self) -> usize {
        self.sleepers.values().filter(|sleeper| self.is_sound(sleeper)).count()
    }

    fn sleeps(&self, thread: ThreadId) -> bool {
        self.sleepers.values().any(|it| it.thread == thread && self.is_sound(it))
    }

    /// Fails if the script says that no descriptor is available.
    fn check_numbers(&mut self) -> Result<(), Code> {
        if self.descriptor_failures > 0 {
            self.descriptor_failures -= 1;
            return Err(codes::EMFILE);
        }
        Ok(())
    }

    /// Gives the new file `file` its first descriptor.
    fn name(&mut self, file: FileId) -> Result<Descriptor, Code> {
        self.check_numbers()?;
        self.numbers.add(file).ok_or(codes::EMFILE)
    }

    /// Adds a descriptor to `file`.
    fn duplicate(&mut self, file: FileId) -> Result<Descriptor, Code> {
        self.check_numbers()?;
        self.numbers.add_duplicate(file).ok_or(codes::EMFILE)
    }

    /// Accepts a connection from the queue of `listener` and gives it a descriptor.
    ///
    /// If the script says that no descriptor is available, the connection stays in the queue.
    fn accept(&mut self, listener: FileId) -> Result<(FileId, Descriptor), Code> {
        self.check_numbers()?;
        let file = self.objects.accept(listener)?;
        if self.accept_aborts > 0 {
            self.accept_aborts -= 1;
            self.objects.close(file);
            return Err(codes::ECONNABORTED);
        }
        match self.numbers.add(file) {
            Some(number) => Ok((file, number)),
            None => {
                self.objects.close(file);
                Err(codes::EMFILE)
            }
        }
    }

    /// Closes a descriptor of `file`, and the file itself with its last descriptor.
    fn close(&mut self, number: Descriptor, file: FileId) {
        for queue in self.queues.values_mut() {
            queue.forget(number);
        }
        for port in self.notifiers.values_mut() {
            port.forget(number);
        }
        if self.numbers.remove(number, file) {
            for set in self.sets.values_mut() {
                set.forget(file);
            }
            self.objects.close(file);
        }
    }
}

impl Default for Kernel {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.lock();
        f.debug_struct("Kernel")
            .field("clock", &state.clock)
            .field("descriptors", &state.numbers.in_use())
            .field("ports", &state.sets.len())
            .field("sleeping", &state.sleeping())
            .field("calls", &state.calls)
            .finish_non_exhaustive()
    }
}

impl Kernel {
    /// Makes an empty kernel at time zero, with the automatic clock.
    #[must_use]
    pub fn new() -> Self {
        Self {
            shared: Arc::new(SharedKernel {
                id: KernelId::simulated(),
                state: Mutex::new(KernelState::default()),
                changed: Condvar::new(),
                settled: Condvar::new(),
                descriptors: Descriptors::new(),
            }),
        }
    }

    /// Makes the back end of a new port.
    pub(crate) fn backend(&self, is_one_shot: bool) -> Box<dyn Backend> {
        let mechanism = self.lock().mechanism;
        match mechanism {
            Mechanism::Epoll => Box::new(Simulated::new(self.clone(), is_one_shot)),
            Mechanism::Kqueue => Box::new(self.kqueue(false)),
            Mechanism::Notifications => {
                Box::new(WinsockNotifications::new(SimulatedPort::new(self.clone())))
            }
        }
    }

    /// Makes the kqueue back end of a port. With `lacks_triggers` the kernel has no user filter.
    fn kqueue(&self, lacks_triggers: bool) -> Kqueue<SimulatedCalls> {
        let calls = SimulatedCalls::new(self.clone(), lacks_triggers);
        Kqueue::new(calls).expect("a simulated kernel has no limit of queues")
    }

    fn lock(&self) -> MutexGuard<'_, KernelState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the identity that distinguishes the sockets of this kernel from those of others.
    pub(crate) fn id(&self) -> KernelId {
        self.shared.id
    }

    fn descriptors(&self) -> &Descriptors {
        &self.shared.descriptors
    }

    /// Ends a change: reports it to the watchers and wakes the sleepers if it concerns any of them.
    fn publish(&self, mut state: MutexGuard<'_, KernelState>) {
        state.deliver();
        if state.sleeping() < state.sleepers.len() {
            self.shared.changed.notify_all();
            self.shared.settled.notify_all();
        }
    }

    /// Sleeps until `ready` returns true or the clock reaches `until`.
    ///
    /// Of several threads that sleep on one set, only the most recent sleeper calls `ready`. Epoll
    /// wakes its waiters in the same order.
    fn sleep(
        &self,
        mut state: MutexGuard<'_, KernelState>,
        until: Option<Moment>,
        cause: WakeCause,
        mut ready: impl FnMut(&mut KernelState) -> bool,
    ) {
        let mut entry = None;
        let mut cause = Some(cause);
        while !(state.is_next(entry) && ready(&mut state)) {
            let until = match entry.and_then(|number| state.sleepers.get(&number)) {
                // Another thread may have changed the deadline.
                Some(sleeper) => sleeper.until,
                None => until,
            };
            match until {
                Some(until) if state.clock >= until => break,
                Some(until) if !state.manual => {
                    state.clock = until;
                    break;
                }
                _ => {}
            }
            if let Some(cause) = cause.take() {
                state.last_sleeper += 1;
                let number = state.last_sleeper;
                let sleeper = Sleeper { thread: thread::current().id(), until, cause };
                state.sleepers.insert(number, sleeper);
                entry = Some(number);
            }
            self.shared.settled.notify_all();
            state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        if let Some(number) = entry {
            state.sleepers.remove(&number);
            // The next sleeper may take the remaining events.
            self.shared.changed.notify_all();
        }
    }

    /// Sets the mechanism by which ports made from now on watch their sockets.
    pub fn watch_by(&self, mechanism: Mechanism) {
        self.lock().mechanism = mechanism;
    }

    /// Switches to the manual clock.
    ///
    /// A wait with a limit then sleeps until an event arrives or [`Kernel::advance`] reaches its
    /// deadline, instead of moving the clock itself.
    pub fn manual_clock(&self) {
        self.lock().manual = true;
    }

    /// Returns the virtual time since the kernel was made.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.lock().clock.since(Moment::ZERO)
    }

    /// Advances the clock by `time` and wakes the threads whose deadline it reaches.
    pub fn advance(&self, time: Duration) {
        let mut state = self.lock();
        state.clock += time;
        self.publish(state);
    }

    /// Returns how many threads sleep in the simulated kernel with no reason to wake.
    #[must_use]
    pub fn sleeping(&self) -> usize {
        self.lock().sleeping()
    }

    /// Waits until exactly `threads` threads sleep in the simulated kernel with no reason to wake.
    ///
    /// Returns false if that does not happen within `limit`, which is real time.
    ///
    /// # Waiting
    ///
    /// Blocks in real time, for at most `limit`.
    #[must_use]
    pub fn wait_for_sleepers(&self, threads: usize, limit: Duration) -> bool {
        let end = Instant::now() + limit;
        let mut state = self.lock();
        while state.sleeping() != threads {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let woken = self.shared.settled.wait_timeout(state, left);
            state = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
        true
    }

    /// Returns the counts of the calls that this kernel's ports have made so far.
    #[must_use]
    pub fn calls(&self) -> Calls {
        self.lock().calls
    }

    /// Returns the number of open simulated descriptors.
    #[must_use]
    pub fn open_descriptors(&self) -> usize {
        self.lock().numbers.in_use()
    }

    /// Returns the number of ports and [watchers](Watcher) on this kernel.
    #[must_use]
    pub fn ports(&self) -> usize {
        self.lock().sets.len()
    }

    /// Makes the next registration that the kernel would have accepted fail with `kind`.
    ///
    /// Examples are [`ErrorKind::WatchLimit`] and [`ErrorKind::OutOfMemory`].
    ///
    /// Several scripted failures apply in order.
    pub fn fail_next_attach(&self, kind: ErrorKind) {
        self.lock().attach_failures.push_back(kind);
    }

    /// Makes a port's next attempt to replace its set of watched descriptors fail with `kind`.
    pub fn fail_next_rebuild(&self, kind: ErrorKind) {
        self.lock().rebuild_failures.push_back(kind);
    }

    /// Makes every wait of a port for events fail with the system's error `code`.
    ///
    /// A sandbox that forbids the call has this effect.
    ///
    /// `None` ends this.
    pub fn refuse_waits(&self, code: Option<i32>) {
        self.lock().wait_refusal = code;
    }

    /// Makes every readiness query of a port fail with the system's error `code`.
    ///
    /// `None` ends this. Ports make no such queries with mechanisms that report an armed socket
    /// once.
    pub fn refuse_questions(&self, code: Option<i32>) {
        self.lock().question_refusal = code;
    }

    /// Makes the next accept, dup or new socket fail because no descriptor is available (`EMFILE`).
    ///
    /// A connection that could not be accepted stays in the listener's queue.
    pub fn fail_next_descriptor(&self) {
        self.lock().descriptor_failures += 1;
    }

    /// Makes the next accept find an aborted connection (`ECONNABORTED`) in the listener's queue.
    ///
    /// A port continues with the next connection.
    pub fn abort_next_accept(&self) {
        self.lock().accept_aborts += 1;
    }

    /// Makes the next connect that a port starts fail with the system's error `code`.
    ///
    /// The connect then has no effect.
    ///
    /// Several scripted failures apply in order. `EAGAIN` and `ENOBUFS` mean that the system is
    /// short of a resource, and the port tries again.
    pub fn fail_next_connect(&self, code: i32) {
        self.lock().connect_failures.push_back(code);
    }

    /// Makes the next receive that a port attempts fail with the system's error `code`.
    ///
    /// The receive then takes no data.
    ///
    /// Several scripted failures apply in order. `ENOMEM` means that the system is short of memory,
    /// and the port tries again. `ENOBUFS` means that messages were lost.
    ///
    /// A port also attempts receives that then have to wait. After `EAGAIN` it waits as if no data
    /// had arrived, for an edge that may never come.
    pub fn fail_next_receive(&self, code: i32) {
        self.lock().receive_failures.push_back(code);
    }

    /// Makes the next send that a port attempts fail with the system's error `code`.
    ///
    /// The send then sends no data.
    ///
    /// Several scripted failures apply in order. `ENOMEM` and `ENOBUFS` mean that the system is
    /// short of memory, and the port tries again.
    pub fn fail_next_send(&self, code: i32) {
        self.lock().send_failures.push_back(code);
    }

    /// Sets the answer to a port that asks whether `thread` sleeps in the kernel.
    ///
    /// `None` means that the system does not report it. Without a script, a thread counts as asleep
    /// while it waits on a port of this kernel.
    pub fn set_thread_asleep(&self, thread: ThreadId, asleep: impl Into<Option<bool>>) {
        let mut state = self.lock();
        let now = state.clock;
        state.scripted_sleep.insert(thread, (asleep.into(), now));
    }

    /// Sets whether the system hides when threads go to sleep.
    ///
    /// A port made meanwhile cannot use
    /// [`BlockDetection::Switches`](crate::BlockDetection::Switches).
    pub fn hide_switches(&self, hidden: bool) {
        self.lock().hides_switches = hidden;
    }

    /// Returns what holds of `socket` now, as `poll(2)` would.
    #[must_use]
    pub fn facts(&self, socket: &Socket) -> Conditions {
        let mut state = self.lock();
        state.objects.conditions(socket.file())
    }

    /// Returns the number of bytes that can be read from `socket`, as the ioctl `FIONREAD` would.
    ///
    /// Returns `None` where the ioctl is not supported.
    #[must_use]
    pub fn unread(&self, socket: &Socket) -> Option<usize> {
        self.lock().objects.unread(socket.file())
    }

    /// Returns the kind of object that `socket` is, as `SO_TYPE` would.
    #[must_use]
    pub fn kind(&self, socket: &Socket) -> ObjectKind {
        self.lock().objects.kind(socket.file())
    }

    /// Returns the state of the connection of `socket`, as `TCP_INFO` would.
    ///
    /// The numbers are those of Linux's `tcp_states.h`. Returns `None` if the socket is not TCP.
    #[must_use]
    pub fn tcp_state(&self, socket: &Socket) -> Option<u8> {
        self.lock().objects.tcp_state(socket.file())
    }

    /// Makes a set of watched descriptors that reports edges without a port.
    #[must_use]
    pub fn watcher(&self) -> Watcher {
        Watcher::new(self)
    }

    /// Makes a descriptor for `file`. On failure the file is closed.
    fn adopt(&self, file: FileId) -> io::Result<Socket> {
        let mut state = self.lock();
        let named = state.name(file);
        if named.is_err() {
            state.objects.close(file);
        }
        self.publish(state);
        let number = named.map_err(io::Error::from_raw_os_error)?;
        Ok(Socket::new(self.clone(), file, number))
    }

    fn adopt_both(&self, (first, second): (FileId, FileId)) -> io::Result<(Socket, Socket)> {
        let first = self.adopt(first);
        let second = self.adopt(second);
        Ok((first?, second?))
    }

    fn adopt_new(&self, object: Object) -> io::Result<Socket> {
        let file = self.lock().objects.add(object);
        self.adopt(file)
    }

    /// Makes two connected TCP sockets.
    ///
    /// # Errors
    ///
    /// `EMFILE` if no descriptor is available. Usually only [`Kernel::fail_next_descriptor`] causes
    /// this. The same applies to all methods that make sockets.
    pub fn tcp_pair(&self) -> io::Result<(Socket, Socket)> {
        let pair = self.lock().objects.add_stream_pair(Family::Tcp);
        self.adopt_both(pair)
    }

    /// Makes a TCP socket that is not connected.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn tcp_fresh(&self) -> io::Result<Socket> {
        self.adopt_new(Object::Stream(Stream::fresh(Family::Tcp)))
    }

    /// Makes a TCP listener that queues one connection more than `backlog`, as on Linux.
    ///
    /// A client that connects while the queue is full is connected when there is room.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn tcp_listener(&self, backlog: usize) -> io::Result<Socket> {
        self.adopt_new(Object::Stream(Stream::listening(Family::Tcp, backlog)))
    }

    /// Makes a UDP socket that has an address and is not connected.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn udp_bound(&self) -> io::Result<Socket> {
        self.adopt_new(Object::Datagrams(datagram::Datagrams::new(Family::Tcp)))
    }

    /// Makes two UDP sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn udp_pair(&self) -> io::Result<(Socket, Socket)> {
        let pair = self.lock().objects.add_datagram_pair(Family::Tcp);
        self.adopt_both(pair)
    }

    /// Makes two connected AF_UNIX streams.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn unix_pair(&self) -> io::Result<(Socket, Socket)> {
        let pair = self.lock().objects.add_stream_pair(Family::Unix);
        self.adopt_both(pair)
    }

    /// Makes an AF_UNIX stream that is not connected.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn unix_fresh(&self) -> io::Result<Socket> {
        self.adopt_new(Object::Stream(Stream::fresh(Family::Unix)))
    }

    /// Makes an AF_UNIX listener that queues one connection more than `backlog`.
    ///
    /// A client that connects while the queue is full gets `EAGAIN`.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn unix_listener(&self, backlog: usize) -> io::Result<Socket> {
        self.adopt_new(Object::Stream(Stream::listening(Family::Unix, backlog)))
    }

    /// Makes two AF_UNIX datagram sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn unix_datagram_pair(&self) -> io::Result<(Socket, Socket)> {
        let pair = self.lock().objects.add_datagram_pair(Family::Unix);
        self.adopt_both(pair)
    }

    /// Makes a pipe and returns its reading and its writing end.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn pipe(&self) -> io::Result<(Socket, Socket)> {
        let pair = self.lock().objects.add_pipe();
        self.adopt_both(pair)
    }

    /// Makes a counter like that of `eventfd(2)`.
    ///
    /// A write adds eight bytes in the machine's byte order, and a read takes the sum.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn event(&self) -> io::Result<Socket> {
        self.adopt_new(Object::Counter(pipe::Counter::default()))
    }

    /// Makes an empty regular file. Ports cannot watch it.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn regular_file(&self) -> io::Result<Socket> {
        self.file(&[])
    }

    /// Borrows a number at this kernel, whether it is open or not.
    ///
    /// It serves to test what a port does with a number that was closed.
    #[must_use]
    pub fn borrow_number(&self, number: RawFd) -> BorrowedSource<'static> {
        BorrowedSource::new(self.id(), number)
    }

    /// Returns an address at which no socket will ever listen.
    #[must_use]
    pub fn unused_address(&self) -> Address {
        Address::new(self.lock().objects.reserve())
    }
}
