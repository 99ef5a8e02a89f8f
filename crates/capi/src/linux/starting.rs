//! How an operation starts: the checks of its call, and the ways in which it may end within that.
//!
//! Most operations end immediately and need no memory. Sends, and receives that the socket's
//! [receiver](super::receiving) can carry out, are then tried without a lock of the port, and the first
//! accept without one of its listener's number. A receive that waits is left to the receiver. Only the
//! rest become tasks of the port.

use std::ffi::c_int;
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::atomic::{Ordering::Relaxed, Ordering::Release};
use std::sync::{Arc, MutexGuard};

use completion_port::raw::{Attempt, Side};
use completion_port::{Error, ErrorKind, SharedId, Started};

use crate::abi::Overlapped;
use crate::errors::{code, code_of};
use crate::handles;
use crate::linux::errno::code_of_errno;
use crate::linux::numbers::{self, InFlight, Line, Number, State};
use crate::linux::operations::{
    Operation, Packet, Recipients, SKIP_PACKET_ON_SUCCESS, Target, Wake, Work, enable_held, line,
    look_at,
};
use crate::linux::port::{Begun, BoxedOperation, CompletionPort, Outcome, Told};
use crate::linux::receiver::WaitingReceive;
use crate::linux::registrations::Ended;
use crate::linux::waitable::Waitable;
use crate::linux::waits::{this_thread, wake_waiting};
use crate::linux::{driver, memory, object, receiving, registrations, status};

/// The arguments of a call that starts an operation, without its work.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start {
    pub(crate) descriptor: c_int,
    pub(crate) overlapped: *mut Overlapped,
    pub(crate) side: Side,
    /// The OVERLAPPED receives flags.
    pub(crate) tells_flags: bool,
    pub(crate) told: Told,
    /// The name of an accept, as in [`numbers::Acceptance`]; 0 for other operations.
    pub(crate) accept: u64,
}

/// Starts an operation. Returns the code of the call if nothing was started.
///
/// # Safety
///
/// `overlapped` is null, or points to an OVERLAPPED that stays valid until its status is no longer
/// that of an operation in progress. The pointers of `told` are null or point to numbers.
pub(crate) unsafe fn start(start: Start, work: impl Work) -> Result<Begun, u32> {
    let mut ended = None;
    // SAFETY: `begin` demands what this call demands.
    let begun = unsafe { begin(start, work, &mut ended) };
    if let Some(ended) = ended {
        ended.tell();
    }
    begun
}

/// The same. The caller reports the operations that have `ended`.
///
/// # Safety
///
/// As for [`start`].
unsafe fn begin(
    start: Start,
    mut work: impl Work,
    ended: &mut Option<Ended>,
) -> Result<Begun, u32> {
    let Start { descriptor, .. } = start;
    let overlapped = NonNull::new(start.overlapped).ok_or(code::INVALID_PARAMETER)?;
    if !memory::may_be(start.overlapped) {
        return Err(code::WSAEFAULT);
    }
    // SAFETY: a shared reference demands a value that lives on and changes only as its type allows.
    // - lives on: the caller guarantees it;
    // - not changed: the program has lent it, and an operation that already has it writes only
    //   atomic words.
    let (event, has_packet) = object::event_of(unsafe { overlapped.as_ref() })?;
    let number = numbers::entry(descriptor).ok_or(code::WSAENOTSOCK)?;
    let mut state = number.lock();
    if state.is_closing(descriptor) {
        return Err(code::WSAENOTSOCK);
    }
    if let Some(other) = look_at(&mut state, number, descriptor) {
        *ended = Some(other);
    }
    if state.operations.contains(overlapped.as_ptr().addr()) {
        return Err(code::WSAEINVAL);
    }
    if state.is_connecting() {
        let errno = if work.connects() { libc::EINVAL } else { libc::ENOTCONN };
        return Err(code_of_errno(errno));
    }
    if let Some(event) = &event {
        event.reset();
    }
    let call = Call { start, overlapped, number, event, has_packet };
    call.words().bytes.store(0, Relaxed);
    call.words().status.store(status::PENDING as usize, Release);
    let tried = match call.receive(&work, &state, receiving::key_of_next) {
        Some(receive) => match receiving::try_next(&state, number, descriptor, &receive) {
            None => {
                receiving::continue_with(state, receive);
                return Ok(Begun::Pending);
            }
            Some(outcome) => Some((true, outcome)),
        },
        None => call.send(&mut work, &state),
    };
    match tried {
        // An error, the end of a stream and a send of nothing take the long way.
        Some((true, outcome)) if outcome.errno == 0 && outcome.bytes > 0 => {
            call.succeed(&state, outcome);
            Ok(Begun::Done)
        }
        _ => call.begin_on_line(work, state, tried),
    }
}

