//! Tasks: how they go on and end, without a packet.

use crate::backend::sockets::{Rest, SocketAttempt};
use crate::engine::{EndReason, Engine, OpRef, Step, Worker};
use crate::memory::cells::Cell;
use crate::memory::trace::traces_packets;
use crate::port::current::{current_worker, with_current_worker};
use crate::port::operation::{Detail, OpData, Operation, SharedId, Started};
use crate::port::raw::{self, Ending, Task};
use crate::port::{Port, Store};
use crate::types::buffer::Buffer;
use crate::types::error::Refused;
use crate::types::fd::RawFd;
use crate::types::interest::Direction;

impl<B> OpData<B> {
    /// Tells a task, whose end reason is settled, that it has ended.
    pub(crate) fn end_task(self) {
        let ending = self.ending();
        if let (Detail::Task(functions), Some(task)) =
            (self.operation.detail, self.operation.buffer)
        {
            (functions.end)(task, ending);
        }
    }

    /// How a task has ended whose end reason is settled.
    fn ending(&self) -> Ending {
        match self.reason {
            EndReason::Done if self.progress.fault.is_some() => Ending::Failed,
            EndReason::Done => Ending::Done,
            EndReason::Cancelled | EndReason::TimedOut => Ending::Cancelled,
            EndReason::Gone => Ending::Closed,
        }
    }

    /// The task, and how it has ended, which is settled.
    pub(crate) fn into_task(self) -> (B, Ending) {
        let ending = self.ending();
        (self.operation.buffer.expect("a task is started with what it consists of"), ending)
    }
}

impl<K, B: Buffer> Store<K, B> {
    /// Goes on with the tasks that were deferred, until none is left. Whether there were any.
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
            let worker = current_worker(engine);
            let step = match engine.turn(&op_ref, worker.as_deref()) {
                Step::Try => self.attempt_task(cell, &op_ref, worker.as_deref()),
                step => step,
            };
            if let Step::Ends(reason) = step {
                self.complete_unseen(op_index, reason).end_task();
            }
        }
        has_gone_on
    }

    /// Tries a task until it ends or has to wait, as [`Store::attempt_shared`] does. What is done is told here, before the
    /// next task of the direction is tried by any thread, so that the ends come in the order of the bytes; the task is the
    /// caller's no more then.
    fn attempt_task(
        &self,
        cell: &Cell<OpData<B>>,
        op_ref: &OpRef<'_>,
        worker: Option<&Worker>,
    ) -> Step {
        loop {
            let attempt = self.attempt_again(cell, op_ref, worker);
            if self.engine.forked() {
                // The task has forked, and this is the child: the task is the parent's.
                return Step::Waits;
            }
            if attempt.is_over() {
                let registration = op_ref.registration();
                // SAFETY: `take` demands that the caller owns the cell, with a value in it.
                // - owned: the task was just tried by this thread, and until the engine is told what has come of that,
                //   below, it hands the task to no other thread;
                // - a value: as for any operation that is tried.
                let mut data = unsafe { self.operations.take(op_ref.op_index) };
                data.settle(EndReason::Done);
                let completion = Completion { engine: &self.engine, op_ref, attempt, worker };
                if traces_packets() {
                    self.engine.trace_completed(registration, data.call(), data.error());
                }
                data.end_task();
                drop(completion);
                return Step::Waits;
            }
            match self.tried(cell, op_ref, attempt, worker) {
                Step::Try => {}
                step => return step,
            }
        }
    }

    /// An operation of a shared association, or a task, has ended without a packet, and is the caller's alone.
    pub(super) fn complete_unseen(&self, op_index: u32, reason: EndReason) -> OpData<B> {
        let op_ref = self.engine.op_ref(op_index);
        self.engine.abandon_connect(&op_ref, reason);
        let registration = op_ref.registration();
        // SAFETY: `take` demands that the caller owns the cell, with a value in it.
        // - owned: the operation has ended, and its node is with the caller, or was never queued;
        // - a value: an operation is in its cell until it has completed, which it does below.
        let mut data = unsafe { self.operations.take(op_index) };
        data.settle(reason);
        with_current_worker(&self.engine, |worker| self.engine.complete_unseen(op_index, worker));
        if traces_packets() {
            self.engine.trace_completed(registration, data.call(), data.error());
        }
        data
    }
}

/// A task that is done, of which the engine is told when its end has returned, or has panicked.
struct Completion<'a, 'e> {
    engine: &'e Engine,
    op_ref: &'a OpRef<'e>,
    attempt: SocketAttempt<Rest>,
    worker: Option<&'a Worker>,
}

impl Drop for Completion<'_, '_> {
    fn drop(&mut self) {
        if self.engine.forked() {
            // The end has forked, and this is the child.
            return;
        }
        let op_index = self.op_ref.op_index;
        // It is done, whatever was asked of it meanwhile.
        let _ = self.engine.tried(self.op_ref, self.attempt, self.worker);
        self.engine.complete_unseen(op_index, self.worker);
    }
}

impl<K, M, B: Task> Port<K, M, B> {
    /// See [`Raw::start_task`](crate::port::raw::Raw::start_task).
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
    /// See [`Raw::try_now`](crate::port::raw::Raw::try_now).
    #[inline]
    pub(crate) fn try_now(
        &self,
        id: SharedId,
        direction: Direction,
        attempt: impl FnOnce(RawFd) -> raw::Attempt,
    ) -> bool {
        // A subscriber hears of it when it is started.
        !traces_packets()
            && self.engine().try_directly(id.0, direction, |descriptor| attempt(descriptor).into())
    }
}
