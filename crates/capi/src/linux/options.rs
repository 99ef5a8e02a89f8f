//! `getsockopt` and `setsockopt`: options that the reference has in another form, or alone.

use std::ffi::{c_int, c_void};

use libc::socklen_t;

use crate::errors::{code, set_last};
use crate::linux::descriptors::{self, is_connected, kind, protocol};
use crate::linux::errno::code_of_errno;
use crate::linux::numbers::{self, Number, OPTIONS, RECEIVE_ROOM, SEND_ROOM};
use crate::linux::sockets::{called, refused, remember_reset, set_errno};

/// `SOCKET_ERROR`.
const FAILED: c_int = -1;

/// Whether the value of an option is a number of milliseconds to the reference, and a `timeval` here.
fn is_time(level: c_int, name: c_int, size: usize) -> bool {
    level == libc::SOL_SOCKET
        && (name == libc::SO_RCVTIMEO || name == libc::SO_SNDTIMEO)
        && size < size_of::<libc::timeval>()
}

/// `SO_LINGER` from the other side: whether a socket does not linger when it is closed.
const DO_NOT_LINGER: c_int = !libc::SO_LINGER;
/// Options that exist on the reference only and that change nothing here.
const EXCLUSIVE_ADDRESS: c_int = !libc::SO_REUSEADDR;
const UPDATE_ACCEPT_CONTEXT: c_int = 0x700B;
/// For how many seconds a socket has been connected.
const CONNECT_TIME: c_int = 0x700C;
const UPDATE_CONNECT_CONTEXT: c_int = 0x7010;

/// Whether the value of an option is true or false. To the reference that is a number of four bytes, or of one or two.
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
            matches!(name, libc::IP_MULTICAST_LOOP | libc::IP_PKTINFO | libc::IP_RECVTTL)
        }
        libc::IPPROTO_IPV6 => {
            matches!(name, libc::IPV6_MULTICAST_LOOP | libc::IPV6_RECVPKTINFO | libc::IPV6_V6ONLY)
        }
        _ => false,
    }
}

/// How much room the value of an option needs: of a few that are no flags.
fn least_room(level: c_int, name: c_int) -> usize {
    match (level, name) {
        (libc::SOL_SOCKET, libc::SO_LINGER) => size_of::<libc::linger>(),
        (libc::SOL_SOCKET, libc::SO_ERROR | libc::SO_TYPE | libc::SO_SNDBUF | libc::SO_RCVBUF) => {
            size_of::<c_int>()
        }
        _ => 0,
    }
}

/// How a socket lingers when it is closed, and what the system call returns.
fn lingers(descriptor: c_int) -> (c_int, libc::linger) {
    let mut linger = libc::linger { l_onoff: 0, l_linger: 0 };
    let mut size = socklen_t::try_from(size_of_val(&linger)).unwrap_or(8);
    let (level, name, place) = (libc::SOL_SOCKET, libc::SO_LINGER, (&raw mut linger).cast());
    // SAFETY: getsockopt(2) writes at most `size` bytes at `linger`.
    // - valid: both are locals of the right type.
    let done = unsafe { libc::getsockopt(descriptor, level, name, place, &raw mut size) };
    (done, linger)
}

/// For how many seconds a stream has been connected: all ones if it is not. The system's error, if it is no stream.
fn connect_time(descriptor: c_int) -> Result<u32, c_int> {
    match kind(descriptor) {
        None => Err(libc::ENOTSOCK),
        Some(libc::SOCK_STREAM) => {
            let number = numbers::entry(descriptor).filter(|_| is_connected(descriptor));
            let time = |it: &Number| it.lock().connected_for(descriptor, it.is_vouched()).as_secs();
            Ok(number.map_or(u32::MAX, |number| u32::try_from(time(number)).unwrap_or(u32::MAX)))
        }
        Some(_) => Err(libc::ENOPROTOOPT),
    }
}

