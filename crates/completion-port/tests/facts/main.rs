//! Kernel behaviour step by step, recorded once. The tests compare the record with this machine's
//! kernel and, if that is Linux, with the simulated one. So they detect both a changed kernel and a
//! wrong simulation.
//!
//! The records are `linux.txt` and `wine.txt`. Each line is one step. `linux.rs` and `windows.rs`
//! describe its fields and query the kernels with their own calls. A line `code of ...` names a
//! call of the following step, and the error code with which it failed. A call that is expected to
//! fail always has such a line, even if it succeeds. Any other call has one only if it fails.
//!
//! A failing test shows the lines that differ. If `FACTS_OUT` is set in the environment, the test
//! also writes its observations of the machine's kernel to that file.

// The kernels with queries.
#![cfg(any(target_os = "linux", windows))]

use std::io;
use std::iter::Peekable;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use testkit::{Address, SOON, Socket, System};

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "linux")]
mod objects_of_linux;
#[cfg(windows)]
mod windows;

#[cfg(target_os = "linux")]
use linux as kernel;
#[cfg(windows)]
use windows as kernel;

/// How long to wait for a refused connect without a record.
const CONNECTS: Duration = Duration::from_secs(3);

/// The beginning of the line of a call.
const CODE_OF: &str = "  code of ";

/// Plays the scenarios on one system and records what it reports.
struct Recorder<'s> {
    system: &'s System,
    eyes: Option<kernel::Eyes>,
    /// The rest of the record. `None`: this kernel has no record.
    expected: Option<Peekable<Box<dyn Iterator<Item = &'static str>>>>,
    /// A connect has begun since the last step, and may be refused later.
    is_connecting: bool,
    seen: Vec<String>,
    differing: Vec<String>,
}

impl<'s> Recorder<'s> {
    fn new(system: &'s System) -> Self {
        let lines: Box<dyn Iterator<Item = _>> = Box::new(
            kernel::RECORD.lines().filter(|line| !line.is_empty() && !line.starts_with('#')),
        );
        Self {
            system,
            eyes: None,
            expected: kernel::no_record(system).is_none().then(|| lines.peekable()),
            is_connecting: false,
            seen: Vec::new(),
            differing: Vec::new(),
        }
    }

