//! How an operation is started.

use std::sync::atomic::Ordering::{Acquire, SeqCst};

use super::{OpRef, Operations, Plan};
use crate::backend::sockets::{Rest, SocketAttempt};
use crate::engine::context::{Name, PortPhase, kind_of, name_of, name_parts};
use crate::engine::queue::OpThread;
use crate::engine::worker::Worker;
use crate::state::moment::Moment;
use crate::state::operations::{OpEntry, OpQueues, OpTable, Step, Tried};
use crate::state::queue::OP;
use crate::state::slot::{Drained, Refusal, Slot};
use crate::state::timers::SlotTimer;
use crate::types::error::{Call, Error, ErrorKind};
use crate::types::interest::Direction;
use crate::types::source::Descriptor;

/// Work that is tried directly, without an `Op`, during its attempt.
struct DirectAttempt<'e> {
    operations: &'e Operations,
    name: Name,
    slot: &'e Slot,
    entry: &'e OpEntry,
    direction: Direction,
}

impl DirectAttempt<'_> {
    /// Ends the attempt with this result, and frees the operation queue.
    fn tried(&self, attempt: SocketAttempt<Rest>) {
        let Self { operations, name, slot, entry, direction } = *self;
        if operations.forked() {
            // The attempt has forked, and this is the child: the operation queue belongs to the
            // parent.
            return;
        }
        let tried = match attempt {
            SocketAttempt::Done(Rest::Nothing) => Tried::Done { dry: slot.word().is_plain() },
            SocketAttempt::Blocked => Tried::Blocked,
            _ => Tried::Done { dry: false },
        };
        let poll = operations.current_poll();
        let mut queues = entry.lock();
        let (follow_up, completed) =
            queues.tried_direct(operations.nodes(), slot, direction, tried, poll);
        let is_blocked = queues.blocked().has(direction.facts());
        drop(queues);
        let (index, _) = name_parts(name);
        if is_blocked {
            operations.watch_for(name, slot, direction);
        }
        operations.see_to(follow_up, index, OpThread::ANY);
        operations.follow(completed, index, None);
    }
}

impl Drop for DirectAttempt<'_> {
    /// Ends the attempt after it has panicked.
    fn drop(&mut self) {
        self.tried(SocketAttempt::Done(Rest::Unknown));
    }
}

impl Operations {
    /// Returns the [`OpEntry`] of a slot, with room for its timer. Creates it if there is none.
    #[inline]
    pub(in crate::engine) fn entry_with_timer(
        &self,
        index: u32,
        call: Call,
    ) -> Result<&OpEntry, Error> {
        match self.entry(index) {
            Some(entry) if entry.has_timer.load(Acquire) => Ok(entry),
            _ => self.make_entry(index, call),
        }
    }

    #[cold]
    #[inline(never)]
    fn make_entry(&self, index: u32, call: Call) -> Result<&OpEntry, Error> {
        let scarce = Error::new(call, ErrorKind::OutOfMemory);
        if !self.reserve_entry(index) {
            return Err(scarce);
        }
        let entry = self.entry_of_operation(index);
        if !entry.has_timer.load(SeqCst) {
            if !self
                .lock()
                .lists_mut()
                .timers_mut()
                .reserve_slot_timer(SlotTimer::Operations, index)
            {
                return Err(scarce);
            }
            entry.has_timer.store(true, SeqCst);
        }
        Ok(entry)
    }

    /// Returns the op index that the token of the held slot uses, and the slot's [`OpEntry`].
    ///
    /// `also` makes sure that the operation's cell can be used.
    #[inline]
    pub(crate) fn own_op(
        &self,
        index: u32,
        call: Call,
        also: impl FnOnce(u32) -> bool,
    ) -> Result<(u32, &OpEntry), Error> {
        self.check_open(call)?;
        self.own_op_of(index, call, also)
    }

    /// Does what [`Operations::own_op`] does, whatever the phase.
    #[inline]
    pub(super) fn own_op_of(
        &self,
        index: u32,
        call: Call,
        also: impl FnOnce(u32) -> bool,
    ) -> Result<(u32, &OpEntry), Error> {
        if let Some(entry) = self.entry(index)
            && let Some(own) = entry.own()
        {
            return Ok((own & !OP, entry));
        }
        self.make_own_op(index, call, also)
    }

