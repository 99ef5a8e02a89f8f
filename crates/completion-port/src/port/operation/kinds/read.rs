//! Reading from a file.

use std::mem::MaybeUninit;

use super::OperationKind;
use crate::backend::files::{FileKind, Now};
use crate::backend::sockets::{Rest, SocketAttempt};
use crate::port::operation::attempt::AttemptTarget;
use crate::port::operation::data::{Bytes, Progress};
use crate::port::operation::{Detail, Kind, OpId, Operation, Outcome};
use crate::port::token::Ready;
use crate::types::buffer::{Buffer, with_room};
use crate::types::error::{Call, Refused, Result};
use crate::types::interest::Direction;

impl<B> Operation<B> {
    /// Reads from a file at `offset`, until the buffer is full or the file ends. The file's own
    /// position is neither used nor moved.
    ///
    /// The call that starts the operation reads the bytes that the system has in memory. The
    /// outcome is [`Outcome::Read`]. Fewer bytes than there is room for mean that the file ended
    /// there. A pipe, a terminal or a timerfd has no positions: the operation ignores the offset,
    /// waits until there is something to read, and reads that.
    ///
    /// # Platform notes
    ///
    /// Linux: [preadv2(2)](https://man7.org/linux/man-pages/man2/preadv2.2.html) with `RWF_NOWAIT`;
    /// the port's [`FileEngine`](crate::FileEngine) reads the remaining bytes. A file opened with
    /// `O_DIRECT` requires aligned offsets, lengths and memory; otherwise the outcome is `EINVAL`.
    /// On Windows, the operation is
    /// [ReadFile](https://learn.microsoft.com/windows/win32/api/fileapi/nf-fileapi-readfile) with
    /// an offset.
    pub fn read_at(buffer: B, offset: u64) -> Self {
        Self::new(Kind::Read, Some(buffer), Detail::Offset(offset))
    }
}

impl<K, B: Buffer> Ready<'_, K, B> {
    /// Starts [`Operation::read_at`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, FileSource, Outcome, Packet, Port};
    /// use std::fs::File;
    ///
    /// let port = Port::<FileSource<File>>::new()?;
    /// let file = FileSource::new(File::open(std::env::current_exe()?)?);
    /// port.associate(file)?.read_at(Vec::with_capacity(4), 0)?;
    ///
    /// let mut batch = Batch::new();
    /// let Some(Packet::Completed(done)) = port.wait(&mut batch, None)?.next() else { panic!() };
    /// let (token, outcome) = done.into_parts();
    /// let Outcome::Read(Ok(read), buffer) = outcome else { panic!("it can be read") };
    /// assert!(read >= 4 && buffer.len() == read);
    /// let file = token.into_key(); // or the next operation
    /// # drop(file);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn read_at(self, buffer: B, offset: u64) -> Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::read_at(buffer, offset))
    }
}

pub(super) struct Read;

impl OperationKind for Read {
    const CALL: Call = Call::Read;
    const DIRECTION: Direction = Direction::In;
    const FILLS: bool = true;
    const BYTES: Option<Bytes> = Some(Bytes::Read);
    const ON_FILE: Option<FileKind> = Some(FileKind::Read);

    /// Reads the bytes that the system has in memory.
    #[inline(never)]
    fn attempt<B: Buffer>(
        operation: &mut Operation<B>,
        progress: &mut Progress,
        target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        let (offset, number, is_tried) = match &operation.detail {
            Detail::Offset(offset) => (*offset, target.descriptor, target.reads_now(None)),
            Detail::File { file, offset } => match target.check_file(Some(file)) {
                Ok(()) => (*offset, file.descriptor(), target.reads_now(Some(file))),
                Err(fault) => return SocketAttempt::Failed(fault),
            },
            _ => unreachable!("a read is started with a position"),
        };
        let read =
            |position: u64, room: &mut [&mut [_]]| target.system().read_now(number, position, room);
        let buffer = operation.buffer_mut();
        // SAFETY: `with_room` requires that only initialized bytes are written to the parts.
        // - only a back end writes to them, and writes bytes that it has read.
        let (len, now) = unsafe {
            with_room(buffer, |parts, room| match room {
                0 => (0, Now::Read(0)),
                _ if is_tried => read_parts(offset, parts, room, read),
                _ => (0, Now::NotYet),
            })
        };
        progress.len = len;
        let attempt = match now {
            Now::Read(_) => SocketAttempt::Done(Rest::Unknown),
            Now::NotYet => return SocketAttempt::NeedsSystem,
            Now::Never => {
                target.stop_reading_now(operation.detail.file());
                return SocketAttempt::NeedsSystem;
            }
            Now::Failed(fault) => SocketAttempt::Failed(fault),
        };
        // SAFETY: `set_filled` requires that the first bytes of the room are initialized, and that
        // the buffer is as it was.
        // - initialized: the system reports that it has written that many, from the beginning of
        //   these parts;
        // - as it was: the buffer was not moved, and nothing else has been called since.
        unsafe { buffer.set_filled(len) };
        attempt
    }

    fn outcome<B>(
        operation: &mut Operation<B>,
        _progress: &mut Progress,
        result: Result<usize>,
    ) -> Outcome<B> {
        Outcome::Read(result, operation.take_buffer())
    }
}

/// Reads into parts with `room` bytes in total, until they are full, the file ends, or a read would
/// block.
fn read_parts(
    offset: u64,
    parts: &mut [&mut [MaybeUninit<u8>]],
    room: usize,
    mut read: impl FnMut(u64, &mut [&mut [MaybeUninit<u8>]]) -> Now,
) -> (usize, Now) {
    let (mut len, mut first) = (0, 0);
    loop {
        let now = read(offset.saturating_add(len as u64), &mut parts[first..]);
        let Now::Read(count) = now else { return (len, now) };
        len += count;
        if count == 0 || len == room {
            return (len, now);
        }
        // There is room left: the file, or the part that the system has in memory, may end there.
        let mut skipped = count;
        while let Some(part) = parts.get_mut(first) {
            if skipped < part.len() {
                let whole = std::mem::take(part);
                *part = &mut whole[skipped..];
                break;
            }
            skipped -= part.len();
            first += 1;
        }
    }
}
