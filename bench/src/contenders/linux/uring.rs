//! Plain `io_uring`: a ring for each thread. Each connection has one permanent receive request,
//! into buffers that the kernel picks.
//!
//! A turn is one system call: it submits the answers to everything that the last one brought, and
//! waits for more. An answer is sent without waiting and reports nothing if it was sent completely,
//! so it does not end the wait. The rest is sent by a request that waits.

mod buffers;
mod connection;
mod datagrams;

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::mem::replace;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

use io_uring::squeue::{self, Flags};
use io_uring::types::Fd;
use io_uring::{Builder, CompletionQueue, IoUring, SubmissionQueue, Submitter, cqueue, opcode};
use slab::Slab;

use self::buffers::{Buffers, GROUP};
use self::connection::{Answer, Connection};
use self::datagrams::Datagrams;
use super::dealer::{Given, Inbox, deal};
use super::{Contender, Server, version};
use crate::sink::Service;

/// Room for requests.
const REQUESTS: u32 = 2048;

/// Room for completions; a ring that overflows ends the requests that receive.
const COMPLETIONS: u32 = 16384;

/// Bytes of the bell received together.
const RUNG_BYTES: u32 = 64;

/// Handlers that take longer on average do not delay the answers before them.
const LONG: Duration = Duration::from_micros(10);

pub(crate) fn contender() -> Contender {
    Contender {
        name: "uring",
        about: "io_uring per thread, multishot receive, buffer ring; connections dealt round robin",
        version: || format!("{}, {}", version::of_crate!("io-uring"), super::of_kernel()),
        start,
    }
}

fn start(threads: usize, service: Service) -> io::Result<Box<dyn Server>> {
    deal("uring", threads, build, move |mut ring, inbox, rung| {
        let (mut submitter, requests, completions) = ring.split();
        // Saves looking up the ring's descriptor in each call; kernels before 5.18 do not know it.
        let _ = submitter.register_ring_fd();
        let buffers = Buffers::register(&submitter, service.buffer())?;
        Engine {
            service,
            submitter,
            requests,
            completions,
            buffers,
            connections: Slab::new(),
            inbox,
            listeners: Slab::new(),
            datagrams: Datagrams::default(),
            rung,
            rung_bytes: Box::new([0; RUNG_BYTES as usize]),
            arrived: VecDeque::new(),
            answering: Vec::new(),
            starved: Vec::new(),
            closing: false,
        }
        .run()
    })
}

/// A ring with the best settings that the kernel takes.
fn build() -> io::Result<IoUring> {
    let settings: [fn(&mut Builder) -> &mut Builder; 4] = [
        |ring| ring.setup_single_issuer().setup_defer_taskrun().setup_no_sqarray(),
        |ring| ring.setup_single_issuer().setup_defer_taskrun(),
        |ring| ring.setup_single_issuer().setup_coop_taskrun(),
        |ring| ring.setup_coop_taskrun(),
    ];
    let mut result = Err(ErrorKind::Unsupported.into());
    for set in settings {
        let mut builder = IoUring::builder();
        set(builder.setup_cqsize(COMPLETIONS).setup_submit_all());
        result = builder.build(REQUESTS);
        if !matches!(&result, Err(error) if error.kind() == ErrorKind::InvalidInput) {
            break;
        }
    }
    result
}

/// What a request is about; in the upper half of its user data, above the number of a connection, listener
/// or socket for datagrams.
mod kind {
    pub(super) const RUNG: u64 = 0;
    pub(super) const RECEIVE: u64 = 1;
    pub(super) const ANSWER: u64 = 2;
    pub(super) const UNSENT: u64 = 3;
    pub(super) const ACCEPT: u64 = 4;
    pub(super) const CLOSE: u64 = 5;
    pub(super) const DATAGRAM: u64 = 6;
    /// The answer to a datagram.
    pub(super) const REPLY: u64 = 7;
}

fn user_data(kind: u64, connection: usize) -> u64 {
    kind << 32 | connection as u64
}