    /// Returns the next line of the record of the requested kind, either a call's or a step's.
    /// Empty if there is none.
    fn expected(&mut self, is_call: bool) -> &'static str {
        let Some(expected) = &mut self.expected else { return "" };
        while let Some(line) = expected.peek() {
            if line.starts_with(CODE_OF) == is_call {
                return expected.next().unwrap_or_default();
            }
            if is_call {
                break;
            }
            // A call that didn't fail, or wasn't made.
            self.differing.push(format!("recorded: {line}\n     now: "));
            expected.next();
        }
        ""
    }

    fn write_down(&mut self, line: String, expected: &str) {
        if line != expected && self.expected.is_some() {
            self.differing.push(format!("recorded: {expected}\n     now: {line}"));
        }
        self.seen.push(line);
    }

    fn write_down_call(&mut self, call: &str, code: &str) {
        let expected = self.expected(true);
        self.write_down(format!("{CODE_OF}{call:28} {code}"), expected);
    }

    /// Begins a scenario, and watches `socket` from now on.
    fn watch(&mut self, scenario: &str, socket: &Socket) {
        let expected = self.expected(false);
        self.write_down(format!("{scenario} [{}]", kernel::kind(socket)), expected);
        self.eyes = Some(kernel::Eyes::new(self.system, socket));
        self.step("attached", socket);
    }

    /// Records the state of `socket` after `step`.
    fn step(&mut self, step: &str, socket: &Socket) {
        let expected = self.expected(false);
        let eyes = self.eyes.as_mut().expect("a scenario begins with `watch`");
        let begun = Instant::now();
        let is_as_recorded = self.expected.is_some() && self.differing.is_empty();
        let patience = match (is_as_recorded, self.is_connecting) {
            // Wait for the recorded line.
            (true, _) => SOON,
            (false, true) => CONNECTS,
            (false, false) => kernel::PATIENCE,
        };
        let line = loop {
            // Check this before collecting edges, so that the answer's edge is among them.
            let settled = kernel::is_settled(socket);
            eyes.look();
            let line = eyes.line(step, socket);
            let simulated = socket.as_simulated().is_some();
            let waited = begun.elapsed();
            let is_final = line == expected || waited >= patience;
            if (settled && is_final) || simulated || waited >= SOON {
                break line;
            }
        };
        eyes.end_step();
        self.is_connecting = false;
        self.write_down(line, expected);
    }

    /// Ends a scenario, and watches nothing any more.
    fn part(&mut self) {
        self.eyes = None;
    }

    /// Discards the edges so far.
    fn forget(&mut self) {
        if let Some(eyes) = &mut self.eyes {
            eyes.forget();
        }
    }

    /// Records a call that is expected to fail: its error code, or that it succeeded.
    fn code<T>(&mut self, call: &str, done: io::Result<T>) {
        let code = match done {
            Ok(_) => "no error".to_owned(),
            Err(error) => name(&error),
        };
        self.write_down_call(call, &code);
    }

    /// Checks a call that is expected to succeed. Records its error code if it fails.
    fn done<T>(&mut self, call: &str, done: io::Result<T>) -> Option<T> {
        match done {
            Ok(done) => Some(done),
            Err(error) => {
                self.write_down_call(call, &name(&error));
                None
            }
        }
    }

    /// Takes the pending error and records it.
    #[track_caller]
    fn taken_error(&mut self, socket: &Socket) {
        let error = socket.take_error().expect("a socket");
        self.code("SO_ERROR", error.map_or(Ok(()), Err));
    }

    /// Starts a connect, which may still be in progress on return.
    fn connect(&mut self, socket: &Socket, address: &Address) {
        self.is_connecting = true;
        self.done("connect", socket.connect(address));
    }

    fn accept(&mut self, listener: &Socket) -> Option<Socket> {
        kernel::await_readable(listener, SOON);
        self.done("accept", listener.accept())
    }

    fn send(&mut self, socket: &Socket, bytes: &[u8]) {
        let sent = self.done("write", socket.write(bytes));
        assert_eq!(sent.unwrap_or(bytes.len()), bytes.len(), "there is room for a few bytes");
    }

    /// Reads exactly `count` bytes.
    fn take(&mut self, socket: &Socket, count: usize) {
        let end = Instant::now() + SOON;
        let mut bytes = vec![0; count];
        let mut have = 0;
        while have < count {
            match kernel::read(socket, &mut bytes[have..]) {
                Ok(0) => {
                    return self.write_down_call("read", &format!("the end after {have} bytes"));
                }
                Ok(more) => have += more,
                Err(error) => {
                    let left = end.saturating_duration_since(Instant::now());
                    let is_late = socket.as_simulated().is_some() || left.is_zero();
                    if is_late || error.kind() != io::ErrorKind::WouldBlock {
                        return self.write_down_call("read", &name(&error));
                    }
                    kernel::await_readable(socket, left);
                }
            }
        }
    }

    /// Reads the end of the stream, or an empty datagram.
    fn take_end(&mut self, socket: &Socket) {
        let count = self.done("read", kernel::read(socket, &mut [0; 8])).unwrap_or(0);
        assert_eq!(count, 0, "there is nothing but the end");
    }

    /// Fills the path from `socket` to its peer, until the kernel moves no more data.
    fn fill(&mut self, socket: &Socket) -> usize {
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
        let seen = self.seen.join("\n") + "\n";
        if let Ok(file) = std::env::var("FACTS_OUT")
            && self.system.kernel().is_none()
        {
            std::fs::write(file, &seen).expect("a file to write to");
        }
        let Some(expected) = self.expected else {
            println!("{seen}");
            println!("SKIPPED {}", kernel::no_record(self.system).unwrap_or_default());
            return;
        };
        self.differing.extend(expected.map(|line| format!("recorded: {line}\n     now: ")));
        assert!(self.differing.is_empty(), "{}", self.differing.join("\n"));
    }
}

