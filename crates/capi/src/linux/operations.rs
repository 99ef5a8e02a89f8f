//! Overlapped operations of all kinds: how they continue, end and are cancelled.
//!
//! An operation consists of a [`Work`], which the port's threads try until it is done, and a
//! [`Recipients`], which learn of its end: the OVERLAPPED, the event and the port. The thread
//! that ends it writes the OVERLAPPED, the status last, and never touches it afterwards: the
//! program may free it as soon as it has seen the status. So packets contain copies of their
//! values.
//!
//! The entry of a number stores its operations in flight by the addresses of their OVERLAPPEDs.
//! Cancellation finds them there, and so does the check against using one OVERLAPPED twice.

use std::ffi::{c_int, c_void};
use std::os::fd::RawFd;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{Ordering::Relaxed, Ordering::Release};

use completion_port::raw::{Attempt, Ending, Hints, Side};
use completion_port::{Interest, OneShot, SharedId, Started};
use libc::iovec;

use crate::abi::{Handle, Overlapped, trigger};
use crate::errors::{code, code_of, set_last, succeeds};
use crate::handles;
use crate::linux::errno::code_of_errno;
use crate::linux::later::Later;
use crate::linux::numbers::{self, Acceptance, Key, Line, Number, Registered, State};
use crate::linux::object;
use crate::linux::port::{Begun, BoxedOperation, CompletionPort, Outcome, PortOperation, Told};
use crate::linux::registrations::Ended;
use crate::linux::spare_memory::Emptied;
use crate::linux::waitable::Waitable;
use crate::linux::waits::wake_waiting;
use crate::linux::{descriptors, driver, file_operations, registrations, status};
use crate::requests::Terms;

/// `FILE_SKIP_COMPLETION_PORT_ON_SUCCESS`, and `FILE_SKIP_SET_EVENT_ON_HANDLE`, which requests a
/// behaviour of the handle's own event that is always in effect here.
pub(crate) const SKIP_PACKET_ON_SUCCESS: u8 = 1;
pub(crate) const SKIP_EVENT_ON_HANDLE: u8 = 2;

/// Retries an operation that waits for something other than its socket, once that is available.
#[derive(Clone)]
pub(crate) struct Wake {
    pub(crate) port: Arc<CompletionPort>,
    pub(crate) line: SharedId,
    pub(crate) side: Side,
}

impl Wake {
    /// May be called by any thread that holds no lock of a port.
    pub(crate) fn wake(&self) {
        self.port.raw().retry(self.line, self.side);
    }
}

/// The work of an operation.
pub(crate) trait Work: Send + 'static {
    /// Called before the first attempt, with the number locked.
    fn prepare(&mut self, wake: impl FnOnce() -> Wake)
    where
        Self: Sized,
    {
        let _ = wake;
    }

    /// Whether it is in its number's entry during the first attempt, because its attempt or its end
    /// needs it there.
    fn is_listed(&self) -> bool {
        true
    }

    /// Whether the call that starts it tries it without the number's lock, because other threads
    /// start operations on the same number. Such an operation is not listed. If the number is also
    /// registered or has other operations, the call keeps the lock.
    fn starts_unlocked(&self) -> bool {
        false
    }

    /// Prepares the socket of a number for it, which is locked. Fails if it is none for this work. A
    /// number may name another socket than the call has checked.
    fn prepare_socket(&self, number: &Number, descriptor: RawFd) -> Result<(), u32> {
        let _ = (number, descriptor);
        Ok(())
    }

    /// It becomes a task of the port, and may end after the call that starts it.
    fn becomes_task(&mut self) {}

    /// Tries it on the number's current socket, without blocking and without any lock. `outcome` is
    /// the result of former attempts.
    fn attempt(&mut self, descriptor: RawFd, outcome: &mut Outcome) -> Attempt;

    /// The only buffer of a receive that has neither flags nor room for an address.
    fn only_buffer(&self) -> Option<iovec> {
        None
    }

    /// Whether it is a send of one buffer to the peer, whose attempt is all there is to it.
    fn is_plain_send(&self) -> bool {
        false
    }

    /// Whether its first attempt does not wait for readiness: it starts the work, or does all of
    /// it.
    fn begins_unasked(&self) -> bool {
        false
    }

    /// It has ended, and no lock is held: does the remaining work and returns the result.
    fn finish(&mut self, target: Target, outcome: Outcome) -> Outcome {
        let _ = target;
        outcome
    }

    /// Whether the call that begins it returns `WSA_IO_PENDING` even if it has already succeeded. A packet then always
    /// reports the success.
    fn succeeds_by_packet(&self) -> bool {
        false
    }

    /// Whether a packet reports a failure that the call itself has detected.
    fn fails_by_packet(&self, outcome: Outcome) -> bool {
        let _ = outcome;
        false
    }

    /// Whether it is a connect: nothing else starts before its end.
    fn connects(&self) -> bool {
        false
    }

    /// It has ended for another reason: releases what it holds.
    fn give_up(&mut self) {}

    /// The same for one that was in flight on `target`.
    fn call_off(&mut self, target: Target) {
        let _ = target;
        self.give_up();
    }

    /// The next step after a success, with which the operation continues.
    fn next(&mut self) -> Option<Next> {
        None
    }

    /// The status for a system error of this operation. No lock is held.
    fn status(&self, target: Target, errno: c_int) -> u32 {
        let _ = target;
        status::of_errno(errno)
    }
}

