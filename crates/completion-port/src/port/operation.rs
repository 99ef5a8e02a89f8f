//! Operations: what a program asks for, and what becomes of it.

use std::fmt;
use std::mem::MaybeUninit;

use crate::backend::Backend;
use crate::backend::files::{Hold, Issuer, Job, Now, What};
use crate::backend::sockets::{Ask, Attempt, PARTS, Received, Sockets, Transfer, Transport};
use crate::engine::{Attempted, Clearance, Place, Plan, Verdict};
use crate::memory::cells::Cell;
use crate::port::deadline::Deadline;
use crate::port::registration::Id;
use crate::port::task;
use crate::port::task::Ending;
use crate::state::moment::Moment;
use crate::sys::codes;
use crate::types::address::Address;
use crate::types::buffer::{Buffer, with_filled, with_room};
use crate::types::error::Fault;
use crate::types::error::{Call, Error, ErrorKind, Result};
use crate::types::fd::RawFd;
use crate::types::interest::Direction;
use crate::types::io_buffer::Loan;
use crate::types::source::Descriptor;
use crate::types::source::OwnedSource;

/// The name of an operation in flight, for [`Port::cancel`](crate::Port::cancel). No other operation of the port
/// has it, before four thousand million more have used the same memory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct OpId(pub(crate) u64);

impl fmt::Debug for OpId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[allow(clippy::cast_possible_truncation, reason = "the halves are taken apart")]
        let record = self.0 as u32;
        write!(f, "OpId({record}#{})", self.0 >> 32)
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Accept,
    Connect,
    Receive,
    ReceiveFrom,
    Send,
    SendAll,
    Read,
    Write,
    SyncData,
    SyncAll,
    /// What the program carries out itself when something can be received: [`task::Task`].
    TaskIn,
    /// The same, when something can be sent.
    TaskOut,
}

impl Kind {
    fn call(self) -> Call {
        match self {
            Self::Accept => Call::Accept,
            Self::Connect => Call::Connect,
            Self::Receive | Self::ReceiveFrom | Self::TaskIn => Call::Receive,
            Self::Send | Self::SendAll | Self::TaskOut => Call::Send,
            Self::Read => Call::Read,
            Self::Write => Call::Write,
            Self::SyncData | Self::SyncAll => Call::Sync,
        }
    }

    fn direction(self) -> Direction {
        match self {
            Self::Accept | Self::Receive | Self::ReceiveFrom => Direction::In,
            Self::Read | Self::TaskIn => Direction::In,
            Self::Connect | Self::Send | Self::SendAll | Self::TaskOut => Direction::Out,
            Self::Write | Self::SyncData | Self::SyncAll => Direction::Out,
        }
    }

    /// The direction, if the operation waits for nothing but an edge of that on the socket that it is started on.
    #[inline]
    fn awaits(self) -> Option<Direction> {
        match self {
            Self::Accept | Self::Receive | Self::ReceiveFrom => Some(Direction::In),
            Self::Send | Self::SendAll => Some(Direction::Out),
            // A connect waits for nothing before it has begun.
            _ => None,
        }
    }

    /// Whether it fills its buffer.
    fn fills(self) -> bool {
        matches!(self, Self::Receive | Self::ReceiveFrom | Self::Read)
    }

