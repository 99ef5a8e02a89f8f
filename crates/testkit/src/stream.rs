//! Streams of the standard library, of the kind that the system makes pairs of, or else of TCP.

#[cfg(windows)]
use std::net::{Ipv4Addr, TcpListener};
#[cfg(unix)]
use std::os::fd::AsRawFd;
#[cfg(windows)]
use std::os::windows::io::AsRawSocket;

#[cfg(windows)]
pub use std::net::TcpStream as Stream;
#[cfg(unix)]
pub use std::os::unix::net::UnixStream as Stream;

/// The two ends of a connection.
#[cfg(unix)]
#[must_use]
pub fn connected() -> (Stream, Stream) {
    Stream::pair().unwrap()
}

/// The two ends of a connection.
#[cfg(windows)]
#[must_use]
pub fn connected() -> (Stream, Stream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let near = Stream::connect(listener.local_addr().unwrap()).unwrap();
    let (far, _) = listener.accept().unwrap();
    near.set_nodelay(true).unwrap();
    far.set_nodelay(true).unwrap();
    (near, far)
}

/// The number by which the library knows a stream.
#[cfg(unix)]
#[must_use]
pub fn number(stream: &Stream) -> i32 {
    stream.as_raw_fd()
}

/// The number by which the library knows a stream.
#[cfg(windows)]
#[must_use]
pub fn number(stream: &Stream) -> i32 {
    i32::try_from(stream.as_raw_socket()).unwrap()
}
