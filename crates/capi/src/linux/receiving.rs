//! Receives of a stream that has one in flight at a time, as most servers do.
//!
//! A task of the port for each such receive would have to be started and ended for each. Instead
//! the stream has a [`Receiver`] with one task, which stays in flight. The port tries it at each edge
//! for which a receive waits, and it carries out that receive. Other edges are [noted](EdgeNotes) for
//! the next one, as long as the kernel reports no more than readiness.
//!
//! If anything else is to start on the reading side, the receiver ends first: immediately, or with
//! the receive that waits. It also ends when the kernel has reported more than readiness. Ordinary
//! [operations](super::operations) follow.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use completion_port::raw::{Attempt, EdgeNotes, Ending, Side};
use completion_port::{Error, Id, Started};
use libc::iovec;

use crate::linux::driver;
use crate::linux::errno::{Signals, errno};
use crate::linux::numbers::{InFlight, Line, Number, State};
use crate::linux::port::{Begun, BoxedOperation, CompletionPort, Outcome, PortOperation, Told};
use crate::linux::receiver::{Receiver, WaitBegun, WaitingReceive};
use crate::linux::registrations::{end_receive, port_of};
use crate::linux::sockets::{status_of_transfer, why_ended};
use crate::linux::status;
use crate::linux::waits::this_thread;

/// A receiver carries out receives of at most this many bytes. It holds the number's lock meanwhile.
const MOST: usize = 1 << 16;

/// Whether a receiver can carry out a receive into this buffer.
pub(crate) fn is_suitable(buffer: &iovec) -> bool {
    (1..=MOST).contains(&buffer.iov_len)
}

/// Repeats a call while signals interrupt it.
pub(crate) fn repeated(mut call: impl FnMut() -> isize) -> isize {
    let mut signals = Signals::default();
    loop {
        let done = call();
        if done >= 0 || !signals.ended(errno()) {
            return done;
        }
    }
}

pub(crate) fn count(bytes: usize) -> u32 {
    u32::try_from(bytes).unwrap_or(u32::MAX)
}

/// The result of an attempt for a failed call.
pub(crate) fn failed(outcome: &mut Outcome) -> Attempt {
    match errno() {
        libc::EAGAIN => Attempt::Blocked,
        libc::ENOBUFS | libc::ENOMEM => Attempt::OutOfResources,
        errno => {
            outcome.errno = errno;
            Attempt::Done
        }
    }
}

/// The same for a receive. `ENOBUFS` reports that the system has dropped messages, not a shortage.
pub(crate) fn not_received(outcome: &mut Outcome) -> Attempt {
    if errno() == libc::ENOBUFS {
        outcome.errno = libc::ENOBUFS;
        return Attempt::Done;
    }
    failed(outcome)
}

/// recv(2) and send(2) with one buffer, as system calls. The C functions are cancellation points of
/// the thread, which costs two locked instructions for each call. The library's operations are none.
///
/// # Safety
///
/// As for recv(2).
unsafe fn recv(descriptor: RawFd, place: *mut c_void, size: usize, flags: c_int) -> isize {
    let (address, address_size) = (ptr::null_mut::<c_void>(), ptr::null_mut::<c_void>());
    // SAFETY: recvfrom(2) demands room for that many bytes, and null or room for an address.
    // - the caller guarantees the former, and the latter is null.
    let done = unsafe {
        libc::syscall(libc::SYS_recvfrom, descriptor, place, size, flags, address, address_size)
    };
    isize::try_from(done).unwrap_or(-1)
}

/// The same for send(2).
///
/// # Safety
///
/// As for send(2).
pub(crate) unsafe fn send(
    descriptor: RawFd,
    place: *const c_void,
    size: usize,
    flags: c_int,
) -> isize {
    let (address, address_size) = (ptr::null::<c_void>(), 0_usize);
    // SAFETY: sendto(2) demands that many bytes, and null or an address.
    // - the caller guarantees the former, and the latter is null.
    let done = unsafe {
        libc::syscall(libc::SYS_sendto, descriptor, place, size, flags, address, address_size)
    };
    isize::try_from(done).unwrap_or(-1)
}

