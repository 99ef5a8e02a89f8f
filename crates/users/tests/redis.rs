//! The example with the protocol of Redis, with clients that check each reply.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::process::Command;
use std::thread;
use std::time::Duration;

use users::build::example;
use users::clients::{connect, content, ends, reset};
use users::server::{Server, assert_rests, end};

#[path = "redis/sessions.rs"]
mod sessions;
#[path = "redis/values.rs"]
mod values;

/// A reply, or a message.
#[derive(Clone, Debug, PartialEq)]
enum Reply {
    Simple(String),
    Error(String),
    Integer(i64),
    /// `None` is nil.
    Bulk(Option<Vec<u8>>),
    Array(Option<Vec<Reply>>),
}

use Reply::{Array, Bulk, Integer, Simple};

fn bulk(text: impl AsRef<[u8]>) -> Reply {
    Bulk(Some(text.as_ref().to_vec()))
}

fn array(replies: impl IntoIterator<Item = Reply>) -> Reply {
    Array(Some(replies.into_iter().collect()))
}

fn message(channel: &str, text: impl AsRef<[u8]>) -> Reply {
    array([bulk("message"), bulk(channel), bulk(text)])
}

fn ok() -> Reply {
    Simple("OK".to_owned())
}

/// The bytes of a request.
fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len()).into_bytes();
    for word in words {
        bytes.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        bytes.extend_from_slice(word);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes
}

/// The same from a text without spaces in its words.
fn line(words: &str) -> Vec<u8> {
    request(&words.split(' ').map(str::as_bytes).collect::<Vec<_>>())
}

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(server: &Server) -> Self {
        Self(BufReader::new(connect(server.address)))
    }

    fn send(&mut self, bytes: &[u8]) {
        self.0.get_mut().write_all(bytes).unwrap();
    }

    fn reply(&mut self) -> Reply {
        let mut first = String::new();
        self.0.read_line(&mut first).unwrap();
        let first = first.strip_suffix("\r\n").expect("a whole line");
        let (kind, rest) = first.split_at(1);
        let length = || usize::try_from(rest.parse::<i64>().unwrap()).ok();
        match kind {
            "+" => Simple(rest.to_owned()),
            "-" => Reply::Error(rest.to_owned()),
            ":" => Integer(rest.parse().unwrap()),
            "*" => Array(length().map(|count| (0..count).map(|_| self.reply()).collect())),
            "$" => Bulk(length().map(|length| {
                let mut bytes = vec![0; length + 2];
                self.0.read_exact(&mut bytes).unwrap();
                assert_eq!(bytes.split_off(length), b"\r\n");
                bytes
            })),
            _ => panic!("{first}"),
        }
    }

    #[track_caller]
    fn asks(&mut self, words: &str, expected: Reply) {
        self.send(&line(words));
        assert_eq!(self.reply(), expected, "{words}");
    }

    #[track_caller]
    fn is_refused(&mut self, words: &str, kind: &str) {
        self.send(&line(words));
        let reply = self.reply();
        let Reply::Error(text) = &reply else { panic!("{words}: {reply:?}") };
        assert!(text.starts_with(kind), "{words}: {text}");
    }
}

fn start() -> Server {
    Server::start(&example("redis"), &[])
}

#[test]
fn values_are_kept() {
    let server = start();
    let (mut one, mut two) = (Client::connect(&server), Client::connect(&server));
    one.asks("PING", Simple("PONG".to_owned()));
    one.asks("ping hello", bulk("hello"));
    one.asks("GET key", Bulk(None));
    one.asks("SET key value", ok());
    two.asks("get key", bulk("value"));
    let bytes = content(3, 200_000);
    one.send(&request(&[b"SET", b"a\r\nb", &bytes]));
    assert_eq!(one.reply(), ok());
    two.send(&request(&[b"GET", b"a\r\nb"]));
    assert_eq!(two.reply(), bulk(&bytes));
    two.send(&request(&[b"DEL", b"key", b"none", b"a\r\nb"]));
    assert_eq!(two.reply(), Integer(2));
    one.asks("GET key", Bulk(None));
    one.asks("RPUSH list a b", Integer(2));
    one.is_refused("GET list", "WRONGTYPE");
    one.asks("SET text x", ok());
    one.is_refused("LPUSH text x", "WRONGTYPE");
    one.is_refused("BLPOP text 0", "WRONGTYPE");
    one.is_refused("GET", "ERR wrong number");
    one.is_refused("BLPOP list soon", "ERR timeout");
    one.is_refused("BLPOP list -1", "ERR timeout");
    one.is_refused("NONSENSE a b", "ERR unknown command");
    one.asks("BLPOP list 0", array([bulk("list"), bulk("a")]));
    one.asks("QUIT", ok());
    assert_eq!(ends(one.0.get_mut()).unwrap(), b"");
    assert_rests(&server);
    end(server);
}

