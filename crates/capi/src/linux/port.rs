//! A port of the C library: keys and messages are numbers, and packets are written to the caller's
//! array.

use std::ffi::c_void;
use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    Ordering::SeqCst,
};

use completion_port::raw::{Attempt, Ending, Side, Task};
use completion_port::{Buffer, Id, Notified, OpId, Packet, Port, SharedId};

use crate::abi::{Entry, Overlapped, event, trigger};
use crate::errors::code_of;
use crate::linux::numbers::{Key, Number};
use crate::linux::receiver::ReceiverPort;
use crate::taking::{Queue, bits_of, entry_of_socket, with_waiter};

/// Three posted values, or the result of an operation with its status.
pub(crate) struct Message {
    bytes: u32,
    status: u32,
    key: usize,
    overlapped: usize,
    /// Set if it is the last packet of a registration: the number and ID of that.
    removed: Option<(&'static Number, Id)>,
}

/// An operation, as seen by the port that performs it.
pub(crate) trait PortOperation: Send {
    /// Tries it without blocking.
    fn attempt(&mut self, descriptor: RawFd) -> Attempt;

    /// Whether its first attempt is made without waiting for readiness.
    fn begins_unasked(&self) -> bool;

    /// It has ended in flight.
    fn end(self: Box<Self>, ending: Ending);

    /// It has ended at its first attempt. A packet reports a success if it `has_packet`.
    fn conclude(self: Box<Self>, has_packet: bool, told: Told) -> Begun;

    /// It was refused.
    fn withdraw(self: Box<Self>);
}

/// Where a call stores the result of an operation that ends immediately.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// Null, or the location of the number of bytes.
    pub(crate) bytes: *mut u32,
    /// Null, or the location of the flags.
    pub(crate) flags: *mut u32,
}

impl Told {
    /// For a call that stores no result.
    pub(crate) const NOTHING: Self = Self::bytes(std::ptr::null_mut());

    pub(crate) const fn bytes(bytes: *mut u32) -> Self {
        Self { bytes, flags: std::ptr::null_mut() }
    }

    /// Stores only the number of bytes.
    pub(crate) fn write_bytes(self, bytes: u32) {
        Self { flags: std::ptr::null_mut(), ..self }.write(Outcome { bytes, ..Outcome::default() });
    }

    pub(crate) fn write(self, outcome: Outcome) {
        for (place, number) in [(self.bytes, outcome.bytes), (self.flags, outcome.flags)] {
            if !place.is_null() {
                // SAFETY: writing through a raw pointer demands that it is valid.
                // - it is not null, and the caller of `start` guarantees it; that call has not
                //   returned, and nothing has reported the end to the program yet.
                unsafe { place.write(number) };
            }
        }
    }
}

/// The outcome of a call that starts an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Begun {
    /// It has succeeded.
    Done,
    /// It is in progress.
    Pending,
    /// The call returns the same, but the operation has ended, and its packet, if any, is queued.
    Reported,
    /// It has failed immediately, with this status: only the call reports it.
    Failed(u32),
    /// The same with this Winsock code, which has no status.
    Refused(u32),
}

/// The result of an operation, in the system's terms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// 0 if it has succeeded.
    pub(crate) errno: i32,
    pub(crate) bytes: u32,
    /// `MSG_PARTIAL` and the like.
    pub(crate) flags: u32,
    /// The socket is a TCP stream, on which a short read means that no data remains.
    pub(crate) is_tcp: bool,
}

/// An operation in flight.
pub(crate) struct BoxedOperation(pub(crate) Box<dyn PortOperation>);

// SAFETY: there is no room: the memory belongs to the program, and only the operation accesses it.
unsafe impl Buffer for BoxedOperation {
    fn filled<'b>(&'b self, _: &mut dyn FnMut(&'b [u8])) {}
    unsafe fn room<'b>(&'b mut self, _: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {}
    unsafe fn set_filled(&mut self, _: usize) {}
}

impl Task for BoxedOperation {
    fn attempt(&mut self, descriptor: RawFd) -> Attempt {
        self.0.attempt(descriptor)
    }

    fn begins_unasked(&self) -> bool {
        self.0.begins_unasked()
    }