/// The next step of an accept.
pub(crate) struct Next {
    /// The descriptor of the connection.
    pub(crate) descriptor: RawFd,
    /// The accept in the entry of that number, while no thread has closed it.
    pub(crate) accept: Acceptance,
    pub(crate) work: Box<dyn Work>,
}

/// The socket of an operation: a descriptor, and the epoch of its number.
#[derive(Clone, Copy)]
pub(crate) struct Target {
    pub(crate) descriptor: RawFd,
    pub(crate) number: &'static Number,
    pub(crate) epoch: u32,
}

impl Target {
    /// The descriptor's current socket.
    pub(crate) fn of(descriptor: RawFd) -> Result<Self, u32> {
        let number = numbers::entry(descriptor).ok_or(code::WSAENOTSOCK)?;
        Ok(Self { descriptor, number, epoch: number.epoch() })
    }

    /// Calls `f` with the number locked, if its meaning has not changed since the operation was
    /// started. A later socket with that number is unrelated.
    pub(crate) fn if_current<R>(self, f: impl FnOnce(&mut State) -> R) -> Option<R> {
        self.number.if_current(self.epoch, f)
    }
}

impl Work for Box<dyn Work> {
    fn attempt(&mut self, descriptor: RawFd, outcome: &mut Outcome) -> Attempt {
        (**self).attempt(descriptor, outcome)
    }

    fn begins_unasked(&self) -> bool {
        (**self).begins_unasked()
    }

    fn finish(&mut self, target: Target, outcome: Outcome) -> Outcome {
        (**self).finish(target, outcome)
    }

    fn give_up(&mut self) {
        (**self).give_up();
    }

    fn call_off(&mut self, target: Target) {
        (**self).call_off(target);
    }

    fn next(&mut self) -> Option<Next> {
        (**self).next()
    }

    fn status(&self, target: Target, errno: c_int) -> u32 {
        (**self).status(target, errno)
    }
}

/// The destination of an operation's packet.
pub(crate) enum Packet {
    /// No packet.
    None,
    /// This port, or the one that carries out the operation, with this key.
    To(Option<Arc<CompletionPort>>, usize),
    /// The operation began without an association.
    Later(Arc<Later>),
}

/// The recipients of an operation's end.
pub(crate) struct Recipients {
    pub(crate) overlapped: NonNull<Overlapped>,
    /// The entry that has the operation, if any.
    pub(crate) number: &'static Number,
    pub(crate) is_listed: bool,
    pub(crate) event: Option<Arc<Waitable>>,
    /// The port that performs it.
    pub(crate) port: Arc<CompletionPort>,
    pub(crate) packet: Packet,
    /// The OVERLAPPED receives flags.
    pub(crate) tells_flags: bool,
}

