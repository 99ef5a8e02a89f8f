//! TCP listeners and streams.

use std::fmt;
use std::io::{self, IoSlice, Read, Write};
use std::net::{self, Shutdown, SocketAddr, ToSocketAddrs};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_io::{AsyncRead, AsyncWrite};
use socket2::{Domain, Protocol, Socket, Type};

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
    pub async fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        let (stream, address) = self.0.wait(Direction::Read, net::TcpListener::accept).await?;
        Ok((TcpStream::from_std(stream)?, address))
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
    pub fn into_std(self) -> net::TcpListener {
        self.0.into_inner()
    }
}

impl fmt::Debug for TcpListener {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.get().fmt(f)
    }
}

/// A TCP connection.
///
/// All calls take `&self`, so one task may read while another one writes, through an [`Arc`] or
/// the two halves of [`TcpStream::into_split`]. Dropping it closes the socket.
pub struct TcpStream(Io<net::TcpStream>);

impl TcpStream {
    /// Connects to the first possible one of these addresses.
    ///
    /// Cancelling it closes the socket.
    ///
    /// # Errors
    ///
    /// That of the last address.
    pub async fn connect(addresses: impl ToSocketAddrs) -> io::Result<Self> {
        each_address(addresses, async |address| {
            let socket =
                Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
            socket.set_nonblocking(true)?;
            let begun = match socket.connect(&address.into()) {
                Ok(()) => false,
                Err(error) if is_in_progress(&error) => true,
                Err(error) => return Err(error),
            };
            let stream = Self(Io::new(net::TcpStream::from(socket))?);
            if begun {
                stream.connected().await?;
            }
            Ok(stream)
        })
        .await
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

    /// Uses a stream of the standard library. It becomes non-blocking.
    ///
    /// # Errors
    ///
    /// If the system refuses that, or outside a runtime.
    pub fn from_std(stream: net::TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        Ok(Self(Io::new(stream)?))
    }

    /// Returns the stream, which is non-blocking and no longer belongs to the runtime.
    #[must_use]
    pub fn into_std(self) -> net::TcpStream {
        self.0.into_inner()
    }

    /// Receives some bytes. 0 is the end of the stream, unless `buffer` is empty.
    ///
    /// Cancelling it loses no byte.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.wait(Direction::Read, |mut stream| stream.read(buffer)).await
    }

    /// Fills the buffer.
    ///
    /// Cancelling it loses the bytes that were received.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::UnexpectedEof`] if the stream ends first; those of the system.
    pub async fn read_exact(&self, buffer: &mut [u8]) -> io::Result<()> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.read(&mut buffer[filled..]).await? {
                0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                read => filled += read,
            }
        }
        Ok(())
    }

    /// Receives some bytes and leaves them in the system.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.wait(Direction::Read, |stream| stream.peek(buffer)).await
    }

    /// Sends some bytes, and returns how many.
    ///
    /// Cancelling it sends nothing.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn write(&self, buffer: &[u8]) -> io::Result<usize> {
        self.0.wait(Direction::Write, |mut stream| stream.write(buffer)).await
    }

    /// Sends all bytes.
    ///
    /// Cancelling it may leave a part sent.
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

    /// Waits until the socket is readable, or the stream has ended.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn readable(&self) -> io::Result<()> {
        self.0.wait(Direction::Read, |stream| stream.peek(&mut [0]).map(drop)).await
    }

    /// Shuts down one or both halves of the stream.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.0.get().shutdown(how)
    }

    /// Splits the stream into two halves, each for one task. Dropping the half for writing shuts
    /// it down.
    #[must_use]
    pub fn into_split(self) -> (OwnedReadHalf, OwnedWriteHalf) {
        let stream = Arc::new(self);
        (OwnedReadHalf(Arc::clone(&stream)), OwnedWriteHalf(stream))
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

    /// Sets `TCP_NODELAY`.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.0.get().set_nodelay(nodelay)
    }

    /// Returns the socket for options that only `socket2` has.
    #[must_use]
    pub fn socket(&self) -> socket2::SockRef<'_> {
        socket2::SockRef::from(self.0.get())
    }

    /// Sets `SO_LINGER`.
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.socket().set_linger(linger)
    }

    pub(crate) fn poll_read(
        &self,
        context: &Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll(Direction::Read, context, |mut stream| stream.read(buffer))
    }

    /// Receives into memory that need not be initialized.
    #[cfg(any(feature = "hyper", feature = "tokio-io"))]
    pub(crate) fn poll_read_uninit(
        &self,
        context: &Context<'_>,
        room: &mut [std::mem::MaybeUninit<u8>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll(Direction::Read, context, |stream| socket2::SockRef::from(stream).recv(room))
    }

    pub(crate) fn poll_write(
        &self,
        context: &Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll(Direction::Write, context, |mut stream| stream.write(buffer))
    }

    pub(crate) fn poll_write_vectored(
        &self,
        context: &Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.poll(Direction::Write, context, |mut stream| stream.write_vectored(buffers))
    }
}

/// Returns whether a non-blocking connect has begun.
fn is_in_progress(error: &io::Error) -> bool {
    #[cfg(unix)]
    return error.raw_os_error() == Some(libc::EINPROGRESS);
    #[cfg(windows)]
    return error.kind() == io::ErrorKind::WouldBlock;
}

impl AsyncRead for TcpStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        Self::poll_read(&self, context, buffer)
    }
}

impl AsyncWrite for TcpStream {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        Self::poll_write(&self, context, buffer)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Self::poll_write_vectored(&self, context, buffers)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.shutdown(Shutdown::Write))
    }
}

impl fmt::Debug for TcpStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.get().fmt(f)
    }
}

/// The half of a [`TcpStream`] that reads.
#[derive(Debug)]
pub struct OwnedReadHalf(Arc<TcpStream>);

/// The half of a [`TcpStream`] that writes. Dropping it ends the stream for the peer.
#[derive(Debug)]
pub struct OwnedWriteHalf(Arc<TcpStream>);

impl OwnedReadHalf {
    /// Receives some bytes. See [`TcpStream::read`].
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer).await
    }

    /// Returns the stream.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        &self.0
    }
}

impl OwnedWriteHalf {
    /// Sends all bytes. See [`TcpStream::write_all`].
    ///
    /// # Errors
    ///
    /// Those of the system.
    pub async fn write_all(&mut self, buffer: &[u8]) -> io::Result<()> {
        self.0.write_all(buffer).await
    }

    /// Returns the stream.
    #[must_use]
    pub fn stream(&self) -> &TcpStream {
        &self.0
    }
}

impl AsyncRead for OwnedReadHalf {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_read(context, buffer)
    }
}

impl AsyncWrite for OwnedWriteHalf {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.poll_write(context, buffer)
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(self.0.shutdown(Shutdown::Write))
    }
}

impl Drop for OwnedWriteHalf {
    fn drop(&mut self) {
        // It fails if the peer has reset the connection, which has ended then.
        let _ = self.0.shutdown(Shutdown::Write);
    }
}
