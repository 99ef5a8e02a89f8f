//! Many datagrams with one system call: recvmmsg(2) and sendmmsg(2), with segments (`UDP_SEGMENT`,
//! `UDP_GRO`) and explicit congestion notification.

mod name;

use std::mem::{MaybeUninit, offset_of};
use std::os::fd::{FromRawFd as _, OwnedFd};
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use self::name::RawName;
use crate::sys::unix::errors::repeat;
use crate::sys::unix::options::{Code, last_code, number};
use crate::sys::unix::sockets::{ReceivePart, SENDING, fault, message};
use crate::types::datagrams::{AT_ONCE, Datagrams, Facts, Message};
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// `UDP_SEGMENT` and `UDP_GRO` of udp(7), which not every C library names.
const UDP_SEGMENT: i32 = 103;
const UDP_GRO: i32 = 104;

/// `SCM_PIDFD`, which C libraries do not name.
const SCM_PIDFD: i32 = 4;

/// The number of bytes after which a call gets no further message. With segments, a few messages
/// are as much as a thread should send at a time.
const ENOUGH: usize = 1 << 16;

/// The room for the control messages of a received message: the two that are used here, and before
/// them those that the program may have requested. All that a UDP socket can report of one datagram
/// fit: three timestamps, drops, a mark, segments, the packet's interface, hop limit and class.
const CONTROL: usize = 320;

#[repr(C, align(8))]
struct Control([MaybeUninit<u8>; CONTROL]);

const HEADER: usize = size_of::<libc::cmsghdr>();

const _: () = {
    assert!(align_of::<Control>() >= align_of::<libc::cmsghdr>());
    // What `CMSG_DATA`, `CMSG_NXTHDR` and `CMSG_SPACE` compute, without padding after the header.
    assert!(HEADER == 16 && size_of::<usize>() == 8);
    assert!(offset_of!(libc::cmsghdr, cmsg_len) == 0);
};

/// Whether the kernel, or a sandbox, has no such system call.
static IS_MISSING: AtomicBool = AtomicBool::new(false);

/// Returns whether an error of a first message may come from a sandbox that forbids the call. If
/// so, the caller transfers one message by an older call, whose error then counts.
fn is_refused(code: Code) -> bool {
    if code == libc::ENOSYS {
        IS_MISSING.store(true, Relaxed);
    }
    matches!(code, libc::ENOSYS | libc::EPERM)
}

/// As [`Sockets::receive_many`](crate::backend::sockets::Sockets::receive_many). Where the call is
/// refused, an older one receives one datagram. It too reports segments, without which joined
/// datagrams would be one.
#[allow(clippy::unnecessary_wraps, reason = "other systems have no such call")]
pub(in crate::sys) fn receive_many(
    descriptor: Descriptor,
    datagrams: &mut Datagrams,
) -> Option<Result<bool, Code>> {
    let mut names = [const { MaybeUninit::<RawName>::uninit() }; AT_ONCE];
    let mut controls = [const { Control([MaybeUninit::uninit(); CONTROL]) }; AT_ONCE];
    let mut parts = [const { ReceivePart::EMPTY }; AT_ONCE];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; AT_ONCE];
    let mut asked = 0;
    // SAFETY: `rooms` requires that only initialized bytes are written.
    // - only the kernel writes to them, the bytes that it has received.
    let rooms = unsafe { datagrams.rooms() };
    let places = names.iter_mut().zip(&mut controls).zip(parts.iter_mut().zip(&mut messages));
    for (room, ((name, control), (part, place))) in rooms.zip(places) {
        *part = ReceivePart::new(room);
        let mut header = message();
        header.msg_name = name.as_mut_ptr().cast();
        header.msg_namelen = RawName::SIZE;
        header.msg_iov = ptr::from_mut(part).cast();
        header.msg_iovlen = 1;
        header.msg_control = ptr::from_mut(control).cast();
        header.msg_controllen = CONTROL as _;
        place.write(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        asked += 1;
    }
    let list = messages.as_mut_ptr().cast::<libc::mmsghdr>();
    // SAFETY: `receive_messages` requires that the pointer is valid for `asked` messages, and each
    // for its part's room, its name and its control messages.
    // - valid: that many messages were written above, and nothing has moved since; each part borrows
    //   its room mutably and has its length; names and controls are locals of these sizes.
    let done = unsafe { receive_messages(descriptor, list, asked) };
    let (count, is_drained) = match done {
        Ok(done) => done,
        Err(code) => return Some(Err(code)),
    };
    for ((received, name), control) in messages.iter().zip(&names).zip(&controls).take(count) {
        // SAFETY: `assume_init_ref` requires an initialized value.
        // - the first `asked` messages were written above, of which the kernel has filled `count`.
        let received = unsafe { received.assume_init_ref() };
        let header = &received.msg_hdr;
        // SAFETY: `address` requires that the kernel has written a name of this length.
        // - it has filled this message, and this is the length that it reports.
        let address = unsafe { RawName::address(name, header.msg_namelen) };
        let mut facts = Facts { address, ..Facts::default() };
        facts.is_truncated = header.msg_flags & libc::MSG_TRUNC != 0;
        if header.msg_controllen > 0 {
            // SAFETY: `read_controls` requires that the kernel has written control messages of this
            // length.
            // - it has filled this message, and this is the length that it reports.
            unsafe { read_controls(control, header.msg_controllen as _, &mut facts) };
        }
        datagrams.fill(received.msg_len as usize, facts);
    }
    Some(Ok(is_drained))
}