    /// What it does with a file, if it is about files.
    fn of_file(self) -> Option<What> {
        match self {
            Self::Read => Some(What::Read),
            Self::Write => Some(What::Write),
            Self::SyncData => Some(What::SyncData),
            Self::SyncAll => Some(What::SyncAll),
            _ => None,
        }
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
    Acts(Acts<B>),
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

/// How a [task](task::Task) is carried out. Known to those that start one, so that nothing else asks that buffers be tasks.
pub(crate) struct Acts<B> {
    attempt: fn(&mut B, RawFd) -> task::Attempt,
    begins_unasked: fn(&B) -> bool,
    end: fn(B, Ending),
}

impl<B> Clone for Acts<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for Acts<B> {}

impl<B> Operation<B> {
    #[inline]
    fn new(kind: Kind, buffer: Option<B>, detail: Detail<B>) -> Self {
        Self { kind, buffer, detail, deadline: None }
    }

    /// A task.
    pub(crate) fn task(direction: Direction, task: B) -> Self
    where
        B: task::Task,
    {
        let acts = Acts { attempt: B::attempt, begins_unasked: B::begins_unasked, end: B::end };
        let kind = match direction {
            Direction::In => Kind::TaskIn,
            Direction::Out => Kind::TaskOut,
        };
        Self::new(kind, Some(task), Detail::Acts(acts))
    }

    /// Whether its first attempt waits for its turn alone, and for no edge.
    pub(crate) fn begins_unasked(&self) -> bool {
        match (&self.buffer, &self.detail) {
            _ if !self.is_task() => self.kind == Kind::Connect,
            (Some(task), Detail::Acts(acts)) => (acts.begins_unasked)(task),
            _ => unreachable!("a task has its functions until it has ended"),
        }
    }

    /// Whether it is a task.
    pub(crate) fn is_task(&self) -> bool {
        matches!(self.kind, Kind::TaskIn | Kind::TaskOut)
    }

    /// Accepts a connection. The first accept of a listener makes it non-blocking.
    pub fn accept() -> Self {
        Self::new(Kind::Accept, None, Detail::None)
    }

    /// Connects to an address. It makes the socket non-blocking.
    ///
    /// A stream that is connected already, or that the program is connecting itself, is not connected again: the outcome has
    /// the system's code (`EISCONN`, `EALREADY`).
    ///
    /// If the operation is cancelled, or its deadline is over, the connect is given up. When the packet is handed out the
    /// socket is not connected, even if the connection was there before, and it may be connected again.
    ///
    /// # Platform notes
    ///
    /// Linux gives a connect up by [connect(2)](https://man7.org/linux/man-pages/man2/connect.2.html) with `AF_UNSPEC`. What
    /// bind(2) was told stays, but not a port that the kernel has chosen. On macOS and the BSDs, and of `AF_VSOCK`,
    /// there is no such call: the connect continues, and every later connect of the association fails with `EALREADY`. On
    /// Windows the system cancels a connect that it carries out.
    pub fn connect(address: impl Into<Address>) -> Self {
        Self::new(Kind::Connect, None, Detail::Address(address.into()))
    }

    /// Receives what comes, at most as much as there is room for: some bytes, or one datagram. A buffer without
    /// room waits until something can be received, and takes nothing. If the program shuts the reading half of the
    /// socket, the operation ends with 0 bytes once nothing is left, also if the socket carries datagrams.
    ///
    /// # Platform notes
    ///
    /// `ENOBUFS` ([`Error::os_code`]) reports that the kernel has dropped messages: a netlink socket of Linux, or a routing
    /// socket of a BSD, was not read fast enough. Receives that follow bring the messages that it has kept.
    pub fn recv(buffer: B) -> Self {
        Self::new(Kind::Receive, Some(buffer), Detail::None)
    }

    /// Receives one datagram, and tells its sender.
    pub fn recv_from(buffer: B) -> Self {
        Self::new(Kind::ReceiveFrom, Some(buffer), Detail::None)
    }

    /// Sends a part of the buffer, as much as there is room for; or one datagram.
    pub fn send(buffer: B) -> Self {
        Self::new(Kind::Send, Some(buffer), Detail::None)
    }

    /// Sends all of the buffer. No other send of the socket comes in between. A long one is sent in shares of at most
    /// 1 MiB, between which other packets have their turn; so it goes on behind the call that starts it, even if there is
    /// room for everything.
    pub fn send_all(buffer: B) -> Self {
        Self::new(Kind::SendAll, Some(buffer), Detail::None)
    }

    /// Sends one datagram to an address.
    pub fn send_to(buffer: B, address: impl Into<Address>) -> Self {
        Self::new(Kind::Send, Some(buffer), Detail::Address(address.into()))
    }

    /// Reads from a file, beginning `offset` bytes from its beginning, until the buffer is full or the file ends.
    /// The position of the file is neither used nor moved.
    ///
    /// What the system has in its memory is read by the call that starts the operation. The outcome is
    /// [`Outcome::Read`]; fewer bytes than there is room for mean that the file ended there. A pipe, a terminal
    /// or a timerfd has no positions: of such a file is read what there is, once there is something, wherever the operation
    /// begins.
    ///
    /// # Platform notes
    ///
    /// Linux: [preadv2(2)](https://man7.org/linux/man-pages/man2/preadv2.2.html) with `RWF_NOWAIT`; what that does
    /// not bring, the port's [`FileEngine`](crate::FileEngine) does. A file that was opened with `O_DIRECT` wants
    /// offsets, lengths and memory that are aligned; otherwise the outcome is `EINVAL`. On Windows the same is
    /// [ReadFile](https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-readfile) with an offset.
    pub fn read_at(buffer: B, offset: u64) -> Self {
        Self::new(Kind::Read, Some(buffer), Detail::Offset(offset))
    }

    /// Writes all of the buffer to a file, beginning `offset` bytes from its beginning. The position of the file is
    /// neither used nor moved. A pipe or a terminal has no positions, and is written to as it stands. A buffer without
    /// bytes is done at once, whatever is open there: nothing is written, and the file is as long as it was.
    ///
    /// An error tells how much was written before ([`Error::transferred`]): `ENOSPC` and `EIO`, say. That a write is
    /// done means that reads find the bytes, and not that they are on the disk: see [`Operation::sync_data`].
    ///
    /// # Platform notes
    ///
    /// On Linux a file that was opened with `O_APPEND` is written to at its end, whatever `offset` says
    /// ([pwrite(2)](https://man7.org/linux/man-pages/man2/pwrite.2.html)).
    pub fn write_at(buffer: B, offset: u64) -> Self {
        Self::new(Kind::Write, Some(buffer), Detail::Offset(offset))
    }

    /// Has what was written to a file put on the disk, with what is needed to find it there, its length for instance.
    ///
    /// It is about writes that were done when it was started: whose packets were queued, or that were done at once.
    /// A write in flight may or may not be among them. A failure may be told once only, and it leaves open which of
    /// the writes have not reached the disk.
    ///
    /// # Platform notes
    ///
    /// Linux: [fdatasync(2)](https://man7.org/linux/man-pages/man2/fdatasync.2.html).
    pub fn sync_data() -> Self {
        Self::new(Kind::SyncData, None, Detail::None)
    }

    /// The same, with all that the system knows of the file, such as the time at which it was changed. Of a directory
    /// it puts the names there on the disk.
    ///
    /// # Platform notes
    ///
    /// Linux: [fsync(2)](https://man7.org/linux/man-pages/man2/fdatasync.2.html).
    pub fn sync_all() -> Self {
        Self::new(Kind::SyncAll, None, Detail::None)
    }

    /// The operation ends at this time if it is not done by then; its outcome is
    /// [`ErrorKind::TimedOut`]. It never ends earlier by that. While a thread waits at the port, or comes to wait
    /// within a millisecond, it is at most that late.
    ///
    /// Of one registration that has many operations in flight, all that wait are looked at whenever the earliest of their
    /// deadlines is over, and no start or edge of that registration is seen to meanwhile. So let thousands that wait at one
    /// socket have a common deadline, or none.
    ///
    /// An operation on a file is called off then. Its packet comes as soon as the system has let go of the buffer,
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
        self.kind.of_file().is_some()
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

/// What has become of an operation.
///
/// An error comes with its code ([`Error::os_code`]), and tells how much was sent, written or read before
/// ([`Error::transferred`]). [`ErrorKind::Cancelled`]: the operation was cancelled, or its registration removed,
/// or the port closed. [`ErrorKind::TimedOut`]: its deadline was over.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<B = Vec<u8>> {
    /// Of [`Operation::accept`]: the connection, and where its peer is reached, if that has an address.
    Accepted(Result<(OwnedSource, Option<Address>)>),
    /// Of [`Operation::connect`].
    Connected(Result<()>),
    /// Of [`Operation::recv`]: how many bytes, 0 at the end of a stream, and the buffer. A datagram that was
    /// longer than the buffer is an error of kind [`ErrorKind::Truncated`], and its beginning is in the buffer.
    Received(Result<usize>, B),
    /// Of [`Operation::recv_from`]: the same, and the sender's address, if it has one.
    ReceivedFrom(Result<(usize, Option<Address>)>, B),
    /// Of [`Operation::send`], [`Operation::send_all`] and [`Operation::send_to`]: how many bytes, and the
    /// buffer.
    Sent(Result<usize>, B),
    /// Of [`Operation::read_at`]: how many bytes, and the buffer. Fewer than there is room for if the file ends
    /// there, and 0 at its end.
    Read(Result<usize>, B),
    /// Of [`Operation::write_at`]: how many bytes, which are all, and the buffer.
    Written(Result<usize>, B),
    /// Of [`Operation::sync_data`] and [`Operation::sync_all`].
    Synced(Result<()>),
}

impl<B> Outcome<B> {
    /// Why the operation has failed, if it has.
    #[must_use]
    pub fn error(&self) -> Option<Error> {
        match self {
            Self::Accepted(result) => result.as_ref().err().copied(),
            Self::Connected(result) | Self::Synced(result) => result.as_ref().err().copied(),
            Self::Received(result, _)
            | Self::Sent(result, _)
            | Self::Read(result, _)
            | Self::Written(result, _) => result.as_ref().err().copied(),
            Self::ReceivedFrom(result, _) => result.as_ref().err().copied(),
        }
    }

    /// Gives the buffer back, if the operation had one.
    pub fn into_buffer(self) -> Option<B> {
        match self {
            Self::Accepted(_) | Self::Connected(_) | Self::Synced(_) => None,
            Self::Received(_, buffer)
            | Self::ReceivedFrom(_, buffer)
            | Self::Sent(_, buffer)
            | Self::Read(_, buffer)
            | Self::Written(_, buffer) => Some(buffer),
        }
    }
}

/// What has become of an operation on a socket, beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Fresh,
    /// The back end has declined to carry it out: it waits for edges.
    Declined,
    /// The connect is under way.
    Begun,
}

/// How far an operation has come.
#[derive(Default)]
pub(crate) struct Progress {
    stage: Stage,
    /// A datagram was longer than the buffer.
    is_cut: bool,
    /// How many bytes were sent, received, written or read.
    len: usize,
    /// The connection that an accept has won.
    socket: Option<OwnedSource>,
    fault: Option<Fault>,
}

impl Progress {
    /// How many bytes were sent, received, written or read.
    pub(crate) fn transferred(&self) -> usize {
        self.len
    }

