//! The example with the protocol of Redis, with clients that check each byte of the replies.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use completion_port_runtime::Runtime;
use completion_port_runtime::net::TcpListener;
use socket2::{Domain, Socket, Type};

#[path = "../../examples/async_redis.rs"]
mod server;

const LIMIT: Duration = Duration::from_secs(60);

fn serve() -> (Runtime, SocketAddr) {
    let runtime = Runtime::builder().concurrency(2).build().unwrap();
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    drop(runtime.spawn(server::serve(listener)));
    (runtime, address)
}

struct Client(TcpStream);

impl Client {
    fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LIMIT)).unwrap();
        stream.set_write_timeout(Some(LIMIT)).unwrap();
        stream.set_nodelay(true).unwrap();
        Self(stream)
    }

    fn send(&mut self, words: &[&str]) {
        let mut request = format!("*{}\r\n", words.len());
        for word in words {
            request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
        }
        self.0.write_all(request.as_bytes()).unwrap();
    }

    #[track_caller]
    fn hears(&mut self, expected: &str) {
        let mut bytes = vec![0; expected.len()];
        self.0.read_exact(&mut bytes).unwrap();
        assert_eq!(String::from_utf8_lossy(&bytes), expected);
    }

    #[track_caller]
    fn asks(&mut self, words: &str, expected: &str) {
        self.send(&words.split(' ').collect::<Vec<_>>());
        self.hears(expected);
    }
}

#[test]
fn values_and_counters() {
    let (_runtime, address) = serve();
    let (mut one, mut two) = (Client::connect(address), Client::connect(address));
    one.asks("SET key value", "+OK\r\n");
    two.asks("GET key", "$5\r\nvalue\r\n");
    two.asks("MGET key none", "*2\r\n$5\r\nvalue\r\n$-1\r\n");
    one.asks("INCR key", "-ERR value is not an integer or out of range\r\n");
    one.asks("INCR count", ":1\r\n");
    one.asks("EXPIRE count 100", ":1\r\n");
    two.asks("PERSIST count", ":1\r\n");
    two.asks("TTL count", ":-1\r\n");
    // In pieces of a byte, then many together while the replies are read.
    for byte in b"*2\r\n$4\r\nINCR\r\n$5\r\ncount\r\n" {
        one.0.write_all(&[*byte]).unwrap();
    }
    one.hears(":2\r\n");
    let large = "x".repeat(100_000);
    one.send(&["SET", "large", &large]);
    one.hears("+OK\r\n");
    let mut writer = one.0.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            writer.write_all(&b"GET large\r\nINCR count\r\n".repeat(300)).unwrap();
            writer.shutdown(Shutdown::Write).unwrap();
        });
        for number in 3..303 {
            one.hears(&format!("$100000\r\n{large}\r\n:{number}\r\n"));
        }
    });
    // All replies, then the end.
    assert_eq!(one.0.read(&mut [0]).unwrap(), 0);
    // QUIT ends a connection, and so does a malformed request.
    two.asks("QUIT", "+OK\r\n");
    assert_eq!(two.0.read(&mut [0]).unwrap(), 0);
    let mut bad = Client::connect(address);
    bad.0.write_all(b"*1\r\n+x\r\n").unwrap();
    bad.hears("-ERR Protocol error: expected '$', got '+'\r\n");
    assert_eq!(bad.0.read(&mut [0]).unwrap(), 0);
}

#[test]
fn keys_expire_without_a_reader() {
    let (_runtime, address) = serve();
    let mut client = Client::connect(address);
    client.asks("SET a x PX 20", "+OK\r\n");
    client.asks("SET b x", "+OK\r\n");
    client.asks("PEXPIRE b 20", ":1\r\n");
    let deadline = Instant::now() + LIMIT;
    loop {
        // Unlike EXISTS, it does not remove keys that have expired.
        client.send(&["DBSIZE"]);
        let mut reply = [0; 4];
        client.0.read_exact(&mut reply).unwrap();
        if &reply == b":0\r\n" {
            break;
        }
        assert!(Instant::now() < deadline, "{reply:?}");
    }
}

