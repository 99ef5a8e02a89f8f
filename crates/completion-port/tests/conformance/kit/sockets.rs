//! Sockets for tests: their kinds, and their state according to the system.

use std::io;
use std::thread;
use std::time::{Duration, Instant};

use testkit::{SOON, Socket, System};

use crate::kit::threads::eventually;

pub(crate) type Pair = fn(&System) -> (Socket, Socket);

/// Two connected stream sockets.
pub(crate) const STREAMS: [Pair; 2] = [System::tcp_pair, System::unix_pair];

/// A readable end and its peer, of every kind.
#[cfg(not(target_os = "linux"))]
pub(crate) const READERS: [Pair; 2] = [System::tcp_pair, System::udp_pair];

/// A readable end and its peer, of every kind.
#[cfg(target_os = "linux")]
pub(crate) const READERS: [Pair; 5] = [
    System::tcp_pair,
    System::unix_pair,
    System::udp_pair,
    System::unix_datagram_pair,
    System::pipe,
];

/// Returns the current result of poll(2) for `socket`.
pub(crate) fn facts(socket: &Socket) -> u32 {
    if let Some(socket) = socket.as_simulated() {
        return socket.kernel().facts(socket).bits();
    }
    socket.polled()
}

pub(crate) const POLLIN: u32 = 0x1;

pub(crate) const POLLOUT: u32 = 0x4;

pub(crate) const POLLERR: u32 = 0x8;

pub(crate) const POLLHUP: u32 = 0x10;

pub(crate) const POLLRDHUP: u32 = 0x2000;

/// Waits until all of `wanted` holds for `socket`, that is, until sent data has arrived.
#[track_caller]
pub(crate) fn await_facts(socket: &Socket, on: &System, wanted: u32) {
    let end = Instant::now() + on.soon();
    while facts(socket) & wanted != wanted {
        assert!(Instant::now() < end, "{:#x} instead of {wanted:#x}", facts(socket));
        thread::yield_now();
    }
}

/// Waits until the peer's end has arrived at `socket`, after `unread` bytes. Windows does not
/// report an end after unread bytes, so there this waits for the bytes.
#[track_caller]
pub(crate) fn await_end_behind(unread: usize, socket: &Socket, on: &System) {
    if cfg!(windows) && on.kernel().is_none() {
        await_unread(socket, on, unread);
    } else {
        await_facts(socket, on, POLLRDHUP);
    }
}

/// Sends a byte as urgent data.
#[cfg(target_os = "linux")]
pub(crate) fn send_urgent(socket: &Socket) {
    // SAFETY: send(2) reads the given number of bytes at the pointer.
    // - valid: it points to a constant of that length.
    let sent = unsafe { libc::send(socket.number(), b"!".as_ptr().cast(), 1, libc::MSG_OOB) };
    assert_eq!(sent, 1, "{}", io::Error::last_os_error());
}

/// Waits until exactly `wanted` bytes can be read from `socket`.
#[track_caller]
pub(crate) fn await_unread(socket: &Socket, on: &System, wanted: usize) {
    let end = Instant::now() + on.soon();
    while socket.unread().unwrap() != wanted {
        assert!(Instant::now() < end, "{:?} instead of {wanted} bytes", socket.unread());
        thread::yield_now();
    }
}

/// Writes until nothing more fits, even after the kernel has moved all that it can. The other end
/// of a TCP connection delays its last acknowledgement by 40 ms, after which there is room for a
/// few more bytes. This counts attempts instead of time: on a busy machine they take longer, as
/// does the kernel's work.
#[allow(clippy::disallowed_methods, reason = "what it waits for is that nothing happens")]
pub(crate) fn fill(socket: &Socket) {
    let calm = if socket.as_simulated().is_some() { 1 } else { 100 };
    let (begun, mut looks) = (Instant::now(), 0);
    while looks < calm {
        let is_calm = socket.fill() == 0 && facts(socket) & POLLOUT == 0;
        looks = if is_calm { looks + 1 } else { 0 };
        assert!(begun.elapsed() < SOON, "the buffers have no end");
        thread::sleep(Duration::from_millis(1));
    }
}

/// Reads at `peer` until the filled `socket` has room again. With TCP, more data is in transit than
/// fits at the other end.
#[track_caller]
pub(crate) fn make_room(socket: &Socket, peer: &Socket, on: &System) {
    let end = Instant::now() + on.soon();
    peer.drain();
    while facts(socket) & POLLOUT == 0 {
        assert!(Instant::now() < end, "there is no room although all was read");
        thread::yield_now();
        peer.drain();
    }
}

/// Checks that the peer finds its connection closed or reset.
#[track_caller]
pub(crate) fn assert_end_seen(peer: &Socket, on: &System) {
    eventually(on, "the connection is closed", || match peer.read(&mut [0; 4]) {
        Ok(len) => {
            assert_eq!(len, 0);
            true
        }
        Err(error) => error.kind() != io::ErrorKind::WouldBlock,
    });
}
