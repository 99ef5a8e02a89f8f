//! Observes the call of Windows itself, without a port of the library, for those rows of its
//! semantics that are inferred and not documented. There are no expectations here.

use std::env;
use std::io::{self, Write as _};
use std::mem::transmute;
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::os::windows::ffi::OsStrExt as _;
use std::os::windows::io::{AsRawSocket, FromRawSocket as _, OwnedSocket};
use std::ptr;
use std::thread;
use std::time::Duration;

use windows_sys::Win32::Foundation::{CloseHandle, HANDLE, HMODULE, INVALID_HANDLE_VALUE};
use windows_sys::Win32::Networking::WinSock::{
    AF_INET, FIONBIO, IN_ADDR, IN_ADDR_0, INVALID_SOCKET, LINGER, SO_LINGER,
    SOCK_NOTIFY_REGISTRATION, SOCK_STREAM, SOCKADDR_IN, SOL_SOCKET, WSA_IO_INCOMPLETE, WSABUF,
    WSAGetLastError, WSAGetOverlappedResult, WSARecv, connect, ioctlsocket, setsockopt, socket,
};
use windows_sys::Win32::System::IO::{
    CancelIoEx, CreateIoCompletionPort, OVERLAPPED, OVERLAPPED_ENTRY, PostQueuedCompletionStatus,
};
use windows_sys::Win32::System::LibraryLoader::{GetModuleHandleW, GetProcAddress, LoadLibraryW};
use windows_sys::core::BOOL;
use windows_sys::w;

mod assumed;

/// Operations, conditions and triggers, as `winsock2.h` numbers them.
const NONE: u8 = 0;
const ENABLE: u8 = 1;
const DISABLE: u8 = 2;
const REMOVE: u8 = 4;
const IN: u16 = 1;
const OUT: u16 = 2;
const HANGUP: u16 = 4;
const ONESHOT: u8 = 1;
const PERSISTENT: u8 = 2;
const LEVEL: u8 = 4;
const EDGE: u8 = 8;

/// How long to wait for a packet that should arrive, and for one that should not, in milliseconds.
const SOON: u32 = 300;

#[allow(clippy::cast_possible_truncation, clippy::cast_possible_wrap, reason = "both are small")]
const SIZES: (i32, i32) = (size_of::<SOCKADDR_IN>() as i32, size_of::<LINGER>() as i32);

type Process = unsafe extern "system" fn(
    HANDLE,
    u32,
    *mut SOCK_NOTIFY_REGISTRATION,
    u32,
    u32,
    *mut OVERLAPPED_ENTRY,
    *mut u32,
) -> u32;
type Create = unsafe extern "system" fn(HANDLE, HANDLE, usize, u32) -> HANDLE;
type Post = unsafe extern "system" fn(HANDLE, u32, usize, *const OVERLAPPED) -> BOOL;
type Close = unsafe extern "system" fn(HANDLE) -> BOOL;
type Any = unsafe extern "system" fn() -> isize;

/// The call, and those that create ports for it.
#[derive(Clone, Copy)]
struct Calls {
    process: Process,
    create: Create,
    post: Post,
    close: Close,
}

