//! Receiving and sending a batch of datagrams with as many calls as it takes.

use std::mem::MaybeUninit;

use super::{AT_ONCE, Datagrams, Facts, SHARE};
use crate::types::address::Address;

/// What an error of a receive says about the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Nothing is left in it.
    Drained,
    /// The receive has failed.
    Failed,
    /// Nothing.
    Unknown,
}

/// How much a send has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Send {
    All,
    /// Its share. It could continue.
    Share,
}

/// Receives until the slots are used, a share is received, or nothing is left.
///
/// `many` receives with one call, and returns whether nothing is left, or `None` if the system has
/// no such call. `one` receives one datagram. An error is returned if nothing was received before
/// it, or if `end` says that it is a failure.
#[inline]
pub(crate) fn receive<E>(
    datagrams: &mut Datagrams,
    mut many: impl FnMut(&mut Datagrams) -> Option<Result<bool, E>>,
    mut one: impl FnMut(&mut [MaybeUninit<u8>]) -> Result<(usize, Facts), E>,
    end: impl Fn(&E) -> End,
) -> Result<(), E> {
    datagrams.begin_receive();
    while datagrams.has_free_slot() && datagrams.len() < SHARE {
        let received = match many(datagrams) {
            Some(received) => received,
            None => receive_one(datagrams, &mut one),
        };
        match received {
            Ok(false) => {}
            Ok(true) => {
                datagrams.set_drained();
                break;
            }
            Err(error) => match end(&error) {
                End::Drained if !datagrams.is_empty() => {
                    datagrams.set_drained();
                    break;
                }
                End::Unknown if !datagrams.is_empty() => break,
                _ => return Err(error),
            },
        }
    }
    Ok(())
}

/// Receives one datagram with `one`. There is a free slot. Returns false, as `many` of [`receive`].
fn receive_one<E>(
    datagrams: &mut Datagrams,
    one: &mut impl FnMut(&mut [MaybeUninit<u8>]) -> Result<(usize, Facts), E>,
) -> Result<bool, E> {
    // SAFETY: `rooms` requires that only initialized bytes are written.
    // - only a back end writes to them, and writes bytes that it has received.
    let room = unsafe { datagrams.rooms() }.next();
    let room = room.expect("the caller has checked that a slot is free");
    let (len, facts) = one(room)?;
    datagrams.fill(len, facts);
    Ok(false)
}

/// Sends until all is sent, or about `share` messages are.
///
/// `many` sends with one call, and removes what it has sent; `None` if the system has no such call.
/// `one` sends one datagram.
#[inline]
pub(crate) fn send<E>(
    datagrams: &mut Datagrams,
    mut share: usize,
    mut many: impl FnMut(&mut Datagrams) -> Option<Result<(), E>>,
    mut one: impl FnMut(&[u8], Option<&Address>) -> Result<usize, E>,
) -> Result<Send, E> {
    while !datagrams.is_empty() {
        if share == 0 {
            return Ok(Send::Share);
        }
        let cost = if let Some(sent) = many(datagrams) {
            sent?;
            AT_ONCE
        } else {
            send_one(datagrams, &mut one)?;
            1
        };
        share = share.saturating_sub(cost);
    }
    Ok(Send::All)
}

/// Sends one datagram with `one`, and removes it.
fn send_one<E>(
    datagrams: &mut Datagrams,
    one: &mut impl FnMut(&[u8], Option<&Address>) -> Result<usize, E>,
) -> Result<(), E> {
    let Some(message) = datagrams.messages(false).next() else { return Ok(()) };
    let len = message.bytes.len();
    let sent = one(message.bytes, message.to)?;
    if sent < len {
        datagrams.remove_bytes(sent);
    } else {
        datagrams.remove_messages(1, false);
    }
    Ok(())
}