#[test]
fn requests_come_in_pieces_and_many_at_once() {
    const REQUESTS: usize = 20_000;
    let server = start();
    let mut client = Client::connect(&server);
    for byte in [line("SET key value"), line("GET key"), b"PING\r\n".to_vec()].concat() {
        client.send(&[byte]);
    }
    assert_eq!(client.reply(), ok());
    assert_eq!(client.reply(), bulk("value"));
    assert_eq!(client.reply(), Simple("PONG".to_owned()));
    // All are sent while replies are read, so that neither side waits for the other.
    let mut writer = client.0.get_ref().try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            let mut requests = Vec::new();
            for number in 0..REQUESTS {
                requests.extend(line(&format!("SET k{} {number}", number % 7)));
                requests.extend(line(&format!("GET k{}", number % 7)));
            }
            writer.write_all(&requests).unwrap();
        });
        for number in 0..REQUESTS {
            assert_eq!(client.reply(), ok());
            assert_eq!(client.reply(), bulk(number.to_string()));
        }
    });
    // A client that has sent everything gets all replies, then the end.
    client.send(&[line("GET k0"), b"PING\r\n*2\r\n$3\r\nGET".to_vec()].concat());
    client.0.get_ref().shutdown(Shutdown::Write).unwrap();
    assert!(matches!(client.reply(), Bulk(Some(_))));
    assert_eq!(client.reply(), Simple("PONG".to_owned()));
    assert_eq!(ends(client.0.get_mut()).unwrap(), b"");
    end(server);
}

#[test]
fn what_is_no_request_ends_its_client_only() {
    let server = start();
    let mut other = Client::connect(&server);
    let endless = vec![b'x'; 100_000];
    let malformed: [&[u8]; 6] = [
        b"*nonsense\r\n",
        b"*1000000\r\n",
        b"*1\r\n+x\r\n",
        b"*2\r\n$3\r\nGET\r\n$9999999999999\r\n",
        b"*1\r\n$1\r\nxyz",
        &endless,
    ];
    for bytes in malformed {
        let mut client = Client::connect(&server);
        let _ = client.0.get_mut().write_all(bytes);
        let said = ends(client.0.get_mut()).unwrap();
        // A reset may overtake the reply to a client that still sends.
        let said = String::from_utf8(said).unwrap();
        assert!(said.is_empty() || said.starts_with("-ERR Protocol error: "), "{said}");
        other.asks("PING", Simple("PONG".to_owned()));
    }
    for number in 0..20 {
        let mut stream = connect(server.address);
        stream.write_all(&line("SET half")[..7 + number / 2]).unwrap();
        if number % 2 == 0 { reset(stream) } else { drop(stream) }
    }
    other.asks("PING", Simple("PONG".to_owned()));
    end(server);
}

/// A client that asks without reading has as much executed as fits into the buffers on the way.
#[test]
fn a_client_that_does_not_read_is_not_read_from() {
    const REQUESTS: usize = 2000;
    let server = start();
    let bytes = content(5, 100_000);
    let mut slow = Client::connect(&server);
    slow.send(&request(&[b"SET", b"big", &bytes]));
    assert_eq!(slow.reply(), ok());
    slow.send(&line("GET big").repeat(REQUESTS));
    slow.send(&line("SET last yes"));
    let mut other = Client::connect(&server);
    other.asks("PING", Simple("PONG".to_owned()));
    assert_rests(&server);
    // 200 MB are not in the buffers, so the last request was not executed.
    other.asks("GET last", Bulk(None));
    for _ in 0..REQUESTS {
        assert!(slow.reply() == bulk(&bytes));
    }
    assert_eq!(slow.reply(), ok());
    other.asks("GET last", bulk("yes"));
    end(server);
}

