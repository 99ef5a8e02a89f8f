//! Socket calls that report in the codes of the reference, retire the numbers that they close or
//! return, and note when no data remains, so that enabling a registration again costs no system
//! call.
//!
//! The system's calls do the work; `errno` is left as they set it.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering::AcqRel, Ordering::Relaxed};

use libc::{sockaddr, sockaddr_storage, socklen_t};

use crate::errors::{code, cp_last_error, guarded, set_last};
use crate::linux::descriptors::{
    self, is_bound, is_connected, is_local, is_unbound, kind, protocol,
};
use crate::linux::errno::code_of_errno;
use crate::linux::errno::keeping_errno;
pub(crate) use crate::linux::errno::{errno, set_errno};
use crate::linux::numbers::{
    self, LINGERS, LISTENS, Number, Past, State, UNUSED, has_shut_reading,
};
use crate::linux::waiting_calls::{WaitingCall, until_ready};
use crate::linux::{memory, registrations, selecting, sharing, status};

/// `SOCKET_ERROR`.
const FAILED: c_int = -1;

/// How often this process has started Winsock without cleaning up.
static STARTED: AtomicU32 = AtomicU32::new(0);

/// The last error becomes the code of `errno`.
fn note_failure() {
    set_last(code_of_errno(errno()));
}

/// Calls the system; a result of -1 is a failure. The last error becomes that of the call, which is 0 if it succeeds.
pub(crate) fn called<R: PartialEq + From<i8> + Copy>(call: impl FnOnce() -> R) -> R {
    let failed = R::from(-1);
    guarded(failed, || {
        let result = call();
        if result == failed {
            note_failure();
        } else {
            set_last(code::SUCCESS);
        }
        result
    })
}

/// The same for a call that programs use for cleaning up before they read the last error: success
/// leaves that unchanged.
fn called_to_clean_up(call: impl FnOnce() -> c_int) -> c_int {
    let before = cp_last_error();
    let result = called(call);
    if result != FAILED {
        set_last(before);
    }
    result
}

/// Fails with a code.
pub(crate) fn refused(code: u32) -> c_int {
    set_last(code);
    FAILED
}

/// Whether Winsock's number of bytes, which has a sign, was negative. The system would take it as
/// two billion.
fn is_negative(size: usize) -> bool {
    isize::try_from(size).is_err()
}

/// What the caller of a read or write may have found out about a socket.
pub(crate) struct Attempt {
    number: &'static Number,
    packets: u64,
}

/// Begins a read or a write.
pub(crate) fn attempt(descriptor: c_int) -> Option<Attempt> {
    let number = numbers::find(descriptor)?;
    number.packets().map(|packets| Attempt { number, packets })
}

/// Flags of a read that takes only available data.
const PLAIN: c_int = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
/// Flags with which a blocking read means nothing for the next one.
const ASIDE: c_int = libc::MSG_OOB | libc::MSG_ERRQUEUE;

/// Notes the result of a read: that it would block, or that a stream returned less than requested.
pub(crate) fn note_read(attempt: Option<Attempt>, outcome: isize, asked: usize, flags: c_int) {
    let Some(Attempt { number, packets }) = attempt else { return };
    let is_dry = match usize::try_from(outcome) {
        Err(_) => flags & ASIDE == 0 && errno() == libc::EAGAIN,
        Ok(0) => false,
        Ok(read) => read < asked && flags & !PLAIN == 0 && number.is_plain_stream(),
    };
    if is_dry {
        number.read_drained(packets);
    }
}

/// Returns whether the program has shut down the reading half, and sets `errno` if so. Then no read begins.
pub(crate) fn is_shut_for_reads(descriptor: c_int) -> bool {
    let is_shut = has_shut_reading(descriptor);
    if is_shut {
        set_errno(libc::ESHUTDOWN);
    }
    is_shut
}

/// The result of a read: reports the error of a reset stream each time.
pub(crate) fn with_reset(descriptor: c_int, outcome: isize, flags: c_int) -> isize {
    match outcome {
        0 if flags & ASIDE == 0 => match numbers::entry(descriptor).map_or(0, |number| {
            let mut state = number.lock();
            why_ended(&mut state, number, descriptor, false)
        }) {
            0 => 0,
            errno => {
                set_errno(errno);
                -1
            }
        },
        -1 if errno() == libc::ECONNRESET => {
            remember_reset(descriptor);
            set_errno(libc::ECONNRESET);
            -1
        }
        outcome => outcome,
    }
}

/// Whether a socket has an error that no call has reported yet.
fn has_error(descriptor: c_int) -> bool {
    let mut asked = libc::pollfd { fd: descriptor, events: 0, revents: 0 };
    // SAFETY: poll(2) reads and writes that many entries.
    // - valid: there is one.
    unsafe { libc::poll(&raw mut asked, 1, 0) > 0 && asked.revents & libc::POLLERR != 0 }
}

