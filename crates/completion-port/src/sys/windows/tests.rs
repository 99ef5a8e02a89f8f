//! The reactor alone, on sockets of the system.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{Read as _, Write as _};
use std::mem::MaybeUninit;
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use windows_sys::Win32::Foundation::ERROR_NO_SYSTEM_RESOURCES;

use super::afd::Afd;
use super::afd::driver::start_poll;
use super::options::system_fault;
use crate::backend::reactor::{Reactor as _, Until, Watch};
use crate::state::facts::Facts;
use crate::types::config::FileEngine;
use crate::types::error::ErrorKind;
use crate::types::error::Fault;
use crate::types::source::Descriptor;
use crate::types::source::Source as _;

const SOON: Duration = Duration::from_secs(120);

/// Long enough to show that nothing arrives.
const QUIET: Duration = Duration::from_millis(50);

const BOTH: Facts = Facts::of_directions(0b11);

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let first = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (second, _) = listener.accept().unwrap();
    for stream in [&first, &second] {
        stream.set_nodelay(true).unwrap();
        stream.set_nonblocking(true).unwrap();
    }
    (first, second)
}

fn number(socket: &impl std::os::windows::io::AsSocket) -> Descriptor {
    socket.as_source().name.number
}

/// Returns the next edges within `limit`, as names and facts.
fn edges_within(afd: &Afd, limit: Duration) -> Vec<(u64, Facts)> {
    let end = Instant::now() + limit;
    let mut edges = Vec::with_capacity(64);
    while edges.is_empty() && Instant::now() < end {
        let left = end.saturating_duration_since(Instant::now());
        afd.poll(&mut edges, Some(left)).unwrap();
    }
    edges.iter().map(|edge| (edge.name, edge.facts)).collect()
}

fn edge(afd: &Afd) -> (u64, Facts) {
    let edges = edges_within(afd, SOON);
    assert_eq!(edges.len(), 1, "{edges:?}");
    edges[0]
}

fn assert_quiet(afd: &Afd) {
    assert_eq!(edges_within(afd, QUIET), []);
}

#[test]
fn what_is_asked_for_is_told_once() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let (ours, mut theirs) = pair();
    afd.attach(number(&ours), 7, BOTH).unwrap();
    assert_quiet(&afd);
    afd.want(number(&ours), 7, Facts::IN, Until::Edge).unwrap();
    assert_quiet(&afd);
    theirs.write_all(b"x").unwrap();
    assert_eq!(edge(&afd), (7, Facts::IN));
    assert_quiet(&afd);
    afd.want(number(&ours), 8, Facts::IN, Until::Edge).unwrap();
    assert_eq!(edge(&afd), (8, Facts::IN));
    afd.want(number(&ours), 8, BOTH, Until::Edge).unwrap();
    assert_eq!(edge(&afd), (8, BOTH));
}

#[test]
fn what_is_wanted_besides_is_told_while_a_request_is_in_flight() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let (ours, mut theirs) = pair();
    afd.attach(number(&ours), 7, BOTH).unwrap();
    for _ in 0..50 {
        afd.want(number(&ours), 7, Facts::IN, Until::Edge).unwrap();
        afd.want(number(&ours), 7, BOTH, Until::Edge).unwrap();
        assert_eq!(edge(&afd), (7, Facts::OUT));
        afd.want(number(&ours), 7, BOTH, Until::Edge).unwrap();
        afd.want(number(&ours), 7, Facts::IN, Until::Edge).unwrap();
        assert_eq!(edges_within(&afd, Duration::from_millis(1)), []);
    }
    theirs.write_all(b"x").unwrap();
    assert_eq!(edge(&afd), (7, Facts::IN));
}

#[test]
fn an_answer_from_before_the_question_does_not_count() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let (mut ours, mut theirs) = pair();
    afd.attach(number(&ours), 7, BOTH).unwrap();
    for _ in 0..20 {
        afd.want(number(&ours), 7, Facts::IN, Until::Edge).unwrap();
        theirs.write_all(b"x").unwrap();
        // The answer is queued in the completion port, and its conditions no longer hold.
        let mut byte = [0];
        while ours.read(&mut byte).is_err() {
            thread::yield_now();
        }
        afd.want(number(&ours), 7, Facts::IN, Until::Edge).unwrap();
        assert_eq!(edges_within(&afd, Duration::from_millis(5)), []);
    }
}

