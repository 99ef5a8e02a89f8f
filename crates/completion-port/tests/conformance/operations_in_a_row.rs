//! Rules 40 and 54: many operations of one direction that can be done at the same time.

use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::thread;

use completion_port::{Batch, OpId, Operation, Outcome, Packet, Port, SharedId};
use testkit::{Socket, System, on_every_system};

use crate::kit::operations::{Shared, accepted, bytes, room, shared_on, silent, sort};
use crate::kit::packets::each_packet;
use crate::kit::sockets::STREAMS;
use crate::kit::threads::{End, Gate, eventually, settle};

/// How many operations are in flight, and how many of them can be done.
const MANY: usize = 64;
const READY: usize = 32;

/// The operations of a direction, and the sockets that keep it ready.
struct Row {
    operations: Vec<OpId>,
    _others: Vec<Socket>,
}

impl Row {
    /// Starts operations on `near` before `make_ready` makes some of them possible.
    fn of(
        port: &Port<Shared, u32>,
        near: Socket,
        operation: fn() -> Operation,
        make_ready: impl FnOnce(&Shared) -> Vec<Socket>,
    ) -> Self {
        let near = Shared::new(near);
        let id = port.associate_shared(near.clone()).unwrap();
        let operations = (0..MANY).map(|_| port.start(id, operation()).unwrap()).collect();
        Self { operations, _others: make_ready(&near) }
    }

    fn receives(port: &Port<Shared, u32>, (near, far): (Socket, Socket)) -> Self {
        Self::of(
            port,
            near,
            || Operation::recv(room(1)),
            |_| {
                assert_eq!(far.write(&[7; READY]).unwrap(), READY);
                vec![far]
            },
        )
    }

    fn datagrams(port: &Port<Shared, u32>, system: &System) -> Self {
        let (near, far) = system.udp_pair();
        Self::of(
            port,
            near,
            || Operation::recv_from(room(4)),
            |_| {
                for _ in 0..READY {
                    assert_eq!(far.write(b"abc").unwrap(), 3);
                }
                vec![far]
            },
        )
    }

    fn accepts(port: &Port<Shared, u32>, system: &System) -> Self {
        Self::of(port, system.tcp_listener(MANY), Operation::accept, |near| {
            (0..READY).map(|_| system.tcp_connect(near)).collect()
        })
    }
}

type Kind = fn(&Port<Shared, u32>, &System) -> Row;

const KINDS: [Kind; 4] = [
    Row::datagrams,
    Row::accepts,
    |port, system| Row::receives(port, STREAMS[0](system)),
    |port, system| Row::receives(port, STREAMS[1](system)),
];

/// Returns the operations whose packets one wait brings. All of them have succeeded.
#[track_caller]
fn one_wait(port: &Port<Shared, u32>, on: &System, batch: &mut Batch) -> Vec<OpId> {
    let packets = port.wait(batch, on.soon()).unwrap();
    packets.map(|packet| name(packet, on)).collect()
}

#[track_caller]
fn name(packet: Packet<'_, Shared, u32>, on: &System) -> OpId {
    let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
    let (name, outcome) = (finished.operation(), finished.into_parts().1);
    if let Outcome::Accepted(_) = outcome {
        accepted(outcome, on).unwrap();
    } else {
        assert_eq!(outcome.error().map(|error| error.kind()), None);
    }
    name
}

/// Starts `count` receives of one byte each on a new connection that has that many bytes.
fn ready_receives(
    port: &Port<Shared, u32>,
    on: &System,
    count: usize,
) -> (SharedId, Vec<OpId>, Socket) {
    let (near, far) = on.unix_pair();
    let id = port.associate_shared(Shared::new(near)).unwrap();
    let operations =
        (0..count).map(|_| port.start(id, Operation::recv(room(1))).unwrap()).collect();
    let bytes: Vec<u8> = (0..count).map(|number| u8::try_from(number).unwrap()).collect();
    assert_eq!(far.write(&bytes).unwrap(), count);
    (id, operations, far)
}

