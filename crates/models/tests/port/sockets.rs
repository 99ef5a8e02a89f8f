//! Models operations on sockets that the back end performs: requests that complete while they are
//! cancelled, while the port is closed, and while their registration is removed. The back end holds
//! a submitted request until a thread of the model ends it, which an edge reports.

use std::sync::Arc;
use std::time::Duration;

use loom::sync::atomic::{AtomicUsize, Ordering::SeqCst};

use crate::backend::request::SocketRequest;
use crate::backend::sockets::{SocketKind, SocketTarget};
use crate::engine::{
    EndReason, Engine, NewRegistration, OpRef, Plan, Step, Taken, Worker, name_parts,
};
use crate::fake::Fake;
use crate::kit::{
    NO_HINT, entry, explore_within, looking_engine, next, one_shot_engine, spawn, visit, wait_for,
};
use crate::state::moment::Moment;
use crate::types::config::BlockDetection;
use crate::types::error::{Call, ErrorKind};
use crate::types::interest::Direction;
use crate::types::interest::Interest;
use crate::types::interest::Mode;

/// A port with one association that is never ready.
struct Quay {
    engine: Arc<Engine>,
    fake: Arc<Fake>,
    name: u64,
    is_shared: bool,
    /// Counts packets of operations.
    packets: AtomicUsize,
}

#[derive(Debug, PartialEq, Eq)]
enum Seen {
    Done(EndReason),
    Removed,
}

impl Quay {
    fn new(is_shared: bool) -> Arc<Self> {
        Self::of(one_shot_engine(1), is_shared)
    }

    fn of((engine, fake): (Arc<Engine>, Arc<Fake>), is_shared: bool) -> Arc<Self> {
        let index = engine.reserve_slot(Call::Associate, |_| true).unwrap();
        let mode = Mode { interest: Interest::NONE, edge: false, one_shot: !is_shared };
        let associated = Some(Interest::IN);
        let entry = NewRegistration { associated, shared: is_shared, ..entry(mode) };
        let name = engine.register(Call::Associate, index, entry, || None).unwrap();
        Arc::new(Self { engine, fake, name, is_shared, packets: AtomicUsize::new(0) })
    }

    /// Starts an operation that can't complete immediately.
    fn start(&self) -> Result<u64, ErrorKind> {
        self.start_until(Moment::NEVER)
    }

    fn start_until(&self, deadline: Moment) -> Result<u64, ErrorKind> {
        let engine = &self.engine;
        let (index, _) = name_parts(self.name);
        let plan = Plan {
            call: Call::Receive,
            direction: Direction::In,
            is_on_other_file: false,
            deadline,
        };
        let kind = |error: crate::types::error::Error| error.kind();
        if !self.is_shared {
            let (op_index, entry) = engine
                .own_op(index, plan.call, |_| true)
                .inspect_err(|_| engine.free(self.name))
                .map_err(kind)?;
            let operation = engine.operation_of(op_index);
            let slot = engine.slot(index);
            let step = engine
                .lend(slot, index, entry, op_index, &plan, NO_HINT)
                .inspect_err(|_| engine.free(self.name))
                .map_err(kind)?;
            assert_eq!(step, Step::Try);
            self.submit(&engine.op_ref(op_index));
            return Ok(operation);
        }
        let op_index = engine.shared_op(self.name, &plan, None, |_| true).map_err(kind)?;
        let operation = engine.operation_of(op_index);
        let step = engine.share(self.name, op_index, &plan).map_err(|error| {
            engine.release_op(op_index);
            error.kind()
        })?;
        if step == Step::Try {
            self.submit(&engine.op_ref(op_index));
        }
        Ok(operation)
    }

    /// Submits an operation after an attempt that found nothing. If the operation has ended
    /// instead, queues its packet.
    fn submit(&self, op_ref: &OpRef<'_>) {
        let engine = &self.engine;
        let op_index = op_ref.op_index;
        assert!(engine.prepare_socket_request(op_index));
        let id = engine.socket_request_of(op_index);
        let target = SocketTarget::new(op_ref.descriptor(), None);
        let request = SocketRequest::new(id, target, SocketKind::Receive, None);
        if engine.submit_socket(op_ref, request, None.into()).is_err() {
            engine.queue_operation(op_index);
        }
    }

    /// Completes one request, as the kernel does.
    fn work(&self) {
        self.fake.end_socket_request(|_| true);
    }

    /// Declines one request: the kernel doesn't start it.
    fn decline(&self) {
        self.fake.end_socket_request(|request| {
            request.target.is_declined = true;
            true
        });
    }

