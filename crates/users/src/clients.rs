//! Clients, most of them rude. Each connects, does what its name says, and checks the received
//! content.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use rustix::net::sockopt::set_socket_linger;

/// An answer that takes longer does not come, however busy the machine is.
const SOON: Duration = Duration::from_secs(120);

/// A connection whose reads and writes fail if they take too long.
///
/// # Panics
///
/// If the server does not accept.
#[must_use]
pub fn connect(server: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(server).expect("a server that listens");
    stream.set_nodelay(true).expect("a connection");
    stream.set_read_timeout(Some(SOON)).expect("a time-out");
    stream.set_write_timeout(Some(SOON)).expect("a time-out");
    stream
}

/// Bytes that differ from one position to the next, and from one `seed` to another.
#[must_use]
pub fn content(seed: u8, length: usize) -> Vec<u8> {
    (0..=250_u8).cycle().skip(usize::from(seed)).take(length).collect()
}

/// A client that sends repeatedly, so that a server with a time limit does not end its connection.
/// A busy machine may prevent that: then it connects again.
#[derive(Debug)]
pub struct Lively {
    server: SocketAddr,
    /// How long a client may be silent.
    limit: Duration,
    last: Instant,
    /// Its connection.
    pub stream: TcpStream,
}

impl Lively {
    /// Connects to a server that allows its clients this much silence.
    #[must_use]
    pub fn connect(server: SocketAddr, limit: Duration) -> Self {
        let last = Instant::now();
        Self { server, limit, last, stream: connect(server) }
    }

    /// Sends bytes and has them back.
    ///
    /// # Panics
    ///
    /// If it is not answered though it was not silent for too long.
    pub fn exchange(&mut self, bytes: &[u8]) {
        loop {
            let begun = Instant::now();
            let sent = self.stream.write_all(bytes);
            let silence = self.last.elapsed();
            self.last = begun;
            let mut answer = vec![0; bytes.len()];
            match sent.and_then(|()| self.stream.read_exact(&mut answer)) {
                Ok(()) if answer == bytes => return,
                // Its connection has ended or is about to.
                _ if silence >= self.limit => *self = Self::connect(self.server, self.limit),
                outcome => panic!("{outcome:?} after {silence:?} of silence"),
            }
        }
    }

    /// For how long it has been silent.
    #[must_use]
    pub fn silence(&self) -> Duration {
        self.last.elapsed()
    }
}

/// Sends bytes and receives their echo.
///
/// # Panics
///
/// If the echo differs.
pub fn exchange(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).expect("room");
    let mut answer = vec![0; bytes.len()];
    stream.read_exact(&mut answer).expect("an answer");
    assert!(answer == bytes, "another answer of {} bytes", bytes.len());
}

/// A client that asks for nothing odd: some exchanges of several sizes.
///
/// # Panics
///
/// If it is not answered as it should be.
pub fn be_polite(server: SocketAddr) {
    let mut stream = connect(server);
    for (seed, length) in (0..).zip([1, 5, 100, 4096, 10_000]) {
        exchange(&mut stream, &content(seed, length));
    }
}

/// Closes by a reset.
pub fn reset(stream: TcpStream) {
    // An end without a reset is none of the rude ones, but does no harm either.
    let _ = set_socket_linger(&stream, Some(Duration::ZERO));
    drop(stream);
}

/// Resets immediately, after a write, after an answer, and with an answer in transit.
pub fn reset_at_several_points(server: SocketAddr) {
    reset(connect(server));
    let mut stream = connect(server);
    let _ = stream.write_all(b"hello");
    reset(stream);
    let mut stream = connect(server);
    exchange(&mut stream, b"hello");
    reset(stream);
    let mut stream = connect(server);
    let _ = stream.write_all(&content(1, 100_000));
    reset(stream);
    // Data that was not read makes the end of a socket a reset, too.
    let mut stream = connect(server);
    let _ = stream.write_all(&content(2, 10_000));
    drop(stream);
}

/// Sends, shuts down its sending half, then reads everything.
///
/// # Panics
///
/// If the echo is incomplete or the stream does not end after it.
pub fn half_close(server: SocketAddr, length: usize) {
    let mut stream = connect(server);
    let bytes = content(7, length);
    let mut writer = stream.try_clone().expect("a duplicate");
    let copy = bytes.clone();
    let writing = thread::spawn(move || {
        writer.write_all(&copy).expect("room");
        writer.shutdown(Shutdown::Write).expect("a connection");
    });
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("the end of the stream");
    writing.join().expect("no panic");
    assert!(answer == bytes, "{} bytes of {length} came back", answer.len());
}

