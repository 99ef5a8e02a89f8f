//! A source that is always ready starves no other: hot sockets, hot posters and large batches.
//!
//! The bounds are numbers of packets, not times.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, BlockDetection, BorrowedSource, Interest, OneShot, Operation, Outcome, Packet,
    Persistent, Port, Registration, Source,
};
use testkit::{SOON, Socket, System, late, on_every_system};

/// Batch capacities, small and large.
const ROOMS: [usize; 2] = [1, 64];

/// Keys from here on belong to sockets that are always readable.
const HOT: usize = 1_000;

/// Messages from here on are posted again whenever they are handled.
const AGAIN: usize = 1_000;

/// Closes the port at the end of the test, even if it fails.
struct End<'a>(&'a Port<usize, usize>, &'a AtomicBool);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.1.store(true, SeqCst);
        self.0.close();
    }
}

/// Handles a packet, and keeps hot sources hot. Returns a packet of a cold source.
fn handle(port: &Port<usize, usize>, packet: Packet<'_, usize, usize>) -> Option<Cold> {
    match packet {
        Packet::Ready(ready) => {
            let key = *ready.key();
            if key < HOT {
                return Some(Cold::Socket(key));
            }
            // Nothing was read, so it stays hot.
            ready.rearm().unwrap();
            None
        }
        Packet::Notified(notified) => {
            assert!(*notified.key() >= HOT);
            None
        }
        Packet::Posted(message) if message < AGAIN => Some(Cold::Post(message)),
        Packet::Posted(message) => {
            port.post(message).unwrap();
            None
        }
        other => panic!("{other:?}"),
    }
}

/// A packet that comes once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Cold {
    Socket(usize),
    Post(usize),
}

/// Counts the packets that precede the awaited ones. At most `most` are allowed once the system has
/// reported readiness to the port. A system that reports later gets increasing pauses, and the
/// count restarts after each. A starved packet would still never come.
struct Turns {
    most: usize,
    packets: usize,
    pauses: Range<u32>,
}

impl Turns {
    fn new(system: &System, most: usize) -> Self {
        Self { most, packets: 0, pauses: 0..if system.tells_at_once() { 0 } else { 6 } }
    }

    /// Counts `packets` of one wait while `missing` had not yet come.
    #[track_caller]
    #[allow(clippy::disallowed_methods, reason = "nothing else says that the system has had time")]
    fn went_before(&mut self, packets: usize, missing: impl Debug) {
        assert!(packets > 0, "nothing came, and there is still to come: {missing:?}");
        self.packets += packets;
        if self.packets > self.most {
            let Some(pause) = self.pauses.next() else {
                panic!("after {} packets there was still to come: {missing:?}", self.packets);
            };
            thread::sleep(Duration::from_millis(10 << pause));
            self.packets = 0;
        }
    }
}

/// Takes packets, in batches of `room`, until all of `wanted` have come. Fails after more than
/// `most` packets.
#[track_caller]
fn serve(
    system: &System,
    port: &Port<usize, usize>,
    room: usize,
    most: usize,
    mut wanted: BTreeSet<Cold>,
) -> usize {
    let mut batch = Batch::with_capacity(room);
    let (mut turns, mut all) = (Turns::new(system, most), 0);
    while !wanted.is_empty() {
        let mut packets = 0;
        for packet in port.wait(&mut batch, SOON).unwrap() {
            packets += 1;
            if let Some(cold) = handle(port, packet) {
                assert!(wanted.remove(&cold), "{cold:?} came twice");
            }
        }
        all += packets;
        turns.went_before(packets, &wanted);
    }
    all
}

fn port(system: &System) -> Port<usize, usize> {
    system.port(1)
}

/// A readable socket from which nothing is read.
fn hot(system: &System) -> [Socket; 2] {
    let (ours, theirs) = system.unix_pair();
    theirs.write(b"x").unwrap();
    [ours, theirs]
}

fn one_shot(socket: &Socket, key: usize) -> Registration<'_, usize> {
    Registration::new(socket, key, Interest::IN, OneShot::Level)
}

