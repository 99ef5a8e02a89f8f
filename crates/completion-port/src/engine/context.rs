//! What every layer of the engine reads: the system, the slots and cells, the phase.

use std::fmt;
use std::sync::atomic::Ordering::SeqCst;

use super::nodes::Nodes;
use crate::backend::Backend;
use crate::backend::host::Origin;
use crate::backend::sockets::Transport;
use crate::memory::trace::trace_caught;
use crate::state::operations::OpEntry;
use crate::state::schedule::{SAMPLED, WorkerNumber};
use crate::state::slot::{GENERATION, GENERATIONS, Refusal, Slot};
use crate::sync::AtomicU8;
use crate::types::config::BlockDetection;
use crate::types::error::{Call, Error, ErrorKind};
use crate::types::interest::{Events, Mode};
use crate::types::source::Descriptor;

/// A registration's name: the index of its slot, and the generation in the bits where the slot's
/// word has it.
pub(crate) type Name = u64;

#[inline]
pub(crate) fn name_of(index: u32, generation: u32) -> Name {
    u64::from(generation) << GENERATION | u64::from(index)
}

#[allow(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
#[inline]
pub(crate) fn name_parts(name: Name) -> (u32, u32) {
    (name as u32, (name >> GENERATION) as u32)
}

/// Formats a registration's name.
pub(crate) struct DisplayedName(pub(crate) Name);

impl fmt::Debug for DisplayedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (index, generation) = name_parts(self.0);
        write!(f, "Id({index}#{generation})")
    }
}

/// The start of 32-bit counters: shortly before they wrap, as in the kernel's own clock. So every
/// run tests the wrap.
pub(super) const BEGIN: u32 = 0_u32.wrapping_sub(10 * SAMPLED);

/// Whether the port accepts work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PortPhase {
    Open = 0,
    /// Every registration is removed as soon as no handler and no operation has its key. The port
    /// ends once none is left.
    Finishing = 1,
    /// Every registration is being removed. The port ends once none is left.
    ShuttingDown = 2,
    /// The port ends once the queue is empty.
    Closed = 3,
    /// The port has ended, whatever is still queued.
    Abandoned = 4,
}

impl PortPhase {
    /// Returns whether handlers may start operations.
    #[inline]
    pub(super) fn allows_starts(self) -> bool {
        matches!(self, Self::Open | Self::Finishing)
    }

    /// Returns whether the port ends once no registration is left.
    pub(super) fn returns_keys(self) -> bool {
        matches!(self, Self::Finishing | Self::ShuttingDown)
    }
}

/// See the module's documentation. The fields that every packet needs come first.
#[repr(C)]
pub(crate) struct Context {
    origin: Origin,
    /// The phase, for threads without the lock.
    phase: AtomicU8,
    nodes: Nodes,
    /// The port's number in the table of descriptors.
    number: u64,
    limit: usize,
    /// Whether the reactor is one-shot: a registration is armed by asking the kernel, whose answer
    /// is an edge.
    is_one_shot: bool,
    detection: BlockDetection,
    backend: Box<dyn Backend>,
}

/// What stays the same while the port lives.
impl Context {
    pub(super) fn new(
        number: u64,
        limit: usize,
        detection: BlockDetection,
        backend: Box<dyn Backend>,
    ) -> Self {
        Self {
            origin: backend.origin(),
            phase: AtomicU8::new(PortPhase::Open as u8),
            nodes: Nodes::new(),
            number,
            limit,
            is_one_shot: backend.is_one_shot(),
            detection,
            backend,
        }
    }

    #[inline]
    pub(crate) fn limit(&self) -> usize {
        self.limit
    }

    pub(crate) fn detection(&self) -> BlockDetection {
        self.detection
    }

    /// Whether this process is a forked child of the one that created the port.
    #[inline]
    pub(crate) fn forked(&self) -> bool {
        self.origin.is_left()
    }

    #[inline]
    pub(crate) fn backend(&self) -> &dyn Backend {
        &*self.backend
    }

    /// Returns the port's number in the table of descriptors.
    #[inline]
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Whether the reactor is one-shot.
    ///
    /// A registration is then armed by asking the kernel, whose answer is an edge.
    #[inline]
    pub(super) fn is_one_shot(&self) -> bool {
        self.is_one_shot
    }

