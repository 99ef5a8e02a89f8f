//! What the benchmark asks of Linux.

use std::fs;
use std::io::{self, Read as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
pub(crate) use std::os::fd::AsFd as IsSocket;
use std::os::fd::{AsFd, BorrowedFd};
pub(crate) use std::os::unix::net::UnixStream as Paired;
use std::path::PathBuf;
use std::process::ChildStdout;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_socket_linger, set_socket_recv_buffer_size, set_socket_send_buffer_size,
};
use rustix::net::{
    AddressFamily, SocketFlags, SocketType, accept_with, bind, connect, listen, socket_with,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{
    CpuSet, current_timer_slack, sched_getaffinity, sched_setaffinity, set_current_timer_slack,
};

pub(crate) use self::alone::{
    benches, crowd, enter_sandbox, handover, instructions, is_runtime, memory, perform, program,
    runtimes, runtimes_described, start_beside,
};
pub(crate) use self::counters::Counters;
pub(crate) use self::listening::Listening;
pub(crate) use self::set::Set;
pub(crate) use self::uncached::read_uncached;
use super::Switches;
use crate::contenders::nonblocking::{Connection, Family, Owning, Peer};
pub(crate) use crate::files::Reading as Aside;
use crate::machine::Hardware;
use crate::processor_time::Clock;

mod alone;
mod counters;
mod listening;
mod set;
mod uncached;

pub(crate) const NAME: &str = "Linux";

/// The scenarios that are not measured here.
pub(super) const LACKS: [(&str, &str); 0] = [];

// ---- the machine ----

pub(crate) fn hardware() -> Hardware {
    let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    Hardware {
        processor: field(&cpuinfo, "model name").map(str::to_owned),
        memory_mib: field(&meminfo, "MemTotal")
            .and_then(|size| Some(size.split_whitespace().next()?.parse::<u64>().ok()? / 1024)),
        is_virtual: field(&cpuinfo, "flags")
            .is_some_and(|flags| flags.split_whitespace().any(|flag| flag == "hypervisor")),
    }
}

/// The value of the first line `name : value`.
fn field<'t>(text: &'t str, name: &str) -> Option<&'t str> {
    text.lines().find_map(|line| {
        let (head, value) = line.split_once(':')?;
        (head.trim() == name).then(|| value.trim())
    })
}

/// The version of the kernel.
pub(crate) fn kernel() -> Option<String> {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
    Some(release.trim().to_owned())
}

/// Descriptors that each process may have, if there is a limit.
pub(crate) fn most_descriptors() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// From now on this process may have as many as it may allow itself.
pub(crate) fn raise_limit_of_descriptors() -> io::Result<()> {
    let limits = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limits.maximum, ..limits })?;
    Ok(())
}

/// The processors that this process may use, by their numbers.
pub(crate) fn usable_processors() -> io::Result<Vec<usize>> {
    let allowed = sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}

/// The calling thread runs on that processor alone from now on.
pub(crate) fn stay_on(processor: usize) -> io::Result<()> {
    let mut only = CpuSet::new();
    only.set(processor);
    sched_setaffinity(None, &only)?;
    Ok(())
}

// ---- the process ----

