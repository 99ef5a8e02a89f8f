//! Models the operations of one registration: the slot's word, the operation queues, and the phase
//! of each operation (docs/design/OPERATIONS.md). The kernel is two counters: the bytes that can be
//! received, and the room for sends.

use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU32, AtomicUsize, Ordering::SeqCst};

use crate::engine::{EndReason, Step};
use crate::kit::{LEVEL, NO_HINT, PERSISTENT, explore, spawn};
use crate::state::facts::Facts;
use crate::state::moment::Moment;
use crate::state::operations::{
    ConnectPermission, FollowUp, Op, OpEntry, OpQueues, OpTable, Tried,
};
use crate::state::queue::{Links, NIL, Node, NodeList, OP};
use crate::state::slot::{
    Checked, Delivery, Drained, Expiry, NodeTurn, Refusal, Removal, Slot, SlotStep,
};
use crate::sync::Mutex;
use crate::types::interest::Direction;
use crate::types::interest::Mode;
use crate::types::interest::{Events, Interest};

/// The most bytes that one attempt takes.
const ROOM: usize = 2;

/// The number of the poll that finds all edges.
const POLL: u32 = 9;

const IN: Direction = Direction::In;
const OUT: Direction = Direction::Out;

/// The data of an operation, in a cell as in the library.
#[derive(Clone, Copy, Debug, Default)]
struct OpData {
    /// The bytes this operation has taken, and the bytes taken before it.
    taken: usize,
    first: usize,
    packets: usize,
}

struct Board {
    slot: Slot,
    queues: Mutex<OpQueues>,
    ops: [Op; 2],
    /// The data of `ops`, by the same index.
    data: [UnsafeCell<OpData>; 2],
    key: UnsafeCell<u32>,
    /// Nodes of operations that are due or have ended.
    queue: Mutex<Vec<Node>>,
    /// Counts slot nodes that a thread owns and has not yet processed.
    won: AtomicUsize,
    /// Counts wake-ups of a remover that waits for the key.
    told: AtomicUsize,
    /// By direction: the bytes (or room) available, and those already taken.
    there: [AtomicUsize; 2],
    gone: [AtomicUsize; 2],
    /// Pending socket errors. Each fails one attempt that finds nothing to take.
    errors: AtomicUsize,
    is_shared: bool,
}

impl Links for Board {
    fn link(&self, node: Node) -> &AtomicU32 {
        &self.op(node).link
    }
}

impl OpTable for Board {
    fn op(&self, node: Node) -> &Op {
        &self.ops[(node & !OP) as usize]
    }
}

/// The nodes of the two operations.
const FIRST: Node = OP;
const SECOND: Node = OP | 1;
/// The op index of a connect that has ended.
const BEFORE: u32 = 9;

impl Board {
    /// An association with `there` bytes known to be receivable.
    fn new(is_shared: bool, there: usize) -> Self {
        let slot = Slot::default();
        let mode = Mode { interest: Interest::NONE, edge: false, one_shot: !is_shared };
        slot.register(3, mode, false);
        slot.watch(Facts::IN | Facts::OUT);
        slot.know(Facts::IN | Facts::OUT, true);
        if is_shared {
            assert_eq!(slot.put_back(None, false, NO_HINT, 0), SlotStep::Nothing);
        }
        let queues = Mutex::new(OpQueues::default());
        queues.lock().unwrap().begin(is_shared);
        Self {
            slot,
            queues,
            ops: Default::default(),
            data: [(); 2].map(|()| UnsafeCell::new(OpData::default())),
            key: UnsafeCell::new(7),
            queue: Mutex::new(Vec::new()),
            won: AtomicUsize::new(0),
            told: AtomicUsize::new(0),
            there: [there, 0].map(AtomicUsize::new),
            gone: [0, 0].map(AtomicUsize::new),
            errors: AtomicUsize::new(0),
            is_shared,
        }
    }

    fn shared(there: usize) -> Arc<Self> {
        Arc::new(Self::new(true, there))
    }

    /// The calling thread holds the token.
    fn held(there: usize) -> Arc<Self> {
        Arc::new(Self::new(false, there))
    }

    /// Nothing can be received, and the first operation has found that out and waits.
    fn waiting(is_shared: bool) -> Arc<Self> {
        let board = Arc::new(Self::new(is_shared, 0));
        assert_eq!(board.start(FIRST, IN), Ok(Step::Waits));
        board
    }

    fn with_data<R>(&self, node: Node, act: impl FnOnce(&mut OpData) -> R) -> R {
        self.data[(node & !OP) as usize].with_mut(|data| {
            // SAFETY: dereferencing requires that no other thread accesses the cell meanwhile.
            // - The model checks exactly that: loom reports any unordered access.
            act(unsafe { &mut *data })
        })
    }

    /// The handler that holds the token has exclusive use of the key.
    fn use_key(&self) {
        self.key.with_mut(|key| {
            // SAFETY: dereferencing requires that no other thread accesses the cell meanwhile.
            // - The model checks exactly that: loom reports any unordered access.
            assert_eq!(unsafe { *key }, 7, "the key is where it belongs");
        });
    }

    fn clone_key(&self) {
        self.key.with(|key| {
            // SAFETY: dereferencing requires that no other thread writes to the cell meanwhile.
            // - The model checks exactly that: loom reports any unordered access.
            assert_eq!(unsafe { *key }, 7, "the key is there to be cloned");
        });
    }

    /// Moves the key out once the registration has ended.
    fn take_key(&self) {
        self.use_key();
        self.key.with_mut(|key| {
            // SAFETY: as in `use_key`.
            unsafe { *key = 0 };
        });
        assert!(self.slot.word().in_flight() == Facts::NONE, "operations are in flight");
    }

    fn note(&self, next: SlotStep) {
        match next {
            SlotStep::Nothing => {}
            SlotStep::Queue | SlotStep::Recheck => {
                let before = self.won.fetch_add(1, SeqCst);
                assert_eq!(before, 0, "a node is won by one thread at a time");
            }
            SlotStep::Collect => {
                self.told.fetch_add(1, SeqCst);
            }
            SlotStep::Gone => unreachable!("only a token's return finds this, and sees to it"),
            SlotStep::Idle => unreachable!("only a finishing port has this"),
        }
    }

    fn queue(&self, node: Node) {
        if node != NIL {
            let mut queue = self.queue.lock().unwrap();
            assert!(!queue.contains(&node), "a node stands in the queue once");
            queue.push(node);
        }
    }

    /// Returns the node of the lone operation, or `FIRST` if there is none.
    fn own(&self) -> Node {
        if self.op(SECOND).is_lone() { SECOND } else { FIRST }
    }