/// Receives with recvmmsg(2), or one message with recvmsg(2) where that is refused. Returns the
/// number of messages, and whether the socket is empty.
///
/// # Safety
///
/// The pointer is valid for `count` messages, and so are the pointers in each. Nothing else accesses
/// them.
unsafe fn receive_messages(
    descriptor: Descriptor,
    list: *mut libc::mmsghdr,
    count: u32,
) -> Result<(usize, bool), Code> {
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    if !IS_MISSING.load(Relaxed) {
        // The types of flags differ between C libraries.
        //
        // SAFETY: recvmmsg(2) reads and writes `count` messages at the pointer, and no more than
        // each says. It reads a time at the last pointer, unless that is null.
        // - valid: the caller ensures that.
        let done = repeat(|| unsafe {
            libc::recvmmsg(descriptor, list, count, flags as _, ptr::null_mut()) as libc::ssize_t
        });
        match done {
            Err(code) if is_refused(code) => {}
            done => return done.map(|done| (done, done < count as usize)),
        }
    }
    if count == 0 {
        return Ok((0, false));
    }
    // SAFETY: a reference requires a value that nothing else accesses while it lives.
    // - a value, and nothing else: the caller ensures that for the first of `count` messages.
    let first = unsafe { &mut *list };
    // SAFETY: recvmsg(2) reads and writes the message at the pointer, and no more than that says.
    // - valid: it is a mutable reference, and the caller ensures that its pointers are valid.
    let len = repeat(|| unsafe { libc::recvmsg(descriptor, &raw mut first.msg_hdr, flags) })?;
    // No datagram is longer than a `u32` represents.
    first.msg_len = u32::try_from(len).unwrap_or(u32::MAX);
    Ok((1, false))
}

/// Reads the control messages of a received message.
///
/// The peer of an `AF_UNIX` socket may have sent descriptors. They are closed, as the kernel closes
/// those for which there is no room.
///
/// # Safety
///
/// The kernel has written control messages of `len` bytes in total.
#[cold]
unsafe fn read_controls(control: &Control, len: usize, facts: &mut Facts) {
    let len = len.min(CONTROL);
    let mut at = 0;
    while at + HEADER <= len {
        let place = control.0[at..].as_ptr();
        // SAFETY: `read_unaligned` requires memory that is valid for reads and has a value.
        // - valid: the header ends within the array, as was just checked;
        // - a value: the kernel writes headers one after the other, each at a multiple of eight, and
        //   the last one ends before the written bytes do.
        let header = unsafe { place.cast::<libc::cmsghdr>().read_unaligned() };
        // Its type differs between C libraries.
        let told: usize = header.cmsg_len as _;
        // The kernel cuts what does not fit, but not the length in the last header.
        let end = (at + told).min(len);
        let data = control.0.get(at + HEADER..end).unwrap_or_default();
        // SAFETY: `number` requires initialized bytes.
        // - each is called for bytes of the data, all of which the kernel writes.
        let number = |bytes: &[MaybeUninit<u8>]| unsafe { number_in(bytes) };
        match (header.cmsg_level, header.cmsg_type) {
            (libc::SOL_UDP, UDP_GRO) => {
                facts.segment = usize::try_from(number(data)).unwrap_or(0);
            }
            (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                facts.ecn = number(data).to_le_bytes()[0] & 3;
            }
            (libc::SOL_SOCKET, libc::SCM_RIGHTS | SCM_PIDFD) => {
                let descriptors = data.chunks_exact(size_of::<i32>()).map(number);
                // In place of the process that it could not open, the kernel reports an error.
                for descriptor in descriptors.filter(|descriptor| *descriptor >= 0) {
                    // SAFETY: `from_raw_fd` requires an open descriptor that nothing else owns.
                    // - the kernel has just made it for this process, and it is only here.
                    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
                }
            }
            _ => {}
        }
        at = (at + told.max(HEADER)).next_multiple_of(8);
    }
}

