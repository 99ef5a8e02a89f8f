//! The queries to Windows, with direct calls to the socket driver and to Winsock.
//!
//! The line of a step has these fields:
//! - what a driver poll with a timeout of 0 reports for all conditions (`now`, level-triggered)
//! - what the polls in flight since the step before reported: one for all conditions (`all`), and
//!   three for parts (`in`, `out`, `end`)
//! - the result of `WSAPoll`
//! - the result of the ioctl `FIONREAD` (`-`: it fails)
//!
//! Polls are in flight only for conditions that did not hold at the end of the step before. After
//! an answer, a poll for the remaining conditions follows. The line has the union of the answers.

use std::fmt::Write as _;
use std::io;
use std::os::windows::io::{AsRawHandle as _, AsRawSocket as _, FromRawHandle as _, OwnedHandle};
use std::ptr;
use std::rc::Rc;
use std::time::Duration;

use windows_sys::Wdk::Foundation::OBJECT_ATTRIBUTES;
use windows_sys::Wdk::Storage::FileSystem::{FILE_OPEN, NtCreateFile};
use windows_sys::Wdk::System::IO::NtDeviceIoControlFile;
use windows_sys::Win32::Foundation::{
    HANDLE, STATUS_PENDING, STATUS_SUCCESS, STATUS_TIMEOUT, UNICODE_STRING, WAIT_OBJECT_0,
    WAIT_TIMEOUT,
};
use windows_sys::Win32::Networking::WinSock::{
    FIONREAD, INVALID_SOCKET, POLLERR, POLLHUP, POLLNVAL, POLLRDBAND, POLLRDNORM, POLLWRNORM,
    SIO_BASE_HANDLE, SO_TYPE, SOCK_STREAM, SOCKET, SOL_SOCKET, WSAEADDRNOTAVAIL, WSAEALREADY,
    WSAECONNABORTED, WSAECONNREFUSED, WSAECONNRESET, WSAEINVAL, WSAEISCONN, WSAEMSGSIZE,
    WSAENETRESET, WSAENOTCONN, WSAENOTSOCK, WSAEOPNOTSUPP, WSAESHUTDOWN, WSAETIMEDOUT,
    WSAEWOULDBLOCK, WSAIoctl, WSAPOLLFD, WSAPoll, getsockopt, ioctlsocket, recv,
};
use windows_sys::Win32::Storage::FileSystem::{FILE_SHARE_READ, FILE_SHARE_WRITE, SYNCHRONIZE};
use windows_sys::Win32::System::IO::{CancelIoEx, IO_STATUS_BLOCK, IO_STATUS_BLOCK_0};
use windows_sys::Win32::System::Threading::{CreateEventW, INFINITE, Sleep, WaitForSingleObject};

use testkit::{Socket, System};

use super::Recorder;

pub(super) const RECORD: &str = include_str!("wine.txt");

/// Returns why there is no record to compare the system with.
pub(super) fn no_record(system: &System) -> Option<&'static str> {
    let why = "facts of Windows: there is a record of Wine alone; what was seen is printed";
    (!system.is_wine()).then_some(why)
}

/// The kernel counts as settled after this many milliseconds without an event.
const QUIET: u32 = 3;

/// How long to wait without a record.
pub(super) const PATIENCE: Duration = Duration::from_millis(100);

/// A watch belongs to a handle. After that is closed, it can't be queried. Another handle of the
/// same socket needs its own watch.
pub(super) const WATCHES_OUTLIVE_HANDLES: bool = false;

/// The shutdown of a listener fails because it isn't connected, and changes nothing.
pub(super) const LISTENERS_ARE_SHUT: bool = false;

/// If the queue of a listener is full, Windows refuses a connect instead of letting it wait for
/// room. Windows chooses the length of the shortest queue itself.
pub(super) const QUEUES_ARE_FULL: bool = false;