#[test]
fn subscribers_get_each_message_in_order() {
    const MESSAGES: usize = 500;
    let server = start();
    let mut subscribers: Vec<_> = (0..5).map(|_| Client::connect(&server)).collect();
    for subscriber in &mut subscribers {
        subscriber.send(&line("SUBSCRIBE news other"));
        for (channel, count) in [("news", 1), ("other", 2)] {
            let expected = [bulk("subscribe"), bulk(channel), Integer(count)];
            assert_eq!(subscriber.reply(), array(expected));
        }
        subscriber.is_refused("GET key", "ERR Can't execute");
    }
    let mut publisher = Client::connect(&server);
    publisher.asks("PUBLISH nobody x", Integer(0));
    publisher.asks("PUBLISH other first", Integer(5));
    thread::scope(|scope| {
        for number in 0..2 {
            let mut publisher = Client::connect(&server);
            scope.spawn(move || {
                for message in 0..MESSAGES {
                    publisher.asks(&format!("PUBLISH news {number}:{message}"), Integer(5));
                }
            });
        }
        for subscriber in &mut subscribers {
            scope.spawn(move || {
                assert_eq!(subscriber.reply(), message("other", "first"));
                let mut next = [0; 2];
                for _ in 0..2 * MESSAGES {
                    let Array(Some(parts)) = subscriber.reply() else { panic!("no message") };
                    let Bulk(Some(text)) = &parts[2] else { panic!("{parts:?}") };
                    let text = std::str::from_utf8(text).unwrap();
                    let (from, number) = text.split_once(':').unwrap();
                    let from: usize = from.parse().unwrap();
                    assert_eq!(number.parse(), Ok(next[from]));
                    next[from] += 1;
                }
            });
        }
    });
    subscribers[0].send(&line("UNSUBSCRIBE news"));
    assert_eq!(subscribers[0].reply(), array([bulk("unsubscribe"), bulk("news"), Integer(1)]));
    publisher.asks("PUBLISH news x", Integer(4));
    subscribers[0].send(&line("UNSUBSCRIBE"));
    assert_eq!(subscribers[0].reply(), array([bulk("unsubscribe"), bulk("other"), Integer(0)]));
    subscribers[0].asks("GET key", Bulk(None));

    // A subscriber that does not read is finally cut off, and keeps nobody waiting.
    let mut deaf = Client::connect(&server);
    deaf.send(&line("SUBSCRIBE flood"));
    assert_eq!(deaf.reply(), array([bulk("subscribe"), bulk("flood"), Integer(1)]));
    let flood = content(9, 500_000);
    let mut rounds = 0;
    loop {
        publisher.send(&request(&[b"PUBLISH", b"flood", &flood]));
        match publisher.reply() {
            Integer(1) => rounds += 1,
            Integer(0) => break,
            other => panic!("{other:?}"),
        }
        assert!(rounds < 1000, "it is not cut off");
    }
    assert_rests(&server);
    end(server);
}

