//! Sockets of the local machine.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};
use socket2::{Domain, SockAddr, Socket, Type};

use crate::net::BACKLOG;
use crate::readiness::{Direction, Io};

/// A listener for connections of the local machine.
pub struct UnixListener(Io<net::UnixListener>);

impl UnixListener {
    /// Binds to a path, with a queue of 1,024 connections. The file must not exist, and remains.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.bind(&SockAddr::unix(path)?)?;
        socket.listen(BACKLOG)?;
        Self::from_std(socket.into())
    }

    /// Uses a listener of the standard library. It becomes non-blocking.
    ///
    /// # Errors
    ///
    /// If the system refuses that, or outside a runtime.
    pub fn from_std(listener: net::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self(Io::new(listener)?))
    }

    /// Waits for a connection. Cancelling it loses no connection.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, address) = self.0.wait(Direction::Read, net::UnixListener::accept).await?;
        Ok((UnixStream::from_std(stream)?, address))
    }

    /// Returns the address that the listener is bound to.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// Returns the listener, which is non-blocking and no longer belongs to the runtime.
    #[must_use]
    pub fn into_std(self) -> net::UnixListener {
        self.0.into_inner()
    }
}

impl fmt::Debug for UnixListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.get().fmt(f)
    }
}

/// A connection on the local machine.
///
/// All calls take `&self`, as those of [`TcpStream`](crate::net::TcpStream). Dropping it closes the
/// socket.
pub struct UnixStream(Io<net::UnixStream>);

impl UnixStream {
    /// Connects to a path.
    ///
    /// If the listener's queue is full, the calling thread waits until it has room, as other tasks
    /// continue meanwhile.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        // The system has no way to wait for room without blocking.
        Self::from_std(net::UnixStream::connect(path)?)
    }

    /// Returns two sockets that are connected with each other.
    ///
    /// # Errors
    ///
    /// Those of the system, or outside a runtime.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (near, far) = net::UnixStream::pair()?;
        Ok((Self::from_std(near)?, Self::from_std(far)?))
    }

    /// Uses a stream of the standard library. It becomes non-blocking.
    ///
    /// # Errors
    ///
    /// If the system refuses that, or outside a runtime.
    pub fn from_std(stream: net::UnixStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self(Io::new(stream)?))
    }

    /// Returns the stream, which is non-blocking and no longer belongs to the runtime.
    #[must_use]
    pub fn into_std(self) -> net::UnixStream {
        self.0.into_inner()
    }

    /// Receives some bytes. 0 is the end of the stream, unless `buffer` is empty. Cancelling it
    /// loses no byte.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.wait(Direction::Read, |mut stream| stream.read(buffer)).await
    }

    /// Sends some bytes, and returns how many. Cancelling it sends nothing.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn write(&self, buffer: &[u8]) -> io::Result<usize> {
        self.0.wait(Direction::Write, |mut stream| stream.write(buffer)).await
    }

    /// Sends all bytes. Cancelling it may leave a part sent.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn write_all(&self, mut buffer: &[u8]) -> io::Result<()> {
        while !buffer.is_empty() {
            match self.write(buffer).await? {
                0 => return Err(io::ErrorKind::WriteZero.into()),
                written => buffer = &buffer[written..],
            }
        }
        Ok(())
    }

    /// Shuts down one or both halves of the stream.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.get().shutdown(how)
    }
}

impl AsyncRead for UnixStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll(Direction::Read, context, |mut stream| stream.read(buffer))
    }
}

impl AsyncWrite for UnixStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll(Direction::Write, context, |mut stream| stream.write(buffer))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown(Shutdown::Write))
    }
}

impl fmt::Debug for UnixStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.get().fmt(f)
    }
}

/// A socket for datagrams on the local machine. Cancelling a call loses no datagram.
pub struct UnixDatagram(Io<net::UnixDatagram>);

impl UnixDatagram {
    /// Binds to a path. The file must not exist, and remains.
    ///
    /// # Errors
    ///
    /// Those of the system, or outside a runtime.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(net::UnixDatagram::bind(path)?)
    }

    /// Returns two sockets that are connected with each other.
    ///
    /// # Errors
    ///
    /// Those of the system, or outside a runtime.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (near, far) = net::UnixDatagram::pair()?;
        Ok((Self::from_std(near)?, Self::from_std(far)?))
    }

    /// Uses a socket of the standard library. It becomes non-blocking.
    ///
    /// # Errors
    ///
    /// If the system refuses that, or outside a runtime.
    pub fn from_std(socket: net::UnixDatagram) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self(Io::new(socket)?))
    }

    /// Returns the socket, which is non-blocking and no longer belongs to the runtime.
    #[must_use]
    pub fn into_std(self) -> net::UnixDatagram {
        self.0.into_inner()
    }

    /// Sets the path that [`UnixDatagram::send`] sends to.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.get().connect(path)
    }

    /// Sends a datagram to the connected socket. Waits while that has no room.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.0.wait(Direction::Write, |socket| socket.send(datagram)).await
    }

    /// Receives a datagram. A longer one is cut.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.wait(Direction::Read, |socket| socket.recv(buffer)).await
    }

    /// Receives a datagram and its sender's address. A longer one is cut.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.wait(Direction::Read, |socket| socket.recv_from(buffer)).await
    }
}

impl fmt::Debug for UnixDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.get().fmt(f)
    }
}
