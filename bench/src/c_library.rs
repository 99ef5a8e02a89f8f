//! The C library as a C program has it: linked dynamically, called by its exported names.

use std::ffi::{CString, c_char, c_int, c_void};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, RawFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// `struct cp_registration`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Change {
    socket: usize,
    key: usize,
    filter: u16,
    operation: u8,
    trigger: u8,
    result: u32,
}

/// `struct cp_entry`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    pub(crate) key: usize,
    overlapped: *mut c_void,
    /// 0 if the operation has ended well.
    internal: usize,
    /// Socket events, or the number of bytes that an operation has transferred.
    pub(crate) events: u32,
}

impl Packet {
    /// Room for one.
    pub(crate) const NONE: Self =
        Self { key: 0, overlapped: std::ptr::null_mut(), internal: 0, events: 0 };
}

/// What to ask for.
pub(crate) const IN: u16 = 1;
pub(crate) const OUT: u16 = 2;
const ENABLE: u8 = 1;
const ONE_SHOT: u8 = 1;
const LEVEL: u8 = 4;

#[link(name = "completion_port", kind = "dylib")]
unsafe extern "C" {
    fn cp_create_io_completion_port(
        file: *mut c_void,
        existing: *mut c_void,
        key: usize,
        concurrency: u32,
    ) -> *mut c_void;
    safe fn cp_close_handle(handle: *mut c_void) -> i32;
    safe fn cp_last_error() -> u32;
    safe fn cp_close_socket(descriptor: i32) -> i32;
    safe fn cp_adopt(descriptor: i32);
    safe fn cp_socket(family: c_int, kind: c_int, protocol: c_int) -> c_int;
    safe fn cp_post(port: *mut c_void, bytes: u32, key: usize, overlapped: *mut c_void) -> c_int;
    fn cp_start_receive(
        descriptor: c_int,
        buffers: *const Part,
        count: u32,
        received: *mut u32,
        flags: *mut u32,
        address: *mut c_void,
        address_size: *mut c_int,
        overlapped: *mut c_void,
    ) -> c_int;
    fn cp_start_send(
        descriptor: c_int,
        buffers: *const Part,
        count: u32,
        sent: *mut u32,
        flags: u32,
        address: *const c_void,
        address_size: c_int,
        overlapped: *mut c_void,
    ) -> c_int;
    fn cp_accept_ex(
        listener: usize,
        accept: usize,
        place: *mut c_void,
        data: u32,
        local: u32,
        remote: u32,
        received: *mut u32,
        overlapped: *mut c_void,
    ) -> c_int;
    fn cp_process_notifications(
        port: *mut c_void,
        count: u32,
        changes: *mut Change,
        milliseconds: u32,
        room: u32,
        packets: *mut Packet,
        received: *mut u32,
    ) -> u32;
    fn cp_accept(descriptor: i32, address: *mut c_void, size: *mut u32) -> i32;
    fn cp_recvfrom(
        descriptor: i32,
        buffer: *mut c_void,
        size: usize,
        flags: i32,
        address: *mut c_void,
        address_size: *mut u32,
    ) -> isize;
    fn cp_sendto(
        descriptor: i32,
        buffer: *const c_void,
        size: usize,
        flags: i32,
        address: *const c_void,
        address_size: u32,
    ) -> isize;
    fn cp_open_file(
        name: *const c_char,
        access: u32,
        share: u32,
        inherited: i32,
        disposition: u32,
        flags: u32,
    ) -> *mut c_void;
    fn cp_read_file(
        file: *mut c_void,
        place: *mut c_void,
        count: u32,
        read: *mut u32,
        overlapped: *mut c_void,
    ) -> i32;
    safe fn cp_set_completion_modes(file: *mut c_void, modes: u8) -> i32;
    fn cp_dequeue_many(
        port: *mut c_void,
        packets: *mut Packet,
        room: u32,
        removed: *mut u32,
        milliseconds: u32,
        alertable: i32,
    ) -> i32;
    fn cp_recv(descriptor: i32, buffer: *mut c_void, size: usize, flags: i32) -> isize;
    fn cp_send(descriptor: i32, buffer: *const c_void, size: usize, flags: i32) -> isize;
}

fn failed(call: &str, code: u32) -> io::Error {
    io::Error::other(format!("{call}: code {code}"))
}

