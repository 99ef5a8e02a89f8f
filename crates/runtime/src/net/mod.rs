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
    use std::io::{ErrorKind, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::net::UnixStream;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use completion_port::Source;
    use socket2::SockRef;

    use crate::activity::AsRawSource;
    use crate::readiness::{Direction, Io};
    use crate::state::ending::Phase;
    use crate::{Handle, Runtime};

    /// Reads once shortly, and then again. Returns how many attempts the second read makes while
    /// nothing has arrived. The runtime has reached this phase by then. If the first read `waits`,
    /// the socket is watched from then on, and otherwise from the second one on.
    async fn attempts<S>((near, mut far): (S, impl Write), waits: bool, phase: Phase) -> usize
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
        let mut first = Box::pin(read());
        if waits {
            assert!(first.as_mut().poll(&mut context).is_pending());
        }
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
            for waits in [false, true] {
                assert_eq!(attempts(tcp(), waits, Phase::Open).await, 0);
                let local = UnixStream::pair().unwrap();
                local.0.set_nonblocking(true).unwrap();
                assert_eq!(attempts(local, waits, Phase::Open).await, 1);
            }
        });
    }

    /// Bytes may have arrived of which the port tells no more.
    #[test]
    fn a_read_is_tried_once_more_when_the_runtime_has_ended() {
        Runtime::new().unwrap().block_on(async {
            for waits in [false, true] {
                assert_eq!(attempts(tcp(), waits, Phase::Closed).await, 1);
            }
        });
    }

    /// What arrives, or happens, between a short read and the moment from which the port watches.
    #[test]
    fn what_comes_before_a_socket_is_watched_is_reported() {
        type Act = fn(TcpStream) -> Option<TcpStream>;
        let more: Act = |mut far| {
            far.write_all(b"more").unwrap();
            Some(far)
        };
        let ends: Act = |_| None;
        let resets: Act = |far| {
            SockRef::from(&far).set_linger(Some(Duration::ZERO)).unwrap();
            None
        };
        // A read ends at the urgent byte.
        let is_urgent: Act = |mut far| {
            far.write_all(b"ab").unwrap();
            SockRef::from(&far).send_out_of_band(b"!").unwrap();
            far.write_all(b"c").unwrap();
            Some(far)
        };
        let acts: [(Act, &[Result<usize, ErrorKind>]); 4] = [
            (more, &[Ok(4)]),
            (ends, &[Ok(0)]),
            (resets, &[Err(ErrorKind::ConnectionReset), Ok(0)]),
            (is_urgent, &[Ok(2), Ok(1)]),
        ];
        Runtime::new().unwrap().block_on(async {
            for (act, expected) in acts {
                let (near, mut far) = tcp();
                let io = Io::new(near).unwrap();
                let read = || {
                    io.wait(Direction::Read, |_| {
                        io.receive(64, |mut socket| socket.read(&mut [0; 64]))
                    })
                };
                far.write_all(b"hello").unwrap();
                assert_eq!(read().await.unwrap(), 5);
                let _far = act(far);
                for expected in expected {
                    assert_eq!(read().await.map_err(|error| error.kind()), *expected);
                }
            }
        });
    }

    #[test]
    fn an_accepted_connection_is_non_blocking() {
        Runtime::new().unwrap().block_on(async {
            let listener = crate::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            let mut far = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let (near, address) = listener.accept().await.unwrap();
            assert_eq!(address, far.local_addr().unwrap());
            far.write_all(b"hello").unwrap();
            assert_eq!(near.read(&mut [0; 64]).await.unwrap(), 5);
            // It is non-blocking, so this returns.
            let mut room = [0; 64];
            let mut read = Box::pin(near.read(&mut room));
            let mut context = Context::from_waker(Waker::noop());
            assert!(read.as_mut().poll(&mut context).is_pending());
        });
    }
}
