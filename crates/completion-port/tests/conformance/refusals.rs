//! Rule 75: what happens if the system permanently refuses a call that a port needs.

#[cfg(target_os = "linux")]
use std::ffi::c_long;
#[cfg(target_os = "linux")]
use std::fs;
use std::sync::mpsc;
use std::thread;
#[cfg(target_os = "linux")]
use std::time::Duration;

use completion_port::{
    Batch, Call, Changes, Error, ErrorKind, Interest, OneShot, Operation, Packet, Port,
};
#[cfg(target_os = "linux")]
use completion_port::{FileEngine, SharedSource};
use testkit::System;
#[cfg(target_os = "linux")]
use testkit::{in_a_process_of_its_own, sandbox, skipped};

use crate::kit::codes::{EINTR, ENOMEM, EPERM};
#[cfg(target_os = "linux")]
use crate::kit::files::{page, read, written};
use crate::kit::operations::{Shared, room, shared_on};
#[cfg(target_os = "linux")]
use crate::kit::operations::{done, finished, sockets_on};
use crate::kit::packets::{one_shot, refused, the_one, the_token};
#[cfg(target_os = "linux")]
use crate::kit::threads::eventually;
use crate::kit::threads::{hear, settle};

/// The calls that ask an epoll set for events.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
const WAITS: [c_long; 3] = [libc::SYS_epoll_wait, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];
#[cfg(all(target_os = "linux", not(target_arch = "x86_64")))]
const WAITS: [c_long; 2] = [libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];

/// The calls that ask for the current state of sockets.
#[cfg(all(target_os = "linux", target_arch = "x86_64"))]
const QUESTIONS: [c_long; 2] = [libc::SYS_poll, libc::SYS_ppoll];
#[cfg(all(target_os = "linux", not(target_arch = "x86_64")))]
const QUESTIONS: [c_long; 1] = [libc::SYS_ppoll];

/// Returns the error of a wait that must fail.
#[track_caller]
fn failure<K>(port: &Port<K, usize>, on: &System) -> Error {
    match port.wait(&mut Batch::new(), on.soon()) {
        Ok(packets) => panic!("{} packets, and no failure", packets.count()),
        Err(error) => error,
    }
}

#[track_caller]
fn assert_posted<K>(port: &Port<K, usize>, on: &System, message: usize) {
    match the_one(port, on) {
        Packet::Posted(posted) => assert_eq!(posted, message),
        _ => panic!("it is not the message"),
    }
}

/// Checks that each wait of this port fails with this code, except that queued packets come first.
fn fails_and_delivers_messages<K>(port: &Port<K, usize>, on: &System, code: i32) {
    let kind = match code {
        EPERM => ErrorKind::Unsupported,
        ENOMEM => ErrorKind::OutOfMemory,
        _ => ErrorKind::Other,
    };
    for _ in 0..2 {
        let error = failure(port, on);
        assert_eq!((error.call(), error.kind(), error.os_code()), (Call::Wait, kind, Some(code)));
    }
    // A queued message is delivered, and the next wait reports the refusal.
    for message in 0..3 {
        port.post(message).unwrap();
        assert_posted(port, on, message);
        assert_eq!(failure(port, on).os_code(), Some(code));
    }
    // A call that has applied its changes has not failed. The next one fails before it applies
    // anything.
    let (mut changes, mut batch) = (Changes::new(), Batch::new());
    assert_eq!(port.process(&mut changes, &mut batch, on.soon()).unwrap().count(), 0);
    let refusal = port.process(&mut changes, &mut batch, on.soon()).map(Iterator::count);
    assert_eq!(refusal.unwrap_err().os_code(), Some(code));
    // `has_packets` does not claim that nothing is queued.
    let looked = port.raw().has_packets(&mut batch);
    assert_eq!(looked.unwrap_err().os_code(), Some(code));
    port.post(7).unwrap();
    assert!(port.raw().has_packets(&mut batch).unwrap());
    assert_posted(port, on, 7);
}

