//! Writing to a file.

use super::OperationKind;
use crate::backend::files::FileKind;
use crate::backend::sockets::{Rest, SocketAttempt};
use crate::port::operation::attempt::AttemptTarget;
use crate::port::operation::data::Progress;
use crate::port::operation::{Detail, Kind, OpId, Operation, Outcome};
use crate::port::token::Ready;
use crate::types::buffer::{Buffer, with_filled};
use crate::types::error::{Call, Refused, Result};
use crate::types::interest::Direction;

impl<B> Operation<B> {
    /// Writes the whole buffer to a file at `offset`. The file's own position is neither used nor
    /// moved.
    ///
    /// A pipe or a terminal has no positions, so the offset is ignored. An empty buffer completes
    /// immediately, whatever the file is: nothing is written, and the file's length does not
    /// change.
    ///
    /// An error (`ENOSPC` or `EIO`, for example) reports how much was written before it
    /// ([`Error::transferred`](crate::Error::transferred)). A completed write is visible to reads,
    /// but may not be on the disk: see [`Operation::sync_data`].
    ///
    /// # Platform notes
    ///
    /// On Linux, writes to a file opened with `O_APPEND` go to its end, whatever `offset` is
    /// ([pwrite(2)](https://man7.org/linux/man-pages/man2/pwrite.2.html)).
    pub fn write_at(buffer: B, offset: u64) -> Self {
        Self::new(Kind::Write, Some(buffer), Detail::Offset(offset))
    }
}

impl<K, B: Buffer> Ready<'_, K, B> {
    /// Starts [`Operation::write_at`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn write_at(self, buffer: B, offset: u64) -> Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::write_at(buffer, offset))
    }
}

pub(super) struct Write;

impl OperationKind for Write {
    const CALL: Call = Call::Write;
    const DIRECTION: Direction = Direction::Out;
    const ON_FILE: Option<FileKind> = Some(FileKind::Write);

    /// Completes immediately if the buffer is empty.
    #[inline(never)]
    fn attempt<B: Buffer>(
        operation: &mut Operation<B>,
        _progress: &mut Progress,
        target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        if let Err(fault) = target.check_file(operation.detail.file()) {
            return SocketAttempt::Failed(fault);
        }
        let is_empty = with_filled(operation.buffer_ref(), 0, |parts| parts.is_empty());
        if is_empty { SocketAttempt::Done(Rest::Unknown) } else { SocketAttempt::NeedsSystem }
    }

    fn outcome<B>(
        operation: &mut Operation<B>,
        _progress: &mut Progress,
        result: Result<usize>,
    ) -> Outcome<B> {
        Outcome::Written(result, operation.take_buffer())
    }
}