/// A port, closed when it is dropped.
#[derive(Debug)]
pub(crate) struct Port(*mut c_void);

// SAFETY: a handle is a number, which the library checks.
// - every function may be called from any thread.
unsafe impl Send for Port {}
// SAFETY: as above.
unsafe impl Sync for Port {}

impl Port {
    /// One with as many threads running as there are processors.
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: the call demands nothing of memory: both handles are none.
        let port = unsafe {
            cp_create_io_completion_port(
                std::ptr::without_provenance_mut(usize::MAX),
                std::ptr::null_mut(),
                0,
                0,
            )
        };
        if port.is_null() {
            return Err(failed("cp_create_io_completion_port", cp_last_error()));
        }
        Ok(Self(port))
    }

    /// Applies changes.
    pub(crate) fn apply(&self, changes: &mut [Change]) -> io::Result<()> {
        self.call(changes, 0, &mut []).map(drop)
    }

    /// Applies changes, and waits for packets; how many.
    pub(crate) fn process(
        &self,
        changes: &mut [Change],
        packets: &mut [Packet],
    ) -> io::Result<usize> {
        self.call(changes, u32::MAX, packets)
    }

    fn call(
        &self,
        changes: &mut [Change],
        milliseconds: u32,
        packets: &mut [Packet],
    ) -> io::Result<usize> {
        let mut received = 0;
        let count = |length: usize| u32::try_from(length).unwrap_or(u32::MAX);
        let first_change =
            if changes.is_empty() { std::ptr::null_mut() } else { changes.as_mut_ptr() };
        let (first_packet, how_many) = if packets.is_empty() {
            (std::ptr::null_mut(), std::ptr::null_mut())
        } else {
            (packets.as_mut_ptr(), &raw mut received)
        };
        // SAFETY: the call demands that many changes, room for that many packets, and for their
        // number.
        // - valid: these are slices and a local, borrowed over the call; where there are none,
        //   null.
        let code = unsafe {
            cp_process_notifications(
                self.0,
                count(changes.len()),
                first_change,
                milliseconds,
                count(packets.len()),
                first_packet,
                how_many,
            )
        };
        if code != 0 {
            return Err(failed("cp_process_notifications", code));
        }
        match changes.iter().find(|change| change.result != 0) {
            Some(change) => Err(failed("a registration", change.result)),
            None => Ok(received as usize),
        }
    }
}

impl Port {
    /// Waits for packets; how many.
    pub(crate) fn dequeue(&self, packets: &mut [Packet]) -> io::Result<usize> {
        let (room, mut removed) = (u32::try_from(packets.len()).unwrap_or(u32::MAX), 0);
        // SAFETY: the call demands room for that many packets, and for their number.
        // - valid: these are a slice and a local, borrowed over the call.
        let done = unsafe {
            cp_dequeue_many(self.0, packets.as_mut_ptr(), room, &raw mut removed, u32::MAX, 0)
        };
        match done {
            0 => Err(failed("cp_dequeue_many", cp_last_error())),
            _ => Ok(removed as usize),
        }
    }
}

impl Port {
    /// Queues the packet of an operation that has ended immediately, for any thread.
    pub(crate) fn post(&self, bytes: u32, overlapped: *mut Overlapped) -> io::Result<()> {
        match cp_post(self.0, bytes, 0, overlapped.cast()) {
            0 => Err(failed("cp_post", cp_last_error())),
            _ => Ok(()),
        }
    }

    /// Associates the operations of a socket with this port; `tells_all` if operations that end
    /// immediately also make packets.
    pub(crate) fn associate(&self, socket: &Socket, tells_all: bool) -> io::Result<()> {
        let file = std::ptr::without_provenance_mut(usize::try_from(socket.0).unwrap_or(0));
        self.associate_handle(file, tells_all)
    }

    fn associate_handle(&self, file: *mut c_void, tells_all: bool) -> io::Result<()> {
        const SKIP_ON_SUCCESS: u8 = 1;
        // SAFETY: the call demands nothing of memory.
        let associated = unsafe { cp_create_io_completion_port(file, self.0, 0, 0) };
        if associated.is_null()
            || (!tells_all && cp_set_completion_modes(file, SKIP_ON_SUCCESS) == 0)
        {
            return Err(failed("an association", cp_last_error()));
        }
        Ok(())
    }
}

