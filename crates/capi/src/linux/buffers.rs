//! Socket calls with several buffers, as `WSARecv` and `WSASend`, without an OVERLAPPED.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;

use libc::{iovec, msghdr, sockaddr, socklen_t};

use crate::errors::code;
use crate::linux::sockets::{
    attempt, called, is_cut_off, is_shut_for_reads, note_datagram, note_read, note_short_address,
    note_time, note_write, past_refusals, refused, room_for_sender, set_errno, with_reset,
};
use crate::linux::{descriptors, memory};

/// `WSABUF`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "the layout is the reference's")]
pub struct Buffer {
    /// The number of bytes.
    pub size: u32,
    /// Their address.
    pub bytes: *mut c_void,
}

/// `MSG_PARTIAL`: set if a datagram was truncated. For the system, this bit has another meaning.
pub(crate) const PARTIAL: u32 = 0x8000;

/// Whether sends may be marked as part of a message: this means nothing for a stream.
pub(crate) fn takes_parts(descriptor: c_int) -> bool {
    descriptors::kind(descriptor) == Some(libc::SOCK_STREAM)
}

/// Maximum number of non-empty buffers in one system call.
const MOST: usize = 1024;
/// This many buffers need no allocation.
const FEW: usize = 16;

/// A program's buffers in the system's form, without empty ones.
///
/// # Safety
///
/// `buffers` points to that many buffers.
unsafe fn parts_of(buffers: *const Buffer, count: usize) -> impl Iterator<Item = iovec> {
    let part = move |place| {
        // SAFETY: `add` demands that the result is in the same allocation.
        // - the caller guarantees that there are that many buffers.
        let buffer = unsafe { buffers.add(place) };
        // SAFETY: reading through a raw pointer demands that it is valid.
        // - as above.
        let Buffer { size, bytes } = unsafe { buffer.read() };
        iovec { iov_base: bytes, iov_len: size as usize }
    };
    (0..count).map(part).filter(|part| part.iov_len > 0)
}

/// More buffers than the system accepts in one call, and a buffer of the library that replaces
/// them.
pub(crate) struct Gathered {
    parts: Box<[iovec]>,
    own: Vec<MaybeUninit<u8>>,
}

impl Gathered {
    /// Fails if there is no memory.
    fn new(parts: Box<[iovec]>) -> Result<Self, u32> {
        let size = parts.iter().map(|part| part.iov_len).sum();
        let mut own = Vec::new();
        own.try_reserve_exact(size).map_err(|_| code::WSAENOBUFS)?;
        own.resize(size, MaybeUninit::uninit());
        Ok(Self { parts, own })
    }

    /// The buffer for the system. It does not move with this value.
    fn part(&mut self) -> iovec {
        iovec { iov_base: self.own.as_mut_ptr().cast(), iov_len: self.own.len() }
    }

    /// Copies the data to send.
    ///
    /// # Safety
    ///
    /// The buffers can be read.
    pub(crate) unsafe fn collect(&mut self) {
        let mut own = &mut self.own[..];
        for part in &self.parts {
            let (place, rest) = own.split_at_mut(part.iov_len);
            // SAFETY: `copy_nonoverlapping` demands that many bytes at both places, which do not
            // overlap.
            // - that many: the caller guarantees it for one; the other is as long as the part;
            // - no overlap: the second is private memory of this library.
            unsafe {
                part.iov_base
                    .cast::<MaybeUninit<u8>>()
                    .copy_to_nonoverlapping(place.as_mut_ptr(), part.iov_len);
            };
            own = rest;
        }
    }

    /// Copies that many received bytes, from this position on, to the program's buffers.
    ///
    /// # Safety
    ///
    /// The buffers can be written.
    pub(crate) unsafe fn hand_out(&self, from: usize, bytes: usize) {
        let mut begins = 0;
        for part in &self.parts {
            let (first, behind) = (from.max(begins), (from + bytes).min(begins + part.iov_len));
            if let Some(came) = self.own.get(first..behind) {
                let place = part.iov_base.wrapping_byte_add(first - begins);
                // SAFETY: `copy_nonoverlapping` demands that many bytes at both places, which do
                // not overlap.
                // - that many: the slice has them, and the caller guarantees it for the buffer,
                //   within which they are;
                // - no overlap: the first is private memory of this library.
                unsafe {
                    came.as_ptr()
                        .copy_to_nonoverlapping(place.cast::<MaybeUninit<u8>>(), came.len());
                };
            }
            begins += part.iov_len;
        }
    }
}

