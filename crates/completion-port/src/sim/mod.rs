//! A simulated kernel with virtual time, to test servers without sockets and clocks.
//!
//! A [`Kernel`] has streams, datagram sockets, listeners, pipes and counters that behave towards
//! each other, and towards a port made by [`PortBuilder::build_simulated`], as those of Linux do:
//! what is ready when, what makes an edge and what does not, what an error leaves behind. The
//! recorded facts of the real kernel are a table, `tests/facts/linux.txt`, and both kernels are
//! tested against it.
//!
//! * A [`Socket`] is a [`Source`](crate::Source) for the ports of its kernel, and not a descriptor of the
//!   process. The kernel gives it a number: the lowest one that is free, as Linux does. So a number that
//!   was closed is given out again, and how many sockets there are is limited by memory alone. All
//!   sockets are non-blocking. A stream or pipe holds at most [`SEND_BUFFER`] bytes that its peer has
//!   not read.
//! * Time is virtual. With the automatic clock a wait that finds nothing moves the clock to its
//!   deadline and returns at once; with the [manual clock](Kernel::manual_clock) it sleeps until
//!   something comes or [`Kernel::advance`] reaches its deadline. A wait without a limit always
//!   blocks in real time. Use the manual clock when several threads wait.
//! * What goes wrong is scripted: [`Kernel::fail_next_attach`], [`Kernel::fail_next_descriptor`],
//!   [`Kernel::fail_next_connect`], [`Kernel::fail_next_receive`], [`Kernel::fail_next_send`],
//!   [`Kernel::abort_next_accept`], [`Kernel::fail_next_file`], [`Kernel::set_thread_asleep`].
//! * A [file](Kernel::file) has bytes, of which as many as a test says are in memory. Operations on files that cannot
//!   be done at once end as [`Kernel::script_files`] says: at once, or when they are
//!   [told to](Kernel::release_files).
//! * [`Kernel::calls`] counts what a port asked of the kernel.
//!
//! Not simulated are urgent data, descriptors sent over AF_UNIX sockets, and partly filled kernel
//! pages: a stream takes any number of bytes up to its buffer's size. Nothing takes time on the
//! way: what is sent has arrived.
//!
//! Nothing in this module is unsafe code, and nothing in it asks the system for more than memory, locks,
//! the time and the number of the process.
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
use std::ops::{BitAnd, BitOr, BitOrAssign};
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
pub use files::FileScript;
use files::FileState;
use kqueue::{SimulatedCalls, SimulatedKqueue};
use numbers::Numbers;
use objects::{Code, FileId, Object, Objects};
use set::{Cause, Set, Simulated, Sleeper};
pub use socket::{Address, Socket};
use stream::{Family, Stream};
pub use watcher::Watcher;
use winsock_notifications::SimulatedPort;

/// How many bytes a stream can send, or how much its datagrams may weigh, before its peer reads.
pub const SEND_BUFFER: usize = 64 * 1024;

/// What holds of an object at one moment, with the numbers of `poll(2)` and `epoll_ctl(2)`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Conditions(u32);

impl Conditions {
    /// Nothing.
    pub const NONE: Self = Self(0);
    /// A read or an accept would not block.
    pub const IN: Self = Self(0x1);
    /// A write would not block.
    pub const OUT: Self = Self(0x4);
    /// An error is pending.
    pub const ERR: Self = Self(0x8);
    /// Both halves are shut, or a stream is not connected.
    pub const HUP: Self = Self(0x10);
    /// The peer has shut its writing half.
    pub const RDHUP: Self = Self(0x2000);

    /// The set in the numbers of `poll(2)`.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `other` is in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Conditions {
    type Output = Self;
    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl BitAnd for Conditions {
    type Output = Self;
    fn bitand(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }
}

impl BitOrAssign for Conditions {
    fn bitor_assign(&mut self, other: Self) {
        self.0 |= other.0;
    }
}

impl fmt::Debug for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = [
            (Self::IN, "IN"),
            (Self::OUT, "OUT"),
            (Self::RDHUP, "RDHUP"),
            (Self::HUP, "HUP"),
            (Self::ERR, "ERR"),
        ];
        let mut first = true;
        for (condition, name) in names {
            if self.contains(condition) {
                f.write_str(if first { "" } else { "|" })?;
                f.write_str(name)?;
                first = false;
            }
        }
        if first { f.write_str("NONE") } else { Ok(()) }
    }
}

