//! Rule 77: operations on files that have no association.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::thread;

use completion_port::{
    Call, ErrorKind, Events, Interest, OneShot, Operation, Packet, Persistent, Port, Registration,
    SharedFile, Started, sim,
};
#[cfg(target_os = "linux")]
use testkit::in_forked_child;
use testkit::{Socket, System, lacking, on_every_file_system};

use crate::kit::files::{page, read, synced, written};
use crate::kit::ledger::{Ledger, Owner};
use crate::kit::operations::{
    HOUR, MILLISECOND, Noted, Shared, all, bytes, done, finished, next, outcome, room, shared_on,
    silent, sockets_on, sort,
};
use crate::kit::packets::{assert_closed, each_packet, given_back, ready, refused};
use crate::kit::threads::{End, eventually, hear, now};

/// A token of a socket, and the other end.
fn token_of<'p>(
    port: &'p Port<Socket, u32>,
    on: &System,
) -> (completion_port::Ready<'p, Socket>, Socket) {
    let (near, far) = on.unix_pair();
    (port.associate(near).unwrap(), far)
}

/// Returns whether an operation that the kernel holds can be cancelled immediately.
fn lets_go_at_once(on: &System) -> bool {
    on.kernel().is_none() && (cfg!(windows) || !on.has_file_threads())
}

/// Checks the outcome of an operation that had begun, was cancelled, and was then released. Threads
/// complete it.
#[track_caller]
fn assert_called_off(
    system: &System,
    outcome: Result<Vec<u8>, completion_port::Error>,
    kind: ErrorKind,
) {
    if system.kernel().is_none() && !lets_go_at_once(system) {
        assert_eq!(outcome, Ok(b"x".to_vec()));
    } else {
        let error = outcome.unwrap_err();
        assert_eq!((error.call(), error.kind(), error.transferred()), (Call::Read, kind, 0));
    }
}

