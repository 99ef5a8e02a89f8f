//! Work that the program does itself when its descriptor is ready: a [task](Task).

use super::OperationKind;
use crate::backend::sockets::{Rest, SocketAttempt};
use crate::port::operation::attempt::AttemptTarget;
use crate::port::operation::data::Progress;
use crate::port::operation::{Detail, Kind, Operation, Outcome};
use crate::port::raw::{self, Ending, Task};
use crate::types::buffer::Buffer;
use crate::types::error::{Call, Result};
use crate::types::fd::RawFd;
use crate::types::interest::Direction;

/// The functions of a task. Only the calls that start one require that the buffers are tasks.
pub(crate) struct TaskFunctions<B> {
    attempt: fn(&mut B, RawFd) -> raw::Attempt,
    begins_unasked: fn(&B) -> bool,
    pub(crate) end: fn(B, Ending),
}

impl<B> Clone for TaskFunctions<B> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<B> Copy for TaskFunctions<B> {}

impl<B: Task> Operation<B> {
    /// Creates an operation for a task.
    pub(crate) fn task(direction: Direction, task: B) -> Self {
        let functions =
            TaskFunctions { attempt: B::attempt, begins_unasked: B::begins_unasked, end: B::end };
        let kind = match direction {
            Direction::In => Kind::TaskIn,
            Direction::Out => Kind::TaskOut,
        };
        Self::new(kind, Some(task), Detail::Task(functions))
    }
}

impl<B> Operation<B> {
    /// Returns whether it is a task.
    pub(crate) fn is_task(&self) -> bool {
        matches!(self.detail, Detail::Task(_))
    }
}

impl From<raw::Attempt> for SocketAttempt<Rest> {
    #[inline]
    fn from(attempt: raw::Attempt) -> Self {
        match attempt {
            raw::Attempt::Done => Self::Done(Rest::Unknown),
            raw::Attempt::Drained => Self::Done(Rest::Nothing),
            raw::Attempt::Blocked => Self::Blocked,
            raw::Attempt::Idle => Self::Idle,
            raw::Attempt::OutOfResources => Self::OutOfResources,
        }
    }
}

pub(super) struct TaskIn;

impl OperationKind for TaskIn {
    const CALL: Call = Call::Receive;
    const DIRECTION: Direction = Direction::In;

    fn begins_unasked<B>(operation: &Operation<B>) -> bool {
        begins_unasked(operation)
    }

    #[inline(never)]
    fn attempt<B: Buffer>(
        operation: &mut Operation<B>,
        _progress: &mut Progress,
        target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        attempt(operation, target)
    }

    fn outcome<B>(_: &mut Operation<B>, _: &mut Progress, _: Result<usize>) -> Outcome<B> {
        unreachable!("a task makes no packet")
    }
}

pub(super) struct TaskOut;

impl OperationKind for TaskOut {
    const CALL: Call = Call::Send;
    const DIRECTION: Direction = Direction::Out;

    fn begins_unasked<B>(operation: &Operation<B>) -> bool {
        begins_unasked(operation)
    }

    #[inline(never)]
    fn attempt<B: Buffer>(
        operation: &mut Operation<B>,
        _progress: &mut Progress,
        target: AttemptTarget<'_>,
    ) -> SocketAttempt<Rest> {
        attempt(operation, target)
    }

    fn outcome<B>(_: &mut Operation<B>, _: &mut Progress, _: Result<usize>) -> Outcome<B> {
        unreachable!("a task makes no packet")
    }
}

fn begins_unasked<B>(operation: &Operation<B>) -> bool {
    let (Some(task), Detail::Task(functions)) = (&operation.buffer, &operation.detail) else {
        unreachable!("a task has its functions until it has ended")
    };
    (functions.begins_unasked)(task)
}

/// Tries a task once.
#[inline]
pub(in crate::port::operation) fn attempt<B>(
    operation: &mut Operation<B>,
    target: AttemptTarget<'_>,
) -> SocketAttempt<Rest> {
    let (Some(task), Detail::Task(functions)) = (&mut operation.buffer, &operation.detail) else {
        unreachable!("a task has its functions until it has ended")
    };
    (functions.attempt)(task, target.descriptor).into()
}
