//! Buffers, which operations send and fill.

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::{Bound, Deref, DerefMut, RangeBounds};
use std::sync::Arc;

use super::datagrams::Datagrams;

/// Memory that an operation sends or fills. The caller passes it when the operation starts, and the
/// outcome returns it.
///
/// A buffer may have several parts. One system call sends or fills them one after the other.
///
/// - `Vec<u8>`: a send sends its bytes. A receive fills it from 0 to its capacity, and sets the
///   length.
/// - `Box<[u8]>`: a send sends all its bytes. A receive fills it from the beginning, and the
///   outcome has the number of bytes received.
/// - [`Span`]: a `Box<[u8]>` of which a range is sent or filled.
/// - `&'static [u8]`, `Arc<[u8]>`, `Arc<Vec<u8>>`: only for sending, because they have no room.
/// - `Vec<B>`, `[B; N]`, `(A, B)` and `Option<B>`: the parts of each element, in order. A receive
///   fills each part before the next one.
/// - [`EitherBuffer`](crate::EitherBuffer): one of two types.
/// - [`Datagrams`]: many datagrams with their addresses, for operations that receive or send many.
/// - `bytes::BytesMut` and `bytes::Bytes`, with the feature `bytes`: the former is like `Vec<u8>`,
///   the latter only for sending.
///
/// One system call takes up to 1,024 parts. If there are more, a stream sends or fills the first
/// ones, and [`Operation::send_all`](crate::Operation::send_all) continues with the rest. A
/// datagram with more parts is refused.
///
/// # Safety
///
/// A buffer with several parts calls [`Buffer::room`] of its parts twice: for the receive, and
/// afterwards to find out how many bytes each part received. So an implementation promises:
///
/// - From a call of [`Buffer::room`] until [`Buffer::set_filled`], each further call of `room`
///   gives the same memory in the same order and changes nothing in it, provided that no other
///   method is called that could change it. If the buffer is moved in between, as when a file is
///   read into it, the memory may have a different address but contains the same bytes.
///
/// # Examples
///
/// A custom buffer: a fixed-size header in front of any other buffer.
///
/// ```
/// use completion_port::Buffer;
/// use std::mem::MaybeUninit;
///
/// struct Framed<B>([u8; 4], B);
///
/// // SAFETY: the room is that of the other buffer, which promises the same.
/// unsafe impl<B: Buffer> Buffer for Framed<B> {
///     fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
///         part(&self.0);
///         self.1.filled(part);
///     }
///     unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
///         // SAFETY: the room is that of the other buffer, and the caller's promise holds for it.
///         unsafe { self.1.room(part) };
///     }
///     unsafe fn set_filled(&mut self, len: usize) {
///         // SAFETY: the room is that of the other buffer, and the caller's promise holds for it.
///         unsafe { self.1.set_filled(len) };
///     }
/// }
///
/// let frame = Framed(5_u32.to_be_bytes(), b"hello".to_vec());
/// let mut sent = Vec::new();
/// frame.filled(&mut |part| sent.extend_from_slice(part));
/// assert_eq!(sent, b"\0\0\0\x05hello");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a buffer",
    label = "an operation can neither send nor fill this",
    note = "buffers are `Vec<u8>`, `Box<[u8]>`, `Span`, shared bytes, and several of them in a vector, an array or a pair"
)]
pub unsafe trait Buffer: Send + 'static {
    /// Calls `part` with each part that a send must send, in order.
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8]));

    /// Calls `part` with each part that a receive may fill, in order.
    ///
    /// Bytes that were filled before count as room. Each attempt calls this, and the call may
    /// discard the contents of the parts.
    ///
    /// # Safety
    ///
    /// The caller writes only initialized bytes to the parts, because they may belong to a buffer
    /// whose bytes are always initialized.
    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>]));

    /// Notifies the buffer that a receive has filled the first `len` bytes of the parts.
    ///
    /// # Safety
    ///
    /// [`Buffer::room`] was called, and the first `len` bytes of the parts that it gave are
    /// initialized. Since then, the buffer has not been moved, and no method other than `room` was
    /// called that could have changed it.
    unsafe fn set_filled(&mut self, len: usize);

    /// Returns the batch of datagrams, if the buffer is one or contains one.
    ///
    /// [`Operation::recv_many`](crate::Operation::recv_many) and
    /// [`Operation::send_many`](crate::Operation::send_many) need it.
    fn datagrams(&mut self) -> Option<&mut Datagrams> {
        None
    }
}

