//! The state of each descriptor's number: its registration, the port on which its operations
//! complete, and what the socket calls of this library have learnt about it.
//!
//! The port knows registrations by ID, callers by number, and the system reuses a number after a
//! close. Each number has a lock, held while its registration is changed and taken before any lock
//! of a port. Entries never move and are never freed, so that a key can point to one. A forked
//! child has its own entries: its parent's may be locked forever, and describe the parent's ports.

use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::ffi::c_int;
use std::ops::RangeInclusive;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU16, AtomicU32, AtomicU64, Ordering::AcqRel, Ordering::Acquire,
    Ordering::Relaxed, Ordering::Release, Ordering::SeqCst,
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use completion_port::raw::{Hints, Side};
use completion_port::{Id, OpId, SharedId};
use libc::socklen_t;

use crate::linux::addresses::Few;
use crate::linux::choices::Chosen;
use crate::linux::descriptors;
use crate::linux::later::Later;
use crate::linux::process::Own;
use crate::linux::receiver::Receiver;
use crate::linux::spare_memory::SpareMemory;
use crate::requests::Terms;

/// The key of a registration, cloned for each packet before it is taken.
#[derive(Debug)]
pub(crate) struct Key {
    /// Returned in its packets; for a [`Line`], the entry of the number has it.
    pub(crate) word: usize,
    /// It is the key of a line.
    pub(crate) is_line: bool,
    pub(crate) number: &'static Number,
}

impl Clone for Key {
    fn clone(&self) -> Self {
        self.number.packets.fetch_add(1, AcqRel);
        Self { ..*self }
    }
}

/// A registration, as its number's entry stores it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Registered {
    /// The port's handle.
    pub(crate) port: u64,
    pub(crate) id: Id,
    /// If its last packet is queued, the [identity](descriptors::identity) of its socket: the port
    /// no longer watches that.
    pub(crate) removed: Option<u64>,
    /// The terms it was last enabled with, unless it was disabled since.
    pub(crate) terms: Option<Terms>,
    /// Returned in its packets.
    pub(crate) key: usize,
    /// It is also the registration of the number's [`Line`].
    pub(crate) is_on_line: bool,
    /// It is enabled once the operation for which the line was created has started: events that
    /// this operation consumes are not reported.
    pub(crate) is_held: bool,
}

/// An association, as its number's entry stores it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Associated {
    /// The handle of the port on which its operations complete, and their key.
    pub(crate) port: u64,
    pub(crate) key: usize,
    /// The [identity](descriptors::identity) of the associated socket.
    pub(crate) identity: u64,
}

/// Blocking mode of a socket: what the library and the program request.
#[derive(Debug, Default)]
struct Blocking {
    /// Number of operations that currently need the socket to be non-blocking. Until it is 0,
    /// requests of the program are only noted here.
    users: u32,
    /// One of them is an accept, which needs that permanently.
    is_listener: bool,
    /// The program has not requested non-blocking mode: to it, the socket blocks.
    is_unasked: bool,
    /// The minimum size of an address of the socket's family; 0 if not yet known.
    size_of_address: socklen_t,
    /// How often the number's meaning has changed.
    round: u32,
}

/// Not the name of any port of a program.
pub(crate) const NO_PORT: u64 = 0;

/// Where the operations of a number are performed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Line {
    /// The port's handle, or [`NO_PORT`] for the driver's own.
    pub(crate) port: u64,
    pub(crate) id: SharedId,
    /// It is a TCP stream, on which a short read means that no data remains.
    pub(crate) is_tcp: bool,
}

/// An operation in flight, as the entry of its number stores it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    /// The port that performs it, as in [`Line`], and its name there; `None` while it is being
    /// started, and of a receive that the number's [`Receiver`] carries out.
    pub(crate) port: u64,
    pub(crate) name: Option<OpId>,
    pub(crate) side: Side,
    /// The thread that has started it.
    pub(crate) thread: u64,
    /// Its name in an [`Acceptance`]; 0 if it is not an accept.
    pub(crate) accept: u64,
    /// A thread has cancelled it. Its name may be that of a finished part: it does not continue
    /// with another one.
    pub(crate) is_called_off: bool,
}

