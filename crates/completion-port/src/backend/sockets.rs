//! What a port asks of a system about operations on sockets: to try one at this moment. No call here ever
//! waits.
//!
//! The port decides when something is tried. A [`Sockets`] translates one attempt into system calls, and
//! their results into an [`Attempt`]. A call that a signal ended is repeated.
//!
//! A system that completes operations by itself is handed what would have to wait, as a [`Transfer`] with the memory that
//! it needs. As long as the system has it, the memory is the system's.

use std::fmt;
use std::mem::MaybeUninit;

use crate::types::address::Address;
use crate::types::error::Fault;
use crate::types::io_buffer::Loan;
use crate::types::source::Descriptor;
use crate::types::source::OwnedSource;

/// The most parts of a list that one receive or send looks at, those without bytes not counted.
pub(crate) const PARTS: usize = 1024;

/// What an attempt has come to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Attempt<T> {
    /// The operation is done.
    Done(T),
    /// It would have to wait. The next attempt is worth while after an edge of the operation's direction that
    /// comes later than this attempt began: OUT for a connect and a send, IN for the others. An end or an
    /// error counts for both.
    Blocked,
    /// It would have to wait, and the system can do it by itself meanwhile: it is to be handed over, by
    /// [`Sockets::hand_over`].
    #[allow(dead_code, reason = "for systems that complete operations by themselves")]
    Carried,
    /// It would have to wait for what no edge tells of: a descriptor, memory, room in the queue of a listener
    /// or of a receiver of `AF_UNIX`. Nothing is lost by that. It is to be tried again when some time has
    /// passed.
    Scarce,
    /// It has used its share of the thread's time and can continue: it does so when other operations have had theirs.
    Yielded,
    /// It has failed.
    Failed(Fault),
}

impl<T> Attempt<T> {
    #[inline]
    pub(crate) fn map<R>(self, map: impl FnOnce(T) -> R) -> Attempt<R> {
        match self {
            Self::Done(value) => Attempt::Done(map(value)),
            Self::Blocked => Attempt::Blocked,
            Self::Carried => Attempt::Carried,
            Self::Scarce => Attempt::Scarce,
            Self::Yielded => Attempt::Yielded,
            Self::Failed(fault) => Attempt::Failed(fault),
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

/// What the system is to do by itself with a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// To win a connection.
    Accept,
    /// To connect to [`Transfer::address`].
    Connect,
    /// To fill the loan with what comes.
    Receive,
    /// The same, and to tell where from.
    ReceiveFrom,
    /// To send some of the loan, or one datagram.
    Send,
    /// To send all of the loan.
    SendAll,
}

/// An operation that the system carries out by itself, until it comes back.
pub(crate) struct Transfer {
    /// No other transfer of its port has it as long as this one is about. An edge with this name tells that it can be
    /// [brought back](Sockets::bring_back).
    pub(crate) name: u64,
    pub(crate) descriptor: Descriptor,
    pub(crate) ask: Ask,
    /// Where it is to go; or where from it came.
    pub(crate) address: Option<Address>,
    /// The buffer, if there is one. Its parts are those that are left.
    pub(crate) loan: Option<Loan>,
    /// How many bytes were sent or received so far.
    pub(crate) done: usize,
    /// A datagram was longer than the loan.
    pub(crate) is_cut: bool,
    /// The connection that was won. It does not wait, and is not inherited by other programs.
    pub(crate) connection: Option<OwnedSource>,
    pub(crate) fault: Option<Fault>,
    /// It was recalled, or the system let go of it, before its end.
    pub(crate) is_called_off: bool,
    /// The system has not begun: the operation is to be tried again, and to wait for an edge if need be.
    pub(crate) is_declined: bool,
}

impl Transfer {
    /// So many more bytes were sent or received.
    #[allow(dead_code, reason = "for systems that complete operations by themselves")]
    pub(crate) fn advance(&mut self, len: usize) {
        self.done += len;
        if let Some(loan) = &mut self.loan {
            loan.advance(len);
        }
    }

    /// Whether nothing is left to be sent.
    #[allow(dead_code, reason = "for systems that complete operations by themselves")]
    pub(crate) fn is_complete(&self) -> bool {
        self.loan.as_ref().is_none_or(|loan| loan.parts().is_empty())
    }
}

impl fmt::Debug for Transfer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transfer")
            .field("name", &self.name)
            .field("descriptor", &self.descriptor)
            .field("ask", &self.ask)
            .field("done", &self.done)
            .finish_non_exhaustive()
    }
}

/// Sockets of one kernel. Any thread may call it at any time.
///
/// A number that names no socket is refused with an [`Attempt::Failed`], and so is an address of another
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
    fn accept(&self, descriptor: Descriptor) -> Attempt<(OwnedSource, Option<Address>)>;

    /// Begins to connect. [`Attempt::Blocked`] if that is under way: after the next edge
    /// [`Sockets::end_connect`] tells. A datagram socket is connected at once.
    ///
    /// A stream that is connected already is refused, and so is one with an earlier connect under way: neither counts as
    /// this one. Where an earlier one has failed, and nothing has asked for its outcome, the system may tell that first.
    fn begin_connect(&self, descriptor: Descriptor, address: &Address) -> Attempt<()>;

    /// What a connect that was under way has come to; [`Attempt::Blocked`] while it still is. A failure is
    /// told once. A stream that turns out to be connected to itself was refused.
    fn end_connect(&self, descriptor: Descriptor) -> Attempt<()>;

    /// Gives up a connect for which [`Sockets::begin_connect`] has said [`Attempt::Blocked`], whether it is still under
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
    ) -> Attempt<Received>;

    /// The same, and the sender's address, if it has one that an [`Address`] can say.
    fn receive_from(
        &self,
        descriptor: Descriptor,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> Attempt<(Received, Option<Address>)>;

    /// Whether the program has shut the reading half, though an accept or a receive that finds nothing would have to wait
    /// ([`Attempt::Blocked`]): so do listeners of `AF_UNIX` and sockets for datagrams on Linux, where only a call that waits
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
    ) -> Attempt<usize>;

    /// Hands an operation over, of which an attempt has said [`Attempt::Carried`]. No system call is made: the caller may
    /// have a lock. [`Sockets::begin`] follows.
    fn hand_over(&self, transfer: Transfer) {
        unreachable!("{transfer:?} is carried out by no system that has not said so");
    }

    /// Has what was handed over begun. The caller has no lock, and what was begun may come back before this returns.
    fn begin(&self) {}

    /// Asks for an operation that was handed over. `Some`: it had not been begun, and is the caller's again. `None`: an
    /// edge tells of its end, or has done so; the system was asked to let go of it. It does not wait, and calls
    /// nothing of the port: the caller may have locks.
    fn recall(&self, name: u64) -> Option<Transfer> {
        let _ = name;
        None
    }

    /// An operation that was handed over, and of whose end an edge has told the caller.
    fn bring_back(&self, name: u64) -> Option<Transfer> {
        let _ = name;
        None
    }
}
