//! The result of an operation.

use crate::port::operation::OpId;
use crate::types::address::Address;
use crate::types::error::{Error, Result};
use crate::types::source::OwnedSource;

/// The outcome of an operation.
///
/// An error has the system's code ([`Error::os_code`]), and the number of bytes that were sent,
/// written or read before it ([`Error::transferred`]).
/// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) means that the operation was cancelled,
/// its registration removed, or the port closed.
/// [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut) means that its deadline has passed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<B = Vec<u8>> {
    /// Of [`Operation::accept`](crate::Operation::accept): the connection, and the peer's address
    /// if it has one.
    Accepted(Result<(OwnedSource, Option<Address>)>),
    /// Of [`Operation::connect`](crate::Operation::connect).
    Connected(Result<()>),
    /// Of [`Operation::recv`](crate::Operation::recv): the number of bytes, 0 at the end of a
    /// stream, and the buffer. A datagram longer than the buffer is an error of kind
    /// [`ErrorKind::Truncated`](crate::ErrorKind::Truncated), and the buffer contains its
    /// beginning.
    Received(Result<usize>, B),
    /// Of [`Operation::recv_from`](crate::Operation::recv_from): the number of bytes and the
    /// sender's address if it has one, and the buffer.
    ReceivedFrom(Result<(usize, Option<Address>)>, B),
    /// Of [`Operation::send`](crate::Operation::send),
    /// [`Operation::send_all`](crate::Operation::send_all) and
    /// [`Operation::send_to`](crate::Operation::send_to): the number of bytes, and the buffer.
    Sent(Result<usize>, B),
    /// Of [`Operation::read_at`](crate::Operation::read_at): the number of bytes, and the buffer.
    /// Fewer bytes than there is room for mean that the file ends there; 0 means that the read
    /// began at its end.
    Read(Result<usize>, B),
    /// Of [`Operation::write_at`](crate::Operation::write_at): the number of bytes, which is all of
    /// them, and the buffer.
    Written(Result<usize>, B),
    /// Of [`Operation::sync_data`](crate::Operation::sync_data) and
    /// [`Operation::sync_all`](crate::Operation::sync_all).
    Synced(Result<()>),
}

impl<B> Outcome<B> {
    /// Returns why the operation has failed, if it has.
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

    /// Consumes the outcome and returns the buffer, if the operation had one.
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

/// The result of [`Ready::start_now`](crate::Ready::start_now) or
/// [`Port::start_now`](crate::Port::start_now).
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "there is no third way")]
pub enum Started<T> {
    /// The operation has completed immediately, without a packet.
    Completed(T),
    /// The operation is in flight, and completes with a packet.
    InFlight(OpId),
}