    fn see_to(&self, follow_up: FollowUp) {
        self.queue(follow_up.due);
        self.note(follow_up.next);
    }

    // ---- the kernel ----

    /// Makes more bytes available and delivers the kernel's edge.
    fn arrive(&self, direction: Direction, bytes: usize) {
        self.there[direction as usize].fetch_add(bytes, SeqCst);
        self.edge(direction.facts());
    }

    /// Adds an error to the socket. The kernel reports only `ERR`.
    fn fail(&self) {
        self.errors.fetch_add(1, SeqCst);
        self.edge(Facts::ERR);
    }

    fn edge(&self, facts: Facts) {
        loop {
            match self.slot.deliver(0, facts, POLL, || POLL) {
                Delivery::Stale => return,
                Delivery::Noted(next) => return self.note(next),
                Delivery::Due => return self.queue(self.own()),
                Delivery::NotifyOps(next, in_flight) => {
                    let (due, is_missed) =
                        self.queues.lock().unwrap().notify_ready(self, &self.slot, in_flight);
                    due.into_iter().for_each(|node| self.queue(node));
                    self.note(next);
                    if !is_missed {
                        return;
                    }
                }
            }
        }
    }

    /// Performs one attempt in `direction`.
    fn take(&self, direction: Direction, data: &mut OpData) -> Tried {
        let queue = direction as usize;
        let there = self.there[queue].load(SeqCst);
        if there == 0 && self.errors.load(SeqCst) > 0 {
            self.errors.fetch_sub(1, SeqCst);
            (data.taken, data.first) = (0, self.gone[queue].load(SeqCst));
            return Tried::Done { dry: false };
        }
        if there == 0 {
            return Tried::Blocked;
        }
        let taken = there.min(ROOM);
        // More may have arrived since the load. As in the kernel, this attempt doesn't see it.
        self.there[queue].fetch_sub(taken, SeqCst);
        let first = self.gone[queue].fetch_add(taken, SeqCst);
        (data.taken, data.first) = (taken, first);
        Tried::Done { dry: taken < ROOM && self.slot.word().is_plain() }
    }

    // ---- the threads ----

    fn start(&self, node: Node, direction: Direction) -> Result<Step, Refusal> {
        self.start_until(node, direction, Moment::NEVER)
    }

    /// Starts an operation. A token first tries it itself if the direction looks ready.
    fn start_until(
        &self,
        node: Node,
        direction: Direction,
        deadline: Moment,
    ) -> Result<Step, Refusal> {
        let facts = direction.facts();
        self.with_data(node, |data| {
            *data = OpData { packets: data.packets, ..OpData::default() };
        });
        let mut drained = NO_HINT;
        if !self.is_shared {
            self.use_key();
            if self.slot.looks_ready(facts, drained) {
                let tried = self.with_data(node, |data| self.take(direction, data));
                if tried != (Tried::Done { dry: false }) {
                    drained = Drained::of(direction);
                }
                if tried != Tried::Blocked {
                    return Ok(self.lend_ended(node, drained));
                }
            }
        }
        let step = if self.is_shared {
            let mut queues = self.queues.lock().unwrap();
            let is_ready = self.slot.share(0, facts)?;
            queues.start(self, node, 0, direction, deadline, is_ready)
        } else {
            let op = self.op(node);
            op.begin_alone(0, direction, deadline);
            let lent = self.slot.lend_alone(facts, drained);
            let is_ready = lent.inspect_err(|_| op.complete())?;
            if is_ready || self.slot.block_alone() {
                Step::Try
            } else {
                self.end_if_cancelled(node);
                Step::Waits
            }
        };
        let step = if step == Step::Try { self.attempt(node) } else { step };
        Ok(match step {
            Step::Ends(_) if !self.is_shared => self.lend_ended(node, NO_HINT),
            Step::Ends(_) => {
                self.queue(node);
                step
            }
            _ => step,
        })
    }

    /// Queues an operation that the token has already performed.
    fn lend_ended(&self, node: Node, drained: Drained) -> Step {
        self.op(node).begin_ended(0);
        self.slot.lend_ended(drained);
        self.queue(node);
        Step::Ends(EndReason::Done)
    }

    /// Tries an operation on the calling thread. A token's operation that ends has also completed.
    fn attempt(&self, node: Node) -> Step {
        let direction = self.op(node).direction();
        loop {
            let tried = self.with_data(node, |data| self.take(direction, data));
            if self.op(node).is_lone() {
                let step = match tried {
                    Tried::Done { dry } => {
                        self.complete_alone(node, dry);
                        return Step::Ends(EndReason::Done);
                    }
                    _ => self.blocked_alone(node),
                };
                match step {
                    Step::Try => continue,
                    Step::Ends(_) => self.complete(node),
                    Step::Waits => {}
                }
                return step;
            }
            let mut queues = self.queues.lock().unwrap();
            let (step, follow_up) = queues.tried(self, &self.slot, node, tried, POLL);
            drop(queues);
            self.see_to(follow_up);
            if step != Step::Try {
                return step;
            }
        }
    }

    /// Does what the engine does with a lone operation that would block.
    fn blocked_alone(&self, node: Node) -> Step {
        let op = self.op(node);
        if let Some(reason) = op.cancelled() {
            return Step::Ends(reason);
        }
        if self.slot.block_alone() {
            return Step::Try;
        }
        self.end_if_cancelled(node);
        Step::Waits
    }

    fn end_if_cancelled(&self, node: Node) {
        if self.op(node).cancelled().is_some() {
            self.claim_alone(node);
        }
    }

    fn complete_alone(&self, node: Node, dry: bool) {
        self.op(node).complete();
        self.slot.complete_alone(dry);
        self.use_key();
    }

    /// Processes queued nodes until one yields a packet. Returns that operation, or `None` if the
    /// queue is empty.
    fn serve(&self) -> Option<(Node, EndReason)> {
        loop {
            let mut queue = self.queue.lock().unwrap();
            if queue.is_empty() {
                return None;
            }
            let node = queue.remove(0);
            drop(queue);
            if let Some(reason) = self.turn(node) {
                self.with_data(node, |data| data.packets += 1);
                return Some((node, reason));
            }
        }
    }

    fn turn(&self, node: Node) -> Option<EndReason> {
        let mut step = Step::Try;
        if self.op(node).is_lone() {
            match self.op(node).cancelled() {
                Some(reason) => step = Step::Ends(reason),
                None => self.slot.begin_alone(),
            }
        } else if !self.op(node).begin() {
            let follow_up;
            (step, follow_up) = self.queues.lock().unwrap().turn(self, &self.slot, node, POLL);
            self.see_to(follow_up);
        }
        let is_tried = step == Step::Try;
        match if is_tried { self.attempt(node) } else { step } {
            Step::Ends(reason) => {
                if self.is_shared || !is_tried {
                    self.complete(node);
                }
                Some(reason)
            }
            _ => None,
        }
    }

