//! Overlapped receives and sends: `WSARecv`, `WSARecvFrom`, `WSASend`, `WSASendTo` with an OVERLAPPED.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

use completion_port::raw::{Attempt, Side};
use libc::{iovec, sockaddr, socklen_t};

use crate::abi::Overlapped;
use crate::errors::{code, guarded};
use crate::linux::buffers::{Buffer, Gathered, PARTIAL, checked, gathered, message, takes_parts};
use crate::linux::descriptors;
use crate::linux::errno::code_of_errno;
use crate::linux::numbers::has_shut_reading;
use crate::linux::operations::{CUT, Target, Work, answered};
use crate::linux::options::give_room;
use crate::linux::port::{Outcome, Told};
pub(crate) use crate::linux::receiving::{count, failed, repeated};
use crate::linux::receiving::{fill, not_received, send};
use crate::linux::sockets::{
    is_shut_for_reads, past_refusals, room_for_sender, status_of_transfer, why_ended,
};
use crate::linux::starting::{Start, start};
use crate::linux::{memory, status};

/// Flags without effect here: `MSG_PARTIAL` is welcome, and data is delivered immediately anyway.
const MEANINGLESS: u32 = PARTIAL | 0x2000_0000;

/// The supported flags of a receive: peek, and wait for all data.
const OF_RECEIVE: c_int = libc::MSG_PEEK | libc::MSG_WAITALL;
/// The supported flags of a send.
const OF_SEND: c_int = libc::MSG_OOB | libc::MSG_DONTROUTE;

/// The remaining buffers of an operation.
pub(crate) enum Parts {
    /// One buffer, as in most operations, stored without an allocation.
    One(iovec),
    Several(Box<Several>),
}

/// Several buffers.
pub(crate) struct Several {
    all: Box<[iovec]>,
    first: usize,
    /// The number of bytes, and how many remain.
    size: usize,
    left: usize,
    gathered: Option<Gathered>,
}

// SAFETY: a thread other than their creator may use the parts, although they have pointers.
// - the memory is the operation's until its end, as the calls demand that start one.
unsafe impl Send for Parts {}

impl Parts {
    /// Buffers of a receive. Fails if there is no memory for that many.
    ///
    /// # Safety
    ///
    /// `buffers` points to `count` buffers.
    pub(crate) unsafe fn to_fill(buffers: *const Buffer, count: usize) -> Result<Self, u32> {
        if count == 1 {
            // SAFETY: reading through a raw pointer demands that it is valid.
            // - the caller guarantees it for one.
            let Buffer { size, bytes } = unsafe { buffers.read() };
            if size > 0 && !memory::may_be(bytes) {
                return Err(code::WSAEFAULT);
            }
            return Ok(Self::One(iovec { iov_base: bytes, iov_len: size as usize }));
        }
        // SAFETY: `gathered` demands what this call does.
        let (all, gathered) = unsafe { gathered(buffers, count) }?;
        let size = all.iter().map(|part| part.iov_len).sum();
        Ok(Self::Several(Box::new(Several { all, first: 0, size, left: size, gathered })))
    }

    /// Buffers of a send.
    ///
    /// # Safety
    ///
    /// `buffers` points to `count` buffers, which can be read.
    pub(crate) unsafe fn to_send(buffers: *const Buffer, count: usize) -> Result<Self, u32> {
        // SAFETY: `to_fill` demands what this call does.
        let mut parts = unsafe { Self::to_fill(buffers, count) }?;
        if let Self::Several(several) = &mut parts
            && let Some(gathered) = &mut several.gathered
        {
            // SAFETY: `collect` demands buffers that can be read.
            // - the caller guarantees it.
            unsafe { gathered.collect() };
        }
        Ok(parts)
    }

    /// The number of remaining bytes.
    fn left(&self) -> usize {
        match self {
            Self::One(part) => part.iov_len,
            Self::Several(several) => several.left,
        }
    }

    pub(crate) fn rest(&mut self) -> &mut [iovec] {
        match self {
            Self::One(part) if part.iov_len == 0 => &mut [],
            Self::One(part) => std::slice::from_mut(part),
            Self::Several(several) => &mut several.all[several.first..],
        }
    }