/// The Winsock error codes, with their names.
pub(super) const CODES: &[(i32, &str)] = &[
    (WSAEADDRNOTAVAIL, "WSAEADDRNOTAVAIL"),
    (WSAEALREADY, "WSAEALREADY"),
    (WSAECONNABORTED, "WSAECONNABORTED"),
    (WSAECONNREFUSED, "WSAECONNREFUSED"),
    (WSAECONNRESET, "WSAECONNRESET"),
    (WSAEINVAL, "WSAEINVAL"),
    (WSAEISCONN, "WSAEISCONN"),
    (WSAEMSGSIZE, "WSAEMSGSIZE"),
    (WSAENETRESET, "WSAENETRESET"),
    (WSAENOTCONN, "WSAENOTCONN"),
    (WSAENOTSOCK, "WSAENOTSOCK"),
    (WSAEOPNOTSUPP, "WSAEOPNOTSUPP"),
    (WSAESHUTDOWN, "WSAESHUTDOWN"),
    (WSAETIMEDOUT, "WSAETIMEDOUT"),
    (WSAEWOULDBLOCK, "WSAEWOULDBLOCK"),
];

/// Plays the scenarios that only Windows has.
pub(super) fn play_others(r: &mut Recorder<'_>) {
    let (a, b) = r.system.tcp_pair();
    r.watch("tcp: closed while polls are in flight", &a);
    r.eyes.as_mut().expect("a scenario has begun").socket = None;
    drop(a);
    r.step("closed", &b);
    r.part();
}

/// The conditions of a driver poll.
mod event {
    pub(super) const RECEIVE: u32 = 0x1;
    pub(super) const URGENT: u32 = 0x2;
    pub(super) const SEND: u32 = 0x4;
    pub(super) const DISCONNECT: u32 = 0x8;
    pub(super) const ABORT: u32 = 0x10;
    pub(super) const LOCAL_CLOSE: u32 = 0x20;
    pub(super) const CONNECT: u32 = 0x40;
    pub(super) const ACCEPT: u32 = 0x80;
    pub(super) const CONNECT_FAIL: u32 = 0x100;

    pub(super) const NAMES: &[(u32, &str)] = &[
        (RECEIVE, "RECEIVE"),
        (URGENT, "URGENT"),
        (ACCEPT, "ACCEPT"),
        (SEND, "SEND"),
        (CONNECT, "CONNECT"),
        (DISCONNECT, "DISCONNECT"),
        (ABORT, "ABORT"),
        (CONNECT_FAIL, "CONNECT_FAIL"),
        (LOCAL_CLOSE, "LOCAL_CLOSE"),
    ];

    pub(super) const ALL: u32 = 0x1ff;
}

/// The conditions that the polls in flight ask for.
const WANTED: [u32; 4] = [
    event::ALL,
    event::RECEIVE | event::URGENT | event::ACCEPT,
    event::SEND | event::CONNECT,
    event::DISCONNECT | event::ABORT | event::CONNECT_FAIL | event::LOCAL_CLOSE,
];

/// The driver's control code for a poll.
const POLL: u32 = 0x0001_2024;

/// The driver's input and output: a poll of one socket.
#[repr(C)]
struct Info {
    /// In units of 100 nanoseconds. The maximum means no timeout.
    timeout: i64,
    sockets: u32,
    is_exclusive: u32,
    socket: SOCKET,
    events: u32,
    status: i32,
}

const INFO_SIZE: u32 = 32;

const _: () = assert!(size_of::<Info>() == 32);

/// The memory that the driver may write until the poll ends.
#[repr(C)]
struct Memory {
    /// First, because its address identifies the call for cancellation.
    status: IO_STATUS_BLOCK,
    info: Info,
}