    /// Returns where the counters begin that tell the uses of a slot or an op index apart.
    ///
    /// This differs from port to port, so that a name used at the wrong port is hardly ever valid
    /// there.
    #[allow(clippy::cast_possible_truncation, reason = "the lower half is as good as any")]
    pub(crate) fn of_this_port(&self) -> u32 {
        (self.number as u32).wrapping_mul(0x9e37_79b9)
    }

    /// Returns the generation that slots begin with.
    pub(crate) fn first_generation(&self) -> u32 {
        self.of_this_port() % GENERATIONS
    }
}

/// The phase, and the calls that it refuses.
impl Context {
    /// Returns the current phase.
    #[inline]
    pub(super) fn phase(&self) -> PortPhase {
        match self.phase.load(SeqCst) {
            0 => PortPhase::Open,
            1 => PortPhase::Finishing,
            2 => PortPhase::ShuttingDown,
            3 => PortPhase::Closed,
            _ => PortPhase::Abandoned,
        }
    }

    /// Sets the phase for threads without the lock. The caller holds the lock.
    pub(super) fn set_phase(&self, phase: PortPhase) {
        self.phase.store(phase as u8, SeqCst);
    }

    #[inline]
    pub(super) fn check_usable(&self, call: Call) -> Result<(), Error> {
        if self.forked() {
            return Err(Error::new(call, ErrorKind::Forked));
        }
        Ok(())
    }

    #[inline]
    pub(crate) fn check_open(&self, call: Call) -> Result<(), Error> {
        self.check_usable(call)?;
        if self.phase() != PortPhase::Open {
            return Err(Error::new(call, ErrorKind::Closed));
        }
        Ok(())
    }

    /// Checks that an operation may be started.
    #[inline]
    pub(super) fn check_starts(&self, call: Call) -> Result<(), Error> {
        self.check_usable(call)?;
        if !self.phase().allows_starts() {
            return Err(Error::new(call, ErrorKind::Closed));
        }
        Ok(())
    }

    /// Whether the port is finishing: handlers may still send, and receives are cancelled.
    pub(crate) fn is_finishing(&self) -> bool {
        self.phase() == PortPhase::Finishing
    }
}

/// Slots and op indexes.
impl Context {
    #[inline]
    pub(super) fn nodes(&self) -> &Nodes {
        &self.nodes
    }

    #[inline]
    pub(crate) fn slot(&self, index: u32) -> &Slot {
        self.nodes.slot(index)
    }

    /// Returns the name that the current or next operation of this op index has.
    ///
    /// It consists of the op index and how often that was used before.
    #[inline]
    pub(crate) fn operation_of(&self, op_index: u32) -> u64 {
        self.nodes.op_at(op_index).name(op_index)
    }

    #[inline]
    pub(super) fn known(&self, name: Name) -> Option<(&Slot, u32)> {
        let (index, generation) = name_parts(name);
        self.nodes.find_slot(index).map(|slot| (slot, generation))
    }
}

/// What the system reports about a descriptor.
impl Context {
    /// Whether a short read has left nothing of a TCP stream that was noted before it.
    ///
    /// What comes later makes a new edge, which only an edge-triggered reactor reports unasked.
    pub(crate) fn is_drained_by_short_read(&self, name: Name) -> bool {
        !self.is_one_shot()
            && self.known(name).is_some_and(|(slot, generation)| {
                let word = slot.word();
                word.generation() == generation && word.is_drained_by_short_read()
            })
    }

    /// Returns how the socket that an operation is tried on carries bytes.
    #[inline]
    pub(crate) fn transport(&self, entry: &OpEntry, descriptor: Descriptor) -> Transport {
        let ask = || self.backend().transport(descriptor) as u8;
        Transport::of(entry.transport(ask))
    }
}

