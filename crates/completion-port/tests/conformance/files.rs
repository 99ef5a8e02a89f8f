//! Rules 67 to 71: files are associated, read, written and synchronised.

use std::fs::File;
#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::mpsc;
use std::thread;

use completion_port::{
    Batch, Call, Error, ErrorKind, FileEngine, Interest, OneShot, Operation, Outcome, Packet,
    Persistent, Port, Registration, Started, sim,
};
#[cfg(target_os = "linux")]
use completion_port::{FileSource, Span};
#[cfg(target_os = "linux")]
use testkit::{BLOCK, skipped};
use testkit::{Socket, System, lacking, on_every_file_system};

use crate::kit::codes;
#[cfg(target_os = "linux")]
use crate::kit::files::{hanging_disk, native};
use crate::kit::files::{page, read, synced, written};
use crate::kit::operations::{
    MILLISECOND, Shared, all, bytes, done, finished, next, outcome, room, shared_on, silent,
    sockets_on, sort, why,
};
use crate::kit::packets::{each_packet, given_back, refused};
use crate::kit::threads::{End, hear, settle};

on_every_file_system! {
    /// Rule 67.
    fn a_file_is_associated_and_is_never_ready(system: &System) {
        let port = sockets_on(system);
        let token = port.associate(system.file(b"bytes")).unwrap();
        silent(&port, system);
        for (interest, trigger) in
            [(Interest::IN, OneShot::Level), (Interest::HANGUP, OneShot::Edge)]
        {
            let token = port.associate(system.file(b"")).unwrap();
            let (error, file) = token.rearm_as(interest, trigger).unwrap_err().into_parts();
            assert_eq!((error.call(), error.kind()), (Call::Rearm, ErrorKind::NotPollable));
            // The association has ended, so the file may get another.
            drop(port.associate(file).unwrap());
        }
        let token = port.associate(token.into_key()).unwrap();
        assert_eq!(given_back(token.rearm()).0, ErrorKind::NotPollable);
        silent(&port, system);
        assert_eq!(port.stats().registered, 0);
    }

    /// Rule 67: enabling by id fails too. Parking is allowed.
    fn a_file_is_not_enabled_by_name(system: &System) {
        let port = shared_on(system);
        let id = port.associate_shared(Shared::new(system.file(b""))).unwrap();
        let enabled = port.enable(id.id(), Interest::IN, Persistent::Level);
        assert_eq!(refused(enabled), ErrorKind::NotPollable);
        assert_eq!(refused(port.enable_also(id.id(), Interest::IN)), ErrorKind::NotPollable);
        let parked = port.associate(Shared::new(system.file(b"x"))).unwrap().park().unwrap();
        let enabled = port.enable(parked, Interest::IN, OneShot::Level);
        assert_eq!(refused(enabled), ErrorKind::NotPollable);
        assert!(port.remove_and_wait(parked, None).is_ok());
        silent(&port, system);
    }

    /// Rule 67: registering a file for readiness is still refused.
    fn a_file_is_not_registered(system: &System) {
        let port = sockets_on(system);
        let file = system.file(b"");
        let registration = Registration::owned(file, Interest::IN, OneShot::Level);
        let (error, file) = port.register(registration).unwrap_err().into_parts();
        assert_eq!(error.kind(), ErrorKind::NotPollable);
        drop(port.associate(file).unwrap());
    }

    /// Rule 67: a second association fails, on this port or another one.
    fn a_file_is_associated_once(system: &System) {
        let port = shared_on(system);
        let other = shared_on(system);
        let file = Shared::new(system.file(b"bytes"));
        let id = port.associate_shared(file.clone()).unwrap();
        assert_eq!(port.id_of(&*file), Some(id.id()));
        let here = port.associate_shared(file.clone()).unwrap_err().error();
        assert_eq!(
            (here.kind(), here.registration(), here.is_on_another_port()),
            (ErrorKind::AlreadyRegistered, Some(id.id()), false)
        );
        let there = other.associate(file.clone()).map(drop).unwrap_err().error();
        assert_eq!(
            (there.kind(), there.is_on_another_port()),
            (ErrorKind::AlreadyRegistered, true)
        );
        port.remove(id.id()).unwrap();
        assert!(matches!(next(&port, system), Packet::Removed(..)));
        drop(other.associate(file).unwrap());
    }

    /// Rule 67: socket operations fail, and the association continues.
    fn a_file_is_no_socket(system: &System) {
        system.not_on_wine("error code for a file that is not a socket");
        let port = sockets_on(system);
        let mut token = port.associate(system.file(b"bytes")).unwrap();
        for operation in [Operation::recv(room(4)), Operation::send(b"x".to_vec()), Operation::accept()] {
            token.start(operation).unwrap();
            let (back, outcome) = done(&port, system);
            assert_eq!(outcome.error().and_then(|error| error.os_code()), Some(codes::ENOTSOCK));
            token = back;
        }
        token.read_at(room(5), 0).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(read(outcome), Ok(b"bytes".to_vec()));
        assert_eq!(given_back(token.rearm()).0, ErrorKind::NotPollable);
    }

    /// Rule 68: it reads until the buffer is full or the file ends.
    fn a_read_begins_where_it_is_told_to(system: &System) {
        let port = sockets_on(system);
        let mut token = port.associate(system.file(b"some bytes")).unwrap();
        for (offset, len, wanted) in [
            (0, 4, &b"some"[..]),
            (5, 5, b"bytes"),
            (5, 100, b"bytes"),
            (10, 4, b""),
            (1000, 4, b""),
            (3, 0, b""),
        ] {
            let buffer: Vec<u8> = vec![b'?'; len];
            let has_room = buffer.capacity();
            token.read_at(buffer, offset).unwrap();
            let (back, outcome) = done(&port, system);
            let Outcome::Read(Ok(count), buffer) = outcome else { panic!("{outcome:?}") };
            assert!(count <= has_room);
            assert_eq!((count, buffer.as_slice()), (wanted.len(), wanted), "at {offset}");
            token = back;
        }
    }

    /// Rule 68: it writes the whole buffer, and leaves the rest of the file unchanged.
    fn a_write_begins_where_it_is_told_to(system: &System) {
        let port = sockets_on(system);
        let token = port.associate(system.file(b"some bytes")).unwrap();
        token.write_at(b"SOME".to_vec(), 0).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(written(&outcome), Ok(4));
        assert_eq!(outcome.into_buffer(), Some(b"SOME".to_vec()));
        token.write_at(b"more".to_vec(), 12).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(written(&outcome), Ok(4));
        token.write_at(Vec::new(), 100).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(written(&outcome), Ok(0));
        assert_eq!(system.contents(token.key()), b"SOME bytes\0\0more");
    }

    /// Rule 68: buffers may have many parts.
    fn files_are_read_and_written_in_parts(system: &System) {
        let port: Port<Socket, u32, Vec<Box<[u8]>>> = system.port_with_buffers(1);
        for (count, cached) in [(3, true), (100, true), (2000, true), (3, false), (2000, false)] {
            let all = page(count * 5);
            let file = system.file(b"");
            let parts: Vec<Box<[u8]>> = all.chunks(5).map(Box::from).collect();
            port.associate(file).unwrap().write_at(parts, 7).unwrap();
            let (token, outcome) = done(&port, system);
            assert_eq!(written(&outcome), Ok(all.len()));
            if !cached {
                system.set_cached(token.key(), 0);
            }
            let parts: Vec<Box<[u8]>> = (0..count).map(|_| Box::from([0; 5])).collect();
            token.read_at(parts, 7).unwrap();
            let (_, outcome) = done(&port, system);
            let Outcome::Read(Ok(read), parts) = outcome else { panic!("{outcome:?}") };
            assert_eq!((read, parts.concat()), (all.len(), all));
        }
    }

    /// Rule 68: the file continues after its cached part.
    fn a_read_goes_on_behind_what_is_in_memory(system: &System) {
        let port = sockets_on(system);
        let all = page(8 * 4096);
        let file = system.file(&all);
        system.set_cached(&file, 3 * 4096);
        if system.kernel().is_none() {
            let cached = system.cached_from(&file, 4096, 8 * 4096);
            if cached == 0 || cached >= 7 * 4096 {
                lacking("file system here that drops part of a file from its cache");
            }
        }
        // It can't complete immediately, although a part of it could.
        let token = port.associate(file).unwrap();
        match token.start_now(Operation::read_at(room(6 * 4096), 4096)).unwrap() {
            Started::InFlight(_) => {}
            Started::Completed(finished) => panic!("{finished:?}"),
        }
        assert_eq!(read(outcome(&port, system)), Ok(all[4096..7 * 4096].to_vec()));
    }

    /// Rule 68: the file then ends where it was truncated.
    fn a_file_may_be_cut_off_meanwhile(system: &System) {
        let port = shared_on(system);
        let all = page(4 * 4096);
        let file = Shared::new(system.file(&all));
        let id = port.associate_shared(file.clone()).unwrap();
        system.set_cached(&file, 4096);
        system.set_length(&file, 2 * 4096 + 10);
        port.start(id, Operation::read_at(room(4 * 4096), 0)).unwrap();
        assert_eq!(read(outcome(&port, system)), Ok(all[..2 * 4096 + 10].to_vec()));
        system.set_length(&file, 0);
        port.start(id, Operation::read_at(room(10), 4096)).unwrap();
        assert_eq!(read(outcome(&port, system)), Ok(Vec::new()));
    }

    /// Rule 68: the file is truncated during a read. The bytes read before that are a prefix of the
    /// former contents.
    fn a_file_may_be_cut_off_while_it_is_read(system: &System) {
        const COUNT: usize = 32;
        const LEN: usize = 16 * 4096;
        let port = shared_on(system);
        let bytes = page(COUNT * LEN);
        let file = Shared::new(system.file(&bytes));
        let id = port.associate_shared(file.clone()).unwrap();
        system.set_cached(&file, 0);
        if let Some(kernel) = system.kernel() {
            kernel.script_files(sim::FileScript::Begun);
            for (length, stays) in [(2 * 4096 + 10, &bytes[4096..2 * 4096 + 10]), (0, &[])] {
                system.set_cached(&file, 0);
                port.start(id, Operation::read_at(room(4 * 4096), 4096)).unwrap();
                system.set_length(&file, length);
                assert_eq!(kernel.release_files(), 1);
                assert_eq!(read(outcome(&port, system)), Ok(stays.to_vec()));
            }
            return;
        }
        let mut names = Vec::new();
        for number in 0..COUNT {
            let operation = Operation::read_at(room(LEN), (number * LEN) as u64);
            names.push(port.start(id, operation).unwrap());
        }
        let length = COUNT * LEN / 2 + 7;
        system.set_length(&file, length);
        for packet in all(&port, system, COUNT) {
            let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
            let number = names.iter().position(|name| *name == finished.operation()).unwrap();
            let at = number * LEN;
            let came = read(finished.into_parts().1).unwrap();
            let stays = length.saturating_sub(at).min(LEN);
            assert!((stays..=LEN).contains(&came.len()), "{} bytes at {at}", came.len());
            // Truncation zeroes the rest of the last page.
            let is_right = |(place, byte): (usize, &u8)| {
                *byte == bytes[at + place] || (place >= stays && *byte == 0)
            };
            assert!(came.iter().enumerate().all(is_right), "at {at}");
        }
        drop(port.remove_and_wait(id.id(), None).unwrap());
    }

    /// Rule 68: the error also reports how much was transferred before.
    fn what_a_file_does_not_allow_is_the_outcome(system: &System) {
        let port = sockets_on(system);
        let mut token = port.associate(system.file(b"some bytes")).unwrap();
        // Beyond the maximum offset of any file.
        let far = i64::MAX.unsigned_abs() + 1;
        for (operation, call) in [
            (Operation::read_at(room(4), far), Call::Read),
            (Operation::write_at(b"x".to_vec(), u64::MAX), Call::Write),
        ] {
            token.start(operation).unwrap();
            let (back, outcome) = done(&port, system);
            token = back;
            let error = outcome.error().unwrap();
            assert_eq!((error.call(), error.kind()), (call, ErrorKind::Other));
            assert_eq!(error.transferred(), 0);
            let kind = std::io::Error::from(error).kind();
            assert_eq!(kind, std::io::ErrorKind::InvalidInput);
        }
        token.read_at(room(4), 0).unwrap();
        let (_, outcome) = done(&port, system);
        assert_eq!(read(outcome), Ok(b"some".to_vec()));
    }

    /// Rule 69: the call that starts it reads it. There is a packet nevertheless, except with
    /// `start_now`.
    fn what_is_in_memory_is_read_at_once(system: &System) {
        let port = sockets_on(system);
        let token = port.associate(system.file(b"bytes")).unwrap();
        if system.kernel().is_none() && system.cached_from(token.key(), 0, 5) < 5 {
            lacking("file system here that reports what it has cached");
        }
        let started = token.start_now(Operation::read_at(room(5), 0)).unwrap();
        let Started::Completed((token, now)) = started else { panic!("it is in memory") };
        assert_eq!(read(now), Ok(b"bytes".to_vec()));
        silent(&port, system);
        token.start(Operation::read_at(room(2), 0)).unwrap();
        assert_eq!(read(outcome(&port, system)), Ok(b"by".to_vec()));
        let shared = shared_on(system);
        let id = shared.associate_shared(Shared::new(system.file(b"bytes"))).unwrap();
        let started = shared.start_now(id, Operation::read_at(room(5), 0)).unwrap();
        let Started::Completed(now) = started else { panic!("it is in memory") };
        assert_eq!(read(now), Ok(b"bytes".to_vec()));
        silent(&shared, system);
        assert!(shared.remove_and_wait(id.id(), None).is_ok());
    }

    /// Rule 69: neither socket packets nor messages are delayed.
    fn an_operation_that_hangs_holds_up_no_other_packet(system: &System) {
        let port = shared_on(system);
        let (file, hanging) = system.hanging();
        let id = port.associate_shared(Shared::new(file)).unwrap();
        let (near, far) = system.tcp_pair();
        let socket = port.associate_shared(Shared::new(near)).unwrap();
        port.start(id, Operation::read_at(room(1), 0)).unwrap();
        for round in 0..100_u32 {
            port.start(socket, Operation::recv(room(1))).unwrap();
            far.write(b"x").unwrap();
            assert_eq!(bytes(finished(&port, system).into_parts().1), b"x");
            port.post(round).unwrap();
            assert!(matches!(next(&port, system), Packet::Posted(message) if message == round));
        }
        hanging.release();
        let finished = finished(&port, system);
        assert_eq!(finished.id(), id);
        assert_eq!(read(finished.into_parts().1), Ok(b"x".to_vec()));
    }

    /// Rule 69: a waiting thread is woken.
    fn the_end_of_an_operation_wakes_a_thread(system: &System) {
        system.several_threads_wait();
        let port = shared_on(system);
        let (file, hanging) = system.hanging();
        let id = port.associate_shared(Shared::new(file)).unwrap();
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            let _end = End::of(&port, []);
            scope.spawn(|| {
                let say = say;
                each_packet(&port, Batch::new(), |packet| {
                        say.send(sort(&packet)).unwrap();
                });
            });
            settle(system, &port, 1);
            port.start(id, Operation::read_at(room(1), 0)).unwrap();
            hanging.release();
            assert_eq!(hear(system, &heard, "it ends"), "finished");
        });
    }

    /// Rule 70.
    fn a_file_is_put_on_the_disk(system: &System) {
        let port = sockets_on(system);
        let token = port.associate(system.file(b"")).unwrap();
        token.write_at(b"bytes".to_vec(), 0).unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(written(&outcome), Ok(5));
        token.sync_data().unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(synced(&outcome), Ok(()));
        assert!(outcome.into_buffer().is_none());
        token.sync_all().unwrap();
        let (token, outcome) = done(&port, system);
        assert_eq!(synced(&outcome), Ok(()));
        assert_eq!(system.contents(token.key()), b"bytes");
        // Also through a `SharedId`.
        let port = shared_on(system);
        let id = port.associate_shared(Shared::new(system.file(b"bytes"))).unwrap();
        for operation in [Operation::sync_data, Operation::sync_all] {
            let name = port.start(id, operation()).unwrap();
            let finished = finished(&port, system);
            assert_eq!((finished.id(), finished.operation()), (id, name));
            assert_eq!(synced(&finished.into_parts().1), Ok(()));
        }
    }

    /// Rule 71.
    fn many_operations_of_one_file_are_in_flight(system: &System) {
        const COUNT: usize = 600;
        let port = shared_on(system);
        let file = Shared::new(system.file(b""));
        let id = port.associate_shared(file.clone()).unwrap();
        for number in 0..COUNT {
            let bytes = u16::try_from(number).unwrap().to_ne_bytes().to_vec();
            port.start(id, Operation::write_at(bytes, 2 * number as u64)).unwrap();
        }
        for packet in all(&port, system, COUNT) {
            let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
            assert_eq!(written(&finished.into_parts().1), Ok(2));
        }
        system.set_cached(&file, 0);
        let mut names = Vec::new();
        for number in 0..COUNT {
            names.push(port.start(id, Operation::read_at(vec![0; 2], 2 * number as u64)).unwrap());
        }
        let mut seen = vec![false; COUNT];
        for packet in all(&port, system, COUNT) {
            let Packet::SharedCompleted(finished) = packet else { panic!("{}", sort(&packet)) };
            let place = names.iter().position(|name| *name == finished.operation()).unwrap();
            assert!(!std::mem::replace(&mut seen[place], true), "one packet each");
            let buffer = read(finished.into_parts().1).unwrap();
            assert_eq!(buffer[..2], u16::try_from(place).unwrap().to_ne_bytes());
        }
        drop(port.remove_and_wait(id.id(), None).unwrap());
    }

    /// Rule 71: it does not wait for one that was started earlier.
    fn an_operation_overtakes_one_that_hangs(system: &System) {
        let port = shared_on(system);
        let (file, hanging) = system.hanging();
        let id = port.associate_shared(Shared::new(file)).unwrap();
        let slow = port.start(id, Operation::read_at(room(1), 0)).unwrap();
        if let Some(kernel) = system.kernel() {
            kernel.script_files(sim::FileScript::Begun);
        }
        // On a pipe it fails, which is also an outcome.
        port.start(id, Operation::read_at(Vec::new(), 0)).unwrap();
        let quick = finished(&port, system);
        assert_ne!(quick.operation(), slow);
        drop(quick);
        hanging.release();
        assert_eq!(finished(&port, system).operation(), slow);
    }

    /// Rule 71: any number of operations may never end.
    fn reads_of_a_silent_pipe_hold_up_no_disk(system: &System) {
        // More than fit in a ring.
        const HANGING: usize = 300;
        // The number that the pool's threads perform at the same time.
        const BEGUN: usize = 8;
        if system.kernel().is_some() {
            // It begins the operations that its script selects.
            return;
        }
        let port = shared_on(system);
        let (pipe, hanging) = system.hanging();
        let pipe = port.associate_shared(Shared::new(pipe)).unwrap();
        for _ in 0..HANGING {
            port.start(pipe, Operation::read_at(room(1), 0)).unwrap();
        }
        hanging.await_begun(BEGUN);
        silent(&port, system);
        let file = Shared::new(system.file(&page(4096)));
        let id = port.associate_shared(file.clone()).unwrap();
        for _ in 0..20 {
            port.start(id, Operation::write_at(b"bytes".to_vec(), 0)).unwrap();
            assert_eq!(written(&finished(&port, system).into_parts().1), Ok(5));
            system.set_cached(&file, 0);
            port.start(id, Operation::read_at(room(5), 0)).unwrap();
            assert_eq!(read(finished(&port, system).into_parts().1), Ok(b"bytes".to_vec()));
            port.start(id, Operation::sync_data()).unwrap();
            assert_eq!(synced(&finished(&port, system).into_parts().1), Ok(()));
        }
        silent(&port, system);
    }
}

