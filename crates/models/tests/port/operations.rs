//! Models operations on a port: how port shutdown, removals and deadlines cancel them, and what
//! threads pass to each other. The kernel has one descriptor, from which at most one byte can be
//! read.

use std::sync::Arc;
use std::time::Duration;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::backend::sockets::{Rest, SocketAttempt};
use crate::engine::{
    EndReason, Engine, KeyReturn, NewRegistration, OpRef, OpThread, Plan, Step, Taken, Waited,
    Worker, name_parts,
};
use crate::fake::Fake;
use crate::kit::{
    LEVEL, NO_HINT, NoTasks, PERSISTENT, engine, entry, explore, explore_within, looking_engine,
    next, one_shot_engine, one_shot_looking_engine, scratch, spawn, visit, wait_for,
};
use crate::state::facts::Facts;
use crate::state::moment::Moment;
use crate::state::slot::Drained;
use crate::state::table::Holder;
use crate::types::config::BlockDetection;
use crate::types::error::{Call, ErrorKind};
use crate::types::interest::Direction;
use crate::types::interest::Mode;
use crate::types::interest::{Events, Interest};

/// A return of the token that parks the registration.
const PARKED: KeyReturn = KeyReturn { mode: None, timed: false, drained: NO_HINT };

/// The data of an operation, and its result.
#[derive(Clone, Copy, Debug, Default)]
struct OpData {
    is_there: bool,
    has_byte: bool,
    /// The operation was cancelled while its token tried it.
    is_cancelled: bool,
}

/// A port with one association.
struct Harbour {
    engine: Arc<Engine>,
    fake: Arc<Fake>,
    name: u64,
    is_shared: bool,
    /// Whether an attempt that succeeds leaves open if there is more.
    may_be_more: bool,
    /// Whether an operation that an attempt has done leaves its queue and completes in one step, as
    /// a task does.
    is_of_tasks: bool,
    /// By op index.
    data: [UnsafeCell<OpData>; 2],
    /// Whether the key is in its cell.
    key: UnsafeCell<bool>,
    /// Counts packets of successful operations, and packets of all operations.
    done: AtomicUsize,
    packets: AtomicUsize,
}

/// What a call to `see_next` took.
#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Done(EndReason),
    Ready(Events),
    Removed,
    /// Not a packet: the registration of a closed descriptor has ended.
    Ended,
}

impl Harbour {
    fn of(port: (Arc<Engine>, Arc<Fake>), is_shared: bool) -> Arc<Self> {
        Arc::new(Self::made(port, is_shared))
    }

    fn made((engine, fake): (Arc<Engine>, Arc<Fake>), is_shared: bool) -> Self {
        let index = engine.reserve_slot(Call::Associate, |_| true).unwrap();
        let mode = Mode { interest: Interest::NONE, edge: false, one_shot: !is_shared };
        let associated = Some(Interest::IN);
        let entry = NewRegistration { associated, shared: is_shared, ..entry(mode) };
        let name = engine.register(Call::Associate, index, entry, || None).unwrap();
        Self {
            engine,
            fake,
            name,
            is_shared,
            may_be_more: false,
            is_of_tasks: false,
            data: [(); 2].map(|()| UnsafeCell::new(OpData::default())),
            key: UnsafeCell::new(true),
            done: AtomicUsize::new(0),
            packets: AtomicUsize::new(0),
        }
    }

    fn with_data<R>(&self, op_index: u32, act: impl FnOnce(&mut OpData) -> R) -> R {
        self.data[op_index as usize].with_mut(|data| {
            // SAFETY: dereferencing requires that no other thread accesses the cell meanwhile.
            // - The model checks exactly that: loom reports any unordered access.
            act(unsafe { &mut *data })
        })
    }

    fn load(&self, op_index: u32) {
        self.with_data(op_index, |data| {
            assert!(!data.is_there, "the cell of a free op index is empty");
            *data = OpData { is_there: true, ..OpData::default() };
        });
    }

    fn unload(&self, op_index: u32) -> OpData {
        self.with_data(op_index, |data| {
            assert!(data.is_there, "an operation is taken once");
            std::mem::take(data)
        })
    }

    /// The handler that holds the token uses the key, which stays in its cell.
    fn use_key(&self) {
        self.key.with_mut(|key| {
            // SAFETY: as in `with_data`.
            assert!(unsafe { *key }, "the key is in its cell");
        });
    }

    fn clone_key(&self) {
        self.key.with(|key| {
            // SAFETY: dereferencing requires that no other thread writes to the cell meanwhile.
            // - The model checks exactly that: loom reports any unordered access.
            assert!(unsafe { *key }, "the key is there to be cloned");
        });
    }

    /// Moves the key out and ends the registration.
    fn end(&self) {
        self.key.with_mut(|key| {
            // SAFETY: as in `with_data`.
            assert!(unsafe { std::mem::replace(&mut *key, false) }, "the key is moved out once");
        });
        self.engine.free(self.name);
    }

    /// Starts an operation, which the calling thread tries if the engine asks for it. A token tries
    /// the operation itself first. If a token's operation is refused, the registration ends.
    fn start(&self, deadline: Moment, worker: Option<&Worker>) -> Result<u64, ErrorKind> {
        if self.is_shared { self.share(deadline, worker) } else { self.take_off(deadline, worker) }
    }

    fn plan(&self, deadline: Moment) -> Plan {
        Plan { call: Call::Receive, direction: Direction::In, is_on_other_file: false, deadline }
    }

    fn share(&self, deadline: Moment, worker: Option<&Worker>) -> Result<u64, ErrorKind> {
        let (operation, op_index, step) = self.begin_shared(deadline, worker)?;
        if let Step::Ends(_) = step {
            self.engine.queue_operation(op_index);
        }
        Ok(operation)
    }

    /// Starts an operation of a shared association. If it completes immediately, it makes no
    /// packet. Returns why it has ended, if it has.
    fn share_now(&self) -> Result<Option<EndReason>, ErrorKind> {
        let (_, op_index, step) = self.begin_shared(Moment::NEVER, None)?;
        let Step::Ends(reason) = step else { return Ok(None) };
        self.engine.complete_shared(&self.engine.op_ref(op_index), None);
        self.count(op_index, reason);
        self.engine.free_op(op_index, None);
        Ok(Some(reason))
    }

    fn begin_shared(
        &self,
        deadline: Moment,
        worker: Option<&Worker>,
    ) -> Result<(u64, u32, Step), ErrorKind> {
        let engine = &*self.engine;
        let plan = self.plan(deadline);
        let op_index =
            engine.shared_op(self.name, &plan, None, |_| true).map_err(|error| error.kind())?;
        let operation = engine.operation_of(op_index);
        self.load(op_index);
        let step = engine.share(self.name, op_index, &plan).map_err(|error| {
            self.unload(op_index);
            engine.release_op(op_index);
            error.kind()
        })?;
        let step = match step {
            Step::Try => self.attempt(&engine.op_ref(op_index), worker.into()),
            step => step,
        };
        Ok((operation, op_index, step))
    }

