//! A file as a stream: read and written from a position that moves along.

use std::fmt;
use std::future::{Future, poll_fn};
use std::io::{self, SeekFrom};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use completion_port::Outcome;
use futures_io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite};

use crate::fs::{File, Wait};

/// How much one operation reads or writes.
const ROOM: usize = 128 * 1024;

/// A file that is read and written from a position, by the traits of futures-io, and of tokio with
/// the feature `tokio-io`.
///
/// - **Reading** reads ahead by up to 128 KiB.
/// - **Writing** copies up to 128 KiB, starts the write, and returns. The next call waits for it
///   first, and returns its error. So call [`FileStream::flush`] before you rely on what was
///   written. To write many small pieces, put a `BufWriter` around it.
/// - **Cancelling** a call loses nothing: an operation in flight belongs to the stream. A write that
///   is in flight when the stream is dropped still ends in the background, but nobody learns of its
///   error.
/// - After an error of a write, a part may have been written, and the position is after the whole data.
///
/// Files opened for appending are written at their end, wherever the position is.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, fs::File};
/// use std::io::SeekFrom;
///
/// let path = std::env::temp_dir().join(format!("runtime-stream-{}", std::process::id()));
/// Runtime::new()?.block_on(async {
///     let mut stream = File::create(&path)?.into_stream();
///     stream.write_all(b"hello world").await?;
///     stream.seek(SeekFrom::Start(6)).await?;
///     let mut rest = [0; 16];
///     assert_eq!(stream.read(&mut rest).await?, 5);
///     assert_eq!(&rest[..5], b"world");
///     assert_eq!(stream.position(), 11);
///     std::fs::remove_file(&path)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct FileStream {
    file: File,
    /// Where the next byte is read or written.
    position: u64,
    /// What has been read. `ahead[taken..]` is what the file has at the position.
    ahead: Vec<u8>,
    taken: usize,
    state: State,
    /// A seek that tokio's trait has begun.
    #[cfg(feature = "tokio-io")]
    target: Option<SeekFrom>,
}

enum State {
    Idle,
    Reading(Wait),
    Writing(Wait),
}

