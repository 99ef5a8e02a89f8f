//! The output of `cport echo` while it runs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use crate::common::{DEADLINE, Running, cport, served};
use serde_json::Value;

fn talk(server: SocketAddr, times: usize) -> TcpStream {
    let mut stream = TcpStream::connect(server).unwrap();
    stream.set_read_timeout(Some(DEADLINE)).unwrap();
    for _ in 0..times {
        stream.write_all(b"ping").unwrap();
        stream.read_exact(&mut [0; 4]).unwrap();
    }
    stream
}

#[test]
fn rates_are_printed_live_one_object_a_line() {
    let json = ["echo", "--listen", "0", "--json", "--threads", "3", "--stats", "100ms"];
    let begun = Instant::now();
    let mut server = Running::start(cport(&json));
    let mut next = || -> Value { serde_json::from_str(&server.line()).unwrap() };
    let first = next();
    assert_eq!((&first["event"], &first["threads"]), (&"listening".into(), &3.into()));
    let _stream = talk(first["address"].as_str().unwrap().parse().unwrap(), 100);
    // The server started later, so its counters cover at most this time.
    let talked = begun.elapsed().as_secs_f64();
    let names = ["requests_per_second", "received_per_second", "sent_per_second"];
    // Rates and intervals are rounded to thousandths, which counts in a short interval.
    let (mut totals, mut errors) = ([0.0; 3], [0.01; 3]);
    loop {
        let object = next();
        assert_eq!(object["event"], "stats", "{object}");
        let number = |name: &str| object[name].as_f64().unwrap();
        assert!(number("interval") > 0.0 && number("seconds") > 0.0, "{object}");
        for ((total, error), name) in totals.iter_mut().zip(&mut errors).zip(names) {
            *total += number(name) * number("interval");
            *error += (number(name) + number("interval")) * 0.001;
        }
        if number("requests_per_second") > 0.0 {
            assert_eq!(object["connections"], 1);
        }
        // Nothing happens after that, and the threads rest: the last one has counted what it sent.
        let is_later = number("seconds") - number("interval") >= talked;
        let rests = object["parked"] == 3 && object["queued"] == 0 && object["running"] == 0;
        let is_quiet = names.map(number) == [0.0; 3] && number("wakes_per_second") == 0.0;
        if is_later && is_quiet && rests {
            break;
        }
    }
    // Four bytes a request, in either direction.
    for ((total, error), exact) in totals.into_iter().zip(errors).zip([100.0, 400.0, 400.0]) {
        assert!((total - exact).abs() <= error, "{totals:?}, {errors:?}");
    }
    server.terminate();
    let ended = server.ended();
    let last: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["accepted"]), (&"ended".into(), &1.into()));
    assert_eq!((&last["received"], &last["cut_bytes"]), (&400.into(), &0.into()));
}

/// Other systems have no such signal.
#[cfg(target_os = "linux")]
#[test]
fn a_signal_prints_the_numbers_once() {
    use rustix::process::Signal;

    let (mut server, address) = crate::common::echo(&["--threads", "3"]);
    assert!(server.line().starts_with("3 threads, "));
    assert!(server.line().contains("`kill -USR1 "));
    let _stream = talk(address, 10);
    for requests in ["requests/s", " 0 requests/s"] {
        crate::common::linux::send(server.pid(), Signal::USR1);
        let line = server.line();
        for words in
            [" s  1 connection  ", " new/s", requests, "in ", "queue 0", "parked ", "wakes "]
        {
            assert!(line.contains(words), "{words} in {line}");
        }
    }
    server.terminate();
    let ended = server.ended();
    assert!(ended.status.success(), "{ended:?}");
    assert!(!ended.stdout.contains("requests/s"), "{ended:?}");
}

#[test]
fn a_port_is_address_enough() {
    for (given, local) in [("0", true), (":0", false), ("localhost:0", true)] {
        let (server, address) = served(cport(&["echo", "--listen", given]));
        assert_eq!(address.ip().is_loopback(), local, "{given}: {address}");
        talk((std::net::Ipv4Addr::LOCALHOST, address.port()).into(), 1);
        server.interrupt();
        assert!(server.ended().status.success());
    }
}
