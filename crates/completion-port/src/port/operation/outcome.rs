//! The result of an operation.

use crate::port::operation::OpId;
use crate::types::address::Address;
use crate::types::error::{Error, Result};
use crate::types::source::OwnedSource;

/// What has become of an operation.
///
/// An error comes with its code ([`Error::os_code`]), and tells how much was sent, written or read before
/// ([`Error::transferred`]). [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled): the operation was cancelled, or its registration removed,
/// or the port closed. [`ErrorKind::TimedOut`](crate::ErrorKind::TimedOut): its deadline was over.
#[derive(Debug)]
#[non_exhaustive]
pub enum Outcome<B = Vec<u8>> {
    /// Of [`Operation::accept`](crate::Operation::accept): the connection, and where its peer is reached, if that has an address.
    Accepted(Result<(OwnedSource, Option<Address>)>),
    /// Of [`Operation::connect`](crate::Operation::connect).
    Connected(Result<()>),
    /// Of [`Operation::recv`](crate::Operation::recv): how many bytes, 0 at the end of a stream, and the buffer. A datagram that was
    /// longer than the buffer is an error of kind [`ErrorKind::Truncated`](crate::ErrorKind::Truncated), and its beginning is in the buffer.
    Received(Result<usize>, B),
    /// Of [`Operation::recv_from`](crate::Operation::recv_from): the same, and the sender's address, if it has one.
    ReceivedFrom(Result<(usize, Option<Address>)>, B),
    /// Of [`Operation::send`](crate::Operation::send), [`Operation::send_all`](crate::Operation::send_all) and [`Operation::send_to`](crate::Operation::send_to): how many bytes, and the
    /// buffer.
    Sent(Result<usize>, B),
    /// Of [`Operation::read_at`](crate::Operation::read_at): how many bytes, and the buffer. Fewer than there is room for if the file ends
    /// there, and 0 at its end.
    Read(Result<usize>, B),
    /// Of [`Operation::write_at`](crate::Operation::write_at): how many bytes, which are all, and the buffer.
    Written(Result<usize>, B),
    /// Of [`Operation::sync_data`](crate::Operation::sync_data) and [`Operation::sync_all`](crate::Operation::sync_all).
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

/// What [`Ready::start_now`](crate::Ready::start_now) or [`Port::start_now`](crate::Port::start_now) has come to.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "there is no third way")]
pub enum Started<T> {
    /// The operation has ended at once: there is no packet.
    Completed(T),
    /// It is in flight, and completes by a packet.
    InFlight(OpId),
}
