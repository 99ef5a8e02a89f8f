//! Attempts at socket operations on a simulated kernel.

use std::io;
use std::mem::MaybeUninit;

use super::objects::{Code, FileId};
use super::reach::OnKernel;
use super::stream::{Family, Stream};
use super::{Conditions, Kernel, KernelState, Mechanism, Object, ObjectKind, Socket};
use crate::backend::sockets::{PARTS, Received, SocketAttempt, Sockets, Transport};
use crate::sys::codes;
use crate::types::address::{Address, AddressKind};
use crate::types::datagrams::transfer::{End, receive, send};
use crate::types::datagrams::{Datagrams, Facts};
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;
use crate::types::source::{OwnedKind, OwnedSource};

fn fault(code: Code) -> Fault {
    let kind = match code {
        codes::EBADF => ErrorKind::BadDescriptor,
        codes::EMFILE => ErrorKind::DescriptorLimit,
        codes::ENOMEM | codes::ENOBUFS => ErrorKind::OutOfMemory,
        _ => ErrorKind::Other,
    };
    Fault { kind, code: Some(code) }
}

/// Converts the error code of a failed attempt.
fn not_done<T>(code: Code) -> SocketAttempt<T> {
    match code {
        codes::EAGAIN => SocketAttempt::Blocked,
        codes::ENOBUFS | codes::ENOMEM => SocketAttempt::OutOfResources,
        _ => SocketAttempt::Failed(fault(code)),
    }
}

/// Converts the result of a receive. Unlike elsewhere, `ENOBUFS` reports lost messages.
fn received<T>(done: Result<T, Code>) -> SocketAttempt<T> {
    match done {
        Err(code @ codes::ENOBUFS) => {
            SocketAttempt::Failed(Fault { kind: ErrorKind::Other, code: Some(code) })
        }
        done => attempt(done),
    }
}

fn attempt<T>(done: Result<T, Code>) -> SocketAttempt<T> {
    done.map_or_else(not_done, SocketAttempt::Done)
}

/// Returns the file with this address.
fn place(address: &Address) -> Result<FileId, Fault> {
    match address.0 {
        AddressKind::Simulated(file) => Ok(FileId(file)),
        _ => Err(Fault { kind: ErrorKind::WrongKernel, code: None }),
    }
}

fn address(file: FileId) -> Address {
    super::Address::new(file).into()
}

/// Copies `bytes` to the beginning of `room`, which is large enough.
fn fill(room: &mut [&mut [MaybeUninit<u8>]], bytes: &[u8]) {
    let places = room.iter_mut().flat_map(|part| part.iter_mut());
    for (place, byte) in places.zip(bytes) {
        place.write(*byte);
    }
}

/// Returns the total length of the parts that one call takes.
///
/// It ignores the parts after the last of them.
fn limit(lengths: impl Iterator<Item = usize>) -> usize {
    lengths.filter(|length| *length > 0).take(PARTS).sum()
}

/// Returns whether a list has more parts than one call takes.
fn is_too_long(lengths: impl Iterator<Item = usize>) -> bool {
    lengths.filter(|length| *length > 0).count() > PARTS
}

impl KernelState {
    /// Returns the socket that `descriptor` names now.
    fn socket(&mut self, descriptor: Descriptor) -> Result<FileId, Code> {
        let file = self.file(descriptor).ok_or(codes::EBADF)?;
        match self.objects.kind(file) {
            ObjectKind::NoSocket => Err(codes::ENOTSOCK),
            _ => Ok(file),
        }
    }

