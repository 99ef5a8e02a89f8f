//! Sending files over sockets: `TransmitFile` and `TransmitPackets`.
//!
//! A list has elements, which are memory or parts of files. They are sent one after the other as
//! the socket accepts them: memory by sendmsg(2), files by sendfile(2), which copies nothing to the
//! program. Such an operation belongs to its socket and takes turns with other sends.
//!
//! If necessary, sendfile(2) waits for a disk in the thread that performs the operation. So a few
//! bytes of each part are checked first for being in the page cache. If they are not, or if the
//! file system does not report it, the [file engine](crate::linux::fetches) reads the part, which
//! is then sent from memory. Meanwhile other packets of the port are processed, however long the
//! disk takes.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use completion_port::raw::{Attempt, ReadNow, Side};
use libc::iovec;

use crate::abi::{Handle, Overlapped};
use crate::errors::{code, guarded, set_last};
use crate::linux::connections::{is_done, option};
use crate::linux::descriptors::{self, is_connected};
use crate::linux::disconnects::Disconnecting;
use crate::linux::errno::{Signals, code_of_errno};
use crate::linux::fetches::Part;
use crate::linux::file::{File, errno, seek, stat, without_signal};
use crate::linux::file_operations::{Fetch, tasks};
use crate::linux::operations::{Target, Wake, Work, answered};
use crate::linux::port::{Begun, Outcome, Told};
use crate::linux::starting::{Start, start};
use crate::linux::transfers::{Parts, Sending, count, failed, status_of};
use crate::linux::waiting_calls::{WaitingCall, until_ready};
use crate::linux::{memory, numbers, object, operations, status};

/// `TF_DISCONNECT`, `TF_REUSE_SOCKET`, and flags without effect here, which distribute work among
/// the reference's threads.
const DISCONNECT: u32 = 0x1;
const REUSE: u32 = 0x2;
const KNOWN: u32 = DISCONNECT | REUSE | 0x4 | 0x10 | 0x20;

/// The reference's maximum for one operation.
const MOST: u64 = 0x7FFF_FFFE;

/// Number of bytes of a file sent by one call, or read together when they are not in the cache.
const PART: u64 = 256 << 10;

/// One byte in this many is checked for being in the cache.
const PROBED: usize = 32 << 10;

/// Instead of a system error: the file has ended before all requested bytes were sent.
const ENDED: c_int = -2;

/// An element of the list.
enum Element {
    Memory(Sending),
    File(Extent),
}

/// Bytes of a file.
struct Extent {
    file: Arc<File>,
    offset: i64,
    left: u64,
    /// The program has given their number.
    is_counted: bool,
    /// When the list was created, the file had bytes there.
    has_bytes: bool,
    /// Some of them have been sent.
    has_sent: bool,
    /// A part that the file engine reads, and one that it has read.
    fetch: Option<Fetch>,
    part: Option<Part>,
}

impl Extent {
    /// Whether that many bytes are in the cache, judging by some of them.
    fn is_cached(&self, size: u64) -> bool {
        let Ok(tasks) = tasks() else { return false };
        let is_there = |distance: u64| {
            let mut byte = [MaybeUninit::uninit()];
            let place = self.offset.cast_unsigned().saturating_add(distance);
            let (_, now) = tasks.read_now(&*self.file, place, &mut byte);
            if now == ReadNow::Never {
                self.file.reads_now.store(false, Relaxed);
            }
            matches!(now, ReadNow::Done)
        };
        self.file.reads_now.load(Relaxed)
            && is_there(size - 1)
            && (0..size).step_by(PROBED).all(is_there)
    }

    /// That many bytes have been sent.
    fn note(&mut self, sent: usize, outcome: &mut Outcome) {
        self.left -= sent as u64;
        self.has_sent = true;
        outcome.bytes = outcome.bytes.saturating_add(count(sent));
    }

    /// The file has no more bytes.
    fn end(&mut self, outcome: &mut Outcome) -> Attempt {
        self.left = 0;
        if self.is_counted {
            outcome.errno = ENDED;
        }
        Attempt::Done
    }

