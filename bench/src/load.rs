//! The load generator: one thread, a closed loop. Each active connection sends a request, or a burst
//! of them, waits for the whole answer, and sends the next. Nothing is allocated meanwhile.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant, SystemTime};

use crate::asking::{Ask, Progress, Tally};
use crate::histogram::Histogram;
use crate::system::{self, Set, Wanted};
use crate::work::{BUFFER, MESSAGE, Work, message};

/// Messages of a burst at most.
pub(crate) const BURST: usize = 8;
/// Connections that are made before the server is waited for.
pub(crate) const PORTION: usize = 1000;

/// What the handlers of the requests have to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Handlers {
    /// Nothing.
    Quick,
    /// All the same work.
    All(Work),
    /// This work in one of that many requests.
    Sometimes { once_in: u64, work: Work },
    /// Nothing, but requests of the first connection spin for that many microseconds.
    FirstSpins(u32),
}

/// What the connections send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pattern {
    pub(crate) handlers: Handlers,
    /// Messages sent together.
    pub(crate) burst: usize,
}

/// Reads data, with its time.
pub(crate) type ReadStamped = fn(&TcpStream, &mut [u8]) -> io::Result<(usize, Option<SystemTime>)>;

/// Reads an answer with the time of its arrival at the socket.
#[derive(Clone, Copy)]
pub(crate) struct Stamps {
    /// Makes the kernel record the time of data that arrives at a socket.
    pub(crate) begin: fn(&TcpStream) -> io::Result<()>,
    pub(crate) read: ReadStamped,
}

/// Connections from each client address: the kernel finds a free port the slower the more are in
/// use, and there are 28,000 by default.
const PER_ADDRESS: usize = 8000;

/// Connects from the `index`-th address of the loopback network.
fn connect_from(index: usize, server: SocketAddr) -> io::Result<TcpStream> {
    if index == 0 {
        return TcpStream::connect(server);
    }
    let index = u8::try_from(index).map_err(|_| io::Error::other("too many connections"))?;
    system::connect_from([127, 0, 1, index].into(), server)
}

/// An active connection.
struct Client {
    stream: TcpStream,
    request: [u8; MESSAGE * BURST],
    /// How long the request is, and how much of its answer has come; equal when none is under way.
    length: usize,
    received: usize,
    sent_at: Instant,
    /// The same by the clock of the stamps, where there are any.
    stamped_at: SystemTime,
    /// The total number of requests, which distinguishes them.
    begun: u64,
    /// Requests answered in this round.
    answered: u64,
}

/// Connections to a server.
pub(crate) struct Load {
    set: Set,
    active: Vec<Client>,
    idle: Vec<TcpStream>,
    buffer: Box<[u8; BUFFER]>,
    /// Requests sent ever.
    sent: u64,
    /// How answers are stamped, and their times until arrival in this round.
    stamps: Option<(Stamps, Histogram)>,
}

impl Load {
    pub(crate) fn new() -> io::Result<Load> {
        let set = Set::new()?;
        let (active, idle) = (Vec::new(), Vec::new());
        let buffer = Box::new([0; BUFFER]);
        Ok(Load { set, active, idle, buffer, sent: 0, stamps: None })
    }

    /// The same; the kernel reports when each answer has arrived.
    pub(crate) fn stamped(stamps: Stamps) -> io::Result<Load> {
        Ok(Load { stamps: Some((stamps, Histogram::default())), ..Load::new()? })
    }

    /// The time until answers had reached their sockets in the latest round, if known.
    pub(crate) fn come(&self) -> Option<&Histogram> {
        self.stamps.as_ref().map(|(_, come)| come)
    }

    /// Connects once more. An idle connection is only held open.
    pub(crate) fn connect(&mut self, server: SocketAddr, active: bool) -> io::Result<()> {
        let stream = connect_from(self.connections() / PER_ADDRESS, server)?;
        // The final reset leaves no connection that would keep the port number.
        system::reset_when_closed(&stream)?;
        if !active {
            self.idle.push(stream);
            return Ok(());
        }
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        if let Some((stamps, _)) = &self.stamps {
            (stamps.begin)(&stream)?;
        }
        self.set.add(&stream, self.active.len(), Wanted::Input)?;
        self.active.push(Client {
            stream,
            request: [0; MESSAGE * BURST],
            length: 0,
            received: 0,
            sent_at: Instant::now(),
            stamped_at: SystemTime::UNIX_EPOCH,
            begun: 0,
            answered: 0,
        });
        Ok(())
    }

