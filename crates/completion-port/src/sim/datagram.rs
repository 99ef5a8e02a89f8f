//! Datagram sockets: UDP and AF_UNIX.

use std::collections::VecDeque;

use super::kqueue::FilterEnds;
use super::objects::{Code, FileId, Object, Objects};
use super::stream::Family;
use super::{Conditions, SEND_BUFFER};
use crate::sys::codes;

/// The bytes of a buffer that a datagram uses in addition to its data.
const OVERHEAD: usize = 768;

#[derive(Debug)]
pub(super) struct Datagrams {
    /// `Tcp` means the Internet family: a UDP socket.
    family: Family,
    peer: Option<FileId>,
    queue: VecDeque<(FileId, Vec<u8>)>,
    read_shut: bool,
    write_shut: bool,
    error: Option<Code>,
    /// AF_UNIX: the unread bytes that this socket sent, overhead included.
    outstanding: usize,
}

fn cost(bytes: usize) -> usize {
    bytes + OVERHEAD
}

impl Datagrams {
    pub(super) fn new(family: Family) -> Self {
        Self {
            family,
            peer: None,
            queue: VecDeque::new(),
            read_shut: false,
            write_shut: false,
            error: None,
            outstanding: 0,
        }
    }

    pub(super) fn set_peer(&mut self, peer: FileId) {
        self.peer = Some(peer);
    }

    pub(super) fn take_error(&mut self) -> Option<Code> {
        self.error.take()
    }

    /// Returns the size of the first datagram, which is all that `FIONREAD` reports.
    pub(super) fn unread(&self) -> usize {
        self.queue.front().map_or(0, |(_, bytes)| bytes.len())
    }

    fn is_writable(&self) -> bool {
        self.family == Family::Tcp || self.outstanding * 4 <= SEND_BUFFER
    }

    /// Returns the conditions that the filters of a kqueue test.
    ///
    /// `plain` has those that epoll reports too.
    pub(super) fn ends(&self, plain: FilterEnds) -> FilterEnds {
        FilterEnds {
            readable: !self.queue.is_empty(),
            read_over: self.read_shut,
            write_over: self.write_shut,
            error: self.error,
            ..plain
        }
    }

    /// Returns the conditions that the kernel's `datagram_poll` and `unix_dgram_poll` report.
    pub(super) fn conditions(&self) -> Conditions {
        let mut now = Conditions::NONE;
        if self.error.is_some() {
            now |= Conditions::ERR;
        }
        if self.read_shut {
            now |= Conditions::IN | Conditions::RDHUP;
        }
        if self.read_shut && self.write_shut {
            now |= Conditions::HUP;
        }
        if !self.queue.is_empty() {
            now |= Conditions::IN;
        }
        if self.is_writable() {
            now |= Conditions::OUT;
        }
        now
    }
}

impl Objects {
    fn datagrams(&mut self, id: FileId) -> Option<&mut Datagrams> {
        match self.get(id) {
            Some(Object::Datagrams(socket)) => Some(socket),
            _ => None,
        }
    }

    pub(super) fn datagram_read(
        &mut self,
        id: FileId,
        buf: &mut [u8],
    ) -> Result<(usize, FileId), Code> {
        let socket = self.datagrams(id).ok_or(codes::EBADF)?;
        if let Some(code) = socket.error.take() {
            return Err(code);
        }
        let (from, bytes) = socket.queue.pop_front().ok_or(codes::EAGAIN)?;
        let family = socket.family;
        // Bytes that do not fit are lost, as with the real call.
        let taken = buf.len().min(bytes.len());
        buf[..taken].copy_from_slice(&bytes[..taken]);
        if family == Family::Unix {
            self.was_read(from, bytes.len());
        }
        Ok((taken, from))
    }

    /// Returns the sender of the datagram that a read would return.
    ///
    /// It takes a pending error and nothing else.
    pub(super) fn datagram_look(&mut self, id: FileId) -> Result<FileId, Code> {
        let socket = self.datagrams(id).ok_or(codes::EBADF)?;
        if let Some(code) = socket.error.take() {
            return Err(code);
        }
        socket.queue.front().map(|(from, _)| *from).ok_or(codes::EAGAIN)
    }