    fn see_next(&self, worker: &Worker) -> Option<Seen> {
        let engine = &self.engine;
        let op_index = match next(engine, worker)? {
            Taken::Operation(op_index) => op_index,
            Taken::Removed(name) => {
                assert_eq!(name, self.name);
                engine.free(name);
                return Some(Seen::Removed);
            }
            other => panic!("{other:?}"),
        };
        let op_ref = engine.op_ref(op_index);
        let step = engine.turn(&op_ref, Some(worker).into());
        let request = engine.take_completed_socket(op_index);
        let reason = match step {
            Step::Try => {
                // The request was declined, or the operation waited after another one.
                assert!(request.is_none_or(|request| request.target.is_declined));
                self.submit(&op_ref);
                engine.count_operation(worker, false);
                return None;
            }
            Step::Ends(reason) => reason,
            Step::Waits => panic!("its node has come"),
        };
        if let Some(request) = request {
            let is_done = !request.is_cancelled && !request.target.is_declined;
            assert_eq!(is_done, reason == EndReason::Done);
            assert_eq!(request.id, engine.socket_request_of(op_index));
        } else {
            assert_ne!(reason, EndReason::Done, "what is done has come back");
        }
        engine.count_operation(worker, true);
        self.packets.fetch_add(1, SeqCst);
        if self.is_shared {
            engine.complete_shared(&op_ref, Some(worker));
            engine.free_op(op_index, Some(worker));
        } else {
            engine.complete_own(&op_ref);
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
fn everywhere(preemptions: usize, model: impl Fn(Arc<Quay>) + Copy + Send + Sync + 'static) {
    for is_shared in [false, true] {
        explore_within(preemptions, move || model(Quay::new(is_shared)));
    }
}

#[test]
fn an_operation_that_comes_back_comes_out_of_a_wait() {
    everywhere(3, |quay| {
        let waiter = spawn(&quay, Quay::take_one);
        quay.start().unwrap();
        quay.work();
        assert_eq!(waiter.join().unwrap(), Some(Seen::Done(EndReason::Done)));
    });
}

#[test]
fn an_operation_that_is_cancelled_as_it_is_done_comes_back_once() {
    everywhere(2, |quay| {
        let operation = quay.start().unwrap();
        let waiter = spawn(&quay, Quay::take_one);
        let worker = spawn(&quay, Quay::work);
        let is_in_time = quay.engine.cancel_operation(operation).unwrap();
        worker.join().unwrap();
        let seen = waiter.join().unwrap();
        assert!(is_in_time || seen == Some(Seen::Done(EndReason::Done)), "{seen:?}");
        assert!(matches!(seen, Some(Seen::Done(_))), "{seen:?}");
        assert!(!quay.engine.cancel_operation(operation).unwrap());
        assert_eq!(quay.fake.socket_requests(), 0);
    });
}

/// One thread cancels an operation that another thread has not submitted yet.
#[test]
fn an_operation_that_is_cancelled_as_it_is_handed_over_ends() {
    explore_within(2, || {
        let quay = Quay::new(true);
        // The name of the first operation: op index 0, first use.
        let operation = u64::from(quay.engine.of_this_port()) << 32;
        let starter = spawn(&quay, |quay| quay.start().unwrap());
        let is_cancelled = quay.engine.cancel_operation(operation).unwrap();
        assert_eq!(starter.join().unwrap(), operation);
        if !is_cancelled {
            quay.work();
        }
        let seen = quay.take_one();
        let wanted = if is_cancelled { EndReason::Cancelled } else { EndReason::Done };
        assert_eq!(seen, Some(Seen::Done(wanted)));
        assert_eq!(quay.fake.socket_requests(), 0);
    });
}

#[test]
fn what_stands_behind_an_operation_is_handed_over_when_that_comes_back() {
    explore_within(2, || {
        let quay = Quay::new(true);
        let first = quay.start().unwrap();
        quay.start().unwrap();
        assert_eq!(quay.fake.socket_requests(), 1, "one of a direction at a time");
        let waiter = spawn(&quay, |quay| {
            visit(&quay.engine, |worker| [quay.wait(worker), quay.wait(worker)])
        });
        quay.engine.cancel_operation(first).unwrap();
        while quay.packets.load(SeqCst) < 2 {
            quay.work();
            loom::thread::yield_now();
        }
        let seen = waiter.join().unwrap();
        let wanted = [EndReason::Cancelled, EndReason::Done].map(|reason| Some(Seen::Done(reason)));
        assert_eq!(seen, wanted);
    });
}

#[test]
fn an_operation_that_the_system_declines_is_tried_again() {
    everywhere(2, |quay| {
        quay.start().unwrap();
        let waiter = spawn(&quay, Quay::take_one);
        quay.decline();
        while quay.packets.load(SeqCst) < 1 {
            quay.work();
            loom::thread::yield_now();
        }
        assert_eq!(waiter.join().unwrap(), Some(Seen::Done(EndReason::Done)));
    });
}

#[test]
fn an_operation_that_is_cancelled_as_the_system_declines_it_ends() {
    everywhere(2, |quay| {
        let operation = quay.start().unwrap();
        let waiter = spawn(&quay, Quay::take_one);
        let worker = spawn(&quay, Quay::decline);
        assert!(quay.engine.cancel_operation(operation).unwrap());
        worker.join().unwrap();
        assert_eq!(waiter.join().unwrap(), Some(Seen::Done(EndReason::Cancelled)));
        assert_eq!(quay.fake.socket_requests(), 0);
    });
}

/// Waits continue until the system has completed or cancelled the request.
#[test]
fn a_port_that_is_closed_hands_out_what_the_system_has() {
    everywhere(2, |quay| {
        quay.start().unwrap();
        let worker = spawn(&quay, Quay::work);
        let closer = spawn(&quay.engine, |engine| engine.close());
        quay.serve();
        worker.join().unwrap();
        closer.join().unwrap();
        assert_eq!(quay.packets.load(SeqCst), 1, "the operation has no packet");
        assert_eq!(quay.fake.socket_requests(), 0);
    });
}

#[test]
fn an_operation_that_is_started_while_the_port_is_closed_is_refused_or_comes_back() {
    everywhere(2, |quay| {
        let closer = spawn(&quay.engine, |engine| engine.close());
        let starter = spawn(&quay, |quay| quay.start());
        quay.serve();
        closer.join().unwrap();
        let started = starter.join().unwrap();
        assert_eq!(quay.packets.load(SeqCst), usize::from(started.is_ok()), "{started:?}");
        assert_eq!(quay.fake.socket_requests(), 0);
    });
}

#[test]
fn what_is_called_off_as_the_port_is_closed_is_handed_out() {
    everywhere(2, |quay| {
        let operation = quay.start().unwrap();
        let canceller = spawn(&quay, move |quay| quay.engine.cancel_operation(operation).unwrap());
        let closer = spawn(&quay.engine, |engine| engine.close());
        quay.serve();
        canceller.join().unwrap();
        closer.join().unwrap();
        assert_eq!(quay.packets.load(SeqCst), 1, "the operation has no packet");
    });
}

#[test]
fn a_removal_comes_behind_what_the_system_has() {
    explore_within(2, || {
        let quay = Quay::new(true);
        quay.start().unwrap();
        let worker = spawn(&quay, Quay::work);
        let remover = spawn(&quay, |quay| quay.engine.remove(quay.name).unwrap());
        assert!(matches!(quay.take_one(), Some(Seen::Done(_))));
        assert_eq!(quay.take_one(), Some(Seen::Removed));
        worker.join().unwrap();
        remover.join().unwrap();
        assert_eq!(quay.engine.snapshot().registered, 0);
    });
}

/// The deadline passes, or the transfer completes first. There is one packet, which is never early.
#[test]
fn a_deadline_calls_an_operation_off_or_finds_it_done() {
    for is_shared in [false, true] {
        explore_within(2, move || {
            let quay = Quay::of(looking_engine(2, BlockDetection::Announced), is_shared);
            let at = quay.fake.time() + Duration::from_millis(5);
            quay.start_until(at).unwrap();
            let worker = spawn(&quay, Quay::work);
            let seen = quay.take_one();
            worker.join().unwrap();
            match seen {
                Some(Seen::Done(EndReason::Done)) => {}
                Some(Seen::Done(EndReason::TimedOut)) => assert!(quay.fake.time() >= at, "early"),
                other => panic!("{other:?}"),
            }
            assert_eq!(quay.fake.socket_requests(), 0);
        });
    }
}

/// The operation remains with the port. The system is asked to cancel it before the keys are
/// dropped.
#[test]
fn a_port_is_dropped_with_what_the_system_has() {
    everywhere(2, |quay| {
        quay.start().unwrap();
        let remains = quay.engine.dismantle();
        assert_eq!((remains.operations.len(), remains.keys.len()), (1, 1));
        assert!(quay.engine.take_completed_socket(remains.operations[0]).is_none());
        assert!(!quay.fake.end_socket_request(|_| true), "the system was not asked for it");
    });
}