/// Why a read brings no data from the socket that `descriptor` still names, which `is_tcp`, a
/// stream, or may be anything: 0 for a regular end. The number is locked.
///
/// The system reports a reset to one call, and an end to all others. Which call that is may not be
/// known yet.
#[cold]
pub(crate) fn why_ended(
    state: &mut State,
    number: &Number,
    descriptor: c_int,
    is_tcp: bool,
) -> c_int {
    let past = state.past(descriptor);
    if past.was_reset {
        return libc::ECONNRESET;
    }
    // A read that finds an end while an error is pending has met data that the peer sent before. A
    // stream that both sides have ended has no peer any more either. Another process may have done
    // this to a socket that comes from there.
    if !number.is_vouched()
        || number.is_shut()
        || past.has_shut
        || is_connected(descriptor)
        || !(is_tcp || kind(descriptor) == Some(libc::SOCK_STREAM))
        || !is_bound(descriptor)
        || has_error(descriptor)
    {
        return 0;
    }
    if past.was_refused {
        return libc::ENOTCONN;
    }
    state.remember(descriptor, |past| past.was_reset = true);
    libc::ECONNRESET
}

/// The system has reported a reset, and will not do so again.
pub(crate) fn remember_reset(descriptor: c_int) {
    if let Some(number) = numbers::entry(descriptor) {
        remember_reset_in(&mut number.lock(), descriptor);
    }
}

/// The same for a caller that has locked the number.
fn remember_reset_in(state: &mut State, descriptor: c_int) {
    remember_reset_of(descriptors::identity(descriptor), state, descriptor);
}

/// The same for the socket with this [identity](descriptors::identity), whose number is locked.
fn remember_reset_of(socket: u64, state: &mut State, descriptor: c_int) {
    if state.tcp == Some(socket) || kind(descriptor) == Some(libc::SOCK_STREAM) {
        state.remember_of(socket, |past| past.was_reset = true);
    }
}

/// Notes the result of a write: that it would block, or why a stream accepts no data any more.
pub(crate) fn note_write(attempt: Option<Attempt>, descriptor: c_int, outcome: isize) {
    if outcome >= 0 {
        return;
    }
    match errno() {
        errno @ (libc::EPIPE | libc::ECONNRESET) => {
            let number = numbers::entry(descriptor);
            let why = number.map(|number| why_not_sent(&mut number.lock(), descriptor, errno));
            set_errno(why.unwrap_or(errno));
        }
        libc::EAGAIN => {
            if let Some(Attempt { number, packets }) = attempt {
                number.write_full(packets);
            }
        }
        _ => {}
    }
}

/// Why a stream accepts no data any more. The system reports a reset once, and otherwise has one
/// error for three cases. The number is locked.
#[cold]
fn why_not_sent(state: &mut State, descriptor: c_int, errno: c_int) -> c_int {
    let Past { has_shut, was_refused, .. } = state.past(descriptor);
    if errno == libc::ECONNRESET {
        remember_reset_in(state, descriptor);
    }
    if has_shut {
        libc::ESHUTDOWN
    } else if was_refused {
        libc::ENOTCONN
    } else if errno == libc::ECONNRESET || is_local(descriptor) {
        // A local socket still has its peer's name when the peer is gone.
        libc::ECONNRESET
    } else if is_connected(descriptor) {
        libc::ESHUTDOWN
    } else if is_bound(descriptor) {
        remember_reset_in(state, descriptor);
        libc::ECONNRESET
    } else {
        libc::ENOTCONN
    }
}

/// The status of a failed overlapped receive or send on the socket that `descriptor` still names.
/// Its number is locked.
pub(crate) fn status_of_transfer(state: &mut State, descriptor: c_int, errno: c_int) -> u32 {
    match errno {
        libc::EPIPE => status::of_errno(why_not_sent(state, descriptor, errno)),
        libc::ECONNREFUSED if kind(descriptor) == Some(libc::SOCK_DGRAM) => {
            // An earlier datagram has found no receiver.
            status::PORT_UNREACHABLE
        }
        libc::EDESTADDRREQ => status::of_errno(libc::ENOTCONN),
        errno => {
            if errno == libc::ECONNRESET {
                // `tcp` spares a system call. If the number names another socket by now, the note
                // does not apply to that.
                let socket = state.tcp.unwrap_or_else(|| descriptors::identity(descriptor));
                remember_reset_of(socket, state, descriptor);
            }
            status::of_errno(errno)
        }
    }
}

