//! Ports as the C library has them: made, taken from, posted to, closed.

use std::ffi::c_void;
use std::os::fd::RawFd;
use std::sync::Arc;

use crate::abi::{self, Entry, Handle, NO_HANDLE};
use crate::errors::{code, guarded, set_last, succeeds};
use crate::file::File;
use crate::handles::{self, Object, usable_port};
use crate::numbers::{self, Associated, Line};
use crate::port::{Changed, CompletionPort};
use crate::{descriptors, driver, flights, registrations, status};

/// Lets the operations of a descriptor complete on a port.
fn associate(descriptor: usize, port: &CompletionPort, key: usize) -> Result<(), u32> {
    let descriptor = RawFd::try_from(descriptor).map_err(|_| code::INVALID_HANDLE)?;
    // SAFETY: fcntl(2) with F_GETFD demands nothing of memory.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
    if flags < 0 {
        return Err(code::INVALID_HANDLE);
    }
    // A null handle is a mistake, unless the process has given number 0 to a socket.
    if descriptor == 0 && descriptors::protocol(descriptor).is_err() {
        return Err(code::INVALID_HANDLE);
    }
    let number = numbers::entry(descriptor).ok_or(code::INVALID_HANDLE)?;
    let identity = descriptors::identity(descriptor);
    let mut state = number.lock();
    if state.associated.is_some_and(|it| it.identity == identity && handles::is_open(it.port)) {
        return Err(code::INVALID_PARAMETER);
    }
    state.associated = Some(Associated { port: port.name(), key, identity });
    let is_moved =
        |line: &Line| line.port != port.name() && !state.is_in_use() && state.registered.is_none();
    if let Some(line) = state.line.filter(is_moved) {
        // Nothing is carried out elsewhere: from here on this port does.
        let ended = registrations::end_line(number, &mut state, line);
        drop(state);
        ended.tell();
    }
    Ok(())
}

/// The same of a file.
fn associate_file(file: &File, port: &CompletionPort, key: usize) -> Result<(), u32> {
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
    Ok(())
}

/// Makes a port.
pub(crate) fn create(concurrency: u32) -> Result<Handle, u32> {
    handles::open(|name| {
        let concurrency = usize::try_from(concurrency).unwrap_or(usize::MAX);
        CompletionPort::new(name, concurrency).map(|port| Object::Port(Arc::new(port)))
    })
}

fn associate_handle(file: Handle, port: &CompletionPort, key: usize) -> Result<(), u32> {
    match handles::file(file) {
        Ok(file) => associate_file(&file, port, key),
        Err(_) => associate(file.addr(), port, key),
    }
}

/// Lets the operations of a descriptor or a file complete on the port of a handle.
pub(crate) fn associate_with(file: Handle, port: Handle, key: usize) -> Result<(), u32> {
    associate_handle(file, &*usable_port(port)?, key)
}

fn create_or_associate(
    file: Handle,
    existing: Handle,
    key: usize,
    concurrency: u32,
) -> Result<Handle, u32> {
    match (file.addr() != NO_HANDLE, existing.is_null()) {
        (false, true) => create(concurrency),
        (false, false) => Err(code::INVALID_PARAMETER),
        (true, false) => {
            associate_with(file, existing, key)?;
            Ok(existing)
        }
        (true, true) => {
            let made = create(concurrency)?;
            let associated =
                handles::port(made).and_then(|port| associate_handle(file, &port, key));
            associated.map(|()| made).inspect_err(|_| {
                let _ = close(made);
            })
        }
    }
}

fn close(handle: Handle) -> Result<(), u32> {
    // The last share is given up here, where nothing is locked.
    let closed = handles::close(handle)?;
    if let Some(Object::File(file)) = &closed {
        flights::let_go(file);
        return Ok(());
    }
    drop(closed);
    // Its operations have ended, if it was a port that had any.
    driver::wake_if_asleep();
    Ok(())
}