    /// Why an operation has failed that has ended so.
    #[inline]
    fn error(&self, kind: Kind, verdict: Verdict) -> Option<Error> {
        let (error, code) = match verdict {
            Verdict::Done => match self.fault {
                Some(fault) => (fault.kind, fault.code),
                None if self.is_cut => (ErrorKind::Truncated, None),
                None => return None,
            },
            Verdict::Cancelled => (ErrorKind::Cancelled, None),
            Verdict::TimedOut => (ErrorKind::TimedOut, None),
            Verdict::Gone => (ErrorKind::BadDescriptor, None),
        };
        Some(Error::new(kind.call(), error).with_code(code).having_transferred(self.len))
    }

    #[inline]
    fn note(&mut self, attempt: Attempt<()>) -> Attempted {
        match attempt {
            Attempt::Done(()) => Attempted::Done,
            Attempt::Blocked => Attempted::Blocked,
            Attempt::Carried if self.stage == Stage::Declined => Attempted::Blocked,
            Attempt::Carried => Attempted::Carried,
            Attempt::Scarce => Attempted::Scarce,
            Attempt::Failed(fault) => {
                self.fault = Some(fault);
                Attempted::Done
            }
        }
    }
}

/// An operation in its cell: what is asked for, and how far it has come.
pub(crate) struct Cargo<B> {
    /// Without its buffer while the back end has that.
    operation: Operation<B>,
    progress: Progress,
    /// Packets of it bring clones of the key.
    pub(crate) is_shared: bool,
    /// It has become a job or a transfer, which has not come back to it.
    pub(crate) is_handed_over: bool,
    /// Why it has ended, once it has.
    verdict: Verdict,
    /// What its packet tells of it, if it is shared.
    pub(crate) association: u64,
    pub(crate) name: OpId,
}

impl<B> Cargo<B> {
    /// Puts an operation that has not begun into an empty cell.
    ///
    /// # Safety
    ///
    /// As for [`Cell::put`].
    #[inline]
    #[allow(clippy::multiple_unsafe_ops_per_block, reason = "each writes another field")]
    pub(crate) unsafe fn put(cell: &Cell<Self>, operation: Operation<B>, is_shared: bool) {
        let place = cell.place();
        let Progress { stage, is_cut, len, socket, fault } = Progress::default();
        // A value as a whole would be put together elsewhere, and copied then.
        // SAFETY: writing through a raw pointer demands that it is valid and that nothing else accesses the place.
        // - valid: the cell has room for a value, and these are its fields, all of them;
        // - nothing else: the caller owns the cell.
        unsafe {
            (&raw mut (*place).operation).write(operation);
            (&raw mut (*place).progress.stage).write(stage);
            (&raw mut (*place).progress.is_cut).write(is_cut);
            (&raw mut (*place).progress.len).write(len);
            (&raw mut (*place).progress.socket).write(socket);
            (&raw mut (*place).progress.fault).write(fault);
            (&raw mut (*place).is_shared).write(is_shared);
            (&raw mut (*place).is_handed_over).write(false);
            (&raw mut (*place).verdict).write(Verdict::Done);
            (&raw mut (*place).association).write(0);
            (&raw mut (*place).name).write(OpId(0));
        }
    }

