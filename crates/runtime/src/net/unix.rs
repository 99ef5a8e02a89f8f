//! Sockets of the local machine.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::task::{Context, Poll};

use socket2::{Domain, SockAddr, SockRef, Socket, Type};

use crate::net::BACKLOG;
use crate::net::halves::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use crate::net::stream::{self, Stream, stream};
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
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixListener};
    ///
    /// # let path = std::env::temp_dir().join(format!("runtime-unix-bind-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     drop(UnixListener::bind(&path)?);
    ///     let error = UnixListener::bind(&path).unwrap_err(); // the file remains
    ///     assert_eq!(error.kind(), std::io::ErrorKind::AddrInUse);
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::{UnixListener, UnixStream}};
    ///
    /// # let path = std::env::temp_dir().join(format!("runtime-unix-std-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let opened = std::os::unix::net::UnixListener::bind(&path)?;
    ///     let listener = UnixListener::from_std(opened)?;
    ///     let _near = UnixStream::connect(&path).await?;
    ///     assert!(listener.accept().await?.1.is_unnamed());
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn from_std(listener: net::UnixListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self(Io::new(listener)?))
    }

    /// Waits for a connection. Cancelling it loses no connection.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::{UnixListener, UnixStream}, time::timeout};
    /// use std::time::Duration;
    ///
    /// # let path = std::env::temp_dir().join(format!("rt-unix-accept-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let listener = UnixListener::bind(&path)?;
    ///     let limit = Duration::from_millis(1);
    ///     assert!(timeout(limit, listener.accept()).await.is_err()); // cancelled
    ///     let near = UnixStream::connect(&path).await?;
    ///     let (far, _) = listener.accept().await?;
    ///     drop(near);
    ///     assert_eq!(far.read(&mut [0; 8]).await?, 0);
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, address) = self.0.wait(Direction::Read, net::UnixListener::accept).await?;
        Ok((UnixStream::from_std(stream)?, address))
    }

    /// Returns the address that the listener is bound to.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixListener};
    ///
    /// # let path = std::env::temp_dir().join(format!("rt-unix-addr-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let listener = UnixListener::bind(&path)?;
    ///     assert_eq!(listener.local_addr()?.as_pathname(), Some(&*path));
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// Returns the socket, for the options that `socket2` has.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixListener};
    ///
    /// # let path = std::env::temp_dir().join(format!("rt-unix-socket-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let listener = UnixListener::bind(&path)?;
    ///     listener.socket().listen(5)?; // a shorter queue
    ///     assert!(listener.socket().take_error()?.is_none());
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn socket(&self) -> SockRef<'_> {
        SockRef::from(self.0.get())
    }

    /// Returns the listener, which is non-blocking and no longer belongs to the runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixListener};
    ///
    /// # let path = std::env::temp_dir().join(format!("rt-unix-into-std-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let listener = UnixListener::bind(&path)?.into_std();
    ///     let error = listener.accept().unwrap_err();
    ///     assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock); // it is non-blocking
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, net::UnixStream};
///
/// Runtime::new()?.block_on(async {
///     let (near, far) = UnixStream::pair()?;
///     near.write_all(b"hello").await?;
///     drop(near);
///     let mut bytes = [0; 8];
///     far.read_exact(&mut bytes[..5]).await?;
///     assert_eq!(&bytes[..5], b"hello");
///     assert_eq!(far.read(&mut bytes).await?, 0); // the end
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::{UnixListener, UnixStream}};
    ///
    /// # let path = std::env::temp_dir().join(format!("rt-unix-connect-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let error = UnixStream::connect(&path).await.unwrap_err();
    ///     assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    ///     let listener = UnixListener::bind(&path)?;
    ///     let near = UnixStream::connect(&path).await?; // before it is accepted
    ///     near.write_all(b"early").await?;
    ///     assert_eq!(listener.accept().await?.0.read(&mut [0; 8]).await?, 5);
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        // The system has no way to wait for room without blocking.
        Self::from_std(net::UnixStream::connect(path)?)
    }

    /// Returns two sockets that are connected with each other.
    ///
    /// # Errors
    ///
    /// Those of the system, or outside a runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixStream, spawn};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let (parent, child) = UnixStream::pair()?;
    ///     let echoes = spawn(async move {
    ///         let mut byte = [0];
    ///         child.read_exact(&mut byte).await?;
    ///         child.write_all(&byte).await
    ///     });
    ///     parent.write_all(b"x").await?;
    ///     let mut byte = [0];
    ///     parent.read_exact(&mut byte).await?;
    ///     echoes.await??;
    ///     assert_eq!(byte, *b"x");
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::{UnixListener, UnixStream}};
    ///
    /// # let path = std::env::temp_dir().join(format!("rt-unix-peer-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let listener = UnixListener::bind(&path)?;
    ///     let near = UnixStream::connect(&path).await?;
    ///     assert_eq!(near.peer_addr()?.as_pathname(), Some(&*path));
    ///     assert!(near.local_addr()?.is_unnamed());
    ///     # drop(listener);
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixDatagram};
    ///
    /// # let path = std::env::temp_dir().join(format!("rt-datagram-bind-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let receiver = UnixDatagram::bind(&path)?;
    ///     assert_eq!(receiver.local_addr()?.as_pathname(), Some(&*path));
    ///     assert!(UnixDatagram::bind(&path).is_err()); // the file exists
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(net::UnixDatagram::bind(path)?)
    }

    /// Returns two sockets that are connected with each other.
    ///
    /// # Errors
    ///
    /// Those of the system, or outside a runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixDatagram};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let (near, far) = UnixDatagram::pair()?;
    ///     near.send(b"one").await?;
    ///     near.send(b"two").await?;
    ///     assert_eq!(far.recv(&mut [0; 16]).await?, 3); // one at a time
    ///     assert_eq!(far.recv(&mut [0; 16]).await?, 3);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn pair() -> io::Result<(Self, Self)> {
        let (near, far) = net::UnixDatagram::pair()?;
        Ok((Self::from_std(near)?, Self::from_std(far)?))
    }

    /// Uses a socket of the standard library. It becomes non-blocking.
    ///
    /// # Errors
    ///
    /// If the system refuses that, or outside a runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixDatagram};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let (near, far) = std::os::unix::net::UnixDatagram::pair()?;
    ///     let far = UnixDatagram::from_std(far)?;
    ///     near.send(b"hello")?;
    ///     assert_eq!(far.recv(&mut [0; 16]).await?, 5);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn from_std(socket: net::UnixDatagram) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self(Io::new(socket)?))
    }

    /// Returns the socket, which is non-blocking and no longer belongs to the runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixDatagram};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let (near, far) = UnixDatagram::pair()?;
    ///     let far = far.into_std();
    ///     far.set_nonblocking(false)?;
    ///     near.send(b"hello").await?;
    ///     assert_eq!(far.recv(&mut [0; 16])?, 5); // blocks
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn into_std(self) -> net::UnixDatagram {
        self.0.into_inner()
    }

    /// Makes a socket without an address. It can send, and receives nothing.
    ///
    /// # Errors
    ///
    /// Those of the system, or outside a runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixDatagram};
    ///
    /// # let path = std::env::temp_dir().join(format!("rt-dg-unbound-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let receiver = UnixDatagram::bind(&path)?;
    ///     let sender = UnixDatagram::unbound()?;
    ///     assert!(sender.local_addr()?.is_unnamed());
    ///     sender.send_to(b"event", &path).await?;
    ///     assert_eq!(receiver.recv(&mut [0; 16]).await?, 5);
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn unbound() -> io::Result<Self> {
        Self::from_std(net::UnixDatagram::unbound()?)
    }

    /// Sets the path that [`UnixDatagram::send`] sends to.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixDatagram};
    ///
    /// # let path = std::env::temp_dir().join(format!("rt-dg-connect-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let receiver = UnixDatagram::bind(&path)?;
    ///     let sender = UnixDatagram::unbound()?;
    ///     sender.connect(&path)?;
    ///     assert_eq!(sender.peer_addr()?.as_pathname(), Some(&*path));
    ///     sender.send(b"event").await?;
    ///     assert_eq!(receiver.recv(&mut [0; 16]).await?, 5);
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.0.get().connect(path)
    }

    /// Sends a datagram to the connected socket. Waits while that has no room.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixDatagram, spawn};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let (near, far) = UnixDatagram::pair()?;
    ///     // More than the other socket has room for: it waits.
    ///     let sends = spawn(async move {
    ///         for number in 0..2_000_u32 {
    ///             near.send(&number.to_ne_bytes()).await?;
    ///         }
    ///         Ok::<(), std::io::Error>(())
    ///     });
    ///     for number in 0..2_000_u32 {
    ///         let mut datagram = [0; 4];
    ///         far.recv(&mut datagram).await?;
    ///         assert_eq!(datagram, number.to_ne_bytes());
    ///     }
    ///     sends.await??;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixDatagram};
    ///
    /// # let path = std::env::temp_dir().join(format!("rt-dg-send-to-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let sender = UnixDatagram::unbound()?;
    ///     let error = sender.send_to(b"event", &path).await.unwrap_err();
    ///     assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    ///     let receiver = UnixDatagram::bind(&path)?;
    ///     sender.send_to(b"event", &path).await?;
    ///     assert_eq!(receiver.recv(&mut [0; 16]).await?, 5);
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixDatagram};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let (near, far) = UnixDatagram::pair()?;
    ///     near.send(b"a long datagram").await?;
    ///     near.send(b"next").await?;
    ///     let mut short = [0; 6];
    ///     assert_eq!(far.recv(&mut short).await?, 6); // the rest is lost
    ///     assert_eq!(&short, b"a long");
    ///     assert_eq!(far.recv(&mut short).await?, 4);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn recv(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.wait(Direction::Read, |socket| socket.recv(buffer)).await
    }

    /// Receives a datagram and its sender's address. A longer one is cut.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixDatagram};
    ///
    /// # let path = std::env::temp_dir().join(format!("rt-dg-recv-from-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let (receiver, reply) = (UnixDatagram::bind(&path)?, path.with_extension("reply"));
    ///     let sender = UnixDatagram::bind(&reply)?;
    ///     sender.send_to(b"query", &path).await?;
    ///     let (length, from) = receiver.recv_from(&mut [0; 16]).await?;
    ///     assert_eq!((length, from.as_pathname()), (5, Some(&*reply)));
    ///     # std::fs::remove_file(&reply)?;
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.wait(Direction::Read, |socket| socket.recv_from(buffer)).await
    }

    /// Receives a datagram and leaves it in the system. A longer one is cut.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixDatagram};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let (near, far) = UnixDatagram::pair()?;
    ///     near.send(b"hello").await?;
    ///     assert_eq!(far.peek(&mut [0; 16]).await?, 5);
    ///     assert_eq!(far.recv(&mut [0; 16]).await?, 5); // the same one
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.wait(Direction::Read, |socket| stream::peek(SockRef::from(socket), buffer)).await
    }

    /// Shuts down one or both directions. Tasks that wait for it continue.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UnixDatagram};
    /// use std::net::Shutdown;
    ///
    /// Runtime::new()?.block_on(async {
    ///     let (near, far) = UnixDatagram::pair()?;
    ///     near.shutdown(Shutdown::Write)?;
    ///     assert!(near.send(b"late").await.is_err());
    ///     far.send(b"still open").await?;
    ///     assert_eq!(near.recv(&mut [0; 16]).await?, 10);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
