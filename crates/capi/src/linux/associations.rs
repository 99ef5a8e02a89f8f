//! Creating and closing a port, and associating files with it.

use std::os::fd::RawFd;
use std::sync::Arc;

use crate::abi::Handle;
use crate::errors::code;
use crate::handles::{self, usable_port};
use crate::linux::file::File;
use crate::linux::numbers::{self, Associated, Line, Number};
use crate::linux::object::{self, Object};
use crate::linux::port::CompletionPort;
use crate::linux::{descriptors, driver, file_operations, last, registrations, sockets};

/// The operations to which an association applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// Also those in flight.
    ForAll,
    /// Only those that begin later.
    ForLaterOnes,
}

/// Associates the operations of a descriptor with a port.
fn associate_descriptor(
    descriptor: usize,
    port: &CompletionPort,
    key: usize,
    counts: Counts,
) -> Result<(), u32> {
    let descriptor = RawFd::try_from(descriptor).map_err(|_| code::INVALID_HANDLE)?;
    let identity = descriptors::identity(descriptor);
    if identity == 0 {
        return Err(code::INVALID_HANDLE);
    }
    // A null handle is an error, unless number 0 is a socket.
    if descriptor == 0 && descriptors::protocol(descriptor).is_err() {
        return Err(code::INVALID_HANDLE);
    }
    let number = numbers::entry(descriptor).ok_or(code::INVALID_HANDLE)?;
    let mut state = number.lock();
    if state.is_closing(descriptor) {
        return Err(code::INVALID_HANDLE);
    }
    if state.associated.is_some_and(|it| it.identity == identity && handles::is_open(it.port)) {
        return Err(code::INVALID_PARAMETER);
    }
    // Operations of a socket that other code has closed.
    let former = registrations::compare(&mut state, number, descriptor);
    // Not those of a socket that other code has closed.
    state.chosen = state.chosen.known_of(identity);
    state.associated = Some(Associated { port: port.name(), key, identity });
    if let Some(later) = state.take_later(identity).filter(|_| counts == Counts::ForAll) {
        later.set(port.name(), key);
    }
    let is_moved =
        |line: &Line| line.port != port.name() && !state.is_in_use() && state.registered.is_none();
    if let Some(line) = state.line.filter(is_moved) {
        // From here on only this port performs them.
        let ended = registrations::end_line(number, &mut state, line);
        drop(state);
        ended.tell();
    } else {
        drop(state);
    }
    if let Some(former) = former {
        former.tell();
    }
    Ok(())
}

/// The same of a file.
fn associate_file(
    file: &File,
    port: &CompletionPort,
    key: usize,
    counts: Counts,
) -> Result<(), u32> {
    if file.is_inherited() {
        return Err(code::INVALID_HANDLE);
    }
    if !file.terms.is_overlapped {
        return Err(code::INVALID_PARAMETER);
    }
    let mut state = file.lock();
    if state.associated.is_some_and(|(port, _)| handles::is_open(port)) {
        return Err(code::INVALID_PARAMETER);
    }
    state.associated = Some((port.name(), key));
    if let Some(later) = state.later.take().filter(|_| counts == Counts::ForAll) {
        later.set(port.name(), key);
    }
    Ok(())
}

/// Makes a descriptor's or file's operations complete on a port, including those in flight.
pub(crate) fn associate(file: Handle, port: &Arc<CompletionPort>, key: usize) -> Result<(), u32> {
    associate_some(file, port, key, Counts::ForAll)
}

/// Does the same for the operations to which the association applies.
pub(crate) fn associate_some(
    file: Handle,
    port: &Arc<CompletionPort>,
    key: usize,
    counts: Counts,
) -> Result<(), u32> {
    match object::file(file) {
        Ok(file) => associate_file(&file, port, key, counts),
        Err(_) => associate_descriptor(file.addr(), port, key, counts),
    }
}

/// Closes a socket by its handle.
fn close_descriptor(descriptor: RawFd) -> Result<(), u32> {
    // A null handle is an error, unless this library has returned number 0 for a socket.
    if descriptor == 0 && !numbers::find(0).is_some_and(Number::is_vouched) {
        return Err(code::INVALID_HANDLE);
    }
    match sockets::cp_close_socket(descriptor) {
        0 => Ok(()),
        _ => match last::last() {
            code::WSAENOTSOCK => Err(code::INVALID_HANDLE),
            code => Err(code),
        },
    }
}

/// `CloseHandle`.
pub(crate) fn close(handle: Handle) -> Result<(), u32> {
    if let Ok(descriptor) = RawFd::try_from(handle.addr()) {
        return close_descriptor(descriptor);
    }
    // The last share is given up here, where nothing is locked.
    let closed = handles::close(handle)?;
    if let Some(Object::File(file)) = &closed {
        file_operations::let_go(file);
        return Ok(());
    }
    drop(closed);
    // If it was a port, its operations have ended.
    driver::wake_if_asleep();
    Ok(())
}

/// Whether a packet is queued at a port, or the handle of a file is signalled.
pub(crate) fn is_ready(handle: Handle) -> Result<bool, u32> {
    match object::file(handle) {
        Ok(file) => Ok(file.is_signalled()),
        Err(_) => usable_port(handle)?.is_ready(),
    }
}
