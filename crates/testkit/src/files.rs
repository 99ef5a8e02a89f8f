//! Files to test operations on, with what of them is in memory; and files whose reads do not end.

use std::env;
use std::fs::File;
use std::io::{IoSliceMut, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use completion_port::{ErrorKind, FileEngine, Port, sim};
use rustix::io::{Errno, ReadWriteFlags, preadv2};
use rustix::pipe::{PipeFlags, pipe_with};

use crate::unix_files::nameless_in;
use crate::{SOON, Socket, System};

/// Releases hanging operations on a file.
#[derive(Debug)]
pub struct Hanging(End);

#[derive(Debug)]
enum End {
    /// The other end of a pipe, and whether threads read it.
    Native(OwnedFd, bool),
    Simulated(sim::Kernel),
}

/// The system call of `poll` of the C library.
#[cfg(target_arch = "x86_64")]
const POLL: libc::c_long = libc::SYS_poll;
#[cfg(not(target_arch = "x86_64"))]
const POLL: libc::c_long = libc::SYS_ppoll;

/// Which threads of this process are in a system call that reads from the descriptor with this name, or waits for it
/// alone, as `/proc` shows it.
fn readers(name: &Path) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let reads = |task: PathBuf| -> Option<bool> {
        let call = std::fs::read_to_string(task.join("syscall")).ok()?;
        let mut words = call.split(' ');
        let call: libc::c_long = words.next()?.parse().ok()?;
        let first = u64::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok()?;
        let number = match call {
            libc::SYS_readv => first,
            POLL => {
                // The first member of a pollfd.
                let mut number = [0; size_of::<libc::c_int>()];
                File::open("/proc/self/mem").ok()?.read_exact_at(&mut number, first).ok()?;
                libc::c_int::from_ne_bytes(number).try_into().ok()?
            }
            _ => return Some(false),
        };
        Some(std::fs::read_link(format!("/proc/self/fd/{number}")).ok()? == name)
    };
    tasks.filter(|task| reads(task.as_ref().unwrap().path()) == Some(true)).count()
}

/// Waits until that many threads of this process read from the pipe of which `end` is an end.
///
/// # Waiting
///
/// Blocks until then, for at most [`SOON`].
pub fn await_readers(end: RawFd, count: usize) {
    let name = std::fs::read_link(format!("/proc/self/fd/{end}")).unwrap();
    let limit = Instant::now() + SOON;
    while readers(&name) != count {
        assert!(Instant::now() < limit, "no thread reads");
        std::thread::yield_now();
    }
}

/// A multiple of the block of any file system that tests are run on.
pub const BLOCK: usize = 4096;

/// Whether this file allows reads of whole blocks but no others.
fn demands_alignment(file: &File) -> bool {
    let mut bytes = vec![0; 3 * BLOCK];
    let boundary = bytes.as_ptr().align_offset(BLOCK);
    let mut read = |behind: usize, len: usize, offset| {
        let room = &mut bytes[boundary + behind..][..len];
        file.read_at(room, offset).map_err(|error| error.raw_os_error())
    };
    let is_refused = Err(Some(libc::EINVAL));
    read(0, BLOCK, 0) == Ok(BLOCK)
        && read(1, BLOCK, 0) == is_refused
        && read(0, BLOCK - 1, 0) == is_refused
        && read(0, BLOCK, 1) == is_refused
}

impl Hanging {
    /// Waits until that many reads have begun, on systems that distinguish these.
    ///
    /// # Waiting
    ///
    /// As [`await_readers`].
    pub fn await_begun(&self, count: usize) {
        if let End::Native(writer, true) = &self.0 {
            await_readers(writer.as_raw_fd(), count);
        }
    }

    /// Lets a read that has begun end: it returns the byte `x`, unless it was cancelled.
    pub fn release(&self) {
        match &self.0 {
            End::Native(writer, _) => {
                match rustix::io::write(writer, b"x") {
                    // Nothing reads any more.
                    Err(Errno::PIPE) => {}
                    written => assert_eq!(written.unwrap(), 1),
                }
            }
            End::Simulated(kernel) => {
                kernel.release_files();
            }
        }
    }
}

impl System {
    /// The system of this machine, with operations on files done by a ring.
    #[must_use]
    pub fn native_with_ring() -> Self {
        Self::native().with_files(FileEngine::Ring)
    }

    /// The system of this machine, with operations on files done by threads.
    #[must_use]
    pub fn native_with_threads() -> Self {
        Self::native().with_files(FileEngine::Threads)
    }