    /// Stores that many received bytes after the finished ones.
    ///
    /// # Safety
    ///
    /// The buffers can be written.
    pub(crate) unsafe fn hand_out(&self, bytes: usize) {
        if let Self::Several(several) = self
            && let Some(gathered) = &several.gathered
        {
            // SAFETY: `hand_out` demands what this call does.
            unsafe { gathered.hand_out(several.size - several.left, bytes) };
        }
    }

    /// That many bytes are finished.
    fn advance(&mut self, bytes: usize) {
        match self {
            Self::One(part) => shorten(part, bytes),
            Self::Several(several) => several.advance(bytes),
        }
    }
}

impl Several {
    fn advance(&mut self, mut bytes: usize) {
        self.left -= bytes;
        while bytes > 0 {
            let part = &mut self.all[self.first];
            let done = bytes.min(part.iov_len);
            shorten(part, done);
            bytes -= done;
            if part.iov_len == 0 {
                self.first += 1;
            }
        }
    }
}

/// Removes the first bytes of a buffer.
fn shorten(part: &mut iovec, bytes: usize) {
    part.iov_base = part.iov_base.wrapping_byte_add(bytes);
    part.iov_len -= bytes;
}

/// The result of an attempt at a receive for a failed call on a socket that may have datagrams: its
/// own shutdown ends the receive with 0 bytes.
pub(crate) fn not_received_yet(descriptor: RawFd, outcome: &mut Outcome) -> Attempt {
    let attempt = not_received(outcome);
    if !matches!(attempt, Attempt::Blocked) || outcome.is_tcp {
        return attempt;
    }
    if has_shut_reading(descriptor) {
        return Attempt::Done;
    }
    give_room(descriptor);
    attempt
}

/// The status of a failed receive or send. A former socket is neither queried nor updated.
pub(crate) fn status_of(target: Target, errno: c_int) -> u32 {
    let status = target.if_current(|state| status_of_transfer(state, target.descriptor, errno));
    status.unwrap_or_else(|| status::of_errno(errno))
}

/// A receive.
pub(crate) struct Receiving {
    parts: Parts,
    flags: c_int,
    /// The sender's address and its maximum size; the location of its size.
    address: *mut sockaddr,
    room: socklen_t,
    address_size: *mut c_int,
    /// Data is available, but was not taken.
    has_seen: bool,
}

// SAFETY: as for `Parts`; the pointers are null, or point to memory that is the operation's until
// its end.
unsafe impl Send for Receiving {}

impl Receiving {
    /// A receive from any sender.
    pub(crate) fn plain(parts: Parts) -> Self {
        let (address, address_size) = (std::ptr::null_mut(), std::ptr::null_mut());
        Self { parts, flags: 0, address, room: 0, address_size, has_seen: false }
    }

    /// Without room, it ends as soon as data is available, and takes none.
    fn look(&mut self, descriptor: RawFd, outcome: &mut Outcome) -> Attempt {
        let mut byte = 0_u8;
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let place = (&raw mut byte).cast::<c_void>();
        // SAFETY: recv(2) writes at most one byte at the pointer.
        // - valid for writes: it is a local.
        let seen = repeated(|| unsafe { libc::recv(descriptor, place, 1, flags) });
        self.has_seen = seen > 0;
        if seen < 0 { not_received_yet(descriptor, outcome) } else { Attempt::Done }
    }
}

impl Work for Receiving {
    fn is_listed(&self) -> bool {
        false
    }

    fn only_buffer(&self) -> Option<iovec> {
        match self.parts {
            Parts::One(part) if self.room == 0 && self.flags == 0 => Some(part),
            _ => None,
        }
    }

