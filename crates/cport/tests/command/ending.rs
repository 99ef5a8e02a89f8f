//! How `cport echo` ends: it first sends back the received data, unless it gets two signals.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{
    DEADLINE, MIB, Running, WAYS, connect, content, cport, echo, filled, rest, uninterrupted,
};
use serde_json::Value;
use socket2::{Domain, Socket, Type};

/// The next line that is not empty.
fn said(server: &mut Running) -> String {
    let line = server.line();
    if line.is_empty() { server.line() } else { line }
}

/// How much a client leaves unread.
const UNREAD: usize = 128 * 1024;

/// A client whose system takes less of an answer than that.
fn connect_with_little_room(server: SocketAddr) -> TcpStream {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(UNREAD / 4).unwrap();
    socket.connect(&server.into()).unwrap();
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    stream.set_write_timeout(Some(DEADLINE)).unwrap();
    stream
}

#[test]
fn ten_megabytes_that_are_on_their_way_come_back_whole() {
    for way in WAYS {
        let (server, address) = echo(way);
        let sent = content(1, 10 * MIB);
        let mut stream = connect_with_little_room(address);
        let mut reader = stream.try_clone().unwrap();
        let (come, begun) = channel();
        let taken = AtomicUsize::new(0);
        let back = thread::scope(|scope| {
            let reading = scope.spawn(|| {
                let mut back = Vec::with_capacity(10 * MIB);
                let mut buffer = vec![0; UNREAD];
                loop {
                    // Something is always left with the server, which may take the client for done otherwise.
                    let taken = taken.load(SeqCst);
                    if taken < 10 * MIB && taken < back.len() + 2 * UNREAD {
                        thread::yield_now();
                        continue;
                    }
                    let read = uninterrupted(|| reader.read(&mut buffer)).unwrap();
                    if read == 0 {
                        return back;
                    }
                    let before = back.len();
                    back.extend_from_slice(&buffer[..read]);
                    if before < MIB && back.len() >= MIB {
                        come.send(()).unwrap();
                    }
                }
            });
            scope.spawn(|| {
                for part in sent.chunks(UNREAD / 4) {
                    stream.write_all(part).unwrap();
                    taken.fetch_add(part.len(), SeqCst);
                }
                stream.shutdown(Shutdown::Write).unwrap();
            });
            begun.recv_timeout(DEADLINE).unwrap();
            server.terminate();
            reading.join().unwrap()
        });
        assert!(back == sent, "{} of {} bytes came back", back.len(), sent.len());
        let ended = server.ended();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert_eq!(ended.stderr, "");
        assert!(ended.stdout.contains("10.0 MiB received, 10.0 MiB sent"), "{ended:?}");
    }
}

#[test]
fn a_client_that_reads_only_after_the_signal_gets_all_of_it() {
    for way in WAYS {
        for ends_its_half in [true, false] {
            let (mut server, address) = echo(way);
            let mut stream = connect(address);
            let sent = filled(&mut stream);
            server.terminate();
            if ends_its_half {
                stream.shutdown(Shutdown::Write).unwrap();
            }
            assert!((0..5).any(|_| said(&mut server).starts_with("ending: 1 connection")));
            assert_eq!(rest(&mut stream), sent);
            let ended = server.ended();
            assert_eq!((ended.status.code(), &*ended.stderr), (Some(0), ""), "{ended:?}");
        }
    }
}

#[test]
fn a_second_signal_cuts_off_and_says_how_much() {
    for way in WAYS {
        let [terminate, interrupt] = [Running::terminate, Running::interrupt];
        for (signal, again) in [(terminate, true), (interrupt, true), (terminate, false)] {
            // Without a second signal it is the limit that cuts off.
            let limit = if again { "1m" } else { "300ms" };
            let (mut server, address) = echo(&[way, &["--drain", limit]].concat());
            let mut stream = connect(address);
            let sent = filled(&mut stream);
            signal(&server);
            assert!(said(&mut server).contains("may run at once"));
            assert!(said(&mut server).starts_with("Ctrl-C "));
            let ending = said(&mut server);
            assert!(ending.starts_with("ending: 1 connection may take"), "{ending}");
            // The listener is closed first.
            let begun = Instant::now();
            while TcpStream::connect(address).is_ok() {
                assert!(begun.elapsed() < DEADLINE, "the listener stays open");
                thread::yield_now();
            }
            if again {
                signal(&server);
            }
            let ended = server.ended();
            assert_eq!(ended.status.code(), Some(1), "{ended:?}");
            assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
            assert!(ended.stderr.starts_with("cport: cut off 1 connection: "), "{ended:?}");
            assert!(ended.stderr.contains("iB were received and did not get back"), "{ended:?}");
            assert!(ended.stderr.contains("`--drain`"), "{ended:?}");
            assert!(ended.stdout.contains(" (1 still open)"), "{ended:?}");
            assert!(rest(&mut stream) < sent);
        }
    }
}

