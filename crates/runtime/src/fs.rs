//! Files.
//!
//! Reads, writes and syncs are operations of the port: cached data is read by the call itself, and
//! an io_uring or helper threads do the rest. So a slow disk occupies no thread of the runtime.
//! Everything else, such as opening, metadata, directories and removal, is an ordinary call of
//! [`std::fs`], which may block its task. [`File`] reads and writes at positions, any number of
//! times simultaneously; [`FileStream`] has its own position.
//!
//! An operation that was started has the buffer until it has ended. If its future is dropped, the
//! operation is cancelled if it has not begun; otherwise it ends in the background. The buffer, and
//! a file that was dropped, are released then.

use std::fmt;
use std::fs;
use std::future::Future;
use std::io;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use completion_port::{FileSource, OpId, Operation, Outcome, SharedFile};

pub use crate::file_stream::FileStream;

use crate::activity;
use crate::context;
use crate::readiness::no_runtime;
use crate::shared::{Message, Shared};
use crate::state;

/// How much of a file `read` requests at a time. The calling thread copies a part that is cached, and
/// meanwhile runs no other task.
const CHUNK: usize = 8 << 20;

/// An operation in flight, and the task that waits for it.
pub(crate) type Pending = state::pending::Pending<Outcome>;

/// Waits for an operation. Dropped before its end, it cancels the operation.
pub(crate) struct Wait {
    pending: Arc<Pending>,
    shared: Arc<Shared>,
    id: Option<OpId>,
}

impl Wait {
    /// Starts an operation. If that is refused, returns the error and the operation's buffer.
    pub(crate) fn start(operation: Operation) -> Result<Self, (io::Error, Option<Vec<u8>>)> {
        let Some(handle) = context::current() else {
            return Err((no_runtime(), operation.into_buffer()));
        };
        let shared = Arc::clone(handle.shared());
        let pending = Arc::<Pending>::default();
        let message = {
            let pending = Arc::clone(&pending);
            move |outcome| Message::File(Box::new((pending, outcome)))
        };
        match shared.port.start_then_post(operation, message) {
            Ok(id) => Ok(Self { pending, shared, id: Some(id) }),
            Err(refused) => {
                let (error, operation) = refused.into_parts();
                Err((error.into(), operation.into_buffer()))
            }
        }
    }
}

impl Wait {
    /// Lets the operation end in the background.
    pub(crate) fn detach(mut self) {
        // Without the id, the drop cancels nothing.
        self.id = None;
        self.pending.abandon();
    }
}

impl Future for Wait {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        let polled = self.pending.poll(context.waker());
        if polled.is_ready() {
            self.id = None;
        } else {
            activity::note(activity::Wait::File);
        }
        polled
    }
}

impl Drop for Wait {
    fn drop(&mut self) {
        let Some(id) = self.id.take() else { return };
        self.pending.abandon();
        // It may have ended already.
        let _ = self.shared.port.cancel(id);
    }
}

/// An open file. Its clones share it.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, fs::File};
///
/// let path = std::env::temp_dir().join(format!("runtime-file-{}", std::process::id()));
/// Runtime::new()?.block_on(async {
///     let file = File::create(&path)?;
///     let (written, _) = file.write_at(b"hello".to_vec(), 0).await;
///     written?;
///     file.sync_data().await?;
///     let (read, bytes) = File::open(&path)?.read_at(Vec::with_capacity(16), 0).await;
///     assert_eq!((read?, &bytes[..]), (5, &b"hello"[..]));
///     std::fs::remove_file(&path)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone)]
pub struct File {
    file: Arc<fs::File>,
    shared: SharedFile,
}