/// Implements [`Buffer`] for types that are filled from their beginning to their capacity.
macro_rules! to_be_filled {
    ($($(#[$when:meta])* $buffer:ty;)*) => {$(
        $(#[$when])*
        // SAFETY: each time, the room is the buffer's own memory, from its beginning to its
        // capacity. Clearing the buffer changes neither the memory nor its bytes.
        unsafe impl Buffer for $buffer {
            #[inline]
            fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
                part(self);
            }

            #[inline]
            unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
                self.clear();
                part(self.spare_capacity_mut());
            }

            #[inline]
            unsafe fn set_filled(&mut self, len: usize) {
                // SAFETY: `set_len` requires a length of at most the capacity, and initialized
                // bytes.
                // - the capacity: the room that was given is no larger;
                // - initialized: the caller ensures that.
                unsafe { self.set_len(len) };
            }
        }
    )*};
}

to_be_filled! {
    Vec<u8>;
    #[cfg(feature = "bytes")]
    bytes::BytesMut;
}

/// Implements [`Buffer`] for types that are one slice of bytes: they are filled from their
/// beginning, and the rest stays as it is.
macro_rules! to_be_overwritten {
    ($($buffer:ty;)*) => {$(
        // SAFETY: each time, the room is the memory of the slice.
        unsafe impl Buffer for $buffer {
            #[inline]
            fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
                part(self);
            }

            #[inline]
            unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
                // SAFETY: `offer` requires that only initialized bytes are written.
                // - the caller ensures that.
                unsafe { offer(self, part) };
            }

            #[inline]
            unsafe fn set_filled(&mut self, _: usize) {}
        }
    )*};
}

to_be_overwritten! {
    Box<[u8]>;
    Span;
}

/// A boxed slice of bytes of which a range is sent or filled.
///
/// The memory is allocated once. The bytes before and after the range stay as they are.
///
/// It dereferences to the bytes of its range.
///
/// # Examples
///
/// Sends received data back, from the same memory:
///
/// ```
/// use completion_port::{Batch, Outcome, Packet, Port, Span};
/// use std::io::{Read, Write};
/// use std::net::{TcpListener, TcpStream};
///
/// let port: Port<TcpStream, (), Span> = Port::builder().buffers().build()?;
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let near = TcpStream::connect(listener.local_addr()?)?;
/// let (mut far, _) = listener.accept()?;
/// far.write_all(b"hello")?;
/// port.associate(near)?.recv(Span::new(vec![0; 4096], ..))?;
///
/// let mut batch = Batch::new();
/// let mut has_answered = false;
/// while !has_answered {
///     for packet in port.wait(&mut batch, None)? {
///         let Packet::Completed(done) = packet else { continue };
///         match done.into_parts() {
///             (token, Outcome::Received(Ok(count), mut span)) => {
///                 span.set_range(..count);
///                 token.send_all(span)?;
///             }
///             (token, Outcome::Sent(Ok(5), mut span)) => {
///                 has_answered = true;
///                 span.set_range(..);
///                 token.recv(span)?;
///             }
///             _ => {}
///         }
///     }
/// }
/// let mut answer = [0; 5];
/// far.read_exact(&mut answer)?;
/// assert_eq!(&answer, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Span {
    bytes: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Span {
    /// Creates a span of a range of these bytes.
    ///
    /// # Panics
    ///
    /// If the range is outside the bytes, as with slicing.
    #[track_caller]
    pub fn new(bytes: impl Into<Box<[u8]>>, range: impl RangeBounds<usize>) -> Self {
        let mut span = Self { bytes: bytes.into(), start: 0, end: 0 };
        span.set_range(range);
        span
    }

    /// Sets another range, counted from the beginning of all bytes.
    ///
    /// # Panics
    ///
    /// If the range is outside the bytes, as with slicing. The old range remains then.
    #[track_caller]
    pub fn set_range(&mut self, range: impl RangeBounds<usize>) {
        let bounds = (range.start_bound().cloned(), range.end_bound().cloned());
        let range: (Bound<usize>, Bound<usize>) = bounds;
        let len = self.bytes[range].len();
        self.start = match bounds.0 {
            Bound::Included(start) => start,
            Bound::Excluded(before) => before + 1,
            Bound::Unbounded => 0,
        };
        self.end = self.start + len;
    }

    /// Returns the range within all bytes.
    #[must_use]
    pub fn range(&self) -> std::ops::Range<usize> {
        self.start..self.end
    }

    /// Returns all bytes.
    #[must_use]
    pub fn into_inner(self) -> Box<[u8]> {
        self.bytes
    }
}

