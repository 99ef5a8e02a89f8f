//! Tasks: how they continue and end, without a packet.

use crate::backend::sockets::{Rest, SocketAttempt};
use crate::engine::{EndReason, Engine, OpRef, Step, Worker};
use crate::memory::cells::Cell;
use crate::memory::trace::traces_packets;
use crate::port::current::{own_worker, with_current_worker};
use crate::port::operation::kinds::TaskFunctions;
use crate::port::operation::{Detail, OpData, Operation, SharedId, Started};
use crate::port::raw::{self, Ending, Task};
use crate::port::{Port, Store};
use crate::types::buffer::Buffer;
use crate::types::error::Refused;
use crate::types::fd::RawFd;
use crate::types::interest::Direction;

impl<B> OpData<B> {
    /// Calls the end of a task whose end reason is settled.
    pub(crate) fn end_task(self) {
        let ending = self.ending();
        if let (Detail::Task(functions), Some(task)) =
            (self.operation.detail, self.operation.buffer)
        {
            (functions.end)(task, ending);
        }
    }

    /// Returns how a task has ended. Its end reason is settled.
    fn ending(&self) -> Ending {
        match self.reason {
            EndReason::Done if self.progress.fault.is_some() => Ending::Failed,
            EndReason::Done => Ending::Done,
            EndReason::Cancelled | EndReason::TimedOut => Ending::Cancelled,
            EndReason::Gone => Ending::Closed,
        }
    }

    /// Settles that the task has ended with its attempt. Returns its functions, the task, and how it
    /// has ended.
    fn take_ended_task(&mut self) -> Option<(TaskFunctions<B>, B, Ending)> {
        self.settle(EndReason::Done);
        let ending = self.ending();
        let Detail::Task(functions) = self.operation.detail else { return None };
        Some((functions, self.operation.buffer.take()?, ending))
    }

    /// Returns the task and how it has ended. Its end reason is settled.
    pub(crate) fn into_task(self) -> (B, Ending) {
        let ending = self.ending();
        (self.operation.buffer.expect("a task is started with what it consists of"), ending)
    }
}

impl<K, B: Buffer> Store<K, B> {
    /// Runs the deferred tasks until none is left. Returns whether there were any.
    fn go_on_with_tasks(&self) -> bool {
        let engine = &self.engine;
        if engine.forked() {
            return false;
        }
        let mut has_gone_on = false;
        while let Some(op_index) = engine.take_deferred() {
            has_gone_on = true;
            let cell = self.operations.at(op_index);
            let op_ref = engine.op_ref(op_index);
            let worker = own_worker(engine);
            let step = match engine.turn(&op_ref, worker.as_deref().into()) {
                Step::Try => self.attempt_task(cell, &op_ref, worker.as_deref()),
                step => step,
            };
            if let Step::Ends(reason) = step {
                self.complete_unseen(op_index, reason).end_task();
            }
        }
        has_gone_on
    }

    /// Tries a task until it ends or has to wait, as [`Store::attempt_shared`] does.
    ///
    /// If the task completes, its end is called here, before any thread tries the next task of the
    /// direction. So the ends come in the order of the bytes. The task no longer belongs to the
    /// caller then.
    fn attempt_task(
        &self,
        cell: &Cell<OpData<B>>,
        op_ref: &OpRef<'_>,
        worker: Option<&Worker>,
    ) -> Step {
        loop {
            let attempt = self.attempt_at_task(cell, op_ref, worker);
            if self.engine.forked() {
                // The task has forked, and this is the child: the task belongs to the parent.
                return Step::Waits;
            }
            if attempt.is_over() {
                // Only the task is moved out, not the whole operation.
                let take = |data: &mut OpData<B>| {
                    let ended = data.take_ended_task();
                    (ended, traces_packets().then(|| (data.call(), data.error())))
                };
                // SAFETY: `take_part` requires that the caller owns the cell, and that it holds a
                // value.
                // - owned: this thread has just tried the task, and until it reports the result to
                //   the engine, below, the engine gives the task to no other thread;
                // - a value: as for any operation that is tried.
                let (ended, traced) = unsafe { cell.take_part(take) };
                let completion = Completion { engine: &self.engine, op_ref, attempt, worker };
                if let Some((call, error)) = traced {
                    self.engine.trace_completed(op_ref.registration(), call, error);
                }
                if let Some((functions, task, ending)) = ended {
                    (functions.end)(task, ending);
                }
                drop(completion);
                return Step::Waits;
            }
            match self.tried(cell, op_ref, attempt, worker.into()) {
                Step::Try => {}
                step => return step,
            }
        }
    }