/// Returns the name of a system error code.
fn name(error: &io::Error) -> String {
    let Some(code) = error.raw_os_error() else { return format!("no code: {error}") };
    let known = kernel::CODES.iter().find(|(known, _)| *known == code);
    known.map_or_else(|| format!("{code}"), |(_, name)| (*name).to_owned())
}

const TEN: &[u8] = b"0123456789";

type Pair = fn(&System) -> (Socket, Socket);

/// The scenarios for both TCP and AF_UNIX streams, which behave differently.
fn stream(r: &mut Recorder<'_>, name: &str, pair: Pair) {
    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: data"), &a);
    r.send(&b, TEN);
    r.step("ten bytes arrive", &a);
    r.send(&b, TEN);
    r.step("ten more, undrained", &a);
    r.take(&a, 5);
    r.step("five are read", &a);
    r.take(&a, 15);
    r.step("drained", &a);
    r.code("read", kernel::read(&a, &mut [0]));
    r.step("read until it would block", &a);
    r.send(&b, TEN);
    r.take(&a, 10);
    r.step("ten bytes arrive and are read", &a);
    r.send(&a, TEN);
    r.step("own write", &a);
    r.take(&b, 5);
    r.step("peer reads half of it", &a);
    r.take(&b, 5);
    r.step("peer reads the rest", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: the peer shuts its writing half"), &a);
    r.done("shutdown", b.shutdown(Shutdown::Write));
    r.step("end arrives", &a);
    r.take_end(&a);
    r.step("end is read", &a);
    r.send(&a, TEN);
    r.step("own write", &a);
    r.take(&b, 10);
    r.step("peer reads it", &a);
    r.done("shutdown", a.shutdown(Shutdown::Write));
    r.step("own end", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: data, then the end"), &a);
    r.send(&b, TEN);
    r.step("ten bytes arrive", &a);
    r.done("shutdown", b.shutdown(Shutdown::Write));
    r.step("end arrives", &a);
    r.take(&a, 5);
    r.step("five are read", &a);
    r.take(&a, 5);
    r.step("drained", &a);
    r.take_end(&a);
    r.step("end is read", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: data and the end at once"), &a);
    r.send(&b, TEN);
    r.done("shutdown", b.shutdown(Shutdown::Write));
    r.step("ten bytes and the end arrive", &a);
    r.take(&a, 10);
    r.step("drained", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: the peer closes"), &a);
    drop(b);
    r.step("peer closes", &a);
    r.take_end(&a);
    r.step("end is read", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: the peer closes with data on the way"), &a);
    r.send(&b, TEN);
    drop(b);
    r.step("ten bytes arrive and peer closes", &a);
    r.take(&a, 10);
    r.step("drained", &a);
    r.take_end(&a);
    r.step("end is read", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: the peer closes and has not read"), &a);
    r.send(&a, TEN);
    r.send(&b, TEN);
    r.step("data both ways", &a);
    drop(b);
    r.step("peer closes", &a);
    r.take(&a, 5);
    r.step("five are read", &a);
    r.take(&a, 5);
    r.step("drained", &a);
    r.taken_error(&a);
    r.step("error is taken", &a);
    r.take_end(&a);
    r.step("end is read", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: own writing half shut"), &a);
    r.done("shutdown", a.shutdown(Shutdown::Write));
    r.step("own end", &a);
    r.code("write", a.write(TEN));
    r.send(&b, TEN);
    r.step("ten bytes arrive", &a);
    r.take(&a, 10);
    r.step("drained", &a);
    r.done("shutdown", b.shutdown(Shutdown::Write));
    r.step("end arrives", &a);
    r.take_end(&a);
    r.step("end is read", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: own reading half shut"), &a);
    r.done("shutdown", a.shutdown(Shutdown::Read));
    r.step("shut", &a);
    r.take_end(&a);
    r.step("end is read", &a);
    drop(b);
    r.step("peer closes", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: both own halves shut"), &a);
    r.done("shutdown", a.shutdown(Shutdown::Both));
    r.step("shut", &a);
    r.take_end(&a);
    r.step("end is read", &a);
    drop(b);
    r.step("peer closes", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: the peer's half, then both own halves shut"), &a);
    r.done("shutdown", b.shutdown(Shutdown::Write));
    r.step("end arrives", &a);
    r.done("shutdown", a.shutdown(Shutdown::Read));
    r.step("own reading half", &a);
    r.done("shutdown", a.shutdown(Shutdown::Write));
    r.step("own writing half", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: both halves of the peer shut"), &a);
    r.done("shutdown", b.shutdown(Shutdown::Both));
    r.step("shut", &a);
    r.take_end(&a);
    r.step("end is read", &a);

    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: send buffer full"), &a);
    let mut sum = r.fill(&a);
    r.step("full", &a);
    r.take(&b, sum);
    r.step("peer drains", &a);
    r.code("read", kernel::read(&b, &mut [0]));
    sum = r.fill(&a);
    // What the peer sends may announce more room, if its receive buffer has grown meanwhile.
    loop {
        r.send(&b, TEN);
        r.take(&a, 10);
        match r.fill(&a) {
            0 => break,
            more => sum += more,
        }
    }
    r.step("full again", &a);
    r.send(&b, TEN);
    r.step("ten bytes arrive", &a);
    r.take(&a, 10);
    r.step("drained", &a);
    r.take(&b, sum);
    r.step("peer drains", &a);

    if kernel::WATCHES_OUTLIVE_HANDLES {
        duplicate(r, name, pair);
    }
    r.part();
}

/// A watch belongs to the object, not to the descriptor with which it was created.
fn duplicate(r: &mut Recorder<'_>, name: &str, pair: Pair) {
    let (a, b) = pair(r.system);
    r.watch(&format!("{name}: a duplicate"), &a);
    let again = a.dup().expect("a descriptor");
    r.send(&b, TEN);
    r.step("ten bytes arrive", &a);
    drop(a);
    r.step("the watched descriptor is closed", &again);
    r.send(&b, TEN);
    r.step("ten bytes arrive", &again);
    r.take(&again, 20);
    r.step("drained", &again);
    drop(again);
    send_into_nothing(&b);
    let bystander = r.system.event();
    r.step("all closed (poll: a bystander)", &bystander);
}

/// Writes to a closed peer. Whether the write already fails depends on the protocol.
fn send_into_nothing(socket: &Socket) {
    let _ = socket.write(TEN);
}

fn tcp(r: &mut Recorder<'_>) {
    let system = r.system;
    let (a, b) = system.tcp_pair();
    r.watch("tcp: written to a peer that is closed", &a);
    drop(b);
    r.step("peer closes", &a);
    r.send(&a, TEN);
    r.step("own write is answered by a reset", &a);
    r.take_end(&a);
    r.step("end is read", &a);
    r.code("write", a.write(TEN));
    r.step("error is taken by a write", &a);

    let (a, b) = system.tcp_pair();
    r.watch("tcp: written to a peer that is shut", &a);
    r.done("shutdown", b.shutdown(Shutdown::Both));
    r.step("peer shuts both halves", &a);
    r.send(&a, TEN);
    r.step("own write is answered by a reset", &a);
    r.taken_error(&a);
    r.step("error is taken", &a);

    let (a, b) = system.tcp_pair();
    r.watch("tcp: data for a shut socket", &a);
    r.done("shutdown", a.shutdown(Shutdown::Both));
    r.step("own shutdown", &a);
    r.send(&b, TEN);
    r.step("ten bytes arrive", &a);
    r.code("read", kernel::read(&a, &mut [0]));
    r.step("error is taken by a read", &a);

    let (a, b) = system.tcp_pair();
    r.watch("tcp: data after the own reading half is shut", &a);
    r.done("shutdown", a.shutdown(Shutdown::Read));
    r.step("shut", &a);
    r.send(&b, TEN);
    r.step("ten bytes arrive", &a);
    r.take(&a, 10);
    r.step("drained", &a);

    let (a, b) = system.tcp_pair();
    r.watch("tcp: reset while idle", &a);
    b.reset();
    r.step("reset arrives", &a);
    r.code("read", kernel::read(&a, &mut [0]));
    r.step("error is taken by a read", &a);
    r.take_end(&a);
    r.step("end is read", &a);
    r.code("write", a.write(TEN));
    r.step("write fails", &a);

    let (a, b) = system.tcp_pair();
    r.watch("tcp: reset with data", &a);
    r.send(&b, TEN);
    r.step("ten bytes arrive", &a);
    b.reset();
    r.step("reset arrives", &a);
    r.take(&a, 10);
    r.step("drained", &a);
    r.taken_error(&a);
    r.step("error is taken", &a);

    let (a, b) = system.tcp_pair();
    r.watch("tcp: reset after the end", &a);
    r.done("shutdown", b.shutdown(Shutdown::Write));
    r.step("end arrives", &a);
    b.reset();
    r.step("reset arrives", &a);
    r.taken_error(&a);
    r.step("error is taken", &a);

    let (a, b) = system.tcp_pair();
    r.watch("tcp: reset after the own end", &a);
    r.done("shutdown", a.shutdown(Shutdown::Write));
    r.step("own end", &a);
    b.reset();
    r.step("reset arrives", &a);
    r.taken_error(&a);
    r.step("error is taken", &a);

    let listener = system.tcp_listener(4);
    let a = system.tcp_fresh();
    r.watch("tcp: fresh, refused, connected", &a);
    r.code("read", kernel::read(&a, &mut [0]));
    r.code("write", a.write(TEN));
    r.step("read and write fail", &a);
    r.connect(&a, &system.unused_address());
    r.step("refused", &a);
    r.taken_error(&a);
    r.step("error is taken", &a);
    r.code("connect", a.connect(&listener.address()));
    r.step("connect tells of the one before", &a);
    r.connect(&a, &listener.address());
    r.step("connect", &a);
    r.connect(&a, &listener.address());
    r.step("connect tells of the one before", &a);
    r.code("connect", a.connect(&listener.address()));
    drop(r.accept(&listener));
    r.step("accepted and closed", &a);

    let a = system.tcp_fresh();
    r.watch("tcp: refused, asked by connect", &a);
    r.connect(&a, &system.unused_address());
    r.step("refused", &a);
    r.code("connect", a.connect(&system.unused_address()));
    r.step("error is taken by connect", &a);
    r.connect(&a, &system.unused_address());
    r.step("refused again", &a);
    r.code("read", kernel::read(&a, &mut [0]));
    r.step("error is taken by a read", &a);

    let a = system.tcp_connect_refused();
    r.watch("tcp: refused before it is watched", &a);
    r.code("write", a.write(TEN));
    r.step("error is taken by a write", &a);

    let a = system.tcp_fresh();
    r.watch("tcp: fresh, shut", &a);
    r.code("shutdown", a.shutdown(Shutdown::Write));
    r.step("shutdown fails", &a);

    let a = system.tcp_connect(&listener);
    r.watch("tcp: connected before it is watched", &a);
    drop(listener);
    r.step("listener closes before it accepts", &a);
    r.taken_error(&a);
    r.step("error is taken", &a);
    r.part();
}

fn tcp_listener(r: &mut Recorder<'_>) {
    let system = r.system;
    let listener = system.tcp_listener(4);
    r.watch("tcp listener: connections", &listener);
    r.code("accept", listener.accept());
    let first = system.tcp_connect(&listener);
    r.step("one connects", &listener);
    let second = system.tcp_connect(&listener);
    r.step("another one connects", &listener);
    drop(r.accept(&listener));
    r.step("one is accepted", &listener);
    drop(r.accept(&listener));
    r.step("both are accepted", &listener);
    drop((first, second));
    r.step("clients close", &listener);
    let third = system.tcp_connect(&listener);
    r.step("one connects", &listener);
    third.reset();
    r.step("and resets", &listener);
    let accepted = r.accept(&listener);
    r.step("is accepted all the same", &listener);
    if let Some(accepted) = accepted {
        r.code("read", kernel::read(&accepted, &mut [0]));
    }
    r.done("shutdown", listener.shutdown(Shutdown::Both));
    r.step("listener is shut", &listener);

    if kernel::LISTENERS_ARE_SHUT {
        shut_listener(r);
    }
    if kernel::QUEUES_ARE_FULL {
        full_queue(r);
    }
    r.part();
}

fn shut_listener(r: &mut Recorder<'_>) {
    let system = r.system;
    let listener = system.tcp_listener(4);
    r.watch("tcp listener: shut, then connected", &listener);
    let first = system.tcp_connect(&listener);
    r.step("one connects", &listener);
    r.done("shutdown", listener.shutdown(Shutdown::Read));
    r.step("shut", &listener);
    r.code("accept", listener.accept());
    r.step("accept fails", &listener);
    r.connect(&listener, &system.unused_address());
    r.step("refused", &listener);
    drop(first);
}

fn full_queue(r: &mut Recorder<'_>) {
    let system = r.system;
    let listener = system.tcp_listener(0);
    let first = system.tcp_connect(&listener);
    let client = system.tcp_fresh();
    r.watch("tcp listener: queue full, seen from the client", &client);
    r.connect(&client, &listener.address());
    r.step("connect waits for room", &client);
    r.code("write", client.write(TEN));
    drop(first);
}

fn udp(r: &mut Recorder<'_>) {
    let system = r.system;
    let (a, b) = (system.udp_bound(), system.udp_bound());
    r.watch("udp: datagrams", &a);
    let to = a.address();
    r.done("sendto", b.send_to(TEN, &to));
    r.step("ten bytes arrive", &a);
    r.done("sendto", b.send_to(b"abc", &to));
    r.step("three bytes arrive", &a);
    r.take(&a, 10);
    r.step("one is read, one is left", &a);
    r.take(&a, 1);
    r.step("the other is read, cut short", &a);
    r.done("sendto", b.send_to(b"", &to));
    r.step("an empty one arrives", &a);
    r.take_end(&a);
    r.step("it is read", &a);
    r.done("sendto", a.send_to(TEN, &b.address()));
    r.step("own send", &a);
    r.take(&b, 10);
    r.step("peer reads it", &a);

    let (a, b) = system.udp_pair();
    r.watch("udp: the peer is gone", &a);
    r.send(&a, TEN);
    r.step("own send", &a);
    drop(b);
    r.step("peer closes", &a);
    r.send(&a, TEN);
    r.step("own send is answered by ICMP", &a);
    r.code("write", a.write(TEN));
    r.step("error is taken by a send", &a);
    r.send(&a, TEN);
    r.step("own send is answered by ICMP", &a);
    r.code("read", kernel::read(&a, &mut [0]));
    r.step("error is taken by a read", &a);
    r.send(&a, TEN);
    r.step("own send is answered by ICMP", &a);
    r.taken_error(&a);
    r.step("error is taken", &a);

    let (a, b) = system.udp_pair();
    r.watch("udp: an error beside data", &a);
    r.send(&b, TEN);
    r.step("ten bytes arrive", &a);
    drop(b);
    r.send(&a, TEN);
    r.step("own send is answered by ICMP", &a);
    r.code("read", kernel::read(&a, &mut [0]));
    r.step("error is taken by a read", &a);
    r.take(&a, 10);
    r.step("drained", &a);

    let (a, _b) = system.udp_pair();
    r.watch("udp: shut", &a);
    r.done("shutdown", a.shutdown(Shutdown::Write));
    r.step("own writing half", &a);
    r.code("write", a.write(TEN));
    r.done("shutdown", a.shutdown(Shutdown::Read));
    r.step("own reading half", &a);
    r.part();
}

fn play(system: &System) {
    let mut r = Recorder::new(system);
    stream(&mut r, "tcp", System::tcp_pair);
    tcp(&mut r);
    tcp_listener(&mut r);
    udp(&mut r);
    kernel::play_others(&mut r);
    r.part();
    r.finish();
}

#[test]
fn the_kernel_of_this_machine_does_what_is_recorded() {
    testkit::run(System::native, play);
}

// The simulated kernel must match the record of Linux.
#[cfg(target_os = "linux")]
#[test]
fn the_simulated_kernel_does_what_is_recorded() {
    testkit::run(System::simulated, play);
}
