//! Counts the system calls that a packet costs, by tracing a child process.

// The tests count Linux system calls with ptrace.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, BlockDetection, Datagrams, ErrorKind, Interest, OneShot, Operation, Outcome, Packet,
    Port, Ready, Registration, SharedFile, Started,
};
use testkit::SOON;
use testkit::syscalls::{Counts, count, section};

/// The calls that ask an epoll set for events.
#[cfg(target_arch = "x86_64")]
const WAITS: [libc::c_long; 3] =
    [libc::SYS_epoll_wait, libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];
#[cfg(not(target_arch = "x86_64"))]
const WAITS: [libc::c_long; 2] = [libc::SYS_epoll_pwait, libc::SYS_epoll_pwait2];

/// The calls that ask for the current state of sockets.
#[cfg(target_arch = "x86_64")]
const POLLS: [libc::c_long; 2] = [libc::SYS_poll, libc::SYS_ppoll];
#[cfg(not(target_arch = "x86_64"))]
const POLLS: [libc::c_long; 1] = [libc::SYS_ppoll];

fn of(calls: &Counts, numbers: &[libc::c_long]) -> usize {
    numbers.iter().map(|number| calls.of(*number)).sum()
}

/// Counts the calls of the ignored test `name`, and passes them to `look`.
#[track_caller]
fn check(name: &str, look: impl FnOnce(&Counts)) {
    match count(name) {
        Ok(calls) => look(&calls),
        Err(refused) => println!("SKIPPED syscalls: {name}: {refused}"),
    }
}

fn pairs(number: usize) -> (Vec<UnixStream>, Vec<UnixStream>) {
    (0..number)
        .map(|_| {
            let (ours, theirs) = UnixStream::pair().unwrap();
            ours.set_nonblocking(true).unwrap();
            (ours, theirs)
        })
        .unzip()
}

/// Creates a port with `number` sockets, all readable.
fn readable(number: usize) -> (Port<UnixStream, usize>, Vec<UnixStream>) {
    let port = Port::builder().concurrency(1).build().unwrap();
    let (ours, theirs) = pairs(number);
    for ours in ours {
        port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
    }
    write(&theirs);
    (port, theirs)
}

fn write(streams: &[UnixStream]) {
    for mut stream in streams {
        stream.write_all(b"x").unwrap();
    }
}

fn take<'p>(port: &'p Port<UnixStream, usize>, batch: &mut Batch) -> Vec<Ready<'p, UnixStream>> {
    let packets = port.wait(batch, SOON).unwrap();
    packets
        .map(|packet| match packet {
            Packet::Ready(ready) => ready,
            other => panic!("{other:?}"),
        })
        .collect()
}

fn drain(token: &mut Ready<'_, UnixStream>) {
    assert_eq!(token.key_mut().read(&mut [0; 16]).unwrap(), 1);
}

#[test]
#[ignore = "run under the counter by `arming_with_a_hint_makes_no_call`"]
fn arming_with_a_hint_counted() {
    let (port, _theirs) = readable(16);
    let mut batch = Batch::new();
    let mut tokens = take(&port, &mut batch);
    assert_eq!(tokens.len(), 16);
    for token in &mut tokens {
        drain(token);
        token.read_drained();
    }
    section(|| tokens.drain(..).for_each(|token| token.rearm().unwrap()));
}

#[test]
fn arming_with_a_hint_makes_no_call() {
    check("arming_with_a_hint_counted", |calls| assert_eq!(calls.total(), 0, "{calls:?}"));
}

#[test]
#[ignore = "run under the counter by `arming_without_a_hint_makes_no_call`"]
fn arming_without_a_hint_counted() {
    let (port, _theirs) = readable(16);
    let mut batch = Batch::new();
    let mut tokens = take(&port, &mut batch);
    assert_eq!(tokens.len(), 16);
    section(|| tokens.drain(..).for_each(|token| token.rearm().unwrap()));
}

