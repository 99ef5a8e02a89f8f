//! The queries to Linux, and to the kernel that simulates it.
//!
//! The line of a step has these fields:
//! - what an edge-triggered `EPOLLIN | EPOLLOUT | EPOLLRDHUP` entry reported since the step before
//!   (`-`: nothing)
//! - what entries without `EPOLLOUT` (`in`), without `EPOLLIN` (`out`) and without either (`end`)
//!   reported
//! - the current result of `poll(2)`
//! - the result of the ioctl `FIONREAD` (`-`: not supported)
//! - the state of a TCP socket that is or was connected

use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::Duration;

use completion_port::sim;
use testkit::{Socket, System};

use super::{Recorder, objects_of_linux};

pub(super) const RECORD: &str = include_str!("linux.txt");

/// Returns why there is no record to compare the system with. Linux always has one.
pub(super) fn no_record(_: &System) -> Option<&'static str> {
    None
}

/// The machine's kernel counts as settled after this long without an event.
const QUIET: Duration = Duration::from_millis(3);

/// How long to wait without a record.
pub(super) const PATIENCE: Duration = QUIET;

/// An epoll entry belongs to the object and lasts while that has any descriptor.
pub(super) const WATCHES_OUTLIVE_HANDLES: bool = true;

/// A listener that is shut down stops listening, and can be connected.
pub(super) const LISTENERS_ARE_SHUT: bool = true;

/// A listener with a backlog of 0 has room for one connection. Further connects wait.
pub(super) const QUEUES_ARE_FULL: bool = true;

/// The error codes in the record, with their names.
pub(super) const CODES: &[(i32, &str)] = &[
    (libc::EAGAIN, "EAGAIN"),
    (libc::ECONNABORTED, "ECONNABORTED"),
    (libc::ECONNREFUSED, "ECONNREFUSED"),
    (libc::ECONNRESET, "ECONNRESET"),
    (libc::EINVAL, "EINVAL"),
    (libc::EISCONN, "EISCONN"),
    (libc::ENOTCONN, "ENOTCONN"),
    (libc::EPIPE, "EPIPE"),
];

/// Plays the scenarios that only Linux has.
pub(super) fn play_others(r: &mut Recorder<'_>) {
    objects_of_linux::play(r);
}

/// Waits until something can be read or accepted, or until `limit` has passed. A simulated kernel
/// has no delays.
pub(super) fn await_readable(socket: &Socket, limit: Duration) {
    if socket.as_simulated().is_some() {
        return;
    }
    let mut question = libc::pollfd { fd: socket.number(), events: libc::POLLIN, revents: 0 };
    let limit = i32::try_from(limit.as_micros().div_ceil(1000)).expect("short");
    // SAFETY: poll(2) reads and writes one `pollfd` at the pointer.
    // - valid: `question` lives until the call returns.
    checked(unsafe { libc::poll(&raw mut question, 1, limit) });
}

/// The edges of one watched descriptor.
enum Set {
    Native(OwnedFd),
    Simulated(sim::Watcher),
}

/// The conditions that the four sets on an object watch for.
fn wanted() -> [sim::Conditions; 4] {
    let (read, write) = (sim::Conditions::IN, sim::Conditions::OUT);
    [read | write, read, write, sim::Conditions::NONE]
}

#[allow(clippy::cast_sign_loss, reason = "sets of bits that libc declares as signed numbers")]
const ALWAYS: u32 = (libc::EPOLLRDHUP | libc::EPOLLET) as u32;

fn checked(done: libc::c_int) -> libc::c_int {
    assert!(done >= 0, "{}", io::Error::last_os_error());
    done
}

