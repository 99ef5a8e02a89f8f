//! What TCP streams and streams of the local machine have in common, and their halves.

use std::fmt;
use std::future::Future;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

use crate::net::TcpStream;

/// A stream that has halves: a [`TcpStream`], and on Unix a `UnixStream`. No other type can
/// implement it.
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
            pub fn from_std(stream: $inner) -> io::Result<Self> {
                stream.set_nonblocking(true)?;
                Ok(Self(Io::new(stream)?))
            }

            /// Returns the stream, which is non-blocking and no longer belongs to the runtime.
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
            pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0.wait(Direction::Read, |mut stream| stream.read(buffer)).await
            }

            /// Fills the buffer.
            ///
            /// Cancelling it loses the bytes that it has received.
            ///
            /// # Errors
            ///
            /// [`io::ErrorKind::UnexpectedEof`] if the stream ends first; those of `read`. Bytes
            /// received before the error are in the buffer.
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
            pub fn try_read(&self, buffer: &mut [u8]) -> io::Result<usize> {
                self.0.get().read(buffer)
            }

            /// Waits until bytes have arrived, or the stream has ended.
            ///
            /// Another task may take them before the next call. Cancelling it has no effect.
            ///
            /// # Errors
            ///
            /// Those of `read`.
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
            pub async fn write_all(&self, buffer: &[u8]) -> io::Result<()> {
                stream::write_all(self, buffer).await
            }

            /// Sends some bytes without waiting.
            ///
            /// # Errors
            ///
            /// [`io::ErrorKind::WouldBlock`] if the system has no room; those of `write`.
            pub fn try_write(&self, buffer: &[u8]) -> io::Result<usize> {
                self.0.get().write(buffer)
            }

            /// Shuts down one or both directions of the stream. Tasks that wait for it continue.
            ///
            /// # Errors
            ///
            /// [`io::ErrorKind::NotConnected`] if the connection has ended; those of the system.
            pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
                self.0.shutdown(how, |socket, how| socket.shutdown(how))
            }

            /// Splits the stream into two halves that borrow it, for one task. Dropping them
            /// changes nothing.
            pub fn split(&mut self) -> (ReadHalf<'_, Self>, WriteHalf<'_, Self>) {
                stream::split(self)
            }

            /// Splits the stream into two halves, each for one task. Dropping the half that writes
            /// shuts down that direction. [`OwnedReadHalf::reunite`] is the inverse.
            #[must_use]
            pub fn into_split(self) -> (OwnedReadHalf<Self>, OwnedWriteHalf<Self>) {
                stream::into_split(self)
            }

            /// Returns the socket, for the options that `socket2` has.
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
                self.0.poll(Direction::Read, context, |mut stream| stream.read(buffer))
            }

            #[cfg(any(feature = "hyper", feature = "tokio-io"))]
            fn poll_read_uninit(
                &self,
                context: &Context<'_>,
                room: &mut [std::mem::MaybeUninit<u8>],
            ) -> Poll<io::Result<usize>> {
                self.0.poll(Direction::Read, context, |stream| SockRef::from(stream).recv(room))
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

/// The half of a stream that reads, borrowed. `split` of the stream makes it.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}};
///
/// Runtime::new()?.block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let near = TcpStream::connect(listener.local_addr()?).await?;
///     let (mut far, _) = listener.accept().await?;
///     near.write_all(b"ping").await?;
///     let (mut reader, mut writer) = far.split();
///     let mut bytes = [0; 4];
///     reader.read_exact(&mut bytes).await?;
///     writer.write_all(&bytes).await?;
///     near.read_exact(&mut bytes).await?;
///     assert_eq!(&bytes, b"ping");
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct ReadHalf<'s, S = TcpStream>(&'s S);

/// The half of a stream that writes, borrowed. See [`ReadHalf`].
#[derive(Debug)]
pub struct WriteHalf<'s, S = TcpStream>(&'s S);

pub(crate) fn split<S>(stream: &mut S) -> (ReadHalf<'_, S>, WriteHalf<'_, S>) {
    (ReadHalf(stream), WriteHalf(stream))
}

/// The half of a stream that reads. `into_split` of the stream makes it.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}, spawn};
///
/// Runtime::new()?.block_on(async {
///     let listener = TcpListener::bind("127.0.0.1:0").await?;
///     let near = TcpStream::connect(listener.local_addr()?).await?;
///     let (far, _) = listener.accept().await?;
///     let (mut reader, mut writer) = far.into_split();
///     let sender = spawn(async move {
///         writer.write_all(b"hello").await?;
///         Ok::<_, std::io::Error>(writer)
///     });
///     let mut bytes = [0; 5];
///     near.read_exact(&mut bytes).await?;
///     assert_eq!(&bytes, b"hello");
///     near.write_all(b"bye").await?;
///     reader.read_exact(&mut bytes[..3]).await?;
///     let far: TcpStream = reader.reunite(sender.await??).expect("they are of one stream");
///     drop(far);
///     assert_eq!(near.read(&mut bytes).await?, 0);
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct OwnedReadHalf<S = TcpStream>(Arc<S>);

/// The half of a stream that writes. Dropping it shuts down that direction: the peer reads the end
/// of the stream. See [`OwnedReadHalf`].
#[derive(Debug)]
pub struct OwnedWriteHalf<S: Stream = TcpStream> {
    /// `None` once the half was reunited or forgotten.
    stream: Option<Arc<S>>,
}

pub(crate) fn into_split<S: Stream>(stream: S) -> (OwnedReadHalf<S>, OwnedWriteHalf<S>) {
    let stream = Arc::new(stream);
    (OwnedReadHalf(Arc::clone(&stream)), OwnedWriteHalf { stream: Some(stream) })
}