on_every_file_system! {
    /// Rule 77: the packet returns the token of a socket, which continues.
    fn a_sockets_token_reads_a_file_and_goes_on(system: &System) {
        let port = sockets_on(system);
        let (token, far) = token_of(&port, system);
        let name = token.id();
        let socket = system.file(b"some bytes");
        let file = SharedFile::new(socket);
        token.start(file.read_at(room(4), 5)).unwrap();
        // What arrives meanwhile is not lost.
        far.write(b"question").unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(token.id(), name);
        assert_eq!(read(outcome), Ok(b"byte".to_vec()));
        token.recv(room(8)).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(bytes(outcome), b"question");
        token.start(file.read_at(room(100), 5)).unwrap();
        let (token, outcome) = done(&port, system);
        let read = read(outcome).unwrap();
        token.send_all(read).unwrap();
        let (token, _) = done(&port, system);
        assert_eq!(far.read_within(system.soon(), 5), b"bytes");
        token.start(file.read_at(room(1), 0)).unwrap();
        far.write(b"more").unwrap();
        let (token, _) = done(&port, system);
        token.rearm_as(Interest::IN, OneShot::Level).unwrap();
        assert_eq!(ready(&port, system).events(), Events::IN);
    }

    /// Rule 77: it writes and syncs too, and what is not in memory has to wait.
    fn a_file_without_an_association_has_all_operations(system: &System) {
        let port = sockets_on(system);
        let (token, _far) = token_of(&port, system);
        let all = page(3 * 4096);
        let socket = Shared::new(system.file(&all));
        let file = SharedFile::new(socket.clone());
        token.start(file.write_at(b"written".to_vec(), 4096)).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(written(&outcome), Ok(7));
        for sync in [file.sync_data(), file.sync_all()] {
            // Tokens are used one after the other here, and another one does it as well.
            let (token, _far) = token_of(&port, system);
            token.start(sync).unwrap();
            let (_, outcome) = done(&port, system);
            assert_eq!(synced(&outcome), Ok(()));
        }
        system.set_cached(&socket, 0);
        token.start(file.read_at(room(2 * 4096), 4096 + 7)).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(read(outcome).unwrap()[..4096], all[4096 + 7..2 * 4096 + 7]);
        token.start(file.write_at(Vec::new(), 0)).unwrap();
        assert_eq!(written(&done(&port, system).1), Ok(0));
        assert_eq!(&system.contents(&socket)[4096..4103], b"written");
    }

    /// Rule 77: what is in memory needs no packet if the program declines that.
    fn what_is_in_memory_is_read_without_a_packet(system: &System) {
        let port = sockets_on(system);
        let (token, _far) = token_of(&port, system);
        let socket = Shared::new(system.file(b"bytes"));
        if system.kernel().is_none() && system.cached_from(&socket, 0, 5) < 5 {
            lacking("file system here that reports what it has cached");
        }
        let file = SharedFile::new(socket.clone());
        let started = token.start_now(file.read_at(room(5), 0)).unwrap();
        let Started::Completed((token, now)) = started else { panic!("it is in memory") };
        assert_eq!(read(now), Ok(b"bytes".to_vec()));
        silent(&port, system);
        system.set_cached(&socket, 0);
        match token.start_now(file.read_at(room(5), 0)).unwrap() {
            Started::InFlight(_) => drop(done(&port, system)),
            // The system kept it.
            Started::Completed(_) => assert!(system.kernel().is_none()),
        }
    }

    /// Rule 77: the key need not own its descriptor, which the operation does not use.
    fn a_token_of_a_borrowed_descriptor_reads_files(system: &System) {
        let port: Port<&str, u32> = system.port(1);
        let (near, far) = system.unix_pair();
        let borrowed = Registration::new(&near, "key", Interest::IN, OneShot::Level);
        port.register(borrowed).unwrap();
        far.write(b"x").unwrap();
        let socket = Shared::new(system.file(b"bytes"));
        let file = SharedFile::new(socket.clone());
        let token = ready(&port, system);
        token.start(file.read_at(room(5), 0)).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(read(outcome), Ok(b"bytes".to_vec()));
        system.set_cached(&socket, 0);
        token.start(file.read_at(room(5), 0)).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(read(outcome), Ok(b"bytes".to_vec()));
        token.rearm().unwrap();
        let token = ready(&port, system);
        let (kind, (key, _)) = given_back(token.start(Operation::recv(room(1))));
        assert_eq!((kind, key), (ErrorKind::NotOwned, "key"));
    }

    /// Rule 77: so do any number of operations of a shared association, which stays enabled.
    fn a_shared_association_reads_other_files(system: &System) {
        const COUNT: usize = 20;
        let port = shared_on(system);
        let (near, far) = system.unix_pair();
        let near = Shared::new(near);
        let id = port.associate_shared(near.clone()).unwrap();
        let socket = Shared::new(system.file(&page(COUNT * 4096)));
        let file = SharedFile::new(socket.clone());
        system.set_cached(&socket, 4096);
        let mut names = Vec::new();
        for number in 0..COUNT {
            let operation = file.read_at(room(4096), 4096 * number as u64);
            names.push(port.start(id, operation).unwrap());
        }
        let receive = port.start(id, Operation::recv(room(1))).unwrap();
        far.write(b"x").unwrap();
        for packet in all(&port, system, COUNT + 1) {
            let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
            let name = finished.operation();
            let outcome = finished.into_parts().1;
            if name == receive {
                assert_eq!(bytes(outcome), b"x");
            } else {
                let number = names.iter().position(|it| *it == name).unwrap();
                let expected = &page(COUNT * 4096)[number * 4096..(number + 1) * 4096];
                assert_eq!(read(outcome).unwrap(), expected);
            }
        }
        // No readiness of the socket belongs to the operation on the file.
        let (other, hanging) = system.hanging();
        port.start(id, SharedFile::new(other).read_at(room(1), 0)).unwrap();
        port.enable(id.id(), Interest::IN, Persistent::Edge).unwrap();
        far.write(b"y").unwrap();
        assert!(crate::kit::packets::notified(&port, system).events().is_in());
        // Some systems repeat an edge that was not drained.
        assert_eq!(near.drain(), 1);
        hanging.release();
        assert_eq!(read(finished(&port, system).into_parts().1), Ok(b"x".to_vec()));
    }

    /// Rule 77: it may be associated as well, here or on another port.
    fn an_associated_file_may_also_be_used_without_its_association(system: &System) {
        let port = shared_on(system);
        let other = sockets_on(system);
        let socket = Shared::new(system.file(b"bytes"));
        let id = port.associate_shared(socket.clone()).unwrap();
        let file = SharedFile::new(socket.clone());
        for _ in 0..2 {
            system.set_cached(&socket, 0);
            let (token, _far) = token_of(&other, system);
            token.start(file.read_at(room(5), 0)).unwrap();
            assert_eq!(read(outcome(&other, system)), Ok(b"bytes".to_vec()));
            system.set_cached(&socket, 0);
            port.start(id, file.read_at(room(5), 0)).unwrap();
            assert_eq!(read(outcome(&port, system)), Ok(b"bytes".to_vec()));
            port.start(id, Operation::read_at(room(2), 0)).unwrap();
            assert_eq!(read(outcome(&port, system)), Ok(b"by".to_vec()));
        }
        // The end of the association does not concern it.
        drop(port.remove_and_wait(id.id(), None).unwrap());
        let (token, _far) = token_of(&other, system);
        token.start(file.read_at(room(5), 0)).unwrap();
        assert_eq!(read(outcome(&other, system)), Ok(b"bytes".to_vec()));
    }

    /// Rule 77: the file stays open until the operation has ended, and no longer.
    fn a_file_stays_open_until_its_operation_has_ended(system: &System) {
        let ledger = Ledger::default();
        let port = sockets_on(system);
        let (token, _far) = token_of(&port, system);
        let (socket, hanging) = system.hanging();
        let file = SharedFile::new(Owner { socket, _entry: ledger.entry() });
        token.start(file.read_at(room(1), 0)).unwrap();
        drop(file);
        silent(&port, system);
        assert_eq!(ledger.alive(), 1);
        hanging.release();
        let Packet::Completed(completed) = next(&port, system) else { panic!("no packet") };
        assert_eq!(ledger.alive(), 0, "the packet has been made");
        let (token, outcome) = completed.into_parts();
        assert_eq!(read(outcome), Ok(b"x".to_vec()));
        // The call that reads it releases it.
        let file = SharedFile::new(Owner { socket: system.file(b"bytes"), _entry: ledger.entry() });
        token.start(file.read_at(room(5), 0)).unwrap();
        drop(file);
        assert_eq!(read(outcome_of(&port, system)), Ok(b"bytes".to_vec()));
        assert_eq!(ledger.alive(), 0);
        // A refusal returns it in the operation.
        let (token, _far) = token_of(&port, system);
        port.close();
        let file = SharedFile::new(Owner { socket: system.file(b""), _entry: ledger.entry() });
        let (_, (_, operation)) = given_back(token.start(file.write_at(b"again".to_vec(), 0)));
        drop(file);
        assert_eq!(ledger.alive(), 1);
        if let Some(kernel) = system.kernel() {
            kernel.script_files(sim::FileScript::Done);
        }
        let other = sockets_on(system);
        let (token, _far) = token_of(&other, system);
        token.start(operation).unwrap();
        assert_eq!(written(&done(&other, system).1), Ok(5));
        assert_eq!(ledger.alive(), 0);
    }

    /// Rules 72 and 77.
    fn an_operation_without_an_association_is_cancelled(system: &System) {
        let port = sockets_on(system);
        let (token, far) = token_of(&port, system);
        let (socket, hanging) = system.hanging();
        let file = SharedFile::new(socket);
        let operation = token.start(file.read_at(room(1), 0)).unwrap();
        hanging.await_begun(1);
        assert!(port.cancel(operation).unwrap());
        if !lets_go_at_once(system) {
            silent(&port, system);
            assert!(port.cancel(operation).unwrap());
            hanging.release();
        }
        let (token, outcome) = done(&port, system);
        assert!(!port.cancel(operation).unwrap());
        assert_called_off(system, read(outcome), ErrorKind::Cancelled);
        far.write(b"y").unwrap();
        token.recv(room(1)).unwrap();
        assert_eq!(bytes(done(&port, system).1), b"y");
    }

    /// Rules 60, 72 and 77.
    fn an_operation_without_an_association_has_a_deadline(system: &System) {
        let limit = 50 * MILLISECOND;
        let port = sockets_on(system);
        let (token, _far) = token_of(&port, system);
        let (socket, hanging) = system.hanging();
        let begun = now(system);
        token.start(SharedFile::new(socket).read_at(room(1), 0).deadline(limit)).unwrap();
        hanging.await_begun(1);
        if !lets_go_at_once(system) {
            while now(system) < begun + 2 * limit {
                silent(&port, system);
            }
            hanging.release();
        }
        let (token, outcome) = done(&port, system);
        assert!(now(system) >= begun + limit);
        assert_called_off(system, read(outcome), ErrorKind::TimedOut);
        // The token's next operation has its own.
        let file = SharedFile::new(system.file(b"bytes"));
        token.start(file.read_at(room(5), 0).deadline(HOUR)).unwrap();
        assert_eq!(read(done(&port, system).1), Ok(b"bytes".to_vec()));
    }

    /// Rules 73 and 77: the removal of the token's registration cancels it.
    fn a_removal_ends_what_its_token_has_started_on_a_file(system: &System) {
        let port = sockets_on(system);
        let (token, _far) = token_of(&port, system);
        let name = token.id();
        let (socket, hanging) = system.hanging();
        let file = SharedFile::new(socket);
        token.start(file.read_at(room(1), 0)).unwrap();
        hanging.await_begun(1);
        port.remove(name).unwrap();
        if !lets_go_at_once(system) {
            silent(&port, system);
            hanging.release();
        }
        let (token, outcome) = done(&port, system);
        assert_called_off(system, read(outcome), ErrorKind::Cancelled);
        // As for any operation of a token that is being removed.
        token.park().unwrap();
        let Packet::Removed(removed, _) = next(&port, system) else { panic!("no removal") };
        assert_eq!(removed, name);
        // A registration that is being removed starts none.
        let (token, _far) = token_of(&port, system);
        port.remove(token.id()).unwrap();
        system.set_cached(&system.file(b""), 0);
        let (kind, (_, operation)) = match token.start(file.sync_all()) {
            Ok(_) => panic!("it is being removed"),
            refused => given_back(refused),
        };
        assert_eq!(kind, ErrorKind::Removing);
        assert!(operation.into_buffer().is_none());
    }

    /// Rules 30 and 77: the descriptor of the token's registration is forgotten meanwhile.
    fn a_registration_that_ends_ends_what_its_token_has_started_on_a_file(system: &System) {
        let port = sockets_on(system);
        let (token, _far) = token_of(&port, system);
        let name = token.id();
        let (socket, hanging) = system.hanging();
        token.start(SharedFile::new(socket).read_at(room(1), 0)).unwrap();
        hanging.await_begun(1);
        port.raw().forget(name).unwrap();
        if !lets_go_at_once(system) {
            silent(&port, system);
            hanging.release();
        }
        let (token, outcome) = done(&port, system);
        assert_called_off(system, read(outcome), ErrorKind::BadDescriptor);
        assert_eq!(given_back(token.park()).0, ErrorKind::NotRegistered);
    }

    /// Rules 73 and 77: waits continue until the system no longer uses the buffer.
    fn a_port_that_ends_waits_for_what_the_system_has_of_other_files(system: &System) {
        system.several_threads_wait();
        for shuts_down in [false, true] {
            let port = sockets_on(system);
            let (token, _far) = token_of(&port, system);
            let (socket, hanging) = system.hanging();
            token.start(SharedFile::new(socket).read_at(room(1), 0)).unwrap();
            hanging.await_begun(1);
            let (say, heard) = mpsc::channel();
            thread::scope(|scope| {
                let _end = End::of(&port, []);
                scope.spawn(|| {
                    let say = say;
                    each_packet(&port, completion_port::Batch::new(), |packet| {
                        say.send(Some(sort(&packet))).unwrap();
                    });
                    say.send(None).unwrap();
                });
                if shuts_down {
                    port.shutdown().unwrap();
                } else {
                    port.close();
                }
                if !lets_go_at_once(system) {
                    assert!(heard.recv_timeout(system.quiet()).is_err(), "it waits");
                    hanging.release();
                }
                assert_eq!(hear(system, &heard, "the packet comes"), Some("done"));
                assert_eq!(hear(system, &heard, "the port has ended"), None);
            });
            assert_closed(&port, system);
        }
    }

    /// Rules 73 and 77: dropping the port waits for nothing.
    fn a_port_is_dropped_while_a_file_without_an_association_is_read(system: &System) {
        let ledger = Ledger::default();
        let port: Port<Socket, u32, Noted> = system.port_with_buffers(1);
        let (near, _far) = system.unix_pair();
        let (socket, hanging) = system.hanging();
        let file = SharedFile::new(Owner { socket, _entry: ledger.entry() });
        let buffer = Noted::new(room(1), &ledger);
        port.associate(near).unwrap().start(file.read_at(buffer, 0)).unwrap();
        hanging.await_begun(1);
        drop(file);
        assert_eq!(ledger.alive(), 2);
        drop(port);
        if !lets_go_at_once(system) {
            assert_eq!(ledger.alive(), 1, "the buffer alone is the system's");
            hanging.release();
        }
        eventually(system, "the buffer is dropped", || ledger.alive() == 0);
    }

    /// Rule 77: a panic of the file's own drop costs the operation, and nothing else.
    fn a_panic_of_a_files_drop_fails_its_operation(system: &System) {
        let ledger = Ledger::default();
        let port = sockets_on(system);
        let (token, far) = token_of(&port, system);
        let (socket, hanging) = system.hanging();
        let file = SharedFile::new(Owner { socket, _entry: ledger.entry() });
        token.start(file.read_at(room(1), 0)).unwrap();
        drop(file);
        hanging.await_begun(1);
        hanging.release();
        ledger.panic_at_next_drop();
        let mut batch = completion_port::Batch::new();
        let wait = || port.wait(&mut batch, system.soon()).unwrap().next().map(drop);
        assert!(catch_unwind(AssertUnwindSafe(wait)).is_err());
        let (token, outcome) = done(&port, system);
        assert_eq!(outcome.error().map(|error| error.kind()), Some(ErrorKind::Other));
        assert_eq!(ledger.alive(), 0);
        far.write(b"x").unwrap();
        token.recv(room(1)).unwrap();
        assert_eq!(bytes(done(&port, system).1), b"x");
    }

    /// Rule 77: what the file does not allow is the outcome.
    fn what_a_file_without_an_association_does_not_allow_is_the_outcome(system: &System) {
        let port = sockets_on(system);
        let (token, _far) = token_of(&port, system);
        let file = SharedFile::new(system.file(b"some bytes"));
        token.start(file.read_at(room(4), i64::MAX.unsigned_abs() + 1)).unwrap();
        let (token, outcome) = done(&port, system);
        let error = outcome.error().unwrap();
        assert_eq!((error.call(), error.kind()), (Call::Read, ErrorKind::Other));
        // It is still there for the next one.
        token.start(file.read_at(room(4), 0)).unwrap();
        assert_eq!(read(done(&port, system).1), Ok(b"some".to_vec()));
    }
}