struct Engine<'r> {
    service: Service,
    submitter: Submitter<'r>,
    requests: SubmissionQueue<'r>,
    completions: CompletionQueue<'r>,
    buffers: Buffers,
    connections: Slab<Connection>,
    inbox: Inbox,
    listeners: Slab<TcpListener>,
    datagrams: Datagrams,
    rung: UnixStream,
    /// Where a request receives the bytes of `rung`.
    rung_bytes: Box<[u8; RUNG_BYTES as usize]>,
    /// Completions that have not been looked at.
    arrived: VecDeque<cqueue::Entry>,
    /// The connections with an answer for the next turn.
    answering: Vec<usize>,
    /// Those that found no buffer to receive into.
    starved: Vec<usize>,
    /// Whether one of those with an answer is closed once it has gone out.
    closing: bool,
}

impl Engine<'_> {
    fn run(mut self) -> io::Result<()> {
        self.listen_for_bell()?;
        let mut long = false;
        loop {
            self.turn()?;
            // A single handler has no answers before it.
            let began = (self.arrived.len() > 1).then(Instant::now);
            let mut handled = 0;
            while let Some(completion) = self.arrived.pop_front() {
                self.handle(&completion)?;
                handled += 1;
                let has_answers = !self.answering.is_empty() || self.datagrams.has_answers();
                if long && has_answers && !self.arrived.is_empty() {
                    self.turn()?;
                }
            }
            long = began.map_or(long, |began| began.elapsed() > LONG * handled);
        }
    }

    /// Submits all requests, those for the answers among them; waits if there is nothing else to do.
    fn turn(&mut self) -> io::Result<()> {
        for index in 0..self.answering.len() {
            self.send_answer(self.answering[index])?;
        }
        for at in 0..self.datagrams.answers() {
            if let Some(request) = self.datagrams.answer(at, &self.buffers) {
                self.push(request.user_data(user_data(kind::REPLY, 0)))?;
            }
        }
        loop {
            let is_starved = !self.starved.is_empty() || self.datagrams.is_starved();
            let is_idle = self.arrived.is_empty() && !is_starved && !self.closing;
            self.submit(usize::from(is_idle))?;
            let is_all = self.requests.is_empty();
            self.collect()?;
            if is_all {
                break;
            }
        }
        self.datagrams.answered(&mut self.buffers);
        // Who has not complained has been sent.
        while let Some(number) = self.answering.pop() {
            let connection = &mut self.connections[number];
            replace(&mut connection.answer, Answer::Nothing).discard(&mut self.buffers);
            self.close_if_over(number)?;
        }
        self.closing = false;
        // There are buffers again: those of the answers, if no others.
        while let Some(number) = self.starved.pop() {
            self.receive(number)?;
        }
        while let Some(number) = self.datagrams.take_starved() {
            self.receive_datagrams(number)?;
        }
        Ok(())
    }

    /// One call: submits what there is room for, and waits for `want` completions.
    fn submit(&mut self, want: usize) -> io::Result<()> {
        self.requests.sync();
        let result = self.submitter.submit_and_wait(want);
        self.requests.sync();
        match result.map_err(|error| (error.raw_os_error(), error)) {
            // Busy: completions must be collected first.
            Ok(_) | Err((Some(libc::EINTR | libc::EBUSY | libc::EAGAIN), _)) => Ok(()),
            Err((_, error)) => Err(error),
        }
    }

    /// Takes all completions; those of answers are looked at before anything else is sent.
    fn collect(&mut self) -> io::Result<()> {
        self.completions.sync();
        while let Some(completion) = self.completions.next() {
            if completion.user_data() >> 32 == kind::ANSWER {
                self.refused(&completion)?;
            } else {
                self.arrived.push_back(completion);
            }
        }
        // Reports the taken completions to the kernel: otherwise a wait would end immediately.
        self.completions.sync();
        Ok(())
    }

    fn handle(&mut self, completion: &cqueue::Entry) -> io::Result<()> {
        match completion.user_data() >> 32 {
            kind::RECEIVE => self.received(completion),
            kind::UNSENT => self.sent(completion),
            kind::ACCEPT => self.accepted(completion),
            kind::DATAGRAM => self.received_datagram(completion),
            // They complete only if they fail: there is nothing more to be done about a connection that does not
            // close, nor about a datagram that found no room.
            kind::CLOSE | kind::REPLY => Ok(()),
            _ if completion.result() > 0 => {
                for given in self.inbox.take_all() {
                    match given {
                        Given::Stream(stream) => self.add(stream)?,
                        Given::Listener(listener) => {
                            let number = self.listeners.insert(listener);
                            self.accept(number)?;
                        }
                        Given::Datagrams(socket) => {
                            let number = self.datagrams.add(socket);
                            self.receive_datagrams(number)?;
                        }
                    }
                }
                self.listen_for_bell()
            }
            // No more connections will arrive; the existing ones continue.
            _ => Ok(()),
        }
    }

    fn add(&mut self, stream: TcpStream) -> io::Result<()> {
        let number = self.connections.insert(Connection::new(stream));
        self.receive(number)
    }

    /// A listener has accepted a connection, or its request has ended.
    fn accepted(&mut self, completion: &cqueue::Entry) -> io::Result<()> {
        match completion.result() {
            number @ 0.. => {
                // SAFETY: the descriptor must be open, and nobody else's.
                // - the kernel has created it for this completion, which is handled once.
                let socket = unsafe { OwnedFd::from_raw_fd(number) };
                self.add(socket.into())?;
            }
            error if error == -libc::ECONNABORTED => {}
            error => return Err(io::Error::from_raw_os_error(-error)),
        }
        if cqueue::more(completion.flags()) {
            return Ok(());
        }
        self.accept(number_in(completion))
    }

    /// A datagram was received, or the request of its socket has ended.
    fn received_datagram(&mut self, completion: &cqueue::Entry) -> io::Result<()> {
        let number = number_in(completion);
        match (usize::try_from(completion.result()), cqueue::buffer_select(completion.flags())) {
            (Ok(length), Some(id)) => {
                // SAFETY: a completion must have named the buffer and its length, once.
                // - it has: this one, which is handled once.
                let filled = unsafe { self.buffers.take(id, length) };
                self.datagrams.received(number, filled, &mut self.buffers);
            }
            _ if completion.result() == -libc::ENOBUFS => {
                self.datagrams.starve(number);
                return Ok(());
            }
            _ => return Err(io::Error::from_raw_os_error(-completion.result())),
        }
        if cqueue::more(completion.flags()) { Ok(()) } else { self.receive_datagrams(number) }
    }

    /// Data was received, or the stream has ended.
    fn received(&mut self, completion: &cqueue::Entry) -> io::Result<()> {
        let number = number_in(completion);
        let connection = &mut self.connections[number];
        match (usize::try_from(completion.result()), cqueue::buffer_select(completion.flags())) {
            (Ok(length @ 1..), Some(id)) => {
                // SAFETY: a completion must have named the buffer and its length, once.
                // - it has: this one, which is handled once.
                let filled = unsafe { self.buffers.take(id, length) };
                if let Service::Sink(sink) = self.service {
                    // The buffer is given back first: another connection may be waiting for it.
                    self.buffers.give_back(filled);
                    sink.handle(length);
                    return if cqueue::more(completion.flags()) {
                        Ok(())
                    } else {
                        self.receive(number)
                    };
                }
                let is_first = matches!(connection.answer, Answer::Nothing);
                connection.received(filled, &mut self.buffers);
                if is_first && connection.unsent.is_none() {
                    self.answering.push(number);
                }
                if !cqueue::more(completion.flags()) {
                    self.receive(number)?;
                }
            }
            _ if completion.result() == -libc::ENOBUFS => self.starved.push(number),
            _ => {
                connection.ended = true;
                self.closing |=
                    connection.unsent.is_none() && !matches!(connection.answer, Answer::Nothing);
                self.close_if_over(number)?;
            }
        }
        Ok(())
    }

    /// An answer has found no room, or not enough: the rest is sent by a request that waits.
    fn refused(&mut self, completion: &cqueue::Entry) -> io::Result<()> {
        let number = number_in(completion);
        let connection = &mut self.connections[number];
        let sent = match completion.result() {
            error if error == -libc::EAGAIN => 0,
            result => match usize::try_from(result) {
                Ok(sent) => sent,
                Err(_) => return fail(connection),
            },
        };
        connection.unsent = Some(connection.answer.bytes(&self.buffers)[sent..].to_vec());
        self.send_unsent(number)
    }

    /// The request that waits for room has sent its data.
    fn sent(&mut self, completion: &cqueue::Entry) -> io::Result<()> {
        let number = number_in(completion);
        let connection = &mut self.connections[number];
        let mut unsent = connection.unsent.take().unwrap_or_default();
        match usize::try_from(completion.result()) {
            Ok(sent) => drop(unsent.drain(..sent)),
            Err(_) => {
                fail(connection)?;
                unsent.clear();
                connection.answer = Answer::Nothing;
            }
        }
        if let Answer::Copy(more) = replace(&mut connection.answer, Answer::Nothing) {
            unsent.extend(more);
        }
        if unsent.is_empty() {
            return self.close_if_over(number);
        }
        connection.unsent = Some(unsent);
        self.send_unsent(number)
    }

    fn close_if_over(&mut self, number: usize) -> io::Result<()> {
        if self.connections[number].is_over() {
            let connection = self.connections.remove(number);
            // By a request: it goes to the kernel together with the next others.
            let request = opcode::Close::new(Fd(connection.stream.into_raw_fd())).build();
            let request = request.flags(Flags::SKIP_SUCCESS);
            return self.push(request.user_data(user_data(kind::CLOSE, 0)));
        }
        Ok(())
    }

    fn listen_for_bell(&mut self) -> io::Result<()> {
        let (start, length) = (self.rung_bytes.as_mut_ptr(), RUNG_BYTES);
        let request = opcode::Recv::new(Fd(self.rung.as_raw_fd()), start, length).build();
        self.push(request.user_data(user_data(kind::RUNG, 0)))
    }

    fn receive(&mut self, number: usize) -> io::Result<()> {
        let socket = Fd(self.connections[number].stream.as_raw_fd());
        let request = opcode::RecvMulti::new(socket, GROUP).build();
        self.push(request.user_data(user_data(kind::RECEIVE, number)))
    }

    fn receive_datagrams(&mut self, number: usize) -> io::Result<()> {
        let request = self.datagrams.receive(number);
        self.push(request.user_data(user_data(kind::DATAGRAM, number)))
    }

    /// Accepts permanently.
    fn accept(&mut self, number: usize) -> io::Result<()> {
        let socket = Fd(self.listeners[number].as_raw_fd());
        let request = opcode::AcceptMulti::new(socket).flags(libc::SOCK_CLOEXEC).build();
        self.push(request.user_data(user_data(kind::ACCEPT, number)))
    }

    /// Fails instead of waiting for room, and completes only if it fails.
    fn send_answer(&mut self, number: usize) -> io::Result<()> {
        const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        let connection = &self.connections[number];
        let request = send(connection, connection.answer.bytes(&self.buffers), FLAGS);
        let request = request.flags(Flags::SKIP_SUCCESS);
        self.push(request.user_data(user_data(kind::ANSWER, number)))
    }

    /// Waits for room as often as necessary.
    fn send_unsent(&mut self, number: usize) -> io::Result<()> {
        const FLAGS: i32 = libc::MSG_WAITALL | libc::MSG_NOSIGNAL;
        let connection = &self.connections[number];
        let request = send(connection, connection.unsent.as_deref().unwrap_or_default(), FLAGS);
        self.push(request.user_data(user_data(kind::UNSENT, number)))
    }

    fn push(&mut self, request: squeue::Entry) -> io::Result<()> {
        loop {
            // SAFETY: what the request refers to must be valid until it completes.
            // - descriptors: those of connections, each closed only after it has ended and nothing
            //   of it is unsent, by a request that nothing follows; those of listeners, of sockets
            //   for datagrams and of `rung`, which stay open;
            // - `rung_bytes`: used by one request at a time, and never freed;
            // - the header of a socket for datagrams: never freed;
            // - an answer, and the address it goes to: not touched from here to the end of the
            //   turn, when the request has ended;
            // - unsent bytes: not touched until the request that sends them has completed.
            if unsafe { self.requests.push(&request) }.is_ok() {
                return Ok(());
            }
            self.submit(0)?;
            if self.requests.is_full() {
                self.collect()?;
            }
        }
    }
}

#[allow(clippy::cast_possible_truncation, reason = "it was a `usize` before")]
fn number_in(completion: &cqueue::Entry) -> usize {
    (completion.user_data() & u64::from(u32::MAX)) as usize
}

fn send(connection: &Connection, bytes: &[u8], flags: i32) -> squeue::Entry {
    // An answer is never that long, and the rest of the unsent bytes is sent later.
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let socket = Fd(connection.stream.as_raw_fd());
    opcode::Send::new(socket, bytes.as_ptr(), length).flags(flags).build()
}

/// Nothing can be sent any more: has the request that receives end.
fn fail(connection: &Connection) -> io::Result<()> {
    match connection.stream.shutdown(Shutdown::Both) {
        Err(error) if error.kind() != ErrorKind::NotConnected => Err(error),
        _ => Ok(()),
    }
}
