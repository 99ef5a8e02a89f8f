//! A port as the C library has it: keys and messages are words, packets are written into the caller's array.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ops::Deref;
use std::os::fd::RawFd;
use std::sync::OnceLock;
use std::sync::atomic::{
    AtomicBool, AtomicIsize, AtomicUsize, Ordering::Acquire, Ordering::Relaxed, Ordering::Release,
    Ordering::SeqCst,
};

use completion_port::raw::{Attempt, Ending, Task};
use completion_port::{Buffer, Id, Notified, Packet, Port};

use crate::abi::{Entry, event, trigger};
use crate::errors::code_of;
use crate::linux::numbers::{Key, Number};
use crate::taking::{Queue, bits_of, entry_of_socket, with_waiter};

/// Three words that were posted, or that tell of an operation; and how that has ended.
pub(crate) struct Message {
    bytes: u32,
    status: u32,
    key: usize,
    overlapped: usize,
    /// It is the last packet of a registration, and this one's number.
    removed: Option<(&'static Number, Id)>,
}

/// What an operation is to the port that carries it out.
pub(crate) trait Errand: Send {
    /// Tries it, without waiting.
    fn attempt(&mut self, descriptor: RawFd) -> Attempt;

    /// Whether its first attempt is made without waiting for readiness.
    fn begins_unasked(&self) -> bool;

    /// It has ended in flight.
    fn end(self: Box<Self>, ending: Ending);

    /// It has ended at its first attempt. A packet tells of its success if it `has_packet`.
    fn conclude(self: Box<Self>, has_packet: bool, told: Told) -> Begun;

    /// It was refused.
    fn withdraw(self: Box<Self>);
}

/// Where a call that ends its operation at once tells what it has come to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Told {
    /// Null, or where the count of bytes is wanted.
    pub(crate) bytes: *mut u32,
    /// Null, or where the flags are wanted.
    pub(crate) flags: *mut u32,
}

impl Told {
    /// Of a call that tells nothing.
    pub(crate) const NOTHING: Self = Self::bytes(std::ptr::null_mut());

    pub(crate) const fn bytes(bytes: *mut u32) -> Self {
        Self { bytes, flags: std::ptr::null_mut() }
    }

    /// Tells the count of bytes alone.
    pub(crate) fn write_bytes(self, bytes: u32) {
        Self { flags: std::ptr::null_mut(), ..self }.write(Outcome { bytes, ..Outcome::default() });
    }

    pub(crate) fn write(self, outcome: Outcome) {
        for (place, number) in [(self.bytes, outcome.bytes), (self.flags, outcome.flags)] {
            if !place.is_null() {
                // SAFETY: writing through a raw pointer demands that it is valid.
                // - it is not null, and the caller of `start` says so; that call has not returned, and nothing has told
                //   the program yet that the operation is over.
                unsafe { place.write(number) };
            }
        }
    }
}

/// What has become of a call that starts an operation.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Begun {
    /// It has ended well.
    Done,
    /// It goes on.
    Pending,
    /// It has failed at once, with this status: nothing tells of it but the call.
    Failed(u32),
    /// The same with this Winsock code, which has no status.
    Refused(u32),
}

/// What an operation has come to, in the system's words.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// 0 if it has succeeded.
    pub(crate) errno: i32,
    pub(crate) bytes: u32,
    /// `MSG_PARTIAL` and the like.
    pub(crate) flags: u32,
    /// The socket is a TCP stream, of which a short read has left nothing.
    pub(crate) is_tcp: bool,
}

/// An operation in flight.
pub(crate) struct Flight(pub(crate) Box<dyn Errand>);

// SAFETY: there is no room: the memory of an operation is the program's, and the operation knows it itself.
unsafe impl Buffer for Flight {
    fn filled<'b>(&'b self, _: &mut dyn FnMut(&'b [u8])) {}
    unsafe fn room<'b>(&'b mut self, _: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {}
    unsafe fn set_filled(&mut self, _: usize) {}
}

impl Task for Flight {
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

/// A port, and the number of its handle.
pub(crate) struct CompletionPort {
    name: u64,
    is_closed: AtomicBool,
    /// Threads that are in a wait on it.
    waiting: AtomicUsize,
    /// Operations in flight, and whether there may ever have been any. The thread that begins one counts it when it is
    /// in flight already: for that moment another thread may have counted its end before.
    aloft: AtomicIsize,
    has_had_flights: AtomicBool,
    /// The driver thread looks after it.
    pub(crate) is_watched: AtomicBool,
    /// What is told of the packets of operations, by their keys, when one is about to be queued: true; and when that was
    /// refused: false.
    pub(crate) counts: OnceLock<fn(usize, bool)>,
    port: Port<Key, Message, Flight>,
}

impl Deref for CompletionPort {
    type Target = Port<Key, Message, Flight>;
    fn deref(&self) -> &Self::Target {
        &self.port
    }
}

impl CompletionPort {
    pub(crate) fn new(name: u64, concurrency: usize) -> Result<Self, u32> {
        let port = Port::builder().buffers::<Flight>().concurrency(concurrency).build();
        Ok(Self {
            name,
            is_closed: AtomicBool::new(false),
            waiting: AtomicUsize::new(0),
            aloft: AtomicIsize::new(0),
            has_had_flights: AtomicBool::new(false),
            is_watched: AtomicBool::new(false),
            counts: OnceLock::new(),
            port: port.map_err(code_of)?,
        })
    }