impl Deref for Span {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes[self.start..self.end]
    }
}

impl DerefMut for Span {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes[self.start..self.end]
    }
}

impl fmt::Debug for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({:?} of {})", self.range(), self.bytes.len())
    }
}

/// Calls `part` with memory whose bytes are initialized.
///
/// # Safety
///
/// Only initialized bytes are written to the memory.
#[inline]
unsafe fn offer<'b>(bytes: &'b mut [u8], part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
    let all: *mut [u8] = bytes;
    // SAFETY: a slice from a pointer requires memory that is valid for its type and that nothing
    // else accesses while it lives.
    // - valid: bytes that may be uninitialized have the layout of bytes. The caller leaves no byte
    //   uninitialized, so the memory contains initialized bytes again afterwards;
    // - nothing else: the slice borrows the bytes mutably.
    part(unsafe { &mut *(all as *mut [MaybeUninit<u8>]) });
}

/// Implements [`Buffer`] for types that can only be sent: each is one slice of bytes, without room.
macro_rules! to_be_sent {
    ($($(#[$when:meta])* $buffer:ty;)*) => {$(
        $(#[$when])*
        // SAFETY: there is no room, each time.
        unsafe impl Buffer for $buffer {
            #[inline]
            fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
                part(self);
            }

            #[inline]
            unsafe fn room<'b>(&'b mut self, _: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {}

            #[inline]
            unsafe fn set_filled(&mut self, _: usize) {}
        }
    )*};
}

to_be_sent! {
    &'static [u8];
    Arc<[u8]>;
    Arc<Vec<u8>>;
    #[cfg(feature = "bytes")]
    bytes::Bytes;
}

/// Notifies one of several buffers of its share of a receive, and subtracts the share from `left`,
/// the number of bytes that this buffer and the following ones have received.
///
/// # Safety
///
/// [`Buffer::room`] of the buffer was called, and the first `left` bytes of that room, or all of
/// it if the room is smaller, are initialized. Since then, the buffer has not been moved, and no
/// method other than `room` was called that could have changed it.
#[inline]
unsafe fn set_share<B: Buffer>(buffer: &mut B, left: &mut usize) {
    let mut room = 0;
    // SAFETY: `room` requires that only initialized bytes are written to the parts.
    // - nothing is written.
    unsafe { buffer.room(&mut |part| room += part.len()) };
    let share = room.min(*left);
    // SAFETY: `set_filled` requires that the first bytes of the room are initialized, and that the
    // buffer is as it was.
    // - initialized: the caller ensures that for the room that was given before, and each buffer
    //   promises that it is the same memory now;
    // - as it was: the caller ensures that, and only `room` was called here.
    unsafe { buffer.set_filled(share) };
    *left -= share;
}

/// Implements [`Buffer`] for types whose parts are buffers.
macro_rules! in_parts {
    ($([$($generics:tt)*] $buffer:ty: |$of:ident| $parts:expr, $parts_mut:expr;)*) => {$(
        // SAFETY: the room is that of the parts in their order, and each part promises the same.
        // Neither their number nor their order changes.
        unsafe impl<$($generics)*> Buffer for $buffer {
            #[inline]
            fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
                let $of = self;
                $parts.for_each(|it| it.filled(part));
            }

            #[inline]
            unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
                let $of = self;
                // SAFETY: `room` requires that only initialized bytes are written to the parts.
                // - the caller ensures that for all of them.
                $parts_mut.for_each(|it| unsafe { it.room(part) });
            }

            #[inline]
            unsafe fn set_filled(&mut self, mut len: usize) {
                let $of = self;
                // SAFETY: `set_share` requires that the room of the buffer is initialized, up to
                // the number of bytes left, and that the buffer is as it was.
                // - initialized: the caller ensures that for the first bytes of all parts in their
                //   order, and each earlier part has subtracted as many bytes as it has room for;
                // - as it was: the caller ensures that for all of them.
                $parts_mut.for_each(|it| unsafe { set_share(it, &mut len) });
            }
        }
    )*};
}

in_parts! {
    [B: Buffer] Vec<B>: |of| of.iter(), of.iter_mut();
    [B: Buffer, const N: usize] [B; N]: |of| of.iter(), of.iter_mut();
    [B: Buffer] Option<B>: |of| of.iter(), of.iter_mut();
}

