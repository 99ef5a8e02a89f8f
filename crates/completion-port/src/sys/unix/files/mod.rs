//! Operations on files that all Unix systems perform in the same way.

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

// A part of a lent buffer has the layout that readv(2) requires.
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

/// Converts the error of an operation on a file.
///
/// The descriptor is open, so `EBADF` means that its mode does not permit the operation.
pub(in crate::sys) fn fault_of_file(code: Code) -> Fault {
    let kind = if code == libc::ENOMEM { ErrorKind::OutOfMemory } else { ErrorKind::Other };
    Fault { kind, code: Some(code) }
}

/// A duplicate of the descriptor of an association. The port's threads use it for their operations,
/// so none of them ever uses a number that was closed and perhaps reused.
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

/// The next system call of a request.
pub(in crate::sys) struct FileCall<'t> {
    pub(in crate::sys) descriptor: RawFd,
    pub(in crate::sys) what: FileKind,
    /// The first remaining parts, as many as one call takes.
    pub(in crate::sys) parts: &'t [Part],
    /// -1 for a file without positions.
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

    /// Returns the number of parts.
    #[allow(clippy::cast_possible_truncation, reason = "at most 1,024")]
    pub(in crate::sys) fn count(&self) -> u32 {
        self.parts.len() as u32
    }
}

/// Notes the result of a system call in its request. `Break`: the request has ended.
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
                        // A device with records: it is unknown when the next record arrives.
                        || !(request.target.file.ends_by_itself() || is_readable(request.target.file.descriptor()))
                }
                FileKind::Write | FileKind::Append if count == 0 && !request.is_complete() => {
                    // A retry would write nothing again, without end.
                    request.fault = Some(fault_of_file(libc::EIO));
                    true
                }
                FileKind::Write | FileKind::Append => request.is_complete(),
                FileKind::SyncData | FileKind::SyncAll => true,
            };
            if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        }
        // A direct read continues only at multiples of a block, and the file has ended within one.
        Err(libc::EINVAL) if request.has_come_to_the_end() => ControlFlow::Break(()),
        Err(code) => {
            request.fault = Some(fault_of_file(code));
            ControlFlow::Break(())
        }
    }
}

/// Completes a request. It may drop a buffer, whose code may panic; the thread continues.
pub(in crate::sys) fn complete(request: FileRequest) {
    let _ = catch_unwind(AssertUnwindSafe(|| request.complete()));
}

/// Blocks all signals in the calling thread, which this library started.
///
/// Signal handlers of the program run on the program's own threads. A write beyond the limit of
/// file sizes, or to a pipe without a reader, is then only an error.
pub(in crate::sys) fn block_signals() {
    let mut all = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigfillset(3) writes a set at the pointer.
    // - valid for writes: `all` is a local.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: pthread_sigmask(3) reads a set at the first pointer, and writes none to a null
    // pointer.
    // - valid for reads: `all` was written above.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), ptr::null_mut()) };
}

/// Returns the type of the file that a descriptor names, or 0 if it has none.
fn file_type(descriptor: Descriptor) -> libc::mode_t {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat(2) writes a `stat` at the pointer, or fails.
    // - valid for writes: it is a local.
    if unsafe { libc::fstat(descriptor, stat.as_mut_ptr()) } != 0 {
        return 0;
    }
    // SAFETY: `assume_init` requires an initialized value.
    // - the call succeeded, so the kernel has written all of it.
    unsafe { stat.assume_init() }.st_mode & libc::S_IFMT
}

/// Returns whether the number names a disk or an object on one.
fn is_on_disk(descriptor: Descriptor) -> bool {
    matches!(file_type(descriptor), libc::S_IFREG | libc::S_IFDIR | libc::S_IFBLK)
}

/// Returns whether the number names an object that has file operations and cannot be watched.
pub(in crate::sys) fn is_file(descriptor: Descriptor) -> bool {
    // The kernel's own objects without a type, such as an epoll set, do not count.
    is_on_disk(descriptor) || file_type(descriptor) == libc::S_IFCHR
}