    /// The number of answers to each connection in this round, except those that spin.
    fn answered(&self, spinners: usize) -> impl Iterator<Item = u64> + Clone {
        self.active[spinners..].iter().map(|client| client.answered)
    }

    /// Sends the next request of a connection.
    fn send(&mut self, index: usize, pattern: Pattern) -> Result<(), String> {
        let client = &mut self.active[index];
        let (messages, _) = client.request.as_chunks_mut::<MESSAGE>();
        for slot in &mut messages[..pattern.burst] {
            let work = match pattern.handlers {
                Handlers::All(work) => work,
                Handlers::Sometimes { once_in, work } if self.sent % once_in == once_in - 1 => work,
                Handlers::FirstSpins(microseconds) if index == 0 => Work::Spin(microseconds),
                _ => Work::Echo,
            };
            *slot = message(work, (index as u64) << 40 | client.begun);
            client.begun += 1;
            self.sent += 1;
        }
        client.length = pattern.burst * MESSAGE;
        client.received = 0;
        client.sent_at = Instant::now();
        if self.stamps.is_some() {
            client.stamped_at = SystemTime::now();
        }
        let sent = client.stream.write(&client.request[..client.length]);
        match sent {
            Ok(count) if count == client.length => Ok(()),
            Ok(count) => Err(format!("load generator: sent {count} of {} bytes", client.length)),
            Err(error) => Err(format!("sending: {error}")),
        }
    }

    /// Receives available data; returns the latency if the answer is complete.
    fn receive(&mut self, index: usize) -> Result<Option<Duration>, String> {
        let client = &mut self.active[index];
        let read = match &self.stamps {
            None => client.stream.read(&mut *self.buffer).map(|count| (count, None)),
            Some((stamps, _)) => (stamps.read)(&client.stream, &mut *self.buffer),
        };
        let (count, come) = match read {
            Ok((0, _)) => return Err("the server closed a connection".to_owned()),
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(None),
            Err(error) => return Err(format!("receiving: {error}")),
        };
        // A read that is shorter than the buffer leaves nothing, and later data causes a new event.
        let expected =
            client.request[..client.length].get(client.received..client.received + count);
        if expected != Some(&self.buffer[..count]) {
            return Err("an answer differs from its request".to_owned());
        }
        client.received += count;
        if client.received < client.length {
            return Ok(None);
        }
        // If the clock was set meanwhile, the time is meaningless.
        if let Some((_, times)) = &mut self.stamps
            && let Some(Ok(time)) = come.map(|come| come.duration_since(client.stamped_at))
        {
            times.record(time);
        }
        Ok(Some(client.sent_at.elapsed()))
    }
}

impl Ask for Load {
    fn run(
        &mut self,
        pattern: Pattern,
        time: Duration,
        latencies: &mut Histogram,
    ) -> Result<Tally, String> {
        if let Some((_, come)) = &mut self.stamps {
            come.clear();
        }
        for index in 0..self.active.len() {
            self.active[index].answered = 0;
            self.send(index, pattern)?;
        }
        let spinners = usize::from(matches!(pattern.handlers, Handlers::FirstSpins(_)));
        let mut progress = Progress::new(time);
        let mut under_way = self.active.len();
        while under_way > 0 {
            let left = progress.left(under_way, self.active.len(), self.answered(spinners))?;
            self.set.wait(left)?;
            for at in 0..self.set.count() {
                let Some(index) = self.set.index(at) else { continue };
                let Some(latency) = self.receive(index)? else { continue };
                if index < spinners {
                    // Its requests take as long as configured.
                } else if spinners > 0 {
                    latencies.record_as_if_asked_each_millisecond(latency);
                } else {
                    latencies.record(latency);
                }
                self.active[index].answered += pattern.burst as u64;
                if progress.is_sending() {
                    self.send(index, pattern)?;
                } else {
                    under_way -= 1;
                }
            }
        }
        Ok(progress.tally(self.answered(spinners)))
    }

