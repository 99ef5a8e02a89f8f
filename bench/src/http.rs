//! The clients of a server of HTTP/1.1: one thread, connections that stay or that have a number of
//! requests each.
//!
//! A turn of a connection is a request, several that are sent together, or all requests of a
//! connection. In an open loop each turn has its time. It takes the connection that has been idle
//! longest, or waits for one, and its latency begins at its time: a server that answers late is not
//! asked less often. Only the latencies of quick requests count. Where a connection has several
//! requests, one latency is that of them all, since each waits for the answer before it.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use crate::asking::{Ask, Tally};
use crate::histogram::Histogram;
use crate::load::Pattern;
use crate::system::{self, Set, Wanted};
use crate::traffic::{Get, Http};

pub(crate) mod file;

use self::file::Incoming;

/// The body of every answer that is no file.
pub(crate) const ANSWER: &str = "done\n";

/// Answers of requests sent together have less.
const LONGEST: usize = 8192;

/// The longest piece of a file that is received at a time.
const ROOM: usize = 64 << 10;

/// How long the answers to the last requests may take.
const DRAIN: Duration = Duration::from_secs(10);

/// A connection.
struct Client {
    /// `None` between two short connections.
    stream: Option<TcpStream>,
    /// The beginning of an answer that has not come completely.
    answer: Box<[u8; LONGEST]>,
    received: usize,
    /// The same of an answer with a file.
    file: Incoming,
    /// Answers of the last requests that have not come.
    awaited: u32,
    /// Requests of the connection that follow.
    left: u32,
    /// The connection is not established yet.
    is_unsent: bool,
    /// When its turn was due, and whether that is a quick one.
    due: Instant,
    is_quick: bool,
}

/// The connections to a server.
pub(crate) struct HttpClients {
    set: Set,
    server: SocketAddr,
    clients: Vec<Client>,
    http: Http,
    quick: Asked,
    other: Asked,
    /// Where pieces of files are received.
    room: Box<[u8]>,
    /// Requests sent ever.
    sent: u64,
}

/// A request.
pub(crate) fn request(get: Get) -> String {
    format!("GET {} HTTP/1.1\r\nhost: bench\r\n\r\n", get.path())
}

/// Requests that are sent together, and the file that each of them asks for, if it is one.
struct Asked {
    requests: String,
    file: Option<Vec<u8>>,
}

impl Asked {
    fn new(get: Get, together: usize) -> Asked {
        let requests = request(get).repeat(together);
        Asked { requests, file: get.length().map(file::contents) }
    }
}

impl HttpClients {
    pub(crate) fn new(server: SocketAddr, connections: usize, http: Http) -> io::Result<Self> {
        let mut set = Set::new()?;
        let mut clients = Vec::with_capacity(connections);
        for index in 0..connections {
            let stream = match http.of_each {
                None => Some(connected(server, &mut set, index)?),
                Some(_) => None,
            };
            clients.push(Client {
                stream,
                answer: Box::new([0; LONGEST]),
                received: 0,
                file: Incoming::default(),
                awaited: 0,
                left: 0,
                is_unsent: false,
                due: Instant::now(),
                is_quick: true,
            });
        }
        let together = usize::try_from(http.together).map_err(io::Error::other)?;
        let quick = Asked::new(http.quick, together);
        let other = Asked::new(http.other, together);
        let room = vec![0; ROOM].into();
        Ok(HttpClients { set, server, clients, http, quick, other, room, sent: 0 })
    }

    /// Begins a turn of an idle connection.
    fn begin(&mut self, index: usize, due: Instant) -> Result<(), String> {
        let client = &mut self.clients[index];
        client.due = due;
        client.left = self.http.of_each.unwrap_or(1);
        if self.http.of_each.is_none() {
            return self.send(index);
        }
        let stream =
            system::connecting(self.server).map_err(|error| format!("connecting: {error}"))?;
        let failed = |error: io::Error| format!("load generator: {error}");
        stream.set_nodelay(true).map_err(failed)?;
        client.stream = Some(stream);
        self.send(index)?;
        let client = &self.clients[index];
        let wanted = if client.is_unsent { Wanted::Both } else { Wanted::Input };
        let Some(stream) = &client.stream else { return Ok(()) };
        self.set.add(stream, index, wanted).map_err(failed)
    }