impl File {
    /// Opens a file for reading.
    ///
    /// It is a call of [`std::fs`], which may block the task, and needs no runtime.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::fs::File;
    ///
    /// let manifest = File::open("Cargo.toml")?;
    /// assert!(manifest.std().metadata()?.is_file());
    /// let error = File::open("no such file").unwrap_err();
    /// assert_eq!(error.kind(), std::io::ErrorKind::NotFound);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn open(path: impl AsRef<Path>) -> io::Result<Self> {
        Ok(Self::from_std(fs::File::open(path)?))
    }

    /// Creates a file for reading and writing, or empties the one that exists.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, fs::File};
    ///
    /// # let path = std::env::temp_dir().join(format!("runtime-create-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let file = File::create(&path)?;
    ///     file.write_at(b"a long line".to_vec(), 0).await.0?;
    ///     // It empties the file that the first one has open too.
    ///     let again = File::create(&path)?;
    ///     assert_eq!(file.std().metadata()?.len(), 0);
    ///     drop(again);
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn create(path: impl AsRef<Path>) -> io::Result<Self> {
        let mut options = fs::OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(true).open(path)?;
        Ok(Self::from_std(file))
    }

    /// Uses a file that was opened by the standard library, with any options.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, fs::File};
    ///
    /// # let path = std::env::temp_dir().join(format!("runtime-append-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let options = std::fs::OpenOptions::new().append(true).create(true).clone();
    ///     let log = File::from_std(options.open(&path)?);
    ///     log.write_at(b"first\n".to_vec(), 0).await.0?;
    ///     log.write_at(b"second\n".to_vec(), 0).await.0?; // also at the end
    ///     assert_eq!(std::fs::read(&path)?, b"first\nsecond\n");
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn from_std(file: fs::File) -> Self {
        let file = Arc::new(file);
        Self { shared: SharedFile::new(FileSource::new(Arc::clone(&file))), file }
    }

    /// Returns a stream that reads and writes the file from its beginning on.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, fs::File};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let mut stream = File::open("Cargo.toml")?.into_stream();
    ///     let mut first = [0; 9];
    ///     let read = stream.read(&mut first).await?;
    ///     assert_eq!((read, stream.position()), (9, 9));
    ///     assert_eq!(&first, b"[package]");
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn into_stream(self) -> FileStream {
        FileStream::new(self)
    }

    pub(crate) fn operations(&self) -> &SharedFile {
        &self.shared
    }

    /// Returns the file of the standard library, for metadata, locks and the like.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, fs::File};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let file = File::open("Cargo.toml")?;
    ///     let length = file.std().metadata()?.len();
    ///     let (read, bytes) = file.read_at(Vec::with_capacity(1 << 20), 0).await;
    ///     assert_eq!((read? as u64, bytes.len() as u64), (length, length));
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[must_use]
    pub fn std(&self) -> &fs::File {
        &self.file
    }

    /// Reads at a position until the buffer is full, from its beginning to its capacity, or the
    /// file ends. Returns the number of bytes, which is also the length of the buffer.
    ///
    /// Cancelling it loses the buffer. The read is cancelled if it has not begun; otherwise it ends in the
    /// background.
    ///
    /// # Errors
    ///
    /// Those of the system. The buffer is returned in any case.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, fs::File};
    ///
    /// Runtime::new()?.block_on(async {
    ///     let file = File::open("Cargo.toml")?;
    ///     let (read, bytes) = file.read_at(Vec::with_capacity(7), 1).await;
    ///     assert_eq!((read?, &bytes[..]), (7, &b"package"[..]));
    ///     // The buffer can be used again. Beyond the end, nothing is read.
    ///     let (read, bytes) = file.read_at(bytes, 1 << 40).await;
    ///     assert_eq!((read?, bytes.len(), bytes.capacity()), (0, 0, 7));
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn read_at(&self, buffer: Vec<u8>, offset: u64) -> (io::Result<usize>, Vec<u8>) {
        Self::transfer(self.shared.read_at(buffer, offset)).await
    }

    /// Writes all bytes at a position. Returns their number.
    ///
    /// Cancelling it loses the buffer. The write is cancelled if it has not begun; otherwise it ends in the
    /// background, and nobody learns of its error.
    ///
    /// # Errors
    ///
    /// Those of the system; a part may have been written. The buffer is returned in any case.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, fs::File};
    ///
    /// # let path = std::env::temp_dir().join(format!("runtime-write-at-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let file = File::create(&path)?;
    ///     // Two writes at the same time, each at its place.
    ///     let second = file.clone();
    ///     let second = completion_port_runtime::spawn(async move {
    ///         second.write_at(b"world".to_vec(), 6).await.0
    ///     });
    ///     let (written, bytes) = file.write_at(b"hello ".to_vec(), 0).await;
    ///     assert_eq!((written?, second.await??), (6, 5));
    ///     assert_eq!(bytes, b"hello "); // the call returns the buffer
    ///     assert_eq!(std::fs::read(&path)?, b"hello world");
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn write_at(&self, bytes: Vec<u8>, offset: u64) -> (io::Result<usize>, Vec<u8>) {
        Self::transfer(self.shared.write_at(bytes, offset)).await
    }

    async fn transfer(operation: Operation) -> (io::Result<usize>, Vec<u8>) {
        match Wait::start(operation) {
            Ok(wait) => match wait.await {
                Outcome::Read(result, buffer) | Outcome::Written(result, buffer) => {
                    (result.map_err(io::Error::from), buffer)
                }
                _ => unreachable!("it was a read or a write"),
            },
            Err((error, buffer)) => (Err(error), buffer.unwrap_or_default()),
        }
    }

    /// Writes what was written to the disk, without metadata that a later read doesn't need.
    ///
    /// Cancelling it has no effect on what was written: the sync may end in the background.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, fs::File};
    ///
    /// # let path = std::env::temp_dir().join(format!("runtime-sync-data-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let journal = File::create(&path)?;
    ///     journal.write_at(b"paid 5".to_vec(), 0).await.0?;
    ///     journal.sync_data().await?; // from here on, it survives a loss of power
    ///     assert_eq!(std::fs::read(&path)?, b"paid 5");
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn sync_data(&self) -> io::Result<()> {
        Self::sync(self.shared.sync_data()).await
    }

    /// Writes what was written to the disk, with all metadata.
    ///
    /// Cancelling it has no effect on what was written: the sync may end in the background.
    ///
    /// # Errors
    ///
    /// Those of the system.
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port_runtime::{Runtime, fs::File};
    ///
    /// # let path = std::env::temp_dir().join(format!("runtime-sync-all-{}", std::process::id()));
    /// Runtime::new()?.block_on(async {
    ///     let new = path.with_extension("new");
    ///     let file = File::create(&new)?;
    ///     file.write_at(b"settings".to_vec(), 0).await.0?;
    ///     file.sync_all().await?; // before it replaces the old one
    ///     drop(file);
    ///     std::fs::rename(&new, &path)?;
    ///     assert_eq!(std::fs::read(&path)?, b"settings");
    ///     # std::fs::remove_file(&path)?;
    ///     Ok::<(), std::io::Error>(())
    /// })?;
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub async fn sync_all(&self) -> io::Result<()> {
        Self::sync(self.shared.sync_all()).await
    }

    async fn sync(operation: Operation) -> io::Result<()> {
        match Wait::start(operation).map_err(|(error, _)| error)?.await {
            Outcome::Synced(result) => result.map_err(io::Error::from),
            _ => unreachable!("it was a sync"),
        }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.file.fmt(f)
    }
}

