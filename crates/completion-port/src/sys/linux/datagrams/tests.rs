//! Tests of batches with the system's own calls, and without them.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::net::UdpSocket;
use std::os::fd::AsRawFd as _;
use std::sync::{Mutex, MutexGuard, PoisonError};

use super::*;

/// A pair of connected sockets on which calls are made.
fn pair() -> [UdpSocket; 2] {
    let [near, far] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    near.connect(far.local_addr().unwrap()).unwrap();
    far.connect(near.local_addr().unwrap()).unwrap();
    [near, far]
}

fn contents(datagrams: &Datagrams) -> Vec<&[u8]> {
    datagrams.iter().flat_map(|datagram| datagram.segments()).collect()
}

/// Held by tests that count what one call transfers.
static CALLS: Mutex<()> = Mutex::new(());

fn calls() -> MutexGuard<'static, ()> {
    CALLS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes the calls fail as a kernel without them does, until it is dropped. Other tests that run
/// meanwhile notice nothing.
struct Missing(#[allow(dead_code, reason = "holds the lock")] MutexGuard<'static, ()>);

impl Missing {
    fn new() -> Self {
        let calls = calls();
        IS_MISSING.store(true, Relaxed);
        Self(calls)
    }
}

impl Drop for Missing {
    fn drop(&mut self) {
        IS_MISSING.store(false, Relaxed);
    }
}

/// Without the calls, one message is sent and received at a time, with all that belongs to it.
#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn older_calls_transfer_segments_and_marks() {
    let [near, far] = pair();
    let is_joined = enable_gro(far.as_raw_fd()).is_ok();
    let on = 1_i32;
    // SAFETY: setsockopt(2) reads as many bytes at the pointer as its last argument says.
    // - valid for reads: `on` is a local of four bytes.
    let done = unsafe {
        let value = (&raw const on).cast();
        libc::setsockopt(far.as_raw_fd(), libc::IPPROTO_IP, libc::IP_RECVTOS, value, 4)
    };
    assert_eq!(done, 0);
    let _missing = Missing::new();
    let mut datagrams = Datagrams::new(4, 65_535);
    assert!(datagrams.push_segments(b"aabbc", 2, None) && datagrams.push(b"alone", None));
    datagrams.get_mut(0).unwrap().set_ecn(2);
    assert_eq!(send_many(near.as_raw_fd(), &mut datagrams), Some(Ok(())));
    assert_eq!(contents(&datagrams), [b"alone"]);
    assert_eq!(send_many(near.as_raw_fd(), &mut datagrams), Some(Ok(())));
    assert!(datagrams.is_empty());
    let mut received = Datagrams::new(8, 65_535);
    received.begin_receive();
    let mut calls = 0;
    while receive_many(far.as_raw_fd(), &mut received) == Some(Ok(false)) {
        calls += 1;
        assert_eq!(received.len(), calls);
    }
    assert_eq!(contents(&received), [&b"aa"[..], b"bb", b"c", b"alone"]);
    let first = received.get(0).unwrap();
    assert_eq!((first.ecn(), first.address()), (2, Some(&near.local_addr().unwrap().into())));
    if is_joined {
        assert_eq!((first.segment_size(), calls), (Some(2), 2));
    }
    assert_eq!(receive_many(far.as_raw_fd(), &mut received), Some(Err(libc::EAGAIN)));
}

/// The kernel sends those before one that it refuses. That one is then the first.
#[test]
#[cfg_attr(miri, ignore = "Miri has no sockets")]
fn a_short_send_keeps_what_was_not_sent() {
    let _calls = calls();
    let [near, far] = pair();
    let too_long = vec![7; 65_600];
    let mut datagrams = Datagrams::new(4, too_long.len());
    assert!(datagrams.push(b"1", None) && datagrams.push(b"2", None));
    assert!(datagrams.push(&too_long, None) && datagrams.push(b"4", None));
    assert_eq!(send_messages(near.as_raw_fd(), &mut datagrams, false), Ok(()));
    assert_eq!(contents(&datagrams), [&too_long[..], b"4"]);
    let refused = send_messages(near.as_raw_fd(), &mut datagrams, false);
    assert_eq!(refused.unwrap_err().code, Some(libc::EMSGSIZE));
    assert_eq!(datagrams.len(), 2);
    datagrams.retain(|datagram| datagram.bytes().len() == 1);
    assert_eq!(send_messages(near.as_raw_fd(), &mut datagrams, false), Ok(()));
    assert!(datagrams.is_empty());
    let mut received = Datagrams::new(8, 8);
    received.begin_receive();
    assert_eq!(receive_many(far.as_raw_fd(), &mut received), Some(Ok(true)));
    assert_eq!(contents(&received), [b"1", b"2", b"4"]);
}

/// A control message may have an error in place of a descriptor. It is not closed.
#[test]
fn an_error_in_place_of_a_descriptor_is_skipped() {
    let mut control = Control([const { MaybeUninit::new(0) }; CONTROL]);
    let len = HEADER + size_of::<i32>();
    for error in [-libc::EPERM, -libc::ESRCH] {
        let parts = [
            &len.to_ne_bytes()[..],
            &libc::SOL_SOCKET.to_ne_bytes(),
            &SCM_PIDFD.to_ne_bytes(),
            &error.to_ne_bytes(),
        ];
        for (place, byte) in control.0.iter_mut().zip(parts.concat()) {
            place.write(byte);
        }
        let mut facts = Facts::default();
        // SAFETY: `read_controls` requires that control messages of this length were written.
        // - one was just written, with this length.
        unsafe { read_controls(&control, len, &mut facts) };
        assert_eq!((facts.segment, facts.ecn), (0, 0));
    }
}