#[test]
fn a_question_outlives_the_thread_that_has_asked() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let (ours, mut theirs) = pair();
    thread::scope(|scope| {
        let asks = || {
            afd.attach(number(&ours), 7, BOTH).unwrap();
            afd.want(number(&ours), 7, Facts::IN, Until::Edge).unwrap();
        };
        scope.spawn(asks).join().unwrap();
    });
    assert_quiet(&afd);
    theirs.write_all(b"x").unwrap();
    assert_eq!(edge(&afd), (7, Facts::IN));
    assert!(afd.watches(number(&ours)));
}

#[test]
fn a_closed_socket_is_not_watched_whoever_has_its_number() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let mut found = 0;
    // With thousands of sockets that are closed while they are polled, Wine's server sometimes
    // crashes.
    for _ in 0..200 {
        let (ours, theirs) = pair();
        let old = number(&ours);
        afd.attach(old, 7, BOTH).unwrap();
        afd.want(old, 7, Facts::IN, Until::Edge).unwrap();
        assert!(afd.watches(old));
        drop(ours);
        // The number is among the lowest free ones.
        let next: Vec<_> = (0..8).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
        if next.iter().any(|next| number(next) == old) {
            found += 1;
            assert!(!afd.watches(old));
            let refused = afd.want(old, 7, BOTH, Until::Edge).map_err(|fault| fault.kind);
            assert_eq!(refused, Err(ErrorKind::BadDescriptor));
            afd.attach(old, 9, BOTH).unwrap();
            afd.want(old, 9, Facts::OUT, Until::Edge).unwrap();
            assert_eq!(edge(&afd), (9, Facts::OUT));
        } else {
            assert!(!afd.watches(old));
        }
        afd.detach(old);
        drop(theirs);
        if found == 5 {
            return;
        }
    }
    // Other tests may usually have been faster.
    assert!(found > 0, "no number was given out again");
}

#[test]
fn a_socket_is_attached_once() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let (ours, _theirs) = pair();
    let kind = |outcome: Result<(), crate::types::error::Fault>| outcome.unwrap_err().kind;
    afd.attach(number(&ours), 7, BOTH).unwrap();
    for _ in 0..3 {
        assert_eq!(kind(afd.attach(number(&ours), 8, BOTH)), ErrorKind::AlreadyRegistered);
    }
    afd.adopt(number(&ours), 8, BOTH).unwrap();
    assert_quiet(&afd);
    afd.want(number(&ours), 8, Facts::OUT, Until::Edge).unwrap();
    assert_eq!(edge(&afd), (8, Facts::OUT));
    afd.detach(number(&ours));
    assert_eq!(kind(afd.want(number(&ours), 8, BOTH, Until::Edge)), ErrorKind::BadDescriptor);
    assert_eq!(kind(afd.adopt(number(&ours), 8, BOTH)), ErrorKind::BadDescriptor);
    afd.attach(number(&ours), 9, BOTH).unwrap();
    assert_eq!(kind(afd.attach(0x7f_f000, 1, BOTH)), ErrorKind::BadDescriptor);
    assert_eq!(kind(afd.attach(-1, 1, BOTH)), ErrorKind::BadDescriptor);
}

#[test]
fn what_is_no_socket_cannot_be_watched() {
    use std::os::windows::io::AsRawHandle as _;
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
    let number = Descriptor::try_from(file.as_raw_handle().addr()).unwrap();
    let refused = afd.attach(number, 1, BOTH).map_err(|fault| fault.kind);
    assert_eq!(refused, Err(ErrorKind::NotPollable));
}

#[test]
fn a_lasting_watch_tells_of_each_arrival_and_once_of_the_end() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let (mut ours, mut theirs) = pair();
    afd.attach(number(&ours), 7, BOTH).unwrap();
    afd.want(number(&ours), 7, Facts::IN, Until::Detached).unwrap();
    for _ in 0..20 {
        theirs.write_all(b"x").unwrap();
        assert_eq!(edge(&afd), (7, Facts::IN));
        assert_eq!(ours.read(&mut [0; 8]).unwrap(), 1);
    }
    theirs.shutdown(Shutdown::Write).unwrap();
    let (_, facts) = edge(&afd);
    assert!(facts.has(Facts::IN | Facts::RDHUP), "{facts:?}");
    assert_quiet(&afd);
}

#[test]
fn a_lasting_watch_repeats_what_is_left_now_and_then() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let (ours, mut theirs) = pair();
    afd.attach(number(&ours), 7, BOTH).unwrap();
    afd.want(number(&ours), 7, Facts::IN, Until::Detached).unwrap();
    theirs.write_all(b"x").unwrap();
    let (mut told, begun) = (0, Instant::now());
    while begun.elapsed() < Duration::from_millis(200) {
        told += edges_within(&afd, QUIET).len();
    }
    // Finally once every 16 ms.
    assert!((2..40).contains(&told), "{told}");
}