/// A port whose keys are standard library files.
#[cfg(target_os = "linux")]
fn files_on(on: &System) -> Port<File, u32> {
    on.port(1)
}

/// Returns the error of an operation on the file at `path`.
#[track_caller]
#[cfg(target_os = "linux")]
fn failure(system: &System, path: &str, operation: Operation) -> Error {
    let port = files_on(system);
    let file = File::options().read(true).write(true).open(path).unwrap();
    port.associate(file).unwrap().start(operation).unwrap();
    let (_, outcome) = done(&port, system);
    outcome.error().unwrap_or_else(|| panic!("{outcome:?}"))
}

/// Rule 68: the disk is full.
#[cfg(target_os = "linux")]
#[test]
fn a_write_without_room_says_so_epoll() {
    for system in native() {
        let error = failure(&system, "/dev/full", Operation::write_at(b"bytes".to_vec(), 0));
        assert_eq!((error.call(), error.os_code()), (Call::Write, Some(libc::ENOSPC)));
        assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::StorageFull);
    }
}

/// Rule 68: the disk fails. No page of this process is at address zero.
#[cfg(target_os = "linux")]
#[test]
fn a_read_that_fails_says_so_epoll() {
    for system in native() {
        for (operation, call) in [
            (Operation::read_at(room(8), 0), Call::Read),
            (Operation::write_at(b"bytes".to_vec(), 0), Call::Write),
        ] {
            let error = failure(&system, "/proc/self/mem", operation);
            assert_eq!((error.call(), error.os_code()), (call, Some(libc::EIO)));
            assert_eq!(error.transferred(), 0);
        }
    }
}