/// Receives a TCP stream's data into one buffer. Costs the system less than a message.
///
/// # Safety
///
/// The buffer can be written.
pub(crate) unsafe fn fill(descriptor: RawFd, part: iovec, outcome: &mut Outcome) -> Attempt {
    let iovec { iov_base: place, iov_len: asked } = part;
    // SAFETY: recv(2) writes at most that many bytes at the pointer.
    // - valid for writes: the caller guarantees it.
    let read = repeated(|| unsafe { recv(descriptor, place, asked, libc::MSG_DONTWAIT) });
    let Ok(read) = usize::try_from(read) else { return not_received(outcome) };
    outcome.bytes = outcome.bytes.saturating_add(count(read));
    if 0 < read && read < asked { Attempt::Drained } else { Attempt::Done }
}

/// Whether a receiver carries out a receive that is about to begin on `line`. While its task is being
/// started, another operation might start before that.
fn is_ready(receiver: &Receiver, line: &Line) -> bool {
    receiver.is_free(line.id) && receiver.task().is_some()
}

/// Returns the key of the packets of `line`, if a receiver can carry out the receive that is about
/// to begin there, on a number that is locked. If there is no receiver, the caller starts one.
pub(crate) fn key(state: &State, port: &CompletionPort, line: &Line) -> Option<usize> {
    let has_receiver = match &state.receiver {
        Some(receiver) => is_ready(receiver, line),
        None => {
            line.is_tcp
                && state.operations.is_empty()
                && state.accept.is_none()
                && state.registered.is_none()
                && port.is_drained_by_short_read(line.id.id())
        }
    };
    state.associated.filter(|it| has_receiver && it.port == line.port).map(|it| it.key)
}

/// Returns the key of the packets of the next receive on a number that is locked, if its receiver
/// is free.
pub(crate) fn key_of_next(state: &State) -> Option<usize> {
    let (receiver, line) = (state.receiver.as_ref()?, state.line?);
    let is_ready = is_ready(receiver, &line);
    state.associated.filter(|it| is_ready && it.port == line.port).map(|it| it.key)
}

/// Tries that receive, which is about to begin on this number, unless a read is known to find no data.
/// Returns its outcome; `None` if it has to wait.
pub(crate) fn try_next(
    state: &State,
    number: &Number,
    descriptor: RawFd,
    receive: &WaitingReceive,
) -> Option<Outcome> {
    let receiver = state.receiver.as_ref().filter(|it| it.notes().may_be_ready())?;
    let mut outcome = Outcome { is_tcp: !number.has_layer(), ..Outcome::default() };
    receiver.notes().begin_attempt();
    // SAFETY: `fill` demands a buffer that can be written.
    // - the program lends it to the receive, which has not ended.
    let attempt = unsafe { fill(descriptor, receive.buffer, &mut outcome) };
    let is_empty = match attempt {
        Attempt::Blocked => true,
        // Another layer gives a short read another meaning.
        Attempt::Drained => outcome.is_tcp && receiver.is_drained_by_short_read(),
        _ => false,
    };
    if !is_empty {
        receiver.notes().note_ready();
    }
    matches!(attempt, Attempt::Done | Attempt::Drained).then_some(outcome)
}

/// Begins that receive. It waits.
pub(crate) fn continue_with(mut state: MutexGuard<'_, State>, receive: WaitingReceive) {
    let state_of = &mut *state;
    let (Some(receiver), Some(line)) = (&mut state_of.receiver, state_of.line) else { return };
    let address = receive.address();
    let WaitBegun { may_have_data, is_watched } = receiver.wait(receive);
    let (name, thread, accept, is_called_off) = (None, this_thread(), 0, false);
    let (port, side) = (line.port, Side::In);
    let in_flight = InFlight { port, name, side, thread, accept, is_called_off };
    state_of.operations.insert(address, in_flight);
    drop(state);
    if (!is_watched || may_have_data)
        && let Some(port) = port_of(line.port)
    {
        if may_have_data {
            port.raw().retry(line.id, Side::In);
        }
        driver::watch(&port);
    }
}

/// A receiver's task.
pub(crate) struct Task {
    receiver: u64,
    port: Arc<CompletionPort>,
    line: Id,
    number: &'static Number,
    descriptor: RawFd,
    /// The epoch of the number in which it was started.
    epoch: u32,
    notes: Arc<EdgeNotes>,
    has_ended: bool,
}

