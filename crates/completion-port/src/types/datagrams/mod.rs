//! A batch of datagrams, which one operation receives or sends.
//!
//! # Design
//!
//! One system call per datagram costs more than the datagram. Systems offer two remedies, and a
//! [`Datagrams`] has room for both:
//!
//! - A call transfers several messages: recvmmsg(2), sendmmsg(2). So a batch has several *slots*.
//! - A message contains several datagrams of equal size: `UDP_SEGMENT` and `UDP_GRO`. So a slot has
//!   a *segment size*.
//!
//! Where a system lacks either, a loop does the same with more calls. Programs don't notice.
//!
//! **The batch is the truth.** A receive puts into it what it has taken from the socket, and a send
//! removes what it has sent, also if it then fails, is cancelled, or times out. So nothing is lost
//! or sent twice, whatever the outcome, and the next send of the same batch continues where this one
//! ended.
//!
//! - A receive is done as soon as one datagram is there. It takes what has arrived, in order, up to
//!   the number of slots. It begins by clearing the batch.
//! - A send is done when all is sent. Nothing else is sent in between.
//! - Linux takes [`AT_ONCE`] messages per call here, so that their headers fit on the stack; the
//!   port repeats the call. Others take one. An attempt ends after [`SHARE`] messages, so that other
//!   packets get their turn: a receive is done then, a send continues later.
//! - Each datagram has its own mark if it was cut. That is no error of the operation.
//! - An error comes with the number of messages transferred before it. A receive on Linux has no
//!   such error, because the kernel keeps it for the next call. Where a send fails, the message that
//!   failed is the first one in the batch.
//! - A receive that found fewer messages than it had slots has emptied the socket, as after
//!   `WouldBlock`: the kernel ends recvmmsg(2) early only if nothing is left, or because of an
//!   error, which arrives with its own edge after the call began.
//!
//! **What the system refuses.** A message with segments that it can't send as one (the device
//! computes no checksums, or there are too many segments) is sent datagram by datagram, and the
//! errors of these sends are the ones that count. A kernel without `UDP_SEGMENT` would ignore it, and
//! send one long datagram, so each attempt with segments first asks whether the socket has the
//! option.
//!
//! FreeBSD's recvmmsg and sendmmsg are loops in its C library, which lose errors. Those of NetBSD and
//! OpenBSD are system calls, and Windows has `UDP_SEND_MSG_SIZE`; none of them is used.
//!
//! Addresses are kept as [`Address`], because servers look up their sessions by them. Nothing is
//! allocated except for names of `AF_UNIX` sockets.

pub(crate) mod transfer;

use std::fmt;
use std::mem::MaybeUninit;
use std::ops::Range;

use super::address::Address;
use super::buffer::Buffer;

/// The most messages that one system call transfers.
pub(crate) const AT_ONCE: usize = 32;

/// The most messages that one attempt transfers.
pub(crate) const SHARE: usize = 16 * AT_ONCE;

/// The most segments of one message. Linux has increased its limit since.
const SEGMENTS: usize = 64;

/// The most bytes of one message: 65,535 bytes less the headers of IPv4 and UDP.
const MESSAGE: usize = 65_507;