/// Returns a part of a box, filled with `byte`, that begins `behind` bytes after a block boundary.
#[cfg(target_os = "linux")]
fn span(behind: usize, len: usize, byte: u8) -> Span {
    let bytes = vec![byte; len + 2 * BLOCK].into_boxed_slice();
    let start = bytes.as_ptr().align_offset(BLOCK) + behind;
    Span::new(bytes, start..start + len)
}

/// Returns the bytes of such a part.
#[cfg(target_os = "linux")]
fn bytes_of(span: Span) -> Vec<u8> {
    let range = span.range();
    span.into_inner()[range].to_vec()
}

/// Returns the contents of a file that bypasses the cache.
#[cfg(target_os = "linux")]
fn contents(file: &Socket) -> Vec<u8> {
    use std::os::fd::AsRawFd;
    std::fs::read(format!("/proc/self/fd/{}", file.descriptor().as_raw_fd())).unwrap()
}

/// Rule 68: operations that bypass the cache require offsets, lengths and memory aligned to a
/// block. Otherwise they fail and return the buffer.
#[cfg(target_os = "linux")]
#[test]
fn what_is_not_aligned_says_so_epoll() {
    for system in native() {
        let mut all = page(3 * BLOCK);
        let Some(file) = system.direct_file(&all) else {
            return skipped("no file system here requires aligned blocks");
        };
        let port: Port<Socket, u32, Span> = system.port_with_buffers(1);
        let mut token = port.associate(file).unwrap();
        for (behind, len, offset) in [
            (0, BLOCK, 0),
            (0, 2 * BLOCK, BLOCK),
            (0, BLOCK, 1),
            (0, BLOCK - 1, 0),
            (1, BLOCK, 0),
            (1, BLOCK - 1, 1),
            (0, BLOCK, 2 * BLOCK),
        ] {
            let is_aligned =
                [behind, len, offset].iter().all(|number| number.is_multiple_of(BLOCK));
            let what = format!("{len} bytes at {offset}, {behind} behind a boundary");
            token.read_at(span(behind, len, b'?'), offset as u64).unwrap();
            let (back, outcome) = done(&port, &system);
            assert_ne!(port.stats().file_engine, "none", "it is not tried at once");
            let Outcome::Read(result, buffer) = outcome else { panic!("{outcome:?}") };
            assert_eq!(buffer.range().len(), len);
            if is_aligned {
                assert_eq!(result, Ok(len), "{what}");
                assert!(bytes_of(buffer) == all[offset..offset + len], "{what}");
            } else {
                assert_not_aligned(result, Call::Read, &what);
            }
            back.write_at(span(behind, len, b'!'), offset as u64).unwrap();
            let (back, outcome) = done(&port, &system);
            let Outcome::Written(result, buffer) = outcome else { panic!("{outcome:?}") };
            assert!(bytes_of(buffer) == vec![b'!'; len], "{what}");
            if is_aligned {
                assert_eq!(result, Ok(len), "{what}");
                all[offset..offset + len].fill(b'!');
                assert!(contents(back.key()) == all, "{what}");
            } else {
                assert_not_aligned(result, Call::Write, &what);
                // The part that the system transferred before it failed stays.
                all = contents(back.key());
            }
            token = back;
        }
    }
}