impl Task {
    /// Its receiver, unless that has ended, in the entry of its number, which is locked.
    fn receiver<'s>(&self, state: &'s mut State) -> Option<&'s mut Receiver> {
        state.receiver.as_mut().filter(|receiver| receiver.name() == self.receiver)
    }

    /// The port has ended it.
    fn finish(&mut self, ending: Ending) {
        if std::mem::replace(&mut self.has_ended, true) {
            return;
        }
        let mut state = self.number.lock();
        let Some(receive) = self.receiver(&mut state).map(Receiver::take) else { return };
        state.receiver = None;
        let Some(receive) = receive else { return };
        state.operations.remove(receive.address());
        // Shut down by this process if the task is done: as if it had received nothing.
        let is_current = self.number.epoch() == self.epoch;
        let outcome = Outcome { is_tcp: true, ..Outcome::default() };
        let (ended, outcome) = match ending {
            Ending::Done if is_current => self.end_of(&mut state, self.descriptor, outcome),
            Ending::Failed => (status::UNSUCCESSFUL, outcome),
            _ => (status::CANCELLED, outcome),
        };
        drop(state);
        end_receive(receive, &*self.port, ended, outcome);
    }

    /// The status of a receive with this outcome, on its number, which is locked.
    fn end_of(&self, state: &mut State, descriptor: c_int, outcome: Outcome) -> (u32, Outcome) {
        let Outcome { errno, bytes, is_tcp, .. } = outcome;
        let errno = match errno {
            0 if bytes == 0 => why_ended(state, self.number, descriptor, is_tcp),
            errno => errno,
        };
        let ended = match errno {
            0 => status::SUCCESS,
            libc::ECANCELED => status::CANCELLED,
            errno => status_of_transfer(state, descriptor, errno),
        };
        (ended, Outcome { errno, ..outcome })
    }
}

/// What a task has done.
enum Attempted {
    /// It has carried out a receive, and there may be more data.
    Received,
    /// It has nothing more to do now.
    Finished(Attempt),
}

impl Task {
    /// Carries out the receive that waits, if there is data.
    fn attempt_one(&self, descriptor: RawFd) -> Attempted {
        let mut state = self.number.lock();
        if self.number.epoch() != self.epoch {
            // The socket is gone, and another one has its number.
            return Attempted::Finished(Attempt::Done);
        }
        let Some(receiver) = self.receiver(&mut state) else {
            return Attempted::Finished(Attempt::Done);
        };
        let Some(receive) = receiver.waiting() else {
            if !self.port.is_drained_by_short_read(self.line) {
                state.receiver = None;
                return Attempted::Finished(Attempt::Done);
            }
            return Attempted::Finished(Attempt::Idle);
        };
        receiver.notes().begin_attempt();
        let mut outcome = Outcome { is_tcp: !self.number.has_layer(), ..Outcome::default() };
        // SAFETY: `fill` demands a buffer that can be written.
        // - the program lends it to the receive, which has not ended.
        let attempt = unsafe { fill(descriptor, receive.buffer, &mut outcome) };
        if matches!(attempt, Attempt::Blocked | Attempt::OutOfResources) {
            return Attempted::Finished(attempt);
        }
        let Some(receive) = receiver.take() else { return Attempted::Finished(Attempt::Idle) };
        // Another layer gives a short read another meaning.
        let is_plain = self.port.is_drained_by_short_read(self.line);
        let is_empty = attempt == Attempt::Drained && outcome.is_tcp && is_plain;
        let is_over = receiver.is_over() || !is_plain;
        if is_over {
            state.receiver = None;
        }
        state.operations.remove(receive.address());
        let (ended, outcome) = self.end_of(&mut state, descriptor, outcome);
        drop(state);
        end_receive(receive, &*self.port, ended, outcome);
        match (is_over, is_empty) {
            (true, true) => Attempted::Finished(Attempt::Drained),
            (true, false) => Attempted::Finished(Attempt::Done),
            (false, true) => Attempted::Finished(Attempt::Blocked),
            (false, false) => Attempted::Received,
        }
    }
}

