//! Operations on files that end with a call to the program, and make no packet.

use std::fmt;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Weak};

use crate::backend::files::{FileKind, FileRef, FileTarget, Issuer, Now};
use crate::backend::request::FileRequest;
use crate::engine::Engine;
use crate::state::queue::OP;
use crate::types::buffer::Buffer;
use crate::types::error::Fault;
use crate::types::error::{Call, Error, ErrorKind, Refused};
use crate::types::fd::RawFd;
use crate::types::io_buffer::IoBuffer;
use crate::types::source::Descriptor;

/// An open file for [`FileTasks`]. It stays open while an operation shares it.
pub trait OpenFile: Send + Sync + 'static {
    /// Returns a number that names the file while this exists.
    fn descriptor(&self) -> RawFd;

    /// Returns whether the bytes of the file have positions. A file without positions, such as a
    /// pipe or a terminal, is read at most once, for the bytes that it has.
    fn has_positions(&self) -> bool;
}

impl<F: OpenFile> FileRef for F {
    fn descriptor(&self) -> Descriptor {
        OpenFile::descriptor(self)
    }

    fn has_positions(&self) -> bool {
        OpenFile::has_positions(self)
    }
}

/// The work of an operation on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileWork {
    /// Fill the room of the buffer.
    Read,
    /// Write the bytes of the buffer.
    Write,
    /// Write the bytes of the buffer at the end of the file, wherever that is by then. The offset
    /// is ignored.
    Append,
}

/// The result of an operation on a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "an end has no more to it")]
pub struct FileEnd {
    /// The number of bytes read or written, including those before a failure.
    pub bytes: usize,
    /// Why it failed, if it did.
    pub error: Option<Error>,
    /// It was cancelled before it completed.
    pub is_cancelled: bool,
}

/// How an immediate read ended, apart from its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a read at once has no other end")]
pub enum ReadNow {
    /// The room is full, or the file has ended.
    Done,
    /// Reading the rest would block.
    Waits,
    /// This file never allows immediate reads. Don't try again.
    Never,
    /// The read failed.
    Failed(Error),
}

/// The buffer of an operation on a file. It is notified when the operation ends.
pub trait FileTask: Buffer {
    /// Called when the operation has ended and the kernel no longer uses the buffer.
    ///
    /// The calling thread belongs to the library, or has cancelled the operation. The call must
    /// return quickly, and must not drop the [`FileTasks`].
    fn end(self, end: FileEnd);
}

/// The name of an operation on a file. It is unique on its port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FileTaskId(u64);

/// Calls the ends of tasks.
struct Ends<T>(PhantomData<fn(T)>);

fn error(call: Call, fault: Fault) -> Error {
    Error::new(call, fault.kind).with_code(fault.code)
}

impl<T: FileTask> Issuer for Ends<T> {
    fn complete(&self, request: FileRequest) {
        let FileRequest { target, kind, buffer, done, fault, is_cancelled, .. } = request;
        // First, so that this share of the file is gone when the program learns of the end.
        drop(target);
        let call = if kind == FileKind::Read { Call::Read } else { Call::Write };
        let error = fault.map(|fault| error(call, fault));
        let end = FileEnd { bytes: done, error, is_cancelled };
        if let Some(buffer) = buffer {
            buffer.into_buffer::<T>().end(end);
        }
    }
}

/// Runs operations on files with a port's [file engine](crate::FileEngine), and calls their ends.
///
/// This is for bindings to other languages, which must handle the end of an operation even if no
/// thread takes packets.
///
/// If you drop this, operations in flight continue, and their buffers are dropped at their ends
/// instead of being notified. If the port is then dropped, the operations are cancelled where
/// possible.
///
/// # Examples
///
/// ```
/// use completion_port::raw::{FileEnd, FileTask, FileTasks, FileWork, OpenFile};
/// use completion_port::{Buffer, Port};
/// use std::fs::File;
/// use std::mem::MaybeUninit;
/// # #[cfg(windows)]
/// # trait AsRawFd: std::os::windows::io::AsRawHandle {
/// #     fn as_raw_fd(&self) -> i32 {
/// #         self.as_raw_handle().addr().try_into().unwrap()
/// #     }
/// # }
/// # #[cfg(windows)]
/// # impl AsRawFd for File {}
/// # #[cfg(windows)]
/// # type RawFd = i32;
/// # #[cfg(unix)]
/// use std::os::fd::{AsRawFd, RawFd};
/// use std::sync::{Arc, mpsc};
///
/// struct Opened(File);
/// impl OpenFile for Opened {
///     fn descriptor(&self) -> RawFd {
///         self.0.as_raw_fd()
///     }
///     fn has_positions(&self) -> bool {
///         true
///     }
/// }
///
/// struct Write(&'static [u8], mpsc::Sender<FileEnd>);
/// // SAFETY: there is no room, and the bytes are there for ever.
/// unsafe impl Buffer for Write {
///     fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
///         part(self.0);
///     }
///     unsafe fn room<'b>(&'b mut self, _: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {}
///     unsafe fn set_filled(&mut self, _: usize) {}
/// }
/// impl FileTask for Write {
///     fn end(self, end: FileEnd) {
///         let _ = self.1.send(end);
///     }
/// }
///
/// # let path = std::env::temp_dir().join(format!("completion-port-file-task-{}", std::process::id()));
/// let file = Arc::new(Opened(File::create(&path)?));
/// let port: Port<()> = Port::new()?;
/// let tasks: FileTasks<'_, Write> = port.raw().file_tasks();
/// let (sender, receiver) = mpsc::channel();
/// let work = (FileWork::Write, 0);
/// tasks.start(tasks.name(), &file, work, Write(b"hello", sender)).map_err(|it| it.error())?;
/// assert_eq!(receiver.recv()?.bytes, 5);
/// assert_eq!(std::fs::read(&path)?, b"hello");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct FileTasks<'p, T> {
    engine: &'p Arc<Engine>,
    ends: Arc<Ends<T>>,
    next: AtomicU64,
}

