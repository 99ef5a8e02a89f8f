//! An operation in its cell: what is asked for, and how far it has come.

use crate::backend::Backend;
use crate::backend::sockets::{Rest, SocketAttempt};
use crate::engine::{EndReason, Plan};
use crate::memory::cells::Cell;
use crate::port::Store;
use crate::port::operation::{Detail, Kind, OpId, Operation, Outcome};
use crate::types::error::{Call, Error, ErrorKind, Fault};
use crate::types::interest::Direction;
use crate::types::source::OwnedSource;

/// What has become of an operation on a socket, beside its bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SocketStage {
    #[default]
    Fresh,
    /// The back end has declined to carry it out: it waits for edges.
    Declined,
    /// The connect is under way.
    Begun,
}

/// How far an operation has come.
#[derive(Default)]
pub(crate) struct Progress {
    pub(super) stage: SocketStage,
    /// A datagram was longer than the buffer.
    pub(super) is_cut: bool,
    /// How many bytes were sent, received, written or read.
    pub(super) len: usize,
    /// The connection that an accept has won.
    pub(super) socket: Option<OwnedSource>,
    pub(super) fault: Option<Fault>,
}

impl Progress {
    /// How many bytes were sent, received, written or read.
    pub(crate) fn transferred(&self) -> usize {
        self.len
    }

    /// Keeps what the system returned. A failure ends the operation; one that the system has declined to carry out waits.
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

    /// Why an operation has failed that has ended so.
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

/// An operation in its cell: what is asked for, and how far it has come.
pub(crate) struct OpData<B> {
    /// Without its buffer while the back end has that.
    pub(super) operation: Operation<B>,
    pub(super) progress: Progress,
    /// Packets of it bring clones of the key.
    pub(crate) is_shared: bool,
    /// It has become a job or a transfer, which has not come back to it.
    pub(crate) is_submitted: bool,
    /// Why it has ended, once it has.
    pub(super) reason: EndReason,
    /// What its packet tells of it, if it is shared.
    pub(crate) association: u64,
    pub(crate) name: OpId,
}

impl<K, B> Store<K, B> {
    /// Puts an operation that has not begun into the cell of its record, which is the caller's. Returns the cell.
    #[inline]
    #[allow(clippy::multiple_unsafe_ops_per_block, reason = "each writes another field")]
    pub(in crate::port) fn load(
        &self,
        op_index: u32,
        operation: Operation<B>,
        is_shared: bool,
    ) -> &Cell<OpData<B>> {
        let cell = self.operations.at(op_index);
        let place = cell.place();
        let Progress { stage, is_cut, len, socket, fault } = Progress::default();
        // A value as a whole would be put together elsewhere, and copied then.
        // SAFETY: writing through a raw pointer demands that it is valid and that nothing else accesses the place.
        // - valid: the cell has room for a value, and these are its fields, all of them. The cell is empty: a record is
        //   free only after its operation was moved out;
        // - nothing else: the record is the caller's, by its token or since it was just reserved, until the operation is
        //   in flight.
        unsafe {
            (&raw mut (*place).operation).write(operation);
            (&raw mut (*place).progress.stage).write(stage);
            (&raw mut (*place).progress.is_cut).write(is_cut);
            (&raw mut (*place).progress.len).write(len);
            (&raw mut (*place).progress.socket).write(socket);
            (&raw mut (*place).progress.fault).write(fault);
            (&raw mut (*place).is_shared).write(is_shared);
            (&raw mut (*place).is_submitted).write(false);
            (&raw mut (*place).reason).write(EndReason::Done);
            (&raw mut (*place).association).write(0);
            (&raw mut (*place).name).write(OpId(0));
        }
        cell
    }
}

impl<B> OpData<B> {
    /// The operation, which was refused.
    pub(crate) fn into_operation(self) -> Operation<B> {
        self.operation
    }

    /// What it is, for events.
    pub(crate) fn call(&self) -> Call {
        self.operation.call()
    }

    /// See [`Operation::plan`].
    pub(crate) fn plan(&self, backend: &dyn Backend) -> Plan {
        self.operation.plan(backend)
    }

    pub(crate) fn direction(&self) -> Direction {
        self.operation.direction()
    }

    pub(crate) fn is_of_file(&self) -> bool {
        self.operation.is_of_file()
    }

    /// How many bytes it has sent, received, written or read.
    pub(crate) fn transferred(&self) -> usize {
        self.progress.transferred()
    }

    /// It cannot go on.
    pub(crate) fn fail(&mut self, fault: Fault) {
        self.progress.fault = Some(fault);
    }

    /// Code of its buffer has panicked.
    pub(crate) fn fail_by_panic(&mut self) {
        self.fail(Fault { kind: ErrorKind::Other, code: None });
        if self.operation.kind.fills() {
            // Of what has come the buffer says nothing.
            self.progress.len = 0;
        }
    }

    /// It could not be begun.
    pub(crate) fn fail_at_start(&mut self, fault: Fault) {
        // What was read at once is not told: the buffer says nothing of it.
        (self.progress.len, self.progress.fault) = (0, Some(fault));
    }

    /// The operation has ended.
    #[inline]
    pub(crate) fn settle(&mut self, reason: EndReason) {
        self.reason = reason;
    }

    /// Why the operation has failed, which is settled.
    pub(crate) fn error(&self) -> Option<Error> {
        self.progress.error(self.operation.kind, self.reason)
    }

    /// What has become of the operation, which is settled. Nothing of worth is left of it.
    pub(crate) fn take_outcome(&mut self) -> Outcome<B> {
        let result = self.error().map_or(Ok(self.progress.len), Err);
        self.operation.take_outcome(&mut self.progress, result)
    }

    /// The buffer of an operation that is settled, has not failed, and brings its bytes and nothing else: with which bytes
    /// it comes back, and how many. `None`, and nothing has changed, in any other case. Nothing is left of the operation
    /// then that would have to be dropped.
    #[inline]
    pub(crate) fn take_bytes(&mut self) -> Option<(Bytes, usize, B)> {
        let Progress { is_cut, len, fault, .. } = &self.progress;
        if self.reason != EndReason::Done || fault.is_some() || *is_cut {
            return None;
        }
        let bytes = self.operation.kind.bytes()?;
        if let Detail::Address(_) = self.operation.detail {
            return None;
        }
        let buffer = self.operation.buffer.take()?;
        Some((bytes, *len, buffer))
    }
}

/// What became of the bytes of a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bytes {
    Received,
    Sent,
    Read,
}