    /// The operation, which was refused.
    pub(crate) fn into_operation(self) -> Operation<B> {
        self.operation
    }

    /// The operation, to be tried, and how far it has come.
    #[inline]
    pub(crate) fn parts(&mut self) -> (&mut Operation<B>, &mut Progress) {
        (&mut self.operation, &mut self.progress)
    }

    /// What it is, for events.
    pub(crate) fn call(&self) -> Call {
        self.operation.call()
    }

    /// See [`Operation::plan`].
    pub(crate) fn plan(&self, backend: &dyn Backend) -> Plan {
        self.operation.plan(backend)
    }

    pub(crate) fn direction(&self) -> Direction {
        self.operation.direction()
    }

    pub(crate) fn is_of_file(&self) -> bool {
        self.operation.is_of_file()
    }

    /// How many bytes it has sent, received, written or read.
    pub(crate) fn transferred(&self) -> usize {
        self.progress.transferred()
    }

    /// It cannot go on.
    pub(crate) fn fail(&mut self, fault: Fault) {
        self.progress.fault = Some(fault);
    }

    /// Code of its buffer has panicked.
    pub(crate) fn fail_by_panic(&mut self) {
        self.fail(Fault { kind: ErrorKind::Other, code: None });
        if self.operation.kind.fills() {
            // Of what has come the buffer says nothing.
            self.progress.len = 0;
        }
    }

    /// It could not be begun.
    pub(crate) fn fail_at_start(&mut self, fault: Fault) {
        // What was read at once is not told: the buffer says nothing of it.
        (self.progress.len, self.progress.fault) = (0, Some(fault));
    }

    /// The operation has ended.
    #[inline]
    pub(crate) fn settle(&mut self, verdict: Verdict) {
        self.verdict = verdict;
    }

    /// Tells a task, whose verdict is settled, that it has ended.
    pub(crate) fn end_task(self) {
        let ending = self.ending();
        if let (Detail::Acts(acts), Some(task)) = (self.operation.detail, self.operation.buffer) {
            (acts.end)(task, ending);
        }
    }

    /// How a task has ended whose verdict is settled.
    fn ending(&self) -> Ending {
        match self.verdict {
            Verdict::Done if self.progress.fault.is_some() => Ending::Failed,
            Verdict::Done => Ending::Done,
            Verdict::Cancelled | Verdict::TimedOut => Ending::Cancelled,
            Verdict::Gone => Ending::Closed,
        }
    }

    /// The task, and how it has ended, which is settled.
    pub(crate) fn into_task(self) -> (B, Ending) {
        let ending = self.ending();
        (self.operation.buffer.expect("a task is started with what it consists of"), ending)
    }

    /// Why the operation has failed, which is settled.
    pub(crate) fn error(&self) -> Option<Error> {
        self.progress.error(self.operation.kind, self.verdict)
    }

    /// What has become of the operation, which is settled. Nothing of worth is left of it.
    pub(crate) fn take_outcome(&mut self) -> Outcome<B> {
        self.operation.take_outcome(&mut self.progress, self.verdict)
    }

    /// The buffer of an operation that is settled, has not failed, and brings its bytes and nothing else: with which bytes
    /// it comes back, and how many. `None`, and nothing has changed, in any other case. Nothing is left of the operation
    /// then that would have to be dropped.
    #[inline]
    pub(crate) fn take_bytes(&mut self) -> Option<(Bytes, usize, B)> {
        let Progress { is_cut, len, fault, .. } = &self.progress;
        if self.verdict != Verdict::Done || fault.is_some() || *is_cut {
            return None;
        }
        let bytes = match self.operation.kind {
            Kind::Receive => Bytes::Received,
            Kind::Send | Kind::SendAll => Bytes::Sent,
            Kind::Read => Bytes::Read,
            _ => return None,
        };
        if let Detail::Address(_) = self.operation.detail {
            return None;
        }
        let buffer = self.operation.buffer.take()?;
        Some((bytes, *len, buffer))
    }
}

/// What became of the bytes of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bytes {
    Received,
    Sent,
    Read,
}

impl<B> Operation<B> {
    /// What has become of an operation that has come so far, and has ended so. Nothing of worth is left of it.
    fn take_outcome(&mut self, progress: &mut Progress, verdict: Verdict) -> Outcome<B> {
        let result = match progress.error(self.kind, verdict) {
            None => Ok(progress.len),
            Some(error) => Err(error),
        };
        match self.kind {
            Kind::Receive => Outcome::Received(result, self.take_buffer()),
            Kind::Send | Kind::SendAll => Outcome::Sent(result, self.take_buffer()),
            Kind::Read => Outcome::Read(result, self.take_buffer()),
            Kind::Write => Outcome::Written(result, self.take_buffer()),
            _ => self.take_other_outcome(progress, result),
        }
    }

