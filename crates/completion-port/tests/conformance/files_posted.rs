//! Rule 77: operations whose outcomes arrive as messages.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::mpsc;
use std::thread;

use completion_port::{
    Batch, Call, ErrorKind, Interest, OneShot, Operation, Outcome, Packet, Port, Registration,
    SharedFile, sim,
};
#[cfg(target_os = "linux")]
use testkit::in_forked_child;
use testkit::{Socket, System, on_every_file_system};

use crate::kit::files::{page, read, synced, written};
use crate::kit::ledger::{Entry, Ledger, Owner};
use crate::kit::operations::{MILLISECOND, Noted, Shared, next, room, silent, sort};
use crate::kit::packets::{assert_closed, given_back, refused};
use crate::kit::threads::{End, eventually, hear, now};

/// The number of an operation, and its outcome.
type Told<B = Vec<u8>> = (u32, Outcome<B>);

fn port_on(on: &System) -> Port<Socket, Told> {
    on.port(1)
}

/// Makes the message of an operation.
fn as_number<B>(number: u32) -> impl FnOnce(Outcome<B>) -> Told<B> + Send + 'static {
    move |outcome| (number, outcome)
}

/// Returns the message of the next packet, which must be the only one.
#[track_caller]
fn told<B: completion_port::Buffer>(port: &Port<Socket, Told<B>, B>, on: &System) -> Told<B> {
    match next(port, on) {
        Packet::Posted(message) => message,
        other => panic!("{}", sort(&other)),
    }
}

/// Returns whether an operation that the kernel holds can be cancelled immediately.
fn lets_go_at_once(on: &System) -> bool {
    on.kernel().is_none() && (cfg!(windows) || !on.has_file_threads())
}

#[track_caller]
fn assert_called_off(system: &System, outcome: Outcome, kind: ErrorKind) {
    if system.kernel().is_none() && !lets_go_at_once(system) {
        assert_eq!(read(outcome), Ok(b"x".to_vec()));
    } else {
        assert_eq!(read(outcome).unwrap_err().kind(), kind);
    }
}