    fn complete(&self, node: Node) {
        if !self.is_shared {
            return self.complete_alone(node, false);
        }
        self.clone_key();
        let mut queues = self.queues.lock().unwrap();
        let is_last = queues.complete(self.op(node));
        let next = if is_last { self.slot.complete_last() } else { SlotStep::Nothing };
        drop(queues);
        self.note(next);
    }

    /// Cancels an operation. Returns false if it had already ended.
    fn cancel(&self, node: Node, reason: EndReason) -> bool {
        let mut queues = self.queues.lock().unwrap();
        if let Some(uses) = self.op(node).lone_use() {
            return self.cancel_alone(node, uses, reason);
        }
        let follow_up = queues.cancel(self, &self.slot, node, reason, POLL);
        let mut due = NodeList::new();
        queues.begin_next(self, &self.slot, &mut due);
        drop(queues);
        while let Some(node) = due.pop(self) {
            self.queue(node);
        }
        let is_in_time = follow_up.is_some();
        follow_up.into_iter().for_each(|follow_up| self.see_to(follow_up));
        is_in_time
    }

    fn claim_alone(&self, node: Node) {
        if self.slot.claim_alone() {
            self.op(node).end_if_cancelled();
            self.queue(node);
        }
    }

    fn cancel_alone(&self, node: Node, uses: u32, reason: EndReason) -> bool {
        let is_cancelled = self.op(node).cancel_alone(uses, reason);
        if is_cancelled {
            self.claim_alone(node);
        }
        is_cancelled
    }

    fn call_all_off(&self, reason: EndReason) {
        let mut ended = NodeList::new();
        let mut queues = self.queues.lock().unwrap();
        let own = self.own();
        if let Some(uses) = self.op(own).lone_use() {
            self.cancel_alone(own, uses, reason);
        }
        let next = queues.cancel_all(self, &self.slot, reason, POLL, &mut ended);
        drop(queues);
        while let Some(node) = ended.pop(self) {
            self.queue(node);
        }
        self.note(next);
    }

    /// Handles an expired timer of the `OpEntry`. Returns when the timer must expire next.
    fn ring(&self, now: Moment) -> Moment {
        let mut due = NodeList::new();
        let mut queues = self.queues.lock().unwrap();
        let own = self.own();
        if let Some(uses) = self.op(own).lone_use() {
            let at = self.op(own).deadline();
            if at > now {
                return at;
            }
            self.cancel_alone(own, uses, EndReason::TimedOut);
            return Moment::NEVER;
        }
        let (again, next) = queues.ring(self, &self.slot, now, POLL, &mut due);
        drop(queues);
        while let Some(node) = due.pop(self) {
            self.queue(node);
        }
        self.note(next);
        again
    }

    /// Removes the registration. `collects` means that the caller waits for the key.
    fn remove(&self, collects: bool) -> Removal {
        let removal = self.slot.remove(0, collects).unwrap();
        match removal {
            Removal::Owned if !collects => self.note(SlotStep::Queue),
            Removal::Marked if self.slot.word().is_lent() => {
                self.call_all_off(EndReason::Cancelled)
            }
            _ => {}
        }
        removal
    }

    /// Ends the registration because its descriptor was found closed or its number was reused.
    fn retire(&self) -> Removal {
        let removal = self.slot.retire(0);
        match removal {
            Removal::Owned => self.note(SlotStep::Queue),
            Removal::Marked => self.call_all_off(EndReason::Gone),
            Removal::Already => {}
        }
        removal
    }

    /// Processes the slot's node.
    fn turn_of_slot(&self) -> NodeTurn {
        assert_eq!(self.won.swap(0, SeqCst), 1);
        loop {
            match self.slot.take() {
                NodeTurn::Check => {
                    self.slot.begin_check();
                    let there = self.there[IN as usize].load(SeqCst) > 0;
                    let facts = if there { Facts::IN } else { Facts::NONE };
                    if self.slot.check(facts.into()) == Checked::Nothing {
                        return NodeTurn::Nothing;
                    }
                }
                turn => {
                    let is_last = matches!(turn, NodeTurn::Removed | NodeTurn::Gone);
                    assert!(!is_last || !self.slot.word().is_lent(), "operations have the key");
                    return turn;
                }
            }
        }
    }

    // ---- invariants that hold once all threads are done ----

    /// Processes all queued nodes, then checks that no operation waits while bytes are available.
    fn settle(&self) {
        while self.serve().is_some() {}
        let queues = self.queues.lock().unwrap();
        let in_flight = self.slot.word().in_flight();
        for direction in [IN, OUT] {
            let is_there = self.there[direction as usize].load(SeqCst) > 0;
            let waits = in_flight.has(direction.facts());
            let blocked = queues.blocked() | self.slot.word().waits_alone();
            assert_eq!(blocked.has(direction.facts()), waits, "each one waits, or there is none");
            assert!(!(waits && is_there), "an edge is lost");
        }
        let is_lone = self.slot.word().is_lone();
        assert_eq!(queues.in_flight() > 0 || is_lone, self.slot.word().is_lent());
    }

    /// Cancels the waiting operations and checks that none remains. Returns the data of both.
    fn finish(&self) -> [OpData; 2] {
        self.settle();
        self.call_all_off(EndReason::Cancelled);
        self.settle();
        assert_eq!(self.queues.lock().unwrap().in_flight(), 0, "an operation has no packet");
        [FIRST, SECOND].map(|node| self.with_data(node, |data| *data))
    }

    fn packets(&self, node: Node) -> usize {
        self.with_data(node, |data| data.packets)
    }
}

#[test]
fn an_edge_that_meets_a_start_is_not_lost() {
    for is_shared in [false, true] {
        // The direction is thought ready though it isn't, or is known not to be ready.
        for is_known in [false, true] {
            explore(move || {
                let board = Arc::new(Board::new(is_shared, 0));
                board.slot.know(Facts::IN, is_known);
                let kernel = spawn(&board, |board| board.arrive(IN, 1));
                board.start(FIRST, IN).unwrap();
                kernel.join().unwrap();
                board.settle();
                assert_eq!((board.packets(FIRST), board.finish()[0].taken), (1, 1));
            });
        }
    }
}

