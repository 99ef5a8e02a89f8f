//! Operations on files: what is in the page cache at once, by preadv2(2), and the rest by an io_uring or a
//! pool of threads.

mod pool;
mod ring;

use std::mem::offset_of;
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use self::pool::Pool;
use self::ring::Ring;
use super::epoll::Epoll;
use super::options::{Code, last_code};
use super::process::Process;
use super::sockets::{repeat, with_room};
use crate::error::ErrorKind;
use crate::file_engine::FileEngine;
use crate::loan::Part;
use crate::state::facts::{Descriptor, Fault};
use crate::sys::files::{Files, Hold, Now, Task, What};
use crate::sys::sockets::PARTS;
use std::mem::MaybeUninit;

// A part of a loan lies as readv(2) wants it.
const _: () = {
    assert!(size_of::<Part>() == size_of::<libc::iovec>());
    assert!(offset_of!(Part, start) == offset_of!(libc::iovec, iov_base));
    assert!(offset_of!(Part, len) == offset_of!(libc::iovec, iov_len));
};

/// The smallest unit that a read past the cache is aligned to.
const BLOCK: usize = 512;

fn fault(code: Code) -> Fault {
    let kind = match code {
        libc::EMFILE | libc::ENFILE => ErrorKind::DescriptorLimit,
        libc::ENOMEM | libc::EAGAIN => ErrorKind::OutOfMemory,
        _ => ErrorKind::Other,
    };
    Fault { kind, code: Some(code) }
}

/// What an operation on a file has failed with. Its descriptor is open: `EBADF` says that it is not open for this.
fn fault_of_file(code: Code) -> Fault {
    let kind = if code == libc::ENOMEM { ErrorKind::OutOfMemory } else { ErrorKind::Other };
    Fault { kind, code: Some(code) }
}

/// A duplicate of the descriptor of an association. The operations that the port's threads do go by it, so that none
/// ever uses a number that was closed, and perhaps given out again.
struct Held {
    descriptor: OwnedFd,
    has_positions: bool,
}

impl Hold for Held {
    fn descriptor(&self) -> Descriptor {
        self.descriptor.as_raw_fd()
    }

    fn has_positions(&self) -> bool {
        self.has_positions
    }
}

/// What system call a task asks for next.
struct Request<'t> {
    descriptor: RawFd,
    what: What,
    /// The first parts that are left, as many as one call takes.
    parts: &'t [Part],
    /// -1 of a file without positions.
    position: i64,
}

impl<'t> Request<'t> {
    fn of(task: &'t Task) -> Result<Self, Code> {
        let parts = task.loan.as_ref().map_or(&[][..], |loan| loan.parts());
        let position = if task.file.has_positions() {
            i64::try_from(task.position()).map_err(|_| libc::EINVAL)?
        } else {
            -1
        };
        Ok(Self {
            descriptor: task.file.descriptor(),
            what: task.what,
            parts: &parts[..parts.len().min(PARTS)],
            position,
        })
    }

    /// How many parts there are.
    #[allow(clippy::cast_possible_truncation, reason = "at most 1,024")]
    fn count(&self) -> u32 {
        self.parts.len() as u32
    }
}

/// Notes what a system call for a task has come to. `Break`: the task has come to its end.
fn note(task: &mut Task, result: Result<usize, Code>) -> ControlFlow<()> {
    match result {
        Ok(count) => {
            task.advance(count);
            let is_over = match task.what {
                What::Read => count == 0 || task.is_complete() || !task.file.has_positions(),
                What::Write | What::Append if count == 0 && !task.is_complete() => {
                    // It would be so again, for ever.
                    task.fault = Some(fault_of_file(libc::EIO));
                    true
                }
                What::Write | What::Append => task.is_complete(),
                What::SyncData | What::SyncAll => true,
            };
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        Err(libc::EINTR) => ControlFlow::Continue(()),
        // Past the cache a read goes on at multiples of a block only. That the last one was none was the end of the
        // file, which has grown since.
        Err(libc::EINVAL) if task.what == What::Read && !task.done.is_multiple_of(BLOCK) => {
            ControlFlow::Break(())
        }
        Err(code) => {
            task.fault = Some(fault_of_file(code));
            ControlFlow::Break(())
        }
    }
}

/// Returns a task. A buffer may be dropped by that, whose code may panic: the thread goes on.
fn give_back(task: Task) {
    let _ = catch_unwind(AssertUnwindSafe(|| task.give_back()));
}

/// The threads of this folder take no signal of the process: its handlers are for its own threads. So a write
/// beyond the limit of file sizes, or to a pipe without a reader, is an error and no more.
fn block_signals() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset(3) writes a set at the pointer.
    // - valid for writes: `all` is a local.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: pthread_sigmask(3) reads a set at the first pointer, and writes none to a null pointer.
    // - valid for reads: `all` was written just now.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut()) };
}

/// What does the tasks of a port, once there are any.
pub(super) struct FileService {
    process: Process,
    wanted: FileEngine,
    started: OnceLock<Service>,
    starting: Mutex<()>,
}

enum Service {
    Ring(Ring),
    Pool(Pool),
}

impl FileService {
    /// Nothing is started yet. Refused if a ring is wanted, and there is none to be had.
    pub(super) fn new(process: Process, wanted: FileEngine) -> Result<Self, Fault> {
        if wanted == FileEngine::Ring {
            ring::check()
                .map_err(|code| Fault { kind: ErrorKind::Unsupported, code: Some(code) })?;
        }
        Ok(Self { process, wanted, started: OnceLock::new(), starting: Mutex::new(()) })
    }

