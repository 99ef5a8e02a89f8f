//! Rules 72 to 74: cancelling file operations, their end with the port, and the engine that
//! performs them.

#[cfg(target_os = "linux")]
use std::fs::File;
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

#[cfg(target_os = "linux")]
use completion_port::SharedSource;
use completion_port::{
    Batch, Buffer, Call, Error, ErrorKind, FileEngine, Operation, Outcome, Packet, Port, sim,
};
use testkit::{System, on_every_file_system};
#[cfg(target_os = "linux")]
use testkit::{in_a_process_of_its_own, in_forked_child, sandbox, skipped};

use crate::kit::codes;
#[cfg(target_os = "linux")]
use crate::kit::files::{hanging_disk, native};
use crate::kit::files::{page, read, synced};
use crate::kit::ledger::{Ledger, Owner};
use crate::kit::operations::{
    HOUR, MILLISECOND, Noted, Shared, all, done, finished, next, outcome, room, shared_on, silent,
    sockets_on, sort, why,
};
use crate::kit::packets::{assert_closed, each_packet, given_back, refused};
#[cfg(target_os = "linux")]
use crate::kit::threads::stays;
use crate::kit::threads::{End, eventually, hear, now, settle};

/// Returns whether an operation that the kernel holds can be cancelled immediately. On Windows that
/// includes what a thread waits for.
fn lets_go_at_once(on: &System) -> bool {
    on.kernel().is_none() && (cfg!(windows) || !on.has_file_threads())
}

/// Checks the outcome of an operation that had begun, was cancelled, and was then released. Threads
/// complete it. Otherwise it ends with `kind`.
#[track_caller]
fn assert_called_off(system: &System, outcome: Result<Vec<u8>, Error>, kind: ErrorKind) {
    if system.kernel().is_none() && !lets_go_at_once(system) {
        assert_eq!(outcome, Ok(b"x".to_vec()));
    } else {
        let error = outcome.unwrap_err();
        assert_eq!((error.call(), error.kind(), error.transferred()), (Call::Read, kind, 0));
    }
}

