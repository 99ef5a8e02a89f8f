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
