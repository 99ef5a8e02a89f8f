//! UDP sockets.

use std::fmt;
use std::io;
use std::net::{self, SocketAddr, ToSocketAddrs};

use completion_port::Datagrams;

use crate::net::each_address;
use crate::readiness::{Direction, Io};

/// A UDP socket. Any number of tasks may send and receive on it.
///
/// Cancelling a call loses no datagram.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, net::UdpSocket};
///
/// Runtime::new()?.block_on(async {
///     let near = UdpSocket::bind("127.0.0.1:0").await?;
///     let far = UdpSocket::bind("127.0.0.1:0").await?;
///     near.send_to(b"hello", far.local_addr()?).await?;
///     let mut buffer = [0; 16];
///     let (len, from) = far.recv_from(&mut buffer).await?;
///     assert_eq!((&buffer[..len], from), (&b"hello"[..], near.local_addr()?));
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UdpSocket(Io<net::UdpSocket>);

impl UdpSocket {
    /// Binds to the first possible one of these addresses.
    ///
    /// # Errors
    ///
    /// That of the last address.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UdpSocket};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let socket = UdpSocket::bind("127.0.0.1:0").await?;
    ///     assert!(UdpSocket::bind(socket.local_addr()?).await.is_err()); // in use
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn bind(addresses: impl ToSocketAddrs) -> io::Result<Self> {
        each_address(addresses, async |address| Self::from_std(net::UdpSocket::bind(address)?))
            .await
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
    /// use completion_port_runtime::{Runtime, net::UdpSocket};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let far = UdpSocket::from_std(std::net::UdpSocket::bind("127.0.0.1:0")?)?;
    ///     let near = std::net::UdpSocket::bind("127.0.0.1:0")?;
    ///     near.send_to(b"hello", far.local_addr()?)?;
    ///     assert_eq!(far.recv(&mut [0; 16]).await?, 5);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn from_std(socket: net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self(Io::new(socket)?))
    }

    /// Returns the socket, which is non-blocking and no longer belongs to the runtime.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UdpSocket};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let socket = UdpSocket::bind("127.0.0.1:0").await?.into_std();
    ///     let error = socket.recv(&mut [0; 16]).unwrap_err();
    ///     assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock); // it is non-blocking
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn into_std(self) -> net::UdpSocket {
        self.0.into_inner()
    }

    /// Sets the address that [`UdpSocket::send`] sends to, and that datagrams are received from.
    ///
    /// # Errors
    ///
    /// That of the last address.
    ///
    /// # Examples
    ///
    /// ```
    /// # use completion_port_runtime::{Runtime, net::UdpSocket};
    /// # Runtime::new()?.block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// // `near` and `far` are bound to addresses of this machine.
    /// near.connect(far.local_addr()?).await?;
    /// near.send(b"to far").await?;
    /// assert_eq!(far.recv_from(&mut [0; 16]).await?, (6, near.local_addr()?));
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn connect(&self, addresses: impl ToSocketAddrs) -> io::Result<()> {
        each_address(addresses, async |address| self.0.get().connect(address)).await
    }

