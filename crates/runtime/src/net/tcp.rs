//! TCP listeners and streams.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{self, Shutdown, SocketAddr, ToSocketAddrs};
use std::task::{Context, Poll};
use std::time::Duration;

use socket2::{Domain, Protocol, SockRef, Socket, Type};

use crate::activity::Label;
use crate::net::halves::{self, OwnedReadHalf, OwnedWriteHalf, ReadHalf, WriteHalf};
use crate::net::stream::{self, Stream, stream};
use crate::net::{BACKLOG, each_address};
use crate::readiness::{Direction, Io};

/// A listener for TCP connections.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, net, spawn};
///
/// let runtime = Runtime::new()?;
/// runtime.block_on(async {
///     let listener = net::TcpListener::bind("127.0.0.1:0").await?;
///     let address = listener.local_addr()?;
///     let server = spawn(async move {
///         let (stream, _) = listener.accept().await?;
///         let mut buffer = [0; 5];
///         stream.read_exact(&mut buffer).await?;
///         stream.write_all(&buffer).await
///     });
///     let client = net::TcpStream::connect(address).await?;
///     client.write_all(b"hello").await?;
///     let mut echo = [0; 5];
///     client.read_exact(&mut echo).await?;
///     assert_eq!(&echo, b"hello");
///     server.await?
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpListener(Io<net::TcpListener>);

impl TcpListener {
    /// Binds to the first possible one of these addresses, with a queue of 1,024 connections. On
    /// Unix, `SO_REUSEADDR` is set.
    ///
    /// # Errors
    ///
    /// That of the last address.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::TcpListener};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let address = listener.local_addr()?;
    ///     assert_ne!(address.port(), 0);
    ///     // The address is in use.
    ///     assert!(TcpListener::bind(address).await.is_err());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn bind(addresses: impl ToSocketAddrs) -> io::Result<Self> {
        each_address(addresses, async |address| {
            let socket =
                Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
            #[cfg(unix)]
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            Self::from_std(socket.into())
        })
        .await
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
    /// use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}};
    ///
    /// Runtime::new()?.block_on(async {
    ///     // As from a service manager that has opened the socket.
    ///     let opened = std::net::TcpListener::bind("127.0.0.1:0")?;
    ///     let listener = TcpListener::from_std(opened)?;
    ///     let near = TcpStream::connect(listener.local_addr()?).await?;
    ///     let (_far, address) = listener.accept().await?;
    ///     assert_eq!(address, near.local_addr()?);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn from_std(listener: net::TcpListener) -> io::Result<Self> {
        listener.set_nonblocking(true)?;
        Ok(Self(Io::new(listener)?))
    }

    /// Waits for a connection.
    ///
    /// Cancelling it loses no connection. An error concerns one connection or a shortage; call it
    /// again, after a pause if descriptors are short.
    ///
    /// # Errors
    ///
    /// Those of [`accept(2)`](https://man7.org/linux/man-pages/man2/accept.2.html).
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}, time::timeout};
    /// use std::time::Duration;
    ///
    /// Runtime::new()?.block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let limit = Duration::from_millis(1);
    ///     assert!(timeout(limit, listener.accept()).await.is_err()); // cancelled
    ///     let near = TcpStream::connect(listener.local_addr()?).await?;
    ///     let (_far, address) = listener.accept().await?;
    ///     assert_eq!(address, near.local_addr()?);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, address) = self.0.wait(Direction::Read, accept).await?;
        Ok((TcpStream(Io::new(stream)?.accepted_by(&self.0)), address))
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
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::TcpListener};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     listener.socket().set_ttl_v4(7)?;
    ///     assert_eq!(listener.socket().ttl_v4()?, 7);
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
    /// use completion_port_runtime::{Runtime, net::TcpListener};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?.into_std();
    ///     let error = listener.accept().unwrap_err();
    ///     assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock); // it is non-blocking
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn into_std(self) -> net::TcpListener {
        self.0.into_inner()
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.get().fmt(f)
    }
}

/// Accepts a connection, which is non-blocking.
fn accept(listener: &net::TcpListener) -> io::Result<(net::TcpStream, SocketAddr)> {
    #[cfg(any(target_os = "linux", target_os = "freebsd"))]
    let (socket, address) = {
        let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        let (socket, address) = SockRef::from(listener).accept4(flags)?;
        let address = address.as_socket();
        (socket.into(), address.ok_or_else(|| io::Error::other("it is not of TCP"))?)
    };
    #[cfg(not(any(target_os = "linux", target_os = "freebsd")))]
    let (socket, address) = {
        let (socket, address) = listener.accept()?;
        socket.set_nonblocking(true)?;
        (socket, address)
    };
    Ok((socket, address))
}