/// The socket has an error but no data to read and no room to write.
#[test]
fn an_error_that_meets_a_start_is_not_lost() {
    for is_shared in [false, true] {
        for (direction, is_known) in [(IN, false), (IN, true), (OUT, false)] {
            explore(move || {
                let board = Arc::new(Board::new(is_shared, 0));
                board.slot.know(direction.facts(), is_known);
                let kernel = spawn(&board, |board| board.fail());
                board.start(FIRST, direction).unwrap();
                kernel.join().unwrap();
                board.settle();
                assert_eq!((board.packets(FIRST), board.finish()[0].taken), (1, 0));
            });
        }
    }
}

#[test]
fn errors_that_meet_attempts_of_another_thread_are_not_lost() {
    for is_shared in [false, true] {
        explore(move || {
            let board = Board::waiting(is_shared);
            board.edge(Facts::IN);
            // The first edge brought no bytes, so the attempt blocks.
            let worker = spawn(&board, |board| board.serve());
            let kernel = spawn(&board, |board| board.fail());
            kernel.join().unwrap();
            worker.join().unwrap();
            board.settle();
            assert_eq!((board.packets(FIRST), board.finish()[0].taken), (1, 0));
        });
    }
}

#[test]
fn edges_that_meet_attempts_of_another_thread_are_not_lost() {
    for is_shared in [false, true] {
        explore(move || {
            let board = Board::waiting(is_shared);
            board.edge(Facts::IN);
            // The first edge brought no bytes, so the attempt blocks.
            let worker = spawn(&board, |board| board.serve());
            let kernel = spawn(&board, |board| board.arrive(IN, 1));
            kernel.join().unwrap();
            worker.join().unwrap();
            board.settle();
            assert_eq!((board.packets(FIRST), board.finish()[0].taken), (1, 1));
        });
    }
}

/// The attempt takes everything and clears `READY` while an edge arrives, perhaps when the
/// operation queue is already empty. The next operation must see that edge.
#[test]
fn an_edge_that_meets_the_end_of_the_last_attempt_is_remembered() {
    for is_shared in [false, true] {
        explore(move || {
            let board = Arc::new(Board::new(is_shared, 1));
            let kernel = spawn(&board, |board| board.arrive(IN, 1));
            assert_eq!(board.start(FIRST, IN), Ok(Step::Ends(EndReason::Done)));
            assert_eq!(board.serve(), Some((FIRST, EndReason::Done)));
            let first = board.with_data(FIRST, |data| data.taken);
            if first == 1 {
                board.start(SECOND, IN).unwrap();
            }
            kernel.join().unwrap();
            board.settle();
            let [first, second] = board.finish();
            assert_eq!((first.taken + second.taken, second.packets), (2, 2 - first.taken));
        });
    }
}

/// The first edge made the operation due. A second one arrives as its attempt ends.
#[test]
fn an_edge_that_meets_the_end_of_an_attempt_for_another_edge_is_remembered() {
    for is_shared in [false, true] {
        explore(move || {
            let board = Board::waiting(is_shared);
            board.arrive(IN, 1);
            let kernel = spawn(&board, |board| board.arrive(IN, 1));
            assert_eq!(board.serve(), Some((FIRST, EndReason::Done)));
            let first = board.with_data(FIRST, |data| data.taken);
            if first == 1 {
                board.start(SECOND, IN).unwrap();
            }
            kernel.join().unwrap();
            board.settle();
            let [first, second] = board.finish();
            assert_eq!((first.taken + second.taken, second.packets), (2, 2 - first.taken));
        });
    }
}

/// After the operation, the token arms for readiness. The edge must be reported.
#[test]
fn an_edge_that_meets_the_end_of_an_attempt_is_reported_to_the_token_that_arms() {
    explore(|| {
        let board = Board::held(1);
        let kernel = spawn(&board, |board| board.arrive(IN, 1));
        board.start(FIRST, IN).unwrap();
        assert_eq!(board.serve(), Some((FIRST, EndReason::Done)));
        board.note(board.slot.put_back(Some(LEVEL), false, NO_HINT, POLL - 1));
        kernel.join().unwrap();
        if board.there[0].load(SeqCst) > 0 {
            assert_eq!(board.turn_of_slot(), NodeTurn::Held(Events::IN));
        }
    });
}

#[test]
fn the_next_operation_goes_on_where_one_has_ended() {
    // Two operations share a queue, and one edge brings enough for both.
    explore(|| {
        let board = Board::waiting(true);
        assert_eq!(board.start(SECOND, IN), Ok(Step::Waits));
        let kernel = spawn(&board, |board| board.arrive(IN, ROOM + 1));
        let worker = spawn(&board, |board| board.serve());
        board.serve();
        kernel.join().unwrap();
        worker.join().unwrap();
        board.settle();
        let [first, second] = board.finish();
        assert_eq!([first.packets, second.packets], [1, 1]);
        assert_eq!([(first.first, first.taken), (second.first, second.taken)], [(0, 2), (2, 1)]);
    });
}

#[test]
fn two_starts_of_one_direction_are_served_in_turn() {
    for there in [0, ROOM] {
        explore(move || {
            let board = Board::shared(there);
            let other = spawn(&board, |board| board.start(SECOND, IN).unwrap());
            let kernel = spawn(&board, |board| board.arrive(IN, 1));
            board.start(FIRST, IN).unwrap();
            other.join().unwrap();
            kernel.join().unwrap();
            board.settle();
            let taken = there + 1;
            let [first, second] = board.finish();
            assert_eq!([first.packets, second.packets], [1, 1]);
            assert_eq!(first.taken + second.taken, taken);
            if first.taken > 0 && second.taken > 0 {
                assert_ne!(first.first, second.first, "bytes are taken by one of them");
            }
        });
    }
}

#[test]
fn two_directions_go_on_without_each_other() {
    explore(|| {
        let board = Board::shared(0);
        board.slot.know(Facts::IN | Facts::OUT, false);
        let receiver = spawn(&board, |board| board.start(FIRST, IN).unwrap());
        let kernel = spawn(&board, |board| {
            board.there[0].fetch_add(1, SeqCst);
            board.there[1].fetch_add(1, SeqCst);
            board.edge(Facts::IN | Facts::OUT);
        });
        board.start(SECOND, OUT).unwrap();
        board.serve();
        receiver.join().unwrap();
        kernel.join().unwrap();
        board.settle();
        assert_eq!(board.finish().map(|op| (op.taken, op.packets)), [(1, 1); 2]);
    });
}

