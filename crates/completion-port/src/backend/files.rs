//! What a port asks of a system about operations on files: to do at once what needs no waiting, and to do
//! the rest meanwhile.
//!
//! A file cannot be watched. So an operation that cannot be done at once is handed to the system as a
//! whole, as a [`Job`] with the memory that it needs, and comes back when it is done. As long as the
//! system has it, the memory is the system's.

use std::fmt;
use std::mem::MaybeUninit;
use std::sync::{Arc, Weak};

use crate::types::error::Fault;
use crate::types::io_buffer::Loan;
use crate::types::source::Descriptor;

/// What is to be done with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
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

/// An open file that operations go on with, though its number be closed meanwhile.
pub(crate) trait Hold: Send + Sync {
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

/// Where jobs come from.
pub(crate) trait Issuer: Send + Sync {
    /// A job comes back. Called by any thread that holds no lock.
    fn returned(&self, job: Job);
}

/// An operation that the system has, until it comes back.
pub(crate) struct Job {
    /// No other job of its port has it as long as this one is about.
    pub(crate) name: u64,
    pub(crate) issuer: Weak<dyn Issuer>,
    pub(crate) file: Arc<dyn Hold>,
    pub(crate) what: What,
    /// Where the operation began.
    pub(crate) offset: u64,
    /// The buffer, if there is one. Its parts are those that are left.
    pub(crate) loan: Option<Loan>,
    /// How many bytes were read or written so far.
    pub(crate) done: usize,
    pub(crate) fault: Option<Fault>,
    /// It was taken back, or the kernel let go of it, before its end.
    pub(crate) is_called_off: bool,
}

impl Job {
    /// Where it goes on.
    pub(crate) fn position(&self) -> u64 {
        self.offset.saturating_add(self.done as u64)
    }

    /// Whether there is nothing left that could be read or written.
    pub(crate) fn is_complete(&self) -> bool {
        self.loan.as_ref().is_none_or(|loan| loan.parts().is_empty())
    }

    /// Whether a read has stopped within a part of its buffer and within a block, as it does at the end of the file. Past the
    /// cache it cannot go on there, whatever the file has become since. It can at the end of a part, and where a system or
    /// the cache cuts a long read, which is between blocks.
    pub(crate) fn has_come_to_the_end(&self) -> bool {
        const BLOCK: usize = 4096;
        let is_within_part = self.loan.as_ref().is_some_and(Loan::is_within_part);
        self.what == What::Read && is_within_part && !self.done.is_multiple_of(BLOCK)
    }

    /// So many more bytes were read or written.
    pub(crate) fn advance(&mut self, len: usize) {
        self.done += len;
        if let Some(loan) = &mut self.loan {
            loan.advance(len);
        }
    }

    /// It is done, as far as it could be. If its port is gone it is dropped, and its buffer with it.
    pub(crate) fn give_back(self) {
        if let Some(issuer) = self.issuer.upgrade() {
            issuer.returned(self);
        }
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Job")
            .field("name", &self.name)
            .field("what", &self.what)
            .field("position", &self.position())
            .finish_non_exhaustive()
    }
}

/// Files of one kernel. Any thread may call it at any time.
///
/// The system lets go of each job once: it calls [`Issuer::returned`], or hands the job out by
/// [`Files::take_back`]. It may keep jobs beyond its own end, and then returns them as well.
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

    /// Takes hold of the file that the number names.
    fn hold(&self, descriptor: Descriptor) -> Result<Arc<dyn Hold>, Fault>;

    /// Makes sure that jobs can be done: starts what does them, the first time.
    fn prepare(&self) -> Result<(), Fault>;

    /// Hands a job to the system, which has been prepared. No system call is made: the caller may have a lock.
    /// [`Files::go`] follows.
    fn put(&self, job: Job);

    /// Has what was put begun. The caller has no lock, and the job may come back before this returns.
    fn go(&self);

    /// Asks for a job of this port. `Some`: it had not been begun, and is the caller's again. `None`: it comes
    /// back by itself, as soon as the kernel lets go of it, or as what it came to. It does not wait, and calls
    /// nothing of the port: the caller may have locks.
    fn take_back(&self, name: u64) -> Option<Job>;

    /// What does the jobs, for statistics and dumps; `None` as long as nothing has been prepared.
    fn files_name(&self) -> Option<&'static str>;
}