#[track_caller]
fn outcome_of(port: &Port<Socket, u32>, on: &System) -> completion_port::Outcome {
    outcome(port, on)
}

/// Rule 77: a file of another kernel is an outcome, as an address of one is.
#[test]
fn a_file_of_another_kernel_is_not_used() {
    let (ours, theirs) = (System::simulated(), System::simulated());
    let port = shared_on(&ours);
    let file = SharedFile::new(theirs.file(b"theirs"));
    let operations = [file.read_at(room(4), 0), file.write_at(b"x".to_vec(), 0), file.sync_data()];
    let (near, _far) = ours.unix_pair();
    let id = port.associate_shared(Shared::new(near)).unwrap();
    for operation in operations {
        port.start(id, operation).unwrap();
        let error = outcome(&port, &ours).error().unwrap();
        assert_eq!((error.kind(), error.transferred()), (ErrorKind::WrongKernel, 0));
    }
    assert_eq!(ours.kernel().unwrap().held_files(), 0);
}

/// Rules 72 and 77: an operation that has not begun ends immediately.
#[test]
fn an_operation_on_another_file_that_was_not_begun_is_taken_back() {
    let system = System::simulated();
    let kernel = system.kernel().unwrap();
    kernel.script_files(sim::FileScript::Queued);
    let port = sockets_on(&system);
    let (token, _far) = token_of(&port, &system);
    let file = SharedFile::new(system.file(b""));
    let operation = token.start(file.write_at(b"kept".to_vec(), 0)).unwrap();
    assert!(port.cancel(operation).unwrap());
    let (token, outcome) = done(&port, &system);
    assert_eq!(outcome.error().map(|error| error.kind()), Some(ErrorKind::Cancelled));
    assert_eq!(outcome.into_buffer(), Some(b"kept".to_vec()));
    assert_eq!(refused(port.enable(token.id(), Interest::IN, OneShot::Level)), ErrorKind::KeyHeld);
    assert_eq!(kernel.held_files(), 0);
}

