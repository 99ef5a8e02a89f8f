//! When an answer has reached its socket, by the kernel's clock. The rest of the latency is the
//! client's own wait for a processor.

use std::io;
use std::mem::MaybeUninit;
use std::net::TcpStream;
use std::os::fd::AsRawFd as _;
use std::time::{Duration, SystemTime};

use crate::load::Stamps;

/// See socket(7), `SO_TIMESTAMPNS`.
pub(super) const STAMPS: Stamps = Stamps { begin, read };

/// Room for a message with one time.
const ROOM: usize = 64;

#[repr(C, align(8))]
struct Control([u8; ROOM]);

/// The kernel starts to record times soon after this, but not immediately: earlier data has none.
fn begin(stream: &TcpStream) -> io::Result<()> {
    let on: libc::c_int = 1;
    let length = libc::socklen_t::try_from(size_of_val(&on)).map_err(io::Error::other)?;
    let (level, option) = (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS);
    // SAFETY: setsockopt(2) reads that many bytes at the pointer.
    // - valid for reads: `on` has that length, and lives until the call returns.
    let code = unsafe {
        libc::setsockopt(stream.as_raw_fd(), level, option, (&raw const on).cast(), length)
    };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn read(stream: &TcpStream, bytes: &mut [u8]) -> io::Result<(usize, Option<SystemTime>)> {
    let mut part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut control = Control([0; ROOM]);
    // SAFETY: `assume_init` demands a value. Zeros are one of this structure of numbers and pointers.
    let mut header: libc::msghdr = unsafe { MaybeUninit::zeroed().assume_init() };
    (header.msg_iov, header.msg_iovlen) = (&raw mut part, 1);
    (header.msg_control, header.msg_controllen) = ((&raw mut control).cast(), ROOM);
    // SAFETY: recvmsg(2) reads the header and the parts that it names, here one, and writes to both buffers at
    // most as many bytes as it says.
    // - valid for reads: `header` and `part` live until the call returns;
    // - valid for writes: `bytes` and `control` are borrowed mutably, and have these lengths.
    let count = unsafe { libc::recvmsg(stream.as_raw_fd(), &raw mut header, 0) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    Ok((count, stamp_of(&header)))
}

/// The time in the kernel's first control message. No other message was requested.
fn stamp_of(header: &libc::msghdr) -> Option<SystemTime> {
    // SAFETY: CMSG_FIRSTHDR(3) reads the header, which is borrowed.
    let first = unsafe { libc::CMSG_FIRSTHDR(header) };
    // SAFETY: `as_ref` demands null, or a pointer to a value that nothing writes meanwhile.
    // - to a value: it is null unless the kernel has written at least such a message into the
    //   buffer of messages, which is aligned for it, and which the caller still owns;
    // - nothing writes: the call has returned.
    let message = unsafe { first.as_ref() }?;
    let is_time =
        (message.cmsg_level, message.cmsg_type) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS);
    let whole = size_of::<libc::cmsghdr>() + size_of::<libc::timespec>();
    if !is_time || message.cmsg_len < whole {
        return None;
    }
    // SAFETY: CMSG_DATA(3) adds to the pointer what a message has in front of its data: that is within the buffer.
    let data = unsafe { libc::CMSG_DATA(first) };
    // SAFETY: `read_unaligned` demands a value at the pointer.
    // - a value: a message of this kind has a timespec as its data, and is long enough for it.
    let time = unsafe { data.cast::<libc::timespec>().read_unaligned() };
    let seconds = u64::try_from(time.tv_sec).ok()?;
    let since = Duration::new(seconds, u32::try_from(time.tv_nsec).ok()?);
    Some(SystemTime::UNIX_EPOCH + since)
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    #[test]
    fn what_is_read_has_come_between_its_sending_and_its_reading() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut sender = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (receiver, _) = listener.accept().unwrap();
        begin(&receiver).unwrap();
        receiver.set_nonblocking(true).unwrap();
        let mut bytes = [0; 8];
        let none = read(&receiver, &mut bytes).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        receiver.set_nonblocking(false).unwrap();
        let end = Instant::now() + Duration::from_secs(30);
        let mut stamped = 0;
        while stamped < 3 {
            assert!(Instant::now() < end, "only {stamped} times were reported");
            let before = SystemTime::now();
            sender.write_all(b"abc").unwrap();
            let (count, come) = read(&receiver, &mut bytes).unwrap();
            let after = SystemTime::now();
            assert_eq!(&bytes[..count], b"abc");
            if let Some(come) = come {
                assert!(before <= come && come <= after, "{before:?} {come:?} {after:?}");
                stamped += 1;
            }
        }
    }
}