on_every_file_system! {
    /// Rule 72: its packet comes when the system no longer uses the buffer.
    fn an_operation_that_hangs_is_cancelled(system: &System) {
        let port = sockets_on(system);
        let (file, hanging) = system.hanging();
        let operation = port.associate(file).unwrap().read_at(room(1), 0).unwrap();
        silent(&port, system);
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
        // The association continues.
        token.read_at(Vec::new(), 0).unwrap();
        drop(done(&port, system));
    }

    /// Rule 72: it ends whatever the thread that performs it is doing at that moment.
    fn an_operation_that_hangs_in_a_call_is_cancelled(system: &System) {
        for round in 0..30 {
            let port = sockets_on(system);
            let (file, hanging) = system.hanging_in_calls();
            let operation = port.associate(file).unwrap().read_at(room(1), 0).unwrap();
            (0..round).for_each(|_| thread::yield_now());
            assert!(port.cancel(operation).unwrap());
            if !lets_go_at_once(system) {
                hanging.release();
            }
            match read(outcome(&port, system)) {
                // Nothing could make it end early.
                Ok(bytes) => assert_eq!((lets_go_at_once(system), bytes), (false, b"x".to_vec())),
                Err(error) => {
                    assert_eq!((error.kind(), error.transferred()), (ErrorKind::Cancelled, 0));
                }
            }
        }
    }

    /// Rule 72: an operation that was not begun ends immediately.
    fn an_operation_that_was_not_begun_is_taken_back(system: &System) {
        // The number of threads in the pool.
        const BUSY: usize = 8;
        let port = shared_on(system);
        let (file, hanging) = system.hanging();
        let id = port.associate_shared(Shared::new(file)).unwrap();
        if let Some(kernel) = system.kernel() {
            kernel.script_files(sim::FileScript::Queued);
        }
        let start = || port.start(id, Operation::read_at(room(1), 0)).unwrap();
        let busy: Vec<_> = (0..BUSY).map(|_| start()).collect();
        let late = start();
        assert!(port.cancel(late).unwrap());
        let cancelled = finished(&port, system);
        assert_eq!((cancelled.operation(), why(cancelled.error())), (late, ErrorKind::Cancelled));
        assert!(cancelled.into_parts().1.into_buffer().is_some());
        for operation in &busy {
            port.cancel(*operation).unwrap();
        }
        if !lets_go_at_once(system) {
            busy.iter().for_each(|_| hanging.release());
        }
        assert_eq!(all(&port, system, BUSY).len(), BUSY);
        drop(port.remove_and_wait(id.id(), None).unwrap());
    }

    /// Rule 72: an operation that does not end by its deadline is cancelled, and the packet reports
    /// the reason.
    fn a_deadline_calls_an_operation_off(system: &System) {
        let limit = 50 * MILLISECOND;
        let port = sockets_on(system);
        let (file, hanging) = system.hanging();
        let begun = now(system);
        let read_at = Operation::read_at(room(1), 0).deadline(limit);
        port.associate(file).unwrap().start(read_at).unwrap();
        hanging.await_begun(1);
        if !lets_go_at_once(system) {
            while now(system) < begun + 2 * limit {
                silent(&port, system);
            }
            hanging.release();
        }
        let outcome = outcome(&port, system);
        assert!(now(system) >= begun + limit);
        assert_called_off(system, read(outcome), ErrorKind::TimedOut);
    }

    /// Rule 72: the first of several ends, and none that has completed.
    fn each_operation_on_a_file_has_its_own_deadline(system: &System) {
        let port = shared_on(system);
        let (file, hanging) = system.hanging();
        let id = port.associate_shared(Shared::new(file)).unwrap();
        let start = |limit| {
            port.start(id, Operation::read_at(room(1), 0).deadline(limit)).unwrap()
        };
        let limit = 50 * MILLISECOND;
        let begun = now(system);
        let (first, second) = (start(limit), start(HOUR));
        hanging.await_begun(2);
        let empty = Operation::read_at(Vec::new(), 0).deadline(MILLISECOND);
        let third = port.start(id, empty).unwrap();
        let packets: Vec<_> = port.wait(&mut Batch::new(), system.soon()).unwrap().collect();
        if now(system) >= begun + limit {
            testkit::late();
        }
        let [Packet::SharedCompleted(finished_first)] = &packets[..] else { panic!("not one packet") };
        assert_eq!((finished_first.operation(), finished_first.error()), (third, None));
        drop(packets);
        while !lets_go_at_once(system) && now(system) < begun + 2 * limit {
            silent(&port, system);
        }
        if let Some(kernel) = system.kernel() {
            // The cancelled operation ends. The other one continues to its own end.
            kernel.release_files();
        } else if lets_go_at_once(system) {
            let late = finished(&port, system);
            assert_eq!((late.operation(), why(late.error())), (first, ErrorKind::TimedOut));
            silent(&port, system);
            hanging.release();
            assert_eq!(finished(&port, system).operation(), second);
            return;
        } else {
            hanging.release();
            hanging.release();
        }
        for packet in all(&port, system, 2) {
            let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
            let is_first = finished.operation() == first;
            let outcome = read(finished.into_parts().1);
            if is_first {
                assert_called_off(system, outcome, ErrorKind::TimedOut);
            } else {
                assert_eq!(outcome, Ok(b"x".to_vec()));
            }
        }
    }

    /// Rule 72: whichever comes first, there is one packet, with its buffer.
    fn cancelling_and_finishing_on_a_file_at_once_makes_one_packet(system: &System) {
        const COUNT: usize = 400;
        system.several_threads_wait();
        let port: Port<Shared, u32> = system.port(2);
        let file = Shared::new(system.file(&page(16 * 4096)));
        let id = port.associate_shared(file.clone()).unwrap();
        let (say, heard) = mpsc::channel();
        let (tell, told) = mpsc::channel();
        let outcomes: Vec<_> = thread::scope(|scope| {
            let _end = End::of(&port, []);
            for _ in 0..2 {
                let say = say.clone();
                let port = &port;
                scope.spawn(move || {
                    let mut batch = Batch::new();
                    while let Ok(packets) = port.wait(&mut batch, None) {
                        for packet in packets {
                            let Packet::SharedCompleted(finished) = packet else { continue };
                            say.send((finished.operation(), finished.into_parts().1)).unwrap();
                        }
                    }
                });
            }
            scope.spawn(|| {
                let told = told;
                for operation in told {
                    port.cancel(operation).unwrap();
                }
            });
            for number in 0..COUNT {
                let offset = 4096 * (number as u64 % 16);
                let operation = match number % 3 {
                    0 => Operation::write_at(vec![b'x'; 64], offset),
                    1 => Operation::read_at(room(64), offset),
                    _ => Operation::read_at(room(64), offset).deadline(Duration::ZERO),
                };
                if number % 16 == 0 {
                    system.set_cached(&file, 0);
                }
                tell.send(port.start(id, operation).unwrap()).unwrap();
            }
            drop(tell);
            (0..COUNT).map(|_| hear(system, &heard, "each has a packet")).collect()
        });
        let mut names = std::collections::HashSet::new();
        for (name, outcome) in outcomes {
            assert!(names.insert(name), "{name:?} has two packets");
            let kind = outcome.error().map(|error| error.kind());
            let is_known = matches!(kind, None | Some(ErrorKind::Cancelled | ErrorKind::TimedOut));
            assert!(is_known, "{outcome:?}");
            assert!(outcome.into_buffer().is_some());
        }
        assert!(heard.try_recv().is_err(), "no more than that");
    }

    /// Rule 73.
    fn a_removal_waits_for_what_the_system_has(system: &System) {
        let port = shared_on(system);
        let (file, hanging) = system.hanging();
        let id = port.associate_shared(Shared::new(file)).unwrap();
        port.start(id, Operation::read_at(room(1), 0)).unwrap();
        hanging.await_begun(1);
        port.remove(id.id()).unwrap();
        if !lets_go_at_once(system) {
            silent(&port, system);
            let over = refused(port.remove_and_wait(id.id(), MILLISECOND));
            assert_eq!(over, ErrorKind::Removing);
            hanging.release();
        }
        let outcome = read(finished(&port, system).into_parts().1);
        assert_called_off(system, outcome, ErrorKind::Cancelled);
        let Packet::Removed(removed, file) = next(&port, system) else { panic!("no removal") };
        assert_eq!(removed, id.id());
        assert!(Shared::into_inner(file).is_some(), "nothing else has the key");
        silent(&port, system);
    }

    /// Rule 73: waits continue until the system no longer uses the buffer.
    fn a_closed_port_waits_for_what_the_system_has(system: &System) {
        system.several_threads_wait();
        let port = shared_on(system);
        let (file, hanging) = system.hanging();
        port.associate(Shared::new(file)).unwrap().read_at(room(1), 0).unwrap();
        hanging.await_begun(1);
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            scope.spawn(|| {
                let say = say;
                each_packet(&port, Batch::new(), |packet| {
                        say.send(Some(sort(&packet))).unwrap();
                });
                say.send(None).unwrap();
            });
            settle(system, &port, 1);
            port.close();
            if !lets_go_at_once(system) {
                assert!(heard.recv_timeout(system.quiet()).is_err(), "it waits");
                hanging.release();
            }
            assert_eq!(hear(system, &heard, "the packet comes"), Some("done"));
            assert_eq!(hear(system, &heard, "the port is closed"), None);
        });
        assert_closed(&port, system);
    }

    /// Rule 73: threads start operations while the port is being closed.
    fn starting_on_a_file_and_closing_at_once_loses_nothing(system: &System) {
        system.several_threads_wait();
        for _ in 0..20 {
            let port = shared_on(system);
            let file = Shared::new(system.file(&page(4096)));
            let id = port.associate_shared(file.clone()).unwrap();
            let (started, taken) = thread::scope(|scope| {
                let _end = End::of(&port, []);
                let starter = scope.spawn(|| {
                    let write = || Operation::write_at(b"x".to_vec(), 0);
                    (0..300).take_while(|_| port.start(id, write()).is_ok()).count()
                });
                let taker = scope.spawn(|| {
                    let mut count = 0;
                    each_packet(&port, Batch::new(), |_| count += 1);
                    count
                });
                thread::yield_now();
                port.close();
                (starter.join().unwrap(), taker.join().unwrap())
            });
            assert_eq!(taken, started);
        }
    }

    /// Rule 73: dropping a port doesn't wait for the disk. The buffer is dropped when the system no
    /// longer uses it.
    fn a_port_is_dropped_while_a_read_hangs(system: &System) {
        let ledger = Ledger::default();
        let port: Port<Owner, u32, Noted> = system.port_with_buffers(1);
        let (file, hanging) = system.hanging();
        let key = Owner { socket: file, _entry: ledger.entry() };
        let buffer = Noted::new(room(1), &ledger);
        port.associate(key).unwrap().read_at(buffer, 0).unwrap();
        silent(&port, system);
        hanging.await_begun(1);
        let begun = Instant::now();
        drop(port);
        assert!(begun.elapsed() < system.soon(), "nothing is waited for");
        if lets_go_at_once(system) {
            eventually(system, "the buffer is dropped", || ledger.alive() == 0);
        } else {
            assert_eq!(ledger.alive(), 1, "the buffer alone is the system's");
            hanging.release();
            eventually(system, "the buffer is dropped", || ledger.alive() == 0);
        }
    }

    /// Rule 73: the drop is safe whatever the thread that performs the read is doing at that
    /// moment.
    fn a_port_is_dropped_while_a_read_hangs_in_a_call(system: &System) {
        for round in 0..30 {
            let ledger = Ledger::default();
            let port: Port<Owner, u32, Noted> = system.port_with_buffers(1);
            let (file, hanging) = system.hanging_in_calls();
            let key = Owner { socket: file, _entry: ledger.entry() };
            port.associate(key).unwrap().read_at(Noted::new(room(1), &ledger), 0).unwrap();
            (0..round).for_each(|_| thread::yield_now());
            drop(port);
            if !lets_go_at_once(system) {
                hanging.release();
            }
            eventually(system, "the buffer is dropped", || ledger.alive() == 0);
        }
    }

    /// Rule 73: keys and buffers are dropped once, whatever state their operations are in.
    fn a_dropped_port_drops_what_is_in_flight_on_files(system: &System) {
        let ledger = Ledger::default();
        let port: Port<Owner, u32, Noted> = system.port_with_buffers(1);
        let buffer = |bytes: Vec<u8>| Noted::new(bytes, &ledger);
        let owner = |socket| Owner { socket, _entry: ledger.entry() };
        // One that has completed later, and one that completed immediately.
        port.associate(owner(system.file(b""))).unwrap().write_at(buffer(vec![1; 9]), 0).unwrap();
        let token = port.associate(owner(system.file(b"bytes"))).unwrap();
        token.read_at(buffer(room(5)), 0).unwrap();
        eventually(system, "both have ended", || port.stats().queued == 2);
        // Some that were not begun, because the system has no free threads or its script demands
        // it.
        let (file, hanging) = system.hanging();
        if let Some(kernel) = system.kernel() {
            kernel.script_files(sim::FileScript::Queued);
        }
        let mut others = Vec::new();
        port.associate(owner(file)).unwrap().read_at(buffer(room(1)), 0).unwrap();
        for _ in 0..9 {
            let (file, hanging) = match system.kernel() {
                Some(kernel) => {
                    let (file, hanging) = system.hanging();
                    kernel.script_files(sim::FileScript::Queued);
                    (file, hanging)
                }
                None => system.hanging(),
            };
            others.push(hanging);
            port.associate(owner(file)).unwrap().read_at(buffer(room(1)), 0).unwrap();
        }
        assert_eq!(ledger.alive(), 24);
        drop(port);
        assert!(ledger.alive() <= 10, "{}", ledger.alive());
        if !lets_go_at_once(system) && system.kernel().is_none() {
            hanging.release();
            others.iter().for_each(testkit::Hanging::release);
        }
        eventually(system, "all is dropped", || ledger.alive() == 0);
    }

    /// Rule 73: waits end immediately.
    fn an_abandoned_port_waits_for_no_file(system: &System) {
        let port = shared_on(system);
        let (file, hanging) = system.hanging();
        port.associate(Shared::new(file)).unwrap().read_at(room(1), 0).unwrap();
        port.raw().abandon();
        let mut batch = Batch::new();
        assert_eq!(refused(port.wait(&mut batch, system.soon())), ErrorKind::Closed);
        drop(port);
        hanging.release();
    }

    /// Rule 73: operations that a closed port refuses, or that name a forgotten association, are
    /// returned.
    fn what_may_not_be_started_on_a_file_comes_back(system: &System) {
        let port = shared_on(system);
        let id = port.associate_shared(Shared::new(system.file(b""))).unwrap();
        let token = port.associate(Shared::new(system.file(b""))).unwrap();
        port.remove(id.id()).unwrap();
        let write = || Operation::write_at(b"kept".to_vec(), 3);
        let (kind, operation) = given_back(port.start(id, write()));
        assert_eq!((kind, operation.into_buffer()), (ErrorKind::Removing, Some(b"kept".to_vec())));
        drop(next(&port, system));
        assert_eq!(given_back(port.start(id, write())).0, ErrorKind::NotRegistered);
        port.close();
        let (kind, (_, operation)) = given_back(token.start(write()));
        assert_eq!((kind, operation.into_buffer()), (ErrorKind::Closed, Some(b"kept".to_vec())));
        assert_closed(&port, system);
    }

    /// Rule 73: a panic fails the operation, wherever it happens. There is one packet, or the
    /// token's registration ends.
    fn a_panic_in_a_buffer_fails_an_operation_on_a_file(system: &System) {
        let port: Port<Shared, u32, Failing> = system.port_with_buffers(1);
        let file = Shared::new(system.file(&page(4096)));
        system.set_cached(&file, 0);
        let id = port.associate_shared(file.clone()).unwrap();
        // The buffer is called once for the immediate attempt, once to submit it and twice to take
        // it back, or less often.
        for after in 0..4 {
            system.set_cached(&file, 0);
            let buffer = Failing::after(after, room(16));
            let start = || port.start(id, Operation::read_at(buffer, 0)).is_ok();
            let started = catch_unwind(AssertUnwindSafe(start));
            let outcome = match started {
                Ok(started) => {
                    assert!(started);
                    let mut batch = Batch::new();
                    let wait = || port.wait(&mut batch, system.soon()).unwrap().next().map(drop);
                    // Another wait brings the packet.
                    if catch_unwind(AssertUnwindSafe(wait)).is_ok() {
                        // The data may have returned to the cache, and is then read with fewer
                        // calls.
                        assert!(system.kernel().is_none(), "it panics ({after})");
                        testkit::late();
                    }
                    outcome(&port, system)
                }
                Err(_) => outcome(&port, system),
            };
            let error = outcome.error().unwrap();
            // The buffer does not report what was read.
            assert_eq!((error.kind(), error.transferred()), (ErrorKind::Other, 0), "{after}");
            assert!(outcome.into_buffer().is_some());
        }
        port.remove(id.id()).unwrap();
        assert!(matches!(next(&port, system), Packet::Removed(..)));
        let token = port.associate(file).unwrap();
        let read_at = Operation::read_at(Failing::after(0, room(16)), 0);
        assert!(catch_unwind(AssertUnwindSafe(|| token.start(read_at).is_ok())).is_err());
        silent(&port, system);
        assert_eq!(port.stats().registered, 0);
    }

    /// Rule 74: only an operation that has to wait starts the file engine.
    fn what_does_operations_on_files_is_started_when_it_is_needed(system: &System) {
        let port = sockets_on(system);
        let before = if system.kernel().is_some() { "sim" } else { "none" };
        let mut token = port.associate(system.file(b"bytes")).unwrap();
        assert_eq!(port.stats().file_engine, before);
        if system.kernel().is_some() || system.cached_from(token.key(), 0, 5) == 5 {
            token.read_at(room(5), 0).unwrap();
            token = done(&port, system).0;
            assert_eq!(port.stats().file_engine, before);
        }
        token.sync_data().unwrap();
        drop(done(&port, system));
        let name = match (system.kernel(), system.file_engine()) {
            (Some(_), _) => "sim",
            (None, FileEngine::Threads) => "threads",
            (None, FileEngine::Ring) => "io_uring",
            _ => port.stats().file_engine,
        };
        assert_eq!(port.stats().file_engine, name);
        assert_ne!(name, "none");
    }

    /// Rule 74: a short transfer by the system is continued.
    fn an_operation_that_was_shortened_goes_on(system: &System) {
        let Some(kernel) = system.kernel() else { return };
        let port = shared_on(system);
        let file = Shared::new(system.file(b"some bytes"));
        let id = port.associate_shared(file.clone()).unwrap();
        system.set_cached(&file, 0);
        kernel.shorten_next_file(3);
        port.start(id, Operation::read_at(room(10), 0)).unwrap();
        assert_eq!(read(outcome(&port, system)), Ok(b"some bytes".to_vec()));
        kernel.shorten_next_file(2);
        kernel.shorten_next_file(1);
        port.start(id, Operation::write_at(b"SOME".to_vec(), 0)).unwrap();
        let Outcome::Written(Ok(4), _) = outcome(&port, system) else { panic!("it goes on") };
        assert_eq!(system.contents(&file), b"SOME bytes");
        // A write that transfers nothing would be repeated forever.
        kernel.shorten_next_file(0);
        port.start(id, Operation::write_at(b"none".to_vec(), 0)).unwrap();
        let error = outcome(&port, system).error().unwrap();
        assert_eq!((error.os_code(), error.transferred()), (Some(codes::EIO), 0));
        // The continuation of a shortened transfer fails.
        for (operation, call) in [
            (Operation::write_at(b"more".to_vec(), 0), Call::Write),
            (Operation::read_at(room(4), 0), Call::Read),
        ] {
            system.set_cached(&file, 0);
            kernel.shorten_next_file(3);
            // The error is checked before the byte count.
            kernel.fail_next_file_after(1, codes::EIO);
            port.start(id, operation).unwrap();
            let error = outcome(&port, system).error().unwrap();
            assert_eq!((error.call(), error.os_code()), (call, Some(codes::EIO)));
            assert_eq!((error.kind(), error.transferred()), (ErrorKind::Other, 3));
        }
        assert_eq!(system.contents(&file), b"morE bytes");
    }

    /// Rule 74: a sync reports the failure of the disk. The next sync succeeds.
    fn a_disk_that_fails_is_told_by_what_puts_a_file_on_it(system: &System) {
        let Some(kernel) = system.kernel() else { return };
        let port = sockets_on(system);
        let mut token = port.associate(system.file(b"bytes")).unwrap();
        for operation in [Operation::sync_data, Operation::sync_all] {
            for code in [Some(codes::EIO), None] {
                code.into_iter().for_each(|code| kernel.fail_next_file(code));
                token.start(operation()).unwrap();
                let (back, outcome) = done(&port, system);
                let error = synced(&outcome).err().map(|error| (error.call(), error.os_code()));
                assert_eq!(error, code.map(|_| (Call::Sync, code)));
                token = back;
            }
        }
    }
}