/// Makes a port, or lets a descriptor's operations complete on one: `CreateIoCompletionPort`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_create_io_completion_port(
    file: Handle,
    existing: Handle,
    key: usize,
    concurrency: u32,
) -> Handle {
    guarded(std::ptr::null_mut(), || {
        create_or_associate(file, existing, key, concurrency).unwrap_or_else(|code| {
            set_last(code);
            std::ptr::null_mut()
        })
    })
}

/// Closes a handle: `CloseHandle`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_close_handle(handle: Handle) -> i32 {
    succeeds(|| close(handle))
}

/// Takes one packet: `GetQueuedCompletionStatus`.
///
/// # Safety
///
/// The three pointers are null or point to room for what is written there.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_dequeue(
    port: Handle,
    bytes: *mut u32,
    key: *mut usize,
    overlapped: *mut *mut c_void,
    milliseconds: u32,
) -> i32 {
    succeeds(|| {
        if overlapped.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the caller says so of one that is not null.
        unsafe { overlapped.write(std::ptr::null_mut()) };
        if bytes.is_null() || key.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        let port = usable_port(port)?;
        let mut entry = Entry { key: 0, overlapped: std::ptr::null_mut(), internal: 0, bytes: 0 };
        let timeout = abi::timeout(milliseconds);
        // SAFETY: `take` demands room for so many entries.
        // - there is room for one.
        let take = || unsafe { port.take(&raw mut entry, 1, timeout, Changed::AsAsked) };
        driver::attending(&port, take)?;
        // SAFETY: as above.
        unsafe { bytes.write(entry.bytes) };
        // SAFETY: as above.
        unsafe { key.write(entry.key) };
        // SAFETY: as above.
        unsafe { overlapped.write(entry.overlapped) };
        match u32::try_from(entry.internal) {
            // An operation has failed, and this is its packet.
            Ok(ended) if !status::is_success(ended) => Err(status::code_in_win32(ended)),
            _ => Ok(()),
        }
    })
}

/// Takes packets: `GetQueuedCompletionStatusEx`.
///
/// # Safety
///
/// `entries` is null or points to room for `room` entries, and `removed` is null or points to room for
/// a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_dequeue_many(
    port: Handle,
    entries: *mut Entry,
    room: u32,
    removed: *mut u32,
    milliseconds: u32,
    _alertable: i32,
) -> i32 {
    succeeds(|| {
        if removed.is_null() {
            return Err(code::INVALID_PARAMETER);
        }
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the caller says so of one that is not null.
        unsafe { removed.write(0) };
        if entries.is_null() || room == 0 {
            return Err(code::INVALID_PARAMETER);
        }
        let port = usable_port(port)?;
        let timeout = abi::timeout(milliseconds);
        // SAFETY: `take` demands room for so many entries.
        // - the caller says that there is.
        let take = || unsafe { port.take(entries, room as usize, timeout, Changed::AsAsked) };
        let taken = driver::attending(&port, take)?;
        // SAFETY: as above.
        unsafe { removed.write(taken) };
        Ok(())
    })
}

/// Whether a packet is queued, or the handle of a file is signalled: the code of success if one is, that of a time that is over if none is.
#[unsafe(no_mangle)]
pub extern "C" fn cp_peek(port: Handle) -> u32 {
    let peek = || {
        let is_ready = match handles::file(port) {
            Ok(file) => file.is_signalled(),
            Err(_) => usable_port(port)?.is_ready()?,
        };
        if is_ready { Ok(code::SUCCESS) } else { Err(code::WAIT_TIMEOUT) }
    };
    guarded(code::INTERNAL_ERROR, || peek().unwrap_or_else(|code| code))
}

/// Posts three words: `PostQueuedCompletionStatus`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_post(port: Handle, bytes: u32, key: usize, overlapped: *mut c_void) -> i32 {
    succeeds(|| usable_port(port)?.post_words(bytes, key, overlapped))
}