#[test]
fn a_cancelled_operation_has_its_packet_and_takes_nothing() {
    for is_shared in [false, true] {
        // The operation waits, is due and blocks, or is due and has bytes to take.
        for (notifies, bytes) in [(false, 0), (true, 0), (true, 1)] {
            explore(move || {
                let board = Board::waiting(is_shared);
                board.there[0].store(bytes, SeqCst);
                let worker = spawn(&board, move |board| {
                    if notifies {
                        board.edge(Facts::IN);
                    }
                    board.serve()
                });
                let is_in_time = board.cancel(FIRST, EndReason::Cancelled);
                let served = worker.join().unwrap().or_else(|| board.serve());
                let (_, reason) = served.expect("it has its packet");
                board.settle();
                let taken = board.finish()[0].taken;
                assert_eq!(board.packets(FIRST), 1);
                assert!(is_in_time || reason == EndReason::Done, "{reason:?}");
                assert_eq!(taken > 0, reason == EndReason::Done, "{reason:?}, {taken} bytes");
                assert!(bytes > 0 || reason == EndReason::Cancelled, "{reason:?}");
            });
        }
    }
}

/// The operation after the cancelled one must not be forgotten.
#[test]
fn what_stands_behind_a_cancelled_operation_goes_on() {
    explore(|| {
        let board = Board::waiting(true);
        assert_eq!(board.start(SECOND, IN), Ok(Step::Waits));
        let kernel = spawn(&board, |board| board.arrive(IN, 1));
        let canceller = spawn(&board, |board| board.cancel(FIRST, EndReason::Cancelled));
        board.serve();
        kernel.join().unwrap();
        canceller.join().unwrap();
        board.settle();
        let [first, second] = board.finish();
        assert_eq!([first.packets, second.packets], [1, 1]);
        assert_eq!(first.taken + second.taken, 1, "the byte is taken by one of the two");
    });
}

/// The first operation is cancelled while it is tried, and an edge arrives after the kernel's
/// answer. The edge belongs to the next operation, which may not have started yet.
#[test]
fn an_edge_behind_the_attempt_of_what_is_called_off_is_kept() {
    for is_followed in [false, true] {
        explore(move || {
            let board = Board::waiting(true);
            if is_followed {
                assert_eq!(board.start(SECOND, IN), Ok(Step::Waits));
            }
            // This edge brings no bytes.
            board.edge(Facts::IN);
            let worker = spawn(&board, |board| board.serve());
            let kernel = spawn(&board, |board| board.arrive(IN, 1));
            board.cancel(FIRST, EndReason::Cancelled);
            worker.join().unwrap();
            kernel.join().unwrap();
            if !is_followed {
                board.start(SECOND, IN).unwrap();
            }
            board.settle();
            let [first, second] = board.finish();
            assert_eq!([first.packets, second.packets], [1, 1]);
            assert_eq!(first.taken + second.taken, 1, "the byte is taken by one of the two");
        });
    }
}

#[test]
fn the_deadline_of_an_operation_ends_it_once_and_takes_nothing() {
    let (over, later) = (Moment::from_nanoseconds(5), Moment::from_nanoseconds(9));
    for is_shared in [false, true] {
        for deadline in [over, later] {
            explore(move || {
                let board = Arc::new(Board::new(is_shared, 0));
                assert_eq!(board.start_until(FIRST, IN, deadline), Ok(Step::Waits));
                let kernel = spawn(&board, |board| board.arrive(IN, 1));
                let clock = spawn(&board, move |board| board.ring(over));
                let served = board.serve();
                kernel.join().unwrap();
                let again = clock.join().unwrap();
                let (_, reason) = served.or_else(|| board.serve()).expect("it has its packet");
                board.settle();
                let [first, _] = board.finish();
                assert_eq!(first.packets, 1);
                assert_eq!(first.taken > 0, reason == EndReason::Done, "{reason:?}");
                if deadline == later {
                    assert_eq!(reason, EndReason::Done, "it was not over");
                    let is_known = again == later || again == Moment::NEVER;
                    assert!(is_known, "the timer is set again: {again:?}");
                }
            });
        }
    }
}

/// An attempt that lacked a resource, such as a descriptor, is repeated at its retry time or at an
/// edge.
#[test]
fn an_operation_that_lacks_something_is_tried_again_once() {
    let at = Moment::from_nanoseconds(5);
    explore(move || {
        let board = Board::shared(0);
        let mut queues = board.queues.lock().unwrap();
        assert_eq!(board.slot.share(0, Facts::IN), Ok(true));
        assert_eq!(queues.start(&*board, FIRST, 0, IN, Moment::NEVER, true), Step::Try);
        board.there[0].store(1, SeqCst);
        drop(queues);
        let clock = spawn(&board, move |board| board.ring(at));
        let kernel = spawn(&board, |board| board.edge(Facts::IN));
        let (step, follow_up) = board.queues.lock().unwrap().tried(
            &*board,
            &board.slot,
            FIRST,
            Tried::OutOfResources(at),
            POLL,
        );
        assert_eq!(step, Step::Waits);
        board.see_to(follow_up);
        kernel.join().unwrap();
        let again = clock.join().unwrap();
        if board.queue.lock().unwrap().is_empty() {
            assert!(again == at || again == Moment::NEVER);
            assert_eq!(board.ring(at), Moment::NEVER);
        }
        assert_eq!(board.serve(), Some((FIRST, EndReason::Done)));
        board.settle();
    });
}

/// An operation that must begin without an edge is tried when the one before it leaves the queue,
/// for whatever reason. A check may have found the direction not ready in between.
#[test]
fn what_has_to_be_begun_is_tried_when_the_operation_before_it_leaves() {
    let at = Moment::from_nanoseconds(5);
    for is_late in [false, true] {
        explore(move || {
            let board = Arc::new(Board::new(true, 0));
            let deadline = if is_late { at } else { Moment::NEVER };
            assert_eq!(board.start_until(FIRST, IN, deadline), Ok(Step::Waits));
            board.op(SECOND).mark_unasked(true);
            assert_eq!(board.start(SECOND, IN), Ok(Step::Waits));
            // Enough for both operations, and no edge reports it.
            board.there[0].store(2 * ROOM, SeqCst);
            let ender = spawn(&board, move |board| {
                if is_late {
                    board.ring(at);
                } else {
                    board.cancel(FIRST, EndReason::Cancelled);
                }
            });
            let kernel = spawn(&board, |board| {
                board.edge(Facts::IN);
                board.slot.know(Facts::IN, false);
            });
            ender.join().unwrap();
            kernel.join().unwrap();
            while board.serve().is_some() {}
            assert_eq!([FIRST, SECOND].map(|node| board.packets(node)), [1, 1]);
        });
    }
}