/// Rule 75: each wait fails. Messages are delivered, and nothing is lost.
#[test]
fn a_wait_that_the_system_refuses_fails_sim() {
    for system in System::simulated_in_each_way() {
        for code in [EPERM, EINTR, ENOMEM] {
            let kernel = system.kernel().unwrap();
            let (ours, theirs) = system.unix_pair();
            let port: Port<(), usize> = system.port(1);
            port.register(one_shot(&ours, ())).unwrap();
            kernel.refuse_waits(Some(code));
            theirs.write(b"x").unwrap();
            fails_and_delivers_messages(&port, &system, code);
            kernel.refuse_waits(None);
            // The last wait returned a packet, and left its refusal to this one.
            assert_eq!(failure(&port, &system).os_code(), Some(code));
            the_token(&port, &system).rearm().unwrap();
        }
        system.assert_nothing_left();
    }
}

/// Rule 75: the same for the call that asks for the current state.
#[test]
fn a_wait_whose_questions_the_system_refuses_fails_sim() {
    for system in [System::simulated(), System::simulated_kqueue()] {
        for code in [EPERM, EINTR, ENOMEM] {
            let kernel = system.kernel().unwrap();
            let (ours, theirs) = system.unix_pair();
            let port: Port<(), usize> = system.port(1);
            port.register(one_shot(&ours, ())).unwrap();
            theirs.write(b"x").unwrap();
            let token = the_token(&port, &system);
            kernel.refuse_questions(Some(code));
            token.rearm().unwrap();
            fails_and_delivers_messages(&port, &system, code);
            kernel.refuse_questions(None);
            assert_eq!(failure(&port, &system).os_code(), Some(code));
            // It is still there, and comes once.
            let token = the_token(&port, &system);
            assert_eq!(ours.read(&mut [0; 4]).unwrap(), 1);
            token.rearm().unwrap();
            let left = port.wait(&mut Batch::new(), system.quiet()).unwrap().count();
            assert_eq!(left, 0);
        }
        system.assert_nothing_left();
    }
}

/// Rule 75: a thread that is not running on the port checks while it enables. The next wait reports
/// the refusal.
#[test]
fn who_arms_without_running_leaves_it_to_the_next_wait_sim() {
    for system in [System::simulated(), System::simulated_kqueue()] {
        let kernel = system.kernel().unwrap();
        {
            let (ours, theirs) = system.unix_pair();
            let port: Port<(), usize> = system.port(1);
            let id = port.register(one_shot(&ours, ())).unwrap();
            theirs.write(b"x").unwrap();
            drop(the_token(&port, &system).park());
            kernel.refuse_questions(Some(EPERM));
            thread::scope(|scope| {
                scope.spawn(|| port.enable(id, Interest::IN, OneShot::Level).unwrap());
            });
            assert_eq!(failure(&port, &system).os_code(), Some(EPERM));
            kernel.refuse_questions(None);
            while port.wait(&mut Batch::new(), system.quiet()).is_err() {}
            drop(the_token(&port, &system));
        }
        system.assert_nothing_left();
    }
}

/// Checks that a wait has ended with packets or with this refusal.
#[cfg(target_os = "linux")]
#[track_caller]
fn has_ended(told: Result<usize, Option<i32>>, code: i32) {
    match told {
        Ok(packets) => assert!(packets > 0),
        Err(refusal) => assert_eq!(refusal, Some(code)),
    }
}

