//! The life of an operation, from its start to its packet.
//!
//! The engine says when an operation is to be tried, and by which thread; what it is, and how it is tried, the
//! caller knows. Between [`Step::Try`] and [`Operations::tried`] the caller has the operation to itself.

mod end;
mod files;
mod lone;
mod outstanding;
mod queues;
mod sockets;
mod submit;

use std::ops::Deref;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use super::context::{Context, Name, name_of, name_parts};
use super::registry::Registry;
use super::worker::Worker;
use crate::backend::sockets::{Rest, SocketAttempt};
use crate::state::moment::Moment;
use crate::state::operations::{Clearance, EndReason, FollowUp, Op, OpEntry, OpTable, Step, Tried};
use crate::state::queue::{NIL, NodeList, OP};
use crate::state::slot::{Removal, Slot};
use crate::state::timers::SlotTimer;
use crate::types::error::{Call, Fault};
use crate::types::interest::Direction;
use crate::types::source::Descriptor;
use outstanding::Outstanding;

/// How long an operation waits for what no edge tells of, until it is tried again.
const SCARCE: Duration = Duration::from_millis(10);

/// What is known of an operation when it starts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) call: Call,
    pub(crate) direction: Direction,
    /// When it is to end at the latest; [`Moment::NEVER`]: no limit.
    pub(crate) deadline: Moment,
}

/// An operation in flight, and what it belongs to.
#[derive(Clone, Copy)]
pub(crate) struct OpRef<'e> {
    pub(crate) op_index: u32,
    /// The number of its slot.
    pub(crate) index: u32,
    op: &'e Op,
    pub(crate) slot: &'e Slot,
    pub(crate) entry: &'e OpEntry,
}

impl OpRef<'_> {
    /// What it is tried on.
    #[inline]
    pub(crate) fn descriptor(&self) -> Descriptor {
        self.slot.descriptor()
    }

    /// Its own name: the record, and how often that was used before.
    #[inline]
    pub(crate) fn name(&self) -> u64 {
        u64::from(self.op.uses()) << 32 | u64::from(self.op_index)
    }

    /// The name of its registration.
    #[inline]
    pub(crate) fn registration(&self) -> Name {
        name_of(self.index, self.slot.word().generation())
    }
}

/// What an attempt asks of the association that its operation belongs to.
#[derive(Clone, Copy)]
pub(crate) struct AttemptContext<'e> {
    context: &'e Context,
    entry: &'e OpEntry,
    op_index: u32,
}

impl AttemptContext<'_> {
    /// The socket that an operation is tried on does not block from here on. The operation keeps the key, and so the
    /// descriptor, in its place.
    pub(crate) fn make_nonblocking(self, descriptor: Descriptor) -> Result<(), Fault> {
        let Self { context, entry, .. } = self;
        // A file has no connections, which the call for one says.
        if !entry.is_nonblocking.load(SeqCst) && !entry.is_file.load(SeqCst) {
            context.backend().make_nonblocking(descriptor)?;
            entry.is_nonblocking.store(true, SeqCst);
        }
        Ok(())
    }

    /// The operation, a connect, is about to begin: whether an earlier one that was cancelled lets it.
    pub(crate) fn clear_for_connect(self, descriptor: Descriptor) -> Clearance {
        self.entry.clear_for_connect(|| self.context.backend().abandon_connect(descriptor))
    }

    /// The connect is under way.
    pub(crate) fn connect_begun(self) {
        self.entry.connect_begun(self.op_index);
    }

    /// It has come to an end.
    pub(crate) fn connect_ended(self) {
        self.entry.connect_ended();
    }
}

/// See the module's documentation.
#[repr(C)]
pub(crate) struct Operations {
    registry: Registry,
    /// What the back end has of operations, and what it has given back.
    outstanding: Outstanding,
}

impl Deref for Operations {
    type Target = Registry;

    #[inline]
    fn deref(&self) -> &Registry {
        &self.registry
    }
}

/// What an attempt needs to know.
impl Operations {
    pub(super) fn new(registry: Registry) -> Self {
        Self { registry, outstanding: Outstanding::new() }
    }

    /// What there is of the operation of a record, which is in flight, or is just being started.
    #[inline]
    pub(crate) fn op_ref(&self, op_index: u32) -> OpRef<'_> {
        let op = self.nodes().op(op_index);
        let index = op.slot();
        OpRef { op_index, index, op, slot: self.slot(index), entry: self.entry_of_operation(index) }
    }

    /// What an attempt at the operation of `op_index` asks, which belongs to this operation entry.
    #[inline]
    pub(crate) fn place<'e>(&'e self, entry: &'e OpEntry, op_index: u32) -> AttemptContext<'e> {
        AttemptContext { context: self, entry, op_index }
    }
}

/// The turn of an operation, and what its attempt has come to.
impl Operations {
    /// The node of an operation has come to the calling thread.
    #[inline]
    pub(crate) fn turn(&self, op_ref: &OpRef<'_>, worker: Option<&Worker>) -> Step {
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
        self.see_to(follow_up, index, worker);
        step
    }

    /// The calling thread has tried an operation. If it has ended, the caller takes the packet, or has it queued by
    /// [`Queue::queue_operation`](super::queue::Queue::queue_operation).
    pub(crate) fn tried(
        &self,
        op_ref: &OpRef<'_>,
        attempt: SocketAttempt<Rest>,
        worker: Option<&Worker>,
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
            // Behind what was received an end may stand that no further edge tells of.
            SocketAttempt::Done(Rest::Nothing) => Tried::Done { dry: slot.word().is_plain() },
            SocketAttempt::Blocked => Tried::Blocked,
            SocketAttempt::OutOfResources => Tried::OutOfResources(self.backend().now() + SCARCE),
            // Its timer rings at the next look at those, and queues it behind what is there by then.
            SocketAttempt::Yielded => Tried::OutOfResources(self.backend().now()),
            SocketAttempt::NeedsSystem => unreachable!("its caller has seen to it"),
        };
        let direction = op.direction();
        let name = op_ref.registration();
        let (step, follow_up) = queues.tried(self.nodes(), slot, op_index | OP, tried, poll);
        // Also where this one has ended: another one may wait behind it, for which the kernel was not asked.
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
        self.see_to(follow_up, index, worker);
        step
    }

    /// Does what a change of an operation asks for besides.
    pub(super) fn see_to(&self, follow_up: FollowUp, index: u32, worker: Option<&Worker>) {
        if follow_up.due != NIL && !self.forked() {
            self.submit(follow_up.due);
        }
        self.follow(follow_up.next, index, worker);
    }

    /// An operation of this direction waits for an edge.
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

    /// Makes sure that the kernel watches for what the operations of a slot wait for. If its descriptor turns out to
    /// be closed, they end: the nodes of those that have ended are returned, for the caller to queue.
    pub(super) fn watch_or_end(&self, name: Name, slot: &Slot) -> NodeList {
        let mut ended = NodeList::new();
        if !self.watch_queues(name, slot) {
            let (index, generation) = name_parts(name);
            // As long as operations have the key, the last of them goes on with the end.
            if slot.retire(generation) == Removal::Owned {
                ended.push(self.nodes(), index);
            }
            self.cancel_all_ops(name, EndReason::Gone, &mut ended);
        }
        ended
    }

    /// What operations of a registration in this direction may have waited for, and no edge tells of, is there: the
    /// first of them is tried.
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
        // Which wakes a thread that waits, if that is sooner than it would wake by itself.
        self.revalidate_timer(SlotTimer::Operations, index, entry.timer());
    }
}
