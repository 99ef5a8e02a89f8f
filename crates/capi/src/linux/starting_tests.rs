//! Tests that operations which are tried without their number's lock start on what the number means by
//! then.

#![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

use std::cell::Cell;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, RawFd};
use std::ptr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::thread::{self, JoinHandle};

use completion_port::raw::{Attempt, Side};

use crate::abi::Overlapped;
use crate::errors::code;
use crate::linux::descriptors::{blocks, identity, set_blocking};
use crate::linux::numbers::{self, Number};
use crate::linux::operations::Work;
use crate::linux::port::{Begun, Outcome, Told};
use crate::linux::starting::{Start, start};
use crate::linux::{registrations, status};

/// What the first attempt at a [`Waiting`] does, before it returns that it would block.
type First = Box<dyn FnOnce(&'static Number, RawFd) + Send>;

/// Has to wait at the first attempt, and is done at the next one.
struct Waiting {
    number: &'static Number,
    first: Option<First>,
    /// The number's meaning changes between the check of the call and the first attempt.
    changes: Cell<bool>,
    begins_unasked: bool,
    /// The socket has to be non-blocking at each attempt.
    needs_nonblocking: bool,
}

impl Work for Waiting {
    fn is_listed(&self) -> bool {
        false
    }

    fn starts_unlocked(&self) -> bool {
        if self.changes.take() {
            self.number.begin_epoch();
        }
        true
    }

    fn begins_unasked(&self) -> bool {
        self.begins_unasked
    }

    fn prepare_socket(&self, number: &Number, descriptor: RawFd) -> Result<(), u32> {
        if self.needs_nonblocking {
            assert!(number.need_nonblocking(descriptor, registrations::is_believed(number)));
        }
        Ok(())
    }

    fn attempt(&mut self, descriptor: RawFd, _: &mut Outcome) -> Attempt {
        assert!(!self.needs_nonblocking || blocks(descriptor) == Some(false));
        let Some(first) = self.first.take() else { return Attempt::Done };
        first(self.number, descriptor);
        Attempt::Blocked
    }
}

/// Calls a function that changes the meaning of the number, in a thread. Returns once that has
/// the number's lock. It keeps it until the attempt that calls this has ended.
fn beside(number: &'static Number, change: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    let epoch = number.epoch();
    let changing = thread::spawn(change);
    while number.epoch() == epoch {
        thread::yield_now();
    }
    changing
}

/// A thread begins to close the number. It has not ended what is in flight yet.
fn begin_close(number: &'static Number, descriptor: RawFd) {
    assert!(number.begin_close(descriptor, identity(descriptor), |_| {}));
}

/// All memory of operations. A checker of leaks finds it here.
static KEPT: Mutex<Vec<Memory>> = Mutex::new(Vec::new());

/// The memory of an operation. It is never freed.
#[derive(Clone, Copy)]
struct Memory(&'static Overlapped);

// SAFETY: threads may use it, although it has a pointer.
// - the event is null, and the rest is atomic.
unsafe impl Send for Memory {}

impl Memory {
    fn new() -> Self {
        let (status, bytes) = (AtomicUsize::new(7), AtomicUsize::new(7));
        let [offset, offset_high] = [0, 0].map(AtomicU32::new);
        let event = ptr::null_mut();
        let overlapped = Overlapped { status, bytes, offset, offset_high, event };
        let memory = Self(Box::leak(Box::new(overlapped)));
        KEPT.lock().unwrap().push(memory);
        memory
    }

    fn status(self) -> u32 {
        u32::try_from(self.0.status.load(Relaxed)).unwrap()
    }
}

/// Starts work on a socket.
fn start_on(descriptor: RawFd, memory: Memory, work: impl Work) -> Result<Begun, u32> {
    let how = Start {
        descriptor,
        overlapped: ptr::from_ref(memory.0).cast_mut(),
        side: Side::In,
        tells_flags: false,
        told: Told::bytes(ptr::null_mut()),
        accept: 0,
    };
    // SAFETY: `start` demands an OVERLAPPED that stays valid until its operation has ended.
    // - it is never freed.
    unsafe { start(how, work) }
}

fn waiting(
    descriptor: RawFd,
    first: impl FnOnce(&'static Number, RawFd) + Send + 'static,
) -> Waiting {
    let number = numbers::entry(descriptor).unwrap();
    let (changes, begins_unasked, needs_nonblocking) = (Cell::new(false), false, false);
    Waiting { number, first: Some(Box::new(first)), changes, begins_unasked, needs_nonblocking }
}

/// Another operation starts meanwhile, and waits for the first one. The call tries it, although
/// it fails itself.
#[test]
fn nothing_starts_on_a_number_that_is_closed_meanwhile() {
    let (socket, overlapped, other) =
        (UdpSocket::bind("127.0.0.1:0").unwrap(), Memory::new(), Memory::new());
    let descriptor = socket.as_raw_fd();
    let work = waiting(descriptor, move |number, descriptor| {
        let behind = Waiting { begins_unasked: true, ..waiting(descriptor, |_, _| {}) };
        assert!(matches!(start_on(descriptor, other, behind), Ok(Begun::Pending)));
        drop(beside(number, move || begin_close(number, descriptor)));
    });
    assert_eq!(start_on(descriptor, overlapped, work).unwrap_err(), code::WSAENOTSOCK);
    assert_eq!(overlapped.status(), status::UNSUCCESSFUL);
    assert_eq!(other.status(), status::CANCELLED);
    let number = numbers::entry(descriptor).unwrap();
    assert!(!number.lock().operations.contains(ptr::from_ref(overlapped.0).addr()));
    number.end_close(identity(descriptor));
}

#[test]
fn it_starts_on_what_its_number_means_by_then() {
    for changes_before in [false, true] {
        let (socket, overlapped) = (UdpSocket::bind("127.0.0.1:0").unwrap(), Memory::new());
        let work = waiting(socket.as_raw_fd(), move |number, _| {
            let end = |former| drop(registrations::end(former));
            drop(beside(number, move || number.retire(end)));
        });
        let work = if changes_before {
            Waiting { first: None, changes: Cell::new(true), ..work }
        } else {
            work
        };
        let begun = start_on(socket.as_raw_fd(), overlapped, work);
        if changes_before {
            assert!(matches!(begun, Ok(Begun::Pending)), "{begun:?}");
        } else {
            // It is tried on that, and done.
            assert!(matches!(begun, Ok(Begun::Done)), "{begun:?}");
            assert_eq!(overlapped.status(), status::SUCCESS);
        }
    }
}

#[test]
fn one_overlapped_is_not_used_twice_even_if_both_start_at_the_same_time() {
    let (socket, overlapped) = (UdpSocket::bind("127.0.0.1:0").unwrap(), Memory::new());
    let descriptor = socket.as_raw_fd();
    let work = waiting(descriptor, move |_, descriptor| {
        let begun = start_on(descriptor, overlapped, waiting(descriptor, |_, _| {}));
        assert!(matches!(begun, Ok(Begun::Pending)));
    });
    assert_eq!(start_on(descriptor, overlapped, work).unwrap_err(), code::WSAEINVAL);
}

/// Another thread has closed the listener, and a new one has its number.
#[test]
fn the_socket_is_non_blocking_at_each_attempt() {
    let (socket, overlapped) = (TcpListener::bind("127.0.0.1:0").unwrap(), Memory::new());
    let work = waiting(socket.as_raw_fd(), |number, descriptor| {
        let renew = move || {
            number.retire(|former| drop(registrations::end(former)));
            set_blocking(descriptor, true);
        };
        drop(beside(number, renew));
    });
    let begun =
        start_on(socket.as_raw_fd(), overlapped, Waiting { needs_nonblocking: true, ..work });
    assert!(matches!(begun, Ok(Begun::Done)), "{begun:?}");
}