impl FileStream {
    /// Makes a stream at the beginning of the file.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::fs::{File, FileStream};
    ///
    /// let file = File::open("Cargo.toml")?;
    /// // Each stream has its own position in the file.
    /// let (one, other) = (FileStream::new(file.clone()), FileStream::new(file));
    /// assert_eq!((one.position(), other.position()), (0, 0));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn new(file: File) -> Self {
        Self {
            file,
            position: 0,
            ahead: Vec::new(),
            taken: 0,
            state: State::Idle,
            #[cfg(feature = "tokio-io")]
            target: None,
        }
    }

    /// Returns the file.
    #[must_use]
    pub fn file(&self) -> &File {
        &self.file
    }

    /// Returns where the next byte is read or written.
    #[must_use]
    pub fn position(&self) -> u64 {
        self.position
    }

    /// Reads some bytes. 0 is the end of the file, unless `buffer` is empty.
    ///
    /// Cancelling it loses no byte.
    ///
    /// # Errors
    ///
    /// Those of the system, or that of an earlier write. The position stays.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, fs::File};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let mut stream = File::open("Cargo.toml")?.into_stream();
    ///     let (mut buffer, mut length) = ([0; 64], 0);
    ///     loop {
    ///         match stream.read(&mut buffer).await? {
    ///             0 => break, // the end of the file
    ///             read => length += read as u64,
    ///         }
    ///     }
    ///     assert_eq!(length, stream.position());
    ///     assert_eq!(length, stream.file().std().metadata()?.len());
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        poll_fn(|context| Pin::new(&mut *self).poll_read(context, buffer)).await
    }

    /// Writes all bytes. Cancelling it may leave a part written.
    ///
    /// # Errors
    ///
    /// Those of the system, also that of an earlier write. The error of the last write is returned
    /// by the next call, such as [`FileStream::flush`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, fs::File};
    ///
    /// # let path = std::env::temp_dir().join(format!("rt-stream-write-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let mut stream = File::create(&path)?.into_stream();
    ///     for line in ["one\n", "two\n"] {
    ///         stream.write_all(line.as_bytes()).await?;
    ///     }
    ///     stream.flush().await?;
    ///     assert_eq!(std::fs::read(&path)?, b"one\ntwo\n");
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn write_all(&mut self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let written =
                poll_fn(|context| Pin::new(&mut *self).poll_write(context, bytes)).await?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Waits until the system has everything that was written. It may not be on the disk yet: see
    /// [`File::sync_data`]. Cancelling it has no effect.
    ///
    /// # Errors
    ///
    /// That of the last write. The next call does not return it again.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, fs::File};
    ///
    /// # let path = std::env::temp_dir().join(format!("rt-stream-flush-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let mut stream = File::create(&path)?.into_stream();
    ///     stream.write_all(b"done").await?; // has begun
    ///     stream.flush().await?; // has ended
    ///     stream.file().sync_data().await?; // is on the disk
    ///     assert_eq!(std::fs::read(&path)?, b"done");
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|context| self.poll_settle(context)).await
    }

    /// Moves the position, also beyond the end, and returns it. Waits for a write in flight.
    ///
    /// Cancelling it leaves the position where it was.
    ///
    /// # Errors
    ///
    /// [`io::ErrorKind::InvalidInput`] for a position before the beginning; that of an earlier
    /// write. The position stays.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, fs::File};
    /// use std::io::SeekFrom;
    ///
    /// Runtime::new()?.block_on(async {
    ///     let mut stream = File::open("Cargo.toml")?.into_stream();
    ///     let length = stream.seek(SeekFrom::End(0)).await?;
    ///     assert_eq!(length, stream.file().std().metadata()?.len());
    ///     assert!(stream.seek(SeekFrom::Current(-1 << 40)).await.is_err());
    ///     assert_eq!(stream.position(), length); // the position stays
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        poll_fn(|context| Pin::new(&mut *self).poll_seek(context, to)).await
    }

    /// Waits for a write in flight.
    fn poll_settle(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let State::Writing(wait) = &mut self.state else { return Poll::Ready(Ok(())) };
        let outcome = ready!(Pin::new(wait).poll(context));
        self.state = State::Idle;
        let Outcome::Written(result, mut buffer) = outcome else { unreachable!("it was a write") };
        buffer.clear();
        self.ahead = buffer;
        self.taken = 0;
        Poll::Ready(result.map(drop).map_err(io::Error::from))
    }

    /// Forgets what was read ahead. A read in flight is cancelled.
    fn discard(&mut self) {
        self.state = State::Idle;
        self.ahead.clear();
        self.taken = 0;
    }

    /// Reads ahead, unless something is left of that.
    fn poll_ahead(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_settle(context))?;
        loop {
            if self.taken < self.ahead.len() {
                return Poll::Ready(Ok(()));
            }
            match &mut self.state {
                State::Reading(wait) => {
                    let outcome = ready!(Pin::new(wait).poll(context));
                    self.state = State::Idle;
                    let Outcome::Read(result, buffer) = outcome else {
                        unreachable!("it was a read")
                    };
                    self.ahead = buffer;
                    self.taken = 0;
                    if let Err(error) = result {
                        self.ahead.clear();
                        return Poll::Ready(Err(error.into()));
                    }
                    if self.ahead.is_empty() {
                        return Poll::Ready(Ok(()));
                    }
                }
                _ => {
                    let mut buffer = std::mem::take(&mut self.ahead);
                    self.taken = 0;
                    buffer.clear();
                    buffer.reserve_exact(ROOM);
                    match Wait::start(self.file.operations().read_at(buffer, self.position)) {
                        Ok(wait) => self.state = State::Reading(wait),
                        Err((error, _)) => return Poll::Ready(Err(error)),
                    }
                }
            }
        }
    }

    fn left(&self) -> &[u8] {
        &self.ahead[self.taken..]
    }

    fn take(&mut self, bytes: usize) {
        // More than there is would make the position wrong, as for any `consume`.
        let bytes = bytes.min(self.left().len());
        self.taken += bytes;
        self.position += bytes as u64;
    }

    fn destination(&self, to: SeekFrom) -> io::Result<u64> {
        let position = match to {
            SeekFrom::Start(position) => Some(position),
            SeekFrom::Current(by) => self.position.checked_add_signed(by),
            SeekFrom::End(by) => self.file.std().metadata()?.len().checked_add_signed(by),
        };
        position.ok_or_else(|| {
            io::Error::new(io::ErrorKind::InvalidInput, "a position before the beginning")
        })
    }
}