/// Shuts down its sending half immediately, or sends single bytes.
///
/// # Panics
///
/// If the answer is wrong.
pub fn be_odd(server: SocketAddr) {
    half_close(server, 0);
    half_close(server, 1);
    let mut stream = connect(server);
    for byte in 0..100 {
        exchange(&mut stream, &[byte]);
    }
}

/// A client that has sent, but does not read the echo.
#[derive(Debug)]
pub struct Slow {
    stream: TcpStream,
    sent: Vec<u8>,
}

impl Slow {
    /// Sends until nothing more is taken.
    ///
    /// # Panics
    ///
    /// If the server takes everything forever: then it has no limit.
    #[must_use]
    pub fn begin(server: SocketAddr, seed: u8) -> Self {
        // More than the systems on the way keep: through a proxy there are four connections, each with up to 32 MiB to be
        // read and 4 MiB to be sent on Linux. On a busy machine they grow as large.
        const TOO_MUCH: usize = 256 << 20;
        let mut stream = connect(server);
        stream.set_nonblocking(true).expect("a socket");
        let mut sent = Vec::new();
        let part = content(seed, 64 * 1024);
        let mut last = Instant::now();
        // Data that the server does not read stays in the buffers of both sides until they are
        // full.
        while last.elapsed() < Duration::from_millis(200) {
            assert!(sent.len() < TOO_MUCH, "the server reads without end");
            match stream.write(&part) {
                Ok(written) => {
                    sent.extend_from_slice(&part[..written]);
                    last = Instant::now();
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    thread::park_timeout(Duration::from_millis(5));
                }
                Err(error) => panic!("{error}"),
            }
        }
        stream.set_nonblocking(false).expect("a socket");
        Self { stream, sent }
    }

    /// Finally reads, a little at a time first.
    ///
    /// # Panics
    ///
    /// If the echo is incomplete.
    pub fn read_all(mut self) {
        self.stream.shutdown(Shutdown::Write).expect("a connection");
        let mut answer = vec![0; 1000];
        self.stream.read_exact(&mut answer).expect("an answer");
        self.stream.read_to_end(&mut answer).expect("the end of the stream");
        assert!(answer == self.sent, "{} of {} bytes", answer.len(), self.sent.len());
    }

    /// Waits until the server ends the connection because nothing is read, or nothing comes for `limit`.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn wait_until_cut_off(&mut self, limit: Duration) {
        let begun = Instant::now();
        self.stream.set_nonblocking(true).expect("a socket");
        loop {
            // After the other end is closed, a write is answered by a reset.
            for _ in 0..2 {
                let written = self.stream.write(b"?");
                if written.is_err_and(|error| error.kind() != ErrorKind::WouldBlock) {
                    return;
                }
                thread::park_timeout(Duration::from_millis(10));
            }
            assert!(begun.elapsed() < SOON, "it is not cut off");
            // If there was room, the server has heard something.
            thread::park_timeout(limit + limit / 4);
        }
    }

    /// Resets instead.
    pub fn reset(self) {
        reset(self.stream);
    }
}

/// Whether the stream has ended or was reset.
///
/// # Errors
///
/// If neither happens soon.
pub fn ends(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut rest = Vec::new();
    match stream.read_to_end(&mut rest) {
        Err(error) if error.kind() != ErrorKind::ConnectionReset => Err(error),
        _ => Ok(rest),
    }
}

/// Runs all rude clients against an echo server.
///
/// # Panics
///
/// If one of them keeps a polite one from being served, or is served wrongly itself.
pub fn be_rude_to_an_echo(server: SocketAddr) {
    be_polite(server);
    for _ in 0..8 {
        reset_at_several_points(server);
    }
    be_polite(server);
    for length in [10, 5000, 3 << 20] {
        half_close(server, length);
    }
    be_odd(server);
    // More of them than the server has threads.
    let slow: Vec<_> = (0..6).map(|seed| Slow::begin(server, seed)).collect();
    be_polite(server);
    for (number, slow) in slow.into_iter().enumerate() {
        if number % 3 == 2 { slow.reset() } else { slow.read_all() }
    }
    // Many at the same time, most of which vanish.
    let crowd: Vec<_> = (0..200).map(|_| connect(server)).collect();
    for (number, stream) in crowd.into_iter().enumerate() {
        if number % 2 == 0 { reset(stream) } else { drop(stream) }
    }
    be_polite(server);
}