    fn take_off(&self, deadline: Moment, worker: Option<&Worker>) -> Result<u64, ErrorKind> {
        let engine = &*self.engine;
        let direction = Direction::In;
        let (index, _) = name_parts(self.name);
        let slot = engine.slot(index);
        self.use_key();
        let (op_index, entry) = engine
            .own_op(index, Call::Receive, |_| true)
            .map_err(|error| self.refuse(error.kind()))?;
        let operation = engine.operation_of(op_index);
        let mut drained = NO_HINT;
        let (mut has_byte, mut is_cancelled) = (false, false);
        if slot.looks_ready(direction.facts(), drained) {
            has_byte = self.fake.take();
            drained = Drained::of(direction);
        }
        self.load(op_index);
        if !has_byte {
            let op_ref = engine.before_start(op_index, index, slot, entry);
            let lent = engine.lend_alone(op_ref, direction, deadline, drained);
            let step = lent.map_err(|error| {
                self.unload(op_index);
                self.refuse(error)
            })?;
            if step != Step::Try {
                return Ok(operation);
            }
            let Step::Ends(reason) = self.attempt(&engine.op_ref(op_index), worker.into()) else {
                return Ok(operation);
            };
            is_cancelled = reason != EndReason::Done;
            // The operation has completed, so the token has the key.
            self.use_key();
            drained = NO_HINT;
            has_byte = self.unload(op_index).has_byte;
            self.load(op_index);
        }
        self.with_data(op_index, |data| {
            (data.has_byte, data.is_cancelled) = (has_byte, is_cancelled);
        });
        let operation = engine.operation_of(op_index);
        if !engine.lend_ended(slot, index, op_index, drained, worker) {
            self.unload(op_index);
            return Err(self.refuse(ErrorKind::Closed));
        }
        Ok(operation)
    }

    fn refuse(&self, kind: ErrorKind) -> ErrorKind {
        self.use_key();
        self.end();
        kind
    }

    /// Tries an operation on the calling thread. A token's operation that ends has also completed.
    fn attempt(&self, op_ref: &OpRef<'_>, thread: OpThread<'_>) -> Step {
        loop {
            let attempted = self.attempt_once(op_ref.op_index);
            if !self.is_shared && self.engine.tried_and_completed(op_ref, attempted) {
                return Step::Ends(EndReason::Done);
            }
            let step = self.engine.tried(op_ref, attempted, thread);
            match step {
                Step::Try => {}
                Step::Ends(reason) if !self.is_shared => {
                    self.engine.complete_own(op_ref);
                    return Step::Ends(reason);
                }
                step => return step,
            }
        }
    }

    fn attempt_once(&self, op_index: u32) -> SocketAttempt<Rest> {
        self.with_data(op_index, |data| {
            assert!(data.is_there && !data.has_byte, "what has ended is not tried");
            data.has_byte = self.fake.take();
            if data.has_byte && self.may_be_more {
                SocketAttempt::Done(Rest::Unknown)
            } else if data.has_byte {
                SocketAttempt::Done(Rest::Nothing)
            } else {
                SocketAttempt::Blocked
            }
        })
    }

    /// Carries out an operation as the port does with a task. Returns why it has ended, if it has.
    fn carry_out(&self, op_index: u32, worker: &Worker) -> Option<EndReason> {
        let op_ref = self.engine.op_ref(op_index);
        let mut step = self.engine.turn(&op_ref, Some(worker).into());
        while step == Step::Try {
            let attempted = self.attempt_once(op_index);
            if attempted.is_over() {
                self.clone_key();
                self.count(op_index, EndReason::Done);
                self.engine.complete_done(&op_ref, attempted, Some(worker));
                return Some(EndReason::Done);
            }
            step = self.engine.tried(&op_ref, attempted, Some(worker).into());
        }
        let Step::Ends(reason) = step else { return None };
        self.clone_key();
        self.count(op_index, reason);
        self.engine.complete_unseen(op_index, Some(worker));
        Some(reason)
    }

    /// Takes an operation that has ended for this reason out of its cell.
    fn count(&self, op_index: u32, reason: EndReason) {
        let OpData { has_byte, .. } = self.unload(op_index);
        assert_eq!(has_byte, reason == EndReason::Done, "{reason:?}");
        self.packets.fetch_add(1, SeqCst);
        self.done.fetch_add(usize::from(has_byte), SeqCst);
    }

    /// Takes the next available packet.
    fn see_next(&self, worker: &Worker) -> Option<Seen> {
        loop {
            match next(&self.engine, worker)? {
                Taken::Operation(op_index) => {
                    if let Some(reason) = self.take_operation(op_index, worker) {
                        return Some(Seen::Done(reason));
                    }
                }
                Taken::Ready(_, _, events) => {
                    self.use_key();
                    return Some(Seen::Ready(events));
                }
                Taken::Notified(name, events) => {
                    self.clone_key();
                    self.engine.cloned(name, Events::NONE, Some(worker));
                    return Some(Seen::Ready(events));
                }
                Taken::Removed(name) => {
                    assert_eq!(name, self.name);
                    self.end();
                    return Some(Seen::Removed);
                }
                Taken::Gone(name) => {
                    assert_eq!(name, self.name);
                    self.engine.release_number(name);
                    self.end();
                    return Some(Seen::Ended);
                }
                other => panic!("{other:?}"),
            }
        }
    }

    fn take_operation(&self, op_index: u32, worker: &Worker) -> Option<EndReason> {
        if self.is_of_tasks {
            let ended = self.carry_out(op_index, worker);
            self.engine.count_operation(worker, ended.is_some());
            return ended;
        }
        let op_ref = self.engine.op_ref(op_index);
        let thread = OpThread::in_wait(worker, 4, 1);
        let step = match self.engine.turn(&op_ref, thread) {
            Step::Try => self.attempt(&op_ref, thread),
            step => {
                if !self.is_shared {
                    self.engine.complete_own(&op_ref);
                }
                step
            }
        };
        let Step::Ends(reason) = step else {
            self.engine.count_operation(worker, false);
            return None;
        };
        self.engine.count_operation(worker, true);
        if self.is_shared {
            self.clone_key();
            self.engine.complete_shared(&op_ref, Some(worker));
        } else {
            self.use_key();
        }
        let OpData { has_byte, is_cancelled, .. } = self.unload(op_index);
        let reason = if is_cancelled { EndReason::Cancelled } else { reason };
        if self.is_shared {
            self.engine.free_op(op_index, Some(worker));
        }
        assert_eq!(has_byte, reason == EndReason::Done, "{reason:?}");
        self.packets.fetch_add(1, SeqCst);
        self.done.fetch_add(usize::from(has_byte), SeqCst);
        Some(reason)
    }

