//! The clients of a server of HTTP/1.1: one thread, connections that stay, one request at a time on
//! each of them.
//!
//! In an open loop each request has its time. It takes the connection that has been idle longest, or
//! waits for one, and its latency begins at its time: a server that answers late is not asked less
//! often. Only the latencies of quick requests count.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::asking::{Ask, Tally};
use crate::histogram::Histogram;
use crate::load::Pattern;
use crate::system::{self, Set, Wanted};
use crate::traffic::Http;
use crate::work::Work;

/// The body of every answer.
pub(crate) const ANSWER: &str = "done\n";

/// An answer has less.
const LONGEST: usize = 512;

/// How long the answers to the last requests may take.
const DRAIN: Duration = Duration::from_secs(10);

/// A connection.
struct Client {
    stream: TcpStream,
    answer: [u8; LONGEST],
    received: usize,
    /// When its request was due, and whether that is a quick one.
    due: Instant,
    is_quick: bool,
}

/// The connections to a server.
pub(crate) struct HttpClients {
    set: Set,
    clients: Vec<Client>,
    http: Http,
    quick: String,
    other: String,
    /// Requests sent ever.
    sent: u64,
}

/// A request that asks for this work.
fn request(work: Work) -> String {
    let (kind, amount) = work.parts();
    format!("GET /{kind}/{amount} HTTP/1.1\r\nhost: bench\r\n\r\n")
}

impl HttpClients {
    pub(crate) fn new(server: SocketAddr, connections: usize, http: Http) -> io::Result<Self> {
        let mut set = Set::new()?;
        let mut clients = Vec::with_capacity(connections);
        for index in 0..connections {
            let stream = TcpStream::connect(server)?;
            system::reset_when_closed(&stream)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            set.add(&stream, index, Wanted::Input)?;
            let (answer, due) = ([0; LONGEST], Instant::now());
            clients.push(Client { stream, answer, received: 0, due, is_quick: true });
        }
        let (quick, other) = (request(Work::Echo), request(http.work));
        Ok(HttpClients { set, clients, http, quick, other, sent: 0 })
    }

    fn send(&mut self, index: usize, due: Instant) -> Result<(), String> {
        let once_in = u64::from(self.http.once_in);
        // Not the first ones of a round: the server's threads are just waking up.
        let is_quick = once_in == 0 || self.sent % once_in != once_in / 2;
        self.sent += 1;
        let request = if is_quick { &self.quick } else { &self.other };
        let client = &mut self.clients[index];
        (client.received, client.due, client.is_quick) = (0, due, is_quick);
        match client.stream.write(request.as_bytes()) {
            Ok(count) if count == request.len() => Ok(()),
            Ok(count) => Err(format!("load generator: sent {count} of {} bytes", request.len())),
            Err(error) => Err(format!("sending: {error}")),
        }
    }

    /// Receives available data; returns whether the answer is complete.
    fn receive(&mut self, index: usize) -> Result<bool, String> {
        let client = &mut self.clients[index];
        let room = &mut client.answer[client.received..];
        match client.stream.read(room) {
            Ok(0) if room.is_empty() => return Err("an answer is too long".to_owned()),
            Ok(0) => return Err("the server closed a connection".to_owned()),
            Ok(count) => client.received += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(format!("receiving: {error}")),
        }
        is_complete(&client.answer[..client.received])
    }
}

/// Whether it is a whole answer. The error says that it is none, or another one than expected.
fn is_complete(answer: &[u8]) -> Result<bool, String> {
    let odd = || format!("an odd answer: {}", String::from_utf8_lossy(answer));
    let Some(head) = answer.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(false);
    };
    if !answer.starts_with(b"HTTP/1.1 200 ") {
        return Err(odd());
    }
    let body = &answer[head + 4..];
    if !ANSWER.as_bytes().starts_with(body) {
        return Err(odd());
    }
    Ok(body.len() == ANSWER.len())
}

/// How far a round has come.
struct Round {
    begin: Instant,
    end: Instant,
    /// Between two requests; `None` in a closed loop.
    interval: Option<Duration>,
    /// Requests that have been sent.
    sent: u32,
    answered: u64,
    in_time: u64,
}

impl Round {
    fn new(http: Http, time: Duration) -> Round {
        let begin = Instant::now();
        let interval = http.rate.map(|rate| Duration::from_secs(1) / rate);
        Round { begin, end: begin + time, interval, sent: 0, answered: 0, in_time: 0 }
    }

    /// When the next request is due; `None` if there is no other one.
    fn next(&self, now: Instant) -> Option<Instant> {
        let due = match self.interval {
            Some(interval) => self.begin + interval * self.sent,
            None => now,
        };
        (due < self.end).then_some(due)
    }

    /// The maximum time to wait. The error says that answers have not come.
    fn left(&self, now: Instant, is_idle: bool, under_way: usize) -> Result<Duration, String> {
        let deadline = self.end + DRAIN;
        if now >= deadline {
            let seconds = DRAIN.as_secs();
            return Err(format!("stalled: {under_way} without answer for {seconds} s"));
        }
        let next = self.next(now).filter(|_| is_idle);
        Ok(next.unwrap_or(deadline).saturating_duration_since(now))
    }
}