#[test]
fn another_thread_that_sleeps_asks_again_for_the_one_that_was_told() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let (mut ours, mut theirs) = pair();
    afd.attach(number(&ours), 7, BOTH).unwrap();
    afd.want(number(&ours), 7, Facts::IN, Until::Detached).unwrap();
    thread::scope(|scope| {
        let waits = || {
            let got = edge(&afd);
            assert_eq!(got, (7, Facts::IN));
        };
        let waiting = [scope.spawn(waits), scope.spawn(waits)];
        for _ in 0..2 {
            theirs.write_all(b"x").unwrap();
            let end = Instant::now() + SOON;
            while ours.read(&mut [0; 8]).is_err() {
                assert!(Instant::now() < end);
                thread::yield_now();
            }
            thread::park_timeout(QUIET);
        }
        waiting.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// Three threads sleep. Each that gets an edge takes long to process it, and the last one must
/// still poll the socket again.
#[test]
fn the_last_thread_that_sleeps_asks_again_for_those_that_were_told() {
    for _ in 0..8 {
        let afd = Afd::new(FileEngine::Automatic).unwrap();
        let (lasting, mut theirs) = pair();
        let (other, mut others) = pair();
        afd.attach(number(&lasting), 7, BOTH).unwrap();
        afd.attach(number(&other), 8, BOTH).unwrap();
        afd.want(number(&lasting), 7, Facts::IN, Until::Detached).unwrap();
        afd.want(number(&other), 8, Facts::IN, Until::Edge).unwrap();
        theirs.write_all(b"x").unwrap();
        // No thread reads the byte, so the delays grow.
        (0..6).for_each(|_| assert_eq!(edge(&afd), (7, Facts::IN)));
        let (say, heard) = mpsc::channel();
        thread::scope(|scope| {
            for _ in 0..3 {
                let (say, afd) = (say.clone(), &afd);
                scope.spawn(move || {
                    let mut edges = Vec::with_capacity(1);
                    while !afd.poll(&mut edges, None).unwrap() && edges.is_empty() {}
                    say.send(edges.first().map(|edge| edge.name)).unwrap();
                });
            }
            let next = || {
                let told = heard.recv_timeout(SOON);
                if told.is_err() {
                    (0..3).for_each(|_| afd.wake());
                }
                told.expect("a thread sleeps on").unwrap()
            };
            assert_eq!(next(), 7);
            // Before it is polled again, while the others have left the poll for that.
            thread::park_timeout(Duration::from_millis(5));
            others.write_all(b"x").unwrap();
            let told = [next(), next()];
            // On a busy machine it is polled again before that byte.
            assert!(told.iter().all(|name| [7, 8].contains(name)), "{told:?}");
            if !told.contains(&8) {
                while edge(&afd).0 != 8 {}
            }
        });
    }
}

#[test]
fn who_takes_a_nudge_and_does_not_sleep_passes_it_on() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let (ours, mut theirs) = pair();
    afd.attach(number(&ours), 7, BOTH).unwrap();
    afd.want(number(&ours), 7, Facts::IN, Until::Detached).unwrap();
    theirs.write_all(b"x").unwrap();
    // Simulates another thread that sleeps without a limit.
    afd.sleepers.fetch_add(1, SeqCst);
    (0..6).for_each(|_| assert_eq!(edge(&afd), (7, Facts::IN)));
    for _ in 0..3 {
        afd.poll(&mut Vec::with_capacity(4), Some(Duration::ZERO)).unwrap();
    }
    // The packet that wakes it; or, if this took long, the next answer.
    let mut room = [const { MaybeUninit::uninit() }; 4];
    assert_ne!(afd.port.take(&mut room, 1000).unwrap(), 0, "the other thread sleeps on");
}

#[test]
fn a_wake_ends_a_poll_now_or_later() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let mut edges = Vec::with_capacity(4);
    assert!(!afd.poll(&mut edges, Some(Duration::ZERO)).unwrap());
    afd.wake();
    assert!(afd.poll(&mut edges, Some(SOON)).unwrap());
    thread::scope(|scope| {
        scope.spawn(|| assert!(afd.poll(&mut Vec::with_capacity(4), None).unwrap()));
        thread::park_timeout(QUIET);
        afd.wake();
    });
}

