//! Sending on a socket: as much as there is room for, or a whole buffer.

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
    /// Sends as much of the buffer as there is room for, or one datagram.
    pub fn send(buffer: B) -> Self {
        Self::new(Kind::Send, Some(buffer), Detail::None)
    }

    /// Sends the whole buffer. No other send on the socket comes in between.
    ///
    /// A long buffer is sent in shares of at most 1 MiB, so that other packets get their turn in
    /// between. So sending continues after the call that starts it, even if there is room for
    /// everything.
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

    /// Sends while there is room, until the buffer or its share is sent.
    #[allow(clippy::inline_always, reason = "a part of an attempt")]
    #[inline(always)]
    fn attempt<B: Buffer>(
        operation: &mut Operation<B>,
        progress: &mut Progress,
        target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        let begun = progress.len;
        // The remaining bytes rarely exceed a share, and one call usually sends them.
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

/// Continues sending, until the buffer or its share is sent. The attempt began after `begun` bytes.
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
                // A message is sent as a whole, or not at all.
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

/// Returns how many bytes these parts have. Parts may share memory, so the sum has no limit.
#[inline]
fn length(parts: &[&[u8]]) -> usize {
    parts.iter().fold(0, |sum: usize, part| sum.saturating_add(part.len()))
}

/// How many bytes one attempt of a [`SendAll`] sends, and in how many calls, at most. Without a
/// limit, a peer that keeps pace would occupy the thread until the buffer is sent, while others
/// wait.
const SHARE: usize = 1 << 20;
const MOST_CALLS: u32 = 16;

/// Returns the first parts that together have at most `share` bytes. If the first one alone has
/// more, returns its first `share` bytes, stored in `first`.
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