#[test]
fn what_was_cut_off_is_counted_in_bytes() {
    for way in WAYS {
        let json = ["echo", "--listen", "0", "--json", "--drain", "0"];
        let mut server = Running::start(cport(&[&json, way].concat()));
        let first: Value = serde_json::from_str(&server.line()).unwrap();
        assert_eq!((&first["event"], &first["protocol"]), (&"listening".into(), &"tcp".into()));
        let mut stream = connect(first["address"].as_str().unwrap().parse().unwrap());
        let sent = filled(&mut stream);
        server.terminate();
        let ended = server.ended();
        let back = rest(&mut stream);
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        let objects: Vec<Value> =
            ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let last = objects.last().unwrap();
        assert_eq!((&last["event"], &last["open_at_end"]), (&"ended".into(), &1.into()));
        assert_eq!(last["cut_connections"], 1);
        let cut = usize::try_from(last["cut_bytes"].as_u64().unwrap()).unwrap();
        // The client's own system may have had some of it, which the server never received. Windows
        // does not report how much of it is in transit.
        let least = if cfg!(windows) { 1 } else { 100_000 };
        assert!(
            cut > least && back + cut <= sent,
            "{back} came back, {cut} were cut off of {sent}"
        );
    }
}

/// A server that ends takes a client for done after two hundred milliseconds of silence, less one look.
const SILENCE: Duration = Duration::from_millis(150);

/// A client that talks, and remembers for how long it was silent at most.
struct Talking {
    stream: TcpStream,
    last: Instant,
    silence: Duration,
}

impl Talking {
    fn ping(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        let told = self.stream.write_all(b"ping");
        self.silence = self.silence.max(self.last.elapsed());
        self.last = begun;
        told?;
        self.stream.read_exact(&mut [0; 4])
    }
}

#[test]
fn clients_that_go_on_are_served_until_the_end() {
    for way in WAYS {
        // A busy machine may keep the client from talking. Then it is disconnected and retries.
        let is_served = (0..50).any(|_| goes_on_until_the_end(way));
        assert!(is_served, "the machine is too busy, or the server disconnects clients that talk");
    }
}

/// Whether the client was served until it went. It was not if it was silent for too long.
fn goes_on_until_the_end(way: &[&str]) -> bool {
    let (server, address) = echo(&[&["--drain", "10m"], way].concat());
    let (stream, mut idle) = (connect(address), connect(address));
    let mut talking = Talking { stream, last: Instant::now(), silence: Duration::ZERO };
    // From here on the server has it among its clients.
    idle.write_all(b"ping").unwrap();
    idle.read_exact(&mut [0; 4]).unwrap();
    talking.ping().unwrap();
    talking.silence = Duration::ZERO;
    server.terminate();
    let mut is_served = || match talking.ping() {
        Ok(()) => true,
        Err(error) => {
            assert!(talking.silence >= SILENCE, "{error} after {:?} at most", talking.silence);
            false
        }
    };
    // The end of the idle one shows that the server ends, and has looked several times.
    idle.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
    let begun = Instant::now();
    while uninterrupted(|| idle.read(&mut [0])).is_err() {
        assert!(begun.elapsed() < DEADLINE, "the idle client is not disconnected");
        if !is_served() {
            return false;
        }
    }
    // The server looks many times meanwhile.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(600) {
        if !is_served() {
            return false;
        }
    }
    drop(talking);
    let ended = server.ended();
    assert_eq!((ended.status.code(), &*ended.stderr), (Some(0), ""), "{ended:?}");
    assert!(ended.stdout.contains("2 connections (2 still open)"), "{ended:?}");
    true
}