    /// Waits for a packet and takes it.
    fn wait(&self, worker: &Worker) -> Option<Seen> {
        wait_for(&self.engine, worker, || self.see_next(worker))
    }

    /// Joins the port, takes one packet, and leaves.
    fn take_one(&self) -> Option<Seen> {
        visit(&self.engine, |worker| self.wait(worker))
    }

    /// Takes packets until `wait` returns `None`. Drops the token of each operation that has ended.
    fn serve(&self) {
        let worker = self.engine.join();
        while let Some(seen) = self.wait(&worker) {
            if matches!(seen, Seen::Done(_)) && !self.is_shared {
                self.end();
            }
        }
        self.engine.leave(&worker);
    }

    fn packets(&self) -> (usize, usize) {
        (self.packets.load(SeqCst), self.done.load(SeqCst))
    }
}

/// Runs `model` for each reactor and each kind of association.
fn everywhere(model: impl Fn(Arc<Harbour>) + Copy + Send + Sync + 'static) {
    for is_shared in [false, true] {
        for is_one_shot in [false, true] {
            explore_within(2, move || {
                let port = if is_one_shot { one_shot_engine(1) } else { engine(1) };
                model(Harbour::of(port, is_shared));
            });
        }
    }
}

#[test]
fn an_operation_is_done_whenever_its_byte_comes() {
    everywhere(|harbour| {
        let waiter = spawn(&harbour, Harbour::take_one);
        let kernel = spawn(&harbour.fake, Fake::arrive);
        harbour.start(Moment::NEVER, None).unwrap();
        // Nothing else happens in this model, so only the edge can end the wait.
        assert_eq!(waiter.join().unwrap(), Some(Seen::Done(EndReason::Done)));
        kernel.join().unwrap();
    });
}

#[test]
fn a_cancelled_operation_comes_out_of_a_wait_once() {
    everywhere(|harbour| {
        let operation = harbour.start(Moment::NEVER, None).unwrap();
        let waiter = spawn(&harbour, Harbour::take_one);
        let kernel = spawn(&harbour.fake, Fake::arrive);
        let is_in_time = harbour.engine.cancel_operation(operation).unwrap();
        let seen = waiter.join().unwrap();
        kernel.join().unwrap();
        assert!(is_in_time || seen == Some(Seen::Done(EndReason::Done)), "{seen:?}");
        assert!(matches!(seen, Some(Seen::Done(_))), "{seen:?}");
        assert!(!harbour.engine.cancel_operation(operation).unwrap());
        assert_eq!(harbour.packets().0, 1);
    });
}

/// The attempt may find nothing while `cancel_operation` runs. Exactly one of the two threads has
/// the packet.
#[test]
fn an_operation_that_is_tried_for_nothing_is_cancelled_once() {
    everywhere(|harbour| {
        let operation = harbour.start(Moment::NEVER, None).unwrap();
        harbour.fake.arrive();
        let waiter = spawn(&harbour, Harbour::take_one);
        harbour.fake.read();
        let is_in_time = harbour.engine.cancel_operation(operation).unwrap();
        let seen = waiter.join().unwrap();
        assert!(is_in_time || seen == Some(Seen::Done(EndReason::Done)), "{seen:?}");
        assert!(matches!(seen, Some(Seen::Done(_))), "{seen:?}");
        assert_eq!(harbour.packets().0, 1);
    });
}

/// Waits continue until the closing thread has cancelled all waiting operations.
#[test]
fn a_port_that_is_closed_hands_out_what_waits() {
    for is_shared in [false, true] {
        explore(move || {
            let harbour = Harbour::of(engine(1), is_shared);
            harbour.start(Moment::NEVER, None).unwrap();
            let closer = spawn(&harbour.engine, |engine| engine.close());
            harbour.serve();
            closer.join().unwrap();
            assert_eq!(harbour.packets(), (1, 0), "the operation has no packet");
        });
    }
}

#[test]
fn a_port_that_shuts_down_hands_out_what_waits_and_the_key() {
    for is_shared in [false, true] {
        explore(move || {
            let harbour = Harbour::of(engine(1), is_shared);
            harbour.start(Moment::NEVER, None).unwrap();
            let closer = spawn(&harbour.engine, |engine| engine.shut_down().unwrap());
            harbour.serve();
            closer.join().unwrap();
            assert_eq!(harbour.packets(), (1, 0));
            assert_eq!(harbour.engine.snapshot().registered, 0, "the key is given back");
        });
    }
}

#[test]
fn a_finishing_port_hands_out_what_waits_and_the_key() {
    for is_shared in [false, true] {
        explore(move || {
            let harbour = Harbour::of(engine(1), is_shared);
            harbour.start(Moment::NEVER, None).unwrap();
            let closer = spawn(&harbour.engine, |engine| engine.finish_by(Moment::NEVER).unwrap());
            harbour.serve();
            closer.join().unwrap();
            assert_eq!(harbour.packets(), (1, 0), "the operation has no packet");
            assert_eq!(harbour.engine.snapshot().registered, 0);
        });
    }
}

/// The operation is cancelled by one of the two threads, or refused. A handler that cannot start it
/// has the key, or it is returned when no thread is at work.
#[test]
fn an_operation_that_is_started_while_the_port_finishes_ends_once() {
    for is_shared in [false, true] {
        explore(move || {
            let harbour = Harbour::of(engine(1), is_shared);
            let starter = spawn(&harbour, |harbour| harbour.start(Moment::NEVER, None).is_ok());
            harbour.engine.finish_by(Moment::NEVER).unwrap();
            harbour.serve();
            let is_started = starter.join().unwrap();
            assert_eq!(harbour.packets(), (usize::from(is_started), 0));
            assert_eq!(harbour.engine.snapshot().registered, 0);
        });
    }
}

/// A receive is done, or cancelled, while its port begins to finish.
#[test]
fn an_operation_meets_its_edge_while_the_port_finishes() {
    for is_shared in [false, true] {
        explore_within(2, move || {
            let harbour = Harbour::of(engine(1), is_shared);
            harbour.start(Moment::NEVER, None).unwrap();
            harbour.fake.arrive();
            let server = spawn(&harbour, Harbour::serve);
            harbour.engine.finish_by(Moment::NEVER).unwrap();
            server.join().unwrap();
            assert_eq!(harbour.packets().0, 1);
            assert_eq!(harbour.engine.snapshot().registered, 0);
        });
    }
}

#[test]
fn an_operation_that_is_started_while_the_port_is_closed_is_refused_or_called_off() {
    for is_shared in [false, true] {
        explore(move || {
            let harbour = Harbour::of(engine(1), is_shared);
            let closer = spawn(&harbour.engine, |engine| engine.close());
            let started = harbour.start(Moment::NEVER, None);
            closer.join().unwrap();
            harbour.serve();
            assert_eq!(harbour.packets(), (usize::from(started.is_ok()), 0), "{started:?}");
        });
    }
}