#[test]
fn arming_without_a_hint_makes_no_call() {
    check("arming_without_a_hint_counted", |calls| assert_eq!(calls.total(), 0, "{calls:?}"));
}

#[test]
#[ignore = "run under the counter by `what_was_armed_without_hints_is_asked_about_in_one_call`"]
fn the_wait_after_arming_without_hints_counted() {
    let (port, theirs) = readable(16);
    let mut batch = Batch::new();
    let tokens = take(&port, &mut batch);
    assert_eq!(tokens.len(), 16);
    for mut token in tokens {
        drain(&mut token);
        token.rearm().unwrap();
    }
    section(|| {
        let packets = port.wait(&mut batch, Duration::ZERO).unwrap();
        assert_eq!(packets.count(), 0);
    });
    // All were armed, so each of them reports again.
    write(&theirs);
    assert_eq!(take(&port, &mut batch).len(), 16);
}

#[test]
fn what_was_armed_without_hints_is_asked_about_in_one_call() {
    check("the_wait_after_arming_without_hints_counted", |calls| {
        assert_eq!(of(calls, &POLLS), 1, "{calls:?}");
        assert_eq!(of(calls, &WAITS), 1, "{calls:?}");
        assert_eq!(calls.total(), 2, "{calls:?}");
    });
}

#[test]
#[ignore = "run under the counter by `what_is_still_ready_comes_with_one_call_more`"]
fn the_wait_after_arming_what_is_ready_counted() {
    let (port, _theirs) = readable(16);
    let mut batch = Batch::new();
    for token in take(&port, &mut batch) {
        token.rearm().unwrap();
    }
    let mut count = 0;
    section(|| {
        for packet in port.wait(&mut batch, SOON).unwrap() {
            assert!(matches!(&packet, Packet::Ready(_)));
            // Dropping a token makes calls, so leave it out of the section.
            std::mem::forget(packet);
            count += 1;
        }
    });
    assert_eq!(count, 16);
}

#[test]
fn what_is_still_ready_comes_with_one_call_more() {
    check("the_wait_after_arming_what_is_ready_counted", |calls| {
        assert_eq!(of(calls, &POLLS), 1, "{calls:?}");
        assert!(of(calls, &WAITS) <= 1, "{calls:?}");
        assert_eq!(calls.total(), of(calls, &POLLS) + of(calls, &WAITS), "{calls:?}");
    });
}

#[test]
#[ignore = "run under the counter by `what_is_borrowed_and_still_ready_comes_with_one_call_more_each`"]
fn the_wait_after_arming_what_is_borrowed_counted() {
    let port = Port::builder().concurrency(1).build::<usize, ()>().unwrap();
    let (ours, theirs) = pairs(16);
    for (key, ours) in ours.iter().enumerate() {
        port.register(Registration::new(ours, key, Interest::IN, OneShot::Level)).unwrap();
    }
    write(&theirs);
    let (mut batch, mut armed) = (Batch::new(), 0);
    while armed < 16 {
        for packet in port.wait(&mut batch, SOON).unwrap() {
            let Packet::Ready(token) = packet else { panic!("{packet:?}") };
            // Half of them have nothing more to report.
            if *token.key() % 2 == 0 {
                let mut bytes = [0; 16];
                (&ours[*token.key()]).read(&mut bytes).map(drop).unwrap();
            }
            token.rearm().unwrap();
            armed += 1;
        }
    }
    let mut count = 0;
    section(|| {
        for packet in port.wait(&mut batch, SOON).unwrap() {
            // Dropping a token makes calls, so leave it out of the section.
            std::mem::forget(packet);
            count += 1;
        }
    });
    assert_eq!(count, 8);
}

#[test]
fn what_is_borrowed_and_still_ready_comes_with_one_call_more_each() {
    check("the_wait_after_arming_what_is_borrowed_counted", |calls| {
        assert_eq!(of(calls, &POLLS), 1, "{calls:?}");
        assert_eq!(calls.of(libc::SYS_epoll_ctl), 8, "{calls:?}");
        assert_eq!(calls.total(), 9 + of(calls, &WAITS), "{calls:?}");
    });
}