/// What kind of object a descriptor names.
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

/// By which calls ports watch the sockets of a simulated kernel: those of the systems that there are back ends for.
/// The sockets themselves behave as on Linux in either case.
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

/// A simulated kernel. A clone is the same kernel.
///
/// Ports on different kernels know nothing of each other, so tests may run in parallel.
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
    /// Something happened that may end a sleep.
    changed: Condvar,
    /// The number of threads that sleep may have changed.
    settled: Condvar,
    descriptors: Descriptors,
}

/// Everything behind the one lock, which is a leaf: nothing of the engine is called with it held.
#[derive(Default)]
struct KernelState {
    objects: Objects,
    numbers: Numbers,
    sets: BTreeMap<u64, Set>,
    queues: BTreeMap<u64, SimulatedKqueue>,
    notifiers: BTreeMap<u64, winsock_notifications::SimulatedCompletionPort>,
    holders: Arc<Holders>,
    /// The number that was last given to a set or a queue.
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
    /// Of the operations of ports.
    receive_failures: VecDeque<Code>,
    send_failures: VecDeque<Code>,
    connect_failures: VecDeque<Code>,
    /// What was scripted, and when.
    scripted_sleep: HashMap<ThreadId, (Option<bool>, Moment)>,
    /// Whether threads cannot be observed.
    hides_switches: bool,
    sleepers: BTreeMap<u64, Sleeper>,
    last_sleeper: u64,
    files: FileState,
}

/// The fault of a failed call that a wait makes.
fn refusal(code: Code) -> Fault {
    fault_of_wait(code, &[codes::EPERM], &[codes::ENOMEM])
}

impl KernelState {
    /// The file that `descriptor` names now.
    fn file(&self, descriptor: Descriptor) -> Option<FileId> {
        self.numbers.file(descriptor)
    }

    fn add_set(&mut self) -> u64 {
        self.last_set += 1;
        self.sets.insert(self.last_set, Set::default());
        self.last_set
    }

    /// A port is gone. Its requests are the caller's.
    fn end_port(&mut self, port: u64) -> Vec<FileRequest> {
        self.sets.remove(&port);
        self.abandon_requests(port)
    }

    /// Why the next registration is to fail, if it is.
    fn next_attach_failure(&mut self) -> Option<Code> {
        self.attach_failures.pop_front().and_then(set::code_of)
    }

    /// Whether a port may ask what there is.
    fn check_wait(&self) -> Result<(), Fault> {
        self.wait_refusal.map_or(Ok(()), |code| Err(refusal(code)))
    }

    /// Whether a port may ask what holds.
    fn check_question(&self) -> Result<(), Fault> {
        self.question_refusal.map_or(Ok(()), |code| Err(refusal(code)))
    }

    /// The end of a wait; `None` for one that lasts for ever, or beyond what the clock can show.
    fn deadline(&self, timeout: Option<Duration>) -> Option<Moment> {
        self.clock.checked_add(timeout?)
    }

    /// Hands what happened to the sets that watch it.
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

    /// Whether there is nothing that would wake `sleeper`.
    fn is_sound(&self, sleeper: &Sleeper) -> bool {
        let due = self.manual && sleeper.until.is_some_and(|until| self.clock >= until);
        let called = match &sleeper.cause {
            Cause::Polled(set) => !self.sets.get(set).is_some_and(Set::is_idle),
            Cause::Queued(queue) => !self.queues.get(queue).is_some_and(SimulatedKqueue::is_idle),
            Cause::Notified(port) => !self
                .notifiers
                .get(port)
                .is_some_and(winsock_notifications::SimulatedCompletionPort::is_idle),
            Cause::Park(unparked) => unparked.load(std::sync::atomic::Ordering::Relaxed),
        };
        !due && !called
    }

