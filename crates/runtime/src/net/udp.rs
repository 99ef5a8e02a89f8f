//! UDP sockets.

use std::fmt;
use std::io;
use std::net::{self, SocketAddr, ToSocketAddrs};

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
    pub async fn bind(addresses: impl ToSocketAddrs) -> io::Result<Self> {
        each_address(addresses, async |address| Self::from_std(net::UdpSocket::bind(address)?))
            .await
    }

    /// Uses a socket of the standard library. It becomes non-blocking.
    ///
    /// # Errors
    ///
    /// If the system refuses that, or outside a runtime.
    pub fn from_std(socket: net::UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Self(Io::new(socket)?))
    }

    /// Returns the socket, which is non-blocking and no longer belongs to the runtime.
    #[must_use]
    pub fn into_std(self) -> net::UdpSocket {
        self.0.into_inner()
    }

    /// Sets the address that [`UdpSocket::send`] sends to, and that datagrams are received from.
    ///
    /// # Errors
    ///
    /// That of the last address.
    pub async fn connect(&self, addresses: impl ToSocketAddrs) -> io::Result<()> {
        each_address(addresses, async |address| self.0.get().connect(address)).await
    }

    /// Sends a datagram to the connected address.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn send(&self, datagram: &[u8]) -> io::Result<usize> {
        self.0.wait(Direction::Write, |socket| socket.send(datagram)).await
    }

    /// Sends a datagram to an address.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn send_to(&self, datagram: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.0.wait(Direction::Write, |socket| socket.send_to(datagram, address)).await
    }

    /// Receives a datagram from the connected address. A longer one is cut.
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

    /// Receives a datagram from the connected address and leaves it in the system.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.wait(Direction::Read, |socket| socket.peek(buffer)).await
    }

    /// Receives a datagram without waiting.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if there is none; those of the system.
    pub fn try_recv_from(&self, buffer: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.0.get().recv_from(buffer)
    }

    /// Sends a datagram without waiting.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::WouldBlock`] if the system has no room; those of the system.
    pub fn try_send_to(&self, datagram: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.0.get().send_to(datagram, address)
    }

    /// Receives a datagram and its sender's address, and leaves it in the system.
    ///
    /// # Errors
    ///
    /// Those of the system.
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
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.0.get().peer_addr()
    }

    /// Returns the socket, for the options that `socket2` has.
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