const ROUNDS: usize = 200;

#[test]
#[ignore = "run under the counter by `an_echo_costs_one_wait_for_each_batch`"]
fn an_echo_counted() {
    let port = Port::builder().concurrency(1).build::<UnixStream, ()>().unwrap();
    let (mut ours, mut theirs) = pairs(1);
    let mut theirs = theirs.pop().unwrap();
    let ours = ours.pop().unwrap();
    port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
    let mut batch = Batch::new();
    let mut bytes = [0; 64];
    let mut rounds = |number| {
        for _ in 0..number {
            theirs.write_all(b"x").unwrap();
            for packet in port.wait(&mut batch, None).unwrap() {
                let Packet::Ready(mut ready) = packet else { panic!("{packet:?}") };
                let read = ready.key_mut().read(&mut bytes).unwrap();
                ready.key_mut().write_all(&bytes[..read]).unwrap();
                ready.read_drained();
                ready.rearm().unwrap();
            }
            assert_eq!(theirs.read(&mut bytes).unwrap(), 1);
        }
    };
    rounds(10);
    section(|| rounds(ROUNDS));
}

#[test]
fn an_echo_costs_one_wait_for_each_batch() {
    check("an_echo_counted", |calls| {
        assert_eq!(of(calls, &WAITS), ROUNDS, "{calls:?}");
        // The test's own calls: two writes and two reads.
        assert_eq!(calls.total(), ROUNDS * (1 + 4), "{calls:?}");
    });
}

#[test]
#[ignore = "run under the counter by `an_echo_of_many_sockets_costs_one_wait_for_each_batch`"]
fn an_echo_of_many_counted() {
    let (port, mut theirs) = readable(16);
    let mut batch = Batch::new();
    let mut tokens = Vec::with_capacity(16);
    let mut bytes = [0; 64];
    let mut rounds = |number| {
        for _ in 0..number {
            let packets = port.wait(&mut batch, None).unwrap();
            tokens.extend(packets);
            assert_eq!(tokens.len(), 16);
            for packet in tokens.drain(..) {
                let Packet::Ready(mut ready) = packet else { panic!("{packet:?}") };
                let read = ready.key_mut().read(&mut bytes).unwrap();
                ready.key_mut().write_all(&bytes[..read]).unwrap();
                ready.read_drained();
                ready.rearm().unwrap();
            }
            for stream in &mut theirs {
                assert_eq!(stream.read(&mut bytes).unwrap(), 1);
                stream.write_all(b"x").unwrap();
            }
        }
    };
    rounds(10);
    section(|| rounds(ROUNDS));
}

#[test]
fn an_echo_of_many_sockets_costs_one_wait_for_each_batch() {
    check("an_echo_of_many_counted", |calls| {
        assert_eq!(of(calls, &WAITS), ROUNDS, "{calls:?}");
        assert_eq!(calls.total(), ROUNDS * (1 + 16 * 4), "{calls:?}");
    });
}

#[test]
#[ignore = "run under the counter by `posting_when_nobody_sleeps_makes_no_call`"]
fn posting_counted() {
    let port = Port::builder().concurrency(1).build::<(), usize>().unwrap();
    let mut batch = Batch::new();
    // The first posts allocate memory for the messages, and the second wait frees it for reuse.
    (0..64).for_each(|message| port.post(message).unwrap());
    assert_eq!(port.wait(&mut batch, None).unwrap().count(), 64);
    assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
    section(|| (0..64).for_each(|message| port.post(message).unwrap()));
    assert_eq!(port.wait(&mut batch, None).unwrap().count(), 64);
}

#[test]
fn posting_when_nobody_sleeps_makes_no_call() {
    check("posting_counted", |calls| assert_eq!(calls.total(), 0, "{calls:?}"));
}