/// Waits up to `milliseconds` for `event`. Returns whether it is signalled.
fn is_signalled(event: &OwnedHandle, milliseconds: u32) -> bool {
    // SAFETY: WaitForSingleObject requires an open handle.
    // - open: it is borrowed.
    match unsafe { WaitForSingleObject(event.as_raw_handle(), milliseconds) } {
        WAIT_OBJECT_0 => true,
        WAIT_TIMEOUT => false,
        _ => panic!("{}", io::Error::last_os_error()),
    }
}

/// The socket driver.
struct Device(OwnedHandle);

impl Device {
    fn open() -> Self {
        let mut name: Vec<u16> = r"\Device\Afd\Facts".encode_utf16().collect();
        let bytes = u16::try_from(2 * name.len()).expect("short");
        let name =
            UNICODE_STRING { Length: bytes, MaximumLength: bytes, Buffer: name.as_mut_ptr() };
        let attributes = OBJECT_ATTRIBUTES {
            Length: u32::try_from(size_of::<OBJECT_ATTRIBUTES>()).expect("small"),
            RootDirectory: ptr::null_mut(),
            ObjectName: &raw const name,
            Attributes: 0,
            SecurityDescriptor: ptr::null(),
            SecurityQualityOfService: ptr::null(),
        };
        let mut status =
            IO_STATUS_BLOCK { Anonymous: IO_STATUS_BLOCK_0 { Status: 0 }, Information: 0 };
        let mut handle: HANDLE = ptr::null_mut();
        // SAFETY: NtCreateFile reads the attributes, which point to a name with its length, and
        // writes a handle and a status. It accepts null pointers for the size and the extended
        // attributes.
        // - valid: all four are locals, and so is the name's buffer, which has that length in
        //   bytes.
        let code = unsafe {
            NtCreateFile(
                &raw mut handle,
                SYNCHRONIZE,
                &raw const attributes,
                &raw mut status,
                ptr::null(),
                0,
                FILE_SHARE_READ | FILE_SHARE_WRITE,
                FILE_OPEN,
                0,
                ptr::null(),
                0,
            )
        };
        assert_eq!(code, STATUS_SUCCESS, "the driver is not there");
        // SAFETY: `from_raw_handle` requires an open handle without another owner.
        // - the call above has just written it.
        Self(unsafe { OwnedHandle::from_raw_handle(handle) })
    }
}

/// A poll that the driver holds or has answered.
struct Flight {
    device: Rc<Device>,
    /// Signalled when the driver no longer uses the memory.
    event: OwnedHandle,
    /// From `Box::into_raw`. Freed only by `drop`.
    memory: *mut Memory,
    asked: u32,
    /// Whether the poll has ended.
    is_over: bool,
}

impl Flight {
    /// Polls `socket` for `events`, waiting up to `timeout`. Returns the driver's status if it
    /// refuses.
    fn new(device: &Rc<Device>, socket: SOCKET, events: u32, timeout: i64) -> Result<Self, i32> {
        // SAFETY: CreateEventW accepts null for the attributes and for the name.
        let event = unsafe { CreateEventW(ptr::null(), 1, 0, ptr::null()) };
        assert!(!event.is_null(), "{}", io::Error::last_os_error());
        // SAFETY: `from_raw_handle` requires an open handle without another owner.
        // - the call above has just returned it.
        let event = unsafe { OwnedHandle::from_raw_handle(event) };
        let memory = Box::into_raw(Box::new(Memory {
            status: IO_STATUS_BLOCK {
                Anonymous: IO_STATUS_BLOCK_0 { Status: STATUS_PENDING },
                Information: 0,
            },
            info: Info { timeout, sockets: 1, is_exclusive: 0, socket, events, status: 0 },
        }));
        // SAFETY: `&raw mut` of a field requires a pointer within an object.
        // - `memory` has just been made from a box.
        let info = unsafe { &raw mut (*memory).info }.cast();
        // SAFETY: `&raw mut` of a field requires a pointer within an object.
        // - as above.
        let block = unsafe { &raw mut (*memory).status };
        // SAFETY: NtDeviceIoControlFile reads and writes the given number of bytes at the two
        // buffer pointers, and writes a status at the fifth argument, until it signals the event.
        // - valid: all three point into `memory`, which is freed by `drop` after the event is
        //   signalled, or below if the call is refused and keeps nothing;
        // - not shared: the memory is read only after the event is signalled;
        // - both handles stay open until then, since `Self` owns them, and no completion routine is
        //   passed.
        let status = unsafe {
            NtDeviceIoControlFile(
                device.0.as_raw_handle(),
                event.as_raw_handle(),
                None,
                ptr::null(),
                block,
                POLL,
                info,
                INFO_SIZE,
                info,
                INFO_SIZE,
            )
        };
        // The two highest bits are set in an error status.
        if status.cast_unsigned() >> 30 == 3 {
            // SAFETY: `from_raw` requires a pointer from `into_raw` that nothing else uses.
            // - it was made above, and a refused call keeps nothing.
            drop(unsafe { Box::from_raw(memory) });
            return Err(status);
        }
        let is_over = status != STATUS_PENDING;
        Ok(Self { device: Rc::clone(device), event, memory, asked: events, is_over })
    }

