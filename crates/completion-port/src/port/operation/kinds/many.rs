//! Receiving and sending many datagrams.

use super::OperationKind;
use crate::backend::sockets::{Received, Rest, SocketAttempt};
use crate::port::operation::attempt::AttemptTarget;
use crate::port::operation::data::Progress;
use crate::port::operation::{Detail, Kind, OpId, Operation, Outcome};
use crate::port::token::Ready;
use crate::sys::codes;
use crate::types::address::Address;
use crate::types::buffer::Buffer;
use crate::types::datagrams::transfer::{End, Send, receive, send};
use crate::types::datagrams::{Facts, SHARE};
use crate::types::error::{Call, ErrorKind, Fault, Refused, Result};
use crate::types::interest::Direction;

impl<B: Buffer> Operation<B> {
    /// Receives datagrams with their senders into [`Datagrams`](crate::Datagrams), as many as have
    /// arrived and as there are slots for, at most 512.
    ///
    /// Removes the datagrams that are in the buffer. So after a cancel, even of an operation that was
    /// never tried, there are none.
    ///
    /// It completes as soon as one is there, with [`Outcome::ReceivedMany`]. One that was longer than
    /// its slot is no failure; [`Datagram::is_truncated`](crate::Datagram::is_truncated) reports it.
    /// If the operation fails after it has received some, they are in the buffer, and
    /// [`Error::transferred`] is their number. A cancelled operation has received none.
    ///
    /// If the buffer has no [`Datagrams`](crate::Datagrams), or the socket carries a stream, the
    /// outcome is a failure.
    ///
    /// # Platform notes
    ///
    /// Linux: [recvmmsg(2)](https://man7.org/linux/man-pages/man2/recvmmsg.2.html), for 32 datagrams
    /// at a time. Other systems receive one at a time. The end of a `SOCK_SEQPACKET` connection
    /// fills the other slots with empty datagrams.
    ///
    /// [`Error::transferred`]: crate::Error::transferred
    pub fn recv_many(mut buffer: B) -> Self {
        if let Some(datagrams) = buffer.datagrams() {
            datagrams.begin_receive();
        }
        Self::new(Kind::ReceiveMany, Some(buffer), Detail::None)
    }

    /// Sends all [`Datagrams`](crate::Datagrams) of the buffer in order. No other send on the socket
    /// comes in between.
    ///
    /// It completes when all are sent, with [`Outcome::SentMany`]. Each one that is sent leaves the
    /// buffer, so a buffer is never sent twice. If the operation fails, is cancelled, or times out,
    /// [`Error::transferred`] is the number of those sent, and the others are in the buffer, the one
    /// that failed first. If only some segments of one were sent, the others are left of it.
    ///
    /// If the buffer has no [`Datagrams`](crate::Datagrams), or the socket carries a stream, the
    /// outcome is a failure.
    ///
    /// # Platform notes
    ///
    /// Linux: [sendmmsg(2)](https://man7.org/linux/man-pages/man2/sendmmsg.2.html), for 32 datagrams
    /// at a time, and for segments `UDP_SEGMENT` of [udp(7)](https://man7.org/linux/man-pages/man7/udp.7.html).
    /// An error that an earlier datagram has caused, such as a refused one, may go unnoticed if the
    /// call finds it after its first datagram. Other systems send one at a time.
    ///
    /// [`Error::transferred`]: crate::Error::transferred
    pub fn send_many(buffer: B) -> Self {
        Self::new(Kind::SendMany, Some(buffer), Detail::None)
    }
}

impl<K, B: Buffer> Ready<'_, K, B> {
    /// Starts [`Operation::recv_many`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    ///
    /// # Examples
    ///
    /// See [`Datagrams`](crate::Datagrams).
    pub fn recv_many(self, buffer: B) -> Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::recv_many(buffer))
    }

    /// Starts [`Operation::send_many`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    ///
    /// # Examples
    ///
    /// See [`Datagrams`](crate::Datagrams).
    pub fn send_many(self, buffer: B) -> Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::send_many(buffer))
    }
}