/// Rule 68: each part of a buffer must be aligned.
#[cfg(target_os = "linux")]
#[test]
fn a_part_that_is_not_aligned_says_so_epoll() {
    for system in native() {
        let all = page(3 * BLOCK);
        let Some(file) = system.direct_file(&all) else {
            return skipped("no file system here requires aligned blocks");
        };
        let port: Port<Socket, u32, [Span; 2]> = system.port_with_buffers(1);
        let parts = |behind| [span(0, BLOCK, b'?'), span(behind, 2 * BLOCK, b'?')];
        port.associate(file).unwrap().read_at(parts(0), 0).unwrap();
        let (token, outcome) = done(&port, &system);
        let Outcome::Read(Ok(len), buffer) = outcome else { panic!("{outcome:?}") };
        assert_eq!(len, all.len());
        assert!(buffer.map(bytes_of).concat() == all);
        token.read_at(parts(1), 0).unwrap();
        let (_, outcome) = done(&port, &system);
        assert_eq!(outcome.error().unwrap().os_code(), Some(libc::EINVAL));
    }
}

#[track_caller]
#[cfg(target_os = "linux")]
fn assert_not_aligned(result: Result<usize, Error>, call: Call, what: &str) {
    let error = result.expect_err(what);
    assert_eq!((error.call(), error.os_code()), (call, Some(libc::EINVAL)), "{what}");
    assert_eq!((error.kind(), error.transferred()), (ErrorKind::Other, 0), "{what}");
    assert_eq!(std::io::Error::from(error).kind(), std::io::ErrorKind::InvalidInput);
}