    /// The same for one that brings more or less than its bytes.
    #[inline(never)]
    fn take_other_outcome(&mut self, progress: &mut Progress, result: Result<usize>) -> Outcome<B> {
        let mut socket = || progress.socket.take().expect("an accept brings a connection");
        let address = self.detail.take_address();
        match self.kind {
            Kind::ReceiveFrom => {
                Outcome::ReceivedFrom(result.map(|len| (len, address)), self.take_buffer())
            }
            Kind::Accept => Outcome::Accepted(result.map(|_| (socket(), address))),
            Kind::Connect => Outcome::Connected(result.map(|_| ())),
            Kind::SyncData | Kind::SyncAll => Outcome::Synced(result.map(|_| ())),
            _ => unreachable!("a task makes no packet, and the others bring their bytes"),
        }
    }

    #[inline]
    fn take_buffer(&mut self) -> B {
        self.buffer.take().expect("it was started with a buffer")
    }
}

impl<B: Buffer> Cargo<B> {
    /// See [`Operation::attempt`].
    #[allow(clippy::inline_always, reason = "as there")]
    #[inline(always)]
    pub(crate) fn attempt(
        &mut self,
        sockets: &(impl Sockets + ?Sized),
        descriptor: Descriptor,
        transport: impl FnOnce(Descriptor) -> Transport,
        place: Place<'_>,
    ) -> Attempted {
        let (operation, progress) = self.parts();
        operation.attempt(progress, sockets, descriptor, transport, place)
    }

    /// The operation would have to wait, and its descriptor shows more than readiness. If it reads and the program itself
    /// has shut the reading half, it ends as a call that waits would: with nothing, or as an accept of what is no listener.
    #[cold]
    #[inline(never)]
    pub(crate) fn attempt_behind_the_end(
        &mut self,
        sockets: &(impl Sockets + ?Sized),
        descriptor: Descriptor,
        transport: Transport,
        place: Place<'_>,
    ) -> Attempted {
        let kind = self.operation.kind;
        let is_read = matches!(kind, Kind::Accept | Kind::Receive | Kind::ReceiveFrom);
        if !is_read || !sockets.has_shut_reading(descriptor) {
            return Attempted::Blocked;
        }
        // What has come before that is not lost.
        let attempted = self.attempt(sockets, descriptor, |_| transport, place);
        if attempted != Attempted::Blocked {
            return attempted;
        }
        if kind == Kind::Accept {
            self.fail(Fault { kind: ErrorKind::Other, code: Some(codes::EINVAL) });
            return Attempted::Done;
        }
        let buffer = self.operation.buffer.as_mut().expect("it was started with a buffer");
        // SAFETY: `room` demands that only initialized bytes are written to the parts.
        // - nothing is written.
        unsafe { buffer.room(&mut |_| {}) };
        // SAFETY: `set_filled` demands that the first bytes of the room are initialized, and that the buffer is as it was when
        // the room was asked for.
        // - initialized: none of them;
        // - as it was: the room was asked for just now.
        unsafe { buffer.set_filled(0) };
        Attempted::Done
    }

    /// What is left of an operation on a file goes to the back end, and the buffer with it.
    pub(crate) fn hand_over(
        &mut self,
        name: u64,
        issuer: std::sync::Weak<dyn Issuer>,
        file: std::sync::Arc<dyn Hold>,
    ) -> Job {
        let what = self.operation.kind.of_file().expect("it is about a file");
        let mut lending = Lending {
            loan: self.operation.buffer.take().map(Loan::new),
            place: &mut self.operation.buffer,
        };
        match &mut lending.loan {
            Some(loan) if what == What::Read => loan.lend_room(|buffer: &mut B, part| {
                // SAFETY: `room` demands that only initialized bytes are written to the parts.
                // - the back end writes what it has read.
                unsafe { buffer.room(&mut |room| part(room)) };
            }),
            Some(loan) => loan.lend_bytes(|buffer: &B, part| {
                buffer.filled(&mut |bytes| part(bytes));
            }),
            None => {}
        }
        let loan = lending.loan.take();
        drop(lending);
        self.is_handed_over = true;
        let mut job = Job {
            name,
            issuer,
            file,
            what,
            offset: self.operation.detail.offset(),
            loan,
            done: 0,
            fault: None,
            is_called_off: false,
        };
        // What was read at once lies in the buffer still: to move a buffer changes no byte of its room.
        job.advance(self.progress.len);
        job
    }

    /// The operation goes to a back end that carries it out by itself, and the buffer with it.
    pub(crate) fn hand_over_transfer(&mut self, name: u64, descriptor: Descriptor) -> Transfer {
        let Operation { kind, buffer: place, detail, .. } = &mut self.operation;
        let ask = match kind {
            Kind::Accept => Ask::Accept,
            Kind::Connect => Ask::Connect,
            Kind::Receive => Ask::Receive,
            Kind::ReceiveFrom => Ask::ReceiveFrom,
            Kind::Send => Ask::Send,
            Kind::SendAll => Ask::SendAll,
            Kind::Read
            | Kind::Write
            | Kind::SyncData
            | Kind::SyncAll
            | Kind::TaskIn
            | Kind::TaskOut => {
                unreachable!("no attempt at it says that it is carried out")
            }
        };
        let mut lending = Lending { loan: place.take().map(Loan::new), place };
        match &mut lending.loan {
            Some(loan) if matches!(ask, Ask::Receive | Ask::ReceiveFrom) => {
                loan.lend_room(|buffer: &mut B, part| {
                    // SAFETY: `room` demands that only initialized bytes are written to the parts.
                    // - the back end writes what it has received.
                    unsafe { buffer.room(&mut |room| part(room)) };
                });
            }
            Some(loan) => loan.lend_bytes(|buffer: &B, part| {
                buffer.filled(&mut |bytes| part(bytes));
            }),
            None => {}
        }
        let loan = lending.loan.take();
        drop(lending);
        let mut transfer = Transfer {
            name,
            descriptor,
            ask,
            address: detail.take_address(),
            loan,
            done: 0,
            is_cut: false,
            connection: None,
            fault: None,
            is_called_off: false,
            is_declined: false,
        };
        // What was sent at the attempts is sent.
        transfer.advance(self.progress.len);
        self.is_handed_over = true;
        transfer
    }