/// A TCP connection.
///
/// All calls take `&self`, so one task may read while another one writes, through an [`Arc`](std::sync::Arc)
/// or the two halves of [`TcpStream::into_split`]. Dropping it closes the socket.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::spawn;
/// use std::sync::Arc;
///
/// # use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}};
/// # Runtime::new()?.block_on(async {
/// # let listener = TcpListener::bind("127.0.0.1:0").await?;
/// # let near = TcpStream::connect(listener.local_addr()?).await?;
/// # let (far, _) = listener.accept().await?;
/// // `near` and `far` are connected.
/// let far = Arc::new(far);
/// let reader = Arc::clone(&far);
/// let reads = spawn(async move {
///     let mut bytes = [0; 2];
///     reader.read_exact(&mut bytes).await.map(|()| bytes)
/// });
/// far.write_all(b"hi").await?; // while another task reads
/// let mut bytes = [0; 2];
/// near.read_exact(&mut bytes).await?;
/// near.write_all(&bytes).await?;
/// assert_eq!(&reads.await??, b"hi");
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct TcpStream(Io<net::TcpStream>);

impl TcpStream {
    /// Connects to the first possible one of these addresses.
    ///
    /// Cancelling it closes the socket.
    ///
    /// # Errors
    ///
    /// That of the last address.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let alive = listener.local_addr()?;
    ///     let dead = TcpListener::bind("127.0.0.1:0").await?.local_addr()?; // and closed
    ///     let stream = TcpStream::connect(&[dead, alive][..]).await?;
    ///     assert_eq!(stream.peer_addr()?, alive);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn connect(addresses: impl ToSocketAddrs) -> io::Result<Self> {
        each_address(addresses, async |address| {
            let socket =
                Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
            Self::connect_socket(socket, address).await
        })
        .await
    }

    /// Connects a socket that has been made and set up by `socket2`, for example bound to a local
    /// address.
    ///
    /// Cancelling it closes the socket.
    ///
    /// # Errors
    ///
    /// Those of the system, or outside a runtime. The socket is closed then.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}};
    /// use socket2::{Domain, Protocol, Socket, Type};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
    ///     let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP))?;
    ///     socket.set_recv_buffer_size(1 << 16)?;
    ///     let near = TcpStream::connect_socket(socket, listener.local_addr()?).await?;
    ///     assert_eq!(near.peer_addr()?, listener.local_addr()?);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn connect_socket(socket: Socket, address: SocketAddr) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        let begun = match socket.connect(&address.into()) {
            Ok(()) => false,
            Err(error) if is_in_progress(&error) => true,
            Err(error) => return Err(error),
        };
        let label = Label::Connecting(address);
        let stream = Self(Io::new(net::TcpStream::from(socket))?.labelled(label));
        if begun {
            stream.connected().await?;
        }
        Ok(stream)
    }

    /// Waits until the connect that was begun has ended.
    async fn connected(&self) -> io::Result<()> {
        self.0
            .wait(Direction::Write, |stream| match stream.take_error()? {
                Some(error) => Err(error),
                None => match stream.peer_addr() {
                    Ok(_) => Ok(()),
                    Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                        Err(io::ErrorKind::WouldBlock.into())
                    }
                    Err(error) => Err(error),
                },
            })
            .await
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
    /// # use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}};
    /// # Runtime::new()?.block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// // `near` and `far` are connected.
    /// assert_eq!(near.peer_addr()?, far.local_addr()?);
    /// assert_eq!(far.peer_addr()?, near.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }

    /// Sets `TCP_NODELAY`.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// # use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}};
    /// # Runtime::new()?.block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// // `near` and `far` are connected.
    /// near.set_nodelay(true)?; // small writes are sent immediately
    /// assert!(near.nodelay()?);
    /// # drop(far);
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.get().set_nodelay(nodelay)
    }

    /// Returns whether `TCP_NODELAY` is set.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.0.get().nodelay()
    }

    /// Sets `SO_LINGER`.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// use std::time::Duration;
    ///
    /// # use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}};
    /// # Runtime::new()?.block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// // `near` and `far` are connected.
    /// near.set_linger(Some(Duration::ZERO))?;
    /// drop(near); // resets the connection instead of ending it
    /// let error = far.read(&mut [0; 8]).await.unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.socket().set_linger(linger)
    }
}

stream!(TcpStream, net::TcpStream);

/// Returns whether a non-blocking connect has begun.
fn is_in_progress(error: &io::Error) -> bool {
    #[cfg(unix)]
    return error.raw_os_error() == Some(libc::EINPROGRESS);
    #[cfg(windows)]
    return error.kind() == io::ErrorKind::WouldBlock;
}
