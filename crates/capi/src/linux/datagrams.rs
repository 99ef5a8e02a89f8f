//! Datagrams with addresses and control data: `WSARecvMsg` and `WSASendMsg`, with and without an OVERLAPPED.
//!
//! Control data has the same layout on the system and on the reference, with one exception. The reference takes a datagram's
//! source address from `ipi_addr`. The system takes it from another member of its struct, which the reference does not have.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;

use completion_port::raw::{Attempt, Side};
use libc::{cmsghdr, msghdr, sockaddr, socklen_t};

use crate::abi::Overlapped;
use crate::errors::{code, guarded};
use crate::linux::buffers::{Buffer, checked, message, no_memory, with_parts};
use crate::linux::errno::code_of_errno;
use crate::linux::operations::{CUT, Target, Work, answered};
use crate::linux::port::{Begun, Outcome, Told};
use crate::linux::sockets::{
    attempt, called, is_shut_for_reads, note_datagram, note_read, note_short_address, note_time,
    note_write, past_refusals, refused, room_for_sender,
};
use crate::linux::starting::{Start, start};
use crate::linux::transfers::{
    Address, Parts, count, failed, flags_of, is_too_long, not_received_yet, repeated, status_of,
    status_of_send,
};
use crate::linux::{descriptors, memory};

/// `WSAMSG`.
#[repr(C)]
#[derive(Debug)]
#[allow(clippy::exhaustive_structs, reason = "the layout is the reference's")]
pub struct Message {
    /// The address, and its size or the room for it.
    pub name: *mut sockaddr,
    /// See `name`.
    pub name_size: c_int,
    /// The data.
    pub buffers: *mut Buffer,
    /// How many buffers there are.
    pub count: u32,
    /// The control data, or the room for it.
    pub control: Buffer,
    /// Flags of a received datagram.
    pub flags: u32,
}

/// The flags that a receive reports: truncated data, truncated control data.
const SAID: c_int = libc::MSG_TRUNC | libc::MSG_CTRUNC;

/// A call's arguments, checked.
struct Given {
    descriptor: RawFd,
    /// Not null once it has been checked.
    message: *mut Message,
    count: usize,
}

impl Given {
    /// Fails if the socket is not one for datagrams, or if the message is invalid.
    ///
    /// # Safety
    ///
    /// `message` is null or points to a message.
    unsafe fn new(socket: usize, message: *mut Message) -> Result<Self, u32> {
        let descriptor = RawFd::try_from(socket).map_err(|_| code::WSAENOTSOCK)?;
        let kind = descriptors::kind(descriptor).ok_or(code::WSAENOTSOCK)?;
        if !matches!(kind, libc::SOCK_DGRAM | libc::SOCK_RAW) {
            return Err(code::WSAEOPNOTSUPP);
        }
        if !memory::may_be(message) {
            return Err(code::WSAEFAULT);
        }
        // SAFETY: a shared reference demands a value that lives on and changes only as its type allows.
        // - the caller guarantees it for a non-null one, and lends it to the call.
        let it = unsafe { message.as_ref() }.ok_or(code::WSAEFAULT)?;
        let count = checked(it.buffers, it.count)?;
        if it.control.size > 0 && !memory::may_be(it.control.bytes) {
            return Err(code::WSAEFAULT);
        }
        Ok(Self { descriptor, message, count })
    }
}

/// Where a receive stores addresses and control data. The program lends the memory to the call, or to the operation until it
/// ends.
struct Beside {
    message: *mut Message,
    name: *mut sockaddr,
    room: socklen_t,
    control: Buffer,
}

// SAFETY: a thread other than the one that has made it may use it, though it has pointers.
// - they are null, or point to memory that belongs to the operation until its end, as `cp_receive_message` demands.
unsafe impl Send for Beside {}

impl Beside {
    /// # Safety
    ///
    /// `given` is for a valid message.
    unsafe fn new(given: &Given) -> Result<Self, u32> {
        // SAFETY: as in `Given::new`.
        let it = unsafe { &*given.message };
        // SAFETY: `room_for_sender` demands null or a number.
        // - it is a part of the message.
        let room = unsafe { room_for_sender(given.descriptor, it.name, &raw const it.name_size) }?;
        let name = if room > 0 { it.name } else { std::ptr::null_mut() };
        Ok(Self { message: given.message, name, room, control: it.control })
    }

    /// Sets the addresses in the struct for the system.
    fn put(&self, into: &mut msghdr) {
        into.msg_control = self.control.bytes;
        // The type differs between C libraries.
        into.msg_controllen = self.control.size as _;
    }