/// A blocking call that would still block has timed out, which has its own code.
pub(crate) fn note_time(descriptor: c_int, failed: bool, flags: c_int, errno_of_time: c_int) {
    if !failed
        || errno() != errno_of_time
        || flags & libc::MSG_DONTWAIT != 0
        || !numbers::has_time(descriptor)
    {
        return;
    }
    // SAFETY: fcntl(2) with F_GETFL demands nothing of memory.
    let status = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
    let unasked = || numbers::find(descriptor).is_some_and(Number::is_nonblocking_unasked);
    if status >= 0 && (status & libc::O_NONBLOCK == 0 || unasked()) {
        set_last(code::WSAETIMEDOUT);
    }
}

/// Maximum number of retries of a send. The system keeps one error per socket, and another thread's
/// datagram may cause the next.
const SENDS_AGAIN: usize = 8;

/// Calls `send`, the system's call. Calls it again if it has failed because an earlier datagram has reached no receiver: then
/// it has sent nothing, and on the reference a send does not fail for that. If the datagram reaches no receiver either, the
/// next receive fails; otherwise the error is lost.
#[inline]
pub(crate) fn past_refusals(descriptor: c_int, mut send: impl FnMut() -> isize) -> isize {
    let mut sent = send();
    for _ in 0..SENDS_AGAIN {
        if sent >= 0 || errno() != libc::ECONNREFUSED || !is_udp(descriptor) {
            break;
        }
        sent = send();
    }
    sent
}

/// Whether a socket's datagrams go over UDP. Those of other protocols, AF_UNIX and netlink, are refused when they are sent.
#[cold]
fn is_udp(descriptor: c_int) -> bool {
    keeping_errno(|| protocol(descriptor) == Ok(libc::IPPROTO_UDP))
}

/// Where the reference has another code for a datagram that was not sent or received.
pub(crate) fn note_datagram(descriptor: c_int, failed: bool) {
    if !failed {
        return;
    }
    match errno() {
        libc::ECONNREFUSED if kind(descriptor) == Some(libc::SOCK_DGRAM) => {
            // An earlier datagram has found no receiver.
            set_last(code_of_errno(libc::ECONNRESET));
        }
        libc::EDESTADDRREQ => set_last(code_of_errno(libc::ENOTCONN)),
        _ => {}
    }
}

/// Counts a start; never fails.
#[unsafe(no_mangle)]
pub extern "C" fn cp_startup() {
    // A program that only ever starts it never ends it.
    let _ = STARTED.fetch_update(AcqRel, Relaxed, |count| count.checked_add(1));
}

/// Counts one start less; fails if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn cp_cleanup() -> c_int {
    let less = STARTED.fetch_update(AcqRel, Relaxed, |count| count.checked_sub(1));
    if less.is_ok() { 0 } else { refused(code::WSANOTINITIALISED) }
}

/// The bits of a type that are not modes.
const TYPES: c_int = !(libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK);

/// The family and the type of a new socket, of which the program may omit whatever the protocol
/// determines. An error of the system if it does not determine that, or if there is no such type.
fn completed(family: c_int, kind: c_int, protocol: c_int) -> Result<(c_int, c_int), c_int> {
    /// The system's greatest number of a type.
    const LAST: c_int = 10;
    let of_protocol = match protocol {
        libc::IPPROTO_TCP => Ok(libc::SOCK_STREAM),
        libc::IPPROTO_UDP => Ok(libc::SOCK_DGRAM),
        // The first of those that WSAEnumProtocols describes.
        0 if family != libc::AF_UNSPEC => Ok(libc::SOCK_STREAM),
        0 => Err(libc::EINVAL),
        _ => Err(libc::EPROTONOSUPPORT),
    };
    let kind = match kind & TYPES {
        _ if family == libc::AF_UNSPEC && protocol == 0 => return Err(libc::EINVAL),
        0 => kind | of_protocol?,
        1..=LAST => kind,
        _ => return Err(libc::ESOCKTNOSUPPORT),
    };
    let family =
        if family == libc::AF_UNSPEC { of_protocol.map(|_| libc::AF_INET)? } else { family };
    Ok((family, kind))
}

/// `socket`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_socket(family: c_int, kind: c_int, protocol: c_int) -> c_int {
    called(|| {
        let (family, kind) = match completed(family, kind, protocol) {
            Ok(completed) => completed,
            Err(errno) => {
                set_errno(errno);
                return FAILED;
            }
        };
        // SAFETY: socket(2) demands nothing of memory.
        let made = unsafe { libc::socket(family, kind, protocol) };
        if made < 0 && errno() == libc::EINVAL {
            // Only the protocol among the three arguments is unchecked.
            set_errno(libc::EPROTONOSUPPORT);
        }
        if made >= 0 {
            if family == libc::AF_INET6 {
                // As on the reference. Raw sockets and the like do not have the option.
                descriptors::separate_from_ipv4(made);
            }
            registrations::give_out(made);
            let is_plain = kind & (TYPES | libc::SOCK_NONBLOCK) == libc::SOCK_STREAM;
            if is_plain
                && matches!(family, libc::AF_INET | libc::AF_INET6)
                && let Some(number) = numbers::find(made)
            {
                number.set_options(UNUSED);
            }
        }
        made
    })
}

