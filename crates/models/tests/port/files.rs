//! Models operations on files: requests that complete while they are cancelled, while the port is
//! closed, and while their registration is removed. The back end holds a submitted request until a
//! thread of the model starts it.

use std::sync::{Arc, Weak};
use std::time::Duration;

use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::backend::files::{FileKind, FileTarget};
use crate::backend::request::FileRequest;
use crate::engine::{
    EndReason, Engine, NewRegistration, Plan, Step, Taken, Waited, Worker, name_parts,
};
use crate::fake::Fake;
use crate::kit::{
    NO_HINT, NoTasks, engine, entry, explore_within, looking_engine, next, scratch, spawn, visit,
    wait_for,
};
use crate::state::moment::Moment;
use crate::types::config::BlockDetection;
use crate::types::error::{Call, ErrorKind};
use crate::types::interest::Direction;
use crate::types::interest::Interest;
use crate::types::interest::Mode;

const PLAN: Plan = Plan {
    call: Call::Sync,
    direction: Direction::Out,
    is_on_other_file: false,
    deadline: Moment::NEVER,
};

/// A port with one association that is never ready.
struct Depot {
    engine: Arc<Engine>,
    fake: Arc<Fake>,
    name: u64,
    is_shared: bool,
    /// Counts packets of successful operations, and packets of all operations.
    done: AtomicUsize,
    packets: AtomicUsize,
}

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Done(EndReason),
    Removed,
}

impl Depot {
    fn new(is_shared: bool) -> Arc<Self> {
        Self::of(engine(1), is_shared)
    }

    fn of((engine, fake): (Arc<Engine>, Arc<Fake>), is_shared: bool) -> Arc<Self> {
        let index = engine.reserve_slot(Call::Associate, |_| true).unwrap();
        let mode = Mode { interest: Interest::NONE, edge: false, one_shot: !is_shared };
        let associated = Some(Interest::IN);
        let entry = NewRegistration { associated, shared: is_shared, ..entry(mode) };
        let name = engine.register(Call::Associate, index, entry, || None).unwrap();
        let (done, packets) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Arc::new(Self { engine, fake, name, is_shared, done, packets })
    }

    fn request(&self, op_index: u32) -> FileRequest {
        let (index, _) = name_parts(self.name);
        let issuer: Weak<Engine> = Arc::downgrade(&self.engine);
        let file = self.engine.file_ref(index, op_index).unwrap();
        let target = FileTarget { file, offset: 0, issuer };
        FileRequest::new(self.engine.operation_of(op_index), target, FileKind::SyncAll, None)
    }

    /// Starts an operation that can't complete immediately.
    fn start(&self) -> Result<u64, ErrorKind> {
        self.start_until(Moment::NEVER)
    }

    fn start_until(&self, deadline: Moment) -> Result<u64, ErrorKind> {
        let engine = &self.engine;
        let (index, _) = name_parts(self.name);
        let plan = &Plan { deadline, ..PLAN };
        let kind = |error: crate::types::error::Error| error.kind();
        if !self.is_shared {
            let (op_index, entry) = engine
                .own_op(index, PLAN.call, |_| true)
                .inspect_err(|_| engine.free(self.name))
                .map_err(kind)?;
            let operation = engine.operation_of(op_index);
            let (slot, request) = (engine.slot(index), self.request(op_index));
            let lent = engine.lend_file(slot, index, entry, op_index, plan, NO_HINT, request);
            return lent.map(|()| operation).map_err(|(error, _)| {
                engine.free(self.name);
                error.kind()
            });
        }
        let op_index = engine.shared_op(self.name, &PLAN, None, |_| true).map_err(kind)?;
        let operation = engine.operation_of(op_index);
        engine.share_file(self.name, op_index, plan).map_err(|error| {
            engine.release_op(op_index);
            error.kind()
        })?;
        let op_ref = engine.op_ref(op_index);
        if engine.submit_file(&op_ref, deadline, self.request(op_index)).is_err() {
            engine.queue_operation(op_index);
        }
        Ok(operation)
    }

    /// Completes one request, as a thread of the back end does.
    fn work(&self) {
        if let Some(request) = self.fake.start_file_request() {
            request.complete();
        }
    }

