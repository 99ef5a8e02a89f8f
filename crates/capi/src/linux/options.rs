//! `getsockopt` and `setsockopt`: options that only the reference has, or that it has in another form.

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;

use libc::socklen_t;

use crate::linux::descriptors::{self, is_connected, kind, lingers, protocol};
use crate::linux::errno::code_of_errno;
use crate::linux::numbers::{
    self, LINGERS, Number, OPTIONS, RECEIVE_ROOM, ROOM_FOR_DATAGRAMS, SEND_ROOM,
};
use crate::linux::protocols::protocol_info;
use crate::linux::sockets::{called, errno, remember_reset, set_errno};
use crate::linux::{memory, sharing};

/// `SOCKET_ERROR`.
const FAILED: c_int = -1;

/// A level that no protocol has is a bad argument to the reference.
fn note_level(level: c_int, done: c_int) {
    /// No level of the system's is greater.
    const LAST: c_int = 300;
    if done < 0
        && !(0..=LAST).contains(&level)
        && matches!(errno(), libc::ENOPROTOOPT | libc::EOPNOTSUPP)
    {
        set_errno(libc::EINVAL);
    }
}

/// Makes a call fail with an error of the system.
fn failed(errno: c_int) -> c_int {
    set_errno(errno);
    FAILED
}

/// Whether the option's value is a number of milliseconds on the reference, and a `timeval` here.
fn is_time(level: c_int, name: c_int, size: usize) -> bool {
    level == libc::SOL_SOCKET
        && (name == libc::SO_RCVTIMEO || name == libc::SO_SNDTIMEO)
        && size < size_of::<libc::timeval>()
}

/// The inverse of `SO_LINGER`: whether a socket does not linger when it is closed.
const DO_NOT_LINGER: c_int = !libc::SO_LINGER;
/// Options that only the reference has.
const EXCLUSIVE_ADDRESS: c_int = !libc::SO_REUSEADDR;
const UPDATE_ACCEPT_CONTEXT: c_int = 0x700B;
/// The number of seconds a socket has been connected.
const CONNECT_TIME: c_int = 0x700C;
const UPDATE_CONNECT_CONTEXT: c_int = 0x7010;

/// Whether the option's value is a flag. On the reference a flag has four bytes, or one or two.
fn is_flag(level: c_int, name: c_int) -> bool {
    match level {
        libc::SOL_SOCKET => matches!(
            name,
            libc::SO_ACCEPTCONN
                | libc::SO_BROADCAST
                | libc::SO_DEBUG
                | libc::SO_DONTROUTE
                | libc::SO_KEEPALIVE
                | libc::SO_OOBINLINE
                | libc::SO_REUSEADDR
                | DO_NOT_LINGER
                | EXCLUSIVE_ADDRESS
        ),
        libc::IPPROTO_TCP => name == libc::TCP_NODELAY,
        libc::IPPROTO_IP => {
            let flags =
                [libc::IP_MULTICAST_LOOP, libc::IP_PKTINFO, libc::IP_RECVTOS, libc::IP_RECVTTL];
            flags.contains(&name)
        }
        libc::IPPROTO_IPV6 => matches!(
            name,
            libc::IPV6_DONTFRAG
                | libc::IPV6_MULTICAST_LOOP
                | libc::IPV6_RECVHOPLIMIT
                | libc::IPV6_RECVPKTINFO
                | libc::IPV6_RECVTCLASS
                | libc::IPV6_V6ONLY
        ),
        _ => false,
    }
}

/// The least size of an option's value.
fn least_size(level: c_int, name: c_int) -> usize {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_LINGER) => size_of::<libc::linger>(),
        (libc::SOL_SOCKET, libc::SO_ERROR | libc::SO_TYPE | libc::SO_SNDBUF | libc::SO_RCVBUF) => {
            size_of::<c_int>()
        }
        // The first four bytes are milliseconds.
        (libc::SOL_SOCKET, libc::SO_RCVTIMEO | libc::SO_SNDTIMEO) => size_of::<u32>(),
        // The system takes no value for 0.
        (libc::IPPROTO_IPV6, _) => 1,
        _ => is_flag(level, name).into(),
    }
}

/// A call fails because the value of an option has no memory, or not enough.
fn failed_for_memory(descriptor: c_int) -> c_int {
    failed(if protocol(descriptor).is_ok() { libc::EFAULT } else { libc::ENOTSOCK })
}