/// Datagrams that are received or sent together, with their addresses.
///
/// [`Operation::recv_many`](crate::Operation::recv_many) fills it, and
/// [`Operation::send_many`](crate::Operation::send_many) sends it. Programs that use readiness call
/// [`Datagrams::recv`] and [`Datagrams::send`]. One system call receives or sends many datagrams if
/// the system can do that, and otherwise one.
///
/// Its memory is allocated once, and used again and again. It has a number of *slots*, each with the
/// same room. Usually a slot has one [`Datagram`]. With [segments](Datagram::segments), it has
/// several of one peer.
///
/// As an ordinary [`Buffer`], it sends the bytes of all its datagrams in a row, and receives into its
/// first slot.
///
/// # Examples
///
/// An echo server that receives and answers up to 32 datagrams per system call:
///
/// ```
/// use completion_port::{Batch, Datagrams, Outcome, Packet, Port};
/// use std::net::UdpSocket;
///
/// let port: Port<UdpSocket, (), Datagrams> = Port::builder().buffers().build()?;
/// let server = UdpSocket::bind("127.0.0.1:0")?;
/// let client = UdpSocket::bind("127.0.0.1:0")?;
/// client.connect(server.local_addr()?)?;
/// client.send(b"one")?;
/// client.send(b"two")?;
///
/// port.associate(server)?.recv_many(Datagrams::new(32, 2048))?;
/// let mut batch = Batch::new();
/// let mut answered = 0;
/// while answered < 2 {
///     for packet in port.wait(&mut batch, None)? {
///         let Packet::Completed(done) = packet else { continue };
///         match done.into_parts() {
///             (token, Outcome::ReceivedMany(Ok(_), mut datagrams)) => {
///                 datagrams.retain(|datagram| !datagram.is_truncated());
///                 token.send_many(datagrams)?; // to where each came from
///             }
///             (token, Outcome::SentMany(Ok(count), datagrams)) => {
///                 answered += count;
///                 token.recv_many(datagrams)?;
///             }
///             (_, outcome) => panic!("{outcome:?}"),
///         }
///     }
/// }
/// let mut answer = [0; 8];
/// assert_eq!(client.recv(&mut answer)?, 3);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Datagrams {
    /// The rooms of all slots.
    bytes: Box<[u8]>,
    slots: Box<[Slot]>,
    /// The size of each room.
    room: usize,
    /// The slots in use.
    used: Range<usize>,
    /// The rooms are not in the order of the slots.
    is_mixed: bool,
    is_drained: bool,
    #[allow(dead_code, reason = "for systems that send segments together")]
    avoids_segments: bool,
}

/// A slot: its room, and the message in it, if it is in use.
#[derive(Clone)]
struct Slot {
    /// The number of the room.
    room: usize,
    /// The bytes of the message, in the room.
    message: Range<usize>,
    /// The size of all datagrams but the last, or zero if there is only one.
    segment: usize,
    /// With which it was received.
    ecn: u8,
    /// With which it is sent.
    ecn_to_send: u8,
    is_truncated: bool,
    address: Option<Address>,
}

/// What a receive knows about a message besides its bytes.
#[derive(Default)]
pub(crate) struct Facts {
    pub(crate) address: Option<Address>,
    /// As in [`Slot`].
    pub(crate) segment: usize,
    pub(crate) ecn: u8,
    pub(crate) is_truncated: bool,
}

impl Datagrams {
    /// Creates a batch with this number of slots, each with this number of bytes of room.
    ///
    /// The room should fit the longest datagram expected, since the rest of a longer one is lost. A
    /// socket with [`Datagrams::enable_gro`] needs 65,535 bytes.
    ///
    /// # Panics
    ///
    /// If either is zero, or there is not that much memory.
    #[must_use]
    #[track_caller]
    pub fn new(slots: usize, room: usize) -> Self {
        assert!(slots > 0 && room > 0, "datagrams need a slot and room");
        let bytes = slots.checked_mul(room).expect("more bytes than there are addresses");
        let slot = |room| Slot {
            room,
            message: 0..0,
            segment: 0,
            ecn: 0,
            ecn_to_send: 0,
            is_truncated: false,
            address: None,
        };
        Self {
            bytes: vec![0; bytes].into_boxed_slice(),
            slots: (0..slots).map(slot).collect(),
            room,
            used: 0..0,
            is_mixed: false,
            is_drained: false,
            avoids_segments: false,
        }
    }

    /// Returns the number of slots.
    #[must_use]
    pub fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Returns how many bytes fit into each slot.
    #[must_use]
    pub fn room(&self) -> usize {
        self.room
    }

    /// Returns the number of slots in use. Each has a [`Datagram`].
    #[must_use]
    pub fn len(&self) -> usize {
        self.used.len()
    }

