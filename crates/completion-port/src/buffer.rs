//! What operations send and fill.

use std::mem::MaybeUninit;

/// Memory that an operation sends, or that it fills. It is handed over when the operation starts, and comes back
/// with its outcome.
///
/// A buffer may have several parts, which are sent, or filled, one after the other by one system call.
///
/// - `Vec<u8>`: a send sends its length; a receive fills it from 0 to its capacity, and sets the length.
/// - `Box<[u8]>`: a send sends all of it; a receive fills it from the beginning, and the outcome tells how far.
/// - `&'static [u8]`, `Arc<[u8]>`, `Arc<Vec<u8>>`: to be sent; there is no room in them.
/// - `Vec<B>`, `[B; N]`, `(A, B)` and `Option<B>`: the parts of each, in order.
///
/// # Examples
///
/// A buffer of one's own: a header of a fixed size in front of any other buffer.
///
/// ```
/// use completion_port::Buffer;
/// use std::mem::MaybeUninit;
///
/// struct Framed<B>([u8; 4], B);
///
/// impl<B: Buffer> Buffer for Framed<B> {
///     fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
///         part(&self.0);
///         self.1.filled(part);
///     }
///     fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
///         self.1.room(part);
///     }
///     unsafe fn set_filled(&mut self, len: usize) {
///         // SAFETY: the room is that of the other buffer.
///         unsafe { self.1.set_filled(len) };
///     }
/// }
///
/// let frame = Framed(5_u32.to_be_bytes(), b"hello".to_vec());
/// let mut sent = Vec::new();
/// frame.filled(&mut |part| sent.extend_from_slice(part));
/// assert_eq!(sent, b"\0\0\0\x05hello");
/// ```
pub trait Buffer: Send + 'static {
    /// Calls `part` with each part of what a send is to send, in order.
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8]));

    /// Calls `part` with each part of what a receive may fill, in order. What was filled before counts as room. It
    /// is called for each attempt, and what the parts hold may be lost by it.
    fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>]));

    /// A receive has filled the first `len` bytes of the parts.
    ///
    /// # Safety
    ///
    /// The first `len` bytes of what [`Buffer::room`] has last given are initialized.
    unsafe fn set_filled(&mut self, len: usize);
}

impl Buffer for Vec<u8> {
    #[inline]
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        part(self);
    }

    #[inline]
    fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        self.clear();
        part(self.spare_capacity_mut());
    }

    #[inline]
    unsafe fn set_filled(&mut self, len: usize) {
        // SAFETY: `set_len` demands a length of at most the capacity, and that the elements are initialized.
        // - the capacity: that is all the room that was given;
        // - initialized: the caller says so.
        unsafe { self.set_len(len) };
    }
}

/// How many parts are collected without memory of their own.
const FEW: usize = 4;

/// Calls `act` with the parts of what is to be sent, without the first `skipped` bytes.
pub(crate) fn with_filled<B: Buffer, R>(
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

/// Calls `act` with the parts of what may be filled, and how much that is in all.
pub(crate) fn with_room<B: Buffer, R>(
    buffer: &mut B,
    act: impl FnOnce(&mut [&mut [MaybeUninit<u8>]], usize) -> R,
) -> R {
    let mut few: [&mut [MaybeUninit<u8>]; FEW] = std::array::from_fn(|_| <&mut [_]>::default());
    let (mut count, mut len) = (0, 0);
    let mut many = Vec::new();
    buffer.room(&mut |part| {
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
    });
    if many.is_empty() { act(&mut few[..count], len) } else { act(&mut many, len) }
}
