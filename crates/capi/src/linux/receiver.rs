//! The receiver of a stream, which carries out its receives while the program has one in flight at
//! a time. [`receiving`](super::receiving) has its task.

use std::fmt::Debug;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};

use completion_port::raw::Attempt;
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
// - the OVERLAPPED and the buffer are the operation's until its end, as `operations::start`
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

    /// Queues the packet of an operation that has ended with this status, unless the port was closed
    /// or there is no memory.
    fn post_ended(&self, bytes: u32, key: usize, overlapped: NonNull<Overlapped>, status: u32);

    /// Cancels a task. The caller holds no lock.
    fn cancel_task(&self, task: OpId);
}

/// What a receiver and its task tell each other without the lock of the number.
///
/// An edge may come while a thread that has the lock sends, since a peer answers soon. The task then
/// only notes it. A receive that begins to wait looks for that note afterwards, and the task looks
/// for a receive after its note: so one of them sees the other.
#[derive(Debug, Default)]
pub(crate) struct Notes {
    /// Nothing has shown that a read would block. The port then knows the socket as ready, or has
    /// yet to report an edge to the task. Cleared before each read.
    may_have_data: AtomicBool,
    /// A receive waits. Changed with the number locked.
    waits: AtomicBool,
}

impl Notes {
    /// Notes an edge. Returns whether a receive waits.
    pub(crate) fn edge(&self) -> bool {
        self.may_have_data.store(true, SeqCst);
        self.waits.load(SeqCst)
    }
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
    notes: Arc<Notes>,
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
        let notes = Arc::<Notes>::default();
        notes.waits.store(true, SeqCst);
        let (task, waiting) = (None, Some(receive));
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

    pub(crate) fn notes(&self) -> &Arc<Notes> {
        &self.notes
    }

    /// Whether a read may find data.
    pub(crate) fn may_have_data(&self) -> bool {
        self.notes.may_have_data.load(SeqCst)
    }

    /// A read is about to be tried. An edge that comes from now on is noted for the next one.
    pub(crate) fn begin_read(&self) {
        self.notes.may_have_data.store(false, SeqCst);
    }

    /// The read has left data, or has failed for want of memory.
    pub(crate) fn note_data(&self) {
        self.notes.may_have_data.store(true, SeqCst);
    }

    /// A receive waits for the next edge. If there may be data afterwards, the caller makes the port
    /// try the task. Returns whether the port is watched.
    pub(crate) fn wait(&mut self, receive: WaitingReceive) -> bool {
        debug_assert!(self.waiting.is_none() && !self.is_last, "it is free");
        (self.waiting, self.is_new) = (Some(receive), false);
        self.notes.waits.store(true, SeqCst);
        self.port.begin_operation();
        // After that: a thread that stops watching the port looks for operations afterwards.
        self.port.is_watched()
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
        self.notes.waits.store(false, Relaxed);
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
    use std::sync::atomic::AtomicUsize;

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
        assert!(!receiver.wait(receive(128)));
        assert_eq!(counts.begun.load(SeqCst), 2);
        receiver.end_after_waiting();
        assert!(!receiver.is_over(), "a receive waits");
        assert_eq!(receiver.take().unwrap().address(), 128);
        assert!(receiver.is_over() && !receiver.is_free(line));
        assert!(receiver.take().is_none());
    }

    #[test]
    fn one_that_is_idle_is_over_as_soon_as_something_follows_it() {
        let line = line();
        let counts = Arc::<Counts>::default();
        counts.is_watched.store(true, SeqCst);
        let port: Arc<dyn ReceiverPort> = Arc::<Counts>::clone(&counts);
        let mut receiver = Receiver::new(1, line, port, receive(64));
        receiver.take().unwrap();
        assert!(receiver.wait(receive(64)), "its port is watched");
        receiver.take().unwrap();
        assert!(!receiver.notes().edge(), "no receive waits");
        assert!(receiver.may_have_data());
        receiver.begin_read();
        assert!(!receiver.may_have_data());
        receiver.note_data();
        assert!(receiver.may_have_data());
        receiver.end_after_waiting();
        assert!(receiver.is_over());
    }
}