/// An accept whose connection is to replace a socket, as the entry of that socket's number stores
/// it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Acceptance {
    /// The listener's number, whose entry has the operation, and the address of its OVERLAPPED.
    pub(crate) listener: RawFd,
    pub(crate) overlapped: usize,
    /// Unique among the accepts of the process.
    pub(crate) name: u64,
}

/// Facts that the system reports once about a socket, and the socket calls each time.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Past {
    /// Its [identity](descriptors::identity); 0 if nothing is remembered.
    socket: u64,
    /// Its connection was reset.
    pub(crate) was_reset: bool,
    /// This process has shut down its sending half.
    pub(crate) has_shut: bool,
    /// A connect of it was refused.
    pub(crate) was_refused: bool,
    /// Its connect was still in progress when the call returned.
    pub(crate) is_connecting: bool,
}

/// When a socket was connected.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Connected {
    /// Its [identity](descriptors::identity); 0 if this library has connected it.
    socket: u64,
    since: Instant,
}

/// The current state of a number.
#[derive(Debug, Default)]
pub(crate) struct State {
    pub(crate) registered: Option<Registered>,
    pub(crate) associated: Option<Associated>,
    /// Shared by operations that began without an association, with the [identity](descriptors::identity) of their socket.
    later: Option<(u64, Arc<Later>)>,
    pub(crate) line: Option<Line>,
    /// By the addresses of their OVERLAPPEDs.
    pub(crate) operations: Few<InFlight>,
    /// Carries out receives, while there is one at a time.
    pub(crate) receiver: Option<Receiver>,
    /// Memory of finished operations, for reuse.
    pub(crate) spare_memory: SpareMemory,
    /// The accept whose connection is to replace the socket, until its end; also while it waits for
    /// first data.
    pub(crate) accept: Option<Acceptance>,
    /// The address of a connect's OVERLAPPED. The connect is in flight while `operations` has this
    /// address.
    connecting: Option<usize>,
    /// A socket that was disconnected for reuse: it may be connected without being bound.
    pub(crate) is_reused: bool,
    pub(crate) connected: Option<Connected>,
    /// The [identity](descriptors::identity) of a socket that a thread is closing: its registration
    /// and operations have ended, but the number still names it.
    closing: Option<u64>,
    /// The [identity](descriptors::identity) of a socket of this library that is known to be a TCP
    /// stream.
    pub(crate) tcp: Option<u64>,
    /// A waiting call that holds no lock will return to it, so its end must start a new epoch.
    is_revisited: bool,
    pub(crate) chosen: Chosen,
    past: Past,
}

impl State {
    /// Whether its line performs anything: the operations here, or an accept that waits for first
    /// data.
    pub(crate) fn is_in_use(&self) -> bool {
        !self.operations.is_empty() || self.accept.is_some()
    }

    /// From now on it is connected.
    pub(crate) fn begin_connection(&mut self) {
        self.connected = Some(Connected { socket: 0, since: Instant::now() });
    }

    /// How long `descriptor`, which is this number, has been connected. If this library has not
    /// connected it, the time since this was first asked. `is_vouched`: the number is known to name
    /// this library's socket.
    pub(crate) fn connected_for(&mut self, descriptor: RawFd, is_vouched: bool) -> Duration {
        let socket = if is_vouched { 0 } else { descriptors::identity(descriptor) };
        let begin = || Connected { socket, since: Instant::now() };
        let known = self.connected.filter(|known| known.socket == socket);
        self.connected.insert(known.unwrap_or_else(begin)).since.elapsed()
    }

    /// The calling thread will return to the number's current socket.
    pub(crate) fn revisit(&mut self) {
        self.is_revisited = true;
    }

    /// Returns where an operation on `descriptor`, which is this number, looks for a later association.
    pub(crate) fn later(&mut self, descriptor: RawFd) -> Arc<Later> {
        let begin = || (descriptors::identity(descriptor), Arc::default());
        Arc::clone(&self.later.get_or_insert_with(begin).1)
    }