impl AsyncRead for FileStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if buffer.is_empty() {
            return Poll::Ready(Ok(0));
        }
        ready!(self.poll_ahead(context))?;
        let read = self.left().len().min(buffer.len());
        buffer[..read].copy_from_slice(&self.left()[..read]);
        self.take(read);
        Poll::Ready(Ok(read))
    }
}

impl AsyncBufRead for FileStream {
    fn poll_fill_buf(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<&[u8]>> {
        let this = self.get_mut();
        ready!(this.poll_ahead(context))?;
        Poll::Ready(Ok(this.left()))
    }

    fn consume(mut self: Pin<&mut Self>, amount: usize) {
        self.take(amount);
    }
}

impl AsyncWrite for FileStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_settle(context))?;
        if bytes.is_empty() {
            return Poll::Ready(Ok(0));
        }
        self.discard();
        let written = bytes.len().min(ROOM);
        let mut buffer = std::mem::take(&mut self.ahead);
        buffer.extend_from_slice(&bytes[..written]);
        match Wait::start(self.file.operations().write_at(buffer, self.position)) {
            Ok(wait) => self.state = State::Writing(wait),
            Err((error, _)) => return Poll::Ready(Err(error)),
        }
        self.position += written as u64;
        Poll::Ready(Ok(written))
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_settle(context)
    }

    fn poll_close(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.poll_settle(context)
    }
}

impl AsyncSeek for FileStream {
    fn poll_seek(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        to: SeekFrom,
    ) -> Poll<io::Result<u64>> {
        ready!(self.poll_settle(context))?;
        let position = self.destination(to)?;
        if position != self.position {
            self.discard();
            self.position = position;
        }
        Poll::Ready(Ok(position))
    }
}

#[cfg(feature = "tokio-io")]
mod for_tokio {
    use std::io::{self, SeekFrom};
    use std::pin::Pin;
    use std::task::{Context, Poll, ready};

    use tokio::io::{AsyncBufRead, AsyncRead, AsyncSeek, AsyncWrite, ReadBuf};

    use super::FileStream;

    impl AsyncRead for FileStream {
        fn poll_read(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
            buffer: &mut ReadBuf<'_>,
        ) -> Poll<io::Result<()>> {
            if buffer.remaining() == 0 {
                return Poll::Ready(Ok(()));
            }
            ready!(self.poll_ahead(context))?;
            let read = self.left().len().min(buffer.remaining());
            buffer.put_slice(&self.left()[..read]);
            self.take(read);
            Poll::Ready(Ok(()))
        }
    }

    impl AsyncBufRead for FileStream {
        fn poll_fill_buf(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<io::Result<&[u8]>> {
            futures_io::AsyncBufRead::poll_fill_buf(self, context)
        }

        fn consume(mut self: Pin<&mut Self>, amount: usize) {
            self.take(amount);
        }
    }

    impl AsyncWrite for FileStream {
        fn poll_write(
            self: Pin<&mut Self>,
            context: &mut Context<'_>,
            bytes: &[u8],
        ) -> Poll<io::Result<usize>> {
            futures_io::AsyncWrite::poll_write(self, context, bytes)
        }

        fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
            self.poll_settle(context)
        }

        fn poll_shutdown(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<io::Result<()>> {
            self.poll_settle(context)
        }
    }

    impl AsyncSeek for FileStream {
        fn start_seek(mut self: Pin<&mut Self>, to: SeekFrom) -> io::Result<()> {
            self.target = Some(to);
            Ok(())
        }

        fn poll_complete(
            mut self: Pin<&mut Self>,
            context: &mut Context<'_>,
        ) -> Poll<io::Result<u64>> {
            let to = self.target.unwrap_or(SeekFrom::Current(0));
            let sought = ready!(futures_io::AsyncSeek::poll_seek(self.as_mut(), context, to));
            self.target = None;
            Poll::Ready(sought)
        }
    }
}

impl Drop for FileStream {
    fn drop(&mut self) {
        if let State::Writing(wait) = std::mem::replace(&mut self.state, State::Idle) {
            wait.detach();
        }
    }
}

impl fmt::Debug for FileStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileStream")
            .field("file", &self.file)
            .field("position", &self.position)
            .finish_non_exhaustive()
    }
}
