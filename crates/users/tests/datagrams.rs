//! The example that forwards datagrams, with clients and a server that check the content.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::collections::HashSet;
use std::io::ErrorKind;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use users::build::example;
use users::clients::content;
use users::server::{Server, assert_rests, end};

/// An answer that takes longer does not come, however busy the machine is.
const SOON: Duration = Duration::from_secs(120);
/// A datagram that is not answered for this long is sent again, since it may be lost.
const AGAIN: Duration = Duration::from_millis(300);
/// As long as a datagram of IPv4 can be. macOS and the BSDs send up to 9,216 bytes by default.
const LARGEST: usize = if cfg!(target_os = "linux") { 65_507 } else { 9216 };

fn socket(address: SocketAddr) -> UdpSocket {
    let socket = UdpSocket::bind(address).unwrap();
    socket.set_read_timeout(Some(AGAIN)).unwrap();
    socket
}

fn any() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 0))
}

/// A server that answers each datagram by its reverse, and notes the senders.
struct Reverser {
    address: SocketAddr,
    senders: Arc<Mutex<HashSet<SocketAddr>>>,
    has_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Reverser {
    fn start(address: SocketAddr) -> Self {
        let socket = socket(address);
        let address = socket.local_addr().unwrap();
        let senders = Arc::<Mutex<HashSet<_>>>::default();
        let has_ended = Arc::<AtomicBool>::default();
        let (noted, ends) = (Arc::clone(&senders), Arc::clone(&has_ended));
        let thread = thread::spawn(move || {
            let mut buffer = vec![0; LARGEST];
            while !ends.load(Ordering::Relaxed) {
                // A time-out, or a forwarder that has ended.
                let Ok((length, sender)) = socket.recv_from(&mut buffer) else { continue };
                noted.lock().unwrap().insert(sender);
                buffer[..length].reverse();
                let _ = socket.send_to(&buffer[..length], sender);
            }
        });
        Self { address, senders, has_ended, thread: Some(thread) }
    }

    fn senders(&self) -> usize {
        self.senders.lock().unwrap().len()
    }
}

impl Drop for Reverser {
    fn drop(&mut self) {
        self.has_ended.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap();
    }
}

/// Sends a datagram, repeatedly if needed, until it is answered. Answers to earlier ones are
/// ignored, which may come twice.
fn exchange(client: &UdpSocket, forwarder: SocketAddr, bytes: &[u8]) {
    let expected: Vec<u8> = bytes.iter().rev().copied().collect();
    let deadline = Instant::now() + SOON;
    let mut buffer = vec![0; LARGEST + 1];
    while Instant::now() < deadline {
        client.send_to(bytes, forwarder).unwrap();
        loop {
            match client.recv_from(&mut buffer) {
                Ok((length, sender)) if buffer[..length] == expected => {
                    assert_eq!(sender, forwarder);
                    return;
                }
                Ok(_) => {}
                Err(error) => {
                    let is_late = [ErrorKind::WouldBlock, ErrorKind::TimedOut];
                    assert!(is_late.contains(&error.kind()), "{error}");
                    break;
                }
            }
        }
    }
    panic!("{} bytes are not answered", bytes.len());
}

fn start(server: SocketAddr, idle: &str) -> Server {
    Server::start(&example("udp_forwarder"), &["127.0.0.1:0", &server.to_string(), idle])
}

#[test]
fn each_client_has_its_own_answers() {
    const CLIENTS: usize = 20;
    let server = Reverser::start(any());
    let forwarder = start(server.address, "3600");
    assert_rests(&forwarder);
    let address = forwarder.address;
    thread::scope(|scope| {
        for number in 0..CLIENTS {
            scope.spawn(move || {
                let client = socket(any());
                for (seed, length) in (0..).zip([1, 0, 100, 1400, 9000, LARGEST]) {
                    let mut bytes = content(seed, length);
                    // No other client has these.
                    if let Some(first) = bytes.first_mut() {
                        *first = 200 + u8::try_from(number).unwrap();
                    }
                    exchange(&client, address, &bytes);
                }
            });
        }
        // A client that only sends, more than anything on the way keeps.
        scope.spawn(move || {
            let client = socket(any());
            for _ in 0..5000 {
                let _ = client.send_to(&[7; 1000], address);
            }
        });
    });
    exchange(&socket(any()), address, b"still here");
    // A socket for each client, and no more. Of the last one all may be lost.
    assert!((CLIENTS + 1..=CLIENTS + 2).contains(&server.senders()), "{}", server.senders());
    assert_rests(&forwarder);
    end(forwarder);
}

#[test]
fn a_silent_client_is_forgotten_and_may_come_back() {
    let server = Reverser::start(any());
    let forwarder = start(server.address, "1");
    let client = socket(any());
    exchange(&client, forwarder.address, b"first");
    // On a busy machine it may have been silent for too long before.
    let before = server.senders();
    let deadline = Instant::now() + SOON;
    let mut silence = Duration::from_millis(1200);
    while server.senders() == before {
        assert!(Instant::now() < deadline, "the client keeps its socket");
        thread::park_timeout(silence);
        exchange(&client, forwarder.address, b"again");
        silence *= 2;
    }
    exchange(&client, forwarder.address, b"the third");
    assert_rests(&forwarder);
    end(forwarder);
}

#[test]
fn a_server_that_is_away_may_come_back() {
    let server = Reverser::start(any());
    let address = server.address;
    let mut forwarder = start(address, "3600");
    let client = socket(any());
    exchange(&client, forwarder.address, b"first");
    drop(server);
    // Each is refused by the system, as an error of the forwarder's socket.
    for _ in 0..100 {
        client.send_to(b"nobody", forwarder.address).unwrap();
    }
    assert_rests(&forwarder);
    forwarder.assert_runs();
    let _server = Reverser::start(address);
    exchange(&client, forwarder.address, b"second");
    end(forwarder);
}
