//! `cport echo`, run as a user runs it.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream, UdpSocket};
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use crate::common::{
    DEADLINE, Ended, MIB, Running, WAYS, connect, content, cport, echo, is_over_time, run,
    uninterrupted,
};
use socket2::SockRef;

/// Sends `sent`, shuts down the sending half, and returns the whole echo.
fn sent_and_back(mut stream: TcpStream, sent: &[u8]) -> Vec<u8> {
    let mut reader = stream.try_clone().unwrap();
    thread::scope(|scope| {
        scope.spawn(move || {
            stream.write_all(sent).unwrap();
            stream.shutdown(Shutdown::Write).unwrap();
        });
        let mut back = Vec::new();
        reader.read_to_end(&mut back).unwrap();
        back
    })
}

fn interrupted(server: Running) -> Ended {
    server.interrupt();
    let ended = server.ended();
    assert_eq!(ended.status.code(), Some(0), "{ended:?}");
    ended
}

fn assert_has(ended: &Ended, words: &str) {
    assert!(ended.stdout.contains(words), "{words:?} is not in {ended:?}");
}

#[test]
fn what_is_sent_comes_back_whole_after_the_client_has_ended_its_half() {
    for way in WAYS {
        let (server, address) = echo(&[way, &["--threads", "3", "--concurrency", "2"]].concat());
        for length in [0, 1, 65_535, 65_536, 65_537, 5 * MIB] {
            let sent = content(length as u64, length);
            assert!(sent_and_back(connect(address), &sent) == sent, "{length} bytes");
        }
        let ended = interrupted(server);
        assert_has(&ended, "6 connections (0 still open)");
        assert_has(&ended, "concurrency value 2");
        assert_eq!(ended.stderr, "");
    }
}

#[test]
fn a_client_that_does_not_read_is_held_back_and_loses_nothing() {
    for way in WAYS {
        let (server, address) = echo(way);
        let mut stream = connect(address);
        // So much is never in flight between two processes: the server would have to store it.
        let most = 256 * MIB;
        let chunk = content(1, MIB);
        let mut sent = 0;
        stream.set_write_timeout(Some(Duration::from_millis(300))).unwrap();
        let begun = Instant::now();
        let stalled = loop {
            match uninterrupted(|| stream.write(&chunk[sent % MIB..])) {
                Ok(written) if sent < most => sent += written,
                Ok(_) => break false,
                // Before that it may be slow to begin.
                Err(error) if is_over_time(&error) && sent > MIB => break true,
                Err(error) if is_over_time(&error) => {
                    assert!(begun.elapsed() < DEADLINE, "the server takes only {sent} bytes");
                }
                Err(error) => panic!("{error}"),
            }
        };
        assert!(stalled, "the server took {sent} bytes without giving one back");
        stream.shutdown(Shutdown::Write).unwrap();

        let mut back = 0;
        let mut buffer = vec![0; 10_007];
        loop {
            let read = uninterrupted(|| stream.read(&mut buffer)).unwrap();
            if read == 0 {
                break;
            }
            let mut rest = &buffer[..read];
            while !rest.is_empty() {
                let place = back % MIB;
                let (part, behind) = rest.split_at(rest.len().min(MIB - place));
                assert!(part == &chunk[place..place + part.len()], "after {back} bytes");
                back += part.len();
                rest = behind;
            }
        }
        assert_eq!(back, sent);
        interrupted(server);
    }
}

#[test]
fn many_connections_get_their_own_bytes_back() {
    for way in WAYS {
        let (server, address) = echo(&[way, &["--threads", "8", "--concurrency", "2"]].concat());
        thread::scope(|scope| {
            for first in 0..8_u64 {
                scope.spawn(move || {
                    let mut streams = (0..25).map(|_| connect(address)).collect::<Vec<_>>();
                    for round in 0..20 {
                        let message =
                            |number: u64| content(first * 1000 + number * 20 + round, 3000);
                        for (number, stream) in (0..).zip(&mut streams) {
                            stream.write_all(&message(number)).unwrap();
                        }
                        for (number, stream) in (0..).zip(&mut streams) {
                            let mut back = [0; 3000];
                            stream.read_exact(&mut back).unwrap();
                            assert!(back[..] == message(number), "round {round}");
                        }
                    }
                });
            }
        });
        assert_has(&interrupted(server), "200 connections");
    }
}

