//! One descriptor, real or simulated.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::{Duration, Instant};

use completion_port::{BorrowedSource, OwnedSource, Source, sim};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, SocketAddrAny, SocketFlags, sockopt};

/// Where a [`Socket`] can be reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Address(Place);

#[derive(Clone, Debug, PartialEq)]
enum Place {
    Native(SocketAddrAny),
    Simulated(sim::Address),
}

impl Address {
    pub(crate) fn native(address: &SocketAddr) -> Self {
        Self(Place::Native((*address).into()))
    }

    pub(crate) fn simulated(address: sim::Address) -> Self {
        Self(Place::Simulated(address))
    }

    /// The address as operations of a port have it. That of a real socket must be an Internet address.
    #[must_use]
    #[track_caller]
    pub fn for_port(&self) -> completion_port::Address {
        match &self.0 {
            Place::Native(address) => SocketAddr::try_from(address.clone()).unwrap().into(),
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
    Native(OwnedFd),
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
        Err(error) if error.raw_os_error() == Some(Errno::INPROGRESS.raw_os_error()) => Ok(()),
        done => done,
    }
}

impl Socket {
    pub(crate) fn native(descriptor: OwnedFd, open: &Arc<AtomicUsize>) -> Self {
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
    pub fn number(&self) -> RawFd {
        match &self.end {
            End::Native(descriptor) => descriptor.as_raw_fd(),
            End::Simulated(socket) => socket.number(),
        }
    }

    /// The descriptor of a real one, for system calls that have no method here.
    #[must_use]
    #[track_caller]
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        match &self.end {
            End::Native(descriptor) => descriptor.as_fd(),
            End::Simulated(_) => panic!("a simulated socket has no descriptor"),
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
    /// What the system says, for this method and the others.
    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        match &self.end {
            End::Native(descriptor) => Ok(rustix::io::read(descriptor, buf)?),
            End::Simulated(socket) => socket.read(buf),
        }
    }

    /// How many bytes can be read: the ioctl `FIONREAD`.
    ///
    /// # Errors
    ///
    /// What the system says; `Unsupported` of a simulated object that has no answer.
    pub fn unread(&self) -> io::Result<usize> {
        match &self.end {
            End::Native(descriptor) => {
                let unread = rustix::io::ioctl_fionread(descriptor)?;
                usize::try_from(unread).map_err(io::Error::other)
            }
            End::Simulated(socket) => {
                socket.kernel().unread(socket).ok_or(io::ErrorKind::Unsupported.into())
            }
        }
    }

    /// One write(2).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match &self.end {
            End::Native(descriptor) => Ok(rustix::io::write(descriptor, bytes)?),
            End::Simulated(socket) => socket.write(bytes),
        }
    }