/// The number of seconds a stream has been connected, or all ones if it is not. Fails with the system's error if the socket
/// is not a stream.
fn connect_time(descriptor: c_int) -> Result<u32, c_int> {
    match kind(descriptor) {
        None => Err(libc::ENOTSOCK),
        Some(libc::SOCK_STREAM) => {
            let number = numbers::entry(descriptor).filter(|_| is_connected(descriptor));
            let time = |it: &Number| it.lock().connected_for(descriptor, it.is_vouched()).as_secs();
            Ok(number.map_or(u32::MAX, |number| u32::try_from(time(number)).unwrap_or(u32::MAX)))
        }
        // Datagrams have no connection.
        Some(_) => Ok(u32::MAX),
    }
}

/// The time limit of operations in milliseconds, from one of the two options for that.
fn milliseconds(descriptor: c_int, name: c_int) -> Result<u32, c_int> {
    let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
    let mut size = socklen_t::try_from(size_of_val(&time)).unwrap_or(16);
    let (level, place) = (libc::SOL_SOCKET, (&raw mut time).cast());
    // SAFETY: getsockopt(2) writes at most `size` bytes at `time`.
    // - valid: both are locals of the right type.
    if unsafe { libc::getsockopt(descriptor, level, name, place, &raw mut size) } != 0 {
        return Err(errno());
    }
    let whole = time.tv_sec.saturating_mul(1000).saturating_add(time.tv_usec / 1000);
    Ok(u32::try_from(whole).unwrap_or(u32::MAX))
}

/// The value of an option that the system lacks or has in another form. `None` if the option is the system's.
fn own_value(
    descriptor: c_int,
    level: c_int,
    name: c_int,
    room: usize,
) -> Option<Result<u32, c_int>> {
    if level != libc::SOL_SOCKET {
        return None;
    }
    let of_socket = |value: u32| {
        if protocol(descriptor).is_ok() { Ok(value) } else { Err(libc::ENOTSOCK) }
    };
    match name {
        CONNECT_TIME => Some(connect_time(descriptor)),
        DO_NOT_LINGER => Some(match lingers(descriptor) {
            (0, linger) => Ok((linger.l_onoff == 0).into()),
            _ => Err(errno()),
        }),
        EXCLUSIVE_ADDRESS => Some(of_socket(sharing::chosen(descriptor).is_exclusive.into())),
        // The library also sets the system's option on sockets for which the program did not.
        libc::SO_REUSEADDR => {
            let is_vouched = numbers::find(descriptor).is_some_and(Number::is_vouched);
            let is_shared = sharing::chosen(descriptor).is_shared;
            (is_vouched || is_shared).then(|| of_socket(is_shared.into()))
        }
        libc::SO_SNDBUF => sharing::chosen(descriptor).send_room.map(of_socket),
        libc::SO_RCVBUF => sharing::chosen(descriptor).receive_room.map(of_socket),
        _ if is_time(level, name, room) => Some(milliseconds(descriptor, name)),
        _ => None,
    }
}

/// Reads a flag into less room than four bytes.
///
/// # Safety
///
/// Both pointers are valid.
unsafe fn tell_flag(
    descriptor: c_int,
    level: c_int,
    name: c_int,
    value: *mut u8,
    size: *mut socklen_t,
) -> c_int {
    let (mut flag, mut whole): (c_int, socklen_t) = (0, 4);
    let place = (&raw mut flag).cast();
    // SAFETY: `cp_getsockopt` demands room for as many bytes at the pointer as the other one says.
    // - both are locals.
    let done = unsafe { cp_getsockopt(descriptor, level, name, place, &raw mut whole) };
    if done == 0 {
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the caller guarantees it.
        unsafe { value.write((flag != 0).into()) };
        // SAFETY: as above.
        unsafe { size.write(1) };
    }
    done
}

