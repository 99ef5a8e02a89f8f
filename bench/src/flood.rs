//! The clients of a sink: one thread that keeps the sockets of all connections full and reads
//! nothing.
//!
//! A write passes a block that is larger than the free space. So one call for each event fills a
//! socket, and makes the kernel report when a third of it is empty again.

use std::io::{self, ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::system::{self, Set, Wanted};

/// Bytes of a write.
const BLOCK: usize = 256 * 1024;
/// The requested buffer size at either end of a connection: large enough that a server does not
/// empty it while the clients' thread waits for a processor, small enough that the remaining data
/// at the end of a turn is soon read. The system may grant less.
pub(crate) const ROOM: usize = 256 * 1024;

/// Connections to a sink.
pub(crate) struct Flood {
    set: Set,
    streams: Vec<TcpStream>,
    block: Box<[u8]>,
}

impl Flood {
    pub(crate) fn new() -> io::Result<Flood> {
        let set = Set::new()?;
        let block = vec![0x5a; BLOCK].into_boxed_slice();
        Ok(Flood { set, streams: Vec::new(), block })
    }

    pub(crate) fn connections(&self) -> usize {
        self.streams.len()
    }

    /// Connects once more.
    pub(crate) fn connect(&mut self, server: SocketAddr) -> io::Result<()> {
        let stream = TcpStream::connect(server)?;
        // The final reset leaves no connection that would keep the port number.
        system::reset_when_closed(&stream)?;
        system::room_to_send(&stream, ROOM)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        self.set.add(&stream, self.streams.len(), Wanted::Output)?;
        self.streams.push(stream);
        Ok(())
    }

    /// Keeps all sockets full for as long as `time`. They are full at the end: a server has
    /// something to read for a while after it.
    ///
    /// The error is a line of text; the connections are unusable after it.
    pub(crate) fn run(&mut self, time: Duration) -> Result<(), String> {
        let end = Instant::now() + time;
        // Space freed since the last time causes events, even if it was filled then.
        for index in 0..self.streams.len() {
            self.fill(index)?;
        }
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            self.set.wait(left)?;
            for at in 0..self.set.count() {
                let Some(index) = self.set.index(at) else { continue };
                self.fill(index)?;
            }
        }
    }

    /// Writes until there is no more room; the kernel then reports when there is room again.
    fn fill(&mut self, index: usize) -> Result<(), String> {
        loop {
            match self.streams[index].write(&self.block) {
                Ok(count) if count == self.block.len() => {}
                Ok(_) => return Ok(()),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(format!("sending: {error}")),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::net::TcpListener;

    use super::*;

    const TIME: Duration = Duration::from_millis(20);

    /// Two connections, and their other ends.
    fn connect() -> (Flood, Vec<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut flood = Flood::new().unwrap();
        let accept = |_| {
            flood.connect(listener.local_addr().unwrap()).unwrap();
            let (stream, _) = listener.accept().unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream
        };
        let streams = (0..2).map(accept).collect();
        (flood, streams)
    }

    #[test]
    fn all_sockets_are_full_again_after_each_time() {
        let (mut flood, mut streams) = connect();
        assert_eq!(flood.connections(), 2);
        let mut bytes = vec![0; 64 * 1024];
        for _ in 0..20 {
            for (index, stream) in streams.iter_mut().enumerate() {
                // On a busy machine the kernel may free space once more after the end of the time.
                let is_full = (0..50).any(|_| {
                    flood.run(TIME).unwrap();
                    let written = flood.streams[index].write(&[0]);
                    written.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
                });
                assert!(is_full, "connection {index}");
                stream.read_exact(&mut bytes).unwrap();
            }
        }
    }

    #[test]
    fn a_socket_that_is_emptied_is_filled_meanwhile() {
        let (mut flood, mut streams) = connect();
        let mut stream = streams.remove(0);
        let reader = std::thread::spawn(move || {
            let mut bytes = vec![0; 64 * 1024];
            // More than both ends of a connection hold.
            (0..256).try_for_each(|_| stream.read_exact(&mut bytes)).map(|()| stream)
        });
        while !reader.is_finished() {
            flood.run(TIME).unwrap();
        }
        reader.join().unwrap().unwrap();
    }

    #[test]
    fn a_connection_that_is_closed_is_told() {
        let (mut flood, streams) = connect();
        flood.run(TIME).unwrap();
        drop(streams);
        let reason = flood.run(TIME).unwrap_err();
        assert!(reason.starts_with("sending: "), "{reason}");
    }
}