    /// Stores what has arrived, and which parts were truncated.
    fn note(&self, come: &msghdr) -> c_int {
        // Without any room, the program did not want control data.
        let wanted = if self.control.size > 0 { SAID } else { libc::MSG_TRUNC };
        let said = come.msg_flags & wanted;
        let size = come.msg_namelen.min(self.room).cast_signed();
        #[allow(clippy::unnecessary_cast, reason = "its type differs between C libraries")]
        let control = count(come.msg_controllen as usize);
        // SAFETY: a reference demands a value that nothing else uses meanwhile.
        // - the program lends the message to the call, or to the operation until its end.
        let message = unsafe { &mut *self.message };
        if !self.name.is_null() {
            message.name_size = size;
        }
        message.control.size = control.min(self.control.size);
        message.flags = said.cast_unsigned();
        said
    }
}

/// A receive with an OVERLAPPED.
struct Receiving {
    parts: Parts,
    beside: Beside,
    flags: c_int,
}

impl Work for Receiving {
    fn is_listed(&self) -> bool {
        false
    }

    fn attempt(&mut self, descriptor: RawFd, outcome: &mut Outcome) -> Attempt {
        let Beside { name, room, .. } = self.beside;
        let mut message = message(self.parts.rest(), name, room);
        self.beside.put(&mut message);
        let flags = self.flags | libc::MSG_DONTWAIT;
        // SAFETY: recvmsg(2) writes to the buffers, the address and the control data.
        // - valid for writes: the program lends them to the operation until its end, as `cp_receive_message` demands.
        let read = repeated(|| unsafe { libc::recvmsg(descriptor, &raw mut message, flags) });
        let Ok(read) = usize::try_from(read) else {
            return not_received_yet(descriptor, outcome);
        };
        // SAFETY: `hand_out` demands buffers that can be written.
        // - as above.
        unsafe { self.parts.hand_out(read) };
        outcome.bytes = count(read);
        let cut = self.beside.note(&message);
        outcome.flags = cut.cast_unsigned();
        if cut != 0 {
            outcome.errno = CUT;
        }
        Attempt::Done
    }

    fn status(&self, target: Target, errno: c_int) -> u32 {
        status_of(target, errno)
    }
}

/// Receives in the calling thread, blocking if the socket does. Returns 0 or -1.
///
/// # Safety
///
/// `given` is for a valid message, and all that it points to is valid. `received` is null or points to a number.
unsafe fn receive(given: &Given, beside: &Beside, flags: c_int, received: *mut u32) -> c_int {
    if received.is_null() {
        return refused(code::WSAEFAULT);
    }
    let Given { descriptor, message: place, count: buffers } = *given;
    // SAFETY: as in `Given::new`.
    let parts = unsafe { &*place }.buffers;
    let mut is_whole = true;
    let read = called(|| {
        if is_shut_for_reads(descriptor) {
            return -1;
        }
        let attempt = attempt(descriptor);
        let receive = |parts: &mut [libc::iovec], size| {
            let mut message = message(parts, beside.name, beside.room);
            beside.put(&mut message);
            // SAFETY: recvmsg(2) writes to the buffers, the address and the control data.
            // - the caller guarantees that they are there.
            let read = unsafe { libc::recvmsg(descriptor, &raw mut message, flags) };
            note_read(attempt, read, size, flags);
            is_whole = read < 0 || beside.note(&message) == 0;
            read
        };
        // SAFETY: `with_parts` demands that many buffers, which can be written.
        // - the caller guarantees it.
        unsafe { with_parts(parts, buffers, true, receive) }.unwrap_or_else(no_memory)
    });
    note_time(descriptor, read < 0, flags, libc::EAGAIN);
    note_datagram(descriptor, read < 0);
    let Ok(read) = u32::try_from(read) else { return -1 };
    // SAFETY: writing through a raw pointer demands that it is valid.
    // - the caller guarantees it, and it is not null.
    unsafe { received.write(read) };
    if is_whole { 0 } else { refused(code::WSAEMSGSIZE) }
}

