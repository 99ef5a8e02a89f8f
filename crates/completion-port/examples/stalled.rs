//! A server that stalls in three ways at the same time, and the dump of its port, which
//! docs/STALLS.md explains.

#[path = "common/pair.rs"]
mod pair;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use completion_port::{
    Batch, BlockDetection, Interest, OneShot, Packet, Port, Registration, Stats,
};
use pair::pair;

enum Job {
    /// Sleeps until there is an answer, without announcing it.
    Fetch(mpsc::Receiver<u64>),
    Add,
}

/// Sent by a client to make its handler misbehave.
const KEEP: u8 = b'k';
const PARK: u8 = b'p';

fn serve(port: &Port<TcpStream, Job>) {
    let mut batch = Batch::new();
    let mut kept = Vec::new();
    let mut byte = [0];
    while let Ok(packets) = port.wait(&mut batch, None) {
        for packet in packets {
            match packet {
                Packet::Ready(mut ready) => {
                    match ready.key_mut().read(&mut byte) {
                        // The token is kept and never armed: nothing more is reported.
                        Ok(1) if byte[0] == KEEP => kept.push(ready),
                        // Nothing enables this registration again.
                        Ok(1) if byte[0] == PARK => drop(ready.park()),
                        _ => drop(ready.rearm()),
                    }
                }
                Packet::Posted(Job::Fetch(answer)) => drop(answer.recv()),
                _ => {}
            }
        }
    }
}

/// Waits until the statistics satisfy `is_so`, at most ten seconds.
fn until(port: &Port<TcpStream, Job>, is_so: impl Fn(&Stats) -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !is_so(&port.stats()) {
        assert!(Instant::now() < deadline, "{port:#?}");
        thread::yield_now();
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // One thread may run, and a sleeping handler is not detected.
    let port: Port<TcpStream, Job> =
        Port::builder().concurrency(1).block_detection(BlockDetection::Announced).build()?;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let (near, far) = pair()?;
        port.register(Registration::owned(far, Interest::IN, OneShot::Level))?;
        clients.push(near);
    }
    thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
        for _ in 0..2 {
            scope.spawn(|| serve(&port));
        }
        clients[0].write_all(&[KEEP, b'x'])?;
        clients[1].write_all(&[PARK, b'x'])?;
        until(&port, |stats| stats.packets.ready == 2 && stats.parked == 2);

        // One thread sleeps in its handler. A message and a socket wait for the other one.
        let (answer, question) = mpsc::channel();
        port.post(Job::Fetch(question))?;
        until(&port, |stats| stats.packets.posted == 1);
        port.post(Job::Add)?;
        clients[2].write_all(b"x")?;
        until(&port, |stats| stats.queued == 2);
        println!("{port:#?}");
        println!("{:#?}", port.stats());

        answer.send(1)?;
        until(&port, |stats| stats.packets.posted == 2);
        // A shutdown would wait for the key that its handler keeps.
        port.close();
        Ok(())
    })
}
