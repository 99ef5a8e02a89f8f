//! The datagram sockets of a ring: each has one permanent receive request. An answer is sent from
//! the buffer of its request, which also has the sender's address.

use std::net::UdpSocket;
use std::os::fd::AsRawFd;

use io_uring::opcode;
use io_uring::squeue::{self, Flags};
use io_uring::types::{Fd, RecvMsgOut};
use slab::Slab;

use super::buffers::{Buffers, Filled, GROUP};
use crate::work::process_datagram;

/// A socket, and the memory that its request refers to, which is never freed.
struct Socket {
    socket: UdpSocket,
    header: &'static libc::msghdr,
}

#[derive(Default)]
pub(super) struct Datagrams {
    sockets: Slab<Socket>,
    /// The answers of the next turn.
    answers: Vec<(usize, Filled)>,
    /// The sockets that found no buffer to receive into.
    starved: Vec<usize>,
}

impl Datagrams {
    /// Takes a socket over; its number.
    pub(super) fn add(&mut self, socket: UdpSocket) -> usize {
        // SAFETY: all bytes zero must be a value of the type.
        // - they are: it has nothing but integers and pointers in it.
        let mut header: libc::msghdr = unsafe { std::mem::MaybeUninit::zeroed().assume_init() };
        // Room for the address of a sender, in front of each datagram. The sockets are those of IPv4.
        header.msg_namelen = 16;
        self.sockets.insert(Socket { socket, header: Box::leak(Box::new(header)) })
    }

    /// The permanent receive request.
    pub(super) fn receive(&self, number: usize) -> squeue::Entry {
        let Socket { socket, header } = &self.sockets[number];
        opcode::RecvMsgMulti::new(Fd(socket.as_raw_fd()), *header, GROUP).build()
    }

    /// Does what a datagram asks for; the next turn answers it.
    pub(super) fn received(&mut self, number: usize, filled: Filled, buffers: &mut Buffers) {
        match RecvMsgOut::parse(buffers.bytes(&filled), self.sockets[number].header) {
            Ok(datagram) => {
                process_datagram(datagram.payload_data());
                self.answers.push((number, filled));
            }
            Err(()) => buffers.give_back(filled),
        }
    }

    pub(super) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    pub(super) fn is_starved(&self) -> bool {
        !self.starved.is_empty()
    }

    pub(super) fn starve(&mut self, number: usize) {
        self.starved.push(number);
    }

    /// One of the sockets that found no buffer.
    pub(super) fn take_starved(&mut self) -> Option<usize> {
        self.starved.pop()
    }

    /// How many answers are to be sent.
    pub(super) fn answers(&self) -> usize {
        self.answers.len()
    }

    /// The request that sends an answer. It fails instead of waiting for room, and completes only if it fails:
    /// the answer is lost then, as a datagram may be. The buffer must be left alone until it has been submitted.
    pub(super) fn answer(&self, at: usize, buffers: &Buffers) -> Option<squeue::Entry> {
        let (number, filled) = &self.answers[at];
        let Socket { socket, header } = &self.sockets[*number];
        let datagram = RecvMsgOut::parse(buffers.bytes(filled), header).ok()?;
        let (payload, from) = (datagram.payload_data(), datagram.name_data());
        let length = u32::try_from(payload.len()).ok()?;
        let request = opcode::Send::new(Fd(socket.as_raw_fd()), payload.as_ptr(), length)
            .flags(libc::MSG_DONTWAIT)
            .dest_addr(from.as_ptr().cast())
            .dest_addr_len(u32::try_from(from.len()).ok()?);
        Some(request.build().flags(Flags::SKIP_SUCCESS))
    }

    /// The answers have gone out: gives their buffers back.
    pub(super) fn answered(&mut self, buffers: &mut Buffers) {
        self.answers.drain(..).for_each(|(_, filled)| buffers.give_back(filled));
    }
}
