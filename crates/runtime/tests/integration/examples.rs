//! The servers among the examples, with real clients that check contents.

use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use completion_port_runtime::Runtime;
use completion_port_runtime::net::TcpListener;

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