/// A trial of a row: its number, description and function.
type Trial = (u8, &'static str, fn(Calls) -> io::Result<String>);

/// A row: trial, observation, and for some the library's assumption.
pub(crate) struct Row {
    pub(crate) rule: u8,
    pub(crate) what: &'static str,
    pub(crate) seen: String,
    pub(crate) assumed: Option<&'static str>,
}

/// The results of all trials, or why there are none.
pub(crate) fn reference() -> Result<Vec<Row>, String> {
    let calls = calls()?;
    let row = |(rule, what, run): Trial, assumed| {
        let seen = run(calls).unwrap_or_else(|error| format!("an error: {error}"));
        Row { rule, what, seen, assumed }
    };
    let trials: [Trial; 11] = [
        (2, "no changes and no room; no room, and a time", empty),
        (
            9,
            "triggers: none, LEVEL, both, ONESHOT alone, ONESHOT and PERSISTENT, unknown",
            triggers,
        ),
        (11, "the same port again, another key; another port", twice),
        (13, "DISABLE of what holds; enabled again", disabled),
        (14, "REMOVE; again; its packet; of what was never registered", removed),
        (15, "no operation", nothing),
        (20, "LEVEL of what holds already; enabled again", level),
        (24, "the peer's end; with data before it; IN and HANGUP asked for", ended),
        (25, "a refused connect; a reset; OUT asked for", failed),
        (26, "a stream that is not connected; a bound datagram socket", fresh),
        (34, "three posts for two threads that wait", posts),
    ];
    let known = trials.into_iter().map(|trial| row(trial, None));
    let assumed = assumed::TRIALS.into_iter().map(|(trial, assumed)| row(trial, Some(assumed)));
    Ok(known.chain(assumed).collect())
}

/// The function with that name in a library.
fn function(library: HMODULE, name: &std::ffi::CStr) -> Option<Any> {
    // SAFETY: GetProcAddress demands a library that stays loaded, and a string with a zero at its end.
    // - loaded: none is ever freed here;
    // - the string: it has one.
    unsafe { GetProcAddress(library, name.as_ptr().cast()) }
}

/// The system's calls, or those of the library that `CPORT_REFERENCE` names, which has its own
/// ports.
fn calls() -> Result<Calls, String> {
    let named = env::var_os("CPORT_REFERENCE");
    let library = match &named {
        Some(name) => {
            let wide: Vec<u16> = name.encode_wide().chain([0]).collect();
            // SAFETY: LoadLibraryW reads a name that ends with a zero, and runs the code of the
            // loaded library.
            // - `wide` does; the user has named the library in order to run its code.
            unsafe { LoadLibraryW(wide.as_ptr()) }
        }
        // SAFETY: GetModuleHandleW demands a string with a zero at its end, which the macro makes.
        None => unsafe { GetModuleHandleW(w!("ws2_32.dll")) },
    };
    let process =
        (!library.is_null()).then(|| function(library, c"ProcessSocketNotifications")).flatten();
    let Some(process) = process else {
        return Err(match named {
            Some(name) => format!("{} has no ProcessSocketNotifications", name.display()),
            None => "ws2_32.dll has no ProcessSocketNotifications: it is there from build 20348 on"
                .to_owned(),
        });
    };
    let own = [c"cp_create_io_completion_port", c"cp_post", c"cp_close_handle"];
    let own = own.map(|name| function(library, name));
    // SAFETY: `transmute` demands that the function has this signature.
    // - the function's documentation and the header of the other library have it.
    let process = unsafe { transmute::<Any, Process>(process) };
    let [Some(create), Some(post), Some(close)] = own else {
        let (create, post, close): (Create, Post, Close) =
            (CreateIoCompletionPort, PostQueuedCompletionStatus, CloseHandle);
        return Ok(Calls { process, create, post, close });
    };
    Ok(Calls {
        process,
        // SAFETY: as above.
        create: unsafe { transmute::<Any, Create>(create) },
        // SAFETY: as above.
        post: unsafe { transmute::<Any, Post>(post) },
        // SAFETY: as above.
        close: unsafe { transmute::<Any, Close>(close) },
    })
}

/// A port, closed when it is dropped.
struct Port {
    calls: Calls,
    handle: HANDLE,
}

// SAFETY: a handle may be used by any thread of its process, and so may the calls, which hold no
// thread-local pointers.
unsafe impl Sync for Port {}

impl Drop for Port {
    fn drop(&mut self) {
        // SAFETY: the call demands a port that it knows and that is no longer used.
        // - known: `new` has created it with the matching call;
        // - no longer used: this owns it, and no borrow remains.
        unsafe { (self.calls.close)(self.handle) };
    }
}

impl Port {
    fn new(calls: Calls) -> Self {
        // SAFETY: the call demands no memory; no file is associated.
        let handle = unsafe { (calls.create)(INVALID_HANDLE_VALUE, ptr::null_mut(), 0, 0) };
        Self { calls, handle }
    }

    /// The call with one change and no room. Returns the call's code if it has one, otherwise the
    /// change's.
    fn change(&self, socket: &impl AsRawSocket, key: usize, change: (u8, u16, u8)) -> u32 {
        let (operation, event_filter, trigger) = change;
        let mut one = SOCK_NOTIFY_REGISTRATION {
            socket: number(socket),
            completionKey: ptr::without_provenance_mut(key),
            eventFilter: event_filter,
            operation,
            triggerFlags: trigger,
            registrationResult: u32::MAX,
        };
        // SAFETY: the call reads and writes the given number of changes at the first pointer, and
        // accesses nothing at null pointers with a count of 0.
        // - one change: `one` is a local, borrowed only here;
        // - the port: `self` keeps it open.
        let code = unsafe {
            (self.calls.process)(
                self.handle,
                1,
                &raw mut one,
                0,
                0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        };
        if code == 0 { one.registrationResult } else { code }
    }

    fn enable(&self, socket: &impl AsRawSocket, key: usize, filter: u16, trigger: u8) -> u32 {
        self.change(socket, key, (ENABLE, filter, trigger))
    }

    /// The next packet: its key and its events.
    fn next(&self, milliseconds: u32) -> Option<(usize, u32)> {
        let mut entry = OVERLAPPED_ENTRY::default();
        let mut count = 0;
        // SAFETY: the call writes at most the given number of packets at the second pointer, and
        // their number at the third.
        // - one packet, a number: both are locals, borrowed only here;
        // - the port: as above.
        let code = unsafe {
            (self.calls.process)(
                self.handle,
                0,
                ptr::null_mut(),
                milliseconds,
                1,
                &raw mut entry,
                &raw mut count,
            )
        };
        (code == 0 && count == 1)
            .then_some((entry.lpCompletionKey, entry.dwNumberOfBytesTransferred))
    }

    /// The next packet, as text.
    fn told(&self) -> String {
        self.next(SOON).map_or_else(|| "nothing".to_owned(), |(_, events)| named(events))
    }

    /// Associates a socket's operations with this port.
    fn associate(&self, socket: &impl AsRawSocket, key: usize) -> u32 {
        let handle = ptr::without_provenance_mut(
            usize::try_from(socket.as_raw_socket()).expect("a socket is an address wide"),
        );
        // SAFETY: the call touches no memory of this process.
        // - the port: `self` keeps it open.
        let done = unsafe { (self.calls.create)(handle, self.handle, key, 0) };
        let error = io::Error::last_os_error().raw_os_error();
        if done.is_null() { error.map_or(u32::MAX, i32::cast_unsigned) } else { 0 }
    }

    /// The next packet, as text: its key, and whether it is that of an operation.
    fn origin(&self) -> String {
        let mut entry = OVERLAPPED_ENTRY::default();
        let mut count = 0;
        // SAFETY: as in `next`.
        let code = unsafe {
            (self.calls.process)(
                self.handle,
                0,
                ptr::null_mut(),
                SOON,
                1,
                &raw mut entry,
                &raw mut count,
            )
        };
        if code != 0 || count != 1 {
            return "nothing".to_owned();
        }
        let (key, number) = (entry.lpCompletionKey, entry.dwNumberOfBytesTransferred);
        if entry.lpOverlapped.is_null() {
            format!("{} of key {key}", named(number))
        } else {
            format!("{number} bytes of key {key}")
        }
    }

    fn post(&self, number: u32) {
        // SAFETY: the call demands nothing of memory: it passes the pointer on, and nothing
        // dereferences it.
        unsafe { (self.calls.post)(self.handle, number, 0, ptr::null()) };
    }
}

/// Waits until data in transit within the machine has arrived: no call reports that for a socket
/// that is not being queried yet.
#[allow(clippy::disallowed_methods, reason = "what is to be awaited is what is tried")]
fn pause(time: Duration) {
    thread::sleep(time);
}

/// Conditions as text.
fn named(events: u32) -> String {
    let names = [(1, "IN"), (2, "OUT"), (4, "HANGUP"), (0x40, "ERR"), (0x80, "REMOVE")];
    let known: Vec<_> =
        names.iter().filter(|(bit, _)| events & bit != 0).map(|(_, name)| *name).collect();
    if known.is_empty() { format!("{events:#x}") } else { known.join(" ") }
}

/// A code as text.
fn code(code: u32) -> String {
    if code == 0 { "done".to_owned() } else { format!("code {code}") }
}

fn empty(calls: Calls) -> io::Result<String> {
    let port = Port::new(calls);
    let none = |milliseconds| {
        // SAFETY: as in `change`; every count is 0.
        unsafe {
            (calls.process)(
                port.handle,
                0,
                ptr::null_mut(),
                milliseconds,
                0,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        }
    };
    Ok(format!("{}; {}", code(none(0)), code(none(1))))
}

fn triggers(calls: Calls) -> io::Result<String> {
    let all = [0, LEVEL, LEVEL | EDGE, ONESHOT, LEVEL | ONESHOT | PERSISTENT, LEVEL | 0x40];
    let mut seen = Vec::new();
    for trigger in all {
        let (port, socket) = (Port::new(calls), UdpSocket::bind("127.0.0.1:0")?);
        seen.push(code(port.enable(&socket, 1, OUT, trigger)));
    }
    Ok(seen.join("; "))
}

fn twice(calls: Calls) -> io::Result<String> {
    let (port, other) = (Port::new(calls), Port::new(calls));
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    let first = port.enable(&socket, 1, IN, LEVEL | ONESHOT);
    let again = port.enable(&socket, 2, IN, LEVEL | ONESHOT);
    let elsewhere = other.enable(&socket, 1, IN, LEVEL | ONESHOT);
    Ok([first, again, elsewhere].map(code).join("; "))
}

fn disabled(calls: Calls) -> io::Result<String> {
    let (port, socket) = (Port::new(calls), UdpSocket::bind("127.0.0.1:0")?);
    port.enable(&socket, 1, OUT, LEVEL | PERSISTENT);
    let first = port.told();
    let done = code(port.change(&socket, 1, (DISABLE, 0, 0)));
    let (mut late, mut quiet) = (0, 0);
    while quiet < 2 {
        match port.next(SOON) {
            Some(_) if late < 100 => late += 1,
            Some(_) => break,
            None => quiet += 1,
        }
    }
    let again = code(port.enable(&socket, 1, OUT, LEVEL | ONESHOT));
    Ok(format!("{first}; {done}, {late} packets later; {again}, {}", port.told()))
}

fn removed(calls: Calls) -> io::Result<String> {
    let port = Port::new(calls);
    let (socket, other) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    let remove = |socket: &UdpSocket| code(port.change(socket, 1, (REMOVE, 0, 0)));
    port.enable(&socket, 1, IN, LEVEL | ONESHOT);
    let (first, second) = (remove(&socket), remove(&socket));
    let packets = [port.told(), port.told()].join(", ");
    Ok(format!("{first}; {second}; {packets}; {}, {}", remove(&socket), remove(&other)))
}

fn nothing(calls: Calls) -> io::Result<String> {
    let (port, socket) = (Port::new(calls), UdpSocket::bind("127.0.0.1:0")?);
    Ok(format!("{}; {}", code(port.change(&socket, 1, (NONE, OUT, LEVEL))), port.told()))
}

fn level(calls: Calls) -> io::Result<String> {
    let port = Port::new(calls);
    let (near, mut far) = super::pair()?;
    far.write_all(b"x")?;
    pause(Duration::from_millis(20));
    port.enable(&near, 1, IN, LEVEL | ONESHOT);
    let first = [port.told(), port.told()].join(", ");
    port.enable(&near, 1, IN, LEVEL | ONESHOT);
    Ok(format!("{first}; {}", port.told()))
}

fn ended(calls: Calls) -> io::Result<String> {
    let mut seen = Vec::new();
    for data in [&b""[..], b"x"] {
        let port = Port::new(calls);
        let (near, mut far) = super::pair()?;
        far.write_all(data)?;
        far.shutdown(Shutdown::Write)?;
        pause(Duration::from_millis(20));
        port.enable(&near, 1, IN | HANGUP, LEVEL | ONESHOT);
        seen.push(port.told());
    }
    Ok(seen.join("; "))
}

/// A non-blocking stream that is not connected.
fn unconnected() -> io::Result<OwnedSocket> {
    // SAFETY: socket demands nothing of memory.
    let number = unsafe { socket(AF_INET.into(), SOCK_STREAM, 0) };
    if number == INVALID_SOCKET {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `from_raw_socket` demands an open socket that nothing else owns.
    // - the call has just returned it.
    let made = unsafe { OwnedSocket::from_raw_socket(number.try_into().expect("a number")) };
    let mut on = 1;
    // SAFETY: this request of ioctlsocket reads one number through its argument.
    // - the socket is open; `on` is a number of this function.
    if unsafe { ioctlsocket(number, FIONBIO, &raw mut on) } == 0 {
        Ok(made)
    } else {
        Err(io::Error::last_os_error())
    }
}

/// A stream that starts to connect to an address without a listener.
fn refused() -> io::Result<OwnedSocket> {
    let refused = unconnected()?;
    let free = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let address = SOCKADDR_IN {
        sin_family: AF_INET,
        sin_port: free.to_be(),
        sin_addr: IN_ADDR { S_un: IN_ADDR_0 { S_addr: u32::from_ne_bytes([127, 0, 0, 1]) } },
        sin_zero: [0; 8],
    };
    // SAFETY: connect reads the given number of bytes at the pointer.
    // - valid: `address` is a local of that size; the socket is open.
    unsafe { connect(number(&refused), (&raw const address).cast(), SIZES.0) };
    Ok(refused)
}

/// The number of a socket, in the calls' type.
fn number(socket: &impl AsRawSocket) -> usize {
    socket.as_raw_socket().try_into().expect("a socket is an address wide")
}

/// Closes a stream so that its peer gets a reset.
fn reset(stream: TcpStream) {
    let hard = LINGER { l_onoff: 1, l_linger: 0 };
    // SAFETY: setsockopt reads the given number of bytes at the pointer.
    // - valid: `hard` is a local of that size; the socket is open.
    unsafe {
        setsockopt(number(&stream), SOL_SOCKET, SO_LINGER, (&raw const hard).cast(), SIZES.1)
    };
    drop(stream);
}

fn failed(calls: Calls) -> io::Result<String> {
    let (port, refused) = (Port::new(calls), refused()?);
    port.enable(&refused, 1, OUT, LEVEL | ONESHOT);
    // Windows retries several times before it gives up.
    let first = port.next(5000).map_or_else(|| "nothing".to_owned(), |(_, events)| named(events));
    let port = Port::new(calls);
    let (near, far) = super::pair()?;
    reset(far);
    pause(Duration::from_millis(20));
    port.enable(&near, 1, OUT, LEVEL | ONESHOT);
    Ok(format!("{first}; {}", port.told()))
}

fn fresh(calls: Calls) -> io::Result<String> {
    let port = Port::new(calls);
    let stream = unconnected()?;
    port.enable(&stream, 1, IN | OUT | HANGUP, LEVEL | ONESHOT);
    let silent = port.told();
    let (port, datagrams) = (Port::new(calls), UdpSocket::bind("127.0.0.1:0")?);
    port.enable(&datagrams, 2, OUT, LEVEL | ONESHOT);
    Ok(format!("{silent}; {}", port.told()))
}

/// The memory of a pending receive. It belongs to the kernel until the receive has ended.
struct Receive {
    overlapped: OVERLAPPED,
    byte: u8,
}

/// Starts to receive a byte.
fn receive(near: &impl AsRawSocket) -> *mut Receive {
    let socket = usize::try_from(near.as_raw_socket()).expect("a socket is an address wide");
    let memory = Box::into_raw(Box::new(Receive { overlapped: OVERLAPPED::default(), byte: 0 }));
    // SAFETY: `&raw mut` of a field demands a pointer within an object.
    // - it is a box's.
    let overlapped = unsafe { &raw mut (*memory).overlapped };
    // SAFETY: as above.
    let buf = unsafe { &raw mut (*memory).byte };
    let (buffer, mut flags) = (WSABUF { len: 1, buf }, 0);
    // SAFETY: WSARecv reads the given number of buffers, and flags, before it returns. Until it has
    // ended, it writes to the buffer and to the OVERLAPPED.
    // - before it returns: both are locals;
    // - until it has ended: only `end` frees the memory, and only then.
    unsafe {
        WSARecv(socket, &raw const buffer, 1, ptr::null_mut(), &raw mut flags, overlapped, None)
    };
    memory
}

/// Ends a receive. If it does not end, its memory stays with the kernel.
fn end(near: &impl AsRawSocket, memory: *mut Receive) {
    let socket = usize::try_from(near.as_raw_socket()).expect("a socket is an address wide");
    // SAFETY: as in `receive`.
    let overlapped = unsafe { &raw const (*memory).overlapped };
    // SAFETY: CancelIoEx looks for a request that was made with this address, and does not access
    // that memory.
    unsafe { CancelIoEx(ptr::without_provenance_mut(socket), overlapped) };
    pause(Duration::from_millis(20));
    let (mut len, mut flags) = (0, 0);
    // SAFETY: WSAGetOverlappedResult reads an OVERLAPPED, and writes a count and flags. With this
    // argument it does not wait.
    // - valid: it is in a box that has not been freed; the others are locals.
    let done =
        unsafe { WSAGetOverlappedResult(socket, overlapped, &raw mut len, 0, &raw mut flags) };
    // SAFETY: WSAGetLastError demands nothing.
    if done != 0 || unsafe { WSAGetLastError() } != WSA_IO_INCOMPLETE {
        // SAFETY: `from_raw` demands a pointer of `into_raw` that nothing else uses.
        // - `receive` has created it, and it ends here.
        drop(unsafe { Box::from_raw(memory) });
    }
}

/// The library has sockets in both ways on one port, and distinguishes their packets as here.
fn associated(calls: Calls) -> io::Result<String> {
    let (port, other) = (Port::new(calls), Port::new(calls));
    let (near, mut far) = super::pair()?;
    let enabled = code(port.enable(&near, 1, IN, LEVEL | ONESHOT));
    let joined = code(port.associate(&near, 2));
    let memory = receive(&near);
    far.write_all(b"x")?;
    let told = [port.origin(), port.origin()].join(", ");
    far.write_all(b"y")?;
    let later = port.origin();
    end(&near, memory);
    let (near, _far) = super::pair()?;
    port.enable(&near, 1, IN, LEVEL | ONESHOT);
    let elsewhere = code(other.associate(&near, 2));
    let (near, _far) = super::pair()?;
    port.associate(&near, 2);
    let after = code(port.enable(&near, 1, IN, LEVEL | ONESHOT));
    let (near, _far) = super::pair()?;
    port.associate(&near, 2);
    let apart = code(other.enable(&near, 1, IN, LEVEL | ONESHOT));
    Ok(format!("{enabled}, {joined}, {told}, {later}; {elsewhere}; {after}, {apart}"))
}

fn posts(calls: Calls) -> io::Result<String> {
    let port = Port::new(calls);
    thread::scope(|scope| {
        let waits = || port.next(5000).map_or(0, |(_, number)| number);
        let first = scope.spawn(waits);
        pause(Duration::from_millis(50));
        let last = scope.spawn(waits);
        pause(Duration::from_millis(50));
        for number in [3, 4, 5] {
            port.post(number);
        }
        let taken = [first, last].map(|waiter| waiter.join().expect("it takes a packet"));
        Ok(format!("{} to the first, {} to the last; {} is left", taken[0], taken[1], waits()))
    })
}