// SAFETY: recipients may be used by a thread other than their creator, although they have a pointer.
// - the OVERLAPPED is only written, with atomic stores, and the program keeps it valid until it has
//   seen the end, as `starting::start` demands.
unsafe impl Send for Recipients {}

impl Recipients {
    fn overlapped(&self) -> &Overlapped {
        // SAFETY: a shared reference demands a value that lives on and changes only as its type
        // allows.
        // - lives on: the program keeps it valid until it has seen the end, as `starting::start`
        //   demands, and the recipients are not used after that;
        // - not changed: the words that are written are atomic.
        unsafe { self.overlapped.as_ref() }
    }

    /// Removes the operation from its number's entry. The next one may reuse its memory.
    fn strike(&self, emptied: Option<Emptied>) {
        if self.is_listed {
            let spare = {
                let mut state = self.number.lock();
                state.operations.remove(self.overlapped.as_ptr().addr());
                emptied.and_then(|emptied| state.spare_memory.keep(emptied))
            };
            drop(spare);
        }
    }

    /// The operation is not started.
    fn refuse(&self) {
        self.overlapped().status.store(status::UNSUCCESSFUL as usize, Release);
    }

    /// Another port performs the rest of the operation.
    fn move_to(&mut self, port: &Arc<CompletionPort>) {
        let former = std::mem::replace(&mut self.port, Arc::clone(port));
        if let Packet::To(packet_of @ None, _) = &mut self.packet {
            *packet_of = Some(former);
        }
    }

    /// The operation has ended and was dropped, except for its memory: reports the end. Returns the
    /// port that has performed it.
    fn tell(
        self,
        ended: u32,
        outcome: Outcome,
        has_packet: bool,
        emptied: Option<Emptied>,
    ) -> Arc<CompletionPort> {
        self.strike(emptied);
        let overlapped = self.overlapped();
        if self.tells_flags {
            overlapped.offset.store(outcome.flags, Relaxed);
        }
        overlapped.bytes.store(outcome.bytes as usize, Relaxed);
        let Self { overlapped, event, port: carrier, packet, .. } = self;
        // Before the thread checks for waiting threads: a thread that starts to wait checks the
        // status last.
        // SAFETY: as in `overlapped`.
        let end = || unsafe { overlapped.as_ref() }.status.store(ended as usize, Release);
        let packet = match packet {
            Packet::Later(later) => {
                file_operations::port_of_later(&later, end).map(|(port, key)| (Some(port), key))
            }
            Packet::To(port, key) => {
                end();
                Some((port, key))
            }
            Packet::None => {
                end();
                None
            }
        };
        // From here on the program may have freed it.
        if let Some(event) = event {
            event.set();
        }
        wake_waiting(overlapped.as_ptr());
        if let Some((port, key)) = packet.filter(|_| has_packet) {
            // Fails if the port was closed meanwhile, or if there is no memory.
            let place = overlapped.as_ptr().cast::<c_void>();
            let port = port.as_ref().unwrap_or(&carrier);
            let _ = port.post_end(outcome.bytes, key, place, ended);
        }
        carrier
    }
}

/// An operation, in flight or about to start.
pub(crate) struct Operation<W: Work> {
    pub(crate) work: W,
    /// Taken at the end.
    pub(crate) recipients: Option<Recipients>,
    pub(crate) outcome: Outcome,
    pub(crate) target: Target,
    /// The socket is a TCP stream.
    pub(crate) is_tcp: bool,
}

/// Instead of a system error: a datagram was longer than the buffers.
pub(crate) const CUT: c_int = -1;

impl<W: Work> Operation<W> {
    /// Returns the result of an operation that has ended without being cancelled.
    fn finish(&mut self) -> (u32, Outcome) {
        let outcome = self.work.finish(self.target, self.outcome);
        let ended = match outcome.errno {
            0 => status::SUCCESS,
            CUT => status::CUT,
            libc::ECANCELED => status::CANCELLED,
            errno => self.work.status(self.target, errno),
        };
        (ended, outcome)
    }

