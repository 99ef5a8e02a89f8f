//! Fixed defects, one test each, with a line on the cause.

#![cfg(any(unix, windows))]

use std::cell::Cell;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use completion_port::{
    Batch, BorrowedSource, Error, ErrorKind, Events, Interest, OneShot, Operation, Outcome, Packet,
    Persistent, Port, Registration, Removal, SharedFile, SharedSource, Source, sim,
};
use testkit::{LIMIT, SOON, Stream, System, connected, effort, on_every_system};

#[cfg(target_os = "linux")]
mod linux;

/// Closes the port at the end of the test, even if it fails.
struct End<'a, K, M>(&'a Port<K, M>);

impl<K, M> Drop for End<'_, K, M> {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Waits until `condition` holds. Advances a simulated clock in steps of a millisecond, no faster
/// than the real one.
#[track_caller]
fn eventually(on: &System, what: &str, mut condition: impl FnMut() -> bool) {
    const STEP: Duration = Duration::from_millis(1);
    let (begun, mut passed) = (Instant::now(), Duration::ZERO);
    while !condition() {
        assert!(begun.elapsed() < on.soon(), "it did not happen that {what}");
        if let Some(kernel) = on.kernel()
            && passed <= begun.elapsed()
        {
            kernel.advance(STEP);
            passed += STEP;
        }
        thread::yield_now();
    }
}

/// Sets whether `thread` sleeps on a simulated kernel. A real kernel knows.
fn script(on: &System, thread: ThreadId, asleep: bool) {
    if let Some(kernel) = on.kernel() {
        kernel.set_thread_asleep(thread, asleep);
    }
}

/// Takes messages and sends their numbers to `say` until the port is closed.
fn take_all(port: &Port<(), usize>, say: &mpsc::Sender<usize>) {
    let mut batch = Batch::with_capacity(1);
    while let Ok(packets) = port.wait(&mut batch, None) {
        for packet in packets {
            let Packet::Posted(message) = packet else { panic!("{packet:?}") };
            say.send(message).unwrap();
        }
    }
}

#[track_caller]
fn assert_taken(on: &System, heard: &mpsc::Receiver<usize>, message: usize) {
    let mut taken = None;
    eventually(on, "the message is taken", || {
        taken = heard.try_recv().ok();
        taken.is_some()
    });
    assert_eq!(taken, Some(message));
}