    /// Returns whether no slot is in use.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.used.is_empty()
    }

    /// Removes all datagrams.
    pub fn clear(&mut self) {
        self.used = 0..0;
    }

    /// Returns whether the last receive has emptied the socket.
    ///
    /// Then [`Ready::read_drained`](crate::Ready::read_drained) is a true hint. If not, receive
    /// again.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        self.is_drained
    }

    /// Adds a datagram, for a peer or, without an address, for the peer to which the socket is
    /// connected. Returns false, and adds nothing, if all slots are in use.
    ///
    /// # Panics
    ///
    /// If it has more bytes than a slot has room for.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::Datagrams;
    /// use std::net::UdpSocket;
    ///
    /// let receiver = UdpSocket::bind("127.0.0.1:0")?;
    /// let sender = UdpSocket::bind("127.0.0.1:0")?;
    /// receiver.set_nonblocking(true)?;
    /// sender.set_nonblocking(true)?;
    /// let mut datagrams = Datagrams::new(8, 1200);
    /// for number in 0..3 {
    ///     assert!(datagrams.push(&[number], Some(receiver.local_addr()?.into())));
    /// }
    /// assert_eq!(datagrams.send(&sender)?, 3);
    /// assert!(datagrams.is_empty());
    ///
    /// assert_eq!(datagrams.recv(&receiver)?, 3);
    /// let numbers: Vec<u8> = datagrams.iter().map(|datagram| datagram.bytes()[0]).collect();
    /// assert_eq!(numbers, [0, 1, 2]);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "it may have added nothing"]
    #[track_caller]
    pub fn push(&mut self, bytes: &[u8], to: Option<Address>) -> bool {
        assert!(bytes.len() <= self.room, "a datagram of more bytes than there is room for");
        if self.used.end == self.slots.len() {
            if self.used.start == 0 {
                return false;
            }
            self.close_up();
        }
        let room = self.slots[self.used.end].room * self.room;
        self.bytes[room..][..bytes.len()].copy_from_slice(bytes);
        self.fill(bytes.len(), Facts { address: to, ..Facts::default() });
        true
    }

    /// Adds datagrams of this size, of which the last may be shorter, in one slot. The system sends
    /// them with one call if it can (`UDP_SEGMENT` on Linux), and otherwise one by one.
    ///
    /// Returns false as [`Datagrams::push`] does.
    ///
    /// # Panics
    ///
    /// If there are more bytes than a slot has room for, or the size is zero.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::Datagrams;
    /// use std::net::UdpSocket;
    ///
    /// let receiver = UdpSocket::bind("127.0.0.1:0")?;
    /// let sender = UdpSocket::bind("127.0.0.1:0")?;
    /// sender.set_nonblocking(true)?;
    /// let mut datagrams = Datagrams::new(1, 65_535);
    /// assert!(datagrams.push_segments(&[1; 2500], 1000, Some(receiver.local_addr()?.into())));
    /// assert_eq!(datagrams.send(&sender)?, 1);
    ///
    /// let mut buffer = [0; 2000];
    /// for size in [1000, 1000, 500] {
    ///     assert_eq!(receiver.recv(&mut buffer)?, size);
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use = "it may have added nothing"]
    #[track_caller]
    pub fn push_segments(&mut self, bytes: &[u8], size: usize, to: Option<Address>) -> bool {
        assert!(size > 0, "segments without bytes");
        let is_pushed = self.push(bytes, to);
        if is_pushed && size < bytes.len() {
            self.slots[self.used.end - 1].segment = size;
        }
        is_pushed
    }

    /// Returns the datagrams in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = Datagram<'_>> {
        self.slots[self.used.clone()].iter().map(|slot| self.datagram(slot))
    }

    /// Returns the datagram at an index, for reading.
    #[must_use]
    pub fn get(&self, index: usize) -> Option<Datagram<'_>> {
        self.slots[self.used.clone()].get(index).map(|slot| self.datagram(slot))
    }

    /// Returns the datagram at an index, for changing it.
    pub fn get_mut(&mut self, index: usize) -> Option<DatagramMut<'_>> {
        let slot = self.slots[self.used.clone()].get_mut(index)?;
        let room = &mut self.bytes[slot.room * self.room..][..self.room];
        Some(DatagramMut { room, slot })
    }

    /// Keeps the datagrams for which `keep` returns true, in order, and removes the others.
    pub fn retain(&mut self, mut keep: impl FnMut(Datagram<'_>) -> bool) {
        let mut kept = self.used.start;
        for index in self.used.clone() {
            if !keep(self.datagram(&self.slots[index])) {
                continue;
            }
            if kept != index {
                self.slots.swap(kept, index);
                self.is_mixed = true;
            }
            kept += 1;
        }
        self.used.end = kept;
    }

    fn datagram<'d>(&'d self, slot: &'d Slot) -> Datagram<'d> {
        Datagram { bytes: self.message(slot), slot }
    }

    fn message(&self, slot: &Slot) -> &[u8] {
        &self.bytes[slot.room * self.room..][slot.message.clone()]
    }

    /// Moves the slots in use to the beginning.
    fn close_up(&mut self) {
        self.slots.rotate_left(self.used.start);
        self.used = 0..self.used.len();
        self.is_mixed = true;
    }

    /// Prepares a receive: no slot is in use.
    #[inline]
    pub(crate) fn begin_receive(&mut self) {
        self.clear();
        self.is_drained = false;
        if self.is_mixed {
            self.is_mixed = false;
            for (number, slot) in self.slots.iter_mut().enumerate() {
                slot.room = number;
            }
        }
    }

    /// Returns whether a receive finds another free slot.
    pub(crate) fn has_free_slot(&self) -> bool {
        self.used.end < self.slots.len()
    }

    /// Returns the rooms of the free slots, in order. A receive has begun.
    ///
    /// # Safety
    ///
    /// The caller writes only initialized bytes to the rooms.
    #[inline]
    pub(crate) unsafe fn rooms(&mut self) -> impl Iterator<Item = &mut [MaybeUninit<u8>]> {
        debug_assert!(!self.is_mixed);
        self.bytes[self.used.end * self.room..].chunks_exact_mut(self.room).map(|room| {
            let room: *mut [u8] = room;
            // SAFETY: a slice from a pointer requires memory that is valid for its type and that
            // nothing else accesses while it lives.
            // - valid: bytes that may be uninitialized have the layout of bytes. The caller leaves
            //   no byte uninitialized, so the memory contains initialized bytes again afterwards;
            // - nothing else: it is borrowed mutably for as long.
            unsafe { &mut *(room as *mut [MaybeUninit<u8>]) }
        })
    }

    /// Notes that the next free slot has a message of `len` bytes, which are in its room.
    #[inline]
    pub(crate) fn fill(&mut self, len: usize, facts: Facts) {
        let slot = &mut self.slots[self.used.end];
        slot.message = 0..len.min(self.room);
        slot.segment = facts.segment;
        (slot.ecn, slot.ecn_to_send) = (facts.ecn, 0);
        slot.is_truncated = facts.is_truncated;
        slot.address = facts.address;
        self.used.end += 1;
    }

    /// Notes that the receive has emptied the socket.
    #[inline]
    pub(crate) fn set_drained(&mut self) {
        self.is_drained = true;
    }

    /// Returns whether a send should try to have the system send segments.
    #[allow(dead_code, reason = "for systems that send segments together")]
    pub(crate) fn tries_segments(&self) -> bool {
        !self.avoids_segments && self.slots[self.used.clone()].iter().any(|slot| slot.segment > 0)
    }

    /// Notes that a device sends no segments. The next sends try none.
    #[allow(dead_code, reason = "for systems that send segments together")]
    pub(crate) fn avoid_segments(&mut self) {
        self.avoids_segments = true;
    }

    /// Returns the messages to send, in order: each with as many segments as the system sends
    /// together if `together`, and with one datagram otherwise.
    #[inline]
    pub(crate) fn messages(&self, together: bool) -> Messages<'_> {
        Messages { datagrams: self, index: self.used.start, skipped: 0, together }
    }

    /// Removes the first `count` messages, which were sent.
    #[inline]
    pub(crate) fn remove_messages(&mut self, count: usize, together: bool) {
        for _ in 0..count {
            let Some(slot) = self.slots[self.used.clone()].first_mut() else { return };
            slot.message.start += slot.first_message(slot.message.len(), together);
            if slot.message.is_empty() {
                self.used.start += 1;
            }
        }
        if self.used.is_empty() {
            self.clear();
        }
    }

    /// Removes the first bytes of the first message. A socket that carries a stream has sent only
    /// those.
    pub(crate) fn remove_bytes(&mut self, count: usize) {
        if let Some(slot) = self.slots[self.used.clone()].first_mut() {
            slot.message.start += count.min(slot.message.len());
        }
    }
}