    fn next_behind(&mut self, ended: u32) -> Option<Next> {
        if ended == status::SUCCESS { self.work.next() } else { None }
    }

    /// It has ended within the call that starts it: reports the end. A packet reports a success if
    /// it `has_packet`. Also returns the port that has performed it, unless the operation continues.
    pub(crate) fn conclude(
        &mut self,
        recipients: Recipients,
        has_packet: bool,
        told: Told,
    ) -> (Begun, Option<Arc<CompletionPort>>) {
        let (ended, outcome) = self.finish();
        if let Some(next) = self.next_behind(ended) {
            go_on(recipients, next, outcome);
            return (Begun::Pending, None);
        }
        let is_success = status::is_success(ended);
        if is_success && !self.work.succeeds_by_packet() {
            // Before the end is reported: the program may reuse the memory after that.
            told.write(outcome);
            return (Begun::Done, Some(recipients.tell(ended, outcome, has_packet, None)));
        }
        if is_success || ended == status::CUT || self.work.fails_by_packet(outcome) {
            // As if it had waited: the notification modes do not apply.
            return (Begun::Reported, Some(recipients.tell(ended, outcome, true, None)));
        }
        // Only the call reports it.
        recipients.strike(None);
        recipients.overlapped().status.store(ended as usize, Release);
        (failed(ended, outcome.errno), Some(recipients.port))
    }

    /// Tries it in the call that starts it, with the number locked. So the number's meaning does not
    /// change meanwhile.
    pub(crate) fn attempt_locked(&mut self, descriptor: RawFd) -> Attempt {
        self.outcome.is_tcp = self.is_tcp && !self.target.number.has_layer();
        self.work.attempt(descriptor, &mut self.outcome)
    }

    /// The same without that lock. `None` if the number's meaning has changed.
    pub(crate) fn attempt_unlocked(&mut self, descriptor: RawFd) -> Option<Attempt> {
        let Self { work, outcome, target, is_tcp, .. } = self;
        let Target { number, epoch, .. } = *target;
        // Another layer may have been put on the stream meanwhile.
        outcome.is_tcp = *is_tcp && !number.has_layer();
        number.in_epoch(epoch, || work.attempt(descriptor, outcome))
    }

    /// The operation has ended in flight, with the status `ended` or by itself. Returns the values
    /// to report, unless they were reported.
    fn land(&mut self, ended: Option<u32>) -> Option<(Recipients, u32, Outcome)> {
        let mut recipients = self.recipients.take()?;
        recipients.is_listed = true;
        let (ended, outcome) = match ended {
            None => self.finish(),
            Some(ended) => {
                self.work.call_off(self.target);
                // Reports the bytes transferred before.
                (ended, self.outcome)
            }
        };
        recipients.port.end_operation();
        match self.next_behind(ended) {
            None => Some((recipients, ended, outcome)),
            Some(next) => {
                go_on(recipients, next, outcome);
                None
            }
        }
    }
}

impl<W: Work> PortOperation for Operation<W> {
    fn attempt(&mut self, descriptor: RawFd) -> Attempt {
        self.attempt_unlocked(descriptor).unwrap_or_else(|| {
            // The socket is gone, and another one has its number.
            self.outcome.errno = libc::ECANCELED;
            Attempt::Done
        })
    }

    fn begins_unasked(&self) -> bool {
        self.work.begins_unasked()
    }

    fn end(mut self: Box<Self>, ending: Ending) {
        let landed = self.land(match ending {
            Ending::Done => None,
            Ending::Cancelled | Ending::Closed => Some(status::CANCELLED),
            Ending::Failed => Some(status::UNSUCCESSFUL),
        });
        if let Some((recipients, ended, outcome)) = landed {
            recipients.tell(ended, outcome, true, Some(Emptied::new(self)));
        }
    }

    fn conclude(mut self: Box<Self>, has_packet: bool, told: Told) -> Begun {
        match self.recipients.take() {
            Some(recipients) => Self::conclude(&mut self, recipients, has_packet, told).0,
            None => Begun::Pending,
        }
    }

    fn withdraw(mut self: Box<Self>) {
        if let Some(recipients) = self.recipients.take() {
            recipients.refuse();
        }
    }
}

