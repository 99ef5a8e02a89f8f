//! Sending on a socket: what there is room for, or all of a buffer.

use super::OperationKind;
use crate::backend::sockets::{Rest, SocketAttempt, SocketKind};
use crate::port::operation::attempt::AttemptTarget;
use crate::port::operation::data::{Bytes, Progress};
use crate::port::operation::{Detail, Kind, OpId, Operation, Outcome};
use crate::port::token::Ready;
use crate::types::address::Address;
use crate::types::buffer::{Buffer, with_filled};
use crate::types::error::{Call, Refused, Result};
use crate::types::interest::Direction;

impl<B> Operation<B> {
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
}

impl<K, B: Buffer> Ready<'_, K, B> {
    /// Starts [`Operation::send`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn send(self, buffer: B) -> Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::send(buffer))
    }

    /// Starts [`Operation::send_all`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn send_all(self, buffer: B) -> Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::send_all(buffer))
    }

    /// Starts [`Operation::send_to`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn send_to(
        self,
        buffer: B,
        address: impl Into<Address>,
    ) -> Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::send_to(buffer, address))
    }
}

pub(super) struct Send;

impl OperationKind for Send {
    const CALL: Call = Call::Send;
    const DIRECTION: Direction = Direction::Out;
    const AWAITS_EDGE: bool = true;
    const BYTES: Option<Bytes> = Some(Bytes::Sent);
    const ON_SOCKET: Option<SocketKind> = Some(SocketKind::Send);

    #[allow(clippy::inline_always, reason = "a part of an attempt")]
    #[inline(always)]
    fn attempt<B: Buffer>(
        operation: &mut Operation<B>,
        progress: &mut Progress,
        target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        let (buffer, address) = (operation.buffer_ref(), operation.detail.address());
        let attempt = with_filled(buffer, progress.len, |parts| {
            target.system().send(target.descriptor, parts, address)
        });
        attempt.map(|sent| {
            progress.len += sent;
            Rest::Unknown
        })
    }

    fn outcome<B>(
        operation: &mut Operation<B>,
        _progress: &mut Progress,
        result: Result<usize>,
    ) -> Outcome<B> {
        Outcome::Sent(result, operation.take_buffer())
    }
}

pub(super) struct SendAll;

impl OperationKind for SendAll {
    const CALL: Call = Call::Send;
    const DIRECTION: Direction = Direction::Out;
    const AWAITS_EDGE: bool = true;
    const BYTES: Option<Bytes> = Some(Bytes::Sent);
    const ON_SOCKET: Option<SocketKind> = Some(SocketKind::SendAll);

    /// Sends as long as there is room, until the buffer or its share is sent.
    #[allow(clippy::inline_always, reason = "a part of an attempt")]
    #[inline(always)]
    fn attempt<B: Buffer>(
        operation: &mut Operation<B>,
        progress: &mut Progress,
        target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        let begun = progress.len;
        // Mostly all that is left is no more than a share, and goes by one call.
        let (attempt, is_all) = with_filled(operation.buffer_ref(), begun, |parts| {
            let left = length(parts);
            if left > SHARE {
                return (SocketAttempt::Done(0), false);
            }
            let address = operation.detail.address();
            let attempt = target.system().send(target.descriptor, parts, address);
            let is_all = matches!(attempt, SocketAttempt::Done(sent) if sent >= left);
            (attempt, is_all)
        });
        match attempt {
            SocketAttempt::Done(sent) => progress.len += sent,
            other => return other.map(|_| Rest::Unknown),
        }
        if is_all {
            return SocketAttempt::Done(Rest::Unknown);
        }
        send_shares(operation, progress, target, begun)
    }

    fn outcome<B>(
        operation: &mut Operation<B>,
        _progress: &mut Progress,
        result: Result<usize>,
    ) -> Outcome<B> {
        Outcome::Sent(result, operation.take_buffer())
    }
}

/// Goes on to send all of the buffer, which was `begun` after so many bytes, until its share is sent.
#[inline(never)]
fn send_shares<B: Buffer>(
    operation: &Operation<B>,
    progress: &mut Progress,
    target: AttemptTarget<'_>,
    begun: usize,
) -> SocketAttempt<Rest> {
    let mut calls = u32::from(progress.len > begun);
    let mut is_stream = None;
    loop {
        let (attempt, is_all) = with_filled(operation.buffer_ref(), progress.len, |parts| {
            let left = length(parts);
            let share = SHARE - (progress.len - begun);
            let mut first: [&[u8]; 1] = [&[]];
            let parts = if left > share {
                // A message goes as a whole, or not at all.
                let is_stream = *is_stream.get_or_insert_with(|| target.transport().is_stream());
                if is_stream { first_of(parts, share, &mut first) } else { parts }
            } else {
                parts
            };
            let address = operation.detail.address();
            let attempt = target.system().send(target.descriptor, parts, address);
            let is_all = matches!(attempt, SocketAttempt::Done(sent) if sent >= left);
            (attempt, is_all)
        });
        match attempt {
            SocketAttempt::Done(sent) => progress.len += sent,
            other => return other.map(|_| Rest::Unknown),
        }
        if is_all {
            return SocketAttempt::Done(Rest::Unknown);
        }
        calls += 1;
        if calls == MOST_CALLS || progress.len - begun >= SHARE {
            return SocketAttempt::Yielded;
        }
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
