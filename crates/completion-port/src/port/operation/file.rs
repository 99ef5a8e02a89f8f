//! Files that are not registered, and the operations on them.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use crate::backend::files::FileRef;
use crate::port::operation::{Detail, Kind, Operation};
use crate::types::error::{ErrorKind, Fault};
use crate::types::source::{Descriptor, KernelId, Source, SourceName};

/// An open file whose operations need no association of the file. Its clones share it.
///
/// Its methods make the [`Operation`]s. Any token starts them, whatever its registration's
/// descriptor is: that of a connection that a server answers with the file, for example. The packet
/// returns the token. So does the name of any shared association.
///
/// The file needs no registration, and may also have one. Starting such an operation makes no
/// system call besides those of the operation itself. What the port has to know of the file, it asks
/// once for each `SharedFile`. So keep one for each open file, and clone it.
///
/// The file stays open until the last clone is dropped and each operation has ended. A thread that
/// starts an operation, takes its packet, or drops the port may be the one that drops the file.
///
/// # Platform notes
///
/// Linux: once an operation had to wait, a duplicate of the descriptor is kept as long as the file.
///
/// # Examples
///
/// A token of a connection reads from a file and sends what it has read:
///
/// ```
/// use completion_port::{Batch, FileSource, Outcome, Packet, Port, SharedFile};
/// use std::fs::File;
/// use std::io::Read;
/// use std::net::{TcpListener, TcpStream};
///
/// let file = SharedFile::new(FileSource::new(File::open(std::env::current_exe()?)?));
/// let port = Port::<TcpStream>::new()?;
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let mut client = TcpStream::connect(listener.local_addr()?)?;
/// let (connection, _) = listener.accept()?;
/// port.associate(connection)?.start(file.read_at(Vec::with_capacity(4), 0))?;
///
/// let mut batch = Batch::new();
/// let Some(Packet::Completed(done)) = port.wait(&mut batch, None)?.next() else { panic!() };
/// let (token, Outcome::Read(read, buffer)) = done.into_parts() else { panic!() };
/// assert!(read? >= 4);
/// token.send_all(buffer)?;
/// client.read_exact(&mut [0; 4])?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct SharedFile(Arc<Opened<dyn Send + Sync>>);

// Nothing reaches the program's value but its drop, so a panic elsewhere cannot show it half changed.
impl UnwindSafe for SharedFile {}
impl RefUnwindSafe for SharedFile {}

struct Opened<F: ?Sized> {
    name: SourceName,
    /// Whether reads are tried immediately: 0 if unknown, 1 if not, 2 if so.
    reads_now: AtomicU8,
    /// The reference that requests use, and the number of its port.
    ///
    /// Only tried: a thread that a fork has left behind may have locked it.
    file_ref: Mutex<Option<(u64, Arc<dyn FileRef>)>>,
    /// Keeps the descriptor open.
    #[allow(dead_code, reason = "kept for its drop")]
    file: F,
}

impl SharedFile {
    /// Takes a file, or a share of it such as an `Arc<File>`.
    pub fn new(file: impl Source + Send + Sync + 'static) -> Self {
        let name = file.as_source().name;
        let (reads_now, file_ref) = (AtomicU8::new(0), Mutex::new(None));
        Self(Arc::new(Opened { name, reads_now, file_ref, file }))
    }

    /// Works like [`Operation::read_at`], on this file.
    pub fn read_at<B>(&self, buffer: B, offset: u64) -> Operation<B> {
        self.operation(Kind::Read, Some(buffer), offset)
    }

    /// Works like [`Operation::write_at`], on this file.
    pub fn write_at<B>(&self, buffer: B, offset: u64) -> Operation<B> {
        self.operation(Kind::Write, Some(buffer), offset)
    }

    /// Works like [`Operation::sync_data`], on this file.
    pub fn sync_data<B>(&self) -> Operation<B> {
        self.operation(Kind::SyncData, None, 0)
    }

    /// Works like [`Operation::sync_all`], on this file.
    pub fn sync_all<B>(&self) -> Operation<B> {
        self.operation(Kind::SyncAll, None, 0)
    }

    fn operation<B>(&self, kind: Kind, buffer: Option<B>, offset: u64) -> Operation<B> {
        Operation::new(kind, buffer, Detail::File { file: self.clone(), offset })
    }

    /// Checks that the file belongs to the kernel of the port that is about to use it.
    pub(super) fn check(&self, kernel: KernelId) -> Result<(), Fault> {
        if self.0.name.kernel == kernel {
            Ok(())
        } else {
            // On this port, its number may name another file.
            Err(Fault { kind: ErrorKind::WrongKernel, code: None })
        }
    }

    /// Returns the number that names the file while this exists.
    pub(super) fn descriptor(&self) -> Descriptor {
        self.0.name.number
    }

    /// Returns whether a read is tried immediately. Calls `ask` if that is unknown.
    pub(super) fn reads_now(&self, ask: impl FnOnce(Descriptor) -> bool) -> bool {
        match self.0.reads_now.load(Relaxed) {
            0 => {
                let reads_now = ask(self.descriptor());
                self.0.reads_now.store(1 + u8::from(reads_now), Relaxed);
                reads_now
            }
            known => known > 1,
        }
    }

    /// Notes that reads cannot be done immediately.
    pub(super) fn stop_reading_now(&self) {
        self.0.reads_now.store(1, Relaxed);
    }

    /// Returns the reference that the requests of this port use. Calls `make` if there is none.
    pub(super) fn file_ref(
        &self,
        port: u64,
        make: impl FnOnce(Descriptor) -> Result<Arc<dyn FileRef>, Fault>,
    ) -> Result<Arc<dyn FileRef>, Fault> {
        // Without the lock the reference is made for this request alone.
        let Ok(mut kept) = self.0.file_ref.try_lock() else { return make(self.descriptor()) };
        if let Some((of, file)) = &*kept
            && *of == port
        {
            return Ok(Arc::clone(file));
        }
        let file = make(self.descriptor())?;
        *kept = Some((port, Arc::clone(&file)));
        Ok(file)
    }
}

impl fmt::Debug for SharedFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedFile").field("descriptor", &self.descriptor()).finish_non_exhaustive()
    }
}
