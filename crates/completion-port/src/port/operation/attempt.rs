//! How operations are tried, once the engine or a token decides so.

use crate::backend::Backend;
use crate::backend::sockets::{Rest, SocketAttempt, Transport};
use crate::engine::{AttemptContext, EndReason, Engine, OpEntry, OpRef, OpThread, Step, Worker};
use crate::memory::cells::Cell;
use crate::port::Store;
use crate::port::operation::kinds::attempt_task;
use crate::port::operation::{Kind, OpData, SharedFile};
use crate::state::slot::Slot;
use crate::sys::codes;
use crate::types::buffer::Buffer;
use crate::types::error::{ErrorKind, Fault};
use crate::types::interest::Direction;
use crate::types::source::Descriptor;

/// The descriptor that an operation is tried on, and what the engine knows about it.
#[derive(Clone, Copy)]
pub(in crate::port) struct AttemptTarget<'e> {
    pub(in crate::port) engine: &'e Engine,
    pub(in crate::port) slot: &'e Slot,
    pub(in crate::port) entry: &'e OpEntry,
    pub(in crate::port) op_index: u32,
    pub(in crate::port) descriptor: Descriptor,
}

impl<'e> AttemptTarget<'e> {
    #[inline]
    pub(super) fn of(engine: &'e Engine, op_ref: &OpRef<'e>) -> Self {
        let OpRef { op_index, slot, entry, .. } = *op_ref;
        Self { engine, slot, entry, op_index, descriptor: op_ref.descriptor() }
    }

    #[inline]
    pub(super) fn system(self) -> &'e dyn Backend {
        self.engine.backend()
    }

    /// Returns how the socket carries bytes.
    #[inline]
    pub(super) fn transport(self) -> Transport {
        self.engine.transport(self.entry, self.descriptor)
    }

    pub(super) fn place(self) -> AttemptContext<'e> {
        self.engine.place(self.entry, self.op_index)
    }

    /// Makes the socket non-blocking. Accept and connect need this: their system calls have no flag
    /// for it.
    pub(super) fn make_nonblocking(self) -> Result<(), Fault> {
        self.place().make_nonblocking(self.descriptor)
    }

    /// Checks that a file that is not that of the registration may be used here.
    #[inline]
    pub(super) fn check_file(self, file: Option<&SharedFile>) -> Result<(), Fault> {
        file.map_or(Ok(()), |file| file.check(self.system().kernel_id()))
    }

    /// Returns whether immediate reads from `file`, or from the registration's own, are tried.
    #[inline]
    pub(super) fn reads_now(self, file: Option<&SharedFile>) -> bool {
        match file {
            Some(file) => file.reads_now(|number| self.system().reads_now(number)),
            None => self.engine.reads_now(self.entry, self.descriptor),
        }
    }

    /// Notes that `file`, or the registration's own, never allows immediate reads.
    pub(super) fn stop_reading_now(self, file: Option<&SharedFile>) {
        match file {
            Some(file) => file.stop_reading_now(),
            None => self.entry.stop_reading_now(),
        }
    }
}