#[test]
fn messages_and_elements_come_to_those_who_wait() {
    let (_runtime, address) = serve();
    let (mut waiting, mut other) = (Client::connect(address), Client::connect(address));
    // Further requests wait for the element.
    waiting.send(&["BLPOP", "none", "list", "0"]);
    waiting.send(&["PING"]);
    let deadline = Instant::now() + LIMIT;
    loop {
        other.send(&["RPUSH", "list", "element"]);
        let mut reply = [0; 4];
        other.0.read_exact(&mut reply).unwrap();
        waiting.0.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        if waiting.0.peek(&mut [0]).is_ok() {
            break;
        }
        assert!(Instant::now() < deadline, "{reply:?}");
    }
    waiting.0.set_read_timeout(Some(LIMIT)).unwrap();
    waiting.hears("*2\r\n$4\r\nlist\r\n$7\r\nelement\r\n+PONG\r\n");
    waiting.asks("BLPOP none 0.02", "*-1\r\n");
    waiting.asks("SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    for number in 0..100 {
        other.asks(&format!("PUBLISH news {number:03}"), ":1\r\n");
    }
    for number in 0..100 {
        waiting.hears(&format!("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$3\r\n{number:03}\r\n"));
    }
    waiting.asks("UNSUBSCRIBE", "*3\r\n$11\r\nunsubscribe\r\n$4\r\nnews\r\n:0\r\n");
    other.asks("PUBLISH news x", ":0\r\n");
    waiting.asks("GET none", "$-1\r\n");
    // A client that goes while it waits leaves its place.
    waiting.send(&["BLPOP", "gone", "0"]);
    drop(waiting);
    let mut last = Client::connect(address);
    last.send(&["BLPOP", "gone", "0"]);
    last.0.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let deadline = Instant::now() + LIMIT;
    while last.0.peek(&mut [0]).is_err() {
        other.send(&["RPUSH", "gone", "x"]);
        other.0.read_exact(&mut [0; 4]).unwrap();
        assert!(Instant::now() < deadline, "the element went elsewhere");
    }
    last.hears("*2\r\n$4\r\ngone\r\n$1\r\nx\r\n");
}

/// Its task writes while the second message comes, and has to look for it afterwards.
#[test]
fn a_message_that_comes_during_a_write_follows_it() {
    let (_runtime, address) = serve();
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    socket.set_recv_buffer_size(4096).unwrap();
    socket.connect(&address.into()).unwrap();
    let mut slow = Client(socket.into());
    slow.0.set_read_timeout(Some(LIMIT)).unwrap();
    let mut other = Client::connect(address);
    slow.asks("SUBSCRIBE news", "*3\r\n$9\r\nsubscribe\r\n$4\r\nnews\r\n:1\r\n");
    let large = "x".repeat(1_000_000);
    for _ in 0..3 {
        other.send(&["PUBLISH", "news", &large]);
        other.hears(":1\r\n");
        // Something of it has come, so the task is writing.
        slow.0.peek(&mut [0]).unwrap();
        other.asks("PUBLISH news last", ":1\r\n");
        slow.hears(&format!("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$1000000\r\n{large}\r\n"));
        slow.hears("*3\r\n$7\r\nmessage\r\n$4\r\nnews\r\n$4\r\nlast\r\n");
    }
}

/// It is disconnected, and keeps nobody waiting.
#[test]
fn a_subscriber_that_does_not_read_is_cut_off() {
    let (_runtime, address) = serve();
    let (mut deaf, mut other) = (Client::connect(address), Client::connect(address));
    deaf.asks("SUBSCRIBE flood", "*3\r\n$9\r\nsubscribe\r\n$5\r\nflood\r\n:1\r\n");
    let flood = "x".repeat(500_000);
    let deadline = Instant::now() + LIMIT;
    loop {
        other.send(&["PUBLISH", "flood", &flood]);
        let mut reply = [0; 4];
        other.0.read_exact(&mut reply).unwrap();
        if &reply == b":0\r\n" {
            break;
        }
        assert!(Instant::now() < deadline, "it is not cut off");
    }
    other.asks("PING", "+PONG\r\n");
}

/// The clients of the real thing, where there are any.
#[test]
fn the_clients_of_redis_understand_it() {
    let (_runtime, address) = serve();
    let port = address.port().to_string();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(["-p", &port]).args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Ok(said) = run("redis-cli", &["SET", "key", "5"]) else {
        println!("SKIPPED redis-cli: it is not installed");
        return;
    };
    assert_eq!(said, "OK");
    assert_eq!(run("redis-cli", &["INCR", "key"]).unwrap(), "6");
    assert_eq!(run("redis-cli", &["MGET", "key", "none"]).unwrap(), "6");
    assert_eq!(run("redis-cli", &["EXPIRE", "key", "100"]).unwrap(), "1");
    assert_eq!(run("redis-cli", &["PERSIST", "key"]).unwrap(), "1");
    let load = ["-t", "set,get,incr", "-n", "2000", "-P", "16", "-q"];
    if let Ok(said) = run("redis-benchmark", &load) {
        assert!(said.contains("INCR: "), "{said}");
    }
}
