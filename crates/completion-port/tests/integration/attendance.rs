//! A stuck handler delays no other connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, ErrorKind as PortError, Interest, OneShot, Packet, Port, Registration,
};
use testkit::{Obstacle, SOON, System, late};

const CONNECTIONS: usize = 64;

/// How long, and for how many rounds at least, the others are served while a handler is stuck.
const STUCK: Duration = Duration::from_secs(1);
const ROUNDS: usize = 20;

fn connections() -> (Vec<TcpStream>, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (0..CONNECTIONS)
        .map(|_| {
            let client = TcpStream::connect(address).unwrap();
            client.set_nodelay(true).unwrap();
            client.set_read_timeout(Some(SOON)).unwrap();
            let (server, _) = listener.accept().unwrap();
            server.set_nodelay(true).unwrap();
            server.set_nonblocking(true).unwrap();
            (client, server)
        })
        .unzip()
}

/// What the stuck handler does until the test releases it.
#[derive(Clone, Copy, PartialEq)]
enum Misbehaviour {
    Spins,
    /// Without announcing it, so the port must detect it.
    Sleeps,
}

/// A handler that does not return.
struct Stuck {
    how: Misbehaviour,
    begun: AtomicBool,
    let_go: AtomicBool,
    /// What the handler sleeps on.
    obstacle: Obstacle,
}

impl Stuck {
    fn new(how: Misbehaviour) -> Self {
        let (begun, let_go) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { how, begun, let_go, obstacle: Obstacle::condition() }
    }

    fn stay(&self) {
        self.begun.store(true, SeqCst);
        match self.how {
            Misbehaviour::Spins => {
                while !self.let_go.load(SeqCst) {
                    std::hint::spin_loop();
                }
            }
            Misbehaviour::Sleeps => self.obstacle.meet(),
        }
    }

    fn let_go(&self) {
        self.let_go.store(true, SeqCst);
        self.obstacle.clear();
    }
}

/// Ends the threads at the end of the test, even if it fails.
struct End<'a>(&'a Port<TcpStream>, &'a Stuck);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.1.let_go();
        self.0.close();
    }
}

fn echo(port: &Port<TcpStream>, stuck: &Stuck) {
    let mut batch = Batch::new();
    let mut byte = [0; 64];
    loop {
        let packets = match port.wait(&mut batch, None) {
            Ok(packets) => packets,
            Err(error) => {
                assert_eq!(error.kind(), PortError::Closed);
                return;
            }
        };
        for packet in packets {
            let Packet::Ready(mut ready) = packet else { continue };
            match ready.key_mut().read(&mut byte) {
                Ok(0) => drop(ready),
                Ok(read) => {
                    if byte[0] == b'!' {
                        stuck.stay();
                    }
                    ready.key_mut().write_all(&byte[..read]).unwrap();
                    ready.read_drained();
                    let _ = ready.rearm();
                }
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    let _ = ready.rearm();
                }
            }
        }
    }
}

/// Sends a byte on every connection, then again and again on all but the first, whose handler is
/// stuck. The handler is released only after the others were answered, so a packet that waited for
/// it would never be handled. Returns the slowest of some rounds before it got stuck, and the times
/// of the rounds during that, fastest first.
fn rounds_beside_a_stuck_handler(
    threads: usize,
    concurrency: usize,
    how: Misbehaviour,
) -> (Duration, Vec<Duration>) {
    let (mut clients, servers) = connections();
    let port: Port<TcpStream> = Port::builder().concurrency(concurrency).build().unwrap();
    for server in servers {
        port.register(Registration::owned(server, Interest::IN, OneShot::Level)).unwrap();
    }
    let stuck = Stuck::new(how);
    let (mut usual, mut rounds) = (Duration::ZERO, Vec::new());
    thread::scope(|scope| {
        let _end = End(&port, &stuck);
        for _ in 0..threads {
            scope.spawn(|| echo(&port, &stuck));
        }
        let (first, others) = clients.split_first_mut().unwrap();
        let mut make_round = || {
            let begun = Instant::now();
            for client in others.iter_mut() {
                client.write_all(b".").unwrap();
            }
            for client in others.iter_mut() {
                client.read_exact(&mut [0]).unwrap();
            }
            begun.elapsed()
        };
        usual = (0..ROUNDS).map(|_| make_round()).max().unwrap();
        let begun = Instant::now();
        // No wait in between, so that the others share batches with the one that gets stuck.
        first.write_all(b"!").unwrap();
        while begun.elapsed() < STUCK || rounds.len() < ROUNDS {
            let is_stuck = stuck.begun.load(SeqCst);
            assert!(is_stuck || begun.elapsed() < SOON, "the first one is not served");
            let round = make_round();
            if is_stuck {
                rounds.push(round);
            }
        }
        stuck.let_go();
        first.read_exact(&mut [0]).unwrap();
        port.shutdown().unwrap();
    });
    rounds.sort_unstable();
    (usual, rounds)
}

#[track_caller]
fn assert_nobody_waits(threads: usize, concurrency: usize, how: Misbehaviour) {
    let (usual, rounds) = rounds_beside_a_stuck_handler(threads, concurrency, how);
    let (median, slowest) = (rounds[rounds.len() / 2], rounds[rounds.len() - 1]);
    println!(
        "{threads} threads, concurrency {concurrency}: {} rounds, {median:?}, at most {slowest:?}",
        rounds.len()
    );
    // On a busy machine single rounds are slow, so compare the median, also with the rounds before.
    if median >= STUCK / 3 {
        assert!(usual >= median / 10, "the others waited {median:?}, and {usual:?} before");
        late();
    }
}

#[test]
fn a_spinning_handler_delays_no_other_connection() {
    testkit::run(System::native, |_| assert_nobody_waits(4, 4, Misbehaviour::Spins));
}

#[test]
fn a_spinning_handler_delays_no_other_connection_with_more_threads_than_seats() {
    testkit::run(System::native, |_| assert_nobody_waits(8, 4, Misbehaviour::Spins));
}

#[test]
fn a_handler_that_sleeps_unannounced_gives_its_seat_away() {
    testkit::run(System::native, |system| {
        system.not_on_windows("call that reports a sleeping thread");
        assert_nobody_waits(3, 1, Misbehaviour::Sleeps);
    });
}