on_every_system! {
    /// If no thread was idle when the last seat was taken, a thread that arrived later didn't watch
    /// the port. So no thread ever noticed the block.
    fn who_comes_when_every_seat_is_taken_looks_after_the_port(system: &System) {
        system.several_threads_wait();
        system.not_on_windows("call that reports a sleeping thread");
        let port = system.port::<(), usize>(1);
        let (say, heard) = mpsc::channel();
        let (run_deferred, blocked) = mpsc::channel::<()>();
        let (port, begun) = (&port, say.clone());
        port.post(0).unwrap();
        thread::scope(|scope| {
            let _end = End(port);
            let run_deferred = run_deferred;
            scope.spawn(move || {
                let mut batch = Batch::with_capacity(1);
                assert_eq!(port.wait(&mut batch, None).unwrap().count(), 1);
                script(system, thread::current().id(), true);
                begun.send(0).unwrap();
                // Unannounced.
                let _ = blocked.recv();
                script(system, thread::current().id(), false);
            });
            assert_taken(system, &heard, 0);
            port.post(1).unwrap();
            scope.spawn(move || take_all(port, &say));
            assert_taken(system, &heard, 1);
            drop(run_deferred);
        });
    }

    /// A thread was stuck with the first packet of its batch. If the other threads came to the port
    /// only after that batch was assigned, the rest of it was never taken back.
    fn who_comes_after_a_batch_was_handed_out_takes_back_what_is_stuck_in_it(system: &System) {
        system.several_threads_wait();
        let port = system.port::<(), usize>(2);
        let (say, heard) = mpsc::channel();
        let over = AtomicBool::new(false);
        let (port, over) = (&port, &over);
        let begun = say.clone();
        (0..5).for_each(|message| port.post(message).unwrap());
        thread::scope(|scope| {
            let _end = End(port);
            scope.spawn(move || {
                let mut batch = Batch::new();
                let mut packets = port.wait(&mut batch, None).unwrap();
                assert!(matches!(packets.next(), Some(Packet::Posted(0))));
                begun.send(0).unwrap();
                let since = Instant::now();
                while !over.load(SeqCst) && since.elapsed() < LIMIT {
                    thread::yield_now();
                }
                assert!(packets.next().is_none(), "it was taken back");
            });
            assert_taken(system, &heard, 0);
            scope.spawn(move || take_all(port, &say));
            for message in 1..5 {
                assert_taken(system, &heard, message);
            }
            over.store(true, SeqCst);
        });
        assert_eq!(port.stats().queued, 0);
    }

    /// If a slot was armed and queued for a check between the look of a waiting remover at the
    /// queues and its sleep, the remover slept forever.
    fn a_remover_that_waits_gets_the_key_while_it_is_armed_again_and_again(system: &System) {
        system.several_threads_wait();
        let (ours, theirs) = system.unix_pair();
        theirs.write(b"x").unwrap();
        let one_shot = |key| Registration::new(&ours, key, Interest::IN, OneShot::Level);
        let repeated = |key| Registration::new(&ours, key, Interest::IN, Persistent::Level);
        for persistent in [false, true] {
            let make = |key| if persistent { repeated(key) } else { one_shot(key) };
            let port = system.port::<u32, ()>(2);
            let packets = AtomicUsize::new(0);
            thread::scope(|scope| {
                let _end = End(&port);
                scope.spawn(|| {
                    let mut batch = Batch::new();
                    // The byte is never read, so the registration is armed, queued for a check,
                    // found ready and taken, again and again.
                    while let Ok(ready) = port.wait(&mut batch, None) {
                        for packet in ready {
                            packets.fetch_add(1, SeqCst);
                            match packet {
                                Packet::Ready(token) => {
                                    token.rearm().or_else(if_closed).unwrap();
                                }
                                Packet::Notified(_) => {}
                                other => panic!("{other:?}"),
                            }
                        }
                    }
                });
                // The fault occurred within some hundred removals.
                let keys = 200 * u32::try_from(effort()).unwrap();
                for key in 0..keys {
                    let id = port.register(make(key)).unwrap();
                    // Vary the moment, so that some removals meet the other thread halfway.
                    let wanted = packets.load(SeqCst) + usize::try_from(key % 4).unwrap();
                    while packets.load(SeqCst) < wanted {
                        thread::yield_now();
                    }
                    let removed = port.remove_and_wait(id, system.soon());
                    assert_eq!(removed.unwrap_or_else(|error| panic!("{error}: {port:#?}")), key);
                }
                assert_eq!(port.stats().registered, 0);
            });
        }
    }
}

fn if_closed(refused: completion_port::Refused<u32>) -> Result<(), Error> {
    if refused.kind() == ErrorKind::Closed { Ok(()) } else { Err(refused.error()) }
}

on_every_system! {
    /// `remove_and_wait` looks for its packet in the batches of other threads. It then gave the
    /// other packets to no thread, and woke none.
    fn what_a_remover_takes_back_from_a_batch_is_handed_out(system: &System) {
        system.several_threads_wait();
        let port = &system.port::<&str, u32>(4);
        let (ours, _theirs) = system.unix_pair();
        let id = port
            .register(Registration::new(&ours, "held", Interest::OUT, OneShot::Level))
            .unwrap();
        let mut batch = Batch::new();
        let token = port.wait(&mut batch, system.soon()).unwrap().next().unwrap();
        let (say_taken, taken) = mpsc::channel();
        let (say_gone, gone) = mpsc::channel::<()>();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let first = scope.spawn(move || {
                let mut batch = Batch::new();
                let packets = port.wait(&mut batch, None).unwrap();
                say_taken.send(()).unwrap();
                // Drop the batch unread, after its packet was taken back.
                gone.recv().unwrap();
                drop(packets);
            });
            port.post(7).unwrap();
            taken.recv_timeout(system.soon()).unwrap();
            scope.spawn(move || {
                let mut batch = Batch::new();
                let posted = port.wait(&mut batch, None).unwrap().next();
                say.send(matches!(posted, Some(Packet::Posted(7)))).unwrap();
            });
            let end = Instant::now() + system.soon();
            while port.stats().parked == 0 {
                assert!(Instant::now() < end, "the second thread does not wait");
                thread::yield_now();
            }
            let outcome = port.remove_and_wait(id, Duration::ZERO);
            assert_eq!(outcome.unwrap_err().kind(), ErrorKind::TimedOut);
            say_gone.send(()).unwrap();
            first.join().unwrap();
            assert_eq!(heard.recv_timeout(system.soon()), Ok(true));
        });
        drop(token);
    }
}

