//! One descriptor, real or simulated.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use completion_port::{BorrowedSource, OwnedSource, Source, sim};

use crate::native;

/// Where a [`Socket`] can be reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Address(Place);

#[derive(Clone, Debug, PartialEq)]
enum Place {
    Native(native::Address),
    Simulated(sim::Address),
}

impl Address {
    pub(crate) fn native(address: &SocketAddr) -> Self {
        Self(Place::Native(native::address(address)))
    }

    pub(crate) fn simulated(address: sim::Address) -> Self {
        Self(Place::Simulated(address))
    }

    /// The address as operations of a port have it. That of a real socket must be an Internet address.
    #[must_use]
    #[track_caller]
    pub fn for_port(&self) -> completion_port::Address {
        match &self.0 {
            Place::Native(address) => native::internet_address(address).unwrap().into(),
            Place::Simulated(address) => (*address).into(),
        }
    }
}

/// A socket, an end of a pipe, an event counter or a file, real or simulated.
///
/// Non-blocking unless [`Socket::set_nonblocking`] says otherwise. Its system counts it until it is
/// dropped.
#[derive(Debug)]
pub struct Socket {
    end: End,
    _counted: Counted,
}

#[derive(Debug)]
enum End {
    Native(native::Owned),
    Simulated(sim::Socket),
}

/// One of the open sockets of a system.
#[derive(Debug)]
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(open: &Arc<AtomicUsize>) -> Self {
        open.fetch_add(1, SeqCst);
        Self(Arc::clone(open))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

fn in_progress_is_fine(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if native::IN_PROGRESS.contains(&error.raw_os_error().unwrap_or(0)) => Ok(()),
        done => done,
    }
}

impl Socket {
    pub(crate) fn native(descriptor: native::Owned, open: &Arc<AtomicUsize>) -> Self {
        Self { end: End::Native(descriptor), _counted: Counted::new(open) }
    }

    pub(crate) fn simulated(socket: sim::Socket, open: &Arc<AtomicUsize>) -> Self {
        Self { end: End::Simulated(socket), _counted: Counted::new(open) }
    }

    fn beside(&self, end: End) -> Self {
        Self { end, _counted: Counted::new(&self._counted.0) }
    }

    pub(crate) fn adopted(source: OwnedSource, open: &Arc<AtomicUsize>) -> Self {
        match source.into_simulated() {
            Ok(socket) => Self::simulated(socket, open),
            Err(source) => Self::native(source.into(), open),
        }
    }

    /// The number that its kernel gave it. Only that of a real one names a descriptor of the process.
    #[must_use]
    pub fn number(&self) -> i32 {
        match &self.end {
            End::Native(descriptor) => native::number(descriptor),
            End::Simulated(socket) => socket.number(),
        }
    }