/// `WSARecvMsg`.
///
/// # Safety
///
/// `message` is null or points to a message, whose pointers are null or valid for their sizes. The message and its memory,
/// and `overlapped` if that is not null, stay valid until the call returns or the operation ends. `received` is null or
/// points to a number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_receive_message(
    socket: usize,
    message: *mut Message,
    received: *mut u32,
    overlapped: *mut c_void,
    routine: *const c_void,
) -> c_int {
    let begin = || {
        // SAFETY: `new` demands null or a message.
        // - the caller guarantees it.
        let given = unsafe { Given::new(socket, message) }?;
        // SAFETY: as in `Given::new`.
        let it = unsafe { &*message };
        // Flags left over from a previous receive do not count.
        let flags = flags_of(it.flags & !SAID.cast_unsigned(), libc::MSG_PEEK)?;
        // SAFETY: `new` demands a message.
        // - it is not null.
        let beside = unsafe { Beside::new(&given) }?;
        if overlapped.is_null() {
            // SAFETY: `receive` demands what this call does.
            return Ok(Err(unsafe { receive(&given, &beside, flags, received) }));
        }
        if !routine.is_null() {
            return Err(code::WSAEOPNOTSUPP);
        }
        // SAFETY: `to_fill` demands that many buffers.
        // - the caller guarantees it.
        let parts = unsafe { Parts::to_fill(it.buffers, given.count) }?;
        if is_shut_for_reads(given.descriptor) {
            return Err(code_of_errno(libc::ESHUTDOWN));
        }
        let how = Start {
            descriptor: given.descriptor,
            overlapped: overlapped.cast::<Overlapped>(),
            side: Side::In,
            tells_flags: true,
            told: Told::bytes(received),
            accept: 0,
        };
        // SAFETY: `start` demands an OVERLAPPED that stays valid until the operation ends.
        // - the caller guarantees it.
        unsafe { start(how, Receiving { parts, beside, flags }) }.map(Ok)
    };
    guarded(-1, || returned(begin()))
}

/// The return value of a call that has started an operation, or has waited.
fn returned(begun: Result<Result<Begun, c_int>, u32>) -> c_int {
    match begun {
        Ok(Ok(begun)) => answered(Ok(begun)),
        Ok(Err(done)) => done,
        Err(code) => answered(Err(code)),
    }
}

/// Converts a message's control data to the system's form.
///
/// # Safety
///
/// `control` has that many bytes.
unsafe fn control_of(control: Buffer) -> Box<[u8]> {
    /// Offsets of the source address in the system's struct and in the reference's. Both have four bytes.
    const SOURCE: usize = 4;
    const ADDRESS: usize = 8;
    const HEAD: usize = size_of::<cmsghdr>();
    if control.size == 0 {
        return Box::default();
    }
    // SAFETY: `from_raw_parts` demands that many bytes that nothing writes to meanwhile.
    // - the caller guarantees it.
    let given =
        unsafe { std::slice::from_raw_parts(control.bytes.cast::<u8>(), control.size as usize) };
    let mut all: Box<[u8]> = given.into();
    let mut begin = 0;
    while let Some(head) = all.get(begin..begin + HEAD) {
        // SAFETY: `read_unaligned` demands a value there.
        // - the slice has that many bytes, and the struct has only numbers.
        let head = unsafe { head.as_ptr().cast::<cmsghdr>().read_unaligned() };
        #[allow(clippy::unnecessary_cast, reason = "its type differs between C libraries")]
        let size = head.cmsg_len as usize;
        let Some(data) = begin.checked_add(size).and_then(|end| all.get_mut(begin + HEAD..end))
        else {
            // The system rejects it.
            break;
        };
        if (head.cmsg_level, head.cmsg_type) == (libc::IPPROTO_IP, libc::IP_PKTINFO)
            && data.len() >= ADDRESS + 4
            && data[ADDRESS..ADDRESS + 4] != [0; 4]
        {
            data.copy_within(ADDRESS..ADDRESS + 4, SOURCE);
        }
        begin += size.next_multiple_of(size_of::<usize>());
    }
    all
}

/// A send with an OVERLAPPED.
struct Sending {
    parts: Parts,
    beside: Box<Outgoing>,
    flags: c_int,
}

/// The address and control data of a send.
struct Outgoing {
    /// The destination, unless it is the socket's peer.
    address: Option<Address>,
    control: Box<[u8]>,
}

impl Outgoing {
    /// # Safety
    ///
    /// `message` has an address of the stated size, and as much control data as stated.
    unsafe fn new(message: &Message) -> Result<Self, u32> {
        let address = if message.name.is_null() {
            None
        } else {
            // SAFETY: `new` demands that many bytes.
            // - the caller guarantees it.
            Some(unsafe { Address::new(message.name, message.name_size) }?)
        };
        // SAFETY: `control_of` demands that many bytes.
        // - the caller guarantees it.
        Ok(Self { address, control: unsafe { control_of(message.control) } })
    }

    /// Sends one datagram.
    ///
    /// # Safety
    ///
    /// The parts can be read.
    unsafe fn send(&mut self, descriptor: RawFd, parts: &mut [libc::iovec], flags: c_int) -> isize {
        let (address, size) = match &mut self.address {
            Some(address) => ((&raw mut address.bytes).cast(), address.size),
            None => (std::ptr::null_mut(), 0),
        };
        let mut message = message(parts, address, size);
        if !self.control.is_empty() {
            message.msg_control = self.control.as_mut_ptr().cast();
            // The type differs between C libraries.
            message.msg_controllen = self.control.len() as _;
        }
        // SAFETY: sendmsg(2) reads the buffers, the address and the control data.
        // - the caller guarantees it for the buffers, and this value owns the rest.
        unsafe { libc::sendmsg(descriptor, &raw const message, flags | libc::MSG_NOSIGNAL) }
    }
}

