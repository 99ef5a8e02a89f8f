//! After everything has been used once, nothing is allocated.
//!
//! Only the real system is measured: a simulated kernel may allocate. Each count covers only the
//! thread that does the work, so the test harness may allocate meanwhile.

#![cfg(any(unix, windows))]
#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Barrier, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use completion_port::{
    Batch, Changes, Datagrams, ErrorKind, Interest, OneShot, Operation, Outcome, Packet,
    Persistent, Port, Ready, Registration, SharedSource, Started,
};
use testkit::alloc::{Counting, count};
use testkit::{SOON, Stream, connected};

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// The number of warm-up rounds, and of counted rounds.
const ROUNDS: usize = 200;

/// Returns whether to skip a claim, because Windows allocates memory for `what`. Reports the skip
/// by name.
fn takes_memory(claim: &str, what: &str) -> bool {
    if cfg!(windows) {
        println!("SKIPPED {claim}: on Windows memory is taken for {what}");
    }
    cfg!(windows)
}

/// Closes a port even if the test fails. Otherwise its threads would wait forever.
struct Closes<'p, K, M>(&'p Port<K, M>);

impl<K, M> Drop for Closes<'_, K, M> {
    fn drop(&mut self) {
        self.0.close();
    }
}

fn pair() -> (Stream, Stream) {
    let (ours, theirs) = connected();
    ours.set_nonblocking(true).unwrap();
    theirs.set_read_timeout(Some(SOON)).unwrap();
    (ours, theirs)
}

fn pairs(number: usize) -> (Vec<Stream>, Vec<Stream>) {
    (0..number).map(|_| pair()).unzip()
}

/// Runs one test at a time: descriptor numbers belong to the process, and the port allocates for a
/// number when it first sees it.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `round` often to warm up, then as often again, which must not allocate.
#[track_caller]
fn assert_allocates_nothing(mut round: impl FnMut()) {
    (0..ROUNDS).for_each(|_| round());
    let ((), allocations) = count(|| (0..ROUNDS).for_each(|_| round()));
    assert_eq!(allocations, 0, "in {ROUNDS} rounds");
}

/// Answers every byte. Returns whether everything was read.
fn answer(mut stream: &Stream) -> bool {
    let mut bytes = [0; 64];
    let read = stream.read(&mut bytes).unwrap();
    stream.write_all(&bytes[..read]).unwrap();
    read < bytes.len()
}

fn call(peers: &[Stream]) {
    for mut peer in peers {
        peer.write_all(b"x").unwrap();
    }
}

fn hear(peers: &[Stream]) {
    for mut peer in peers {
        peer.read_exact(&mut [0]).unwrap();
    }
}

#[test]
fn allocations_are_counted_here() {
    let _alone = alone();
    assert_eq!(count(|| Box::new(7)).1, 1);
}

fn echo(hint: bool) {
    let port = Port::builder().concurrency(1).build::<Stream, ()>().unwrap();
    let (ours, theirs) = pairs(16);
    for ours in ours {
        port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
    }
    let mut batch = Batch::new();
    assert_allocates_nothing(|| {
        call(&theirs);
        let mut answered = 0;
        while answered < theirs.len() {
            for packet in port.wait(&mut batch, SOON).unwrap() {
                let Packet::Ready(mut ready) = packet else { panic!("{packet:?}") };
                if answer(ready.key()) && hint {
                    ready.read_drained();
                }
                ready.rearm().unwrap();
                answered += 1;
            }
        }
        hear(&theirs);
    });
}

#[test]
fn a_one_shot_echo_with_hints_allocates_nothing() {
    let _alone = alone();
    echo(true);
}

#[test]
fn a_one_shot_echo_without_hints_allocates_nothing() {
    let _alone = alone();
    echo(false);
}