    fn receive(
        &mut self,
        descriptor: Descriptor,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> Result<(Received, Option<Address>), Code> {
        self.calls.receive += 1;
        if let Some(code) = self.receive_failures.pop_front() {
            return Err(code);
        }
        let file = self.socket(descriptor)?;
        let is_stream = self.objects.kind(file) == ObjectKind::Stream;
        if !is_stream && is_too_long(room.iter().map(|part| part.len())) {
            return Err(codes::EMSGSIZE);
        }
        let limit = limit(room.iter().map(|part| part.len()));
        if limit == 0 {
            let nothing = Received { len: 0, is_cut: false };
            return if is_stream {
                self.objects.stream_look(file).map(|()| (nothing, None))
            } else {
                self.objects.datagram_look(file).map(|from| (nothing, Some(address(from))))
            };
        }
        // For a datagram socket, the size of the first datagram.
        let there = self.objects.unread(file).unwrap_or(0);
        let mut bytes = vec![0; limit.min(there)];
        let (len, from) = if is_stream {
            (self.objects.read(file, &mut bytes)?, None)
        } else {
            let (len, from) = self.objects.recv_from(file, &mut bytes)?;
            (len, Some(address(from)))
        };
        fill(room, &bytes[..len]);
        Ok((Received { len, is_cut: !is_stream && there > limit }, from))
    }

    fn send(
        &mut self,
        descriptor: Descriptor,
        parts: &[&[u8]],
        to: Option<FileId>,
    ) -> Result<usize, Code> {
        self.calls.send += 1;
        if let Some(code) = self.send_failures.pop_front() {
            return Err(code);
        }
        let file = self.socket(descriptor)?;
        let is_stream = self.objects.kind(file) == ObjectKind::Stream;
        if !is_stream && is_too_long(parts.iter().map(|part| part.len())) {
            return Err(codes::EMSGSIZE);
        }
        let mut bytes = parts.concat();
        bytes.truncate(limit(parts.iter().map(|part| part.len())));
        match to {
            Some(to) => self.objects.send_to(file, &bytes, to),
            None => self.objects.write(file, &bytes),
        }
    }

    fn begin_connect(&mut self, descriptor: Descriptor, to: FileId) -> SocketAttempt<()> {
        self.calls.connect += 1;
        let done = match self.connect_failures.pop_front() {
            Some(code) => Err(code),
            None => self.socket(descriptor).and_then(|file| {
                // The kernel would take this connect for the end of the one that made the
                // connection.
                if self.objects.is_connected(file) {
                    return Err(codes::EISCONN);
                }
                match self.objects.connect(file, to) {
                    // TCP reports an earlier failed connect like this after its error was taken.
                    Err(codes::ECONNABORTED) => {
                        self.calls.connect += 1;
                        self.objects.connect(file, to)
                    }
                    done => done,
                }
            }),
        };
        match done {
            Err(codes::EINPROGRESS) => SocketAttempt::Blocked,
            Err(codes::EAGAIN) => SocketAttempt::OutOfResources,
            done => attempt(done),
        }
    }

    fn end_connect(&mut self, descriptor: Descriptor) -> SocketAttempt<()> {
        self.calls.connect += 1;
        let done = self.socket(descriptor).and_then(|file| {
            if let Some(code) = self.objects.take_error(file)? {
                return Err(code);
            }
            match self.objects.kind(file) {
                ObjectKind::Stream => self.objects.stream_end_connect(file),
                _ => Ok(()),
            }
        });
        match done {
            Err(codes::EINPROGRESS) => SocketAttempt::Blocked,
            done => attempt(done),
        }
    }
}

/// Datagrams of a program that uses readiness. It sends and receives one with each call.
impl Socket {
    /// Receives as [`Datagrams::recv`] does.
    ///
    /// # Errors
    ///
    /// As for [`Datagrams::recv`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Datagrams, sim};
    ///
    /// let kernel = sim::Kernel::new();
    /// let (near, far) = kernel.udp_pair()?;
    /// let mut datagrams = Datagrams::new(8, 100);
    /// assert!(datagrams.push(b"one", None) && datagrams.push(b"two", None));
    /// assert_eq!(near.send_many(&mut datagrams)?, 2);
    /// assert_eq!(far.recv_many(&mut datagrams)?, 2);
    /// assert_eq!(datagrams.get(1).map(|datagram| datagram.bytes()), Some(b"two".as_slice()));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn recv_many(&self, datagrams: &mut Datagrams) -> io::Result<usize> {
        let one = |room: &mut [MaybeUninit<u8>]| {
            let received = self.change(|state, number| state.receive(number, &mut [room]));
            let (Received { len, is_cut }, address) = received?;
            Ok((len, Facts { address, is_truncated: is_cut, ..Facts::default() }))
        };
        let end = |code: &Code| if *code == codes::EAGAIN { End::Drained } else { End::Failed };
        let done = receive(datagrams, |_| None, one, end);
        done.map(|()| datagrams.len()).map_err(io::Error::from_raw_os_error)
    }

    /// Sends as [`Datagrams::send`] does.
    ///
    /// # Errors
    ///
    /// As for [`Datagrams::send`].
    pub fn send_many(&self, datagrams: &mut Datagrams) -> io::Result<usize> {
        let before = datagrams.len();
        let one = |bytes: &[u8], to: Option<&Address>| {
            let to = to.map(place).transpose().map_err(|_| codes::EINVAL)?;
            self.change(|state, number| state.send(number, &[bytes], to))
        };
        let done = send(datagrams, usize::MAX, |_| None, one);
        let count = before - datagrams.len();
        match done {
            Err(codes::EAGAIN) if count > 0 => Ok(count),
            Err(code) => Err(io::Error::from_raw_os_error(code)),
            Ok(_) => Ok(count),
        }
    }
}