/// A program's buffers, or the single buffer that replaces them.
///
/// # Safety
///
/// `buffers` points to that many buffers.
pub(crate) unsafe fn gathered(
    buffers: *const Buffer,
    count: usize,
) -> Result<(Box<[iovec]>, Option<Gathered>), u32> {
    // SAFETY: `parts_of` demands what this call does.
    let parts: Box<[iovec]> = unsafe { parts_of(buffers, count) }.collect();
    if parts.iter().any(|part| !memory::may_be(part.iov_base)) {
        return Err(code::WSAEFAULT);
    }
    if parts.len() <= MOST {
        return Ok((parts, None));
    }
    let mut gathered = Gathered::new(parts)?;
    Ok((Box::new([gathered.part()]), Some(gathered)))
}

/// Calls `f` with the buffers in the system's form and their total size. `f` returns the number of
/// bytes received or sent, or -1. Fails with a code if there is no memory for that many buffers.
///
/// # Safety
///
/// `buffers` points to that many buffers, which can be read, or be written if it `receives`.
pub(crate) unsafe fn with_parts(
    buffers: *const Buffer,
    count: usize,
    receives: bool,
    f: impl FnOnce(&mut [iovec], usize) -> isize,
) -> Result<isize, u32> {
    let size = |parts: &[iovec]| parts.iter().map(|part| part.iov_len).sum();
    if count <= FEW {
        let mut few = [iovec { iov_base: std::ptr::null_mut(), iov_len: 0 }; FEW];
        let mut used = 0;
        // SAFETY: `parts_of` demands that many buffers.
        // - the caller guarantees it.
        for part in unsafe { parts_of(buffers, count) } {
            few[used] = part;
            used += 1;
        }
        let parts = &mut few[..used];
        let size = size(parts);
        return Ok(f(parts, size));
    }
    // SAFETY: as above.
    let (mut parts, mut gathered) = unsafe { gathered(buffers, count) }?;
    if let Some(gathered) = gathered.as_mut().filter(|_| !receives) {
        // SAFETY: `collect` demands buffers that can be read.
        // - the caller guarantees it.
        unsafe { gathered.collect() };
    }
    let size = size(&parts);
    let done = f(&mut parts, size);
    if let (Some(gathered), Ok(came)) = (gathered.filter(|_| receives), usize::try_from(done)) {
        // SAFETY: `hand_out` demands buffers that can be written.
        // - the caller guarantees it.
        unsafe { gathered.hand_out(0, came) };
    }
    Ok(done)
}

/// The code of a call with a bad pointer. A descriptor that is not a socket has precedence.
fn bad_pointer(descriptor: c_int) -> u32 {
    descriptors::protocol(descriptor).err().unwrap_or(code::WSAEFAULT)
}

/// Checks whether a call with that many buffers is possible.
pub(crate) fn checked(buffers: *const Buffer, count: u32) -> Result<usize, u32> {
    match count {
        0 => Err(code::WSAEINVAL),
        _ if !memory::may_be(buffers) => Err(code::WSAEFAULT),
        count => Ok(count as usize),
    }
}

pub(crate) fn message(parts: &mut [iovec], address: *mut sockaddr, size: socklen_t) -> msghdr {
    // SAFETY: `assume_init` demands a value.
    // - struct has only numbers and pointers, for which all-zero bits are valid.
    let mut message = unsafe { MaybeUninit::<msghdr>::zeroed().assume_init() };
    message.msg_iov = parts.as_mut_ptr();
    // Its type differs between C libraries.
    message.msg_iovlen = parts.len() as _;
    if !address.is_null() {
        message.msg_name = address.cast();
        message.msg_namelen = size;
    }
    message
}

/// Return value of a call for which there is no memory.
pub(crate) fn no_memory(_: u32) -> isize {
    set_errno(libc::ENOBUFS);
    -1
}

