//! What the benchmark asks of Windows.

use std::fmt;
use std::io::{self, Read as _};
use std::mem::MaybeUninit;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
pub(crate) use std::os::windows::io::AsSocket as IsSocket;
use std::os::windows::io::{AsRawSocket as _, AsSocket, BorrowedSocket};
use std::path::PathBuf;
use std::process::ChildStdout;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use windows_sys::Wdk::System::SystemServices::RtlGetVersion;
use windows_sys::Win32::Foundation::{FILETIME, HANDLE};
use windows_sys::Win32::Networking::WinSock::{
    LINGER, SO_LINGER, SO_RCVBUF, SO_SNDBUF, SOCKET, SOL_SOCKET, setsockopt,
};
use windows_sys::Win32::System::ProcessStatus::{K32GetProcessMemoryInfo, PROCESS_MEMORY_COUNTERS};
use windows_sys::Win32::System::SystemInformation::{
    GlobalMemoryStatusEx, MEMORYSTATUSEX, OSVERSIONINFOW,
};
use windows_sys::Win32::System::Threading::{
    GetCurrentProcess, GetCurrentThread, GetProcessAffinityMask, GetProcessTimes, GetThreadTimes,
    SetThreadAffinityMask,
};

pub(crate) use self::alone::{
    Aside, Counters, benches, crowd, enter_sandbox, handover, instructions, is_runtime, memory,
    perform, program, runtimes, runtimes_described, start_beside,
};
pub(crate) use self::set::Set;
use super::Switches;
use crate::contenders::nonblocking::{Connection, Family, Owning, Peer};
use crate::machine::Hardware;
use crate::processor_time::Clock;

mod alone;
mod set;

pub(super) use self::alone::LACKS;

pub(crate) const NAME: &str = "Windows";

/// The two ends of a connection: the system has no socket pairs.
pub(crate) type Paired = TcpStream;

// ---- the machine ----

/// A pseudo-handle of this process, which is never closed.
fn this_process() -> HANDLE {
    // SAFETY: GetCurrentProcess has no demands.
    unsafe { GetCurrentProcess() }
}

/// A pseudo-handle of the calling thread, which is never closed.
fn this_thread() -> HANDLE {
    // SAFETY: GetCurrentThread has no demands.
    unsafe { GetCurrentThread() }
}

pub(crate) fn hardware() -> Hardware {
    let mut status = MEMORYSTATUSEX {
        dwLength: u32::try_from(size_of::<MEMORYSTATUSEX>()).unwrap_or(0),
        ..MEMORYSTATUSEX::default()
    };
    // SAFETY: GlobalMemoryStatusEx writes a structure of the length stored in it.
    // - valid for writes: `status` is a local, with its own length.
    let done = unsafe { GlobalMemoryStatusEx(&raw mut status) };
    Hardware {
        processor: std::env::var("PROCESSOR_IDENTIFIER").ok(),
        memory_mib: (done != 0).then_some(status.ullTotalPhys >> 20),
        is_virtual: false,
    }
}

/// The version of the system.
pub(crate) fn kernel() -> Option<String> {
    let mut version = OSVERSIONINFOW {
        dwOSVersionInfoSize: u32::try_from(size_of::<OSVERSIONINFOW>()).ok()?,
        ..OSVERSIONINFOW::default()
    };
    // SAFETY: RtlGetVersion writes a structure of the length stored in it.
    // - valid for writes: `version` is a local, with its own length.
    let status = unsafe { RtlGetVersion(&raw mut version) };
    let OSVERSIONINFOW { dwMajorVersion: major, dwMinorVersion: minor, dwBuildNumber, .. } =
        version;
    (status == 0).then(|| format!("{major}.{minor}.{dwBuildNumber}"))
}

/// Handles are limited by memory alone.
pub(crate) fn most_descriptors() -> Option<u64> {
    None
}

pub(crate) fn raise_limit_of_descriptors() -> io::Result<()> {
    Ok(())
}