fn owned(kernel: &Kernel, file: FileId, number: Descriptor) -> OwnedSource {
    OwnedSource(OwnedKind::Simulated(Socket::new(kernel.clone(), file, number)))
}

impl<T: OnKernel> Sockets for T {
    fn make_nonblocking(&self, descriptor: Descriptor) -> Result<(), Fault> {
        // All simulated sockets are non-blocking.
        self.act(|state| {
            state.calls.nonblocking += 1;
            state.file(descriptor).map(drop).ok_or(fault(codes::EBADF))
        })
    }

    fn transport(&self, descriptor: Descriptor) -> Transport {
        self.act(|state| {
            state.calls.kind += 1;
            match state.file(descriptor).and_then(|file| state.objects.stream_family(file)) {
                Some(Family::Tcp) => Transport::DrainedStream,
                Some(Family::Unix) => Transport::Stream,
                None => Transport::Messages,
            }
        })
    }

    fn open_stream(&self, address: &Address) -> Result<OwnedSource, Fault> {
        let to = place(address)?;
        let (file, number) = self.act(|state| {
            state.calls.open += 1;
            let family = state.objects.stream_family(to).unwrap_or(Family::Tcp);
            let file = state.objects.add(Object::Stream(Stream::fresh(family)));
            match state.name(file) {
                Ok(number) => Ok((file, number)),
                Err(code) => {
                    state.objects.close(file);
                    Err(fault(code))
                }
            }
        })?;
        Ok(owned(self.kernel(), file, number))
    }

    fn accept(&self, descriptor: Descriptor) -> SocketAttempt<(OwnedSource, Option<Address>)> {
        let accepted = self.act(|state| {
            loop {
                state.calls.accept += 1;
                let accepted = state.socket(descriptor).and_then(|file| state.accept(file));
                match accepted {
                    Ok((file, number)) => {
                        break Ok((file, number, state.objects.stream_peer(file)));
                    }
                    // The next attempt takes the next connection.
                    Err(codes::ECONNABORTED) => {}
                    Err(code) => break Err(code),
                }
            }
        });
        match accepted {
            Ok((file, number, peer)) => {
                SocketAttempt::Done((owned(self.kernel(), file, number), peer.map(address)))
            }
            Err(codes::EMFILE) => SocketAttempt::OutOfResources,
            Err(code) => not_done(code),
        }
    }

    fn begin_connect(&self, descriptor: Descriptor, address: &Address) -> SocketAttempt<()> {
        match place(address) {
            Ok(to) => self.act(|state| state.begin_connect(descriptor, to)),
            Err(fault) => SocketAttempt::Failed(fault),
        }
    }

    fn end_connect(&self, descriptor: Descriptor) -> SocketAttempt<()> {
        self.act(|state| state.end_connect(descriptor))
    }

    fn has_shut_reading(&self, descriptor: Descriptor) -> bool {
        self.act(|state| {
            state.calls.receive += 1;
            let Ok(file) = state.socket(descriptor) else { return false };
            state.objects.conditions(file).contains(Conditions::RDHUP)
        })
    }

    fn abandon_connect(&self, descriptor: Descriptor) -> bool {
        self.act(|state| {
            state.calls.connect += 1;
            // Only Linux has this call.
            state.mechanism == Mechanism::Epoll
                && state.socket(descriptor).is_ok_and(|file| state.objects.stream_disconnect(file))
        })
    }

    fn receive(
        &self,
        descriptor: Descriptor,
        _transport: Transport,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> SocketAttempt<Received> {
        let taken = self.act(|state| state.receive(descriptor, room));
        received(taken.map(|(taken, _)| taken))
    }

    fn receive_from(
        &self,
        descriptor: Descriptor,
        _transport: Transport,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> SocketAttempt<(Received, Option<Address>)> {
        received(self.act(|state| state.receive(descriptor, room)))
    }

    fn send(
        &self,
        descriptor: Descriptor,
        parts: &[&[u8]],
        address: Option<&Address>,
    ) -> SocketAttempt<usize> {
        match address.map(place).transpose() {
            Ok(to) => attempt(self.act(|state| state.send(descriptor, parts, to))),
            Err(fault) => SocketAttempt::Failed(fault),
        }
    }
}