    fn attempt(&mut self, descriptor: RawFd, outcome: &mut Outcome) -> Attempt {
        if self.parts.left() == 0 {
            return self.look(descriptor, outcome);
        }
        if outcome.is_tcp
            && self.room == 0
            && self.flags == 0
            && let Parts::One(part) = self.parts
        {
            // SAFETY: `fill` demands a buffer that can be written.
            // - the program lends it to the operation until its end, as `cp_start_receive` demands.
            return unsafe { fill(descriptor, part, outcome) };
        }
        let room = self.room;
        let address = if room > 0 { self.address } else { std::ptr::null_mut() };
        let flags = (self.flags & !libc::MSG_WAITALL) | libc::MSG_DONTWAIT;
        loop {
            let asked = self.parts.left();
            let mut message = message(self.parts.rest(), address, room);
            // SAFETY: recvmsg(2) writes to the buffers and the address.
            // - valid for writes: the program lends both to the operation until its end, as
            //   `cp_start_receive` demands.
            let read = repeated(|| unsafe { libc::recvmsg(descriptor, &raw mut message, flags) });
            let Ok(read) = usize::try_from(read) else {
                return not_received_yet(descriptor, outcome);
            };
            if room > 0 {
                let size = message.msg_namelen.min(room);
                // SAFETY: writing through a raw pointer demands that it is valid.
                // - the program keeps it valid until the end, as `cp_start_receive` demands.
                unsafe { self.address_size.write(size.cast_signed()) };
            }
            // SAFETY: `hand_out` demands buffers that can be written.
            // - as above.
            unsafe { self.parts.hand_out(read) };
            outcome.bytes = outcome.bytes.saturating_add(count(read));
            if message.msg_flags & libc::MSG_TRUNC != 0 {
                (outcome.errno, outcome.flags) = (CUT, PARTIAL);
                return Attempt::Done;
            }
            if self.flags & libc::MSG_WAITALL != 0 && read > 0 && read < asked {
                self.parts.advance(read);
                continue;
            }
            let is_plain = self.flags & libc::MSG_PEEK == 0;
            let is_short = 0 < read && read < asked;
            return match outcome.is_tcp && is_plain && is_short {
                true => Attempt::Drained,
                false => Attempt::Done,
            };
        }
    }

    fn finish(&mut self, target: Target, outcome: Outcome) -> Outcome {
        if outcome.errno != 0 || outcome.bytes > 0 || self.has_seen {
            return outcome;
        }
        let Target { descriptor, number, .. } = target;
        let is_tcp = outcome.is_tcp;
        let why = target.if_current(|state| why_ended(state, number, descriptor, is_tcp));
        Outcome { errno: why.unwrap_or(0), ..outcome }
    }

    fn status(&self, target: Target, errno: c_int) -> u32 {
        status_of(target, errno)
    }
}

/// A send.
pub(crate) struct Sending {
    parts: Parts,
    flags: c_int,
    /// The destination, if it is not the socket's peer. Boxed: most operations have none.
    address: Option<Box<Address>>,
}

/// An address of any family.
pub(crate) struct Address {
    pub(crate) bytes: libc::sockaddr_storage,
    pub(crate) size: socklen_t,
}

impl Address {
    /// A copy of an address.
    ///
    /// # Safety
    ///
    /// `address` points to that many bytes.
    pub(crate) unsafe fn new(address: *const sockaddr, size: c_int) -> Result<Self, u32> {
        let size = usize::try_from(size).map_err(|_| code::WSAEFAULT)?;
        if !memory::may_be(address)
            || size < size_of::<libc::sa_family_t>()
            || size > size_of::<libc::sockaddr_storage>()
            || {
                // SAFETY: reading through a raw pointer demands that it is valid.
                // - the caller guarantees that many bytes, which are enough.
                let family = unsafe { address.cast::<libc::sa_family_t>().read_unaligned() };
                c_int::from(family) == libc::AF_INET6 && size < size_of::<libc::sockaddr_in6>()
            }
        {
            return Err(code::WSAEFAULT);
        }
        // SAFETY: `assume_init` demands a value.
        // - the struct has only numbers, for which all-zero bits are valid.
        let mut bytes = unsafe { std::mem::MaybeUninit::zeroed().assume_init() };
        let place: *mut libc::sockaddr_storage = &raw mut bytes;
        // SAFETY: `copy_nonoverlapping` demands that many bytes at both places, which do not
        // overlap.
        // - that many: the caller guarantees it for one, the other is as large as any address;
        // - no overlap: `bytes` is a local.
        unsafe { std::ptr::copy_nonoverlapping(address.cast::<u8>(), place.cast(), size) };
        Ok(Self { bytes, size: socklen_t::try_from(size).map_err(|_| code::WSAEFAULT)? })
    }
}

