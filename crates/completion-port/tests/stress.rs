//! Eight threads and two thousand connections over real sockets, with quick and slow handlers:
//! partial reads and writes, random closes, descriptors that are constantly reused, and every byte
//! checked.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, BorrowedSource, ErrorKind as PortError, Interest, OneShot, Packet, Port, Registration,
    Source,
};
use testkit::SOON;

const CLIENT_THREADS: usize = 8;
const SERVER_THREADS: usize = 8;
enum Peer {
    Listener(TcpListener),
    Client(Client),
}

struct Client {
    stream: TcpStream,
    /// Bytes read and not yet written back.
    owed: Vec<u8>,
    ended: bool,
}

impl Source for Peer {
    fn as_source(&self) -> BorrowedSource<'_> {
        match self {
            Self::Listener(listener) => listener.as_source(),
            Self::Client(client) => client.stream.as_source(),
        }
    }
}

/// A small and fast generator. The sequence doesn't matter as long as it varies.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

enum Outcome {
    Again { wants_out: bool, read_drained: bool },
    Over,
}

/// Reads and writes a few bytes.
fn serve_client(client: &mut Client, buffer: &mut [u8], dice: &mut Dice) -> Outcome {
    let mut read_drained = false;
    if client.owed.len() < 8192 && !client.ended {
        let room = 1 + usize::try_from(dice.roll(buffer.len() as u64)).unwrap();
        match client.stream.read(&mut buffer[..room]) {
            Ok(0) => client.ended = true,
            Ok(read) => {
                client.owed.extend_from_slice(&buffer[..read]);
                read_drained = read < room;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => read_drained = true,
            Err(_) => return Outcome::Over,
        }
    }
    while !client.owed.is_empty() {
        match client.stream.write(&client.owed) {
            Ok(written) => drop(client.owed.drain(..written)),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                return Outcome::Again { wants_out: true, read_drained };
            }
            Err(_) => return Outcome::Over,
        }
    }
    if client.ended { Outcome::Over } else { Outcome::Again { wants_out: false, read_drained } }
}

fn serve(port: &Port<Peer, ()>, seed: u64, accepted: &AtomicUsize, work: Duration) {
    let mut batch = Batch::with_capacity(16);
    let mut buffer = vec![0; 4096];
    let mut dice = Dice(seed);
    loop {
        let packets = match port.wait(&mut batch, None) {
            Ok(packets) => packets,
            Err(error) => {
                assert_eq!(error.kind(), PortError::Closed);
                return;
            }
        };
        for packet in packets {
            let begun = Instant::now();
            while begun.elapsed() < work {
                std::hint::spin_loop();
            }
            let mut ready = match packet {
                Packet::Ready(ready) => ready,
                Packet::Removed(..) => continue,
                other => panic!("an unexpected packet of kind {}", kind(&other)),
            };
            match ready.key_mut() {
                Peer::Listener(listener) => {
                    loop {
                        match listener.accept() {
                            Ok((stream, _)) => {
                                stream.set_nonblocking(true).unwrap();
                                let client = Client { stream, owed: Vec::new(), ended: false };
                                let peer = Peer::Client(client);
                                accepted.fetch_add(1, Relaxed);
                                // Refused only while the port shuts down.
                                let _ = port.register(Registration::owned(
                                    peer,
                                    Interest::IN,
                                    OneShot::Level,
                                ));
                            }
                            Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                            Err(error) => panic!("accept: {error}"),
                        }
                    }
                    ready.read_drained();
                    let _ = ready.rearm();
                }
                Peer::Client(client) => match serve_client(client, &mut buffer, &mut dice) {
                    Outcome::Over => drop(ready),
                    Outcome::Again { wants_out, read_drained } => {
                        // Sometimes without the hint, to cover the other path.
                        if read_drained && dice.roll(4) > 0 {
                            ready.read_drained();
                        }
                        if wants_out {
                            ready.write_full();
                        }
                        let interest = if wants_out { Interest::OUT } else { Interest::IN };
                        let _ = ready.rearm_as(interest, OneShot::Level);
                    }
                },
            }
        }
    }
}