    /// Whether operations on files can be done here as the ports of this system are to do them.
    #[must_use]
    pub fn has_its_file_engine(&self) -> bool {
        if self.kernel().is_some() || self.file_engine() != FileEngine::Ring {
            return true;
        }
        let port = Port::builder().file_engine(FileEngine::Ring).build::<(), ()>();
        !port.is_err_and(|error| error.kind() == ErrorKind::Unsupported)
    }

    /// Whether threads do the blocking work, by request or because there is no ring. They do not
    /// give up work in progress.
    #[must_use]
    pub fn has_file_threads(&self) -> bool {
        match self.file_engine() {
            _ if self.kernel().is_some() => false,
            FileEngine::Threads => true,
            FileEngine::Ring => false,
            _ => Port::builder().file_engine(FileEngine::Ring).build::<(), ()>().is_err(),
        }
    }

    /// A file with these bytes in it, a whole [`BLOCK`] at least, that is read and written past the cache. Its file system
    /// takes nothing that does not lie and begin at a multiple of a block, and is none in length. `None` if no such file
    /// system was found.
    #[must_use]
    pub fn direct_file(&self, bytes: &[u8]) -> Option<Socket> {
        let program = env::current_exe().unwrap();
        let directories = [
            env::temp_dir(),
            program.parent().unwrap().to_owned(),
            env::current_dir().unwrap(),
            PathBuf::from("/var/tmp"),
        ];
        directories.iter().find_map(|directory| {
            let file = nameless_in(directory, libc::O_DIRECT).ok()?;
            let name = format!("/proc/self/fd/{}", file.as_raw_fd());
            File::options().write(true).open(name).unwrap().write_all(bytes).unwrap();
            demands_alignment(&file).then(|| self.own(file.into()))
        })
    }

    /// From now on only the first `cached` bytes of a file are in memory, if the system respects
    /// this. A number of whole pages.
    pub fn set_cached(&self, file: &Socket, cached: usize) {
        if let (Some(kernel), Some(file)) = (self.kernel(), file.as_simulated()) {
            return kernel.set_cached(file, cached);
        }
        let descriptor = file.descriptor();
        rustix::fs::fdatasync(descriptor).unwrap();
        for (offset, advice) in [(0, libc::POSIX_FADV_RANDOM), (cached, libc::POSIX_FADV_DONTNEED)]
        {
            let offset = libc::off_t::try_from(offset).unwrap();
            // SAFETY: posix_fadvise(2) demands nothing of memory.
            let failure = unsafe { libc::posix_fadvise(descriptor.as_raw_fd(), offset, 0, advice) };
            assert_eq!(failure, 0);
        }
    }

    /// How many bytes of a file, beginning there, are in memory: at most `most`.
    #[must_use]
    pub fn cached_from(&self, file: &Socket, offset: usize, most: usize) -> usize {
        read_cached(file.descriptor(), offset, most).unwrap_or(0)
    }

    /// A file from which reads hang until they are released; also those that the kernel has.
    #[must_use]
    pub fn hanging(&self) -> (Socket, Hanging) {
        match self.kernel() {
            Some(kernel) => {
                kernel.script_files(sim::FileScript::Begun);
                let file = kernel.file(b"x").unwrap();
                kernel.set_cached(&file, 0);
                (self.own_simulated(file), Hanging(End::Simulated(kernel.clone())))
            }
            None => {
                let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).unwrap();
                (self.own(reader), Hanging(End::Native(writer, self.has_file_threads())))
            }
        }
    }

    /// The same, of which a read hangs in the call that begins it, where that is another thing.
    #[must_use]
    pub fn hanging_in_calls(&self) -> (Socket, Hanging) {
        self.hanging()
    }
}

/// Whether the file system can read what is cached and nothing else (`RWF_NOWAIT`). overlayfs and
/// tmpfs can't.
#[must_use]
pub fn reads_from_cache(file: &File) -> bool {
    read_cached(file.as_fd(), 0, 1) != Err(Errno::OPNOTSUPP)
}

/// Reads what is cached from there on, at most `most` bytes. Returns how many it has read.
fn read_cached(file: BorrowedFd<'_>, offset: usize, most: usize) -> Result<usize, Errno> {
    let mut room = vec![0; most];
    let parts = &mut [IoSliceMut::new(&mut room)];
    preadv2(file, parts, u64::try_from(offset).unwrap(), ReadWriteFlags::NOWAIT)
}
