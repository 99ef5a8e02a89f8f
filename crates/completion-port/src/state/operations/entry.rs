//! What a registration has beside its slot, once an operation needs it.

use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

use super::queues::OpQueues;
use crate::memory::arena::Arena;
use crate::state::deadline::DeadlineTimer;
use crate::state::facts::Facts;
use crate::state::moment::Moment;
use crate::state::queue::{NIL, Node};
use crate::sync::{AtomicBool, AtomicU8, AtomicU32, Mutex};

/// See [`OpEntry::note_rare`].
const RARE_TOLD: u8 = 1 << 2;

/// What a registration has beside its slot, once an operation needs it.
#[derive(Debug)]
pub(crate) struct OpEntry {
    pub(crate) queues: Mutex<OpQueues>,
    /// When the first of the operations is to end or to be tried again.
    timer: DeadlineTimer,
    /// There is room for the operation entry's timer.
    pub(crate) has_timer: AtomicBool,
    /// How the descriptor carries bytes, in the back end's terms, plus one; 0: not asked yet.
    transport: AtomicU8,
    /// With a one-shot reactor: whether more than readiness was told since it was last asked for an edge ([`RARE_TOLD`]),
    /// and which directions it watches lastingly since then. Asked for and changed under the lock of the descriptor's
    /// number, but that `RARE_TOLD` is set at any time.
    lasting: AtomicU8,
    /// The record that the operations of registrations with tokens use in turn; `NIL` if there is none. The operation entry
    /// keeps it.
    own: AtomicU32,
    /// The record of the connect that the system has of this descriptor, though the operation may have ended; or
    /// [`NO_CONNECT`], [`ABANDONING`] or [`ABANDONED`].
    connect: AtomicU32,
    /// The descriptor was made non-blocking.
    pub(crate) is_nonblocking: AtomicBool,
    /// The descriptor is a file's, which nothing watches.
    pub(crate) is_file: AtomicBool,
    /// Whether reads are tried at once: 0 if it is not known yet, 1 if not, 2 if so.
    reads_now: AtomicU8,
}

/// In place of a record, which is less: the system has no connect of the descriptor.
const NO_CONNECT: u32 = u32::MAX;

/// It has one, which a thread is just giving up.
const ABANDONING: u32 = u32::MAX - 1;

/// It had one that was cancelled, and cannot be given up: the descriptor is not connected any more.
const ABANDONED: u32 = u32::MAX - 2;

/// Whether a connect may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Clearance {
    Clear,
    /// Another thread is giving up an earlier connect. It pulls this one in when that is done.
    NotYet,
    /// An earlier one was cancelled, and may still be under way.
    Never,
}

impl Default for OpEntry {
    fn default() -> Self {
        Self {
            queues: Mutex::default(),
            timer: DeadlineTimer::default(),
            has_timer: AtomicBool::new(false),
            transport: AtomicU8::new(0),
            lasting: AtomicU8::new(0),
            own: AtomicU32::new(NIL),
            connect: AtomicU32::new(NO_CONNECT),
            is_nonblocking: AtomicBool::new(false),
            is_file: AtomicBool::new(false),
            reads_now: AtomicU8::new(0),
        }
    }
}

impl OpEntry {
    /// When the first of the operations is to end or to be tried again.
    #[inline]
    pub(crate) fn timer(&self) -> &DeadlineTimer {
        &self.timer
    }

    /// How the descriptor carries bytes, in the back end's terms. `ask` tells if it was not asked yet.
    #[inline]
    pub(crate) fn transport(&self, ask: impl FnOnce() -> u8) -> u8 {
        match self.transport.load(Relaxed).checked_sub(1) {
            Some(known) => known,
            None => {
                let told = ask();
                self.transport.store(told + 1, Relaxed);
                told
            }
        }
    }

    /// Whether a read from the file is tried at once. `ask` tells if it was not asked yet.
    #[inline]
    pub(crate) fn reads_now(&self, ask: impl FnOnce() -> bool) -> bool {
        match self.reads_now.load(Relaxed) {
            0 => {
                let reads_now = ask();
                self.reads_now.store(1 + u8::from(reads_now), Relaxed);
                reads_now
            }
            known => known > 1,
        }
    }