// SAFETY: the room is that of the first part and then that of the second, and each promises the
// same.
unsafe impl<A: Buffer, B: Buffer> Buffer for (A, B) {
    #[inline]
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        self.0.filled(part);
        self.1.filled(part);
    }

    #[inline]
    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        // SAFETY: `room` requires that only initialized bytes are written to the parts.
        // - the caller ensures that for both.
        unsafe { self.0.room(part) };
        // SAFETY: as above.
        unsafe { self.1.room(part) };
    }

    #[inline]
    unsafe fn set_filled(&mut self, mut len: usize) {
        // SAFETY: `set_share` requires that the room of the buffer is initialized, up to the number
        // of bytes left, and that the buffer is as it was.
        // - initialized: the caller ensures that for the first bytes of both, and this is the
        //   first;
        // - as it was: the caller ensures that for both.
        unsafe { set_share(&mut self.0, &mut len) };
        // SAFETY: as above; the first part has subtracted as many bytes as it has room for.
        unsafe { set_share(&mut self.1, &mut len) };
    }
}

/// How many parts are collected without an allocation.
const FEW: usize = 4;

/// Calls `act` with the parts to send, without the first `skipped` bytes.
#[allow(clippy::inline_always, reason = "as in `with_room`")]
#[inline(always)]
pub(crate) fn with_filled<B: Buffer, R>(
    buffer: &B,
    skipped: usize,
    act: impl FnOnce(&[&[u8]]) -> R,
) -> R {
    // Most buffers have one part, which needs no list.
    let (mut only, mut count): (&[u8], usize) = (&[], 0);
    let mut passed = skipped;
    buffer.filled(&mut |part| {
        let left = part.get(passed..).unwrap_or(&[]);
        passed = passed.saturating_sub(part.len());
        if !left.is_empty() {
            (only, count) = (left, count + 1);
        }
    });
    match count {
        0 => act(&[]),
        1 => act(&[only]),
        _ => with_filled_parts(buffer, skipped, act),
    }
}

#[inline(never)]
fn with_filled_parts<B: Buffer, R>(
    buffer: &B,
    mut skipped: usize,
    act: impl FnOnce(&[&[u8]]) -> R,
) -> R {
    let mut few: [&[u8]; FEW] = [&[]; FEW];
    let mut count = 0;
    let mut many = Vec::new();
    buffer.filled(&mut |part| {
        let left = part.get(skipped..).unwrap_or(&[]);
        skipped = skipped.saturating_sub(part.len());
        if left.is_empty() {
        } else if count < FEW {
            few[count] = left;
            count += 1;
        } else {
            if many.is_empty() {
                many.extend_from_slice(&few);
            }
            many.push(left);
        }
    });
    act(if many.is_empty() { &few[..count] } else { &many })
}

/// Calls `act` with the parts to fill, and their total length.
///
/// # Safety
///
/// `act` writes only initialized bytes to the parts.
#[allow(clippy::inline_always, reason = "what `act` has is put together in memory otherwise")]
#[inline(always)]
pub(crate) unsafe fn with_room<B: Buffer, R>(
    buffer: &mut B,
    act: impl FnOnce(&mut [&mut [MaybeUninit<u8>]], usize) -> R,
) -> R {
    // As in `with_filled`.
    let (mut only, mut count): (&mut [_], usize) = (&mut [], 0);
    let mut collect = |part| {
        let part: &mut [_] = part;
        if !part.is_empty() {
            (only, count) = (part, count + 1);
        }
    };
    // SAFETY: `room` requires that only initialized bytes are written to the parts.
    // - nothing is written here, and the caller ensures it for `act`.
    unsafe { buffer.room(&mut collect) };
    match (count, only.len()) {
        (0, _) => act(&mut [], 0),
        (1, len) => act(&mut [only], len),
        // SAFETY: `with_room_parts` requires the same of `act` as this function.
        _ => unsafe { with_room_parts(buffer, act) },
    }
}