#[test]
#[ignore = "run under the counter by `taking_messages_makes_no_call`"]
fn taking_messages_counted() {
    let port = Port::builder().concurrency(1).build::<(), usize>().unwrap();
    let mut batch = Batch::new();
    assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 0);
    (0..32).for_each(|message| port.post(message).unwrap());
    section(|| assert_eq!(port.wait(&mut batch, None).unwrap().count(), 32));
}

#[test]
fn taking_messages_makes_no_call() {
    check("taking_messages_counted", |calls| assert_eq!(calls.total(), 0, "{calls:?}"));
}

/// Returns the state and the number of voluntary switches of each other thread of the process.
fn others() -> Vec<(char, u64)> {
    // SAFETY: gettid(2) has no requirements.
    let me = unsafe { libc::gettid() }.to_string();
    let field = |status: &str, name: &str| {
        let line = status.lines().find(|line| line.starts_with(name)).unwrap();
        line[name.len()..].trim().to_owned()
    };
    fs::read_dir("/proc/self/task")
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|thread| *thread != me)
        .map(|thread| {
            let status = fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
            let state = field(&status, "State:").chars().next().unwrap();
            (state, field(&status, "voluntary_ctxt_switches:").parse().unwrap())
        })
        .collect()
}

/// Lets time pass without a system call.
fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Waits until all other threads sleep and have slept for a while.
fn await_silence() {
    let begun = Instant::now();
    loop {
        let before = others();
        spin(Duration::from_millis(20));
        let after = others();
        if before == after && after.iter().all(|(state, _)| *state == 'S') {
            return;
        }
        assert!(begun.elapsed() < SOON, "the port is never quiet: {after:?}");
    }
}

/// Counts the calls of an idle port with two seats, on which `threads` threads wait, after `rounds`
/// of work. In each round, `blocking` handlers sleep unannounced.
fn idle(detection: BlockDetection, threads: usize, rounds: usize, blocking: usize) {
    let (bytes, messages) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let builder = Port::builder().concurrency(2).block_detection(detection);
    let port = builder.build::<UnixStream, usize>().unwrap();
    let (ours, theirs) = pairs(4);
    for ours in ours {
        port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
    }
    let work = |packet: Packet<'_, UnixStream, usize>| match packet {
        Packet::Ready(mut ready) => {
            let read = ready.key_mut().read(&mut [0; 16]).unwrap();
            bytes.fetch_add(read, SeqCst);
            ready.rearm().unwrap();
        }
        Packet::Posted(number) => {
            if number < blocking {
                let (_keep, never) = mpsc::channel::<()>();
                // In the first round, sleep until one is detected.
                let begun = Instant::now();
                loop {
                    let _ = never.recv_timeout(Duration::from_millis(3));
                    let finds = detection != BlockDetection::Announced;
                    if !finds || port.stats().blocks_found > 0 {
                        break;
                    }
                    assert!(begun.elapsed() < SOON, "no sleeping thread is found");
                }
            }
            messages.fetch_add(1, SeqCst);
        }
        other => panic!("{other:?}"),
    };
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut batch = Batch::with_capacity(4);
                while let Ok(packets) = port.wait(&mut batch, None) {
                    packets.for_each(work);
                }
            });
        }
        let begun = Instant::now();
        while port.stats().parked < threads {
            assert!(begun.elapsed() < SOON);
            thread::yield_now();
        }
        for round in 1..=rounds {
            (0..=blocking).for_each(|number| port.post(number).unwrap());
            write(&theirs);
            let begun = Instant::now();
            while bytes.load(SeqCst) < 4 * round || messages.load(SeqCst) < (blocking + 1) * round {
                assert!(begun.elapsed() < SOON, "something was lost");
                thread::yield_now();
            }
        }
        if rounds * blocking > 0 && detection != BlockDetection::Announced {
            assert!(port.stats().blocks_found > 0, "the handlers do not block");
        }
        await_silence();
        section(|| spin(Duration::from_millis(150)));
        assert_eq!(port.stats().parked, threads);
        port.close();
    });
}

