//! An operation in its cell, and its progress.

use crate::backend::Backend;
use crate::backend::sockets::{Rest, SocketAttempt};
use crate::engine::{EndReason, Plan};
use crate::memory::cells::Cell;
use crate::port::operation::{Detail, Kind, OpId, Operation, Outcome};
use crate::types::error::{Call, Error, ErrorKind, Fault};
use crate::types::interest::Direction;
use crate::types::source::OwnedSource;

/// The progress of an operation on a socket, apart from its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SocketStage {
    #[default]
    Fresh,
    /// The back end has declined to perform it: it waits for edges.
    Declined,
    /// The connect has begun.
    Begun,
}

/// The progress of an operation.
#[derive(Default)]
pub(crate) struct Progress {
    pub(super) stage: SocketStage,
    /// A datagram was longer than the buffer.
    pub(super) is_cut: bool,
    /// The number of bytes sent, received, written or read.
    pub(super) len: usize,
    /// The accepted connection.
    pub(super) socket: Option<OwnedSource>,
    pub(super) fault: Option<Fault>,
}

impl Progress {
    /// Returns the number of bytes sent, received, written or read.
    pub(crate) fn transferred(&self) -> usize {
        self.len
    }

    /// Notes the result of an attempt. A failure ends the operation. An operation that the system
    /// has declined to perform waits for edges instead.
    #[inline]
    pub(super) fn note(&mut self, attempt: SocketAttempt<Rest>) -> SocketAttempt<Rest> {
        match attempt {
            SocketAttempt::Failed(fault) => {
                self.fault = Some(fault);
                SocketAttempt::Done(Rest::Unknown)
            }
            SocketAttempt::NeedsSystem if self.stage == SocketStage::Declined => {
                SocketAttempt::Blocked
            }
            attempt => attempt,
        }
    }

    /// Returns the error of an operation that has ended for this reason, if it failed.
    #[inline]
    fn error(&self, kind: Kind, reason: EndReason) -> Option<Error> {
        let (error, code) = match reason {
            EndReason::Done => match self.fault {
                Some(fault) => (fault.kind, fault.code),
                None if self.is_cut => (ErrorKind::Truncated, None),
                None => return None,
            },
            EndReason::Cancelled => (ErrorKind::Cancelled, None),
            EndReason::TimedOut => (ErrorKind::TimedOut, None),
            EndReason::Gone => (ErrorKind::BadDescriptor, None),
        };
        Some(Error::new(kind.call(), error).with_code(code).having_transferred(self.len))
    }
}

/// What the packet of an operation brings besides the outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::port) enum Brings {
    /// The token that has started it.
    Token,
    /// A clone of the key.
    Clone,
    /// Nothing: a message is made of the outcome.
    Message,
}

/// An operation in its cell, and its progress.
pub(crate) struct OpData<B> {
    /// Without its buffer while the back end has that.
    pub(super) operation: Operation<B>,
    pub(super) progress: Progress,
    pub(in crate::port) brings: Brings,
    /// It was submitted as a request, which has not been taken back.
    pub(crate) is_submitted: bool,
    /// Why it has ended, once it has.
    pub(super) reason: EndReason,
    /// The name that its packet reports, if it is shared.
    pub(crate) association: u64,
    pub(crate) name: OpId,
}

impl<B> Operation<B> {
    /// Puts the operation, which has not begun, into its cell. The caller owns the op index.
    ///
    /// Finding the cell is left to the caller: that may panic, and the operation would be copied
    /// first if the same function could drop it.
    #[inline]
    #[allow(clippy::multiple_unsafe_ops_per_block, reason = "each writes another field")]
    pub(in crate::port) fn load(self, cell: &Cell<OpData<B>>, brings: Brings) {
        let place = cell.place();
        let Progress { stage, is_cut, len, socket, fault } = Progress::default();
        // A value as a whole would be built elsewhere and then copied.
        //
        // SAFETY: writing through a raw pointer requires that it is valid and that nothing else
        // accesses the place.
        // - valid: the cell has room for a value, and these are all its fields. The cell is empty:
        //   an op index is freed only after its operation was moved out;
        // - nothing else: the op index belongs to the caller until the operation is in flight,
        //   either by its token or because it was just reserved.
        unsafe {
            (&raw mut (*place).operation).write(self);
            (&raw mut (*place).progress.stage).write(stage);
            (&raw mut (*place).progress.is_cut).write(is_cut);
            (&raw mut (*place).progress.len).write(len);
            (&raw mut (*place).progress.socket).write(socket);
            (&raw mut (*place).progress.fault).write(fault);
            (&raw mut (*place).brings).write(brings);
            (&raw mut (*place).is_submitted).write(false);
            (&raw mut (*place).reason).write(EndReason::Done);
            (&raw mut (*place).association).write(0);
            (&raw mut (*place).name).write(OpId(0));
        }
    }
}

