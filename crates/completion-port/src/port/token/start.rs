//! Operations that a token starts.

use std::marker::PhantomData;

use crate::backend::sockets::{Rest, SocketAttempt};
use crate::engine::{EndReason, OpEntry, Plan, Step};
use crate::memory::cells::Cell;
use crate::memory::trace::traces_packets;
use crate::port::current::{current_worker, with_current_worker};
use crate::port::operation::attempt::{AttemptTarget, UnstartedOp, settle, unload};
use crate::port::operation::complete::trace_completed;
use crate::port::operation::data::{Brings, take_outcome};
use crate::port::operation::{OpData, OpId, Operation, Outcome, Started};
use crate::port::token::finishing::LateStart;
use crate::port::token::{Held, Ready};
use crate::state::moment::Moment;
use crate::state::slot::Drained;
use crate::types::buffer::Buffer;
use crate::types::error::{Error, ErrorKind, Refused, Result};
use crate::types::interest::Direction;
use crate::types::interest::Events;

/// An operation in its cell, after an attempt to lend it the token's key.
struct StartingOp<'p, K, B> {
    held: Held<'p, K, B>,
    cell: &'p Cell<OpData<B>>,
    name: OpId,
    /// The result of lending the key. If that was refused, the slot is still held.
    step: Result<Step, ErrorKind>,
}

/// An operation that has ended and is settled, and the contents of its token. The operation is in
/// its cell.
pub(super) struct Ended<'p, K, B> {
    held: Held<'p, K, B>,
    cell: &'p Cell<OpData<B>>,
}

impl<'p, K, B: Buffer> Ended<'p, K, B> {
    /// Returns the token and the outcome to the program that started the operation.
    fn into_started(self) -> Started<(Ready<'p, K, B>, Outcome<B>)> {
        let Self { held, cell } = self;
        if traces_packets() {
            trace_completed(&held.store.engine, held.name(), cell);
        }
        let token = Ready { held, key: PhantomData };
        take_outcome(cell, |outcome| Started::Completed((token, outcome)))
    }
}

impl<'p, K, B: Buffer> StartingOp<'p, K, B> {
    /// Tries the operation if that is the next step.
    ///
    /// `known` is the result of the first attempt, if the operation in flight still has to handle
    /// it.
    #[allow(clippy::type_complexity, reason = "a refusal gives everything back")]
    #[inline(never)]
    fn go_on(
        self,
        op_index: u32,
        known: Option<SocketAttempt<Rest>>,
    ) -> Result<Started<Ended<'p, K, B>>, Refused<(K, Operation<B>)>> {
        let Self { held, cell, name, step } = self;
        let store = held.store;
        match step {
            Ok(Step::Try) => {
                let op_ref = store.engine.op_ref(op_index);
                let worker = current_worker(&store.engine);
                if !store.attempt_own(cell, &op_ref, known, worker.as_deref()) {
                    return Ok(Started::InFlight(name));
                }
                let held = Held { drained: Drained::NONE, events: Events::NONE, ..held };
                Ok(Started::Completed(Ended { held, cell }))
            }
            Ok(_) => Ok(Started::InFlight(name)),
            Err(error) => {
                // SAFETY: `get` requires a value that is neither changed nor taken while the
                // reference lives.
                // - a value: it was put there before the key was to be lent to the operation;
                // - neither changed nor taken: the operation was refused, so no other thread knows
                //   of it.
                if unsafe { cell.get() }.transferred() > 0 {
                    // A part was sent, which a refusal could not report.
                    settle(cell, EndReason::Cancelled);
                    return Ok(Started::Completed(Ended { held, cell }));
                }
                // The token may have begun the connect already.
                let entry = store.engine.entry_of_operation(held.index);
                let op_ref = store.engine.before_start(op_index, held.index, held.slot, entry);
                store.engine.abandon_connect(&op_ref, EndReason::Cancelled);
                let operation = unload(cell).into_operation();
                let token = Ready { held, key: PhantomData };
                Err(token.refuse_operation(Error::new(operation.call(), error), operation))
            }
        }
    }

    /// Tries the operation as `go_on` does. If the operation ends, queues its packet.
    #[cold]
    #[inline(never)]
    fn go_on_by_packet(self, op_index: u32) -> Result<OpId, Refused<(K, Operation<B>)>> {
        match self.go_on(op_index, None)? {
            Started::InFlight(name) => Ok(name),
            Started::Completed(Ended { held, cell }) => held.end_by_packet(cell, op_index),
        }
    }
}

