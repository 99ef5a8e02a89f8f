//! What a port needs from a system for socket operations: to try one now. No call here ever waits.
//!
//! The port decides when to try an operation. A [`Sockets`] translates one attempt into system
//! calls, and their results into a [`SocketAttempt`]. It repeats calls that a signal interrupts.
//!
//! Where a system completes operations on its own, the port submits those that would block as
//! requests.

use std::mem::MaybeUninit;

use super::request::{Submit, Target};
use crate::types::address::Address;
use crate::types::datagrams::Datagrams;
use crate::types::error::Fault;
use crate::types::source::Descriptor;
use crate::types::source::OwnedSource;

/// The most parts of a list that one receive or send uses. Parts without bytes do not count.
pub(crate) const PARTS: usize = 1024;

/// The result of an attempt.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SocketAttempt<T> {
    /// The operation is done.
    Done(T),
    /// It would block. The next attempt is worthwhile after an edge of the operation's direction
    /// that comes later than the start of this attempt. The direction is OUT for a connect or a
    /// send, and IN for the others. An end or an error counts for both.
    Blocked,
    /// It has nothing to do, although the descriptor may be ready. The next attempt is worthwhile
    /// after an edge, as for [`SocketAttempt::Blocked`]. Only a task returns this.
    Idle,
    /// It would block, and the system can complete it: the port submits it as a [`SocketRequest`].
    ///
    /// [`SocketRequest`]: super::request::SocketRequest
    #[allow(dead_code, reason = "for systems that complete operations by themselves")]
    NeedsSystem,
    /// It needs something that no edge reports: a descriptor, memory, or room in the queue of a
    /// listener or an `AF_UNIX` receiver. Nothing is lost. The port retries it after some time.
    OutOfResources,
    /// It has used up its share of the thread's time. The port continues it after other operations
    /// have had theirs.
    Yielded,
    /// It has failed.
    Failed(Fault),
}

impl<T> SocketAttempt<T> {
    #[inline]
    pub(crate) fn map<R>(self, map: impl FnOnce(T) -> R) -> SocketAttempt<R> {
        match self {
            Self::Done(value) => SocketAttempt::Done(map(value)),
            Self::Blocked => SocketAttempt::Blocked,
            Self::Idle => SocketAttempt::Idle,
            Self::NeedsSystem => SocketAttempt::NeedsSystem,
            Self::OutOfResources => SocketAttempt::OutOfResources,
            Self::Yielded => SocketAttempt::Yielded,
            Self::Failed(fault) => SocketAttempt::Failed(fault),
        }
    }

    /// Whether the operation has ended.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        matches!(self, Self::Done(_) | Self::Failed(_))
    }
}

/// What the operation is known to have left in the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    Unknown,
    /// Nothing, except perhaps an end or an error.
    Nothing,
}

/// The result of a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// How many bytes were stored in the buffer, from its start. 0 at the end of a stream.
    pub(crate) len: usize,
    /// A datagram was longer than the buffer; the rest of it is lost.
    pub(crate) is_cut: bool,
}

/// How a socket carries bytes, where a receive depends on it. Never changes while the socket is
/// open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// In datagrams or records, or the system does not report it. A receive loses whatever does not
    /// fit.
    Messages = 0,
    /// As a stream.
    Stream = 1,
    /// As a stream, where a receive that returns fewer bytes than there was room for has left only
    /// an end, an error or an urgent mark: TCP.
    DrainedStream = 2,
    /// In datagrams, whose full length a receive can return: UDP on Linux. A receive loses whatever
    /// does not fit.
    Datagrams = 3,
}

impl Transport {
    /// Returns the variant with this number.
    pub(crate) fn of(number: u8) -> Self {
        match number {
            0 => Self::Messages,
            1 => Self::Stream,
            2 => Self::DrainedStream,
            _ => Self::Datagrams,
        }
    }

    /// Whether receives never cut anything off.
    pub(crate) fn is_stream(self) -> bool {
        matches!(self, Self::Stream | Self::DrainedStream)
    }

    /// Whether a receive that returns fewer bytes than there was room for has left no data.
    pub(crate) fn is_drained_by_short_receive(self) -> bool {
        self == Self::DrainedStream
    }
}

/// The kind of a socket request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SocketKind {
    /// Accepts a connection.
    Accept,
    /// Connects to [`SocketTarget::address`].
    Connect,
    /// Receives into the buffer.
    Receive,
    /// Receives into the buffer, and reports the sender.
    ReceiveFrom,
    /// Sends some of the buffer, or one datagram.
    Send,
    /// Sends the whole buffer.
    SendAll,
}

/// The socket of a request, and the results that only sockets have.
///
/// An edge whose name is the request's id reports the end of the request.
pub(crate) struct SocketTarget {
    #[allow(dead_code, reason = "for systems that complete operations by themselves")]
    pub(crate) descriptor: Descriptor,
    /// The destination, or the sender.
    pub(crate) address: Option<Address>,
    /// A datagram was longer than the buffer.
    pub(crate) is_cut: bool,
    /// The accepted connection. It is non-blocking, and other programs do not inherit it.
    pub(crate) connection: Option<OwnedSource>,
    /// The system has not started the operation. The port retries it, and if necessary waits for an
    /// edge.
    pub(crate) is_declined: bool,
}

impl Target for SocketTarget {
    type Kind = SocketKind;
}

impl SocketTarget {
    pub(crate) fn new(descriptor: Descriptor, address: Option<Address>) -> Self {
        Self { descriptor, address, is_cut: false, connection: None, is_declined: false }
    }
}