#[test]
fn persistent_registrations_allocate_nothing() {
    let _alone = alone();
    if takes_memory(
        "persistent_registrations_allocate_nothing",
        "each report of a persistent registration",
    ) {
        return;
    }
    for trigger in [Persistent::Level, Persistent::Edge] {
        let port = Port::builder().concurrency(1).build::<usize, ()>().unwrap();
        let (ours, theirs) = pairs(16);
        for (key, ours) in ours.iter().enumerate() {
            port.register(Registration::new(ours, key, Interest::IN, trigger)).unwrap();
        }
        let mut batch = Batch::new();
        assert_allocates_nothing(|| {
            call(&theirs);
            let mut answered = 0;
            while answered < theirs.len() {
                for packet in port.wait(&mut batch, SOON).unwrap() {
                    let Packet::Notified(notified) = packet else { panic!("{packet:?}") };
                    let mut stream = &ours[*notified.key()];
                    let mut byte = [0];
                    match stream.read(&mut byte) {
                        Ok(read) => {
                            stream.write_all(&byte[..read]).unwrap();
                            answered += read;
                        }
                        Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
                    }
                }
            }
            hear(&theirs);
        });
    }
}

/// Threads that have taken messages exit, and leave the memory of these to other threads.
#[test]
fn messages_of_threads_that_exit_allocate_nothing() {
    let _alone = alone();
    const MESSAGES: usize = 64;
    let port = Port::builder().concurrency(1).build::<(), usize>().unwrap();
    let take = || {
        let (mut batch, mut taken) = (Batch::new(), 0);
        while taken < MESSAGES {
            taken += port.wait(&mut batch, SOON).unwrap().count();
        }
    };
    let round = || {
        let post = || (0..MESSAGES).for_each(|message| port.post(message).unwrap());
        let ((), allocations) = count(post);
        thread::scope(|scope| scope.spawn(take).join().unwrap());
        allocations
    };
    (0..ROUNDS).for_each(|_| {
        round();
    });
    assert_eq!((0..ROUNDS).map(|_| round()).sum::<u64>(), 0, "in {ROUNDS} rounds");
}

#[test]
fn messages_allocate_nothing() {
    let _alone = alone();
    let port = Port::builder().concurrency(1).build::<(), usize>().unwrap();
    let mut batch = Batch::new();
    assert_allocates_nothing(|| {
        (0..100).for_each(|message| port.post(message).unwrap());
        let mut next = 0;
        while next < 100 {
            for packet in port.wait(&mut batch, SOON).unwrap() {
                assert!(matches!(packet, Packet::Posted(message) if message == next));
                next += 1;
            }
        }
    });
}

#[test]
fn messages_for_later_allocate_nothing() {
    let _alone = alone();
    const HOUR: Duration = Duration::from_secs(3600);
    let port: Port<(), u64> = Port::builder().concurrency(1).build().unwrap();
    let mut batch = Batch::new();
    assert_allocates_nothing(|| {
        let timers = [HOUR, 2 * HOUR, HOUR / 2].map(|time| port.post_at(time, 7).unwrap());
        port.post_at(Duration::ZERO, 1).unwrap();
        assert_eq!(timers.map(|timer| port.cancel_post(timer)), [Some(7); 3]);
        for packet in port.wait(&mut batch, None).unwrap() {
            assert!(matches!(packet, Packet::Posted(1)));
        }
    });
}

#[test]
fn changes_that_are_used_again_allocate_nothing() {
    let _alone = alone();
    let port = Port::builder().concurrency(1).build::<Stream, ()>().unwrap();
    let (ours, theirs) = pairs(16);
    let mut changes = Changes::new();
    for ours in ours {
        changes.register(Registration::owned(ours, Interest::IN, OneShot::Level));
    }
    let mut batch = Batch::new();
    assert_allocates_nothing(|| {
        call(&theirs);
        let mut answered = 0;
        while answered < theirs.len() {
            let packets = port.process(&mut changes, &mut batch, SOON).unwrap();
            for packet in packets {
                let Packet::Ready(ready) = packet else { panic!("{packet:?}") };
                let _ = answer(ready.key());
                answered += 1;
                if answered % 2 == 0 {
                    changes.rearm(ready);
                } else {
                    changes.rearm_as(ready, Interest::IN | Interest::HANGUP, OneShot::Level);
                }
            }
            assert!(changes.results().iter().all(Result::is_ok));
        }
        hear(&theirs);
    });
}