/// Rule 68: a file that bypasses the cache may end within a block, and so does a read.
#[cfg(target_os = "linux")]
#[test]
fn what_is_read_in_blocks_ends_with_its_file_epoll() {
    for system in native() {
        let all = page(2 * BLOCK);
        for end in [BLOCK + 1, BLOCK + 512, BLOCK + 513, 2 * BLOCK - 1, 2 * BLOCK] {
            let Some(file) = system.direct_file(&all) else {
                return skipped("no file system here requires aligned blocks");
            };
            system.set_length(&file, end);
            let port: Port<Socket, u32, Span> = system.port_with_buffers(1);
            let mut token = port.associate(file).unwrap();
            for (blocks, offset) in [(1, BLOCK), (2, 0), (3, 0), (8, BLOCK), (1, 2 * BLOCK)] {
                token.read_at(span(0, blocks * BLOCK, b'?'), offset as u64).unwrap();
                let (back, outcome) = done(&port, &system);
                let Outcome::Read(result, buffer) = outcome else { panic!("{outcome:?}") };
                let what = format!("{blocks} blocks at {offset} of {end} bytes");
                let came = (end - offset.min(end)).min(blocks * BLOCK);
                assert_eq!(result, Ok(came), "{what}");
                assert!(bytes_of(buffer)[..came] == all[end.min(offset)..][..came], "{what}");
                token = back;
            }
            // Writing the whole block extends the file.
            token.write_at(span(0, BLOCK, b'!'), BLOCK as u64).unwrap();
            let (token, outcome) = done(&port, &system);
            assert_eq!(written(&outcome), Ok(BLOCK));
            assert!(contents(token.key()) == [&all[..BLOCK], &[b'!'; BLOCK]].concat());
        }
    }
}

