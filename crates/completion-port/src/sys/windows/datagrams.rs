//! Datagrams for programs that use readiness: one attempt at each call, without a port.

use std::mem::MaybeUninit;

use windows_sys::Win32::Networking::WinSock::WSAEWOULDBLOCK;

use super::address::RawAddress;
use super::options::fault;
use super::sockets::{receive_one_from, send_one_to};
use crate::backend::sockets::Received;
use crate::types::address::Address;
use crate::types::datagrams::{Datagrams, Facts};
use crate::types::error::{ErrorKind, Fault};
use crate::types::source::Descriptor;

/// Returns whether a call fails so because it would have to wait.
pub(crate) fn is_blocked(fault: Fault) -> bool {
    fault.code == Some(WSAEWOULDBLOCK)
}

/// There is no such call.
pub(crate) fn receive_many(
    _descriptor: Descriptor,
    _batch: &mut Datagrams,
) -> Option<Result<bool, Fault>> {
    None
}

/// There is no such call.
pub(crate) fn send_many(
    _descriptor: Descriptor,
    _batch: &mut Datagrams,
) -> Option<Result<(), Fault>> {
    None
}

/// Receives one datagram, with its sender.
pub(crate) fn receive_one(
    descriptor: Descriptor,
    room: &mut [MaybeUninit<u8>],
) -> Result<(usize, Facts), Fault> {
    let mut from = RawAddress::room();
    let received = receive_one_from(descriptor, room, &mut from);
    let Received { len, is_cut } = received.map_err(|code| fault(descriptor, code))?;
    Ok((len, Facts { address: from.address(), is_truncated: is_cut, ..Facts::default() }))
}

/// Sends one datagram.
pub(crate) fn send_one(
    descriptor: Descriptor,
    bytes: &[u8],
    to: Option<&Address>,
) -> Result<usize, Fault> {
    let to = to.map(RawAddress::of).transpose()?;
    send_one_to(descriptor, bytes, to.as_ref()).map_err(|code| fault(descriptor, code))
}

/// Lets the kernel join received datagrams: it is not used here.
pub(crate) fn enable_gro(_descriptor: Descriptor) -> Result<(), Fault> {
    Err(Fault { kind: ErrorKind::Unsupported, code: None })
}