fn persistent(socket: &Socket, key: usize) -> Registration<'_, usize> {
    Registration::new(socket, key, Interest::IN, Persistent::Level)
}

/// Checks that each of some cold sockets and posts is served soon after it became ready, alongside
/// the hot sources that `register` adds.
fn cold_ones_are_served(
    system: &System,
    hot_ones: usize,
    register: impl Fn(&Port<usize, usize>, &mut Vec<Socket>),
) {
    for room in ROOMS {
        let (port, mut sockets) = (port(system), Vec::new());
        register(&port, &mut sockets);
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..20).map(|_| system.unix_pair()).unzip();
        for (key, ours) in ours.iter().enumerate() {
            port.register(one_shot(ours, key)).unwrap();
        }
        let mut slowest = 0;
        for (number, theirs) in theirs.iter().enumerate() {
            theirs.write(b"x").unwrap();
            port.post(number).unwrap();
            let wanted = [Cold::Socket(number), Cold::Post(number)].into();
            // One batch may be in progress, and another may have been queued before.
            let most = 2 * room.min(hot_ones + 2) + 2 * hot_ones + 4;
            slowest = slowest.max(serve(system, &port, room, most, wanted));
        }
        println!("{hot_ones} hot ones, batches of {room}: the cold ones come after {slowest}");
        drop(sockets);
    }
}

/// A key that owns its socket.
#[derive(Clone, Debug)]
struct Owner {
    number: usize,
    socket: Arc<Socket>,
}

impl Source for Owner {
    fn as_source(&self) -> BorrowedSource<'_> {
        self.socket.as_source()
    }
}

/// A hot socket whose peer has sent more than is ever received.
fn sated(system: &System, number: usize) -> (Owner, Socket) {
    let (ours, theirs) = system.unix_pair();
    assert!(theirs.fill() > 10_000);
    (Owner { number, socket: Arc::new(ours) }, theirs)
}

/// Hot sockets always deliver a byte. Checks that each of some quiet ones is served soon after its
/// peer sends. Each hot socket has `flights` receives in flight, or continues with its token if
/// that is 0.
fn quiet_ones_are_served(system: &System, hot_ones: usize, flights: usize) {
    let room = || Vec::with_capacity(1);
    for batch in ROOMS {
        let port: Port<Owner, ()> = system.port(1);
        let mut peers = Vec::new();
        for number in 0..hot_ones {
            let (owner, peer) = sated(system, HOT + number);
            peers.push(peer);
            if flights == 0 {
                port.associate(owner).unwrap().recv(room()).unwrap();
            } else {
                let id = port.associate_shared(owner).unwrap();
                for _ in 0..flights {
                    port.start(id, Operation::recv(room())).unwrap();
                }
            }
        }
        let mut quiet = Vec::new();
        for number in 0..20 {
            let (ours, theirs) = system.unix_pair();
            let owner = Owner { number, socket: Arc::new(ours) };
            port.associate(owner).unwrap().recv(room()).unwrap();
            quiet.push(theirs);
        }
        let most = 2 * batch.min(hot_ones * flights.max(1) + 2) + 2 * hot_ones * flights.max(1) + 4;
        let (mut slowest, mut hot_ones_seen) = (0, 0);
        let mut packets = Batch::with_capacity(batch);
        for (number, theirs) in quiet.iter().enumerate() {
            theirs.write(b"q").unwrap();
            let (mut turns, mut count, mut is_served) = (Turns::new(system, most), 0, false);
            while !is_served {
                let before = count;
                for packet in port.wait(&mut packets, SOON).unwrap() {
                    count += 1;
                    let (key, outcome) = match packet {
                        Packet::Completed(done) => {
                            let (token, outcome) = done.into_parts();
                            let key = token.key().number;
                            // Each starts its next receive.
                            token.recv(room()).unwrap();
                            (key, outcome)
                        }
                        Packet::SharedCompleted(finished) => {
                            let id = finished.id();
                            port.start(id, Operation::recv(room())).unwrap();
                            let (key, outcome) = finished.into_parts();
                            (key.number, outcome)
                        }
                        other => panic!("{other:?}"),
                    };
                    let Outcome::Received(Ok(1), bytes) = outcome else { panic!("{outcome:?}") };
                    if key < HOT {
                        assert_eq!((key, &bytes[..]), (number, b"q".as_slice()));
                        is_served = true;
                    } else {
                        assert_eq!(bytes, b"x");
                        hot_ones_seen += 1;
                    }
                }
                turns.went_before(count - before, number);
            }
            slowest = slowest.max(count);
        }
        assert!(hot_ones_seen > 0, "what is hot has its turns, too");
        println!("{hot_ones} hot ones, batches of {batch}: the quiet ones come after {slowest}");
        drop(peers);
    }
}

