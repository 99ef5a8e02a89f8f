//! Reads and writes of files and sockets: `ReadFile` and `WriteFile`, with and without an
//! OVERLAPPED.
//!
//! The calling thread reads data in the page cache immediately. Everything else with an OVERLAPPED
//! continues as an [operation](crate::linux::operations).

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering::Relaxed, Ordering::Release};

use completion_port::raw::{FileWork, ReadNow, Side};
use libc::iovec;

use crate::abi::{Handle, Overlapped};
use crate::errors::{code, cp_last_error, guarded, set_last};
use crate::handles;
use crate::linux::file::{File, seek};
use crate::linux::file_operations::{
    FileOperation, Packet, Recipients, Transfer, hand_over, tasks,
};
use crate::linux::object;
use crate::linux::operations::{SKIP_EVENT_ON_HANDLE, SKIP_PACKET_ON_SUCCESS};
use crate::linux::port::{Begun, Told};
use crate::linux::sockets::{cp_recv, cp_send};
use crate::linux::starting::{Start, start};
use crate::linux::transfers::{Parts, Receiving, Sending};
use crate::linux::{descriptors, status};

/// The offset of an operation; `None` for the end of the file.
fn offset_of(overlapped: &Overlapped, is_read: bool) -> Result<Option<i64>, u32> {
    let (low, high) = (overlapped.offset.load(Relaxed), overlapped.offset_high.load(Relaxed));
    match u64::from(high) << 32 | u64::from(low) {
        u64::MAX if !is_read => Ok(None),
        offset => i64::try_from(offset).map(Some).map_err(|_| code::INVALID_PARAMETER),
    }
}

/// An operation on a file opened with `FILE_FLAG_OVERLAPPED`.
///
/// # Safety
///
/// As for [`cp_read_file`], with an `overlapped` that is not null.
unsafe fn begin(
    file: Arc<File>,
    transfer: Transfer,
    place: NonNull<Overlapped>,
    told: Told,
) -> Result<Begun, u32> {
    // SAFETY: a shared reference demands a value that lives on and changes only as its type allows.
    // - lives on: the caller guarantees it;
    // - not changed: the program has handed it over, and an operation that has it already writes
    //   atomic words only.
    let overlapped = unsafe { place.as_ref() };
    if file.is_inherited() {
        return Err(code::INVALID_HANDLE);
    }
    transfer.check(&file)?;
    let (event, has_packet) = object::event_of(overlapped)?;
    let offset = offset_of(overlapped, transfer.is_read)?;
    let position = offset.map_or(0, i64::cast_unsigned);
    if file.terms.is_unbuffered && !transfer.is_aligned(position) {
        return Err(code::INVALID_PARAMETER);
    }
    let tasks = tasks()?;
    let address = place.as_ptr().addr();
    let packet = {
        let mut state = file.lock();
        if state.operations.contains_key(&address) {
            return Err(code::INVALID_PARAMETER);
        }
        let port = |(port, key)| Some((handles::port_named(port)?, key));
        match state.associated.and_then(port) {
            _ if !has_packet => Packet::None,
            Some((port, key)) => Packet::To(port, key),
            None => Packet::Later(Arc::clone(state.later.get_or_insert_default())),
        }
    };
    let modes = file.modes.load(Relaxed);
    let signals = event.is_none() && modes & SKIP_EVENT_ON_HANDLE == 0;
    let signal = signals.then(|| Arc::clone(&file.signal));
    if let Some(event) = &event {
        event.reset();
    }
    if let Some(signal) = &signal {
        signal.reset();
    }
    overlapped.bytes.store(0, Relaxed);
    overlapped.status.store(status::PENDING as usize, Release);
    let recipients = Recipients { overlapped: place, file, event, signal, packet };
    let mut before = 0;
    let mut ended = (transfer.count == 0).then_some(status::SUCCESS);
    if ended.is_none() && transfer.is_read && recipients.file.reads_now.load(Relaxed) {
        // SAFETY: a slice from a pointer demands that many bytes there, which nothing else uses
        // meanwhile.
        // - the program lends them to the operation, which the back end does not have yet.
        let room = unsafe { std::slice::from_raw_parts_mut(transfer.place.cast(), transfer.count) };
        let (came, now) = tasks.read_now(&*recipients.file, position, room);
        before = came;
        match now {
            ReadNow::Done => ended = Some(transfer.ended_well(&recipients.file, before)),
            ReadNow::Waits => {}
            ReadNow::Never => recipients.file.reads_now.store(false, Relaxed),
            ReadNow::Failed(error) => {
                ended = Some(status::of_file(error.os_code().unwrap_or(libc::EIO)));
            }
        }
    }
    match ended {
        Some(ended) if status::is_success(ended) => {
            let bytes = u32::try_from(before).unwrap_or(u32::MAX);
            // Before the end is reported, after which the program may reuse the memory.
            told.write_bytes(bytes);
            recipients.tell(ended, bytes, modes & SKIP_PACKET_ON_SUCCESS == 0);
            Ok(Begun::Done)
        }
        Some(ended) => {
            // Only the call reports it.
            overlapped.status.store(ended as usize, Release);
            Ok(Begun::Failed(ended))
        }
        None => {
            let work = match offset {
                _ if transfer.is_read => FileWork::Read,
                Some(_) => FileWork::Write,
                None => FileWork::Append,
            };
            let operation = FileOperation { recipients, transfer, before };
            hand_over(tasks, (work, position.saturating_add(before as u64)), operation)
        }
    }
}