    /// Sends the next request, or the next ones that are sent together.
    fn send(&mut self, index: usize) -> Result<(), String> {
        let once_in = u64::from(self.http.once_in);
        // Not the first ones of a round: the server's threads are just waking up.
        let is_quick = once_in == 0 || self.sent % once_in != once_in / 2;
        let request = &if is_quick { &self.quick } else { &self.other }.requests;
        let client = &mut self.clients[index];
        let Some(stream) = &mut client.stream else { return Ok(()) };
        match stream.write(request.as_bytes()) {
            Ok(count) if count == request.len() => {}
            Ok(count) => {
                return Err(format!("load generator: sent {count} of {} bytes", request.len()));
            }
            // Over loopback a connection is usually there when `connecting` returns.
            Err(error)
                if self.http.of_each.is_some()
                    && matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::NotConnected) =>
            {
                client.is_unsent = true;
                return Ok(());
            }
            Err(error) => return Err(format!("sending: {error}")),
        }
        (client.received, client.is_quick, client.is_unsent) = (0, is_quick, false);
        client.awaited = self.http.together;
        client.left -= 1;
        self.sent += u64::from(self.http.together);
        Ok(())
    }

    /// Receives available data; returns how many answers are complete by it.
    fn receive(&mut self, index: usize) -> Result<u32, String> {
        let client = &mut self.clients[index];
        let Some(stream) = &mut client.stream else { return Ok(0) };
        let asked = if client.is_quick { &self.quick } else { &self.other };
        let mut complete = 0;
        loop {
            let room = match asked.file {
                None => &mut client.answer[client.received..],
                Some(_) => &mut *self.room,
            };
            let most = room.len();
            match stream.read(room) {
                Ok(0) if most == 0 => return Err("an answer is too long".to_owned()),
                Ok(0) => return Err("the server closed a connection".to_owned()),
                Ok(count) => {
                    complete += match &asked.file {
                        None => {
                            client.received += count;
                            take(&mut *client.answer, &mut client.received)?
                        }
                        Some(file) => client.file.take(&room[..count], file)?.into(),
                    };
                    if complete > client.awaited
                        || (complete == client.awaited && client.received > 0)
                    {
                        return Err("more answers than requests".to_owned());
                    }
                    // A read that is shorter than the room leaves nothing.
                    if count < most {
                        return Ok(complete);
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(complete),
                Err(error) => return Err(format!("receiving: {error}")),
            }
        }
    }

    /// Continues a connection after an event. Returns how many answers are complete by it, and
    /// whether its turn has ended.
    fn go_on(&mut self, index: usize, latencies: &mut Histogram) -> Result<(u32, bool), String> {
        if self.clients[index].is_unsent {
            self.send(index)?;
            return Ok((0, false));
        }
        let complete = self.receive(index)?;
        if complete == 0 {
            return Ok((0, false));
        }
        let client = &mut self.clients[index];
        client.awaited -= complete;
        let ends = client.awaited == 0 && client.left == 0;
        let latency = Instant::now().saturating_duration_since(client.due);
        if client.is_quick {
            match self.http.of_each {
                None => (0..complete).for_each(|_| latencies.record(latency)),
                Some(_) if ends => latencies.record(latency),
                Some(_) => {}
            }
        }
        if ends && self.http.of_each.is_some() {
            client.stream = None;
        } else if client.awaited == 0 && !ends {
            self.send(index)?;
        }
        Ok((complete, ends))
    }
}

/// A connection that stays.
fn connected(server: SocketAddr, set: &mut Set, index: usize) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(server)?;
    system::reset_when_closed(&stream)?;
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    set.add(&stream, index, Wanted::Input)?;
    Ok(stream)
}

/// Removes the complete answers at the beginning of the received data, and returns their number.
fn take(answer: &mut [u8], received: &mut usize) -> Result<u32, String> {
    let (mut at, mut complete) = (0, 0);
    while at < *received
        && let Some(length) = length_of(&answer[at..*received])?
    {
        at += length;
        complete += 1;
    }
    answer.copy_within(at..*received, 0);
    *received -= at;
    Ok(complete)
}