    /// A thread comes to wait on it.
    pub(crate) fn come(&self) {
        self.waiting.fetch_add(1, SeqCst);
    }

    /// A thread that has waited leaves it. True if it was the last one, and the driver is to look: operations are in
    /// flight, or the driver sleeps and takes the port for one that it sees to.
    pub(crate) fn leave(&self) -> bool {
        let was_last = self.waiting.fetch_sub(1, SeqCst) == 1;
        was_last && (self.has_flights() || self.is_watched.load(SeqCst))
    }

    /// Whether no thread waits on it, so that none sees to its operations.
    pub(crate) fn is_unattended(&self) -> bool {
        self.waiting.load(SeqCst) == 0
    }

    /// Whether it carries out any operation. A thread that has begun one, and has not counted it, looks whether the port
    /// is watched when it has.
    pub(crate) fn has_flights(&self) -> bool {
        self.aloft.load(SeqCst) > 0
    }

    /// An operation is about to begin here.
    pub(crate) fn expect_flights(&self) {
        // Written once: all threads read what lies beside it.
        if !self.has_had_flights.load(Relaxed) {
            self.has_had_flights.store(true, Relaxed);
        }
    }

    /// An operation goes on here.
    pub(crate) fn begin_flight(&self) {
        self.aloft.fetch_add(1, SeqCst);
    }

    /// It has ended.
    pub(crate) fn end_flight(&self) {
        self.aloft.fetch_sub(1, SeqCst);
    }

    /// Its handle is closed: threads that wait on it have their share of it, and it is gone when the
    /// last of them has left.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Release);
        if !self.port.raw().is_forked() {
            // What is in flight ends, also what another thread is just starting, and no packet tells of it.
            self.port.close();
            self.port.raw().go_on();
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

    /// Queues a packet of three words.
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

    /// Queues the last packet of a registration that goes on without it, for operations.
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

    /// The key of a packet of readiness; none if it is not for the caller.
    fn key_of(&self, notified: &Notified<Key>) -> Option<usize> {
        let Key { word, is_line, number } = *notified.key();
        if !is_line {
            number.note_report();
            return Some(word);
        }
        // A registration that has operations beside is persistent to the port.
        let state = number.lock();
        let registered = state.registered.filter(|it| it.id == notified.id())?;
        let terms = registered.terms?;
        if terms.triggers & trigger::ONE_SHOT != 0 {
            if registered.removed.is_some() || number.is_reported() {
                return None;
            }
            // It was ended meanwhile: as good.
            let _ = self.port.disable(registered.id);
        }
        number.note_report();
        Some(registered.key)
    }

    /// Whether a packet is queued, which is left there.
    pub(crate) fn is_ready(&self) -> Result<bool, u32> {
        with_waiter(1, |waiter| self.port.raw().has_packets(&mut waiter.batch)).map_err(code_of)
    }

    /// Sees to its operations, if no thread is in the kernel's wait there. Takes nothing.
    pub(crate) fn drive(&self) {
        // Closed meanwhile: its operations have ended.
        let _ = with_waiter(1, |waiter| self.port.raw().drive(&mut waiter.batch));
    }
}

impl Queue for CompletionPort {
    type Key = Key;
    type Message = Message;
    type Buffer = Flight;

    fn port(&self) -> &Port<Key, Message, Flight> {
        &self.port
    }

    fn name(&self) -> u64 {
        self.name
    }

    fn is_open(&self) -> bool {
        self.is_open()
    }

    /// Only where operations and reports of one socket come together.
    fn has_had_what_is_for_none(&self) -> bool {
        self.has_had_flights.load(Relaxed)
    }

    fn entry(&self, packet: Packet<'_, Key, Message, Flight>) -> Option<Entry> {
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