impl<B: Buffer> OpData<B> {
    /// Tries the operation once, or twice if its descriptor shows more than readiness.
    #[allow(clippy::inline_always, reason = "a part of the two that call it")]
    #[inline(always)]
    pub(in crate::port) fn attempt<'e>(
        &mut self,
        // A function, because otherwise every operation would copy a value for the rare second
        // attempt.
        target: impl Fn() -> AttemptTarget<'e>,
    ) -> SocketAttempt<Rest> {
        let attempt = self.operation.attempt(&mut self.progress, target());
        let attempt = self.progress.note(attempt);
        if matches!(attempt, SocketAttempt::Blocked) && !target().slot.word().is_plain() {
            return self.attempt_behind_the_end(target());
        }
        attempt
    }

    /// Does what [`OpData::attempt`] does, for a task: its attempt is a function of the program, and
    /// never fails or needs the system.
    #[inline]
    fn attempt_task<'e>(&mut self, target: impl Fn() -> AttemptTarget<'e>) -> SocketAttempt<Rest> {
        let attempt = attempt_task(&mut self.operation, target());
        if matches!(attempt, SocketAttempt::Blocked) && !target().slot.word().is_plain() {
            return self.attempt_behind_the_end(target());
        }
        attempt
    }

    /// Handles an operation that would have to wait, on a descriptor that shows more than
    /// readiness.
    ///
    /// If it reads, and the program itself has shut the reading half, it ends as a blocking call
    /// would: with nothing, or as an accept on a socket that does not listen.
    #[cold]
    #[inline(never)]
    fn attempt_behind_the_end(&mut self, target: AttemptTarget<'_>) -> SocketAttempt<Rest> {
        let is_read = self.operation.kind.awaits() == Some(Direction::In);
        if !is_read || !target.system().has_shut_reading(target.descriptor) {
            return SocketAttempt::Blocked;
        }
        // Data that arrived before the shutdown must not be lost.
        let attempt = self.operation.attempt(&mut self.progress, target);
        let attempt = self.progress.note(attempt);
        if !matches!(attempt, SocketAttempt::Blocked) {
            return attempt;
        }
        let Some(buffer) = &mut self.operation.buffer else {
            self.fail(Fault { kind: ErrorKind::Other, code: Some(codes::EINVAL) });
            return SocketAttempt::Done(Rest::Unknown);
        };
        if self.operation.kind == Kind::ReceiveMany {
            // The attempt has cleared the buffer.
            return SocketAttempt::Done(Rest::Unknown);
        }
        // SAFETY: `room` requires that only initialized bytes are written to the parts.
        // - nothing is written.
        unsafe { buffer.room(&mut |_| {}) };
        // SAFETY: `set_filled` requires that the first bytes of the room are initialized, and that
        // the buffer is as it was at the call of `room`.
        // - initialized: none of them needs to be;
        // - as it was: `room` was just called.
        unsafe { buffer.set_filled(0) };
        SocketAttempt::Done(Rest::Unknown)
    }
}

impl<K, B: Buffer> Store<K, B> {
    /// Does what [`Store::attempt`] does, for a task.
    #[inline]
    pub(super) fn attempt_at_task(
        &self,
        cell: &Cell<OpData<B>>,
        op_ref: &OpRef<'_>,
        worker: Option<&Worker>,
    ) -> SocketAttempt<Rest> {
        let tried = Trying { store: self, op_index: op_ref.op_index, worker };
        // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
        // - a value, and nothing else: as in `attempt`.
        let data = unsafe { cell.get_mut() };
        let attempt = data.attempt_task(|| AttemptTarget::of(&self.engine, op_ref));
        std::mem::forget(tried);
        attempt
    }

    /// Calls [`Store::attempt`], not inlined.
    #[inline(never)]
    pub(super) fn attempt_again(
        &self,
        cell: &Cell<OpData<B>>,
        op_ref: &OpRef<'_>,
        worker: Option<&Worker>,
    ) -> SocketAttempt<Rest> {
        self.attempt(cell, op_ref, worker)
    }

