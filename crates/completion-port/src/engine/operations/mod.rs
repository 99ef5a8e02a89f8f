//! The life of an operation, from its start to its packet.
//!
//! The engine decides when an operation is tried and by which thread. The caller knows what the
//! operation is and how to try it. Between [`Step::Try`] and [`Operations::tried`] the caller has
//! exclusive access to the operation.

mod end;
mod files;
mod finishing;
mod lone;
mod queues;
mod sockets;
mod submit;

use std::ops::Deref;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::context::{Context, Name, name_of, name_parts};
use super::queue::OpThread;
use super::requests::Requests;
use crate::backend::sockets::{Rest, SocketAttempt};
use crate::state::moment::Moment;
use crate::state::operations::{
    ConnectPermission, EndReason, FollowUp, Op, OpEntry, OpTable, Step, Tried,
};
use crate::state::queue::{NIL, NodeList, OP};
use crate::state::slot::{Removal, Slot};
use crate::state::timers::SlotTimer;
use crate::types::error::{Call, Fault};
use crate::types::interest::Direction;
use crate::types::source::Descriptor;

/// How long an operation waits before it is retried, when no edge reports what it is waiting for.
const SCARCE: Duration = Duration::from_millis(10);

/// What is known about an operation when it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) call: Call,
    pub(crate) direction: Direction,
    /// It is about a file other than that of its registration.
    pub(crate) is_on_other_file: bool,
    /// The time limit; [`Moment::NEVER`]: none.
    pub(crate) deadline: Moment,
}

impl Plan {
    /// Returns whether a finishing port cancels the operation: it waits for something new of a
    /// peer. `is_file`: its descriptor is a file, whose reads end by themselves.
    pub(crate) fn is_inbound(&self, is_file: bool) -> bool {
        match self.call {
            Call::Connect => true,
            Call::Read => self.is_own_read() && !is_file,
            _ => self.direction == Direction::In,
        }
    }

    /// Returns whether the operation reads from the descriptor of its registration, as from a file.
    pub(crate) fn is_own_read(&self) -> bool {
        self.call == Call::Read && !self.is_on_other_file
    }
}

/// A pending operation, and what it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct OpRef<'e> {
    pub(crate) op_index: u32,
    /// The index of its slot.
    pub(crate) index: u32,
    op: &'e Op,
    pub(crate) slot: &'e Slot,
    pub(crate) entry: &'e OpEntry,
}

impl OpRef<'_> {
    /// Returns the descriptor that the operation is tried on.
    #[inline]
    pub(crate) fn descriptor(&self) -> Descriptor {
        self.slot.descriptor()
    }

    /// Returns the operation's own name: its op index, and how often that index was used before.
    #[inline]
    pub(crate) fn name(&self) -> u64 {
        self.op.name(self.op_index)
    }

    /// Returns the name of the operation's registration.
    #[inline]
    pub(crate) fn registration(&self) -> Name {
        name_of(self.index, self.slot.word().generation())
    }
}

/// What an attempt needs from the association that its operation belongs to.
#[derive(Clone, Copy)]
pub(crate) struct AttemptContext<'e> {
    context: &'e Context,
    entry: &'e OpEntry,
    op_index: u32,
}

impl AttemptContext<'_> {
    /// Makes the operation's socket non-blocking.
    ///
    /// The descriptor stays valid meanwhile: the operation keeps the key, and so the descriptor, in
    /// its place.
    pub(crate) fn make_nonblocking(self, descriptor: Descriptor) -> Result<(), Fault> {
        let Self { context, entry, .. } = self;
        // A file has no connections; the call that asks for one reports that.
        if !entry.is_nonblocking.load(SeqCst) && !entry.is_file.load(SeqCst) {
            context.backend().make_nonblocking(descriptor)?;
            entry.is_nonblocking.store(true, SeqCst);
        }
        Ok(())
    }

    /// Returns whether a connect may begin, in view of an earlier one that was cancelled.
    pub(crate) fn clear_for_connect(self, descriptor: Descriptor) -> ConnectPermission {
        self.entry.clear_for_connect(|| self.context.backend().abandon_connect(descriptor))
    }

    /// Notes that the connect has begun and is under way.
    pub(crate) fn connect_begun(self) {
        self.entry.connect_begun(self.op_index);
    }

    /// Notes that the connect has ended.
    pub(crate) fn connect_ended(self) {
        self.entry.connect_ended();
    }
}