    /// Whether sleeper `number` is the one that came last of those that sleep for its set. True of
    /// a thread that does not sleep yet.
    fn is_next(&self, number: Option<u64>) -> bool {
        let Some(number) = number else { return true };
        let set_of = |sleeper: &Sleeper| match sleeper.cause {
            Cause::Polled(number) | Cause::Queued(number) | Cause::Notified(number) => Some(number),
            Cause::Park(_) => None,
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

    /// Refuses a new number if the script says that there is none left.
    fn check_numbers(&mut self) -> Result<(), Code> {
        if self.descriptor_failures > 0 {
            self.descriptor_failures -= 1;
            return Err(codes::EMFILE);
        }
        Ok(())
    }

    /// A number for `file`, which is new.
    fn name(&mut self, file: FileId) -> Result<Descriptor, Code> {
        self.check_numbers()?;
        self.numbers.add(file).ok_or(codes::EMFILE)
    }

    /// One more number for `file`, which has one.
    fn duplicate(&mut self, file: FileId) -> Result<Descriptor, Code> {
        self.check_numbers()?;
        self.numbers.add_duplicate(file).ok_or(codes::EMFILE)
    }

    /// A connection from the queue of `listener`, and a number for it. The connection stays in the queue
    /// if the script says that there is no number left.
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

    /// Closes a number of `file`, and the file with its last one.
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
    /// A kernel with nothing in it, at time zero, with the automatic clock.
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

    /// The back end of one more port.
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

    /// The back end of a port that uses a kqueue, of a kernel that perhaps lacks one of its filters.
    fn kqueue(&self, lacks_triggers: bool) -> Kqueue<SimulatedCalls> {
        let calls = SimulatedCalls::new(self.clone(), lacks_triggers);
        Kqueue::new(calls).expect("a simulated kernel has no limit of queues")
    }

    fn lock(&self) -> MutexGuard<'_, KernelState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What tells its sockets from those of other kernels.
    pub(crate) fn id(&self) -> KernelId {
        self.shared.id
    }

    fn descriptors(&self) -> &Descriptors {
        &self.shared.descriptors
    }

    /// Ends a change: watchers hear of it, and sleepers look again if there is something for one of them.
    fn publish(&self, mut state: MutexGuard<'_, KernelState>) {
        state.deliver();
        if state.sleeping() < state.sleepers.len() {
            self.shared.changed.notify_all();
            self.shared.settled.notify_all();
        }
    }

    /// Sleeps until `ready` says so or the clock shows `until`. Of several that sleep for one set's sake
    /// only the one that came last is asked, as epoll does it.
    fn sleep(
        &self,
        mut state: MutexGuard<'_, KernelState>,
        until: Option<Moment>,
        cause: Cause,
        mut ready: impl FnMut(&mut KernelState) -> bool,
    ) {
        let mut entry = None;
        let mut cause = Some(cause);
        while !(state.is_next(entry) && ready(&mut state)) {
            let until = match entry.and_then(|number| state.sleepers.get(&number)) {
                // Another thread may have moved it.
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
            // The next one's turn, if there is something left.
            self.shared.changed.notify_all();
        }
    }

    /// Has ports that are made from now on watch their sockets in another way.
    pub fn watch_by(&self, mechanism: Mechanism) {
        self.lock().mechanism = mechanism;
    }

    /// Makes a wait with a limit sleep until something comes or [`Kernel::advance`] reaches its
    /// deadline, instead of moving the clock itself.
    pub fn manual_clock(&self) {
        self.lock().manual = true;
    }

    /// The virtual time since the kernel was made.
    #[must_use]
    pub fn now(&self) -> Duration {
        self.lock().clock.since(Moment::ZERO)
    }

    /// Lets `time` pass. Threads whose deadline is reached get up.
    pub fn advance(&self, time: Duration) {
        let mut state = self.lock();
        state.clock += time;
        self.publish(state);
    }

    /// How many threads sleep in the simulated kernel and have nothing to get up for.
    #[must_use]
    pub fn sleeping(&self) -> usize {
        self.lock().sleeping()
    }

    /// Waits until exactly `threads` threads sleep in the simulated kernel with nothing to get up
    /// for; false if that does not happen within `limit`, which is real time.
    ///
    /// # Waiting
    ///
    /// Really blocks, for at most `limit`.
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

    /// What the ports of this kernel have asked of it so far.
    #[must_use]
    pub fn calls(&self) -> Calls {
        self.lock().calls
    }

    /// How many simulated descriptors are open.
    #[must_use]
    pub fn open_descriptors(&self) -> usize {
        self.lock().numbers.in_use()
    }

    /// How many ports, and [watchers](Watcher), there are on this kernel.
    #[must_use]
    pub fn ports(&self) -> usize {
        self.lock().sets.len()
    }

    /// Makes the next registration that the kernel would have accepted fail with `kind`:
    /// [`ErrorKind::WatchLimit`] or [`ErrorKind::OutOfMemory`], say. Several are used up in order.
    pub fn fail_next_attach(&self, kind: ErrorKind) {
        self.lock().attach_failures.push_back(kind);
    }

    /// Makes the next attempt of a port to replace its set of watched descriptors fail with `kind`.
    pub fn fail_next_rebuild(&self, kind: ErrorKind) {
        self.lock().rebuild_failures.push_back(kind);
    }

    /// From now on each call by which a thread asks for what its port watches fails with an error code of the system
    /// (`None`: no longer), as in a sandbox that forbids it.
    pub fn refuse_waits(&self, code: Option<i32>) {
        self.lock().wait_refusal = code;
    }

    /// The same for each call by which a port asks what holds of its sockets. Mechanisms that arm a socket for one report
    /// at a time have none.
    pub fn refuse_questions(&self, code: Option<i32>) {
        self.lock().question_refusal = code;
    }

    /// Makes the next accept, dup or new socket fail for want of a descriptor (`EMFILE`). A
    /// connection that could not be accepted stays in the listener's queue.
    pub fn fail_next_descriptor(&self) {
        self.lock().descriptor_failures += 1;
    }

    /// Makes the next accept find that the connection at the front of the listener's queue was given up
    /// (`ECONNABORTED`). A port goes on to the one behind it.
    pub fn abort_next_accept(&self) {
        self.lock().accept_aborts += 1;
    }

    /// Makes the next connect that a port begins fail with an error code of the system, before it has done
    /// anything. Several are used up in order. With `EAGAIN` or `ENOBUFS` the system is short of something,
    /// and the port tries again.
    pub fn fail_next_connect(&self, code: i32) {
        self.lock().connect_failures.push_back(code);
    }

    /// Makes the next receive that a port tries fail with an error code of the system, before it has taken
    /// anything. Several are used up in order. With `ENOMEM` the system is short of memory, and
    /// the port tries again; `ENOBUFS` says that messages were lost.
    ///
    /// A port also tries what then has to wait. With `EAGAIN` it waits as if nothing had come, and for an edge
    /// that may never come.
    pub fn fail_next_receive(&self, code: i32) {
        self.lock().receive_failures.push_back(code);
    }

    /// The same for the next send that a port tries. With `ENOBUFS` the system is short of memory, too.
    pub fn fail_next_send(&self, code: i32) {
        self.lock().send_failures.push_back(code);
    }

    /// Sets the answer to a port that asks whether `thread` sleeps in the kernel; `None` means that
    /// the system does not tell. Without such a script, a thread sleeps while it waits on a port of
    /// this kernel.
    pub fn set_thread_asleep(&self, thread: ThreadId, asleep: impl Into<Option<bool>>) {
        let mut state = self.lock();
        let now = state.clock;
        state.scripted_sleep.insert(thread, (asleep.into(), now));
    }

    /// Whether ports that are made from now on find that the system keeps no records of when threads
    /// go to sleep ([`BlockDetection::Switches`](crate::BlockDetection::Switches)).
    pub fn hide_switches(&self, hidden: bool) {
        self.lock().hides_switches = hidden;
    }

    /// What holds of `socket` now: what `poll(2)` would say.
    #[must_use]
    pub fn facts(&self, socket: &Socket) -> Conditions {
        let mut state = self.lock();
        state.objects.conditions(socket.file())
    }

    /// How many bytes can be read from `socket`: what the ioctl `FIONREAD` would say; `None` where
    /// it is not supported.
    #[must_use]
    pub fn unread(&self, socket: &Socket) -> Option<usize> {
        self.lock().objects.unread(socket.file())
    }

    /// What kind of object `socket` is: what `SO_TYPE` would say.
    #[must_use]
    pub fn kind(&self, socket: &Socket) -> ObjectKind {
        self.lock().objects.kind(socket.file())
    }

    /// The state of the connection of `socket`, by the numbers of Linux's `tcp_states.h`: what
    /// `TCP_INFO` would say. `None` of what is not TCP.
    #[must_use]
    pub fn tcp_state(&self, socket: &Socket) -> Option<u8> {
        self.lock().objects.tcp_state(socket.file())
    }

    /// A set of watched descriptors to look at edges with, without a port.
    #[must_use]
    pub fn watcher(&self) -> Watcher {
        Watcher::new(self)
    }

    /// Makes a descriptor for `file`. If there is none left, the file ends.
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

    /// Two connected TCP sockets.
    ///
    /// # Errors
    ///
    /// There is no number left, which only [`Kernel::fail_next_descriptor`] brings about as a rule. The
    /// same holds for all methods that make sockets.
    pub fn tcp_pair(&self) -> io::Result<(Socket, Socket)> {
        let pair = self.lock().objects.add_stream_pair(Family::Tcp);
        self.adopt_both(pair)
    }

    /// A TCP socket that is not connected.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn tcp_fresh(&self) -> io::Result<Socket> {
        self.adopt_new(Object::Stream(Stream::fresh(Family::Tcp)))
    }

    /// A TCP listener that, as on Linux, queues one connection more than `backlog`. A client that
    /// connects when the queue is full is connected when there is room.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn tcp_listener(&self, backlog: usize) -> io::Result<Socket> {
        self.adopt_new(Object::Stream(Stream::listening(Family::Tcp, backlog)))
    }

    /// A UDP socket that has an address and is not connected.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn udp_bound(&self) -> io::Result<Socket> {
        self.adopt_new(Object::Datagrams(datagram::Datagrams::new(Family::Tcp)))
    }