    /// Tries the operation in `cell`, which the engine has given to the calling thread to try.
    #[allow(
        clippy::inline_always,
        reason = "what it is passed is put together in memory otherwise"
    )]
    #[inline(always)]
    pub(super) fn attempt(
        &self,
        cell: &Cell<OpData<B>>,
        op_ref: &OpRef<'_>,
        worker: Option<&Worker>,
    ) -> SocketAttempt<Rest> {
        let tried = Trying { store: self, op_index: op_ref.op_index, worker };
        // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
        // - a value: an operation is in its cell until its packet is taken;
        // - nothing else: from `Step::Try` until the attempt's result is reported to the engine,
        //   the engine gives the operation to no other thread.
        let data = unsafe { cell.get_mut() };
        let attempt = data.attempt(|| AttemptTarget::of(&self.engine, op_ref));
        std::mem::forget(tried);
        attempt
    }

    /// Handles the result of an attempt at the operation in `cell`. After [`Step::Waits`] the
    /// operation no longer belongs to the caller.
    #[inline]
    pub(super) fn tried(
        &self,
        cell: &Cell<OpData<B>>,
        op_ref: &OpRef<'_>,
        attempt: SocketAttempt<Rest>,
        thread: OpThread<'_>,
    ) -> Step {
        if let SocketAttempt::NeedsSystem = attempt {
            self.submit_socket(cell, op_ref, thread)
        } else {
            self.engine.tried(op_ref, attempt, thread)
        }
    }

    /// Tries an operation of a shared association until it ends or has to wait. After
    /// [`Step::Waits`] the operation no longer belongs to the caller.
    pub(super) fn attempt_shared(
        &self,
        cell: &Cell<OpData<B>>,
        op_ref: &OpRef<'_>,
        thread: OpThread<'_>,
    ) -> Step {
        loop {
            let attempt = self.attempt(cell, op_ref, thread.worker());
            if self.engine.forked() {
                // The buffer's code has forked, and this is the child: the operation belongs to the
                // parent.
                return Step::Waits;
            }
            match self.tried(cell, op_ref, attempt, thread) {
                Step::Try => {}
                step => return step,
            }
        }
    }

    /// Tries an operation of a token until it completes or has to wait.
    ///
    /// Returns false if the operation no longer belongs to the caller. If the first attempt was
    /// already made, `known` is its result.
    pub(in crate::port) fn attempt_own(
        &self,
        cell: &Cell<OpData<B>>,
        op_ref: &OpRef<'_>,
        mut known: Option<SocketAttempt<Rest>>,
        worker: Option<&Worker>,
    ) -> bool {
        loop {
            let attempt = known.take().unwrap_or_else(|| self.attempt_again(cell, op_ref, worker));
            if self.engine.forked() {
                // This is the child, as above.
                return false;
            }
            // It is settled as done from the beginning.
            if self.engine.tried_and_completed(op_ref, attempt) {
                return true;
            }
            match self.tried(cell, op_ref, attempt, worker.into()) {
                Step::Try => {}
                Step::Waits => return false,
                Step::Ends(reason) => {
                    self.engine.abandon_connect(op_ref, reason);
                    self.engine.complete_own(op_ref);
                    settle(cell, reason);
                    return true;
                }
            }
        }
    }
}

/// Takes back the operation in this cell, which was never in flight, or was refused.
pub(in crate::port) fn unload<B>(cell: &Cell<OpData<B>>) -> OpData<B> {
    // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
    // - owned: the op index belongs to the caller, and no other thread knows what was put into its
    //   cell;
    // - a value: the caller has put it there, and takes it once.
    unsafe { cell.take() }
}

/// Settles the operation in this cell, which has ended and belongs to the caller.
pub(in crate::port) fn settle<B>(cell: &Cell<OpData<B>>, reason: EndReason) {
    // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
    // - a value: an operation is in its cell until its outcome is taken;
    // - nothing else: only one thread gets an operation that has ended, the caller.
    unsafe { cell.get_mut() }.settle(reason);
}

/// Guards an operation that is tried before anything else knows of it. If that panics, it is
/// dropped.
pub(in crate::port) struct UnstartedOp<'s, B>(pub(in crate::port) &'s Cell<OpData<B>>);

impl<B> Drop for UnstartedOp<'_, B> {
    fn drop(&mut self) {
        drop(unload(self.0));
    }
}

/// Guards an operation while code of its buffer tries it. If that panics, the operation fails.
pub(super) struct Trying<'s, K, B: Buffer> {
    pub(super) store: &'s Store<K, B>,
    pub(super) op_index: u32,
    pub(super) worker: Option<&'s Worker>,
}

impl<K, B: Buffer> Drop for Trying<'_, K, B> {
    #[cold]
    #[inline(never)]
    fn drop(&mut self) {
        let Self { store, op_index, worker } = *self;
        if store.engine.forked() {
            return;
        }
        // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
        // - a value, and nothing else: as in `attempt`, which calls this while it unwinds, and no
        //   longer uses its own reference.
        unsafe { store.operations.at(op_index).get_mut() }.fail_by_panic();
        let op_ref = store.engine.op_ref(op_index);
        store.engine.tried(&op_ref, SocketAttempt::Done(Rest::Unknown), worker.into());
        store.engine.queue_operation(op_index);
    }
}
