//! What `cport echo` says while it runs.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};

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
    let mut server = Running::start(cport(&json));
    let mut next = || -> Value { serde_json::from_str(&server.line()).unwrap() };
    let first = next();
    assert_eq!((&first["event"], &first["threads"]), (&"listening".into(), &3.into()));
    let _stream = talk(first["address"].as_str().unwrap().parse().unwrap(), 100);
    let busy = std::iter::repeat_with(&mut next)
        .inspect(|object| assert_eq!(object["event"], "stats", "{object}"))
        .take(600)
        .find(|object| object["requests_per_second"].as_f64().unwrap() > 0.0)
        .unwrap();
    assert_eq!(busy["connections"], 1);
    for name in ["received_per_second", "sent_per_second", "interval", "seconds"] {
        assert!(busy[name].as_f64().unwrap() > 0.0, "{name}: {busy}");
    }
    // Four bytes a request, in either direction.
    let rate = |name: &str| busy[name].as_f64().unwrap();
    assert!((rate("received_per_second") / rate("requests_per_second") - 4.0).abs() < 0.01);
    // Later nothing happens, and the threads rest.
    let idle = std::iter::repeat_with(&mut next)
        .take(600)
        .find(|object| object["requests_per_second"] == 0.0 && object["parked"] == 3)
        .unwrap();
    assert_eq!(
        (&idle["queued"], &idle["running"], &idle["wakes_per_second"]),
        (&0.into(), &0.into(), &0.0.into())
    );
    server.terminate();
    let ended = server.ended();
    let last: Value = serde_json::from_str(ended.stdout.lines().last().unwrap()).unwrap();
    assert_eq!((&last["event"], &last["accepted"]), (&"ended".into(), &1.into()));
    assert_eq!((&last["received"], &last["cut_bytes"]), (&400.into(), &0.into()));
}

/// Elsewhere there is no such signal.
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