/// `getsockopt`. A socket's error is a code of the reference. A time is a number of milliseconds if there is room for no
/// more.
///
/// # Safety
///
/// As for getsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_getsockopt(
    descriptor: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    size: *mut socklen_t,
) -> c_int {
    called(|| {
        let has_size = memory::is_there(size, size_of::<socklen_t>());
        // SAFETY: reading through a raw pointer demands that it is valid.
        // - the caller guarantees it where there is memory.
        let room = if has_size { unsafe { size.cast::<c_int>().read() } } else { 0 };
        let has_value = memory::is_there(value, size_of::<c_int>());
        let room = if has_value { usize::try_from(room).unwrap_or(0) } else { 0 };
        let name = descriptors::name_of_option(level, name, room);
        let (its_value, its_size) = (
            if has_value { value } else { std::ptr::null_mut() },
            if has_size { size } else { std::ptr::null_mut() },
        );
        // SAFETY: as the caller guarantees of pointers where there is memory.
        if let Some(told) = unsafe { protocol_info(descriptor, level, name, its_value, its_size) } {
            return told.map_or_else(failed, |()| 0);
        }
        if is_flag(level, name) && (1..4).contains(&room) {
            // SAFETY: `tell_flag` demands two valid pointers.
            // - the caller guarantees that they are, and neither is null.
            return unsafe { tell_flag(descriptor, level, name, value.cast(), size) };
        }
        if let Some(own) = own_value(descriptor, level, name, room) {
            let told = own.and_then(|own| if room < 4 { Err(libc::EFAULT) } else { Ok(own) });
            return told.map_or_else(failed, |told| {
                // SAFETY: writing through a raw pointer demands that it is valid.
                // - the caller guarantees that there is room for `room` bytes, which is enough.
                unsafe { value.cast::<u32>().write_unaligned(told) };
                // SAFETY: as above.
                unsafe { size.write(4) };
                0
            });
        }
        if room < least_size(level, name) {
            // The system would truncate the value. It would also report an error only once, although there is no room for it.
            return failed_for_memory(descriptor);
        }
        if (level, name) == (libc::SOL_SOCKET, libc::SO_LINGER)
            && kind(descriptor) == Some(libc::SOCK_DGRAM)
        {
            return failed(libc::ENOPROTOOPT);
        }
        // SAFETY: as the caller guarantees.
        let done = unsafe { libc::getsockopt(descriptor, level, name, value, size) };
        note_level(level, done);
        if done == 0 && room == 0 {
            // The system has written nothing.
            return failed(libc::EFAULT);
        }
        if done == 0 && level == libc::SOL_SOCKET && name == libc::SO_ERROR {
            let value = value.cast::<c_int>();
            // SAFETY: reading through a raw pointer demands that it is valid.
            // - the call has written a whole number there.
            let errno = unsafe { value.read_unaligned() };
            if matches!(errno, libc::ECONNRESET | libc::EPIPE) {
                remember_reset(descriptor);
            }
            let code = c_int::try_from(code_of_errno(errno)).unwrap_or(c_int::MAX);
            // SAFETY: as above.
            unsafe { value.write_unaligned(code) };
        }
        done
    })
}

/// Names the listener that a connection comes from. There is nothing to do, but the value must name a listener.
///
/// # Safety
///
/// `value` is null or points to that many bytes.
unsafe fn update_accept_context(descriptor: c_int, value: *const c_void, size: socklen_t) -> c_int {
    let is_socket = |number| protocol(number).is_ok();
    let errno = if !is_socket(descriptor) {
        libc::ENOTSOCK
    } else if value.is_null() || (size as usize) < size_of::<usize>() {
        libc::EFAULT
    } else {
        // SAFETY: reading through a raw pointer demands that it is valid.
        // - the caller guarantees that many bytes, which are enough.
        let listener = unsafe { value.cast::<usize>().read_unaligned() };
        match c_int::try_from(listener).is_ok_and(is_socket) {
            true => return 0,
            false => libc::ENOTSOCK,
        }
    };
    failed(errno)
}

/// Sets `SO_REUSEADDR` or `SO_EXCLUSIVEADDRUSE`, which exclude each other.
fn set_sharing(descriptor: c_int, name: c_int, is_on: bool) -> c_int {
    let Some(number) = numbers::entry(descriptor).filter(|_| protocol(descriptor).is_ok()) else {
        return failed(libc::ENOTSOCK);
    };
    let mut state = number.lock();
    let chosen = state.chosen.of(descriptor);
    let is_exclusive = name == EXCLUSIVE_ADDRESS;
    if is_on && if is_exclusive { chosen.is_shared } else { chosen.is_exclusive } {
        return failed(libc::EINVAL);
    }
    if is_exclusive {
        // The system already prevents what this option excludes.
        chosen.is_exclusive = is_on;
        return 0;
    }
    chosen.is_shared = is_on;
    sharing::share(descriptor, is_on, number.is_vouched());
    0
}

