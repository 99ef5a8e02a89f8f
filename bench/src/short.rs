//! The clients of short connections: one thread that connects, sends a request, reads the answer
//! and closes, repeatedly, for many clients at the same time.
//!
//! The clients close first, as with most servers, with a reset. A client that closes in order keeps
//! its port number for a minute, and 28,000 of these would be used up within a second. So a server
//! reads an error instead of the end of the stream, which means the same work for it.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::asking::{Ask, Progress, Tally};
use crate::histogram::Histogram;
use crate::load::Pattern;
use crate::system::{Set, Wanted, connecting};
use crate::work::{MESSAGE, Work, message};

/// A client, and its connection while it has one.
struct Client {
    stream: Option<TcpStream>,
    request: [u8; MESSAGE],
    is_sent: bool,
    /// How much of the answer has come.
    received: usize,
    begun: Instant,
    /// The total number of requests, which distinguishes them.
    count: u64,
    /// Connections answered in this round.
    answered: u64,
}

/// Clients of a server.
pub(crate) struct Short {
    set: Set,
    server: SocketAddr,
    clients: Vec<Client>,
}

impl Short {
    /// That many clients of this server.
    pub(crate) fn new(server: SocketAddr, clients: usize) -> io::Result<Short> {
        let client = |_| Client {
            stream: None,
            request: [0; MESSAGE],
            is_sent: false,
            received: 0,
            begun: Instant::now(),
            count: 0,
            answered: 0,
        };
        Ok(Short { set: Set::new()?, server, clients: (0..clients).map(client).collect() })
    }

    /// Starts a client's next connection. Over loopback it is established when the call returns, so
    /// the request is sent immediately; otherwise an event reports it.
    fn begin(&mut self, index: usize) -> Result<(), String> {
        let client = &mut self.clients[index];
        client.begun = Instant::now();
        client.request = message(Work::Echo, (index as u64) << 40 | client.count);
        client.count += 1;
        (client.is_sent, client.received) = (false, 0);
        let stream = connecting(self.server).map_err(|error| format!("connecting: {error}"))?;
        let stream = client.stream.insert(stream);
        client.is_sent = send(stream, &client.request)?;
        let wanted = if client.is_sent { Wanted::Input } else { Wanted::Both };
        self.set.add(stream, index, wanted).map_err(|error| format!("load generator: {error}"))
    }

    /// Continues a client's connection after an event. Returns the time of the whole connection
    /// once its answer is complete and it is closed.
    fn go_on(&mut self, index: usize) -> Result<Option<Duration>, String> {
        let client = &mut self.clients[index];
        let Some(stream) = &mut client.stream else { return Ok(None) };
        if !client.is_sent {
            client.is_sent = send(stream, &client.request)?;
            if !client.is_sent {
                return Ok(None);
            }
        }
        // One byte more than is expected: the server must not send it.
        let mut buffer = [0; MESSAGE + 1];
        let count = match stream.read(&mut buffer) {
            Ok(0) => return Err("the server closed a connection".to_owned()),
            Ok(count) => count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(format!("receiving: {error}")),
        };
        let expected = client.request.get(client.received..client.received + count);
        if expected != Some(&buffer[..count]) {
            return Err("an answer differs from its request".to_owned());
        }
        client.received += count;
        if client.received < MESSAGE {
            return Ok(None);
        }
        client.stream = None;
        client.answered += 1;
        Ok(Some(client.begun.elapsed()))
    }

    fn answered(&self) -> impl Iterator<Item = u64> + Clone {
        self.clients.iter().map(|client| client.answered)
    }
}

