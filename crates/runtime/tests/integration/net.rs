//! Sockets.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::time::Duration;

use completion_port_runtime::net::{TcpListener, TcpStream, UdpSocket};
use completion_port_runtime::{Runtime, sleep, spawn, timeout};

const LIMIT: Duration = Duration::from_secs(60);

fn runtime() -> Runtime {
    Runtime::builder().concurrency(2).build().unwrap()
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

#[test]
fn many_clients_are_echoed() {
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let server = spawn(async move {
            for _ in 0..50 {
                let (stream, _) = listener.accept().await.unwrap();
                drop(spawn(async move {
                    let mut buffer = [0; 256];
                    while let Ok(read @ 1..) = stream.read(&mut buffer).await {
                        stream.write_all(&buffer[..read]).await.unwrap();
                    }
                }));
            }
        });
        let clients: Vec<_> = (0..50_u8)
            .map(|number| {
                spawn(async move {
                    let stream = TcpStream::connect(address).await.unwrap();
                    for round in 0..20 {
                        let sent = [number, round, 3, 4];
                        stream.write_all(&sent).await.unwrap();
                        let mut echo = [0; 4];
                        stream.read_exact(&mut echo).await.unwrap();
                        assert_eq!(echo, sent);
                    }
                })
            })
            .collect();
        for client in clients {
            timeout(LIMIT, client).await.unwrap().unwrap();
        }
        server.await.unwrap();
    });
}

#[test]
fn a_large_transfer_waits_for_room_and_arrives_whole() {
    runtime().block_on(async {
        let (near, far) = pair().await;
        let data: Arc<[u8]> = (0..2_000_000_u32).flat_map(|at| (at * 31).to_le_bytes()).collect();
        let sent = Arc::clone(&data);
        let (reader, mut writer) = near.into_split();
        let sender = spawn(async move {
            writer.write_all(&sent).await.unwrap();
            // Its drop ends the stream.
        });
        let mut received = Vec::new();
        let mut buffer = vec![0; 100_000];
        loop {
            match timeout(LIMIT, far.read(&mut buffer)).await.unwrap().unwrap() {
                0 => break,
                read => received.extend_from_slice(&buffer[..read]),
            }
        }
        sender.await.unwrap();
        assert!(received == *data);
        drop(reader);
    });
}

#[test]
fn several_tasks_wait_for_one_listener() {
    runtime().block_on(async {
        let listener = Arc::new(TcpListener::bind("127.0.0.1:0").await.unwrap());
        let address = listener.local_addr().unwrap();
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let listener = Arc::clone(&listener);
                spawn(async move { listener.accept().await.unwrap().1 })
            })
            .collect();
        sleep(Duration::from_millis(2)).await;
        let clients: Vec<_> =
            (0..8).map(|_| std::net::TcpStream::connect(address).unwrap()).collect();
        let mut accepted = Vec::new();
        for task in tasks {
            accepted.push(timeout(LIMIT, task).await.unwrap().unwrap());
        }
        let mut connected: Vec<_> =
            clients.iter().map(|client| client.local_addr().unwrap()).collect();
        accepted.sort_unstable();
        connected.sort_unstable();
        assert_eq!(accepted, connected);
    });
}

#[test]
fn a_refused_connect_and_the_end_of_a_stream_are_reported() {
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        drop(listener);
        let error = TcpStream::connect(address).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
        let (near, far) = pair().await;
        far.shutdown(Shutdown::Write).unwrap();
        assert_eq!(timeout(LIMIT, near.read(&mut [0; 4])).await.unwrap().unwrap(), 0);
        drop(far);
        assert_eq!(
            near.read_exact(&mut [0; 4]).await.unwrap_err().kind(),
            ErrorKind::UnexpectedEof
        );
    });
}

#[test]
fn a_dropped_stream_is_closed_at_once() {
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        assert!(timeout(Duration::from_millis(1), stream.read(&mut [0])).await.is_err());
        drop(stream);
        client.set_read_timeout(Some(LIMIT)).unwrap();
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    });
}