/// The socket is about to be used: an accept must check it before it replaces it.
pub(crate) fn note_use(descriptor: c_int) {
    if let Some(number) = numbers::find(descriptor) {
        number.clear_options(UNUSED | LISTENS);
    }
}

/// Another descriptor of a socket, associated with the same port: `WSADuplicateSocket` within the
/// process.
#[unsafe(no_mangle)]
pub extern "C" fn cp_duplicate_socket(descriptor: c_int, is_inherited: c_int) -> c_int {
    called(|| {
        if protocol(descriptor).is_err() {
            return FAILED;
        }
        let how = if is_inherited == 0 { libc::F_DUPFD_CLOEXEC } else { libc::F_DUPFD };
        // SAFETY: fcntl(2) with these commands demands nothing of memory.
        let made = unsafe { libc::fcntl(descriptor, how, 0) };
        if made < 0 {
            return made;
        }
        registrations::give_out(made);
        note_use(descriptor);
        if let (Some(number), Some(other)) = (numbers::find(descriptor), numbers::entry(made)) {
            let (associated, chosen, connected) = {
                let state = number.lock();
                (state.associated, state.chosen, state.connected)
            };
            // It has the same identity. An outdated association is detected as usual.
            let mut state = other.lock();
            (state.associated, state.chosen) = (associated, chosen);
            state.connected = connected;
        }
        made
    })
}

/// `accept`. Connections of a non-blocking listener are non-blocking, as on the reference.
///
/// # Safety
///
/// As for accept(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_accept(
    listener: c_int,
    address: *mut sockaddr,
    size: *mut socklen_t,
) -> c_int {
    // SAFETY: `has_room` demands a pointer to a number, or to no memory.
    // - the caller guarantees it.
    let has_room = || unsafe { has_room(listener, size) };
    let is_wanted = !address.is_null();
    if is_wanted && !(memory::is_there(address, size_of::<sockaddr>()) && has_room()) {
        // The system would reject it only once a connection is there, which would then be lost.
        return refused(protocol(listener).map_or_else(|code| code, |_| code::WSAEFAULT));
    }
    let made = called(|| {
        let attempt = attempt(listener);
        // SAFETY: fcntl(2) with F_GETFL demands nothing of memory.
        let flags = unsafe { libc::fcntl(listener, libc::F_GETFL) };
        let is_nonblocking = flags >= 0 && flags & libc::O_NONBLOCK != 0;
        let waits =
            is_nonblocking && numbers::find(listener).is_some_and(Number::is_nonblocking_unasked);
        let inherited = if is_nonblocking && !waits { libc::SOCK_NONBLOCK } else { 0 };
        let call = || {
            // SAFETY: accept4(2) writes an address and its size to the given places.
            // - the caller guarantees that it may write there.
            unsafe { libc::accept4(listener, address, size, inherited) }
        };
        let made = if waits { accept_blocking(listener, call) } else { call() };
        if made >= 0 {
            registrations::give_out(made);
            begin_connection(listener, made);
        } else {
            note_read(attempt, -1, 0, 0);
        }
        made
    });
    note_time(listener, made < 0, 0, libc::EAGAIN);
    made
}

/// Registers `made` as a connection with the choices of its listener.
fn begin_connection(listener: c_int, made: c_int) {
    let of_listener = numbers::find(listener).map(|number| {
        let chosen = number.lock().chosen;
        (chosen.inherited(listener, made), number.options() & LINGERS)
    });
    if let Some(number) = numbers::find(made) {
        let (chosen, options) = of_listener.unwrap_or_default();
        number.set_options(options);
        let mut state = number.lock();
        state.begin_connection();
        state.chosen = chosen.unwrap_or_default();
    }
}

/// The timeout of reads in milliseconds; -1 for none.
fn limit_of_reads(descriptor: c_int) -> c_int {
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut size = socklen_t::try_from(size_of_val(&time)).unwrap_or(16);
    let (level, name) = (libc::SOL_SOCKET, libc::SO_RCVTIMEO);
    // SAFETY: getsockopt(2) writes at most `size` bytes at `time`.
    // - valid: both are locals of the right type.
    unsafe { libc::getsockopt(descriptor, level, name, (&raw mut time).cast(), &raw mut size) };
    let limit = time.tv_sec.saturating_mul(1000).saturating_add((time.tv_usec + 999) / 1000);
    if limit == 0 { -1 } else { c_int::try_from(limit).unwrap_or(c_int::MAX) }
}