on_every_file_system! {
    /// Rule 77: each operation has one message, whether it is done at its start or later.
    fn an_outcome_arrives_as_a_message(system: &System) {
        let port = port_on(system);
        let all = page(2 * 4096);
        let socket = Shared::new(system.file(&all));
        let file = SharedFile::new(socket.clone());
        port.start_then_post(file.read_at(room(10), 5), as_number(1)).unwrap();
        let (number, outcome) = told(&port, system);
        assert_eq!((number, read(outcome)), (1, Ok(all[5..15].to_vec())));
        system.set_cached(&socket, 0);
        port.start_then_post(file.read_at(room(10), 4096), as_number(2)).unwrap();
        let (number, outcome) = told(&port, system);
        assert_eq!((number, read(outcome)), (2, Ok(all[4096..4106].to_vec())));
        port.start_then_post(file.write_at(b"written".to_vec(), 1), as_number(3)).unwrap();
        let (number, outcome) = told(&port, system);
        assert_eq!((number, written(&outcome)), (3, Ok(7)));
        port.start_then_post(file.sync_data(), as_number(4)).unwrap();
        let (number, outcome) = told(&port, system);
        assert_eq!((number, synced(&outcome)), (4, Ok(())));
        assert_eq!(&system.contents(&socket)[1..8], b"written");
        silent(&port, system);
        assert_eq!(port.stats().registered, 0);
    }

    /// Rule 77: the port uses the memory of an operation again for a registration, and the other way
    /// round.
    fn registrations_and_operations_follow_each_other(system: &System) {
        for file_first in [true, false] {
            let port = port_on(system);
            let file = SharedFile::new(Shared::new(system.file(b"bytes")));
            for round in 0..4 {
                if file_first == (round % 2 == 0) {
                    port.start_then_post(file.read_at(room(5), 0), as_number(round)).unwrap();
                    let (number, outcome) = told(&port, system);
                    assert_eq!((number, read(outcome)), (round, Ok(b"bytes".to_vec())));
                } else {
                    let (ours, theirs) = system.unix_pair();
                    let registration = Registration::owned(ours, Interest::IN, OneShot::Level);
                    port.register(registration).unwrap();
                    theirs.write(b"x").unwrap();
                    let Packet::Ready(token) = next(&port, system) else { panic!("no report") };
                    assert_eq!(token.into_key().drain(), 1);
                }
            }
            assert_eq!(port.stats().registered, 0);
        }
    }

    /// Rules 71 and 77: any number of them, which do not wait for each other or for messages.
    fn many_outcomes_arrive_once_each(system: &System) {
        const COUNT: u32 = 300;
        let port = port_on(system);
        let socket = Shared::new(system.file(&page(16 * 4096)));
        let file = SharedFile::new(socket.clone());
        let mut sum = 0;
        let mut batch = Batch::new();
        for number in 1..=COUNT {
            if number % 50 == 0 {
                system.set_cached(&socket, 0);
            }
            let offset = 4096 * u64::from(number % 16);
            port.start_then_post(file.read_at(room(64), offset), as_number(number)).unwrap();
            if number % 7 == 0 {
                for packet in port.wait(&mut batch, std::time::Duration::ZERO).unwrap() {
                    let Packet::Posted((number, _)) = packet else { panic!("{}", sort(&packet)) };
                    sum += number;
                }
            }
        }
        while sum < COUNT * (COUNT + 1) / 2 {
            let before = sum;
            for packet in port.wait(&mut batch, system.soon()).unwrap() {
                let Packet::Posted((number, outcome)) = packet else { panic!("no message") };
                assert_eq!(read(outcome).unwrap().len(), 64);
                sum += number;
            }
            assert!(sum > before, "only a sum of {sum} came");
        }
        silent(&port, system);
        assert_eq!(port.stats().registered, 0);
    }

    /// Rules 72 and 77.
    fn an_operation_with_a_message_is_cancelled(system: &System) {
        let port = port_on(system);
        let (socket, hanging) = system.hanging();
        let file = SharedFile::new(socket);
        let id = port.start_then_post(file.read_at(room(1), 0), as_number(1)).unwrap();
        assert_eq!(port.stats().registered, 1);
        hanging.await_begun(1);
        assert!(port.cancel(id).unwrap());
        if !lets_go_at_once(system) {
            silent(&port, system);
            hanging.release();
        }
        let (number, outcome) = told(&port, system);
        assert_eq!(number, 1);
        assert_called_off(system, outcome, ErrorKind::Cancelled);
        assert!(!port.cancel(id).unwrap());
        assert_eq!(port.stats().registered, 0);
    }

    /// Rules 60, 72 and 77.
    fn an_operation_with_a_message_has_a_deadline(system: &System) {
        let limit = 50 * MILLISECOND;
        let port = port_on(system);
        let (socket, hanging) = system.hanging();
        let begun = now(system);
        let operation = SharedFile::new(socket).read_at(room(1), 0).deadline(limit);
        port.start_then_post(operation, as_number(1)).unwrap();
        hanging.await_begun(1);
        if !lets_go_at_once(system) {
            while now(system) < begun + 2 * limit {
                silent(&port, system);
            }
            hanging.release();
        }
        let (_, outcome) = told(&port, system);
        assert!(now(system) >= begun + limit);
        assert_called_off(system, outcome, ErrorKind::TimedOut);
    }

    /// Rules 62, 73 and 77: the end of the port cancels it, and hands its message out.
    fn a_port_that_ends_hands_out_the_messages_of_operations(system: &System) {
        system.several_threads_wait();
        for shuts_down in [false, true] {
            let port = port_on(system);
            let (socket, hanging) = system.hanging();
            let file = SharedFile::new(socket);
            port.start_then_post(file.read_at(room(1), 0), as_number(1)).unwrap();
            hanging.await_begun(1);
            // This one has ended.
            let other = SharedFile::new(system.file(b""));
            port.start_then_post(other.write_at(Vec::new(), 0), as_number(2)).unwrap();
            let (say, heard) = mpsc::channel();
            thread::scope(|scope| {
                let _end = End::of(&port, []);
                if shuts_down {
                    port.shutdown().unwrap();
                } else {
                    port.close();
                }
                scope.spawn(|| {
                    let say = say;
                    let mut batch = Batch::new();
                    while let Ok(packets) = port.wait(&mut batch, None) {
                        for packet in packets {
                            let Packet::Posted(told) = packet else { panic!("no message") };
                            say.send(Some(told)).unwrap();
                        }
                    }
                    say.send(None).unwrap();
                });
                if !lets_go_at_once(system) {
                    let first = hear(system, &heard, "the message comes").unwrap();
                    assert_eq!((first.0, written(&first.1)), (2, Ok(0)));
                    assert!(heard.recv_timeout(system.quiet()).is_err(), "it waits");
                    hanging.release();
                } else {
                    let first = hear(system, &heard, "the message comes").unwrap();
                    assert_eq!((first.0, written(&first.1)), (2, Ok(0)));
                }
                let (number, outcome) = hear(system, &heard, "the message comes").unwrap();
                assert_eq!(number, 1);
                assert_called_off(system, outcome, ErrorKind::Cancelled);
                assert!(hear(system, &heard, "the port has ended").is_none());
            });
            assert_closed(&port, system);
            assert_eq!(port.stats().registered, 0);
        }
    }

    /// Rules 51 and 77: a refusal returns the operation, and drops what would make the message.
    fn what_is_not_started_makes_no_message(system: &System) {
        let ledger = Ledger::default();
        let port = port_on(system);
        let entry = ledger.entry();
        let started = port.start_then_post(Operation::recv(room(3)), with(entry));
        let (kind, operation) = given_back(started);
        assert_eq!((kind, ledger.alive()), (ErrorKind::NotOwned, 0));
        assert!(operation.into_buffer().is_some_and(|buffer| buffer.capacity() >= 3));
        let started = port.start_then_post(Operation::read_at(room(3), 0), with(ledger.entry()));
        assert_eq!(started.map(drop).unwrap_err().error().call(), Call::Read);
        port.close();
        let file = SharedFile::new(Owner { socket: system.file(b""), _entry: ledger.entry() });
        let write = file.write_at(b"kept".to_vec(), 0);
        let (kind, operation) = given_back(port.start_then_post(write, with(ledger.entry())));
        assert_eq!((kind, ledger.alive()), (ErrorKind::Closed, 1));
        assert_eq!(operation.into_buffer(), Some(b"kept".to_vec()));
        assert_eq!(port.stats().registered, 0);
    }

    /// Rules 63, 73 and 77: whatever is in flight is dropped once, with the port.
    fn a_dropped_port_drops_what_would_make_messages(system: &System) {
        let ledger = Ledger::default();
        let port: Port<Socket, Told<Noted>, Noted> = system.port_with_buffers(1);
        let buffer = |bytes| Noted::new(bytes, &ledger);
        let owner = |socket| Owner { socket, _entry: ledger.entry() };
        let message = || {
            let entry = ledger.entry();
            move |outcome| {
                drop(entry);
                (1, outcome)
            }
        };
        // One has completed later, one at its start, and one hangs.
        let write = SharedFile::new(owner(system.file(b"")));
        port.start_then_post(write.write_at(buffer(vec![1; 9]), 0), message()).unwrap();
        let cached = SharedFile::new(owner(system.file(b"bytes")));
        port.start_then_post(cached.read_at(buffer(room(5)), 0), message()).unwrap();
        eventually(system, "both have ended", || port.stats().queued == 2);
        let (socket, hanging) = system.hanging();
        let hangs = SharedFile::new(owner(socket));
        port.start_then_post(hangs.read_at(buffer(room(1)), 0), message()).unwrap();
        hanging.await_begun(1);
        drop((write, cached, hangs));
        assert_eq!(ledger.alive(), 9);
        drop(port);
        if !lets_go_at_once(system) {
            assert_eq!(ledger.alive(), 1, "the buffer alone is the system's");
            hanging.release();
        }
        eventually(system, "all is dropped", || ledger.alive() == 0);
    }

    /// Rules 63 and 77: a panic costs the message, and nothing else.
    fn a_panic_costs_a_message_and_nothing_else(system: &System) {
        let ledger = Ledger::default();
        let port: Port<Socket, Told<Noted>, Noted> = system.port_with_buffers(1);
        let file = SharedFile::new(system.file(b"bytes"));
        let panics = |_| resume_unwind(Box::new("on purpose"));
        port.start_then_post(file.read_at(Noted::new(room(5), &ledger), 0), panics).unwrap();
        let mut batch = Batch::new();
        let wait = || port.wait(&mut batch, system.soon()).unwrap().next().map(drop);
        assert!(catch_unwind(AssertUnwindSafe(wait)).is_err());
        assert_eq!((ledger.alive(), port.stats().registered), (0, 0));
        silent(&port, system);
        port.start_then_post(file.read_at(Noted::new(room(5), &ledger), 0), as_number(2)).unwrap();
        assert_eq!(told(&port, system).0, 2);
    }

    /// Rule 77: threads start operations while the port is being closed or shut down.
    fn starting_with_a_message_and_ending_at_once_loses_nothing(system: &System) {
        system.several_threads_wait();
        for round in 0..20 {
            let port = port_on(system);
            let file = SharedFile::new(system.file(&page(4096)));
            let (started, taken) = thread::scope(|scope| {
                let _end = End::of(&port, []);
                let starter = scope.spawn(|| {
                    let start = |number: u32| {
                        let operation = match number % 2 {
                            0 => file.write_at(b"x".to_vec(), 0),
                            _ => file.read_at(room(4), 0),
                        };
                        match port.start_then_post(operation, as_number(number)) {
                            Ok(_) => true,
                            Err(refused) => {
                                assert_eq!(refused.kind(), ErrorKind::Closed);
                                assert!(refused.into_parts().1.into_buffer().is_some());
                                false
                            }
                        }
                    };
                    (0..300).take_while(|number| start(*number)).count()
                });
                let taker = scope.spawn(|| {
                    let (mut count, mut batch) = (0, Batch::new());
                    while let Ok(packets) = port.wait(&mut batch, None) {
                        count += packets.count();
                    }
                    count
                });
                thread::yield_now();
                if round % 2 == 0 {
                    port.close();
                } else {
                    port.shutdown().unwrap();
                }
                (starter.join().unwrap(), taker.join().unwrap())
            });
            assert_eq!(taken, started);
        }
    }
}

