//! What TCP streams and streams of the local machine have in common.

use std::future::Future;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

use crate::net::TcpStream;

/// A stream that has halves: a [`TcpStream`], and on Unix a `UnixStream`. No other type can
/// implement it.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::net::{ReadHalf, Stream, TcpStream};
///
/// /// Works for every kind of stream.
/// async fn version<S: Stream>(reader: &mut ReadHalf<'_, S>) -> std::io::Result<u8> {
///     let mut byte = [0];
///     reader.read_exact(&mut byte).await?;
///     Ok(byte[0])
/// }
///
/// # use completion_port_runtime::{Runtime, net::TcpListener};
/// # Runtime::new()?.block_on(async {
/// # let listener = TcpListener::bind("127.0.0.1:0").await?;
/// # let near = TcpStream::connect(listener.local_addr()?).await?;
/// # let (far, _) = listener.accept().await?;
/// // `near` and `far` are connected.
/// near.write_all(&[5]).await?;
/// let mut far = far;
/// assert_eq!(version(&mut far.split().0).await?, 5);
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[allow(private_bounds, reason = "sealed")]
pub trait Stream: Raw {}

/// The calls of a stream, as the halves and the traits of other crates use them.
pub(crate) trait Raw: Sized + Send + Sync {
    fn poll_read(&self, context: &Context<'_>, buffer: &mut [u8]) -> Poll<io::Result<usize>>;

    /// Receives into memory that need not be initialized.
    #[cfg(any(feature = "hyper", feature = "tokio-io"))]
    fn poll_read_uninit(
        &self,
        context: &Context<'_>,
        room: &mut [std::mem::MaybeUninit<u8>],
    ) -> Poll<io::Result<usize>>;

    fn poll_write(&self, context: &Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>>;

    fn poll_write_vectored(
        &self,
        context: &Context<'_>,
        buffers: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>>;

    fn receive(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;

    fn look(&self, buffer: &mut [u8]) -> impl Future<Output = io::Result<usize>> + Send;

    fn send(&self, buffer: &[u8]) -> impl Future<Output = io::Result<usize>> + Send;

    fn end(&self, how: Shutdown) -> io::Result<()>;
}

/// Fills a buffer from a stream.
pub(crate) async fn read_exact(stream: &impl Raw, buffer: &mut [u8]) -> io::Result<()> {
    let mut filled = 0;
    while filled < buffer.len() {
        match stream.receive(&mut buffer[filled..]).await? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            read => filled += read,
        }
    }
    Ok(())
}

/// Sends all bytes.
pub(crate) async fn write_all(stream: &impl Raw, mut buffer: &[u8]) -> io::Result<()> {
    while !buffer.is_empty() {
        match stream.send(buffer).await? {
            0 => return Err(io::ErrorKind::WriteZero.into()),
            written => buffer = &buffer[written..],
        }
    }
    Ok(())
}

/// Receives bytes and leaves them in the system.
pub(crate) fn peek(socket: socket2::SockRef<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    let buffer: *mut [u8] = buffer;
    // SAFETY: the reference requires memory that is valid for writes and not used otherwise.
    // - it is the memory of `buffer`, which is borrowed meanwhile, with the same length;
    // - `MaybeUninit<u8>` has the layout of `u8`;
    // - `peek` only writes initialized bytes into it.
    let room = unsafe { &mut *(buffer as *mut [std::mem::MaybeUninit<u8>]) };
    socket.peek(room)
}

/// Defines what a stream offers, on a field 0 of the type `Io<$inner>`.
macro_rules! stream {
    ($stream:ident, $inner:ty) => {
        impl $stream {
            /// Uses a stream of the standard library. It becomes non-blocking.
            ///
            /// # Errors
            ///
            /// If the system refuses that, or outside a runtime. The stream is closed then.
            ///
            /// # Examples
            ///
            /// ```
            /// use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}};
            ///
            /// Runtime::new()?.block_on(async {
            ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
            ///     let blocking = std::net::TcpStream::connect(listener.local_addr()?)?;
            ///     let near = TcpStream::from_std(blocking)?;
            ///     assert_eq!(near.peer_addr()?, listener.local_addr()?);
            ///     Ok::<(), std::io::Error>(())
            /// })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn from_std(stream: $inner) -> io::Result<Self> {
                stream.set_nonblocking(true)?;
                Ok(Self(Io::new(stream)?))
            }

            /// Returns the stream, which is non-blocking and no longer belongs to the runtime.
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
            /// let mut near = near.into_std();
            /// near.set_nonblocking(false)?;
            /// far.write_all(b"hello").await?;
            /// let mut bytes = [0; 5];
            /// std::io::Read::read_exact(&mut near, &mut bytes)?; // blocks
            /// assert_eq!(&bytes, b"hello");
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            #[must_use]
            pub fn into_std(self) -> $inner {
                self.0.into_inner()
            }

            /// Receives some bytes. 0 is the end of the stream, unless `buffer` is empty.
            ///
            /// Any number of tasks may wait for one stream; each byte goes to one of them.
            /// Cancelling it loses no byte.
            ///
            /// # Errors
            ///
            /// Those of the system, such as [`io::ErrorKind::ConnectionReset`]; an error if the
            /// stream's runtime has ended and the call would wait.
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
            /// near.write_all(b"hello").await?;
            /// drop(near);
            /// let (mut received, mut buffer) = (Vec::new(), [0; 2]);
            /// loop {
            ///     match far.read(&mut buffer).await? {
            ///         0 => break, // the end of the stream
            ///         read => received.extend_from_slice(&buffer[..read]),
            ///     }
            /// }
            /// assert_eq!(received, b"hello");
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
                let room = buffer.len();
                self.0
                    .wait(Direction::Read, |_| {
                        self.0.receive(room, |mut stream| stream.read(buffer))
                    })
                    .await
            }

            /// Fills the buffer.
            ///
            /// Cancelling it loses the bytes that it has received.
            ///
            /// # Errors
            ///
            /// [`io::ErrorKind::UnexpectedEof`] if the stream ends first; those of `read`. Bytes
            /// received before the error are in the buffer.
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
            /// near.write_all(b"abcdef").await?;
            /// drop(near);
            /// let mut record = [0; 4];
            /// far.read_exact(&mut record).await?;
            /// assert_eq!(&record, b"abcd");
            /// let error = far.read_exact(&mut record).await.unwrap_err();
            /// assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof);
            /// assert_eq!(&record[..2], b"ef");
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub async fn read_exact(&self, buffer: &mut [u8]) -> io::Result<()> {
                stream::read_exact(self, buffer).await
            }

            /// Receives some bytes and leaves them in the system: the next read returns them again.
            ///
            /// Cancelling it has no effect.
            ///
            /// # Errors
            ///
            /// Those of `read`.
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
            /// near.write_all(b"\x16 handshake").await?;
            /// let mut first = [0];
            /// far.peek(&mut first).await?;
            /// assert_eq!(first, [0x16]); // it speaks TLS
            /// assert_ne!(far.read(&mut first).await?, 0);
            /// assert_eq!(first, [0x16]); // the byte is still there
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub async fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0
                    .wait(Direction::Read, |stream| stream::peek(SockRef::from(stream), buffer))
                    .await
            }

            /// Receives some bytes without waiting.
            ///
            /// # Errors
            ///
            /// [`io::ErrorKind::WouldBlock`] if there are none; those of `read`.
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
            /// let mut buffer = [0; 16];
            /// let error = far.try_read(&mut buffer).unwrap_err();
            /// assert_eq!(error.kind(), std::io::ErrorKind::WouldBlock);
            /// near.write_all(b"now").await?;
            /// far.readable().await?;
            /// assert_ne!(far.try_read(&mut buffer)?, 0);
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0.receive(buffer.len(), |mut stream| stream.read(buffer))
            }

            /// Waits until bytes have arrived, or the stream has ended.
            ///
            /// Another task may take them before the next call. Cancelling it has no effect.
            ///
            /// # Errors
            ///
            /// Those of `read`.
            ///
            /// # Examples
            ///
            /// ```
            /// use completion_port_runtime::spawn;
            ///
            /// # use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}};
            /// # Runtime::new()?.block_on(async {
            /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
            /// # let near = TcpStream::connect(listener.local_addr()?).await?;
            /// # let (far, _) = listener.accept().await?;
            /// // `near` and `far` are connected.
            /// let waits = spawn(async move {
            ///     far.readable().await?; // with no buffer, while the connection is idle
            ///     let mut buffer = [0; 16];
            ///     far.try_read(&mut buffer)
            /// });
            /// near.write_all(b"x").await?;
            /// assert_eq!(waits.await??, 1);
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub async fn readable(&self) -> io::Result<()> {
                self.peek(&mut [0]).await.map(drop)
            }

            /// Sends some bytes, and returns how many the system has taken.
            ///
            /// Cancelling it sends nothing.
            ///
            /// # Errors
            ///
            /// Those of the system, such as [`io::ErrorKind::BrokenPipe`]; an error if the stream's
            /// runtime has ended and the call would wait.
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
            /// let page = vec![b'x'; 1 << 16];
            /// let written = near.write(&page).await?;
            /// assert!((1..=page.len()).contains(&written));
            /// let mut received = vec![0; written];
            /// far.read_exact(&mut received).await?;
            /// assert_eq!(received, page[..written]);
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub async fn write(&self, buffer: &[u8]) -> io::Result<usize> {
                self.0.wait(Direction::Write, |mut stream| stream.write(buffer)).await
            }

            /// Sends some bytes of several buffers, and returns how many the system has taken.
            ///
            /// Cancelling it sends nothing.
            ///
            /// # Errors
            ///
            /// Those of `write`.
            ///
            /// # Examples
            ///
            /// ```
            /// use std::io::IoSlice;
            ///
            /// # use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}};
            /// # Runtime::new()?.block_on(async {
            /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
            /// # let near = TcpStream::connect(listener.local_addr()?).await?;
            /// # let (far, _) = listener.accept().await?;
            /// // `near` and `far` are connected.
            /// let (header, body) = (b"length: 4\n\n", b"body");
            /// let buffers = [IoSlice::new(header), IoSlice::new(body)];
            /// let written = near.write_vectored(&buffers).await?;
            /// assert!((1..=15).contains(&written));
            /// let mut received = vec![0; written];
            /// far.read_exact(&mut received).await?;
            /// assert_eq!(received, b"length: 4\n\nbody"[..written]);
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub async fn write_vectored(&self, buffers: &[IoSlice<'_>]) -> io::Result<usize> {
                self.0.wait(Direction::Write, |mut stream| stream.write_vectored(buffers)).await
            }

            /// Sends all bytes. If several tasks do that simultaneously, their bytes may mix.
            ///
            /// Cancelling it may leave a part sent.
            ///
            /// # Errors
            ///
            /// Those of `write`. A part may have been sent.
            ///
            /// # Examples
            ///
            /// ```
            /// use completion_port_runtime::spawn;
            ///
            /// # use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}};
            /// # Runtime::new()?.block_on(async {
            /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
            /// # let near = TcpStream::connect(listener.local_addr()?).await?;
            /// # let (far, _) = listener.accept().await?;
            /// // `near` and `far` are connected.
            /// let page = vec![b'x'; 1 << 22]; // more than one call can send
            /// let length = page.len();
            /// let sends = spawn(async move { near.write_all(&page).await });
            /// let mut received = vec![0; length];
            /// far.read_exact(&mut received).await?;
            /// sends.await??;
            /// assert!(received.iter().all(|byte| *byte == b'x'));
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub async fn write_all(&self, buffer: &[u8]) -> io::Result<()> {
                stream::write_all(self, buffer).await
            }

            /// Sends some bytes without waiting.
            ///
            /// # Errors
            ///
            /// [`io::ErrorKind::WouldBlock`] if the system has no room; those of `write`.
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
            /// let full = loop {
            ///     if let Err(error) = near.try_write(&[0; 1 << 16]) {
            ///         break error; // nobody reads
            ///     }
            /// };
            /// assert_eq!(full.kind(), std::io::ErrorKind::WouldBlock);
            /// # drop(far);
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn try_write(&self, buffer: &[u8]) -> io::Result<usize> {
                self.0.get().write(buffer)
            }

            /// Shuts down one or both directions of the stream. Tasks that wait for it continue.
            ///
            /// # Errors
            ///
            /// [`io::ErrorKind::NotConnected`] if the connection has ended; those of the system.
            ///
            /// # Examples
            ///
            /// ```
            /// use std::net::Shutdown;
            ///
            /// # use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}};
            /// # Runtime::new()?.block_on(async {
            /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
            /// # let near = TcpStream::connect(listener.local_addr()?).await?;
            /// # let (far, _) = listener.accept().await?;
            /// // `near` and `far` are connected.
            /// near.write_all(b"request").await?;
            /// near.shutdown(Shutdown::Write)?;
            /// let mut buffer = [0; 7];
            /// far.read_exact(&mut buffer).await?;
            /// assert_eq!(far.read(&mut buffer).await?, 0); // the request is complete
            /// far.write_all(b"reply").await?;
            /// near.read_exact(&mut buffer[..5]).await?;
            /// assert_eq!(&buffer[..5], b"reply");
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                self.0.shutdown(how, |socket, how| socket.shutdown(how))
            }

            /// Splits the stream into two halves that borrow it, for one task. Dropping them
            /// changes nothing.
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
            /// let mut far = far;
            /// let (mut reader, mut writer) = far.split();
            /// let mut byte = [0];
            /// near.write_all(b"a").await?;
            /// reader.read_exact(&mut byte).await?;
            /// writer.write_all(&byte).await?;
            /// near.read_exact(&mut byte).await?;
            /// assert_eq!(byte, *b"a");
            /// far.write_all(b"b").await?; // the stream is whole again
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub fn split(&mut self) -> (ReadHalf<'_, Self>, WriteHalf<'_, Self>) {
                halves::split(self)
            }

            /// Splits the stream into two halves, each for one task. Dropping the half that writes
            /// shuts down that direction. [`OwnedReadHalf::reunite`] is the inverse.
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
            /// let (mut reader, writer) = far.into_split();
            /// drop(writer); // shuts down that direction
            /// let mut byte = [0];
            /// assert_eq!(near.read(&mut byte).await?, 0);
            /// near.write_all(b"a").await?;
            /// reader.read_exact(&mut byte).await?;
            /// assert_eq!(byte, *b"a");
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            #[must_use]
            pub fn into_split(self) -> (OwnedReadHalf<Self>, OwnedWriteHalf<Self>) {
                halves::into_split(self)
            }

            /// Returns the socket, for the options that `socket2` has.
            ///
            /// A later read may rely on what this type has done: shut the socket down with
            /// `shutdown`, not here and not by a duplicate. Before you put a layer of the kernel above it (kTLS), take it out with
            /// `into_std`, and afterwards use `from_std`.
            ///
            /// # Examples
            ///
            /// ```
            /// use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}};
            ///
            /// Runtime::new()?.block_on(async {
            ///     let listener = TcpListener::bind("127.0.0.1:0").await?;
            ///     let stream = TcpStream::connect(listener.local_addr()?).await?;
            ///     stream.socket().set_keepalive(true)?;
            ///     assert!(stream.socket().keepalive()?);
            ///     Ok::<(), std::io::Error>(())
            /// })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            #[must_use]
            pub fn socket(&self) -> SockRef<'_> {
                SockRef::from(self.0.get())
            }
        }

        impl stream::Raw for $stream {
            fn poll_read(
                &self,
                context: &Context<'_>,
                buffer: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                let room = buffer.len();
                self.0.poll(Direction::Read, context, |_| {
                    self.0.receive(room, |mut stream| stream.read(buffer))
                })
            }

            #[cfg(any(feature = "hyper", feature = "tokio-io"))]
            fn poll_read_uninit(
                &self,
                context: &Context<'_>,
                room: &mut [std::mem::MaybeUninit<u8>],
            ) -> Poll<io::Result<usize>> {
                let len = room.len();
                self.0.poll(Direction::Read, context, |_| {
                    self.0.receive(len, |stream| SockRef::from(stream).recv(room))
                })
            }

            fn poll_write(&self, context: &Context<'_>, buffer: &[u8]) -> Poll<io::Result<usize>> {
                self.0.poll(Direction::Write, context, |mut stream| stream.write(buffer))
            }

            fn poll_write_vectored(
                &self,
                context: &Context<'_>,
                buffers: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.0.poll(Direction::Write, context, |mut stream| stream.write_vectored(buffers))
            }

            async fn receive(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.read(buffer).await
            }

            async fn look(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.peek(buffer).await
            }

            async fn send(&self, buffer: &[u8]) -> io::Result<usize> {
                self.write(buffer).await
            }

            fn end(&self, how: Shutdown) -> io::Result<()> {
                self.shutdown(how)
            }
        }

        impl Stream for $stream {}

        impl fmt::Debug for $stream {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.get().fmt(f)
            }
        }
    };
}
pub(crate) use stream;

/// Defines the traits of `futures-io` for a whole stream.
macro_rules! futures_io {
    ($stream:ty) => {
        impl AsyncRead for $stream {
            fn poll_read(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                Raw::poll_read(&*self, context, buffer)
            }
        }

        impl AsyncWrite for $stream {
            fn poll_write(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &[u8],
            ) -> Poll<io::Result<usize>> {
                Raw::poll_write(&*self, context, buffer)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffers: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Raw::poll_write_vectored(&*self, context, buffers)
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.end(Shutdown::Write))
            }
        }
    };
}

futures_io!(TcpStream);
#[cfg(unix)]
futures_io!(crate::net::UnixStream);