/// Accepts by `call`, and waits for a connection as long as a blocking listener may that is
/// non-blocking to the system.
fn accept_blocking(listener: c_int, call: impl Fn() -> c_int) -> c_int {
    let accept = || {
        let mut waiting = WaitingCall::new(listener)?;
        loop {
            let (made, errno) = waiting.attempt(|| (call(), errno()))?;
            if made >= 0 || errno != libc::EAGAIN {
                set_errno(errno);
                return Ok(made);
            }
            if has_shut_reading(listener) {
                set_errno(libc::EINVAL);
                return Ok(FAILED);
            }
            if !until_ready(&mut waiting, libc::POLLIN, limit_of_reads(listener))? {
                set_errno(libc::EAGAIN);
                return Ok(FAILED);
            }
        }
    };
    accept().unwrap_or_else(|_: u32| {
        set_errno(libc::ENOTSOCK);
        FAILED
    })
}

/// Whether closing a non-blocking socket would have to wait. If only the peer's answer to the end is missing, nothing waits
/// for it, and the socket no longer lingers.
fn waits_when_closed(descriptor: c_int) -> bool {
    let chooses =
        |number: &Number| number.options() & LINGERS != 0 && !number.is_nonblocking_unasked();
    if !numbers::find(descriptor).is_some_and(chooses)
        || descriptors::blocks(descriptor) != Some(false)
    {
        return false;
    }
    let (done, linger) = descriptors::lingers(descriptor);
    if done < 0 || linger.l_onoff == 0 || linger.l_linger <= 0 {
        return false;
    }
    if is_connected(descriptor) && descriptors::unconfirmed(descriptor) > 0 {
        return true;
    }
    descriptors::stop_lingering(descriptor);
    false
}

/// `closesocket`. Leaves descriptors open that are not sockets.
#[unsafe(no_mangle)]
pub extern "C" fn cp_close_socket(descriptor: c_int) -> c_int {
    called_to_clean_up(|| {
        let Some(identity) = descriptors::identity_of_socket(descriptor) else { return FAILED };
        if waits_when_closed(descriptor) {
            set_errno(libc::EAGAIN);
            return FAILED;
        }
        // SAFETY: close(2) demands that the descriptor is not used any more.
        // - it is the caller's, and the caller asks for it.
        let close = || selecting::while_closing(descriptor, || unsafe { libc::close(descriptor) });
        registrations::close(descriptor, identity, close).unwrap_or_else(|| {
            set_errno(libc::ENOTSOCK);
            FAILED
        })
    })
}

/// `bind`.
///
/// # Safety
///
/// As for bind(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_bind(
    descriptor: c_int,
    address: *const sockaddr,
    size: socklen_t,
) -> c_int {
    note_use(descriptor);
    // SAFETY: `is_cut_off` demands what this call does.
    if unsafe { is_cut_off(descriptor, address, size) } {
        return refused(code::WSAEFAULT);
    }
    // SAFETY: the caller guarantees what bind(2) demands.
    let bind = || unsafe { libc::bind(descriptor, address, size) };
    let bound = called(|| match bind() {
        FAILED if errno() == libc::EADDRINUSE => {
            sharing::bind_beside_connections(descriptor, bind).unwrap_or(FAILED)
        }
        bound => bound,
    });
    // SAFETY: reading through a raw pointer demands that it is valid.
    // - the system has read `size` bytes there.
    if bound == 0 && size >= 4 && unsafe { address.cast::<[u16; 2]>().read_unaligned() }[1] != 0 {
        sharing::note_bound(descriptor);
    }
    note_short_address(bound < 0, descriptor, size);
    bound
}

/// An address that is too short is a bad pointer to the reference, a bad argument to the system.
pub(crate) fn note_short_address(failed: bool, descriptor: c_int, size: socklen_t) {
    if failed && errno() == libc::EINVAL {
        let is_negative = c_int::try_from(size).is_err();
        if is_negative || size < descriptors::size_of_address(descriptor) {
            set_last(code::WSAEFAULT);
        }
        set_errno(libc::EINVAL);
    }
}

/// Whether it is an IPv6 address without its last member, which the system takes.
///
/// # Safety
///
/// `address` points to `size` bytes, or to no memory.
pub(crate) unsafe fn is_cut_off(
    descriptor: c_int,
    address: *const sockaddr,
    size: socklen_t,
) -> bool {
    // Without a system call for any other size.
    let is_six = || {
        // SAFETY: reading through a raw pointer demands that it is valid.
        // - there is memory, and the caller guarantees that nothing writes to it.
        memory::is_there(address, size as usize)
            && c_int::from(unsafe { address.cast::<libc::sa_family_t>().read_unaligned() })
                == libc::AF_INET6
    };
    let whole = size_of::<libc::sockaddr_in6>();
    (whole - size_of::<u32>()..whole).contains(&(size as usize))
        && is_six()
        && protocol(descriptor).is_ok()
}