    fn connections(&self) -> usize {
        self.active.len() + self.idle.len()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    const ECHO: Pattern = Pattern { handlers: Handlers::Quick, burst: 1 };

    /// Serves two connections one after the other with `answer`, in a thread.
    fn serve(answer: fn(&mut TcpStream) -> io::Result<()>) -> Load {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for _ in 0..2 {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_nodelay(true).unwrap();
                thread::spawn(move || while answer(&mut stream).is_ok() {});
            }
        });
        let mut load = Load::new().unwrap();
        load.connect(address, true).unwrap();
        load.connect(address, true).unwrap();
        load
    }

    fn run(load: &mut Load, pattern: Pattern) -> (Result<Tally, String>, Histogram) {
        let mut latencies = Histogram::default();
        let tally = load.run(pattern, Duration::from_millis(30), &mut latencies);
        (tally, latencies)
    }

    fn echo(stream: &mut TcpStream) -> io::Result<()> {
        let mut bytes = [0; 7];
        stream.read_exact(&mut bytes[..1])?;
        stream.write_all(&bytes[..1])?;
        stream.read_exact(&mut bytes)?;
        stream.write_all(&bytes)
    }

    #[test]
    fn answers_in_pieces_are_put_together_and_counted_once() {
        let mut load = serve(echo);
        for burst in [1, BURST] {
            let (tally, latencies) = run(&mut load, Pattern { handlers: Handlers::Quick, burst });
            let tally = tally.unwrap();
            assert!(tally.in_time > 0 && tally.answered >= tally.in_time, "{tally:?}");
            assert_eq!(tally.answered % burst as u64, 0);
            assert!(tally.answered - tally.in_time <= 2 * burst as u64, "{tally:?}");
            assert!(tally.least <= tally.in_time / 2, "{tally:?}");
            assert!(tally.seconds >= 0.03 && tally.seconds < 1.0, "{tally:?}");
            assert!(latencies.per_mille(500).unwrap() > 0.0);
        }
    }

    #[test]
    fn connections_come_from_several_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for (index, expected) in [(0, "127.0.0.1"), (1, "127.0.1.1"), (255, "127.0.1.255")] {
            let _client = connect_from(index, listener.local_addr().unwrap()).unwrap();
            assert_eq!(listener.accept().unwrap().1.ip().to_string(), expected);
        }
        assert!(connect_from(256, listener.local_addr().unwrap()).is_err());
    }

    #[test]
    fn a_wrong_answer_is_found() {
        let mut load = serve(|stream| {
            let mut bytes = [0; MESSAGE];
            stream.read_exact(&mut bytes)?;
            bytes[40] ^= 1;
            stream.write_all(&bytes)
        });
        assert_eq!(run(&mut load, ECHO).0.unwrap_err(), "an answer differs from its request");
    }

    #[test]
    fn more_than_was_sent_is_a_wrong_answer() {
        let mut load = serve(|stream| {
            let mut bytes = [0; MESSAGE];
            stream.read_exact(&mut bytes)?;
            stream.write_all(&[bytes, bytes].concat())
        });
        assert!(run(&mut load, ECHO).0.is_err());
    }

    #[test]
    fn a_connection_that_is_closed_is_told() {
        let mut load = serve(|_| Err(ErrorKind::Other.into()));
        let reason = run(&mut load, ECHO).0.unwrap_err();
        assert!(reason.contains("closed") || reason.contains("reset"), "{reason}");
    }

    #[test]
    fn a_server_that_does_not_answer_stalls_and_does_not_hang() {
        let mut load = serve(|stream| stream.read_exact(&mut [0; MESSAGE]));
        assert_eq!(run(&mut load, ECHO).0.unwrap_err(), "stalled: 2 of 2 without answer for 5 s");
    }

    /// The other side reads the sent data: one sleep in three, spins only on the first.
    #[test]
    fn the_work_is_dealt_as_the_pattern_says() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut load = Load::new().unwrap();
        for _ in 0..2 {
            load.connect(listener.local_addr().unwrap(), true).unwrap();
        }
        let mut streams: Vec<TcpStream> = (0..2).map(|_| listener.accept().unwrap().0).collect();
        let mut kinds = |load: &mut Load, handlers, index: usize, burst: usize| {
            load.send(index, Pattern { handlers, burst }).unwrap();
            let mut bytes = vec![0; burst * MESSAGE];
            streams[index].read_exact(&mut bytes).unwrap();
            bytes.chunks(MESSAGE).map(|message| message[0]).collect::<Vec<u8>>()
        };
        let sleep = Handlers::Sometimes { once_in: 3, work: Work::Sleep(5) };
        assert_eq!(kinds(&mut load, sleep, 0, 7), [0, 0, 2, 0, 0, 2, 0]);
        assert_eq!(kinds(&mut load, sleep, 1, 1), [0]);
        assert_eq!(kinds(&mut load, sleep, 1, 1), [2]);
        assert_eq!(kinds(&mut load, Handlers::FirstSpins(9), 0, 1), [4]);
        assert_eq!(kinds(&mut load, Handlers::FirstSpins(9), 1, 1), [0]);
        assert_eq!(kinds(&mut load, Handlers::All(Work::Locked(3)), 1, 2), [3, 3]);
    }
}