/// Returns the number in the first four bytes, or in the one byte, of a control message.
///
/// # Safety
///
/// The bytes are initialized.
unsafe fn number_in(bytes: &[MaybeUninit<u8>]) -> i32 {
    let mut number = [0; 4];
    for (place, byte) in number.iter_mut().zip(bytes) {
        // SAFETY: `assume_init` requires an initialized byte.
        // - the caller ensures that.
        *place = unsafe { byte.assume_init() };
    }
    // One byte is the first one of a number only on a little-endian machine.
    if bytes.len() == 1 { i32::from(number[0]) } else { i32::from_ne_bytes(number) }
}

/// A control message of which the data fits into four bytes.
#[repr(C)]
struct SentControl {
    header: libc::cmsghdr,
    data: [u8; 8],
}

/// The control messages of a message: `UDP_SEGMENT`, `IP_TOS` and `IPV6_TCLASS`.
type SentControls = [SentControl; 3];

const _: () = assert!(size_of::<SentControl>() == 24);

impl SentControl {
    fn new(level: i32, kind: i32, data: &[u8]) -> Self {
        // SAFETY: `assume_init` requires that the bytes are a value of the type.
        // - it has only numbers, for which zeros are values. Some C libraries have one that no
        //   program can name.
        let mut header: libc::cmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        header.cmsg_len = (HEADER + data.len()) as _;
        (header.cmsg_level, header.cmsg_type) = (level, kind);
        let mut control = Self { header, data: [0; 8] };
        control.data[..data.len()].copy_from_slice(data);
        control
    }
}

/// Writes the control messages of a message to send, and returns their total length.
#[cold]
fn write_controls(message: &Message<'_>, place: &mut MaybeUninit<SentControls>) -> usize {
    let unused = || SentControl::new(0, 0, &[]);
    let controls = place.write([unused(), unused(), unused()]);
    let mut count = 0;
    let mut add = |level, kind, data: &[u8]| {
        controls[count] = SentControl::new(level, kind, data);
        count += 1;
    };
    if message.segment > 0 {
        let size = u16::try_from(message.segment).unwrap_or(u16::MAX);
        add(libc::SOL_UDP, UDP_SEGMENT, &size.to_ne_bytes());
    }
    if message.ecn > 0 {
        // Both IPv4 and IPv6 ignore the other's, and an address does not always show which is used.
        let ecn = i32::from(message.ecn).to_ne_bytes();
        add(libc::IPPROTO_IP, libc::IP_TOS, &ecn);
        add(libc::IPPROTO_IPV6, libc::IPV6_TCLASS, &ecn);
    }
    count * size_of::<SentControl>()
}

/// As [`Sockets::send_many`](crate::backend::sockets::Sockets::send_many). Where the call is refused,
/// an older one sends one message.
#[allow(clippy::unnecessary_wraps, reason = "other systems have no such call")]
pub(in crate::sys) fn send_many(
    descriptor: Descriptor,
    datagrams: &mut Datagrams,
) -> Option<Result<(), Fault>> {
    let together =
        datagrams.tries_segments() && number(descriptor, libc::SOL_UDP, UDP_SEGMENT).is_ok();
    let sent = send_messages(descriptor, datagrams, together);
    let Err(Fault { code: Some(code), .. }) = sent else { return Some(sent) };
    if together && matches!(code, libc::EIO | libc::EINVAL | libc::EMSGSIZE | libc::EOPNOTSUPP) {
        if code == libc::EIO {
            // The device computes no checksums.
            datagrams.avoid_segments();
        }
        return Some(send_messages(descriptor, datagrams, false));
    }
    Some(sent)
}

/// sendmmsg(2) itself: musl's function is a loop of sendmsg(2).
///
/// # Safety
///
/// As for [`transmit`].
unsafe fn sendmmsg(descriptor: Descriptor, list: *mut libc::mmsghdr, count: u32) -> libc::ssize_t {
    #[cfg(not(target_env = "musl"))]
    // SAFETY: sendmmsg(2) reads and writes `count` messages at the pointer, and what they point to.
    // - valid: the caller ensures that.
    return unsafe { libc::sendmmsg(descriptor, list, count, SENDING as _) as libc::ssize_t };
    #[cfg(target_env = "musl")]
    // SAFETY: as above. The kernel's lengths have 64 bits, musl's 32, with padding for the rest.
    // - zero: `message` and `write_controls` begin with zeros in all fields, the padding too.
    return unsafe {
        libc::syscall(libc::SYS_sendmmsg, descriptor, list, count, SENDING) as libc::ssize_t
    };
}