/// A call that starts an operation and has passed its checks.
struct Call {
    start: Start,
    overlapped: NonNull<Overlapped>,
    number: &'static Number,
    event: Option<Arc<Waitable>>,
    /// A packet reports the operation.
    has_packet: bool,
}

impl Call {
    fn words(&self) -> &Overlapped {
        // SAFETY: a shared reference demands a value that lives on and changes only as its type
        // allows.
        // - lives on: the program keeps it valid until it has seen the end, as `start` demands, and
        //   this is not used after that was written;
        // - not changed: the words that are written are atomic.
        unsafe { self.overlapped.as_ref() }
    }

    /// Returns the receive that is to start, if a receiver can carry it out: it is suitable, and
    /// `key` returns the key of its packet.
    fn receive(
        &self,
        work: &impl Work,
        state: &State,
        key: impl FnOnce(&State) -> Option<usize>,
    ) -> Option<WaitingReceive> {
        let is_plain = self.start.tells_flags && self.has_packet && self.event.is_none();
        let buffer = work.only_buffer().filter(|it| is_plain && receiving::is_suitable(it))?;
        Some(WaitingReceive { overlapped: self.overlapped, buffer, key: key(state)? })
    }

    /// Tries a send whose socket has a receiver, which has the port. Returns whether it is done, and
    /// its outcome so far; `None` if it was not tried.
    fn send(&self, work: &mut impl Work, state: &State) -> Option<(bool, Outcome)> {
        if self.event.is_some() || !work.is_plain_send() {
            return None;
        }
        let line = state.line.filter(|_| state.registered.is_none())?;
        state.associated.filter(|it| it.port == line.port)?;
        let receiver = state.receiver.as_ref().filter(|it| it.is_on(line.id))?;
        let is_tcp = line.is_tcp && !self.number.has_layer();
        let mut outcome = Outcome { is_tcp, ..Outcome::default() };
        let mut is_tried = false;
        let is_done = receiver.port().send(line.id, &mut |descriptor| {
            is_tried = true;
            work.attempt(descriptor, &mut outcome)
        });
        is_tried.then_some((is_done, outcome))
    }

    /// Reports the success of such a send, or of a receive of the receiver.
    fn succeed(&self, state: &State, outcome: Outcome) {
        let Self { overlapped, .. } = *self;
        // Before the end is reported: the program may reuse the memory after that.
        self.start.told.write(outcome);
        if self.start.tells_flags {
            self.words().offset.store(outcome.flags, Relaxed);
        }
        self.words().bytes.store(outcome.bytes as usize, Relaxed);
        self.words().status.store(status::SUCCESS as usize, Release);
        wake_waiting(overlapped.as_ptr());
        // The number stays locked until then: the next receive that finds data is reported later.
        if let (Some(receiver), Some(it)) = (&state.receiver, state.associated)
            && self.has_packet
            && state.chosen.modes & SKIP_PACKET_ON_SUCCESS == 0
        {
            receiver.port().post_ended(outcome.bytes, it.key, overlapped, status::SUCCESS);
        }
    }

    /// Starts the operation on the line of its number. `tried`: whether it is done, and its outcome so
    /// far; `None` if it was not tried.
    fn begin_on_line<W: Work>(
        self,
        mut work: W,
        mut state: MutexGuard<'_, State>,
        tried: Option<(bool, Outcome)>,
    ) -> Result<Begun, u32> {
        let Self { number, start: Start { descriptor, side, .. }, .. } = self;
        let address = self.overlapped.as_ptr().addr();
        let (port, line) =
            find_line(&mut state, number, descriptor, &work).inspect_err(|_| self.refuse())?;
        let is_listed = work.is_listed();
        if is_listed {
            state.operations.insert(address, self.in_flight(&line));
        }
        if work.connects() {
            state.begin_connect(address);
        }
        work.prepare(|| Wake { port: Arc::clone(&port), line: line.id, side });
        let receive = self.receive(&work, &state, |state| receiving::key(state, &port, &line));
        if side == Side::In && receive.is_none() {
            registrations::end_receiver(&mut state, &port, line.id);
        }
        let mut operation = Operation {
            work,
            recipients: None,
            outcome: tried.map(|(_, outcome)| outcome).unwrap_or_default(),
            // After the look-up, which may have changed the number's meaning.
            target: Target { descriptor, number, epoch: number.epoch() },
            is_tcp: line.is_tcp,
        };
        if operation.work.starts_unlocked() && state.registered.is_none() {
            // Behind other operations it usually isn't tried.
            return match state.operations.is_empty() {
                true => self.begin_unlocked(operation, state, &port, &line),
                false => self.start_task(operation, state, port, &line),
            };
        }
        // Most end immediately, and need no task in the port.
        let reports = state.registered.is_some();
        let is_done = match tried {
            Some((is_done, _)) => is_done,
            None => !is_listed && is_done_at_once(&port, line.id, side, reports, &mut operation),
        };
        if is_done {
            enable_held(&mut state, number, descriptor, &port);
            return Ok(self.end(operation, state, port, &line));
        }
        if let Some(receive) = receive {
            return self.wait(state, &port, &line, receive);
        }
        self.start_task(operation, state, port, &line)
    }

