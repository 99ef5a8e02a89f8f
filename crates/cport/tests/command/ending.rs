//! How `cport echo` ends: what was received goes back first, unless it is told twice.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{
    DEADLINE, MIB, Running, WAYS, connect, content, cport, echo, filled, rest, uninterrupted,
};
use serde_json::Value;

/// The next line that is not empty.
fn said(server: &mut Running) -> String {
    let line = server.line();
    if line.is_empty() { server.line() } else { line }
}

#[test]
fn ten_megabytes_that_are_on_their_way_come_back_whole() {
    for way in WAYS {
        let (server, address) = echo(way);
        let sent = content(1, 10 * MIB);
        let mut stream = connect(address);
        let mut reader = stream.try_clone().unwrap();
        let (come, begun) = channel();
        let back = thread::scope(|scope| {
            let reading = scope.spawn(move || {
                let mut back = vec![0; MIB];
                reader.read_exact(&mut back).unwrap();
                come.send(()).unwrap();
                reader.read_to_end(&mut back).unwrap();
                back
            });
            let bytes = &sent;
            scope.spawn(move || stream.write_all(bytes).unwrap());
            begun.recv_timeout(DEADLINE).unwrap();
            server.terminate();
            reading.join().unwrap()
        });
        assert!(back == sent, "{} of {} bytes came back", back.len(), sent.len());
        let ended = server.ended();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert_eq!(ended.stderr, "");
        assert!(ended.stdout.contains("10.0 MiB received, 10.0 MiB sent"), "{ended:?}");
    }
}

#[test]
fn a_client_that_reads_only_after_the_signal_gets_all_of_it() {
    for way in WAYS {
        for ends_its_half in [true, false] {
            let (mut server, address) = echo(way);
            let mut stream = connect(address);
            let sent = filled(&mut stream);
            server.terminate();
            if ends_its_half {
                stream.shutdown(Shutdown::Write).unwrap();
            }
            assert!((0..5).any(|_| said(&mut server).starts_with("ending: 1 connection")));
            assert_eq!(rest(&mut stream), sent);
            let ended = server.ended();
            assert_eq!((ended.status.code(), &*ended.stderr), (Some(0), ""), "{ended:?}");
        }
    }
}

#[test]
fn a_second_signal_cuts_off_and_says_how_much() {
    for way in WAYS {
        let [terminate, interrupt] = [Running::terminate, Running::interrupt];
        for (signal, again) in [(terminate, true), (interrupt, true), (terminate, false)] {
            // Without a second signal it is the limit that cuts off.
            let limit = if again { "1m" } else { "300ms" };
            let (mut server, address) = echo(&[way, &["--drain", limit]].concat());
            let mut stream = connect(address);
            let sent = filled(&mut stream);
            signal(&server);
            assert!(said(&mut server).contains("may run at once"));
            assert!(said(&mut server).starts_with("Ctrl-C "));
            let ending = said(&mut server);
            assert!(ending.starts_with("ending: 1 connection may take"), "{ending}");
            // The listener is closed first.
            let begun = Instant::now();
            while TcpStream::connect(address).is_ok() {
                assert!(begun.elapsed() < DEADLINE, "the listener stays open");
                thread::yield_now();
            }
            if again {
                signal(&server);
            }
            let ended = server.ended();
            assert_eq!(ended.status.code(), Some(1), "{ended:?}");
            assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
            assert!(ended.stderr.starts_with("cport: cut off 1 connection: "), "{ended:?}");
            assert!(ended.stderr.contains("iB were received and did not get back"), "{ended:?}");
            assert!(ended.stderr.contains("`--drain`"), "{ended:?}");
            assert!(ended.stdout.contains(" (1 still open)"), "{ended:?}");
            assert!(rest(&mut stream) < sent);
        }
    }
}

#[test]
fn what_was_cut_off_is_counted_in_bytes() {
    for way in WAYS {
        let json = ["echo", "--listen", "0", "--json", "--drain", "0"];
        let mut server = Running::start(cport(&[&json, way].concat()));
        let first: Value = serde_json::from_str(&server.line()).unwrap();
        assert_eq!((&first["event"], &first["protocol"]), (&"listening".into(), &"tcp".into()));
        let mut stream = connect(first["address"].as_str().unwrap().parse().unwrap());
        let sent = filled(&mut stream);
        server.terminate();
        let ended = server.ended();
        let back = rest(&mut stream);
        assert_eq!(ended.status.code(), Some(1), "{ended:?}");
        let objects: Vec<Value> =
            ended.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        let last = objects.last().unwrap();
        assert_eq!((&last["event"], &last["open_at_end"]), (&"ended".into(), &1.into()));
        assert_eq!(last["cut_connections"], 1);
        let cut = usize::try_from(last["cut_bytes"].as_u64().unwrap()).unwrap();
        // The client's own system may have had some of it, which the server has never received; and Windows does not
        // tell what of it is on its way back.
        let least = if cfg!(windows) { 1 } else { 100_000 };
        assert!(
            cut > least && back + cut <= sent,
            "{back} came back, {cut} were cut off of {sent}"
        );
    }
}

#[test]
fn clients_that_go_on_are_served_until_the_end() {
    for way in WAYS {
        let (server, address) = echo(&[&["--drain", "1m"], way].concat());
        let (mut talking, mut idle) = (connect(address), connect(address));
        // From here on the server has it among its clients.
        idle.write_all(b"ping").unwrap();
        idle.read_exact(&mut [0; 4]).unwrap();
        let mut talk = |times: usize| {
            for _ in 0..times {
                talking.write_all(b"ping").unwrap();
                talking.read_exact(&mut [0; 4]).unwrap();
            }
        };
        talk(1);
        server.terminate();
        // The end of the idle one shows that the server ends, and has looked several times.
        idle.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        let begun = Instant::now();
        while uninterrupted(|| idle.read(&mut [0])).is_err() {
            assert!(begun.elapsed() < DEADLINE, "the idle client is not let go");
            talk(1);
        }
        // The server has looked at it many times by then.
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_secs(1) {
            talk(1);
        }
        drop(talking);
        let ended = server.ended();
        assert_eq!((ended.status.code(), &*ended.stderr), (Some(0), ""), "{ended:?}");
        assert!(ended.stdout.contains("2 connections (2 still open)"), "{ended:?}");
    }
}