    /// Checks the file engine's read. Returns its result, unless something can be sent.
    fn look(&mut self, outcome: &mut Outcome) -> Option<Attempt> {
        let fetch = self.fetch.as_ref()?;
        let Some(part) = fetch.take() else { return Some(Attempt::OutOfResources) };
        self.fetch = None;
        match part {
            Ok(part) if part.from(self.offset).1 == 0 => return Some(self.end(outcome)),
            Ok(part) => self.part = Some(part),
            Err(errno) => {
                outcome.errno = errno;
                return Some(Attempt::Done);
            }
        }
        None
    }

    /// Sends the data that the file engine has read; `None` once it is sent.
    fn send_fetched(&mut self, descriptor: RawFd, outcome: &mut Outcome) -> Option<Attempt> {
        let mut signals = Signals::default();
        while let Some(part) = &self.part {
            let (place, size) = part.from(self.offset);
            let size = size.min(usize::try_from(self.left).unwrap_or(usize::MAX));
            if size == 0 {
                self.part = None;
                break;
            }
            let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
            // SAFETY: send(2) reads that many bytes at the pointer.
            // - valid for reads: the file engine has read them, and the part is not dropped
            //   meanwhile.
            let sent = unsafe { libc::send(descriptor, place, size, flags) };
            match usize::try_from(sent) {
                Ok(sent) => {
                    self.offset += i64::try_from(sent).unwrap_or(0);
                    self.note(sent, outcome);
                }
                Err(_) if signals.ended(errno()) => {}
                Err(_) => return Some(failed(outcome)),
            }
        }
        None
    }

    /// Sends what the socket, which is non-blocking, accepts. Without a `wake`, the thread itself
    /// waits for the disk.
    fn send(&mut self, descriptor: RawFd, outcome: &mut Outcome, wake: Option<&Wake>) -> Attempt {
        let mut signals = Signals::default();
        while self.left > 0 {
            if let Some(attempt) = self.send_fetched(descriptor, outcome) {
                return attempt;
            }
            let size = self.left.min(PART);
            let wanted = usize::try_from(size).unwrap_or(usize::MAX);
            if size == 0 {
                break;
            }
            if let Some(wake) = wake
                && !self.is_cached(size)
            {
                let wake = wake.clone();
                match Fetch::begin(&self.file, self.offset, wanted, move || wake.wake()) {
                    Some(fetch) => self.fetch = Some(fetch),
                    // A shortage is temporary.
                    None => return Attempt::OutOfResources,
                }
                match self.look(outcome) {
                    Some(attempt) => return attempt,
                    None => continue,
                }
            }
            // SAFETY: sendfile(2) reads and writes the offset at the pointer.
            // - valid: it is this value's own.
            let sent = unsafe {
                libc::sendfile(descriptor, self.file.descriptor(), &raw mut self.offset, wanted)
            };
            match usize::try_from(sent) {
                Ok(0) => return self.end(outcome),
                Ok(sent) => self.note(sent, outcome),
                Err(_) if signals.ended(errno()) => {}
                Err(_) => return failed(outcome),
            }
        }
        Attempt::Done
    }
}

/// Calls `send` while the socket is non-blocking: sendfile(2) has no flag for that.
fn nonblocking<R>(descriptor: RawFd, send: impl FnOnce() -> R) -> R {
    match numbers::entry(descriptor) {
        Some(number) => number.while_nonblocking(descriptor, send),
        None => send(),
    }
}

/// Makes the system send data that was announced to be followed by more. A stream corked by the
/// program stays corked.
fn push(descriptor: RawFd) {
    let (level, name) = (libc::IPPROTO_TCP, libc::TCP_CORK);
    let corked = option(descriptor, (level, name, 4)).map(|(value, _)| value[..4] != [0; 4]);
    if corked != Some(false) {
        // Or it is not a TCP stream, and holds nothing back.
        return;
    }
    let off: c_int = 0;
    // SAFETY: setsockopt(2) reads as many bytes at the pointer as its last argument says.
    // - valid: it is a local of that size.
    unsafe { libc::setsockopt(descriptor, level, name, (&raw const off).cast(), 4) };
}