/// Rules 32, 64 and 77: a child uses the file on its own port, and leaves its parent's operation
/// alone.
#[cfg(target_os = "linux")]
#[test]
fn a_child_uses_the_file_on_its_own_port() {
    for system in crate::kit::files::native() {
        let port: Port<Socket, u32> = system.port(1);
        let (token, _far) = token_of(&port, &system);
        let (hung, hanging) = system.hanging();
        let hung = SharedFile::new(hung);
        let file = SharedFile::new(system.file(b""));
        // Its reference is the parent's port's.
        token.start(file.write_at(b"bytes".to_vec(), 0)).unwrap();
        let (token, _) = done(&port, &system);
        token.start(hung.read_at(room(1), 0)).unwrap();
        hanging.await_begun(1);
        let status = in_forked_child(|| {
            let own: Port<Socket, u32> = system.port(1);
            let (token, _far) = token_of(&own, &system);
            token.start(file.read_at(room(5), 0)).unwrap();
            let (token, outcome) = done(&own, &system);
            let is_read = read(outcome) == Ok(b"bytes".to_vec());
            token.start(file.sync_data()).unwrap();
            let is_synced = synced(&done(&own, &system).1) == Ok(());
            // What a child drops of its parent's.
            drop((port, hung));
            u8::from(!(is_read && is_synced))
        });
        assert_eq!(status, 0);
        hanging.release();
    }
}