impl<'p, K, B: Buffer> Held<'p, K, B> {
    /// Lends the key to the operation of `op_index`, which is in its cell, and waits for an edge of
    /// this direction.
    ///
    /// If that is refused, the slot is still held.
    #[allow(clippy::inline_always, reason = "a part of the two that call it")]
    #[inline(always)]
    fn lend_to_wait(
        &self,
        op_index: u32,
        entry: &'p OpEntry,
        direction: Direction,
        deadline: Moment,
    ) -> (OpId, Result<Step, ErrorKind>) {
        let Self { store, slot, index, drained, .. } = *self;
        let engine = &store.engine;
        let op_ref = engine.before_start(op_index, index, slot, entry);
        (OpId(op_ref.name()), engine.lend_alone(op_ref, direction, deadline, drained))
    }

    /// Queues the packet of the operation in `cell`, which has ended. It and its token belong to
    /// the caller.
    pub(super) fn end_by_packet(
        self,
        cell: &'p Cell<OpData<B>>,
        op_index: u32,
    ) -> Result<OpId, Refused<(K, Operation<B>)>> {
        let Self { store, slot, index, drained, .. } = self;
        let name = OpId(store.engine.operation_of(op_index));
        let lent = with_current_worker(&store.engine, |worker| {
            store.engine.lend_ended(slot, index, op_index, drained, worker)
        });
        if lent {
            return Ok(name);
        }
        let data = unload(cell);
        let error = Error::new(data.call(), ErrorKind::Closed);
        let error = error.having_transferred(data.transferred());
        let token = Ready { held: self, key: PhantomData };
        Err(token.refuse_operation(error, data.into_operation()))
    }
}

impl<'p, K, B: Buffer> Ready<'p, K, B> {
    /// Starts an operation, which holds the key until it completes.
    ///
    /// [`Packet::Completed`](crate::Packet::Completed) returns the token, and the operation's
    /// outcome with its buffer. If the operation can complete immediately, this call performs it;
    /// there is still a packet.
    ///
    /// # Errors
    ///
    /// If the call fails, the registration has ended, and the error returns the key and the
    /// operation with its buffer:
    /// - [`ErrorKind::Closed`]: the port is closed or shutting down. If that happened during the call,
    ///   [`Error::transferred`] returns what the operation had transferred.
    /// - [`ErrorKind::Removing`]: the registration is being removed.
    /// - [`ErrorKind::NotRegistered`], [`ErrorKind::BadDescriptor`]: as for [`Ready::rearm`].
    /// - [`ErrorKind::NotOwned`]: the key does not own its descriptor.
    /// - [`ErrorKind::OutOfMemory`], [`ErrorKind::Forked`].
    ///
    /// If the socket does not allow the operation, the outcome reports that.
    ///
    /// # Examples
    ///
    /// See [`Port::associate`](crate::Port::associate).
    pub fn start(self, operation: Operation<B>) -> Result<OpId, Refused<(K, Operation<B>)>> {
        let (op_index, entry) = match self.prepare(&operation) {
            Ok(prepared) => prepared,
            Err(error) => match self.prepare_finishing(&operation, error) {
                LateStart::Starts(op_index, entry) => (op_index, entry),
                LateStart::Cancelled(op_index) => return self.start_cancelled(op_index, operation),
                LateStart::Refused(error) => return Err(self.refuse_operation(error, operation)),
            },
        };
        let Some(direction) = self.awaits_edge(&operation) else {
            let cell = self.held.store.operations.at(op_index);
            operation.load(cell, Brings::Token);
            return self.start_by_trying(cell, op_index, entry);
        };
        let deadline = operation.ends_at(self.held.store.engine.backend());
        self.trace_started(&operation);
        let cell = self.held.store.operations.at(op_index);
        operation.load(cell, Brings::Token);
        let held = self.into_held();
        let (name, step) = held.lend_to_wait(op_index, entry, direction, deadline);
        if let Ok(Step::Waits) = step {
            return Ok(name);
        }
        StartingOp { held, cell, name, step }.go_on_by_packet(op_index)
    }

    /// Starts an operation in its cell which the token tries itself.
    #[inline(never)]
    fn start_by_trying(
        mut self,
        cell: &'p Cell<OpData<B>>,
        op_index: u32,
        entry: &'p OpEntry,
    ) -> Result<OpId, Refused<(K, Operation<B>)>> {
        let Some(attempt) = self.try_first(cell, op_index, entry) else {
            return self.into_held().end_by_packet(cell, op_index);
        };
        match self.put_in_flight(cell, op_index, entry, attempt)? {
            Started::InFlight(name) => Ok(name),
            Started::Completed(Ended { held, cell }) => held.end_by_packet(cell, op_index),
        }
    }