#[test]
fn an_aborted_connection_disturbs_no_other() {
    for way in WAYS {
        let (server, address) = echo(&[way, &["--threads", "2"]].concat());
        let mut other = connect(address);
        let mut echoed = |bytes: &[u8; 10]| {
            other.write_all(bytes).unwrap();
            let mut back = [0; 10];
            other.read_exact(&mut back).unwrap();
            assert_eq!(&back, bytes);
        };
        echoed(b"first here");
        let before = server.open();
        for _ in 0..20 {
            let mut aborted = connect(address);
            aborted.write_all(&content(9, 100_000)).unwrap();
            // The echo shows that the server has the connection: it could otherwise be accepted
            // after the last check.
            aborted.read_exact(&mut [0]).unwrap();
            // Closing it discards data in transit and resets the connection.
            SockRef::from(&aborted).set_linger(Some(Duration::ZERO)).unwrap();
            drop(aborted);
            echoed(b"still here");
        }
        // The last one was aborted before the last echo, but another thread may see to it.
        let begun = Instant::now();
        while server.open() > before {
            assert!(begun.elapsed() < DEADLINE, "an aborted connection stays open");
            thread::yield_now();
        }
        assert_has(&interrupted(server), "(1 still open)");
    }
}

#[test]
fn ctrl_c_and_sigterm_end_it_with_the_statistics_while_clients_are_connected() {
    for (signal, protocol) in [
        (Running::interrupt as fn(&Running), ""),
        (Running::terminate, ""),
        (Running::terminate, "--operations"),
        (Running::interrupt, "--udp"),
    ] {
        let option: Vec<_> = [protocol].into_iter().filter(|option| !option.is_empty()).collect();
        let (server, address) = echo(&option);
        let is_tcp = protocol != "--udp";
        let mut clients = Vec::new();
        if is_tcp {
            clients.extend((0..5).map(|_| connect(address)));
            for client in &mut clients {
                client.write_all(b"x").unwrap();
                client.read_exact(&mut [0]).unwrap();
            }
        }
        signal(&server);
        let ended = server.ended();
        assert_eq!(ended.status.code(), Some(0), "{ended:?}");
        assert_eq!(ended.stderr, "");
        assert_has(&ended, "packets: ");
        assert_has(&ended, "packets by thread: ");
        if is_tcp {
            assert_has(&ended, "5 connections (5 still open)");
        } else {
            assert_has(&ended, "0 datagrams (0 lost)");
        }
        for mut client in clients {
            assert_eq!(uninterrupted(|| client.read(&mut [0])).unwrap(), 0);
        }
    }
}

#[test]
fn datagrams_come_back_to_their_senders_in_order() {
    let (server, address) = echo(&["--udp", "--threads", "4"]);
    // The usual buffer of a socket takes only three of the longest, and drops a fourth.
    let alone = &Mutex::new(());
    thread::scope(|scope| {
        for seed in 0..4_u64 {
            scope.spawn(move || {
                let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
                socket.connect(address).unwrap();
                socket.set_read_timeout(Some(DEADLINE)).unwrap();
                let mut back = vec![0; 70_000];
                for round in 0..50 {
                    let burst = (0..8).map(|number| content(seed + round, 100 + number));
                    let burst = burst.collect::<Vec<_>>();
                    for datagram in &burst {
                        uninterrupted(|| socket.send(datagram)).unwrap();
                    }
                    for datagram in &burst {
                        let length = uninterrupted(|| socket.recv(&mut back)).unwrap();
                        assert!(back[..length] == datagram[..]);
                    }
                }
                for length in [0, 1, 60_000] {
                    let _alone = alone.lock().unwrap();
                    let datagram = content(seed, length);
                    uninterrupted(|| socket.send(&datagram)).unwrap();
                    assert_eq!(uninterrupted(|| socket.recv(&mut back)).unwrap(), length);
                    assert!(back[..length] == datagram[..]);
                }
            });
        }
    });
    assert_has(&interrupted(server), "1,612 datagrams (0 lost)");
}

#[test]
fn a_port_in_use_is_told_in_one_line() {
    let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = tcp.local_addr().unwrap().to_string();
    run(cport(&["echo", "--listen", &taken])).assert_refused(&taken);
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let taken = udp.local_addr().unwrap().to_string();
    run(cport(&["echo", "--udp", "--listen", &taken])).assert_refused(&taken);
}

#[test]
fn a_bad_address_is_told_in_one_line() {
    for bad in ["nonsense", "127.0.0.1", "127.0.0.1:99999", "127.0.0.1:", "[::1:80", ""] {
        run(cport(&["echo", "--listen", bad])).assert_refused("cannot listen on");
    }
}

#[test]
fn arguments_that_make_no_sense_are_refused() {
    for arguments in [
        &["echo"][..],
        &["echo", "--listen", "127.0.0.1:0", "--threads", "0"],
        &["echo", "--listen", "127.0.0.1:0", "--concurrency", "-1"],
        &["echo", "--listen", "127.0.0.1:0", "--operations", "--udp"],
        &["serve"],
    ] {
        let ended = run(cport(arguments));
        assert_eq!(ended.status.code(), Some(2), "{ended:?}");
        assert_eq!(ended.stdout, "");
        assert!(ended.stderr.contains("error:"), "{ended:?}");
    }
}