    /// The transfer of the operation has come back.
    pub(crate) fn take_transfer_back(&mut self, transfer: Transfer) {
        let Transfer { ask, address, loan, done, is_cut, connection, fault, .. } = transfer;
        self.is_handed_over = false;
        let stage = if transfer.is_declined { Stage::Declined } else { Stage::Fresh };
        self.progress = Progress { stage, is_cut, len: done, socket: connection, fault };
        self.operation.detail = Detail::of(address);
        let Some(loan) = loan else { return };
        let buffer: &mut B = self.operation.buffer.insert(loan.into_buffer());
        if matches!(ask, Ask::Receive | Ask::ReceiveFrom) && done > 0 {
            // SAFETY: `room` demands that only initialized bytes are written to the parts.
            // - nothing is written.
            unsafe { buffer.room(&mut |_| {}) };
            // SAFETY: `set_filled` demands that the first bytes of the room are initialized, and that the buffer is as
            // it was when the room was asked for.
            // - initialized: the system says that it has received so many, from the beginning of the parts that the
            //   buffer gave before it was moved, and to move it has changed no byte of them;
            // - as it was: the room was asked for just now.
            unsafe { buffer.set_filled(done) };
        }
    }

    /// The job of the operation has come back.
    pub(crate) fn take_back(&mut self, job: Job) {
        self.is_handed_over = false;
        (self.progress.len, self.progress.fault) = (job.done, job.fault);
        let Some(loan) = job.loan else { return };
        let buffer: &mut B = self.operation.buffer.insert(loan.into_buffer());
        if job.what == What::Read {
            // SAFETY: `room` demands that only initialized bytes are written to the parts.
            // - nothing is written.
            unsafe { buffer.room(&mut |_| {}) };
            // SAFETY: `set_filled` demands that the first bytes of the room are initialized, and that the buffer is as
            // it was when the room was asked for.
            // - initialized: the system says that it has written so many, from the beginning of the parts that the
            //   buffer gave before it was moved, and to move it has changed no byte of them;
            // - as it was: the room was asked for just now.
            unsafe { buffer.set_filled(job.done) };
        }
    }
}

impl From<task::Attempt> for Attempted {
    #[inline]
    fn from(attempt: task::Attempt) -> Self {
        match attempt {
            task::Attempt::Done => Self::Done,
            task::Attempt::Drained => Self::Drained,
            task::Attempt::Blocked => Self::Blocked,
            task::Attempt::Scarce => Self::Scarce,
        }
    }
}