impl<T> fmt::Debug for FileTasks<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileTasks").finish_non_exhaustive()
    }
}

/// The bits of a name that hold its number. The bit above them distinguishes it from the names of a
/// port's own operations.
const COUNTED: u64 = (OP & !(1 << 31)) as u64 - 1;

/// Returns the name of the operation with this number. Its lower half is never an op index.
fn name(number: u64) -> u64 {
    let own = COUNTED + 1;
    ((number / own) << 32) | own | (number % own)
}

impl<'p, T: FileTask> FileTasks<'p, T> {
    pub(crate) fn new(engine: &'p Arc<Engine>) -> Self {
        Self { engine, ends: Arc::new(Ends(PhantomData)), next: AtomicU64::new(0) }
    }

    /// Reads the bytes at a position that are available without waiting for a disk, and returns
    /// their number and how the read ended.
    #[must_use]
    pub fn read_now(
        &self,
        file: &impl OpenFile,
        position: u64,
        mut room: &mut [MaybeUninit<u8>],
    ) -> (usize, ReadNow) {
        let mut done = 0;
        while !room.is_empty() {
            let position = position.saturating_add(done as u64);
            let backend = self.engine.backend();
            let came = match backend.read_now(file.descriptor(), position, &mut [&mut *room]) {
                Now::Read(0) => break,
                Now::Read(came) => came,
                Now::NotYet => return (done, ReadNow::Waits),
                Now::Never => return (done, ReadNow::Never),
                Now::Failed(fault) => return (done, ReadNow::Failed(error(Call::Read, fault))),
            };
            // The file, or the part that the system has in memory, may end there.
            done += came;
            room = &mut room[came..];
        }
        (done, ReadNow::Done)
    }

    /// Returns a new name for an operation.
    #[must_use]
    pub fn name(&self) -> FileTaskId {
        FileTaskId(name(self.next.fetch_add(1, Relaxed)))
    }

    /// Starts an operation under a [name](FileTasks::name) that no other operation has used.
    ///
    /// This call performs no part of the operation itself, but the end may be called before it
    /// returns. A read fills the room of the buffer from its beginning. A write takes all the
    /// buffer's bytes.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Forked`], [`ErrorKind::DescriptorLimit`], [`ErrorKind::OutOfMemory`]; and the
    /// system's errors if the file engine cannot be started. The error returns the task.
    pub fn start(
        &self,
        id: FileTaskId,
        file: &Arc<impl OpenFile>,
        (work, offset): (FileWork, u64),
        task: T,
    ) -> Result<(), Refused<T>> {
        let call = if work == FileWork::Read { Call::Read } else { Call::Write };
        if self.engine.forked() {
            return Err(Refused::new(Error::new(call, ErrorKind::Forked), task));
        }
        let requests = self.engine.backend().file_requests();
        if let Err(fault) = requests.prepare() {
            return Err(Refused::new(error(call, fault), task));
        }
        let mut io_buffer = IoBuffer::new(task);
        let kind = match work {
            FileWork::Read => FileKind::Read,
            FileWork::Write => FileKind::Write,
            FileWork::Append => FileKind::Append,
        };
        if kind == FileKind::Read {
            io_buffer.lend_room(|task: &mut T, part| {
                // SAFETY: `room` requires that only initialized bytes are written to the parts.
                // - the back end writes the bytes that it has read.
                unsafe { task.room(&mut |room| part(room)) };
            });
        } else {
            io_buffer.lend_bytes(|task: &T, part| task.filled(&mut |bytes| part(bytes)));
        }
        let issuer: Weak<Ends<T>> = Arc::downgrade(&self.ends);
        let file = Arc::clone(file) as Arc<dyn FileRef>;
        let target = FileTarget { file, offset, issuer };
        requests.submit(FileRequest::new(id.0, target, kind, Some(io_buffer)));
        requests.flush();
        Ok(())
    }

    /// Cancels an operation.
    ///
    /// If the operation has not begun, its end is called before this returns. Otherwise it ends as
    /// soon as the kernel releases its buffer, cancelled or not. This may have no effect on an
    /// operation that another thread is just starting.
    pub fn cancel(&self, id: FileTaskId) {
        if self.engine.forked() {
            return;
        }
        if let Some(mut request) = self.engine.backend().file_requests().cancel(id.0) {
            request.is_cancelled = true;
            self.ends.complete(request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_no_record_and_different() {
        let numbers = [0, 1, COUNTED - 1, COUNTED, COUNTED + 1, COUNTED + 2, 7 * COUNTED, 1 << 61];
        let names: Vec<_> = numbers.into_iter().map(name).collect();
        for (place, one) in names.iter().enumerate() {
            assert_eq!(names.iter().position(|it| it == one), Some(place));
            let lower = one & u64::from(u32::MAX);
            assert!(lower > COUNTED && lower < 1 << 31, "{one:x}");
        }
    }
}