/// The failure of an operation whose buffer has no datagrams, or whose socket carries none.
fn refused() -> SocketAttempt<Rest> {
    SocketAttempt::Failed(Fault { kind: ErrorKind::Other, code: Some(codes::EOPNOTSUPP) })
}

/// Converts an attempt. What the system could perform waits for an edge instead.
fn result<T>(attempt: SocketAttempt<T>) -> Result<T, SocketAttempt<Rest>> {
    match attempt {
        SocketAttempt::Done(value) => Ok(value),
        SocketAttempt::NeedsSystem => Err(SocketAttempt::Blocked),
        other => Err(other.map(|_| Rest::Unknown)),
    }
}

fn message((received, address): (Received, Option<Address>)) -> (usize, Facts) {
    let Received { len, is_cut } = received;
    (len, Facts { address, is_truncated: is_cut, ..Facts::default() })
}

pub(super) struct ReceiveMany;

impl OperationKind for ReceiveMany {
    const CALL: Call = Call::Receive;
    const DIRECTION: Direction = Direction::In;
    const AWAITS_EDGE: bool = true;
    const FILLS: bool = true;

    #[inline(never)]
    fn attempt<B: Buffer>(
        operation: &mut Operation<B>,
        progress: &mut Progress,
        target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        let transport = target.transport();
        let Some(datagrams) = operation.buffer_mut().datagrams() else { return refused() };
        if transport.is_stream() {
            return refused();
        }
        let (system, descriptor) = (target.system(), target.descriptor);
        let done = receive(
            datagrams,
            |datagrams| system.receive_many(descriptor, datagrams).map(result),
            |room| result(system.receive_from(descriptor, transport, &mut [room])).map(message),
            |attempt| match attempt {
                SocketAttempt::Blocked => End::Drained,
                SocketAttempt::Failed(_) => End::Failed,
                _ => End::Unknown,
            },
        );
        progress.len = datagrams.len();
        match done {
            Ok(()) if datagrams.is_drained() => SocketAttempt::Done(Rest::Nothing),
            Ok(()) => SocketAttempt::Done(Rest::Unknown),
            Err(attempt) => attempt,
        }
    }

    fn outcome<B>(
        operation: &mut Operation<B>,
        _progress: &mut Progress,
        result: Result<usize>,
    ) -> Outcome<B> {
        Outcome::ReceivedMany(result, operation.take_buffer())
    }
}

pub(super) struct SendMany;

impl OperationKind for SendMany {
    const CALL: Call = Call::Send;
    const DIRECTION: Direction = Direction::Out;
    const AWAITS_EDGE: bool = true;

    #[inline(never)]
    fn attempt<B: Buffer>(
        operation: &mut Operation<B>,
        progress: &mut Progress,
        target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        let is_stream = target.transport().is_stream();
        let Some(datagrams) = operation.buffer_mut().datagrams() else { return refused() };
        if is_stream {
            return refused();
        }
        let (system, descriptor) = (target.system(), target.descriptor);
        let before = datagrams.len();
        let done = send(
            datagrams,
            SHARE,
            |datagrams| system.send_many(descriptor, datagrams).map(result),
            |bytes, to| result(system.send(descriptor, &[bytes], to)),
        );
        progress.len += before - datagrams.len();
        match done {
            Ok(Send::All) => SocketAttempt::Done(Rest::Unknown),
            Ok(Send::Share) => SocketAttempt::Yielded,
            Err(attempt) => attempt,
        }
    }

    fn outcome<B>(
        operation: &mut Operation<B>,
        _progress: &mut Progress,
        result: Result<usize>,
    ) -> Outcome<B> {
        Outcome::SentMany(result, operation.take_buffer())
    }
}
