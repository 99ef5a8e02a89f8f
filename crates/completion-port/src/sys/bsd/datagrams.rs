//! Many datagrams with one system call: there is no such call here, or it is not used.
//!
//! FreeBSD's recvmmsg and sendmmsg are loops in its C library, which lose errors. macOS has no
//! public ones. NetBSD and OpenBSD have them.

use crate::sys::unix::options::Code;
use crate::types::datagrams::Datagrams;
use crate::types::error::{ErrorKind, Fault};
use crate::types::source::Descriptor;

pub(in crate::sys) fn receive_many(
    _descriptor: Descriptor,
    _datagrams: &mut Datagrams,
) -> Option<Result<bool, Code>> {
    None
}

pub(in crate::sys) fn send_many(
    _descriptor: Descriptor,
    _datagrams: &mut Datagrams,
) -> Option<Result<(), Fault>> {
    None
}

pub(in crate::sys) fn enable_gro(_descriptor: Descriptor) -> Result<(), Fault> {
    Err(Fault { kind: ErrorKind::Unsupported, code: None })
}