/// Checks that the port of the ignored test `name` makes no call while nothing happens. Skips it if
/// the machine lacks this method of block detection.
#[track_caller]
fn assert_silent(name: &str, detection: BlockDetection) {
    match Port::builder().block_detection(detection).build::<(), ()>() {
        Err(error) if error.kind() == ErrorKind::Unsupported => {
            println!("SKIPPED syscalls: {name}: {error}");
        }
        made => {
            drop(made.unwrap());
            check(name, |calls| assert_eq!(calls.total(), 0, "{calls:?}"));
        }
    }
}

#[test]
#[ignore = "run under the counter by `a_port_with_four_idle_threads_makes_no_call`"]
fn an_idle_port_counted() {
    idle(BlockDetection::Automatic, 4, 0, 0);
}

#[test]
fn a_port_with_four_idle_threads_makes_no_call() {
    assert_silent("an_idle_port_counted", BlockDetection::Automatic);
}

#[test]
#[ignore = "run under the counter by `a_port_with_sixteen_idle_threads_that_are_observed_makes_no_call`"]
fn an_observed_idle_port_counted() {
    idle(BlockDetection::Switches, 16, 0, 0);
}

#[test]
fn a_port_with_sixteen_idle_threads_that_are_observed_makes_no_call() {
    assert_silent("an_observed_idle_port_counted", BlockDetection::Switches);
}

#[test]
#[ignore = "run under the counter by `a_port_whose_work_is_done_makes_no_call`"]
fn a_port_after_work_counted() {
    idle(BlockDetection::Automatic, 4, 200, 0);
}

#[test]
fn a_port_whose_work_is_done_makes_no_call() {
    assert_silent("a_port_after_work_counted", BlockDetection::Automatic);
}

#[test]
#[ignore = "run under the counter by `a_port_whose_handlers_have_blocked_makes_no_call`"]
fn a_port_after_blocks_counted() {
    idle(BlockDetection::Automatic, 16, 20, 4);
}

#[test]
fn a_port_whose_handlers_have_blocked_makes_no_call() {
    assert_silent("a_port_after_blocks_counted", BlockDetection::Automatic);
}

#[test]
#[ignore = "run under the counter by `a_port_whose_observed_handlers_have_blocked_makes_no_call`"]
fn an_observed_port_after_blocks_counted() {
    idle(BlockDetection::Switches, 16, 20, 4);
}

#[test]
fn a_port_whose_observed_handlers_have_blocked_makes_no_call() {
    assert_silent("an_observed_port_after_blocks_counted", BlockDetection::Switches);
}

#[test]
#[ignore = "run under the counter by `a_port_that_asks_about_its_handlers_is_silent_afterwards`"]
fn a_port_that_asks_after_blocks_counted() {
    idle(BlockDetection::Tick, 16, 20, 4);
}

#[test]
fn a_port_that_asks_about_its_handlers_is_silent_afterwards() {
    assert_silent("a_port_that_asks_after_blocks_counted", BlockDetection::Tick);
}

#[test]
#[ignore = "run under the counter by `a_thread_that_goes_from_port_to_port_opens_nothing`"]
fn going_from_port_to_port_counted() {
    let ports = [(); 2].map(|()| Port::builder().build::<(), usize>().unwrap());
    let mut batch = Batch::new();
    let mut visit = || {
        for port in &ports {
            port.post(1).unwrap();
            assert_eq!(port.wait(&mut batch, Duration::ZERO).unwrap().count(), 1);
        }
    };
    visit();
    section(|| (0..100).for_each(|_| visit()));
}

#[test]
fn a_thread_that_goes_from_port_to_port_opens_nothing() {
    check("going_from_port_to_port_counted", |calls| {
        assert_eq!(of(calls, &[libc::SYS_openat, libc::SYS_close]), 0, "{calls:?}");
    });
}