on_every_system! {
    /// It is rearmed immediately, without a read or a hint.
    fn a_hot_socket_starves_nobody(system: &System) {
        cold_ones_are_served(system, 1, |port, sockets| {
            sockets.extend(hot(system));
            port.register(one_shot(&sockets[0], HOT)).unwrap();
        });
    }

    /// It is never disarmed.
    fn a_hot_persistent_socket_starves_nobody(system: &System) {
        cold_ones_are_served(system, 1, |port, sockets| {
            sockets.extend(hot(system));
            port.register(persistent(&sockets[0], HOT)).unwrap();
        });
    }

    /// Several sockets of each kind.
    fn many_hot_sockets_starve_nobody(system: &System) {
        cold_ones_are_served(system, 10, |port, sockets| {
            sockets.extend((0..10).flat_map(|_| hot(system)));
            for (number, pair) in sockets.chunks(2).enumerate() {
                let make = if number.is_multiple_of(2) { one_shot } else { persistent };
                port.register(make(&pair[0], HOT + number)).unwrap();
            }
        });
    }

    /// Each handler posts its message again.
    fn messages_that_are_posted_again_starve_nobody(system: &System) {
        cold_ones_are_served(system, 16, |port, _| {
            (0..16).for_each(|number| port.post(AGAIN + number).unwrap());
        });
    }

    /// Hot sockets and hot messages together.
    fn hot_sockets_and_hot_messages_starve_nobody(system: &System) {
        cold_ones_are_served(system, 12, |port, sockets| {
            sockets.extend((0..4).flat_map(|_| hot(system)));
            for (number, pair) in sockets.chunks(2).enumerate() {
                port.register(one_shot(&pair[0], HOT + number)).unwrap();
            }
            (0..8).for_each(|number| port.post(AGAIN + number).unwrap());
        });
    }

    /// The connection always has data, and its handler continues to receive.
    fn a_connection_that_always_has_data_starves_no_operation(system: &System) {
        quiet_ones_are_served(system, 1, 0);
    }

    /// Several such connections.
    fn many_connections_that_always_have_data_starve_no_operation(system: &System) {
        quiet_ones_are_served(system, 10, 0);
    }

    /// Sixteen receives are in flight on each connection.
    fn many_receives_that_are_always_done_starve_no_operation(system: &System) {
        quiet_ones_are_served(system, 2, 16);
    }

    /// One thread posts as fast as it can, with at most `WINDOW` messages queued.
    fn a_thread_that_posts_all_the_time_starves_no_socket(system: &System) {
        const WINDOW: usize = 64;
        let port = port(system);
        let (ours, theirs): (Vec<_>, Vec<_>) = (0..50).map(|_| system.unix_pair()).unzip();
        for (key, ours) in ours.iter().enumerate() {
            port.register(one_shot(ours, key)).unwrap();
        }
        let (under_way, over) = (AtomicUsize::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let _end = End(&port, &over);
            scope.spawn(|| {
                while !over.load(SeqCst) {
                    if under_way.load(SeqCst) < WINDOW {
                        under_way.fetch_add(1, SeqCst);
                        // Fails if the test has ended.
                        let _ = port.post(0);
                    } else {
                        thread::yield_now();
                    }
                }
            });
            let mut batch = Batch::new();
            let mut slowest = 0;
            for (number, theirs) in theirs.iter().enumerate() {
                let begun = Instant::now();
                while under_way.load(SeqCst) < WINDOW {
                    assert!(begun.elapsed() < system.soon(), "nobody posts");
                    thread::yield_now();
                }
                theirs.write(b"x").unwrap();
                let (mut turns, mut before, mut came) = (Turns::new(system, 3 * WINDOW + 1), 0, false);
                while !came {
                    let already = before;
                    for packet in port.wait(&mut batch, SOON).unwrap() {
                        match packet {
                            Packet::Posted(_) => {
                                under_way.fetch_sub(1, SeqCst);
                                before += usize::from(!came);
                            }
                            Packet::Ready(ready) => {
                                assert_eq!(*ready.key(), number);
                                came = true;
                            }
                            other => panic!("{other:?}"),
                        }
                    }
                    turns.went_before(before - already + usize::from(came), number);
                }
                slowest = slowest.max(before);
            }
            println!("at most {slowest} messages went first");
            assert!(slowest > 0, "the messages were no rivals");
        });
    }

    /// Five hundred sockets become ready at one time, next to a few that are always ready.
    fn many_cold_sockets_are_all_served_beside_hot_ones(system: &System) {
        const MANY: usize = 500;
        // One such test at a time, because the descriptors don't suffice for more.
        static ALONE: Mutex<()> = Mutex::new(());
        let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let port = port(system);
        let counters: Vec<_> = (0..MANY).map(|_| system.event()).collect();
        let hot: Vec<_> = (0..3).map(|_| hot(system)).collect();
        for (key, counter) in counters.iter().enumerate() {
            port.register(one_shot(counter, key)).unwrap();
        }
        for (number, [ours, _]) in hot.iter().enumerate() {
            let make = if number == 0 { one_shot } else { persistent };
            port.register(make(ours, HOT + number)).unwrap();
        }
        (0..4).for_each(|number| port.post(AGAIN + number).unwrap());
        // Start the hot ones.
        port.post(0).unwrap();
        serve(system, &port, 64, 100, [Cold::Post(0)].into());
        counters.iter().for_each(|counter| counter.signal(1).unwrap());
        let packets = serve(system, &port, 16, 3 * MANY, (0..MANY).map(Cold::Socket).collect());
        println!("{MANY} were served within {packets} packets");
    }

    /// Each hot socket gets about the same number of packets.
    fn hot_sockets_get_equal_shares(system: &System) {
        const SOCKETS: usize = 8;
        const EACH: usize = 100;
        for make in [one_shot, persistent] {
            for room in [1, 3, 64] {
                let port = port(system);
                let sockets: Vec<_> = (0..SOCKETS).map(|_| hot(system)).collect();
                for (number, [ours, _]) in sockets.iter().enumerate() {
                    port.register(make(ours, HOT + number)).unwrap();
                }
                let mut shares = [0; SOCKETS];
                let mut are_told = system.tells_at_once();
                let mut batch = Batch::with_capacity(room);
                while shares.iter().sum::<usize>() < SOCKETS * EACH {
                    for packet in port.wait(&mut batch, SOON).unwrap() {
                        let key = match &packet {
                            Packet::Ready(ready) => *ready.key(),
                            Packet::Notified(notified) => *notified.key(),
                            other => panic!("{other:?}"),
                        };
                        shares[key - HOT] += 1;
                        assert_eq!(handle(&port, packet), None);
                    }
                    if !are_told && shares.iter().all(|share| *share > 0) {
                        // By now the system has reported all of them.
                        (are_told, shares) = (true, [0; SOCKETS]);
                    }
                }
                println!("batches of {room}: {shares:?}");
                let equal = EACH / 2..=2 * EACH;
                assert!(shares.iter().all(|share| equal.contains(share)), "{shares:?}");
            }
        }
    }

    /// Several threads serve, and each cold socket becomes ready in a handler of the hot one. The
    /// handler takes long enough that few hot packets are handled while a thread is woken for the
    /// cold one.
    fn a_hot_socket_starves_nobody_with_several_threads(system: &System) {
        const COLD: usize = 50;
        const LONG: Duration = Duration::from_micros(200);
        // Some systems report readiness a little later. A starved socket would still never be
        // served.
        let usually = if system.tells_at_once() { 100 } else { 1_000 };
        system.several_threads_wait();
        let port = system.port::<usize, usize>(2);
        let [ours, _theirs] = hot(system);
        port.register(one_shot(&ours, HOT)).unwrap();
        let (cold, wakers): (Vec<_>, Vec<_>) = (0..COLD).map(|_| system.unix_pair()).unzip();
        for (key, cold) in cold.iter().enumerate() {
            port.register(one_shot(cold, key)).unwrap();
        }
        let (packets, woken, served) =
            (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
        let (since, waits) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            let _end = End(&port, &over);
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut batch = Batch::with_capacity(8);
                    while let Ok(taken) = port.wait(&mut batch, None) {
                        for packet in taken {
                            let Packet::Ready(ready) = packet else { panic!("{packet:?}") };
                            let count = packets.fetch_add(1, SeqCst);
                            if *ready.key() < HOT {
                                waits.lock().unwrap().push(count - since.load(SeqCst));
                                served.fetch_add(1, SeqCst);
                                continue;
                            }
                            let number = woken.load(SeqCst);
                            if number < COLD && number == served.load(SeqCst) {
                                // This thread holds the hot socket's key, so no other thread is
                                // here.
                                woken.store(number + 1, SeqCst);
                                since.store(count, SeqCst);
                                wakers[number].write(b"x").unwrap();
                            }
                            let begun = Instant::now();
                            while begun.elapsed() < LONG {
                                std::hint::spin_loop();
                            }
                            // Fails if the test has ended.
                            let _ = ready.rearm();
                        }
                    }
                });
            }
            let begun = Instant::now();
            while served.load(SeqCst) < COLD {
                assert!(begun.elapsed() < 3 * system.soon(), "{served:?} were served");
                if let Some(kernel) = system.kernel() {
                    kernel.advance(Duration::from_millis(1));
                }
                thread::yield_now();
            }
        });
        let mut waits = waits.into_inner().unwrap();
        waits.sort_unstable();
        // Each was served. A few of these waits may be long on a busy machine.
        let (usual, most) = (waits[waits.len() / 2], waits[waits.len() - 1]);
        println!("{usual} packets between readiness and packet, at most {most}");
        if usual > usually {
            // A woken thread may have to wait for a processor.
            late();
        }
    }

    /// Four threads wait, and sixty-four sockets become ready at one time.
    fn a_large_batch_is_shared_among_idle_threads(system: &System) {
        a_large_batch_is_shared(system, BlockDetection::Automatic);
    }

    /// The port detects no blocked threads.
    fn a_large_batch_is_shared_where_only_announced_blocks_count(system: &System) {
        a_large_batch_is_shared(system, BlockDetection::Announced);
    }
}

