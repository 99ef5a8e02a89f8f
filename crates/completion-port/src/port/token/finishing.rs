//! Operations that a token starts while the port is finishing.

use crate::engine::{EndReason, OpEntry};
use crate::port::operation::attempt::settle;
use crate::port::operation::data::{Brings, take_outcome};
use crate::port::operation::{OpId, Operation, Outcome, Started};
use crate::port::token::{Held, Ready};
use crate::types::buffer::Buffer;
use crate::types::error::{Error, ErrorKind, Refused};

/// What happens to an operation that is started while the port is not open.
pub(super) enum LateStart<'p> {
    /// It starts, with this op index and entry.
    Starts(u32, &'p OpEntry),
    /// It is cancelled before it is tried. It uses this op index.
    Cancelled(u32),
    Refused(Error),
}

impl<'p, K, B: Buffer> Ready<'p, K, B> {
    /// Decides what happens to an operation whose start was refused with this error.
    #[cold]
    #[inline(never)]
    pub(super) fn prepare_finishing(
        &self,
        operation: &Operation<B>,
        error: Error,
    ) -> LateStart<'p> {
        let Held { store, index, .. } = self.held;
        let engine = &store.engine;
        if error.kind() != ErrorKind::Closed || !engine.is_finishing() {
            return LateStart::Refused(error);
        }
        let plan = operation.plan(engine.backend());
        let reserve = |op_index| store.operations.reserve(op_index);
        match engine.own_op_finishing(index, plan.call, reserve) {
            Err(error) => LateStart::Refused(error),
            Ok((op_index, _)) if plan.is_inbound(engine.is_file(index)) => {
                LateStart::Cancelled(op_index)
            }
            Ok((op_index, entry)) => LateStart::Starts(op_index, entry),
        }
    }

    /// Puts a cancelled operation into its cell.
    fn load_cancelled(&self, op_index: u32, operation: Operation<B>) {
        self.trace_started(&operation);
        let cell = self.held.store.operations.at(op_index);
        operation.load(cell, Brings::Token);
        settle(cell, EndReason::Cancelled);
    }

    /// Queues the packet of an operation that is cancelled before it is tried.
    #[cold]
    pub(super) fn start_cancelled(
        self,
        op_index: u32,
        operation: Operation<B>,
    ) -> Result<OpId, Refused<(K, Operation<B>)>> {
        self.load_cancelled(op_index, operation);
        let cell = self.held.store.operations.at(op_index);
        self.into_held().end_by_packet(cell, op_index)
    }

    /// Cancels an operation before it is tried.
    #[cold]
    pub(super) fn cancel_now(
        self,
        op_index: u32,
        operation: Operation<B>,
    ) -> Started<(Self, Outcome<B>)> {
        self.load_cancelled(op_index, operation);
        let cell = self.held.store.operations.at(op_index);
        take_outcome(cell, |outcome| Started::Completed((self, outcome)))
    }
}