/// Without an OVERLAPPED, or on a file opened without `FILE_FLAG_OVERLAPPED`: returns when it is
/// finished.
///
/// # Safety
///
/// As for [`cp_read_file`].
unsafe fn perform(
    file: &File,
    transfer: Transfer,
    overlapped: Option<NonNull<Overlapped>>,
    told: Told,
) -> Result<Begun, u32> {
    transfer.check(file)?;
    // SAFETY: as in `begin`.
    let overlapped = overlapped.map(|place| unsafe { place.as_ref() });
    let from = match overlapped.map(|it| offset_of(it, transfer.is_read)).transpose()? {
        Some(None) => seek(file.descriptor(), 0, libc::SEEK_END),
        Some(place) => place,
        None => None,
    };
    let event = overlapped.map(object::event_of).transpose()?.and_then(|(event, _)| event);
    if file.terms.is_unbuffered {
        let place = || seek(file.descriptor(), 0, libc::SEEK_CUR);
        let place = from.or_else(place).unwrap_or(0);
        if !transfer.is_aligned(place.cast_unsigned()) {
            return Err(code::INVALID_PARAMETER);
        }
    }
    if let Some(event) = &event {
        event.reset();
    }
    let (done, mut ended) = transfer.perform(file, from);
    if let Some(from) = from.filter(|_| file.has_positions()) {
        let _ = seek(file.descriptor(), from.saturating_add_unsigned(done as u64), libc::SEEK_SET);
    }
    if overlapped.is_none() && ended == status::END_OF_FILE {
        ended = status::SUCCESS;
    }
    let bytes = u32::try_from(done).unwrap_or(u32::MAX);
    told.write_bytes(bytes);
    if let Some(overlapped) = overlapped {
        overlapped.bytes.store(done, Relaxed);
        overlapped.status.store(ended as usize, Release);
    }
    if !status::is_success(ended) {
        return Ok(Begun::Failed(ended));
    }
    if let Some(event) = event {
        event.set();
    }
    Ok(Begun::Done)
}

