//! Operations on files: what each Unix does in the same way.

mod pool;

use std::mem::{MaybeUninit, offset_of};
use std::ops::ControlFlow;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;
use std::sync::Arc;

pub(in crate::sys) use self::pool::Pool;
use super::options::{Code, last_code};
use crate::backend::files::{FileKind, FileRef};
use crate::backend::request::FileRequest;
use crate::backend::sockets::PARTS;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::io_buffer::Part;
use crate::types::source::Descriptor;

// A part of a loan lies as readv(2) wants it.
const _: () = {
    assert!(size_of::<Part>() == size_of::<libc::iovec>());
    assert!(offset_of!(Part, start) == offset_of!(libc::iovec, iov_base));
    assert!(offset_of!(Part, len) == offset_of!(libc::iovec, iov_len));
};

pub(in crate::sys) fn fault(code: Code) -> Fault {
    let kind = match code {
        libc::EMFILE | libc::ENFILE => ErrorKind::DescriptorLimit,
        libc::ENOMEM | libc::EAGAIN => ErrorKind::OutOfMemory,
        _ => ErrorKind::Other,
    };
    Fault { kind, code: Some(code) }
}

/// What an operation on a file has failed with. Its descriptor is open: `EBADF` says that it is not open for this.
pub(in crate::sys) fn fault_of_file(code: Code) -> Fault {
    let kind = if code == libc::ENOMEM { ErrorKind::OutOfMemory } else { ErrorKind::Other };
    Fault { kind, code: Some(code) }
}

/// A duplicate of the descriptor of an association. The operations that the port's threads do go by it, so that none
/// ever uses a number that was closed, and perhaps given out again.
struct DuplicateFile {
    descriptor: OwnedFd,
    has_positions: bool,
    ends_by_itself: bool,
}

impl FileRef for DuplicateFile {
    fn descriptor(&self) -> Descriptor {
        self.descriptor.as_raw_fd()
    }

    fn has_positions(&self) -> bool {
        self.has_positions
    }

    fn ends_by_itself(&self) -> bool {
        self.ends_by_itself
    }
}

/// What system call a request asks for next.
pub(in crate::sys) struct FileCall<'t> {
    pub(in crate::sys) descriptor: RawFd,
    pub(in crate::sys) what: FileKind,
    /// The first parts that are left, as many as one call takes.
    pub(in crate::sys) parts: &'t [Part],
    /// -1 of a file without positions.
    pub(in crate::sys) position: i64,
}

impl<'t> FileCall<'t> {
    pub(in crate::sys) fn of(request: &'t FileRequest) -> Result<Self, Code> {
        let parts = request.buffer.as_ref().map_or(&[][..], |io_buffer| io_buffer.parts());
        let position = if request.target.file.has_positions() {
            i64::try_from(request.position()).map_err(|_| libc::EINVAL)?
        } else {
            -1
        };
        Ok(Self {
            descriptor: request.target.file.descriptor(),
            what: request.kind,
            parts: &parts[..parts.len().min(PARTS)],
            position,
        })
    }

    /// How many parts there are.
    #[allow(clippy::cast_possible_truncation, reason = "at most 1,024")]
    pub(in crate::sys) fn count(&self) -> u32 {
        self.parts.len() as u32
    }
}

/// Notes what a system call for a request has come to. `Break`: the request has come to its end.
pub(in crate::sys) fn note(
    request: &mut FileRequest,
    result: Result<usize, Code>,
) -> ControlFlow<()> {
    match result {
        Ok(count) => {
            request.advance(count);
            let is_over = match request.kind {
                FileKind::Read => {
                    count == 0
                        || request.is_complete()
                        || !request.target.file.has_positions()
                        // A device that brings records one by one: nobody knows when the next one comes.
                        || !(request.target.file.ends_by_itself() || is_readable(request.target.file.descriptor()))
                }
                FileKind::Write | FileKind::Append if count == 0 && !request.is_complete() => {
                    // It would be so again, for ever.
                    request.fault = Some(fault_of_file(libc::EIO));
                    true
                }
                FileKind::Write | FileKind::Append => request.is_complete(),
                FileKind::SyncData | FileKind::SyncAll => true,
            };
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        // Past the cache a read goes on at multiples of a block only, and the file has ended within one.
        Err(libc::EINVAL) if request.has_come_to_the_end() => ControlFlow::Break(()),
        Err(code) => {
            request.fault = Some(fault_of_file(code));
            ControlFlow::Break(())
        }
    }
}

/// Returns a request. A buffer may be dropped by that, whose code may panic: the thread goes on.
pub(in crate::sys) fn complete(request: FileRequest) {
    let _ = catch_unwind(AssertUnwindSafe(|| request.complete()));
}

/// The threads of this folder take no signal of the process: its handlers are for its own threads. So a write
/// beyond the limit of file sizes, or to a pipe without a reader, is an error and no more.
pub(in crate::sys) fn block_signals() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset(3) writes a set at the pointer.
    // - valid for writes: `all` is a local.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: pthread_sigmask(3) reads a set at the first pointer, and writes none to a null pointer.
    // - valid for reads: `all` was written just now.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut()) };
}

