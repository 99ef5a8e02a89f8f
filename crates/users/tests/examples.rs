//! The servers among the examples, as programs, with rude clients.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use users::build::example;
use users::clients::{
    Lively, Slow, be_polite, be_rude_to_an_echo, connect, content, ends, exchange, half_close,
    reset, reset_at_several_points,
};
use users::server::{Server, assert_rests, end};

#[test]
fn echo() {
    let server = Server::start(&example("echo"), &[]);
    let slow: Vec<_> = (0..6).map(|seed| Slow::begin(server.address, seed)).collect();
    assert_rests(&server);
    be_rude_to_an_echo(server.address);
    slow.into_iter().for_each(Slow::read_all);
    end(server);
}

#[test]
fn proxy() {
    assert_copies_both_ways("proxy");
}

/// A proxy in front of an echo server.
fn assert_copies_both_ways(proxy: &str) {
    let behind = Server::start(&example("echo"), &[]);
    let target = behind.address.to_string();
    let front = Server::start(&example(proxy), &["127.0.0.1:0", &target]);
    let slow: Vec<_> = (0..6).map(|seed| Slow::begin(front.address, seed)).collect();
    assert_rests(&front);
    be_rude_to_an_echo(front.address);
    slow.into_iter().for_each(Slow::read_all);
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                half_close(front.address, 1 << 20);
                reset_at_several_points(front.address);
                be_polite(front.address);
            });
        }
    });
    // The server behind it ends: its clients are disconnected, and new ones are refused.
    let mut stream = connect(front.address);
    exchange(&mut stream, b"hello");
    end(behind);
    assert_eq!(ends(&mut stream).unwrap(), b"");
    assert_eq!(ends(&mut connect(front.address)).unwrap(), b"");
    end(front);
}

#[test]
fn echo_operations() {
    let program = example("echo_operations");
    let server = Server::start(&program, &["127.0.0.1:0", "3600"]);
    let slow: Vec<_> = (0..6).map(|seed| Slow::begin(server.address, seed)).collect();
    assert_rests(&server);
    be_rude_to_an_echo(server.address);
    slow.into_iter().for_each(Slow::read_all);
    // With operations in flight of each kind.
    let _silent: Vec<_> = (0..5).map(|_| connect(server.address)).collect();
    let _deaf = Slow::begin(server.address, 1);
    end(server);

    // Silent clients have their time, and those that do not read.
    let limit = Duration::from_secs(1);
    let mut server = Server::start(&program, &["127.0.0.1:0", "1"]);
    let began = Instant::now();
    let mut silent = connect(server.address);
    let mut busy = Lively::connect(server.address, limit);
    let mut deaf = Slow::begin(server.address, 3);
    while began.elapsed() < 2 * limit {
        busy.exchange(b"still here");
        thread::park_timeout(Duration::from_millis(50));
    }
    assert_eq!(ends(&mut silent).unwrap(), b"");
    deaf.wait_until_cut_off(limit);
    assert_eq!(ends(&mut busy.stream).unwrap(), b"");
    Lively::connect(server.address, limit).exchange(b"and others");
    server.assert_runs();
    end(server);
}

#[test]
fn proxy_operations() {
    assert_copies_both_ways("proxy_operations");
}

/// A file server's answer to a request for `name`: the first line of the header, and the bytes
/// after the header.
fn fetch(server: SocketAddr, name: &str) -> (String, Vec<u8>) {
    let mut stream = connect(server);
    // In two pieces, as clients may send it.
    write!(stream, "GET /{name} HTTP/1.0\r\n").unwrap();
    write!(stream, "Host: here\r\n\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let (mut first, mut length) = (String::new(), String::new());
    reader.read_line(&mut first).unwrap();
    reader.read_line(&mut length).unwrap();
    let length: usize = length.trim().strip_prefix("Content-Length: ").unwrap().parse().unwrap();
    assert_eq!(reader.read_line(&mut String::new()).unwrap(), 2);
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes.len(), length, "{name}");
    (first.trim().to_owned(), bytes)
}

