//! The result of an operation.

use crate::port::operation::OpId;
use crate::types::address::Address;
use crate::types::buffer::Buffer;
use crate::types::error::{Error, Result};
use crate::types::source::OwnedSource;

/// The outcome of an operation.
///
/// An error has the system's code ([`Error::os_code`]), and the number of bytes that were sent,
/// written or read before it ([`Error::transferred`]), or of datagrams.
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
    /// Of [`Operation::recv`](crate::Operation::recv): the number of bytes, and the buffer. 0 means
    /// the end of a stream, unless the buffer has no room ([`Outcome::is_end`]). A datagram longer
    /// than the buffer is an error of kind [`ErrorKind::Truncated`](crate::ErrorKind::Truncated),
    /// and the buffer contains its beginning.
    Received(Result<usize>, B),
    /// Of [`Operation::recv_from`](crate::Operation::recv_from): the number of bytes and the
    /// sender's address if it has one, and the buffer.
    ReceivedFrom(Result<(usize, Option<Address>)>, B),
    /// Of [`Operation::send`](crate::Operation::send),
    /// [`Operation::send_all`](crate::Operation::send_all) and
    /// [`Operation::send_to`](crate::Operation::send_to): the number of bytes, and the buffer.
    Sent(Result<usize>, B),
    /// Of [`Operation::recv_many`](crate::Operation::recv_many): the number of datagrams, and the
    /// buffer with them.
    ReceivedMany(Result<usize>, B),
    /// Of [`Operation::send_many`](crate::Operation::send_many): the number of datagrams, which is
    /// all of them, and the buffer without them.
    SentMany(Result<usize>, B),
    /// Of [`Operation::read_at`](crate::Operation::read_at): the number of bytes, and the buffer.
    /// Fewer bytes than there is room for mean that the file ends there ([`Outcome::is_end`] if
    /// there are none).
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
            | Self::ReceivedMany(result, _)
            | Self::SentMany(result, _)
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
            | Self::ReceivedMany(_, buffer)
            | Self::SentMany(_, buffer)
            | Self::Read(_, buffer)
            | Self::Written(_, buffer) => Some(buffer),
        }
    }
}

impl<B: Buffer> Outcome<B> {
    /// Returns whether a receive has found the end of its stream, or a read the end of its file: it
    /// has brought no bytes, although its buffer has room.
    ///
    /// A buffer without room brings no bytes either, which says nothing about an end: the receive
    /// has waited until there was something to receive, or the end. Another receive, with room,
    /// shows which. On a datagram socket, no bytes are an empty datagram, and this method reports
    /// only whether there was room for more.
    ///
    /// It calls [`Buffer::room`], which may discard the contents of a buffer. There are none, since
    /// no bytes came.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, Outcome, Packet, Port};
    /// use std::io::Write;
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// let port = Port::<TcpStream>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let near = TcpStream::connect(listener.local_addr()?)?;
    /// let (mut far, _) = listener.accept()?;
    /// let outcome_of = |port: &Port<TcpStream>| {
    ///     let mut batch = Batch::new();
    ///     let packet = port.wait(&mut batch, None)?.next();
    ///     let Some(Packet::Completed(done)) = packet else { panic!() };
    ///     let (token, outcome) = done.into_parts();
    ///     Ok::<_, completion_port::Error>((token.into_key(), outcome))
    /// };
    ///
    /// port.associate(near)?.recv(Vec::new())?; // waits until there is something
    /// far.write_all(b"x")?;
    /// let (near, mut outcome) = outcome_of(&port)?;
    /// assert!(matches!(outcome, Outcome::Received(Ok(0), _)) && !outcome.is_end());
    ///
    /// port.associate(near)?.recv(vec![0; 16])?;
    /// let (near, mut outcome) = outcome_of(&port)?;
    /// assert!(matches!(outcome, Outcome::Received(Ok(1), _)) && !outcome.is_end());
    ///
    /// drop(far);
    /// port.associate(near)?.recv(vec![0; 16])?;
    /// assert!(outcome_of(&port)?.1.is_end());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn is_end(&mut self) -> bool {
        let (Self::Received(Ok(0), buffer)
        | Self::ReceivedFrom(Ok((0, _)), buffer)
        | Self::Read(Ok(0), buffer)) = self
        else {
            return false;
        };
        let mut has_room = false;
        // SAFETY: `room` requires that only initialized bytes are written to the parts.
        // - nothing is written.
        unsafe { buffer.room(&mut |part| has_room |= !part.is_empty()) };
        has_room
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
