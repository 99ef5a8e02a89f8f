//! Datagrams of the system, of which there are none here.

use std::mem::MaybeUninit;

use crate::types::address::Address;
use crate::types::datagrams::{Datagrams, Facts};
use crate::types::error::{ErrorKind, Fault};
use crate::types::source::Descriptor;

const NONE: Fault = Fault { kind: ErrorKind::Unsupported, code: None };

pub(crate) fn is_blocked(_: Fault) -> bool {
    false
}

pub(crate) fn receive_many(_: Descriptor, _: &mut Datagrams) -> Option<Result<bool, Fault>> {
    None
}

pub(crate) fn send_many(_: Descriptor, _: &mut Datagrams) -> Option<Result<(), Fault>> {
    None
}

pub(crate) fn receive_one(
    _: Descriptor,
    _: &mut [MaybeUninit<u8>],
) -> Result<(usize, Facts), Fault> {
    Err(NONE)
}

pub(crate) fn send_one(_: Descriptor, _: &[u8], _: Option<&Address>) -> Result<usize, Fault> {
    Err(NONE)
}

pub(crate) fn enable_gro(_: Descriptor) -> Result<(), Fault> {
    Err(NONE)
}
