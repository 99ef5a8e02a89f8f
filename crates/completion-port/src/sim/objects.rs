//! The objects behind descriptors, and how each operation changes them and other objects.
//!
//! This module knows no descriptor numbers, watchers or clock. It notes which objects have
//! something to report.

use std::collections::BTreeMap;

use super::datagram::Datagrams;
use super::files::Contents;
use super::pipe::{Counter, Reader, Writer};
use super::stream::{Family, Stream};
use super::{Conditions, ObjectKind};
use crate::sys::codes;

/// An `errno`.
pub(super) type Code = i32;

/// Identifies an open file description, in the words of `open(2)`. Never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct FileId(pub(super) u64);

#[derive(Debug)]
pub(super) enum Object {
    Stream(Stream),
    Datagrams(Datagrams),
    Reader(Reader),
    Writer(Writer),
    Counter(Counter),
    /// A regular file.
    File(Contents),
}

/// Pending changes for the watchers.
#[derive(Debug, Default)]
pub(super) struct SimulatedChanges {
    /// The changed files, oldest first, each with the condition that changed. Watchers of that
    /// condition get an edge; with `Conditions::NONE` all watchers of the file do.
    woken: Vec<(FileId, Conditions)>,
    /// AF_UNIX clients that have connected. A kqueue reports that, and an epoll set does not.
    joined: Vec<FileId>,
}

impl SimulatedChanges {
    /// Notes that the state of `id` has changed.
    pub(super) fn wake(&mut self, id: FileId) {
        self.wake_for(id, Conditions::NONE);
    }

    /// Notes that there is more to read at `id`.
    pub(super) fn wake_readers(&mut self, id: FileId) {
        self.wake_for(id, Conditions::IN);
    }

    /// Notes that there is more room at `id`.
    pub(super) fn wake_writers(&mut self, id: FileId) {
        self.wake_for(id, Conditions::OUT);
    }

    fn wake_for(&mut self, id: FileId, what: Conditions) {
        self.woken.push((id, what));
    }

    /// Notes that an AF_UNIX client has connected.
    pub(super) fn note_joined(&mut self, id: FileId) {
        self.joined.push(id);
    }

    pub(super) fn take_joined(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.joined)
    }

    pub(super) fn take_woken(&mut self) -> Vec<(FileId, Conditions)> {
        std::mem::take(&mut self.woken)
    }
}

#[derive(Debug, Default)]
pub(super) struct Objects {
    pub(super) files: BTreeMap<FileId, Object>,
    last: u64,
    pub(super) changes: SimulatedChanges,
}

impl Objects {
    /// Returns a number that names no file and never will.
    pub(super) fn reserve(&mut self) -> FileId {
        self.last += 1;
        FileId(self.last)
    }

    pub(super) fn add(&mut self, object: Object) -> FileId {
        let id = self.reserve();
        self.files.insert(id, object);
        id
    }

    pub(super) fn get(&mut self, id: FileId) -> Option<&mut Object> {
        self.files.get_mut(&id)
    }

    pub(super) fn remove(&mut self, id: FileId) -> Option<Object> {
        self.files.remove(&id)
    }

    pub(super) fn add_stream_pair(&mut self, family: Family) -> (FileId, FileId) {
        let first = self.add(Object::Stream(Stream::fresh(family)));
        let second = self.add(Object::Stream(Stream::connected(family, first)));
        self.files.insert(first, Object::Stream(Stream::connected(family, second)));
        (first, second)
    }

    pub(super) fn add_datagram_pair(&mut self, family: Family) -> (FileId, FileId) {
        let first = self.add(Object::Datagrams(Datagrams::new(family)));
        let second = self.add(Object::Datagrams(Datagrams::new(family)));
        for (id, peer) in [(first, second), (second, first)] {
            if let Some(Object::Datagrams(socket)) = self.get(id) {
                socket.set_peer(peer);
            }
        }
        (first, second)
    }

    pub(super) fn add_pipe(&mut self) -> (FileId, FileId) {
        let reader = self.add(Object::Reader(Reader::new()));
        let writer = self.add(Object::Writer(Writer::new(reader)));
        if let Some(Object::Reader(end)) = self.get(reader) {
            end.set_writer(writer);
        }
        (reader, writer)
    }

    pub(super) fn conditions(&mut self, id: FileId) -> Conditions {
        match self.get(id) {
            Some(Object::Stream(_)) => self.stream_conditions(id),
            Some(Object::Datagrams(socket)) => socket.conditions(),
            Some(Object::Reader(reader)) => reader.conditions(),
            Some(Object::Writer(_)) => self.writer_conditions(id),
            Some(Object::Counter(counter)) => counter.conditions(),
            // `poll(2)` reports a regular file like this.
            Some(Object::File(_)) => Conditions::IN | Conditions::OUT,
            None => Conditions::NONE,
        }
    }

    /// Returns the result of the ioctl `FIONREAD`.
    pub(super) fn unread(&mut self, id: FileId) -> Option<usize> {
        match self.get(id)? {
            Object::Stream(stream) => stream.unread(),
            Object::Datagrams(socket) => Some(socket.unread()),
            Object::Reader(reader) => Some(reader.unread()),
            Object::Writer(_) => self.writer_unread(id),
            Object::Counter(_) => None,
            Object::File(_) => Some(0),
        }
    }