    /// Waits up to `milliseconds`. Returns whether the poll has ended.
    fn is_over(&mut self, milliseconds: u32) -> bool {
        self.is_over = self.is_over || is_signalled(&self.event, milliseconds);
        self.is_over
    }

    /// Waits up to `milliseconds`. Returns the driver's answer, or `None` if there is none yet.
    fn answer(&mut self, milliseconds: u32) -> Option<Result<u32, i32>> {
        if !self.is_over(milliseconds) {
            return None;
        }
        // SAFETY: reading the memory requires that it is valid and that nothing writes to it.
        // - it comes from a box that only `drop` frees, and the driver no longer uses it.
        let memory = unsafe { &*self.memory };
        // SAFETY: reading a union's field requires a valid value of its type.
        // - the driver writes a status there, and this program wrote one before.
        let status = unsafe { memory.status.Anonymous.Status };
        Some(match status {
            STATUS_SUCCESS if memory.info.sockets == 0 => Ok(0),
            STATUS_SUCCESS => Ok(memory.info.events),
            STATUS_TIMEOUT => Ok(0),
            status => Err(status),
        })
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        if !self.is_over(0) {
            // SAFETY: CancelIoEx requires an open file. It looks for a call with this status
            // address, and doesn't access the memory there.
            // - open: `self` owns a reference to the device.
            let _ = unsafe { CancelIoEx(self.device.0.as_raw_handle(), self.memory.cast::<_>()) };
            // If this panics, the driver keeps the memory forever.
            assert!(self.is_over(INFINITE), "the wait has no limit");
        }
        // SAFETY: `from_raw` requires a pointer from `into_raw` that nothing else uses.
        // - `new` made it that way, and the driver no longer uses it.
        drop(unsafe { Box::from_raw(self.memory) });
    }
}

/// Repeated polls for some conditions.
struct Watch {
    wanted: u32,
    flight: Option<Flight>,
    /// The union of the answers since the step before.
    came: u32,
    /// The status of a poll that failed.
    failed: Option<i32>,
}

impl Watch {
    /// Takes the available answers.
    fn look(&mut self, device: &Rc<Device>, socket: Option<SOCKET>) {
        while let Some(flight) = &mut self.flight {
            match flight.answer(0) {
                None => return,
                Some(Ok(events)) => {
                    self.came |= events;
                    // If the answer has none of the requested conditions, the driver gives no other
                    // one.
                    let rest = if flight.asked & events == 0 { 0 } else { flight.asked & !events };
                    self.flight = ask(device, socket, rest);
                }
                Some(Err(status)) => {
                    self.failed = Some(status);
                    self.flight = None;
                }
            }
        }
    }

    fn words(&self) -> String {
        let failed = self.failed.map_or(String::new(), |status| format!(" status {status:#x}"));
        words(self.came, event::NAMES) + &failed
    }
}

