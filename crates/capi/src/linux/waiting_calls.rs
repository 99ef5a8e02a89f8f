//! Calls that wait without blocking in the system. Between attempts they hold only their socket's
//! number, which may name another socket by then, even if this library was not notified.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::time::{Duration, Instant};

use crate::errors::code;
use crate::linux::descriptors;
use crate::linux::numbers::{self, Number};

/// A number's current socket: the descriptor and its epoch.
pub(crate) struct WaitingCall {
    pub(crate) descriptor: RawFd,
    pub(crate) number: &'static Number,
    pub(crate) epoch: u32,
    /// The [identity](descriptors::identity) of the first socket.
    identity: u64,
}

impl WaitingCall {
    pub(crate) fn new(descriptor: RawFd) -> Result<Self, u32> {
        let number = numbers::entry(descriptor).ok_or(code::WSAENOTSOCK)?;
        let mut state = number.lock();
        let identity = descriptors::identity(descriptor);
        if identity == 0 || state.is_closing(descriptor) {
            return Err(code::WSAENOTSOCK);
        }
        state.revisit();
        Ok(Self { descriptor, number, epoch: number.epoch(), identity })
    }

    /// Calls `attempt`, which does not block, unless the number's meaning has changed. No thread
    /// closes it with a call of this library meanwhile.
    pub(crate) fn attempt<R>(&mut self, attempt: impl FnOnce() -> R) -> Result<R, u32> {
        let mut attempt = Some(attempt);
        loop {
            let Self { descriptor, number, epoch, identity } = *self;
            let tried = number.in_epoch(epoch, || {
                let is_it = descriptors::identity(descriptor) == identity;
                attempt.take().filter(|_| is_it).map(|attempt| attempt())
            });
            if let Some(tried) = tried {
                return tried.ok_or(code::WSAENOTSOCK);
            }
            // A line's epoch may have ended without the socket's.
            let again = Self::new(descriptor)?;
            if again.identity != identity {
                return Err(code::WSAENOTSOCK);
            }
            *self = again;
        }
    }
}

/// How long to wait between checks whether the socket is closed, in milliseconds.
const LOOK: c_int = 50;

/// Waits between attempts until the socket of a `call` is ready for `events`, for at most `limit`
/// milliseconds, or without a limit if it is -1. Returns false after a timeout.
pub(crate) fn until_ready(call: &mut WaitingCall, events: i16, limit: c_int) -> Result<bool, u32> {
    let until = u64::try_from(limit).ok().map(Duration::from_millis);
    let began = Instant::now();
    loop {
        let left = until.map(|until| until.saturating_sub(began.elapsed()).as_nanos());
        let left = left.map(|left| c_int::try_from(left.div_ceil(1_000_000)).unwrap_or(LOOK));
        let left = left.map_or(LOOK, |left| left.min(LOOK));
        call.attempt(|| ())?;
        let mut asked = libc::pollfd { fd: call.descriptor, events, revents: 0 };
        // SAFETY: poll(2) reads and writes that many entries.
        // - valid: there is one.
        if unsafe { libc::poll(&raw mut asked, 1, left) } != 0 {
            return Ok(true);
        }
        if until.is_some_and(|until| began.elapsed() >= until) {
            return Ok(false);
        }
    }
}
