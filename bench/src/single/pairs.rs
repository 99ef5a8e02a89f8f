//! The connections of a contender, and the side of them that sends.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

use super::Taker;
use crate::work::{BUFFER, MESSAGE};

/// The sending ends of a contender's connections.
pub(super) struct Pairs {
    senders: Vec<TcpStream>,
    sent: u64,
}

/// The passes that a contender is to make.
pub(crate) struct Driver<'p> {
    pairs: &'p mut Pairs,
    left: usize,
}

impl Pairs {
    /// That many connections: the sending ends, and the non-blocking receiving ends.
    pub(super) fn new(connections: usize) -> io::Result<(Self, Vec<TcpStream>)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        let (mut senders, mut receivers) = (Vec::new(), Vec::new());
        for _ in 0..connections {
            let sender = TcpStream::connect(address)?;
            let (receiver, _) = listener.accept()?;
            sender.set_nodelay(true)?;
            receiver.set_nodelay(true)?;
            receiver.set_nonblocking(true)?;
            senders.push(sender);
            receivers.push(receiver);
        }
        Ok((Pairs { senders, sent: 0 }, receivers))
    }

    pub(super) fn driver(&mut self, passes: usize) -> Driver<'_> {
        Driver { pairs: self, left: passes }
    }

    /// Messages sent so far.
    #[cfg(test)]
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }
}

impl Driver<'_> {
    /// Messages of each pass.
    pub(super) fn connections(&self) -> usize {
        self.pairs.senders.len()
    }

    /// Begins the next pass: a message to each connection. Returns how many these are, `None` after
    /// the last pass.
    pub(super) fn send(&mut self) -> io::Result<Option<usize>> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        for mut sender in &self.pairs.senders {
            if sender.write(&[0x5a; MESSAGE])? != MESSAGE {
                return Err(io::Error::new(ErrorKind::WriteZero, "a message was cut"));
            }
        }
        self.pairs.sent += self.pairs.senders.len() as u64;
        Ok(Some(self.pairs.senders.len()))
    }

    /// Makes all passes with a function that waits for events and returns how many messages it has
    /// received by them.
    pub(super) fn each(&mut self, mut take: impl FnMut() -> io::Result<usize>) -> io::Result<()> {
        while let Some(messages) = self.send()? {
            let mut taken = 0;
            while taken < messages {
                taken += take()?;
            }
            check(taken, messages)?;
        }
        Ok(())
    }
}

/// A pass has brought as many messages as were sent.
pub(super) fn check(taken: usize, messages: usize) -> io::Result<()> {
    if taken == messages {
        return Ok(());
    }
    Err(io::Error::other(format!("{taken} messages were taken where {messages} were sent")))
}

/// Receives the message that an event has announced. Returns how many there were: 1, or 0 if the
/// event was about nothing.
pub(super) fn receive(mut stream: impl Read, buffer: &mut [u8; BUFFER]) -> io::Result<usize> {
    match stream.read(buffer) {
        Ok(MESSAGE) => Ok(1),
        Ok(read) => Err(io::Error::other(format!("{read} bytes were received together"))),
        Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(0),
        Err(error) => Err(error),
    }
}

/// The connections without any report of readiness.
struct Bare(Vec<TcpStream>);

pub(super) fn bare(receivers: Vec<TcpStream>) -> io::Result<Box<dyn Taker>> {
    Ok(Box::new(Bare(receivers)))
}

impl Taker for Bare {
    fn run(&mut self, driver: &mut Driver<'_>) -> io::Result<()> {
        let mut buffer = [0; BUFFER];
        driver.each(|| {
            for stream in &self.0 {
                // The kernel may hand a message over a little later than the send returns.
                while receive(stream, &mut buffer)? == 0 {}
            }
            Ok(self.0.len())
        })
    }
}