/// The bytes of an edge are gone when another thread acts on it, while the operation is started and
/// the port is closed.
#[test]
fn an_operation_that_meets_an_edge_and_the_end_of_the_port_has_its_packet() {
    for is_shared in [false, true] {
        explore_within(2, move || {
            let harbour = Harbour::of(engine(1), is_shared);
            harbour.fake.arrive();
            let server = spawn(&harbour, Harbour::serve);
            harbour.fake.read();
            let closer = spawn(&harbour.engine, |engine| engine.close());
            let started = harbour.start(Moment::NEVER, None);
            closer.join().unwrap();
            server.join().unwrap();
            assert_eq!(harbour.packets().0, usize::from(started.is_ok()), "{started:?}");
        });
    }
}

/// Another thread waits meanwhile. Its wait must not end while the operation is being tried.
#[test]
fn waits_go_on_while_an_operation_is_started_on_a_port_that_is_closed() {
    for is_shared in [false, true] {
        explore_within(2, move || {
            let harbour = Harbour::of(engine(1), is_shared);
            let closer = spawn(&harbour.engine, |engine| engine.close());
            let starter = spawn(&harbour, |harbour| harbour.start(Moment::NEVER, None));
            harbour.serve();
            closer.join().unwrap();
            let started = starter.join().unwrap();
            assert_eq!(harbour.packets(), (usize::from(started.is_ok()), 0), "{started:?}");
        });
    }
}

/// The operation succeeds at its start. A thread that isn't waiting queues its packet.
#[test]
fn waits_go_on_until_what_was_done_at_its_start_is_queued() {
    for is_shared in [false, true] {
        explore_within(2, move || {
            let harbour = Harbour::of(engine(1), is_shared);
            harbour.fake.arrive();
            let closer = spawn(&harbour.engine, |engine| engine.close());
            let starter = spawn(&harbour, |harbour| harbour.start(Moment::NEVER, None));
            harbour.serve();
            closer.join().unwrap();
            let started = usize::from(starter.join().unwrap().is_ok());
            assert_eq!(harbour.packets(), (started, started));
        });
    }
}

/// One thread cancels an operation and another closes the port. The packet comes before the waits
/// end.
#[test]
fn what_is_called_off_as_the_port_is_closed_is_handed_out() {
    for is_shared in [false, true] {
        explore_within(2, move || {
            let harbour = Harbour::of(engine(1), is_shared);
            let operation = harbour.start(Moment::NEVER, None).unwrap();
            let canceller =
                spawn(&harbour.engine, move |engine| engine.cancel_operation(operation).unwrap());
            let closer = spawn(&harbour.engine, |engine| engine.close());
            harbour.serve();
            canceller.join().unwrap();
            closer.join().unwrap();
            assert_eq!(harbour.packets(), (1, 0), "the operation has no packet");
        });
    }
}

/// One thread removes the registration while another starts a second operation.
fn removed_behind_operations(harbour: &Arc<Harbour>) {
    harbour.start(Moment::NEVER, None).unwrap();
    let other = spawn(harbour, |harbour| harbour.start(Moment::NEVER, None).is_ok());
    let remover = spawn(harbour, |harbour| harbour.engine.remove(harbour.name).unwrap());
    let worker = harbour.engine.join();
    let mut seen = Vec::new();
    while seen.last() != Some(&Seen::Removed) {
        seen.extend(harbour.wait(&worker));
    }
    remover.join().unwrap();
    let started = 1 + usize::from(other.join().unwrap());
    assert_eq!(harbour.packets(), (started, 0), "{seen:?}");
    assert_eq!(harbour.engine.snapshot().registered, 0);
}

#[test]
fn a_removal_comes_behind_the_packets_of_operations() {
    explore_within(2, || removed_behind_operations(&Harbour::of(engine(1), true)));
}

/// One thread removes the registration and waits for the key while the operation gets its packet.
fn removed_as_it_is_awaited(harbour: &Arc<Harbour>) {
    harbour.start(Moment::NEVER, None).unwrap();
    let kernel = spawn(&harbour.fake, Fake::arrive);
    let remover = spawn(harbour, |harbour| {
        harbour.engine.collect(harbour.name, None).unwrap();
        harbour.end();
    });
    // One packet comes, and this thread takes no other.
    let seen = harbour.take_one();
    assert!(matches!(seen, Some(Seen::Done(_))), "{seen:?}");
    if !harbour.is_shared {
        // Return the token.
        let slot = harbour.engine.slot(name_parts(harbour.name).0);
        let nobody = || None;
        harbour.engine.put_back(Call::Rearm, slot, harbour.name, PARKED, nobody).unwrap();
    }
    remover.join().unwrap();
    kernel.join().unwrap();
    assert_eq!(harbour.engine.snapshot().registered, 0);
}

#[test]
fn a_remover_that_waits_gets_the_key_when_the_operations_have_landed() {
    for is_shared in [false, true] {
        explore_within(2, move || {
            removed_as_it_is_awaited(&Harbour::of(engine(2), is_shared));
        });
    }
}

/// The remover takes back another worker's chain to look for its node. The operations in the chain
/// return to the queue, and each is still processed once.
#[test]
fn operations_in_a_chain_that_is_taken_back_come_out_once() {
    explore_within(2, || {
        let harbour = Harbour::of(engine(2), true);
        let operations = [(); 2].map(|()| harbour.start(Moment::NEVER, None).unwrap());
        for operation in operations {
            assert!(harbour.engine.cancel_operation(operation).unwrap());
        }
        let worker = harbour.engine.join();
        assert_eq!(
            harbour.engine.wait(&worker, &mut scratch(), 4, None, &NoTasks),
            Waited::Packets
        );
        let remover = spawn(&harbour, |harbour| {
            harbour.engine.collect(harbour.name, None).unwrap();
            harbour.end();
        });
        let mut completed = 0;
        while let Some(seen) = harbour.see_next(&worker) {
            assert_eq!(seen, Seen::Done(EndReason::Cancelled));
            completed += 1;
        }
        while completed < 2 {
            assert_eq!(harbour.wait(&worker), Some(Seen::Done(EndReason::Cancelled)));
            completed += 1;
        }
        remover.join().unwrap();
        assert_eq!(harbour.packets(), (2, 0));
    });
}