/// A buffer whose code panics once, after a given number of calls.
#[derive(Debug)]
struct Failing {
    bytes: Vec<u8>,
    calls_left: usize,
    has_panicked: Arc<AtomicBool>,
}

impl Failing {
    fn after(calls: usize, bytes: Vec<u8>) -> Self {
        Self { bytes, calls_left: calls, has_panicked: Arc::default() }
    }

    fn note_call(&mut self) {
        match self.calls_left.checked_sub(1) {
            Some(left) => self.calls_left = left,
            None if self.has_panicked.swap(true, SeqCst) => {}
            None => resume_unwind(Box::new("a buffer's code")),
        }
    }
}

// SAFETY: `Buffer` requires stable memory and truthful lengths.
// - the memory is that of `bytes`, whose own implementation promises the same.
unsafe impl Buffer for Failing {
    fn filled<'b>(&'b self, part: &mut dyn FnMut(&'b [u8])) {
        self.bytes.filled(part);
    }

    unsafe fn room<'b>(&'b mut self, part: &mut dyn FnMut(&'b mut [MaybeUninit<u8>])) {
        self.note_call();
        // SAFETY: the caller must write only initialized bytes.
        // - the memory is the vector's, so the caller's promise to `room` holds for it.
        unsafe { self.bytes.room(part) };
    }