#[test]
fn registering_and_removing_again_allocates_nothing() {
    let _alone = alone();
    if takes_memory("registering_and_removing_again_allocates_nothing", "each registration") {
        return;
    }
    let port = Port::builder().concurrency(1).build::<Stream, ()>().unwrap();
    let (ours, theirs) = pair();
    let theirs = [theirs];
    let mut batch = Batch::new();
    let mut way = 0;
    let mut again = Some(ours);
    assert_allocates_nothing(|| {
        way += 1;
        let key = again.take().unwrap();
        let id = port.register(Registration::owned(key, Interest::IN, OneShot::Level)).unwrap();
        again = Some(match way % 3 {
            0 => port.remove_and_wait(id, None).unwrap(),
            1 => {
                port.remove(id).unwrap();
                match port.wait(&mut batch, None).unwrap().next() {
                    Some(Packet::Removed(_, key)) => key,
                    other => panic!("{other:?}"),
                }
            }
            _ => {
                call(&theirs);
                let packet = port.wait(&mut batch, None).unwrap().next();
                let Some(Packet::Ready(ready)) = packet else { panic!("{packet:?}") };
                let key = Ready::into_key(ready);
                assert!(answer(&key));
                hear(&theirs);
                key
            }
        });
    });
}

/// A thread is found asleep again and again. The thread that finds it allocates nothing.
#[test]
fn a_thread_that_is_found_asleep_allocates_nothing() {
    if takes_memory("a_thread_that_is_found_asleep_allocates_nothing", "threads that sleep") {
        return;
    }
    let _alone = alone();
    let port = Port::builder().concurrency(1).build::<(), u32>().unwrap();
    let (begins, sleeps) = (Barrier::new(2), (Mutex::new(false), Condvar::new()));
    thread::scope(|scope| {
        let _closes = Closes(&port);
        scope.spawn(|| {
            let mut batch = Batch::with_capacity(1);
            while let Ok(mut packets) = port.wait(&mut batch, None) {
                assert!(matches!(packets.next(), Some(Packet::Posted(_))));
                let (is_over, changed) = &sleeps;
                let mut over = is_over.lock().unwrap();
                begins.wait();
                while !std::mem::take(&mut *over) {
                    over = changed.wait(over).unwrap();
                }
            }
        });
        let mut batch = Batch::with_capacity(1);
        let round = |batch: &mut Batch| {
            port.post(1).unwrap();
            begins.wait();
            // This thread takes over the seat.
            port.post(2).unwrap();
            let taken = port.wait(batch, SOON).unwrap().next();
            assert!(matches!(taken, Some(Packet::Posted(2))));
            let (is_over, changed) = &sleeps;
            *is_over.lock().unwrap() = true;
            changed.notify_one();
        };
        (0..20).for_each(|_| round(&mut batch));
        let ((), allocations) = count(|| (0..20).for_each(|_| round(&mut batch)));
        assert_eq!(allocations, 0);
        assert!(port.stats().blocks_found >= 40);
    });
}

