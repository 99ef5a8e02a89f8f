//! An open file behind a handle: the descriptor, its access rights, and the operations in flight.
//!
//! A handle can be closed while operations are in flight. Each has a share of the file, which is
//! closed with the last share. So no operation ever uses a descriptor that names something else by
//! now.

use std::ffi::{CString, c_int};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use completion_port::raw::{FileTaskId, OpenFile};

use crate::linux::addresses::ByAddress;
pub(crate) use crate::linux::errno::errno;
use crate::linux::later::Later;
use crate::linux::process::Own;
use crate::linux::waitable::{Kind, Waitable};

/// The rights and flags a file was opened with.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Terms {
    pub(crate) reads: bool,
    pub(crate) writes: bool,
    /// Its times may be set.
    pub(crate) sets_facts: bool,
    /// Its operations may continue after the call that has started them returns.
    pub(crate) is_overlapped: bool,
    /// Unbuffered: offsets, counts and buffers are multiples of a block.
    pub(crate) is_unbuffered: bool,
    /// Its name is deleted when it is closed.
    pub(crate) goes_when_closed: bool,
}

/// An operation in flight.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InFlight {
    pub(crate) id: FileTaskId,
    /// The thread that has started it.
    pub(crate) thread: u64,
    /// It was cancelled, perhaps before the back end had it, or started when no handle was left to
    /// cancel it by.
    pub(crate) is_cancelled: bool,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// The handle of the port on which its operations complete, and their key.
    pub(crate) associated: Option<(u64, usize)>,
    /// Shared by operations that began without an association.
    pub(crate) later: Option<Arc<Later>>,
    /// By the addresses of their OVERLAPPEDs.
    pub(crate) operations: ByAddress<InFlight>,
    /// Its handle was closed; a thread may have looked it up before. Set only for files without
    /// positions.
    pub(crate) is_closed: bool,
}

/// A static that exists once per process: its address distinguishes a process from those it was
/// forked from.
struct Home(#[allow(dead_code, reason = "so that it has a place")] u8);

static HOME: Own<Home> = Own::new(begin_child);

extern "C" fn begin_child() {
    HOME.pass_on();
}

/// See the module's documentation.
#[derive(Debug)]
pub(crate) struct File {
    descriptor: OwnedFd,
    pub(crate) terms: Terms,
    /// Its type, as in `st_mode`.
    kind: libc::mode_t,
    has_positions: bool,
    /// Immediate reads are worth trying.
    pub(crate) reads_now: AtomicBool,
    /// An operation without an event has ended, and none has begun since.
    pub(crate) signal: Arc<Waitable>,
    /// Which successes queue no packet: `FILE_SKIP_...`.
    pub(crate) modes: AtomicU8,
    /// The process that has opened it: the address of its [`Home`].
    home: usize,
    state: Mutex<State>,
}

/// Calls the system without SIGPIPE: a stream without a reader is only an error.
pub(crate) fn without_signal<R>(call: impl FnOnce() -> R) -> R {
    let mut blocked = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: sigemptyset(3) writes a set at the pointer.
    // - valid for writes: it is a local of that type.
    unsafe { libc::sigemptyset(blocked.as_mut_ptr()) };
    // SAFETY: `assume_init` demands a value.
    // - it has just been written.
    let mut blocked = unsafe { blocked.assume_init() };
    // SAFETY: sigaddset(3) changes the set at the pointer.
    // - valid: it is a local.
    unsafe { libc::sigaddset(&raw mut blocked, libc::SIGPIPE) };
    let mut before = blocked;
    // SAFETY: pthread_sigmask(3) reads a set at the first pointer and writes one at the other.
    // - valid: both are locals.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const blocked, &raw mut before) };
    let is_pending = || {
        let mut pending = before;
        // SAFETY: sigpending(2) writes a set at the pointer, sigismember(3) reads one.
        // - valid: it is a local.
        unsafe { libc::sigpending(&raw mut pending) };
        // SAFETY: as above.
        unsafe { libc::sigismember(&raw const pending, libc::SIGPIPE) == 1 }
    };
    // The program's own signal, which it has blocked.
    let is_blocked = {
        // SAFETY: as above.
        unsafe { libc::sigismember(&raw const before, libc::SIGPIPE) == 1 }
    };
    let was_pending = is_blocked && is_pending();
    let outcome = call();
    let code = errno();
    if code == libc::EPIPE && !was_pending {
        let none = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        // SAFETY: sigtimedwait(2) reads a set and a time, and writes nothing to a null pointer.
        // - valid: both are locals.
        unsafe { libc::sigtimedwait(&raw const blocked, std::ptr::null_mut(), &raw const none) };
    }
    if !is_blocked {
        // SAFETY: as above; nothing is written to a null pointer.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const before, std::ptr::null_mut())
        };
    }
    // SAFETY: __errno_location(3) demands nothing.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: writing through a raw pointer demands that it is valid, and that no other thread uses
    // the memory.
    // - it is the calling thread's errno.
    unsafe { place.write(code) };
    outcome
}

