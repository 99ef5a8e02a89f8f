//! Operations whose outcomes arrive as messages.

use std::mem::ManuallyDrop;

use crate::engine::{EndReason, Name, OpEntry, OpRef, Plan, Step, Worker, name_parts};
use crate::memory::cells::{Cell, Cells};
use crate::memory::trace::traces_packets;
use crate::port::Port;
use crate::port::current::with_current_worker;
use crate::port::operation::attempt::{AttemptTarget, settle, unload};
use crate::port::operation::complete::trace_completed;
use crate::port::operation::data::{Brings, take_outcome};
use crate::port::operation::{OpData, OpId, Operation, Outcome};
use crate::port::packets::{Packet, Packets};
use crate::state::slot::Drained;
use crate::types::buffer::Buffer;
use crate::types::error::{Error, ErrorKind, Refused, Result};

/// What makes the message of an outcome.
pub(in crate::port) struct MessageOf<M, B>(Box<dyn FnOnce(Outcome<B>) -> M + Send>);

/// By slot: what makes the messages of operations in flight.
pub(in crate::port) type MessagesOf<M, B> = Cells<MessageOf<M, B>>;

impl<K, M, B: Buffer> Port<K, M, B> {
    /// Starts an operation of a [`SharedFile`](crate::SharedFile), without a token or an
    /// association. Its packet is [`Packet::Posted`], with the message that `message` makes of the
    /// outcome.
    ///
    /// The thread that takes the packet calls `message`. If that panics, the message is lost. The
    /// message is queued when the operation ends, as any operation's packet is, also if the
    /// operation completes immediately.
    ///
    /// While it is in flight, the operation counts as a registration in
    /// [`Stats::registered`](crate::Stats::registered). [`Port::shutdown`] and [`Port::close`]
    /// cancel it, and wait for its packet. [`Port::cancel`] cancels it by the returned name.
    ///
    /// # Errors
    ///
    /// On failure nothing has changed, `message` is dropped, and the error returns the operation:
    /// - [`ErrorKind::NotOwned`]: it is no operation of a `SharedFile`.
    /// - [`ErrorKind::Closed`], [`ErrorKind::OutOfMemory`], [`ErrorKind::Forked`].
    ///
    /// # Examples
    ///
    /// ```
    /// use completion_port::{Batch, FileSource, Outcome, Packet, Port, SharedFile};
    /// use std::fs::File;
    ///
    /// /// A message: a chunk of a file for a connection.
    /// struct Chunk {
    ///     connection: u32,
    ///     outcome: Outcome,
    /// }
    ///
    /// let file = SharedFile::new(FileSource::new(File::open(std::env::current_exe()?)?));
    /// let port: Port<(), Chunk> = Port::builder().build()?;
    /// for connection in 1..=2 {
    ///     let read = file.read_at(Vec::with_capacity(4), 0);
    ///     port.start_then_post(read, move |outcome| Chunk { connection, outcome })?;
    /// }
    ///
    /// let (mut batch, mut sum) = (Batch::new(), 0);
    /// while sum < 3 {
    ///     for packet in port.wait(&mut batch, None)? {
    ///         let Packet::Posted(chunk) = packet else { continue };
    ///         assert!(matches!(chunk.outcome, Outcome::Read(Ok(4..), _)));
    ///         sum += chunk.connection;
    ///     }
    /// }
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn start_then_post(
        &self,
        operation: Operation<B>,
        message: impl FnOnce(Outcome<B>) -> M + Send + 'static,
    ) -> Result<OpId, Refused<Operation<B>>> {
        let started = match self.begin_message(operation, MessageOf(Box::new(message))) {
            Ok(starting) => starting.start(),
            Err(refused) => Err(refused),
        };
        started.inspect_err(|refused| {
            self.engine().trace_refused(&refused.error(), None, None);
        })
    }

    /// Prepares the start of an operation that no registration has: gives it a slot without a
    /// descriptor and without a key, which this thread holds.
    fn begin_message(
        &self,
        operation: Operation<B>,
        message: MessageOf<M, B>,
    ) -> Result<StartingForMessage<'_, K, M, B>, Refused<Operation<B>>> {
        let (store, engine, call) = (self.store(), self.engine(), operation.call());
        if operation.uses_the_key() {
            return Err(Refused::new(Error::new(call, ErrorKind::NotOwned), operation));
        }
        // The next registration of this slot finds it in use before, and so reserves nothing.
        let registered = engine
            .reserve_slot(call, |index| store.keys.cells.reserve(index))
            .and_then(|index| engine.register_nothing(call, index));
        let name = match registered {
            Ok(name) => name,
            Err(error) => return Err(Refused::new(error, operation)),
        };
        let (index, _) = name_parts(name);
        // Always, since the slot may have been a registration's.
        if !self.messages_of.reserve(index) {
            engine.end(name);
            return Err(Refused::new(Error::new(call, ErrorKind::OutOfMemory), operation));
        }
        let reserve = |op_index| store.operations.reserve(op_index);
        let (op_index, entry) = match engine.own_op(index, call, reserve) {
            Ok(own) => own,
            Err(error) => {
                engine.end(name);
                return Err(Refused::new(error, operation));
            }
        };
        let plan = operation.plan(engine.backend());
        let cell = store.operations.at(op_index);
        operation.load(cell, Brings::Message);
        // SAFETY: `put` requires that the caller owns the cell and that it is empty.
        // - owned: this thread holds the slot;
        // - empty: its former operation's message was taken before the slot was freed.
        unsafe { self.messages_of.put(index, message) };
        Ok(StartingForMessage { port: self, cell, entry, op_index, name, plan })
    }
}