/// Reads a whole file. Pipes, devices and the like are read until they end, by calls that block
/// the task.
///
/// Cancelling it has no effect on the file.
///
/// # Errors
///
/// Those of the system.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, fs};
///
/// let path = std::env::temp_dir().join(format!("runtime-whole-{}", std::process::id()));
/// Runtime::new()?.block_on(async {
///     fs::write(&path, "hello").await?;
///     assert_eq!(fs::read(&path).await?, b"hello");
///     assert_eq!(fs::read_to_string(&path).await?, "hello");
///     std::fs::remove_file(&path)
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn read(path: impl AsRef<Path>) -> io::Result<Vec<u8>> {
    let file = File::open(path)?;
    let metadata = file.std().metadata()?;
    if !metadata.is_file() {
        // It has no positions to read at.
        let mut contents = Vec::new();
        io::Read::read_to_end(&mut file.std(), &mut contents)?;
        return Ok(contents);
    }
    // The files of /proc report a length of zero.
    let expected = usize::try_from(metadata.len()).unwrap_or(usize::MAX);
    let mut contents = Vec::new();
    // One byte more shows the end without another read.
    let mut room = expected.saturating_add(1).min(CHUNK);
    loop {
        let offset = contents.len() as u64;
        let (read, part) = file.read_at(Vec::with_capacity(room), offset).await;
        let read = read?;
        if contents.is_empty() {
            contents = part;
        } else {
            contents.extend_from_slice(&part);
        }
        if read < room {
            return Ok(contents);
        }
        room = CHUNK;
    }
}

/// Reads a whole file as text. See [`read`].
///
/// # Errors
///
/// Those of the system; [`io::ErrorKind::InvalidData`] if it is not UTF-8.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, fs};
///
/// # let path = std::env::temp_dir().join(format!("runtime-text-{}", std::process::id()));
/// Runtime::new()?.block_on(async {
///     fs::write(&path, "grüße").await?;
///     assert_eq!(fs::read_to_string(&path).await?, "grüße");
///     fs::write(&path, [0xff]).await?;
///     let error = fs::read_to_string(&path).await.unwrap_err();
///     assert_eq!(error.kind(), std::io::ErrorKind::InvalidData);
///     # std::fs::remove_file(&path)?;
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn read_to_string(path: impl AsRef<Path>) -> io::Result<String> {
    String::from_utf8(read(path).await?)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Creates or replaces a file with these contents.
///
/// Cancelling it may leave the file empty, or a part written.
///
/// # Errors
///
/// Those of the system; a part may have been written.
///
/// # Examples
///
/// ```
/// use completion_port_runtime::{Runtime, fs};
///
/// # let path = std::env::temp_dir().join(format!("runtime-whole-write-{}", std::process::id()));
/// Runtime::new()?.block_on(async {
///     fs::write(&path, "a longer text").await?;
///     fs::write(&path, vec![b'x'; 3]).await?; // nothing of the old contents stays
///     assert_eq!(fs::read(&path).await?, b"xxx");
///     # std::fs::remove_file(&path)?;
///     Ok::<(), std::io::Error>(())
/// })?;
/// # Ok::<(), std::io::Error>(())
/// ```
pub async fn write(path: impl AsRef<Path>, contents: impl Into<Vec<u8>>) -> io::Result<()> {
    let (written, _) = File::create(path)?.write_at(contents.into(), 0).await;
    written.map(drop)
}