impl Sending {
    /// A send to the peer.
    pub(crate) fn plain(parts: Parts) -> Self {
        Self { parts, flags: 0, address: None }
    }

    /// More data follows immediately: the system may put both into one packet.
    pub(crate) fn announce_more(&mut self) {
        self.flags |= libc::MSG_MORE;
    }
}

impl Work for Sending {
    fn is_listed(&self) -> bool {
        false
    }

    fn is_plain_send(&self) -> bool {
        self.address.is_none() && matches!(self.parts, Parts::One(_))
    }

    fn fails_by_packet(&self, outcome: Outcome) -> bool {
        is_too_long(outcome)
    }

    fn attempt(&mut self, descriptor: RawFd, outcome: &mut Outcome) -> Attempt {
        let flags = self.flags | libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
        loop {
            let sent = match (&mut self.address, &mut self.parts) {
                // Costs the system less than a message.
                (None, Parts::One(part)) => {
                    // SAFETY: send(2) reads that many bytes at the pointer.
                    // - valid for reads: the program lends the buffer to the operation until its
                    //   end, as `cp_start_send` demands.
                    let send = || unsafe { send(descriptor, part.iov_base, part.iov_len, flags) };
                    repeated(|| past_refusals(descriptor, send))
                }
                (address, parts) => {
                    let (address, size) = match address {
                        Some(address) => ((&raw mut address.bytes).cast(), address.size),
                        None => (std::ptr::null_mut(), 0),
                    };
                    let message = message(parts.rest(), address, size);
                    // SAFETY: sendmsg(2) reads from the buffers and the address.
                    // - valid for reads: as above, and the address is the operation's own.
                    let send = || unsafe { libc::sendmsg(descriptor, &raw const message, flags) };
                    repeated(|| past_refusals(descriptor, send))
                }
            };
            let Ok(sent) = usize::try_from(sent) else { return failed(outcome) };
            outcome.bytes = outcome.bytes.saturating_add(count(sent));
            self.parts.advance(sent);
            if self.parts.left() == 0 {
                return Attempt::Done;
            }
        }
    }

    fn status(&self, target: Target, errno: c_int) -> u32 {
        status_of_send(target, errno, self.address.as_deref())
    }
}

/// Whether a datagram was longer than its protocol allows. The reference detects that while
/// sending.
pub(crate) fn is_too_long(outcome: Outcome) -> bool {
    outcome.errno == libc::EMSGSIZE
}

/// Returns the status of a failed send to an address.
pub(crate) fn status_of_send(target: Target, errno: c_int, address: Option<&Address>) -> u32 {
    let is_short = |address: &Address| {
        let needed = target.if_current(|_| descriptors::size_of_address(target.descriptor));
        needed.is_some_and(|needed| address.size < needed)
    };
    // The reference treats it as a bad pointer, the system as an invalid argument.
    if errno == libc::EINVAL && address.is_some_and(is_short) {
        return status::of_errno(libc::EFAULT);
    }
    status_of(target, errno)
}

/// The system's flags for those of a call; fails for unknown flags.
pub(crate) fn flags_of(asked: u32, known: c_int) -> Result<c_int, u32> {
    let asked = c_int::try_from(asked & !MEANINGLESS).map_err(|_| code::WSAEOPNOTSUPP)?;
    if asked & !known == 0 { Ok(asked) } else { Err(code::WSAEOPNOTSUPP) }
}