    fn start(&self) -> Result<Service, Fault> {
        let ring = match self.wanted {
            FileEngine::Threads => Err(libc::ENOSYS),
            _ => Ring::new(),
        };
        match ring {
            Ok(ring) => Ok(Service::Ring(ring)),
            // There is none, or it is forbidden, or more memory would have to be locked than this user may.
            Err(libc::ENOSYS | libc::EPERM | libc::EACCES | libc::EINVAL | libc::ENOMEM)
                if self.wanted != FileEngine::Ring =>
            {
                Ok(Service::Pool(Pool::new()))
            }
            // A shortage passes: the next operation tries again.
            Err(code) => Err(fault(code)),
        }
    }
}

impl Drop for FileService {
    fn drop(&mut self) {
        if !self.process.is_current() {
            // A forked child: the threads are not here, and their locks may be held for ever.
            match self.started.take() {
                Some(Service::Ring(ring)) => ring.forget_in_child(),
                Some(Service::Pool(pool)) => std::mem::forget(pool),
                None => {}
            }
        }
    }
}

impl Files for Epoll {
    fn is_file(&self, descriptor: Descriptor) -> bool {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: fstat(2) writes a `stat` at the pointer, or fails.
        // - valid for writes: it is a local.
        if unsafe { libc::fstat(descriptor, stat.as_mut_ptr()) } != 0 {
            return false;
        }
        // SAFETY: `assume_init` demands a value.
        // - the call has succeeded, so that the kernel has written all of it.
        let mode = unsafe { stat.assume_init() }.st_mode;
        // Not the kernel's own objects without a type, such as an epoll set.
        matches!(mode & libc::S_IFMT, libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK | libc::S_IFCHR)
    }

    fn reads_now(&self, descriptor: Descriptor) -> bool {
        // SAFETY: fcntl(2) with F_GETFL demands nothing of memory.
        let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFL) };
        // Past the cache a read that must not wait waits for the disk all the same.
        flags >= 0 && flags & libc::O_DIRECT == 0
    }

    fn read_now(
        &self,
        descriptor: Descriptor,
        position: u64,
        room: &mut [&mut [MaybeUninit<u8>]],
    ) -> Now {
        let Ok(position) = i64::try_from(position) else {
            // If it matters, the task fails.
            return Now::NotYet;
        };
        let read = |parts: &mut [super::sockets::Part<'_>]| {
            let (start, count) = (parts.as_mut_ptr(), parts.len());
            // SAFETY: preadv2(2) reads `count` elements at the pointer, and writes at most as many bytes to each
            // part as it says. Its position is one word and a zero on 64-bit systems.
            // - valid: `parts` is borrowed mutably, and its elements lie as `struct iovec` does; each borrows its
            //   room mutably, and has its length.
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
        let result = match room.len() {
            0..=8 => with_room::<8, _>(room, read),
            _ => with_room::<PARTS, _>(room, read),
        };
        match result {
            Ok(count) => Now::Read(count),
            // Or there is something wrong with this one read, which the task will say.
            Err(libc::EAGAIN | libc::EINVAL) => Now::NotYet,
            // The file system cannot say what is in the cache; the file has no positions; the kernel is too old, or
            // a sandbox does not know the call. What does the task will say what is wrong, if anything is.
            Err(libc::EOPNOTSUPP | libc::ESPIPE | libc::ENOSYS | libc::EPERM) => Now::Never,
            Err(code) => Now::Failed(fault_of_file(code)),
        }
    }

    fn hold(&self, descriptor: Descriptor) -> Result<Arc<dyn Hold>, Fault> {
        // SAFETY: fcntl(2) with F_DUPFD_CLOEXEC demands nothing of memory.
        let duplicate = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
        if duplicate < 0 {
            return Err(fault(last_code()));
        }
        // SAFETY: `from_raw_fd` demands an open descriptor that nothing else owns.
        // - fcntl(2) has just returned it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(duplicate) };
        // SAFETY: lseek(2) demands nothing of memory.
        let position = unsafe { libc::lseek(duplicate, 0, libc::SEEK_CUR) };
        let has_positions = position >= 0 || last_code() != libc::ESPIPE;
        Ok(Arc::new(Held { descriptor, has_positions }))
    }

    fn prepare(&self) -> Result<(), Fault> {
        let service = &self.files;
        if service.started.get().is_none() {
            let _starting = service.starting.lock().unwrap_or_else(PoisonError::into_inner);
            if service.started.get().is_none() {
                let started = service.start()?;
                // No other thread sets it meanwhile.
                let _ = service.started.set(started);
            }
        }
        Ok(())
    }

    fn put(&self, task: Task) {
        match self.files.started.get() {
            Some(Service::Ring(ring)) => ring.put(task),
            Some(Service::Pool(pool)) => pool.put(task),
            None => unreachable!("the caller has prepared for it"),
        }
    }

    fn go(&self) {
        match self.files.started.get() {
            Some(Service::Ring(ring)) => ring.go(),
            Some(Service::Pool(pool)) => pool.go(),
            None => {}
        }
    }

    fn take_back(&self, name: u64) -> Option<Task> {
        match self.files.started.get()? {
            Service::Ring(ring) => ring.take_back(name),
            Service::Pool(pool) => pool.take_back(name),
        }
    }

    fn files_name(&self) -> Option<&'static str> {
        self.files.started.get().map(|service| match service {
            Service::Ring(_) => "io_uring",
            Service::Pool(_) => "threads",
        })
    }
}