    /// Waits until the descriptor itself says `wanted`, really or not at all.
    fn await_native(&self, wanted: PollFlags, limit: Duration) {
        if let End::Native(descriptor) = &self.end {
            let timeout = Timespec::try_from(limit).unwrap();
            let mut question = [PollFd::new(descriptor, wanted)];
            while poll(&mut question, Some(&timeout)) == Err(Errno::INTR) {}
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
                    self.await_native(PollFlags::IN, left);
                }
                Err(error) => panic!("reading failed: {error}"),
            }
        }
        bytes.truncate(have);
        bytes
    }

    /// Writes until there is no more room; tells how much went in.
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

    /// Reads until there is nothing left, or to the end; tells how much came out.
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
    /// What the system says.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, Option<Address>)> {
        match &self.end {
            End::Native(descriptor) => {
                let (taken, _, from) = rustix::net::recvfrom(descriptor, buf, RecvFlags::empty())?;
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
    /// What the system says.
    pub fn send_to(&self, bytes: &[u8], address: &Address) -> io::Result<usize> {
        match (&self.end, &address.0) {
            (End::Native(descriptor), Place::Native(to)) => {
                Ok(rustix::net::sendto(descriptor, bytes, SendFlags::NOSIGNAL, to)?)
            }
            (End::Simulated(socket), Place::Simulated(to)) => socket.send_to(bytes, *to),
            _ => panic!("the address is one of another system"),
        }
    }

    /// One accept(2).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn accept(&self) -> io::Result<Self> {
        match &self.end {
            End::Native(descriptor) => {
                let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
                let accepted = rustix::net::accept_with(descriptor, flags)?;
                Ok(self.beside(End::Native(accepted)))
            }
            End::Simulated(socket) => Ok(self.beside(End::Simulated(socket.accept()?))),
        }
    }

    /// Accepts a connection, waiting for it for at most `limit`.
    #[must_use]
    #[track_caller]
    pub fn accept_within(&self, limit: Duration) -> Self {
        self.await_native(PollFlags::IN, limit);
        self.accept().unwrap()
    }

    /// One connect(2); that it is in progress is no error.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn connect(&self, address: &Address) -> io::Result<()> {
        in_progress_is_fine(match (&self.end, &address.0) {
            (End::Native(descriptor), Place::Native(to)) => {
                rustix::net::connect(descriptor, to).map_err(io::Error::from)
            }
            (End::Simulated(socket), Place::Simulated(to)) => socket.connect(*to),
            _ => panic!("the address is one of another system"),
        })
    }

    /// One shutdown(2).
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        match &self.end {
            End::Native(descriptor) => {
                let how = match how {
                    Shutdown::Read => rustix::net::Shutdown::Read,
                    Shutdown::Write => rustix::net::Shutdown::Write,
                    Shutdown::Both => rustix::net::Shutdown::Both,
                };
                Ok(rustix::net::shutdown(descriptor, how)?)
            }
            End::Simulated(socket) => socket.shutdown(how),
        }
    }

    /// Closes it so that a TCP connection is reset, if this was its last descriptor.
    pub fn reset(self) {
        match self.end {
            End::Native(descriptor) => {
                sockopt::set_socket_linger(&descriptor, Some(Duration::ZERO)).unwrap();
            }
            End::Simulated(socket) => socket.reset(),
        }
    }

    /// Another descriptor of the same object.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn dup(&self) -> io::Result<Self> {
        match &self.end {
            End::Native(descriptor) => Ok(self.beside(End::Native(descriptor.try_clone()?))),
            End::Simulated(socket) => Ok(self.beside(End::Simulated(socket.dup()?))),
        }
    }

    /// Takes the pending error: `SO_ERROR`.
    ///
    /// # Errors
    ///
    /// What the system says.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        match &self.end {
            End::Native(descriptor) => {
                Ok(sockopt::socket_error(descriptor)?.err().map(io::Error::from))
            }
            End::Simulated(socket) => socket.take_error(),
        }
    }

    /// Where others reach it.
    #[must_use]
    #[track_caller]
    pub fn address(&self) -> Address {
        match &self.end {
            End::Native(descriptor) => {
                Address(Place::Native(rustix::net::getsockname(descriptor).unwrap()))
            }
            End::Simulated(socket) => Address::simulated(socket.address()),
        }
    }

    /// Whether calls that cannot go on give `WouldBlock`. Simulated sockets cannot block.
    ///
    /// # Errors
    ///
    /// What the system says; `Unsupported` for making a simulated one blocking.
    pub fn set_nonblocking(&self, nonblocking: bool) -> io::Result<()> {
        match &self.end {
            End::Native(descriptor) => Ok(rustix::io::ioctl_fionbio(descriptor, nonblocking)?),
            End::Simulated(_) if nonblocking => Ok(()),
            End::Simulated(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Sends small writes at once.
    pub(crate) fn set_nodelay(&self) {
        if let End::Native(descriptor) = &self.end {
            sockopt::set_tcp_nodelay(descriptor, true).unwrap();
        }
    }

    /// Adds `count` to an event counter.
    ///
    /// # Errors
    ///
    /// What the system says.
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