/// What type of file a descriptor names, of those that the system knows; 0 if none.
fn file_type(descriptor: Descriptor) -> libc::mode_t {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat(2) writes a `stat` at the pointer, or fails.
    // - valid for writes: it is a local.
    if unsafe { libc::fstat(descriptor, stat.as_mut_ptr()) } != 0 {
        return 0;
    }
    // SAFETY: `assume_init` demands a value.
    // - the call has succeeded, so that the kernel has written all of it.
    unsafe { stat.assume_init() }.st_mode & libc::S_IFMT
}

/// Whether the number names what is on a disk, or is one.
fn is_on_disk(descriptor: Descriptor) -> bool {
    matches!(file_type(descriptor), libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK)
}

/// Whether the number names what has operations of files and cannot be watched.
pub(in crate::sys) fn is_file(descriptor: Descriptor) -> bool {
    // Not the kernel's own objects without a type, such as an epoll set.
    is_on_disk(descriptor) || file_type(descriptor) == libc::S_IFCHR
}

/// Whether bytes of what the number names have positions.
fn has_positions(descriptor: Descriptor, is_on_disk: bool) -> bool {
    // SAFETY: lseek(2) demands nothing of memory.
    let is_sought = unsafe { libc::lseek(descriptor, 0, libc::SEEK_CUR) } >= 0
        || (is_on_disk && last_code() != libc::ESPIPE);
    is_sought && is_read_at(descriptor)
}

/// Whether a read may say where it begins. Counters of the kernel, timers and the like have a position that can be asked for,
/// and no such reads.
fn is_read_at(descriptor: Descriptor) -> bool {
    // SAFETY: preadv(2) reads as many elements at the pointer as its third argument says.
    // - none; so it reads nothing of the file either. What may not be read is refused with another code.
    unsafe { libc::preadv(descriptor, ptr::null(), 0, 0) >= 0 || last_code() != libc::ESPIPE }
}

/// Whether something can be read without waiting; also where the system cannot tell.
fn is_readable(descriptor: Descriptor) -> bool {
    let mut one = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: poll(2) reads and writes as many elements at the pointer as its second argument says.
    // - valid for both: `one` is a local.
    unsafe { libc::poll(&raw mut one, 1, 0) != 0 }
}