    /// Starts an operation, without a packet if it completes immediately: then this call returns
    /// the token and the outcome.
    ///
    /// While a handler continues this way, other packets wait. After a dozen operations or so, call
    /// [`Ready::start`] instead, so that the others get their turn.
    ///
    /// # Errors
    ///
    /// As for [`Ready::start`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Operation, Outcome, Port, Started};
    /// use std::net::{TcpListener, TcpStream};
    ///
    /// let port = Port::<TcpStream>::new()?;
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let near = TcpStream::connect(listener.local_addr()?)?;
    /// let (_far, _) = listener.accept()?;
    /// let started = port.associate(near)?.start_now(Operation::send_all(b"hello".to_vec()))?;
    /// let Started::Completed((_token, outcome)) = started else { panic!("there is room for it") };
    /// assert!(matches!(outcome, Outcome::Sent(Ok(5), _)));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[allow(clippy::type_complexity, reason = "a refusal gives everything back")]
    pub fn start_now(
        mut self,
        operation: Operation<B>,
    ) -> Result<Started<(Self, Outcome<B>)>, Refused<(K, Operation<B>)>> {
        let (op_index, entry) = match self.prepare(&operation) {
            Ok(prepared) => prepared,
            Err(error) => match self.prepare_finishing(&operation, error) {
                LateStart::Starts(op_index, entry) => (op_index, entry),
                LateStart::Cancelled(op_index) => return Ok(self.cancel_now(op_index, operation)),
                LateStart::Refused(error) => return Err(self.refuse_operation(error, operation)),
            },
        };
        if let Some(direction) = self.awaits_edge(&operation) {
            let deadline = operation.ends_at(self.held.store.engine.backend());
            self.trace_started(&operation);
            let cell = self.held.store.operations.at(op_index);
            operation.load(cell, Brings::Token);
            let held = self.into_held();
            let (name, step) = held.lend_to_wait(op_index, entry, direction, deadline);
            if let Ok(Step::Waits) = step {
                return Ok(Started::InFlight(name));
            }
            let lent = StartingOp { held, cell, name, step };
            return lent.go_on(op_index, None).map(into_started);
        }
        let cell = self.held.store.operations.at(op_index);
        operation.load(cell, Brings::Token);
        if let Some(attempt) = self.try_first(cell, op_index, entry) {
            return self.put_in_flight(cell, op_index, entry, attempt).map(into_started);
        }
        if traces_packets() {
            trace_completed(&self.held.store.engine, self.held.name(), cell);
        }
        take_outcome(cell, |outcome| Ok(Started::Completed((self, outcome))))
    }

    /// Returns the direction whose edge the operation waits for, if the descriptor does not seem
    /// ready in that direction.
    #[inline]
    fn awaits_edge(&self, operation: &Operation<B>) -> Option<Direction> {
        let Held { slot, drained, .. } = self.held;
        operation.awaits().filter(|direction| !slot.looks_ready(direction.facts(), drained))
    }

    /// Reports the start of an operation to the tracing subscriber, if there is one.
    #[inline]
    pub(super) fn trace_started(&self, operation: &Operation<B>) {
        if traces_packets() {
            self.held.store.engine.trace_started(self.held.name(), operation.call());
        }
    }

    /// Returns the op index for an operation of this token, and the registration's [`OpEntry`].
    #[allow(clippy::inline_always, reason = "what it returns passes through memory otherwise")]
    #[inline(always)]
    fn prepare(&self, operation: &Operation<B>) -> Result<(u32, &'p OpEntry)> {
        let Held { store, slot, index, .. } = self.held;
        let (engine, call) = (&store.engine, operation.call());
        if slot.word().is_borrowed() && operation.uses_the_key() {
            return Err(Error::new(call, ErrorKind::NotOwned));
        }
        if !self.has_its_descriptor() {
            return Err(Error::new(call, ErrorKind::BadDescriptor));
        }
        engine.own_op(index, call, |op_index| store.operations.reserve(op_index))
    }

    /// Tries an operation in its cell for the first time, with its token.
    ///
    /// While the token exists, nothing else of its registration is in flight, and no other thread
    /// knows of the operation yet. If the buffer's code panics, the token ends the registration.
    ///
    /// Returns `None` if the operation is done, and otherwise what the attempt has shown. After a
    /// fork by the buffer's code, the child gets the result in any case.
    #[allow(clippy::inline_always, reason = "a part of the two that call it")]
    #[inline(always)]
    fn try_first(
        &mut self,
        cell: &Cell<OpData<B>>,
        op_index: u32,
        entry: &OpEntry,
    ) -> Option<SocketAttempt<Rest>> {
        let Held { store, slot, drained, .. } = self.held;
        let engine = &store.engine;
        let loaded = UnstartedOp(cell);
        // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
        // - a value: the caller has put it there;
        // - nothing else: no other thread knows of it, and `loaded` takes it only after the last
        //   use of the reference.
        let data = unsafe { cell.get_mut() };
        if traces_packets() {
            engine.trace_started(self.held.name(), data.call());
        }
        let descriptor = slot.descriptor();
        let attempt = data.attempt(|| AttemptTarget { engine, slot, entry, op_index, descriptor });
        std::mem::forget(loaded);
        match attempt {
            SocketAttempt::Done(rest) => {
                // The received data may precede an end, which no further edge reports.
                if rest == Rest::Nothing && slot.word().is_plain() {
                    self.held.drained = drained.and(Drained::of(data.direction()));
                }
                self.held.events = Events::NONE;
                if !engine.forked() {
                    return None;
                }
            }
            SocketAttempt::Blocked => {
                self.held.drained = drained.and(Drained::of(data.direction()));
            }
            _ => {}
        }
        Some(attempt)
    }