    unsafe fn set_filled(&mut self, len: usize) {
        self.note_call();
        // SAFETY: `set_filled` requires that the first `len` bytes are initialized.
        // - the memory is the vector's, so the caller's promise to `set_filled` holds for it.
        unsafe { self.bytes.set_filled(len) };
    }
}

/// The offset at which a read hangs.
#[cfg(target_os = "linux")]
const PLACE: u32 = 4 * 4096;

/// Rule 72: a thread can't abandon a read that a disk does not answer. Its packet comes when the
/// read is done.
#[cfg(target_os = "linux")]
#[test]
fn a_read_of_a_disk_that_hangs_is_cancelled_epoll() {
    let name = "files_ending::a_read_of_a_disk_that_hangs_is_cancelled_epoll";
    let Some(disk) = hanging_disk(name, PLACE) else { return };
    let system = System::native_with_threads();
    let all = page(PLACE as usize + 4096);
    let port = sockets_on(&system);
    let mut token = port.associate(system.file(&all)).unwrap();
    for limit in [None, Some(20 * MILLISECOND)] {
        let read_at = Operation::read_at(room(16), u64::from(PLACE));
        let read_at = match limit {
            Some(limit) => read_at.deadline(limit),
            None => read_at,
        };
        let operation = token.start(read_at).unwrap();
        let hanging = disk.await_read();
        let begun = Instant::now();
        assert!(limit.is_some() || port.cancel(operation).unwrap());
        silent(&port, &system);
        while limit.is_some_and(|limit| begun.elapsed() < 2 * limit) {
            silent(&port, &system);
        }
        assert!(port.cancel(operation).unwrap(), "it is still under way");
        hanging.release();
        let (back, outcome) = done(&port, &system);
        assert!(!port.cancel(operation).unwrap());
        assert_eq!(read(outcome), Ok(all[PLACE as usize..][..16].to_vec()));
        token = back;
    }
    silent(&port, &system);
}