impl Packet {
    /// The address of the OVERLAPPED of its operation.
    pub(crate) fn operation(&self) -> usize {
        self.overlapped.addr()
    }

    /// How many bytes its operation has transferred; `None` if that has failed.
    pub(crate) fn transferred(&self) -> Option<u32> {
        (self.internal == 0).then_some(self.events)
    }
}

/// The code of an operation that is in progress when its call returns.
const GOES_ON: u32 = 997;

/// An `OVERLAPPED`, which nothing here looks into.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Overlapped {
    status: usize,
    bytes: usize,
    offset: u64,
    event: usize,
}

/// A file opened for overlapped operations, closed when it is dropped.
#[derive(Debug)]
pub(crate) struct File(*mut c_void);

impl File {
    /// Opens it for reading, cached or not, with its packets on `port`; operations that end
    /// immediately make packets or not.
    pub(crate) fn open(
        path: &Path,
        is_direct: bool,
        port: &Port,
        tells_all: bool,
    ) -> io::Result<Self> {
        const READ: u32 = 0x8000_0000;
        const SHARED: u32 = 7;
        const OPEN_EXISTING: u32 = 3;
        const OVERLAPPED: u32 = 0x4000_0000;
        const NO_BUFFERING: u32 = 0x2000_0000;
        let name = CString::new(path.as_os_str().as_bytes())?;
        let flags = OVERLAPPED | if is_direct { NO_BUFFERING } else { 0 };
        // SAFETY: the call demands text that ends with a zero.
        // - it is such, borrowed over the call.
        let file = unsafe { cp_open_file(name.as_ptr(), READ, SHARED, 0, OPEN_EXISTING, flags) };
        if file.addr() == usize::MAX {
            return Err(failed("cp_open_file", cp_last_error()));
        }
        let file = Self(file);
        port.associate_handle(file.0, tells_all)?;
        Ok(file)
    }

    /// Starts to read at `offset`. Returns the number of bytes if it ends immediately, and `None`
    /// if it is in progress.
    ///
    /// # Safety
    ///
    /// The memory and the OVERLAPPED stay valid, and nothing else uses them, until the packet of
    /// the read has been taken, or until this returns a number if operations that end immediately
    /// make no packet.
    pub(crate) unsafe fn read(
        &self,
        memory: &mut [u8],
        offset: u64,
        overlapped: &mut Overlapped,
    ) -> io::Result<Option<usize>> {
        *overlapped = Overlapped { offset, ..Overlapped::default() };
        let (count, mut read) = (u32::try_from(memory.len()).unwrap_or(u32::MAX), 0);
        let (place, overlapped) = (memory.as_mut_ptr().cast(), (&raw mut *overlapped).cast());
        // SAFETY: the call demands memory and an OVERLAPPED until the end of the operation, and a
        // place for the count.
        // - the caller guarantees it for the former, and the place is a local.
        let done = unsafe { cp_read_file(self.0, place, count, &raw mut read, overlapped) };
        match done {
            0 if cp_last_error() == GOES_ON => Ok(None),
            0 => Err(failed("cp_read_file", cp_last_error())),
            _ => Ok(Some(read as usize)),
        }
    }
}

impl Drop for File {
    fn drop(&mut self) {
        cp_close_handle(self.0);
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        cp_close_handle(self.0);
    }
}

/// A socket that is read and written by the library's calls, and closed by them.
#[derive(Debug)]
pub(crate) struct Socket(i32);

impl Socket {
    /// Wraps this socket, which a C program would have got from the library. It is non-blocking if
    /// it is used by calls without an OVERLAPPED.
    pub(crate) fn of(socket: impl IntoRawFd) -> Self {
        let descriptor = socket.into_raw_fd();
        cp_adopt(descriptor);
        Self(descriptor)
    }

    /// The change that enables it: one-shot and level-triggered.
    pub(crate) fn enable(&self, key: usize, filter: u16) -> Change {
        enable(self.0, key, filter)
    }

