//! Operations that are done by the call which begins them, and are no tasks of a port: `WSAIoctl` with an OVERLAPPED.

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
use crate::linux::{object, status};

/// The entry of a number on which an operation may begin with the OVERLAPPED at this address.
fn entry(descriptor: RawFd, address: usize) -> Result<&'static Number, u32> {
    let number = numbers::entry(descriptor).ok_or(code::WSAENOTSOCK)?;
    let mut state = number.lock();
    if state.is_closing(descriptor) {
        return Err(code::WSAENOTSOCK);
    }
    if state.flights.contains(address) {
        return Err(code::WSAEINVAL);
    }
    Ok(number)
}

/// What both functions return: 0, or -1 and the last error.
fn answered(result: Result<(), u32>) -> c_int {
    result.map_or_else(
        |code| {
            set_last(code);
            -1
        },
        |()| 0,
    )
}

/// Whether an operation that is done by its call may be given an OVERLAPPED. It is left as it is.
///
/// # Safety
///
/// `overlapped` points to an OVERLAPPED.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_begin_instant(descriptor: c_int, overlapped: *const c_void) -> c_int {
    let check = || {
        let place = NonNull::new(overlapped.cast_mut()).ok_or(code::INVALID_PARAMETER)?;
        // SAFETY: a shared reference demands a value that lives on and is not changed but as its type allows.
        // - lives on: the caller says so;
        // - not changed: an operation that has it already writes atomic words only.
        object::event_of(unsafe { place.cast::<Overlapped>().as_ref() })?;
        entry(descriptor, overlapped.addr()).map(drop)
    };
    guarded(-1, || answered(check()))
}

/// The operation has succeeded, with so many bytes: tells everyone.
///
/// # Safety
///
/// `overlapped` points to an OVERLAPPED, which is there until it tells the end.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_end_instant(
    descriptor: c_int,
    overlapped: *mut c_void,
    bytes: u32,
) -> c_int {
    let end = || {
        let place = NonNull::new(overlapped).ok_or(code::INVALID_PARAMETER)?;
        // SAFETY: a shared reference demands a value that lives on and is not changed but as its type allows.
        // - lives on: the caller says so, and it is not used behind the store of the status;
        // - not changed: what is written there is atomic.
        let words = unsafe { place.cast::<Overlapped>().as_ref() };
        let (event, has_packet) = object::event_of(words)?;
        let number = entry(descriptor, overlapped.addr())?;
        let (packet, ended) = {
            let mut state = number.lock();
            let ended = look_at(&mut state, number, descriptor);
            let has_packet = has_packet && state.modes & SKIP_PACKET_ON_SUCCESS == 0;
            (state.associated.filter(|_| has_packet), ended)
        };
        if let Some(ended) = ended {
            ended.tell();
        }
        words.offset.store(0, Relaxed);
        words.bytes.store(bytes as usize, Relaxed);
        words.status.store(status::SUCCESS as usize, Release);
        // From here on the program may have freed it.
        if let Some(event) = event {
            event.set();
        }
        wake_waiting(overlapped.cast());
        if let Some(associated) = packet
            && let Some(port) = handles::port_named(associated.port)
        {
            // Refused if the port was closed meanwhile, or if there is no memory.
            let _ = port.post_end(bytes, associated.key, overlapped, status::SUCCESS);
        }
        Ok(())
    };
    guarded(-1, || answered(end()))
}
