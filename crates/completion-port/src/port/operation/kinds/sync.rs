//! Syncing a file to the disk.

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
    /// Writes a file's data to the disk, with the metadata needed to read it, such as the file's
    /// length.
    ///
    /// This includes writes that had completed when the sync was started: those whose packets were
    /// queued, or that completed immediately. It may or may not include writes in flight. A failure
    /// may be reported only once, and doesn't reveal which of the writes have not reached the disk.
    ///
    /// # Platform notes
    ///
    /// Linux: [fdatasync(2)](https://man7.org/linux/man-pages/man2/fdatasync.2.html).
    pub fn sync_data() -> Self {
        Self::new(Kind::SyncData, None, Detail::None)
    }

    /// Writes a file's data and all its metadata to the disk, including for example the
    /// modification time. For a directory, writes its entries to the disk.
    ///
    /// Which writes this includes, and how it reports failures, is as for [`Operation::sync_data`].
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
        operation: &mut Operation<B>,
        _progress: &mut Progress,
        target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        attempt(operation, target)
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
        operation: &mut Operation<B>,
        _progress: &mut Progress,
        target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        attempt(operation, target)
    }

    fn outcome<B>(
        _operation: &mut Operation<B>,
        _progress: &mut Progress,
        result: Result<usize>,
    ) -> Outcome<B> {
        Outcome::Synced(result.map(|_| ()))
    }
}

fn attempt<B>(operation: &Operation<B>, target: AttemptTarget<'_>) -> SocketAttempt<Rest> {
    match target.check_file(operation.detail.file()) {
        Ok(()) => SocketAttempt::NeedsSystem,
        Err(fault) => SocketAttempt::Failed(fault),
    }
}