/// Rule 68: a read ends at the first end it finds, even if the file grows meanwhile, since no read
/// can continue within a block.
#[cfg(target_os = "linux")]
#[test]
fn a_file_may_grow_while_it_is_read_in_blocks_epoll() {
    const END: u32 = 4096 + 100;
    let name = "files::a_file_may_grow_while_it_is_read_in_blocks_epoll";
    let Some(disk) = hanging_disk(name, END) else { return };
    let system = System::native_with_threads();
    let all = page(END as usize);
    let Some(file) = system.direct_file(&all) else {
        return skipped("no file system here requires aligned blocks");
    };
    let file = Shared::new(file);
    let port: Port<Shared, u32, Span> = system.port_with_buffers(1);
    port.associate(file.clone()).unwrap().read_at(span(0, 3 * BLOCK, b'?'), 0).unwrap();
    // The existing data has been read, and the thread looks for more.
    let hanging = disk.await_read();
    system.set_length(&file, 4 * BLOCK);
    hanging.release();
    let (_, outcome) = done(&port, &system);
    let Outcome::Read(Ok(came), buffer) = outcome else { panic!("{outcome:?}") };
    assert_eq!(came, END as usize);
    assert!(bytes_of(buffer)[..came] == all);
}

/// Rule 68: the file position is neither used nor changed.
#[cfg(target_os = "linux")]
#[test]
fn the_position_of_a_file_stays_epoll() {
    use std::io::{Seek, SeekFrom};
    for system in native() {
        let port = shared_on(&system);
        let file = Shared::new(system.file(b"some bytes"));
        let mut same = File::from(file.descriptor().try_clone_to_owned().unwrap());
        same.seek(SeekFrom::Start(3)).unwrap();
        let id = port.associate_shared(file).unwrap();
        port.start(id, Operation::write_at(b"SOME".to_vec(), 0)).unwrap();
        assert_eq!(written(&outcome(&port, &system)), Ok(4));
        port.start(id, Operation::read_at(room(10), 0)).unwrap();
        assert_eq!(read(outcome(&port, &system)), Ok(b"SOME bytes".to_vec()));
        assert_eq!(same.stream_position().unwrap(), 3);
    }
}

/// Rule 68: a file without positions is read and written as a stream.
#[cfg(target_os = "linux")]
#[test]
fn what_has_no_positions_is_read_as_it_stands_epoll() {
    for system in native() {
        let port = sockets_on(&system);
        let (reader, writer) = system.pipe();
        reader.set_nonblocking(false).unwrap();
        port.associate(writer).unwrap().write_at(b"some bytes".to_vec(), 100).unwrap();
        let (_writer, outcome) = done(&port, &system);
        assert_eq!(written(&outcome), Ok(10));
        port.associate(reader).unwrap().read_at(room(4), 7).unwrap();
        let (reader, outcome) = done(&port, &system);
        assert_eq!(read(outcome).unwrap()[..4], *b"some");
        drop(reader);
    }
}

/// A kernel descriptor, a function that makes it readable, and the number of bytes that are then
/// available.
#[cfg(target_os = "linux")]
type Made = (OwnedFd, Box<dyn Fn()>, usize);

