//! Descriptions of protocols in the reference's form: `WSAPROTOCOL_INFO`.

use std::ffi::{c_int, c_void};

use libc::socklen_t;

/// The maximum length of a protocol's name, including its zero.
const NAME: usize = 256;

/// `XP1_…`: the properties of a protocol.
const CONNECTIONLESS: u32 = 0x0000_0001;
const GUARANTEED_DELIVERY: u32 = 0x0000_0002;
const GUARANTEED_ORDER: u32 = 0x0000_0004;
const MESSAGE_ORIENTED: u32 = 0x0000_0008;
const GRACEFUL_CLOSE: u32 = 0x0000_0020;
const EXPEDITED_DATA: u32 = 0x0000_0040;
const SUPPORT_BROADCAST: u32 = 0x0000_0200;
const SUPPORT_MULTIPOINT: u32 = 0x0000_0400;
/// Its sockets are handles of the system, which is always true here.
const IFS_HANDLES: u32 = 0x0002_0000;
const MATCHES_PROTOCOL_ZERO: u32 = 0x0000_0008;

/// `WSAPROTOCOL_INFOA` with a byte per character, `WSAPROTOCOL_INFOW` with a wide character of four bytes.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
struct Info<Letter> {
    service_flags: [u32; 4],
    provider_flags: u32,
    provider: [u8; 16],
    entry: u32,
    chain_length: c_int,
    chain: [u32; 7],
    version: c_int,
    family: c_int,
    longest_address: c_int,
    shortest_address: c_int,
    kind: c_int,
    protocol: c_int,
    protocol_offset: c_int,
    byte_order: c_int,
    security: c_int,
    message_size: u32,
    reserved: u32,
    name: [Letter; NAME],
}

/// The protocols that `WSAEnumProtocols` lists, in its order.
const KNOWN: [(c_int, c_int, c_int, &str); 4] = [
    (libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_TCP, "TCP/IPv4"),
    (libc::AF_INET, libc::SOCK_DGRAM, libc::IPPROTO_UDP, "UDP/IPv4"),
    (libc::AF_INET6, libc::SOCK_STREAM, libc::IPPROTO_TCP, "TCP/IPv6"),
    (libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP, "UDP/IPv6"),
];

/// Describes a protocol. One that is not in [`KNOWN`] gets no entry and no name.
fn describe<Letter: Copy + From<u8>>(family: c_int, kind: c_int, protocol: c_int) -> Info<Letter> {
    let at = KNOWN.iter().position(|it| (it.0, it.1, it.2) == (family, kind, protocol));
    let mut name = [Letter::from(0); NAME];
    for (to, letter) in name.iter_mut().zip(at.map_or("", |at| KNOWN[at].3).bytes()) {
        *to = Letter::from(letter);
    }
    let is_ip = family == libc::AF_INET || family == libc::AF_INET6;
    let reliable = GUARANTEED_DELIVERY | GUARANTEED_ORDER;
    let service = match kind {
        libc::SOCK_STREAM if is_ip => reliable | GRACEFUL_CLOSE | EXPEDITED_DATA,
        libc::SOCK_STREAM => reliable | GRACEFUL_CLOSE,
        libc::SOCK_SEQPACKET => reliable | GRACEFUL_CLOSE | MESSAGE_ORIENTED,
        _ if is_ip => CONNECTIONLESS | MESSAGE_ORIENTED | SUPPORT_BROADCAST | SUPPORT_MULTIPOINT,
        _ => CONNECTIONLESS | MESSAGE_ORIENTED,
    };
    let size = |size: usize| c_int::try_from(size).unwrap_or(c_int::MAX);
    let (shortest, longest) = match family {
        libc::AF_INET => (size_of::<libc::sockaddr_in>(), size_of::<libc::sockaddr_in>()),
        libc::AF_INET6 => (size_of::<libc::sockaddr_in6>(), size_of::<libc::sockaddr_in6>()),
        libc::AF_UNIX => (size_of::<libc::sa_family_t>(), size_of::<libc::sockaddr_un>()),
        _ => (size_of::<libc::sa_family_t>(), size_of::<libc::sockaddr_storage>()),
    };
    Info {
        service_flags: [IFS_HANDLES | service, 0, 0, 0],
        provider_flags: MATCHES_PROTOCOL_ZERO,
        provider: [0; 16],
        entry: at.map_or(0, |at| u32::try_from(at).unwrap_or_default() + 1),
        chain_length: 1,
        chain: [0; 7],
        version: 2,
        family,
        longest_address: size(longest),
        shortest_address: size(shortest),
        kind,
        protocol,
        protocol_offset: 0,
        byte_order: 0,
        security: 0,
        message_size: if kind == libc::SOCK_STREAM { 0 } else { 65507 },
        reserved: 0,
        name,
    }
}