/// The work of a transmission.
struct Transmitting {
    elements: VecDeque<Element>,
    ending: Option<Disconnecting>,
    /// Retries it after a wait for the disk; `None` if the calling thread waits for everything
    /// anyway.
    wake: Option<Wake>,
}

impl Work for Transmitting {
    fn prepare(&mut self, wake: impl FnOnce() -> Wake) {
        self.wake = Some(wake());
    }

    fn attempt(&mut self, descriptor: RawFd, outcome: &mut Outcome) -> Attempt {
        let wake = self.wake.as_ref();
        while let Some(element) = self.elements.front_mut() {
            let attempt = match element {
                Element::Memory(sending) => sending.attempt(descriptor, outcome),
                Element::File(extent) => {
                    let attempt = extent.look(outcome).unwrap_or_else(|| {
                        without_signal(|| {
                            nonblocking(descriptor, || extent.send(descriptor, outcome, wake))
                        })
                    });
                    if attempt == Attempt::Done && !extent.has_sent {
                        push(descriptor);
                    }
                    attempt
                }
            };
            if attempt != Attempt::Done || outcome.errno != 0 {
                return attempt;
            }
            self.elements.pop_front();
        }
        match &mut self.ending {
            Some(ending) => ending.attempt(descriptor, outcome),
            None => Attempt::Done,
        }
    }

    fn finish(&mut self, target: Target, outcome: Outcome) -> Outcome {
        match &mut self.ending {
            Some(ending) => ending.finish(target, outcome),
            None => outcome,
        }
    }

    fn succeeds_by_packet(&self) -> bool {
        true
    }

    /// If the socket fails before the first byte, the call itself returns the failure.
    fn fails_by_packet(&self, outcome: Outcome) -> bool {
        outcome.bytes > 0 || matches!(outcome.errno, ENDED | libc::EIO)
    }

    fn status(&self, target: Target, errno: c_int) -> u32 {
        match errno {
            ENDED => status::END_OF_FILE,
            libc::EIO => status::of_file(errno),
            errno => status_of(target, errno),
        }
    }
}

/// Elements being collected from a program's arguments.
struct List {
    elements: VecDeque<Element>,
    size: u64,
}

impl List {
    fn new() -> Self {
        Self { elements: VecDeque::new(), size: 0 }
    }

    fn add_memory(&mut self, place: *mut c_void, size: u32) -> Result<(), u32> {
        if size == 0 {
            return Ok(());
        }
        if place.is_null() {
            return Err(code::WSAEFAULT);
        }
        self.size += u64::from(size);
        let parts = Parts::One(iovec { iov_base: place, iov_len: size as usize });
        self.elements.push_back(Element::Memory(Sending::plain(parts)));
        Ok(())
    }

    /// Adds that many bytes of a file, or all of it, from an offset or from its position.
    fn add_file(&mut self, file: Handle, offset: Option<i64>, size: u32) -> Result<(), u32> {
        let file = object::file(file)?;
        if !file.terms.reads {
            return Err(code::ACCESS_DENIED);
        }
        let found = stat(file.descriptor()).filter(|_| file.is_plain());
        let end = found.ok_or(code::INVALID_PARAMETER)?.st_size;
        let place = || seek(file.descriptor(), 0, libc::SEEK_CUR);
        let offset = offset.or_else(place).filter(|at| *at >= 0).ok_or(code::INVALID_PARAMETER)?;
        let left = match size {
            0 => u64::try_from(end.saturating_sub(offset)).unwrap_or(0),
            size => u64::from(size),
        };
        if left == 0 {
            return Ok(());
        }
        self.size = self.size.saturating_add(left);
        let is_counted = size > 0;
        let has_bytes = offset < end;
        let extent = Extent {
            file,
            offset,
            left,
            is_counted,
            has_bytes,
            has_sent: false,
            fetch: None,
            part: None,
        };
        self.elements.push_back(Element::File(extent));
        Ok(())
    }

