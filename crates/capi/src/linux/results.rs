//! Detecting the result of an operation without its packet: `GetOverlappedResult` and so on.

use std::ffi::{c_int, c_void};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Relaxed};
use std::time::{Duration, Instant};

use crate::abi::{self, Overlapped};
use crate::errors::{code, succeeds};
use crate::linux::operations::port_of_operation;
use crate::linux::port::CompletionPort;
use crate::linux::waitable::{self, Awaited, Waitable};
use crate::linux::waits::Waits;
use crate::linux::{numbers, object, status};

/// How a thread asks.
pub const IN_WINSOCK: u32 = 1;

/// A port whose operations no thread sees to is looked at so often by a thread that waits for one of them.
const BETWEEN_LOOKS: Duration = Duration::from_millis(1);

/// How long a thread waiting for an event sleeps before it checks the status again.
const WITHOUT_SIGNAL: Duration = Duration::from_millis(100);

/// The status of an operation, if it has ended.
fn ended(overlapped: &Overlapped) -> Option<u32> {
    let ended = status::of_internal(overlapped.status.load(Acquire));
    (ended != status::PENDING).then_some(ended)
}

/// Waits until an operation has ended or its event is set, for `limit` at most. Meanwhile the thread drives the operations of
/// its port. If only the event is set, that counts as success.
fn wait(
    overlapped: &Overlapped,
    port: Option<&Arc<CompletionPort>>,
    limit: Option<Duration>,
) -> Option<u32> {
    let began = Instant::now();
    let event = object::event(overlapped.event).ok();
    let waits = Waits::begin(overlapped);
    loop {
        if let Some(ended) = ended(overlapped) {
            return Some(ended);
        }
        let mut pause = limit.map(|limit| limit.saturating_sub(began.elapsed()));
        if let Some(port) = port.filter(|port| port.name() != numbers::NO_PORT) {
            port.drive();
            if ended(overlapped).is_some() {
                continue;
            }
            pause = Some(pause.unwrap_or(BETWEEN_LOOKS).min(BETWEEN_LOOKS));
        }
        if limit.is_some_and(|limit| began.elapsed() >= limit) {
            return None;
        }
        let Some(event) = &event else {
            waits.sleep(status::PENDING, pause);
            continue;
        };
        // Another thread may take the signal of an auto-reset event.
        let pause = pause.unwrap_or(WITHOUT_SIGNAL).min(WITHOUT_SIGNAL);
        if is_set_within(event, Some(pause)) {
            // The operation's end sets the event and leaves it set. This consumes a signal that the program set earlier.
            let ended = ended(overlapped).inspect(|_| event.put_back());
            return Some(ended.unwrap_or(status::SUCCESS));
        }
    }
}

/// Waits for an event, for `limit` at most. Returns whether it was set. The wait resets an auto-reset event.
fn is_set_within(event: &Arc<Waitable>, limit: Option<Duration>) -> bool {
    let awaited = Awaited { objects: vec![(0, Arc::clone(event))], ports: Vec::new() };
    waitable::wait(awaited, false, limit).is_ok()
}

/// The result of an operation: `GetOverlappedResult`, `GetOverlappedResultEx` and, with
/// [`IN_WINSOCK`], `WSAGetOverlappedResult`. Waits for it, for at most that many milliseconds.
///
/// # Safety
///
/// `overlapped` is null or points to an OVERLAPPED, `bytes` and `flags` are null or point to a
/// number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_overlapped_result(
    descriptor: c_int,
    overlapped: *const c_void,
    bytes: *mut u32,
    flags: *mut u32,
    milliseconds: u32,
    how: u32,
) -> c_int {
    succeeds(|| {
        let place = overlapped.cast::<Overlapped>();
        let is_null = place.is_null() || bytes.is_null();
        if how == IN_WINSOCK {
            crate::linux::descriptors::protocol(descriptor)?;
            if is_null {
                return Err(code::WSAEFAULT);
            }
        } else if is_null {
            return Err(code::INVALID_PARAMETER);
        }
        // SAFETY: a shared reference demands a value that lives on and changes only as its type
        // allows.
        // - lives on: the caller guarantees that it stays valid during this call;
        // - not changed: an operation writes only atomics.
        let overlapped = unsafe { &*place };
        let ended = match ended(overlapped) {
            Some(ended) => ended,
            None if milliseconds == 0 => return Err(code::IO_INCOMPLETE),
            None => {
                let port = port_of_operation(descriptor, place.addr());
                let ended = wait(overlapped, port.as_ref(), abi::timeout(milliseconds));
                ended.ok_or(code::WAIT_TIMEOUT)?
            }
        };
        let count = u32::try_from(overlapped.bytes.load(Relaxed)).unwrap_or(u32::MAX);
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the caller guarantees it, and it is not null.
        unsafe { bytes.write(count) };
        if how == IN_WINSOCK {
            if flags.is_null() {
                // The count is known all the same.
                return Err(code::WSAEFAULT);
            }
            // SAFETY: as above.
            unsafe { flags.write(overlapped.offset.load(Relaxed)) };
        }
        match ended {
            ended if status::is_success(ended) => Ok(()),
            ended if how == IN_WINSOCK => Err(status::code_in_winsock(ended)),
            ended => Err(status::code_in_win32(ended)),
        }
    })
}