impl Work for Sending {
    fn is_listed(&self) -> bool {
        false
    }

    fn fails_by_packet(&self, outcome: Outcome) -> bool {
        is_too_long(outcome)
    }

    fn attempt(&mut self, descriptor: RawFd, outcome: &mut Outcome) -> Attempt {
        let Self { parts, beside, flags } = self;
        let flags = *flags | libc::MSG_DONTWAIT;
        // SAFETY: `send` demands parts that can be read.
        // - the program lends them to the operation until its end, as `cp_send_message` demands.
        let mut send = || unsafe { beside.send(descriptor, parts.rest(), flags) };
        let sent = repeated(|| past_refusals(descriptor, &mut send));
        let Ok(sent) = usize::try_from(sent) else { return failed(outcome) };
        outcome.bytes = count(sent);
        Attempt::Done
    }

    fn status(&self, target: Target, errno: c_int) -> u32 {
        status_of_send(target, errno, self.beside.address.as_ref())
    }
}

/// Sends in the calling thread, blocking if the socket does. Returns 0 or -1.
///
/// # Safety
///
/// `given` is for a valid message, and all that it points to is valid. `sent` is null or points to a number.
unsafe fn send(given: &Given, beside: &mut Outgoing, flags: c_int, sent: *mut u32) -> c_int {
    if sent.is_null() {
        return refused(code::WSAEFAULT);
    }
    let Given { descriptor, message, count: buffers } = *given;
    // SAFETY: as in `Given::new`.
    let parts = unsafe { &*message }.buffers;
    let size = beside.address.as_ref().map(|address| address.size);
    let done = called(|| {
        let attempt = attempt(descriptor);
        let send = |parts: &mut [libc::iovec], _| {
            // SAFETY: `send` demands parts that can be read.
            // - the caller guarantees it.
            let send = || unsafe { beside.send(descriptor, parts, flags) };
            let done = past_refusals(descriptor, send);
            note_write(attempt, descriptor, done);
            done
        };
        // SAFETY: `with_parts` demands that many buffers, which can be read.
        // - the caller guarantees it.
        unsafe { with_parts(parts, buffers, false, send) }.unwrap_or_else(no_memory)
    });
    note_time(descriptor, done < 0, flags, libc::EAGAIN);
    note_datagram(descriptor, done < 0);
    note_short_address(done < 0 && size.is_some(), descriptor, size.unwrap_or(0));
    let Ok(done) = u32::try_from(done) else { return -1 };
    // SAFETY: writing through a raw pointer demands that it is valid.
    // - the caller guarantees it, and it is not null.
    unsafe { sent.write(done) };
    0
}

/// `WSASendMsg`.
///
/// # Safety
///
/// As for [`cp_receive_message`].
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_send_message(
    socket: usize,
    message: *mut Message,
    flags: u32,
    sent: *mut u32,
    overlapped: *mut c_void,
    routine: *const c_void,
) -> c_int {
    let begin = || {
        // SAFETY: `new` demands null or a message.
        // - the caller guarantees it.
        let given = unsafe { Given::new(socket, message) }?;
        // SAFETY: as in `Given::new`.
        let it = unsafe { &*message };
        if flags & crate::linux::buffers::PARTIAL != 0 {
            return Err(code::WSAEOPNOTSUPP);
        }
        let flags = flags_of(flags, libc::MSG_DONTROUTE)?;
        // SAFETY: `new` demands what this call does.
        let mut beside = unsafe { Outgoing::new(it) }?;
        if overlapped.is_null() {
            // SAFETY: `send` demands what this call does.
            return Ok(Err(unsafe { send(&given, &mut beside, flags, sent) }));
        }
        if !routine.is_null() {
            return Err(code::WSAEOPNOTSUPP);
        }
        // SAFETY: `to_send` demands that many buffers, which can be read.
        // - the caller guarantees it.
        let parts = unsafe { Parts::to_send(it.buffers, given.count) }?;
        let how = Start {
            descriptor: given.descriptor,
            overlapped: overlapped.cast::<Overlapped>(),
            side: Side::Out,
            tells_flags: false,
            told: Told::bytes(sent),
            accept: 0,
        };
        // SAFETY: `start` demands an OVERLAPPED that stays valid until the operation ends.
        // - the caller guarantees it.
        unsafe { start(how, Sending { parts, beside: Box::new(beside), flags }) }.map(Ok)
    };
    guarded(-1, || returned(begin()))
}