    fn see_next(&self, worker: &Worker) -> Option<Seen> {
        let op_index = match next(&self.engine, worker)? {
            Taken::Operation(op_index) => op_index,
            Taken::Removed(name) => {
                assert_eq!(name, self.name);
                self.engine.free(name);
                return Some(Seen::Removed);
            }
            other => panic!("{other:?}"),
        };
        let op_ref = self.engine.op_ref(op_index);
        let Step::Ends(reason) = self.engine.turn(&op_ref, Some(worker).into()) else {
            panic!("its node comes once, when it has ended");
        };
        // An operation that was cancelled before it was submitted has no request.
        if let Some(request) = self.engine.take_completed_file(op_index) {
            assert_eq!(request.is_cancelled, reason != EndReason::Done);
            assert_eq!(request.id, self.engine.operation_of(op_index));
        } else {
            assert_ne!(reason, EndReason::Done, "what is done has come back");
        }
        self.engine.count_operation(worker, true);
        self.packets.fetch_add(1, SeqCst);
        self.done.fetch_add(usize::from(reason == EndReason::Done), SeqCst);
        if self.is_shared {
            self.engine.complete_shared(&op_ref, Some(worker));
            self.engine.free_op(op_index, Some(worker));
        } else {
            self.engine.complete_own(&op_ref);
        }
        Some(Seen::Done(reason))
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
            if seen != Seen::Removed && !self.is_shared {
                self.engine.free(self.name);
            }
        }
        self.engine.leave(&worker);
    }
}

/// Runs `model` for each kind of association.
fn everywhere(preemptions: usize, model: impl Fn(Arc<Depot>) + Copy + Send + Sync + 'static) {
    for is_shared in [false, true] {
        explore_within(preemptions, move || model(Depot::new(is_shared)));
    }
}

#[test]
fn a_job_that_comes_back_wakes_the_thread_that_waits() {
    everywhere(3, |depot| {
        let waiter = spawn(&depot, Depot::take_one);
        depot.start().unwrap();
        depot.work();
        assert_eq!(waiter.join().unwrap(), Some(Seen::Done(EndReason::Done)));
    });
}

#[test]
fn a_job_that_is_cancelled_as_it_is_done_comes_back_once() {
    everywhere(2, |depot| {
        let operation = depot.start().unwrap();
        let waiter = spawn(&depot, Depot::take_one);
        let worker = spawn(&depot, Depot::work);
        let is_in_time = depot.engine.cancel_operation(operation).unwrap();
        worker.join().unwrap();
        let seen = waiter.join().unwrap();
        assert!(is_in_time || seen == Some(Seen::Done(EndReason::Done)), "{seen:?}");
        assert!(matches!(seen, Some(Seen::Done(_))), "{seen:?}");
        assert!(!depot.engine.cancel_operation(operation).unwrap());
        assert!(depot.fake.start_file_request().is_none());
    });
}

/// Waits continue until the back end has completed or returned the request.
#[test]
fn a_port_that_is_closed_hands_out_what_the_back_end_has() {
    everywhere(2, |depot| {
        depot.start().unwrap();
        let worker = spawn(&depot, Depot::work);
        let closer = spawn(&depot.engine, |engine| engine.close());
        depot.serve();
        worker.join().unwrap();
        closer.join().unwrap();
        assert_eq!(depot.packets.load(SeqCst), 1, "the operation has no packet");
        assert!(depot.fake.start_file_request().is_none());
    });
}

#[test]
fn an_operation_that_is_started_while_the_port_is_closed_is_refused_or_comes_back() {
    everywhere(2, |depot| {
        let closer = spawn(&depot.engine, |engine| engine.close());
        let starter = spawn(&depot, |depot| {
            let started = depot.start();
            depot.work();
            started
        });
        depot.serve();
        closer.join().unwrap();
        let started = starter.join().unwrap();
        assert_eq!(depot.packets.load(SeqCst), usize::from(started.is_ok()), "{started:?}");
        assert!(depot.fake.start_file_request().is_none());
    });
}