impl Slot {
    /// Returns the length of the first message to send, when `left` bytes are left.
    #[inline]
    fn first_message(&self, left: usize, together: bool) -> usize {
        if self.segment == 0 || left <= self.segment {
            left
        } else if together {
            left.min(self.segment * (MESSAGE / self.segment).clamp(1, SEGMENTS))
        } else {
            self.segment
        }
    }
}

/// A message to send.
pub(crate) struct Message<'d> {
    pub(crate) bytes: &'d [u8],
    /// The size of its segments, or zero if it is one datagram.
    #[allow(dead_code, reason = "for systems that send segments together")]
    pub(crate) segment: usize,
    #[allow(dead_code, reason = "for systems that send segments together")]
    pub(crate) ecn: u8,
    pub(crate) to: Option<&'d Address>,
}

/// The messages to send.
pub(crate) struct Messages<'d> {
    datagrams: &'d Datagrams,
    index: usize,
    /// The bytes of that slot's message before the next message.
    skipped: usize,
    together: bool,
}

impl<'d> Iterator for Messages<'d> {
    type Item = Message<'d>;

    #[inline]
    fn next(&mut self) -> Option<Message<'d>> {
        let Self { datagrams, index, skipped, together } = *self;
        if index == datagrams.used.end {
            return None;
        }
        let slot = &datagrams.slots[index];
        let left = &datagrams.message(slot)[skipped..];
        let bytes = &left[..slot.first_message(left.len(), together)];
        (self.index, self.skipped) =
            if bytes.len() == left.len() { (index + 1, 0) } else { (index, skipped + bytes.len()) };
        let segment = if bytes.len() > slot.segment { slot.segment } else { 0 };
        Some(Message { bytes, segment, ecn: slot.ecn_to_send, to: slot.address.as_ref() })
    }
}