    /// Tries the operation without the number's lock, and starts it if it has to wait.
    fn begin_unlocked<W: Work>(
        self,
        mut operation: Operation<W>,
        mut state: MutexGuard<'_, State>,
        port: &Arc<CompletionPort>,
        line: &Line,
    ) -> Result<Begun, u32> {
        let Self { number, start: Start { descriptor, side, .. }, .. } = self;
        let (packet, reports_success) = self.packet(&mut state, line);
        drop(state);
        // If the number's meaning has changed, the line has ended, so its state no longer matters.
        let attempt =
            |descriptor| operation.attempt_unlocked(descriptor).unwrap_or(Attempt::Blocked);
        if port.raw().try_now(line.id, side, attempt) {
            return Ok(self.conclude(operation, Arc::clone(port), packet, reports_success));
        }
        // Another operation may have begun meanwhile.
        port.raw().run_deferred();
        let mut state = number.lock();
        if state.operations.contains(self.overlapped.as_ptr().addr()) {
            return Err(code::WSAEINVAL);
        }
        if state.is_closing(descriptor) {
            self.refuse();
            return Err(code::WSAENOTSOCK);
        }
        let (port, line) = find_line(&mut state, number, descriptor, &operation.work)
            .inspect_err(|_| self.refuse())?;
        operation.target.epoch = number.epoch();
        operation.is_tcp = line.is_tcp;
        self.start_task(operation, state, port, &line)
    }

    /// The operation, as the entry of its number stores it before it has a name.
    fn in_flight(&self, line: &Line) -> InFlight {
        let (name, accept, is_called_off) = (None, self.start.accept, false);
        let (port, side, thread) = (line.port, self.start.side, this_thread());
        InFlight { port, name, side, thread, accept, is_called_off }
    }

    /// The destination of the packet, and whether a success that the call returns has one, too.
    fn packet(&self, state: &mut State, line: &Line) -> (Packet, bool) {
        let packet = match self.has_packet {
            true => packet(state, self.start.descriptor, line),
            false => Packet::None,
        };
        (packet, state.chosen.modes & SKIP_PACKET_ON_SUCCESS == 0)
    }

    fn recipients<W: Work>(
        self,
        operation: &Operation<W>,
        port: Arc<CompletionPort>,
        packet: Packet,
    ) -> Recipients {
        let Self { overlapped, number, event, start: Start { tells_flags, .. }, .. } = self;
        let is_listed = operation.work.is_listed();
        Recipients { overlapped, number, is_listed, event, port, packet, tells_flags }
    }

    /// Nothing is started.
    fn refuse(&self) {
        self.words().status.store(status::UNSUCCESSFUL as usize, Release);
    }

    /// Ends an operation that is done.
    fn end<W: Work>(
        self,
        operation: Operation<W>,
        mut state: MutexGuard<'_, State>,
        port: Arc<CompletionPort>,
        line: &Line,
    ) -> Begun {
        // The usual success needs no packet.
        let is_unreported = state.chosen.modes & SKIP_PACKET_ON_SUCCESS != 0
            && operation.outcome.errno == 0
            && !operation.work.succeeds_by_packet();
        let (packet, reports_success) = match is_unreported {
            true => (Packet::None, false),
            false => self.packet(&mut state, line),
        };
        drop(state);
        self.conclude(operation, port, packet, reports_success)
    }

    /// The same without the number's lock. A success has the packet if the call `reports_success`.
    fn conclude<W: Work>(
        self,
        mut operation: Operation<W>,
        port: Arc<CompletionPort>,
        packet: Packet,
        reports_success: bool,
    ) -> Begun {
        let told = self.start.told;
        let recipients = self.recipients(&operation, port, packet);
        let (begun, port) = operation.conclude(recipients, reports_success, told);
        if let Some(port) = port {
            port.raw().run_deferred();
        }
        begun
    }

