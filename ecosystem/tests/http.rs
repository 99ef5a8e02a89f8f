//! The HTTP server, as a program, with clients that check contents.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::path::Path;
use std::thread;

use users::clients::{connect, content, ends, reset};
use users::server::{Server, assert_rests, end};

fn server() -> Server {
    Server::start(Path::new(env!("CARGO_BIN_EXE_http")), &["127.0.0.1:0"])
}

/// Sends a request and returns the status and the body of the answer.
fn request(stream: &mut TcpStream, head: &str, body: &[u8]) -> (u16, Vec<u8>) {
    let head =
        format!("{head} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(&[head.as_bytes(), body].concat()).unwrap();
    let mut read = Vec::new();
    let mut byte = [0];
    while !read.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        read.push(byte[0]);
    }
    let head = String::from_utf8(read).unwrap();
    let status = head[9..12].parse().unwrap();
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok())
        .unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).unwrap();
    (status, body)
}

fn exchange(address: SocketAddr, seed: u8) {
    let mut stream = connect(address);
    for round in 0..5 {
        assert_eq!(request(&mut stream, "GET /", b""), (200, b"hello\n".to_vec()));
        let body = content(seed, 1 + 20_000 * round);
        assert!(request(&mut stream, "POST /echo", &body) == (200, body), "another body");
        assert_eq!(request(&mut stream, "GET /slow", b""), (200, b"slept\n".to_vec()));
    }
    assert_eq!(request(&mut stream, "GET /missing", b"").0, 404);
}

#[test]
fn clients_are_answered_although_handlers_block() {
    let server = server();
    let address = server.address;
    let clients: Vec<_> =
        (0..32).map(|seed| thread::spawn(move || exchange(address, seed))).collect();
    clients.into_iter().for_each(|client| client.join().unwrap());
    assert_rests(&server);
    end(server);
}

/// The server runs as many handlers as there are processors. If one that blocks counted, no other
/// request would be answered here.
#[test]
fn requests_are_answered_while_as_many_handlers_block_as_may_run() {
    let server = server();
    let address = server.address;
    let most = thread::available_parallelism().unwrap().get();
    let blocked: Vec<_> = (0..most)
        .map(|_| thread::spawn(move || request(&mut connect(address), "GET /wait", b"")))
        .collect();
    let mut stream = connect(address);
    let all = (200, format!("{most}\n").into_bytes());
    while request(&mut stream, "GET /waiting", b"") != all {
        thread::yield_now();
    }
    // All of them block now, until a handler below releases them.
    let quick: Vec<_> = (0..8).map(|seed| thread::spawn(move || exchange(address, seed))).collect();
    quick.into_iter().for_each(|client| client.join().unwrap());
    assert!(blocked.iter().all(|client| !client.is_finished()));
    assert_eq!(request(&mut stream, "GET /release", b""), all);
    for client in blocked {
        assert_eq!(client.join().unwrap(), (200, b"released\n".to_vec()));
    }
    end(server);
}

#[test]
fn rude_clients_end_only_themselves() {
    let mut server = server();
    let address = server.address;
    for _ in 0..5 {
        let mut broken = connect(address);
        broken.write_all(b"no HTTP at all\r\n\r\n").unwrap();
        let mut unfinished = connect(address);
        unfinished.write_all(b"POST /echo HTTP/1.1\r\nContent-Length: 100\r\n\r\nhalf").unwrap();
        reset(unfinished);
        let mut silent = connect(address);
        silent.shutdown(Shutdown::Write).unwrap();
        assert_eq!(ends(&mut silent).unwrap(), b"");
        exchange(address, 7);
    }
    let mut large = connect(address);
    let head = "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n";
    large.write_all(head.as_bytes()).unwrap();
    // The server may answer and close before it has read everything.
    let _ = large.write_all(&vec![0; 2_000_000]);
    server.assert_runs();
    exchange(address, 9);
    end(server);
}
