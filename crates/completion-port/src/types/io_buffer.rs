//! Memory that a back end uses during an operation: a buffer that stays at its place on the heap,
//! and the parts of it to fill or write.
//!
//! The thread that starts the operation lends the buffer, with [`IoBuffer::new`] and then
//! [`IoBuffer::lend_room`] or [`IoBuffer::lend_bytes`]. The thread that takes the packet takes it
//! back, with [`IoBuffer::into_buffer`]. In between, a thread of the back end owns the `IoBuffer`.
//! If the port no longer exists by then, that thread drops it, and the buffer with it.

use std::any::Any;
use std::fmt;
use std::mem::{ManuallyDrop, MaybeUninit};
use std::ptr::NonNull;

/// A part of a buffer, with the layout of `struct iovec`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Part {
    pub(crate) start: *mut u8,
    pub(crate) len: usize,
}

/// A buffer that a back end uses.
pub(crate) struct IoBuffer {
    /// A pointer rather than a box: whenever a box is moved, it must be the only access to its
    /// contents.
    buffer: NonNull<dyn Any + Send>,
    /// The parts of the buffer, in order. Those before `first` are finished, and none of the others
    /// is empty.
    parts: Vec<Part>,
    first: usize,
    /// Some, but not all, bytes of the first remaining part are finished.
    is_within_part: bool,
    /// The parts may be written to.
    is_room: bool,
}

// SAFETY: an `IoBuffer` owns its buffer and moves it between threads.
// - the buffer is `Send`, which `new` requires;
// - the parts point into the buffer, which nothing else knows of.
unsafe impl Send for IoBuffer {}

impl IoBuffer {
    /// Moves a buffer to its place on the heap, where it stays.
    pub(crate) fn new<B: Any + Send>(buffer: B) -> Self {
        let buffer = NonNull::from(Box::leak(Box::new(buffer)));
        Self { buffer, parts: Vec::new(), first: 0, is_within_part: false, is_room: false }
    }

    fn lend<B: Any>(&mut self, parts_of: impl FnOnce(&mut B, &mut Vec<Part>)) {
        let mut parts = Vec::new();
        // SAFETY: making an exclusive reference from a pointer requires that it is valid and that
        // nothing else accesses the place while the reference lives.
        // - valid: it points to the box that `new` made;
        // - nothing else: this borrows the `IoBuffer` mutably, and the parts are accessed only
        //   afterwards.
        let buffer = unsafe { self.buffer.as_mut() };
        parts_of(buffer.downcast_mut().expect("the buffer is of this type"), &mut parts);
        parts.retain(|part| part.len > 0);
        self.parts = parts;
    }

    /// Lends the room of the buffer, to be filled. `parts_of` calls its second argument with each
    /// part.
    pub(crate) fn lend_room<B: Any>(
        &mut self,
        parts_of: impl FnOnce(&mut B, &mut dyn FnMut(&mut [MaybeUninit<u8>])),
    ) {
        self.is_room = true;
        self.lend(|buffer, parts| {
            parts_of(buffer, &mut |part| {
                parts.push(Part { start: part.as_mut_ptr().cast(), len: part.len() });
            });
        });
    }

    /// Lends the bytes of the buffer, to be sent or written. `parts_of` calls its second argument
    /// with each part.
    pub(crate) fn lend_bytes<B: Any>(&mut self, parts_of: impl FnOnce(&B, &mut dyn FnMut(&[u8]))) {
        self.is_room = false;
        self.lend(|buffer: &mut B, parts| {
            parts_of(buffer, &mut |part| {
                // Nothing ever writes there: see `is_room`.
                parts.push(Part { start: part.as_ptr().cast_mut(), len: part.len() });
            });
        });
    }

    /// Returns the remaining parts.
    pub(crate) fn parts(&self) -> &[Part] {
        &self.parts[self.first..]
    }

    /// Notes that the first `len` of the remaining bytes are finished.
    pub(crate) fn advance(&mut self, mut len: usize) {
        while let Some(part) = self.parts.get_mut(self.first) {
            if len < part.len {
                part.start = part.start.wrapping_add(len);
                part.len -= len;
                self.is_within_part |= len > 0;
                return;
            }
            len -= part.len;
            self.first += 1;
            self.is_within_part = false;
        }
        assert_eq!(len, 0, "no more than was left");
    }

    /// Returns whether the remaining bytes begin within a part.
    pub(crate) fn is_within_part(&self) -> bool {
        self.is_within_part
    }

    /// Copies bytes into the remaining parts, from their beginning, as many as fit.
    #[allow(dead_code, reason = "for the simulated kernel")]
    pub(crate) fn fill(&mut self, mut bytes: &[u8]) {
        assert!(self.is_room, "the parts may be written to");
        for part in &self.parts[self.first..] {
            let (now, rest) = bytes.split_at(part.len.min(bytes.len()));
            // SAFETY: copying requires that the source is valid for reads, the target for writes,
            // and that they do not overlap.
            // - source: `now` is a slice;
            // - target: the part has that many bytes of the buffer's room, which lives as long as
            //   the `IoBuffer`;
            // - apart: only the `IoBuffer` has access to the buffer, and it is borrowed mutably.
            unsafe { part.start.copy_from_nonoverlapping(now.as_ptr(), now.len()) };
            bytes = rest;
        }
    }

