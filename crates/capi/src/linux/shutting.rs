//! `shutdown`. The end of a stream follows the sends that are in flight, as on the reference: here the
//! system's call would cut them off.

use std::ffi::c_int;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::sync::Arc;

use completion_port::Started;
use completion_port::raw::{Attempt, Ending, Side};

use crate::linux::errno::{errno, keeping_errno, set_errno};
use crate::linux::numbers::{self, Number, READING_SHUT, State};
use crate::linux::port::{Begun, BoxedOperation, CompletionPort, PortOperation, Told};
use crate::linux::registrations::port_of;
use crate::linux::sockets::called;
use crate::linux::{descriptors, driver};

/// `SOCKET_ERROR`.
const FAILED: c_int = -1;

/// Shuts down halves of a socket. A datagram socket needs no peer for that.
fn shut(descriptor: c_int, how: c_int) -> c_int {
    // SAFETY: shutdown(2) demands nothing of memory.
    match unsafe { libc::shutdown(descriptor, how) } {
        // The system has done it, although it reports that there is no peer.
        FAILED
            if errno() == libc::ENOTCONN
                && descriptors::kind(descriptor) == Some(libc::SOCK_DGRAM) =>
        {
            0
        }
        done => done,
    }
}

/// Shuts down the sending half, and perhaps the other one, of a socket whose entry is not locked.
fn shut_sending(number: &Number, descriptor: c_int, how: c_int) -> c_int {
    let mut done = FAILED;
    number.while_shutting(|| {
        done = shut(descriptor, how);
        done == 0
    });
    if done == 0 {
        keeping_errno(|| number.lock().remember(descriptor, |past| past.has_shut = true));
    }
    done
}

/// The end of a stream, in the port that performs its sends. It has no OVERLAPPED.
struct EndOfStream {
    /// Another descriptor of the socket: the number may name another socket by then.
    socket: OwnedFd,
    identity: u64,
    number: &'static Number,
    descriptor: RawFd,
    /// The epoch of the number in which it was started.
    epoch: u32,
    port: Arc<CompletionPort>,
    is_sent: bool,
}

impl EndOfStream {
    /// Fails if there is no descriptor left.
    fn new(
        number: &'static Number,
        descriptor: RawFd,
        port: &Arc<CompletionPort>,
    ) -> io::Result<Self> {
        // SAFETY: `borrow_raw` demands a descriptor that is not -1, and is open for the lifetime of the result.
        // - not -1: it has an entry in the table of numbers;
        // - open: the program keeps its socket open during the call; the result ends with this statement. If it closes
        //   the socket all the same, the system refuses the duplicate, or makes one of the number's next socket.
        let socket = unsafe { BorrowedFd::borrow_raw(descriptor) }.try_clone_to_owned()?;
        let identity = descriptors::identity(socket.as_raw_fd());
        let (epoch, port) = (number.epoch(), Arc::clone(port));
        Ok(Self { socket, identity, number, descriptor, epoch, port, is_sent: false })
    }

    /// Sends it. A connection that has ended meanwhile has no end to send.
    fn send(&mut self) {
        if std::mem::replace(&mut self.is_sent, true) {
            return;
        }
        let shut = || shut(self.socket.as_raw_fd(), libc::SHUT_WR) == 0;
        let is_current = self.number.in_epoch(self.epoch, || self.number.while_shutting(shut));
        if is_current.is_none() {
            shut();
        }
    }

    /// Notes it in the entry of the number, which is locked, if that still names the socket.
    fn note(&self, state: &mut State) {
        if descriptors::identity(self.descriptor) == self.identity {
            self.number.while_shutting(|| true);
            state.remember_of(self.identity, |past| past.has_shut = true);
        }
    }
}

impl PortOperation for EndOfStream {
    fn attempt(&mut self, _: RawFd) -> Attempt {
        self.send();
        Attempt::Done
    }

    fn begins_unasked(&self) -> bool {
        true
    }

    fn end(mut self: Box<Self>, _: Ending) {
        // Also if the sends in front of it were cancelled, or the port is closed.
        self.send();
        self.note(&mut self.number.lock());
        self.port.end_operation();
    }

    fn conclude(self: Box<Self>, _: bool, _: Told) -> Begun {
        Begun::Done
    }

    fn withdraw(self: Box<Self>) {}
}

impl Drop for EndOfStream {
    fn drop(&mut self) {
        // If its port was dropped.
        self.send();
    }
}

/// Shuts down the sending half behind the sends in flight. Returns whether it is done, or will be: false if none is in
/// flight.
fn shut_behind_sends(number: &'static Number, descriptor: c_int) -> bool {
    // The number stays locked, so that no other thread starts a send meanwhile.
    let mut state = number.lock();
    let has_sends = state.operations.values().any(|it| it.side == Side::Out);
    let Some(line) = state.line.filter(|_| has_sends) else { return false };
    if descriptors::kind(descriptor) != Some(libc::SOCK_STREAM) {
        return false;
    }
    let Some(port) = port_of(line.port) else { return false };
    let Ok(end) = EndOfStream::new(number, descriptor, &port) else { return false };
    let identity = end.identity;
    match port.raw().start_task(line.id, Side::Out, BoxedOperation(Box::new(end))) {
        Ok(Started::InFlight(_)) => port.begin_operation(),
        // The sends have ended meanwhile, perhaps with their line. It is sent at the latest when it is dropped.
        ended => {
            drop(ended);
            state.remember_of(identity, |past| past.has_shut = true);
        }
    }
    drop(state);
    port.raw().run_deferred();
    driver::watch(&port);
    true
}

/// `shutdown`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_shutdown(descriptor: c_int, how: c_int) -> c_int {
    called(|| {
        let is_known = (libc::SHUT_RD..=libc::SHUT_RDWR).contains(&how);
        if is_known && descriptors::has_no_peer(descriptor) {
            // The system would fail with the same code, and shut the connection that a later connect makes.
            set_errno(libc::ENOTCONN);
            return FAILED;
        }
        let Some(number) = numbers::entry(descriptor) else { return shut(descriptor, how) };
        // A listener that was shut down no longer listens.
        number.clear_options(numbers::LISTENS);
        let was_shut = number.options() & READING_SHUT != 0;
        if how != libc::SHUT_WR {
            // First, so that operations which the system then retries find it.
            number.set_options(READING_SHUT);
        }
        let done = match how {
            libc::SHUT_RD => shut(descriptor, how),
            libc::SHUT_WR if shut_behind_sends(number, descriptor) => 0,
            libc::SHUT_RDWR if shut_behind_sends(number, descriptor) => {
                shut(descriptor, libc::SHUT_RD)
            }
            _ => shut_sending(number, descriptor, how),
        };
        if done != 0 && !was_shut {
            number.clear_options(READING_SHUT);
        }
        done
    })
}
