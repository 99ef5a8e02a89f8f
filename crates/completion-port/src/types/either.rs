//! A buffer that is one of two types.

use std::mem::MaybeUninit;

use super::buffer::Buffer;
use super::datagrams::Datagrams;

/// A [`Buffer`] that is one of two types.
///
/// A port has one type of buffers. With this one, some operations can use a buffer of type `A` and
/// others one of type `B`: a vector to receive into and shared bytes to send, for example. Nested,
/// it allows more types.
///
/// # Examples
///
/// ```
/// use completion_port::{Batch, EitherBuffer, Outcome, Packet, Port};
/// use std::io::{Read, Write};
/// use std::net::{TcpListener, TcpStream};
/// use std::sync::Arc;
///
/// type Bytes = EitherBuffer<Vec<u8>, Arc<[u8]>>;
/// let port: Port<TcpStream, (), Bytes> = Port::builder().buffers().build()?;
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let near = TcpStream::connect(listener.local_addr()?)?;
/// let (mut far, _) = listener.accept()?;
/// let greeting: Arc<[u8]> = Arc::from(*b"hello"); // every client gets the same bytes
/// far.write_all(b"anyone?")?;
/// port.associate(near)?.recv(EitherBuffer::Left(Vec::with_capacity(64)))?;
///
/// let mut batch = Batch::new();
/// for packet in port.wait(&mut batch, None)? {
///     let Packet::Completed(done) = packet else { continue };
///     let (token, Outcome::Received(Ok(7), buffer)) = done.into_parts() else { panic!() };
///     assert_eq!(buffer.left().as_deref(), Some(b"anyone?".as_slice()));
///     token.send_all(EitherBuffer::Right(Arc::clone(&greeting)))?;
/// }
/// let mut answer = [0; 5];
/// far.read_exact(&mut answer)?;
/// assert_eq!(&answer, b"hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "one of two")]
pub enum EitherBuffer<A, B> {
    /// A buffer of the first type.
    Left(A),
    /// A buffer of the second type.
    Right(B),
}

impl<A, B> EitherBuffer<A, B> {
    /// Returns the buffer if it is of the first type.
    pub fn left(self) -> Option<A> {
        if let Self::Left(buffer) = self { Some(buffer) } else { None }
    }

    /// Returns the buffer if it is of the second type.
    pub fn right(self) -> Option<B> {
        if let Self::Right(buffer) = self { Some(buffer) } else { None }
    }
}

// SAFETY: the room is that of the buffer within, which promises the same. Each method gets to the
// buffer within, and none replaces it, so it stays the same one.
unsafe impl<A: Buffer, B: Buffer> Buffer for EitherBuffer<A, B> {
    #[inline]
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        match self {
            Self::Left(buffer) => buffer.filled(part),
            Self::Right(buffer) => buffer.filled(part),
        }
    }

    #[inline]
    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        match self {
            // SAFETY: `room` requires that only initialized bytes are written to the parts.
            // - the caller ensures that.
            Self::Left(buffer) => unsafe { buffer.room(part) },
            // SAFETY: as above.
            Self::Right(buffer) => unsafe { buffer.room(part) },
        }
    }

    #[inline]
    unsafe fn set_filled(&mut self, len: usize) {
        match self {
            // SAFETY: `set_filled` requires that the first bytes of the room are initialized, and
            // that the buffer is as it was.
            // - initialized: the caller ensures that, and the room was this buffer's;
            // - as it was: the caller ensures that for the whole, and so for the buffer within.
            Self::Left(buffer) => unsafe { buffer.set_filled(len) },
            // SAFETY: as above.
            Self::Right(buffer) => unsafe { buffer.set_filled(len) },
        }
    }

    #[inline]
    fn datagrams(&mut self) -> Option<&mut Datagrams> {
        match self {
            Self::Left(buffer) => buffer.datagrams(),
            Self::Right(buffer) => buffer.datagrams(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    /// Fills the buffer with `bytes`, and returns how much room it has.
    fn fill(buffer: &mut impl Buffer, bytes: &[u8]) -> usize {
        let (mut room, mut rest) = (0, bytes);
        // SAFETY: `room` requires that only initialized bytes are written to the parts.
        // - `bytes` are initialized.
        unsafe {
            buffer.room(&mut |part| {
                room += part.len();
                let now = rest.len().min(part.len());
                for (place, byte) in part.iter_mut().zip(&rest[..now]) {
                    place.write(*byte);
                }
                rest = &rest[now..];
            });
        }
        // SAFETY: `set_filled` requires that the first bytes of the room are initialized, and that
        // the buffer is as it was.
        // - they were just written, and nothing has happened since.
        unsafe { buffer.set_filled(bytes.len() - rest.len()) };
        room
    }

    fn sent(buffer: &impl Buffer) -> Vec<u8> {
        let mut sent = Vec::new();
        buffer.filled(&mut |part| sent.extend_from_slice(part));
        sent
    }

    #[test]
    fn either_buffer_is_sent_and_filled_as_the_one_within() {
        type Either = EitherBuffer<Vec<u8>, EitherBuffer<Arc<[u8]>, Box<[u8]>>>;
        let mut buffer = Either::Left(Vec::with_capacity(4));
        assert!(fill(&mut buffer, b"abc") >= 4);
        assert_eq!(sent(&buffer), b"abc");
        assert_eq!(buffer.clone().right(), None);
        assert_eq!(buffer.left().as_deref(), Some(b"abc".as_slice()));

        let mut buffer = Either::Right(EitherBuffer::Left(Arc::from(*b"shared")));
        assert_eq!(fill(&mut buffer, b"abc"), 0);
        assert_eq!(sent(&buffer), b"shared");

        let mut buffer = Either::Right(EitherBuffer::Right(Box::from(*b"1234")));
        assert_eq!(fill(&mut buffer, b"abc"), 4);
        assert_eq!(sent(&buffer), b"abc4");
    }

    #[test]
    fn parts_may_be_of_either_type() {
        let mut buffer: [EitherBuffer<Box<[u8]>, Vec<u8>>; 2] =
            [EitherBuffer::Left(Box::from(*b"??")), EitherBuffer::Right(Vec::with_capacity(4))];
        assert!(fill(&mut buffer, b"abcde") >= 6);
        assert_eq!(sent(&buffer), b"abcde");
    }
}