/// A thread has ended an operation and takes the next one in the same wait, while another thread
/// ends that one or everything.
#[test]
fn what_follows_in_the_same_wait_comes_out_once() {
    type End = fn(&Harbour, u64);
    let ends: [End; 4] = [
        |harbour, second| assert!(harbour.engine.cancel_operation(second).unwrap()),
        |harbour, _| harbour.engine.shut_down().unwrap(),
        |harbour, _| harbour.engine.close(),
        |harbour, _| {
            harbour.engine.collect(harbour.name, None).unwrap();
            harbour.end();
        },
    ];
    for end in ends {
        explore_within(2, move || {
            let harbour = Harbour { may_be_more: true, ..Harbour::made(engine(2), true) };
            let harbour = Arc::new(harbour);
            let [_, second] = [(); 2].map(|()| harbour.start(Moment::NEVER, None).unwrap());
            harbour.fake.arrive();
            let other = spawn(&harbour, move |harbour| end(harbour, second));
            let mut ended = Vec::new();
            visit(&harbour.engine, |worker| {
                while ended.len() < 2 {
                    match harbour.wait(worker) {
                        Some(Seen::Done(reason)) => ended.push(reason),
                        other => panic!("{other:?}"),
                    }
                }
            });
            other.join().unwrap();
            assert!(ended.contains(&EndReason::Cancelled), "{ended:?}");
            assert_eq!(harbour.packets().0, 2);
        });
    }
}

/// The remover has marked the registration, and continues only when the slot belongs to the next
/// one.
#[test]
fn an_end_calls_off_nothing_of_the_next_registration() {
    explore_within(2, || {
        let (engine, fake) = engine(1);
        let former = Harbour::of((Arc::clone(&engine), Arc::clone(&fake)), false);
        let remover = spawn(&former, |former| former.engine.remove(former.name).is_ok());
        former.use_key();
        former.end();
        let harbour = Harbour::of((engine, fake), false);
        assert_eq!(name_parts(harbour.name).0, name_parts(former.name).0, "the slot is used anew");
        let operation = harbour.start(Moment::NEVER, None).unwrap();
        remover.join().unwrap();
        assert!(harbour.engine.cancel_operation(operation).unwrap(), "it is still in flight");
        assert_eq!(harbour.take_one(), Some(Seen::Done(EndReason::Cancelled)));
    });
}

/// Takes the packet of an operation whose descriptor is closed. The registration ends after it.
fn ends_behind_its_operation(harbour: &Harbour) {
    let worker = harbour.engine.join();
    let seen = harbour.wait(&worker);
    assert!(matches!(seen, Some(Seen::Done(EndReason::Done | EndReason::Gone))), "{seen:?}");
    if harbour.is_shared {
        // The closing thread may not have reached this step yet.
        assert_eq!(harbour.wait(&worker), Some(Seen::Ended));
    }
    harbour.engine.leave(&worker);
}

/// The token that the operation returned finds its descriptor closed.
fn token_finds_it_closed(harbour: &Harbour) {
    if !harbour.is_shared {
        let slot = harbour.engine.slot(name_parts(harbour.name).0);
        let back = harbour.engine.put_back(Call::Rearm, slot, harbour.name, PARKED, || None);
        assert_eq!(back.map_err(|error| error.kind()), Err(ErrorKind::NotRegistered));
        harbour.engine.release_number(harbour.name);
        harbour.end();
    }
}

/// All operations of the registration get their packets, and then it ends.
#[test]
fn what_is_in_flight_ends_when_its_descriptor_is_found_closed() {
    for is_shared in [false, true] {
        explore_within(2, move || {
            let harbour = Harbour::of(engine(1), is_shared);
            harbour.start(Moment::NEVER, None).unwrap();
            let kernel = spawn(&harbour.fake, Fake::arrive);
            let closer = spawn(&harbour, |harbour| Holder::retire(&*harbour.engine, harbour.name));
            ends_behind_its_operation(&harbour);
            closer.join().unwrap();
            kernel.join().unwrap();
            token_finds_it_closed(&harbour);
            assert_eq!(harbour.packets().0, 1);
            assert_eq!(harbour.engine.snapshot().registered, 0);
        });
    }
}

/// The number is registered again and operations are started on it while those of the former
/// registration are in flight. The former ones end, and the new one is unaffected.
#[test]
fn a_number_that_is_given_out_again_ends_what_was_in_flight_on_it() {
    for is_shared in [false, true] {
        explore_within(2, move || {
            let (engine, fake) = engine(2);
            let former = Harbour::of((Arc::clone(&engine), Arc::clone(&fake)), is_shared);
            let operation = former.start(Moment::NEVER, None).unwrap();
            let opener = spawn(&former, move |former| {
                let port = (Arc::clone(&former.engine), Arc::clone(&former.fake));
                let next = Harbour::of(port, is_shared);
                let operation = next.start(Moment::NEVER, None).unwrap();
                (next, operation)
            });
            let worker = engine.join();
            assert_eq!(former.wait(&worker), Some(Seen::Done(EndReason::Gone)));
            if is_shared {
                assert_eq!(former.wait(&worker), Some(Seen::Ended));
            }
            let (next, started) = opener.join().unwrap();
            assert!(!engine.cancel_operation(operation).unwrap(), "it has ended");
            token_finds_it_closed(&former);
            fake.arrive();
            assert_eq!(next.wait(&worker), Some(Seen::Done(EndReason::Done)));
            assert!(!engine.cancel_operation(started).unwrap(), "it was done");
        });
    }
}

/// Drops the port. The key and each operation whose packet was not taken remain, once each.
fn dropped_with_the_rest(harbour: &Harbour, started: usize) {
    let remains = harbour.engine.dismantle();
    assert!(remains.messages.is_empty());
    let packets = harbour.packets().0;
    assert_eq!(remains.operations.len(), started - packets, "{:?}", remains.operations);
    for op_index in remains.operations {
        // Its data is present, and is taken once.
        harbour.unload(op_index);
    }
    for index in &remains.keys {
        assert_eq!(*index, name_parts(harbour.name).0, "the key is that of the registration");
        harbour.use_key();
    }
    let is_out = !harbour.is_shared && packets > 0;
    assert_eq!(remains.keys.len(), usize::from(!is_out), "the key is there, or with its token");
    assert!((0..3).all(|index| !harbour.engine.slot(index).word().is_live()));
}

/// When the port is dropped, a thread has found or cancelled operations and left without processing
/// them.
#[test]
fn a_port_is_dropped_with_operations_wherever_they_are() {
    for is_shared in [false, true] {
        for is_one_shot in [false, true] {
            explore_within(2, move || {
                let port = if is_one_shot { one_shot_engine(1) } else { engine(1) };
                let harbour = Harbour::of(port, is_shared);
                let operation = harbour.start(Moment::NEVER, None).unwrap();
                let mut started = 1;
                let kernel = spawn(&harbour.fake, Fake::arrive);
                let waiter = spawn(&harbour, |harbour| {
                    visit(&harbour.engine, |worker| {
                        let waited = harbour.engine.wait(worker, &mut scratch(), 4, None, &NoTasks);
                        assert_eq!(waited, Waited::Packets);
                    });
                });
                if harbour.is_shared {
                    harbour.start(Moment::NEVER, None).unwrap();
                    started = 2;
                }
                harbour.engine.cancel_operation(operation).unwrap();
                // No thread uses a port that is being dropped.
                kernel.join().unwrap();
                waiter.join().unwrap();
                dropped_with_the_rest(&harbour, started);
            });
        }
    }
}