    /// Returns whether `epoll_ctl(2)` accepts it.
    pub(super) fn can_be_watched(&mut self, id: FileId) -> bool {
        !matches!(self.get(id), Some(Object::File(_)))
    }

    /// Returns whether a failed stream was connected before.
    pub(super) fn was_connected(&mut self, id: FileId) -> bool {
        matches!(self.get(id), Some(Object::Stream(stream)) if stream.was_connected())
    }

    pub(super) fn kind(&mut self, id: FileId) -> ObjectKind {
        match self.get(id) {
            Some(Object::Stream(_)) => ObjectKind::Stream,
            Some(Object::Datagrams(_)) => ObjectKind::Datagram,
            _ => ObjectKind::NoSocket,
        }
    }

    /// Returns the state that `TCP_INFO` reports.
    pub(super) fn tcp_state(&mut self, id: FileId) -> Option<u8> {
        match self.get(id) {
            Some(Object::Stream(stream)) => stream.tcp_state(),
            _ => None,
        }
    }

    pub(super) fn read(&mut self, id: FileId, buf: &mut [u8]) -> Result<usize, Code> {
        match self.get(id).ok_or(codes::EBADF)? {
            Object::Stream(_) => self.stream_read(id, buf),
            Object::Datagrams(_) => self.datagram_read(id, buf).map(|(taken, _)| taken),
            Object::Reader(_) => self.pipe_read(id, buf),
            Object::Writer(_) => Err(codes::EBADF),
            Object::Counter(_) => self.counter_read(id, buf),
            Object::File(_) => Ok(0),
        }
    }

    pub(super) fn write(&mut self, id: FileId, bytes: &[u8]) -> Result<usize, Code> {
        match self.get(id).ok_or(codes::EBADF)? {
            Object::Stream(_) => self.stream_write(id, bytes),
            Object::Datagrams(_) => self.datagram_write(id, None, bytes),
            Object::Reader(_) => Err(codes::EBADF),
            Object::Writer(_) => self.pipe_write(id, bytes),
            Object::Counter(_) => self.counter_write(id, bytes),
            Object::File(_) => Ok(bytes.len()),
        }
    }

    pub(super) fn recv_from(
        &mut self,
        id: FileId,
        buf: &mut [u8],
    ) -> Result<(usize, FileId), Code> {
        match self.get(id).ok_or(codes::EBADF)? {
            Object::Datagrams(_) => self.datagram_read(id, buf),
            Object::Stream(_) => Err(codes::EOPNOTSUPP),
            _ => Err(codes::ENOTSOCK),
        }
    }

    pub(super) fn send_to(&mut self, id: FileId, bytes: &[u8], to: FileId) -> Result<usize, Code> {
        match self.get(id).ok_or(codes::EBADF)? {
            Object::Datagrams(_) => self.datagram_write(id, Some(to), bytes),
            Object::Stream(_) => Err(codes::EOPNOTSUPP),
            _ => Err(codes::ENOTSOCK),
        }
    }

    pub(super) fn shutdown(&mut self, id: FileId, read: bool, write: bool) -> Result<(), Code> {
        match self.get(id).ok_or(codes::EBADF)? {
            Object::Stream(_) => self.stream_shutdown(id, read, write),
            Object::Datagrams(_) => self.datagram_shutdown(id, read, write),
            _ => Err(codes::ENOTSOCK),
        }
    }

    pub(super) fn connect(&mut self, id: FileId, to: FileId) -> Result<(), Code> {
        match self.get(id).ok_or(codes::EBADF)? {
            Object::Stream(_) => self.stream_connect(id, to),
            Object::Datagrams(socket) => {
                socket.set_peer(to);
                Ok(())
            }
            _ => Err(codes::ENOTSOCK),
        }
    }

    pub(super) fn accept(&mut self, id: FileId) -> Result<FileId, Code> {
        match self.get(id).ok_or(codes::EBADF)? {
            Object::Stream(_) => self.stream_accept(id),
            Object::Datagrams(_) => Err(codes::EOPNOTSUPP),
            _ => Err(codes::ENOTSOCK),
        }
    }

    /// Takes the error that `SO_ERROR` returns.
    pub(super) fn take_error(&mut self, id: FileId) -> Result<Option<Code>, Code> {
        match self.get(id).ok_or(codes::EBADF)? {
            Object::Stream(stream) => Ok(stream.take_error()),
            Object::Datagrams(socket) => Ok(socket.take_error()),
            _ => Err(codes::ENOTSOCK),
        }
    }

    /// Makes the close of the last descriptor reset the connection: `SO_LINGER` with a time of 0.
    pub(super) fn set_linger_zero(&mut self, id: FileId) {
        if let Some(Object::Stream(stream)) = self.get(id) {
            stream.set_linger_zero();
        }
    }

    /// Closes a file whose last descriptor was closed.
    pub(super) fn close(&mut self, id: FileId) {
        match self.get(id) {
            Some(Object::Stream(_)) => self.stream_close(id),
            Some(Object::Datagrams(_)) => self.datagram_close(id),
            Some(Object::Reader(_)) => self.reader_close(id),
            Some(Object::Writer(_)) => self.writer_close(id),
            Some(Object::Counter(_) | Object::File(_)) | None => {
                self.remove(id);
            }
        }
    }
}
