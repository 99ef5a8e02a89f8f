//! What a kernel says of its objects, step by step: recorded once, and checked against the kernel
//! of this machine and against the simulated one. So a kernel that has changed is found, and so is
//! a simulation that lies.
//!
//! The record is `facts.txt`. Each line is one step: what an edge-triggered
//! `EPOLLIN | EPOLLOUT | EPOLLRDHUP` entry reported since the step before (`-`: nothing); what entries
//! without `EPOLLOUT` (`in`), without `EPOLLIN` (`out`) and without either (`end`) reported; what
//! `poll(2)` says now, what the ioctl `FIONREAD` says (`-`: not supported), and the state of a TCP
//! socket that is or was connected. If a test here
//! fails it shows the lines that differ; with `FACTS_OUT` in the environment it also writes what it
//! saw to the file of that name.

// The record is that of Linux, which is asked by calls of its own.
#![cfg(target_os = "linux")]

use std::fmt::Write as _;
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::time::{Duration, Instant};

use completion_port::sim;
use testkit::{Socket, System};

const RECORD: &str = include_str!("facts.txt");

/// The kernel of the machine has settled if nothing comes for so long.
const QUIET: Duration = Duration::from_millis(3);

/// How long to wait for what the record says.
const SOON: Duration = Duration::from_secs(3);

/// Edges of one watched descriptor, and questions about any.
enum Eyes {
    Native(OwnedFd),
    Simulated(sim::Watcher),
}

/// What the sets that look at an object together watch for.
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

impl Eyes {
    fn new(system: &System, socket: &Socket, wanted: sim::Conditions) -> Self {
        match (system.kernel(), socket.as_simulated()) {
            (Some(kernel), Some(socket)) => {
                let watcher = kernel.watcher();
                watcher.watch(socket, 0, wanted).expect("a socket of this kernel");
                Self::Simulated(watcher)
            }
            _ => {
                // SAFETY: epoll_create1(2) demands nothing of memory.
                let set = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) });
                // SAFETY: `from_raw_fd` demands an open descriptor that nobody else owns.
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

    /// The union of what was reported since the last call and, on a real kernel, within `quiet`.
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

#[allow(clippy::cast_sign_loss, reason = "a set of bits that libc declares as a signed number")]
fn polled(number: RawFd) -> u32 {
    let events = libc::POLLIN | libc::POLLOUT | libc::POLLRDHUP;
    let mut question = libc::pollfd { fd: number, events, revents: 0 };
    // SAFETY: poll(2) reads and writes one question at the pointer.
    // - valid: `question` lives until the call returns.
    checked(unsafe { libc::poll(&raw mut question, 1, 0) });
    question.revents as u32
}

fn unread(number: RawFd) -> Option<usize> {
    let mut count: libc::c_int = 0;
    // SAFETY: ioctl(2) with FIONREAD writes one int at the pointer, or fails.
    // - valid for writes: `count` lives until the call returns.
    let done = unsafe { libc::ioctl(number, libc::FIONREAD, &raw mut count) };
    if done == 0 { usize::try_from(count).ok() } else { None }
}

fn kind(socket: &Socket) -> &'static str {
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
    // writes the size at the other.
    // - valid: both are locals of the right type, and `size` is that of the value.
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

/// What `TCP_INFO` says of the state of a TCP socket.
fn tcp_state(socket: &Socket) -> Option<u8> {
    if let Some(socket) = socket.as_simulated() {
        return socket.kernel().tcp_state(socket);
    }
    // The state is the first byte of what TCP_INFO tells, and the kernel cuts the rest off.
    let mut state = 0_u8;
    let mut size: libc::socklen_t = 1;
    // SAFETY: getsockopt(2) writes at most `size` bytes at the value's pointer, and reads and
    // writes the size at the other.
    // - valid: both are locals of the right type, and `size` is that of the value.
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

/// The names of the kernel's tcp_states.h, from 1 on.
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

/// A state by its name.
fn state_name(state: u8) -> &'static str {
    TCP_STATES[usize::from(state) - 1]
}

/// Whether nothing is on its way to `socket` that it waits for by itself: the answer to its own end
/// comes some 40 ms late if the peer has nothing else to say, and makes an edge of its own.
fn is_settled(socket: &Socket) -> bool {
    let unanswered = ["FIN_WAIT1", "LAST_ACK", "CLOSING"];
    tcp_state(socket).is_none_or(|state| !unanswered.contains(&state_name(state)))
}

/// A set of conditions, in words.
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

/// Plays the scenarios on one system and writes down what it says.
struct Recorder<'s> {
    system: &'s System,
    eyes: Option<[Eyes; 4]>,
    expected: Box<dyn Iterator<Item = &'static str>>,
    seen: Vec<String>,
    differing: Vec<String>,
}