/// Echoes by operations. With `sends_now`, sends complete immediately, without a packet.
fn operate(streams: Vec<(TcpStream, TcpStream)>, sends_now: bool) {
    let port = Port::builder().concurrency(1).build::<TcpStream, ()>().unwrap();
    let number = streams.len();
    let mut theirs = Vec::new();
    for (ours, peer) in streams {
        port.associate(ours).unwrap().recv(Vec::with_capacity(64)).unwrap();
        theirs.push(peer);
    }
    let mut batch = Batch::new();
    let mut bytes = [0; 64];
    let mut rounds = |count| {
        for _ in 0..count {
            for peer in &mut theirs {
                peer.write_all(b"x").unwrap();
            }
            let mut answered = 0;
            while answered < number {
                for packet in port.wait(&mut batch, None).unwrap() {
                    let Packet::Completed(done) = packet else { panic!("{packet:?}") };
                    let (token, outcome) = done.into_parts();
                    match outcome {
                        Outcome::Received(Ok(1), bytes) if sends_now => {
                            let started = token.start_now(Operation::send_all(bytes)).unwrap();
                            let Started::Completed((token, outcome)) = started else { panic!() };
                            answered += 1;
                            token.recv(outcome.into_buffer().unwrap()).unwrap();
                        }
                        Outcome::Received(Ok(1), bytes) => {
                            token.send_all(bytes).unwrap();
                        }
                        Outcome::Sent(Ok(1), bytes) => {
                            answered += 1;
                            token.recv(bytes).unwrap();
                        }
                        other => panic!("{other:?}"),
                    }
                }
            }
            for peer in &mut theirs {
                assert_eq!(peer.read(&mut bytes).unwrap(), 1);
            }
        }
    };
    rounds(10);
    section(|| rounds(ROUNDS));
}

fn connected(number: usize) -> Vec<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let connect = |_| {
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        near.set_nodelay(true).unwrap();
        far.set_nodelay(true).unwrap();
        (near, far)
    };
    (0..number).map(connect).collect()
}

#[test]
#[ignore = "run under the counter by `an_echo_by_operations_costs_a_receive_and_a_send`"]
fn an_echo_by_operations_counted() {
    operate(connected(1), false);
}

#[test]
fn an_echo_by_operations_costs_a_receive_and_a_send() {
    check("an_echo_by_operations_counted", |calls| {
        // One wait for the receive's packet, and one for the send's.
        assert_eq!(of(calls, &WAITS), 2 * ROUNDS, "{calls:?}");
        // A receive that leaves room has taken all data, so the next one waits without a call. The
        // other calls of a round are the port's receive and send, and the test's own write and
        // read.
        assert_eq!(calls.total(), ROUNDS * (2 + 4), "{calls:?}");
    });
}

#[test]
#[ignore = "run under the counter by `an_echo_that_is_sent_at_once_costs_one_wait`"]
fn an_echo_that_is_sent_at_once_counted() {
    operate(connected(1), true);
}

#[test]
fn an_echo_that_is_sent_at_once_costs_one_wait() {
    check("an_echo_that_is_sent_at_once_counted", |calls| {
        assert_eq!(of(calls, &WAITS), ROUNDS, "{calls:?}");
        assert_eq!(calls.total(), ROUNDS * (1 + 4), "{calls:?}");
    });
}

#[test]
#[ignore = "run under the counter by `many_echoes_by_operations_cost_one_wait_for_each_batch`"]
fn many_echoes_by_operations_counted() {
    operate(connected(16), false);
}

#[test]
fn many_echoes_by_operations_cost_one_wait_for_each_batch() {
    check("many_echoes_by_operations_counted", |calls| {
        assert_eq!(of(calls, &WAITS), 2 * ROUNDS, "{calls:?}");
        assert_eq!(calls.total(), ROUNDS * (2 + 16 * 4), "{calls:?}");
    });
}

#[test]
#[ignore = "run under the counter by `switching_makes_no_call`"]
fn switching_counted() {
    let port: Port<Arc<UnixStream>> = Port::builder().concurrency(1).build().unwrap();
    let (ours, _theirs) = pairs(1);
    let mut token = port.associate(Arc::new(ours.into_iter().next().unwrap())).unwrap();
    let switch = |token: Ready<'_, _>| {
        let id = token.share().unwrap();
        port.unshare(id).unwrap().map_key(|key| key).unwrap()
    };
    // The first time allocates memory, for which musl makes a call.
    token = switch(token);
    drop(section(|| switch(token)));
}