/// The metadata of an open file.
pub(crate) fn stat(descriptor: RawFd) -> Option<libc::stat> {
    let mut stat = MaybeUninit::<libc::stat>::uninit();
    // SAFETY: fstat(2) writes a `stat` at the pointer, or fails.
    // - valid for writes: it is a local of that type.
    let done = unsafe { libc::fstat(descriptor, stat.as_mut_ptr()) };
    // SAFETY: `assume_init` demands a value.
    // - a call that succeeds has written one.
    (done == 0).then(|| unsafe { stat.assume_init() })
}

fn address_of_home() -> usize {
    std::ptr::from_ref(HOME.get(|_| Box::new(Home(0)))).addr()
}

impl File {
    /// A newly opened file; `None` if the system does not describe it.
    pub(crate) fn new(descriptor: OwnedFd, terms: Terms) -> Option<Self> {
        let kind = stat(descriptor.as_raw_fd())?.st_mode & libc::S_IFMT;
        let has_positions =
            matches!(kind, libc::S_IFREG | libc::S_IFBLK | libc::S_IFDIR) || is_sought(&descriptor);
        Some(Self {
            terms,
            kind,
            has_positions,
            reads_now: AtomicBool::new(has_positions && !terms.is_unbuffered),
            signal: Waitable::new(Kind::Event, false, 0).into(),
            modes: AtomicU8::new(0),
            home: address_of_home(),
            state: Mutex::default(),
            descriptor,
        })
    }

    pub(crate) fn descriptor(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// Whether its bytes have positions.
    pub(crate) fn has_positions(&self) -> bool {
        self.has_positions
    }

    pub(crate) fn is_plain(&self) -> bool {
        self.kind == libc::S_IFREG
    }

    pub(crate) fn is_pipe(&self) -> bool {
        self.kind == libc::S_IFIFO
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this process is a forked child of the one that has opened it. Then it must not be
    /// locked: a thread of the parent may hold the lock.
    pub(crate) fn is_inherited(&self) -> bool {
        HOME.find().is_none_or(|home| std::ptr::from_ref(home).addr() != self.home)
    }

    /// Adds successes that queue no packet.
    pub(crate) fn add_modes(&self, modes: u8) {
        self.modes.fetch_or(modes, Relaxed);
    }

    /// Whether its handle is signalled, like an event.
    pub(crate) fn is_signalled(&self) -> bool {
        self.signal.is_signalled()
    }

    /// Deletes its name, unless that names another file by now.
    fn take_name_away(&self) {
        let link = format!("/proc/self/fd/{}", self.descriptor());
        let Ok(path) = std::fs::read_link(link) else { return };
        let Ok(name) = CString::new(path.as_os_str().as_bytes()) else { return };
        let mut there = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: lstat(2) reads text that ends with a zero, and writes a `stat` at the other pointer, or fails.
        // - valid: `name` is such text, the other is a local of that type.
        if unsafe { libc::lstat(name.as_ptr(), there.as_mut_ptr()) } != 0 {
            return;
        }
        // SAFETY: `assume_init` demands a value.
        // - the call has succeeded, so that one was written.
        let there = unsafe { there.assume_init() };
        let is_it = |own: libc::stat| (own.st_dev, own.st_ino) == (there.st_dev, there.st_ino);
        if stat(self.descriptor()).is_some_and(is_it) {
            // SAFETY: unlink(2) reads text that ends with a zero.
            // - as above.
            unsafe { libc::unlink(name.as_ptr()) };
        }
    }
}

/// Whether its bytes have positions, according to the system.
fn is_sought(descriptor: &OwnedFd) -> bool {
    let descriptor = descriptor.as_raw_fd();
    // SAFETY: lseek(2) demands nothing of memory.
    if unsafe { libc::lseek(descriptor, 0, libc::SEEK_CUR) } < 0 {
        return false;
    }
    // Some accept a position but ignore it.
    // SAFETY: preadv(2) reads as many elements at the pointer as its third argument says.
    // - none, so it does not read from the file either.
    let read = unsafe { libc::preadv(descriptor, std::ptr::null(), 0, 0) };
    read >= 0 || errno() != libc::ESPIPE
}

impl OpenFile for File {
    fn descriptor(&self) -> RawFd {
        self.descriptor()
    }

    fn has_positions(&self) -> bool {
        self.has_positions
    }
}

impl Drop for File {
    fn drop(&mut self) {
        if self.terms.goes_when_closed && !self.is_inherited() {
            self.take_name_away();
        }
    }
}

/// Where the next read or write without an OVERLAPPED begins.
pub(crate) fn seek(descriptor: RawFd, distance: i64, from: c_int) -> Option<i64> {
    // SAFETY: lseek(2) demands nothing of memory.
    let place = unsafe { libc::lseek(descriptor, distance, from) };
    (place >= 0).then_some(place)
}