/// `WSARecv` and `WSARecvFrom` with an OVERLAPPED. Returns 0 or -1.
///
/// # Safety
///
/// `buffers` is null or points to `count` buffers. `received` and `flags` are null or point to a
/// number. The memory of the buffers, `overlapped`, `address` with room for `address_size` bytes,
/// and `address_size` are null or stay valid until the operation ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_start_receive(
    descriptor: c_int,
    buffers: *const Buffer,
    count: u32,
    received: *mut u32,
    flags_told: *mut u32,
    address: *mut sockaddr,
    address_size: *mut c_int,
    overlapped: *mut c_void,
) -> c_int {
    let begin = || {
        let count = checked(buffers, count)?;
        if !memory::may_be(flags_told) || !can_be_told(received, overlapped) {
            return Err(code::WSAEFAULT);
        }
        // SAFETY: reading through a raw pointer demands that it is valid.
        // - the caller guarantees it for a non-null pointer.
        let flags = flags_of(unsafe { flags_told.read() }, OF_RECEIVE)?;
        let is_whole = flags & libc::MSG_WAITALL != 0;
        if is_whole
            && (flags & libc::MSG_PEEK != 0
                || descriptors::kind(descriptor) != Some(libc::SOCK_STREAM))
        {
            return Err(code::WSAEOPNOTSUPP);
        }
        // SAFETY: `to_fill` demands that many buffers.
        // - the caller guarantees it.
        let parts = unsafe { Parts::to_fill(buffers, count) }?;
        // SAFETY: `room_for_sender` demands null or a number.
        // - the caller guarantees it.
        let room = unsafe { room_for_sender(descriptor, address, address_size) }?;
        if is_shut_for_reads(descriptor) {
            return Err(code_of_errno(libc::ESHUTDOWN));
        }
        let receive = Receiving { parts, flags, address, room, address_size, has_seen: false };
        let overlapped = overlapped.cast::<Overlapped>();
        let told = Told { bytes: received, flags: flags_told };
        let (side, tells_flags) = (Side::In, true);
        let how = Start { descriptor, overlapped, side, tells_flags, told, accept: 0 };
        // SAFETY: `start` demands an OVERLAPPED that stays valid until the operation ends.
        // - the caller guarantees it.
        unsafe { start(how, receive) }
    };
    guarded(-1, || answered(begin()))
}

/// Whether these can point to memory for the number of bytes and for the end of an operation. The former may be null.
fn can_be_told(bytes: *const u32, overlapped: *const c_void) -> bool {
    (bytes.is_null() || memory::may_be(bytes)) && memory::may_be(overlapped)
}

/// `WSASend` and `WSASendTo` with an OVERLAPPED. Returns 0 or -1.
///
/// # Safety
///
/// `buffers` is null or points to `count` buffers. `sent` is null or points to a number, `address`
/// is null or points to an address of that size. The memory of the buffers and `overlapped` stay
/// valid until the operation ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_start_send(
    descriptor: c_int,
    buffers: *const Buffer,
    count: u32,
    sent: *mut u32,
    flags_asked: u32,
    address: *const sockaddr,
    address_size: c_int,
    overlapped: *mut c_void,
) -> c_int {
    let begin = || {
        let count = checked(buffers, count)?;
        if !can_be_told(sent, overlapped) {
            return Err(code::WSAEFAULT);
        }
        if flags_asked & PARTIAL != 0 && !takes_parts(descriptor) {
            return Err(code::WSAEOPNOTSUPP);
        }
        let flags = flags_of(flags_asked, OF_SEND)?;
        let address = if address.is_null() {
            None
        } else {
            // SAFETY: `new` demands that many bytes.
            // - the caller guarantees it.
            Some(Box::new(unsafe { Address::new(address, address_size) }?))
        };
        // SAFETY: `to_send` demands that many buffers, which can be read.
        // - the caller guarantees it.
        let parts = unsafe { Parts::to_send(buffers, count) }?;
        let overlapped = overlapped.cast::<Overlapped>();
        let told = Told::bytes(sent);
        let (side, tells_flags) = (Side::Out, false);
        let how = Start { descriptor, overlapped, side, tells_flags, told, accept: 0 };
        // SAFETY: `start` demands an OVERLAPPED that stays valid until the operation ends.
        // - the caller guarantees it.
        unsafe { start(how, Sending { parts, flags, address }) }
    };
    guarded(-1, || answered(begin()))
}