/// An operation that is being started, in its cell, and the slot that it has to itself. If code of
/// its buffer panics, the drop gives both back.
struct StartingForMessage<'p, K, M, B: Buffer> {
    port: &'p Port<K, M, B>,
    cell: &'p Cell<OpData<B>>,
    entry: &'p OpEntry,
    op_index: u32,
    name: Name,
    plan: Plan,
}

impl<K, M, B: Buffer> StartingForMessage<'_, K, M, B> {
    /// Tries the operation, and queues its packet or submits the rest.
    fn start(self) -> Result<OpId, Refused<Operation<B>>> {
        let Self { port, cell, entry, op_index, name, plan } = self;
        let (store, engine) = (port.store(), port.engine());
        let (index, _) = name_parts(name);
        let slot = engine.slot(index);
        if traces_packets() {
            engine.trace_started(name, plan.call);
        }
        // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
        // - a value: `begin_message` has put it there;
        // - nothing else: no other thread knows of it until it is in flight, and the reference is
        //   not used afterwards.
        let data = unsafe { cell.get_mut() };
        let descriptor = slot.descriptor();
        let attempt = data.attempt(|| AttemptTarget { engine, slot, entry, op_index, descriptor });
        let id = OpId(engine.operation_of(op_index));
        let request = if attempt.is_over() || engine.forked() {
            None
        } else {
            store.file_request(data, op_index, index)
        };
        let (kind, request) = if engine.forked() {
            // The buffer's code has forked, and this is the child.
            (ErrorKind::Forked, request)
        } else if let Some(request) = request {
            match engine.lend_file(slot, index, entry, op_index, &plan, Drained::NONE, request) {
                Ok(()) => {
                    std::mem::forget(self);
                    return Ok(id);
                }
                Err((error, request)) => (error.kind(), Some(request)),
            }
        } else {
            let queued = with_current_worker(engine, |worker| {
                engine.lend_ended(slot, index, op_index, Drained::NONE, worker)
            });
            if queued {
                std::mem::forget(self);
                return Ok(id);
            }
            (ErrorKind::Closed, None)
        };
        if let Some(request) = request {
            data.complete_file(request);
        }
        // Only the shutdown of the port removes what has no name.
        let kind = if kind == ErrorKind::Removing { ErrorKind::Closed } else { kind };
        let error = Error::new(plan.call, kind).having_transferred(data.transferred());
        Err(Refused::new(error, ManuallyDrop::new(self).release()))
    }

    /// Ends the slot's registration, drops what would have made the message, and returns the
    /// operation. Called once.
    fn release(&self) -> Operation<B> {
        let operation = unload(self.cell).into_operation();
        // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
        // - owned: this thread holds the slot;
        // - a value: `begin_message` has put it there, and this is called once.
        let message = unsafe { self.port.messages_of.take(name_parts(self.name).0) };
        self.port.engine().end(self.name);
        drop(message);
        operation
    }
}

impl<K, M, B: Buffer> Drop for StartingForMessage<'_, K, M, B> {
    fn drop(&mut self) {
        drop(self.release());
    }
}

impl<'p, K, M, B: Buffer> Packets<'_, 'p, K, M, B> {
    /// Makes the message of an operation that has ended. The calling thread owns its node.
    #[cold]
    #[inline(never)]
    pub(super) fn message_of(
        &self,
        op_ref: &OpRef<'p>,
        cell: &'p Cell<OpData<B>>,
        step: Step,
        worker: &Worker,
    ) -> Option<Packet<'p, K, M, B>> {
        let Step::Ends(reason) = step else { unreachable!("what is on a file is tried once") };
        let engine = self.port.engine();
        let name = op_ref.registration();
        engine.complete_own(op_ref);
        if reason != EndReason::Done {
            settle(cell, reason);
        }
        engine.count_operation(worker, true);
        if traces_packets() {
            trace_completed(engine, name, cell);
        }
        let outcome = take_outcome(cell, |outcome| outcome);
        // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
        // - owned: the operation has completed, so this thread holds the slot;
        // - a value: it was put there before the operation was in flight, and is taken once, with
        //   the packet.
        let MessageOf(message_of) = unsafe { self.port.messages_of.take(op_ref.index) };
        engine.end(name);
        // It may panic: nothing of the port depends on it any more.
        let message = message_of(outcome);
        if engine.forked() {
            // It has forked, and this is the child.
            return None;
        }
        Some(Packet::Posted(message))
    }
}
