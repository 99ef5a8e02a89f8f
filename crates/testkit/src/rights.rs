//! Descriptors that are sent over AF_UNIX sockets: `SCM_RIGHTS` of unix(7).

use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
};

/// Sends `descriptor` with one byte.
pub fn send(over: impl AsFd, descriptor: impl AsFd) {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut room);
    let descriptors = [descriptor.as_fd()];
    assert!(rights.push(SendAncillaryMessage::ScmRights(&descriptors)));
    let sent = sendmsg(over, &[IoSlice::new(b"!")], &mut rights, SendFlags::empty()).unwrap();
    assert_eq!(sent, 1);
}

/// Receives a descriptor and its byte, which must be available.
#[must_use]
pub fn receive(over: impl AsFd) -> OwnedFd {
    let mut room = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = RecvAncillaryBuffer::new(&mut room);
    let mut byte = [0];
    let flags = RecvFlags::CMSG_CLOEXEC;
    let received = recvmsg(over, &mut [IoSliceMut::new(&mut byte)], &mut rights, flags).unwrap();
    assert_eq!((received.bytes, byte), (1, *b"!"));
    let mut received = rights.drain().filter_map(|message| match message {
        RecvAncillaryMessage::ScmRights(descriptors) => Some(descriptors),
        _ => None,
    });
    received.next().and_then(|mut descriptors| descriptors.next()).expect("a descriptor was sent")
}