/// The length of the first answer, if it is complete. The error says that it is none, or another one
/// than expected.
fn length_of(answers: &[u8]) -> Result<Option<usize>, String> {
    let odd = || format!("an odd answer: {}", String::from_utf8_lossy(answers));
    let Some(head) = answers.windows(4).position(|window| window == b"\r\n\r\n") else {
        return Ok(None);
    };
    if !answers.starts_with(b"HTTP/1.1 200 ") {
        return Err(odd());
    }
    let begin = head + 4;
    let body = &answers[begin..answers.len().min(begin + ANSWER.len())];
    if !ANSWER.as_bytes().starts_with(body) {
        return Err(odd());
    }
    Ok((body.len() == ANSWER.len()).then_some(begin + ANSWER.len()))
}

/// How far a round has come.
struct Round {
    begin: Instant,
    end: Instant,
    /// The end of the time in which answers count for the rate.
    rate_until: Instant,
    /// Between two turns; `None` in a closed loop.
    interval: Option<Duration>,
    /// Turns that have begun.
    begun: u32,
    answered: u64,
    in_time: u64,
}

impl Round {
    fn new(http: Http, time: Duration) -> Round {
        let begin = Instant::now();
        let interval = http.rate.map(|rate| Duration::from_secs(1) * http.of_a_turn() / rate);
        Round {
            begin,
            end: begin + time,
            rate_until: begin + time,
            interval,
            begun: 0,
            answered: 0,
            in_time: 0,
        }
    }

    /// When the next turn is due; `None` if there is no other one.
    fn next(&self, now: Instant) -> Option<Instant> {
        let due = match self.interval {
            Some(interval) => self.begin + interval * self.begun,
            // The first turn is due at the beginning, even if this thread was paused until the end.
            None if self.begun == 0 => self.begin,
            None => now,
        };
        (due < self.end).then_some(due)
    }

