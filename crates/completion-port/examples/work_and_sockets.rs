//! One queue for sockets and for the work of a thread pool: a thread that must block announces it,
//! and another one takes its place.

#[path = "common/pair.rs"]
mod pair;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::mpsc;
use std::thread;

use completion_port::{Batch, Interest, OneShot, Packet, Port, Registration};
use pair::pair;

enum Job {
    Add(u64),
    /// Blocks until another thread sends a value.
    Fetch(mpsc::Receiver<u64>),
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // One thread runs at a time, and three wait.
    let port: Port<TcpStream, Job> = Port::builder().concurrency(1).build()?;
    let (mut near, far) = pair()?;
    port.register(Registration::owned(far, Interest::IN, OneShot::Level))?;
    let sum = AtomicU64::new(0);

    thread::scope(|scope| -> Result<(), Box<dyn std::error::Error>> {
        for _ in 0..3 {
            scope.spawn(|| {
                let mut batch = Batch::new();
                while let Ok(packets) = port.wait(&mut batch, None) {
                    for packet in packets {
                        match packet {
                            Packet::Posted(Job::Add(number)) => {
                                sum.fetch_add(number, SeqCst);
                            }
                            Packet::Posted(Job::Fetch(answer)) => {
                                let number = port.blocking(|| answer.recv()).unwrap_or(0);
                                sum.fetch_add(number, SeqCst);
                            }
                            Packet::Ready(mut ready) => {
                                let mut byte = [0];
                                if ready.key_mut().read_exact(&mut byte).is_ok() {
                                    sum.fetch_add(u64::from(byte[0]), SeqCst);
                                    let _ = ready.rearm();
                                }
                            }
                            _ => {}
                        }
                    }
                }
            });
        }

        let (answer, question) = mpsc::channel();
        port.post(Job::Fetch(question))?;
        for number in 1..=10 {
            port.post(Job::Add(number))?;
        }
        near.write_all(&[45])?;
        while sum.load(SeqCst) < 100 {
            thread::yield_now();
        }
        // All of that was done while one thread was blocked. Now it may continue.
        answer.send(900)?;
        while sum.load(SeqCst) < 1000 {
            thread::yield_now();
        }
        port.shutdown()?;
        Ok(())
    })?;
    println!("sum {}, {} wakes", sum.into_inner(), port.stats().wakes);
    Ok(())
}