impl fmt::Debug for Datagrams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagrams")
            .field("slots", &self.slots())
            .field("room", &self.room)
            .field("len", &self.len())
            .finish_non_exhaustive()
    }
}

// SAFETY: the room is that of the first slot, which is a part of memory that never moves. Clearing
// the batch and putting its rooms into order again change nothing in it, and the second time there
// is nothing to put into order.
unsafe impl Buffer for Datagrams {
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        self.slots[self.used.clone()].iter().for_each(|slot| part(self.message(slot)));
    }

    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        self.begin_receive();
        // SAFETY: `rooms` requires that only initialized bytes are written.
        // - the caller ensures that.
        unsafe { self.rooms() }.take(1).for_each(part);
    }

    unsafe fn set_filled(&mut self, len: usize) {
        self.begin_receive();
        self.fill(len, Facts::default());
    }

    fn datagrams(&mut self) -> Option<&mut Datagrams> {
        Some(self)
    }
}

/// A datagram in [`Datagrams`], or several of equal size with the same peer.
#[derive(Clone, Copy)]
pub struct Datagram<'d> {
    bytes: &'d [u8],
    slot: &'d Slot,
}

impl<'d> Datagram<'d> {
    /// Returns its bytes. Those of several datagrams are in a row.
    #[must_use]
    pub fn bytes(&self) -> &'d [u8] {
        self.bytes
    }

    /// Returns the sender, or for a send the receiver. `None` if it is the peer to which the socket
    /// is connected, or an [`Address`] cannot represent it.
    #[must_use]
    pub fn address(&self) -> Option<&'d Address> {
        self.slot.address.as_ref()
    }

    /// Returns the size of all its datagrams but the last, or `None` if it is only one.
    #[must_use]
    pub fn segment_size(&self) -> Option<usize> {
        Some(self.slot.segment).filter(|size| (1..self.bytes.len()).contains(size))
    }

    /// Returns its datagrams one by one: itself, unless it has a segment size.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::Datagrams;
    ///
    /// let mut datagrams = Datagrams::new(2, 100);
    /// assert!(datagrams.push_segments(b"aabbc", 2, None) && datagrams.push(b"", None));
    /// let all: Vec<&[u8]> = datagrams.iter().flat_map(|datagram| datagram.segments()).collect();
    /// assert_eq!(all, [b"aa".as_slice(), b"bb", b"c", b""]);
    /// ```
    pub fn segments(&self) -> impl Iterator<Item = &'d [u8]> + use<'d> {
        let size = self.segment_size().unwrap_or(self.bytes.len().max(1));
        let empty: Option<&[u8]> = self.bytes.is_empty().then_some(&[]);
        self.bytes.chunks(size).chain(empty)
    }

    /// Returns whether it was longer than the slot's room, and the rest is lost. If it has segments,
    /// the last of them may be incomplete, and others lost.
    #[must_use]
    pub fn is_truncated(&self) -> bool {
        self.slot.is_truncated
    }

    /// Returns the bits of explicit congestion notification with which it was received: 0, or 1 to 3
    /// as RFC 3168 numbers them.
    ///
    /// # Platform notes
    ///
    /// Linux, if the program has set the socket's option `IP_RECVTOS` or `IPV6_RECVTCLASS`. Zero
    /// elsewhere.
    #[must_use]
    pub fn ecn(&self) -> u8 {
        self.slot.ecn
    }
}

