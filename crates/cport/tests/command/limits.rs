//! The command's behaviour and messages if Linux leaves it few descriptors.

use std::io::{Read, Write};
use std::thread;
use std::time::{Duration, Instant};

use crate::common::linux::cport_limited;
use crate::common::{DEADLINE, Ended, Running, connect, run, served};

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
fn connections_wait_without_a_busy_loop_while_no_descriptor_is_left() {
    let arguments = ["echo", "--listen", "127.0.0.1:0", "--threads", "2", "--concurrency", "1"];
    let begun = Instant::now();
    let (server, address) = served(cport_limited(20, &arguments));
    let mut clients = (0..40).map(|_| connect(address)).collect::<Vec<_>>();
    for client in &mut clients {
        client.write_all(b"x").unwrap();
    }
    let complaint = server.complaints.recv_timeout(DEADLINE).unwrap();
    assert!(complaint.contains("Too many open files"), "{complaint}");
    // Each client that leaves makes room for one that waits.
    for mut client in clients {
        client.read_exact(&mut [0]).unwrap();
    }
    let ended = interrupted(server);
    assert_has(&ended, "40 connections");
    assert_eq!(ended.stderr.lines().count(), 1, "{ended:?}");
    let packets = ended.stdout.lines().find_map(|line| line.strip_prefix("packets: ")).unwrap();
    let ready = packets.split(" ready").next().unwrap().replace(',', "").parse::<u64>().unwrap();
    // Three for each connection, and one for each time the listener has rested, which takes 50 ms.
    let rests = 20 * (begun.elapsed().as_secs() + 1);
    assert!(ready <= 3 * 40 + 40 + rests, "{packets}");
}

/// The port retries without reporting it.
#[test]
fn accepts_in_flight_wait_while_no_descriptor_is_left() {
    let arguments = ["echo", "--listen", "127.0.0.1:0", "--operations", "--threads", "2"];
    let (server, address) = served(cport_limited(20, &arguments));
    let mut clients = (0..40).map(|_| connect(address)).collect::<Vec<_>>();
    for client in &mut clients {
        client.write_all(b"x").unwrap();
    }
    thread::park_timeout(Duration::from_millis(200));
    // Each client that leaves makes room for one that waits.
    for mut client in clients {
        client.read_exact(&mut [0]).unwrap();
    }
    let ended = interrupted(server);
    assert_has(&ended, "40 connections");
    assert_eq!(ended.stderr, "", "{ended:?}");
    let packets = ended.stdout.lines().find_map(|line| line.strip_prefix("packets: ")).unwrap();
    let done = packets.rsplit(", ").next().unwrap().strip_suffix(" completed").unwrap();
    // An accept, a receive and the end for each connection, an additional send for some; and the
    // accepts cancelled in the end.
    assert!(done.parse::<u32>().unwrap() <= 4 * 40 + 16, "{packets}");
}

#[test]
fn too_few_descriptors_are_told_in_one_line() {
    // One after the other the listener, the port and the signals find none left.
    for limit in [4, 5, 6, 7, 8] {
        let ended = run(cport_limited(limit, &["echo", "--listen", "127.0.0.1:0"]));
        ended.assert_refused(&format!("the limit is {limit} descriptors"));
    }
}

#[test]
fn too_few_descriptors_for_the_demo_are_told_before_it_begins() {
    for arguments in [&["demo"][..], &["demo", "--json"], &[]] {
        run(cport_limited(100, arguments)).assert_refused("the limit is 100");
    }
}