/// Makes a message, and drops its entry.
fn with(entry: Entry) -> impl FnOnce(Outcome) -> Told + Send + 'static {
    move |outcome| {
        drop(entry);
        (0, outcome)
    }
}

/// Rules 31 and 77: an abandoned port makes no messages, and drops what is there.
#[test]
fn an_abandoned_port_makes_no_messages() {
    let system = System::simulated();
    let kernel = system.kernel().unwrap();
    kernel.script_files(sim::FileScript::Begun);
    let ledger = Ledger::default();
    let port = port_on(&system);
    let file = SharedFile::new(system.file(b""));
    port.start_then_post(file.sync_all(), with(ledger.entry())).unwrap();
    port.raw().abandon();
    assert_eq!(refused(port.wait(&mut Batch::new(), system.soon())), ErrorKind::Closed);
    assert_eq!(kernel.release_files(), 1);
    assert_eq!(ledger.alive(), 1);
    drop(port);
    assert_eq!(ledger.alive(), 0);
}

/// Rules 32, 64 and 77: a child is refused, and leaves its parent's operation alone.
#[cfg(target_os = "linux")]
#[test]
fn a_child_starts_nothing_with_a_message() {
    for system in crate::kit::files::native() {
        let port = port_on(&system);
        let (hung, hanging) = system.hanging();
        let file = SharedFile::new(hung);
        port.start_then_post(file.read_at(room(1), 0), as_number(1)).unwrap();
        hanging.await_begun(1);
        let child = file.clone();
        let status = in_forked_child(|| {
            let refused = port.start_then_post(child.read_at(room(3), 0), as_number(2));
            u8::from(given_back(refused).0 != ErrorKind::Forked)
        });
        assert_eq!(status, 0);
        let status = in_forked_child(|| {
            drop((port, file));
            0
        });
        assert_eq!(status, 0);
        hanging.release();
    }
}
