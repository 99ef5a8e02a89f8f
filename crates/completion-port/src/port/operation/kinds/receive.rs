//! Receiving from a socket, with or without the sender's address.

use std::mem::MaybeUninit;

use super::OperationKind;
use crate::backend::sockets::{PARTS, Received, Rest, SocketAttempt, SocketKind, Transport};
use crate::port::operation::attempt::AttemptTarget;
use crate::port::operation::data::{Bytes, Progress};
use crate::port::operation::{Detail, Kind, OpId, Operation, Outcome};
use crate::port::token::Ready;
use crate::types::buffer::{Buffer, with_room};
use crate::types::error::{Call, Refused, Result};
use crate::types::interest::Direction;

impl<B> Operation<B> {
    /// Receives some bytes, or one datagram, up to the room of the buffer.
    ///
    /// A buffer without room waits until something can be received, and takes nothing;
    /// [`Outcome::is_end`] tells that from the end of a stream. If the
    /// program shuts down the reading half of the socket, the operation ends with 0 bytes once no
    /// unread data is left, even on a datagram socket.
    ///
    /// # Platform notes
    ///
    /// `ENOBUFS` ([`Error::os_code`](crate::Error::os_code)) reports that the kernel has dropped
    /// messages, because a netlink socket on Linux or a routing socket on a BSD was not read fast
    /// enough. Later receives return the messages that it has kept.
    pub fn recv(buffer: B) -> Self {
        Self::new(Kind::Receive, Some(buffer), Detail::None)
    }

    /// Receives one datagram, and reports its sender.
    pub fn recv_from(buffer: B) -> Self {
        Self::new(Kind::ReceiveFrom, Some(buffer), Detail::None)
    }
}

impl<K, B: Buffer> Ready<'_, K, B> {
    /// Starts [`Operation::recv`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn recv(self, buffer: B) -> Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::recv(buffer))
    }

    /// Starts [`Operation::recv_from`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn recv_from(self, buffer: B) -> Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::recv_from(buffer))
    }
}

pub(super) struct Receive;

impl OperationKind for Receive {
    const CALL: Call = Call::Receive;
    const DIRECTION: Direction = Direction::In;
    const AWAITS_EDGE: bool = true;
    const FILLS: bool = true;
    const BYTES: Option<Bytes> = Some(Bytes::Received);
    const ON_SOCKET: Option<SocketKind> = Some(SocketKind::Receive);

    #[allow(clippy::inline_always, reason = "a part of an attempt")]
    #[inline(always)]
    fn attempt<B: Buffer>(
        operation: &mut Operation<B>,
        progress: &mut Progress,
        target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        let transport = target.transport();
        receive_into(operation.buffer_mut(), progress, transport, |room| {
            target.system().receive(target.descriptor, transport, room)
        })
    }

    fn outcome<B>(
        operation: &mut Operation<B>,
        _progress: &mut Progress,
        result: Result<usize>,
    ) -> Outcome<B> {
        Outcome::Received(result, operation.take_buffer())
    }
}

pub(super) struct ReceiveFrom;

impl OperationKind for ReceiveFrom {
    const CALL: Call = Call::Receive;
    const DIRECTION: Direction = Direction::In;
    const AWAITS_EDGE: bool = true;
    const FILLS: bool = true;
    const ON_SOCKET: Option<SocketKind> = Some(SocketKind::ReceiveFrom);

    #[inline(never)]
    fn attempt<B: Buffer>(
        operation: &mut Operation<B>,
        progress: &mut Progress,
        target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        let mut sender = None;
        let (buffer, transport) = (operation.buffer_mut(), target.transport());
        let attempt = receive_into(buffer, progress, transport, |room| {
            let attempt = target.system().receive_from(target.descriptor, transport, room);
            attempt.map(|(received, address)| {
                sender = address;
                received
            })
        });
        if let SocketAttempt::Done(_) = attempt {
            operation.detail = Detail::of(sender);
        }
        attempt
    }

    fn outcome<B>(
        operation: &mut Operation<B>,
        _progress: &mut Progress,
        result: Result<usize>,
    ) -> Outcome<B> {
        let sender = operation.detail.take_address();
        Outcome::ReceivedFrom(result.map(|len| (len, sender)), operation.take_buffer())
    }
}

/// Fills the buffer with `receive`, a call of the back end.
#[allow(clippy::inline_always, reason = "a part of an attempt")]
#[inline(always)]
fn receive_into<B: Buffer>(
    buffer: &mut B,
    progress: &mut Progress,
    transport: Transport,
    receive: impl FnOnce(&mut [&mut [MaybeUninit<u8>]]) -> SocketAttempt<Received>,
) -> SocketAttempt<Rest> {
    let receive = move |parts: &mut [&mut [_]], all| {
        let room = room_of(parts, all);
        (receive(parts), room)
    };
    // SAFETY: `with_room` requires that only initialized bytes are written to the parts.
    // - only a back end writes to them, and writes bytes that it has received.
    let (attempt, room) = unsafe { with_room(buffer, receive) };
    let SocketAttempt::Done(Received { len, is_cut }) = attempt else {
        return attempt.map(|_| Rest::Unknown);
    };
    // SAFETY: `set_filled` requires that the first bytes of the room are initialized, and that the
    // buffer is as it was.
    // - initialized: the system reports that it has written that many, from the beginning of these
    //   parts;
    // - as it was: the buffer was not moved, and nothing else has been called since.
    unsafe { buffer.set_filled(len) };
    (progress.len, progress.is_cut) = (len, is_cut);
    // Only the next attempt shows whether a stream has ended.
    if len > 0 && len < room && transport.is_drained_by_short_receive() {
        SocketAttempt::Done(Rest::Nothing)
    } else {
        SocketAttempt::Done(Rest::Unknown)
    }
}

/// Returns how much of the room in these parts, `all` in total, a system call fills at most. The
/// call uses only the first `PARTS` parts, and is full when they are.
#[inline]
fn room_of(parts: &[&mut [MaybeUninit<u8>]], all: usize) -> usize {
    match parts.get(..PARTS) {
        Some(first) if parts.len() > PARTS => first.iter().map(|part| part.len()).sum(),
        _ => all,
    }
}