    /// Frees the sender's space of a datagram that has left the receiver's queue.
    fn was_read(&mut self, sender: FileId, bytes: usize) {
        let Some(socket) = self.datagrams(sender) else { return };
        socket.outstanding = socket.outstanding.saturating_sub(cost(bytes));
        if socket.is_writable() {
            self.changes.wake_writers(sender);
        }
    }

    pub(super) fn datagram_write(
        &mut self,
        id: FileId,
        to: Option<FileId>,
        bytes: &[u8],
    ) -> Result<usize, Code> {
        let socket = self.datagrams(id).ok_or(codes::EBADF)?;
        let peer = socket.peer;
        let unix = socket.family == Family::Unix;
        let Some(to) = to.or(peer) else {
            if unix {
                // The kernel frees the buffer that it had already allocated, which makes an edge.
                self.changes.wake_writers(id);
                return Err(codes::ENOTCONN);
            }
            return Err(codes::EDESTADDRREQ);
        };
        if let Some(code) = socket.error.take() {
            return Err(code);
        }
        if socket.write_shut {
            return Err(codes::EPIPE);
        }
        match socket.family {
            Family::Tcp => self.udp_write(id, to, peer == Some(to), bytes),
            Family::Unix => self.unix_write(id, to, bytes),
        }
        .map(|()| bytes.len())
    }

    fn udp_write(
        &mut self,
        id: FileId,
        to: FileId,
        is_peer: bool,
        bytes: &[u8],
    ) -> Result<(), Code> {
        let wanted = |socket: &Datagrams| {
            socket.family == Family::Tcp && socket.peer.is_none_or(|peer| peer == id)
        };
        match self.datagrams(to) {
            Some(target) if wanted(target) => {
                let queued: usize = target.queue.iter().map(|(_, it)| cost(it.len())).sum();
                // A full receiver loses datagrams silently.
                if queued + cost(bytes.len()) <= SEND_BUFFER {
                    target.queue.push_back((id, bytes.to_vec()));
                    self.changes.wake_readers(to);
                }
            }
            // "Port unreachable" is returned. Only a connected socket receives it.
            _ if is_peer => {
                if let Some(socket) = self.datagrams(id) {
                    socket.error = Some(codes::ECONNREFUSED);
                }
                self.changes.wake(id);
            }
            _ => {}
        }
        // The kernel frees the buffer immediately, which makes an edge.
        self.changes.wake_writers(id);
        Ok(())
    }

    fn unix_write(&mut self, id: FileId, to: FileId, bytes: &[u8]) -> Result<(), Code> {
        match self.datagrams(to) {
            Some(target) if target.family == Family::Unix => {
                if target.read_shut {
                    self.changes.wake_writers(id);
                    return Err(codes::EPIPE);
                }
                let socket = self.datagrams(id).ok_or(codes::EBADF)?;
                if socket.outstanding >= SEND_BUFFER {
                    return Err(codes::EAGAIN);
                }
                socket.outstanding += cost(bytes.len());
                if let Some(target) = self.datagrams(to) {
                    target.queue.push_back((id, bytes.to_vec()));
                }
                self.changes.wake_readers(to);
                Ok(())
            }
            _ => {
                if let Some(socket) = self.datagrams(id)
                    && socket.peer == Some(to)
                {
                    socket.peer = None;
                }
                self.changes.wake_writers(id);
                Err(codes::ECONNREFUSED)
            }
        }
    }

    pub(super) fn datagram_shutdown(
        &mut self,
        id: FileId,
        read: bool,
        write: bool,
    ) -> Result<(), Code> {
        let socket = self.datagrams(id).ok_or(codes::EBADF)?;
        socket.read_shut |= read;
        socket.write_shut |= write;
        let unconnected = socket.family == Family::Tcp && socket.peer.is_none();
        self.changes.wake(id);
        if unconnected { Err(codes::ENOTCONN) } else { Ok(()) }
    }

    pub(super) fn datagram_close(&mut self, id: FileId) {
        let Some(Object::Datagrams(closed)) = self.remove(id) else { return };
        if closed.family == Family::Unix {
            for (from, bytes) in closed.queue {
                self.was_read(from, bytes.len());
            }
        }
    }
}