    /// Counts answers. If none came in time, the round lasts until the first: on a busy machine the
    /// server may have been without a processor for so long.
    fn count(&mut self, complete: u32) {
        let now = Instant::now();
        self.answered += u64::from(complete);
        if now < self.end {
            self.in_time += u64::from(complete);
        } else if self.in_time == 0 && complete > 0 {
            self.in_time = u64::from(complete);
            self.rate_until = now;
        }
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
                self.begin(index, due)?;
                round.begun += 1;
                now = Instant::now();
            }
            let under_way = self.clients.len() - idle.len();
            if under_way == 0 && round.next(now).is_none() {
                break;
            }
            self.set.wait(round.left(now, !idle.is_empty(), under_way)?)?;
            for at in 0..self.set.count() {
                let Some(index) = self.set.index(at) else { continue };
                let (complete, ends) = self.go_on(index, latencies)?;
                round.count(complete);
                if ends {
                    idle.push_back(index);
                }
            }
        }
        let (in_time, answered) = (round.in_time, round.answered);
        let seconds = (round.rate_until - round.begin).as_secs_f64();
        Ok(Tally { in_time, seconds, answered, least: 0 })
    }

    fn connections(&self) -> usize {
        self.clients.len()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
    use std::thread;

    use super::*;
    use crate::load::Handlers;
    use crate::work::Work;

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

    const WHOLE: &str = "HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\ndone\n";

    fn done(_: &str) -> String {
        WHOLE.to_owned()
    }

    #[test]
    fn an_open_loop_sends_every_request_of_its_schedule() {
        let http = Http { rate: Some(500), ..Http::PLAIN };
        let (tally, latencies) = run(&mut serve(3, http, done), Duration::from_millis(200));
        let tally = tally.unwrap();
        assert_eq!(tally.answered, 100);
        assert!(tally.in_time <= 100 && latencies.per_mille(500).unwrap() > 0.0, "{tally:?}");
    }

    #[test]
    fn a_closed_loop_keeps_every_connection_busy() {
        let mut clients = serve(3, Http::PLAIN, done);
        let (tally, _) = run(&mut clients, Duration::from_millis(50));
        let tally = tally.unwrap();
        assert!(tally.answered >= 1 && tally.answered == clients.sent, "{tally:?}");
        assert!(tally.answered - tally.in_time <= 3, "{tally:?}");
    }

    #[test]
    fn a_round_without_time_has_one_turn() {
        let tally = run(&mut serve(1, Http::PLAIN, done), Duration::from_nanos(1)).0.unwrap();
        assert_eq!((tally.in_time, tally.answered), (1, 1));
    }

    /// One in five takes 20 ms; no latency of theirs is recorded, though two requests wait for them.
    #[test]
    fn only_quick_requests_have_latencies() {
        let http = Http {
            rate: Some(500),
            once_in: 5,
            other: Get::Work(Work::Sleep(20_000)),
            ..Http::PLAIN
        };
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
        let http = Http { rate: Some(1000), ..Http::PLAIN };
        let answer = |head: &str| {
            Work::Sleep(10_000).perform();
            done(head)
        };
        let (tally, latencies) = run(&mut serve(1, http, answer), Duration::from_millis(20));
        assert_eq!(tally.unwrap().answered, 20);
        // The last one was due after 19 ms, and is answered after 200.
        assert!(latencies.per_mille(1000).unwrap() >= 175e6);
    }

    /// Serves connections one after the other: answers each request, in pieces, with `answer`.
    /// Returns how many connections there were.
    fn serve_all(answer: &'static str, http: Http) -> (HttpClients, Arc<AtomicU64>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&connections);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (mut stream, mut heads) = (stream.unwrap(), String::new());
                stream.set_nodelay(true).unwrap();
                count.fetch_add(1, SeqCst);
                let mut buffer = [0; 300];
                while let Ok(read @ 1..) = stream.read(&mut buffer) {
                    heads.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
                    let whole = heads.matches("\r\n\r\n").count();
                    heads.drain(..heads.rfind("\r\n\r\n").map_or(0, |at| at + 4));
                    for part in answer.repeat(whole).as_bytes().chunks(100) {
                        let _ = stream.write_all(part);
                    }
                }
            }
        });
        (HttpClients::new(address, 1, http).unwrap(), connections)
    }

    #[test]
    fn a_round_without_an_answer_lasts_until_the_first() {
        let answer = |head: &str| {
            Work::Sleep(20_000).perform();
            done(head)
        };
        let mut clients = serve(1, Http::PLAIN, answer);
        let tally = run(&mut clients, Duration::from_millis(1)).0.unwrap();
        assert_eq!((tally.in_time, tally.answered), (1, 1));
        assert!(tally.seconds >= 0.02, "{tally:?}");
    }

    #[test]
    fn requests_sent_together_have_an_answer_each() {
        let http = Http { together: 16, ..Http::PLAIN };
        let (mut clients, connections) = serve_all(WHOLE, http);
        let (tally, latencies) = run(&mut clients, Duration::from_millis(30));
        let tally = tally.unwrap();
        assert!(tally.answered >= 16 && tally.answered.is_multiple_of(16), "{tally:?}");
        assert_eq!((tally.answered, tally.answered), (clients.sent, latencies.count()));
        assert_eq!(connections.load(SeqCst), 1);
        let twice = WHOLE.repeat(2).leak();
        let (mut clients, _) = serve_all(twice, http);
        let (tally, _) = run(&mut clients, Duration::from_millis(30));
        assert_eq!(tally.unwrap_err(), "more answers than requests");
    }

    #[test]
    fn a_short_connection_has_its_number_of_requests_and_one_latency() {
        let http = Http { of_each: Some(3), ..Http::PLAIN };
        let (mut clients, connections) = serve_all(WHOLE, http);
        let (tally, latencies) = run(&mut clients, Duration::from_millis(30));
        let tally = tally.unwrap();
        assert!(tally.answered >= 3 && tally.answered == clients.sent, "{tally:?}");
        assert_eq!(tally.answered, 3 * latencies.count());
        assert_eq!(latencies.count(), connections.load(SeqCst));
        assert!(clients.clients[0].stream.is_none());
        // In an open loop the rate is that of requests.
        let http = Http { rate: Some(300), ..http };
        let (tally, latencies) = run(&mut serve_all(WHOLE, http).0, Duration::from_millis(100));
        assert_eq!((tally.unwrap().answered, latencies.count()), (30, 10));
    }

    #[test]
    fn an_answer_that_is_none_is_found() {
        for answer in [
            |_: &str| "HTTP/1.1 404 Not Found\r\n\r\n".to_owned(),
            |_: &str| "HTTP/1.1 200 OK\r\n\r\nelse\n".to_owned(),
        ] {
            let (tally, _) = run(&mut serve(1, Http::PLAIN, answer), Duration::from_millis(5));
            assert!(tally.unwrap_err().starts_with("an odd answer: HTTP/1.1"));
        }
    }
}