impl Ask for Short {
    /// Each connection sends one request, which asks for nothing but to be sent back.
    fn run(
        &mut self,
        _pattern: Pattern,
        time: Duration,
        latencies: &mut Histogram,
    ) -> Result<Tally, String> {
        for index in 0..self.clients.len() {
            self.clients[index].answered = 0;
            self.begin(index)?;
        }
        let mut progress = Progress::new(time);
        let mut under_way = self.clients.len();
        while under_way > 0 {
            let left = progress.left(under_way, self.clients.len(), self.answered())?;
            self.set.wait(left)?;
            for at in 0..self.set.count() {
                let Some(index) = self.set.index(at) else { continue };
                let Some(latency) = self.go_on(index)? else { continue };
                latencies.record(latency);
                if progress.is_sending() {
                    self.begin(index)?;
                } else {
                    under_way -= 1;
                }
            }
        }
        Ok(progress.tally(self.answered()))
    }

    fn connections(&self) -> usize {
        self.clients.len()
    }
}

/// Sends a request; `false` while the connection is not there.
fn send(stream: &mut TcpStream, request: &[u8; MESSAGE]) -> Result<bool, String> {
    match stream.write(request) {
        Ok(MESSAGE) => Ok(true),
        Ok(count) => Err(format!("load generator: sent {count} of {MESSAGE} bytes")),
        Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) => {
            Ok(false)
        }
        Err(error) => Err(format!("sending: {error}")),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::load::Handlers;

    /// Four clients of a server that does this with each connection; a run of them.
    fn run(
        answer: fn(&mut TcpStream) -> io::Result<()>,
    ) -> (Result<Tally, String>, Histogram, Short) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut short = Short::new(listener.local_addr().unwrap(), 4).unwrap();
        thread::spawn(move || {
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                // To the end, which is the client's reset.
                while answer(&mut stream).is_ok() {}
            }
        });
        let mut latencies = Histogram::default();
        let pattern = Pattern { handlers: Handlers::Quick, burst: 1 };
        let tally = short.run(pattern, Duration::from_millis(30), &mut latencies);
        (tally, latencies, short)
    }

    /// In two pieces, of which the client has to put one answer together.
    fn echo(stream: &mut TcpStream) -> io::Result<()> {
        let mut bytes = [0; MESSAGE];
        stream.read_exact(&mut bytes)?;
        stream.set_nodelay(true)?;
        stream.write_all(&bytes[..10])?;
        stream.write_all(&bytes[10..])
    }

    #[test]
    fn a_connection_is_made_for_each_answer_and_none_is_left() {
        let (tally, latencies, short) = run(echo);
        let tally = tally.unwrap();
        assert!(tally.in_time > 0 && tally.answered >= tally.in_time, "{tally:?}");
        assert!(tally.answered - tally.in_time <= 4, "{tally:?}");
        assert!(tally.seconds >= 0.03, "{tally:?}");
        assert!(latencies.per_mille(500).unwrap() > 0.0);
        assert_eq!(short.clients.iter().map(|client| client.count).sum::<u64>(), tally.answered);
        assert!(short.clients.iter().all(|client| client.stream.is_none()));
    }

    #[test]
    fn a_wrong_answer_is_found() {
        let (tally, ..) = run(|stream| {
            let mut bytes = [0; MESSAGE];
            stream.read_exact(&mut bytes)?;
            bytes[40] ^= 1;
            stream.write_all(&bytes)
        });
        assert_eq!(tally.unwrap_err(), "an answer differs from its request");
    }

    #[test]
    fn a_server_that_closes_without_an_answer_is_told() {
        let (tally, ..) = run(|stream| {
            stream.read_exact(&mut [0; MESSAGE])?;
            Err(ErrorKind::Other.into())
        });
        assert_eq!(tally.unwrap_err(), "the server closed a connection");
    }

    #[test]
    fn a_server_that_is_not_there_is_told() {
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut short = Short::new(address, 2).unwrap();
        let pattern = Pattern { handlers: Handlers::Quick, burst: 1 };
        let tally = short.run(pattern, Duration::from_millis(30), &mut Histogram::default());
        assert!(tally.unwrap_err().contains("refused"));
    }
}