/// Sends with sendmmsg(2), or one message with sendmsg(2) where that is refused. Returns the number
/// of messages.
///
/// # Safety
///
/// The pointer is valid for `count` messages, and so are the pointers in each. Nothing else accesses
/// them.
unsafe fn transmit(
    descriptor: Descriptor,
    list: *mut libc::mmsghdr,
    count: u32,
) -> Result<usize, Code> {
    if !IS_MISSING.load(Relaxed) {
        // SAFETY: sendmmsg(2) reads `count` messages at the pointer, and no more than each says. It
        // writes the length of each.
        // - valid: the caller ensures that.
        let done = repeat(|| unsafe { sendmmsg(descriptor, list, count) });
        match done {
            Err(code) if is_refused(code) => {}
            done => return done,
        }
    }
    if count == 0 {
        return Ok(0);
    }
    // SAFETY: a reference requires a value that nothing else accesses while it lives.
    // - a value, and nothing else: the caller ensures that for the first of `count` messages.
    let first = unsafe { &mut *list };
    // SAFETY: sendmsg(2) reads the message at the pointer, and no more than that says.
    // - valid: it is a reference, and the caller ensures that its pointers are valid.
    let len = repeat(|| unsafe { libc::sendmsg(descriptor, &raw const first.msg_hdr, SENDING) })?;
    first.msg_len = u32::try_from(len).unwrap_or(u32::MAX);
    Ok(1)
}

fn send_messages(
    descriptor: Descriptor,
    datagrams: &mut Datagrams,
    together: bool,
) -> Result<(), Fault> {
    let mut names = [const { MaybeUninit::<RawName>::uninit() }; AT_ONCE];
    let mut controls = [const { MaybeUninit::<SentControls>::uninit() }; AT_ONCE];
    let mut parts = [const { MaybeUninit::<libc::iovec>::uninit() }; AT_ONCE];
    let mut messages = [const { MaybeUninit::<libc::mmsghdr>::uninit() }; AT_ONCE];
    let (mut asked, mut bytes) = (0, 0);
    let places = names.iter_mut().zip(&mut controls).zip(parts.iter_mut().zip(&mut messages));
    for (it, ((name, control), (part, place))) in datagrams.messages(together).zip(places) {
        let mut header = message();
        if let Some(to) = it.to {
            match RawName::put(name, to) {
                Ok(len) => header.msg_namelen = len,
                Err(fault) if asked == 0 => return Err(fault),
                // Those before it are sent first.
                Err(_) => break,
            }
            header.msg_name = name.as_mut_ptr().cast();
        }
        let base = it.bytes.as_ptr().cast_mut().cast();
        header.msg_iov = part.write(libc::iovec { iov_base: base, iov_len: it.bytes.len() });
        header.msg_iovlen = 1;
        if it.segment > 0 || it.ecn > 0 {
            header.msg_controllen = write_controls(&it, control) as _;
            header.msg_control = control.as_mut_ptr().cast();
        }
        place.write(libc::mmsghdr { msg_hdr: header, msg_len: 0 });
        asked += 1;
        bytes += it.bytes.len();
        if bytes >= ENOUGH {
            break;
        }
    }
    let list = messages.as_mut_ptr().cast::<libc::mmsghdr>();
    // SAFETY: `transmit` requires that the pointer is valid for `asked` messages, and each for its
    // part's bytes, its name and its control messages.
    // - valid: that many messages were written above, and nothing has moved since; the bytes are
    //   those of `datagrams`, which is borrowed and unchanged; the rest are locals, written up to
    //   the lengths that the message has, or null with the length 0.
    let done = unsafe { transmit(descriptor, list, asked) };
    let count = done.map_err(fault)?;
    let Some(last) = messages.get(count.wrapping_sub(1)) else { return Ok(()) };
    // SAFETY: `assume_init_ref` requires an initialized value.
    // - the first `asked` messages were written above, of which the kernel has sent `count`.
    let sent = unsafe { last.assume_init_ref() }.msg_len as usize;
    match datagrams.messages(together).nth(count - 1) {
        // It is a stream, which sends parts of messages.
        Some(last) if sent < last.bytes.len() => {
            datagrams.remove_messages(count - 1, together);
            datagrams.remove_bytes(sent);
        }
        _ => datagrams.remove_messages(count, together),
    }
    Ok(())
}

/// Lets the kernel join received datagrams.
pub(in crate::sys) fn enable_gro(descriptor: Descriptor) -> Result<(), Fault> {
    let on: libc::c_int = 1;
    let value = (&raw const on).cast();
    // SAFETY: setsockopt(2) reads as many bytes at the pointer as its last argument says.
    // - valid for reads: `on` has four bytes, and lives until the call returns.
    let done = unsafe { libc::setsockopt(descriptor, libc::SOL_UDP, UDP_GRO, value, 4) };
    if done == 0 { Ok(()) } else { Err(fault(last_code())) }
}

#[cfg(test)]
mod tests;