    /// Sends a datagram to the connected address.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// # use completion_port_runtime::{Runtime, net::UdpSocket};
    /// # Runtime::new()?.block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// # near.connect(far.local_addr()?).await?;
    /// # far.connect(near.local_addr()?).await?;
    /// // `near` and `far` are connected with each other.
    /// assert_eq!(near.send(b"ping").await?, 4);
    /// assert_eq!(far.recv(&mut [0; 16]).await?, 4);
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.0.wait(Direction::Write, |socket| socket.send(datagram)).await
    }

    /// Sends a datagram to an address.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// # use completion_port_runtime::{Runtime, net::UdpSocket};
    /// # Runtime::new()?.block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// // `near` and `far` are bound to addresses of this machine.
    /// assert_eq!(near.send_to(b"query", far.local_addr()?).await?, 5);
    /// let (_, from) = far.recv_from(&mut [0; 16]).await?;
    /// far.send_to(b"answer", from).await?;
    /// assert_eq!(near.recv(&mut [0; 16]).await?, 6);
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn send_to(&self, datagram: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.0.wait(Direction::Write, |socket| socket.send_to(datagram, address)).await
    }

    /// Receives a datagram from the connected address. A longer one is cut.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// # use completion_port_runtime::{Runtime, net::UdpSocket};
    /// # Runtime::new()?.block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// # near.connect(far.local_addr()?).await?;
    /// # far.connect(near.local_addr()?).await?;
    /// // `near` and `far` are connected with each other.
    /// near.send(b"one").await?;
    /// near.send(b"two").await?;
    /// let mut datagram = [0; 16];
    /// // One at a time.
    /// assert_eq!(far.recv(&mut datagram).await?, 3);
    /// assert_eq!(&datagram[..3], b"one");
    /// assert_eq!(far.recv(&mut datagram).await?, 3);
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
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
    /// use completion_port_runtime::time::timeout;
    /// use std::time::Duration;
    ///
    /// # use completion_port_runtime::{Runtime, net::UdpSocket};
    /// # Runtime::new()?.block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// // `near` and `far` are bound to addresses of this machine.
    /// let silent = timeout(Duration::from_millis(1), far.recv_from(&mut [0; 16])).await;
    /// assert!(silent.is_err()); // cancelled
    /// near.send_to(b"hello", far.local_addr()?).await?;
    /// assert_eq!(far.recv_from(&mut [0; 16]).await?, (5, near.local_addr()?));
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.wait(Direction::Read, |socket| socket.recv_from(buffer)).await
    }

    /// Receives datagrams with their senders, as many as have arrived and as there are slots for.
    /// Returns their number, which is at least one. Those that were in the batch are gone.
    ///
    /// On Linux, one system call receives up to 32.
    ///
    /// # Errors
    ///
    /// Those of the system. Datagrams that were received before the error are in the batch.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::{Datagrams, UdpSocket}};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let near = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let far = UdpSocket::bind("127.0.0.1:0").await?;
    ///     let mut datagrams = Datagrams::new(32, 2048);
    ///     assert!(datagrams.push(b"hello", Some(far.local_addr()?.into())));
    ///     near.send_many(&mut datagrams).await?;
    ///     assert_eq!(far.recv_many(&mut datagrams).await?, 1);
    ///     assert_eq!(datagrams.get(0).map(|datagram| datagram.bytes()), Some(&b"hello"[..]));
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn recv_many(&self, datagrams: &mut Datagrams) -> io::Result<usize> {
        let received = self.0.wait(Direction::Read, |_| {
            let receive = |socket: &net::UdpSocket| {
                datagrams.recv(socket).map(|count| (count, datagrams.is_drained()))
            };
            self.0.take(receive, |(_, is_drained)| *is_drained)
        });
        received.await.map(|(count, _)| count)
    }

    /// Sends all datagrams of a batch in order. Each that was sent leaves the batch. So nothing is
    /// lost or sent twice if the call fails or is cancelled, and the batch is sent again.
    ///
    /// # Errors
    ///
    /// Those of the system. The datagram that failed is the first one in the batch.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::net::Datagrams;
    ///
    /// # use completion_port_runtime::{Runtime, net::UdpSocket};
    /// # Runtime::new()?.block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// // `near` and `far` are bound to addresses of this machine.
    /// let mut datagrams = Datagrams::new(8, 16);
    /// for text in ["one", "three"] {
    ///     assert!(datagrams.push(text.as_bytes(), Some(far.local_addr()?.into())));
    /// }
    /// near.send_many(&mut datagrams).await?;
    /// assert!(datagrams.is_empty());
    /// assert_eq!(far.recv_from(&mut [0; 16]).await?, (3, near.local_addr()?));
    /// assert_eq!(far.recv_from(&mut [0; 16]).await?, (5, near.local_addr()?));
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn send_many(&self, datagrams: &mut Datagrams) -> io::Result<()> {
        while !datagrams.is_empty() {
            self.0.wait(Direction::Write, |socket| datagrams.send(socket)).await?;
        }
        Ok(())
    }

    /// Receives a datagram from the connected address and leaves it in the system.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// # use completion_port_runtime::{Runtime, net::UdpSocket};
    /// # Runtime::new()?.block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// # near.connect(far.local_addr()?).await?;
    /// # far.connect(near.local_addr()?).await?;
    /// // `near` and `far` are connected with each other.
    /// near.send(b"hello").await?;
    /// let mut datagram = [0; 16];
    /// assert_eq!(far.peek(&mut datagram).await?, 5);
    /// assert_eq!(far.recv(&mut datagram).await?, 5); // the same one
    /// assert_eq!(&datagram[..5], b"hello");
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.wait(Direction::Read, |socket| socket.peek(buffer)).await
    }

    /// Receives a datagram without waiting.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if there is none; those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// # use completion_port_runtime::{Runtime, net::UdpSocket};
    /// # Runtime::new()?.block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// // `near` and `far` are bound to addresses of this machine.
    /// let error = far.try_recv_from(&mut [0; 16]).unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
    /// near.send_to(b"hello", far.local_addr()?).await?;
    /// far.peek(&mut [0; 16]).await?; // waits until it has come
    /// assert_eq!(far.try_recv_from(&mut [0; 16])?, (5, near.local_addr()?));
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.get().recv_from(buffer)
    }

    /// Sends a datagram without waiting.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if the system has no room; those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// # use completion_port_runtime::{Runtime, net::UdpSocket};
    /// # Runtime::new()?.block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// // `near` and `far` are bound to addresses of this machine.
    /// // Statistics, which may be lost.
    /// match near.try_send_to(b"requests: 1", far.local_addr()?) {
    ///     Ok(sent) => assert_eq!(sent, 11),
    ///     Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock),
    /// }
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn try_send_to(&self, datagram: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.0.get().send_to(datagram, address)
    }

    /// Receives a datagram and its sender's address, and leaves it in the system.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// # use completion_port_runtime::{Runtime, net::UdpSocket};
    /// # Runtime::new()?.block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// // `near` and `far` are bound to addresses of this machine.
    /// near.send_to(b"hello", far.local_addr()?).await?;
    /// let (length, from) = far.peek_from(&mut [0; 16]).await?;
    /// let mut datagram = vec![0; length];
    /// assert_eq!(far.recv_from(&mut datagram).await?, (5, from));
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn peek_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.wait(Direction::Read, |socket| socket.peek_from(buffer)).await
    }

    /// Returns the local address.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().local_addr()
    }

    /// Returns the address of [`UdpSocket::connect`].
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::NotConnected`] if there is none; those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// # use completion_port_runtime::{Runtime, net::UdpSocket};
    /// # Runtime::new()?.block_on(async {
    /// # let near = UdpSocket::bind("127.0.0.1:0").await?;
    /// # let far = UdpSocket::bind("127.0.0.1:0").await?;
    /// // `near` and `far` are bound to addresses of this machine.
    /// let error = near.peer_addr().unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::NotConnected);
    /// near.connect(far.local_addr()?).await?;
    /// assert_eq!(near.peer_addr()?, far.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }

    /// Returns the socket, for the options that `socket2` has.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, net::UdpSocket};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let socket = UdpSocket::bind("127.0.0.1:0").await?;
    ///     socket.socket().set_broadcast(true)?;
    ///     assert!(socket.socket().broadcast()?);
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn socket(&self) -> socket2::SockRef<'_> {
        socket2::SockRef::from(self.0.get())
    }
}

impl fmt::Debug for UdpSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.get().fmt(f)
    }
}