/// Another port registers the number meanwhile. The operations that this cancels are still dropped
/// with the port.
#[test]
fn a_port_is_dropped_while_another_one_claims_a_descriptor_with_operations() {
    for is_shared in [false, true] {
        explore_within(2, move || {
            let harbour = Harbour::of(engine(1), is_shared);
            harbour.start(Moment::NEVER, None).unwrap();
            let other = spawn(&harbour, |harbour| {
                Holder::retire(&*harbour.engine, harbour.name);
                Holder::is_live(&*harbour.engine, harbour.name)
            });
            dropped_with_the_rest(&harbour, 1);
            assert!(!other.join().unwrap());
        });
    }
}

/// The first operation is cancelled while its attempt finds nothing. The kernel must then be asked
/// again for the next operation.
#[test]
fn behind_an_operation_that_is_cancelled_the_next_one_is_asked_for() {
    for is_one_shot in [false, true] {
        explore_within(2, move || {
            let port = if is_one_shot { one_shot_engine(1) } else { engine(1) };
            let harbour = Harbour::of(port, true);
            let first = harbour.start(Moment::NEVER, None).unwrap();
            harbour.start(Moment::NEVER, None).unwrap();
            harbour.fake.arrive();
            let other = spawn(&harbour, move |harbour| {
                // The edge may already have been found, so the first operation may be due.
                let is_stolen = harbour.fake.take();
                let _ = harbour.engine.cancel_operation(first);
                if is_stolen {
                    harbour.fake.arrive();
                }
            });
            let worker = harbour.engine.join();
            if harbour.wait(&worker) == Some(Seen::Done(EndReason::Cancelled)) {
                assert_eq!(harbour.wait(&worker), Some(Seen::Done(EndReason::Done)));
            }
            other.join().unwrap();
        });
    }
}

/// Time advances as soon as no thread has anything else to do.
fn port_with_time() -> (Arc<Engine>, Arc<Fake>) {
    looking_engine(2, BlockDetection::Announced)
}

/// A `port_with_time` whose kernel watches only until the next edge.
fn one_shot_port_with_time() -> (Arc<Engine>, Arc<Fake>) {
    one_shot_looking_engine(2)
}

fn in_milliseconds(fake: &Fake, milliseconds: u64) -> Moment {
    fake.time() + Duration::from_millis(milliseconds)
}

#[test]
fn the_deadlines_of_two_operations_are_both_kept() {
    // The second deadline is earlier, or later.
    for other in [1, 9] {
        explore_within(2, move || {
            let harbour = Harbour::of(port_with_time(), true);
            let [first, second] = [5, other].map(|after| in_milliseconds(&harbour.fake, after));
            harbour.start(first, None).unwrap();
            let starter = spawn(&harbour, move |harbour| harbour.start(second, None).unwrap());
            let worker = harbour.engine.join();
            for _ in 0..2 {
                assert_eq!(harbour.wait(&worker), Some(Seen::Done(EndReason::TimedOut)));
            }
            starter.join().unwrap();
            let latest = first.max(second);
            assert!(harbour.fake.time() >= latest, "never early");
        });
    }
}

impl Harbour {
    /// The token arms the registration for `after` milliseconds, without hints. Returns the
    /// deadline.
    fn arm_until(&self, after: u64, worker: Option<&Arc<Worker>>) -> Moment {
        let (index, _) = name_parts(self.name);
        let at = in_milliseconds(&self.fake, after);
        let deadline_timer = self.engine.deadline_timer(index, Call::Rearm).unwrap();
        deadline_timer.set_deadline(at);
        let slot = self.engine.slot(index);
        let back = KeyReturn { mode: Some(LEVEL), timed: true, drained: NO_HINT };
        let mine = || worker.map(Arc::clone);
        self.engine.put_back(Call::Rearm, slot, self.name, back, mine).unwrap();
        self.engine.revalidate_deadline_timer(index, deadline_timer);
        at
    }

    /// Waits for the packet of an arming, then closes the port. `None` if another thread took it.
    fn take_last(&self, worker: &Worker) -> Option<Seen> {
        let seen = self.wait(worker);
        if seen.is_some() {
            self.engine.close();
        }
        seen
    }
}

/// A token is armed with one deadline and then with another while the timer of the first expires.
#[test]
fn a_deadline_that_is_moved_while_its_timer_rings_is_kept() {
    for (first, second) in [(1, 5), (5, 1), (1, 0)] {
        explore_within(2, move || {
            let harbour = Harbour::of(port_with_time(), false);
            let engine = &harbour.engine;
            harbour.fake.arrive();
            harbour.arm_until(first, None);
            assert_eq!(harbour.take_one(), Some(Seen::Ready(Events::IN)));
            harbour.fake.read();
            // The timer of the first arming is still set.
            let handler = spawn(&harbour, move |harbour| harbour.arm_until(second, None));
            let worker = engine.join();
            assert_eq!(harbour.wait(&worker), Some(Seen::Ready(Events::TIMED_OUT)));
            let at = handler.join().unwrap();
            assert!(harbour.fake.time() >= at, "never early");
        });
    }
}

/// The timer expires while the slot is queued for a check that finds nothing. The thread that does
/// the check handles the deadline, not the one that handles the timer.
#[test]
fn a_deadline_that_is_over_during_a_check_in_vain_is_kept() {
    for port in [port_with_time, one_shot_port_with_time] {
        explore_within(2, move || {
            let harbour = Harbour::of(port(), false);
            let engine = &harbour.engine;
            let worker = engine.join();
            harbour.fake.arrive();
            harbour.arm_until(9, None);
            assert_eq!(harbour.wait(&worker), Some(Seen::Ready(Events::IN)));
            harbour.fake.read();
            // The deadline passes immediately. The check is deferred to the next wait.
            let at = harbour.arm_until(0, Some(&worker));
            let other = spawn(&harbour, |harbour| {
                visit(&harbour.engine, |worker| harbour.take_last(worker))
            });
            let seen = harbour.take_last(&worker).or(other.join().unwrap());
            assert_eq!(seen, Some(Seen::Ready(Events::TIMED_OUT)));
            assert!(harbour.fake.time() >= at, "never early");
            engine.leave(&worker);
        });
    }
}

/// The token starts the next operation with another deadline while the timer of the previous one
/// expires.
#[test]
fn the_deadline_of_the_next_operation_is_kept_while_the_timer_rings() {
    for (first, second) in [(1, 5), (5, 1), (1, 1), (1, 0)] {
        explore_within(3, move || {
            let harbour = Harbour::of(port_with_time(), false);
            let start = move |harbour: &Harbour, after| {
                let at = in_milliseconds(&harbour.fake, after);
                harbour.start(at, None).unwrap();
                at
            };
            start(&harbour, first);
            harbour.fake.arrive();
            assert_eq!(harbour.take_one(), Some(Seen::Done(EndReason::Done)));
            let token = spawn(&harbour, move |harbour| start(harbour, second));
            let worker = harbour.engine.join();
            assert_eq!(harbour.wait(&worker), Some(Seen::Done(EndReason::TimedOut)));
            let at = token.join().unwrap();
            assert!(harbour.fake.time() >= at, "never early");
        });
    }
}