impl<B: Buffer> Operation<B> {
    /// Tries the operation on a descriptor, once; sending all, as long as something can be sent and its share lasts.
    /// `transport` tells how the socket carries bytes. `place` makes it non-blocking before an accept or a connect: the
    /// system's calls have no flag that they must not wait.
    #[allow(
        clippy::inline_always,
        reason = "what it is passed is put together in memory otherwise"
    )]
    #[inline(always)]
    pub(crate) fn attempt(
        &mut self,
        progress: &mut Progress,
        sockets: &(impl Sockets + ?Sized),
        descriptor: Descriptor,
        transport: impl FnOnce(Descriptor) -> Transport,
        place: Place<'_>,
    ) -> Attempted {
        match self.kind {
            Kind::Receive => self.try_receive(progress, sockets, descriptor, transport(descriptor)),
            Kind::ReceiveFrom => {
                self.try_receive_from(progress, sockets, descriptor, transport(descriptor))
            }
            Kind::Send | Kind::SendAll => self.try_send(progress, sockets, descriptor, transport),
            _ => self.try_other(progress, sockets, descriptor, place),
        }
    }

    /// The same for what is no receive and no send.
    #[inline(never)]
    fn try_other(
        &mut self,
        progress: &mut Progress,
        sockets: &(impl Sockets + ?Sized),
        descriptor: Descriptor,
        place: Place<'_>,
    ) -> Attempted {
        if let Kind::Accept | Kind::Connect = self.kind
            && let Err(fault) = place.make_nonblocking(descriptor)
        {
            return progress.note(Attempt::Failed(fault));
        }
        match self.kind {
            Kind::Accept => {
                let attempt = self.try_accept(progress, sockets, descriptor);
                progress.note(attempt)
            }
            Kind::Connect => {
                let attempt = self.try_connect(progress, sockets, descriptor, place);
                progress.note(attempt)
            }
            Kind::TaskIn | Kind::TaskOut => {
                let (Some(task), Detail::Acts(acts)) = (&mut self.buffer, &self.detail) else {
                    unreachable!("a task is started with what it consists of")
                };
                (acts.attempt)(task, descriptor).into()
            }
            _ => unreachable!("what is about a file stands in no lane"),
        }
    }

    /// Does what can be done at once of an operation on a file. `read` reads at a position; `None`: that is not worth
    /// while.
    pub(crate) fn try_now(
        &mut self,
        progress: &mut Progress,
        read: Option<impl FnMut(u64, &mut [&mut [MaybeUninit<u8>]]) -> Now>,
    ) -> TriedNow {
        let buffer = match (self.kind, &mut self.buffer) {
            (Kind::Read, Some(buffer)) => buffer,
            (Kind::Write, Some(buffer)) => {
                let is_empty = with_filled(buffer, 0, |parts| parts.is_empty());
                return if is_empty { TriedNow::Done } else { TriedNow::NotYet };
            }
            _ => return TriedNow::NotYet,
        };
        let offset = self.detail.offset();
        // SAFETY: `with_room` demands that only initialized bytes are written to the parts.
        // - they are handed to a back end, which writes what it has read.
        let (len, now) = unsafe {
            with_room(buffer, |parts, room| match read {
                _ if room == 0 => (0, Now::Read(0)),
                Some(read) => read_parts(offset, parts, room, read),
                None => (0, Now::NotYet),
            })
        };
        progress.len = len;
        let tried = match now {
            Now::Read(_) => TriedNow::Done,
            Now::NotYet => return TriedNow::NotYet,
            Now::Never => return TriedNow::Never,
            Now::Failed(fault) => {
                progress.fault = Some(fault);
                TriedNow::Done
            }
        };
        // SAFETY: `set_filled` demands that the first bytes of the room are initialized, and that the buffer is as it
        // was.
        // - initialized: the system says that it has written so many, from the beginning of these parts;
        // - as it was: it lies where it did, and nothing was called since.
        unsafe { buffer.set_filled(len) };
        tried
    }

    fn try_accept(
        &mut self,
        progress: &mut Progress,
        sockets: &(impl Sockets + ?Sized),
        descriptor: Descriptor,
    ) -> Attempt<()> {
        sockets.accept(descriptor).map(|(socket, peer)| {
            (progress.socket, self.detail) = (Some(socket), Detail::of(peer));
        })
    }

    fn try_connect(
        &mut self,
        progress: &mut Progress,
        sockets: &(impl Sockets + ?Sized),
        descriptor: Descriptor,
        place: Place<'_>,
    ) -> Attempt<()> {
        if progress.stage == Stage::Begun {
            let attempt = sockets.end_connect(descriptor);
            if !matches!(attempt, Attempt::Blocked) {
                place.connect_ended();
            }
            return attempt;
        }
        match place.clear_for_connect(descriptor) {
            Clearance::Clear => {}
            Clearance::NotYet => return Attempt::Scarce,
            Clearance::Never => {
                let code = Some(codes::EALREADY);
                return Attempt::Failed(Fault { kind: ErrorKind::Other, code });
            }
        }
        let address = self.detail.address().expect("it was started with an address");
        let attempt = sockets.begin_connect(descriptor, address);
        if matches!(attempt, Attempt::Blocked) {
            progress.stage = Stage::Begun;
            place.connect_begun();
        }
        attempt
    }

    #[allow(clippy::inline_always, reason = "a part of an attempt")]
    #[inline(always)]
    fn try_receive(
        &mut self,
        progress: &mut Progress,
        sockets: &(impl Sockets + ?Sized),
        descriptor: Descriptor,
        transport: Transport,
    ) -> Attempted {
        let buffer = self.buffer.as_mut().expect("it was started with a buffer");
        let receive = move |parts: &mut [&mut [_]], all| {
            let room = room_of(parts, all);
            (sockets.receive(descriptor, transport, parts), room)
        };
        // SAFETY: `with_room` demands that only initialized bytes are written to the parts.
        // - they are handed to a back end, which writes what it has received.
        let (attempt, room) = unsafe { with_room(buffer, receive) };
        let Attempt::Done(Received { len, is_cut }) = attempt else {
            return progress.note(attempt.map(|_| ()));
        };
        // SAFETY: `set_filled` demands that the first bytes of the room are initialized, and that the buffer is as it
        // was.
        // - initialized: the system says that it has written so many, from the beginning of these parts;
        // - as it was: it lies where it did, and nothing was called since.
        unsafe { buffer.set_filled(len) };
        (progress.len, progress.is_cut) = (len, is_cut);
        // Nothing tells the end of a stream from one that goes on, but the next attempt.
        if len > 0 && len < room && transport.is_drained_by_short_receive() {
            Attempted::Drained
        } else {
            Attempted::Done
        }
    }

    #[inline(never)]
    fn try_receive_from(
        &mut self,
        progress: &mut Progress,
        sockets: &(impl Sockets + ?Sized),
        descriptor: Descriptor,
        transport: Transport,
    ) -> Attempted {
        let buffer = self.buffer.as_mut().expect("it was started with a buffer");
        let receive = |parts: &mut [&mut [_]], all| {
            let room = room_of(parts, all);
            (sockets.receive_from(descriptor, parts), room)
        };
        // SAFETY: `with_room` demands that only initialized bytes are written to the parts.
        // - they are handed to a back end, which writes what it has received.
        let (attempt, room) = unsafe { with_room(buffer, receive) };
        let (Received { len, is_cut }, sender) = match attempt {
            Attempt::Done(received) => received,
            other => return progress.note(other.map(|_| ())),
        };
        // SAFETY: `set_filled` demands that the first bytes of the room are initialized, and that the buffer is as it
        // was.
        // - initialized, and as it was: as for a receive that does not tell the sender.
        unsafe { buffer.set_filled(len) };
        (progress.len, progress.is_cut) = (len, is_cut);
        self.detail = Detail::of(sender);
        if len > 0 && len < room && transport.is_drained_by_short_receive() {
            Attempted::Drained
        } else {
            Attempted::Done
        }
    }

    #[allow(clippy::inline_always, reason = "a part of an attempt")]
    #[inline(always)]
    fn try_send(
        &mut self,
        progress: &mut Progress,
        sockets: &(impl Sockets + ?Sized),
        descriptor: Descriptor,
        transport: impl FnOnce(Descriptor) -> Transport,
    ) -> Attempted {
        let buffer = self.buffer.as_ref().expect("it was started with a buffer");
        let begun = progress.len;
        // Mostly all that is left is no more than a share, and goes by one call.
        let (attempt, is_all) = with_filled(buffer, begun, |parts| {
            let left = length(parts);
            if self.kind == Kind::SendAll && left > SHARE {
                return (Attempt::Done(0), false);
            }
            let attempt = sockets.send(descriptor, parts, self.detail.address());
            let is_all = matches!(attempt, Attempt::Done(sent) if sent >= left);
            (attempt, is_all)
        });
        match attempt {
            Attempt::Done(sent) => progress.len += sent,
            other => return progress.note(other.map(|_| ())),
        }
        if is_all || self.kind != Kind::SendAll {
            return Attempted::Done;
        }
        self.send_shares(progress, sockets, descriptor, begun, transport)
    }

    /// Goes on to send all of the buffer, which was `begun` after so many bytes, until its share is sent.
    #[inline(never)]
    fn send_shares(
        &self,
        progress: &mut Progress,
        sockets: &(impl Sockets + ?Sized),
        descriptor: Descriptor,
        begun: usize,
        transport: impl FnOnce(Descriptor) -> Transport,
    ) -> Attempted {
        let buffer = self.buffer.as_ref().expect("it was started with a buffer");
        let mut calls = u32::from(progress.len > begun);
        let mut transport = Some(transport);
        let mut is_stream = false;
        loop {
            let (attempt, is_all) = with_filled(buffer, progress.len, |parts| {
                let left = length(parts);
                let share = SHARE - (progress.len - begun);
                let mut first: [&[u8]; 1] = [&[]];
                let parts = if left > share {
                    // A message goes as a whole, or not at all.
                    is_stream =
                        transport.take().map_or(is_stream, |ask| ask(descriptor).is_stream());
                    if is_stream { first_of(parts, share, &mut first) } else { parts }
                } else {
                    parts
                };
                let attempt = sockets.send(descriptor, parts, self.detail.address());
                let is_all = matches!(attempt, Attempt::Done(sent) if sent >= left);
                (attempt, is_all)
            });
            match attempt {
                Attempt::Done(sent) => progress.len += sent,
                other => return progress.note(other.map(|_| ())),
            }
            if is_all {
                return Attempted::Done;
            }
            calls += 1;
            if calls == MOST_CALLS || progress.len - begun >= SHARE {
                return Attempted::Paused;
            }
        }
    }
}

