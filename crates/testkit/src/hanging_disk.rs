//! A disk that does not answer: the kernel holds reads until the test releases them,
//! `seccomp_unotify(2)`.

use std::ffi::c_ulong;
use std::io;
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::sandbox::{JUMP_IF_EQUAL, LOAD, RETURN, install, instruction};

/// The index of `preadv(2)`'s position argument, which has its lower half.
const POSITION: usize = 3;

/// All threads of the process get the filter. Systems that know the last flag (Linux 5.7) can
/// continue a held call.
const FLAGS: c_ulong = libc::SECCOMP_FILTER_FLAG_NEW_LISTENER
    | libc::SECCOMP_FILTER_FLAG_TSYNC
    | libc::SECCOMP_FILTER_FLAG_TSYNC_ESRCH;

/// Affects every disk for this process: reads at one position hang, all others do not.
#[derive(Debug)]
pub struct HangingDisk(OwnedFd);

/// A hanging read. Its thread is in the system call, which the kernel has not started to execute.
#[derive(Debug)]
#[must_use]
pub struct HangingRead<'d> {
    disk: &'d HangingDisk,
    id: u64,
}

impl HangingDisk {
    /// From now on, and until this process ends, every `preadv(2)` at `place` hangs, whatever the
    /// file. Every `preadv2(2)` fails as if it would block, so that nothing is read immediately.
    /// When the disk is dropped, the reads fail. For a test in [a process of its
    /// own](crate::in_a_process_of_its_own).
    ///
    /// # Errors
    ///
    /// The system cannot hold calls, or does not allow it. The test prints this and is skipped.
    pub fn new(place: u32) -> io::Result<Self> {
        let number = |call| u32::try_from(call).unwrap();
        let low = if cfg!(target_endian = "big") { 4 } else { 0 };
        let position = offset_of!(libc::seccomp_data, args) + POSITION * size_of::<u64>() + low;
        let mut filter = [
            instruction(LOAD, 0, 0, 0),
            instruction(JUMP_IF_EQUAL, 4, 0, number(libc::SYS_preadv2)),
            instruction(JUMP_IF_EQUAL, 0, 4, number(libc::SYS_preadv)),
            instruction(LOAD, 0, 0, u32::try_from(position).unwrap()),
            instruction(JUMP_IF_EQUAL, 0, 2, place),
            instruction(RETURN, 0, 0, libc::SECCOMP_RET_USER_NOTIF),
            instruction(RETURN, 0, 0, libc::SECCOMP_RET_ERRNO | libc::EAGAIN.cast_unsigned()),
            instruction(RETURN, 0, 0, libc::SECCOMP_RET_ALLOW),
        ];
        let listener = i32::try_from(install(&mut filter, FLAGS)?).unwrap();
        // SAFETY: `from_raw_fd` demands an open descriptor that nothing else owns.
        // - seccomp(2) has just returned it, as it was asked for a listener.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(listener) }))
    }

    /// Waits until a read hangs, of those that were not waited for yet.
    ///
    /// # Waiting
    ///
    /// Blocks until then, for at most ten seconds.
    pub fn await_read(&self) -> HangingRead<'_> {
        let limit = Timespec { tv_sec: 10, tv_nsec: 0 };
        let mut listener = [PollFd::new(&self.0, PollFlags::IN)];
        assert_eq!(poll(&mut listener, Some(&limit)), Ok(1), "no thread reads there");
        let data = libc::seccomp_data { nr: 0, arch: 0, instruction_pointer: 0, args: [0; 6] };
        // The kernel demands zeros.
        let mut call = libc::seccomp_notif { id: 0, pid: 0, flags: 0, data };
        self.ask(libc::SECCOMP_IOCTL_NOTIF_RECV, &mut call);
        HangingRead { disk: self, id: call.id }
    }

    /// Makes a request that reads or writes a `T`.
    #[track_caller]
    fn ask<T>(&self, request: libc::Ioctl, value: &mut T) {
        // SAFETY: ioctl(2) reads and writes as much at the pointer as the request says.
        // - valid for both: each caller names a request of `linux/seccomp.h` with the type that it takes; `value` is
        //   borrowed mutably.
        let done = unsafe { libc::ioctl(self.0.as_raw_fd(), request, &raw mut *value) };
        assert_eq!(done, 0, "{}", io::Error::last_os_error());
    }
}

impl HangingRead<'_> {
    /// Releases the read: the kernel performs it.
    pub fn release(self) {
        let flags = u32::try_from(libc::SECCOMP_USER_NOTIF_FLAG_CONTINUE).unwrap();
        let mut answer = libc::seccomp_notif_resp { id: self.id, val: 0, error: 0, flags };
        self.disk.ask(libc::SECCOMP_IOCTL_NOTIF_SEND, &mut answer);
    }
}