    /// The descriptor of a real one, for system calls that have no method here.
    #[must_use]
    #[track_caller]
    pub fn descriptor(&self) -> native::Borrowed<'_> {
        match &self.end {
            End::Native(descriptor) => native::borrow(descriptor),
            End::Simulated(_) => panic!("a simulated socket has no descriptor"),
        }
    }

    /// The file, if it is a real one.
    #[cfg(windows)]
    #[track_caller]
    pub(crate) fn file(&self) -> &std::fs::File {
        match &self.end {
            End::Native(descriptor) => descriptor.file(),
            End::Simulated(_) => panic!("it is simulated"),
        }
    }

    /// The simulated socket, if it is one: to ask its kernel about it.
    #[must_use]
    pub fn as_simulated(&self) -> Option<&sim::Socket> {
        match &self.end {
            End::Native(_) => None,
            End::Simulated(socket) => Some(socket),
        }
    }

    /// One read(2).
    ///
    /// # Errors
    ///
    /// The system's error, for this method and the others.
    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match &self.end {
            End::Native(descriptor) => native::read(descriptor, buf),
            End::Simulated(socket) => socket.read(buf),
        }
    }

    /// How many bytes can be read: the ioctl `FIONREAD`.
    ///
    /// # Errors
    ///
    /// The system's error; `Unsupported` for a simulated object without an answer.
    pub fn unread(&self) -> io::Result<usize> {
        match &self.end {
            End::Native(descriptor) => native::unread(descriptor),
            End::Simulated(socket) => {
                socket.kernel().unread(socket).ok_or(io::ErrorKind::Unsupported.into())
            }
        }
    }

    /// One write(2).
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.end {
            End::Native(descriptor) => native::write(descriptor, bytes),
            End::Simulated(socket) => socket.write(bytes),
        }
    }

    /// The state of a real socket, with the bits of Linux's poll(2).
    #[must_use]
    pub fn polled(&self) -> u32 {
        native::polled(match &self.end {
            End::Native(descriptor) => descriptor,
            End::Simulated(_) => panic!("a simulated kernel reports its own state"),
        })
    }

    /// Waits until something can be read or accepted, really or not at all.
    fn await_native(&self, limit: Duration) {
        if let End::Native(descriptor) = &self.end {
            native::await_readable(descriptor, limit);
        }
    }

    /// Reads exactly `count` bytes, or what there is before the end of the stream, waiting for them
    /// for at most `limit`.
    #[must_use]
    #[track_caller]
    pub fn read_within(&self, limit: Duration, count: usize) -> Vec<u8> {
        let end = Instant::now() + limit;
        let mut bytes = vec![0; count];
        let mut have = 0;
        while have < count {
            match self.read(&mut bytes[have..]) {
                Ok(0) => break,
                Ok(more) => have += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let left = end.saturating_duration_since(Instant::now());
                    let simulated = self.as_simulated().is_some();
                    if simulated || left.is_zero() {
                        // Nothing is on its way in a simulated kernel.
                        assert!(have > 0, "nothing came within {limit:?}");
                        break;
                    }
                    self.await_native(left);
                }
                Err(error) => panic!("reading failed: {error}"),
            }
        }
        bytes.truncate(have);
        bytes
    }

    /// Writes until there is no more room; returns the number of bytes.
    #[track_caller]
    pub fn fill(&self) -> usize {
        let bytes = [b'x'; 4096];
        let mut sum = 0;
        loop {
            match self.write(&bytes) {
                Ok(more) => sum += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return sum,
                Err(error) => panic!("writing failed: {error}"),
            }
        }
    }

    /// Reads until no data remains, or to the end; returns the number of bytes.
    #[track_caller]
    pub fn drain(&self) -> usize {
        let mut bytes = vec![0; 64 * 1024];
        let mut sum = 0;
        loop {
            match self.read(&mut bytes) {
                Ok(0) => return sum,
                Ok(more) => sum += more,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return sum,
                Err(error) => panic!("reading failed: {error}"),
            }
        }
    }

    /// One recvfrom(2).
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, Option<Address>)> {
        match &self.end {
            End::Native(descriptor) => {
                let (taken, from) = native::recv_from(descriptor, buf)?;
                Ok((taken, from.map(|from| Address(Place::Native(from)))))
            }
            End::Simulated(socket) => {
                let (taken, from) = socket.recv_from(buf)?;
                Ok((taken, Some(Address::simulated(from))))
            }
        }
    }

    /// One sendto(2).
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn send_to(&self, bytes: &[u8], address: &Address) -> io::Result<usize> {
        match (&self.end, &address.0) {
            (End::Native(descriptor), Place::Native(to)) => native::send_to(descriptor, bytes, to),
            (End::Simulated(socket), Place::Simulated(to)) => socket.send_to(bytes, *to),
            _ => panic!("the address is one of another system"),
        }
    }

    /// One accept(2).
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn accept(&self) -> io::Result<Self> {
        match &self.end {
            End::Native(descriptor) => Ok(self.beside(End::Native(native::accept(descriptor)?))),
            End::Simulated(socket) => Ok(self.beside(End::Simulated(socket.accept()?))),
        }
    }

    /// Accepts a connection, waiting for it for at most `limit`.
    #[must_use]
    #[track_caller]
    pub fn accept_within(&self, limit: Duration) -> Self {
        self.await_native(limit);
        self.accept().unwrap()
    }

    /// One connect(2); being in progress is not an error.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn connect(&self, address: &Address) -> io::Result<()> {
        in_progress_is_fine(match (&self.end, &address.0) {
            (End::Native(descriptor), Place::Native(to)) => native::connect(descriptor, to),
            (End::Simulated(socket), Place::Simulated(to)) => socket.connect(*to),
            _ => panic!("the address is one of another system"),
        })
    }

    /// One shutdown(2).
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match &self.end {
            End::Native(descriptor) => native::shutdown(descriptor, how),
            End::Simulated(socket) => socket.shutdown(how),
        }
    }

    /// Closes it so that a TCP connection is reset, if this was its last descriptor.
    pub fn reset(self) {
        match self.end {
            End::Native(descriptor) => native::reset_on_close(&descriptor),
            End::Simulated(socket) => socket.reset(),
        }
    }

    /// Another descriptor of the same object.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn dup(&self) -> io::Result<Self> {
        match &self.end {
            End::Native(descriptor) => Ok(self.beside(End::Native(native::dup(descriptor)?))),
            End::Simulated(socket) => Ok(self.beside(End::Simulated(socket.dup()?))),
        }
    }

    /// Takes the pending error: `SO_ERROR`.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        match &self.end {
            End::Native(descriptor) => native::take_error(descriptor),
            End::Simulated(socket) => socket.take_error(),
        }
    }

    /// Where others reach it.
    #[must_use]
    #[track_caller]
    pub fn address(&self) -> Address {
        match &self.end {
            End::Native(descriptor) => Address(Place::Native(native::own_address(descriptor))),
            End::Simulated(socket) => Address::simulated(socket.address()),
        }
    }

    /// Whether calls that cannot continue return `WouldBlock`. Simulated sockets cannot block.
    ///
    /// # Errors
    ///
    /// The system's error; `Unsupported` for making a simulated one blocking.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match &self.end {
            End::Native(descriptor) => native::set_nonblocking(descriptor, nonblocking),
            End::Simulated(_) if nonblocking => Ok(()),
            End::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Sends small writes immediately.
    pub(crate) fn set_nodelay(&self) {
        if let End::Native(descriptor) = &self.end {
            native::set_nodelay(descriptor);
        }
    }

    /// Adds `count` to an event counter.
    ///
    /// # Errors
    ///
    /// The system's error.
    pub fn signal(&self, count: u64) -> io::Result<()> {
        self.write(&count.to_ne_bytes()).map(drop)
    }
}

impl Source for Socket {
    fn as_source(&self) -> BorrowedSource<'_> {
        match &self.end {
            End::Native(descriptor) => descriptor.as_source(),
            End::Simulated(socket) => socket.as_source(),
        }
    }
}

impl Read for Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Self::read(self, buf)
    }
}

impl Read for &Socket {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        Socket::read(self, buf)
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Self::write(self, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Write for &Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Socket::write(self, bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