    /// Detaches the operations that began without an association on the socket with this [identity](descriptors::identity).
    /// From now on they look only in the returned cell.
    pub(crate) fn take_later(&mut self, identity: u64) -> Option<Arc<Later>> {
        let (socket, later) = self.later.take()?;
        (socket == identity).then_some(later)
    }

    /// Whether a connect is in flight.
    pub(crate) fn is_connecting(&mut self) -> bool {
        // Everything that starts here calls this, so no other operation that reuses its OVERLAPPED
        // is mistaken for it.
        self.connecting = self.connecting.filter(|address| self.operations.contains(*address));
        self.connecting.is_some()
    }

    /// A connect starts with the OVERLAPPED at this address.
    pub(crate) fn begin_connect(&mut self, address: usize) {
        self.connecting = Some(address);
    }

    /// Whether a thread is about to close the socket of `descriptor`, which is this number: no
    /// operation starts on it any more.
    pub(crate) fn is_closing(&mut self, descriptor: RawFd) -> bool {
        if self.closing.is_none() {
            return false;
        }
        let is_it = self.closing == Some(descriptors::identity(descriptor));
        if !is_it {
            // The number has been reused meanwhile.
            self.closing = None;
        }
        is_it
    }

    /// The facts about the socket of `descriptor`, which is this number.
    pub(crate) fn past(&mut self, descriptor: RawFd) -> Past {
        if self.past.socket != 0 && self.past.socket != descriptors::identity(descriptor) {
            self.past = Past::default();
        }
        self.past
    }

    /// Adds a fact about the socket of `descriptor`, which is this number.
    pub(crate) fn remember(&mut self, descriptor: RawFd, note: impl FnOnce(&mut Past)) {
        self.remember_of(descriptors::identity(descriptor), note);
    }

    /// The same for the socket with this [identity](descriptors::identity).
    pub(crate) fn remember_of(&mut self, socket: u64, note: impl FnOnce(&mut Past)) {
        if self.past.socket != socket {
            self.past = Past { socket, ..Past::default() };
        }
        note(&mut self.past);
    }

    /// Discards the facts about its socket.
    pub(crate) fn forget_past(&mut self) {
        self.past = Past::default();
    }
}

/// The entry of one number.
#[derive(Debug)]
pub(crate) struct Number {
    state: Mutex<State>,
    /// How many packets of its registrations have been taken; 0 if none was ever made.
    packets: AtomicU64,
    /// A packet of the registration was taken since it was last enabled.
    is_reported: AtomicBool,
    /// The number of packets taken when a read, or a write, was found to block.
    read_drained: AtomicU64,
    write_full: AtomicU64,
    /// A call of this library has returned the number, and none has closed it since.
    is_given_out: AtomicBool,
    /// A stream of bytes, on which a short read means that no data remains.
    is_plain_stream: AtomicBool,
    /// Reads or writes on it may time out.
    has_time: AtomicBool,
    /// Changes whenever the number's meaning ends. Operations started before must not touch it any
    /// more.
    epoch: AtomicU32,
    /// Number of attempts at operations in progress.
    attempts: AtomicU32,
    /// Taken last of all locks, and held while the system's blocking mode is changed.
    blocking: Mutex<Blocking>,
    /// The options that the program has set: [`OPTIONS`] and so on.
    options: AtomicU16,
    /// The program has put another layer on its stream, with `TCP_ULP`: a short read has that
    /// layer's meaning.
    has_layer: AtomicBool,
    /// Its sending half is shut down or about to be: an end found by a receive may be a
    /// consequence.
    is_shut: AtomicBool,
}

