//! A handler that does not come back delays nobody but itself.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, ErrorKind as PortError, Interest, OneShot, Packet, Port, Registration,
};

const CONNECTIONS: usize = 64;
const SPIN: Duration = Duration::from_secs(1);

fn connections() -> (Vec<TcpStream>, Vec<TcpStream>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    (0..CONNECTIONS)
        .map(|_| {
            let client = TcpStream::connect(address).unwrap();
            client.set_nodelay(true).unwrap();
            client.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            let (server, _) = listener.accept().unwrap();
            server.set_nodelay(true).unwrap();
            server.set_nonblocking(true).unwrap();
            (client, server)
        })
        .unzip()
}

/// What a handler does with its first byte.
#[derive(Clone, Copy, PartialEq)]
enum Misbehaviour {
    Spins,
    Sleeps,
}

fn echo(port: &Port<TcpStream, ()>, how: Misbehaviour, stuck: &AtomicBool) {
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
                        stuck.store(true, SeqCst);
                        let begun = Instant::now();
                        match how {
                            Misbehaviour::Spins => {
                                while begun.elapsed() < SPIN {
                                    std::hint::spin_loop();
                                }
                            }
                            // Without telling the port: it has to find out.
                            Misbehaviour::Sleeps => {
                                let (_keep, never) = std::sync::mpsc::channel::<()>();
                                let _ = never.recv_timeout(SPIN);
                            }
                        }
                        stuck.store(false, SeqCst);
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

/// Sends a byte on every connection, the first of which makes its handler misbehave, again and again
/// until that handler is done, and returns the slowest answer of the others.
fn slowest_answer(threads: usize, concurrency: usize, how: Misbehaviour) -> (Duration, usize) {
    let (mut clients, servers) = connections();
    let port = Port::<TcpStream, ()>::builder().concurrency(concurrency).build().unwrap();
    for server in servers {
        port.register(Registration::owned(server, Interest::IN, OneShot::Level)).unwrap();
    }
    let stuck = AtomicBool::new(false);
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| echo(&port, how, &stuck));
        }
        let (first, others) = clients.split_first_mut().unwrap();
        let mut slowest = Duration::ZERO;
        let mut rounds = 0;
        // All at once, so that they share batches with the one that gets stuck.
        first.write_all(b"!").unwrap();
        loop {
            let begun = Instant::now();
            for client in others.iter_mut() {
                client.write_all(b".").unwrap();
            }
            for client in others.iter_mut() {
                client.read_exact(&mut [0]).unwrap();
            }
            slowest = slowest.max(begun.elapsed());
            rounds += 1;
            if rounds > 1 && !stuck.load(SeqCst) {
                break;
            }
        }
        first.read_exact(&mut [0]).unwrap();
        port.shutdown().unwrap();
        (slowest, rounds)
    })
}

#[track_caller]
fn assert_nobody_waits(threads: usize, concurrency: usize, how: Misbehaviour) {
    let (slowest, rounds) = slowest_answer(threads, concurrency, how);
    println!(
        "{threads} threads, concurrency {concurrency}: slowest of {rounds} rounds {slowest:?}"
    );
    assert!(rounds > 2, "the others were not served while one was stuck");
    assert!(slowest < SPIN / 3, "the others waited {slowest:?}");
}

#[test]
fn a_spinning_handler_delays_no_other_connection() {
    assert_nobody_waits(4, 4, Misbehaviour::Spins);
}

#[test]
fn a_spinning_handler_delays_no_other_connection_with_more_threads_than_seats() {
    assert_nobody_waits(8, 4, Misbehaviour::Spins);
}

#[test]
fn a_handler_that_sleeps_unannounced_gives_its_seat_away() {
    assert_nobody_waits(3, 1, Misbehaviour::Sleeps);
}
