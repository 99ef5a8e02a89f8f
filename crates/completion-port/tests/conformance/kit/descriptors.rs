//! Descriptor numbers that must be free, reused or used up.

#[cfg(unix)]
use std::fs::File;
#[cfg(unix)]
use std::io;
#[cfg(unix)]
use std::os::fd::{AsRawFd, BorrowedFd as Borrowed, FromRawFd, OwnedFd};
#[cfg(windows)]
use std::os::windows::io::{BorrowedSocket as Borrowed, RawSocket};
use std::sync::atomic::{AtomicI32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use completion_port::{BorrowedSource, Source};
use testkit::{Socket, System};

/// Prevents this process from opening any more descriptors.
#[cfg(target_os = "linux")]
pub(crate) fn leave_no_descriptor() {
    let lowest_free = File::open("/dev/null").unwrap().as_raw_fd();
    let limit = libc::rlim_t::try_from(lowest_free).unwrap();
    let none_left = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: setrlimit(2) reads a limit at the pointer.
    // - valid for reads: `none_left` is a local.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none_left) }, 0);
    let refused = File::open("/dev/null").unwrap_err().raw_os_error();
    assert_eq!(refused, Some(libc::EMFILE));
}

/// Repeats a scenario in which a descriptor's number must be reused immediately, until no other
/// thread of the process takes it first.
pub(crate) fn until_undisturbed(mut scenario: impl FnMut() -> Option<()>) {
    for _ in 0..1000 {
        if scenario().is_some() {
            return;
        }
    }
    // Windows doesn't document the order in which it reuses numbers.
    if cfg!(windows) {
        testkit::lacking("immediate reuse of descriptor numbers");
    }
    panic!("somebody else always took the number");
}

/// Locked by a test that opens hundreds of descriptors, or that closes one whose number must stay
/// unused.
pub(crate) fn with_many_descriptors() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Returns a pair whose numbers are above those that other threads of the process get, so that they
/// stay unused after a close. Keep the third value meanwhile: otherwise the next such pair might
/// get the same numbers.
pub(crate) fn pair_out_of_the_way(on: &System) -> (Socket, Socket, MutexGuard<'static, ()>) {
    let alone = with_many_descriptors();
    let _below: Vec<_> = (0..200).map(|_| on.event()).collect();
    let (ours, theirs) = on.unix_pair();
    (ours, theirs, alone)
}

/// Closes `old` and opens a counter. Returns `None` if it has another number.
pub(crate) fn reopen(on: &System, old: Socket) -> Option<Socket> {
    let number = old.number();
    drop(old);
    let new = on.event();
    (new.number() == number).then_some(new)
}

/// Returns a source whose number names nothing, and which no other test gets meanwhile.
pub(crate) fn closed(on: &System) -> Numbered {
    static NEXT: AtomicI32 = AtomicI32::new(700);
    // Far above the numbers in use, and different each time.
    let least = NEXT.fetch_add(1, Relaxed);
    match on.kernel() {
        Some(kernel) => Numbered::Simulated(kernel.borrow_number(least)),
        None => Numbered::Native(closed_descriptor(least)),
    }
}

#[cfg(windows)]
fn closed_descriptor(least: i32) -> Borrowed<'static> {
    // Handle numbers are multiples of four, and those in use are far lower.
    let number = RawSocket::try_from(least).unwrap() << 12;
    // SAFETY: `borrow_raw` requires a number other than -1, of a socket that stays open.
    // - not -1: it is the number above;
    // - it is *not* open, which is the point of the test. The port only asks the system about the
    //   number, and the system refuses. No socket of another part of the program is used.
    unsafe { Borrowed::borrow_raw(number) }
}

#[cfg(unix)]
fn closed_descriptor(least: i32) -> Borrowed<'static> {
    let open = File::open("/dev/null").unwrap();
    // SAFETY: fcntl(2) with F_DUPFD_CLOEXEC accesses no memory.
    let number = unsafe { libc::fcntl(open.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    assert!(number >= least, "{}", io::Error::last_os_error());
    // SAFETY: `from_raw_fd` requires an open descriptor without another owner.
    // - fcntl(2) has just returned it.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    // SAFETY: `borrow_raw` requires a number other than -1, of a descriptor that stays open.
    // - not -1: it was the number of a descriptor;
    // - it is *not* open, which is the point of the test. The port only asks the kernel about the
    //   number, and the kernel refuses. No descriptor of another part of the program is used.
    unsafe { Borrowed::borrow_raw(number) }
}

/// A source that consists of a number only.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Numbered {
    Native(Borrowed<'static>),
    Simulated(BorrowedSource<'static>),
}

impl Source for Numbered {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Native(descriptor) => descriptor.as_source(),
            Self::Simulated(source) => *source,
        }
    }
}

/// Returns a key that names a socket by number, even after that is closed behind its back.
pub(crate) fn numbered(on: &System, socket: &Socket) -> Numbered {
    match on.kernel() {
        Some(kernel) => Numbered::Simulated(kernel.borrow_number(socket.number())),
        None => {
            #[cfg(unix)]
            let number = socket.number();
            #[cfg(windows)]
            let number = RawSocket::try_from(socket.number()).unwrap();
            // SAFETY: `borrow_raw` requires a number other than -1, of a descriptor that stays
            // open.
            // - not -1: the socket is open;
            // - the test *closes* it, which is the point of the test. The port only asks the kernel
            //   about the number, and uses nothing that the number may then name.
            Numbered::Native(unsafe { Borrowed::borrow_raw(number) })
        }
    }
}