#[test]
fn a_removal_comes_behind_what_the_back_end_has() {
    explore_within(2, || {
        let depot = Depot::new(true);
        depot.start().unwrap();
        let worker = spawn(&depot, Depot::work);
        let remover = spawn(&depot, |depot| depot.engine.remove(depot.name).unwrap());
        assert!(matches!(depot.take_one(), Some(Seen::Done(_))));
        assert_eq!(depot.take_one(), Some(Seen::Removed));
        worker.join().unwrap();
        remover.join().unwrap();
        assert_eq!(depot.engine.snapshot().registered, 0);
    });
}

/// The deadline passes, or the request completes first. There is one packet, which is never early,
/// and no request remains.
#[test]
fn a_deadline_calls_a_job_off_or_finds_it_done() {
    for is_shared in [false, true] {
        explore_within(2, move || {
            let depot = Depot::of(looking_engine(2, BlockDetection::Announced), is_shared);
            let at = depot.fake.time() + Duration::from_millis(5);
            depot.start_until(at).unwrap();
            let worker = spawn(&depot, Depot::work);
            let seen = depot.take_one();
            worker.join().unwrap();
            match seen {
                Some(Seen::Done(EndReason::Done)) => {}
                Some(Seen::Done(EndReason::TimedOut)) => assert!(depot.fake.time() >= at, "early"),
                other => panic!("{other:?}"),
            }
            assert!(depot.fake.start_file_request().is_none());
        });
    }
}

/// One thread cancels an operation and another closes the port. The packet comes before the waits
/// end.
#[test]
fn what_is_cancelled_as_the_port_is_closed_is_handed_out() {
    everywhere(2, |depot| {
        let operation = depot.start().unwrap();
        let canceller =
            spawn(&depot, move |depot| depot.engine.cancel_operation(operation).unwrap());
        let closer = spawn(&depot.engine, |engine| engine.close());
        depot.serve();
        canceller.join().unwrap();
        closer.join().unwrap();
        assert_eq!(depot.packets.load(SeqCst), 1, "the operation has no packet");
    });
}

#[test]
fn what_is_removed_as_the_port_is_closed_is_handed_out() {
    explore_within(2, || {
        let depot = Depot::new(true);
        depot.start().unwrap();
        let remover = spawn(&depot, |depot| depot.engine.remove(depot.name).is_ok());
        let closer = spawn(&depot.engine, |engine| engine.close());
        depot.serve();
        remover.join().unwrap();
        closer.join().unwrap();
        assert_eq!(depot.packets.load(SeqCst), 1, "the operation has no packet");
    });
}

/// The port is dropped before its request completes, or meanwhile. The operation remains with the
/// port, once, and the back end's part of it is dropped.
#[test]
fn a_port_is_dropped_while_a_job_comes_back() {
    everywhere(2, |depot| {
        depot.start().unwrap();
        let worker = spawn(&depot.fake, |fake| {
            let request = fake.start_file_request()?;
            let file = Arc::downgrade(&request.target.file);
            request.complete();
            Some(file)
        });
        let remains = depot.engine.dismantle();
        assert_eq!((remains.operations.len(), remains.keys.len()), (1, 1));
        drop(depot.engine.take_completed_file(remains.operations[0]));
        let file = worker.join().unwrap().expect("it had been put");
        drop(depot);
        assert!(file.upgrade().is_none(), "the file is open still");
    });
}

/// The back end holds the request longer than the port lives.
#[test]
fn a_job_that_comes_back_behind_its_port_is_dropped() {
    everywhere(2, |depot| {
        depot.start().unwrap();
        let fake = Arc::clone(&depot.fake);
        let remains = depot.engine.dismantle();
        assert_eq!(remains.operations.len(), 1);
        let request = fake.start_file_request().expect("it had been put");
        let file = Arc::downgrade(&request.target.file);
        let worker = spawn(&Arc::new(()), move |()| request.complete());
        assert!(
            depot
                .engine
                .take_completed_file(remains.operations[0])
                .is_none_or(|request| request.id == 0)
        );
        drop(depot);
        worker.join().unwrap();
        assert!(file.upgrade().is_none(), "the file is open still");
    });
}
