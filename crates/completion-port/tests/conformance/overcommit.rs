//! Rule 82: threads beyond the concurrency value, while every running thread computes.

use std::thread;
use std::time::Duration;

use completion_port::{BlockDetection, Port, ThreadStatus};
use testkit::{System, on_every_system};

use crate::kit::takers::Takers;
use crate::kit::threads::{End, Gate, eventually, settle, stays};

const TIME: Duration = Duration::from_millis(5);

fn port(on: &System) -> Port<(), usize> {
    let builder = Port::builder().concurrency(1).block_detection(BlockDetection::Announced);
    on.built(builder.overcommit_after(TIME)).unwrap()
}

on_every_system! {
    /// Rule 82: what waits is handled although the only running thread computes, but by no more
    /// than one thread more.
    fn what_waits_is_handled_while_every_running_thread_computes(system: &System) {
        system.several_threads_wait();
        let port = port(system);
        let (gate, takers) = (Gate::default(), Takers::of(system, &port));
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            takers.start(scope, 3, |message| {
                if message < 2 {
                    gate.pass();
                }
            });
            port.post(0).unwrap();
            assert_eq!(takers.hear("the first is taken"), (0, 2));
            assert_eq!(port.stats().excess, 0);
            port.post(1).unwrap();
            assert_eq!(takers.hear("the other is taken as well").0, 1);
            let stats = port.stats();
            assert_eq!((stats.running, stats.excess, stats.parked), (1, 1, 1));
            let threads = port.thread_stats();
            let excess = |status| threads.iter().filter(|it| it.status == status).count();
            assert_eq!((excess(ThreadStatus::Excess), excess(ThreadStatus::Running)), (1, 1));

            port.post(2).unwrap();
            stays(system, 1, "twice the concurrency value is the most", || {
                port.stats().queued == 1
            });
            gate.open();
            assert_eq!(takers.hear("a thread returns").0, 2);
            settle(system, &port, 3);
            assert_eq!((port.stats().running, port.stats().excess), (0, 0));
        });
    }

    /// Rule 82: a thread that does not count any more posts, announces a block and exits like any
    /// other, and its place is not counted twice.
    fn a_thread_that_does_not_count_may_block_and_exit(system: &System) {
        system.several_threads_wait();
        let port = port(system);
        let (gate, takers) = (Gate::default(), Takers::of(system, &port));
        thread::scope(|scope| {
            let _end = End::of(&port, [&gate]);
            let port = &port;
            let gate = &gate;
            scope.spawn(move || {
                assert_eq!(crate::kit::threads::take(port), Some(0));
                gate.pass();
                port.post_after(2).unwrap();
                port.blocking(|| assert_eq!(port.stats().blocked, 0));
            });
            settle(system, port, 1);
            port.post(0).unwrap();
            eventually(system, "it is taken", || port.stats().running == 1);
            takers.start(scope, 1, |_| {});
            port.post(1).unwrap();
            assert_eq!(takers.hear("the other takes what waits").0, 1);
            assert_eq!(port.stats().excess, 1);
            gate.open();
            assert_eq!(takers.hear("the message goes to another thread").0, 2);
            eventually(system, "its end frees nothing twice", || port.stats().excess == 0);
            settle(system, port, 1);
            assert_eq!(port.stats().running, 0);
            port.post(3).unwrap();
            assert_eq!(takers.hear("the port goes on").0, 3);
        });
    }
}
