//! The receiver of a stream, which carries out its receives while the program has one in flight at
//! a time. [`receiving`](super::receiving) has its task.

use std::fmt::Debug;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;

use completion_port::raw::{Attempt, EdgeNotes};
use completion_port::{OpId, SharedId};
use libc::iovec;

use crate::abi::Overlapped;

/// A receive that waits for data.
#[derive(Debug)]
pub(crate) struct WaitingReceive {
    pub(crate) overlapped: NonNull<Overlapped>,
    pub(crate) buffer: iovec,
    /// Returned in its packet.
    pub(crate) key: usize,
}

// SAFETY: a thread other than its creator may use it, although it has pointers.
// - the OVERLAPPED and the buffer are the operation's until its end, as `starting::start`
//   demands, and the thread that takes the receive ends it.
unsafe impl Send for WaitingReceive {}

impl WaitingReceive {
    /// The address of its OVERLAPPED.
    pub(crate) fn address(&self) -> usize {
        self.overlapped.as_ptr().addr()
    }
}

/// The port that has the task of a receiver.
pub(crate) trait ReceiverPort: Debug + Send + Sync {
    /// Counts an operation in flight.
    fn begin_operation(&self);

    /// It has ended.
    fn end_operation(&self);

    /// Whether a thread of the library sees to its operations if no other thread does.
    fn is_watched(&self) -> bool;

    /// Tries to send on this association, if nothing waits to be sent there. Returns whether it is
    /// done. The caller lets no other send start meanwhile.
    fn send(&self, line: SharedId, attempt: &mut dyn FnMut(RawFd) -> Attempt) -> bool;

    /// Whether a short read on this association means that no data remains.
    fn is_drained_by_short_read(&self, line: SharedId) -> bool;

    /// Queues the packet of an operation that has ended with this status, unless the port was closed
    /// or there is no memory.
    fn post_ended(&self, bytes: u32, key: usize, overlapped: NonNull<Overlapped>, status: u32);

    /// Cancels a task. The caller holds no lock.
    fn cancel_task(&self, task: OpId);
}

/// What the caller of [`Receiver::wait`] sees to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WaitBegun {
    /// There may be data: the caller makes the port try the task.
    pub(crate) may_have_data: bool,
    /// The port is watched.
    pub(crate) is_watched: bool,
}

/// The receiver, as the entry of its number stores it.
#[derive(Debug)]
pub(crate) struct Receiver {
    /// Unique among the receivers of the process.
    name: u64,
    /// The association that has its task.
    line: SharedId,
    port: Arc<dyn ReceiverPort>,
    /// The task; `None` while it is being started.
    task: Option<OpId>,
    notes: Arc<EdgeNotes>,
    waiting: Option<WaitingReceive>,
    /// It has had no other receive than the one that it was made for.
    is_new: bool,
    /// Another operation follows: it ends with the receive that waits.
    is_last: bool,
}

impl Receiver {
    /// One whose task is about to be started, for this receive.
    pub(crate) fn new(
        name: u64,
        line: SharedId,
        port: Arc<dyn ReceiverPort>,
        receive: WaitingReceive,
    ) -> Self {
        port.begin_operation();
        let (notes, task, waiting) = (Arc::new(EdgeNotes::new()), None, Some(receive));
        Self { name, line, port, task, notes, waiting, is_new: true, is_last: false }
    }

    pub(crate) fn name(&self) -> u64 {
        self.name
    }

    /// The task has been started.
    pub(crate) fn begin(&mut self, task: OpId) {
        self.task = Some(task);
    }

    /// Whether this association has its task.
    pub(crate) fn is_on(&self, line: SharedId) -> bool {
        self.line == line
    }

    /// Whether it can carry out another receive of this association.
    pub(crate) fn is_free(&self, line: SharedId) -> bool {
        self.line == line && self.waiting.is_none() && !self.is_last
    }

    pub(crate) fn notes(&self) -> &Arc<EdgeNotes> {
        &self.notes
    }

    /// A receive waits for the next edge.
    #[inline]
    pub(crate) fn wait(&mut self, receive: WaitingReceive) -> WaitBegun {
        debug_assert!(self.waiting.is_none() && !self.is_last, "it is free");
        (self.waiting, self.is_new) = (Some(receive), false);
        let may_have_data = self.notes.wait();
        self.port.begin_operation();
        // After that: a thread that stops watching the port looks for operations afterwards.
        WaitBegun { may_have_data, is_watched: self.port.is_watched() }
    }

    /// Whether a short read means that no data remains.
    pub(crate) fn is_drained_by_short_read(&self) -> bool {
        self.port.is_drained_by_short_read(self.line)
    }

    /// The port that has its task.
    pub(crate) fn port(&self) -> &Arc<dyn ReceiverPort> {
        &self.port
    }

    /// Whether the receive that waits is the one that it was made for.
    pub(crate) fn is_new(&self) -> bool {
        self.is_new
    }

    pub(crate) fn waiting(&self) -> Option<&WaitingReceive> {
        self.waiting.as_ref()
    }

