//! The reference's single call: it applies a batch of changes and takes a batch of packets.
//!
//! Tokens are added to the batch of changes instead of being armed one by one. Refused changes are
//! examined after the call.

#[path = "common/pair.rs"]
mod pair;

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use completion_port::{Batch, Changes, Interest, OneShot, Packet, Port, Registration};
use pair::pair;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let port = Port::<TcpStream>::new()?;
    let mut changes = Changes::new();
    let mut batch = Batch::new();

    let mut clients = Vec::new();
    for number in 0..4_u8 {
        let (mut near, far) = pair()?;
        far.set_nonblocking(true)?;
        changes.register(Registration::owned(far, Interest::IN, OneShot::Level));
        near.write_all(&[number; 100])?;
        clients.push(near);
    }

    let mut echoed = 0;
    while echoed < 400 {
        for packet in port.process(&mut changes, &mut batch, Duration::from_secs(1))? {
            let Packet::Ready(mut ready) = packet else { continue };
            let mut bytes = [0; 64];
            match ready.key_mut().read(&mut bytes) {
                Ok(0) => drop(ready),
                Ok(read) => {
                    ready.key_mut().write_all(&bytes[..read])?;
                    echoed += read;
                    changes.rearm(ready);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => changes.rearm(ready),
                Err(error) => return Err(error.into()),
            }
        }
        for refused in changes.refused() {
            eprintln!("change {} was refused: {}", refused.index(), refused.error());
        }
    }

    for (number, client) in clients.iter_mut().enumerate() {
        let mut bytes = [0; 100];
        client.read_exact(&mut bytes)?;
        assert!(bytes.iter().all(|byte| usize::from(*byte) == number));
    }
    println!("echoed {echoed} bytes in {} waits", port.stats().polls);
    Ok(())
}
