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

/// What must be seen of a rule here, if it is not what the trial says. `docs/SEMANTICS.md` has the reasons, by rule; the
/// codes of errors are those of Winsock.
pub(crate) fn in_other_words(rule: u8) -> Option<&'static str> {
    Some(match rule {
        // The polls of the default back end repeat an edge.
        21 => "notified IN; notified IN; notified IN",
        24 => "HANGUP; IN; HANGUP",
        25 if is_wine() => "ERR, no OUT; nothing of the unreachable peer",
        // There is something to receive, and the receive fails.
        25 => "ERR, no OUT; no error, fetched: nothing",
        39 => "posted 2 for the other, when it goes on",
        57 => "done: connected; done: code 10061",
        69 => "it waits",
        _ => return None,
    })
}

/// Whether a datagram socket hears that its peer cannot be reached.
pub(crate) fn tells_of_unreachable_peers() -> bool {
    !is_wine()
}

/// What can be done about an address that another socket has.
pub(crate) const TAKEN: &str =
    "; `netstat -ano` shows which process has it; port 0 takes a free one";
/// What can be done about an address that is none of this machine.
pub(crate) const NOT_HERE: &str = "; `ipconfig` shows which addresses this machine has";
/// What can be done about an address that is denied.
pub(crate) const DENIED: &str = "; another program may have it for itself alone, or the system has set it aside: \
     `netsh interface ipv4 show excludedportrange tcp`; port 0 takes a free one";

/// Whether a name stands for no address, or nothing could tell.
pub(crate) fn is_unknown_name(error: &io::Error) -> bool {
    has_code(error, &[WSAHOST_NOT_FOUND, WSATRY_AGAIN, WSANO_RECOVERY, WSANO_DATA])
}

/// A listener at the first of the addresses that can be had. One of IPv6 takes connections over IPv4 as well.
pub(crate) fn listener(addresses: &[SocketAddr]) -> io::Result<TcpListener> {
    let socket = bound(addresses, Type::STREAM)?;
    // As many connections may wait as those of the standard library let.
    socket.listen(128)?;
    Ok(socket.into())
}

/// The same for datagrams.
pub(crate) fn datagram_socket(addresses: &[SocketAddr]) -> io::Result<UdpSocket> {
    bound(addresses, Type::DGRAM).map(UdpSocket::from)
}

/// A socket of IPv6 is for IPv6 alone here, unless it is told otherwise.
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

/// Two streams that are connected with each other.
pub(crate) fn pair() -> io::Result<(Stream, Stream)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let far = listener.accept()?.0;
    // What is written is on its way at once, as it is between sockets of Unix.
    near.set_nodelay(true)?;
    far.set_nodelay(true)?;
    Ok((near, far))
}

/// How a server of this process is told to end, and to print numbers.
pub(crate) fn how_to_tell() -> String {
    "Ctrl-C or Ctrl-Break ends it; `--stats` prints numbers".to_owned()
}

fn has_code(error: &io::Error, codes: &[i32]) -> bool {
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Whether the process, or the system, has no descriptor left.
pub(crate) fn is_descriptor_limit(error: &io::Error) -> bool {
    has_code(error, &[WSAEMFILE, ERROR_TOO_MANY_OPEN_FILES.cast_signed()])
}

/// Whether descriptors or memory are short.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    is_descriptor_limit(error)
        || has_code(error, &[WSAENOBUFS, ERROR_NOT_ENOUGH_MEMORY.cast_signed()])
}

/// Whether a connect goes on by itself.
pub(crate) fn is_under_way(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// How many descriptors the process may have. No number is set here.
pub(crate) fn descriptor_limit() -> Option<u64> {
    None
}

/// Whether the terminal at standard output obeys escape sequences. Older consoles do when they are asked to.
pub(crate) fn obeys_sequences() -> bool {
    // SAFETY: GetStdHandle demands nothing.
    let output = unsafe { GetStdHandle(STD_OUTPUT_HANDLE) };
    let mut mode = 0;
    // SAFETY: GetConsoleMode refuses what is no console, and writes a number.
    // - valid for writes: `mode` is a number of this function.
    if unsafe { GetConsoleMode(output, &raw mut mode) } == 0 {
        return false;
    }
    // SAFETY: SetConsoleMode refuses what is no console.
    unsafe { SetConsoleMode(output, mode | ENABLE_VIRTUAL_TERMINAL_PROCESSING) != 0 }
}

/// Runs another program to its end in the place of this one. Returns only if it cannot.
pub(crate) fn run_instead(command: &mut Command) -> io::Error {
    // Ctrl-C is for the other one, whose end is this one's. It has no part in this handler.
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

/// How many bytes the system has of a connection that were received and not read. It does not tell how many were sent and
/// not taken by the peer's system: those are delivered all the same after a close, unless the peer sends more.
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

/// By what number the system knows a socket.
#[allow(clippy::useless_conversion, reason = "it has 32 bits where addresses have")]
pub(crate) fn number(socket: &Stream) -> u64 {
    socket.as_raw_socket().into()
}

/// Nothing but sockets can be registered.
pub(crate) fn register_others(_: &Plain) -> Result<(), Box<dyn Error>> {
    Ok(())
}