/// Sockets of one kernel. Any thread may call these methods at any time.
///
/// If the number names no socket, or the address belongs to another kernel, the result is
/// [`SocketAttempt::Failed`]. The kind in the latter case is
/// [`ErrorKind::WrongKernel`](crate::types::error::ErrorKind::WrongKernel).
pub(crate) trait Sockets: Send + Sync {
    /// Makes sure that no accept and no connect of the socket blocks from now on.
    ///
    /// The port calls it before the first accept or connect. The other calls here never block,
    /// whatever mode was set.
    fn make_nonblocking(&self, descriptor: Descriptor) -> Result<(), Fault>;

    /// Returns how the socket carries bytes. The answer may be kept.
    fn transport(&self, descriptor: Descriptor) -> Transport;

    /// Opens a stream socket that can be connected to `address`.
    ///
    /// It is non-blocking, and closed in programs that the process executes.
    fn open_stream(&self, address: &Address) -> Result<OwnedSource, Fault>;

    /// Takes a connection from a listener's queue, and the address of its peer if available.
    ///
    /// The connection is non-blocking, and other programs do not inherit it. The address is missing
    /// if the peer has none that an [`Address`] can represent.
    ///
    /// Skips a connection that the system reports as aborted in the queue. Some systems, Linux
    /// among them, return it anyway; then the first receive on it fails.
    fn accept(&self, descriptor: Descriptor) -> SocketAttempt<(OwnedSource, Option<Address>)>;

    /// Starts to connect.
    ///
    /// Returns [`SocketAttempt::Blocked`] if the connect is under way: after the next edge
    /// [`Sockets::end_connect`] returns its result. A datagram socket is connected immediately.
    ///
    /// Fails for a stream that is already connected, or that has an earlier connect under way:
    /// neither counts as this one. If an earlier connect has failed, and nothing has asked for its
    /// result, the system may report that first.
    fn begin_connect(&self, descriptor: Descriptor, address: &Address) -> SocketAttempt<()>;

    /// Returns the result of a connect that was under way.
    ///
    /// [`SocketAttempt::Blocked`] while it still is. A failure is reported once. A stream that
    /// turns out to be connected to itself counts as refused.
    fn end_connect(&self, descriptor: Descriptor) -> SocketAttempt<()>;

    /// Aborts a connect for which [`Sockets::begin_connect`] returned [`SocketAttempt::Blocked`].
    ///
    /// The connect may still be under way or have ended. Afterwards the socket is not connected,
    /// and can be connected again. False: the system has no call for that, and the connect
    /// continues.
    fn abandon_connect(&self, descriptor: Descriptor) -> bool;

    /// Receives into `room`, part after part, at most one datagram.
    ///
    /// If there is no room at all, the receive is done as soon as anything can be received,
    /// including the end of a stream. It then consumes nothing except an error.
    ///
    /// `transport` is the answer of [`Sockets::transport`]. [`Transport::Messages`] is correct for
    /// every socket, but costs more. If there are more than [`PARTS`] parts, a stream fills the
    /// first ones, and messages are refused.
    fn receive(
        &self,
        descriptor: Descriptor,
        transport: Transport,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> SocketAttempt<Received>;

    /// Receives like [`Sockets::receive`], and returns the sender's address.
    ///
    /// The address is missing if the sender has none that an [`Address`] can represent.
    fn receive_from(
        &self,
        descriptor: Descriptor,
        transport: Transport,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> SocketAttempt<(Received, Option<Address>)>;

    /// Whether the program has shut down the reading half, where an attempt does not report that.
    ///
    /// On Linux this concerns `AF_UNIX` listeners and datagram sockets: an accept or a receive that
    /// finds nothing returns [`SocketAttempt::Blocked`], since shutting down ends only calls that
    /// block. False where an attempt reports it.
    fn has_shut_reading(&self, descriptor: Descriptor) -> bool;

    /// Sends `parts`, or as much as there is room for, to `address` or the socket's peer.
    ///
    /// Raises no signal. Sends a datagram completely or not at all. Without any bytes, a datagram
    /// socket sends an empty datagram, and a stream does nothing.
    ///
    /// If there are more than [`PARTS`] parts, a stream sends some of the first ones, and messages
    /// are refused.
    fn send(
        &self,
        descriptor: Descriptor,
        parts: &[&[u8]],
        address: Option<&Address>,
    ) -> SocketAttempt<usize>;

    /// Receives as [`Sockets::receive_from`] does, with one call as many datagrams as it takes, into
    /// free slots, of which there is at least one. Done, it has received at least one datagram.
    ///
    /// Returns whether it found the socket empty, or an error that came during the call. `None` if
    /// the system has no such call.
    fn receive_many(
        &self,
        descriptor: Descriptor,
        datagrams: &mut Datagrams,
    ) -> Option<SocketAttempt<bool>> {
        let _ = (descriptor, datagrams);
        None
    }

    /// Sends as [`Sockets::send`] does, with one call as many datagrams as it takes, and removes
    /// those that were sent. There is at least one. Done, it has sent at least one.
    ///
    /// `None` if the system has no such call.
    fn send_many(
        &self,
        descriptor: Descriptor,
        datagrams: &mut Datagrams,
    ) -> Option<SocketAttempt<()>> {
        let _ = (descriptor, datagrams);
        None
    }

    /// Returns what performs operations whose attempts returned [`SocketAttempt::NeedsSystem`].
    ///
    /// `None` if attempts never return that.
    fn socket_requests(&self) -> Option<&dyn Submit<SocketTarget>> {
        None
    }
}
