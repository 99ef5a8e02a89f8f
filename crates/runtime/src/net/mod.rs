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

    use crate::activity::AsRawSource;
    use crate::readiness::{Direction, Io};
    use crate::state::ending::Phase;
    use crate::{Handle, Runtime};

    /// Reads once shortly, and then again. Returns how many attempts the second read makes while
    /// nothing has arrived. The runtime has reached this phase by then.
    async fn attempts<S>((near, mut far): (S, impl Write), phase: Phase) -> usize
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
        let mut context = Context::from_waker(Waker::noop());
        // It waits, and so it is watched.
        let mut first = Box::pin(read());
        assert!(first.as_mut().poll(&mut context).is_pending());
        far.write_all(b"hello").unwrap();
        assert_eq!(first.await.unwrap(), 5);
        count.set(0);
        let handle = Handle::current();
        let ending = &handle.shared().ending;
        ending.enter(phase);
        let mut second = Box::pin(read());
        let is_pending = second.as_mut().poll(&mut context).is_pending();
        ending.enter(Phase::Open);
        assert_eq!(is_pending, phase == Phase::Open);
        let attempts = count.get();
        if is_pending {
            far.write_all(b"more").unwrap();
            assert_eq!(second.await.unwrap(), 4);
        }
        attempts
    }

    fn tcp() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let near = listener.accept().unwrap().0;
        near.set_nonblocking(true).unwrap();
        (near, far)
    }

    #[test]
    fn a_read_after_a_short_one_waits_without_a_call_on_tcp_only() {
        Runtime::new().unwrap().block_on(async {
            assert_eq!(attempts(tcp(), Phase::Open).await, 0);
            let local = UnixStream::pair().unwrap();
            local.0.set_nonblocking(true).unwrap();
            assert_eq!(attempts(local, Phase::Open).await, 1);
        });
    }

    /// Bytes may have arrived of which the port tells no more.
    #[test]
    fn a_read_is_tried_once_more_when_the_runtime_has_ended() {
        Runtime::new().unwrap().block_on(async {
            assert_eq!(attempts(tcp(), Phase::Closed).await, 1);
        });
    }
}
