//! What a port asks of a system about operations on sockets: to try one at this moment. No call here ever
//! waits.
//!
//! The port decides when something is tried. A [`Sockets`] translates one attempt into system calls, and
//! their results into an [`SocketAttempt`]. A call that a signal ended is repeated.
//!
//! Where a system completes operations by itself, the port submits those that would block as requests.

use std::mem::MaybeUninit;

use super::request::{Submit, Target};
use crate::types::address::Address;
use crate::types::error::Fault;
use crate::types::source::Descriptor;
use crate::types::source::OwnedSource;

/// The most parts of a list that one receive or send looks at, those without bytes not counted.
pub(crate) const PARTS: usize = 1024;

/// What an attempt has come to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum SocketAttempt<T> {
    /// The operation is done.
    Done(T),
    /// It would have to wait. The next attempt is worth while after an edge of the operation's direction that
    /// comes later than this attempt began: OUT for a connect and a send, IN for the others. An end or an
    /// error counts for both.
    Blocked,
    /// It would block, and the system can complete it: the port submits it as a [`SocketRequest`].
    ///
    /// [`SocketRequest`]: super::request::SocketRequest
    #[allow(dead_code, reason = "for systems that complete operations by themselves")]
    NeedsSystem,
    /// It would have to wait for what no edge tells of: a descriptor, memory, room in the queue of a listener
    /// or of a receiver of `AF_UNIX`. Nothing is lost by that. It is to be tried again when some time has
    /// passed.
    OutOfResources,
    /// It has used its share of the thread's time and can continue: it does so when other operations have had theirs.
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

/// What an operation that is done has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rest {
    Unknown,
    /// Nothing but perhaps an end or an error.
    Nothing,
}

/// What a receive has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// How many bytes were put into the buffer, from its beginning. 0 at the end of a stream.
    pub(crate) len: usize,
    /// A datagram was longer than the buffer; the rest of it is gone.
    pub(crate) is_cut: bool,
}

/// How a socket carries bytes, as far as a receive depends on it. It stays the same for as long as the
/// socket is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// In datagrams or records, or the system does not tell. What a receive has no room for is gone.
    Messages = 0,
    /// As a stream.
    Stream = 1,
    /// As a stream, and a receive that brings fewer bytes than there was room for has left nothing behind
    /// but an end, an error or an urgent mark: TCP.
    DrainedStream = 2,
}

impl Transport {
    /// The one with this number.
    pub(crate) fn of(number: u8) -> Self {
        match number {
            0 => Self::Messages,
            1 => Self::Stream,
            _ => Self::DrainedStream,
        }
    }

    /// Whether no receive ever cuts anything off.
    pub(crate) fn is_stream(self) -> bool {
        self != Self::Messages
    }

    /// Whether a receive that brings fewer bytes than there was room for has left no data behind.
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
    /// The system has not started the operation. The port retries it, and waits for an edge if necessary.
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

/// Sockets of one kernel. Any thread may call it at any time.
///
/// A number that names no socket is refused with an [`SocketAttempt::Failed`], and so is an address of another
/// kernel ([`ErrorKind::WrongKernel`](crate::types::error::ErrorKind::WrongKernel)).
pub(crate) trait Sockets: Send + Sync {
    /// From now on no accept and no connect of the socket waits: it is asked for before the first of either.
    /// The other calls here never wait, whatever was set.
    fn make_nonblocking(&self, descriptor: Descriptor) -> Result<(), Fault>;

    /// How the socket carries bytes. The answer may be kept.
    fn transport(&self, descriptor: Descriptor) -> Transport;

    /// A new stream socket that can be connected to `address`. It does not wait, and is closed in programs
    /// that the process executes.
    fn open_stream(&self, address: &Address) -> Result<OwnedSource, Fault>;

    /// Takes a connection from a listener's queue, which is not inherited by other programs and does not
    /// wait; and the address of its peer, where it has one that an [`Address`] can say. A connection of which
    /// the system says that it was given up while it stood in the queue is passed over. Some systems, Linux
    /// among them, hand it out all the same: then the first receive on it fails.
    fn accept(&self, descriptor: Descriptor) -> SocketAttempt<(OwnedSource, Option<Address>)>;

    /// Begins to connect. [`SocketAttempt::Blocked`] if that is under way: after the next edge
    /// [`Sockets::end_connect`] tells. A datagram socket is connected at once.
    ///
    /// A stream that is connected already is refused, and so is one with an earlier connect under way: neither counts as
    /// this one. Where an earlier one has failed, and nothing has asked for its outcome, the system may tell that first.
    fn begin_connect(&self, descriptor: Descriptor, address: &Address) -> SocketAttempt<()>;

    /// What a connect that was under way has come to; [`SocketAttempt::Blocked`] while it still is. A failure is
    /// told once. A stream that turns out to be connected to itself was refused.
    fn end_connect(&self, descriptor: Descriptor) -> SocketAttempt<()>;

    /// Gives up a connect for which [`Sockets::begin_connect`] has said [`SocketAttempt::Blocked`], whether it is still under
    /// way or has come to an end: the socket is not connected afterwards, and can be connected again. False: the system
    /// has no call for that, and the connect continues.
    fn abandon_connect(&self, descriptor: Descriptor) -> bool;

    /// Receives into `room`, part after part, at most one datagram. If there is no room at all, this is done
    /// as soon as something could be received, the end of a stream included, and takes nothing but an error.
    ///
    /// The socket carries bytes as `transport` says, which is [`Sockets::transport`]'s answer;
    /// [`Transport::Messages`] is true of every socket, and costs more. Of more than [`PARTS`] parts a stream
    /// fills the first ones, and messages are refused.
    fn receive(
        &self,
        descriptor: Descriptor,
        transport: Transport,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> SocketAttempt<Received>;

    /// The same, and the sender's address, if it has one that an [`Address`] can say.
    fn receive_from(
        &self,
        descriptor: Descriptor,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> SocketAttempt<(Received, Option<Address>)>;

    /// Whether the program has shut the reading half, though an accept or a receive that finds nothing would have to wait
    /// ([`SocketAttempt::Blocked`]): so do listeners of `AF_UNIX` and sockets for datagrams on Linux, where only a call that waits
    /// ends by that. False where such an attempt tells by itself.
    fn has_shut_reading(&self, descriptor: Descriptor) -> bool;

    /// Sends `parts`, or as much of them as there is room for, to `address` or the socket's peer. Raises no
    /// signal. A datagram is sent as a whole or not at all. Without any byte, a datagram socket sends an empty
    /// datagram, and a stream does nothing.
    ///
    /// Of more than [`PARTS`] parts a stream sends some of the first ones, and messages are refused.
    fn send(
        &self,
        descriptor: Descriptor,
        parts: &[&[u8]],
        address: Option<&Address>,
    ) -> SocketAttempt<usize>;

    /// Performs the operations whose attempts returned [`SocketAttempt::NeedsSystem`]. `None` if no attempt does.
    fn socket_requests(&self) -> Option<&dyn Submit<SocketTarget>> {
        None
    }
}
