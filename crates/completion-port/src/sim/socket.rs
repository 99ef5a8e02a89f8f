//! A simulated descriptor and its operations.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;

use super::objects::{Code, FileId, Objects};
use super::{Kernel, KernelState};
use crate::types::address::{Address as AnyAddress, AddressKind};
use crate::types::fd::RawFd;
use crate::types::source::Descriptor;
use crate::types::source::{BorrowedSource, Source};

/// The address of a simulated socket. It corresponds to the port or path of a real one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Address(FileId);

impl Address {
    pub(super) fn new(file: FileId) -> Self {
        Self(file)
    }
}

impl AnyAddress {
    /// Returns the address at a simulated kernel, if it is one.
    #[must_use]
    pub fn as_simulated(&self) -> Option<Address> {
        match self.0 {
            AddressKind::Simulated(file) => Some(Address(FileId(file))),
            _ => None,
        }
    }
}

impl From<Address> for AnyAddress {
    fn from(address: Address) -> Self {
        Self(AddressKind::Simulated(address.0.0))
    }
}

/// One descriptor of a simulated object: a socket, an end of a pipe, a counter or a file.
///
/// It is non-blocking: an operation that cannot be done now fails with
/// [`WouldBlock`](io::ErrorKind::WouldBlock). The other errors are those of the system calls.
/// Dropping it closes the descriptor. The object lives as long as one of its
/// [duplicates](Socket::dup).
///
/// It is a [`Source`] for the ports of its kernel. Any other port refuses it with
/// [`ErrorKind::WrongKernel`](crate::ErrorKind::WrongKernel). If the key of a persistent
/// registration must own its socket, use [`SharedSource`](crate::SharedSource).
pub struct Socket {
    kernel: Kernel,
    file: FileId,
    number: Descriptor,
}

impl Socket {
    pub(super) fn new(kernel: Kernel, file: FileId, number: Descriptor) -> Self {
        Self { kernel, file, number }
    }

    pub(super) fn file(&self) -> FileId {
        self.file
    }

    /// Changes the kernel's state by a system call on the socket.
    pub(super) fn change<R>(&self, act: impl FnOnce(&mut KernelState, Descriptor) -> R) -> R {
        let mut state = self.kernel.lock();
        let done = act(&mut state, self.number);
        self.kernel.publish(state);
        done
    }

    fn with<R>(&self, act: impl FnOnce(&mut Objects, FileId) -> Result<R, Code>) -> io::Result<R> {
        let mut state = self.kernel.lock();
        let done = act(&mut state.objects, self.file);
        self.kernel.publish(state);
        done.map_err(io::Error::from_raw_os_error)
    }

    /// Reads data that has arrived: at most one datagram, or 0 bytes at the end of a stream.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if no data has arrived; a pending error, which the call takes; `NotConnected`.
    pub fn read(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.with(|objects, file| objects.read(file, buf))
    }

    /// Writes as many bytes as there is room for. A datagram is written whole or not at all.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if there is no room; `BrokenPipe` if no peer can ever read the data; a pending
    /// error, which the call takes; `NotConnected`.
    pub fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.with(|objects, file| objects.write(file, bytes))
    }

    /// Reads one datagram and returns its length and the sender's address.
    ///
    /// # Errors
    ///
    /// As for [`Socket::read`]; an error if this is not a datagram socket.
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, Address)> {
        let (taken, from) = self.with(|objects, file| objects.recv_from(file, buf))?;
        Ok((taken, Address::new(from)))
    }

    /// Sends one datagram to `address`, whether or not the socket is connected.
    ///
    /// # Errors
    ///
    /// As for [`Socket::write`]; an error if this is not a datagram socket.
    pub fn send_to(&self, bytes: &[u8], address: Address) -> io::Result<usize> {
        self.with(|objects, file| objects.send_to(file, bytes, address.0))
    }

    /// Accepts a connection from a listener's queue.
    ///
    /// # Errors
    ///
    /// `WouldBlock` if the queue is empty; `InvalidInput` if this is not a listener; `EMFILE` if no
    /// descriptor is available, in which case the connection stays in the queue.
    pub fn accept(&self) -> io::Result<Self> {
        let mut state = self.kernel.lock();
        let accepted = state.accept(self.file);
        self.kernel.publish(state);
        let (file, number) = accepted.map_err(io::Error::from_raw_os_error)?;
        Ok(Self::new(self.kernel.clone(), file, number))
    }

    /// Connects to `address`.
    ///
    /// A datagram socket and an AF_UNIX stream connect immediately. The stream gets no edge from
    /// it.
    ///
    /// # Errors
    ///
    /// A TCP socket always returns `EINPROGRESS`. As on Linux its events, [`Socket::take_error`]
    /// and the next `connect` report whether the connection was made or refused. An AF_UNIX stream
    /// returns `ConnectionRefused` if no listener has the address.
    pub fn connect(&self, address: Address) -> io::Result<()> {
        self.with(|objects, file| objects.connect(file, address.0))
    }

    /// Shuts one direction of a connection, or both.
    ///
    /// # Errors
    ///
    /// `NotConnected` if there is no connection. As on Linux, the socket's state may change
    /// nevertheless.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        let (read, write) = match how {
            Shutdown::Read => (true, false),
            Shutdown::Write => (false, true),
            Shutdown::Both => (true, true),
        };
        self.with(|objects, file| objects.shutdown(file, read, write))
    }

    /// Closes the descriptor, and resets the connection if this was the object's last descriptor.
    ///
    /// It corresponds to closing with `SO_LINGER` and a time of 0.
    pub fn reset(self) {
        self.kernel.lock().objects.set_linger_zero(self.file);
    }

    /// Makes another descriptor of this object, with its own number.
    ///
    /// # Errors
    ///
    /// `EMFILE` if no descriptor is available.
    pub fn dup(&self) -> io::Result<Self> {
        let duplicated = self.kernel.lock().duplicate(self.file);
        let number = duplicated.map_err(io::Error::from_raw_os_error)?;
        Ok(Self::new(self.kernel.clone(), self.file, number))
    }

    /// Takes the pending error, as `SO_ERROR` does.
    ///
    /// # Errors
    ///
    /// An error if this is not a socket.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        let code = self.with(|objects, file| objects.take_error(file))?;
        Ok(code.map(io::Error::from_raw_os_error))
    }

    /// Returns the address at which others reach this socket.
    #[must_use]
    pub fn address(&self) -> Address {
        Address::new(self.file)
    }

    /// Returns its number at its kernel, by which [`raw`](crate::port::raw) knows it.
    ///
    /// It is not a descriptor of the process.
    #[must_use]
    pub fn number(&self) -> RawFd {
        self.number
    }

    /// Returns the kernel that the socket belongs to.
    #[must_use]
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let mut state = self.kernel.lock();
        state.close(self.number, self.file);
        self.kernel.publish(state);
    }
}

impl Source for Socket {
    fn as_source(&self) -> BorrowedSource<'_> {
        BorrowedSource::new(self.kernel.id(), self.number)
    }
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Socket")
            .field("number", &self.number)
            .field("holds", &self.kernel.facts(self))
            .finish_non_exhaustive()
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
