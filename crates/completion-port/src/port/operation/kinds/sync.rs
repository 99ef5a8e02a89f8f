//! Putting what was written to a file on the disk.

use super::OperationKind;
use crate::backend::files::FileKind;
use crate::backend::sockets::{Rest, SocketAttempt};
use crate::port::operation::attempt::AttemptTarget;
use crate::port::operation::data::Progress;
use crate::port::operation::{Detail, Kind, OpId, Operation, Outcome};
use crate::port::token::Ready;
use crate::types::buffer::Buffer;
use crate::types::error::{Call, Refused, Result};
use crate::types::interest::Direction;

impl<B> Operation<B> {
    /// Has what was written to a file put on the disk, with what is needed to find it there, its length for instance.
    ///
    /// It is about writes that were done when it was started: whose packets were queued, or that were done at once.
    /// A write in flight may or may not be among them. A failure may be told once only, and it leaves open which of
    /// the writes have not reached the disk.
    ///
    /// # Platform notes
    ///
    /// Linux: [fdatasync(2)](https://man7.org/linux/man-pages/man2/fdatasync.2.html).
    pub fn sync_data() -> Self {
        Self::new(Kind::SyncData, None, Detail::None)
    }

    /// The same, with all that the system knows of the file, such as the time at which it was changed. Of a directory
    /// it puts the names there on the disk.
    ///
    /// # Platform notes
    ///
    /// Linux: [fsync(2)](https://man7.org/linux/man-pages/man2/fdatasync.2.html).
    pub fn sync_all() -> Self {
        Self::new(Kind::SyncAll, None, Detail::None)
    }
}

impl<K, B: Buffer> Ready<'_, K, B> {
    /// Starts [`Operation::sync_data`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn sync_data(self) -> Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::sync_data())
    }

    /// Starts [`Operation::sync_all`].
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    pub fn sync_all(self) -> Result<OpId, Refused<(K, Operation<B>)>> {
        self.start(Operation::sync_all())
    }
}

pub(super) struct SyncData;

impl OperationKind for SyncData {
    const CALL: Call = Call::Sync;
    const DIRECTION: Direction = Direction::Out;
    const ON_FILE: Option<FileKind> = Some(FileKind::SyncData);

    fn attempt<B: Buffer>(
        _operation: &mut Operation<B>,
        _progress: &mut Progress,
        _target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        SocketAttempt::NeedsSystem
    }

    fn outcome<B>(
        _operation: &mut Operation<B>,
        _progress: &mut Progress,
        result: Result<usize>,
    ) -> Outcome<B> {
        Outcome::Synced(result.map(|_| ()))
    }
}

pub(super) struct SyncAll;

impl OperationKind for SyncAll {
    const CALL: Call = Call::Sync;
    const DIRECTION: Direction = Direction::Out;
    const ON_FILE: Option<FileKind> = Some(FileKind::SyncAll);

    fn attempt<B: Buffer>(
        _operation: &mut Operation<B>,
        _progress: &mut Progress,
        _target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        SocketAttempt::NeedsSystem
    }

    fn outcome<B>(
        _operation: &mut Operation<B>,
        _progress: &mut Progress,
        result: Result<usize>,
    ) -> Outcome<B> {
        Outcome::Synced(result.map(|_| ()))
    }
}