/// Rule 75: every thread's wait fails, and operations continue when the system reports again.
#[test]
fn every_thread_is_told_that_the_system_refuses_sim() {
    for system in System::simulated_in_each_way() {
        let kernel = system.kernel().unwrap();
        system.several_threads_wait();
        {
            let (near, far) = system.unix_pair();
            let port = shared_on(&system);
            let id = port.associate_shared(Shared::new(near)).unwrap();
            port.start(id, Operation::recv(room(4))).unwrap();
            let (say, heard) = mpsc::channel();
            thread::scope(|scope| {
                for _ in 0..3 {
                    let (port, say) = (&port, say.clone());
                    scope.spawn(move || {
                        let mut batch = Batch::new();
                        let error = loop {
                            match port.wait(&mut batch, None) {
                                Ok(packets) => drop(packets.collect::<Vec<_>>()),
                                Err(error) => break error,
                            }
                        };
                        say.send(error.os_code()).unwrap();
                    });
                }
                settle(&system, &port, 3);
                kernel.refuse_waits(Some(EPERM));
                // The edge ends the wait that one thread had already entered. That thread and each
                // other one get the error.
                far.write(b"x").unwrap();
                for _ in 0..3 {
                    assert_eq!(hear(&system, &heard, "each wait fails"), Some(EPERM));
                }
            });
            kernel.refuse_waits(None);
            port.start(id, Operation::recv(room(4))).unwrap();
            far.write(b"x").unwrap();
            let mut left = Vec::new();
            while !left.contains(&"finished") {
                if let Ok(packets) = port.wait(&mut Batch::new(), system.soon()) {
                    left.extend(packets.map(|packet| crate::kit::operations::sort(&packet)));
                }
            }
        }
        system.assert_nothing_left();
    }
}

/// Runs the test `name` again for each code, in a process in which these calls fail with that code
/// from the start. Returns the code if this is such a process.
#[cfg(target_os = "linux")]
fn in_sandboxes(name: &str, calls: &[c_long], codes: &[i32]) -> Option<i32> {
    let code = sandbox::code();
    if code.is_none() {
        for code in codes {
            if let Err(error) = sandbox::run(name, calls, *code) {
                skipped(format_args!("no sandbox: {error}"));
            }
        }
    }
    code
}

/// Makes these calls fail in all threads of this process from now on. Returns false if the system
/// has no sandboxes.
#[cfg(target_os = "linux")]
fn refuse_from_now_on(calls: &[c_long], code: i32) -> bool {
    let done = sandbox::refuse_from_now_on(calls, code);
    if let Err(error) = &done {
        skipped(format_args!("no sandbox: {error}"));
    }
    done.is_ok()
}

/// Returns this system with each of its kinds of reactor.
#[cfg(target_os = "linux")]
fn each_way() -> [System; 2] {
    [System::native(), System::native().one_shot()]
}

/// Rule 75: the process may not wait on epoll sets.
#[cfg(target_os = "linux")]
#[test]
fn a_wait_that_the_system_refuses_from_the_start_fails_epoll() {
    let name = "refusals::a_wait_that_the_system_refuses_from_the_start_fails_epoll";
    let codes = [libc::EPERM, libc::EINVAL, libc::EINTR];
    let Some(code) = in_sandboxes(name, &WAITS, &codes) else { return };
    for system in each_way() {
        let (ours, theirs) = system.unix_pair();
        let port: Port<(), usize> = system.port(1);
        port.register(one_shot(&ours, ())).unwrap();
        theirs.write(b"x").unwrap();
        fails_and_delivers_messages(&port, &system, code);
    }
}

/// Rule 75: the refusal starts later, while threads wait.
#[cfg(target_os = "linux")]
#[test]
fn a_wait_that_the_system_refuses_later_fails_epoll() {
    let name = "refusals::a_wait_that_the_system_refuses_later_fails_epoll";
    if !in_a_process_of_its_own(name) {
        return;
    }
    let ports = each_way().map(|system| {
        let (ours, theirs) = system.unix_pair();
        let port: Port<(), usize> = system.port(1);
        port.register(one_shot(&ours, ())).unwrap();
        theirs.write(b"x").unwrap();
        let token = the_token(&port, &system);
        assert_eq!(ours.read(&mut [0; 4]).unwrap(), 1);
        token.rearm().unwrap();
        assert_eq!(port.wait(&mut Batch::new(), Duration::ZERO).unwrap().count(), 0);
        (system, port, ours, theirs)
    });
    let system = System::native();
    let waiting: Port<(), usize> = system.port(2);
    let (say, heard) = mpsc::channel();
    thread::scope(|scope| {
        for _ in 0..2 {
            let (waiting, say) = (&waiting, say.clone());
            scope.spawn(move || {
                let told = waiting.wait(&mut Batch::new(), None).map(Iterator::count);
                say.send(told.map_err(|error| error.os_code())).unwrap();
            });
        }
        settle(&system, &waiting, 2);
        if !refuse_from_now_on(&WAITS, libc::EPERM) {
            waiting.close();
            return;
        }
        // The thread in the kernel's wait has entered it before the refusal.
        for _ in 0..2 {
            waiting.post(1).unwrap();
            has_ended(hear(&system, &heard, "each wait ends"), libc::EPERM);
        }
        for (system, port, _, theirs) in &ports {
            theirs.write(b"x").unwrap();
            fails_and_delivers_messages(port, system, libc::EPERM);
        }
    });
}

