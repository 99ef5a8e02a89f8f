//! Halves of streams, and the traits by which other crates read and write.

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::sync::OnceLock;
use std::time::Duration;

use completion_port_runtime::net::{
    OwnedReadHalf, OwnedWriteHalf, Stream, TcpListener, TcpStream, UdpSocket,
};
use completion_port_runtime::time::timeout;
use completion_port_runtime::{Runtime, spawn};
use futures_io::{AsyncRead, AsyncWrite};

const LIMIT: Duration = Duration::from_secs(60);

/// More than the buffers of two sockets hold at first.
const LARGE: u32 = 3_000_000;

fn runtime() -> Runtime {
    Runtime::builder().concurrency(2).build().unwrap()
}

async fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let near = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    (near, listener.accept().await.unwrap().0)
}

fn content() -> &'static [u8] {
    static CONTENT: OnceLock<Vec<u8>> = OnceLock::new();
    CONTENT.get_or_init(|| {
        (0..LARGE).map(|at| at.wrapping_mul(31).to_le_bytes()[at as usize % 3]).collect()
    })
}

async fn read_to_end(mut from: impl AsyncRead + Unpin) -> Vec<u8> {
    let mut all = Vec::new();
    let mut buffer = vec![0; 70_000];
    loop {
        let read = poll_fn(|context| Pin::new(&mut from).poll_read(context, &mut buffer));
        match timeout(LIMIT, read).await.unwrap().unwrap() {
            0 => return all,
            read => all.extend_from_slice(&buffer[..read]),
        }
    }
}

/// Writes everything, two pieces at a time, and ends the stream.
async fn write_to_end(mut to: impl AsyncWrite + Unpin, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let (first, second) = bytes.split_at(bytes.len() / 2);
        let pieces = [IoSlice::new(first), IoSlice::new(second)];
        let write = poll_fn(|context| Pin::new(&mut to).poll_write_vectored(context, &pieces));
        bytes = &bytes[timeout(LIMIT, write).await.unwrap().unwrap()..];
    }
    poll_fn(|context| Pin::new(&mut to).poll_flush(context)).await.unwrap();
    poll_fn(|context| Pin::new(&mut to).poll_close(context)).await.unwrap();
}

/// Sends a large content through both directions of a pair of streams, by halves that are owned on
/// one side and borrowed on the other.
async fn goes_both_ways<S: Stream + 'static>(
    near: (OwnedReadHalf<S>, OwnedWriteHalf<S>),
    far: impl AsyncRead + Unpin,
    far_writer: impl AsyncWrite + Unpin,
) {
    let (reader, writer) = near;
    let there = spawn(async move { write_to_end(writer, content()).await });
    let back = spawn(read_to_end(reader));
    assert!(read_to_end(far).await == content());
    write_to_end(far_writer, content()).await;
    there.await.unwrap();
    assert!(back.await.unwrap() == content());
}

#[test]
fn halves_carry_both_directions() {
    runtime().block_on(async {
        let (near, mut far) = pair().await;
        let (reader, writer) = far.split();
        goes_both_ways(near.into_split(), reader, writer).await;
    });
}

#[cfg(unix)]
#[test]
fn halves_of_local_streams_carry_both_directions() {
    use completion_port_runtime::net::UnixStream;
    runtime().block_on(async {
        let (near, mut far) = UnixStream::pair().unwrap();
        let (reader, writer) = far.split();
        goes_both_ways(near.into_split(), reader, writer).await;
    });
}

#[test]
fn halves_of_one_stream_are_reunited_and_others_returned() {
    runtime().block_on(async {
        let (first, first_far) = pair().await;
        let (second, second_far) = pair().await;
        let address = first.local_addr().unwrap();
        let (first_reader, first_writer) = first.into_split();
        let (second_reader, second_writer) = second.into_split();
        let error = first_reader.reunite(second_writer).unwrap_err();
        assert_eq!(error.to_string(), "the halves are of different streams");
        let (first_reader, second_writer) = (error.0, error.1);
        let first = first_writer.reunite(first_reader).unwrap();
        assert_eq!(first.local_addr().unwrap(), address);
        // Nothing was shut down.
        first.write_all(b"first").await.unwrap();
        let mut bytes = [0; 5];
        timeout(LIMIT, first_far.read_exact(&mut bytes)).await.unwrap().unwrap();
        assert_eq!(&bytes, b"first");
        let second = second_reader.reunite(second_writer).unwrap();
        second_far.write_all(b"other").await.unwrap();
        timeout(LIMIT, second.read_exact(&mut bytes)).await.unwrap().unwrap();
        assert_eq!(&bytes, b"other");
    });
}