/// How much of the room in these parts, which is so much in `all`, a system call fills at most: it fills no parts behind
/// the first ones, and is full when those are.
#[inline]
fn room_of(parts: &[&mut [MaybeUninit<u8>]], all: usize) -> usize {
    match parts.get(..PARTS) {
        Some(first) if parts.len() > PARTS => first.iter().map(|part| part.len()).sum(),
        _ => all,
    }
}

/// How many bytes these parts have. They may be of the same memory, so that there is no limit to the sum.
#[inline]
fn length(parts: &[&[u8]]) -> usize {
    parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.len()))
}

/// How much of a buffer one attempt to send all of it sends, and by how many calls at most. A peer that keeps pace would
/// have it go on for as long as the buffer lasts, while others wait for the thread.
const SHARE: usize = 1 << 20;
const MOST_CALLS: u32 = 16;

/// The parts that have at most `share` bytes in all; if the first one has more, so many of that, for which there is
/// room in `first`.
fn first_of<'p, 'b>(
    parts: &'p [&'b [u8]],
    share: usize,
    first: &'p mut [&'b [u8]; 1],
) -> &'p [&'b [u8]] {
    let mut sum = 0_usize;
    let fits = |part: &&&[u8]| {
        sum = sum.saturating_add(part.len());
        sum <= share
    };
    match parts.iter().take_while(fits).count() {
        0 => {
            first[0] = &parts[0][..share];
            first
        }
        count => &parts[..count],
    }
}

/// What trying an operation on a file at once has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TriedNow {
    /// It has ended.
    Done,
    /// A part may be done. The rest has to wait.
    NotYet,
    /// The same, and it is not worth while to try that again with this file.
    Never,
}

/// A buffer that is being lent. Should its code panic, it is the operation's again.
struct Lending<'c, B: Buffer> {
    loan: Option<Loan>,
    place: &'c mut Option<B>,
}

impl<B: Buffer> Drop for Lending<'_, B> {
    fn drop(&mut self) {
        if let Some(loan) = self.loan.take() {
            *self.place = Some(loan.into_buffer());
        }
    }
}

/// Reads into parts that have `room` for so many bytes, until they are full, the file ends, or something has to wait.
fn read_parts(
    offset: u64,
    parts: &mut [&mut [MaybeUninit<u8>]],
    room: usize,
    mut read: impl FnMut(u64, &mut [&mut [MaybeUninit<u8>]]) -> Now,
) -> (usize, Now) {
    let (mut len, mut first) = (0, 0);
    loop {
        let now = read(offset.saturating_add(len as u64), &mut parts[first..]);
        let Now::Read(count) = now else { return (len, now) };
        len += count;
        if count == 0 || len == room {
            return (len, now);
        }
        // Fewer than there is room for: the file may end there, or what the system has in memory.
        let mut skipped = count;
        while let Some(part) = parts.get_mut(first) {
            if skipped < part.len() {
                let whole = std::mem::take(part);
                *part = &mut whole[skipped..];
                break;
            }
            skipped -= part.len();
            first += 1;
        }
    }
}

impl<T> Attempt<T> {
    fn map<R>(self, map: impl FnOnce(T) -> R) -> Attempt<R> {
        match self {
            Self::Done(value) => Attempt::Done(map(value)),
            Self::Blocked => Attempt::Blocked,
            Self::Carried => Attempt::Carried,
            Self::Scarce => Attempt::Scarce,
            Self::Failed(fault) => Attempt::Failed(fault),
        }
    }
}

/// What [`Ready::start_now`](crate::Ready::start_now) or [`Port::start_now`](crate::Port::start_now) has come to.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "there is no third way")]
pub enum Started<T> {
    /// The operation has ended at once: there is no packet.
    Finished(T),
    /// It is in flight, and completes by a packet.
    InFlight(OpId),
}