/// Describes the protocol at this index of the reference's list. Returns the protocol's number, or 0 at the end of the list.
///
/// # Safety
///
/// `info` points to room for a `WSAPROTOCOL_INFOA`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_known_protocol(place: c_int, info: *mut c_void) -> c_int {
    let known = usize::try_from(place).ok().and_then(|place| KNOWN.get(place));
    known.map_or(0, |&(family, kind, protocol, _)| {
        // SAFETY: writing demands room, however it is aligned.
        // - the caller guarantees the room.
        unsafe { info.cast::<Info<u8>>().write_unaligned(describe(family, kind, protocol)) };
        protocol
    })
}

/// Reads a numeric option of a socket. Fails with the system's error.
fn option(descriptor: c_int, name: c_int) -> Result<c_int, c_int> {
    let (mut value, mut size): (c_int, socklen_t) = (0, 4);
    let (level, place) = (libc::SOL_SOCKET, (&raw mut value).cast());
    // SAFETY: getsockopt(2) writes at most `size` bytes at the place.
    // - valid: both are locals of the right type.
    let done = unsafe { libc::getsockopt(descriptor, level, name, place, &raw mut size) };
    let errno = || std::io::Error::last_os_error().raw_os_error().unwrap_or_default();
    if done == 0 { Ok(value) } else { Err(errno()) }
}

/// Describes a socket's protocol.
///
/// # Safety
///
/// `value` is null or points to as many bytes as `size` says. `size` is null or points to a number.
unsafe fn tell<Letter: Copy + From<u8>>(
    descriptor: c_int,
    value: *mut c_void,
    size: *mut socklen_t,
) -> Result<(), c_int> {
    let family = option(descriptor, libc::SO_DOMAIN)?;
    let kind = option(descriptor, libc::SO_TYPE)?;
    let protocol = option(descriptor, libc::SO_PROTOCOL)?;
    // SAFETY: `as_mut` demands null, or a number that nobody else accesses.
    // - the caller guarantees it.
    let Some(size) = (unsafe { size.as_mut() }) else { return Err(libc::EFAULT) };
    let room = std::mem::replace(size, socklen_t::try_from(size_of::<Info<Letter>>()).unwrap_or(0));
    if value.is_null() || room < *size {
        return Err(libc::EFAULT);
    }
    let info = describe::<Letter>(family, kind, protocol);
    // SAFETY: writing demands room, however it is aligned.
    // - the caller guarantees `room` bytes, which is enough.
    unsafe { value.cast::<Info<Letter>>().write_unaligned(info) };
    Ok(())
}

/// `SO_PROTOCOL_INFOA` and `SO_PROTOCOL_INFOW`.
const NARROW: c_int = 0x2004;
const WIDE: c_int = 0x2005;

/// Describes a socket's protocol, if the option asks for that. Fails with the system's error. If there is too little room,
/// `size` receives the size needed.
///
/// # Safety
///
/// As for getsockopt(2).
pub(crate) unsafe fn protocol_info(
    descriptor: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    size: *mut socklen_t,
) -> Option<Result<(), c_int>> {
    match name {
        // SAFETY: as the caller guarantees.
        NARROW if level == libc::SOL_SOCKET => Some(unsafe { tell::<u8>(descriptor, value, size) }),
        // SAFETY: as the caller guarantees.
        WIDE if level == libc::SOL_SOCKET => Some(unsafe { tell::<u32>(descriptor, value, size) }),
        _ => None,
    }
}