impl fmt::Debug for Datagram<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Datagram")
            .field("len", &self.bytes.len())
            .field("address", &self.address())
            .field("segment_size", &self.segment_size())
            .field("is_truncated", &self.is_truncated())
            .finish_non_exhaustive()
    }
}

/// A [`Datagram`] that can be changed, for an answer in the same memory.
///
/// # Examples
///
/// ```
/// use completion_port::Datagrams;
///
/// let mut datagrams = Datagrams::new(1, 100);
/// assert!(datagrams.push(b"question", None));
/// let mut datagram = datagrams.get_mut(0).expect("it was pushed");
/// datagram.set_len(100);
/// datagram.bytes_mut()[..6].copy_from_slice(b"answer");
/// datagram.set_len(6);
/// assert_eq!(datagrams.get(0).map(|datagram| datagram.bytes()), Some(b"answer".as_slice()));
/// ```
pub struct DatagramMut<'d> {
    /// All its room.
    room: &'d mut [u8],
    slot: &'d mut Slot,
}

impl DatagramMut<'_> {
    /// Returns its bytes.
    #[must_use]
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.room[self.slot.message.clone()]
    }

    /// Changes the number of its bytes. Bytes that it gains have any value.
    ///
    /// # Panics
    ///
    /// If it has no room for that many.
    #[track_caller]
    pub fn set_len(&mut self, len: usize) {
        assert!(len <= self.room.len(), "a datagram of more bytes than there is room for");
        if self.slot.message.start != 0 {
            // A part of it was sent.
            self.room.copy_within(self.slot.message.clone(), 0);
        }
        self.slot.message = 0..len;
    }

    /// Changes the address to which it is sent. `None`: the peer to which the socket is connected.
    pub fn set_address(&mut self, address: Option<Address>) {
        self.slot.address = address;
    }

    /// Changes the size of its segments, as for [`Datagrams::push_segments`]. `None`: it is one
    /// datagram.
    pub fn set_segment_size(&mut self, size: Option<std::num::NonZeroUsize>) {
        self.slot.segment = size.map_or(0, std::num::NonZeroUsize::get);
    }

    /// Changes the bits of explicit congestion notification with which it is sent. Zero: those of
    /// the socket, as for an answer that leaves them. Only the lowest two bits count.
    ///
    /// # Platform notes
    ///
    /// Only Linux sends them. The class of service of that datagram is then zero, whatever the
    /// socket's is.
    pub fn set_ecn(&mut self, ecn: u8) {
        self.slot.ecn_to_send = ecn & 3;
    }
}

impl fmt::Debug for DatagramMut<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = &self.room[self.slot.message.clone()];
        f.debug_tuple("DatagramMut").field(&Datagram { bytes, slot: self.slot }).finish()
    }
}