impl<W: Work> Drop for Operation<W> {
    fn drop(&mut self) {
        // Its port has been dropped.
        if let Some((recipients, ended, outcome)) = self.land(Some(status::CANCELLED)) {
            recipients.tell(ended, outcome, true, None);
        }
    }
}

/// Continues an accept with its connection. It is still in the entry of the number it was started
/// on, where no thread holds the lock.
fn go_on(recipients: Recipients, next: Next, outcome: Outcome) {
    let descriptor = next.descriptor;
    let Some((port, target)) = start_next(recipients, next, outcome) else { return };
    let enable = |state: &mut State| enable_held(state, target.number, descriptor, &port);
    // Otherwise a thread has closed the connection.
    let _ = target.if_current(enable);
    port.raw().run_deferred();
}

/// Starts it. Returns the port and the target, unless it has ended first.
fn start_next(
    mut recipients: Recipients,
    next: Next,
    outcome: Outcome,
) -> Option<(Arc<CompletionPort>, Target)> {
    let Next { descriptor, accept, mut work } = next;
    let found = numbers::entry(descriptor).ok_or(status::CANCELLED).and_then(|number| {
        let mut state = number.lock();
        if state.accept != Some(accept) {
            // A thread has closed the connection, and its number may name an unrelated socket.
            return Err(status::CANCELLED);
        }
        let (port, line) =
            line(&mut state, number, descriptor).map_err(|_| status::UNSUCCESSFUL)?;
        // From here on closing the number ends the line, and the epoch with it.
        Ok((port, line, Target { descriptor, number, epoch: number.epoch() }))
    });
    let (port, line, target) = match found {
        Ok(found) => found,
        Err(ended) => {
            work.give_up();
            recipients.tell(ended, outcome, true, None);
            return None;
        }
    };
    let (number, address) = (recipients.number, recipients.overlapped.as_ptr().addr());
    recipients.move_to(&port);
    let operation =
        Operation { work, recipients: Some(recipients), outcome, target, is_tcp: line.is_tcp };
    port.expect_operations();
    port.begin_operation();
    let mut state = number.lock();
    let Some(listed) = state.operations.get_mut(address).filter(|listed| !listed.is_called_off)
    else {
        drop(state);
        // Its number was closed, or it was cancelled while it had no name.
        Box::new(operation).end(Ending::Cancelled);
        return Some((port, target));
    };
    match port.raw().start_task(line.id, Side::In, BoxedOperation(Box::new(operation))) {
        Ok(Started::InFlight(name)) => {
            (listed.port, listed.name) = (line.port, Some(name));
            drop(state);
            driver::watch(&port);
        }
        Ok(Started::Completed((operation, ending))) => {
            drop(state);
            operation.0.end(ending);
        }
        Err(refused) => {
            drop(state);
            refused.into_parts().1.0.end(Ending::Closed);
        }
    }
    Some((port, target))
}

/// The call's result for an operation that failed within it, with this status and this error of the system.
pub(crate) fn failed(ended: u32, errno: c_int) -> Begun {
    match ended {
        status::UNSUCCESSFUL => Begun::Refused(code_of_errno(errno)),
        ended => Begun::Failed(ended),
    }
}

/// The return value of a call that starts an operation: 0, or -1 and the last error.
pub(crate) fn answered(begun: Result<Begun, u32>) -> c_int {
    let code = match begun {
        Ok(Begun::Done) => {
            set_last(code::SUCCESS);
            return 0;
        }
        Ok(Begun::Pending | Begun::Reported) => code::IO_PENDING,
        Ok(Begun::Failed(ended)) => status::code_in_winsock(ended),
        Ok(Begun::Refused(code)) => code,
        Err(code) => code,
    };
    set_last(code);
    -1
}

/// If the number may have another meaning, compares its state with the system. The caller reports
/// the ended operations once the number is not locked.
#[inline]
pub(crate) fn look_at(
    state: &mut State,
    number: &'static Number,
    descriptor: RawFd,
) -> Option<Ended> {
    if registrations::is_believed(number) {
        None
    } else {
        registrations::compare(state, number, descriptor)
    }
}

