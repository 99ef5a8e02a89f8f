//! The order of operations, without a slot's other states. The model checker covers those.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::Relaxed;

use super::{ConnectPermission, EdgeNotes, EndReason, Op, OpEntry, OpQueues, OpTable, Step, Tried};
use crate::state::facts::Facts;
use crate::state::moment::Moment;
use crate::state::queue::{Links, NIL, Node, NodeList, OP};
use crate::state::slot::{Slot, SlotStep};
use crate::sync::AtomicU32;
use crate::types::interest::{Direction, Interest, Mode};

/// Counts how often an operation is accessed.
struct Counting {
    ops: Vec<Op>,
    looks: AtomicUsize,
}

impl Links for Counting {
    fn link(&self, node: Node) -> &AtomicU32 {
        &self.op(node).link
    }
}

impl OpTable for Counting {
    fn op(&self, node: Node) -> &Op {
        self.looks.fetch_add(1, Relaxed);
        &self.ops[(node & !OP) as usize]
    }
}

/// A shared association without operations, and with room for `ops` of them.
fn shared(ops: usize) -> (Counting, Slot, OpQueues) {
    let ops = (0..ops).map(|_| Op::default()).collect();
    let slot = Slot::default();
    let mode = Mode { interest: Interest::NONE, edge: false, one_shot: false };
    slot.register(3, mode, false);
    let mut queues = OpQueues::default();
    queues.begin(true);
    (Counting { ops, looks: AtomicUsize::new(0) }, slot, queues)
}

#[test]
fn an_operation_is_called_off_without_a_look_at_those_in_front_of_it() {
    crate::sync::tests::tested(|| {
        let (all, slot, mut queues) = shared(16);
        let nodes: Vec<Node> = (0..16).map(|number| number | OP).collect();
        for node in &nodes {
            let step = queues.start(&all, *node, 0, Direction::In, Moment::NEVER, false);
            assert_eq!(step, Step::Waits);
        }
        // The last one, one from the middle, and the first one.
        let (middle, last) = (nodes[8], nodes[15]);
        for node in [last, middle, nodes[0]] {
            all.looks.store(0, Relaxed);
            let follow_up = queues.cancel(&all, &slot, node, EndReason::Cancelled, 0).unwrap();
            assert_eq!((follow_up.due, follow_up.next), (node, SlotStep::Nothing));
            assert!(all.looks.load(Relaxed) < 10, "{:?} looks", all.looks);
            assert!(queues.cancel(&all, &slot, node, EndReason::Cancelled, 0).is_none());
        }
        // The others are due in the order of their starts, and one that has to wait again comes
        // first again.
        let (mut due, is_missed) = queues.notify_ready(&all, &slot, Facts::IN);
        assert!(!is_missed);
        let mut order = Vec::new();
        let mut has_waited = false;
        while due[0] != NIL {
            let node = due[0];
            assert_eq!(queues.turn(&all, &slot, node, 0).0, Step::Try);
            if node == nodes[2] && !has_waited {
                has_waited = true;
                assert_eq!(queues.tried(&all, &slot, node, Tried::Blocked, 0).0, Step::Waits);
                (due, _) = queues.notify_ready(&all, &slot, Facts::IN);
                assert_eq!(due[0], node);
                continue;
            }
            let (step, follow_up) = queues.tried(&all, &slot, node, Tried::Done { dry: false }, 0);
            assert_eq!(step, Step::Ends(EndReason::Done));
            order.push(node);
            due[0] = follow_up.due;
        }
        let left: Vec<_> = nodes[1..15].iter().copied().filter(|node| *node != middle).collect();
        assert_eq!(order, left);
    });
}