/// The two halves are of different streams. The error returns them.
#[allow(clippy::exhaustive_structs, reason = "two halves")]
pub struct ReuniteError<S: Stream = TcpStream>(pub OwnedReadHalf<S>, pub OwnedWriteHalf<S>);

impl<S: Stream> fmt::Debug for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReuniteError").finish_non_exhaustive()
    }
}

impl<S: Stream> fmt::Display for ReuniteError<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the halves are of different streams")
    }
}

impl<S: Stream> std::error::Error for ReuniteError<S> {}

impl<S: Stream> OwnedReadHalf<S> {
    /// Returns the stream of the two halves. Nothing is shut down.
    ///
    /// # Errors
    ///
    /// [`ReuniteError`] with the halves if they are of different streams.
    #[allow(clippy::missing_panics_doc, reason = "the two halves are the only owners")]
    pub fn reunite(self, mut other: OwnedWriteHalf<S>) -> Result<S, ReuniteError<S>> {
        match other.stream.take_if(|stream| Arc::ptr_eq(stream, &self.0)) {
            None => Err(ReuniteError(self, other)),
            Some(stream) => {
                drop(stream);
                Ok(Arc::into_inner(self.0).expect("only the two halves share it"))
            }
        }
    }
}

impl<S: Stream> OwnedWriteHalf<S> {
    fn get(&self) -> &S {
        self.stream.as_ref().expect("it is taken out by value only")
    }

    /// Drops the half without shutting anything down. The stream is closed with the other half.
    pub fn forget(mut self) {
        self.stream = None;
    }

    /// Returns the stream of the two halves. See [`OwnedReadHalf::reunite`].
    ///
    /// # Errors
    ///
    /// As for [`OwnedReadHalf::reunite`].
    pub fn reunite(self, other: OwnedReadHalf<S>) -> Result<S, ReuniteError<S>> {
        other.reunite(self)
    }
}

impl<S: Stream> Drop for OwnedWriteHalf<S> {
    fn drop(&mut self) {
        if let Some(stream) = &self.stream {
            // It fails if the peer has reset the connection, which has ended then.
            let _ = stream.end(Shutdown::Write);
        }
    }
}

/// Defines the calls of a half that reads, and the traits of `futures-io`.
macro_rules! read_half {
    ($half:ty, $self:ident => $stream:expr) => {
        impl<S: Stream> $half {
            /// Receives some bytes. 0 is the end of the stream, unless `buffer` is empty.
            ///
            /// Cancelling it loses no byte.
            ///
            /// # Errors
            ///
            /// Those of [`TcpStream::read`].
            pub async fn read(&mut $self, buffer: &mut [u8]) -> io::Result<usize> {
                $stream.receive(buffer).await
            }

            /// Fills the buffer. Cancelling it loses the bytes that it has received.
            ///
            /// # Errors
            ///
            /// Those of [`TcpStream::read_exact`].
            pub async fn read_exact(&mut $self, buffer: &mut [u8]) -> io::Result<()> {
                read_exact($stream, buffer).await
            }

            /// Receives some bytes and leaves them in the system. Cancelling it has no effect.
            ///
            /// # Errors
            ///
            /// Those of [`TcpStream::read`].
            pub async fn peek(&mut $self, buffer: &mut [u8]) -> io::Result<usize> {
                $stream.look(buffer).await
            }

            /// Returns the stream, for its addresses and options.
            #[must_use]
            pub fn stream(&$self) -> &S {
                $stream
            }
        }

        impl<S: Stream> AsyncRead for $half {
            fn poll_read(
                $self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                Raw::poll_read($stream, context, buffer)
            }
        }
    };
}

/// Defines the calls of a half that writes, and the traits of `futures-io`.
macro_rules! write_half {
    ($half:ty, $self:ident => $stream:expr) => {
        impl<S: Stream> $half {
            /// Sends some bytes, and returns how many the system has taken. Cancelling it sends
            /// nothing.
            ///
            /// # Errors
            ///
            /// Those of [`TcpStream::write`].
            pub async fn write(&mut $self, buffer: &[u8]) -> io::Result<usize> {
                $stream.send(buffer).await
            }

            /// Sends all bytes. Cancelling it may leave a part sent.
            ///
            /// # Errors
            ///
            /// Those of [`TcpStream::write_all`].
            pub async fn write_all(&mut $self, buffer: &[u8]) -> io::Result<()> {
                write_all($stream, buffer).await
            }

            /// Shuts down this direction: the peer reads the end of the stream.
            ///
            /// # Errors
            ///
            /// Those of [`TcpStream::shutdown`].
            pub fn shutdown(&mut $self) -> io::Result<()> {
                $stream.end(Shutdown::Write)
            }

            /// Returns the stream, for its addresses and options.
            #[must_use]
            pub fn stream(&$self) -> &S {
                $stream
            }
        }

        impl<S: Stream> AsyncWrite for $half {
            fn poll_write(
                $self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffer: &[u8],
            ) -> Poll<io::Result<usize>> {
                Raw::poll_write($stream, context, buffer)
            }

            fn poll_write_vectored(
                $self: Pin<&mut Self>,
                context: &mut Context<'_>,
                buffers: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                Raw::poll_write_vectored($stream, context, buffers)
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_close($self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready($stream.end(Shutdown::Write))
            }
        }
    };
}

read_half!(ReadHalf<'_, S>, self => self.0);
read_half!(OwnedReadHalf<S>, self => &*self.0);
write_half!(WriteHalf<'_, S>, self => self.0);
write_half!(OwnedWriteHalf<S>, self => self.get());

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