    /// Marks each element that is directly followed by more bytes.
    fn seal(&mut self) {
        let has_bytes = |element: &Element| match element {
            Element::Memory(_) => true,
            Element::File(extent) => extent.has_bytes,
        };
        for place in 1..self.elements.len() {
            let (before, behind) = self.elements.make_contiguous().split_at_mut(place);
            if let (Some(Element::Memory(sending)), Some(next)) =
                (before.last_mut(), behind.first())
                && has_bytes(next)
            {
                sending.announce_more();
            }
        }
    }
}

/// Waits until the socket accepts data, for at most its send timeout. Returns the code of a
/// timeout.
fn until_writable(call: &mut WaitingCall) -> Result<(), u32> {
    let time = (libc::SOL_SOCKET, libc::SO_SNDTIMEO, 16);
    let limit = option(call.descriptor, time).map_or(-1, |(it, _)| {
        let word = |at: usize| i64::from_ne_bytes(it[at..at + 8].try_into().unwrap_or_default());
        let limit = word(0).saturating_mul(1000).saturating_add((word(8) + 999) / 1000);
        if limit == 0 { -1 } else { c_int::try_from(limit).unwrap_or(c_int::MAX) }
    });
    if until_ready(call, libc::POLLOUT, limit)? { Ok(()) } else { Err(code::WSAETIMEDOUT) }
}

/// Sends everything in the calling thread. Fails if a thread closes the socket meanwhile.
#[allow(clippy::disallowed_methods, reason = "available memory is not an event")]
fn perform(descriptor: RawFd, mut work: Transmitting) -> Result<Begun, u32> {
    let mut call = WaitingCall::new(descriptor)?;
    let mut outcome = Outcome::default();
    loop {
        match call.attempt(|| work.attempt(descriptor, &mut outcome))? {
            Attempt::Blocked | Attempt::Idle => until_writable(&mut call)?,
            Attempt::OutOfResources => std::thread::sleep(std::time::Duration::from_millis(1)),
            Attempt::Done | Attempt::Drained => break,
        }
    }
    let WaitingCall { number, epoch, .. } = call;
    let target = Target { descriptor, number, epoch };
    let outcome = work.finish(target, outcome);
    match outcome.errno {
        0 => Ok(Begun::Done),
        errno => Ok(operations::failed(work.status(target, errno), errno)),
    }
}

/// The common part of both calls, once they have the list.
///
/// # Safety
///
/// As for [`cp_transmit_file`].
unsafe fn transmit(
    descriptor: RawFd,
    mut list: List,
    flags: u32,
    overlapped: *mut Overlapped,
) -> Result<Begun, u32> {
    let has_ending = flags & DISCONNECT != 0;
    let is_reused = flags & REUSE != 0;
    if flags & !KNOWN != 0 || (is_reused && !has_ending) || list.size > MOST {
        return Err(code::WSAEINVAL);
    }
    list.seal();
    let ending =
        has_ending.then(|| Disconnecting::new(descriptor, is_reused, overlapped.cast::<c_void>()));
    let work = Transmitting { elements: list.elements, ending, wake: None };
    if overlapped.is_null() {
        return perform(descriptor, work);
    }
    let told = Told::NOTHING;
    let (side, tells_flags) = (Side::Out, false);
    let how = Start { descriptor, overlapped, side, tells_flags, told, accept: 0 };
    // SAFETY: `start` demands an OVERLAPPED that stays valid until the operation ends.
    // - the caller guarantees it, also for the memory.
    unsafe { start(how, work) }
}

/// The socket to send over.
fn stream(socket: usize) -> Result<RawFd, u32> {
    let descriptor = RawFd::try_from(socket).map_err(|_| code::WSAENOTSOCK)?;
    let kind = descriptors::kind(descriptor).ok_or(code::WSAENOTSOCK)?;
    if kind != libc::SOCK_STREAM {
        return Err(code::WSAEOPNOTSUPP);
    }
    if is_connected(descriptor) { Ok(descriptor) } else { Err(code_of_errno(libc::ENOTCONN)) }
}

/// The return value: TRUE, or FALSE and the last error, which is Win32's for file errors.
fn told(begun: Result<Begun, u32>) -> c_int {
    if let Ok(Begun::Failed(ended)) = begun
        && (ended == status::END_OF_FILE || ended == status::of_file(libc::EIO))
    {
        set_last(status::code_in_win32(ended));
        return 0;
    }
    is_done(answered(begun))
}

