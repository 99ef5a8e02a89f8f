//! Disconnects: `DisconnectEx`, and the end of a `TransmitFile`.
//!
//! A disconnect shuts down the sending half of its socket. The peer gets all data that was sent, then the end of the stream.
//! If the socket is to be used again, its number names a new socket from then on. The former connection [lingers](lingering):
//! if the system closed it and the peer then sent something, the system would reset it and the peer would lose data.

use std::ffi::{c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use completion_port::raw::{Attempt, Side};
use libc::socklen_t;

use crate::abi::Overlapped;
use crate::errors::{code, guarded, succeeds};
use crate::linux::connections::{carry_options, descriptor_of, is_done, replace, whole};
use crate::linux::descriptors::{self, is_connected};
use crate::linux::errno::code_of_errno;
use crate::linux::lingering::Former;
use crate::linux::numbers::{self, State};
use crate::linux::operations::{Target, Work, answered};
use crate::linux::port::{Outcome, Told};
use crate::linux::sockets::errno;
use crate::linux::starting::{Start, start};

/// `TF_REUSE_SOCKET`.
const REUSE: u32 = 2;

/// Whether a stream is connected, or was connected until both sides closed it. The reference treats the latter as connected.
/// A stream that was reset does not count.
fn is_or_was_connected(descriptor: RawFd) -> bool {
    /// Offset of the number of segments received in the system's struct. The system returns at least that much of it.
    const SEGMENTS: std::ops::Range<usize> = 140..144;
    if is_connected(descriptor) {
        return true;
    }
    if numbers::find(descriptor).is_some_and(|number| number.lock().past(descriptor).was_reset) {
        return false;
    }
    let mut info = [0_u8; SEGMENTS.end];
    let mut size = socklen_t::try_from(info.len()).unwrap_or(0);
    let place = info.as_mut_ptr().cast::<c_void>();
    // SAFETY: getsockopt(2) writes at most `size` bytes at the first pointer, and the size at the other.
    // - valid: both are locals, and the first has that many bytes.
    let done = unsafe {
        libc::getsockopt(descriptor, libc::IPPROTO_TCP, libc::TCP_INFO, place, &raw mut size)
    };
    done == 0 && size as usize == info.len() && info[SEGMENTS].iter().any(|byte| *byte != 0)
}

/// A disconnect.
pub(crate) struct Disconnecting {
    is_reused: bool,
    /// The [identity](descriptors::identity) of the socket.
    identity: u64,
    /// Address of its OVERLAPPED, if it has one.
    overlapped: Option<usize>,
}

impl Work for Disconnecting {
    fn attempt(&mut self, descriptor: RawFd, outcome: &mut Outcome) -> Attempt {
        let shut = || {
            // SAFETY: shutdown(2) demands nothing of memory.
            if unsafe { libc::shutdown(descriptor, libc::SHUT_WR) } < 0 {
                // It was connected, so both sides have closed it.
                outcome.errno = Some(errno()).filter(|errno| *errno != libc::ENOTCONN).unwrap_or(0);
            }
            outcome.errno == 0
        };
        match numbers::entry(descriptor) {
            Some(number) => number.while_shutting(shut),
            None => outcome.errno = libc::EBADF,
        }
        Attempt::Done
    }

    fn begins_unasked(&self) -> bool {
        true
    }

    fn succeeds_by_packet(&self) -> bool {
        true
    }

    fn finish(&mut self, target: Target, mut outcome: Outcome) -> Outcome {
        if outcome.errno != 0 {
            return outcome;
        }
        let Target { descriptor, .. } = target;
        if self.is_reused {
            outcome.errno = self.renew(descriptor).err().unwrap_or(0);
        } else {
            let note = |state: &mut State| state.remember(descriptor, |past| past.has_shut = true);
            let _ = target.if_current(note);
        }
        outcome
    }
}

impl Disconnecting {
    pub(crate) fn new(descriptor: RawFd, is_reused: bool, overlapped: *mut c_void) -> Self {
        let identity = descriptors::identity(descriptor);
        let overlapped = Some(overlapped.addr()).filter(|address| *address != 0);
        Self { is_reused, identity, overlapped }
    }

    /// Replaces the disconnected socket with a new one of the same type.
    fn renew(&self, descriptor: RawFd) -> Result<(), c_int> {
        let number = numbers::entry(descriptor).ok_or(libc::EBADF)?;
        let whole = |name| whole(descriptor, name).ok_or(libc::ENOTSOCK);
        let (family, kind, protocol) =
            (whole(libc::SO_DOMAIN)?, whole(libc::SO_TYPE)?, whole(libc::SO_PROTOCOL)?);
        // SAFETY: socket(2) demands nothing of memory.
        let made = unsafe { libc::socket(family, kind | libc::SOCK_CLOEXEC, protocol) };
        if made < 0 {
            return Err(errno());
        }
        // SAFETY: `from_raw_fd` demands a descriptor that has no other owner.
        // - the call has just created it.
        let made = unsafe { OwnedFd::from_raw_fd(made) };
        carry_options(number, descriptor, made.as_raw_fd());
        let mut state = number.lock();
        // A thread that closes the socket first removes its operations from the entry, with the lock held.
        let is_closed =
            self.overlapped.is_some_and(|overlapped| !state.operations.contains(overlapped));
        if is_closed
            || state.is_closing(descriptor)
            || descriptors::identity(descriptor) != self.identity
        {
            return Err(libc::ECANCELED);
        }
        let former = Former::of(descriptor);
        let is_tcp = (kind, protocol) == (libc::SOCK_STREAM, libc::IPPROTO_TCP);
        let (ended, replaced) = replace(&mut state, number, descriptor, &made, is_tcp, false);
        state.is_reused = replaced.is_ok();
        drop(state);
        ended.tell();
        if replaced.is_ok()
            && let Some(former) = former
        {
            former.linger();
        }
        replaced
    }
}

/// `DisconnectEx`.
///
/// # Safety
///
/// `overlapped` is null, or valid until the operation ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_disconnect_ex(
    socket: usize,
    overlapped: *mut c_void,
    flags: u32,
    reserved: u32,
) -> c_int {
    let descriptor = descriptor_of(socket);
    let check = || {
        descriptors::protocol(descriptor)?;
        if reserved != 0 || flags & !REUSE != 0 {
            return Err(code::WSAEINVAL);
        }
        if is_or_was_connected(descriptor) { Ok(()) } else { Err(code_of_errno(libc::ENOTCONN)) }
    };
    let mut work = Disconnecting::new(descriptor, flags & REUSE != 0, overlapped);
    if overlapped.is_null() {
        return succeeds(|| {
            check()?;
            let mut outcome = Outcome::default();
            work.attempt(descriptor, &mut outcome);
            let outcome = work.finish(Target::of(descriptor)?, outcome);
            match outcome.errno {
                0 => Ok(()),
                errno => Err(code_of_errno(errno)),
            }
        });
    }
    let begin = || {
        check()?;
        let overlapped = overlapped.cast::<Overlapped>();
        let told = Told::NOTHING;
        let (side, tells_flags) = (Side::Out, false);
        let how = Start { descriptor, overlapped, side, tells_flags, told, accept: 0 };
        // SAFETY: `start` demands an OVERLAPPED that stays valid until the operation ends.
        // - the caller guarantees it.
        unsafe { start(how, work) }
    };
    guarded(0, || is_done(answered(begin())))
}