impl<B> OpData<B> {
    /// Returns the operation, which was refused.
    pub(crate) fn into_operation(self) -> Operation<B> {
        self.operation
    }

    /// Returns the call that it makes, for events.
    pub(crate) fn call(&self) -> Call {
        self.operation.call()
    }

    /// Calls [`Operation::plan`].
    pub(crate) fn plan(&self, backend: &dyn Backend) -> Plan {
        self.operation.plan(backend)
    }

    pub(crate) fn direction(&self) -> Direction {
        self.operation.direction()
    }

    pub(crate) fn is_of_file(&self) -> bool {
        self.operation.is_of_file()
    }

    /// Returns the number of bytes it has sent, received, written or read.
    pub(crate) fn transferred(&self) -> usize {
        self.progress.transferred()
    }

    /// Notes that the operation has failed.
    pub(crate) fn fail(&mut self, fault: Fault) {
        self.progress.fault = Some(fault);
    }

    /// Notes that code of its buffer has panicked.
    pub(crate) fn fail_by_panic(&mut self) {
        self.fail(Fault { kind: ErrorKind::Other, code: None });
        if self.operation.kind.fills() {
            // The buffer doesn't report the received bytes.
            self.progress.len = 0;
        }
    }

    /// Notes that the operation could not be started.
    pub(crate) fn fail_at_start(&mut self, fault: Fault) {
        // Bytes that were read immediately are not reported, because the buffer doesn't report
        // them.
        (self.progress.len, self.progress.fault) = (0, Some(fault));
    }

    /// Settles why the operation has ended.
    #[inline]
    pub(crate) fn settle(&mut self, reason: EndReason) {
        self.reason = reason;
    }

    /// Returns why the operation has failed, if it has. The operation is settled.
    pub(crate) fn error(&self) -> Option<Error> {
        self.progress.error(self.operation.kind, self.reason)
    }

    /// Takes the outcome of the settled operation. Nothing of value remains in it.
    pub(crate) fn take_outcome(&mut self) -> Outcome<B> {
        let result = self.error().map_or(Ok(self.progress.len), Err);
        self.operation.take_outcome(&mut self.progress, result)
    }
}

/// Takes the outcome of a settled operation that only the caller knows of. It is built where `then`
/// puts it.
#[inline]
pub(in crate::port) fn take_outcome<B, R>(
    cell: &Cell<OpData<B>>,
    then: impl FnOnce(Outcome<B>) -> R,
) -> R {
    // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
    // - a value: it was settled when the packet was made, or by the caller, and is taken once;
    // - nothing else: only the caller knows of it, and `data` is not used after `take_other_outcome` is called.
    let data = unsafe { cell.get_mut() };
    let Progress { is_cut, len, ref fault, .. } = data.progress;
    let has_address = matches!(data.operation.detail, Detail::Address(_));
    if data.reason == EndReason::Done && fault.is_none() && !is_cut && !has_address {
        // The common outcomes are just bytes. Afterwards, nothing remains that must be dropped.
        if let Some(bytes) = data.operation.kind.bytes()
            && let Some(buffer) = data.operation.buffer.take()
        {
            return match bytes {
                Bytes::Received => then(Outcome::Received(Ok(len), buffer)),
                Bytes::Sent => then(Outcome::Sent(Ok(len), buffer)),
                Bytes::Read => {
                    data.operation.release_file();
                    then(Outcome::Read(Ok(len), buffer))
                }
            };
        }
    }
    then(take_other_outcome(cell))
}

/// Takes the outcome in every case except the common ones.
#[inline(never)]
fn take_other_outcome<B>(cell: &Cell<OpData<B>>) -> Outcome<B> {
    // SAFETY: `take_part` requires that the caller owns the cell, and that it holds a value.
    // - owned, and a value: as in `take_outcome`, which has taken nothing.
    unsafe { cell.take_part(OpData::take_outcome) }
}

/// What happened to the bytes of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bytes {
    Received,
    Sent,
    Read,
}