#[test]
fn who_waits_for_an_element_gets_one() {
    let server = start();
    let mut pusher = Client::connect(&server);
    let popped = |list: &str, element: &str| array([bulk(list), bulk(element)]);
    // The first list with an element gives it immediately.
    pusher.asks("RPUSH b 1 2", Integer(2));
    pusher.asks("BLPOP a b 0", popped("b", "1"));
    pusher.asks("BLPOP a b 1", popped("b", "2"));
    pusher.asks("BLPOP a b 0.05", Array(None));
    pusher.asks("BLPOP a b 1e-10", Array(None));
    pusher.asks("LPUSH c 1 2", Integer(2));
    pusher.asks("BLPOP c 0", popped("c", "2"));

    // Each gets one element. Its further requests wait.
    let mut waiting: Vec<_> = (0..3).map(|_| Client::connect(&server)).collect();
    for (number, client) in waiting.iter_mut().enumerate() {
        client.asks("PING", Simple("PONG".to_owned()));
        let mut requests = line("BLPOP x y 0");
        requests.extend(line(&format!("SET after{number} yes")));
        requests.extend(line("PING"));
        client.send(&requests);
    }
    pusher.asks("GET after0", Bulk(None));
    assert_rests(&server);
    pusher.asks("RPUSH y first second", Integer(2));
    pusher.asks("RPUSH x third", Integer(1));
    let mut got: Vec<_> = waiting
        .iter_mut()
        .map(|client| {
            let element = client.reply();
            assert_eq!(client.reply(), ok());
            assert_eq!(client.reply(), Simple("PONG".to_owned()));
            element
        })
        .collect();
    got.sort_by_key(|reply| format!("{reply:?}"));
    assert_eq!(got, [popped("x", "third"), popped("y", "first"), popped("y", "second")]);
    pusher.asks("GET after2", bulk("yes"));

    // Clients that go while they wait are given nothing once that is known.
    for number in 0..20 {
        let mut gone = Client::connect(&server);
        gone.send(&line("BLPOP x 0"));
        let stream = gone.0.into_inner();
        if number % 2 == 0 { reset(stream) } else { drop(stream) }
    }
    let mut last = Client::connect(&server);
    last.send(&line("BLPOP x 0"));
    last.0.get_ref().set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    let mut pushed = 0;
    while last.0.fill_buf().is_err() {
        pusher.send(&line("RPUSH x element"));
        assert!(matches!(pusher.reply(), Integer(1..)));
        pushed += 1;
        assert!(pushed < 200, "the element went elsewhere");
    }
    last.0.get_ref().set_read_timeout(None).unwrap();
    assert_eq!(last.reply(), popped("x", "element"));
    assert_rests(&server);

    // The end of the server finds clients that wait.
    waiting.iter_mut().for_each(|client| client.send(&line("BLPOP z 0")));
    end(server);
}

/// With several clients that push, and several that wait.
#[test]
fn each_element_arrives_once() {
    const ELEMENTS: usize = 400;
    let server = start();
    let mut seen: Vec<_> = thread::scope(|scope| {
        let poppers: Vec<_> = (0..4)
            .map(|_| {
                let mut client = Client::connect(&server);
                scope.spawn(move || {
                    let mut seen = Vec::new();
                    for _ in 0..ELEMENTS / 2 {
                        client.send(&line("BLPOP p0 p1 0"));
                        let Array(Some(parts)) = client.reply() else { panic!("no element") };
                        seen.push(format!("{:?}", parts[1]));
                    }
                    seen
                })
            })
            .collect();
        for number in 0..2 {
            let mut client = Client::connect(&server);
            scope.spawn(move || {
                for element in 0..ELEMENTS {
                    client.send(&line(&format!("RPUSH p{number} {number}:{element}")));
                    assert!(matches!(client.reply(), Integer(1..)));
                }
            });
        }
        poppers.into_iter().flat_map(|popper| popper.join().unwrap()).collect()
    });
    seen.sort();
    seen.dedup();
    assert_eq!(seen.len(), 2 * ELEMENTS);
    end(server);
}

/// The client of the real thing, where there is one.
#[test]
fn the_client_of_redis_understands_it() {
    let server = start();
    let port = server.address.port().to_string();
    let run = |program: &str, arguments: &[&str]| {
        let output = Command::new(program).args(["-p", &port]).args(arguments).output();
        output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let Ok(said) = run("redis-cli", &["SET", "key", "some value"]) else {
        println!("skipped: redis-cli is not installed");
        return end(server);
    };
    assert_eq!(said.trim(), "OK");
    assert_eq!(run("redis-cli", &["GET", "key"]).unwrap().trim(), "some value");
    let said = run("redis-cli", &["BLPOP", "none", "0.1"]).unwrap();
    assert!(["", "(nil)"].contains(&said.trim()), "{said}");
    let load = ["-t", "ping,set,get", "-n", "2000", "-P", "16", "-q"];
    if let Ok(said) = run("redis-benchmark", &load) {
        assert!(said.contains("GET: "), "{said}");
    }
    end(server);
}