/// Takes hold of the file that the number names.
pub(in crate::sys) fn file_ref(descriptor: Descriptor) -> Result<Arc<dyn FileRef>, Fault> {
    // SAFETY: fcntl(2) with F_DUPFD_CLOEXEC demands nothing of memory.
    let duplicate = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    if duplicate < 0 {
        return Err(fault(last_code()));
    }
    // SAFETY: `from_raw_fd` demands an open descriptor that nothing else owns.
    // - fcntl(2) has just returned it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(duplicate) };
    // Some have positions and wait all the same: some devices.
    let ends_by_itself = is_on_disk(duplicate);
    let has_positions = has_positions(duplicate, ends_by_itself);
    Ok(Arc::new(DuplicateFile { descriptor, has_positions, ends_by_itself }))
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Weak};

    use super::*;
    use crate::backend::files::{FileTarget, Issuer};
    use crate::types::buffer::Buffer;
    use crate::types::io_buffer::IoBuffer;

    struct Nobody;

    impl Issuer for Nobody {
        fn complete(&self, _: FileRequest) {}
    }

    struct OnDisk;

    impl FileRef for OnDisk {
        fn descriptor(&self) -> Descriptor {
            -1
        }

        fn has_positions(&self) -> bool {
            true
        }
    }

    /// A read of so many parts of this length, whose first bytes were read already.
    fn read(parts: usize, len: usize, done: usize) -> FileRequest {
        let mut buffer = IoBuffer::new(vec![Vec::<u8>::new(); parts]);
        buffer.lend_room(|buffers: &mut Vec<Vec<u8>>, part| {
            for buffer in buffers {
                buffer.reserve_exact(len);
                // SAFETY: `room` demands that only initialized bytes are written to the parts.
                // - nothing is written to them.
                unsafe { buffer.room(&mut |room| part(room)) };
            }
        });
        let mut request = FileRequest::new(
            1,
            FileTarget { file: Arc::new(OnDisk), offset: 0, issuer: Weak::<Nobody>::new() },
            FileKind::Read,
            Some(buffer),
        );
        request.advance(done);
        request
    }

    /// On a disk with blocks of 4,096 bytes that is told at each other position, though the file ended there.
    #[test]
    fn past_the_cache_a_read_ends_where_the_file_has_ended_within_a_block() {
        // What a file has beyond the pages that were read, by the first call or behind what was read at once.
        for (end, at_once) in [(512, 0), (1, 0), (4096 + 1024, 0), (4096 + 512, 512)] {
            let mut request = read(3, 4096, at_once);
            assert_eq!(note(&mut request, Ok(end - at_once)), ControlFlow::Continue(()));
            assert_eq!(note(&mut request, Err(libc::EINVAL)), ControlFlow::Break(()));
            assert_eq!((request.done, request.fault.is_none()), (end, true));
        }
        // Behind what was read at once nothing more comes.
        let mut request = read(1, 4096, 512);
        assert_eq!(note(&mut request, Err(libc::EINVAL)), ControlFlow::Break(()));
        assert_eq!((request.done, request.fault.is_none()), (512, true));
    }

    #[test]
    fn what_is_not_aligned_is_a_fault_also_behind_parts_that_are() {
        for pages in [0, 1] {
            let mut request = read(2, 4096, 0);
            if pages > 0 {
                assert_eq!(note(&mut request, Ok(4096)), ControlFlow::Continue(()));
            }
            assert_eq!(note(&mut request, Err(libc::EINVAL)), ControlFlow::Break(()));
            assert_eq!(request.done, pages * 4096);
            assert_eq!(request.fault.and_then(|fault| fault.code), Some(libc::EINVAL));
        }
        // Nor is it the end where the system has cut a long part.
        let mut request = read(1, 3 * 4096 + 100, 0);
        assert_eq!(note(&mut request, Ok(2 * 4096)), ControlFlow::Continue(()));
        assert_eq!(note(&mut request, Err(libc::EINVAL)), ControlFlow::Break(()));
        assert_eq!(request.fault.and_then(|fault| fault.code), Some(libc::EINVAL));
        // A write does not end early.
        let mut request = read(1, 4096, 512);
        request.kind = FileKind::Write;
        assert_eq!(note(&mut request, Err(libc::EINVAL)), ControlFlow::Break(()));
        assert_eq!(request.fault.and_then(|fault| fault.code), Some(libc::EINVAL));
    }

    /// What brings its bytes in records, as some devices do, and takes a position with each read.
    struct Device(std::io::PipeReader);

    impl FileRef for Device {
        fn descriptor(&self) -> Descriptor {
            self.0.as_raw_fd()
        }

        fn has_positions(&self) -> bool {
            true
        }

        fn ends_by_itself(&self) -> bool {
            false
        }
    }

    #[test]
    #[cfg_attr(miri, ignore = "Miri has no poll(2) of pipes")]
    fn a_read_of_a_device_ends_when_it_would_have_to_wait() {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let mut request = read(1, 64, 0);
        request.target.file = Arc::new(Device(reader));
        std::io::Write::write_all(&mut writer, b"next").unwrap();
        assert_eq!(note(&mut request, Ok(4)), ControlFlow::Continue(()));
        let mut next = [0; 4];
        let mut same = std::fs::File::from(duplicate(request.target.file.descriptor()));
        std::io::Read::read_exact(&mut same, &mut next).unwrap();
        assert_eq!(note(&mut request, Ok(4)), ControlFlow::Break(()));
        assert_eq!((request.done, request.fault.is_none()), (8, true));
    }

    fn duplicate(descriptor: Descriptor) -> OwnedFd {
        // SAFETY: fcntl(2) with F_DUPFD_CLOEXEC demands nothing of memory.
        let duplicate = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
        assert!(duplicate >= 0);
        // SAFETY: `from_raw_fd` demands an open descriptor that nothing else owns.
        // - fcntl(2) has just returned it.
        unsafe { OwnedFd::from_raw_fd(duplicate) }
    }
}