#[cfg(target_os = "linux")]
fn owned(descriptor: i32) -> OwnedFd {
    assert!(descriptor >= 0, "{}", std::io::Error::last_os_error());
    // SAFETY: `from_raw_fd` requires an open descriptor without another owner.
    // - the caller passes one that the kernel has just returned.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

#[cfg(target_os = "linux")]
fn timer(is_nonblocking: bool) -> Made {
    let flags = if is_nonblocking { libc::TFD_NONBLOCK } else { 0 } | libc::TFD_CLOEXEC;
    // SAFETY: timerfd_create(2) accesses no memory.
    let timer = owned(unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) });
    let same = timer.try_clone().unwrap();
    let expire = move || {
        let never = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let soon = libc::timespec { tv_sec: 0, tv_nsec: 1 };
        let time = libc::itimerspec { it_interval: never, it_value: soon };
        // SAFETY: timerfd_settime(2) reads a time at the first pointer, and writes nothing to a
        // null pointer.
        // - valid for reads: `time` is a local.
        let set = unsafe {
            libc::timerfd_settime(same.as_raw_fd(), 0, &raw const time, std::ptr::null_mut())
        };
        assert_eq!(set, 0);
    };
    (timer, Box::new(expire), 8)
}

#[cfg(target_os = "linux")]
fn counter(is_nonblocking: bool) -> Made {
    let flags = if is_nonblocking { libc::EFD_NONBLOCK } else { 0 } | libc::EFD_CLOEXEC;
    // SAFETY: eventfd(2) accesses no memory.
    let counter = owned(unsafe { libc::eventfd(0, flags) });
    let same = File::from(counter.try_clone().unwrap());
    let count = move || std::io::Write::write_all(&mut &same, &1_u64.to_ne_bytes()).unwrap();
    (counter, Box::new(count), 8)
}

#[cfg(target_os = "linux")]
fn file_watch(is_nonblocking: bool) -> Made {
    let flags = if is_nonblocking { libc::IN_NONBLOCK } else { 0 } | libc::IN_CLOEXEC;
    // SAFETY: inotify_init1(2) accesses no memory.
    let watch = owned(unsafe { libc::inotify_init1(flags) });
    // A file that no other process opens.
    // SAFETY: memfd_create(2) reads a zero-terminated string at the pointer.
    // - valid for reads: it is such a constant.
    let file = owned(unsafe { libc::memfd_create(c"watched".as_ptr(), libc::MFD_CLOEXEC) });
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let text = std::ffi::CString::new(path.clone()).unwrap();
    // SAFETY: inotify_add_watch(2) reads a zero-terminated string at the pointer.
    // - valid for reads: `text` is one.
    let added = unsafe { libc::inotify_add_watch(watch.as_raw_fd(), text.as_ptr(), libc::IN_OPEN) };
    assert!(added >= 0, "{}", std::io::Error::last_os_error());
    let open = move || {
        assert!(file.as_raw_fd() >= 0);
        drop(File::open(&path).unwrap());
    };
    (watch, Box::new(open), size_of::<libc::inotify_event>())
}

#[cfg(target_os = "linux")]
fn pipe(is_nonblocking: bool) -> Made {
    let (reader, writer) = std::io::pipe().unwrap();
    if is_nonblocking {
        // SAFETY: fcntl(2) with F_SETFL accesses no memory.
        assert_eq!(unsafe { libc::fcntl(reader.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) }, 0);
    }
    let write = move || std::io::Write::write_all(&mut &writer, b"some").unwrap();
    (reader.into(), Box::new(write), 4)
}

/// The program's side of a terminal.
#[cfg(target_os = "linux")]
fn terminal(is_nonblocking: bool) -> Made {
    let flags = libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC;
    // SAFETY: posix_openpt(3) accesses no memory.
    let user = owned(unsafe { libc::posix_openpt(flags) });
    // SAFETY: grantpt(3) accesses no memory of the caller.
    assert_eq!(unsafe { libc::grantpt(user.as_raw_fd()) }, 0);
    // SAFETY: unlockpt(3) accesses no memory of the caller.
    assert_eq!(unsafe { libc::unlockpt(user.as_raw_fd()) }, 0);
    let more = if is_nonblocking { libc::O_NONBLOCK } else { 0 };
    // SAFETY: ioctl(2) with TIOCGPTPEER accesses no memory.
    let program = owned(unsafe { libc::ioctl(user.as_raw_fd(), libc::TIOCGPTPEER, flags | more) });
    let user = File::from(user);
    let type_line = move || std::io::Write::write_all(&mut &user, b"line\n").unwrap();
    (program, Box::new(type_line), 5)
}