#[test]
fn file_server() {
    const LENGTHS: [usize; 7] = [0, 1, 4096, 65_535, 65_536, 65_537, 5_000_000];
    let directory = std::env::temp_dir().join(format!("file_server.{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let contents: Vec<_> =
        LENGTHS.iter().zip(0..).map(|(length, seed)| content(seed, *length)).collect();
    for (number, content) in contents.iter().enumerate() {
        std::fs::write(directory.join(format!("{number}")), content).unwrap();
    }
    let server =
        Server::start(&example("file_server"), &["127.0.0.1:0", directory.to_str().unwrap()]);
    assert_rests(&server);
    let address = server.address;
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for (number, content) in contents.iter().enumerate() {
                    let (first, bytes) = fetch(address, &format!("{number}"));
                    assert_eq!(first, "HTTP/1.0 200 OK");
                    assert!(bytes == *content, "{number} has other bytes");
                }
                for name in ["none", "", "..", "../passwd", "a/b"] {
                    let (first, bytes) = fetch(address, name);
                    assert_eq!((first.as_str(), bytes.len()), ("HTTP/1.0 404 Not Found", 0));
                }
            });
        }
        // Clients that ask for much and go, or never ask, or never read.
        for number in 0..20 {
            let mut stream = connect(address);
            write!(stream, "GET /6 HTTP/1.0\r\n\r\n").unwrap();
            if number % 2 == 0 { reset(stream) } else { drop(stream) }
        }
    });
    let _silent: Vec<_> = (0..5).map(|_| connect(server.address)).collect();
    let mut deaf = connect(server.address);
    write!(deaf, "GET /6 HTTP/1.0\r\n\r\n").unwrap();
    let (first, _) = fetch(address, "1");
    assert_eq!(first, "HTTP/1.0 200 OK");
    end(server);
    std::fs::remove_dir_all(directory).unwrap();
}

/// A client that has joined the chat.
struct Guest(BufReader<TcpStream>);

impl Guest {
    fn join(server: &Server) -> Self {
        let mut guest = Self(BufReader::new(connect(server.address)));
        assert_eq!(guest.hear(), "welcome");
        guest
    }

    fn say(&mut self, line: &str) {
        writeln!(self.0.get_mut(), "{line}").unwrap();
    }

    fn hear(&mut self) -> String {
        let mut line = String::new();
        self.0.read_line(&mut line).unwrap();
        assert_eq!(line.pop(), Some('\n'), "the line has no end");
        line
    }
}

#[test]
fn chat() {
    let server = Server::start(&example("chat"), &[]);
    let mut guests: Vec<_> = (0..10).map(|_| Guest::join(&server)).collect();
    // Clients that vanish, and one that never reads.
    for number in 0..20 {
        let mut stream = connect(server.address);
        let _ = stream.write_all(b"half a line");
        if number % 2 == 0 { reset(stream) } else { drop(stream) }
    }
    let mut deaf = connect(server.address);
    for round in 0..20 {
        let speaker = round % guests.len();
        guests[speaker].say(&format!("round {round}"));
        for (number, guest) in guests.iter_mut().enumerate() {
            if number != speaker {
                assert_eq!(guest.hear(), format!("round {round}"), "{number}");
            }
        }
    }
    // All at the same time: each receives every line of the others, in order.
    const LINES: usize = 300;
    thread::scope(|scope| {
        for (number, guest) in guests.iter_mut().enumerate() {
            let mut writer = guest.0.get_ref().try_clone().unwrap();
            scope.spawn(move || {
                for line in 0..LINES {
                    writeln!(writer, "{number} {line}").unwrap();
                }
            });
            scope.spawn(move || {
                let mut next = [0; 10];
                for _ in 0..9 * LINES {
                    let line = guest.hear();
                    let (from, line) = line.split_once(' ').expect("two numbers");
                    let from: usize = from.parse().unwrap();
                    assert_eq!(line.parse(), Ok(next[from]), "of {from}");
                    next[from] += 1;
                }
                assert!(
                    next.iter()
                        .enumerate()
                        .all(|(from, next)| { *next == if from == number { 0 } else { LINES } })
                );
            });
        }
    });
    assert_rests(&server);
    // A client that shuts down its sending half receives earlier lines, then the end.
    let mut leaver = Guest::join(&server);
    guests[0].say("before");
    assert_eq!(leaver.hear(), "before");
    leaver.0.get_ref().shutdown(Shutdown::Write).unwrap();
    assert_eq!(ends(leaver.0.get_mut()).unwrap(), b"");
    guests.iter_mut().skip(1).for_each(|guest| assert_eq!(guest.hear(), "before"));
    // The client that does not read is finally cut off, and keeps no other one waiting.
    let line = "x".repeat(4000);
    deaf.set_nonblocking(true).unwrap();
    let mut is_cut_off = false;
    for round in 0.. {
        guests[0].say(&line);
        guests.iter_mut().skip(1).for_each(|guest| assert_eq!(guest.hear(), line));
        // The data in the kernel must not be read: a write detects the end.
        if round % 100 == 99 && deaf.write(b"?").is_err() {
            is_cut_off = true;
            break;
        }
        assert!(round < 16_000, "it is not cut off");
    }
    assert!(is_cut_off);
    // A line without end.
    let mut endless = connect(server.address);
    let _ = endless.write_all(&[b'y'; 100_000]);
    let said = ends(&mut endless).unwrap();
    assert!(said.is_empty() || said.starts_with(b"welcome"));
    guests[1].say("still here");
    assert_eq!(guests[2].hear(), "still here");
    end(server);
}