/// Rule 73: dropping a port doesn't wait for a disk that does not answer. The disk writes to the
/// buffer later, and the file stays open until then.
#[cfg(target_os = "linux")]
#[test]
fn a_port_is_dropped_while_a_disk_hangs_epoll() {
    let name = "files_ending::a_port_is_dropped_while_a_disk_hangs_epoll";
    let Some(disk) = hanging_disk(name, PLACE) else { return };
    let system = System::native_with_threads();
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    let (had, open) = (threads(), testkit::descriptors::open());
    let ledger = Ledger::default();
    for is_shared in [false, true] {
        let file = system.file(&page(PLACE as usize + 4096));
        let buffer = Noted::new(room(16), &ledger);
        let read_at = Operation::read_at(buffer, u64::from(PLACE));
        let key = SharedSource::new(Owner { socket: file, _entry: ledger.entry() });
        let port: Port<SharedSource<Owner>, u32, Noted> = system.port_with_buffers(1);
        if is_shared {
            let id = port.associate_shared(key).unwrap();
            port.start(id, read_at).unwrap();
        } else {
            port.associate(key).unwrap().start(read_at).unwrap();
        }
        let hanging = disk.await_read();
        let begun = Instant::now();
        drop(port);
        assert!(begun.elapsed() < system.soon(), "nothing is waited for");
        stays(&system, 0, "the buffer alone is the system's", || ledger.alive() == 1);
        assert_eq!(testkit::descriptors::open().len(), open.len() + 1, "the thread's own");
        hanging.release();
        eventually(&system, "the buffer is dropped", || ledger.alive() == 0);
        eventually(&system, "the thread ends", || threads() == had);
        testkit::descriptors::assert_same(&open, &testkit::descriptors::open());
    }
}