    /// Two UDP sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn udp_pair(&self) -> io::Result<(Socket, Socket)> {
        let pair = self.lock().objects.add_datagram_pair(Family::Tcp);
        self.adopt_both(pair)
    }

    /// Two connected AF_UNIX streams.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn unix_pair(&self) -> io::Result<(Socket, Socket)> {
        let pair = self.lock().objects.add_stream_pair(Family::Unix);
        self.adopt_both(pair)
    }

    /// An AF_UNIX stream that is not connected.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn unix_fresh(&self) -> io::Result<Socket> {
        self.adopt_new(Object::Stream(Stream::fresh(Family::Unix)))
    }

    /// An AF_UNIX listener that queues one connection more than `backlog`. A client that connects
    /// when the queue is full gets an error that says to try again.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn unix_listener(&self, backlog: usize) -> io::Result<Socket> {
        self.adopt_new(Object::Stream(Stream::listening(Family::Unix, backlog)))
    }

    /// Two AF_UNIX datagram sockets that are connected to each other.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn unix_datagram_pair(&self) -> io::Result<(Socket, Socket)> {
        let pair = self.lock().objects.add_datagram_pair(Family::Unix);
        self.adopt_both(pair)
    }

    /// The reading and the writing end of a pipe.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn pipe(&self) -> io::Result<(Socket, Socket)> {
        let pair = self.lock().objects.add_pipe();
        self.adopt_both(pair)
    }

    /// A counter as of `eventfd(2)`: a write adds eight bytes in the machine's order, a read takes
    /// the sum.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn event(&self) -> io::Result<Socket> {
        self.adopt_new(Object::Counter(pipe::Counter::default()))
    }

    /// A regular file with nothing in it, which no port can watch.
    ///
    /// # Errors
    ///
    /// As for [`Kernel::tcp_pair`].
    pub fn regular_file(&self) -> io::Result<Socket> {
        self.file(&[])
    }

    /// What has this number at this kernel, be it open or not: to test what a port makes of a number that
    /// was closed.
    #[must_use]
    pub fn borrow_number(&self, number: RawFd) -> BorrowedSource<'static> {
        BorrowedSource::new(self.id(), number)
    }

    /// An address at which no socket will ever listen.
    #[must_use]
    pub fn unused_address(&self) -> Address {
        Address::new(self.lock().objects.reserve())
    }
}
