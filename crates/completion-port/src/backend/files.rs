//! File operations: reads of cached bytes, which never block, and requests for everything else.

use std::mem::MaybeUninit;
use std::sync::{Arc, Weak};

use super::request::{FileRequest, Submit, Target};
use crate::types::error::Fault;
use crate::types::io_buffer::IoBuffer;
use crate::types::source::Descriptor;

/// The kind of a file request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FileKind {
    Read,
    Write,
    /// To write behind the last byte, wherever that is then.
    Append,
    /// The bytes that were written are to be on the disk, and what is needed to find them.
    SyncData,
    /// The same, and all that is known of the file.
    SyncAll,
}

/// What a read at once has come to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Now {
    /// So many bytes were read. 0: the file has none there.
    Read(usize),
    /// It would have to wait.
    NotYet,
    /// This cannot be asked of the file.
    Never,
    #[allow(dead_code, reason = "for systems that tell what is in memory")]
    Failed(Fault),
}

/// A reference to an open file. Requests use the file by it even if its number is closed meanwhile.
pub(crate) trait FileRef: Send + Sync {
    /// A number that names the file as long as this is there.
    fn descriptor(&self) -> Descriptor;

    /// Whether bytes of the file have positions. Of one that has none, a pipe or a terminal, is read what
    /// there is, at most once.
    fn has_positions(&self) -> bool;

    /// Whether an operation ends by itself, as those on a disk do. One that waits for what another program does, such as a
    /// read of a pipe, may not. Those that end must not wait for those that may not.
    fn ends_by_itself(&self) -> bool {
        self.has_positions()
    }

    /// Whether a thread has to wait for each operation, though the system completes those of other files by itself.
    #[allow(dead_code, reason = "for systems that do")]
    fn waits(&self) -> bool {
        true
    }
}

/// Receives completed requests.
pub(crate) trait Issuer: Send + Sync {
    /// Takes a completed request. The calling thread holds no lock.
    fn complete(&self, request: FileRequest);
}

/// The file of a request.
pub(crate) struct FileTarget {
    pub(crate) file: Arc<dyn FileRef>,
    /// The position at which the operation began.
    pub(crate) offset: u64,
    pub(crate) issuer: Weak<dyn Issuer>,
}

impl Target for FileTarget {
    type Kind = FileKind;
}

impl FileRequest {
    /// The position of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.target.offset.saturating_add(self.done as u64)
    }

    /// Whether a read has stopped within a part of its buffer and within a block, as it does at the end of the file. A
    /// read that bypasses the cache cannot continue there, whatever the file has become since. It can continue at the end
    /// of a part, and where a system or the cache cuts a long read, which is between blocks.
    pub(crate) fn has_come_to_the_end(&self) -> bool {
        const BLOCK: usize = 4096;
        let is_within_part = self.buffer.as_ref().is_some_and(IoBuffer::is_within_part);
        self.kind == FileKind::Read && is_within_part && !self.done.is_multiple_of(BLOCK)
    }

    /// Passes the request to its issuer. If the port is gone, drops the request, and its buffer with it.
    pub(crate) fn complete(self) {
        if let Some(issuer) = self.target.issuer.upgrade() {
            issuer.complete(self);
        }
    }
}

/// Files of one kernel. Any thread may call it at any time.
pub(crate) trait Files: Send + Sync {
    /// Whether the number names something that has operations of files and cannot be watched.
    fn is_file(&self, descriptor: Descriptor) -> bool;

    /// Whether [`Files::read_now`] is worth while. The answer may be kept as long as the file is open.
    fn reads_now(&self, descriptor: Descriptor) -> bool;

    /// Reads at a position into `room`, part after part, what is there without waiting. Fewer bytes than there
    /// is room for are no sign of the file's end.
    fn read_now(
        &self,
        descriptor: Descriptor,
        position: u64,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> Now;

    /// Returns a reference to the file that the number names.
    fn file_ref(&self, descriptor: Descriptor) -> Result<Arc<dyn FileRef>, Fault>;

    /// Performs requests on files. It may keep requests after the back end is dropped, and then still completes them.
    fn file_requests(&self) -> &dyn Submit<FileTarget>;

    /// The name of the mechanism that performs requests, for statistics and dumps; `None` before the first
    /// [`Submit::prepare`].
    fn files_name(&self) -> Option<&'static str>;
}
