//! Operations on files. preadv2(2) reads from the page cache immediately; an io_uring or a pool of
//! threads does the rest.

mod ring;

use std::mem::MaybeUninit;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use self::ring::Ring;
use super::epoll::Epoll;
use super::errors::{READ_FAILS, READ_NOW, RING_START};
use super::process::Process;
use crate::backend::files::{FileRef, FileTarget, Files, Now};
use crate::backend::request::{FileRequest, Submit};
use crate::backend::sockets::PARTS;
use crate::sys::portable::errors::AfterError;
use crate::sys::unix::errors::repeat;
use crate::sys::unix::files::{Pool, fault, fault_of_file, file_ref, is_file};
use crate::sys::unix::sockets::{ReceivePart, with_room};
use crate::types::config::FileEngine;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;

/// Performs the file requests of a port. It starts with the first request.
pub(super) struct FileService {
    process: Process,
    wanted: FileEngine,
    started: OnceLock<LinuxFiles>,
    starting: Mutex<()>,
}

enum LinuxFiles {
    Ring(Ring),
    Pool(Pool),
}

impl FileService {
    /// Starts nothing yet. Fails if `wanted` is a ring and this process can use none.
    pub(super) fn new(process: Process, wanted: FileEngine) -> Result<Self, Fault> {
        if wanted == FileEngine::Ring {
            ring::check()
                .map_err(|code| Fault { kind: ErrorKind::Unsupported, code: Some(code) })?;
        }
        Ok(Self { process, wanted, started: OnceLock::new(), starting: Mutex::new(()) })
    }

    fn start(&self) -> Result<LinuxFiles, Fault> {
        let ring = match self.wanted {
            FileEngine::Threads => Err(libc::ENOSYS),
            wanted => Ring::new(wanted != FileEngine::Ring),
        };
        match ring {
            Ok(ring) => Ok(LinuxFiles::Ring(ring)),
            // A temporary shortage: the next operation tries again.
            Err(code) if RING_START.then(code) == AfterError::Later => Err(fault(code)),
            Err(code) if self.wanted == FileEngine::Ring => Err(fault(code)),
            // No ring is available, it is forbidden, or it needs more locked memory than this user
            // may have.
            Err(_) => Ok(LinuxFiles::Pool(Pool::new())),
        }
    }
}

impl FileService {
    /// Returns the service that performs the requests, if it was started.
    fn service(&self) -> Option<&dyn Submit<FileTarget>> {
        self.started.get().map(|service| match service {
            LinuxFiles::Ring(ring) => ring as &dyn Submit<FileTarget>,
            LinuxFiles::Pool(pool) => pool,
        })
    }
}

impl Submit<FileTarget> for FileService {
    fn prepare(&self) -> Result<(), Fault> {
        if self.started.get().is_none() {
            let _starting = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
            if self.started.get().is_none() {
                let started = self.start()?;
                // `starting` is locked, so no other thread sets it.
                let _ = self.started.set(started);
            }
        }
        Ok(())
    }

    fn submit(&self, request: FileRequest) {
        match self.service() {
            Some(service) => service.submit(request),
            None => unreachable!("the caller has prepared for it"),
        }
    }

    fn flush(&self) {
        if let Some(service) = self.service() {
            service.flush();
        }
    }

    fn cancel(&self, id: u64) -> Option<FileRequest> {
        self.service()?.cancel(id)
    }
}

impl Drop for FileService {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // A forked child does not have the threads, and their locks may be held forever.
            match self.started.take() {
                Some(LinuxFiles::Ring(ring)) => ring.forget_in_child(),
                Some(LinuxFiles::Pool(pool)) => std::mem::forget(pool),
                None => {}
            }
        }
    }
}

impl Files for Epoll {
    fn is_file(&self, descriptor: Descriptor) -> bool {
        is_file(descriptor)
    }

    fn reads_now(&self, descriptor: Descriptor) -> bool {
        // SAFETY: fcntl(2) with F_GETFL has no memory requirements.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        // A direct read bypasses the cache and waits for the disk despite `RWF_NOWAIT`.
        flags >= 0 && flags & libc::O_DIRECT == 0
    }

    fn read_now(
        &self,
        descriptor: Descriptor,
        position: u64,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> Now {
        let Ok(position) = i64::try_from(position) else {
            // If this is an error, the request reports it.
            return Now::NotYet;
        };
        let read = |parts: &mut [ReceivePart<'_>]| {
            let (start, count) = (parts.as_mut_ptr(), parts.len());
            // SAFETY: preadv2(2) reads `count` elements at the pointer, and writes to each part at
            // most as many bytes as its length says. Its position is one word followed by a zero on
            // 64-bit systems.
            // - valid: `parts` is borrowed mutably, and its elements have the layout of
            //   `struct iovec`; each borrows its room mutably and has its length.
            #[allow(clippy::cast_possible_truncation, reason = "both have a machine's word")]
            repeat(|| unsafe {
                libc::syscall(
                    libc::SYS_preadv2,
                    descriptor,
                    start,
                    count,
                    position,
                    0_usize,
                    libc::RWF_NOWAIT,
                ) as libc::ssize_t
            })
        };
        let result = match room {
            [part] if !part.is_empty() => read(&mut [ReceivePart::new(part)]),
            room if room.len() <= 8 => with_room::<8, _>(room, read),
            room => with_room::<PARTS, _>(room, read),
        };
        match result {
            Ok(count) => Now::Read(count),
            Err(code) if READ_FAILS.contains(&code) => Now::Failed(fault_of_file(code)),
            Err(code) if READ_NOW.then(code) == AfterError::Later => Now::NotYet,
            // The request that follows reports the error, if there is one.
            Err(_) => Now::Never,
        }
    }

    fn file_ref(&self, descriptor: Descriptor) -> Result<Arc<dyn FileRef>, Fault> {
        file_ref(descriptor)
    }

    fn file_requests(&self) -> &dyn Submit<FileTarget> {
        &self.files
    }

    fn files_name(&self) -> Option<&'static str> {
        self.files.started.get().map(|service| match service {
            LinuxFiles::Ring(ring) if ring.is_given_up() => "threads",
            LinuxFiles::Ring(_) => "io_uring",
            LinuxFiles::Pool(_) => "threads",
        })
    }
}