    /// Allocates the op index for a slot that has none yet. See [`Operations::own_op`].
    #[cold]
    fn make_own_op(
        &self,
        index: u32,
        call: Call,
        also: impl FnOnce(u32) -> bool,
    ) -> Result<(u32, &OpEntry), Error> {
        let entry = self.entry_with_timer(index, call)?;
        let op_index = self.take_op(call, also)?;
        self.mark(op_index, false, false);
        entry.keep(op_index | OP);
        Ok((op_index, entry))
    }

    /// Allocates an op index for an operation that is started through the name of a registration.
    ///
    /// The thread of `worker` starts it. If it does not,
    /// [`Queue::release_op`](crate::engine::queue::Queue::release_op) frees the index.
    pub(crate) fn shared_op(
        &self,
        name: Name,
        plan: &Plan,
        worker: Option<&Worker>,
        also: impl FnOnce(u32) -> bool,
    ) -> Result<u32, Error> {
        self.check_starts(plan.call)?;
        let (index, generation) = name_parts(name);
        let refused = |refusal| Error::new(plan.call, kind_of(refusal));
        let (slot, _) = self.known(name).ok_or(refused(Refusal::NotRegistered))?;
        slot.admits(generation).map_err(refused)?;
        self.entry_with_timer(index, plan.call)?;
        // Reuse an op index whose packet this thread has just taken: everything that it needs
        // exists.
        match worker
            .and_then(|worker| worker.completed().pop(|op_index| &self.nodes().op(op_index).link))
        {
            Some(op_index) => Ok(op_index),
            None => self.take_op(plan.call, also),
        }
    }

    /// Lends the key of a held slot to the operation of `op_index`, which is in its cell.
    ///
    /// The token has tried the operation, and the caller handles the result of that attempt next.
    /// If this fails, the slot is still held.
    pub(crate) fn lend(
        &self,
        slot: &Slot,
        index: u32,
        entry: &OpEntry,
        op_index: u32,
        plan: &Plan,
        drained: Drained,
    ) -> Result<Step, Error> {
        let lend = |_: &OpQueues| {
            slot.lend(plan.direction.facts(), drained)?;
            // It counts as ready: the token's attempt lacked a resource or needs the system, and no
            // edge reports either.
            Ok(true)
        };
        self.start(slot, index, entry, op_index, plan, lend)
    }

    /// Gives the operation of `op_index` a share in the key of a registration.
    ///
    /// The operation is in its cell.
    pub(crate) fn share(&self, name: Name, op_index: u32, plan: &Plan) -> Result<Step, Error> {
        let (index, generation) = name_parts(name);
        let slot = self.slot(index);
        // The name may be another port's and match any registration of this one. `is_shared` is set
        // before a registration gets its name.
        let share = |queues: &OpQueues| {
            if queues.is_shared {
                slot.share(generation, plan.direction.facts())
            } else {
                Err(slot.refuse_to_share(generation))
            }
        };
        self.start(slot, index, self.entry_of_operation(index), op_index, plan, share)
    }

    #[inline]
    fn start(
        &self,
        slot: &Slot,
        index: u32,
        entry: &OpEntry,
        op_index: u32,
        plan: &Plan,
        take_key: impl FnOnce(&OpQueues) -> Result<bool, Refusal>,
    ) -> Result<Step, Error> {
        let mut queues = entry.lock();
        // The thread that closes the port stores the phase before it takes this lock to look for
        // pending operations. So either that thread sees this operation, or this one sees that the
        // port is closed.
        let is_cancelled = match self.phase() {
            PortPhase::Open => false,
            PortPhase::Finishing => plan.is_inbound(false),
            _ => return Err(Error::new(plan.call, ErrorKind::Closed)),
        };
        let is_ready =
            take_key(&queues).map_err(|refusal| Error::new(plan.call, kind_of(refusal)))?;
        let Plan { direction, deadline, .. } = *plan;
        let node = op_index | OP;
        // Read before the lock is released: the operation may then complete immediately, and the
        // slot be reused.
        let name = name_of(index, slot.word().generation());
        if is_cancelled {
            // Without this, it would not wait for an edge, and the caller would try it.
            self.nodes().op(node).mark_unasked(false);
        }
        let is_ready = is_ready && !is_cancelled;
        let step = queues.start(self.nodes(), node, index, direction, deadline, is_ready);
        if is_cancelled {
            debug_assert_eq!(step, Step::Waits, "it is not known to be ready");
            self.cancel_started(queues, slot, index, node);
            return Ok(step);
        }
        if queues.is_shared {
            if deadline != Moment::NEVER {
                entry.timer().pull_in(deadline);
            }
        } else if entry.timer().deadline() != deadline {
            // No other thread moves the deadline: a start needs the token, and an expiring timer
            // needs the lock held here.
            entry.timer().move_deadline(deadline);
        }
        drop(queues);
        self.revalidate_timer(SlotTimer::Operations, index, entry.timer());
        if step == Step::Waits {
            self.watch_for(name, slot, direction);
        }
        Ok(step)
    }