/// Tries the first operation until it has found something, while another thread runs `tell`. An
/// attempt that finds nothing reports `nothing`. The operation must not wait for anything else.
fn try_against(nothing: Tried, tell: impl FnOnce(&Board) + 'static) {
    let board = Board::shared(0);
    let mut queues = board.queues.lock().unwrap();
    assert_eq!(board.slot.share(0, Facts::IN), Ok(true));
    assert_eq!(queues.start(&*board, FIRST, 0, IN, Moment::NEVER, true), Step::Try);
    drop(queues);
    let teller = spawn(&board, tell);
    let step = loop {
        let found = board.with_data(FIRST, |data| board.take(IN, data));
        let tried = if found == Tried::Blocked { nothing } else { found };
        let mut queues = board.queues.lock().unwrap();
        let (step, follow_up) = queues.tried(&*board, &board.slot, FIRST, tried, POLL);
        let is_ready = board.slot.word().may_be_ready(Facts::IN);
        drop(queues);
        assert!(is_ready || tried != Tried::Idle, "an idle operation has shown nothing");
        board.see_to(follow_up);
        if step != Step::Try {
            break step;
        }
    };
    if let Step::Ends(_) = step {
        board.queue(FIRST);
    }
    teller.join().unwrap();
    assert_eq!(board.serve(), Some((FIRST, EndReason::Done)));
    board.settle();
}

/// Makes a byte available, and announces it by `pull_in`.
fn announce(board: &Board) {
    let now = Moment::from_nanoseconds(5);
    board.there[0].store(1, SeqCst);
    let rings = board.queues.lock().unwrap().pull_in(IN, now);
    if rings {
        board.ring(now);
    }
}

/// The missing resource becomes available during the attempt or after it, and `pull_in` announces
/// it. The operation must not wait for its retry time.
#[test]
fn an_operation_that_lacks_nothing_any_more_does_not_wait_for_its_time() {
    let late = Moment::from_nanoseconds(1_000);
    explore(move || try_against(Tried::OutOfResources(late), announce));
}

/// An operation that has nothing to do stays in flight. It is tried again for each edge and each call
/// of `pull_in`, also if these come during an attempt, and its direction counts as ready.
#[test]
fn an_operation_that_has_nothing_to_do_is_tried_again_at_an_edge_or_if_it_is_told() {
    explore(|| try_against(Tried::Idle, announce));
    explore(|| try_against(Tried::Idle, |board| board.arrive(IN, 1)));
}

/// The operation behind one that has nothing to do is tried when that is cancelled: no edge reports
/// what was ready before. The cancel may come during the attempt.
#[test]
fn the_operation_behind_an_idle_one_is_tried_when_that_is_cancelled() {
    explore(|| {
        let board = Board::shared(1);
        let mut queues = board.queues.lock().unwrap();
        assert_eq!(board.slot.share(0, Facts::IN), Ok(true));
        assert_eq!(queues.start(&*board, FIRST, 0, IN, Moment::NEVER, true), Step::Try);
        drop(queues);
        let other = spawn(&board, |board| {
            assert_eq!(board.start(SECOND, IN), Ok(Step::Waits));
            assert!(board.cancel(FIRST, EndReason::Cancelled));
        });
        let (step, follow_up) =
            board.queues.lock().unwrap().tried(&*board, &board.slot, FIRST, Tried::Idle, POLL);
        board.see_to(follow_up);
        if let Step::Ends(_) = step {
            board.queue(FIRST);
        }
        other.join().unwrap();
        while board.serve().is_some() {}
        assert_eq!([FIRST, SECOND].map(|node| board.packets(node)), [1, 1]);
        assert_eq!(board.with_data(SECOND, |data| data.taken), 1);
        board.settle();
    });
}

/// Another thread abandons a connect while the next one is tried. The next connect must not wait
/// for its retry time.
#[test]
fn a_connect_does_not_wait_when_the_one_before_it_is_abandoned() {
    let (now, late) = (Moment::from_nanoseconds(5), Moment::from_nanoseconds(1_000));
    explore(move || {
        let board = Board::shared(0);
        let entry = Arc::new(OpEntry::default());
        entry.connect_begun(BEFORE);
        let mut queues = board.queues.lock().unwrap();
        assert_eq!(board.slot.share(0, Facts::OUT), Ok(true));
        assert_eq!(queues.start(&*board, FIRST, 0, OUT, Moment::NEVER, true), Step::Try);
        drop(queues);
        let its_entry = Arc::clone(&entry);
        let abandoner = spawn(&board, move |board| {
            if its_entry.abandon_connect(BEFORE, || true)
                && board.queues.lock().unwrap().pull_in(OUT, now)
            {
                board.ring(now);
            }
        });
        let step = loop {
            let tried = match entry.clear_for_connect(|| true) {
                ConnectPermission::Clear => Tried::Done { dry: false },
                ConnectPermission::NotYet => Tried::OutOfResources(late),
                ConnectPermission::Never => panic!("it could be abandoned"),
            };
            let mut queues = board.queues.lock().unwrap();
            let (step, follow_up) = queues.tried(&*board, &board.slot, FIRST, tried, POLL);
            drop(queues);
            board.see_to(follow_up);
            if step != Step::Try {
                break step;
            }
        };
        abandoner.join().unwrap();
        if step == Step::Waits {
            // Its node is queued before its retry time.
            assert_eq!(board.queue.lock().unwrap().pop(), Some(FIRST));
            assert!(board.op(FIRST).begin());
            assert_eq!(entry.clear_for_connect(|| true), ConnectPermission::Clear);
        }
    });
}

#[test]
fn the_key_leaves_with_the_last_flight_if_its_registration_is_removed() {
    for collects in [false, true] {
        explore(move || {
            let board = Board::waiting(true);
            let starter = spawn(&board, |board| board.start(SECOND, IN).is_ok());
            let remover = spawn(&board, move |board| board.remove(collects));
            board.serve();
            let is_started = starter.join().unwrap();
            assert_ne!(remover.join().unwrap(), Removal::Already);
            board.settle();
            assert_eq!(board.packets(FIRST), 1);
            assert_eq!(board.packets(SECOND), usize::from(is_started));
            assert!(!board.slot.word().is_lent(), "each operation has completed");
            if collects {
                // The remover owned the key immediately, or it was woken.
                if board.slot.word().is_live() {
                    let collected = board.slot.collect(0);
                    assert!(collected == Some(Ok(())) || collected.is_none(), "{collected:?}");
                }
            } else {
                assert_eq!(board.turn_of_slot(), NodeTurn::Removed);
            }
            board.take_key();
        });
    }
}

