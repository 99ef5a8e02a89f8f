//! Pipes and event counters.

use std::collections::VecDeque;

use super::Conditions;
use super::objects::{Code, FileId, Object, Objects};
use crate::sys::codes;

/// How many pieces a pipe holds.
const PIECES: usize = 16;
/// The most bytes of a piece. A write of at most this size is never split.
const PIECE: usize = 4096;

/// One of the buffers of a pipe. `start..end` of its page is unread.
#[derive(Debug)]
struct Piece {
    start: usize,
    end: usize,
}

/// The state that both ends share. The reader's object holds it.
#[derive(Debug)]
pub(super) struct Reader {
    writer: Option<FileId>,
    bytes: VecDeque<u8>,
    pieces: VecDeque<Piece>,
}

#[derive(Debug)]
pub(super) struct Writer {
    reader: Option<FileId>,
    /// The bytes that were unread when the reader closed. The pipe keeps that fill level forever.
    left: usize,
    left_full: bool,
}

#[derive(Debug, Default)]
pub(super) struct Counter {
    count: u64,
}

impl Reader {
    pub(super) fn new() -> Self {
        Self { writer: None, bytes: VecDeque::new(), pieces: VecDeque::new() }
    }

    pub(super) fn set_writer(&mut self, writer: FileId) {
        self.writer = Some(writer);
    }

    pub(super) fn unread(&self) -> usize {
        self.bytes.len()
    }

    fn is_full(&self) -> bool {
        self.pieces.len() >= PIECES
    }

    pub(super) fn conditions(&self) -> Conditions {
        let mut now = Conditions::NONE;
        if !self.bytes.is_empty() {
            now |= Conditions::IN;
        }
        if self.writer.is_none() {
            now |= Conditions::HUP;
        }
        now
    }
}

impl Writer {
    pub(super) fn new(reader: FileId) -> Self {
        Self { reader: Some(reader), left: 0, left_full: false }
    }
}

impl Counter {
    pub(super) fn conditions(&self) -> Conditions {
        let mut now = Conditions::NONE;
        if self.count > 0 {
            now |= Conditions::IN;
        }
        if self.count < u64::MAX - 1 {
            now |= Conditions::OUT;
        }
        now
    }
}

impl Objects {
    fn reader(&mut self, id: FileId) -> Option<&mut Reader> {
        match self.get(id) {
            Some(Object::Reader(reader)) => Some(reader),
            _ => None,
        }
    }

    fn reader_of(&mut self, writer: FileId) -> Option<(FileId, &mut Reader)> {
        let id = match self.get(writer) {
            Some(Object::Writer(Writer { reader: Some(id), .. })) => *id,
            _ => return None,
        };
        Some((id, self.reader(id)?))
    }

    pub(super) fn writer_conditions(&mut self, id: FileId) -> Conditions {
        let Some(Object::Writer(writer)) = self.get(id) else { return Conditions::NONE };
        let gone = writer.reader.is_none();
        let left_full = writer.left_full;
        let full = self.reader_of(id).map_or(left_full, |(_, reader)| reader.is_full());
        let mut now = Conditions::NONE;
        if !full {
            now |= Conditions::OUT;
        }
        if gone {
            now |= Conditions::ERR;
        }
        now
    }

    /// Both ends of a pipe return the same number.
    pub(super) fn writer_unread(&mut self, id: FileId) -> Option<usize> {
        let left = match self.get(id) {
            Some(Object::Writer(writer)) => writer.left,
            _ => return None,
        };
        Some(self.reader_of(id).map_or(left, |(_, reader)| reader.unread()))
    }

    pub(super) fn pipe_read(&mut self, id: FileId, buf: &mut [u8]) -> Result<usize, Code> {
        let reader = self.reader(id).ok_or(codes::EBADF)?;
        if reader.bytes.is_empty() {
            return if reader.writer.is_none() { Ok(0) } else { Err(codes::EAGAIN) };
        }
        let was_full = reader.is_full();
        let taken = buf.len().min(reader.bytes.len());
        for (place, byte) in buf.iter_mut().zip(reader.bytes.drain(..taken)) {
            *place = byte;
        }
        let mut left = taken;
        while let Some(first) = reader.pieces.front_mut() {
            let length = first.end - first.start;
            if length > left {
                first.start += left;
                break;
            }
            left -= length;
            reader.pieces.pop_front();
        }
        let writer = reader.writer;
        let has_room = !reader.is_full();
        if let Some(writer) = writer
            && was_full
            && has_room
        {
            self.changes.wake_writers(writer);
        }
        Ok(taken)
    }

    pub(super) fn pipe_write(&mut self, id: FileId, bytes: &[u8]) -> Result<usize, Code> {
        let Some((reader_id, reader)) = self.reader_of(id) else { return Err(codes::EPIPE) };
        let mut rest = bytes;
        let odd = bytes.len() % PIECE;
        if odd > 0
            && let Some(last) = reader.pieces.back_mut()
            && last.end + odd <= PIECE
        {
            last.end += odd;
            let (now, later) = rest.split_at(odd);
            reader.bytes.extend(now);
            rest = later;
        }
        while !rest.is_empty() && !reader.is_full() {
            let (now, later) = rest.split_at(rest.len().min(PIECE));
            reader.bytes.extend(now);
            reader.pieces.push_back(Piece { start: 0, end: now.len() });
            rest = later;
        }
        let taken = bytes.len() - rest.len();
        if taken == 0 && !bytes.is_empty() {
            return Err(codes::EAGAIN);
        }
        self.changes.wake_readers(reader_id);
        Ok(taken)
    }

    pub(super) fn reader_close(&mut self, id: FileId) {
        let Some(Object::Reader(closed)) = self.remove(id) else { return };
        let Some(writer) = closed.writer else { return };
        if let Some(Object::Writer(other)) = self.get(writer) {
            other.reader = None;
            other.left = closed.unread();
            other.left_full = closed.is_full();
        }
        self.changes.wake(writer);
    }

    pub(super) fn writer_close(&mut self, id: FileId) {
        let reader = self.reader_of(id).map(|(reader, _)| reader);
        self.remove(id);
        let Some(reader) = reader else { return };
        if let Some(other) = self.reader(reader) {
            other.writer = None;
        }
        self.changes.wake(reader);
    }

    pub(super) fn counter_read(&mut self, id: FileId, buf: &mut [u8]) -> Result<usize, Code> {
        let Some(Object::Counter(counter)) = self.get(id) else { return Err(codes::EBADF) };
        let Some(place) = buf.first_chunk_mut::<8>() else { return Err(codes::EINVAL) };
        if counter.count == 0 {
            return Err(codes::EAGAIN);
        }
        *place = std::mem::take(&mut counter.count).to_ne_bytes();
        self.changes.wake_writers(id);
        Ok(8)
    }

    pub(super) fn counter_write(&mut self, id: FileId, bytes: &[u8]) -> Result<usize, Code> {
        let Some(Object::Counter(counter)) = self.get(id) else { return Err(codes::EBADF) };
        let Some(more) = bytes.first_chunk::<8>() else { return Err(codes::EINVAL) };
        let more = u64::from_ne_bytes(*more);
        if more == u64::MAX {
            return Err(codes::EINVAL);
        }
        match counter.count.checked_add(more) {
            Some(sum) if sum < u64::MAX => counter.count = sum,
            _ => return Err(codes::EAGAIN),
        }
        self.changes.wake_readers(id);
        Ok(8)
    }
}