/// See the module's documentation.
#[repr(C)]
pub(crate) struct Operations {
    requests: Requests,
}

impl Deref for Operations {
    type Target = Requests;

    #[inline]
    fn deref(&self) -> &Requests {
        &self.requests
    }
}

/// What an attempt needs to know.
impl Operations {
    pub(super) const fn new(requests: Requests) -> Self {
        Self { requests }
    }

    /// Looks up the pieces of an operation that is pending or just being started.
    #[inline]
    pub(crate) fn op_ref(&self, op_index: u32) -> OpRef<'_> {
        let op = self.nodes().op(op_index);
        let index = op.slot();
        OpRef { op_index, index, op, slot: self.slot(index), entry: self.entry_of_operation(index) }
    }

    /// Returns what an attempt at the operation of `op_index` needs from its [`OpEntry`].
    #[inline]
    pub(crate) fn place<'e>(&'e self, entry: &'e OpEntry, op_index: u32) -> AttemptContext<'e> {
        AttemptContext { context: self, entry, op_index }
    }
}

/// The turn of an operation, and the result of its attempt.
impl Operations {
    /// Gives an operation its turn. The calling thread owns its node.
    #[inline]
    pub(crate) fn turn(&self, op_ref: &OpRef<'_>, thread: OpThread<'_>) -> Step {
        if self.turn_alone(op_ref) {
            return Step::Try;
        }
        if op_ref.op.is_lone()
            && let Some(reason) = op_ref.op.cancelled()
        {
            return Step::Ends(reason);
        }
        if op_ref.op.begin() {
            return Step::Try;
        }
        if let Some(reason) = op_ref.op.end() {
            return Step::Ends(reason);
        }
        let OpRef { op_index, index, slot, entry, .. } = *op_ref;
        let poll = self.current_poll();
        let (name, direction) = (op_ref.registration(), op_ref.op.direction());
        let mut queues = entry.lock();
        let (step, follow_up) = queues.turn(self.nodes(), slot, op_index | OP, poll);
        let is_blocked = queues.blocked().has(direction.facts());
        drop(queues);
        if is_blocked {
            self.watch_for(name, slot, direction);
        }
        self.see_to(follow_up, index, thread);
        step
    }