impl Ask for HttpClients {
    /// The pattern is one of messages, not of requests; what is asked for is in [`Http`].
    fn run(
        &mut self,
        _pattern: Pattern,
        time: Duration,
        latencies: &mut Histogram,
    ) -> Result<Tally, String> {
        let _punctual = system::be_punctual();
        let mut idle: VecDeque<usize> = (0..self.clients.len()).collect();
        let mut round = Round::new(self.http, time);
        loop {
            let mut now = Instant::now();
            while let Some(due) = round.next(now).filter(|due| *due <= now)
                && let Some(index) = idle.pop_front()
            {
                self.send(index, due)?;
                round.sent += 1;
                now = Instant::now();
            }
            let under_way = self.clients.len() - idle.len();
            if under_way == 0 && round.next(now).is_none() {
                break;
            }
            self.set.wait(round.left(now, !idle.is_empty(), under_way)?)?;
            for at in 0..self.set.count() {
                let Some(index) = self.set.index(at) else { continue };
                if !self.receive(index)? {
                    continue;
                }
                let (now, client) = (Instant::now(), &self.clients[index]);
                if client.is_quick {
                    latencies.record(now.saturating_duration_since(client.due));
                }
                round.answered += 1;
                round.in_time += u64::from(now < round.end);
                idle.push_back(index);
            }
        }
        let (in_time, answered, seconds) = (round.in_time, round.answered, time.as_secs_f64());
        Ok(Tally { in_time, seconds, answered, least: 0 })
    }

    fn connections(&self) -> usize {
        self.clients.len()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;
    use crate::load::Handlers;

    /// Serves each connection by a thread that answers what `answer` makes of the request's head.
    fn serve(connections: usize, http: Http, answer: fn(&str) -> String) -> HttpClients {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            for _ in 0..connections {
                let (mut stream, _) = listener.accept().unwrap();
                stream.set_nodelay(true).unwrap();
                thread::spawn(move || {
                    let mut buffer = [0; 512];
                    while let Ok(read @ 1..) = stream.read(&mut buffer) {
                        let head = std::str::from_utf8(&buffer[..read]).unwrap();
                        for part in answer(head).as_bytes().chunks(30) {
                            stream.write_all(part).unwrap();
                        }
                    }
                });
            }
        });
        HttpClients::new(address, connections, http).unwrap()
    }

    fn run(clients: &mut HttpClients, time: Duration) -> (Result<Tally, String>, Histogram) {
        let mut latencies = Histogram::default();
        let pattern = Pattern { handlers: Handlers::Quick, burst: 1 };
        (clients.run(pattern, time, &mut latencies), latencies)
    }

    fn done(_: &str) -> String {
        format!("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n{ANSWER}")
    }

    const QUICK: Http = Http { rate: None, once_in: 0, work: Work::Echo };

    #[test]
    fn an_open_loop_sends_every_request_of_its_schedule() {
        let http = Http { rate: Some(500), ..QUICK };
        let (tally, latencies) = run(&mut serve(3, http, done), Duration::from_millis(200));
        let tally = tally.unwrap();
        assert_eq!(tally.answered, 100);
        assert!(tally.in_time <= 100 && latencies.per_mille(500).unwrap() > 0.0, "{tally:?}");
    }

    #[test]
    fn a_closed_loop_keeps_every_connection_busy() {
        let mut clients = serve(3, QUICK, done);
        let (tally, _) = run(&mut clients, Duration::from_millis(50));
        let tally = tally.unwrap();
        assert!(tally.answered >= 3 && tally.answered == clients.sent, "{tally:?}");
        assert!((1..=3).contains(&(tally.answered - tally.in_time)), "{tally:?}");
    }

    /// One in five takes 20 ms; no latency of theirs is recorded, though two requests wait for them.
    #[test]
    fn only_quick_requests_have_latencies() {
        let http = Http { rate: Some(500), once_in: 5, work: Work::Sleep(20_000) };
        let answer = |head: &str| {
            let work =
                if head.starts_with("GET /2/20000 ") { Work::Sleep(20_000) } else { Work::Echo };
            assert!(work != Work::Echo || head.starts_with("GET /0/0 "), "{head}");
            work.perform();
            done(head)
        };
        let mut clients = serve(50, http, answer);
        let (tally, latencies) = run(&mut clients, Duration::from_millis(100));
        assert_eq!(tally.unwrap().answered, 50);
        assert_eq!(latencies.count(), 40);
    }

    /// The single connection is busy, so most requests wait at the client.
    #[test]
    fn a_latency_begins_when_its_request_was_due() {
        let http = Http { rate: Some(1000), ..QUICK };
        let answer = |head: &str| {
            Work::Sleep(10_000).perform();
            done(head)
        };
        let (tally, latencies) = run(&mut serve(1, http, answer), Duration::from_millis(20));
        assert_eq!(tally.unwrap().answered, 20);
        // The last one was due after 19 ms, and is answered after 200.
        assert!(latencies.per_mille(1000).unwrap() >= 175e6);
    }

    #[test]
    fn an_answer_that_is_none_is_found() {
        for answer in [
            |_: &str| "HTTP/1.1 404 Not Found\r\n\r\n".to_owned(),
            |_: &str| "HTTP/1.1 200 OK\r\n\r\nelse\n".to_owned(),
        ] {
            let (tally, _) = run(&mut serve(1, QUICK, answer), Duration::from_millis(5));
            assert!(tally.unwrap_err().starts_with("an odd answer: HTTP/1.1"));
        }
    }
}