#[test]
fn a_dropped_half_ends_its_direction_and_a_forgotten_one_does_not() {
    runtime().block_on(async {
        let (near, far) = pair().await;
        let (mut reader, writer) = near.into_split();
        drop(writer);
        assert_eq!(timeout(LIMIT, far.read(&mut [0])).await.unwrap().unwrap(), 0);
        far.write_all(b"x").await.unwrap();
        assert_eq!(timeout(LIMIT, reader.read(&mut [0])).await.unwrap().unwrap(), 1);

        let (near, far) = pair().await;
        let (reader, writer) = near.into_split();
        writer.forget();
        assert!(timeout(Duration::from_millis(20), far.read(&mut [0])).await.is_err());
        drop(reader);
        assert_eq!(timeout(LIMIT, far.read(&mut [0])).await.unwrap().unwrap(), 0);
    });
}

#[test]
fn a_peek_leaves_the_bytes() {
    runtime().block_on(async {
        let (near, far) = pair().await;
        let (mut reader, _writer) = near.into_split();
        let mut bytes = [0; 8];
        assert!(timeout(Duration::from_millis(1), reader.peek(&mut bytes)).await.is_err());
        assert_eq!(reader.stream().try_read(&mut bytes).unwrap_err().kind(), ErrorKind::WouldBlock);
        far.write_all(b"hello").await.unwrap();
        timeout(LIMIT, reader.stream().readable()).await.unwrap().unwrap();
        while timeout(LIMIT, reader.peek(&mut bytes)).await.unwrap().unwrap() < 5 {}
        assert_eq!(&bytes[..5], b"hello");
        bytes.fill(0);
        assert_eq!(reader.stream().try_read(&mut bytes).unwrap(), 5);
        assert_eq!(&bytes[..5], b"hello");
    });
}

/// Writes until there is no room, so that a write waits; the shutdown ends it with an error.
#[cfg(unix)]
#[test]
fn a_shutdown_wakes_the_tasks_that_wait() {
    use std::sync::Arc;
    runtime().block_on(async {
        let (near, _far) = pair().await;
        let near = Arc::new(near);
        while near.try_write(&[0; 65_536]).is_ok() {}
        let write = {
            let near = Arc::clone(&near);
            spawn(async move {
                loop {
                    near.write(&[0; 65_536]).await?;
                }
                #[allow(unreachable_code, reason = "the type of the result")]
                Ok::<(), std::io::Error>(())
            })
        };
        let read = {
            let near = Arc::clone(&near);
            spawn(async move { near.read(&mut [0]).await })
        };
        completion_port_runtime::yield_now().await;
        near.shutdown(Shutdown::Both).unwrap();
        assert_eq!(timeout(LIMIT, read).await.unwrap().unwrap().unwrap(), 0);
        let error = timeout(LIMIT, write).await.unwrap().unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    });
}

#[test]
fn options_are_set_by_socket2_and_a_listener_queues_connections() {
    use socket2::{Domain, Protocol, Socket, Type};
    runtime().block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        listener.socket().set_ttl_v4(9).unwrap();
        assert_eq!(listener.socket().ttl_v4().unwrap(), 9);
        // Nobody accepts: more than the 128 of the standard library fit into the queue. A system
        // may have a lower limit.
        let limit = std::fs::read_to_string("/proc/sys/net/core/somaxconn");
        let limit = limit.ok().and_then(|limit| limit.trim().parse().ok()).unwrap_or(100);
        let mut clients = Vec::new();
        for _ in 0..limit.min(300) {
            clients.push(timeout(LIMIT, TcpStream::connect(address)).await.unwrap().unwrap());
        }
        let socket = Socket::new(Domain::IPV4, Type::STREAM, Some(Protocol::TCP)).unwrap();
        socket.bind(&"127.0.0.1:0".parse::<std::net::SocketAddr>().unwrap().into()).unwrap();
        let bound = socket.local_addr().unwrap().as_socket().unwrap();
        drop(clients);
        let near = timeout(LIMIT, TcpStream::connect_socket(socket, address)).await;
        let near = near.unwrap().unwrap();
        assert_eq!((near.local_addr().unwrap(), near.peer_addr().unwrap()), (bound, address));
        near.set_nodelay(true).unwrap();
        assert!(near.nodelay().unwrap() && near.socket().tcp_nodelay().unwrap());
    });
}

#[test]
fn a_datagram_is_peeked_and_received_without_waiting() {
    runtime().block_on(async {
        let near = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let far = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        assert!(near.peer_addr().is_err());
        near.connect(far.local_addr().unwrap()).await.unwrap();
        assert_eq!(near.peer_addr().unwrap(), far.local_addr().unwrap());
        let mut buffer = [0; 16];
        assert_eq!(far.try_recv_from(&mut buffer).unwrap_err().kind(), ErrorKind::WouldBlock);
        far.try_send_to(b"there", near.local_addr().unwrap()).unwrap();
        assert_eq!(timeout(LIMIT, near.peek(&mut buffer)).await.unwrap().unwrap(), 5);
        assert_eq!(near.recv(&mut buffer).await.unwrap(), 5);
        assert_eq!(&buffer[..5], b"there");
    });
}

