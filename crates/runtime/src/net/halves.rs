//! The halves of a stream: one reads, and the other one writes.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

use crate::net::TcpStream;
use crate::net::stream::{Raw, Stream, read_exact, write_all};

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
/// let mut near = near;
/// let (_, mut writer) = near.split();
/// writer.write_all(b"hello").await?;
/// let mut bytes = [0; 5];
/// far.read_exact(&mut bytes).await?;
/// assert_eq!(&bytes, b"hello");
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
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
/// let (_reader, mut writer) = near.into_split();
/// let sends = spawn(async move {
///     writer.write_all(b"all").await // then the half is dropped
/// });
/// let mut bytes = [0; 8];
/// far.read_exact(&mut bytes[..3]).await?;
/// sends.await??;
/// assert_eq!(far.read(&mut bytes).await?, 0);
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
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
///
/// # Examples
///
/// ```
/// use completion_port_runtime::net::ReuniteError;
///
/// # use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}};
/// # Runtime::new()?.block_on(async {
/// # let listener = TcpListener::bind("127.0.0.1:0").await?;
/// # let near = TcpStream::connect(listener.local_addr()?).await?;
/// # let (far, _) = listener.accept().await?;
/// // `near` and `far` are connected.
/// let (near_reader, near_writer) = near.into_split();
/// let (far_reader, far_writer) = far.into_split();
/// let ReuniteError(near_reader, far_writer) = near_reader.reunite(far_writer).unwrap_err();
/// // The error has returned both halves.
/// assert!(near_reader.reunite(near_writer).is_ok());
/// assert!(far_writer.reunite(far_reader).is_ok());
/// # Ok::<(), std::io::Error>(())
/// # })?;
/// # Ok::<(), std::io::Error>(())
/// ```
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
    /// let (reader, writer) = near.into_split();
    /// let near = reader.reunite(writer).expect("they are of one stream");
    /// near.write_all(b"x").await?; // no direction was shut down
    /// assert_eq!(far.read(&mut [0; 8]).await?, 1);
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::time::timeout;
    /// use std::time::Duration;
    ///
    /// # use completion_port_runtime::{Runtime, net::{TcpListener, TcpStream}};
    /// # Runtime::new()?.block_on(async {
    /// # let listener = TcpListener::bind("127.0.0.1:0").await?;
    /// # let near = TcpStream::connect(listener.local_addr()?).await?;
    /// # let (far, _) = listener.accept().await?;
    /// // `near` and `far` are connected.
    /// let (reader, writer) = near.into_split();
    /// writer.forget();
    /// let closed = timeout(Duration::from_millis(1), far.readable()).await;
    /// assert!(closed.is_err()); // nothing was shut down
    /// drop(reader);
    /// assert_eq!(far.read(&mut [0; 8]).await?, 0); // now the stream is closed
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn forget(mut self) {
        self.stream = None;
    }

    /// Returns the stream of the two halves. See [`OwnedReadHalf::reunite`].
    ///
    /// # Errors
    ///
    /// As for [`OwnedReadHalf::reunite`].
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
    /// let (reader, writer) = near.into_split();
    /// let near = writer.reunite(reader).expect("they are of one stream");
    /// assert_eq!(near.peer_addr()?, far.local_addr()?);
    /// # Ok::<(), std::io::Error>(())
    /// # })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
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
            /// let (mut reader, _writer) = far.into_split();
            /// near.write_all(b"x").await?;
            /// assert_eq!(reader.read(&mut [0; 8]).await?, 1);
            /// drop(near);
            /// assert_eq!(reader.read(&mut [0; 8]).await?, 0); // the end
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub async fn read(&mut $self, buffer: &mut [u8]) -> io::Result<usize> {
                $stream.receive(buffer).await
            }

            /// Fills the buffer. Cancelling it loses the bytes that it has received.
            ///
            /// # Errors
            ///
            /// Those of [`TcpStream::read_exact`].
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
            /// let (mut reader, _writer) = far.into_split();
            /// near.write_all(b"ab").await?;
            /// drop(near);
            /// let mut bytes = [0; 2];
            /// reader.read_exact(&mut bytes).await?;
            /// assert_eq!(&bytes, b"ab");
            /// assert!(reader.read_exact(&mut bytes).await.is_err()); // the stream has ended
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub async fn read_exact(&mut $self, buffer: &mut [u8]) -> io::Result<()> {
                read_exact($stream, buffer).await
            }

            /// Receives some bytes and leaves them in the system. Cancelling it has no effect.
            ///
            /// # Errors
            ///
            /// Those of [`TcpStream::read`].
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
            /// let (mut reader, _writer) = far.into_split();
            /// near.write_all(b"GET").await?;
            /// let mut first = [0];
            /// reader.peek(&mut first).await?;
            /// assert_eq!(&first, b"G");
            /// reader.read_exact(&mut first).await?;
            /// assert_eq!(&first, b"G");
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
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
            /// let (_reader, mut writer) = near.into_split();
            /// let written = writer.write(b"hello").await?;
            /// let mut received = vec![0; written];
            /// far.read_exact(&mut received).await?;
            /// assert_eq!(received, b"hello"[..written]);
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub async fn write(&mut $self, buffer: &[u8]) -> io::Result<usize> {
                $stream.send(buffer).await
            }

            /// Sends all bytes. Cancelling it may leave a part sent.
            ///
            /// # Errors
            ///
            /// Those of [`TcpStream::write_all`].
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
            /// let (_reader, mut writer) = near.into_split();
            /// writer.write_all(b"one ").await?;
            /// writer.write_all(b"two").await?;
            /// let mut received = [0; 7];
            /// far.read_exact(&mut received).await?;
            /// assert_eq!(&received, b"one two");
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
            pub async fn write_all(&mut $self, buffer: &[u8]) -> io::Result<()> {
                write_all($stream, buffer).await
            }

            /// Shuts down this direction: the peer reads the end of the stream.
            ///
            /// # Errors
            ///
            /// Those of [`TcpStream::shutdown`].
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
            /// let (mut reader, mut writer) = near.into_split();
            /// writer.shutdown()?;
            /// assert_eq!(far.read(&mut [0; 8]).await?, 0);
            /// far.write_all(b"reply").await?; // the other direction stays open
            /// assert_ne!(reader.read(&mut [0; 8]).await?, 0);
            /// # Ok::<(), std::io::Error>(())
            /// # })?;
            /// # Ok::<(), std::io::Error>(())
            /// ```
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