#[test]
fn sockets_of_the_standard_library_come_and_go() {
    runtime().block_on(async {
        let (near, far) = pair().await;
        assert!(timeout(Duration::from_millis(1), near.read(&mut [0])).await.is_err());
        let near = near.into_std();
        near.set_nonblocking(false).unwrap();
        (&near).write_all(b"x").unwrap();
        far.read_exact(&mut [0]).await.unwrap();
        let near = TcpStream::from_std(near).unwrap();
        far.write_all(b"y").await.unwrap();
        let mut read = [0];
        timeout(LIMIT, near.read_exact(&mut read)).await.unwrap().unwrap();
        assert_eq!(&read, b"y");
    });
}

#[test]
fn datagrams_arrive_whole_and_with_their_sender() {
    runtime().block_on(async {
        let near = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = far.local_addr().unwrap();
        let echo = spawn(async move {
            let mut buffer = [0; 100];
            for _ in 0..100 {
                let (len, from) = far.recv_from(&mut buffer).await.unwrap();
                far.send_to(&buffer[..len], from).await.unwrap();
            }
        });
        near.connect(address).await.unwrap();
        for round in 0..100_u8 {
            near.send(&vec![round; usize::from(round)]).await.unwrap();
            let mut buffer = [1; 200];
            let len = timeout(LIMIT, near.recv(&mut buffer)).await.unwrap().unwrap();
            assert_eq!(buffer[..len], vec![round; usize::from(round)]);
        }
        echo.await.unwrap();
    });
}

/// A socket may outlive its runtime: its calls then fail instead of waiting forever.
#[test]
fn a_socket_that_outlives_its_runtime_fails() {
    let first = runtime();
    let (near, _far) = first.block_on(pair());
    drop(first);
    let second = runtime();
    let read = second.block_on(async { timeout(LIMIT, near.read(&mut [0])).await });
    assert!(read.unwrap().is_err());
}

/// The same for a call that waits when the runtime ends, in a task of another runtime.
#[test]
fn a_call_that_waits_fails_when_its_runtime_ends() {
    let (first, second) = (runtime(), runtime());
    let (near, far) = first.block_on(pair());
    let (say, waits) = std::sync::mpsc::channel();
    let reader = second.spawn(async move {
        assert!(timeout(Duration::from_millis(1), near.read(&mut [0])).await.is_err());
        say.send(()).unwrap();
        near.read(&mut [0; 1]).await
    });
    waits.recv_timeout(LIMIT).unwrap();
    drop(first);
    let read = second.block_on(async { timeout(LIMIT, reader).await });
    assert!(read.unwrap().unwrap().is_err());
    drop(far);
}

/// I/O from a task of another runtime works.
#[test]
fn a_socket_is_used_from_another_runtime() {
    let (first, second) = (runtime(), runtime());
    let (near, far) = first.block_on(pair());
    let reader = second.spawn(async move {
        let mut buffer = [0; 4];
        near.read_exact(&mut buffer).await.unwrap();
        buffer
    });
    first.block_on(async move {
        sleep(Duration::from_millis(2)).await;
        far.write_all(b"over").await.unwrap();
    });
    assert_eq!(&second.block_on(reader).unwrap(), b"over");
}

#[cfg(unix)]
#[test]
fn local_sockets_carry_streams_and_datagrams() {
    use completion_port_runtime::net::{UnixDatagram, UnixListener, UnixStream};
    runtime().block_on(async {
        let folder = std::env::temp_dir().join(format!("runtime-net-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("listener");
        let listener = UnixListener::bind(&path).unwrap();
        let server = spawn(async move {
            let (stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 16];
            let read = stream.read(&mut buffer).await.unwrap();
            stream.write_all(&buffer[..read]).await.unwrap();
        });
        let client = UnixStream::connect(&path).await.unwrap();
        client.write_all(b"local").await.unwrap();
        let mut buffer = [0; 16];
        assert_eq!(timeout(LIMIT, client.read(&mut buffer)).await.unwrap().unwrap(), 5);
        assert_eq!(&buffer[..5], b"local");
        server.await.unwrap();

        let (near, far) = UnixDatagram::pair().unwrap();
        let sender = spawn(async move {
            // More than the peer has room for.
            for number in 0..2_000_u32 {
                near.send(&number.to_le_bytes()).await.unwrap();
            }
        });
        for number in 0..2_000_u32 {
            assert_eq!(timeout(LIMIT, far.recv(&mut buffer)).await.unwrap().unwrap(), 4);
            assert_eq!(buffer[..4], number.to_le_bytes());
        }
        sender.await.unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
    });
}