    /// Accepts a connection; it is in non-blocking mode, as the listener is.
    pub(crate) fn accept(&self) -> io::Result<Socket> {
        // SAFETY: accept(2) writes an address and its length, unless the pointers are null.
        // - they are.
        let made = unsafe { cp_accept(self.0, std::ptr::null_mut(), std::ptr::null_mut()) };
        if made < 0 { Err(io::Error::last_os_error()) } else { Ok(Self(made)) }
    }
}

/// Where a datagram comes from: an address of IPv4 or IPv6, as the system has it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Address {
    bytes: [u32; 7],
    length: u32,
}

impl Socket {
    /// Receives a datagram.
    pub(crate) fn receive_from(&self, buffer: &mut [u8]) -> io::Result<(usize, Address)> {
        let mut from = Address { bytes: [0; 7], length: 28 };
        // SAFETY: recvfrom(2) writes at most that many bytes at either pointer, and the address's
        // length.
        // - valid: these are a slice and a local, borrowed over the call, with their lengths.
        let received = outcome(unsafe {
            cp_recvfrom(
                self.0,
                buffer.as_mut_ptr().cast(),
                buffer.len(),
                0,
                from.bytes.as_mut_ptr().cast(),
                &raw mut from.length,
            )
        })?;
        Ok((received, from))
    }

    /// Sends a datagram.
    pub(crate) fn send_to(&self, bytes: &[u8], to: &Address) -> io::Result<usize> {
        let address = to.bytes.as_ptr().cast();
        // SAFETY: sendto(2) reads that many bytes at either pointer.
        // - valid: both are borrowed over the call; the address has the length that the system has
        //   given.
        outcome(unsafe {
            cp_sendto(self.0, bytes.as_ptr().cast(), bytes.len(), 0, address, to.length)
        })
    }
}

/// `struct cp_buffer`.
#[repr(C)]
#[derive(Debug)]
struct Part {
    size: u32,
    bytes: *mut u8,
}

impl Part {
    fn of(bytes: *mut u8, length: usize) -> Self {
        Self { size: u32::try_from(length).unwrap_or(u32::MAX), bytes }
    }
}

/// The outcome of an operation when its call returns.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Started {
    /// It has succeeded. A packet reports it as well, unless the socket was associated otherwise.
    Done(u32),
    /// A packet will report it.
    GoesOn,
    /// It has failed, and nothing else reports it.
    Failed,
}

impl Started {
    fn of(is_done: bool, bytes: u32) -> Self {
        match cp_last_error() {
            _ if is_done => Self::Done(bytes),
            GOES_ON => Self::GoesOn,
            _ => Self::Failed,
        }
    }
}

/// Bytes for each address of an accepted connection: the address, and 16 more.
const OF_ADDRESS: u32 = 28 + 16;

/// The room that an accept needs.
pub(crate) const ROOM_OF_ACCEPT: usize = 2 * OF_ADDRESS as usize;

// These take a number and no `Socket`: another thread may have taken the packet, and closed the socket, before they return.
impl Socket {
    /// A socket for an IPv4 connection to be accepted.
    pub(crate) fn new() -> io::Result<Self> {
        let made = cp_socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        if made < 0 { Err(failed("cp_socket", cp_last_error())) } else { Ok(Self(made)) }
    }

    pub(crate) fn number(&self) -> RawFd {
        self.0
    }

    /// Starts to receive at most `room` bytes, and the sender's address of a datagram.
    ///
    /// # Safety
    ///
    /// The pointers are valid, the first one for that many bytes, and nothing else uses what they
    /// point to until the packet of the operation has been taken, or this returns an outcome
    /// without a packet.
    pub(crate) unsafe fn start_receive(
        number: RawFd,
        place: *mut u8,
        room: usize,
        from: Option<*mut Address>,
        overlapped: *mut Overlapped,
    ) -> Started {
        let (mut address, mut size) = (std::ptr::null_mut(), std::ptr::null_mut());
        if let Some(from) = from {
            // SAFETY: writing through a raw pointer demands that it is valid.
            // - the caller guarantees it.
            unsafe { from.write(Address { bytes: [0; 7], length: 28 }) };
            // SAFETY: the address of a field demands that the pointer is to an object.
            // - as above.
            address = unsafe { (&raw mut (*from).bytes).cast() };
            // SAFETY: as above.
            size = unsafe { (&raw mut (*from).length).cast() };
        }
        let part = Part::of(place, room);
        let (mut received, mut flags) = (0, 0);
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the caller guarantees it.
        unsafe { overlapped.write(Overlapped::default()) };
        // SAFETY: the call demands a list of buffers and places for two numbers until it returns,
        // and until the end of the operation the memory of the buffers, the OVERLAPPED, and the
        // address with its size unless they are null.
        // - the former are locals, the caller guarantees it for the latter.
        let failed = unsafe {
            cp_start_receive(
                number,
                &raw const part,
                1,
                &raw mut received,
                &raw mut flags,
                address,
                size,
                overlapped.cast(),
            )
        };
        Started::of(failed == 0, received)
    }

