//! Sockets.
//!
//! A call tries the system call first, and waits for readiness only if that would block. So nothing
//! is in flight while a future waits: dropping it loses no byte, connection or buffer.

mod halves;
mod stream;
mod tcp;
mod udp;
#[cfg(unix)]
mod unix;

pub use completion_port::Datagrams;
pub use halves::{OwnedReadHalf, OwnedWriteHalf, ReadHalf, ReuniteError, WriteHalf};
#[cfg(any(feature = "hyper", feature = "tokio-io"))]
pub(crate) use stream::Raw;
pub use stream::Stream;
pub use tcp::{TcpListener, TcpStream};
pub use udp::UdpSocket;
#[cfg(unix)]
pub use unix::{UnixDatagram, UnixListener, UnixStream};

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// How many connections a listener's queue holds, as in tokio.
pub(crate) const BACKLOG: i32 = 1024;

/// Calls `f` with each address until it succeeds, and returns the last error.
pub(crate) async fn each_address<T>(
    addresses: impl ToSocketAddrs,
    mut f: impl AsyncFnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    // Names are resolved by a blocking call, which is allowed here.
    for address in addresses.to_socket_addrs()? {
        match f(address).await {
            Ok(socket) => return Ok(socket),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(io::ErrorKind::InvalidInput, "no address")))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests {
    use std::cell::Cell;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::task::{Context, Waker};

    use completion_port::Source;

    use crate::Runtime;
    use crate::activity::AsRawSource;
    use crate::readiness::{Direction, Io};

    /// How many attempts a read makes that follows a short read, when nothing has arrived since.
    async fn attempts<S>(near: S, mut far: impl Write) -> usize
    where
        S: Source + AsRawSource,
        for<'s> &'s S: Read,
    {
        let io = Io::new(near).unwrap();
        let count = Cell::new(0);
        let read = || {
            io.wait(Direction::Read, |_| {
                count.set(count.get() + 1);
                io.receive(64, |mut socket| socket.read(&mut [0; 64]))
            })
        };
        // It waits, and so it is watched.
        let mut first = Box::pin(read());
        assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        far.write_all(b"hello").unwrap();
        assert_eq!(first.await.unwrap(), 5);
        count.set(0);
        let mut second = Box::pin(read());
        assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        let attempts = count.get();
        far.write_all(b"more").unwrap();
        assert_eq!(second.await.unwrap(), 4);
        attempts
    }

    #[test]
    fn a_read_after_a_short_one_waits_without_a_call_on_tcp_only() {
        Runtime::new().unwrap().block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let near = listener.accept().unwrap().0;
            near.set_nonblocking(true).unwrap();
            assert_eq!(attempts(near, far).await, 0);
            let (near, far) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            assert_eq!(attempts(near, far).await, 1);
        });
    }
}
