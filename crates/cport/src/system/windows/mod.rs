//! Windows.

use std::error::Error;
use std::io;
use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::windows::io::{AsRawSocket as _, AsSocket};
use std::process::{self, Command};

use socket2::{Domain, Socket, Type};
use windows_sys::Win32::Foundation::{ERROR_NOT_ENOUGH_MEMORY, ERROR_TOO_MANY_OPEN_FILES};
use windows_sys::Win32::Networking::WinSock::{
    FIONREAD, WSAEMFILE, WSAENOBUFS, WSAHOST_NOT_FOUND, WSANO_DATA, WSANO_RECOVERY, WSATRY_AGAIN,
    ioctlsocket,
};
use windows_sys::Win32::System::Console::{
    ENABLE_VIRTUAL_TERMINAL_PROCESSING, GetConsoleMode, GetStdHandle, STD_OUTPUT_HANDLE,
    SetConsoleCtrlHandler, SetConsoleMode,
};
use windows_sys::core::BOOL;

use crate::probe::kit::Plain;

mod facts;
pub(crate) mod forks;
mod reference;
mod signals;

use facts::is_wine;
pub(crate) use facts::{facts, kernel, waits};
pub(crate) use reference::reference;
pub(crate) use signals::{Signals, Waker};

/// A stream to another socket of this machine.
pub(crate) type Stream = TcpStream;

/// The expectation of a rule on this system, if it differs from the trial's. `docs/SEMANTICS.md`
/// has the reasons, by rule; error codes are Winsock's.
pub(crate) fn in_other_words(rule: u8) -> Option<&'static str> {
    Some(match rule {
        // The polls of the default back end repeat an edge.
        21 => "notified IN; notified IN; notified IN",
        24 => "HANGUP; IN; HANGUP",
        25 if is_wine() => "ERR, no OUT; nothing of the unreachable peer",
        // Data is available, and the receive fails.
        25 => "ERR, no OUT; no error, fetched: nothing",
        39 => "posted 2 for the other, when it goes on",
        57 => "done: connected; done: code 10061",
        69 => "it waits",
        _ => return None,
    })
}

/// Whether a datagram socket reports an unreachable peer.
pub(crate) fn tells_of_unreachable_peers() -> bool {
    !is_wine()
}

/// Advice if another socket has the address.
pub(crate) const TAKEN: &str =
    "; `netstat -ano` shows which process has it; port 0 takes a free one";
/// Advice if the address is not one of this machine.
pub(crate) const NOT_HERE: &str = "; `ipconfig` shows which addresses this machine has";
/// Advice if the address is denied.
pub(crate) const DENIED: &str = "; another program may use it exclusively, or the system has \
     reserved it: `netsh interface ipv4 show excludedportrange tcp`; port 0 takes a free one";

/// Whether a name has no address, or could not be resolved.
pub(crate) fn is_unknown_name(error: &io::Error) -> bool {
    has_code(error, &[WSAHOST_NOT_FOUND, WSATRY_AGAIN, WSANO_RECOVERY, WSANO_DATA])
}

/// A listener on the first address that can be bound. An IPv6 listener also accepts IPv4.
pub(crate) fn listener(addresses: &[SocketAddr]) -> io::Result<TcpListener> {
    let socket = bound(addresses, Type::STREAM)?;
    // The same backlog as in the standard library.
    socket.listen(128)?;
    Ok(socket.into())
}

/// The same for datagrams.
pub(crate) fn datagram_socket(addresses: &[SocketAddr]) -> io::Result<UdpSocket> {
    bound(addresses, Type::DGRAM).map(UdpSocket::from)
}

/// IPv6 sockets do not accept IPv4 here by default.
fn bound(addresses: &[SocketAddr], kind: Type) -> io::Result<Socket> {
    let mut outcome = Err(io::Error::new(io::ErrorKind::InvalidInput, "no address"));
    for address in addresses {
        outcome = Socket::new(Domain::for_address(*address), kind, None).and_then(|socket| {
            if address.is_ipv6() {
                socket.set_only_v6(false)?;
            }
            socket.bind(&(*address).into())?;
            Ok(socket)
        });
        if outcome.is_ok() {
            break;
        }
    }
    outcome
}