/// Returns whether the bytes of the object have positions.
fn has_positions(descriptor: Descriptor, is_on_disk: bool) -> bool {
    // SAFETY: lseek(2) has no memory requirements.
    let is_sought = unsafe { libc::lseek(descriptor, 0, libc::SEEK_CUR) } >= 0
        || (is_on_disk && last_code() != libc::ESPIPE);
    is_sought && is_read_at(descriptor)
}

/// Returns whether reads may specify a position.
///
/// The kernel's counters, timers and similar objects report a position but do not accept such
/// reads.
fn is_read_at(descriptor: Descriptor) -> bool {
    // SAFETY: preadv(2) reads as many elements at the pointer as its third argument says.
    // - the count is zero, so it reads nothing of the file either. An object that cannot be read
    //   fails with another code.
    unsafe { libc::preadv(descriptor, ptr::null(), 0, 0) >= 0 || last_code() != libc::ESPIPE }
}

/// Returns whether a read would not wait, or true if the system cannot say.
fn is_readable(descriptor: Descriptor) -> bool {
    let mut one = libc::pollfd { fd: descriptor, events: libc::POLLIN, revents: 0 };
    // SAFETY: poll(2) reads and writes as many elements at the pointer as its second argument says.
    // - valid for both: `one` is a local.
    unsafe { libc::poll(&raw mut one, 1, 0) != 0 }
}

/// Makes a reference to the file that the number names.
pub(in crate::sys) fn file_ref(descriptor: Descriptor) -> Result<Arc<dyn FileRef>, Fault> {
    // SAFETY: fcntl(2) with F_DUPFD_CLOEXEC has no memory requirements.
    let duplicate = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
    if duplicate < 0 {
        return Err(fault(last_code()));
    }
    // SAFETY: `from_raw_fd` requires an open descriptor that nothing else owns.
    // - fcntl(2) has just returned it.
    let descriptor = unsafe { OwnedFd::from_raw_fd(duplicate) };
    // Some devices have positions, but reading them may wait forever.
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

    /// Makes a read of `parts` parts with `len` bytes each, of which `done` were already read.
    fn read(parts: usize, len: usize, done: usize) -> FileRequest {
        let mut buffer = IoBuffer::new(vec![Vec::<u8>::new(); parts]);
        buffer.lend_room(|buffers: &mut Vec<Vec<u8>>, part| {
            for buffer in buffers {
                buffer.reserve_exact(len);
                // SAFETY: `room` requires that only initialized bytes are written to the parts.
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

    /// On a disk with blocks of 4,096 bytes, a read at any other position fails with `EINVAL`, even
    /// if the file ended there.
    #[test]
    fn past_the_cache_a_read_ends_where_the_file_has_ended_within_a_block() {
        // The last pages of the file, read by the first call or after the immediate read.
        for (end, at_once) in [(512, 0), (1, 0), (4096 + 1024, 0), (4096 + 512, 512)] {
            let mut request = read(3, 4096, at_once);
            assert_eq!(note(&mut request, Ok(end - at_once)), ControlFlow::Continue(()));
            assert_eq!(note(&mut request, Err(libc::EINVAL)), ControlFlow::Break(()));
            assert_eq!((request.done, request.fault.is_none()), (end, true));
        }
        // Nothing more follows the bytes that were read immediately.
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
        // It is not the end either where the system has shortened a long part.
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

    /// A device that delivers its bytes in records, and accepts a position with each read.
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
        // SAFETY: fcntl(2) with F_DUPFD_CLOEXEC has no memory requirements.
        let duplicate = unsafe { libc::fcntl(descriptor, libc::F_DUPFD_CLOEXEC, 0) };
        assert!(duplicate >= 0);
        // SAFETY: `from_raw_fd` requires an open descriptor that nothing else owns.
        // - fcntl(2) has just returned it.
        unsafe { OwnedFd::from_raw_fd(duplicate) }
    }
}