/// The program has set options.
pub(crate) const OPTIONS: u16 = 1;
/// The program has set the size of the send or receive buffer. Otherwise the system chooses it.
pub(crate) const SEND_ROOM: u16 = 2;
pub(crate) const RECEIVE_ROOM: u16 = 4;
/// The socket has as much room for datagrams as the library requests, because a receive has been in flight.
pub(crate) const ROOM_FOR_DATAGRAMS: u16 = 8;
/// The program has shut down its reading half.
pub(crate) const READING_SHUT: u16 = 16;
/// The program has set how it lingers on close.
pub(crate) const LINGERS: u16 = 32;
/// A stream of IP that this library has created in blocking mode, and that is neither bound nor connected since.
pub(crate) const UNUSED: u16 = 64;
/// This library has seen the socket listen, and no shutdown since.
pub(crate) const LISTENS: u16 = 128;

/// Numbers in a chunk, and chunks in the table.
const CHUNK: usize = 512;
const CHUNKS: usize = 1 << 15;

type Chunk = [Number; CHUNK];

/// The entries of one process.
struct Table {
    chunks: [AtomicPtr<Chunk>; CHUNKS],
    /// The table of the parent process, of which only the atomics are read.
    parent: Option<&'static Self>,
}

static TABLE: Own<Table> = Own::new(begin_child);

extern "C" fn begin_child() {
    TABLE.pass_on();
}

impl Table {
    fn new(parent: Option<&'static Self>) -> Box<Self> {
        let layout = Layout::new::<Self>();
        // Large and hardly ever touched, so it uses zeroed memory of the system.
        // SAFETY: `alloc_zeroed` demands a layout that is not empty.
        // - it is that of many pointers.
        let place = unsafe { alloc_zeroed(layout) }.cast::<Self>();
        if place.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: `from_raw` demands a value of that type, allocated as a box would, that has no
        // other owner.
        // - a value: all-zero bits are null pointers and no parent;
        // - allocated so: by the global allocator, with the layout of the type;
        // - no other owner: it has just been allocated.
        let mut table = unsafe { Box::from_raw(place) };
        table.parent = parent;
        table
    }

    fn chunk(&self, place: usize) -> Option<&Chunk> {
        let chunk = self.chunks.get(place)?.load(Acquire);
        // SAFETY: `as_ref` demands null or a value that lives on and changes only as its type
        // allows.
        // - only `make` stores a non-null pointer here: to memory that it has leaked.
        unsafe { chunk.as_ref() }
    }

    fn find(&self, number: usize) -> Option<&Number> {
        self.chunk(number / CHUNK)?.get(number % CHUNK)
    }

    /// The numbers from `first` to `last` may name other sockets than those this library returned
    /// them for.
    fn doubt(&self, first: usize, last: usize) {
        for place in first / CHUNK..=(last / CHUNK).min(CHUNKS - 1) {
            let within = |number: usize| number.saturating_sub(place * CHUNK).min(CHUNK - 1);
            // If the chunk is just being created, none of its numbers has been returned.
            let numbers = self.chunk(place).and_then(|it| it.get(within(first)..=within(last)));
            numbers.into_iter().flatten().for_each(Number::doubt);
        }
    }

    /// The entry of a number, created if necessary; `None` if the number is too large.
    #[cold]
    fn make(&self, number: usize) -> Option<&Number> {
        let place = self.chunks.get(number / CHUNK)?;
        let new = |at| {
            let number = number / CHUNK * CHUNK + at;
            Number::new(self.parent.is_some_and(|parent| parent.has_time(number)))
        };
        let chunk: Box<[Number]> = (0..CHUNK).map(new).collect();
        let chunk: Box<Chunk> = chunk.try_into().ok()?;
        let chunk = Box::into_raw(chunk);
        if place.compare_exchange(ptr::null_mut(), chunk, AcqRel, Acquire).is_err() {
            // SAFETY: `from_raw` demands a pointer of `into_raw` that is used nowhere else.
            // - it was just created, and the exchange that would have published it has failed.
            drop(unsafe { Box::from_raw(chunk) });
        }
        self.find(number)
    }

    /// Whether reads or writes on a number may time out, according to this process or to the one it
    /// was forked from.
    fn has_time(&self, number: usize) -> bool {
        match (self.find(number), self.parent) {
            (Some(number), _) => number.has_time.load(Relaxed),
            (None, Some(parent)) => parent.has_time(number),
            (None, None) => false,
        }
    }
}