/// Rule 75: the process may not query the current state of sockets.
#[cfg(target_os = "linux")]
#[test]
fn a_wait_whose_questions_the_system_refuses_fails_epoll() {
    let name = "refusals::a_wait_whose_questions_the_system_refuses_fails_epoll";
    // The standard library makes this call when a program starts, and tolerates these errors.
    let Some(code) = in_sandboxes(name, &QUESTIONS, &[libc::ENOMEM, libc::EINVAL]) else { return };
    questions_are_refused(&System::native(), || code);
}

/// Rule 75: the refusal starts later.
#[cfg(target_os = "linux")]
#[test]
fn a_wait_whose_questions_the_system_refuses_later_fails_epoll() {
    let name = "refusals::a_wait_whose_questions_the_system_refuses_later_fails_epoll";
    if !in_a_process_of_its_own(name) {
        return;
    }
    let system = System::native();
    // A call that no other code makes. A leak checker needs getppid(2), for instance.
    let has_sandboxes = refuse_from_now_on(&[libc::SYS_vhangup], libc::EPERM);
    if has_sandboxes {
        questions_are_refused(&system, || {
            assert!(refuse_from_now_on(&QUESTIONS, libc::EPERM));
            libc::EPERM
        });
    }
}

#[cfg(target_os = "linux")]
fn questions_are_refused(system: &System, refuse: impl FnOnce() -> i32) {
    let (ours, theirs) = system.unix_pair();
    let port: Port<(), usize> = system.port(1);
    port.register(one_shot(&ours, ())).unwrap();
    assert_eq!(theirs.write(b"x").unwrap(), 1);
    let token = the_token(&port, system);
    let code = refuse();
    token.rearm().unwrap();
    fails_and_delivers_messages(&port, system, code);
}

/// Rule 75: another call replaces the refused one.
#[cfg(target_os = "linux")]
#[test]
fn without_exact_waits_there_are_others_epoll() {
    let name = "refusals::without_exact_waits_there_are_others_epoll";
    let codes = [libc::ENOSYS, libc::EPERM, libc::EACCES, libc::EINVAL, libc::EINTR];
    if in_sandboxes(name, &[libc::SYS_epoll_pwait2], &codes).is_none() {
        return;
    }
    for system in each_way() {
        let (ours, theirs) = system.unix_pair();
        let port: Port<(), usize> = system.port(1);
        port.register(one_shot(&ours, ())).unwrap();
        let empty = port.wait(&mut Batch::new(), system.quiet()).unwrap().count();
        assert_eq!(empty, 0);
        theirs.write(b"x").unwrap();
        drop(the_token(&port, &system));
    }
}

/// Rule 75: if the system permanently refuses the call of a socket operation, the operation fails,
/// even if the error is usually transient.
#[cfg(target_os = "linux")]
#[test]
fn an_accept_that_the_system_refuses_fails_epoll() {
    let name = "refusals::an_accept_that_the_system_refuses_fails_epoll";
    // Without this call, musl makes others.
    let most = if cfg!(target_env = "musl") { 2 } else { 3 };
    let codes = &[libc::EINTR, libc::EPERM, libc::ENOSYS][..most];
    let Some(code) = in_sandboxes(name, &[libc::SYS_accept4], codes) else { return };
    for system in [System::native(), System::native().one_shot()] {
        let port = sockets_on(&system);
        let listener = system.tcp_listener(4);
        let address = listener.address();
        port.associate(listener).unwrap().accept().unwrap();
        let client = system.tcp_fresh();
        client.connect(&address).unwrap();
        let (_, outcome) = done(&port, &system);
        let error = outcome.error().unwrap();
        assert_eq!((error.call(), error.os_code()), (Call::Accept, Some(code)));
    }
}