/// `listen`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_listen(descriptor: c_int, backlog: c_int) -> c_int {
    note_use(descriptor);
    let listening = called(|| {
        // The system binds such a socket to a port that it chooses.
        if kind(descriptor) == Some(libc::SOCK_STREAM) && is_unbound(descriptor) {
            set_errno(libc::EINVAL);
            return FAILED;
        }
        let mut listening = FAILED;
        sharing::listen(descriptor, || {
            // SAFETY: listen(2) demands nothing of memory.
            listening = unsafe { libc::listen(descriptor, backlog) };
            listening == 0
        });
        listening
    });
    if listening < 0 && errno() == libc::EINVAL && is_connected(descriptor) {
        return refused(code_of_errno(libc::EISCONN));
    }
    listening
}

/// Whether the address is the unspecified one, with a port: no host has it. Without a port it disconnects a datagram
/// socket.
///
/// # Safety
///
/// `address` points to `size` bytes.
pub(crate) unsafe fn is_unspecified(address: *const sockaddr, size: socklen_t) -> bool {
    if (size as usize) < size_of::<libc::sockaddr_in>() {
        return false;
    }
    // SAFETY: reading through a raw pointer demands that it is valid.
    // - the size was compared with this type's, and the caller guarantees that many bytes.
    let four = unsafe { address.cast::<libc::sockaddr_in>().read_unaligned() };
    if c_int::from(four.sin_family) == libc::AF_INET {
        return four.sin_addr.s_addr == 0 && four.sin_port != 0;
    }
    if c_int::from(four.sin_family) != libc::AF_INET6
        || (size as usize) < size_of::<libc::sockaddr_in6>()
    {
        return false;
    }
    // SAFETY: as above.
    let six = unsafe { address.cast::<libc::sockaddr_in6>().read_unaligned() };
    six.sin6_addr.s6_addr == [0; 16] && six.sin6_port != 0
}

/// Why a socket cannot be connected, if the system reports no error or another one.
fn cannot_connect(descriptor: c_int) -> Option<u32> {
    if let Some(number) = numbers::find(descriptor) {
        let mut state = number.lock();
        if state.is_connecting() || state.accept.is_some() {
            // An operation is about to give it a connection.
            return Some(code::WSAEINVAL);
        }
    }
    if !is_connected(descriptor) || kind(descriptor) != Some(libc::SOCK_STREAM) {
        return None;
    }
    // After a connect that had to wait, the system treats the next one as its end.
    if let Some(number) = numbers::find(descriptor) {
        let mut state = number.lock();
        if state.past(descriptor).is_connecting {
            state.forget_past();
            state.begin_connection();
        }
    }
    Some(code_of_errno(libc::EISCONN))
}

/// `connect`. Fails with `WSAEWOULDBLOCK` while in progress, as on the reference.
///
/// # Safety
///
/// As for connect(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_connect(
    descriptor: c_int,
    address: *const sockaddr,
    size: socklen_t,
) -> c_int {
    // SAFETY: the caller guarantees what connect(2) demands.
    let connect = || unsafe { libc::connect(descriptor, address, size) };
    // A bad pointer is left to the system.
    if memory::is_there(address, size as usize) {
        // SAFETY: `is_cut_off` demands what this call does.
        if unsafe { is_cut_off(descriptor, address, size) } {
            return refused(code::WSAEFAULT);
        }
        // SAFETY: `is_unspecified` demands `size` bytes.
        // - there is memory for them, and the caller guarantees that nothing writes to it.
        if unsafe { is_unspecified(address, size) } && protocol(descriptor).is_ok() {
            return refused(code_of_errno(libc::EADDRNOTAVAIL));
        }
        if let Some(code) = cannot_connect(descriptor) {
            return refused(code);
        }
    }
    note_use(descriptor);
    sharing::before_connect(descriptor);
    let connected = called(|| match connect() {
        // The system reports the failure of an earlier connect again; the reference does not.
        FAILED if errno() == libc::ECONNABORTED => connect(),
        connected => connected,
    });
    note_short_address(connected < 0, descriptor, size);
    if connected < 0 && errno() == libc::EISCONN && descriptors::listens(descriptor) == Some(true) {
        return refused(code::WSAEINVAL);
    }
    if connected < 0 && errno() == libc::EAGAIN && is_local(descriptor) {
        // The listener's queue is full, and no event reports free space.
        let has_waited = descriptors::blocks(descriptor) == Some(true);
        let refusal = code_of_errno(libc::ECONNREFUSED);
        return refused(if has_waited { code::WSAETIMEDOUT } else { refusal });
    }
    let goes_on = connected < 0 && errno() == libc::EINPROGRESS;
    if (connected == 0 || goes_on)
        && let Some(number) = numbers::find(descriptor)
    {
        let mut state = number.lock();
        state.forget_past();
        state.begin_connection();
        if goes_on {
            state.remember(descriptor, |past| past.is_connecting = true);
        }
    }
    if goes_on {
        set_last(code::WSAEWOULDBLOCK);
        note_time(descriptor, true, 0, libc::EINPROGRESS);
    }
    connected
}

