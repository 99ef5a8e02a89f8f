//! Operations: what a program asks for, and what the port does with it.
//!
//! Each kind of operation has its file in `kinds`. The other files are the steps of every operation, in order:
//!
//! 1. `start` and [`token`](crate::port::token) put an [`Operation`] into its cell as [`OpData`], and submit it to the
//!    engine or try it.
//! 2. `attempt` tries it. The system returns an [`Attempt`](crate::backend::sockets::SocketAttempt).
//! 3. The engine says what to do next: a [`Step`](crate::engine::Step).
//! 4. `submit` hands it to the system, if that carries out the rest.
//! 5. `complete` makes its packet, a type of `completed`, from which the program takes the [`Outcome`]. A task has
//!    no packet: see `tasks`.

pub(super) mod attempt;
pub(super) mod complete;
pub(super) mod completed;
mod data;
mod kinds;
mod outcome;
mod start;
mod submit;
mod tasks;

pub use completed::{Completed, SharedCompleted};
pub(crate) use data::OpData;
pub(crate) use kinds::Kind;
pub use outcome::{Outcome, Started};

use std::fmt;

use crate::backend::Backend;
use crate::engine::Plan;
use crate::port::deadline::Deadline;
use crate::port::operation::kinds::TaskFunctions;
use crate::port::registration::Id;
use crate::state::moment::Moment;
use crate::types::address::Address;
use crate::types::error::Call;
use crate::types::interest::Direction;

/// The name of an operation in flight, for [`Port::cancel`](crate::Port::cancel). No other operation of the port
/// has it, before four thousand million more have used the same memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub(crate) u64);

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[allow(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
        let op_index = self.0 as u32;
        write!(f, "OpId({op_index}#{})", self.0 >> 32)
    }
}

/// The name of a shared association: operations are started by it, any number of them at once. It comes from
/// [`Port::associate_shared`](crate::Port::associate_shared).
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SharedId(pub(crate) u64);

impl SharedId {
    /// The name as that of a registration: to enable it for readiness, or to remove it.
    #[must_use]
    pub fn id(self) -> Id {
        Id(self.0)
    }
}

impl From<SharedId> for Id {
    fn from(shared: SharedId) -> Self {
        shared.id()
    }
}

impl fmt::Debug for SharedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SharedId").field(&self.id()).finish()
    }
}

/// What a port is to do with a socket: to accept, connect, receive or send; or with a file: to read, write, or have
/// it written to the disk. It completes by a packet.
///
/// A token starts it ([`Ready::start`](crate::Ready::start)), or a shared association does, by its name
/// ([`Port::start`](crate::Port::start)).
///
/// # Examples
///
/// ```
/// use completion_port::Operation;
/// use std::time::Duration;
///
/// let receive = Operation::recv(Vec::<u8>::with_capacity(4096)).deadline(Duration::from_secs(30));
/// assert_eq!(receive.into_buffer().map(|buffer| buffer.capacity()), Some(4096));
/// ```
#[must_use = "an operation does nothing until it is started"]
pub struct Operation<B = Vec<u8>> {
    kind: Kind,
    buffer: Option<B>,
    detail: Detail<B>,
    deadline: Option<Deadline>,
}

/// What an operation has besides. No kind has more than one: what is moved so often has to be small.
enum Detail<B> {
    None,
    /// Where it connects or sends to; or who was accepted or has sent, once that is known.
    Address(Address),
    /// Where in the file it begins.
    Offset(u64),
    /// A task is a buffer with functions.
    Task(TaskFunctions<B>),
}

impl<B> Detail<B> {
    fn of(address: Option<Address>) -> Self {
        address.map_or(Self::None, Self::Address)
    }

    #[inline]
    fn address(&self) -> Option<&Address> {
        if let Self::Address(address) = self { Some(address) } else { None }
    }

    fn take_address(&mut self) -> Option<Address> {
        match std::mem::replace(self, Self::None) {
            Self::Address(address) => Some(address),
            _ => None,
        }
    }

    /// Zero, where nothing else was given.
    fn offset(&self) -> u64 {
        if let Self::Offset(offset) = *self { offset } else { 0 }
    }
}

impl<B> Operation<B> {
    #[inline]
    fn new(kind: Kind, buffer: Option<B>, detail: Detail<B>) -> Self {
        Self { kind, buffer, detail, deadline: None }
    }

    /// The operation ends at this time if it is not done by then; its outcome is
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut). It never ends earlier by that. While a thread waits at the port, or comes to wait
    /// within a millisecond, it is at most that late.
    ///
    /// Of one registration that has many operations in flight, all that wait are looked at whenever the earliest of their
    /// deadlines is over, and no start or edge of that registration is seen to meanwhile. So let thousands that wait at one
    /// socket have a common deadline, or none.
    ///
    /// An operation on a file is cancelled then. Its packet comes as soon as the system has let go of the buffer,
    /// which may be later, and tells what was done if that was quicker.
    pub fn deadline(self, deadline: impl Into<Deadline>) -> Self {
        Self { deadline: Some(deadline.into()), ..self }
    }

    /// Gives the buffer back, if the operation has one.
    pub fn into_buffer(self) -> Option<B> {
        self.buffer
    }

    pub(crate) fn call(&self) -> Call {
        self.kind.call()
    }

    pub(crate) fn direction(&self) -> Direction {
        self.kind.direction()
    }

    pub(crate) fn plan(&self, backend: &dyn Backend) -> Plan {
        let (call, direction) = (self.call(), self.kind.direction());
        Plan { call, direction, deadline: self.ends_at(backend) }
    }

    /// The direction, if it waits for nothing but an edge of that on the socket that it is started on.
    #[inline]
    pub(crate) fn awaits(&self) -> Option<Direction> {
        self.kind.awaits()
    }

    /// When it is to end at the latest.
    #[inline]
    pub(crate) fn ends_at(&self, backend: &dyn Backend) -> Moment {
        self.deadline.map_or(Moment::NEVER, |deadline| deadline.moment(backend))
    }

    pub(crate) fn is_of_file(&self) -> bool {
        self.kind.on_file().is_some()
    }

    #[inline]
    fn take_buffer(&mut self) -> B {
        self.buffer.take().expect("it was started with a buffer")
    }

    #[inline]
    fn buffer_ref(&self) -> &B {
        self.buffer.as_ref().expect("it was started with a buffer")
    }

    #[inline]
    fn buffer_mut(&mut self) -> &mut B {
        self.buffer.as_mut().expect("it was started with a buffer")
    }
}

impl<B> fmt::Debug for Operation<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Operation")
            .field("kind", &self.kind)
            .field("address", &self.detail.address())
            .field("offset", &self.detail.offset())
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}