fn kind<K, M>(packet: &Packet<'_, K, M>) -> &'static str {
    match packet {
        Packet::Ready(_) => "ready",
        Packet::Notified(_) => "notified",
        Packet::Posted(_) => "posted",
        Packet::Removed(..) => "removed",
        _ => "unknown",
    }
}

/// Makes one connection. Sends random bytes and expects the same back, or closes halfway.
fn visit(address: SocketAddr, dice: &mut Dice, bytes: &AtomicU64) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream.set_write_timeout(Some(SOON)).unwrap();
    let byte = |dice: &mut Dice| dice.roll(256).to_le_bytes()[0];
    let sent: Vec<u8> = (0..1 + dice.roll(12_000)).map(|_| byte(dice)).collect();
    let breaks_off = dice.roll(5) == 0;
    let mut writer = stream.try_clone().unwrap();
    let mut answer = Vec::new();
    for part in sent.chunks(1 + usize::try_from(dice.roll(3000)).unwrap()) {
        writer.write_all(part).unwrap();
        if breaks_off && dice.roll(3) == 0 {
            return;
        }
        let mut some = vec![0; part.len()];
        let read = stream.read(&mut some).unwrap();
        answer.extend_from_slice(&some[..read]);
    }
    stream.shutdown(Shutdown::Write).unwrap();
    stream.read_to_end(&mut answer).unwrap();
    assert_eq!(answer.len(), sent.len(), "bytes were lost");
    assert!(answer == sent, "bytes were changed");
    bytes.fetch_add(answer.len() as u64, Relaxed);
}

/// Returns the number of open descriptors, where the system lists them.
fn open_descriptors() -> Option<usize> {
    cfg!(target_os = "linux").then(|| std::fs::read_dir("/proc/self/fd").unwrap().count())
}

#[test]
fn two_thousand_connections_lose_nothing_and_leave_nothing() {
    visits(2_000, Duration::ZERO);
}

/// With slow handlers, several threads sleep in the kernel's wait.
#[test]
fn four_hundred_connections_with_slow_handlers_lose_nothing_and_leave_nothing() {
    visits(400, Duration::from_micros(40));
}

fn visits(connections: usize, work: Duration) {
    /// Runs one test at a time, since the descriptors of the process are counted.
    static ALONE: Mutex<()> = Mutex::new(());
    let _alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
    let before = open_descriptors();
    let begun = Instant::now();
    let bytes = AtomicU64::new(0);
    let accepted = AtomicUsize::new(0);
    {
        let port = testkit::port_builder().concurrency(4).build().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let peer = Peer::Listener(listener);
        port.register(Registration::owned(peer, Interest::IN, OneShot::Level)).unwrap();
        let served = thread::scope(|scope| {
            for number in 0..SERVER_THREADS {
                let (port, accepted) = (&port, &accepted);
                scope.spawn(move || serve(port, 0x9e37_79b9 + number as u64, accepted, work));
            }
            let clients: Vec<_> = (0..CLIENT_THREADS)
                .map(|number| {
                    let bytes = &bytes;
                    scope.spawn(move || {
                        let mut dice = Dice(0x2545_f491 + number as u64);
                        for _ in 0..connections / CLIENT_THREADS {
                            visit(address, &mut dice, bytes);
                        }
                    })
                })
                .collect();
            let results: Vec<_> = clients.into_iter().map(|client| client.join()).collect();
            if results.iter().any(Result::is_err) {
                eprintln!("{port:#?}");
            }
            // A client that closes immediately does not wait to be accepted.
            let ended = Instant::now();
            while accepted.load(Relaxed) < connections && ended.elapsed() < SOON {
                thread::yield_now();
            }
            port.shutdown().unwrap();
            results
        });
        for client in served {
            client.unwrap();
        }
        assert_eq!(port.stats().registered, 0, "{port:#?}");
        assert_eq!(port.stats().queued, 0);
    }
    assert_eq!(accepted.load(Relaxed), connections);
    assert!(bytes.load(Relaxed) > 0);
    assert_eq!(open_descriptors(), before, "a descriptor is left");
    println!(
        "{connections} connections, {} bytes echoed, {:?}",
        bytes.load(Relaxed),
        begun.elapsed()
    );
}
