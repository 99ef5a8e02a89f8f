//! Each contender of R2 and R3 with a client that checks every byte of its answers.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use super::*;
use crate::runtimes::shared::each_installed;

/// Runs a test with a client of each contender that is installed.
fn each(test: impl Fn(&str, &dyn Fn() -> TcpStream)) {
    each_installed(&ALL, server, test);
}

/// Reads that many answers, and nothing more. The value of the date is replaced, and the headers that
/// only nginx has are left out.
fn answers(stream: &mut TcpStream, name: &str, count: usize) -> Vec<String> {
    let mut text = String::new();
    let mut all = Vec::new();
    while all.len() < count {
        let mut buffer = [0; 4096];
        let read = stream.read(&mut buffer).unwrap();
        assert!(read > 0, "{name}: the end after {all:?}{text}");
        text.push_str(std::str::from_utf8(&buffer[..read]).unwrap());
        while let Some((head, rest)) = text.split_once("\r\n\r\n") {
            let Some(rest) = rest.strip_prefix(ANSWER) else { break };
            all.push(normal(head, name));
            text = rest.to_owned();
        }
    }
    assert_eq!(text, "", "{name}");
    assert_eq!(all.len(), count, "{name}");
    all
}

fn normal(head: &str, name: &str) -> String {
    let mut lines = Vec::new();
    for line in head.split("\r\n") {
        match line.split_once(": ") {
            Some((header, date)) if header.eq_ignore_ascii_case("date") => {
                let date = httpdate::parse_http_date(date).unwrap();
                let apart = date.elapsed().unwrap();
                assert!(apart < Duration::from_secs(60), "{name}: {apart:?}");
                lines.push("date: now".to_owned());
            }
            Some(("Server" | "Content-Type" | "Connection", _)) if name == NGINX => {}
            Some((header, value)) if name == NGINX => {
                lines.push(format!("{}: {value}", header.to_lowercase()));
            }
            _ => lines.push(line.to_owned()),
        }
    }
    // nginx has the date before the length.
    if name == NGINX {
        lines[1..].sort();
    }
    lines.join("\n")
}

use crate::http::ANSWER;

const FOUND: &str = "HTTP/1.1 200 OK\ncontent-length: 5\ndate: now";
const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\ncontent-length: 5\ndate: now";
const REQUEST: &str = "GET /0/0 HTTP/1.1\r\nhost: bench\r\n\r\n";

#[test]
fn all_answer_the_same_bytes() {
    assert_eq!(REQUEST, crate::http::request(crate::traffic::Get::PAGE));
    each(|name, connect| {
        let mut client = connect();
        for _ in 0..3 {
            client.write_all(REQUEST.as_bytes()).unwrap();
            assert_eq!(answers(&mut client, name, 1), [FOUND], "{name}");
        }
        // Another page, and a request with headers as browsers send them.
        let headers = "accept: */*\r\nuser-agent: test\r\naccept-encoding: gzip\r\n";
        let other = format!("GET /99/0 HTTP/1.1\r\nhost: bench\r\n{headers}\r\n");
        client.write_all(other.as_bytes()).unwrap();
        assert_eq!(answers(&mut client, name, 1), [NOT_FOUND], "{name}");
        // In pieces of a byte.
        for byte in REQUEST.bytes() {
            client.write_all(&[byte]).unwrap();
        }
        assert_eq!(answers(&mut client, name, 1), [FOUND], "{name}");
    });
}

/// More than the buffers of a server hold, and the last one in two pieces.
#[test]
fn pipelined_requests_are_answered_in_order() {
    each(|name, connect| {
        let mut client = connect();
        let other = REQUEST.replace("/0/0", "/99/0");
        let mut all = String::new();
        let mut expected = Vec::new();
        for number in 0..1000 {
            let is_other = number % 7 == 3;
            all.push_str(if is_other { &other } else { REQUEST });
            expected.push(if is_other { NOT_FOUND } else { FOUND });
        }
        let (most, rest) = all.split_at(all.len() - 10);
        let mut writer = client.try_clone().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(move || {
                writer.write_all(most.as_bytes()).unwrap();
                writer.write_all(rest.as_bytes()).unwrap();
            });
            assert_eq!(answers(&mut client, name, expected.len()), expected, "{name}");
        });
    });
}

#[test]
fn a_connection_ends_where_the_client_asks_for_it() {
    each(|name, connect| {
        let mut client = connect();
        let last = "GET /0/0 HTTP/1.1\r\nhost: bench\r\nconnection: close\r\n\r\n";
        client.write_all(format!("{REQUEST}{last}").as_bytes()).unwrap();
        let mut text = String::new();
        client.read_to_string(&mut text).unwrap();
        assert_eq!(text.matches("HTTP/1.1 200 OK").count(), 2, "{name}: {text}");
        assert!(text.ends_with(ANSWER), "{name}: {text}");
        let close = text.to_lowercase().matches("connection: close\r\n").count();
        assert_eq!(close, 1, "{name}: {text}");
        // A client that goes in the middle of a request harms no other one.
        let mut half = connect();
        half.write_all(&REQUEST.as_bytes()[..10]).unwrap();
        drop(half);
        let mut other = connect();
        other.write_all(REQUEST.as_bytes()).unwrap();
        assert_eq!(answers(&mut other, name, 1), [FOUND], "{name}");
    });
}

#[test]
fn what_is_no_request_is_refused() {
    each(|name, connect| {
        for bad in ["nonsense\r\n\r\n", "GET /0/0 HTTP/1.1\r\nhost bench\r\n\r\n"] {
            let mut client = connect();
            client.write_all(bad.as_bytes()).unwrap();
            let mut text = String::new();
            client.read_to_string(&mut text).unwrap();
            let refused = ["", "HTTP/1.1 400 ", "<html>"].map(|start| text.starts_with(start));
            assert!(!text.contains("200 OK") && refused.contains(&true), "{name}: {text}");
        }
    });
}

#[test]
fn the_wanted_contenders_are_measured() {
    let options = |against: &[&str]| Options {
        against: against.iter().map(|name| (*name).to_owned()).collect(),
        threads: None,
        connections: Vec::new(),
        round: None,
    };
    assert_eq!(options(&[]).names(&ALL), ALL);
    assert_eq!(options(&["epoll", "tokio"]).names(&ALL), [OURS, TOKIO, EPOLL]);
}

#[test]
fn the_rate_of_an_open_loop_is_half_of_the_slowest() {
    let rates = [(OURS, vec![30_000.0; 3]), (TOKIO, vec![20_000.0; 3])];
    let mut cell = crate::report::tests::cell(HTTP, 2, 64, RATE, "1/s", &rates);
    assert_eq!(half_of_the_slowest(&cell), 10_000);
    cell.rows[1].failure = Some("stalled".to_owned());
    assert_eq!(half_of_the_slowest(&cell), 15_000);
}
