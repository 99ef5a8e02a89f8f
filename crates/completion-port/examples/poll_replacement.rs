//! A replacement for poll: one thread, a persistent level registration for each socket, and a key
//! that is just a number.

#[path = "common/pair.rs"]
mod pair;

use std::io::{Read, Write};

use completion_port::{Batch, Interest, Packet, Persistent, Port, Registration};
use pair::pair;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = Port::<usize>::new()?;
    let (mut near, mut far): (Vec<_>, Vec<_>) =
        (0..3).map(|_| pair()).collect::<Result<Vec<_>, _>>()?.into_iter().unzip();
    for (number, socket) in far.iter().enumerate() {
        let interest = Interest::IN | Interest::HANGUP;
        port.register(Registration::new(socket, number, interest, Persistent::Level))?;
    }

    for (number, socket) in near.iter_mut().enumerate() {
        write!(socket, "hello from {number}")?;
    }
    // The last bytes and the end of the stream may come in one packet or in two.
    near.clear();

    let mut batch = Batch::new();
    let mut removed = 0;
    while removed < far.len() {
        for packet in port.wait(&mut batch, None)? {
            match packet {
                Packet::Notified(notified) => {
                    let number = *notified.key();
                    if notified.events().is_in() {
                        let mut bytes = [0; 64];
                        let read = far[number].read(&mut bytes)?;
                        println!("{number}: {}", String::from_utf8_lossy(&bytes[..read]));
                    } else if notified.events().is_hangup() {
                        port.remove(notified.id())?;
                    }
                }
                // A socket whose number is in use as a key must not be closed earlier.
                Packet::Removed(_, number) => {
                    println!("{number}: gone");
                    removed += 1;
                }
                _ => {}
            }
        }
    }
    Ok(())
}