/// The most room to request from the system for datagrams.
const MOST_ROOM: c_int = 4 << 20;

/// The size of one of a socket's two buffers.
fn room_of(descriptor: c_int, name: c_int) -> c_int {
    let mut room: c_int = 0;
    let mut size = socklen_t::try_from(size_of_val(&room)).unwrap_or(4);
    let place = (&raw mut room).cast();
    // SAFETY: getsockopt(2) writes at most `size` bytes at the first pointer, and the size at the other.
    // - valid: both are locals, `size` is that of the first.
    unsafe { libc::getsockopt(descriptor, libc::SOL_SOCKET, name, place, &raw mut size) };
    room
}

/// Requests room from the system, which grants twice as much.
fn ask_room(descriptor: c_int, name: c_int, room: c_int) -> c_int {
    let size = socklen_t::try_from(size_of_val(&room)).unwrap_or(4);
    let place = (&raw const room).cast();
    // SAFETY: setsockopt(2) reads `size` bytes at the pointer.
    // - valid: `room` is a local of that size.
    unsafe { libc::setsockopt(descriptor, libc::SOL_SOCKET, name, place, size) }
}

/// The least room to request. With less, a stream on one machine waits for 40 ms after each packet, which may be that large.
const LEAST_ROOM: c_int = 64 << 10;

/// Sets `SO_SNDBUF` or `SO_RCVBUF`. Programs whose operations provide the memory ask for a size of 0. Here every send would
/// then wait for the peer, and a datagram that no thread is waiting for would be lost. So a size of 0 is not applied.
fn set_room(descriptor: c_int, name: c_int, room: u32) -> c_int {
    let Some(number) = numbers::entry(descriptor).filter(|_| protocol(descriptor).is_ok()) else {
        return failed(libc::ENOTSOCK);
    };
    let asked = c_int::try_from(room).unwrap_or(c_int::MAX);
    let is_receive = name == libc::SO_RCVBUF;
    let has_enough = is_receive
        && number.options() & ROOM_FOR_DATAGRAMS != 0
        && asked.saturating_mul(2) <= room_of(descriptor, name);
    if room > 0 && !has_enough {
        if ask_room(descriptor, name, asked.max(LEAST_ROOM)) < 0 {
            return FAILED;
        }
        number.set_options(if is_receive { RECEIVE_ROOM } else { SEND_ROOM });
    }
    let mut state = number.lock();
    let chosen = state.chosen.of(descriptor);
    *(if is_receive { &mut chosen.receive_room } else { &mut chosen.send_room }) = Some(room);
    0
}

/// Makes room when a receive of datagrams becomes pending. On the reference its buffer is room for one more datagram. Here
/// only the system has room, so it gets as much as the system allows.
pub(crate) fn give_room(descriptor: c_int) {
    static MOST: OnceLock<c_int> = OnceLock::new();
    let Some(number) = numbers::find(descriptor) else { return };
    if number.options() & ROOM_FOR_DATAGRAMS != 0 {
        return;
    }
    number.set_options(ROOM_FOR_DATAGRAMS);
    if kind(descriptor) != Some(libc::SOCK_DGRAM) {
        return;
    }
    let most = *MOST.get_or_init(|| {
        let limit = std::fs::read_to_string("/proc/sys/net/core/rmem_max");
        let limit = limit.ok().and_then(|limit| limit.trim().parse().ok());
        MOST_ROOM.min(limit.unwrap_or(0))
    });
    if most.saturating_mul(2) > room_of(descriptor, libc::SO_RCVBUF) {
        ask_room(descriptor, libc::SO_RCVBUF, most);
    }
}

/// `SO_DONTLINGER`.
fn set_no_linger(descriptor: c_int, is_on: bool) -> c_int {
    let (done, mut linger) = lingers(descriptor);
    if done < 0 {
        return done;
    }
    linger.l_onoff = (!is_on).into();
    let size = socklen_t::try_from(size_of_val(&linger)).unwrap_or(8);
    let (level, place) = (libc::SOL_SOCKET, (&raw const linger).cast());
    // SAFETY: setsockopt(2) reads `size` bytes at the pointer.
    // - valid: `linger` is a local of that size.
    unsafe { libc::setsockopt(descriptor, level, libc::SO_LINGER, place, size) }
}

