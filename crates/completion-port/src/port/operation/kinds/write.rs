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
    /// Writes all of the buffer to a file, beginning `offset` bytes from its beginning. The position of the file is
    /// neither used nor moved. A pipe or a terminal has no positions, and is written to as it stands. A buffer without
    /// bytes is done at once, whatever is open there: nothing is written, and the file is as long as it was.
    ///
    /// An error tells how much was written before ([`Error::transferred`](crate::Error::transferred)): `ENOSPC` and `EIO`, say. That a write is
    /// done means that reads find the bytes, and not that they are on the disk: see [`Operation::sync_data`].
    ///
    /// # Platform notes
    ///
    /// On Linux a file that was opened with `O_APPEND` is written to at its end, whatever `offset` says
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

    /// A buffer without bytes is done.
    #[inline(never)]
    fn attempt<B: Buffer>(
        operation: &mut Operation<B>,
        _progress: &mut Progress,
        _target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
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