/// A key whose `as_source` panics.
struct Moody(Stream, Cell<bool>);

impl Source for Moody {
    fn as_source(&self) -> BorrowedSource<'_> {
        assert!(!self.1.get(), "as the test wants it");
        self.0.as_source()
    }
}

/// The key was moved out of the token before it was asked for its descriptor. If that panicked, the
/// registration had no owner, and a shutdown never ended.
#[test]
fn a_panic_in_as_source_while_a_key_is_armed_ends_its_registration() {
    let port = testkit::port_builder().build::<Moody, ()>().unwrap();
    let (ours, _theirs) = connected();
    let key = Moody(ours, Cell::new(false));
    port.register(Registration::owned(key, Interest::OUT, OneShot::Level)).unwrap();
    let mut batch = Batch::new();
    let Some(Packet::Ready(ready)) = port.wait(&mut batch, None).unwrap().next() else {
        panic!("a socket can be written to at once");
    };
    ready.key().1.set(true);
    assert!(catch_unwind(AssertUnwindSafe(|| ready.rearm())).is_err());
    assert_eq!(port.stats().registered, 0);
    port.shutdown().unwrap();
    assert_eq!(port.wait(&mut batch, None).unwrap_err().kind(), ErrorKind::Closed);
}

/// A check for the end of a stream forgot an edge in the direction that was not being checked.
#[test]
fn an_edge_in_the_other_direction_survives_a_check() {
    let port = testkit::port_builder().build::<Stream, ()>().unwrap();
    let (ours, mut theirs) = connected();
    port.register(Registration::owned(ours, Interest::IN, OneShot::Edge)).unwrap();
    theirs.write_all(b"request").unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    let mut batch = Batch::new();
    let Some(Packet::Ready(mut ready)) = port.wait(&mut batch, None).unwrap().next() else {
        panic!("a request has come");
    };
    assert_eq!(ready.key_mut().read(&mut [0; 64]).unwrap(), 7);
    ready.rearm_as(Interest::OUT, OneShot::Edge).unwrap();
    let answer = port.wait(&mut batch, SOON).unwrap().next();
    assert!(matches!(answer, Some(Packet::Ready(ready)) if ready.events() == Events::OUT));
}

/// When a port was dropped, it checked whether another thread still held its engine, and then
/// released its own reference. A thread that gave up its seat in between became the last owner, and
/// closed the port's descriptors some time later. That happened once in about two thousand times,
/// the number of repetitions with `TEST_EFFORT=7`.
#[test]
fn a_port_is_gone_when_it_was_dropped_while_threads_exit() {
    const TIMES: usize = 300;
    const THREADS: usize = 8;
    let kernel = sim::Kernel::new();
    for _ in 0..TIMES * effort() {
        let port = Port::builder().build_simulated::<(), ()>(&kernel).unwrap();
        thread::scope(|scope| {
            // The end of the scope doesn't wait until the threads have given up their seats.
            for _ in 0..THREADS {
                scope.spawn(|| port.wait(&mut Batch::new(), Duration::ZERO).map(Iterator::count));
            }
        });
        drop(port);
        assert_eq!(kernel.ports(), 0);
    }
}

/// No check rejected an id that was not of a shared association of this port. An id of another port
/// may have the number of a registration here whose key belongs to a token.
#[test]
fn a_name_of_another_port_starts_nothing() {
    let (here, there) = (sim::Kernel::new(), sim::Kernel::new());
    let port = |kernel| -> Port<SharedSource<sim::Socket>> {
        Port::builder().build_simulated(kernel).unwrap()
    };
    let (first, second) = (port(&here), port(&there));
    let shared = first.associate_shared(SharedSource::new(here.udp_bound().unwrap())).unwrap();
    let token = second.associate(SharedSource::new(there.udp_bound().unwrap())).unwrap();
    assert_eq!(shared.id(), token.id(), "otherwise this tests nothing");
    let receive = Operation::recv(b"kept".to_vec());
    let (error, receive) = second.start(shared, receive).unwrap_err().into_parts();
    // The number names a registration here, which is not shared.
    assert_eq!(error.kind(), ErrorKind::NotShared);
    assert_eq!(receive.into_buffer().unwrap(), b"kept");
    assert_eq!(second.unshare(shared).unwrap_err().kind(), ErrorKind::NotShared);
    assert_eq!(second.stats().queued, 0);
}

