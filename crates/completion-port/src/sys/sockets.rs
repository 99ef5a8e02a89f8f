//! What a port asks of a system about operations on sockets: to try one at this moment. No call here ever
//! waits.
//!
//! The port decides when something is tried. A [`Sockets`] translates one attempt into system calls, and
//! their results into an [`Attempt`].

use std::mem::MaybeUninit;

use crate::address::Address;
use crate::source::OwnedSource;
use crate::state::facts::{Descriptor, Fault};

/// What an attempt has come to.
#[derive(Debug)]
pub(crate) enum Attempt<T> {
    /// The operation is done.
    Done(T),
    /// It would have to wait. An edge of the operation's direction tells when the next attempt is worth while.
    Blocked,
    /// It would have to wait for what no edge tells of: a descriptor, memory, room in the queue of a listener
    /// of `AF_UNIX`. Nothing is lost by that.
    Scarce,
    /// It has failed.
    Failed(Fault),
}

/// What a receive has brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    /// How many bytes were put into the buffer, from its beginning. 0 at the end of a stream.
    pub(crate) len: usize,
    /// A datagram was longer than the buffer; the rest of it is gone.
    pub(crate) is_cut: bool,
}

/// Sockets of one kernel. Any thread may call it at any time.
pub(crate) trait Sockets: Send + Sync {
    /// From now on no accept and no connect of the socket waits. The other calls here never do, whatever
    /// was set.
    fn make_nonblocking(&self, descriptor: Descriptor) -> Result<(), Fault>;

    /// A new stream socket that can be connected to `address`. It does not wait, and is closed in programs
    /// that the process executes.
    fn open_stream(&self, address: &Address) -> Result<OwnedSource, Fault>;

    /// Takes a connection from a listener's queue, which is not inherited by other programs and does not
    /// wait; and the address of its peer, where it has one. A connection that was given up by its peer while
    /// it stood in the queue is passed over.
    fn accept(&self, descriptor: Descriptor) -> Attempt<(OwnedSource, Option<Address>)>;

    /// Begins to connect. [`Attempt::Blocked`] if that is under way: after the next edge
    /// [`Sockets::end_connect`] tells.
    fn begin_connect(&self, descriptor: Descriptor, address: &Address) -> Attempt<()>;

    /// What a connect that was under way has come to. A stream that turns out to be connected to itself was
    /// refused.
    fn end_connect(&self, descriptor: Descriptor) -> Attempt<()>;

    /// Receives into `room`, part after part, at most one datagram. If there is no room at all, this is done
    /// as soon as something could be received, and takes nothing.
    fn receive(
        &self,
        descriptor: Descriptor,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> Attempt<Received>;

    /// The same, and the sender's address, if it has one.
    fn receive_from(
        &self,
        descriptor: Descriptor,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> Attempt<(Received, Option<Address>)>;

    /// Sends `parts`, or as much of them as there is room for, to `address` or the socket's peer. Raises no
    /// signal.
    fn send(
        &self,
        descriptor: Descriptor,
        parts: &[&[u8]],
        address: Option<&Address>,
    ) -> Attempt<usize>;

    /// Whether a receive that brings fewer bytes than there was room for has left nothing behind. True of TCP;
    /// false where the system does not tell.
    fn is_drained_by_short_receive(&self, descriptor: Descriptor) -> bool;
}
