//! The library's undocumented assumptions about the call.

use std::io::{self, Write as _};
use std::net::{TcpStream, UdpSocket};
use std::os::windows::io::AsRawSocket;
use std::ptr;
use std::thread;
use std::time::Duration;

use windows_sys::Win32::Networking::WinSock::{
    SO_CONNECT_TIME, SOL_SOCKET, WSABUF, WSASend, getsockopt,
};
use windows_sys::Win32::System::IO::OVERLAPPED;

use super::super::pair;
use super::{
    Calls, EDGE, IN, LEVEL, ONESHOT, OUT, PERSISTENT, Port, REMOVE, SOON, Trial, code, named,
    number, pause, refused, reset, unconnected,
};

/// Trials, with the observation that would confirm the library.
pub(super) const TRIALS: [(Trial, &str); 8] = [
    (
        (10, "an empty filter: enabled; data, the peer's end; a reset", nothing_asked),
        "done; nothing; ERR, with or without others",
    ),
    (
        (12, "a thread sleeps in the call: a socket is enabled, and once more", beside_a_sleeper),
        "OUT; OUT",
    ),
    (
        (14, "enabled between REMOVE and its packet; once that was taken", before_the_last_packet),
        "a code, REMOVE; done, OUT",
    ),
    (
        (21, "EDGE of room and of data that are there; of more data; enabled again", edges),
        "nothing, nothing; IN; nothing",
    ),
    (
        (25, "SO_CONNECT_TIME: not connected, refused, connected, reset", connect_times),
        "never, never, some time, some time",
    ),
    (
        (
            28,
            "registered and associated: one port, a receive, two bytes; two ports; the same, associated first",
            super::associated,
        ),
        "done, done, 1 bytes of key 2 beside IN of key 1 or nothing, IN of key 1; any code; done, any code",
    ),
    (
        (30, "closed without REMOVE; its number enabled again; on another port", reused),
        "nothing; done, OUT of the new one; refused",
    ),
    (
        (50, "enabled, and associated too: with the same port; with another one", associated),
        "done, associated, sent: IN, an operation (1); done, associated or not",
    ),
];

/// The next packet: its conditions, and which socket's key it has.
fn of(port: &Port, names: [&str; 2]) -> String {
    match port.next(SOON) {
        Some((key @ 1..=2, events)) => format!("{} of {}", named(events), names[key - 1]),
        Some((key, events)) => format!("{} of the key {key}", named(events)),
        None => "nothing".to_owned(),
    }
}

/// The code of this thread's last failed call.
fn last_code() -> String {
    code(io::Error::last_os_error().raw_os_error().unwrap_or_default().cast_unsigned())
}

fn nothing_asked(calls: Calls) -> io::Result<String> {
    let port = Port::new(calls);
    let (near, mut far) = pair()?;
    let enabled = code(port.enable(&near, 1, 0, LEVEL | ONESHOT));
    far.write_all(b"x")?;
    drop(far);
    let ended = port.told();
    let port = Port::new(calls);
    let (near, far) = pair()?;
    port.enable(&near, 1, 0, LEVEL | ONESHOT);
    reset(far);
    Ok(format!("{enabled}; {ended}; {}", port.told()))
}

fn beside_a_sleeper(calls: Calls) -> io::Result<String> {
    let (port, socket) = (Port::new(calls), UdpSocket::bind("127.0.0.1:0")?);
    let told = || {
        thread::scope(|scope| {
            let sleeper = scope.spawn(|| port.told());
            pause(Duration::from_millis(50));
            port.enable(&socket, 1, OUT, LEVEL | ONESHOT);
            sleeper.join().expect("it waits for a moment")
        })
    };
    Ok(format!("{}; {}", told(), told()))
}

fn before_the_last_packet(calls: Calls) -> io::Result<String> {
    let (port, socket) = (Port::new(calls), UdpSocket::bind("127.0.0.1:0")?);
    port.enable(&socket, 1, IN, LEVEL | ONESHOT);
    port.change(&socket, 1, (REMOVE, 0, 0));
    let names = ["the former key", "the new key"];
    let again = code(port.enable(&socket, 2, OUT, LEVEL | ONESHOT));
    let packets = [of(&port, names), of(&port, names)].join(", ");
    let then = code(port.enable(&socket, 2, OUT, LEVEL | ONESHOT));
    Ok(format!("{again}, {packets}; {then}, {}", of(&port, names)))
}

fn edges(calls: Calls) -> io::Result<String> {
    let (port, socket) = (Port::new(calls), UdpSocket::bind("127.0.0.1:0")?);
    port.enable(&socket, 1, OUT, EDGE | PERSISTENT);
    let room = port.told();
    let port = Port::new(calls);
    let (near, mut far) = pair()?;
    far.write_all(b"x")?;
    pause(Duration::from_millis(20));
    let mut seen = Vec::new();
    port.enable(&near, 1, IN, EDGE | PERSISTENT);
    seen.push(format!("{room}, {}", port.told()));
    far.write_all(b"y")?;
    seen.push(port.told());
    // Discards packets queued before the next step.
    while port.next(0).is_some() {}
    port.enable(&near, 1, IN, EDGE | PERSISTENT);
    seen.push(port.told());
    Ok(seen.join("; "))
}