/// The room for a sender's address. Fails if it is too small for any address. Streams report no sender.
///
/// # Safety
///
/// `size` is null or points to a number.
pub(crate) unsafe fn room_for_sender(
    descriptor: c_int,
    address: *const sockaddr,
    size: *const c_int,
) -> Result<socklen_t, u32> {
    if address.is_null() {
        return Ok(0);
    }
    let room = if memory::may_be(address) && memory::may_be(size) {
        // SAFETY: reading through a raw pointer demands that it is valid.
        // - the caller guarantees it for a pointer that can be valid.
        socklen_t::try_from(unsafe { size.read() }).unwrap_or(0)
    } else {
        0
    };
    // Asked once for a socket that this library has created, because programs receive datagrams often.
    let needed = || match numbers::find(descriptor) {
        Some(number) => number.size_of_address(descriptor, registrations::is_believed(number)),
        None => descriptors::size_of_address(descriptor),
    };
    let is_enough = || room as usize >= size_of::<libc::sockaddr_in6>() || room >= needed();
    let tells = || !matches!(descriptors::kind(descriptor), None | Some(libc::SOCK_STREAM));
    if !is_enough() && tells() { Err(code::WSAEFAULT) } else { Ok(room) }
}

/// Receives by `call`, which calls the system and returns its result.
#[inline]
fn receive(descriptor: c_int, size: usize, flags: c_int, call: impl FnOnce() -> isize) -> isize {
    let read = called(|| {
        if is_shut_for_reads(descriptor) {
            return -1;
        }
        let attempt = attempt(descriptor);
        let read = with_reset(descriptor, call(), flags);
        note_read(attempt, read, size, flags);
        read
    });
    note_time(descriptor, read < 0, flags, libc::EAGAIN);
    note_datagram(descriptor, read < 0);
    read
}

/// Sends by `call`, which calls the system and returns its result.
#[inline]
fn send(descriptor: c_int, flags: c_int, call: impl FnMut() -> isize) -> isize {
    let sent = called(|| {
        let attempt = attempt(descriptor);
        let sent = past_refusals(descriptor, call);
        note_write(attempt, descriptor, sent);
        sent
    });
    note_time(descriptor, sent < 0, flags, libc::EAGAIN);
    note_datagram(descriptor, sent < 0);
    sent
}

/// `recv`.
///
/// # Safety
///
/// As for recv(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_recv(
    descriptor: c_int,
    buffer: *mut c_void,
    size: usize,
    flags: c_int,
) -> isize {
    if is_negative(size) {
        return refused(code::WSAEFAULT) as isize;
    }
    // SAFETY: the caller guarantees what recv(2) demands.
    receive(descriptor, size, flags, || unsafe { libc::recv(descriptor, buffer, size, flags) })
}

/// `recvfrom`.
///
/// # Safety
///
/// As for recvfrom(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_recvfrom(
    descriptor: c_int,
    buffer: *mut c_void,
    size: usize,
    flags: c_int,
    address: *mut sockaddr,
    address_size: *mut socklen_t,
) -> isize {
    if is_negative(size) {
        return refused(code::WSAEFAULT) as isize;
    }
    let (mut address, mut address_size) = (address, address_size);
    // SAFETY: `room_for_sender` demands null or a number.
    // - the caller guarantees it.
    match unsafe { room_for_sender(descriptor, address, address_size.cast()) } {
        Ok(1..) => {}
        // A stream reports no sender.
        Ok(0) => (address, address_size) = (ptr::null_mut(), ptr::null_mut()),
        Err(code) => return refused(code) as isize,
    }
    // SAFETY: the caller guarantees what recvfrom(2) demands.
    receive(descriptor, size, flags, || unsafe {
        libc::recvfrom(descriptor, buffer, size, flags, address, address_size)
    })
}