#[cfg(unix)]
#[test]
fn local_datagrams_are_sent_to_a_path_and_wait_for_room() {
    use completion_port_runtime::net::UnixDatagram;
    let path = std::env::temp_dir().join(format!("runtime-streams-{}", std::process::id()));
    runtime().block_on(async {
        let far = UnixDatagram::bind(&path).unwrap();
        assert_eq!(far.local_addr().unwrap().as_pathname(), Some(&*path));
        let near = UnixDatagram::unbound().unwrap();
        assert!(near.peer_addr().is_err());
        let sender = {
            let path = path.clone();
            spawn(async move {
                // More than the receiver has room for.
                for number in 0..1_000_u32 {
                    near.send_to(&number.to_le_bytes(), &path).await.unwrap();
                }
            })
        };
        let mut buffer = [0; 8];
        for number in 0..1_000_u32 {
            assert_eq!(timeout(LIMIT, far.peek(&mut buffer)).await.unwrap().unwrap(), 4);
            assert_eq!(timeout(LIMIT, far.recv(&mut buffer)).await.unwrap().unwrap(), 4);
            assert_eq!(buffer[..4], number.to_le_bytes());
        }
        sender.await.unwrap();
        let missing = UnixDatagram::unbound().unwrap().send_to(b"x", "/no/such/socket").await;
        assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    });
    std::fs::remove_file(&path).unwrap();
}

/// The traits of tokio, for whole streams and halves, by tokio's own copying.
#[cfg(feature = "tokio-io")]
#[test]
fn tokio_reads_and_writes_all_streams() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    async fn go(
        mut reader: impl tokio::io::AsyncRead + Unpin,
        mut writer: impl tokio::io::AsyncWrite + Send + Unpin + 'static,
    ) {
        let writing = spawn(async move {
            writer.write_all(content()).await.unwrap();
            writer.shutdown().await.unwrap();
            writer
        });
        let mut all = Vec::new();
        timeout(LIMIT, reader.read_to_end(&mut all)).await.unwrap().unwrap();
        assert!(all == content());
        drop(writing.await.unwrap());
    }
    runtime().block_on(async {
        let (near, far) = pair().await;
        go(near, far).await;
        let (near, far) = pair().await;
        let ((reader, _keep), (_other, writer)) = (near.into_split(), far.into_split());
        go(reader, writer).await;
        #[cfg(unix)]
        {
            use completion_port_runtime::net::UnixStream;
            let (near, far) = UnixStream::pair().unwrap();
            go(near, far).await;
            let (near, far) = UnixStream::pair().unwrap();
            let ((reader, _keep), (_other, writer)) = (near.into_split(), far.into_split());
            go(reader, writer).await;
        }
    });
}

/// The traits of hyper are there for all streams; the server in `ecosystem` uses them.
#[cfg(feature = "hyper")]
#[test]
fn hyper_reads_and_writes_all_streams() {
    use hyper::rt::{Read, ReadBuf, Write};

    async fn go(mut reader: impl Read + Unpin, mut writer: impl Write + Unpin) {
        let write = poll_fn(|context| Pin::new(&mut writer).poll_write(context, b"hello"));
        assert_eq!(timeout(LIMIT, write).await.unwrap().unwrap(), 5);
        poll_fn(|context| Pin::new(&mut writer).poll_shutdown(context)).await.unwrap();
        let mut all = Vec::new();
        loop {
            let mut memory = [std::mem::MaybeUninit::uninit(); 3];
            let mut buffer = ReadBuf::uninit(&mut memory);
            let read =
                poll_fn(|context| Pin::new(&mut reader).poll_read(context, buffer.unfilled()));
            timeout(LIMIT, read).await.unwrap().unwrap();
            match buffer.filled() {
                [] => break,
                read => all.extend_from_slice(read),
            }
        }
        assert_eq!(all, b"hello");
    }
    runtime().block_on(async {
        let (near, far) = pair().await;
        go(near, far).await;
        let (near, mut far) = pair().await;
        let (reader, _keep) = near.into_split();
        go(reader, far.split().1).await;
        #[cfg(unix)]
        {
            let (mut near, far) = completion_port_runtime::net::UnixStream::pair().unwrap();
            let (_other, writer) = far.into_split();
            go(near.split().0, writer).await;
        }
    });
}