/// How long a socket has been connected.
fn connect_time(socket: &impl AsRawSocket) -> String {
    let (mut seconds, mut size) = (0_u32, 4);
    // SAFETY: getsockopt writes at most the number of bytes stored at the last pointer, and stores
    // their number there.
    // - valid: both are locals, and the first one has four bytes; the socket is open, since it is
    //   borrowed.
    let outcome = unsafe {
        getsockopt(
            number(socket),
            SOL_SOCKET,
            SO_CONNECT_TIME,
            (&raw mut seconds).cast(),
            &raw mut size,
        )
    };
    match (outcome, seconds) {
        (0, u32::MAX) => "never".to_owned(),
        (0, seconds) => format!("{seconds} s"),
        _ => last_code(),
    }
}

fn connect_times(calls: Calls) -> io::Result<String> {
    let (port, refused) = (Port::new(calls), refused()?);
    port.enable(&refused, 1, OUT, LEVEL | ONESHOT);
    port.next(5000);
    let (near, far) = pair()?;
    let connected = connect_time(&near);
    reset(far);
    pause(Duration::from_millis(20));
    let silent = connect_time(&unconnected()?);
    Ok([silent, connect_time(&refused), connected, connect_time(&near)].join(", "))
}

fn reused(calls: Calls) -> io::Result<String> {
    let (port, other) = (Port::new(calls), Port::new(calls));
    let former = UdpSocket::bind("127.0.0.1:0")?;
    let number = former.as_raw_socket();
    port.enable(&former, 1, OUT | IN, LEVEL | ONESHOT);
    while port.next(SOON).is_some() {}
    drop(former);
    let names = ["the former one", "the new one"];
    let closed = of(&port, names);
    let mut sockets = Vec::new();
    for _ in 0..200 {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        if socket.as_raw_socket() != number {
            sockets.push(socket);
            continue;
        }
        let again = code(port.enable(&socket, 2, OUT, LEVEL | ONESHOT));
        let told = of(&port, names);
        let elsewhere = code(other.enable(&socket, 2, OUT, LEVEL | ONESHOT));
        return Ok(format!("{closed}; {again}, {told}; {elsewhere}"));
    }
    Ok(format!("{closed}; not tried: no socket gets the number again"))
}

/// Sends a byte by an overlapped call.
fn send(socket: &TcpStream) -> String {
    static mut BYTE: u8 = b'x';
    let buffer = WSABUF { len: 1, buf: &raw mut BYTE };
    // It may end at any time.
    let overlapped: &mut OVERLAPPED = Box::leak(Box::default());
    let mut count = 0;
    // SAFETY: WSASend reads the given buffers, writes their count, and uses the OVERLAPPED and the
    // bytes until the operation ends.
    // - the buffer, the count: locals; the socket is open, since it is borrowed;
    // - the OVERLAPPED: it is never freed, and nothing else uses it; the byte: it is a static,
    //   which nothing writes to.
    let outcome = unsafe {
        WSASend(number(socket), &raw const buffer, 1, &raw mut count, 0, overlapped, None)
    };
    match outcome {
        0 => "sent".to_owned(),
        _ => last_code(),
    }
}

fn associated(calls: Calls) -> io::Result<String> {
    let mut seen = Vec::new();
    for is_one in [true, false] {
        let (port, other) = (Port::new(calls), Port::new(calls));
        let (near, mut far) = pair()?;
        let enabled = code(port.enable(&near, 1, IN, LEVEL | ONESHOT));
        let with = if is_one { &port } else { &other };
        let handle = ptr::without_provenance_mut(number(&near));
        // SAFETY: the call demands an open handle and a port that it knows, and accesses no memory.
        // - open: `near` is; known: `new` has created it.
        let joined = unsafe { (calls.create)(handle, with.handle, 2, 0) };
        let joined = if joined.is_null() {
            format!("associated: {}", last_code())
        } else {
            "associated".to_owned()
        };
        let sent = send(&near);
        far.write_all(b"x")?;
        let mut packets = Vec::new();
        for asked in [&port, &other] {
            while let Some((key, number)) = asked.next(SOON) {
                packets.push(match key {
                    1 => named(number),
                    2 => format!("an operation ({number})"),
                    _ => format!("the key {key}"),
                });
            }
        }
        packets.sort();
        seen.push(format!("{enabled}, {joined}, {sent}: {}", packets.join(", ")));
    }
    Ok(seen.join("; "))
}