/// Rule 73: every call fails in the child, and the parent's operations continue.
#[cfg(target_os = "linux")]
#[test]
fn a_forked_child_starts_nothing_on_files_epoll() {
    if !in_a_process_of_its_own("files_ending::a_forked_child_starts_nothing_on_files_epoll") {
        return;
    }
    for system in native() {
        let mut port = Some(shared_on(&system));
        let parent = port.as_ref().unwrap();
        let (file, hanging) = system.hanging();
        let operation = parent.associate(Shared::new(file)).unwrap().read_at(room(1), 0).unwrap();
        let id = parent.associate_shared(Shared::new(system.file(b""))).unwrap();
        silent(parent, &system);
        let status = in_forked_child(|| {
            let child = port.as_ref().unwrap();
            let mut failed = 0;
            let mut check = |bit: u8, holds: bool| failed |= u8::from(!holds) << bit;
            let write_at = Operation::write_at(b"kept".to_vec(), 0);
            let (why, write_at) = given_back(child.start(id, write_at));
            check(0, why == ErrorKind::Forked);
            check(1, write_at.into_buffer() == Some(b"kept".to_vec()));
            check(2, refused(child.cancel(operation)) == ErrorKind::Forked);
            child.close();
            drop(port.take());
            failed
        });
        assert_eq!(status, 0);
        let parent = port.as_ref().unwrap();
        silent(parent, &system);
        hanging.release();
        let (_, outcome) = done(parent, &system);
        assert_eq!(read(outcome), Ok(b"x".to_vec()));
        parent.start(id, Operation::write_at(b"on".to_vec(), 0)).unwrap();
        assert_eq!(finished(parent, &system).error(), None);
    }
}

