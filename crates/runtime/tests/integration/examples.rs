//! The servers among the examples, with real clients that check contents.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpStream, UdpSocket};
use std::thread;
use std::time::Duration;

use completion_port_runtime::Runtime;
use completion_port_runtime::net::{self, TcpListener};

#[path = "../../examples/dns_echo.rs"]
mod dns;
#[path = "../../examples/async_files.rs"]
mod files;
#[path = "../../examples/async_proxy.rs"]
mod proxy;

const LIMIT: Duration = Duration::from_secs(60);

fn listener(runtime: &Runtime) -> (TcpListener, SocketAddr) {
    let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(LIMIT)).unwrap();
    stream.set_write_timeout(Some(LIMIT)).unwrap();
    stream
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| ((at * 7919) >> 5).to_le_bytes()[0]).collect()
}

/// Large contents in both directions, where each side ends its own before the other.
#[test]
fn proxy() {
    let runtime = Runtime::builder().concurrency(2).build().unwrap();
    let target = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let target_address = target.local_addr().unwrap();
    let (listener, address) = listener(&runtime);
    drop(runtime.spawn(proxy::serve(listener, target_address.to_string())));
    let data = content(2_000_003);
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..3 {
                let (mut far, _) = target.accept().unwrap();
                far.set_read_timeout(Some(LIMIT)).unwrap();
                // It reads to the end first: the end passes through while this direction is open.
                let mut all = Vec::new();
                far.read_to_end(&mut all).unwrap();
                all.reverse();
                far.write_all(&all).unwrap();
            }
        });
        for _ in 0..3 {
            let mut near = connect(address);
            near.write_all(&data).unwrap();
            near.shutdown(Shutdown::Write).unwrap();
            let mut back = Vec::new();
            near.read_to_end(&mut back).unwrap();
            back.reverse();
            assert!(back == data);
        }
    });
    // The target is gone: the client is disconnected.
    drop(target);
    let mut near = connect(address);
    assert!(matches!(near.read(&mut [0]), Ok(0) | Err(_)));
}

/// Sends a request and returns the status and the body.
fn get(address: SocketAddr, path: &str, headers: &str) -> (String, Vec<u8>) {
    let mut stream = connect(address);
    write!(stream, "GET {path} HTTP/1.0\r\n{headers}\r\n").unwrap();
    let mut all = Vec::new();
    stream.read_to_end(&mut all).unwrap();
    let head = all.windows(4).position(|it| it == b"\r\n\r\n").unwrap() + 4;
    let body = all.split_off(head);
    let head = String::from_utf8(all).unwrap();
    let length = head.split("Content-Length: ").nth(1).unwrap().trim();
    assert_eq!(length.parse::<usize>().unwrap(), body.len());
    (head["HTTP/1.0 ".len()..].lines().next().unwrap().to_owned(), body)
}

#[test]
fn files() {
    let outer = std::env::temp_dir().join(format!("runtime-files-{}", std::process::id()));
    let folder = outer.join("public");
    std::fs::create_dir_all(folder.join("inner")).unwrap();
    let large = content(1_000_001);
    std::fs::write(folder.join("large"), &large).unwrap();
    std::fs::write(folder.join("inner/small"), "small").unwrap();
    std::fs::write(folder.join("empty"), "").unwrap();
    std::fs::write(outer.join("secret"), "secret").unwrap();
    #[cfg(unix)]
    std::os::unix::fs::symlink(outer.join("secret"), folder.join("link")).unwrap();
    let runtime = Runtime::builder().concurrency(2).build().unwrap();
    let (listener, address) = listener(&runtime);
    drop(runtime.spawn(files::serve(listener, folder)));
    let ok = |body: &[u8]| ("200 OK".to_owned(), body.to_vec());
    let part = |body: &[u8]| ("206 Partial Content".to_owned(), body.to_vec());
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                assert!(get(address, "/large", "") == ok(&large));
                assert_eq!(get(address, "/inner/small", ""), ok(b"small"));
                assert_eq!(get(address, "/empty", ""), ok(b""));
            });
        }
    });
    assert!(get(address, "/large", "Range: bytes=999990-\r\n") == part(&large[999_990..]));
    assert!(get(address, "/large", "range: bytes=5-300000\r\n") == part(&large[5..=300_000]));
    assert!(get(address, "/large", "Range: bytes=0-9999999\r\n") == part(&large));
    let refused = |status: &str| (status.to_owned(), Vec::new());
    for range in ["bytes=1000001-", "bytes=9-3", "bytes=a-b", "lines=1-2"] {
        let got = get(address, "/large", &format!("Range: {range}\r\n"));
        assert_eq!(got, refused("416 Range Not Satisfiable"), "{range}");
    }
    for missing in ["/missing", "/inner", "/large/more"] {
        assert_eq!(get(address, missing, ""), refused("404 Not Found"), "{missing}");
    }
    for outside in ["/../secret", "/inner/../../secret", "//etc/passwd"] {
        assert_eq!(get(address, outside, ""), refused("403 Forbidden"), "{outside}");
    }
    #[cfg(unix)]
    assert_eq!(get(address, "/link", ""), refused("403 Forbidden"));
    assert_eq!(get(address, "relative", ""), refused("400 Bad Request"));
    // A client that leaves in the middle of a large answer ends only itself.
    let mut leaving = connect(address);
    leaving.write_all(b"GET /large HTTP/1.0\r\n\r\n").unwrap();
    leaving.read_exact(&mut [0; 100]).unwrap();
    drop(leaving);
    assert_eq!(get(address, "/inner/small", ""), ok(b"small"));
    std::fs::remove_dir_all(&outer).unwrap();
}