#[test]
fn a_poll_is_not_shorter_than_its_limit() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    for limit in [1, 3, 20].map(Duration::from_millis) {
        let begun = Instant::now();
        afd.poll(&mut Vec::with_capacity(4), Some(limit)).unwrap();
        assert!(begun.elapsed() >= limit);
    }
}

#[test]
fn more_answers_than_there_is_room_for_come_later() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let sockets: Vec<_> = (0..10).map(|_| UdpSocket::bind("127.0.0.1:0").unwrap()).collect();
    for (name, socket) in sockets.iter().enumerate() {
        afd.attach(number(socket), name as u64, BOTH).unwrap();
        afd.want(number(socket), name as u64, Facts::OUT, Until::Edge).unwrap();
    }
    let mut names = Vec::new();
    let mut edges = Vec::with_capacity(3);
    while names.len() < 10 {
        afd.poll(&mut edges, Some(SOON)).unwrap();
        assert!((1..=3).contains(&edges.len()) && edges.capacity() == 3);
        names.extend(edges.iter().map(|edge| edge.name));
    }
    names.sort_unstable();
    assert!(names.into_iter().eq(0..10));
}

#[test]
fn what_is_left_by_a_rebuild_is_told_again() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let (ours, mut theirs) = pair();
    let (other, mut others) = pair();
    for (name, socket) in [(1, &ours), (2, &other)] {
        afd.attach(number(socket), name, BOTH).unwrap();
        afd.want(number(socket), name, Facts::IN, Until::Edge).unwrap();
    }
    let live = Watch { descriptor: number(&ours), name: 3, wanted: Facts::IN, until: Until::Edge };
    afd.rebuild(&mut [live].into_iter()).unwrap();
    theirs.write_all(b"x").unwrap();
    others.write_all(b"x").unwrap();
    assert_eq!(edge(&afd), (3, Facts::IN));
    assert_quiet(&afd);
    assert!(afd.watches(number(&ours)) && !afd.watches(number(&other)));
}

/// Polls until `holds` returns true. It ignores the edges.
#[track_caller]
fn poll_until(afd: &Afd, holds: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < end, "it does not come");
        afd.poll(&mut Vec::with_capacity(4), Some(Duration::from_millis(1))).unwrap();
    }
}

/// A reactor, and the number of its next requests for which the system has no memory.
fn short_of_memory() -> (Afd, Arc<AtomicUsize>) {
    let mut afd = Afd::new(FileEngine::Automatic).unwrap();
    let shortage = Arc::new(AtomicUsize::new(0));
    let left = Arc::clone(&shortage);
    afd.device.start = Box::new(move |file, memory| {
        if left.fetch_update(SeqCst, SeqCst, |left| left.checked_sub(1)).is_ok() {
            return Err((memory, system_fault(ERROR_NO_SYSTEM_RESOURCES)));
        }
        start_poll(file, memory)
    });
    (afd, shortage)
}

fn kind_of<T>(outcome: Result<T, Fault>) -> Option<ErrorKind> {
    outcome.err().map(|fault| fault.kind)
}

#[test]
fn what_the_system_is_short_of_memory_for_is_asked_later() {
    let (afd, shortage) = short_of_memory();
    let (mut ours, mut theirs) = pair();
    let here = number(&ours);
    afd.attach(here, 7, BOTH).unwrap();
    shortage.store(1, SeqCst);
    assert_eq!(kind_of(afd.want(here, 7, BOTH, Until::Edge)), Some(ErrorKind::OutOfMemory));
    afd.want(here, 7, Facts::IN, Until::Edge).unwrap();
    // The former request is cancelled, and there is no memory for the next one, twice.
    afd.want(here, 8, BOTH, Until::Edge).unwrap();
    shortage.store(2, SeqCst);
    assert_eq!(edge(&afd), (8, Facts::OUT));
    assert_quiet(&afd);
    // A socket that is watched until it is detached is polled again and again.
    theirs.write_all(b"x").unwrap();
    afd.want(here, 9, Facts::IN, Until::Detached).unwrap();
    for _ in 0..3 {
        assert_eq!(edge(&afd), (9, Facts::IN));
        shortage.store(2, SeqCst);
    }
    assert_eq!(ours.read(&mut [0; 8]).unwrap(), 1);
    shortage.store(1, SeqCst);
    let live = Watch { descriptor: here, name: 10, wanted: BOTH, until: Until::Edge };
    poll_until(&afd, || shortage.load(SeqCst) == 0);
    afd.want(here, 9, BOTH, Until::Edge).unwrap();
    assert_eq!(edge(&afd), (9, Facts::OUT));
    shortage.store(1, SeqCst);
    afd.rebuild(&mut [live].into_iter()).unwrap();
    assert_eq!(edge(&afd), (10, Facts::OUT));
    assert_eq!(shortage.load(SeqCst), 0);
}

