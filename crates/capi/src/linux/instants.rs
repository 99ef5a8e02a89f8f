//! Operations that finish within the call that begins them, and are not tasks of a port: `WSAIoctl` with an OVERLAPPED.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering::Relaxed, Ordering::Release};

use crate::abi::Overlapped;
use crate::errors::{code, guarded, set_last};
use crate::handles;
use crate::linux::numbers::{self, Number};
use crate::linux::operations::{SKIP_PACKET_ON_SUCCESS, look_at};
use crate::linux::waits::wake_waiting;
use crate::linux::{memory, object, status};

/// Returns the entry of a number on which an operation with the OVERLAPPED at this address may begin.
fn entry(descriptor: RawFd, address: usize) -> Result<&'static Number, u32> {
    let number = numbers::entry(descriptor).ok_or(code::WSAENOTSOCK)?;
    let mut state = number.lock();
    if state.is_closing(descriptor) {
        return Err(code::WSAENOTSOCK);
    }
    if state.operations.contains(address) {
        return Err(code::WSAEINVAL);
    }
    Ok(number)
}

/// The return value of both functions: 0, or -1 with the last error set.
fn answered(result: Result<(), u32>) -> c_int {
    result.map_or_else(
        |code| {
            set_last(code);
            -1
        },
        |()| 0,
    )
}

/// Checks that an operation which finishes within its call may use an OVERLAPPED. Does not change it.
///
/// # Safety
///
/// `overlapped` points to an OVERLAPPED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_begin_instant(descriptor: c_int, overlapped: *const c_void) -> c_int {
    let check = || {
        let place = NonNull::new(overlapped.cast_mut()).ok_or(code::INVALID_PARAMETER)?;
        if !memory::may_be(overlapped) {
            return Err(code::WSAEFAULT);
        }
        // SAFETY: a shared reference demands a value that lives on and changes only as its type allows.
        // - lives on: the caller guarantees it;
        // - not changed: an operation already using it writes only atomic words.
        object::event_of(unsafe { place.cast::<Overlapped>().as_ref() })?;
        entry(descriptor, overlapped.addr()).map(drop)
    };
    guarded(-1, || answered(check()))
}

/// Completes an operation that succeeded with this many bytes: writes the status, sets the event and posts the packet.
///
/// # Safety
///
/// `overlapped` points to an OVERLAPPED that stays valid until it reports the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_end_instant(
    descriptor: c_int,
    overlapped: *mut c_void,
    bytes: u32,
) -> c_int {
    let end = || {
        let place = NonNull::new(overlapped).ok_or(code::INVALID_PARAMETER)?;
        // SAFETY: a shared reference demands a value that lives on and changes only as its type allows.
        // - lives on: the caller guarantees it, and it is not used after the status is stored;
        // - not changed: what is written there is atomic.
        let words = unsafe { place.cast::<Overlapped>().as_ref() };
        let (event, has_packet) = object::event_of(words)?;
        let number = entry(descriptor, overlapped.addr())?;
        let (packet, ended) = {
            let mut state = number.lock();
            let ended = look_at(&mut state, number, descriptor);
            let has_packet = has_packet && state.chosen.modes & SKIP_PACKET_ON_SUCCESS == 0;
            (state.associated.filter(|_| has_packet), ended)
        };
        if let Some(ended) = ended {
            ended.tell();
        }
        words.offset.store(0, Relaxed);
        words.bytes.store(bytes as usize, Relaxed);
        words.status.store(status::SUCCESS as usize, Release);
        // From here on the program may free it.
        if let Some(event) = event {
            event.set();
        }
        wake_waiting(overlapped.cast());
        if let Some(associated) = packet
            && let Some(port) = handles::port_named(associated.port)
        {
            // Fails if the port was closed meanwhile, or if there is no memory.
            let _ = port.post_end(bytes, associated.key, overlapped, status::SUCCESS);
        }
        Ok(())
    };
    guarded(-1, || answered(end()))
}
