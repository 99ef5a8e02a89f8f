//! How the packet of an operation is made.

use std::marker::PhantomData;
use std::mem::ManuallyDrop;

use crate::backend::sockets::{Rest, SocketAttempt};
use crate::engine::{EndReason, Engine, Name, OpRef, Step, Worker, name_parts};
use crate::memory::cells::Cell;
use crate::memory::trace::traces_packets;
use crate::port::operation::attempt::settle;
use crate::port::operation::data::Brings;
use crate::port::operation::{Completed, OpData, OpId, SharedCompleted};
use crate::port::packets::{Packet, Packets};
use crate::types::buffer::Buffer;

/// Guards an operation that has ended, while its key is cloned. If that panics, its packet is made
/// again.
struct CloneGuard<'e>(&'e Engine, u32);

impl Drop for CloneGuard<'_> {
    fn drop(&mut self) {
        self.0.queue_operation(self.1);
    }
}

impl<'p, K, M, B: Buffer> Packets<'_, 'p, K, M, B> {
    /// Handles the turn of the operation of `op_index`. Tries it, if it has not ended.
    ///
    /// Returns `None` if it continues to wait, or has nothing for the caller.
    #[inline(never)]
    pub(in crate::port) fn operation(
        &self,
        op_index: u32,
        worker: &Worker,
    ) -> Option<Packet<'p, K, M, B>> {
        let (store, engine) = (self.port.store(), self.port.engine());
        let (op_ref, cell) = (engine.op_ref(op_index), store.operations.at(op_index));
        if !engine.turn_alone(&op_ref) {
            return self.any_operation(&op_ref, cell, worker);
        }
        let attempt = store.attempt(cell, &op_ref, Some(worker));
        // The common case of `Store::attempt_own`.
        if engine.forked() || !engine.tried_and_completed(&op_ref, attempt) {
            return self.own_operation(&op_ref, cell, Some(attempt), worker);
        }
        Some(self.done(&op_ref, cell, worker))
    }

    /// Makes the packet of an operation that was started by a token. The operation has completed
    /// and is settled.
    #[inline]
    fn done(
        &self,
        op_ref: &OpRef<'p>,
        cell: &'p Cell<OpData<B>>,
        worker: &Worker,
    ) -> Packet<'p, K, M, B> {
        let (store, engine) = (self.port.store(), self.port.engine());
        engine.count_operation(worker, true);
        worker.handles(op_ref.index);
        if traces_packets() {
            trace_completed(engine, op_ref.registration(), cell);
        }
        Packet::Completed(Completed::of(store, op_ref.slot, op_ref.index, cell))
    }

    /// Handles the turn of an operation that was started by a token and must be tried. If it was
    /// tried already, `known` is the result.
    #[cold]
    #[inline(never)]
    fn own_operation(
        &self,
        op_ref: &OpRef<'p>,
        cell: &'p Cell<OpData<B>>,
        known: Option<SocketAttempt<Rest>>,
        worker: &Worker,
    ) -> Option<Packet<'p, K, M, B>> {
        if self.port.store().attempt_own(cell, op_ref, known, Some(worker)) {
            return Some(self.done(op_ref, cell, worker));
        }
        self.port.engine().count_operation(worker, false);
        None
    }

    /// Handles the turn of any operation.
    #[inline(never)]
    fn any_operation(
        &self,
        op_ref: &OpRef<'p>,
        cell: &'p Cell<OpData<B>>,
        worker: &Worker,
    ) -> Option<Packet<'p, K, M, B>> {
        let (store, engine, op_index) = (self.port.store(), self.port.engine(), op_ref.op_index);
        // SAFETY: `get` requires a value that is neither changed nor taken while the reference
        // lives.
        // - a value: an operation is in its cell until its packet is taken, and the packet is
        //   made only below;
        // - neither changed nor taken: only one thread gets the node of an operation, this one.
        let data = unsafe { cell.get() };
        let (brings, is_submitted) = (data.brings, data.is_submitted);
        let thread = self.op_thread(worker);
        let step = engine.turn(op_ref, thread);
        if is_submitted {
            store.fetch(cell, op_index);
            if engine.forked() {
                // The buffer's code has forked, and this is the child.
                return None;
            }
        }
        if brings == Brings::Token {
            let Step::Ends(reason) = step else {
                return self.own_operation(op_ref, cell, None, worker);
            };
            engine.abandon_connect(op_ref, reason);
            engine.complete_own(op_ref);
            if reason != EndReason::Done {
                // Otherwise it is already settled: as done from the beginning, or when its token
                // tried it.
                settle(cell, reason);
            }
            return Some(self.done(op_ref, cell, worker));
        }
        if brings == Brings::Message {
            return self.message_of(op_ref, cell, step, worker);
        }
        let step = match step {
            Step::Try => store.attempt_shared(cell, op_ref, thread),
            step => step,
        };
        let Step::Ends(reason) = step else {
            engine.count_operation(worker, false);
            return None;
        };
        self.shared_operation(op_ref, cell, reason, worker)
    }

    /// Makes the packet of an operation of a shared association, which has ended for `reason`.
    ///
    /// Returns `None` if cloning the key has forked, and this is the child.
    #[inline]
    fn shared_operation(
        &self,
        op_ref: &OpRef<'p>,
        cell: &'p Cell<OpData<B>>,
        reason: EndReason,
        worker: &Worker,
    ) -> Option<Packet<'p, K, M, B>> {
        let (store, engine, op_index) = (self.port.store(), self.port.engine(), op_ref.op_index);
        let name = op_ref.registration();
        let sharing = CloneGuard(engine, op_index);
        let clone = self.port.clone_key().expect("set before the first such association");
        // SAFETY: `get` requires a value that is neither changed nor taken while the reference
        // lives.
        // - a value: the key is in its cell while operations share it, and this one has not
        //   completed;
        // - neither changed nor taken: a shared association has no token, and its key is moved out
        //   only after the last of its operations has completed. Other threads may clone the key
        //   meanwhile: it is `Sync`.
        let key = clone(unsafe { store.keys.cells.at(name_parts(name).0).get() });
        std::mem::forget(sharing);
        if engine.forked() {
            return None;
        }
        // SAFETY: `get_mut` requires a value that nothing else accesses while the reference lives.
        // - a value: an operation is in its cell until its packet is taken;
        // - nothing else: the calling thread has the operation's node; only the packet that is made
        //   here takes it.
        let data = unsafe { cell.get_mut() };
        (data.association, data.name) = (name, OpId(engine.operation_of(op_index)));
        data.settle(reason);
        engine.abandon_connect(op_ref, reason);
        engine.count_operation(worker, true);
        worker.handles(op_ref.index);
        engine.complete_shared(op_ref, Some(worker));
        if traces_packets() {
            trace_completed(engine, name, cell);
        }
        let key = ManuallyDrop::new(key);
        Some(Packet::SharedCompleted(SharedCompleted {
            store,
            op_index,
            key,
            outcome: PhantomData,
        }))
    }
}

/// Reports an operation that has ended to the tracing subscriber. The operation belongs to the
/// caller, which is about to deliver its packet or outcome.
#[cold]
pub(in crate::port) fn trace_completed<B>(
    engine: &Engine,
    registration: Name,
    cell: &Cell<OpData<B>>,
) {
    // SAFETY: `get` requires a value that is neither changed nor taken while the reference lives.
    // - a value, and neither: as in `settle`.
    let data = unsafe { cell.get() };
    engine.trace_completed(registration, data.call(), data.error());
}