/// The system may cancel requests for its own reasons.
#[test]
fn what_is_owed_to_a_socket_is_made_up_for_by_a_thread_that_sleeps() {
    let (afd, shortage) = short_of_memory();
    let (ours, mut theirs) = pair();
    let here = number(&ours);
    afd.attach(here, 7, BOTH).unwrap();
    afd.want(here, 7, Facts::IN, Until::Edge).unwrap();
    shortage.store(5, SeqCst);
    thread::scope(|scope| {
        let sleeps = || edge(&afd);
        let sleeping = [scope.spawn(sleeps), scope.spawn(sleeps)];
        afd.device.cancel_all().unwrap();
        let end = Instant::now() + SOON;
        while shortage.load(SeqCst) > 0 && Instant::now() < end {
            thread::yield_now();
        }
        theirs.write_all(b"x").unwrap();
        while sleeping.iter().all(|it| !it.is_finished()) && Instant::now() < end {
            thread::yield_now();
        }
        let _ = afd.want(here, 7, Facts::IN, Until::Edge);
        sleeping.into_iter().for_each(|it| assert_eq!(it.join().unwrap(), (7, Facts::IN)));
    });
    assert!(afd.watches(here));
    drop(ours);
    assert!(!afd.watches(here));
}

#[test]
fn what_cannot_be_asked_for_want_of_memory_stays_as_it_was() {
    let (afd, shortage) = short_of_memory();
    let (ours, mut theirs) = pair();
    let here = number(&ours);
    afd.attach(here, 7, BOTH).unwrap();
    assert!(afd.carries(here).is_some());
    afd.want(here, 7, Facts::IN, Until::Edge).unwrap();
    shortage.store(3, SeqCst);
    assert_eq!(kind_of(afd.attach(here, 8, BOTH)), Some(ErrorKind::OutOfMemory));
    assert_eq!(kind_of(afd.adopt(here, 8, BOTH)), Some(ErrorKind::OutOfMemory));
    assert!(afd.watches(here), "nothing says that it was closed");
    assert_eq!(kind_of(afd.attach(here, 8, BOTH)), Some(ErrorKind::AlreadyRegistered));
    theirs.write_all(b"x").unwrap();
    assert_eq!(edge(&afd), (7, Facts::IN));
    // A failed attachment keeps what is known about a detached socket.
    afd.detach(here);
    shortage.store(1, SeqCst);
    assert_eq!(kind_of(afd.attach(here, 8, BOTH)), Some(ErrorKind::OutOfMemory));
    afd.attach(here, 8, BOTH).unwrap();
    assert!(afd.carries(here).is_some());
    drop(ours);
    assert!(!afd.watches(here));
}

#[test]
fn a_socket_that_is_detached_as_it_is_closed_is_forgotten() {
    let afd = Afd::new(FileEngine::Automatic).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(SeqCst) {
                afd.poll(&mut Vec::with_capacity(4), None).unwrap();
            }
        });
        for _ in 0..100 {
            let (ours, _theirs) = pair();
            let here = number(&ours);
            afd.attach(here, 7, BOTH).unwrap();
            assert!(afd.carries(here).is_some());
            drop(ours);
            afd.detach(here);
        }
        is_over.store(true, SeqCst);
        afd.wake();
    });
    poll_until(&afd, || afd.former.lock().unwrap().is_empty());
}

#[test]
fn a_reactor_is_dropped_with_its_requests_in_flight() {
    let pairs: Vec<_> = (0..100).map(|_| pair()).collect();
    for round in 0..5 {
        let afd = Afd::new(FileEngine::Automatic).unwrap();
        for (ours, _) in &pairs {
            afd.attach(number(ours), 7, BOTH).unwrap();
            let wanted = if round % 2 == 0 { Facts::IN } else { BOTH };
            afd.want(number(ours), 7, wanted, Until::Edge).unwrap();
        }
        if round == 2 {
            pairs.iter().for_each(|(ours, _)| afd.detach(number(ours)));
        }
        let begun = Instant::now();
        drop(afd);
        // The drop waits longer if the memory of a request is not returned.
        assert!(begun.elapsed() < Duration::from_secs(4), "{:?}", begun.elapsed());
    }
}