/// Rule 75: the same for receives and sends.
#[cfg(target_os = "linux")]
#[test]
fn a_receive_or_send_that_the_system_refuses_fails_epoll() {
    let name = "refusals::a_receive_or_send_that_the_system_refuses_fails_epoll";
    let calls = [libc::SYS_recvfrom, libc::SYS_recvmsg, libc::SYS_sendto, libc::SYS_sendmsg];
    let Some(code) = in_sandboxes(name, &calls, &[libc::EINTR, libc::EPERM]) else { return };
    let system = System::native();
    let port = shared_on(&system);
    let (near, far) = system.unix_pair();
    let id = port.associate_shared(Shared::new(near)).unwrap();
    far.write(b"x").unwrap();
    for operation in [Operation::recv(room(4)), Operation::send_all(b"x".to_vec())] {
        port.start(id, operation).unwrap();
        let error = finished(&port, &system).error().unwrap();
        assert_eq!(error.os_code(), Some(code));
    }
}

/// Rule 75: files are read without the call that reads from the page cache.
#[cfg(target_os = "linux")]
#[test]
fn without_reads_at_once_files_are_read_epoll() {
    let name = "refusals::without_reads_at_once_files_are_read_epoll";
    let codes = [libc::EACCES, libc::EPERM, libc::ENOSYS, libc::EINTR, libc::ENOMEM, libc::EFAULT];
    if in_sandboxes(name, &[libc::SYS_preadv2], &codes).is_none() {
        return;
    }
    for system in crate::kit::files::native() {
        let port = sockets_on(&system);
        let mut token = port.associate(system.file(&page(100))).unwrap();
        for _ in 0..2 {
            token.read_at(room(100), 0).unwrap();
            let (back, outcome) = done(&port, &system);
            assert_eq!(read(outcome), Ok(page(100)));
            token = back;
        }
    }
}

/// Rule 75: a ring is tested before it is used.
#[cfg(target_os = "linux")]
#[test]
fn where_a_ring_can_be_made_and_not_used_threads_do_it_epoll() {
    let name = "refusals::where_a_ring_can_be_made_and_not_used_threads_do_it_epoll";
    let codes = [libc::EPERM, libc::ENOSYS, libc::EINVAL, libc::EINTR, libc::EBUSY, libc::EAGAIN];
    if in_sandboxes(name, &[libc::SYS_io_uring_enter], &codes).is_none() {
        return;
    }
    let port = Port::builder().file_engine(FileEngine::Ring).build::<(), ()>();
    assert_eq!(refused(port), ErrorKind::Unsupported);
    let system = System::native();
    let port = sockets_on(&system);
    let token = port.associate(system.file(b"")).unwrap();
    token.write_at(b"written".to_vec(), 0).unwrap();
    let (token, outcome) = done(&port, &system);
    assert_eq!(written(&outcome), Ok(7));
    token.sync_all().unwrap();
    drop(done(&port, &system));
    assert_eq!(port.stats().file_engine, "threads");
    drop(port);
    eventually(&system, "no thread of a ring is left", || !has_thread("port-ring"));
}