    /// Tries work directly, without an `Op`, on the descriptor of a shared registration.
    ///
    /// Returns whether the work is done; if not, the caller starts an operation. Tries nothing if
    /// an operation of this direction is pending, or if the direction is known not to be ready.
    pub(crate) fn try_directly(
        &self,
        name: Name,
        direction: Direction,
        attempt: impl FnOnce(Descriptor) -> SocketAttempt<Rest>,
    ) -> bool {
        let Some(direct) = self.begin_direct(name, direction) else { return false };
        let attempt = attempt(direct.slot.descriptor());
        direct.tried(attempt);
        std::mem::forget(direct);
        attempt.is_over()
    }

    /// Like [`Operations::try_directly`], for a caller that lets no other operation of this
    /// direction start meanwhile. Changes nothing, whatever the attempt finds.
    pub(crate) fn try_exclusively(
        &self,
        name: Name,
        direction: Direction,
        attempt: impl FnOnce(Descriptor) -> SocketAttempt<Rest>,
    ) -> bool {
        if self.forked() {
            return false;
        }
        let Some((slot, generation)) = self.known(name) else { return false };
        slot.word().admits_exclusive(generation, direction.facts())
            && self.phase() == PortPhase::Open
            && attempt(slot.descriptor()).is_over()
    }

    fn begin_direct(&self, name: Name, direction: Direction) -> Option<DirectAttempt<'_>> {
        if self.forked() {
            return None;
        }
        let (index, generation) = name_parts(name);
        let (slot, _) = self.known(name)?;
        if !slot.word().may_be_ready(direction.facts()) {
            // Read without the lock: the start that follows decides. A receive that waits, as most
            // do on a connection that answers requests, then takes the entry's lock once.
            return None;
        }
        // If there is no memory for the entry, the start that follows fails with that error.
        let entry = self.entry_with_timer(index, Call::Receive).ok()?;
        let mut queues = entry.lock();
        // The same race as in `start`.
        let begins =
            self.phase() == PortPhase::Open && queues.begin_direct(slot, generation, direction);
        begins.then(|| DirectAttempt { operations: self, name, slot, entry, direction })
    }

    /// Builds the `OpRef` of an operation that the token of a held slot is about to start.
    #[inline]
    pub(crate) fn before_start<'e>(
        &'e self,
        op_index: u32,
        index: u32,
        slot: &'e Slot,
        entry: &'e OpEntry,
    ) -> OpRef<'e> {
        OpRef { op_index, index, op: self.nodes().op(op_index), slot, entry }
    }

    /// Queues the packet of an operation that the token of a held slot has already performed.
    ///
    /// False if the port was closed meanwhile, since perhaps no thread would take the packet.
    /// Nothing has changed then.
    pub(crate) fn lend_ended(
        &self,
        slot: &Slot,
        index: u32,
        op_index: u32,
        drained: Drained,
        worker: Option<&Worker>,
    ) -> bool {
        let mut hub = self.lock();
        if !hub.lists().phase().allows_starts() {
            return false;
        }
        self.nodes().op(op_index).begin_ended(index);
        slot.lend_ended(drained);
        let notice = self.submit_own_locked(&mut hub, op_index | OP, worker);
        drop(hub);
        self.notify(notice);
        true
    }
}