impl Set {
    fn new(system: &System, socket: &Socket, wanted: sim::Conditions) -> Self {
        match (system.kernel(), socket.as_simulated()) {
            (Some(kernel), Some(socket)) => {
                let watcher = kernel.watcher();
                watcher.watch(socket, 0, wanted).expect("a socket of this kernel");
                Self::Simulated(watcher)
            }
            _ => {
                // SAFETY: epoll_create1(2) accesses no memory.
                let set = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) });
                // SAFETY: `from_raw_fd` requires an open descriptor without another owner.
                // - epoll_create1(2) has just returned it.
                let set = unsafe { OwnedFd::from_raw_fd(set) };
                let mut event = libc::epoll_event { events: ALWAYS | wanted.bits(), u64: 0 };
                let (op, number) = (libc::EPOLL_CTL_ADD, socket.number());
                // SAFETY: epoll_ctl(2) reads one event at the pointer.
                // - valid for reads: `event` lives until the call returns.
                let done = unsafe { libc::epoll_ctl(set.as_raw_fd(), op, number, &raw mut event) };
                checked(done);
                Self::Native(set)
            }
        }
    }

    /// Returns the union of the edges since the last call and, on a real kernel, those that arrive
    /// within `quiet`.
    fn edges(&self, quiet: Duration) -> u32 {
        match self {
            Self::Simulated(watcher) => {
                watcher.edges().into_iter().fold(0, |sum, (_, edge)| sum | edge.bits())
            }
            Self::Native(set) => {
                let mut sum = 0;
                loop {
                    let mut event = libc::epoll_event { events: 0, u64: 0 };
                    let limit = i32::try_from(quiet.as_micros().div_ceil(1000)).expect("short");
                    // SAFETY: epoll_wait(2) writes at most one event at the pointer.
                    // - valid for writes: `event` lives until the call returns.
                    let count =
                        unsafe { libc::epoll_wait(set.as_raw_fd(), &raw mut event, 1, limit) };
                    if count < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
                    {
                        continue;
                    }
                    if checked(count) == 0 {
                        return sum;
                    }
                    sum |= event.events;
                }
            }
        }
    }
}

/// Observes the object of a scenario.
pub(super) struct Eyes {
    sets: [Set; 4],
    /// What each set has reported since the step before.
    edges: [u32; 4],
}

impl Eyes {
    pub(super) fn new(system: &System, socket: &Socket) -> Self {
        Self { sets: wanted().map(|wanted| Set::new(system, socket, wanted)), edges: [0; 4] }
    }

    /// Collects edges until no more arrive.
    pub(super) fn look(&mut self) {
        let mut quiet = QUIET;
        for (edges, set) in self.edges.iter_mut().zip(&self.sets) {
            *edges |= set.edges(quiet);
            quiet = Duration::ZERO;
        }
    }

    /// Describes the state of `socket` after `step`.
    pub(super) fn line(&self, step: &str, socket: &Socket) -> String {
        let (now, unread) = match socket.as_simulated() {
            Some(socket) => {
                let kernel = socket.kernel();
                (kernel.facts(socket).bits(), kernel.unread(socket))
            }
            None => (polled(socket.number()), unread(socket.number())),
        };
        let unread = unread.map_or("-".to_owned(), |count| count.to_string());
        let ([edges, of_in, of_out, of_end], now) = (self.edges.map(words), words(now));
        let line = format!(
            "  {step:36} edge {edges:22} in {of_in:17} out {of_out:18} end {of_end:14} \
             poll {now:22} unread {unread}"
        );
        let Some(state) = tcp_state(socket) else { return line };
        let width = line.len() + "00000 ".len() - unread.len();
        format!("{line:width$} {}", state_name(state))
    }

    /// Assigns all further edges to the next step.
    pub(super) fn end_step(&mut self) {
        self.edges = [0; 4];
    }

    /// Discards the edges so far.
    pub(super) fn forget(&mut self) {
        for set in &self.sets {
            set.edges(QUIET);
        }
        self.edges = [0; 4];
    }
}

#[allow(clippy::cast_sign_loss, reason = "a set of bits that libc declares as a signed number")]
fn polled(number: RawFd) -> u32 {
    let events = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
    let mut question = libc::pollfd { fd: number, events, revents: 0 };
    // SAFETY: poll(2) reads and writes one `pollfd` at the pointer.
    // - valid: `question` lives until the call returns.
    checked(unsafe { libc::poll(&raw mut question, 1, 0) });
    question.revents as u32
}

