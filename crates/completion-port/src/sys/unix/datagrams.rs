//! Datagrams for programs that use readiness: one attempt at each call, without a port.

use std::mem::MaybeUninit;

use super::sockets::fault;
use crate::backend::sockets::Received;
use crate::sys::system::datagrams;
use crate::types::address::Address;
use crate::types::datagrams::{Datagrams, Facts};
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// Returns whether a call fails so because it would have to wait.
pub(crate) fn is_blocked(fault: Fault) -> bool {
    fault.code == Some(libc::EAGAIN)
}

/// As [`Sockets::receive_many`](crate::backend::sockets::Sockets::receive_many).
pub(crate) fn receive_many(
    descriptor: Descriptor,
    batch: &mut Datagrams,
) -> Option<Result<bool, Fault>> {
    datagrams::receive_many(descriptor, batch).map(|received| received.map_err(fault))
}

/// As [`Sockets::send_many`](crate::backend::sockets::Sockets::send_many).
pub(crate) fn send_many(
    descriptor: Descriptor,
    batch: &mut Datagrams,
) -> Option<Result<(), Fault>> {
    datagrams::send_many(descriptor, batch)
}

/// Receives one datagram, with its sender.
pub(crate) fn receive_one(
    descriptor: Descriptor,
    room: &mut [MaybeUninit<u8>],
) -> Result<(usize, Facts), Fault> {
    let (received, address) = super::sockets::receive_one(descriptor, room).map_err(fault)?;
    let Received { len, is_cut } = received;
    Ok((len, Facts { address, is_truncated: is_cut, ..Facts::default() }))
}

/// Sends one datagram.
pub(crate) fn send_one(
    descriptor: Descriptor,
    bytes: &[u8],
    to: Option<&Address>,
) -> Result<usize, Fault> {
    super::sockets::send_one(descriptor, bytes, to)
}

/// Lets the kernel join received datagrams.
pub(crate) fn enable_gro(descriptor: Descriptor) -> Result<(), Fault> {
    datagrams::enable_gro(descriptor)
}