/// Rule 73: a dropped port leaves no thread and no descriptor behind.
#[cfg(target_os = "linux")]
#[test]
fn a_port_leaves_nothing_that_did_operations_on_files_epoll() {
    if !in_a_process_of_its_own(
        "files_ending::a_port_leaves_nothing_that_did_operations_on_files_epoll",
    ) {
        return;
    }
    let threads = || std::fs::read_dir("/proc/self/task").unwrap().count();
    for system in native() {
        let (had, open) = (threads(), testkit::descriptors::open());
        for _ in 0..3 {
            let port = shared_on(&system);
            let file = Shared::new(system.file(&page(4096)));
            let id = port.associate_shared(file).unwrap();
            for _ in 0..20 {
                port.start(id, Operation::write_at(b"x".to_vec(), 0)).unwrap();
            }
            port.start(id, Operation::sync_data()).unwrap();
            drop(all(&port, &system, 21));
            assert!(threads() > had);
        }
        eventually(&system, "the threads end", || threads() == had);
        eventually(&system, "the descriptors are closed", || {
            testkit::descriptors::open().len() == open.len()
        });
        testkit::descriptors::assert_same(&open, &testkit::descriptors::open());
    }
}

/// Rule 74: the same with the system's own code, on threads, whose calls a sandbox can refuse.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_fails_is_told_by_what_puts_a_file_on_it_epoll() {
    let name = "files_ending::a_disk_that_fails_is_told_by_what_puts_a_file_on_it_epoll";
    if !sandbox::is_inside() {
        for call in [libc::SYS_fdatasync, libc::SYS_fsync] {
            if let Err(error) = sandbox::run(name, &[call], libc::EIO) {
                skipped(format_args!("no sandbox: {error}"));
            }
        }
        return;
    }
    let system = System::native_with_threads();
    let file = system.file(b"bytes");
    let same = File::from(file.descriptor().try_clone_to_owned().unwrap());
    let code = |result: std::io::Result<()>| result.err().map(|error| error.raw_os_error());
    let codes = [code(same.sync_data()), code(same.sync_all())];
    let fails = Some(Some(libc::EIO));
    assert!(codes == [fails, None] || codes == [None, fails], "{codes:?}");
    let port = sockets_on(&system);
    let mut token = port.associate(file).unwrap();
    for (operation, code) in [Operation::sync_data, Operation::sync_all].into_iter().zip(codes) {
        token.start(operation()).unwrap();
        let (back, outcome) = done(&port, &system);
        let error = synced(&outcome).err();
        assert_eq!(error.map(|error| error.os_code()), code);
        if let Some(error) = error {
            assert_eq!((error.call(), error.kind()), (Call::Sync, ErrorKind::Other));
        }
        token = back;
    }
}

/// Rule 74: if the system has no ring, requesting one fails, and otherwise threads are used.
#[cfg(target_os = "linux")]
#[test]
fn without_a_ring_threads_do_it_epoll() {
    let name = "files_ending::without_a_ring_threads_do_it_epoll";
    if !sandbox::is_inside() {
        for code in [libc::EPERM, libc::ENOSYS] {
            if let Err(error) = sandbox::run(name, &[libc::SYS_io_uring_setup], code) {
                skipped(format_args!("no sandbox: {error}"));
            }
        }
        return;
    }
    let port = Port::builder().file_engine(FileEngine::Ring).build::<(), ()>();
    assert_eq!(refused(port), ErrorKind::Unsupported);
    let system = System::native();
    let port = sockets_on(&system);
    port.associate(system.file(b"")).unwrap().sync_all().unwrap();
    drop(done(&port, &system));
    assert_eq!(port.stats().file_engine, "threads");
}
