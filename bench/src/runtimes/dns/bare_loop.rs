//! A bare loop: recvmmsg(2), the answers, sendmmsg(2).

use std::array;
use std::io;
use std::mem::MaybeUninit;
use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::ptr;
use std::slice;

use super::servers::answer;
use super::servers::dns_echo::MOST;

/// Datagrams of a call.
const TOGETHER: usize = 32;
/// Room for the address of a sender. The sockets are those of IPv4.
const NAME: libc::socklen_t = 16;

const _: () = assert!(size_of::<libc::sockaddr_in>() == NAME as usize);

/// A message of the calls. Only [`Message::new`] makes it, with its own memory, which is never freed.
#[repr(transparent)]
struct Message(libc::mmsghdr);

impl Message {
    fn new() -> Self {
        let bytes = Box::leak(Box::new([0_u8; MOST]));
        let part = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: MOST };
        let name = Box::leak(Box::new(MaybeUninit::<libc::sockaddr_in>::uninit()));
        // SAFETY: all bytes zero must be a value of the type.
        // - they are: it has nothing but integers and pointers in it.
        let mut message: libc::mmsghdr = unsafe { MaybeUninit::zeroed().assume_init() };
        message.msg_hdr.msg_name = name.as_mut_ptr().cast();
        message.msg_hdr.msg_namelen = NAME;
        message.msg_hdr.msg_iov = Box::leak(Box::new(part));
        message.msg_hdr.msg_iovlen = 1;
        Message(message)
    }

    /// The memory for its bytes, and the number of those that are received or sent.
    fn parts(&mut self) -> (&mut [u8], &mut usize) {
        // SAFETY: a reference requires a value that nothing else accesses while it lives.
        // - a value: `new` has made it, and it is never freed;
        // - nothing else: only this message points to it, which is mutably borrowed.
        let part = unsafe { &mut *self.0.msg_hdr.msg_iov };
        // SAFETY: `from_raw_parts_mut` requires that many bytes that nothing else accesses.
        // - `new` has made as many, and they are never freed;
        // - nothing else: as above.
        let bytes = unsafe { slice::from_raw_parts_mut(part.iov_base.cast(), MOST) };
        (bytes, &mut part.iov_len)
    }

    /// Turns the received query into its answer. Returns whether there is one.
    fn answer(&mut self) -> bool {
        let (received, flags) = (self.0.msg_len as usize, self.0.msg_hdr.msg_flags);
        let (bytes, len) = self.parts();
        let answer = answer(bytes, received).filter(|_| flags & libc::MSG_TRUNC == 0);
        *len = answer.unwrap_or(0);
        answer.is_some()
    }

    /// Makes room for the next query.
    fn clear(&mut self) {
        self.0.msg_hdr.msg_namelen = NAME;
        *self.parts().1 = MOST;
    }
}

/// Answers the queries that come to a socket, in blocking mode. Returns only an error.
pub(super) fn serve(socket: &UdpSocket) -> io::Result<()> {
    let mut messages: [Message; TOGETHER] = array::from_fn(|_| Message::new());
    loop {
        let received = receive(socket, &mut messages)?;
        let mut answers = 0;
        for index in 0..received {
            if messages[index].answer() {
                messages.swap(answers, index);
                answers += 1;
            }
        }
        let mut sent = 0;
        while sent < answers {
            // If the first one fails, its client is lost, and asks again.
            sent += send(socket, &mut messages[sent..answers]).unwrap_or(1);
        }
        messages[..received].iter_mut().for_each(Message::clear);
    }
}

/// Waits for a datagram, and takes those that have come with it. Returns their number.
fn receive(socket: &UdpSocket, messages: &mut [Message]) -> io::Result<usize> {
    let count = u32::try_from(messages.len()).unwrap_or(u32::MAX);
    let (socket, list) = (socket.as_raw_fd(), messages.as_mut_ptr().cast());
    // SAFETY: recvmmsg(2) reads and writes `count` messages at the pointer, and no more than each says.
    // It reads a time at the last pointer, unless that is null.
    // - valid: the slice has that many, mutably borrowed, and `Message` is its only field; the memory
    //   of each is its own, has the length that it says, and is never freed.
    let done =
        unsafe { libc::recvmmsg(socket, list, count, libc::MSG_WAITFORONE, ptr::null_mut()) };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

/// Sends messages. Returns the number of those before one that fails; the error is that of the first.
fn send(socket: &UdpSocket, messages: &mut [Message]) -> io::Result<usize> {
    let count = u32::try_from(messages.len()).unwrap_or(u32::MAX);
    let (socket, list) = (socket.as_raw_fd(), messages.as_mut_ptr().cast());
    // SAFETY: sendmmsg(2) reads `count` messages at the pointer, and no more than each says. It writes
    // the length of each.
    // - valid: as for `receive`; the addresses are those that the kernel has written there.
    let done = unsafe { libc::sendmmsg(socket, list, count, 0) };
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}