/// `TRANSMIT_FILE_BUFFERS`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "the layout is the reference's")]
pub struct Beside {
    /// Sent first.
    pub head: *mut c_void,
    /// Its size.
    pub head_size: u32,
    /// Sent last.
    pub tail: *mut c_void,
    /// Its size.
    pub tail_size: u32,
}

/// `TransmitFile`.
///
/// # Safety
///
/// `beside` is null or points to the data before and after the file. That memory, and `overlapped`
/// if it is not null, stay valid until the operation ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_transmit_file(
    socket: usize,
    file: Handle,
    size: u32,
    _size_of_sends: u32,
    overlapped: *mut c_void,
    beside: *const Beside,
    flags: u32,
) -> c_int {
    let begin = || {
        let descriptor = stream(socket)?;
        let overlapped = overlapped.cast::<Overlapped>();
        if !overlapped.is_null() && !memory::may_be(overlapped) {
            return Err(code::WSAEFAULT);
        }
        // SAFETY: a shared reference demands a value that lives on and changes only as its type
        // allows.
        // - the caller guarantees it for a non-null pointer; what an operation writes is atomic.
        let offset = unsafe { overlapped.as_ref() }.map(|it| {
            let (low, high) = (it.offset.load(Relaxed), it.offset_high.load(Relaxed));
            (u64::from(high) << 32 | u64::from(low)).cast_signed()
        });
        // SAFETY: reading through a raw pointer demands that it is valid.
        // - the caller guarantees it for a non-null pointer.
        let beside = (!beside.is_null()).then(|| unsafe { beside.read() });
        let mut list = List::new();
        if let Some(Beside { head, head_size, .. }) = beside {
            list.add_memory(head, head_size)?;
        }
        if !file.is_null() {
            list.add_file(file, offset, size)?;
        }
        if let Some(Beside { tail, tail_size, .. }) = beside {
            list.add_memory(tail, tail_size)?;
        }
        // SAFETY: `transmit` demands what this call does.
        unsafe { transmit(descriptor, list, flags, overlapped) }
    };
    guarded(0, || told(begin()))
}

/// `TRANSMIT_PACKETS_ELEMENT`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "the layout is the reference's")]
pub struct Packet {
    /// 1: memory, 2: a file.
    pub flags: u32,
    /// Number of bytes; 0 for all bytes of a file.
    pub size: u32,
    /// The memory, or the offset in the file; -1 for its position.
    pub place: u64,
    /// The file.
    pub file: Handle,
}

/// `TransmitPackets`.
///
/// # Safety
///
/// `packets` points to `count` elements. Their memory, and `overlapped` if it is not null, stay
/// valid until the operation ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cp_transmit_packets(
    socket: usize,
    packets: *const Packet,
    count: u32,
    _size_of_sends: u32,
    overlapped: *mut c_void,
    flags: u32,
) -> c_int {
    let begin = || {
        let descriptor = stream(socket)?;
        if packets.is_null() && count > 0 {
            return Err(code::WSAEFAULT);
        }
        let mut list = List::new();
        for number in 0..count as usize {
            // SAFETY: `add` demands that the result is in the same allocation.
            // - the caller guarantees that there are that many.
            let packet = unsafe { packets.add(number) };
            // SAFETY: reading through a raw pointer demands that it is valid.
            // - as above.
            let Packet { flags, size, place, file } = unsafe { packet.read() };
            match flags & 0x3 {
                1 => {
                    let place = usize::try_from(place).map_err(|_| code::WSAEFAULT)?;
                    list.add_memory(std::ptr::with_exposed_provenance_mut(place), size)?;
                }
                2 => {
                    let offset = (place != u64::MAX).then(|| place.cast_signed());
                    list.add_file(file, offset, size)?;
                }
                _ => return Err(code::WSAEINVAL),
            }
        }
        // SAFETY: `transmit` demands what this call does.
        unsafe { transmit(descriptor, list, flags, overlapped.cast()) }
    };
    guarded(0, || told(begin()))
}