/// The first use of each part comes at no fixed moment with four threads (a scan for stuck threads,
/// for instance). So the test looks for a stretch of work without any allocation, which must come
/// soon.
#[test]
fn four_threads_allocate_nothing() {
    let _alone = alone();
    const STRETCH: usize = 4_000;
    const STRETCHES: usize = 10;
    let port = Port::builder().concurrency(4).build::<Stream, ()>().unwrap();
    let (ours, theirs) = pairs(16);
    for ours in ours {
        port.register(Registration::owned(ours, Interest::IN, OneShot::Level)).unwrap();
    }
    let allocations = [const { AtomicU64::new(0) }; STRETCHES];
    let (stretch, answered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let mut quiet = false;
    thread::scope(|scope| {
        let _closes = Closes(&port);
        for _ in 0..4 {
            scope.spawn(|| {
                let mut batch = Batch::with_capacity(4);
                loop {
                    let (closed, here) = count(|| {
                        let Ok(packets) = port.wait(&mut batch, None) else { return true };
                        for packet in packets {
                            let Packet::Ready(mut ready) = packet else { panic!("{packet:?}") };
                            if answer(ready.key()) && answered.load(SeqCst) % 3 > 0 {
                                ready.read_drained();
                            }
                            let closed = ready.rearm().is_err_and(|refused| {
                                // The port may be closed as soon as the last answer arrives, which
                                // may be before this call.
                                assert_eq!(refused.error().kind(), ErrorKind::Closed);
                                true
                            });
                            if closed {
                                return true;
                            }
                            answered.fetch_add(1, SeqCst);
                        }
                        false
                    });
                    allocations[stretch.load(SeqCst)].fetch_add(here, SeqCst);
                    if closed {
                        return;
                    }
                }
            });
        }
        for (number, count) in allocations.iter().enumerate() {
            stretch.store(number, SeqCst);
            let before = answered.load(SeqCst);
            while answered.load(SeqCst) < before + STRETCH {
                call(&theirs);
                // Fails if an answer takes too long.
                hear(&theirs);
            }
            if number > 0 && count.load(SeqCst) == 0 {
                quiet = true;
                break;
            }
        }
    });
    assert!(quiet, "allocations in {STRETCHES} stretches of {STRETCH} packets: {allocations:?}");
}

/// Echoes a byte on each of sixteen connections by operations that begin with a receive. `go_on`
/// handles a packet, and returns whether that completed the connection's answer.
fn operate(
    with_deadline: impl Fn(Operation) -> Operation,
    mut go_on: impl FnMut(Ready<'_, Stream>, Outcome) -> bool,
) {
    let port = Port::builder().concurrency(1).build::<Stream, ()>().unwrap();
    let (ours, theirs) = pairs(16);
    for ours in ours {
        let receive = with_deadline(Operation::recv(Vec::with_capacity(64)));
        port.associate(ours).unwrap().start(receive).unwrap();
    }
    let mut batch = Batch::new();
    assert_allocates_nothing(|| {
        call(&theirs);
        let mut answered = 0;
        while answered < theirs.len() {
            for packet in port.wait(&mut batch, SOON).unwrap() {
                let Packet::Completed(done) = packet else { panic!("{packet:?}") };
                let (token, outcome) = done.into_parts();
                answered += usize::from(go_on(token, outcome));
            }
        }
        hear(&theirs);
    });
}

/// Echoes with a packet for each operation.
fn operate_by_packets(with_deadline: impl Fn(Operation) -> Operation) {
    operate(&with_deadline, |token, outcome| {
        let (next, is_answered) = match outcome {
            Outcome::Received(Ok(1), bytes) => (Operation::send_all(bytes), false),
            Outcome::Sent(Ok(1), bytes) => (Operation::recv(bytes), true),
            other => panic!("{other:?}"),
        };
        token.start(with_deadline(next)).unwrap();
        is_answered
    });
}

#[test]
fn an_echo_by_operations_allocates_nothing() {
    let _alone = alone();
    if takes_memory("an_echo_by_operations_allocates_nothing", "each operation on a socket") {
        return;
    }
    operate_by_packets(|operation| operation);
}

#[test]
fn an_echo_by_operations_with_deadlines_allocates_nothing() {
    let _alone = alone();
    if takes_memory(
        "an_echo_by_operations_with_deadlines_allocates_nothing",
        "each operation on a socket",
    ) {
        return;
    }
    operate_by_packets(|operation| operation.deadline(SOON));
}

/// Each operation that can complete immediately does, in the call that starts it.
#[test]
fn an_echo_by_operations_that_are_done_at_once_allocates_nothing() {
    let _alone = alone();
    if takes_memory(
        "an_echo_by_operations_that_are_done_at_once_allocates_nothing",
        "each operation on a socket",
    ) {
        return;
    }
    operate(
        |operation| operation,
        |token, outcome| {
            let Outcome::Received(Ok(1), bytes) = outcome else { panic!("{outcome:?}") };
            let started = token.start_now(Operation::send_all(bytes)).unwrap();
            let Started::Completed((token, outcome)) = started else { panic!("no room") };
            token.recv(outcome.into_buffer().unwrap()).unwrap();
            true
        },
    );
}

/// A receive and a send are in flight at the same time, started through a `SharedId`.
#[test]
fn operations_of_shared_associations_allocate_nothing() {
    let _alone = alone();
    if takes_memory(
        "operations_of_shared_associations_allocate_nothing",
        "each operation on a socket",
    ) {
        return;
    }
    type Key = SharedSource<Stream>;
    let port = Port::builder().concurrency(1).build::<Key, ()>().unwrap();
    let (ours, theirs) = pairs(16);
    for ours in ours {
        let id = port.associate_shared(Key::new(ours)).unwrap();
        for _ in 0..2 {
            port.start(id, Operation::recv(Vec::with_capacity(64))).unwrap();
        }
    }
    let mut batch = Batch::new();
    assert_allocates_nothing(|| {
        call(&theirs);
        let mut answered = 0;
        while answered < theirs.len() {
            for packet in port.wait(&mut batch, SOON).unwrap() {
                let Packet::SharedCompleted(finished) = packet else { panic!("{packet:?}") };
                let id = finished.id();
                match finished.into_parts().1 {
                    Outcome::Received(Ok(1), bytes) => {
                        port.start(id, Operation::send_all(bytes)).unwrap();
                    }
                    Outcome::Sent(Ok(1), bytes) => {
                        port.start(id, Operation::recv(bytes)).unwrap();
                        answered += 1;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        hear(&theirs);
    });
}

/// Cached data is read immediately: with a packet, without one, and through a `SharedId`. Windows
/// never reads immediately.
#[cfg(target_os = "linux")]
#[test]
fn reading_what_is_in_memory_allocates_nothing() {
    let _alone = alone();
    type Key = SharedSource<std::fs::File>;
    let open = || Key::new(std::fs::File::open(std::env::current_exe().unwrap()).unwrap());
    let port = Port::builder().concurrency(1).build::<Key, ()>().unwrap();
    let mut batch = Batch::new();
    let mut token = Some(port.associate(open()).unwrap());
    let id = port.associate_shared(open()).unwrap();
    let mut buffers = Some([Vec::with_capacity(512), Vec::with_capacity(512)]);
    let bytes_of = |outcome: Outcome| match outcome {
        Outcome::Read(Ok(512), bytes) => bytes,
        other => panic!("{other:?}"),
    };
    let mut round = || {
        let [own, shared] = buffers.take().unwrap();
        let started = token.take().unwrap().start_now(Operation::read_at(own, 64)).unwrap();
        let Started::Completed((now, outcome)) = started else { return false };
        now.start(Operation::read_at(bytes_of(outcome), 0)).unwrap();
        port.start(id, Operation::read_at(shared, 0)).unwrap();
        let (mut own, mut shared) = (None, None);
        for packet in port.wait(&mut batch, SOON).unwrap() {
            match packet {
                Packet::Completed(done) => {
                    let (back, outcome) = done.into_parts();
                    (token, own) = (Some(back), Some(bytes_of(outcome)));
                }
                Packet::SharedCompleted(finished) => {
                    shared = Some(bytes_of(finished.into_parts().1))
                }
                other => panic!("{other:?}"),
            }
        }
        buffers = Some([own.unwrap(), shared.unwrap()]);
        true
    };
    if !round() {
        testkit::skipped("this file system does not report what it has cached");
        return;
    }
    assert_allocates_nothing(|| assert!(round()));
    assert_eq!(port.stats().file_engine, "none");
}

#[test]
fn cancelling_and_timing_out_allocate_nothing() {
    let _alone = alone();
    if takes_memory("cancelling_and_timing_out_allocate_nothing", "each operation on a socket") {
        return;
    }
    let port = Port::builder().concurrency(1).build::<Stream, ()>().unwrap();
    let (ours, _theirs) = pair();
    let mut token = Some(port.associate(ours).unwrap());
    let mut buffer = Some(Vec::with_capacity(64));
    let mut batch = Batch::new();
    let mut is_cancelled = false;
    assert_allocates_nothing(|| {
        let receive = Operation::recv(buffer.take().unwrap()).deadline(Duration::from_micros(50));
        let receive = token.take().unwrap().start(receive).unwrap();
        is_cancelled = !is_cancelled;
        if is_cancelled {
            port.cancel(receive).unwrap();
        }
        let packet = port.wait(&mut batch, SOON).unwrap().next();
        let Some(Packet::Completed(done)) = packet else { panic!("{packet:?}") };
        let (again, outcome) = done.into_parts();
        assert!(outcome.error().is_some());
        token = Some(again);
        buffer = outcome.into_buffer();
    });
}

/// Accepts of clients that connect later, of clients that have connected already, and of none.
#[test]
fn accepts_allocate_nothing() {
    let _alone = alone();
    if takes_memory("accepts_allocate_nothing", "each operation on a socket") {
        return;
    }
    type Key = SharedSource<TcpListener>;
    let port = Port::builder().concurrency(1).build::<Key, ()>().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let id = port.associate_shared(Key::new(listener)).unwrap();
    let mut batch = Batch::new();
    let mut round = 0;
    assert_allocates_nothing(|| {
        round += 1;
        let early = (round % 3 == 0).then(|| TcpStream::connect(address).unwrap());
        let accept = port.start(id, Operation::accept().deadline(SOON)).unwrap();
        let late = (round % 3 == 1).then(|| TcpStream::connect(address).unwrap());
        if round % 3 == 2 {
            assert!(port.cancel(accept).unwrap());
        }
        let packet = port.wait(&mut batch, SOON).unwrap().next();
        let Some(Packet::SharedCompleted(finished)) = packet else { panic!("{packet:?}") };
        let (_, outcome) = finished.into_parts();
        assert_eq!(outcome.error().is_some(), round % 3 == 2);
        drop((early, late));
    });
}

/// Datagrams by operations and by readiness, with segments and without.
#[test]
fn many_datagrams_allocate_nothing() {
    let _alone = alone();
    if takes_memory("many_datagrams_allocate_nothing", "each operation that waits") {
        return;
    }
    let port = Port::builder().concurrency(1).buffers::<Datagrams>().build::<UdpSocket, ()>();
    let port = port.unwrap();
    let [near, far] = [0, 1].map(|_| UdpSocket::bind("127.0.0.1:0").unwrap());
    far.connect(near.local_addr().unwrap()).unwrap();
    let mut token = Some(port.associate(near).unwrap());
    let mut datagrams = Some(Datagrams::new(16, 2048));
    let mut questions = Datagrams::new(16, 2048);
    let mut batch = Batch::new();
    assert_allocates_nothing(|| {
        for _ in 0..8 {
            assert!(questions.push(b"question", None));
        }
        assert!(questions.push_segments(&[7; 2000], 500, None));
        assert_eq!(questions.send(&far).unwrap(), 9);
        let mut answered = 0;
        token.take().unwrap().recv_many(datagrams.take().unwrap()).unwrap();
        while answered < 12 {
            for packet in port.wait(&mut batch, SOON).unwrap() {
                let Packet::Completed(done) = packet else { panic!("no operation") };
                match done.into_parts() {
                    (token, Outcome::ReceivedMany(Ok(_), received)) => {
                        token.send_many(received).unwrap();
                    }
                    (back, Outcome::SentMany(Ok(count), sent)) => {
                        answered += count;
                        if answered < 12 {
                            back.recv_many(sent).unwrap();
                        } else {
                            (token, datagrams) = (Some(back), Some(sent));
                        }
                    }
                    (_, outcome) => panic!("{outcome:?}"),
                }
            }
        }
        let mut heard = 0;
        while heard < 12 {
            far.peek(&mut [0]).unwrap();
            heard += questions.recv(&far).unwrap();
        }
        questions.clear();
    });
}