/// Rule 75: a ring that the kernel refuses later passes its work to threads. Operations that the
/// kernel already has end when they are done.
#[cfg(target_os = "linux")]
#[test]
fn a_ring_that_is_refused_later_gives_its_work_to_threads_epoll() {
    let name = "refusals::a_ring_that_is_refused_later_gives_its_work_to_threads_epoll";
    if !in_a_process_of_its_own(name) {
        return;
    }
    let system = System::native_with_ring();
    if !system.has_its_file_engine() {
        return skipped("this process may not use io_uring");
    }
    let system = System::native();
    let port: Port<SharedSource<fs::File>, u32> = system.port(1);
    let (mut ids, mut writers) = (Vec::new(), Vec::new());
    for _ in 0..3 {
        let (reader, writer) = std::io::pipe().unwrap();
        let reader = fs::File::from(std::os::fd::OwnedFd::from(reader));
        ids.push(port.associate_shared(SharedSource::new(reader)).unwrap());
        writers.push(fs::File::from(std::os::fd::OwnedFd::from(writer)));
    }
    let mut reads = Vec::new();
    for id in &ids {
        reads.push(port.start(*id, Operation::read_at(room(1), 0)).unwrap());
    }
    // When the kernel has done a later write, it has them too.
    let scratch = fs::File::from(system.file(b"").descriptor().try_clone_to_owned().unwrap());
    let file = port.associate_shared(SharedSource::new(scratch)).unwrap();
    port.start(file, Operation::write_at(b"one".to_vec(), 0)).unwrap();
    drop(finished(&port, &system));
    assert_eq!(port.stats().file_engine, "io_uring");
    if !refuse_from_now_on(&[libc::SYS_io_uring_enter], libc::EPERM) {
        return;
    }
    // Threads perform later operations.
    for _ in 0..20 {
        port.start(file, Operation::write_at(b"two".to_vec(), 0)).unwrap();
        assert_eq!(finished(&port, &system).error(), None);
    }
    port.start(file, Operation::sync_all()).unwrap();
    assert_eq!(finished(&port, &system).error(), None);
    port.start(file, Operation::read_at(room(3), 0)).unwrap();
    assert_eq!(read(finished(&port, &system).into_parts().1), Ok(b"two".to_vec()));
    assert_eq!(port.stats().file_engine, "threads");
    // The kernel has these, and can't be asked to cancel the first. It ends when its bytes arrive.
    assert!(port.cancel(reads[0]).unwrap());
    assert_eq!(port.wait(&mut Batch::new(), system.quiet()).unwrap().count(), 0);
    for (place, bytes) in [b"a", b"b"].into_iter().enumerate() {
        std::io::Write::write_all(&mut &writers[place], bytes).unwrap();
        let came = finished(&port, &system);
        assert_eq!(came.operation(), reads[place]);
        assert_eq!(read(came.into_parts().1), Ok(bytes.to_vec()));
    }
    // The last operation outlives its port, and ends with its pipe.
    drop(port);
    assert!(has_thread("port-ring"));
    drop(writers);
    eventually(&system, "no thread is left", || {
        !has_thread("port-ring") && !has_thread("port-files")
    });
}

/// Rule 75: if a ring was requested, operations fail with the kernel's code.
#[cfg(target_os = "linux")]
#[test]
fn a_ring_that_was_asked_for_and_is_refused_later_fails_operations_epoll() {
    let name = "refusals::a_ring_that_was_asked_for_and_is_refused_later_fails_operations_epoll";
    if !in_a_process_of_its_own(name) {
        return;
    }
    let system = System::native_with_ring();
    if !system.has_its_file_engine() {
        return skipped("this process may not use io_uring");
    }
    let port = shared_on(&system);
    let id = port.associate_shared(Shared::new(system.file(b""))).unwrap();
    let start = || port.start(id, Operation::write_at(b"bytes".to_vec(), 0)).unwrap();
    start();
    assert_eq!(finished(&port, &system).error(), None);
    if !refuse_from_now_on(&[libc::SYS_io_uring_enter], libc::EPERM) {
        return;
    }
    for _ in 0..20 {
        start();
        let error = finished(&port, &system).error().unwrap();
        assert_eq!((error.call(), error.os_code()), (Call::Write, Some(libc::EPERM)));
    }
    drop(port);
    eventually(&system, "no thread is left", || !has_thread("port-ring"));
}

/// Returns whether this process has a thread with this name.
#[cfg(target_os = "linux")]
fn has_thread(name: &str) -> bool {
    let tasks = fs::read_dir("/proc/self/task").unwrap();
    tasks.filter_map(Result::ok).any(|task| {
        // The thread may have exited meanwhile.
        let named = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
        named.trim_end() == name
    })
}