    /// Completes a task without a packet. It has ended and belongs to the caller.
    pub(super) fn complete_unseen(&self, op_index: u32, reason: EndReason) -> OpData<B> {
        let op_ref = self.engine.op_ref(op_index);
        self.engine.abandon_connect(&op_ref, reason);
        let registration = op_ref.registration();
        // SAFETY: `take` requires that the caller owns the cell, and that it holds a value.
        // - owned: the operation has ended, and the caller has its node, or the node was never
        //   queued;
        // - a value: an operation is in its cell until it has completed, which happens only below.
        let mut data = unsafe { self.operations.take(op_index) };
        data.settle(reason);
        with_current_worker(&self.engine, |worker| self.engine.complete_unseen(op_index, worker));
        if traces_packets() {
            self.engine.trace_completed(registration, data.call(), data.error());
        }
        data
    }
}

/// Reports a completed task to the engine when the task's end has returned or panicked.
struct Completion<'a, 'e> {
    engine: &'e Engine,
    op_ref: &'a OpRef<'e>,
    attempt: SocketAttempt<Rest>,
    worker: Option<&'a Worker>,
}

impl Drop for Completion<'_, '_> {
    fn drop(&mut self) {
        if self.engine.forked() {
            // The task's end has forked, and this is the child.
            return;
        }
        // It is done, even if it was cancelled meanwhile.
        self.engine.complete_done(self.op_ref, self.attempt, self.worker);
    }
}

impl<K, M, B: Task> Port<K, M, B> {
    /// Implements [`Raw::start_task`](crate::port::raw::Raw::start_task).
    pub(crate) fn start_task(
        &self,
        id: SharedId,
        direction: Direction,
        task: B,
    ) -> Result<Started<(B, Ending)>, Refused<B>> {
        self.store().runs_deferred.get_or_init(|| Store::go_on_with_tasks);
        self.engine().begin_tasks();
        let started = self.share(id, Operation::task(direction, task), true);
        let (op_index, name, step) = started.map_err(|refused| {
            let (error, operation) = refused.into_parts();
            Refused::new(error, operation.into_buffer().expect("a task comes back"))
        })?;
        let Step::Ends(reason) = step else { return Ok(Started::InFlight(name)) };
        Ok(Started::Completed(self.store().complete_unseen(op_index, reason).into_task()))
    }
}

impl<K, M, B> Port<K, M, B> {
    /// Implements [`Raw::try_now`](crate::port::raw::Raw::try_now).
    #[inline]
    pub(crate) fn try_now(
        &self,
        id: SharedId,
        direction: Direction,
        attempt: impl FnOnce(RawFd) -> raw::Attempt,
    ) -> bool {
        // If events are traced, the task that is started instead reports the work.
        !traces_packets()
            && self.engine().try_directly(id.0, direction, |descriptor| attempt(descriptor).into())
    }

    /// Implements [`Raw::try_exclusively`](crate::port::raw::Raw::try_exclusively).
    #[inline]
    pub(crate) fn try_exclusively(
        &self,
        id: SharedId,
        direction: Direction,
        attempt: impl FnOnce(RawFd) -> raw::Attempt,
    ) -> bool {
        let attempt = |descriptor| attempt(descriptor).into();
        // As in `try_now`.
        !traces_packets() && self.engine().try_exclusively(id.0, direction, attempt)
    }
}