/// Starts a poll without a timeout, if there are events to ask for and the socket is open.
fn ask(device: &Rc<Device>, socket: Option<SOCKET>, events: u32) -> Option<Flight> {
    let socket = socket.filter(|_| events != 0)?;
    Some(Flight::new(device, socket, events, i64::MAX).expect("a poll in flight"))
}

/// Observes the socket of a scenario.
pub(super) struct Eyes {
    device: Rc<Device>,
    /// The driver's handle. `None`: the socket is closed and can't be queried any more, since
    /// another handle may have its number.
    socket: Option<SOCKET>,
    watches: [Watch; 4],
    /// The conditions that held when the line was written.
    now: u32,
}

impl Eyes {
    pub(super) fn new(_: &System, socket: &Socket) -> Self {
        let watches = WANTED.map(|wanted| Watch { wanted, flight: None, came: 0, failed: None });
        let device = Rc::new(Device::open());
        let mut eyes = Self { device, socket: Some(base(number(socket))), watches, now: 0 };
        // At first, poll for all conditions, as if none held.
        eyes.end_step();
        eyes
    }

    /// Collects answers until no more arrive.
    pub(super) fn look(&mut self) {
        // SAFETY: Sleep has no requirements.
        unsafe { Sleep(QUIET) };
        for watch in &mut self.watches {
            watch.look(&self.device, self.socket);
        }
    }

    /// Returns the current conditions.
    fn now(&self) -> u32 {
        let Some(socket) = self.socket else { return 0 };
        let mut poll = Flight::new(&self.device, socket, event::ALL, 0).expect("a poll");
        poll.answer(INFINITE).expect("the wait has no limit").expect("an answer")
    }

    /// Describes the state of the watched socket after `step`.
    pub(super) fn line(&mut self, step: &str, _: &Socket) -> String {
        self.now = self.now();
        let now = words(self.now, event::NAMES);
        let [all, of_in, of_out, of_end] = self.watches.each_ref().map(Watch::words);
        let polled = words(self.socket.map_or(0, polled), POLLED);
        let unread = self.socket.and_then(unread);
        let unread = unread.map_or("-".to_owned(), |count| count.to_string());
        format!(
            "  {step:36} now {now:23} all {all:23} in {of_in:11} out {of_out:12} end {of_end:12} \
             WSAPoll {polled:14} unread {unread}"
        )
    }

    /// Starts polls for the conditions that don't hold. Assigns all further answers to the next
    /// step.
    pub(super) fn end_step(&mut self) {
        for watch in &mut self.watches {
            (watch.came, watch.failed) = (0, None);
            // This cancels the previous poll and waits for its end.
            watch.flight = None;
            watch.flight = ask(&self.device, self.socket, watch.wanted & !self.now);
        }
    }

    /// Discards the answers so far.
    pub(super) fn forget(&mut self) {
        self.look();
        self.now = self.now();
        self.end_step();
    }
}

/// Describes a set of conditions in words.
fn words(bits: u32, names: &[(u32, &str)]) -> String {
    let known = names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name);
    let mut words = known.collect::<Vec<_>>().join("|");
    let unknown = bits & !names.iter().fold(0, |sum, (bit, _)| sum | bit);
    if unknown != 0 {
        write!(words, "{unknown:#x}").expect("a string takes everything");
    }
    if words.is_empty() { "-".to_owned() } else { words }
}

/// Returns the Winsock handle of a socket. A call with a closed one fails.
fn number(socket: &Socket) -> SOCKET {
    usize::try_from(socket.descriptor().as_raw_socket()).expect("a handle")
}