/// # Safety
///
/// As for [`with_room`].
#[inline(never)]
unsafe fn with_room_parts<B: Buffer, R>(
    buffer: &mut B,
    act: impl FnOnce(&mut [&mut [MaybeUninit<u8>]], usize) -> R,
) -> R {
    let mut few: [&mut [MaybeUninit<u8>]; FEW] = std::array::from_fn(|_| <&mut [_]>::default());
    let (mut count, mut len) = (0, 0);
    let mut many = Vec::new();
    let mut collect = |part| {
        let part: &mut [_] = part;
        len += part.len();
        if part.is_empty() {
        } else if count < FEW {
            few[count] = part;
            count += 1;
        } else {
            if many.is_empty() {
                many.extend(few.iter_mut().map(std::mem::take));
            }
            many.push(part);
        }
    };
    // SAFETY: `room` requires that only initialized bytes are written to the parts.
    // - nothing is written here, and the caller ensures it for `act`.
    unsafe { buffer.room(&mut collect) };
    if many.is_empty() { act(&mut few[..count], len) } else { act(&mut many, len) }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// Writes bytes into parts, as a receive does.
    fn write(parts: &mut [&mut [MaybeUninit<u8>]], bytes: &[u8]) {
        let mut bytes = bytes.iter();
        for (place, byte) in parts.iter_mut().flat_map(|part| part.iter_mut()).zip(&mut bytes) {
            place.write(*byte);
        }
        assert_eq!(bytes.next(), None, "more bytes than there is room for");
    }

    /// Fills a buffer, as a receive of `bytes` does. Returns how much room there was.
    fn fill<B: Buffer>(buffer: &mut B, bytes: &[u8]) -> usize {
        // SAFETY: `write` writes bytes.
        let room = unsafe {
            with_room(buffer, |parts, room| {
                assert_eq!(room, parts.iter().map(|part| part.len()).sum::<usize>());
                assert!(parts.iter().all(|part| !part.is_empty()));
                write(parts, bytes);
                room
            })
        };
        // SAFETY: this many bytes were written, and the buffer has not been touched since.
        unsafe { buffer.set_filled(bytes.len()) };
        room
    }

    /// Returns the bytes that a send of the buffer sends, without the first `skipped` ones, and the
    /// number of parts.
    fn sent<B: Buffer>(buffer: &B, skipped: usize) -> (Vec<u8>, usize) {
        with_filled(buffer, skipped, |parts| {
            assert!(parts.iter().all(|part| !part.is_empty()));
            (parts.concat(), parts.len())
        })
    }

    fn bytes(length: usize) -> Vec<u8> {
        (0..=255).cycle().take(length).collect()
    }

    /// Returns a vector with at least this capacity, and other contents.
    fn with_capacity(capacity: usize) -> Vec<u8> {
        let mut buffer = Vec::with_capacity(capacity);
        buffer.extend(b"old".iter().take(capacity));
        buffer
    }

    #[test]
    fn a_vector_is_filled_from_its_beginning_to_its_capacity() {
        let mut buffer = with_capacity(100);
        let capacity = buffer.capacity();
        assert_eq!(fill(&mut buffer, &bytes(60)), capacity);
        assert_eq!(buffer, bytes(60));
        assert_eq!(fill(&mut buffer, &[]), capacity);
        assert_eq!(buffer, b"");
    }

    #[test]
    fn a_box_is_filled_from_its_beginning_and_keeps_the_rest() {
        let mut buffer = vec![7; 5].into_boxed_slice();
        assert_eq!(fill(&mut buffer, &[1, 2]), 5);
        assert_eq!(&*buffer, [1, 2, 7, 7, 7]);
        assert_eq!(sent(&buffer, 1).0, [2, 7, 7, 7]);
    }

    #[test]
    fn of_a_span_the_range_is_filled_and_sent() {
        let mut buffer = Span::new(vec![7; 6], 1..=4);
        assert_eq!(fill(&mut buffer, &[1, 2]), 4);
        assert_eq!(*buffer, [1, 2, 7, 7]);
        buffer.set_range(1..3);
        assert_eq!(sent(&buffer, 0), (vec![1, 2], 1));
        buffer[0] = 9;
        assert_eq!(format!("{buffer:?}"), "Span(1..3 of 6)");
        for (bounds, range) in [
            ((Bound::Unbounded, Bound::Unbounded), 0..6),
            ((Bound::Excluded(1), Bound::Included(5)), 2..6),
            ((Bound::Included(6), Bound::Unbounded), 6..6),
        ] {
            buffer.set_range(bounds);
            assert_eq!(buffer.range(), range);
            assert_eq!(fill(&mut buffer, &[]), range.len());
        }
        assert_eq!(*buffer.into_inner(), [7, 9, 2, 7, 7, 7]);
    }

    #[test]
    fn a_range_beyond_the_bytes_is_refused_and_the_former_one_stays() {
        let mut buffer = Span::new([1, 2, 3], ..2);
        let refused = |range: (Bound<usize>, Bound<usize>), buffer: &mut Span| {
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| buffer.set_range(range)))
        };
        refused((Bound::Included(1), Bound::Excluded(4)), &mut buffer).unwrap_err();
        refused((Bound::Excluded(usize::MAX), Bound::Unbounded), &mut buffer).unwrap_err();
        assert_eq!(*buffer, [1, 2]);
    }

    #[test]
    fn what_is_shared_has_no_room() {
        fn check(mut buffer: impl Buffer) {
            assert_eq!(fill(&mut buffer, &[]), 0);
            assert_eq!(sent(&buffer, 0), (b"shared".to_vec(), 1));
            assert_eq!(sent(&buffer, 6), (Vec::new(), 0));
        }
        check(b"shared".as_slice());
        check(Arc::<[u8]>::from(b"shared".as_slice()));
        check(Arc::new(b"shared".to_vec()));
        #[cfg(feature = "bytes")]
        check(bytes::Bytes::from_static(b"shared"));
    }

    #[cfg(feature = "bytes")]
    #[test]
    fn a_buffer_of_the_crate_bytes_is_filled_as_a_vector_is() {
        let mut buffer = bytes::BytesMut::with_capacity(100);
        buffer.extend_from_slice(b"head and the rest");
        let head = buffer.split_to(4);
        let room = buffer.capacity();
        assert_eq!(fill(&mut buffer, &bytes(50)), room);
        assert_eq!(buffer, bytes(50));
        assert_eq!(head, b"head".as_slice());
        assert_eq!(sent(&(head, buffer), 2).0, [b"ad".as_slice(), &bytes(50)].concat());
    }

    #[test]
    fn a_buffer_in_parts_may_be_of_different_buffers() {
        let mut buffer = (
            [Some(vec![0; 2].into_boxed_slice()), None, Some(Box::from([0; 3]))],
            (Vec::<Vec<u8>>::new(), with_capacity(4)),
        );
        assert!(fill(&mut buffer, &bytes(7)) >= 9);
        assert_eq!(sent(&buffer, 0), (bytes(7), 3));
        assert_eq!(buffer.1.1, [5, 6]);
        fill(&mut buffer, &[9]);
        // Boxes keep their other bytes and are sent whole. The vector has received nothing.
        assert_eq!(sent(&buffer, 0), (vec![9, 1, 2, 3, 4], 2));
    }

    proptest! {
        /// A receive fills the parts one after the other, for any number of parts and bytes.
        #[test]
        fn a_receive_is_spread_over_the_parts(
            capacities in vec(0..20_usize, 0..40),
            part in 0.0..=1.0,
        ) {
            let mut buffer: Vec<_> = capacities.into_iter().map(with_capacity).collect();
            let rooms: Vec<_> = buffer.iter().map(Vec::capacity).collect();
            let room: usize = rooms.iter().sum();
            #[allow(
                clippy::cast_possible_truncation,
                clippy::cast_precision_loss,
                clippy::cast_sign_loss,
                reason = "a part of a small number"
            )]
            let came = bytes((room as f64 * part) as usize);
            prop_assert_eq!(fill(&mut buffer, &came), room);
            let mut rest = came.as_slice();
            for (part, room) in buffer.iter().zip(rooms) {
                let (share, behind) = rest.split_at(room.min(rest.len()));
                prop_assert_eq!(part, share);
                rest = behind;
            }
            prop_assert_eq!(sent(&buffer, 0).0, came);
        }

        /// Bytes that were already sent are skipped, wherever among the parts they end.
        #[test]
        fn a_send_goes_on_behind_what_was_sent(
            lengths in vec(0..20_usize, 0..40),
            takes in vec(1..30_usize, 1..100),
        ) {
            let all = bytes(lengths.iter().sum());
            let mut rest = all.as_slice();
            let buffer: Vec<Vec<u8>> = lengths
                .into_iter()
                .map(|length| {
                    let (part, behind) = rest.split_at(length);
                    rest = behind;
                    part.to_vec()
                })
                .collect();
            let mut begun = Vec::new();
            for take in takes.into_iter().cycle() {
                let (left, parts) = sent(&buffer, begun.len());
                prop_assert_eq!(&left, &all[begun.len()..]);
                prop_assert!(parts <= buffer.len());
                if left.is_empty() {
                    break;
                }
                begun.extend_from_slice(&left[..take.min(left.len())]);
            }
            prop_assert_eq!(begun, all);
        }
    }
}