impl<'s> Recorder<'s> {
    fn new(system: &'s System) -> Self {
        let lines = RECORD.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
        Self {
            system,
            eyes: None,
            expected: Box::new(lines),
            seen: Vec::new(),
            differing: Vec::new(),
        }
    }

    fn write_down(&mut self, line: String, expected: &str) {
        if line != expected {
            self.differing.push(format!("recorded: {expected}\n     now: {line}"));
        }
        self.seen.push(line);
    }

    /// Begins a scenario: `socket` is watched from now on.
    fn watch(&mut self, scenario: &str, socket: &Socket) {
        let expected = self.expected.next().unwrap_or_default();
        self.write_down(format!("{scenario} [{}]", kind(socket)), expected);
        self.eyes = Some(wanted().map(|wanted| Eyes::new(self.system, socket, wanted)));
        self.step("attached", socket);
    }

    /// Writes down what is to be seen of `socket` after `step`.
    fn step(&mut self, step: &str, socket: &Socket) {
        let expected = self.expected.next().unwrap_or_default();
        let eyes = self.eyes.as_ref().expect("a scenario begins with `watch`");
        let begun = Instant::now();
        let patience = if self.differing.is_empty() { SOON } else { QUIET };
        let mut edges = [0; 4];
        let line = loop {
            // Asked before the edges are, so that the one of the answer is among them.
            let settled = is_settled(socket);
            edges[0] |= eyes[0].edges(QUIET);
            for (edges, eyes) in edges.iter_mut().zip(eyes).skip(1) {
                *edges |= eyes.edges(Duration::ZERO);
            }
            let (now, unread) = match socket.as_simulated() {
                Some(socket) => {
                    let kernel = socket.kernel();
                    (kernel.facts(socket).bits(), kernel.unread(socket))
                }
                None => (polled(socket.number()), unread(socket.number())),
            };
            let unread = unread.map_or("-".to_owned(), |count| count.to_string());
            let ([edges, of_in, of_out, of_end], now) = (edges.map(words), words(now));
            let mut line = format!(
                "  {step:36} edge {edges:22} in {of_in:17} out {of_out:18} end {of_end:14} \
                 poll {now:22} unread {unread}"
            );
            if let Some(state) = tcp_state(socket) {
                let width = line.len() + "00000 ".len() - unread.len();
                line = format!("{line:width$} {}", state_name(state));
            }
            let simulated = socket.as_simulated().is_some();
            let waited = begun.elapsed();
            let is_final = line == expected || waited >= patience;
            if (settled && is_final) || simulated || waited >= SOON {
                break line;
            }
        };
        self.write_down(line, expected);
    }

    /// Forgets the edges so far.
    fn forget(&self) {
        for eyes in self.eyes.iter().flatten() {
            eyes.edges(QUIET);
        }
    }

    /// Fills what `socket` sends to, until the kernel has moved all it can.
    fn fill(&self, socket: &Socket) -> usize {
        let mut sum = socket.fill();
        if socket.as_simulated().is_none() {
            let end = Instant::now() + SOON;
            loop {
                self.forget();
                match socket.fill() {
                    0 => break,
                    more => sum += more,
                }
                assert!(Instant::now() < end, "the buffers have no end");
            }
        }
        self.forget();
        sum
    }

