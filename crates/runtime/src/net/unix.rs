//! Sockets of the local machine.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::task::{Context, Poll};

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use crate::net::BACKLOG;
use crate::net::stream::{
    self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, Stream, WriteHalf, stream,
};
use crate::readiness::{Direction, Io};

/// How often a datagram for a full socket is sent again.
const RETRY: std::time::Duration = std::time::Duration::from_millis(2);

/// A listener for connections of the local machine.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, net::{UnixListener, UnixStream}};
///
/// let path = std::env::temp_dir().join(format!("runtime-unix-{}", std::process::id()));
/// Runtime::new()?.block_on(async {
///     let listener = UnixListener::bind(&path)?;
///     let near = UnixStream::connect(&path).await?;
///     let (far, _) = listener.accept().await?;
///     near.write_all(b"hello").await?;
///     let mut bytes = [0; 5];
///     far.read_exact(&mut bytes).await?;
///     assert_eq!(&bytes, b"hello");
///     std::fs::remove_file(&path)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
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

    /// Returns the socket, for the options that `socket2` has.
    #[must_use]
    pub fn socket(&self) -> SockRef<'_> {
        SockRef::from(self.0.get())
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

/// A connection on the local machine. See [`UnixListener`] for an example.
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

    /// Returns the local address.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// Returns the peer's address.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }
}

stream!(UnixStream, net::UnixStream);

/// A socket for datagrams on the local machine. Cancelling a call loses no datagram.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, net::UnixDatagram};
///
/// let path = std::env::temp_dir().join(format!("runtime-datagram-{}", std::process::id()));
/// Runtime::new()?.block_on(async {
///     let receiver = UnixDatagram::bind(&path)?;
///     let sender = UnixDatagram::unbound()?;
///     sender.send_to(b"hello", &path).await?;
///     let mut buffer = [0; 16];
///     let (len, from) = receiver.recv_from(&mut buffer).await?;
///     assert_eq!((&buffer[..len], from.is_unnamed()), (&b"hello"[..], true));
///     std::fs::remove_file(&path)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
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

    /// Makes a socket without an address. It can send, and receives nothing.
    ///
    /// # Errors
    ///
    /// Those of the system, or outside a runtime.
    pub fn unbound() -> io::Result<Self> {
        Self::from_std(net::UnixDatagram::unbound()?)
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

    /// Sends a datagram to a path. Waits while that socket has no room.
    ///
    /// While it waits, it tries again every few milliseconds: the system reports room only of the
    /// socket that this one is connected to.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn send_to(&self, datagram: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        loop {
            match self.0.get().send_to(datagram, path.as_ref()) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    crate::time::sleep(RETRY).await;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                result => return result,
            }
        }
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

    /// Receives a datagram and leaves it in the system. A longer one is cut.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.wait(Direction::Read, |socket| stream::peek(SockRef::from(socket), buffer)).await
    }

    /// Shuts down one or both directions. Tasks that wait for it continue.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.shutdown(how, |socket, how| socket.shutdown(how))
    }

    /// Returns the local address.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// Returns the address of the connected socket.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] if there is none; those of the system.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }

    /// Returns the socket, for the options that `socket2` has.
    #[must_use]
    pub fn socket(&self) -> SockRef<'_> {
        SockRef::from(self.0.get())
    }
}

impl fmt::Debug for UnixDatagram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.get().fmt(f)
    }
}