/// The same for a socket, which is a file to the reference.
///
/// # Safety
///
/// As for [`cp_read_file`].
unsafe fn of_socket(
    handle: Handle,
    transfer: Transfer,
    overlapped: *mut Overlapped,
    told: Told,
) -> Result<Begun, u32> {
    let descriptor = RawFd::try_from(handle.addr()).map_err(|_| code::INVALID_HANDLE)?;
    descriptors::kind(descriptor).ok_or(code::INVALID_HANDLE)?;
    let Transfer { is_read, place, count } = transfer;
    if place.is_null() && count > 0 {
        return Err(code::NOACCESS);
    }
    if overlapped.is_null() {
        let done = if is_read {
            // SAFETY: recv(2) writes at most `count` bytes at the pointer.
            // - the caller guarantees it for the memory.
            unsafe { cp_recv(descriptor, place.cast(), count, 0) }
        } else {
            // SAFETY: send(2) reads `count` bytes at the pointer.
            // - as above.
            unsafe { cp_send(descriptor, place.cast(), count, 0) }
        };
        let failed = |_| in_win32(cp_last_error());
        told.write_bytes(u32::try_from(done).map_err(failed)?);
        return Ok(Begun::Done);
    }
    let parts = Parts::One(iovec { iov_base: place.cast(), iov_len: count });
    let side = if is_read { Side::In } else { Side::Out };
    let how = Start { descriptor, overlapped, side, tells_flags: false, told, accept: 0 };
    if is_read {
        // SAFETY: `start` demands an OVERLAPPED that stays valid until the operation ends.
        // - the caller guarantees it, also for the memory.
        unsafe { start(how, Receiving::plain(parts)) }
    } else {
        // SAFETY: as above.
        unsafe { start(how, Sending::plain(parts)) }
    }
    .map_err(in_win32)
}

/// Converts a Winsock code to the one of Win32's calls.
fn in_win32(winsock: u32) -> u32 {
    match winsock {
        known if known < 10_000 => known,
        known => status::code_in_win32(status::of_winsock(known)),
    }
}

/// The return value of a call that starts an operation: TRUE, or FALSE and the last error.
fn answered(begun: Result<Begun, u32>) -> c_int {
    set_last(match begun {
        Ok(Begun::Done) => return 1,
        Ok(Begun::Pending | Begun::Reported) => code::IO_PENDING,
        Ok(Begun::Failed(ended)) => status::code_in_win32(ended),
        Ok(Begun::Refused(code)) => in_win32(code),
        Err(code) => code,
    });
    0
}

/// # Safety
///
/// As for [`cp_read_file`].
unsafe fn transfer(
    handle: Handle,
    transfer: Transfer,
    told: *mut u32,
    overlapped: *mut c_void,
) -> c_int {
    let begin = || {
        let told = Told::bytes(told);
        let overlapped = overlapped.cast::<Overlapped>();
        let Ok(file) = object::file(handle) else {
            // SAFETY: `of_socket` demands what this call does.
            return unsafe { of_socket(handle, transfer, overlapped, told) };
        };
        match NonNull::new(overlapped) {
            // SAFETY: as above.
            place if !file.terms.is_overlapped => unsafe { perform(&file, transfer, place, told) },
            // SAFETY: as above.
            Some(place) => unsafe { begin(file, transfer, place, told) },
            None => Err(code::INVALID_PARAMETER),
        }
    };
    guarded(0, || {
        Told::bytes(told).write_bytes(0);
        answered(begin())
    })
}

/// `ReadFile`, of a file or a socket.
///
/// # Safety
///
/// `read` is null or points to a number. `overlapped` is null, or points to an OVERLAPPED. It stays
/// valid until the operation ends, as does `place`, with room for `count` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_read_file(
    file: Handle,
    place: *mut c_void,
    count: u32,
    read: *mut u32,
    overlapped: *mut c_void,
) -> c_int {
    let what = Transfer { is_read: true, place: place.cast(), count: count as usize };
    // SAFETY: `transfer` demands what this call does.
    unsafe { transfer(file, what, read, overlapped) }
}

/// `WriteFile`, of a file or a socket.
///
/// # Safety
///
/// As for [`cp_read_file`]: `place` has that many bytes, which are not changed until the end of the
/// operation.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_write_file(
    file: Handle,
    place: *const c_void,
    count: u32,
    written: *mut u32,
    overlapped: *mut c_void,
) -> c_int {
    let place = place.cast_mut().cast();
    let what = Transfer { is_read: false, place, count: count as usize };
    // SAFETY: as above.
    unsafe { transfer(file, what, written, overlapped) }
}
