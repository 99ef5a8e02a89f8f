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
    /// Writes at the end of the file, wherever that is by then.
    Append,
    /// Writes the data to disk, and the metadata that is needed to find it.
    SyncData,
    /// Writes the data and all metadata of the file to disk.
    SyncAll,
}

/// The result of a read that does not wait.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Now {
    /// This many bytes were read. 0: the file has none there.
    Read(usize),
    /// The read would block.
    NotYet,
    /// The file does not support such reads.
    Never,
    #[allow(dead_code, reason = "for systems that tell what is in memory")]
    Failed(Fault),
}

/// A reference to an open file. Requests use it even if the file's number is closed meanwhile.
pub(crate) trait FileRef: Send + Sync {
    /// Returns a number that names the file while this reference exists.
    fn descriptor(&self) -> Descriptor;

    /// Whether bytes of the file have positions.
    ///
    /// A read of a file without positions, such as a pipe or a terminal, takes what is available,
    /// once at most.
    fn has_positions(&self) -> bool;

    /// Whether an operation ends without outside help, as those on a disk do.
    ///
    /// One that waits for another program, such as a read of a pipe, may not end. Operations of the
    /// first kind must not wait for those of the second.
    fn ends_by_itself(&self) -> bool {
        self.has_positions()
    }

    /// Whether a thread has to wait for each operation on this file.
    ///
    /// The system may complete operations on other files without a waiting thread.
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
    /// The position at which the operation started.
    pub(crate) offset: u64,
    pub(crate) issuer: Weak<dyn Issuer>,
}

impl Target for FileTarget {
    type Kind = FileKind;
}

impl FileRequest {
    /// Returns the position of the next byte.
    pub(crate) fn position(&self) -> u64 {
        self.target.offset.saturating_add(self.done as u64)
    }

    /// Whether a read has stopped within a part of its buffer and within a block.
    ///
    /// It does so at the end of the file. A read that bypasses the cache cannot continue there,
    /// whatever has happened to the file since. It can continue at the end of a part, and where the
    /// system or the cache cuts a long read, which is between blocks.
    pub(crate) fn has_come_to_the_end(&self) -> bool {
        const BLOCK: usize = 4096;
        let is_within_part = self.buffer.as_ref().is_some_and(IoBuffer::is_within_part);
        self.kind == FileKind::Read && is_within_part && !self.done.is_multiple_of(BLOCK)
    }

    /// Passes the request to its issuer. If the port is gone, drops the request and its buffer.
    pub(crate) fn complete(self) {
        if let Some(issuer) = self.target.issuer.upgrade() {
            issuer.complete(self);
        }
    }
}

/// Files of one kernel. Any thread may call these methods at any time.
pub(crate) trait Files: Send + Sync {
    /// Whether the number names something that has file operations and cannot be watched.
    fn is_file(&self, descriptor: Descriptor) -> bool;

    /// Whether [`Files::read_now`] is worthwhile.
    ///
    /// The answer may be kept while the file is open.
    fn reads_now(&self, descriptor: Descriptor) -> bool;

    /// Reads what is available at a position into `room`, part after part, without waiting.
    ///
    /// A short read does not mean that the file has ended.
    fn read_now(
        &self,
        descriptor: Descriptor,
        position: u64,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> Now;

    /// Returns a reference to the file that the number names.
    fn file_ref(&self, descriptor: Descriptor) -> Result<Arc<dyn FileRef>, Fault>;

    /// Returns what performs requests on files.
    ///
    /// It may keep requests after the back end is dropped, and then still completes them.
    fn file_requests(&self) -> &dyn Submit<FileTarget>;

    /// Returns the name of the mechanism that performs requests, for statistics and dumps.
    ///
    /// `None` before the first [`Submit::prepare`].
    fn files_name(&self) -> Option<&'static str>;
}