/// Where a number's operations are performed: on the port of its registration, of its association,
/// or of the driver.
pub(crate) fn line(
    state: &mut State,
    number: &'static Number,
    descriptor: RawFd,
) -> Result<(Arc<CompletionPort>, Line), u32> {
    if let Some(line) = state.line {
        if let Some(port) = registrations::port_of(line.port) {
            return Ok((port, line));
        }
        // A thread of that port may still be in an attempt.
        number.retire_line(state);
    }
    // The association has found it.
    let is_known = state.tcp.is_some()
        && state.associated.map(|it| it.identity) == state.tcp
        && registrations::is_believed(number);
    let is_tcp = is_known || {
        let kind = descriptors::kind(descriptor).ok_or(code::WSAENOTSOCK)?;
        kind == libc::SOCK_STREAM && descriptors::protocol(descriptor) == Ok(libc::IPPROTO_TCP)
    };
    let registered = state.registered.and_then(|it| Some((it, handles::port_named(it.port)?)));
    let registered = match registered {
        Some((registered, _)) if registered.removed.is_some() => return Err(code::WSAEINVAL),
        Some((registered, port)) => {
            let terms = unspent(registered.terms, number);
            // It becomes the registration of the line: a port cannot have two of one socket. Queued
            // events of it are detected again.
            let _ = port.raw().forget(registered.id);
            Some((Registered { terms, ..registered }, port))
        }
        None => None,
    };
    let port = match &registered {
        Some((_, port)) => Arc::clone(port),
        None => {
            let associated = state.associated.and_then(|it| handles::port_named(it.port));
            associated.map_or_else(driver::own_port, Ok)?
        }
    };
    let key = Key { word: 0, is_line: true, number };
    let id = match port.raw().associate_number(descriptor, key) {
        Ok(id) => id,
        Err(refused) => {
            if let Some((registered, port)) = registered {
                state.registered = restored(&port, number, descriptor, registered);
            }
            return Err(code_of(refused.error()));
        }
    };
    let line = Line { port: port.name(), id, is_tcp };
    state.line = Some(line);
    state.registered = registered.map(|(registered, _)| {
        if registered.terms.is_some() {
            number.begin_report();
        }
        Registered { id: id.id(), is_on_line: true, is_held: true, ..registered }
    });
    Ok((port, line))
}

/// Enables a registration that was held until an operation had started. On failure its last packet
/// reports that the registration has ended.
pub(crate) fn enable_held(
    state: &mut State,
    number: &'static Number,
    descriptor: RawFd,
    port: &CompletionPort,
) {
    let Some(registered) = state.registered.filter(|it| it.is_held && it.removed.is_none()) else {
        return;
    };
    let Registered { id, terms, .. } = registered;
    state.registered = Some(Registered { is_held: false, ..registered });
    let enable = |it: Terms| port.raw().enable(id, it.interest, it.trigger(true), Hints::default);
    if terms.is_some_and(|terms| enable(terms).is_err()) {
        state.registered = lost(port, number, descriptor, registered);
    }
}

/// A registration that cannot be created again has ended: its last packet reports this.
fn lost(
    port: &CompletionPort,
    number: &'static Number,
    descriptor: RawFd,
    registered: Registered,
) -> Option<Registered> {
    let Registered { key, id, .. } = registered;
    let removed = Some(descriptors::identity(descriptor));
    let told = port.post_removal(key, number, id);
    told.is_ok().then_some(Registered { removed, terms: None, is_held: false, ..registered })
}

/// The terms for which a registration is still enabled; `None` if it is one-shot and has reported.
fn unspent(terms: Option<Terms>, number: &Number) -> Option<Terms> {
    terms.filter(|terms| terms.triggers & trigger::ONE_SHOT == 0 || !number.is_reported())
}