/// The entry of a number, if it or another number of its chunk was ever used.
pub(crate) fn find(descriptor: RawFd) -> Option<&'static Number> {
    TABLE.find()?.find(usize::try_from(descriptor).ok()?)
}

/// Whether a receive or an accept that finds nothing never will, because the program has shut down the reading half. The
/// system does not report that to a non-blocking attempt on a datagram socket or a local listener.
pub(crate) fn has_shut_reading(descriptor: RawFd) -> bool {
    let has_said = |number: &Number| number.options() & READING_SHUT != 0;
    find(descriptor).is_some_and(has_said) && descriptors::is_ended(descriptor)
}

/// The entry of a number; `None` if it is out of range.
pub(crate) fn entry(descriptor: RawFd) -> Option<&'static Number> {
    let number = usize::try_from(descriptor).ok()?;
    let table = TABLE.get(Table::new);
    table.find(number).or_else(|| table.make(number))
}

/// Whether reads or writes on a number may time out.
pub(crate) fn has_time(descriptor: RawFd) -> bool {
    let table = TABLE.find().or_else(|| TABLE.inherited());
    usize::try_from(descriptor).is_ok_and(|number| table.is_some_and(|it| it.has_time(number)))
}

impl Blocking {
    /// An operation needs the socket to be non-blocking. False if it is closed.
    fn begin(&mut self, descriptor: RawFd) -> bool {
        let Some(blocks) = descriptors::blocks(descriptor) else { return false };
        if self.users == 0 {
            self.is_unasked = false;
        }
        if blocks {
            // Also if another library's call has made it so.
            self.is_unasked = true;
            descriptors::set_blocking(descriptor, false);
        }
        self.users += 1;
        true
    }
}

impl Number {
    fn new(has_time: bool) -> Self {
        Self {
            state: Mutex::default(),
            packets: AtomicU64::new(0),
            is_reported: AtomicBool::new(false),
            read_drained: AtomicU64::new(0),
            write_full: AtomicU64::new(0),
            is_given_out: AtomicBool::new(false),
            is_plain_stream: AtomicBool::new(false),
            has_time: AtomicBool::new(has_time),
            epoch: AtomicU32::new(0),
            attempts: AtomicU32::new(0),
            blocking: Mutex::default(),
            options: AtomicU16::new(0),
            has_layer: AtomicBool::new(false),
            is_shut: AtomicBool::new(false),
        }
    }

    /// Its line is about to end: no attempt at an operation touches it any more.
    pub(crate) fn retire_line(&self, state: &mut State) {
        state.line = None;
        self.begin_epoch();
    }

    /// The current epoch of the number.
    pub(crate) fn epoch(&self) -> u32 {
        self.epoch.load(SeqCst)
    }

    /// Calls `f` with the number locked, if its meaning has not changed since `epoch`. No thread
    /// ends that meanwhile.
    pub(crate) fn if_current<R>(&self, epoch: u32, f: impl FnOnce(&mut State) -> R) -> Option<R> {
        let mut state = self.lock();
        (self.epoch() == epoch).then(|| f(&mut state))
    }

    /// Calls `attempt`, which does not block, if the number's meaning has not changed since
    /// `epoch`; otherwise returns `None`.
    pub(crate) fn in_epoch<R>(&self, epoch: u32, attempt: impl FnOnce() -> R) -> Option<R> {
        self.attempts.fetch_add(1, SeqCst);
        // The thread that ends it first changes the epoch, then checks the attempts.
        let outcome = (self.epoch() == epoch).then(attempt);
        self.attempts.fetch_sub(1, SeqCst);
        outcome
    }