#[test]
fn readiness_is_reported_beside_operations_that_end() {
    explore_within(2, || {
        let harbour = Harbour::of(engine(1), true);
        let operation = harbour.start(Moment::NEVER, None).unwrap();
        let kernel = spawn(&harbour.fake, Fake::arrive);
        let user = spawn(&harbour, |harbour| {
            harbour.engine.enable(harbour.name, PERSISTENT, || NO_HINT, || None).unwrap();
        });
        harbour.engine.cancel_operation(operation).unwrap();
        let worker = harbour.engine.join();
        let first = harbour.wait(&worker).unwrap();
        if first == Seen::Done(EndReason::Cancelled) {
            // The byte is still there, and its readiness is reported.
            assert_eq!(harbour.wait(&worker), Some(Seen::Ready(Events::IN)));
        }
        kernel.join().unwrap();
        user.join().unwrap();
    });
}

/// Runs `model` for each reactor, with a shared association.
fn shared(model: impl Fn(Arc<Harbour>) + Copy + Send + Sync + 'static) {
    for is_one_shot in [false, true] {
        explore_within(2, move || {
            let port = if is_one_shot { one_shot_engine(1) } else { engine(1) };
            model(Harbour::of(port, true));
        });
    }
}

/// A direct attempt takes everything, and then another byte arrives. Another thread must receive
/// its edge.
#[test]
fn what_is_tried_without_a_record_loses_no_edge() {
    shared(|harbour| {
        harbour.fake.arrive();
        let waiter = spawn(&harbour, Harbour::take_one);
        let attempt = |_| {
            assert!(harbour.fake.take());
            harbour.fake.arrive();
            SocketAttempt::Done(Rest::Nothing)
        };
        assert!(harbour.engine.try_directly(harbour.name, Direction::In, attempt));
        harbour.share(Moment::NEVER, None).unwrap();
        assert_eq!(waiter.join().unwrap(), Some(Seen::Done(EndReason::Done)));
    });
}

/// If the direct attempt finds nothing, the operation that is started next ends successfully.
#[test]
fn what_is_tried_without_a_record_and_started_then_is_done() {
    shared(|harbour| {
        let waiter = spawn(&harbour, Harbour::take_one);
        let kernel = spawn(&harbour.fake, Fake::arrive);
        let attempt = |_| {
            if harbour.fake.take() {
                SocketAttempt::Done(Rest::Nothing)
            } else {
                SocketAttempt::Blocked
            }
        };
        if harbour.engine.try_directly(harbour.name, Direction::In, attempt) {
            harbour.fake.arrive();
        }
        harbour.share(Moment::NEVER, None).unwrap();
        assert_eq!(waiter.join().unwrap(), Some(Seen::Done(EndReason::Done)));
        kernel.join().unwrap();
    });
}

/// An operation that is started during a direct attempt waits, and is tried after it.
#[test]
fn what_is_tried_without_a_record_is_followed_by_what_waits_behind_it() {
    shared(|harbour| {
        harbour.fake.arrive();
        let other = spawn(&harbour, |harbour| {
            harbour.share(Moment::NEVER, None).unwrap();
        });
        // The attempt leaves the byte to the operation.
        harbour
            .engine
            .try_directly(harbour.name, Direction::In, |_| SocketAttempt::Done(Rest::Unknown));
        other.join().unwrap();
        assert_eq!(harbour.take_one(), Some(Seen::Done(EndReason::Done)));
    });
}

/// The key is returned after the attempt.
#[test]
fn what_is_tried_without_a_record_does_not_outlive_its_registration() {
    for comes in [false, true] {
        explore(move || {
            let harbour = Harbour::of(engine(1), true);
            if comes {
                harbour.fake.arrive();
            }
            let closer = spawn(&harbour.engine, |engine| engine.shut_down().unwrap());
            let attempt = |_| {
                harbour.clone_key();
                if harbour.fake.take() {
                    SocketAttempt::Done(Rest::Nothing)
                } else {
                    SocketAttempt::Blocked
                }
            };
            let is_done = harbour.engine.try_directly(harbour.name, Direction::In, attempt);
            assert!(comes || !is_done);
            harbour.serve();
            closer.join().unwrap();
            assert_eq!(harbour.engine.snapshot().registered, 0, "the key is given back");
        });
    }
}

/// The outcome is taken after the operation has completed, when the key may be gone already. The
/// key is returned once, and no operation is lost.
#[test]
fn an_outcome_without_a_packet_meets_the_end_of_the_port() {
    for closes in [false, true] {
        shared(move |harbour| {
            harbour.fake.arrive();
            let closer = spawn(&harbour.engine, move |engine| {
                if closes { engine.close() } else { engine.shut_down().unwrap() }
            });
            let outcome = harbour.share_now();
            // Nothing else takes the byte, so only the end of the port prevents it.
            assert!(
                matches!(
                    outcome,
                    Ok(Some(EndReason::Done)) | Err(ErrorKind::Closed | ErrorKind::Removing)
                ),
                "{outcome:?}"
            );
            harbour.serve();
            closer.join().unwrap();
            assert_eq!(harbour.packets().1, usize::from(outcome.is_ok()));
            if !closes {
                assert_eq!(harbour.engine.snapshot().registered, 0, "the key is given back");
            }
        });
    }
}

/// One of two threads has its outcome immediately, and the other's operation waits for the next
/// byte.
#[test]
fn of_two_operations_without_packets_one_waits() {
    shared(|harbour| {
        harbour.fake.arrive();
        let other = spawn(&harbour, |harbour| harbour.share_now().unwrap());
        let own = harbour.share_now().unwrap();
        let other = other.join().unwrap();
        assert!(own.is_none() || other.is_none(), "there was one byte");
        harbour.fake.arrive();
        assert_eq!(harbour.take_one(), Some(Seen::Done(EndReason::Done)));
        if own.is_none() && other.is_none() {
            harbour.fake.arrive();
            assert_eq!(harbour.take_one(), Some(Seen::Done(EndReason::Done)));
        }
    });
}

/// A port whose operations are carried out as tasks.
fn of_tasks() -> Arc<Harbour> {
    Arc::new(Harbour { is_of_tasks: true, ..Harbour::made(engine(1), true) })
}