/// The processors that this process may use, of its group, by their numbers.
pub(crate) fn usable_processors() -> io::Result<Vec<usize>> {
    let (mut usable, mut all) = (0, 0);
    // SAFETY: GetProcessAffinityMask writes a mask at each of its two pointers.
    // - valid for writes: both are locals. The handle is valid for this process.
    let done = unsafe { GetProcessAffinityMask(this_process(), &raw mut usable, &raw mut all) };
    if done == 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((0..usize::BITS as usize).filter(|number| usable >> number & 1 == 1).collect())
}

/// The calling thread runs on that processor alone from now on.
pub(crate) fn stay_on(processor: usize) -> io::Result<()> {
    // SAFETY: SetThreadAffinityMask has no demands on memory.
    // - the handle is valid for the calling thread.
    let former = unsafe { SetThreadAffinityMask(this_thread(), 1 << processor) };
    if former == 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

// ---- the process ----

/// In steps of the system's tick, as a rule.
pub(crate) fn processor_time(clock: Clock) -> Duration {
    let mut times = [FILETIME::default(); 4];
    let [begin, end, kernel, user] = &mut times;
    let (begin, end) = (&raw mut *begin, &raw mut *end);
    let (kernel, user) = (&raw mut *kernel, &raw mut *user);
    let done = match clock {
        // SAFETY: the call writes a time at each of its four pointers.
        // - valid for writes: they are those of a local. The handle is valid for this process or
        //   the calling thread.
        Clock::Process => unsafe { GetProcessTimes(this_process(), begin, end, kernel, user) },
        // SAFETY: as above.
        Clock::Thread => unsafe { GetThreadTimes(this_thread(), begin, end, kernel, user) },
    };
    if done == 0 {
        return Duration::ZERO;
    }
    // In units of 100 ns.
    let units =
        |time: FILETIME| u64::from(time.dwHighDateTime) << 32 | u64::from(time.dwLowDateTime);
    Duration::from_nanos((units(times[2]) + units(times[3])) * 100)
}

/// No call reports them.
pub(crate) fn switches() -> Option<Switches> {
    None
}

/// Waits end as usual.
pub(crate) struct Punctual;

pub(crate) fn be_punctual() -> Punctual {
    Punctual
}

pub(crate) fn threads() -> Option<u64> {
    None
}

/// No contender that is measured here reads a file.
pub(crate) fn read_uncached() -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// The working set of this process, in bytes.
pub(crate) fn resident() -> io::Result<u64> {
    let mut counters = PROCESS_MEMORY_COUNTERS::default();
    let size = u32::try_from(size_of::<PROCESS_MEMORY_COUNTERS>()).map_err(io::Error::other)?;
    // SAFETY: K32GetProcessMemoryInfo writes at most the given number of bytes at the pointer.
    // - valid for writes: `counters` is a local of that size. The handle is valid for this process.
    let done = unsafe { K32GetProcessMemoryInfo(this_process(), &raw mut counters, size) };
    if done == 0 { Err(io::Error::last_os_error()) } else { Ok(counters.WorkingSetSize as u64) }
}

/// The path for starting this program again. The system does not let it be replaced while it runs.
pub(crate) fn own_program() -> PathBuf {
    std::env::current_exe().unwrap_or_default()
}

/// Another process's output. Reading from a pipe has no timeout, so a separate thread does it.
pub(crate) struct Output(Receiver<io::Result<Vec<u8>>>);

impl fmt::Debug for Output {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Output").finish_non_exhaustive()
    }
}

impl Output {
    pub(crate) fn of(mut output: ChildStdout) -> Self {
        let (sender, receiver) = channel();
        // It ends with the process, or with the last one who listens.
        thread::spawn(move || {
            loop {
                let mut bytes = vec![0; 1024];
                let read = output.read(&mut bytes).map(|count| {
                    bytes.truncate(count);
                    bytes
                });
                let is_over = !matches!(&read, Ok(bytes) if !bytes.is_empty());
                if sender.send(read).is_err() || is_over {
                    return;
                }
            }
        });
        Output(receiver)
    }

