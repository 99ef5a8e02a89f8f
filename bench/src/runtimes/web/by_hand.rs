//! A server of HTTP/1.1 by hand: what a connection receives becomes answers. Its threads wait for
//! the port, or for a set of epoll each.

use std::io::{ErrorKind, Read as _};
use std::net::TcpStream;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use crate::contenders::nonblocking::send;
use crate::http::ANSWER;

/// The only page.
const PATH: &str = "/0/0";
const MOST_HEADERS: usize = 32;
/// No request is longer.
const LONGEST: usize = 16 * 1024;

/// The buffers and answers of a thread.
pub(super) struct Desk {
    buffer: Box<[u8]>,
    out: Vec<u8>,
    answers: Answers,
}

impl Desk {
    pub(super) fn new() -> Desk {
        let buffer = vec![0; LONGEST].into_boxed_slice();
        Desk { buffer, out: Vec::with_capacity(LONGEST), answers: Answers::default() }
    }
}

/// The answers of this second, byte by byte those of hyper.
#[derive(Default)]
struct Answers {
    /// When the date changes.
    until: Option<SystemTime>,
    found: Vec<u8>,
    not_found: Vec<u8>,
    last: Vec<u8>,
}

impl Answers {
    fn refresh(&mut self) {
        let now = SystemTime::now();
        if self.until.is_some_and(|until| now < until) {
            return;
        }
        let date = httpdate::fmt_http_date(now);
        let answer = |status: &str, connection: &str| {
            let length = ANSWER.len();
            let head = format!("HTTP/1.1 {status}\r\n{connection}content-length: {length}\r\n");
            format!("{head}date: {date}\r\n\r\n{ANSWER}").into_bytes()
        };
        self.found = answer("200 OK", "");
        self.not_found = answer("404 Not Found", "");
        self.last = answer("200 OK", "connection: close\r\n");
        let nanoseconds = now.duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
        self.until = now.checked_add(Duration::from_nanos(1_000_000_000 - u64::from(nanoseconds)));
    }
}

/// What a connection waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    Input,
    Room,
}

/// A connection in non-blocking mode.
pub(super) struct Connection {
    stream: TcpStream,
    /// The beginning of a request.
    begun: Vec<u8>,
    /// Answers that found no room.
    unsent: Vec<u8>,
    /// Nothing follows what is unsent.
    is_last: bool,
}

impl AsFd for Connection {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

impl Connection {
    pub(super) fn of(stream: TcpStream) -> Connection {
        Connection { stream, begun: Vec::new(), unsent: Vec::new(), is_last: false }
    }

    /// Answers what has come. `None`: the connection has ended or failed. The set reports levels, so
    /// a read that is shorter than the buffer is enough.
    pub(super) fn serve(&mut self, desk: &mut Desk) -> Option<Next> {
        if !self.unsent.is_empty() {
            let sent = send(&mut self.stream, &self.unsent).ok()?;
            self.unsent.drain(..sent);
            if !self.unsent.is_empty() {
                return Some(Next::Room);
            }
        }
        if self.is_last {
            return None;
        }
        desk.answers.refresh();
        loop {
            let held = self.begun.len();
            desk.buffer[..held].copy_from_slice(&self.begun);
            let room = &mut desk.buffer[held..];
            let most = room.len();
            let read = match self.stream.read(room) {
                // Also if a request fills the buffer and is not complete.
                Ok(0) => return None,
                Ok(read) => read,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Some(Next::Input),
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(_) => return None,
            };
            let received = &desk.buffer[..held + read];
            desk.out.clear();
            let used = self.answer(received, &desk.answers, &mut desk.out);
            self.begun.clear();
            self.begun.extend_from_slice(&received[used..]);
            let sent = send(&mut self.stream, &desk.out).ok()?;
            if sent < desk.out.len() {
                self.unsent.extend_from_slice(&desk.out[sent..]);
                return Some(Next::Room);
            }
            if self.is_last {
                return None;
            }
            if read < most {
                return Some(Next::Input);
            }
        }
    }

    /// Appends an answer to each whole request. Returns how many bytes these have.
    fn answer(&mut self, received: &[u8], answers: &Answers, out: &mut Vec<u8>) -> usize {
        let mut used = 0;
        while used < received.len() && !self.is_last {
            let mut headers = [httparse::EMPTY_HEADER; MOST_HEADERS];
            let mut request = httparse::Request::new(&mut headers);
            match request.parse(&received[used..]) {
                Ok(httparse::Status::Complete(length)) if is_understood(&request) => {
                    used += length;
                    self.is_last = ends(&request);
                    out.extend_from_slice(match request.path {
                        Some(PATH) if self.is_last => &answers.last,
                        Some(PATH) => &answers.found,
                        _ => &answers.not_found,
                    });
                }
                Ok(httparse::Status::Partial) => break,
                Ok(httparse::Status::Complete(_)) | Err(_) => {
                    out.extend_from_slice(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
                    self.is_last = true;
                }
            }
        }
        used
    }
}

/// Whether it is a GET without a body.
fn is_understood(request: &httparse::Request<'_, '_>) -> bool {
    let has_body = |header: &httparse::Header<'_>| {
        header.name.eq_ignore_ascii_case("transfer-encoding")
            || (header.name.eq_ignore_ascii_case("content-length") && header.value != b"0")
    };
    request.method == Some("GET") && !request.headers.iter().any(has_body)
}

/// Whether it is the last request of its connection.
fn ends(request: &httparse::Request<'_, '_>) -> bool {
    let closes = |header: &httparse::Header<'_>| {
        header.name.eq_ignore_ascii_case("connection")
            && header.value.eq_ignore_ascii_case(b"close")
    };
    request.version != Some(1) || request.headers.iter().any(closes)
}
