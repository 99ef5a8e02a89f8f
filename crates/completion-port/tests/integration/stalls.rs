//! `docs/STALLS.md` explains each line of a port's dump, and the statistics of the most common
//! stall.

use std::fs;
use std::net::UdpSocket;
use std::path::Path;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration, Stats};
use testkit::SOON;

fn page() -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/STALLS.md")).unwrap()
}

/// Returns the names before a colon, in order.
fn labels(dump: &str) -> Vec<&str> {
    dump.lines()
        .filter_map(|line| Some(line.trim_start().split_once(": ")?.0))
        .filter(|label| label.chars().all(|c| c.is_ascii_lowercase() || c == '_'))
        .collect()
}

/// Checks that the page's first block beginning with `word` has the lines of a current dump, and
/// that each line is explained.
fn is_explained(dump: &str, word: &str) {
    let page = page();
    let begin = page.find(&format!("```text\n{word} {{\n")).unwrap() + "```text\n".len();
    let shown = &page[begin..begin + page[begin..].find("```").unwrap()];
    let labels_of_today = labels(dump);
    assert!(labels_of_today.len() > 10, "{dump}");
    assert_eq!(
        labels(shown),
        labels_of_today,
        "left: docs/STALLS.md; `cargo run --example stalled` prints what belongs there"
    );
    for label in labels_of_today {
        let explained = page
            .lines()
            .filter(|line| line.starts_with("| `"))
            .any(|line| line.contains(&format!("`{label}`")));
        assert!(explained, "docs/STALLS.md does not explain the line `{label}` of {word}");
    }
}

#[test]
fn each_line_of_a_dump_is_explained() {
    is_explained(&format!("{:#?}", Port::<()>::new().unwrap()), "Port");
}

#[test]
fn each_line_of_the_statistics_is_explained() {
    // `ready` and the other kinds of packets are explained in the row `packets`.
    is_explained(&format!("{:#?}", Port::<()>::new().unwrap().stats()), "Stats");
}

#[test]
fn the_example_exports_each_statistic() {
    let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/metrics.rs");
    let example = fs::read_to_string(example).unwrap();
    for label in labels(&format!("{:#?}", Port::<()>::new().unwrap().stats())) {
        let is_exported = ["stats.", "stats.packets."]
            .iter()
            .any(|place| example.contains(&format!("{place}{label}")));
        assert!(is_exported, "examples/metrics.rs exports no `{label}`");
    }
}

/// Waits until the statistics satisfy `is_so`, and returns whether they do.
fn comes_to(port: &Port<UdpSocket>, is_so: impl Fn(&Stats) -> bool) -> bool {
    let deadline = Instant::now() + SOON;
    while Instant::now() < deadline {
        if is_so(&port.stats()) {
            return true;
        }
        thread::yield_now();
    }
    false
}

/// The second row of the first table: nothing is queued although a client waits.
#[test]
fn handlers_that_all_wait_for_one_lock_leave_no_thread_to_poll() {
    const THREADS: usize = 4;
    let port: Port<UdpSocket> = Port::builder().concurrency(THREADS).build().unwrap();
    let lock = Mutex::new(());
    let client = UdpSocket::bind("127.0.0.1:0").unwrap();
    let addresses = [(); THREADS + 1].map(|()| {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap();
        port.register(Registration::owned(socket, Interest::IN, OneShot::Level)).unwrap();
        address
    });
    let serve = || {
        let mut batch = Batch::with_capacity(1);
        while let Ok(packets) = port.wait(&mut batch, None) {
            for packet in packets {
                if let Packet::Ready(_) = packet {
                    drop(lock.lock());
                }
            }
        }
    };
    let taken = |count: usize| move |stats: &Stats| stats.packets.ready == count as u64;
    let locked = lock.lock().unwrap();
    let (stalls, before, after, goes_on) = thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(serve);
        }
        for address in &addresses[..THREADS] {
            client.send_to(b"x", address).unwrap();
        }
        let stalls = comes_to(&port, |stats| taken(THREADS)(stats) && stats.parked == 0);
        let before = port.stats();
        client.send_to(b"x", addresses[THREADS]).unwrap();
        thread::park_timeout(Duration::from_millis(100));
        let after = port.stats();
        drop(locked);
        let goes_on = comes_to(&port, taken(THREADS + 1));
        port.close();
        (stalls, before, after, goes_on)
    });
    assert!(stalls && goes_on, "{before:?} {after:?}");
    let row = |stats: &Stats| (stats.queued, stats.parked, stats.running + stats.blocked);
    assert_eq!((row(&before), row(&after)), ((0, 0, THREADS), (0, 0, THREADS)));
    assert_eq!((before.polls, before.packets), (after.polls, after.packets));
}