/// Events for a subscriber. None of these may be called under the lock.
impl Context {
    /// Reports that a token was rearmed.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_enabled(&self, name: Name, mode: Mode) {
        let _ = (name, mode);
        // A panic of the subscriber stops here: the caller may still have to set the timer of a
        // deadline.
        trace_caught!(
            TRACE,
            port = self.number,
            registration = ?DisplayedName(name),
            ?mode,
            "enabled"
        );
    }

    /// Reports a packet of the slot with this index, which the calling thread holds.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_reported(&self, index: u32, events: Events) {
        self.trace_packet(name_of(index, self.slot(index).word().generation()), events);
    }

    /// Reports a packet of this registration.
    ///
    /// Whatever the subscriber does, the packet goes to the caller.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_packet(&self, name: Name, events: Events) {
        let _ = (name, events);
        trace_caught!(
            TRACE,
            port = self.number,
            registration = ?DisplayedName(name),
            descriptor = self.slot(name_parts(name).0).descriptor(),
            ?events,
            "reported"
        );
    }

    /// Reports that a call has failed and its caller gets the arguments back.
    #[cfg_attr(feature = "tracing", cold, inline(never))]
    #[cfg_attr(not(feature = "tracing"), inline)]
    pub(crate) fn trace_refused(
        &self,
        error: &Error,
        registration: Option<Name>,
        descriptor: Option<Descriptor>,
    ) {
        let _ = (error, registration, descriptor);
        // In a forked child a subscriber may wait for a thread that does not exist there.
        #[cfg(feature = "tracing")]
        if !self.forked() {
            trace_caught!(
                DEBUG,
                port = self.number,
                call = ?error.call(),
                kind = ?error.kind(),
                registration = registration.map(DisplayedName).map(tracing::field::debug),
                descriptor,
                "refused"
            );
        }
    }

    /// Reports that a call ends a registration.
    ///
    /// Whatever the subscriber does, the call continues: its caller may now own a key.
    #[cfg_attr(feature = "tracing", cold, inline(never))]
    #[cfg_attr(not(feature = "tracing"), inline)]
    pub(super) fn trace_removed(&self, name: Name, descriptor: Descriptor) {
        let _ = (name, descriptor);
        trace_caught!(
            DEBUG,
            port = self.number,
            registration = ?DisplayedName(name),
            descriptor,
            "removed"
        );
    }

    /// Reports that an operation is about to start.
    ///
    /// A token starts it, or the name of its registration. `completed` follows, or `refused`.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_started(&self, registration: Name, call: Call) {
        let _ = (registration, call);
        trace_caught!(
            TRACE,
            port = self.number,
            registration = ?DisplayedName(registration),
            operation = ?call,
            "started"
        );
    }

    /// Reports that an operation has completed: its packet was taken, or it was done immediately.
    ///
    /// Whatever the subscriber does, the packet or the result goes to the caller.
    #[cold]
    #[inline(never)]
    pub(crate) fn trace_completed(&self, registration: Name, call: Call, error: Option<Error>) {
        let _ = (registration, call, error);
        trace_caught!(
            TRACE,
            port = self.number,
            registration = ?DisplayedName(registration),
            operation = ?call,
            error = error.map(|error| tracing::field::debug(error.kind())),
            "completed"
        );
    }

    /// Reports that a thread was woken.
    ///
    /// The lock must not be held, since a subscriber may be called.
    #[cold]
    #[inline(never)]
    pub(super) fn trace_woken(&self, worker: WorkerNumber, in_kernel: bool) {
        let _ = (worker, in_kernel);
        trace_caught!(TRACE, port = self.number, worker, in_kernel, "woken");
    }

    /// Reports that these threads were found asleep.
    ///
    /// The lock must not be held, since a subscriber may be called.
    pub(super) fn trace_found_asleep(&self, found: Vec<WorkerNumber>) {
        for worker in found {
            let _ = worker;
            trace_caught!(DEBUG, port = self.number, worker, "found asleep");
        }
    }
}

pub(super) fn kind_of(refusal: Refusal) -> ErrorKind {
    match refusal {
        Refusal::NotRegistered => ErrorKind::NotRegistered,
        Refusal::Removing => ErrorKind::Removing,
        Refusal::Held => ErrorKind::KeyHeld,
        Refusal::Shared => ErrorKind::KeyShared,
        Refusal::NotShared => ErrorKind::NotShared,
    }
}