/// Sets the time limit of operations, in milliseconds.
fn set_milliseconds(descriptor: c_int, name: c_int, milliseconds: u32) -> c_int {
    let time = libc::timeval {
        tv_sec: (milliseconds / 1000).into(),
        tv_usec: (milliseconds % 1000 * 1000).into(),
    };
    let size = socklen_t::try_from(size_of_val(&time)).unwrap_or(16);
    let (level, place) = (libc::SOL_SOCKET, (&raw const time).cast());
    // SAFETY: setsockopt(2) reads `size` bytes at the pointer.
    // - valid: `time` is a local of that size.
    let done = unsafe { libc::setsockopt(descriptor, level, name, place, size) };
    if done == 0
        && let Some(number) = numbers::entry(descriptor)
    {
        number.set_time();
    }
    done
}

/// Sets an option that the system lacks or has in another form. `value` holds the first four bytes of the value, if it has
/// that many. `None` if the option is the system's.
fn set_own(descriptor: c_int, name: c_int, value: Option<u32>, size: usize) -> Option<c_int> {
    let set: fn(c_int, c_int, u32) -> c_int = match name {
        EXCLUSIVE_ADDRESS | libc::SO_REUSEADDR => {
            |descriptor, name, value| set_sharing(descriptor, name, value != 0)
        }
        DO_NOT_LINGER => |descriptor, _, value| set_no_linger(descriptor, value != 0),
        libc::SO_RCVTIMEO | libc::SO_SNDTIMEO if size == 4 => set_milliseconds,
        libc::SO_SNDBUF | libc::SO_RCVBUF => set_room,
        _ => return None,
    };
    Some(match value {
        Some(value) => set(descriptor, name, value),
        None if protocol(descriptor).is_err() => failed(libc::ENOTSOCK),
        None => failed(libc::EFAULT),
    })
}

/// `setsockopt`. A time of four bytes is a number of milliseconds.
///
/// # Safety
///
/// As for setsockopt(2).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_setsockopt(
    descriptor: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    size: socklen_t,
) -> c_int {
    let number: u32;
    let (mut value, mut size) = (value, size);
    let name = descriptors::name_of_option(level, name, size as usize);
    let has_value = size == 0 || memory::is_there(value, size_of::<c_int>().min(size as usize));
    let is_flag = is_flag(level, name);
    if !has_value {
        value = std::ptr::null();
    }
    if has_value && (1..4).contains(&size) && (is_flag || level == libc::IPPROTO_IPV6) {
        // SAFETY: `from_raw_parts` demands that many bytes that nothing writes to meanwhile.
        // - the caller guarantees it.
        let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), size as usize) };
        let whole = bytes.iter().rev().fold(0, |whole, byte| whole << 8 | u32::from(*byte));
        number = if is_flag { (whole != 0).into() } else { whole };
        (value, size) = ((&raw const number).cast(), 4);
    }
    called(|| {
        if let Some(number) = numbers::find(descriptor) {
            number.set_options(match (level, name) {
                (libc::SOL_SOCKET, libc::SO_LINGER | DO_NOT_LINGER) => OPTIONS | LINGERS,
                _ => OPTIONS,
            });
        }
        if (level, name) == (libc::SOL_SOCKET, UPDATE_ACCEPT_CONTEXT) {
            // SAFETY: `update_accept_context` demands what this call does.
            return unsafe { update_accept_context(descriptor, value, size) };
        }
        if (level, name) == (libc::SOL_SOCKET, UPDATE_CONNECT_CONTEXT) {
            return if protocol(descriptor).is_ok() { 0 } else { failed(libc::ENOTSOCK) };
        }
        if !has_value || (size as usize) < least_size(level, name) {
            return failed_for_memory(descriptor);
        }
        let is_whole = size >= 4 && c_int::try_from(size).is_ok();
        // SAFETY: reading through a raw pointer demands that it is valid.
        // - the caller guarantees that many bytes, which are four at least.
        let number = is_whole.then(|| unsafe { value.cast::<u32>().read_unaligned() });
        if level == libc::SOL_SOCKET
            && let Some(done) = set_own(descriptor, name, number, size as usize)
        {
            return done;
        }
        if level == libc::IPPROTO_TCP
            && name == libc::TCP_ULP
            && let Some(number) = numbers::entry(descriptor)
        {
            number.put_layer();
        }
        // SAFETY: as the caller guarantees.
        let done = unsafe { libc::setsockopt(descriptor, level, name, value, size) };
        note_level(level, done);
        done
    })
}