/// Each operation has its packet, whatever its end reason. The registration ends after them: when
/// its node is processed, or when its token returns.
#[test]
fn the_key_leaves_with_the_last_flight_if_its_descriptor_was_closed() {
    for is_shared in [false, true] {
        explore(move || {
            let board = Board::waiting(is_shared);
            let kernel = spawn(&board, |board| board.arrive(IN, 1));
            let closer = spawn(&board, Board::retire);
            let is_started = is_shared && board.start(SECOND, OUT).is_ok();
            let first = board.serve();
            kernel.join().unwrap();
            assert_ne!(closer.join().unwrap(), Removal::Already);
            board.settle();
            assert_eq!(board.packets(FIRST), 1);
            assert_eq!(board.packets(SECOND), usize::from(is_started));
            if let Some((FIRST, reason)) = first {
                let taken = board.with_data(FIRST, |data| data.taken);
                assert_eq!(
                    (reason == EndReason::Done, reason != EndReason::Gone),
                    (taken > 0, taken > 0)
                );
            }
            assert!(!board.slot.word().is_lent(), "each operation has completed");
            if is_shared {
                assert_eq!(board.start(SECOND, IN), Err(Refusal::NotRegistered));
                assert_eq!(board.turn_of_slot(), NodeTurn::Gone);
            } else {
                assert_eq!(board.slot.put_back(Some(LEVEL), false, NO_HINT, POLL), SlotStep::Gone);
                assert_eq!(board.won.load(SeqCst), 0);
            }
            board.take_key();
        });
    }
}

/// A readiness packet is queued too, and is no longer reported. The registration ends once.
#[test]
fn a_closed_descriptor_with_flights_and_a_queued_packet_ends_once() {
    explore(|| {
        let board = Board::shared(0);
        assert_eq!(board.start(FIRST, OUT), Ok(Step::Waits));
        board.note(board.slot.enable(0, PERSISTENT, || Drained::READ, POLL - 1).unwrap());
        board.arrive(IN, 1);
        let closer = spawn(&board, Board::retire);
        let slot = spawn(&board, |board| match board.turn_of_slot() {
            NodeTurn::Cloned(events) => {
                assert_eq!(events, Events::IN);
                board.clone_key();
                board.note(board.slot.cloned(Events::NONE));
            }
            // The node has not been processed yet.
            NodeTurn::Gone => board.won.store(1, SeqCst),
            turn => assert_eq!(turn, NodeTurn::Nothing),
        });
        board.serve();
        assert_eq!(closer.join().unwrap(), Removal::Marked);
        slot.join().unwrap();
        board.settle();
        assert_eq!(board.packets(FIRST), 1);
        assert_eq!(board.turn_of_slot(), NodeTurn::Gone);
        board.take_key();
    });
}

/// A readiness packet is queued too. Whichever node is processed last, the registration ends once,
/// and a remover that waits is woken.
#[test]
fn a_removal_with_flights_and_a_queued_packet_comes_once() {
    for collects in [false, true] {
        explore(move || {
            let board = Board::shared(0);
            assert_eq!(board.start(FIRST, OUT), Ok(Step::Waits));
            board.note(board.slot.enable(0, PERSISTENT, || Drained::READ, POLL - 1).unwrap());
            board.arrive(IN, 1);
            // Record what the remover sees when it looks before it sleeps.
            let remover = spawn(&board, move |board| {
                let removal = board.remove(collects);
                (removal, board.slot.word().is_lent())
            });
            let slot = spawn(&board, |board| match board.turn_of_slot() {
                NodeTurn::Cloned(events) => {
                    assert_eq!(events, Events::IN);
                    board.clone_key();
                    board.note(board.slot.cloned(Events::NONE));
                }
                NodeTurn::Collect => {
                    board.told.fetch_add(1, SeqCst);
                }
                NodeTurn::Removed => {
                    // The node has not been processed yet.
                    board.won.store(1, SeqCst);
                }
                turn => assert_eq!(turn, NodeTurn::Nothing),
            });
            board.serve();
            let (removal, was_lent) = remover.join().unwrap();
            slot.join().unwrap();
            board.settle();
            assert_eq!(board.packets(FIRST), 1);
            assert_ne!(removal, Removal::Already);
            if collects && removal == Removal::Marked {
                // The remover finds the node in the queue, or no thread owns it.
                assert!(!was_lent || board.told.load(SeqCst) > 0, "the remover sleeps on");
                if board.won.load(SeqCst) == 0 {
                    assert_eq!(board.slot.collect(0), Some(Ok(())));
                }
            } else if !collects {
                assert_eq!(board.turn_of_slot(), NodeTurn::Removed);
            }
            board.take_key();
        });
    }
}

#[test]
fn a_token_that_an_operation_has_used_meets_its_removal() {
    for collects in [false, true] {
        explore(move || {
            let board = Board::held(0);
            let remover = spawn(&board, move |board| board.remove(collects));
            let kernel = spawn(&board, |board| board.arrive(IN, 1));
            let started = board.start(FIRST, IN);
            if started.is_ok() {
                board.serve();
            }
            remover.join().unwrap();
            kernel.join().unwrap();
            board.settle();
            assert_eq!(board.packets(FIRST), usize::from(started.is_ok()), "{started:?}");
            // Whatever ended the operation, the handler now holds the token.
            assert!(board.slot.word().is_held());
            let next = board.slot.put_back(None, false, NO_HINT, POLL);
            assert_eq!(next, if collects { SlotStep::Collect } else { SlotStep::Queue });
            if collects {
                assert_eq!(board.slot.collect(0), Some(Ok(())));
            } else {
                board.note(next);
                assert_eq!(board.turn_of_slot(), NodeTurn::Removed);
            }
            board.take_key();
        });
    }
}

/// The operation owns the key alone, and then the token does. The other direction makes no packet.
#[test]
fn a_registration_whose_key_an_operation_has_is_not_enabled() {
    for mode in [LEVEL, PERSISTENT] {
        explore(move || {
            let board = Board::held(0);
            let mode = Mode { interest: Interest::IN | Interest::OUT, ..mode };
            let user = spawn(&board, move |board| {
                board.slot.may_enable(0).and(board.slot.enable(0, mode, || NO_HINT, POLL - 1))
            });
            let kernel = spawn(&board, |board| board.edge(Facts::OUT));
            assert_eq!(board.start(FIRST, IN), Ok(Step::Waits));
            board.use_key();
            assert_eq!(user.join().unwrap(), Err(Refusal::Held));
            kernel.join().unwrap();
            assert_eq!(board.won.load(SeqCst), 0, "there is a second owner of the key");
        });
    }
}