/// Two streams connected to each other.
pub(crate) fn pair() -> io::Result<(Stream, Stream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = listener.accept()?.0;
    // Sends data immediately, as Unix sockets do.
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

/// How to end a server of this process, and make it print numbers.
pub(crate) fn how_to_tell() -> String {
    "Ctrl-C or Ctrl-Break ends it; `--stats` prints numbers".to_owned()
}

fn has_code(error: &io::Error, codes: &[i32]) -> bool {
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Whether the process or the system has run out of descriptors.
pub(crate) fn is_descriptor_limit(error: &io::Error) -> bool {
    has_code(error, &[WSAEMFILE, ERROR_TOO_MANY_OPEN_FILES.cast_signed()])
}

/// Whether descriptors or memory are short.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    is_descriptor_limit(error)
        || has_code(error, &[WSAENOBUFS, ERROR_NOT_ENOUGH_MEMORY.cast_signed()])
}

/// Whether a connection waits to be accepted, after a failed accept. Here that means that one does.
pub(crate) fn has_waiting(_: &TcpListener) -> bool {
    true
}

/// Whether a connect is in progress.
pub(crate) fn is_under_way(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// The process's limit on descriptors. This system has none.
pub(crate) fn descriptor_limit() -> Option<u64> {
    None
}

/// Whether the terminal at standard output supports escape sequences. Older consoles have to be
/// switched.
pub(crate) fn obeys_sequences() -> bool {
    // SAFETY: GetStdHandle demands nothing.
    let output = unsafe { GetStdHandle(STD_OUTPUT_HANDLE) };
    let mut mode = 0;
    // SAFETY: GetConsoleMode fails if it is not a console, and writes a number.
    // - valid for writes: `mode` is a number of this function.
    if unsafe { GetConsoleMode(output, &raw mut mode) } == 0 {
        return false;
    }
    // SAFETY: SetConsoleMode fails if it is not a console.
    unsafe { SetConsoleMode(output, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING) != 0 }
}

/// Runs another program to its end instead of this one. Returns only if it cannot.
pub(crate) fn run_instead(command: &mut Command) -> io::Error {
    // Ignores Ctrl-C, which the other program handles. This one ends with it.
    unsafe extern "system" fn ignore(_kind: u32) -> BOOL {
        1
    }
    // SAFETY: SetConsoleCtrlHandler demands a function that may be called by any thread until the process ends.
    // - any thread, until the end: `ignore` is a function of this program, and uses nothing.
    unsafe { SetConsoleCtrlHandler(Some(ignore), 1) };
    match command.status() {
        Ok(status) => process::exit(status.code().unwrap_or(1)),
        Err(error) => error,
    }
}

/// Number of bytes of a connection in the system that were received but not read. It does not
/// report those sent but not acknowledged, which are delivered even after a close, unless the peer
/// sends more.
pub(crate) fn left_in_system(socket: impl AsSocket) -> u64 {
    let socket = socket.as_socket().as_raw_socket();
    let mut bytes = 0;
    // SAFETY: this request of ioctlsocket writes one number through its argument.
    // - the socket: it is open, since it is borrowed;
    // - valid for writes: `bytes` is a number of this function.
    let outcome = unsafe {
        ioctlsocket(
            socket.try_into().expect("a socket is an address wide"),
            FIONREAD,
            &raw mut bytes,
        )
    };
    if outcome == 0 { bytes.into() } else { 0 }
}

/// The system's number of a socket.
#[allow(clippy::useless_conversion, reason = "it has 32 bits where addresses have")]
pub(crate) fn number(socket: &Stream) -> u64 {
    socket.as_raw_socket().into()
}

/// Only sockets can be registered.
pub(crate) fn register_others(_: &Plain) -> Result<(), Box<dyn Error>> {
    Ok(())
}