/// `getsockopt`. The error of a socket is a code of the reference, a time is a number of milliseconds if
/// there is room for no more.
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
        // SAFETY: reading through a raw pointer demands that it is valid.
        // - the caller says so, if it is not null.
        let room = if size.is_null() { 0 } else { unsafe { size.cast::<c_int>().read() } };
        let room = if value.is_null() { 0 } else { usize::try_from(room).unwrap_or(0) };
        let name = descriptors::name_of_option(level, name, room);
        if is_flag(level, name) && (1..4).contains(&room) && !value.is_null() {
            let (mut flag, mut whole): (c_int, socklen_t) = (0, 4);
            let place = (&raw mut flag).cast();
            // SAFETY: `cp_getsockopt` demands room for so many bytes at the pointer, and the number of them.
            // - both are locals.
            let done = unsafe { cp_getsockopt(descriptor, level, name, place, &raw mut whole) };
            if done == 0 {
                // SAFETY: writing through a raw pointer demands that it is valid.
                // - the caller says that there is room for `room` bytes, of which this is the first.
                unsafe { value.cast::<u8>().write((flag != 0).into()) };
                // SAFETY: as above.
                unsafe { size.write(1) };
            }
            return done;
        }
        if is_time(level, name, room) && room >= size_of::<u32>() && !value.is_null() {
            let mut time = libc::timeval { tv_sec: 0, tv_usec: 0 };
            let mut time_size = socklen_t::try_from(size_of_val(&time)).unwrap_or(16);
            // SAFETY: getsockopt(2) writes at most `time_size` bytes at `time`.
            // - valid: both are locals of the right type.
            let done = unsafe {
                libc::getsockopt(
                    descriptor,
                    level,
                    name,
                    (&raw mut time).cast(),
                    &raw mut time_size,
                )
            };
            if done == 0 {
                let whole = time.tv_sec.saturating_mul(1000).saturating_add(time.tv_usec / 1000);
                let milliseconds = u32::try_from(whole).unwrap_or(u32::MAX);
                // SAFETY: writing through a raw pointer demands that it is valid.
                // - the caller says that there is room for `room` bytes, which is enough.
                unsafe { value.cast::<u32>().write_unaligned(milliseconds) };
                // SAFETY: as above.
                unsafe { size.write(4) };
            }
            return done;
        }
        if level == libc::SOL_SOCKET && name == CONNECT_TIME {
            let has_room = room >= size_of::<u32>() && !value.is_null();
            let time = connect_time(descriptor)
                .and_then(|time| if has_room { Ok(time) } else { Err(libc::EFAULT) });
            return match time {
                Ok(seconds) => {
                    // SAFETY: as above.
                    unsafe { value.cast::<u32>().write_unaligned(seconds) };
                    // SAFETY: as above.
                    unsafe { size.write(4) };
                    0
                }
                Err(errno) => {
                    set_errno(errno);
                    FAILED
                }
            };
        }
        if level == libc::SOL_SOCKET && name == DO_NOT_LINGER {
            let (done, linger) = lingers(descriptor);
            if done == 0 && room >= size_of::<c_int>() && !value.is_null() {
                // SAFETY: as above.
                unsafe { value.cast::<c_int>().write_unaligned((linger.l_onoff == 0).into()) };
                // SAFETY: as above.
                unsafe { size.write(4) };
            } else if done == 0 {
                set_errno(libc::EFAULT);
                return FAILED;
            }
            return done;
        }
        if room < least_room(level, name) {
            // The system cuts the value; and it tells an error once, though there is no room for that.
            set_errno(if protocol(descriptor).is_ok() { libc::EFAULT } else { libc::ENOTSOCK });
            return FAILED;
        }
        // SAFETY: as the caller says.
        let done = unsafe { libc::getsockopt(descriptor, level, name, value, size) };
        if done == 0 && level == libc::SOL_SOCKET && name == libc::SO_ERROR && room >= 4 {
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

/// Says of what listener a connection has come. Nothing is left to be done, but the value is to be one.
///
/// # Safety
///
/// `value` is null or points to so many bytes.
unsafe fn update_accept_context(descriptor: c_int, value: *const c_void, size: socklen_t) -> c_int {
    let is_socket = |number| protocol(number).is_ok();
    let errno = if !is_socket(descriptor) {
        libc::ENOTSOCK
    } else if value.is_null() || (size as usize) < size_of::<usize>() {
        libc::EFAULT
    } else {
        // SAFETY: reading through a raw pointer demands that it is valid.
        // - the caller says that there are so many bytes, which are enough.
        let listener = unsafe { value.cast::<usize>().read_unaligned() };
        match c_int::try_from(listener).is_ok_and(is_socket) {
            true => return 0,
            false => libc::ENOTSOCK,
        }
    };
    set_errno(errno);
    FAILED
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
    let flag: c_int;
    let (mut value, mut size) = (value, size);
    let name = descriptors::name_of_option(level, name, size as usize);
    if is_flag(level, name) && size == 0 {
        // Nothing can be read there.
        value = std::ptr::null();
        size = 4;
    }
    if is_flag(level, name) && size < 4 && !value.is_null() {
        // SAFETY: `from_raw_parts` demands so many bytes that nothing writes to meanwhile.
        // - the caller says so.
        let bytes = unsafe { std::slice::from_raw_parts(value.cast::<u8>(), size as usize) };
        flag = bytes.iter().any(|byte| *byte != 0).into();
        (value, size) = ((&raw const flag).cast(), 4);
    }
    let done = called(|| {
        if let Some(number) = numbers::find(descriptor) {
            number.set_options(match (level, name) {
                (libc::SOL_SOCKET, libc::SO_SNDBUF) => OPTIONS | SEND_ROOM,
                (libc::SOL_SOCKET, libc::SO_RCVBUF) => OPTIONS | RECEIVE_ROOM,
                _ => OPTIONS,
            });
        }
        if (level, name) == (libc::SOL_SOCKET, UPDATE_ACCEPT_CONTEXT) {
            // SAFETY: `update_accept_context` demands what this call does.
            return unsafe { update_accept_context(descriptor, value, size) };
        }
        let is_ours = [EXCLUSIVE_ADDRESS, UPDATE_CONNECT_CONTEXT];
        if level == libc::SOL_SOCKET && is_ours.contains(&name) {
            return match protocol(descriptor) {
                Ok(_) => 0,
                Err(code) => {
                    set_errno(libc::ENOTSOCK);
                    refused(code)
                }
            };
        }
        if level == libc::SOL_SOCKET && name == DO_NOT_LINGER {
            let (done, mut linger) = lingers(descriptor);
            if done < 0 || value.is_null() || (size as usize) < size_of::<c_int>() {
                if done == 0 {
                    set_errno(libc::EFAULT);
                }
                return FAILED;
            }
            // SAFETY: reading through a raw pointer demands that it is valid.
            // - the caller says that there are four bytes.
            linger.l_onoff = (unsafe { value.cast::<c_int>().read_unaligned() } == 0).into();
            let size = socklen_t::try_from(size_of_val(&linger)).unwrap_or(8);
            let place = (&raw const linger).cast();
            // SAFETY: setsockopt(2) reads `size` bytes at the pointer.
            // - valid: `linger` is a local of that size.
            return unsafe { libc::setsockopt(descriptor, level, libc::SO_LINGER, place, size) };
        }
        if level == libc::IPPROTO_TCP
            && name == libc::TCP_ULP
            && let Some(number) = numbers::entry(descriptor)
        {
            number.put_layer();
        }
        if is_time(level, name, size as usize) && size == 4 && !value.is_null() {
            // SAFETY: reading through a raw pointer demands that it is valid.
            // - the caller says that there are four bytes.
            let milliseconds = unsafe { value.cast::<u32>().read_unaligned() };
            let time = libc::timeval {
                tv_sec: (milliseconds / 1000).into(),
                tv_usec: (milliseconds % 1000 * 1000).into(),
            };
            let size = socklen_t::try_from(size_of_val(&time)).unwrap_or(16);
            // SAFETY: setsockopt(2) reads `size` bytes at the pointer.
            // - valid: `time` is a local of that size.
            let done = unsafe {
                libc::setsockopt(descriptor, level, name, (&raw const time).cast(), size)
            };
            if done == 0
                && let Some(number) = numbers::entry(descriptor)
            {
                number.set_time();
            }
            return done;
        }
        // SAFETY: as the caller says.
        unsafe { libc::setsockopt(descriptor, level, name, value, size) }
    });
    if done == 0 {
        // As the reference does here, and in no other call.
        set_last(code::SUCCESS);
    }
    done
}