#[test]
fn switching_makes_no_call() {
    check("switching_counted", |calls| assert_eq!(calls.total(), 0, "{calls:?}"));
}

fn read_now<'p>(token: Ready<'p, UnixStream>, file: &SharedFile) -> Ready<'p, UnixStream> {
    match token.start_now(file.read_at(Vec::with_capacity(64), 0)).unwrap() {
        Started::Completed((token, Outcome::Read(Ok(64..), _))) => token,
        other => panic!("{other:?}"),
    }
}

#[test]
#[ignore = "run under the counter by `a_read_without_an_association_costs_one_call`"]
fn a_read_without_an_association_counted() {
    let port: Port<UnixStream> = Port::builder().concurrency(1).build().unwrap();
    let (ours, _theirs) = pairs(1);
    let mut token = port.associate(ours.into_iter().next().unwrap()).unwrap();
    let file = SharedFile::new(fs::File::open("/proc/self/exe").unwrap());
    // It asks for the file's flags once.
    token = read_now(token, &file);
    let token = section(|| (0..ROUNDS).fold(token, |token, _| read_now(token, &file)));
    drop(token);
}

#[test]
fn a_read_without_an_association_costs_one_call() {
    if !testkit::reads_from_cache(&fs::File::open("/proc/self/exe").unwrap()) {
        return testkit::skipped("this file system has no RWF_NOWAIT");
    }
    check("a_read_without_an_association_counted", |calls| {
        assert_eq!((calls.of(libc::SYS_preadv2), calls.total()), (ROUNDS, ROUNDS), "{calls:?}");
    });
}

const BATCHES: usize = 50;

#[test]
#[ignore = "run under the counter by `many_datagrams_cost_one_call_each_way`"]
fn many_datagrams_counted() {
    let port = Port::builder().concurrency(1).buffers::<Datagrams>().build::<UnixDatagram, ()>();
    let port = port.unwrap();
    let (near, far) = UnixDatagram::pair().unwrap();
    let mut token = Some(port.associate(near).unwrap());
    let mut datagrams = Some(Datagrams::new(32, 64));
    let mut questions = Datagrams::new(32, 64);
    let mut batch = Batch::new();
    let mut rounds = |number| {
        for _ in 0..number {
            (0..8).for_each(|_| assert!(questions.push(b"question", None)));
            assert_eq!(questions.send(&far).unwrap(), 8);
            token.take().unwrap().recv_many(datagrams.take().unwrap()).unwrap();
            let packet = port.wait(&mut batch, SOON).unwrap().next();
            let Some(Packet::Completed(done)) = packet else { panic!("no operation") };
            let (back, Outcome::ReceivedMany(Ok(8), received)) = done.into_parts() else {
                panic!("not all have arrived")
            };
            let sent = back.start_now(Operation::send_many(received)).unwrap();
            let Started::Completed((back, Outcome::SentMany(Ok(8), sent))) = sent else {
                panic!("not all were sent")
            };
            (token, datagrams) = (Some(back), Some(sent));
            assert_eq!(questions.recv(&far).unwrap(), 8);
            questions.clear();
        }
    };
    rounds(10);
    section(|| rounds(BATCHES));
}

#[test]
fn many_datagrams_cost_one_call_each_way() {
    check("many_datagrams_counted", |calls| {
        // The server's, and the test's own.
        assert_eq!(calls.of(libc::SYS_recvmmsg), 2 * BATCHES, "{calls:?}");
        assert_eq!(calls.of(libc::SYS_sendmmsg), 2 * BATCHES, "{calls:?}");
        assert_eq!(calls.total(), 4 * BATCHES + of(calls, &WAITS), "{calls:?}");
        assert!(of(calls, &WAITS) <= BATCHES, "{calls:?}");
    });
}