    /// The next data, empty at the end; `None` after a timeout.
    pub(crate) fn more(&mut self, time: Duration) -> io::Result<Option<Vec<u8>>> {
        match self.0.recv_timeout(time) {
            Ok(read) => read.map(Some),
            Err(RecvTimeoutError::Timeout) => Ok(None),
            Err(RecvTimeoutError::Disconnected) => Ok(Some(Vec::new())),
        }
    }
}

// ---- sockets ----

impl<F: Family> AsSocket for Peer<F> {
    fn as_socket(&self) -> BorrowedSocket<'_> {
        match self {
            Peer::Connection(connection) => connection.as_socket(),
            Peer::Listener(listener) => listener.as_socket(),
            Peer::Datagrams(socket) => socket.as_socket(),
        }
    }
}

impl AsSocket for Owning {
    fn as_socket(&self) -> BorrowedSocket<'_> {
        self.peer.as_socket()
    }
}

impl<S: AsSocket> AsSocket for Connection<S> {
    fn as_socket(&self) -> BorrowedSocket<'_> {
        self.stream().as_socket()
    }
}

/// Two connected sockets.
pub(crate) fn pair() -> io::Result<(Paired, Paired)> {
    let listener = listener(None)?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    Ok((near, far))
}

/// The next connection, in non-blocking mode.
pub(crate) fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    let (stream, _) = listener.accept()?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

/// A listener whose connections have this receive buffer size.
pub(crate) fn listener(room: Option<usize>) -> io::Result<TcpListener> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    if let Some(room) = room {
        set_room(&listener, SO_RCVBUF, room)?;
    }
    Ok(listener)
}

/// The system has more port numbers for one address than there are connections.
pub(crate) fn connect_from(_: Ipv4Addr, server: SocketAddr) -> io::Result<TcpStream> {
    TcpStream::connect(server)
}

/// A connection in non-blocking mode, which ends by a reset when it is closed.
pub(crate) fn connecting(server: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(server)?;
    reset_when_closed(&stream)?;
    stream.set_nonblocking(true)?;
    Ok(stream)
}

pub(crate) fn reset_when_closed(stream: &TcpStream) -> io::Result<()> {
    set(stream, SO_LINGER, LINGER { l_onoff: 1, l_linger: 0 })
}

pub(crate) fn room_to_send(stream: &TcpStream, room: usize) -> io::Result<()> {
    set_room(stream, SO_SNDBUF, room)
}

fn set_room(socket: &impl AsSocket, option: i32, room: usize) -> io::Result<()> {
    set(socket, option, i32::try_from(room).map_err(io::Error::other)?)
}

/// As the system's calls take it.
fn number(socket: &impl AsSocket) -> SOCKET {
    usize::try_from(socket.as_socket().as_raw_socket()).unwrap_or(SOCKET::MAX)
}

/// Sets an option, whose value is a plain number or a structure of such.
fn set<T: Copy>(socket: &impl AsSocket, option: i32, value: T) -> io::Result<()> {
    let size = i32::try_from(size_of::<T>()).map_err(io::Error::other)?;
    let place = MaybeUninit::new(value);
    // SAFETY: setsockopt reads that many bytes at the pointer.
    // - valid for reads: they are those of a local, which has been written.
    let result =
        unsafe { setsockopt(number(socket), SOL_SOCKET, option, place.as_ptr().cast(), size) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Where a server is reached that accepts by its own means: one listener, whose handle is duplicated.
#[derive(Debug)]
pub(crate) struct Listening(TcpListener);

impl Listening {
    /// On a separate port.
    pub(crate) fn new() -> io::Result<Self> {
        listener(None).map(Listening)
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)))
    }

    /// The listener, in non-blocking mode.
    pub(crate) fn listener(&self) -> io::Result<TcpListener> {
        let listener = self.0.try_clone()?;
        listener.set_nonblocking(true)?;
        Ok(listener)
    }
}