/// `WSARecv` and `WSARecvFrom` without an OVERLAPPED. Returns 0 or -1.
///
/// # Safety
///
/// `buffers` is null or points to `count` buffers, each of which is valid for writes of its size.
/// The other pointers are null or valid for reads and writes; `address` has room for `address_size`
/// bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_receive_buffers(
    descriptor: c_int,
    buffers: *const Buffer,
    count: u32,
    received: *mut u32,
    flags: *mut u32,
    address: *mut sockaddr,
    address_size: *mut socklen_t,
) -> c_int {
    let count = match checked(buffers, count) {
        Ok(count) if memory::may_be(received) && memory::may_be(flags) => count,
        Ok(_) => return refused(bad_pointer(descriptor)),
        Err(code) => return refused(code),
    };
    // SAFETY: reading through a raw pointer demands that it is valid.
    // - the caller guarantees it unless it is null.
    let asked = unsafe { flags.read() } & !PARTIAL;
    let Ok(asked) = c_int::try_from(asked) else { return refused(code::WSAEOPNOTSUPP) };
    // SAFETY: `room_for_sender` demands null or a number.
    // - the caller guarantees it.
    let room = match unsafe { room_for_sender(descriptor, address, address_size.cast()) } {
        Ok(room) => room,
        Err(code) => return refused(code),
    };
    let address = if room > 0 { address } else { std::ptr::null_mut() };
    let mut told = 0;
    let mut written = 0;
    let mut all = 0;
    let read = called(|| {
        if is_shut_for_reads(descriptor) {
            return -1;
        }
        let attempt = attempt(descriptor);
        let receive = |parts: &mut [iovec], size| {
            let mut message = message(parts, address, room);
            // SAFETY: recvmsg(2) writes to the buffers and the address.
            // - the caller guarantees that it may write there.
            let read = unsafe { libc::recvmsg(descriptor, &raw mut message, asked) };
            (told, written, all) = (message.msg_flags, message.msg_namelen, size);
            let read = with_reset(descriptor, read, asked);
            note_read(attempt, read, size, asked);
            read
        };
        // SAFETY: `with_parts` demands that many buffers, which can be written.
        // - the caller guarantees it.
        unsafe { with_parts(buffers, count, true, receive) }.unwrap_or_else(no_memory)
    });
    note_time(descriptor, read < 0, asked, libc::EAGAIN);
    note_datagram(descriptor, read < 0);
    let Ok(read) = u32::try_from(read) else { return -1 };
    let is_cut = told & libc::MSG_TRUNC != 0;
    let done = if is_cut { all.try_into().unwrap_or(u32::MAX) } else { read };
    let urgent = if told & libc::MSG_OOB != 0 { libc::MSG_OOB.cast_unsigned() } else { 0 };
    // SAFETY: writing through a raw pointer demands that it is valid.
    // - the caller guarantees it, and it is not null.
    unsafe { received.write(done) };
    // SAFETY: as above.
    unsafe { flags.write(urgent | if is_cut { PARTIAL } else { 0 }) };
    if room > 0 {
        // SAFETY: as above.
        unsafe { address_size.write(written) };
    }
    if is_cut { refused(code::WSAEMSGSIZE) } else { 0 }
}

/// `WSASend` and `WSASendTo` without an OVERLAPPED. Returns 0 or -1.
///
/// # Safety
///
/// `buffers` is null or points to `count` buffers, each of which is valid for reads of its size.
/// `sent` is null or points to room for a number, `address` is null or points to an address of that
/// size.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_send_buffers(
    descriptor: c_int,
    buffers: *const Buffer,
    count: u32,
    sent: *mut u32,
    flags: u32,
    address: *const sockaddr,
    address_size: socklen_t,
) -> c_int {
    let count = match checked(buffers, count) {
        Ok(count) if memory::may_be(sent) => count,
        Ok(_) => return refused(bad_pointer(descriptor)),
        Err(code) => return refused(code),
    };
    let Ok(asked) = c_int::try_from(flags & !PARTIAL) else {
        return refused(code::WSAEOPNOTSUPP);
    };
    if flags & PARTIAL != 0 && !takes_parts(descriptor) {
        return refused(code::WSAEOPNOTSUPP);
    }
    // SAFETY: `is_cut_off` demands what this call does.
    if unsafe { is_cut_off(descriptor, address, address_size) } {
        return refused(code::WSAEFAULT);
    }
    let done = called(|| {
        let attempt = attempt(descriptor);
        let send = |parts: &mut [iovec], _| {
            let message = message(parts, address.cast_mut(), address_size);
            // SAFETY: sendmsg(2) reads from the buffers and the address.
            // - the caller guarantees that it may read there.
            let done = past_refusals(descriptor, || unsafe {
                libc::sendmsg(descriptor, &raw const message, asked | libc::MSG_NOSIGNAL)
            });
            note_write(attempt, descriptor, done);
            done
        };
        // SAFETY: `with_parts` demands that many buffers, which can be read.
        // - the caller guarantees it.
        unsafe { with_parts(buffers, count, false, send) }.unwrap_or_else(no_memory)
    });
    note_time(descriptor, done < 0, asked, libc::EAGAIN);
    note_datagram(descriptor, done < 0);
    note_short_address(done < 0 && !address.is_null(), descriptor, address_size);
    let Ok(done) = u32::try_from(done) else { return -1 };
    // SAFETY: writing through a raw pointer demands that it is valid.
    // - the caller guarantees it for a non-null pointer.
    unsafe { sent.write(done) };
    0
}