/// The key is in its cell when a thread begins to enable the registration. An operation may own it
/// by the time the thread enables.
#[test]
fn a_registration_is_not_enabled_behind_the_start_of_an_operation() {
    explore(|| {
        let board = Board::held(1);
        let mode = Mode { interest: Interest::IN | Interest::OUT, ..LEVEL };
        board.note(board.slot.put_back(Some(LEVEL), false, NO_HINT, POLL - 1));
        let user =
            spawn(&board, move |board| match board.slot.enable(0, mode, || NO_HINT, POLL - 1) {
                Ok(next) => board.note(next),
                Err(refusal) => assert_eq!(refusal, Refusal::Held),
            });
        assert_eq!(board.turn_of_slot(), NodeTurn::Held(Events::IN));
        assert_eq!(board.start(FIRST, OUT), Ok(Step::Waits));
        user.join().unwrap();
        board.edge(Facts::IN);
        board.use_key();
        assert_eq!(board.won.load(SeqCst), 0, "there is a second owner of the key");
    });
}

/// While operations are in flight, readiness of their direction belongs to them. When the last one
/// ends, the remaining readiness is reported.
#[test]
fn readiness_that_the_last_operation_leaves_is_reported() {
    explore(|| {
        let board = Board::waiting(true);
        board.note(board.slot.enable(0, PERSISTENT, || NO_HINT, POLL - 1).unwrap());
        let kernel = spawn(&board, |board| {
            board.arrive(IN, ROOM);
            board.arrive(IN, 1);
        });
        board.serve();
        kernel.join().unwrap();
        board.settle();
        assert_eq!(board.packets(FIRST), 1);
        if board.there[0].load(SeqCst) > 0 {
            assert_eq!(board.won.load(SeqCst), 1, "what is left is not reported");
            assert_eq!(board.turn_of_slot(), NodeTurn::Cloned(Events::IN));
        }
    });
}

/// An edge at an urgent mark concerns both directions. Room is reported even so, since the receive
/// may keep waiting.
#[test]
fn room_beside_an_urgent_mark_is_reported_while_a_receive_waits() {
    explore(|| {
        let board = Board::waiting(true);
        board.slot.know(Facts::OUT, false);
        let mode = Mode { interest: Interest::OUT, ..PERSISTENT };
        board.note(board.slot.enable(0, mode, || NO_HINT, POLL - 1).unwrap());
        let kernel = spawn(&board, |board| board.edge(Facts::OUT | Facts::URGENT));
        board.serve();
        kernel.join().unwrap();
        board.settle();
        assert_eq!(board.packets(FIRST), 0, "there is nothing to receive");
        assert_eq!(board.won.load(SeqCst), 1, "room is not reported");
        assert_eq!(board.turn_of_slot(), NodeTurn::Cloned(Events::OUT));
    });
}

#[test]
fn enabling_beside_flights_that_end_hides_nothing() {
    explore(|| {
        let board = Board::waiting(true);
        let kernel = spawn(&board, |board| board.arrive(IN, ROOM + 1));
        let user = spawn(&board, |board| {
            board.note(board.slot.enable(0, PERSISTENT, || NO_HINT, POLL - 1).unwrap());
        });
        board.serve();
        kernel.join().unwrap();
        user.join().unwrap();
        board.settle();
        assert_eq!((board.packets(FIRST), board.there[0].load(SeqCst)), (1, 1));
        assert_eq!(board.won.load(SeqCst), 1, "what is left is not reported");
        assert_eq!(board.turn_of_slot(), NodeTurn::Cloned(Events::IN));
    });
}

// ---- the deadline of an arming ----

impl Board {
    /// An armed registration with tokens, whose arming has a deadline.
    fn armed() -> Arc<Self> {
        let board = Self::held(0);
        board.slot.know(Facts::IN | Facts::OUT, false);
        assert_eq!(board.slot.put_back(Some(LEVEL), true, NO_HINT, POLL - 1), SlotStep::Nothing);
        board
    }

    /// Reports that the deadline has passed. Returns whether a packet will follow.
    fn expire(&self) -> bool {
        match self.slot.expire() {
            Expiry::Claimed => {
                self.note(SlotStep::Queue);
                true
            }
            Expiry::Queued => true,
            Expiry::Untimed => false,
        }
    }
}

#[test]
fn a_deadline_that_meets_an_edge_makes_one_packet_with_both_or_either() {
    explore(|| {
        let board = Board::armed();
        let kernel = spawn(&board, |board| {
            board.there[0].store(1, SeqCst);
            if board.slot.queue(0, Facts::IN, POLL, || POLL) {
                board.note(SlotStep::Queue);
            } else {
                board.edge(Facts::IN);
            }
        });
        assert!(board.expire(), "it is armed");
        kernel.join().unwrap();
        let NodeTurn::Held(events) = board.turn_of_slot() else { panic!("there is a packet") };
        assert!(events.is_in(), "the edge came before the turn");
        assert_eq!(board.won.load(SeqCst), 0, "there is one packet");
        board.use_key();
    });
}

/// The timer expires for a deadline that a handler is about to move: the packet was taken, and the
/// slot is armed again.
#[test]
fn a_deadline_that_is_not_over_after_all_is_given_back_and_hides_no_edge() {
    explore(|| {
        let board = Board::armed();
        let kernel = spawn(&board, |board| board.arrive(IN, 1));
        if board.slot.expire() == Expiry::Claimed && board.slot.expire_not() {
            board.note(SlotStep::Queue);
        }
        kernel.join().unwrap();
        let turn = board.turn_of_slot();
        assert_eq!(turn, NodeTurn::Held(Events::IN), "the deadline was not over");
        board.use_key();
    });
}

#[test]
fn a_deadline_meets_the_removal_of_its_registration() {
    for gives_back in [false, true] {
        for collects in [false, true] {
            explore(move || {
                let board = Board::armed();
                let remover = spawn(&board, move |board| board.slot.remove(0, collects).unwrap());
                let claimed = board.slot.expire() == Expiry::Claimed;
                if claimed && (!gives_back || board.slot.expire_not()) {
                    board.note(SlotStep::Queue);
                }
                let removal = remover.join().unwrap();
                assert!(claimed || removal == Removal::Owned);
                if removal == Removal::Marked && !collects {
                    assert_eq!(board.turn_of_slot(), NodeTurn::Removed);
                } else if removal == Removal::Marked {
                    // The remover takes the node out of the queue, or the node is processed.
                    assert_eq!(board.turn_of_slot(), NodeTurn::Collect);
                    assert_eq!(board.slot.collect(0), Some(Ok(())));
                }
                board.take_key();
            });
        }
    }
}