/// By the C library, since `rustix` looks for the kernel's vDSO, which valgrind hides.
pub(crate) fn processor_time(clock: Clock) -> Duration {
    let clock = match clock {
        Clock::Thread => libc::CLOCK_THREAD_CPUTIME_ID,
        Clock::Process => libc::CLOCK_PROCESS_CPUTIME_ID,
    };
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime(2) writes one timespec at the pointer.
    // - valid for writes: `time` lives until the call returns. These clocks always exist.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Those of all threads of this process.
pub(crate) fn switches() -> Option<Switches> {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::uninit();
    // SAFETY: getrusage(2) writes one structure at the pointer.
    // - valid for writes: `usage` lives until the call returns.
    let done = unsafe { libc::getrusage(libc::RUSAGE_SELF, usage.as_mut_ptr()) };
    if done != 0 {
        return None;
    }
    // SAFETY: `assume_init` demands a value.
    // - the call has succeeded, and has written it.
    let usage = unsafe { usage.assume_init() };
    Some(Switches {
        voluntary: u64::try_from(usage.ru_nvcsw).unwrap_or(0),
        involuntary: u64::try_from(usage.ru_nivcsw).unwrap_or(0),
    })
}

/// Resident memory of this process, in bytes.
pub(crate) fn resident() -> io::Result<u64> {
    let text = fs::read_to_string("/proc/self/statm")?;
    let pages = text.split_whitespace().nth(1).and_then(|pages| pages.parse::<u64>().ok());
    let pages = pages.ok_or_else(|| io::Error::other("statm has another form than expected"))?;
    Ok(pages * rustix::param::page_size() as u64)
}

/// While this exists, the calling thread's waits end at their time. Usually the kernel may end them
/// 50 microseconds later.
pub(crate) struct Punctual(Option<NonZeroU64>);

pub(crate) fn be_punctual() -> Punctual {
    let usual = current_timer_slack().ok().and_then(NonZeroU64::new);
    // Without it, every contender's latencies are a little longer.
    let _ = set_current_timer_slack(Some(NonZeroU64::MIN));
    Punctual(usual)
}

impl Drop for Punctual {
    fn drop(&mut self) {
        // Servers that this thread starts have the usual value.
        let _ = set_current_timer_slack(self.0);
    }
}

/// The threads of this process.
pub(crate) fn threads() -> Option<u64> {
    let status = fs::read_to_string("/proc/self/status").ok()?;
    field(&status, "Threads")?.parse().ok()
}

/// What starts this program once more. Not by its name: the file may have been replaced meanwhile by a newer build.
pub(crate) fn own_program() -> PathBuf {
    "/proc/self/exe".into()
}

/// What another process writes.
#[derive(Debug)]
pub(crate) struct Output(ChildStdout);

impl Output {
    pub(crate) fn of(output: ChildStdout) -> Self {
        Output(output)
    }

    /// The next data, empty at the end; `None` after a timeout.
    pub(crate) fn more(&mut self, time: Duration) -> io::Result<Option<Vec<u8>>> {
        let timeout = Timespec::try_from(time).map_err(io::Error::other)?;
        let mut wanted = [PollFd::new(&self.0, PollFlags::IN)];
        match poll(&mut wanted, Some(&timeout)) {
            Ok(0) => return Ok(None),
            // A signal: as much of the time as is left begins again.
            Err(Errno::INTR) => return self.more(time),
            Err(error) => return Err(error.into()),
            Ok(_) => {}
        }
        let mut bytes = vec![0; 1024];
        let count = self.0.read(&mut bytes)?;
        bytes.truncate(count);
        Ok(Some(bytes))
    }
}

// ---- sockets ----

impl<F: Family> AsFd for Peer<F> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Peer::Connection(connection) => connection.as_fd(),
            Peer::Listener(listener) => listener.as_fd(),
            Peer::Datagrams(socket) => socket.as_fd(),
        }
    }
}

impl AsFd for Owning {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.peer.as_fd()
    }
}

impl<S: AsFd> AsFd for Connection<S> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream().as_fd()
    }
}

/// Two connected sockets.
pub(crate) fn pair() -> io::Result<(Paired, Paired)> {
    Paired::pair()
}

/// The next connection, in non-blocking mode, which is set by the same call.
pub(crate) fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
    Ok(accept_with(listener, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK)?.into())
}

/// A listener with a longer backlog than the standard library's, and with this receive buffer size.
pub(crate) fn listener(room: Option<usize>) -> io::Result<TcpListener> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    if let Some(room) = room {
        set_socket_recv_buffer_size(&socket, room)?;
    }
    bind(&socket, &SocketAddr::from(([127, 0, 0, 1], 0)))?;
    listen(&socket, 4096)?;
    Ok(socket.into())
}

pub(crate) fn connect_from(source: Ipv4Addr, server: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddr::from((source, 0)))?;
    connect(&socket, &server)?;
    Ok(socket.into())
}

/// A connection under way, in non-blocking mode, which ends by a reset when it is closed.
pub(crate) fn connecting(server: SocketAddr) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None)?;
    set_socket_linger(&socket, Some(Duration::ZERO))?;
    match connect(&socket, &server) {
        Ok(()) | Err(Errno::INPROGRESS) => Ok(socket.into()),
        Err(error) => Err(error.into()),
    }
}

pub(crate) fn reset_when_closed(stream: &TcpStream) -> io::Result<()> {
    Ok(set_socket_linger(stream, Some(Duration::ZERO))?)
}

pub(crate) fn room_to_send(stream: &TcpStream, room: usize) -> io::Result<()> {
    Ok(set_socket_send_buffer_size(stream, room)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "MemTotalX: 1\nMemTotal:  4025 kB\n";
        assert_eq!(field(text, "MemTotal"), Some("4025 kB"));
        assert_eq!(field(text, "Mem"), None);
    }
}