    #[track_caller]
    fn finish(mut self) {
        self.differing.extend(self.expected.map(|line| format!("recorded: {line}\n     now: ")));
        if let Ok(file) = std::env::var("FACTS_OUT") {
            std::fs::write(file, self.seen.join("\n") + "\n").expect("a file to write to");
        }
        assert!(self.differing.is_empty(), "{}", self.differing.join("\n"));
    }
}

/// The code of a call that must fail.
#[track_caller]
fn code<T>(done: io::Result<T>) -> i32 {
    done.err().and_then(|error| error.raw_os_error()).expect("an error of the system")
}

#[track_caller]
fn taken_error(socket: &Socket) -> i32 {
    let error = socket.take_error().expect("a socket");
    error.and_then(|error| error.raw_os_error()).unwrap_or(0)
}

const TEN: &[u8] = b"0123456789";

#[track_caller]
fn send(socket: &Socket, bytes: &[u8]) {
    assert_eq!(socket.write(bytes).expect("room for a few bytes"), bytes.len());
}

#[track_caller]
fn take(socket: &Socket, count: usize) {
    assert_eq!(socket.read_within(SOON, count).len(), count);
}

/// Reads the end of the stream.
#[track_caller]
fn take_end(socket: &Socket) {
    assert_eq!(socket.read(&mut [0; 8]).expect("the end of the stream"), 0);
}

type Pair = fn(&System) -> (Socket, Socket);