/// Rule 68: a read of any such object returns the available data and waits for no more. lseek(2)
/// succeeds for counters and similar objects.
#[cfg(target_os = "linux")]
#[test]
fn what_has_no_positions_is_read_once_epoll() {
    type Kind = (&'static str, fn(bool) -> Made);
    let kinds: [Kind; 5] = [
        ("timer", timer),
        ("counter", counter),
        ("file watch", file_watch),
        ("pipe", pipe),
        ("terminal", terminal),
    ];
    for system in native() {
        for (name, make) in kinds {
            for is_nonblocking in [false, true] {
                for comes_later in [false, true] {
                    let what = format!("{name} {is_nonblocking} {comes_later} {system:?}");
                    let port = system.port::<FileSource<OwnedFd>, u32>(1);
                    let (descriptor, bring, count) = make(is_nonblocking);
                    let mut token = port.associate(FileSource::new(descriptor)).unwrap();
                    for offset in [0, 8, 1 << 40] {
                        if !comes_later {
                            bring();
                        }
                        token.start(Operation::read_at(room(4096), offset)).unwrap();
                        if comes_later {
                            silent(&port, &system);
                            bring();
                        }
                        let (back, outcome) = done(&port, &system);
                        let read = read(outcome).map(|bytes| bytes.len());
                        assert_eq!(read, Ok(count), "{what} {offset}");
                        token = back;
                    }
                }
            }
        }
    }
}

/// Rule 68: a read waits even though the descriptor is non-blocking.
#[cfg(target_os = "linux")]
#[test]
fn what_does_not_block_is_waited_for_epoll() {
    use std::os::unix::fs::OpenOptionsExt;
    for system in native() {
        let name = format!("completion-port-fifo-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let text = std::ffi::CString::new(path.as_os_str().as_encoded_bytes()).unwrap();
        // SAFETY: mkfifo(3) reads a zero-terminated string.
        // - `text` is one.
        assert_eq!(unsafe { libc::mkfifo(text.as_ptr(), 0o600) }, 0);
        let options =
            |flags| File::options().read(true).write(true).custom_flags(flags).open(&path);
        let (reader, writer) = (options(libc::O_NONBLOCK).unwrap(), options(0).unwrap());
        std::fs::remove_file(&path).unwrap();
        let port = files_on(&system);
        let mut token = port.associate(reader).unwrap();
        for byte in [b"x", b"y"] {
            token.read_at(room(4), 0).unwrap();
            silent(&port, &system);
            std::io::Write::write_all(&mut &writer, byte).unwrap();
            let (back, outcome) = done(&port, &system);
            assert_eq!(read(outcome), Ok(byte.to_vec()));
            token = back;
        }
        // A write waits until there is room for it.
        token.write_at(vec![b'z'; 1 << 20], 0).unwrap();
        silent(&port, &system);
        let mut came = vec![0; 1 << 20];
        std::io::Read::read_exact(&mut &writer, &mut came).unwrap();
        let (token, outcome) = done(&port, &system);
        assert_eq!(written(&outcome), Ok(1 << 20));
        assert!(came.iter().all(|byte| *byte == b'z'));
        if system.file_engine() == FileEngine::Ring {
            // It times out meanwhile.
            token.start(Operation::read_at(room(4), 0).deadline(20 * MILLISECOND)).unwrap();
            assert_eq!(why(done(&port, &system).1.error()), ErrorKind::TimedOut);
        }
    }
}

/// Rules 69 and 71: a read that a disk does not answer delays nothing, not even operations on the
/// same file.
#[cfg(target_os = "linux")]
#[test]
fn a_disk_that_hangs_holds_up_nothing_epoll() {
    const PLACE: u32 = 4 * 4096;
    let name = "files::a_disk_that_hangs_holds_up_nothing_epoll";
    let Some(disk) = hanging_disk(name, PLACE) else { return };
    let system = System::native_with_threads();
    let port = shared_on(&system);
    let all = page(PLACE as usize + 4096);
    let id = port.associate_shared(Shared::new(system.file(&all))).unwrap();
    let (near, far) = system.tcp_pair();
    let socket = port.associate_shared(Shared::new(near)).unwrap();
    let slow = port.start(id, Operation::read_at(room(16), u64::from(PLACE))).unwrap();
    let hanging = disk.await_read();
    for round in 0..20_u32 {
        port.start(socket, Operation::recv(room(1))).unwrap();
        far.write(b"x").unwrap();
        assert_eq!(bytes(finished(&port, &system).into_parts().1), b"x");
        port.post(round).unwrap();
        assert!(matches!(next(&port, &system), Packet::Posted(message) if message == round));
        port.start(id, Operation::read_at(room(16), 0)).unwrap();
        assert_eq!(read(outcome(&port, &system)), Ok(all[..16].to_vec()));
        port.start(id, Operation::write_at(all[..16].to_vec(), 0)).unwrap();
        assert_eq!(written(&outcome(&port, &system)), Ok(16));
        port.start(id, Operation::sync_data()).unwrap();
        assert_eq!(synced(&outcome(&port, &system)), Ok(()));
    }
    silent(&port, &system);
    hanging.release();
    let finished = finished(&port, &system);
    assert_eq!(finished.operation(), slow);
    assert_eq!(read(finished.into_parts().1), Ok(all[PLACE as usize..][..16].to_vec()));
}

/// Rule 70: the names in a directory are synchronised too.
#[cfg(target_os = "linux")]
#[test]
fn a_directory_is_put_on_the_disk_epoll() {
    for system in native() {
        let port = files_on(&system);
        let directory = File::open(std::env::temp_dir()).unwrap();
        port.associate(directory).unwrap().sync_all().unwrap();
        let (token, outcome) = done(&port, &system);
        assert_eq!(synced(&outcome), Ok(()));
        token.read_at(room(8), 0).unwrap();
        let (_, outcome) = done(&port, &system);
        assert_eq!(outcome.error().and_then(|error| error.os_code()), Some(libc::EISDIR));
        let _ = why(outcome.error());
    }
}

/// Rule 70: objects that are on no disk are not synchronised.
#[cfg(target_os = "linux")]
#[test]
fn what_is_on_no_disk_is_not_put_on_one_epoll() {
    for system in native() {
        for operation in [Operation::sync_data, Operation::sync_all] {
            let error = failure(&system, "/dev/full", operation());
            assert_eq!((error.call(), error.kind()), (Call::Sync, ErrorKind::Other));
            assert_eq!((error.os_code(), error.transferred()), (Some(libc::EINVAL), 0));
        }
    }
}