/// Calls read(2) once.
pub(super) fn read(socket: &Socket, buf: &mut [u8]) -> io::Result<usize> {
    socket.read(buf)
}

fn unread(number: RawFd) -> Option<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: ioctl(2) with FIONREAD writes one int at the pointer, or fails.
    // - valid for writes: `count` lives until the call returns.
    let done = unsafe { libc::ioctl(number, libc::FIONREAD, &raw mut count) };
    if done == 0 { usize::try_from(count).ok() } else { None }
}

pub(super) fn kind(socket: &Socket) -> &'static str {
    if let Some(socket) = socket.as_simulated() {
        return match socket.kernel().kind(socket) {
            sim::ObjectKind::Stream => "stream",
            sim::ObjectKind::Datagram => "datagram",
            _ => "no socket",
        };
    }
    let mut kind: libc::c_int = 0;
    let mut size = libc::socklen_t::try_from(size_of_val(&kind)).expect("four");
    // SAFETY: getsockopt(2) writes at most `size` bytes at the value's pointer, and reads and
    // writes the size at the other pointer.
    // - valid: both are locals of the right type, and `size` is the size of the value.
    let done = unsafe {
        libc::getsockopt(
            socket.number(),
            libc::SOL_SOCKET,
            libc::SO_TYPE,
            (&raw mut kind).cast(),
            &raw mut size,
        )
    };
    match (done, kind) {
        (0, libc::SOCK_STREAM) => "stream",
        (0, _) => "datagram",
        _ => "no socket",
    }
}

/// Returns the state of a TCP socket according to `TCP_INFO`.
fn tcp_state(socket: &Socket) -> Option<u8> {
    if let Some(socket) = socket.as_simulated() {
        return socket.kernel().tcp_state(socket);
    }
    // The state is the first byte of TCP_INFO, and the kernel truncates the rest.
    let mut state = 0_u8;
    let mut size: libc::socklen_t = 1;
    // SAFETY: getsockopt(2) writes at most `size` bytes at the value's pointer, and reads and
    // writes the size at the other pointer.
    // - valid: both are locals of the right type, and `size` is the size of the value.
    let done = unsafe {
        libc::getsockopt(
            socket.number(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            (&raw mut state).cast(),
            &raw mut size,
        )
    };
    (done == 0).then_some(state)
}

/// The names in the kernel's tcp_states.h, from 1 on.
const TCP_STATES: [&str; 12] = [
    "ESTABLISHED",
    "SYN_SENT",
    "SYN_RECV",
    "FIN_WAIT1",
    "FIN_WAIT2",
    "TIME_WAIT",
    "CLOSE",
    "CLOSE_WAIT",
    "LAST_ACK",
    "LISTEN",
    "CLOSING",
    "NEW_SYN_RECV",
];

/// Returns the name of a state.
fn state_name(state: u8) -> &'static str {
    TCP_STATES[usize::from(state) - 1]
}

/// Returns whether `socket` isn't waiting for an answer to its own FIN. That answer comes some 40
/// ms late if the peer sends nothing else, and makes an edge.
pub(super) fn is_settled(socket: &Socket) -> bool {
    let unanswered = ["FIN_WAIT1", "LAST_ACK", "CLOSING"];
    tcp_state(socket).is_none_or(|state| !unanswered.contains(&state_name(state)))
}

/// Describes a set of conditions in words.
fn words(bits: u32) -> String {
    let names = [(0x1, "IN"), (0x4, "OUT"), (0x2000, "RDHUP"), (0x10, "HUP"), (0x8, "ERR")];
    let known = names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name);
    let mut words = known.collect::<Vec<_>>().join("|");
    let unknown = bits & !names.iter().fold(0, |sum, (bit, _)| sum | bit);
    if unknown != 0 {
        write!(words, "{unknown:#x}").expect("a string takes everything");
    }
    if words.is_empty() { "-".to_owned() } else { words }
}