/// Moves the registration of a replaced socket to the new one. If an operation `begins` on that,
/// the registration is enabled after its start.
pub(crate) fn move_registration(
    state: &mut State,
    number: &'static Number,
    descriptor: RawFd,
    registered: Option<Registered>,
    begins: bool,
) {
    // If its last packet is queued, it has also ended for the new socket.
    let removed = registered.filter(|it| it.removed.is_some());
    let goes_on = registered.filter(|it| it.removed.is_none());
    if goes_on.is_some() {
        // The results of reads and writes concern the former socket.
        number.begin(descriptors::protocol(descriptor) == Ok(libc::IPPROTO_TCP));
    }
    if begins {
        state.registered = goes_on;
        // If there is none, the operation creates it or fails.
        let _ = line(state, number, descriptor);
    } else if let Some(registered) = goes_on
        && let Some(port) = handles::port_named(registered.port)
    {
        let terms = unspent(registered.terms, number);
        let registered = Registered { terms, ..registered };
        state.registered = restored(&port, number, descriptor, registered);
    }
    if let Some(registered) = removed {
        let removed = Some(descriptors::identity(descriptor));
        state.registered = Some(Registered { removed, ..registered });
    }
}

/// Registers a socket again whose line could not be created, or which was replaced. On failure its
/// last packet reports that the registration has ended.
fn restored(
    port: &CompletionPort,
    number: &'static Number,
    descriptor: RawFd,
    registered: Registered,
) -> Option<Registered> {
    let key = Key { word: registered.key, is_line: false, number };
    let (interest, trigger) = match registered.terms {
        Some(terms) => (terms.interest, terms.trigger(false)),
        None => (Interest::NONE, OneShot::Level.into()),
    };
    number.begin_report();
    match port.raw().register_number(descriptor, key, interest, trigger) {
        Ok(id) => {
            if registered.terms.is_none() {
                // It was disabled, or had reported. A registration cannot be created in that state.
                let _ = port.disable(id);
            }
            Some(Registered { id, is_on_line: false, is_held: false, ..registered })
        }
        Err(_) => lost(port, number, descriptor, registered),
    }
}

/// The descriptor of a handle, if it is open.
pub(crate) fn open_descriptor(file: Handle) -> Result<RawFd, u32> {
    let descriptor = RawFd::try_from(file.addr()).map_err(|_| code::INVALID_HANDLE)?;
    if numbers::find(descriptor).is_some_and(registrations::is_believed) {
        return Ok(descriptor);
    }
    // SAFETY: fcntl(2) with F_GETFD demands nothing of memory.
    let flags = unsafe { libc::fcntl(descriptor, libc::F_GETFD) };
    if flags < 0 { Err(code::INVALID_HANDLE) } else { Ok(descriptor) }
}

/// Chooses which successes queue no packet: `SetFileCompletionNotificationModes`.
#[unsafe(no_mangle)]
pub extern "C" fn cp_set_completion_modes(file: Handle, modes: u8) -> c_int {
    succeeds(|| {
        let known = modes & !(SKIP_PACKET_ON_SUCCESS | SKIP_EVENT_ON_HANDLE) == 0;
        let allowed = || if known { Ok(()) } else { Err(code::INVALID_PARAMETER) };
        if let Ok(file) = object::file(file) {
            return allowed().map(|()| file.add_modes(modes));
        }
        let descriptor = open_descriptor(file)?;
        allowed()?;
        let number = numbers::entry(descriptor).ok_or(code::INVALID_HANDLE)?;
        let mut state = number.lock();
        if state.is_closing(descriptor) {
            return Err(code::INVALID_HANDLE);
        }
        let ended = look_at(&mut state, number, descriptor);
        // The association was just compared with the socket.
        let associated = state.associated.map(|it| it.identity);
        let socket = associated.unwrap_or_else(|| descriptors::identity(descriptor));
        state.chosen.of_socket(socket).modes |= modes;
        drop(state);
        if let Some(ended) = ended {
            ended.tell();
        }
        Ok(())
    })
}

/// The port that performs the operation of an OVERLAPPED, if it is in flight.
pub(crate) fn port_of_operation(descriptor: RawFd, address: usize) -> Option<Arc<CompletionPort>> {
    let port = numbers::find(descriptor)?.lock().operations.get(address)?.port;
    registrations::port_of(port)
}