const A: u16 = 1;
const AAAA: u16 = 28;

/// A question about a name with these labels, as it is sent.
fn question(labels: &[&str], kind: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    for label in labels {
        bytes.push(u8::try_from(label.len()).unwrap());
        bytes.extend(label.as_bytes());
    }
    bytes.push(0);
    bytes.extend(kind.to_be_bytes());
    bytes.extend([0, 1]);
    bytes
}

/// A message with this number and these flags and counts.
fn message(number: u16, flags: [u8; 2], counts: [u8; 4], rest: &[u8]) -> Vec<u8> {
    let mut bytes = number.to_be_bytes().to_vec();
    bytes.extend(flags);
    bytes.extend(counts.into_iter().flat_map(|count| [0, count]));
    bytes.extend(rest);
    bytes
}

/// Sends a query and returns the next answer.
fn ask(client: &UdpSocket, query: &[u8]) -> Vec<u8> {
    client.send(query).unwrap();
    receive(client)
}

fn receive(client: &UdpSocket) -> Vec<u8> {
    let mut buffer = [0; 2048];
    let length = client.recv(&mut buffer).unwrap();
    buffer[..length].to_vec()
}

#[test]
fn dns_echo() {
    /// Fewer than any system has room for.
    const AT_A_TIME: u16 = 16;
    let runtime = Runtime::builder().concurrency(2).build().unwrap();
    let socket = runtime.block_on(net::UdpSocket::bind("127.0.0.1:0")).unwrap();
    let address = socket.local_addr().unwrap();
    drop(runtime.spawn(dns::serve(socket, Ipv4Addr::new(192, 0, 2, 7))));
    let record = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 60, 0, 4, 192, 0, 2, 7];
    let client = || {
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        client.connect(address).unwrap();
        client.set_read_timeout(Some(LIMIT)).unwrap();
        client
    };
    // The bit of recursion returns, and the server's is clear.
    let wants_recursion = [1, 0];
    let answers = [0x85, 0];
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let client = client();
                for round in 0..20 {
                    let numbers = round * AT_A_TIME..(round + 1) * AT_A_TIME;
                    let asked = |number: u16| {
                        question(&["host", &"x".repeat(1 + usize::from(number % 63)), "org"], A)
                    };
                    for number in numbers.clone() {
                        let query = message(number, wants_recursion, [1, 0, 0, 0], &asked(number));
                        client.send(&query).unwrap();
                    }
                    for number in numbers {
                        let rest = [asked(number), record.to_vec()].concat();
                        let expected = message(number, answers, [1, 1, 0, 0], &rest);
                        assert_eq!(receive(&client), expected, "query {number}");
                    }
                }
            });
        }
    });
    let client = client();
    let a = question(&["example", "org"], A);
    let answer = message(5, answers, [1, 1, 0, 0], &[&a[..], &record].concat());
    let query = message(5, wants_recursion, [1, 0, 0, 0], &a);
    // The longest name, and what follows the question, as the record of EDNS does.
    let label = "y".repeat(63);
    let longest = question(&[&label, &label, &label, &"z".repeat(61)], A);
    let expected = message(6, answers, [1, 1, 0, 0], &[&longest[..], &record].concat());
    assert_eq!(ask(&client, &message(6, wants_recursion, [1, 0, 0, 0], &longest)), expected);
    let opt = [0, 0, 41, 4, 208, 0, 0, 0, 0, 0, 0];
    let with_opt = message(5, wants_recursion, [1, 0, 0, 1], &[&a[..], &opt].concat());
    assert_eq!(ask(&client, &with_opt), answer);
    // There is no such record.
    let aaaa = question(&["example", "org"], AAAA);
    let expected = message(7, answers, [1, 0, 0, 0], &aaaa);
    assert_eq!(ask(&client, &message(7, wants_recursion, [1, 0, 0, 0], &aaaa)), expected);
    // Names that are too long, not complete or references, and other numbers of questions.
    let too_long = question(&[&label, &label, &label, &"z".repeat(62)], A);
    let refused = message(8, [0x85, 1], [0; 4], &[]);
    for (count, rest) in [
        (1, &too_long[..]),
        (1, &a[..a.len() - 1]),
        (1, &[0xc0, 12, 0, 1, 0, 1]),
        (1, &[]),
        (2, &a),
    ] {
        let query = message(8, wants_recursion, [count, 0, 0, 0], rest);
        assert_eq!(ask(&client, &query), refused, "{query:?}");
    }
    // A query of another kind: for the server's state.
    let status = message(9, [0x10, 0], [1, 0, 0, 0], &a);
    assert_eq!(ask(&client, &status), message(9, [0x94, 4], [0; 4], &[]));
    // Answers, and messages that are too short or too long, are not answered.
    for silent in [&answer[..], &query[..11], &[0; 1233], &[]] {
        client.send(silent).unwrap();
        assert_eq!(ask(&client, &query), answer);
    }
}