    /// It has turned out that no read from the file is done at once.
    pub(crate) fn stop_reading_now(&self) {
        self.reads_now.store(1, Relaxed);
    }

    /// A one-shot reactor has told of more than readiness. That may hold on, though no attempt comes to anything: it would
    /// be told of again at once, and again, if it were asked for one edge at a time.
    pub(crate) fn note_rare(&self) {
        self.lasting.fetch_or(RARE_TOLD, Relaxed);
    }

    /// The one-shot reactor is asked for one edge, or has a new set.
    pub(crate) fn watch_briefly(&self) {
        self.lasting.store(0, Relaxed);
    }

    /// Which directions operations and the registration want a one-shot reactor to watch, if that is to watch lastingly.
    /// `Some(None)`: it does already.
    pub(crate) fn to_watch_lastingly(&self, wanted: Facts) -> Option<Option<Facts>> {
        let lasting = self.lasting.load(Relaxed);
        if lasting & RARE_TOLD == 0 {
            return None;
        }
        let watched = Facts::of_directions(lasting.into());
        Some(if watched.has(wanted) { None } else { Some(wanted | watched) })
    }

    /// The one-shot reactor watches these directions lastingly.
    pub(crate) fn watch_lastingly(&self, wanted: Facts) {
        #[allow(clippy::cast_possible_truncation, reason = "two bits")]
        self.lasting.fetch_or(wanted.directions() as u8, Relaxed);
    }

    /// The record that operations of a registration with tokens use, if there is one.
    #[inline]
    pub(crate) fn own(&self) -> Option<Node> {
        Some(self.own.load(Relaxed)).filter(|own| *own != NIL)
    }

    /// The operation entry keeps a record for operations of registrations with tokens. The caller has the token.
    pub(crate) fn keep(&self, own: Node) {
        self.own.store(own, Relaxed);
    }

    /// The operation entry is a new registration's.
    pub(crate) fn begin(&self) {
        self.timer.move_deadline(Moment::NEVER);
        self.transport.store(0, Relaxed);
        self.lasting.store(0, Relaxed);
        self.connect.store(NO_CONNECT, Relaxed);
        self.is_nonblocking.store(false, Relaxed);
        self.is_file.store(false, Relaxed);
        self.reads_now.store(0, Relaxed);
    }

    /// A connect is about to begin. The system may have an earlier one, whose operation was cancelled: `abandon` gives
    /// that up, and says whether that could be done. Only one connect at a time is tried.
    pub(crate) fn clear_for_connect(&self, abandon: impl FnOnce() -> bool) -> Clearance {
        match self.connect.load(Acquire) {
            NO_CONNECT => Clearance::Clear,
            ABANDONED => Clearance::Never,
            ABANDONING => Clearance::NotYet,
            op_index => {
                self.abandon_connect(op_index, abandon);
                match self.connect.load(Acquire) {
                    NO_CONNECT => Clearance::Clear,
                    ABANDONED => Clearance::Never,
                    // The thread that has the packet of that one gives it up.
                    _ => Clearance::NotYet,
                }
            }
        }
    }

    /// The system has the connect of `op_index` from here on.
    pub(crate) fn connect_begun(&self, op_index: u32) {
        self.connect.store(op_index, Release);
    }

    /// The connect that was under way, which is being tried, has come to an end.
    pub(crate) fn connect_ended(&self) {
        self.connect.store(NO_CONNECT, Release);
    }

    /// Cancels the connect of `op_index`: `abandon` gives it up, and returns whether that succeeded. Returns false and changes
    /// nothing if the connect was given up before, or another thread is giving it up.
    pub(crate) fn abandon_connect(&self, op_index: u32, abandon: impl FnOnce() -> bool) -> bool {
        let is_ours = self.connect.compare_exchange(op_index, ABANDONING, AcqRel, Acquire).is_ok();
        if is_ours {
            let left = if abandon() { NO_CONNECT } else { ABANDONED };
            self.connect.store(left, Release);
        }
        is_ours
    }
}

/// The operation entries of a port, by the numbers of slots.
pub(crate) type OpEntries = Arena<OpEntry>;