/// Two threads carry out two tasks. The next task's edge may come while the first one completes.
#[test]
fn a_task_that_is_done_is_followed_by_the_next_one() {
    explore_within(2, || {
        let harbour = of_tasks();
        harbour.share(Moment::NEVER, None).unwrap();
        harbour.share(Moment::NEVER, None).unwrap();
        let take_one = |harbour: &Harbour| {
            let seen = harbour.take_one();
            harbour.fake.arrive();
            seen
        };
        harbour.fake.arrive();
        let other = spawn(&harbour, take_one);
        assert_eq!(take_one(&harbour), Some(Seen::Done(EndReason::Done)));
        assert_eq!(other.join().unwrap(), Some(Seen::Done(EndReason::Done)));
        assert_eq!(harbour.done.load(SeqCst), 2);
    });
}

/// A task that is cancelled while it is tried has been done or cancelled, and the next one is done.
#[test]
fn a_task_that_is_done_is_not_cancelled_as_well() {
    explore_within(2, || {
        let harbour = of_tasks();
        let first = harbour.share(Moment::NEVER, None).unwrap();
        harbour.fake.arrive();
        let other = spawn(&harbour.engine, move |engine| engine.cancel_operation(first).unwrap());
        let seen = harbour.take_one();
        // A cancel that comes during the attempt is too late if that succeeds.
        let was_asked = other.join().unwrap();
        match seen {
            Some(Seen::Done(EndReason::Cancelled)) => assert!(was_asked),
            seen => assert_eq!(seen, Some(Seen::Done(EndReason::Done))),
        }
        assert!(!harbour.engine.cancel_operation(first).unwrap(), "it has completed");
        assert_eq!(harbour.packets.load(SeqCst), 1);
    });
}

/// The last task gives the key back, whenever the registration ends.
#[test]
fn a_task_that_is_done_does_not_outlive_its_registration() {
    explore_within(2, || {
        let harbour = of_tasks();
        harbour.share(Moment::NEVER, None).unwrap();
        harbour.fake.arrive();
        let closer = spawn(&harbour.engine, |engine| engine.shut_down().unwrap());
        harbour.serve();
        closer.join().unwrap();
        assert_eq!(harbour.packets.load(SeqCst), 1);
        assert_eq!(harbour.engine.snapshot().registered, 0, "the key is given back");
    });
}

impl Harbour {
    /// Takes the key of the shared association back, as a token does.
    fn take_back(&self) -> Result<(), ErrorKind> {
        self.engine.unshare_key(self.name).map_err(|error| error.kind())?;
        self.use_key();
        Ok(())
    }

    /// Returns the key from the token to the shared association.
    fn give_away(&self) -> Result<(), ErrorKind> {
        self.use_key();
        let slot = self.engine.slot(name_parts(self.name).0);
        let shared = self.engine.share_key(slot, self.name, NO_HINT, || None);
        shared.map_err(|error| error.kind())
    }
}

/// One thread takes the packet of the last operation, and clones the key for it.
#[test]
fn a_key_that_is_taken_back_is_not_being_cloned() {
    explore(|| {
        let harbour = Harbour::of(engine(1), true);
        harbour.fake.arrive();
        harbour.start(Moment::NEVER, None).unwrap();
        let waiter = spawn(&harbour, Harbour::take_one);
        let taken = harbour.take_back();
        assert_eq!(waiter.join().unwrap(), Some(Seen::Done(EndReason::Done)));
        if let Err(kind) = taken {
            assert_eq!(kind, ErrorKind::KeyShared);
            harbour.take_back().unwrap();
        }
        harbour.give_away().unwrap();
        harbour.start(Moment::NEVER, None).unwrap();
    });
}

#[test]
fn an_operation_is_started_or_its_key_is_taken_back() {
    explore(|| {
        let harbour = Harbour::of(engine(1), true);
        let starter = spawn(&harbour, |harbour| harbour.start(Moment::NEVER, None).err());
        let taken = harbour.take_back().err();
        let outcome = (starter.join().unwrap(), taken);
        let expected = [(None, Some(ErrorKind::KeyShared)), (Some(ErrorKind::NotShared), None)];
        assert!(expected.contains(&outcome), "{outcome:?}");
    });
}

/// Another thread starts an operation as soon as the key is shared, and its packet clones the key.
#[test]
fn a_key_that_is_given_away_is_no_handlers_any_more() {
    explore(|| {
        let harbour = Harbour::of(engine(1), true);
        harbour.take_back().unwrap();
        harbour.fake.arrive();
        let starter = spawn(&harbour, |harbour| {
            let started = harbour.start(Moment::NEVER, None);
            if started.is_ok() {
                assert_eq!(harbour.take_one(), Some(Seen::Done(EndReason::Done)));
            }
            started.err()
        });
        harbour.give_away().unwrap();
        let refused = starter.join().unwrap();
        assert!(matches!(refused, None | Some(ErrorKind::NotShared)), "{refused:?}");
    });
}

#[test]
fn a_removal_that_meets_a_switch_has_its_packet() {
    for gives in [false, true] {
        explore(move || {
            let harbour = Harbour::of(engine(1), true);
            if gives {
                harbour.take_back().unwrap();
            }
            let remover = spawn(&harbour.engine, {
                let name = harbour.name;
                move |engine| engine.remove(name).unwrap()
            });
            if gives || harbour.take_back().is_ok() {
                harbour.give_away().unwrap();
            }
            remover.join().unwrap();
            assert_eq!(harbour.take_one(), Some(Seen::Removed));
            assert_eq!(harbour.engine.snapshot().registered, 0);
        });
    }
}

/// One thread enables a registration by its name, to be one-shot, while a handler makes it shared.
#[test]
fn a_registration_that_becomes_shared_is_not_made_one_shot() {
    explore_within(2, || {
        let harbour = Harbour::of(engine(1), true);
        harbour.take_back().unwrap();
        let slot = harbour.engine.slot(name_parts(harbour.name).0);
        // It is persistent, and operations don't share its key.
        let back = KeyReturn { mode: Some(PERSISTENT), timed: false, drained: NO_HINT };
        harbour.engine.put_back(Call::Rearm, slot, harbour.name, back, || None).unwrap();
        fn enable(harbour: &Harbour) -> Result<(), ErrorKind> {
            let enabled = harbour.engine.enable(harbour.name, LEVEL, || NO_HINT, || None);
            enabled.map_err(|error| error.kind())
        }
        let other = spawn(&harbour, |harbour| enable(harbour).err());
        enable(&harbour).unwrap();
        harbour.fake.arrive();
        assert!(matches!(harbour.take_one(), Some(Seen::Ready(_))));
        harbour.give_away().unwrap();
        let refused = other.join().unwrap();
        let expected = [None, Some(ErrorKind::KeyHeld), Some(ErrorKind::KeyShared)];
        assert!(expected.contains(&refused), "{refused:?}");
        assert!(!slot.word().mode().one_shot);
        assert_eq!(enable(&harbour), Err(ErrorKind::KeyShared));
        harbour.start(Moment::NEVER, None).unwrap();
    });
}