    /// Begins to send that many bytes, all of them; a datagram to where it goes.
    ///
    /// # Safety
    ///
    /// As of [`start_receive`](Self::start_receive).
    pub(crate) unsafe fn start_send(
        number: RawFd,
        place: *mut u8,
        length: usize,
        to: Option<Address>,
        overlapped: *mut Overlapped,
    ) -> Started {
        let part = Part::of(place, length);
        let mut sent = 0;
        let address = to.as_ref().map_or(std::ptr::null(), |to| to.bytes.as_ptr().cast());
        let size = to.map_or(0, |to| to.length.cast_signed());
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the caller guarantees it.
        unsafe { overlapped.write(Overlapped::default()) };
        // SAFETY: the call demands a list of buffers, a place for a number, and an address of that
        // size or none until it returns, and until the end of the operation the memory of the
        // buffers and the OVERLAPPED.
        // - the former are locals and an argument, the caller guarantees it for the latter.
        let failed = unsafe {
            cp_start_send(
                number,
                &raw const part,
                1,
                &raw mut sent,
                0,
                address,
                size,
                overlapped.cast(),
            )
        };
        Started::of(failed == 0, sent)
    }

    /// Starts to accept: `made` becomes the connection.
    ///
    /// # Safety
    ///
    /// As for [`start_receive`](Self::start_receive): `place` is valid for [`ROOM_OF_ACCEPT`]
    /// bytes.
    pub(crate) unsafe fn start_accept(
        listener: RawFd,
        made: RawFd,
        place: *mut u8,
        overlapped: *mut Overlapped,
    ) -> Started {
        let of = |number: RawFd| usize::try_from(number).unwrap_or(usize::MAX);
        let (place, mut received) = (place.cast(), 0);
        // SAFETY: writing through a raw pointer demands that it is valid.
        // - the caller guarantees it.
        unsafe { overlapped.write(Overlapped::default()) };
        // SAFETY: the call demands room for the data and both addresses, and an OVERLAPPED, until
        // the end of the operation; and a place for the count until it returns.
        // - the caller guarantees it for the former, and the place is a local.
        let done = unsafe {
            cp_accept_ex(
                of(listener),
                of(made),
                place,
                0,
                OF_ADDRESS,
                OF_ADDRESS,
                &raw mut received,
                overlapped.cast(),
            )
        };
        Started::of(done != 0, received)
    }
}

/// The change that enables the socket of this number: one-shot and level-triggered.
pub(crate) fn enable(number: i32, key: usize, filter: u16) -> Change {
    let socket = usize::try_from(number).unwrap_or(usize::MAX);
    let trigger = ONE_SHOT | LEVEL;
    Change { socket, key, filter, operation: ENABLE, trigger, result: 0 }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: `borrow_raw` demands a descriptor that stays open.
        // - it is closed when `self` is dropped.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        cp_close_socket(self.0);
    }
}

fn outcome(done: isize) -> io::Result<usize> {
    usize::try_from(done).map_err(|_| io::Error::last_os_error())
}

impl Read for &Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        // SAFETY: recv(2) writes at most that many bytes at the pointer.
        // - valid: it is a slice, borrowed over the call.
        outcome(unsafe { cp_recv(self.0, buffer.as_mut_ptr().cast(), buffer.len(), 0) })
    }
}

impl Read for Socket {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buffer)
    }
}

impl Write for Socket {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        // SAFETY: send(2) reads that many bytes at the pointer.
        // - valid: it is a slice, borrowed over the call.
        outcome(unsafe { cp_send(self.0, buffer.as_ptr().cast(), buffer.len(), 0) })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