    /// From here on no attempt touches the former socket. Waits for attempts in progress, which do
    /// not block, except for one that sends an uncached part of a file.
    #[allow(
        clippy::disallowed_methods,
        reason = "an attempt then waits for something that is \
                                                  not an event"
    )]
    pub(crate) fn begin_epoch(&self) {
        self.epoch.fetch_add(1, SeqCst);
        for _ in 0..1000 {
            if self.attempts.load(SeqCst) == 0 {
                return;
            }
            std::thread::yield_now();
        }
        while self.attempts.load(SeqCst) > 0 {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
    }

    fn blocking(&self) -> MutexGuard<'_, Blocking> {
        self.blocking.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From here on, accepts with an OVERLAPPED need the listener `descriptor`, which is this
    /// number, to be non-blocking. False if it is closed.
    pub(crate) fn need_nonblocking(&self, descriptor: RawFd, is_believed: bool) -> bool {
        let mut blocking = self.blocking();
        if is_believed && blocking.is_listener {
            return true;
        }
        if !blocking.begin(descriptor) {
            return false;
        }
        if std::mem::replace(&mut blocking.is_listener, true) {
            blocking.users -= 1;
        }
        true
    }

    /// The minimum size of an address of the socket `descriptor`, which is this number. Returns the last known size if that
    /// `is_believed`.
    pub(crate) fn size_of_address(&self, descriptor: RawFd, is_believed: bool) -> socklen_t {
        let (known, round) = {
            let blocking = self.blocking();
            (blocking.size_of_address, blocking.round)
        };
        if is_believed && known > 0 {
            return known;
        }
        let size = descriptors::size_of_address(descriptor);
        let mut blocking = self.blocking();
        // Otherwise the answer may concern a former socket.
        if blocking.round == round {
            blocking.size_of_address = size;
        }
        size
    }

    /// Calls `call` while the socket of `descriptor`, which is this number, is non-blocking.
    pub(crate) fn while_nonblocking<R>(&self, descriptor: RawFd, call: impl FnOnce() -> R) -> R {
        let round = {
            let mut blocking = self.blocking();
            blocking.begin(descriptor).then_some(blocking.round)
        };
        let outcome = call();
        if let Some(round) = round {
            let mut blocking = self.blocking();
            // Otherwise the number has another meaning.
            if blocking.round == round {
                blocking.users -= 1;
                if blocking.users == 0 && blocking.is_unasked {
                    descriptors::set_blocking(descriptor, true);
                }
            }
        }
        outcome
    }

    /// The program requests blocking or non-blocking mode. `tell` tells the system, unless this has
    /// to be deferred.
    pub(crate) fn ask_nonblocking(&self, wanted: bool, tell: impl FnOnce() -> c_int) -> c_int {
        let mut blocking = self.blocking();
        if blocking.users == 0 {
            return tell();
        }
        blocking.is_unasked = !wanted;
        0
    }

    /// Calls `call` while neither the program nor an operation changes the blocking mode.
    pub(crate) fn with_blocking_kept<R>(&self, call: impl FnOnce() -> R) -> R {
        let _blocking = self.blocking();
        call()
    }

    /// Whether it is a listener that blocks to the program, but not to the system.
    pub(crate) fn is_nonblocking_unasked(&self) -> bool {
        let blocking = self.blocking();
        blocking.is_listener && blocking.is_unasked
    }

    /// The program has set options of these kinds.
    pub(crate) fn set_options(&self, sorts: u16) {
        self.options.fetch_or(sorts, Relaxed);
    }

    /// Clears options of these kinds.
    pub(crate) fn clear_options(&self, sorts: u16) {
        self.options.fetch_and(!sorts, Relaxed);
    }

    /// The kinds of options that the program has set.
    pub(crate) fn options(&self) -> u16 {
        self.options.load(Relaxed)
    }

    pub(crate) fn has_layer(&self) -> bool {
        self.has_layer.load(Relaxed)
    }

    /// Whether the number is known to name what this library returned it for.
    pub(crate) fn is_vouched(&self) -> bool {
        self.is_given_out.load(Acquire)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The number of packets taken so far, for [`Number::read_drained`] and [`Number::write_full`];
    /// `None` if the number was never registered, so that no change will ask.
    pub(crate) fn packets(&self) -> Option<u64> {
        Some(self.packets.load(Acquire)).filter(|packets| *packets > 0)
    }

    /// Starts a registration, of a stream of bytes or something else, without any hints.
    pub(crate) fn begin(&self, is_plain_stream: bool) {
        self.packets.fetch_add(1, AcqRel);
        self.is_plain_stream.store(is_plain_stream && !self.has_layer(), Relaxed);
    }

    pub(crate) fn is_plain_stream(&self) -> bool {
        self.is_plain_stream.load(Relaxed)
    }

    /// A timeout was set for its reads or writes.
    pub(crate) fn set_time(&self) {
        self.has_time.store(true, Relaxed);
    }

    /// From here on its short reads have no meaning.
    pub(crate) fn put_layer(&self) {
        self.has_layer.store(true, Relaxed);
        self.is_plain_stream.store(false, Relaxed);
    }

    /// Calls `shut`, which shuts down the sending half of its socket and returns whether it has
    /// done so. From before the call on, a receive may find an end that is not a reset.
    pub(crate) fn while_shutting(&self, shut: impl FnOnce() -> bool) {
        let was_shut = self.is_shut.swap(true, SeqCst);
        if !shut() {
            self.is_shut.store(was_shut, SeqCst);
        }
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.is_shut.load(SeqCst)
    }

    /// A read that started after `packets` had been taken has left no data.
    pub(crate) fn read_drained(&self, packets: u64) {
        self.read_drained.store(packets, Release);
    }

    /// A write that started after `packets` had been taken has found no space.
    pub(crate) fn write_full(&self, packets: u64) {
        self.write_full.store(packets, Release);
    }

    /// Results of reads and writes since the last packet. None, unless this library has returned
    /// the number: a read may have been on another socket than the registered one.
    pub(crate) fn hints(&self) -> Hints {
        if !self.is_given_out.load(Acquire) {
            return Hints::default();
        }
        let packets = self.packets.load(Acquire);
        let is_since = |noted: &AtomicU64| noted.load(Acquire) == packets;
        Hints::new(is_since(&self.read_drained), is_since(&self.write_full))
    }

    /// A registration was enabled with these results: reads and writes must find them again next
    /// time.
    pub(crate) fn spend_hints(&self) {
        // No packet is taken before the registration starts, which counts as one.
        self.read_drained.store(0, Relaxed);
        self.write_full.store(0, Relaxed);
    }

    /// Cancels an accept in flight in this entry, and returns the operation that remains to be
    /// cancelled.
    pub(crate) fn call_off(&self, accept: Acceptance) -> Option<InFlight> {
        let mut state = self.lock();
        let operation = state.operations.get_mut(accept.overlapped)?;
        if operation.accept != accept.name {
            // It has ended, and another operation uses its OVERLAPPED.
            return None;
        }
        operation.is_called_off = true;
        Some(*operation)
    }

    /// Ends the number's registration and operations. Calls `end` with its former state while the
    /// number is locked.
    pub(crate) fn retire(&self, end: impl FnOnce(State)) {
        self.has_time.store(false, Relaxed);
        let mut state = self.lock();
        self.retire_locked(&mut state, end);
    }

    /// The same for a caller that has locked it.
    pub(crate) fn retire_locked<R>(&self, state: &mut State, end: impl FnOnce(State) -> R) -> R {
        let former = std::mem::take(state);
        self.options.store(0, Relaxed);
        self.has_layer.store(false, Relaxed);
        self.is_shut.store(false, Relaxed);
        if former.line.is_some() || former.is_revisited {
            self.begin_epoch();
        }
        // After the attempts: each leaves the socket in the mode that the program wants.
        {
            let mut blocking = self.blocking();
            *blocking = Blocking { round: blocking.round.wrapping_add(1), ..Blocking::default() };
        }
        end(former)
    }

    /// The same for a socket that the caller is about to close. False if another thread is already
    /// closing it.
    pub(crate) fn begin_close(
        &self,
        descriptor: RawFd,
        identity: u64,
        end: impl FnOnce(State),
    ) -> bool {
        self.has_time.store(false, Relaxed);
        let mut state = self.lock();
        if state.is_closing(descriptor) {
            return false;
        }
        self.retire_locked(&mut state, end);
        state.closing = Some(identity);
        true
    }

    /// The socket is closed. Forgets everything about it, unless this library has returned the
    /// number again.
    pub(crate) fn end_close(&self, identity: u64) {
        let mut state = self.lock();
        state.closing = state.closing.filter(|closing| *closing != identity);
    }

    /// A call of this library has just returned the number.
    pub(crate) fn vouch(&self) {
        self.is_given_out.store(true, Release);
    }

    /// The number may name another socket than the one this library returned it for.
    /// Async-signal-safe.
    pub(crate) fn doubt(&self) {
        self.is_given_out.store(false, Release);
    }

    /// A packet of its registration has been taken.
    pub(crate) fn note_report(&self) {
        self.is_reported.store(true, Relaxed);
    }

    /// Its registration is about to be enabled.
    pub(crate) fn begin_report(&self) {
        self.is_reported.store(false, Relaxed);
    }

    pub(crate) fn is_reported(&self) -> bool {
        self.is_reported.load(Relaxed)
    }

    /// The last packet of the registration `id` on `port` has been taken.
    pub(crate) fn end(&self, port: u64, id: Id) {
        let mut state = self.lock();
        if state.registered.is_some_and(|it| it.port == port && it.id == id) {
            state.registered = None;
        }
    }
}

/// These numbers may name other sockets than those this library returned them for.
/// Async-signal-safe.
pub(crate) fn doubt(descriptors: RangeInclusive<RawFd>) {
    let number = |descriptor: &RawFd| usize::try_from(*descriptor);
    if let Some(table) = TABLE.find()
        && let (Ok(first), Ok(last)) = (number(descriptors.start()), number(descriptors.end()))
    {
        table.doubt(first, last);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_doubted_from_the_first_to_the_last() {
        let table = Table::new(None);
        let numbers = [0, 1, CHUNK - 1, CHUNK, 3 * CHUNK + 5, 3 * CHUNK + 6];
        for number in numbers {
            table.find(number).or_else(|| table.make(number)).unwrap();
        }
        let doubted = |first, last| {
            for number in numbers {
                table.find(number).unwrap().is_given_out.store(true, Relaxed);
            }
            table.doubt(first, last);
            numbers.map(|number| !table.find(number).unwrap().is_given_out.load(Relaxed))
        };
        assert_eq!(doubted(1, 1), [false, true, false, false, false, false]);
        assert_eq!(doubted(1, CHUNK), [false, true, true, true, false, false]);
        assert_eq!(doubted(CHUNK, 3 * CHUNK + 5), [false, false, false, true, true, false]);
        assert_eq!(doubted(0, usize::MAX), [true; 6]);
        assert_eq!(doubted(CHUNK, 1), [false; 6], "it is no range");
        assert_eq!(doubted(7 * CHUNK, 9 * CHUNK), [false; 6], "there is nothing");
        assert_eq!(doubted(CHUNK * CHUNKS, usize::MAX), [false; 6], "it is beyond all");
    }

    #[test]
    fn a_child_knows_nothing_of_its_parents_numbers_but_their_times() {
        let parent: &Table = Box::leak(Table::new(None));
        let [plain, timed] = [3, CHUNK + 3];
        for number in [plain, timed] {
            assert!(parent.find(number).is_none());
            parent.make(number).unwrap();
        }
        parent.find(timed).unwrap().set_time();
        // Locked forever, as in a child.
        let _locked = [plain, timed].map(|number| parent.find(number).unwrap().lock());
        let child: &Table = Box::leak(Table::new(Some(parent)));
        for number in [plain, timed] {
            assert!(child.find(number).is_none());
            assert_eq!(child.has_time(number), number == timed);
            let own = child.make(number).unwrap();
            assert!(own.lock().registered.is_none());
            assert_eq!(child.has_time(number), number == timed);
        }
        assert!(child.make(CHUNK * CHUNKS).is_none(), "it is beyond all");
    }
}