/// The first operations of two ports had the same id, so either port could cancel both.
#[test]
fn the_name_of_another_ports_operation_cancels_nothing() {
    let ports = [(); 2].map(|()| testkit::port_builder().build::<Stream, ()>().unwrap());
    let ends = [(); 2].map(|()| connected());
    let (ours, _theirs): (Vec<_>, Vec<_>) = ends.into_iter().unzip();
    let started: Vec<_> = ports
        .iter()
        .zip(ours)
        .map(|(port, ours)| port.associate(ours).unwrap().recv(Vec::with_capacity(4)).unwrap())
        .collect();
    assert_ne!(started[0], started[1]);
    assert!(!ports[1].cancel(started[0]).unwrap());
    assert!(ports[1].cancel(started[1]).unwrap(), "it is still in flight");
}

/// A send that a token had begun, and that could not continue because of a removal, was reported as
/// done.
#[test]
fn a_send_that_a_removal_cuts_off_is_not_told_of_as_done() {
    let port = testkit::port_builder().build::<Stream, ()>().unwrap();
    let (ours, _theirs) = connected();
    let token = port.associate(ours).unwrap();
    port.remove(token.id()).unwrap();
    token.start(Operation::send_all(vec![7; 1 << 24])).unwrap();
    let mut batch = Batch::new();
    let Some(Packet::Completed(done)) = port.wait(&mut batch, None).unwrap().next() else {
        panic!("the operation has its packet");
    };
    let error = done.error().expect("not all was sent");
    assert_eq!(error.kind(), ErrorKind::Cancelled);
    assert!(error.transferred() > 0 && error.transferred() < 1 << 24, "{error:?}");
}

/// Data and the end of the stream came with one edge. A short read counted as a hint, and the next
/// receive waited for an edge that the end no longer brings.
#[test]
fn a_receive_behind_a_hint_is_told_of_the_end() {
    let port = testkit::port_builder().build::<Stream, ()>().unwrap();
    let (ours, mut theirs) = connected();
    theirs.write_all(b"request").unwrap();
    theirs.shutdown(Shutdown::Write).unwrap();
    port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
    let mut batch = Batch::new();
    let Some(Packet::Ready(mut ready)) = port.wait(&mut batch, None).unwrap().next() else {
        panic!("a request has come");
    };
    assert_eq!(ready.key_mut().read(&mut [0; 64]).unwrap(), 7);
    ready.read_drained();
    ready.recv(Vec::with_capacity(16)).unwrap();
    let packet = port.wait(&mut batch, SOON).unwrap().next();
    let Some(Packet::Completed(done)) = packet else { panic!("the end has come, too") };
    assert!(matches!(done.into_parts().1, Outcome::Received(Ok(0), _)));
}

/// Cells were reserved only at a slot's first use, and only those of that use.
#[test]
fn a_slot_is_a_registration_and_an_operation_with_a_message_by_turns() {
    for is_message_first in [false, true] {
        let kernel = sim::Kernel::new();
        let port: Port<usize, usize> = Port::builder().build_simulated(&kernel).unwrap();
        let file = SharedFile::new(kernel.file(b"four").unwrap());
        let (near, _far) = kernel.unix_pair().unwrap();
        let mut batch = Batch::new();
        for turn in 0..4 {
            if (turn % 2 == 0) == is_message_first {
                let read = file.read_at(Vec::with_capacity(4), 0);
                port.start_then_post(read, move |_| turn).unwrap();
                let packet = port.wait(&mut batch, Duration::ZERO).unwrap().next();
                assert!(matches!(packet, Some(Packet::Posted(it)) if it == turn), "{packet:?}");
            } else {
                let registration = Registration::new(&near, turn, Interest::IN, OneShot::Level);
                let id = port.register(registration).unwrap();
                assert_eq!(port.remove_now(id).unwrap(), Removal::Key(turn));
            }
        }
    }
}