/// A long send to a peer that keeps up lets messages pass throughout, including from its start.
#[cfg(target_os = "linux")]
#[test]
fn a_send_of_all_to_a_fast_reader_lets_others_pass() {
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    use completion_port::SharedSource;

    const PART: usize = 1 << 18;
    // The amount that two attempts send, and the amount that the socket buffers.
    const MOST: u64 = (2 << 20) + (1 << 20);
    // Started by the token or through its `SharedId`, with one part or many: ten times as much as
    // one attempt may send.
    for (shares, parts, len) in [(false, 128, PART), (true, 128, PART), (false, 1, 1 << 25)] {
        let (near, far) = UnixStream::pair().unwrap();
        let all = parts as u64 * len as u64;
        let part: Arc<[u8]> = vec![7; len].into();
        let buffer = vec![part; parts];
        let read = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&read);
        let reader = thread::spawn(move || {
            let (mut far, mut bytes) = (far, vec![0; PART]);
            loop {
                match far.read(&mut bytes).unwrap() {
                    0 => return,
                    more => count.fetch_add(more, SeqCst),
                };
            }
        });
        let port: Port<SharedSource<UnixStream>, usize, _> =
            testkit::port_builder().concurrency(1).buffers::<Vec<Arc<[u8]>>>().build().unwrap();
        let operation = Operation::send_all(buffer);
        let near = SharedSource::new(near);
        if shares {
            let id = port.associate_shared(near).unwrap();
            port.start(id, operation).unwrap();
        } else {
            port.associate(near).unwrap().start(operation).unwrap();
        }
        let sent = || read.load(SeqCst) as u64;
        assert!(sent() <= MOST, "the start has sent {}", sent());
        port.post(0).unwrap();
        let (mut last, mut most, mut batch, mut is_sent) = (sent(), 0, Batch::new(), false);
        while !is_sent {
            for packet in port.wait(&mut batch, SOON).unwrap() {
                match packet {
                    Packet::Posted(_) => {
                        let now = sent();
                        most = most.max(now - last);
                        last = now;
                        port.post(0).unwrap();
                    }
                    Packet::Completed(done) => {
                        assert!(
                            matches!(done.into_parts().1, Outcome::Sent(Ok(sent), _) if sent as u64 == all)
                        );
                        is_sent = true;
                    }
                    Packet::SharedCompleted(done) => {
                        assert!(
                            matches!(done.into_parts().1, Outcome::Sent(Ok(sent), _) if sent as u64 == all)
                        );
                        is_sent = true;
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        println!("between two messages at most {most} bytes of {all} are sent");
        assert!(most <= MOST, "{most} bytes between two messages");
        drop(port);
        reader.join().unwrap();
    }
}

/// A handler takes a millisecond. The first handler of each thread also waits until every thread
/// has had a packet. Otherwise a fast thread on a busy machine could take everything, which would
/// prove nothing.
fn a_large_batch_is_shared(system: &System, detection: BlockDetection) {
    const SOCKETS: usize = 64;
    const THREADS: usize = 4;
    const LONG: Duration = Duration::from_millis(1);
    system.several_threads_wait();
    let port = system.port_that::<usize, usize>(THREADS, detection).unwrap();
    let (ours, theirs): (Vec<_>, Vec<_>) = (0..SOCKETS).map(|_| system.unix_pair()).unzip();
    for (key, ours) in ours.iter().enumerate() {
        port.register(one_shot(ours, key)).unwrap();
    }
    let handled = [(); THREADS].map(|()| AtomicUsize::new(0));
    let over = AtomicBool::new(false);
    let eventually = |what: &str, condition: &dyn Fn() -> bool| {
        let begun = Instant::now();
        while !condition() {
            assert!(begun.elapsed() < system.soon(), "it did not happen that {what}: {handled:?}");
            if let Some(kernel) = system.kernel() {
                kernel.advance(LONG);
            }
            thread::yield_now();
        }
    };
    let all = || handled.iter().map(|count| count.load(SeqCst)).sum::<usize>() == SOCKETS;
    let each = || handled.iter().all(|count| count.load(SeqCst) > 0);
    thread::scope(|scope| {
        let _end = End(&port, &over);
        for mine in &handled {
            let (port, over) = (&port, &over);
            scope.spawn(move || {
                let mut batch = Batch::new();
                while let Ok(packets) = port.wait(&mut batch, None) {
                    for packet in packets {
                        let Packet::Ready(_) = packet else { panic!("{packet:?}") };
                        let first = mine.fetch_add(1, SeqCst) == 0;
                        let begun = Instant::now();
                        while begun.elapsed() < LONG || first && !each() && !over.load(SeqCst) {
                            std::hint::spin_loop();
                        }
                    }
                }
            });
        }
        eventually("all wait", &|| port.stats().parked == THREADS);
        theirs.iter().for_each(|theirs| assert_eq!(theirs.write(b"x").unwrap(), 1));
        eventually("each thread gets some", &each);
        eventually("all are handled", &all);
    });
    println!("{handled:?}");
}