/// Returns the driver's handle of a socket, below any layered providers.
fn base(socket: SOCKET) -> SOCKET {
    let mut answer: SOCKET = INVALID_SOCKET;
    let size = u32::try_from(size_of::<SOCKET>()).expect("small");
    let mut written = 0;
    // SAFETY: WSAIoctl writes at most `size` bytes at the pointer to the answer, and their number
    // at the other one. It has no input, and completes before it returns because it gets no
    // OVERLAPPED.
    // - valid for writes: both are locals, and `size` is the size of `answer`.
    let done = unsafe {
        WSAIoctl(
            socket,
            SIO_BASE_HANDLE,
            ptr::null(),
            0,
            (&raw mut answer).cast(),
            size,
            &raw mut written,
            ptr::null_mut(),
            None,
        )
    };
    assert_eq!(done, 0, "{}", io::Error::last_os_error());
    answer
}

/// The conditions of WSAPoll, with their names.
const POLLED: &[(u32, &str)] = &[
    (POLLRDNORM.cast_unsigned() as u32, "RDNORM"),
    (POLLRDBAND.cast_unsigned() as u32, "RDBAND"),
    (POLLWRNORM.cast_unsigned() as u32, "WRNORM"),
    (POLLERR.cast_unsigned() as u32, "ERR"),
    (POLLHUP.cast_unsigned() as u32, "HUP"),
    (POLLNVAL.cast_unsigned() as u32, "NVAL"),
];

/// Calls WSAPoll once.
fn poll(socket: SOCKET, events: i16, milliseconds: i32) -> i16 {
    let mut question = WSAPOLLFD { fd: socket, events, revents: 0 };
    // SAFETY: WSAPoll reads and writes one `WSAPOLLFD` at the pointer.
    // - valid: `question` lives until the call returns.
    let done = unsafe { WSAPoll(&raw mut question, 1, milliseconds) };
    assert!(done >= 0, "{}", io::Error::last_os_error());
    question.revents
}

fn polled(socket: SOCKET) -> u32 {
    poll(socket, POLLRDNORM | POLLRDBAND | POLLWRNORM, 0).cast_unsigned().into()
}

/// Waits until something can be read or accepted, or until `limit` has passed.
pub(super) fn await_readable(socket: &Socket, limit: Duration) {
    let limit = i32::try_from(limit.as_micros().div_ceil(1000)).expect("short");
    poll(number(socket), POLLRDNORM, limit);
}

/// Calls recv once.
pub(super) fn read(socket: &Socket, buf: &mut [u8]) -> io::Result<usize> {
    let size = i32::try_from(buf.len()).expect("what is read at once is small");
    // SAFETY: recv writes at most `size` bytes at the pointer.
    // - valid for writes: `buf` has that size, and is mutably borrowed during the call.
    let count = unsafe { recv(number(socket), buf.as_mut_ptr(), size, 0) };
    // A negative count means that the call failed.
    usize::try_from(count).map_err(|_| io::Error::last_os_error())
}

fn unread(socket: SOCKET) -> Option<u32> {
    let mut count = 0;
    // SAFETY: ioctlsocket with FIONREAD writes one number at the pointer, or fails.
    // - valid for writes: `count` lives until the call returns.
    let done = unsafe { ioctlsocket(socket, FIONREAD, &raw mut count) };
    (done == 0).then_some(count)
}

pub(super) fn kind(socket: &Socket) -> &'static str {
    let mut kind = 0_i32;
    let mut size = i32::try_from(size_of_val(&kind)).expect("four");
    // SAFETY: getsockopt writes at most `size` bytes at the value's pointer, and reads and writes
    // the size at the other pointer.
    // - valid: both are locals of the right type, and `size` is the size of the value.
    let done = unsafe {
        getsockopt(number(socket), SOL_SOCKET, SO_TYPE, (&raw mut kind).cast(), &raw mut size)
    };
    match (done, kind) {
        (0, SOCK_STREAM) => "stream",
        (0, _) => "datagram",
        _ => "no socket",
    }
}

/// No socket is known to wait for an answer.
pub(super) fn is_settled(_: &Socket) -> bool {
    true
}