    /// Handles the result of an attempt that the calling thread has made.
    ///
    /// If the operation has ended, the caller takes the packet, or has it queued by
    /// [`Queue::queue_operation`](super::queue::Queue::queue_operation).
    pub(crate) fn tried(
        &self,
        op_ref: &OpRef<'_>,
        attempt: SocketAttempt<Rest>,
        thread: OpThread<'_>,
    ) -> Step {
        if op_ref.op.is_lone() {
            if let SocketAttempt::Blocked = attempt {
                return self.blocked_alone(op_ref);
            }
            self.queue(op_ref);
        }
        let OpRef { op_index, index, slot, entry, op } = *op_ref;
        let poll = self.current_poll();
        let mut queues = entry.lock();
        let tried = match attempt {
            SocketAttempt::Done(Rest::Unknown) | SocketAttempt::Failed(_) => {
                Tried::Done { dry: false }
            }
            // After the data that was received, the stream may have an end that no further edge
            // reports.
            SocketAttempt::Done(Rest::Nothing) => Tried::Done { dry: slot.word().is_plain() },
            SocketAttempt::Blocked => Tried::Blocked,
            // A one-shot reactor would immediately report the readiness once more.
            SocketAttempt::Idle if self.is_one_shot() => {
                Tried::OutOfResources(self.backend().now() + SCARCE)
            }
            SocketAttempt::Idle => Tried::Idle,
            SocketAttempt::OutOfResources => Tried::OutOfResources(self.backend().now() + SCARCE),
            // Due at the next check of the timers, which queues it after everything that is queued
            // by then.
            SocketAttempt::Yielded => Tried::OutOfResources(self.backend().now()),
            SocketAttempt::NeedsSystem => unreachable!("the caller submits it"),
        };
        let direction = op.direction();
        let name = op_ref.registration();
        if queues.waits_again(self.nodes(), slot, op_index | OP, tried) {
            drop(queues);
            self.revalidate_timer(SlotTimer::Operations, index, entry.timer());
            self.watch_for(name, slot, direction);
            return Step::Waits;
        }
        let (step, follow_up) = queues.tried(self.nodes(), slot, op_index | OP, tried, poll);
        // Also asked if this operation has ended: the next one may be waiting for an edge that the
        // kernel was not asked for.
        let is_blocked = queues.blocked().has(direction.facts());
        if let (Step::Waits, Tried::OutOfResources(at)) = (step, tried) {
            entry.timer().pull_in(at);
        }
        drop(queues);
        if step == Step::Waits {
            self.revalidate_timer(SlotTimer::Operations, index, entry.timer());
        }
        if is_blocked {
            self.watch_for(name, slot, direction);
        }
        self.see_to(follow_up, index, thread);
        step
    }

    /// Does what else a change of an operation requires.
    pub(super) fn see_to(&self, follow_up: FollowUp, index: u32, thread: OpThread<'_>) {
        if follow_up.due != NIL && !self.forked() {
            self.queue_next(follow_up.due, thread);
        }
        self.follow(follow_up.next, index, thread.worker());
    }

    /// Has the kernel watch for an edge that an operation of this direction is waiting for.
    #[inline]
    pub(super) fn watch_for(&self, name: Name, slot: &Slot, direction: Direction) {
        if self.is_one_shot() || slot.word().unwatched(direction.facts()).is_some() {
            self.watch_for_more(name, slot);
        }
    }

    #[cold]
    #[inline(never)]
    fn watch_for_more(&self, name: Name, slot: &Slot) {
        self.submit_all(self.watch_or_end(name, slot));
    }

    /// Makes sure that the kernel watches for what the operations of a slot are waiting for.
    ///
    /// If the descriptor turns out to be closed, the operations end. Returns the nodes of the ended
    /// ones, which the caller queues.
    pub(super) fn watch_or_end(&self, name: Name, slot: &Slot) -> NodeList {
        let mut ended = NodeList::new();
        if !self.watch_queues(name, slot) {
            let (index, generation) = name_parts(name);
            // While operations have the key, the last of them completes the end of the
            // registration.
            if slot.retire(generation) == Removal::Owned {
                ended.push(self.nodes(), index);
            }
            self.cancel_all_ops(name, EndReason::Gone, &mut ended);
        }
        ended
    }

    /// Retries the first operation of this direction.
    ///
    /// A resource that it may be waiting for is available, and no edge reports that.
    pub(crate) fn pull_in(&self, name: Name, direction: Direction) {
        if self.forked() {
            return;
        }
        let (index, generation) = name_parts(name);
        let (Some((slot, _)), Some(entry)) = (self.known(name), self.entry(index)) else { return };
        let mut queues = entry.lock();
        if slot.word().generation() != generation {
            return;
        }
        let now = self.backend().now();
        if queues.pull_in(direction, now) {
            entry.timer().pull_in(now);
        }
        drop(queues);
        // This wakes a waiting thread if its sleep would last too long.
        self.revalidate_timer(SlotTimer::Operations, index, entry.timer());
    }
}
