//! What a port opens and maps is given back with it, whatever its threads do then. One test for itself: it
//! looks at what the process has.
#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use completion_port::{Batch, BlockDetection, Packet, Port};

/// Open descriptors, and mapped records of the scheduler.
fn held() -> (usize, usize) {
    let descriptors = fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    (descriptors, maps.lines().filter(|line| line.ends_with("[perf_event]")).count())
}

/// A thread that takes a packet and blocks until it is found out, and after the port has been dropped.
/// What the process held before, while it was found out, and when the port was gone.
fn outlived(detection: BlockDetection) -> Option<[(usize, usize); 3]> {
    let before = held();
    let settings = Port::builder().concurrency(1).kernel_sets(1).block_detection(detection);
    let port: Arc<Port<(), u32>> = Arc::new(settings.build().ok()?);
    let (say, hear) = mpsc::channel();
    let (end, ended) = mpsc::channel::<()>();
    let blocks = {
        let port = Arc::clone(&port);
        thread::spawn(move || {
            port.post(1).unwrap();
            let mut batch = Batch::new();
            for packet in port.wait(&mut batch, None).unwrap() {
                assert!(matches!(packet, Packet::Posted(1)));
            }
            drop(port);
            say.send(()).unwrap();
            // It lives on, with a seat at a port that will be gone.
            ended.recv().unwrap_err();
        })
    };
    hear.recv().unwrap();
    let mut found = 0;
    while found == 0 {
        // Whoever waits here looks after the one that blocks.
        assert_eq!(port.wait(&mut Batch::new(), Duration::from_millis(5)).unwrap().count(), 0);
        found = port.stats().blocks_found;
    }
    let meanwhile = held();
    drop(port);
    let afterwards = held();
    drop(end);
    blocks.join().unwrap();
    Some([before, meanwhile, afterwards])
}

#[test]
fn a_dropped_port_leaves_nothing_to_its_threads() {
    let [before, meanwhile, afterwards] = outlived(BlockDetection::Tick).unwrap();
    // The set, the eventfd, and what says of either thread whether it sleeps.
    assert_eq!(meanwhile, (before.0 + 4, before.1));
    assert_eq!(afterwards, before);
    match outlived(BlockDetection::Switches) {
        Some([before, meanwhile, afterwards]) => {
            assert!(meanwhile.1 > before.1, "{meanwhile:?} after {before:?}");
            assert_eq!(afterwards, before);
        }
        None => println!(
            "SKIPPED a_dropped_port_leaves_nothing_to_its_threads with records: no perf_event_open here"
        ),
    }
}
