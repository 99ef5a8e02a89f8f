//! Reads that leave room: the next one may wait without a system call, and misses nothing.

use std::io::Write;
use std::net::Shutdown;
use std::time::Duration;

use completion_port_runtime::net::{Datagrams, TcpListener, TcpStream, UdpSocket};
use completion_port_runtime::{Runtime, spawn, timeout, yield_now};

const LIMIT: Duration = Duration::from_secs(60);
const ROUNDS: usize = 200;

fn runtime() -> Runtime {
    Runtime::builder().concurrency(2).build().unwrap()
}

/// A stream of the runtime that has already waited for bytes, and its peer, which blocks.
async fn pair() -> (TcpStream, std::net::TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut far = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    far.set_nodelay(true).unwrap();
    let near = listener.accept().await.unwrap().0;
    let far = spawn(async move {
        yield_now().await;
        far.write_all(b"first").unwrap();
        far
    });
    assert_eq!(read(&near).await, b"first");
    (near, far.await.unwrap())
}

/// Reads once, with more room than there are bytes.
async fn read(stream: &TcpStream) -> Vec<u8> {
    let mut buffer = [0; 64];
    let read = timeout(LIMIT, stream.read(&mut buffer)).await.expect("the read has missed it");
    buffer[..read.unwrap()].to_vec()
}

async fn read_to_end(stream: &TcpStream) -> Vec<u8> {
    let mut all = Vec::new();
    loop {
        match read(stream).await {
            read if read.is_empty() => return all,
            read => all.extend(read),
        }
    }
}

/// What another thread does to the peer, while the stream is read.
fn while_read<R>(act: impl Fn(std::net::TcpStream) + Copy + Send + 'static, check: R)
where
    R: Fn(Vec<u8>),
{
    runtime().block_on(async {
        for round in 0..ROUNDS {
            let (near, far) = pair().await;
            let acts = std::thread::spawn(move || act(far));
            if round % 2 == 0 {
                // Everything is there before the first read.
                acts.join().unwrap();
                check(read_to_end(&near).await);
            } else {
                check(read_to_end(&near).await);
                acts.join().unwrap();
            }
        }
    });
}

#[test]
fn the_end_behind_a_short_read_is_seen() {
    while_read(|mut far| far.write_all(b"last").unwrap(), |received| assert_eq!(received, b"last"));
}

#[test]
fn bytes_behind_a_short_read_are_seen() {
    let writes = |mut far: std::net::TcpStream| {
        for part in 0..50_u8 {
            far.write_all(&[part]).unwrap();
        }
    };
    let expected: Vec<u8> = (0..50).collect();
    while_read(writes, move |received| assert_eq!(received, expected));
}

/// A read stops at the mark of urgent data, although more follows.
#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "other systems may deliver the urgent byte in line")]
fn bytes_behind_urgent_data_are_seen() {
    let writes = |mut far: std::net::TcpStream| {
        far.write_all(b"abc").unwrap();
        assert_eq!(socket2::SockRef::from(&far).send_out_of_band(b"!").unwrap(), 1);
        far.write_all(b"def").unwrap();
    };
    while_read(writes, |received| assert_eq!(received, b"abcdef"));
}

/// The same without the end of the stream, which would bring another edge.
#[test]
#[cfg_attr(not(target_os = "linux"), ignore = "other systems may deliver the urgent byte in line")]
fn bytes_behind_urgent_data_are_seen_at_once() {
    runtime().block_on(async {
        for _ in 0..ROUNDS {
            let (near, mut far) = pair().await;
            far.write_all(b"abc").unwrap();
            assert_eq!(socket2::SockRef::from(&far).send_out_of_band(b"!").unwrap(), 1);
            far.write_all(b"def").unwrap();
            let mut received = Vec::new();
            while received.len() < 6 {
                received.extend(read(&near).await);
            }
            assert_eq!(received, b"abcdef");
        }
    });
}

#[test]
fn a_reset_behind_a_short_read_is_seen() {
    runtime().block_on(async {
        for _ in 0..ROUNDS {
            let (near, mut far) = pair().await;
            far.write_all(b"last").unwrap();
            assert_eq!(read(&near).await, b"last");
            socket2::SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
            drop(far);
            let error = timeout(LIMIT, near.read(&mut [0; 64])).await.expect("missed").unwrap_err();
            assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset);
        }
    });
}

#[test]
fn a_reading_half_that_is_shut_here_ends_behind_what_is_left() {
    runtime().block_on(async {
        let (near, mut far) = pair().await;
        far.write_all(b"left").unwrap();
        near.readable().await.unwrap();
        near.shutdown(Shutdown::Read).unwrap();
        // Systems differ in whether they keep what has arrived.
        let left = read_to_end(&near).await;
        assert!(left == b"left" || left.is_empty(), "{left:?}");
    });
}

#[test]
fn a_task_that_waits_after_a_short_read_sees_the_half_shut_here() {
    runtime().block_on(async {
        let (near, _far) = pair().await;
        let near = std::sync::Arc::new(near);
        let reader = std::sync::Arc::clone(&near);
        let reads = spawn(async move { read(&reader).await });
        yield_now().await;
        near.shutdown(Shutdown::Read).unwrap();
        assert!(reads.await.unwrap().is_empty());
    });
}

#[test]
fn datagrams_behind_a_batch_are_received() {
    runtime().block_on(async {
        let near = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = near.local_addr().unwrap();
        let sends = std::thread::spawn(move || {
            let far = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
            far.connect(address).unwrap();
            far.set_read_timeout(Some(LIMIT)).unwrap();
            for round in 0..1000_u32 {
                // At most that many are in flight, so none is lost.
                let count = round % 3 + 1;
                for _ in 0..count {
                    far.send(&round.to_le_bytes()).unwrap();
                }
                for _ in 0..count {
                    assert_eq!(far.recv(&mut [0; 8]).expect("an answer"), 4);
                }
            }
        });
        let mut received = 0;
        // Some batches are full, and leave a datagram behind.
        let mut datagrams = Datagrams::new(2, 16);
        while received < 1999 {
            let many = timeout(LIMIT, near.recv_many(&mut datagrams)).await;
            received += many.expect("the batch has missed it").unwrap();
            near.send_many(&mut datagrams).await.unwrap();
        }
        sends.join().unwrap();
    });
}