    fn end(self, ending: Ending) {
        self.0.end(ending);
    }
}

/// Counts a wait of a thread, above the number of waiting threads.
const WAIT: u64 = 1 << 32;

/// A port, and the number of its handle.
pub(crate) struct CompletionPort {
    name: u64,
    is_closed: AtomicBool,
    /// The number of threads that are in a wait on it, and in the upper half, how often one has
    /// begun a wait.
    waits: AtomicU64,
    /// How often one had begun a wait when the driver last looked. Only the driver touches it.
    waits_seen: AtomicU64,
    /// The number of operations in flight, and whether there may ever have been any. A thread
    /// counts an operation only once it is in flight, so another thread may have counted its end
    /// before.
    in_flight: AtomicIsize,
    has_had_operations: AtomicBool,
    /// The driver thread looks after it.
    pub(crate) is_watched: AtomicBool,
    /// Called with the key of an operation's packet: with true before it is queued, with false if
    /// that was refused.
    pub(crate) counts: OnceLock<fn(usize, bool)>,
    port: Port<Key, Message, BoxedOperation>,
}

impl Deref for CompletionPort {
    type Target = Port<Key, Message, BoxedOperation>;
    fn deref(&self) -> &Self::Target {
        &self.port
    }
}

impl CompletionPort {
    pub(crate) fn new(name: u64, concurrency: usize) -> Result<Self, u32> {
        let port = Port::builder().buffers::<BoxedOperation>().concurrency(concurrency).build();
        Ok(Self {
            name,
            is_closed: AtomicBool::new(false),
            waits: AtomicU64::new(0),
            waits_seen: AtomicU64::new(0),
            in_flight: AtomicIsize::new(0),
            has_had_operations: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            counts: OnceLock::new(),
            port: port.map_err(code_of)?,
        })
    }

    /// A thread starts to wait on it.
    pub(crate) fn come(&self) {
        self.waits.fetch_add(WAIT | 1, SeqCst);
    }

    /// A waiting thread leaves it. Returns true if it was the last one and the driver must check:
    /// operations are in flight, or the driver is asleep and considers the port attended.
    pub(crate) fn leave(&self) -> bool {
        let was_last = self.waits.fetch_sub(1, SeqCst) % WAIT == 1;
        was_last && (self.has_operations() || self.is_watched.load(SeqCst))
    }

    /// Whether no thread waits on it to perform its operations.
    pub(crate) fn is_unattended(&self) -> bool {
        self.waits.load(SeqCst).is_multiple_of(WAIT)
    }

    /// Whether no thread waits on it, and none has since the last call. Only the driver calls this.
    pub(crate) fn is_left_alone(&self) -> bool {
        let waits = self.waits.load(SeqCst);
        self.waits_seen.swap(waits, Relaxed) == waits && waits.is_multiple_of(WAIT)
    }

    /// Whether it performs any operation. A thread that has started one without counting it checks
    /// afterwards whether the port is watched.
    pub(crate) fn has_operations(&self) -> bool {
        self.in_flight.load(SeqCst) > 0
    }

    /// An operation is about to start here.
    pub(crate) fn expect_operations(&self) {
        // Written once: all threads read its neighbours.
        if !self.has_had_operations.load(Relaxed) {
            self.has_had_operations.store(true, Relaxed);
        }
    }

    /// Counts an operation in flight.
    pub(crate) fn begin_operation(&self) {
        self.in_flight.fetch_add(1, SeqCst);
    }

    /// It has ended.
    pub(crate) fn end_operation(&self) {
        self.in_flight.fetch_sub(1, SeqCst);
    }

    /// Its handle is closed. Waiting threads hold shares of the port; the last one to leave drops
    /// it.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Release);
        if !self.port.raw().is_forked() {
            // Operations in flight end without packets, including any that another thread is just
            // starting.
            self.port.close();
            self.port.raw().run_deferred();
        }
        self.port.raw().abandon();
    }

    /// Whether its handle has not been closed.
    pub(crate) fn is_open(&self) -> bool {
        !self.is_closed.load(Acquire)
    }

    /// The number of its handle.
    pub(crate) fn name(&self) -> u64 {
        self.name
    }

    /// Queues a packet of three values.
    pub(crate) fn post_words(
        &self,
        bytes: u32,
        key: usize,
        overlapped: *mut c_void,
    ) -> Result<(), u32> {
        let overlapped = overlapped.expose_provenance();
        let message = Message { bytes, status: 0, key, overlapped, removed: None };
        self.port.post(message).map_err(|refused| code_of(refused.error()))
    }