impl PortOperation for Task {
    fn attempt(&mut self, descriptor: RawFd) -> Attempt {
        loop {
            // A receive that begins after the last one was taken waits, until that one has been
            // reported: only then there may be data.
            if !self.notes.edge() && self.port.is_drained_by_short_read(self.line) {
                return Attempt::Idle;
            }
            match self.attempt_one(descriptor) {
                Attempted::Received => {}
                Attempted::Finished(attempt) => return attempt,
            }
        }
    }

    fn begins_unasked(&self) -> bool {
        false
    }

    fn end(mut self: Box<Self>, ending: Ending) {
        self.finish(ending);
    }

    fn conclude(mut self: Box<Self>, _: bool, _: Told) -> Begun {
        self.finish(Ending::Done);
        Begun::Pending
    }

    fn withdraw(self: Box<Self>) {}
}

impl Drop for Task {
    fn drop(&mut self) {
        // If its port has been dropped; otherwise its receiver has ended.
        self.finish(Ending::Closed);
    }
}

/// Starts a receiver with this receive on the number whose entry is locked by `state`. Fails if the
/// receive is not started.
pub(crate) fn start(
    port: &Arc<CompletionPort>,
    line: &Line,
    target: (&'static Number, RawFd),
    mut state: MutexGuard<'_, State>,
    receive: WaitingReceive,
    in_flight: InFlight,
) -> Result<(), Error> {
    let task = make(port, line, target, &mut state, receive, in_flight);
    // The attempt, perhaps in this thread and before the task has a name, locks the number.
    drop(state);
    start_task(port, line, task)
}

/// Makes the receiver. Returns its task, which the caller starts when the number is not locked.
pub(crate) fn make(
    port: &Arc<CompletionPort>,
    line: &Line,
    target: (&'static Number, RawFd),
    state: &mut State,
    receive: WaitingReceive,
    in_flight: InFlight,
) -> Task {
    static RECEIVERS: AtomicU64 = AtomicU64::new(1);
    let name = RECEIVERS.fetch_add(1, Relaxed);
    state.operations.insert(receive.address(), in_flight);
    let own: Arc<CompletionPort> = Arc::clone(port);
    let receiver = state.receiver.insert(Receiver::new(name, line.id, own, receive));
    let (number, descriptor) = target;
    Task {
        receiver: name,
        port: Arc::clone(port),
        line: line.id.id(),
        number,
        descriptor,
        epoch: number.epoch(),
        notes: Arc::clone(receiver.notes()),
        has_ended: false,
    }
}

/// Starts the task of a receiver. Fails if the receive is not started.
pub(crate) fn start_task(port: &Arc<CompletionPort>, line: &Line, task: Task) -> Result<(), Error> {
    let (receiver, number) = (task.receiver, task.number);
    match port.raw().start_task(line.id, Side::In, BoxedOperation(Box::new(task))) {
        Ok(Started::InFlight(name)) => {
            let mut state = number.lock();
            match state.receiver.as_mut().filter(|it| it.name() == receiver) {
                Some(receiver) => {
                    receiver.begin(name);
                    port.raw().keep_edge_notes(name, receiver.notes());
                }
                None => {
                    drop(state);
                    // It has ended meanwhile, which its task does not know.
                    let _ = port.cancel(name);
                }
            }
        }
        Ok(Started::Completed((task, ending))) => task.0.end(ending),
        Err(refused) => {
            let (error, task) = refused.into_parts();
            let mut state = number.lock();
            let receiver = state.receiver.take_if(|it| it.name() == receiver);
            let is_new = receiver.as_ref().is_some_and(Receiver::is_new);
            let receive = receiver.and_then(|mut receiver| receiver.take());
            if let Some(receive) = &receive {
                state.operations.remove(receive.address());
            }
            drop(state);
            drop(task);
            match receive {
                Some(_) if is_new => {
                    port.end_operation();
                    return Err(error);
                }
                // Another thread has cancelled it, and begun this one.
                Some(receive) => {
                    end_receive(receive, &**port, status::CANCELLED, Outcome::default());
                }
                None => {}
            }
        }
    }
    port.raw().run_deferred();
    driver::watch(port);
    Ok(())
}