    /// Returns the bytes of the remaining parts, at most `most` of them.
    #[allow(dead_code, reason = "for the simulated kernel")]
    pub(crate) fn bytes(&self, most: usize) -> Vec<u8> {
        assert!(!self.is_room, "the parts have bytes");
        let mut bytes = Vec::new();
        for part in self.parts() {
            let len = part.len.min(most - bytes.len());
            // SAFETY: a slice from a pointer requires that this many bytes are initialized there,
            // and not written to while it lives.
            // - initialized: the part belongs to a slice of bytes of the buffer, which lives as
            //   long as the `IoBuffer`;
            // - not written to: only the `IoBuffer` has access to the buffer, and nothing writes to
            //   bytes that were lent this way.
            bytes.extend_from_slice(unsafe { std::slice::from_raw_parts(part.start, len) });
        }
        bytes
    }

    /// Returns the buffer. No thread of a back end may be using it.
    ///
    /// # Panics
    ///
    /// If the buffer has another type, which would be a bug in this crate.
    pub(crate) fn into_buffer<B: Any>(self) -> B {
        let mut this = ManuallyDrop::new(self);
        let place = this.buffer;
        // Frees the list of parts, the only other thing to drop.
        drop(std::mem::take(&mut this.parts));
        // SAFETY: `from_raw` requires a pointer from `into_raw` or `leak` that nothing else uses.
        // - `new` leaked the box, and this consumes the `IoBuffer`.
        let buffer: Box<dyn Any> = unsafe { Box::from_raw(place.as_ptr()) };
        *buffer.downcast().expect("a buffer is returned to its own port")
    }
}

impl Drop for IoBuffer {
    fn drop(&mut self) {
        // SAFETY: `from_raw` requires a pointer from `into_raw` or `leak` that nothing else uses.
        // - as in `into_buffer`, and the `IoBuffer` is being dropped.
        drop(unsafe { Box::from_raw(self.buffer.as_ptr()) });
    }
}

impl fmt::Debug for IoBuffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").field("parts", &self.parts()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn room_of(buffer: &mut [Vec<u8>; 3], part: &mut dyn FnMut(&mut [MaybeUninit<u8>])) {
        buffer.iter_mut().for_each(|buffer| part(buffer.spare_capacity_mut()));
    }

    #[test]
    fn a_buffer_is_filled_in_parts_and_comes_back() {
        let buffer = [Vec::with_capacity(2), Vec::new(), Vec::<u8>::with_capacity(3)];
        let capacities = buffer.each_ref().map(Vec::capacity);
        let mut io_buffer = IoBuffer::new(buffer);
        io_buffer.lend_room(room_of);
        assert_eq!(io_buffer.parts().len(), 2);
        // The buffer stays in its place when the `IoBuffer` moves.
        let mut io_buffer = *Box::new(io_buffer);
        let room: usize = io_buffer.parts().iter().map(|part| part.len).sum();
        io_buffer.fill(&[1]);
        io_buffer.advance(1);
        let rest: Vec<u8> = (2..).take(room - 1).collect();
        io_buffer.fill(&rest);
        io_buffer.advance(room - 1);
        assert!(io_buffer.parts().is_empty());
        let mut buffer: [Vec<u8>; 3] = io_buffer.into_buffer();
        for (buffer, capacity) in buffer.iter_mut().zip(capacities) {
            // SAFETY: `set_len` requires that the elements up to the new length are initialized,
            // and a length of at most the capacity.
            // - all the room was filled.
            unsafe { buffer.set_len(capacity) };
        }
        let all: Vec<u8> = (1..).take(room).collect();
        assert_eq!(buffer.concat(), all);
    }

    #[test]
    fn a_buffer_is_written_in_parts() {
        let mut io_buffer = IoBuffer::new((*b"ab", *b"cde"));
        io_buffer.lend_bytes(|(first, second): &([u8; 2], [u8; 3]), part| {
            part(first);
            part(second);
        });
        assert_eq!(io_buffer.bytes(3), b"abc");
        for (len, is_within_part) in [(0, false), (1, true), (0, true), (1, false), (1, true)] {
            io_buffer.advance(len);
            assert_eq!(io_buffer.is_within_part(), is_within_part);
        }
        assert_eq!(io_buffer.bytes(9), b"de");
        assert_eq!(io_buffer.into_buffer::<([u8; 2], [u8; 3])>(), (*b"ab", *b"cde"));
    }

    #[test]
    fn a_loan_that_is_dropped_drops_its_buffer() {
        let buffer = std::sync::Arc::new(1);
        drop(IoBuffer::new(std::sync::Arc::clone(&buffer)));
        assert_eq!(std::sync::Arc::strong_count(&buffer), 1);
    }
}