    /// Queues the packet of an operation, which has ended with this status.
    pub(crate) fn post_end(
        &self,
        bytes: u32,
        key: usize,
        overlapped: *mut c_void,
        status: u32,
    ) -> Result<(), u32> {
        let overlapped = overlapped.expose_provenance();
        let message = Message { bytes, status, key, overlapped, removed: None };
        let counts = self.counts.get();
        if let Some(count) = counts {
            count(key, true);
        }
        let posted = self.port.raw().post_found(message);
        if let (Some(count), Err(_)) = (counts, &posted) {
            count(key, false);
        }
        posted.map_err(|refused| code_of(refused.error()))
    }

    /// Queues the last packet of a registration that continues for operations.
    pub(crate) fn post_removal(
        &self,
        key: usize,
        number: &'static Number,
        id: Id,
    ) -> Result<(), u32> {
        let (bytes, removed) = (event::REMOVE.into(), Some((number, id)));
        let message = Message { bytes, status: 0, key, overlapped: 0, removed };
        self.port.post(message).map_err(|refused| code_of(refused.error()))
    }

    /// The key of a readiness packet; `None` if it is not for the caller.
    fn key_of(&self, notified: &Notified<Key>) -> Option<usize> {
        let Key { word, is_line, number } = *notified.key();
        if !is_line {
            number.note_report();
            return Some(word);
        }
        // A registration shared with operations is persistent for the port.
        let state = number.lock();
        let registered = state.registered.filter(|it| it.id == notified.id())?;
        let terms = registered.terms?;
        if terms.triggers & trigger::ONE_SHOT != 0 {
            if registered.removed.is_some() || number.is_reported() {
                return None;
            }
            // It may have ended meanwhile.
            let _ = self.port.disable(registered.id);
        }
        number.note_report();
        Some(registered.key)
    }

    /// Whether a packet is queued, without taking it.
    pub(crate) fn is_ready(&self) -> Result<bool, u32> {
        with_waiter(1, |waiter| self.port.raw().has_packets(&mut waiter.batch)).map_err(code_of)
    }

    /// Performs its operations, if no thread is waiting in the kernel for it. Takes no packets.
    pub(crate) fn drive(&self) {
        // The port was closed meanwhile: its operations have ended.
        let _ = with_waiter(1, |waiter| self.port.raw().drive(&mut waiter.batch));
    }
}

impl fmt::Debug for CompletionPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CompletionPort").field("name", &self.name).finish_non_exhaustive()
    }
}

impl ReceiverPort for CompletionPort {
    fn begin_operation(&self) {
        self.begin_operation();
    }

    fn end_operation(&self) {
        self.end_operation();
    }

    fn is_watched(&self) -> bool {
        self.is_watched.load(SeqCst)
    }

    fn send(&self, line: SharedId, attempt: &mut dyn FnMut(RawFd) -> Attempt) -> bool {
        self.port.raw().try_exclusively(line, Side::Out, attempt)
    }

    fn is_drained_by_short_read(&self, line: SharedId) -> bool {
        self.port.is_drained_by_short_read(line.id())
    }

    fn post_ended(&self, bytes: u32, key: usize, overlapped: NonNull<Overlapped>, status: u32) {
        let _ = self.post_end(bytes, key, overlapped.as_ptr().cast(), status);
    }

    fn cancel_task(&self, task: OpId) {
        let _ = self.port.cancel(task);
        self.port.raw().run_deferred();
    }
}

impl Queue for CompletionPort {
    type Key = Key;
    type Message = Message;
    type Buffer = BoxedOperation;

    fn port(&self) -> &Port<Key, Message, BoxedOperation> {
        &self.port
    }

    fn name(&self) -> u64 {
        self.name
    }

    fn is_open(&self) -> bool {
        self.is_open()
    }

    /// Only if operations and notifications of a socket meet.
    fn has_had_what_is_for_none(&self) -> bool {
        self.has_had_operations.load(Relaxed)
    }

    fn entry(&self, packet: Packet<'_, Key, Message, BoxedOperation>) -> Option<Entry> {
        match packet {
            Packet::Notified(notified) => {
                Some(entry_of_socket(self.key_of(&notified)?, bits_of(notified.events())))
            }
            Packet::Removed(id, key) => {
                key.number.end(self.name, id);
                Some(entry_of_socket(key.word, event::REMOVE.into()))
            }
            Packet::Posted(Message { key, removed: Some((number, id)), .. }) => {
                number.end(self.name, id);
                Some(entry_of_socket(key, event::REMOVE.into()))
            }
            Packet::Posted(message) => Some(Entry {
                key: message.key,
                overlapped: std::ptr::with_exposed_provenance_mut(message.overlapped),
                internal: message.status as usize,
                bytes: message.bytes,
            }),
            // A wait that clones keys brings no tokens.
            _ => None,
        }
    }
}