    /// Makes a receiver, in which a receive waits. The number has none: that would have tried the
    /// receive, and let it wait.
    fn wait(
        &self,
        state: MutexGuard<'_, State>,
        port: &Arc<CompletionPort>,
        line: &Line,
        receive: WaitingReceive,
    ) -> Result<Begun, u32> {
        let Self { number, start: Start { descriptor, .. }, .. } = *self;
        debug_assert!(state.receiver.is_none(), "it has ended, or has tried the receive");
        let (socket, in_flight) = ((number, descriptor), self.in_flight(line));
        let started = receiving::start(port, line, socket, state, receive, in_flight);
        let started = started.map(|()| Begun::Pending).map_err(code_of_refusal);
        started.inspect_err(|_| self.refuse())
    }

    /// Starts a task of the port.
    fn start_task<W: Work>(
        self,
        mut operation: Operation<W>,
        mut state: MutexGuard<'_, State>,
        port: Arc<CompletionPort>,
        line: &Line,
    ) -> Result<Begun, u32> {
        let Self { number, start: Start { descriptor, side, told, .. }, .. } = self;
        let address = self.overlapped.as_ptr().addr();
        operation.work.becomes_task();
        let (packet, reports_success) = self.packet(&mut state, line);
        let in_flight = self.in_flight(line);
        operation.recipients = Some(self.recipients(&operation, Arc::clone(&port), packet));
        let is_listed = operation.work.is_listed();
        let operation = Box::write(state.spare_memory.boxed(), operation);
        // The number stays locked. So a thread that cancels the operation finds its name, and the
        // thread that ends it finds its entry.
        let started = port.raw().start_task(line.id, side, BoxedOperation(operation));
        enable_held(&mut state, number, descriptor, &port);
        match started {
            Ok(Started::Completed((operation, _))) => {
                drop(state);
                let begun = operation.0.conclude(reports_success, told);
                port.raw().run_deferred();
                Ok(begun)
            }
            Ok(Started::InFlight(name)) => {
                port.begin_operation();
                if is_listed {
                    if let Some(operation) = state.operations.get_mut(address) {
                        operation.name = Some(name);
                    }
                } else {
                    state.operations.insert(address, InFlight { name: Some(name), ..in_flight });
                }
                drop(state);
                port.raw().run_deferred();
                driver::watch(&port);
                Ok(Begun::Pending)
            }
            Err(refused) => {
                let (error, operation) = refused.into_parts();
                state.operations.remove(address);
                drop(state);
                operation.0.withdraw();
                port.raw().run_deferred();
                Err(code_of_refusal(error))
            }
        }
    }
}

/// The [line] of a number on which this work is about to start.
fn find_line(
    state: &mut State,
    number: &'static Number,
    descriptor: RawFd,
    work: &impl Work,
) -> Result<(Arc<CompletionPort>, Line), u32> {
    let found = line(state, number, descriptor)?;
    found.0.expect_operations();
    work.prepare_socket(number, descriptor)?;
    Ok(found)
}

/// The code of a call whose operation the port has refused.
fn code_of_refusal(error: Error) -> u32 {
    match error.kind() {
        ErrorKind::Closed | ErrorKind::NotRegistered | ErrorKind::Removing => code::WSAENOTSOCK,
        _ => code_of(error),
    }
}

/// Tries an operation that is about to start on a number that is locked. Returns whether it is done.
/// `reports`: the number is also registered.
fn is_done_at_once<W: Work>(
    port: &CompletionPort,
    line: SharedId,
    side: Side,
    reports: bool,
    operation: &mut Operation<W>,
) -> bool {
    let attempt = |descriptor| operation.attempt_locked(descriptor);
    match side {
        // Any other send starts, and the line changes, with the number locked.
        Side::Out if !reports => port.raw().try_exclusively(line, side, attempt),
        // The part of an accept that waits for first data starts without the lock of its
        // connection's number. And the port learns whether a receive has left data.
        _ => port.raw().try_now(line, side, attempt),
    }
}

/// Returns the destination of the packet of an operation that is about to begin on `line`.
fn packet(state: &mut State, descriptor: RawFd, line: &Line) -> Packet {
    match state.associated {
        Some(it) if it.port == line.port => return Packet::To(None, it.key),
        Some(it) => {
            if let Some(port) = handles::port_named(it.port) {
                return Packet::To(Some(port), it.key);
            }
        }
        None => {}
    }
    Packet::Later(state.later(descriptor))
}