    /// Puts an operation in its cell in flight, with the key, unless the first attempt prevents
    /// that.
    #[allow(clippy::type_complexity, reason = "a refusal gives everything back")]
    #[inline(never)]
    fn put_in_flight(
        self,
        cell: &'p Cell<OpData<B>>,
        op_index: u32,
        entry: &'p OpEntry,
        attempt: SocketAttempt<Rest>,
    ) -> Result<Started<Ended<'p, K, B>>, Refused<(K, Operation<B>)>> {
        let Held { store, slot, index, drained, .. } = self.held;
        let engine = &store.engine;
        if engine.forked() {
            // The buffer's code has forked, and this is the child.
            let operation = unload(cell).into_operation();
            let error = Error::new(operation.call(), ErrorKind::Forked);
            return Err(self.refuse_operation(error, operation));
        }
        // SAFETY: `get` requires a value that is neither changed nor taken while the reference
        // lives.
        // - a value: the caller has put it there;
        // - neither changed nor taken: no other thread knows of it, and the reference is used only
        //   here.
        let data = unsafe { cell.get() };
        let plan = data.plan(engine.backend());
        if data.is_of_file() {
            return self.put_in_flight_on_file(cell, (op_index, entry), &plan);
        }
        let held = self.into_held();
        let name = OpId(engine.operation_of(op_index));
        let known = if let SocketAttempt::Blocked = attempt { None } else { Some(attempt) };
        let step = if known.is_none() {
            let Plan { direction, deadline, .. } = plan;
            let op_ref = engine.before_start(op_index, index, slot, entry);
            engine.lend_alone(op_ref, direction, deadline, drained)
        } else {
            let lent = engine.lend(slot, index, entry, op_index, &plan, drained);
            lent.map_err(|error| error.kind())
        };
        StartingOp { held, cell, name, step }.go_on(op_index, known)
    }

    /// Submits the rest of an operation on a file, which is in `cell`, to the back end, with the
    /// key.
    #[allow(clippy::type_complexity, reason = "a refusal gives everything back")]
    fn put_in_flight_on_file(
        self,
        cell: &'p Cell<OpData<B>>,
        (op_index, entry): (u32, &OpEntry),
        plan: &Plan,
    ) -> Result<Started<Ended<'p, K, B>>, Refused<(K, Operation<B>)>> {
        let Held { store, slot, index, drained, .. } = self.held;
        let engine = &store.engine;
        // If the buffer's code panics, the token ends the registration.
        let loaded = UnstartedOp(cell);
        // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
        // - a value: the caller has put it there;
        // - nothing else: no other thread knows of it, and `loaded` takes it only after the last
        //   use of the reference.
        let data = unsafe { cell.get_mut() };
        let request = store.file_request(data, op_index, index);
        let (error, request) = match request {
            _ if engine.forked() => {
                // The buffer's code has forked, and this is the child.
                (Error::new(plan.call, ErrorKind::Forked), request)
            }
            None => {
                std::mem::forget(loaded);
                let held = Held { events: Events::NONE, ..self.into_held() };
                return Ok(Started::Completed(Ended { held, cell }));
            }
            Some(request) => {
                let name = OpId(engine.operation_of(op_index));
                match engine.lend_file(slot, index, entry, op_index, plan, drained, request) {
                    Ok(()) => {
                        std::mem::forget(loaded);
                        let _ = self.into_held();
                        return Ok(Started::InFlight(name));
                    }
                    Err((error, request)) => (error, Some(request)),
                }
            }
        };
        if let Some(request) = request {
            data.complete_file(request);
        }
        std::mem::forget(loaded);
        Err(self.refuse_operation(error, unload(cell).into_operation()))
    }

    #[cold]
    pub(super) fn refuse_operation(
        self,
        error: Error,
        operation: Operation<B>,
    ) -> Refused<(K, Operation<B>)> {
        let (error, key) = self.into_held().refuse_with(error).into_parts();
        Refused::new(error, (key, operation))
    }
}

/// Applies [`Ended::into_started`].
fn into_started<K, B: Buffer>(
    started: Started<Ended<'_, K, B>>,
) -> Started<(Ready<'_, K, B>, Outcome<B>)> {
    match started {
        Started::InFlight(name) => Started::InFlight(name),
        Started::Completed(ended) => ended.into_started(),
    }
}
