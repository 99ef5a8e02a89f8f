//! The state of a registration's operations besides its slot.

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

/// The state of a registration's operations besides its slot. Created when an operation first needs
/// it.
#[derive(Debug)]
pub(crate) struct OpEntry {
    pub(crate) queues: Mutex<OpQueues>,
    /// The earliest moment at which an operation must end or be tried again.
    timer: DeadlineTimer,
    /// There is room for the timer of this entry.
    pub(crate) has_timer: AtomicBool,
    /// How the descriptor transfers bytes, as a number of the back end plus one; 0 if unknown.
    transport: AtomicU8,
    /// With a one-shot reactor: whether it has reported more than readiness since it was last asked
    /// for an edge ([`RARE_TOLD`]), and which directions it has watched permanently since then.
    /// Read and changed under the lock of the descriptor's number, except that `RARE_TOLD` may be
    /// set at any time.
    lasting: AtomicU8,
    /// The op index that operations started by tokens use in turn; `NIL` if there is none. It stays
    /// here for later registrations.
    own: AtomicU32,
    /// The op index of the connect that the system is carrying out for this descriptor, even if the
    /// operation has ended; or [`NO_CONNECT`], [`ABANDONING`] or [`ABANDONED`].
    connect: AtomicU32,
    /// The descriptor was made non-blocking.
    pub(crate) is_nonblocking: AtomicBool,
    /// The descriptor is that of a file, which nothing watches.
    pub(crate) is_file: AtomicBool,
    /// Whether reads are tried immediately: 0 if unknown, 1 if not, 2 if so.
    reads_now: AtomicU8,
}

/// Not an op index, which is smaller: the system has no connect for this descriptor.
const NO_CONNECT: u32 = u32::MAX;

/// The system has a connect, and a thread is abandoning it.
const ABANDONING: u32 = u32::MAX - 1;

/// The system had a connect that was cancelled but could not be abandoned. The descriptor can no
/// longer be connected.
const ABANDONED: u32 = u32::MAX - 2;

/// Whether a connect may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConnectPermission {
    Clear,
    /// Another thread is abandoning an earlier connect. It makes this one retry when that is done.
    NotYet,
    /// An earlier connect was cancelled, and may still be in progress.
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
    /// Returns the earliest deadline or retry of the operations, with its timer.
    #[inline]
    pub(crate) fn timer(&self) -> &DeadlineTimer {
        &self.timer
    }

    /// Returns how the descriptor transfers bytes, as a number of the back end. Calls `ask` if that
    /// is unknown.
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

    /// Returns whether a read from the file is tried immediately. Calls `ask` if that is unknown.
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

    /// Notes that reads from the file cannot be done immediately.
    pub(crate) fn stop_reading_now(&self) {
        self.reads_now.store(1, Relaxed);
    }

    /// Notes that a one-shot reactor has reported more than readiness. That fact may persist
    /// although every attempt blocks. If the reactor were asked for one edge at a time, it would
    /// report it again and again.
    pub(crate) fn note_rare(&self) {
        self.lasting.fetch_or(RARE_TOLD, Relaxed);
    }

    /// Notes that the one-shot reactor is asked for one edge, or has a new set.
    pub(crate) fn watch_briefly(&self) {
        self.lasting.store(0, Relaxed);
    }

    /// Returns the directions that a one-shot reactor should watch permanently, if any.
    /// `Some(None)` means that it already does.
    pub(crate) fn to_watch_lastingly(&self, wanted: Facts) -> Option<Option<Facts>> {
        let lasting = self.lasting.load(Relaxed);
        if lasting & RARE_TOLD == 0 {
            return None;
        }
        let watched = Facts::of_directions(lasting.into());
        Some(if watched.has(wanted) { None } else { Some(wanted | watched) })
    }

    /// Notes that the one-shot reactor watches these directions permanently.
    pub(crate) fn watch_lastingly(&self, wanted: Facts) {
        #[allow(clippy::cast_possible_truncation, reason = "two bits")]
        self.lasting.fetch_or(wanted.directions() as u8, Relaxed);
    }

    /// Returns the op index that operations started by tokens use, if there is one.
    #[inline]
    pub(crate) fn own(&self) -> Option<Node> {
        Some(self.own.load(Relaxed)).filter(|own| *own != NIL)
    }

    /// Keeps an op index for operations started by tokens. The caller has the token.
    pub(crate) fn keep(&self, own: Node) {
        self.own.store(own, Relaxed);
    }

    /// Resets the entry for a new registration.
    pub(crate) fn begin(&self) {
        self.timer.move_deadline(Moment::NEVER);
        self.transport.store(0, Relaxed);
        self.lasting.store(0, Relaxed);
        self.connect.store(NO_CONNECT, Relaxed);
        self.is_nonblocking.store(false, Relaxed);
        self.is_file.store(false, Relaxed);
        self.reads_now.store(0, Relaxed);
    }

    /// Prepares for a connect. The system may still have an earlier one whose operation was
    /// cancelled. `abandon` then abandons that and returns whether it succeeded. Connects are tried
    /// one at a time.
    pub(crate) fn clear_for_connect(&self, abandon: impl FnOnce() -> bool) -> ConnectPermission {
        match self.connect.load(Acquire) {
            NO_CONNECT => ConnectPermission::Clear,
            ABANDONED => ConnectPermission::Never,
            ABANDONING => ConnectPermission::NotYet,
            op_index => {
                self.abandon_connect(op_index, abandon);
                match self.connect.load(Acquire) {
                    NO_CONNECT => ConnectPermission::Clear,
                    ABANDONED => ConnectPermission::Never,
                    // The thread that has the packet of that connect abandons it.
                    _ => ConnectPermission::NotYet,
                }
            }
        }
    }

    /// Returns whether the system has the connect of `op_index`.
    pub(crate) fn has_connect(&self, op_index: u32) -> bool {
        self.connect.load(Acquire) == op_index
    }

    /// Notes that the system has the connect of `op_index`.
    pub(crate) fn connect_begun(&self, op_index: u32) {
        self.connect.store(op_index, Release);
    }

    /// Notes that the connect in progress has ended. The caller has just tried it.
    pub(crate) fn connect_ended(&self) {
        self.connect.store(NO_CONNECT, Release);
    }

    /// Cancels the connect of `op_index`: `abandon` abandons it and returns whether that succeeded.
    /// Returns false and changes nothing if the connect is no longer in progress, or if another
    /// thread is abandoning it.
    pub(crate) fn abandon_connect(&self, op_index: u32, abandon: impl FnOnce() -> bool) -> bool {
        let is_ours = self.connect.compare_exchange(op_index, ABANDONING, AcqRel, Acquire).is_ok();
        if is_ours {
            let left = if abandon() { NO_CONNECT } else { ABANDONED };
            self.connect.store(left, Release);
        }
        is_ours
    }
}

/// The operation entries of a port, indexed by slot.
pub(crate) type OpEntries = Arena<OpEntry>;