#[test]
fn idle() {
    let mut server = Server::start(&example("idle"), &[]);
    let began = Instant::now();
    let limit = Duration::from_secs(1);
    let mut silent = connect(server.address);
    let mut deaf = Slow::begin(server.address, 3);
    for _ in 0..4 {
        reset(connect(server.address));
        let mut stream = connect(server.address);
        let _ = stream.write_all(&content(1, 100_000));
        reset(stream);
    }
    // Not ended while something is heard of it.
    let mut busy = Lively::connect(server.address, limit);
    while began.elapsed() < 5 * limit / 2 {
        busy.exchange(b"still here");
        thread::park_timeout(Duration::from_millis(50));
    }
    let mut said = String::new();
    silent.read_to_string(&mut said).unwrap();
    assert_eq!(said, "idle\n");
    assert!(began.elapsed() >= limit);
    // Its echo is incomplete, since it is idle as well.
    deaf.wait_until_cut_off(limit);
    // The busy one may have been silent for too long by now.
    let mut done = Lively::connect(server.address, limit);
    done.exchange(b"and now no more");
    assert_eq!(ends(&mut done.stream).unwrap(), b"idle\n");
    let mut lively = Lively::connect(server.address, limit);
    server.assert_runs();
    // A client that is not idle when the server ends gets no message about idleness.
    lively.exchange(b"to the end");
    end(server);
    let was_idle = lively.silence() >= limit;
    let told = ends(&mut lively.stream).unwrap();
    assert!(told.is_empty() || (was_idle && told == b"idle\n"), "{told:?}");
}

#[test]
fn graceful() {
    let mut server = Server::start(&example("graceful"), &[]);
    let ask = |stream: &mut TcpStream, line: &[u8]| {
        stream.write_all(line).unwrap();
        let mut answer = vec![0; line.len()];
        stream.read_exact(&mut answer).unwrap();
        assert_eq!(answer, line.to_ascii_uppercase());
    };
    let mut clients: Vec<_> = (0..50).map(|_| connect(server.address)).collect();
    for client in &mut clients {
        ask(client, b"some question\n");
    }
    for _ in 0..5 {
        reset(connect(server.address));
        let mut stream = connect(server.address);
        stream.write_all(&content(1, 50_000)).unwrap();
        reset(stream);
    }
    let mut half = connect(server.address);
    half.write_all(b"the last one\n").unwrap();
    half.shutdown(Shutdown::Write).unwrap();
    assert_eq!(ends(&mut half).unwrap(), b"THE LAST ONE\n");
    // Clients that do not read have their time, and no more. There are more of them than the server has threads.
    let deaf: Vec<_> = (0..20).map(|seed| Slow::begin(server.address, seed)).collect();
    for client in &mut clients {
        ask(client, b"another one\n");
    }
    for client in &mut clients {
        client.write_all(b"under way\n").unwrap();
    }
    server.assert_runs();
    let address = server.address;
    let answers = thread::scope(|scope| {
        let reading = scope
            .spawn(|| clients.iter_mut().map(|client| ends(client).unwrap()).collect::<Vec<_>>());
        server.terminate();
        reading.join().unwrap()
    });
    for answer in answers {
        assert_eq!(String::from_utf8_lossy(&answer), "UNDER WAY\nbye\n");
    }
    assert!(TcpStream::connect(address).is_err(), "it still listens");
    drop(deaf);
}