    /// Takes the receive that waits. The caller ends it.
    pub(crate) fn take(&mut self) -> Option<WaitingReceive> {
        self.notes.end_wait();
        self.waiting.take()
    }

    /// Whether it ends now, because another operation follows and no receive waits.
    pub(crate) fn is_over(&self) -> bool {
        self.is_last && self.waiting.is_none()
    }

    /// Another operation is about to follow it.
    pub(crate) fn end_after_waiting(&mut self) {
        self.is_last = true;
    }

    /// Its task, which the caller cancels; `None` if the thread that is starting the task will find
    /// that the receiver is gone.
    pub(crate) fn task(&self) -> Option<OpId> {
        self.task
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "what goes wrong is the failure of the test")]

    use std::net::UdpSocket;
    use std::os::fd::AsRawFd;
    use std::ptr;
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

    use completion_port::Port;

    use super::*;

    #[derive(Debug, Default)]
    struct Counts {
        begun: AtomicUsize,
        is_watched: AtomicBool,
    }

    impl ReceiverPort for Counts {
        fn begin_operation(&self) {
            self.begun.fetch_add(1, SeqCst);
        }

        fn end_operation(&self) {
            unreachable!("the receiver ends none");
        }

        fn send(&self, _: SharedId, _: &mut dyn FnMut(RawFd) -> Attempt) -> bool {
            unreachable!("the receiver sends nothing");
        }

        fn is_drained_by_short_read(&self, _: SharedId) -> bool {
            unreachable!("the receiver reads nothing");
        }

        fn post_ended(&self, _: u32, _: usize, _: NonNull<Overlapped>, _: u32) {
            unreachable!("the receiver ends none");
        }

        fn cancel_task(&self, _: OpId) {
            unreachable!("the receiver cancels nothing");
        }

        fn is_watched(&self) -> bool {
            self.is_watched.load(SeqCst)
        }
    }

    /// At an address, which nothing accesses.
    fn receive(address: usize) -> WaitingReceive {
        let overlapped = NonNull::new(ptr::without_provenance_mut(address)).unwrap();
        let buffer = iovec { iov_base: ptr::null_mut(), iov_len: 1 };
        WaitingReceive { overlapped, buffer, key: 7 }
    }

    /// The name of an association.
    fn line() -> SharedId {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port: Port<u32> = Port::new().unwrap();
        port.raw().associate_number(socket.as_raw_fd(), 1).map_err(|it| it.error()).unwrap()
    }

    #[test]
    fn it_is_free_for_its_own_association_while_no_receive_waits() {
        let (own, other) = (line(), line());
        let mut receiver = Receiver::new(1, own, Arc::<Counts>::default(), receive(64));
        assert!(receiver.is_on(own) && !receiver.is_on(other));
        assert!(!receiver.is_free(own), "a receive waits");
        assert_eq!(receiver.take().unwrap().address(), 64);
        assert!(receiver.is_free(own) && !receiver.is_free(other));
    }

    #[test]
    fn it_counts_each_receive_that_waits_and_ends_after_the_last_one() {
        let line = line();
        let counts = Arc::<Counts>::default();
        let port: Arc<dyn ReceiverPort> = Arc::<Counts>::clone(&counts);
        let mut receiver = Receiver::new(1, line, port, receive(64));
        assert_eq!(counts.begun.load(SeqCst), 1);
        assert!(!receiver.is_over());
        receiver.take().unwrap();
        assert!(!receiver.is_over() && receiver.is_free(line));
        let begun = WaitBegun { may_have_data: false, is_watched: false };
        assert_eq!(receiver.wait(receive(128)), begun);
        assert_eq!(counts.begun.load(SeqCst), 2);
        receiver.end_after_waiting();
        assert!(!receiver.is_over(), "a receive waits");
        assert_eq!(receiver.take().unwrap().address(), 128);
        assert!(receiver.is_over() && !receiver.is_free(line));
        assert!(receiver.take().is_none());
    }

    #[test]
    fn what_may_be_there_is_noted_until_the_next_read() {
        let mut receiver = Receiver::new(1, line(), Arc::<Counts>::default(), receive(64));
        let notes = Arc::clone(receiver.notes());
        assert!(!notes.may_be_ready() && notes.edge(), "a receive waits");
        receiver.take().unwrap();
        assert!(notes.may_be_ready() && !notes.edge());
        assert!(receiver.wait(receive(64)).may_have_data, "an edge has come");
        notes.begin_attempt();
        assert!(!notes.may_be_ready());
        notes.note_ready();
        assert!(notes.may_be_ready());
    }

    #[test]
    fn one_that_is_idle_is_over_as_soon_as_something_follows_it() {
        let line = line();
        let counts = Arc::<Counts>::default();
        counts.is_watched.store(true, SeqCst);
        let port: Arc<dyn ReceiverPort> = Arc::<Counts>::clone(&counts);
        let mut receiver = Receiver::new(1, line, port, receive(64));
        receiver.take().unwrap();
        assert!(receiver.wait(receive(64)).is_watched);
        receiver.take().unwrap();
        receiver.end_after_waiting();
        assert!(receiver.is_over());
    }
}