/// What TCP and AF_UNIX streams both go through, each in its own way.
fn stream(r: &mut Recorder<'_>, name: &str, pair: Pair) {
    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: data"), &a);
    send(&b, TEN);
    r.step("ten bytes arrive", &a);
    send(&b, TEN);
    r.step("ten more, undrained", &a);
    take(&a, 5);
    r.step("five are read", &a);
    take(&a, 15);
    r.step("drained", &a);
    assert_eq!(code(a.read(&mut [0])), libc::EAGAIN);
    r.step("read until it would block", &a);
    send(&b, TEN);
    take(&a, 10);
    r.step("ten bytes arrive and are read", &a);
    send(&a, TEN);
    r.step("own write", &a);
    take(&b, 5);
    r.step("peer reads half of it", &a);
    take(&b, 5);
    r.step("peer reads the rest", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: the peer shuts its writing half"), &a);
    b.shutdown(Shutdown::Write).expect("connected");
    r.step("end arrives", &a);
    take_end(&a);
    r.step("end is read", &a);
    send(&a, TEN);
    r.step("own write", &a);
    take(&b, 10);
    r.step("peer reads it", &a);
    a.shutdown(Shutdown::Write).expect("connected");
    r.step("own end", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: data, then the end"), &a);
    send(&b, TEN);
    r.step("ten bytes arrive", &a);
    b.shutdown(Shutdown::Write).expect("connected");
    r.step("end arrives", &a);
    take(&a, 5);
    r.step("five are read", &a);
    take(&a, 5);
    r.step("drained", &a);
    take_end(&a);
    r.step("end is read", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: data and the end at once"), &a);
    send(&b, TEN);
    b.shutdown(Shutdown::Write).expect("connected");
    r.step("ten bytes and the end arrive", &a);
    take(&a, 10);
    r.step("drained", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: the peer closes"), &a);
    drop(b);
    r.step("peer closes", &a);
    take_end(&a);
    r.step("end is read", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: the peer closes with data on the way"), &a);
    send(&b, TEN);
    drop(b);
    r.step("ten bytes arrive and peer closes", &a);
    take(&a, 10);
    r.step("drained", &a);
    take_end(&a);
    r.step("end is read", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: the peer closes and has not read"), &a);
    send(&a, TEN);
    send(&b, TEN);
    r.step("data both ways", &a);
    drop(b);
    r.step("peer closes", &a);
    take(&a, 5);
    r.step("five are read", &a);
    take(&a, 5);
    r.step("drained", &a);
    assert_eq!(taken_error(&a), libc::ECONNRESET);
    r.step("error is taken", &a);
    take_end(&a);
    r.step("end is read", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: own writing half shut"), &a);
    a.shutdown(Shutdown::Write).expect("connected");
    r.step("own end", &a);
    assert_eq!(code(a.write(TEN)), libc::EPIPE);
    send(&b, TEN);
    r.step("ten bytes arrive", &a);
    take(&a, 10);
    r.step("drained", &a);
    b.shutdown(Shutdown::Write).expect("connected");
    r.step("end arrives", &a);
    take_end(&a);
    r.step("end is read", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: own reading half shut"), &a);
    a.shutdown(Shutdown::Read).expect("connected");
    r.step("shut", &a);
    take_end(&a);
    r.step("end is read", &a);
    drop(b);
    r.step("peer closes", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: both own halves shut"), &a);
    a.shutdown(Shutdown::Both).expect("connected");
    r.step("shut", &a);
    take_end(&a);
    r.step("end is read", &a);
    drop(b);
    r.step("peer closes", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: the peer's half, then both own halves shut"), &a);
    b.shutdown(Shutdown::Write).expect("connected");
    r.step("end arrives", &a);
    a.shutdown(Shutdown::Read).expect("connected");
    r.step("own reading half", &a);
    a.shutdown(Shutdown::Write).expect("connected");
    r.step("own writing half", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: both halves of the peer shut"), &a);
    b.shutdown(Shutdown::Both).expect("connected");
    r.step("shut", &a);
    take_end(&a);
    r.step("end is read", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: send buffer full"), &a);
    let mut sum = r.fill(&a);
    r.step("full", &a);
    take(&b, sum);
    r.step("peer drains", &a);
    assert_eq!(code(b.read(&mut [0])), libc::EAGAIN);
    sum = r.fill(&a);
    // What the peer sends tells of more room, if it has made its buffer larger meanwhile.
    loop {
        send(&b, TEN);
        take(&a, 10);
        match r.fill(&a) {
            0 => break,
            more => sum += more,
        }
    }
    r.step("full again", &a);
    send(&b, TEN);
    r.step("ten bytes arrive", &a);
    take(&a, 10);
    r.step("drained", &a);
    take(&b, sum);
    r.step("peer drains", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: a duplicate"), &a);
    let again = a.dup().expect("a descriptor");
    send(&b, TEN);
    r.step("ten bytes arrive", &a);
    drop(a);
    r.step("the watched descriptor is closed", &again);
    send(&b, TEN);
    r.step("ten bytes arrive", &again);
    take(&again, 20);
    r.step("drained", &again);
    drop(again);
    send_into_nothing(&b);
    let bystander = r.system.event();
    r.step("all closed (poll: a bystander)", &bystander);
}

/// Writes to a peer that is closed; whether this is noticed yet depends on the protocol.
fn send_into_nothing(socket: &Socket) {
    let _ = socket.write(TEN);
}

fn tcp(r: &mut Recorder<'_>) {
    let system = r.system;
    let (a, b) = system.tcp_pair();
    r.watch("tcp: written to a peer that is closed", &a);
    drop(b);
    r.step("peer closes", &a);
    send(&a, TEN);
    r.step("own write is answered by a reset", &a);
    take_end(&a);
    r.step("end is read", &a);
    assert_eq!(code(a.write(TEN)), libc::EPIPE);
    r.step("error is taken by a write", &a);

    let (a, b) = system.tcp_pair();
    r.watch("tcp: written to a peer that is shut", &a);
    b.shutdown(Shutdown::Both).expect("connected");
    r.step("peer shuts both halves", &a);
    send(&a, TEN);
    r.step("own write is answered by a reset", &a);
    assert_eq!(taken_error(&a), libc::EPIPE);
    r.step("error is taken", &a);

    let (a, b) = system.tcp_pair();
    r.watch("tcp: data for a shut socket", &a);
    a.shutdown(Shutdown::Both).expect("connected");
    r.step("own shutdown", &a);
    send(&b, TEN);
    r.step("ten bytes arrive", &a);
    assert_eq!(code(a.read(&mut [0])), libc::ECONNRESET);
    r.step("error is taken by a read", &a);

    let (a, b) = system.tcp_pair();
    r.watch("tcp: data after the own reading half is shut", &a);
    a.shutdown(Shutdown::Read).expect("connected");
    r.step("shut", &a);
    send(&b, TEN);
    r.step("ten bytes arrive", &a);
    take(&a, 10);
    r.step("drained", &a);

    let (a, b) = system.tcp_pair();
    r.watch("tcp: reset while idle", &a);
    b.reset();
    r.step("reset arrives", &a);
    assert_eq!(code(a.read(&mut [0])), libc::ECONNRESET);
    r.step("error is taken by a read", &a);
    take_end(&a);
    r.step("end is read", &a);
    assert_eq!(code(a.write(TEN)), libc::EPIPE);
    r.step("write fails", &a);

    let (a, b) = system.tcp_pair();
    r.watch("tcp: reset with data", &a);
    send(&b, TEN);
    r.step("ten bytes arrive", &a);
    b.reset();
    r.step("reset arrives", &a);
    take(&a, 10);
    r.step("drained", &a);
    assert_eq!(taken_error(&a), libc::ECONNRESET);
    r.step("error is taken", &a);

    let (a, b) = system.tcp_pair();
    r.watch("tcp: reset after the end", &a);
    b.shutdown(Shutdown::Write).expect("connected");
    r.step("end arrives", &a);
    b.reset();
    r.step("reset arrives", &a);
    assert_eq!(taken_error(&a), libc::EPIPE);
    r.step("error is taken", &a);

    let (a, b) = system.tcp_pair();
    r.watch("tcp: reset after the own end", &a);
    a.shutdown(Shutdown::Write).expect("connected");
    r.step("own end", &a);
    b.reset();
    r.step("reset arrives", &a);
    assert_eq!(taken_error(&a), libc::ECONNRESET);
    r.step("error is taken", &a);

    let listener = system.tcp_listener(4);
    let a = system.tcp_fresh();
    r.watch("tcp: fresh, refused, connected", &a);
    assert_eq!(code(a.read(&mut [0])), libc::ENOTCONN);
    assert_eq!(code(a.write(TEN)), libc::EPIPE);
    r.step("read and write fail", &a);
    a.connect(&system.unused_address()).expect("in progress");
    r.step("refused", &a);
    assert_eq!(taken_error(&a), libc::ECONNREFUSED);
    r.step("error is taken", &a);
    assert_eq!(code(a.connect(&listener.address())), libc::ECONNABORTED);
    r.step("connect tells of the one before", &a);
    a.connect(&listener.address()).expect("in progress");
    r.step("connect", &a);
    a.connect(&listener.address()).expect("connected");
    r.step("connect tells of the one before", &a);
    assert_eq!(code(a.connect(&listener.address())), libc::EISCONN);
    drop(listener.accept().expect("a connection"));
    r.step("accepted and closed", &a);

    let a = system.tcp_fresh();
    r.watch("tcp: refused, asked by connect", &a);
    a.connect(&system.unused_address()).expect("in progress");
    r.step("refused", &a);
    assert_eq!(code(a.connect(&system.unused_address())), libc::ECONNREFUSED);
    r.step("error is taken by connect", &a);
    a.connect(&system.unused_address()).expect("in progress");
    r.step("refused again", &a);
    assert_eq!(code(a.read(&mut [0])), libc::ECONNREFUSED);
    r.step("error is taken by a read", &a);

    let a = system.tcp_connect_refused();
    r.watch("tcp: refused before it is watched", &a);
    assert_eq!(code(a.write(TEN)), libc::ECONNREFUSED);
    r.step("error is taken by a write", &a);

    let a = system.tcp_fresh();
    r.watch("tcp: fresh, shut", &a);
    assert_eq!(code(a.shutdown(Shutdown::Write)), libc::ENOTCONN);
    r.step("shutdown fails", &a);

    let a = system.tcp_connect(&listener);
    r.watch("tcp: connected before it is watched", &a);
    drop(listener);
    r.step("listener closes before it accepts", &a);
    assert_eq!(taken_error(&a), libc::ECONNRESET);
    r.step("error is taken", &a);
}

fn tcp_listener(r: &mut Recorder<'_>) {
    let system = r.system;
    let listener = system.tcp_listener(4);
    r.watch("tcp listener: connections", &listener);
    assert_eq!(code(listener.accept()), libc::EAGAIN);
    let first = system.tcp_connect(&listener);
    r.step("one connects", &listener);
    let second = system.tcp_connect(&listener);
    r.step("another one connects", &listener);
    drop(listener.accept_within(SOON));
    r.step("one is accepted", &listener);
    drop(listener.accept_within(SOON));
    r.step("both are accepted", &listener);
    drop((first, second));
    r.step("clients close", &listener);
    let third = system.tcp_connect(&listener);
    r.step("one connects", &listener);
    third.reset();
    r.step("and resets", &listener);
    let accepted = listener.accept_within(SOON);
    r.step("is accepted all the same", &listener);
    assert_eq!(code(accepted.read(&mut [0])), libc::ECONNRESET);
    listener.shutdown(Shutdown::Both).expect("listening");
    r.step("listener is shut", &listener);

    let listener = system.tcp_listener(4);
    r.watch("tcp listener: shut, then connected", &listener);
    let first = system.tcp_connect(&listener);
    r.step("one connects", &listener);
    listener.shutdown(Shutdown::Read).expect("listening");
    r.step("shut", &listener);
    assert_eq!(code(listener.accept()), libc::EINVAL);
    r.step("accept fails", &listener);
    listener.connect(&system.unused_address()).expect("in progress");
    r.step("refused", &listener);
    drop(first);

    let listener = system.tcp_listener(0);
    let first = system.tcp_connect(&listener);
    let client = system.tcp_fresh();
    r.watch("tcp listener: queue full, seen from the client", &client);
    client.connect(&listener.address()).expect("in progress");
    r.step("connect waits for room", &client);
    assert_eq!(code(client.write(TEN)), libc::EAGAIN);
    drop(first);
}

fn udp(r: &mut Recorder<'_>) {
    let system = r.system;
    let (a, b) = (system.udp_bound(), system.udp_bound());
    r.watch("udp: datagrams", &a);
    let to = a.address();
    b.send_to(TEN, &to).expect("sent");
    r.step("ten bytes arrive", &a);
    b.send_to(b"abc", &to).expect("sent");
    r.step("three bytes arrive", &a);
    take(&a, 10);
    r.step("one is read, one is left", &a);
    take(&a, 1);
    r.step("the other is read, cut short", &a);
    b.send_to(b"", &to).expect("sent");
    r.step("an empty one arrives", &a);
    take_end(&a);
    r.step("it is read", &a);
    a.send_to(TEN, &b.address()).expect("sent");
    r.step("own send", &a);
    take(&b, 10);
    r.step("peer reads it", &a);

    let (a, b) = system.udp_pair();
    r.watch("udp: the peer is gone", &a);
    send(&a, TEN);
    r.step("own send", &a);
    drop(b);
    r.step("peer closes", &a);
    send(&a, TEN);
    r.step("own send is answered by ICMP", &a);
    assert_eq!(code(a.write(TEN)), libc::ECONNREFUSED);
    r.step("error is taken by a send", &a);
    send(&a, TEN);
    r.step("own send is answered by ICMP", &a);
    assert_eq!(code(a.read(&mut [0])), libc::ECONNREFUSED);
    r.step("error is taken by a read", &a);
    send(&a, TEN);
    r.step("own send is answered by ICMP", &a);
    assert_eq!(taken_error(&a), libc::ECONNREFUSED);
    r.step("error is taken", &a);

    let (a, b) = system.udp_pair();
    r.watch("udp: an error beside data", &a);
    send(&b, TEN);
    r.step("ten bytes arrive", &a);
    drop(b);
    send(&a, TEN);
    r.step("own send is answered by ICMP", &a);
    assert_eq!(code(a.read(&mut [0])), libc::ECONNREFUSED);
    r.step("error is taken by a read", &a);
    take(&a, 10);
    r.step("drained", &a);

    let (a, _b) = system.udp_pair();
    r.watch("udp: shut", &a);
    a.shutdown(Shutdown::Write).expect("connected");
    r.step("own writing half", &a);
    assert_eq!(code(a.write(TEN)), libc::EPIPE);
    a.shutdown(Shutdown::Read).expect("connected");
    r.step("own reading half", &a);
}

fn unix(r: &mut Recorder<'_>) {
    let system = r.system;
    let listener = system.unix_listener(4);
    let a = system.unix_fresh();
    r.watch("unix: fresh, connected", &a);
    assert_eq!(code(a.read(&mut [0])), libc::EINVAL);
    assert_eq!(code(a.write(TEN)), libc::ENOTCONN);
    r.step("read and write fail", &a);
    a.connect(&listener.address()).expect("somebody listens");
    r.step("connect", &a);
    let b = listener.accept().expect("a connection");
    r.step("accepted", &a);
    send(&b, TEN);
    r.step("ten bytes arrive", &a);

    let a = system.unix_fresh();
    let gone = system.unix_listener(4).address();
    r.watch("unix: refused", &a);
    assert_eq!(code(a.connect(&gone)), libc::ECONNREFUSED);
    r.step("refused", &a);

    r.watch("unix listener: connections", &listener);
    let client = system.unix_fresh();
    client.connect(&listener.address()).expect("somebody listens");
    r.step("one connects", &listener);
    drop(listener.accept().expect("a connection"));
    r.step("it is accepted", &listener);

    let shut = system.unix_listener(4);
    r.watch("unix listener: shut", &shut);
    shut.shutdown(Shutdown::Both).expect("a socket");
    r.step("shut", &shut);
    assert_eq!(code(shut.accept()), libc::EAGAIN);
    assert_eq!(code(system.unix_fresh().connect(&shut.address())), libc::ECONNREFUSED);
    r.step("accept and connect fail", &shut);

    let client = system.unix_fresh();
    client.connect(&listener.address()).expect("somebody listens");
    r.watch("unix: connected, not accepted", &client);
    drop(listener);
    r.step("listener closes", &client);
    assert_eq!(code(client.read(&mut [0])), libc::ECONNRESET);
    r.step("error is taken by a read", &client);

    let (a, b) = system.unix_pair();
    r.watch("unix: written to a peer that is closed", &a);
    drop(b);
    r.step("peer closes", &a);
    assert_eq!(code(a.write(TEN)), libc::EPIPE);
    r.step("write fails", &a);

    let (a, b) = system.unix_pair();
    r.watch("unix: the peer shuts its reading half", &a);
    b.shutdown(Shutdown::Read).expect("connected");
    r.step("shut", &a);
    assert_eq!(code(a.write(TEN)), libc::EPIPE);
    r.step("write fails", &a);
}

fn unix_datagrams(r: &mut Recorder<'_>) {
    let system = r.system;
    let (a, b) = system.unix_datagram_pair();
    r.watch("unix datagrams: data", &a);
    send(&b, TEN);
    r.step("ten bytes arrive", &a);
    send(&b, b"abc");
    r.step("three bytes arrive", &a);
    take(&a, 10);
    r.step("one is read, one is left", &a);
    take(&a, 3);
    r.step("both are read", &a);
    send(&a, TEN);
    r.step("own send", &a);
    take(&b, 10);
    r.step("peer reads it", &a);

    let (a, b) = system.unix_datagram_pair();
    r.watch("unix datagrams: full", &a);
    r.fill(&a);
    r.step("full", &a);
    assert!(b.drain() > 0);
    r.step("peer drains", &a);

    let (a, b) = system.unix_datagram_pair();
    r.watch("unix datagrams: the peer is gone", &a);
    drop(b);
    r.step("peer closes", &a);
    assert_eq!(code(a.write(TEN)), libc::ECONNREFUSED);
    r.step("send fails", &a);
    // Whether this one makes an edge depends on the version of the kernel.
    assert_eq!(code(a.write(TEN)), libc::ENOTCONN);

    let (a, b) = system.unix_datagram_pair();
    r.watch("unix datagrams: shut", &a);
    b.shutdown(Shutdown::Both).expect("a socket");
    r.step("peer is shut", &a);
    assert_eq!(code(a.write(TEN)), libc::EPIPE);
    a.shutdown(Shutdown::Write).expect("a socket");
    r.step("own writing half", &a);
    a.shutdown(Shutdown::Read).expect("a socket");
    r.step("own reading half", &a);
}

fn pipe(r: &mut Recorder<'_>) {
    let system = r.system;
    let (reader, writer) = system.pipe();
    r.watch("pipe reader: data", &reader);
    send(&writer, TEN);
    r.step("ten bytes arrive", &reader);
    send(&writer, TEN);
    r.step("ten more, undrained", &reader);
    take(&reader, 5);
    r.step("five are read", &reader);
    take(&reader, 15);
    r.step("drained", &reader);
    send(&writer, TEN);
    r.step("ten bytes arrive", &reader);
    drop(writer);
    r.step("writer closes", &reader);
    take(&reader, 10);
    r.step("drained", &reader);
    take_end(&reader);
    r.step("end is read", &reader);

    let (reader, writer) = system.pipe();
    r.watch("pipe reader: the writer is gone", &reader);
    drop(writer);
    r.step("writer closes", &reader);

    let (reader, writer) = system.pipe();
    r.watch("pipe writer: full", &writer);
    let sum = r.fill(&writer);
    r.step("full", &writer);
    take(&reader, 100);
    r.step("a hundred bytes are read", &writer);
    take(&reader, 4096);
    r.step("a page is read", &writer);
    take(&reader, sum - 4196);
    r.step("drained", &writer);
    send(&writer, TEN);
    r.step("own write", &writer);
    take(&reader, 10);
    r.step("drained", &writer);
    drop(reader);
    r.step("reader closes", &writer);
    assert_eq!(code(writer.write(TEN)), libc::EPIPE);
    r.step("write fails", &writer);

    let (reader, writer) = system.pipe();
    r.watch("pipe writer: full, and the reader is gone", &writer);
    r.fill(&writer);
    r.step("full", &writer);
    drop(reader);
    r.step("reader closes", &writer);
}

fn event(r: &mut Recorder<'_>) {
    let event = r.system.event();
    let mut sum = [0; 8];
    r.watch("event: counted", &event);
    event.signal(1).expect("room");
    r.step("one is added", &event);
    event.signal(2).expect("room");
    r.step("two are added, undrained", &event);
    event.read(&mut sum).expect("a count");
    r.step("drained", &event);
    assert_eq!(code(event.read(&mut sum)), libc::EAGAIN);
    r.step("read until it would block", &event);
    event.signal(u64::MAX - 1).expect("room");
    r.step("full", &event);
    assert_eq!(code(event.signal(1)), libc::EAGAIN);
    r.step("no room for more", &event);
    event.read(&mut sum).expect("a count");
    r.step("drained", &event);
}

fn play(system: &System) {
    let mut r = Recorder::new(system);
    stream(&mut r, "tcp", System::tcp_pair);
    tcp(&mut r);
    tcp_listener(&mut r);
    udp(&mut r);
    stream(&mut r, "unix", System::unix_pair);
    unix(&mut r);
    unix_datagrams(&mut r);
    pipe(&mut r);
    event(&mut r);
    r.eyes = None;
    r.finish();
}

#[cfg(target_os = "linux")]
#[test]
fn the_kernel_of_this_machine_does_what_is_recorded() {
    testkit::run(System::native, play);
}

#[test]
fn the_simulated_kernel_does_what_is_recorded() {
    testkit::run(System::simulated, play);
}