/// `send`. A stream whose reader is gone raises no signal.
///
/// # Safety
///
/// As for send(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_send(
    descriptor: c_int,
    buffer: *const c_void,
    size: usize,
    flags: c_int,
) -> isize {
    if is_negative(size) {
        return refused(code::WSAEFAULT) as isize;
    }
    // SAFETY: the caller guarantees what send(2) demands.
    send(descriptor, flags, || unsafe {
        libc::send(descriptor, buffer, size, flags | libc::MSG_NOSIGNAL)
    })
}

/// `sendto`. A stream whose reader is gone raises no signal.
///
/// # Safety
///
/// As for sendto(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_sendto(
    descriptor: c_int,
    buffer: *const c_void,
    size: usize,
    flags: c_int,
    address: *const sockaddr,
    address_size: socklen_t,
) -> isize {
    // SAFETY: `is_cut_off` demands what this call does.
    if is_negative(size) || unsafe { is_cut_off(descriptor, address, address_size) } {
        return refused(code::WSAEFAULT) as isize;
    }
    // SAFETY: the caller guarantees what sendto(2) demands.
    let sent = send(descriptor, flags, || unsafe {
        let flags = flags | libc::MSG_NOSIGNAL;
        libc::sendto(descriptor, buffer, size, flags, address, address_size)
    });
    note_short_address(sent < 0 && !address.is_null(), descriptor, address_size);
    sent
}

/// Whether there is room for an address of the socket's family.
///
/// # Safety
///
/// `size` points to a number, or to no memory.
unsafe fn has_room(descriptor: c_int, size: *const socklen_t) -> bool {
    // SAFETY: reading through a raw pointer demands that it is valid.
    // - the caller guarantees it where there is memory.
    memory::is_there(size, size_of::<socklen_t>())
        && unsafe { size.cast::<c_int>().read() }
            .try_into()
            .is_ok_and(|room: socklen_t| room >= descriptors::size_of_address(descriptor))
}

/// Copies the whole address that `call` returns for a socket, or nothing. Also copies nothing if `has_none`.
///
/// # Safety
///
/// `size` is null or points to a number, `address` is null or has room for that many bytes.
unsafe fn tell_address(
    address: *mut sockaddr,
    size: *mut socklen_t,
    call: impl FnOnce(*mut sockaddr, *mut socklen_t) -> c_int,
    has_none: impl FnOnce() -> bool,
) -> c_int {
    called(|| {
        let mut found = MaybeUninit::<sockaddr_storage>::zeroed();
        let mut needed = socklen_t::try_from(size_of_val(&found)).unwrap_or(0);
        if call(found.as_mut_ptr().cast(), &raw mut needed) < 0 {
            return FAILED;
        }
        // SAFETY: `assume_init_ref` demands a value.
        // - zero bits are valid for numbers, and so is whatever the call has written.
        let told = unsafe { found.assume_init_ref() };
        if has_none() {
            set_errno(libc::EINVAL);
            return FAILED;
        }
        let has_size = memory::is_there(size, size_of::<socklen_t>());
        // SAFETY: reading through a raw pointer demands that it is valid.
        // - the caller guarantees it where there is memory.
        let room = if has_size { unsafe { size.cast::<c_int>().read() } } else { 0 };
        if !socklen_t::try_from(room).is_ok_and(|room| room >= needed)
            || !memory::is_there(address, needed as usize)
        {
            set_errno(libc::EFAULT);
            return FAILED;
        }
        let bytes = ptr::from_ref(told).cast::<u8>();
        // SAFETY: `copy_nonoverlapping` demands that many bytes at both places, which do not overlap.
        // - the caller guarantees room for more; the other one is a local of the largest size.
        unsafe { bytes.copy_to_nonoverlapping(address.cast(), needed as usize) };
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the caller guarantees it, and it is not null.
        unsafe { size.write(needed) };
        0
    })
}

/// `getsockname`.
///
/// # Safety
///
/// As for getsockname(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_getsockname(
    descriptor: c_int,
    address: *mut sockaddr,
    size: *mut socklen_t,
) -> c_int {
    // SAFETY: getsockname(2) writes an address and its size to the given places.
    // - `tell_address` gives it room for any.
    let call = |address, size| unsafe { libc::getsockname(descriptor, address, size) };
    // SAFETY: `tell_address` demands what this call does.
    unsafe { tell_address(address, size, call, || is_unbound(descriptor)) }
}

/// `getpeername`.
///
/// # Safety
///
/// As for getpeername(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_getpeername(
    descriptor: c_int,
    address: *mut sockaddr,
    size: *mut socklen_t,
) -> c_int {
    // SAFETY: getpeername(2) writes an address and its size to the given places.
    // - `tell_address` gives it room for any.
    let call = |address, size| unsafe { libc::getpeername(descriptor, address, size) };
    // SAFETY: `tell_address` demands what this call does.
    unsafe { tell_address(address, size, call, || false) }
}