on_every_system! {
    /// Rules 40 and 54: one wait brings the packets of all operations that can be done, in the
    /// order of their starts, and asks the kernel as often as for one packet.
    fn one_wait_brings_all_that_can_be_done(system: &System) {
        system.not_where_operations_are_carried_out("waiting operations that no thread has tried");
        for kind in KINDS {
            // Data from another socket may arrive a little later, so this may take several rounds.
            let has_come = (0..20).any(|_| {
                let port = shared_on(system);
                let Row { operations, _others } = kind(&port, system);
                let polls = port.stats().polls;
                let mut batch = Batch::with_capacity(MANY);
                let mut taken = one_wait(&port, system, &mut batch);
                let has_come = taken.len() == READY;
                if has_come {
                    let polls = port.stats().polls - polls;
                    assert!(polls <= 2, "{polls} polls");
                }
                while taken.len() < READY {
                    taken.extend(one_wait(&port, system, &mut batch));
                }
                assert_eq!(taken, operations[..READY]);
                assert_eq!(port.stats().packets.completed, READY as u64);
                silent(&port, system);
                has_come
            });
            assert!(has_come, "no wait brings all that can be done");
        }
    }

    /// Rules 1 and 54: a wait brings no more than there is room for, and the next one the rest.
    fn a_smaller_batch_leaves_the_rest_to_the_next_wait(system: &System) {
        system.not_where_operations_are_carried_out("waiting operations that no thread has tried");
        let port = shared_on(system);
        let (_, operations, _far) = ready_receives(&port, system, READY);
        let mut batch = Batch::with_capacity(5);
        let mut taken = Vec::new();
        for wanted in [5, 5, 5, 5, 5, 5, 2] {
            let some = one_wait(&port, system, &mut batch);
            assert_eq!(some.len(), wanted);
            taken.extend(some);
            assert_eq!(port.stats().queued, usize::from(taken.len() < READY));
        }
        assert_eq!(taken, operations);
        silent(&port, system);
    }

    /// Rule 54: an operation that a handler starts is part of the row, but one wait brings only 64
    /// in a row, however much room there is.
    fn a_row_that_handlers_prolong_ends(system: &System) {
        system.not_where_operations_are_carried_out("waiting operations that no thread has tried");
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let id = port.associate_shared(Shared::new(near)).unwrap();
        for _ in 0..8 {
            port.start(id, Operation::recv(room(1))).unwrap();
        }
        assert_eq!(far.write(&[7; 150]).unwrap(), 150);
        let mut batch = Batch::with_capacity(1000);
        for wanted in [64, 64, 22] {
            let packets = port.wait(&mut batch, system.soon()).unwrap();
            let count = packets.map(|packet| {
                name(packet, system);
                port.start(id, Operation::recv(room(1))).unwrap();
            });
            assert_eq!(count.count(), wanted);
        }
    }

    /// Rules 5 and 54: a packet that is queued meanwhile comes before the next operations.
    fn another_packet_goes_before_the_rest_of_a_row(system: &System) {
        let port = shared_on(system);
        let (_, operations, _far) = ready_receives(&port, system, 8);
        let mut batch = Batch::new();
        let (mut names, mut sorts) = (Vec::new(), Vec::new());
        while sorts.len() < 9 {
            let before = sorts.len();
            for packet in port.wait(&mut batch, system.soon()).unwrap() {
                if sorts.is_empty() {
                    // The second operation may be due by now.
                    port.post(1).unwrap();
                }
                sorts.push(sort(&packet));
                if let Packet::SharedCompleted(_) = packet {
                    names.push(name(packet, system));
                }
            }
            assert!(sorts.len() > before, "{port:#?}");
        }
        assert_eq!(names, operations);
        let place = sorts.iter().position(|sort| *sort == "posted");
        assert!(matches!(place, Some(1 | 2)), "{sorts:?}");
    }

    /// Rules 5 and 54: two directions take turns, and one wait still brings all that can be done.
    fn two_rows_take_turns(system: &System) {
        system.not_where_operations_are_carried_out("waiting operations that no thread has tried");
        let port = shared_on(system);
        let rows = [(); 2].map(|()| ready_receives(&port, system, 16));
        let mut batch = Batch::with_capacity(MANY);
        let taken = one_wait(&port, system, &mut batch);
        assert_eq!(taken.len(), 32);
        for (number, pair) in taken.chunks(2).enumerate() {
            let mut pair = [pair[0], pair[1]];
            let mut wanted = rows.each_ref().map(|(_, operations, _)| operations[number]);
            pair.sort_unstable();
            wanted.sort_unstable();
            assert_eq!(pair, wanted);
        }
        silent(&port, system);
    }

    /// Rules 29 and 54: an iterator that is dropped takes nothing more from its direction.
    fn a_row_that_is_not_looked_at_leaves_its_data(system: &System) {
        system.not_where_operations_are_carried_out("waiting operations that no thread has tried");
        let port = shared_on(system);
        let (_, operations, _far) = ready_receives(&port, system, 4);
        let mut batch = Batch::new();
        for (number, operation) in operations.iter().enumerate() {
            let packet = port.wait(&mut batch, system.soon()).unwrap().next().unwrap();
            let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
            assert_eq!(finished.operation(), *operation);
            assert_eq!(usize::from(bytes(finished.into_parts().1)[0]), number);
            assert_eq!(port.stats().queued, usize::from(number < 3));
        }
        silent(&port, system);
    }

    /// Rules 59 and 62: an operation whose turn comes in the same wait can still be cancelled, by
    /// itself or with its registration.
    fn the_next_of_a_row_is_cancelled(system: &System) {
        system.not_where_operations_are_carried_out("waiting operations that no thread has tried");
        for removes in [false, true] {
            let port = shared_on(system);
            let (id, operations, _far) = ready_receives(&port, system, 4);
            let mut batch = Batch::new();
            let mut ends = Vec::new();
            while ends.len() < 4 + usize::from(removes) {
                let before = ends.len();
                for packet in port.wait(&mut batch, system.soon()).unwrap() {
                    if ends.is_empty() {
                        if removes {
                            port.remove(id.id()).unwrap();
                        } else {
                            assert!(port.cancel(operations[1]).unwrap());
                        }
                    }
                    ends.push(match packet {
                        Packet::SharedCompleted(finished) => {
                            let name = finished.operation();
                            let place = operations.iter().position(|other| *other == name);
                            Some((place.unwrap(), finished.error().is_none()))
                        }
                        Packet::Removed(..) => None,
                        other => panic!("{}", sort(&other)),
                    });
                }
                assert!(ends.len() > before, "{port:#?}");
            }
            if removes {
                assert_eq!(ends.pop(), Some(None));
            }
            ends.sort_unstable();
            let is_done = |place: usize| place == 0 || !removes && place != 1;
            let wanted: Vec<_> = (0..4).map(|place| Some((place, is_done(place)))).collect();
            assert_eq!(ends, wanted);
        }
    }

    /// Rules 6, 37 and 54: whatever room the batch has, the next operation goes to another thread
    /// while the first one's handler runs.
    fn the_rest_of_a_row_does_not_wait_for_a_handler(system: &System) {
        system.several_threads_wait();
        for capacity in [1, MANY] {
            let port: Port<Shared, u32> = system.port(2);
            let (gate, inside) = (Gate::default(), AtomicUsize::new(0));
            thread::scope(|scope| {
                let _end = End::of(&port, [&gate]);
                for started in 1..=2 {
                    let (port, gate, inside) = (&port, &gate, &inside);
                    scope.spawn(move || {
                        each_packet(port, Batch::with_capacity(capacity), |packet| {
                            name(packet, system);
                            inside.fetch_add(1, SeqCst);
                            gate.pass();
                        });
                    });
                    settle(system, port, started);
                }
                let _row = ready_receives(&port, system, 4);
                eventually(system, "both threads have an operation", || inside.load(SeqCst) == 2);
                gate.open();
                eventually(system, "all are done", || inside.load(SeqCst) == 4);
            });
        }
    }
}
