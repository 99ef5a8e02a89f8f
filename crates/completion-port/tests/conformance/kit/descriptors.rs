//! Numbers of descriptors that must be free, taken again, or used up.

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

/// From now on this process can open no descriptor.
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

/// Runs a scenario in which a descriptor's number must be given out again at once, until no other
/// thread of the process was quicker.
pub(crate) fn until_undisturbed(mut scenario: impl FnMut() -> Option<()>) {
    for _ in 0..1000 {
        if scenario().is_some() {
            return;
        }
    }
    // No page says in which order Windows gives numbers out.
    if cfg!(windows) {
        testkit::lacking("numbers that are given out again at once");
    }
    panic!("somebody else always took the number");
}

/// Held by a test that opens hundreds of descriptors at once, or that closes one whose number is to stay
/// unused.
pub(crate) fn with_many_descriptors() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A pair whose numbers are beyond those that other threads of the process are given, so that they
/// stay unused once they are closed. As long as the third value is kept: the next such pair might get the
/// same numbers.
pub(crate) fn pair_out_of_the_way(on: &System) -> (Socket, Socket, MutexGuard<'static, ()>) {
    let alone = with_many_descriptors();
    let _below: Vec<_> = (0..200).map(|_| on.event()).collect();
    let (ours, theirs) = on.unix_pair();
    (ours, theirs, alone)
}

/// Closes `old` and opens a counter under its number.
pub(crate) fn reopen(on: &System, old: Socket) -> Option<Socket> {
    let number = old.number();
    drop(old);
    let new = on.event();
    (new.number() == number).then_some(new)
}

/// A source whose number names nothing, and is given to no other test meanwhile.
pub(crate) fn closed(on: &System) -> Numbered {
    static NEXT: AtomicI32 = AtomicI32::new(700);
    // Far above the numbers in use, and another one each time.
    let least = NEXT.fetch_add(1, Relaxed);
    match on.kernel() {
        Some(kernel) => Numbered::Simulated(kernel.borrow_number(least)),
        None => Numbered::Native(closed_descriptor(least)),
    }
}

#[cfg(windows)]
fn closed_descriptor(least: i32) -> Borrowed<'static> {
    // Numbers of handles are multiples of four, and far fewer than these are in use.
    let number = RawSocket::try_from(least).unwrap() << 12;
    // SAFETY: `borrow_raw` demands a number that is not -1, of a socket that stays open.
    // - not -1: it is the number above;
    // - it is *not* open: that is what is tested. The port takes the number and asks the system about it,
    //   which refuses; nothing is done with a socket of another part of the program.
    unsafe { Borrowed::borrow_raw(number) }
}

#[cfg(unix)]
fn closed_descriptor(least: i32) -> Borrowed<'static> {
    let open = File::open("/dev/null").unwrap();
    // SAFETY: fcntl(2) with F_DUPFD_CLOEXEC demands nothing of memory.
    let number = unsafe { libc::fcntl(open.as_raw_fd(), libc::F_DUPFD_CLOEXEC, least) };
    assert!(number >= least, "{}", io::Error::last_os_error());
    // SAFETY: `from_raw_fd` demands an open descriptor that nothing else owns.
    // - fcntl(2) has just returned it.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    // SAFETY: `borrow_raw` demands a number that is not -1, of a descriptor that stays open.
    // - not -1: it was a descriptor's once;
    // - it is *not* open: that is what is tested. The port takes the number and asks the kernel about it,
    //   which refuses; nothing is done with a descriptor of another part of the program.
    unsafe { Borrowed::borrow_raw(number) }
}

/// A source that is its number alone.
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

/// A key that names a socket by its number, also when that is closed behind its back.
pub(crate) fn numbered(on: &System, socket: &Socket) -> Numbered {
    match on.kernel() {
        Some(kernel) => Numbered::Simulated(kernel.borrow_number(socket.number())),
        None => {
            #[cfg(unix)]
            let number = socket.number();
            #[cfg(windows)]
            let number = RawSocket::try_from(socket.number()).unwrap();
            // SAFETY: `borrow_raw` demands a number that is not -1, of a descriptor that stays open.
            // - not -1: the socket is open;
            // - it is *closed* by the test: that is what is tested. The port asks the kernel about the number, and does
            //   nothing with what it names then.
            Numbered::Native(unsafe { Borrowed::borrow_raw(number) })
        }
    }
}