#[test]
fn an_edge_is_noted_and_tries_no_idle_task_of_which_nothing_waits() {
    crate::sync::tests::tested(|| {
        let (all, slot, mut queues) = shared(2);
        let [task, next] = [0, 1].map(|number| number | OP);
        for node in [task, next] {
            let step = queues.start(&all, node, 0, Direction::In, Moment::NEVER, false);
            assert_eq!(step, Step::Waits);
        }
        let notes = Arc::new(EdgeNotes::new());
        queues.keep_notes(Direction::In, all.op(task).name(0), Arc::clone(&notes));
        let edge = |queues: &mut OpQueues| queues.notify_ready(&all, &slot, Facts::IN).0[0];
        let tried = |queues: &mut OpQueues, node, tried| queues.tried(&all, &slot, node, tried, 0);
        // Something waits.
        assert_eq!(edge(&mut queues), task);
        assert_eq!(queues.turn(&all, &slot, task, 0).0, Step::Try);
        notes.end_wait();
        // Another one comes during the attempt, which is repeated and notes it.
        assert_eq!(edge(&mut queues), NIL);
        assert!(!notes.may_be_ready());
        assert_eq!(tried(&mut queues, task, Tried::Idle).0, Step::Try);
        assert_eq!(tried(&mut queues, task, Tried::Idle).0, Step::Waits);
        assert_eq!(edge(&mut queues), NIL);
        assert!(notes.may_be_ready());
        assert!(slot.word().is_known_ready(Facts::IN), "for what follows the task");
        assert!(notes.wait());
        assert_eq!(edge(&mut queues), task);
        assert_eq!(queues.turn(&all, &slot, task, 0).0, Step::Try);
        let (step, follow_up) = tried(&mut queues, task, Tried::Done { dry: false });
        assert_eq!((step, follow_up.due), (Step::Ends(EndReason::Done), next));
        // The next one has no part in that.
        notes.end_wait();
        assert_eq!(tried(&mut queues, next, Tried::Blocked).0, Step::Waits);
        assert_eq!(edge(&mut queues), next);
    });
}

#[test]
fn a_deadline_ends_those_that_are_over_and_leaves_the_order_of_the_others() {
    crate::sync::tests::tested(|| {
        let (all, slot, mut queues) = shared(6);
        let moment = Moment::from_nanoseconds;
        for (number, at) in (0..).zip([5, 9, 5, 8, 9, 5]) {
            let node = number | OP;
            let _ = queues.start(&all, node, 0, Direction::In, moment(at), false);
        }
        let mut ended = NodeList::new();
        let (again, next) = queues.ring(&all, &slot, moment(6), 0, &mut ended);
        assert_eq!((again, next), (moment(8), SlotStep::Nothing));
        assert_eq!(ended.nodes(&all), [0, 2, 5].map(|number| number | OP));
        let mut ended = NodeList::new();
        let _ = queues.cancel_all(&all, &slot, EndReason::Cancelled, 0, &mut ended);
        assert_eq!(ended.nodes(&all), [1, 3, 4].map(|number| number | OP));
    });
}

#[test]
fn a_connect_that_was_called_off_is_given_up_once() {
    crate::sync::tests::tested(|| {
        let entry = OpEntry::default();
        let never = || -> bool { panic!("there is none") };
        assert_eq!(entry.clear_for_connect(never), ConnectPermission::Clear);
        entry.abandon_connect(3, never);
        entry.connect_begun(3);
        entry.abandon_connect(4, never);
        // The next connect and the packet race to abandon the connect. The loser must try again
        // later.
        let is_clear = entry.clear_for_connect(|| {
            entry.abandon_connect(3, never);
            true
        });
        assert_eq!(is_clear, ConnectPermission::Clear);
        entry.connect_begun(4);
        entry.abandon_connect(3, never);
        entry.abandon_connect(4, || {
            assert_eq!(entry.clear_for_connect(never), ConnectPermission::NotYet);
            true
        });
        assert_eq!(entry.clear_for_connect(never), ConnectPermission::Clear);
        // A connect that has ended on its own is not abandoned.
        entry.connect_begun(5);
        entry.connect_ended();
        entry.abandon_connect(5, never);
        // If abandoning fails, there is no other connect until the descriptor belongs to another
        // registration.
        entry.connect_begun(6);
        assert_eq!(entry.clear_for_connect(|| false), ConnectPermission::Never);
        entry.abandon_connect(6, never);
        assert_eq!(entry.clear_for_connect(never), ConnectPermission::Never);
        entry.begin();
        assert_eq!(entry.clear_for_connect(never), ConnectPermission::Clear);
    });
}
