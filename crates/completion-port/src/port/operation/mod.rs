//! Operations: what a program requests, and how the port performs it.
//!
//! Each kind of operation has its file in `kinds`. The other files are the steps of every
//! operation, in order:
//!
//! 1. `start` and [`token`](crate::port::token) put an [`Operation`] into its cell as [`OpData`],
//!    and submit it to the engine or try it.
//! 2. `attempt` tries it. The system returns an
//!    [`Attempt`](crate::backend::sockets::SocketAttempt).
//! 3. The engine decides what to do next: a [`Step`](crate::engine::Step).
//! 4. `submit` submits it to the system, if the system performs the rest.
//! 5. `complete` makes its packet, a type of `completed`, from which the program takes the
//!    [`Outcome`]. A task has no packet: see `tasks`.

pub(super) mod attempt;
pub(super) mod complete;
mod completed;
pub(super) mod data;
mod file;
mod kinds;
pub(super) mod message;
mod outcome;
mod start;
mod submit;
mod tasks;

pub use completed::{Completed, SharedCompleted};
pub(crate) use data::OpData;
pub use file::SharedFile;
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

/// The name of an operation in flight, for [`Port::cancel`](crate::Port::cancel). The port reuses a
/// name only after four thousand million further operations in the same memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub(crate) u64);

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[allow(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
        let op_index = self.0 as u32;
        write!(f, "OpId({op_index}#{})", self.0 >> 32)
    }
}

/// The name of a shared association. It starts any number of simultaneous operations.
/// [`Port::associate_shared`](crate::Port::associate_shared) returns it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SharedId(pub(crate) u64);

impl SharedId {
    /// Returns the association's name as a registration: to enable it for readiness, or to remove
    /// it.
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

/// An operation on a socket (accept, connect, receive or send) or on a file (read, write, or sync
/// to the disk). It completes with a packet.
///
/// A token starts it ([`Ready::start`](crate::Ready::start)), or the name of a shared association
/// does ([`Port::start`](crate::Port::start)).
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

/// The detail that an operation needs besides its buffer. Each kind needs at most one, and an enum
/// keeps the operation small, because it is moved often.
enum Detail<B> {
    None,
    /// The destination of a connect or send. On completion, the peer of an accept or the sender of
    /// a receive.
    Address(Address),
    /// The position in the file where the operation begins.
    Offset(u64),
    /// The file that is not that of the registration, and the position there.
    File {
        file: SharedFile,
        offset: u64,
    },
    /// The functions of a task. The task itself is the buffer.
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

    /// Returns the position in the file, or zero if none was given.
    fn offset(&self) -> u64 {
        match *self {
            Self::Offset(offset) | Self::File { offset, .. } => offset,
            _ => 0,
        }
    }

    /// Returns the file, if it is not that of the registration.
    #[inline]
    fn file(&self) -> Option<&SharedFile> {
        if let Self::File { file, .. } = self { Some(file) } else { None }
    }
}

impl<B> Operation<B> {
    #[inline]
    fn new(kind: Kind, buffer: Option<B>, detail: Detail<B>) -> Self {
        Self { kind, buffer, detail, deadline: None }
    }

    /// Sets a deadline. If the operation has not completed by then, it ends with
    /// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut).
    ///
    /// The deadline never ends it earlier. While a thread waits on the port, or comes to wait
    /// within a millisecond, the operation ends at most that late.
    ///
    /// Whenever the earliest deadline of a registration passes, the port examines all its waiting
    /// operations, and handles no start or edge of that registration meanwhile. So if thousands of
    /// operations wait on one socket, give them a common deadline, or none.
    ///
    /// An operation on a file is cancelled at its deadline. Its packet arrives once the system has
    /// released the buffer, which may be later. If the operation completed first, the packet
    /// reports its result.
    pub fn deadline(self, deadline: impl Into<Deadline>) -> Self {
        Self { deadline: Some(deadline.into()), ..self }
    }

    /// Consumes the operation and returns its buffer, if it has one.
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
        let is_on_other_file = !self.uses_the_key();
        Plan { call, direction, is_on_other_file, deadline: self.ends_at(backend) }
    }

    /// Returns the direction, if the operation waits for nothing but an edge of that direction on
    /// its socket.
    #[inline]
    pub(crate) fn awaits(&self) -> Option<Direction> {
        self.kind.awaits()
    }

    /// Returns the moment at which the operation ends at the latest.
    #[inline]
    pub(crate) fn ends_at(&self, backend: &dyn Backend) -> Moment {
        self.deadline.map_or(Moment::NEVER, |deadline| deadline.moment(backend))
    }

    pub(crate) fn is_of_file(&self) -> bool {
        self.kind.on_file().is_some()
    }

    /// Returns whether it uses the descriptor of its registration.
    #[inline]
    pub(crate) fn uses_the_key(&self) -> bool {
        self.detail.file().is_none()
    }

    /// Releases the file, if it is not that of the registration. The operation has ended.
    #[inline]
    pub(super) fn release_file(&mut self) {
        if !self.uses_the_key() {
            self.detail = Detail::None;
        }
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
